/* SPDX-License-Identifier: Apache-2.0 */
#include "verify/rows.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "config/keys.h"

/* ---- A layout for each call ------------------------------------------- */

/* Every model goes from one layout to another within an iteration. */
static const struct weft_verify_mix realloc_mix = {
    .generate = {{0, "dp4"}, {0, "tp2pp2"}},
    .infer = {{0, "dp2pp2"}, {0, "tp4"}, {0, "pp4"}},
    .train = {{0, "tp2pp2"}, {0, "dp2tp2"}}};

/* The first role's calls on the first two devices, others' on the others. */
static const struct weft_verify_mix split_mix = {
    .generate = {{0, "dp2"}, {2, "dp2"}},
    .infer = {{2, "dp2"}, {0, "pp2"}, {2, "tp2"}},
    .train = {{0, "tp2"}, {2, "pp2"}}};

/* Few devices for each call, and different ones for training and inference. */
static const struct weft_verify_mix apart_mix = {
    .generate = {{3, "dp1"}, {0, "dp1"}},
    .infer = {{2, "dp1"}, {2, "tp2"}, {1, "dp1"}},
    .train = {{0, "dp2"}, {3, "dp1"}}};

/* Every option that a call may have. */
static const struct weft_verify_mix options_mix = {
    .generate = {{0, "tp2pp2"}, {0, "dp2"}},
    .infer = {{0, "tp2,micro_batches=2,offload"},
              {2, "pp2,micro_batches=3,offload"},
              {0, "dp2tp2,micro_batches=2"}},
    .train = {{0, "dp4,zero=3,micro_batches=2,recompute"},
              {0, "dp2pp2,zero=1,micro_batches=5"}}};

/* Two models train under one schedule whose stages have two devices; two of
 * the second's stages are one of the schedule's. */
static const struct weft_verify_mix fused_mix = {
    .generate = {{0, "dp4"}, {0, "dp4"}},
    .infer = {{0, "dp4"}, {0, "dp2pp2"}, {0, "tp4"}},
    .train = {{0, "tp2pp2,micro_batches=3"},
              {0, "pp4,micro_batches=2,recompute"}}};

/* ---- The matrix ------------------------------------------------------- */

#define PLACES "runtime.place=device "
#define FUSED "train.intra_stage_fusion=true "
enum {
    NO = 0,
    F32 = 1 << WEFT_F32,
    BF16 = 1 << WEFT_BF16,
    BOTH = F32 | BF16,
    /* every algorithm runs the row, not the first one alone */
    ALL = WEFT_VERIFY_ALL,
    QUICK = WEFT_VERIFY_ALL_QUICK | ALL,
    GPUS = WEFT_VERIFY_GPUS,
    SHARED = WEFT_VERIFY_SHARED | GPUS
};

