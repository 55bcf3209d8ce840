/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of an instance's KV cache, which its slots share. A slot has pages
 * for the tokens that are in the cache, and takes the next when it needs one.
 * The first admitted goes first: where no page is free, the slot admitted last
 * gives its own back and is read again later, prompt and response, as soon as
 * there are pages for all of it; nobody who came later starts before. So the
 * first always goes on, and no order of events can stop all.
 *
 * Slots may have pages in common (gen_prefix.c). The prompts of samples that
 * have gone are kept as if they were slots, as many as there are slots, each
 * until a page is wanted or another prompt takes its place; the one that was
 * used least recently goes first.
 */
#include <string.h>

#include "codelets/gen_pages.h"
#include "kern/kern_cuda.h"

enum { PAGE = WEFT_PAGE_TOKENS };

int32_t weft_gen_pages_for(int32_t n_tokens)
{
    return (int32_t) weft_ceil_div(n_tokens, PAGE);
}

int32_t *weft_gen_pages_of(const struct weft_gen_view *view, int32_t slot)
{
    return view->page + (int64_t) slot * view->state->pages_per_slot;
}

int32_t weft_gen_take_page(const struct weft_gen_view *view)
{
    int32_t page = view->free_page[--view->state->n_free];
    weft_assert(view->n_users[page] == 0);
    view->n_users[page] = 1;
    return page;
}

static bool is_idle(const struct weft_gen_view *view, int32_t page)
{
    return view->n_users[page] > 0
        && view->n_users[page] == view->n_keepers[page];
}

void weft_gen_count_user(const struct weft_gen_view *view, int32_t index,
                         int32_t page, int by)
{
    struct weft_gen_state *state = view->state;
    state->n_idle -= is_idle(view, page);
    view->n_users[page] += by;
    if (index >= state->n_slots)
        view->n_keepers[page] += by;
    state->n_idle += is_idle(view, page);
    if (view->n_users[page] == 0)
        view->free_page[state->n_free++] = page;
}

void weft_gen_free_pages(const struct weft_gen_view *view, int32_t index)
{
    struct weft_gen_slot *slot = &view->slot[index];
    const int32_t *page = weft_gen_pages_of(view, index);
    int32_t n = weft_gen_pages_for(slot->n_cached);
    for (int32_t i = 0; i < n; i++)
        weft_gen_count_user(view, index, page[i], -1);
    slot->n_cached = slot->n_ready = 0;
}

/* ---- Prompts of samples that have gone ----------------------------------- */

void weft_gen_use_kept(const struct weft_gen_view *view, int32_t index)
{
    if (index >= view->state->n_slots)
        view->last_use[index - view->state->n_slots] = ++view->state->n_uses;
}

/* The kept prompt that was used least recently, of those that have pages; or
 * that has none, if that counts; not number `but`. -1: there is none. */
static int32_t least_used(const struct weft_gen_view *view, bool empty,
                          int32_t but)
{
    int32_t n = view->state->n_slots, least = -1;
    for (int32_t i = n; i < 2 * n; i++) {
        if (i == but || (view->slot[i].n_cached == 0 && !empty))
            continue;
        if (view->slot[i].n_cached == 0)
            return i;
        if (least < 0 || view->last_use[i - n] < view->last_use[least - n])
            least = i;
    }
    return least;
}

/* Whether a kept prompt has the first n tokens of the slot; it is used. */
static bool has_kept(const struct weft_gen_view *view, int32_t index,
                     int32_t n)
{
    int64_t room = view->state->max_total;
    int32_t slots = view->state->n_slots;
    for (int32_t i = slots; i < 2 * slots; i++)
        if (view->slot[i].head == view->slot[index].head
            && view->slot[i].n_cached >= n
            && weft_gen_n_common(view->token + i * room,
                                 view->token + index * room, n)
                   == n) {
            weft_gen_use_kept(view, i);
            return true;
        }
    return false;
}

void weft_gen_keep(const struct weft_gen_view *view, int32_t index)
{
    const struct weft_gen_slot *slot = &view->slot[index];
    int64_t room = view->state->max_total;
    int32_t n = weft_gen_worth(
        (int32_t) weft_min64(slot->n_prompt, slot->n_ready));
    if (n == 0 || has_kept(view, index, n))
        return;
    int32_t to = least_used(view, true, -1);
    weft_gen_free_pages(view, to);
    view->slot[to] = (struct weft_gen_slot){.sample = -1,
                                            .n_prompt = n,
                                            .n_total = n,
                                            .n_cached = n,
                                            .n_ready = n,
                                            .head = slot->head};
    memcpy(view->token + to * room, view->token + index * room,
           (size_t) n * sizeof *view->token);
    for (int32_t k = 0; k < weft_gen_pages_for(n); k++) {
        weft_gen_pages_of(view, to)[k] = weft_gen_pages_of(view, index)[k];
        weft_gen_count_user(view, to, weft_gen_pages_of(view, to)[k], 1);
    }
    weft_gen_use_kept(view, to);
}

