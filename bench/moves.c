/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of an iteration is reallocation, transfer and swapping that nothing hides:
 * RLHFuse's 256 GPUs (examples/clusters/rlhfuse_hopper.yaml), with a layout for
 * generation and inference and another for training, and reference and reward
 * model in host memory between uses. Simulated; `make bench-moves`.
 *
 *     bench/moves examples/clusters/rlhfuse_hopper.yaml
 *
 * Three iterations are recorded and played twice: as they are, and with weights,
 * samples and KV caches that move in no time, between devices and from host
 * memory. What they take longer is what nothing hides; beside it is how long
 * devices wait for moves and for nothing else, in the mean, as runs measure it
 * (`make bench-moves-here`). What members of a tp
 * group or stages exchange, and sums of gradients, are part of their calls, and
 * stay. The paper has less than 3 % (section 7.2). Then one kind of move alone
 * takes no time, of each call and class that moves a GiB or more. 512 samples, prompts of 256
 * tokens, responses lognormal:200:0.8 cut at 1,024, mini-batches of 64.
 */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/made.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/engine/played.h"
#include "run/predict/simulation.h"

enum { NODES = 32, GPUS = 8 };

static const struct made_size sizes[] = {
    {"13B", 5120, 40, 40, 40, 13824, 32000},
    {"33B", 6656, 60, 52, 52, 17920, 32000},
    {"65B", 8192, 80, 64, 64, 22016, 32000}};
/* dp, tp, pp: of generation and inference, and of training (table 3 has 4, 8
 * and 16 stages; 52 heads are 4 parts at most). */
static const int layouts[][2][3] = {{{32, 8, 1}, {8, 8, 4}},
                                    {{64, 4, 1}, {8, 4, 8}},
                                    {{32, 8, 1}, {2, 8, 16}}};
static const int pairs[][2] = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};

static const char yaml[] =
    "algorithm: ppo\n"
    "run_dir: unset\n"
    "iterations: 10\n"
    "data: {prompt_tokens: 256}\n"
    "rollout: {prompts: 512, max_new_tokens: 1024, slots: 64,\n"
    "          inter_stage_fusion: true, remaining: 0.2}\n"
    "ppo: {mini_batches: 8}\n"
    "train: {micro_batch_tokens: 1280}\n"
    "numerics: {dtype: bf16, gradient_groups: 8}\n"
    "runtime: {place: device}\n";

/* What moves from one place to another, or from the host. */
static const struct class {
    int mem;
    const char *name;
} classes[] = {{WEFT_MEM_HOST, "from the host"},
               {WEFT_MEM_WEIGHTS, "weights"},
               {WEFT_MEM_SAMPLES, "samples"},
               {WEFT_MEM_KV, "KV caches"}};
enum { NO_MOVE = -1 };

static int class_of(const struct weft_recording *r, int64_t task)
{
    const struct weft_rec_task *t = &r->task[task];
    const struct weft_rec_access *a = r->access + t->access;
    bool copies = t->kind == WEFT_REC_MESSAGE || t->kind == WEFT_REC_COPY
               || strcmp(weft_recording_op(r, task), "copy") == 0;
    for (int k = 0; copies && k < (int) WEFT_COUNT(classes); k++)
        for (int32_t i = 0; i < t->n_access; i++)
            if (r->tile[a[i].tile].mem == classes[k].mem)
                return k;
    return NO_MOVE;
}

/* ---- Moves that take no time --------------------------------------------- */

static struct weft_engine_job as_is; /* its functions, and what they need */
static int free_call, free_class;    /* those that do; ALL: any */
enum { ALL = -1 };

static bool is_free(const struct weft_recording *r, int64_t task)
{
    int class = class_of(r, task);
    return class != NO_MOVE
        && (free_call == ALL || r->task[task].call == free_call)
        && (free_class == ALL || class == free_class);
}

static double free_seconds(void *ctx, const struct weft_recording *r,
                           int64_t task, int32_t device)
{
    return is_free(r, task) ? 0 : as_is.seconds(ctx, r, task, device);
}

static void free_message(void *ctx, const struct weft_recording *r,
                         int64_t task, struct weft_engine_message *out)
{
    if (is_free(r, task))
        *out = (struct weft_engine_message){.bytes = 0};
    else
        as_is.message(ctx, r, task, out);
}

/* Seconds of an iteration once they follow one another; *share_out: of them,
 * what devices wait for moves alone, in the mean (NULL: nobody asks). */
static double play(struct weft_simulation *s, double *share_out)
{
    struct weft_played played;
    s->job.moves = share_out != NULL;
    CHECK(weft_simulation_play(s, &err));
    CHECK(weft_played_create(s->engine, &s->r, &s->job, &s->t->flow,
                             s->how.first, s->how.iterations, &played, &err));
    double seconds = played.steady_s;
    if (share_out)
        *share_out = weft_played_waited_s(&played) / seconds;
    weft_played_release(&played);
    return seconds;
}

/* ---- A setting ------------------------------------------------------------ */

