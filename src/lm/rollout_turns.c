/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which generation's statuses are acted on. In a run it is that
 * in which they come to rank 0, which tells the others of each in a message of
 * its own. So an instance waits for no other one, and what control costs grows
 * with the number of chunks, whoever makes them.
 */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "lm/rollout_inside.h"

/* ---- Orders ------------------------------------------------------------- */

static int order_room(struct weft_rollout_order *o, int64_t n,
                      struct weft_err *err)
{
    if (n <= o->room)
        return 0;
    size_t room = (size_t) weft_max64(2 * o->room, weft_max64(n, 64));
    int32_t *more = weft_realloc(o->instance, room, sizeof *more);
    if (!more)
        return weft_err_nomem(err, "the order of statuses",
                              room * sizeof *more);
    o->instance = more;
    o->room = (int64_t) room;
    return 0;
}

int weft_rollout_order_add(struct weft_rollout_order *o, int32_t instance,
                           struct weft_err *err)
{
    int rc = order_room(o, o->n + 1, err);
    if (!rc)
        o->instance[o->n++] = instance;
    return rc;
}

int weft_rollout_order_copy(const struct weft_rollout_order *from,
                            struct weft_rollout_order *out,
                            struct weft_err *err)
{
    *out = (struct weft_rollout_order){.n = 0};
    int rc = order_room(out, from->n, err);
    if (rc || from->n == 0)
        return rc;
    memcpy(out->instance, from->instance,
           (size_t) from->n * sizeof *out->instance);
    out->n = from->n;
    return 0;
}

void weft_rollout_order_release(struct weft_rollout_order *o)
{
    weft_free(o->instance);
    *o = (struct weft_rollout_order){.n = 0};
}

/* ---- Which status comes next -------------------------------------------- */

/* What rank 0 tells the others: whose status has come, and the status. */
struct news {
    int64_t instance; /* of those of all generations */
    struct weft_gen_status status;
};

/* Generations that go on at the same time. */
struct turns {
    struct weft_seq *seq;
    struct weft_rollout_control *c;   /* (n) */
    int32_t n, n_instances, last;     /* whose status came last */
    struct weft_events *events;       /* NULL: the order is given */
    struct weft_rollout_order *order; /* NULL: nobody wants it */
    struct news *news;
    size_t news_bytes;
    struct weft_err *err;
};

static struct weft_rollout_control *owner_of(const struct turns *t,
                                             int64_t instance,
                                             int32_t *own_out)
{
    struct weft_rollout_control *c = &t->c[t->n - 1];
    while (instance < c->first)
        c--;
    *own_out = (int32_t) (instance - c->first);
    return c;
}

/* Whether the generation needs the status that comes next of the instance. */
static bool awaits(const struct turns *t, int64_t instance)
{
    int32_t own;
    const struct weft_rollout_control *c = owner_of(t, instance, &own);
    return c->n_finished < c->n && c->in_flight[own] > 0;
}

/* Whether it is a status of samples: that of the chunk behind an instance's
 * last sample says nothing. */
static bool tells(const struct turns *t, int64_t instance)
{
    int32_t own;
    const struct weft_rollout_control *c = owner_of(t, instance, &own);
    return awaits(t, instance) && !c->gen->instance[own].idle;
}

/* As it was, or else in turn, where it may come after the last sample's: then
 * all instances have such a chunk open when generation ends, as many as there
 * can be. */
static int64_t given_next(const struct turns *t)
{
    struct weft_rollout_order *o = t->order;
    int64_t next = -1;
    while (o && o->follows && o->next < o->n && next < 0)
        if (awaits(t, o->instance[o->next++]))
            next = o->instance[o->next - 1];
    for (int32_t k = 1; k <= t->n_instances && next < 0; k++)
        if (tells(t, (t->last + k) % t->n_instances))
            next = (t->last + k) % t->n_instances;
    weft_assert(next >= 0);
    return next;
}

static int64_t next_here(const struct turns *t)
{
    int64_t next;
    if (!t->events)
        return given_next(t);
    do
        next = weft_events_next(t->events);
    while (!awaits(t, next));
    return next;
}

/* Of an instance's samples, as read last. */
static double tokens_of(const struct weft_rollout_control *c,
                        int32_t instance)
{
    const int32_t *slot = c->slot + (int64_t) instance * c->gen->n_slots;
    double n = 0;
    for (int32_t s = 0; s < c->gen->n_slots; s++)
        n += slot[s] < 0 ? 0 : c->has[slot[s]];
    return n;
}

static bool going_on(const struct turns *t)
{
    for (int32_t k = 0; k < t->n; k++)
        if (t->c[k].n_finished < t->c[k].n)
            return true;
    return false;
}

/* Obtains the next status and acts on it. Nobody is told of that of the chunk
 * behind an instance's last sample: some ways to choose the next leave it out,
 * and what is submitted must not depend on that. *told_out: whether all ranks
 * have; an error is all ranks' then. */
