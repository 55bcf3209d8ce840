/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device infers which samples, and when, by the clock that costs give:
 * beside list scheduling by hand. A layer takes a second, whatever it does, so
 * a decode step takes two, and a micro-batch, which has one sample, as much.
 */
#include "described_run.h"
#include "second_costs.h"

enum { SAMPLES = 12, SETS = 2, DEVICES = 4, CALLS = 2, LONGEST = 60 };

static struct fixture fixture, two; /* two sets of samples are generated */
static struct weft_err err;

/* a reward model, in tokens of its own and in the policy's */
static char reads[700], scores[700];

static void setup(void)
{
    struct weft_init_options o = fixture_model();
    fixture_make(&fixture);
    o.scalar_head = true;
    o.tied = false;
    fixture_init_model(&fixture, "reads", &o);
    snprintf(reads, sizeof reads,
             "reward=[{type: model, model: %s/reads, own_tokenizer: true}]",
             fixture.dir);
    snprintf(scores, sizeof scores, "reward=[{type: model, model: %s/reads}]",
             fixture.dir);
    two = remax_fixture(&fixture);
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

/* Micro-batches of each device that are inserted before the last sample is
 * retired, and of all; and by calls how many samples are retired before weights
 * are copied for it; -1: none are. */
struct dealt {
    int before[DEVICES], all[DEVICES];
    int retired[WEFT_MAX_CALLS];
};

static void count(const struct weft_trainer *t,
                  const struct weft_recording *r, struct dealt *out)
{
    int64_t last = -1;
    int n_retired = 0;
    memset(out, 0, sizeof *out);
    memset(out->retired, -1, sizeof out->retired);
    for (int64_t i = 0; i < r->n_tasks; i++)
        if (strcmp(weft_recording_op(r, i), "gen_retire") == 0)
            last = i;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *x = &r->task[i];
        const char *op = weft_recording_op(r, i);
        n_retired += strcmp(op, "gen_retire") == 0;
        if (strcmp(op, "copy") == 0 && out->retired[x->call] < 0)
            out->retired[x->call] = n_retired;
        if (t->flow.call[x->call].kind != WEFT_INFER || x->micro_batch < 0
            || strcmp(op, "embed") != 0)
            continue;
        out->all[x->device]++;
        out->before[x->device] += i < last;
    }
}

/* Who says what inference takes; OFF: nobody, without inter-stage fusion; SAID:
 * nobody, but samples are to move. */
enum says { OFF, NOBODY, SAID, COSTS, A_RUN };

/* The decisions of a run that had these costs, and moved nothing. */
static void write_decisions(const struct weft_trainer *t, const char *path)
{
    FILE *f = fopen(path, "w");
    const char *comma = "";
    REQUIRE(f != NULL);
    fputs("{\"iteration\": 1, \"call\": \"actor_generate\", "
          "\"remaining\": 0, \"instances\": 0, \"most_batch\": 0, "
          "\"pace\": {\"step\": [2, 0], \"token\": [0, 0], \"infer\": {",
          f);
    for (int32_t c = 0; c < t->flow.n_calls; c++)
        if (t->flow.call[c].kind == WEFT_INFER) {
            fprintf(f, "%s\"%s\": [2, 0]", comma, t->flow.call[c].name);
            comma = ", ";
        }
    fputs("}}}\n", f);
    REQUIRE(fclose(f) == 0);
}

/* The first sample of each set, which is device 0's, has `longest` tokens, the
 * others one. */
static void deal_with(const struct fixture *f, const char *reward,
                      const char *layout, int longest, enum says says,
                      struct dealt *out)
{
    const struct weft_g_job job = {1, DEVICES, true, 0, false};
    const char *word[] = {"data.shuffle=false",
                          "runtime.overlap=false",
                          layout,
                          "rollout.max_new_tokens=60",
                          "rollout.chunk_tokens=2",
                          says == OFF ? "rollout.inter_stage_fusion=false"
                                      : "rollout.inter_stage_fusion=true",
                          says == SAID ? "rollout.remaining=0.3"
                                       : "rollout.remaining=0",
                          "train.micro_batch_tokens=1",
                          reward};
    struct described_run d;
    struct weft_cluster cluster;
    int32_t n_total[SETS * SAMPLES];
    char path[600];
    snprintf(path, sizeof path, "%s/decisions.jsonl", fixture.dir);
    describe_run(f, &job, (int) WEFT_COUNT(word), word, &d);
    for (int i = 0; i < SETS * SAMPLES; i++)
        n_total[i] = i % SAMPLES == 0 ? longest : 1;
    if (says == A_RUN)
        write_decisions(d.t, path);
    const struct weft_recorded how = {
        .rank = -1,
        .iterations = 1,
        .n_total = n_total,
        .responses = true,
        .decisions = says == A_RUN ? path : NULL,
        .costs = says == COSTS ? second_costs(&job, &cluster) : NULL};
    REQUIRE_OK(weft_run_record(d.t, &how, &d.r, &err), err);
    count(d.t, &d.r, out);
    forget_run(&d);
}

static void deal(const char *layout, int longest, enum says says,
                 struct dealt *out)
{
    deal_with(&fixture, "reward=[{type: callback}]", layout, longest, says,
              out);
}

/* The sample takes 120 s, the 22 micro-batches of the others 44 s: all are
 * dealt to the other three devices before it ends, to none more than two above
 * its share. */
