/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of an instance on CPU devices and on GPUs: what they end with, and
 * what emulated cards counted meanwhile. */
#ifndef WEFT_TESTS_CHUNKS_FIXTURE_H
#define WEFT_TESTS_CHUNKS_FIXTURE_H

#include "../codelets/gpus_fixture.h"
#include "../cuda/cpu_bits.h"
#include "generate_fixture.h"

enum {
    SLOTS = 4,
    STEPS = 7,
    CHUNKS = 5,
    MAX_TOTAL = 150,
    PREFILL = 30,
    MOST_PREFILL = 63
};

static struct task_fixture f;
/* Slot i's prompt is n[i] tokens of a text, from number from[i] on. */
struct prompts {
    int32_t n[SLOTS], from[SLOTS];
};
static const struct prompts mixed = {{1, 20, 39, 58}, {0, 1, 2, 3}},
                            alike = {{70, 70, 70, 70}, {0, 0, 0, 0}},
                            shortest = {{1, 1, 1, 1}, {0, 1, 2, 3}};
static const struct prompts *prompts = &mixed;
static int32_t most_prefill = MOST_PREFILL;
static int32_t tp = 1;           /* of instances on GPUs */
static bool has_one_temperature; /* all steps are the same graph's */
static bool ends_short;          /* the last chunk has fewer steps */

/* What an instance ends with; status: the sums of all chunks. */
struct outcome {
    struct weft_gen_slot slot[SLOTS];
    int32_t token[SLOTS * MAX_TOTAL];
    float logp[SLOTS * MAX_TOTAL];
    struct weft_gen_status chunk[CHUNKS];
};

static const struct weft_gen_args generation = {.sampling = {1, 0, 1, 13},
                                                .iteration = 3,
                                                .n_steps = STEPS,
                                                .prefill_tokens = PREFILL,
                                                .min_new_tokens = 2,
                                                .n_stop = 2,
                                                .stop = {5, 200}};

/* Texts that end many responses: a token is one letter. */
static inline const struct weft_stop_texts *stop_texts(void)
{
    enum { TOKENS = 270 };
    static char bytes[TOKENS];
    static int64_t at[TOKENS + 1];
    static const struct weft_stop_texts texts = {.text = {"ba", "dd", "c"},
                                                 .bytes = bytes,
                                                 .at = at,
                                                 .n = 3,
                                                 .n_tokens = TOKENS};
    for (int i = 0; i < TOKENS; i++) {
        bytes[i] = (char) ('a' + i % 31);
        at[i + 1] = i + 1;
    }
    return &texts;
}

static inline void chunk(struct weft_g_generate *gen,
                         const struct weft_g_view *view, int32_t number,
                         const struct weft_gen_args *args,
                         struct outcome *out)
{
    struct weft_gen_admit admit[SLOTS];
    int32_t text[MAX_TOTAL];
    for (int i = 0; i < MAX_TOTAL; i++)
        text[i] = (i * 29 + 3) % 270;
    for (int i = 0; i < SLOTS; i++) { /* one ends by its limit, early */
        int32_t n = prompts->n[i];
        admit[i] = (struct weft_gen_admit){i, 20 + i, n,
                                           n - 1 + i + (i == 1 ? 5 : 40),
                                           text + prompts->from[i]};
    }
    struct weft_gen_args own = *args; /* a graph is of one temperature */
    own.sampling.temperature = number % 2 && !has_one_temperature ? 0.5f : 1;
    own.most_steps = args->n_steps;
    if (ends_short && number == CHUNKS - 1)
        own.n_steps = 2;
    struct weft_tile *status =
        gen->instance[0].status[gen->instance[0].n_chunks % 2];
    weft_g_generate_chunk(seq, gen, view, 0, &own, number == 0 ? SLOTS : 0,
                          admit);
    must_wait();
    out->chunk[number] = *(const struct weft_gen_status *) weft_tile_acquire(
        status, WEFT_READ);
    weft_tile_unacquire(status);
}

struct counts {
    int64_t n_waits, n_instances, n_graphs, n_nodes, n_pinned;
};
/* While the last chunks ran, by card; n_nodes: at their end. */
static struct counts counted[CARDS];

