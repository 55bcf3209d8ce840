/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of decode steps of one instance: continuous batching over slots
 * with a paged KV cache. A step takes one row of every running sequence, and
 * up to prefill_tokens rows of prompts that are still being read; rows are
 * independent, so which sequences share a step changes no number.
 */
#include <string.h>

#include "base/alloc.h"
#include "codelets/bag.h"
#include "codelets/head.h"
#include "rt/codelet.h"

struct admit {
    int32_t slot, sample, n_prompt, limit;
};

/* Followed by admit[n_admit], then their tokens one after another. */
struct chunk_args {
    const struct weft_shape *shape;
    struct weft_gen_args gen;
    int32_t n_admit;
};

/* One step's rows, and what the kernels read and write. */
struct step {
    const struct chunk_args *args;
    struct weft_gen_state *state;
    struct weft_gen_slot *slot;
    int32_t *page, *free_page, *token;
    float *logp;
    void *arena;
    size_t page_bytes;
    void *const *embed, *const *layer; /* weight buffers in order */
    struct weft_k_head head;
    struct weft_k_run *run; /* (n_slots) */
    int32_t *row_token;     /* (max_rows) */
    int32_t *sampled;       /* (n_slots) slots that get a token */
    float *x, *last, *logits;
    void *scratch;
    int32_t n_runs, n_rows, n_sampled;
};

static void admit(struct step *s)
{
    const struct admit *a = (const void *) (s->args + 1);
    const int32_t *token = (const int32_t *) (a + s->args->n_admit);
    for (int32_t i = 0; i < s->args->n_admit; token += a[i++].n_prompt) {
        s->slot[a[i].slot] = (struct weft_gen_slot){
            .sample = a[i].sample,
            .n_prompt = a[i].n_prompt,
            .n_total = a[i].n_prompt,
            .limit = a[i].limit,
        };
        int64_t at = (int64_t) a[i].slot * s->state->max_total;
        memcpy(s->token + at, token, (size_t) a[i].n_prompt * 4);
        memset(s->logp + at, 0, (size_t) a[i].n_prompt * 4);
    }
}

/* Pages for positions up to `end`; false when the arena has none left. */
static bool take_pages(struct step *s, int32_t slot, int32_t pos, int32_t end)
{
    int32_t *page = s->page + (int64_t) slot * s->state->pages_per_slot;
    int32_t have = (int32_t) weft_ceil_div(pos, WEFT_PAGE_TOKENS);
    for (; have * WEFT_PAGE_TOKENS < end; have++) {
        if (s->state->n_free == 0)
            return false;
        page[have] = s->free_page[--s->state->n_free];
        memset((char *) s->arena + (size_t) page[have] * s->page_bytes, 0,
               s->page_bytes);
    }
    return true;
}

/* Chooses the rows of a step; false when nothing is left to do. */
static int plan_step(struct step *s, struct weft_gen_status *status,
                     struct weft_exec *x)
{
    int32_t budget = s->args->gen.prefill_tokens;
    s->n_runs = s->n_rows = s->n_sampled = 0;
    for (int32_t i = 0; i < s->state->n_slots; i++) {
        struct weft_gen_slot *slot = &s->slot[i];
        if (slot->sample < 0 || slot->done)
            continue;
        int32_t rest = slot->n_total - slot->n_cached;
        int32_t n = rest == 1 ? 1 : (int32_t) weft_min64(rest, budget);
        if (n == 0)
            continue;
        if (!take_pages(s, i, slot->n_cached, slot->n_cached + n))
            return weft_err_set(weft_exec_err(x), WEFT_ENOMEM,
                                "the KV arena has no free page");
        if (rest > 1) {
            budget -= n;
            status->n_prefilled += n;
        }
        s->run[s->n_runs++] = (struct weft_k_run){i, slot->n_cached, n};
        memcpy(s->row_token + s->n_rows,
               s->token + (int64_t) i * s->state->max_total + slot->n_cached,
               (size_t) n * 4);
        s->n_rows += n;
        slot->n_cached += n;
        if (n == rest)
            s->sampled[s->n_sampled++] = i;
    }
    return 0;
}

