/* SPDX-License-Identifier: Apache-2.0 */
/* What a choice of options comes to: time by a list schedule (ReaL, algorithm
 * 1), memory, and what no other order can undercut. */
#include <math.h>

#include "plan/search/inside.h"

/* The period is the mean of the later half of so many iterations. */
enum { ITERATIONS = 8 };

bool weft_search_overlap(const struct weft_mesh *a, const struct weft_mesh *b)
{
    return a->node < b->node + b->n_nodes && b->node < a->node + a->n_nodes
        && a->device < b->device + b->n_devices
        && b->device < a->device + a->n_devices;
}

bool weft_search_alike(const struct weft_call_plan *a,
                       const struct weft_call_plan *b)
{
    return a->mesh.node == b->mesh.node && a->mesh.n_nodes == b->mesh.n_nodes
        && a->mesh.device == b->mesh.device
        && a->mesh.n_devices == b->mesh.n_devices && a->tp == b->tp
        && a->pp == b->pp && a->contiguous == b->contiguous
        && a->reversed == b->reversed;
}

double weft_search_way(const struct weft_search *s, int32_t role,
                       const struct weft_call_plan *from,
                       const struct weft_call_plan *to)
{
    return !s->p->move || weft_search_alike(from, to)
             ? 0
             : s->p->move(s->p->ctx, role, from, to);
}

double weft_search_move(const struct weft_search *s, const int32_t *choice,
                        int32_t call)
{
    const struct weft_search_problem *p = s->p;
    int32_t t = s->trainer[call];
    if (t < 0 || t == call)
        return 0;
    return weft_search_way(s, p->call[call].role,
                           &weft_search_chosen(s, choice, t)->plan,
                           &weft_search_chosen(s, choice, call)->plan);
}

/* ---- Time --------------------------------------------------------------- */

/* A call of an iteration, or the move of weights before it. */
struct job {
    double ready; /* once nothing is left that it waits for */
    double end;
    int32_t n_left; /* of what it waits for */
};

struct play {
    const struct weft_search *s;
    int32_t n, n_iterations;
    struct weft_search_jobs jobs;
    double free[2 * WEFT_MAX_CALLS]; /* when a job's devices are free */
    struct job job[ITERATIONS][2 * WEFT_MAX_CALLS];
    int32_t n_ready;
    struct {
        int16_t iteration, job;
    } ready[ITERATIONS * 2 * WEFT_MAX_CALLS];
};

static void make_ready(struct play *q, int32_t i, int32_t j)
{
    q->ready[q->n_ready].iteration = (int16_t) i;
    q->ready[q->n_ready++].job = (int16_t) j;
}

/* A job's devices: those of its mesh, and of a move's source. */
struct devices {
    const struct weft_mesh *mesh[2];
    int32_t n;
};

static bool meet(const struct devices *a, const struct devices *b)
{
    for (int32_t i = 0; i < a->n; i++)
        for (int32_t j = 0; j < b->n; j++)
            if (weft_search_overlap(a->mesh[i], b->mesh[j]))
                return true;
    return false;
}

void weft_search_jobs(const struct weft_search *s, const int32_t *choice,
                      struct weft_search_jobs *out)
{
    struct devices devices[2 * WEFT_MAX_CALLS];
    int32_t n = s->p->n_calls;
    for (int32_t c = 0; c < n; c++) {
        const struct weft_option *o = weft_search_chosen(s, choice, c);
        out->seconds[c] = o->seconds;
        out->seconds[n + c] = weft_search_move(s, choice, c);
        devices[c] = (struct devices){{&o->plan.mesh}, 1};
        devices[n + c] = devices[c];
        if (out->seconds[n + c] > 0)
            devices[n + c].mesh[devices[n + c].n++] =
                &weft_search_chosen(s, choice, s->trainer[c])->plan.mesh;
    }
    for (int32_t i = 0; i < 2 * n; i++) {
        out->meets[i] = 0;
        for (int32_t j = 0; j < 2 * n; j++)
            if (out->seconds[i] > 0 && out->seconds[j] > 0
                && meet(&devices[i], &devices[j]))
                out->meets[i] |= UINT64_C(1) << j;
    }
}

static void begin(const struct weft_search *s, const int32_t *choice,
                  int32_t n_iterations, struct play *q)
{
    const struct weft_search_problem *p = s->p;
    int32_t n = p->n_calls;
    q->s = s;
    q->n = n;
    q->n_iterations = n_iterations;
    q->n_ready = 0;
    weft_search_jobs(s, choice, &q->jobs);
    for (int32_t j = 0; j < 2 * n; j++)
        q->free[j] = 0;
    for (int32_t i = 0; i < n_iterations; i++) {
        for (int32_t c = 0; c < n; c++) {
            struct job *job = &q->job[i][c], *move = &q->job[i][n + c];
            bool moves = i > 0 && q->jobs.seconds[n + c] > 0;
            bool waits = i > 0 && s->trainer[c] >= 0;
            *job = (struct job){
                0, 0, __builtin_popcount(p->call[c].before) + waits};
            *move = (struct job){0, 0, moves};
            if (job->n_left == 0)
                make_ready(q, i, c);
        }
    }
}

/* Takes the job that was ready first; ties: the earlier iteration, the lower
 * number. False: all have run. */
