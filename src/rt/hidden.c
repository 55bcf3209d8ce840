/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a task's time ran while other devices did other calls. */
#include <stdlib.h>

#include "base/alloc.h"
#include "rt/internal.h"

static int compare_starts(const void *a, const void *b)
{
    const struct weft_span *x = a, *y = b;
    return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

double weft_span_covered(const struct weft_span *of, size_t n,
                         struct weft_span by[])
{
    double sum = 0, at = of->start_s;
    if (n > 0)
        qsort(by, n, sizeof *by, compare_starts);
    for (size_t i = 0; i < n; i++) {
        double from = by[i].start_s > at ? by[i].start_s : at;
        double to = by[i].end_s < of->end_s ? by[i].end_s : of->end_s;
        if (to <= from)
            continue;
        sum += to - from;
        at = to;
    }
    return sum;
}

/* What other devices ran; a growing array. */
struct others {
    struct weft_span *span;
    size_t n, capacity;
};

static void add(struct others *o, double start_us, double end_us)
{
    if (o->n == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 16;
        void *more = weft_realloc(o->span, capacity, sizeof *o->span);
        if (!more)
            return; /* then less counts as hidden */
        o->span = more;
        o->capacity = capacity;
    }
    o->span[o->n++] = (struct weft_span){start_us * 1e-6, end_us * 1e-6};
}

/* Whether a task hides one of `call` that restores. */
static bool hides(int other, bool restores, int32_t call)
{
    return !restores && other > 0 && other != call;
}

/* What a device ran after start_us. */
static void add_device(struct weft_worker *v, int64_t n_kept, double start_us,
                       double end_us, int32_t call, struct others *o)
{
    pthread_mutex_lock(&v->mutex);
    const struct weft_task *t = v->running;
    if (t && hides((int) t->where.call, t->where.restores, call))
        add(o, t->start_us, end_us);
    int64_t first = v->n_records > n_kept ? v->n_records - n_kept : 0;
    for (int64_t i = v->n_records - 1; i >= first && v->record; i--) {
        const struct weft_record *r = &v->record[i % n_kept];
        if (r->end_us <= start_us)
            break;
        if (hides(r->call, r->restores, call))
            add(o, r->start_us, r->end_us);
    }
    pthread_mutex_unlock(&v->mutex);
}

double weft_rt_hidden_s(struct weft_rt *rt, const struct weft_worker *w,
                        int32_t call, double start_us, double end_us)
{
    struct others o = {NULL, 0, 0};
    for (int d = 0; d < rt->n_devices; d++)
        if (&rt->worker[d] != w)
            add_device(&rt->worker[d], rt->n_records, start_us, end_us, call,
                       &o);
    double s = weft_span_covered(
        &(struct weft_span){start_us * 1e-6, end_us * 1e-6}, o.n, o.span);
    weft_free(o.span);
    return s;
}
