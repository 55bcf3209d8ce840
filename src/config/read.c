/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a configuration: keys in the file's tree and in words of the command
 * line, which override them, are looked up in the table. Keys that were not
 * given get their defaults; then combinations are checked.
 */
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/edit_distance.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "base/yaml.h"
#include "config/keys.h"

enum { MAX_NAME = 256 };

/* A word of the command line, made into a node. */
struct word {
    struct weft_yaml node;  /* a scalar, which owns its text and name */
    struct weft_yaml *tree; /* or the tree of a value that was YAML */
};

struct reader {
    const char *name;
    char *dir; /* absolute */
    struct weft_key_list list;
    struct weft_config *c;
    const struct weft_yaml *given[WEFT_MAX_KEYS]; /* by the list's order */
    const struct weft_yaml *reward;
    int32_t n_words;
    struct word *word;
    struct weft_err *err;
};

static int nomem(const struct reader *r)
{
    return weft_err_nomem(r->err, r->name, MAX_NAME);
}

/* ---- One value -------------------------------------------------------- */

static int set_value(const struct reader *r, const struct weft_config_key *k,
                     const struct weft_yaml *node, void *base)
{
    return weft_config_set(k, node, r->dir, base, r->err);
}

static int set_standard(const struct reader *r,
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

/* ---- Names ------------------------------------------------------------ */

/* Index of a key, or -1. */
static int find(const struct reader *r, const char *name)
{
    for (size_t i = 0; i < r->list.n; i++)
        if (strcmp(r->list.key[i]->name, name) == 0)
            return (int) i;
    return -1;
}

static bool is_group(const struct reader *r, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < r->list.n; i++)
        if (strncmp(r->list.key[i]->name, name, n) == 0
            && r->list.key[i]->name[n] == '.')
            return true;
    return false;
}

/* Error of an unknown key. If it is a map whose first key can be explained,
 * the error is that key's. */
static int unknown(const struct reader *r, const struct weft_yaml *node,
                   const char *name)
{
    const char *meant = weft_config_meant(r->c->schema, name);
    char inside[MAX_NAME];
    if (node->type == WEFT_YAML_MAP && node->n > 0) {
        snprintf(inside, sizeof inside, "%.100s.%.100s", name, node->key[0]);
        if (weft_config_meant(r->c->schema, inside))
            return unknown(r, node->child[0], inside);
    }
    if (meant)
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "unknown key '%.100s'; did you mean '%s'? That "
                             "is: %s",
                             name, meant,
                             weft_config_meaning(r->c->schema, meant));
    return weft_yaml_err(node, r->err, WEFT_EINVAL,
                         "unknown key '%.100s'; 'weft train --keys' lists "
                         "all",
                         name);
}

static int give(struct reader *r, const char *name,
                const struct weft_yaml *node, bool again)
{
    int k = find(r, name);
    if (k < 0)
        return unknown(r, node, name);
    if (r->given[k] && !again)
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "'%s' is given twice, first in line %d", name,
                             r->given[k]->line);
    r->given[k] = node;
    return 0;
}

/* A map in the place of a bool: keys of its group that say how. */
static int walk_how(struct reader *r, const struct weft_yaml *map,
                    const char *of, bool again)
{
    char name[MAX_NAME];
    int group = (int) (strrchr(of, '.') - of), rc = 0;
    for (size_t i = 0; i < map->n && !rc; i++) {
        snprintf(name, sizeof name, "%.*s.%.100s", group, of, map->key[i]);
        int k = find(r, name);
        if (k >= 0 && r->list.key[k]->flags & WEFT_KEY_SAYS_HOW) {
            rc = give(r, name, map->child[i], again);
            continue;
        }
        snprintf(name, sizeof name, "%.100s.%.100s", of, map->key[i]);
        rc = unknown(r, map->child[i], name);
    }
    return rc;
}

/* Forgets what a map in the place of a bool said, as another value comes. */
static void forget_how(struct reader *r, const struct weft_yaml *map)
{
    for (size_t i = 0; i < map->n; i++)
        for (size_t k = 0; k < r->list.n; k++)
            if (r->given[k] == map->child[i])
                r->given[k] = NULL;
}

/* Gives a key its value; again: in place of one that it may have. */
static int give_one(struct reader *r, const char *name,
                    const struct weft_yaml *node, bool again)
{
    int k = find(r, name);
    bool opens = k >= 0 && r->list.key[k]->flags & WEFT_KEY_OPENS;
    if (opens && again && r->given[k])
        forget_how(r, r->given[k]);
    int rc = give(r, name, node, again);
    bool how = !rc && opens && node->type == WEFT_YAML_MAP;
    return how ? walk_how(r, node, name, again) : rc;
}

