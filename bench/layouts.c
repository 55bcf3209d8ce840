/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What layouts cost, a table each (bench/layouts.sh runs them all):
 *
 *     bench/layouts moves          reallocation on 8 places of one process
 *     mpirun -n 2 bench/layouts moves     the same between two ranks
 *     mpirun -n N bench/layouts submit    submission of an optimizer step
 *     bench/layouts memory NAME PLAN.json what a run's devices needed
 *
 * Times are the least of several repetitions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "config.h"
#include "graphs/calls/gather.h"
#include "graphs/calls/calls.h"
#include "lm/context.h"
#include "tests/train_step.h" /* its arguments are named as bench/check.h's */
#include "bench/check.h"

#ifdef WEFT_HAVE_MPI
#include <mpi.h>
#endif

enum { REPEAT = 7 };

static struct weft_context *context;
static struct weft_seq *seq;
static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

static bool is_first(void)
{
    return weft_world_rank() == 0;
}

static struct weft_shape shape_of(int32_t hidden, int32_t n_layers,
                                  int32_t vocab)
{
    struct weft_shape s = {.hidden = hidden,
                           .n_layers = n_layers,
                           .n_heads = 8,
                           .n_kv_heads = 8,
                           .head_dim = hidden / 8,
                           .intermediate = 8 * hidden / 3 / 64 * 64,
                           .vocab = vocab,
                           .max_positions = 2048,
                           .rms_eps = 1e-6f,
                           .rope_theta = 10000,
                           .dtype = WEFT_F32};
    CHECK(weft_shape_partition(&s, 0, &err));
    return s;
}

static void open_context(int devices, bool place_per_device, bool profile)
{
    struct weft_context_options options = {
        .rt = {.n_devices = devices,
               .place_per_device = place_per_device,
               .profile = profile,
               .nap = -1}};
    CHECK(weft_context_open_with(&options, &context, &err));
    seq = context->seq;
}

/* A layout by its text, on all devices of the job. */
static void layout_of(const struct weft_shape *shape, const char *text,
                      int32_t gradient_groups, struct weft_g_layout *out)
{
    int32_t devices = weft_rt_devices_per_rank(context->rt);
    struct weft_plan plan;
    struct weft_dataflow flow;
    weft_flow_init(&flow);
    CHECK(weft_flow_guess(&flow, "actor_train") != 1);
    struct weft_plan_needs needs = {.flow = &flow,
                                    .n_nodes = weft_world_size(),
                                    .n_devices = devices,
                                    .gradient_groups = gradient_groups,
                                    .n_samples = 1 << 20};
    needs.shape[0] = shape;
    CHECK(weft_plan_uniform(text, &needs, &plan, &err));
    CHECK(weft_plan_check(&plan, &needs, &err));
    struct weft_g_job job = weft_g_job_of(context->rt);
    CHECK(weft_g_layout_init(&job, shape, &plan, 1, out, &err));
    weft_plan_release(&plan);
}

/* ---- Reallocation ------------------------------------------------------ */

/* As many bytes as were moved, by the plainest means there is: within a
 * process memcpy on one core, between ranks MPI, as many messages. */
struct plain {
    char *from, *to;
    size_t bytes; /* of each; more than caches hold */
};
enum { PIECE = 1 << 20 };

static double plain_copy(const struct plain *p, size_t total)
{
    double start = weft_clock_s();
    for (size_t done = 0; done < total; done += PIECE) {
        size_t n = total - done < PIECE ? total - done : PIECE;
        memcpy(p->to + done % p->bytes, p->from + done % p->bytes, n);
    }
    return weft_clock_s() - start;
}

#ifdef WEFT_HAVE_MPI
/* This rank's messages to the other, and the other's to this one. */
static double plain_messages(const struct plain *p, size_t sent, size_t got,
                             int n_sent, int n_got)
{
    MPI_Request *request = weft_alloc((size_t) (n_sent + n_got),
                                      sizeof *request);
    int peer = 1 - weft_world_rank(), n = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = weft_clock_s();
    for (int i = 0; i < n_got; i++, n++)
        MPI_Irecv(p->to + got / (size_t) n_got * (size_t) i,
                  (int) (got / (size_t) n_got), MPI_BYTE, peer, i,
                  MPI_COMM_WORLD, &request[n]);
    for (int i = 0; i < n_sent; i++, n++)
        MPI_Isend(p->from + sent / (size_t) n_sent * (size_t) i,
                  (int) (sent / (size_t) n_sent), MPI_BYTE, peer, i,
                  MPI_COMM_WORLD, &request[n]);
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    double s = weft_clock_s() - start;
    weft_free(request);
    return s;
}
#endif