static void forward(struct step *s)
{
    const struct weft_shape *shape = s->args->shape;
    struct weft_k_batch batch = {s->n_rows, s->n_runs, s->run, s->row_token};
    struct weft_k_kv kv = {s->arena, s->page_bytes, s->page,
                           s->state->pages_per_slot};
    int per_layer = shape->n_blocks + 1;
    weft_k_embed(shape, (const void *const *) s->embed, s->n_rows,
                 s->row_token, s->x);
    for (int32_t l = 0; l < shape->n_layers; l++) {
        void *const *buf = s->layer + (size_t) l * (size_t) per_layer;
        struct weft_k_layer weights = {.norms = buf[shape->n_blocks]};
        for (int b = 0; b < shape->n_blocks; b++)
            weights.fwd[b] = buf[b];
        weft_k_layer_forward(shape, &weights, l, &batch, &kv, s->x, s->x,
                             NULL, s->scratch);
    }
    int32_t row = 0, n = 0; /* the last row of runs that reached the end */
    for (int32_t r = 0; r < s->n_runs; r++) {
        row += s->run[r].n;
        if (n < s->n_sampled && s->sampled[n] == s->run[r].slot)
            memcpy(s->last + (int64_t) n++ * shape->hidden,
                   s->x + (int64_t) (row - 1) * shape->hidden,
                   (size_t) shape->hidden * sizeof(float));
    }
}

static int sample(struct step *s, struct weft_exec *x)
{
    const struct weft_shape *shape = s->args->shape;
    const struct weft_gen_args *gen = &s->args->gen;
    weft_k_head_logits(shape, &s->head, s->n_sampled, s->last, s->logits,
                       s->scratch);
    for (int32_t i = 0; i < s->n_sampled; i++) {
        struct weft_gen_slot *slot = &s->slot[s->sampled[i]];
        int64_t at = (int64_t) s->sampled[i] * s->state->max_total
                   + slot->n_total;
        int32_t token = weft_k_sample(
            shape, &gen->sampling, s->logits + (int64_t) i * shape->vocab,
            (uint32_t) gen->iteration,
            (uint32_t) (gen->first_sample + slot->sample),
            (uint32_t) slot->n_total, &s->logp[at], s->scratch);
        if (token < 0)
            return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC,
                                "sample %d: the logits of token %d are not "
                                "finite numbers",
                                slot->sample, slot->n_total);
        s->token[at] = token;
        slot->n_total++;
        for (int32_t k = 0; k < gen->n_stop; k++)
            if (token == gen->stop[k])
                slot->done = 1;
        if (!slot->done && slot->n_total >= slot->limit)
            slot->done = 2;
    }
    return 0;
}

static void *carve(char **at, size_t bytes)
{
    void *p = *at;
    *at += (bytes + 63) / 64 * 64;
    return p;
}

static int step_init(struct step *s, void *const buf[], struct weft_exec *x)
{
    const struct weft_shape *shape = s->args->shape;
    struct weft_gen_state *state = s->state = buf[0];
    int64_t n = state->n_slots, rows = n + s->args->gen.prefill_tokens;
    int64_t h = shape->hidden, v = shape->vocab;
    struct weft_take take = {buf, 3 + shape->n_blocks};

    s->slot = (void *) ((char *) state + state->slot);
    s->page = (void *) ((char *) state + state->page);
    s->free_page = (void *) ((char *) state + state->free_page);
    s->token = (void *) ((char *) state + state->token);
    s->logp = (void *) ((char *) state + state->logp);
    s->arena = buf[1];
    s->page_bytes = weft_kv_page_bytes(shape);
    s->embed = buf + 3;
    s->layer = buf + take.next;
    take.next += shape->n_layers * (shape->n_blocks + 1);
    weft_head_take(&take, shape, false, &s->head);

    /* the layers' scratch for the largest step a chunk can have: rows of
     * every slot at its longest */
    struct weft_k_run *worst = weft_alloc((size_t) n, sizeof *worst);
    if (!worst)
        return weft_err_nomem(weft_exec_err(x), "a decode step",
                              (size_t) n * sizeof *worst);
    for (int64_t i = 0; i < n; i++)
        worst[i] = (struct weft_k_run){(int32_t) i, state->max_total - 1, 1};
    worst[0].n = (int32_t) (rows - n + 1);
    worst[0].pos = (int32_t) weft_max64(state->max_total - worst[0].n, 0);
    struct weft_k_batch batch = {(int32_t) rows, (int32_t) n, worst, NULL};
    size_t layer = weft_k_layer_forward_scratch_bytes(shape, &batch);
    weft_free(worst);
    size_t head = weft_k_head_scratch_bytes(shape, (int32_t) n);
    size_t most = (size_t) weft_max64(
        weft_max64((int64_t) layer, (int64_t) head), v * 8);
    size_t bytes = (size_t) (n * (int64_t) sizeof *s->run + rows * 4 + n * 4
                             + (rows + n) * h * 4 + n * v * 4)
                 + 7 * 64;
    char *at = weft_exec_scratch(x, bytes + most);
    if (!at)
        return WEFT_ENOMEM;
    s->run = carve(&at, (size_t) n * sizeof *s->run);
    s->row_token = carve(&at, (size_t) rows * 4);
    s->sampled = carve(&at, (size_t) n * 4);
    s->x = carve(&at, (size_t) (rows * h) * 4);
    s->last = carve(&at, (size_t) (n * h) * 4);
    s->logits = carve(&at, (size_t) (n * v) * 4);
    s->scratch = at;
    return 0;
}

