/* SPDX-License-Identifier: Apache-2.0 */
/* Start and stop. All of StarPU's configuration is in this file. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/log.h"
#include "base/topology.h"
#include "config.h"
#include "rt/fxt.h"
#include "rt/internal.h"
#include "rt/moves.h"
#include "rt/transfer.h"
#include "rt/record.h"
#include "rt/environment.h"
#include "rt/trace.h"

enum {
    MAX_DEVICES = STARPU_MAXCPUS < WEFT_MAX_DEVICES ? STARPU_MAXCPUS
                                                    : WEFT_MAX_DEVICES,
    MAX_GPUS = STARPU_MAXCUDADEVS < WEFT_MAX_DEVICES ? STARPU_MAXCUDADEVS
                                                     : WEFT_MAX_DEVICES,
    RECORDS = 1 << 17 /* records of all devices: 6 MiB, 25 MB as a trace */
};

static atomic_bool started;

double weft_rt_now_us(const struct weft_rt *rt)
{
    return (weft_clock_s() - rt->start_s) * 1e6;
}

int weft_rt_n_devices(const struct weft_rt *rt)
{
    return rt->n_devices * rt->n_ranks;
}

int weft_rt_devices_per_rank(const struct weft_rt *rt)
{
    return rt->n_devices;
}

int weft_rt_n_gpus(const struct weft_rt *rt)
{
    return rt->n_cards;
}

bool weft_rt_gpus_apart(const struct weft_rt *rt)
{
    return rt->gpus_apart;
}

struct weft_gpu_memory weft_rt_gpu_memory(const struct weft_rt *rt)
{
    struct weft_gpu_memory least = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    for (int i = 0; i < rt->n_cards; i++) {
        const struct weft_card *card = &rt->card[i];
        if (card->pool->limit_bytes < least.tiles_bytes)
            least = (struct weft_gpu_memory){
                card->pool->limit_bytes, card->free_bytes, card->total_bytes};
    }
    return least;
}

bool weft_gpu_memory_is_taken(const struct weft_gpu_memory *memory)
{
    return memory->free_bytes < memory->total_bytes / 8 * 7;
}

int weft_rt_max_devices(void)
{
    return MAX_DEVICES;
}

int weft_rt_max_gpus(void)
{
    return MAX_GPUS;
}

/* ---- What was asked for ------------------------------------------------ */

/* Refuses to run as one of several processes that have not joined a job: each
 * would do the same work. */
static int check_joined(struct weft_err *err)
{
    const char *variable;
    int n = weft_world_started(&variable);
    if (n == 1 || weft_world_size() > 1)
        return 0;
    return weft_err_set(err, WEFT_EUNSUPPORTED,
                        "started as one of %d processes (%s); this command "
                        "runs in one process: start it without mpirun or "
                        "srun",
                        n, variable);
}

static int share_of(int cores, double share)
{
    int n = (int) (cores * share + 0.5);
    return cores > 0 && n < 1 ? 1 : n;
}

static int choose_devices(int wanted, const struct weft_topology *topology,
                          int *out, struct weft_err *err)
{
    int cores = weft_topology_cores(topology);
    const char *why = STARPU_MAXCPUS < WEFT_MAX_DEVICES
                        ? " with this StarPU (its --enable-maxcpus)"
                        : "";
    if (wanted < 0 || wanted > MAX_DEVICES)
        return weft_err_set(err, WEFT_EINVAL,
                            "cannot start %d devices: 1 to %d%s, or 0 for "
                            "one per core (%d here)",
                            wanted, MAX_DEVICES, why, cores);
    *out = wanted ? wanted : cores < MAX_DEVICES ? cores : MAX_DEVICES;
    return 0;
}

/* ---- Start ------------------------------------------------------------ */