static bool take(struct play *q, int32_t *i_out, int32_t *j_out)
{
    double first = INFINITY;
    int32_t at = -1;
    for (int32_t k = 0; k < q->n_ready; k++) {
        int32_t i = q->ready[k].iteration, j = q->ready[k].job;
        double ready = q->job[i][j].ready;
        if (ready < first
            || (ready <= first
                && (i < *i_out || (i == *i_out && j < *j_out)))) {
            first = ready;
            *i_out = i;
            *j_out = j;
            at = k;
        }
    }
    if (at >= 0)
        q->ready[at] = q->ready[--q->n_ready];
    return at >= 0;
}

static void tell(struct play *q, int32_t i, int32_t j, double end)
{
    struct job *job = &q->job[i][j];
    if (job->ready < end)
        job->ready = end;
    if (--job->n_left == 0)
        make_ready(q, i, j);
}

static void run(struct play *q, int32_t i, int32_t j)
{
    int32_t n = q->n;
    struct job *job = &q->job[i][j];
    double at = job->ready > q->free[j] ? job->ready : q->free[j];
    job->end = at + q->jobs.seconds[j];
    for (uint64_t m = q->jobs.meets[j]; m; m &= m - 1) {
        double *free = &q->free[__builtin_ctzll(m)];
        *free = job->end > *free ? job->end : *free;
    }
    if (j >= n) {
        tell(q, i, j - n, job->end);
        return;
    }
    for (int32_t c = 0; c < n; c++) {
        if (q->s->p->call[c].before >> j & 1)
            tell(q, i, c, job->end);
        if (q->s->trainer[c] == j && i + 1 < q->n_iterations)
            tell(q, i + 1, q->jobs.seconds[n + c] > 0 ? n + c : c, job->end);
    }
}

static void play(struct play *q)
{
    int32_t i = 0, j = 0;
    while (take(q, &i, &j))
        run(q, i, j);
}

static double period_of(const struct play *q)
{
    double end[ITERATIONS];
    for (int32_t i = 0; i < ITERATIONS; i++) {
        end[i] = i > 0 ? end[i - 1] : 0;
        for (int32_t c = 0; c < q->n; c++)
            end[i] = q->job[i][c].end > end[i] ? q->job[i][c].end : end[i];
    }
    return (end[ITERATIONS - 1] - end[ITERATIONS / 2 - 1]) / (ITERATIONS / 2);
}

/* ---- Devices ------------------------------------------------------------ */

static bool covers(const struct weft_mesh *mesh, int32_t node, int32_t device)
{
    return mesh->node <= node && node < mesh->node + mesh->n_nodes
        && mesh->device <= device && device < mesh->device + mesh->n_devices;
}

/* What the first n calls of `order` (NULL: their numbers) come to on one
 * device: seconds, if moves are given, and bytes. */
static double load_at(const struct weft_search *s, const int32_t *choice,
                      const double *move, int32_t node, int32_t device)
{
    double load = 0;
    for (int32_t c = 0; c < s->p->n_calls; c++) {
        const struct weft_option *o = weft_search_chosen(s, choice, c);
        bool here = covers(&o->plan.mesh, node, device);
        load += here ? o->seconds : 0;
        if (move[c] > 0
            && (here
                || covers(
                    &weft_search_chosen(s, choice, s->trainer[c])->plan.mesh,
                    node, device)))
            load += move[c];
    }
    return load;
}

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
        if (!covers(&o->plan.mesh, node, device))
            continue;
        here |= 1u << c;
        runs[c] = o->active;
        if (t >= 0 && t != c && (known >> t & 1)
            && !weft_search_alike(&weft_search_chosen(s, choice, t)->plan,
                                  &o->plan))
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
            if (!covers(a, a->node, b->device)
                || !covers(b, a->node, b->device))
                continue;
            double bytes = bytes_at(s, choice, order, n, a->node, b->device);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static double most_load(const struct weft_search *s, const int32_t *choice,
                        const double *move)
{
    double most = 0;
    for (int32_t i = 0; i < s->p->n_calls; i++) {
        for (int32_t j = 0; j < s->p->n_calls; j++) {
            const struct weft_mesh *a =
                &weft_search_chosen(s, choice, i)->plan.mesh;
            const struct weft_mesh *b =
                &weft_search_chosen(s, choice, j)->plan.mesh;
            double load = load_at(s, choice, move, a->node, b->device);
            most = load > most ? load : most;
        }
    }
    return most;
}

/* ---- The value ---------------------------------------------------------- */

static double longest_cycle(const struct weft_search *s,
                            const int32_t *choice, const double *move)
{
    double most = 0;
    for (int32_t k = 0; k < s->n_cycles; k++) {
        const struct weft_search_cycle *cycle = &s->cycle[k];
        double length = 0;
        for (uint32_t m = cycle->calls; m; m &= m - 1) {
            int32_t c = __builtin_ctz(m);
            length += weft_search_chosen(s, choice, c)->seconds;
            if (cycle->moves >> c & 1)
                length += move[c];
        }
        length /= cycle->height;
        most = length > most ? length : most;
    }
    return most;
}

struct weft_search_value weft_search_value(const struct weft_search *s,
                                           const int32_t *choice)
{
    struct play q;
    begin(s, choice, ITERATIONS, &q);
    play(&q);
    const double *move = q.jobs.seconds + q.n;
    double cycle = longest_cycle(s, choice, move);
    double load = most_load(s, choice, move);
    double period = period_of(&q);
    double bound = cycle > load ? cycle : load;
    return (struct weft_search_value){
        .period = period > bound ? period : bound,
        .bound = bound,
        .bytes = weft_search_bytes(s, choice, NULL, s->p->n_calls)};
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
