/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inter-stage fusion on emulated devices: three iterations of generation and
 * inference are recorded with the lengths of their samples, so that the last one
 * decides by those before; the event engine plays the recording, and the runtime
 * with its policy executes it on devices on which a task only sleeps for its
 * time.
 *
 *     bench/tail_emulated [ROW]
 *
 * The models of RLHFuse (section 7) that gain most in bench/fusion: actor and
 * reference of 33B, critic and reward model of 65B; prompts of 256 tokens. A device
 * stands for an instance of four Hopper GPUs as
 * examples/clusters/rlhfuse_hopper.yaml has them, with 8 samples as there; it is as
 * fast as the four, and a layer takes 10 us more, as its sums do. Base: generation,
 * then inference (RLHFuse-Base), by themselves. Bound: no schedule of both is
 * shorter (plan/fusion/bound.h).
 *
 * Responses are lognormal:200:0.8 cut at 512 tokens, so that 12 % of them reach
 * the limit, as in bench/fusion; and with the tail that the paper tells of
 * (bench/fusion.h), lognormal:63:0.907 cut at 1,024. By these costs inference
 * then takes less than a tenth of what generation does, where the published
 * gains, 1.2 to 1.6 of what hides all of it, mean 0.2 to 0.6. So the third row
 * has critic and reward models with so wide MLPs that it takes 0.4: they stand
 * for whatever makes the paper's inference as long. Samples are then inferred
 * one by one as they end; by itself inference has full micro-batches, which
 * take less.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench/emulated.h"
#include "bench/hoppers.h"
#include "bench/made.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/costs.h"
#include "plan/engine/engine.h"
#include "run/predict/recorded.h"

enum { ITERATIONS = 3, EACH = 8, FULL = 4096 };

/* The second takes as long as inference does in the paper. */
static const struct made_size critics[] = {
    {"65B", 8192, 80, 64, 64, 22016, 32000},
    {"slow", 8192, 80, 64, 64, 170000, 32000}};

static const char config_yaml[] =
    "algorithm: ppo\n"
    "seed: 15\n"
    "iterations: 3\n"
    "data: {prompt_tokens: 256}\n"
    "model: {actor: actor, critic: %s, reference: actor}\n"
    "reward: [{type: model, model: %s}]\n"
    "rollout: {slots: 8}\n"
    "ppo: {mini_batches: 1}\n"
    "numerics: {dtype: bf16}\n"
    "runtime: {overlap: false, place: device}\n";

static const struct {
    const char *most, *lengths;
    const struct made_size *critic;
    int tokens; /* of a micro-batch beside generation */
} rows[] = {{"rollout.max_new_tokens=512",
             "rollout.lengths=lognormal:200:0.8", &critics[0], FULL},
            {"rollout.max_new_tokens=1024",
             "rollout.lengths=lognormal:63:0.907", &critics[0], FULL},
            {"rollout.max_new_tokens=1024",
             "rollout.lengths=lognormal:63:0.907", &critics[1], 512}};

/* ---- Recordings --------------------------------------------------------- */

struct setting {
    const char *dir;
    int32_t devices;
    size_t row;
    struct weft_cluster cluster;
    struct weft_costs *costs;
};

static struct weft_costs *make_costs(const struct setting *s)
{
    const struct weft_costs_job job = {.cluster = &s->cluster,
                                       .n_ranks = 1,
                                       .n_devices = s->devices,
                                       .place_per_device = true};
    struct weft_costs *out;
    CHECK(weft_costs_create(&job, &out, &err));
    return out;
}

/* The calls of these kinds. */
static uint32_t calls_of(const struct weft_trainer *t, bool generates,
                         bool infers)
{
    uint32_t calls = 0;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if ((generates && t->flow.call[i].kind == WEFT_GENERATE)
            || (infers && t->flow.call[i].kind == WEFT_INFER))
            calls |= 1u << i;
    return calls;
}

