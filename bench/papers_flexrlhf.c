/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FlexRLHF's tables I to V beside what Weft's prices make of its placements.
 *
 *     bench/papers_flexrlhf examples/clusters/flexrlhf_a100.yaml \
 *         examples/clusters/flexrlhf_mixed.yaml
 *
 * Prompts of 256 tokens and responses of 256, one mini-batch, as the paper says
 * (section V). Each call is priced by itself on the devices and with the layout
 * that the strategy gives it (run/predict/price.h), and the calls of a step
 * follow one another but where devices are others: the paper's step is that of
 * its algorithms 1 and 2. Actor and critic train LoRA's adapters (rank 4).
 *
 * What no plan has, and is added by a formula: where ZeRO 3 generates (33B and
 * 65B, co-located and interleaved), each decode step gathers all weights.
 * Models of 7B train with ZeRO 2 and generate data parallel, 13B with ZeRO 3 and
 * tensor parallel in a node (section V-B1). AC-Share, a critic that is a head on
 * the policy, is no critic at all here.
 *
 * Batches are the largest that fit 95 % of a device: weights as they lie, and
 * what a sample takes, the slope of predicted memory between two batches;
 * gradients and optimizer state of adapters, which are 0.3 GB of a whole 7B
 * model, are left out.
 *
 * Two numbers are calibrated, each on one cell of table I, DeepSpeed-Chat on 8
 * GPUs: layer_us (7B), and the share of links' rates that gathering reaches
 * (33B).
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/flexrlhf.h"
#include "bench/median.h"

/* ---- Calibration -------------------------------------------------------- */

static void calibrate(struct bench *b)
{
    const struct cell *row = &cells[0];
    double *layer_s = &b->cluster.kind[0].layer_s, file_s = *layer_s;
    int n = samples_of(row, 0, largest_batch(b, row, 0));
    double want = n / row->rate[0], at[2];
    b->gather_share = 1;
    for (int i = 0; i < 2; i++) {
        *layer_s = file_s + i * 1e-4;
        at[i] = play(b, row, 0, n).seconds;
    }
    *layer_s = fmax(0, file_s + 1e-4 * (want - at[0]) / (at[1] - at[0]));
    n = samples_of(row, 2, largest_batch(b, row, 2));
    struct step step = play(b, row, 2, n);
    b->gather_share = step.gathered
                    / (n / row->rate[2] - step.seconds + step.gathered);
    printf("calibrated on two cells of DeepSpeed-Chat on 8 GPUs: layer_us "
           "%.0f (the file has %.0f; 7B), gathers reach %.3f of links (33B)"
           "\n\n",
           1e6 * *layer_s, 1e6 * file_s, b->gather_share);
}

/* ---- Rows of the table of all papers ------------------------------------ */

struct got {
    int batch;
    struct step step;
    double rate; /* 0: it does not fit, or is not published */
};

static double share(const struct got *g)
{
    return 100 * g->step.generation / g->step.seconds;
}

/* GB/s that come into a node where a step takes what is published and all but
 * the gathers between nodes takes what is predicted; 0: there are none. */
static double implied_rails(const struct bench *b, const struct cell *row,
                            int size, const struct got *g)
{
    int nodes = row->devices / DEVICES;
    if (!(g->step.gathered > 0) || nodes < 2)
        return 0;
    double inside_s = gathers(b, size, DEVICES);
    double left_s = g->step.samples / row->rate[size]
                  - (g->step.seconds - g->step.gathered) - inside_s;
    return TOKENS * weight_bytes(size) * (nodes - 1) / nodes / left_s / 1e9;
}

/* The batch of a device with which a step has the published rate, at most
 * `most`. */
static int implied_batch(const struct bench *b, const struct cell *row,
                         int size, int most)
{
    for (int n = 1; n < most; n++) {
        struct step step = play(b, row, size, samples_of(row, size, n));
        if (step.samples / step.seconds >= row->rate[size])
            return n;
    }
    return most;
}

