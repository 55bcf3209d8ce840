/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What passes through a replica cost, by closed forms; what the choice of when
 * samples move is made of, by hand; and a run of which a rank dies while its
 * last samples move:
 *
 *     test_tail decides|unpacks RANK CONFIG.yaml key=value ...
 *
 * does what `weft train` does, but in the second iteration that rank ends
 * itself by SIGKILL: as soon as its controller has decided that samples move,
 * or when it has taken in the first page of a cache that came
 * (tests/run/tail_ranks.sh).
 */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>

#include "described_run.h"

#include "codelets/gen_pages.h"
#include "lm/migration.h"
#include "plan/costs.h"
#include "lm/passes.h"
#include "lm/weights.h"

/* ---- Costs -------------------------------------------------------------- */

enum { LAYERS = 6, DEVICES = 4 };

static struct weft_err err;

static struct weft_shape shape_of(void)
{
    struct weft_init_options o = fixture_model();
    struct weft_arch arch;
    o.layers = LAYERS;
    o.vocab = 512;
    REQUIRE_OK(weft_init_arch(&o, &arch, &err), err);
    REQUIRE_OK(weft_shape_partition(&arch.shape, 2, &err), err);
    return arch.shape;
}

/* A layout of one call on the first tp x pp devices of a node: CPUs, or GPUs
 * with a CPU beside them. */
static void lay_out(const struct weft_shape *shape, int32_t tp, int32_t pp,
                    int32_t n_gpus, struct weft_g_layout *out)
{
    int32_t n = n_gpus ? n_gpus + 1 : DEVICES;
    const struct weft_g_job job = {.n_ranks = 1,
                                   .n_devices = n,
                                   .n_gpus = n_gpus,
                                   .place_per_device = true};
    struct weft_plan plan = {.n_nodes = 1, .n_devices = n, .n_gpus = n_gpus};
    plan.call[1] = (struct weft_call_plan){
        .mesh = {0, 1, 0, tp * pp}, .dp = 1, .tp = tp, .pp = pp};
    REQUIRE_OK(weft_g_layout_init(&job, shape, &plan, 1, out, &err), err);
}

static double price_on(struct weft_costs *costs,
                       const struct weft_shape *shape, int32_t tp, int32_t pp,
                       int32_t n_gpus, bool decodes,
                       const struct weft_work_rows *rows)
{
    struct weft_g_layout layout;
    struct weft_pass_price *p;
    lay_out(shape, tp, pp, n_gpus, &layout);
    REQUIRE_OK(
        weft_pass_price_create(costs, shape, &layout, decodes, &p, &err),
        err);
    double seconds = weft_pass_price_s(p, rows);
    CHECK(fabs(weft_pass_price_s(p, rows) - seconds) < 1e-15);
    weft_pass_price_free(p);
    weft_g_layout_release(&layout);
    return seconds;
}

static double price(struct weft_costs *costs, const struct weft_shape *shape,
                    int32_t tp, int32_t pp, bool decodes,
                    const struct weft_work_rows *rows)
{
    return price_on(costs, shape, tp, pp, 0, decodes, rows);
}

static struct weft_costs *costs_on(const struct weft_cluster *cluster,
                                   int32_t n_gpus)
{
    struct weft_costs *out;
    const struct weft_costs_job job = {.cluster = cluster,
                                       .n_ranks = 1,
                                       .n_devices = n_gpus ? n_gpus + 1
                                                           : DEVICES,
                                       .n_gpus = n_gpus,
                                       .place_per_device = true};
    REQUIRE_OK(weft_costs_create(&job, &out, &err), err);
    return out;
}

static struct weft_costs *costs_of(const struct weft_cluster *cluster)
{
    return costs_on(cluster, 0);
}

static struct weft_cluster cluster_of(double flops, double bytes_per_s,
                                      double layer_s)
{
    return (struct weft_cluster){
        .n_kinds = 1,
        .n_nodes = 1,
        .kind[0] = {.n_nodes = 1,
                    .n_devices = DEVICES,
                    .memory_bytes = 1e9,
                    .flops = {[WEFT_F32] = flops, [WEFT_BF16] = flops},
                    .memory_bytes_per_s = bytes_per_s,
                    .node_bytes_per_s = bytes_per_s * DEVICES,
                    .layer_s = layer_s,
                    .inside = {1e30, 0},
                    .n_rails = 1,
                    .rail = {1e30, 0}}};
}

