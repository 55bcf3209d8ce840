/* SPDX-License-Identifier: Apache-2.0 */
/* The policy on tasks that only note that they ran. */
#include "sched/sched.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "harness.h"
#include "rt/internal.h"

enum { MAX_TASKS = 4096 };

static struct {
    atomic_int n, n_noted; /* begun; written down */
    int id[MAX_TASKS];
    int device[MAX_TASKS];
} ran;
static atomic_int gate_open;

struct note_args {
    int id;
};

static int note_cpu(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct note_args *args = args_;
    (void) buf;
    (void) n_buf;
    int i = atomic_fetch_add(&ran.n, 1);
    if (i < MAX_TASKS) {
        ran.id[i] = args->id;
        ran.device[i] = x->device;
    }
    atomic_fetch_add(&ran.n_noted, 1);
    return 0;
}
WEFT_CODELET(note, 0x808080, note_cpu)

/* Keeps its device busy until the test opens the gate. */
static int block_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    while (!atomic_load(&gate_open))
        usleep(100);
    return 0;
}
WEFT_CODELET(block, 0xff0000, block_cpu)

static int fail_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_ENUMERIC, "a NaN");
}
WEFT_CODELET(fail, 0x000000, fail_cpu)

static struct weft_rt *rt;
static struct weft_seq *seq;

static void start(int n_devices, int nap)
{
    struct weft_err err;
    struct weft_rt_options options = {
        .n_devices = n_devices, .policy = &weft_sched_lanes, .nap = nap};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    atomic_store(&ran.n, 0);
    atomic_store(&ran.n_noted, 0);
    atomic_store(&gate_open, 0);
}

static void stop(void)
{
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

static void wait_ok(void)
{
    struct weft_err err;
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
}

static void note(int id, struct weft_where where)
{
    struct note_args args = {id};
    weft_insert(seq, &weft_cl_note, &args, sizeof args, NULL, 0, &where);
}

/* All devices are busy until gate_open. */
static void block_all(int n_devices)
{
    for (int d = 0; d < n_devices; d++)
        weft_insert(seq, &weft_cl_block, NULL, 0, NULL, 0,
                    &(struct weft_where){.device = d, .priority = 100});
}

static void test_positions_order(void)
{
    enum { N = 500 };
    int order[N];
    start(2, 1);
    uint32_t random = 12345;
    for (int i = 0; i < N; i++)
        order[i] = i;
    for (int i = N - 1; i > 0; i--) {
        random = random * 1664525u + 1013904223u;
        int j = (int) ((random >> 8) % (uint32_t) (i + 1));
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (int round = 0; round < 2; round++) { /* positions start anew */
        atomic_store(&ran.n, 0);
        atomic_store(&ran.n_noted, 0);
        for (int i = 0; i < N; i++)
            for (int d = 0; d < 2; d++)
                note(order[i], (struct weft_where){.device = d,
                                                   .position = order[i] + 1});
        wait_ok();
        int next[2] = {0, 0};
        CHECK_INT(ran.n, 2 * N);
        int wrong = 0;
        for (int i = 0; i < 2 * N; i++)
            wrong += ran.id[i] != next[ran.device[i]]++;
        CHECK_INT(wrong, 0);
        CHECK_INT(next[0], N);
    }
    stop();
}

/* Waiting for a lot lets positions go on where they were. */
static void test_positions_lots(void)
{
    start(1, 1);
    for (int k = 1; k <= 6; k++) {
        note(k, (struct weft_where){.position = k});
        int64_t lot = weft_seq_lot(seq);
        weft_seq_wait_lot(seq, lot - 1);
        CHECK_INT(ran.n, k);
    }
    wait_ok();
    note(7, (struct weft_where){.position = 1});
    wait_ok();
    for (int k = 1; k <= 7; k++)
        CHECK_INT(ran.id[k - 1], k);
    stop();
}

static void test_positions_chains(void)
{
    start(1, 1);
    /* Chain 1 begins though chain 0's first task comes last. */
    note(12, (struct weft_where){.position = 2, .chain = 1});
    note(11, (struct weft_where){.position = 1, .chain = 1});
    note(2, (struct weft_where){.position = 2});
    /* a limit of minutes, for what would hang */
    for (int i = 0; i < 600000 && atomic_load(&ran.n_noted) < 2; i++)
        usleep(1000);
    CHECK_INT(ran.n, 2);
    CHECK_INT(ran.id[0], 11);
    CHECK_INT(ran.id[1], 12);
    note(1, (struct weft_where){.position = 1});
    wait_ok();
    CHECK_INT(ran.id[2], 1);
    CHECK_INT(ran.id[3], 2);
    stop();
}

static void test_priorities(void)
{
    enum { N = 60 };
    start(1, 1);
    block_all(1);
    for (int i = 0; i < N; i++) /* priorities 0, 1, 2, 0, ... */
        note(i, (struct weft_where){.priority = i % 3});
    note(-1, (struct weft_where){.priority = 2, .position = 1});
    atomic_store(&gate_open, 1);
    wait_ok();
    CHECK_INT(ran.n, N + 1);
    CHECK_INT(ran.id[0], -1); /* a position goes before its equals */
    for (int p = 2, at = 1; p >= 0; p--)
        for (int i = p; i < N; i += 3, at++)
            CHECK_INT(ran.id[at], i);
    stop();
}

static void test_pinning(void)
{
    enum { N = 400, D = 4 };
    start(D, 1);
    for (int i = 0; i < N; i++)
        note(i, (struct weft_where){.device = i % D});
    wait_ok();
    CHECK_INT(ran.n, N);
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += ran.device[i] != ran.id[i] % D;
    CHECK_INT(wrong, 0);
    stop();
}

/* Waits until as many of its kind as its argument says have begun. */
static int meet_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) buf;
    (void) n_buf;
    (void) x;
    int i = atomic_fetch_add(&ran.n, 1), n = *(const int *) args;
    ran.device[i % MAX_TASKS] = x->device;
    while (atomic_load(&ran.n) < (i / n + 1) * n)
        usleep(100);
    return 0;
}
WEFT_CODELET(meet, 0x00ff00, meet_cpu)

