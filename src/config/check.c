/* SPDX-License-Identifier: Apache-2.0 */
/* Checks combinations of keys, and changes when a run resumes. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/yaml.h"
#include "config/keys.h"

struct check {
    const struct weft_config *c;
    const char *name;
    const struct weft_key_list *list;
    const struct weft_yaml *const *given;
    struct weft_err *err;
};

/* Writes an error with the file and line of the key, if it was given. */
WEFT_PRINTF(3, 4)
static int wrong(const struct check *k, const char *key, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < k->list->n; i++)
        if (strcmp(k->list->key[i]->name, key) == 0 && k->given[i])
            return weft_yaml_err(k->given[i], k->err, WEFT_EINVAL, "%s",
                                 text);
    return weft_err_set(k->err, WEFT_EINVAL, "%s: %s", k->name, text);
}

/* Lengths may stand in the place of data. */
static int check_lengths(const struct check *k)
{
    static const char key[] = "data.response_tokens";
    const struct weft_config *c = k->c;
    bool known = c->data.prompt_tokens > 0;
    bool generates = weft_config_generates(c);
    if (c->data.response_tokens > 0 && (!known || generates))
        return wrong(k, key, "'%s' has no meaning %s", key,
                     known ? "where responses are generated"
                           : "without data.prompt_tokens");
    if (c->data.response_tokens == 0 && known && !generates)
        return wrong(k, key,
                     "'%s' is missing: data.prompt_tokens is given, and the "
                     "run generates no responses",
                     key);
    return 0;
}

static int check_required(const struct check *k)
{
    for (size_t i = 0; i < k->list->n; i++) {
        const struct weft_config_key *key = k->list->key[i];
        bool replaced = key->offset == offsetof(struct weft_config, data.path)
                     && k->c->data.prompt_tokens > 0;
        if ((key->flags & WEFT_KEY_REQUIRED) && !k->given[i] && !replaced
            && weft_config_knows(k->c->algorithm, key))
            return wrong(k, key->name, "'%s' is missing: %s", key->name,
                         key->meaning);
    }
    return 0;
}

/* The optimizer whose lowest learning rate the key is, or NULL. */
static const struct weft_optimizer_config *optimizer_of(
    const struct weft_config *c, const struct weft_config_key *key)
{
    static const char end[] = ".min_lr_ratio";
    size_t n = strlen(key->name);
    if (n < sizeof end || strcmp(key->name + n - (sizeof end - 1), end) != 0
        || !weft_config_knows(c->algorithm, key))
        return NULL;
    return (const void *) ((const char *) c + key->offset
                           - offsetof(struct weft_optimizer_config,
                                      min_lr_ratio));
}

static int check_optimizers(const struct check *k)
{
    for (size_t i = 0; i < k->list->n; i++) {
        const struct weft_config_key *key = k->list->key[i];
        const struct weft_optimizer_config *o = optimizer_of(k->c, key);
        if (o && o->schedule == WEFT_LR_CONSTANT && o->min_lr_ratio > 0)
            return wrong(k, key->name,
                         "'%s' has no meaning with a constant schedule; "
                         "set %.*s.schedule to linear or cosine",
                         key->name, (int) strcspn(key->name, "."), key->name);
    }
    return 0;
}

static int check_rules(const struct check *k,
                       const struct weft_config_rule *rule)
{
    struct weft_err err = {0};
    for (; rule && rule->key; rule++)
        if (rule->check(k->c, &err))
            return wrong(k, rule->key, "%s", err.text);
    return 0;
}

static int check_numerics(const struct check *k)
{
    int32_t t = k->c->numerics.tensor_blocks;
    int32_t g = k->c->numerics.gradient_groups;
    if (g & (g - 1))
        return wrong(k, "numerics.gradient_groups",
                     "'numerics.gradient_groups' must be a power of two, not "
                     "%d",
                     g);
    if (t & (t - 1))
        return wrong(k, "numerics.tensor_blocks",
                     "'numerics.tensor_blocks' must be 1, 2, 4, 8, 16 or 32 "
                     "(0: the model's default), not %d",
                     t);
    return 0;
}