static int workers_create(struct weft_rt *rt, struct weft_err *err)
{
    int n_workers = rt->n_devices + WEFT_CARD_COPIERS * rt->n_cards;
    size_t n = (size_t) n_workers;
    rt->worker = weft_alloc(n, sizeof *rt->worker);
    if (!rt->worker)
        return weft_err_nomem(err, "devices", n * sizeof *rt->worker);
    rt->n_records = RECORDS / rt->n_devices;
    rt->n_workers = n_workers;
    for (int d = 0; d < n_workers; d++) {
        struct weft_worker *w = &rt->worker[d];
        int card = d < rt->n_devices
                     ? d
                     : (d - rt->n_devices) / WEFT_CARD_COPIERS;
        w->exec.rt = rt;
        w->exec.device = d < rt->n_devices ? rt->first_device + d : -1;
        w->exec.card = card < rt->n_cards ? &rt->card[card] : NULL;
        pthread_mutex_init(&w->mutex, NULL);
        if (!rt->profile)
            continue;
        w->record = weft_alloc((size_t) rt->n_records, sizeof *w->record);
        if (!w->record)
            return weft_err_nomem(err, "task records",
                                  (size_t) rt->n_records * sizeof *w->record);
    }
    return 0;
}

/* ---- GPUs ---------------------------------------------------------------- */

/* What kernels take of a card's memory is taken before cards_limit() asks. */
static int cards_load(const struct weft_rt *rt,
                      int (*load)(struct weft_err *err), struct weft_err *err)
{
    int rc = 0;
    weft_assert(load != NULL);
    for (int i = 0; i < rt->n_cards && !rc; i++) {
        weft_card_enter(rt->card[i].node);
        rc = load(err);
    }
    weft_card_enter(rt->card[0].node);
    return rc;
}

/* Kernels that wait for another GPU's would keep a thread whose launches others
 * may wait for. */
static bool meetings_block(const struct weft_rt *rt)
{
    if (rt->n_cards < 2 || !weft_environment_blocks())
        return false;
    if (weft_world_host()->rank == 0)
        weft_warn("the environment has CUDA_LAUNCH_BLOCKING: each launch "
                  "waits for its kernel, so tp groups of GPUs decode by "
                  "tasks of every layer, which takes longer; unset it");
    return true;
}

/* Device d is StarPU's worker d, and StarPU numbers those of CUDA first. From
 * here on the host's memory is such that GPUs can read it. */
static int cards_start(struct weft_rt *rt,
                       const struct weft_rt_options *options,
                       struct weft_err *err)
{
    int n = (int) starpu_cuda_worker_get_count();
    if (n != rt->n_cards)
        return weft_err_set(
            err, WEFT_EUNSUPPORTED, "cannot use %d GPUs: %s", rt->n_cards,
            n > 0 ? "there are fewer" : "StarPU finds none, or has no CUDA");
    weft_card_use(rt);
    rt->gpus_apart = !weft_card_join_all(rt) || meetings_block(rt);
    rt->pool->memory = &weft_memory_pinned;
    rt->pool->rt = rt;
    for (int i = 0; i < n; i++) {
        struct weft_card *card = &rt->card[i];
        weft_assert(starpu_worker_get_type(i) == STARPU_CUDA_WORKER);
        card->node = starpu_worker_get_memory_node((unsigned) i);
        card->pool = weft_pool_create(0, rt->places_per_rank);
        if (!card->pool)
            return weft_err_nomem(err, "a GPU's memory", sizeof *card->pool);
        card->pool->memory = &weft_memory_card;
        card->pool->node = card->node;
        card->pool->rt = rt;
    }
    int rc = cards_load(rt, options->load_kernels, err);
    return rc ? rc : weft_copiers_start(rt, err);
}

/* gpu: its number; part: " of each rank", or nothing. */
static int refuse_limit(int gpu, const struct weft_gpu_memory *memory,
                        size_t wanted, const char *part, struct weft_err *err)
{
    const double gib = 1 << 30;
    return weft_err_set(
        err, WEFT_ENOMEM,
        "GPU %d has %.2f GiB for tiles%s; the limit is %.2f GiB "
        "(runtime.gpu_memory_gib): of its %.2f GiB %.2f are free%s, and CUDA "
        "needs some",
        gpu, (double) memory->tiles_bytes / gib, part, (double) wanted / gib,
        (double) memory->total_bytes / gib, (double) memory->free_bytes / gib,
        weft_gpu_memory_is_taken(memory) ? ", as other processes hold memory "
                                           "there"
                                         : "");
}

/* Tiles may take of each GPU what is free, when all ranks here have started and
 * none has tiles, but for what is left to CUDA; and no more than was asked. */
