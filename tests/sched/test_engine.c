/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy beside the event engine that plans with its rules: the runtime
 * executes a random graph and records it, the engine plays the recording, and
 * each device must run its tasks in the engine's order. Time is the engine's:
 * a body lasts until the test says that its task has ended, in the engine's
 * order of ends, and once all that begins there has begun here.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "base/rng.h"
#include "harness.h"
#include "plan/engine/engine.h"
#include "rt/internal.h"
#include "sched/sched.h"

enum { DEVICES = 4, TASKS = 120, TILES = 8, ROUNDS = 8 };

static atomic_int begun[TASKS], ended[TASKS];
static atomic_int running[DEVICES]; /* the last one that has begun */
static int order[DEVICES][TASKS], n_ran[DEVICES]; /* each its worker's */

static struct weft_rt *rt;
static struct weft_seq *seq;
static struct weft_tile *tile[TILES];
static struct weft_recording r;
static double seconds_of[TASKS];
static struct weft_span span[TASKS]; /* as the engine says */
static int by_end[TASKS];

/* ---- The graph ----------------------------------------------------------- */

static int step_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    int i = *(const int *) args, d = x->device;
    (void) buf;
    (void) n_buf;
    order[d][n_ran[d]++] = i;
    atomic_store(&running[d], i);
    atomic_store(&begun[i], 1);
    while (!atomic_load(&ended[i]))
        usleep(20);
    return 0;
}
WEFT_CODELET(step, 0x808080, step_cpu)

/* Numbers from 0 to n - 1, the same in every run. */
static int draw(int n)
{
    static uint32_t n_drawn;
    uint32_t word[4];
    weft_rng_words(12, WEFT_RNG_PLAN, n_drawn++, 0, 0, word);
    return (int) (word[0] % (uint32_t) n);
}

/* No two sums of seconds are equal. */
static void insert(const struct weft_where *where, int n_access, double least)
{
    static const enum weft_mode modes[] = {WEFT_READ, WEFT_WRITE,
                                           WEFT_READ_WRITE};
    struct weft_access access[2];
    int i = (int) r.n_tasks, first = draw(TILES);
    for (int k = 0; k < n_access; k++)
        access[k] = (struct weft_access){tile[(first + 3 * k) % TILES],
                                         modes[draw(3)]};
    seconds_of[i] = least + (1 + draw(1 << 30)) / (double) (1 << 30);
    weft_insert(seq, &weft_cl_step, &i, sizeof i, access, n_access, where);
}

/* Keeps all devices busy while the rest is inserted. */
static void insert_first(void)
{
    for (int d = 0; d < DEVICES; d++)
        insert(&(struct weft_where){.device = d, .priority = 100}, 0, TASKS);
}

/* Priorities, and positions in two chains. Gangs would begin in another order:
 * a device that takes a member reserves the others, and the engine's waits for
 * them. */
static void insert_lanes(void)
{
    int64_t position[DEVICES][2] = {{0}};
    insert_first();
    while (r.n_tasks < TASKS) {
        struct weft_where where = {
            .device = draw(DEVICES), .priority = draw(4), .chain = draw(2)};
        if (draw(2))
            where.position = ++position[where.device][where.chain];
        insert(&where, draw(3), 0);
    }
}

/* Gangs, of which only the first member uses tiles, as none may wait for
 * another, and tasks between them, all in the order of positions. */
static void insert_gangs(void)
{
    int64_t position[DEVICES] = {0};
    insert_first();
    while (r.n_tasks + DEVICES < TASKS) {
        int n = draw(3) ? 1 : 2 + draw(DEVICES - 1);
        int d = draw(DEVICES - n + 1);
        if (n > 1)
            weft_insert_gang(seq, n);
        for (int k = 0; k < n; k++)
            insert(&(struct weft_where){.device = d + k,
                                        .position = ++position[d + k]},
                   k ? 0 : draw(3), 0);
    }
}

/* ---- Both ---------------------------------------------------------------- */

static double seconds(void *ctx, const struct weft_recording *rec,
                      int64_t task, int32_t device)
{
    (void) ctx;
    (void) rec;
    (void) device;
    return seconds_of[task];
}

static void message(void *ctx, const struct weft_recording *rec, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) rec;
    (void) task;
    *out = (struct weft_engine_message){.latency_s = 0};
}

static int compare_ends(const void *left, const void *right)
{
    int a = *(const int *) left, b = *(const int *) right;
    double x = span[a].end_s, y = span[b].end_s;
    return x != y ? (x > y) - (x < y) : a - b;
}

