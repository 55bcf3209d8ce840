/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording/apart.h"

#include <string.h>

#include "base/alloc.h"

enum { WAITS = 0 };

/* Instructions of the same members that are looked at for one that is before
 * another. */
enum { NEAR = 64 };

static bool same_members(const struct weft_recording *r, int64_t a, int64_t b)
{
    const struct weft_rec_task *x = &r->task[a], *y = &r->task[b];
    bool same = x->n_members == y->n_members && x->member == y->member;
    for (int64_t i = 0; i < x->n_members && same; i++)
        same = r->task[a - x->member + i].place
                == r->task[b - y->member + i].place
            && r->task[a - x->member + i].device
                   == r->task[b - y->member + i].device;
    return same;
}

/* Whether task a has ended before b begins, as far as lanes say. */
static bool is_before(const struct weft_rec_reach *x, int64_t a, int64_t b)
{
    int32_t lane = weft_rec_reach_lane(x, a);
    return lane >= 0
        && weft_rec_reach_has(x, a)[lane] <= weft_rec_reach_has(x, b)[lane];
}

/* Whether some members of a gang wait for no other in it. */
static bool is_ahead(const struct weft_recording *r, int64_t task)
{
    const struct weft_rec_gang *gang = weft_recording_gang_of(r, task);
    return gang && gang->ahead;
}

/* Notes task k here before task i if it is an instruction of the same members;
 * returns whether all members wait for one another in it. */
static bool note_before(struct weft_rec_apart *p, const int32_t *here,
                        int64_t k, int64_t i)
{
    const struct weft_recording *r = p->reach->r;
    if (!r->task[here[k]].n_members || !same_members(r, here[k], here[i])
        || !is_before(p->reach, here[k], here[i]))
        return false;
    if (p->after[k] < 0 && !is_ahead(r, here[i]))
        p->after[k] = (int32_t) i;
    if (is_ahead(r, here[k]))
        return false;
    p->before[i] = (int32_t) k;
    return true;
}

/* Puts task i here behind the latest instruction of the same members. set (n):
 * the latest of each so far. Returns n. */
static int64_t follow_same(struct weft_rec_apart *p, const int32_t *here,
                           int64_t i, int32_t *set, int64_t n)
{
    int64_t k = 0;
    while (k < n && !same_members(p->reach->r, here[set[k]], here[i]))
        k++;
    p->same[i] = k < n ? set[k] : -1;
    set[k] = (int32_t) i;
    return k < n ? n : n + 1;
}

/* Finds the latest instruction of the same members before task i here, or else
 * the latest one in its lane: micro-batches of other calls can be between. */
static void find_before(struct weft_rec_apart *p, const int32_t *here,
                        int64_t i, int32_t in_lane)
{
    int32_t k = p->same[i];
    for (int n = 0; k >= 0 && n < NEAR && !note_before(p, here, k, i); n++)
        k = p->same[k];
    if (p->before[i] < 0 && in_lane >= 0)
        (void) note_before(p, here, in_lane, i);
}

/* The first task of the same device that is known to come after task i here,
 * which is a gang's that stands for itself alone: the bodies of its members end
 * together, and a device ends one task before it begins the next. */
static int32_t next_at_device(const struct weft_rec_apart *p,
                              const int32_t *here, int64_t n, int64_t i)
{
    const struct weft_rec_task *task = p->reach->r->task;
    int64_t end = p->after[i] < 0 ? n : p->after[i], k = i + 1;
    while (k < end
           && (task[here[k]].device != task[here[i]].device
               || !is_before(p->reach, here[i], here[k])))
        k++;
    return k < n ? (int32_t) k : -1;
}

/* last (2, n_lanes): room for the latest task of each lane, and the latest of a
 * gang. set (n): for follow_same(). */
