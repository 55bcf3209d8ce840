/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses as tasks on the head of a small model: statistics are those of the
 * kernels on the head's own log-probs, gradients those of SFT times a number,
 * and a run's numbers depend on its own tokens (or its pair's) alone.
 */
#include <math.h>

#include "codelets/parts.h"
#include "codelets/task_fixture.h"

enum { N = 6, WIDTH = WEFT_N_PREFERENCE_STATS, ROWS = 16, GRAD = 256 };
static const int32_t n_response[N] = {3, 7, 1, 2, 5, 4};

struct world {
    struct task_fixture f;
    struct weft_g_grads grads;
    struct weft_pack_sample sample[N];
    struct weft_tile *gate, *kto_kl;
    int32_t hidden;
    bool keeps; /* logits */
};

/* What a loss made of one run. */
struct run {
    double stat[WIDTH];
    float dx[ROWS][48];
};

static struct weft_pack_sample sample_make(struct task_fixture *f, int32_t i)
{
    int32_t n = n_response[i];
    struct weft_pack_sample s = {
        .rollout = fixture_text(f, 2, 2 + n, (uint32_t) i),
        .advantage = fixture_tile(f, weft_advantage_bytes(n)),
        .ref = fixture_tile(f, (size_t) n * 4),
        .n_prompt = 2,
        .n_total = 2 + n,
        .weight = 0.25f,
        .label = i % 3 == 0 ? 1 : 0};
    struct weft_advantage *a = weft_tile_acquire(s.advantage, WEFT_WRITE);
    float *ref = weft_tile_acquire(s.ref, WEFT_WRITE);
    *a = (struct weft_advantage){.n = n};
    for (int32_t k = 0; k < n; k++) {
        weft_advantage_of(a)[k] = 0.5f - 0.25f * (float) i;
        weft_return_of(a)[k] = 0.125f * (float) k;
        ref[k] = -5.5f - 0.125f * (float) ((k + i) % 3);
    }
    weft_tile_unacquire(s.advantage);
    weft_tile_unacquire(s.ref);
    return s;
}

static void put_gate(struct world *w, float gate)
{
    *(float *) weft_tile_acquire(w->gate, WEFT_WRITE) = gate;
    weft_tile_unacquire(w->gate);
}

static void start(struct world *w, bool scalar)
{
    w->keeps = false;
    struct weft_err err;
    struct weft_shape shape = fixture_shape(WEFT_F32, scalar, false);
    fixture_start(&w->f, 1, &shape, true);
    w->hidden = shape.hidden;
    REQUIRE_OK(weft_g_grads_init(&w->f.model, 1, &w->grads, &err), err);
    for (int32_t i = 0; i < N; i++)
        w->sample[i] = sample_make(&w->f, i);
    w->gate = fixture_tile(&w->f, sizeof(float));
    w->kto_kl = fixture_tile(&w->f, sizeof(double));
    put_gate(w, 1);
    *(double *) weft_tile_acquire(w->kto_kl, WEFT_WRITE) = 0.75;
    weft_tile_unacquire(w->kto_kl);
}

static void stop(struct world *w)
{
    for (int32_t i = 0; i < N; i++) {
        weft_tile_release(w->sample[i].rollout);
        weft_tile_release(w->sample[i].advantage);
        weft_tile_release(w->sample[i].ref);
    }
    weft_tile_release(w->gate);
    weft_tile_release(w->kto_kl);
    weft_g_grads_release(&w->f.model, &w->grads);
    fixture_stop(&w->f);
}

/* A micro-batch of samples: its tile and rows that depend on sample and
 * position alone. */
struct micro_batch {
    struct weft_tile *batch, *x;
    int32_t n, n_rows, n_targets;
    const int32_t *index;
};

static void pack(struct world *w, enum weft_pack_targets targets, int32_t n,
                 const int32_t *index, struct micro_batch *out)
{
    struct weft_pack_sample sample[N];
    struct weft_batch layout;
    *out = (struct micro_batch){.n = n, .index = index};
    for (int32_t i = 0; i < n; i++) {
        sample[i] = w->sample[index[i]];
        out->n_rows += sample[i].n_total;
        out->n_targets += weft_pack_n_targets(targets, &sample[i]);
    }
    weft_batch_layout(out->n_rows, n, out->n_targets, true, &layout);
    out->batch = fixture_tile(&w->f, layout.bytes);
    out->x = fixture_tile(&w->f, (size_t) out->n_rows * (size_t) w->hidden
                                     * sizeof(float));
    weft_insert_pack(w->f.seq, &anywhere, targets, true, n, sample, NULL,
                     out->batch);
    float *x = weft_tile_acquire(out->x, WEFT_WRITE);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < sample[i].n_total * w->hidden; k++)
            *x++ = weft_rng_uniform(11, WEFT_RNG_INIT, (uint32_t) index[i],
                                    (uint32_t) k, 0)
                 - 0.5f;
    weft_tile_unacquire(out->x);
}

