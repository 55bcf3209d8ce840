/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs of learning from preferences share. */
#ifndef WEFT_GRAPHS_PREFERENCE_H
#define WEFT_GRAPHS_PREFERENCE_H

#include "graphs/algorithms.h"
#include "graphs/keys.h"

/* Adds a field and returns its set. */
WEFT_INLINE uint32_t weft_flow_add(struct weft_dataflow *flow,
                                   const char *name,
                                   enum weft_field_type type)
{
    return weft_flow_bit(weft_flow_field(flow, name, type));
}

/* Metrics of pairs, of single responses, of scores of pairs. */
extern const struct weft_told weft_pairs_told, weft_singles_told,
    weft_scores_told;

#endif
