/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The algorithms as dataflow graphs, one file each (ReaL, Figure 4). Role 0 is
 * the policy: its tokenizer and its positions are the run's.
 */
#ifndef WEFT_GRAPHS_ALGORITHMS_H
#define WEFT_GRAPHS_ALGORITHMS_H

#include "plan/dataflow.h"

/* What a configuration asks of its algorithm's graph. */
struct weft_flow_needs {
    bool reference;    /* a KL penalty to a reference ... */
    bool kl_in_loss;   /* ... in the loss, not in the reward */
    int32_t n_rewards; /* reward models, and their numbers in the
                          configuration's list of rewards */
    int32_t reward[8];
};

void weft_flow_ppo(const struct weft_flow_needs *needs,
                   struct weft_dataflow *out);
void weft_flow_sft(const struct weft_flow_needs *needs,
                   struct weft_dataflow *out);

#endif
