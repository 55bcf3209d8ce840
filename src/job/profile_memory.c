/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "job/profile_inside.h"

enum { LARGE = 64 << 20, SMALL = 4096, TIMES = 4, TURNS = 4, EMPTY = 2000 };

static int tiles_create(struct weft_profile_bench *b, size_t bytes, int32_t n,
                        struct weft_tile *out[], struct weft_err *err)
{
    const struct weft_tile_id id = {"profiled", "memory", 0, -1, -1, 0};
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = weft_tile_create(b->rt, &id, WEFT_MEM_SAMPLES, bytes, &out[i],
                              err);
    return rc;
}

/* TURNS copies on each of n devices at the same time. */
static int copies(struct weft_profile_bench *b, int32_t n, size_t bytes,
                  struct weft_tile *const tile[], double *rate_out,
                  struct weft_err *err)
{
    struct weft_span span = {0, 0};
    for (int32_t i = 0; i < TURNS * n; i++) {
        const struct weft_where where = {
            .device = i % n, .micro_batch = -1, .layer = -1, .span = &span};
        weft_insert_copy(b->seq, &where, tile[2 * (i % n)],
                         tile[2 * (i % n) + 1]);
    }
    int rc = weft_context_wait(b->seq, 0, err);
    *rate_out = 2.0 * (double) bytes * TURNS / (span.end_s - span.start_s);
    return rc;
}

static int size(struct weft_profile_bench *b, size_t bytes,
                struct weft_err *err)
{
    int32_t n = b->options->n_devices;
    struct weft_tile **tile = weft_alloc(2 * (size_t) n, sizeof *tile);
    double rate = 0;
    int rc = tile ? tiles_create(b, bytes, 2 * n, tile, err)
                  : weft_err_nomem(err, "tiles", (size_t) n * 16);
    if (!rc)
        rc = copies(b, n, bytes, tile, &rate, err); /* first use of pages */
    for (int32_t k = 1; k <= n && !rc; k++) {
        rc = copies(b, k, bytes, tile, &rate, err);
        if (bytes == LARGE)
            b->file->memory[b->file->n_memory++] = rate;
    }
    for (int32_t i = 0; tile && i < 2 * n; i++)
        weft_tile_release(tile[i]);
    weft_free(tile);
    return rc;
}

/* Tasks that do nothing, from insertion to the end of the last one. */
static int empty(struct weft_profile_bench *b, struct weft_err *err)
{
    struct weft_tile *tile = NULL;
    int rc = tiles_create(b, 64, 1, &tile, err);
    double start = weft_clock_s();
    for (int32_t i = 0; i < EMPTY && !rc; i++) {
        const struct weft_where where = {
            .device = 0, .micro_batch = -1, .layer = -1};
        weft_insert_open(b->seq, &where, NULL, 1, &tile);
    }
    rc = weft_context_wait(b->seq, rc, err);
    b->file->task_s = (weft_clock_s() - start) / EMPTY;
    weft_tile_release(tile);
    return rc;
}

int weft_profile_memory(struct weft_profile_bench *b, struct weft_err *err)
{
    int rc = 0;
    b->part_end_s = b->start_s + b->options->limit_s;
    for (size_t bytes = SMALL; bytes <= LARGE && !rc; bytes *= TIMES) {
        weft_profile_goes_on(b, "copies, bytes", (int64_t) bytes);
        rc = size(b, bytes, err);
    }
    weft_profile_goes_on(b, "empty tasks", EMPTY);
    return rc ? rc : empty(b, err);
}
