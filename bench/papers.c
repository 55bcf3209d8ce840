/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What published systems measured beside what Weft predicts of the same plans.
 *
 *     bench/papers CLUSTER.yaml [--calibrate]
 *
 * with examples/clusters/real_h100.yaml.
 *
 * ReaL (Efficient RLHF Training of LLMs with Parameter Reallocation), appendix
 * A, tables 2 to 6: four plans for PPO on H100, each with the seconds of its
 * calls. Two numbers of the cluster file are calibrated, each on one of the 24
 * cells (--calibrate finds them), and all others are predicted:
 *   - the share of their peak that products reach (by_rows), by one factor: on
 *     the actor's training, 7B + 7B, searched plan;
 *   - layer_us, what a layer takes beside its work (in decode steps mostly
 *     launches): on generation, 7B + 7B, heuristic plan.
 * A third is software's, not the cluster's: layer_us of generation without CUDA
 * graphs, on that cell's other row; only the rows without graphs have it.
 * What ReaL's norms move in memory is counted from its code (bench/real.h).
 *
 * Figure 9 goes from the heuristic to the searched plan one decision at a time:
 * generation's layout, then training's, then inference's. (Its first, CUDA
 * graphs, is no decision of a plan.) The text has no numbers of it but that each
 * step is faster than the one before.
 */
#include "base/clock.h"
#include "bench/median.h"
#include "bench/real_layouts.h"
#include "bench/rows.h"

enum { TRAINED = REAL_ACTOR_TRAIN, GENERATED = REAL_GENERATE };

/* The jobs of plans i and i + 1, of the 70B plans' mini-batches a quarter. */
static const struct job job[N_REAL_PLANS / 2] = {
    {"7B + 7B", "ppo", REAL_7B, 2, 512, 1, 1024, 8, 1},
    {"70B + 7B", "ppo", REAL_70B, 16, 4096, 1, 1024, 8, 4}};

static double predict_call(struct bench *b, int plan, int call)
{
    take_job(b, &job[plan / 2]);
    return price_published(
        b, &job[plan / 2], &real_plan[plan],
        weft_flow_find_call(&b->flow, real_call_name[call]), false);
}

/* ---- Calibration -------------------------------------------------------- */

/* x at which a line through two points is y. */
static double at_line(double x0, double y0, double x1, double y1, double y)
{
    return x0 + (y - y0) * (x1 - x0) / (y1 - y0);
}

/* The cells that are calibrated on. */
static bool is_fitted(int plan, int call)
{
    return (plan == 1 && call == TRAINED) || (plan == 0 && call == GENERATED);
}

static double cell(const struct bench *b, double slow, double layer_s,
                   int plan, int call)
{
    static struct bench with;
    with = *b;
    with.cluster = real_calibrated(&b->cluster, 1 / slow, layer_s);
    return predict_call(&with, plan, call);
}

/* Seconds of a layer at which a cell's generation takes so long, from a first
 * guess. */
static double fit_layer(const struct bench *b, double slow, double layer_s,
                        double generated_s)
{
    const double step = 1e-5;
    return at_line(layer_s, cell(b, slow, layer_s, 0, GENERATED),
                   layer_s + step,
                   cell(b, slow, layer_s + step, 0, GENERATED), generated_s);
}

/* Seconds are nearly linear in layer_s and in the inverse of the factor. */
static void calibrate(const struct bench *b)
{
    double trained_s = real_plan[1].call[TRAINED].seconds;
    double slow = 1 / REAL_BY_ROWS, layer_s = REAL_LAYER_S;
    for (int round = 0; round < 2; round++) {
        slow = at_line(slow, cell(b, slow, layer_s, 1, TRAINED), slow / 0.8,
                       cell(b, slow / 0.8, layer_s, 1, TRAINED), trained_s);
        layer_s = fit_layer(b, slow, layer_s,
                            real_plan[0].call[GENERATED].seconds);
    }
    double launched_s = fit_layer(b, slow, REAL_LAUNCHED_S,
                                  real_plan[0].launched_s);
    printf("calibrated on two cells: by_rows times %.3f (bench/real.h has "
           "%.3f), layer_us %.0f (%.0f; the file has %.0f)\n"
           "without CUDA graphs, on a third: layer_us of generation %.0f "
           "(%.0f)\n",
           1 / slow, REAL_BY_ROWS, 1e6 * layer_s, 1e6 * REAL_LAYER_S,
           1e6 * b->cluster.kind[0].layer_s, 1e6 * launched_s,
           1e6 * REAL_LAUNCHED_S);
}

