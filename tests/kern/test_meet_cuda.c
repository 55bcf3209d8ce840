/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of GPUs: sums of what members have in their own memory, round after
 * round, on streams that nothing else orders; from graphs, too; and what
 * becomes of members that wait for one that does not come. */
#include "../cuda/card_orders.h"
#include "../cuda/test_device.h"
#include "kern/parts.h"

enum { CARDS = 4, ROUNDS = 6, ROWS = 3, H = 40, SIZE = ROWS * H };

struct member {
    cudaStream_t stream;
    struct weft_k_group group;
    float *roots[2]; /* of even and odd rounds */
    float *x;        /* (ROWS, H) */
    float *given;    /* (ROUNDS, SIZE) in pinned memory */
};
static struct member member[CARDS];
static int n_members;
static int n_cards; /* that may use one another's memory */

static void use(int k)
{
    REQUIRE(cudaSetDevice(k) == cudaSuccess);
}

static void find_cards(void)
{
    int n = 0, can;
    n_cards = 1;
    REQUIRE(cudaGetDeviceCount(&n) == cudaSuccess);
    for (; n_cards < n && n_cards < CARDS; n_cards++)
        for (int k = 0; k < n_cards; k++)
            for (int way = 0; way < 2; way++) {
                int one = way ? k : n_cards, other = way ? n_cards : k;
                REQUIRE(cudaDeviceCanAccessPeer(&can, one, other)
                        == cudaSuccess);
                if (!can)
                    return;
                use(one);
                REQUIRE(cudaDeviceEnablePeerAccess(other, 0) == cudaSuccess);
            }
}

static void test_cards(void)
{
    find_cards();
    use(0);
    if (n_cards < 2)
        weft_test_skip("there are no two GPUs that can use one another's "
                       "memory");
}

static void open_members(int n, uint32_t n_before)
{
    struct weft_k_meetings meetings = {.n_before = n_before};
    n_members = n;
    for (int i = 0; i < n; i++)
        meetings.at[i] = n_before;
    for (int k = 0; k < n; k++) {
        struct member *m = &member[k];
        void *pinned = NULL;
        use(k);
        REQUIRE(cudaStreamCreateWithFlags(&m->stream, cudaStreamNonBlocking)
                == cudaSuccess);
        m->group = (struct weft_k_group){.n = n, .k = k};
        m->group.of[k] = dev_put(&meetings, sizeof meetings);
        for (int i = 0; i < 2; i++)
            m->roots[i] = dev_new(SIZE * sizeof(float));
        m->x = dev_new(SIZE * sizeof(float));
        REQUIRE(cudaMallocHost(&pinned, ROUNDS * SIZE * sizeof(float))
                == cudaSuccess);
        m->given = pinned;
        float *host = host_rows((uint32_t) k, ROUNDS * SIZE);
        memcpy(m->given, host, ROUNDS * SIZE * sizeof(float));
        weft_free(host);
    }
    for (int k = 0; k < n; k++)
        for (int i = 0; i < n; i++)
            member[k].group.of[i] = member[i].group.of[i];
}

static void wait_all(void)
{
    for (int k = 0; k < n_members; k++) {
        use(k);
        dev_wait();
    }
}

static void close_members(void)
{
    wait_all();
    for (int k = 0; k < n_members; k++) {
        struct member *m = &member[k];
        use(k);
        dev_free(m->group.of[k]);
        dev_free(m->roots[0]);
        dev_free(m->roots[1]);
        dev_free(m->x);
        CHECK(cudaFreeHost(m->given) == cudaSuccess);
        CHECK(cudaStreamDestroy(m->stream) == cudaSuccess);
    }
    use(0);
}

/* x = the sum of what all have, plus x. */
static void put_sum(const struct member *m, cudaStream_t stream, int odd)
{
    struct weft_k_part part[CARDS];
    for (int i = 0; i < n_members; i++)
        part[i] = (struct weft_k_part){{i, 1}, member[i].roots[odd]};
    weft_k_meet_cuda(stream, &m->group);
    weft_k_join_rows_cuda(stream, CARDS, n_members, part,
                          (struct weft_range){0, CARDS}, ROWS, H, NULL, m->x,
                          m->x);
}

static void put_given(const struct member *m, cudaStream_t stream, int round)
{
    REQUIRE(cudaMemcpyAsync(m->roots[round % 2], m->given + round * SIZE,
                            SIZE * sizeof(float), cudaMemcpyHostToDevice,
                            stream)
            == cudaSuccess);
}

