/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "plan/layout.h"

static const struct weft_plan cluster = {.n_nodes = 4, .n_devices = 8};

/* All meshes of 4 nodes of 8. */
static int32_t all_meshes(struct weft_mesh out[128])
{
    int32_t n = 0;
    for (int32_t node = 0; node < 4; node++) {
        for (int32_t size = 1; size < 8; size *= 2)
            for (int32_t d = 0; d < 8; d += size)
                out[n++] = (struct weft_mesh){node, 1, d, size};
        for (int32_t k = 1; node + k <= 4; k++)
            out[n++] = (struct weft_mesh){node, k, 0, 8};
    }
    return n;
}

/* Its devices are those of its nodes and columns, each once. */
static void test_mesh_devices(void)
{
    struct weft_mesh mesh[128];
    int32_t n = all_meshes(mesh);
    for (int32_t i = 0; i < n; i++) {
        const struct weft_mesh *m = &mesh[i];
        int count[32] = {0};
        for (int32_t k = 0; k < weft_mesh_size(m); k++) {
            int32_t d = weft_mesh_device(&cluster, m, k);
            REQUIRE(d >= 0 && d < 32);
            count[d]++;
        }
        for (int32_t d = 0; d < 32; d++) {
            int32_t row = d / 8 - m->node, column = d % 8 - m->device;
            CHECK_INT(count[d], row >= 0 && row < m->n_nodes && column >= 0
                                    && column < m->n_devices);
        }
    }
}

static void test_mesh_device(void)
{
    const struct weft_mesh part = {2, 1, 4, 4}, whole = {1, 3, 0, 8};
    for (int32_t i = 0; i < 4; i++)
        CHECK_INT(weft_mesh_device(&cluster, &part, i), 2 * 8 + 4 + i);
    for (int32_t i = 0; i < 24; i++)
        CHECK_INT(weft_mesh_device(&cluster, &whole, i), 8 + i);
}

/* The best among all meshes from node 0 device 0. */
static void test_mesh_largest(void)
{
    for (int32_t nodes = 1; nodes <= 3; nodes++)
        for (int32_t devices = 1; devices <= 9; devices++)
            for (int32_t most = 1; most <= 30; most++) {
                int32_t best = 0;
                for (int32_t p = 1; p < devices; p *= 2)
                    if (p <= most)
                        best = p;
                for (int32_t k = 1; k <= nodes; k++)
                    if (k * devices <= most)
                        best = k * devices;
                struct weft_mesh m = weft_mesh_largest(nodes, devices, most);
                CHECK_INT(weft_mesh_size(&m), best);
                CHECK(m.node == 0 && m.device == 0);
                CHECK(m.n_nodes == 1 || m.n_devices == devices);
            }
}

static void test_mesh_has(void)
{
    const struct weft_plan plan = {.n_nodes = 4, .n_devices = 8};
    static const struct weft_mesh mesh[] = {
        {0, 1, 0, 1}, {3, 1, 7, 1}, {1, 1, 2, 2}, {1, 2, 0, 8}, {0, 4, 0, 8}};
    for (size_t k = 0; k < WEFT_COUNT(mesh); k++)
        for (int32_t d = 0; d < 32; d++) {
            bool has = false;
            for (int32_t i = 0; i < weft_mesh_size(&mesh[k]); i++)
                has = has || weft_mesh_device(&plan, &mesh[k], i) == d;
            CHECK(weft_mesh_has(&plan, &mesh[k], d) == has);
        }
}

/* Members are the mesh's devices, each once; a tp group is side by side. */
static void test_plan_device(void)
{
    const struct weft_call_plan call = {
        .mesh = {1, 3, 0, 8}, .dp = 3, .tp = 4, .pp = 2};
    bool seen[32] = {0};
    for (int32_t s = 0; s < 2; s++)
        for (int32_t i = 0; i < 3; i++)
            for (int32_t k = 0; k < 4; k++) {
                int32_t d = weft_plan_device(&cluster, &call, i, s, k);
                REQUIRE(d >= 8 && d < 32);
                CHECK(!seen[d]);
                seen[d] = true;
                CHECK_INT(d - weft_plan_device(&cluster, &call, i, s, 0), k);
            }
    CHECK_INT(weft_plan_device(&cluster, &call, 2, 1, 3), 8 + 23);
    CHECK_INT(weft_plan_device(&cluster, &call, 1, 0, 0), 8 + 4);
}

/* Thing by thing: g is of part g parts / n. */
static void test_plan_range(void)
{
    for (int32_t n = 0; n <= 40; n++)
        for (int32_t parts = 1; parts <= 12; parts++) {
            int32_t least = n, most = 0;
            for (int32_t i = 0; i < parts; i++) {
                struct weft_range r = weft_plan_range(n, parts, i);
                int32_t count = 0;
                for (int32_t g = 0; g < n; g++) {
                    bool mine = (int64_t) g * parts / n == i;
                    CHECK_INT(g >= r.first && g < r.first + r.n, mine);
                    count += mine;
                }
                CHECK_INT(r.n, count);
                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            CHECK(most - least <= 1);
        }
    struct weft_range big = weft_plan_range(INT32_MAX, 3, 2);
    CHECK_INT(big.first + (int64_t) big.n, INT32_MAX);
}

WEFT_TESTS("plan/mesh", {"test_mesh_devices", test_mesh_devices},
           {"test_mesh_device", test_mesh_device},
           {"test_mesh_largest", test_mesh_largest},
           {"test_mesh_has", test_mesh_has},
           {"test_plan_device", test_plan_device},
           {"test_plan_range", test_plan_range})
