/* SPDX-License-Identifier: Apache-2.0 */
#include "run/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/string.h"

enum column { TOKENS, LOGPROBS, REF_LOGPROBS, VALUES, ADVANTAGES, N_COLUMNS };

static const char *const column_name[N_COLUMNS] = {
    "tokens", "logprobs", "ref_logprobs", "values", "advantages"};

const char *weft_digest_column(int i)
{
    return i < N_COLUMNS ? column_name[i] : NULL;
}

char *weft_digest_path(const char *run_dir, int64_t iteration)
{
    char name[64];
    snprintf(name, sizeof name, "digests/%06lld.json", (long long) iteration);
    return weft_path_join(run_dir, name);
}

/* The numbers of one sample in a column: n of 4 bytes. */
struct part {
    struct weft_tile *tile; /* NULL: the run has no such column */
    const void *data;
    int32_t n;
};

static struct part part_begin(const struct weft_iteration *p, int32_t i,
                              enum column c)
{
    const struct weft_sample *s = &p->sample[i];
    static const enum weft_field_type type[N_COLUMNS] = {
        WEFT_FIELD_ROLLOUT, WEFT_FIELD_ROLLOUT, WEFT_FIELD_LOGP,
        WEFT_FIELD_VALUE, WEFT_FIELD_ADVANTAGE};
    struct part part = {.tile = weft_iteration_home(p, i, type[c]),
                        .n = s->n_total - s->n_prompt};
    if (c == LOGPROBS && !weft_config_generates(&p->t->config))
        part.tile = NULL; /* the data's responses have none */
    if (!part.tile)
        return part;
    part.data = weft_tile_acquire(part.tile, WEFT_READ);
    if (c == TOKENS) {
        part.data = weft_rollout_token(part.data);
        part.n = s->n_total;
    } else if (c == LOGPROBS) {
        part.data = weft_rollout_logp(part.data) + s->n_prompt;
    } else if (c == ADVANTAGES) {
        part.data = weft_advantage_of(part.data);
    }
    return part;
}

static void part_end(const struct part *part)
{
    if (part->tile)
        weft_tile_unacquire(part->tile);
}

static void add_digest(struct weft_string *t, uint64_t digest)
{
    weft_string_addf(t, "\"%016" PRIx64 "\"", digest);
}

static void add_values(struct weft_string *t, enum column c,
                       const struct part *part)
{
    const int32_t *token = part->data;
    const float *x = part->data;
    weft_string_add(t, "[");
    for (int32_t k = 0; k < part->n; k++) {
        weft_string_add(t, k > 0 ? ", " : "");
        if (c == TOKENS)
            weft_string_addf(t, "%d", token[k]);
        else
            weft_string_add_float(t, x[k]);
    }
    weft_string_add(t, "]");
}

/* Adds a column's digest over all samples in index order, then of each. */
static int add_column(struct weft_string *t, const struct weft_iteration *p,
                      enum column c)
{
    bool values = p->t->config.digest == WEFT_DIGEST_VALUES;
    struct weft_hasher *all = weft_hasher_create();
    struct weft_string each = {0};
    if (!all)
        return weft_err_nomem(p->err, "digests", 1024);
    /* all that was generated, but only what is learned from has the rest */
    int32_t n = c <= LOGPROBS ? p->n_all : p->n;
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        struct part part = part_begin(p, i, c);
        if (!part.tile)
            continue;
        size_t bytes = (size_t) part.n * 4;
        weft_hasher_add(all, part.data, bytes);
        weft_string_add(&each, any ? ",\n  " : "");
        any = true;
        if (values)
            add_values(&each, c, &part);
        else
            add_digest(&each, weft_hash64(part.data, bytes));
        part_end(&part);
    }
    if (any) {
        weft_string_addf(t, ",\n \"%s\": {\"all\": ", column_name[c]);
        add_digest(t, weft_hasher_digest64(all));
        weft_string_addf(t, ", \"%s\": [\n  ", values ? "values" : "samples");
        weft_string_add(t, each.data ? each.data : "");
        weft_string_add(t, "]}");
    }
    t->failed = t->failed || each.failed;
    weft_string_release(&each);
    weft_hasher_free(all);
    return 0;
}

/* Adds the bits of the steps' gradient norms. */
static void add_norms(struct weft_string *t, const char *name,
                      const struct weft_iteration_update *u)
{
    weft_string_addf(t, ",\n \"%s_grad_norms\": [", name);
    for (int32_t i = 0; i < u->n_norms; i++) {
        const struct weft_grad_norm *norm = weft_tile_acquire(u->norm[i],
                                                              WEFT_READ);
        uint64_t bits;
        memcpy(&bits, &norm->norm, sizeof bits);
        weft_string_add(t, i > 0 ? ", " : "");
        add_digest(t, bits);
        weft_tile_unacquire(u->norm[i]);
    }
    weft_string_add(t, "]");
}

int weft_digest_write(const struct weft_iteration *p)
{
    const struct weft_config *config = &p->t->config;
    int64_t iteration = p->iteration + 1;
    struct weft_string t = {0};
    int rc = 0;
    if (config->digest == WEFT_DIGEST_NONE)
        return 0;
    weft_string_addf(&t, "{\"iteration\": %lld", (long long) iteration);
    for (int c = 0; c < N_COLUMNS && !rc; c++)
        rc = add_column(&t, p, (enum column) c);
    for (int32_t r = 0; r < p->t->flow.n_roles; r++)
        if (p->t->flow.role[r].trained)
            add_norms(&t, p->t->flow.role[r].name, &p->update[r]);
    weft_string_add(&t, "}\n");
    char *path = weft_digest_path(config->run_dir, iteration);
    char *dir = path ? weft_path_parent(path) : NULL;
    t.failed = t.failed || !dir;
    if (!rc)
        rc = weft_string_check(&t, "digests", p->err);
    if (!rc)
        rc = weft_dir_create(dir, p->err);
    if (!rc)
        rc = weft_file_write(path, t.data, t.n, p->err);
    weft_string_release(&t);
    weft_free(dir);
    weft_free(path);
    return rc;
}
