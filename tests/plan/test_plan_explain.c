/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "harness.h"

#include "base/alloc.h"
#include "plan/layout.h"

static void test_explain_calls(void)
{
    struct weft_plan p = {
        .n_nodes = 2, .n_devices = 2, .flow = *calls_flow()};
    const struct weft_mesh all = {0, 2, 0, 2}, one = {1, 1, 1, 1};
    p.call[CALL_ACTOR_GENERATE] = (struct weft_call_plan){
        .mesh = all, .dp = 4, .tp = 1, .pp = 1};
    p.call[CALL_REF_INFER] = (struct weft_call_plan){
        .mesh = one, .dp = 1, .tp = 1, .pp = 1, .offload = true};
    p.call[CALL_CRITIC_INFER] = (struct weft_call_plan){
        .mesh = one, .dp = 1, .tp = 1, .pp = 1};
    p.call[CALL_ACTOR_TRAIN] = (struct weft_call_plan){.mesh = all,
                                                       .dp = 1,
                                                       .tp = 2,
                                                       .pp = 2,
                                                       .micro_batches = 8,
                                                       .zero = 3,
                                                       .hpz = true,
                                                       .recompute = true};
    p.call[CALL_CRITIC_TRAIN] = (struct weft_call_plan){
        .mesh = one, .dp = 1, .tp = 1, .pp = 1, .offload = true};
    char *text = weft_plan_explain(&p);
    CHECK_STR(text, "nodes 2, devices of each 2\n\n"
                    "call            nodes      devices      dp  tp  pp  "
                    "micro-batches  zero  recompute  offload\n"
                    "actor_generate  0-1        0-1           4   1   1  "
                    "-                 -  -          -\n"
                    "ref_infer       1          1             1   1   1  "
                    "by tokens         -  -          yes\n"
                    "critic_infer    1          1             1   1   1  "
                    "by tokens         -  -          -\n"
                    "actor_train     0-1        0-1           1   2   2  "
                    "8                 3  yes        -  hpz\n"
                    "critic_train    1          1             1   1   1  "
                    "by tokens         0  no         optimizer\n");
    weft_free(text);
}

/* Neighbours with the same numbers share a line. */
static void test_explain_memory(void)
{
    struct weft_plan p = {.n_nodes = 1, .n_devices = 4};
    int64_t memory[4][WEFT_MEM_ALL + 1] = {{0}};
    p.memory = memory;
    memory[1][WEFT_MEM_ALL] = memory[2][WEFT_MEM_ALL] = 2 << 20;
    memory[1][WEFT_MEM_KV] = memory[2][WEFT_MEM_KV] = 3 << 19;
    memory[1][WEFT_MEM_WEIGHTS] = memory[2][WEFT_MEM_WEIGHTS] = 1 << 20;
    char *text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    const char *at = strstr(text, "\nMiB at most");
    CHECK_STR(at, "\nMiB at most          weights    gradients    optimizer"
                  "           kv  activations      samples        tasks"
                  "          all\n"
                  "device 0                 0.0          0.0          0.0"
                  "          0.0          0.0          0.0          0.0"
                  "          0.0\n"
                  "device 1-2               1.0          0.0          0.0"
                  "          1.5          0.0          0.0          0.0"
                  "          2.0\n"
                  "device 3                 0.0          0.0          0.0"
                  "          0.0          0.0          0.0          0.0"
                  "          0.0\n");
    weft_free(text);
}

/* Predicted, measured, replayed and the ratio of the first two, one below the
 * other. */
static void test_explain_measured(void)
{
    struct weft_plan p = {.n_nodes = 1, .n_devices = 2};
    int64_t memory[2][WEFT_MEM_ALL + 1] = {{0}};
    int64_t measured[2][WEFT_MEM_ALL + 1] = {{0}};
    p.memory = memory;
    p.measured = measured;
    for (int d = 0; d < 2; d++) {
        memory[d][WEFT_MEM_KV] = memory[d][WEFT_MEM_ALL] = 2 << 20;
        measured[d][WEFT_MEM_KV] = measured[d][WEFT_MEM_ALL] = 3 << 19;
    }
    char *text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK_STR(strstr(text, "device 0-1"),
              "device 0-1               0.0          0.0          0.0"
              "          2.0          0.0          0.0          0.0"
              "          2.0\n"
              "  measured               0.0          0.0          0.0"
              "          1.5          0.0          0.0          0.0"
              "          1.5\n"
              "  %                        -            -            -"
              "         75.0            -            -            -"
              "         75.0\n");
    weft_free(text);
    int64_t replayed[2][WEFT_MEM_ALL + 1] = {{0}};
    replayed[0][WEFT_MEM_KV] = replayed[1][WEFT_MEM_KV] = 25 << 16;
    p.replayed = replayed;
    text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK(strstr(text,
                 "          1.5\n"
                 "  replayed               0.0          0.0          0.0"
                 "          1.6          0.0          0.0          0.0"
                 "          0.0\n"
                 "  %  ")
          != NULL);
    weft_free(text);
    replayed[1][WEFT_MEM_KV]++;
    text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK(strstr(text, "\ndevice 1 ") != NULL);
    weft_free(text);
    p.replayed = NULL;
    measured[1][WEFT_MEM_KV]++;
    text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK(strstr(text, "\ndevice 1 ") != NULL);
    weft_free(text);
}

/* What the host keeps has a column where there is some, beside the sum. */
static void test_explain_host(void)
{
    struct weft_plan p = {.n_nodes = 1, .n_devices = 1};
    int64_t memory[1][WEFT_MEM_ALL + 1] = {{0}};
    int64_t measured[1][WEFT_MEM_ALL + 1] = {{0}};
    p.memory = memory;
    p.measured = measured;
    memory[0][WEFT_MEM_WEIGHTS] = memory[0][WEFT_MEM_ALL] = 2 << 20;
    memory[0][WEFT_MEM_HOST] = 4 << 20;
    measured[0][WEFT_MEM_HOST] = 1 << 20;
    char *text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK_STR(
        strstr(text, "  samples"),
        "  samples        tasks          all         host\n"
        "device 0                 2.0          0.0          0.0"
        "          0.0          0.0          0.0          0.0          2.0"
        "          4.0\n"
        "  measured               0.0          0.0          0.0"
        "          0.0          0.0          0.0          0.0          0.0"
        "          1.0\n"
        "  %                      0.0            -            -"
        "            -            -            -            -          0.0"
        "         25.0\n");
    weft_free(text);
}

WEFT_TESTS("plan/plan_explain", {"test_explain_calls", test_explain_calls},
           {"test_explain_memory", test_explain_memory},
           {"test_explain_measured", test_explain_measured},
           {"test_explain_host", test_explain_host})
