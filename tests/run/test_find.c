/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that are found with fused training among their options: every choice of a
 * small run, by brute force, against the search's best and its bound; fused pairs'
 * bounds against simulations; where fused training wins and where it must not; and
 * the same bits as on one device.
 */
#include "run_fixture.h"

#include <math.h>

#include "fuse/fuse.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/predict/options_inside.h"

static struct fixture fixture;
static struct weft_err err;
/* Configurations beside the fixture's own: both models deep, or the critic. */
static char deep[512], deep_critic[512];

/* One gradient group and one tensor block: training has stages or one device, and
 * a step two micro-batches at most. */
#define SMALL                                                                \
    "numerics.gradient_groups=1", "numerics.tensor_blocks=1",                \
        "rollout.prompts=2", "rollout.samples_per_prompt=1",                 \
        "ppo.mini_batches=1", "ppo.epochs=1"

#define LONG                                                                 \
    "numerics.gradient_groups=1", "numerics.tensor_blocks=1",                \
        "rollout.prompts=32", "rollout.samples_per_prompt=1",                \
        "rollout.max_new_tokens=150", "rollout.chunk_tokens=4",              \
        "ppo.mini_batches=1", "ppo.epochs=1"

static const char cluster_yaml[] =
    "name: four\n"
    "kinds:\n"
    "  - {name: node, nodes: 1, devices: 4, memory_gib: 4,\n"
    "     tflops: {f32: 0.1, bf16: 0.2}, memory_gbs: 20, task_us: 1,\n"
    "     inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}\n";

static void write_config(bool actor, const char *name, char path[512])
{
    char text[sizeof fixture_yaml];
    memcpy(text, fixture_yaml, sizeof text);
    char *a = strstr(text, "actor: model"),
         *c = strstr(text, "critic: model");
    REQUIRE(a != NULL && c != NULL);
    if (actor)
        memcpy(a, "actor: deep ", 12);
    memcpy(c, "critic: deep ", 13);
    snprintf(path, 512, "%s/%s", fixture.dir, name);
    REQUIRE_OK(weft_file_write(path, text, sizeof text - 1, &err), err);
}

static void test_make(void)
{
    struct weft_init_options o = fixture_model();
    char path[512];
    fixture_make(&fixture);
    o.layers = 8;
    fixture_init_model(&fixture, "deep", &o);
    /* all prompts have 100 tokens, so that micro-batches are alike */
    snprintf(path, sizeof path, "%s/prompts.jsonl", fixture.dir);
    FILE *data = fopen(path, "w");
    REQUIRE(data != NULL);
    for (int i = 0; i < 20; i++)
        fprintf(data, "{\"prompt\": \"%0100d\", \"label\": \"%d\"}\n", i, i);
    fclose(data);
    write_config(true, "deep.yaml", deep);
    write_config(false, "critic.yaml", deep_critic);
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture.dir);
    REQUIRE_OK(
        weft_file_write(path, cluster_yaml, sizeof cluster_yaml - 1, &err),
        err);
}

/* ---- A finding ---------------------------------------------------------- */

struct finding {
    struct weft_config config;
    struct weft_run_needs needs;
    struct weft_cluster cluster;
    struct weft_lengths lengths;
    struct weft_simulate_options simulate;
    struct weft_find find;
};

static const char *lengths = "max"; /* of responses */

static void open_finding(struct finding *f, const char *config,
                         int32_t n_devices, const char *const *word)
{
    char path[512];
    int n = 0;
    while (word[n])
        n++;
    REQUIRE_OK(weft_run_config_read(config, n, word, &f->config, &err), err);
    snprintf(path, sizeof path, "%s/cluster.yaml", fixture.dir);
    REQUIRE_OK(weft_cluster_read(path, &f->cluster, &err), err);
    REQUIRE_OK(weft_lengths_read(lengths, &f->lengths, &err), err);
    REQUIRE_OK(
        weft_run_needs_read(&f->config, 1, n_devices, 0, &f->needs, &err),
        err);
    f->needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &f->cluster);
    f->simulate = (struct weft_simulate_options){
        .cluster = &f->cluster, .lengths = &f->lengths, .iterations = 3};
    f->find = (struct weft_find){
        .simulate = &f->simulate,
        .how = {.seed = 1, .evaluations = 4000, .branches = 1000000}};
}

