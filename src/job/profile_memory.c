/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "job/profile_inside.h"

enum {
    LARGE = 64 << 20,
    SMALL = 4096,
    TIMES = 4,
    TURNS = 4,
    ROUNDS = 3,
    EMPTY = 2000,
    MANY = 17
};

/* What copies go over: within each device's place, to and from host memory, and
 * to the place of the next device. */
enum way { WITHIN, TO_HOST, FROM_HOST, TO_NEXT };

/* The tiles that device i copies from and to. */
static int pair_create(struct weft_profile_bench *b, enum way way, int32_t i,
                       size_t bytes, struct weft_tile *out[2],
                       struct weft_err *err)
{
    struct weft_tile_id id = {"profiled", "memory", 0, -1, -1, 0};
    int32_t here = weft_rt_place_of(b->rt, i),
            host = weft_rt_host_place(b->rt, 0),
            next = weft_rt_place_of(b->rt, (i + 1) % b->n);
    id.place = way == FROM_HOST ? host : here;
    int rc = weft_tile_create(b->rt, &id, WEFT_MEM_ACTIVATIONS, bytes,
                              &out[0], err);
    id.place = way == TO_HOST ? host : way == TO_NEXT ? next : here;
    return rc ? rc
              : weft_tile_create(b->rt, &id, WEFT_MEM_ACTIVATIONS, bytes,
                                 &out[1], err);
}

/* TURNS copies of each device at the same time; bytes of each per second. */
static int copies(struct weft_profile_bench *b, size_t bytes,
                  struct weft_tile *const tile[], double *rate_out,
                  struct weft_err *err)
{
    struct weft_span span = {0, 0};
    for (int32_t i = 0; i < TURNS * b->n; i++) {
        const struct weft_where where = {.device = i % b->n,
                                         .micro_batch = -1,
                                         .layer = -1,
                                         .span = &span};
        weft_insert_copy(b->seq, &where, tile[2 * where.device],
                         tile[2 * where.device + 1]);
    }
    int rc = weft_context_wait(b->seq, 0, err);
    *rate_out = (double) bytes * TURNS / (span.end_s - span.start_s);
    return rc;
}

/* The last round's rate counts: in the first one pages are new. */
static int size(struct weft_profile_bench *b, enum way way, size_t bytes,
                double *rate_out, struct weft_err *err)
{
    struct weft_tile **tile = weft_alloc(2 * (size_t) b->n, sizeof *tile);
    int rc = tile ? 0 : weft_err_nomem(err, "tiles", (size_t) b->n * 16);
    for (int32_t i = 0; i < b->n && !rc; i++)
        rc = pair_create(b, way, i, bytes, &tile[2 * i], err);
    for (int32_t i = 0; i < ROUNDS && !rc; i++)
        rc = copies(b, bytes, tile, rate_out, err);
    for (int32_t i = 0; tile && i < 2 * b->n; i++)
        weft_tile_release(tile[i]);
    weft_free(tile);
    return rc;
}

/* Between GPUs and host memory, and from each GPU to the next. */
static int links(struct weft_profile_bench *b, struct weft_err *err)
{
    double down, up, next = 0;
    weft_profile_goes_on(b, "copies over links, bytes", LARGE);
    int rc = size(b, TO_HOST, LARGE, &down, err);
    if (!rc)
        rc = size(b, FROM_HOST, LARGE, &up, err);
    if (!rc && b->n > 1)
        rc = size(b, TO_NEXT, LARGE, &next, err);
    if (rc)
        return rc;
    b->file->host = up < down ? up : down;
    b->file->inside = next;
    return 0;
}

/* What tasks that do nothing take, each of which uses the first n of some
 * tiles: the program to insert one, the device from one to the next. They are
 * inserted behind copies that take longer than that, so that neither waits for
 * the other. */
