/* SPDX-License-Identifier: Apache-2.0 */
/* Rewards to advantages as tasks, against sums written out in double. */
#include <math.h>

#include "codelets/task_fixture.h"

enum { N = 3 };
static const int32_t n_response[N] = {1, 4, 7};

struct inputs {
    struct weft_tile *rollout, *ref, *value, *score, *model, *advantage;
    float logp[8], reference[8], values[8];
    double outside;
    float model_score;
};

static void make(struct task_fixture *f, struct inputs *x, int i)
{
    int32_t n = n_response[i], n_prompt = 3;
    x->rollout = fixture_text(f, n_prompt, n_prompt + n, (uint32_t) i);
    struct weft_rollout *r = weft_tile_acquire(x->rollout, WEFT_READ_WRITE);
    r->ended = i != 1; /* the second was cut */
    x->ref = fixture_tile(f, (size_t) n * 4);
    x->value = fixture_tile(f, (size_t) n * 4);
    float *ref = weft_tile_acquire(x->ref, WEFT_WRITE);
    float *value = weft_tile_acquire(x->value, WEFT_WRITE);
    for (int32_t k = 0; k < n; k++) {
        x->logp[k] = -0.25f * (float) (k + 1 + i);
        x->reference[k] = -0.2f * (float) (2 * k + 1);
        x->values[k] = 0.1f * (float) (k - i);
        weft_rollout_logp(r)[n_prompt + k] = x->logp[k];
        ref[k] = x->reference[k];
        value[k] = x->values[k];
    }
    weft_tile_unacquire(x->ref);
    weft_tile_unacquire(x->value);
    weft_tile_unacquire(x->rollout);
    x->score = fixture_tile(f, sizeof(double));
    x->outside = 0.5 + i;
    *(double *) weft_tile_acquire(x->score, WEFT_WRITE) = x->outside;
    weft_tile_unacquire(x->score);
    x->model = fixture_tile(f, sizeof(float));
    x->model_score = 2.0f - (float) i;
    *(float *) weft_tile_acquire(x->model, WEFT_WRITE) = x->model_score;
    weft_tile_unacquire(x->model);
    x->advantage = fixture_tile(f, weft_advantage_bytes(n));
}

/* Tiles that a sample may lack. Without: values are 0, the reference agrees
 * with the policy, nobody scores from outside. */
enum { NO_VALUE = 1, NO_REF = 2, NO_SCORE = 4, N_ABSENT = 8 };

static void leave_out(struct inputs *x, int i, int absent)
{
    if (absent & NO_VALUE) {
        weft_tile_release(x->value);
        x->value = NULL;
        memset(x->values, 0, sizeof x->values);
    }
    if (absent & NO_REF) {
        weft_tile_release(x->ref);
        x->ref = NULL;
        for (int32_t k = 0; k < n_response[i]; k++)
            x->reference[k] = x->logp[k];
    }
    if (absent & NO_SCORE) {
        weft_tile_release(x->score);
        x->score = NULL;
        x->outside = 0;
    }
}

static void release(struct inputs *x)
{
    weft_tile_release(x->rollout);
    weft_tile_release(x->ref);
    weft_tile_release(x->value);
    weft_tile_release(x->score);
    weft_tile_release(x->model);
    weft_tile_release(x->advantage);
}

static double estimate(enum weft_kl kl, double d)
{
    return kl == WEFT_KL_K1 ? d
         : kl == WEFT_KL_K2 ? d * d / 2
         : kl == WEFT_KL_K3 ? exp(-d) - 1 + d
                            : 0;
}