/* Where a layer takes a time of its own and nothing else counts, a pass takes
 * that of all layers, in any layout. */
static void test_pass_layers(void)
{
    const struct weft_shape shape = shape_of();
    const struct weft_cluster cluster = cluster_of(1e30, 1e30, 0.25);
    struct weft_costs *costs = costs_of(&cluster);
    const struct weft_work_rows rows = {3, 3, 30, 27};
    for (int32_t tp = 1; tp <= 2; tp++)
        for (int32_t pp = 1; pp <= 2; pp++)
            for (int decodes = 0; decodes < 2; decodes++)
                CHECK(fabs(price(costs, &shape, tp, pp, decodes, &rows)
                           - 0.25 * LAYERS)
                      < 1e-9);
    weft_costs_free(costs);
}

/* Where operations count: the products of a row with all matrices, by hand. A
 * tp group does half of them in the time of one member. */
static void test_pass_flop(void)
{
    const struct weft_shape shape = shape_of();
    const struct weft_cluster cluster = cluster_of(1e6, 1e30, 0);
    struct weft_costs *costs = costs_of(&cluster);
    const struct weft_work_rows rows = {5, 5, 15, 0};
    double h = shape.hidden, heads = shape.n_heads * shape.head_dim;
    double kv = shape.n_kv_heads * shape.head_dim;
    double each = LAYERS
                    * (h * (heads + 2 * kv) + heads * h
                       + 3 * h * shape.intermediate)
                + h * shape.vocab;
    double attention = 2.0 * LAYERS * heads * 15; /* scores, and sums */
    double flop = 2 * (each * 5 + attention);
    for (int32_t pp = 1; pp <= 2; pp++)
        for (int decodes = 0; decodes < 2; decodes++) {
            double one = price(costs, &shape, 1, pp, decodes, &rows);
            double two = price(costs, &shape, 2, pp, decodes, &rows);
            CHECK(fabs(one * 1e6 / flop - 1) < 1e-3);
            CHECK(fabs(two * 2e6 / flop - 1) < 1e-1); /* uneven vocabulary */
        }
    weft_costs_free(costs);
}

/* Where bytes count, a decode step reads all weights, whatever its batch. */
static void test_pass_bytes(void)
{
    const struct weft_shape shape = shape_of();
    const struct weft_cluster cluster = cluster_of(1e30, 1e6, 0);
    struct weft_costs *costs = costs_of(&cluster);
    const struct weft_work_rows one = {1, 1, 1, 0}, many = {8, 8, 8, 0};
    double weights = 4.0 * (double) weft_shape_n_params(&shape) / 1e6;
    double a = price(costs, &shape, 1, 1, true, &one);
    double b = price(costs, &shape, 1, 1, true, &many);
    CHECK(fabs(a / weights - 1) < 0.02);
    CHECK(b > a && b < 1.1 * a);
    weft_costs_free(costs);
}

/* Where nothing but meetings takes time: GPUs of a tp group that decode meet
 * for two sums of each layer, twice for each where four of them share it, for
 * the embedding and the logits, and in a stage that is alone for its tokens. */
static void test_pass_meetings(void)
{
    struct weft_shape shape = shape_of();
    REQUIRE_OK(weft_shape_partition(&shape, 4, &err), err);
    struct weft_cluster cluster = cluster_of(1e30, 1e30, 0);
    cluster.kind[0].inside.latency_s = 0.5;
    const struct weft_work_rows few = {3, 3, 30, 0}, many = {80, 80, 800, 0};
    for (int32_t tp = 2; tp <= 4; tp += 2)
        for (int32_t pp = 1; tp * pp <= DEVICES; pp++) {
            struct weft_costs *costs = costs_on(&cluster, DEVICES);
            int32_t sums = 2 * LAYERS, ends = 2 + (pp == 1);
            int32_t shared = tp == 4 ? 2 * sums : sums;
            double s = price_on(costs, &shape, tp, pp, DEVICES, true, &few);
            CHECK(fabs(s - 0.5 * (sums + ends)) < 1e-9);
            s = price_on(costs, &shape, tp, pp, DEVICES, true, &many);
            CHECK(fabs(s - 0.5 * (shared + ends)) < 1e-9);
            s = price_on(costs, &shape, tp, pp, DEVICES, false, &many);
            CHECK(fabs(s - 0.5 * sums) < 1e-9);
            weft_costs_free(costs);
        }
}

