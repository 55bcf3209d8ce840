/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix: each row is a plan that the built-in job can follow. */
#include <unistd.h>

#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "graphs/algorithms.h"
#include "verify/builtin.h"
#include "verify/job.h"

/* Every algorithm's rows, in both data types. */
static void test_verify_rows_fit(void)
{
    char dir[256];
    struct weft_err err;
    struct weft_verify_case c;
    struct weft_verify_job job = {
        .dir = dir, .iterations = 2, .mpiexec = "none", .n_gpus = 8};
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_verify_make(dir, &err), err);
    for (int k = 0; (c.algorithm = weft_algorithms[k]) != NULL; k++)
        for (int d = WEFT_F32; d <= WEFT_BF16; d++) {
            int n = 0, ranks = 1, n_gpu = 0;
            c.dtype = (enum weft_dtype) d;
            for (size_t i = 0; (c.row = weft_verify_row(i)) != NULL; i++) {
                if (!weft_verify_has(&c, k == 0))
                    continue;
                n++;
                n_gpu += weft_verify_gpus(c.row) > 0;
                ranks = c.row->ranks > ranks ? c.row->ranks : ranks;
                char *plan = NULL;
                REQUIRE_OK(weft_verify_check(&job, &c, &plan, &err), err);
                weft_free(plan);
            }
            CHECK(n - n_gpu >= 12 && ranks == 4 && n_gpu >= 5);
        }
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* The graph of the first algorithm, with a reward model. */
static void first_flow(struct weft_dataflow *out)
{
    const struct weft_config c = {.algorithm = weft_algorithms[0]};
    weft_algorithm_of(&c)->flow(
        &(struct weft_flow_needs){.reference = true, .n_rewards = 1}, out);
}

/* The number of the i-th device of a plan's kind: GPUs, if it has any. */
static int32_t number_of(const struct weft_plan *plan, int32_t i)
{
    int32_t n = plan->n_gpus > 0 ? plan->n_gpus : plan->n_devices;
    return i / n * plan->n_devices + i % n;
}

/* A mix names the same devices on 1 x 4, 2 x 2 and 4 x 1. */
static void test_verify_rows_mixes(void)
{
    static const int ranks[] = {1, 2, 4};
    const struct weft_verify_row *row;
    struct weft_plan plan[3];
    struct weft_dataflow flow;
    struct weft_err err;
    int seen = 0;
    first_flow(&flow);
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        if (!row->mix)
            continue;
        seen++;
        for (int k = 0; k < 3; k++) {
            struct weft_verify_row other = *row;
            other.ranks = ranks[k];
            other.devices = 4 / ranks[k];
            REQUIRE_OK(weft_verify_plan(&other, &flow, &plan[k], &err), err);
        }
        int n[WEFT_STEP] = {0};
        for (int c = 1; c < flow.n_calls; c++) {
            enum weft_call_kind kind = flow.call[c].kind;
            if (!weft_flow_placed(&flow, c))
                continue;
            const struct weft_verify_place *place =
                kind == WEFT_GENERATE ? &row->mix->generate[n[kind]++]
                : kind == WEFT_INFER  ? &row->mix->infer[n[kind]++]
                                      : &row->mix->train[n[kind]++];
            for (int k = 0; k < 3; k++) {
                const struct weft_call_plan *p = &plan[k].call[c];
                int32_t size = p->dp * p->tp * p->pp;
                CHECK_INT(weft_mesh_size(&p->mesh), size);
                for (int32_t d = 0; d < size; d++)
                    CHECK_INT(weft_mesh_device(&plan[k], &p->mesh, d),
                              number_of(&plan[k], place->first + d));
            }
        }
    }
    CHECK(seen >= 8);
}

static void test_verify_rows_names(void)
{
    const struct weft_verify_row *row, *other;
    char label[96];
    int quick[2] = {0, 0}, quick_gpu = 0;
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        bool on_gpus = weft_verify_gpus(row) > 0;
        quick_gpu += on_gpus && row->flags & 1;
        quick[0] += !on_gpus && row->flags & 1;
        quick[1] += !on_gpus && row->flags >> 1 & 1;
        CHECK(!(row->words && row->mix && strstr(row->words, "layout=")));
        for (size_t k = 0; k < i; k++) {
            other = weft_verify_row(k);
            CHECK(strcmp(row->name, other->name) != 0);
        }
    }
    CHECK(quick[0] >= 6 && quick[1] >= 4 && quick[0] + quick[1] <= 16);
    row = weft_verify_row(0);
    CHECK(row->ranks == 1 && row->devices == 1 && !row->words && !row->mix
          && (row->flags & 3) == 3);
    CHECK(quick_gpu >= 3 && quick_gpu <= 8);
    struct weft_verify_case c = {row, weft_algorithms[0], WEFT_BF16};
    CHECK_STR(weft_verify_label(&c, label), "ppo/bf16/reference");
    c.dtype = WEFT_F32;
    CHECK(weft_verify_matches(&c, NULL));
    CHECK(weft_verify_matches(&c, "ref*"));
    CHECK(weft_verify_matches(&c, "f32/ref*"));
    CHECK(weft_verify_matches(&c, "ppo/*"));
    CHECK(!weft_verify_matches(&c, "bf16/*"));
    CHECK(!weft_verify_matches(&c, "grpo/*"));
    CHECK(!weft_verify_matches(&c, "ref"));
}

/* Rows of CPU devices are compared with the first, those of GPUs with the first
 * of these, which is compared with the first. */
static void test_verify_rows_references(void)
{
    const struct weft_verify_row *row, *first_gpu = NULL;
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        int32_t n = weft_verify_gpus(row);
        CHECK_INT(n > 0, strncmp(row->name, "gpu", 3) == 0);
        if (n > 0 && !first_gpu) {
            first_gpu = row;
            CHECK(n == 1 && row->ranks == 1);
            CHECK(weft_verify_reference(row) == weft_verify_row(0));
        } else {
            CHECK(weft_verify_reference(row)
                  == (n > 0 ? first_gpu : weft_verify_row(0)));
        }
        CHECK_INT(weft_verify_is_reference(row), i == 0 || row == first_gpu);
        /* gpu4-...: of four GPUs; gpu-ranks2-...: two ranks on one */
        if (n > 0)
            CHECK_INT(n, row->name[3] == '-' || !row->name[3]
                             ? 1
                             : row->name[3] - '0');
    }
    CHECK(first_gpu != NULL);
}

WEFT_TESTS("verify/rows", {"test_verify_rows_fit", test_verify_rows_fit},
           {"test_verify_rows_mixes", test_verify_rows_mixes},
           {"test_verify_rows_names", test_verify_rows_names},
           {"test_verify_rows_references", test_verify_rows_references})
