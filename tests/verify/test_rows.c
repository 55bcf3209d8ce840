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
        .dir = dir, .iterations = 2, .mpiexec = "none"};
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_verify_make(dir, &err), err);
    for (int k = 0; (c.algorithm = weft_algorithms[k]) != NULL; k++)
        for (int d = WEFT_F32; d <= WEFT_BF16; d++) {
            int n = 0, ranks = 1;
            c.dtype = (enum weft_dtype) d;
            for (size_t i = 0; (c.row = weft_verify_row(i)) != NULL; i++) {
                if (!weft_verify_has(&c, k == 0))
                    continue;
                n++;
                ranks = c.row->ranks > ranks ? c.row->ranks : ranks;
                char *plan = NULL;
                REQUIRE_OK(weft_verify_check(&job, &c, &plan, &err), err);
                weft_free(plan);
            }
            CHECK(n >= 12 && ranks == 4);
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
                              place->first + d);
            }
        }
    }
    CHECK(seen >= 8);
}

static void test_verify_rows_names(void)
{
    const struct weft_verify_row *row, *other;
    char label[96];
    int quick[2] = {0, 0};
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        quick[0] += row->flags & 1;
        quick[1] += row->flags >> 1 & 1;
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

WEFT_TESTS("verify/rows", {"test_verify_rows_fit", test_verify_rows_fit},
           {"test_verify_rows_mixes", test_verify_rows_mixes},
           {"test_verify_rows_names", test_verify_rows_names})
