/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what ran, and what was released, among what is recorded. */
#include <stdlib.h>

#include "base/alloc.h"
#include "plan/recording.h"

/* FNV-1a. */
uint32_t weft_rec_op_what(const char *op)
{
    uint32_t hash = 2166136261u;
    for (; *op; op++)
        hash = (hash ^ (unsigned char) *op) * 16777619u;
    return hash;
}

uint32_t weft_rec_tile_what(size_t bytes, int mem, int32_t place)
{
    uint64_t mixed = ((uint64_t) bytes ^ (uint64_t) mem << 56
                      ^ (uint64_t) place << 40)
                   * 0x9e3779b97f4a7c15u;
    return (uint32_t) (mixed >> 32);
}

/* Finds the tasks of one iteration. */
static bool follow_tasks(const struct weft_recording *r,
                         const struct weft_rec_ran *ran,
                         struct weft_rec_moments *moments)
{
    int64_t n = 0;
    int32_t now = 1;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        if (t->iteration != ran->iteration)
            continue;
        bool came = n < ran->n
                 && ran->moments[n].what
                        == weft_rec_ran_what(
                            weft_rec_op_what(weft_recording_op(r, i)),
                            t->call, t->layer);
        if (came)
            now = ran->moments[n].inserted;
        moments[i] = came ? ran->moments[n++]
                          : (struct weft_rec_moments){now, now, now, 0};
    }
    return ran->known && n == ran->n;
}

/* ---- Releases ---------------------------------------------------------- */

/* A tile that is released after so many recorded tasks. */
struct left {
    int64_t tasks;
    uint32_t turn;
    int32_t tile;
};

struct releases {
    struct left *recorded;          /* (n_recorded) in their order */
    struct weft_rec_release *noted; /* (n_noted) */
    int64_t n_recorded, n_noted;
};

static int by_tasks(const void *a, const void *b)
{
    const struct left *x = a, *y = b;
    if (x->tasks != y->tasks)
        return x->tasks < y->tasks ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

static int by_begin(const void *a, const void *b)
{
    const struct weft_rec_release *x = a, *y = b;
    return x->began < y->began ? -1 : x->began > y->began;
}

/* Those of a rank's tiles, and those of its iterations, in their order. */
static void list_releases(const struct weft_recording *r,
                          const struct weft_rec_ran *ran, int32_t n_ran,
                          struct releases *out)
{
    for (int32_t i = 0; i < (int32_t) r->n_tiles; i++) {
        const struct weft_rec_tile *t = &r->tile[i];
        if (t->whole < 0 && t->released >= 0 && t->place >= ran->first_place
            && t->place < ran->first_place + ran->n_places)
            out->recorded[out->n_recorded++] = (struct left){t->released,
                                                             t->turn, i};
    }
    for (int32_t k = 0; k < n_ran; k++)
        for (int64_t i = 0; i < ran[k].n_released; i++)
            out->noted[out->n_noted++] = ran[k].released[i];
    qsort(out->recorded, (size_t) out->n_recorded, sizeof *out->recorded,
          by_tasks);
    qsort(out->noted, (size_t) out->n_noted, sizeof *out->noted, by_begin);
}

/* Between two tasks of the rank, or after all, tiles are released in the same
 * order, among others. One that is not found was not noted. */
static void match(const struct weft_recording *r, const struct releases *x,
                  const int64_t recorded[2], const int64_t noted[2],
                  int32_t *released)
{
    int64_t from = noted[0];
    for (int64_t i = recorded[0]; i < recorded[1]; i++) {
        const struct weft_rec_tile *t = &r->tile[x->recorded[i].tile];
        uint32_t what = weft_rec_tile_what(t->bytes, t->mem, t->place);
        int64_t k = from;
        while (k < noted[1] && x->noted[k].what != what)
            k++;
        if (k == noted[1])
            continue;
        released[x->recorded[i].tile] = x->noted[k].ended;
        from = k + 1;
    }
}

static void match_all(const struct weft_recording *r,
                      const struct releases *x,
                      const struct weft_rec_moments *moments,
                      int32_t *released)
{
    int64_t recorded[2] = {0, 0}, noted[2] = {0, 0};
    for (int64_t task = 0; task <= r->n_tasks; task++) {
        bool is_last = task == r->n_tasks;
        if (!is_last && !moments[task].what)
            continue;
        while (recorded[1] < x->n_recorded
               && x->recorded[recorded[1]].tasks <= task)
            recorded[1]++;
        while (
            noted[1] < x->n_noted
            && (is_last || x->noted[noted[1]].began < moments[task].inserted))
            noted[1]++;
        match(r, x, recorded, noted, released);
        recorded[0] = recorded[1];
        noted[0] = noted[1];
    }
}

static int follow_releases(const struct weft_recording *r,
                           const struct weft_rec_ran *ran, int32_t n_ran,
                           struct weft_rec_played *out, struct weft_err *err)
{
    size_t n = 0;
    for (int32_t k = 0; k < n_ran; k++)
        n += (size_t) ran[k].n_released;
    struct releases x = {
        .recorded = weft_alloc((size_t) r->n_tiles, sizeof *x.recorded),
        .noted = weft_alloc(n, sizeof *x.noted)};
    int rc = x.recorded && x.noted
               ? 0
               : weft_err_nomem(err, "the order of releases",
                                (size_t) r->n_tiles * sizeof *x.recorded);
    if (!rc) {
        list_releases(r, ran, n_ran, &x);
        match_all(r, &x, out->moments, out->released);
    }
    weft_free(x.recorded);
    weft_free(x.noted);
    return rc;
}

int weft_recording_follow(const struct weft_recording *r,
                          const struct weft_rec_ran *ran, int32_t n_ran,
                          bool *known_out, struct weft_rec_played *out,
                          struct weft_err *err)
{
    size_t tasks = (size_t) r->n_tasks, tiles = (size_t) r->n_tiles;
    *known_out = true;
    *out = (struct weft_rec_played){
        .moments = weft_alloc(tasks, sizeof *out->moments),
        .released = weft_alloc(tiles, sizeof *out->released)};
    if (!out->moments || !out->released)
        return weft_err_nomem(err, "the order of tasks",
                              tasks * sizeof *out->moments);
    for (int32_t i = 0; i < n_ran; i++)
        *known_out = follow_tasks(r, &ran[i], out->moments) && *known_out;
    return *known_out ? follow_releases(r, ran, n_ran, out, err) : 0;
}

void weft_rec_played_release(struct weft_rec_played *played)
{
    weft_free(played->moments);
    weft_free(played->released);
    *played = (struct weft_rec_played){NULL, NULL};
}