/* Why cells are off, where that is known. */
static const char *why_missed(const struct bench *b, const struct cell *row,
                              int size, const struct got *g)
{
    static char text[120];
    double gbs = implied_rails(b, row, size, g);
    if (gbs > 0 && row->strategy != INTERLEAVE_2) {
        snprintf(text, sizeof text,
                 "as if gathers had %.0f GB/s between nodes, of %.0f", gbs,
                 b->cluster.kind[0].n_rails
                     * b->cluster.kind[0].rail.bytes_per_s / 1e9);
        return text;
    }
    if (row->strategy == INTERLEAVE_2 && size < 2)
        return "half as fast as DeepSpeed-Chat there, as if its halves did "
               "not run side by side";
    if (row->strategy == INTERLEAVED && row->keeps) {
        snprintf(text, sizeof text,
                 "as if %d samples fitted a device, not %d",
                 implied_batch(b, row, size, g->batch), g->batch);
        return text;
    }
    if (row->strategy == STANDALONE
        || (row->strategy == COEXISTED && size == 0)) {
        snprintf(text, sizeof text,
                 "as if the reward model's one device did %.0f TFLOP/s; "
                 "recompute changes nothing there",
                 row->rate[size] * 2 * TOKENS * weight_bytes(size) / 1e12);
        return text;
    }
    if (row->strategy == DISAGGREGATED && row->devices == 32 && size == 2) {
        snprintf(text, sizeof text,
                 "the step takes %.0f s (30 published) for %d samples, of "
                 "which it has %.0f there",
                 g->step.seconds, g->step.samples, 30 * row->rate[size]);
        return text;
    }
    return NULL;
}

static void add_cell(const struct bench *b, const struct cell *row, int size,
                     const struct got *g, bool fitted, bool doubted)
{
    char setting[80];
    if (row->rate[size] <= 0 || !(g->rate > 0))
        return;
    snprintf(setting, sizeof setting, "%s %s, %d GPUs%s", row->table,
             sizes[size].name, row->devices, row->keeps ? ", kept" : "");
    add_row(&(struct row){fitted    ? ROW_CALIBRATED
                          : doubted ? ROW_FLAGGED
                                    : ROW_PREDICTED,
                          "FlexRLHF", setting, name_of[row->strategy],
                          "samples/s", row->rate[size], g->rate,
                          doubted ? "slower on 16 GPUs than on 8"
                                  : why_missed(b, row, size, g)});
}

static void add_order(const struct cell *a, const struct cell *b, int size,
                      bool same)
{
    char setting[80], what[80], why[120];
    snprintf(setting, sizeof setting, "%s, %d GPUs%s", sizes[size].name,
             a->devices, a->keeps ? ", kept" : "");
    snprintf(what, sizeof what, "%s before %s",
             name_of[(a->rate[size] > b->rate[size] ? a : b)->strategy],
             name_of[(a->rate[size] > b->rate[size] ? b : a)->strategy]);
    snprintf(why, sizeof why, "published as %.1f %% apart%s",
             100 * fabs(a->rate[size] / b->rate[size] - 1),
             a->strategy == INTERLEAVE_1
                 ? "; ZeRO 3 leaves no whole model to move away here"
                 : "");
    add_row(&(struct row){ROW_ORDER, "FlexRLHF", setting, what, "", 1, same,
                          why});
}

/* ---- The paper's tables ------------------------------------------------- */

static void print_cell(const struct bench *b, const struct cell *row,
                       int size, const struct got *g)
{
    double want = row->rate[size];
    bool fitted = row == cells && (size == 0 || size == 2);
    char published[20];
    snprintf(published, sizeof published, want < 0 ? "OOM" : "%.2f", want);
    printf("%-4s %4d %-15s %-4s%s %9s ", row->table, row->devices,
           name_of[row->strategy], sizes[size].name,
           row->keeps ? " keeps" : "      ", published);
    if (g->rate > 0)
        printf("%9.2f %7.0f%% %6d %6d %6.1f %5.0f%%%s", g->rate,
               want > 0 ? 100 * (g->rate / want - 1) : INFINITY, g->batch,
               g->step.samples, g->step.seconds, share(g),
               fitted ? " calibrated" : "");
    else
        printf("%9s", "OOM");
    bool doubted = row->devices == 16 && size == 2
                && row->strategy == CO_LOCATED;
    if (want > 0 && implied_rails(b, row, size, g) > 0)
        printf(" %4.1f GB/s", implied_rails(b, row, size, g));
    printf("%s\n", doubted ? " flagged: slower than on 8" : "");
    add_cell(b, row, size, g, fitted, doubted);
    fflush(stdout);
}

