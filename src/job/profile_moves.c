/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/codelets.h"
#include "job/profile_inside.h"

enum { LAYERS = 2, TURNS = 3 };

/* The layout of one device. */
static struct weft_call_plan alone(int32_t device)
{
    return (struct weft_call_plan){
        .mesh = {0, 1, device, 1}, .dp = 1, .tp = 1, .pp = 1};
}

/* Opens a view of the model for the layout, TURNS times. */
static int move(struct weft_profile_bench *b,
                const struct weft_g_model *model,
                const struct weft_g_layout *to, struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .call = 1, .micro_batch = -1, .layer = -1};
    int rc = 0;
    for (int i = 0; i < TURNS && !rc; i++) {
        struct weft_g_view view = {.model = NULL};
        rc = weft_g_view_open(b->seq, &where, model, to, &view, err);
        rc = weft_context_wait(b->seq, rc, err);
        if (view.model)
            weft_g_view_close(&view);
    }
    return rc;
}

int weft_profile_moves(struct weft_profile_bench *b,
                       const struct weft_shape *shape, struct weft_err *err)
{
    const struct weft_call_plan cpu = alone(b->options->n_gpus),
                                gpu = alone(0);
    struct weft_g_model model = {.rt = NULL};
    struct weft_g_layout home = {.member = NULL}, to = {.member = NULL};
    struct weft_shape few = *shape;
    if (b->options->n_gpus == 0 || b->options->n_devices == 0
        || !weft_reorders(shape, WEFT_TILE_LAYER))
        return 0;
    few.n_layers = (int32_t) weft_min64(shape->n_layers, LAYERS);
    weft_profile_goes_on(b, "weights for GPUs, layers", few.n_layers);
    int rc = weft_profile_model_on(b, &few, false, &cpu, &model, &home, err);
    if (!rc)
        rc = weft_profile_layout(b, &few, &gpu, &to, err);
    if (!rc)
        rc = move(b, &model, &to, err);
    weft_g_model_release(&model);
    weft_g_layout_release(&home);
    weft_g_layout_release(&to);
    return rc;
}