/* What crossed between ranks since start, to and from this one. */
static struct weft_traffic traffic(void)
{
    struct weft_traffic t;
    weft_rt_traffic(context->rt, WEFT_MEM_WEIGHTS, &t);
    return t;
}

static double plain_s(const struct plain *p, size_t total,
                      struct weft_traffic was)
{
    if (weft_world_size() == 1)
        return plain_copy(p, total);
#ifdef WEFT_HAVE_MPI
    struct weft_traffic now = traffic();
    int64_t mine[2] = {(int64_t) (now.sent_bytes - was.sent_bytes),
                       now.n_messages - was.n_messages};
    int64_t other[2];
    MPI_Sendrecv(mine, 2, MPI_INT64_T, 1 - weft_world_rank(), 0, other, 2,
                 MPI_INT64_T, 1 - weft_world_rank(), 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    return plain_messages(p, (size_t) mine[0], (size_t) other[0],
                          (int) mine[1], (int) other[1]);
#else
    (void) was;
    return 0;
#endif
}

static void moves_row(const struct weft_shape *shape, const char *from,
                      const char *to, const struct plain *plain)
{
    struct weft_g_layout home, layout;
    struct weft_g_model m;
    size_t least = 0, moved = 0;
    double best = 1e300, best_plain = 1e300;
    layout_of(shape, from, 8, &home);
    layout_of(shape, to, 8, &layout);
    CHECK(weft_g_model_init(context->rt, "bench", shape, home.plan.zero > 0,
                            &home, &m, &err));
    for (int i = 0; i < REPEAT; i++) {
        struct weft_g_view view;
        CHECK(weft_seq_wait(seq, &err)); /* all ranks are here */
        struct weft_traffic was = traffic();
        double start = weft_clock_s();
        CHECK(weft_g_view_open(seq, &anywhere, &m, &layout, &view, &err));
        CHECK(weft_seq_wait(seq, &err));
        double s = weft_clock_s() - start;
        moved = view.copied_bytes;
        least = 0;
        for (int32_t k = 0; k < view.n_copies; k++)
            least += weft_tile_bytes(view.copy[k]);
        weft_g_view_close(&view);
        best = s < best ? s : best;
        s = moved > 0 ? plain_s(plain, moved, was) : 0;
        best_plain = s < best_plain ? s : best_plain;
    }
    if (is_first()) {
        printf("%-16s %-10s %9.2f %9.2f %9.2f %9.2f", from, to,
               (double) moved / 1e6, (double) least / 1e6, best * 1e3,
               best_plain * 1e3);
        printf(moved > 0 ? " %6.2f\n" : "\n", best / best_plain);
    }
    weft_g_model_release(&m);
    weft_g_layout_release(&home);
    weft_g_layout_release(&layout);
}

static void bench_moves(void)
{
    static const char *const alone[][2] = {
        {"dp8", "tp8"},           {"tp2pp4", "dp8"},
        {"dp2tp2pp2", "dp8"},     {"tp8", "dp8"},
        {"pp8", "tp8"},           {"tp8", "pp8"},
        {"dp2tp2pp2", "dp4tp2"},  {"tp4pp2", "dp2tp4"},
        {"dp4tp2,zero=3", "dp8"}, {"dp8,zero=3", "dp4tp2"}};
    static const char *const two[][2] = {{"pp2", "dp2"},
                                         {"tp2", "dp2"},
                                         {"pp2", "tp2"},
                                         {"dp2,zero=3", "dp2"},
                                         {"dp2", "tp2"}};
    bool ranks = weft_world_size() > 1;
    struct weft_shape shape = shape_of(512, 8, 8192);
    size_t size = (size_t) 256 << 20;
    struct plain plain = {weft_alloc(size, 1), weft_alloc(size, 1), size};
    memset(plain.from, 1, size);
    memset(plain.to, 1, size);
    open_context(ranks ? 1 : 8, true, false);
    if (is_first())
        printf("%.1f M parameters, f32, %d places; plain: %s\n"
               "from             to         moved_MB  least_MB        ms"
               "  plain_ms  ratio\n",
               (double) weft_shape_n_params(&shape) / 1e6,
               weft_rt_n_places(context->rt),
               ranks ? "MPI, as many messages" : "memcpy, one core");
    for (size_t i = 0; i < (ranks ? WEFT_COUNT(two) : WEFT_COUNT(alone)); i++)
        moves_row(&shape, ranks ? two[i][0] : alone[i][0],
                  ranks ? two[i][1] : alone[i][1], &plain);
    weft_free(plain.from);
    weft_free(plain.to);
}

/* ---- Submission --------------------------------------------------------- */

/* Samples of a rank; groups; tokens of a sample and a micro-batch. */
enum { SAMPLES = 16, GROUPS = 16, TOKENS = 16 };

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static struct weft_pack_sample *texts(const struct weft_shape *shape,
                                      int32_t n)
{
    struct weft_pack_sample *text = weft_alloc((size_t) n, sizeof *text);
    for (int32_t i = 0; i < n; i++) {
        struct weft_tile_id id = {"bench", "text", 0,
                                  -1,      -1,     i % weft_world_size()};
        CHECK(weft_tile_create(context->rt, &id, WEFT_MEM_SAMPLES,
                               weft_rollout_bytes(TOKENS), &text[i].rollout,
                               &err));
        if (weft_tile_is_here(text[i].rollout)) {
            struct weft_rollout *r = weft_tile_acquire(text[i].rollout,
                                                       WEFT_WRITE);
            *r = (struct weft_rollout){TOKENS, 1, TOKENS, 1};
            for (int k = 0; k < TOKENS; k++)
                weft_rollout_token(r)[k] = (i + k) % shape->vocab;
            weft_tile_unacquire(text[i].rollout);
        }
        text[i].n_prompt = 1;
        text[i].n_total = TOKENS;
        text[i].weight = 1.0f / (float) n;
    }
    return text;
}

struct submission {
    double cpu_s, wall_s; /* of inserting; of the whole step */
    int64_t own, all;     /* tasks */
};

/* One optimizer step, as an iteration of its own; what it took the thread that
 * inserts. */
static struct submission step(struct weft_g_train *train, int32_t n,
                              const struct weft_pack_sample *text)
{
    struct weft_g_stats *stats = weft_alloc((size_t) n, sizeof *stats);
    struct weft_call_time own, all[WEFT_MAX_CALLS];
    struct submission out;
    struct weft_tile *norm;
    int32_t n_stats;
    train->iteration++;
    double wall = weft_clock_s(), cpu = thread_s();
    CHECK(train_step(seq, train, n, text, stats, &n_stats, &norm, &err));
    out.cpu_s = thread_s() - cpu;
    CHECK(weft_seq_wait(seq, &err));
    out.wall_s = weft_clock_s() - wall;
    weft_rt_times(context->rt, train->iteration, train->call, &own);
    weft_rt_times_all(context->rt, train->iteration, all);
    out.own = own.n_tasks;
    out.all = all[train->call].n_tasks;
    weft_g_order_reset(train->order);
    weft_g_copies_drop(train->copies);
    for (int32_t i = 0; i < n_stats; i++) {
        weft_tile_release(stats[i].tile);
        weft_free(stats[i].sample);
    }
    weft_tile_release(norm);
    weft_free(stats);
    return out;
}

static void submit_row(const struct weft_shape *shape, const char *text)
{
    struct weft_g_layout home;
    struct weft_g_model m;
    struct weft_g_grads grads;
    struct weft_g_gather *gather;
    struct weft_g_copies *copies;
    struct weft_g_order order;
    int32_t n = SAMPLES * weft_world_size();
    layout_of(shape, text, GROUPS, &home);
    CHECK(weft_g_model_init(context->rt, "bench", shape, true, &home, &m,
                            &err));
    CHECK(weft_g_grads_init(&m, GROUPS, &grads, &err));
    CHECK(weft_g_gather_create(&m, &gather, &err));
    CHECK(weft_g_copies_create(context->rt, &copies, &err));
    CHECK(weft_g_order_init(context->rt, &order, &err));
    struct weft_pack_sample *sample = texts(shape, n);
    struct weft_g_train train = {
        .model = &m,
        .grads = &grads,
        .gather = gather,
        .copies = copies,
        .order = &order,
        .loss = {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
        .adamw = {1e-4f, 0.9f, 0.999f, 1e-8f, 0, 1},
        .grad_clip = 1,
        .micro_batch_rows = TOKENS,
        .call = 1};
    struct submission best = {1e300, 1e300, 0, 0};
    for (int i = 0; i < REPEAT; i++) {
        struct submission s = step(&train, n, sample);
        if (s.cpu_s < best.cpu_s)
            best = s;
    }
    if (is_first())
        printf("%5d  %-14s %7lld %8lld %9.2f %9.2f %11.3f\n",
               weft_world_size(), text, (long long) best.own,
               (long long) best.all, best.cpu_s * 1e3,
               best.cpu_s / (double) best.own * 1e6,
               best.cpu_s / (double) best.all * 1e6);
    for (int32_t i = 0; i < n; i++)
        weft_tile_release(sample[i].rollout);
    weft_free(sample);
    weft_g_order_release(&order);
    weft_g_copies_free(copies);
    weft_g_gather_free(gather);
    weft_g_grads_release(&m, &grads);
    weft_g_model_release(&m);
    weft_g_layout_release(&home);
}

static void bench_submit(void)
{
    struct weft_shape shape = shape_of(128, 4, 512);
    int n = weft_world_size();
    char text[32];
    open_context(1, false, true);
    if (is_first() && n == 1)
        printf("an optimizer step, %d micro-batches per rank; CPU time of "
               "rank 0's inserting thread\nranks  layout             own     "
               "all      ms    us/own      us/all\n",
               SAMPLES);
    snprintf(text, sizeof text, "dp%d", n);
    submit_row(&shape, text);
    if (n == 1)
        return;
    snprintf(text, sizeof text, "dp%d,zero=3", n);
    submit_row(&shape, text);
    if (n <= shape.n_layers) {
        snprintf(text, sizeof text, "pp%d", n);
        submit_row(&shape, text);
    }
    if (n <= shape.n_blocks) {
        snprintf(text, sizeof text, "tp%d", n);
        submit_row(&shape, text);
    }
}

/* ---- Memory ------------------------------------------------------------- */

/* The largest device's bytes by class, and all places' together. */
static void print_memory(const char *name, const char *path)
{
    struct weft_plan plan;
    CHECK(weft_plan_read(path, NULL, &plan, &err));
    int32_t n = plan.n_nodes * plan.n_devices;
    printf("%-22s", name);
    for (int c = 0; c <= WEFT_MEM_ALL && plan.measured; c++) {
        int64_t most = 0;
        for (int32_t d = 0; d < n; d++)
            most = plan.measured[d][c] > most ? plan.measured[d][c] : most;
        printf(" %8.2f", (double) most / 1048576);
    }
    int64_t predicted = 0;
    for (int32_t d = 0; d < n && plan.memory; d++)
        predicted = plan.memory[d][WEFT_MEM_ALL] > predicted
                      ? plan.memory[d][WEFT_MEM_ALL]
                      : predicted;
    printf(" %9.2f\n", (double) predicted / 1048576);
    weft_plan_release(&plan);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "memory") == 0) {
        print_memory(argv[2], argv[3]);
        return 0;
    }
    bool moves = argc == 2 && strcmp(argv[1], "moves") == 0;
    if (!moves && !(argc == 2 && strcmp(argv[1], "submit") == 0)) {
        fprintf(stderr, "usage: layouts moves|submit\n"
                        "       layouts memory NAME PLAN.json\n");
        return 2;
    }
    CHECK(weft_world_open(&err));
    if (moves && weft_world_size() > 2) {
        fprintf(stderr, "layouts: moves is for 1 or 2 ranks\n");
        return 2;
    }
    if (moves)
        bench_moves();
    else
        bench_submit();
    weft_context_close(context);
    weft_world_close();
    return 0;
}
