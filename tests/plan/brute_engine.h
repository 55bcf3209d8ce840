/* SPDX-License-Identifier: Apache-2.0 */
/* A recording played as simply as can be: at every event all tasks are looked
 * at again. */
#ifndef WEFT_TEST_BRUTE_ENGINE_H
#define WEFT_TEST_BRUTE_ENGINE_H

#include "harness.h"
#include "plan/engine/engine.h"

enum { BRUTE_TASKS = 64, BRUTE_DEVICES = 8, BRUTE_LINKS = 8 };

struct brute {
    const struct weft_engine_job *job;
    const struct weft_recording *r;
    double now;
    int64_t at[BRUTE_DEVICES];      /* tasks that a rank has passed ... */
    int64_t wait[BRUTE_DEVICES];    /* ... and waits */
    double inserted[BRUTE_DEVICES]; /* when it has the next one; 0: not begun
                                     */
    double passed[BRUTE_TASKS + 1]; /* when all ranks had passed so many */
    bool begun[BRUTE_TASKS], ended[BRUTE_TASKS];
    double start[BRUTE_TASKS], end[BRUTE_TASKS]; /* of messages: end once
                                                    they are carried */
    int device[BRUTE_TASKS];
    double left[BRUTE_TASKS][WEFT_ENGINE_PATH]; /* bytes */
    struct weft_engine_message message[BRUTE_TASKS];
    int runs[BRUTE_DEVICES];    /* -1: nothing */
    int turn[BRUTE_DEVICES];    /* by rank: whose task ends later ... */
    double owed[BRUTE_DEVICES]; /* ... by so much, unless a device is idle */
    bool timed[BRUTE_DEVICES];  /* first of its gang */
};

static bool brute_uses(const struct weft_recording *r, int64_t task,
                       uint32_t tile, bool *writes)
{
    const struct weft_rec_task *t = &r->task[task];
    bool uses = false;
    *writes = false;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (r->access[a].tile == tile) {
            uses = true;
            *writes = *writes || r->access[a].mode != 0;
        }
    return uses;
}

static bool brute_conflict(const struct weft_recording *r, int64_t a,
                           int64_t b)
{
    for (uint32_t i = 0; i < (uint32_t) r->n_tiles; i++) {
        bool x, y;
        if (brute_uses(r, a, i, &x) && brute_uses(r, b, i, &y) && (x || y))
            return true;
    }
    return false;
}

static bool brute_of_rank(const struct brute *b, int64_t task, int rank)
{
    const struct weft_rec_task *t = &b->r->task[task];
    if (t->kind == WEFT_REC_TASK)
        return t->place / b->job->places_per_rank == rank;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (b->r->tile[b->r->access[a].tile].place / b->job->places_per_rank
            == rank)
            return true;
    return false;
}

static int brute_ranks(const struct brute *b)
{
    return b->job->n_places / b->job->places_per_rank;
}

static bool brute_is_over(const struct brute *b, int64_t wait, int rank)
{
    const struct weft_rec_wait *w = &b->r->wait[wait];
    int64_t last = -1;
    bool writes;
    for (int64_t i = 0; i < w->task; i++) {
        if (i < w->ended && (!w->local || brute_of_rank(b, i, rank))
            && !b->ended[i])
            return false;
        if (w->tile >= 0 && brute_uses(b->r, i, (uint32_t) w->tile, &writes)
            && writes)
            last = i;
    }
    return last < 0 || b->ended[last];
}

/* Whether a rank has inserted the next task, or has nothing to insert. */
static bool brute_has_inserted(struct brute *b, int k)
{
    int64_t task = b->at[k];
    double s = task < b->r->n_tasks && b->job->insert
                    && brute_of_rank(b, task, k)
                 ? b->job->insert(b->job->ctx, b->r, task)
                 : 0;
    if (s > 0 && b->inserted[k] <= 0) {
        b->inserted[k] = b->now + s;
        b->owed[k] += s;
    }
    return b->inserted[k] <= b->now;
}

static void brute_insert(struct brute *b)
{
    for (int k = 0; k < brute_ranks(b); k++)
        while (b->at[k] <= b->r->n_tasks) {
            while (b->wait[k] < b->r->n_waits
                   && b->r->wait[b->wait[k]].task <= b->at[k]
                   && brute_is_over(b, b->wait[k], k))
                b->wait[k]++;
            if ((b->wait[k] < b->r->n_waits
                 && b->r->wait[b->wait[k]].task <= b->at[k])
                || !brute_has_inserted(b, k))
                break;
            b->inserted[k] = 0;
            b->at[k]++;
        }
}

