/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes before each task, as few edges as say it, and groups of tasks that
 * places other than their own need not tell apart.
 *
 * Tasks with positions of a device and chain, from one wait for all to the
 * next, are a segment: each comes before the next. So of several tasks of a
 * segment only the last is noted, and that only by the first task of a segment
 * that comes after it. A task of which only one task of its own place comes
 * directly before it is reached from elsewhere through that one alone: both
 * are of one group, unless it uses tiles of another place.
 *
 * Members of a gang (struct weft_rec_gang) begin together and end together:
 * what comes before one comes before each, and what one comes before, all do.
 * So they are one: what comes before them is noted at the first of them, who
 * stands for all where others come after. They are of one group, which gangs
 * of the same members may join.
 */
#include "plan/recording/reach.h"

#include <string.h>

#include "base/alloc.h"

enum { READS = 0 };

/* By a pair of segments: the last task of the one that a task of the other
 * was found to come after. */
struct pairs {
    struct pair {
        int32_t of, before, last; /* of: + 1; 0: empty */
    } * pair;
    size_t n, room; /* room: a power of two */
};

struct finder {
    struct weft_rec_reach *x;
    int64_t task;
    int64_t first, end; /* of the task's gang */
    int32_t *segment;   /* (n_tasks) its first task */
    int32_t *mark;      /* (n_tasks) a segment's entry in `found` + 1 */
    int32_t *found;     /* (n_found) what comes before the task */
    int64_t n_found, found_room;
    struct pairs pairs;
    /* (n_samples) the samples' earliest tasks, and what these read */
    int32_t *sample;
    int64_t n_samples, sample_room;
    int64_t after_samples; /* the latest one that is after them; -1: none */
    int64_t *last; /* (n_devices, WEFT_N_CHAINS) latest with a position */
    int64_t all;   /* tasks that a wait for all has ended */
    struct weft_rec_over over;
    int64_t kept_room, over_room;
    bool full;
};

/* Adds a number to a list. */
static void append(struct finder *f, int32_t **list, int64_t *n,
                   int64_t *room, int64_t number)
{
    if (*n == *room) {
        int64_t more = *room * 2 + 1024;
        int32_t *larger = weft_realloc(*list, (size_t) more, sizeof *larger);
        f->full = f->full || !larger;
        if (!larger)
            return;
        *list = larger;
        *room = more;
    }
    (*list)[(*n)++] = (int32_t) number;
}

/* ---- Pairs of segments ------------------------------------------------- */

static struct pair *slot_of(const struct pairs *p, int32_t of, int32_t before)
{
    uint64_t key = (uint64_t) (uint32_t) of << 32 | (uint32_t) before;
    size_t i = (size_t) (key * 0x9e3779b97f4a7c15u >> 20) & (p->room - 1);
    while (p->pair[i].of
           && (p->pair[i].of != of || p->pair[i].before != before))
        i = (i + 1) & (p->room - 1);
    return &p->pair[i];
}

static bool pairs_grow(struct pairs *p)
{
    struct pairs larger = {.n = p->n, .room = p->room ? p->room * 2 : 1024};
    larger.pair = weft_alloc(larger.room, sizeof *larger.pair);
    for (size_t i = 0; i < p->room && larger.pair; i++)
        if (p->pair[i].of)
            *slot_of(&larger, p->pair[i].of, p->pair[i].before) = p->pair[i];
    if (!larger.pair)
        return false;
    weft_free(p->pair);
    *p = larger;
    return true;
}

/* Whether a task of segment `of` was noted to come after this task or a later
 * one of its segment; if not, it is now. */
static bool is_known(struct finder *f, int32_t of, int32_t before)
{
    struct pairs *p = &f->pairs;
    if (2 * p->n >= p->room && !pairs_grow(p)) {
        f->full = true;
        return false;
    }
    struct pair *at = slot_of(p, of + 1, f->segment[before]);
    if (at->of && at->last >= before)
        return true;
    p->n += !at->of;
    *at = (struct pair){of + 1, f->segment[before], before};
    return false;
}

