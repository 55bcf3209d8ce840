/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gangs: tasks of several devices whose bodies run at the same time, and meet
 * without the runtime. The policy begins them together (rt/policy.h). A body
 * that fails, or is left out after an error, ends the meetings of all: they
 * then return, and nobody waits for who does not come. No member leaves before
 * the others have left their bodies, as they use one another's memory.
 */
#include "rt/internal.h"

#include "base/alloc.h"

enum {
    /* Looks at the others before it sleeps: some 100 us, or with fewer cores
     * than devices, where the others need this one, some 2. */
    SPINS = 4000,
    SPINS_CROWDED = 50
};

static void gang_free(struct weft_team *team)
{
    pthread_cond_destroy(&team->moved);
    pthread_mutex_destroy(&team->mutex);
    weft_free(team);
}

void weft_team_drop(struct weft_team *team)
{
    if (team && atomic_fetch_sub(&team->n_users, 1) == 1)
        gang_free(team);
}

void weft_insert_gang(struct weft_seq *seq, int n)
{
    weft_assert(seq->n_members == 0 && n > 0 && n <= WEFT_GANG_MEMBERS);
    seq->n_members = n;
    seq->member = 0;
    if (seq->rt->is_dry)
        return;
    if (!seq->rt->policy) {
        weft_seq_fail(seq, WEFT_EUNSUPPORTED,
                      "StarPU's policies do not begin tasks together");
        return;
    }
    seq->team = weft_insert_alloc(1, sizeof *seq->team, "a gang");
    seq->team->gang.n = n;
    atomic_init(&seq->team->n_users, n);
    pthread_mutex_init(&seq->team->mutex, NULL);
    pthread_cond_init(&seq->team->moved, NULL);
    seq->team->spins = seq->rt->nap ? SPINS_CROWDED : SPINS;
}

struct weft_team *weft_team_next(struct weft_seq *seq, int *member_out,
                                 int *n_out)
{
    struct weft_team *team = seq->team;
    *member_out = seq->member++;
    *n_out = seq->n_members;
    if (seq->member >= seq->n_members) {
        seq->n_members = seq->member = 0;
        seq->team = NULL;
    }
    return team;
}

/* ---- Meetings ---------------------------------------------------------- */

static bool round_is_over(struct weft_team *team, unsigned round)
{
    return atomic_load(&team->round) != round || atomic_load(&team->failed);
}

static bool all_have_left(struct weft_team *team, unsigned round)
{
    (void) round;
    return atomic_load(&team->n_left) == team->gang.n;
}

static void wait_for(struct weft_team *team,
                     bool (*over)(struct weft_team *, unsigned),
                     unsigned round)
{
    for (int i = 0; i < team->spins; i++) {
        if (over(team, round))
            return;
        WEFT_PAUSE();
    }
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->n_asleep, 1);
    while (!over(team, round))
        pthread_cond_wait(&team->moved, &team->mutex);
    atomic_fetch_sub(&team->n_asleep, 1);
    pthread_mutex_unlock(&team->mutex);
}

/* After a change that a sleeper waits for. */
static void wake(struct weft_team *team)
{
    if (atomic_load(&team->n_asleep) == 0)
        return;
    pthread_mutex_lock(&team->mutex);
    pthread_cond_broadcast(&team->moved);
    pthread_mutex_unlock(&team->mutex);
}

bool weft_exec_meet(struct weft_exec *x)
{
    struct weft_team *team = x->team;
    if (!team)
        return true;
    unsigned round = atomic_load(&team->round);
    if (atomic_fetch_add(&team->n_arrived, 1) + 1 == team->gang.n) {
        atomic_store(&team->n_arrived, 0);
        atomic_fetch_add(&team->round, 1);
        wake(team);
    } else {
        wait_for(team, round_is_over, round);
    }
    /* All have come, or nobody will: all get the same answer, also where one of
     * them has failed since. */
    return atomic_load(&team->round) != round;
}

int weft_exec_member(const struct weft_exec *x)
{
    return x->member;
}

void **weft_exec_shared(struct weft_exec *x)
{
    return x->team ? x->team->shared : &x->shared;
}

void weft_team_leave(struct weft_team *team, bool ran, int rc)
{
    if (!ran || rc)
        atomic_store(&team->failed, 1);
    atomic_fetch_add(&team->n_left, 1);
    wake(team);
    /* A body that ran began with the others. */
    if (ran)
        wait_for(team, all_have_left, 0);
}
