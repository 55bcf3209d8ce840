/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iterations of a choice's calls as devices run them: task by task, those of
 * the call with the highest priority first. A task is short beside its call, so
 * that calls go on smoothly, each with a speed that changes only when a call
 * begins or ends. At full speed a call takes its seconds, and a share of the
 * time of each of its devices, which is less than all where stages wait for one
 * another: calls of lower priority have the rest. Those of equal priority go on
 * so that each would end at the same time. A call has the speed of its slowest
 * device; but where any device takes the next micro-batch, each goes on as it
 * can with what others leave. Devices that work together wait for one another,
 * and do nothing else meanwhile; pipelines beside them are empty then. But
 * while the first of them begins a micro-batch the others begin another task:
 *
 *     device 0   gang | hands on |  waits        | gang
 *     device 1   gang | a task of another call   | gang
 *
 * What reads a call's results and does not train begins with the first of them,
 * and then goes on as they come.
 */
#include <math.h>
#include <string.h>

#include "plan/search/inside.h"

enum {
    /* The period is the mean of the last two of so many iterations. */
    ITERATIONS = 5,
    MOST_EVENTS = 4096,
    MOST_DEVICES = 64
};
static const double tiny = 1e-9;

struct play {
    const struct weft_search *s;
    int32_t n;
    const struct weft_option *o[WEFT_MAX_CALLS];
    double move[WEFT_MAX_CALLS];
    uint32_t behind[WEFT_MAX_CALLS]; /* calls that it begins behind */
    /* of a gang: calls on its mesh's first device; those that its others begin
     * when they are free */
    uint32_t beside[WEFT_MAX_CALLS], after[WEFT_MAX_CALLS];
    /* Devices that differ, by the calls that they have and by kind, and how many
     * of them there are. */
    uint32_t calls_of[MOST_DEVICES];
    int32_t number_of[MOST_DEVICES];
    int32_t kind_of[MOST_DEVICES]; /* of their nodes */
    int32_t n_devices;
    /* of each call, in its iteration `done` */
    int32_t done[WEFT_MAX_CALLS];
    double part[WEFT_MAX_CALLS];  /* that is done */
    double rate[WEFT_MAX_CALLS];  /* parts per second */
    double load[WEFT_MAX_CALLS];  /* seconds of a device that it all takes, in
                                     the mean */
    double ended[WEFT_MAX_CALLS]; /* when the one before ended */
    double now;
};

/* ---- Devices ------------------------------------------------------------ */

/* Where meshes begin and end, ascending: their nodes, or devices of nodes.
 * Returns how many places that are. */
static int32_t find_edges(const struct play *q, bool nodes,
                          int32_t edge[2 * WEFT_MAX_CALLS])
{
    int32_t n = 0;
    for (int32_t k = 0; k < 2 * q->n; k++) {
        const struct weft_mesh *m = &q->o[k / 2]->plan.mesh;
        int32_t at = nodes ? m->node + k % 2 * m->n_nodes
                           : m->device + k % 2 * m->n_devices;
        int32_t i = n;
        while (i > 0 && edge[i - 1] > at)
            i--;
        if (i > 0 && edge[i - 1] == at)
            continue;
        memmove(edge + i + 1, edge + i, (size_t) (n - i) * sizeof *edge);
        edge[i] = at;
        n++;
    }
    return n;
}

static void add_devices(struct play *q, uint32_t calls, int32_t kind,
                        int32_t number)
{
    int32_t d = 0;
    while (d < q->n_devices
           && (q->calls_of[d] != calls || q->kind_of[d] != kind))
        d++;
    if (d == MOST_DEVICES)
        return;
    if (d == q->n_devices)
        q->number_of[q->n_devices++] = 0;
    q->calls_of[d] = calls;
    q->kind_of[d] = kind;
    q->number_of[d] += number;
}

