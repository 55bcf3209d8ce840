/* SPDX-License-Identifier: Apache-2.0 */
/* Values of which every place of a stage has a copy. */
#include "graphs/calls/stage.h"

void weft_g_value_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, const char *kind,
                         enum weft_mem_class c, int32_t layer, size_t bytes,
                         struct weft_g_value *out)
{
    *out = (struct weft_g_value){.own = 0};
    for (int32_t p = 0; p < stage->n_places; p++) {
        out->at[p] = weft_g_temp(pass, kind, c, layer, bytes,
                                 stage->place[p]);
        out->own |= 1u << p;
    }
}

size_t weft_g_rows_bytes(const struct weft_g_pass *pass)
{
    return (size_t) (pass->n_rows * pass->shape->hidden) * sizeof(float);
}

void weft_g_value_rows(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage, const char *kind,
                       int32_t layer, struct weft_g_value *out)
{
    weft_g_value_create(pass, stage, kind, WEFT_MEM_ACTIVATIONS, layer,
                        weft_g_rows_bytes(pass), out);
}

/* The number of the place of `from` from which `place` copies a value: itself,
 * a place of the same node, or else any, by turns. */
static int32_t source(const struct weft_g_pass *pass,
                      const struct weft_g_stage *from, int32_t place,
                      int32_t turn)
{
    int32_t near = -1;
    for (int32_t p = 0; p < from->n_places; p++) {
        if (from->place[p] == place)
            return p;
        if (near < 0
            && weft_rt_place_rank(pass->rt, from->place[p])
                   == weft_rt_place_rank(pass->rt, place))
            near = p;
    }
    return near >= 0 ? near : turn % from->n_places;
}

void weft_g_value_expect(const struct weft_g_pass *pass,
                         const struct weft_g_stage *from,
                         const struct weft_g_stage *to, enum weft_mem_class c,
                         size_t bytes, const struct weft_g_value *after,
                         struct weft_g_value *out)
{
    *out = (struct weft_g_value){.own = 0};
    for (int32_t p = 0; p < to->n_places; p++) {
        int32_t s = source(pass, from, to->place[p], p);
        if (from->place[s] == to->place[p])
            continue;
        out->at[p] = weft_g_temp(pass, "received", c, -1, bytes,
                                 to->place[p]);
        out->own |= 1u << p;
        struct weft_where where = weft_g_where_at(pass,
                                                  &to->member[to->lead[p]]);
        weft_insert_open(pass->seq, &where, after ? after->at[p] : NULL, 1,
                         &out->at[p]);
    }
}

void weft_g_value_fetch(const struct weft_g_pass *pass,
                        const struct weft_g_stage *from,
                        const struct weft_g_value *value,
                        const struct weft_g_stage *to,
                        struct weft_g_value *out)
{
    for (int32_t p = 0; p < to->n_places; p++) {
        struct weft_tile *tile =
            value->at[source(pass, from, to->place[p], p)];
        if (out->own >> p & 1)
            weft_g_copy(pass, tile, out->at[p]);
        else
            out->at[p] = tile;
    }
}

struct weft_g_stage weft_g_stage_of_place(int32_t place)
{
    return (struct weft_g_stage){.n_places = 1, .place = {place}};
}

void weft_g_value_of_tile(const struct weft_g_pass *pass,
                          struct weft_tile *tile, int32_t place,
                          const struct weft_g_stage *to,
                          struct weft_g_value *out)
{
    struct weft_g_stage from = weft_g_stage_of_place(place);
    struct weft_g_value value = {.at = {tile}};
    weft_g_value_expect(pass, &from, to, WEFT_MEM_SAMPLES,
                        tile ? weft_tile_bytes(tile) : 1, NULL, out);
    weft_g_value_fetch(pass, &from, &value, to, out);
}

void weft_g_value_hand_over(struct weft_g_value *from,
                            struct weft_g_value *to)
{
    for (uint32_t own = from->own; own; own &= own - 1) {
        int p = WEFT_LOWEST_BIT(own), q = 0;
        while (q < WEFT_MAX_BLOCKS && to->at[q] != from->at[p])
            q++;
        if (q == WEFT_MAX_BLOCKS)
            continue;
        to->own |= 1u << q;
        from->own &= ~(1u << p);
    }
    weft_g_value_release(from);
}

void weft_g_value_spread(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage,
                         const struct weft_g_value *value)
{
    for (int32_t p = 1; p < stage->n_places; p++)
        weft_g_copy(pass, value->at[0], value->at[p]);
}

void weft_g_value_release(struct weft_g_value *value)
{
    for (uint32_t own = value->own; own; own &= own - 1)
        weft_tile_release(value->at[WEFT_LOWEST_BIT(own)]);
    *value = (struct weft_g_value){.own = 0};
}
