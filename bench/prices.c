/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What training is priced at (run/predict/price.h), beside prices of runs that are
 * recorded whole: with all layers, members, replicas and steps.
 *
 *     prices CLUSTER.yaml NODES STAGES CONFIG.yaml [key=value ...]
 *
 * of layouts on all devices of the nodes, with so many stages, powers of two of tp,
 * each ZeRO, one micro-batch of a gradient group or as many as tokens ask for,
 * recomputed or not. WEFT_BENCH_CALLS=1 prints each.
 */
#include <math.h>
#include <time.h>

#include "bench/opened.h"

enum { N_ZERO = 4 };

static struct {
    double worst, sum, state, active; /* errors: of seconds, of bytes */
    double took_s[2];                 /* of whole prices, of others */
    int n;
} of_zero[N_ZERO];

static double cpu_s(void)
{
    return (double) clock() / CLOCKS_PER_SEC;
}

/* How far a price is from that of the whole run, in parts of it. */
static double error_of(double small, double whole)
{
    return whole > 0 ? small / whole - 1 : 0;
}

static void compare(struct weft_pricer *const pricer[2],
                    const struct weft_call_plan *at, int32_t call,
                    const char *name)
{
    struct weft_priced of[2][WEFT_MAX_CALLS];
    double took_s[2];
    for (int i = 0; i < 2; i++) {
        double from_s = cpu_s();
        CHECK(weft_pricer_price(pricer[i], at, 1u << call, of[i], &err));
        took_s[i] = cpu_s() - from_s;
        of_zero[at->zero].took_s[i] += took_s[i];
    }
    const struct weft_priced *whole = &of[0][call], *small = &of[1][call];
    double e = error_of(small->seconds, whole->seconds);
    double state = error_of(small->state, whole->state);
    double active = error_of(small->active, whole->active);
    of_zero[at->zero].worst = fmax(of_zero[at->zero].worst, fabs(e));
    of_zero[at->zero].state = fmax(of_zero[at->zero].state, fabs(state));
    of_zero[at->zero].active = fmax(of_zero[at->zero].active, fabs(active));
    of_zero[at->zero].sum += fabs(e);
    of_zero[at->zero].n++;
    if (getenv("WEFT_BENCH_CALLS"))
        printf(
            "%-14s dp%d tp%d pp%d zero %d m %d%s: %.4g s, whole %.4g: "
            "%.1f %%; state %.1f %%, active %.1f %%; took %.2f and %.2f s\n",
            name, (int) at->dp, (int) at->tp, (int) at->pp, (int) at->zero,
            (int) at->micro_batches, at->recompute ? " recompute" : "",
            small->seconds, whole->seconds, 100 * e, 100 * state,
            100 * active, took_s[1], took_s[0]);
    fflush(stdout);
}

static void compare_all(const struct weft_run_needs *needs,
                        struct weft_pricer *const pricer[2],
                        const struct weft_call_plan *at)
{
    for (int32_t c = 1; c < needs->flow.n_calls; c++)
        if (weft_flow_placed(&needs->flow, c)
            && weft_flow_trains(&needs->flow, c)
            && weft_price_can(&needs->plan, c, at))
            compare(pricer, at, c, needs->flow.call[c].name);
}

int main(int argc, char **argv)
{
    static struct opened o;
    struct weft_pricer *pricer[2];
    opened_open(argc, argv, &o);
    int32_t nodes = atoi(argv[2]), pp = atoi(argv[3]);
    int32_t devices = o.cluster.kind[0].n_devices, all = nodes * devices;
    for (int i = 0; i < 2; i++)
        CHECK(weft_pricer_create(&o.config, &o.needs.plan, &o.simulate,
                                 i == 0, &pricer[i], &err));
    printf("%s, %d nodes of %d devices, stages: %d\n", argv[4], (int) nodes,
           (int) devices, (int) pp);
    for (int32_t tp = 1; tp <= devices && tp * pp <= all; tp *= 2)
        for (int32_t i = 0; i < 4 * N_ZERO; i++) {
            const struct weft_call_plan at = {.mesh = {0, nodes, 0, devices},
                                              .dp = all / tp / pp,
                                              .tp = tp,
                                              .pp = pp,
                                              .zero = i / 4,
                                              .micro_batches = i % 2,
                                              .recompute = i / 2 % 2};
            compare_all(&o.needs, pricer, &at);
        }
    for (int z = 0; z < N_ZERO; z++)
        if (of_zero[z].n > 0)
            printf(
                "ZeRO %d: %d prices, off by %.1f %% at most, %.1f %% in "
                "the mean; state by %.1f %%, active %.1f %%; %.2f s of the "
                "processor, whole %.1f s\n",
                z, of_zero[z].n, 100 * of_zero[z].worst,
                100 * of_zero[z].sum / of_zero[z].n, 100 * of_zero[z].state,
                100 * of_zero[z].active, of_zero[z].took_s[1],
                of_zero[z].took_s[0]);
    weft_pricer_free(pricer[0]);
    weft_pricer_free(pricer[1]);
    opened_close(&o);
    return 0;
}