/* Every member has these sums, in f32, by the tree: (0 + 1) + (2 + 3). */
static void check_sums(int n_rounds)
{
    float sum[SIZE] = {0};
    for (int round = 0; round < n_rounds; round++)
        for (int i = 0; i < SIZE; i++) {
            float of[CARDS] = {0};
            for (int k = 0; k < n_members; k++)
                of[k] = member[k].given[round * SIZE + i];
            float low = of[0] + of[1], high = of[2] + of[3];
            sum[i] = (n_members > 2 ? low + high : low) + sum[i];
        }
    for (int k = 0; k < n_members; k++) {
        use(k);
        CHECK(dev_same(member[k].x, sum, sizeof sum));
    }
}

static void clear_sums(void)
{
    for (int k = 0; k < n_members; k++) {
        use(k);
        weft_k_zero_cuda(member[k].stream, member[k].x, SIZE * sizeof(float));
    }
}

static void rounds_of(int n, uint32_t n_before)
{
    if (n > n_cards)
        return;
    open_members(n, n_before);
    clear_sums();
    for (int k = n - 1; k >= 0; k--) {
        use(k);
        for (int round = 0; round < ROUNDS; round++) {
            put_given(&member[k], member[k].stream, round);
            put_sum(&member[k], member[k].stream, round % 2);
        }
    }
    check_sums(ROUNDS);
    close_members();
}

static void rounds(void)
{
    for (int n = 2; n <= CARDS; n++)
        rounds_of(n, 0);
    rounds_of(2, 0xfffffffeu); /* numbers begin anew */
}

static void test_rounds(void)
{
    each_card_order(rounds);
}

/* ---- Graphs -------------------------------------------------------------- */

/* Two rounds, of the same numbers each time. */
static struct CUgraphExec_st *graph_of(const struct member *m)
{
    struct weft_k_capture capture;
    int64_t n;
    REQUIRE(weft_k_capture_cuda(false, &capture));
    for (int round = 0; round < 2; round++)
        put_sum(m, capture.stream, round);
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, 4, &n);
    REQUIRE(graph != NULL);
    CHECK_INT(n, 4);
    return graph;
}

static void graphs(void)
{
    struct CUgraphExec_st *graph[CARDS];
    if (n_cards < 2)
        return;
    open_members(2, 0);
    clear_sums();
    for (int k = 0; k < 2; k++) {
        use(k);
        graph[k] = graph_of(&member[k]);
        for (int round = 0; round < ROUNDS; round += 2) {
            put_given(&member[k], member[k].stream, round);
            put_given(&member[k], member[k].stream, round + 1);
            weft_k_replay_cuda(member[k].stream, graph[k]);
            /* what is given next overwrites what was read before it */
            weft_k_meet_cuda(member[k].stream, &member[k].group);
        }
    }
    check_sums(ROUNDS);
    for (int k = 0; k < 2; k++)
        weft_k_graph_free_cuda(graph[k]);
    close_members();
}

/* A round in a loop, which begins with what is given for it, and the first
 * member's part of which all read behind a meeting of its own. */
static struct CUgraphExec_st *loop_of(const struct member *m,
                                      struct weft_k_steps *steps)
{
    const struct weft_k_step_drawn none = {.n = 0};
    struct weft_k_capture capture;
    int64_t n;
    if (!weft_k_capture_cuda(true, &capture))
        return NULL;
    weft_k_step_begin_cuda(capture.stream, steps, SIZE * sizeof(float),
                           m->roots[0]);
    put_sum(m, capture.stream, 0);
    weft_k_meet_cuda(capture.stream, &m->group);
    weft_k_step_end_cuda(capture.stream, steps, &none);
    weft_k_step_again_cuda(capture.stream, steps, capture.again);
    struct CUgraphExec_st *graph = weft_k_captured_cuda(&capture, 6, &n);
    REQUIRE(graph != NULL);
    CHECK_INT(n, 6);
    return graph;
}

