/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that follow one another on a GPU: each gets what was planned for it,
 * and what it has drawn has its place; in a loop, too. */
#include "../cuda/test_device.h"

enum { STEPS = 5, NOTHING = 99 };

/* Steps, in pinned memory: every byte is its own. */
static unsigned char *plans(size_t step_bytes)
{
    void *p = NULL;
    REQUIRE(cudaMallocHost(&p, STEPS * step_bytes) == cudaSuccess);
    unsigned char *plan = p;
    for (size_t i = 0; i < STEPS * step_bytes; i++)
        plan[i] = (unsigned char) (i * 7 + i / 251);
    return plan;
}

static void *dev_filled(size_t n_bytes)
{
    int32_t *x = weft_alloc(n_bytes / 4, sizeof *x);
    for (size_t i = 0; i < n_bytes / 4; i++)
        x[i] = NOTHING;
    void *p = dev_put(x, n_bytes);
    weft_free(x);
    return p;
}

/* Steps 1 and 2 of n texts each. */
static void steps_of(size_t step_bytes, int32_t n, int32_t ld)
{
    unsigned char *plan = plans(step_bytes);
    size_t all = (size_t) (STEPS * ld) * 4;
    int32_t *expected = weft_alloc((size_t) (STEPS * ld), 4);
    for (int32_t i = 0; i < STEPS * ld; i++)
        expected[i] = NOTHING;
    struct weft_k_steps *steps = dev_new(sizeof *steps);
    char *to = dev_new(step_bytes);
    float *logp = dev_new((size_t) ld * 4);
    int32_t *token = dev_new((size_t) ld * 4);
    struct weft_k_step_drawn d = {
        n, ld, token, logp, dev_filled(all), dev_filled(all)};
    weft_k_steps_cuda(0, plan, 1, 3, steps);
    for (int32_t step = 1; step < 3; step++) {
        int32_t *drawn = weft_alloc((size_t) ld, 4);
        for (int32_t i = 0; i < ld; i++) {
            drawn[i] = 1000 * step + i;
            expected[step * ld + i] = i < n ? drawn[i] : NOTHING;
        }
        weft_k_step_begin_cuda(0, steps, step_bytes, to);
        CHECK(dev_same(to, plan + (size_t) step * step_bytes, step_bytes));
        dev_set(token, drawn, (size_t) ld * 4);
        dev_set(logp, drawn, (size_t) ld * 4);
        weft_k_step_end_cuda(0, steps, &d);
        CHECK(dev_same(d.tokens, expected, all));
        CHECK(dev_same(d.logps, expected, all));
        weft_free(drawn);
    }
    dev_free(steps);
    dev_free(to);
    dev_free(token);
    dev_free(logp);
    dev_free(d.tokens);
    dev_free(d.logps);
    CHECK(cudaFreeHost(plan) == cudaSuccess);
    weft_free(expected);
}

static void steps(void)
{
    steps_of(16, 1, 1);
    steps_of(64, 0, 3);
    steps_of(16 * 256, 256, 256);
    steps_of(16 * 257, 257, 300);
    steps_of(16 * 600, 600, 600);
}

static void test_steps(void)
{
    each_order(steps);
}

/* ---- Graphs -------------------------------------------------------------- */

/* A step whose tokens and log-probs are the four numbers that were planned for
 * it. */
struct copying {
    unsigned char *plan; /* 16 bytes each */
    struct weft_k_steps *steps;
    int32_t *token;
    struct weft_k_step_drawn drawn;
};

static struct copying copying(void)
{
    struct copying c = {.plan = plans(16)};
    c.steps = dev_new(sizeof *c.steps);
    c.token = dev_new(16);
    c.drawn = (struct weft_k_step_drawn){4,
                                         4,
                                         c.token,
                                         (const float *) c.token,
                                         dev_filled(STEPS * 16),
                                         dev_filled(STEPS * 16)};
    return c;
}

static void put_copying(const struct copying *c,
                        const struct weft_k_capture *to)
{
    weft_k_step_begin_cuda(to->stream, c->steps, 16, c->token);
    weft_k_step_end_cuda(to->stream, c->steps, &c->drawn);
    weft_k_step_again_cuda(to->stream, c->steps, to->again);
}

static void free_copying(struct copying *c)
{
    dev_free(c->steps);
    dev_free(c->token);
    dev_free(c->drawn.tokens);
    dev_free(c->drawn.logps);
    CHECK(cudaFreeHost(c->plan) == cudaSuccess);
}

