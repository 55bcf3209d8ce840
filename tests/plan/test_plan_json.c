/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "harness.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "plan/layout.h"

static char path[] = "/tmp/weft-plan-XXXXXX";
static struct weft_err err;

static int read_text(const char *text, struct weft_plan *out)
{
    struct weft_err e;
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &e), e);
    return weft_plan_read(path, calls_flow(), out, &err);
}

static void open_file(void)
{
    strcpy(path, "/tmp/weft-plan-XXXXXX");
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
}

/* Two calls with nothing at its default. */
static struct weft_plan example(void)
{
    struct weft_plan p = {
        .n_nodes = 2, .n_devices = 2, .flow = *calls_flow()};
    p.call[CALL_REF_INFER] = (struct weft_call_plan){
        {1, 1, 1, 1}, 1, 1, 1, .micro_batches = 7, .offload = true};
    p.call[CALL_ACTOR_TRAIN] = (struct weft_call_plan){
        {0, 2, 0, 2},       2,         1,           2,
        .micro_batches = 3, .zero = 3, .hpz = true, .recompute = true};
    p.memory = weft_alloc(4, sizeof *p.memory);
    p.measured = weft_alloc(4, sizeof *p.measured);
    p.replayed = weft_alloc(4, sizeof *p.replayed);
    REQUIRE(p.memory && p.measured && p.replayed);
    p.predicted_s.iteration_s = 2.5;
    p.predicted_s.call_s[CALL_REF_INFER] = 0.25;
    p.measured_s.iteration_s = 3;
    p.measured_s.call_s[CALL_ACTOR_TRAIN] = 1.5;
    for (int d = 0; d < 4; d++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++) {
            p.memory[d][c] = d < 2 ? ((int64_t) 1 << 40) + c : d * 1000 + c;
            p.measured[d][c] = d * 100 + c;
            p.replayed[d][c] = d * 10 + c;
        }
    return p;
}

static void check_same(const struct weft_plan *a, const struct weft_plan *b)
{
    CHECK_INT(a->n_nodes, b->n_nodes);
    CHECK_INT(a->n_devices, b->n_devices);
    for (int c = 0; c < WEFT_MAX_CALLS; c++) {
        const struct weft_call_plan *x = &a->call[c], *y = &b->call[c];
        CHECK(memcmp(&x->mesh, &y->mesh, sizeof x->mesh) == 0);
        CHECK(x->dp == y->dp && x->tp == y->tp && x->pp == y->pp);
        CHECK_INT(x->micro_batches, y->micro_batches);
        CHECK_INT(x->zero, y->zero);
        CHECK_INT(x->hpz, y->hpz);
        CHECK_INT(x->recompute, y->recompute);
        CHECK_INT(x->offload, y->offload);
        CHECK(a->predicted_s.call_s[c] == b->predicted_s.call_s[c]);
        CHECK(a->measured_s.call_s[c] == b->measured_s.call_s[c]);
    }
    CHECK_INT(a->intra_stage_fusion, b->intra_stage_fusion);
    CHECK_INT(a->inter_stage_fusion, b->inter_stage_fusion);
    CHECK(a->predicted_s.iteration_s == b->predicted_s.iteration_s);
    CHECK(a->measured_s.iteration_s == b->measured_s.iteration_s);
    size_t n = (size_t) (a->n_nodes * a->n_devices);
    CHECK(!a->memory == !b->memory && !a->measured == !b->measured
          && !a->replayed == !b->replayed);
    if (a->memory && b->memory)
        CHECK(memcmp(a->memory, b->memory, n * sizeof *a->memory) == 0);
    if (a->measured && b->measured)
        CHECK(memcmp(a->measured, b->measured, n * sizeof *a->measured) == 0);
    if (a->replayed && b->replayed)
        CHECK(memcmp(a->replayed, b->replayed, n * sizeof *a->replayed) == 0);
}

static void test_plan_round_trip(void)
{
    struct weft_plan p = example(), q;
    open_file();
    REQUIRE_OK(weft_plan_write(&p, path, &err), err);
    REQUIRE_OK(weft_plan_read(path, calls_flow(), &q, &err), err);
    check_same(&p, &q);
    char *a = weft_plan_json(&p), *b = weft_plan_json(&q);
    CHECK_STR(a, b);
    weft_free(a);
    weft_free(b);
    weft_plan_release(&q);
    CHECK_INT(weft_plan_parse("{", 1, "text", calls_flow(), &q, &err),
              WEFT_EFORMAT);
    p.measured_s = (struct weft_plan_times){0};
    weft_free(p.memory);
    weft_free(p.measured);
    weft_free(p.replayed);
    p.memory = p.measured = p.replayed = NULL;
    REQUIRE_OK(weft_plan_write(&p, path, &err), err);
    REQUIRE_OK(weft_plan_read(path, calls_flow(), &q, &err), err);
    check_same(&p, &q);
    CHECK(q.memory == NULL && q.measured == NULL);
    for (int i = 0; i < 4; i++) {
        weft_plan_release(&q);
        p.intra_stage_fusion = i & 1;
        p.inter_stage_fusion = i & 2;
        REQUIRE_OK(weft_plan_write(&p, path, &err), err);
        REQUIRE_OK(weft_plan_read(path, calls_flow(), &q, &err), err);
        check_same(&p, &q);
    }
    weft_plan_release(&q);
    weft_plan_release(&p);
    CHECK(p.memory == NULL);
    unlink(path);
}

