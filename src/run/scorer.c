/* SPDX-License-Identifier: Apache-2.0 */
#include "run/scorer.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

/* A sample that has ended: a copy of its rollout, made when it came. */
struct item {
    struct weft_scorer *scorer;
    int64_t round;
    int32_t i;
    size_t bytes;
    struct weft_rollout *rollout; /* NULL: it could not be had */
    struct item *next;
};

enum { PROMISED = 1, DONE, FAILED };

struct weft_scorer {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct item *first, **last;
    struct weft_iteration *p; /* NULL: no round */
    int64_t round;
    int32_t n_all;
    int32_t *order; /* (n) of questions to programs; NULL: as samples come */
    struct weft_reward_sample *sample; /* (n) by number in the round */
    uint8_t *state;                    /* (n_all) by sample */
    bool owes; /* programs, as far as is known: they are looked at often */
    bool busy, held, stop;
    double busy_s; /* since the last end */
};

/* How often programs that owe answers are looked at. */
static const long look_ns = 5000000;

/* ---- The thread ---------------------------------------------------------- */

static void item_free(struct item *item)
{
    weft_free(item->rollout);
    weft_free(item);
}

/* The rollout came from the sample's task if it has the sample's lengths. */
static bool is_whole(const struct weft_iteration *p, const struct item *item)
{
    const struct weft_rollout *r = item->rollout;
    const struct weft_sample *s = &p->sample[item->i];
    return r && r->n_total == s->n_total && r->n_prompt == s->n_prompt
        && weft_rollout_bytes(r->capacity) <= item->bytes;
}

/* Scores a sample whose text is there. */
static void add(struct weft_scorer *s, int32_t i)
{
    const struct weft_iteration *p = s->p;
    int32_t number = p->extra[i].number;
    s->sample[number] = weft_iteration_reward_sample(&p->text[i]);
    weft_rewards_add(p->t->rewards, number);
}

/* Decodes a sample, and scores it if that is done on this rank. What fails is
 * done again, and said, by who reads. */
static bool score(struct weft_scorer *s, const struct item *item)
{
    struct weft_iteration *p = s->p;
    struct weft_iteration_text *text = &p->text[item->i];
    if (!is_whole(p, item))
        return false;
    if (weft_iteration_decode(p, item->i, item->rollout, text, NULL)) {
        weft_iteration_text_clear(text);
        return false;
    }
    if (weft_scorer_has(p, item->i))
        add(s, item->i);
    return true;
}

/* The mutex is held, but not during the work. */
static void work(struct weft_scorer *s, struct item *item)
{
    struct weft_rewards *rewards = s->p->t->rewards;
    bool done = false;
    s->busy = true;
    pthread_mutex_unlock(&s->mutex);
    double start_s = weft_clock_s();
    if (item)
        done = score(s, item);
    bool owes = weft_rewards_move(rewards);
    double took_s = weft_clock_s() - start_s;
    pthread_mutex_lock(&s->mutex);
    s->busy = false;
    s->owes = owes;
    s->busy_s += item ? took_s : 0;
    if (item)
        s->state[item->i] = done ? DONE : FAILED;
    pthread_cond_broadcast(&s->changed);
}

static void rest(struct weft_scorer *s)
{
    struct timespec t;
    if (!s->p || !s->owes || s->held) {
        pthread_cond_wait(&s->changed, &s->mutex);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += look_ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&s->changed, &s->mutex, &t);
}

