/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the search for plans takes, by its parts; and what it estimates beside what
 * simulations of the same plans come to: plans drawn at random of all that it
 * searches (weft_run_draw()). All times are of the processor.
 *
 *     search CLUSTER.yaml NODES PLANS CONFIG.yaml [key=value ...]
 *
 * WEFT_BENCH_LENGTHS=lognormal:200:0.8: of responses, in place of the longest.
 * WEFT_BENCH_CALLS=1 prints the calls of each plan.
 */
#include <math.h>
#include <time.h>

#include "base/alloc.h"
#include "bench/median.h"
#include "bench/opened.h"

/* A call's devices and degrees. */
static void show_call(const struct weft_call_plan *p)
{
    printf(" %d-%d:%d-%d/dp%dtp%dpp%d", (int) p->mesh.node,
           (int) (p->mesh.node + p->mesh.n_nodes - 1), (int) p->mesh.device,
           (int) (p->mesh.device + p->mesh.n_devices - 1), (int) p->dp,
           (int) p->tp, (int) p->pp);
    if (p->micro_batches)
        printf("m%d", (int) p->micro_batches);
    if (p->zero)
        printf("z%d", (int) p->zero);
    printf("%s%s", p->recompute ? "r" : "", p->offload ? "o" : "");
}

static void show(const struct weft_drawn *d, double bytes, double error)
{
    const struct weft_dataflow *flow = &d->plan.flow;
    printf("%9.4g %9.4g %8.1f %%  %5.2f %5.2f ", d->period_s,
           d->simulated.iteration_s, 100 * error, d->bytes / bytes,
           d->simulated.fullest);
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c))
            show_call(&d->plan.call[c]);
    printf("\n");
    for (int32_t c = 1; getenv("WEFT_BENCH_CALLS") && c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c))
            printf("    %-16s %9.4g priced, %9.4g from first to last task\n",
                   flow->call[c].name, d->call_s[c], d->simulated.call_s[c]);
}

static double cpu_s(void)
{
    return (double) clock() / CLOCKS_PER_SEC;
}

/* The processor's seconds when layouts are no longer priced, and when the
 * search ends; asked by the one and the other. */
struct limit {
    double priced_s, searched_s;
};

static bool is_priced(void *ctx)
{
    return cpu_s() > ((const struct limit *) ctx)->priced_s;
}

static bool is_searched(void *ctx)
{
    return cpu_s() > ((const struct limit *) ctx)->searched_s;
}

/* Prices options and searches among them: seconds of both, of an evaluation,
 * and what is proven then. */
static struct weft_search_result search(const struct weft_config *config,
                                        const struct weft_run_needs *needs,
                                        struct weft_find find,
                                        struct limit limit)
{
    struct weft_finding f;
    struct weft_search_problem p;
    struct weft_search *s;
    struct weft_search_result r, walked;
    int64_t options = 0, needed = 0;
    double from = cpu_s();
    find.how = (struct weft_search_how) WEFT_FIND_HOW;
    find.stop_pricing = is_priced;
    find.how.stop = is_searched;
    find.how.ctx = &limit;
    CHECK(weft_finding_open(config, &needs->plan, &find, &f, &err));
    CHECK(weft_finding_problem(&f, &p, &options, &err));
    CHECK(weft_search_create(&p, &s, &err));
    for (int32_t c = 0; c < p.n_calls; c++)
        needed += p.call[c].n_options;
    double priced = cpu_s();
    printf("pricing: %.1f s, %d layouts, %d of calls left out as too large; "
           "options: %lld, needed %lld\n",
           priced - from, (int) f.n_priced, (int) f.n_left_out,
           (long long) options, (long long) needed);
    struct weft_search_how how = find.how;
    how.branches = 0;
    CHECK(weft_search_run(s, &how, &walked, &err));
    double annealed = cpu_s();
    printf("annealing: %.2f s, %.2f us an evaluation (bar: 10); %.5g s an "
           "iteration\n",
           annealed - priced,
           1e6 * (annealed - priced) / (double) walked.evaluations,
           walked.value.period);
    CHECK(weft_search_run(s, &find.how, &r, &err));
    double gap = 1 - r.bound / r.value.period;
    printf(
        "with branch and bound: %.2f s, %lld branches; %.5g s an iteration, "
        "gap %.2f %%%s; all: %.1f s\n",
        cpu_s() - annealed, (long long) r.branches, r.value.period, 100 * gap,
        r.fits ? "" : ", nothing fits", cpu_s() - annealed + priced - from);
    weft_search_free(s);
    weft_finding_close(&f);
    return r;
}

/* All of it; and where that takes longer than a minute, what a minute finds,
 * divided as `weft plan --time-limit 60` divides it. What is proven by the
 * whole search says how much any other could do better. */
static void show_bars(const struct weft_config *config,
                      const struct weft_run_needs *needs,
                      struct weft_find find)
{
    double from = cpu_s();
    struct weft_search_result all = search(
        config, needs, find, (struct limit){INFINITY, INFINITY});
    double now = cpu_s();
    if (now - from < 60)
        return;
    printf("in a minute:\n");
    struct weft_search_result soon = search(
        config, needs, find, (struct limit){now + 30, now + 36});
    printf("that is at most %.2f %% above the best of any search (bar of "
           "16 x 8: 2)\n",
           100 * (soon.value.period / all.bound - 1));
}

int main(int argc, char **argv)
{
    static struct opened o;
    opened_open(argc, argv, &o);
    int n = atoi(argv[3]);
    double bytes = weft_cluster_device_bytes(&o.cluster);
    printf("%s, %s nodes of %d devices, %s\n", argv[4], argv[2],
           (int) o.needs.plan.n_devices, o.cluster.name);
    show_bars(&o.config, &o.needs, o.find);
    if (n == 0)
        return 0;
    struct weft_drawn *drawn = weft_alloc((size_t) n, sizeof *drawn);
    double *error = weft_alloc((size_t) n, sizeof *error);
    if (!drawn || !error)
        return 1;
    CHECK(weft_run_draw(&o.config, &o.needs.plan, &o.find, n, drawn, &err));
    printf("%9s %9s %10s  %5s %5s  %s\n", "search: s", "played: s", "error",
           "memory", "played", "calls (nodes:devices/degrees)");
    int within = 0;
    for (int i = 0; i < n; i++) {
        double e = drawn[i].period_s / drawn[i].simulated.iteration_s - 1;
        show(&drawn[i], bytes, e);
        error[i] = fabs(e);
        within += error[i] <= 0.05;
    }
    double median = median_sort(error, n);
    printf("%d plans: median error %.1f %%, largest %.1f %%, %d within "
           "5 %%\n",
           n, 100 * median, 100 * error[n - 1], within);
    weft_free(drawn);
    weft_free(error);
    opened_close(&o);
    return 0;
}