static void close_finding(struct finding *f)
{
    weft_lengths_release(&f->lengths);
    weft_config_release(&f->config);
}

static bool next_choice(const struct weft_search_problem *p, int32_t *choice)
{
    for (int32_t c = 0; c < p->n_calls; c++) {
        if (++choice[c] < p->call[c].n_options)
            return true;
        choice[c] = 0;
    }
    return false;
}

/* The shortest period of any choice that fits. */
static double shortest(const struct weft_search_problem *p)
{
    struct weft_search *s;
    int32_t choice[WEFT_MAX_CALLS] = {0};
    double best = INFINITY;
    REQUIRE_OK(weft_search_create(p, &s, &err), err);
    do {
        struct weft_search_value v = weft_search_value(s, choice);
        if (v.bytes <= p->device_bytes)
            best = fmin(best, v.period);
    } while (next_choice(p, choice));
    weft_search_free(s);
    return best;
}

/* ---- Brute force -------------------------------------------------------- */

/* What calls read is the same, by name, when training is one call; which reads
 * what either reads. */
static void check_reads(const struct weft_finding *f,
                        const struct weft_search_problem *plain,
                        const struct weft_search_problem *fused)
{
    for (int32_t i = 0; i < fused->n_calls; i++) {
        uint32_t want = 0, is = 0;
        int32_t call = f->fused_call_of[i];
        for (int32_t k = 0; k < plain->n_calls; k++) {
            bool one = f->call_of[k] == call
                    || (fused->call[i].two && f->call_of[k] == f->fused[1]);
            for (int32_t b = 0; b < plain->n_calls && one; b++)
                want |= (plain->call[k].before >> b & 1) << f->call_of[b];
        }
        for (int32_t b = 0; b < fused->n_calls; b++)
            is |= (fused->call[i].before >> b & 1) << f->fused_call_of[b];
        CHECK_INT(is, want);
        CHECK(fused->call[i].two == (call == f->fused[0]));
    }
    for (int32_t k = 0; k < plain->n_together; k++) {
        uint32_t want = 0, is = 0;
        for (int32_t b = 0; b < plain->n_calls; b++)
            want |= (plain->together[k] >> b & 1)
                 << (f->call_of[b] == f->fused[1] ? f->fused[0]
                                                  : f->call_of[b]);
        for (int32_t b = 0; b < fused->n_calls; b++)
            is |= (fused->together[k] >> b & 1) << f->fused_call_of[b];
        CHECK_INT(is, want);
    }
}

/* No choice with training apart or fused is below the bound, which is the best
 * one's. */
static void test_every_plan(void)
{
    static const char *const word[] = {SMALL, NULL};
    struct finding f;
    struct weft_finding all;
    struct weft_search_problem plain, fused;
    struct weft_found found;
    struct weft_plan plan;
    int64_t n = 0;
    open_finding(&f, deep, 2, word);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &all, &err),
        err);
    REQUIRE(weft_finding_fuses(&all));
    REQUIRE_OK(weft_finding_pair(&all, &err), err);
    REQUIRE_OK(weft_finding_place(&all, &plain, &n, &err), err);
    REQUIRE_OK(weft_finding_fuse(&all, &plain, &fused, &err), err);
    CHECK_INT(fused.n_calls, plain.n_calls - 1);
    check_reads(&all, &plain, &fused);
    double apart_s = shortest(&plain), fused_s = shortest(&fused);
    double best = fmin(apart_s, fused_s);
    REQUIRE_OK(
        weft_run_find(&f.config, &f.needs.plan, &f.find, &plan, &found, &err),
        err);
    CHECK(fabs(found.result.value.period - best)
          <= 2 * WEFT_SEARCH_NEAR * best);
    CHECK(found.result.bound <= best * (1 + 1e-9));
    CHECK(found.result.bound >= best * (1 - 2 * WEFT_SEARCH_NEAR));
    weft_plan_release(&plan);
    weft_finding_close(&all);
    close_finding(&f);
}

