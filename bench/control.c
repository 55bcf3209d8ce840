/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller of generation takes: CPU time of reading a status,
 * deciding, admitting and dealing inference, for each chunk and as a part of
 * the iteration; and what the choice takes before it, of when samples move.
 *
 *     bench/control
 *
 * Generation of 8, 64 and 256 instances with inter-stage fusion is recorded,
 * with 8 samples an instance of lognormal:200:0.8, cut at 512 and at 2048
 * tokens, in chunks of 16 steps, and inference by reference, critic and reward
 * model is dealt on the same devices. First when samples move is said; then it
 * is chosen by costs, and so is who infers what: of four iterations the last
 * one is shown, which is decided by simulating three. Time is this thread's CPU
 * time in weft_rollout_run_all() without what it calls to insert tasks, to play
 * instances and to retire samples, and in weft_tail_decide() (the linker's
 * --wrap). What messages between ranks take is not in it. The iteration is
 * 33B's generation on instances of four Hopper GPUs, of which
 * bench/tail_emulated says that a chunk takes 0.142 s: the longest sample's
 * chunks.
 */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "bench/check.h"
#include "bench/hoppers.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/costs.h"
#include "lm/rollout_inside.h"
#include "run/iteration.h"
#include "run/predict/recorded.h"

enum { EACH = 8, CHUNK = 16, ITERATIONS = WEFT_TAIL_PAST + 1 };
static const double chunk_s = 0.142;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* ---- What is not the controller's --------------------------------------- */

/* Of the last iteration. */
static double others_s, all_s, choice_s, timer_s;
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
void __wrap_weft_gen_play_chunk(struct weft_gen_play *play,
                                const struct weft_gen_args *args,
                                int32_t n_admit,
                                const struct weft_gen_admit *admit,
                                const int32_t *n_total,
                                struct weft_gen_status *status,
                                struct weft_work_rows step[])
{
    BESIDE(__real_weft_gen_play_chunk(play, args, n_admit, admit, n_total,
                                      status, step));
}

__typeof__(weft_rollout_run_all) __real_weft_rollout_run_all,
    __wrap_weft_rollout_run_all;
int __wrap_weft_rollout_run_all(struct weft_seq *seq, int32_t n,
                                struct weft_rollout_job *job,
                                struct weft_rollout_order *order,
                                struct weft_err *error)
{
    others_s = 0;
    n_calls = n_chunks = 0;
    double start_s = now_s();
    int rc = __real_weft_rollout_run_all(seq, n, job, order, error);
    all_s = now_s() - start_s;
    return rc;
}

__typeof__(weft_tail_decide) __real_weft_tail_decide, __wrap_weft_tail_decide;
int __wrap_weft_tail_decide(const struct weft_iteration_set *set,
                            struct weft_tail_choice *out,
                            struct weft_err *error)
{
    double start_s = now_s();
    int rc = __real_weft_tail_decide(set, out, error);
    choice_s = now_s() - start_s;
    return rc;
}

/* ---- Recordings --------------------------------------------------------- */

static const char config_yaml[] =
    "algorithm: ppo\n"
    "seed: 15\n"
    "iterations: 4\n"
    "data: {prompt_tokens: 256}\n"
    "model: {actor: actor, critic: critic, reference: actor}\n"
    "reward: [{type: model, model: critic}]\n"
    "rollout: {slots: 8, chunk_tokens: 16, lengths: 'lognormal:200:0.8',\n"
    "  inter_stage_fusion: true}\n"
    "ppo: {mini_batches: 1}\n"
    "numerics: {dtype: bf16}\n"
    "runtime: {overlap: false, place: device}\n";

static struct weft_costs *costs_of(const struct weft_g_job *job,
                                   const struct weft_cluster *cluster)
{
    const struct weft_costs_job of = {.cluster = cluster,
                                      .n_ranks = 1,
                                      .n_devices = job->n_devices,
                                      .place_per_device = true};
    struct weft_costs *out;
    CHECK(weft_costs_create(&of, &out, &err));
    return out;
}

/* The longest of the last iteration; length: of all samples. */
static int32_t draw_lengths(const struct weft_trainer *t, int32_t n,
                            int32_t *length)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < ITERATIONS * n; i++) {
        length[i] = weft_lengths_draw(&t->lengths, t->config.seed, i / n,
                                      i % n,
                                      t->config.rollout.max_new_tokens);
        if (i >= (ITERATIONS - 1) * n)
            longest = weft_max32(longest, length[i]);
    }
    return longest;
}

