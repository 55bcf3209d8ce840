/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of layouts beside those of whole runs, and the least that they can
 * be. */
#include <math.h>

#include "graphs/algorithms.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/iteration.h"
#include "run/predict/price.h"
#include "run/predict/simulate.h"
#include "run_fixture.h"

/* ---- Prices ------------------------------------------------------------- */

static const char sixteen_nodes[] =
    "name: sixteen\n"
    "kinds:\n"
    "  - {name: node, nodes: 16, devices: 2, memory_gib: 8,\n"
    "     tflops: {f32: 0.1, bf16: 0.2}, memory_gbs: 20, task_us: 4,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 2, gbs: %g, us: 5}}\n";

/* The largest error of a price that smaller runs are recorded for, of one whose
 * run is recorded whole. */
static double error_of(double small, double whole, double least)
{
    return fabs(small - whole) / fmax(whole, least);
}

static void check_prices(struct weft_pricer *whole, struct weft_pricer *small,
                         const struct weft_dataflow *flow,
                         const struct weft_call_plan *at, bool trains,
                         double *most)
{
    struct weft_priced a[WEFT_MAX_CALLS], b[WEFT_MAX_CALLS];
    struct weft_err err;
    uint32_t calls = 0;
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c) && weft_flow_trains(flow, c) == trains)
            calls |= 1u << c;
    REQUIRE_OK(weft_pricer_price(whole, at, calls, a, &err), err);
    REQUIRE_OK(weft_pricer_price(small, at, calls, b, &err), err);
    for (uint32_t m = calls; m; m &= m - 1) {
        int32_t c = __builtin_ctz(m);
        const struct weft_least least = weft_pricer_least(whole, at, c);
        CHECK(least.seconds > 0 && least.busy_s > 0);
        CHECK(least.seconds <= a[c].seconds && least.busy_s <= a[c].busy_s);
    }
    for (int32_t c = 1; c < flow->n_calls; c++) {
        if (!(calls >> c & 1))
            continue;
        double s = error_of(b[c].seconds, a[c].seconds, 0);
        double w = error_of(b[c].weights, a[c].weights, 1e4);
        double g = error_of(b[c].state, a[c].state, 1e4);
        double m = error_of(b[c].active, a[c].active, 1e5); /* not samples */
        /* what waits between stages of unlike speed is no straight line */
        double all = fmax(fmax(s, w), trains || at->pp == 1 ? fmax(g, m) : g);
        if (getenv("WEFT_TEST_SHOW"))
            printf(
                "\n%s dp%d tp%d pp%d: %.4g s, %.4g whole, weights %.1f %%, "
                "state %.1f %%, active %.1f %% of %.3g",
                flow->call[c].name, at->dp, at->tp, at->pp, b[c].seconds,
                a[c].seconds, 100 * w, 100 * g, 100 * m, a[c].active);
        *most = fmax(*most, all);
    }
    /* the search leaves out what holds too much whatever else it has */
    struct weft_call_plan other = *at;
    other.recompute = true;
    other.micro_batches = 2;
    if (!trains)
        return;
    REQUIRE_OK(weft_pricer_price(small, &other, calls, a, &err), err);
    for (int32_t c = 1; c < flow->n_calls; c++)
        CHECK(!(calls >> c & 1)
              || (fabs(a[c].weights - b[c].weights) <= 0
                  && fabs(a[c].state - b[c].state) <= 0));
}

/* Layouts that are said to have one price have it, to the bit, and some that
 * differ in micro-batches are. */
