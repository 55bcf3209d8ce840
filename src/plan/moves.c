/* SPDX-License-Identifier: Apache-2.0 */
/* From where to where the copies of a tile go. */
#include "plan/layout.h"

/* The moves of one tile so far. */
struct moves {
    const int32_t *node_of, *have;
    int32_t n_have, n;
    struct weft_move *out;
    struct weft_move_load *load;
};

/* Places that have the tile: number i of them. */
static int32_t holder(const struct moves *m, int32_t i)
{
    return i < m->n_have ? m->have[i] : m->out[i - m->n_have].to;
}

/* What passes before it has the tile. */
static double has_after(const struct moves *m, int32_t i)
{
    return i < m->n_have ? 0 : m->out[i - m->n_have].after;
}

static bool is_there(const struct moves *m, int32_t place)
{
    for (int32_t i = 0; i < m->n_have + m->n; i++)
        if (holder(m, i) == place)
            return true;
    return false;
}

/* Whether holder a is a better source than b. */
static bool better(const struct moves *m, int32_t a, int32_t b)
{
    int32_t x = holder(m, a), y = holder(m, b);
    double has_a = has_after(m, a), has_b = has_after(m, b);
    double at_a = has_a > m->load[x].sent ? has_a : m->load[x].sent;
    double at_b = has_b > m->load[y].sent ? has_b : m->load[y].sent;
    if (at_a < at_b || at_a > at_b)
        return at_a < at_b;
    if (has_a < has_b || has_a > has_b)
        return has_a < has_b;
    return x < y;
}

/* The best source for a node; near: of those there. -1: none. */
static int32_t source(const struct moves *m, int32_t node, bool near)
{
    int32_t best = -1;
    for (int32_t i = 0; i < m->n_have + m->n; i++)
        if ((!near || m->node_of[holder(m, i)] == node)
            && (best < 0 || better(m, i, best)))
            best = i;
    return best;
}

static void add(struct moves *m, int32_t i, int32_t to, double bytes)
{
    int32_t from = holder(m, i);
    bool far = m->node_of[from] != m->node_of[to];
    double after = has_after(m, i) + (far ? m->load[to].comes : 0);
    m->out[m->n++] = (struct weft_move){from, to, after};
    m->load[from].sent += bytes;
    m->load[to].got += far ? bytes : 0;
}

int32_t weft_plan_moves(const int32_t *node_of, int32_t n_have,
                        const int32_t *have, int32_t n_want,
                        const int32_t *want, double bytes,
                        struct weft_move_load *load,
                        struct weft_move *move_out)
{
    struct moves m = {node_of, have, n_have, 0, move_out, load};
    weft_assert(n_have > 0);
    for (int32_t w = 0; w < n_want; w++) {
        int32_t to = want[w], first = to, node = node_of[to];
        if (is_there(&m, to))
            continue;
        int32_t near = source(&m, node, true);
        for (int32_t i = w + 1; i < n_want && near < 0; i++)
            if (node_of[want[i]] == node
                && load[want[i]].got < load[first].got)
                first = want[i];
        if (near < 0)
            add(&m, source(&m, node, false), first, bytes);
        if (near >= 0 || first != to)
            add(&m, source(&m, node, true), to, bytes);
    }
    return m.n;
}
