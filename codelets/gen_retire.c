/* SPDX-License-Identifier: Apache-2.0 */
/* Copying a sample out of its slot, and into another instance's. */
#include <string.h>

#include "codelets/gen_pages.h"

struct retire_args {
    int32_t slot;
    int32_t capacity; /* tokens the rollout tile has room for */
    bool moves;       /* it has not finished */
    bool cached;      /* its pages are told */
};

/* Tells which pages a slot has; one that was put off has none. */
static void tell_pages(const struct weft_gen_view *view, int32_t slot,
                       struct weft_gen_cached *out)
{
    int32_t n = view->slot[slot].n_cached;
    out->n_cached = n;
    memcpy(out->page, weft_gen_pages_of(view, slot),
           (size_t) weft_gen_pages_for(n) * sizeof *out->page);
}

static int gen_retire_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    const struct retire_args *args = args_;
    weft_assert(n_buf == 2 + args->cached);
    struct weft_gen_view view = weft_gen_view_of(buf[0]);
    struct weft_rollout *out = buf[1];
    const struct weft_gen_slot *slot = &view.slot[args->slot];
    int64_t at = (int64_t) args->slot * view.state->max_total;

    if (!slot->done != args->moves || slot->n_total > args->capacity)
        return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL,
                            "slot %d %s it is done", args->slot,
                            args->moves ? "moves though" : "retires before");
    *out = (struct weft_rollout){args->capacity, slot->n_prompt,
                                 slot->n_total, slot->done == 1};
    memcpy(weft_rollout_token(out), view.token + at,
           (size_t) slot->n_total * 4);
    memcpy(weft_rollout_logp(out), view.logp + at,
           (size_t) slot->n_total * 4);
    if (args->cached)
        tell_pages(&view, args->slot, buf[2]);
    weft_gen_free_slot(&view, args->slot);
    return 0;
}

WEFT_CODELET(gen_retire, 0x43a047, gen_retire_cpu)

void weft_insert_gen_retire(struct weft_seq *seq,
                            const struct weft_where *where, int32_t slot,
                            bool moves, struct weft_tile *state,
                            struct weft_tile *rollout,
                            struct weft_tile *cached)
{
    if (!weft_seq_is_here(seq, where))
        return;
    size_t bytes = weft_tile_bytes(rollout) - sizeof(struct weft_rollout);
    struct retire_args args = {slot, (int32_t) (bytes / 8), moves, false};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    weft_access_list_add(&access, rollout, WEFT_WRITE);
    args.cached = weft_access_list_add_optional(&access, cached, WEFT_WRITE);
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_retire, &args,
                            sizeof args);
}

struct enter_args {
    int32_t slot, sample, limit;
    bool cached; /* it takes pages for its cache */
};

static int gen_enter_cpu(const void *args_, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    const struct enter_args *args = args_;
    (void) x;
    weft_assert(n_buf == 2 + 2 * args->cached);
    const struct weft_rollout *from = buf[0];
    struct weft_gen_view view = weft_gen_view_of(buf[1]);
    int64_t at = weft_gen_enter(&view, args->slot, args->sample,
                                from->n_prompt, from->n_total, args->limit,
                                weft_rollout_token(from));
    memcpy(view.token + at, weft_rollout_token(from),
           (size_t) from->n_total * 4);
    memcpy(view.logp + at, weft_rollout_logp(from),
           (size_t) from->n_total * 4);
    if (args->cached) {
        const struct weft_gen_cached *left = buf[2];
        weft_gen_take_cache(&view, args->slot, left->n_cached);
        tell_pages(&view, args->slot, buf[3]);
    }
    return 0;
}

WEFT_CODELET(gen_enter, 0x43a047, gen_enter_cpu)

void weft_insert_gen_enter(struct weft_seq *seq,
                           const struct weft_where *where, int32_t slot,
                           int32_t sample, int32_t limit,
                           struct weft_tile *rollout, struct weft_tile *state,
                           struct weft_tile *left, struct weft_tile *taken)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct enter_args args = {slot, sample, limit, left != NULL};
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add(&access, rollout, WEFT_READ);
    weft_access_list_add(&access, state, WEFT_READ_WRITE);
    if (left) {
        weft_access_list_add(&access, left, WEFT_READ);
        weft_access_list_add(&access, taken, WEFT_WRITE);
    }
    weft_access_list_insert(&access, seq, where, &weft_cl_gen_enter, &args,
                            sizeof args);
}