static const struct weft_verify_row rows[] = {
    {"reference", 1, 1, NULL, NULL, BOTH | QUICK},

    {"dp2", 1, 2, NULL, NULL, NO},
    {"dp3", 1, 3, NULL, NULL, F32 | QUICK},
    {"dp4", 1, 4, NULL, NULL, NO},
    {"micro-batches-2", 1, 1, "train.micro_batches=2", NULL, NO},
    {"micro-batches-5", 1, 2, "train.micro_batches=5", NULL, ALL},
    {"micro-batches-of-one", 1, 2, "train.micro_batch_tokens=1", NULL, BF16},
    {"micro-batches-of-all", 1, 1, "train.micro_batch_tokens=100000", NULL,
     NO},
    {"decode-steps", 1, 2,
     "rollout.chunk_tokens=1 rollout.slots=2 rollout.prefill_tokens=3", NULL,
     F32 | ALL},
    {"recompute", 1, 2, "train.recompute=true", NULL, NO},
    {"offload", 1, 2, "model.reference_offload=true", NULL, ALL},
    {"offload-optimizer", 1, 2, "train.offload_optimizer=true", NULL, NO},

    {"tp2", 1, 2, "layout=tp2", NULL, NO},
    {"tp3", 1, 3, "layout=tp3", NULL, ALL},
    {"tp4", 1, 4, "layout=tp4", NULL, F32},
    {"pp2", 1, 2, "layout=pp2", NULL, NO},
    {"pp3", 1, 3, "layout=pp3,micro_batches=2", NULL, NO},
    {"pp4", 1, 4, "layout=pp4,micro_batches=3", NULL, F32 | ALL},
    {"dp2tp2", 1, 4, "layout=dp2tp2", NULL, NO},
    {"dp2pp2", 1, 4, "layout=dp2pp2", NULL, NO},
    {"tp2pp2", 1, 4, "layout=tp2pp2,micro_batches=5", NULL, NO},
    {"dp2tp2pp2", 1, 8, "layout=dp2tp2pp2,recompute,offload", NULL,
     BF16 | QUICK},

    {"zero1", 1, 4, "layout=dp4,zero=1", NULL, NO},
    {"zero2", 1, 4, "layout=dp2tp2,zero=2", NULL, NO},
    {"zero3", 1, 4, "layout=dp2pp2,zero=3,recompute", NULL, NO},
    {"zero3-dp4", 1, 4, "layout=dp4,zero=3,micro_batches=2", NULL, ALL},

    {"realloc", 1, 4, NULL, &realloc_mix, ALL},
    {"split", 1, 4, NULL, &split_mix, F32},
    {"apart", 1, 4, NULL, &apart_mix, ALL},
    {"options", 1, 4, NULL, &options_mix, ALL},

    {"fused-pp2", 1, 2, FUSED "layout=pp2,micro_batches=3", NULL, NO},
    {"fused-dp2pp2", 1, 4, FUSED "layout=dp2pp2,zero=2", NULL, NO},
    {"fused-groups", 1, 4, FUSED "train.schedule_search=iteration",
     &fused_mix, BF16},

    {"places-dp4", 1, 4, PLACES "layout=dp4", NULL, NO},
    {"places-tp4", 1, 4, PLACES "layout=tp4", NULL, NO},
    {"places-pp4", 1, 4, PLACES "layout=pp4,micro_batches=2", NULL, NO},
    {"places-zero1", 1, 4, PLACES "layout=dp4,zero=1", NULL, NO},
    {"places-zero2", 1, 4, PLACES "layout=dp2pp2,zero=2", NULL, NO},
    {"places-zero3", 1, 4, PLACES "layout=dp2tp2,zero=3", NULL, F32},
    {"places-zero1-dp4pp2", 1, 8, PLACES "layout=dp4pp2,zero=1", NULL, NO},
    {"places-zero2-dp3", 1, 3, PLACES "layout=dp3,zero=2", NULL, ALL},
    {"places-zero3-dp3tp2", 1, 6, PLACES "layout=dp3tp2,zero=3", NULL, NO},
    {"places-realloc", 1, 4, PLACES, &realloc_mix, BOTH | ALL},
    {"places-split", 1, 4, PLACES, &split_mix, NO},
    {"places-apart", 1, 4, PLACES, &apart_mix, NO},
    {"places-options", 1, 4, PLACES, &options_mix, NO},
    {"places-logprobs", 1, 4, PLACES "ppo.recompute_logprobs=true",
     &realloc_mix, ALL},

    {"places-fused", 1, 4, PLACES FUSED, &fused_mix, NO},

    {"ranks2-dp2", 2, 1, NULL, NULL, NO},
    {"ranks2-tp2", 2, 1, "layout=tp2", NULL, NO},
    {"ranks2-pp2", 2, 1, "layout=pp2,micro_batches=2", NULL, NO},
    {"ranks2x2-dp2tp2", 2, 2, "layout=dp2tp2,zero=1", NULL, NO},
    {"ranks2x2-tp2pp2", 2, 2, "layout=tp2pp2,micro_batches=3", NULL,
     BF16 | QUICK},
    {"ranks2x2-zero3", 2, 2, "layout=dp4,zero=3", NULL, ALL},
    {"ranks2x2-zero3-hpz", 2, 2, PLACES "layout=dp4,zero=3,hpz", NULL, ALL},
    {"ranks2x3-zero3", 2, 3, PLACES "layout=dp3tp2,zero=3", NULL, NO},
    {"ranks2x2-realloc", 2, 2, NULL, &realloc_mix, F32},
    {"ranks2x2-split", 2, 2, NULL, &split_mix, NO},
    {"ranks2x2-places", 2, 2, PLACES, &options_mix, NO},
    {"ranks2-fused", 2, 1, FUSED "layout=pp2,micro_batches=3", NULL, F32},
    {"ranks2x2-fused", 2, 2, FUSED, &fused_mix, NO},
    {"ranks4-dp4", 4, 1, NULL, NULL, NO},
    {"ranks4-tp4", 4, 1, "layout=tp4", NULL, NO},
    {"ranks4-pp4", 4, 1, "layout=pp4,micro_batches=2", NULL, NO},
    {"ranks4-zero2", 4, 1, "layout=dp4,zero=2", NULL, NO},
    {"ranks4-realloc", 4, 1, NULL, &realloc_mix, ALL},
    {"ranks4-apart", 4, 1, NULL, &apart_mix, NO},
    {"ranks4-fused", 4, 1, FUSED "layout=dp2pp2,micro_batches=2", NULL, NO},

    {"gpu", 1, 1, NULL, NULL, BOTH | QUICK | GPUS},
    {"gpu-micro-batches-5", 1, 1, "train.micro_batches=5", NULL, BF16 | GPUS},
    {"gpu-decode-steps", 1, 1,
     "rollout.chunk_tokens=1 rollout.slots=2 rollout.prefill_tokens=3", NULL,
     F32 | ALL | GPUS},
    {"gpu-offload", 1, 1, "layout=dp1,recompute,offload", NULL, ALL | GPUS},
    {"gpu-ranks2-dp2", 2, 1, NULL, NULL, QUICK | SHARED},
    {"gpu-ranks2-tp2", 2, 1, "layout=tp2", NULL, BOTH | SHARED},
    {"gpu-ranks2-pp2", 2, 1, "layout=pp2,micro_batches=3", NULL, SHARED},

    {"gpu2-dp2", 1, 2, NULL, NULL, GPUS},
    {"gpu2-tp2", 1, 2, "layout=tp2", NULL, BOTH | QUICK | GPUS},
    {"gpu2-pp2", 1, 2, "layout=pp2,micro_batches=3", NULL, F32 | ALL | GPUS},
    {"gpu2-zero3", 1, 2, "layout=dp2,zero=3", NULL, ALL | GPUS},
    {"gpu2-fused", 1, 2, FUSED "layout=pp2,micro_batches=3", NULL, GPUS},
    {"gpu2-ranks2-tp2", 2, 1, "layout=tp2", NULL, GPUS},
    {"gpu4-dp2tp2", 1, 4, "layout=dp2tp2,zero=1", NULL, GPUS},
    {"gpu4-tp2pp2", 1, 4, "layout=tp2pp2,micro_batches=5,recompute", NULL,
     GPUS},
    {"gpu4-realloc", 1, 4, NULL, &realloc_mix, BF16 | ALL | GPUS},
    {"gpu4-split", 1, 4, NULL, &split_mix, GPUS},
    {"gpu4-apart", 1, 4, NULL, &apart_mix, GPUS},
    {"gpu4-options", 1, 4, NULL, &options_mix, ALL | GPUS},
    {"gpu4-fused", 1, 4, FUSED, &fused_mix, GPUS},
    {"gpu4-ranks2-realloc", 2, 2, NULL, &realloc_mix, GPUS},
    {"gpu4-ranks4-zero2", 4, 1, "layout=dp4,zero=2", NULL, GPUS},
    {"gpu8-dp2tp2pp2", 1, 8, "layout=dp2tp2pp2,recompute,offload", NULL,
     BF16 | GPUS},
};

