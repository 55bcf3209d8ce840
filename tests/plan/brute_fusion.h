/* SPDX-License-Identifier: Apache-2.0 */
/* Generation and inference with inter-stage fusion (plan/fusion/overlap.h) by a
 * clock that ticks once a second: what overlap.c finds without one. */
#ifndef WEFT_TEST_BRUTE_FUSION_H
#define WEFT_TEST_BRUTE_FUSION_H

#include <math.h>

#include "harness.h"
#include "plan/fusion/overlap.h"

enum { MOST = 40 }; /* samples, and tokens of a response */

enum { WAITS, RUNS, ENDED };

struct world {
    const struct weft_overlap_job *job;
    int at[MOST], state[MOST], has[MOST], turn[MOST], begun[MOST];
    int ready[MOST], end[MOST], cached[MOST];
    int n_begun, n_turns, slots[8];
    int first; /* when samples moved first; -1: never */
};

static int size_of(const struct world *w, int s)
{
    return w->job->sample[s].prompt + w->has[s];
}

/* Samples of an instance in a state, and their tokens. */
static int count(const struct world *w, int i, int state, int *tokens)
{
    int n = 0;
    *tokens = 0;
    for (int s = 0; s < w->job->n_samples; s++)
        if (w->at[s] == i && w->state[s] == state) {
            n++;
            *tokens += size_of(w, s);
        }
    return n;
}

/* The sample of an instance that is the next to begin; -1: none. */
static int next_of(const struct world *w, int i)
{
    int best = -1;
    for (int s = 0; s < w->job->n_samples; s++)
        if (w->at[s] == i && w->state[s] == WAITS
            && (best < 0 || w->turn[s] < w->turn[best]))
            best = s;
    return best;
}

/* The tokens that an instance has cached. */
static int held(const struct world *w, int i)
{
    int n = 0;
    for (int s = 0; s < w->job->n_samples; s++)
        n += w->at[s] == i && w->state[s] == RUNS ? w->cached[s] : 0;
    return n;
}

/* Of those that run on an instance and began after `from`, the first to begin,
 * or the last of which something is cached; -1: none. */
static int after(const struct world *w, int i, int from, bool last)
{
    int best = -1;
    for (int s = 0; s < w->job->n_samples; s++)
        if (w->at[s] == i && w->state[s] == RUNS && w->begun[s] > from
            && (!last || w->cached[s] > 0)
            && (best < 0 || (w->begun[s] > w->begun[best]) == last))
            best = s;
    return best;
}

/* Begins a step at t; returns when it ends. gets: who has a token then. */
static int begin(struct world *w, int i, int t, bool gets[MOST])
{
    const struct weft_migrate_costs *c = w->job->costs;
    int room = (int) c->memory_bytes, tokens, s, read = 0;
    struct weft_work_rows rows = {0, 0, 0, 0};
    bool waits = false;
    while ((s = next_of(w, i)) >= 0 && w->ready[s] <= t
           && !(w->slots[i] && count(w, i, RUNS, &tokens) == w->slots[i])) {
        w->state[s] = RUNS;
        w->begun[s] = w->n_begun++;
        if (held(w, i) > room)
            w->cached[s] = 0;
    }
    memset(gets, 0, MOST * sizeof *gets);
    for (int from = -1; (s = after(w, i, from, false)) >= 0;) {
        int all = size_of(w, s), was = w->cached[s], n = all - was, last = 0;
        from = w->begun[s];
        if (was == 0 && (waits || held(w, i) + all + 1 > room)) {
            waits = true;
            continue;
        }
        bool reads = n > 1;
        if (reads && c->read_rows > 0 && n > c->read_rows - read)
            n = c->read_rows - read;
        while (n > 0 && held(w, i) + n > room && last >= 0) {
            last = after(w, i, from, true);
            w->cached[last < 0 ? s : last] = 0;
        }
        if (last < 0) {
            waits = true;
            continue;
        }
        for (int k = 0; k < n; k++) { /* row by row */
            rows.n_rows++;
            rows.n_keys += was + k + 1;
        }
        rows.n_cached += n > 0 ? was : 0;
        w->cached[s] += n;
        gets[s] = w->cached[s] == all;
        rows.n_targets += gets[s];
        read += reads ? n : 0;
    }
    return t + (int) c->step_s(c->ctx, &rows);
}

/* An instance from t on, second by second, until it has nothing left or a step
 * ends at `stop` or later; returns when. */
