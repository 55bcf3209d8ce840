/* SPDX-License-Identifier: Apache-2.0 */
/* How long a run is, and with which configuration it may go on. */
#include "config_fixture.h"

/* Opens an SFT run of epochs again, of a linear schedule or none. */
static int resume_epochs(const char *schedule, const char *length)
{
    struct weft_config old;
    char text[200];
    snprintf(text, sizeof text,
             "algorithm: sft\ndata.path: d\nmodel.actor: a\nactor.schedule: "
             "%s\nepochs: 2.5\n",
             schedule);
    REQUIRE_OK(parse(text, 0, NULL), err);
    old = c;
    CHECK(old.epochs > 2.4 && old.iterations == 0);
    const char *const words[] = {"epochs=0", length};
    REQUIRE_OK(parse(text, 2, words), err);
    int rc = weft_config_check_resume(&old, &c, &err);
    weft_config_release(&c);
    weft_config_release(&old);
    return rc;
}

static void test_config_epochs(void)
{
    CHECK_INT(resume_epochs("constant", "epochs=4"), 0);
    CHECK_INT(resume_epochs("linear", "epochs=2.5"), 0);
    CHECK_FAILS(resume_epochs("linear", "epochs=4"), WEFT_EINVAL, err,
                "has 2.5 epochs, not 4, and its learning rate's schedule");
    CHECK_FAILS(resume_epochs("constant", "iterations=4"), WEFT_EINVAL, err,
                "has its length from 'epochs', not from 'iterations'");
    CHECK_FAILS(parse(SFT "epochs: 2\n", 0, NULL), WEFT_EINVAL, err,
                "run.yaml:5: 'epochs' is 2 and 'iterations' is 5; set the "
                "one to 0");
    CHECK_FAILS(parse("algorithm: sft\n", 0, NULL), WEFT_EINVAL, err,
                "'iterations' is missing (and 'epochs', which may stand");
    CHECK_FAILS(parse(SFT "num_train_epochs: 2\n", 0, NULL), WEFT_EINVAL, err,
                "did you mean 'epochs'?");
    CHECK_FAILS(parse("epochs: 2\n", 0, NULL), WEFT_EINVAL, err,
                "'epochs' is not a key of algorithm ppo");
}

static int resume(const char *w)
{
    struct weft_config old;
    REQUIRE_OK(with("actor: {schedule: cosine}\n"), err);
    old = c;
    char text[512];
    snprintf(text, sizeof text, LEAST "actor: {schedule: cosine}\n");
    int rc = parse(text, 1, &w);
    if (!rc) {
        rc = weft_config_check_resume(&old, &c, &err);
        weft_config_release(&c);
    }
    weft_config_release(&old);
    return rc;
}

static void test_config_resume(void)
{
    CHECK_INT(resume("runtime.devices=7"), 0);
    CHECK_INT(resume("train.micro_batch_tokens=7"), 0);
    CHECK_INT(resume("rollout.chunk_tokens=7"), 0);
    CHECK_INT(resume("checkpoint.every=7"), 0);
    CHECK_INT(resume("plan=p.json"), 0);
    CHECK_INT(resume("layout=dp2"), 0);
    CHECK_INT(resume("runtime.place=device"), 0);
    CHECK_INT(resume("train.micro_batches=2"), 0);
    CHECK_INT(resume("train.zero=3"), 0);
    CHECK_INT(resume("model.actor=/other/a"), 0); /* /m/a is nowhere */
    CHECK_FAILS(resume("model.actor=/other/b"), WEFT_EINVAL, err,
                "has 'model.actor' \"/m/a\", not \"/other/b\"");
    CHECK_FAILS(resume("ppo.lambda=0.9"), WEFT_EINVAL, err,
                "has 'ppo.lambda' 0.95, not 0.9");
    CHECK_FAILS(resume("rollout.stop=x"), WEFT_EINVAL, err,
                "'rollout.stop' not set, not \"x\"");
    CHECK_FAILS(resume("iterations=5"), WEFT_EINVAL, err,
                "has 3 iterations, not 5, and its learning rate");
    CHECK_FAILS(resume("reward=[gsm8k, boxed]"), WEFT_EINVAL, err,
                "has 1 rewards, not 2");
    CHECK_FAILS(resume("reward=[{type: gsm8k, weight: 2}]"), WEFT_EINVAL, err,
                "'weight of reward 1' 1, not 2");
    CHECK_FAILS(resume("reward=[boxed]"), WEFT_EINVAL, err,
                "'type of reward 1' gsm8k, not boxed");
    CHECK_INT(resume("reward=[{type: gsm8k, name: other}]"), 0);
}

WEFT_TESTS("config/length", {"test_config_epochs", test_config_epochs},
           {"test_config_resume", test_config_resume})
