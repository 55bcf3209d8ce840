/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options on a cluster of two kinds of node: what they take on each is what
 * they take on a cluster that has only these nodes. Ranks have two devices, and
 * the first two of three share the fast node.
 */
#include "find_fixture.h"

#define FAST(devices)                                                        \
    "  - {name: fast, nodes: 1, devices: " devices ", memory_gib: 4,\n"      \
    "     tflops: {f32: 0.2}, memory_gbs: 40, task_us: 1,\n"                 \
    "     inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 0}}\n"
#define SLOW                                                                 \
    "  - {name: slow, nodes: 1, devices: 2, memory_gib: 4,\n"                \
    "     tflops: {f32: 0.1}, memory_gbs: 20, task_us: 1,\n"                 \
    "     inside: {gbs: 5, us: 1}, network: {rails: 1, gbs: 0.2, us: 0}}\n"
#define CLUSTER(kinds) "name: some\nkinds:\n" kinds

static void open_kinds(const char *yaml, int32_t n_nodes, struct finding *f)
{
    static const char *const word[] = {SMALL, NULL};
    open_finding(f, fixture.config, 2, word);
    REQUIRE_OK(
        weft_cluster_parse(yaml, strlen(yaml), "some", &f->cluster, &err),
        err);
    REQUIRE_OK(
        weft_run_needs_read(&f->config, n_nodes, 2, 0, &f->needs, &err), err);
    f->needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &f->cluster);
    if (f->cluster.n_kinds > 1)
        f->needs.plan.cluster = &f->cluster;
}

/* Options of a call as one of another cluster, but for their first node.
 * Samples come from node 0, in next to no time. */
static int n_equal(const struct weft_search_call *call, int32_t node,
                   const struct weft_option *o)
{
    int n = 0;
    for (int32_t i = 0; i < call->n_options; i++) {
        const struct weft_option *a = &call->option[i];
        struct weft_call_plan plan = o->plan;
        plan.mesh.node = node;
        if (memcmp(&a->plan, &plan, sizeof plan) != 0)
            continue;
        CHECK(fabs(a->seconds - o->seconds) <= 0.01 * o->seconds);
        CHECK(fabs(a->share - o->share) <= 0.01);
        CHECK(a->held == o->held);
        n++;
    }
    return n;
}

/* The options of all nodes of another cluster are those of nodes from `node`
 * on. */
static void check_nodes(const struct weft_search_problem *all, int32_t node,
                        const char *yaml, int32_t n_nodes)
{
    struct finding f;
    struct weft_finding at;
    struct weft_search_problem p;
    int64_t n = 0;
    int equal = 0;
    open_kinds(yaml, n_nodes, &f);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err), err);
    REQUIRE_OK(weft_finding_place(&at, &p, &n, &err), err);
    for (int32_t c = 0; c < p.n_calls; c++) {
        for (int32_t i = 0; i < p.call[c].n_options; i++) {
            const struct weft_option *o = &p.call[c].option[i];
            if (o->plan.mesh.n_nodes < n_nodes)
                continue;
            equal += n_equal(&all->call[c], node, o);
        }
    }
    CHECK(equal > 0);
    weft_finding_close(&at);
    close_finding(&f);
}

/* How much longer devices of the slow node, the second kind, are at work than
 * those of the fast one. */
static double slower(const struct weft_option *o)
{
    double busy[2];
    for (int k = 0; k < 2; k++) {
        double share = o->share * (1 + (double) o->uneven[k]);
        busy[k] = 1 - (1 - share) / WEFT_FINDING_BUBBLES;
    }
    return busy[1] / busy[0];
}

/* Stages on both kinds have as many layers, for which the slow node takes twice
 * as long. */
static void check_uneven(const struct weft_search_problem *p)
{
    int n = 0;
    for (int32_t c = 0; c < p->n_calls; c++)
        for (int32_t i = 0; i < p->call[c].n_options; i++) {
            const struct weft_option *o = &p->call[c].option[i];
            const struct weft_mesh *m = &o->plan.mesh;
            if (m->n_nodes == 1 || m->node + m->n_nodes < 3) {
                CHECK(fabs(slower(o) - 1) < 1e-6);
            } else if (m->node == 1 && o->plan.pp == 2) {
                CHECK(fabs(slower(o) - 2) < 0.1);
                n++;
            }
        }
    CHECK(n > 5);
}

static void test_kinds(void)
{
    struct finding f;
    struct weft_finding at;
    struct weft_search_problem p;
    int64_t n = 0;
    open_kinds(CLUSTER(FAST("4") SLOW), 3, &f);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &at, &err), err);
    REQUIRE_OK(weft_finding_place(&at, &p, &n, &err), err);
    CHECK_INT(p.n_nodes, 3);
    check_uneven(&p);
    check_nodes(&p, 0, CLUSTER(FAST("2")), 1);
    check_nodes(&p, 1, CLUSTER(FAST("2")), 1);
    check_nodes(&p, 2, CLUSTER(SLOW), 1);
    check_nodes(&p, 0, CLUSTER(FAST("4")), 2);
    check_nodes(&p, 1, CLUSTER(FAST("2") SLOW), 2);
    weft_finding_close(&at);
    close_finding(&f);
}

/* Weights come to a node by its own links. */
static void test_moves(void)
{
    struct finding f;
    struct weft_finding at;
    struct weft_call_plan from = {.dp = 1, .tp = 1, .pp = 1}, to = from;
    from.mesh = (struct weft_mesh){0, 1, 0, 2};
    open_kinds(CLUSTER(FAST("4") SLOW), 3, &f);
    REQUIRE_OK(
        weft_finding_begin(&f.config, &f.needs.plan, &f.find, &at, &err),
        err);
    double bytes = weft_shape_changed_bytes(f.needs.plan.shape[0], 1);
    for (int32_t node = 1; node < 3; node++) {
        /* inside the fast node; by the slow one's rail, which two share */
        double expected = node == 1 ? 1e-6 + bytes / 10e9
                                    : bytes / (0.2e9 / 2);
        to.mesh = (struct weft_mesh){node, 1, 0, 2};
        double s = weft_moving_s(&at.moving, 0, &from, &to);
        CHECK(fabs(s - expected) <= 1e-9 * s);
    }
    weft_finding_close(&at);
    close_finding(&f);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/find_kinds", {"make", make_runs}, {"kinds", test_kinds},
           {"moves", test_moves}, {"remove", test_remove})