/* Devices of nodes `from` to `end`, `each` of a node. */
static void add_kinds(struct play *q, uint32_t calls, int32_t from,
                      int32_t end, int32_t each)
{
    for (int32_t to; from < end; from = to) {
        int32_t kind = weft_search_kind(q->s, from);
        for (to = from + 1; to < end && weft_search_kind(q->s, to) == kind;)
            to++;
        add_devices(q, calls, kind, (to - from) * each);
    }
}

/* A device with fewer calls than another of its kind is never the slowest. */
static void drop_devices(struct play *q)
{
    bool fewer[MOST_DEVICES] = {false};
    int32_t n = 0;
    for (int32_t i = 0; i < q->n_devices; i++)
        for (int32_t k = 0; k < q->n_devices && !fewer[i]; k++)
            fewer[i] = k != i && (q->calls_of[i] & ~q->calls_of[k]) == 0
                    && q->kind_of[i] == q->kind_of[k];
    for (int32_t i = 0; i < q->n_devices; i++)
        if (!fewer[i]) {
            q->calls_of[n] = q->calls_of[i];
            q->kind_of[n++] = q->kind_of[i];
        }
    q->n_devices = n;
}

static void find_devices(struct play *q)
{
    int32_t node[2 * WEFT_MAX_CALLS], device[2 * WEFT_MAX_CALLS];
    int32_t n_nodes = find_edges(q, true, node);
    int32_t n_devices = find_edges(q, false, device);
    bool any = false;
    for (int32_t i = 0; i + 1 < n_nodes; i++)
        for (int32_t k = 0; k + 1 < n_devices; k++) {
            uint32_t calls = 0;
            for (int32_t c = 0; c < q->n; c++)
                calls |= (uint32_t) weft_search_covers(&q->o[c]->plan.mesh,
                                                       node[i], device[k])
                      << c;
            if (calls)
                add_kinds(q, calls, node[i], node[i + 1],
                          device[k + 1] - device[k]);
        }
    for (int32_t c = 0; c < q->n; c++)
        any = any || q->o[c]->any_device || q->o[c]->gang;
    if (!any)
        drop_devices(q);
}

/* ---- What calls wait for ------------------------------------------------- */

/* The part of a call's results that is there when it has done `part` of its
 * work, and in `rate` how much faster than that it grows from there on. */
static double came(const struct weft_option *o, double part, double *rate)
{
    int32_t k = 0;
    *rate = 0;
    if (part >= 1 - tiny)
        return 1;
    while (k < WEFT_SEARCH_PARTS && o->came[k] <= part + tiny)
        k++;
    if (k == 0)
        return 0;
    double from = o->came[k - 1];
    double to = k < WEFT_SEARCH_PARTS ? o->came[k] : 1;
    double each = 1.0 / WEFT_SEARCH_PARTS;
    if (k == WEFT_SEARCH_PARTS || to >= 1 - tiny)
        to = 1;
    if (to - from <= tiny)
        return (k - 1) * each;
    *rate = each / (to - from);
    return (k - 1 + (part - from) / (to - from)) * each;
}

/* The calls that a call begins behind in this choice. */
static uint32_t find_behind(const struct play *q, int32_t c)
{
    const struct weft_search *s = q->s;
    uint32_t set = 0;
    for (uint32_t m = s->p->call[c].behind; m; m &= m - 1) {
        int32_t t = __builtin_ctz(m);
        bool moves = false;
        for (int32_t k = 0; k < q->n; k++)
            moves = moves
                 || (k != t && s->trainer[k] == t
                     && !weft_plan_lies_alike(&q->o[t]->plan,
                                              &q->o[k]->plan));
        if (moves
            && weft_search_overlap(&q->o[c]->plan.mesh, &q->o[t]->plan.mesh))
            set |= 1u << t;
    }
    return set;
}

/* The calls that the first device of a gang's mesh has. */
static uint32_t find_beside(const struct play *q, int32_t g)
{
    const struct weft_mesh *m = &q->o[g]->plan.mesh;
    uint32_t set = 0;
    for (int32_t c = 0; c < q->n; c++)
        if (weft_search_covers(&q->o[c]->plan.mesh, m->node, m->device))
            set |= 1u << c;
    return set;
}

