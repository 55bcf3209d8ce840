/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog's words, read from standard error. */
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"

static atomic_int go_on;

static int stand_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    while (!atomic_load(&go_on))
        usleep(1000);
    return 0;
}
WEFT_CODELET(stand, 0x0, stand_cpu)

/* Runs a standstill of a second; what was said comes in text. */
static void said(double watchdog_s, bool still, char *text, size_t size)
{
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_tile *tile;
    struct weft_external *answer;
    struct weft_rt_options options = {
        .n_devices = 2, .nap = 1, .watchdog_s = watchdog_s};
    char path[] = "/tmp/weft-test-XXXXXX";
    int file = mkstemp(path), saved = dup(2);
    REQUIRE(file >= 0 && saved >= 0);
    unlink(path);
    fflush(stderr);
    dup2(file, 2);
    int rc = weft_rt_start(&options, &rt, &err);
    if (!rc)
        rc = weft_seq_create(rt, &seq, &err);
    if (!rc)
        rc = weft_tile_create(rt, &(struct weft_tile_id){0}, WEFT_MEM_SAMPLES,
                              8, &tile, &err);
    REQUIRE_OK(rc, err);
    struct weft_where where = {.device = 1,
                               .call = WEFT_CALL_REF_INFER,
                               .iteration = 3,
                               .micro_batch = 4,
                               .layer = 5};
    atomic_store(&go_on, !still);
    for (int i = 0; i < 3; i++)
        weft_insert(seq, &weft_cl_stand, NULL, 0, NULL, 0, &where);
    REQUIRE_OK(weft_external_begin(seq, tile, &where, &answer, &err), err);
    if (!still)
        weft_external_complete(answer, NULL, 0);
    usleep(900000);
    if (still)
        weft_external_complete(answer, NULL, 0);
    atomic_store(&go_on, 1);
    rc = weft_seq_wait(seq, &err);
    weft_tile_release(tile);
    weft_seq_free(seq);
    weft_rt_stop(rt);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    ssize_t n = pread(file, text, size - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(file);
    CHECK_INT(rc, 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static void test_standstill(void)
{
    char text[4096];
    said(0.4, true, text, sizeof text);
    CHECK_INT(count(text, "no task has ended for 0."), 1); /* once */
    CHECK_INT(count(text, "3 wait or run: stand 3"), 1);
    CHECK_INT(count(text, "1 answers from outside have not come"), 1);
    CHECK_INT(count(text, "device 1 runs stand (ref_infer, iteration 3, "
                          "micro-batch 4, layer 5) for 0."),
              1);
    CHECK_INT(count(text, "device 0 runs"), 0);
}

static void test_silence(void)
{
    char text[4096];
    said(0.4, false, text, sizeof text); /* idle is no standstill */
    CHECK_STR(text, "");
    said(30, true, text, sizeof text);
    CHECK_STR(text, "");
    said(0, true, text, sizeof text);
    CHECK_STR(text, "");
}

WEFT_TESTS("rt/watchdog", {"test_standstill", test_standstill},
           {"test_silence", test_silence})