/* ---- Pages that are wanted ------------------------------------------------ */

/* Frees the pages of a slot that has ended, which are there only to be taken
 * by others, or a kept prompt's; not those of slot `keep`. */
static bool reclaim(const struct weft_gen_view *view, int32_t keep)
{
    for (int32_t i = 0; i < view->state->n_slots; i++)
        if (view->slot[i].done && view->slot[i].n_cached > 0 && i != keep) {
            weft_gen_free_pages(view, i);
            return true;
        }
    int32_t least = least_used(view, false, keep);
    if (least >= 0)
        weft_gen_free_pages(view, least);
    return least >= 0;
}

bool weft_gen_has_free(const struct weft_gen_view *view, int32_t n,
                       int32_t keep)
{
    while (view->state->n_free < n && reclaim(view, keep))
        continue;
    return view->state->n_free >= n;
}

/* Takes the pages of the last in the order that has some and is not before
 * number `first` of it. */
static bool preempt(const struct weft_gen_view *view, int32_t first,
                    struct weft_gen_status *status)
{
    for (int32_t k = view->state->n_running; k-- > first;)
        if (view->slot[view->order[k]].n_cached > 0) {
            weft_gen_free_pages(view, view->order[k]);
            status->n_preempted++;
            return true;
        }
    return false;
}

bool weft_gen_extend(const struct weft_gen_view *view, int32_t at,
                     int32_t end, struct weft_gen_status *status)
{
    int32_t index = view->order[at];
    int32_t have = weft_gen_pages_for(view->slot[index].n_cached);
    int32_t more = weft_gen_pages_for(end) - have;
    while (!weft_gen_has_free(view, more, -1))
        if (!preempt(view, at + 1, status)) {
            preempt(view, at, status);
            return false;
        }
    for (; more > 0; more--)
        weft_gen_pages_of(view, index)[have++] = weft_gen_take_page(view);
    return true;
}

bool weft_gen_has_room(const struct weft_gen_view *view)
{
    int32_t n = 0;
    for (int32_t k = 0; k < view->state->n_running; k++) {
        const struct weft_gen_slot *slot = &view->slot[view->order[k]];
        if (!slot->done)
            n += weft_gen_pages_for(slot->n_total + 1)
               - weft_gen_pages_for(slot->n_cached);
    }
    return n <= view->state->n_free + view->state->n_idle;
}

/* ---- Steps ------------------------------------------------------------- */

void weft_gen_drop_ended(const struct weft_gen_view *view)
{
    struct weft_gen_state *state = view->state;
    int32_t n = 0;
    for (int32_t k = 0; k < state->n_running; k++) {
        const struct weft_gen_slot *slot = &view->slot[view->order[k]];
        if (slot->sample >= 0 && !slot->done)
            view->order[n++] = view->order[k];
    }
    state->n_running = n;
}

void weft_gen_fill(struct weft_gen_state *state, int32_t context,
                   int32_t room)
{
    struct weft_gen_view view = weft_gen_view_of(state);
    weft_gen_state_clear(state);
    for (int32_t i = 0; i < state->n_slots; i++) {
        view.slot[i] = (struct weft_gen_slot){.sample = i,
                                              .n_prompt = 1,
                                              .n_total = context,
                                              .n_cached = context - 1,
                                              .limit = context + room};
        view.order[state->n_running++] = i;
        for (int32_t p = 0; p < weft_gen_pages_for(context - 1); p++)
            weft_gen_pages_of(&view, i)[p] = weft_gen_take_page(&view);
    }
}

void weft_gen_copy_bytes(struct CUstream_st *stream, void *to,
                         const void *from, size_t bytes)
{
    if (WEFT_ON_GPU(stream))
        weft_k_copy_cuda(stream, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

void weft_gen_copy_pages(struct CUstream_st *stream, int32_t n,
                         const int32_t *copy, const struct weft_k_kv *kv,
                         size_t offset, size_t bytes)
{
    char *arena = (char *) kv->arena + offset;
    for (int32_t i = 0; i < n; i++)
        weft_gen_copy_bytes(
            stream, arena + (size_t) copy[2 * i + 1] * kv->page_bytes,
            arena + (size_t) copy[2 * i] * kv->page_bytes, bytes);
}
