/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's words, read from standard error. */
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "calls.h"
#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"

static atomic_int go_on, n_standing;

static int stand_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    atomic_fetch_add(&n_standing, 1);
    while (!atomic_load(&go_on))
        usleep(1000);
    return 0;
}
WEFT_CODELET(stand, 0x0, stand_cpu)

static struct weft_rt *rt;
static struct weft_seq *seq;
static struct weft_tile *tile;
static int caught, saved;

/* Standard error goes to a file. */
static void start(double watchdog_s)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 2, .nap = 1, .watchdog_s = watchdog_s};
    char path[] = "/tmp/weft-test-XXXXXX";
    caught = mkstemp(path);
    saved = dup(2);
    REQUIRE(caught >= 0 && saved >= 0);
    unlink(path);
    fflush(stderr);
    dup2(caught, 2);
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    weft_rt_name_calls(rt, N_CALLS, calls_name);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    REQUIRE_OK(weft_tile_create(rt, &(struct weft_tile_id){0},
                                WEFT_MEM_SAMPLES, 8, &tile, &err),
               err);
    atomic_store(&go_on, 0);
    atomic_store(&n_standing, 0);
}

/* What was said so far. */
static const char *said(void)
{
    static char text[4096];
    ssize_t n = pread(caught, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void stop(void)
{
    weft_tile_release(tile);
    weft_seq_free(seq);
    weft_rt_stop(rt);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(caught);
}

static const struct weft_where where = {.device = 1,
                                        .call = CALL_REF_INFER,
                                        .iteration = 3,
                                        .micro_batch = 4,
                                        .layer = 5};

/* Three tasks, the first of which runs when this returns, and an answer that
 * does not come. */
static struct weft_external *stand_still(void)
{
    struct weft_err err;
    struct weft_external *answer;
    for (int i = 0; i < 3; i++)
        weft_insert(seq, &weft_cl_stand, NULL, 0, NULL, 0, &where);
    REQUIRE_OK(weft_external_begin(seq, tile, &where, &answer, &err), err);
    while (atomic_load(&n_standing) == 0)
        usleep(1000);
    return answer;
}

static void go(struct weft_external *answer)
{
    struct weft_err err;
    weft_external_complete(answer, NULL, 0);
    atomic_store(&go_on, 1);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

/* Looks at times of the test's own. */
static void test_standstill(void)
{
    start(0);
    struct weft_watchdog_view view = {.rt = rt, .after_s = 10, .seen = -1};
    weft_watchdog_look(&view, 100);
    weft_watchdog_look(&view, 115); /* idle is no standstill */
    struct weft_external *answer = stand_still();
    weft_watchdog_look(&view, 124.9);
    CHECK_STR(said(), "");
    weft_watchdog_look(&view, 125.5);
    CHECK_INT(count(said(), "no task has ended for 10.5 s"), 1);
    CHECK_INT(count(said(), "3 wait or run: stand 3"), 1);
    CHECK_INT(count(said(), "1 answers from outside have not come"), 1);
    CHECK_INT(count(said(), "device 1 runs stand (ref_infer, iteration 3, "
                            "micro-batch 4, layer 5) for "),
              1);
    CHECK_INT(count(said(), "device 0 runs"), 0);
    weft_watchdog_look(&view, 140);
    weft_watchdog_look(&view, 150);
    CHECK_INT(count(said(), "no task has ended"), 1); /* once */
    CHECK_INT(count(said(), "has not answered"), 0);
    go(answer);
    weft_watchdog_look(&view, 160);
    weft_watchdog_look(&view, 175);
    CHECK_INT(count(said(), "no task has ended"), 1);
    atomic_store(&go_on, 0); /* again: it moved in between */
    atomic_store(&n_standing, 0);
    answer = stand_still();
    weft_watchdog_look(&view, 184.9);
    CHECK_INT(count(said(), "no task has ended"), 1);
    weft_watchdog_look(&view, 185.1);
    CHECK_INT(count(said(), "no task has ended for 10.1 s"), 1);
    go(answer);
    stop();
}

static void test_off(void)
{
    start(0);
    struct weft_watchdog_view view = {.rt = rt, .seen = -1};
    weft_watchdog_look(&view, 0);
    struct weft_external *answer = stand_still();
    weft_watchdog_look(&view, 1e9);
    CHECK_STR(said(), "");
    go(answer);
    stop();
}

/* Its thread looks, without being asked. */
static void test_thread(void)
{
    start(0.05);
    struct weft_external *answer = stand_still();
    while (!strstr(said(), "no task has ended for "))
        usleep(1000);
    go(answer);
    stop();
}

WEFT_TESTS("rt/watchdog", {"test_standstill", test_standstill},
           {"test_off", test_off}, {"test_thread", test_thread})