/* The calls whose tasks devices of a gang take when they have none of it, but
 * for the first device of each group: with one there alone a pipeline does not
 * begin. */
static uint32_t find_after(const struct play *q, int32_t g)
{
    const struct weft_option *gang = q->o[g];
    uint32_t set = 0;
    for (int32_t c = 0; c < q->n; c++) {
        const struct weft_option *o = q->o[c];
        const struct weft_mesh *m = &o->plan.mesh;
        int more = q->s->p->call[g].priority - q->s->p->call[c].priority;
        bool later = o->any_device || (q->s->p->one_by_one && c > g);
        if ((more > 0 || (more == 0 && later)) && !o->gang
            && weft_search_overlap(m, &gang->plan.mesh)
            && (o->plan.dp * o->plan.tp > 1
                || (m->device - gang->plan.mesh.device) % gang->plan.tp != 0))
            set |= 1u << c;
    }
    return set;
}

/* Whether a call has what it waits for before it can begin. at: no sooner than
 * then, where weights move. */
static bool can_begin(const struct play *q, int32_t c, double *at)
{
    const struct weft_search_call *call = &q->s->p->call[c];
    int32_t i = q->done[c], t = q->s->trainer[c];
    for (int32_t k = 0; k < q->n; k++)
        if (q->done[k] + 1 < i)
            return false; /* iterations before the last have ended */
    for (uint32_t m = call->before; m; m &= m - 1) {
        int32_t b = __builtin_ctz(m);
        if (q->done[b] < i || (call->trains && q->done[b] <= i))
            return false;
    }
    for (uint32_t m = i > 0 ? q->behind[c] : 0; m; m &= m - 1)
        if (q->done[__builtin_ctz(m)] < i)
            return false;
    if (t < 0 || t == c || i == 0)
        return true;
    *at = q->ended[t] + q->move[c];
    return q->done[t] >= i && *at <= q->now + tiny * q->now;
}

/* The part that a call can have done by what it reads; rate: at which that
 * grows, in parts per second. */
static double most_done(const struct play *q, int32_t c, double *rate)
{
    double most = 1;
    *rate = 0;
    for (uint32_t m = q->s->p->call[c].before; m; m &= m - 1) {
        int32_t b = __builtin_ctz(m);
        double grows, part;
        if (q->done[b] > q->done[c])
            continue;
        part = came(q->o[b], q->part[b], &grows);
        if (part < most) {
            most = part;
            *rate = grows * q->rate[b];
        }
    }
    return most;
}

/* ---- Speeds ------------------------------------------------------------- */

/* The rate that a call can have by itself and by what it reads. */
static double most_rate(const struct play *q, int32_t c)
{
    double rate = 1 / q->o[c]->seconds, grows;
    double most = most_done(q, c, &grows);
    return q->part[c] >= most - tiny && most < 1 && grows < rate ? grows
                                                                 : rate;
}

/* Whether a device is one of those like the first of a gang's mesh. */
static bool is_first(const struct play *q, int32_t g, int32_t d)
{
    return q->calls_of[d] == q->beside[g]
        && q->kind_of[d] == weft_search_kind(q->s, q->o[g]->plan.mesh.node);
}

/* Whether a gang's first device has time left. */
static bool first_has_time(const struct play *q, int32_t g,
                           const double *left)
{
    int32_t d = 0;
    while (d + 1 < q->n_devices && !is_first(q, g, d))
        d++;
    return left[d] > tiny;
}

/* Leaves no time on the devices of a gang one of whose devices calls of higher
 * priority have taken: the others wait for that one, unless it is the first,
 * which has not begun the gang's work then. */