static int cards_limit(struct weft_rt *rt,
                       const struct weft_rt_options *options,
                       struct weft_err *err)
{
    size_t wanted = options->gpu_memory_bytes;
    bool shared = options->ranks_per_gpu > 1;
    for (int i = 0; i < rt->n_cards; i++) {
        struct weft_card *card = &rt->card[i];
        struct weft_gpu_memory m = {0};
        weft_card_memory(card->node, &m.free_bytes, &m.total_bytes);
        card->free_bytes = m.free_bytes;
        card->total_bytes = m.total_bytes;
        m.tiles_bytes = weft_card_budget(
            m.free_bytes, m.total_bytes,
            shared ? (size_t) options->ranks_per_gpu : 1);
        if (wanted > m.tiles_bytes)
            return refuse_limit(rt->first_card + i, &m, wanted,
                                shared ? " of each rank" : "", err);
        card->pool->limit_bytes = wanted ? wanted : m.tiles_bytes;
    }
    return 0;
}

/* Gives back what StarPU has allocated, while it runs. */
static void pools_free(struct weft_rt *rt)
{
    for (int i = 0; i < rt->n_cards; i++) {
        weft_pool_free(rt->card[i].pool);
        rt->card[i].pool = NULL;
    }
    weft_pool_free(rt->pool);
    rt->pool = NULL;
}

/* ---- StarPU -------------------------------------------------------------- */

/* Each device has a core of its own, of those that this process may use, where
 * there are enough; where all ranks of the machine may use the same ones, each
 * has the first ones of its part, so that ranks lie on all sockets, as their
 * GPUs do. StarPU by itself takes the machine's first ones in every rank. */
static void choose_cores(const struct weft_rt *rt, int n_threads,
                         struct starpu_conf *conf)
{
    const struct weft_host *host = weft_world_host();
    int n = rt->n_devices, ranks = host->share < 1 ? host->n_ranks : 1;
    int first = host->rank * rt->n_cores / ranks;
    bool alike = host->share * ranks < 1 + 1e-6;
    if (!alike || n * ranks > rt->n_cores) {
        setenv("STARPU_WORKERS_NOBIND", "1", 1);
        return;
    }
    setenv("STARPU_WORKERS_GETBIND", "1", 1);
    if (ranks == 1)
        return;
    conf->use_explicit_workers_bindid = 1;
    for (int i = 0; i < STARPU_NMAXWORKERS; i++)
        conf->workers_bindid[i] = (unsigned) ((first + i % n)
                                              * (n_threads / rt->n_cores));
}

static void configure_devices(const struct weft_rt *rt,
                              const struct weft_topology *topology,
                              struct starpu_conf *conf)
{
    starpu_conf_init(conf);
    conf->precedence_over_environment_variables = 1;
    conf->ncpus = rt->n_devices - rt->n_cards;
    conf->reserve_ncpus = 0;
    choose_cores(rt, topology->n_threads, conf);
    conf->ncuda = rt->n_cards;
    conf->use_explicit_workers_cuda_gpuid = rt->n_cards > 0;
    for (int i = 0; i < rt->n_cards; i++)
        conf->workers_cuda_gpuid[i] = (unsigned) (rt->first_card + i);
    conf->nopencl = 0;
    conf->catch_signals = 0;
    conf->will_use_mpi = rt->n_ranks > 1;
}

static void configure_policy(const struct weft_rt *rt,
                             const struct weft_topology *topology, bool nap,
                             struct starpu_conf *conf)
{
    bool more = rt->n_devices > topology->n_usable;
    if (rt->policy) {
        int spin_us = more            ? 0
                    : nap             ? WEFT_SPIN_US
                    : rt->n_cards > 0 ? INT_MAX /* as with any StarPU */
                                      : WEFT_SPIN_ALONE_US;
        rt->policy->configure(rt->n_devices, spin_us);
        conf->sched_policy = rt->policy->starpu;
    } else {
        conf->sched_policy = nap ? weft_nap_policy("prio") : NULL;
        conf->sched_policy_name = conf->sched_policy ? NULL : "prio";
    }
}

