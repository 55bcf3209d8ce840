/* SPDX-License-Identifier: Apache-2.0 */
/* Guesses which key was meant by an unknown name: a misspelt key, one in the
 * wrong group, or another framework's name for it. */
#include <stdio.h>
#include <string.h>

#include "base/edit_distance.h"
#include "config/keys.h"

static bool holds(const char *theirs, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = theirs; (p = strstr(p, name)) != NULL; p++)
        if (p[-1] == '|' && p[n] == '|')
            return true;
    return false;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The key of the group that is named first, if there is one: a role's
 * learning_rate is that role's. */
static const char *of_same_group(const struct weft_key_list *list,
                                 const char *name, const char *ours)
{
    char other[128];
    const char *dot = strchr(ours, '.');
    size_t n = strcspn(name, ".");
    if (!dot || !name[n])
        return ours;
    snprintf(other, sizeof other, "%.*s%s", (int) (n < 64 ? n : 64), name,
             dot);
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->key[i]->name, other) == 0)
            return list->key[i]->name;
    return ours;
}

/* Our name for the last part of another framework's. */
static const char *alias_of(const struct weft_config_schema *schema,
                            const char *last)
{
    const struct weft_config_table *t;
    for (size_t a = 0; schema->algorithms[a]; a++)
        for (int k = 0;
             (t = weft_config_table_of(schema->algorithms[a], k)) != NULL;
             k++)
            for (const struct weft_config_alias *l = t->aliases; l && l->key;
                 l++)
                if (holds(l->theirs, last))
                    return l->key;
    return NULL;
}

static const char *from_foreign(const struct weft_config_schema *schema,
                                const struct weft_key_list *list,
                                const char *name)
{
    const char *last = last_part(name);
    const char *ours = *last ? alias_of(schema, last) : NULL;
    return ours ? of_same_group(list, name, ours) : NULL;
}

/* The first key that ends with ".NAME". */
static const char *ending_with(const struct weft_key_list *list,
                               const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < list->n; i++) {
        const char *known = list->key[i]->name;
        size_t len = strlen(known);
        if (n > 0 && len > n && known[len - n - 1] == '.'
            && strcmp(known + len - n, name) == 0)
            return known;
    }
    return NULL;
}

static const char *nearest_spelling(const struct weft_key_list *list,
                                    const char *name)
{
    const char *best = NULL;
    size_t n = strlen(name), least = 3 + n / 6;
    for (size_t i = 0; i <= list->n; i++) {
        const char *known = i < list->n ? list->key[i]->name : "reward";
        size_t d = weft_edit_distance(name, known);
        if (d < least && d * 2 <= n) {
            least = d;
            best = known;
        }
    }
    return best;
}

const char *weft_config_meant(const struct weft_config_schema *schema,
                              const char *name)
{
    struct weft_key_list list;
    weft_config_list(schema, &list);
    /* several keys may end alike: `beta` is that of RL first */
    const char *meant = from_foreign(schema, &list, name);
    if (!meant)
        meant = ending_with(&list, name);
    if (!meant)
        meant = nearest_spelling(&list, name);
    if (!meant)
        meant = ending_with(&list, last_part(name));
    return meant;
}

const char *weft_config_meaning(const struct weft_config_schema *schema,
                                const char *name)
{
    struct weft_key_list list;
    weft_config_list(schema, &list);
    for (size_t i = 0; i < list.n; i++)
        if (strcmp(list.key[i]->name, name) == 0)
            return list.key[i]->meaning;
    return strcmp(name, "reward") == 0 ? "a list of what makes the score"
                                       : "";
}
