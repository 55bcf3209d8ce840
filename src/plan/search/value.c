/* SPDX-License-Identifier: Apache-2.0 */
/* What a choice of options comes to: time (play.c), memory, and what no order
 * of tasks can undercut. */
#include "plan/search/inside.h"

double weft_search_way(const struct weft_search *s, int32_t role,
                       const struct weft_call_plan *from,
                       const struct weft_call_plan *to)
{
    bool lies_there = weft_plan_lies_alike(from, to) && from->zero < 3;
    return !s->p->move || lies_there ? 0
                                     : s->p->move(s->p->ctx, role, from, to);
}

double weft_search_move(const struct weft_search *s, const int32_t *choice,
                        int32_t call)
{
    const struct weft_search_problem *p = s->p;
    int32_t t = s->trainer[call];
    if (t < 0 || t == call)
        return 0;
    int32_t role = p->call[call].role;
    return weft_search_way(
        s, role,
        weft_search_layout(s, t, weft_search_chosen(s, choice, t), role),
        &weft_search_chosen(s, choice, call)->plan);
}

/* ---- Devices ------------------------------------------------------------ */

static int32_t shared(int32_t a, int32_t n_a, int32_t b, int32_t n_b)
{
    return weft_min32(a + n_a, b + n_b) - weft_max32(a, b);
}

/* Devices that two meshes have in common. */
static int32_t n_shared(const struct weft_mesh *a, const struct weft_mesh *b)
{
    int32_t nodes = shared(a->node, a->n_nodes, b->node, b->n_nodes);
    int32_t devices = shared(a->device, a->n_devices, b->device,
                             b->n_devices);
    return nodes > 0 && devices > 0 ? nodes * devices : 0;
}

bool weft_search_covers(const struct weft_mesh *mesh, int32_t node,
                        int32_t device)
{
    return mesh->node <= node && node < mesh->node + mesh->n_nodes
        && mesh->device <= device && device < mesh->device + mesh->n_devices;
}

bool weft_search_overlap(const struct weft_mesh *a, const struct weft_mesh *b)
{
    return n_shared(a, b) > 0;
}

/* Seconds of work of a device, of a set of calls. */
static double load_at(const struct weft_search *s, const int32_t *choice,
                      uint32_t calls, int32_t node, int32_t device)
{
    int32_t kind = weft_search_kind(s, node);
    double load = 0;
    for (uint32_t m = calls; m; m &= m - 1) {
        const struct weft_option *o = weft_search_chosen(s, choice,
                                                         __builtin_ctz(m));
        if (weft_search_covers(&o->plan.mesh, node, device))
            load += weft_search_work(o, kind);
    }
    return load;
}

/* The same of a mesh's devices, in the mean. */
static double mean_load(const struct weft_search *s, const int32_t *choice,
                        uint32_t calls, const struct weft_mesh *mesh)
{
    double load = 0;
    for (uint32_t m = calls; m; m &= m - 1) {
        const struct weft_option *o = weft_search_chosen(s, choice,
                                                         __builtin_ctz(m));
        load += o->share * o->seconds * n_shared(&o->plan.mesh, mesh);
    }
    return load / weft_mesh_size(mesh);
}

/* Whether the frozen weights of a call with a trunk are beside those of another
 * call of it that lies alike: the one that trains, or one before it. Calls that
 * are not known yet may be such. */
static bool has_weights(const struct weft_search *s, const int32_t *choice,
                        uint32_t known, int32_t call)
{
    const struct weft_search_call *c = &s->p->call[call];
    const struct weft_option *o = weft_search_chosen(s, choice, call);
    for (int32_t i = 0; i < s->p->n_calls; i++) {
        const struct weft_search_call *other = &s->p->call[i];
        if (other->trunk != c->trunk || i == call
            || (!other->trains && i > call))
            continue;
        if (!(known >> i & 1)
            || weft_plan_lies_alike(
                weft_search_layout(s, i, weft_search_chosen(s, choice, i),
                                   other->role),
                &o->plan))
            return true;
    }
    return false;
}

/* Bytes of a device, of the first n calls of `order` (NULL: their numbers). */
static double bytes_at(const struct weft_search *s, const int32_t *choice,
                       const int32_t *order, int32_t n, int32_t node,
                       int32_t device)
{
    double held = 0, most = 0, runs[WEFT_MAX_CALLS];
    uint32_t known = 0, here = 0;
    for (int32_t k = 0; k < n; k++)
        known |= 1u << (order ? order[k] : k);
    for (int32_t k = 0; k < n; k++) {
        int32_t c = order ? order[k] : k, t = s->trainer[c];
        const struct weft_option *o = weft_search_chosen(s, choice, c);
        const struct weft_call_plan *from = NULL;
        if (!weft_search_covers(&o->plan.mesh, node, device))
            continue;
        if (t >= 0 && t != c && (known >> t & 1))
            from = weft_search_layout(s, t, weft_search_chosen(s, choice, t),
                                      s->p->call[c].role);
        here |= 1u << c;
        runs[c] = o->active;
        if (s->p->call[c].trunk > 0 && !s->p->call[c].trains
            && !(from && from->zero >= 3))
            held += has_weights(s, choice, known, c) ? 0 : o->weights;
        else if (from
                 && (from->zero >= 3
                     || !weft_plan_lies_alike(from, &o->plan)))
            runs[c] += o->weights;
        held += o->held;
        most = runs[c] > most ? runs[c] : most;
    }
    for (int32_t i = 0; i < s->p->n_together; i++) {
        double all = 0;
        for (uint32_t m = s->p->together[i] & here; m; m &= m - 1)
            all += runs[__builtin_ctz(m)];
        most = all > most ? all : most;
    }
    return held + most;
}