static int starpu_start(struct weft_rt *rt,
                        const struct weft_rt_options *options,
                        const struct weft_topology *topology,
                        struct weft_err *err)
{
    struct starpu_conf conf;
    bool crowded = rt->n_devices >= topology->n_usable;
    bool nap = options->nap < 0 ? crowded : options->nap > 0;
    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_MPI_NOBIND", "1", 0);
    weft_environment_set_home();
    weft_fxt_off();
    int rc = rt->fxt_dir ? weft_fxt_begin(err) : 0;
    if (rc)
        return rc;
    rt->fxt_began = rt->fxt_dir != NULL;
    configure_devices(rt, topology, &conf);
    configure_policy(rt, topology, nap, &conf);
    int n_seen = weft_card_count();
    int lock = n_seen > 0 ? weft_environment_lock_home(n_seen) : -1;
    if (nap) /* StarPU starts the devices' threads */
        weft_wake(WEFT_WAKE_LAST);
    rc = starpu_init(&conf);
    if (nap) /* this one inserts, and starts that of messages */
        weft_wake(WEFT_WAKE_FIRST);
    if (lock >= 0)
        close(lock);
    if (rc)
        return weft_err_set(err, WEFT_EINTERNAL, "StarPU does not start: %s",
                            strerror(-rc));
    rt->starpu_on = true;
    int n = (int) starpu_cpu_worker_get_count(),
        n_cpus = rt->n_devices - rt->n_cards;
    if (n != n_cpus)
        return weft_err_set(err, WEFT_EINTERNAL,
                            "StarPU started %d devices instead of %d", n,
                            n_cpus);
    rt->nap = nap;
    weft_interface_start();
    if (rt->n_cards > 0)
        rc = cards_start(rt, options, err);
    if (!rc && rt->direct)
        rc = weft_direct_start(rt, err);
    if (rc)
        return rc;
    rt->min_priority = starpu_sched_get_min_priority();
    rt->max_priority = starpu_sched_get_max_priority();
    return 0;
}

static void starpu_stop(struct weft_rt *rt)
{
    weft_watchdog_stop(rt);
    if (rt->nap)
        weft_wake(WEFT_WAKE_IN_TURN);
    if (rt->starpu_on) {
        weft_direct_stop(rt);
        weft_copiers_stop(rt);
        for (int d = 0; d < rt->n_cards; d++)
            weft_card_clear(&rt->worker[d]);
        weft_stage_free(rt);
        pools_free(rt);
        starpu_shutdown();
    }
    rt->starpu_on = false;
}

static void rt_free(struct weft_rt *rt)
{
    if (!rt)
        return;
    starpu_stop(rt);
    if (rt->fxt_began)
        weft_fxt_clear();
    for (int d = 0; d < rt->n_workers; d++) {
        weft_exec_clear(&rt->worker[d].exec);
        pthread_mutex_destroy(&rt->worker[d].mutex);
        weft_free(rt->worker[d].record);
        weft_free(rt->worker[d].late);
    }
    weft_free(rt->worker);
    weft_pool_free(rt->pool);
    weft_free(rt->card);
    pthread_mutex_destroy(&rt->mutex);
    weft_transfer_free(rt);
    weft_ran_free(rt);
    weft_moves_free(rt);
    weft_blocks_free(rt);
    weft_free(rt->mark);
    weft_free(rt->fxt_dir);
    weft_free(rt);
}

/* Whether there are messages from one GPU's memory to another's. */
static bool has_direct(const struct weft_rt_options *options)
{
    return options->direct_messages && options->n_gpus > 0
        && weft_world_size() > 1;
}

/* ---- A runtime that runs, and one that records --------------------------- */

/* Finds out which cores this rank has to itself and how many devices it
 * runs. */
static int prepare(const struct weft_rt_options *options,
                   struct weft_topology *topology, int *n_devices_out,
                   int *n_cores_out, struct weft_err *err)
{
    int rc = check_joined(err);
    if (!rc)
        rc = weft_environment_check(err);
    if (!rc)
        rc = weft_topology_read(topology, err);
    if (rc)
        return rc;
    const struct weft_host *host = weft_world_host();
    *n_cores_out = topology->n_cores;
    topology->n_usable = share_of(topology->n_usable, host->share);
    topology->n_cores = share_of(topology->n_cores, host->share);
    topology->free_bytes /= host->n_ranks;
    rc = choose_devices(options->n_devices, topology, n_devices_out, err);
    int n = options->n_gpus + *n_devices_out;
    if (!rc && (options->n_gpus < 0 || n > WEFT_MAX_DEVICES))
        rc = weft_err_set(
            err, WEFT_EINVAL,
            "cannot start %d GPUs beside %d other devices: 0 to "
            "%d",
            options->n_gpus, *n_devices_out,
            WEFT_MAX_DEVICES - *n_devices_out);
    if (!rc && weft_rt_has_cuda()
        && options->first_gpu + options->n_gpus > MAX_GPUS)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "cannot use %d GPUs, from GPU %d on: StarPU was "
                          "built for %d",
                          options->n_gpus, options->first_gpu, MAX_GPUS);
    return rc ? rc : weft_limits_check(n, err);
}

