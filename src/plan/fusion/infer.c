/* SPDX-License-Identifier: Apache-2.0 */
/* Inference of samples as they end, by workers as they become free. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/min_tree.h"
#include "plan/fusion/inside.h"

_Static_assert(WEFT_OVERLAP_MODELS <= 32, "bits of what a worker has");

struct ended {
    double end_s, tokens;
    int32_t index;
};

/* A model's samples are taken in the order in which they ended. */
struct model {
    int32_t next;
    double comes_s; /* all workers can have its weights */
    double ready_s; /* of its next micro-batch; infinite: all are taken */
    double left_tokens, token_s; /* not taken; seconds of one, about */
    int32_t n_workers;           /* that have its weights */
};

struct inference {
    const struct weft_overlap_job *job;
    struct ended *ended; /* (n_samples) */
    struct model model[WEFT_OVERLAP_MODELS];
    struct weft_min_tree free_s; /* (n_instances) of those that work */
    struct weft_min_tree idle;   /* (n_instances) 0: it waits for work */
    bool alike; /* all workers have all weights: what one does not find ... */
    uint32_t *has; /* (n_instances) models whose weights it has */
    struct weft_overlapped *out;
};

static int by_end(const void *a, const void *b)
{
    const struct ended *x = a, *y = b;
    if (x->end_s < y->end_s || x->end_s > y->end_s)
        return x->end_s < y->end_s ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The samples of a model's next micro-batch among those that have ended;
 * returns where they end. */
static int32_t batch_end(const struct inference *f, const struct model *m,
                         double now_s, double *tokens_out)
{
    int32_t i = m->next;
    double tokens = 0;
    for (; i < f->job->n_samples && f->ended[i].end_s <= now_s; i++) {
        if (i > m->next && tokens + f->ended[i].tokens > f->job->micro_tokens)
            break;
        tokens += f->ended[i].tokens;
    }
    *tokens_out = tokens;
    return i;
}

/* When the next micro-batch of a model would begin if its weights were there:
 * when it is full, or its first sample has waited for long enough, or all
 * samples have ended. */
static double batch_s(const struct inference *f, const struct model *m)
{
    int32_t n = f->job->n_samples;
    double tokens = 0, waited = fmin(f->ended[m->next].end_s + f->job->wait_s,
                                     f->ended[n - 1].end_s);
    for (int32_t i = m->next; i < n && f->ended[i].end_s < waited; i++) {
        tokens += f->ended[i].tokens;
        if (tokens >= f->job->micro_tokens)
            return f->ended[i].end_s;
    }
    return waited;
}

static double ready_s(const struct inference *f, const struct model *m)
{
    return m->next < f->job->n_samples ? fmax(batch_s(f, m), m->comes_s)
                                       : INFINITY;
}

/* The model with most work left for each that has its weights, of those that
 * are ready; models that the worker has come first, and others only if that
 * takes less time than they have left without it. -1: none. */
static int32_t choose(const struct inference *f, int32_t worker, double now_s)
{
    int32_t best = -1;
    bool best_has = false;
    double best_s = 0;
    for (int32_t j = 0; j < f->job->n_models; j++) {
        const struct model *m = &f->model[j];
        bool has = f->has[worker] >> j & 1;
        double left = m->left_tokens * m->token_s
                    / (m->n_workers > 0 ? m->n_workers : 1);
        if (m->ready_s > now_s)
            continue;
        if (!has && m->n_workers > 0 && f->job->load_s[j] >= left)
            continue;
        if (best < 0 || (has && !best_has)
            || (has == best_has && left > best_s)) {
            best = j;
            best_has = has;
            best_s = left;
        }
    }
    return best;
}

/* When a worker that finds nothing now may find something; infinite: never. */
static double next_s(const struct inference *f, double now_s)
{
    double next = INFINITY;
    for (int32_t j = 0; j < f->job->n_models; j++) {
        double at = f->model[j].ready_s;
        next = at > now_s ? fmin(next, at) : next;
    }
    return next;
}

static void take(struct inference *f, int32_t worker, int32_t j, double now_s)
{
    struct model *m = &f->model[j];
    const struct weft_overlap_job *job = f->job;
    double tokens;
    int32_t end = batch_end(f, m, now_s, &tokens);
    double seconds = job->infer_s(job->costs->ctx, j, end - m->next, tokens);
    bool has = f->has[worker] >> j & 1;
    double free_s = now_s + (has ? 0 : job->load_s[j]) + seconds;
    weft_min_tree_set(&f->free_s, worker, free_s);
    m->n_workers += !has;
    f->has[worker] |= 1u << j;
    m->left_tokens -= tokens;
    m->next = end;
    m->ready_s = ready_s(f, m);
    f->out->infer_s += seconds;
    f->out->all_s = fmax(f->out->all_s, free_s);
}

/* A worker finds nothing. Those that are all alike wait together until there is
 * something, which then is the first one's. */
static void wait(struct inference *f, int32_t worker, double now_s)
{
    weft_min_tree_set(&f->free_s, worker,
                      f->alike ? INFINITY : next_s(f, now_s));
    if (f->alike)
        weft_min_tree_set(&f->idle, worker, 0);
}

/* The worker that looks for work next, and when; -1: none. */
static int32_t next_worker(const struct inference *f, double *now_s_out)
{
    double free_s = weft_min_tree_least(&f->free_s), idle_s = INFINITY;
    int32_t first = -1;
    if (weft_min_tree_least(&f->idle) <= 0) {
        first = weft_min_tree_first(&f->idle, 0);
        idle_s = next_s(f, -1);
    }
    *now_s_out = fmin(free_s, idle_s);
    if (isinf(*now_s_out))
        return -1;
    if (free_s > idle_s)
        return first;
    int32_t worker = weft_min_tree_first(&f->free_s, free_s);
    return idle_s <= free_s ? weft_min32(first, worker) : worker;
}

/* A worker that goes idle for good leaves no sample behind: a model that it
 * does not take has workers already. */
static void infer(struct inference *f)
{
    double now_s;
    for (;;) {
        int32_t worker = next_worker(f, &now_s);
        if (worker < 0)
            return;
        int32_t j = choose(f, worker, now_s);
        if (j < 0) {
            wait(f, worker, now_s);
            continue;
        }
        weft_min_tree_set(&f->idle, worker, INFINITY);
        take(f, worker, j, now_s);
    }
}

static void inference_release(struct inference *f)
{
    weft_free(f->ended);
    weft_free(f->has);
    weft_min_tree_release(&f->free_s);
    weft_min_tree_release(&f->idle);
}

/* From when on a worker can infer. */
static double free_from(const struct weft_overlap_run *run, int32_t i)
{
    const struct weft_overlap_job *job = run->job;
    bool waits = job->serial || (job->at_trigger && run->out.n_migrated == 0);
    double first_s = waits           ? run->out.generated_s
                   : job->at_trigger ? run->out.trigger_s
                                     : 0;
    double free_s = run->free_s[i];
    return fmax(first_s, free_s >= 0 ? free_s : run->instance[i].now_s);
}

int weft_overlap_infer(struct weft_overlap_run *run, struct weft_err *err)
{
    const struct weft_overlap_job *job = run->job;
    struct inference f = {.job = job, .out = &run->out, .alike = true};
    double tokens = 0, each;
    run->out.all_s = run->out.generated_s;
    if (job->n_models == 0 || job->n_samples == 0)
        return 0;
    f.ended = weft_alloc((size_t) job->n_samples, sizeof *f.ended);
    f.has = weft_alloc((size_t) job->n_instances, sizeof *f.has);
    if (weft_min_tree_init(&f.free_s, (size_t) job->n_instances)
        || weft_min_tree_init(&f.idle, (size_t) job->n_instances) || !f.ended
        || !f.has) {
        inference_release(&f);
        return weft_err_nomem(err, "a simulation",
                              (size_t) job->n_samples * sizeof *f.ended);
    }
    for (int32_t s = 0; s < job->n_samples; s++) {
        double n = (double) job->sample[s].prompt + job->sample[s].length;
        f.ended[s] = (struct ended){run->state[s].end_s, n, s};
        tokens += n;
    }
    qsort(f.ended, (size_t) job->n_samples, sizeof *f.ended, by_end);
    each = fmin(job->micro_tokens, tokens);
    for (int32_t j = 0; j < job->n_models; j++) {
        int32_t n = (int32_t) fmax(1, each * job->n_samples / tokens);
        f.model[j] = (struct model){
            .comes_s = fmax(job->restore_s[j], f.ended[0].end_s)
                     + job->move_s[j],
            .left_tokens = tokens,
            .token_s = job->infer_s(job->costs->ctx, j, n, each) / each,
            .n_workers = job->load_s[j] <= 0 ? job->n_instances : 0};
        f.model[j].ready_s = ready_s(&f, &f.model[j]);
        f.alike = f.alike && f.model[j].n_workers > 0;
        for (int32_t i = 0; i < f.model[j].n_workers; i++)
            f.has[i] |= 1u << j;
    }
    for (int32_t i = 0; i < job->n_instances; i++)
        weft_min_tree_set(&f.free_s, i, free_from(run, i));
    infer(&f);
    inference_release(&f);
    return 0;
}

/* ---- Below what it cannot stay ------------------------------------------ */

/* The samples that end at least_s or later, in the order in which they end;
 * *tokens_out: of all of them. */
static int32_t list_late(const struct weft_overlap_run *run, double least_s,
                         struct ended *out, double *tokens_out)
{
    const struct weft_overlap_job *job = run->job;
    int32_t n = 0;
    *tokens_out = 0;
    for (int32_t s = 0; s < job->n_samples; s++) {
        if (run->state[s].end_s < least_s)
            continue;
        double tokens = (double) job->sample[s].prompt
                      + job->sample[s].length;
        out[n++] = (struct ended){run->state[s].end_s, tokens, s};
        *tokens_out += tokens;
    }
    return n;
}

/* A model takes samples in the order in which they ended (batch_end()). Its
 * last micro-batch is thus the last sample and so many just before it, one
 * alone or no more than micro_tokens in all; and it is taken when all of them
 * have ended, or later. Which one it is depends on the rest of the inference:
 * here it is the one that takes least. all_s is no less than what is found in
 * floating point, too: it is rounded sums of the same or larger terms. */
int weft_overlap_infer_least(const struct weft_overlap_run *run,
                             const double *end_s, double *out,
                             struct weft_err *err)
{
    const struct weft_overlap_job *job = run->job;
    int32_t n = job->n_samples, n_late = 0, wanted = 16;
    double tokens = 0;
    *out = run->out.generated_s;
    if (job->n_models == 0 || n == 0)
        return 0;
    struct ended *late = weft_alloc((size_t) n, sizeof *late);
    if (!late)
        return weft_err_nomem(err, "a simulation", (size_t) n * sizeof *late);
    while (n_late < n && tokens <= job->micro_tokens) {
        wanted = weft_min32(n, 4 * wanted);
        n_late = list_late(run, wanted < n ? end_s[n - wanted] : 0, late,
                           &tokens);
    }
    qsort(late, (size_t) n_late, sizeof *late, by_end);
    for (int32_t j = 0; j < job->n_models; j++) {
        double least = INFINITY;
        tokens = 0;
        for (int32_t k = 1; k <= n_late; k++) {
            tokens += late[n_late - k].tokens;
            if (k > 1 && tokens > job->micro_tokens)
                break;
            least = fmin(least, job->infer_s(job->costs->ctx, j, k, tokens));
        }
        *out = fmax(*out, run->out.generated_s + least);
    }
    weft_free(late);
    return 0;
}
