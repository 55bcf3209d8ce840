/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that leave an instance: those that have ended, and those that go on
 * in another one. With the cache of one that moves, each instance's home says
 * which pages it left and which it took, and then the members' arenas are
 * copied, all of a place in one message:
 *
 *     home:    retire -> sample, pages left -> enter -> pages taken
 *     members: arenas, pages left -> pack -> KV -> unpack <- pages taken
 */
#include "graphs/calls/generate_inside.h"

void weft_g_generate_retire(struct weft_seq *seq,
                            const struct weft_g_generate *gen, int32_t index,
                            int32_t slot, int32_t iteration,
                            struct weft_tile *rollout)
{
    const struct weft_g_instance *instance = &gen->instance[index];
    struct weft_where where = weft_g_generate_where(gen, instance, iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    weft_insert_gen_retire(seq, &where, slot, false, instance->state, rollout,
                           NULL);
}

int32_t weft_g_generate_moved_pages(const struct weft_g_generate *gen)
{
    return weft_max32(weft_gen_most_pages(1, gen->max_total),
                      gen->n_pages / 8);
}

/* What moves: a tile as it leaves, and its copy where it goes; NULL: none. */
struct moving {
    const char *kind;
    enum weft_mem_class mem;
    struct weft_tile *tile, *copy;
};

struct move {
    struct weft_seq *seq;
    const struct weft_g_generate *gen;
    const struct weft_g_instance *from, *to;
    int32_t iteration, n_total;
    /* the pages are of the cache, if it moves: in `from`, and in `to` */
    struct moving sample, left, taken;
};

static int moving_init(const struct move *m, int32_t at, const char *kind,
                       enum weft_mem_class mem, size_t bytes,
                       struct moving *out, struct weft_err *err)
{
    const struct weft_g_model *model = m->gen->model;
    const struct weft_tile_id id = {model->name, kind, 0, -1, -1, at};
    *out = (struct moving){.kind = kind, .mem = mem};
    return weft_tile_create_temp(model->rt, &id, mem, bytes, &out->tile, err);
}

/* The tile at a place; NULL: the sequence has failed. */
static struct weft_tile *arrive(const struct move *m,
                                const struct weft_where *where, int32_t place,
                                struct moving *moving)
{
    struct weft_where moves = *where;
    if (weft_tile_place(moving->tile) == place)
        return moving->tile;
    moves.moves = true;
    moving->copy = weft_g_copy_to(m->seq, &moves, m->gen->model->rt,
                                  moving->tile, moving->mem, moving->kind,
                                  place);
    return moving->copy;
}

static void moving_release(struct moving *m)
{
    weft_tile_release(m->copy);
    weft_tile_release(m->tile);
}

/* Of a member of an instance, in the order of arenas; -1: of its home. */
static struct weft_where where_of(const struct move *m,
                                  const struct weft_g_instance *instance,
                                  int32_t member)
{
    const struct weft_g_layout *layout = &m->gen->layout;
    int32_t tp = layout->plan.tp;
    struct weft_where where = weft_g_generate_where(m->gen, instance,
                                                    m->iteration);
    where.priority = WEFT_PRIORITY_SAMPLE;
    if (member >= 0)
        where.device = weft_g_layout_member(layout, instance->dp, member / tp,
                                            member % tp)
                           ->device;
    return where;
}

/* Out of the slot of one instance, and into that of the other. */
static void move_sample(struct move *m, int32_t slot,
                        const struct weft_gen_admit *admit)
{
    struct weft_tile *state = m->to->state, *left = NULL;
    int32_t there = weft_tile_place(state);
    struct weft_where where = where_of(m, m->from, -1);
    weft_insert_gen_retire(m->seq, &where, slot, true, m->from->state,
                           m->sample.tile, m->left.tile);
    where = where_of(m, m->to, -1);
    struct weft_tile *sample = arrive(m, &where, there, &m->sample);
    if (m->left.tile)
        left = arrive(m, &where, there, &m->left);
    if (sample && (left || !m->left.tile))
        weft_insert_gen_enter(m->seq, &where, admit->slot, admit->sample,
                              admit->limit, sample, state, left,
                              m->taken.tile);
}

/* From a member on, how many have arenas at one place in both instances. */
static int32_t n_together(const struct move *m, int32_t first)
{
    int32_t n = m->gen->layout.plan.pp * m->gen->layout.plan.tp;
    int32_t end = first + 1;
    struct weft_tile *const *a = m->from->arena, *const *b = m->to->arena;
    while (end < n && end - first < WEFT_GEN_ARENAS
           && weft_tile_place(a[end]) == weft_tile_place(a[first])
           && weft_tile_place(b[end]) == weft_tile_place(b[first]))
        end++;
    return end - first;
}

/* The pages of n members' arenas, in one message. */
static int move_pages(struct move *m, int32_t first, int32_t n,
                      struct weft_err *err)
{
    int32_t n_pages = m->gen->n_pages;
    struct weft_tile *const *a = m->from->arena + first;
    struct weft_tile *const *b = m->to->arena + first;
    int32_t at = weft_tile_place(*a), there = weft_tile_place(*b);
    struct moving kv, left = m->left, taken = m->taken;
    int rc = moving_init(m, at, "moved KV", WEFT_MEM_KV,
                         weft_gen_cache_bytes(n, a, n_pages, m->n_total), &kv,
                         err);
    if (rc)
        return rc;
    left.copy = taken.copy = NULL;
    struct weft_where where = where_of(m, m->from, first);
    struct weft_tile *pages = arrive(m, &where, at, &left);
    if (pages)
        weft_insert_gen_pack(m->seq, &where, pages, n, a, n_pages, kv.tile);
    where = where_of(m, m->to, first);
    struct weft_tile *cache = arrive(m, &where, there, &kv);
    pages = arrive(m, &where, there, &taken);
    if (cache && pages)
        weft_insert_gen_unpack(m->seq, &where, pages, cache, n, b, n_pages);
    weft_tile_release(left.copy);
    weft_tile_release(taken.copy);
    moving_release(&kv);
    return 0;
}

static int move_init(struct move *m, bool cache, struct weft_err *err)
{
    int32_t at = weft_tile_place(m->from->state);
    int32_t there = weft_tile_place(m->to->state);
    size_t bytes = weft_gen_cached_bytes(m->n_total);
    int rc = moving_init(m, at, "moved sample", WEFT_MEM_SAMPLES,
                         weft_rollout_bytes(m->n_total), &m->sample, err);
    if (!rc && cache)
        rc = moving_init(m, at, "moved pages", WEFT_MEM_SAMPLES, bytes,
                         &m->left, err);
    if (!rc && cache)
        rc = moving_init(m, there, "moved pages", WEFT_MEM_SAMPLES, bytes,
                         &m->taken, err);
    return rc;
}

int weft_g_generate_move(struct weft_seq *seq,
                         const struct weft_g_generate *gen, int32_t from,
                         int32_t from_slot, int32_t iteration,
                         int32_t n_total, int32_t to,
                         const struct weft_gen_admit *admit, bool cache,
                         struct weft_err *err)
{
    struct move m = {.seq = seq,
                     .gen = gen,
                     .from = &gen->instance[from],
                     .to = &gen->instance[to],
                     .iteration = iteration,
                     .n_total = n_total};
    int32_t n_arenas = gen->layout.plan.pp * gen->layout.plan.tp;
    int rc = move_init(&m, cache, err);
    if (!rc)
        move_sample(&m, from_slot, admit);
    for (int32_t i = 0, n; i < n_arenas && cache && !rc; i += n) {
        n = n_together(&m, i);
        rc = move_pages(&m, i, n, err);
    }
    moving_release(&m.sample);
    moving_release(&m.left);
    moving_release(&m.taken);
    return rc;
}
