/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event engine beside SimGrid: random graphs are played by the engine, and
 * submitted to a StarPU that simulates its machine, which finds by itself what
 * waits for what, from the accesses, and when. Nothing of it is ours but the
 * orders that are asked for.
 */
#include <starpu.h>
#include <sys/stat.h>

#include "draw.h"
#include "engine_fixture.h"

int main(void); /* which StarPU gives another name */

enum { TILES = 8, TASKS = 60, ROUNDS = 40 };

static starpu_data_handle_t handle[TILES];
static struct starpu_task *submitted[MOST_TASKS];
static unsigned n_ordered[DEVICES]; /* tasks so far; StarPU counts on */
/* StarPU's program takes no time, but its workers some microseconds. */
static const double near_s = 1e-3;

/* ---- The machine --------------------------------------------------------- */

#define CPU(n) "<host id=\"CPU" #n "\" speed=\"1Gf\"/>"
static const struct {
    const char *ending, *text;
} files[] = {
    {"config", "4\n0\n0\n0\n"}, /* CPUs, and none of what else there is */
    {"latency", "0\t\n"},
    {"bandwidth", "0\t\n"},
    {"affinity", ""},
    {"platform.v4.xml",
     "<?xml version='1.0'?>\n"
     "<!DOCTYPE platform SYSTEM 'https://simgrid.org/simgrid.dtd'>\n"
     "<platform version=\"4.1\"><zone id=\"AS0\" routing=\"Full\">\n"
     "<host id=\"MAIN\" speed=\"1f\"/><host id=\"RAM\" speed=\"1f\"/>\n" CPU(
         0) CPU(1) CPU(2) CPU(3) "</zone></platform>\n"}};

/* Where StarPU's main(), which is the first to run, looks for it. */
static __attribute__((constructor)) void describe_machine(void)
{
    static const char *const folders[] = {"", "/.starpu", "/.starpu/sampling",
                                          "/.starpu/sampling/bus"};
    static const char *const costs[] = {
        "STARPU_SIMGRID_TASK_SUBMIT_COST", "STARPU_SIMGRID_CUDA_MALLOC_COST",
        "STARPU_SIMGRID_FETCHING_INPUT_COST", "STARPU_SIMGRID_SCHED_COST"};
    char path[4096];
    setenv("STARPU_HOME", "starpu-home", 0);
    setenv("STARPU_HOSTNAME", "weft", 1);
    for (size_t i = 0; i < WEFT_COUNT(costs); i++)
        setenv(costs[i], "0", 1);
    for (size_t i = 0; i < WEFT_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s%s", getenv("STARPU_HOME"),
                 folders[i]);
        mkdir(path, 0777);
    }
    for (size_t i = 0; i < WEFT_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/.starpu/sampling/bus/weft.%s",
                 getenv("STARPU_HOME"), files[i].ending);
        FILE *f = fopen(path, "w");
        if (f && fputs(files[i].text, f) >= 0)
            fclose(f);
    }
}

/* ---- Graphs -------------------------------------------------------------- */

/* Tasks that use some of the tiles each. The first one of each device is there
 * alone, so that all others are submitted when it ends. positions: devices have
 * an order of their tasks; else any device takes the most urgent one that is
 * ready. Times are not round: which of two ends first is the same for both. */
static void make(bool positions)
{
    int64_t position[DEVICES] = {0};
    begin();
    for (int i = 0; i < TILES; i++)
        tile(0, 8);
    for (int i = 0; i < TASKS; i++) {
        int device = i < DEVICES ? i : draw_from(0, DEVICES - 1);
        struct weft_where where = {.device = -1,
                                   /* each another one, in no order */
                                   .priority = i < DEVICES ? TASKS + i
                                                           : i * 37 % 61};
        if (positions || i < DEVICES)
            where.device = device;
        if (positions)
            where.position = ++position[device];
        weft_recording_task(&r, WEFT_REC_TASK, "task", &where, 0);
        seconds_of[i] = 1 + 1e-4 * draw_from(1, 20000);
        int first = draw_from(0, TILES - 1), n = draw_from(1, 3);
        for (int k = 0; i >= DEVICES && k < n; k++)
            weft_recording_access(&r, (first + 3 * k) % TILES,
                                  draw_from(0, 2));
    }
}

