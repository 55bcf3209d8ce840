/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/gen.h"

#include <string.h>

#include "base/alloc.h"

struct weft_gen_task *weft_gen_task_create(struct weft_seq *seq,
                                           const struct weft_shape *shape,
                                           const struct weft_gen_args *gen,
                                           int32_t n_admit,
                                           const struct weft_gen_admit *admit,
                                           size_t *bytes_out)
{
    size_t bytes = sizeof(struct weft_gen_task);
    for (int32_t i = 0; i < n_admit; i++)
        bytes += sizeof(struct weft_gen_prompt)
               + (size_t) admit[i].n_prompt * 4;
    struct weft_gen_task *task = weft_alloc(1, bytes);
    if (!task) {
        weft_seq_fail(seq, WEFT_ENOMEM, "out of memory admitting %d prompts",
                      n_admit);
        return NULL;
    }
    task->shape = shape;
    task->gen = *gen;
    task->gen.step = NULL;
    task->n_admit = n_admit;
    struct weft_gen_prompt *a = (void *) (task + 1);
    int32_t *token = (int32_t *) (a + n_admit);
    for (int32_t i = 0; i < n_admit; token += admit[i++].n_prompt) {
        a[i] = (struct weft_gen_prompt){admit[i].slot, admit[i].sample,
                                        admit[i].n_prompt, admit[i].limit};
        memcpy(token, admit[i].token, (size_t) admit[i].n_prompt * 4);
    }
    *bytes_out = bytes;
    return task;
}

struct weft_gen_view weft_gen_view_of(struct weft_gen_state *state)
{
    char *base = (char *) state;
    return (struct weft_gen_view){
        .state = state,
        .slot = (void *) (base + state->slot),
        .page = (void *) (base + state->page),
        .free_page = (void *) (base + state->free_page),
        .token = (void *) (base + state->token),
        .logp = (void *) (base + state->logp),
    };
}

void weft_gen_admit(const struct weft_gen_view *view,
                    const struct weft_gen_task *task)
{
    const struct weft_gen_prompt *a = (const void *) (task + 1);
    const int32_t *token = (const int32_t *) (a + task->n_admit);
    for (int32_t i = 0; i < task->n_admit; token += a[i++].n_prompt) {
        view->slot[a[i].slot] = (struct weft_gen_slot){
            .sample = a[i].sample,
            .n_prompt = a[i].n_prompt,
            .n_total = a[i].n_prompt,
            .limit = a[i].limit,
        };
        int64_t at = (int64_t) a[i].slot * view->state->max_total;
        memcpy(view->token + at, token, (size_t) a[i].n_prompt * 4);
        memset(view->logp + at, 0, (size_t) a[i].n_prompt * 4);
    }
}

void weft_gen_free_slot(const struct weft_gen_view *view, int32_t index)
{
    struct weft_gen_state *state = view->state;
    struct weft_gen_slot *slot = &view->slot[index];
    const int32_t *page = view->page
                        + (int64_t) index * state->pages_per_slot;
    int32_t n = (int32_t) weft_ceil_div(slot->n_cached, WEFT_PAGE_TOKENS);
    for (int32_t i = 0; i < n; i++)
        view->free_page[state->n_free++] = page[i];
    *slot = (struct weft_gen_slot){.sample = -1};
}

/* Takes free pages for the positions pos .. end - 1; false when none are
 * left. */
static bool take_pages(const struct weft_gen_view *view, int32_t slot,
                       int32_t pos, int32_t end)
{
    struct weft_gen_state *state = view->state;
    int32_t *page = view->page + (int64_t) slot * state->pages_per_slot;
    int32_t have = (int32_t) weft_ceil_div(pos, WEFT_PAGE_TOKENS);
    for (; have * WEFT_PAGE_TOKENS < end; have++) {
        if (state->n_free == 0)
            return false;
        page[have] = view->free_page[--state->n_free];
    }
    return true;
}

