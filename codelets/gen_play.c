/* SPDX-License-Identifier: Apache-2.0 */
/* Generation without a model: what the controller would read after each chunk
 * when every sample's length is known. It takes the same admissions and plans
 * the same rows as the tasks do. */
#include <string.h>

#include "base/alloc.h"
#include "codelets/gen.h"

struct weft_gen_play {
    struct weft_gen_state *state;
    struct weft_gen_rows rows;
    int64_t row_room;
};

void weft_gen_play_free(struct weft_gen_play *p)
{
    if (!p)
        return;
    weft_free(p->state);
    weft_free(p->rows.run);
    weft_free(p->rows.token);
    weft_free(p->rows.sampled);
    weft_free(p);
}

int weft_gen_play_create(int32_t n_slots, int32_t max_total, int32_t n_pages,
                         int32_t prefill_tokens, struct weft_gen_play **out,
                         struct weft_err *err)
{
    struct weft_gen_state layout;
    size_t n = (size_t) n_slots;
    weft_gen_state_layout(n_slots, max_total, n_pages, &layout);
    struct weft_gen_play *p = weft_alloc(1, sizeof *p);
    if (!p)
        return weft_err_nomem(err, "recording generation", layout.bytes);
    p->state = weft_alloc(1, layout.bytes);
    p->rows.run = weft_alloc(n, sizeof *p->rows.run);
    p->rows.token = weft_alloc(n + (size_t) prefill_tokens, 4);
    p->rows.sampled = weft_alloc(n, 4);
    if (!p->state || !p->rows.run || !p->rows.token || !p->rows.sampled) {
        weft_gen_play_free(p);
        return weft_err_nomem(err, "recording generation", layout.bytes);
    }
    *p->state = layout;
    weft_gen_state_clear(p->state);
    *out = p;
    return 0;
}

/* Each slot that a step draws a token for has one token more. */
static void draw(const struct weft_gen_view *view,
                 const struct weft_gen_rows *rows, const int32_t *n_total)
{
    for (int32_t i = 0; i < rows->n_sampled; i++) {
        struct weft_gen_slot *slot = &view->slot[rows->sampled[i]];
        if (++slot->n_total >= n_total[slot->sample])
            slot->done = slot->n_total >= slot->limit ? 2 : 1;
    }
}

static struct weft_work_rows rows_of(const struct weft_gen_rows *rows)
{
    struct weft_work_rows sum = {.n_targets = rows->n_sampled};
    for (int32_t i = 0; i < rows->n_runs; i++)
        weft_work_rows_add(&sum, rows->run[i].pos, rows->run[i].n);
    return sum;
}

void weft_gen_play_chunk(struct weft_gen_play *p,
                         const struct weft_gen_args *args, int32_t n_admit,
                         const struct weft_gen_admit *admit,
                         const int32_t *n_total,
                         struct weft_gen_status *status,
                         struct weft_work_rows step[])
{
    size_t bytes;
    struct weft_gen_view view = weft_gen_view_of(p->state);
    struct weft_gen_task *task = weft_gen_task_create(NULL, args, n_admit,
                                                      admit, &bytes);
    weft_gen_admit(&view, task);
    weft_free(task);
    *status = (struct weft_gen_status){.n_slots = p->state->n_slots};
    for (int32_t i = 0; i < args->n_steps; i++) {
        weft_gen_plan_rows(&view, args, &p->rows, status);
        status->n_decoded += p->rows.n_sampled;
        step[i] = rows_of(&p->rows);
        draw(&view, &p->rows, n_total);
    }
    memcpy(status + 1, view.slot,
           (size_t) status->n_slots * sizeof *view.slot);
}

void weft_gen_play_retire(struct weft_gen_play *p, int32_t slot)
{
    struct weft_gen_view view = weft_gen_view_of(p->state);
    weft_gen_free_slot(&view, slot);
}

void weft_gen_play_enter(struct weft_gen_play *p,
                         const struct weft_gen_admit *admit, int32_t n_total,
                         int32_t n_cached)
{
    struct weft_gen_view view = weft_gen_view_of(p->state);
    int64_t at = weft_gen_enter(&view, admit->slot, admit->sample,
                                admit->n_prompt, n_total, admit->limit,
                                admit->token);
    memcpy(view.token + at, admit->token, (size_t) admit->n_prompt * 4);
    weft_gen_take_cache(&view, admit->slot, n_cached);
}

int32_t weft_gen_play_cached(const struct weft_gen_play *p, int32_t slot)
{
    return weft_gen_view_of(p->state).slot[slot].n_cached;
}
