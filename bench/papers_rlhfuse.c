/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RLHFuse's iteration (section 7, figures 7 and 8) beside what its plans take by
 * Weft's prices: generation and inference one after the other and fused
 * (bench/fusion.h), training by serial 1F1B and by the fused schedule that the
 * search finds, and DeepSpeed-Chat.
 *
 *     bench/papers_rlhfuse examples/clusters/rlhfuse_hopper.yaml
 *
 * Nothing is calibrated. A mini-batch has 64 samples, each a micro-batch, of the
 * mean length of the iteration; a stage has 8 GPUs and its model's layers in
 * even parts, and a backward pass takes twice the forward one. Stages are those
 * of table 3: 8 and 4 (33B and 13B), 16 and 8 (65B and 33B). The paper's other
 * overheads, below 3 %, are left out of both sides.
 *
 * DeepSpeed-Chat generates tensor parallel in a node, and trains mini-batches
 * of 256 with ZeRO 3 on all GPUs: a sample each, and weights pass each node's
 * rails three times, to be gathered forwards and backwards and as gradients.
 * ReaL's own plan is not here: its search on 256 GPUs is not priced in minutes.
 *
 * Last, what RLHFuse's plan leaves to be gained by the same costs: with both
 * fusions, instances whose layout is the fastest fused, and not one stage after
 * the other, each inference with its own tensor parallelism in an instance, and
 * training with its own tensor parallelism, stages and samples of a micro-batch.
 * A replica that trains has at least as many devices as in table 3, so that no
 * more of gradients passes between replicas, which both sides leave out.
 * Generation is in one batch on both sides.
 */
#include "base/alloc.h"
#include "bench/fusion.h"
#include "bench/rows.h"
#include "schedule/schedule.h"

enum { GPUS = 8, MINI_BATCH = 64, LARGE_MINI_BATCH = 256, ALL_GPUS = 256 };

static int stages_of(int size)
{
    static const int stages[] = {4, 8, 16}; /* 13B, 33B, 65B */
    return stages[size];
}

/* Seconds of a forward pass of some samples through a whole model, on tp
 * GPUs. */
static double forward_s(int size, int32_t tp, int samples, double tokens,
                        const struct weft_cluster *cluster)
{
    struct model m;
    struct weft_shape shape;
    int32_t n = (int32_t) (samples * tokens);
    const struct weft_work_rows rows = {
        n, n, (int64_t) (samples * tokens * tokens / 2), 0};
    shape_of(&sizes[size], &shape);
    int32_t most = tp < shape.n_blocks ? tp : shape.n_blocks;
    open_model(&m, &sizes[size], most, true, cluster);
    double s = pass_s(&m, &rows) * most / tp;
    close_model(&m);
    return s;
}

static double *fill(int n, double value)
{
    double *x = weft_alloc((size_t) n, sizeof *x);
    for (int i = 0; x && i < n; i++)
        x[i] = value;
    return x;
}

/* How the actor and the critic train. */
struct training {
    int32_t tp;
    int stages[2], samples[2]; /* samples of a micro-batch */
};

struct trained {
    double serial_s, fused_s, bound_s; /* of an iteration */
};

/* A mini-batch as a problem; false: its samples do not divide. model[] is
 * borrowed; free_problem() afterwards. */
static bool set_problem(const struct setting *s, const struct training *t,
                        double tokens, const struct weft_cluster *cluster,
                        struct weft_schedule_model model[2],
                        struct weft_schedule_problem *p)
{
    const int size[2] = {s->actor, s->critic};
    int n = t->stages[0] > t->stages[1] ? t->stages[0] : t->stages[1];
    int groups = ALL_GPUS / (n * t->tp);
    *p = (struct weft_schedule_problem){
        .n_devices = n, .n_models = 2, .model = model, .mini_batches = 1};
    for (int i = 0; i < 2; i++) {
        int pipelines = groups * (n / t->stages[i]); /* of all GPUs */
        if (groups < 1 || MINI_BATCH % (pipelines * t->samples[i]) != 0)
            return false;
    }
    for (int i = 0; i < 2; i++) {
        int stages = t->stages[i], k = n / stages;
        int micro = MINI_BATCH / groups / k / t->samples[i];
        double f = forward_s(size[i], t->tp, t->samples[i], tokens, cluster)
                 / stages;
        model[i] = (struct weft_schedule_model){
            .name = i ? (char *) "critic" : (char *) "actor",
            .pipelines = k,
            .stages = stages,
            .chunks = 1,
            .micro_batches = micro,
            .up = i == 1,
            .forward = fill(micro * stages, f),
            .backward = fill(micro * stages, 2 * f),
            .activation = fill(micro * stages, 1)};
    }
    return true;
}

