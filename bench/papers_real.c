/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReaL's gains over its heuristic (section 8) beside what prices make of them:
 * weak scaling, a context of 8,192 tokens, and DPO, GRPO and ReMax.
 *
 *     bench/papers_real CLUSTER.yaml [--only NAME]
 *
 * with examples/clusters/real_h100.yaml. NAME: of those alone whose names begin
 * so; "systems": those with a name.
 *
 * All calls have all devices and follow one another. Three kinds of plan are
 * priced:
 *   - the heuristic (section 8.1) gives all calls one layout: tp in a node, the
 *     fewest stages with which memory suffices, dp for the rest. With 70B it is
 *     that of table 3, as 7B that of table 5.
 *   - ReaL's: PPO 7B and 70B have the plans of tables 2 and 4. DPO, GRPO and ReMax,
 *     whose plans are not published, have call by call what the plan of PPO 70B
 *     has, and 7B with a context of 8,192 tokens what that of PPO 7B has. ReMax's
 *     two generations are beside one another on a half of the devices each
 *     (section 8.3). PPO 13B and 34B have own layouts.
 *   - own: each call has the fastest of the layouts with tp up to 8 and up to 16
 *     stages that fit together (4 in generation, as in all published plans).
 * Generation is in batches, one after the other, whose number ReaL's search does
 * not choose: the heuristic has 4, with 70B 8 (tables 3 and 5). Own layouts have as
 * few as there can be, of up to 128 samples of a replica, as ReaL's plan of 7B + 7B,
 * and read the prompt of a group once, which ReaL does not; but they never have
 * calls beside one another, as it has.
 *
 * The cluster has the numbers that bench/papers calibrates. Prompts have
 * 1,024 tokens and responses are as long as they can
 * be; an iteration has 8 mini-batches, of which one in `share` is priced, as one
 * batch of generation is. DPO, GRPO and ReMax have the base setting's 512 prompts
 * (appendix A), GRPO groups of 8; DPO makes one step of all. Training has ZeRO 1 and
 * recomputes activations.
 *
 * Of DPO, GRPO and ReMax the paper has PFLOP/s. Operations are counted here as its
 * code does (realhf/base/monitor.py and realhf/system/master_worker.py of
 * github.com/openpsi-project/ReaLHF at be75fce): training four forward passes, all
 * heads with keys of their own, and a pair or a group as one sequence.
 */
#include "base/clock.h"
#include "bench/real_layouts.h"
#include "bench/rows.h"
#include "plan/strategy.h"

static const struct compared {
    struct job job;
    int plans;   /* its published ones, the heuristic's first; -1: none */
    int batches; /* the heuristic's of generation, where it has no plan */
    double gain; /* published; 0: none of this alone */
    double pflops[2]; /* published, of the heuristic and of ReaL */
    bool flagged;
    const char *why;
} jobs[] = {
    {{"PPO 7B + 7B", "ppo", REAL_7B, 2, 512, 1, 1024, 8, 1},
     .plans = REAL_7B_PLANS},
    {{"PPO 13B + 7B", "ppo", REAL_13B, 4, 1024, 1, 1024, 8, 2},
     .plans = -1,
     .batches = 4},
    {{"PPO 34B + 7B", "ppo", REAL_34B, 8, 2048, 1, 1024, 8, 4},
     .plans = -1,
     .batches = 4},
    {{"PPO 70B + 7B", "ppo", REAL_70B, 16, 4096, 1, 1024, 8, 4},
     .plans = REAL_70B_PLANS},
    {{"8,192 PPO, 4 batches", "ppo", REAL_7B, 2, 128, 1, 7168, 8, 1},
     .plans = REAL_7B_PLANS,
     .gain = 1.81,
     .flagged = true,
     .why =
         "the paper does not say for which models, nor in how many batches "
         "its plans generate then; these are those of tables 4 and 5"},
    {{"8,192 PPO, 1 batch", "ppo", REAL_7B, 2, 128, 1, 7168, 8, 1},
     -1,
     1,
     1.81,
     .flagged = true,
     .why = "as the one before; the heuristic in one batch, ReaL's plan by "
            "own layouts"},
    {{"DPO 70B", "dpo", REAL_70B, 16, 512, 1, 1024, 1, 1},
     .plans = REAL_70B_PLANS,
     .gain = 1.53,
     .pflops = {32.84, 50.38}},
    {{"GRPO 70B", "grpo", REAL_70B, 16, 4096, 8, 1024, 8, 4},
     .plans = REAL_70B_PLANS,
     .gain = 1.17,
     .pflops = {60.96, 71.12},
     .flagged = true,
     .why = "its PFLOP/s are 3.3 and 2.7 times those of the same calls in "
            "table 6"},
    {{"ReMax 70B", "remax", REAL_70B, 16, 512, 1, 1024, 8, 1},
     .plans = REAL_70B_PLANS,
     .gain = 2.91,
     .pflops = {2.49, 7.23}}};
