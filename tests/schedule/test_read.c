/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule_fixture.h"

#include <unistd.h>

#include "base/file.h"
#include "schedule/file.h"

static char path[] = "/tmp/weft-schedule-XXXXXX";
static struct weft_err err;

static void open_file(void)
{
    strcpy(path, "/tmp/weft-schedule-XXXXXX");
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
}

static struct weft_schedule greedy(const struct weft_schedule_problem *p)
{
    struct weft_schedule s;
    REQUIRE_OK(weft_schedule_baseline(p, WEFT_SCHEDULE_GREEDY, &s, &err),
               err);
    return s;
}

/* All that a problem can have: three passes, chunks, mini-batches, times that
 * no short decimal says. */
static struct weft_schedule_problem full(void)
{
    struct weft_schedule_problem p = test_problem(4, 2);
    p.model[0] = test_model("a \"<&>", 8, 8, 3, 1.0 / 3, 0.1, true);
    p.model[0].pipelines = 1;
    p.model[0].chunks = 2;
    p.model[1] = test_model("b", 4, 2, 2, 1, 1, false);
    test_split_backward(&p.model[1]);
    p.model[1].optimizer = 0.7;
    p.latency = 1.0 / 7;
    p.mini_batches = 2;
    return p;
}

static void test_schedule_read_round_trip(void)
{
    struct weft_schedule_problem p = full();
    struct weft_schedule s = greedy(&p), t;
    struct weft_schedule_report report = {.algorithm = WEFT_SCHEDULE_GREEDY,
                                          .lower_bound = NAN,
                                          .serial_1f1b = 3,
                                          .seconds = NAN};
    open_file();
    REQUIRE_OK(weft_schedule_write(&p, &s, &report, path, &err), err);
    REQUIRE_OK(weft_schedule_read(&p, path, &t, &err), err);
    test_rules(&p, &t);
    CHECK(t.makespan == s.makespan);
    CHECK(t.peak_activation == s.peak_activation);
    for (int32_t d = 0; d < s.n_devices; d++) {
        REQUIRE(t.n[d] == s.n[d]);
        for (int32_t i = 0; i < s.n[d]; i++) {
            const struct weft_subtask *a = &s.task[d][i], *b = &t.task[d][i];
            CHECK(a->model == b->model && a->mini_batch == b->mini_batch);
            CHECK(a->pipeline == b->pipeline && a->pass == b->pass);
            CHECK(a->micro_batch == b->micro_batch && a->stage == b->stage);
            CHECK(a->start == b->start && a->end == b->end);
        }
    }
    char *json = weft_schedule_json(&p, &t, &report);
    char *text = NULL;
    size_t n;
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    CHECK_STR(json, text);
    CHECK(strstr(text, "\"lower_bound\": null") != NULL);
    weft_free(json);
    weft_free(text);
    unlink(path);
    weft_schedule_release(&t);
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

/* Starts may be later than they must be; nothing else. */
static void test_schedule_check_rules(void)
{
    struct weft_schedule_problem p = test_problem(2, 1);
    p.model[0] = test_model("a", 2, 2, 1, 1, 1, false);
    p.mini_batches = 2;
    p.model[0].optimizer = 4;
    p.latency = 1;
    struct weft_schedule s = greedy(&p);
    REQUIRE_OK(weft_schedule_check(&p, &s, &err), err);
    struct weft_subtask *last = &s.task[0][3];
    last->start += 5;
    last->end += 5;
    REQUIRE_OK(weft_schedule_check(&p, &s, &err), err);
    CHECK(s.makespan == last->end + 4);
    last->end += 1;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "device 0: backward of micro-batch 0 of mini-batch 1 of a on "
                "stage 0 takes 2, not 3");
    last->start -= 6;
    last->end -= 7;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "stage 0 starts at");
    CHECK(strstr(err.text, "but must wait until") != NULL);
    last->start += 1;
    last->end += 1;
    s.task[0][2].start -= 1;
    s.task[0][2].end -= 1;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "before the optimizer's step");
    s.task[0][2].start = s.task[0][1].end - 0.5;
    s.task[0][2].end = s.task[0][2].start + 1;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "while the one before runs");
    s.task[0][2].start = NAN;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "takes 1, not nan");
    weft_schedule_release(&s);
    s = greedy(&p);
    p.capacity = 0.5;
    CHECK_FAILS(weft_schedule_check(&p, &s, &err), WEFT_EINVAL, err,
                "device 0 holds 1 of activations, more than the capacity");
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

/* Pictures and traces of all kinds of subtasks: names are escaped, every
 * subtask is there. */
static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

static char *written(int rc)
{
    char *text = NULL;
    size_t n;
    REQUIRE_OK(rc, err);
    REQUIRE_OK(weft_file_read(path, 0, &text, &n, &err), err);
    return text;
}

static void test_schedule_write_pictures(void)
{
    struct weft_schedule_problem p = full();
    struct weft_schedule s = greedy(&p);
    struct weft_schedule_report report = {.lower_bound = 1,
                                          .serial_1f1b = NAN,
                                          .greedy = NAN,
                                          .serial_peak_activation = 1};
    size_t n = 2 * (1 * 3 * 8 * 2 + 2 * 2 * 2 * 3);
    open_file();
    char *text = written(
        weft_schedule_write_svg(&p, &s, &report, path, &err));
    CHECK_INT(count(text, "<rect"), 1 + 2 + 3); /* ground, legend */
    CHECK_INT(count(text, "z\"/>") + count(text, "zM"), n + 2); /* areas */
    CHECK(strstr(text, "a \"&lt;&amp;>") != NULL);
    CHECK(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL);
    weft_free(text);
    text = written(weft_schedule_write_perfetto(&p, &s, path, &err));
    CHECK_INT(count(text, "\"ph\": \"X\""), n);
    CHECK(strstr(text, "\"a \\\"<&> forward 2\"") != NULL);
    weft_free(text);
    text = written(weft_schedule_write_paje(&p, &s, path, &err));
    CHECK_INT(count(text, " S d") - count(text, "idle -1"), n);
    weft_free(text);
    text = weft_schedule_summary(&p, &s, &report);
    CHECK(strstr(text, "lower bound      1, gap ") != NULL);
    CHECK(strstr(text, "serial 1F1B  ") == NULL);
    CHECK(strstr(text, ", + weight") != NULL);
    weft_free(text);
    unlink(path);
    weft_schedule_release(&s);
    weft_schedule_problem_release(&p);
}

WEFT_TESTS("schedule/read",
           {"test_schedule_read_round_trip", test_schedule_read_round_trip},
           {"test_schedule_check_rules", test_schedule_check_rules},
           {"test_schedule_write_pictures", test_schedule_write_pictures})
