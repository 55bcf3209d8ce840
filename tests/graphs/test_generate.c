/* SPDX-License-Identifier: Apache-2.0 */
/* What generation says of its tokens is what a forward pass says of them. */
#include "codelets/task_fixture.h"

#include "lm/rollout.h"

enum { N = 9, NEW = 80 };

struct text {
    int32_t n_prompt, n_total, ended;
    int32_t token[256];
    float logp[256];
};

static void generate(struct task_fixture *f, int32_t instances, int32_t slots,
                     int32_t steps, int32_t prefill, float temperature,
                     struct text *out)
{
    struct weft_err err;
    struct weft_g_generate gen;
    struct weft_sample sample[N];
    struct weft_rollout_stats stats;
    int32_t prompt[136];
    struct weft_gen_args args = {.sampling = {temperature, 0, 1, 11},
                                 .iteration = 2,
                                 .n_steps = steps,
                                 .prefill_tokens = prefill,
                                 .n_stop = 3,
                                 .stop = {17, 18, 19}};
    for (int i = 0; i < 136; i++)
        prompt[i] = (i * 29 + 3) % 270;
    for (int i = 0; i < N; i++) {
        int32_t n = 1 + i * i * 2;
        sample[i] = (struct weft_sample){
            .n_prompt = n, .limit = n + NEW - i, .token = prompt + i % 2};
    }
    struct weft_g_view view;
    REQUIRE_OK(weft_g_view_open(f->seq, &anywhere, &f->model, &f->model.home,
                                &view, &err),
               err);
    REQUIRE_OK(weft_g_generate_init(&f->model, &f->model.home, instances,
                                    slots, 136 + NEW, &gen, &err),
               err);
    weft_rollout_reset(&gen);
    REQUIRE_OK(weft_rollout_run(f->seq, &gen, &view, &args, N, sample, NULL,
                                NULL, &stats, &err),
               err);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    int64_t decoded = 0;
    for (int i = 0; i < N; i++) {
        const struct weft_rollout *r = weft_tile_acquire(sample[i].rollout,
                                                         WEFT_READ);
        REQUIRE(r->n_total <= 256);
        out[i].n_prompt = r->n_prompt;
        out[i].n_total = r->n_total;
        out[i].ended = r->ended;
        memcpy(out[i].token, weft_rollout_token(r), (size_t) r->n_total * 4);
        memcpy(out[i].logp, weft_rollout_logp(r), (size_t) r->n_total * 4);
        CHECK_INT(r->n_prompt, sample[i].n_prompt);
        CHECK(memcmp(out[i].token, sample[i].token, (size_t) r->n_prompt * 4)
              == 0);
        /* It stopped where it must, and not before. */
        for (int32_t k = r->n_prompt; k < r->n_total; k++) {
            bool stop = out[i].token[k] >= 17 && out[i].token[k] <= 19;
            CHECK(stop == (r->ended && k == r->n_total - 1));
        }
        CHECK(r->ended || r->n_total == sample[i].limit);
        decoded += r->n_total - r->n_prompt;
        weft_tile_unacquire(sample[i].rollout);
        weft_tile_release(sample[i].rollout);
    }
    CHECK_INT(stats.n_decoded, decoded);
    weft_g_generate_release(&gen);
    weft_g_view_close(&view);
}

/* log-probs of the responses from one packed forward pass */
static void score(struct task_fixture *f, const struct text *text,
                  float temperature, float (*logp)[NEW])
{
    struct weft_g_infer_sample s[N];
    struct weft_err err;
    for (int i = 0; i < N; i++) {
        s[i] = (struct weft_g_infer_sample){
            .rollout = fixture_tile(f, weft_rollout_bytes(text[i].n_total)),
            .n_prompt = text[i].n_prompt,
            .n_total = text[i].n_total,
            .out = fixture_tile(f, NEW * sizeof(float))};
        struct weft_rollout *r = weft_tile_acquire(s[i].rollout, WEFT_WRITE);
        *r = (struct weft_rollout){text[i].n_total, text[i].n_prompt,
                                   text[i].n_total, 0};
        memcpy(weft_rollout_token(r), text[i].token,
               (size_t) text[i].n_total * 4);
        weft_tile_unacquire(s[i].rollout);
    }
    struct weft_g_view view;
    struct weft_g_copies *copies;
    REQUIRE_OK(weft_g_view_open(f->seq, &anywhere, &f->model, &f->model.home,
                                &view, &err),
               err);
    REQUIRE_OK(weft_g_copies_create(f->rt, &copies, &err), err);
    weft_g_infer(f->seq, &anywhere, &view, 0, WEFT_INFER_LOGPROB,
                 temperature > 0 ? 1 / temperature : 1, N, s, copies, NULL);
    weft_g_view_close(&view);
    weft_g_copies_free(copies);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    for (int i = 0; i < N; i++) {
        const float *p = weft_tile_acquire(s[i].out, WEFT_READ);
        memcpy(logp[i], p, (size_t) (text[i].n_total - text[i].n_prompt) * 4);
        weft_tile_unacquire(s[i].out);
        weft_tile_release(s[i].out);
        weft_tile_release(s[i].rollout);
    }
}

static void check_dtype(enum weft_dtype dtype)
{
    static struct text base[N], other[N];
    static float logp[N][NEW];
    struct task_fixture f;
    struct weft_shape shape = fixture_shape(dtype, false, true);
    static const struct {
        int32_t instances, slots, steps, prefill;
    } to[] = {{1, 1, 16, 256}, {1, 9, 1, 1}, {2, 3, 3, 5}, {2, 2, 100, 64}};
    fixture_start(&f, 2, &shape, false);
    for (int t = 0; t < 2; t++) {
        float temperature = t ? 0.7f : 0;
        generate(&f, 1, 9, 8, 100, temperature, base);
        score(&f, base, temperature, logp);
        for (int i = 0; i < N; i++)
            CHECK(memcmp(logp[i], base[i].logp + base[i].n_prompt,
                         (size_t) (base[i].n_total - base[i].n_prompt) * 4)
                  == 0);
        for (size_t k = 0; k < WEFT_COUNT(to); k++) {
            generate(&f, to[k].instances, to[k].slots, to[k].steps,
                     to[k].prefill, temperature, other);
            for (int i = 0; i < N; i++) {
                REQUIRE(other[i].n_total == base[i].n_total);
                CHECK(memcmp(other[i].token, base[i].token,
                             (size_t) base[i].n_total * 4)
                      == 0);
                CHECK(memcmp(other[i].logp, base[i].logp,
                             (size_t) base[i].n_total * 4)
                      == 0);
            }
        }
    }
    fixture_stop(&f);
}

static void test_generate_f32(void)
{
    check_dtype(WEFT_F32);
}

static void test_generate_bf16(void)
{
    check_dtype(WEFT_BF16);
}

WEFT_TESTS("graphs/generate", {"test_generate_f32", test_generate_f32},
           {"test_generate_bf16", test_generate_bf16})
