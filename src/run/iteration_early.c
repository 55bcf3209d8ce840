/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mini-batches that train while other samples are generated (FlexRLHF, figure
 * 4). The first epoch's are a permutation that is known beforehand, so is which
 * of them needs a sample first: its own, those of its samples' prompts where
 * advantages compare them, and what they are compared with. Samples begin in
 * this order. When a mini-batch's have ended, and have left their
 * instances, inference gives its micro-batches, however small, then come
 * advantages, rewards and the steps, in the order of mini-batches. Generation
 * and trained models' inference have weights that were kept. What is when
 * depends on lengths alone, so a recording that knows them does the same.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "job/as_completed.h"
#include "run/iteration.h"

bool weft_trainer_as_completed(const struct weft_trainer *t)
{
    char why[400];
    return weft_run_trains_as_completed(&t->config, &t->flow, &t->plan, why,
                                        sizeof why);
}

void weft_trainer_tell_order(const struct weft_trainer *t)
{
    char why[400];
    if (!weft_run_trains_as_completed(&t->config, &t->flow, &t->plan, why,
                                      sizeof why)
        && why[0])
        weft_warn("%s", why);
}

void weft_iteration_early_release(struct weft_iteration *p)
{
    weft_free(p->early.needed);
    weft_free(p->early.left);
    weft_free(p->early.order);
    weft_free(p->early.due);
    p->early = (struct weft_iteration_early){.n = 0};
}

static void need(struct weft_iteration *p, int32_t sample, int32_t k)
{
    int32_t *needed = &p->early.needed[sample];
    *needed = weft_min32(*needed, k);
}

/* A mini-batch needs sample i and whatever its advantage depends on. */
static void need_all(struct weft_iteration *p, int32_t i, int32_t k)
{
    const struct weft_iteration_set *set = weft_iteration_set(p, i);
    bool groups = weft_algorithm_of(&p->t->config)->advantage
               == WEFT_BY_GROUPS;
    int32_t each = groups ? set->each : 1;
    int32_t first = set->first + (i - set->first) / each * each;
    int32_t other = weft_iteration_baseline(p, i);
    for (int32_t s = first; s < first + each; s++)
        need(p, s, k);
    if (other >= 0)
        need_all(p, other, k);
}

/* Lists a set's samples in the order in which they are needed; those of a
 * prompt, which share what they read, stay together. */
static void list_order(struct weft_iteration *p,
                       const struct weft_iteration_set *set, int32_t parts)
{
    int32_t *out = p->early.order + set->first;
    for (int32_t k = 0; k <= parts; k++)
        for (int32_t i = 0; i < set->n; i += set->each) {
            const int32_t *needed = &p->early.needed[set->first + i];
            int32_t first = needed[0];
            for (int32_t s = 1; s < set->each; s++)
                first = weft_min32(first, needed[s]);
            for (int32_t s = 0; s < set->each && first == k; s++)
                *out++ = i + s;
        }
}

int weft_iteration_early_init(struct weft_iteration *p)
{
    int32_t parts = p->t->settings.mini_batches;
    size_t n = (size_t) p->n_all;
    uint32_t *order = weft_alloc((size_t) p->n, sizeof *order);
    p->as_completed = true;
    p->early = (struct weft_iteration_early){
        .needed = weft_alloc(n, sizeof *p->early.needed),
        .left = weft_alloc((size_t) parts + 1, sizeof *p->early.left),
        .order = weft_alloc(n, sizeof *p->early.order),
        .due = weft_alloc(n, sizeof *p->early.due)};
    if (!order || !p->early.needed || !p->early.left || !p->early.order
        || !p->early.due) {
        weft_free(order);
        return weft_err_nomem(p->err, "an iteration", n * sizeof *order);
    }
    for (int32_t i = 0; i < p->n_all; i++)
        p->early.needed[i] = parts;
    weft_iteration_permute(p, 0, order);
    for (int32_t k = 0; k < parts; k++) {
        struct weft_range of = weft_iteration_mini_batch(p, k);
        for (int32_t i = of.first; i < of.first + of.n; i++)
            need_all(p, (int32_t) order[i], k);
    }
    for (int32_t i = 0; i < p->n_all; i++)
        p->early.left[p->early.needed[i]]++;
    for (int32_t s = 0; s < p->n_sets; s++)
        list_order(p, &p->set[s], parts);
    weft_free(order);
    return 0;
}

/* Submits the next mini-batch. */
static int submit(struct weft_iteration *p)
{
    struct weft_iteration_early *e = &p->early;
    for (int32_t i = 0; i < p->n_all; i++)
        e->due[i] = e->needed[i] <= e->n;
    weft_rt_when(p->t->rt, WEFT_REC_EARLY);
    int rc = weft_iteration_calls_flush(p);
    weft_rt_when(p->t->rt, WEFT_REC_IN_TURN);
    if (!rc)
        rc = weft_iteration_judge(p);
    if (!rc)
        rc = weft_iteration_train_next(p);
    e->n++;
    return rc;
}

int weft_iteration_early_turn(struct weft_iteration *p)
{
    struct weft_iteration_early *e = &p->early;
    int rc = 0;
    if (!e->needed)
        return 0;
    for (int32_t k = 0; k < p->left.n; k++)
        e->left[e->needed[p->left.sample[k]]]--;
    while (e->n < p->t->settings.mini_batches && e->left[e->n] == 0 && !rc)
        rc = submit(p);
    p->n_early = e->n;
    return rc;
}