/* Tasks for any device: none is idle while another has work, or they would
 * never all meet. */
static void test_any_device(void)
{
    enum { ROUNDS = 10, D = 8 };
    start(D, -1); /* more devices than cores here and on most machines */
    CHECK_INT(weft_rt_n_devices(rt), D);
    for (int i = 0; i < ROUNDS * D; i++) {
        int n = D;
        weft_insert(seq, &weft_cl_meet, &n, sizeof n, NULL, 0,
                    &(struct weft_where){.device = -1});
    }
    wait_ok();
    int wrong = 0;
    for (int i = 0; i < ROUNDS * D; i++)
        for (int k = i / D * D; k < i; k++)
            wrong += ran.device[i] == ran.device[k];
    CHECK_INT(ran.n, ROUNDS * D);
    CHECK_INT(wrong, 0);
    stop();
}

static void test_any_yields_to_priority(void)
{
    start(1, 1);
    block_all(1);
    note(1, (struct weft_where){.device = -1, .priority = 1});
    note(2, (struct weft_where){.device = 0, .priority = 2});
    note(3, (struct weft_where){.device = -1, .priority = 3});
    atomic_store(&gate_open, 1);
    wait_ok();
    CHECK_INT(ran.id[0], 3);
    CHECK_INT(ran.id[1], 2);
    CHECK_INT(ran.id[2], 1);
    stop();
}

/* After an error a position that is never inserted blocks nobody. */
static void test_error_opens_gates(void)
{
    struct weft_err err;
    start(2, 1);
    note(5, (struct weft_where){.position = 5});
    weft_insert(seq, &weft_cl_fail, NULL, 0, NULL, 0,
                &(struct weft_where){.device = 1});
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_ENUMERIC, err, "a NaN");
    CHECK_INT(ran.n, 0);
    /* The sequence starts anew: order holds again. */
    note(2, (struct weft_where){.position = 2});
    note(1, (struct weft_where){.position = 1});
    wait_ok();
    CHECK_INT(ran.n, 2);
    CHECK_INT(ran.id[0], 1);
    stop();
}