/* ---- StarPU -------------------------------------------------------------- */

static double cost_us(struct starpu_task *task, unsigned implementation)
{
    (void) implementation;
    return 1e6 * *(const double *) task->cl_arg;
}

static void nothing(void *buffers[], void *arg)
{
    (void) buffers;
    (void) arg;
}

static struct starpu_perfmodel model = {
    .type = STARPU_COMMON, .symbol = "weft", .cost_function = cost_us};
static struct starpu_codelet codelet = {.cpu_funcs = {nothing},
                                        .nbuffers = STARPU_VARIABLE_NBUFFERS,
                                        .model = &model};

static void submit(int i)
{
    static const enum starpu_data_access_mode mode_of[] = {
        [READ] = STARPU_R, [WRITE] = STARPU_W, [BOTH] = STARPU_RW};
    const struct weft_rec_task *t = &r.task[i];
    struct starpu_task *task = starpu_task_create();
    task->cl = &codelet;
    task->cl_arg = &seconds_of[i];
    task->destroy = 0;
    task->priority = t->priority;
    if (t->device >= 0) {
        task->execute_on_a_specific_worker = 1;
        task->workerid = (unsigned) t->device;
        if (t->position > 0)
            task->workerorder = ++n_ordered[t->device];
    }
    task->nbuffers = t->n_access;
    for (int k = 0; k < t->n_access; k++) {
        const struct weft_rec_access *a = &r.access[t->access + k];
        task->handles[k] = handle[a->tile];
        task->modes[k] = mode_of[a->mode];
    }
    REQUIRE(starpu_task_submit(task) == 0);
    submitted[i] = task;
}

static double seconds_from(const struct timespec *zero,
                           const struct timespec *t)
{
    return (double) (t->tv_sec - zero->tv_sec)
         + 1e-9 * (double) (t->tv_nsec - zero->tv_nsec);
}

/* Both play it; each task begins and ends when it does in the other. */
static void compare(void)
{
    struct weft_engine_job job = own;
    job.n_places = 1;
    job.places_per_rank = 1;
    job.place_of = (const int32_t[DEVICES]){0};
    for (int i = 0; i < TASKS; i++)
        submit(i);
    REQUIRE(starpu_task_wait_for_all() == 0);
    struct weft_engine *e = play(&job);
    struct timespec zero = submitted[0]->profiling_info->start_time;
    for (int i = 0; i < TASKS; i++) {
        const struct starpu_profiling_task_info *of =
            submitted[i]->profiling_info;
        struct weft_span span = span_of(e, i);
        double start_s = seconds_from(&zero, &of->start_time);
        double end_s = seconds_from(&zero, &of->end_time);
        bool same = fabs(span.start_s - start_s) < near_s
                 && fabs(span.end_s - end_s) < near_s;
        if (!same)
            printf("\n    task %d: %g to %g, by SimGrid %g to %g\n", i,
                   span.start_s, span.end_s, start_s, end_s);
        CHECK(same);
        starpu_task_destroy(submitted[i]);
    }
    done(e);
}

static void rounds(bool positions)
{
    struct starpu_conf conf;
    REQUIRE(starpu_conf_init(&conf) == 0);
    conf.ncpus = DEVICES;
    conf.sched_policy_name = "prio";
    REQUIRE(starpu_init(&conf) == 0);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    REQUIRE(starpu_cpu_worker_get_count() == DEVICES);
    for (int i = 0; i < TILES; i++) {
        starpu_void_data_register(&handle[i]);
        /* written, so that tasks may read it */
        REQUIRE(starpu_data_acquire(handle[i], STARPU_W) == 0);
        starpu_data_release(handle[i]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        make(positions);
        compare();
    }
    for (int i = 0; i < TILES; i++)
        starpu_data_unregister(handle[i]);
    starpu_shutdown();
}

static void test_priorities(void)
{
    rounds(false);
}

static void test_positions(void)
{
    rounds(true);
}

WEFT_TESTS("plan/simgrid", {"test_priorities", test_priorities},
           {"test_positions", test_positions})
