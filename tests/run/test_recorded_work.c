/* SPDX-License-Identifier: Apache-2.0 */
/* What the tasks of a recorded run do: their operations and bytes, and where
 * samples that move are inferred. */
#include <math.h>

#include "job/plan_needs.h"
#include "described_run.h"

enum { SAMPLES = 12 };

static struct fixture fixture;

/* A job that was described and recorded, not run. */
struct described {
    struct described_run run;
    int32_t n_total[2 * SAMPLES];
};

/* Records an iteration whose sample i has a response of so many tokens. */
static void describe(const struct weft_g_job *job, int n_words,
                     const char *const *word, bool gangs,
                     int32_t (*response)(int i), struct described *out)
{
    struct weft_err err;
    describe_run(&fixture, job, n_words, word, &out->run);
    for (int i = 0; i < 2 * SAMPLES; i++)
        out->n_total[i] = weft_prompts_draw(out->run.t, i / 2)->n_prompt
                        + response(i);
    const struct weft_recorded how = {
        .rank = -1,
        .gangs = gangs,
        .iterations = 1,
        .n_total = out->n_total,
        .decisions = out->run.config.rollout.decisions};
    REQUIRE_OK(weft_run_record(out->run.t, &how, &out->run.r, &err), err);
}

/* ---- Operations and bytes ------------------------------------------------ */

/* Floating-point operations that the samples' lengths say: those of all rows
 * in the layers, keys' among them, and of rows of the head. Blocks read the KV
 * heads of their query heads, each for itself. */
struct expected {
    double product, key, head; /* of a row, of a key, of a target */
    double rows, keys, targets, generated_rows, generated_keys, cache;
    double weights, kv; /* bytes: of all weights, of a row's cache */
};

static struct expected expect_work(const struct weft_trainer *t, int n,
                                   const int32_t *n_total)
{
    const struct weft_shape *s = &t->model[0].arch.shape;
    struct expected e = {.rows = 0};
    int d = s->head_dim, each = s->n_heads / s->n_kv_heads, kv = 0;
    for (int b = 0; b < s->n_blocks; b++) {
        int head = b * s->n_heads / s->n_blocks;
        int last = (b + 1) * s->n_heads / s->n_blocks - 1;
        kv += last / each - head / each + 1;
    }
    e.product = 2.0 * s->hidden * s->n_layers
              * (2 * s->n_heads * d + 2 * kv * d + 3 * s->intermediate);
    e.key = 4.0 * s->n_heads * d * s->n_layers;
    e.head = 2.0 * s->hidden * s->vocab;
    e.weights = 4 * (e.product / 2 + e.head / 2);
    e.kv = 2.0 * kv * d * 4 * s->n_layers;
    for (int i = 0; i < n; i++) {
        int prompt = weft_prompts_draw((struct weft_trainer *) (uintptr_t) t,
                                       i / 2)
                         ->n_prompt;
        for (int k = 0; k < n_total[i]; k++) {
            bool passes = k < n_total[i] - 1; /* nothing follows the last */
            e.rows++;
            e.keys += k + 1;
            e.generated_rows += passes;
            e.generated_keys += passes ? k + 1 : 0;
            /* a prompt is read at once */
            e.cache += !passes ? 0 : k < prompt ? 1 : k + 1;
        }
        e.targets += n_total[i] - prompt;
    }
    return e;
}

static void check_near(const char *what, const char *layout, double got,
                       double expected)
{
    bool near = fabs(got - expected) <= 1e-5 * expected;
    CHECK(near);
    if (!near)
        printf("%s, %s: %.9g, not %.9g\n", layout, what, got, expected);
}

static int32_t different(int i)
{
    return 1 + i * 5 % 12;
}

/* Operations of each call; bytes that generation reads, and its steps. */
struct done {
    double flop[WEFT_MAX_CALLS], read, steps;
};

static struct done sum_work(const struct weft_recording *r)
{
    struct done sum = {.read = 0};
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_work *w = &r->task[i].work;
        const char *op = weft_recording_op(r, i);
        CHECK(w->bytes >= 0 && w->n_steps > 0);
        sum.flop[r->task[i].call] += (double) w->flop;
        if (strcmp(op, "gen_chunk") == 0 || strcmp(op, "decode_chunk") == 0) {
            sum.read += (double) w->bytes;
            sum.steps += w->n_rows > 0 ? w->n_steps : 0;
        }
        if (w->flop > 0)
            CHECK(w->shape > 0 && w->n_rows > 0);
    }
    return sum;
}

