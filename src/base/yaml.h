/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML documents as trees of nodes that know where they stood.
 *
 * What configurations need and no more: one document of maps, lists and
 * scalars. Refused with file and line: duplicate keys, anchors and aliases,
 * tags, keys that are not plain words, several documents, nesting deeper than
 * WEFT_YAML_MAX_DEPTH, maps of more than WEFT_YAML_MAX_KEYS. Scalars stay
 * text until a getter asks for a type, so `yes`, `1e-5` and `08` mean what
 * the reader of the value says.
 */
#ifndef WEFT_BASE_YAML_H
#define WEFT_BASE_YAML_H

#include "base/err.h"

enum { WEFT_YAML_MAX_DEPTH = 64, WEFT_YAML_MAX_KEYS = 10000 };

enum weft_yaml_type { WEFT_YAML_SCALAR, WEFT_YAML_LIST, WEFT_YAML_MAP };

struct weft_yaml {
    enum weft_yaml_type type;
    int line, column; /* from 1 */
    const char *name; /* name of the document, for messages */
    /* scalar: whether it is in quotes, or a block of text */
    bool quoted;
    char *text;               /* scalar; NULL otherwise */
    size_t n;                 /* children */
    struct weft_yaml **child; /* (n) items, or values of the keys */
    char **key;               /* (n) map: keys, in the file's order */
};

/* Parses n bytes of UTF-8; `name`, which is copied, names them in messages. An
 * empty document is an empty map. Free the root with weft_yaml_free(). Errors:
 * WEFT_EFORMAT ("name:line: what"), WEFT_ENOMEM. */
int weft_yaml_parse(const char *text, size_t n, const char *name,
                    struct weft_yaml **out, struct weft_err *err);
/* Frees a root and all below it. NULL is allowed. */
void weft_yaml_free(struct weft_yaml *root);

/* The value of a key, or NULL (also when `map` is no map). Borrowed. */
const struct weft_yaml *weft_yaml_get(const struct weft_yaml *map,
                                      const char *key);

/* True for an empty scalar, `~` or `null` without quotes. */
bool weft_yaml_is_null(const struct weft_yaml *node);

/* Getters of numbers, and of true or false. The whole text must be the number:
 * no blanks, nothing after it, not infinite, not NaN. `key` names the value in
 * the text "name:line: key ...". Errors: WEFT_EINVAL. Outputs are written only
 * on success. */
int weft_yaml_int(const struct weft_yaml *node, const char *key, int64_t *out,
                  struct weft_err *err);
int weft_yaml_double(const struct weft_yaml *node, const char *key,
                     double *out, struct weft_err *err);
int weft_yaml_bool(const struct weft_yaml *node, const char *key, bool *out,
                   struct weft_err *err);
/* The text of a scalar (borrowed); a null or a list or map is refused. */
int weft_yaml_string(const struct weft_yaml *node, const char *key,
                     const char **out, struct weft_err *err);

/* Writes "name:line: text" ("name: text" for line 0) and returns `code`. */
int weft_yaml_err(const struct weft_yaml *node, struct weft_err *err,
                  int code, const char *fmt, ...) WEFT_PRINTF(4, 5);

/* What the node is, for messages: "a map", "a list", "'text'". `out` holds
 * it; returns out. */
const char *weft_yaml_what(const struct weft_yaml *node, char out[64]);

#endif