static void check_same(struct weft_pricer *p,
                       const struct weft_dataflow *flow)
{
    static const int32_t micro_batches[] = {0, 1, 2, 4, 8};
    enum { N = WEFT_COUNT(micro_batches) };
    struct weft_priced priced[N][WEFT_MAX_CALLS];
    struct weft_err err;
    int32_t call = weft_flow_find_call(flow, "critic_train");
    struct weft_call_plan at[N];
    int n_same = 0;
    for (int i = 0; i < N; i++) {
        at[i] = (struct weft_call_plan){
            {0, 2, 0, 2}, .dp = 2,   .tp = 1,
            .pp = 2,      .zero = 1, .micro_batches = micro_batches[i]};
        memset(&priced[i][call], 0, sizeof priced[i][call]);
        REQUIRE_OK(weft_pricer_price(p, &at[i], 1u << call, priced[i], &err),
                   err);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++) {
            bool same = weft_pricer_same(p, &at[i], &at[k], call);
            CHECK(same == weft_pricer_same(p, &at[k], &at[i], call));
            bool equal = memcmp(&priced[i][call], &priced[k][call],
                                sizeof priced[i][call])
                      == 0;
            if (same != equal)
                printf("%d and %d micro-batches: %s prices, said %s\n",
                       (int) micro_batches[i], (int) micro_batches[k],
                       equal ? "equal" : "other", same ? "equal" : "other");
            CHECK(!same || equal);
            n_same += same;
        }
    CHECK(n_same > 0 && n_same < N * (N - 1) / 2);
    at[0].zero = 0;
    CHECK(!weft_pricer_same(p, &at[0], &at[1], call));
}

/* ---- Prices of deep models ----------------------------------------------- */

/* Prices of runs recorded whole, and of smaller ones. */
struct deep {
    struct fixture f;
    struct weft_cluster cluster;
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_lengths lengths;
    struct weft_simulate_options options;
    struct weft_pricer *pricer[2];
};

/* gbs: of a rail of the network; lengths: of responses. */
static void deep_open(struct deep *d, int32_t layers, const char *prompts,
                      const char *max_new_tokens, double gbs,
                      const char *lengths)
{
    char yaml[400];
    struct weft_init_options deep = fixture_model();
    struct weft_err err;
    char actor[300], critic[300], reference[300], data[300];
    fixture_make(&d->f);
    deep.layers = layers;
    deep.hidden = 256;
    deep.intermediate = 1024;
    deep.kv_heads = deep.heads;
    deep.max_positions = 2048;
    fixture_init_model(&d->f, "deep", &deep);
    snprintf(data, sizeof data, "data.path=%s/alike.jsonl", d->f.dir);
    FILE *file = fopen(data + strlen("data.path="), "w");
    REQUIRE(file != NULL);
    for (int i = 0; i < 128; i++)
        fprintf(file, "{\"prompt\": \"%040d\"}\n", i);
    fclose(file);
    snprintf(actor, sizeof actor, "model.actor=%s/deep", d->f.dir);
    snprintf(critic, sizeof critic, "model.critic=%s/deep", d->f.dir);
    snprintf(reference, sizeof reference, "model.reference=%s/deep",
             d->f.dir);
    const char *word[] = {actor,
                          critic,
                          reference,
                          data,
                          prompts,
                          max_new_tokens,
                          "ppo.mini_batches=4",
                          "numerics.gradient_groups=16",
                          "train.micro_batch_tokens=256",
                          "runtime.place=device"};
    snprintf(yaml, sizeof yaml, sixteen_nodes, gbs);
    REQUIRE_OK(
        weft_cluster_parse(yaml, strlen(yaml), "test", &d->cluster, &err),
        err);
    REQUIRE_OK(weft_run_config_read(d->f.config, (int) WEFT_COUNT(word), word,
                                    &d->config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&d->config, 16, 2, 0, &d->needs, &err),
               err);
    REQUIRE_OK(weft_lengths_read(lengths, &d->lengths, &err), err);
    d->options = (struct weft_simulate_options){
        .cluster = &d->cluster, .lengths = &d->lengths, .gangs = true};
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(weft_pricer_create(&d->config, &d->needs.plan, &d->options,
                                      i == 0, &d->pricer[i], &err),
                   err);
}

