/* SPDX-License-Identifier: Apache-2.0 */
/* Sets one key of the configuration from a value of the YAML tree. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/yaml.h"
#include "config/keys.h"

enum { MAX_WORDS = 1024 };

static int nomem(const struct weft_config_key *k, struct weft_err *err)
{
    return weft_err_nomem(err, k->name, 64);
}

/* ---- Paths ------------------------------------------------------------ */

/* Removes "." and resolves ".." in the text, in place, without looking at the
 * file system. */
static void path_clean(char *path)
{
    char *out = path;
    for (char *p = path; *p;) {
        size_t n = strcspn(p + 1, "/") + 1; /* "/part" */
        char *next = p + n;
        bool dot = n == 1 || (n == 2 && p[1] == '.');
        bool up = n == 3 && p[1] == '.' && p[2] == '.';
        if (up) {
            while (out > path && *--out != '/')
                ;
        } else if (!dot) {
            memmove(out, p, n);
            out += n;
        }
        p = next;
    }
    if (out == path)
        *out++ = '/';
    *out = 0;
}

/* `path` under the absolute folder `dir`; NULL: no memory. */
static char *path_absolute(const char *dir, const char *path)
{
    char *out = weft_path_join(dir, path);
    if (out && out[0] == '/')
        path_clean(out);
    return out;
}

char *weft_config_cwd(void)
{
    char *cwd = getcwd(NULL, 0), *out = cwd ? weft_strdup(cwd) : NULL;
    free(cwd);
    return out ? out : weft_strdup(".");
}

/* ---- One value -------------------------------------------------------- */

static int check_range(const struct weft_config_key *k,
                       const struct weft_yaml *node, double v,
                       struct weft_err *err)
{
    if (v >= k->min && v <= k->max)
        return 0;
    return weft_yaml_err(node, err, WEFT_EINVAL,
                         "'%s' must be from %.10g to %.10g, not %s", k->name,
                         k->min, k->max, node->text);
}

/* A real number; of a share also percent. */
static int read_double(const struct weft_config_key *k,
                       const struct weft_yaml *node, double *out,
                       struct weft_err *err)
{
    char text[32];
    struct weft_yaml number = *node;
    size_t n = node->type == WEFT_YAML_SCALAR ? strlen(node->text) : 0;
    bool percent = k->flags & WEFT_KEY_SHARE && n > 1 && n < sizeof text
                && node->text[n - 1] == '%';
    if (percent) {
        memcpy(text, node->text, n - 1);
        text[n - 1] = 0;
        number.text = text;
    }
    int rc = weft_yaml_double(&number, k->name, out, err);
    if (!rc && percent)
        *out /= 100;
    return rc;
}

static int set_number(const struct weft_config_key *k,
                      const struct weft_yaml *node, void *at,
                      struct weft_err *err)
{
    int64_t i = 0;
    double x = 0;
    bool text = k->words && node->type == WEFT_YAML_SCALAR;
    if (text && strcmp(node->text, k->words) == 0) {
        *(int32_t *) at = -1;
        return 0;
    }
    if (text && isalpha((unsigned char) node->text[0]))
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' must be %s, or from %.10g to %.10g, not "
                             "%s",
                             k->name, k->words, k->min, k->max, node->text);
    bool whole = k->type == WEFT_KEY_INT || k->type == WEFT_KEY_SEED;
    int rc = whole ? weft_yaml_int(node, k->name, &i, err)
                   : read_double(k, node, &x, err);
    if (!rc)
        rc = check_range(k, node, whole ? (double) i : x, err);
    if (rc)
        return rc;
    if (k->type == WEFT_KEY_INT)
        *(int32_t *) at = (int32_t) i;
    else if (k->type == WEFT_KEY_SEED)
        *(uint64_t *) at = (uint64_t) i;
    else if (k->type == WEFT_KEY_FLOAT)
        *(float *) at = (float) x;
    else
        *(double *) at = x;
    return 0;
}

