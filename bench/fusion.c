/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inter-stage fusion in RLHFuse's setting (section 7), simulated: generation
 * and inference with and without migration, the curve of its figure 9, and the
 * choice made from earlier iterations beside the best in hindsight.
 *
 *     bench/fusion examples/clusters/rlhfuse_hopper.yaml
 *
 * Fixed before any of it was run: 512 samples an iteration; prompts of 256
 * tokens (the paper does not say), of which a step reads up to 256, as is our
 * default; responses as bench/fusion.h has them. Models
 * have LLaMA's own MLP widths, with which table 2's names are true.
 *
 * The paper does not say how its instances are laid out: each actor has the tp
 * that is fastest without fusion, by these costs, up to its tensor blocks. An
 * inference model has the devices of an instance, in replicas of as many as its
 * blocks allow. Links inside nodes are tp times as fast, as in bench/papers.c.
 */
#include "bench/fusion.h"

/* ---- Tables ------------------------------------------------------------- */

static void print_lengths(void)
{
    static const double z[] = {0, 1.2816, 2.3263, 3.0902};
    printf("lengths of responses, before they are cut: median, p90, p99, "
           "p99.9\n");
    for (size_t t = 0; t < WEFT_COUNT(tails); t++) {
        printf("  lognormal:%d:%-6g", tails[t].median, tails[t].sigma);
        for (int i = 0; i < 4; i++)
            printf(" %6.0f", tails[t].median * exp(tails[t].sigma * z[i]));
        printf("   tail: %s\n", tails[t].name);
    }
}

/* The ratio to the paper's base, and how far the choice is from the best. */
struct row {
    double ratio, regret;
};

static struct row print_row(struct setting *s, struct instance *in,
                            const char *tail)
{
    const struct weft_overlap_job *job = &s->job[PAST];
    struct weft_overlap_when when, best;
    struct weft_overlapped serial, streamed, fused;
    double best_s, bound_s;
    CHECK(weft_overlap_bound(job, &bound_s, &err));
    CHECK(weft_overlap_choose(PAST, s->job, &when, NULL, NULL, &err));
    CHECK(weft_overlap_choose(1, job, &best, &best_s, NULL, &err));
    simulate(job, true, 0, 0, &serial);
    simulate(job, false, 0, 0, &streamed);
    simulate_when(job, false, &when, &fused);
    struct row row = {serial.all_s / fused.all_s,
                      100 * (fused.all_s / best_s - 1)};
    printf("%s/%s %5d %-7s %3dxtp%d %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f "
           "%6.2f %5.2f %5.2f %4.0f %4d %4d %5d %5d %6.2f\n",
           sizes[s->actor].name, sizes[s->critic].name, s->most, tail,
           job->n_instances, in->n_devices, serial.generated_s,
           serial.all_s - serial.generated_s, streamed.all_s, fused.all_s,
           row.ratio, streamed.all_s / fused.all_s, bound_s,
           serial.all_s / bound_s, fused.all_s / serial.generated_s,
           100 * when.share, fused.n_migrated, fused.n_stay, fused.n_moved,
           fused.n_read, row.regret);
    fflush(stdout);
    return row;
}

/* Has inference take so much of what generation does; loading weights is not
 * scaled, so it may take more. */
static void scale_inference(struct setting *s, struct instance *in,
                            double ratio)
{
    struct weft_overlapped serial;
    for (int i = 0; i < 4; i++) {
        simulate(&s->job[PAST], true, 0, 0, &serial);
        in->scale *= ratio * serial.generated_s
                   / (serial.all_s - serial.generated_s);
    }
}

static void print_ratios(struct setting *s, struct instance *in)
{
    static const double ratio[] = {0.2, 0.4, 0.6};
    const struct weft_overlap_job *job = &s->job[PAST];
    printf("%s/%s %5d %-7s", sizes[s->actor].name, sizes[s->critic].name,
           s->most, s->tail.name);
    for (size_t k = 0; k < WEFT_COUNT(ratio); k++) {
        struct weft_overlap_when when;
        struct weft_overlapped serial, streamed, fused;
        double bound_s;
        scale_inference(s, in, ratio[k]);
        simulate(job, true, 0, 0, &serial);
        CHECK(weft_overlap_bound(job, &bound_s, &err));
        CHECK(weft_overlap_choose(PAST, s->job, &when, NULL, NULL, &err));
        simulate(job, false, 0, 0, &streamed);
        simulate_when(job, false, &when, &fused);
        printf(" | %4.2f %4.2f %4.2f %4.2f %3.0f",
               serial.all_s / serial.generated_s - 1,
               serial.all_s / streamed.all_s, serial.all_s / fused.all_s,
               serial.all_s / bound_s, 100 * when.share);
    }
    printf("\n");
    fflush(stdout);
}

