/* SPDX-License-Identifier: Apache-2.0 */
/* Continuous batching on an instance, step by step. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/fusion/inside.h"

/* Records of prompts: a sample has one at each instance that it comes to. */
enum { COMINGS = 2 + WEFT_MIGRATE_LATER };

int weft_overlap_run_init(struct weft_overlap_run *run,
                          const struct weft_overlap_job *job,
                          struct weft_err *err)
{
    size_t n = (size_t) job->n_samples, n_in = (size_t) job->n_instances;
    *run = (struct weft_overlap_run){.job = job,
                                     .room = job->costs->memory_bytes
                                           / job->costs->token_bytes};
    run->state = weft_alloc(n, sizeof *run->state);
    run->instance = weft_alloc(n_in, sizeof *run->instance);
    run->free_s = weft_alloc(n_in, sizeof *run->free_s);
    run->record = weft_alloc(n + 1, sizeof *run->record);
    run->prompt = weft_alloc(n * COMINGS, sizeof *run->prompt);
    return run->state && run->instance && run->free_s && run->record
                && run->prompt
             ? 0
             : weft_err_nomem(err, "a simulation", n * sizeof *run->state);
}

void weft_overlap_run_release(struct weft_overlap_run *run)
{
    weft_free(run->state);
    weft_free(run->instance);
    weft_free(run->free_s);
    weft_free(run->record);
    weft_free(run->prompt);
    *run = (struct weft_overlap_run){.job = NULL};
}

void weft_overlap_run_begin(struct weft_overlap_run *run)
{
    const struct weft_overlap_job *job = run->job;
    run->n_prompts = 0;
    run->out = (struct weft_overlapped){.n_stay = 0};
    for (int32_t i = 0; i < job->n_instances; i++) {
        run->free_s[i] = -1;
        run->instance[i] = (struct weft_overlap_instance){
            .active = {-1, -1}, .queue = {-1, -1}, .slots = job->slots};
    }
    for (int32_t k = 0; k <= job->n_samples; k++)
        run->record[k] = -1;
    for (int32_t s = 0; s < job->n_samples; s++) {
        run->state[s] = (struct weft_overlap_state){
            .instance = job->sample[s].instance, .end_s = -1};
        weft_overlap_queue(run, s);
    }
}

void weft_overlap_run_copy(struct weft_overlap_run *run,
                           const struct weft_overlap_run *from)
{
    size_t n = (size_t) from->job->n_samples;
    size_t n_in = (size_t) from->job->n_instances;
    memcpy(run->state, from->state, n * sizeof *run->state);
    memcpy(run->instance, from->instance, n_in * sizeof *run->instance);
    memcpy(run->free_s, from->free_s, n_in * sizeof *run->free_s);
    memcpy(run->record, from->record, (n + 1) * sizeof *run->record);
    memcpy(run->prompt, from->prompt,
           (size_t) from->n_prompts * sizeof *run->prompt);
    run->n_prompts = from->n_prompts;
    run->out = from->out;
}

/* ---- Lists -------------------------------------------------------------- */

static void append(struct weft_overlap_run *run,
                   struct weft_overlap_list *list, int32_t s)
{
    run->state[s].next = -1;
    *(list->last < 0 ? &list->first : &run->state[list->last].next) = s;
    list->last = s;
}

/* The record of a sample's prompt at its instance. */
static int32_t record_of(struct weft_overlap_run *run, int32_t s)
{
    int32_t shared = run->job->sample[s].shared, i = run->state[s].instance;
    int32_t k = shared > 0 ? run->record[shared] : -1;
    while (k >= 0 && run->prompt[k].instance != i)
        k = run->prompt[k].next;
    if (k >= 0 || shared == 0)
        return k;
    k = run->n_prompts++;
    run->prompt[k] = (struct weft_overlap_prompt){
        .instance = i, .next = run->record[shared]};
    return run->record[shared] = k;
}

void weft_overlap_queue(struct weft_overlap_run *run, int32_t s)
{
    append(run, &run->instance[run->state[s].instance].queue, s);
    run->state[s].prompt = record_of(run, s);
}

/* ---- Rows of a step ------------------------------------------------------ */

static int32_t tokens_of(const struct weft_overlap_run *run, int32_t s)
{
    return run->job->sample[s].prompt + run->state[s].has;
}