/* Pairs of strategies that have the same devices and size and differ by more
 * than 2 % as published: how many are predicted in the same order. */
static void print_order(struct got got[][N_SIZES])
{
    int n = 0, kept = 0;
    for (size_t i = 0; i < WEFT_COUNT(cells); i++)
        for (size_t j = 0; j < i; j++)
            for (int k = 0; k < N_SIZES; k++) {
                const struct cell *a = &cells[i], *b = &cells[j];
                double x = a->rate[k], y = b->rate[k];
                if (a->devices != b->devices || a->keeps != b->keeps
                    || is_shared(a->strategy) != is_shared(b->strategy)
                    || x <= 0 || y <= 0 || fabs(x / y - 1) < 0.02)
                    continue;
                bool same = (x > y) == (got[i][k].rate > got[j][k].rate);
                n++;
                kept += same;
                add_order(a, b, k, same);
                if (!same)
                    printf("another order: %s, %s on %d: %.2f and %.2f "
                           "published, %.2f and %.2f predicted\n",
                           sizes[k].name, name_of[a->strategy], a->devices, x,
                           y, got[i][k].rate, got[j][k].rate);
            }
    printf("order of strategies: %d of %d pairs as published\n", kept, n);
}

/* ---- Other plans, other devices ------------------------------------------ */

/* A step of four models on all devices, each call with its fastest tp. */
static void print_more(const struct bench *b, struct got got[][N_SIZES])
{
    printf(
        "\nwhat plans could have that the paper's systems had not: 16 GPUs, "
        "every call on all\nof them with its fastest tp, samples/s\n");
    for (int k = 0; k < N_SIZES; k++) {
        double seconds = 0, most = 0;
        int n = got[2][k].step.samples;
        printf("%-4s", sizes[k].name);
        for (int c = 0; c < N_CALLS && n > 0; c++) {
            double best = INFINITY;
            int at = 1;
            for (int tp = 1; tp <= node_tp(k); tp *= 2) {
                const struct layout l = {16, tp, k ? 3 : 2};
                double s = price(b, k, c, &l, n, plain);
                at = s < best ? tp : at;
                best = fmin(best, s);
            }
            printf(" %s tp%d", call_name[c], at);
            seconds += best;
        }
        for (int i = 2; i < 5; i++)
            most = fmax(most, got[i][k].rate);
        printf(": %.2f, %.2f times the best of table I\n", n / seconds,
               n / seconds / most);
        char setting[80];
        snprintf(setting, sizeof setting, "%s, 16 GPUs", sizes[k].name);
        add_row(&(struct row){ROW_MORE, "FlexRLHF", setting, "", "samples/s",
                              most, n / seconds,
                              "every call on all GPUs with its fastest tp"});
    }
}

/* Table III, 33B: two A100 generate, each with a whole actor; four V100 in a
 * node infer with the reference, four with the reward model; the other A100
 * train, and infer with the critic. A sample of a training device is one of
 * DeepSpeed-Chat's; generation goes in turns of as many samples as have room
 * for their caches beside the weights. */