/* Exactly one says how long the run is. */
static int check_length(const struct check *k)
{
    const struct weft_config *c = k->c;
    bool both = !weft_config_generates(c);
    if (c->iterations > 0 && c->epochs > 0)
        return wrong(k, "epochs",
                     "'epochs' is %.10g and 'iterations' is %d; set the one "
                     "to 0 that is not to say how long the run is",
                     c->epochs, c->iterations);
    if (c->iterations == 0 && c->epochs == 0)
        return wrong(k, "iterations", "'iterations' is missing%s: %s",
                     both ? " (and 'epochs', which may stand in its place)"
                          : "",
                     weft_config_meaning(c->schema, "iterations"));
    return 0;
}

static int check_plan(const struct check *k)
{
    if (k->c->plan_again.every > 0 && !weft_config_plans(k->c))
        return wrong(k, "plan_again.every",
                     "'plan_again.every' has no meaning where no plan is "
                     "found: set plan to auto, or leave it out");
    if (k->c->plan_again.every > 0 && !weft_config_generates(k->c))
        return wrong(k, "plan_again.every",
                     "'plan_again.every' has no meaning where nothing is "
                     "generated, as lengths do not change: leave it out");
    if (k->c->plan && k->c->layout && !weft_config_plans(k->c))
        return wrong(k, "layout",
                     "'layout' and 'plan' exclude each other: the plan's "
                     "file has a layout for each call");
    return 0;
}

/* Keys of GPUs say nothing where they are not devices. */
static int check_gpus(const struct check *k)
{
    const struct weft_config *c = k->c;
    const char *name = c->runtime.gpus > 0           ? "runtime.gpus"
                     : c->runtime.ranks_per_gpu != 1 ? "runtime.ranks_per_gpu"
                     : c->runtime.cpu_devices != 1   ? "runtime.cpu_devices"
                     : c->runtime.gpu_memory_gib > 0
                         ? "runtime.gpu_memory_gib"
                     : c->runtime.gpu_messages != WEFT_BY_HOST
                         ? "runtime.gpu_messages"
                         : NULL;
    if (!name || c->runtime.devices == WEFT_ON_GPUS)
        return 0;
    return wrong(k, name,
                 "'%s' has no meaning where GPUs are no devices; set "
                 "runtime.devices to gpu, or leave it out",
                 name);
}

static int check_rewards(const struct check *k)
{
    const struct weft_config *c = k->c;
    if (c->n_rewards == 0)
        return wrong(k, "reward",
                     "'reward' is missing: a list of what makes the score, "
                     "like [{type: gsm8k}]");
    for (int32_t i = 0; i < c->n_rewards; i++)
        for (int32_t j = 0; j < i; j++)
            if (strcmp(c->reward[i].name, c->reward[j].name) == 0)
                return wrong(k, "reward",
                             "two rewards are named '%s'; give each a name "
                             "of its own",
                             c->reward[i].name);
    return 0;
}

/* Rules of the algorithm's tables, and its own. */
static int check_all_rules(const struct check *k)
{
    const struct weft_config_algorithm *a = k->c->algorithm;
    int rc = 0;
    for (size_t i = 0; a->tables[i] && !rc; i++)
        rc = check_rules(k, a->tables[i]->rules);
    return rc ? rc : check_rules(k, a->rules);
}

int weft_config_check(const struct weft_config *config, const char *name,
                      const struct weft_key_list *list,
                      const struct weft_yaml *const *given,
                      struct weft_err *err)
{
    struct check k = {config, name, list, given, err};
    int rc = check_length(&k);
    if (!rc)
        rc = check_required(&k);
    if (!rc)
        rc = check_lengths(&k);
    if (!rc)
        rc = check_rules(&k, config->schema->rules);
    if (!rc)
        rc = check_numerics(&k);
    if (!rc)
        rc = check_plan(&k);
    if (!rc)
        rc = check_gpus(&k);
    if (!rc)
        rc = check_optimizers(&k);
    if (!rc && weft_config_generates(config))
        rc = check_rewards(&k);
    return rc ? rc : check_all_rules(&k);
}

