/* SPDX-License-Identifier: Apache-2.0 */
#include "run/common.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "config/keys.h"
#include "job/gpus.h"
#include "job/same.h"

/* Whether a key may differ between machines. (The runtime compares numbers of
 * devices.) */
static bool is_own(const struct weft_config_key *key)
{
    static const char *const own[] = {
        "runtime.devices",         "runtime.gpus", "runtime.cpu_devices",
        "runtime.gpu_memory_gib",  "runtime.nap",  "runtime.watchdog_s",
        "runtime.memory_limit_gib"};
    for (size_t i = 0; i < WEFT_COUNT(own); i++)
        if (strcmp(key->name, own[i]) == 0)
            return true;
    return key->type == WEFT_KEY_PATH || key->type == WEFT_KEY_PATH_CWD;
}

/* Appends a line "name is value". */
static void add_key(const struct weft_config_key *key, const void *base,
                    const char *prefix, struct weft_string *out)
{
    if (is_own(key))
        return;
    weft_string_addf(out, "'%s%s' is ", prefix, key->name);
    if (!weft_config_value(key, base, out))
        weft_string_add(out, "not set");
    weft_string_add(out, "\n");
}

static void add_config(const struct weft_config *c, struct weft_string *out)
{
    struct weft_key_list list;
    weft_config_list(c->schema, &list);
    for (size_t i = 0; i < list.n; i++)
        if (weft_config_knows(c->algorithm, list.key[i]))
            add_key(list.key[i], c, "", out);
    weft_string_addf(out, "'reward' is a list of %d\n", (int) c->n_rewards);
    for (int32_t r = 0; r < c->n_rewards; r++)
        for (size_t i = 0; i < weft_reward_n_keys; i++)
            if (weft_reward_keys[i].flags & 1u << c->reward[r].type)
                add_key(&weft_reward_keys[i], &c->reward[r], "reward.", out);
}

static void add_hash(const char *what, struct weft_hash hash,
                     struct weft_string *out)
{
    char digits[WEFT_HASH_DIGITS + 1];
    weft_hash_format(hash, digits);
    weft_string_addf(out, "%s has the checksum %s\n", what, digits);
}

static void add_model(const char *name, const struct weft_run_model *m,
                      struct weft_string *out)
{
    const struct weft_shape *s = &m->arch.shape;
    if (s->n_layers > 0)
        weft_string_addf(
            out, "the %s's model has %d layers and %lld numbers\n", name,
            (int) s->n_layers, (long long) weft_shape_n_params(s));
}

static int add_plans(const struct weft_config *c, struct weft_string *out,
                     struct weft_err *err)
{
    struct weft_hash hash;
    uint64_t bytes;
    const struct {
        const char *what, *path;
    } file[] = {{"the plan", weft_config_plans(c) ? NULL : c->plan},
                {"the schedule", c->train.schedule}};
    int rc = 0;
    for (size_t i = 0; i < WEFT_COUNT(file) && !rc; i++) {
        if (!file[i].path)
            continue;
        rc = weft_hash_file(file[i].path, &hash, &bytes, err);
        if (!rc)
            add_hash(file[i].what, hash, out);
    }
    return rc;
}

static int add_prompts(const struct weft_trainer *t, struct weft_string *out,
                       struct weft_err *err)
{
    struct weft_hasher *hasher = weft_hasher_create();
    if (!hasher)
        return weft_err_nomem(err, "a checksum", 1024);
    for (int32_t i = 0; i < t->n_prompts; i++) {
        const struct weft_run_prompt *p = &t->prompt[i];
        weft_hasher_add(hasher, &p->n_prompt, sizeof p->n_prompt);
        weft_hasher_add(hasher, p->token, (size_t) p->n * sizeof *p->token);
        weft_hasher_add(hasher, p->learned,
                        (size_t) p->n_ranges * sizeof *p->learned);
    }
    add_hash("the data", weft_hasher_digest128(hasher), out);
    weft_hasher_free(hasher);
    return 0;
}

/* The kind of a rank's GPUs, and the library of their products. */
static int add_gpus(const struct weft_config *c, struct weft_string *out,
                    struct weft_err *err)
{
    char text[WEFT_GPU_TEXT];
    int32_t n, first;
    int rc = weft_run_gpus(c, &n, &first, err);
    if (rc || n == 0 || !c->numerics.exact)
        return rc;
    rc = weft_gpu_describe(first, text, err);
    if (!rc)
        weft_string_addf(out, "the GPU is '%s'\n", text);
    return rc;
}

static int describe(const struct weft_trainer *t, struct weft_string *out,
                    struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    add_config(c, out);
    for (int32_t r = 0; r < t->flow.n_roles; r++)
        add_model(t->flow.role[r].name, &t->model[r], out);
    int rc = add_plans(c, out, err);
    if (!rc)
        rc = add_prompts(t, out, err);
    if (!rc)
        rc = add_gpus(c, out, err);
    return rc ? rc : weft_string_check(out, "the configuration", err);
}

int weft_run_common(const struct weft_trainer *t, struct weft_err *err)
{
    struct weft_string mine = {0};
    int rc = describe(t, &mine, err);
    rc = weft_run_same(&mine, rc, err);
    weft_string_release(&mine);
    return rc;
}

int weft_run_share_text(char **text, size_t *n, const char *what,
                        struct weft_err *err)
{
    bool first = weft_world_rank() == 0;
    int64_t bytes = first && *text ? (int64_t) *n : 0;
    weft_world_share_from(0, &bytes, sizeof bytes);
    if (!first) {
        weft_free(*text);
        *text = weft_alloc((size_t) bytes + 1, 1);
        *n = (size_t) bytes;
    }
    int rc = weft_world_agree(
        bytes > 0 && *text ? 0 : weft_err_nomem(err, what, (size_t) bytes),
        err);
    if (!rc)
        weft_world_share_from(0, *text, (size_t) bytes);
    return rc;
}