enum { N_SCALED = 4, DPO = 6, GRPO, REMAX }; /* the first: weak scaling */

/* What is predicted of a job, in seconds. */
struct predicted {
    double heuristic_s, real_s, own_s;
};

/* ---- Operations --------------------------------------------------------- */

/* A forward pass of n sequences, as the paper's code counts it. */
static double forward_flop(const struct made_size *s, double n, double tokens)
{
    double h = s->hidden, all = n * tokens;
    return 2 * s->layers
             * (all * (4 * h * h + 3 * h * s->intermediate)
                + 2 * n * tokens * tokens * h)
         + 4 * all * s->vocab * h;
}

static double generate_flop(const struct made_size *s, double n,
                            double prompt, double response)
{
    double h = s->hidden, all = n * response;
    double keys = all * (prompt + (response + 1) / 2);
    return forward_flop(s, n, prompt)
         + 2 * s->layers
               * (all * (4 * h * h + 3 * h * s->intermediate) + 2 * keys * h)
         + 4 * all * s->vocab * h;
}

/* Of an iteration. A pair and a group are one sequence, of which generation has
 * the prompt once. */
static double job_flop(const struct weft_dataflow *flow,
                       const struct job *job)
{
    double n = (double) job->samples / job->group, all = 0;
    int each = strcmp(job->algorithm, "dpo") == 0 ? 2 : job->group;
    for (int32_t c = 1; c < flow->n_calls; c++) {
        const struct weft_flow_call *call = &flow->call[c];
        if (!weft_flow_placed(flow, c))
            continue;
        const struct made_size *s =
            &real_size[flow->role[call->role].scalar ? REAL_7B : job->actor];
        double once = forward_flop(s, n, each * (PROMPT + job->response));
        all += call->kind == WEFT_GENERATE
                 ? generate_flop(s, n, PROMPT, job->response)
             : weft_flow_trains(flow, c) ? 4 * once
                                         : once;
    }
    return all;
}

/* ---- Choosing ----------------------------------------------------------- */

/* Bytes of a device: what calls hold, and the most that one needs beside. A
 * trained model's weights elsewhere and a KV cache are there for the call. */
static double bytes_of(const struct bench *b, const int *choice)
{
    double held = 0, most = 0;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct weft_priced *p = &b->option[choice[c]].price[c];
        bool keeps = weft_flow_trains(&b->flow, c)
                  || weft_flow_frozen(&b->flow, c);
        if (!weft_flow_placed(&b->flow, c))
            continue;
        held += keeps ? p->weights + p->state : 0;
        most = fmax(most, p->active + (keeps ? 0 : p->weights + p->state));
    }
    return held + most;
}

/* Generations in one layout of which half the replicas are priced are beside
 * one another where that is faster. */
static double seconds_of(const struct bench *b, const int *choice)
{
    double s = 0, generation_s = 0, beside_s = 0;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct option *o = &b->option[choice[c]];
        if (b->flow.call[c].kind != WEFT_GENERATE) {
            s += o->price[c].seconds;
            continue;
        }
        generation_s += o->price[c].seconds;
        beside_s = fmax(beside_s, o->half_s > 0 ? o->half_s : INFINITY);
    }
    return s + fmin(generation_s, beside_s > 0 ? beside_s : INFINITY);
}

/* Of a layout, with so many batches of generation, one after the other. */
static double batched_s(struct bench *b, const struct job *job, int choice,
                        int batches)
{
    const struct option *o = &b->option[choice];
    struct weft_priced price[WEFT_MAX_CALLS];
    double s = 0;
    memcpy(price, o->price, sizeof price);
    uint32_t generate, infer, train;
    sort_calls(&b->flow, &generate, &infer, &train);
    if (generate)
        price_generation(b, job, o, generate, batches, false, price);
    for (int32_t c = 1; c < b->flow.n_calls; c++)
        s += price[c].seconds;
    return s;
}

static bool fits(const struct bench *b, const int *choice)
{
    return bytes_of(b, choice) <= FULL * b->cluster.kind[0].memory_bytes;
}