/* A layout of two replicas, or stages, or tensor parts on two devices, the
 * first of which is `device`. */
static void lay_out_two(const struct weft_shape *shape, int32_t device,
                        int32_t tp, int32_t pp, int32_t n_gpus,
                        struct weft_g_layout *out)
{
    const struct weft_g_job job = {.n_ranks = 1,
                                   .n_devices = DEVICES + 1,
                                   .place_per_device = n_gpus == 0,
                                   .n_gpus = n_gpus};
    struct weft_plan plan = {.n_nodes = 1, .n_devices = DEVICES + 1};
    plan.call[1] = (struct weft_call_plan){
        .mesh = {0, 1, device, 2}, .dp = 2 / tp / pp, .tp = tp, .pp = pp};
    REQUIRE_OK(weft_g_layout_init(&job, shape, &plan, 1, out, &err), err);
}

/* Weights on their way inside a node of which each device receives, and sends,
 * a megabyte a second. */
static void test_weights(void)
{
    const struct weft_shape shape = shape_of();
    struct weft_cluster cluster = cluster_of(1e30, 1e30, 0);
    struct weft_g_layout two, halves, others, stages, gpus;
    double all = 4.0 * (double) weft_shape_n_params(&shape) / 1e6, s;
    struct weft_costs *costs;
    cluster.kind[0].inside = (struct weft_link){1e6, 0};
    cluster.kind[0].host = (struct weft_link){2e6, 0};
    costs = costs_of(&cluster);
    lay_out_two(&shape, 0, 1, 1, 0, &two);
    lay_out_two(&shape, 0, 2, 1, 0, &halves);
    lay_out_two(&shape, 0, 1, 2, 0, &stages);
    lay_out_two(&shape, 2, 1, 1, 0, &others);
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &two, &s, &err), err);
    CHECK(s == 0);
    /* both have all of it, and need a half */
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &halves, &s, &err),
               err);
    CHECK(s == 0);
    /* each has a half and needs the other */
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &halves, &two, &s, &err),
               err);
    CHECK(fabs(s / all - 0.5) < 1e-9);
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &stages, &two, &s, &err),
               err);
    CHECK(fabs(s / all - 0.5) < 1e-9);
    /* two others receive all of it, each */
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &others, &s, &err),
               err);
    CHECK(fabs(s / all - 1) < 1e-9);
    REQUIRE_OK(weft_weights_restore_s(costs, &shape, &two, 0, &s, &err), err);
    CHECK(s == 0);
    /* with ZeRO 3 each of the two has a half, too, and sends all others that */
    two.plan.zero = 3;
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &two, &s, &err), err);
    CHECK(fabs(s / all - 0.5) < 1e-9);
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &halves, &s, &err),
               err);
    CHECK(s / all < 0.5 + 1e-9);
    REQUIRE_OK(weft_weights_move_s(costs, &shape, &two, &others, &s, &err),
               err);
    CHECK(fabs(s / all - 1) < 1e-9);
    two.plan.zero = 0;
    weft_costs_free(costs);
    /* from the host to two of four cards, which have a link each */
    lay_out_two(&shape, 0, 1, 1, DEVICES, &gpus);
    REQUIRE_OK(
        weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                   .n_ranks = 1,
                                                   .n_devices = DEVICES + 1,
                                                   .n_gpus = DEVICES},
                          &costs, &err),
        err);
    REQUIRE_OK(
        weft_weights_restore_s(costs, &shape, &gpus, DEVICES, &s, &err), err);
    CHECK(fabs(s / all - 0.5) < 1e-9);
    weft_costs_free(costs);
    weft_g_layout_release(&two);
    weft_g_layout_release(&halves);
    weft_g_layout_release(&stages);
    weft_g_layout_release(&others);
    weft_g_layout_release(&gpus);
}

