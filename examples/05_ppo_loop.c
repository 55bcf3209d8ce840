/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PPO in a loop of one's own: stops early when the policy moved too far from
 * the reference, and leaves a checkpoint there.
 *
 *     $ examples/05_ppo_loop examples/quickstart/ppo.yaml 0.5 run_dir=runs/own
 *
 * or on two ranks, which take every decision alike, as all see the same
 * metrics:
 *
 *     $ mpirun -n 2 examples/05_ppo_loop examples/quickstart/ppo.yaml 0.5 \
 *           run_dir=runs/two layout=dp2
 */
#include "check.h"

int main(int argc, char **argv)
{
    struct weft_err err = {0};
    struct weft_trainer *trainer;
    double kl = 0, score = 0, difference = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: %s CONFIG.yaml MAX_KL [key=value ...]\n",
                argv[0]);
        return 2;
    }
    double max_kl = atof(argv[2]);
    CHECK(weft_world_open(&err));
    CHECK(weft_trainer_open(argv[1], argc - 3, (const char *const *) argv + 3,
                            &trainer, &err));
    while (!weft_trainer_done(trainer) && kl <= max_kl) {
        CHECK(weft_trainer_step(trainer, &err));
        CHECK(weft_trainer_metric(trainer, "objective/kl", &kl));
        CHECK(weft_trainer_metric(trainer, "critic/score/mean", &score));
        CHECK(weft_trainer_metric(
            trainer, "rollout_train_logprob_abs_diff_max", &difference));
        if (weft_world_rank() > 0)
            continue;
        printf("iteration %2d  score %.3f  KL %.4f  "
               "|rollout - training log p| %g\n",
               weft_trainer_iteration(trainer), score, kl, difference);
    }
    if (!weft_trainer_done(trainer)) {
        printf("rank %d: KL %.4f is above %.4f: stopping here\n",
               weft_world_rank(), kl, max_kl);
        CHECK(weft_trainer_checkpoint(trainer, &err));
    }
    weft_trainer_close(trainer);
    weft_world_close();
    return difference == 0 ? 0 : 1;
}
