/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to record an iteration of PPO on all ranks of a job, and to
 * play it: for the memory that each place can need, or (--simulate) by the
 * event engine with the costs of a cluster's description, of as many nodes as
 * the job has, for the time that it takes. Microseconds of processor time and
 * bytes for each task that is recorded, and the memory of the process in all.
 * `stand for`: what the tasks expand to, where instructions of tp groups are
 * recorded; elsewhere the same number.
 *
 *     bench/record [--simulate CLUSTER.yaml] [case]
 *
 * A case is a line of the table below; all are run without one, each in a
 * process of its own.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "bench/made.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/costs.h"
#include "plan/engine/engine.h"
#include "run/predict/recorded.h"

static const struct made_size sizes[] = {
    {"110m", 768, 12, 12, 12, 2048, 32000},
    {"7b", 4096, 32, 32, 32, 11008, 32000},
    {"70b", 8192, 80, 64, 8, 28672, 32000}};

/* ReaL's weak scaling (section 8.1): a node of 8 devices for every 256
 * samples of 1,024 + 1,024 tokens; 8 mini-batches, each cut into 8
 * micro-batches of a replica. Generation has no stages. */
#define CLUSTER(n_dp, samples, n_nodes)                                      \
    {                                                                        \
        "70b", "7b", "dp" #n_dp "tp8pp8,zero=1,micro_batches=8", n_nodes,    \
            8, {"numerics.dtype=bf16",                                       \
                "numerics.gradient_groups=" #n_dp,                           \
                "ppo.mini_batches=8",                                        \
                "rollout.max_new_tokens=1024",                               \
                "data.max_prompt_tokens=1024",                               \
                "rollout.slots=256",                                         \
                "rollout.prompts=" #samples,                                 \
                "train.micro_batch_tokens=32768"},                           \
            true, true                                                       \
    }

/* Places are devices. */
static const struct row {
    const char *actor, *critic, *layout;
    int nodes, devices;
    const char *word[10]; /* of the configuration */
    bool gangs;           /* instructions of tp groups are recorded */
    bool long_prompts;    /* of 1,024 tokens, and generation has no stages */
} rows[] = {
    {"110m", "110m", "dp1", 1, 1, {0}, false, false},
    {"110m", "110m", "dp4,zero=1", 1, 4, {0}, false, false},
    {"110m", "110m", "dp2tp2", 1, 4, {0}, false, false},
    {"110m", "110m", "dp2pp2,zero=2", 1, 4, {0}, false, false},
    {"110m",
     "110m",
     "dp2pp2",
     1,
     4,
     {"train.intra_stage_fusion=true"},
     false,
     false},
    {"7b",
     "7b",
     "dp16pp4,zero=1",
     8,
     8,
     {"numerics.gradient_groups=16", "numerics.dtype=bf16",
      "rollout.max_new_tokens=1024"},
     false,
     false},
    {"7b",
     "7b",
     "dp2tp8pp4,zero=1",
     8,
     8,
     {"numerics.gradient_groups=16", "numerics.dtype=bf16"},
     false,
     false},
    {"7b", "7b", "dp1tp8pp4", 4, 8, {"numerics.dtype=bf16"}, true, false},
    {"70b", "7b", "dp1tp8pp4", 4, 8, {"numerics.dtype=bf16"}, true, false},
    CLUSTER(1, 2048, 8),
    CLUSTER(4, 8192, 32),
    CLUSTER(16, 32768, 128),
    {"7b", "7b", "dp1tp8", 1, 8, {"numerics.dtype=bf16"}, true, false},
};

static const char yaml[] =
    "algorithm: ppo\n"
    "run_dir: unset\n"
    "iterations: 10\n"
    "data: {path: prompts.jsonl}\n"
    "reward: [{type: callback, name: none}]\n"
    "rollout: {prompts: 128, max_new_tokens: 256, slots: 64,\n"
    "          chunk_tokens: 16}\n"
    "ppo: {mini_batches: 4}\n"
    "train: {micro_batch_tokens: 4096}\n"
    "runtime: {place: device}\n";

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static double peak_mib(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double) use.ru_maxrss / 1024;
}

static void make_files(const char *dir)
{
    char path[600];
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++)
        made_model(dir, sizes[i].name, &sizes[i], false);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK(weft_file_write(path, yaml, sizeof yaml - 1, &err));
    made_prompts(dir, "prompts.jsonl", 256, 32, 95);
    made_prompts(dir, "long.jsonl", 32768, 1024, 1024);
}

