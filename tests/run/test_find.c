/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that are found with fused training among their options: every choice of
 * a small run, by brute force, against the search's best and its bound; fused
 * pairs' bounds against simulations; where fused training wins and where it
 * must not; and the same bits as on one device.
 */
#include "find_fixture.h"

#include "fuse/fuse.h"
#include "plan/strategy.h"
#include "run/predict/pricer_inside.h"

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

/* A pair takes no less in a simulation than it is said to at least, and not
 * much more, as there is little to send. */
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
        REQUIRE_OK(
            weft_pricer_simulate(all.pricer, &plan, NULL, NULL, &s, &err),
            err);
        double took = fmax(s.call_s[all.fused[0]], s.call_s[all.fused[1]]);
        CHECK(o->seconds <= took * (1 + 1e-6));
        CHECK(o->seconds >= 0.5 * took);
        weft_plan_release(&plan);
    }
    weft_finding_close(&all);
    close_finding(&f);
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
 * stages or waits for the other one. Two small ones are faster side by side,
 * without stages. */
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
    REQUIRE_OK(
        weft_pricer_simulate(p->all.pricer, plan, NULL, NULL, &one, &err),
        err);
    return one;
}

/* Simulates all finalists without inter-stage fusion and with it. moved_out:
 * how many are faster with it than without. */
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

/* What a run of a plan can take of the device that it takes most of, in any
 * order of its tasks, whose records are the host's. */
