/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a tile of one model's weights towards another's. */
#include <string.h>

#include "codelets/access_list.h"
#include "rt/codelet.h"

struct mix_task {
    const struct weft_shape *shape;
    enum weft_tile_kind kind;
    int32_t block;
    float mix;
    bool has_master;
};

static int mix_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    (void) x;
    const struct mix_task *t = args;
    struct weft_take take = {buf, n_buf, 0};
    const void *from = weft_take(&take);
    void *fwd = weft_take(&take);
    float *master = t->has_master ? weft_take(&take) : NULL;
    struct weft_layout layout;
    weft_take_end(&take);
    weft_layout_get(t->shape, t->kind, t->block, &layout);
    if (master) {
        weft_k_mix(&layout, t->shape->dtype, t->mix, from, master);
        weft_k_publish(&layout, t->shape->dtype, master, fwd, NULL);
    } else if (weft_master_apart(t->shape, t->kind)) {
        memcpy(fwd, from, layout.fwd_bytes);
    } else {
        weft_k_mix(&layout, t->shape->dtype, t->mix, from, fwd);
    }
    return 0;
}

WEFT_CODELET(mix, 0x9e9d24, mix_cpu)

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
