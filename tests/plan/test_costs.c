/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters' files, each fault of them, and costs against closed forms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "plan/costs.h"
#include "plan/costs_file.h"

/* Two kinds: device 3 of a node of the first has rail 1. */
static const char good[] = "name: two\n"
                           "kinds:\n"
                           "  - name: big\n"
                           "    nodes: 2\n"
                           "    devices: 4\n"
                           "    memory_gib: 80\n"
                           "    tflops: {f32: 10, bf16: 100}\n"
                           "    memory_gbs: 1000\n"
                           "    node_memory_gbs: 2000\n"
                           "    task_us: 10\n"
                           "    layer_us: 7\n"
                           "    row_bytes: 4\n"
                           "    by_rows: [[1, 0.1], [101, 0.6]]\n"
                           "    by_bytes: [[1000, 0.5], [3000, 1]]\n"
                           "    inside: {gbs: 200, us: 2}\n"
                           "    host: {gbs: 20, us: 5}\n"
                           "    network: {rails: 2, gbs: 25, us: 8}\n"
                           "  - name: small\n"
                           "    nodes: 1\n"
                           "    devices: 1\n"
                           "    memory_gib: 16\n"
                           "    tflops: {f32: 1}\n"
                           "    memory_gbs: 100\n"
                           "    task_us: 20\n"
                           "    network: {rails: 1, gbs: 1, us: 50}\n";

static struct weft_cluster cluster;
static struct weft_err err;

