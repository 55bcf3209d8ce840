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
    weft_string_addf(out, "# The effective configuration, by weft %s.\n",
                     weft_version());
    for (size_t i = 0; i < weft_config_n_keys; i++) {
        const struct weft_config_key *k = &weft_config_keys[i];
        struct weft_string value = {0};
        int depth;
        if ((k->flags & weft_config_bit(c->algorithm))
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
        weft_string_add(out, "path");
        break;
    default:
        weft_string_add(out, "text");
    }
}

static void print_key(const struct weft_config_key *k, const char *prefix,
                      const char *standard, const char *only)
{
    struct weft_string type = {0};
    add_type(k, &type);
    printf("%s%-*s  %-22s  %-10s  %s%s\n", prefix,
           (int) (27 - strlen(prefix)), k->name, type.data ? type.data : "",
           standard ? standard : "-", k->meaning, only);
    weft_string_release(&type);
}

/* Which algorithms know a key, where not all do. */
static const char *whose(unsigned flags)
{
    const unsigned all = (1u << WEFT_N_ALGOS) - 1;
    const unsigned sft = 1u << WEFT_ALGO_SFT, ppo = 1u << WEFT_ALGO_PPO;
    flags &= all;
    return flags == all          ? ""
         : flags == (all & ~sft) ? " (not sft)"
         : flags == sft          ? " (sft)"
         : flags == ppo          ? " (ppo)"
                                 : " (ppo, reinforce_pp)";
}

void weft_config_print_keys(void)
{
    printf("%-27s  %-22s  %-10s  %s\n", "key", "values", "default",
           "meaning");
    for (size_t i = 0; i < weft_config_n_keys; i++) {
        const struct weft_config_key *k = &weft_config_keys[i];
        const char *sft = weft_config_standard(k, WEFT_ALGO_SFT);
        char standard[48];
        snprintf(standard, sizeof standard, "%s",
                 k->standard                    ? k->standard
                 : k->flags & WEFT_KEY_REQUIRED ? "(required)"
                                                : "-");
        if (sft != k->standard)
            snprintf(standard + strlen(standard),
                     sizeof standard - strlen(standard), " %s", sft);
        print_key(k, "", standard, whose(k->flags));
    }
    puts("\nreward: a list of maps, one per reward (not sft):");
    for (size_t i = 0; i < weft_reward_n_keys; i++) {
        const struct weft_config_key *k = &weft_reward_keys[i];
        print_key(k, "- ", i == 0 ? "(required)" : k->standard, "");
    }
}
