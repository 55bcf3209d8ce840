/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the configuration as YAML, and prints the reference of keys. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "config/keys.h"

static void add_list(char *const *item, struct weft_string *out)
{
    weft_string_add(out, "[");
    for (size_t i = 0; item[i]; i++) {
        weft_string_add(out, i > 0 ? ", " : "");
        weft_string_add_json(out, item[i]);
    }
    weft_string_add(out, "]");
}

bool weft_config_value(const struct weft_config_key *key, const void *base,
                       struct weft_string *out)
{
    const void *at = (const char *) base + key->offset;
    size_t n;
    const char *word;
    switch (key->type) {
    case WEFT_KEY_INT:
        if (key->words && *(const int32_t *) at < 0)
            weft_string_add(out, key->words);
        else
            weft_string_addf(out, "%d", *(const int32_t *) at);
        return true;
    case WEFT_KEY_SEED:
        weft_string_addf(out, "%llu",
                         (unsigned long long) *(const uint64_t *) at);
        return true;
    case WEFT_KEY_FLOAT:
        weft_string_add_float(out, *(const float *) at);
        return true;
    case WEFT_KEY_DOUBLE:
        weft_string_add_number(out, *(const double *) at);
        return true;
    case WEFT_KEY_BOOL:
        weft_string_add(out, *(const bool *) at ? "true" : "false");
        return true;
    case WEFT_KEY_ENUM:
        word = weft_config_word(key->words,
                                *(const int *) at - (int) key->min, &n);
        weft_string_add_n(out, word ? word : "?", word ? n : 1);
        return true;
    case WEFT_KEY_ALGORITHM:
        weft_string_add(
            out, (*(const struct weft_config_algorithm *const *) at)->name);
        return true;
    case WEFT_KEY_LIST:
        if (*(char *const *) at)
            add_list(at, out);
        return *(char *const *) at != NULL;
    default:
        if (*(char *const *) at)
            weft_string_add_json(out, *(char *const *) at);
        return *(char *const *) at != NULL;
    }
}

/* Writes the lines of those groups of a dotted name that the name before it is
 * not in; returns the name's last part, and its depth. */
static const char *open_groups(const char *name, const char *before,
                               int *depth_out, struct weft_string *out)
{
    const char *part = name, *dot;
    bool common = true;
    int depth = 0;
    for (; (dot = strchr(part, '.')) != NULL; part = dot + 1, depth++) {
        size_t n = (size_t) (dot + 1 - name);
        common = common && strncmp(name, before, n) == 0;
        if (!common)
            weft_string_addf(out, "%*s%.*s:\n", 2 * depth, "",
                             (int) (dot - part), part);
    }
    *depth_out = depth;
    return part;
}

static void add_reward(const struct weft_reward_config *reward,
                       struct weft_string *out)
{
    bool first = true;
    for (size_t i = 0; i < weft_reward_n_keys; i++) {
        const struct weft_config_key *k = &weft_reward_keys[i];
        if (!(k->flags & 1u << reward->type))
            continue;
        size_t start = out->n;
        weft_string_addf(out, "  %c %s: ", first ? '-' : ' ', k->name);
        if (weft_config_value(k, reward, out)) {
            weft_string_add(out, "\n");
            first = false;
        } else if (out->data) {
            out->n = start;
        }
    }
}

static void add_all(const struct weft_config *c, struct weft_string *out)
{
    const char *before = "";
    struct weft_key_list list;
    weft_config_list(c->schema, &list);
    weft_string_addf(out, "# The effective configuration, by weft %s.\n",
                     weft_version());
    for (size_t i = 0; i < list.n; i++) {
        const struct weft_config_key *k = list.key[i];
        struct weft_string value = {0};
        int depth;
        if (weft_config_knows(c->algorithm, k)
            && weft_config_value(k, c, &value) && value.data) {
            const char *last = open_groups(k->name, before, &depth, out);
            weft_string_addf(out, "%*s%s: %s\n", 2 * depth, "", last,
                             value.data);
            before = k->name;
        }
        out->failed = out->failed || value.failed;
        weft_string_release(&value);
    }
    if (c->n_rewards > 0)
        weft_string_add(out, "reward:\n");
    for (int32_t i = 0; i < c->n_rewards; i++)
        add_reward(&c->reward[i], out);
}

int weft_config_write(const struct weft_config *config, const char *path,
                      struct weft_err *err)
{
    struct weft_string out = {0};
    add_all(config, &out);
    int rc = weft_string_check(&out, path, err);
    if (!rc)
        rc = weft_file_write(path, out.data, out.n, err);
    weft_string_release(&out);
    return rc;
}

/* ---- The reference ---------------------------------------------------- */

/* "65536", "1e9" */
static void add_bound(double v, struct weft_string *out)
{
    int power = 0;
    double x = v;
    for (; x >= 10 && power < 20; power++)
        x /= 10;
    if (power < 6)
        weft_string_addf(out, "%.10g", v);
    else
        weft_string_addf(out, "%.2ge%d", x, power);
}