/* Says so where a launcher has bound this rank, the first of its machine, to
 * fewer cores than its GPUs want: their workers never sleep while tasks are
 * under way, and beside the devices' are threads that insert tasks, pass
 * messages and copy. */
static void tell_few_cores(const struct weft_rt_options *options, int n_cpus,
                           const struct weft_topology *topology, int n_cores)
{
    enum { OTHERS = 3 };
    int n = options->n_gpus, wanted = n + n_cpus + OTHERS;
    if (n == 0 || n_cores >= weft_min32(wanted, topology->n_all_cores)
        || weft_world_host()->rank > 0)
        return;
    weft_warn("a rank may use %d of %d cores, and with %d GPU%s and %d CPU "
              "device%s wants %d: its threads wait for one another; start it "
              "with mpirun's --bind-to none, or srun's --cpus-per-task=%d",
              n_cores, topology->n_all_cores, n, n > 1 ? "s" : "", n_cpus,
              n_cpus == 1 ? "" : "s", wanted, wanted);
}

static int check_same(const char *what, int n, struct weft_err *err)
{
    int first = n, rc = 0;
    weft_world_share(&first, sizeof first);
    if (first != n)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "cannot start %d %s: rank 0 has %d, and all "
                          "ranks must have the same number",
                          n, what, first);
    return weft_world_agree(rc, err);
}

static struct weft_rt *rt_create(const struct weft_rt_options *options,
                                 const struct weft_topology *topology,
                                 int n_cpus)
{
    int n_cards = options->n_gpus;
    struct weft_rt *rt = weft_alloc(1, sizeof *rt);
    if (!rt)
        return NULL;
    pthread_mutex_init(&rt->mutex, NULL);
    rt->n_cards = n_cards;
    rt->first_card = options->first_gpu;
    rt->n_devices = n_cards + n_cpus;
    rt->rank = weft_world_rank();
    rt->n_ranks = weft_world_size();
    rt->first_device = rt->rank * rt->n_devices;
    rt->places_per_rank = n_cards + (options->place_per_device ? n_cpus : 1);
    rt->direct = has_direct(options);
    if (n_cards > 0)
        rt->card = weft_alloc((size_t) n_cards, sizeof *rt->card);
    rt->first_place = rt->rank * rt->places_per_rank;
    rt->policy = options->policy;
    rt->profile = options->profile;
    rt->check_modes = options->check_modes;
    rt->last_transfer = &rt->transfer;
    rt->recording = options->recording;
    rt->task_span = options->task_span;
    rt->n_task_spans = options->n_task_spans;
    rt->start_s = weft_clock_s();
    size_t limit = options->memory_limit_bytes;
    if (!limit)
        limit = (size_t) weft_max64(topology->free_bytes, 1);
    rt->pool = weft_pool_create(limit, rt->places_per_rank);
    rt->fxt_dir = options->fxt_dir ? weft_strdup(options->fxt_dir) : NULL;
    if (rt->pool && !rt->fxt_dir == !options->fxt_dir
        && !rt->card == (n_cards == 0))
        return rt;
    rt_free(rt);
    return NULL;
}

/* All steps of one rank's start that may fail. */
static int start_here(struct weft_rt *rt,
                      const struct weft_rt_options *options,
                      const struct weft_topology *topology,
                      struct weft_err *err)
{
    int rc = workers_create(rt, err);
    if (!rc)
        rc = weft_transfer_create(rt, err);
    if (!rc)
        rc = weft_ran_create(rt, err);
    if (!rc && rt->profile)
        rc = weft_moves_create(rt, err);
    if (!rc)
        rc = starpu_start(rt, options, topology, err);
    if (!rc && (options->watchdog_s > 0 || rt->n_ranks > 1))
        rc = weft_watchdog_start(rt, options->watchdog_s, err);
    return rc;
}