static inline void count(bool begin)
{
#ifdef WEFT_CUDA_EXECUTOR
    int64_t sign = begin ? -1 : 1;
    for (int i = 0; i < CARDS; i++) {
        struct weft_cards_counts c = weft_cards_counts(i);
        struct counts *n = &counted[i];
        if (begin)
            *n = (struct counts){0};
        n->n_waits += sign * c.n_waits;
        n->n_instances += sign * c.n_instances;
        n->n_graphs += sign * c.n_graphs;
        n->n_pinned += sign * c.n_pinned;
        n->n_nodes = c.n_nodes;
    }
#else /* a card does not tell */
    (void) begin;
    memset(counted, 0, sizeof counted);
#endif
}

/* All chunks of an instance, with the weights that the model has now. */
static inline void iterate(struct weft_g_generate *gen,
                           const struct weft_gen_args *args,
                           struct outcome *out)
{
    struct weft_g_view view;
    struct weft_err err;
    REQUIRE_OK(weft_g_view_open(f.seq, &anywhere, &f.model, &gen->layout,
                                &view, &err),
               err);
    weft_rollout_reset(gen);
    must_wait();
    count(true);
    for (int32_t i = 0; i < CHUNKS; i++)
        chunk(gen, &view, i, args, out);
    count(false);
    const struct weft_gen_state *s = weft_tile_acquire(gen->instance[0].state,
                                                       WEFT_READ);
    memcpy(out->slot, (const char *) s + s->slot, sizeof out->slot);
    memcpy(out->token, (const char *) s + s->token, sizeof out->token);
    memcpy(out->logp, (const char *) s + s->logp, sizeof out->logp);
    weft_tile_unacquire(gen->instance[0].state);
    weft_g_view_close(&view);
}

static inline void open_instance(int32_t device, int32_t pp,
                                 int32_t kv_blocks,
                                 struct weft_g_generate *gen)
{
    struct weft_g_layout layout = layout_on(
        &f.model.shape, device, 1, device < weft_rt_n_gpus(rt) ? tp : 1, pp);
    struct weft_err err;
    REQUIRE_OK(weft_g_generate_init(&f.model, &layout, 1, SLOTS, MAX_TOTAL,
                                    most_prefill, kv_blocks, gen, &err),
               err);
    weft_g_layout_release(&layout);
    spoil_caches(gen);
}

/* A CPU device's log-probs of an outcome's texts are near those of a GPU in
 * f32: to 1e-5, at the temperature of even chunks or of odd ones. */
static inline void check_near_cpu(const struct outcome *o)
{
    static struct text text[SLOTS];
    static float logp[2][N][NEW];
    struct weft_g_layout cpu = layout_on(&f.model.shape, weft_rt_n_gpus(rt),
                                         1, 1, 1);
    for (int i = 0; i < SLOTS; i++) {
        text[i].n_prompt = o->slot[i].n_prompt;
        text[i].n_total = o->slot[i].n_total;
        memcpy(text[i].token, o->token + i * MAX_TOTAL, MAX_TOTAL * 4);
    }
    for (int odd = 0; odd < 2; odd++)
        score(&f, &cpu, SLOTS, text, odd ? 0.5f : 1, logp[odd]);
    weft_g_layout_release(&cpu);
    for (int i = 0; i < SLOTS; i++)
        for (int32_t k = text[i].n_prompt; k < text[i].n_total; k++) {
            int32_t at = k - text[i].n_prompt;
            float got = o->logp[i * MAX_TOTAL + k];
            CHECK(fabsf(got - logp[0][i][at]) <= 1e-5f
                  || fabsf(got - logp[1][i][at]) <= 1e-5f);
        }
}

static inline void compare(const struct outcome *a, const struct outcome *b)
{
    for (int i = 0; i < SLOTS; i++) {
        size_t n = (size_t) a->slot[i].n_total * 4,
               at = (size_t) i * MAX_TOTAL;
        CHECK_INT(a->slot[i].sample, b->slot[i].sample);
        CHECK_INT(a->slot[i].n_total, b->slot[i].n_total);
        CHECK_INT(a->slot[i].done, b->slot[i].done);
        CHECK(memcmp(a->token + at, b->token + at, n) == 0);
        CHECK(memcmp(a->logp + at, b->logp + at, n) == 0);
    }
    for (int i = 0; i < CHUNKS; i++) {
        CHECK_INT(a->chunk[i].n_decoded, b->chunk[i].n_decoded);
        CHECK_INT(a->chunk[i].n_prefilled, b->chunk[i].n_prefilled);
        CHECK_INT(a->chunk[i].n_preempted, b->chunk[i].n_preempted);
    }
}

#endif
