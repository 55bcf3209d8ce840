/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where systems known by name, and the placements of FlexRLHF, put the calls
 * of a run: each is a plan like any other, so that all can be compared in the
 * same run. What such a system does and a plan cannot say is in
 * doc/strategies.md.
 */
#ifndef WEFT_PLAN_STRATEGY_H
#define WEFT_PLAN_STRATEGY_H

#include "plan/layout.h"

/* Name of strategy number i from 0 on, and in *what_out (or NULL) what it
 * does, a line; NULL: there are no more. */
const char *weft_strategy_name(int32_t i, const char **what_out);

/* Whether a text names a strategy, or is one with numbers: "verl",
 * "ratio=actor:1,critic:1,ref:0.5,reward:0.5". */
bool weft_strategy_is(const char *text);
/* Whether it is the one that divides devices by seconds that were measured
 * (plan/divide.h): "rlinf=12:3:9", or its name alone, which is no plan yet. */
bool weft_strategy_is_divided(const char *text);

/* Its plan, which weft_plan_check() may refuse: a system that is data parallel
 * alone is given no other layout than it has. Errors: WEFT_EINVAL, a ratio
 * that is none, of a role that is none; seconds that are missing. */
int weft_plan_strategy(const char *text, const struct weft_plan_needs *needs,
                       struct weft_plan *out, struct weft_err *err);

#endif
