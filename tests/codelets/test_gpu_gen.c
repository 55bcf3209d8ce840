/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens drawn at a GPU's place are those of a CPU's for the same logits, and
 * the state of generation goes on alike: who stops, and when. */
#include "gpus_fixture.h"

#include <math.h>

#include "codelets/parts.h"

enum { SLOTS = 5, STEPS = 4, MAX_TOTAL = 16, PREFILL = 64 };

static const int32_t prompt[] = {3, 1, 4, 1, 5};

/* What a place ends with. */
struct result {
    char *state, *status;
};

static char *fetch(struct weft_tile *tile)
{
    size_t bytes = weft_tile_bytes(tile);
    char *copy = weft_alloc_aligned(bytes, 1);
    memcpy(copy, weft_tile_acquire(tile, WEFT_READ), bytes);
    weft_tile_unacquire(tile);
    weft_tile_release(tile);
    return copy;
}

/* Logits of two members, each with its columns; those of the other are NaN, so
 * that they show where they are read. */
static struct weft_tile *logits_at(int place, const struct weft_shape *s,
                                   struct weft_range range, uint32_t step)
{
    int32_t v = s->vocab, n = SLOTS * v;
    float *x = numbers(step, (size_t) n);
    int32_t first = s->block[range.first].vocab0;
    int32_t end = first;
    for (int32_t b = range.first; b < weft_range_end(range); b++)
        end += s->block[b].n_vocab;
    for (int32_t i = 0; i < n; i++)
        if (i % v < first || i % v >= end)
            x[i] = NAN;
    struct weft_tile *tile = tile_at(place, WEFT_MEM_ACTIVATIONS,
                                     (size_t) n * sizeof *x);
    put(tile, x);
    weft_free(x);
    return tile;
}

static void step_at(int place, const struct weft_shape *s,
                    const struct weft_gen_args *args, int32_t step,
                    struct weft_tile *state, struct weft_tile *status)
{
    struct weft_where where = at(place);
    struct weft_gen_admit admit[SLOTS];
    struct weft_batch layout;
    struct weft_part_tile part[2] = {{{0, 1}, NULL},
                                     {{1, s->n_blocks - 1}, NULL}};
    for (int32_t i = 0; i < SLOTS; i++) /* the longest ends by its limit */
        admit[i] = (struct weft_gen_admit){i, 10 + i, i + 1, i + 2 + i / 2,
                                           prompt};
    weft_step_layout(SLOTS + PREFILL, SLOTS, 1, &layout);
    struct weft_tile *batch = temp_at(place, WEFT_MEM_SAMPLES, layout.bytes);
    for (int i = 0; i < 2; i++)
        part[i].tile = logits_at(place, s, part[i].range, (uint32_t) step);
    weft_insert_gen_begin(seq, &where, args, step == 0 ? SLOTS : 0, admit,
                          step == 0, state, status, batch);
    if (place == host_place()) {
        weft_insert_gen_sample(seq, &where, s, args, batch, 2, part, state,
                               status);
    } else {
        size_t bytes = weft_gen_draw_scratch_bytes(s, args, SLOTS);
        struct weft_tile *drawn = temp_at(place, WEFT_MEM_SAMPLES,
                                          weft_gen_drawn_bytes(SLOTS));
        struct weft_tile *scratch = bytes > 0 ? temp_at(
                                        place, WEFT_MEM_ACTIVATIONS, bytes)
                                              : NULL;
        weft_insert_gen_draw(seq, &where, s, args, SLOTS, batch, 2, part,
                             scratch, drawn);
        weft_insert_gen_settle(seq, &where, args, SLOTS, batch, drawn, state,
                               status);
        weft_tile_release(drawn);
        weft_tile_release(scratch);
    }
    weft_tile_release(batch);
    for (int i = 0; i < 2; i++)
        weft_tile_release(part[i].tile);
}

static struct result generate_at(int place, const struct weft_shape *s,
                                 const struct weft_gen_args *args)
{
    struct weft_gen_state layout;
    weft_gen_state_layout(SLOTS, MAX_TOTAL, SLOTS, &layout);
    struct weft_tile *state = tile_at(place, WEFT_MEM_SAMPLES, layout.bytes);
    struct weft_tile *status = tile_at(place, WEFT_MEM_SAMPLES,
                                       weft_gen_status_bytes(SLOTS));
    struct weft_gen_state *p = weft_tile_acquire(state, WEFT_WRITE);
    *p = layout;
    weft_gen_state_clear(p);
    weft_tile_unacquire(state);
    int64_t pinned = n_pinned();
    for (int32_t i = 0; i < STEPS; i++)
        step_at(place, s, args, i, state, status);
    must_wait();
    check_pinned(pinned, STEPS * (1 + SLOTS)); /* keys; what is drawn */
    return (struct result){fetch(state), fetch(status)};
}

