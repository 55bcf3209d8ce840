/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a case's own, `dir`, and paths in it. */
#ifndef WEFT_TESTS_FOLDER_H
#define WEFT_TESTS_FOLDER_H

#include "base/file.h"
#include "tests/harness.h"

static char dir[64];

static inline void folder_make(void)
{
    snprintf(dir, sizeof dir, "/tmp/weft-test-XXXXXX");
    REQUIRE(mkdtemp(dir) != NULL);
}

static inline void folder_remove(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    CHECK(!weft_dir_exists(dir));
}

/* dir/name; good for the next seven calls. */
static inline const char *in(const char *name)
{
    static char path[8][640];
    static unsigned next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

#endif