static bool brute_is_ready(const struct brute *b, int64_t task)
{
    const struct weft_rec_task *t = &b->r->task[task];
    if (b->begun[task])
        return false;
    for (int k = 0; k < brute_ranks(b); k++)
        if (brute_of_rank(b, task, k) && b->at[k] <= task)
            return false;
    for (int64_t i = 0; i < task; i++) {
        const struct weft_rec_task *u = &b->r->task[i];
        if (!b->ended[i] && i < task - t->member
            && brute_conflict(b->r, i, task))
            return false;
        if (t->position > 0 && u->position > 0 && u->device == t->device
            && u->chain == t->chain && u->kind == t->kind && !b->begun[i])
            return false;
    }
    return true;
}

/* Of a gang all members must be ready. */
static bool brute_gang_is_ready(const struct brute *b, int64_t task)
{
    int64_t first, end;
    bool ready = true;
    weft_recording_members(b->r, task, &first, &end);
    for (int64_t i = first; i < end; i++)
        ready = ready && brute_is_ready(b, i);
    return ready;
}

/* Whether a ready task x comes before y on a device. A gang's first member
 * speaks for all. */
static bool brute_before(const struct brute *b, int64_t x, int64_t y)
{
    const struct weft_rec_task *s = &b->r->task[x] - b->r->task[x].member;
    const struct weft_rec_task *t = &b->r->task[y] - b->r->task[y].member;
    if (s->priority != t->priority)
        return s->priority > t->priority;
    if ((s->position > 0) != (t->position > 0))
        return s->position > 0;
    return x < y;
}

static int64_t brute_first(const struct brute *b, int device)
{
    int64_t best = -1;
    for (int64_t i = 0; i < b->r->n_tasks; i++) {
        const struct weft_rec_task *t = &b->r->task[i];
        if (t->kind != WEFT_REC_TASK
            || (t->device >= 0 ? t->device != device
                               : t->place != b->job->place_of[device])
            || !brute_gang_is_ready(b, i))
            continue;
        if (best < 0 || brute_before(b, i, best))
            best = i;
    }
    return best;
}

static bool brute_begin_on(struct brute *b, int device)
{
    int64_t task = b->runs[device] < 0 ? brute_first(b, device) : -1;
    int64_t first, end;
    double longest = 0;
    if (task < 0)
        return false;
    weft_recording_members(b->r, task, &first, &end);
    for (int64_t i = first; i < end && end > first + 1; i++)
        if (b->runs[b->r->task[i].device] >= 0
            || brute_first(b, b->r->task[i].device) != i)
            return false;
    for (int64_t i = first; i < end; i++) {
        int d = end > first + 1 ? b->r->task[i].device : device;
        double s = b->job->seconds(b->job->ctx, b->r, i, d);
        longest = s > longest ? s : longest;
        b->device[i] = d;
    }
    for (int64_t i = first; i < end; i++) {
        b->begun[i] = true;
        b->start[i] = b->now;
        b->end[i] = b->now + longest;
        b->runs[b->device[i]] = (int) i;
        b->timed[b->device[i]] = i == first;
    }
    return true;
}

/* The rank of a message's sender, 0, or receiver, 1. */
static int brute_end(const struct brute *b, int64_t message, int end)
{
    const struct weft_rec_task *t = &b->r->task[message];
    return b->r->tile[b->r->access[t->access + end].tile].place
         / b->job->places_per_rank;
}

static void brute_settle(struct brute *b, int rank)
{
    int n = 0, idle = 0;
    for (int d = 0; d < b->job->n_devices; d++)
        if (b->job->place_of[d] / b->job->places_per_rank == rank) {
            idle += b->runs[d] < 0;
            n += b->runs[d] >= 0 && b->timed[d];
        }
    double s = b->owed[rank];
    b->owed[rank] = 0;
    if (!b->job->crowded || s <= 0 || idle > 0 || n == 0)
        return;
    int turn = b->turn[rank]++ % n;
    for (int d = 0; d < b->job->n_devices; d++)
        if (b->job->place_of[d] / b->job->places_per_rank == rank
            && b->timed[d] && turn-- == 0) {
            int64_t first, end;
            weft_recording_members(b->r, b->runs[d], &first, &end);
            for (int64_t i = first; i < end; i++)
                b->end[i] += s;
        }
}