bool weft_verify_knows(const struct weft_config_algorithm *algorithm,
                       const char *word)
{
    size_t n = strcspn(word, "=");
    for (int t = 0;; t++) {
        const struct weft_config_table *table = weft_config_table_of(
            algorithm, t);
        if (!table)
            return false;
        for (const struct weft_config_key *k = table->keys; k && k->name; k++)
            if (strlen(k->name) == n && memcmp(k->name, word, n) == 0)
                return true;
    }
}

const struct weft_verify_row *weft_verify_row(size_t i)
{
    return i < WEFT_COUNT(rows) ? &rows[i] : NULL;
}

int32_t weft_verify_gpus(const struct weft_verify_row *row)
{
    if (!(row->flags & WEFT_VERIFY_GPUS))
        return 0;
    return row->flags & WEFT_VERIFY_SHARED ? row->devices
                                           : row->ranks * row->devices;
}

const struct weft_verify_row *weft_verify_reference(
    const struct weft_verify_row *row)
{
    const struct weft_verify_row *first = rows;
    while (weft_verify_gpus(row) && !weft_verify_gpus(first))
        first++;
    return first == row ? rows : first;
}

const char *weft_verify_label(const struct weft_verify_case *c, char out[96])
{
    snprintf(out, 96, "%s/%s/%s", c->algorithm->name,
             weft_dtype_name(c->dtype), c->row->name);
    return out;
}

