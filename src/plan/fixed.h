/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a search for a plan may not change, as a text says it: words, separated by
 * spaces, each of which holds for all calls or, behind a name and a colon, for one:
 *
 *     tp2,zero=1 actor_generate:tp1 ratio=actor:1,critic:0.5
 *
 * A word is a layout's text of which any part may be missing (plan/layout.h), or a
 * placement ratio (plan/strategy.h), which says the meshes alone.
 */
#ifndef WEFT_PLAN_FIXED_H
#define WEFT_PLAN_FIXED_H

#include "plan/layout.h"

/* Of each call what is fixed: degrees and nodes of meshes that are not 0,
 * numbers of micro-batches and ZeRO that are not -1, recompute and offload that
 * are true. */
struct weft_fixed {
    struct weft_call_plan call[WEFT_MAX_CALLS];
    bool any, meshes; /* of some call anything, its mesh */
};

/* Reads a text, NULL: nothing is fixed. Errors: WEFT_EINVAL, a sentence that
 * has the word. */
int weft_fixed_read(const char *text, const struct weft_plan_needs *needs,
                    struct weft_fixed *out, struct weft_err *err);

/* Whether a call may have the degrees on a mesh of that size; if so its options
 * become those that are fixed. */
bool weft_fixed_apply(const struct weft_fixed *fixed, int32_t call,
                      struct weft_call_plan *inout);
/* Whether the call may be on a mesh. */
bool weft_fixed_allows(const struct weft_fixed *fixed, int32_t call,
                       const struct weft_mesh *mesh);
/* Whether all calls of a plan are as they have to be. */
bool weft_fixed_holds(const struct weft_fixed *fixed,
                      const struct weft_plan *plan);

#endif