int weft_rt_record(const struct weft_record_options *options,
                   struct weft_rt **out, struct weft_err *err)
{
    if (options->n_gpus > 0 && options->n_gpus >= options->n_devices)
        return weft_err_set(err, WEFT_EINVAL,
                            "cannot record %d GPUs among %d devices of a "
                            "rank: it needs a CPU device, too",
                            options->n_gpus, options->n_devices);
    struct weft_rt *rt = weft_alloc(1, sizeof *rt);
    if (!rt)
        return weft_err_nomem(err, "a recorder", sizeof *rt);
    pthread_mutex_init(&rt->mutex, NULL);
    rt->is_dry = true;
    rt->recording = options->recording;
    rt->all_ranks = options->rank < 0;
    rt->open_ends = options->open_ends;
    rt->gangs = options->gangs;
    rt->joined_steps = options->gangs ? options->joined_steps : 0;
    rt->repeats = 1;
    rt->calls = options->calls;
    rt->rank = rt->all_ranks ? 0 : options->rank;
    rt->n_ranks = options->n_ranks;
    rt->n_devices = options->n_devices;
    rt->n_cards = options->n_gpus;
    rt->gpus_apart = options->gpus_apart;
    rt->direct = options->direct_messages;
    rt->first_device = rt->rank * rt->n_devices;
    rt->places_per_rank = options->place_per_device ? rt->n_devices
                                                    : rt->n_cards + 1;
    if (options->recording) {
        options->recording->n_gpus = rt->n_cards;
        options->recording->places_per_rank = rt->places_per_rank;
        options->recording->left_out = options->gangs ? options->left_out
                                                      : NULL;
    }
    rt->first_place = rt->rank * rt->places_per_rank;
    rt->last_transfer = &rt->transfer;
    *out = rt;
    return 0;
}

bool weft_rt_is_dry(const struct weft_rt *rt)
{
    return rt->is_dry;
}

/* ---- Start and stop ------------------------------------------------------ */

int weft_rt_start(const struct weft_rt_options *options, struct weft_rt **out,
                  struct weft_err *err)
{
    struct weft_topology topology;
    struct weft_rt *rt = NULL;
    int n_devices = 0, n_cores = 0;
    if (atomic_exchange(&started, true))
        return weft_err_set(err, WEFT_ESTATE,
                            "a runtime is running in this process already");
    int rc = weft_world_agree(
        prepare(options, &topology, &n_devices, &n_cores, err), err);
    if (!rc)
        rc = check_same("devices", n_devices, err);
    if (!rc)
        rc = check_same("GPUs", options->n_gpus, err);
    if (!rc && has_direct(options))
        rc = weft_world_agree(weft_world_knows_gpus(err), err);
    if (rc)
        goto err_started;
    tell_few_cores(options, n_devices, &topology, n_cores);
    rt = rt_create(options, &topology, n_devices);
    if (rt) {
        rt->n_cores = n_cores;
        rc = start_here(rt, options, &topology, err);
    } else {
        rc = weft_err_nomem(err, "the runtime", sizeof *rt);
    }
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = weft_world_agree(cards_limit(rt, options, err), err);
    if (rc)
        goto err_created;
    weft_transfer_start(rt);
    /* all ranks leave together */
    rt->gpus_apart = weft_world_min(!rt->gpus_apart) == 0;
    rt->start_s = weft_clock_s();
    *out = rt;
    return 0;
err_created:
    rt_free(rt);
err_started:
    atomic_store(&started, false);
    return rc;
}

void weft_rt_stop(struct weft_rt *rt)
{
    struct weft_err err;
    if (!rt)
        return;
    if (rt->is_dry) {
        while (rt->seq)
            weft_seq_free(rt->seq);
        weft_tile_free_all(rt);
        rt_free(rt);
        return;
    }
    weft_external_abandon_all(rt);
    starpu_task_wait_for_all();
    while (rt->seq)
        weft_seq_free(rt->seq);
    weft_tile_free_all(rt);
    pthread_mutex_lock(&rt->mutex); /* the watchdog still looks at them */
    while (rt->codelet) {
        rt->codelet->known = false;
        rt->codelet = rt->codelet->next;
    }
    pthread_mutex_unlock(&rt->mutex);
    weft_transfer_stop(rt);
    starpu_stop(rt);
    if (rt->fxt_dir && weft_fxt_end(rt->fxt_dir, &err) && rt->rank == 0)
        weft_warn("%s", err.text);
    rt_free(rt);
    atomic_store(&started, false);
}