/* The sum over l >= t of (gamma lambda)^(l - t) delta_l, written out. */
static void check_one(const struct weft_gae_args *g, double coef,
                      const struct inputs *x, int i)
{
    int32_t n = n_response[i];
    double reward[8], delta[8], total = x->outside + 0.25 * x->model_score;
    double kl_sum = 0, penalties = 0;
    const struct weft_advantage *a = weft_tile_acquire(x->advantage,
                                                       WEFT_READ);
    CHECK_INT(a->n, n);
    CHECK(fabs(a->raw_score - total) < 1e-12);
    if (i == 1)
        total -= (double) g->missing_eos_penalty;
    if (g->reward_clip > 0)
        total = fmin(total, (double) g->reward_clip);
    for (int32_t k = 0; k < n; k++) {
        double d = (double) x->logp[k] - (double) x->reference[k];
        double penalty = coef * estimate(g->kl, d);
        kl_sum += d;
        penalties += penalty;
        reward[k] = -penalty + (k == n - 1 ? total : 0);
    }
    for (int32_t k = 0; k < n; k++)
        delta[k] = reward[k] - (double) x->values[k]
                 + (k + 1 < n ? (double) g->gamma * (double) x->values[k + 1]
                              : 0);
    for (int32_t t = 0; t < n; t++) {
        double sum = 0, w = 1;
        for (int32_t l = t; l < n; l++) {
            sum += w * delta[l];
            w *= (double) g->gamma * (double) g->lambda;
        }
        /* f32 recursion over at most 7 terms of size a few */
        CHECK(fabs((double) weft_advantage_of(a)[t] - sum) < 1e-5);
        CHECK(fabs((double) weft_return_of(a)[t]
                   - (sum + (double) x->values[t]))
              < 1e-5);
    }
    CHECK(fabs(a->score - total) < 1e-12);
    CHECK(a->kl_coef == coef);
    CHECK(fabs(a->kl_sum - kl_sum) < 1e-6);
    CHECK(fabs(a->reward_sum - (total - penalties)) < 1e-6);
    weft_tile_unacquire(x->advantage);
}

static void check_moments(struct weft_tile *tile, const struct inputs *x,
                          bool whiten)
{
    double sum = 0, sq = 0, n = 0;
    for (int i = 0; i < N; i++) {
        const struct weft_advantage *a = weft_tile_acquire(x[i].advantage,
                                                           WEFT_READ);
        for (int32_t k = 0; k < a->n; k++) {
            double v = (double) weft_advantage_of(a)[k];
            sum += v;
            sq += v * v;
            n++;
        }
        weft_tile_unacquire(x[i].advantage);
    }
    const struct weft_moments *m = weft_tile_acquire(tile, WEFT_READ);
    double mean = sum / n, var = (sq - n * mean * mean) / (n - 1);
    CHECK_INT(m->of.n, 12);
    CHECK(fabs(m->mean - (whiten ? mean : 0)) < 1e-9);
    CHECK(fabs(m->rstd - (whiten ? 1 / sqrt(var + 1e-8) : 1)) < 1e-7);
    weft_tile_unacquire(tile);
}

static void check_all(struct task_fixture *f, const struct weft_gae_args *g,
                      bool whiten, int absent)
{
    struct weft_err err;
    struct inputs x[N];
    struct weft_tile *advantage[N];
    struct weft_tile *kl = fixture_tile(f, sizeof(struct weft_kl_state));
    struct weft_tile *moments = fixture_tile(f, sizeof(struct weft_moments));
    struct weft_kl_state *state = weft_tile_acquire(kl, WEFT_WRITE);
    state->coef = 0.3;
    weft_tile_unacquire(kl);
    for (int i = 0; i < N; i++) {
        make(f, &x[i], i);
        leave_out(&x[i], i, absent);
        advantage[i] = x[i].advantage;
        weft_insert_gae(f->seq, &anywhere, g, x[i].rollout, x[i].ref,
                        x[i].value, x[i].score, &x[i].model, kl, NULL,
                        x[i].advantage);
    }
    weft_insert_moments(f->seq, &anywhere, whiten, N, advantage, moments);
    weft_insert_kl_update(f->seq, &anywhere, true, 0.5f, 30, N, advantage,
                          kl);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    for (int i = 0; i < N; i++)
        check_one(g, 0.3, &x[i], i);
    check_moments(moments, x, whiten);
    double mean = 0;
    for (int i = 0; i < N; i++)
        for (int32_t k = 0; k < n_response[i]; k++)
            mean += ((double) x[i].logp[k] - (double) x[i].reference[k]) / N;
    double error = fmax(fmin(mean / 0.5 - 1, 0.2), -0.2);
    state = weft_tile_acquire(kl, WEFT_READ);
    CHECK(fabs(state->coef - 0.3 * (1 + error * N / 30)) < 1e-9);
    CHECK(fabs(state->last_kl - mean) < 1e-6);
    weft_tile_unacquire(kl);
    for (int i = 0; i < N; i++)
        release(&x[i]);
    weft_tile_release(kl);
    weft_tile_release(moments);
}