static int gen_chunk_cpu(const void *args, void *const buf[], int n_buf,
                         struct weft_exec *x)
{
    (void) n_buf;
    struct step s = {.args = args};
    struct weft_gen_status *status = buf[2];
    int rc = step_init(&s, buf, x);
    if (rc)
        return rc;
    *status = (struct weft_gen_status){.n_slots = s.state->n_slots};
    admit(&s);
    for (int32_t i = 0; i < s.args->gen.n_steps; i++) {
        rc = plan_step(&s, status, x);
        if (rc || s.n_rows == 0)
            break;
        forward(&s);
        status->n_decoded += s.n_sampled;
        if (s.n_sampled > 0 && (rc = sample(&s, x)))
            break;
    }
    memcpy(status + 1, s.slot, (size_t) s.state->n_slots * sizeof *s.slot);
    return rc;
}

WEFT_CODELET(gen_chunk, 0x66bb6a, gen_chunk_cpu)

void weft_insert_gen_chunk(struct weft_seq *seq,
                           const struct weft_where *where,
                           const struct weft_shape *shape,
                           const struct weft_params *fwd,
                           const struct weft_gen_args *gen, int32_t n_admit,
                           const struct weft_gen_admit *admit_,
                           struct weft_tile *state, struct weft_tile *arena,
                           struct weft_tile *status)
{
    size_t bytes = sizeof(struct chunk_args);
    for (int32_t i = 0; i < n_admit; i++)
        bytes += sizeof(struct admit) + (size_t) admit_[i].n_prompt * 4;
    struct chunk_args *args = weft_alloc(1, bytes);
    if (!args) {
        weft_seq_fail(seq, WEFT_ENOMEM, "out of memory admitting %d prompts",
                      n_admit);
        return;
    }
    args->shape = shape;
    args->gen = *gen;
    args->n_admit = n_admit;
    struct admit *a = (void *) (args + 1);
    int32_t *token = (int32_t *) (a + n_admit);
    for (int32_t i = 0; i < n_admit; token += admit_[i++].n_prompt) {
        a[i] = (struct admit){admit_[i].slot, admit_[i].sample,
                              admit_[i].n_prompt, admit_[i].limit};
        memcpy(token, admit_[i].token, (size_t) admit_[i].n_prompt * 4);
    }
    struct weft_bag bag;
    weft_bag_init(&bag);
    weft_bag_add(&bag, state, WEFT_READ_WRITE);
    weft_bag_add(&bag, arena, WEFT_READ_WRITE);
    weft_bag_add(&bag, status, WEFT_WRITE);
    weft_bag_add_blocks(&bag, fwd->embed, WEFT_READ);
    for (int32_t l = 0; l < shape->n_layers; l++)
        weft_bag_add_layer(&bag, &fwd->layer[l], WEFT_READ);
    weft_bag_add_layer(&bag, &fwd->head, WEFT_READ);
    weft_bag_insert(&bag, seq, where, &weft_cl_gen_chunk, args, bytes);
    weft_free(args);
}