static void free_problem(struct weft_schedule_model model[2])
{
    for (int i = 0; i < 2; i++) {
        weft_free(model[i].forward);
        weft_free(model[i].backward);
        weft_free(model[i].activation);
    }
}

/* All mini-batches of the actor and the critic. */
static struct trained train(const struct setting *s, const struct training *t,
                            double tokens, const struct weft_cluster *cluster)
{
    struct weft_schedule_model model[2];
    struct weft_schedule_problem p;
    struct weft_schedule serial = {.n_devices = 0};
    struct weft_schedule_result r;
    const struct weft_schedule_options o = {
        .seed = 1, .evaluations = 300000, .n_restarts = 2, .n_threads = 1};
    const int steps = SAMPLES / MINI_BATCH;
    if (!set_problem(s, t, tokens, cluster, model, &p)) {
        fprintf(stderr, "papers_rlhfuse: mini-batches do not divide\n");
        exit(1);
    }
    CHECK(weft_schedule_baseline(&p, WEFT_SCHEDULE_SERIAL, &serial, &err));
    CHECK(weft_schedule_search(&p, &o, &r, &err));
    struct trained out = {steps * serial.makespan,
                          steps * r.schedule.makespan,
                          steps * r.bound.makespan};
    weft_schedule_release(&serial);
    weft_schedule_release(&r.schedule);
    free_problem(model);
    return out;
}

static struct training published_training(const struct setting *s)
{
    return (struct training){
        GPUS, {stages_of(s->actor), stages_of(s->critic)}, {1, 1}};
}

/* ZeRO 3 on all GPUs. */
static double train_zero_s(int size, double tokens,
                           const struct weft_cluster *cluster)
{
    const struct weft_node_kind *kind = &cluster->kind[0];
    struct weft_shape shape;
    shape_of(&sizes[size], &shape);
    double bytes = 2.0 * (double) weft_shape_n_params(&shape);
    double gathered = 3 * bytes / (kind->n_rails * kind->rail.bytes_per_s);
    double work = 3 * forward_s(size, 1, 1, tokens, cluster);
    return SAMPLES / LARGE_MINI_BATCH * (work > gathered ? work : gathered);
}

/* Generation tensor parallel in a node, and inference after it. */
static double base_in_node_s(const struct setting *of,
                             const struct weft_cluster *cluster)
{
    static struct setting s;
    static struct instance in;
    struct weft_overlapped out;
    struct weft_shape shape;
    double load_s[N_MODELS];
    s = *of;
    shape_of(&sizes[s.actor], &shape);
    open_instance(&in, &s, shape.n_blocks < GPUS ? shape.n_blocks : GPUS,
                  cluster);
    set_memory(&s, &in, cluster, load_s);
    set_jobs(&s, &in, cluster, load_s);
    double seconds = simulate(&s.job[PAST], true, 0, 0, &out);
    close_instance(&in);
    return seconds;
}

/* ---- Own layouts -------------------------------------------------------- */

/* A plan with both fusions. */
struct own {
    int32_t tp, infer_tp[N_MODELS];
    struct training training;
    double stages_s, train_s;
};

/* Gives each inference of an instance the tensor parallelism with which all
 * its samples take least. */
static void lay_out_inference(struct instance *in, const struct setting *s,
                              double tokens,
                              const struct weft_cluster *cluster)
{
    int32_t n = SAMPLES * in->n_devices / ALL_GPUS;
    for (int j = 0; j < N_MODELS; j++) {
        const struct size *size =
            &sizes[j == REFERENCE ? s->actor : s->critic];
        int32_t most = in->model[j].tp, best = most;
        double least_s = INFINITY;
        for (int32_t tp = most; tp >= 1; tp /= 2) {
            close_model(&in->model[j]);
            open_model(&in->model[j], size, tp, j == REFERENCE, cluster);
            double seconds = infer_s(in, j, n, n * tokens);
            if (seconds < least_s) {
                least_s = seconds;
                best = tp;
            }
        }
        close_model(&in->model[j]);
        open_model(&in->model[j], size, best, j == REFERENCE, cluster);
    }
}

/* Of the layouts of an instance the one with which past iterations took least,
 * fused, and what this one takes. Those that are a third slower than another one
 * stage after the other are not tried. */