/* Figure 9: time over the share that is left at the trigger, before which none
 * infers. */
static void print_curve(const struct setting *s)
{
    struct weft_overlap_job job = s->job[PAST];
    double seconds[20], bound_s;
    int best = 0;
    job.at_trigger = true;
    CHECK(weft_overlap_bound(&job, &bound_s, &err));
    printf("%s/%s %-5s", sizes[s->actor].name, sizes[s->critic].name,
           s->tail.name);
    for (int k = 0; k < (int) WEFT_COUNT(seconds); k++) {
        struct weft_overlapped out;
        seconds[k] = simulate(&job, k == 0, 0.05 * k, 0, &out);
        printf(" %5.2f", seconds[k]);
        if (seconds[k] < seconds[best])
            best = k;
    }
    printf("   least at %d %%, %.1f %% less than at 20; base / least %.2f of "
           "%.2f\n",
           5 * best, 100 * (1 - seconds[best] / seconds[4]),
           seconds[0] / seconds[best], seconds[0] / bound_s);
    fflush(stdout);
}

static void print_curves(struct setting *s, struct instance *in,
                         const struct weft_cluster *cluster)
{
    printf(
        "\nfigure 9: seconds by share left at the trigger (0, 5, ... 95 "
        "%%), fewest instances,\nmax 1024; 0 is the base; published: least "
        "near 20 %%; first with inference as it is,\nthen with 0.6 of "
        "generation\n");
    for (int scaled = 0; scaled < 2; scaled++)
        for (size_t t = 1; t < WEFT_COUNT(tails); t += 3)
            for (size_t p = 0; p < WEFT_COUNT(pairs); p++) {
                set_up(s, in, p, 1024, &tails[t], cluster);
                if (scaled)
                    scale_inference(s, in, 0.6);
                print_curve(s);
                close_instance(in);
            }
}

/* ---- One assumption at a time -------------------------------------------- */

/* What could be otherwise than is assumed here; 0: it is as it is. */
struct other {
    const char *what;
    double layer_us;   /* launches of a layer */
    double large;      /* share of the peak that 1,024 rows or more reach */
    double inside_gbs; /* of a GPU's links inside a node, each way */
    double ratio;      /* of inference to generation */
    bool padded;       /* inference has all samples as long as they may be */
    bool loads;    /* all weights come from the host when inference begins */
    bool by_batch; /* BS_max is of steps without KV caches */
};

static void change_cluster(const struct other *o, struct weft_cluster *c)
{
    struct weft_node_kind *kind = &c->kind[0];
    struct weft_size_table *rows = &kind->by_rows;
    if (o->layer_us > 0)
        kind->layer_s = 1e-6 * o->layer_us;
    if (o->inside_gbs > 0)
        kind->inside.bytes_per_s = 1e9 * o->inside_gbs;
    for (int32_t i = 0; i < rows->n && o->large > 0; i++)
        if (rows->size[i] >= 1024)
            rows->value[i] = o->large;
}

static void change_jobs(const struct other *o, struct setting *s,
                        struct instance *in)
{
    const struct weft_cluster *c = &in->actor.cluster;
    in->padded = o->padded ? PROMPT + s->most : 0;
    if (o->by_batch)
        s->costs.most_batch = weft_migrate_most_batch(&s->costs, 1, SAMPLES);
    for (int i = 0; i <= PAST && o->loads; i++)
        for (int j = 0; j < N_MODELS; j++)
            s->job[i].load_s[j] = weight_bytes(&in->model[j])
                                / c->kind[0].host.bytes_per_s;
    if (o->ratio > 0)
        scale_inference(s, in, o->ratio);
}

/* What is to gain, and figure 9 at some shares, over its least. */
static void print_other(const struct setting *s, const struct instance *in)
{
    static const int share[] = {0, 5, 10, 20, 35, 50, 75, 95};
    const struct weft_overlap_job *job = &s->job[PAST];
    struct weft_overlap_job curve = *job;
    struct weft_overlap_when when;
    struct weft_overlapped serial, fused, out;
    double bound_s, seconds[20], least = INFINITY;
    CHECK(weft_overlap_bound(job, &bound_s, &err));
    CHECK(weft_overlap_choose(PAST, s->job, &when, NULL, NULL, &err));
    simulate(job, true, 0, 0, &serial);
    simulate_when(job, false, &when, &fused);
    printf("   %s/%s tp%d %3d %6.2f %5.2f %5.2f %5.2f |",
           sizes[s->actor].name, sizes[s->critic].name, in->n_devices,
           weft_migrate_most_batch(&s->costs, s->costs.most_batch ? 1 : 500,
                                   SAMPLES),
           serial.generated_s, serial.all_s / serial.generated_s - 1,
           serial.all_s / fused.all_s, serial.all_s / bound_s);
    curve.at_trigger = true;
    for (int k = 0; k < 20; k++) {
        seconds[k] = simulate(&curve, k == 0, 0.05 * k, 0, &out);
        least = fmin(least, seconds[k]);
    }
    for (size_t i = 0; i < WEFT_COUNT(share); i++)
        printf(" %5.3f", seconds[share[i] / 5] / least);
    printf("\n");
}