/* Frees what is cached of a sample, but for what others have of it, too. */
static void drop(struct weft_overlap_run *run,
                 struct weft_overlap_instance *in, int32_t s)
{
    struct weft_overlap_state *at = &run->state[s];
    in->held -= at->cached - at->common;
    if (at->common > 0 && --run->prompt[at->prompt].n_uses == 0)
        in->held -= run->prompt[at->prompt].held;
    at->cached = at->ready = at->common = 0;
}

/* The same of one that has ended, whose prompt may be of use later. */
static void end(struct weft_overlap_run *run,
                struct weft_overlap_instance *in, int32_t s)
{
    struct weft_overlap_state *at = &run->state[s];
    if (at->prompt >= 0) {
        int32_t *kept = &run->prompt[at->prompt].kept;
        *kept = weft_max32(*kept,
                           weft_min32(run->job->sample[s].prompt, at->ready));
    }
    at->end_s = in->now_s;
    drop(run, in, s);
}

/* Those of the active samples that have all their tokens end. */
static void end_all(struct weft_overlap_run *run,
                    struct weft_overlap_instance *in)
{
    struct weft_overlap_list left = {-1, -1};
    for (int32_t s = in->active.first, next; s >= 0; s = next) {
        next = run->state[s].next;
        if (run->state[s].has < run->job->sample[s].length) {
            append(run, &left, s);
            continue;
        }
        end(run, in, s);
        in->n_active--;
    }
    in->active = left;
}

/* Gives samples of the queue their slots. Where a cache that has come with one
 * does not fit, it is put off in the next step. */
static void admit(struct weft_overlap_run *run,
                  struct weft_overlap_instance *in)
{
    while (in->queue.first >= 0
           && (in->slots == 0 || in->n_active < in->slots)) {
        int32_t s = in->queue.first;
        if (run->state[s].ready_s > in->now_s)
            break;
        in->queue.first = run->state[s].next;
        if (in->queue.first < 0)
            in->queue.last = -1;
        append(run, &in->active, s);
        in->n_active++;
        in->held += run->state[s].cached;
    }
}

/* How many tokens of its prompt an active sample, of which nothing is cached,
 * can take from others. *from_out: from which sample; -1: from one that has
 * ended. -1 while one before it has the prompt still to read. */
static int32_t find_common(const struct weft_overlap_run *run,
                           const struct weft_overlap_instance *in, int32_t s,
                           int32_t *from_out)
{
    const struct weft_overlap_state *at = &run->state[s];
    int32_t most = weft_min32(run->job->sample[s].prompt,
                              tokens_of(run, s) - 1);
    int32_t best = 0;
    bool comes = false, before = true;
    *from_out = -1;
    if (at->prompt < 0)
        return 0;
    for (int32_t i = in->active.first; i >= 0; i = run->state[i].next) {
        int32_t n = weft_min32(run->state[i].ready, most);
        before = before && i != s;
        if (i == s || run->state[i].prompt != at->prompt)
            continue;
        comes = comes || before;
        if (n > best) {
            best = n;
            *from_out = i;
        }
    }
    int32_t kept = weft_min32(run->prompt[at->prompt].kept, most);
    if (kept > best) {
        best = kept;
        *from_out = -1;
    }
    return comes && best < most ? -1 : best;
}

static void take_common(struct weft_overlap_run *run,
                        struct weft_overlap_instance *in, int32_t s,
                        int32_t from, int32_t n)
{
    struct weft_overlap_prompt *p = &run->prompt[run->state[s].prompt];
    if (p->n_uses == 0) {
        p->held = n;
        in->held += from < 0 ? n : 0;
    }
    if (p->n_uses == 0 && from >= 0) {
        run->state[from].common = n;
        p->n_uses++;
    }
    p->n_uses++;
    run->state[s].common = weft_min32(n, p->held);
    run->state[s].cached = n;
    in->held += n - run->state[s].common;
}

/* Whether an active sample, of which nothing is cached, begins in this step:
 * none that began earlier waits for room, there is room for all of it, and its
 * prompt is not just being read. */
static bool start(struct weft_overlap_run *run,
                  struct weft_overlap_instance *in, int32_t s, bool *waits)
{
    int32_t from, n = find_common(run, in, s, &from);
    if (*waits || n < 0)
        return false;
    double more = tokens_of(run, s) + 1.0 - (from < 0 ? 0 : n);
    *waits = in->held + more > run->room;
    if (!*waits && n > 0)
        take_common(run, in, s, from, n);
    return !*waits;
}

/* Finds room for n more tokens of an active sample by putting off those that
 * began after it, the last one first. Where that is not enough it is put off
 * itself. */
