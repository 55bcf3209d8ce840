/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of GPUs, on emulated cards (tools/emulate-cards) or on those of the
 * machine: copies and orders of tasks are those of CPU places, memory keeps to
 * its budget, and host code that touches it fails.
 */
#include "gpus_fixture.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "rt/codelet.h"

/* ---- Starting ------------------------------------------------------------ */

/* Processes that start at once where StarPU has not measured the buses yet. */
static void test_start_at_once(void)
{
    enum { N = 4 };
    char home[] = "/tmp/weft-test-gpus-XXXXXX";
    struct weft_err err;
    pid_t child[N];
    REQUIRE(mkdtemp(home) != NULL);
    fflush(NULL);
    for (int i = 0; i < N; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            setenv("STARPU_HOME", home, 1);
            start(0);
            stop();
            _exit(0);
        }
    }
    for (int i = 0; i < N; i++) {
        int status = 1;
        REQUIRE(waitpid(child[i], &status, 0) == child[i]);
        CHECK_INT(status, 0);
    }
    REQUIRE_OK(weft_dir_remove(home, &err), err);
}

#ifdef WEFT_CUDA_EXECUTOR
static void round_trip(enum weft_mem_class c, size_t bytes);

/* A rank with the machine's second GPU; true: it has used no other. */
static bool uses_second(void)
{
    struct weft_err err;
    struct weft_rt_options options = {.n_devices = CPUS,
                                      .n_gpus = 1,
                                      .load_kernels = weft_k_load_cuda,
                                      .first_gpu = 1,
                                      .policy = &weft_sched_lanes,
                                      .nap = 1};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    round_trip(WEFT_MEM_GRADIENTS, 4096);
    /* a CPU device gets memory that GPUs can read */
    float *x = numbers(1, 1024);
    struct weft_tile *host = tile_at(1, WEFT_MEM_WEIGHTS, 4096),
                     *temp = temp_at(1, WEFT_MEM_WEIGHTS, 4096);
    struct weft_where where = at(1);
    put(host, x);
    weft_insert_copy(seq, &where, host, temp);
    CHECK(holds(temp, x));
    weft_tile_release(host);
    weft_tile_release(temp);
    weft_free(x);
    stop();
    return !weft_cards_counts(0).is_open && weft_cards_counts(1).is_open
        && weft_cards_counts(0).n_loaded == 0;
}

/* All kernels are on each GPU when the runtime has started. */
static void check_loaded(void)
{
    int64_t n = weft_cards_counts(0).n_loaded;
    CHECK(n > 10);
    for (int i = 1; i < weft_rt_n_gpus(rt); i++)
        CHECK_INT(weft_cards_counts(i).n_loaded, n);
}
#endif

/* No other rank's GPU has to have room for what CUDA keeps for a process. */
static void test_second_gpu(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(!uses_second());
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
#else
    weft_test_skip("only emulated cards tell");
#endif
}

/* ---- Places and copies -------------------------------------------------- */

static void test_places(void)
{
    start(0);
    int n = weft_rt_n_places(rt) - 1;
    CHECK_INT(weft_rt_n_devices(rt), n + CPUS);
    for (int d = 0; d < n + CPUS; d++)
        CHECK_INT(weft_rt_place_of(rt, d), d < n ? d : n);
#ifdef WEFT_CUDA_EXECUTOR
    check_loaded();
#endif
    stop();
}

/* Where launches wait for their kernels no kernel may wait for another GPU. */
static void test_blocking(void)
{
    static const struct {
        const char *value;
        bool blocks;
    } cases[] = {{"", false}, {"0", false}, {"1", true}};
    start(0);
    bool apart = weft_rt_gpus_apart(rt), several = weft_rt_n_gpus(rt) > 1;
    stop();
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        setenv("CUDA_LAUNCH_BLOCKING", cases[i].value, 1);
        start(0);
        unsetenv("CUDA_LAUNCH_BLOCKING");
        CHECK_INT(weft_rt_gpus_apart(rt),
                  apart || (several && cases[i].blocks));
        stop();
    }
}

