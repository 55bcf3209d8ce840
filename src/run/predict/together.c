/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/together.h"

#include "graphs/algorithms.h"

uint32_t weft_before(const struct weft_dataflow *flow, int32_t call)
{
    uint32_t set = 0;
    for (int32_t i = 1; i < flow->n_calls; i++) {
        if (i == call || !(flow->call[i].writes & flow->call[call].reads))
            continue;
        set |= weft_flow_placed(flow, i) ? 1u << i : weft_before(flow, i);
    }
    return set;
}

/* All placed calls that come before one. */
static uint32_t all_before(const struct weft_dataflow *flow, int32_t call)
{
    uint32_t set = weft_before(flow, call);
    for (uint32_t m = set; m; m &= m - 1)
        set |= all_before(flow, __builtin_ctz(m));
    return set;
}

/* Whether a call is never at work beside one that trains: as that waits for
 * scores of all samples, and the call for the weights that come of it, in the
 * next iteration. What learns values begins with the first samples. */
static bool is_apart(const struct weft_dataflow *flow, int32_t call,
                     int32_t trainer)
{
    int32_t role = flow->call[trainer].role;
    bool waits = flow->call[call].role == role;
    for (uint32_t m = all_before(flow, call); m; m &= m - 1)
        waits = waits || flow->call[__builtin_ctz(m)].role == role;
    return role == 0 && waits
        && weft_flow_field_of(flow, flow->call[trainer].reads,
                              WEFT_FIELD_ADVANTAGE)
               >= 0;
}

int32_t weft_together(const struct weft_dataflow *flow, int32_t n,
                      const int32_t *call, uint32_t out[2])
{
    for (int32_t policy = 0; policy <= 1; policy++) {
        uint32_t trains = 0, set = 0;
        for (int32_t i = 0; i < n; i++)
            if (weft_flow_trains(flow, call[i])
                && (policy || flow->call[call[i]].role != 0))
                trains |= 1u << i;
        for (int32_t i = 0; i < n; i++) {
            bool apart = weft_flow_trains(flow, call[i]);
            for (uint32_t m = trains; m && !apart; m &= m - 1)
                apart = is_apart(flow, call[i], call[__builtin_ctz(m)]);
            set |= (uint32_t) !apart << i;
        }
        out[policy] = set | trains;
    }
    return 2;
}
