/* SPDX-License-Identifier: Apache-2.0 */
#include "run/gpu_products.h"

#include "codelets/codelets.h"

static void choose(struct weft_trainer *t, int32_t call)
{
    const struct weft_g_layout *layout = &t->layout[call];
    const struct weft_call_plan *plan = &layout->plan;
    int32_t n = plan->dp * plan->tp * plan->pp;
    bool generates = t->flow.call[call].kind == WEFT_GENERATE;
    for (int32_t i = 0; i < n; i++) {
        const struct weft_where where = {.device = layout->member[i].device,
                                         .call = call,
                                         .iteration = -1,
                                         .micro_batch = -1,
                                         .layer = -1};
        weft_insert_choose_products(
            t->seq, &where, &t->model[t->flow.call[call].role].arch.shape,
            generates, weft_flow_trains(&t->flow, call));
    }
}

int weft_run_choose_products(struct weft_trainer *t, struct weft_err *err)
{
    bool any = false;
    for (int32_t i = 1; i < t->flow.n_calls; i++) {
        if (!weft_flow_placed(&t->flow, i) || !t->layout[i].on_gpus)
            continue;
        choose(t, i);
        any = true;
    }
    return any ? weft_seq_wait(t->seq, err) : 0;
}
