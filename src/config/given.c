/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys are given: in the file's tree, and in words of the command line,
 * which override it.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "config/read.h"

/* ---- Keys of a map ----------------------------------------------------- */

static bool is_group(const struct weft_config_reader *r, const char *name)
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
static int unknown(const struct weft_config_reader *r,
                   const struct weft_yaml *node, const char *name)
{
    const char *meant = weft_config_meant(r->c->schema, name);
    char inside[WEFT_KEY_NAME];
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

static int give(struct weft_config_reader *r, const char *name,
                const struct weft_yaml *node, bool again)
{
    int k = weft_config_find(r, name);
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
static int walk_how(struct weft_config_reader *r, const struct weft_yaml *map,
                    const char *of, bool again)
{
    char name[WEFT_KEY_NAME];
    int group = (int) (strrchr(of, '.') - of), rc = 0;
    for (size_t i = 0; i < map->n && !rc; i++) {
        snprintf(name, sizeof name, "%.*s.%.100s", group, of, map->key[i]);
        int k = weft_config_find(r, name);
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
static void forget_how(struct weft_config_reader *r,
                       const struct weft_yaml *map)
{
    for (size_t i = 0; i < map->n; i++)
        for (size_t k = 0; k < r->list.n; k++)
            if (r->given[k] == map->child[i])
                r->given[k] = NULL;
}

/* Gives a key its value; again: in place of one that it may have. */
static int give_one(struct weft_config_reader *r, const char *name,
                    const struct weft_yaml *node, bool again)
{
    int k = weft_config_find(r, name);
    bool opens = k >= 0 && r->list.key[k]->flags & WEFT_KEY_OPENS;
    if (opens && again && r->given[k])
        forget_how(r, r->given[k]);
    int rc = give(r, name, node, again);
    bool how = !rc && opens && node->type == WEFT_YAML_MAP;
    return how ? walk_how(r, node, name, again) : rc;
}

static int walk(struct weft_config_reader *r, const struct weft_yaml *map,
                const char *prefix)
{
    char name[WEFT_KEY_NAME], what[64];
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

int weft_config_give_tree(struct weft_config_reader *r,
                          const struct weft_yaml *root)
{
    return weft_yaml_is_null(root) ? 0 : walk(r, root, "");
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
static bool is_yaml(const struct weft_config_reader *r, const char *name,
                    const char *value)
{
    int k = weft_config_find(r, name);
    bool map = k >= 0 && r->list.key[k]->flags & WEFT_KEY_OPENS
            && *value == '{';
    return map || strcmp(name, "reward") == 0 || *value == '"'
        || *value == '\'';
}

/* Makes a node of the value: YAML, or a scalar with the text as it is. */
static int word_node(struct weft_config_reader *r, const char *text,
                     bool yaml, struct weft_config_word_node *w,
                     const struct weft_yaml **out)
{
    char *value = strchr(text, '=') + 1;
    char name[WEFT_KEY_NAME];
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
    return w->node.text && w->node.name ? 0 : weft_config_nomem(r);
}

int weft_config_give_words(struct weft_config_reader *r, int n,
                           const char *const *text)
{
    r->word = weft_alloc((size_t) n, sizeof *r->word);
    if (!r->word)
        return weft_config_nomem(r);
    r->n_words = n;
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(text[i], '=');
        const struct weft_yaml *node = NULL;
        char name[WEFT_KEY_NAME];
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

void weft_config_free_words(struct weft_config_reader *r)
{
    for (int32_t i = 0; i < r->n_words; i++) {
        weft_free(r->word[i].node.text);
        weft_free((void *) (uintptr_t) r->word[i].node.name);
        weft_yaml_free(r->word[i].tree);
    }
    weft_free(r->word);
}