/* "a, b or c" */
static void list_words(const char *words, char out[MAX_WORDS])
{
    size_t n, used = 0;
    const char *w;
    out[0] = 0;
    for (int i = 0; (w = weft_config_word(words, i, &n)) != NULL; i++) {
        bool last = w[n] == 0;
        int put = snprintf(out + used, MAX_WORDS - used, "%s%.*s",
                           i == 0 ? ""
                           : last ? " or "
                                  : ", ",
                           (int) n, w);
        used += (size_t) put;
        if (used >= MAX_WORDS)
            return;
    }
}

static int find_word(const struct weft_config_key *k,
                     const struct weft_yaml *node, int *out,
                     struct weft_err *err)
{
    const char *text = node->type == WEFT_YAML_SCALAR ? node->text : "";
    char words[MAX_WORDS], what[64];
    size_t n;
    const char *w;
    for (int i = 0; (w = weft_config_word(k->words, i, &n)) != NULL; i++)
        if (strlen(text) == n && memcmp(text, w, n) == 0) {
            *out = i;
            return 0;
        }
    list_words(k->words, words);
    return weft_yaml_err(node, err, WEFT_EINVAL, "'%s' must be %s, not %s",
                         k->name, words, weft_yaml_what(node, what));
}

static int set_text(const struct weft_config_key *k,
                    const struct weft_yaml *node, const char *dir, char **at,
                    struct weft_err *err)
{
    const char *text;
    int index, rc;
    if (k->type == WEFT_KEY_WORD)
        rc = find_word(k, node, &index, err);
    else
        rc = weft_yaml_string(node, k->name, &text, err);
    if (rc)
        return rc;
    text = node->text;
    if (!*text)
        return weft_yaml_err(node, err, WEFT_EINVAL, "'%s' must not be empty",
                             k->name);
    char *value;
    /* Paths in words of the command line, which have no line number, are
     * relative to the working directory. */
    bool path = (k->type == WEFT_KEY_PATH || k->type == WEFT_KEY_PATH_CWD)
             && !(k->words && strcmp(text, k->words) == 0);
    bool here = path && (k->type == WEFT_KEY_PATH_CWD || node->line == 0);
    if (path && !here) {
        value = path_absolute(dir, text);
    } else if (here) {
        char *cwd = weft_config_cwd();
        value = cwd ? path_absolute(cwd, text) : NULL;
        weft_free(cwd);
    } else {
        value = weft_strdup(text);
    }
    if (!value)
        return nomem(k, err);
    weft_free(*at);
    *at = value;
    return 0;
}

static int set_list(const struct weft_config_key *k,
                    const struct weft_yaml *node, char **at,
                    struct weft_err *err)
{
    static const char *const shell[] = {"/bin/sh", "-c"};
    const char *text = NULL;
    bool list = node->type == WEFT_YAML_LIST;
    size_t n = list ? node->n : 3;
    if (n == 0 || n > WEFT_MAX_ARGV)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' must be a program and at most %d "
                             "arguments",
                             k->name, WEFT_MAX_ARGV - 1);
    for (size_t i = 0; i < n; i++) {
        const struct weft_yaml *item = list ? node->child[i] : node;
        int rc = weft_yaml_string(item, k->name, &text, err);
        if (rc)
            return rc;
        at[i] = weft_strdup(list || i == 2 ? text : shell[i]);
        if (!at[i])
            return nomem(k, err);
    }
    return 0;
}

int weft_config_set(const struct weft_config_key *k,
                    const struct weft_yaml *node, const char *dir, void *base,
                    struct weft_err *err)
{
    void *at = (char *) base + k->offset;
    int index, rc;
    switch (k->type) {
    case WEFT_KEY_BOOL:
        if (k->flags & WEFT_KEY_OPENS && node->type == WEFT_YAML_MAP) {
            *(bool *) at = true;
            return 0;
        }
        return weft_yaml_bool(node, k->name, at, err);
    case WEFT_KEY_ENUM:
        rc = find_word(k, node, &index, err);
        if (!rc)
            *(int *) at = (int) k->min + index;
        return rc;
    case WEFT_KEY_STRING:
    case WEFT_KEY_WORD:
    case WEFT_KEY_PATH:
    case WEFT_KEY_PATH_CWD:
        return set_text(k, node, dir, at, err);
    case WEFT_KEY_LIST:
        return set_list(k, node, at, err);
    default:
        return set_number(k, node, at, err);
    }
}