static void play(void)
{
    static const int32_t place_of[DEVICES];
    const struct weft_engine_job job = {.n_devices = DEVICES,
                                        .n_places = 1,
                                        .places_per_rank = 1,
                                        .place_of = place_of,
                                        .seconds = seconds,
                                        .message = message};
    struct weft_engine *e;
    struct weft_err err;
    int32_t device;
    REQUIRE_OK(weft_engine_create(&job, &r, &e, &err), err);
    REQUIRE_OK(weft_engine_run(e, &err), err);
    for (int i = 0; i < r.n_tasks; i++) {
        CHECK(weft_engine_span(e, i, &span[i], &device));
        by_end[i] = i;
    }
    weft_engine_free(e);
    qsort(by_end, (size_t) r.n_tasks, sizeof *by_end, compare_ends);
}

/* How often devices asked for a task: who asks has done all that follows from
 * the end of its last one. */
static atomic_int n_pops[DEVICES];
static struct starpu_sched_policy counted;

static struct starpu_task *count_pop(unsigned sched_ctx_id)
{
    atomic_fetch_add(&n_pops[starpu_worker_get_id()], 1);
    return weft_sched_lanes.starpu->pop_task(sched_ctx_id);
}

/* Waits for what begins at a time; false: another one has begun instead. */
static bool wait_for_begins(double s)
{
    for (int i = 0; i < r.n_tasks; i++)
        while (span[i].start_s == s && !atomic_load(&begun[i])) {
            int other = atomic_load(&running[r.task[i].device]);
            if (other >= 0 && other != i && !atomic_load(&ended[other]))
                return false;
            usleep(20);
        }
    return true;
}

/* Of a gang's members at the same time: they wait for one another. */
static void end(const int task[], int n)
{
    int before[DEVICES];
    for (int k = 0; k < n; k++)
        before[k] = atomic_load(&n_pops[r.task[task[k]].device]);
    for (int k = 0; k < n; k++)
        atomic_store(&ended[task[k]], 1);
    for (int k = 0; k < n; k++)
        while (atomic_load(&n_pops[r.task[task[k]].device]) == before[k])
            usleep(20);
}

/* Lets tasks end in the engine's order; false: it is not followed. */
static bool follow(void)
{
    bool same = wait_for_begins(0);
    for (int k = 0, n; k < r.n_tasks && same; k += n) {
        n = weft_max32(r.task[by_end[k]].n_members, 1);
        end(&by_end[k], n);
        same = wait_for_begins(span[by_end[k]].end_s);
    }
    for (int i = 0; i < r.n_tasks; i++)
        atomic_store(&ended[i], 1);
    return same;
}

static void start(void)
{
    static struct weft_policy policy;
    struct weft_rt_options options = {
        .n_devices = DEVICES, .policy = &policy, .nap = 1, .recording = &r};
    struct weft_tile_id id = {"test", "tile", 0, -1, -1, 0};
    struct weft_err err;
    counted = *weft_sched_lanes.starpu;
    counted.pop_task = count_pop;
    policy = weft_sched_lanes;
    policy.starpu = &counted;
    for (int d = 0; d < DEVICES; d++) {
        n_ran[d] = 0;
        atomic_store(&running[d], -1);
    }
    for (int i = 0; i < TASKS; i++) {
        atomic_store(&begun[i], 0);
        atomic_store(&ended[i], 0);
    }
    weft_recording_init(&r);
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    for (int i = 0; i < TILES; i++)
        REQUIRE_OK(
            weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, 8, &tile[i], &err),
            err);
}

static void stop(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    for (int i = 0; i < TILES; i++)
        weft_tile_release(tile[i]);
    weft_seq_free(seq);
    weft_rt_stop(rt);
    weft_recording_release(&r);
}

static void check_order(void)
{
    int n[DEVICES] = {0}, wrong = 0;
    /* tasks of a device end in the order in which they begin */
    for (int k = 0; k < r.n_tasks; k++) {
        int32_t d = r.task[by_end[k]].device;
        wrong += order[d][n[d]++] != by_end[k];
    }
    CHECK_INT(wrong, 0);
    for (int d = 0; d < DEVICES; d++)
        CHECK_INT(n_ran[d], n[d]);
}

static void check(void (*insert_all)(void))
{
    for (int round = 0; round < ROUNDS; round++) {
        struct weft_err err;
        start();
        insert_all();
        play();
        CHECK(follow());
        REQUIRE_OK(weft_seq_wait(seq, &err), err);
        check_order();
        stop();
    }
}

static void test_lanes(void)
{
    check(insert_lanes);
}

static void test_gangs(void)
{
    check(insert_gangs);
}

WEFT_TESTS("sched/engine", {"test_lanes", test_lanes},
           {"test_gangs", test_gangs})