static void wait_in_gangs(const struct play *q, uint32_t calls, double *left)
{
    for (bool more = true; more;) {
        more = false;
        for (uint32_t m = calls; m; m &= m - 1) {
            int32_t c = __builtin_ctz(m);
            bool waits = false;
            for (int32_t d = 0; d < q->n_devices && q->o[c]->gang; d++)
                waits = waits || (q->calls_of[d] >> c & 1 && left[d] <= tiny);
            if (!waits || !first_has_time(q, c, left) || most_rate(q, c) <= 0)
                continue;
            for (int32_t d = 0; d < q->n_devices; d++)
                if (q->calls_of[d] >> c & 1 && left[d] > 0) {
                    left[d] = 0;
                    more = true;
                }
        }
    }
}

/* What goes on with one speed: a call, or where any device takes its
 * micro-batches, the share of it that devices with the same calls have. */
struct unit {
    int32_t call, device; /* -1: all of the call's */
    double share;
};

static bool is_on(const struct play *q, const struct unit *u, int32_t device)
{
    return u->device < 0 ? q->calls_of[device] >> u->call & 1
                         : u->device == device;
}

static int32_t find_units(const struct play *q, uint32_t calls,
                          struct unit *unit)
{
    int32_t n = 0;
    for (uint32_t m = calls; m; m &= m - 1) {
        int32_t c = __builtin_ctz(m);
        int32_t size = weft_mesh_size(&q->o[c]->plan.mesh);
        if (!q->o[c]->any_device)
            unit[n++] = (struct unit){c, -1, 1};
        for (int32_t d = 0; d < q->n_devices && q->o[c]->any_device; d++)
            if (q->calls_of[d] >> c & 1)
                unit[n++] = (struct unit){c, d,
                                          (double) q->number_of[d] / size};
    }
    return n;
}

/* Seconds of a device that a call takes of it. */
static double load_of(const struct play *q, int32_t c, int32_t device)
{
    return q->load[c] * (1 + (double) q->o[c]->uneven[q->kind_of[device]]);
}

/* The rate at which the first of n units can be no faster, as its call or a
 * device is full. *call, *device: whose units these are, one of them; -1: the
 * other. */
static double first_full(const struct play *q, const double *own,
                         const double *left, int32_t n,
                         const struct unit *unit, int32_t *call,
                         int32_t *device)
{
    double first = INFINITY, shares[WEFT_MAX_CALLS] = {0};
    for (int32_t i = 0; i < n; i++)
        shares[unit[i].call] += unit[i].share;
    for (int32_t c = 0; c < q->n; c++) {
        if (shares[c] <= 0)
            continue;
        double rate = fmin((own[c] - q->rate[c]) / shares[c],
                           1 / q->o[c]->seconds);
        if (rate < first) {
            first = rate > 0 ? rate : 0;
            *call = c;
            *device = -1;
        }
    }
    for (int32_t d = 0; d < q->n_devices; d++) {
        double load = 0;
        for (int32_t i = 0; i < n; i++)
            if (is_on(q, &unit[i], d))
                load += load_of(q, unit[i].call, d);
        if (load > 0 && left[d] < first * load) {
            first = left[d] / load;
            *call = -1;
            *device = d;
        }
    }
    return first;
}

/* Stages of a call on the devices of one tp group of a gang; meshes and groups
 * begin at multiples of their sizes. */
static int32_t stages_within(const struct weft_call_plan *of,
                             const struct weft_call_plan *gang)
{
    int32_t devices = weft_min32(gang->tp, of->mesh.n_devices);
    return weft_min32(weft_max32(devices / (of->dp * of->tp), 1), of->pp);
}

/* Sets what a device has to do for each of a set of calls of one priority. They
 * take their micro-batches in turn, and a gang begins one when all devices of a
 * tp group are free. Where stages of another call's pipeline are on these
 * devices, that pipeline is empty then: each time it takes as long as all of the
 * stages but one to fill. That happens as often as the call that takes fewer
 * micro-batches takes one, and counts as this call's work. own: rates that the
 * calls can have. */