bool weft_verify_matches(const struct weft_verify_case *c,
                         const char *pattern)
{
    char label[96];
    weft_verify_label(c, label);
    return !pattern || fnmatch(pattern, c->row->name, 0) == 0
        || fnmatch(pattern, label, 0) == 0
        || fnmatch(pattern, strchr(label, '/') + 1, 0) == 0;
}

/* Whether the algorithm has all keys of "key=value key=value". */
static bool knows(const struct weft_config_algorithm *algorithm,
                  const char *words)
{
    while (words && *(words += strspn(words, " "))) {
        size_t n = strcspn(words, " ");
        if (!weft_verify_knows(algorithm, words))
            return false;
        words += n;
    }
    return true;
}

bool weft_verify_has(const struct weft_verify_case *c, bool whole)
{
    return (whole || c->row->flags & ALL)
        && knows(c->algorithm, c->row->words);
}

bool weft_verify_is_quick(const struct weft_verify_case *c, bool whole)
{
    return whole ? c->row->flags >> c->dtype & 1
                 : c->dtype == WEFT_F32 && (c->row->flags & QUICK) == QUICK;
}

/* ---- Plans ------------------------------------------------------------ */

/* n devices from `first` on: a part of a node, or whole nodes. */
static struct weft_mesh mesh_of(const struct weft_verify_row *row,
                                int32_t first, int32_t n)
{
    int32_t d = row->devices;
    if (n <= d)
        return (struct weft_mesh){first / d, 1, first % d, n};
    return (struct weft_mesh){first / d, n / d, 0, d};
}

/* The k-th call of a kind. */
static int plan_call(const struct weft_verify_row *row,
                     const struct weft_plan_needs *needs, int32_t call,
                     const struct weft_verify_place *place,
                     struct weft_call_plan *out, struct weft_err *err)
{
    struct weft_plan uniform;
    int rc = weft_plan_uniform(place->layout, needs, &uniform, err);
    if (rc)
        return rc;
    *out = uniform.call[call];
    out->mesh = mesh_of(row, place->first, weft_mesh_size(&out->mesh));
    return 0;
}

void weft_verify_nodes(const struct weft_verify_row *row,
                       struct weft_plan_needs *out)
{
    out->n_nodes = row->ranks;
    out->n_gpus = weft_verify_gpus(row) ? row->devices : 0;
    out->n_devices = row->devices + (out->n_gpus ? 1 : 0);
}

int weft_verify_plan(const struct weft_verify_row *row,
                     const struct weft_dataflow *flow, struct weft_plan *out,
                     struct weft_err *err)
{
    struct weft_plan_needs needs = {.flow = flow};
    const struct weft_verify_mix *mix = row->mix;
    int n[WEFT_STEP] = {0}, rc = 0;
    weft_verify_nodes(row, &needs);
    weft_plan_begin(&needs, out);
    for (int32_t i = 1; i < flow->n_calls && !rc; i++) {
        enum weft_call_kind kind = flow->call[i].kind;
        if (!weft_flow_placed(flow, i))
            continue;
        int k = n[kind]++;
        rc = plan_call(row, &needs, i,
                       kind == WEFT_GENERATE ? &mix->generate[k % 2]
                       : kind == WEFT_INFER  ? &mix->infer[k % 3]
                                             : &mix->train[k % 2],
                       &out->call[i], err);
    }
    return rc;
}