static void compare(const struct result *a, const struct result *b)
{
    const struct weft_gen_state *p = (const void *) a->state;
    const float *x = (const void *) (a->state + p->logp);
    const float *y = (const void *) (b->state + p->logp);
    CHECK(memcmp(a->state, b->state, p->logp) == 0);
    CHECK(memcmp(a->status, b->status, weft_gen_status_bytes(SLOTS)) == 0);
    for (int32_t i = 0; i < SLOTS * MAX_TOTAL; i++)
        CHECK(fabsf(x[i] - y[i]) <= 1e-6f * fabsf(x[i]));
}

static void generate(const struct weft_k_sampling *sampling,
                     int32_t min_new_tokens)
{
    struct weft_shape s = fixture_shape(WEFT_F32, false, false);
    struct weft_gen_args args = {.sampling = *sampling,
                                 .iteration = 3,
                                 .first_sample = 100,
                                 .n_steps = STEPS,
                                 .prefill_tokens = PREFILL,
                                 .n_stop = 1};
    struct result cpu = generate_at(host_place(), &s, &args);
    const struct weft_gen_state *p = (const void *) cpu.state;
    const int32_t *token = (const void *) (cpu.state + p->token);
    args.stop[0] = token[2 * MAX_TOTAL + 3]; /* the third's first stops it */
    args.min_new_tokens = min_new_tokens;
    weft_free(cpu.state);
    weft_free(cpu.status);
    cpu = generate_at(host_place(), &s, &args);
    struct result gpu = generate_at(0, &s, &args);
    compare(&cpu, &gpu);
    const struct weft_gen_slot *slot =
        (const void *) (gpu.status + sizeof(struct weft_gen_status));
    CHECK_INT(slot[2].done, min_new_tokens ? 2 : 1);
    CHECK_INT(slot[0].done, 2);
    weft_free(cpu.state);
    weft_free(cpu.status);
    weft_free(gpu.state);
    weft_free(gpu.status);
}

static void draws(void)
{
    static const struct weft_k_sampling sampling[] = {
        {1, 0, 1, 7}, {0, 0, 1, 7}, {0.7f, 5, 0.9f, 7}, {2, 0, 0.8f, 7}};
    start(0);
    for (size_t i = 0; i < WEFT_COUNT(sampling); i++)
        for (int32_t least = 0; least <= MAX_TOTAL; least += MAX_TOTAL)
            generate(&sampling[i], least);
    stop();
}

static void test_draws(void)
{
    if (weft_k_isa() == WEFT_ISA_C) {
        weft_test_skip("this CPU has no fused multiply-adds");
        return;
    }
    each_card_order(draws);
}

/* As on a CPU, one that is no number ends the job with its sample. */
static void test_not_finite(void)
{
    struct weft_shape s = fixture_shape(WEFT_F32, false, false);
    struct weft_gen_args args = {.sampling = {1, 0, 1, 7},
                                 .prefill_tokens = PREFILL};
    struct weft_err err;
    start(0);
    struct weft_tile *state = tile_at(0, WEFT_MEM_SAMPLES, 4096);
    struct weft_gen_state *p = weft_tile_acquire(state, WEFT_WRITE);
    weft_gen_state_layout(SLOTS, MAX_TOTAL, SLOTS, p);
    REQUIRE(p->bytes <= 4096);
    struct weft_gen_slot *slot = (void *) ((char *) p + p->slot);
    slot[0] = (struct weft_gen_slot){.sample = 4, .n_total = 2, .limit = 9};
    weft_tile_unacquire(state);
    struct weft_batch layout;
    weft_step_layout(SLOTS + PREFILL, SLOTS, 1, &layout);
    struct weft_tile *batch = tile_at(0, WEFT_MEM_SAMPLES, layout.bytes);
    struct weft_batch *b = weft_tile_acquire(batch, WEFT_WRITE);
    *b = layout;
    b->n_targets = 1; /* slot 0 */
    weft_tile_unacquire(batch);
    struct weft_part_tile part = {
        {0, s.n_blocks}, logits_at(0, &s, (struct weft_range){0, 0}, 0)};
    struct weft_tile *drawn = temp_at(0, WEFT_MEM_SAMPLES,
                                      weft_gen_drawn_bytes(SLOTS));
    struct weft_tile *status = tile_at(0, WEFT_MEM_SAMPLES,
                                       weft_gen_status_bytes(SLOTS));
    struct weft_where where = at(0);
    weft_insert_gen_draw(seq, &where, &s, &args, SLOTS, batch, 1, &part, NULL,
                         drawn);
    weft_insert_gen_settle(seq, &where, &args, SLOTS, batch, drawn, state,
                           status);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err,
                "sample 4: the logits of token 2 are not finite numbers");
    stop();
}

int main(void)
{
    const struct weft_test tests[] = {{"test_draws", test_draws},
                                      {"test_not_finite", test_not_finite}};
    return gpus_main("codelets/gpu_gen", tests, WEFT_COUNT(tests));
}