/* ---- What is chosen by --------------------------------------------------- */

/* PAST: iterations noted; READS: layers of a model that reads texts in tokens
 * of its own */
enum { CARDS = 4, TEXTS = 12, PAST = 2, READS = 5 };
static const double layer_s = 0.25;

/* What was chosen by last. */
static struct {
    int32_t n_jobs;
    struct weft_overlap_job job[WEFT_TAIL_PAST];
    struct weft_overlap_sample sample[WEFT_TAIL_PAST][TEXTS];
    int32_t seen[WEFT_TAIL_PAST * TEXTS];
    double link_bytes_per_s;
    double infer_s[WEFT_OVERLAP_MODELS]; /* of one sample of 10 tokens */
    double bound_s[PAST + 1];
} chosen;

__typeof__(weft_overlap_choose) __real_weft_overlap_choose,
    __wrap_weft_overlap_choose;
int __wrap_weft_overlap_choose(int32_t n_jobs,
                               const struct weft_overlap_job *job,
                               struct weft_overlap_when *out,
                               double *seconds_out, double *unmoved_out,
                               struct weft_err *e)
{
    chosen.n_jobs = n_jobs;
    chosen.link_bytes_per_s = job->costs->link_bytes_per_s;
    for (int32_t i = 0; i < n_jobs; i++) {
        REQUIRE(job[i].n_samples == TEXTS);
        chosen.job[i] = job[i];
        memcpy(chosen.sample[i], job[i].sample, sizeof chosen.sample[i]);
    }
    for (int32_t k = 0; k < job->n_models; k++)
        chosen.infer_s[k] = job->infer_s(job->costs->ctx, k, 1, 10);
    REQUIRE(job->n_seen <= (int32_t) WEFT_COUNT(chosen.seen));
    memcpy(chosen.seen, job->seen, (size_t) job->n_seen * sizeof *job->seen);
    return __real_weft_overlap_choose(n_jobs, job, out, seconds_out,
                                      unmoved_out, e);
}

/* Four GPUs and the host's device. Two or four replicas generate, each on one.
 * The first two infer, too: the reference has its weights there, or in the
 * host's memory, and the critic on the two others; with `reads` a reward model
 * on the first two. */
static void plan_calls(const struct fixture *f, int replicas, bool offload,
                       bool reads, char word[600])
{
    static const char *const call[] = {"actor_generate", "ref_infer",
                                       "critic_infer",   "actor_train",
                                       "critic_train",   "reward_infer"};
    snprintf(word, 600, "plan=%s/plan.json", f->dir);
    FILE *file = fopen(word + strlen("plan="), "w");
    REQUIRE(file != NULL);
    fprintf(file,
            "{\"format\": 1, \"nodes\": 1, \"devices\": %d, \"gpus\": %d, "
            "\"inter_stage_fusion\": true, \"calls\": {",
            CARDS + 1, CARDS);
    for (size_t c = 0; c < WEFT_COUNT(call) - !reads; c++) {
        int n = c == 0 ? replicas : 2;
        fprintf(file,
                "%s\n\"%s\": {\"mesh\": {\"node\": 0, \"nodes\": 1, "
                "\"device\": %d, \"devices\": %d}, \"dp\": %d, \"tp\": 1, "
                "\"pp\": 1%s}",
                c ? "," : "", call[c], c == 4 ? 2 : 0, n, n,
                offload && c == 1 ? ", \"offload\": true" : "");
    }
    fprintf(file, "}}\n");
    fclose(file);
}

static int32_t length_of(int iteration, int text)
{
    return 1 + (7 * text + 5 * iteration) % 12;
}

/* Of the weights of the fixture's model, whose head is its embedding, or of a
 * critic that begins with it, which has a vector for a head. */
static double bytes_of(bool critic)
{
    const struct weft_init_options o = fixture_model();
    double heads = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
    double layer = o.hidden * (2 * heads + 2 * kv + 3.0 * o.intermediate)
                 + 2 * o.hidden + 2 * o.head_dim; /* norms */
    return 4
         * (o.layers * layer + 259 * o.hidden + o.hidden
            + (critic ? o.hidden : 0));
}

