/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/children.h"

static int32_t *written, told, last;
static pid_t caller;

/* Number 3 fails, number 5 ends its process. */
static int one(void *ctx, int32_t i, struct weft_err *err)
{
    bool fails = *(bool *) ctx;
    written[i] = 10 + i;
    if (fails && i == 5 && getpid() != caller)
        _exit(1);
    return fails && i == 3 ? weft_err_set(err, WEFT_EINVAL, "number %d", i)
                           : 0;
}

static void count(int32_t done, int32_t of)
{
    CHECK(done == last + 1 && of == 7);
    last = done;
    told++;
}

static void test_children(void)
{
    struct weft_err err = {0};
    caller = getpid();
    written = weft_children_alloc(7, sizeof *written);
    for (int32_t at_once = 1; at_once <= 8; at_once++) {
        bool fails = false;
        struct weft_children c = {.n = 7,
                                  .at_once = at_once,
                                  .one = one,
                                  .ctx = &fails,
                                  .progress = count};
        for (int i = 0; i < 7; i++)
            written[i] = 0;
        told = last = 0;
        CHECK(weft_children_run(&c, &err) == 0);
        CHECK(told == 7);
        for (int i = 0; i < 7; i++)
            CHECK(written[i] == 10 + i);
        fails = true;
        last = 0;
        CHECK(weft_children_run(&c, &err) == WEFT_EINVAL);
        CHECK_STR(err.text, "number 3");
        CHECK(written[6] == 16); /* the others are done all the same */
    }
    weft_children_free(written, 7, sizeof *written);
}

/* A process that ends by itself is an error of its own. */
static int ends(void *ctx, int32_t i, struct weft_err *err)
{
    (void) ctx;
    (void) err;
    if (i == 1)
        _exit(0);
    return 0;
}

static void test_children_lost(void)
{
    struct weft_err err = {0};
    const struct weft_children c = {.n = 3, .at_once = 2, .one = ends};
    CHECK(weft_children_run(&c, &err) == WEFT_EINTERNAL);
    CHECK(strstr(err.text, "number 2 of 3") != NULL);
    CHECK(!weft_children_alloc(SIZE_MAX / 2, 4));
}

WEFT_TESTS("base/children", {"test_children", test_children},
           {"test_children_lost", test_children_lost})