/* One layout for all. Returns whether one fits. */
static bool choose_heuristic(const struct bench *b, int *choice)
{
    for (int i = 0; i < b->n && b->option[i].tp == GPUS; i++) {
        for (int c = 0; c < WEFT_MAX_CALLS; c++)
            choice[c] = i;
        if (fits(b, choice))
            return true;
    }
    return false;
}

/* From a choice that fits: changes calls to the layouts that save most, one at
 * a time, then two, as long as that fits. */
static void improve(const struct bench *b, int *choice)
{
    for (bool better = true; better;) {
        int best[WEFT_MAX_CALLS], try[WEFT_MAX_CALLS];
        double least = seconds_of(b, choice) * (1 - 1e-9);
        better = false;
        for (int32_t c = 1; c < b->flow.n_calls; c++)
            for (int32_t d = c; d < b->flow.n_calls; d++)
                for (int i = 0; i < b->n * b->n; i++) {
                    memcpy(try, choice, sizeof try);
                    try[c] = i / b->n;
                    try[d] = i % b->n;
                    double s = seconds_of(b, try);
                    if (s >= least || !fits(b, try))
                        continue;
                    least = s;
                    memcpy(best, try, sizeof best);
                    better = true;
                }
        if (better)
            memcpy(choice, best, sizeof best);
    }
}

static void show(const struct bench *b, const int *choice)
{
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        const struct option *o = &b->option[choice[c]];
        if (weft_flow_placed(&b->flow, c))
            printf("    %-16s dp%d tp%d pp%d %8.1f s\n", b->flow.call[c].name,
                   (int) o->dp, (int) o->tp, (int) o->pp,
                   o->price[c].seconds);
    }
}

/* ReaL's plan of a job, or its heuristic's. */
static double published_s(struct bench *b, const struct job *job,
                          const struct real_plan *p)
{
    bool alone = strcmp(job->algorithm, "ppo") == 0, first = true;
    bool halves = p->call[REAL_GENERATE].tp < GPUS
               && strcmp(job->algorithm, "remax") == 0;
    double call_s[N_REAL_CALLS] = {0}, all_s = 0;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        if (!weft_flow_placed(&b->flow, c))
            continue;
        bool generates = b->flow.call[c].kind == WEFT_GENERATE;
        double s = price_published(b, job, p, c, halves && generates);
        call_s[real_call_of(&b->flow, c)] = s;
        printf("    %-16s %8.1f s, %s\n", b->flow.call[c].name, s, p->name);
        if (!generates || !halves || first) /* the other is beside it */
            all_s += s;
        first = first && !generates;
    }
    fflush(stdout);
    return alone ? iteration_s(p, call_s) : all_s;
}

/* How many percent a choice is above the best within the model, at most: each
 * call's fastest layout, whatever fits together, bounds that. */
static double gap_of(const struct bench *b, const int *choice)
{
    double rest_s = 0, generation_s = 0, half_s = INFINITY;
    for (int32_t c = 1; c < b->flow.n_calls; c++) {
        double least_s = INFINITY;
        for (int i = 0; i < b->n; i++) {
            const struct option *o = &b->option[i];
            least_s = fmin(least_s, o->price[c].seconds);
            half_s = fmin(half_s, o->half_s > 0 ? o->half_s : INFINITY);
        }
        *(b->flow.call[c].kind == WEFT_GENERATE ? &generation_s
                                                : &rest_s) += least_s;
    }
    double least_s = rest_s + fmin(generation_s, half_s);
    return 100 * (seconds_of(b, choice) / least_s - 1);
}

/* False: nothing fits. */
static bool compare(struct bench *b, const struct compared *with,
                    struct predicted *out)
{
    const struct job *job = &with->job;
    int choice[WEFT_MAX_CALLS];
    b->shares = false;
    take_job(b, job);
    printf("%s, %d GPUs\n", job->name, job->nodes * GPUS);
    if (with->plans >= 0) {
        out->heuristic_s = published_s(b, job, &real_plan[with->plans]);
        out->real_s = published_s(b, job, &real_plan[with->plans + 1]);
    }
    b->shares = with->plans >= 0; /* the others are ReaL's, too */
    take_job(b, job);
    price_all(b, job);
    if (!choose_heuristic(b, choice)) {
        printf("    nothing fits\n");
        return false;
    }
    const struct option *o = &b->option[choice[1]];
    if (with->plans < 0) {
        out->heuristic_s = batched_s(b, job, choice[1], with->batches);
        printf("    heuristic dp%d tp%d pp%d\n", (int) o->dp, (int) o->tp,
               (int) o->pp);
    }
    improve(b, choice);
    out->own_s = seconds_of(b, choice);
    show(b, choice);
    printf("    heuristic %.1f s, ", out->heuristic_s);
    if (with->plans >= 0)
        printf("ReaL's plan %.1f s, ", out->real_s);
    printf("own layouts %.1f s, at most %.1f %% above the best\n", out->own_s,
           gap_of(b, choice));
    fflush(stdout);
    return true;
}

