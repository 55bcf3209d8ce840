/* SPDX-License-Identifier: Apache-2.0 */
#include "run/gpu_products.h"

#include "graphs/calls/calls.h"

int weft_run_choose_products(struct weft_trainer *t, struct weft_err *err)
{
    bool any = false;
    for (int32_t i = 1; i < t->flow.n_calls; i++) {
        if (!weft_flow_placed(&t->flow, i) || !t->layout[i].on_gpus)
            continue;
        weft_g_choose_products(t->seq, &t->layout[i], i,
                               &t->model[t->flow.call[i].role].arch.shape,
                               t->flow.call[i].kind == WEFT_GENERATE,
                               weft_flow_trains(&t->flow, i));
        any = true;
    }
    return any ? weft_seq_wait(t->seq, err) : 0;
}