/* Round the places, from the host's through all cards and home. */
static void round_trip(enum weft_mem_class c, size_t bytes)
{
    float *x = numbers((uint32_t) bytes, bytes / 4 + 1), zero = 0;
    struct weft_tile *tile[CARDS + 2];
    int n = host_place();
    for (int i = 0; i <= n + 1; i++)
        tile[i] = i == 0 || i == n + 1 ? tile_at(n, c, bytes)
                : i % 2                ? tile_at(i - 1, c, bytes)
                                       : temp_at(i - 1, c, bytes);
    CHECK(memcmp(weft_tile_acquire(tile[1], WEFT_READ), &zero, 4) == 0);
    weft_tile_unacquire(tile[1]);
    put(tile[0], x);
    for (int i = 0; i <= n; i++) {
        struct weft_where where = at(n);
        weft_insert_copy(seq, &where, tile[i], tile[i + 1]);
    }
    for (int i = 0; i <= n + 1; i++)
        CHECK(holds(tile[i], x));
    /* the program changes a card's tile in place */
    float *p = weft_tile_acquire(tile[1], WEFT_READ_WRITE);
    p[0] = x[0] = 42;
    weft_tile_unacquire(tile[1]);
    struct weft_where where = at(0);
    weft_insert_copy(seq, &where, tile[1], tile[n + 1]);
    CHECK(holds(tile[n + 1], x));
    must_wait();
    for (int i = 0; i <= n + 1; i++)
        weft_tile_release(tile[i]);
    weft_free(x);
}

static void copies(void)
{
    static const size_t bytes[] = {4, 64, 4100, 100004, 5 << 20};
    start(0);
    for (size_t i = 0; i < WEFT_COUNT(bytes); i++) {
        round_trip(WEFT_MEM_GRADIENTS, bytes[i]);
        round_trip(WEFT_MEM_SAMPLES, bytes[i]);
        round_trip(WEFT_MEM_HOST, bytes[i]);
    }
    stop();
}

static void test_copies(void)
{
    each_card_order(copies);
}

/* Parts are copied one by one; a tile may be cut otherwise afterwards. */
static void test_parts(void)
{
    static const size_t cut[] = {64, 4096};
    enum { BYTES = 9000 };
    float *x = numbers(1, BYTES / 4);
    struct weft_err err;
    start(0);
    struct weft_tile *host = tile_at(host_place(), WEFT_MEM_WEIGHTS, BYTES);
    struct weft_tile *card = tile_at(0, WEFT_MEM_WEIGHTS, BYTES);
    struct weft_tile *back = tile_at(host_place(), WEFT_MEM_WEIGHTS, BYTES);
    struct weft_where where = at(0);
    put(host, x);
    REQUIRE_OK(weft_tile_cut(host, 3, cut, &err), err);
    REQUIRE_OK(weft_tile_cut_like(card, host, &err), err);
    weft_insert_copy(seq, &where, host, card);
    CHECK(holds(card, x));
    weft_insert_cut(seq, &where, card, 1, NULL);
    weft_insert_copy(seq, &where, card, back);
    CHECK(holds(back, x));
    must_wait();
    weft_insert_copy(seq, &where, host, card); /* three parts into one */
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINTERNAL, err,
                "a copy to or from a GPU of tiles in 3 and 1 parts");
    weft_tile_release(host);
    weft_tile_release(card);
    weft_tile_release(back);
    stop();
    weft_free(x);
}

/* ---- Graphs -------------------------------------------------------------- */

/* Additions and copies of tiles at all places in an order by chance, against
 * the same on plain arrays. */