static void parse(const char *text)
{
    REQUIRE_OK(
        weft_cluster_parse(text, strlen(text), "c.yaml", &cluster, &err),
        err);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static void test_read(void)
{
    parse(good);
    CHECK_INT(cluster.n_kinds, 2);
    CHECK_INT(cluster.n_nodes, 3);
    CHECK_INT(weft_cluster_n_devices(&cluster), 9);
    CHECK_STR(weft_cluster_node(&cluster, 1)->name, "big");
    CHECK_STR(weft_cluster_node(&cluster, 2)->name, "small");
    const struct weft_node_kind *k = &cluster.kind[0];
    CHECK(near(k->flops[WEFT_BF16], 1e14));
    CHECK(near(k->memory_bytes, 80 * 1073741824.0));
    CHECK(near(k->inside.latency_s, 2e-6));
    CHECK(near(cluster.kind[1].node_bytes_per_s, 1e11));
    CHECK(cluster.kind[1].flops[WEFT_BF16] == 0);
    const double at[][2] = {
        {0, 0.1}, {1, 0.1}, {51, 0.35}, {101, 0.6}, {1e9, 0.6}};
    for (size_t i = 0; i < WEFT_COUNT(at); i++)
        CHECK(near(weft_size_table_at(&k->by_rows, at[i][0]), at[i][1]));
    CHECK(weft_size_table_at(&cluster.kind[1].by_rows, 5) == 1);
}

/* One line replaced, and what is then said. */
static void test_faults(void)
{
    static const struct {
        const char *from, *to, *part;
    } fault[] = {
        {"name: two\n", "", "c.yaml:1: 'name' is missing"},
        {"name: two", "name: ''", "'name' must have 1 to 47 letters"},
        {"name: two", "nme: two", "did you mean 'name'?"},
        {"    nodes: 2\n", "", "'nodes' is missing: a number from 1 to"},
        {"nodes: 2", "nodes: 0", "c.yaml:4: 'nodes' is 0; from 1 to"},
        {"nodes: 2", "nodes: many", "'nodes'"},
        {"devices: 4", "devices: 257", "'devices' is 257; from 1 to 256"},
        {"memory_gib: 80", "memory_gib: -1",
         "c.yaml:6: 'memory_gib' is -1, which cannot be; from 0.01 to"},
        {"memory_gib: 80", "memory_gb: 80", "did you mean 'memory_gib'?"},
        {"tflops: {f32: 10, bf16: 100}", "tflops: 10",
         "'tflops' must be a map"},
        {"{f32: 10, bf16: 100}", "{bf16: 100}", "'f32' is missing"},
        {"{f32: 10, bf16: 100}", "{f32: 1e9}", "'f32' is 1e+09"},
        {"    memory_gbs: 1000\n", "", "'memory_gbs' is missing"},
        {"node_memory_gbs: 2000", "node_memory_gbs: 4001",
         "'node_memory_gbs' of big is 4001; it lies between memory_gbs, "
         "1000, and that of all devices, 4000"},
        {"node_memory_gbs: 2000", "node_memory_gbs: 999", "lies between"},
        {"    task_us: 10\n", "", "'task_us' is missing"},
        {"row_bytes: 4", "row_bytes: -4", "'row_bytes' is -4"},
        {"[101, 0.6]", "[1, 0.6]", "the sizes of 'by_rows' must ascend"},
        {"[101, 0.6]", "[101, 1.6]", "'by_rows' is 1.6"},
        {"[101, 0.6]", "[101]", "'by_rows' must hold pairs"},
        {"by_rows: [[1, 0.1], [101, 0.6]]", "by_rows: []",
         "'by_rows' must be a list of 1 to 24 pairs"},
        {"inside: {gbs: 200, us: 2}", "inside: {gbs: 200}",
         "'us' is missing"},
        {"    inside: {gbs: 200, us: 2}\n", "",
         "'inside' of big is missing: what connects its 4 devices"},
        {"rails: 2, ", "", "'rails' is missing"},
        {"    network: {rails: 1, gbs: 1, us: 50}\n", "",
         "'network' of small is missing: what connects the 3 nodes"},
        {"name: small", "name: big", "two kinds are called 'big'"},
        {"name: small", "naem: small", "did you mean 'name'?"},
    };
    char text[2048];
    for (size_t i = 0; i < WEFT_COUNT(fault); i++) {
        const char *at = strstr(good, fault[i].from);
        REQUIRE(at != NULL);
        snprintf(text, sizeof text, "%.*s%s%s", (int) (at - good), good,
                 fault[i].to, at + strlen(fault[i].from));
        CHECK_FAILS(
            weft_cluster_parse(text, strlen(text), "c.yaml", &cluster, &err),
            WEFT_EINVAL, err, fault[i].part);
    }
    CHECK_FAILS(weft_cluster_parse("name: a\n", 8, "c.yaml", &cluster, &err),
                WEFT_EINVAL, err, "'kinds' is missing");
    CHECK_FAILS(weft_cluster_parse("[1]", 3, "c.yaml", &cluster, &err),
                WEFT_EINVAL, err, "a map with 'name' and 'kinds'");
    CHECK_FAILS(weft_cluster_parse("name: a\nkinds: 3\n", 17, "c.yaml",
                                   &cluster, &err),
                WEFT_EINVAL, err, "'kinds' must be a list");
    CHECK_FAILS(weft_cluster_read("/nowhere.yaml", &cluster, &err),
                WEFT_ENOTFOUND, err, "/nowhere.yaml");
}

/* Those that are installed. */
static void test_examples(void)
{
    static const struct {
        const char *name;
        int n_devices;
        double least_gib;
    } file[] = {{"cpu_2cores", 2, 12},      {"flexrlhf_a100", 128, 80},
                {"flexrlhf_mixed", 16, 32}, {"h200", 128, 131},
                {"real_h100", 128, 80},     {"rlhfuse_hopper", 256, 80}};
    const char *src = getenv("WEFT_SRCDIR");
    for (size_t i = 0; src && i < WEFT_COUNT(file); i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/examples/clusters/%s.yaml", src,
                 file[i].name);
        REQUIRE_OK(weft_cluster_read(path, &cluster, &err), err);
        CHECK_INT(weft_cluster_n_devices(&cluster), file[i].n_devices);
        CHECK(near(weft_cluster_device_bytes(&cluster),
                   file[i].least_gib * 0x1p30));
    }
}

/* ---- Costs ------------------------------------------------------------- */

static struct weft_recording r;

static int64_t task(enum weft_rec_kind kind, int32_t place,
                    const struct weft_work *work)
{
    const struct weft_where where = {.device = place};
    weft_recording_task(&r, kind, "op", &where, place);
    weft_recording_work(&r, work);
    return r.n_tasks - 1;
}

/* Two nodes of four devices, a place each. */
static struct weft_costs *costs_of_places(void)
{
    struct weft_costs *costs;
    const struct weft_costs_job job = {.cluster = &cluster,
                                       .n_ranks = 2,
                                       .n_devices = 4,
                                       .place_per_device = true};
    parse(good);
    REQUIRE_OK(weft_costs_create(&job, &costs, &err), err);
    return costs;
}

