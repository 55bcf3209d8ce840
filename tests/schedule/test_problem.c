/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule_fixture.h"

#include <unistd.h>

#include "base/file.h"

static char path[] = "/tmp/weft-schedule-XXXXXX";
static struct weft_err err;

static int read_text(const char *text, struct weft_schedule_problem *out)
{
    struct weft_err e;
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &e), e);
    return weft_schedule_problem_read(path, out, &err);
}

static void open_file(void)
{
    strcpy(path, "/tmp/weft-schedule-XXXXXX");
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
}

#define A                                                                    \
    "{\"name\":\"a\",\"stages\":2,\"micro_batches\":3,\"forward\":1,"        \
    "\"backward\":2"
#define ONE(top, more) "{\"stages\":2" top ",\"models\":[" A more "}]}"

static void test_schedule_problem_read(void)
{
    struct weft_schedule_problem p;
    open_file();
    REQUIRE_OK(
        read_text("{\"stages\":4,\"latency\":0.5,\"memory_capacity\":9,"
                  "\"mini_batches\":3,\"models\":["
                  "{\"name\":\"a\",\"pipelines\":2,\"stages\":4,\"chunks\":2,"
                  "\"micro_batches\":2,\"forward\":[1,2,3,4],"
                  "\"backward\":[[1,2,3,4],[5,6,7,8]],\"weight\":0.25,"
                  "\"activation\":[[1,1,1,1],[2,2,2,2.5]],"
                  "\"direction\":\"up\",\"sync\":3,\"optimizer\":4}]}",
                  &p),
        err);
    const struct weft_schedule_model *m = p.model;
    CHECK(p.n_devices == 4 && p.n_models == 1 && p.mini_batches == 3);
    CHECK(p.latency == 0.5 && p.capacity == 9);
    CHECK(m->pipelines == 2 && m->stages == 4 && m->chunks == 2 && m->up);
    CHECK(m->split_backward && m->weight[7] == 0.25);
    CHECK(m->forward[0] == 1 && m->forward[7] == 4);
    CHECK(m->backward[3] == 4 && m->backward[4] == 5);
    CHECK(m->activation[7] == 2.5 && m->sync == 3 && m->optimizer == 4);
    /* stages 0, 2 on the last device of a pipeline, 1, 3 before it */
    CHECK_INT(weft_schedule_device(&p, m, 1, 0), 3);
    CHECK_INT(weft_schedule_device(&p, m, 1, 3), 2);
    weft_schedule_problem_release(&p);
    CHECK(p.model == NULL);
    REQUIRE_OK(read_text(ONE("", ""), &p), err);
    m = p.model;
    CHECK(p.mini_batches == 1 && p.capacity == 0 && p.latency == 0);
    CHECK(m->pipelines == 1 && m->chunks == 1 && !m->up && !m->weight);
    CHECK(m->activation[5] == 0 && m->backward[5] == 2);
    weft_schedule_problem_release(&p);
    unlink(path);
}

static void test_schedule_problem_refused(void)
{
    static const struct {
        const char *text;
        int rc;
        const char *says;
    } bad[] = {
        {"[]", WEFT_EFORMAT, "a problem is an object, not an array"},
        {"{\"stages\":2,\"models\":[]}", WEFT_EINVAL, "'models' has 0"},
        {"{\"stages\":2}", WEFT_ENOTFOUND, "models"},
        {"{\"stages\":2,\"models\":[7]}", WEFT_EFORMAT,
         "models[0] must be an object"},
        {ONE("", ",\"optimizer\":1e308"), WEFT_EINVAL,
         "model 'a': 'sync' 0 and 'optimizer' 1e+308 must be from 0 to"},
        {ONE(",\"latency\":1e101", ""), WEFT_EINVAL,
         "'latency' is 1e+101; it must be from 0 to 1e100"},
        {ONE(",\"memory_capacity\":1e308", ""), WEFT_EINVAL,
         "'memory_capacity' is 1e+308; it must be above 0 and at most"},
        {"{\"stages\":1,\"models\":[{\"name\":\"a\",\"stages\":1,"
         "\"micro_batches\":2,\"forward\":[[1],[1e308]],\"backward\":1}]}",
         WEFT_EINVAL,
         "'forward' of micro-batch 1 on stage 0 is 1e+308; it must be from"},
        {ONE(",\"latncy\":1", ""), WEFT_EINVAL,
         "unknown key 'latncy'; did you mean 'latency'"},
        {ONE("", ",\"foward\":1"), WEFT_EINVAL,
         "models[0]: unknown key 'foward'; did you mean 'forward'"},
        {ONE("", ",\"pipelines\":2"), WEFT_EINVAL,
         "model 'a': 2 pipelines of 2 stages do not fill the 2 devices"},
        {ONE("", ",\"chunks\":3"), WEFT_EINVAL, "no multiple of 3 chunks"},
        {ONE("", ",\"weight\":-1"), WEFT_EINVAL,
         "'weight' of micro-batch 0 on stage 0 is -1; it must be from 0 to "
         "1e100"},
        {ONE("", ",\"sync\":-1"), WEFT_EINVAL, "'sync' -1"},
        {ONE("", ",\"activation\":true"), WEFT_EFORMAT,
         "models[0].activation must be a number"},
        {ONE("", ",\"weight\":[[1,1],[1,1]]"), WEFT_EINVAL,
         "models[0].weight has 2 lists for 3 micro-batches"},
        {ONE("", ",\"weight\":[[1,1],[1,1],[1]]"), WEFT_EINVAL,
         "models[0].weight has 1 numbers; give one, or 2"},
        {ONE("", ",\"direction\":\"left\""), WEFT_EINVAL,
         "'direction' is 'left'; it must be 'down' or 'up'"},
        {ONE("", ",\"merge\":3"), WEFT_EINVAL,
         "models[0]: 'merge' 3 does not divide the 2 stages"},
        {ONE("", ",\"merge\":2,\"weight\":[-1,2]"), WEFT_EINVAL,
         "'weight' of micro-batch 0 on stage 0 is -1; it must be from 0 to "
         "1e100"},
        {ONE(",\"latency\":-1", ""), WEFT_EINVAL, "'latency' is -1"},
        {ONE(",\"memory_capacity\":0", ""), WEFT_EINVAL,
         "'memory_capacity' is 0; it must be above 0, or null"},
        {ONE(",\"memory_capacity\":2", ",\"activation\":2.5"), WEFT_EINVAL,
         "'memory_capacity' 2 is less than one micro-batch of model 'a' "
         "holds (2.5)"},
        {"{\"stages\":2,\"models\":[" A "}," A "}]}", WEFT_EINVAL,
         "model 'a' is there twice"},
        {"{\"stages\":2,\"models\":[{\"name\":\"a\",\"stages\":2,"
         "\"micro_batches\":0,\"forward\":1,\"backward\":1}]}",
         WEFT_EINVAL, "micro_batches"},
        {"{\"stages\":2,\"models\":[{\"name\":\"a\",\"stages\":2,"
         "\"micro_batches\":1,\"forward\":1}]}",
         WEFT_ENOTFOUND, "'backward' is missing"},
        {"{\"stages\":1048576,\"models\":[{\"name\":\"a\","
         "\"stages\":1048576,\"micro_batches\":1048576,\"forward\":1,"
         "\"backward\":1}]}",
         WEFT_EUNSUPPORTED, "more subtasks than can be scheduled"},
    };
    struct weft_schedule_problem p;
    open_file();
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        CHECK_FAILS(read_text(bad[i].text, &p), bad[i].rc, err, bad[i].says);
        CHECK(strstr(err.text, path) != NULL);
    }
    unlink(path);
}