static void graph_of(uint32_t seed, int n_steps)
{
    enum { TILES = 6, N = 1237 };
    int n = weft_rt_n_places(rt);
    struct weft_tile *tile[(CARDS + 1) * TILES];
    float *want[(CARDS + 1) * TILES];
    for (int i = 0; i < n * TILES; i++) {
        tile[i] = tile_at(i / TILES, WEFT_MEM_GRADIENTS, N * sizeof(float));
        want[i] = numbers(seed * 100 + (uint32_t) i, N);
        put(tile[i], want[i]);
    }
    for (int step = 0; step < n_steps; step++) {
        uint32_t r[4];
        for (uint32_t k = 0; k < 4; k++)
            r[k] = (uint32_t) (weft_rng_uniform(seed, WEFT_RNG_INIT, 77, k,
                                                (uint32_t) step)
                               * 65536);
        int place = (int) r[0] % n;
        int to = place * TILES + (int) r[1] % TILES;
        int from = place * TILES + (int) r[2] % TILES;
        struct weft_where where = at(place);
        struct weft_layer_tiles left = {.block = {tile[to]}},
                                right = {.block = {tile[from]}};
        if (r[3] % 8 == 0) {
            weft_insert_zero(seq, &where, &left);
            memset(want[to], 0, N * sizeof(float));
        } else if (r[3] % 8 < 4) {
            from = (int) r[2] % (n * TILES);
            weft_insert_copy(seq, &where, tile[from], tile[to]);
            memmove(want[to], want[from], N * sizeof(float));
        } else if (from != to) {
            weft_insert_grad_add(seq, &where, &left, &right);
            for (int i = 0; i < N; i++)
                want[to][i] += want[from][i];
        }
    }
    for (int i = 0; i < n * TILES; i++) {
        CHECK(holds(tile[i], want[i]));
        weft_tile_release(tile[i]);
        weft_free(want[i]);
    }
    must_wait();
}

static void graphs(void)
{
    start(0);
    for (uint32_t seed = 0; seed < 5; seed++)
        graph_of(seed, 150);
    stop();
}

static void test_graphs(void)
{
    each_card_order(graphs);
}

static int fill(const void *args, void *const buf[], int n_buf,
                struct weft_exec *x)
{
    const struct {
        size_t bytes;
        int value;
    } *a = args;
    (void) n_buf;
    (void) x;
    memset(buf[0], a->value, a->bytes);
    return 0;
}
WEFT_CODELET(fill, 0x123456, fill)

/* Memory goes from tile to tile while copies of it are under way. */
static void temporaries(void)
{
    enum { N = 24, BYTES = 4096 };
    struct weft_tile *card[N];
    char want[BYTES];
    start(0);
    for (int i = 0; i < N; i++) {
        struct {
            size_t bytes;
            int value;
        } args = {BYTES, i + 1};
        struct weft_where here = at(host_place()), there = at(0);
        struct weft_tile *host = temp_at(host_place(), WEFT_MEM_HOST, BYTES);
        struct weft_tile *first = temp_at(0, WEFT_MEM_KV, BYTES);
        struct weft_access access = {host, WEFT_WRITE};
        card[i] = tile_at(0, WEFT_MEM_KV, BYTES);
        weft_insert(seq, &weft_cl_fill, &args, sizeof args, &access, 1,
                    &here);
        weft_insert_copy(seq, &there, host, first);
        weft_insert_copy(seq, &there, first, card[i]);
        weft_tile_release(host);
        weft_tile_release(first);
    }
    for (int i = 0; i < N; i++) {
        memset(want, i + 1, BYTES);
        CHECK(holds(card[i], want));
        weft_tile_release(card[i]);
    }
    must_wait();
    stop();
}

static void test_temporaries(void)
{
    each_card_order(temporaries);
}

#ifdef WEFT_CUDA_EXECUTOR
/* ---- Times --------------------------------------------------------------- */

enum { TIMED = 20, TIMED_CALL = 3, TIMED_BYTES = 1 << 20 };

/* Puts n copies on the stream. */
static int put_copies(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    (void) n_buf;
    for (int i = 0; i < *(const int *) args; i++)
        cudaMemcpyAsync(buf[1], buf[0], TIMED_BYTES, cudaMemcpyDeviceToDevice,
                        weft_exec_stream(x));
    return 0;
}
WEFT_CODELET_2(put_copies, 0x123456, put_copies, put_copies)