static void check_parts(const struct weft_costs *costs, int64_t task,
                        int32_t device, double compute_s, double memory_s,
                        double messages_s, double starts_s)
{
    double part[WEFT_N_COST_PARTS];
    weft_costs_parts(costs, &r, task, device, part);
    CHECK(near(part[WEFT_COST_COMPUTE], compute_s));
    CHECK(near(part[WEFT_COST_MEMORY], memory_s));
    CHECK(near(part[WEFT_COST_MESSAGES], messages_s));
    CHECK(near(part[WEFT_COST_STARTS], starts_s));
}

static void test_tasks(void)
{
    struct weft_costs *costs = costs_of_places();
    struct weft_shape shape = {.dtype = WEFT_BF16};
    weft_recording_init(&r);
    /* by operations: 1e12 / (100e12 * 0.35), with 51 rows */
    struct weft_work work = {.shape = &shape, .n_rows = 51, .flop = 1e12};
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 0),
               10e-6 + 1e12 / 35e12));
    shape.dtype = WEFT_F32;
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 0),
               10e-6 + 1e12 / 3.5e12));
    /* three steps of 17 rows each begin one after another */
    work.n_steps = 3;
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 7),
               30e-6 + 1e12 / (10e12 * 0.18)));
    work.n_layers = 2;
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 7),
               30e-6 + 6 * 7e-6 + 1e12 / (10e12 * 0.18)));
    /* two passes in each, over 17 rows of 8 numbers: 544 bytes of the memory
     * that 4 devices share */
    shape.hidden = 8;
    work.n_passes = 2;
    check_parts(costs, task(WEFT_REC_TASK, 0, &work), 7,
                1e12 / (10e12 * 0.18), 6 * 544 / (500e9 * 0.5), 0,
                30e-6 + 6 * 7e-6);
    work.flop = 0;
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 7),
               30e-6 + 6 * 7e-6 + 6 * 544 / (500e9 * 0.5)));
    /* by bytes: 4 devices share 2000 GB/s */
    work = (struct weft_work){.bytes = 2000};
    CHECK(near(weft_costs_task(costs, &r, task(WEFT_REC_TASK, 0, &work), 0),
               10e-6 + 2000 / (500e9 * 0.75)));
    check_parts(costs, r.n_tasks - 1, 0, 0, 2000 / (500e9 * 0.75), 0, 10e-6);
    /* an answer has no device */
    CHECK(weft_costs_task(costs, &r, task(WEFT_REC_ANSWER, -1, NULL), -1)
          == 0);
    weft_costs_free(costs);
    weft_recording_release(&r);
    const struct weft_costs_job wide = {
        .cluster = &cluster, .n_ranks = 4, .n_devices = 1};
    CHECK_FAILS(weft_costs_create(&wide, &costs, &err), WEFT_EINVAL, err,
                "the plan has 4 nodes, and cluster 'two' 3");
    const struct weft_costs_job deep = {
        .cluster = &cluster, .n_ranks = 3, .n_devices = 4};
    CHECK_FAILS(weft_costs_create(&deep, &costs, &err), WEFT_EINVAL, err,
                "node 2 of cluster 'two' has 1");
}

static int32_t tile(int32_t place, size_t bytes)
{
    return weft_recording_tile(
        &r,
        &(struct weft_rec_tile){.bytes = bytes, .place = place, .whole = -1});
}

