/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/access_list.h"

#include <string.h>

#include "base/alloc.h"

void weft_access_list_init(struct weft_access_list *access)
{
    access->access = access->inline_access;
    access->n = 0;
    access->capacity = (int) WEFT_COUNT(access->inline_access);
    access->work = (struct weft_work){.shape = NULL};
}

static void grow(struct weft_access_list *access)
{
    int capacity = access->capacity * 4;
    struct weft_access *bigger = weft_insert_alloc((size_t) capacity,
                                                   sizeof *bigger, "a task");
    memcpy(bigger, access->access, (size_t) access->n * sizeof *bigger);
    if (access->access != access->inline_access)
        weft_free(access->access);
    access->access = bigger;
    access->capacity = capacity;
}

void weft_access_list_add(struct weft_access_list *access,
                          struct weft_tile *tile, enum weft_mode mode)
{
    weft_assert(tile);
    if (access->n == access->capacity)
        grow(access);
    access->access[access->n++] = (struct weft_access){tile, mode};
}

bool weft_access_list_add_optional(struct weft_access_list *access,
                                   struct weft_tile *tile,
                                   enum weft_mode mode)
{
    if (tile)
        weft_access_list_add(access, tile, mode);
    return tile != NULL;
}

int weft_access_list_add_blocks(struct weft_access_list *access,
                                struct weft_tile *const tile[],
                                enum weft_mode mode)
{
    int before = access->n;
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        weft_access_list_add_optional(access, tile[b], mode);
    return access->n - before;
}

int weft_access_list_add_range(struct weft_access_list *access,
                               struct weft_range range,
                               struct weft_tile *const tile[],
                               enum weft_mode mode)
{
    for (int32_t b = range.first; b < range.first + range.n; b++)
        weft_access_list_add(access, tile[b], mode);
    return range.n;
}

int weft_access_list_add_layer(struct weft_access_list *access,
                               const struct weft_layer_tiles *tiles,
                               enum weft_mode mode)
{
    int n = weft_access_list_add_blocks(access, tiles->block, mode);
    return n + weft_access_list_add_optional(access, tiles->norms, mode);
}

void weft_access_list_insert(struct weft_access_list *access,
                             struct weft_seq *seq,
                             const struct weft_where *where,
                             const struct weft_codelet *codelet,
                             const void *args, size_t args_bytes)
{
    weft_insert_work(seq, codelet, args, args_bytes, access->access,
                     access->n, where, &access->work);
    if (access->access != access->inline_access)
        weft_free(access->access);
}