static int tick(struct world *w, int i, int t, int stop)
{
    bool steps = false, gets[MOST];
    int until = t, tokens;
    for (;; t++) {
        if (steps && t < until)
            continue;
        for (int s = 0; s < w->job->n_samples && steps; s++)
            if (gets[s] && ++w->has[s] == w->job->sample[s].length) {
                w->state[s] = ENDED;
                w->end[s] = t;
            }
        int running = count(w, i, RUNS, &tokens), next = next_of(w, i);
        steps = false;
        if ((running == 0 && next < 0) || t >= stop)
            return t;
        if (running == 0 && w->ready[next] > t)
            continue;
        until = begin(w, i, t, gets);
        steps = true;
    }
}

static void start(struct world *w, const struct weft_overlap_job *job)
{
    memset(w, 0, sizeof *w);
    w->job = job;
    for (int i = 0; i < job->n_instances; i++)
        w->slots[i] = job->slots;
    for (int s = 0; s < job->n_samples; s++) {
        w->at[s] = job->sample[s].instance;
        w->turn[s] = w->n_turns++;
        w->end[s] = -1;
    }
}

/* Moves what is left to some of those that go on, of whom free[i] is -1; sets
 * it for who does so no more. */
static int move(struct world *w, int instances, int most_batch,
                const int *stopped, int free[8])
{
    const struct weft_overlap_job *job = w->job;
    struct weft_migrate_costs costs = *job->costs;
    struct weft_migrate_left left[MOST];
    struct weft_err err;
    bool stays[8], among[8], reads[MOST], sent[MOST] = {false};
    int32_t to[MOST], number[MOST];
    struct weft_migrate_decision d = {
        .stays = stays, .to = to, .reads = reads};
    int n = 0, sends[8] = {0}, receives[8] = {0};
    for (int s = 0; s < job->n_samples; s++)
        if (w->state[s] != ENDED) {
            number[n] = s;
            left[n++] = (struct weft_migrate_left){
                w->at[s], job->sample[s].prompt, w->has[s],
                weft_migrate_expect(job->n_seen, job->seen, w->has[s],
                                    job->most, 0.9)};
        }
    for (int i = 0; i < job->n_instances; i++)
        among[i] = free[i] < 0;
    costs.most_batch = most_batch > 0 ? most_batch : costs.most_batch;
    REQUIRE_OK(weft_migrate_decide(&costs, job->n_instances, among, NULL, n,
                                   left, instances, &d, &err),
               err);
    for (int i = 0; i < job->n_instances; i++) {
        if (d.n_stay && among[i] && !stays[i])
            free[i] = stopped[i];
        if (d.n_stay && stays[i] && w->slots[i] && w->slots[i] < d.most_batch)
            w->slots[i] = d.most_batch;
    }
    for (int k = 0; k < n && d.n_stay; k++) {
        int s = number[k], from = w->at[s], at = stopped[from];
        at = at > w->ready[s] ? at : w->ready[s];
        if (to[k] == from)
            continue;
        w->at[s] = to[k];
        w->state[s] = WAITS;
        if (reads[k])
            w->cached[s] = 0;
        if (w->cached[s] > 0) { /* a byte a second */
            at = at > sends[from] ? at : sends[from];
            at = (at > receives[to[k]] ? at : receives[to[k]]) + w->cached[s];
            sends[from] = receives[to[k]] = at;
            if (sends[from] > free[from])
                free[from] = sends[from];
        }
        w->ready[s] = at + (int) job->costs->link_latency_s;
        sent[s] = true;
    }
    for (int t = 0, more = 1; more; t++) { /* in the order of arrival */
        more = 0;
        for (int s = 0; s < job->n_samples; s++) {
            if (sent[s] && w->ready[s] == t)
                w->turn[s] = w->n_turns++;
            more |= sent[s] && w->ready[s] > t;
        }
    }
    return d.n_stay;
}