/* Neighbouring stages of smaller groups become one: their sums, and the way
 * between them. */
static void test_schedule_problem_merge(void)
{
    struct weft_schedule_problem p;
    open_file();
    REQUIRE_OK(
        read_text("{\"stages\":2,\"latency\":0.5,\"models\":[{\"name\":\"a\","
                  "\"stages\":6,\"merge\":3,\"micro_batches\":2,"
                  "\"forward\":[1,2,3,4,5,6],"
                  "\"backward\":[[1,1,1,2,2,2],[3,3,3,4,4,5]],"
                  "\"weight\":1,\"activation\":[1,0,2,0,0,7]}]}",
                  &p),
        err);
    static const double backward[] = {4, 7, 10, 14};
    const struct weft_schedule_model *m = &p.model[0];
    CHECK_INT(m->stages, 2);
    for (int i = 0; i < 4; i++) {
        CHECK(m->forward[i] == (i % 2 ? 16 : 7));
        CHECK(m->backward[i] == backward[i]);
        CHECK(m->weight[i] == 3);
        CHECK(m->activation[i] == (i % 2 ? 7 : 3));
    }
    weft_schedule_problem_release(&p);
    unlink(path);
}

/* What no file can say. */
static void test_schedule_problem_check_api(void)
{
    struct weft_schedule_problem p = test_rlhfuse(4, 2, 4, 1, 1, 1, 1);
    REQUIRE_OK(weft_schedule_problem_check(&p, &err), err);
    p.model[1].forward[3] = NAN;
    CHECK_FAILS(weft_schedule_problem_check(&p, &err), WEFT_EINVAL, err,
                "model 'critic': 'forward' of micro-batch 1 on stage 1 is");
    p.model[1].forward[3] = INFINITY;
    CHECK_FAILS(weft_schedule_problem_check(&p, &err), WEFT_EINVAL, err,
                "is inf");
    p.model[1].forward[3] = 1;
    p.model[0].split_backward = true;
    CHECK_FAILS(weft_schedule_problem_check(&p, &err), WEFT_EINVAL, err,
                "split backward");
    p.model[0].split_backward = false;
    p.model[0].micro_batches = 0;
    CHECK_FAILS(weft_schedule_problem_check(&p, &err), WEFT_EINVAL, err,
                "'micro_batches' must be 1 or more");
    p.model[0].micro_batches = 4;
    /* 3.6 = 3 * 1.2 is not exact, and fits all the same */
    p.capacity = 3.6;
    for (int i = 0; i < 16; i++)
        p.model[0].activation[i] = 3 * 1.2;
    REQUIRE_OK(weft_schedule_problem_check(&p, &err), err);
    weft_schedule_problem_release(&p);
}

WEFT_TESTS("schedule/problem",
           {"test_schedule_problem_read", test_schedule_problem_read},
           {"test_schedule_problem_merge", test_schedule_problem_merge},
           {"test_schedule_problem_refused", test_schedule_problem_refused},
           {"test_schedule_problem_check_api",
            test_schedule_problem_check_api})
