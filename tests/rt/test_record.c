/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: what it notes, that it runs and holds nothing, and what the
 * record of a task that waits takes, against what malloc() says. */
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "plan/recording.h"
#include "rt/codelet.h"
#include "rt/graph.h"

static int never_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL, "it ran");
}
WEFT_CODELET(never, 0x00ff00, never_cpu)

static struct weft_recording recording;
static struct weft_rt *rt;
static struct weft_seq *seq;

/* Three ranks of two devices, with a place each. */
static void start(int rank)
{
    struct weft_err err;
    struct weft_record_options options = {.n_ranks = 3,
                                          .n_devices = 2,
                                          .place_per_device = true,
                                          .rank = rank,
                                          .recording = &recording};
    weft_recording_init(&recording);
    REQUIRE_OK(weft_rt_record(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void stop(void)
{
    weft_rt_stop(rt);
    weft_recording_release(&recording);
}

static struct weft_tile *tile_at(int place, bool temporary)
{
    const struct weft_tile_id id = {"actor", "weights", -1, 3, 1, place};
    struct weft_tile *tile;
    struct weft_err err;
    const size_t huge = (size_t) 1 << 44; /* no machine has that */
    int rc = (temporary ? weft_tile_create_temp : weft_tile_create)(
        rt, &id, WEFT_MEM_WEIGHTS, huge, &tile, &err);
    REQUIRE_OK(rc, err);
    return tile;
}

static void insert(struct weft_tile *a, enum weft_mode mode,
                   struct weft_tile *b, int device)
{
    struct weft_access access[] = {{a, mode}, {b, WEFT_WRITE}};
    struct weft_where where = {
        .device = device, .priority = 7, .layer = 3, .position = 2};
    weft_insert(seq, &weft_cl_never, NULL, 0, access, b ? 2 : 1, &where);
}

static void program(void)
{
    const struct weft_where where = {.device = -1};
    const size_t at[] = {4096};
    struct weft_external *answer = NULL;
    struct weft_err err;
    struct weft_tile *a = tile_at(1, false), *b = tile_at(5, true);
    insert(a, WEFT_READ_WRITE, NULL, 1);
    weft_insert_copy(seq, &where, a, b); /* from rank 0 to rank 2 */
    insert(b, WEFT_READ, NULL, 5);
    weft_insert_cut(seq, &where, a, 2, at);
    insert(a, WEFT_READ, NULL, 1);
    weft_tile_release(b);
    struct weft_tile *c = tile_at(0, true);
    REQUIRE_OK(weft_external_begin(seq, c, &where, &answer, &err), err);
    weft_external_complete(answer, NULL, 0);
    weft_tile_await(c);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(c);
    weft_tile_release(a);
}

static bool is_access(int64_t task, int k, int tile, enum weft_mode mode)
{
    const struct weft_rec_task *t = &recording.task[task];
    const struct weft_rec_access *a = &recording.access[t->access + k];
    return k < t->n_access && (int) a->tile == tile
        && (enum weft_mode) a->mode == mode;
}

static void test_all_ranks(void)
{
    enum { A, B, A1, A2, C };
    start(-1);
    program();
    REQUIRE(recording.n_tasks == 6);
    const char *const op[] = {"never", "message", "never",
                              "join",  "never",   "answer"};
    static const int place[] = {1, 5, 5, 1, 1, -1};
    static const int device[] = {1, -1, 5, 1, 1, -1};
    for (int i = 0; i < 6; i++) {
        CHECK_STR(weft_recording_op(&recording, i), op[i]);
        CHECK_INT(recording.task[i].place, place[i]);
        CHECK_INT(recording.task[i].device, device[i]);
    }
    CHECK_INT(recording.task[0].priority, 7);
    CHECK_INT(recording.task[0].position, 2);
    CHECK_INT(recording.task[0].layer, 3);
    CHECK(is_access(0, 0, A, WEFT_READ_WRITE));
    CHECK(is_access(1, 0, A, WEFT_READ) && is_access(1, 1, B, WEFT_WRITE));
    CHECK(is_access(3, 0, A, WEFT_READ_WRITE));
    CHECK(is_access(3, 1, A1, WEFT_WRITE) && is_access(3, 2, A2, WEFT_WRITE));
    CHECK(is_access(4, 0, A1, WEFT_READ) && is_access(4, 1, A2, WEFT_READ));
    CHECK(is_access(5, 0, C, WEFT_WRITE));
    REQUIRE(recording.n_tiles == 5);
    CHECK(recording.tile[A].permanent && !recording.tile[B].permanent);
    CHECK_INT(recording.tile[A1].whole, A);
    CHECK_INT(recording.tile[A1].bytes, 4096);
    CHECK_INT(recording.tile[B].whole, -1);
    CHECK_INT(recording.tile[B].created, 0);
    CHECK_INT(recording.tile[B].released, 5);
    CHECK_INT(recording.tile[C].created, 5);
    CHECK_INT(recording.tile[A].released, 6);
    REQUIRE(recording.n_waits == 2);
    CHECK_INT(recording.wait[0].tile, C);
    CHECK_INT(recording.wait[1].ended, 6);
    stop();
}

/* A rank has its side of messages, and only its own tasks. */
static void test_one_rank(void)
{
    start(2);
    program();
    REQUIRE(recording.n_tasks == 2);
    CHECK_STR(weft_recording_op(&recording, 0), "receive");
    CHECK(is_access(0, 0, 1, WEFT_WRITE));
    CHECK_STR(weft_recording_op(&recording, 1), "never");
    stop();
    start(1); /* which has none */
    program();
    CHECK_INT(recording.n_tasks, 0);
    stop();
}

/* Errors are found as they are in a run. */
static void test_errors(void)
{
    struct weft_err err;
    start(-1);
    struct weft_tile *tile = tile_at(2, false);
    insert(tile, WEFT_READ, NULL, 1);
    CHECK(weft_seq_wait(seq, &err) == WEFT_EINTERNAL);
    CHECK(strstr(err.text, "lies at place 2") != NULL);
    CHECK_INT(recording.n_tasks, 0);
    stop();
}

static void test_acquire(void)
{
    int status;
    start(-1);
    struct weft_tile *tile = tile_at(2, false);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        weft_tile_acquire(tile, WEFT_READ);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    stop();
}

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Bytes of a task that waits, with n accesses. */
static double measure(int n)
{
    enum { TASKS = 2000, MOST = 128 };
    const struct weft_tile_id id = {NULL, NULL, -1, -1, -1, 0};
    struct weft_access access[MOST];
    struct weft_where where = {.device = -1};
    struct weft_external *answer;
    struct weft_err err;
    char args[200] = {0};
    size_t before = 0;
    for (int i = 0; i < n; i++) {
        access[i].mode = i % 2 ? WEFT_READ : WEFT_READ_WRITE;
        REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, 64,
                                    &access[i].tile, &err),
                   err);
    }
    REQUIRE_OK(
        weft_external_begin(seq, access[0].tile, &where, &answer, &err), err);
    for (int i = 0; i < 2 * TASKS; i++) {
        if (i == TASKS) /* lists that grow have grown */
            before = in_use();
        weft_insert(seq, &weft_cl_never, args, sizeof args, access, n,
                    &where);
    }
    double bytes = (double) (in_use() - before) / TASKS;
    weft_seq_fail(seq, WEFT_EINTERNAL, "nothing runs");
    weft_external_complete(answer, NULL, 0);
    CHECK(weft_seq_wait(seq, &err) == WEFT_EINTERNAL);
    for (int i = 0; i < n; i++)
        weft_tile_release(access[i].tile);
    return bytes;
}

static void test_task_bytes(void)
{
    static const int n[] = {1, 4, 8, 16, 31, 40, 100};
    struct weft_rt_options options = {.n_devices = 1, .nap = 1};
    struct weft_err err;
    for (size_t i = 0; i < WEFT_COUNT(n); i++) {
        /* Each its own, as blocks of ended tasks are kept for the next. */
        REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
        REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
        double said = (double) weft_rec_task_bytes(n[i]);
        double is = measure(n[i]);
        weft_seq_free(seq);
        weft_rt_stop(rt);
        if (is == 0)
            break; /* a sanitizer's malloc() does not say */
        CHECK(is > 0.85 * said && is < 1.15 * said);
        if (is < 0.85 * said || is > 1.15 * said)
            printf("%d accesses: %.0f bytes, not %.0f\n", n[i], is, said);
    }
}

static bool at_once(void *ctx)
{
    (void) ctx;
    return true;
}

/* A program ends where it next waits, or tells the others something, when its
 * recording was stopped or has no room. */
static void test_full(void)
{
    for (int k = 0; k < 2; k++) {
        struct weft_err err;
        int32_t told = 1;
        start(-1);
        insert(tile_at(1, false), WEFT_READ_WRITE, NULL, 1);
        REQUIRE_OK(weft_seq_tell(seq, &told, sizeof told, false, &err), err);
        recording.stop = k ? at_once : NULL;
        recording.most_bytes = 1;
        if (k)
            weft_recording_ask(&recording);
        for (int i = 0; i < 1 << 15; i++)
            insert(tile_at(1, false), WEFT_READ_WRITE, NULL, 1);
        CHECK_FAILS(weft_seq_tell(seq, &told, sizeof told, false, &err),
                    k ? WEFT_EINTERRUPTED : WEFT_ENOMEM, err,
                    k ? "stopped while" : "no memory to record more than");
        CHECK(weft_seq_wait(seq, &err) != 0);
        CHECK(weft_seq_wait(seq, &err) != 0);
        stop();
    }
}

WEFT_TESTS("rt/record", {"test_all_ranks", test_all_ranks},
           {"test_one_rank", test_one_rank}, {"test_errors", test_errors},
           {"test_acquire", test_acquire}, {"test_full", test_full},
           {"test_task_bytes", test_task_bytes})