static void own_stages(const struct setting *of, double tokens,
                       const struct weft_cluster *cluster, struct own *out)
{
    static struct setting s;
    static struct instance in;
    double least_s = INFINITY, serial_s = INFINITY, load_s[N_MODELS];
    for (int k = 7; k >= 0; k--) {
        int32_t tp = 1 << k / 2;
        struct weft_shape shape;
        shape_of(&sizes[of->actor], &shape);
        if (tp > shape.n_blocks)
            continue;
        s = *of;
        open_instance(&in, &s, tp, cluster);
        if (k % 2)
            lay_out_inference(&in, &s, tokens, cluster);
        struct weft_overlap_when when;
        struct weft_overlapped fused;
        double seconds, one_s = INFINITY;
        if (set_memory(&s, &in, cluster, load_s)) {
            set_jobs(&s, &in, cluster, load_s);
            one_s = simulate(&s.job[0], true, 0, 0, &fused);
        }
        serial_s = fmin(serial_s, one_s);
        if (isfinite(one_s) && one_s < 4.0 / 3 * serial_s) {
            CHECK(weft_overlap_choose(PAST, s.job, &when, &seconds, NULL,
                                      &err));
            if (seconds < least_s) {
                least_s = seconds;
                out->tp = tp;
                for (int j = 0; j < N_MODELS; j++)
                    out->infer_tp[j] = in.model[j].tp;
                out->stages_s = simulate_when(&s.job[PAST], false, &when,
                                              &fused);
            }
        }
        close_instance(&in);
    }
}

enum { TRIED = 2 }; /* trainings that are searched */

/* Keeps the trainings whose bounds are least. */
static void keep(struct training kept[TRIED], double bound[TRIED],
                 const struct training *t, double seconds)
{
    for (int i = 0; i < TRIED; i++)
        if (seconds < bound[i]) {
            memmove(&kept[i + 1], &kept[i],
                    (size_t) (TRIED - 1 - i) * sizeof *kept);
            memmove(&bound[i + 1], &bound[i],
                    (size_t) (TRIED - 1 - i) * sizeof *bound);
            kept[i] = *t;
            bound[i] = seconds;
            return;
        }
}

static void own_training(const struct setting *s, double tokens,
                         const struct weft_cluster *cluster, struct own *out)
{
    const int size[2] = {s->actor, s->critic};
    struct training kept[TRIED];
    double bound[TRIED];
    for (int i = 0; i < TRIED; i++)
        bound[i] = INFINITY;
    /* tp, each model's stages once or twice what its devices need, and samples
     * of its micro-batches */
    for (int i = 0; i < 4 * 2 * 2 * 4 * 4; i++) {
        struct training t = {.tp = 1 << i % 4,
                             .samples = {1 << i / 16 % 4, 1 << i / 64}};
        struct weft_schedule_model model[2];
        struct weft_schedule_problem p;
        struct weft_schedule_bound b;
        bool divides = true;
        for (int k = 0; k < 2; k++) {
            t.stages[k] = stages_of(size[k]) * GPUS / t.tp
                       << (i / (k ? 8 : 4) % 2);
            divides = divides && t.stages[k] <= sizes[size[k]].layers;
        }
        if (!divides || !set_problem(s, &t, tokens, cluster, model, &p))
            continue;
        CHECK(weft_schedule_bounds(&p, 0, &b, &err));
        free_problem(model);
        keep(kept, bound, &t, b.makespan);
    }
    for (int i = 0; i < TRIED && isfinite(bound[i]); i++) {
        double seconds = train(s, &kept[i], tokens, cluster).fused_s;
        if (seconds >= out->train_s)
            continue;
        out->train_s = seconds;
        out->training = kept[i];
    }
}

/* Seconds of an iteration, RLHFuse's and own; train_s: of them, of its
 * training. */
static void print_own(const struct setting *s, double tokens, double fused_s,
                      double train_s, const struct weft_cluster *cluster)
{
    struct own own = {.training = published_training(s), .train_s = train_s};
    char name[60];
    own_stages(s, tokens, cluster, &own);
    own_training(s, tokens, cluster, &own);
    const struct training *t = &own.training;
    double all_s = own.stages_s + own.train_s;
    printf("    own layouts: tp%d, inference tp%d,%d,%d %5.2f s; training "
           "tp%d pp%d,%d of %d,%d samples %5.2f s; %5.2f s, %.2f times as "
           "fast\n",
           (int) own.tp, (int) own.infer_tp[REFERENCE],
           (int) own.infer_tp[REWARD], (int) own.infer_tp[CRITIC],
           own.stages_s, (int) t->tp, t->stages[0], t->stages[1],
           t->samples[0], t->samples[1], own.train_s, all_s, fused_s / all_s);
    snprintf(name, sizeof name, "%s/%s, %d tokens", sizes[s->actor].name,
             sizes[s->critic].name, s->most);
    add_row(&(struct row){ROW_MORE, "RLHFuse", name, "", "s", fused_s, all_s,
                          "both fusions, each call's fastest layout with "
                          "them"});
}

/* ---- The table ---------------------------------------------------------- */

/* Of a ratio, over all settings; bound: it can be no more in a setting. */
struct range {
    double least, most, least_bound, most_bound;
};