struct use {
    double cpu_s;  /* of the process */
    long n_sleeps; /* of its other threads: switches that they asked for */
};

static struct use use_now(void)
{
    struct rusage all, own;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &own);
    return (struct use){
        (double) (all.ru_utime.tv_sec + all.ru_stime.tv_sec)
            + (double) (all.ru_utime.tv_usec + all.ru_stime.tv_usec) * 1e-6,
        all.ru_nvcsw - own.ru_nvcsw};
}

/* Between two naps, each of which grows to 10 ms, an idle device looks for work
 * and takes microseconds: counted in naps, as on a busy machine a device that
 * spins gets little time as well. */
static void check_naps(int n_devices, int nap)
{
    enum { SHORT = 20 };
    const double nap_s = 0.01, look_s = 0.001;
    const int n = 50 * n_devices;
    start(n_devices, nap);
    struct use first = use_now(), used = {0, 0};
    double begin = weft_clock_s();
    while (used.n_sleeps < n && used.cpu_s < n * look_s) {
        usleep(1000);
        struct use now = use_now();
        used.cpu_s = now.cpu_s - first.cpu_s;
        used.n_sleeps = now.n_sleeps - first.n_sleeps;
    }
    double took = weft_clock_s() - begin;
    printf(
        "\n    %d idle devices: %ld naps, %.1f us each, %.1f %% of a core ",
        n_devices, used.n_sleeps, used.cpu_s / (double) used.n_sleeps * 1e6,
        used.cpu_s / took * 100);
    CHECK(used.n_sleeps >= n);
    /* no more than so many fit into the time */
    CHECK((double) used.n_sleeps <= n_devices * (took / nap_s + SHORT));
    stop();
}

static void test_nap_uses_little(void)
{
    check_naps(8, 1);
}

/* A device that has a core for itself sleeps, too, when it has spun for long. */
static void test_alone_sleeps(void)
{
    check_naps(1, 0);
}

static void test_throughput(void)
{
    enum { N = 100000 };
    start(2, 1);
    double begin = weft_clock_s();
    for (int i = 0; i < N; i++)
        note(i, (struct weft_where){.device = i % 2});
    double inserted = weft_clock_s() - begin;
    wait_ok();
    double took = weft_clock_s() - begin;
    CHECK_INT(ran.n, N);
    printf("\n    %d tasks: %.2f us each to insert, %.2f us in all ", N,
           inserted / N * 1e6, took / N * 1e6);
    stop();
}

/* ---- Gangs -------------------------------------------------------------- */

struct gang {
    atomic_int n_here, n_in, n_wrong, n_cut, n_ended;
    int n, rounds;
    int fails_at; /* the round in which the last member fails; -1: never */
};

/* Meets the others, and looks whether all have come each time. */
static int gang_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    struct gang *g = *(struct gang *const *) args;
    int member = weft_exec_member(x), rc = 0;
    bool whole = true;
    (void) buf;
    (void) n_buf;
    atomic_fetch_add(&g->n_in, 1);
    weft_exec_shared(x)[member] = g;
    for (int r = 0; r < g->rounds && whole && !rc; r++) {
        if (r == g->fails_at && member == g->n - 1) {
            rc = weft_err_set(weft_exec_err(x), WEFT_ENUMERIC, "a NaN");
            break;
        }
        if (member == r % g->n)
            usleep(50);
        atomic_fetch_add(&g->n_here, 1);
        whole = weft_exec_meet(x);
        /* the others may be a round ahead, but for this member */
        int n = atomic_load(&g->n_here) - g->n * (r + 1);
        if (whole && (n < 0 || n >= g->n))
            atomic_fetch_add(&g->n_wrong, 1);
        for (int k = 0; whole && k < g->n; k++)
            if (weft_exec_shared(x)[k] != g)
                atomic_fetch_add(&g->n_wrong, 1);
    }
    atomic_fetch_add(&g->n_cut, !whole);
    atomic_fetch_add(&g->n_ended, 1);
    return rc;
}
WEFT_CODELET(gang, 0x0000ff, gang_cpu)

