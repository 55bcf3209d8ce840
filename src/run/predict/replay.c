/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/replay.h"

#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"

static void release(struct weft_replay *r)
{
    weft_free(r->n_total);
    weft_free(r->n_text);
    weft_fuse_planned_release(&r->fused);
    for (int k = 0; k < 2; k++) {
        weft_rollout_order_release(&r->order[k]);
        weft_free(r->ran[k].moments);
        weft_free(r->ran[k].released);
    }
    *r = (struct weft_replay){.n_total = NULL};
}

void weft_replays_release(struct weft_replays *replays)
{
    for (int32_t i = 0; i < replays->n; i++)
        release(&replays->kept[i]);
    replays->n = 0;
}

static int64_t tokens_of(const struct weft_iteration *p)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < p->n_all; i++)
        sum += p->sample[i].n_total;
    return sum;
}

/* Where one more is kept: NULL if all have more tokens. */
static struct weft_replay *room_for(struct weft_replays *x, int64_t tokens)
{
    struct weft_replay *least = &x->kept[0];
    if (x->n < WEFT_MOST_REPLAYS)
        return &x->kept[x->n++];
    for (int32_t i = 1; i < x->n; i++)
        if (x->kept[i].tokens < least->tokens)
            least = &x->kept[i];
    return least->tokens < tokens ? least : NULL;
}

int weft_replay_keep(struct weft_trainer *t, const struct weft_iteration *p,
                     struct weft_err *err)
{
    size_t n = (size_t) p->n_all * (size_t) (t->settings.refills + 1);
    size_t texts = (size_t) p->n_all * (size_t) t->config.n_rewards;
    struct weft_replay *r = room_for(&t->replays, tokens_of(p));
    if (!r)
        return 0;
    release(r);
    *r = (struct weft_replay){
        .iteration = p->iteration,
        .drawn = p->first_prompt,
        .tokens = tokens_of(p),
        .n_total = weft_alloc(2 * n, sizeof *r->n_total),
        .n_text = weft_alloc(2 * texts, sizeof *r->n_text)};
    t->replays.changed = true;
    if (!r->n_total || !r->n_text)
        return weft_err_nomem(err, "lengths of samples",
                              2 * n * sizeof *r->n_total);
    int rc = 0;
    for (int k = 0; k < 2 && !rc; k++) {
        const struct weft_iteration *from = k == 0 ? p : t->next;
        if (!from || from->n_all != p->n_all)
            continue; /* rows of the data have their own lengths */
        memcpy(r->n_total + (size_t) k * n, from->n_total,
               n * sizeof *r->n_total);
        memcpy(r->n_text + (size_t) k * texts, from->n_text,
               texts * sizeof *r->n_text);
        rc = weft_rollout_order_copy(&from->order, &r->order[k], err);
        memcpy(r->tail[k], from->tail, sizeof r->tail[k]);
    }
    if (!rc)
        rc = weft_fuse_keep(t->fuse, &r->fused, err);
    for (int32_t k = 0; k < 2 && !rc; k++)
        rc = weft_rt_ran(t->rt, p->iteration, p->iteration + k, &r->ran[k],
                         err);
    return rc;
}