/* A pair takes no less in a simulation than it is said to at least, and not much
 * more, as there is little to send. */
static void test_pairs(void)
{
    static const char *const word[] = {SMALL, NULL};
    struct finding f;
    struct weft_finding all;
    struct weft_plan plan;
    open_finding(&f, deep, 4, word);
    REQUIRE_OK(
        weft_finding_open(&f.config, &f.needs.plan, &f.find, &all, &err),
        err);
    REQUIRE(weft_finding_fuses(&all));
    REQUIRE_OK(weft_finding_pair(&all, &err), err);
    CHECK(all.n_variants[0] > 0);
    for (int32_t i = 0; i < all.n_variants[0]; i++) {
        const struct weft_option *o = &all.variant[0][i];
        struct weft_simulated s;
        weft_plan_default(&f.needs.plan, &plan);
        plan.call[all.fused[0]] = o->plan;
        plan.call[all.fused[1]] = o->with;
        plan.intra_stage_fusion = true;
        struct weft_plan same = plan;
        REQUIRE_OK(weft_fuse_plan(&same, &err), err);
        CHECK(memcmp(same.call, plan.call, sizeof plan.call) == 0);
        REQUIRE_OK(weft_pricer_simulate(all.pricer, &plan, &s, &err), err);
        double took = fmax(s.call_s[all.fused[0]], s.call_s[all.fused[1]]);
        CHECK(o->seconds <= took * (1 + 1e-6));
        CHECK(o->seconds >= 0.5 * took);
        weft_plan_release(&plan);
    }
    weft_finding_close(&all);
    close_finding(&f);
}

/* ---- Recordings that are too large --------------------------------------- */

static bool is_variant(const struct weft_finding *f, int32_t call,
                       const struct weft_call_plan *at)
{
    for (int32_t i = 0; i < f->n_variants[call]; i++)
        if (memcmp(&f->variant[call][i].plan, at, sizeof *at) == 0)
            return true;
    return false;
}

/* Layouts of which a recording takes more than may be are left out, each counted
 * once, and no others. As fused training is asked for, all are priced. */
static void test_left_out(void)
{
    static const char *const word[] = {LONG, "train.intra_stage_fusion=true",
                                       NULL};
    struct finding f;
    int64_t all = 0, some = 0, most = 0;
    bool a_part = false;
    open_finding(&f, fixture.config, 2, word);
    do {
        struct weft_finding one;
        struct weft_priced priced[WEFT_MAX_CALLS];
        int64_t n = 0;
        f.simulate.most_bytes = most;
        REQUIRE_OK(
            weft_finding_open(&f.config, &f.needs.plan, &f.find, &one, &err),
            err);
        all = most > 0 ? all : one.n_priced;
        for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
            for (int32_t k = 0; k < one.candidates[c].n; k++) {
                const struct weft_call_plan *at =
                    &one.candidates[c].at[k].plan;
                int rc = weft_pricer_price(one.pricer, at, 1u << c, priced,
                                           &err);
                CHECK(rc == 0 || rc == WEFT_ENOMEM);
                CHECK(is_variant(&one, c, at) == (rc == 0));
                n += rc == WEFT_ENOMEM;
            }
        CHECK_INT(one.n_left_out, n);
        CHECK_INT(one.n_priced + n, all);
        some = n;
        a_part = a_part || (n > 0 && n < all);
        weft_finding_close(&one);
        most = most > 0 ? most * 9 / 10 : 1 << 21;
    } while (some < all);
    CHECK(a_part);
    close_finding(&f);
}