/* "1..1000", "f32|bf16", "text" */
static void add_type(const struct weft_config_key *k, struct weft_string *out)
{
    switch (k->type) {
    case WEFT_KEY_INT:
    case WEFT_KEY_SEED:
    case WEFT_KEY_FLOAT:
    case WEFT_KEY_DOUBLE:
        if (k->words)
            weft_string_addf(out, "%s|", k->words);
        add_bound(k->min, out);
        weft_string_add(out, "..");
        add_bound(k->max, out);
        break;
    case WEFT_KEY_BOOL:
        weft_string_add(out, "true|false");
        break;
    case WEFT_KEY_ENUM:
    case WEFT_KEY_WORD:
        weft_string_add(out, k->words);
        break;
    case WEFT_KEY_LIST:
        weft_string_add(out, "list");
        break;
    case WEFT_KEY_PATH:
    case WEFT_KEY_PATH_CWD:
        weft_string_addf(out, "path%s%s", k->words ? "|" : "",
                         k->words ? k->words : "");
        break;
    default:
        weft_string_add(out, "text");
    }
}

/* Which algorithms are listed. */
typedef bool (*is_fn)(const struct weft_config_algorithm *algorithm,
                      const struct weft_config_key *key);

/* " (a, b)", those that are, or " (not c)"; nothing if all are. */
static void add_whose(const struct weft_config_schema *schema, is_fn is,
                      const struct weft_config_key *k,
                      struct weft_string *out)
{
    int n = 0, all = 0;
    for (; schema->algorithms[all]; all++)
        n += is(schema->algorithms[all], k);
    bool most = 2 * n > all;
    const char *before = most ? " (not " : " (";
    for (int a = 0; a < all && n < all; a++)
        if (is(schema->algorithms[a], k) != most) {
            weft_string_addf(out, "%s%s", before,
                             schema->algorithms[a]->name);
            before = ", ";
        }
    weft_string_add(out, n < all ? ")" : "");
}

/* "; 1e-5 for a, b; 3 for c" */
static void add_defaults(const struct weft_config_schema *schema,
                         const struct weft_config_key *k,
                         struct weft_string *out)
{
    const struct weft_config_algorithm *const *all = schema->algorithms;
    for (int a = 0; all[a]; a++) {
        const char *own = weft_config_standard(k, all[a]);
        int before = 0;
        while (before < a
               && strcmp(weft_config_standard(k, all[before]), own) != 0)
            before++;
        if (own == k->standard || before < a)
            continue;
        weft_string_addf(out, "; %s for %s", own, all[a]->name);
        for (int b = a + 1; all[b]; b++)
            if (strcmp(weft_config_standard(k, all[b]), own) == 0)
                weft_string_addf(out, ", %s", all[b]->name);
    }
}

static bool generates(const struct weft_config_algorithm *algorithm,
                      const struct weft_config_key *key)
{
    (void) key;
    return algorithm->generates;
}

static void print_key(const struct weft_config_key *k, const char *prefix,
                      const char *type, const char *standard,
                      const char *more)
{
    printf("%s%-*s  %-22s  %-10s  %s%s\n", prefix,
           (int) (27 - strlen(prefix)), k->name, type,
           standard ? standard : "-", k->meaning, more);
}

static void print_one(const struct weft_config_schema *schema,
                      const struct weft_config_key *k)
{
    struct weft_string type = {0}, more = {0};
    const char *standard = k->flags & WEFT_KEY_REQUIRED ? "(required)"
                                                        : k->standard;
    if (k->type == WEFT_KEY_ALGORITHM) {
        weft_config_algorithm_words(schema, &type);
        standard = schema->algorithms[0]->name;
    } else {
        add_type(k, &type);
    }
    if (k->standard)
        add_defaults(schema, k, &more);
    add_whose(schema, weft_config_knows, k, &more);
    print_key(k, "", type.data ? type.data : "", standard,
              more.data ? more.data : "");
    weft_string_release(&type);
    weft_string_release(&more);
}

void weft_config_print_keys(const struct weft_config_schema *schema)
{
    struct weft_key_list list;
    struct weft_string whose = {0};
    weft_config_list(schema, &list);
    printf("%-27s  %-22s  %-10s  %s\n", "key", "values", "default",
           "meaning");
    for (size_t i = 0; i < list.n; i++)
        print_one(schema, list.key[i]);
    add_whose(schema, generates, NULL, &whose);
    printf("\nreward: a list of maps, one per reward%s:\n",
           whose.data ? whose.data : "");
    weft_string_release(&whose);
    for (size_t i = 0; i < weft_reward_n_keys; i++) {
        const struct weft_config_key *k = &weft_reward_keys[i];
        struct weft_string type = {0};
        add_type(k, &type);
        print_key(k, "- ", type.data ? type.data : "",
                  i == 0 ? "(required)" : k->standard, "");
        weft_string_release(&type);
    }
}
