/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of data files: {"role", "content"}, or ShareGPT's {"from",
 * "value"}. */
#include "text/dataset_impl.h"

#include "base/alloc.h"
#include "base/json.h"

#include <string.h>

/* ShareGPT's names. */
static const char *role_name(const char *role)
{
    if (strcmp(role, "human") == 0)
        return "user";
    return strcmp(role, "gpt") == 0 ? "assistant" : role;
}

struct turn {
    const char *role; /* NULL: none, or not a word */
    const json_t *content;
    bool foreign; /* whether it uses ShareGPT's names */
};

static struct turn turn_of(const json_t *item)
{
    const json_t *role = json_object_get(item, "role");
    struct turn turn = {.content = json_object_get(item, "content")};
    if (!role && !turn.content) {
        role = json_object_get(item, "from");
        turn.content = json_object_get(item, "value");
        turn.foreign = true;
    }
    struct weft_str name = weft_json_str(role);
    if (name.n > 0 && !memchr(name.s, 0, name.n))
        turn.role = role_name(name.s);
    return turn;
}

const char *weft_message_role(const json_t *item)
{
    return turn_of(item).role;
}

/* Joins a content that is a list of {"type": "text", "text": ...}. */
static int join_parts(const json_t *parts,
                      const struct weft_message_place *place,
                      struct weft_str *out, struct weft_err *err)
{
    size_t total = 0, at = 0, i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "%s: '%s' has a content part without 'text'; "
                                "Weft takes texts only",
                                place->subject, place->key);
        total += json_string_length(text);
    }
    char *joined = weft_alloc(total + 1, 1);
    if (!joined)
        return weft_err_nomem(err, "a row", total + 1);
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        memcpy(joined + at, json_string_value(text),
               json_string_length(text));
        at += json_string_length(text);
    }
    *out = (struct weft_str){joined, total};
    return 0;
}

int weft_message_text(const json_t *item,
                      const struct weft_message_place *place,
                      struct weft_str *out, struct weft_err *err)
{
    struct turn turn = turn_of(item);
    if (!turn.role)
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: message %zu of '%s' must be an object with "
                            "'role' and 'content'",
                            place->subject, place->i, place->key);
    if (json_is_string(turn.content))
        return weft_str_copy(weft_json_str(turn.content), out, err);
    if (json_is_array(turn.content))
        return join_parts(turn.content, place, out, err);
    if ((!turn.content || json_is_null(turn.content))
        && json_object_get(item, "tool_calls"))
        return weft_str_copy(weft_str_of(""), out, err);
    return weft_err_set(err, WEFT_EFORMAT,
                        "%s: the content of message %zu of '%s' must be a "
                        "string, not %s",
                        place->subject, place->i, place->key,
                        weft_json_type(turn.content));
}

json_t *weft_message_copy(const json_t *item)
{
    struct turn turn = turn_of(item);
    json_t *message = json_copy((json_t *) (uintptr_t) item);
    if (!message || !turn.foreign)
        return message;
    json_t *content = (json_t *) (uintptr_t) turn.content;
    int rc = json_object_set_new(message, "role", json_string(turn.role));
    if (!rc)
        rc = json_object_set(message, "content", content);
    (void) json_object_del(message, "from");
    (void) json_object_del(message, "value");
    if (!rc)
        return message;
    json_decref(message);
    return NULL;
}
