/* SPDX-License-Identifier: Apache-2.0 */
/* The advantages of an iteration's samples, from what its calls have made of
 * them, and what is computed of all advantages. */
#include "base/alloc.h"
#include "run/iteration.h"

/* A temporary tile at the first place, where rank 0 reads. */
static int temp(struct weft_iteration *p, const char *kind, size_t bytes,
                struct weft_tile **out)
{
    struct weft_tile_id id = {"sample", kind, 0, -1, -1, 0};
    return weft_tile_create_temp(p->t->rt, &id, WEFT_MEM_SAMPLES, bytes, out,
                                 p->err);
}

/* Copies what a sample's calls have made to the first place. */
static void fetch_results(struct weft_iteration *p, int32_t i,
                          const struct weft_where *where)
{
    struct weft_iteration_sample *x = &p->extra[i];
    for (int32_t f = 0; f < p->t->flow.n_fields; f++)
        x->home[f] = weft_g_sample_at(p->copies, p->t->seq, where,
                                      x->field[f], 0);
}

/* Makes a tile for one of the sample's fields at the first place. */
static int field_temp(struct weft_iteration *p, int32_t i,
                      enum weft_field_type type, size_t bytes)
{
    struct weft_iteration_sample *x = &p->extra[i];
    int32_t f = weft_iteration_set(p, i)->of[type];
    int rc = temp(p, p->t->flow.field[f].name, bytes, &x->field[f]);
    x->home[f] = x->field[f];
    return rc;
}

int32_t weft_iteration_writer(const struct weft_iteration_set *set,
                              enum weft_field_type type)
{
    int32_t i = weft_flow_writer(&set->p->t->flow, set->of[type]);
    return i > 0 ? i : 0;
}

/* Where the step that writes a type of field runs. Training waits for it, also
 * where the device generates other samples meanwhile. */
static struct weft_where where_of(const struct weft_iteration_set *set,
                                  enum weft_field_type type)
{
    return (struct weft_where){.device = -1,
                               .priority = WEFT_PRIORITY_SAMPLE,
                               .call = weft_iteration_writer(set, type),
                               .iteration = set->p->iteration,
                               .micro_batch = -1,
                               .layer = -1};
}

/* Puts the log-probs of inference in place of a rollout's. */
static int reread(struct weft_iteration *p, int32_t i)
{
    const struct weft_iteration_set *set = weft_iteration_set(p, i);
    if (set->of[WEFT_FIELD_REREAD] < 0)
        return 0;
    struct weft_where where = where_of(set, WEFT_FIELD_REREAD);
    int rc = field_temp(p, i, WEFT_FIELD_REREAD,
                        weft_rollout_bytes(p->sample[i].n_total));
    if (!rc)
        weft_insert_reread(p->t->seq, &where,
                           weft_iteration_home(p, i, WEFT_FIELD_ROLLOUT),
                           weft_iteration_home(p, i, WEFT_FIELD_OLD_LOGP),
                           weft_iteration_home(p, i, WEFT_FIELD_REREAD));
    return rc;
}

/* What is known of sample i before its advantage, and the tiles for its reward
 * from outside and for the advantage. */
static int begin_advantage(struct weft_iteration *p, int32_t i,
                           const struct weft_where *where)
{
    struct weft_iteration_sample *x = &p->extra[i];
    const struct weft_sample *s = &p->sample[i];
    fetch_results(p, i, where);
    int rc = reread(p, i);
    if (rc)
        return rc;
    /* answers come when rank 0 has read all samples, or those of a
     * mini-batch */
    if (!p->as_completed)
        weft_rt_when(p->t->rt, WEFT_REC_AFTER_SAMPLES);
    rc = field_temp(p, i, WEFT_FIELD_ANSWER, sizeof(double));
    if (!rc)
        rc = weft_external_begin(p->t->seq,
                                 weft_iteration_home(p, i, WEFT_FIELD_ANSWER),
                                 where, &x->answer, p->err);
    if (!p->as_completed)
        weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    if (!rc)
        rc = field_temp(p, i, WEFT_FIELD_ADVANTAGE,
                        weft_advantage_bytes(s->n_total - s->n_prompt));
    p->advantage[i] = weft_iteration_home(p, i, WEFT_FIELD_ADVANTAGE);
    return rc;
}

/* Lists a sample's scores by reward models, in the order of the graph, as they
 * enter its score. */
static void list_scores(const struct weft_iteration *p, int32_t i,
                        struct weft_tile *out[])
{
    const struct weft_dataflow *flow = &p->t->flow;
    const struct weft_iteration_sample *x = &p->extra[i];
    int32_t set = (int32_t) (weft_iteration_set(p, i) - p->set);
    for (int32_t f = 0, n = 0; f < flow->n_fields; f++)
        if (flow->field[f].type == WEFT_FIELD_SCORE && p->set_of[f] == set) {
            out[n] = x->shaped[n] ? x->shaped[n] : x->home[f];
            n++;
        }
}

