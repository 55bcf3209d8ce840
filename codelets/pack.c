/* SPDX-License-Identifier: Apache-2.0 */
/* Packing samples into a micro-batch. */
#include <string.h>

#include "base/alloc.h"
#include "codelets/access_list.h"
#include "rt/codelet.h"

struct pack_sample {
    int32_t n_prompt, n_total, n_targets;
    int32_t n_ranges; /* of learned tokens; 0: the last n_targets */
    float weight, label;
    bool skips_pad;
    int32_t pad;
    bool advantage, value, ref; /* which tiles follow its rollout */
};

struct pack_args {
    enum weft_pack_targets targets;
    bool columns, moments;
    int32_t n;
    struct weft_batch layout;
    struct pack_sample sample[]; /* (n), then the ranges of all samples */
};

int32_t weft_pack_n_targets(enum weft_pack_targets targets,
                            const struct weft_pack_sample *s)
{
    switch (targets) {
    case WEFT_TARGETS_LAST:
        return 1;
    case WEFT_TARGETS_ALL:
        return s->n_total - 1;
    default:
        return s->learned ? s->n_learned : s->n_total - s->n_prompt;
    }
}

static struct weft_range *ranges_of(const struct pack_args *args)
{
    return (struct weft_range *) (uintptr_t) (args->sample + args->n);
}

/* How many ranges of a sample matter. */
static int32_t n_ranges_of(enum weft_pack_targets targets,
                           const struct weft_pack_sample *s)
{
    return targets == WEFT_TARGETS_RESPONSE && s->learned ? s->n_ranges : 0;
}

/* The rows and targets of a sample that learns ranges of its tokens; row0: the
 * row of its first token. */
static void put_ranges(const struct pack_sample *s,
                       const struct weft_range *range, const int32_t *token,
                       int32_t row0, int32_t *row, int32_t *target)
{
    int32_t n = 0;
    for (int32_t k = 0; k < s->n_ranges; k++)
        for (int32_t i = 0; i < range[k].n; i++, n++) {
            row[n] = row0 + range[k].first + i - 1;
            target[n] = token[range[k].first + i];
        }
    weft_assert(n == s->n_targets);
}

/* The row of a score: the last token that is no padding; of nothing but
 * padding the first, as in Transformers 5 (modeling_layers.py,
 * GenericForSequenceClassification). */
static int32_t score_row(const struct pack_sample *s, const int32_t *token)
{
    int32_t row = s->n_total - 1;
    while (s->skips_pad && row > 0 && token[row] == s->pad)
        row--;
    return row;
}

/* Copies n floats to a column, or zeroes it. */
static void put(struct weft_batch *b, size_t column, int32_t at,
                const float *from, int32_t n)
{
    float *to = (float *) weft_batch_at(b, column) + at;
    if (from)
        memcpy(to, from, (size_t) n * sizeof *to);
    else
        memset(to, 0, (size_t) n * sizeof *to);
}

static void put_columns(struct weft_batch *b, const struct pack_sample *s,
                        int32_t at, int32_t n, const struct weft_rollout *r,
                        const struct weft_moments *moments,
                        struct weft_take *take)
{
    put(b, b->old_logp, at, weft_rollout_logp(r) + (r->n_total - n), n);
    const struct weft_advantage *a = s->advantage ? weft_take(take) : NULL;
    put(b, b->advantage, at, a ? weft_advantage_of(a) : NULL, n);
    put(b, b->ret, at, a ? weft_return_of(a) : NULL, n);
    put(b, b->old_value, at, s->value ? weft_take(take) : NULL, n);
    put(b, b->ref_logp, at, s->ref ? weft_take(take) : NULL, n);
    if (a && moments) {
        float *adv = (float *) weft_batch_at(b, b->advantage) + at;
        for (int32_t i = 0; i < n; i++)
            adv[i] = (float) (((double) adv[i] - moments->mean)
                              * moments->rstd);
    }
}