static double can_take(const struct finding *f, struct weft_plan *plan)
{
    const struct weft_g_job job = {plan->n_nodes, plan->n_devices, true, 0,
                                   false};
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

/* Checks that no finalist that fits in any order is faster than the one that
 * was taken. Returns how many are faster that do not. */
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

/* Of the plans that systems known by name have: how many fit. */
static int32_t n_named_that_fit(const struct finding *f)
{
    const char *name;
    int32_t n = 0;
    for (int32_t i = 0; (name = weft_strategy_name(i, NULL)) != NULL; i++) {
        struct weft_plan plan;
        if (weft_strategy_is_divided(name)
            || weft_plan_strategy(name, &f->needs.plan, &plan, &err) != 0)
            continue;
        n += weft_plan_check(&plan, &f->needs.plan, &err) == 0
          && can_take(f, &plan) <= (double) f->needs.plan.device_bytes;
        weft_plan_release(&plan);
    }
    return n;
}

/* With less and less memory, each time too little for the plan that was found
 * before (in `make check` a tenth less than that): what is taken fits in any order of its tasks, and is the fastest of
 * the finalists that do, also where faster ones do not. Where no plan does, nor
 * does one with a name, and a sentence says how much of which device is
 * lacking, and of what most is. */
static void test_memory(void)
{
    static const char *const word[] = {"runtime.place=device", NULL};
    struct finding f;
    struct weft_found found;
    struct weft_plan plan;
    char says[100];
    double part = weft_test_long() ? 1 : 0.9;
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
            f.needs.plan.device_bytes = (int64_t) (part * bytes) - 1;
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
    CHECK_INT(n_named_that_fit(&f), 0);
    close_finding(&f);
}

/* Bytes that the simulation of a finalist needs, to within a hundredth. */
static int64_t recorded_bytes(struct finding *f, struct problems *p,
                              const struct weft_found *found, int32_t i)
{
    int64_t few = 0, enough = 1 << 30;
    while (enough - few > enough / 100) {
        struct weft_plan plan;
        struct weft_simulated s;
        struct weft_err ignored;
        f->simulate.finalist_bytes = few + (enough - few) / 2;
        weft_plan_begin(&f->needs.plan, &plan);
        weft_finding_choose(&p->all, &p->p[found->fused[i]],
                            found->result.finalist[i].choice, &plan);
        int rc = weft_pricer_simulate(p->all.pricer, &plan, NULL, NULL, &s,
                                      &ignored);
        REQUIRE(rc == 0 || rc == WEFT_ENOMEM);
        *(rc ? &few : &enough) = f->simulate.finalist_bytes;
        weft_plan_release(&plan);
    }
    f->simulate.finalist_bytes = 0;
    return enough;
}

/* With memory for the recordings of some finalists alone, which do not begin
 * with the first, the fastest of these is taken, and the search ends; without
 * memory for any it takes the first one as it has it. */
static void test_large(void)
{
    static const char *const word[] = {"runtime.place=device", NULL};
    struct finding f;
    struct weft_found found;
    struct weft_plan plan;
    struct problems p;
    int64_t bytes[WEFT_SEARCH_FINALISTS] = {0};
    double best = INFINITY;
    open_finding(&f, fixture.config, 4, word);
    REQUIRE_OK(
        weft_run_find(&f.config, &f.needs.plan, &f.find, &plan, &found, &err),
        err);
    weft_plan_release(&plan);
    open_problems(&f, &p);
    int32_t n = found.result.n_finalists, n_small = 0;
    for (int32_t i = 0; i < n; i++)
        bytes[i] = recorded_bytes(&f, &p, &found, i);
    const int64_t limit = bytes[0] - bytes[0] / 50;
    for (int32_t i = 0; i < n; i++) {
        if (bytes[i] > limit)
            continue;
        struct weft_simulated s = play(&f, &p, &found, i, false, &plan);
        weft_plan_release(&plan);
        best = fmin(best, s.iteration_s);
        n_small++;
    }
    REQUIRE(n_small > 0);
    for (int none = 0; none < 2; none++) {
        f.simulate.finalist_bytes = none ? 1 : limit;
        REQUIRE_OK(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan,
                                 &found, &err),
                   err);
        CHECK(found.unplayed == none);
        CHECK_INT(found.finalists, none ? 0 : n_small);
        if (none)
            CHECK_INT(found.taken, 0);
        else
            CHECK(fabs(found.simulated.iteration_s / best - 1)
                  <= WEFT_SEARCH_NEAR);
        weft_plan_release(&plan);
    }
    weft_finding_close(&p.all);
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

/* Finalists that are not simulated with inter-stage fusion could not have become
 * the fastest by it. Where responses have a long tail it pays between four replicas,
 * where all are as long it does not. What is found trains the same bits. */
static void test_moves(void)
{
    static const char *const word[] = {LONG, NULL};
    static const char *const replicas[] = {LONG, "plan=auto",
                                           "layout=actor_generate:dp4", NULL};
    char path[600];
    int32_t moved = 0;
    for (int k = 0; k < 2; k++) {
        struct finding f;
        struct weft_found found;
        struct weft_plan plan;
        lengths = k ? "lognormal:40:1" : "max";
        open_finding(&f, k ? deep_critic : fixture.config, 4,
                     k ? replicas : word);
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

/* What generation is said to take at least when samples move, it takes as
 * simulated, in an iteration with the same samples. Returns how many layouts
 * have less than what they are priced with. */
static int32_t check_generation(struct finding *f, struct weft_finding *all)
{
    int32_t gen = weft_flow_call_of(f->needs.plan.flow, WEFT_GENERATE, -1);
    int32_t n_less = 0;
    const struct weft_finding *moved = all->moved;
    REQUIRE(moved->n_variants[gen] > 0);
    for (int32_t i = 0; i < moved->n_variants[gen]; i++) {
        const struct weft_option *o = &moved->variant[gen][i];
        struct weft_simulated s;
        struct weft_plan plan;
        CHECK(o->plan.dp > 1);
        weft_plan_default(&f->needs.plan, &plan);
        plan.call[gen] = o->plan;
        plan.inter_stage_fusion = true;
        REQUIRE_OK(
            weft_pricer_simulate(all->pricer, &plan, NULL, NULL, &s, &err),
            err);
        CHECK(o->seconds <= s.call_s[gen]);
        for (int32_t k = 0; k < all->n_variants[gen]; k++) {
            const struct weft_option *p = &all->variant[gen][k];
            if (memcmp(&p->plan, &o->plan, sizeof o->plan) != 0)
                continue;
            CHECK(o->seconds <= p->seconds);
            CHECK(o->share * o->seconds <= p->share * p->seconds);
            CHECK(o->seconds > 0.25 * p->seconds);
            CHECK(o->share * o->seconds > 0.1 * p->share * p->seconds);
            n_less += o->seconds < 0.99 * p->seconds;
        }
        weft_plan_release(&plan);
    }
    return n_less;
}

/* The certificate for plans whose last samples move is the least bound of all
 * choices of layouts, or the model's best; no finalist is faster than it as
 * simulated, but for what the model is off by. */
static void test_moved_bound(void)
{
    static const char *const word[] = {LONG, NULL};
    int32_t n_less = 0, moved = 0;
    lengths = "lognormal:40:1";
    for (int k = 0; k < 2; k++) {
        struct finding f;
        struct problems p;
        struct weft_search_problem with[2];
        struct weft_found found;
        struct weft_plan plan;
        int64_t n = 0;
        open_finding(&f, k ? deep_critic : fixture.config, 2, word);
        f.find.finalists = 4;
        REQUIRE_OK(weft_run_find(&f.config, &f.needs.plan, &f.find, &plan,
                                 &found, &err),
                   err);
        weft_plan_release(&plan);
        open_problems(&f, &p);
        REQUIRE(weft_finding_moves(&p.all));
        REQUIRE_OK(weft_finding_move(&p.all, &err), err);
        REQUIRE(weft_finding_can_move(&p.all));
        REQUIRE_OK(weft_finding_place(p.all.moved, &with[0], &n, &err), err);
        double least = fmin(shortest(&with[0]), p.all.moved->left_out_s);
        if (p.all.moved->n_options[0] > 0) {
            REQUIRE_OK(
                weft_finding_fuse(p.all.moved, &with[0], &with[1], &err),
                err);
            least = fmin(least, shortest(&with[1]));
        }
        least = fmin(least, found.result.value.period);
        CHECK(fabs(found.moved_bound - least)
              <= 2 * WEFT_SEARCH_NEAR * least);
        CHECK(found.moved_bound <= 1.05 * fastest(&f, &found, &moved));
        weft_finding_close(&p.all);
        /* of the iteration that simulations show */
        REQUIRE_OK(weft_finding_open(&f.config, &f.needs.plan, &f.find,
                                     &p.all, &err),
                   err);
        p.all.pricer->t->settings.warmup++;
        REQUIRE_OK(weft_finding_move(&p.all, &err), err);
        p.all.pricer->t->settings.warmup--;
        n_less += check_generation(&f, &p.all);
        weft_finding_close(&p.all);
        close_finding(&f);
    }
    CHECK(n_less > 0);
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

WEFT_TESTS("run/find", {"make", make_runs}, {"every_plan", test_every_plan},
           {"pairs", test_pairs}, {"wins", test_wins}, {"moves", test_moves},
           {"moved_bound", test_moved_bound}, {"memory", test_memory},
           {"large", test_large}, {"asked", test_asked}, {"bits", test_bits},
           {"remove", test_remove})