static void widen(struct range *r, double ratio, double bound)
{
    r->least = fmin(r->least, ratio);
    r->most = fmax(r->most, ratio);
    r->least_bound = fmin(r->least_bound, bound);
    r->most_bound = fmax(r->most_bound, bound);
}

enum { STAGES, TRAINING, ITERATION, CHAT, N_RATIOS };

static void print_row(struct setting *s, const struct weft_cluster *cluster,
                      struct range range[N_RATIOS])
{
    const struct weft_overlap_job *job = &s->job[PAST];
    struct weft_overlap_when when;
    struct weft_overlapped out;
    double tokens = PROMPT, bound;
    for (int k = 0; k < SAMPLES; k++)
        tokens += (double) job->sample[k].length / SAMPLES;
    CHECK(weft_overlap_choose(PAST, s->job, &when, NULL, NULL, &err));
    CHECK(weft_overlap_bound(job, &bound, &err));
    double serial = simulate(job, true, 0, 0, &out);
    double fused = simulate_when(job, false, &when, &out);
    const struct training published = published_training(s);
    struct trained t = train(s, &published, tokens, cluster);
    double chat = base_in_node_s(s, cluster)
                + train_zero_s(s->actor, tokens, cluster)
                + train_zero_s(s->critic, tokens, cluster);
    double all = fused + t.fused_s, all_bound = bound + t.bound_s;
    double before[N_RATIOS] = {serial, t.serial_s, serial + t.serial_s, chat};
    double after[N_RATIOS] = {fused, t.fused_s, all, all};
    double least[N_RATIOS] = {bound, t.bound_s, all_bound, all_bound};
    printf("%s/%s %5d", sizes[s->actor].name, sizes[s->critic].name, s->most);
    for (int i = 0; i < N_RATIOS; i++) {
        printf(i == CHAT ? " %7.2f" : " %7.2f %7.2f", before[i], after[i]);
        printf(" %5.2f of %4.2f", before[i] / after[i], before[i] / least[i]);
        widen(&range[i], before[i] / after[i], before[i] / least[i]);
    }
    printf("\n");
    print_own(s, tokens, all, t.fused_s, cluster);
    fflush(stdout);
}

/* Met where all settings are in the published range, to two digits. */
static void add_range(const char *what, double low, double high,
                      const struct range *r, const char *why)
{
    char text[200];
    snprintf(text, sizeof text,
             "%s, predicted %.2f to %.2f; no schedule has more than %.2f to "
             "%.2f",
             what, r->least, r->most, r->least_bound, r->most_bound);
    bool in = r->least >= low - 0.005 && r->most <= high + 0.005;
    add_row(&(struct row){ROW_ORDER, "RLHFuse", "256 GPUs, 12 settings", text,
                          "", 1, in, why});
    printf("%s\n", text);
}

int main(int argc, char **argv)
{
    static struct setting s;
    static struct instance in;
    static const char *const what[] = {
        "generation and inference, base over fused: published 1.2 to 1.6",
        "training, base over fused: published 1.2 to 1.3",
        "iteration, base over fused: published 1.2 to 1.4",
        "iteration, DeepSpeed-Chat over fused: published 2.5 to 3.7"};
    static const double low[] = {1.2, 1.2, 1.2, 2.5};
    static const double high[] = {1.6, 1.3, 1.4, 3.7};
    static const char *const why[] = {
        "inference takes too little of what generation does by these costs",
        NULL,
        "generation is 60 to 90 % of an iteration by these costs, and its "
        "longest samples cannot be fused away",
        "placement and layout alone: its kernels and engine are not priced"};
    struct range range[N_RATIOS];
    struct weft_cluster cluster;
    if (argc != 2) {
        fprintf(stderr, "usage: papers_rlhfuse CLUSTER.yaml\n");
        return 2;
    }
    for (int i = 0; i < N_RATIOS; i++)
        range[i] = (struct range){INFINITY, 0, INFINITY, 0};
    CHECK(weft_cluster_read(argv[1], &cluster, &err));
    printf("RLHFuse: seconds of generation and inference, of training and of "
           "an iteration,\nbase and fused, and DeepSpeed-Chat's over fused; "
           "each ratio with the most that\nany schedule of these stages has\n"
           "actor/critic max gen+inf   fused                  train   fused "
           "                 whole   fused                DS-Chat\n");
    for (size_t i = 0; i < WEFT_COUNT(longest); i++)
        for (size_t p = 0; p < WEFT_COUNT(pairs); p++) {
            set_up(&s, &in, p, longest[i], &tails[1], &cluster);
            print_row(&s, &cluster, range);
            close_instance(&in);
        }
    printf("\n");
    for (int i = 0; i < N_RATIOS; i++)
        add_range(what[i], low[i], high[i], &range[i], why[i]);
    return 0;
}
