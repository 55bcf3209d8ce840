/* SPDX-License-Identifier: Apache-2.0 */
/* What the codelets of tensor parallel members share. */
#ifndef WEFT_CODELETS_MEMBER_H
#define WEFT_CODELETS_MEMBER_H

#include "codelets/access_list.h"
#include "codelets/parts.h"
#include "codelets/work.h"

/* Argument of a member's task. */
struct weft_member_args {
    const struct weft_shape *shape;
    struct weft_range range;
    int32_t layer;     /* index in the KV arena */
    size_t page_bytes; /* 0: no cache */
    bool saved, roots, shared, head_norms;
};

/* What a member does for a layer: enum weft_layer_work. */
WEFT_INLINE struct weft_work weft_member_work(
    const struct weft_member_args *args, int parts,
    const struct weft_tile *batch)
{
    struct weft_work_rows rows = weft_tile_rows(batch);
    return weft_work_layer(args->shape, args->range, parts, &rows);
}

/* Argument of a join. */
struct weft_join_args {
    const struct weft_shape *shape;
    int64_t n; /* floats per row, where the shape does not determine it */
    int32_t n_sets; /* sets of roots that follow one another in a tile */
    int32_t n_parts;
    struct weft_range range[WEFT_MAX_BLOCKS];
    bool in_place, bias, grad, head_norms, targets;
};

WEFT_INLINE struct weft_join_args weft_join_args_of(
    const struct weft_shape *shape, int n_parts,
    const struct weft_part_tile part[])
{
    struct weft_join_args args = {.shape = shape, .n_parts = n_parts};
    for (int i = 0; i < n_parts; i++)
        args.range[i] = part[i].range;
    return args;
}

WEFT_INLINE int64_t weft_part_n_roots(const struct weft_shape *shape,
                                      struct weft_range range)
{
    struct weft_range root[WEFT_MAX_ROOTS];
    return weft_k_roots(shape->n_blocks, range, root);
}

WEFT_INLINE void weft_access_list_add_parts(
    struct weft_access_list *access, int n_parts,
    const struct weft_part_tile part[])
{
    for (int i = 0; i < n_parts; i++)
        weft_access_list_add(access, part[i].tile, WEFT_READ);
}

WEFT_INLINE void weft_take_parts(struct weft_take *take,
                                 const struct weft_join_args *args,
                                 struct weft_k_part out[])
{
    for (int i = 0; i < args->n_parts; i++)
        out[i] = (struct weft_k_part){args->range[i], weft_take(take)};
}

/* Adds a member's published tiles of a layer: its blocks, the norms and,
 * unless bwd is NULL, its transposed blocks. */
WEFT_INLINE void weft_access_list_add_member(
    struct weft_access_list *access, struct weft_range range,
    const struct weft_layer_tiles *fwd, const struct weft_layer_tiles *bwd)
{
    weft_access_list_add_range(access, range, fwd->block, WEFT_READ);
    weft_access_list_add(access, fwd->norms, WEFT_READ);
    if (bwd)
        weft_access_list_add_range(access, range, bwd->block, WEFT_READ);
}

WEFT_INLINE void weft_take_member(struct weft_take *take,
                                  struct weft_range range, bool backward,
                                  struct weft_k_layer *out)
{
    for (int32_t b = range.first; b < range.first + range.n; b++)
        out->fwd[b] = weft_take(take);
    out->norms = weft_take(take);
    for (int32_t b = range.first; b < range.first + range.n && backward; b++)
        out->bwd[b] = weft_take(take);
}

#endif
