/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a configuration: keys in the file's tree and in words of the command
 * line, which override them, are looked up in the table. Keys that were not
 * given get their defaults; then combinations are checked.
 */
#include "config/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"

int weft_config_nomem(const struct weft_config_reader *r)
{
    return weft_err_nomem(r->err, r->name, WEFT_KEY_NAME);
}

int weft_config_find(const struct weft_config_reader *r, const char *name)
{
    for (size_t i = 0; i < r->list.n; i++)
        if (strcmp(r->list.key[i]->name, name) == 0)
            return (int) i;
    return -1;
}

static int set_value(const struct weft_config_reader *r,
                     const struct weft_config_key *k,
                     const struct weft_yaml *node, void *base)
{
    return weft_config_set(k, node, r->dir, base, r->err);
}

int weft_config_set_standard(const struct weft_config_reader *r,
                             const struct weft_config_key *k, void *base)
{
    const char *text = weft_config_standard(k, r->c->algorithm);
    if (!text)
        return 0;
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    struct weft_yaml node = {
        .type = WEFT_YAML_SCALAR, .name = "default", .text = copy};
    return set_value(r, k, &node, base);
}

/* The algorithm comes first: other keys' defaults depend on it. */
static int fill_algorithm(struct weft_config_reader *r)
{
    const struct weft_config_algorithm *const *all = r->c->schema->algorithms;
    const struct weft_yaml *node = r->given[0];
    struct weft_string words = {0};
    int which = 0, rc = 0;
    if (node && !weft_yaml_is_null(node)) {
        weft_config_algorithm_words(r->c->schema, &words);
        struct weft_config_key key = *r->list.key[0];
        key.type = WEFT_KEY_ENUM;
        key.offset = 0;
        key.words = words.data;
        rc = words.failed ? weft_config_nomem(r)
                          : set_value(r, &key, node, &which);
    }
    weft_string_release(&words);
    r->c->algorithm = all[which];
    return rc;
}

/* Sets the keys that the algorithm knows, or the others. */
static int fill_keys(struct weft_config_reader *r, bool known)
{
    int rc = 0;
    for (size_t k = 1; k < r->list.n && !rc; k++) {
        const struct weft_config_key *key = r->list.key[k];
        const struct weft_yaml *node = r->given[k];
        if (weft_config_knows(r->c->algorithm, key) != known)
            continue;
        if (node && weft_yaml_is_null(node))
            node = r->given[k] = NULL;
        if (node && !known)
            rc = weft_yaml_err(node, r->err, WEFT_EINVAL,
                               "'%s' is not a key of algorithm %s", key->name,
                               weft_config_algorithm(r->c));
        else
            rc = node ? set_value(r, key, node, r->c)
                      : weft_config_set_standard(r, key, r->c);
    }
    return rc;
}

/* Keys of several algorithms may have one field: that of the algorithm's own
 * key comes last. */
static int fill(struct weft_config_reader *r)
{
    int rc = fill_algorithm(r);
    if (!rc)
        rc = fill_keys(r, false);
    return rc ? rc : fill_keys(r, true);
}

static bool is_given(const struct weft_config_reader *r, const char *name)
{
    return r->given[weft_config_find(r, name)] != NULL;
}

/* Each group costs zeroing a gradient and adding it to another, and up to
 * log2(G) gradients are held at a time. With a model of 20M parameters and
 * mini-batches of 128 samples of 15 tokens, 64 groups instead of 4 took 1.8
 * times the CPU time of training and 1.7 times the memory (2026-11). With long
 * samples the difference is small. */
static int32_t default_groups(const struct weft_config *c)
{
    enum { FEW = 4, GROUP_TOKENS = 512 };
    bool generates = weft_config_generates(c);
    int64_t n = generates ? (int64_t) c->rollout.prompts
                                * c->rollout.samples_per_prompt
                                / c->policy.mini_batches
                          : c->train.batch;
    int64_t tokens = n
                   * (generates ? c->rollout.max_new_tokens
                                : c->data.max_prompt_tokens);
    int64_t most = weft_max64(tokens / GROUP_TOKENS, FEW);
    int32_t groups = 1;
    while (groups < WEFT_DEFAULT_GROUPS && 2 * groups <= n
           && 2 * groups <= most)
        groups *= 2;
    return groups;
}

