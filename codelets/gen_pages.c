/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of an instance's KV cache, which its slots share. A slot has pages
 * for the tokens that are in the cache, and takes the next when it needs one.
 * The first admitted goes first: where no page is free, the slot admitted last
 * gives its own back and is read again later, prompt and response, as soon as
 * there are pages for all of it; nobody who came later starts before. So the
 * first always goes on, and no order of events can stop all.
 *
 * Slots whose prompts begin alike have the pages of the common tokens in
 * common: who is read later takes those of who was read before, and a copy of
 * the last one where they part inside of it, as it will write there. Only
 * prompts are compared, so that what happens depends on prompts and lengths
 * alone, and a recording that knows these sees the same.
 */
#include <string.h>

#include "base/hash.h"
#include "codelets/gen.h"
#include "kern/kern_cuda.h"

enum {
    PAGE = WEFT_PAGE_TOKENS,
    LEAST_COPIED = 8 /* rows that a copied page must save at least */
};

static int32_t pages_for(int32_t n_tokens)
{
    return (int32_t) weft_ceil_div(n_tokens, PAGE);
}

static int32_t *pages_of(const struct weft_gen_view *view, int32_t slot)
{
    return view->page + (int64_t) slot * view->state->pages_per_slot;
}

static int32_t take_page(const struct weft_gen_view *view)
{
    int32_t page = view->free_page[--view->state->n_free];
    weft_assert(view->n_users[page] == 0);
    view->n_users[page] = 1;
    return page;
}

void weft_gen_free_pages(const struct weft_gen_view *view, int32_t index)
{
    struct weft_gen_slot *slot = &view->slot[index];
    const int32_t *page = pages_of(view, index);
    int32_t n = pages_for(slot->n_cached);
    for (int32_t i = 0; i < n; i++)
        if (--view->n_users[page[i]] == 0)
            view->free_page[view->state->n_free++] = page[i];
    slot->n_cached = slot->n_ready = 0;
}

/* Frees the pages of a slot that has ended, which are there only to be taken
 * by others; not those of slot `keep`. */
static bool reclaim(const struct weft_gen_view *view, int32_t keep)
{
    for (int32_t i = 0; i < view->state->n_slots; i++)
        if (view->slot[i].done && view->slot[i].n_cached > 0 && i != keep) {
            weft_gen_free_pages(view, i);
            return true;
        }
    return false;
}

static bool has_free(const struct weft_gen_view *view, int32_t n,
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
    int32_t have = pages_for(view->slot[index].n_cached);
    int32_t more = pages_for(end) - have;
    while (!has_free(view, more, -1))
        if (!preempt(view, at + 1, status)) {
            preempt(view, at, status);
            return false;
        }
    for (; more > 0; more--)
        pages_of(view, index)[have++] = take_page(view);
    return true;
}

bool weft_gen_has_room(const struct weft_gen_view *view)
{
    int32_t n = 0;
    for (int32_t k = 0; k < view->state->n_running; k++) {
        const struct weft_gen_slot *slot = &view->slot[view->order[k]];
        if (!slot->done)
            n += pages_for(slot->n_total + 1) - pages_for(slot->n_cached);
    }
    return n <= view->state->n_free;
}

/* ---- Common prefixes --------------------------------------------------- */

struct prefix {
    int32_t slot, n; /* whose first n tokens can be taken now */
    int32_t later;   /* how many can when those before have been read */
};

/* Of n tokens that can be taken, those that pay. */
static int32_t worth(int32_t n)
{
    return n % PAGE < LEAST_COPIED ? n - n % PAGE : n;
}

/* Of a prefix that pays there are LEAST_COPIED tokens at least. */
uint16_t weft_gen_head(const int32_t *token, int32_t n_prompt)
{
    size_t n = (size_t) weft_min64(n_prompt, LEAST_COPIED);
    return (uint16_t) weft_hash64(token, n * sizeof *token);
}

