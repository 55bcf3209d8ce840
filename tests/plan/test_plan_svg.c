/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a graph and its plan: which edges it has, by paths searched
 * one by one, and where meshes lie. */
#include "harness.h"

#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "plan/layout.h"

static struct weft_plan plan;

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
    return n;
}

static bool feeds(int a, int b)
{
    return (plan.flow.call[a].writes & plan.flow.call[b].reads) != 0;
}

/* Whether data of a reach b on a path of at least n edges. */
static bool reaches(int a, int b, int n)
{
    if (n <= 1 && feeds(a, b))
        return true;
    for (int i = 1; i < plan.flow.n_calls; i++)
        if (feeds(a, i) && reaches(i, b, n - 1))
            return true;
    return false;
}

/* n calls; each writes a field of its own, and reads some of those before. */
static void make(int n, uint32_t seed)
{
    plan = (struct weft_plan){.n_nodes = 2, .n_devices = 4};
    weft_flow_init(&plan.flow);
    int32_t role = weft_flow_role(&plan.flow, "only", true, false);
    for (int i = 0; i < n; i++) {
        uint32_t word[4];
        weft_rng_words(seed, WEFT_RNG_SAMPLE, (uint32_t) i, 0, 0, word);
        uint32_t reads = word[0] & ((1u << i) - 1);
        uint32_t writes = weft_flow_bit(
            weft_flow_field(&plan.flow, "data", WEFT_FIELD_LOGP));
        int32_t call = weft_flow_call(&plan.flow, "call", WEFT_INFER, role,
                                      reads, writes);
        plan.call[call] = (struct weft_call_plan){
            .mesh = {0, 2, 0, 4}, .dp = 8, .tp = 1, .pp = 1};
    }
}

/* An edge for each two calls between which data flow, but where they also
 * take a longer way. */
static void test_edges(void)
{
    for (uint32_t seed = 0; seed < 20; seed++) {
        make(2 + (int) seed % 7, seed);
        int edges = 0;
        for (int a = 1; a < plan.flow.n_calls; a++)
            for (int b = 1; b < plan.flow.n_calls; b++)
                edges += feeds(a, b) && !reaches(a, b, 2);
        char *text = weft_plan_svg(&plan);
        REQUIRE(text != NULL);
        CHECK(count(text, "class=\"e\"") == edges);
        CHECK(count(text, ">call</text>") == plan.flow.n_calls - 1);
        CHECK(count(text, "</svg>") == 1);
        weft_free(text);
    }
}

/* A mesh of whole nodes is one rectangle, one of half nodes one per node. */
static void test_meshes(void)
{
    make(2, 1);
    plan.call[1].mesh = (struct weft_mesh){0, 2, 2, 2};
    plan.call[1].dp = 4;
    char *text = weft_plan_svg(&plan);
    REQUIRE(text != NULL);
    CHECK(count(text, "fill-opacity") == 3);
    CHECK(count(text, "height=\"36\" fill=\"#2f6fb5\"") == 2);
    CHECK(count(text, "height=\"144\" fill=\"#2f6fb5\"") == 1);
    CHECK(count(text, "<title>call: dp4 tp1 pp1</title>") == 2);
    weft_free(text);
}

/* Trained weights go to every other call of their role. */
static void test_versions(void)
{
    make(3, 1);
    plan.flow.call[3].kind = WEFT_TRAIN;
    char *text = weft_plan_svg(&plan);
    REQUIRE(text != NULL);
    CHECK(count(text, "class=\"v\"") == 2);
    weft_free(text);
}

WEFT_TESTS("plan/svg", {"test_edges", test_edges},
           {"test_meshes", test_meshes}, {"test_versions", test_versions})
