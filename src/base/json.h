/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON by jansson, with sentences a person can act on.
 *
 * Reading refuses duplicate keys, text after the value, and (but for texts)
 * strings with a zero character; the sentence begins "name:line:column:".
 * Getters take the object, a subject for messages ("config.json",
 * "added_tokens[3]") and the key; the required ones fail with WEFT_ENOTFOUND
 * when the key is missing, all with WEFT_EFORMAT when the value has another
 * type. A null counts as missing. Outputs are written only on success and are
 * borrowed from the object.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <jansson.h>

#include "base/str.h"

/* Parses n bytes; any JSON value may be at the top. `name` names them in
 * messages. Integers beyond 64 bits become reals, no others do. Free with
 * json_decref().
 * Errors: WEFT_EFORMAT, WEFT_ENOMEM. */
int weft_json_parse(const char *text, size_t n, const char *name,
                    json_t **out, struct weft_err *err);
/* Parses a part of a document that begins in its line `line`, from which
 * messages count. Strings may hold zero characters, so read texts with
 * weft_json_str(). */
int weft_json_parse_texts(const char *text, size_t n, const char *name,
                          size_t line, json_t **out, struct weft_err *err);
/* The text of a JSON string; none when the value is no string. Borrowed. */
struct weft_str weft_json_str(const json_t *value);
/* Parses a file of at most max_bytes (0: no limit) as weft_json_parse() does.
 * A byte-order mark is skipped. */
int weft_json_read(const char *path, size_t max_bytes, json_t **out,
                   struct weft_err *err);

/* What a value is, for messages: "a string", "an object", "nothing". */
const char *weft_json_type(const json_t *value);

/* The value of a dotted path of keys ("reward_model.ground_truth"), or NULL
 * when a part is missing or null. A key that itself contains the dots is
 * found too. */
json_t *weft_json_find(const json_t *root, const char *path);

/* Gets an integer; one outside of [low, high] is WEFT_EINVAL. */
int weft_json_int(const json_t *object, const char *subject, const char *key,
                  int64_t low, int64_t high, int64_t *out,
                  struct weft_err *err);
/* Gets a real; integers are allowed too. */
int weft_json_double(const json_t *object, const char *subject,
                     const char *key, double *out, struct weft_err *err);
int weft_json_bool(const json_t *object, const char *subject, const char *key,
                   bool *out, struct weft_err *err);
int weft_json_string(const json_t *object, const char *subject,
                     const char *key, const char **out, struct weft_err *err);
int weft_json_object(const json_t *object, const char *subject,
                     const char *key, json_t **out, struct weft_err *err);
int weft_json_array(const json_t *object, const char *subject,
                    const char *key, json_t **out, struct weft_err *err);

/* Getters of optional values: missing or null gives the fallback (NULL for
 * objects and arrays). */
int weft_json_int_or(const json_t *object, const char *subject,
                     const char *key, int64_t low, int64_t high,
                     int64_t fallback, int64_t *out, struct weft_err *err);
int weft_json_double_or(const json_t *object, const char *subject,
                        const char *key, double fallback, double *out,
                        struct weft_err *err);
int weft_json_bool_or(const json_t *object, const char *subject,
                      const char *key, bool fallback, bool *out,
                      struct weft_err *err);
int weft_json_string_or(const json_t *object, const char *subject,
                        const char *key, const char *fallback,
                        const char **out, struct weft_err *err);
int weft_json_object_or(const json_t *object, const char *subject,
                        const char *key, json_t **out, struct weft_err *err);
int weft_json_array_or(const json_t *object, const char *subject,
                       const char *key, json_t **out, struct weft_err *err);

/* Refuses keys of the object that are not among the n known ones with
 * WEFT_EINVAL; the text suggests the nearest known key. */
int weft_json_keys(const json_t *object, const char *subject,
                   const char *const *known, size_t n, struct weft_err *err);

/* The value as compact JSON text, reals with the fewest digits that read
 * back to the same number. NULL when memory is out. Caller frees. */
char *weft_json_text(const json_t *value);

#endif