/* The third iteration is chosen by the lengths of two. */
static void record_choice(const struct fixture *f, int replicas, bool offload,
                          bool reads)
{
    static int32_t length[PAST + 1][TEXTS];
    const struct weft_g_job job = {1, CARDS + 1, true, CARDS, false};
    struct weft_cluster cluster = cluster_of(1e12, 1e12, layer_s);
    char plan[600], reward[700];
    const char *word[] = {plan,
                          reward,
                          "runtime.place=device",
                          "data.shuffle=false",
                          "runtime.devices=gpu",
                          "ppo.mini_batches=1",
                          "numerics.exact=false"};
    struct described_run d;
    struct weft_recorded how = {.rank = -1,
                                .gangs = true,
                                .iterations = PAST + 1,
                                .n_total = length[0],
                                .responses = true,
                                .bound_s = chosen.bound_s};
    snprintf(reward, sizeof reward,
             reads ? "reward=[{type: model, model: %s/reads, own_tokenizer: "
                     "true}]"
                   : "reward=[{type: callback}]",
             f->dir);
    cluster.kind[0].inside = (struct weft_link){1e6, 0.5};
    cluster.kind[0].host = (struct weft_link){2e6, 0.125};
    for (int i = 0; i <= PAST; i++)
        for (int k = 0; k < TEXTS; k++)
            length[i][k] = length_of(i, k);
    plan_calls(f, replicas, offload, reads, plan);
    describe_run(f, &job, (int) WEFT_COUNT(word), word, &d);
    REQUIRE_OK(
        weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                   .n_ranks = 1,
                                                   .n_devices = CARDS + 1,
                                                   .n_gpus = CARDS},
                          &how.costs, &err),
        err);
    REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
    forget_run(&d);
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return (x > y) - (x < y);
}

/* Two iterations' samples are there with their lengths, in the order in which
 * they are begun: the first of them by one replica. */
static void check_samples(int replicas)
{
    int32_t seen[PAST * TEXTS];
    CHECK_INT(chosen.n_jobs, PAST);
    for (int i = 0; i < PAST; i++)
        for (int k = 0; k < TEXTS; k++) {
            CHECK_INT(chosen.sample[i][k].length, length_of(i, k));
            CHECK_INT(chosen.sample[i][k].instance, k * replicas / TEXTS);
            int row = 6 * i + k / 2; /* of the data, as fixture_make() says */
            CHECK_INT(chosen.sample[i][k].prompt, 1 + row * row * 149 / 361);
            CHECK_INT(chosen.sample[i][k].shared, 1 + k / 2);
            seen[i * TEXTS + k] = length_of(i, k);
        }
    qsort(seen, PAST * TEXTS, sizeof *seen, ascending);
    for (int i = 0; i < PAST; i++)
        CHECK_INT(chosen.job[i].n_seen, PAST * TEXTS);
    for (int i = 0; i < PAST * TEXTS; i++)
        CHECK_INT(chosen.seen[i], seen[i]);
}

/* Models are in the order of their calls: what reads texts, reference, critic.
 * The reference's weights come from the host to each card over a link of its
 * own, 2 MB/s; those of the critic, and samples that move, from a card to a
 * card, 1 MB/s. */
static void check_jobs(int replicas, bool offload, bool reads)
{
    double host_s = offload ? 0.125 + bytes_of(false) / 2e6 : 0;
    double card_s = 0.5 + bytes_of(true) / 1e6;
    int n = reads ? 3 : 2, ref = n - 2, critic = n - 1;
    CHECK(fabs(chosen.link_bytes_per_s - 1e6) < 1e-3);
    for (int i = 0; i < chosen.n_jobs; i++) {
        const struct weft_overlap_job *job = &chosen.job[i];
        CHECK_INT(job->n_instances, replicas);
        CHECK_INT(job->slots, TEXTS / replicas);
        CHECK_INT(job->most, 12);
        CHECK(job->micro_tokens == 64 && job->shares_prefixes);
        CHECK_INT(job->n_models, n);
        for (int k = 0; k < n; k++) {
            double restore_s = k == ref ? host_s : 0;
            double move_s = k == critic ? card_s : 0;
            CHECK(fabs(job->restore_s[k] - restore_s) < 1e-9);
            CHECK(fabs(job->move_s[k] - move_s) < 1e-9);
            CHECK(job->load_s[k] == 0);
        }
    }
    if (reads) /* two replicas infer */
        CHECK(fabs(chosen.infer_s[0] / (READS * layer_s * replicas / 2) - 1)
              < 1e-4);
}