static void describe(const char *dir, const struct row *row,
                     struct weft_config *config, struct weft_plan *plan,
                     struct weft_trainer **out)
{
    char path[600], actor[700], critic[700], reference[700], layout[64];
    char prompts[700];
    struct weft_run_needs needs;
    const char *all[16] = {actor, critic, reference, layout};
    int n = 4;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(actor, sizeof actor, "model.actor=%s/%s", dir, row->actor);
    snprintf(critic, sizeof critic, "model.critic=%s/%s", dir, row->critic);
    snprintf(reference, sizeof reference, "model.reference=%s/%s", dir,
             row->actor);
    snprintf(layout, sizeof layout, "layout=%s", row->layout);
    snprintf(prompts, sizeof prompts, "data.path=%s/long.jsonl", dir);
    for (int i = 0; row->word[i]; i++)
        all[n++] = row->word[i];
    if (row->long_prompts)
        all[n++] = prompts;
    CHECK(weft_run_config_read(path, n, all, config, &err));
    const struct weft_g_job job = {.n_ranks = row->nodes,
                                   .n_devices = row->devices,
                                   .place_per_device = true};
    CHECK(weft_run_needs_read(config, job.n_ranks, job.n_devices, 0, &needs,
                              &err));
    CHECK(weft_run_plan(config, &needs.plan, plan, &err));
    for (int32_t i = 1; row->long_prompts && i < plan->flow.n_calls; i++)
        if (plan->flow.call[i].kind == WEFT_GENERATE) {
            struct weft_call_plan *c = &plan->call[i];
            c->dp *= c->pp;
            c->pp = 1;
        }
    CHECK(weft_trainer_describe(config, &job, plan, out, &err));
}

static double bytes_of(const struct weft_recording *r)
{
    return (double) r->task_room * sizeof *r->task
         + (double) r->access_room * sizeof *r->access
         + (double) r->tile_room * sizeof *r->tile
         + (double) r->wait_room * sizeof *r->wait
         + (double) r->gang_room * sizeof *r->gang
         + (double) r->temps_room * sizeof *r->temps;
}

static void record(const struct weft_trainer *t, bool gangs,
                   struct weft_recording *out)
{
    const struct weft_recorded how = {.rank = -1,
                                      .gangs = true,
                                      .first = t->settings.warmup,
                                      .iterations = 1};
    weft_recording_init(out);
    CHECK(gangs ? weft_run_record(t, &how, out, &err)
                : weft_run_record_bound(t, false, out, &err));
}

/* ---- The event engine --------------------------------------------------- */

static double seconds(void *ctx, const struct weft_recording *r, int64_t task,
                      int32_t device)
{
    return weft_costs_task(ctx, r, task, device);
}

static double insert(void *ctx, const struct weft_recording *r, int64_t task)
{
    return weft_costs_insert(ctx, r, task);
}

static void message(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    *out = (struct weft_engine_message){
        .core_s = weft_costs_message_core(ctx, r, task)};
    out->n_links = weft_costs_message(ctx, r, task, out->link,
                                      &out->latency_s, &out->bytes);
}

/* Returns the seconds that were played. most_out: bytes of a place. */
static double simulate(const struct weft_recording *r, const struct row *row,
                       const char *file, double *most_out)
{
    int32_t n = row->nodes * row->devices;
    struct weft_cluster cluster;
    struct weft_costs *costs;
    struct weft_engine *e;
    int32_t *place = weft_alloc((size_t) n, sizeof *place);
    for (int32_t d = 0; d < n; d++)
        place[d] = d;
    CHECK(weft_cluster_read(file, &cluster, &err));
    cluster.n_nodes = cluster.kind[0].n_nodes = row->nodes;
    CHECK(
        weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                   .n_ranks = row->nodes,
                                                   .n_devices = row->devices,
                                                   .fits = true,
                                                   .place_per_device = true},
                          &costs, &err));
    struct weft_engine_job job = {.n_devices = n,
                                  .n_places = n,
                                  .places_per_rank = row->devices,
                                  .place_of = place,
                                  .memory = true,
                                  .ctx = costs,
                                  .seconds = seconds,
                                  .message = message};
    job.insert = weft_costs_inserts(costs) ? insert : NULL;
    job.bytes_per_s = weft_costs_links(costs, &job.n_links);
    CHECK(weft_engine_create(&job, r, &e, &err));
    CHECK(weft_engine_run(e, &err));
    double played_s = weft_engine_now_s(e);
    for (int32_t p = 0; p < n; p++)
        *most_out = fmax(*most_out,
                         (double) weft_engine_memory(e, p)[WEFT_MEM_ALL]);
    weft_engine_free(e);
    weft_costs_free(costs);
    weft_free(place);
    return played_s;
}