int32_t weft_iteration_baseline(const struct weft_iteration *p, int32_t i)
{
    const struct weft_dataflow *flow = &p->t->flow;
    int32_t call = weft_iteration_writer(weft_iteration_set(p, i),
                                         WEFT_FIELD_ADVANTAGE);
    int32_t f = weft_flow_field_of(flow, flow->call[call].reads,
                                   WEFT_FIELD_ADVANTAGE);
    if (f < 0)
        return -1;
    const struct weft_iteration_set *other = &p->set[p->set_of[f]];
    return other->first + weft_iteration_prompt(p, i) * other->each;
}

static void by_tokens(struct weft_iteration *p, int32_t i,
                      const struct weft_where *where,
                      struct weft_gae_args *args)
{
    struct weft_tile *score[WEFT_MAX_REWARDS];
    int32_t other = weft_iteration_baseline(p, i);
    list_scores(p, i, score);
    args->sample = i;
    weft_insert_gae(p->t->seq, where, args, weft_iteration_rollout(p, i),
                    weft_iteration_home(p, i, WEFT_FIELD_LOGP),
                    weft_iteration_home(p, i, WEFT_FIELD_VALUE),
                    weft_iteration_home(p, i, WEFT_FIELD_ANSWER), score,
                    p->t->kl_state, other < 0 ? NULL : p->advantage[other],
                    p->advantage[i]);
}

/* The n samples from i on, which answer one prompt. */
static int by_group(struct weft_iteration *p, int32_t i, int32_t n,
                    const struct weft_where *where,
                    const struct weft_gae_args *args)
{
    struct weft_group_args group = {
        .kind = weft_algorithm_of(&p->t->config)->group, .reward = *args};
    struct weft_group_sample *sample = weft_alloc((size_t) n, sizeof *sample);
    if (!sample)
        return weft_err_nomem(p->err, "advantages",
                              (size_t) n * sizeof *sample);
    group.reward.sample = i;
    for (int32_t k = 0; k < n; k++) {
        sample[k] = (struct weft_group_sample){
            .rollout = weft_iteration_rollout(p, i + k),
            .ref = weft_iteration_home(p, i + k, WEFT_FIELD_LOGP),
            .score = weft_iteration_home(p, i + k, WEFT_FIELD_ANSWER),
            .advantage = p->advantage[i + k]};
        list_scores(p, i + k, sample[k].model_score);
    }
    weft_insert_group_advantage(p->t->seq, where, &group, n, sample,
                                p->t->kl_state);
    weft_free(sample);
    return 0;
}

static bool is_new(const struct weft_iteration *p, int32_t i)
{
    return weft_iteration_due(p, i) && !p->extra[i].judged;
}

/* The set's advantages, from their scores: those that are due. A prompt's
 * samples are due together. */
static int compare(struct weft_iteration *p,
                   const struct weft_iteration_set *set)
{
    struct weft_where where = where_of(set, WEFT_FIELD_ADVANTAGE);
    struct weft_gae_args args = p->t->settings.reward;
    bool groups = weft_algorithm_of(&p->t->config)->advantage
               == WEFT_BY_GROUPS;
    int32_t end = set->first + set->n;
    int rc = 0;
    args.iteration = p->iteration;
    for (int32_t i = set->first; i < end && !groups; i++)
        if (is_new(p, i))
            by_tokens(p, i, &where, &args);
    for (int32_t i = set->first; i < end && groups && !rc; i += set->each)
        if (is_new(p, i))
            rc = by_group(p, i, set->each, &where, &args);
    return rc;
}

int weft_iteration_advantages(struct weft_iteration *p)
{
    struct weft_where where = where_of(p->set, WEFT_FIELD_ADVANTAGE);
    int rc = 0;
    if (p->as_completed)
        weft_rt_when(p->t->rt, WEFT_REC_EARLY);
    for (int32_t i = 0; i < p->n_all && !rc; i++)
        if (is_new(p, i))
            rc = begin_advantage(p, i, &where);
    if (!rc)
        rc = weft_iteration_shape_scores(p, &where);
    for (int32_t k = p->n_sets - 1; k >= 0 && !rc; k--)
        rc = compare(p, &p->set[k]); /* baselines first */
    for (int32_t i = 0; i < p->n_all && !rc; i++)
        p->extra[i].judged = weft_iteration_due(p, i) || p->extra[i].judged;
    weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    return rc;
}

int weft_iteration_moments(struct weft_iteration *p, bool whiten, int32_t n,
                           struct weft_tile *const advantage[],
                           struct weft_tile **out)
{
    struct weft_where where = where_of(p->set, WEFT_FIELD_ADVANTAGE);
    int rc = temp(p, "moments", sizeof(struct weft_moments), out);
    if (!rc)
        weft_insert_moments(p->t->seq, &where, whiten, n, advantage, *out);
    return rc;
}

int weft_iteration_sum_up(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    const struct weft_settings *set = &t->settings;
    struct weft_where where = where_of(p->set, WEFT_FIELD_ADVANTAGE);
    int rc = weft_iteration_moments(p, set->whiten == WEFT_WHITEN_ITERATION,
                                    p->n, p->advantage, &p->moments);
    if (rc)
        return rc;
    if (p->set->of[WEFT_FIELD_LOGP] >= 0)
        weft_insert_kl_update(t->seq, &where, set->kl_adaptive,
                              set->kl_target, set->kl_horizon, p->n,
                              p->advantage, t->kl_state);
    return 0;
}