/* Tasks of 1 to 3 copies each, which do not wait for one another. */
static void put_tasks(struct weft_tile *const tile[], int32_t iteration,
                      struct weft_span span[TIMED])
{
    for (int i = 0; i < TIMED; i++) {
        int n = 1 + i % 3;
        struct weft_where where = at(0);
        struct weft_access access[] = {{tile[TIMED], WEFT_READ},
                                       {tile[i], WEFT_WRITE}};
        span[i] = (struct weft_span){0, 0};
        where.span = &span[i];
        where.call = TIMED_CALL;
        where.iteration = iteration;
        weft_insert(seq, &weft_cl_put_copies, &n, sizeof n, access, 2,
                    &where);
    }
    must_wait();
}

static void times(void)
{
    struct weft_span span[TIMED];
    struct weft_call_time time;
    double sum = 0;
    start(0);
    struct weft_tile *tile[TIMED + 1];
    for (int i = 0; i <= TIMED; i++)
        tile[i] = tile_at(0, WEFT_MEM_GRADIENTS, TIMED_BYTES);
    /* A copy takes 50 s by the card's own clock, while the host's hardly
     * moves: a task takes what the card says. */
    weft_cards_tick(50e3);
    put_tasks(tile, 7, span);
    weft_cards_tick(0);
    for (int i = 0; i < TIMED; i++) {
        double s = 50.0 * (1 + i % 3);
        CHECK(fabs(span[i].end_s - span[i].start_s - s) < 1e-3);
        sum += s;
    }
    weft_rt_times(rt, 7, TIMED_CALL, &time);
    CHECK_INT(time.n_tasks, TIMED);
    CHECK(fabs(time.busy_s - sum) < 1e-2);
    /* Where both have one clock: within what the host saw, one after the
     * other. */
    double first = weft_rt_clock_s(rt);
    put_tasks(tile, 9, span);
    double last = weft_rt_clock_s(rt), slack = 1e-5;
    CHECK(span[0].start_s >= first - slack);
    CHECK(span[TIMED - 1].end_s <= last + slack);
    for (int i = 1; i < TIMED; i++)
        CHECK(span[i].start_s >= span[i - 1].end_s - slack);
    for (int i = 0; i <= TIMED; i++)
        weft_tile_release(tile[i]);
    stop();
}
#endif

static void test_times(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    each_card_order(times);
#else
    weft_test_skip("only emulated cards have a clock to set");
#endif
}

/* ---- Captures ------------------------------------------------------------ */

static int touch(const void *args, void *const buf[], int n_buf,
                 struct weft_exec *x)
{
    (void) args;
    (void) n_buf;
    (void) x;
    *(volatile char *) buf[0] = 1;
    return 0;
}

static atomic_int n_captures; /* that have begun */

/* Captures for a while; an error says that somebody has spoilt it. */
static int capture_cuda(const void *args, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    (void) args;
    (void) n_buf;
    (void) x;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    weft_exec_hold_gpus();
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(buf[0], 0, 64, stream);
    atomic_fetch_add(&n_captures, 1);
    /* Long enough that the program meanwhile begins to wait for the card; where
     * it is late, this says less, and fails no more. */
    usleep(20000);
    cudaStreamEndCapture(stream, &graph);
    weft_exec_let_gpus();
    if (graph)
        cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return 0;
}
WEFT_CODELET_2(capture, 0x123456, touch, capture_cuda)

/* The program reads and writes a tile of a GPU while a task captures there. */
static void test_captures(void)
{
    enum { N = 5, BYTES = 4096 };
    start(0);
    struct weft_tile *captured = tile_at(0, WEFT_MEM_GRADIENTS, 64),
                     *other = tile_at(0, WEFT_MEM_GRADIENTS, BYTES);
    float *x = numbers(1, BYTES / 4);
    struct weft_where where = at(0);
    struct weft_access access = {captured, WEFT_READ_WRITE};
    for (int i = 1; i <= N; i++) {
        weft_insert(seq, &weft_cl_capture, NULL, 0, &access, 1, &where);
        while (atomic_load(&n_captures) < i)
            usleep(100);
        put(other, x);
        CHECK(holds(other, x));
    }
    must_wait();
    weft_tile_release(captured);
    weft_tile_release(other);
    weft_free(x);
    stop();
}

