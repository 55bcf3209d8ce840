/* SPDX-License-Identifier: Apache-2.0 */
/* Samples that leave an instance: those that have ended, and those that go on
 * in another one. */
#include "graphs/calls/generate_inside.h"

void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen, int32_t index,
                            int32_t slot, int32_t iteration,
                            struct weft_tile *rollout)
{
    const struct weft_g_instance *instance = &gen->instance[index];
    struct weft_where where = weft_g_generate_where(gen, instance, iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    weft_insert_gen_retire(seq, &where, slot, false, instance->state,
                           rollout);
}

/* A sample that moves, or its cache, as it leaves and where it goes. */
struct moving {
    struct weft_tile *tile, *copy;
};

static int moving_init(const struct weft_g_generate *gen, int32_t at,
                       const char *kind, enum weft_mem_class c, size_t bytes,
                       struct moving *out, struct weft_err *err)
{
    const struct weft_tile_id id = {gen->model->name, kind, 0, -1, -1, at};
    out->copy = NULL;
    return weft_tile_create_temp(gen->model->rt, &id, c, bytes, &out->tile,
                                 err);
}

/* The tile there; NULL: the sequence has failed. */
static struct weft_tile *arrive(struct weft_seq *seq,
                                const struct weft_where *where,
                                const struct weft_g_generate *gen,
                                enum weft_mem_class c, const char *kind,
                                int32_t place, struct moving *m)
{
    if (weft_tile_place(m->tile) == place)
        return m->tile;
    m->copy = weft_g_copy_to(seq, where, gen->model->rt, m->tile, c, kind,
                             place);
    return m->copy;
}

static void moving_release(struct moving *m)
{
    weft_tile_release(m->copy);
    weft_tile_release(m->tile);
}

bool weft_g_generate_caches_move(const struct weft_g_generate *gen)
{
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    bool same = !gen->layout.on_gpus && n <= WEFT_GEN_ARENAS;
    for (int32_t i = 0; i < gen->n_instances && same; i++)
        for (int32_t k = 0; k < n; k++)
            same = same
                && weft_tile_place(gen->instance[i].arena[k])
                       == weft_g_generate_place(gen, i);
    return same;
}

int32_t weft_g_generate_moved_pages(const struct weft_g_generate *gen)
{
    return weft_max32(weft_gen_most_pages(1, gen->max_total),
                      gen->n_pages / 8);
}

int weft_g_generate_move(struct weft_seq *seq,
                         const struct weft_g_generate *gen, int32_t from,
                         int32_t from_slot, int32_t iteration,
                         int32_t n_total, int32_t to,
                         const struct weft_gen_admit *admit, bool cache,
                         struct weft_err *err)
{
    const struct weft_g_instance *a = &gen->instance[from];
    const struct weft_g_instance *b = &gen->instance[to];
    int32_t at = weft_tile_place(a->state), there = weft_tile_place(b->state);
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    struct weft_where where = weft_g_generate_where(gen, a, iteration);
    struct moving sample, kv = {NULL, NULL};
    struct weft_tile *tile;
    int rc = moving_init(gen, at, "moved sample", WEFT_MEM_SAMPLES,
                         weft_rollout_bytes(n_total), &sample, err);
    if (!rc && cache)
        rc = moving_init(
            gen, at, "moved KV", WEFT_MEM_KV,
            weft_gen_cache_bytes(n, a->arena, gen->n_pages, n_total), &kv,
            err);
    if (rc) {
        moving_release(&sample);
        return rc;
    }
    where.priority = WEFT_PRIORITY_SAMPLE;
    if (cache)
        weft_insert_gen_pack(seq, &where, from_slot, a->state, n, a->arena,
                             gen->n_pages, kv.tile);
    weft_insert_gen_retire(seq, &where, from_slot, true, a->state,
                           sample.tile);
    where = weft_g_generate_where(gen, b, iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    tile = arrive(seq, &where, gen, WEFT_MEM_SAMPLES, "moved sample", there,
                  &sample);
    if (tile)
        weft_insert_gen_enter(seq, &where, admit->slot, admit->sample,
                              admit->limit, tile, b->state);
    tile = cache
             ? arrive(seq, &where, gen, WEFT_MEM_KV, "moved KV", there, &kv)
             : NULL;
    if (tile)
        weft_insert_gen_unpack(seq, &where, admit->slot, tile, b->state, n,
                               b->arena, gen->n_pages);
    moving_release(&kv);
    moving_release(&sample);
    return 0;
}
