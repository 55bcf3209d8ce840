/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What published systems measured beside what Weft predicts of the same plans.
 *
 *     bench/papers CLUSTER.yaml [--only SECTION]
 *
 * with examples/clusters/real_h100.yaml. SECTION: calibrate, tables or figure9.
 *
 * ReaL (Efficient RLHF Training of LLMs with Parameter Reallocation), appendix
 * A, tables 2 to 6: four plans for PPO on H100, each with the seconds of its
 * calls. Two numbers of the cluster file are calibrated, each on one of the 24
 * cells, and all others are predicted:
 *   - the share of their peak that products reach (by_rows), by one factor: on
 *     the actor's training, 7B + 7B, searched plan;
 *   - layer_us, what a layer takes beside its work (in decode steps mostly
 *     launches): on generation, 7B + 7B, heuristic plan.
 *
 * Figure 9 goes from the heuristic to the searched plan one decision at a time:
 * generation's layout, then training's, then inference's, simulated as a whole.
 * (Its first, CUDA graphs, is no decision of a plan: layer_us has them.) The
 * text has no numbers of it but that each step is faster than the one before.
 */
#include "base/clock.h"
#include "bench/real.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/price.h"

enum { N_CALLS = 6, N_PLANS = 4, TRAINED = 4, GENERATED = 0 };

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

struct predicted {
    double call_s[N_CALLS];
};

/* Samples that are simulated. */
static int samples_of(const struct published *p, bool whole)
{
    return whole && p->nodes == 16 ? p->samples / QUARTER : p->samples;
}

/* The paper's micro-batches are parts that pass one after the other; each is
 * cut for the pipeline into pp, or 2 pp where it trains (its code does so).
 * Those of generation are batches, of which pp parts are on their way at a time:
 * instances of so many slots. Training has Megatron's
 * distributed optimizer (ZeRO 1) and recomputes activations. */
static int32_t micro_batches(const struct published *p, int call, bool trains)
{
    int32_t pp = p->call[call].pp, n = p->call[call].micro_batches;
    return call == GENERATED ? 0 : trains && pp > 1 ? 2 * pp * n : pp * n;
}

static void lay_out(const struct published *p,
                    const struct weft_plan_needs *needs,
                    struct weft_plan *plan)
{
    weft_plan_begin(needs, plan);
    for (int c = 0; c < N_CALLS; c++) {
        int32_t at = weft_flow_find_call(&plan->flow, call_name[c]);
        bool trains = weft_flow_trains(&plan->flow, at);
        plan->call[at] = (struct weft_call_plan){
            .mesh = {.node = p->call[c].node,
                     .n_nodes = p->call[c].nodes,
                     .n_devices = needs->n_devices},
            .dp = p->call[c].dp,
            .tp = p->call[c].tp,
            .pp = p->call[c].pp,
            .micro_batches = micro_batches(p, c, trains),
            .zero = trains,
            .recompute = trains};
    }
    CHECK(weft_plan_check(plan, needs, &err));
}

/* The configuration of a plan's run, and the plan. whole: as it is simulated. */
static void describe(const char *dir, const struct published *p, bool whole,
                     struct weft_config *config, struct weft_run_needs *needs,
                     struct weft_plan *plan)
{
    enum { WORDS = 7 };
    int samples = samples_of(p, whole);
    char path[600], word[WORDS][700];
    const char *words[WORDS];
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(word[0], sizeof word[0], "model.actor=%s/%s", dir, p->actor);
    snprintf(word[1], sizeof word[1], "model.reference=%s/%s", dir, p->actor);
    snprintf(word[2], sizeof word[2], "model.critic=%s/7b", dir);
    snprintf(word[3], sizeof word[3], "rollout.prompts=%d", samples);
    snprintf(word[4], sizeof word[4], "rollout.slots=%d",
             p->samples / p->call[GENERATED].dp
                 / p->call[GENERATED].micro_batches / p->call[GENERATED].pp);
    snprintf(word[5], sizeof word[5], "numerics.gradient_groups=%d",
             p->call[TRAINED].dp);
    snprintf(word[6], sizeof word[6], "ppo.mini_batches=%d",
             8 * samples / p->samples);
    for (int i = 0; i < WORDS; i++)
        words[i] = word[i];
    CHECK(weft_run_config_read(path, WORDS, words, config, &err));
    CHECK(weft_run_needs_read(config, p->nodes, 8, 0, needs, &err));
    lay_out(p, &needs->plan, plan);
}