static enum weft_pack_targets targets_of(enum weft_loss loss)
{
    return loss == WEFT_LOSS_BRADLEY_TERRY ? WEFT_TARGETS_LAST
                                           : WEFT_TARGETS_RESPONSE;
}

/* Reads stats and dx of all runs. */
static void read_runs(struct world *w, const struct micro_batch *m,
                      int32_t width, struct weft_tile *stats,
                      struct weft_tile *dx, struct run *out)
{
    const double *s = weft_tile_acquire(stats, WEFT_READ);
    const float *d = weft_tile_acquire(dx, WEFT_READ);
    memset(out, 0, (size_t) m->n * sizeof *out);
    for (int32_t i = 0; i < m->n; i++) {
        int32_t rows = w->sample[m->index[i]].n_total;
        memcpy(out[i].stat, s + i * width, (size_t) width * sizeof *s);
        memcpy(out[i].dx, d, (size_t) (rows * w->hidden) * sizeof *d);
        d += rows * w->hidden;
    }
    weft_tile_unacquire(stats);
    weft_tile_unacquire(dx);
}

/* The begin of the head's gradients. */
static void read_grad(struct world *w, float *out)
{
    const struct weft_layer_tiles *head = &w->grads.set[0][0].head;
    struct weft_tile *tile = w->f.model.shape.scalar_head ? head->norms
                                                          : head->block[1];
    size_t bytes = weft_tile_bytes(tile);
    memset(out, 0, GRAD * sizeof *out);
    memcpy(out, weft_tile_acquire(tile, WEFT_READ),
           bytes < GRAD * sizeof *out ? bytes : GRAD * sizeof *out);
    weft_tile_unacquire(tile);
}

/* One micro-batch of the samples index[0..n-1] through a loss. */
static int loss_run(struct world *w, const struct weft_loss_args *args,
                    int32_t n, const int32_t *index, struct run *out,
                    float *grad_out, struct weft_err *err)
{
    struct task_fixture *f = &w->f;
    struct micro_batch m;
    int32_t width = weft_loss_n_stats(args->loss);
    pack(w, targets_of(args->loss), n, index, &m);
    struct weft_tile *dx = fixture_tile(f, weft_tile_bytes(m.x));
    struct weft_tile *stats = fixture_tile(f, (size_t) (n * width) * 8);
    struct weft_tile *logits = NULL;
    if (w->keeps)
        logits = fixture_tile(
            f, weft_part_logits_bytes(&f->model.shape,
                                      weft_all_blocks(&f->model.shape),
                                      m.n_targets));
    const struct weft_params *grad = &w->grads.set[0][0];
    weft_insert_zero(f->seq, &anywhere, &grad->head);
    weft_insert_loss(f->seq, &anywhere, &f->model.shape, &f->model.fwd[0],
                     &f->model.bwd[0], args, m.batch, m.x, logits, dx, grad,
                     stats);
    int rc = weft_seq_wait(f->seq, err);
    if (!rc) {
        read_runs(w, &m, width, stats, dx, out);
        read_grad(w, grad_out);
    }
    weft_tile_release(m.batch);
    weft_tile_release(m.x);
    weft_tile_release(dx);
    weft_tile_release(stats);
    weft_tile_release(logits);
    return rc;
}

static const struct weft_loss_args losses[] = {
    {.loss = WEFT_LOSS_POLICY,
     .inv_temperature = 1,
     .policy = {.clip_low = 0.2f,
                .clip_high = 0.2f,
                .kl = WEFT_KL_K3,
                .kl_coef = 0.1f,
                .kind = WEFT_POLICY_GSPO}},
    {.loss = WEFT_LOSS_SFT, .inv_temperature = 1},
    {.loss = WEFT_LOSS_PAIRS,
     .inv_temperature = 1,
     .pairs = {.beta = 0.5f, .label_smoothing = 0.1f}},
    {.loss = WEFT_LOSS_KTO,
     .inv_temperature = 1,
     .kto = {.beta = 0.5f, .desirable = 1.5f, .undesirable = 0.75f}},
};

