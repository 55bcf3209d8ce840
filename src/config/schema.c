/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the keys of a schema. */
#include "config/schema.h"

#include <string.h>

#include "config/keys.h"

/* ---- The list ---------------------------------------------------------- */

/* Keys as the tables have them, before groups are brought together. */
struct raw {
    size_t n;
    const struct weft_config_key *key[WEFT_MAX_KEYS];
    bool common[WEFT_MAX_KEYS]; /* of every run */
};

static void add_table(struct raw *r, const struct weft_config_table *table,
                      bool common)
{
    const struct weft_config_key *k = table->keys;
    for (size_t i = 0; i < r->n; i++)
        if (r->key[i] == k)
            return; /* another algorithm has it too */
    for (; k && k->name; k++) {
        weft_assert(r->n < WEFT_MAX_KEYS);
        r->common[r->n] = common;
        r->key[r->n++] = k;
    }
}

static bool same_group(const struct weft_config_key *a,
                       const struct weft_config_key *b)
{
    size_t n = strcspn(a->name, ".");
    return a->name[n] ? strncmp(a->name, b->name, n + 1) == 0 : a == b;
}

/* Whether a group's place in the list is where its i-th key stands: the first
 * of every run, or the first if no run has one. */
static bool leads(const struct raw *r, size_t i)
{
    for (size_t k = 0; k < r->n; k++)
        if (k != i && same_group(r->key[i], r->key[k])
            && (r->common[k] > r->common[i]
                || (r->common[k] == r->common[i] && k < i)))
            return false;
    return true;
}

void weft_config_list(const struct weft_config_schema *schema,
                      struct weft_key_list *out)
{
    struct raw r = {.n = 0};
    add_table(&r, &weft_config_first, true);
    for (size_t a = 0; schema->algorithms[a]; a++)
        for (size_t t = 0; schema->algorithms[a]->tables[t]; t++)
            add_table(&r, schema->algorithms[a]->tables[t], false);
    add_table(&r, &weft_config_last, true);
    out->n = 0;
    for (size_t i = 0; i < r.n; i++)
        for (int own = 0; own < 2 && leads(&r, i); own++)
            for (size_t k = 0; k < r.n; k++)
                if (r.common[k] == !own && same_group(r.key[i], r.key[k]))
                    out->key[out->n++] = r.key[k];
    weft_assert(out->n == r.n);
}

/* ---- One algorithm ----------------------------------------------------- */

const struct weft_config_table *weft_config_table_of(
    const struct weft_config_algorithm *algorithm, int k)
{
    return k == 0 ? &weft_config_first
         : k == 1 ? &weft_config_last
                  : algorithm->tables[k - 2];
}

bool weft_config_knows(const struct weft_config_algorithm *algorithm,
                       const struct weft_config_key *key)
{
    const struct weft_config_table *t;
    for (int i = 0; (t = weft_config_table_of(algorithm, i)) != NULL; i++)
        for (const struct weft_config_key *k = t->keys; k && k->name; k++)
            if (k == key)
                return true;
    return false;
}

const char *weft_config_name(const struct weft_config *config,
                             const void *field)
{
    const struct weft_config_table *t;
    size_t at = (size_t) ((const char *) field - (const char *) config);
    for (int i = 0; (t = weft_config_table_of(config->algorithm, i)); i++)
        for (const struct weft_config_key *k = t->keys; k && k->name; k++)
            if (k->offset == at)
                return k->name;
    return NULL;
}

const char *weft_config_standard(
    const struct weft_config_key *key,
    const struct weft_config_algorithm *algorithm)
{
    const struct weft_config_default *d = algorithm->defaults;
    for (; d && d->key; d++)
        if (strcmp(d->key, key->name) == 0)
            return d->standard;
    return key->standard;
}

bool weft_config_plans(const struct weft_config *c)
{
    return c->plan && strcmp(c->plan, WEFT_PLAN_AUTO) == 0;
}

bool weft_config_generates(const struct weft_config *c)
{
    return c->algorithm->generates;
}

const char *weft_config_algorithm(const struct weft_config *c)
{
    return c->algorithm->name;
}

/* ---- Words ------------------------------------------------------------- */

const char *weft_config_word(const char *words, int i, size_t *n_out)
{
    for (; i > 0 && words; i--) {
        words = strchr(words, '|');
        words = words ? words + 1 : NULL;
    }
    if (words)
        *n_out = strcspn(words, "|");
    return words;
}

void weft_config_algorithm_words(const struct weft_config_schema *schema,
                                 struct weft_string *out)
{
    for (size_t a = 0; schema->algorithms[a]; a++)
        weft_string_addf(out, "%s%s", a > 0 ? "|" : "",
                         schema->algorithms[a]->name);
}