static int turn(struct turns *t, bool *told_out)
{
    int32_t own;
    bool here = weft_world_rank() == 0 || t->c->played;
    if (here) {
        t->news->instance = next_here(t);
        struct weft_rollout_control *c = owner_of(t, t->news->instance, &own);
        weft_rollout_take(c, own, &t->news->status);
    }
    int rc = weft_seq_tell(t->seq, t->news, t->news_bytes, false, t->err);
    *told_out = rc == 0;
    if (rc)
        return rc;
    struct weft_rollout_control *c = owner_of(t, t->news->instance, &own);
    if (!here) /* it is read elsewhere */
        weft_rollout_take(c, own, &t->news->status);
    t->last = (int32_t) t->news->instance;
    weft_rt_mark(c->gen->model->rt, "status", "instance", c->gen->call,
                 c->args.iteration, own);
    if (t->order && !t->order->follows)
        rc = weft_rollout_order_add(t->order, t->last, t->err);
    const struct weft_g_instance *instance = &c->gen->instance[own];
    bool had_samples = !instance->idle;
    int32_t slot, samples = weft_rollout_running(c, own, &slot);
    int32_t n_finished = c->n_finished;
    struct weft_rollout_turn made = {
        .instance = t->last,
        .own = own,
        .n_samples = samples,
        .n_steps = c->n_taken,
        .n_prefilled = t->news->status.n_prefilled,
        .n_tokens = tokens_of(c, own),
        .told_bytes = t->news_bytes};
    if (!rc)
        rc = weft_rollout_advance(c, own, &t->news->status);
    weft_rollout_see_chunk(c, own, &t->news->status, samples, n_finished);
    made.more = c->in_flight[own] > 0 && !(instance->idle && going_on(t));
    return rc || !had_samples || !c->on_turn
             ? rc
             : c->on_turn(c->ctx, &made, t->err);
}

/* A rank that cannot go on, or begin, makes all end here. */
static int turn_all(struct turns *t, int rc)
{
    bool told = true;
    for (int32_t k = 0; k < t->n && !rc; k++)
        rc = weft_rollout_start(&t->c[k]);
    while (!rc && going_on(t))
        rc = turn(t, &told);
    if (!told)
        return rc;
    bool failed = rc != 0;
    if (failed)
        weft_seq_fail(t->seq, rc, "%s", t->err->text);
    do
        rc = weft_seq_tell(t->seq, t->news, t->news_bytes, true, t->err);
    while (failed && !rc);
    return rc;
}

static int turns_init(struct turns *t, const struct weft_rollout_job *job)
{
    bool dry = t->n > 0 && weft_rt_is_dry(job->gen->model->rt);
    int rc = 0;
    t->news_bytes = sizeof *t->news;
    for (int32_t k = 0; k < t->n; k++) {
        size_t bytes = weft_gen_status_bytes(job[k].gen->n_slots);
        t->n_instances += job[k].gen->n_instances;
        if (t->news_bytes < offsetof(struct news, status) + bytes)
            t->news_bytes = offsetof(struct news, status) + bytes;
    }
    t->last = t->n_instances - 1;
    t->c = weft_alloc((size_t) t->n, sizeof *t->c);
    t->news = weft_alloc(1, t->news_bytes);
    if (!dry && weft_world_rank() == 0 && !(t->order && t->order->follows))
        rc = weft_events_create(&t->events, t->err);
    return t->c && t->news ? rc
                           : weft_err_nomem(t->err, "generation",
                                            (size_t) t->n * sizeof *t->c);
}

int weft_rollout_run_all(struct weft_seq *seq, int32_t n,
                         struct weft_rollout_job *job,
                         struct weft_rollout_order *order,
                         struct weft_err *err)
{
    struct weft_err own;
    struct turns t = {.seq = seq, .n = n, .order = order, .err = err};
    int32_t n_made = 0, first = 0;
    if (!err)
        err = t.err = &own;
    int rc = turns_init(&t, job);
    for (int32_t k = 0; k < n && !rc; k++) {
        rc = weft_rollout_control_init(seq, &job[k], err, &t.c[n_made++]);
        t.c[k].events = t.events;
        t.c[k].first = first;
        first += job[k].gen->n_instances;
    }
    for (int32_t k = 0; k < n && n > 1 && !rc; k++) {
        int32_t other = (k + 1) % n;
        weft_migration_join(&t.c[k].migration, job[k].gen,
                            &t.c[other].migration, job[other].gen);
    }
    if (n > 0)
        rc = turn_all(&t, rc);
    for (int32_t k = 0; k < n_made; k++) {
        job[k].stats = t.c[k].stats;
        weft_rollout_control_release(&t.c[k]);
    }
    weft_events_free(t.events);
    weft_free(t.news);
    weft_free(t.c);
    return rc;
}

int weft_rollout_run(struct weft_seq *seq, struct weft_g_generate *gen,
                     const struct weft_g_view *view,
                     const struct weft_gen_args *args, int32_t n,
                     struct weft_sample *sample, weft_rollout_fn on_finished,
                     void *ctx, struct weft_rollout_stats *stats_out,
                     struct weft_err *err)
{
    struct weft_rollout_job job = {.gen = gen,
                                   .view = view,
                                   .args = args,
                                   .n = n,
                                   .sample = sample,
                                   .on_finished = on_finished,
                                   .ctx = ctx};
    int rc = weft_rollout_run_all(seq, 1, &job, NULL, err);
    *stats_out = job.stats;
    return rc;
}