static void test_advantage(void)
{
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_gae_args g = {
        .gamma = 0.9f, .lambda = 0.8f, .n_models = 1, .weight = {0.25f}};
    fixture_start(&f, 2, &shape, false);
    for (int kl = WEFT_KL_NONE; kl <= WEFT_KL_K3; kl++) {
        g.kl = (enum weft_kl) kl;
        g.missing_eos_penalty = kl == WEFT_KL_K2 ? 1.5f : 0;
        g.reward_clip = kl == WEFT_KL_K3 ? 0.75f : 0;
        check_all(&f, &g, kl % 2 == 0, 0);
    }
    /* gamma = lambda = 1: an advantage is the rest of the rewards minus the
     * value. */
    g = (struct weft_gae_args){
        .gamma = 1, .lambda = 1, .n_models = 1, .weight = {0.25f}};
    check_all(&f, &g, true, 0);
    fixture_stop(&f);
}

/* One number has no deviation: it stays what it is. */
static void test_single_token(void)
{
    struct task_fixture f;
    struct weft_err err;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    fixture_start(&f, 1, &shape, false);
    struct weft_tile *advantage = fixture_tile(&f, weft_advantage_bytes(1));
    struct weft_tile *tile = fixture_tile(&f, sizeof(struct weft_moments));
    struct weft_advantage *a = weft_tile_acquire(advantage, WEFT_WRITE);
    *a = (struct weft_advantage){.n = 1};
    weft_advantage_of(a)[0] = 2.5f;
    weft_tile_unacquire(advantage);
    weft_insert_moments(f.seq, &anywhere, true, 1, &advantage, tile);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    const struct weft_moments *m = weft_tile_acquire(tile, WEFT_READ);
    CHECK_INT(m->of.n, 1);
    CHECK(m->of.mean == 2.5 && m->of.squares == 0);
    CHECK(m->mean == 0 && m->rstd == 1);
    weft_tile_unacquire(tile);
    weft_tile_release(advantage);
    weft_tile_release(tile);
    fixture_stop(&f);
}

/* The other buffers stay what they are. */
static void test_absent_tiles(void)
{
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_gae_args g = {.gamma = 0.9f,
                              .lambda = 0.8f,
                              .kl = WEFT_KL_K2,
                              .n_models = 1,
                              .weight = {0.25f}};
    fixture_start(&f, 2, &shape, false);
    for (int absent = 0; absent < N_ABSENT; absent++)
        check_all(&f, &g, true, absent);
    fixture_stop(&f);
}

/* Neither a NaN nor what only a double holds. */
static void test_not_finite(void)
{
    static const struct {
        double score;
        const char *part;
    } bad[] = {
        {(double) NAN,
         "iteration 3: the score of sample 5 is no finite f32 number: nan"},
        {-1e39, "is no finite f32 number: -1e+39"},
        {3.5e38, "is no finite f32 number: 3.5e+38"},
    };
    struct task_fixture f;
    struct weft_err err;
    struct inputs x;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_gae_args g = {
        .gamma = 1, .lambda = 1, .iteration = 2, .sample = 5};
    fixture_start(&f, 1, &shape, false);
    struct weft_tile *kl = fixture_tile(&f, sizeof(struct weft_kl_state));
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        make(&f, &x, 2);
        *(double *) weft_tile_acquire(x.score, WEFT_WRITE) = bad[i].score;
        weft_tile_unacquire(x.score);
        weft_insert_gae(f.seq, &anywhere, &g, x.rollout, x.ref, x.value,
                        x.score, NULL, kl, NULL, x.advantage);
        CHECK_FAILS(weft_seq_wait(f.seq, &err), WEFT_ENUMERIC, err,
                    bad[i].part);
        /* Told once; the sequence goes on. */
        CHECK_INT(weft_seq_wait(f.seq, &err), 0);
        release(&x);
    }
    weft_tile_release(kl);
    fixture_stop(&f);
}

