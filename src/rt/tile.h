/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles: the data of the task graph.
 *
 * A tile is a contiguous piece of memory that tasks read and write in
 * submission order. Permanent tiles (weights, optimizer state, KV) own their
 * memory from creation; temporary tiles get theirs when the first task writes
 * them and give it back after the last task that was inserted before
 * weft_tile_release(). All buffers are aligned to 64 bytes.
 *
 * Places. A tile lies at one place: the memory of a rank, which all its CPU
 * devices share (place = rank), or with options.place_per_device the memory of
 * one device (place = device), as for NUMA nodes. A GPU is a place of its own
 * (options.n_gpus); its tiles have its memory, but for those of classes that
 * lie in host memory (plan/task.h). Tasks use only
 * tiles at their device's place; weft_insert_copy() copies data between
 * places. All ranks create, copy and release the tiles of all ranks; in other
 * ranks than its own a tile has no memory and cannot be acquired.
 *
 * This header does not include StarPU's.
 */
#ifndef WEFT_RT_TILE_H
#define WEFT_RT_TILE_H

#include "base/err.h"
#include "plan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_rt;
struct weft_tile;

/* What the tile is, for messages and traces: "actor layer 3 block 1". */
struct weft_tile_id {
    const char *model; /* static, or outlives the tile; may be NULL */
    const char *kind;  /* likewise; "weights", "gradient", "activation" */
    int32_t version, layer, block; /* -1: none */
    int32_t place;
};

/* Creates a permanent tile of `bytes` (> 0), zeroed. Errors: WEFT_ENOMEM, also
 * beyond the runtime's memory limit; the text says which class, how much was
 * wanted and how much is left. */
int weft_tile_create(struct weft_rt *rt, const struct weft_tile_id *id,
                     enum weft_mem_class c, size_t bytes,
                     struct weft_tile **out, struct weft_err *err);

/* Reserves bytes of a place's memory for what is not in tiles: a permanent tile
 * that no task may use, and that counts as the others do. */
int weft_tile_reserve(struct weft_rt *rt, const struct weft_tile_id *id,
                      enum weft_mem_class c, size_t bytes,
                      struct weft_tile **out, struct weft_err *err);

/* Creates a temporary tile: its first access must be a write. */
int weft_tile_create_temp(struct weft_rt *rt, const struct weft_tile_id *id,
                          enum weft_mem_class c, size_t bytes,
                          struct weft_tile **out, struct weft_err *err);

/* Frees the tile when the tasks inserted so far that use it are done, without
 * waiting for them; the pointer is invalid at once. NULL is allowed. */
void weft_tile_release(struct weft_tile *tile);

/* Cuts a tile that no task has used yet into n parts, at the bytes at[0] < ...
 * < at[n - 2], which are multiples of 64. A part is a tile in the tile's
 * memory that tasks and copies can use alone; a task that uses the tile itself
 * uses all parts. n 1: the tile is in one piece again. Parts are valid until
 * the tile is cut again or released; they cannot be cut, and the caller must
 * not release them. Errors: WEFT_ENOMEM. See also weft_insert_cut(). */
int weft_tile_cut(struct weft_tile *tile, int n, const size_t at[],
                  struct weft_err *err);
int weft_tile_cut_like(struct weft_tile *tile, const struct weft_tile *like,
                       struct weft_err *err);
/* The number of parts, and part number i. A tile in one piece has one part,
 * the tile itself. */
int weft_tile_n_parts(const struct weft_tile *tile);
struct weft_tile *weft_tile_part(struct weft_tile *tile, int i);

size_t weft_tile_bytes(const struct weft_tile *tile);
int weft_tile_place(const struct weft_tile *tile);
bool weft_tile_is_here(const struct weft_tile *tile); /* in this process */
/* Whether it has a GPU's memory, or would have, where it is only recorded. */
bool weft_tile_on_card(const struct weft_tile *tile);

/* Notes which rows a batch will hold, for the costs of tasks that work on it;
 * copies of the tile hold the same. */
void weft_tile_set_rows(struct weft_tile *tile,
                        const struct weft_work_rows *rows);
struct weft_work_rows weft_tile_rows(const struct weft_tile *tile);

int weft_rt_n_places(const struct weft_rt *rt);
int weft_rt_place_of(const struct weft_rt *rt, int device);
int weft_rt_place_rank(const struct weft_rt *rt, int place);
bool weft_rt_is_gpu_place(const struct weft_rt *rt, int place);
/* The first place of a rank in host memory. */
int weft_rt_host_place(const struct weft_rt *rt, int rank);

enum weft_mode { WEFT_READ, WEFT_WRITE, WEFT_READ_WRITE };

/* Lets the program itself access the tile, in submission order with tasks;
 * waits for its turn. The pointer is valid until weft_tile_unacquire(). For
 * the room run only. */
void *weft_tile_acquire(struct weft_tile *tile, enum weft_mode mode);
void weft_tile_unacquire(struct weft_tile *tile);
/* The same for some of its bytes, from an offset on, which are copied; of a GPU's
 * tile in pieces, where weft_tile_acquire() has pinned memory for all of it. One
 * thread at a time. */
void weft_tile_read(struct weft_tile *tile, size_t offset, size_t bytes,
                    void *to);
void weft_tile_write(struct weft_tile *tile, size_t offset, size_t bytes,
                     const void *from);
/* For runtimes that only record: notes that the program waits here for the
 * tasks that write the tile, as it would to read it. */
void weft_tile_await(struct weft_tile *tile);

/* True when every task inserted so far that writes the tile has ended, so
 * that acquiring for reading would not wait. */
bool weft_tile_ready(struct weft_tile *tile);

/* Memory of a class at all places of this rank together: now, and the highest
 * sum since the start; the sums of the host's and of each GPU's memory are
 * added up, each at its highest. */
void weft_rt_memory(const struct weft_rt *rt, enum weft_mem_class c,
                    size_t *now_out, size_t *peak_out);
/* The highest memory of a class at each place of the job, peak_out (n_places).
 * Class WEFT_N_MEM_CLASSES stands for a place's total, without what a GPU's
 * place has in host memory. Collective. */
void weft_rt_memory_places(struct weft_rt *rt, enum weft_mem_class c,
                           size_t *peak_out);

#ifdef __cplusplus
}
#endif
#endif