static const int32_t all[N] = {0, 1, 2, 3, 4, 5};

/* Log-probs of the samples' responses under the head, as another task has
 * them. */
static void read_logp(struct world *w, float (*out)[ROWS])
{
    struct weft_err err;
    struct micro_batch m;
    struct weft_tile *logp[N];
    pack(w, WEFT_TARGETS_RESPONSE, N, all, &m);
    for (int i = 0; i < N; i++)
        logp[i] = fixture_tile(&w->f, (size_t) n_response[i] * 4);
    weft_insert_logprob(w->f.seq, &anywhere, &w->f.model.shape,
                        &w->f.model.fwd[0], m.batch, m.x, 1, N, logp);
    REQUIRE_OK(weft_seq_wait(w->f.seq, &err), err);
    for (int i = 0; i < N; i++) {
        memcpy(out[i], weft_tile_acquire(logp[i], WEFT_READ),
               (size_t) n_response[i] * 4);
        weft_tile_unacquire(logp[i]);
        weft_tile_release(logp[i]);
    }
    weft_tile_release(m.batch);
    weft_tile_release(m.x);
}

/* dx is -dlogp times what SFT with weight 1 gives. */
static void check_gradient(const struct run *got, const struct run *sft,
                           float dlogp)
{
    float most = 0;
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 48; h++)
            most = fmaxf(most, fabsf(dlogp * sft->dx[r][h]));
    CHECK(most > 0);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 48; h++)
            CHECK(fabsf(got->dx[r][h] + dlogp * sft->dx[r][h])
                  < 1e-5f * most);
}

static void check_kernel(struct world *w, const struct weft_loss_args *args,
                         const struct run *run, const struct run *sft)
{
    float logp[N][ROWS], d[N][ROWS];
    double stat[N][WIDTH] = {{0}};
    struct weft_k_response r[N];
    read_logp(w, logp);
    for (int i = 0; i < N; i++)
        r[i] = (struct weft_k_response){
            n_response[i], logp[i],
            weft_tile_acquire(w->sample[i].ref, WEFT_READ), d[i], stat[i]};
    for (int i = 0; i < N; i++)
        if (args->loss == WEFT_LOSS_KTO)
            weft_k_kto_loss(&args->kto, 0.25f, i % 3 == 0, 0.75, &r[i]);
        else if (i % 2 == 0)
            weft_k_pair_loss(&args->pairs, 0.25f, &r[i], &r[i + 1]);
    for (int i = 0; i < N; i++) {
        weft_tile_unacquire(w->sample[i].ref);
        CHECK(memcmp(stat[i], run[i].stat, sizeof stat[i]) == 0);
        check_gradient(&run[i], &sft[i], d[i][0]);
    }
}

static void test_preference_losses(void)
{
    struct world w;
    struct weft_err err;
    struct run run[N], sft[N];
    struct weft_loss_args args;
    float grad[GRAD];
    start(&w, false);
    for (int i = 0; i < N; i++)
        w.sample[i].weight = 1;
    REQUIRE_OK(loss_run(&w, &losses[1], N, all, sft, grad, &err), err);
    for (int i = 0; i < N; i++)
        w.sample[i].weight = 0.25f;
    for (int k = 2; k < 4; k++) {
        args = losses[k];
        args.kto_kl = w.kto_kl;
        REQUIRE_OK(loss_run(&w, &args, N, all, run, grad, &err), err);
        check_kernel(&w, &args, run, sft);
    }
    /* KTO without a tile: the estimate is 0 */
    REQUIRE_OK(loss_run(&w, &losses[3], N, all, sft, grad, &err), err);
    CHECK(sft[0].stat[WEFT_PSTAT_LOSS] != run[0].stat[WEFT_PSTAT_LOSS]);
    stop(&w);
}

static bool is_zero(const struct run *run)
{
    static const struct run zero;
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 48; h++)
            if (run->dx[r][h] != 0)
                return false;
    return memcmp(run->stat, zero.stat, sizeof zero.stat) == 0;
}

/* Runs 2 and 3 with weight 0 add nothing, and without them, or in another
 * micro-batch, the others have the same bits. */
