/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reallocation: what each place has of the published weights, and what it
 * gets from where, from dp1 tp2 pp2 to dp4 on 2 nodes of 2 devices.
 */
#include "pictures/draw.h"

#include <stdlib.h>

#include "graphs/calls/calls.h"
#include "pictures/svg.h"
#include "plan/layout.h"

enum { PLACES = 4, T = 4, COLUMN = 196, ROW = 26 };
enum { TRAIN = 1 }; /* the plan's one call */

/* Of examples/quickstart. */
static struct weft_shape quickstart(void)
{
    struct weft_shape s = {.hidden = 128,
                           .n_layers = 2,
                           .n_heads = 4,
                           .n_kv_heads = 4,
                           .head_dim = 32,
                           .intermediate = 384,
                           .vocab = 259,
                           .max_positions = 64,
                           .rms_eps = 1e-5f,
                           .rope_theta = 10000,
                           .dtype = WEFT_F32};
    if (weft_shape_partition(&s, T, NULL) != 0)
        abort();
    return s;
}

/* Rows: embedding, layers, head; columns: blocks, then norms. */
struct cell {
    enum weft_tile_kind kind;
    int32_t row, block;
    size_t bytes;
};

static struct cell cell_at(const struct weft_shape *s, int32_t row,
                           int32_t column)
{
    bool last = row == s->n_layers + 1, norms = column == T;
    struct cell c = {.kind = row == 0 ? WEFT_TILE_EMBED
                           : last ? (norms ? WEFT_TILE_FINAL : WEFT_TILE_HEAD)
                           : norms ? WEFT_TILE_NORMS
                                   : WEFT_TILE_LAYER,
                     .row = row,
                     .block = norms ? 0 : column};
    c.bytes = weft_g_fwd_bytes(s, c.kind, c.block);
    return c;
}

/* Whether the member (stage, tp) of the training layout at `place` has it. */
static bool has(const struct weft_shape *s, const int32_t *first,
                const struct weft_plan *plan, int32_t row, int32_t column,
                int32_t place)
{
    const struct weft_call_plan *call = &plan->call[TRAIN];
    for (int32_t stage = 0; stage < call->pp; stage++)
        for (int32_t k = 0; k < call->tp; k++) {
            struct weft_range r = weft_plan_range(T, call->tp, k);
            bool rows = row == 0 ? stage == 0
                      : row == s->n_layers + 1
                          ? stage == call->pp - 1
                          : row - 1 >= first[stage]
                                && row - 1 < first[stage + 1];
            if (weft_plan_device(plan, call, 0, stage, k) == place && rows
                && (column == T
                    || (column >= r.first && column < r.first + r.n)))
                return true;
        }
    return false;
}

static void frame(const struct weft_shape *s)
{
    svg_text(10, 24, 14, "start", INK,
             "Training dp1 tp2 pp2 to generation dp4: weights at the 4 "
             "places (devices) of 2 nodes");
    for (int32_t p = 0; p < PLACES; p++) {
        svg_text(92 + p * COLUMN, 50, 12, "start", svg_colour[p],
                 "place %d (node %d)", p, p / 2);
        for (int32_t c = 0; c <= T; c++)
            svg_text(92 + p * COLUMN + c * 32 + 15, 66, 10, "middle", PALE,
                     c == T ? "norm" : "%d", c);
    }
    for (int32_t r = 0; r < s->n_layers + 2; r++)
        svg_text(10, 88 + r * ROW, 12, "start", INK,
                 r == 0                 ? "embedding"
                 : r == s->n_layers + 1 ? "head"
                                        : "layer %d",
                 r - 1);
}

void draw_moves(void)
{
    static const int32_t node[PLACES] = {0, 0, 1, 1};
    struct weft_plan plan = {.n_nodes = 2, .n_devices = 2};
    struct weft_shape s = quickstart();
    int32_t first[3];
    struct weft_move_load load[PLACES] = {{0, 0, 0}};
    double got[PLACES] = {0}, kept[PLACES] = {0};
    double across = 0;
    plan.call[TRAIN] = (struct weft_call_plan){
        .mesh = {0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2};
    weft_plan_stages(&s, 2, first);
    svg_begin(880, 290);
    frame(&s);
    for (int32_t i = 0; i < (s.n_layers + 2) * (T + 1); i++) {
        struct cell c = cell_at(&s, i / (T + 1), i % (T + 1));
        int32_t have[PLACES], want[PLACES], n_have = 0, n_want = 0;
        struct weft_move move[PLACES];
        double x = 92 + i % (T + 1) * 32, y = 72 + c.row * ROW;
        if (c.kind == WEFT_TILE_EMBED && i == T) /* it has no norms */
            continue;
        for (int32_t p = 0; p < PLACES; p++) {
            if (!has(&s, first, &plan, c.row, i % (T + 1), p)) {
                want[n_want++] = p;
                continue;
            }
            have[n_have++] = p;
            kept[p] += (double) c.bytes;
            svg_rect(x + p * COLUMN, y, 29, ROW - 4, svg_colour[p], "none");
        }
        int32_t n = weft_plan_moves(node, n_have, have, n_want, want,
                                    (double) c.bytes, load, move);
        for (int32_t k = 0; k < n; k++) {
            svg_shade(x + move[k].to * COLUMN, y, 29, ROW - 4,
                      svg_colour[move[k].from], 0.3);
            svg_text(x + move[k].to * COLUMN + 15, y + 15, 11, "middle", INK,
                     "%d", move[k].from);
            got[move[k].to] += (double) c.bytes;
            if (node[move[k].from] != node[move[k].to])
                across += (double) c.bytes;
        }
    }
    for (int32_t p = 0; p < PLACES; p++) {
        static const char *const what[] = {"has", "gets", "sends"};
        const double bytes[] = {kept[p], got[p], load[p].sent};
        for (int k = 0; k < 3; k++)
            svg_text(92 + p * COLUMN, 196 + k * 16, 12, "start", INK,
                     "%s %.0f kB", what[k], bytes[k] / 1000);
    }
    svg_text(
        10, 252, 12, "start", INK,
        "full: has it in training; pale: gets it, from the place whose "
        "number and colour it shows. Every missing block is copied once:");
    svg_text(10, 268, 12, "start", INK,
             "%.0f kB in all, the least possible; %.0f kB of them cross "
             "between the nodes, also the least: each block enters a node "
             "once.",
             (got[0] + got[1] + got[2] + got[3]) / 1000, across / 1000);
    svg_end();
}
