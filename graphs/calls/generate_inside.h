/* SPDX-License-Identifier: Apache-2.0 */
/* What generate.c, generate_instances.c and generate_move.c share. */
#ifndef WEFT_CALLS_GENERATE_INSIDE_H
#define WEFT_CALLS_GENERATE_INSIDE_H

#include "graphs/calls/calls.h"

/* Whether a chunk is a task of each member. */
WEFT_INLINE bool weft_g_generate_is_one_task(
    const struct weft_g_layout *layout)
{
    return layout->plan.pp == 1 && (layout->is_gang || layout->is_gpu_gang);
}

/* Whether what a stage does in a step is a task of each member, where a chunk
 * is not. */
WEFT_INLINE bool weft_g_generate_is_gang(const struct weft_g_layout *layout)
{
    return layout->plan.pp > 1 && (layout->is_gang || layout->is_gpu_gang);
}

/* The member of a replica that draws tokens. */
WEFT_INLINE const struct weft_g_member *weft_g_generate_home(
    const struct weft_g_layout *layout, int32_t dp)
{
    return weft_g_layout_member(layout, dp, layout->plan.pp - 1, 0);
}

/* Says what of a GPU's memory the tasks of a chunk take, for predictions. */
struct weft_g_pass; /* graphs/calls/stage.h */
void weft_g_generate_expect(const struct weft_g_generate *gen,
                            const struct weft_g_pass *pass,
                            const struct weft_gen_args *args);

/* Where an instance's tasks on its state run. */
struct weft_where weft_g_generate_where(
    const struct weft_g_generate *gen, const struct weft_g_instance *instance,
    int32_t iteration);

#endif