static int32_t *draw_lengths(const struct weft_trainer *t)
{
    int32_t n = weft_run_samples_all(&t->config, &t->flow);
    int32_t *out = weft_alloc((size_t) (n * ITERATIONS), sizeof *out);
    for (int32_t i = 0; i < n * ITERATIONS; i++)
        out[i] = weft_lengths_draw(&t->lengths, t->config.seed, i / n, i % n,
                                   t->config.rollout.max_new_tokens);
    return out;
}

static void record(const struct setting *s, bool generates, bool infers,
                   bool fusion, struct weft_recording *out,
                   double bound_s[ITERATIONS])
{
    const char *word[7];
    char text[5][64], file[600];
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    const struct weft_g_job job = {
        .n_ranks = 1, .n_devices = s->devices, .place_per_device = true};
    snprintf(file, sizeof file, "%s/ppo.yaml", s->dir);
    snprintf(text[0], sizeof *text, "layout=dp%d", (int) s->devices);
    snprintf(text[1], sizeof *text, "rollout.prompts=%d",
             (int) s->devices * EACH);
    snprintf(text[2], sizeof *text, "numerics.gradient_groups=%d",
             (int) s->devices);
    snprintf(text[3], sizeof *text, "rollout.inter_stage_fusion=%s",
             fusion ? "true" : "false");
    snprintf(text[4], sizeof *text, "train.micro_batch_tokens=%d",
             generates ? rows[s->row].tokens : FULL);
    for (int i = 0; i < 5; i++)
        word[i] = text[i];
    word[5] = rows[s->row].most;
    word[6] = rows[s->row].lengths;
    CHECK(weft_run_config_read(file, 7, word, &config, &err));
    CHECK(weft_trainer_describe(&config, &job, &plan, &t, &err));
    int32_t *length = draw_lengths(t);
    const struct weft_recorded how = {.rank = -1,
                                      .calls = calls_of(t, generates, infers),
                                      .iterations = ITERATIONS,
                                      .n_total = length,
                                      .responses = true,
                                      .bound_s = bound_s,
                                      .costs = make_costs(s)};
    weft_recording_init(out);
    CHECK(weft_run_record(t, &how, out, &err));
    plan = t->plan;
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
    weft_free(length);
}

/* ---- Played and executed ------------------------------------------------ */

static double seconds(void *ctx, const struct weft_recording *r, int64_t task,
                      int32_t device)
{
    struct setting *s = ctx;
    if (device < 0) /* any device of its place: there is one */
        device = r->task[task].place;
    return weft_costs_task(s->costs, r, task, device);
}

static void message(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    (void) ctx;
    (void) r;
    (void) task;
    *out = (struct weft_engine_message){.latency_s = 0};
}

/* From the first task of the last iteration to its last. */
static double last_s(const struct weft_recording *r,
                     const struct weft_span *span)
{
    double first = INFINITY, last = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        if (r->task[i].iteration != ITERATIONS - 1 || span[i].end_s <= 0)
            continue;
        first = fmin(first, span[i].start_s);
        last = fmax(last, span[i].end_s);
    }
    return last - first;
}

static double simulate(struct setting *s, const struct weft_recording *r,
                       struct weft_span *span)
{
    int32_t *place = weft_alloc((size_t) s->devices, sizeof *place), device;
    const struct weft_engine_job job = {.n_devices = s->devices,
                                        .n_places = s->devices,
                                        .places_per_rank = s->devices,
                                        .place_of = place,
                                        .ctx = s,
                                        .seconds = seconds,
                                        .message = message};
    struct weft_engine *e;
    for (int32_t i = 0; i < s->devices; i++)
        place[i] = i;
    CHECK(weft_engine_create(&job, r, &e, &err));
    CHECK(weft_engine_run(e, &err));
    for (int64_t i = 0; i < r->n_tasks; i++)
        weft_engine_span(e, i, &span[i], &device);
    weft_engine_free(e);
    weft_free(place);
    return last_s(r, span);
}