/* ---- Memory, and what is refused ---------------------------------------- */

WEFT_CODELET(host_only, 0x123456, touch)
#ifdef WEFT_CUDA_EXECUTOR
WEFT_CODELET_2(touches, 0x123456, touch, touch)
#endif

static void test_budget(void)
{
    enum { MIB = 1 << 20 };
    struct weft_tile_id id = {"m", "x", -1, -1, -1, 0};
    struct weft_tile *tile;
    struct weft_err err;
    start(4 * MIB);
    struct weft_tile *half = tile_at(0, WEFT_MEM_KV, 2 * MIB);
    CHECK_FAILS(
        weft_tile_create(rt, &id, WEFT_MEM_GRADIENTS, 3 * MIB, &tile, &err),
        WEFT_ENOMEM, err,
        "out of memory: 'm x' wants 4.0 MiB of gradients; 2.0 of 4.0 "
        "MiB are left");
    /* host memory is not of the budget */
    weft_tile_release(tile_at(0, WEFT_MEM_SAMPLES, 8 * MIB));
    /* one after the other has room, two at once have not */
    struct weft_where where = at(0);
    for (int i = 0; i < 40; i++) {
        tile = temp_at(0, WEFT_MEM_ACTIVATIONS, MIB + (size_t) i * 4096);
        struct weft_layer_tiles tiles = {.block = {tile}};
        weft_insert_zero(seq, &where, &tiles);
        weft_tile_release(tile);
    }
    must_wait();
    tile = temp_at(0, WEFT_MEM_ACTIVATIONS, 2 * MIB + 4);
    struct weft_layer_tiles tiles = {.block = {tile}};
    weft_insert_zero(seq, &where, &tiles);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENOMEM, err,
                "zero on 'm temporary': out of memory: 'm temporary' wants "
                "4.0 MiB of activations; 2.0 of 4.0 MiB are left");
    weft_tile_release(tile);
    weft_tile_release(half);
    stop();
}

static void test_no_body(void)
{
    struct weft_err err;
    struct weft_where where = {.device = 0};
    start(0);
    struct weft_tile *sample = tile_at(0, WEFT_MEM_SAMPLES, 64);
    struct weft_tile *grad = tile_at(0, WEFT_MEM_GRADIENTS, 64);
    struct weft_access access[] = {{sample, WEFT_READ_WRITE},
                                   {grad, WEFT_READ_WRITE}};
    weft_insert(seq, &weft_cl_host_only, NULL, 0, access, 1, &where);
    must_wait();
    CHECK(*(char *) weft_tile_acquire(sample, WEFT_READ) == 1);
    weft_tile_unacquire(sample);
    weft_insert(seq, &weft_cl_host_only, NULL, 0, access, 2, &where);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EUNSUPPORTED, err,
                "host_only on 'm x': does not run on GPUs yet, and 'm x' "
                "lies in the memory of one");
    weft_tile_release(sample);
    weft_tile_release(grad);
    stop();
}

/* A body that touches a GPU's memory itself ends its process. */
static void test_host_access(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct weft_where where = {.device = 0};
        start(0);
        struct weft_access access = {tile_at(0, WEFT_MEM_GRADIENTS, 64),
                                     WEFT_READ_WRITE};
        weft_insert(seq, &weft_cl_touches, NULL, 0, &access, 1, &where);
        must_wait();
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
#else
    weft_test_skip("only emulated cards tell");
#endif
}

int main(void)
{
    const struct weft_test tests[] = {
        {"test_host_access", test_host_access},
        {"test_start_at_once", test_start_at_once},
        {"test_second_gpu", test_second_gpu},
        {"test_places", test_places},
        {"test_blocking", test_blocking},
        {"test_copies", test_copies},
        {"test_parts", test_parts},
        {"test_graphs", test_graphs},
        {"test_temporaries", test_temporaries},
        {"test_times", test_times},
        {"test_captures", test_captures},
        {"test_budget", test_budget},
        {"test_no_body", test_no_body}};
    return gpus_main("codelets/gpus", tests, WEFT_COUNT(tests));
}
