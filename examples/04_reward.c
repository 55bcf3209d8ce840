/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reward function of one's own: half a point for the right number of
 * digits, half for the right order. The configuration says `type: callback`.
 *
 *     $ examples/04_reward examples/04_reward.yaml run_dir=runs/reward
 */
#include <string.h>

#include "check.h"

/* Called once per sample; the score is what PPO makes larger. */
static int score(void *ctx, const struct weft_reward_sample *sample,
                 double *score_out, struct weft_err *err)
{
    int *n_calls = ctx;
    (void) err;
    (*n_calls)++;
    /* Texts have a length: a model can write zero bytes too. */
    struct weft_str answer = sample->response, right = sample->label;
    bool long_enough = answer.n == right.n;
    *score_out = 0.5 * long_enough
               + 0.5 * (long_enough && !memcmp(answer.s, right.s, right.n));
    return 0;
}

int main(int argc, char **argv)
{
    struct weft_err err = {0};
    struct weft_trainer *trainer;
    int n_calls = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s CONFIG.yaml [key=value ...]\n", argv[0]);
        return 2;
    }
    CHECK(weft_trainer_open(argv[1], argc - 2, (const char *const *) argv + 2,
                            &trainer, &err));
    weft_trainer_set_reward(trainer, score, &n_calls);
    while (!weft_trainer_done(trainer)) {
        double mean;
        CHECK(weft_trainer_step(trainer, &err));
        CHECK(weft_trainer_metric(trainer, "critic/score/mean", &mean));
        printf("iteration %d: mean score %.3f\n",
               weft_trainer_iteration(trainer), mean);
    }
    printf("%d samples scored\n", n_calls);
    weft_trainer_close(trainer);
    return n_calls > 0 ? 0 : 1;
}