/* The graph, launched as often as it must for steps next .. end - 1. */
static void launch(struct copying *c, struct CUgraphExec_st *graph,
                   int n_launches, int32_t next, int32_t end)
{
    int32_t expected[STEPS][4];
    dev_set(c->drawn.tokens, memset(expected, NOTHING, sizeof expected),
            sizeof expected);
    memcpy(expected[next], c->plan + 16 * next, (size_t) (end - next) * 16);
    weft_k_steps_cuda(0, c->plan, next, end, c->steps);
    for (int i = 0; i < n_launches; i++)
        weft_k_replay_cuda(0, graph);
    CHECK(dev_same(c->drawn.tokens, expected, sizeof expected));
}

static void graph_of(bool is_loop)
{
    struct copying c = copying();
    struct weft_k_capture capture;
    int64_t n = 0, n_kernels = is_loop ? 3 : 2;
    if (!weft_k_capture_cuda(is_loop, &capture)) {
        CHECK(is_loop);
        free_copying(&c);
        weft_test_skip("CUDA has no loops here");
        return;
    }
    put_copying(&c, &capture);
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, n_kernels,
                                                        &n);
    REQUIRE(graph != NULL);
    CHECK_INT(n, n_kernels);
    launch(&c, graph, is_loop ? 1 : STEPS, 0, STEPS);
    launch(&c, graph, 1, 3, 4);
    launch(&c, graph, is_loop ? 1 : 3, 1, 4);
    weft_k_graph_free_cuda(graph);
    REQUIRE(weft_k_capture_cuda(is_loop, &capture));
    put_copying(&c, &capture);
    CHECK(weft_k_captured_cuda(&capture, n_kernels - 1, &n) == NULL);
    CHECK_INT(n, n_kernels);
    dev_wait();
    free_copying(&c);
}

/* A capture that something else makes invalid leaves no graph; the next one
 * is as if it had not been. */
static void lost_of(bool is_loop)
{
    struct copying c = copying();
    struct weft_k_capture capture;
    void *none = NULL;
    int64_t n = 1;
    if (weft_k_capture_cuda(is_loop, &capture)) {
        put_copying(&c, &capture);
        CHECK(cudaMalloc(&none, 16) != cudaSuccess);
        (void) cudaGetLastError();
        CHECK(weft_k_captured_cuda(&capture, 3, &n) == NULL);
        CHECK_INT(n, 0);
        CHECK(is_loop || cudaGetLastError() != cudaSuccess);
        dev_wait();
    }
    free_copying(&c);
    graph_of(is_loop);
}

static void graphs(void)
{
    for (int is_loop = 0; is_loop < 2; is_loop++) {
        graph_of(is_loop != 0);
        lost_of(is_loop != 0);
    }
}

static void test_graphs(void)
{
    each_order(graphs);
}

/* What cannot be had, and what would never end. */
static void test_no_loop(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    struct copying c = copying();
    struct weft_k_capture capture;
    int64_t n;
    weft_cards_loops(0);
    CHECK(!weft_k_capture_cuda(true, &capture));
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    weft_cards_loops(1);
    REQUIRE(weft_k_capture_cuda(true, &capture));
    capture.again = 0;
    put_copying(&c, &capture);
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, 2, &n);
    weft_k_steps_cuda(0, c.plan, 0, 2, c.steps);
    weft_k_replay_cuda(0, graph);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(strstr(weft_exec_sentence(), "it never ends") != NULL);
    weft_exec_forget();
    weft_k_graph_free_cuda(graph);
    free_copying(&c);
#else
    weft_test_skip("only emulated cards can be without");
#endif
}

/* Behind a call that CUDA has refused nothing is launched, as it could take
 * what is not there for an address; nor is a graph. */
static void test_refused(void)
{
    unsigned char *plan = plans(64);
    void *none = NULL;
    struct weft_k_steps *steps = dev_filled(sizeof *steps), kept;
    struct weft_k_capture capture;
    int64_t n = 0;
    dev_get(&kept, steps, sizeof kept);
    REQUIRE(weft_k_capture_cuda(false, &capture));
    weft_k_steps_cuda(capture.stream, plan, 1, 3, steps);
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, 1, &n);
    REQUIRE(graph != NULL);
    CHECK(cudaMalloc(&none, (size_t) 1 << 60) != cudaSuccess);
    weft_k_steps_cuda(0, plan, 1, 3, steps);
    weft_k_replay_cuda(0, graph);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(dev_same(steps, &kept, sizeof kept));
    weft_k_replay_cuda(0, graph);
    CHECK(!dev_same(steps, &kept, sizeof kept));
    weft_k_graph_free_cuda(graph);
    dev_free(steps);
    CHECK(cudaFreeHost(plan) == cudaSuccess);
}

WEFT_CUDA_TESTS("kern/steps_cuda", {"test_steps", test_steps},
                {"test_graphs", test_graphs}, {"test_no_loop", test_no_loop},
                {"test_refused", test_refused})
