/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a tile of one model's weights towards another's. */
#include <string.h>

#include "codelets/access_list.h"
#include "codelets/gpu.h"

struct mix_task {
    const struct weft_shape *shape;
    enum weft_tile_kind kind;
    int32_t block;
    float mix;
    bool has_master;
};

struct mix_tiles {
    struct weft_layout layout;
    const void *from;
    void *fwd;
    float *master; /* or NULL */
    bool apart;
};

static struct mix_tiles tiles_of(const struct mix_task *t, void *const buf[],
                                 int n_buf)
{
    struct weft_take take = {buf, n_buf, 0};
    struct mix_tiles tiles = {.apart = weft_master_apart(t->shape, t->kind)};
    tiles.from = weft_take(&take);
    tiles.fwd = weft_take(&take);
    tiles.master = t->has_master ? weft_take(&take) : NULL;
    weft_take_end(&take);
    weft_layout_get(t->shape, t->kind, t->block, &tiles.layout);
    return tiles;
}

static int mix_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    const struct mix_task *t = args;
    struct mix_tiles p = tiles_of(t, buf, n_buf);
    (void) x;
    if (p.apart && !p.master)
        memcpy(p.fwd, p.from, p.layout.fwd_bytes);
    else
        weft_k_mix(&p.layout, t->shape->dtype, t->mix, p.from,
                   p.master ? p.master : p.fwd);
    if (p.master)
        weft_k_publish(&p.layout, t->shape->dtype, p.master, p.fwd, NULL);
    return 0;
}

static int mix_cuda(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct mix_task *t = args;
    struct mix_tiles p = tiles_of(t, buf, n_buf);
    struct CUstream_st *stream = weft_exec_stream(x);
    if (p.apart && !p.master)
        weft_k_copy_cuda(stream, p.fwd, p.from, p.layout.fwd_bytes);
    else
        weft_k_mix_cuda(stream, &p.layout, t->shape->dtype, t->mix, p.from,
                        p.master ? p.master : p.fwd);
    if (p.master)
        weft_k_publish_cuda(
            stream, &p.layout, t->shape->dtype,
            (struct weft_range){0, weft_layout_n_chunks(&p.layout)}, p.master,
            p.fwd);
    return 0;
}

WEFT_CODELET_2(mix, 0x9e9d24, mix_cpu, mix_cuda)

void weft_insert_mix(struct weft_seq *seq, const struct weft_where *where,
                     const struct weft_shape *shape, enum weft_tile_kind kind,
                     int32_t block, float mix, struct weft_tile *from,
                     struct weft_tile *fwd, struct weft_tile *master)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct mix_task task = {shape, kind, block, mix, false};
    struct weft_access_list access;
    weft_assert(master || mix >= 1 || !weft_master_apart(shape, kind));
    weft_access_list_init(&access);
    weft_access_list_add(&access, from, WEFT_READ);
    weft_access_list_add(&access, fwd, WEFT_READ_WRITE);
    task.has_master = weft_access_list_add_optional(&access, master,
                                                    WEFT_READ_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_mix, &task,
                            sizeof task);
}