/* The gain: of ReaL's plan where it has one, else of own layouts. */
static double gain_of(const struct predicted *p)
{
    return p->heuristic_s / (p->real_s > 0 ? p->real_s : p->own_s);
}

/* Published seconds by operations, and what table 6 has for as many samples. */
static void print_flop(const struct bench *b, const struct compared *with,
                       const struct predicted *p)
{
    const struct job *job = &with->job;
    double flop = job_flop(&b->flow, job);
    double part = (strcmp(job->algorithm, "dpo") == 0 ? 2.0 : 1.0)
                * job->samples / real_plan[REAL_70B_PLANS].samples;
    double predicted_s[2] = {p->heuristic_s, p->real_s};
    for (int i = 0; i < 2; i++) {
        const struct real_plan *plan = &real_plan[REAL_70B_PLANS + i];
        double table_s = 0, rate = flop / predicted_s[i] / 1e15;
        for (int32_t c = 1; c < b->flow.n_calls; c++)
            if (weft_flow_placed(&b->flow, c))
                table_s += part
                         * plan->call[real_call_of(&b->flow, c)].seconds;
        printf("    %s: %.2f PFLOP/s published are %.1f s, %.2f predicted",
               i ? "ReaL" : "heuristic", with->pflops[i],
               flop / with->pflops[i] / 1e15, rate);
        if (strcmp(job->algorithm, "remax") != 0) /* few samples in a batch */
            printf("; table 6, by samples, has %.1f s", table_s);
        printf("\n");
        add_row(&(struct row){with->flagged ? ROW_FLAGGED : ROW_PREDICTED,
                              "ReaL", job->name, i ? "searched" : "heuristic",
                              "PFLOP/s", with->pflops[i], rate, with->why});
    }
}

static void report(const struct bench *b, const struct compared *with,
                   const struct predicted *p)
{
    double gain = gain_of(p);
    if (with->pflops[0] > 0)
        print_flop(b, with, p);
    printf("    over the heuristic: %.2f times", gain);
    if (with->gain > 0) {
        printf(", published %.2f, %+.0f %%", with->gain,
               100 * (gain / with->gain - 1));
        add_row(&(struct row){with->flagged ? ROW_FLAGGED : ROW_PREDICTED,
                              "ReaL", with->job.name, "over heuristic",
                              "times", with->gain, gain, with->why});
    }
    printf("\n");
    if (p->real_s > 0)
        add_row(&(struct row){ROW_MORE, "ReaL", with->job.name, "", "s",
                              p->real_s, p->own_s,
                              "each call's fastest layout, as few batches of "
                              "generation as slots allow, prompts of a group "
                              "read once"});
    fflush(stdout);
}

/* A system's iteration and generation, as weft plan --from NAME has it, with so
 * many seconds of a layer beside its work. Returns false, and
 * says why, where there is none. */
static bool simulate_system(struct bench *b, const struct job *job,
                            const char *name, double layer_s,
                            struct weft_simulated *out)
{
    const char *words[] = {"numerics.gradient_groups=16", "rollout.slots=128",
                           "train.recompute=true"};
    const struct weft_lengths lengths = {.kind = WEFT_LENGTHS_MOST};
    const struct weft_g_job on = {
        .n_ranks = job->nodes, .n_devices = GPUS, .place_per_device = true};
    struct weft_cluster links = real_links(&b->cluster, GPUS);
    const struct weft_simulate_options how = {.cluster = &links,
                                              .lengths = &lengths,
                                              .iterations = 3,
                                              .gangs = true,
                                              .simulated = out};
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan;
    struct weft_err why;
    char path[600];
    links.kind[0].layer_s = layer_s;
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    CHECK(weft_run_config_read(path, 3, words, &config, &err));
    CHECK(weft_run_needs_read(&config, job->nodes, GPUS, 0, &needs, &err));
    needs.plan.device_bytes = (int64_t) links.kind[0].memory_bytes;
    int rc = weft_plan_strategy(name, &needs.plan, &plan, &why);
    if (!rc)
        rc = weft_plan_check(&plan, &needs.plan, &why);
    if (!rc)
        rc = weft_run_simulate(&config, &on, &plan, &how, NULL, &why);
    if (rc)
        printf("    %-16s %s\n", name, why.text);
    weft_plan_release(&plan);
    weft_config_release(&config);
    return rc == 0;
}