/* cluster: the file of which it is simulated; NULL: it is not. */
static void measure(const char *dir, const struct row *row,
                    const char *cluster)
{
    struct weft_config config;
    struct weft_plan plan = {0};
    struct weft_trainer *t;
    struct weft_recording r;
    int32_t n_places = row->nodes * row->devices;
    int64_t(*place)[WEFT_MEM_ALL + 1] = weft_alloc((size_t) n_places,
                                                   sizeof *place);
    struct weft_rec_open *open = weft_alloc((size_t) row->nodes,
                                            sizeof *open);
    describe(dir, row, &config, &plan, &t);
    double before_mib = peak_mib(), start = cpu_s();
    record(t, row->gangs, &r);
    double recorded_s = cpu_s() - start, recorded_mib = peak_mib();
    start = cpu_s();
    double most = 0, end_s = 0;
    if (cluster)
        end_s = simulate(&r, row, cluster, &most);
    else
        CHECK(
            weft_recording_memory(&r, n_places, row->devices, place, &err)
            || weft_recording_open(&r, row->nodes, row->devices, open, &err));
    double played_s = cpu_s() - start;
    for (int32_t k = 0; k < n_places; k++)
        most = fmax(most, (double) place[k][WEFT_MEM_ALL]);
    double n = (double) r.n_tasks;
    double expanded = (double) weft_recording_n_expanded(&r);
    printf("%-5s %-5s %-17s %7d %9lld %9lld %9.2f %7.0f %9.2f %7.0f %8.2f "
           "%6.0f %7.2f\n",
           row->actor, row->critic, row->layout, n_places,
           (long long) r.n_tasks, (long long) weft_recording_n_expanded(&r),
           recorded_s / n * 1e6, bytes_of(&r) / n, played_s / n * 1e6,
           (peak_mib() - recorded_mib) * 1048576 / n, recorded_s + played_s,
           peak_mib() - before_mib, most / 1073741824);
    if (cluster)
        printf("    simulated: %.4g s an iteration; played in %.2f us for "
               "each task that is recorded (bar: 1.5),\n    %.3g for each "
               "that these stand for; in all %.1f s of a core (bar: 60), "
               "%.2f GB (bar: 4)\n",
               end_s, played_s / n * 1e6, played_s / expanded * 1e6,
               recorded_s + played_s, peak_mib() * 1048576 / 1e9);
    weft_recording_release(&r);
    weft_trainer_forget(t);
    weft_config_release(&config);
    weft_free(place);
    weft_free(open);
}

int main(int argc, char **argv)
{
    char dir[256];
    const char *cluster = NULL;
    if (argc > 2 && strcmp(argv[1], "--simulate") == 0) {
        cluster = argv[2];
        argc -= 2;
        argv += 2;
    }
    int only = argc > 1 ? atoi(argv[1]) : 0, failed = 0;
    if (argc > 2 || only < 0 || only > (int) WEFT_COUNT(rows)) {
        fprintf(stderr, "usage: record [--simulate CLUSTER.yaml] [1-%d]\n",
                (int) WEFT_COUNT(rows));
        return 2;
    }
    snprintf(dir, sizeof dir, "%s/weft-record-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(dir)) {
        perror("record");
        return 1;
    }
    make_files(dir);
    printf(
        "                                                       recorded, "
        "each    played, each     together\nactor critic layout            "
        "devices     tasks stand for        us   bytes        us   bytes     "
        "   s    MiB\n");
    fflush(stdout);
    for (int i = 0; i < (int) WEFT_COUNT(rows); i++) {
        if (only && only != i + 1)
            continue;
        pid_t child = fork();
        int status = 1;
        if (child == 0) {
            measure(dir, &rows[i], cluster);
            fflush(stdout);
            _exit(0);
        }
        failed |= child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
    }
    weft_dir_remove(dir, NULL);
    return failed ? 1 : 0;
}
