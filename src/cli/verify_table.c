/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verify_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/string.h"

static const char *const state_name[] = {"ok", "differs", "failed",
                                         "skipped"};

static void put_head(const struct weft_verify_table *t)
{
    if (t->json)
        fputs("{\"rows\": [", stdout);
    else
        printf("%-38s %5s %7s  %-8s  %-8s  %-8s  %-8s  %7s\n", "row", "ranks",
               "devices", "rollouts", "logprobs", "norms", "weights",
               "seconds");
    fflush(stdout);
}

void weft_verify_table_begin(const struct weft_verify_table *t,
                             const char *label)
{
    if (t->terminal) {
        fprintf(stderr, "\r\033[K[%d/%d] %s", t->n_done + 1, t->n_rows,
                label);
        fflush(stderr);
    }
}

void weft_verify_table_end(const struct weft_verify_table *t)
{
    if (t->terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

static void put_hash(uint64_t hash, bool there)
{
    if (there)
        printf("  %08" PRIx32, (uint32_t) (hash >> 32));
    else
        printf("  %-8s", "-");
}

/* What is said of the first row on a GPU, else "". */
static const char *distance_text(const struct weft_verify_distance *d,
                                 char *out, size_t n)
{
    int k = 0;
    out[0] = 0;
    if (d->n_logprobs > 0)
        k = snprintf(out, n, "beside CPU devices: log-probs to %.1g",
                     d->logprob);
    if (d->n_norms > 0)
        snprintf(out + k, n - (size_t) k,
                 "%sthe first gradient's norm to %.1g",
                 k ? ", " : "beside CPU devices: ", d->norm);
    return out;
}

static void put_row(struct weft_verify_table *t,
                    const struct weft_verify_row *row, const char *label,
                    const struct weft_verify_result *r)
{
    static const char *const shown[] = {"ok", "DIFFERS", "FAILED", "skipped"};
    const struct weft_verify_hashes *h = &r->hashes;
    bool there = r->state <= WEFT_VERIFY_DIFFERS;
    printf("%-38s %5d %7d", label, row->ranks, row->ranks * row->devices);
    put_hash(h->tokens, there);
    put_hash(h->logprobs, there && h->logprobs != 0);
    put_hash(h->norms, there);
    put_hash(h->weights, there);
    printf("  %7.1f  %s\n", r->seconds, shown[r->state]);
    bool said = strcmp(t->why.text, r->why.text) == 0;
    char near[192];
    const char *const line[] = {
        distance_text(&r->distance, near, sizeof near), r->difference.number,
        r->difference.tensor, there || said ? "" : r->why.text};
    for (size_t i = 0; i < WEFT_COUNT(line); i++)
        if (line[i][0])
            printf("    %s\n", line[i]);
    t->why = r->why;
}

static void add_hash(struct weft_string *t, const char *name, uint64_t hash)
{
    weft_string_addf(t, ", \"%s\": \"%016" PRIx64 "\"", name, hash);
}

static void add_number(struct weft_string *t, const char *name, double number,
                       int64_t n)
{
    if (n > 0) {
        weft_string_addf(t, ", \"%s\": ", name);
        weft_string_add_number(t, number);
    }
}

static void add_words(struct weft_string *t, const char *name,
                      const char *words)
{
    if (words[0]) {
        weft_string_addf(t, ", \"%s\": ", name);
        weft_string_add_json(t, words);
    }
}

static void put_json(const struct weft_verify_table *table,
                     const struct weft_verify_row *row, const char *label,
                     const struct weft_verify_result *r)
{
    struct weft_string t = {0};
    weft_string_addf(&t,
                     "%s\n {\"row\": \"%s\", \"ranks\": %d, \"devices\": %d, "
                     "\"state\": \"%s\", \"seconds\": ",
                     table->n_done > 0 ? "," : "", label, row->ranks,
                     row->ranks * row->devices, state_name[r->state]);
    weft_string_add_number(&t, r->seconds);
    if (r->state <= WEFT_VERIFY_DIFFERS) {
        add_hash(&t, "rollouts", r->hashes.tokens);
        if (r->hashes.logprobs != 0)
            add_hash(&t, "logprobs", r->hashes.logprobs);
        add_hash(&t, "grad_norms", r->hashes.norms);
        add_hash(&t, "weights", r->hashes.weights);
        add_number(&t, "logprobs_from_cpu", r->distance.logprob,
                   r->distance.n_logprobs);
        add_number(&t, "grad_norm_from_cpu", r->distance.norm,
                   r->distance.n_norms);
        add_words(&t, "first_number", r->difference.number);
        add_words(&t, "first_tensor", r->difference.tensor);
    } else {
        add_words(&t, "why", r->why.text);
    }
    weft_string_add(&t, "}");
    fputs(t.data ? t.data : "", stdout);
    weft_string_release(&t);
}

void weft_verify_table_add(struct weft_verify_table *t,
                           const struct weft_verify_case *c,
                           const char *label,
                           const struct weft_verify_result *r)
{
    if (t->n_done == 0)
        put_head(t);
    if (t->json)
        put_json(t, c->row, label, r);
    else
        put_row(t, c->row, label, r);
    fflush(stdout);
    t->n[r->state]++;
    t->n_gpu_ok += r->state == WEFT_VERIFY_OK && weft_verify_gpus(c->row) > 0;
    t->n_done++;
    if (r->state == WEFT_VERIFY_SKIPPED)
        t->skipped = r->why;
    else if (c->row != weft_verify_row(0))
        t->n_compared++;
}

void weft_verify_table_sum(const struct weft_verify_table *t)
{
    if (t->json) {
        fputs("\n]", stdout);
        for (int s = 0; s <= WEFT_VERIFY_SKIPPED; s++)
            printf(", \"%s\": %d", state_name[s], t->n[s]);
        if (t->no_gpus.code) {
            struct weft_string why = {0};
            add_words(&why, "no_gpus", t->no_gpus.text);
            fputs(why.data ? why.data : "", stdout);
            weft_string_release(&why);
        }
        puts("}");
        return;
    }
    bool bad = t->n[WEFT_VERIFY_DIFFERS] + t->n[WEFT_VERIFY_FAILED] > 0;
    printf("\n%d rows of the same bits", t->n[WEFT_VERIFY_OK] - t->n_gpu_ok);
    if (t->n_gpu_ok > 0)
        printf(", and %d on GPUs, with theirs", t->n_gpu_ok);
    if (bad)
        printf(", %d DIFFER, %d FAILED", t->n[WEFT_VERIFY_DIFFERS],
               t->n[WEFT_VERIFY_FAILED]);
    if (t->n[WEFT_VERIFY_SKIPPED] > 0)
        printf(", %d skipped and not compared, the last one because: %s",
               t->n[WEFT_VERIFY_SKIPPED], t->skipped.text);
    putchar('\n');
    if (t->no_gpus.code)
        printf("rows on GPUs are left out: %s\n", t->no_gpus.text);
}
