/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/rollout_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/recording.h"

void weft_rollout_reset(struct weft_g_generate *gen)
{
    for (int32_t i = 0; i < gen->n_instances; i++) {
        struct weft_tile *tile = gen->instance[i].state;
        if (!weft_tile_is_here(tile) || weft_rt_is_dry(gen->model->rt))
            continue;
        struct weft_gen_state *state = weft_tile_acquire(tile, WEFT_WRITE);
        weft_gen_state_layout(gen->n_slots, gen->max_total, gen->n_pages,
                              state);
        weft_gen_state_clear(state);
        weft_tile_unacquire(tile);
    }
}

/* Submits the copy of the newest chunk's status to the controller's place,
 * where its coming is an event. */
static int send_status(struct weft_rollout_control *c, int32_t instance)
{
    const struct weft_g_instance *i = &c->gen->instance[instance];
    int64_t k = (i->n_chunks - 1) % 2;
    const struct weft_where where = {.device = -1,
                                     .priority = WEFT_PRIORITY_SAMPLE,
                                     .call = c->gen->call,
                                     .iteration = c->args.iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    struct weft_rt *rt = c->gen->model->rt;
    struct weft_tile *tile = i->status[k];
    if (weft_rt_place_rank(rt, weft_tile_place(tile)) > 0)
        tile = c->there[2 * instance + k] = weft_g_copy_to(
            c->seq, &where, rt, tile, WEFT_MEM_SAMPLES, "decode status", 0);
    return c->events ? weft_events_expect(c->events, tile,
                                          c->first + instance, c->err)
                     : 0;
}

/* Samples that move wait at both ends for the chunks that are under way: these
 * are short when few samples more than those to move are left, and after. */
static int32_t steps_of(const struct weft_rollout_control *c)
{
    bool near = c->next == c->n
             && weft_migration_is_near(&c->migration, c->n - c->n_finished);
    return near ? (int32_t) weft_ceil_div(c->args.n_steps, 4)
                : c->args.n_steps;
}

/* A recorded chunk is played before it is inserted. */
static void play(struct weft_rollout_control *c, int32_t instance,
                 const struct weft_gen_args *args, int32_t n_admit)
{
    struct weft_rollout_played *p = &c->played[instance];
    const struct weft_g_instance *i = &c->gen->instance[instance];
    weft_gen_play_chunk(p->play, args, n_admit, c->admit, c->n_total,
                        p->status[i->n_chunks % 2], c->step);
}

/* Submits a chunk that admits at most `most` waiting prompts, unless the
 * instance would then have no samples. */
static int submit(struct weft_rollout_control *c, int32_t instance,
                  int32_t most)
{
    int32_t *slot = c->slot + (int64_t) instance * c->gen->n_slots;
    int32_t n_admit = 0, n_active = 0;
    for (int32_t s = 0; s < c->gen->n_slots; s++) {
        if (slot[s] < 0 && n_admit < most && c->next < c->n) {
            int32_t index = c->order ? c->order[c->next] : c->next;
            const struct weft_sample *sample = &c->sample[index];
            c->admit[n_admit++] = (struct weft_gen_admit){
                s, index, sample->n_prompt, sample->limit, sample->token};
            c->has[index] = sample->n_prompt;
            slot[s] = index;
            c->next++;
        }
        n_active += slot[s] >= 0;
    }
    if (n_active == 0)
        return 0;
    struct weft_gen_args args = c->args;
    args.n_steps = steps_of(c);
    args.most_steps = c->args.n_steps;
    c->n_steps[2 * instance + c->gen->instance[instance].n_chunks % 2] =
        args.n_steps;
    if (c->played)
        play(c, instance, &args, n_admit);
    weft_g_generate_chunk(c->seq, c->gen, c->view, instance, &args, n_admit,
                          c->admit);
    c->in_flight[instance]++;
    c->stats.n_chunks++;
    return send_status(c, instance);
}

int32_t weft_rollout_running(const struct weft_rollout_control *c,
                             int32_t instance, int32_t *free_slot_out)
{
    const int32_t *slot = c->slot + (int64_t) instance * c->gen->n_slots;
    int32_t n = 0;
    for (int32_t s = c->gen->n_slots; s-- > 0;)
        if (slot[s] < 0)
            *free_slot_out = s;
        else
            n++;
    return n;
}

/* freed, idle: as in struct weft_g_instance. */
static void set_state(struct weft_rollout_control *c, int32_t instance,
                      bool freed, bool idle)
{
    struct weft_g_instance *x = &c->gen->instance[instance];
    bool was_busy = !x->freed && !x->idle, busy = !freed && !idle;
    c->gen->n_freed += freed - x->freed;
    x->freed = freed;
    x->idle = idle;
    if (c->on_busy && busy != was_busy)
        c->on_busy(c->ctx, instance, busy);
}

static bool leaves(const struct weft_rollout_control *c, int32_t instance)
{
    return c->gen->instance[instance].freed;
}

static int retire(struct weft_rollout_control *c, int32_t instance,
                  int32_t slot, const struct weft_gen_slot *status)
{
    int32_t index = status->sample;
    struct weft_sample *sample = &c->sample[index];
    struct weft_tile_id id = {c->gen->model->name,
                              "rollout",
                              0,
                              -1,
                              -1,
                              weft_g_generate_place(c->gen, instance)};
    int rc = weft_tile_create_temp(c->gen->model->rt, &id, WEFT_MEM_SAMPLES,
                                   weft_rollout_bytes(status->n_total),
                                   &sample->rollout, c->err);
    if (rc)
        return rc;
    weft_rt_when(c->gen->model->rt, WEFT_REC_EARLIEST);
    weft_g_generate_retire(c->seq, c->gen, instance, slot, c->args.iteration,
                           sample->rollout);
    weft_rt_when(c->gen->model->rt, WEFT_REC_EARLY);
    if (c->played)
        weft_gen_play_retire(c->played[instance].play, slot);
    sample->n_total = status->n_total;
    sample->finished = true;
    sample->ended = status->done == 1;
    c->slot[(int64_t) instance * c->gen->n_slots + slot] = -1;
    c->n_finished++;
    c->n_leaving -= leaves(c, instance);
    int32_t free_slot;
    set_state(c, instance, leaves(c, instance),
              c->next == c->n
                  && weft_rollout_running(c, instance, &free_slot) == 0);
    return c->on_finished ? c->on_finished(c->ctx, index, sample, c->err) : 0;
}

/* ---- Samples that move ------------------------------------------------- */

/* The instance of a replica that has the fewest samples. */
static int32_t emptiest(const struct weft_rollout_control *c, int32_t replica,
                        int32_t *free_slot_out)
{
    int32_t best = -1, least = c->gen->n_slots, slot = 0;
    for (int32_t i = 0; i < c->gen->n_instances; i++) {
        if (c->gen->instance[i].dp != replica)
            continue;
        int32_t n = weft_rollout_running(c, i, &slot);
        if (n < least) {
            best = i;
            least = n;
            *free_slot_out = slot;
        }
    }
    weft_assert(best >= 0);
    return best;
}

/* Whether a sample's cache goes with it: that pays, and no more blocks have left
 * or come with caches since this generation began than there is memory for on
 * their way (weft_g_generate_moved_pages()). */
static bool takes_cache(struct weft_rollout_control *c, int32_t from,
                        int32_t to, int32_t n_tokens)
{
    int32_t most = weft_g_generate_moved_pages(c->gen);
    int32_t n = (int32_t) weft_ceil_div(n_tokens, WEFT_PAGE_TOKENS);
    int32_t *left = &c->pages_moved[2 * from];
    int32_t *come = &c->pages_moved[2 * to + 1];
    if (!weft_migration_is_cached(&c->migration, n_tokens) || *left + n > most
        || *come + n > most)
        return false;
    *left += n;
    *come += n;
    return true;
}

static int move(struct weft_rollout_control *c, int32_t from,
                int32_t from_slot)
{
    int32_t *mine = &c->slot[(int64_t) from * c->gen->n_slots + from_slot];
    int32_t index = *mine, slot = -1;
    int32_t to = emptiest(c, c->migration.to[index], &slot);
    const struct weft_sample *sample = &c->sample[index];
    const struct weft_gen_admit admit = {slot, index, sample->n_prompt,
                                         sample->limit, sample->token};
    c->slot[(int64_t) to * c->gen->n_slots + slot] = index;
    *mine = -1;
    c->n_leaving--;
    set_state(c, to, leaves(c, to), false);
    bool cache = takes_cache(c, from, to, c->has[index]);
    c->stats.n_moved++;
    c->stats.n_cached += cache;
    weft_rollout_see_move(c, index, from, to);
    if (c->played) {
        int32_t n = weft_gen_play_cached(c->played[from].play, from_slot);
        weft_gen_play_retire(c->played[from].play, from_slot);
        weft_gen_play_enter(c->played[to].play, &admit, c->has[index],
                            cache ? n : 0);
    }
    return weft_g_generate_move(c->seq, c->gen, from, from_slot,
                                c->args.iteration, c->has[index], to, &admit,
                                cache, c->err);
}

/* All chunks of an instance that is left have ended: its samples go on where
 * they were dealt to, and instances that had run out of samples begin anew. */
static int move_all(struct weft_rollout_control *c, int32_t from)
{
    int32_t slots = c->gen->n_slots;
    int rc = 0;
    for (int32_t s = 0; s < slots && !rc; s++)
        if (c->slot[(int64_t) from * slots + s] >= 0)
            rc = move(c, from, s);
    for (int32_t i = 0; i < c->gen->n_instances && !rc; i++)
        for (int32_t k = c->in_flight[i]; k < 2 && !leaves(c, i) && !rc; k++)
            rc = submit(c, i, 0);
    return rc;
}

static int ascending(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The lengths of samples that have ended. Those that are left have most often
 * longer ones already, so that earlier responses tell more of them. */
static int32_t ended(const struct weft_rollout_control *c, int32_t *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (c->sample[i].finished)
            out[n++] = c->has[i] - c->sample[i].n_prompt;
    qsort(out, (size_t) n, sizeof *out, ascending);
    return n;
}

/* Lists what is left. Lengths that were seen tell what those are expected to
 * have in the end. scratch: (n). */
static int32_t list_left(const struct weft_rollout_control *c,
                         int32_t *scratch, struct weft_migrate_left *left,
                         int32_t *sample)
{
    const struct weft_migration_when *when = c->migration.when;
    const int32_t *seen = when->n_seen > 0 ? when->seen : scratch;
    int32_t n_seen = when->n_seen > 0 ? when->n_seen : ended(c, scratch);
    int32_t n_left = 0;
    int64_t slots = c->gen->n_slots;
    for (int64_t k = 0; k < slots * c->gen->n_instances; k++) {
        if (c->slot[k] < 0)
            continue;
        const struct weft_sample *s = &c->sample[c->slot[k]];
        int32_t has = c->has[c->slot[k]] - s->n_prompt;
        sample[n_left] = c->slot[k];
        left[n_left++] = (struct weft_migrate_left){
            c->gen->instance[k / slots].dp, s->n_prompt, has,
            weft_migrate_expect(n_seen, seen, has, c->most,
                                WEFT_MIGRATE_QUANTILE)};
    }
    return n_left;
}

static int decide(struct weft_rollout_control *c)
{
    size_t n = (size_t) c->n;
    struct weft_migrate_left *left = weft_alloc(n, sizeof *left);
    int32_t *number = weft_alloc(2 * n, sizeof *number);
    bool decided = false;
    int rc = left && number ? 0
                            : weft_err_nomem(c->err, "samples that move",
                                             n * sizeof *left);
    int32_t n_left = rc ? 0 : list_left(c, number, left, number + n);
    if (!rc)
        rc = weft_migration_decide(&c->migration, n_left, left, number + n,
                                   &decided, c->err);
    weft_free(left);
    weft_free(number);
    if (rc || !decided)
        return rc;
    weft_rt_mark(c->gen->model->rt, "samples move", "left", c->gen->call,
                 c->args.iteration, n_left);
    weft_rollout_see_trigger(c, n_left);
    for (int32_t i = 0; i < c->gen->n_instances; i++) {
        const struct weft_g_instance *x = &c->gen->instance[i];
        int32_t slot;
        if (x->freed || c->migration.stays[x->dp])
            continue;
        set_state(c, i, true, x->idle);
        c->n_leaving += weft_rollout_running(c, i, &slot);
        c->stats.n_freed++;
    }
    return rc;
}

/* Not while samples wait for a slot: then no instance has less to do than
 * others; nor while those of the migration before are still to move. */
static bool is_time(const struct weft_rollout_control *c)
{
    return c->next == c->n
        && weft_migration_is_due(&c->migration, c->n - c->n_finished)
        && c->n_leaving == 0;
}

/* ---- What is done when a status comes ----------------------------------- */

/* The oldest unread status of an instance, at the controller's place; it is
 * unread no more. The caller releases a copy. */
static struct weft_tile *take_status(struct weft_rollout_control *c,
                                     int32_t instance,
                                     struct weft_tile **copy_out)
{
    const struct weft_g_instance *i = &c->gen->instance[instance];
    int64_t k = (i->n_chunks - c->in_flight[instance]--) % 2;
    struct weft_tile **copy = &c->there[2 * instance + k];
    *copy_out = *copy;
    *copy = NULL;
    return *copy_out ? *copy_out : i->status[k];
}

void weft_rollout_take(struct weft_rollout_control *c, int32_t instance,
                       struct weft_gen_status *out)
{
    size_t bytes = weft_gen_status_bytes(c->gen->n_slots);
    int64_t k = (c->gen->instance[instance].n_chunks - c->in_flight[instance])
              % 2;
    struct weft_tile *copy;
    c->n_taken = c->n_steps[2 * instance + k];
    struct weft_tile *tile = take_status(c, instance, &copy);
    if (c->played) {
        memcpy(out, c->played[instance].status[k], bytes);
        weft_tile_await(tile);
    } else if (weft_world_rank() == 0) {
        memcpy(out, weft_tile_acquire(tile, WEFT_READ), bytes);
        weft_tile_unacquire(tile);
    }
    weft_tile_release(copy);
}

static void count(struct weft_rollout_control *c, int32_t instance,
                  const struct weft_gen_status *status)
{
    int32_t n_left = c->n - c->n_finished;
    c->stats.n_decoded += status->n_decoded;
    c->stats.n_prefilled += status->n_prefilled;
    c->stats.n_shared += status->n_shared;
    c->stats.n_preempted += status->n_preempted;
    c->stats.most_pages = (int32_t) weft_max64(c->stats.most_pages,
                                               status->most_pages);
    c->n_read[instance] += c->n_taken;
    c->stats.n_turns = weft_max64(c->stats.n_turns, c->n_read[instance]);
    if (n_left > WEFT_TAIL_SHARE * (double) c->n)
        c->n_before_tail = c->stats.n_turns;
    c->stats.n_tail_turns = c->stats.n_turns - c->n_before_tail;
}

int weft_rollout_advance(struct weft_rollout_control *c, int32_t instance,
                         const struct weft_gen_status *status)
{
    const struct weft_gen_slot *slot = (const void *) (status + 1);
    const int32_t *mine = c->slot + (int64_t) instance * c->gen->n_slots;
    int rc = 0;
    weft_rt_when(c->gen->model->rt, WEFT_REC_EARLY);
    for (int32_t s = 0; s < c->gen->n_slots && !rc; s++) {
        if (mine[s] < 0 || slot[s].sample != mine[s])
            continue;
        c->has[mine[s]] = slot[s].n_total;
        if (slot[s].done)
            rc = retire(c, instance, s, &slot[s]);
    }
    weft_rt_when(c->gen->model->rt, WEFT_REC_IN_TURN);
    count(c, instance, status);
    if (!rc && !leaves(c, instance))
        rc = submit(c, instance, c->gen->n_slots);
    else if (!rc && c->in_flight[instance] == 0)
        rc = move_all(c, instance);
    return !rc && is_time(c) ? decide(c) : rc;
}

static void played_release(struct weft_rollout_control *c)
{
    for (int32_t i = 0; c->played && i < c->gen->n_instances; i++) {
        weft_gen_play_free(c->played[i].play);
        weft_free(c->played[i].status[0]);
        weft_free(c->played[i].status[1]);
    }
    weft_free(c->played);
    weft_free(c->n_total);
    weft_free(c->step);
}

static int played_init(struct weft_rollout_control *c)
{
    const struct weft_g_generate *g = c->gen;
    size_t bytes = weft_gen_status_bytes(g->n_slots);
    int rc = 0;
    c->played = weft_alloc((size_t) g->n_instances, sizeof *c->played);
    c->n_total = weft_alloc((size_t) c->n, sizeof *c->n_total);
    c->step = weft_alloc((size_t) c->args.n_steps, sizeof *c->step);
    c->args.step = c->step;
    for (int32_t i = 0; c->n_total && i < c->n; i++)
        c->n_total[i] = c->sample[i].n_total;
    for (int32_t i = 0; c->played && i < g->n_instances && !rc; i++) {
        struct weft_rollout_played *p = &c->played[i];
        rc = weft_gen_play_create(g->n_slots, g->max_total, g->n_pages,
                                  c->args.prefill_tokens, &p->play, c->err);
        p->status[0] = weft_alloc(1, bytes);
        p->status[1] = weft_alloc(1, bytes);
        if (!rc && (!p->status[0] || !p->status[1]))
            rc = weft_err_nomem(c->err, "recording generation", bytes);
    }
    return c->played && c->n_total && c->step
             ? rc
             : weft_err_nomem(c->err, "recording generation", bytes);
}

void weft_rollout_control_release(struct weft_rollout_control *c)
{
    size_t n_copies = 2 * (size_t) c->gen->n_instances;
    played_release(c);
    weft_migration_release(&c->migration);
    for (int32_t i = 0; i < c->gen->n_instances; i++)
        set_state(c, i, false, false);
    weft_free(c->has);
    weft_free(c->slot);
    weft_free(c->in_flight);
    weft_free(c->n_read);
    weft_free(c->n_steps);
    weft_free(c->pages_moved);
    for (size_t i = 0; c->there && i < n_copies; i++)
        weft_tile_release(c->there[i]);
    weft_free(c->there);
    weft_free(c->admit);
}

int weft_rollout_control_init(struct weft_seq *seq,
                              const struct weft_rollout_job *job,
                              struct weft_err *err,
                              struct weft_rollout_control *c)
{
    size_t n_slots = (size_t) job->gen->n_slots;
    size_t n_instances = (size_t) job->gen->n_instances;
    *c = (struct weft_rollout_control){
        .seq = seq,
        .gen = job->gen,
        .view = job->view,
        .args = *job->args,
        .n = job->n,
        .most = job->most,
        .sample = job->sample,
        .order = job->order,
        .seen = job->seen,
        .on_finished = job->on_finished,
        .on_turn = job->on_turn,
        .on_busy = job->on_busy,
        .ctx = job->ctx,
        .err = err,
        .slot = weft_alloc(n_slots * n_instances, sizeof *c->slot),
        .in_flight = weft_alloc(n_instances, sizeof *c->in_flight),
        .n_read = weft_alloc(n_instances, sizeof *c->n_read),
        .n_steps = weft_alloc(2 * n_instances, sizeof *c->n_steps),
        .pages_moved = weft_alloc(2 * n_instances, sizeof *c->pages_moved),
        .has = weft_alloc((size_t) job->n, sizeof *c->has),
        .there = weft_alloc(2 * n_instances, sizeof *c->there),
        .admit = weft_alloc(n_slots, sizeof *c->admit),
    };
    if (!c->slot || !c->in_flight || !c->n_read || !c->n_steps
        || !c->pages_moved || !c->has || !c->there || !c->admit)
        return weft_err_nomem(err, "generation", n_slots * n_instances * 4);
    memset(c->slot, 0xff, n_slots * n_instances * sizeof *c->slot);
    int rc = weft_migration_init(job->gen, job->n, &job->migrate,
                                 &c->migration, err);
    c->migration.log = job->migrated;
    return !rc && weft_rt_is_dry(job->gen->model->rt) ? played_init(c) : rc;
}

/* The samples that an instance begins with. */
static int32_t share_of(const struct weft_rollout_control *c,
                        int32_t instance)
{
    return weft_g_generate_instances(&c->gen->layout, c->n)
                == c->gen->n_instances
             ? weft_g_generate_share(&c->gen->layout, c->n, instance)
             : (int32_t) weft_ceil_div(c->n, c->gen->n_instances);
}

int weft_rollout_start(struct weft_rollout_control *c)
{
    int rc = 0;
    for (int32_t i = 0; i < c->gen->n_instances && !rc; i++)
        rc = submit(c, i, share_of(c, i));
    for (int32_t i = 0; i < c->gen->n_instances && !rc; i++)
        if (c->in_flight[i])
            rc = submit(c, i, 0);
        else
            set_state(c, i, false, true);
    return rc;
}