int weft_config_check_reward(const struct weft_reward_config *w,
                             const struct weft_yaml *node,
                             struct weft_err *err)
{
    const char *missing = NULL;
    if (w->type == WEFT_REWARD_MODEL && !w->model)
        missing = "model needs 'model', a folder with a scalar head";
    if (w->type == WEFT_REWARD_REGEX && !w->pattern)
        missing = "regex needs 'pattern'";
    if (w->type == WEFT_REWARD_LENGTH && w->target == 0)
        missing = "length needs 'target', in tokens";
    if (w->type == WEFT_REWARD_PROGRAM && !w->command[0])
        missing = "program needs 'command', like [python3, grade.py]";
    if (w->max_tokens > 0 && !w->own_tokenizer)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'max_tokens' is of texts that are encoded "
                             "anew; set own_tokenizer: true, or leave it "
                             "out");
    if (missing)
        return weft_yaml_err(node, err, WEFT_EINVAL, "a reward of type %s",
                             missing);
    bool strictness = w->method
                   && (strcmp(w->method, "strict") == 0
                       || strcmp(w->method, "flexible") == 0);
    bool of_length = w->type == WEFT_REWARD_LENGTH;
    if (w->method && strictness == of_length)
        return weft_yaml_err(
            node, err, WEFT_EINVAL, "'method' must be %s, not '%s'",
            of_length ? "around, most or least" : "strict or flexible",
            w->method);
    for (const char *p = w->name; *p; p++)
        if (*p == ' ' || *p == '/' || (unsigned char) *p < 0x20)
            return weft_yaml_err(node, err, WEFT_EINVAL,
                                 "'name' stands in metric tags and must "
                                 "hold no blank and no '/', not '%s'",
                                 w->name);
    return 0;
}

/* ---- Resuming --------------------------------------------------------- */

/* Whether a path has probably been moved: the old one does not exist any more,
 * and the new one has the same last part. */
static bool moved(const char *old, const char *now)
{
    const char *a = strrchr(old, '/'), *b = strrchr(now, '/');
    return a && b && strcmp(a, b) == 0 && !weft_file_exists(old)
        && !weft_dir_exists(old);
}

static bool same(const struct weft_config_key *k, const void *old,
                 const void *now, struct weft_string *a,
                 struct weft_string *b)
{
    a->n = b->n = 0;
    bool has_a = weft_config_value(k, old, a);
    bool has_b = weft_config_value(k, now, b);
    if (!has_a)
        weft_string_add(a, "not set");
    if (!has_b)
        weft_string_add(b, "not set");
    if (a->failed || b->failed || strcmp(a->data, b->data) == 0)
        return true;
    return has_a && has_b && k->type == WEFT_KEY_PATH
        && moved(*(char *const *) ((const char *) old + k->offset),
                 *(char *const *) ((const char *) now + k->offset));
}

/* Whether a key of these flags may not change. accept: paths of files may. */
static bool changed(const struct weft_config_key *k, unsigned numbers,
                    bool accept, const void *old, const void *now,
                    struct weft_string *a, struct weft_string *b)
{
    return (k->flags & numbers) && !(accept && k->type == WEFT_KEY_PATH)
        && !same(k, old, now, a, b);
}

/* The first key that differs and on which results depend, or NULL. */
static const struct weft_config_key *differing(
    const struct weft_key_list *list, const struct weft_config *old,
    const struct weft_config *now, struct weft_string *a,
    struct weft_string *b)
{
    for (size_t i = 0; i < list->n; i++)
        if (weft_config_knows(now->algorithm, list->key[i])
            && changed(list->key[i], WEFT_KEY_NUMBERS,
                       now->resume.accept_changed_inputs, old, now, a, b))
            return list->key[i];
    return NULL;
}

