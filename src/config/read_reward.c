/* SPDX-License-Identifier: Apache-2.0 */
/* The list `reward` of a configuration. */
#include <string.h>

#include "base/alloc.h"
#include "base/edit_distance.h"
#include "base/limits.h"
#include "base/string.h"
#include "config/read.h"

static int reward_standards(struct weft_config_reader *r,
                            struct weft_reward_config *w)
{
    int rc = 0;
    for (size_t k = 0; k < weft_reward_n_keys && !rc; k++)
        rc = weft_config_set_standard(r, &weft_reward_keys[k], w);
    return rc;
}

static int find_reward_key(const struct weft_config_reader *r,
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

static int read_reward_map(struct weft_config_reader *r,
                           const struct weft_yaml *node,
                           struct weft_reward_config *w)
{
    const struct weft_yaml *type = weft_yaml_get(node, "type");
    if (!type)
        return weft_yaml_err(node, r->err, WEFT_EINVAL,
                             "a reward has no 'type' (%s)",
                             weft_reward_keys[0].words);
    int rc = weft_config_set(&weft_reward_keys[0], type, r->dir, w, r->err);
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
            rc = weft_config_set(k, node->child[i], r->dir, w, r->err);
    }
    return rc;
}

static int read_reward(struct weft_config_reader *r,
                       const struct weft_yaml *node)
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
        rc = weft_config_set(&weft_reward_keys[0], node, r->dir, w, r->err);
    if (!rc && w->type == WEFT_REWARD_PROGRAM && !w->directory) {
        w->directory = node->line > 0 ? weft_strdup(r->dir)
                                      : weft_config_cwd();
        rc = w->directory ? 0 : weft_config_nomem(r);
    }
    size_t len;
    if (!rc && !w->name) {
        const char *type = weft_config_word(weft_reward_keys[0].words,
                                            (int) w->type, &len);
        w->name = weft_strndup(type, len);
        rc = w->name ? 0 : weft_config_nomem(r);
    }
    if (!rc && !w->method
        && (w->type == WEFT_REWARD_GSM8K || w->type == WEFT_REWARD_LENGTH
            || w->type == WEFT_REWARD_THINK_ANSWER)) {
        w->method = weft_strdup(w->type == WEFT_REWARD_LENGTH ? "around"
                                                              : "strict");
        rc = w->method ? 0 : weft_config_nomem(r);
    }
    return rc ? rc : weft_config_check_reward(w, node, r->err);
}

int weft_config_read_rewards(struct weft_config_reader *r)
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