static void test_long_tail(void)
{
    struct dealt d;
    deal("layout=dp4", LONGEST, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    CHECK_INT(d.all[0] + d.all[1] + d.all[2] + d.all[3], CALLS * SAMPLES);
    CHECK_INT(d.before[1] + d.before[2] + d.before[3], CALLS * (SAMPLES - 1));
    for (int k = 1; k < DEVICES; k++)
        CHECK(abs(3 * d.before[k] - CALLS * (SAMPLES - 1)) <= 6);
}

/* Without costs fusion deals as none would: to all devices their shares, as
 * samples end, also to the one that still generates. */
static void test_no_costs(void)
{
    for (int longest = 4; longest <= LONGEST; longest += LONGEST - 4) {
        struct dealt off, d;
        deal("layout=dp4", longest, OFF, &off);
        deal("layout=dp4", longest, NOBODY, &d);
        CHECK(memcmp(&off, &d, sizeof d) == 0);
        for (int k = 0; k < DEVICES; k++)
            CHECK_INT(d.all[k], CALLS * SAMPLES / DEVICES);
        CHECK_INT(d.before[0], CALLS * SAMPLES / DEVICES);
    }
}

/* Where samples are to move, but no costs are known, the devices that are freed
 * have all that has ended, also the last sample, behind which nothing comes to
 * make its micro-batch full. */
static void test_said(void)
{
    struct dealt d;
    deal("layout=dp4", LONGEST, SAID, &d);
    CHECK_INT(d.before[0], 0);
    CHECK_INT(d.before[1] + d.before[2] + d.before[3], CALLS * (SAMPLES - 1));
}

/* A device is given no more than it should have done until the next status has
 * come: not all that has ended, when the sample has 4 tokens. What is left then
 * is for all devices, so that all should be done at about the same time: device
 * 0 at 8 s and two for each micro-batch, the others at 4 s, when the first
 * statuses came, and two for each. */
static void test_short_tail(void)
{
    struct dealt d;
    int least = 1 << 30, most = 0;
    deal("layout=dp4", 4, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    CHECK(d.before[1] + d.before[2] + d.before[3] < CALLS * (SAMPLES - 1));
    CHECK(d.all[0] > 0);
    for (int k = 0; k < DEVICES; k++) {
        int at = (k == 0 ? 8 : 4) + 2 * d.all[k];
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    CHECK(most - least <= 2);
}

/* ReMax generates two sets on the same devices, whose chunks take turns there:
 * device 0 is done with a long sample of each at 16 s, two others at 8 s, and
 * the last one, which has no greedy samples, at 4 s. A micro-batch of any set
 * takes two. */
static void test_two_sets(void)
{
    enum { ALL = 2 * SAMPLES + SAMPLES / 2 };
    static const int done[DEVICES] = {16, 8, 8, 4};
    struct dealt d;
    int least = 1 << 30, most = 0;
    deal_with(&two, scores, "layout=dp4", 4, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    CHECK_INT(d.all[0] + d.all[1] + d.all[2] + d.all[3], ALL);
    for (int k = 0; k < DEVICES; k++) {
        int at = done[k] + 2 * d.all[k];
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    CHECK(most - least <= 2);
    deal_with(&two, scores, "layout=dp4", LONGEST, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    CHECK_INT(d.before[1] + d.before[2] + d.before[3], ALL - 1);
}

/* A reward model reads texts in tokens of its own, once their samples have left
 * their instances, which those that are done do at once. The clock has all
 * three calls. */
static void test_texts(void)
{
    enum { ALL = CALLS + 1 };
    struct dealt d;
    deal_with(&fixture, reads, "layout=dp4", LONGEST, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    CHECK_INT(d.all[0] + d.all[1] + d.all[2] + d.all[3], ALL * SAMPLES);
    CHECK_INT(d.before[1] + d.before[2] + d.before[3], ALL * (SAMPLES - 1));
    for (int k = 1; k < DEVICES; k++)
        CHECK(abs(3 * d.before[k] - ALL * (SAMPLES - 1)) <= 6);
    int least = 1 << 30, most = 0;
    deal_with(&fixture, reads, "layout=dp4", 4, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    for (int k = 0; k < DEVICES; k++) {
        int at = (k == 0 ? 8 : 4) + 2 * d.all[k];
        least = at < least ? at : least;
        most = at > most ? at : most;
    }
    CHECK(most - least <= 2);
}

/* Who repeats a run's decisions deals as it did, without its costs. */
static void test_replayed(void)
{
    for (int longest = 4; longest <= LONGEST; longest += LONGEST - 4) {
        struct dealt run, again, without;
        deal("layout=dp4", longest, COSTS, &run);
        deal("layout=dp4", longest, A_RUN, &again);
        deal("layout=dp4", longest, NOBODY, &without);
        CHECK(memcmp(&run, &again, sizeof run) == 0);
        CHECK(memcmp(&run, &without, sizeof run) != 0);
    }
}

/* Weights that lie in shards come where inference needs them when the first
 * sample has ended, and not when the first micro-batch is dealt. */
static void test_weights(void)
{
    struct dealt d;
    int n = 0;
    deal("layout=dp4,zero=3", LONGEST, COSTS, &d);
    CHECK_INT(d.before[0], 0);
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        n += d.retired[c] == 1;
    CHECK_INT(n, 1); /* the critic's: the reference does not lie in shards */
}

WEFT_TESTS("run/deal", {"setup", setup}, {"test_long_tail", test_long_tail},
           {"test_no_costs", test_no_costs}, {"test_said", test_said},
           {"test_short_tail", test_short_tail},
           {"test_two_sets", test_two_sets}, {"test_texts", test_texts},
           {"test_replayed", test_replayed}, {"test_weights", test_weights},
           {"teardown", teardown})
