/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the rewards for which there are no tasks: rules, programs, the
 * caller's function. */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "run/iteration.h"

/* Waits for the rollout of sample i and decodes its response. */
static int decode(struct weft_iteration *p, int32_t i,
                  struct weft_iteration_text *out)
{
    struct weft_trainer *t = p->t;
    struct weft_tile *tile = weft_iteration_home(p, i, WEFT_FIELD_ROLLOUT);
    const struct weft_rollout *r = weft_tile_acquire(tile, WEFT_READ);
    char *text = NULL;
    size_t n = 0;
    int rc = weft_seq_status(t->seq, p->err);
    if (!rc) {
        out->ended = r->ended;
        out->n_tokens = r->n_total - r->n_prompt;
        rc = weft_tokenizer_decode(
            t->tokenizer, weft_rollout_token(r) + r->n_prompt,
            (size_t) out->n_tokens, true, &text, &n, p->err);
        out->response = (struct weft_str){text, n};
    }
    weft_tile_unacquire(tile);
    if (!rc)
        rc = weft_dataset_row(t->data, p->prompt[i]->row, &out->row, p->err);
    if (!rc)
        rc = weft_renderer_prompt(&t->renderer, &out->row, &out->prompt,
                                  p->err);
    return rc;
}

int weft_iteration_rewards(struct weft_iteration *p)
{
    struct weft_trainer *t = p->t;
    size_t n = (size_t) p->n;
    if (t->recorded) /* only rank 0 waits here; the others go on */
        return 0;
    p->rewards.start_s = weft_rt_clock_s(t->rt);
    struct weft_reward_sample *sample = weft_alloc(n, sizeof *sample);
    int rc = 0;
    p->text = weft_alloc(n, sizeof *p->text);
    p->part = weft_alloc(n, sizeof *p->part);
    if (!sample || !p->text || !p->part)
        rc = weft_err_nomem(p->err, "rewards", n * sizeof *p->part);
    for (int32_t i = 0; i < p->n && !rc; i++) {
        struct weft_iteration_text *text = &p->text[i];
        rc = decode(p, i, text);
        sample[i] = (struct weft_reward_sample){
            .prompt = text->prompt,
            .response = text->response,
            .label = text->row.label,
            .row = text->row.json,
            .n_tokens = text->n_tokens,
            .ended = text->ended,
        };
    }
    if (!rc)
        rc = weft_rewards_compute(t->rewards, p->n, sample, p->part, p->err);
    if (rc)
        weft_err_prefix(p->err, "iteration %d", p->iteration + 1);
    for (int32_t i = 0; i < p->n && !rc; i++) {
        double score = weft_rewards_sum(t->rewards, p->part[i]);
        weft_external_complete(p->extra[i].answer, &score, sizeof score);
        p->extra[i].answer = NULL;
    }
    p->rewards.end_s = weft_rt_clock_s(t->rt);
    weft_free(sample);
    return rc;
}

void weft_iteration_texts_release(struct weft_iteration *p)
{
    for (int32_t i = 0; p->text && i < p->n; i++) {
        weft_row_release(&p->text[i].row);
        weft_str_release(&p->text[i].prompt);
        weft_str_release(&p->text[i].response);
    }
    weft_free(p->text);
    weft_free(p->part);
}
