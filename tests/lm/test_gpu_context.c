/* SPDX-License-Identifier: Apache-2.0 */
/* weft_context_open_gpus(): what models of weft.h score and generate on GPUs is
 * what they do on CPU devices, bit for bit where products have the CPU's order
 * of sums; and how many GPUs it refuses. */
#include <cuda_runtime.h>
#include <math.h>

#include "../cuda/cpu_bits.h"
#include "folder.h"
#include "lm/init.h"

static const char text[] = "sort 30754: 03457";

/* What a context's model gave. */
struct answer {
    float *logprob;
    size_t n;
    struct weft_completion said, again;
};

static void ask(struct weft_context *context, struct answer *out)
{
    const struct weft_generate_options options = {
        .max_new_tokens = 8, .temperature = 1, .top_p = 1, .seed = 7};
    struct weft_model *model;
    struct weft_err err;
    int32_t *token;
    REQUIRE_OK(weft_model_open(context, in("model"), "f32", &model, &err),
               err);
    REQUIRE_OK(weft_model_logprobs(model, text, sizeof text - 1, &token,
                                   &out->logprob, &out->n, &err),
               err);
    REQUIRE_OK(
        weft_model_generate(model, text, 12, &options, &out->said, &err),
        err);
    REQUIRE_OK(
        weft_model_generate(model, text, 12, &options, &out->again, &err),
        err);
    weft_array_free(token);
    weft_model_close(model);
    weft_context_close(context);
}

static void answer_release(struct answer *a)
{
    weft_array_free(a->logprob);
    weft_completion_clear(&a->said);
    weft_completion_clear(&a->again);
}

static bool same(const struct weft_completion *a,
                 const struct weft_completion *b)
{
    return a->n == b->n && memcmp(a->token, b->token, a->n * 4) == 0
        && memcmp(a->logprob, b->logprob, a->n * 4) == 0;
}

static void test_bits(void)
{
    const struct weft_init_options size = {.family = WEFT_QWEN3,
                                           .hidden = 64,
                                           .layers = 2,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .intermediate = 192,
                                           .max_positions = 64,
                                           .std = 0.1,
                                           .seed = 3,
                                           .tokenizer = "bytes"};
    struct answer cpu;
    struct weft_context *context;
    struct weft_err err;
    folder_make();
    REQUIRE_OK(weft_init_model(&size, in("model"), NULL, &err), err);
    REQUIRE_OK(weft_context_open(1, &context, &err), err);
    ask(context, &cpu);
    CHECK_INT(cpu.n, sizeof text - 1);
    for (int n_gpus = 0; n_gpus <= 1; n_gpus++) { /* 0: all */
        struct answer gpu;
        REQUIRE_OK(weft_context_open_gpus(n_gpus, &context, &err), err);
        ask(context, &gpu);
        REQUIRE(gpu.n == cpu.n);
        CHECK(isnan(gpu.logprob[0]));
        for (size_t i = 1; i < cpu.n; i++)
            CHECK(fabsf(gpu.logprob[i] - cpu.logprob[i]) < 1e-4f);
        CHECK(same(&gpu.said, &gpu.again));
        if (products_are_cpus()) {
            CHECK(memcmp(gpu.logprob + 1, cpu.logprob + 1, (cpu.n - 1) * 4)
                  == 0);
            CHECK(same(&gpu.said, &cpu.said));
        }
        answer_release(&gpu);
    }
    answer_release(&cpu);
    folder_remove();
}

static void test_refused(void)
{
    struct weft_context *context = NULL;
    struct weft_err err;
    CHECK_FAILS(weft_context_open_gpus(-1, &context, &err), WEFT_EINVAL, err,
                "'n_gpus' is -1: give a number of GPUs, or 0 for all");
    CHECK_FAILS(weft_context_open_gpus(1000, &context, &err), WEFT_EINVAL,
                err, "'n_gpus' is 1000, but this machine has ");
    CHECK(!context);
}

static int n_found(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

int main(void)
{
    const struct weft_test tests[] = {{"test_bits", test_bits},
                                      {"test_refused", test_refused}};
    setenv("WEFT_CARDS", "2", 0);
    if (n_found() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return weft_test_main("lm/gpu_context", tests, WEFT_COUNT(tests));
}