static void print_mixed(const struct bench *b,
                        const struct weft_cluster *mixed,
                        const struct got *chat)
{
    enum { SIZE = 2, GENERATING = 2, PART = 4 };
    const struct layout generates = {GENERATING, 1, 0},
                        infers = {PART, PART, 0}, rest = {DEVICES, 1, 3};
    struct bench v100 = *b;
    const int trained = DEVICES - GENERATING;
    int n = chat->batch * trained;
    double room = WEFT_BATCH_SHARE * b->cluster.kind[0].memory_bytes
                - weight_bytes(SIZE);
    int slots = (int) (room / cache_bytes(SIZE));
    if (chat->batch < 1 || slots < 1 || mixed->n_kinds < 2) {
        printf("table III: 33B has no room to generate on one A100\n");
        return;
    }
    int turns = (n + GENERATING * slots - 1) / (GENERATING * slots);
    v100.cluster.kind[0] = mixed->kind[1];
    /* a node for each of price(), of which a call has PART devices */
    v100.cluster.kind[0].n_nodes = b->cluster.kind[0].n_nodes;
    v100.cluster.kind[0].n_devices = DEVICES;
    v100.cluster.kind[0].layer_s = b->cluster.kind[0].layer_s;
    /* the load of each training device, of eight */
    int load = n * DEVICES / trained;
    double generated = turns
                     * price(b, SIZE, GENERATE, &generates,
                             (n + turns - 1) / turns, plain);
    double frozen = fmax(price(&v100, SIZE, REFERENCE, &infers, n, plain),
                         price(&v100, SIZE, REWARD, &infers, n, plain));
    double seconds = generated
                   + fmax(frozen, price(b, SIZE, CRITIC, &rest, load, plain))
                   + price(b, SIZE, TRAIN, &rest, load, plain)
                   + price(b, SIZE, TRAIN_CRITIC, &rest, load, plain);
    double rate = n / seconds;
    printf(
        "table III, 33B, 8 A100 and 8 V100: %.2f samples/s published, %.2f "
        "predicted (%+.0f %%), of %d samples;\n%.2f and %.2f times "
        "DeepSpeed-Chat on 8 A100\n",
        0.79, rate, 100 * (rate / 0.79 - 1), n, 0.79 / 0.69,
        rate / chat->rate);
    double left_s = n / 0.79 - (seconds - generated);
    char why[100];
    snprintf(why, sizeof why,
             "as if a device generated %.0f samples at a time, and not %d",
             n / (GENERATING * left_s * turns / generated), slots);
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF",
                          "III 33B, 8 A100 and 8 V100", "Disaggregated",
                          "samples/s", 0.79, rate, why});
}

static const char yaml[] = "algorithm: ppo\n"
                           "run_dir: unset\n"
                           "iterations: 1\n"
                           "data: {prompt_tokens: 256}\n"
                           "reward: [{type: model, model: unset}]\n"
                           "rollout: {max_new_tokens: 256}\n"
                           "ppo: {mini_batches: 1}\n"
                           "numerics: {dtype: bf16}\n"
                           "runtime: {place: device}\n";

