/* SPDX-License-Identifier: Apache-2.0 */
/* What the graphs of learning from preferences share. */
#ifndef WEFT_GRAPHS_PREFERENCE_H
#define WEFT_GRAPHS_PREFERENCE_H

#include "graphs/algorithms.h"
#include "graphs/keys.h"

/* Metrics of pairs, of single responses, of scores of pairs. */
extern const struct weft_told weft_pairs_told, weft_singles_told,
    weft_scores_told;

#endif
