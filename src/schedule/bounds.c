/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lower bounds. A head is the least start of an operation: the longest way to
 * it, and the work of its device that must be done before. What must come
 * before follows from arcs, series, and, under a capacity that lets k
 * micro-batches be in flight on a stage, from this: the taker of number i + k
 * waits for the giver of number i. Tails are heads of the reversed shop. With
 * both, each device alone gives a bound (Jackson's preemptive schedule).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "schedule/jobshop.h"

/* Ancestors are kept as bits up to so many operations (32 MiB). */
enum { MOST_BITS_OPS = 16384, REFUTE_STEPS = 500000000 };

int weft_jobshop_pair_init(struct weft_jobshop_pair *pair,
                           const struct weft_schedule_problem *problem,
                           struct weft_err *err)
{
    *pair = (struct weft_jobshop_pair){0};
    int rc = weft_jobshop_init(&pair->forward, problem, false, err);
    if (!rc)
        rc = weft_jobshop_init(&pair->back, problem, true, err);
    size_t n = (size_t) pair->forward.n_ops;
    if (!rc) {
        pair->head = weft_alloc(n, sizeof(double));
        pair->tail = weft_alloc(n, sizeof(double));
        pair->hold = weft_alloc(n, sizeof(double));
        if (!pair->head || !pair->tail || !pair->hold)
            rc = weft_err_nomem(err, "a schedule's bounds",
                                3 * n * sizeof(double));
        else
            weft_jobshop_holds(&pair->forward, pair->hold);
    }
    if (rc)
        weft_jobshop_pair_release(pair);
    return rc;
}

void weft_jobshop_pair_release(struct weft_jobshop_pair *pair)
{
    weft_jobshop_release(&pair->forward);
    weft_jobshop_release(&pair->back);
    weft_free(pair->head);
    weft_free(pair->tail);
    weft_free(pair->hold);
    *pair = (struct weft_jobshop_pair){0};
}

/* ---- Heads ------------------------------------------------------------- */

struct heads {
    const struct weft_jobshop *shop;
    double *head;       /* (n_ops) */
    int32_t *missing;   /* (n_ops) predecessors not yet seen */
    int32_t *queue;     /* (n_ops) topological order */
    int32_t *in_flight; /* (n_model_stages) most in flight; 0: no limit */
    uint64_t *ancestor; /* (n_ops, n_words), or NULL */
    size_t n_words;
    int32_t *seen; /* device_at: by rising head */
    int32_t *n_seen;
};

static bool heads_init(struct heads *h, const struct weft_jobshop *shop,
                       int effort, double *head)
{
    size_t n = (size_t) shop->n_ops;
    bool bits = effort > 0 && shop->n_ops <= MOST_BITS_OPS;
    *h = (struct heads){.shop = shop, .head = head};
    h->n_words = n / 64 + 1;
    h->missing = weft_alloc(n, sizeof(int32_t));
    h->queue = weft_alloc(n, sizeof(int32_t));
    h->in_flight = weft_alloc((size_t) shop->n_model_stages, sizeof(int32_t));
    h->seen = weft_alloc(n, sizeof(int32_t));
    h->n_seen = weft_alloc((size_t) shop->n_devices, sizeof(int32_t));
    if (bits)
        h->ancestor = weft_alloc(n * h->n_words, sizeof(uint64_t));
    return h->missing && h->queue && h->in_flight && h->seen && h->n_seen
        && (h->ancestor || !bits);
}

static void heads_release(struct heads *h)
{
    weft_free(h->missing);
    weft_free(h->queue);
    weft_free(h->in_flight);
    weft_free(h->seen);
    weft_free(h->n_seen);
    weft_free(h->ancestor);
}

/* Memory determines who waits for whom only where both series have a known
 * order. */
bool weft_jobshop_in_flight(const struct weft_jobshop *shop, double capacity,
                            int32_t *in_flight)
{
    for (int32_t u = 0; u < shop->n_model_stages; u++) {
        const struct weft_jobshop_model_stage *model_stage =
            &shop->model_stage[u];
        in_flight[u] = 0;
        if (capacity <= 0 || model_stage->most <= 0)
            continue;
        if (model_stage->most > capacity * (1 + WEFT_JOBSHOP_SLACK))
            return false;
        if (shop->series[model_stage->take].fixed
            && shop->series[model_stage->give].fixed && model_stage->equal)
            in_flight[u] = (int32_t) fmin(shop->series[model_stage->take].n,
                                          floor(capacity / model_stage->most
                                                * (1 + WEFT_JOBSHOP_SLACK)));
    }
    return true;
}

int weft_jobshop_neighbours(const struct weft_jobshop *shop,
                            const int32_t *in_flight, int32_t x, int32_t step,
                            int32_t out[2])
{
    const struct weft_jobshop_op *op = &shop->op[x];
    int n = 0;
    if (op->series < 0)
        return 0;
    const struct weft_jobshop_series *series = &shop->series[op->series];
    const struct weft_jobshop_model_stage *model_stage =
        &shop->model_stage[op->model_stage];
    int32_t i = op->place + step;
    if (series->fixed && i >= 0 && i < series->n)
        out[n++] = series->op[i];
    i = op->place + step * in_flight[op->model_stage];
    if (in_flight[op->model_stage] > 0 && i >= 0 && i < series->n
        && op->series == (step < 0 ? model_stage->take : model_stage->give))
        out[n++] =
            shop->series[step < 0 ? model_stage->give : model_stage->take]
                .op[i];
    return n;
}

static void sort_topologically(struct heads *h)
{
    const struct weft_jobshop *shop = h->shop;
    int32_t n = 0, next[2];
    for (int32_t x = 0; x < shop->n_ops; x++) {
        h->missing[x] = shop->pred_at[x + 1] - shop->pred_at[x]
                      + weft_jobshop_neighbours(shop, h->in_flight, x, -1,
                                                next);
        if (h->missing[x] == 0)
            h->queue[n++] = x;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t x = h->queue[i];
        for (int32_t k = shop->succ_at[x]; k < shop->succ_at[x + 1]; k++)
            if (--h->missing[shop->succ[k].op] == 0)
                h->queue[n++] = shop->succ[k].op;
        for (int k = weft_jobshop_neighbours(shop, h->in_flight, x, 1, next);
             k-- > 0;)
            if (--h->missing[next[k]] == 0)
                h->queue[n++] = next[k];
    }
    weft_assert(n == shop->n_ops);
}

static void inherit(struct heads *h, int32_t x, int32_t from)
{
    uint64_t *a = h->ancestor;
    if (!a)
        return;
    const uint64_t *b = a + (size_t) from * h->n_words;
    a += (size_t) x * h->n_words;
    for (size_t k = 0; k < h->n_words; k++)
        a[k] |= b[k];
    a[from / 64] |= UINT64_C(1) << (from % 64);
}

/* The earliest time at which the device can have done all work that must come
 * before x. */
static double work_before(const struct heads *h, int32_t x)
{
    const struct weft_jobshop *shop = h->shop;
    const struct weft_jobshop_op *op = shop->op;
    int32_t d = op[x].device;
    if (d < 0 || !h->ancestor)
        return 0;
    const uint64_t *a = h->ancestor + (size_t) x * h->n_words;
    const int32_t *seen = h->seen + shop->device_at[d];
    double end = 0;
    for (int32_t k = 0; k < h->n_seen[d]; k++) {
        int32_t y = seen[k];
        if (a[y / 64] >> (y % 64) & 1)
            end = fmax(end, h->head[y]) + op[y].time;
    }
    return end;
}

/* Keeps the device's operations sorted by head. */
static void see(struct heads *h, int32_t x)
{
    int32_t d = h->shop->op[x].device;
    if (d < 0)
        return;
    int32_t *seen = h->seen + h->shop->device_at[d], k = h->n_seen[d]++;
    for (; k > 0 && h->head[seen[k - 1]] > h->head[x]; k--)
        seen[k] = seen[k - 1];
    seen[k] = x;
}

/* Sets head[0] to INFINITY where a micro-batch does not fit the capacity. */
static bool compute_heads(const struct weft_jobshop *shop, double capacity,
                          int effort, double *head)
{
    struct heads h;
    bool done = heads_init(&h, shop, effort, head);
    if (done && !weft_jobshop_in_flight(shop, capacity, h.in_flight)) {
        head[0] = INFINITY;
    } else if (done) {
        sort_topologically(&h);
        for (int32_t i = 0; i < shop->n_ops; i++) {
            int32_t x = h.queue[i], before[2];
            head[x] = 0;
            for (int32_t k = shop->pred_at[x]; k < shop->pred_at[x + 1];
                 k++) {
                int32_t y = shop->pred[k].op;
                inherit(&h, x, y);
                head[x] = fmax(head[x], head[y] + shop->op[y].time
                                            + shop->pred[k].lag);
            }
            for (int k = weft_jobshop_neighbours(shop, h.in_flight, x, -1,
                                                 before);
                 k-- > 0;) {
                inherit(&h, x, before[k]);
                head[x] = fmax(head[x],
                               head[before[k]] + shop->op[before[k]].time);
            }
            head[x] = fmax(head[x], work_before(&h, x));
            see(&h, x);
        }
    }
    heads_release(&h);
    return done;
}

/* ---- One device -------------------------------------------------------- */

struct job {
    double head, left, tail;
    int32_t op;
};

static int by_head(const void *a, const void *b)
{
    const struct job *x = a, *y = b;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

/* heap: indices of jobs, the longest tail first. */
static void push(const struct job *job, int32_t *heap, int32_t *n, int32_t j)
{
    int32_t k = (*n)++;
    for (; k > 0 && job[heap[(k - 1) / 2]].tail < job[j].tail;
         k = (k - 1) / 2)
        heap[k] = heap[(k - 1) / 2];
    heap[k] = j;
}

static void pop(const struct job *job, int32_t *heap, int32_t *n)
{
    int32_t last = heap[--*n], k = 0;
    for (int32_t child = 1; child < *n; child = 2 * k + 1) {
        if (child + 1 < *n
            && job[heap[child + 1]].tail > job[heap[child]].tail)
            child++;
        if (job[heap[child]].tail <= job[last].tail)
            break;
        heap[k] = heap[child];
        k = child;
    }
    heap[k] = last;
}

/* Jackson's schedule: always runs the ready job with the longest tail, and
 * interrupts others for it. */
static double preemptive(struct job *job, int32_t n, int32_t *heap)
{
    double now = 0, bound = 0;
    int32_t n_heap = 0;
    qsort(job, (size_t) n, sizeof *job, by_head);
    for (int32_t i = 0; i < n || n_heap > 0;) {
        if (n_heap == 0)
            now = fmax(now, job[i].head);
        for (; i < n && job[i].head <= now; i++)
            push(job, heap, &n_heap, i);
        struct job *j = &job[heap[0]];
        double until = i < n ? job[i].head : INFINITY;
        double run = fmin(j->left, until - now);
        now += run;
        j->left -= run;
        if (j->left > 0 && now < until)
            j->left = 0; /* rounding */
        if (j->left > 0)
            continue;
        bound = fmax(bound, now + j->tail);
        pop(job, heap, &n_heap);
    }
    return bound;
}

/* ---- The bounds -------------------------------------------------------- */

static double chain_bound(const struct weft_jobshop_pair *pair)
{
    double bound = 0;
    for (int32_t x = 0; x < pair->forward.n_ops; x++)
        bound = fmax(bound, pair->head[x] + pair->forward.op[x].time
                                + pair->tail[x]);
    return bound;
}

static double device_bound(const struct weft_jobshop_pair *pair)
{
    const struct weft_jobshop *shop = &pair->forward;
    struct job *job = weft_alloc((size_t) shop->n_ops, sizeof *job);
    int32_t *heap = weft_alloc((size_t) shop->n_ops, sizeof *heap);
    double bound = job && heap ? 0 : -1;
    for (int32_t d = 0; d < shop->n_devices && bound >= 0; d++) {
        int32_t n = 0;
        for (int32_t x = 0; x < shop->n_ops; x++)
            if (shop->op[x].device == d && shop->op[x].time > 0)
                job[n++] = (struct job){pair->head[x], shop->op[x].time,
                                        pair->tail[x], x};
        bound = fmax(bound, preemptive(job, n, heap));
    }
    weft_free(job);
    weft_free(heap);
    return bound;
}

static double round_up(const struct weft_jobshop *shop, double bound)
{
    return shop->grain > 0
             ? ceil(bound / shop->grain * (1 - WEFT_JOBSHOP_SLACK))
                   * shop->grain
             : bound;
}

double weft_jobshop_bound(struct weft_jobshop_pair *pair, double capacity,
                          int effort, const char **argument)
{
    const char *what = "no micro-batch fits the capacity";
    if (!compute_heads(&pair->forward, capacity, effort, pair->head)
        || !compute_heads(&pair->back, capacity, effort, pair->tail))
        return -1;
    double bound = pair->head[0];
    if (bound < INFINITY) {
        double device = device_bound(pair);
        bound = chain_bound(pair);
        what = "longest chain of a micro-batch with what must precede it";
        if (device < 0)
            return -1;
        if (device > bound) {
            bound = device;
            what = "work of a device with heads and tails";
        }
        double memory = weft_jobshop_memory_bound(pair, capacity);
        if (memory > bound) {
            bound = memory;
            what = "time for which activations are held";
        }
        bound = round_up(&pair->forward, bound);
    }
    if (argument)
        *argument = what;
    return bound;
}

/* Bounds of a problem with this capacity; the peak is for schedules of at most
 * `makespan`, or of the bound where that is 0. */
static int bounds(const struct weft_schedule_problem *problem,
                  double capacity, double makespan, int effort,
                  struct weft_schedule_bound *out, struct weft_err *err)
{
    struct weft_jobshop_pair pair;
    struct weft_schedule_bound b;
    int rc = weft_jobshop_pair_init(&pair, problem, err);
    if (rc)
        return rc;
    b.makespan = weft_jobshop_bound(&pair, capacity, effort, &b.argument);
    if (effort > 1 && b.makespan >= 0)
        b.makespan = weft_jobshop_refute(&pair.forward, capacity, b.makespan,
                                         INFINITY, REFUTE_STEPS, &b.argument);
    makespan = makespan > 0 ? makespan : b.makespan;
    b.peak_activation = makespan < 0 || makespan == INFINITY
                          ? makespan
                          : weft_jobshop_peak_bound(&pair, makespan, effort);
    if (b.makespan < 0 || b.peak_activation < 0)
        rc = weft_err_nomem(err, "a schedule's bounds",
                            (size_t) pair.forward.n_ops * sizeof(double));
    else
        *out = b;
    weft_jobshop_pair_release(&pair);
    return rc;
}

int weft_schedule_bounds(const struct weft_schedule_problem *problem,
                         int effort, struct weft_schedule_bound *out,
                         struct weft_err *err)
{
    return bounds(problem, problem->capacity, 0, effort, out, err);
}

int weft_schedule_bounds_tradeoff(const struct weft_schedule_problem *problem,
                                  double makespan, double peak,
                                  struct weft_schedule_bound *out,
                                  struct weft_err *err)
{
    return bounds(problem, peak, makespan, 1, out, err);
}