static void check_work(const char *layout, int n_devices, bool gangs)
{
    enum { EPOCHS = 2 };
    const struct weft_g_job job = {1, n_devices, false, 0, false};
    const char *word[] = {"data.shuffle=false", "runtime.overlap=false",
                          "rollout.prefix_sharing=false", layout};
    struct described d;
    describe(&job, (int) WEFT_COUNT(word), word, gangs, different, &d);
    const struct weft_trainer *t = d.run.t;
    struct expected e = expect_work(t, SAMPLES, d.n_total);
    struct done sum = sum_work(&d.run.r);
    double attention = e.key * e.keys, products = e.product * e.rows;
    for (int32_t call = 1; call < t->flow.n_calls; call++) {
        const struct weft_flow_call *c = &t->flow.call[call];
        bool scalar = t->flow.role[c->role < 0 ? 0 : c->role].scalar;
        double head = scalar ? e.head / t->model[0].arch.shape.vocab : e.head;
        if (c->kind == WEFT_GENERATE)
            check_near("generation", layout, sum.flop[call],
                       e.product * e.generated_rows + e.key * e.generated_keys
                           + e.head * e.targets);
        else if (c->kind == WEFT_INFER)
            check_near("inference", layout, sum.flop[call],
                       products + attention + head * e.targets);
        else if (weft_flow_trains(&t->flow, call))
            check_near("training", layout, sum.flop[call],
                       EPOCHS
                           * (3 * products
                              + 3.5 * attention
                              /* logits are kept, scores are not */
                              + (scalar ? 4 : 3) * head * e.targets));
    }
    if (n_devices == 1)
        check_near("bytes of generation", layout, sum.read,
                   sum.steps * e.weights + e.kv * e.cache);
    forget_run(&d.run);
}

static void test_work(void)
{
    static const struct {
        const char *layout;
        int n_devices;
    } row[] = {{"layout=dp1", 1},
               {"layout=dp2", 2},
               {"layout=tp4", 4},
               {"layout=dp2pp2,zero=2", 4},
               {"layout=tp2pp2", 4}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        check_work(row[i].layout, row[i].n_devices, false);
        check_work(row[i].layout, row[i].n_devices, true);
    }
}

/* ---- Samples that move --------------------------------------------------- */

static int32_t few_are_long(int i)
{
    return i < 3 ? 8 + 2 * i : i == 6 ? 12 : 1;
}

/* Of the last four samples three are device 0's: the other's moves there, and
 * from then on device 1 infers whatever ends. */
static void check_moved(const struct weft_g_job *job)
{
    const char *word[] = {"data.shuffle=false",
                          "runtime.overlap=false",
                          "layout=dp2",
                          "rollout.chunk_tokens=1",
                          "rollout.inter_stage_fusion=true",
                          "rollout.remaining=0.35",
                          "train.micro_batch_tokens=8"};
    struct described d;
    int64_t entered = -1, retired = -1, n_entered = 0, n_inferred = 0;
    describe(job, (int) WEFT_COUNT(word), word, false, few_are_long, &d);
    const struct weft_recording *r = &d.run.r;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const char *op = weft_recording_op(r, i);
        if (strcmp(op, "gen_enter") == 0) {
            CHECK_INT(r->task[i].place, 0);
            entered = i;
            n_entered++;
        } else if (strcmp(op, "gen_retire") == 0) {
            retired = i;
        }
    }
    CHECK_INT(n_entered, 1);
    for (int64_t i = entered + 1; i < retired && entered >= 0; i++)
        if (d.run.t->flow.call[r->task[i].call].kind == WEFT_INFER
            && r->task[i].work.flop > 0) {
            CHECK_INT(r->task[i].place, 1);
            n_inferred++;
        }
    CHECK(n_inferred > 0);
    forget_run(&d.run);
}

static int32_t a_third_is_long(int i)
{
    return i / 2 % 3 == 1 ? 12 : 1 + i % 5;
}

/* Two processes of three devices: of three replicas of two members the second
 * has one in each. What moves there has caches at one place, which go to two: a
 * message each, as a task with tiles of both places would be an error. */
static void test_moved_apart(void)
{
    static const char decisions[] =
        "{\"iteration\": 1, \"call\": \"actor_generate\", \"remaining\": "
        "0.9, \"instances\": 1, \"most_batch\": 0, \"cached\": [[1, "
        "4096]]}\n";
    const struct weft_g_job job = {2, 3, false, 0, false};
    char path[512], file[600];
    struct weft_err err;
    struct described d;
    int64_t n_unpacked[2] = {0};
    snprintf(path, sizeof path, "%s/decisions.jsonl", fixture.dir);
    snprintf(file, sizeof file, "rollout.decisions=%s", path);
    REQUIRE_OK(weft_file_write(path, decisions, sizeof decisions - 1, &err),
               err);
    const char *word[] = {file,
                          "data.shuffle=false",
                          "runtime.overlap=false",
                          "layout=dp3tp2",
                          "rollout.chunk_tokens=1",
                          "rollout.inter_stage_fusion=true"};
    describe(&job, (int) WEFT_COUNT(word), word, false, a_third_is_long, &d);
    for (int64_t i = 0; i < d.run.r.n_tasks; i++) {
        const char *op = weft_recording_op(&d.run.r, i);
        if (strcmp(op, "gen_unpack") == 0)
            n_unpacked[d.run.r.task[i].place]++;
    }
    CHECK(n_unpacked[0] > 0 && n_unpacked[1] > 0);
    forget_run(&d.run);
}

/* Devices with places of their own, of one process or each of its own. */
static void test_moved(void)
{
    check_moved(&(struct weft_g_job){1, 2, true, 0, false});
    check_moved(&(struct weft_g_job){2, 1, false, 0, false});
}

static void setup(void)
{
    fixture_make(&fixture);
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/recorded_work", {"setup", setup}, {"test_work", test_work},
           {"test_moved_apart", test_moved_apart}, {"test_moved", test_moved},
           {"teardown", teardown})
