/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/gen.h"

#include <string.h>

#include "base/alloc.h"
#include "kern/ends.h"
#include "kern/sample.h"

struct weft_gen_task *weft_gen_task_create(const struct weft_shape *shape,
                                           const struct weft_gen_args *gen,
                                           int32_t n_admit,
                                           const struct weft_gen_admit *admit,
                                           size_t *bytes_out)
{
    size_t bytes = sizeof(struct weft_gen_task);
    for (int32_t i = 0; i < n_admit; i++)
        bytes += sizeof(struct weft_gen_prompt)
               + (size_t) admit[i].n_prompt * 4;
    struct weft_gen_task *task = weft_insert_alloc(1, bytes, "prompts");
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
        .order = (void *) (base + state->order),
        .page = (void *) (base + state->page),
        .n_users = (void *) (base + state->n_users),
        .n_keepers = (void *) (base + state->n_keepers),
        .last_use = (void *) (base + state->last_use),
        .free_page = (void *) (base + state->free_page),
        .copy = (void *) (base + state->copy),
        .token = (void *) (base + state->token),
        .logp = (void *) (base + state->logp),
    };
}

int64_t weft_gen_enter(const struct weft_gen_view *view, int32_t slot,
                       int32_t sample, int32_t n_prompt, int32_t n_total,
                       int32_t limit, const int32_t *token)
{
    weft_gen_drop_ended(view);
    view->order[view->state->n_running++] = slot;
    view->slot[slot] = (struct weft_gen_slot){
        .sample = sample,
        .n_prompt = n_prompt,
        .n_total = n_total,
        .limit = limit,
        .head = weft_gen_head(token, n_prompt),
    };
    return (int64_t) slot * view->state->max_total;
}

void weft_gen_admit(const struct weft_gen_view *view,
                    const struct weft_gen_task *task)
{
    const struct weft_gen_prompt *a = (const void *) (task + 1);
    const int32_t *token = (const int32_t *) (a + task->n_admit);
    for (int32_t i = 0; i < task->n_admit; token += a[i++].n_prompt) {
        int64_t at = weft_gen_enter(view, a[i].slot, a[i].sample,
                                    a[i].n_prompt, a[i].n_prompt, a[i].limit,
                                    token);
        memcpy(view->token + at, token, (size_t) a[i].n_prompt * 4);
        memset(view->logp + at, 0, (size_t) a[i].n_prompt * 4);
    }
}

void weft_gen_free_slot(const struct weft_gen_view *view, int32_t index)
{
    weft_gen_keep(view, index);
    weft_gen_free_pages(view, index);
    view->slot[index] = (struct weft_gen_slot){.sample = -1};
}