static void test_paths(void)
{
    struct weft_costs *costs = costs_of_places();
    int32_t link[WEFT_COSTS_PATH], other[WEFT_COSTS_PATH], n;
    double latency, bytes;
    const double *rate = weft_costs_links(costs, &n);
    CHECK_INT(n, 2 * 2 * (2 + 4 + 4));
    CHECK_INT(weft_costs_path(costs, 3, 3, link, &latency), 0);
    CHECK(latency == 0);
    /* to another node by the devices' rails; back by other links */
    CHECK_INT(weft_costs_path(costs, 1, 7, link, &latency), 2);
    CHECK(near(rate[link[0]], 25e9) && near(rate[link[1]], 25e9));
    CHECK(link[0] != link[1] && near(latency, 8e-6));
    CHECK_INT(weft_costs_path(costs, 7, 1, other, &latency), 2);
    for (int i = 0; i < 2; i++)
        CHECK(other[i] != link[0] && other[i] != link[1]);
    /* devices 0 and 1 share a rail, 2 does not */
    CHECK_INT(weft_costs_path(costs, 0, 7, other, &latency), 2);
    CHECK(other[0] == link[0] && other[1] == link[1]);
    CHECK_INT(weft_costs_path(costs, 2, 7, other, &latency), 2);
    CHECK(other[0] != link[0] && other[1] == link[1]);
    /* inside */
    CHECK_INT(weft_costs_path(costs, 4, 6, link, &latency), 2);
    CHECK(near(rate[link[0]], 200e9) && near(latency, 2e-6));
    /* a message; a copy between places, which runs on a device */
    weft_recording_init(&r);
    int32_t from = tile(1, 1000000), to = tile(7, 1000000);
    int64_t message = task(WEFT_REC_MESSAGE, 7, NULL);
    weft_recording_access(&r, from, 0);
    weft_recording_access(&r, to, 1);
    weft_recording_work(&r, NULL);
    CHECK_INT(weft_costs_message(costs, &r, message, link, &latency, &bytes),
              2);
    CHECK(near(bytes, 1e6) && near(latency, 8e-6));
    /* three of them, one after another */
    weft_recording_repeat(&r, 3);
    CHECK_INT(weft_costs_message(costs, &r, message, link, &latency, &bytes),
              2);
    CHECK(near(bytes, 3e6) && near(latency, 24e-6));
    to = tile(2, 1000000);
    int64_t copy = task(WEFT_REC_TASK, 2, NULL);
    weft_recording_access(&r, from, 0);
    weft_recording_access(&r, to, 1);
    CHECK(near(weft_costs_task(costs, &r, copy, 2),
               10e-6 + 2e-6 + 1e6 / 200e9));
    /* one beside the devices, on the links that messages have */
    copy = task(WEFT_REC_COPY, 2, NULL);
    weft_recording_access(&r, from, 0);
    weft_recording_access(&r, to, 1);
    weft_recording_work(&r, NULL);
    CHECK_INT(weft_costs_message(costs, &r, copy, link, &latency, &bytes), 2);
    CHECK(near(bytes, 1e6) && near(latency, 2e-6));
    CHECK(weft_costs_task(costs, &r, copy, 2) == 0);
    weft_recording_release(&r);
    weft_costs_free(costs);
}

/* Places of two GPUs, and of the host behind them. */
static void test_host(void)
{
    struct weft_costs *costs;
    int32_t link[WEFT_COSTS_PATH], back[WEFT_COSTS_PATH], n;
    double latency;
    parse(good);
    REQUIRE_OK(weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                          .n_ranks = 2,
                                                          .n_devices = 4,
                                                          .n_gpus = 2},
                                 &costs, &err),
               err);
    const double *rate = weft_costs_links(costs, &n);
    CHECK_INT(weft_costs_path(costs, 4, 5, link, &latency), 1);
    CHECK(near(rate[link[0]], 20e9) && near(latency, 5e-6));
    CHECK_INT(weft_costs_path(costs, 5, 4, back, &latency), 1);
    CHECK(near(rate[back[0]], 20e9) && back[0] != link[0]);
    /* what lies in host memory at a GPU's place takes the same way */
    weft_recording_init(&r);
    int32_t from = tile(4, 1000000), to = tile(4, 1000000), at[4];
    r.tile[from].mem = WEFT_MEM_HOST;
    double bytes;
    int64_t copy = task(WEFT_REC_COPY, 4, NULL);
    weft_recording_access(&r, from, 0);
    weft_recording_access(&r, to, 1);
    weft_recording_work(&r, NULL);
    CHECK_INT(weft_costs_message(costs, &r, copy, at, &latency, &bytes), 1);
    CHECK(near(bytes, 1e6) && at[0] == back[0]);
    /* and a task that reads it there is no copy */
    int64_t reads = task(WEFT_REC_TASK, 4, NULL);
    weft_recording_access(&r, from, 0);
    weft_recording_access(&r, to, 1);
    weft_recording_work(&r, NULL);
    CHECK(weft_costs_task(costs, &r, reads, 4) < 1e6 / 20e9);
    weft_recording_release(&r);
    weft_costs_free(costs);
    /* a message of a GPU passes host memory, and the GPU's own rail: the first
     * two of four share one, the others the second */
    REQUIRE_OK(weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                          .n_ranks = 2,
                                                          .n_devices = 5,
                                                          .n_gpus = 4},
                                 &costs, &err),
               err);
    for (int32_t gpu = 0; gpu < 4; gpu++) {
        weft_recording_init(&r);
        from = tile(gpu, 1000000);
        to = tile(5 + gpu, 1000000);
        r.tile[from].mem = r.tile[to].mem = WEFT_MEM_HOST;
        int64_t message = task(WEFT_REC_MESSAGE, 5 + gpu, NULL);
        weft_recording_access(&r, from, 0);
        weft_recording_access(&r, to, 1);
        weft_recording_work(&r, NULL);
        CHECK_INT(
            weft_costs_message(costs, &r, message, at, &latency, &bytes), 2);
        CHECK_INT(weft_costs_path(costs, gpu, 5 + gpu, link, &latency), 2);
        CHECK(at[0] == link[0] && at[1] == link[1]);
        CHECK((at[0] == back[0]) == (gpu % 2 == 1));
        memcpy(back, at, sizeof back);
        weft_recording_release(&r);
    }
    weft_costs_free(costs);
}

