/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a schedule of one of a few problems, which the first byte
 * chooses: refused with a sentence, or one that keeps every rule, and is
 * written and read again.
 *
 * fuzz-sources: src/schedule/problem.c src/schedule/tasks.c
 * fuzz-sources: src/schedule/read.c src/schedule/json.c
 * fuzz-sources: src/schedule/time.c src/schedule/greedy.c
 * fuzz-sources: src/schedule/baseline.c */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "schedule/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const problems[] = {
    "{\"stages\": 2, \"models\": [{\"name\": \"a\", \"stages\": 2,"
    " \"micro_batches\": 2, \"forward\": 1, \"backward\": 2}]}",
    "{\"stages\": 2, \"mini_batches\": 2, \"memory_capacity\": 2, \"models\":"
    " [{\"name\": \"a\", \"stages\": 1, \"pipelines\": 2,"
    " \"micro_batches\": 1, \"forward\": 1, \"backward\": 1,"
    " \"weight\": 0.5, \"optimizer\": 1}]}",
    "{\"stages\": 1, \"latency\": 1, \"models\": [{\"name\": \"a\","
    " \"stages\": 2, \"chunks\": 2, \"micro_batches\": 1, \"forward\": 1,"
    " \"backward\": 1}, {\"name\": \"b\", \"direction\": \"up\","
    " \"stages\": 1, \"micro_batches\": 1, \"forward\": 0,"
    " \"backward\": 0}]}"};
enum { N_PROBLEMS = sizeof problems / sizeof *problems };

static void write_and_read(const struct weft_schedule_problem *p,
                           const struct weft_schedule *s)
{
    struct weft_schedule_report report = {.algorithm = WEFT_SCHEDULE_GREEDY};
    struct weft_schedule again;
    struct weft_err err;
    char *text = weft_schedule_json(p, s, &report);
    if (!text
        || weft_schedule_parse(p, text, strlen(text), "again", &again, &err)
        || again.makespan != s->makespan
        || again.peak_activation != s->peak_activation)
        abort();
    weft_schedule_release(&again);
    weft_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct weft_schedule_problem p;
    struct weft_schedule s;
    struct weft_err err = {0};
    if (n == 0)
        return 0;
    const char *problem = problems[data[0] % N_PROBLEMS];
    if (weft_schedule_problem_parse(problem, strlen(problem), "problem", &p,
                                    &err))
        abort();
    int rc = weft_schedule_parse(&p, (const char *) data + 1, n - 1,
                                 "schedule", &s, &err);
    if (rc && !err.text[0])
        abort(); /* an error without a sentence */
    if (rc == 0) {
        write_and_read(&p, &s);
        weft_schedule_release(&s);
    }
    weft_schedule_problem_release(&p);
    return 0;
}
