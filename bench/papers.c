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
 * What ReaL's norms move in memory is counted from its code (bench/real.h).
 *
 * Figure 9 goes from the heuristic to the searched plan one decision at a time:
 * generation's layout, then training's, then inference's. (Its first, CUDA
 * graphs, is no decision of a plan: layer_us has them.) The text has no numbers
 * of it but that each step is faster than the one before.
 */
#include "base/clock.h"
#include "bench/median.h"
#include "bench/real.h"
#include "bench/rows.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/price.h"

enum {
    N_CALLS = 6,
    N_PLANS = 4,
    TRAINED = 4,
    GENERATED = 0,
    MINI_BATCHES = 8
};

static const char *const call_name[N_CALLS] = {
    "actor_generate", "reward_infer", "ref_infer",
    "critic_infer",   "actor_train",  "critic_train"};

/* Of the 70B plans' samples and mini-batches a quarter is simulated. */
enum { QUARTER = 4 };

/* A plan of tables 2 to 5 and its column of table 6. Prompts and responses have
 * 1,024 tokens each, an iteration 8 mini-batches. The paper leaves the batch
 * of the 70B plans open (512 by its base setting, 4,096 by its weak scaling):
 * at 512 their training would do 28 TFLOP/s a GPU, at 4,096 it does 226, as
 * the 7B plans'. */
static const struct published {
    const char *name, *actor;
    int samples, nodes;
    struct {
        int node, nodes, tp, pp, dp, micro_batches;
        double seconds;
    } call[N_CALLS];
    double all_s; /* end to end */
} published[N_PLANS] = {{"7B + 7B, heuristic",
                         "7b",
                         512,
                         2,
                         {{0, 2, 8, 1, 2, 4, 44.2},
                          {0, 2, 8, 1, 2, 4, 7.3},
                          {0, 2, 8, 1, 2, 4, 7.6},
                          {0, 2, 8, 1, 2, 4, 6.8},
                          {0, 2, 8, 1, 2, 4, 24.7},
                          {0, 2, 8, 1, 2, 4, 24.3}},
                         122.6},
                        {"7B + 7B, searched",
                         "7b",
                         512,
                         2,
                         {{0, 2, 2, 2, 4, 1, 16.3},
                          {0, 1, 2, 1, 4, 16, 6.0},
                          {1, 1, 1, 2, 4, 16, 8.0},
                          {0, 2, 1, 2, 8, 8, 4.7},
                          {0, 1, 2, 4, 1, 2, 26.6},
                          {1, 1, 4, 2, 1, 2, 28.1}},
                         64.0},
                        {"70B + 7B, heuristic",
                         "70b",
                         4096,
                         16,
                         {{0, 16, 8, 4, 4, 8, 241.8},
                          {0, 16, 8, 4, 4, 8, 12.6},
                          {0, 16, 8, 4, 4, 8, 63.5},
                          {0, 16, 8, 4, 4, 8, 12.5},
                          {0, 16, 8, 4, 4, 8, 163.4},
                          {0, 16, 8, 4, 4, 8, 35.7}},
                         546.8},
                        {"70B + 7B, searched",
                         "70b",
                         4096,
                         16,
                         {{0, 16, 2, 4, 16, 4, 185.1},
                          {0, 16, 1, 8, 16, 4, 5.6},
                          {0, 16, 1, 8, 16, 16, 35.6},
                          {0, 16, 1, 8, 16, 16, 5.6},
                          {0, 16, 2, 16, 4, 2, 108.0},
                          {0, 16, 8, 4, 4, 2, 20.8}},
                         383.1}};

static const char yaml[] =
    "algorithm: ppo\n"
    "run_dir: unset\n"
    "iterations: 10\n"
    "data: {path: prompts.jsonl, max_prompt_tokens: 1024}\n"
    "reward: [{type: model, model: reward}]\n"
    "rollout: {max_new_tokens: 1024}\n"
    "numerics: {dtype: bf16}\n"
    "train: {micro_batch_tokens: 16384}\n"
    "runtime: {place: device}\n";

/* The paper's parts of a call, which follow one another; its code has them in an
 * outer loop ("split mini-batches in the outer loop"), so that each fills the
 * pipeline anew. Training has them in one pipeline; of the 70B plans' a quarter of
 * the samples is priced, and of the mini-batches. */
static int parts_of(const struct published *p, int call)
{
    if (call < TRAINED)
        return p->call[call].micro_batches;
    return p->nodes == 16 ? QUARTER : 1;
}

/* A part is cut for the pipeline into as many as there are stages, and twice as
 * many of each of the paper's micro-batches where it trains (its code does so).
 * Generation's are batches: instances of so many slots. */
static int32_t micro_batches(const struct published *p, int call)
{
    int32_t pp = p->call[call].pp, n = p->call[call].micro_batches;
    return call == GENERATED ? 0
         : call < TRAINED    ? pp
         : pp > 1            ? 2 * pp * n
                             : n;
}

/* One call as published, of a node's first devices on. Training has Megatron's
 * distributed optimizer (ZeRO 1) and recomputes activations. */
