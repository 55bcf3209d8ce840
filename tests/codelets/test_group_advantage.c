/* SPDX-License-Identifier: Apache-2.0 */
/* Advantages of groups as tasks: scores as weft_insert_gae() computes them,
 * compared by formulas that are written out; one unit for rewards. */
#include <math.h>

#include "codelets/task_fixture.h"

enum { N = 4 };
static const int32_t n_response[N] = {1, 4, 7, 12};

struct inputs {
    struct weft_group_sample group[N];
    struct weft_tile *gae[N]; /* what weft_insert_gae() makes of the same */
    struct weft_tile *kl;
};

static void put_double(struct weft_tile *tile, double x)
{
    *(double *) weft_tile_acquire(tile, WEFT_WRITE) = x;
    weft_tile_unacquire(tile);
}

static void put_float(struct weft_tile *tile, float x)
{
    *(float *) weft_tile_acquire(tile, WEFT_WRITE) = x;
    weft_tile_unacquire(tile);
}

static float get_float(struct weft_tile *tile)
{
    float x = *(const float *) weft_tile_acquire(tile, WEFT_READ);
    weft_tile_unacquire(tile);
    return x;
}

static void make(struct task_fixture *f, bool ref, bool score,
                 struct inputs *x)
{
    for (int i = 0; i < N; i++) {
        int32_t n = n_response[i];
        struct weft_group_sample *s = &x->group[i];
        *s = (struct weft_group_sample){
            .rollout = fixture_text(f, 3, 3 + n, (uint32_t) i),
            .ref = ref ? fixture_tile(f, (size_t) n * 4) : NULL,
            .score = score ? fixture_tile(f, sizeof(double)) : NULL,
            .model_score = {fixture_tile(f, 4), fixture_tile(f, 4)},
            .advantage = fixture_tile(f, weft_advantage_bytes(n))};
        x->gae[i] = fixture_tile(f, weft_advantage_bytes(n));
        struct weft_rollout *r = weft_tile_acquire(s->rollout,
                                                   WEFT_READ_WRITE);
        r->ended = i != 1; /* the second was cut */
        weft_tile_unacquire(s->rollout);
        float *p = ref ? weft_tile_acquire(s->ref, WEFT_WRITE) : NULL;
        for (int32_t k = 0; ref && k < n; k++)
            p[k] = -5 - 0.125f * (float) k;
        if (ref)
            weft_tile_unacquire(s->ref);
        if (score)
            put_double(s->score, 0.5 + 1.75 * i);
        put_float(s->model_score[0], 2 - 0.7f * (float) i);
        put_float(s->model_score[1], 0.3f * (float) (i * i));
    }
    x->kl = fixture_tile(f, sizeof(struct weft_kl_state));
    ((struct weft_kl_state *) weft_tile_acquire(x->kl, WEFT_WRITE))->coef =
        0.3;
    weft_tile_unacquire(x->kl);
}

static void release(struct inputs *x)
{
    for (int i = 0; i < N; i++) {
        struct weft_group_sample *s = &x->group[i];
        weft_tile_release(s->rollout);
        weft_tile_release(s->ref);
        weft_tile_release(s->score);
        weft_tile_release(s->model_score[0]);
        weft_tile_release(s->model_score[1]);
        weft_tile_release(s->advantage);
        weft_tile_release(x->gae[i]);
    }
    weft_tile_release(x->kl);
}

/* The formulas, from the scores of all. */
static double expected(enum weft_group_advantage kind, const double *r, int i)
{
    double mean = 0, squares = 0;
    for (int k = 0; k < N; k++)
        mean += r[k] / N;
    for (int k = 0; k < N; k++)
        squares += (r[k] - mean) * (r[k] - mean);
    switch (kind) {
    case WEFT_ADVANTAGE_GRPO:
        return (r[i] - mean) / (sqrt(squares / (N - 1)) + 1e-6);
    case WEFT_ADVANTAGE_RLOO:
        return r[i] - (mean * N - r[i]) / (N - 1);
    default:
        return r[i] - mean;
    }
}