static void find_all(struct weft_rec_apart *p, const int32_t *here, int64_t n,
                     int32_t *last, int32_t *set)
{
    const struct weft_rec_reach *x = p->reach;
    int32_t *gang = last + x->n_lanes;
    int64_t n_sets = 0;
    memset(last, 0xff, 2 * (size_t) x->n_lanes * sizeof *last);
    for (int64_t i = 0; i < n; i++) {
        const struct weft_rec_task *t = &x->r->task[here[i]];
        int32_t lane = weft_rec_reach_lane(x, here[i]);
        if (t->n_members) {
            n_sets = follow_same(p, here, i, set, n_sets);
            find_before(p, here, i, lane >= 0 ? gang[lane] : -1);
        }
        if (lane >= 0 && t->n_members)
            gang[lane] = (int32_t) i;
        if (lane < 0 || !weft_rec_reach_is_strict(t))
            continue;
        if (last[lane] >= 0)
            p->next[last[lane]] = (int32_t) i;
        last[lane] = (int32_t) i;
    }
    for (int64_t i = 0; i < n; i++) {
        const struct weft_rec_task *t = &x->r->task[here[i]];
        const struct weft_rec_gang *g = weft_recording_gang_of(x->r, here[i]);
        bool alone = g && g->n_expanded == 1 && t->device >= 0;
        if (!weft_rec_reach_is_strict(t))
            p->next[i] = alone ? next_at_device(p, here, n, i) : p->after[i];
    }
}

int weft_rec_apart_look(struct weft_rec_apart *p,
                        const struct weft_rec_reach *reach,
                        struct weft_err *err)
{
    int64_t n;
    const int32_t *here = weft_rec_reach_here(reach, &n);
    size_t bytes = (size_t) n * sizeof *p->next;
    int32_t *last = weft_alloc(2 * (size_t) reach->n_lanes, sizeof *last);
    int32_t *set = weft_alloc((size_t) n, sizeof *set);
    *p = (struct weft_rec_apart){
        .reach = reach,
        .next = weft_alloc((size_t) n, sizeof *p->next),
        .same = weft_alloc((size_t) n, sizeof *p->same),
        .before = weft_alloc((size_t) n, sizeof *p->before),
        .after = weft_alloc((size_t) n, sizeof *p->after)};
    int rc = last && set && p->next && p->same && p->before && p->after
               ? 0
               : weft_err_nomem(err, "the order of tasks", 5 * bytes);
    if (!rc) {
        memset(p->next, 0xff, bytes);
        memset(p->before, 0xff, bytes);
        memset(p->after, 0xff, bytes);
        find_all(p, here, n, last, set);
    }
    weft_free(last);
    weft_free(set);
    return rc;
}

void weft_rec_apart_release(struct weft_rec_apart *p)
{
    weft_free(p->next);
    weft_free(p->same);
    weft_free(p->before);
    weft_free(p->after);
    *p = (struct weft_rec_apart){.reach = NULL};
}

void weft_rec_apart_has(const struct weft_rec_apart *p, int64_t task,
                        int begin, int32_t *out)
{
    const struct weft_rec_reach *x = p->reach;
    const int32_t *has = weft_rec_reach_has(x, task);
    int64_t n;
    const int32_t *here = weft_rec_reach_here(x, &n);
    int32_t before = p->before[x->number[task]];
    size_t bytes = (size_t) x->n_lanes * sizeof *out;
    if (begin == WEFT_REC_OWN)
        memcpy(out, has, bytes);
    else if (begin == WEFT_REC_COPIED && before >= 0)
        memcpy(out, weft_rec_reach_has(x, here[before]), bytes);
    else
        memset(out, 0, bytes);
    out[WAITS] = has[WAITS];
}

/* Raises numbers to the first tasks after the begin of task `after` here; or,
 * if there is none, to say only which wait `task` has ended before. */
static void raise(const struct weft_rec_reach *x, int64_t task, int32_t after,
                  int32_t *out)
{
    int64_t n;
    const int32_t *here = weft_rec_reach_here(x, &n);
    const int32_t *leads = weft_rec_reach_leads(x, after < 0 ? task
                                                             : here[after]);
    for (int32_t l = 0; l < x->n_lanes; l++) {
        int32_t first = after < 0 && l != WAITS ? WEFT_REC_NEVER : leads[l];
        out[l] = first > out[l] ? first : out[l];
    }
}

void weft_rec_apart_ends(const struct weft_rec_apart *p, int64_t task,
                         int end, int32_t *out)
{
    int32_t i = p->reach->number[task];
    if (end == WEFT_REC_SENT)
        i = p->after[i];
    raise(p->reach, task, i < 0 ? -1 : p->next[i], out);
}