static void brute_post(struct brute *b)
{
    for (int64_t i = 0; i < b->r->n_tasks; i++) {
        int kind = b->r->task[i].kind;
        if (kind == WEFT_REC_TASK || !brute_is_ready(b, i))
            continue;
        b->begun[i] = true;
        b->start[i] = b->now;
        b->device[i] = -1;
        b->end[i] = -1;
        if (kind == WEFT_REC_ANSWER) {
            b->end[i] = b->now + b->job->seconds(b->job->ctx, b->r, i, -1);
            continue;
        }
        b->job->message(b->job->ctx, b->r, i, &b->message[i]);
        b->owed[brute_end(b, i, 0)] += b->message[i].core_s;
        for (int k = 0; k < b->message[i].n_links; k++)
            b->left[i][k] = b->message[i].bytes;
        if (b->message[i].n_links == 0)
            b->end[i] = b->now + b->message[i].latency_s;
    }
}

static bool brute_on_link(const struct brute *b, int64_t i, int k)
{
    return b->begun[i] && !b->ended[i] && b->end[i] < 0
        && k < b->message[i].n_links && b->left[i][k] > 0;
}

/* Bytes per second of a message on its k-th link. */
static double brute_rate(const struct brute *b, int64_t i, int k)
{
    int link = b->message[i].link[k], n = 0;
    for (int64_t j = 0; j < b->r->n_tasks; j++)
        for (int m = 0; m < WEFT_ENGINE_PATH; m++)
            n += brute_on_link(b, j, m) && b->message[j].link[m] == link;
    return b->job->bytes_per_s[link] / n;
}

/* Goes on to the next event; false: there is none. */
static bool brute_go(struct brute *b)
{
    static double rate[BRUTE_TASKS][WEFT_ENGINE_PATH];
    double next = -1;
    int64_t n = b->r->n_tasks;
    for (int k = 0; k < brute_ranks(b); k++)
        if (b->inserted[k] > 0 && (next < 0 || b->inserted[k] < next))
            next = b->inserted[k];
    for (int64_t i = 0; i < n; i++) {
        if (b->begun[i] && !b->ended[i] && b->end[i] >= 0
            && (next < 0 || b->end[i] < next))
            next = b->end[i];
        for (int k = 0; k < WEFT_ENGINE_PATH; k++)
            if (brute_on_link(b, i, k)) {
                rate[i][k] = brute_rate(b, i, k);
                double t = b->now + b->left[i][k] / rate[i][k];
                next = next < 0 || t < next ? t : next;
            }
    }
    if (next < 0)
        return false;
    for (int64_t i = 0; i < n; i++) {
        bool carried = b->message[i].n_links > 0;
        for (int k = 0; k < WEFT_ENGINE_PATH; k++) {
            if (brute_on_link(b, i, k)) {
                b->left[i][k] -= (next - b->now) * rate[i][k];
                if (b->left[i][k] < 1e-6 * b->message[i].bytes)
                    b->left[i][k] = 0;
            }
            carried = carried
                   && (k >= b->message[i].n_links || b->left[i][k] == 0);
        }
        if (carried && b->begun[i] && b->end[i] < 0)
            b->end[i] = next + b->message[i].latency_s;
    }
    b->now = next;
    for (int64_t i = 0; i < n; i++)
        if (b->begun[i] && b->end[i] >= 0 && b->end[i] <= next
            && !b->ended[i]) {
            b->ended[i] = true;
            if (b->device[i] < 0 && b->r->task[i].kind != WEFT_REC_ANSWER
                && brute_end(b, i, 1) != brute_end(b, i, 0))
                b->owed[brute_end(b, i, 1)] += b->message[i].core_s;
            if (b->device[i] >= 0)
                b->runs[b->device[i]] = -1;
        }
    return true;
}

static void brute_play(struct brute *b)
{
    for (int d = 0; d < BRUTE_DEVICES; d++)
        b->runs[d] = -1;
    do {
        brute_insert(b);
        brute_post(b);
        for (bool any = true; any;) {
            any = false;
            for (int d = 0; d < b->job->n_devices; d++)
                any = brute_begin_on(b, d) || any;
        }
        for (int k = 0; k < brute_ranks(b); k++)
            brute_settle(b, k);
    } while (brute_go(b));
}

#endif