/* cluster: whose costs decide; NULL: it is said when samples move. */
static void measure(const char *dir, const struct weft_cluster *cluster,
                    int32_t instances, int32_t most)
{
    const char *word[5];
    char text[5][64], file[600];
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    const struct weft_g_job job = {
        .n_ranks = 1, .n_devices = instances, .place_per_device = true};
    snprintf(file, sizeof file, "%s/ppo.yaml", dir);
    snprintf(text[0], sizeof *text, "layout=dp%d", (int) instances);
    snprintf(text[1], sizeof *text, "rollout.prompts=%d",
             (int) (EACH * instances));
    snprintf(text[2], sizeof *text, "numerics.gradient_groups=%d",
             (int) instances);
    snprintf(text[3], sizeof *text, "rollout.max_new_tokens=%d", (int) most);
    snprintf(text[4], sizeof *text, "rollout.remaining=0.2");
    for (int i = 0; i < 5; i++)
        word[i] = text[i];
    CHECK(weft_run_config_read(file, cluster ? 4 : 5, word, &config, &err));
    CHECK(weft_trainer_describe(&config, &job, &plan, &t, &err));
    int32_t n = weft_run_samples_all(&t->config, &t->flow);
    int32_t *length = weft_alloc((size_t) (ITERATIONS * n), sizeof *length);
    int32_t longest = draw_lengths(t, n, length);
    uint32_t calls = 0;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        calls |= t->flow.call[i].kind == WEFT_GENERATE ? 1u << i : 0;
    const struct weft_recorded how = {
        .rank = -1,
        .gangs = true,
        .calls = calls,
        .iterations = ITERATIONS,
        .n_total = length,
        .responses = true,
        .costs = cluster ? costs_of(&job, cluster) : NULL};
    weft_recording_init(&r);
    CHECK(weft_run_record(t, &how, &r, &err));
    double own_s = all_s - others_s - (double) n_calls * timer_s;
    double iteration_s = chunk_s * ((double) longest / CHUNK);
    printf("%6s %9d %6d %7lld %10.2f %8.4f %8.3f %% %8.4f %8.3f %% %11.1f\n",
           cluster ? "costs" : "said", (int) instances, (int) most,
           (long long) n_chunks, 1e6 * own_s / (double) n_chunks, own_s,
           100 * own_s / iteration_s, choice_s, 100 * choice_s / iteration_s,
           iteration_s);
    fflush(stdout);
    weft_recording_release(&r);
    plan = t->plan;
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
    weft_free(length);
}

static void put(const char *dir, const char *name, const char *text,
                char path[600])
{
    snprintf(path, 600, "%s/%s", dir, name);
    CHECK(weft_file_write(path, text, strlen(text), &err));
}

int main(void)
{
    static const int32_t instances[] = {8, 64, 256};
    char dir[] = "/tmp/weft-control-XXXXXX", path[600];
    struct weft_cluster cluster;
    double start_s = now_s();
    for (int i = 0; i < 100000; i++)
        (void) now_s();
    timer_s = (now_s() - start_s) / 100000;
    if (!mkdtemp(dir)) {
        perror("mkdtemp");
        return 1;
    }
    made_model(dir, "actor", &hoppers_actor, false);
    made_model(dir, "critic", &hoppers_actor, true);
    put(dir, "ppo.yaml", config_yaml, path);
    put(dir, "cluster.yaml", hoppers_yaml, path);
    CHECK(weft_cluster_read(path, &cluster, &err));
    printf("%6s %9s %6s %7s %10s %8s %10s %8s %10s %11s\n", "when",
           "instances", "most", "chunks", "us a chunk", "CPU s", "part",
           "choice s", "part", "iteration s");
    for (int costs = 0; costs < 2; costs++)
        for (size_t i = 0; i < WEFT_COUNT(instances); i++) {
            cluster.kind[0].n_devices = instances[i];
            measure(dir, costs ? &cluster : NULL, instances[i], 512);
            measure(dir, costs ? &cluster : NULL, instances[i], 2048);
        }
    CHECK(weft_dir_remove(dir, &err));
    return 0;
}