static void check_masked(struct world *w, const struct weft_loss_args *args)
{
    static const int32_t others[] = {0, 1, 4, 5}, moved[] = {4, 5, 0, 1};
    struct weft_err err;
    struct run run[N], rest[N];
    float grad[GRAD], rest_grad[GRAD];
    w->sample[2].weight = w->sample[3].weight = 0;
    REQUIRE_OK(loss_run(w, args, N, all, run, grad, &err), err);
    REQUIRE_OK(loss_run(w, args, 4, others, rest, rest_grad, &err), err);
    w->sample[2].weight = w->sample[3].weight = 0.25f;
    CHECK(is_zero(&run[2]) && is_zero(&run[3]) && !is_zero(&run[1]));
    CHECK(memcmp(&run[0], &rest[0], 2 * sizeof *run) == 0);
    CHECK(memcmp(&run[4], &rest[2], 2 * sizeof *run) == 0);
    for (int i = 0; i < GRAD; i++)
        CHECK(grad[i] == rest_grad[i]);
    REQUIRE_OK(loss_run(w, args, 4, moved, rest, rest_grad, &err), err);
    CHECK(memcmp(&run[0], &rest[2], 2 * sizeof *run) == 0);
    CHECK(memcmp(&run[4], &rest[0], 2 * sizeof *run) == 0);
}

/* A gate of 1 changes no bit, one of 0 leaves nothing. */
static void check_gate(struct world *w, const struct weft_loss_args *args)
{
    struct weft_err err;
    struct run run[N], other[N];
    struct weft_loss_args gated = *args;
    float grad[GRAD], other_grad[GRAD];
    gated.gate = w->gate;
    REQUIRE_OK(loss_run(w, args, N, all, run, grad, &err), err);
    REQUIRE_OK(loss_run(w, &gated, N, all, other, other_grad, &err), err);
    CHECK(memcmp(run, other, sizeof run) == 0);
    CHECK(memcmp(grad, other_grad, sizeof grad) == 0);
    put_gate(w, 0);
    REQUIRE_OK(loss_run(w, &gated, N, all, other, other_grad, &err), err);
    put_gate(w, 1);
    for (int i = 0; i < N; i++)
        CHECK(is_zero(&other[i]));
    for (int i = 0; i < GRAD; i++)
        CHECK(other_grad[i] == 0);
}

static void test_masks(void)
{
    struct world w;
    start(&w, false);
    for (size_t k = 0; k < WEFT_COUNT(losses); k++) {
        struct weft_loss_args args = losses[k];
        if (args.loss == WEFT_LOSS_KTO)
            args.kto_kl = w.kto_kl;
        check_masked(&w, &args);
        check_gate(&w, &args);
    }
    stop(&w);
}

/* Logits that are kept are those that else are computed again. */
static void test_kept_logits(void)
{
    struct world w;
    struct weft_err err;
    struct run run[N], kept[N];
    float grad[GRAD], kept_grad[GRAD];
    start(&w, false);
    for (size_t k = 0; k < WEFT_COUNT(losses); k++) {
        struct weft_loss_args args = losses[k];
        if (args.loss == WEFT_LOSS_KTO)
            args.kto_kl = w.kto_kl;
        w.keeps = false;
        REQUIRE_OK(loss_run(&w, &args, N, all, run, grad, &err), err);
        w.keeps = true;
        REQUIRE_OK(loss_run(&w, &args, N, all, kept, kept_grad, &err), err);
        CHECK(memcmp(run, kept, sizeof run) == 0);
        CHECK(memcmp(grad, kept_grad, sizeof grad) == 0);
    }
    stop(&w);
}