/* ---- What is fixed ------------------------------------------------------- */

static bool zero_one(const struct weft_flow_call *c,
                     const struct weft_call_plan *p)
{
    return c->kind != WEFT_TRAIN || p->zero == 1;
}

static bool tp_two(const struct weft_flow_call *c,
                   const struct weft_call_plan *p)
{
    return c->kind != WEFT_GENERATE || (p->tp == 2 && p->dp == 2);
}

static bool in_stages(const struct weft_flow_call *c,
                      const struct weft_call_plan *p)
{
    return p->pp == 2 && (c->kind == WEFT_GENERATE || p->micro_batches == 2);
}

/* The actor's on the first two, the critic's, which take most, on the last, the
 * reference's on all. */
static bool halves(const struct weft_flow_call *c,
                   const struct weft_call_plan *p)
{
    int device = strncmp(c->name, "actor", 5) == 0  ? 0
               : strncmp(c->name, "critic", 6) == 0 ? 2
                                                    : -1;
    return device < 0 ? p->mesh.n_devices == 4
                      : p->mesh.device == device && p->mesh.n_devices == 2;
}

/* Branch and bound, without a walk that would find it, has the best choice. */
static void check_search(const struct weft_search_problem *p)
{
    const struct weft_search_how how = {
        .seed = 1, .evaluations = 1, .branches = 1000000};
    struct weft_search *s;
    struct weft_search_result r;
    double best = shortest(p);
    REQUIRE_OK(weft_search_create(p, &s, &err), err);
    REQUIRE_OK(weft_search_run(s, &how, &r, &err), err);
    CHECK(r.fits && fabs(r.value.period - best) <= WEFT_SEARCH_NEAR * best);
    CHECK(r.bound <= best * (1 + 1e-9));
    weft_search_free(s);
}

static int32_t count(const struct weft_search_call *call,
                     const struct weft_call_plan *plan)
{
    int32_t n = 0;
    for (int32_t k = 0; k < call->n_options; k++)
        n += memcmp(&call->option[k].plan, plan, sizeof *plan) == 0;
    return n;
}

/* The options of a search for which something is fixed are those of a free one that
 * are so. */
static void check_fixed(const char *layout, bool searches,
                        bool (*is)(const struct weft_flow_call *c,
                                   const struct weft_call_plan *p))
{
    const char *free_word[] = {"train.intra_stage_fusion=true", "plan=auto",
                               "rollout.prompts=8", NULL};
    const char *word[] = {free_word[0], free_word[1], free_word[2], layout,
                          NULL};
    struct finding f[2];
    struct weft_finding at[2];
    struct weft_search_problem p[2];
    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        open_finding(&f[k], deep_critic, 4, k ? word : free_word);
        REQUIRE_OK(weft_finding_open(&f[k].config, &f[k].needs.plan,
                                     &f[k].find, &at[k], &err),
                   err);
        REQUIRE_OK(weft_finding_place(&at[k], &p[k], &n, &err), err);
    }
    for (int32_t i = 0; i < p[0].n_calls; i++) {
        const struct weft_search_call *all = &p[0].call[i];
        const struct weft_search_call *some = &p[1].call[i];
        const struct weft_flow_call *c =
            &f[0].needs.flow.call[at[0].call_of[i]];
        int32_t n = 0;
        for (int32_t k = 0; k < all->n_options; k++) {
            int32_t found = count(some, &all->option[k].plan);
            CHECK_INT(found, is(c, &all->option[k].plan));
            n += found;
        }
        CHECK(n > 0);
        for (int32_t j = 0; j < some->n_options; j++) {
            CHECK(is(c, &some->option[j].plan));
            CHECK_INT(count(some, &some->option[j].plan), 1);
        }
    }
    if (searches)
        check_search(&p[1]);
    for (int k = 0; k < 2; k++) {
        weft_finding_close(&at[k]);
        close_finding(&f[k]);
    }
}