/* How many of n tokens are the same, from the first on. */
static int32_t n_common(const int32_t *x, const int32_t *y, int64_t n)
{
    enum { BLOCK = 64 };
    int32_t i = 0;
    while (i + BLOCK <= n && memcmp(x + i, y + i, BLOCK * sizeof *x) == 0)
        i += BLOCK;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

/* Compares slot `from`. The last token's row is computed in any case, as the
 * next is drawn from it. */
static void compare(const struct weft_gen_view *view, int32_t from,
                    int32_t index, bool is_before, struct prefix *best)
{
    const struct weft_gen_slot *a = &view->slot[from];
    const struct weft_gen_slot *b = &view->slot[index];
    int64_t room = view->state->max_total;
    const int32_t *x = view->token + from * room;
    const int32_t *y = view->token + index * room;
    int64_t most = weft_min64(weft_min64(a->n_prompt, b->n_prompt),
                              b->n_total - 1);
    int32_t n = n_common(x, y, most);
    int32_t now = worth((int32_t) weft_min64(n, a->n_ready));
    if (now > best->n) {
        best->n = now;
        best->slot = from;
    }
    if (is_before && worth(n) > best->later)
        best->later = worth(n);
}

static struct prefix find(const struct weft_gen_view *view, int32_t at)
{
    struct prefix best = {.slot = -1};
    const struct weft_gen_slot *slot = view->slot;
    int32_t index = view->order[at];
    uint16_t head = slot[index].head;
    for (int32_t k = 0; k < view->state->n_running; k++) {
        int32_t i = view->order[k];
        if (slot[i].head == head
            && (k < at || (k > at && slot[i].n_ready > 0)))
            compare(view, i, index, k < at, &best);
    }
    for (int32_t i = 0; i < view->state->n_slots; i++)
        if (slot[i].head == head && slot[i].done && slot[i].n_ready > 0)
            compare(view, i, index, false, &best);
    return best;
}

static uint8_t *alike(struct weft_gen_starts *starts, uint16_t head)
{
    return &starts->alike[head % WEFT_COUNT(starts->alike)];
}

/* Whether another slot may begin as this one does. */
static bool has_alike(const struct weft_gen_view *view, int32_t index,
                      struct weft_gen_starts *starts)
{
    const struct weft_gen_slot *slot = view->slot;
    for (int32_t i = 0; i < view->state->n_slots && !starts->counted; i++) {
        uint8_t *n = alike(starts, slot[i].head);
        if (slot[i].sample >= 0)
            *n = *n > 0 ? 2 : 1;
    }
    starts->counted = true;
    return *alike(starts, slot[index].head) > 1;
}

static void share(const struct weft_gen_view *view, int32_t index,
                  const struct prefix *prefix, struct weft_gen_status *status)
{
    const int32_t *from = pages_of(view, prefix->slot);
    int32_t *page = pages_of(view, index), n = prefix->n / PAGE;
    for (int32_t k = 0; k < n; k++) {
        page[k] = from[k];
        view->n_users[page[k]]++;
    }
    if (prefix->n % PAGE > 0) {
        int32_t *copy = view->copy + 2 * view->state->n_copies++;
        copy[0] = from[n];
        copy[1] = page[n] = take_page(view);
    }
    view->slot[index].n_cached = prefix->n;
    status->n_shared += prefix->n;
}

bool weft_gen_start(const struct weft_gen_view *view, bool sharing,
                    int32_t at, struct weft_gen_starts *starts,
                    struct weft_gen_status *status)
{
    int32_t index = view->order[at];
    struct prefix prefix = {.slot = -1};
    if (starts->waits)
        return false;
    if (sharing && has_alike(view, index, starts))
        prefix = find(view, at);
    if (prefix.later > prefix.n)
        return false;
    int32_t n = pages_for(view->slot[index].n_total + 1) - prefix.n / PAGE;
    starts->waits = !has_free(view, n, prefix.slot);
    if (!starts->waits && prefix.n > 0)
        share(view, index, &prefix, status);
    return !starts->waits;
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
        for (int32_t p = 0; p < pages_for(context - 1); p++)
            pages_of(&view, i)[p] = take_page(&view);
    }
}

static void copy_bytes(struct CUstream_st *stream, void *to, const void *from,
                       size_t bytes)
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
        copy_bytes(stream, arena + (size_t) copy[2 * i + 1] * kv->page_bytes,
                   arena + (size_t) copy[2 * i] * kv->page_bytes, bytes);
}
