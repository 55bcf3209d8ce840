/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a problem of weft schedule: refused with a sentence, or a
 * problem whose greedy schedule is written and read again, and whose bounds
 * that does not beat.
 *
 * fuzz-sources: src/schedule/problem.c src/schedule/tasks.c
 * fuzz-sources: src/schedule/read.c src/schedule/json.c
 * fuzz-sources: src/schedule/time.c src/schedule/greedy.c
 * fuzz-sources: src/schedule/baseline.c src/schedule/bounds.c
 * fuzz-sources: src/schedule/bounds_memory.c
 * fuzz-sources: src/schedule/refute.c src/schedule/refute_rules.c
 * fuzz-sources: src/schedule/jobshop.c */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/file.h"
#include "schedule/tasks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Large counts only take memory and time. */
static bool has_large_count(const uint8_t *data, size_t n)
{
    size_t digits = 0;
    for (size_t i = 0; i < n && digits < 3; i++)
        digits = isdigit(data[i]) ? digits + 1 : 0;
    return digits == 3;
}

static void write_and_read(const struct weft_schedule_problem *p,
                           const struct weft_schedule *s)
{
    struct weft_schedule_report report = {.algorithm = WEFT_SCHEDULE_GREEDY};
    struct weft_schedule again;
    struct weft_err err;
    char *text = weft_schedule_json(p, s, &report);
    if (!text
        || weft_schedule_parse(p, text, strlen(text), "again", &again, &err)
        || again.makespan != s->makespan)
        abort();
    weft_schedule_release(&again);
    weft_free(text);
}

static void use(const struct weft_schedule_problem *p)
{
    struct weft_schedule s;
    struct weft_schedule_bound bound;
    struct weft_err err;
    if (weft_schedule_count(p) > 200)
        return;
    if (weft_schedule_baseline(p, WEFT_SCHEDULE_GREEDY, &s, &err)
        || weft_schedule_bounds(p, 1, &bound, &err))
        abort();
    if (p->capacity <= 0 || s.peak_activation <= p->capacity) {
        write_and_read(p, &s);
        if (bound.makespan > s.makespan * (1 + 1e-9))
            abort();
    }
    weft_schedule_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct weft_schedule_problem p;
    struct weft_err err = {0};
    if (has_large_count(data, n))
        return 0;
    int rc = weft_schedule_problem_parse((const char *) data, n, "problem",
                                         &p, &err);
    if (rc) {
        if (!err.text[0])
            abort(); /* an error without a sentence */
        return 0;
    }
    if (weft_schedule_problem_check(&p, &err))
        abort();
    use(&p);
    weft_schedule_problem_release(&p);
    return 0;
}