static int walk(struct reader *r, const struct weft_yaml *map,
                const char *prefix)
{
    char name[MAX_NAME], what[64];
    if (map->type != WEFT_YAML_MAP && *prefix) {
        const char *meant = weft_config_meant(r->c->schema, prefix);
        return weft_yaml_err(map, r->err, WEFT_EINVAL,
                             "'%s' must be a map of keys, not %s%s%s%s",
                             prefix, weft_yaml_what(map, what),
                             meant ? "; did you mean '" : "",
                             meant ? meant : "", meant ? "'?" : "");
    }
    if (map->type != WEFT_YAML_MAP)
        return weft_yaml_err(map, r->err, WEFT_EFORMAT,
                             "a configuration is a map of keys, not %s",
                             weft_yaml_what(map, what));
    for (size_t i = 0; i < map->n; i++) {
        const struct weft_yaml *child = map->child[i];
        int rc = 0;
        snprintf(name, sizeof name, "%s%s%.100s", prefix, *prefix ? "." : "",
                 map->key[i]);
        if (strcmp(name, "reward") == 0)
            r->reward = child;
        else if (!is_group(r, name))
            rc = give_one(r, name, child, false);
        else if (!weft_yaml_is_null(child))
            rc = walk(r, child, name);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- Words of the command line ---------------------------------------- */

static bool is_utf8(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        size_t len = weft_utf8_length(s + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

/* Removes line numbers, as words of the command line are in no file. */
static void forget_lines(struct weft_yaml *node)
{
    node->line = 0;
    for (size_t i = 0; i < node->n; i++)
        forget_lines(node->child[i]);
}

/* Whether the value of a word is YAML: of the list `reward`, a map where the
 * key takes one, or quoted. */
static bool is_yaml(const struct reader *r, const char *name,
                    const char *value)
{
    int k = find(r, name);
    bool map = k >= 0 && r->list.key[k]->flags & WEFT_KEY_OPENS
            && *value == '{';
    return map || strcmp(name, "reward") == 0 || *value == '"'
        || *value == '\'';
}

/* Makes a node of the value: YAML, or a scalar with the text as it is. */
static int word_node(struct reader *r, const char *text, bool yaml,
                     struct word *w, const struct weft_yaml **out)
{
    char *value = strchr(text, '=') + 1;
    char name[MAX_NAME];
    snprintf(name, sizeof name, "argument '%.200s'", text);
    if (!is_utf8(text))
        return weft_err_set(r->err, WEFT_EINVAL, "%s is not UTF-8", name);
    if (yaml) {
        int rc = weft_yaml_parse(value, strlen(value), name, &w->tree,
                                 r->err);
        if (!rc)
            forget_lines(w->tree);
        *out = w->tree;
        return rc;
    }
    w->node.type = WEFT_YAML_SCALAR;
    w->node.text = weft_strdup(value);
    w->node.name = weft_strdup(name);
    *out = &w->node;
    return w->node.text && w->node.name ? 0 : nomem(r);
}

static int read_words(struct reader *r, int n, const char *const *text)
{
    r->word = weft_alloc((size_t) n, sizeof *r->word);
    if (!r->word)
        return nomem(r);
    r->n_words = n;
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(text[i], '=');
        const struct weft_yaml *node = NULL;
        char name[MAX_NAME];
        if (!eq || eq == text[i])
            return weft_err_set(r->err, WEFT_EINVAL,
                                "argument '%.200s' must be key=value, like "
                                "iterations=100",
                                text[i]);
        snprintf(name, sizeof name, "%.*s", (int) (eq - text[i]), text[i]);
        bool reward = strcmp(name, "reward") == 0;
        int rc = word_node(r, text[i], is_yaml(r, name, eq + 1), &r->word[i],
                           &node);
        if (!rc && reward)
            r->reward = node;
        else if (!rc)
            rc = give_one(r, name, node, true);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- Rewards ---------------------------------------------------------- */

static int reward_standards(struct reader *r, struct weft_reward_config *w)
{
    int rc = 0;
    for (size_t k = 0; k < weft_reward_n_keys && !rc; k++)
        rc = set_standard(r, &weft_reward_keys[k], w);
    return rc;
}

static int find_reward_key(const struct reader *r,
                           const struct weft_yaml *node, const char *name,
                           const struct weft_config_key **out)
{
    const char *best = NULL;
    size_t least = 3;
    for (size_t k = 0; k < weft_reward_n_keys; k++) {
        size_t d = weft_edit_distance(name, weft_reward_keys[k].name);
        if (d == 0) {
            *out = &weft_reward_keys[k];
            return 0;
        }
        if (d < least) {
            least = d;
            best = weft_reward_keys[k].name;
        }
    }
    return weft_yaml_err(node, r->err, WEFT_EINVAL,
                         "unknown key '%.100s' of a reward%s%s%s", name,
                         best ? "; did you mean '" : "", best ? best : "",
                         best ? "'?" : "");
}

static int read_reward_map(struct reader *r, const struct weft_yaml *node,
                           struct weft_reward_config *w)
{
    const struct weft_yaml *type = weft_yaml_get(node, "type");
    if (!type)
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "a reward has no 'type' (%s)",
                             weft_reward_keys[0].words);
    int rc = set_value(r, &weft_reward_keys[0], type, w);
    for (size_t i = 0; i < node->n && !rc; i++) {
        const struct weft_config_key *k = NULL;
        rc = find_reward_key(r, node->child[i], node->key[i], &k);
        if (rc || k == weft_reward_keys || weft_yaml_is_null(node->child[i]))
            continue;
        if (!(k->flags & 1u << w->type))
            rc = weft_yaml_err(node->child[i], r->err, WEFT_EINVAL,
                               "'%s' is not a key of a reward of type %s",
                               k->name, type->text);
        else
            rc = set_value(r, k, node->child[i], w);
    }
    return rc;
}

static int read_reward(struct reader *r, const struct weft_yaml *node)
{
    struct weft_config *c = r->c;
    if (c->n_rewards == WEFT_MAX_REWARDS)
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "more than %d rewards", WEFT_MAX_REWARDS);
    struct weft_reward_config *w = &c->reward[c->n_rewards++];
    int rc = reward_standards(r, w);
    if (rc)
        return rc;
    if (node->type == WEFT_YAML_MAP)
        rc = read_reward_map(r, node, w);
    else
        rc = set_value(r, &weft_reward_keys[0], node, w);
    if (!rc && w->type == WEFT_REWARD_PROGRAM && !w->directory) {
        w->directory = node->line > 0 ? weft_strdup(r->dir)
                                      : weft_config_cwd();
        rc = w->directory ? 0 : nomem(r);
    }
    size_t len;
    if (!rc && !w->name) {
        const char *type = weft_config_word(weft_reward_keys[0].words,
                                            (int) w->type, &len);
        w->name = weft_strndup(type, len);
        rc = w->name ? 0 : nomem(r);
    }
    if (!rc && !w->method
        && (w->type == WEFT_REWARD_GSM8K || w->type == WEFT_REWARD_LENGTH
            || w->type == WEFT_REWARD_THINK_ANSWER)) {
        w->method = weft_strdup(w->type == WEFT_REWARD_LENGTH ? "around"
                                                              : "strict");
        rc = w->method ? 0 : nomem(r);
    }
    return rc ? rc : weft_config_check_reward(w, node, r->err);
}

static int read_rewards(struct reader *r)
{
    const struct weft_yaml *node = r->reward;
    int rc = 0;
    if (!node || weft_yaml_is_null(node))
        return 0;
    if (!weft_config_generates(r->c))
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "'reward' is not a key of algorithm %s",
                             weft_config_algorithm(r->c));
    if (node->type != WEFT_YAML_LIST)
        return read_reward(r, node);
    for (size_t i = 0; i < node->n && !rc; i++)
        rc = read_reward(r, node->child[i]);
    return rc;
}

/* ---- The whole -------------------------------------------------------- */

/* The algorithm comes first: other keys' defaults depend on it. */
static int fill_algorithm(struct reader *r)
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
        rc = words.failed ? nomem(r) : set_value(r, &key, node, &which);
    }
    weft_string_release(&words);
    r->c->algorithm = all[which];
    return rc;
}