/* CPU devices beside GPUs are no devices of the cluster, even where each has a
 * place: 2 ranks of 2 GPUs and 3 CPU devices are a node of 4. Places 0, 1 are
 * the first rank's GPUs, 5, 6 the second's. */
static void test_cpus_beside_gpus(void)
{
    struct weft_costs_job job = {.cluster = &cluster,
                                 .n_ranks = 2,
                                 .n_devices = 5,
                                 .n_gpus = 2,
                                 .ranks_per_node = 2,
                                 .place_per_device = true};
    struct weft_costs *costs;
    int32_t link[WEFT_COSTS_PATH], n;
    double latency;
    parse(good);
    REQUIRE_OK(weft_costs_create(&job, &costs, &err), err);
    const double *rate = weft_costs_links(costs, &n);
    CHECK_INT(weft_costs_path(costs, 1, 5, link, &latency), 2);
    CHECK(near(rate[link[0]], 200e9) && near(latency, 2e-6));
    CHECK_INT(weft_costs_path(costs, 6, 8, link, &latency), 1);
    CHECK(near(rate[link[0]], 20e9) && near(latency, 5e-6));
    weft_costs_free(costs);
    job.n_gpus = 3;
    CHECK_INT(weft_costs_create(&job, &costs, &err), WEFT_EINVAL);
    CHECK(strstr(err.text, "the plan has 6 devices on each node") != NULL);
}

/* An instruction of one task of each of three members, which receives 3 parts
 * of 1000 bytes from each of the two others: in turn twice, the two at the same
 * time. What comes from the own rank are three tasks more, copies; what comes
 * from another are messages. */
static void test_gang(void)
{
    const struct weft_work work = {.bytes = 1000, .is_all = true};
    struct weft_costs *costs = costs_of_places();
    weft_recording_init(&r);
    for (int32_t k = 0; k < 3; k++) {
        weft_recording_gang(&r,
                            &(struct weft_rec_gang){.task = k,
                                                    .n_expanded = 7,
                                                    .received_bytes = 6000,
                                                    .n_received = 6});
        task(WEFT_REC_TASK, 2 + k, &work); /* the last on another node */
        r.task[k].member = (uint8_t) k;
        r.task[k].n_members = 3;
    }
    double once = 1000 / 250e9 + 3 * 8e-6 + 6000 / 25e9;
    CHECK(near(weft_costs_task(costs, &r, 0, 2), 4 * 10e-6 + once));
    CHECK(near(weft_costs_task(costs, &r, 2, 4), 10e-6 + once));
    check_parts(costs, 2, 4, 0, 1000 / 250e9, 3 * 8e-6 + 6000 / 25e9, 10e-6);
    CHECK(!weft_costs_inserts(costs));
    cluster.kind[0].insert_s = 1e-6;
    CHECK(weft_costs_inserts(costs));
    CHECK(near(weft_costs_insert(costs, &r, 0), 4e-6));
    CHECK(near(weft_costs_insert(costs, &r, 2), 1e-6));
    weft_recording_release(&r);
    weft_costs_free(costs);
}

/* Two members of a node that read one another's parts in their tasks, of 2
 * steps of 17 rows of 8 numbers in 3 layers: 12 sums. In one place they need no
 * link. As instructions that stand for a task each they take as long. */