int weft_gen_plan_rows(const struct weft_gen_view *view,
                       int32_t prefill_tokens, struct weft_gen_rows *rows,
                       int64_t *n_prefilled, struct weft_err *err)
{
    int32_t budget = prefill_tokens;
    rows->n_runs = rows->n_rows = rows->n_sampled = 0;
    for (int32_t i = 0; i < view->state->n_slots; i++) {
        struct weft_gen_slot *slot = &view->slot[i];
        if (slot->sample < 0 || slot->done)
            continue;
        int32_t rest = slot->n_total - slot->n_cached;
        int32_t n = rest == 1 ? 1 : (int32_t) weft_min64(rest, budget);
        if (n == 0)
            continue;
        if (!take_pages(view, i, slot->n_cached, slot->n_cached + n))
            return weft_err_set(err, WEFT_ENOMEM,
                                "the KV arena has no free page");
        if (rest > 1) {
            budget -= n;
            *n_prefilled += n;
        }
        rows->run[rows->n_runs++] = (struct weft_k_run){i, slot->n_cached, n};
        memcpy(rows->token + rows->n_rows,
               view->token + (int64_t) i * view->state->max_total
                   + slot->n_cached,
               (size_t) n * 4);
        rows->n_rows += n;
        slot->n_cached += n;
        if (n == rest)
            rows->sampled[rows->n_sampled++] = i;
    }
    return 0;
}

void weft_gen_last_rows(const struct weft_gen_rows *rows, int32_t *row_out)
{
    int32_t row = 0, n = 0;
    for (int32_t r = 0; r < rows->n_runs; r++) {
        row += rows->run[r].n;
        if (n < rows->n_sampled && rows->sampled[n] == rows->run[r].slot)
            row_out[n++] = row - 1;
    }
}

void weft_gen_clear_pages(int32_t n_runs, const struct weft_k_run *run,
                          const struct weft_k_kv *kv, size_t offset,
                          size_t bytes)
{
    for (int32_t i = 0; i < n_runs; i++) {
        const int32_t *page = kv->page
                            + (int64_t) run[i].slot * kv->pages_per_slot;
        int64_t k = weft_ceil_div(run[i].pos, WEFT_PAGE_TOKENS);
        for (; k * WEFT_PAGE_TOKENS < run[i].pos + run[i].n; k++)
            memset((char *) kv->arena + (size_t) page[k] * kv->page_bytes
                       + offset,
                   0, bytes);
    }
}

void weft_gen_open_cache(const struct weft_batch *step,
                         const struct weft_range *range,
                         const struct weft_shape *shape, int32_t layer,
                         bool on_gpu, struct weft_k_kv *kv)
{
    size_t bytes = weft_k_part_kv_page_bytes(shape, *range, 1);
    kv->page = weft_batch_at(step, step->page);
    kv->pages_per_slot = step->pages_per_slot;
    if (!on_gpu)
        weft_gen_clear_pages(step->n_runs, weft_batch_at(step, step->run), kv,
                             (size_t) layer * bytes, bytes);
}

int weft_gen_put(const struct weft_gen_view *view,
                 const struct weft_gen_args *gen, int32_t index,
                 int32_t token, float logp, struct weft_err *err)
{
    struct weft_gen_slot *slot = &view->slot[index];
    int64_t at = (int64_t) index * view->state->max_total + slot->n_total;
    if (token < 0)
        return weft_err_set(err, WEFT_ENUMERIC,
                            "sample %d: the logits of token %d are not "
                            "finite numbers",
                            slot->sample, slot->n_total);
    view->token[at] = token;
    view->logp[at] = logp;
    slot->n_total++;
    for (int32_t k = 0; k < gen->n_stop; k++)
        if (token == gen->stop[k])
            slot->done = 1;
    if (!slot->done && slot->n_total >= slot->limit)
        slot->done = 2;
    return 0;
}

void weft_gen_report(const struct weft_gen_view *view, int32_t n_drawn,
                     struct weft_gen_status *status)
{
    status->n_decoded += n_drawn;
    memcpy(status + 1, view->slot,
           (size_t) view->state->n_slots * sizeof *view->slot);
}

int weft_gen_draw(const struct weft_gen_view *view,
                  const struct weft_shape *shape,
                  const struct weft_gen_args *gen, int32_t n,
                  const int32_t *index, const float *logits, void *scratch,
                  struct weft_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const struct weft_gen_slot *slot = &view->slot[index[i]];
        float logp = 0;
        int32_t token = weft_k_sample(
            shape, &gen->sampling, logits + (int64_t) i * shape->vocab,
            (uint32_t) gen->iteration,
            (uint32_t) (gen->first_sample + slot->sample),
            (uint32_t) slot->n_total, &logp, scratch);
        int rc = weft_gen_put(view, gen, index[i], token, logp, err);
        if (rc)
            return rc;
    }
    return 0;
}