static struct weft_call_plan call_plan(const struct published *p, int call)
{
    bool trains = call >= TRAINED;
    return (struct weft_call_plan){.mesh = {0, p->call[call].nodes, 0, 8},
                                   .dp = p->call[call].dp,
                                   .tp = p->call[call].tp,
                                   .pp = p->call[call].pp,
                                   .micro_batches = micro_batches(p, call),
                                   .zero = trains,
                                   .recompute = trains};
}

/* The configuration of a run with a part of a call's samples. */
static void describe(const char *dir, const struct published *p, int call,
                     struct weft_config *config, struct weft_run_needs *needs)
{
    enum { WORDS = 7 };
    int parts = parts_of(p, call), samples = p->samples / parts;
    char path[600], word[WORDS][700];
    const char *words[WORDS];
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(word[0], sizeof word[0], "model.actor=%s/%s", dir, p->actor);
    snprintf(word[1], sizeof word[1], "model.reference=%s/%s", dir, p->actor);
    snprintf(word[2], sizeof word[2], "model.critic=%s/7b", dir);
    snprintf(word[3], sizeof word[3], "rollout.prompts=%d", samples);
    snprintf(word[4], sizeof word[4], "rollout.slots=%d",
             samples / p->call[call].dp / p->call[call].pp);
    snprintf(word[5], sizeof word[5], "numerics.gradient_groups=%d",
             p->call[call].dp);
    snprintf(word[6], sizeof word[6], "ppo.mini_batches=%d",
             call < TRAINED ? 1 : MINI_BATCHES / parts);
    for (int i = 0; i < WORDS; i++)
        words[i] = word[i];
    CHECK(weft_run_config_read(path, WORDS, words, config, &err));
    CHECK(weft_run_needs_read(config, p->nodes, 8, 0, needs, &err));
}

static double predict_call(const char *dir, const struct published *p,
                           const struct weft_cluster *cluster, int call)
{
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = real_links(cluster, p->call[call].tp);
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true};
    const struct weft_call_plan plan = call_plan(p, call);
    struct weft_priced price[WEFT_MAX_CALLS] = {{0}};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_pricer *pricer;
    describe(dir, p, call, &config, &needs);
    int32_t at = weft_flow_find_call(&needs.flow, call_name[call]);
    CHECK(
        weft_pricer_create(&config, &needs.plan, &how, true, &pricer, &err));
    CHECK(weft_pricer_price(pricer, &plan, 1u << at, price, &err));
    weft_pricer_free(pricer);
    weft_config_release(&config);
    return parts_of(p, call) * price[at].seconds;
}

/* An iteration by ReaL's algorithm 1: generation, then what infers, then what
 * trains, each as soon as its nodes are free. Moves of weights and samples are
 * left out. */