/* The loop is launched twice: of the first rounds, and of the others. */
static void loops_of(int n)
{
    struct CUgraphExec_st *graph[CARDS];
    struct weft_k_steps *steps[CARDS];
    bool has_loops = true;
    if (n > n_cards)
        return;
    open_members(n, 0);
    clear_sums();
    for (int k = 0; k < n; k++) {
        use(k);
        steps[k] = dev_new(sizeof **steps);
        graph[k] = loop_of(&member[k], steps[k]);
        has_loops = has_loops && graph[k];
    }
    for (int k = 0; k < n && has_loops; k++) {
        use(k);
        for (int32_t i = 0; i < 2; i++) {
            weft_k_steps_cuda(member[k].stream, member[k].given, 2 * i,
                              i == 0 ? 2 : ROUNDS, steps[k]);
            weft_k_replay_cuda(member[k].stream, graph[k]);
        }
    }
    if (has_loops)
        check_sums(ROUNDS);
    else
        weft_test_skip("CUDA has no loops here");
    wait_all();
    for (int k = 0; k < n; k++) {
        use(k);
        weft_k_graph_free_cuda(graph[k]);
        dev_free(steps[k]);
    }
    close_members();
}

static void loops(void)
{
    for (int n = 2; n <= CARDS; n++)
        loops_of(n);
}

static void test_graphs(void)
{
    each_card_order(graphs);
    each_card_order(loops);
}

/* ---- Who waits ------------------------------------------------------------ */

static bool has_failed(int k)
{
    struct weft_k_meetings now;
    use(k);
    dev_get(&now, member[k].group.of[k], sizeof now);
    return now.has_failed;
}

/* Nobody is behind a meeting before the last has come to it. */
static void test_waits(void)
{
    if (n_cards < 2)
        return;
    open_members(2, 0);
    clear_sums();
    for (int k = 1; k >= 0; k--) {
        cudaEvent_t end;
        use(k);
        put_given(&member[k], member[k].stream, 0);
        put_sum(&member[k], member[k].stream, 0);
        REQUIRE(cudaEventCreate(&end) == cudaSuccess);
        REQUIRE(cudaEventRecord(end, member[k].stream) == cudaSuccess);
        for (int i = 0; i < 100 && k > 0; i++)
            CHECK(cudaEventQuery(end) == cudaErrorNotReady);
        (void) cudaGetLastError();
        CHECK(cudaEventDestroy(end) == cudaSuccess);
    }
    check_sums(1);
    CHECK(!has_failed(0) && !has_failed(1));
    close_members();
}

/* One looks a few times, and the other comes late: what is computed then is
 * no number, and nobody waits any more. */
static void test_gives_up(void)
{
    float x[SIZE], zeros[SIZE] = {0};
    if (n_cards < 2)
        return;
    open_members(2, 0);
    clear_sums();
    wait_all();
#ifdef WEFT_CUDA_EXECUTOR
    weft_cards_naps(0);
#endif
    use(0);
    weft_k_spoil_cuda(member[0].stream, member[0].group.of[0], SIZE,
                      member[0].x);
    CHECK(dev_same(member[0].x, zeros, sizeof zeros));
    member[0].group.patience = 3;
    weft_k_meet_cuda(member[0].stream, &member[0].group);
    weft_k_spoil_cuda(member[0].stream, member[0].group.of[0], SIZE - 1,
                      member[0].x);
    CHECK(has_failed(0) && has_failed(1));
    dev_get(x, member[0].x, sizeof x);
    for (int i = 0; i < SIZE - 1; i++)
        CHECK(x[i] != x[i]);
    CHECK(x[SIZE - 1] == 0);
    use(1);
    for (int i = 0; i < 3; i++)
        weft_k_meet_cuda(member[1].stream, &member[1].group);
    dev_wait();
#ifdef WEFT_CUDA_EXECUTOR
    weft_cards_naps(-1);
#endif
    close_members();
}

/* A member that cannot come says so. */
static void test_ends(void)
{
    if (n_cards < 2)
        return;
    open_members(2, 0);
    use(0);
    weft_k_meet_cuda(member[0].stream, &member[0].group);
    weft_k_meet_cuda(member[0].stream, &member[0].group);
    use(1);
    weft_k_meet_cuda(member[1].stream, &member[1].group);
    weft_k_end_meetings_cuda(member[1].stream, &member[1].group);
    CHECK(has_failed(0) && has_failed(1));
    close_members();
}

int main(void)
{
    const struct weft_test tests[] = {
        {"test_cards", test_cards},       {"test_rounds", test_rounds},
        {"test_graphs", test_graphs},     {"test_waits", test_waits},
        {"test_gives_up", test_gives_up}, {"test_ends", test_ends}};
    char cards[12];
    snprintf(cards, sizeof cards, "%d", CARDS);
    setenv("WEFT_CARDS", cards, 0);
    if (dev_missing()) {
        printf("skipped: no GPU: %s\n", dev_missing());
        return 77;
    }
    return weft_test_main("kern/meet_cuda", tests, WEFT_COUNT(tests));
}