static int turns(struct weft_profile_bench *b, int32_t n,
                 struct weft_tile *const tile[],
                 struct weft_tile *const pair[2], double *insert_out,
                 double *task_out, struct weft_err *err)
{
    struct weft_span span = {0, 0};
    struct weft_where where = {.device = 0, .micro_batch = -1, .layer = -1};
    for (int32_t i = 0; i < TURNS; i++)
        weft_insert_copy(b->seq, &where, pair[0], pair[1]);
    where.span = &span;
    double start = weft_clock_s();
    for (int32_t i = 0; i < EMPTY; i++)
        weft_insert_open(b->seq, &where, NULL, n, tile);
    *insert_out = (weft_clock_s() - start) / EMPTY;
    int rc = weft_context_wait(b->seq, 0, err);
    *task_out = (span.end_s - span.start_s) / EMPTY;
    return rc;
}

/* The least of some, as others wait for cores that are busy otherwise. */
static int least_turns(struct weft_profile_bench *b, int32_t n,
                       struct weft_tile *const tile[],
                       struct weft_tile *const pair[2], double *insert_out,
                       double *task_out, struct weft_err *err)
{
    double insert_s, task_s;
    int rc = turns(b, n, tile, pair, insert_out, task_out, err);
    for (int i = 1; i < TURNS && !rc; i++) {
        rc = turns(b, n, tile, pair, &insert_s, &task_s, err);
        *insert_out = insert_s < *insert_out ? insert_s : *insert_out;
        *task_out = task_s < *task_out ? task_s : *task_out;
    }
    return rc;
}

/* Seconds of each tile, where many and one were used; the rest, of none, is
 * left in *one. A busy machine may seem to take less for more. */
static double of_tiles(double many_s, double *one)
{
    double each_s = (many_s - *one) / (MANY - 1);
    if (!(each_s > 0))
        return 0;
    each_s = each_s < *one ? each_s : *one;
    *one -= each_s;
    return each_s;
}

static int empty(struct weft_profile_bench *b, struct weft_err *err)
{
    struct weft_tile_id id = {"profiled", "nothing", 0, -1, -1, 0};
    struct weft_tile *pair[2] = {NULL, NULL}, *tile[MANY] = {NULL};
    struct weft_costs_file *f = b->file;
    double insert_s, task_s;
    int rc = pair_create(b, WITHIN, 0, LARGE, pair, err);
    for (int32_t i = 0; i < MANY && !rc; i++)
        rc = weft_tile_create(b->rt, &id, WEFT_MEM_SAMPLES, 64, &tile[i],
                              err);
    /* the first time, pages are new */
    if (!rc)
        rc = turns(b, MANY, tile, pair, &insert_s, &task_s, err);
    if (!rc)
        rc = least_turns(b, MANY, tile, pair, &insert_s, &task_s, err);
    if (!rc)
        rc = least_turns(b, 1, tile, pair, &f->insert_s, &f->task_s, err);
    if (!rc) {
        f->insert_tile_s = of_tiles(insert_s, &f->insert_s);
        f->task_tile_s = of_tiles(task_s, &f->task_s);
    }
    for (int32_t i = 0; i < MANY; i++)
        weft_tile_release(tile[i]);
    for (int i = 0; i < 2; i++)
        weft_tile_release(pair[i]);
    return rc;
}

int weft_profile_memory(struct weft_profile_bench *b, struct weft_err *err)
{
    double rate = 0;
    int rc = 0;
    b->part_end_s = b->start_s + b->options->limit_s;
    for (size_t bytes = SMALL; bytes <= LARGE && !rc; bytes *= TIMES) {
        weft_profile_goes_on(b, "copies, bytes", (int64_t) bytes);
        rc = size(b, WITHIN, bytes, &rate, err);
    }
    b->file->memory = 2 * rate; /* a copy within a memory reads and writes */
    if (!rc && b->options->n_gpus > 0)
        rc = links(b, err);
    weft_profile_goes_on(b, "empty tasks", EMPTY);
    return rc ? rc : empty(b, err);
}