static double iteration_s(const struct published *p, const double *call_s)
{
    double free_s[16] = {0}, ready_s = 0, end_s = 0;
    for (int c = 0; c < N_CALLS; c++) {
        double start_s = ready_s;
        if (c == 1 || c == TRAINED)
            start_s = ready_s = end_s;
        for (int n = p->call[c].node; n < p->call[c].node + p->call[c].nodes;
             n++)
            start_s = fmax(start_s, free_s[n]);
        for (int n = p->call[c].node; n < p->call[c].node + p->call[c].nodes;
             n++)
            free_s[n] = start_s + call_s[c];
        end_s = fmax(end_s, start_s + call_s[c]);
    }
    return end_s;
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

static double cell(const char *dir, const struct weft_cluster *cluster,
                   double slow, double layer_s, int plan, int call)
{
    struct weft_cluster c = real_calibrated(cluster, 1 / slow, layer_s);
    return predict_call(dir, &published[plan], &c, call);
}

/* Seconds are nearly linear in layer_s and in the inverse of the factor. */
static void calibrate(const char *dir, const struct weft_cluster *cluster)
{
    double trained_s = published[1].call[TRAINED].seconds;
    double generated_s = published[0].call[GENERATED].seconds;
    double slow = 1 / REAL_BY_ROWS, layer_s = REAL_LAYER_S, step = 1e-5;
    for (int round = 0; round < 2; round++) {
        slow = at_line(
            slow, cell(dir, cluster, slow, layer_s, 1, TRAINED), slow / 0.8,
            cell(dir, cluster, slow / 0.8, layer_s, 1, TRAINED), trained_s);
        layer_s = at_line(
            layer_s, cell(dir, cluster, slow, layer_s, 0, GENERATED),
            layer_s + step,
            cell(dir, cluster, slow, layer_s + step, 0, GENERATED),
            generated_s);
    }
    printf("calibrated on two cells: by_rows times %.3f (bench/real.h has "
           "%.3f), layer_us %.0f (%.0f; the file has %.0f)\n",
           1 / slow, REAL_BY_ROWS, 1e6 * layer_s, 1e6 * REAL_LAYER_S,
           1e6 * cluster->kind[0].layer_s);
}

/* ---- The table ---------------------------------------------------------- */

static double error_of(double predicted, double value)
{
    return 100 * (predicted / value - 1);
}

static void predict(const char *dir, const struct weft_cluster *cluster,
                    double call_s[N_PLANS][N_CALLS])
{
    double error[N_PLANS * N_CALLS];
    int n = 0;
    printf("%-22s %-15s %10s %10s %8s\n", "ReaL, tables 2 to 6", "call",
           "published", "predicted", "error %");
    for (int i = 0; i < N_PLANS; i++)
        for (int c = 0; c < N_CALLS; c++) {
            const struct published *p = &published[i];
            bool fitted = is_fitted(i, c);
            call_s[i][c] = predict_call(dir, p, cluster, c);
            double e = error_of(call_s[i][c], p->call[c].seconds);
            printf("%-22s %-15s %10.1f %10.1f %8.1f%s\n", p->name,
                   call_name[c], p->call[c].seconds, call_s[i][c], e,
                   fitted ? " calibrated" : "");
            fflush(stdout);
            add_row(&(struct row){fitted ? ROW_CALIBRATED : ROW_PREDICTED,
                                  "ReaL", p->name, call_name[c], "s",
                                  p->call[c].seconds, call_s[i][c], NULL});
            if (!fitted)
                error[n++] = fabs(e);
        }
    double median = median_sort(error, n);
    printf("calls: median error %.1f %%, largest %.1f %% (of %d)\n", median,
           error[n - 1], n);
}

/* Seconds of an iteration, and the searched plan's gain. */
static void print_iterations(double call_s[N_PLANS][N_CALLS])
{
    for (int i = 0; i < N_PLANS; i += 2) {
        double s[2];
        for (int k = 0; k < 2; k++) {
            const struct published *p = &published[i + k];
            s[k] = iteration_s(p, call_s[i + k]);
            printf("%-22s iteration %.1f published, %.1f predicted\n",
                   p->name, p->all_s, s[k]);
            add_row(&(struct row){ROW_PREDICTED, "ReaL", p->name, "iteration",
                                  "s", p->all_s, s[k], "sums up its calls"});
        }
        double gain = published[i].all_s / published[i + 1].all_s;
        printf("    searched over heuristic: %.2f published, %.2f "
               "predicted\n",
               gain, s[0] / s[1]);
        add_row(&(struct row){ROW_PREDICTED, "ReaL", published[i + 1].name,
                              "over heuristic", "times", gain, s[0] / s[1],
                              NULL});
    }
}

/* The heuristic's plan with some of the searched one's calls. */
static double mixed_s(int heuristic, double call_s[N_PLANS][N_CALLS],
                      int n_taken, const int *taken)
{
    struct published p = published[heuristic];
    double s[N_CALLS];
    memcpy(s, call_s[heuristic], sizeof s);
    for (int i = 0; i < n_taken; i++) {
        p.call[taken[i]] = published[heuristic + 1].call[taken[i]];
        s[taken[i]] = call_s[heuristic + 1][taken[i]];
    }
    return iteration_s(&p, s);
}

static void print_ladder(double call_s[N_PLANS][N_CALLS])
{
    static const struct {
        const char *name;
        int n_taken; /* of the order below */
    } step[] = {{"heuristic", 0},
                {"generation", 1},
                {"training", 3},
                {"inference", 6}};
    static const int order[N_CALLS] = {GENERATED, TRAINED, TRAINED + 1,
                                       1,         2,       3};
    printf("Figure 9, one decision after the other, s an iteration\n");
    for (int i = 0; i < N_PLANS; i += 2) {
        double before = INFINITY;
        bool falls = true;
        printf("%-22s", published[i + 1].name);
        for (size_t k = 0; k < WEFT_COUNT(step); k++) {
            double now = mixed_s(i, call_s, step[k].n_taken, order);
            printf(" %s %.1f", step[k].name, now);
            falls = falls && now < before;
            before = now;
        }
        printf("\n    each step faster than the one before: %s\n",
               falls ? "met" : "missed");
        add_row(&(struct row){ROW_ORDER, "ReaL", published[i + 1].name,
                              "figure 9, each step is faster", "", 1, falls,
                              NULL});
    }
}

int main(int argc, char **argv)
{
    char dir[256], path[600];
    struct weft_cluster file, cluster;
    double call_s[N_PLANS][N_CALLS], start = weft_clock_s();
    bool calibrates = argc == 3 && strcmp(argv[2], "--calibrate") == 0;
    if (argc != 2 && !calibrates) {
        fprintf(stderr, "usage: papers CLUSTER.yaml [--calibrate]\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &file, &err));
    cluster = real_calibrated(&file, REAL_BY_ROWS, REAL_LAYER_S);
    real_folder(dir, sizeof dir);
    made_prompts(dir, "prompts.jsonl", 4096, 1024, 1024);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
    if (calibrates) {
        calibrate(dir, &file);
    } else {
        predict(dir, &cluster, call_s);
        print_iterations(call_s);
        print_ladder(call_s);
    }
    weft_dir_remove(dir, NULL);
    printf("%.0f s\n", weft_clock_s() - start);
    return 0;
}
