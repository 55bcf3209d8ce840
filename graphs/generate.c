/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "graphs/graphs.h"

static int32_t n_pages(int32_t n_slots, int32_t max_total)
{
    return (int32_t) weft_ceil_div(max_total, WEFT_PAGE_TOKENS) * n_slots;
}

size_t weft_g_generate_kv_bytes(const struct weft_shape *shape,
                                int32_t n_slots, int32_t max_total)
{
    return (size_t) n_pages(n_slots, max_total) * weft_kv_page_bytes(shape);
}

static int instance_init(struct weft_g_generate *gen,
                         struct weft_g_instance *instance,
                         struct weft_err *err)
{
    const struct weft_g_model *model = gen->model;
    struct weft_tile_id id = {model->name, "decode state", 0, -1, -1, 0};
    struct weft_gen_state layout;
    weft_gen_state_layout(gen->n_slots, gen->max_total,
                          n_pages(gen->n_slots, gen->max_total), &layout);
    int rc = weft_tile_create(model->rt, &id, WEFT_MEM_SAMPLES, layout.bytes,
                              &instance->state, err);
    id.kind = "KV arena";
    if (!rc)
        rc = weft_tile_create(model->rt, &id, WEFT_MEM_KV,
                              weft_g_generate_kv_bytes(&model->shape,
                                                       gen->n_slots,
                                                       gen->max_total),
                              &instance->arena, err);
    id.kind = "decode status";
    for (int i = 0; i < 2 && !rc; i++)
        rc = weft_tile_create(model->rt, &id, WEFT_MEM_SAMPLES,
                              weft_gen_status_bytes(gen->n_slots),
                              &instance->status[i], err);
    return rc;
}

int weft_g_generate_init(const struct weft_g_model *model,
                         int32_t n_instances, int32_t n_slots,
                         int32_t max_total, struct weft_g_generate *out,
                         struct weft_err *err)
{
    *out = (struct weft_g_generate){
        .model = model, .n_slots = n_slots, .max_total = max_total};
    out->instance = weft_alloc((size_t) n_instances, sizeof *out->instance);
    if (!out->instance)
        return weft_err_nomem(err, "generation",
                              (size_t) n_instances * sizeof *out->instance);
    int rc = 0;
    for (int32_t i = 0; i < n_instances && !rc; i++) {
        out->n_instances++;
        rc = instance_init(out, &out->instance[i], err);
    }
    return rc;
}

void weft_g_generate_release(struct weft_g_generate *gen)
{
    for (int32_t i = 0; i < gen->n_instances; i++) {
        struct weft_g_instance *instance = &gen->instance[i];
        weft_tile_release(instance->state);
        weft_tile_release(instance->arena);
        weft_tile_release(instance->status[0]);
        weft_tile_release(instance->status[1]);
    }
    weft_free(gen->instance);
    *gen = (struct weft_g_generate){0};
}

/* Chunks come before inference in a lane: they are the critical path. */
static struct weft_where where_of(int32_t instance, int32_t iteration)
{
    return (struct weft_where){.device = instance,
                               .priority = 2,
                               .call = WEFT_CALL_ACTOR_GENERATE,
                               .iteration = iteration,
                               .micro_batch = -1,
                               .layer = -1};
}

void weft_g_generate_chunk(struct weft_seq *seq, struct weft_g_generate *gen,
                           int32_t instance, const struct weft_gen_args *args,
                           int32_t n_admit,
                           const struct weft_gen_admit *admit)
{
    struct weft_g_instance *i = &gen->instance[instance];
    struct weft_where where = where_of(instance, args->iteration);
    where.micro_batch = (int32_t) i->n_chunks;
    weft_insert_gen_chunk(seq, &where, &gen->model->shape, &gen->model->fwd,
                          args, n_admit, admit, i->state, i->arena,
                          i->status[i->n_chunks % 2]);
    i->n_chunks++;
}

void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen,
                            int32_t instance, int32_t slot, int32_t iteration,
                            struct weft_tile *rollout)
{
    struct weft_where where = where_of(instance, iteration);
    where.priority = 3;
    weft_insert_gen_retire(seq, &where, slot, gen->instance[instance].state,
                           rollout);
}