static void test_chosen_by(void)
{
    struct weft_init_options o = fixture_model();
    struct fixture f;
    double bound_s = 0;
    o.scalar_head = true;
    o.tied = false;
    o.layers = READS;
    REQUIRE_OK(weft_world_open(&err), err);
    fixture_make(&f);
    fixture_init_model(&f, "reads", &o);
    for (int replicas = 2; replicas <= CARDS; replicas += 2)
        for (int k = 0; k < 4; k++) {
            bool offload = k / 2, reads = k % 2;
            memset(&chosen, 0, sizeof chosen);
            record_choice(&f, replicas, offload, reads);
            check_samples(replicas);
            check_jobs(replicas, offload, reads);
            /* texts may be shorter than they count */
            if (!reads)
                bound_s = chosen.bound_s[PAST];
            CHECK(fabs(chosen.bound_s[PAST] - bound_s) < 1e-12);
            CHECK(replicas == 2 ? bound_s > 0 : bound_s == 0);
        }
    fixture_remove(&f);
    weft_world_close();
}

/* All calls count, as many as reward models, reference and critic are. */
static void test_many_models(void)
{
    enum { REWARDS = WEFT_MAX_REWARDS };
    static int32_t length[PAST + 1][TEXTS];
    const struct weft_g_job job = {1, DEVICES, true, 0, false};
    const struct weft_cluster cluster = cluster_of(1e12, 1e12, layer_s);
    struct weft_init_options o = fixture_model();
    struct fixture f;
    struct described_run d;
    char reward[600 * REWARDS] = "reward=[";
    const char *word[] = {reward, "layout=dp4", "data.shuffle=false",
                          "iterations=3", "rollout.inter_stage_fusion=true"};
    const struct weft_recorded how = {.rank = -1,
                                      .iterations = PAST + 1,
                                      .n_total = length[0],
                                      .responses = true,
                                      .costs = costs_of(&cluster)};
    o.scalar_head = true;
    o.tied = false;
    memset(&chosen, 0, sizeof chosen);
    fixture_make(&f);
    fixture_init_model(&f, "scores", &o);
    for (size_t k = 0; k < REWARDS; k++)
        snprintf(reward + strlen(reward), 600,
                 "%s{type: model, model: %s/scores, name: r%d}",
                 k ? ", " : "", f.dir, (int) k);
    strcat(reward, "]");
    for (int i = 0; i <= PAST; i++)
        for (int k = 0; k < TEXTS; k++)
            length[i][k] = length_of(i, k);
    describe_run(&f, &job, (int) WEFT_COUNT(word), word, &d);
    REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
    CHECK_INT(chosen.n_jobs, PAST);
    CHECK_INT(chosen.job[0].n_models, REWARDS + 2);
    for (int k = 0; k < REWARDS + 2; k++)
        CHECK(fabs(chosen.infer_s[k] / (2 * layer_s) - 1) < 1e-4);
    forget_run(&d);
    fixture_remove(&f);
}

/* ---- Two calls that generate --------------------------------------------- */

/* The replicas that samples go on with, by decisions, as noted below. */
static bool goes_on[2][DEVICES];
static int n_decided;

/* ReMax's last samples are on replica 3, its greedy ones on replica 0: all go on
 * with one of them, so that three have no samples of either. */
