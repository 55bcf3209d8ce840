/* SPDX-License-Identifier: Apache-2.0 */
#include "run/seen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "plan/engine/engine.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"

void weft_seen_release(struct weft_seen *seen)
{
    weft_timeline_release(&seen->g);
    weft_free(seen->row_of);
    *seen = (struct weft_seen){.n_devices = 0};
}

struct weft_timeline *weft_seen_of(struct weft_seen *seen, int32_t set)
{
    struct weft_timeline *g = seen ? &seen->g : NULL;
    for (; g && set > 0; set--)
        g = g->beside;
    return g;
}

static int32_t *rows_of(const struct weft_seen *seen, int32_t set)
{
    return seen->row_of + (size_t) set * (size_t) seen->n_devices;
}

/* ---- What there is to see ----------------------------------------------- */

static bool is_wanted(const struct weft_iteration *p)
{
    const struct weft_trainer *t = p->t;
    int32_t every = t->config.checkpoint.every, done = p->iteration + 1;
    if (t->recorded)
        return t->recorded->seen
            && t->recorded->seen_iteration == p->iteration
            && weft_run_inserts(t, p->set->call);
    return t->config.run_dir
        && (done == t->n_iterations || (every > 0 && done % every == 0));
}

/* A replica's instances are rows one after another; of its stages each is the
 * row of one of them. */
static void place_instances(const struct weft_g_generate *gen,
                            int32_t *row_of, int32_t *first_device)
{
    const struct weft_g_layout *l = &gen->layout;
    for (int32_t dp = 0; dp < l->plan.dp; dp++)
        for (int32_t s = 0; s < l->plan.pp; s++) {
            int32_t row = -1, nth = 0;
            for (int32_t i = 0; i < gen->n_instances; i++)
                if (gen->instance[i].dp == dp && nth++ <= s)
                    row = i;
            for (int32_t k = 0; k < l->plan.tp && row >= 0; k++) {
                int32_t d = weft_g_layout_member(l, dp, s, k)->device;
                row_of[d] = row;
                if (s == 0 && k == 0)
                    first_device[row] = d;
            }
        }
    for (int32_t i = 0; i < gen->n_instances; i++)
        first_device[i] = gen->instance[i].home;
}

static bool infers(const struct weft_trainer *t, int32_t call)
{
    return t->flow.call[call].kind == WEFT_INFER && t->layout[call].member
        && weft_run_inserts(t, call);
}

/* Rows of the devices that only infer. Returns their number; first_device: room
 * for all devices. */
static int32_t place_others(const struct weft_trainer *t, int32_t n_instances,
                            int32_t *row_of, int32_t *first_device)
{
    int32_t n = 0;
    for (int32_t c = 1; c < t->flow.n_calls; c++) {
        const struct weft_g_layout *l = &t->layout[c];
        int32_t members = l->plan.dp * l->plan.tp * l->plan.pp;
        for (int32_t i = 0; infers(t, c) && i < members; i++) {
            int32_t d = l->member[i].device;
            if (row_of[d] >= 0)
                continue;
            first_device[n] = d;
            row_of[d] = n_instances + n++;
        }
    }
    return n;
}

static void name(struct weft_seen *seen, const struct weft_iteration *p,
                 int32_t set, struct weft_timeline *g)
{
    const struct weft_trainer *t = p->t;
    int32_t call = p->set[set].call;
    g->iteration = p->iteration + 1;
    g->n_instances = t->gen[call].n_instances;
    g->slots = t->gen[call].n_slots;
    g->blocks = t->gen[call].n_pages;
    g->most = t->config.rollout.max_new_tokens;
    snprintf(g->call, sizeof g->call, "%s", t->flow.call[call].name);
    seen->generates[set] = call;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        if (infers(t, c) && g->n_calls < WEFT_TIMELINE_CALLS) {
            snprintf(g->infers[g->n_calls], sizeof g->infers[0], "%s",
                     t->flow.call[c].name);
            seen->call[g->n_calls++] = c;
        }
}

/* first: room for two numbers of each device. */
static int begin_set(struct weft_seen *seen, const struct weft_iteration *p,
                     int32_t set, int32_t *first, struct weft_timeline *g)
{
    const struct weft_trainer *t = p->t;
    const struct weft_g_generate *gen = &t->gen[p->set[set].call];
    int32_t n = seen->n_devices, *row_of = rows_of(seen, set);
    memset(row_of, 0xff, (size_t) n * sizeof *row_of);
    place_instances(gen, row_of, first);
    int32_t rows = gen->n_instances
                 + place_others(t, gen->n_instances, row_of, first + n);
    int rc = weft_timeline_init(rows, g, p->err);
    for (int32_t i = 0; i < rows && !rc; i++)
        g->first_device[i] = i < gen->n_instances
                               ? gen->instance[i].home
                               : first[n + i - gen->n_instances];
    if (!rc)
        name(seen, p, set, g);
    return rc;
}