/* The head's parts and their merge give the statistics of the whole head. */
static void check_merge(struct world *w, const struct weft_loss_args *args)
{
    static const struct weft_range ranges[2] = {{0, 1}, {1, 3}};
    struct task_fixture *f = &w->f;
    struct weft_err err;
    struct micro_batch m;
    struct weft_part_tile part[2];
    struct run run[N];
    float grad[GRAD];
    int32_t width = weft_loss_n_stats(args->loss);
    REQUIRE_OK(loss_run(w, args, N, all, run, grad, &err), err);
    pack(w, WEFT_TARGETS_RESPONSE, N, all, &m);
    for (int k = 0; k < 2; k++) {
        part[k] = (struct weft_part_tile){
            ranges[k],
            fixture_tile(f, weft_part_head_bytes(ranges[k], m.n_targets))};
        weft_insert_head_part(f->seq, &anywhere, &f->model.shape, ranges[k],
                              &f->model.fwd[0], m.batch, m.x, 1, NULL,
                              part[k].tile);
    }
    struct weft_tile *dloss = fixture_tile(
        f, weft_part_dloss_bytes(m.n_targets));
    struct weft_tile *stats = fixture_tile(f, (size_t) (N * width) * 8);
    weft_insert_loss_merge(f->seq, &anywhere, &f->model.shape, args, m.batch,
                           2, part, dloss, NULL);
    weft_insert_loss_merge(f->seq, &anywhere, &f->model.shape, args, m.batch,
                           2, part, dloss, stats);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    const double *s = weft_tile_acquire(stats, WEFT_READ);
    for (int i = 0; i < N; i++)
        CHECK(memcmp(s + i * width, run[i].stat, (size_t) width * 8) == 0);
    weft_tile_unacquire(stats);
    weft_tile_release(stats);
    weft_tile_release(dloss);
    for (int k = 0; k < 2; k++)
        weft_tile_release(part[k].tile);
    weft_tile_release(m.batch);
    weft_tile_release(m.x);
}

static void test_merge(void)
{
    struct world w;
    start(&w, false);
    put_gate(&w, 0.5f);
    for (size_t k = 0; k < WEFT_COUNT(losses); k++) {
        struct weft_loss_args args = losses[k];
        args.gate = w.gate;
        args.kto_kl = w.kto_kl;
        check_merge(&w, &args);
    }
    stop(&w);
}

/* ---- Reward models ----------------------------------------------------- */

static void test_bradley_terry(void)
{
    static const struct weft_loss_args args = {
        .loss = WEFT_LOSS_BRADLEY_TERRY, .center = 0.01f};
    struct world w;
    struct weft_err err;
    struct micro_batch m;
    struct run run[N];
    struct weft_tile *value[N];
    float score[N], dscore[N], grad[GRAD];
    double stat[N][WIDTH] = {{0}};
    start(&w, true);
    w.sample[0].label = 0.5f; /* a margin */
    pack(&w, WEFT_TARGETS_LAST, N, all, &m);
    for (int i = 0; i < N; i++)
        value[i] = fixture_tile(&w.f, sizeof(float));
    weft_insert_value(w.f.seq, &anywhere, &w.f.model.shape, &w.f.model.fwd[0],
                      m.batch, m.x, N, value);
    REQUIRE_OK(loss_run(&w, &args, N, all, run, grad, &err), err);
    for (int i = 0; i < N; i++) {
        score[i] = *(const float *) weft_tile_acquire(value[i], WEFT_READ);
        weft_tile_unacquire(value[i]);
        weft_tile_release(value[i]);
    }
    for (int i = 0; i < N; i += 2)
        weft_k_bradley_terry(0.01f, 0.25f, w.sample[i].label, score + i,
                             dscore + i,
                             (double *const[2]){stat[i], stat[i + 1]});
    for (int i = 0; i < N; i++) {
        CHECK(memcmp(run[i].stat, stat[i], sizeof stat[i]) == 0);
        /* only the last row has a gradient */
        int32_t last = w.sample[i].n_total - 1;
        CHECK(run[i].dx[last][0] != 0);
        CHECK(run[i].dx[last - 1][0] == 0);
    }
    weft_tile_release(m.batch);
    weft_tile_release(m.x);
    check_masked(&w, &args);
    check_gate(&w, &args);
    /* an uneven number, and a pair with two weights */
    CHECK_FAILS(loss_run(&w, &args, 3, all, run, grad, &err), WEFT_EINTERNAL,
                err, "3 runs are no pairs");
    w.sample[1].weight = 0.5f;
    CHECK_FAILS(loss_run(&w, &args, N, all, run, grad, &err), WEFT_EINTERNAL,
                err, "runs 0 and 1 of a pair have the weights 0.25 and 0.5");
    stop(&w);
}

/* ---- Numbers of a batch ------------------------------------------------ */

/* Sums are by sample: another cut and order gives the same gate at a limit
 * that a rounding decides. */
