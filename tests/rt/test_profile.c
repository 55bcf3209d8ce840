/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of calls and the Chrome trace, read back with jansson. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "calls.h"
#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"

static int nap_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    (void) x;
    usleep(*(const useconds_t *) args);
    return 0;
}
WEFT_CODELET(nap, 0x0, nap_cpu)
WEFT_CODELET(other, 0x0, nap_cpu)

static struct weft_rt *rt;
static struct weft_seq *seq;

static void start(bool profile)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = 2, .nap = 1, .profile = profile};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    weft_rt_name_calls(rt, N_CALLS, calls_name);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static void insert(const struct weft_codelet *codelet, int32_t call,
                   int device, int32_t layer, useconds_t us)
{
    weft_insert(seq, codelet, &us, sizeof us, NULL, 0,
                &(struct weft_where){.device = device,
                                     .call = call,
                                     .iteration = 2,
                                     .micro_batch = -1,
                                     .layer = layer});
}

static void test_times(void)
{
    struct weft_err err;
    struct weft_call_time train, infer, none;
    double begin = weft_clock_s();
    start(true);
    for (int i = 0; i < 10; i++) {
        insert(&weft_cl_nap, CALL_ACTOR_TRAIN, i % 2, i, 5000);
        insert(&weft_cl_other, CALL_REF_INFER, 0, i, 1000);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    double wall = weft_clock_s() - begin;
    weft_rt_times(rt, 2, CALL_ACTOR_TRAIN, &train);
    weft_rt_times(rt, 2, CALL_REF_INFER, &infer);
    weft_rt_times(rt, 2, CALL_CRITIC_INFER, &none);
    CHECK_INT(train.n_tasks, 10);
    CHECK_INT(infer.n_tasks, 10);
    CHECK_INT(none.n_tasks, 0);
    CHECK(none.busy_s == 0);
    CHECK(train.busy_s >= 0.050 && train.busy_s <= 2 * wall);
    CHECK(infer.busy_s >= 0.010 && infer.busy_s <= 2 * wall);
    CHECK(train.first_s >= 0 && train.last_s <= wall);
    CHECK(train.last_s - train.first_s >= 0.025);
    weft_rt_times(rt, 1, CALL_ACTOR_TRAIN, &none);
    CHECK_INT(none.n_tasks, 0);
    stop();
}

/* Two iterations at once: generation of the second while the first trains. */
static void test_times_overlap(void)
{
    const int32_t gen = CALL_ACTOR_GENERATE, train = CALL_CRITIC_TRAIN;
    static struct weft_times times;
    const struct {
        int32_t iteration;
        int32_t call;
        double start, end;
    } task[] = {{6, gen, 1, 2},   {6, gen, 2, 4},   {6, train, 4, 5},
                {7, gen, 5, 6},   {6, train, 6, 9}, {7, gen, 9, 10},
                {-1, gen, 10, 11}};
    for (size_t i = 0; i < WEFT_COUNT(task); i++)
        weft_times_add(&times, task[i].iteration, task[i].call, task[i].start,
                       task[i].end);
    const struct {
        int32_t iteration;
        int32_t call;
        int n;
        double first, last, busy;
    } sum[] = {{6, gen, 2, 1, 4, 3},  {6, train, 2, 4, 9, 4},
               {7, gen, 2, 5, 10, 2}, {7, train, 0, 0, 0, 0},
               {8, gen, 0, 0, 0, 0},  {0, gen, 0, 0, 0, 0}};
    for (size_t i = 0; i < WEFT_COUNT(sum); i++) {
        struct weft_call_time t = weft_times_get(&times, sum[i].iteration,
                                                 sum[i].call);
        CHECK_INT(t.n_tasks, sum[i].n);
        CHECK(t.first_s == sum[i].first && t.last_s == sum[i].last);
        CHECK(t.busy_s == sum[i].busy);
    }
    weft_times_add(&times, 8, gen, 11, 12); /* the place of 6 */
    CHECK_INT(weft_times_get(&times, 8, gen).n_tasks, 1);
    CHECK_INT(weft_times_get(&times, 8, train).n_tasks, 0);
    CHECK_INT(weft_times_get(&times, 6, gen).n_tasks, 0);
    CHECK_INT(weft_times_get(&times, 7, gen).n_tasks, 2);
}

static const char *text_of(json_t *event, const char *key)
{
    const char *s = json_string_value(json_object_get(event, key));
    return s ? s : "";
}

/* Events of a device: each begins when the one before it has ended. */
static void check_events(json_t *events)
{
    double end[2] = {0, 0};
    int tasks = 0, names = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        json_int_t tid = json_integer_value(json_object_get(event, "tid"));
        if (strcmp(text_of(event, "name"), "thread_name") == 0) {
            char want[32];
            snprintf(want, sizeof want, "device %d", (int) tid);
            CHECK_STR(text_of(json_object_get(event, "args"), "name"), want);
            names++;
        }
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        json_t *args = json_object_get(event, "args");
        double ts = json_number_value(json_object_get(event, "ts"));
        double dur = json_number_value(json_object_get(event, "dur"));
        bool train = strcmp(text_of(event, "name"), "nap") == 0;
        REQUIRE(tid == 0 || tid == 1);
        CHECK(ts >= end[tid]);
        CHECK(dur >= 2000);
        end[tid] = ts + dur;
        CHECK_STR(text_of(event, "cat"), train ? "actor_train" : "ref_infer");
        CHECK(text_of(event, "cname")[0] != 0);
        CHECK_INT(tid, train);
        CHECK_INT(json_integer_value(json_object_get(args, "iteration")), 2);
        CHECK(json_object_get(args, "micro_batch") == NULL);
        tasks++;
    }
    CHECK_INT(tasks, 20);
    CHECK_INT(names, 2);
}