static void test_fixed(void)
{
    check_fixed("layout=zero=1", false, zero_one);
    check_fixed("layout=actor_generate:dp2tp2", false, tp_two);
    check_fixed("layout=pp2,micro_batches=2", true, in_stages);
    check_fixed("layout=ratio=actor:0.5,critic:0.5", true, halves);
}

/* ---- What is found ------------------------------------------------------ */

static void find(const char *config, int32_t n_devices,
                 const char *const *word, struct weft_plan *plan,
                 struct weft_found *found)
{
    struct finding f;
    open_finding(&f, config, n_devices, word);
    REQUIRE_OK(
        weft_run_find(&f.config, &f.needs.plan, &f.find, plan, found, &err),
        err);
    CHECK(plan->intra_stage_fusion == found->fused[found->taken]);
    double best = INFINITY;
    for (int k = 0; k < 4; k++)
        if (found->best_s[k / 2][k % 2] > 0)
            best = fmin(best, found->best_s[k / 2][k % 2]);
    CHECK(found->simulated.iteration_s <= best * (1 + WEFT_SEARCH_NEAR));
    close_finding(&f);
}

/* Two models of eight layers on four devices: apart each has a pipeline of two
 * stages or waits for the other one. Two small ones are faster side by side, without
 * stages. */
static void test_wins(void)
{
    static const char *const word[] = {SMALL, NULL};
    struct weft_plan plan;
    struct weft_found found;
    find(deep, 4, word, &plan, &found);
    CHECK(plan.intra_stage_fusion);
    CHECK(found.best_s[1][0] < 0.99 * found.best_s[0][0]);
    weft_plan_release(&plan);
    find(fixture.config, 4, word, &plan, &found);
    CHECK(!plan.intra_stage_fusion);
    CHECK(found.best_s[1][0] <= 0
          || found.best_s[1][0] > 1.1 * found.best_s[0][0]);
    weft_plan_release(&plan);
}

/* The problems that finalists are choices of, apart and fused. */
struct problems {
    struct weft_finding all;
    struct weft_search_problem p[2];
};

static void open_problems(struct finding *f, struct problems *out)
{
    int64_t n = 0;
    REQUIRE_OK(weft_finding_open(&f->config, &f->needs.plan, &f->find,
                                 &out->all, &err),
               err);
    REQUIRE(weft_finding_fuses(&out->all));
    REQUIRE_OK(weft_finding_pair(&out->all, &err), err);
    REQUIRE_OK(weft_finding_place(&out->all, &out->p[0], &n, &err), err);
    if (out->all.n_options[0] > 0)
        REQUIRE_OK(weft_finding_fuse(&out->all, &out->p[0], &out->p[1], &err),
                   err);
    REQUIRE_OK(weft_finding_prune(&out->all, &out->p[0], &err), err);
}

/* The plan of a finalist, to be released, as simulated. */
static struct weft_simulated play(struct finding *f, struct problems *p,
                                  const struct weft_found *found, int32_t i,
                                  bool moves, struct weft_plan *plan)
{
    struct weft_simulated one;
    weft_plan_begin(&f->needs.plan, plan);
    weft_finding_choose(&p->all, &p->p[found->fused[i]],
                        found->result.finalist[i].choice, plan);
    plan->inter_stage_fusion = moves;
    REQUIRE_OK(weft_pricer_simulate(p->all.pricer, plan, &one, &err), err);
    return one;
}

/* Simulates all finalists without inter-stage fusion and with it. moved_out: how
 * many are faster with it than without. */
static double fastest(struct finding *f, const struct weft_found *found,
                      int32_t *moved_out)
{
    struct problems p;
    double best = INFINITY;
    open_problems(f, &p);
    for (int32_t i = 0; i < found->result.n_finalists; i++) {
        double s[2];
        for (int moves = 0; moves < 2; moves++) {
            struct weft_plan plan;
            s[moves] = play(f, &p, found, i, moves, &plan).iteration_s;
            best = fmin(best, s[moves]);
            weft_plan_release(&plan);
        }
        *moved_out += s[1] < s[0] * (1 - WEFT_SEARCH_NEAR);
    }
    weft_finding_close(&p.all);
    return best;
}