static void make_files(struct bench *b)
{
    char path[600];
    snprintf(b->dir, sizeof b->dir, "%s/weft-papers-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(b->dir)) {
        perror("papers_flexrlhf");
        exit(1);
    }
    for (int i = 0; i < N_SIZES; i++) {
        snprintf(path, sizeof path, "%s-reward", sizes[i].name);
        made_model(b->dir, sizes[i].name, &sizes[i], false);
        made_model(b->dir, path, &sizes[i], true);
    }
    snprintf(path, sizeof path, "%s/run.yaml", b->dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
}

/* Prints the cells of the tables; returns the number of errors. */
static int play_cells(const struct bench *b, struct got got[][N_SIZES],
                      double error[])
{
    int n = 0;
    printf("FlexRLHF    %-32s published predicted   error  batch samples  "
           "step  gen  rails that gathers would need\n",
           "");
    for (size_t i = 0; i < WEFT_COUNT(cells); i++)
        for (int k = 0; k < N_SIZES; k++) {
            const struct cell *row = &cells[i];
            struct got *g = &got[i][k];
            if (!(fabs(row->rate[k]) > 0))
                continue;
            g->batch = largest_batch(b, row, k);
            if (g->batch > 0) {
                g->step = play(b, row, k, samples_of(row, k, g->batch));
                g->rate = g->step.samples / g->step.seconds;
            }
            print_cell(b, row, k, g);
            if (row->rate[k] > 0 && g->rate > 0
                && !(i == 0 && (k == 0 || k == 2)))
                error[n++] = fabs(g->rate / row->rate[k] - 1);
        }
    return n;
}

static void print_parts(struct got got[][N_SIZES])
{
    printf("largest batch of a device, 7B on 8: %d and %d, %.2f times; "
           "published 24 and 36, 1.5\n",
           got[0][0].batch, got[1][0].batch,
           (double) got[1][0].batch / got[0][0].batch);
    printf(
        "generation's part of a step: 33B on 32, DeepSpeed-Chat %.0f %% and "
        "Disaggregated %.0f %%, published\n93.31 and 56; 7B, AC-Share on "
        "16, Interleaving %.0f %%, published 34.83\n",
        share(&got[5][2]), share(&got[7][2]), share(&got[17][0]));
    printf("13B, AC-Share: %d and %d; published 2 and 50\n", got[14][1].batch,
           got[15][1].batch);
}

/* The same as rows of the table of all papers. */
static void add_parts(struct got got[][N_SIZES])
{
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF", "7B, 8 GPUs",
                          "Interleave1's batch", "times", 1.5,
                          (double) got[1][0].batch / got[0][0].batch, NULL});
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF", "13B, AC-Share, 8 GPUs",
                          "trlX's largest batch", "samples", 2,
                          got[14][1].batch, NULL});
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF", "13B, AC-Share, 8 GPUs",
                          "Interleaving's batch", "samples", 50,
                          got[15][1].batch, NULL});
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF", "33B, 32 GPUs",
                          "DeepSpeed-Chat generates", "%", 93.31,
                          share(&got[5][2]), NULL});
    add_row(&(struct row){
        ROW_FLAGGED, "FlexRLHF", "33B, 32 GPUs", "Disaggregated generates",
        "%", 56, share(&got[7][2]),
        "of a step of 30 s, 13 times as fast as DeepSpeed-Chat's 400, where "
        "table II has 5.1 times"});
    add_row(&(struct row){ROW_PREDICTED, "FlexRLHF", "7B, AC-Share, 16 GPUs",
                          "Interleaving generates", "%", 34.83,
                          share(&got[17][0]),
                          "of a step of 10 s, so of 547 samples"});
}

int main(int argc, char **argv)
{
    static struct bench b;
    static struct got got[WEFT_COUNT(cells)][N_SIZES];
    double error[WEFT_COUNT(cells) * N_SIZES];
    struct weft_cluster mixed;
    if (argc != 3) {
        fprintf(stderr, "usage: papers_flexrlhf CLUSTER.yaml MIXED.yaml\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &b.cluster, &err));
    CHECK(weft_cluster_read(argv[2], &mixed, &err));
    /* layers have what their launches take */
    b.cluster.kind[0].task_s = mixed.kind[1].task_s = 0;
    make_files(&b);
    for (int k = 0; k < N_SIZES; k++)
        for (int i = 0; i < (k < 2 ? 4 : 1); i++) {
            struct setting setting = {i / 2, i % 2};
            double *bytes = &b.sample_bytes[k][setting.shared][setting.keeps];
            *bytes = slope(&b, k, setting);
            printf("%s: a sample takes %.3f GiB of a device%s%s\n",
                   sizes[k].name, *bytes / 0x1p30,
                   setting.shared ? ", AC-Share" : "",
                   setting.keeps ? ", activations kept" : "");
            fflush(stdout);
        }
    calibrate(&b);
    int n = play_cells(&b, got, error);
    double median = median_sort(error, n);
    printf("\nmedian error %.0f %%, largest %.0f %% (of %d cells)\n",
           100 * median, 100 * error[n - 1], n);
    print_order(got);
    print_parts(got);
    add_parts(got);
    print_mixed(&b, &mixed, &got[0][2]);
    print_more(&b, got);
    weft_dir_remove(b.dir, NULL);
    return 0;
}
