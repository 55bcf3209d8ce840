/* SPDX-License-Identifier: Apache-2.0 */
/* Plans whose nodes have GPUs: two of them, and then three CPU devices. */
#include "calls.h"
#include "harness.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "plan/layout.h"

enum { GPUS = 2, CPUS = 3 };

static struct weft_shape shape = {.n_layers = 4, .n_blocks = 2};
static struct weft_dataflow flow;
static struct weft_plan_needs needs;
static struct weft_plan p;
static struct weft_err err;

static void fresh(void)
{
    flow = *calls_flow();
    needs = (struct weft_plan_needs){.flow = &flow,
                                     .n_nodes = 2,
                                     .n_devices = GPUS + CPUS,
                                     .n_gpus = GPUS,
                                     .gradient_groups = 8,
                                     .n_samples = 16,
                                     .n_prompts = 16};
    for (int r = 0; r < N_ROLES; r++)
        needs.shape[r] = &shape;
    weft_plan_default(&needs, &p);
}

static void set(int32_t call, struct weft_mesh mesh)
{
    p.call[call] = (struct weft_call_plan){
        .mesh = mesh, .dp = weft_mesh_size(&mesh), .tp = 1, .pp = 1};
}

static void refused(const char *part)
{
    CHECK_FAILS(weft_plan_check(&p, &needs, &err), WEFT_EINVAL, err, part);
}

/* What needs no search has GPUs alone. */
static void test_gpus_first(void)
{
    fresh();
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    for (int c = 1; c < flow.n_calls; c++) {
        if (!weft_flow_placed(&flow, c))
            continue;
        CHECK_INT(p.call[c].dp, 2 * GPUS);
        CHECK_INT(p.call[c].mesh.device, 0);
        CHECK_INT(p.call[c].mesh.n_devices, GPUS);
        CHECK(weft_plan_on_gpus(&p, c));
    }
    for (int d = 0; d < 2 * (GPUS + CPUS); d++)
        CHECK_INT(weft_plan_is_gpu(&p, d), d % (GPUS + CPUS) < GPUS);
    REQUIRE_OK(weft_plan_uniform("dp2tp2", &needs, &p, &err), err);
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    CHECK_INT(weft_plan_device(&p, &p.call[CALL_ACTOR_TRAIN], 1, 0, 1),
              GPUS + CPUS + 1);
    CHECK_FAILS(weft_plan_uniform("dp8", &needs, &p, &err), WEFT_EINVAL, err,
                "a power of two of a node's 2 GPUs, or whole nodes of the 2; "
                "the nearest below has 4");
}

/* Exactly these are meshes. */
static bool is_mesh(const struct weft_mesh *m)
{
    static const struct weft_mesh of_a_node[] = {
        {0, 1, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 2}, /* GPUs */
        {0, 1, 2, 1}, {0, 1, 3, 1}, {0, 1, 4, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}};
    static const struct weft_mesh of_both[] = {{0, 2, 0, 2}, {0, 2, 2, 3}};
    for (size_t i = 0; i < WEFT_COUNT(of_a_node); i++)
        if (m->n_nodes == 1 && (m->node == 0 || m->node == 1)
            && of_a_node[i].device == m->device
            && of_a_node[i].n_devices == m->n_devices)
            return true;
    return memcmp(m, &of_both[0], sizeof *m) == 0
        || memcmp(m, &of_both[1], sizeof *m) == 0;
}

static void test_meshes_are_of_one_kind(void)
{
    for (int32_t node = 0; node < 2; node++)
        for (int32_t nodes = 1; nodes <= 2; nodes++)
            for (int32_t device = 0; device < 6; device++)
                for (int32_t devices = 1; devices <= 6; devices++) {
                    struct weft_mesh m = {node, nodes, device, devices};
                    fresh();
                    set(CALL_REF_INFER, m);
                    CHECK_INT(weft_plan_check(&p, &needs, &err) == 0,
                              is_mesh(&m));
                }
    fresh();
    set(CALL_REF_INFER, (struct weft_mesh){0, 1, 0, 5});
    refused("ref_infer: devices 0 to 4 are GPUs up to 1 and CPU devices from "
            "there on, and round otherwise; take those of one kind");
    set(CALL_REF_INFER, (struct weft_mesh){0, 1, 3, 2});
    refused("begins at a multiple of it after the GPUs, like 2 to 3");
    set(CALL_REF_INFER, (struct weft_mesh){0, 2, 2, 2});
    refused("a mesh of 2 nodes has all 3 CPU devices of each, not 2");
    set(CALL_REF_INFER, (struct weft_mesh){0, 2, 0, 1});
    refused("a mesh of 2 nodes has all 2 GPUs of each, not 1");
}