/* What a run of a plan can take of the device that it takes most of, in any order
 * of its tasks, whose records are the host's. */
static double can_take(const struct finding *f, struct weft_plan *plan)
{
    const struct weft_g_job job = {plan->n_nodes, plan->n_devices, true, 0};
    bool gangs = false;
    int64_t most = 0;
    REQUIRE_OK(weft_trainer_predict(&f->config, &job, &gangs, 0, plan, &err),
               err);
    CHECK(!gangs);
    for (int32_t d = 0; d < plan->n_nodes * plan->n_devices; d++)
        most = weft_max64(most, plan->memory[d][WEFT_MEM_ALL]
                                    - plan->memory[d][WEFT_MEM_TASKS]);
    return (double) most;
}

/* Checks that no finalist that fits in any order is faster than the one that was
 * taken. Returns how many are faster that do not. */
static int32_t n_faster(struct finding *f, const struct weft_found *found)
{
    struct problems p;
    int32_t n = 0;
    open_problems(f, &p);
    for (int32_t i = 0; i < found->result.n_finalists; i++) {
        struct weft_plan plan;
        struct weft_simulated s = play(f, &p, found, i, false, &plan);
        if (s.iteration_s
            < found->simulated.iteration_s * (1 - WEFT_SEARCH_NEAR)) {
            CHECK(can_take(f, &plan) > (double) f->needs.plan.device_bytes);
            n++;
        }
        weft_plan_release(&plan);
    }
    weft_finding_close(&p.all);
    return n;
}

/* With less and less memory, each time too little for the plan that was found
 * before: what is taken fits in any order of its tasks, and is the fastest of the
 * finalists that do, also where faster ones do not. Where no plan does, a sentence
 * says how much of which device is lacking, and of what most is. */
static void test_memory(void)
{
    static const char *const word[] = {"runtime.place=device", NULL};
    struct finding f;
    struct weft_found found;
    struct weft_plan plan;
    char says[100];
    int32_t n_passed_over = 0;
    int rc = 0;
    open_finding(&f, fixture.config, 4, word);
    while (!rc) {
        double has = (double) f.needs.plan.device_bytes;
        rc = weft_run_find(&f.config, &f.needs.plan, &f.find, &plan, &found,
                           &err);
        if (!rc) {
            double bytes = can_take(&f, &plan);
            CHECK(found.memory.all == bytes && !found.memory.by_gangs);
            REQUIRE(bytes <= has);
            if (found.bytes == has) /* there was no other search */
                n_passed_over += n_faster(&f, &found);
            f.needs.plan.device_bytes = (int64_t) bytes - 1;
        }
        weft_plan_release(&plan);
    }
    CHECK(n_passed_over > 0);
    CHECK_INT(rc, WEFT_EINVAL);
    snprintf(says, sizeof says, ", which has %.4g; most of it, ",
             (double) f.needs.plan.device_bytes / 0x1p30);
    CHECK(strstr(err.text, "no plan fits: ") == err.text);
    CHECK(strstr(err.text, " GiB of device ") && strstr(err.text, says)
          && strstr(err.text, " GiB, is "));
    close_finding(&f);
}

/* A run of the plan, or of one device. */
static struct weft_hash train(const char *name, const char *plan)
{
    struct fixture f = fixture;
    char cluster[600];
    snprintf(f.config, sizeof f.config, "%s", deep_critic);
    snprintf(cluster, sizeof cluster, "cluster=%s/cluster.yaml", fixture.dir);
    const char *const word[] = {LONG,
                                cluster,
                                "runtime.place=device",
                                plan ? "runtime.devices=4"
                                     : "runtime.devices=1",
                                plan,
                                NULL};
    struct weft_trainer *t = fixture_open(&f, name, word);
    fixture_steps(t, 3);
    weft_trainer_close(t);
    return fixture_hash(&fixture, name, 3);
}