void weft_gen_plan_rows(const struct weft_gen_view *view,
                        const struct weft_gen_args *gen,
                        struct weft_gen_rows *rows,
                        struct weft_gen_status *status)
{
    struct weft_gen_state *state = view->state;
    int32_t budget = gen->prefill_tokens;
    struct weft_gen_starts starts = {.waits = false};
    rows->n_runs = rows->n_rows = rows->n_sampled = state->n_copies = 0;
    weft_gen_drop_ended(view);
    for (int32_t i = 0; i < state->n_slots; i++)
        view->slot[i].n_ready = view->slot[i].n_cached;
    for (int32_t at = 0; at < state->n_running; at++) {
        int32_t i = view->order[at];
        struct weft_gen_slot *slot = &view->slot[i];
        if (slot->n_cached == 0
            && !weft_gen_start(view, gen->prefix_sharing, at, &starts,
                               status))
            continue;
        int32_t rest = slot->n_total - slot->n_cached;
        int32_t n = rest == 1 ? 1 : (int32_t) weft_min64(rest, budget);
        if (n == 0)
            continue;
        if (!weft_gen_extend(view, at, slot->n_cached + n, status)) {
            starts.waits = true;
            continue;
        }
        if (rest > 1) {
            budget -= n;
            status->n_prefilled += n;
        }
        rows->run[rows->n_runs++] = (struct weft_k_run){i, slot->n_cached, n};
        memcpy(rows->token + rows->n_rows,
               view->token + (int64_t) i * state->max_total + slot->n_cached,
               (size_t) n * 4);
        rows->n_rows += n;
        slot->n_cached += n;
        if (n == rest)
            rows->sampled[rows->n_sampled++] = i;
    }
    status->most_pages = (int32_t) weft_max64(
        status->most_pages, state->n_pages - state->n_free - state->n_idle);
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

void weft_gen_open_cache(struct CUstream_st *stream,
                         const struct weft_batch *step,
                         const struct weft_range *range,
                         const struct weft_shape *shape, int32_t layer,
                         struct weft_k_kv *kv)
{
    size_t bytes = weft_k_part_kv_page_bytes(shape, *range, 1);
    size_t offset = (size_t) layer * bytes;
    kv->page = weft_batch_at(step, step->page);
    kv->pages_per_slot = step->pages_per_slot;
    weft_gen_copy_pages(stream, step->n_copies,
                        weft_batch_at(step, step->copy), kv, offset, bytes);
    if (!WEFT_ON_GPU(stream))
        weft_gen_clear_pages(step->n_runs, weft_batch_at(step, step->run), kv,
                             offset, bytes);
}

static int32_t bytes_of(const struct weft_stop_texts *stop, int32_t token,
                        const char **bytes_out)
{
    if (token >= stop->n_tokens)
        return 0;
    *bytes_out = stop->bytes + stop->at[token];
    return (int32_t) (stop->at[token + 1] - stop->at[token]);
}

/* Whether the tokens before the last, and `end` bytes of the last, end with
 * a text. */
static bool ends_with(const struct weft_stop_texts *stop, const char *text,
                      int32_t n, const int32_t *token, int32_t end)
{
    const char *bytes = NULL;
    size_t left = strlen(text);
    bytes_of(stop, token[--n], &bytes);
    while (left > 0) {
        while (end == 0) {
            if (n == 0)
                return false;
            end = bytes_of(stop, token[--n], &bytes);
        }
        if (bytes[--end] != text[--left])
            return false;
    }
    return true;
}

bool weft_gen_is_stopped(const struct weft_stop_texts *stop, int32_t n,
                         const int32_t *token)
{
    const char *bytes;
    int32_t most = n > 0 ? bytes_of(stop, token[n - 1], &bytes) : 0;
    for (int32_t k = 0; k < stop->n; k++)
        for (int32_t end = 1; end <= most; end++)
            if (ends_with(stop, stop->text[k], n, token, end))
                return true;
    return false;
}

bool weft_gen_is_held(const struct weft_gen_args *gen,
                      const struct weft_gen_slot *slot)
{
    return slot->n_total - slot->n_prompt < gen->min_new_tokens;
}

static bool ends(const struct weft_gen_args *gen, int32_t n,
                 const int32_t *token)
{
    return weft_k_is_end(gen->n_stop, gen->stop, token[n - 1])
        || (gen->stop_text && weft_gen_is_stopped(gen->stop_text, n, token));
}

int weft_gen_put(const struct weft_gen_view *view,
                 const struct weft_gen_args *gen, int32_t index,
                 int32_t token, float logp, struct weft_err *err)
{
    struct weft_gen_slot *slot = &view->slot[index];
    int64_t at = (int64_t) index * view->state->max_total + slot->n_total;
    weft_assert(token != WEFT_K_ENDED); /* a GPU knows it as we do */
    if (token < 0)
        return weft_err_set(err, WEFT_ENUMERIC,
                            "sample %d: the logits of token %d are not "
                            "finite numbers",
                            slot->sample, slot->n_total);
    view->token[at] = token;
    view->logp[at] = logp;
    bool held = weft_gen_is_held(gen, slot);
    int32_t n = ++slot->n_total - slot->n_prompt;
    if (!held && ends(gen, n, view->token + at - n + 1))
        slot->done = 1;
    else if (slot->n_total >= slot->limit)
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

int32_t weft_gen_draw_row(const struct weft_gen_view *view,
                          const struct weft_shape *shape,
                          const struct weft_gen_args *gen, int32_t index,
                          float *logits, float *logp_out, void *scratch)
{
    const struct weft_gen_slot *slot = &view->slot[index];
    *logp_out = 0;
    return weft_k_sample_held(shape, &gen->sampling,
                              weft_gen_is_held(gen, slot) ? gen->n_stop : 0,
                              gen->stop, logits, (uint32_t) gen->iteration,
                              (uint32_t) (gen->first_sample + slot->sample),
                              (uint32_t) slot->n_total, logp_out, scratch);
}

int weft_gen_draw(const struct weft_gen_view *view,
                  const struct weft_shape *shape,
                  const struct weft_gen_args *gen, int32_t n,
                  const int32_t *index, float *logits, void *scratch,
                  struct weft_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        float logp;
        int32_t token = weft_gen_draw_row(view, shape, gen, index[i],
                                          logits + (int64_t) i * shape->vocab,
                                          &logp, scratch);
        int rc = weft_gen_put(view, gen, index[i], token, logp, err);
        if (rc)
            return rc;
    }
    return 0;
}