/* ---- What comes before a task ------------------------------------------ */

static void add_one(struct finder *f, int64_t before)
{
    int32_t *mark = &f->mark[f->segment[before]];
    if (*mark == 0) {
        append(f, &f->found, &f->n_found, &f->found_room, before);
        *mark = (int32_t) f->n_found;
    } else if (f->found[*mark - 1] < before) {
        f->found[*mark - 1] = (int32_t) before;
    }
}

static void add_before(struct finder *f, int64_t before)
{
    if (before < f->first)
        add_one(f, before - f->x->r->task[before].member);
}

static void find(void *ctx, int64_t before)
{
    struct finder *f = ctx;
    const struct weft_rec_task *t = &f->x->r->task[f->task];
    const struct weft_rec_task *b = &f->x->r->task[before];
    if (t->when != WEFT_REC_EARLIEST || weft_rec_is_early(b->when)
        || t->iteration != b->iteration)
        add_before(f, before);
    else
        append(f, &f->sample, &f->n_samples, &f->sample_room, before);
}

/* Adds the samples' tasks of its iteration before a task that is after all of
 * them. */
static void find_samples(struct finder *f)
{
    const struct weft_rec_task *t = &f->x->r->task[f->task];
    if (t->when == WEFT_REC_EARLIEST || t->when == WEFT_REC_SAMPLE)
        append(f, &f->sample, &f->n_samples, &f->sample_room, f->task);
    if (t->when != WEFT_REC_AFTER_SAMPLES)
        return;
    int64_t last = f->after_samples;
    f->after_samples = f->task;
    if (last >= 0 && f->x->r->task[last].iteration == t->iteration) {
        add_before(f, last);
        return;
    }
    for (int64_t i = 0; i < f->n_samples; i++)
        if (f->x->r->task[f->sample[i]].iteration == t->iteration)
            add_before(f, f->sample[i]);
}

/* Puts a task into its segment, if it has a position. */
static void find_turn(struct finder *f, int64_t task)
{
    const struct weft_recording *r = f->x->r;
    const struct weft_rec_task *t = &r->task[task];
    f->segment[task] = (int32_t) task;
    if (!weft_rec_reach_is_strict(t))
        return;
    int64_t *last = &f->last[t->device * WEFT_N_CHAINS + t->chain];
    if (*last >= f->all) {
        /* positions begin again only after a wait for all */
        weft_assert(r->task[*last].position < t->position);
        f->segment[task] = f->segment[*last];
        add_before(f, *last);
    }
    *last = task;
}

/* Notes what was found and does not follow. */
static void keep_edges(struct finder *f)
{
    struct weft_rec_reach *x = f->x;
    bool strict = weft_rec_reach_is_strict(&x->r->task[f->first]);
    int32_t own = f->segment[f->first];
    for (int64_t i = 0; i < f->n_found; i++) {
        int32_t before = f->found[i], segment = f->segment[before];
        if (!strict || segment == own || !is_known(f, own, before))
            append(f, &x->before, &x->n_before, &x->before_room, before);
    }
}

static void forget_found(struct finder *f)
{
    for (int64_t i = 0; i < f->n_found; i++)
        f->mark[f->segment[f->found[i]]] = 0;
    f->n_found = 0;
}

/* ---- Groups ------------------------------------------------------------ */

/* Whether all that it uses is at its place. */
static bool stays(const struct weft_recording *r, int64_t task)
{
    const struct weft_rec_task *t = &r->task[task];
    int64_t a = t->access, end = a + t->n_access;
    while (a < end && r->tile[r->access[a].tile].place == t->place)
        a++;
    return t->kind == WEFT_REC_TASK && a == end;
}

/* Whether a task or gang has as many members as another, at the same places
 * in the same order, and uses no others. */
static bool is_alike(const struct weft_recording *r, int64_t a, int64_t b)
{
    int64_t n = r->task[a].n_members;
    bool same = n == r->task[b].n_members;
    for (int64_t i = 0; i < (n ? n : 1) && same; i++)
        same = r->task[a + i].place == r->task[b + i].place
            && stays(r, a + i);
    return same;
}