/* Returns, less the score of another response, without the penalties of its
 * KL and of a token's past. */
static void test_baseline(void)
{
    struct task_fixture f;
    struct weft_err err;
    struct inputs x, other;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    struct weft_gae_args g = {.gamma = 1,
                              .lambda = 1,
                              .kl = WEFT_KL_K1,
                              .missing_eos_penalty = 0.75f,
                              .n_models = 1,
                              .weight = {0.25f}};
    fixture_start(&f, 1, &shape, false);
    struct weft_tile *kl = fixture_tile(&f, sizeof(struct weft_kl_state));
    ((struct weft_kl_state *) weft_tile_acquire(kl, WEFT_WRITE))->coef = 0.3;
    weft_tile_unacquire(kl);
    make(&f, &x, 2);
    make(&f, &other, 1);
    leave_out(&x, 2, NO_VALUE);
    weft_insert_gae(f.seq, &anywhere, &g, other.rollout, other.ref, NULL,
                    other.score, &other.model, kl, NULL, other.advantage);
    weft_insert_gae(f.seq, &anywhere, &g, x.rollout, x.ref, NULL, x.score,
                    &x.model, kl, other.advantage, x.advantage);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    const struct weft_advantage *a = weft_tile_acquire(x.advantage,
                                                       WEFT_READ);
    /* the other was cut */
    double baseline = other.outside + 0.25 * other.model_score - 0.75;
    double rest = x.outside + 0.25 * x.model_score;
    for (int32_t t = n_response[2] - 1; t >= 0; t--) {
        rest -= 0.3 * ((double) x.logp[t] - (double) x.reference[t]);
        CHECK(fabs((double) weft_return_of(a)[t] - rest) < 1e-5);
        CHECK(fabs((double) weft_advantage_of(a)[t] - (rest - baseline))
              < 1e-5);
    }
    weft_tile_unacquire(x.advantage);
    release(&x);
    release(&other);
    weft_tile_release(kl);
    fixture_stop(&f);
}

/* Log-probs of inference in place of a rollout's; the tile may be smaller. */
static void test_reread(void)
{
    struct task_fixture f;
    struct weft_err err;
    struct inputs x;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, false);
    fixture_start(&f, 1, &shape, false);
    for (int i = 0; i < N; i++) {
        int32_t n = 3 + n_response[i];
        make(&f, &x, i);
        struct weft_tile *out = fixture_tile(&f, weft_rollout_bytes(n));
        weft_insert_reread(f.seq, &anywhere, x.rollout, x.ref, out);
        REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
        const struct weft_rollout *a = weft_tile_acquire(x.rollout,
                                                         WEFT_READ),
                                  *b = weft_tile_acquire(out, WEFT_READ);
        CHECK(b->n_prompt == 3 && b->n_total == n && b->ended == a->ended);
        CHECK_INT(b->capacity, n);
        CHECK(memcmp(weft_rollout_token(a), weft_rollout_token(b),
                     (size_t) n * 4)
              == 0);
        for (int32_t k = 0; k < n; k++)
            CHECK(weft_rollout_logp(b)[k]
                  == (k < 3 ? 0 : x.reference[k - 3]));
        weft_tile_unacquire(x.rollout);
        weft_tile_unacquire(out);
        weft_tile_release(out);
        release(&x);
    }
    fixture_stop(&f);
}

WEFT_TESTS("codelets/advantage", {"test_reread", test_reread},
           {"test_advantage", test_advantage},
           {"test_single_token", test_single_token},
           {"test_baseline", test_baseline},
           {"test_absent_tiles", test_absent_tiles},
           {"test_not_finite", test_not_finite})