static void test_kl_gate(void)
{
    static const int32_t first[3] = {0, 1, 2}, second[3] = {3, 4, 5};
    static const int32_t mixed[6] = {5, 0, 3, 1, 4, 2};
    struct world w;
    struct weft_err err;
    struct weft_tile *tile[3];
    double kl = 0;
    start(&w, false);
    tile[0] = fixture_tile(&w.f, 3 * WEFT_N_POLICY_STATS * 8);
    tile[1] = fixture_tile(&w.f, 3 * WEFT_N_POLICY_STATS * 8);
    tile[2] = fixture_tile(&w.f, 6 * WEFT_N_POLICY_STATS * 8);
    const struct weft_gate_stats cut[2] = {{tile[0], 3, first},
                                           {tile[1], 3, second}};
    const struct weft_gate_stats whole = {tile[2], 6, mixed};
    for (int t = 0; t < 3; t++) {
        double *s = weft_tile_acquire(tile[t], WEFT_WRITE);
        for (int i = 0; i < (t == 2 ? 6 : 3); i++) {
            int sample = t == 2 ? mixed[i] : 3 * t + i;
            s[i * WEFT_N_POLICY_STATS + WEFT_STAT_PPO_KL] = 0.1 * sample
                                                          + 1e-17 * i;
            s[i * WEFT_N_POLICY_STATS + WEFT_STAT_TOKENS] = 1;
        }
        weft_tile_unacquire(tile[t]);
    }
    for (int sample = 0; sample < 6; sample++)
        kl += 0.1 * sample;
    float at = (float) (kl / 6);
    /* each on the side of the limit where the f32 number beside it is */
    const float limit[4] = {0.2f, nextafterf(at, 0), nextafterf(at, 1), 0.3f};
    for (int k = 0; k < 4; k++)
        for (int way = 0; way < 2; way++) {
            put_gate(&w, 1);
            weft_insert_kl_gate(w.f.seq, &anywhere, limit[k], way ? 1 : 2,
                                way ? &whole : cut, w.gate);
            REQUIRE_OK(weft_seq_wait(w.f.seq, &err), err);
            float gate = *(const float *) weft_tile_acquire(w.gate,
                                                            WEFT_READ);
            weft_tile_unacquire(w.gate);
            CHECK(gate == (k < 2 ? 0 : 1));
        }
    /* it stays closed */
    put_gate(&w, 0);
    weft_insert_kl_gate(w.f.seq, &anywhere, 9, 1, &whole, w.gate);
    REQUIRE_OK(weft_seq_wait(w.f.seq, &err), err);
    CHECK(*(const float *) weft_tile_acquire(w.gate, WEFT_READ) == 0);
    weft_tile_unacquire(w.gate);
    for (int t = 0; t < 3; t++)
        weft_tile_release(tile[t]);
    stop(&w);
}

static void test_kto_kl(void)
{
    struct world w;
    struct weft_err err;
    struct weft_tile *logp[N], *ref[N];
    double sum = 0;
    start(&w, false);
    for (int i = 0; i < N; i++) {
        logp[i] = fixture_tile(&w.f, (size_t) n_response[i] * 4);
        ref[i] = w.sample[i].ref;
        float *p = weft_tile_acquire(logp[i], WEFT_WRITE);
        const float *r = weft_tile_acquire(ref[i], WEFT_READ);
        for (int32_t k = 0; k < n_response[i]; k++) {
            p[k] = -5.25f + 0.03f * (float) k;
            sum += (double) p[k] - (double) r[k];
        }
        weft_tile_unacquire(ref[i]);
        weft_tile_unacquire(logp[i]);
    }
    for (int way = 0; way < 2; way++) { /* the other way it is negative */
        weft_insert_kto_kl(w.f.seq, &anywhere, N, n_response,
                           way ? ref : logp, way ? logp : ref, w.kto_kl);
        REQUIRE_OK(weft_seq_wait(w.f.seq, &err), err);
        double kl = *(const double *) weft_tile_acquire(w.kto_kl, WEFT_READ);
        weft_tile_unacquire(w.kto_kl);
        CHECK(sum > 0 && fabs(kl - (way ? 0 : sum / N)) < 1e-12);
    }
    for (int i = 0; i < N; i++)
        weft_tile_release(logp[i]);
    stop(&w);
}

WEFT_TESTS("codelets/losses",
           {"test_preference_losses", test_preference_losses},
           {"test_masks", test_masks}, {"test_kept_logits", test_kept_logits},
           {"test_merge", test_merge},
           {"test_bradley_terry", test_bradley_terry},
           {"test_kl_gate", test_kl_gate}, {"test_kto_kl", test_kto_kl})
