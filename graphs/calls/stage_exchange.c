/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts that the members of a stage exchange. A place joins those of its
 * members before it sends them, where that makes them fewer bytes.
 */
#include "graphs/calls/stage.h"

void weft_g_roots_create(const struct weft_g_pass *pass,
                         const struct weft_g_stage *stage, int32_t layer,
                         int64_t n, struct weft_tile *out[])
{
    for (int32_t k = 0; k < stage->n; k++)
        out[k] = weft_g_temp(
            pass, "partial sum", WEFT_MEM_ACTIVATIONS, layer,
            weft_part_bytes(pass->shape, stage->member[k].blocks, n),
            stage->member[k].place);
}

static struct weft_range place_range(const struct weft_g_stage *stage,
                                     int32_t p)
{
    struct weft_range range = stage->member[stage->lead[p]].blocks;
    for (int32_t k = stage->lead[p] + 1; k < weft_g_members_end(stage, p);
         k++)
        range.n += stage->member[k].blocks.n;
    return range;
}

/* The parts of the members at place number p; returns how many. */
static int32_t parts_at(const struct weft_g_stage *stage, int32_t p,
                        struct weft_tile *const member[],
                        struct weft_part_tile out[])
{
    int32_t n = 0;
    for (int32_t k = stage->lead[p]; k < weft_g_members_end(stage, p); k++)
        out[n++] = (struct weft_part_tile){stage->member[k].blocks,
                                           member[k]};
    return n;
}

/* The parts that place number p sends; returns how many. */
static int32_t outgoing(const struct weft_g_pass *pass,
                        const struct weft_g_stage *stage, int32_t p,
                        struct weft_tile *const member[],
                        const struct weft_g_value *batch, bool targets,
                        int64_t n, int32_t n_sets, struct weft_g_exchange *x,
                        struct weft_part_tile out[])
{
    int32_t k = parts_at(stage, p, member, out);
    if (k == 1 || n == 0)
        return k;
    struct weft_range all = place_range(stage, p);
    int64_t rows = targets ? pass->n_targets : pass->n_rows;
    struct weft_tile *joined = weft_g_temp(
        pass, "joined part", WEFT_MEM_ACTIVATIONS, -1,
        (size_t) n_sets * weft_part_bytes(pass->shape, all, rows * n),
        stage->place[p]);
    struct weft_where where = weft_g_where_at(pass,
                                              &stage->member[stage->lead[p]]);
    weft_insert_join_parts(pass->seq, &where, pass->shape, batch->at[p],
                           targets, n, n_sets, k, out, joined);
    x->temp[x->n_temp++] = joined;
    out[0] = (struct weft_part_tile){all, joined};
    return 1;
}

/* Copies a part to place number q, after the task that writes `own`. */
static struct weft_part_tile receive(const struct weft_g_pass *pass,
                                     const struct weft_g_stage *stage,
                                     int32_t q, struct weft_tile *own,
                                     struct weft_part_tile sent,
                                     struct weft_g_exchange *x)
{
    if (!sent.tile) /* not every member has one */
        return sent;
    struct weft_tile *tile = weft_g_temp(
        pass, "received part", WEFT_MEM_ACTIVATIONS, -1,
        weft_tile_bytes(sent.tile), stage->place[q]);
    struct weft_where where = weft_g_where_at(pass,
                                              &stage->member[stage->lead[q]]);
    weft_insert_open(pass->seq, &where, own, 1, &tile);
    weft_g_copy(pass, sent.tile, tile);
    x->temp[x->n_temp++] = tile;
    return (struct weft_part_tile){sent.range, tile};
}

void weft_g_exchange(const struct weft_g_pass *pass,
                     const struct weft_g_stage *stage,
                     struct weft_tile *const member[],
                     const struct weft_g_value *batch, bool targets,
                     int64_t n, int32_t n_sets, int32_t to,
                     struct weft_g_exchange *out)
{
    struct weft_part_tile sent[WEFT_MAX_BLOCKS][WEFT_MAX_BLOCKS];
    int32_t n_sent[WEFT_MAX_BLOCKS];
    out->n_temp = 0;
    for (int32_t p = 0; p < stage->n_places && stage->n_places > 1; p++)
        n_sent[p] = outgoing(pass, stage, p, member, batch, targets, n,
                             n_sets, out, sent[p]);
    for (int32_t q = 0; q < to; q++) {
        struct weft_part_tile *part = out->part[q];
        struct weft_tile *own = member[stage->lead[q]];
        for (int32_t p = 0; p < stage->n_places; p++) {
            if (p == q) {
                part += parts_at(stage, p, member, part);
                continue;
            }
            for (int32_t i = 0; i < n_sent[p]; i++)
                *part++ = receive(pass, stage, q, own, sent[p][i], out);
        }
        out->n[q] = (int32_t) (part - out->part[q]);
    }
}

void weft_g_exchange_release(struct weft_g_exchange *x)
{
    for (int32_t i = 0; i < x->n_temp; i++)
        weft_tile_release(x->temp[i]);
    x->n_temp = 0;
}