static void test_gang_without_copies(void)
{
    const struct weft_shape shape = {.dtype = WEFT_F32, .hidden = 8};
    const struct weft_work work = {.shape = &shape,
                                   .n_steps = 2,
                                   .n_layers = 3,
                                   .n_rows = 34,
                                   .flop = 1e9,
                                   .received = 12 * 17 * 8 * 4,
                                   .n_received = 12};
    struct weft_costs *costs = costs_of_places();
    double alone = 20e-6 + 6 * 7e-6 + 1e9 / (10e12 * 0.18);
    double sums = 12 * (2e-6 + 17 * 8 * 4 / 200e9);
    for (int32_t at = 0; at < 3; at++) {
        weft_recording_init(&r);
        for (int32_t k = 0; k < 2; k++) {
            if (at == 2)
                weft_recording_gang(
                    &r, &(struct weft_rec_gang){.task = k,
                                                .n_expanded = 2,
                                                .received_bytes = 12 * 544,
                                                .n_received = 12});
            task(WEFT_REC_TASK, at > 0 ? 2 + k : 2, &work);
            if (at < 2)
                weft_recording_member(
                    &r, &(struct weft_rec_member_of){k, 2, 0, &work, 1});
            r.task[k].gang = k;
            r.task[k].member = (uint8_t) k;
            r.task[k].n_members = 2;
        }
        CHECK(near(weft_costs_task(costs, &r, 1, 3),
                   at > 0 ? alone + sums : alone));
        weft_recording_release(&r);
    }
    weft_costs_free(costs);
}

/* Where a machine was measured, a task begins, and is inserted, the later the
 * more tiles it uses. */
static void test_measured(void)
{
    struct weft_cost_point point = {.bytes = 100, .seconds = 5};
    char name[] = "op";
    struct weft_cost_op op = {
        .name = name, .shape = -1, .point = &point, .n = 1};
    const struct weft_costs_file file = {
        .task_s = 1,
        .task_tile_s = 0.25,
        .insert_s = 2,
        .insert_tile_s = 0.5,
        .message = {{0, 4, 3}, {40, 29, 7}, {100, 39, 13}},
        .n_messages = 3,
        .op = &op,
        .n_ops = 1};
    struct weft_costs *costs;
    parse(good);
    REQUIRE_OK(weft_costs_create(&(struct weft_costs_job){.cluster = &cluster,
                                                          .file = &file,
                                                          .n_ranks = 2,
                                                          .n_devices = 1},
                                 &costs, &err),
               err);
    weft_recording_init(&r);
    int64_t one = task(WEFT_REC_TASK, 0, NULL);
    weft_recording_access(&r, tile(0, 50), 0);
    weft_recording_access(&r, tile(0, 50), 1);
    weft_recording_work(&r, NULL);
    CHECK(near(weft_costs_task(costs, &r, one, 0), 1 + 2 * 0.25 + 5));
    check_parts(costs, one, 0, 0, 5, 0, 1 + 2 * 0.25); /* it has no FLOP */
    CHECK(near(weft_costs_insert(costs, &r, one), 2 + 2 * 0.5));
    CHECK(weft_costs_inserts(costs));
    /* a core handles a message; meanwhile its links carry no other */
    int64_t message = task(WEFT_REC_MESSAGE, 1, NULL);
    weft_recording_access(&r, tile(0, 50), 0);
    weft_recording_access(&r, tile(1, 50), 1);
    weft_recording_work(&r, NULL);
    int32_t link[WEFT_COSTS_PATH];
    double latency, bytes;
    CHECK_INT(weft_costs_message(costs, &r, message, link, &latency, &bytes),
              2);
    /* 30 2/3 s, of which 8 are a core's and 8 1/3 its way, at 6 bytes a second;
     * one without bytes waits for 1 s */
    CHECK(near(bytes, 50 + 3 * 25e9) && near(latency, 8e-6 + 13 + 1.0 / 3));
    CHECK(near(weft_costs_message_core(costs, &r, message), 7 + 10 * 0.1));
    CHECK(weft_costs_message_core(costs, &r, one) == 0);
    weft_recording_release(&r);
    weft_costs_free(costs);
}

WEFT_TESTS("plan/costs", {"test_read", test_read},
           {"test_faults", test_faults}, {"test_examples", test_examples},
           {"test_tasks", test_tasks}, {"test_paths", test_paths},
           {"test_host", test_host}, {"test_gang", test_gang},
           {"test_gang_without_copies", test_gang_without_copies},
           {"test_measured", test_measured},
           {"test_cpus_beside_gpus", test_cpus_beside_gpus})