/* ---- The table ---------------------------------------------------------- */

static double error_of(double predicted, double value)
{
    return 100 * (predicted / value - 1);
}

/* Why a call is off, where that is known. Two plans of 70B + 7B have one layout
 * of the critic's training, tp 8, pp 4, dp 4, and differ by micro-batches
 * alone, 8 and 2; of the second one inferences with 4 and 16 of them take 5.6 s
 * both. */
static const char *why_missed(int plan, int call)
{
    static char text[160];
    double s[2], busy_s[2];
    if (plan != REAL_70B_PLANS + 1 || call != TRAINED + 1)
        return NULL;
    for (int k = 0; k < 2; k++) {
        const struct real_plan *p = &real_plan[REAL_70B_PLANS + k];
        double pp = p->call[call].pp, n = p->call[call].micro_batches;
        s[k] = p->call[call].seconds;
        busy_s[k] = s[k] * n / (n + pp - 1);
    }
    snprintf(
        text, sizeof text,
        "published 1 / %.1f of the heuristic's with the same layout, 1 / "
        "%.1f without bubbles; inference with 4 and 16 micro-batches is "
        "alike",
        s[0] / s[1], busy_s[0] / busy_s[1]);
    return text;
}

static void predict(struct bench *b,
                    double call_s[N_REAL_PLANS][N_REAL_CALLS])
{
    double error[N_REAL_PLANS * N_REAL_CALLS];
    int n = 0;
    printf("%-22s %-15s %10s %10s %8s\n", "ReaL, tables 2 to 6", "call",
           "published", "predicted", "error %");
    for (int i = 0; i < N_REAL_PLANS; i++)
        for (int c = 0; c < N_REAL_CALLS; c++) {
            const struct real_plan *p = &real_plan[i];
            bool fitted = is_fitted(i, c);
            call_s[i][c] = predict_call(b, i, c);
            double e = error_of(call_s[i][c], p->call[c].seconds);
            printf("%-22s %-15s %10.1f %10.1f %8.1f%s\n", p->name,
                   real_call_name[c], p->call[c].seconds, call_s[i][c], e,
                   fitted ? " calibrated" : "");
            fflush(stdout);
            add_row(&(struct row){fitted ? ROW_CALIBRATED : ROW_PREDICTED,
                                  "ReaL", p->name, real_call_name[c], "s",
                                  p->call[c].seconds, call_s[i][c],
                                  why_missed(i, c)});
            if (!fitted)
                error[n++] = fabs(e);
        }
    double median = median_sort(error, n);
    printf("calls: median error %.1f %%, largest %.1f %% (of %d)\n", median,
           error[n - 1], n);
}

/* Seconds of an iteration, and the searched plan's gain. */
static void print_iterations(double call_s[N_REAL_PLANS][N_REAL_CALLS])
{
    for (int i = 0; i < N_REAL_PLANS; i += 2) {
        double s[2];
        for (int k = 0; k < 2; k++) {
            const struct real_plan *p = &real_plan[i + k];
            s[k] = iteration_s(p, call_s[i + k]);
            printf("%-22s iteration %.1f published, %.1f predicted\n",
                   p->name, p->all_s, s[k]);
            add_row(&(struct row){ROW_PREDICTED, "ReaL", p->name, "iteration",
                                  "s", p->all_s, s[k], "sums up its calls"});
        }
        double gain = real_plan[i].all_s / real_plan[i + 1].all_s;
        printf("    searched over heuristic: %.2f published, %.2f "
               "predicted\n",
               gain, s[0] / s[1]);
        add_row(&(struct row){ROW_PREDICTED, "ReaL", real_plan[i + 1].name,
                              "over heuristic", "times", gain, s[0] / s[1],
                              NULL});
    }
}

/* Generation without CUDA graphs. Published, that of 70B + 7B is what it is with
 * them; the ends of its iterations say what it was. */