/* Where meshes overlap there is a device at the first node of one and the
 * first device of one: the most is at such a device. */
double weft_search_bytes(const struct weft_search *s, const int32_t *choice,
                         const int32_t *order, int32_t n)
{
    double most = 0;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < n; j++) {
            const struct weft_mesh *a = &weft_search_chosen(
                                             s, choice, order ? order[i] : i)
                                             ->plan.mesh;
            const struct weft_mesh *b = &weft_search_chosen(
                                             s, choice, order ? order[j] : j)
                                             ->plan.mesh;
            if (!weft_search_covers(a, a->node, b->device)
                || !weft_search_covers(b, a->node, b->device))
                continue;
            double bytes = bytes_at(s, choice, order, n, a->node, b->device);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static const struct weft_mesh *mesh_of(const struct weft_search *s,
                                       const int32_t *choice, int32_t call)
{
    return &weft_search_chosen(s, choice, call)->plan.mesh;
}

/* The most work of a device, of a set of calls. Where samples move, or any
 * device takes micro-batches, it can be on any device of the call: then one of
 * these has no less than the mean of what they all have, which is what stays
 * there, and all of what is done on no other device. */
static double most_load(const struct weft_search *s, const int32_t *choice,
                        uint32_t calls)
{
    uint32_t stay = calls & ~s->moving;
    double most = 0;
    for (uint32_t m = stay; m; m &= m - 1)
        if (weft_search_chosen(s, choice, __builtin_ctz(m))->any_device)
            stay &= ~(m & -m);
    for (uint32_t i = stay; i; i &= i - 1) {
        for (uint32_t j = stay; j; j &= j - 1) {
            double load = load_at(
                s, choice, stay, mesh_of(s, choice, __builtin_ctz(i))->node,
                mesh_of(s, choice, __builtin_ctz(j))->device);
            most = load > most ? load : most;
        }
    }
    for (uint32_t m = calls & ~stay; m; m &= m - 1) {
        const struct weft_mesh *mesh = mesh_of(s, choice, __builtin_ctz(m));
        uint32_t inside = stay;
        for (uint32_t k = calls & ~stay; k; k &= k - 1) {
            const struct weft_mesh *own = mesh_of(s, choice,
                                                  __builtin_ctz(k));
            if (n_shared(own, mesh) == weft_mesh_size(own))
                inside |= k & -k;
        }
        double load = mean_load(s, choice, inside, mesh);
        most = load > most ? load : most;
    }
    return most;
}

/* ---- The value ---------------------------------------------------------- */

static double longest_cycle(const struct weft_search *s,
                            const int32_t *choice)
{
    double most = 0, move[WEFT_MAX_CALLS];
    for (int32_t c = 0; c < s->p->n_calls; c++)
        move[c] = weft_search_move(s, choice, c);
    for (int32_t k = 0; k < s->n_cycles; k++) {
        const struct weft_search_cycle *cycle = &s->cycle[k];
        double length = 0;
        for (uint32_t m = cycle->calls; m; m &= m - 1) {
            int32_t c = __builtin_ctz(m);
            length += weft_search_length(cycle, c,
                                         weft_search_chosen(s, choice, c));
        }
        for (uint32_t m = cycle->moves; m; m &= m - 1)
            length += move[__builtin_ctz(m)];
        if (cycle->work)
            length += most_load(s, choice, cycle->work);
        length /= cycle->height;
        most = length > most ? length : most;
    }
    return most;
}

double weft_search_bound(const struct weft_search *s, const int32_t *choice)
{
    uint32_t all = (uint32_t) ((1ull << s->p->n_calls) - 1);
    double cycle = longest_cycle(s, choice);
    double load = most_load(s, choice, all);
    return cycle > load ? cycle : load;
}

struct weft_search_value weft_search_unplayed(const struct weft_search *s,
                                              const int32_t *choice)
{
    double bound = weft_search_bound(s, choice);
    return (struct weft_search_value){
        .period = bound,
        .bound = bound,
        .bytes = weft_search_bytes(s, choice, NULL, s->p->n_calls)};
}

void weft_search_set_period(const struct weft_search *s,
                            const int32_t *choice,
                            struct weft_search_value *v)
{
    double period = s->moving ? 0 : weft_search_play(s, choice);
    v->period = period > v->bound ? period : v->bound;
}

struct weft_search_value weft_search_value(const struct weft_search *s,
                                           const int32_t *choice)
{
    struct weft_search_value v = weft_search_unplayed(s, choice);
    weft_search_set_period(s, choice, &v);
    return v;
}

bool weft_search_better(const struct weft_search *s,
                        const struct weft_search_value *a,
                        const struct weft_search_value *b)
{
    bool fits = a->bytes <= s->p->device_bytes;
    if (fits != (b->bytes <= s->p->device_bytes))
        return fits;
    return fits ? a->period < b->period : a->bytes < b->bytes;
}