static void check_group(const struct inputs *x,
                        enum weft_group_advantage kind)
{
    double score[N];
    for (int i = 0; i < N; i++) {
        const struct weft_advantage *g = weft_tile_acquire(x->gae[i],
                                                           WEFT_READ);
        const struct weft_advantage *a = weft_tile_acquire(
            x->group[i].advantage, WEFT_READ);
        CHECK(memcmp(a, g, sizeof *a) == 0);
        score[i] = g->reward_sum;
        weft_tile_unacquire(x->group[i].advantage);
        weft_tile_unacquire(x->gae[i]);
    }
    for (int i = 0; i < N; i++) {
        double e = expected(kind, score, i);
        const struct weft_advantage *a = weft_tile_acquire(
            x->group[i].advantage, WEFT_READ);
        CHECK_INT(a->n, n_response[i]);
        for (int32_t k = 0; k < a->n; k++) {
            CHECK(fabs((double) weft_advantage_of(a)[k] - e) < 1e-6);
            CHECK(weft_return_of(a)[k] == weft_advantage_of(a)[0]);
        }
        weft_tile_unacquire(x->group[i].advantage);
    }
}

static void run(struct task_fixture *f, const struct weft_gae_args *reward,
                enum weft_group_advantage kind, bool ref, bool score)
{
    struct weft_err err;
    struct inputs x;
    struct weft_group_args args = {kind, *reward};
    make(f, ref, score, &x);
    for (int i = 0; i < N; i++) {
        struct weft_group_sample *s = &x.group[i];
        weft_insert_gae(f->seq, &anywhere, reward, s->rollout, s->ref, NULL,
                        s->score, s->model_score, x.kl, NULL, x.gae[i]);
    }
    weft_insert_group_advantage(f->seq, &anywhere, &args, N, x.group, x.kl);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    check_group(&x, kind);
    release(&x);
}

static const struct weft_gae_args plain = {
    .gamma = 1, .lambda = 1, .n_models = 2, .weight = {0.25f, 2}};

static void test_group_advantage(void)
{
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    fixture_start(&f, 2, &shape, false);
    for (int kind = 0; kind <= WEFT_ADVANTAGE_RLOO; kind++)
        for (int absent = 0; absent < 4; absent++) {
            struct weft_gae_args reward = plain;
            reward.kl = absent & 1 ? WEFT_KL_NONE : WEFT_KL_K2;
            reward.missing_eos_penalty = absent & 2 ? 0 : 1.5f;
            reward.reward_clip = absent & 2 ? 3 : 0;
            run(&f, &reward, (enum weft_group_advantage) kind,
                (absent & 1) == 0, (absent & 2) == 0);
        }
    fixture_stop(&f);
}

/* The penalty for length is part of the score, before the clip. */
static void test_overlong(void)
{
    static const double penalty[N] = {0, 0, -0.75, -1.5};
    struct task_fixture f;
    struct weft_err err;
    struct inputs x;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_group_args args = {WEFT_ADVANTAGE_MEAN, plain};
    args.reward.overlong_factor = 1.5f;
    args.reward.overlong_max = 9;
    args.reward.overlong_cache = 4;
    fixture_start(&f, 1, &shape, false);
    make(&f, false, true, &x);
    weft_insert_group_advantage(f.seq, &anywhere, &args, N, x.group, x.kl);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    for (int i = 0; i < N; i++) {
        const struct weft_advantage *a = weft_tile_acquire(
            x.group[i].advantage, WEFT_READ);
        CHECK(fabs(a->score - a->raw_score - penalty[i]) < 1e-12);
        weft_tile_unacquire(x.group[i].advantage);
    }
    release(&x);
    fixture_stop(&f);
}