static int pack_cpu(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct pack_args *args = args_;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_batch *b = weft_take(&take);
    const struct weft_moments *moments = args->moments ? weft_take(&take)
                                                       : NULL;
    const struct weft_range *range = ranges_of(args);
    int32_t row0 = 0, target0 = 0;

    *b = args->layout;
    struct weft_k_run *run = weft_batch_at(b, b->run);
    int32_t *token = weft_batch_at(b, b->token);
    int32_t *run_targets = weft_batch_at(b, b->run_targets);
    int32_t *row = weft_batch_at(b, b->row);
    int32_t *target = weft_batch_at(b, b->target);
    float *weight = weft_batch_at(b, b->weight);
    float *label = weft_batch_at(b, b->label);
    for (int32_t i = 0; i < args->n; i++) {
        const struct pack_sample *s = &args->sample[i];
        const struct weft_rollout *r = weft_take(&take);
        if (r->n_prompt != s->n_prompt || r->n_total != s->n_total)
            return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                                "sample of %d + %d tokens was announced with "
                                "%d + %d",
                                r->n_prompt, r->n_total - r->n_prompt,
                                s->n_prompt, s->n_total - s->n_prompt);
        const int32_t *t = weft_rollout_token(r);
        int32_t n = s->n_targets;
        bool last = args->targets == WEFT_TARGETS_LAST;
        int32_t first = last ? score_row(s, t) : s->n_total - n - 1;
        run[i] = (struct weft_k_run){.slot = i, .n = s->n_total};
        memcpy(token + row0, t, (size_t) s->n_total * sizeof *t);
        run_targets[i] = n;
        weight[i] = s->weight;
        label[i] = s->label;
        if (s->n_ranges > 0)
            put_ranges(s, range, t, row0, row + target0, target + target0);
        range += s->n_ranges;
        for (int32_t j = 0; j < n && s->n_ranges == 0; j++) {
            row[target0 + j] = row0 + first + j;
            target[target0 + j] = last ? 0 : t[first + j + 1];
        }
        if (args->columns)
            put_columns(b, s, target0, n, r, moments, &take);
        row0 += s->n_total;
        target0 += n;
    }
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET(pack, 0x8a8f98, pack_cpu)

static void note_rows(enum weft_pack_targets targets, int32_t n,
                      const struct weft_pack_sample *sample,
                      struct weft_tile *batch)
{
    struct weft_work_rows rows = {.n_rows = 0};
    for (int32_t i = 0; i < n; i++) {
        int64_t total = sample[i].n_total;
        rows.n_rows += sample[i].n_total;
        rows.n_targets += weft_pack_n_targets(targets, &sample[i]);
        rows.n_keys += total * (total + 1) / 2;
    }
    weft_tile_set_rows(batch, &rows);
}

void weft_insert_pack(struct weft_seq *seq, const struct weft_where *where,
                      enum weft_pack_targets targets, bool columns, int32_t n,
                      const struct weft_pack_sample *sample,
                      struct weft_tile *moments, struct weft_tile *batch)
{
    note_rows(targets, n, sample, batch);
    if (!weft_seq_is_here(seq, where))
        return;
    size_t bytes = sizeof(struct pack_args)
                 + (size_t) n * sizeof(struct pack_sample);
    for (int32_t i = 0; i < n; i++)
        bytes += (size_t) n_ranges_of(targets, &sample[i])
               * sizeof(struct weft_range);
    struct pack_args *args = weft_insert_alloc(1, bytes, "a batch");
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, batch, WEFT_WRITE);
    args->moments = weft_access_list_add_optional(&access, moments,
                                                  WEFT_READ);
    int32_t rows = 0, n_targets = 0;
    args->targets = targets;
    args->columns = columns;
    args->n = n;
    struct weft_range *range = ranges_of(args);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_pack_sample *s = &sample[i];
        rows += s->n_total;
        struct pack_sample *p = &args->sample[i];
        *p = (struct pack_sample){
            .n_prompt = s->n_prompt,
            .n_total = s->n_total,
            .n_targets = weft_pack_n_targets(targets, s),
            .n_ranges = n_ranges_of(targets, s),
            .weight = s->weight,
            .label = s->label,
            .skips_pad = s->skips_pad,
            .pad = s->pad};
        n_targets += p->n_targets;
        for (int32_t k = 0; k < p->n_ranges; k++)
            *range++ = s->learned[k];
        weft_assert(p->n_ranges == 0
                    || !(s->advantage || s->value || s->ref));
        weft_access_list_add(&access, s->rollout, WEFT_READ);
        if (columns) {
            p->advantage = weft_access_list_add_optional(
                &access, s->advantage, WEFT_READ);
            p->value = weft_access_list_add_optional(&access, s->value,
                                                     WEFT_READ);
            p->ref = weft_access_list_add_optional(&access, s->ref,
                                                   WEFT_READ);
        }
    }
    weft_batch_layout(rows, n, n_targets, columns, &args->layout);
    weft_access_list_insert(&access, seq, where, &weft_cl_pack, args, bytes);
    weft_free(args);
}
