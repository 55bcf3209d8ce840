/* SPDX-License-Identifier: Apache-2.0 */
#include "run/reward_state.h"

#include <stdio.h>

bool weft_reward_is_shaped(const struct weft_reward_config *c)
{
    return c->normalize != WEFT_NORMALIZE_NONE || c->clip > 0;
}

int weft_reward_state_create(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_tile_id id = {"run", "reward moments", 0, -1, -1, 0};
    int rc = 0;
    for (int32_t r = 0; r < t->config.n_rewards && !rc; r++) {
        const struct weft_reward_config *c = &t->config.reward[r];
        struct weft_tile **tile = &t->reward_moments[r];
        if (c->type != WEFT_REWARD_MODEL
            || c->normalize == WEFT_NORMALIZE_NONE)
            continue;
        rc = weft_tile_create(t->rt, &id, WEFT_MEM_SAMPLES,
                              sizeof(struct weft_k_moments), tile, err);
        if (rc || t->recorded || !weft_tile_is_here(*tile))
            continue;
        struct weft_k_moments *m = weft_tile_acquire(*tile, WEFT_WRITE);
        *m = (struct weft_k_moments){.n = 0};
        weft_tile_unacquire(*tile);
    }
    return rc;
}

void weft_reward_state_release(struct weft_trainer *t)
{
    for (int32_t r = 0; r < WEFT_MAX_REWARDS; r++)
        weft_tile_release(t->reward_moments[r]);
}

/* The moments of a reward, to be read and set; NULL: they are not here, or no
 * state. Ends with done(). */
static struct weft_k_moments *moments_of(struct weft_trainer *t, int32_t r)
{
    struct weft_tile *tile = t->reward_moments[r];
    if (t->config.reward[r].normalize != WEFT_NORMALIZE_RUNNING)
        return NULL;
    if (!tile)
        return t->rewards ? weft_rewards_moments(t->rewards, r) : NULL;
    return weft_tile_is_here(tile) ? weft_tile_acquire(tile, WEFT_READ_WRITE)
                                   : NULL;
}

static void done(struct weft_trainer *t, int32_t r)
{
    if (t->reward_moments[r])
        weft_tile_unacquire(t->reward_moments[r]);
}

static const char *const names[] = {"n", "mean", "squares", "min", "max"};
enum { N_NAMES = WEFT_COUNT(names) };

static const char *name_of(int32_t reward, int k)
{
    static char name[64];
    snprintf(name, sizeof name, "reward_%d_%s", (int) reward + 1, names[k]);
    return name;
}

int weft_reward_state_save(struct weft_trainer *t, struct weft_manifest *to,
                           struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->config.n_rewards && !rc; r++) {
        const struct weft_k_moments *m = moments_of(t, r);
        if (!m)
            continue;
        const double value[N_NAMES] = {(double) m->n, m->mean, m->squares,
                                       m->min, m->max};
        for (int k = 0; k < N_NAMES && !rc; k++)
            rc = weft_manifest_add_number(to, name_of(r, k), value[k], err);
        done(t, r);
    }
    return rc;
}

int weft_reward_state_load(struct weft_trainer *t,
                           const struct weft_manifest *from,
                           struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->config.n_rewards && !rc; r++) {
        double value[N_NAMES] = {0};
        struct weft_k_moments *m = moments_of(t, r);
        if (!m)
            continue;
        for (int k = 0; k < N_NAMES && !rc; k++)
            rc = weft_manifest_number(from, name_of(r, k), &value[k], err);
        *m = (struct weft_k_moments){(int64_t) value[0], value[1], value[2],
                                     value[3], value[4]};
        done(t, r);
    }
    return rc;
}
