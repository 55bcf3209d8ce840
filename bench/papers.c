/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What published systems measured beside what Weft predicts of the same plans.
 *
 *     bench/papers examples/clusters/real_h100.yaml
 *
 * ReaL (Efficient RLHF Training of LLMs with Parameter Reallocation), appendix
 * A, tables 2 to 6: four plans for PPO on H100, each with the seconds of its
 * calls. Two numbers of the cluster file are calibrated, each on one of the 24
 * cells, and all others are predicted:
 *   - the share of their peak that products reach (by_rows), by one factor: on
 *     the actor's training, 7B + 7B, searched plan;
 *   - layer_us, what a layer takes beside its work (in decode steps mostly
 *     launches): on generation, 7B + 7B, heuristic plan.
 * Members of a tp group of P send each other P - 1 whole f32 sums here, where
 * the paper's systems send 2 (P - 1) / P bf16 ones: P times less. So a call's
 * links inside a node are taken as P times as fast.
 *
 * Figure 9 goes from the heuristic to the searched plan one decision at a time:
 * generation's layout, then training's, then inference's, simulated as a whole.
 * (Its first, CUDA graphs, is no decision of a plan: layer_us has them.) The
 * text has no numbers of it but that each step is faster than the one before.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/made.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/price.h"

static const struct made_size sizes[] = {
    {"7b", 4096, 32, 32, 8, 14336, 128256}, /* table 1 */
    {"70b", 8192, 80, 64, 8, 28672, 128256}};

enum { N_CALLS = 6, N_PLANS = 4, TRAINED = 4, GENERATED = 0 };

static const char *const call_name[N_CALLS] = {
    "actor_generate", "reward_infer", "ref_infer",
    "critic_infer",   "actor_train",  "critic_train"};

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
    "ppo: {mini_batches: 8}\n"
    "numerics: {dtype: bf16}\n"
    "train: {micro_batch_tokens: 16384}\n"
    "runtime: {place: device}\n";

struct predicted {
    double call_s[N_CALLS], all_s;
};

/* The paper's micro-batches are parts that pass one after the other; each is
 * cut for the pipeline into pp, or 2 pp where it trains (its code does so).
 * Those of generation are batches: rollout.slots. Training has Megatron's
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

/* The configuration of a plan's run, and the plan. */
static void describe(const char *dir, const struct published *p,
                     struct weft_config *config, struct weft_run_needs *needs,
                     struct weft_plan *plan)
{
    char path[600], word[6][700];
    const char *words[6];
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(word[0], sizeof word[0], "model.actor=%s/%s", dir, p->actor);
    snprintf(word[1], sizeof word[1], "model.reference=%s/%s", dir, p->actor);
    snprintf(word[2], sizeof word[2], "model.critic=%s/7b", dir);
    snprintf(word[3], sizeof word[3], "rollout.prompts=%d", p->samples);
    snprintf(word[4], sizeof word[4], "rollout.slots=%d",
             p->samples / p->call[GENERATED].dp
                 / p->call[GENERATED].micro_batches);
    snprintf(word[5], sizeof word[5], "numerics.gradient_groups=%d",
             p->call[TRAINED].dp);
    for (int i = 0; i < 6; i++)
        words[i] = word[i];
    CHECK(weft_run_config_read(path, 6, words, config, &err));
    CHECK(weft_run_needs_read(config, p->nodes, 8, 0, needs, &err));
    lay_out(p, &needs->plan, plan);
}

/* Calls with this tp. */
static void predict_tp(const char *dir, const struct published *p, int tp,
                       const struct weft_cluster *cluster,
                       struct predicted *out)
{
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = *cluster;
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan;
    struct weft_pricer *pricer;
    struct weft_priced price[WEFT_MAX_CALLS] = {{0}};
    links.kind[0].inside.bytes_per_s *= tp;
    describe(dir, p, &config, &needs, &plan);
    CHECK(
        weft_pricer_create(&config, &needs.plan, &how, true, &pricer, &err));
    for (int c = 0; c < N_CALLS; c++) {
        int32_t at = weft_flow_find_call(&plan.flow, call_name[c]);
        struct weft_call_plan one = plan.call[at];
        one.mesh.node = 0;
        if (p->call[c].tp != tp)
            continue;
        CHECK(weft_pricer_price(pricer, &one, 1u << at, price, &err));
        out->call_s[c] = price[at].seconds;
    }
    weft_pricer_free(pricer);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

/* The iteration, with links as training has them. */
static void predict_whole(const char *dir, const struct published *p,
                          const struct weft_cluster *cluster,
                          struct predicted *out)
{
    const struct weft_g_job job = {
        .n_ranks = p->nodes, .n_devices = 8, .place_per_device = true};
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    struct weft_cluster links = *cluster;
    struct weft_simulated simulated;
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true,
                                              .simulated = &simulated};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan;
    links.kind[0].inside.bytes_per_s *= p->call[TRAINED].tp;
    describe(dir, p, &config, &needs, &plan);
    CHECK(weft_run_simulate(&config, &job, &plan, &how, NULL, &err));
    out->all_s = simulated.iteration_s;
    weft_plan_release(&plan);
    weft_config_release(&config);
}

static void predict(const char *dir, const struct published *p,
                    const struct weft_cluster *cluster, bool whole,
                    struct predicted *out)
{
    for (int tp = 1; tp <= 8; tp *= 2) {
        int n = 0;
        for (int c = 0; c < N_CALLS; c++)
            n += p->call[c].tp == tp;
        if (n > 0)
            predict_tp(dir, p, tp, cluster, out);
    }
    if (whole)
        predict_whole(dir, p, cluster, out);
}

