/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that restore: their time is counted beside their call's, with the part
 * in which other devices of the rank did other calls. */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "calls.h"
#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"

static struct weft_rt *rt;
static struct weft_seq *seq;

static void start(void)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 3, .nap = 1, .profile = true};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

/* All numbers are small sums of powers of two, so sums are exact. */
static void test_covered(void)
{
    const struct weft_span of = {10, 20};
    struct weft_span none[1];
    struct weft_span apart[] = {{18, 25}, {4, 12}, {14, 16}}; /* 2 + 2 + 2 */
    struct weft_span inside[] = {{11, 17}, {12, 13}, {16, 18}}; /* 11 to 18 */
    struct weft_span outside[] = {{0, 10}, {20, 30}, {5, 5}};
    struct weft_span around[] = {{12, 14}, {0, 100}};
    CHECK(weft_span_covered(&of, 0, none) == 0);
    CHECK(weft_span_covered(&of, 3, apart) == 6);
    CHECK(weft_span_covered(&of, 3, inside) == 7);
    CHECK(weft_span_covered(&of, 3, outside) == 0);
    CHECK(weft_span_covered(&of, 2, around) == 10);
}

static void test_times_of_restore(void)
{
    static struct weft_times times;
    const int32_t ref = CALL_REF_INFER;
    weft_times_add_restore(&times, 3, ref, 2, 0.5);
    weft_times_add(&times, 3, ref, 10, 14);
    weft_times_add_restore(&times, 3, ref, 4, 1.5);
    weft_times_add_restore(&times, -1, ref, 100, 100); /* of no iteration */
    struct weft_call_time t = weft_times_get(&times, 3, ref);
    CHECK(t.restore_s == 6 && t.hidden_s == 2);
    CHECK_INT(t.n_tasks, 1);
    CHECK(t.first_s == 10 && t.last_s == 14 && t.busy_s == 4);
    CHECK(weft_times_get(&times, 4, ref).restore_s == 0);
}

static void record(int device, double start_us, double end_us, int32_t call,
                   bool restores)
{
    struct weft_worker *w = &rt->worker[device];
    w->record[w->n_records++ % rt->n_records] = (struct weft_record){
        .start_us = start_us,
        .end_us = end_us,
        .call = (int16_t) call,
        .restores = restores};
}

/*  us              0    100   200   300   400
 *  device 0                   [ restores  )     of ref_infer
 *  device 1        [gen ) [  gen )[ref) [none)  and [train 380 ...
 *  device 2        [other copy          ) [gen) that is under way
 */
static void test_hidden_of_records(void)
{
    const int32_t ref = CALL_REF_INFER;
    const int32_t gen = CALL_ACTOR_GENERATE;
    const struct weft_worker *w;
    start();
    w = &rt->worker[0];
    CHECK(weft_rt_hidden_s(rt, w, ref, 200, 400) == 0);
    record(0, 200, 400, gen, false); /* its own device does not count */
    record(1, 0, 100, gen, false);
    record(1, 150, 250, gen, false); /* 50 */
    record(1, 250, 300, ref, false);
    record(1, 300, 380, CALL_NONE, false);
    record(2, 0, 360, CALL_REWARD_INFER, true);
    record(2, 240, 270, gen, false); /* 20 more */
    double us = weft_rt_hidden_s(rt, w, ref, 200, 400) * 1e6;
    CHECK(us > 69.999 && us < 70.001);
    /* and what is running */
    struct weft_task running = {.where.call = CALL_ACTOR_TRAIN,
                                .start_us = 380};
    rt->worker[1].running = &running;
    us = weft_rt_hidden_s(rt, w, ref, 200, 400) * 1e6;
    CHECK(us > 89.999 && us < 90.001);
    running.where.restores = true;
    us = weft_rt_hidden_s(rt, w, ref, 200, 400) * 1e6;
    CHECK(us > 69.999 && us < 70.001);
    rt->worker[1].running = NULL;
    for (int d = 0; d < 3; d++)
        rt->worker[d].n_records = 0;
    stop();
}

/* ---- Tasks -------------------------------------------------------------- */

static atomic_int state; /* 1: the other runs, 2: the restoring has ended */

static int other_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    atomic_store(&state, 1);
    while (atomic_load(&state) != 2)
        usleep(100);
    return 0;
}
WEFT_CODELET(other, 0x0, other_cpu)

/* Begins when the other runs. The other ends when a task after this one
 * says so. */
static int restore_cpu(const void *args, void *const buf[], int n_buf,
                       struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    (void) x;
    usleep(*(const useconds_t *) args);
    return 0;
}
WEFT_CODELET(restore, 0x0, restore_cpu)

static int let_go_cpu(const void *args, void *const buf[], int n_buf,
                      struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    atomic_store(&state, 2);
    return 0;
}
WEFT_CODELET(let_go, 0x0, let_go_cpu)

static void insert(const struct weft_codelet *codelet, int32_t call,
                   int device, bool restores)
{
    const useconds_t us = 2000;
    weft_insert(seq, codelet, &us, sizeof us, NULL, 0,
                &(struct weft_where){.device = device,
                                     .call = call,
                                     .iteration = 5,
                                     .micro_batch = -1,
                                     .layer = -1,
                                     .restores = restores});
}

/* Restoring for 2 ms on device 0, while device 1 is in one task of a call. */
static void restore_beside(int32_t call, struct weft_call_time *out)
{
    struct weft_err err;
    struct weft_call_time all[WEFT_MAX_CALLS];
    start();
    atomic_store(&state, 0);
    insert(&weft_cl_other, call, 1, false);
    while (atomic_load(&state) != 1)
        usleep(100);
    insert(&weft_cl_restore, CALL_REF_INFER, 0, true);
    insert(&weft_cl_let_go, CALL_NONE, 0, false);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_rt_times_all(rt, 5, all);
    weft_rt_times(rt, 5, CALL_REF_INFER, out);
    CHECK(all[CALL_REF_INFER].restore_s > out->restore_s - 1e-8);
    CHECK(all[CALL_REF_INFER].hidden_s > out->hidden_s - 1e-8);
    CHECK(out->restore_s >= 0.002);
    stop();
}

static void test_hidden_of_tasks(void)
{
    struct weft_call_time t;
    restore_beside(CALL_ACTOR_GENERATE, &t);
    /* the other lasts longer */
    CHECK(fabs(t.hidden_s - t.restore_s) < 1e-9);
    CHECK_INT(t.n_tasks, 0);
    restore_beside(CALL_REF_INFER, &t); /* not another call */
    CHECK(t.hidden_s == 0);
    CHECK_INT(t.n_tasks, 1);
}

WEFT_TESTS("rt/hidden", {"test_covered", test_covered},
           {"test_times_of_restore", test_times_of_restore},
           {"test_hidden_of_records", test_hidden_of_records},
           {"test_hidden_of_tasks", test_hidden_of_tasks})
