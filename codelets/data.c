/* SPDX-License-Identifier: Apache-2.0 */
#include "codelets/data.h"

/* Reserves n elements of `size` bytes, aligned to 8; returns their offset. */
static size_t take(size_t *bytes, int64_t n, size_t size)
{
    size_t at = *bytes;
    *bytes += (size_t) weft_round_up(n * (int64_t) size, 8);
    return at;
}

void weft_batch_layout(int32_t n_rows, int32_t n_runs, int32_t n_targets,
                       bool columns, struct weft_batch *out)
{
    struct weft_batch b = {.n_rows = n_rows,
                           .n_runs = n_runs,
                           .n_targets = n_targets,
                           .has_columns = columns,
                           .bytes = sizeof b};
    int32_t n = columns ? n_targets : 0;
    b.run = take(&b.bytes, n_runs, sizeof(struct weft_k_run));
    b.token = take(&b.bytes, n_rows, 4);
    b.run_targets = take(&b.bytes, n_runs, 4);
    b.row = take(&b.bytes, n_targets, 4);
    b.target = take(&b.bytes, n_targets, 4);
    b.weight = take(&b.bytes, n_runs, 4);
    b.label = take(&b.bytes, n_runs, 4);
    b.old_logp = take(&b.bytes, n, 4);
    b.ref_logp = take(&b.bytes, n, 4);
    b.advantage = take(&b.bytes, n, 4);
    b.ret = take(&b.bytes, n, 4);
    b.old_value = take(&b.bytes, n, 4);
    *out = b;
}

void weft_step_layout(int32_t n_rows, int32_t n_slots, int32_t pages_per_slot,
                      struct weft_batch *out)
{
    struct weft_batch b;
    weft_batch_layout(n_rows, n_slots, n_slots, false, &b);
    b.pages_per_slot = pages_per_slot;
    b.page = take(&b.bytes, (int64_t) n_slots * pages_per_slot, 4);
    b.copy = take(&b.bytes, (int64_t) n_slots * 2, 4);
    b.key = take(&b.bytes, (int64_t) n_slots * 4, 4);
    b.bytes = (size_t) weft_round_up((int64_t) b.bytes, 64);
    *out = b;
}

int32_t weft_gen_most_pages(int32_t n_slots, int32_t max_total)
{
    return n_slots * (int32_t) weft_ceil_div(max_total, WEFT_PAGE_TOKENS);
}

void weft_gen_state_layout(int32_t n_slots, int32_t max_total,
                           int32_t n_pages, struct weft_gen_state *out)
{
    struct weft_gen_state s = {
        .n_slots = n_slots,
        .max_total = max_total,
        .pages_per_slot = (int32_t) weft_ceil_div(max_total,
                                                  WEFT_PAGE_TOKENS),
        .n_pages = n_pages,
        .bytes = sizeof s,
    };
    int64_t cells = (int64_t) n_slots * max_total;
    s.slot = take(&s.bytes, 2 * (int64_t) n_slots,
                  sizeof(struct weft_gen_slot));
    s.order = take(&s.bytes, n_slots, 4);
    s.page = take(&s.bytes, 2 * (int64_t) n_slots * s.pages_per_slot, 4);
    s.n_users = take(&s.bytes, n_pages, 4);
    s.n_keepers = take(&s.bytes, n_pages, 4);
    s.free_page = take(&s.bytes, n_pages, 4);
    s.last_use = take(&s.bytes, n_slots, 4);
    s.copy = take(&s.bytes, (int64_t) n_slots * 2, 4);
    s.token = take(&s.bytes, 2 * cells, 4);
    s.logp = take(&s.bytes, cells, 4);
    *out = s;
}

void weft_gen_state_clear(struct weft_gen_state *state)
{
    struct weft_gen_slot *slot = (void *) ((char *) state + state->slot);
    int32_t *free_page = (void *) ((char *) state + state->free_page);
    int32_t *n_users = (void *) ((char *) state + state->n_users);
    int32_t *n_keepers = (void *) ((char *) state + state->n_keepers);
    for (int32_t i = 0; i < 2 * state->n_slots; i++)
        slot[i] = (struct weft_gen_slot){.sample = -1};
    state->n_running = state->n_copies = 0;
    state->n_idle = state->n_uses = 0;
    state->n_free = state->n_pages;
    for (int32_t i = 0; i < state->n_pages; i++) {
        free_page[i] = state->n_pages - 1 - i;
        n_users[i] = n_keepers[i] = 0;
    }
}

size_t weft_layer_saved_bytes(const struct weft_shape *shape, int64_t n_rows)
{
    return weft_k_layer_saved_bytes(shape, n_rows);
}

size_t weft_kv_page_bytes(const struct weft_shape *shape)
{
    return weft_k_kv_page_bytes(shape, shape->n_layers);
}