static void lay_out(struct weft_plan *plan, const int *pair)
{
    for (int32_t k = 1; k < plan->flow.n_calls; k++) {
        const struct weft_flow_call *call = &plan->flow.call[k];
        struct weft_call_plan *p = &plan->call[k];
        if (call->role < 0)
            continue;
        bool trains = call->kind == WEFT_TRAIN;
        const struct weft_role *role = &plan->flow.role[call->role];
        const int *of = layouts[pair[role->scalar]][trains];
        *p = (struct weft_call_plan){.mesh = {0, NODES, 0, GPUS},
                                     .dp = of[0],
                                     .tp = of[1],
                                     .pp = of[2],
                                     .recompute = trains,
                                     .offload = !role->trained};
    }
}

/* Of what takes no time, in an iteration. */
static double gib(const struct weft_simulation *s)
{
    double bytes = 0;
    for (int64_t i = 0; i < s->r.n_tasks; i++)
        if (is_free(&s->r, i))
            bytes += (double) s->r.task[i].work.bytes;
    return bytes / s->how.iterations / 1073741824;
}

/* Plays with all moves, with none, and without one kind after the other. */
static void compare(struct weft_simulation *s, const char *a, const char *c)
{
    double share, with_s = play(s, &share);
    as_is = s->job;
    s->job.seconds = free_seconds;
    s->job.message = free_message;
    free_call = free_class = ALL;
    double without_s = play(s, NULL);
    printf("%3s / %3s  %8.2f %8.2f   %6.2f %%  %6.2f %%  %8.0f\n", a, c,
           with_s, without_s, (1 - without_s / with_s) * 100, share * 100,
           gib(s));
    fflush(stdout);
    for (free_call = 1; free_call < s->t->flow.n_calls; free_call++)
        for (free_class = 0; free_class < (int) WEFT_COUNT(classes);
             free_class++) {
            double moved = gib(s);
            if (moved < 1)
                continue;
            without_s = play(s, NULL);
            printf(
                "           %14.2f   %6.2f %%            %8.0f  %s of %s\n",
                without_s, (1 - without_s / with_s) * 100, moved,
                classes[free_class].name, s->t->flow.call[free_call].name);
            fflush(stdout);
        }
}

static void measure(const char *dir, const int *pair,
                    const struct weft_cluster *cluster,
                    const struct weft_lengths *lengths)
{
    char path[600], actor[700], critic[700], reference[700], reward[800];
    const char *word[] = {actor, critic, reference, reward};
    const char *a = sizes[pair[0]].name, *c = sizes[pair[1]].name;
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_simulation s;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(actor, sizeof actor, "model.actor=%s/%s", dir, a);
    snprintf(critic, sizeof critic, "model.critic=%s/%s-scalar", dir, c);
    snprintf(reference, sizeof reference, "model.reference=%s/%s", dir, a);
    snprintf(reward, sizeof reward,
             "reward=[{type: model, model: %s/%s-scalar}]", dir, c);
    CHECK(weft_run_config_read(path, WEFT_COUNT(word), word, &config, &err));
    const struct weft_g_job job = {
        .n_ranks = NODES, .n_devices = GPUS, .place_per_device = true};
    const struct weft_simulate_options o = {.cluster = cluster,
                                            .lengths = lengths,
                                            .iterations = 3,
                                            .gangs = true};
    CHECK(weft_run_needs_read(&config, NODES, GPUS, 0, &needs, &err));
    CHECK(weft_run_plan(&config, &needs.plan, &plan, &err));
    lay_out(&plan, pair);
    CHECK(weft_trainer_describe(&config, &job, &plan, &t, &err));
    CHECK(weft_simulation_open(t, &o, &s, &err));
    compare(&s, a, c);
    weft_simulation_close(&s);
    weft_trainer_forget(t);
    weft_plan_release(&plan);
    weft_config_release(&config);
}

int main(int argc, char **argv)
{
    char dir[256], path[600], name[64];
    struct weft_cluster cluster;
    struct weft_lengths lengths = {.n = 0};
    if (argc != 2) {
        fprintf(stderr, "usage: moves CLUSTER.yaml\n");
        return 2;
    }
    CHECK(weft_cluster_read(argv[1], &cluster, &err));
    CHECK(weft_lengths_read("lognormal:200:0.8", &lengths, &err));
    snprintf(dir, sizeof dir, "%s/weft-moves-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir)) {
        perror("moves");
        return 1;
    }
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
        made_model(dir, sizes[i].name, &sizes[i], false);
        snprintf(name, sizeof name, "%s-scalar", sizes[i].name);
        made_model(dir, name, &sizes[i], true);
    }
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
    printf(
        "actor/critic   iteration s, moves  not hidden  waited       GiB\n"
        "                as is  in no time                      that move\n");
    for (size_t k = 0; k < WEFT_COUNT(pairs); k++)
        measure(dir, pairs[k], &cluster, &lengths);
    weft_lengths_release(&lengths);
    weft_dir_remove(dir, NULL);
    return 0;
}