static void print_launched(const struct bench *b,
                           double call_s[N_REAL_PLANS][N_REAL_CALLS])
{
    static struct bench launched;
    launched = *b;
    launched.cluster.kind[0].layer_s = REAL_LAUNCHED_S;
    printf(
        "without CUDA graphs: a layer of generation takes %.0f us, a third "
        "calibrated number, of\nsoftware and not of the cluster, which only "
        "these rows and systems with a name have\n",
        1e6 * REAL_LAUNCHED_S);
    for (int i = 0; i < N_REAL_PLANS; i++) {
        const struct real_plan *p = &real_plan[i];
        double with_s = p->call[GENERATED].seconds, s[N_REAL_CALLS];
        double implied_s = p->launched_all_s - p->all_s + with_s;
        char why[120];
        memcpy(s, call_s[i], sizeof s);
        s[GENERATED] = predict_call(&launched, i, GENERATED);
        double all_s = iteration_s(p, s);
        snprintf(
            why, sizeof why,
            "repeats the row with graphs; by the iterations it is %.1f s "
            "(%+.0f %%)",
            implied_s, error_of(s[GENERATED], implied_s));
        bool flagged = p->launched_s <= with_s;
        printf("%-22s generation %.1f published, %.1f predicted%s%s\n"
               "    iteration %.1f published, %.1f predicted\n",
               p->name, p->launched_s, s[GENERATED], flagged ? ": " : "",
               flagged ? why
               : i     ? ""
                       : " (calibrated)",
               p->launched_all_s, all_s);
        add_row(&(struct row){i == 0    ? ROW_CALIBRATED
                              : flagged ? ROW_FLAGGED
                                        : ROW_PREDICTED,
                              "ReaL", p->name, "actor_generate, no graphs",
                              "s", p->launched_s, s[GENERATED],
                              flagged ? why : NULL});
        add_row(&(struct row){ROW_PREDICTED, "ReaL", p->name,
                              "iteration, no graphs", "s", p->launched_all_s,
                              all_s, "sums up its calls"});
    }
}

/* The heuristic's plan with some of the searched one's calls. */
static double mixed_s(int heuristic,
                      double call_s[N_REAL_PLANS][N_REAL_CALLS], int n_taken,
                      const int *taken)
{
    struct real_plan p = real_plan[heuristic];
    double s[N_REAL_CALLS];
    memcpy(s, call_s[heuristic], sizeof s);
    for (int i = 0; i < n_taken; i++) {
        p.call[taken[i]] = real_plan[heuristic + 1].call[taken[i]];
        s[taken[i]] = call_s[heuristic + 1][taken[i]];
    }
    return iteration_s(&p, s);
}

static void print_ladder(double call_s[N_REAL_PLANS][N_REAL_CALLS])
{
    static const struct {
        const char *name;
        int n_taken; /* of the order below */
    } step[] = {{"heuristic", 0},
                {"generation", 1},
                {"training", 3},
                {"inference", 6}};
    static const int order[N_REAL_CALLS] = {GENERATED, TRAINED, TRAINED + 1,
                                            1,         2,       3};
    printf("Figure 9, one decision after the other, s an iteration\n");
    for (int i = 0; i < N_REAL_PLANS; i += 2) {
        double before = INFINITY;
        bool falls = true;
        printf("%-22s", real_plan[i + 1].name);
        for (size_t k = 0; k < WEFT_COUNT(step); k++) {
            double now = mixed_s(i, call_s, step[k].n_taken, order);
            printf(" %s %.1f", step[k].name, now);
            falls = falls && now < before;
            before = now;
        }
        printf("\n    each step faster than the one before: %s\n",
               falls ? "met" : "missed");
        add_row(&(struct row){ROW_ORDER, "ReaL", real_plan[i + 1].name,
                              "figure 9, each step is faster", "", 1, falls,
                              NULL});
    }
}

int main(int argc, char **argv)
{
    static struct bench b;
    double call_s[N_REAL_PLANS][N_REAL_CALLS], start = weft_clock_s();
    bool calibrates = argc == 3 && strcmp(argv[2], "--calibrate") == 0;
    if (argc != 2 && !calibrates) {
        fprintf(stderr, "usage: papers CLUSTER.yaml [--calibrate]\n");
        return 2;
    }
    bench_open(&b, argv[1]);
    if (calibrates) {
        CHECK(weft_cluster_read(argv[1], &b.cluster, &err));
        calibrate(&b);
    } else {
        predict(&b, call_s);
        print_iterations(call_s);
        print_launched(&b, call_s);
        print_ladder(call_s);
    }
    weft_dir_remove(b.dir, NULL);
    printf("%.0f s\n", weft_clock_s() - start);
    return 0;
}