static int begin(struct weft_iteration *p)
{
    const struct weft_trainer *t = p->t;
    size_t n = (size_t) (t->job.n_ranks * t->job.n_devices);
    if (!is_wanted(p))
        return 0;
    struct weft_seen *seen = t->recorded ? t->recorded->seen
                                         : weft_alloc(1, sizeof *seen);
    if (!seen)
        return weft_err_nomem(p->err, "generation", sizeof *seen);
    p->seen = seen;
    seen->n_sets = p->n_sets;
    seen->n_devices = (int32_t) n;
    int32_t *first = weft_alloc(n, 2 * sizeof *first);
    seen->row_of = weft_alloc(n, (size_t) p->n_sets * sizeof *seen->row_of);
    struct weft_timeline *g = first && seen->row_of ? &seen->g : NULL;
    int rc = 0;
    for (int32_t k = 0; k < p->n_sets && g && !rc; k++) {
        rc = begin_set(seen, p, k, first, g);
        if (!rc && k + 1 < p->n_sets)
            g = g->beside = weft_alloc(1, sizeof *g);
    }
    weft_free(first);
    return g ? rc : weft_err_nomem(p->err, "generation", n * 12);
}

int weft_seen_round(struct weft_iteration *p)
{
    struct weft_rt *rt = p->t->rt;
    int rc = p->round == 0 ? begin(p) : 0;
    for (int32_t k = 0; k < p->n_sets && !rc && p->seen; k++)
        weft_timeline_add_round(
            weft_seen_of(p->seen, k),
            p->t->recorded
                ? (struct weft_timeline_when){0, weft_rt_n_waits(rt) - 1}
                : (struct weft_timeline_when){weft_rt_clock_s(rt), -1});
    return rc;
}

void weft_seen_samples(struct weft_iteration *p)
{
    for (int32_t k = 0; p->seen && k < p->n_sets; k++) {
        struct weft_timeline *g = weft_seen_of(p->seen, k);
        for (int32_t i = 0; i < p->set[k].n_round; i++) {
            const struct weft_sample *s =
                &p->round_sample[p->set[k].first + i];
            int32_t response = s->n_total - s->n_prompt;
            weft_timeline_add_sample(
                g,
                &(struct weft_timeline_sample){
                    s->n_prompt, response, !s->ended && response >= g->most});
        }
    }
}

/* The first round began with its first task. */
static void set_start(struct weft_timeline *g, double s)
{
    g->start_s = s;
    if (g->n_rounds > 0)
        g->round[0].start = (struct weft_timeline_when){s, -1};
}

/* Whether memory ran out for some of it. */
static bool failed(struct weft_seen *seen)
{
    bool any = false;
    for (int32_t k = 0; k < seen->n_sets; k++)
        any = any || weft_seen_of(seen, k)->failed;
    return any;
}

/* ---- In a run ------------------------------------------------------------ */

/* Adds what devices inferred; span (calls, devices, WEFT_RT_PIECES). */
static void add_pieces(struct weft_seen *seen, int32_t set,
                       const struct weft_span *span)
{
    struct weft_timeline *g = weft_seen_of(seen, set);
    size_t each = (size_t) seen->n_devices * WEFT_RT_PIECES;
    for (size_t i = 0; i < each * (size_t) g->n_calls; i++) {
        int32_t row = rows_of(seen, set)[i % each / WEFT_RT_PIECES];
        if (span[i].end_s > 0 && row >= 0)
            weft_timeline_add_piece(g, &(struct weft_timeline_piece){
                                           row, (int32_t) (i / each),
                                           span[i].start_s, span[i].end_s});
    }
}

