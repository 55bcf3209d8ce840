/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/refute.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

/* Ancestors are kept as bits: 32 MiB. */
enum { MOST_OPS = 16384, MOST_TRIES = 64 };

/* ---- Preparing --------------------------------------------------------- */

static void add(struct weft_refute *r, int side, int32_t x, int32_t y,
                double lag)
{
    r->arc[side][r->at[side][x + 1]++] = (struct weft_jobshop_arc){y, lag};
}

/* Arcs of the shop, of series and of memory, from both ends. */
static bool collect_arcs(struct weft_refute *r, double capacity)
{
    const struct weft_jobshop *shop = r->shop;
    int32_t n = shop->n_ops, beside[2];
    size_t most = (size_t) shop->pred_at[n] + 2 * (size_t) n;
    int32_t *in_flight = weft_alloc((size_t) shop->n_model_stages,
                                    sizeof(int32_t));
    for (int side = 0; side < 2; side++) {
        r->at[side] = weft_alloc((size_t) n + 2, sizeof(int32_t));
        r->arc[side] = weft_alloc(most, sizeof(struct weft_jobshop_arc));
    }
    bool ok = in_flight && r->at[0] && r->at[1] && r->arc[0] && r->arc[1];
    if (ok)
        weft_jobshop_in_flight(shop, capacity, in_flight);
    for (int side = 0; side < 2 && ok; side++) {
        const int32_t *at = side ? shop->succ_at : shop->pred_at;
        const struct weft_jobshop_arc *arc = side ? shop->succ : shop->pred;
        for (int32_t x = 0; x < n; x++) {
            r->at[side][x + 1] = r->at[side][x];
            for (int32_t k = at[x]; k < at[x + 1]; k++)
                add(r, side, x, arc[k].op, arc[k].lag);
            int m = weft_jobshop_neighbours(shop, in_flight, x, side ? 1 : -1,
                                            beside);
            while (m-- > 0)
                add(r, side, x, beside[m], 0);
        }
    }
    weft_free(in_flight);
    return ok;
}

static bool sort_topologically(struct weft_refute *r)
{
    int32_t n = r->shop->n_ops, have = 0;
    int32_t *missing = weft_alloc((size_t) n, sizeof *missing);
    if (!missing)
        return false;
    for (int32_t x = 0; x < n; x++) {
        missing[x] = r->at[0][x + 1] - r->at[0][x];
        if (missing[x] == 0)
            r->order[have++] = x;
    }
    for (int32_t i = 0; i < have; i++)
        for (int32_t x = r->order[i], k = r->at[1][x]; k < r->at[1][x + 1];
             k++)
            if (--missing[r->arc[1][k].op] == 0)
                r->order[have++] = r->arc[1][k].op;
    weft_assert(have == n);
    weft_free(missing);
    return true;
}

static void number_devices(struct weft_refute *r)
{
    const struct weft_jobshop *shop = r->shop;
    int32_t most = 0;
    for (int32_t d = 0; d < shop->n_devices; d++) {
        int32_t at = shop->device_at[d], n = 0;
        for (int32_t i = 0; i < shop->n_ops; i++) {
            int32_t x = r->order[i];
            if (shop->op[x].device != d)
                continue;
            r->local[x] = n;
            r->sorted[0][at + n] = r->sorted[1][at + n] = x;
            n++;
        }
        most = n > most ? n : most;
    }
    r->n_words = (size_t) most / 64 + 1;
}