/* Some calls (bits). */
static void predict_calls(const char *dir, const struct published *p,
                          const struct weft_cluster *cluster, unsigned calls,
                          struct predicted *out)
{
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan;
    describe(dir, p, false, &config, &needs, &plan);
    for (int c = 0; c < N_CALLS; c++) {
        int32_t at = weft_flow_find_call(&plan.flow, call_name[c]);
        struct weft_cluster links = real_links(cluster, p->call[c].tp);
        const struct weft_simulate_options how = {.cluster = &links,
                                                  .lengths = &lengths,
                                                  .iterations = 3,
                                                  .gangs = true};
        struct weft_priced price[WEFT_MAX_CALLS] = {{0}};
        struct weft_call_plan one = plan.call[at];
        struct weft_pricer *pricer;
        one.mesh.node = 0;
        if (!(calls >> c & 1))
            continue;
        CHECK(weft_pricer_create(&config, &needs.plan, &how, true, &pricer,
                                 &err));
        CHECK(weft_pricer_price(pricer, &one, 1u << at, price, &err));
        weft_pricer_free(pricer);
        out->call_s[c] = price[at].seconds;
    }
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* The iteration, with links as training has them. */
static double predict_whole(const char *dir, const struct published *p,
                            const struct weft_cluster *cluster)
{
    const struct weft_g_job job = {
        .n_ranks = p->nodes, .n_devices = 8, .place_per_device = true};
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = real_links(cluster, p->call[TRAINED].tp);
    struct weft_simulated simulated;
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true,
                                              .simulated = &simulated};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan;
    describe(dir, p, true, &config, &needs, &plan);
    CHECK(weft_run_simulate(&config, &job, &plan, &how, NULL, &err));
    weft_plan_release(&plan);
    weft_config_release(&config);
    return simulated.iteration_s * p->samples / samples_of(p, true);
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
    struct predicted got;
    predict_calls(dir, &published[plan], &c, 1u << call, &got);
    return got.call_s[call];
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

/* ---- Figure 9 ------------------------------------------------------------ */

/* The heuristic's plan with some of the searched one's calls, in the place of
 * the searched one. */
static struct published mixed_plan(int heuristic, int n_taken,
                                   const int *taken)
{
    struct published p = published[heuristic];
    for (int i = 0; i < n_taken; i++)
        p.call[taken[i]] = published[heuristic + 1].call[taken[i]];
    return p;
}

static void print_ladder(const char *dir, const struct weft_cluster *cluster)
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
        double first = 0, before = INFINITY;
        bool falls = true;
        printf("%-22s", published[i + 1].name);
        for (size_t k = 0; k < WEFT_COUNT(step); k++) {
            struct published p = mixed_plan(i, step[k].n_taken, order);
            double now = predict_whole(dir, &p, cluster);
            printf(" %s %.1f", step[k].name, now);
            falls = falls && now < before;
            before = now;
            first = k == 0 ? now : first;
            fflush(stdout);
        }
        printf("\n    times the heuristic's speed: %.2f published, %.2f "
               "predicted; each step faster than the one before: %s\n",
               published[i].all_s / published[i + 1].all_s, first / before,
               falls ? "met" : "missed");
    }
}

/* ---- The table ---------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double error_of(double predicted, double value)
{
    return 100 * (predicted / value - 1);
}

static void print_tables(const char *dir, const struct weft_cluster *cluster)
{
    double error[N_PLANS * N_CALLS];
    int n = 0;
    printf("%-22s %-15s %10s %10s %8s\n", "ReaL, tables 2 to 6", "call",
           "published", "predicted", "error %");
    for (int i = 0; i < N_PLANS; i++) {
        const struct published *p = &published[i];
        struct predicted got;
        predict_calls(dir, p, cluster, (1u << N_CALLS) - 1, &got);
        for (int c = 0; c < N_CALLS; c++) {
            bool fitted = is_fitted(i, c);
            double e = error_of(got.call_s[c], p->call[c].seconds);
            printf("%-22s %-15s %10.1f %10.1f %8.1f%s\n", p->name,
                   call_name[c], p->call[c].seconds, got.call_s[c], e,
                   fitted ? " calibrated" : "");
            if (!fitted)
                error[n++] = fabs(e);
        }
        fflush(stdout);
    }
    qsort(error, (size_t) n, sizeof *error, by_size);
    printf("calls: median error %.1f %%, largest %.1f %% (of %d)\n",
           (error[(n - 1) / 2] + error[n / 2]) / 2, error[n - 1], n);
}

static bool chosen(int argc, char **argv, const char *section)
{
    return argc == 2 || strcmp(argv[3], section) == 0;
}

int main(int argc, char **argv)
{
    char dir[256], path[600];
    struct weft_cluster file, cluster;
    double start = weft_clock_s();
    if (argc != 2 && (argc != 4 || strcmp(argv[2], "--only") != 0)) {
        fprintf(stderr, "usage: papers CLUSTER.yaml [--only SECTION]\n"
                        "sections: calibrate, tables, figure9\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &file, &err));
    cluster = real_calibrated(&file, REAL_BY_ROWS, REAL_LAYER_S);
    real_folder(dir, sizeof dir);
    made_prompts(dir, "prompts.jsonl", 4096, 1024, 1024);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
    if (chosen(argc, argv, "calibrate"))
        calibrate(dir, &file);
    if (chosen(argc, argv, "tables"))
        print_tables(dir, &cluster);
    if (chosen(argc, argv, "figure9"))
        print_ladder(dir, &cluster);
    weft_dir_remove(dir, NULL);
    printf("%.0f s\n", weft_clock_s() - start);
    return 0;
}