/* Sets the keys that the algorithm knows, or the others. */
static int fill_keys(struct reader *r, bool known)
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
                      : set_standard(r, key, r->c);
    }
    return rc;
}

/* Keys of several algorithms may have one field: that of the algorithm's own
 * key comes last. */
static int fill(struct reader *r)
{
    int rc = fill_algorithm(r);
    if (!rc)
        rc = fill_keys(r, false);
    return rc ? rc : fill_keys(r, true);
}

static bool is_given(const struct reader *r, const char *name)
{
    return r->given[find(r, name)] != NULL;
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
static int derive_tables(struct reader *r)
{
    int rc = 0;
    for (size_t t = 0; r->c->algorithm->tables[t] && !rc; t++) {
        const struct weft_config_derived *d =
            r->c->algorithm->tables[t]->derived;
        for (; d && d->key && !rc; d++)
            rc = is_given(r, d->key) ? 0 : d->set(r->c);
    }
    return rc ? nomem(r) : 0;
}

/* Sets defaults that depend on other keys. */
static int derive(struct reader *r)
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
    return c->run_dir ? 0 : nomem(r);
}

static int read_tree(struct reader *r, const struct weft_yaml *root,
                     int n_override, const char *const *override)
{
    int rc = weft_yaml_is_null(root) ? 0 : walk(r, root, "");
    if (!rc && n_override > 0)
        rc = read_words(r, n_override, override);
    if (!rc)
        rc = fill(r);
    if (!rc)
        rc = read_rewards(r);
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
    struct reader r = {.name = name, .c = &c, .err = err};
    struct weft_yaml *root = NULL;
    char *real = realpath(dir, NULL);
    weft_config_list(schema, &r.list);
    r.dir = weft_strdup(real ? real : dir);
    free(real);
    int rc = r.dir ? weft_yaml_parse(text, n, name, &root, err) : nomem(&r);
    if (!rc)
        rc = read_tree(&r, root, n_override, override);
    for (int32_t i = 0; i < r.n_words; i++) {
        weft_free(r.word[i].node.text);
        weft_free((void *) (uintptr_t) r.word[i].node.name);
        weft_yaml_free(r.word[i].tree);
    }
    weft_free(r.word);
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