static void print_others(struct setting *s, struct instance *in,
                         const struct weft_cluster *cluster)
{
    static const struct other others[] = {
        {.what = "as above"},
        {.what = "a layer's launches take 186 us, as calibrated on ReaL",
         .layer_us = 186},
        {.what = "links inside nodes as an H800's: 200 GB/s",
         .inside_gbs = 200},
        {.what = "large passes reach 30 % of the peak", .large = 0.3},
        {.what = "inference of padded samples", .padded = true},
        {.what = "weights come from the host when inference begins",
         .loads = true},
        {.what = "BS_max of batches alone, as the paper says",
         .by_batch = true},
        {.what = "the same, inference 0.4 of generation",
         .by_batch = true,
         .ratio = 0.4},
        {.what = "the same, and 186 us",
         .by_batch = true,
         .layer_us = 186,
         .ratio = 0.4},
        {.what = "padded, from the host, 30 %, 200 GB/s, batches alone",
         .by_batch = true,
         .padded = true,
         .loads = true,
         .large = 0.3,
         .inside_gbs = 200}};
    printf(
        "\none assumption at a time, max 1024, tail 1: BS_max at 500 tokens, "
        "generation,\ninference over it, base/fused, base/bound | figure 9 "
        "at 0, 5, 10, 20, 35, 50, 75, 95 %% over its least\n");
    for (size_t k = 0; k < WEFT_COUNT(others); k++) {
        struct weft_cluster other = *cluster;
        change_cluster(&others[k], &other);
        printf("%s\n", others[k].what);
        for (size_t p = 0; p < WEFT_COUNT(pairs); p++) {
            set_up(s, in, p, 1024, &tails[1], &other);
            change_jobs(&others[k], s, in);
            print_other(s, in);
            close_instance(in);
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static struct setting s;
    static struct instance in;
    struct weft_cluster cluster;
    double least = INFINITY, most = 0, regret = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: fusion CLUSTER.yaml\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &cluster, &err));
    print_lengths();
    printf(
        "\nseconds: base is RLHFuse-Base, one stage after the other; "
        "streamed is off, with\nfinished samples streamed; no schedule is "
        "shorter than bound (plan/fusion/bound.h).\n"
        "actor/critic max tail    inst      gen    inf stream  fused   base/"
        " strm/  bound base/ fused/  R_t times   m moved  read regret\n"
        "                                                          fused  "
        "fused        bound   gen    %%                      %%\n");
    for (size_t t = 0; t < WEFT_COUNT(tails); t++)
        for (size_t i = 0; i < WEFT_COUNT(longest); i++)
            for (size_t p = 0; p < WEFT_COUNT(pairs); p++) {
                set_up(&s, &in, p, longest[i], &tails[t], &cluster);
                struct row row = print_row(&s, &in, tails[t].name);
                close_instance(&in);
                regret = fmax(regret, row.regret);
                if (strcmp(tails[t].name, "1") != 0)
                    continue;
                least = fmin(least, row.ratio);
                most = fmax(most, row.ratio);
            }
    printf("\nbase/fused, tail 1: %.2f to %.2f; published 1.2 to 1.6\n"
           "choice from %d earlier iterations over the best in hindsight: at "
           "most %.2f %% (bar: 2)\n",
           least, most, PAST, regret);
    print_curves(&s, &in, &cluster);
    print_others(&s, &in, &cluster);
    printf(
        "\ninference of 0.2, 0.4 and 0.6 of generation, which hiding all of "
        "it makes the\npublished 1.2, 1.4 and 1.6: what it is in the base, "
        "base/streamed, base/fused,\nbase/bound, R_t in %%\n");
    for (size_t t = 1; t < WEFT_COUNT(tails); t += 3)
        for (size_t i = 0; i < WEFT_COUNT(longest); i++)
            for (size_t p = 0; p < WEFT_COUNT(pairs); p++) {
                set_up(&s, &in, p, longest[i], &tails[t], &cluster);
                print_ratios(&s, &in);
                close_instance(&in);
            }
    return 0;
}