int weft_seen_write(struct weft_iteration *p, struct weft_err *err)
{
    struct weft_seen *seen = p->seen;
    if (!seen)
        return 0;
    size_t n = (size_t) seen->n_devices * WEFT_RT_PIECES
             * (size_t) seen->g.n_calls;
    struct weft_span *span = weft_alloc(n + 1, sizeof *span);
    int rc = weft_world_agree(
        span ? 0 : weft_err_nomem(err, "generation", n * sizeof *span), err);
    if (!rc)
        rc = weft_rt_pieces_all(p->t->rt, p->iteration, seen->g.n_calls,
                                seen->call, span, err);
    for (int32_t k = 0; k < seen->n_sets && !rc; k++) {
        add_pieces(seen, k, span);
        set_start(weft_seen_of(seen, k), p->time[seen->generates[k]].first_s);
    }
    weft_free(span);
    if (rc || weft_world_rank() > 0 || seen->g.n_chunks == 0)
        return rc;
    struct weft_string out = {0};
    char *path = weft_path_join(p->t->config.run_dir, WEFT_TIMELINE_FILE);
    rc = path && !failed(seen) ? weft_timeline_write(&seen->g, &out, err)
                               : weft_err_nomem(err, "generation", n);
    if (!rc)
        rc = weft_file_write(path, out.data, out.n, err);
    weft_string_release(&out);
    weft_free(path);
    return rc;
}

/* ---- In a recording ------------------------------------------------------ */

static double end_of(const struct weft_engine *engine, int64_t task)
{
    struct weft_span span;
    int32_t device;
    return weft_engine_span(engine, task, &span, &device) ? span.end_s : 0;
}

/* When waits were over: what had written their tiles had ended. out (waits),
 * written (tiles): zeros. */
static void play_waits(const struct weft_recording *r,
                       const struct weft_engine *engine, double *out,
                       double *written)
{
    int64_t task = 0;
    for (int64_t w = 0; w < r->n_waits; w++) {
        for (; task < r->wait[w].task; task++) {
            const struct weft_rec_task *t = &r->task[task];
            for (int32_t i = 0; i < t->n_access; i++) {
                struct weft_rec_access a = r->access[t->access + i];
                if (a.mode != 0)
                    written[a.tile] = fmax(written[a.tile],
                                           end_of(engine, task));
            }
        }
        if (r->wait[w].tile >= 0)
            out[w] = written[r->wait[w].tile];
    }
}

static void set_time(struct weft_timeline_when *when, const double *wait_s)
{
    if (when->wait >= 0)
        *when = (struct weft_timeline_when){wait_s[when->wait], -1};
}

static void play_pieces(struct weft_seen *seen, int32_t set,
                        const struct weft_recording *r,
                        const struct weft_engine *engine, int32_t iteration)
{
    struct weft_timeline *g = weft_seen_of(seen, set);
    const int32_t *row_of = rows_of(seen, set);
    double start_s = INFINITY;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_span span;
        int32_t device;
        if (t->iteration != iteration
            || !weft_engine_span(engine, i, &span, &device) || device < 0)
            continue;
        if (t->call == seen->generates[set])
            start_s = fmin(start_s, span.start_s);
        for (int32_t c = 0; c < g->n_calls; c++)
            if (t->call == seen->call[c] && row_of[device] >= 0)
                weft_timeline_add_piece(
                    g, &(struct weft_timeline_piece){
                           row_of[device], c, span.start_s, span.end_s});
    }
    set_start(g, isfinite(start_s) ? start_s : 0);
}

static void play_times(struct weft_timeline *g, const double *wait_s)
{
    for (size_t i = 0; i < g->n_rounds; i++)
        set_time(&g->round[i].start, wait_s);
    for (size_t i = 0; i < g->n_chunks; i++)
        set_time(&g->chunk[i].end, wait_s);
    for (size_t i = 0; i < g->n_moves; i++)
        set_time(&g->move[i].at, wait_s);
    for (size_t i = 0; i < g->n_triggers; i++)
        set_time(&g->trigger[i].at, wait_s);
}

int weft_seen_play(struct weft_seen *seen, const struct weft_recording *r,
                   const struct weft_engine *engine, int32_t iteration,
                   struct weft_err *err)
{
    double *wait_s = weft_alloc((size_t) r->n_waits, sizeof *wait_s);
    double *written = weft_alloc((size_t) r->n_tiles, sizeof *written);
    bool good = wait_s && written;
    if (good)
        play_waits(r, engine, wait_s, written);
    for (int32_t k = 0; k < seen->n_sets && good; k++) {
        play_pieces(seen, k, r, engine, iteration);
        play_times(weft_seen_of(seen, k), wait_s);
    }
    weft_free(wait_s);
    weft_free(written);
    return good && !failed(seen)
             ? 0
             : weft_err_nomem(err, "generation",
                              (size_t) r->n_waits * sizeof *wait_s);
}
