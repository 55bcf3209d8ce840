/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReaL's figures 13 to 15: the cost of the best plan over the length of the
 * search, with options that none needs and without, and beside the best there
 * is.
 *
 *     bench/papers_search CLUSTER.yaml NODES SECONDS CONFIG.yaml [key=value ...]
 *
 * Annealing alone, of so many evaluations and the same seed; then branch and
 * bound for at most so many seconds, which proves how far from the best that
 * can be. (The paper has brute force in its place, and no numbers in its text
 * but that a near-optimal plan of 7B + 7B on 8 GPUs took 5 s.) Seconds are
 * those of this machine, and of searching: layouts are priced before.
 */
#include "base/clock.h"
#include "bench/opened.h"

static double ends; /* when branch and bound stops */

static bool is_over(void *ctx)
{
    (void) ctx;
    return weft_clock_s() > ends;
}

/* The period that a search finds, in *seconds_out; 0: nothing fits. */
static double search(const struct weft_search_problem *p, int64_t evaluations,
                     int64_t branches, double *seconds_out, double *bound_out)
{
    const struct weft_search_how how = {.seed = 1,
                                        .evaluations = evaluations,
                                        .branches = branches,
                                        .stop = branches ? is_over : NULL};
    static struct weft_search_result r;
    struct weft_search *s;
    double start = weft_clock_s();
    CHECK(weft_search_create(p, &s, &err));
    CHECK(weft_search_run(s, &how, &r, &err));
    weft_search_free(s);
    *seconds_out = weft_clock_s() - start;
    *bound_out = r.bound;
    return r.fits ? r.value.period : 0;
}

static int64_t n_options(const struct weft_search_problem *p)
{
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n += p->call[i].n_options;
    return n;
}

enum { N_LENGTHS = 7 };

static void compare(struct weft_finding *f, double limit_s)
{
    static const int64_t length[N_LENGTHS] = {100,   300,    1000,  3000,
                                              10000, 100000, 400000};
    double period[2][N_LENGTHS], seconds[2][N_LENGTHS], bound, took;
    struct weft_search_problem p;
    int64_t n[2], ignored = 0;
    for (int pruned = 0; pruned < 2; pruned++) {
        if (!pruned)
            CHECK(weft_finding_place(f, &p, &ignored, &err));
        else
            CHECK(weft_finding_prune(f, &p, &err));
        n[pruned] = n_options(&p);
        for (int i = 0; i < N_LENGTHS; i++)
            period[pruned][i] = search(&p, length[i], 0, &seconds[pruned][i],
                                       &bound);
    }
    ends = weft_clock_s() + limit_s;
    double best = search(&p, 400000, INT64_MAX, &took, &bound);
    printf("%-12s %24s %24s\n", "evaluations", "all options", "needed ones");
    printf("%-12s %24lld %24lld\n", "", (long long) n[0], (long long) n[1]);
    for (int i = 0; i < N_LENGTHS; i++)
        printf("%-12lld %8.3f s, %5.1f %%, %4.1f s %8.3f s, %5.1f %%, %4.1f "
               "s\n",
               (long long) length[i], period[0][i],
               100 * (period[0][i] / best - 1), seconds[0][i], period[1][i],
               100 * (period[1][i] / best - 1), seconds[1][i]);
    printf("branch and bound %.3f s, at least %.3f s (%.1f %%), in %.1f s\n",
           best, bound, 100 * (best / bound - 1), took);
}

int main(int argc, char **argv)
{
    static struct opened o;
    struct weft_finding f;
    opened_open(argc, argv, &o);
    double start = weft_clock_s();
    CHECK(weft_finding_open(&o.config, &o.needs.plan, &o.find, &f, &err));
    printf("ReaL, figures 13 to 15: %s, %s nodes of %d devices: %d layouts, "
           "priced in %.1f s\n",
           argv[4], argv[2], (int) o.cluster.kind[0].n_devices,
           (int) f.n_priced, weft_clock_s() - start);
    fflush(stdout);
    compare(&f, atof(argv[3]));
    weft_finding_close(&f);
    opened_close(&o);
    return 0;
}
