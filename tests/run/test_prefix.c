/* SPDX-License-Identifier: Apache-2.0 */
/* gen/prefix_hit_tokens of a run beside a count of the prompts' tokens. */
#include "run/prompts.h"
#include "run_fixture.h"

static struct fixture fixture;

static void setup(void)
{
    fixture_make(&fixture);
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

/* All samples begin at once on one instance: each takes what its prompt has in
 * common with any before it, but its last token, whose logits it needs: whole
 * blocks of 64, and a rest of 8 or more. */
static int64_t common(struct weft_trainer *t, int32_t n, int32_t each)
{
    int64_t sum = 0;
    for (int32_t i = 1; i < n; i++) {
        const struct weft_run_prompt *mine = weft_prompts_draw(t, i / each);
        int32_t best = 0;
        for (int32_t j = 0; j < i; j++) {
            const struct weft_run_prompt *other = weft_prompts_draw(t,
                                                                    j / each);
            int32_t k = 0;
            while (k < mine->n_prompt - 1 && k < other->n_prompt
                   && mine->token[k] == other->token[k])
                k++;
            k -= k % 64 < 8 ? k % 64 : 0;
            best = k > best ? k : best;
        }
        sum += best;
    }
    return sum;
}

static void test_run(void)
{
    enum { SAMPLES = 20 };
    static const struct {
        const char *prompts, *each, *sharing;
        int n_each;
    } row[] = {{"rollout.prompts=20", "rollout.samples_per_prompt=1",
                "rollout.prefix_sharing=true", 1},
               {"rollout.prompts=10", "rollout.samples_per_prompt=2",
                "rollout.prefix_sharing=true", 2},
               {"rollout.prompts=10", "rollout.samples_per_prompt=2",
                "rollout.prefix_sharing=false", 2}};
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        const char *word[] = {row[i].prompts,       row[i].each,
                              row[i].sharing,       "data.shuffle=false",
                              "rollout.slots=20",   "iterations=1",
                              "ppo.mini_batches=1", NULL};
        char name[16];
        double found;
        snprintf(name, sizeof name, "run-%d", (int) i);
        struct weft_trainer *t = fixture_open(&fixture, name, word);
        int64_t expected = i == 2 ? 0 : common(t, SAMPLES, row[i].n_each);
        CHECK(i == 2 || expected > 0);
        fixture_steps(t, 1);
        CHECK(weft_trainer_metric(t, "gen/prefix_hit_tokens", &found) == 0);
        CHECK_INT(found, expected);
        weft_trainer_close(t);
    }
}

WEFT_TESTS("run/prefix", {"setup", setup}, {"test_run", test_run},
           {"teardown", teardown})