static void *run(void *arg)
{
    struct weft_scorer *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (!s->stop) {
        struct item *item = s->first;
        if (!item || s->held) {
            rest(s);
            if (s->p && s->owes && !s->first && !s->held)
                work(s, NULL);
            continue;
        }
        s->first = item->next;
        if (!s->first)
            s->last = &s->first;
        if (s->p && item->round == s->round)
            work(s, item);
        item_free(item);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- Rounds --------------------------------------------------------------- */

static int create(struct weft_scorer **out, struct weft_err *err)
{
    struct weft_scorer *s = weft_alloc(1, sizeof *s);
    if (!s)
        return weft_err_nomem(err, "rewards", sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->last = &s->first;
    if (pthread_create(&s->thread, NULL, run, s)) {
        weft_free(s);
        return weft_err_set(err, WEFT_ENOMEM,
                            "cannot start the rewards' thread");
    }
    *out = s;
    return 0;
}

bool weft_scorer_wanted(const struct weft_iteration *p)
{
    const struct weft_config *c = &p->t->config;
    return p->set->of[WEFT_FIELD_ANSWER] >= 0
        && weft_rewards_early(c->reward, c->n_rewards);
}

bool weft_scorer_has(const struct weft_iteration *p, int32_t i)
{
    return weft_tile_is_here(
        p->extra[i].field[weft_iteration_set(p, i)->field]);
}

/* One rank has all samples, and asks in the order of their numbers; where
 * mini-batches train as they complete, in the order in which these need them:
 * such an iteration has one round, in which a sample's number is its index. */
static int list_order(const struct weft_iteration *p, int32_t n,
                      int32_t **out)
{
    const int32_t *needed = p->early.needed;
    int32_t parts = needed ? p->t->settings.mini_batches : 0, *next;
    *out = NULL;
    if (weft_world_size() > 1)
        return 0;
    *out = next = weft_alloc((size_t) n, sizeof *next);
    if (!next)
        return weft_err_nomem(p->err, "rewards", (size_t) n * sizeof *next);
    for (int32_t k = 0; k <= parts; k++)
        for (int32_t i = 0; i < n; i++)
            if (!needed || needed[i] == k)
                *next++ = i;
    return 0;
}

/* Waits until the thread lets go of the round. The mutex is held. */
static void let_go(struct weft_scorer *s)
{
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->mutex);
    s->p = NULL;
    s->owes = false;
}

int weft_scorer_begin(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    int32_t n = 0;
    int rc = 0;
    if (!weft_scorer_wanted(p) || !t->rewards)
        return 0;
    for (int32_t k = 0; k < p->n_sets; k++)
        n += p->set[k].n_round;
    if (!t->scorer)
        rc = create(&t->scorer, p->err);
    if (!rc)
        rc = weft_iteration_texts_init(p);
    if (rc)
        return rc;
    struct weft_scorer *s = t->scorer;
    pthread_mutex_lock(&s->mutex);
    let_go(s);
    weft_free(s->order);
    weft_free(s->sample);
    weft_free(s->state);
    s->sample = weft_alloc((size_t) n, sizeof *s->sample);
    s->state = weft_alloc((size_t) p->n_all, sizeof *s->state);
    s->n_all = p->n_all;
    s->busy_s = 0;
    s->round++;
    rc = list_order(p, n, &s->order);
    if (!rc)
        rc = s->sample && s->state
               ? weft_rewards_begin(t->rewards, n, s->order, s->sample,
                                    p->err)
               : weft_err_nomem(p->err, "rewards",
                                (size_t) n * sizeof *s->sample);
    s->p = rc ? NULL : p;
    pthread_mutex_unlock(&s->mutex);
    return rc;
}

/* Called by whoever brings the sample. */
static void came(void *ctx, const void *data)
{
    struct item *item = ctx;
    struct weft_scorer *s = item->scorer;
    if (data)
        item->rollout = weft_alloc(1, item->bytes);
    if (item->rollout)
        memcpy(item->rollout, data, item->bytes);
    pthread_mutex_lock(&s->mutex);
    *s->last = item;
    s->last = &item->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

int weft_scorer_expect(struct weft_iteration *p, int32_t i)
{
    struct weft_trainer *t = p->t;
    const struct weft_where where = {.device = -1,
                                     .iteration = p->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    int32_t f = weft_iteration_set(p, i)->field;
    if (!weft_scorer_wanted(p))
        return 0;
    struct weft_tile *tile = weft_g_sample_at(p->copies, t->seq, &where,
                                              p->extra[i].field[f], 0);
    struct weft_scorer *s = t->scorer;
    if (tile && !weft_tile_is_here(tile)) /* not rank 0 */
        tile = p->extra[i].field[f];
    if (!s || !tile || weft_rt_is_dry(t->rt) || !weft_tile_is_here(tile))
        return 0;
    struct item *item = weft_alloc(1, sizeof *item);
    if (!item)
        return weft_err_nomem(p->err, "rewards", sizeof *item);
    pthread_mutex_lock(&s->mutex);
    *item = (struct item){.scorer = s,
                          .round = s->round,
                          .i = i,
                          .bytes = weft_tile_bytes(tile)};
    s->state[i] = PROMISED;
    pthread_mutex_unlock(&s->mutex);
    int rc = weft_tile_when_written(tile, came, item, p->err);
    if (rc) {
        pthread_mutex_lock(&s->mutex);
        s->state[i] = FAILED;
        pthread_mutex_unlock(&s->mutex);
        weft_free(item);
    }
    return rc;
}

bool weft_scorer_wait(struct weft_scorer *s, int32_t i)
{
    if (!s)
        return false;
    pthread_mutex_lock(&s->mutex);
    while (s->p && i < s->n_all && s->state[i] == PROMISED)
        pthread_cond_wait(&s->changed, &s->mutex);
    bool done = s->p && i < s->n_all && s->state[i] == DONE;
    pthread_mutex_unlock(&s->mutex);
    return done;
}

int weft_scorer_end(struct weft_iteration *p, int32_t n, const int32_t *index,
                    double (*part)[WEFT_MAX_REWARDS])
{
    struct weft_scorer *s = p->t->scorer;
    struct weft_rewards *rewards = p->t->rewards;
    int32_t *number = weft_alloc((size_t) n, sizeof *number);
    if (!number)
        return weft_err_nomem(p->err, "rewards", (size_t) n * sizeof *number);
    pthread_mutex_lock(&s->mutex);
    weft_assert(s->p == p);
    s->held = true;
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->mutex);
    p->reward_s += s->busy_s;
    s->busy_s = 0;
    pthread_mutex_unlock(&s->mutex);
    for (int32_t k = 0; k < n; k++) {
        number[k] = p->extra[index[k]].number;
        if (s->state[index[k]] != DONE)
            add(s, index[k]);
    }
    int rc = weft_rewards_end(rewards, n, number, part, p->err);
    p->reward_s += weft_rewards_busy_s(rewards);
    pthread_mutex_lock(&s->mutex);
    s->held = false;
    s->owes = true; /* about others, perhaps */
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    weft_free(number);
    return rc;
}

void weft_scorer_forget(struct weft_scorer *s, const struct weft_iteration *p)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    if (s->p == p)
        let_go(s);
    pthread_mutex_unlock(&s->mutex);
}

void weft_scorer_free(struct weft_scorer *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    while (s->first) {
        struct item *item = s->first;
        s->first = item->next;
        item_free(item);
    }
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    weft_free(s->order);
    weft_free(s->sample);
    weft_free(s->state);
    weft_free(s);
}
