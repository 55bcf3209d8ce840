/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided of the long tail, and the lengths that it is decided with;
 * tail_costs.c tells what these take. */
#include "run/tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"
#include "run/tail_inside.h"

int weft_tail_create(struct weft_costs *costs, int32_t n_samples,
                     struct weft_tail **out, struct weft_err *err)
{
    size_t n = (size_t) n_samples * WEFT_TAIL_PAST;
    struct weft_tail *tail = weft_alloc(1, sizeof *tail);
    if (!tail) {
        weft_costs_free(costs);
        return weft_err_nomem(err, "lengths", sizeof *tail);
    }
    *tail = (struct weft_tail){
        .costs = costs, .n_samples = n_samples, .file = {.fd = -1}};
    tail->prompt = weft_alloc(n, sizeof *tail->prompt);
    tail->response = weft_alloc(n, sizeof *tail->response);
    *out = tail;
    return tail->prompt && tail->response
             ? 0
             : weft_err_nomem(err, "lengths", n * 8);
}

void weft_tail_free(struct weft_tail *tail)
{
    if (!tail)
        return;
    weft_free(tail->prompt);
    weft_free(tail->response);
    for (int32_t i = 0; i < tail->n_decided; i++)
        weft_rollout_order_release(&tail->decided[i].order);
    weft_free(tail->decided);
    weft_line_file_close(&tail->file);
    weft_costs_free(tail->costs);
    weft_free(tail);
}

/* ---- Lengths ------------------------------------------------------------ */

void weft_tail_add(struct weft_tail *tail, int32_t **prompt_out,
                   int32_t **response_out)
{
    size_t n = (size_t) tail->n_samples;
    if (tail->n_past == WEFT_TAIL_PAST) {
        size_t bytes = n * (WEFT_TAIL_PAST - 1) * sizeof(int32_t);
        memmove(tail->prompt, tail->prompt + n, bytes);
        memmove(tail->response, tail->response + n, bytes);
        tail->n_past--;
    }
    *prompt_out = tail->prompt + n * (size_t) tail->n_past;
    *response_out = tail->response + n * (size_t) tail->n_past;
    tail->n_past++;
}

void weft_tail_note(const struct weft_iteration *p)
{
    int32_t *prompt, *response;
    if (!p->t->tail)
        return;
    weft_tail_add(p->t->tail, &prompt, &response);
    for (int32_t k = 0; k < p->n_sets; k++) {
        const struct weft_iteration_set *set = &p->set[k];
        bool has = p->t->flow.call[set->call].kind == WEFT_GENERATE;
        for (int32_t i = set->first; has && i < set->first + set->n; i++) {
            prompt[i] = p->sample[i].n_prompt;
            response[i] = p->sample[i].n_total - p->sample[i].n_prompt;
        }
    }
}

int32_t weft_tail_responses(const struct weft_tail *tail, const int32_t **out)
{
    *out = tail->response;
    return tail->n_past * tail->n_samples;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return (x > y) - (x < y);
}

int weft_tail_seen(const struct weft_iteration_set *set, int32_t *n_out,
                   int32_t *out, struct weft_err *err)
{
    const struct weft_tail *tail = set->p->t->tail;
    size_t n = (size_t) set->n, all = n * (size_t) tail->n_past;
    int32_t *length = weft_alloc(all, sizeof *length);
    *n_out = 0;
    if (!length)
        return weft_err_nomem(err, "lengths", all * sizeof *length);
    for (int32_t i = 0; i < tail->n_past; i++)
        memcpy(length + (size_t) i * n,
               tail->response + (int64_t) i * tail->n_samples + set->first,
               n * sizeof *length);
    qsort(length, all, sizeof *length, ascending);
    *n_out = weft_migrate_keep((int32_t) all, length, out);
    weft_free(length);
    return 0;
}

/* ---- Decisions ---------------------------------------------------------- */

const struct weft_rollout_order *weft_tail_order(const struct weft_trainer *t,
                                                 int32_t iteration)
{
    const struct weft_tail *tail = t->tail;
    for (int32_t i = 0; tail && i < tail->n_decided; i++)
        if (tail->decided[i].iteration == iteration
            && tail->decided[i].order.n > 0)
            return &tail->decided[i].order;
    return NULL;
}

static int replay(const struct weft_iteration_set *set,
                  struct weft_tail_choice *out, struct weft_err *err)
{
    const struct weft_trainer *t = set->p->t;
    const struct weft_tail *tail = t->tail;
    for (int32_t i = 0; i < tail->n_decided; i++)
        if (tail->decided[i].iteration == set->p->iteration
            && tail->decided[i].call == set->call) {
            out->when = tail->decided[i].when;
            out->pace = tail->decided[i].pace;
            out->why = WEFT_TAIL_REPLAYED;
            return 0;
        }
    return weft_err_set(
        err, WEFT_EINVAL, "%s: no decision for %s of iteration %d",
        tail->decisions, t->flow.call[set->call].name, set->p->iteration + 1);
}

/* On rank 0. */
static int decide(const struct weft_iteration_set *set,
                  struct weft_tail_choice *out, struct weft_err *err)
{
    const struct weft_trainer *t = set->p->t;
    if (t->tail && t->tail->n_decided > 0)
        return replay(set, out, err);
    out->why = !t->tail || !t->tail->costs ? WEFT_TAIL_NO_COSTS
             : t->tail->n_past == 0        ? WEFT_TAIL_FIRST
                                           : WEFT_TAIL_CHOSEN;
    return out->why == WEFT_TAIL_CHOSEN ? weft_tail_choose(set, out, err) : 0;
}

int weft_tail_decide(const struct weft_iteration_set *set,
                     struct weft_tail_choice *out, struct weft_err *err)
{
    const struct weft_iteration *p = set->p;
    const struct weft_trainer *t = p->t;
    const struct weft_g_generate *gen = &t->gen[set->call];
    int32_t replicas = weft_migration_replicas(gen);
    int32_t instances = t->config.rollout.instances;
    double remaining = t->config.rollout.remaining;
    int rc = 0;
    memset(out, 0, sizeof *out);
    if (!t->plan.inter_stage_fusion || replicas < 2 || weft_run_bounds(t))
        return 0; /* a bound has no moment at which few are left */
    if (t->recorded && t->recorded->tail) {
        int64_t at = p->iteration - t->recorded->first;
        *out = t->recorded->tail[at * WEFT_MAX_CALLS + set->call];
        return 0;
    }
    bool here = weft_world_rank() == 0 || t->recorded;
    bool said = remaining > 0 || instances > 0;
    bool priced = t->tail && t->tail->costs;
    struct weft_err why = {0};
    if (said) {
        out->why = WEFT_TAIL_SAID;
        out->when.share = remaining > 0 ? remaining : WEFT_TAIL_REMAINING;
        out->when.instances = instances > 0
                                ? instances
                                : (int32_t) weft_ceil_div(replicas, 2);
    }
    if (here && !said)
        rc = decide(set, out, &why);
    else if (here && priced)
        rc = weft_tail_refine(set, &out->when, &why);
    if (here && !rc && out->why != WEFT_TAIL_REPLAYED && priced)
        rc = weft_tail_find_pace(set, &out->pace, &why);
    if (here && !rc && t->tail)
        rc = weft_tail_seen(set, &out->when.n_seen, out->when.seen, &why);
    if (rc)
        weft_seq_fail(t->seq, rc, "%s", why.text);
    return weft_seq_agree(t->seq, out, sizeof *out, err);
}