static void test_group_not_finite(void)
{
    struct task_fixture f;
    struct weft_err err;
    struct inputs x;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_group_args args = {WEFT_ADVANTAGE_GRPO, plain};
    args.reward.iteration = 2;
    args.reward.sample = 40;
    fixture_start(&f, 1, &shape, false);
    make(&f, false, true, &x);
    put_double(x.group[2].score, (double) NAN);
    weft_insert_group_advantage(f.seq, &anywhere, &args, N, x.group, x.kl);
    CHECK_FAILS(
        weft_seq_wait(f.seq, &err), WEFT_ENUMERIC, err,
        "iteration 3: the score of sample 42 is no finite f32 number");
    release(&x);
    fixture_stop(&f);
}

/* ---- Rewards in one unit ----------------------------------------------- */

static void check_shaped(struct weft_tile *const shaped[], int n,
                         const double *e)
{
    for (int i = 0; i < n; i++)
        CHECK(fabs((double) get_float(shaped[i]) - e[i]) < 1e-6);
}

static void test_reward_shape(void)
{
    /* scores -1, 0, 1, 4: mean 1, variance 14 / 3; twice: 8 numbers */
    static const float scores[N] = {-1, 0, 1, 4};
    struct task_fixture f;
    struct weft_err err;
    struct weft_tile *score[N], *shaped[N], *again[N], *moments;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_reward_shape_args args = {.running = false, .high = 1};
    fixture_start(&f, 1, &shape, false);
    moments = fixture_tile(&f, sizeof(struct weft_k_moments));
    memset(weft_tile_acquire(moments, WEFT_WRITE), 0,
           sizeof(struct weft_k_moments));
    weft_tile_unacquire(moments);
    for (int i = 0; i < N; i++) {
        score[i] = fixture_tile(&f, 4);
        shaped[i] = fixture_tile(&f, 4);
        again[i] = fixture_tile(&f, 4);
        put_float(score[i], scores[i]);
    }
    double std = sqrt(14.0 / 3 + 1e-8), e[N];
    /* clipped to [0, 1] alone */
    weft_insert_reward_shape(f.seq, &anywhere, &args, N, score, NULL, shaped);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    check_shaped(shaped, N, (double[N]){0, 0, 1, 1});
    /* by the moments of each call, then by those of both calls together */
    for (int running = 0; running < 2; running++) {
        args = (struct weft_reward_shape_args){.running = running};
        weft_insert_reward_shape(f.seq, &anywhere, &args, N, score, moments,
                                 shaped);
        weft_insert_reward_shape(f.seq, &anywhere, &args, 2, score, moments,
                                 again);
        REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
        for (int i = 0; i < N && running == 0; i++)
            e[i] = ((double) scores[i] - 1) / std;
        if (running == 0) {
            check_shaped(shaped, N, e);
            /* -1, 0: mean -0.5, variance 0.5 */
            check_shaped(
                again, 2,
                (double[2]){-0.5 / sqrt(0.5 + 1e-8), 0.5 / sqrt(0.5 + 1e-8)});
            continue;
        }
        /* it goes on from -1, 0: after all -1, 0, -1, 0, 1, 4, -1, 0 */
        double mean = 2.0 / 8, var = (20 - 8 * mean * mean) / 7;
        check_shaped(again, 2,
                     (double[2]){(-1 - mean) / sqrt(var + 1e-8),
                                 -mean / sqrt(var + 1e-8)});
    }
    put_float(score[3], INFINITY);
    weft_insert_reward_shape(f.seq, &anywhere, &args, N, score, moments,
                             shaped);
    CHECK_FAILS(weft_seq_wait(f.seq, &err), WEFT_ENUMERIC, err,
                "the reward of sample 3 is no finite number: inf");
    for (int i = 0; i < N; i++) {
        weft_tile_release(score[i]);
        weft_tile_release(shaped[i]);
        weft_tile_release(again[i]);
    }
    weft_tile_release(moments);
    fixture_stop(&f);
}

WEFT_TESTS("codelets/group_advantage",
           {"test_group_advantage", test_group_advantage},
           {"test_overlong", test_overlong},
           {"test_group_not_finite", test_group_not_finite},
           {"test_reward_shape", test_reward_shape})
