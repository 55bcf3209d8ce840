/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots whose prompts begin alike have the pages of the common tokens in
 * common: who is read later takes those of who was read before, and a copy of
 * the last one where they part inside of it, as it will write there. Only
 * prompts are compared, those of samples in slots and those that were kept, so
 * that what happens depends on prompts and lengths alone, and a recording that
 * knows these sees the same.
 */
#include <string.h>

#include "base/hash.h"
#include "codelets/gen_pages.h"

enum {
    PAGE = WEFT_PAGE_TOKENS,
    LEAST_COPIED = 8 /* rows that a copied page must save at least */
};

int32_t weft_gen_worth(int32_t n)
{
    return n % PAGE < LEAST_COPIED ? n - n % PAGE : n;
}

int32_t weft_gen_n_common(const int32_t *x, const int32_t *y, int64_t n)
{
    enum { BLOCK = 64 };
    int32_t i = 0;
    while (i + BLOCK <= n && memcmp(x + i, y + i, BLOCK * sizeof *x) == 0)
        i += BLOCK;
    while (i < n && x[i] == y[i])
        i++;
    return i;
}

struct prefix {
    int32_t slot, n; /* whose first n tokens can be taken now */
    int32_t later;   /* how many can when those before have been read */
};

/* Of a prefix that pays there are LEAST_COPIED tokens at least. */
uint16_t weft_gen_head(const int32_t *token, int32_t n_prompt)
{
    size_t n = (size_t) weft_min64(n_prompt, LEAST_COPIED);
    return (uint16_t) weft_hash64(token, n * sizeof *token);
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
    int32_t n = weft_gen_n_common(x, y, most);
    int32_t now = weft_gen_worth((int32_t) weft_min64(n, a->n_ready));
    if (now > best->n) {
        best->n = now;
        best->slot = from;
    }
    if (is_before && weft_gen_worth(n) > best->later)
        best->later = weft_gen_worth(n);
}

static struct prefix find(const struct weft_gen_view *view, int32_t at)
{
    struct prefix best = {.slot = -1};
    const struct weft_gen_slot *slot = view->slot;
    int32_t index = view->order[at];
    uint16_t head = slot[index].head;
    int32_t n_slots = view->state->n_slots;
    for (int32_t k = 0; k < view->state->n_running; k++) {
        int32_t i = view->order[k];
        if (slot[i].head == head
            && (k < at || (k > at && slot[i].n_ready > 0)))
            compare(view, i, index, k < at, &best);
    }
    for (int32_t i = 0; i < n_slots; i++)
        if (slot[i].head == head && slot[i].done && slot[i].n_ready > 0)
            compare(view, i, index, false, &best);
    for (int32_t i = n_slots; i < 2 * n_slots; i++)
        if (slot[i].head == head && slot[i].n_ready > 0)
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
    int32_t n_all = 2 * view->state->n_slots;
    for (int32_t i = 0; i < n_all && !starts->counted; i++) {
        uint8_t *n = alike(starts, slot[i].head);
        if (slot[i].sample >= 0 || slot[i].n_cached > 0)
            *n = *n > 0 ? 2 : 1;
    }
    starts->counted = true;
    return *alike(starts, slot[index].head) > 1;
}

static void share(const struct weft_gen_view *view, int32_t index,
                  const struct prefix *prefix, struct weft_gen_status *status)
{
    const int32_t *from = weft_gen_pages_of(view, prefix->slot);
    int32_t *page = weft_gen_pages_of(view, index), n = prefix->n / PAGE;
    for (int32_t k = 0; k < n; k++) {
        page[k] = from[k];
        weft_gen_count_user(view, index, page[k], 1);
    }
    if (prefix->n % PAGE > 0) {
        int32_t *copy = view->copy + 2 * view->state->n_copies++;
        copy[0] = from[n];
        copy[1] = page[n] = weft_gen_take_page(view);
    }
    view->slot[index].n_cached = prefix->n;
    weft_gen_use_kept(view, prefix->slot);
    status->n_shared += prefix->n;
}

/* Has the whole pages of a kept prompt, then all others of it can go, too. */
static bool start_without_rest(const struct weft_gen_view *view,
                               int32_t index, struct prefix prefix,
                               struct weft_gen_status *status)
{
    prefix.n -= prefix.n % PAGE;
    share(view, index, &prefix, status);
    int32_t n = weft_gen_pages_for(view->slot[index].n_total + 1)
              - prefix.n / PAGE;
    if (weft_gen_has_free(view, n, -1))
        return true;
    weft_gen_free_pages(view, index);
    status->n_shared -= prefix.n;
    return false;
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
    int32_t n = weft_gen_pages_for(view->slot[index].n_total + 1)
              - prefix.n / PAGE;
    starts->waits = !weft_gen_has_free(view, n, prefix.slot);
    if (!starts->waits && prefix.n > 0)
        share(view, index, &prefix, status);
    if (starts->waits && prefix.slot >= view->state->n_slots)
        starts->waits = !start_without_rest(view, index, prefix, status);
    return !starts->waits;
}