/* Whose log-probs are compared to the bit. */
static void test_models_are_of_one_kind(void)
{
    const struct weft_mesh cpu = {0, 1, 2, 1};
    fresh();
    set(CALL_REF_INFER, cpu);
    set(CALL_REWARD_INFER, cpu);
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    set(CALL_ACTOR_GENERATE, cpu);
    refused("actor_train: actor_generate has CPU devices and this call has "
            "GPUs, which round otherwise; give both calls of the actor one "
            "kind, or set numerics.exact to false");
    needs.mixes = true;
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    fresh();
    set(CALL_CRITIC_INFER, cpu);
    refused("calls of the critic one kind");
}

/* Weights that move between the kinds, of a model and of one that follows it,
 * are whole tiles. */
static void test_moved_weights_are_whole(void)
{
    const struct weft_mesh cpus = {0, 1, 2, 1}, gpu = {0, 1, 0, 1};
    fresh();
    needs.mixes = true;
    set(CALL_ACTOR_TRAIN, cpus);
    p.call[CALL_ACTOR_TRAIN].zero = 2;
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    p.call[CALL_ACTOR_TRAIN].zero = 3;
    refused("actor_train: actor_generate has GPUs and this call has CPU "
            "devices, and zero 3 does not move weights between them; take "
            "zero 2");
    set(CALL_ACTOR_GENERATE, cpus);
    set(CALL_REF_INFER, gpu);
    p.call[CALL_ACTOR_TRAIN].zero = 3;
    REQUIRE_OK(weft_plan_check(&p, &needs, &err), err);
    flow.role[flow.call[CALL_REF_INFER].role].follows =
        flow.call[CALL_ACTOR_TRAIN].role;
    refused("ref_infer has GPUs and this call has CPU devices");
}

static void test_gpus_refused(void)
{
    fresh();
    needs.n_gpus = 1;
    refused("the plan is for nodes of 2 GPUs, but the run has 1");
}

static void test_gpus_in_files(void)
{
    char path[] = "/tmp/weft-plan-XXXXXX";
    struct weft_plan back;
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    fresh();
    REQUIRE_OK(weft_plan_write(&p, path, &err), err);
    REQUIRE_OK(weft_plan_read(path, &flow, &back, &err), err);
    CHECK_INT(back.n_gpus, GPUS);
    weft_plan_release(&back);
    char *text = weft_plan_explain(&p);
    REQUIRE(text != NULL);
    CHECK(strstr(text, "nodes 2, devices of each 5, of which the first 2 are "
                       "GPUs\n")
          == text);
    weft_free(text);
    static const char bad[] = "{\"format\": 1, \"nodes\": 1, \"devices\": 2, "
                              "\"gpus\": 3, \"calls\": {}}";
    REQUIRE_OK(weft_file_write(path, bad, strlen(bad), &err), err);
    CHECK_FAILS(weft_plan_read(path, &flow, &back, &err), WEFT_EINVAL, err,
                "'gpus'");
    unlink(path);
}

WEFT_TESTS("plan/layout_gpus", {"test_gpus_first", test_gpus_first},
           {"test_meshes_are_of_one_kind", test_meshes_are_of_one_kind},
           {"test_models_are_of_one_kind", test_models_are_of_one_kind},
           {"test_moved_weights_are_whole", test_moved_weights_are_whole},
           {"test_gpus_refused", test_gpus_refused},
           {"test_gpus_in_files", test_gpus_in_files})