static struct gang gang_of(int n, int rounds, int fails_at)
{
    return (struct gang){.n = n, .rounds = rounds, .fails_at = fails_at};
}

static void insert_gang(struct gang *g, const struct weft_where where[])
{
    weft_insert_gang(seq, g->n);
    for (int k = 0; k < g->n; k++)
        weft_insert(seq, &weft_cl_gang, &g, sizeof g, NULL, 0, &where[k]);
}

static void check_gang(const struct gang *g)
{
    CHECK_INT(g->n_ended, g->n);
    CHECK_INT(g->n_here, g->n * g->rounds);
    CHECK_INT(g->n_wrong, 0);
    CHECK_INT(g->n_cut, 0);
}

/* A member for each of more devices than there are cores, and notes between
 * the gangs. */
static void test_gangs_meet(void)
{
    enum { D = 8, N = 12 };
    struct gang g[N];
    struct weft_where where[D];
    start(D, 1);
    for (int d = 0; d < D; d++)
        where[d] = (struct weft_where){.device = d};
    for (int i = 0; i < N; i++) {
        g[i] = gang_of(i % 2 ? D : 3, 10, -1);
        insert_gang(&g[i], where + (i % 2 ? 0 : i % (D - 2)));
        for (int d = 0; d < D; d++)
            note(i, where[d]);
    }
    wait_ok();
    for (int i = 0; i < N; i++)
        check_gang(&g[i]);
    CHECK_INT(ran.n, N * D);
    stop();
}

/* Device 0 prefers the one gang, and device 1 the other. */
static void test_gangs_opposite(void)
{
    struct gang g[2] = {gang_of(2, 20, -1), gang_of(2, 20, -1)};
    const struct weft_where a[] = {{.device = 0, .priority = 2},
                                   {.device = 1, .priority = 1}};
    const struct weft_where b[] = {{.device = 0, .priority = 1},
                                   {.device = 1, .priority = 2}};
    for (int round = 0; round < 20; round++) {
        start(2, round % 2);
        g[0] = g[1] = gang_of(2, 20, -1);
        block_all(2);
        insert_gang(&g[0], a);
        insert_gang(&g[1], b);
        atomic_store(&gate_open, 1);
        wait_ok();
        check_gang(&g[0]);
        check_gang(&g[1]);
        stop();
    }
}

/* Gangs of any devices, whose members have any priorities, beside tasks that
 * sleep. */
static void test_gangs_random(void)
{
    enum { D = 6, N = 150 };
    static struct gang g[N];
    uint32_t random = 4711;
    start(D, 1);
    for (int i = 0; i < N; i++) {
        struct weft_where where[D];
        int device[D] = {0, 1, 2, 3, 4, 5};
        for (int k = D - 1; k > 0; k--) {
            random = random * 1664525u + 1013904223u;
            int j = (int) ((random >> 8) % (uint32_t) (k + 1));
            int t = device[k];
            device[k] = device[j];
            device[j] = t;
        }
        for (int k = 0; k < D; k++)
            where[k] = (struct weft_where){
                .device = device[k],
                .priority = (int) (random >> (4 + 2 * k)) % 4};
        g[i] = gang_of(2 + (int) (random >> 20) % (D - 1), 3, -1);
        insert_gang(&g[i], where);
        note(i, (struct weft_where){.device = device[0], .priority = 3});
        note(i, (struct weft_where){.device = -1});
    }
    wait_ok();
    for (int i = 0; i < N; i++)
        check_gang(&g[i]);
    stop();
}

