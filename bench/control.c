/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller of generation takes: CPU time of reading a status,
 * deciding and admitting, for each chunk and as a part of the iteration.
 *
 *     bench/control
 *
 * Generation of 8, 64 and 256 instances with inter-stage fusion is recorded,
 * with 8 samples an instance of lognormal:200:0.8, cut at 512 and at 2048
 * tokens, in chunks of 16 steps. Time is this thread's CPU time in
 * weft_rollout_run_all() without what it calls to insert tasks, to play
 * instances and to retire samples (the linker's --wrap). What messages between
 * ranks take is not in it. The iteration is 33B's generation on instances of
 * four Hopper GPUs, of which bench/tail_emulated says that a chunk takes
 * 0.142 s: the longest sample's chunks.
 */
#include <time.h>

#include "base/alloc.h"
#include "bench/check.h"
#include "bench/made.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "lm/rollout_inside.h"
#include "run/predict/recorded.h"

enum { EACH = 8, CHUNK = 16 };
static const double chunk_s = 0.142;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* ---- What is not the controller's --------------------------------------- */

static double others_s, all_s, timer_s;
static int64_t n_calls, n_chunks;

#define BESIDE(call)                                                         \
    do {                                                                     \
        double start_s_ = now_s();                                           \
        call;                                                                \
        others_s += now_s() - start_s_;                                      \
        n_calls++;                                                           \
    } while (0)

__typeof__(weft_g_generate_chunk) __real_weft_g_generate_chunk,
    __wrap_weft_g_generate_chunk;
void __wrap_weft_g_generate_chunk(struct weft_seq *seq,
                                  struct weft_g_generate *gen,
                                  const struct weft_g_view *view,
                                  int32_t index,
                                  const struct weft_gen_args *args,
                                  int32_t n_admit,
                                  const struct weft_gen_admit *admit)
{
    BESIDE(__real_weft_g_generate_chunk(seq, gen, view, index, args, n_admit,
                                        admit));
    n_chunks++;
}

__typeof__(weft_g_generate_retire) __real_weft_g_generate_retire,
    __wrap_weft_g_generate_retire;
void __wrap_weft_g_generate_retire(struct weft_seq *seq,
                                   const struct weft_g_generate *gen,
                                   int32_t instance, int32_t slot,
                                   int32_t iteration,
                                   struct weft_tile *rollout)
{
    BESIDE(__real_weft_g_generate_retire(seq, gen, instance, slot, iteration,
                                         rollout));
}

__typeof__(weft_gen_play_chunk) __real_weft_gen_play_chunk,
    __wrap_weft_gen_play_chunk;
int __wrap_weft_gen_play_chunk(
    struct weft_gen_play *play, struct weft_seq *seq,
    const struct weft_gen_args *args, int32_t n_admit,
    const struct weft_gen_admit *admit, const int32_t *n_total,
    struct weft_gen_status *status, struct weft_work_rows step[],
    struct weft_err *error)
{
    int rc;
    BESIDE(rc = __real_weft_gen_play_chunk(play, seq, args, n_admit, admit,
                                           n_total, status, step, error));
    return rc;
}

__typeof__(weft_rollout_run_all) __real_weft_rollout_run_all,
    __wrap_weft_rollout_run_all;
int __wrap_weft_rollout_run_all(struct weft_seq *seq, int32_t n,
                                struct weft_rollout_job *job,
                                struct weft_rollout_order *order,
                                struct weft_err *error)
{
    double start_s = now_s();
    int rc = __real_weft_rollout_run_all(seq, n, job, order, error);
    all_s += now_s() - start_s;
    return rc;
}

/* ---- Recordings --------------------------------------------------------- */

static const struct made_size size = {"33B", 6656, 60, 52, 52, 17920, 32000};

static const char config_yaml[] =
    "algorithm: grpo\n"
    "seed: 15\n"
    "iterations: 1\n"
    "data: {prompt_tokens: 256}\n"
    "model: {actor: actor, reference: actor}\n"
    "reward: [{type: length, target: 20}]\n"
    "rollout: {samples_per_prompt: 8, slots: 8, chunk_tokens: 16,\n"
    "  lengths: 'lognormal:200:0.8', inter_stage_fusion: true,\n"
    "  remaining: 0.2}\n"
    "numerics: {dtype: bf16}\n"
    "runtime: {overlap: false, place: device}\n";

static void measure(const char *dir, int32_t instances, int32_t longest)
{
    const char *word[4];
    char text[4][64], file[600];
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    const struct weft_g_job job = {
        .n_ranks = 1, .n_devices = instances, .place_per_device = true};
    snprintf(file, sizeof file, "%s/grpo.yaml", dir);
    snprintf(text[0], sizeof *text, "layout=dp%d", (int) instances);
    snprintf(text[1], sizeof *text, "rollout.prompts=%d", (int) instances);
    snprintf(text[2], sizeof *text, "numerics.gradient_groups=%d",
             (int) instances);
    snprintf(text[3], sizeof *text, "rollout.max_new_tokens=%d",
             (int) longest);
    for (int i = 0; i < 4; i++)
        word[i] = text[i];
    CHECK(weft_run_config_read(file, 4, word, &config, &err));
    CHECK(weft_trainer_describe(&config, &job, &plan, &t, &err));
    int32_t n = weft_run_samples_all(&t->config, &t->flow), most = 0;
    int32_t *length = weft_alloc((size_t) n, sizeof *length);
    for (int32_t i = 0; i < n; i++) {
        length[i] = weft_lengths_draw(&t->lengths, t->config.seed, 0, i,
                                      longest);
        most = weft_max32(most, length[i]);
    }
    uint32_t calls = 0;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        calls |= t->flow.call[i].kind == WEFT_GENERATE ? 1u << i : 0;
    const struct weft_recorded how = {.rank = -1,
                                      .gangs = true,
                                      .calls = calls,
                                      .iterations = 1,
                                      .n_total = length,
                                      .responses = true};
    others_s = all_s = 0;
    n_calls = n_chunks = 0;
    weft_recording_init(&r);
    CHECK(weft_run_record(t, &how, &r, &err));
    double own_s = all_s - others_s - (double) n_calls * timer_s;
    double iteration_s = chunk_s * ((double) most / CHUNK);
    printf("%9d %7d %7lld %10.2f %11.4f %11.1f %7.3f %%\n", (int) instances,
           (int) longest, (long long) n_chunks,
           1e6 * own_s / (double) n_chunks, own_s, iteration_s,
           100 * own_s / iteration_s);
    fflush(stdout);
    weft_recording_release(&r);
    plan = t->plan;
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
    weft_free(length);
}

int main(void)
{
    static const int32_t instances[] = {8, 64, 256};
    char dir[] = "/tmp/weft-control-XXXXXX", path[600];
    double start_s = now_s();
    for (int i = 0; i < 100000; i++)
        (void) now_s();
    timer_s = (now_s() - start_s) / 100000;
    if (!mkdtemp(dir)) {
        perror("mkdtemp");
        return 1;
    }
    made_model(dir, "actor", &size, false);
    snprintf(path, sizeof path, "%s/grpo.yaml", dir);
    CHECK(weft_file_write(path, config_yaml, sizeof config_yaml - 1, &err));
    printf("%9s %7s %7s %10s %11s %11s %9s\n", "instances", "longest",
           "chunks", "us a chunk", "CPU s", "iteration s", "part");
    for (size_t i = 0; i < WEFT_COUNT(instances); i++) {
        measure(dir, instances[i], 512);
        measure(dir, instances[i], 2048);
    }
    CHECK(weft_dir_remove(dir, &err));
    return 0;
}