static void test_trace(void)
{
    struct weft_err err;
    char dir[] = "/tmp/weft-test-XXXXXX", path[64], missing[96];
    REQUIRE(mkdtemp(dir) != NULL);
    start(true);
    for (int i = 0; i < 10; i++) {
        insert(&weft_cl_nap, CALL_ACTOR_TRAIN, 1, i, 2000);
        insert(&weft_cl_other, CALL_REF_INFER, 0, i, 2000);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    REQUIRE_OK(weft_rt_write_trace(rt, path, &err), err);
    json_error_t bad;
    json_t *root = json_load_file(path, 0, &bad);
    REQUIRE(root != NULL);
    check_events(json_object_get(root, "traceEvents"));
    json_decref(root);
    snprintf(missing, sizeof missing, "%s/no/trace.json", dir);
    CHECK_FAILS(weft_rt_write_trace(rt, missing, &err), WEFT_ENOTFOUND, err,
                missing);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(dir), 0); /* nothing else was left */
    stop();
}

static void test_trace_unprofiled(void)
{
    struct weft_err err;
    start(false);
    CHECK_FAILS(weft_rt_write_trace(rt, "x.json", &err), WEFT_ESTATE, err,
                "cannot write 'x.json'");
    CHECK(access("x.json", F_OK) != 0);
    stop();
}

/* The ring keeps the latest. */
static void test_trace_bounded(void)
{
    struct weft_err err;
    char path[] = "/tmp/weft-test-XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    start(true);
    int64_t kept = rt->n_records;
    rt->n_records = 16;
    for (int i = 0; i < 100; i++)
        insert(&weft_cl_nap, CALL_ACTOR_TRAIN, 0, i, 0);
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    REQUIRE_OK(weft_rt_write_trace(rt, path, &err), err);
    rt->n_records = kept;
    json_t *root = json_load_file(path, 0, NULL), *event;
    int32_t layer = 84;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        json_t *args = json_object_get(event, "args");
        CHECK_INT(json_integer_value(json_object_get(args, "layer")),
                  layer++);
    }
    CHECK_INT(layer, 100);
    json_decref(root);
    close(file);
    unlink(path);
    stop();
}

/* Of too many spans those stay apart that have the longest times between. */
static void test_pieces(void)
{
    enum { N = 60 };
    for (unsigned seed = 0; seed < 50; seed++) {
        struct weft_pieces p = {.n = 0};
        struct weft_span span[N];
        int n = 1 + (int) (seed * 7 % N), k = 0;
        double s = 0;
        srandom(seed);
        for (int i = 0; i < n; i++) {
            double start = s + 1 + (double) random() / RAND_MAX;
            s = start + (double) (random() % 3);
            span[i] = (struct weft_span){start, s};
            weft_pieces_add(&p, start, s);
        }
        for (int i = 0; i < n; i++) {
            int longer = 0; /* times between that are longer than before i */
            for (int j = 1; j < n && i > 0; j++)
                longer += span[j].start_s - span[j - 1].end_s
                        > span[i].start_s - span[i - 1].end_s;
            k += i > 0 && longer < WEFT_RT_PIECES - 1;
            CHECK(k < p.n && p.span[k].start_s <= span[i].start_s
                  && p.span[k].end_s >= span[i].end_s);
        }
        CHECK_INT(p.n, k + 1);
        weft_pieces_add(&p, s - 0.1, s + 9);
        CHECK(p.n == k + 1 && p.span[k].end_s == s + 9);
    }
}

WEFT_TESTS("rt/profile", {"test_pieces", test_pieces},
           {"test_times", test_times},
           {"test_times_overlap", test_times_overlap},
           {"test_trace", test_trace},
           {"test_trace_unprofiled", test_trace_unprofiled},
           {"test_trace_bounded", test_trace_bounded})