static void set_loads(struct play *q, uint32_t calls, const double *own)
{
    for (uint32_t m = calls; m; m &= m - 1) {
        int32_t c = __builtin_ctz(m);
        q->load[c] = q->o[c]->share * q->o[c]->seconds;
    }
    for (uint32_t m = calls; m; m &= m - 1) {
        int32_t g = __builtin_ctz(m);
        for (uint32_t k = q->o[g]->gang ? calls : 0; k; k &= k - 1) {
            int32_t c = __builtin_ctz(k);
            const struct weft_option *o = q->o[c];
            int32_t n = o->micro_batches, n_gang = q->o[g]->micro_batches;
            int32_t more = stages_within(&o->plan, &q->o[g]->plan) - 1;
            if (c == g || more == 0 || n == 0
                || !weft_search_overlap(&o->plan.mesh, &q->o[g]->plan.mesh))
                continue;
            double waits = more * o->share * o->seconds / n;
            bool fewer = own[c] * n <= own[g] * n_gang;
            q->load[fewer ? c : g] += waits * (fewer ? n : n_gang);
        }
    }
}

/* The rate of a gang whose first devices begin each micro-batch: meanwhile the
 * others take a task of another call, if there is one, for whose end the gang
 * then waits; but no more than that call has to do. To pack samples takes no
 * longer than the shortest task, so that it is any; to hand on those that were
 * generated does, so that it is a long one, behind short ones. */
static double rate_in_gaps(const struct play *q, int32_t g)
{
    const struct weft_option *gang = q->o[g];
    bool generates = q->s->p->call[g].before == 0;
    for (int32_t i = 0; i < q->n && q->after[g]; i++) {
        int32_t c = q->s->by_priority[i];
        const struct weft_option *o = q->o[c];
        double at, rate;
        if (!(q->after[g] >> c & 1) || !can_begin(q, c, &at)
            || (rate = most_rate(q, c)) <= 0)
            continue;
        double use = rate * o->share * o->seconds;
        if (o->any_device)
            use *= gang->plan.tp / (gang->plan.tp - 1.0);
        double task_s = generates ? o->long_task_s : o->task_s;
        return fmax(1 / (gang->seconds + gang->micro_batches * task_s),
                    (1 - use) / gang->seconds);
    }
    return 1 / gang->seconds;
}

/* Leaves no time on the first devices of a gang that waits for the others. */
static void wait_in_gaps(const struct play *q, int32_t g, double *left)
{
    int32_t tp = q->o[g]->plan.tp;
    for (int32_t d = 0; d < q->n_devices; d++) {
        int32_t n = q->number_of[d];
        if (is_first(q, g, d))
            left[d] *= 1 - (double) weft_ceil_div(n, tp) / n;
    }
}

/* Sets the rates of a set of calls of one priority; left: of each device. They
 * become faster together, until a device is full or a call can be no faster;
 * the others go on from there. */
static void share(struct play *q, uint32_t calls, double *left)
{
    struct unit unit[MOST_DEVICES * WEFT_MAX_CALLS];
    double own[WEFT_MAX_CALLS];
    int32_t n = find_units(q, calls, unit);
    uint32_t wait = 0;
    for (uint32_t m = calls; m; m &= m - 1) {
        int32_t c = __builtin_ctz(m);
        double most = rate_in_gaps(q, c);
        own[c] = most_rate(q, c);
        wait |= own[c] > most ? m & -m : 0;
        own[c] = fmin(own[c], most);
    }
    set_loads(q, calls, own);
    while (n > 0) {
        int32_t call, device, kept = 0;
        double rate = first_full(q, own, left, n, unit, &call, &device);
        for (int32_t i = 0; i < n; i++) {
            const struct unit u = unit[i];
            if (device < 0 ? u.call != call : !is_on(q, &u, device)) {
                unit[kept++] = u;
                continue;
            }
            q->rate[u.call] += rate * u.share;
            for (int32_t d = 0; d < q->n_devices; d++) {
                if (!is_on(q, &u, d))
                    continue;
                double use = rate * load_of(q, u.call, d);
                left[d] = left[d] - use > tiny ? left[d] - use : 0;
            }
        }
        n = kept;
    }
    for (uint32_t m = wait; m; m &= m - 1)
        wait_in_gaps(q, __builtin_ctz(m), left);
}