/* Systems with a name beside ReaL's plan: the paper says by how much it is
 * faster than they, at most. Each is simulated once more with generation as ReaL
 * has it without CUDA graphs in table 6. */
static void compare_systems(struct bench *b, const struct job *job,
                            double real_s)
{
    static const char *const name[] = {"deepspeed-chat", "openrlhf",
                                       "nemo-aligner", "verl"};
    double most = 0, most_launched = 0;
    char why[120];
    take_job(b, job);
    int32_t at = first_generation(&b->flow);
    printf("%s, %d GPUs, systems with a name:\n", job->name,
           job->nodes * GPUS);
    for (size_t i = 0; i < WEFT_COUNT(name); i++) {
        struct weft_simulated as_real, slow;
        if (!simulate_system(b, job, name[i], REAL_LAYER_S, &as_real)
            || !simulate_system(b, job, name[i], REAL_LAUNCHED_S, &slow))
            continue;
        double s = as_real.iteration_s;
        double slow_s = s + slow.call_s[at] - as_real.call_s[at];
        printf(
            "    %-16s %8.1f s, %.2f times ReaL's plan, %.0f %% of memory; "
            "without CUDA graphs %.1f s, %.2f times\n",
            name[i], s, s / real_s, 100 * as_real.fullest, slow_s,
            slow_s / real_s);
        fflush(stdout);
        most = fmax(most, s / real_s);
        most_launched = fmax(most_launched, slow_s / real_s);
    }
    printf(
        "at most %.2f times a system with a name, without CUDA graphs %.2f; "
        "published 3.58\n",
        most, most_launched);
    snprintf(why, sizeof why,
             "placement and layout alone: %.2f where they generate without "
             "CUDA graphs, as ReaL in table 6",
             most_launched);
    add_row(&(struct row){ROW_PREDICTED, "ReaL", job->name,
                          "over systems with a name", "times", 3.58, most,
                          why});
}

static void sum_up(const struct predicted p[])
{
    double sum = 0;
    for (int i = 0; i < N_SCALED; i++)
        sum += gain_of(&p[i]) / N_SCALED;
    printf("weak scaling: %.2f times on average, published 1.54\n", sum);
    add_row(&(struct row){ROW_PREDICTED, "ReaL", "PPO, 16 to 128 GPUs",
                          "over heuristic, mean", "times", 1.54, sum, NULL});
    bool first = gain_of(&p[REMAX]) > gain_of(&p[DPO]);
    bool met = first && gain_of(&p[DPO]) > gain_of(&p[GRPO]);
    add_row(&(struct row){ROW_ORDER, "ReaL", "ReMax, DPO",
                          "order of their gains", "", 1, first, NULL});
    add_row(&(struct row){ROW_ORDER, "ReaL", "ReMax, DPO, GRPO",
                          "order of their gains", "", 1, met,
                          "GRPO's gain is flagged"});
    printf("order ReMax, DPO, GRPO: %s\n", met ? "met" : "missed");
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct predicted p[WEFT_COUNT(jobs)] = {{0}};
    bool all = argc == 2;
    double start = weft_clock_s();
    if (!all && (argc != 4 || strcmp(argv[2], "--only") != 0)) {
        fprintf(stderr, "usage: papers_real CLUSTER.yaml [--only NAME]\n");
        return 2;
    }
    bench_open(&b, argv[1]);
    bool systems = all || strcmp(argv[3], "systems") == 0;
    printf("ReaL, section 8: layouts of calls beside one layout for all\n");
    for (size_t i = 0; i < WEFT_COUNT(jobs); i++)
        if ((all || (systems && i == 0)
             || strncmp(jobs[i].job.name, argv[3], strlen(argv[3])) == 0)
            && compare(&b, &jobs[i], &p[i]))
            report(&b, &jobs[i], &p[i]);
    if (systems)
        compare_systems(&b, &jobs[0].job, p[0].real_s);
    if (all)
        sum_up(p);
    weft_dir_remove(b.dir, NULL);
    printf("%.0f s\n", weft_clock_s() - start);
    return 0;
}
