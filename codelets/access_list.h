/* SPDX-License-Identifier: Apache-2.0 */
/* The accesses of a task that is being put together; the task's body takes
 * their buffers in the same order. */
#ifndef WEFT_CODELETS_ACCESS_LIST_H
#define WEFT_CODELETS_ACCESS_LIST_H

#include "codelets/codelets.h"

struct weft_access_list {
    struct weft_access *access; /* inline_access, or an array on the heap */
    int n, capacity;
    struct weft_work work; /* all 0: only what the tiles say */
    struct weft_access inline_access[48];
};

void weft_access_list_init(struct weft_access_list *access);
void weft_access_list_add(struct weft_access_list *access,
                          struct weft_tile *tile, enum weft_mode mode);
/* Adds a tile that a task may do without; NULL is left out. Returns whether it
 * was added: the task's argument has to say so, as the body must know which
 * buffers it has. */
bool weft_access_list_add_optional(struct weft_access_list *access,
                                   struct weft_tile *tile,
                                   enum weft_mode mode);
/* Adds the blocks that are not NULL, then the norms. Returns how many were
 * added. */
int weft_access_list_add_layer(struct weft_access_list *access,
                               const struct weft_layer_tiles *tiles,
                               enum weft_mode mode);
int weft_access_list_add_blocks(struct weft_access_list *access,
                                struct weft_tile *const tile[],
                                enum weft_mode mode);
int weft_access_list_add_range(struct weft_access_list *access,
                               struct weft_range range,
                               struct weft_tile *const tile[],
                               enum weft_mode mode);
/* Inserts the task and releases the access. */
void weft_access_list_insert(struct weft_access_list *access,
                             struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_codelet *codelet,
                             const void *args, size_t args_bytes);

/* ---- Inside a codelet: taking buffers in the order they were added ---- */

struct weft_take {
    void *const *buf; /* (n) */
    int n, next;
};
WEFT_INLINE void *weft_take(struct weft_take *t)
{
    weft_assert(t->next < t->n);
    return t->buf[t->next++];
}
/* Call it after taking the last buffer: it checks that the body has taken all
 * that the insert function added. */
WEFT_INLINE void weft_take_end(const struct weft_take *t)
{
    weft_assert(t->next == t->n);
}
WEFT_INLINE void weft_take_blocks(struct weft_take *t, int n_blocks,
                                  void *out[])
{
    for (int b = 0; b < n_blocks; b++)
        out[b] = weft_take(t);
}
WEFT_INLINE void weft_take_range(struct weft_take *t, struct weft_range range,
                                 void *out[])
{
    weft_take_blocks(t, range.n, out + range.first);
}

/* The kernels' view of a batch tile. */
WEFT_INLINE struct weft_k_batch weft_batch_view(const struct weft_batch *b)
{
    return (struct weft_k_batch){
        .n_rows = b->n_rows,
        .n_runs = b->n_runs,
        .run = weft_batch_at(b, b->run),
        .token = weft_batch_at(b, b->token),
    };
}
WEFT_INLINE struct weft_k_targets weft_batch_targets(
    const struct weft_batch *b)
{
    return (struct weft_k_targets){
        .n = b->n_targets,
        .row = weft_batch_at(b, b->row),
        .target = weft_batch_at(b, b->target),
    };
}

#endif