static const struct weft_config_key *differing_reward(
    const struct weft_reward_config *old,
    const struct weft_reward_config *now, bool accept, struct weft_string *a,
    struct weft_string *b)
{
    unsigned types = 1u << now->type | 1u << old->type;
    for (size_t i = 0; i < weft_reward_n_keys; i++)
        if ((weft_reward_keys[i].flags & types)
            && changed(&weft_reward_keys[i], WEFT_REWARD_KEY_NUMBERS, accept,
                       old, now, a, b))
            return &weft_reward_keys[i];
    return NULL;
}

/* Whether learning rates depend on the number of iterations. */
static bool scheduled(const struct weft_config *c,
                      const struct weft_key_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct weft_optimizer_config *o = optimizer_of(c, list->key[i]);
        if (o && o->schedule != WEFT_LR_CONSTANT)
            return true;
    }
    return false;
}

/* A run whose learning rates depend on its length keeps it, and a run by epochs
 * cuts the data otherwise than one by iterations. */
static int check_resumed_length(const struct weft_config *old,
                                const struct weft_config *now,
                                const struct weft_key_list *list,
                                struct weft_err *err)
{
    bool was = old->epochs > 0, is = now->epochs > 0;
    if (was == is && old->iterations == now->iterations
        && !(old->epochs < now->epochs || old->epochs > now->epochs))
        return 0;
    if (was != is)
        return weft_err_set(err, WEFT_EINVAL,
                            "the run in '%s' has its length from '%s', not "
                            "from '%s'; it can only go on with what it began "
                            "with",
                            now->run_dir, was ? "epochs" : "iterations",
                            is ? "epochs" : "iterations");
    if (!scheduled(now, list))
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "the run in '%s' has %.10g %s, not %.10g, and its "
                        "learning rate's schedule depends on them",
                        now->run_dir, was ? old->epochs : old->iterations,
                        was ? "epochs" : "iterations",
                        is ? now->epochs : now->iterations);
}

/* name: the key as the user knows it. */
static int refuse(const struct weft_config *now,
                  const struct weft_config_key *k, const char *name,
                  const char *a, const char *b, struct weft_err *err)
{
    return weft_err_set(err, WEFT_EINVAL,
                        "the run in '%s' has '%s' %.200s, not %.200s; it can "
                        "only go on with what it began with (set it back, "
                        "%sor take another run_dir)",
                        now->run_dir, name, a, b,
                        k->type == WEFT_KEY_PATH
                            ? "set resume.accept_changed_inputs=true, "
                            : "");
}

static int check_reward_resume(const struct weft_config *old,
                               const struct weft_config *now,
                               struct weft_string *a, struct weft_string *b,
                               struct weft_err *err)
{
    if (old->n_rewards != now->n_rewards)
        return weft_err_set(err, WEFT_EINVAL,
                            "the run in '%s' has %d rewards, not %d; it can "
                            "only go on with what it began with",
                            now->run_dir, old->n_rewards, now->n_rewards);
    for (int32_t r = 0; r < now->n_rewards; r++) {
        const struct weft_config_key *k = differing_reward(
            &old->reward[r], &now->reward[r],
            now->resume.accept_changed_inputs, a, b);
        char name[96];
        if (!k)
            continue;
        snprintf(name, sizeof name, "%.60s of reward %d", k->name, r + 1);
        return refuse(now, k, name, a->data, b->data, err);
    }
    return 0;
}

int weft_config_check_resume(const struct weft_config *old,
                             const struct weft_config *now,
                             struct weft_err *err)
{
    struct weft_string a = {0}, b = {0};
    struct weft_key_list list;
    weft_config_list(now->schema, &list);
    const struct weft_config_key *k = differing(&list, old, now, &a, &b);
    int rc = 0;
    if (k)
        rc = refuse(now, k, k->name, a.data, b.data, err);
    else
        rc = check_resumed_length(old, now, &list, err);
    if (!rc)
        rc = check_reward_resume(old, now, &a, &b, err);
    if (!rc)
        rc = weft_string_check(&a, "the configuration", err);
    if (!rc)
        rc = weft_string_check(&b, "the configuration", err);
    weft_string_release(&a);
    weft_string_release(&b);
    return rc;
}
