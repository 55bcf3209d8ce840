/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/divided.h"

#include <stdio.h>

#include "plan/strategy.h"
#include "run/predict/price.h"

/* Generation, inference, training; what a call takes is added to its stage. */
enum { GENERATION, INFERENCE, TRAINING, N_STAGES };

static int add_call(struct weft_pricer *pricer, const struct weft_plan *plan,
                    int32_t call, double seconds[N_STAGES],
                    struct weft_err *err)
{
    struct weft_priced price[WEFT_MAX_CALLS] = {{0}};
    int stage = plan->flow.call[call].kind == WEFT_GENERATE ? GENERATION
              : weft_flow_trains(&plan->flow, call)         ? TRAINING
                                                            : INFERENCE;
    int rc = weft_pricer_price(pricer, &plan->call[call], 1u << call, price,
                               err);
    seconds[stage] += price[call].seconds;
    return rc;
}

int weft_run_divided(const struct weft_config *config,
                     const struct weft_plan_needs *needs,
                     const struct weft_simulate_options *options, char *text,
                     size_t size, struct weft_err *err)
{
    struct weft_pricer *pricer = NULL;
    struct weft_plan plan = {0};
    double s[N_STAGES] = {0};
    int rc = weft_plan_strategy("verl", needs, &plan, err);
    if (!rc)
        rc = weft_plan_check(&plan, needs, err);
    if (!rc)
        rc = weft_pricer_create(config, needs, options, false, &pricer, err);
    for (int32_t i = 1; i < needs->flow->n_calls && !rc; i++)
        if (weft_flow_placed(needs->flow, i))
            rc = add_call(pricer, &plan, i, s, err);
    weft_pricer_free(pricer);
    weft_plan_release(&plan);
    snprintf(text, size, "rlinf=%.6g:%.6g:%.6g", s[GENERATION], s[INFERENCE],
             s[TRAINING]);
    return rc;
}