#define MESH "\"mesh\":{\"node\":0,\"nodes\":1,\"device\":0,\"devices\":1}"
#define HEAD "{\"format\":1,\"nodes\":1,\"devices\":1,"
#define TRAIN(rest) HEAD "\"calls\":{\"actor_train\":{" rest "}}}"
#define MEMORY(list) HEAD "\"calls\":{},\"memory\":" list "}"
#define ROW(more)                                                            \
    "{\"device\":0,\"weights\":1,\"gradients\":2,\"optimizer\":3,"           \
    "\"kv\":4,\"activations\":5,\"samples\":6" more "}"

/* What has a default may be missing; devices come in any order. */
static void test_plan_read_defaults(void)
{
    struct weft_plan p;
    open_file();
    /* pages of a GPU are more than what they are taken for */
    REQUIRE_OK(read_text("{\"format\":1,\"nodes\":1,\"devices\":1,"
                         "\"gpus\":1,\"calls\":{},\"memory\":[" ROW(
                             ",\"all\":22") "]}",
                         &p),
               err);
    CHECK_INT(p.memory[0][WEFT_MEM_ALL], 22);
    weft_plan_release(&p);
    REQUIRE_OK(read_text(TRAIN(MESH ",\"dp\":1,\"tp\":1,\"pp\":1"), &p), err);
    const struct weft_call_plan *c = &p.call[CALL_ACTOR_TRAIN];
    CHECK(c->dp == 1 && c->micro_batches == 0 && c->zero == 0);
    CHECK(!c->recompute && !c->offload && !p.memory && !p.measured);
    CHECK_INT(p.call[CALL_ACTOR_GENERATE].dp, 0);
    weft_plan_release(&p);
    REQUIRE_OK(read_text("{\"format\":1,\"nodes\":1,\"devices\":2,"
                         "\"calls\":{},\"memory\":["
                         "{\"device\":1,\"weights\":10,\"gradients\":20,"
                         "\"optimizer\":30,\"kv\":40,\"activations\":50,"
                         "\"samples\":60,\"tasks\":70,\"host\":80}," ROW(
                             ",\"host\":8") "]}",
                         &p),
               err);
    for (int k = 0; k < WEFT_N_MEM_CLASSES; k++) {
        /* older versions wrote no tasks */
        CHECK_INT(p.memory[0][k], k == WEFT_MEM_TASKS ? 0 : k + 1);
        CHECK_INT(p.memory[1][k], 10 * (k + 1));
    }
    CHECK_INT(p.memory[0][WEFT_MEM_ALL], 21); /* the sum, but of the host */
    weft_plan_release(&p);
    /* as older plans are, and runs that offload nothing */
    REQUIRE_OK(read_text(MEMORY("[" ROW("") "]"), &p), err);
    CHECK_INT(p.memory[0][WEFT_MEM_HOST], 0);
    CHECK_INT(p.memory[0][WEFT_MEM_ALL], 21);
    weft_plan_release(&p);
    unlink(path);
}