static int32_t count_moved(const struct weft_recording *r)
{
    int32_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        n += r->task[i].iteration == ITERATIONS - 1
          && strcmp(weft_recording_op(r, i), "gen_enter") == 0;
    return n;
}

struct times {
    double simulated, executed, bound;
};

static struct times run(struct setting *s, const char *name, bool generates,
                        bool infers, bool fusion)
{
    struct weft_recording r;
    double bound_s[ITERATIONS];
    record(s, generates, infers, fusion, &r, bound_s);
    struct weft_span *span = weft_alloc((size_t) r.n_tasks, sizeof *span);
    struct times x = {.simulated = simulate(s, &r, span),
                      .bound = bound_s[ITERATIONS - 1]};
    memset(span, 0, (size_t) r.n_tasks * sizeof *span);
    (void) execute(&r, s->devices, true, seconds, s, span);
    x.executed = last_s(&r, span);
    printf("%7d  %-10s %11.3f %11.3f %7.1f %% %7d\n", (int) s->devices, name,
           x.simulated, x.executed, 100 * (x.simulated / x.executed - 1),
           (int) count_moved(&r));
    fflush(stdout);
    weft_free(span);
    weft_recording_release(&r);
    return x;
}

static void compare(struct setting *s)
{
    s->costs = make_costs(s);
    struct times gen = run(s, "generation", true, false, false);
    struct times infer = run(s, "inference", false, true, false);
    struct times off = run(s, "streamed", true, true, false);
    struct times on = run(s, "fused", true, true, true);
    double base = gen.simulated + infer.simulated;
    printf("%7d  %-10s %11.3f\n", (int) s->devices, "bound", on.bound);
    printf("%7d  base / fused: simulated %.2f, executed %.2f, of %.2f that "
           "the bound allows (bar: 1.3);\n"
           "         streamed / fused: simulated %.2f, executed %.2f\n",
           (int) s->devices, base / on.simulated,
           (gen.executed + infer.executed) / on.executed, base / on.bound,
           off.simulated / on.simulated, off.executed / on.executed);
    weft_costs_free(s->costs);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(weft_file_write(path, text, strlen(text), &err));
}

static void do_row(struct setting *s)
{
    const char *critic = rows[s->row].critic->name;
    char text[sizeof config_yaml + 64];
    snprintf(text, sizeof text, config_yaml, critic, critic);
    put(s->dir, "ppo.yaml", text);
    printf("\n%d: %s %s critic=%s\n%7s  %-10s %11s %11s %9s %7s\n",
           (int) s->row + 1, rows[s->row].most, rows[s->row].lengths, critic,
           "devices", "", "simulated s", "executed s", "error", "moved");
    for (s->devices = 8; s->devices <= 32; s->devices *= 4)
        compare(s);
}

int main(int argc, char **argv)
{
    char dir[] = "/tmp/weft-tail-XXXXXX", path[600];
    struct setting s = {.dir = dir};
    int only = argc > 1 ? atoi(argv[1]) : 0;
    if (argc > 2 || only < 0 || only > (int) WEFT_COUNT(rows)) {
        fprintf(stderr, "usage: tail_emulated [ROW]\n");
        return 2;
    }
    if (!mkdtemp(dir)) {
        perror("mkdtemp");
        return 1;
    }
    made_model(dir, "actor", &hoppers_actor, false);
    for (size_t k = 0; k < WEFT_COUNT(critics); k++)
        made_model(dir, critics[k].name, &critics[k], true);
    put(dir, "cluster.yaml", hoppers_yaml);
    snprintf(path, sizeof path, "%s/cluster.yaml", dir);
    CHECK(weft_cluster_read(path, &s.cluster, &err));
    for (; s.row < WEFT_COUNT(rows); s.row++)
        if (only == 0 || only == (int) s.row + 1)
            do_row(&s);
    CHECK(weft_dir_remove(dir, &err));
    return 0;
}
