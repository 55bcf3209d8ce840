/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix: each row is a plan that the built-in job can follow. */
#include <unistd.h>

#include "harness.h"

#include "base/file.h"
#include "run/plan_needs.h"
#include "run/run_config.h"
#include "verify/job.h"

/* The row's words one by one, after runtime.devices. */
static int split(const struct weft_verify_row *row, char *text, size_t n,
                 const char **word)
{
    int k = 0;
    char *state;
    snprintf(text, n, "%s", row->words ? row->words : "");
    for (char *w = strtok_r(text, " ", &state); w;
         w = strtok_r(NULL, " ", &state))
        word[k++] = w;
    return k;
}

static void test_verify_rows_fit(void)
{
    char dir[256], text[256], *config;
    const char *word[8];
    struct weft_err err;
    const struct weft_verify_row *row;
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_verify_make(dir, &config, &err), err);
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        struct weft_config c;
        struct weft_run_needs needs;
        struct weft_plan plan;
        int n = split(row, text, sizeof text, word);
        REQUIRE_OK(weft_run_config_read(config, n, word, &c, &err), err);
        REQUIRE_OK(
            weft_run_needs_read(&c, row->ranks, row->devices, &needs, &err),
            err);
        CHECK_INT(needs.flow.n_roles, 4); /* all calls are exercised */
        if (row->mix) {
            REQUIRE_OK(weft_verify_plan(row, &plan, &err), err);
            REQUIRE_OK(weft_plan_check(&plan, &needs.plan, &err), err);
        } else {
            REQUIRE_OK(weft_run_plan(&c, &needs.plan, &plan, &err), err);
        }
        weft_plan_release(&plan);
        weft_config_release(&c);
    }
    free(config);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* A mix names the same devices on 1 x 4, 2 x 2 and 4 x 1. */
static void test_verify_rows_mixes(void)
{
    static const int ranks[] = {1, 2, 4};
    const struct weft_verify_row *row;
    struct weft_plan plan[3];
    struct weft_err err;
    int seen = 0;
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        if (!row->mix)
            continue;
        seen++;
        for (int k = 0; k < 3; k++) {
            struct weft_verify_row other = *row;
            other.ranks = ranks[k];
            other.devices = 4 / ranks[k];
            REQUIRE_OK(weft_verify_plan(&other, &plan[k], &err), err);
        }
        for (int c = 1, n = -1; c < plan[0].flow.n_calls; c++) {
            n += weft_flow_placed(&plan[0].flow, c);
            for (int k = 0; k < 3; k++) {
                const struct weft_call_plan *p = &plan[k].call[c];
                int32_t size = p->dp * p->tp * p->pp;
                if (size == 0)
                    continue; /* a step */
                CHECK_INT(weft_mesh_size(&p->mesh), size);
                for (int32_t d = 0; d < size; d++)
                    CHECK_INT(weft_mesh_device(&plan[k], &p->mesh, d),
                              row->mix->call[n].first + d);
            }
        }
    }
    CHECK(seen >= 8);
}

static void test_verify_rows_names(void)
{
    const struct weft_verify_row *row, *other;
    char label[64];
    int quick[2] = {0, 0};
    for (size_t i = 0; (row = weft_verify_row(i)) != NULL; i++) {
        quick[0] += row->quick & 1;
        quick[1] += row->quick >> 1 & 1;
        CHECK(!(row->words && row->mix && strstr(row->words, "layout=")));
        for (size_t k = 0; k < i; k++) {
            other = weft_verify_row(k);
            CHECK(strcmp(row->name, other->name) != 0);
        }
    }
    CHECK(quick[0] >= 6 && quick[1] >= 4 && quick[0] + quick[1] <= 16);
    row = weft_verify_row(0);
    CHECK(row->ranks == 1 && row->devices == 1 && !row->words && !row->mix
          && row->quick == 3);
    CHECK_STR(weft_verify_label(row, WEFT_BF16, label), "bf16/reference");
    CHECK(weft_verify_matches(row, WEFT_F32, NULL));
    CHECK(weft_verify_matches(row, WEFT_F32, "ref*"));
    CHECK(weft_verify_matches(row, WEFT_F32, "f32/ref*"));
    CHECK(!weft_verify_matches(row, WEFT_F32, "bf16/*"));
    CHECK(!weft_verify_matches(row, WEFT_F32, "ref"));
}

WEFT_TESTS("verify/rows", {"test_verify_rows_fit", test_verify_rows_fit},
           {"test_verify_rows_mixes", test_verify_rows_mixes},
           {"test_verify_rows_names", test_verify_rows_names})
