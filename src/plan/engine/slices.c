/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What places hold over time, in a bounded number of equal slices. How long it
 * takes is not known before it has ended: a slice is as short as can be at
 * first, and whenever the last one is over, each is joined with its
 * neighbour.
 */
#include "plan/engine/inside.h"

#include <math.h>
#include <string.h>

static int64_t *at(const struct weft_engine *e, int32_t place, int32_t i)
{
    return e->slice[(int64_t) place * e->job.n_slices + i];
}

static void note(const struct weft_engine *e, int32_t place, int64_t *slice)
{
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        slice[c] = weft_engine_counts(e, place, c) ? e->place[place].now[c]
                                                   : 0;
    slice[WEFT_MEM_ALL] = e->place[place].now[WEFT_MEM_ALL];
}

/* Those that the place has passed since its last change began and ended with
 * what it holds. */
int64_t *weft_engine_slice_of_now(struct weft_engine *e, int32_t place)
{
    struct weft_engine_place *p = &e->place[place];
    int32_t now = (int32_t) (e->now_s / e->slice_s);
    while (p->n_slices <= now)
        note(e, place, at(e, place, p->n_slices++));
    return at(e, place, now);
}

void weft_engine_slice_note(const struct weft_engine *e, int32_t place,
                            int64_t *slice)
{
    if (e->place[place].now[WEFT_MEM_ALL] > slice[WEFT_MEM_ALL])
        note(e, place, slice);
}

/* Of two slices the one with more in it; of the same, the first. One whose
 * neighbour has not begun has at least what is there until then. */
static void join(struct weft_engine *e, int32_t place)
{
    struct weft_engine_place *p = &e->place[place];
    for (int32_t i = 0; i < p->n_slices; i += 2) {
        const int64_t *first = at(e, place, i);
        bool second = i + 1 < p->n_slices
                   && at(e, place, i + 1)[WEFT_MEM_ALL] > first[WEFT_MEM_ALL];
        memmove(at(e, place, i / 2), at(e, place, i + second),
                sizeof *e->slice);
    }
    p->n_slices = (p->n_slices + 1) / 2;
}

void weft_engine_slice_widen(struct weft_engine *e)
{
    while (e->now_s >= e->slice_s * e->job.n_slices) {
        for (int32_t p = 0; p < e->job.n_places; p++)
            join(e, p);
        e->slice_s *= 2;
    }
}

int32_t weft_engine_slices(const struct weft_engine *e, double *s_out)
{
    *s_out = e->slice_s;
    return e->job.n_slices == 0
             ? 0
             : (int32_t) fmax(ceil(e->now_s / e->slice_s), 1);
}

void weft_engine_slice(const struct weft_engine *e, int32_t place, int32_t i,
                       int64_t out[WEFT_MEM_ALL + 1])
{
    if (i < e->place[place].n_slices)
        memcpy(out, at(e, place, i), sizeof *e->slice);
    else
        note(e, place, out);
}
