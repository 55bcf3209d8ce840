/* SPDX-License-Identifier: Apache-2.0 */
/* Walks what the algorithms' tables tell of their metrics. A run's metrics say
 * by their tags which algorithm it was; so all tables are looked at. */
#ifndef WEFT_RECORD_TOLD_H
#define WEFT_RECORD_TOLD_H

#include "config/config.h"
#include "graphs/metrics.h"

/* The i-th table of those that differ from all before; NULL: no more. */
const struct weft_curve *weft_told_curves(int i);
const struct weft_curve *weft_told_times(int i);
/* The i-th of all watched metrics, each tag once; NULL: no more. */
const struct weft_watched *weft_told_watched(int i);
/* The metric that says first how a run of the configuration goes. */
const struct weft_watched *weft_told_headline(
    const struct weft_config *config);

#endif