/* The group of the only task or gang that comes directly before it, if it has
 * no other wait behind it; -1: none. */
static int32_t group_of(const struct finder *f, int32_t all, int32_t local)
{
    const struct weft_rec_reach *x = f->x;
    int64_t first = x->first[f->first];
    if (x->n_before != first + 1)
        return -1;
    int32_t before = x->before[first], group = x->group[before];
    return all <= x->over[group][0]
                && (x->places_per_rank == 1 || local <= x->over[group][1])
                && is_alike(x->r, f->first, before)
             ? group
             : -1;
}

static void grow_over(struct finder *f)
{
    int64_t more = f->over_room * 2 + 1024;
    void *larger = weft_realloc(f->x->over, (size_t) more,
                                sizeof *f->x->over);
    f->full = f->full || !larger;
    if (!larger)
        return;
    f->x->over = larger;
    f->over_room = more;
}

static void join_group(struct finder *f)
{
    struct weft_rec_reach *x = f->x;
    bool early = weft_rec_is_early(x->r->task[f->first].when);
    int32_t all = early ? f->over.early : f->over.all;
    int32_t local = early ? f->over.early : f->over.local;
    int32_t group = group_of(f, all, local);
    if (group < 0) {
        group = (int32_t) x->n_groups;
        if (x->n_groups == f->over_room)
            grow_over(f);
        if (f->full)
            return;
        x->over[group][0] = all;
        x->over[group][1] = local;
        append(f, &x->head, &x->n_groups, &f->kept_room, f->first);
    }
    for (int64_t i = f->first; i < f->end; i++)
        x->group[i] = group;
}

/* ---- All --------------------------------------------------------------- */

/* Finds what comes before the members f->first .. f->end - 1. */
static void find_gang(struct finder *f)
{
    for (int64_t i = f->first; i < f->end; i++) {
        find_turn(f, i);
        weft_rec_order_visit(&f->x->order, i, find, f);
    }
    find_samples(f);
}

static void find_all(struct finder *f)
{
    struct weft_rec_reach *x = f->x;
    while (f->task < x->r->n_tasks && !f->full) {
        weft_rec_reach_pass(x, f->task, &f->over);
        if (f->over.end > f->all)
            f->all = f->over.end;
        weft_recording_members(x->r, f->task, &f->first, &f->end);
        find_gang(f);
        x->first[f->first] = x->n_before;
        keep_edges(f);
        join_group(f);
        while (++f->task < f->end)
            x->first[f->task] = x->n_before;
        forget_found(f);
    }
    x->first[x->r->n_tasks] = x->n_before;
}

/* Notes the groups of what comes before. */
static bool list_before(struct weft_rec_reach *x)
{
    x->before_group = weft_alloc((size_t) x->n_before,
                                 sizeof *x->before_group);
    for (int64_t i = 0; i < x->n_before && x->before_group; i++)
        x->before_group[i] = x->group[x->before[i]];
    return x->before_group;
}

int weft_rec_reach_find(struct weft_rec_reach *x, struct weft_err *err)
{
    size_t n = (size_t) x->r->n_tasks;
    size_t n_lanes = (size_t) x->n_devices * WEFT_N_CHAINS;
    struct finder f = {.x = x,
                       .segment = weft_alloc(n, sizeof *f.segment),
                       .mark = weft_alloc(n, sizeof *f.mark),
                       .last = weft_alloc(n_lanes, sizeof *f.last),
                       .after_samples = -1};
    f.full = !f.segment || !f.mark || !f.last;
    if (!f.full) {
        memset(f.last, 0xff, n_lanes * sizeof *f.last);
        find_all(&f);
        f.full = f.full || !list_before(x);
    }
    weft_free(f.segment);
    weft_free(f.mark);
    weft_free(f.found);
    weft_free(f.pairs.pair);
    weft_free(f.sample);
    weft_free(f.last);
    return f.full ? weft_err_nomem(err, "the order of tasks", n * 16) : 0;
}