/* Sets all rates. Returns when the first move ends. */
static double set_rates(struct play *q)
{
    const struct weft_search *s = q->s;
    double left[MOST_DEVICES], next = INFINITY;
    for (int32_t d = 0; d < q->n_devices; d++)
        left[d] = 1;
    for (int32_t k = 0; k < q->n;) {
        int32_t first = s->by_priority[k];
        uint32_t calls = 0;
        for (; k < q->n
               && s->p->call[s->by_priority[k]].priority
                      == s->p->call[first].priority;
             k++) {
            int32_t c = s->by_priority[k];
            double at = 0;
            q->rate[c] = 0;
            if (can_begin(q, c, &at))
                calls |= 1u << c;
            else if (at > q->now && at < next)
                next = at;
        }
        uint32_t any = 0;
        for (uint32_t m = calls; m; m &= m - 1)
            if (q->o[__builtin_ctz(m)]->any_device)
                any |= m & -m;
        for (uint32_t m = calls & ~any, now; m; m &= ~now) {
            now = s->p->one_by_one ? m & -m : m;
            wait_in_gangs(q, now, left);
            share(q, now, left);
        }
        if (any)
            share(q, any, left);
    }
    return next;
}

/* ---- Going on ------------------------------------------------------------ */

/* When a call's rate may have to change, from now on, by itself. */
static double next_of(const struct play *q, int32_t c)
{
    const struct weft_option *o = q->o[c];
    double rate = q->rate[c], grows, to = 1;
    if (rate <= 0)
        return INFINITY;
    for (int32_t k = WEFT_SEARCH_PARTS - 1; k >= 0; k--)
        if (o->came[k] > q->part[c] + tiny)
            to = o->came[k] < to ? o->came[k] : to;
    double s = (to - q->part[c]) / rate;
    double most = most_done(q, c, &grows);
    if (most < 1 && most > q->part[c] + tiny && rate > grows) {
        double meets = (most - q->part[c]) / (rate - grows);
        s = meets < s ? meets : s;
    }
    return s;
}

static void go_on(struct play *q, double s, double *trained)
{
    q->now += s;
    for (int32_t c = 0; c < q->n; c++)
        q->part[c] += s * q->rate[c];
    for (int32_t c = 0; c < q->n; c++)
        if (q->part[c] >= 1 - tiny) {
            q->part[c] = 0;
            q->ended[c] = q->now;
            if (c == q->s->timing)
                trained[q->done[c]] = q->now;
            q->done[c]++;
        }
}

double weft_search_play(const struct weft_search *s, const int32_t *choice)
{
    struct play q = {.s = s, .n = s->p->n_calls};
    double trained[ITERATIONS];
    for (int32_t c = 0; c < q.n; c++) {
        q.o[c] = weft_search_chosen(s, choice, c);
        q.move[c] = weft_search_move(s, choice, c);
    }
    for (int32_t c = 0; c < q.n; c++) {
        q.behind[c] = find_behind(&q, c);
        if (q.o[c]->gang) {
            q.beside[c] = find_beside(&q, c);
            q.after[c] = find_after(&q, c);
        }
    }
    find_devices(&q);
    for (int k = 0; k < MOST_EVENTS && q.done[s->timing] < ITERATIONS; k++) {
        double at = set_rates(&q), next = at - q.now;
        for (int32_t c = 0; c < q.n; c++) {
            double one = next_of(&q, c);
            next = one < next ? one : next;
        }
        weft_assert(next < INFINITY);
        go_on(&q, next, trained);
    }
    return q.done[s->timing] < ITERATIONS
             ? INFINITY
             : (trained[ITERATIONS - 1] - trained[ITERATIONS - 3]) / 2;
}