/* Of responses with a long tail: finalists that are not simulated with
 * inter-stage fusion could not have become the fastest by it. With a large critic
 * it pays, with a small one it does not. What is found trains the same bits. */
static void test_moves(void)
{
    static const char *const word[] = {LONG, NULL};
    char path[600];
    int32_t moved = 0;
    lengths = "lognormal:40:1";
    for (int k = 0; k < 2; k++) {
        struct finding f;
        struct weft_found found;
        struct weft_plan plan;
        open_finding(&f, k ? deep_critic : fixture.config, 4, word);
        f.find.finalists = 6;
        REQUIRE_OK(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan,
                                 &found, &err),
                   err);
        double best = fastest(&f, &found, &moved);
        CHECK(found.simulated.iteration_s <= best * (1 + WEFT_SEARCH_NEAR));
        CHECK(plan.inter_stage_fusion == found.moves);
        CHECK_INT(found.moves, k);
        snprintf(path, sizeof path, "plan=%s/moves.json", fixture.dir);
        REQUIRE_OK(weft_plan_write(&plan, path + 5, &err), err);
        weft_plan_release(&plan);
        close_finding(&f);
    }
    CHECK(moved > 0);
    CHECK(weft_hash_equal(train("still", NULL), train("moves", path)));
    snprintf(path, sizeof path, "%s/moves/decisions.jsonl", fixture.dir);
    CHECK(weft_file_exists(path));
    lengths = "max";
}

/* A configuration that asks for it gets it, though it is slower. */
static void test_asked(void)
{
    static const char *const word[] = {SMALL, "train.intra_stage_fusion=true",
                                       "rollout.inter_stage_fusion=true",
                                       NULL};
    struct weft_plan plan;
    struct weft_found found;
    find(fixture.config, 2, word, &plan, &found);
    CHECK(plan.intra_stage_fusion && plan.inter_stage_fusion);
    CHECK(found.best_s[0][0] <= 0 && found.best_s[0][1] <= 0
          && found.best_s[1][0] <= 0);
    weft_plan_release(&plan);
}

/* ---- Training ----------------------------------------------------------- */

/* What is found trains the bits of one device. */
static void test_bits(void)
{
    char cluster[600], path[600];
    struct weft_plan plan;
    struct weft_hash hash[2];
    struct fixture f = fixture;
    snprintf(f.config, sizeof f.config, "%s", deep);
    snprintf(cluster, sizeof cluster, "cluster=%s/cluster.yaml", fixture.dir);
    for (int k = 0; k < 2; k++) {
        const char *const word[] = {SMALL,
                                    k ? "plan=auto" : "seed=5",
                                    k ? "runtime.devices=4"
                                      : "runtime.devices=1",
                                    "runtime.place=device",
                                    cluster,
                                    NULL};
        struct weft_trainer *t = fixture_open(&f, k ? "found" : "one", word);
        fixture_steps(t, 3);
        weft_trainer_close(t);
        hash[k] = fixture_hash(&fixture, k ? "found" : "one", 3);
    }
    CHECK(weft_hash_equal(hash[0], hash[1]));
    snprintf(path, sizeof path, "%s/found/plan.json", fixture.dir);
    REQUIRE_OK(weft_plan_read(path, NULL, &plan, &err), err);
    CHECK(plan.intra_stage_fusion);
    weft_plan_release(&plan);
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/find", {"make", test_make}, {"every_plan", test_every_plan},
           {"pairs", test_pairs}, {"left_out", test_left_out},
           {"fixed", test_fixed}, {"wins", test_wins}, {"moves", test_moves},
           {"memory", test_memory}, {"asked", test_asked},
           {"bits", test_bits}, {"remove", test_remove})