static bool extend(struct weft_overlap_run *run,
                   struct weft_overlap_instance *in, int32_t s, int32_t n)
{
    while (in->held + n > run->room) {
        int32_t last = s;
        for (int32_t i = s; i >= 0; i = run->state[i].next)
            last = run->state[i].cached > 0 ? i : last;
        run->out.n_put_off += run->state[last].cached > 0;
        drop(run, in, last);
        if (last == s)
            return false;
    }
    run->state[s].cached += n;
    in->held += n;
    return true;
}

/* Chooses a step's rows, for which it makes room. Each sample that gets a token
 * has it. */
static struct weft_work_rows plan_rows(struct weft_overlap_run *run,
                                       struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = {.n_rows = 0};
    int32_t budget = c->read_rows > 0 ? c->read_rows : INT32_MAX;
    bool waits = false;
    for (int32_t s = in->active.first; s >= 0; s = run->state[s].next)
        run->state[s].ready = run->state[s].cached;
    for (int32_t s = in->active.first; s >= 0; s = run->state[s].next) {
        struct weft_overlap_state *at = &run->state[s];
        if (at->cached == 0 && !start(run, in, s, &waits))
            continue;
        int32_t cached = at->cached, rest = tokens_of(run, s) - cached;
        int32_t n = rest == 1 ? 1 : weft_min32(rest, budget);
        if (n == 0)
            continue;
        if (!extend(run, in, s, n)) {
            waits = true;
            continue;
        }
        budget -= rest > 1 ? n : 0;
        weft_work_rows_add(&rows, cached, n);
        rows.n_targets += n == rest;
        at->has += n == rest;
    }
    return rows;
}

/* ---- Steps --------------------------------------------------------------- */

static void step(struct weft_overlap_run *run,
                 struct weft_overlap_instance *in)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = plan_rows(run, in);
    weft_assert(rows.n_rows > 0); /* the first goes on */
    in->now_s += c->step_s(c->ctx, &rows);
    end_all(run, in);
}

/* The steps until a sample ends, if all that are active only decode, and the
 * rows of the first of them; 0: one reads, or waits. */
static int32_t count_decodes(const struct weft_overlap_run *run,
                             const struct weft_overlap_instance *in,
                             struct weft_work_rows *rows)
{
    int32_t n = INT32_MAX;
    for (int32_t s = in->active.first; s >= 0; s = run->state[s].next) {
        const struct weft_overlap_state *at = &run->state[s];
        if (at->cached == 0 || tokens_of(run, s) - at->cached != 1)
            return 0;
        n = weft_min32(n, run->job->sample[s].length - at->has);
        weft_work_rows_add(rows, at->cached, 1);
        rows->n_targets++;
    }
    return n;
}

/* Goes on as step() does again and again, while all samples only decode, none
 * begins and none is put off: what they have is counted at last. false: there
 * is no such step. */
static bool decode(struct weft_overlap_run *run,
                   struct weft_overlap_instance *in, double stop_s)
{
    const struct weft_migrate_costs *c = run->job->costs;
    struct weft_work_rows rows = {.n_rows = 0};
    int32_t most = count_decodes(run, in, &rows), n = 0;
    if (in->queue.first >= 0 && (in->slots == 0 || in->n_active < in->slots))
        stop_s = fmin(stop_s, run->state[in->queue.first].ready_s);
    while (n < most && in->now_s < stop_s
           && in->held + rows.n_rows <= run->room) {
        in->now_s += c->step_s(c->ctx, &rows);
        in->held += rows.n_rows;
        rows.n_keys += rows.n_rows;
        rows.n_cached += rows.n_rows;
        n++;
    }
    for (int32_t s = in->active.first; s >= 0 && n > 0;
         s = run->state[s].next) {
        struct weft_overlap_state *at = &run->state[s];
        at->has += n;
        at->cached += n;
        at->ready = at->cached - 1;
    }
    if (n == most && n > 0)
        end_all(run, in);
    return n > 0;
}

void weft_overlap_generate(struct weft_overlap_run *run, int32_t instance,
                           double stop_s)
{
    struct weft_overlap_instance *in = &run->instance[instance];
    while (in->now_s < stop_s && (in->n_active || in->queue.first >= 0)) {
        if (in->n_active == 0) {
            double ready_s = run->state[in->queue.first].ready_s;
            in->now_s = fmax(in->now_s, fmin(ready_s, stop_s));
            if (ready_s >= stop_s)
                return;
        }
        admit(run, in);
        if (!decode(run, in, stop_s))
            step(run, in);
    }
}
