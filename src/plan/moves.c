/* SPDX-License-Identifier: Apache-2.0 */
/* From where to where the copies of a tile go. */
#include "plan/layout.h"

/* Whether `a` is a better source for a place on `node` than `b`. */
static bool better(const int32_t *node_of, const double *sent, int32_t node,
                   int32_t a, int32_t b)
{
    bool near_a = node_of[a] == node, near_b = node_of[b] == node;
    if (near_a != near_b)
        return near_a;
    if (sent[a] < sent[b] || sent[b] < sent[a])
        return sent[a] < sent[b];
    return a < b;
}

int32_t weft_plan_moves(const int32_t *node_of, int32_t n_have,
                        const int32_t *have, int32_t n_want,
                        const int32_t *want, double bytes, double *sent,
                        struct weft_move *move_out)
{
    int32_t n = 0;
    weft_assert(n_have > 0);
    for (int32_t w = 0; w < n_want; w++) {
        int32_t to = want[w], from = have[0];
        bool there = false;
        for (int32_t i = 0; i < n_have + n; i++) {
            int32_t place = i < n_have ? have[i] : move_out[i - n_have].to;
            there = there || place == to;
            if (better(node_of, sent, node_of[to], place, from))
                from = place;
        }
        if (there)
            continue;
        move_out[n++] = (struct weft_move){from, to};
        sent[from] += bytes;
    }
    return n;
}