static bool is_set(const uint64_t *bits, int32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

/* For each operation, those on its device that must go before it. */
static bool collect_order(struct weft_refute *r)
{
    const struct weft_jobshop *shop = r->shop;
    size_t n = (size_t) shop->n_ops, words = n / 64 + 1;
    uint64_t *all = weft_alloc(n * words, sizeof *all);
    r->first[0] = weft_alloc(n * r->n_words, sizeof(uint64_t));
    r->first[1] = weft_alloc(n * r->n_words, sizeof(uint64_t));
    bool ok = all && r->first[0] && r->first[1];
    for (size_t i = 0; i < n && ok; i++) {
        int32_t x = r->order[i], d = shop->op[x].device;
        uint64_t *mine = all + (size_t) x * words;
        for (int32_t k = r->at[0][x]; k < r->at[0][x + 1]; k++) {
            int32_t y = r->arc[0][k].op;
            for (size_t w = 0; w < words; w++)
                mine[w] |= all[(size_t) y * words + w];
            mine[y / 64] |= UINT64_C(1) << (y % 64);
        }
        for (int32_t k = d < 0 ? 0 : shop->device_at[d];
             d >= 0 && k < shop->device_at[d + 1]; k++) {
            int32_t y = r->sorted[0][k], a = r->local[x], b = r->local[y];
            if (!is_set(mine, y))
                continue;
            r->first[0][(size_t) x * r->n_words + (size_t) b / 64] |=
                UINT64_C(1) << (b % 64);
            r->first[1][(size_t) y * r->n_words + (size_t) a / 64] |=
                UINT64_C(1) << (a % 64);
        }
    }
    weft_free(all);
    return ok;
}

static bool has_order(const struct weft_jobshop *shop, int32_t u)
{
    const struct weft_jobshop_model_stage *model_stage =
        &shop->model_stage[u];
    return model_stage->equal && shop->series[model_stage->take].fixed
        && shop->series[model_stage->give].fixed;
}

/* Finds clashes: for a = 1, 2, ... micro-batches of u, the least number of v
 * that does not fit with them. A further one of u is a new clash only if it
 * allows fewer of v. Returns how many clashes there are; writes them unless
 * `out` is NULL. */
static int32_t clashes_of(const struct weft_jobshop *shop, double capacity,
                          int32_t u, int32_t v, struct weft_refute_clash *out)
{
    double x = shop->model_stage[u].most, y = shop->model_stage[v].most;
    int32_t most = shop->series[shop->model_stage[v].take].n, n = 0;
    capacity *= 1 + WEFT_JOBSHOP_SLACK;
    if (capacity <= 0 || x <= 0 || y <= 0 || !has_order(shop, u)
        || !has_order(shop, v))
        return 0;
    int32_t last = (int32_t) fmin(floor(capacity / y), most) + 1;
    for (int32_t a = 1;
         a <= shop->series[shop->model_stage[u].take].n && a * x <= capacity;
         a++) {
        int32_t b = (int32_t) fmin(floor((capacity - a * x) / y), most) + 1;
        if (b < last && out)
            out[n] = (struct weft_refute_clash){u, v, a, b};
        n += b < last;
        last = b;
    }
    return n;
}

static bool collect_clashes(struct weft_refute *r, double capacity)
{
    const struct weft_jobshop *shop = r->shop;
    r->clash_at = weft_alloc((size_t) shop->n_devices + 1, sizeof(int32_t));
    for (int fill = 0; fill < 2 && r->clash_at; fill++) {
        int32_t n = 0;
        for (int32_t d = 0; d < shop->n_devices; d++) {
            const int32_t *model_stage = shop->model_stage_of
                                       + shop->model_stage_at[d];
            int32_t n_model_stages = shop->model_stage_at[d + 1]
                                   - shop->model_stage_at[d];
            for (int32_t i = 0; i < n_model_stages; i++)
                for (int32_t j = i + 1; j < n_model_stages; j++)
                    n += clashes_of(shop, capacity, model_stage[i],
                                    model_stage[j],
                                    fill ? r->clash + n : NULL);
            r->clash_at[d + 1] = n;
        }
        if (!fill && !(r->clash = weft_alloc((size_t) n, sizeof *r->clash)))
            return false;
    }
    return r->clash_at;
}

static bool prepare(struct weft_refute *r, const struct weft_jobshop *shop,
                    double capacity)
{
    size_t n = (size_t) shop->n_ops;
    r->shop = shop;
    for (int side = 0; side < 2; side++) {
        r->head[side] = weft_alloc(n, sizeof(double));
        r->sorted[side] = weft_alloc(n, sizeof(int32_t));
    }
    r->dirty = weft_alloc((size_t) shop->n_devices, sizeof(bool));
    r->order = weft_alloc(n, sizeof(int32_t));
    r->local = weft_alloc(n, sizeof(int32_t));
    r->job = weft_alloc(n, sizeof *r->job);
    r->place = weft_alloc(n, sizeof(int32_t));
    r->node = weft_alloc(4 * n, sizeof *r->node);
    if (!r->head[0] || !r->head[1] || !r->sorted[0] || !r->sorted[1]
        || !r->dirty || !r->order || !r->local || !r->job || !r->place
        || !r->node || !collect_arcs(r, capacity) || !sort_topologically(r))
        return false;
    number_devices(r);
    return collect_order(r) && collect_clashes(r, capacity);
}

static void release(struct weft_refute *r)
{
    for (int side = 0; side < 2; side++) {
        weft_free(r->head[side]);
        weft_free(r->sorted[side]);
        weft_free(r->at[side]);
        weft_free(r->arc[side]);
        weft_free(r->first[side]);
    }
    weft_free(r->dirty);
    weft_free(r->order);
    weft_free(r->local);
    weft_free(r->job);
    weft_free(r->place);
    weft_free(r->node);
    weft_free(r->clash_at);
    weft_free(r->clash);
}

/* ---- Drawing what follows ---------------------------------------------- */

static void sweep(struct weft_refute *r, int side)
{
    int32_t n = r->shop->n_ops;
    for (int32_t i = 0; i < n && !r->refuted; i++) {
        int32_t x = r->order[side ? n - 1 - i : i];
        double head = 0;
        for (int32_t k = r->at[side][x]; k < r->at[side][x + 1]; k++) {
            const struct weft_jobshop_arc *arc = &r->arc[side][k];
            head = fmax(head, r->head[side][arc->op]
                                  + r->shop->op[arc->op].time + arc->lag);
        }
        weft_refute_raise(r, side, x, head);
    }
    r->steps += r->at[side][n];
}

/* Applies the rules until nothing changes. */
static void narrow(struct weft_refute *r, int64_t most_steps)
{
    for (bool again = true; again && !r->refuted && r->steps < most_steps;) {
        again = false;
        sweep(r, 0);
        sweep(r, 1);
        for (int32_t d = 0; d < r->shop->n_devices && !r->refuted; d++) {
            if (!r->dirty[d])
                continue;
            again = true;
            r->dirty[d] = false;
            weft_refute_device(r, d);
        }
    }
}

struct shaving {
    double *saved[2];
    double step;        /* the least piece */
    int64_t most_steps; /* of all tries together */
    int64_t until;      /* of this one */
};

static double slack(const struct weft_refute *r, int32_t x)
{
    return r->makespan - r->head[0][x] - r->shop->op[x].time - r->head[1][x];
}

/* Whether x may start within `piece` from its head; false means that this is
 * refuted. */
static bool may_start(struct weft_refute *r, const struct shaving *s,
                      int side, int32_t x, double piece)
{
    size_t bytes = (size_t) r->shop->n_ops * sizeof(double);
    for (int i = 0; i < 2; i++)
        memcpy(s->saved[i], r->head[i], bytes);
    weft_refute_raise(r, 1 - side, x,
                      r->head[1 - side][x] + slack(r, x) - piece);
    narrow(r, s->until);
    bool may = !r->refuted;
    r->refuted = false;
    memset(r->dirty, 0, (size_t) r->shop->n_devices * sizeof *r->dirty);
    for (int i = 0; i < 2; i++)
        memcpy(r->head[i], s->saved[i], bytes);
    return may;
}

/* Shaving: pieces at the head that are refuted are cut off, a larger one each
 * time (Martin and Shmoys 1996). */
static bool shave(struct weft_refute *r, const struct shaving *s, int side,
                  int32_t x)
{
    double piece = s->step / 2;
    bool shaved = false;
    while (!r->refuted && r->steps < s->until && slack(r, x) > piece + r->eps
           && !may_start(r, s, side, x, piece)) {
        weft_refute_raise(r, side, x,
                          r->head[side][x] + piece
                              + (r->shop->grain > 0 ? s->step / 2 : 0));
        narrow(r, s->until);
        shaved = true;
        piece = 2 * piece + s->step / 2;
    }
    return shaved;
}

static bool try_makespan(struct weft_refute *r, double makespan,
                         const struct shaving *s, bool shaving)
{
    const struct weft_jobshop *shop = r->shop;
    r->makespan = makespan;
    r->refuted = false;
    for (int side = 0; side < 2; side++)
        memset(r->head[side], 0, (size_t) shop->n_ops * sizeof(double));
    for (int32_t d = 0; d < shop->n_devices; d++)
        r->dirty[d] = true;
    narrow(r, s->until);
    /* Follows the arcs, since a shaved operation moves its successors. */
    int32_t n = shop->n_ops;
    for (int32_t i = 0, idle = shaving ? 0 : 2 * n;
         idle < 2 * n && !r->refuted; i = (i + 1) % (2 * n)) {
        int32_t x = r->order[i < n ? i : 2 * n - 1 - i];
        idle = shave(r, s, i / n, x) ? 0 : idle + 1;
    }
    return r->refuted;
}

/* ---- The bound --------------------------------------------------------- */

/* The least makespan among bound, bound + step, ... that is not refuted; the
 * distance doubles until one is not refuted. */
static double climb(struct weft_refute *r, double bound, double makespan,
                    struct shaving *s, bool shaving)
{
    double jump = 0, top = makespan;
    double above = r->shop->grain > 0 ? 0 : s->step;
    for (int i = 0; i < MOST_TRIES && top - bound > above + s->step / 2
                    && r->steps < s->most_steps;
         i++) {
        double half = floor(((top - bound) / s->step - 1) / 2 + 0.25);
        double at = bound + above + fmin(jump, half * s->step);
        s->until = r->steps + (s->most_steps - r->steps) / 2 + 1;
        if (try_makespan(r, at, s, shaving)) {
            bound = at - above + s->step;
            jump = 2 * jump + s->step;
        } else {
            top = at;
            jump = 0;
        }
    }
    return bound;
}

/* The makespan of any schedule that idles only when it must wait. */
static double longest(const struct weft_jobshop *shop)
{
    double sum = 0;
    for (int32_t x = 0; x < shop->n_ops; x++)
        sum += shop->op[x].time + shop->problem->latency;
    return sum;
}

double weft_jobshop_refute(const struct weft_jobshop *shop, double capacity,
                           double bound, double makespan, int64_t steps,
                           const char **argument)
{
    struct weft_refute r = {0};
    struct shaving s = {.most_steps = steps,
                        .step = shop->grain > 0 ? shop->grain : bound / 1024};
    double better = -1;
    if (shop->n_ops > MOST_OPS || bound == INFINITY)
        return bound;
    s.saved[0] = weft_alloc((size_t) shop->n_ops, sizeof(double));
    s.saved[1] = weft_alloc((size_t) shop->n_ops, sizeof(double));
    if (s.saved[0] && s.saved[1] && prepare(&r, shop, capacity)) {
        makespan = fmin(makespan, longest(shop) + s.step);
        r.eps = shop->grain > 0 ? shop->grain / 4 : bound * 1e-7;
        better = climb(&r, bound, makespan, &s, false);
        better = climb(&r, better, makespan, &s, true);
        if (better > bound * (1 + WEFT_JOBSHOP_SLACK) && argument)
            *argument = "every shorter makespan is refuted";
    }
    weft_free(s.saved[0]);
    weft_free(s.saved[1]);
    release(&r);
    return better;
}