static void deep_close(struct deep *d)
{
    weft_pricer_free(d->pricer[0]);
    weft_pricer_free(d->pricer[1]);
    weft_lengths_release(&d->lengths);
    weft_config_release(&d->config);
    fixture_remove(&d->f);
}

/* What weights pass through from the host is as large as in a run. */
static void check_offloaded(const struct deep *d)
{
    static const struct weft_call_plan at = {
        {0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1, .offload = true};
    struct weft_priced whole[WEFT_MAX_CALLS], small[WEFT_MAX_CALLS];
    struct weft_err err;
    int32_t c = weft_flow_find_call(&d->needs.flow, "ref_infer");
    REQUIRE_OK(weft_pricer_price(d->pricer[0], &at, 1u << c, whole, &err),
               err);
    REQUIRE_OK(weft_pricer_price(d->pricer[1], &at, 1u << c, small, &err),
               err);
    CHECK(error_of(small[c].state, whole[c].state, 1e4) < 0.05);
    CHECK(whole[c].state > 0);
}

/* What layers, steps and nodes less tell of the whole run. */
static void test_prices(void)
{
    static const struct {
        struct weft_call_plan at;
        bool trains;
    } row[] = {
        {{{0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1}, true},
        {{{0, 2, 0, 2}, .dp = 2, .tp = 2, .pp = 1, .offload = true}, true},
        {{{0, 1, 0, 2}, .dp = 1, .tp = 2, .pp = 1}, false},
        {{{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2}, true},
        {{{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2}, false},
        {{{0, 2, 0, 2}, .dp = 2, .tp = 1, .pp = 2}, false},
        {{{0, 4, 0, 2}, .dp = 4, .tp = 1, .pp = 2}, false},
        {{{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 1}, true},
        {{{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1}, true},
        {{{0, 2, 0, 2},
          .dp = 2,
          .tp = 1,
          .pp = 2,
          .micro_batches = 2,
          .zero = 1},
         true},
        {{{0, 2, 0, 2},
          .dp = 2,
          .tp = 1,
          .pp = 2,
          .micro_batches = 1,
          .recompute = true},
         true},
        {{{0, 8, 0, 2}, .dp = 8, .tp = 2, .pp = 1}, true},
        {{{0, 8, 0, 2}, .dp = 16, .tp = 1, .pp = 1}, true},
        {{{0, 8, 0, 2}, .dp = 16, .tp = 1, .pp = 1, .zero = 3}, true},
        {{{0, 8, 0, 2}, .dp = 16, .tp = 1, .pp = 1}, false}};
    struct deep d;
    double most = 0;
    deep_open(&d, 8, "rollout.prompts=128", "rollout.max_new_tokens=12", 20,
              "max");
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        check_prices(d.pricer[0], d.pricer[1], &d.needs.flow, &row[i].at,
                     row[i].trains, &most);
    CHECK(most < 0.05);
    check_same(d.pricer[1], &d.needs.flow);
    check_offloaded(&d);
    deep_close(&d);
}

/* Where training has stages or one node, few layers stand for all of a stage,
 * one or two members for a tp group, two replicas for all: in seconds, and in
 * what replicas divide among them. */
static void test_prices_staged(void)
{
    static const struct weft_call_plan row[] = {
        {{0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1},
        {{0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1, .zero = 3},
        {{0, 1, 0, 2}, .dp = 1, .tp = 2, .pp = 1},
        {{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2},
        {{0, 8, 0, 2}, .dp = 4, .tp = 2, .pp = 2},
        {{0, 8, 0, 2}, .dp = 4, .tp = 2, .pp = 2, .zero = 2},
        {{0, 4, 0, 2}, .dp = 4, .tp = 1, .pp = 2},
        {{0, 4, 0, 2}, .dp = 4, .tp = 1, .pp = 2, .zero = 1},
        {{0, 4, 0, 2}, .dp = 4, .tp = 1, .pp = 2, .zero = 2},
        {{0, 4, 0, 2}, .dp = 4, .tp = 1, .pp = 2, .zero = 3},
        {{0, 2, 0, 2}, .dp = 1, .tp = 1, .pp = 4, .micro_batches = 2},
        {{0, 4, 0, 2}, .dp = 2, .tp = 1, .pp = 4, .recompute = true},
        {{0, 4, 0, 2}, .dp = 1, .tp = 2, .pp = 4},
        {{0, 4, 0, 2}, .dp = 1, .tp = 1, .pp = 8}};
    struct deep d;
    double most = 0;
    deep_open(&d, 24, "rollout.prompts=64", "rollout.max_new_tokens=12", 20,
              "max");
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        check_prices(d.pricer[0], d.pricer[1], &d.needs.flow, &row[i], true,
                     &most);
    CHECK(most < 0.05);
    deep_close(&d);
}

/* Where replicas of a stage are on several nodes, they wait for one another's
 * links in training: by which of them holds which part of each layer. */
static void test_prices_exchanged(void)
{
    static const struct weft_call_plan row[] = {
        {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1},
        {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 3},
        {{0, 4, 0, 2}, .dp = 8, .tp = 1, .pp = 1},
        {{0, 4, 0, 2}, .dp = 8, .tp = 1, .pp = 1, .zero = 1},
        {{0, 4, 0, 2}, .dp = 8, .tp = 1, .pp = 1, .zero = 2},
        {{0, 4, 0, 2}, .dp = 8, .tp = 1, .pp = 1, .zero = 3},
        {{0, 4, 0, 2}, .dp = 4, .tp = 2, .pp = 1, .zero = 3},
        {{0, 8, 0, 2}, .dp = 8, .tp = 2, .pp = 1, .zero = 1},
        {{0, 8, 0, 2}, .dp = 16, .tp = 1, .pp = 1, .zero = 2},
        {{0, 16, 0, 2}, .dp = 16, .tp = 2, .pp = 1, .zero = 1},
        {{0, 16, 0, 2}, .dp = 16, .tp = 2, .pp = 1, .zero = 2},
        {{0, 8, 0, 2}, .dp = 8, .tp = 1, .pp = 2},
        {{0, 8, 0, 2}, .dp = 8, .tp = 1, .pp = 2, .zero = 1},
        {{0, 8, 0, 2}, .dp = 8, .tp = 1, .pp = 2, .zero = 2},
        {{0, 8, 0, 2}, .dp = 8, .tp = 1, .pp = 2, .zero = 3},
        {{0, 16, 0, 2}, .dp = 8, .tp = 2, .pp = 2, .zero = 1},
        {{0, 16, 0, 2}, .dp = 8, .tp = 1, .pp = 4, .zero = 1}};
    struct deep d;
    double most = 0;
    deep_open(&d, 24, "rollout.prompts=64", "rollout.max_new_tokens=12", 2,
              "max");
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        check_prices(d.pricer[0], d.pricer[1], &d.needs.flow, &row[i], true,
                     &most);
    CHECK(most < 0.03);
    deep_close(&d);
}

/* Where generation has stages, prices are of several steps at a time: what
 * members and stages tell one another then takes as long. */
static void test_prices_joined(void)
{
    static const struct weft_call_plan at[] = {
        {{0, 2, 0, 2}, .dp = 2, .tp = 1, .pp = 2},
        {{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2}};
    struct weft_priced whole[WEFT_MAX_CALLS], small[WEFT_MAX_CALLS];
    struct weft_err err;
    struct deep d;
    deep_open(&d, 8, "rollout.prompts=16", "rollout.max_new_tokens=1024", 20,
              "max");
    int32_t c = weft_flow_find_call(&d.needs.flow, "actor_generate");
    for (size_t i = 0; i < WEFT_COUNT(at); i++) {
        REQUIRE_OK(
            weft_pricer_price(d.pricer[0], &at[i], 1u << c, whole, &err),
            err);
        REQUIRE_OK(
            weft_pricer_price(d.pricer[1], &at[i], 1u << c, small, &err),
            err);
        double error = small[c].seconds / whole[c].seconds - 1;
        if (!(fabs(error) < 0.03))
            printf("\ntp %d: %.4g s, %.4g whole", at[i].tp, small[c].seconds,
                   whole[c].seconds);
        CHECK(fabs(error) < 0.03);
    }
    deep_close(&d);
}

/* ---- Responses that are not alike --------------------------------------- */

/* How far a price is from that of the whole run: seconds, and how long devices
 * are busy, in shares; when samples are there. */
struct errors {
    double seconds, busy, came;
};

static struct errors compare_lengths(const struct deep *d,
                                     const struct weft_call_plan *at,
                                     int32_t call)
{
    struct weft_priced whole[WEFT_MAX_CALLS], small[WEFT_MAX_CALLS];
    struct weft_err err;
    REQUIRE_OK(weft_pricer_price(d->pricer[0], at, 1u << call, whole, &err),
               err);
    REQUIRE_OK(weft_pricer_price(d->pricer[1], at, 1u << call, small, &err),
               err);
    const struct weft_priced *a = &whole[call], *b = &small[call];
    struct errors e = {error_of(b->seconds, a->seconds, 0),
                       error_of(b->busy_s, a->busy_s, 0), 0};
    for (int k = 0; k < WEFT_SEARCH_PARTS; k++)
        e.came = fmax(e.came, fabs(b->came[k] - a->came[k]));
    if (getenv("WEFT_TEST_SHOW"))
        printf("\n%s dp%d tp%d pp%d: %.4g s, %.4g whole; busy %.4g, %.4g; "
               "samples come %.2f of that later",
               d->needs.flow.call[call].name, at->dp, at->tp, at->pp,
               b->seconds, a->seconds, b->busy_s, a->busy_s, e.came);
    return e;
}

/* Where responses are of several lengths, generation takes as long as its
 * longest replica does, others what their share of all tokens takes, though one
 * replica is recorded, or a part of the samples. Where samples wait for slots,
 * who gets which differs. Inference by itself also takes longer where replicas
 * get whole micro-batches. */
static void test_prices_of_lengths(void)
{
    static const struct {
        struct weft_call_plan at;
        bool waits;
    } row[] = {{{{0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1}, true},
               {{{0, 2, 0, 2}, .dp = 2, .tp = 2, .pp = 1}, true},
               {{{0, 2, 0, 2}, .dp = 2, .tp = 1, .pp = 2}, false},
               {{{0, 4, 0, 2}, .dp = 8, .tp = 1, .pp = 1}, false},
               {{{0, 8, 0, 2}, .dp = 4, .tp = 2, .pp = 2}, false},
               {{{0, 16, 0, 2}, .dp = 16, .tp = 2, .pp = 1}, false}};
    struct deep d;
    deep_open(&d, 8, "rollout.prompts=64", "rollout.max_new_tokens=256", 20,
              "lognormal:40:1");
    const struct weft_dataflow *flow = &d.needs.flow;
    for (size_t i = 0; i < WEFT_COUNT(row); i++)
        for (int32_t c = 1; c < flow->n_calls; c++) {
            if (!weft_flow_placed(flow, c))
                continue;
            const struct errors e = compare_lengths(&d, &row[i].at, c);
            bool waits = row[i].waits;
            if (flow->call[c].kind == WEFT_GENERATE) {
                CHECK(e.seconds < (waits ? 0.07 : 0.03));
                CHECK(e.busy < (waits ? 0.08 : 0.04));
                CHECK(e.came < (waits ? 0.13 : 0.06));
            } else {
                CHECK(e.busy < 0.01);
                CHECK(e.seconds < 0.05 || !weft_flow_trains(flow, c));
            }
        }
    deep_close(&d);
}

/* ---- The least that calls take ------------------------------------------ */

/* Of devices that little but one thing holds up: memory, links of a node,
 * memory in norms, or links between nodes. */
enum held_up { BY_MEMORY, BY_LINKS, BY_NORMS, BY_NETWORK };
static const char slow_yaml[] =
    "name: slow\n"
    "kinds:\n"
    "  - {name: node, nodes: 2, devices: 2, memory_gib: 8,\n"
    "     tflops: {f32: 10}, memory_gbs: %g, task_us: 0.01, row_bytes: %g,\n"
    "     inside: {gbs: %g, us: 0.01}, network: {rails: 2, gbs: %g, us: "
    "0.01}}\n";

/* What a layout takes at least is no more than it takes whole, and a good part
 * of that where it is made of what is counted. */
static void check_least(const struct weft_config *config, enum held_up by,
                        bool gangs)
{
    static const struct {
        const char *call;
        struct weft_call_plan at;
        enum held_up by; /* BY_MEMORY: in norms, too */
    } row[] = {
        {"actor_train", {{0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1}, BY_MEMORY},
        {"actor_train", {{0, 1, 0, 2}, .dp = 2, .tp = 1, .pp = 1}, BY_MEMORY},
        {"critic_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 1},
         BY_MEMORY},
        {"critic_train",
         {{0, 2, 0, 2}, .dp = 2, .tp = 2, .pp = 1},
         BY_MEMORY},
        {"actor_train", {{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2}, BY_MEMORY},
        {"actor_generate",
         {{0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1},
         BY_MEMORY},
        {"actor_generate",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1},
         BY_MEMORY},
        {"actor_generate",
         {{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2},
         BY_MEMORY},
        {"actor_generate",
         {{0, 1, 0, 2}, .dp = 1, .tp = 2, .pp = 1},
         BY_LINKS},
        {"actor_generate",
         {{0, 2, 0, 2}, .dp = 2, .tp = 2, .pp = 1},
         BY_LINKS},
        {"actor_generate",
         {{0, 2, 0, 2}, .dp = 1, .tp = 2, .pp = 2},
         BY_LINKS},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1},
         BY_NETWORK},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 1},
         BY_NETWORK},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 2},
         BY_NETWORK},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 3},
         BY_NETWORK},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1, .zero = 3, .hpz = true},
         BY_NETWORK},
        {"actor_train",
         {{0, 2, 0, 2}, .dp = 2, .tp = 2, .pp = 1, .zero = 3},
         BY_NETWORK},
    };
    char yaml[600];
    struct weft_cluster cluster;
    struct weft_run_needs needs;
    struct weft_lengths longest;
    struct weft_pricer *p;
    struct weft_err err;
    snprintf(yaml, sizeof yaml, slow_yaml,
             by == BY_LINKS || by == BY_NETWORK ? 500.0 : 0.5,
             by == BY_NORMS ? 1e4 : 0.0, by == BY_LINKS ? 0.05 : 500.0,
             by == BY_NETWORK ? 0.05 : 500.0);
    REQUIRE_OK(weft_cluster_parse(yaml, strlen(yaml), "test", &cluster, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(config, 2, 2, 0, &needs, &err), err);
    REQUIRE_OK(weft_lengths_read("max", &longest, &err), err);
    const struct weft_simulate_options options = {
        .cluster = &cluster, .lengths = &longest, .gangs = gangs};
    REQUIRE_OK(
        weft_pricer_create(config, &needs.plan, &options, true, &p, &err),
        err);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_priced priced[WEFT_MAX_CALLS];
        int32_t call = weft_flow_find_call(&needs.flow, row[i].call);
        bool counts = row[i].by == by
                   || (row[i].by == BY_MEMORY && by == BY_NORMS);
        if (!counts && gangs)
            continue;
        REQUIRE_OK(weft_pricer_price(p, &row[i].at, 1u << call, priced, &err),
                   err);
        struct weft_least least = weft_pricer_least(p, &row[i].at, call);
        double s = least.seconds / priced[call].seconds;
        double busy = least.busy_s / priced[call].busy_s;
        if (getenv("WEFT_TEST_SHOW"))
            printf("\n%s dp%d tp%d pp%d zero %d: %.3f and %.3f of %.4g s",
                   row[i].call, row[i].at.dp, row[i].at.tp, row[i].at.pp,
                   row[i].at.zero, s, busy, priced[call].seconds);
        /* in training these small models' activations take most */
        bool trains = weft_flow_trains(&needs.flow, call);
        double part = by == BY_NORMS ? (trains ? 0.12 : 0.36)
                                     : (trains ? 0.05 : 0.29);
        bool apart = config->runtime.place == WEFT_PLACE_DEVICE && gangs;
        CHECK(s < 1 && (s > (by == BY_NETWORK ? 0.45 : part) || !apart));
        CHECK(busy < 1 && (busy > part || !apart));
    }
    weft_pricer_free(p);
    weft_lengths_release(&longest);
}

static void test_least(void)
{
    struct fixture f;
    struct weft_config config;
    struct weft_err err;
    fixture_make(&f);
    struct weft_init_options deep = fixture_model();
    deep.layers = 8;
    deep.hidden = 128;
    deep.intermediate = 512;
    fixture_init_model(&f, "deep", &deep);
    char actor[300], critic[300];
    snprintf(actor, sizeof actor, "model.actor=%s/deep", f.dir);
    snprintf(critic, sizeof critic, "model.critic=%s/deep", f.dir);
    const char *word[] = {actor, critic, "rollout.prompts=32",
                          "numerics.gradient_groups=16",
                          "runtime.place=device"};
    REQUIRE_OK(weft_run_config_read(f.config, (int) WEFT_COUNT(word), word,
                                    &config, &err),
               err);
    for (int gangs = 0; gangs < 2; gangs++) {
        check_least(&config, BY_MEMORY, gangs);
        check_least(&config, BY_LINKS, gangs);
        check_least(&config, BY_NORMS, gangs);
        check_least(&config, BY_NETWORK, gangs);
    }
    config.runtime.place = WEFT_PLACE_NODE; /* members receive nothing */
    check_least(&config, BY_LINKS, true);
    weft_config_release(&config);
    fixture_remove(&f);
}

static const char two_kinds[] =
    "name: two\n"
    "kinds:\n"
    "  - {name: fast, nodes: 1, devices: 2, memory_gib: 8,\n"
    "     tflops: {f32: 0.002}, memory_gbs: 200, task_us: 1,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 2, gbs: 20, us: 5}}\n"
    "  - {name: slow, nodes: 1, devices: 2, memory_gib: 8,\n"
    "     tflops: {f32: 0.001}, memory_gbs: 200, task_us: 1,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 2, gbs: 20, us: 5}}\n";

/* Of devices half of which are twice as fast, these get two thirds of the
 * samples: inference takes two thirds of the time that it has with equal
 * parts. */
static void test_prices_shared(void)
{
    static const struct weft_call_plan at = {
        {0, 2, 0, 2}, .dp = 4, .tp = 1, .pp = 1};
    static const char *const word[] = {
        "rollout.prompts=96", "numerics.gradient_groups=16",
        "train.micro_batch_tokens=64", "runtime.place=device"};
    struct fixture f;
    struct weft_cluster cluster;
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_lengths longest;
    struct weft_priced priced[2][WEFT_MAX_CALLS];
    struct weft_err err;
    fixture_make(&f);
    REQUIRE_OK(weft_cluster_parse(two_kinds, sizeof two_kinds - 1, "test",
                                  &cluster, &err),
               err);
    REQUIRE_OK(weft_run_config_read(f.config, (int) WEFT_COUNT(word), word,
                                    &config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&config, 2, 2, 0, &needs, &err), err);
    REQUIRE_OK(weft_lengths_read("max", &longest, &err), err);
    const struct weft_simulate_options options = {.cluster = &cluster,
                                                  .lengths = &longest};
    int32_t call = weft_flow_find_call(&needs.flow, "ref_infer");
    for (int shared = 0; shared < 2; shared++) {
        struct weft_pricer *pricer;
        needs.plan.cluster = shared ? &cluster : NULL;
        REQUIRE_OK(weft_pricer_create(&config, &needs.plan, &options, !shared,
                                      &pricer, &err),
                   err);
        REQUIRE_OK(
            weft_pricer_price(pricer, &at, 1u << call, priced[shared], &err),
            err);
        weft_pricer_free(pricer);
    }
    double ratio = priced[0][call].seconds / priced[1][call].seconds;
    if (fabs(ratio - 1.5) >= 0.1)
        printf("%.4g times faster\n", ratio);
    CHECK(fabs(ratio - 1.5) < 0.1);
    weft_lengths_release(&longest);
    weft_config_release(&config);
    fixture_remove(&f);
}

static const char one_gpu[] =
    "name: one\n"
    "kinds:\n"
    "  - {name: node, nodes: 1, devices: 1, memory_gib: 8,\n"
    "     tflops: {f32: 1, bf16: 2}, memory_gbs: 100, task_us: 4,\n"
    "     inside: {gbs: 10, us: 1}, host: {gbs: 0.1, us: 10},\n"
    "     network: {rails: 1, gbs: 20, us: 5}}\n";

/* Optimizer states of a GPU that are offloaded take the time of their copies
 * over its link, and none of the device's; its memory has less of them. */
static void test_price_of_copies(void)
{
    struct weft_call_plan at = {{0, 1, 0, 1}, .dp = 1, .tp = 1, .pp = 1};
    const char *word[] = {"runtime.devices=gpu", "ppo.mini_batches=1",
                          "ppo.epochs=1"};
    struct weft_priced there[WEFT_MAX_CALLS], away[WEFT_MAX_CALLS];
    struct fixture f;
    struct weft_cluster cluster;
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_lengths longest;
    struct weft_pricer *pricer;
    struct weft_err err;
    fixture_make(&f);
    REQUIRE_OK(weft_cluster_parse(one_gpu, sizeof one_gpu - 1, "test",
                                  &cluster, &err),
               err);
    REQUIRE_OK(weft_run_config_read(f.config, (int) WEFT_COUNT(word), word,
                                    &config, &err),
               err);
    REQUIRE_OK(weft_run_needs_read(&config, 1, 2, 1, &needs, &err), err);
    REQUIRE_OK(weft_lengths_read("max", &longest, &err), err);
    const struct weft_simulate_options options = {.cluster = &cluster,
                                                  .lengths = &longest};
    REQUIRE_OK(weft_pricer_create(&config, &needs.plan, &options, true,
                                  &pricer, &err),
               err);
    int32_t c = weft_flow_call_of(&needs.flow, WEFT_TRAIN, 0);
    REQUIRE_OK(weft_pricer_price(pricer, &at, 1u << c, there, &err), err);
    at.offload = true;
    REQUIRE_OK(weft_pricer_price(pricer, &at, 1u << c, away, &err), err);
    double state_s = 2 * 4 * (double) weft_shape_n_params(needs.plan.shape[0])
                   / 0.1e9;
    CHECK(away[c].seconds > there[c].seconds + state_s);
    CHECK(away[c].seconds < there[c].seconds + 2.5 * state_s);
    CHECK(away[c].busy_s < 1.05 * there[c].busy_s);
    CHECK(away[c].state < there[c].state);
    weft_pricer_free(pricer);
    weft_lengths_release(&longest);
    weft_config_release(&config);
    fixture_remove(&f);
}

WEFT_TESTS("run/prices", {"test_prices", test_prices},
           {"test_prices_staged", test_prices_staged},
           {"test_prices_exchanged", test_prices_exchanged},
           {"test_prices_joined", test_prices_joined},
           {"test_prices_of_lengths", test_prices_of_lengths},
           {"least", test_least},
           {"test_price_of_copies", test_price_of_copies},
           {"test_prices_shared", test_prices_shared})
