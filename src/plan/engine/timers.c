/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/engine/timers.h"

#include <string.h>

#include "base/alloc.h"

bool weft_timers_room(struct weft_timers *t, int32_t n)
{
    if (n <= t->room)
        return true;
    size_t room = (size_t) (n > 2 * t->room ? n : 2 * t->room);
    double *time = weft_realloc(t->time, room, sizeof *time);
    if (time)
        t->time = time;
    int32_t *at = weft_realloc(t->at, room, sizeof *at);
    if (at)
        t->at = at;
    int32_t *heap = weft_realloc(t->heap, room, sizeof *heap);
    if (heap)
        t->heap = heap;
    if (!time || !at || !heap)
        return false;
    memset(at + t->room, 0, (room - (size_t) t->room) * sizeof *at);
    t->room = (int32_t) room;
    return true;
}

void weft_timers_release(struct weft_timers *t)
{
    weft_free(t->time);
    weft_free(t->at);
    weft_free(t->heap);
    *t = (struct weft_timers){.time = NULL};
}

static bool is_before(const struct weft_timers *t, int32_t a, int32_t b)
{
    return t->time[a] != t->time[b] ? t->time[a] < t->time[b] : a < b;
}

static void put(struct weft_timers *t, int32_t where, int32_t number)
{
    t->heap[where] = number;
    t->at[number] = where + 1;
}

static void move_up(struct weft_timers *t, int32_t where, int32_t number)
{
    while (where > 0 && is_before(t, number, t->heap[(where - 1) / 2])) {
        put(t, where, t->heap[(where - 1) / 2]);
        where = (where - 1) / 2;
    }
    put(t, where, number);
}

static void move_down(struct weft_timers *t, int32_t where, int32_t number)
{
    for (;;) {
        int32_t child = 2 * where + 1;
        if (child + 1 < t->n
            && is_before(t, t->heap[child + 1], t->heap[child]))
            child++;
        if (child >= t->n || !is_before(t, t->heap[child], number))
            break;
        put(t, where, t->heap[child]);
        where = child;
    }
    put(t, where, number);
}

void weft_timers_set(struct weft_timers *t, int32_t number, double time)
{
    bool later = t->at[number] && time > t->time[number];
    t->time[number] = time;
    if (!t->at[number])
        move_up(t, t->n++, number);
    else if (later)
        move_down(t, t->at[number] - 1, number);
    else
        move_up(t, t->at[number] - 1, number);
}

void weft_timers_remove_first(struct weft_timers *t)
{
    t->at[t->heap[0]] = 0;
    if (--t->n > 0)
        move_down(t, 0, t->heap[t->n]);
}
