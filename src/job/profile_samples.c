/* SPDX-License-Identifier: Apache-2.0 */
/* What an iteration does to samples beside models: rewards, advantages, their
 * moments, the KL controller, the gate of an early stop. */
#include "base/alloc.h"
#include "job/profile_inside.h"

enum {
    MOST_SAMPLES = 64,
    TIMES_SAMPLES = 8,
    LONGEST = 1024, /* tokens of a response */
    TIMES_TOKENS = 32,
    TURNS = 3
};

/* Tiles of n samples of n_tokens response tokens after a prompt of one, and
 * those that all of them share. */
struct samples {
    int32_t n, n_tokens;
    struct weft_tile *rollout[MOST_SAMPLES], *reread[MOST_SAMPLES],
        *logp[MOST_SAMPLES], *advantage[MOST_SAMPLES], *answer[MOST_SAMPLES],
        *score[MOST_SAMPLES], *shaped[MOST_SAMPLES];
    struct weft_tile *kl_state, *moments, *of_scores, *kl, *gate, *stats;
};

/* A tile of zeros where an iteration has it: at the first place. */
static int tile(struct weft_profile_bench *b, size_t bytes,
                struct weft_tile **out, struct weft_err *err)
{
    struct weft_tile_id id = {"profiled", "sample", 0, -1, -1, 0};
    return weft_tile_create(b->rt, &id, WEFT_MEM_SAMPLES, bytes, out, err);
}

static int sample(struct weft_profile_bench *b, struct samples *s, int32_t i,
                  struct weft_err *err)
{
    size_t n = (size_t) s->n_tokens;
    int rc = tile(b, weft_rollout_bytes(1 + s->n_tokens), &s->rollout[i],
                  err);
    if (rc)
        return rc;
    struct weft_rollout *r = weft_tile_acquire(s->rollout[i], WEFT_WRITE);
    *r = (struct weft_rollout){1 + s->n_tokens, 1, 1 + s->n_tokens, 1};
    weft_tile_unacquire(s->rollout[i]);
    rc = tile(b, weft_rollout_bytes(1 + s->n_tokens), &s->reread[i], err);
    if (!rc)
        rc = tile(b, n * sizeof(float), &s->logp[i], err);
    if (!rc)
        rc = tile(b, weft_advantage_bytes(s->n_tokens), &s->advantage[i],
                  err);
    if (!rc)
        rc = tile(b, sizeof(double), &s->answer[i], err);
    if (!rc)
        rc = tile(b, sizeof(float), &s->score[i], err);
    return rc ? rc : tile(b, sizeof(float), &s->shaped[i], err);
}

static int samples_create(struct weft_profile_bench *b, struct samples *s,
                          struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < s->n && !rc; i++)
        rc = sample(b, s, i, err);
    if (!rc)
        rc = tile(b, sizeof(struct weft_kl_state), &s->kl_state, err);
    if (!rc)
        rc = tile(b, sizeof(struct weft_moments), &s->moments, err);
    if (!rc)
        rc = tile(b, sizeof(struct weft_k_moments), &s->of_scores, err);
    if (!rc)
        rc = tile(b, sizeof(double), &s->kl, err);
    if (!rc)
        rc = tile(b, sizeof(float), &s->gate, err);
    return rc ? rc
              : tile(b,
                     (size_t) s->n * sizeof(double)
                         * (size_t) weft_loss_n_stats(WEFT_LOSS_POLICY),
                     &s->stats, err);
}

static void samples_release(struct samples *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        weft_tile_release(s->rollout[i]);
        weft_tile_release(s->reread[i]);
        weft_tile_release(s->logp[i]);
        weft_tile_release(s->advantage[i]);
        weft_tile_release(s->answer[i]);
        weft_tile_release(s->score[i]);
        weft_tile_release(s->shaped[i]);
    }
    weft_tile_release(s->kl_state);
    weft_tile_release(s->moments);
    weft_tile_release(s->of_scores);
    weft_tile_release(s->kl);
    weft_tile_release(s->gate);
    weft_tile_release(s->stats);
}

static void advantages(struct weft_profile_bench *b, struct samples *s,
                       const struct weft_where *where)
{
    const struct weft_gae_args args = {
        .gamma = 1, .lambda = 0.95f, .kl = WEFT_KL_K1};
    const struct weft_group_args group = {.reward = args};
    struct weft_group_sample of[MOST_SAMPLES];
    for (int32_t i = 0; i < s->n; i++) {
        of[i] = (struct weft_group_sample){.rollout = s->rollout[i],
                                           .ref = s->logp[i],
                                           .score = s->answer[i],
                                           .advantage = s->advantage[i]};
        weft_insert_gae(b->seq, where, &args, s->rollout[i], s->logp[i],
                        s->logp[i], s->answer[i], NULL, s->kl_state, NULL,
                        s->advantage[i]);
    }
    weft_insert_group_advantage(b->seq, where, &group, s->n, of, s->kl_state);
}

/* Every operation once, with all samples. */
static int all(struct weft_profile_bench *b, struct samples *s,
               struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .call = 4, .micro_batch = -1, .layer = -1};
    const struct weft_reward_shape_args shape = {.running = true};
    int32_t index[MOST_SAMPLES], n_tokens[MOST_SAMPLES];
    for (int32_t i = 0; i < s->n; i++) {
        index[i] = i;
        n_tokens[i] = s->n_tokens;
        weft_insert_reread(b->seq, &where, s->rollout[i], s->logp[i],
                           s->reread[i]);
    }
    const struct weft_gate_stats stats = {s->stats, s->n, index};
    weft_insert_reward_shape(b->seq, &where, &shape, s->n, s->score,
                             s->of_scores, s->shaped);
    advantages(b, s, &where);
    weft_insert_moments(b->seq, &where, true, s->n, s->advantage, s->moments);
    weft_insert_kl_update(b->seq, &where, true, 1, 1, s->n, s->advantage,
                          s->kl_state);
    weft_insert_kl_gate(b->seq, &where, 1, 1, &stats, s->gate);
    weft_insert_kto_kl(b->seq, &where, s->n, n_tokens, s->logp, s->logp,
                       s->kl);
    return weft_context_wait(b->seq, 0, err);
}

/* All sizes take less than a second, so that no limit is asked for. */
int weft_profile_samples(struct weft_profile_bench *b, struct weft_err *err)
{
    int rc = 0;
    for (int32_t n = 1; n <= MOST_SAMPLES && !rc; n *= TIMES_SAMPLES)
        for (int32_t k = 1; k <= LONGEST && !rc; k *= TIMES_TOKENS) {
            struct samples s = {.n = n, .n_tokens = k};
            rc = samples_create(b, &s, err);
            for (int turn = 0; turn < TURNS && !rc; turn++)
                rc = all(b, &s, err);
            samples_release(&s);
        }
    return rc;
}
