/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/weigh.h"

#include <string.h>

#include "run/predict/options_inside.h"

/* Devices among which what lies on a mesh is divided: those of its places. */
static int32_t n_sharing(const struct weft_finding *f,
                         const struct weft_mesh *mesh)
{
    bool apart = f->config->runtime.place == WEFT_PLACE_DEVICE
              || f->needs->n_gpus > 0;
    return apart ? weft_mesh_size(mesh) : mesh->n_nodes * f->n_devices;
}

/* The one option of each placed call. static_out: bytes of gradients and
 * optimizer state, of all devices. */
static int set_options(struct weft_finding *f, const struct weft_plan *plan,
                       double *static_out, struct weft_err *err)
{
    int rc = 0;
    *static_out = 0;
    for (int32_t c = 1; c < plan->flow.n_calls && !rc; c++) {
        struct weft_priced priced[WEFT_MAX_CALLS];
        struct weft_call_plan at = plan->call[c];
        if (!weft_flow_placed(&plan->flow, c))
            continue;
        if (f->find->simulate->cluster->n_kinds == 1)
            at.mesh.node = 0;
        at.mesh.device = 0;
        rc = weft_pricer_price(f->pricer, &at, 1u << c, priced, err);
        if (rc)
            break;
        const struct weft_option o = weft_finding_option(f, c, &plan->call[c],
                                                         &priced[c]);
        rc = weft_finding_add(f, c, &o, err);
        if (weft_flow_trains(&plan->flow, c))
            *static_out += priced[c].state * n_sharing(f, &at.mesh);
    }
    return rc;
}

/* Plays the one choice. */
static int play(struct weft_finding *f, struct weft_plan_times *times,
                struct weft_search_value *out, struct weft_err *err)
{
    const int32_t first[WEFT_MAX_CALLS] = {0};
    struct weft_search_problem p;
    struct weft_search *s = NULL;
    weft_finding_set_problem(f, &p);
    for (int32_t i = 0; i < p.n_calls; i++) {
        int32_t c = f->call_of[i];
        p.call[i].option = f->variant[c];
        p.call[i].n_options = 1;
        times->call_s[c] = f->variant[c]->seconds;
    }
    int rc = weft_search_create(&p, &s, err);
    if (!rc)
        *out = weft_search_value(s, first);
    weft_search_free(s);
    if (!rc)
        times->iteration_s = out->period;
    return rc;
}

int weft_run_weigh(const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   const struct weft_simulate_options *simulate,
                   struct weft_plan *plan, struct weft_simulated *out,
                   struct weft_err *err)
{
    struct weft_search_value v;
    double has = (double) needs->device_bytes, state;
    const struct weft_find find = {.simulate = simulate};
    struct weft_finding f;
    if (plan->intra_stage_fusion)
        return weft_err_set(err, WEFT_EINVAL,
                            "what fused training takes is not known without "
                            "a simulation of the plan");
    int rc = weft_finding_begin(config, needs, &find, &f, err);
    if (!rc)
        rc = set_options(&f, plan, &state, err);
    if (!rc)
        rc = play(&f, &plan->predicted_s, &v, err);
    weft_finding_close(&f);
    if (rc)
        return rc;
    *out = (struct weft_simulated){
        .iteration_s = v.period,
        .device_bytes = v.bytes,
        .fullest = v.bytes / has,
        .static_share = state / has / (plan->n_nodes * plan->n_devices)};
    memcpy(out->call_s, plan->predicted_s.call_s, sizeof out->call_s);
    return 0;
}
