/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "job/profile_inside.h"
#include "lm/rollout.h"

enum { STEPS = 2, PROMPT = 16, TURNS = 3 };

/* n_steps steps in which every slot has a row, after `cached` tokens. */
static void rows_of(int32_t n_slots, int32_t cached, int32_t n_steps,
                    struct weft_work_rows out[])
{
    for (int32_t i = 0; i < n_steps; i++)
        out[i] = (struct weft_work_rows){
            .n_rows = n_slots,
            .n_targets = n_slots,
            .n_keys = (int64_t) n_slots * (cached + i + 1),
            .n_cached = (int64_t) n_slots * (cached + i)};
}

/* Puts every slot where it has read `context` tokens but the last. */
static void set_context(const struct weft_g_generate *gen, int32_t context)
{
    for (int32_t i = 0; i < gen->n_instances; i++) {
        struct weft_gen_state *state = weft_tile_acquire(
            gen->instance[i].state, WEFT_READ_WRITE);
        weft_gen_fill(state, context, 2 * STEPS);
        weft_tile_unacquire(gen->instance[i].state);
    }
}

static int decode(struct weft_profile_bench *b, struct weft_g_generate *gen,
                  const struct weft_g_view *view, int32_t cached,
                  struct weft_err *err)
{
    struct weft_work_rows rows[STEPS];
    const struct weft_gen_args args = {
        .sampling = {.temperature = 1, .top_p = 1},
        .n_steps = STEPS,
        .prefill_tokens = 1,
        .step = rows};
    rows_of(gen->n_slots, cached, STEPS, rows);
    for (int32_t i = 0; i < gen->n_instances; i++)
        weft_g_generate_chunk(b->seq, gen, view, i, &args, 0, NULL);
    return weft_context_wait(b->seq, 0, err);
}

/* Those whose price depends on how many tokens they draw. */
static const char *const reads[][2] = {
    {"gen_chunk", "gen_chunk" WEFT_COSTS_READS},
    {"gen_last_stage", "gen_last_stage" WEFT_COSTS_READS}};

/* Reads a prompt of `context` tokens in every slot, all in one step. */
static int prefill(struct weft_profile_bench *b, struct weft_g_generate *gen,
                   const struct weft_g_view *view, int32_t context,
                   struct weft_err *err)
{
    int64_t n = context;
    const struct weft_work_rows rows = {.n_rows = gen->n_slots * context,
                                        .n_targets = gen->n_slots,
                                        .n_keys = gen->n_slots
                                                * (n * (n + 1) / 2)};
    const struct weft_gen_args args = {
        .sampling = {.temperature = 1, .top_p = 1},
        .n_steps = 1,
        .prefill_tokens = gen->n_slots * context,
        .step = &rows};
    struct weft_gen_admit *admit = weft_alloc((size_t) gen->n_slots,
                                              sizeof *admit);
    int32_t *token = weft_alloc((size_t) context, sizeof *token);
    int rc = admit && token
               ? 0
               : weft_err_nomem(err, "prompts", (size_t) gen->n_slots * 32);
    for (int32_t i = 0; i < gen->n_slots && !rc; i++)
        admit[i] = (struct weft_gen_admit){i, i, context, context + 4 * STEPS,
                                           token};
    int64_t first = b->recording.n_tasks;
    for (int32_t i = 0; i < gen->n_instances && !rc; i++)
        weft_g_generate_chunk(b->seq, gen, view, i, &args, gen->n_slots,
                              admit);
    rc = weft_context_wait(b->seq, rc, err);
    for (size_t i = 0; i < WEFT_COUNT(reads); i++)
        weft_recording_rename(&b->recording, first, reads[i][0], reads[i][1]);
    weft_free(admit);
    weft_free(token);
    return rc;
}

/* A sample moves out of its slot, and in again. */
static int move_out_and_in(struct weft_profile_bench *b,
                           struct weft_g_generate *gen, int32_t instance,
                           bool cache, struct weft_err *err)
{
    struct weft_gen_state *state = weft_tile_acquire(
        gen->instance[instance].state, WEFT_READ);
    const struct weft_gen_slot *slot = (void *) ((char *) state
                                                 + state->slot);
    const struct weft_gen_admit admit = {.limit = slot->limit};
    int32_t n_total = slot->n_total;
    weft_tile_unacquire(gen->instance[instance].state);
    return weft_g_generate_move(b->seq, gen, instance, 0, 0, n_total,
                                instance, &admit, cache, err);
}

/* The first of each instance does, with its KV cache and without. */
static int move(struct weft_profile_bench *b, struct weft_g_generate *gen,
                struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < gen->n_instances && !rc; i++) {
        rc = move_out_and_in(b, gen, i, true, err);
        if (!rc)
            rc = move_out_and_in(b, gen, i, false, err);
    }
    return weft_context_wait(b->seq, rc, err);
}

static int batch(struct weft_profile_bench *b,
                 const struct weft_g_model *model,
                 const struct weft_g_layout *layout,
                 const struct weft_g_view *view, int32_t n_slots,
                 struct weft_err *err)
{
    struct weft_g_generate gen;
    int32_t longest = (int32_t) weft_min64(b->longest, 1024 + 2 * STEPS);
    const int32_t context[] = {256, longest - 2 * STEPS};
    int rc = weft_g_generate_init(model, layout, layout->plan.dp, n_slots,
                                  longest, n_slots * PROMPT, 0, &gen, err);
    for (int32_t i = 0; i < gen.n_instances && !rc; i++)
        for (int32_t k = 0; k < layout->plan.tp * layout->plan.pp; k++)
            weft_profile_fill(gen.instance[i].arena[k]);
    /* what is new takes memory the first time, which counts as one of three */
    for (int i = 0; i < TURNS && !rc; i++) {
        weft_rollout_reset(&gen);
        rc = prefill(b, &gen, view, PROMPT, err);
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = decode(b, &gen, view, PROMPT + i * STEPS, err);
    if (!rc)
        rc = move(b, &gen, err);
    for (size_t i = 0; i < WEFT_COUNT(context) && !rc; i++) {
        if (context[i] + 2 * STEPS > longest || (i > 0 && longest < 512))
            break;
        weft_rollout_reset(&gen);
        set_context(&gen, context[i]);
        rc = decode(b, &gen, view, context[i] - 1, err);
        if (!rc)
            rc = move(b, &gen, err);
    }
    weft_g_generate_release(&gen);
    return rc;
}

int weft_profile_generate(struct weft_profile_bench *b,
                          const struct weft_shape *shape, int32_t tp,
                          int32_t pp, struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .call = 3, .micro_batch = -1, .layer = -1};
    struct weft_shape few = *shape;
    struct weft_g_model model;
    struct weft_g_layout layout;
    struct weft_g_view view = {.model = NULL};
    few.n_layers = weft_profile_layers(b, shape);
    b->what = NULL; /* the first size is measured at any rate */
    int rc = weft_profile_model(b, &few, false, tp, pp, &model, &layout, err);
    if (!rc)
        rc = weft_g_view_open(b->seq, &where, &model, &layout, &view, err);
    for (int32_t n = 1; n <= b->most_slots && !rc; n *= 2) {
        if (!weft_profile_goes_on(b, "decode steps, batch", n))
            break;
        rc = batch(b, &model, &layout, &view, n, err);
    }
    if (view.model)
        weft_g_view_close(&view);
    weft_g_model_release(&model);
    weft_g_layout_release(&layout);
    return rc;
}