/* ---- Calibration -------------------------------------------------------- */

static struct weft_cluster calibrated(const struct weft_cluster *cluster,
                                      double factor, double layer_s)
{
    struct weft_cluster c = *cluster;
    struct weft_size_table *by_rows = &c.kind[0].by_rows;
    for (int32_t i = 0; i < by_rows->n; i++)
        by_rows->value[i] = fmin(1, by_rows->value[i] * factor);
    c.kind[0].layer_s = layer_s;
    return c;
}

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

/* Seconds are nearly linear in layer_s and in the inverse of the factor. */
static struct weft_cluster calibrate(const char *dir,
                                     const struct weft_cluster *cluster)
{
    const struct published *p = published;
    double trained_s = p[1].call[TRAINED].seconds;
    double generated_s = p[0].call[GENERATED].seconds;
    double slow = 1, layer_s = cluster->kind[0].layer_s;
    struct predicted a, b;
    for (int round = 0; round < 3; round++) {
        struct weft_cluster c = calibrated(cluster, 1 / slow, layer_s);
        predict(dir, &p[1], &c, false, &a);
        c = calibrated(cluster, 0.8 / slow, layer_s);
        predict(dir, &p[1], &c, false, &b);
        slow = at_line(slow, a.call_s[TRAINED], slow / 0.8, b.call_s[TRAINED],
                       trained_s);
        c = calibrated(cluster, 1 / slow, layer_s);
        predict(dir, &p[0], &c, false, &a);
        c = calibrated(cluster, 1 / slow, layer_s + 1e-5);
        predict(dir, &p[0], &c, false, &b);
        layer_s = fmax(0,
                       at_line(layer_s, a.call_s[GENERATED], layer_s + 1e-5,
                               b.call_s[GENERATED], generated_s));
    }
    printf("calibrated on two cells: by_rows times %.3f, layer_us "
           "%.0f (the file has %.0f)\n",
           1 / slow, 1e6 * layer_s, 1e6 * cluster->kind[0].layer_s);
    return calibrated(cluster, 1 / slow, layer_s);
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

static void print_ladder(const char *dir, const struct weft_cluster *cluster,
                         const struct predicted got[])
{
    static const struct {
        const char *name;
        int n_taken; /* of the order below */
    } step[] = {{"generation", 1}, {"training", 3}, {"inference", 6}};
    static const int order[N_CALLS] = {GENERATED, TRAINED, TRAINED + 1,
                                       1,         2,       3};
    printf("\nFigure 9, one decision after the other, s an iteration\n");
    for (int i = 0; i < N_PLANS; i += 2) {
        double before = got[i].all_s;
        bool falls = true;
        printf("%-22s %.1f", published[i].name, before);
        for (size_t k = 0; k < WEFT_COUNT(step); k++) {
            struct published p = mixed_plan(i, step[k].n_taken, order);
            struct predicted mixed = got[i + 1];
            if (step[k].n_taken < N_CALLS)
                predict_whole(dir, &p, cluster, &mixed);
            double now = mixed.all_s;
            printf(", %s %.1f", step[k].name, now);
            falls = falls && now < before;
            before = now;
            fflush(stdout);
        }
        printf(": each faster than the one before: %s\n",
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

int main(int argc, char **argv)
{
    char dir[256], path[600];
    struct weft_cluster cluster;
    struct predicted got[N_PLANS];
    double error[N_PLANS * N_CALLS];
    int n = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: papers CLUSTER.yaml\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &cluster, &err));
    snprintf(dir, sizeof dir, "%s/weft-papers-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir)) {
        perror("papers");
        return 1;
    }
    made_model(dir, "7b", &sizes[0], false);
    made_model(dir, "70b", &sizes[1], false);
    made_model(dir, "reward", &sizes[0], true);
    made_prompts(dir, "prompts.jsonl", 4096, 1024, 1024);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
    cluster = calibrate(dir, &cluster);
    printf("\n%-22s %-15s %10s %10s %8s\n", "ReaL, tables 2 to 6", "call",
           "published", "predicted", "error %");
    for (int i = 0; i < N_PLANS; i++) {
        const struct published *p = &published[i];
        predict(dir, p, &cluster, true, &got[i]);
        for (int c = 0; c < N_CALLS; c++) {
            bool fitted = is_fitted(i, c);
            double e = error_of(got[i].call_s[c], p->call[c].seconds);
            printf("%-22s %-15s %10.1f %10.1f %8.1f%s\n", p->name,
                   call_name[c], p->call[c].seconds, got[i].call_s[c], e,
                   fitted ? " calibrated" : "");
            if (!fitted)
                error[n++] = fabs(e);
        }
        printf("%-22s %-15s %10.1f %10.1f %8.1f\n", p->name, "iteration",
               p->all_s, got[i].all_s, error_of(got[i].all_s, p->all_s));
        fflush(stdout);
    }
    qsort(error, (size_t) n, sizeof *error, by_size);
    printf("\ncalls: median error %.1f %%, largest %.1f %% (of %d)\n",
           (error[(n - 1) / 2] + error[n / 2]) / 2, error[n - 1], n);
    for (int i = 0; i < N_PLANS; i += 2)
        printf("%-22s %.2f times the heuristic's speed published, %.2f "
               "predicted\n",
               published[i + 1].name,
               published[i].all_s / published[i + 1].all_s,
               got[i].all_s / got[i + 1].all_s);
    print_ladder(dir, &cluster, got);
    weft_dir_remove(dir, NULL);
    return 0;
}
