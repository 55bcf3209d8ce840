/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest cluster on which a run fits: beside all numbers of nodes one after
 * the other, and beside searches among all layouts on each. */
#include "find_fixture.h"

#include "run/predict/enough.h"
#include "run/predict/shortage.h"

enum { DEVICES = 2, MOST = 6 };

#define WORDS                                                                \
    "runtime.place=device", "numerics.gradient_groups=4",                    \
        "rollout.prompts=4", "ppo.mini_batches=1", "ppo.epochs=1", NULL

/* The job has so many nodes. */
static void resize(struct finding *f, int32_t n_nodes)
{
    int64_t bytes = f->needs.plan.device_bytes;
    f->cluster.n_nodes = f->cluster.kind[0].n_nodes = n_nodes;
    REQUIRE_OK(
        weft_run_needs_read(&f->config, n_nodes, DEVICES, 0, &f->needs, &err),
        err);
    f->needs.plan.device_bytes = bytes;
}

/* Whether any choice of layouts fits, as the search finds it. */
static bool search_fits(struct finding *f, int32_t n_nodes)
{
    struct weft_finding all;
    struct weft_search_problem p;
    struct weft_search_result r;
    struct weft_search *s;
    int64_t n = 0;
    resize(f, n_nodes);
    REQUIRE_OK(
        weft_finding_open(&f->config, &f->needs.plan, &f->find, &all, &err),
        err);
    REQUIRE_OK(weft_finding_problem(&all, &p, &n, &err), err);
    REQUIRE_OK(weft_search_create(&p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &f->find.how, &r, &err), err);
    weft_search_free(s);
    weft_finding_close(&all);
    return r.fits;
}

/* The first number of nodes on which the least fits; MOST + 1: none is. */
static int32_t first_fit(struct finding *f)
{
    struct weft_enough most;
    for (int32_t n = 1; n <= MOST; n++) {
        double bytes;
        REQUIRE_OK(weft_run_least_bytes(&f->config, &f->needs.plan,
                                        &f->simulate, n, &bytes, &most, &err),
                   err);
        if (bytes <= (double) f->needs.plan.device_bytes)
            return n;
    }
    return MOST + 1;
}

static int32_t first_found(struct finding *f)
{
    int32_t n = 1;
    while (n <= MOST && !search_fits(f, n))
        n++;
    return n;
}

static void test_enough(void)
{
    static const char *const word[] = {WORDS};
    static const double mib[] = {20, 15, 12, 10, 8, 7, 6, 5, 4};
    struct finding f;
    struct weft_enough e;
    open_finding(&f, deep, DEVICES, word);
    f.find.how.evaluations = 100000;
    f.simulate.gangs = true; /* as searches do where devices are places */
    for (size_t i = 0; i < WEFT_COUNT(mib); i++) {
        resize(&f, 1);
        f.needs.plan.device_bytes = (int64_t) (mib[i] * 0x1p20);
        int32_t first = first_fit(&f), found = first_found(&f);
        CHECK_INT(found, first);
        for (int32_t from = 1; from <= 2 * first; from++) {
            REQUIRE_OK(weft_run_enough(&f.config, &f.needs.plan, &f.simulate,
                                       from, &e, &err),
                       err);
            CHECK_INT(e.n_nodes, from < first ? first : from);
        }
    }
    close_finding(&f);
}

static void test_none(void)
{
    static const char *const word[] = {WORDS};
    struct finding f;
    struct weft_enough e;
    open_finding(&f, deep, DEVICES, word);
    resize(&f, 1);
    f.needs.plan.device_bytes = 1000;
    REQUIRE_OK(
        weft_run_enough(&f.config, &f.needs.plan, &f.simulate, 1, &e, &err),
        err);
    CHECK_INT(e.n_nodes, 0);
    CHECK(e.bytes > 1000);
    CHECK_INT(e.mem, WEFT_MEM_GRADIENTS);
    CHECK(weft_flow_trains(&f.needs.flow, e.call));
    close_finding(&f);
}

/* What is said of a device that has enough by prices of calls, and of one that
 * has not. */
static void check_said(struct finding *f, double mib,
                       enum weft_searched searched, const char *says)
{
    char text[400];
    f->needs.plan.device_bytes = (int64_t) (mib * 0x1p20);
    weft_shortage_text(&f->config, &f->needs.plan, &f->simulate, searched,
                       text, sizeof text);
    bool said = strstr(text, says) != NULL;
    CHECK(said);
    if (!said)
        printf("'%s', not '%s'\n", text, says);
}

static void test_said(void)
{
    static const char *const word[] = {WORDS};
    struct finding f;
    open_finding(&f, deep, DEVICES, word);
    f.simulate.gangs = true;
    resize(&f, 1);
    check_said(&f, 1000, WEFT_NOT_SEARCHED,
               "'weft plan --search' looks for one");
    check_said(&f, 1000, WEFT_SEARCH_STOPPED,
               "'weft plan --search' with more time looks for one");
    check_said(&f, 1000, WEFT_SEARCHED, "at least 2 nodes");
    check_said(&f, 0.001, WEFT_SEARCH_STOPPED, "no number of nodes");
    close_finding(&f);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/enough", {"make", make_runs}, {"enough", test_enough},
           {"none", test_none}, {"said", test_said}, {"remove", test_remove})
