/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/bag.h"

#include <string.h>

#include "base/alloc.h"

void weft_bag_init(struct weft_bag *bag)
{
    bag->access = bag->inline_access;
    bag->n = 0;
    bag->capacity = (int) WEFT_COUNT(bag->inline_access);
    bag->failed = false;
}

static bool grow(struct weft_bag *bag)
{
    int capacity = bag->capacity * 4;
    struct weft_access *bigger = weft_alloc((size_t) capacity,
                                            sizeof *bigger);
    if (!bigger) {
        bag->failed = true;
        return false;
    }
    memcpy(bigger, bag->access, (size_t) bag->n * sizeof *bigger);
    if (bag->access != bag->inline_access)
        weft_free(bag->access);
    bag->access = bigger;
    bag->capacity = capacity;
    return true;
}

void weft_bag_add(struct weft_bag *bag, struct weft_tile *tile,
                  enum weft_mode mode)
{
    weft_assert(tile);
    if (bag->n == bag->capacity && !grow(bag))
        return;
    bag->access[bag->n++] = (struct weft_access){tile, mode};
}

bool weft_bag_add_optional(struct weft_bag *bag, struct weft_tile *tile,
                           enum weft_mode mode)
{
    if (tile)
        weft_bag_add(bag, tile, mode);
    return tile != NULL;
}

int weft_bag_add_blocks(struct weft_bag *bag, struct weft_tile *const tile[],
                        enum weft_mode mode)
{
    int before = bag->n;
    for (int b = 0; b < WEFT_MAX_BLOCKS; b++)
        weft_bag_add_optional(bag, tile[b], mode);
    return bag->n - before;
}

int weft_bag_add_range(struct weft_bag *bag, struct weft_range range,
                       struct weft_tile *const tile[], enum weft_mode mode)
{
    for (int32_t b = range.first; b < range.first + range.n; b++)
        weft_bag_add(bag, tile[b], mode);
    return range.n;
}

int weft_bag_add_layer(struct weft_bag *bag,
                       const struct weft_layer_tiles *tiles,
                       enum weft_mode mode)
{
    int n = weft_bag_add_blocks(bag, tiles->block, mode);
    return n + weft_bag_add_optional(bag, tiles->norms, mode);
}

void weft_bag_insert(struct weft_bag *bag, struct weft_seq *seq,
                     const struct weft_where *where,
                     const struct weft_codelet *codelet, const void *args,
                     size_t args_bytes)
{
    if (bag->failed)
        weft_seq_fail(seq, WEFT_ENOMEM, "out of memory inserting a task");
    else
        weft_insert(seq, codelet, args, args_bytes, bag->access, bag->n,
                    where);
    if (bag->access != bag->inline_access)
        weft_free(bag->access);
}