static void test_same_devices(void)
{
    enum { SAMPLED = 12, GREEDY = 6 };
    static int32_t length[SAMPLED + GREEDY];
    const struct weft_g_job job = {1, DEVICES, true, 0, false};
    const char *word[] = {"layout=dp4",
                          "data.shuffle=false",
                          "rollout.chunk_tokens=2",
                          "rollout.inter_stage_fusion=true",
                          "rollout.remaining=0.4",
                          "rollout.instances=1"};
    const struct weft_recorded how = {
        .rank = -1, .iterations = 1, .n_total = length, .responses = true};
    struct fixture f, two;
    struct described_run d;
    int n = 0;
    n_decided = 0;
    fixture_make(&f);
    two = remax_fixture(&f);
    for (int i = 0; i < SAMPLED + GREEDY; i++)
        length[i] = (i >= 9 && i < SAMPLED + 2) ? 40 : 2;
    describe_run(&two, &job, (int) WEFT_COUNT(word), word, &d);
    REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
    CHECK_INT(n_decided, 2);
    for (int i = 0; i < DEVICES; i++) {
        n += goes_on[0][i];
        CHECK(goes_on[0][i] == goes_on[1][i]);
    }
    CHECK_INT(n, 1);
    CHECK(goes_on[0][0] || goes_on[0][3]);
    forget_run(&d);
    fixture_remove(&f);
}

/* ---- A rank that dies --------------------------------------------------- */

static bool decides, unpacks; /* dies by what it does next */

__typeof__(weft_migration_decide) __real_weft_migration_decide,
    __wrap_weft_migration_decide;
int __wrap_weft_migration_decide(struct weft_migration *m, int32_t n_left,
                                 const struct weft_migrate_left *left,
                                 const int32_t *sample, bool *decided_out,
                                 struct weft_err *e)
{
    int rc = __real_weft_migration_decide(m, n_left, left, sample,
                                          decided_out, e);
    if (!rc && *decided_out && decides)
        raise(SIGKILL);
    if (!rc && *decided_out && n_decided < 2 && m->n_replicas == DEVICES)
        memcpy(goes_on[n_decided++], m->among, DEVICES);
    return rc;
}

/* Pages are copied where caches are packed, too, by a rank that takes none. */
static atomic_bool takes;

__typeof__(weft_insert_gen_unpack) __real_weft_insert_gen_unpack,
    __wrap_weft_insert_gen_unpack;
void __wrap_weft_insert_gen_unpack(struct weft_seq *seq,
                                   const struct weft_where *where,
                                   struct weft_tile *taken,
                                   struct weft_tile *cache, int32_t n_arenas,
                                   struct weft_tile *const arena[],
                                   int32_t n_pages)
{
    if (unpacks && weft_seq_is_here(seq, where))
        takes = true;
    __real_weft_insert_gen_unpack(seq, where, taken, cache, n_arenas, arena,
                                  n_pages);
}

__typeof__(weft_gen_copy_bytes) __real_weft_gen_copy_bytes,
    __wrap_weft_gen_copy_bytes;
void __wrap_weft_gen_copy_bytes(struct CUstream_st *stream, void *to,
                                const void *from, size_t bytes)
{
    __real_weft_gen_copy_bytes(stream, to, from, bytes);
    if (takes)
        raise(SIGKILL);
}

static int die(int argc, char **argv)
{
    struct weft_trainer *t;
    int rc = weft_world_open(&err);
    bool is_victim = weft_world_rank() == atoi(argv[2]);
    if (!rc)
        rc = weft_trainer_open(argv[3], argc - 4,
                               (const char *const *) argv + 4, &t, &err);
    while (!rc && !weft_trainer_done(t)) {
        bool now = is_victim && t->iteration == 1;
        decides = now && strcmp(argv[1], "decides") == 0;
        unpacks = now && strcmp(argv[1], "unpacks") == 0;
        rc = weft_trainer_step(t, &err);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    else
        weft_trainer_close(t);
    weft_world_close();
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct weft_test tests[] = {
        {"test_pass_layers", test_pass_layers},
        {"test_pass_flop", test_pass_flop},
        {"test_pass_bytes", test_pass_bytes},
        {"test_pass_meetings", test_pass_meetings},
        {"test_weights", test_weights},
        {"test_chosen_by", test_chosen_by},
        {"test_many_models", test_many_models},
        {"test_same_devices", test_same_devices}};
    return argc > 4 ? die(argc, argv)
                    : weft_test_main("run/tail", tests, WEFT_COUNT(tests));
}