/* In the order of positions, which on every device is the gangs'. */
static void test_gangs_positions(void)
{
    enum { N = 20 };
    struct gang g[N];
    start(2, 1);
    for (int i = 0; i < N; i++) {
        const struct weft_where where[] = {
            {.device = 0, .position = 2 * i + 1},
            {.device = 1, .position = i + 1}};
        g[i] = gang_of(2, 3, -1);
        insert_gang(&g[i], where);
        note(i, (struct weft_where){.device = 0, .position = 2 * i + 2});
    }
    wait_ok();
    for (int i = 0; i < N; i++) {
        check_gang(&g[i]);
        CHECK_INT(ran.id[i], i);
    }
    stop();
}

/* Nobody waits for the member that fails, and later gangs do nothing; then the
 * sequence is as before. */
static void test_gangs_fail(void)
{
    enum { D = 4, N = 3 };
    struct weft_where where[D];
    struct weft_err err;
    struct gang g[N];
    start(D, 1);
    for (int d = 0; d < D; d++)
        where[d] = (struct weft_where){.device = d};
    for (int at = 0; at < 3; at++) {
        for (int i = 0; i < N; i++) {
            g[i] = gang_of(D, 5, i == 1 ? at : -1);
            insert_gang(&g[i], where);
        }
        CHECK_INT(weft_seq_wait(seq, &err), WEFT_ENUMERIC);
        CHECK(strstr(err.text, "a NaN") != NULL);
        check_gang(&g[0]);
        /* who has not begun when it fails at once does not begin */
        CHECK(at == 0 ? g[1].n_ended >= 1 : g[1].n_ended == D);
        CHECK_INT(g[1].n_cut, g[1].n_ended - 1);
        CHECK_INT(g[2].n_in, 0);
    }
    g[0] = gang_of(D, 5, -1);
    insert_gang(&g[0], where);
    wait_ok();
    check_gang(&g[0]);
    stop();
}

/* An error while a gang has members that wait for the last to be ready. */
static void test_gangs_fail_forming(void)
{
    struct weft_err err;
    struct gang g = gang_of(2, 3, -1), *p = &g;
    struct weft_tile *tile;
    struct weft_tile_id id = {"test", "tile", 0, -1, -1, 0};
    start(3, 1);
    REQUIRE_OK(weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, 64, &tile, &err),
               err);
    struct weft_access access = {tile, WEFT_READ_WRITE};
    weft_insert(seq, &weft_cl_block, NULL, 0, &access, 1,
                &(struct weft_where){.device = 2});
    weft_insert_gang(seq, 2);
    weft_insert(seq, &weft_cl_gang, &p, sizeof p, NULL, 0,
                &(struct weft_where){.device = 0});
    weft_insert(seq, &weft_cl_gang, &p, sizeof p, &access, 1,
                &(struct weft_where){.device = 1});
    weft_insert(seq, &weft_cl_fail, NULL, 0, NULL, 0,
                &(struct weft_where){.device = 1});
    while (weft_seq_status(seq, &err) == 0)
        usleep(100);
    atomic_store(&gate_open, 1);
    CHECK_INT(weft_seq_wait(seq, &err), WEFT_ENUMERIC);
    CHECK_INT(g.n_in, 0);
    weft_tile_release(tile);
    stop();
}

WEFT_TESTS("sched/lanes", {"test_positions_order", test_positions_order},
           {"test_positions_lots", test_positions_lots},
           {"test_positions_chains", test_positions_chains},
           {"test_priorities", test_priorities},
           {"test_pinning", test_pinning},
           {"test_any_device", test_any_device},
           {"test_any_yields_to_priority", test_any_yields_to_priority},
           {"test_error_opens_gates", test_error_opens_gates},
           {"test_nap_uses_little", test_nap_uses_little},
           {"test_alone_sleeps", test_alone_sleeps},
           {"test_gangs_meet", test_gangs_meet},
           {"test_gangs_opposite", test_gangs_opposite},
           {"test_gangs_random", test_gangs_random},
           {"test_gangs_positions", test_gangs_positions},
           {"test_gangs_fail", test_gangs_fail},
           {"test_gangs_fail_forming", test_gangs_fail_forming},
           {"test_throughput", test_throughput})