/* What the algorithm's tables derive. */
static int derive_tables(struct weft_config_reader *r)
{
    int rc = 0;
    for (size_t t = 0; r->c->algorithm->tables[t] && !rc; t++) {
        const struct weft_config_derived *d =
            r->c->algorithm->tables[t]->derived;
        for (; d && d->key && !rc; d++)
            rc = is_given(r, d->key) ? 0 : d->set(r->c);
    }
    return rc ? weft_config_nomem(r) : 0;
}

/* Sets defaults that depend on other keys. */
static int derive(struct weft_config_reader *r)
{
    struct weft_config *c = r->c;
    int rc = derive_tables(r);
    if (rc)
        return rc;
    c->numerics.default_dtype = !is_given(r, "numerics.dtype");
    c->numerics.default_groups = c->numerics.gradient_groups == 0;
    if (c->numerics.default_groups)
        c->numerics.gradient_groups = default_groups(c);
    if (c->run_dir)
        return 0;
    char *name = weft_path_name(r->name), *cwd = weft_config_cwd();
    char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && dot != name)
        *dot = 0;
    char *runs = cwd ? weft_path_join(cwd, "runs") : NULL;
    c->run_dir = runs && name ? weft_path_join(runs, name) : NULL;
    weft_free(name);
    weft_free(cwd);
    weft_free(runs);
    return c->run_dir ? 0 : weft_config_nomem(r);
}

static int read_tree(struct weft_config_reader *r,
                     const struct weft_yaml *root, int n_override,
                     const char *const *override)
{
    int rc = weft_config_give_tree(r, root);
    if (!rc && n_override > 0)
        rc = weft_config_give_words(r, n_override, override);
    if (!rc)
        rc = fill(r);
    if (!rc)
        rc = weft_config_read_rewards(r);
    if (!rc)
        rc = derive(r);
    if (!rc)
        rc = weft_config_check(r->c, r->name, &r->list, r->given, r->err);
    return rc;
}

int weft_config_parse(const char *text, size_t n, const char *name,
                      const char *dir, int n_override,
                      const char *const *override,
                      const struct weft_config_schema *schema,
                      struct weft_config *out, struct weft_err *err)
{
    struct weft_config c = {.schema = schema,
                            .algorithm = schema->algorithms[0]};
    struct weft_config_reader r = {.name = name, .c = &c, .err = err};
    struct weft_yaml *root = NULL;
    char *real = realpath(dir, NULL);
    weft_config_list(schema, &r.list);
    r.dir = weft_strdup(real ? real : dir);
    free(real);
    int rc = r.dir ? weft_yaml_parse(text, n, name, &root, err)
                   : weft_config_nomem(&r);
    if (!rc)
        rc = read_tree(&r, root, n_override, override);
    weft_config_free_words(&r);
    weft_free(r.dir);
    weft_yaml_free(root);
    if (rc)
        weft_config_release(&c);
    else
        *out = c;
    return rc;
}

int weft_config_read(const char *path, int n_override,
                     const char *const *override,
                     const struct weft_config_schema *schema,
                     struct weft_config *out, struct weft_err *err)
{
    char *text, *dir;
    size_t n;
    int rc = weft_file_read(path, (size_t) 1 << 20, &text, &n, err);
    if (rc)
        return rc;
    dir = weft_path_parent(path);
    rc = dir ? weft_config_parse(text, n, path, dir, n_override, override,
                                 schema, out, err)
             : weft_err_nomem(err, path, strlen(path));
    weft_free(dir);
    weft_free(text);
    return rc;
}

/* Keys of several algorithms may have one field, which is freed once. */
static void release(const struct weft_config_key *key, void *base)
{
    char **at = (char **) ((char *) base + key->offset);
    size_t n = key->type == WEFT_KEY_LIST ? WEFT_MAX_ARGV
             : key->type == WEFT_KEY_STRING || key->type == WEFT_KEY_WORD
                       || key->type == WEFT_KEY_PATH
                       || key->type == WEFT_KEY_PATH_CWD
                 ? 1
                 : 0;
    for (size_t i = 0; i < n; i++) {
        weft_free(at[i]);
        at[i] = NULL;
    }
}

void weft_config_release(struct weft_config *config)
{
    struct weft_key_list list = {.n = 0};
    if (config->schema)
        weft_config_list(config->schema, &list);
    for (size_t k = 0; k < list.n; k++)
        release(list.key[k], config);
    for (int32_t i = 0; i < config->n_rewards; i++)
        for (size_t k = 0; k < weft_reward_n_keys; k++)
            release(&weft_reward_keys[k], &config->reward[i]);
    *config = (struct weft_config){0};
}