/* Inference by who is free, second by second; returns when all is done. */
static int infer(const struct world *w, int free[8])
{
    const struct weft_overlap_job *job = w->job;
    bool taken[4][MOST] = {{false}}, has[4][8] = {{false}};
    int rest = job->n_models * job->n_samples, done = 0, all = 0, last = 0;
    int order[MOST], n_order = 0, early = w->end[0];
    double token_s[4], comes[4];
    for (int s = 0; s < job->n_samples; s++) {
        all += job->sample[s].prompt + job->sample[s].length;
        last = w->end[s] > last ? w->end[s] : last;
        early = w->end[s] < early ? w->end[s] : early;
    }
    for (int j = 0; j < job->n_models; j++) {
        double each = fmin(job->micro_tokens, all);
        int n = (int) fmax(1, each * job->n_samples / all);
        token_s[j] = job->infer_s(NULL, j, n, each) / each;
        comes[j] = early < job->restore_s[j] ? job->restore_s[j] : early;
        comes[j] += job->move_s[j];
        for (int i = 0; i < job->n_instances; i++)
            has[j][i] = job->load_s[j] == 0;
    }
    for (int at = 0; at <= last; at++) /* by end, then number */
        for (int s = 0; s < job->n_samples; s++)
            if (w->end[s] == at)
                order[n_order++] = s;
    for (int t = 0; rest > 0; t++)
        for (int i = 0; i < job->n_instances; i++) {
            int best = -1, best_n = 0, batch[MOST], most[MOST];
            double best_left = 0, best_tokens = 0;
            for (int j = 0; j < job->n_models && free[i] <= t; j++) {
                int n = 0, seen = 0, first = -1, holders = 0;
                double tokens = 0, left = 0, here = 0;
                for (int k = 0; k < n_order; k++) {
                    int s = order[k];
                    if (taken[j][s])
                        continue;
                    first = first < 0 ? s : first;
                    double size = job->sample[s].prompt
                                + job->sample[s].length;
                    left += size;
                    if (w->end[s] > t)
                        continue;
                    here += size;
                    if (n == seen++
                        && (n == 0 || tokens + size <= job->micro_tokens)) {
                        most[n++] = s;
                        tokens += size;
                    }
                }
                for (int k = 0; k < job->n_instances; k++)
                    holders += has[j][k];
                bool ready = n > 0 && t >= comes[j]
                          && (here >= job->micro_tokens || t >= last
                              || t >= w->end[first] + job->wait_s);
                left = left * token_s[j] / (holders ? holders : 1);
                if (!ready
                    || (!has[j][i] && holders && job->load_s[j] >= left))
                    continue;
                if (best < 0 || (has[j][i] && !has[best][i])
                    || (has[j][i] == has[best][i] && left > best_left)) {
                    best = j;
                    best_left = left;
                    best_tokens = tokens;
                    best_n = n;
                    memcpy(batch, most, sizeof most);
                }
            }
            if (best < 0)
                continue;
            free[i] = t + (has[best][i] ? 0 : (int) job->load_s[best])
                    + (int) job->infer_s(NULL, best, best_n, best_tokens);
            done = free[i] > done ? free[i] : done;
            has[best][i] = true;
            rest -= best_n;
            for (int k = 0; k < best_n; k++)
                taken[best][batch[k]] = true;
        }
    return done > last ? done : last;
}

/* Generates all with the first n migrations, which come at[k]; free[i] is set
 * where instances are free before. Returns how many went on. */
static int play(struct world *w, const struct weft_overlap_job *job,
                const struct weft_overlap_when *when, int n, const int *at,
                int free[8])
{
    int stopped[8] = {0}, n_stay = 0;
    start(w, job);
    w->first = -1;
    for (int i = 0; i < job->n_instances; i++)
        free[i] = -1;
    for (int k = 0; k < n && at[k] > 0; k++) {
        for (int i = 0; i < job->n_instances; i++)
            if (free[i] < 0)
                stopped[i] = tick(w, i, stopped[i], at[k]);
        int m = move(w, k ? when->later[k - 1].instances : when->instances,
                     when->most_batch, stopped, free);
        n_stay = m ? m : n_stay;
        w->first = m && w->first < 0 ? at[k] : w->first;
    }
    for (int i = 0; i < job->n_instances; i++)
        if (free[i] < 0)
            free[i] = tick(w, i, stopped[i], 1 << 30);
    return n_stay;
}

/* The whole; end_s of samples stay in w. */
static int ticked(struct world *w, const struct weft_overlap_job *job,
                  const struct weft_overlap_when *when, int *n_stay)
{
    int at[3] = {0}, free[8], generated = 0;
    for (int j = 0; j <= when->n_later; j++) {
        double share = j ? when->later[j - 1].share : when->share;
        int left = (int) floor(share * job->n_samples + 1e-9);
        play(w, job, when, j, at, free);
        for (int s = 0; s < job->n_samples; s++) {
            int later = 0, same = 0;
            for (int k = 0; k < job->n_samples; k++) {
                later += w->end[k] > w->end[s];
                same += w->end[k] == w->end[s];
            }
            if (left > 0 && later <= left && left < later + same)
                at[j] = w->end[s];
        }
    }
    *n_stay = play(w, job, when, 1 + when->n_later, at, free);
    for (int s = 0; s < job->n_samples; s++)
        generated = w->end[s] > generated ? w->end[s] : generated;
    for (int i = 0; i < job->n_instances; i++) {
        bool waits = job->serial || (job->at_trigger && w->first < 0);
        if (waits)
            free[i] = generated;
        else if (job->at_trigger && free[i] < w->first)
            free[i] = w->first;
    }
    return infer(w, free);
}

#endif