static void test_plan_read_refused(void)
{
    static const struct {
        const char *text, *part;
        int rc;
    } bad[] = {
        {"", ": empty, where JSON is expected", WEFT_EFORMAT},
        {"[]", ": a plan is an object, not an array", WEFT_EFORMAT},
        {"{}", ": 'format' is missing", WEFT_ENOTFOUND},
        {"{\"format\":2}", ": 'format' is 2; this program reads 1",
         WEFT_EUNSUPPORTED},
        {"{\"format\":1,\"node\":1}",
         ": unknown key 'node'; did you mean 'nodes'?", WEFT_EINVAL},
        {"{\"format\":1}", ": 'nodes' is missing", WEFT_ENOTFOUND},
        {"{\"format\":1,\"nodes\":0}",
         ": 'nodes' is 0, but must be between 1 and 1024", WEFT_EINVAL},
        {"{\"format\":1,\"nodes\":1,\"devices\":257}",
         ": 'devices' is 257, but must be between 1 and 256", WEFT_EINVAL},
        {"{\"format\":1,\"nodes\":1,\"devices\":\"2\"}",
         ": 'devices' must be an integer, not a string", WEFT_EFORMAT},
        {"{\"format\":1,\"nodes\":1,\"devices\":2}", ": 'calls' is missing",
         WEFT_ENOTFOUND},
        {HEAD "\"calls\":{\"actor_trains\":{}}}",
         ": calls: unknown key 'actor_trains'; did you mean 'actor_train'?",
         WEFT_EINVAL},
        {HEAD "\"calls\":{\"advantage\":{}}}",
         ": calls: unknown key 'advantage'", WEFT_EINVAL},
        {HEAD "\"calls\":{\"actor_train\":3}}",
         ": calls: 'actor_train' must be an object, not an integer",
         WEFT_EFORMAT},
        {TRAIN(""), ": calls.actor_train: 'mesh' is missing", WEFT_ENOTFOUND},
        {TRAIN("\"mesh\":{\"nodes\":1}"),
         ": calls.actor_train.mesh: 'node' is missing", WEFT_ENOTFOUND},
        {TRAIN("\"mesh\":{\"nods\":1}"),
         ": calls.actor_train.mesh: unknown key 'nods'; did you mean "
         "'node'?",
         WEFT_EINVAL},
        {TRAIN(MESH), ": calls.actor_train: 'dp' is missing", WEFT_ENOTFOUND},
        {TRAIN(MESH ",\"dp\":0"),
         ": calls.actor_train: 'dp' is 0, but must be between 1",
         WEFT_EINVAL},
        {TRAIN(MESH ",\"dp\":1,\"tp\":1,\"pp\":1,\"zeor\":1"),
         ": calls.actor_train: unknown key 'zeor'; did you mean 'zero'?",
         WEFT_EINVAL},
        {TRAIN(MESH ",\"dp\":1,\"tp\":1,\"pp\":1,\"zero\":4"),
         ": calls.actor_train: 'zero' is 4, but must be between 0 and 3",
         WEFT_EINVAL},
        {TRAIN(MESH ",\"dp\":1,\"tp\":1,\"pp\":1,\"recompute\":1"),
         ": calls.actor_train: 'recompute' must be true or false, not an "
         "integer",
         WEFT_EFORMAT},
        {HEAD "\"calls\":{},\"measured_s\":1}",
         ": measured_s must be an object, not an integer", WEFT_EINVAL},
        {HEAD "\"calls\":{},\"predicted_s\":{\"iteration\":-1}}",
         ": predicted_s: 'iteration' must be seconds, 0 or more",
         WEFT_EINVAL},
        {MEMORY("{}"), ": 'memory' must be an array, not an object",
         WEFT_EFORMAT},
        {MEMORY("[]"), ": 'memory' has 0 devices, the plan 1", WEFT_EINVAL},
        {MEMORY("[1]"), ": memory[0] must be an object, not an integer",
         WEFT_EFORMAT},
        {MEMORY("[" ROW(",\"all\":22") "]"),
         ": memory[0]: 'all' is 22, but must be between 0 and 21",
         WEFT_EINVAL},
        {MEMORY("[" ROW(",\"host\":7,\"all\":22") "]"),
         ": memory[0]: 'all' is 22, but must be between 0 and 21",
         WEFT_EINVAL},
        {MEMORY("[{\"device\":0}]"), ": memory[0]: 'weights' is missing",
         WEFT_ENOTFOUND},
        {MEMORY("[{\"device\":1}]"),
         ": memory[0]: 'device' is 1, but must be between 0 and 0",
         WEFT_EINVAL},
        {MEMORY("[" ROW(",\"time\":1") "]"),
         ": memory[0]: unknown key 'time'", WEFT_EINVAL},
        {"{\"format\":1,\"nodes\":1,\"devices\":2,\"calls\":{},"
         "\"memory\":[" ROW("") "," ROW("") "]}",
         ": memory[1]: device 0 is given twice", WEFT_EINVAL},
    };
    struct weft_plan p;
    open_file();
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        CHECK_FAILS(read_text(bad[i].text, &p), bad[i].rc, err, bad[i].part);
        CHECK(strncmp(err.text, path, strlen(path)) == 0);
    }
    unlink(path);
    CHECK_FAILS(weft_plan_read("/nonexistent/p.json", NULL, &p, &err),
                WEFT_ENOTFOUND, err, "/nonexistent/p.json");
    p = (struct weft_plan){.n_nodes = 1, .n_devices = 1};
    CHECK(weft_plan_write(&p, "/nonexistent/p.json", &err) != 0);
}

/* Cut anywhere, a file is refused. */
static void test_plan_read_cut(void)
{
    struct weft_plan p = example(), q;
    char *text = weft_plan_json(&p);
    open_file();
    REQUIRE(text != NULL);
    for (size_t n = strlen(text) - 2; n > 0; n--) { /* it ends in "}\n" */
        text[n] = 0;
        CHECK(read_text(text, &q) != 0);
    }
    weft_free(text);
    weft_plan_release(&p);
    unlink(path);
}

WEFT_TESTS("plan/plan_json", {"test_plan_round_trip", test_plan_round_trip},
           {"test_plan_read_defaults", test_plan_read_defaults},
           {"test_plan_read_refused", test_plan_read_refused},
           {"test_plan_read_cut", test_plan_read_cut})
