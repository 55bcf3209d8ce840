/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of others' data, and what they mean. */
#include "model/dataset_impl.h"

#include "base/alloc.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const char *const PROMPT_KEYS[] = {
    "prompt",      "messages", "conversations", "question", "problem",
    "instruction", "input",    "query",         NULL};
static const char *const RESPONSE_KEYS[] = {"completion", "response",
                                            "output", "answer", NULL};
static const char *const LABEL_KEYS[] = {"label",
                                         "ground_truth",
                                         "reward_model.ground_truth",
                                         "reward_spec.ground_truth",
                                         "answer",
                                         "solution",
                                         "expected_answer",
                                         "target",
                                         NULL};
static const char *const CHOSEN_KEYS[] = {"chosen", "pos_answers", NULL};
static const char *const REJECTED_KEYS[] = {"rejected", "neg_answers", NULL};

/* What a row is being made of. */
struct filling {
    const json_t *object;
    const char *subject; /* "file:line" */
    const struct weft_row_format *format;
    struct weft_row *row;
    struct weft_err *err;
};

/* ---- Messages for a person -------------------------------------------- */

/* "'a', 'b', ..." into out. */
static const char *list_keys(const json_t *object, char out[300])
{
    const char *key;
    json_t *value;
    size_t at = 0;
    out[0] = 0;
    json_object_foreach((json_t *) (uintptr_t) object, key, value)
    {
        int n = snprintf(out + at, 300 - at, "%s'%.60s'", at ? ", " : "",
                         key);
        if (n < 0 || at + (size_t) n > 290) {
            snprintf(out + at, 300 - at, "%s", at ? ", ..." : "...");
            return out;
        }
        at += (size_t) n;
    }
    return at ? out : "no keys";
}

static int no_key(const json_t *object, const char *subject, const char *what,
                  const char *wanted, struct weft_err *err)
{
    char keys[300];
    return weft_err_set(err, WEFT_ENOTFOUND,
                        "%s: no %s: there is no %s; the row has %s", subject,
                        what, wanted, list_keys(object, keys));
}

static int no_named_key(const struct filling *f, const char *what,
                        const char *key)
{
    char quoted[200];
    if (json_is_null(json_object_get(f->object, key)))
        return weft_err_set(f->err, WEFT_ENOTFOUND,
                            "%s: '%s' is null, where the %s is expected",
                            f->subject, key, what);
    snprintf(quoted, sizeof quoted, "'%.180s'", key);
    return no_key(f->object, f->subject, what, quoted, f->err);
}

/* ---- Finding ---------------------------------------------------------- */

/* The first of the keys that the row has; key_out may be NULL. */
static json_t *first_of(const json_t *object, const char *const *keys,
                        const char **key_out)
{
    for (; *keys; keys++) {
        json_t *value = weft_json_find(object, *keys);
        if (value) {
            if (key_out)
                *key_out = *keys;
            return value;
        }
    }
    return NULL;
}

/* each: of this row alone, and nothing need be there. */
static int detect(const json_t *object, const char *subject, bool each,
                  struct weft_row_format *format, struct weft_err *err)
{
    format->form = WEFT_PROMPT_KEY;
    if (format->named.prompt) {
        format->prompt = format->named.prompt;
        return 0; /* whether it is there, filling says */
    }
    if (format->named.need & WEFT_NEED_NOTHING && !each) {
        format->form = WEFT_PROMPT_ANY;
        return 0;
    }
    if (first_of(object, PROMPT_KEYS, &format->prompt)) {
        const json_t *input = weft_json_find(object, "input");
        if (strcmp(format->prompt, "instruction") == 0
            && json_string_length(input) > 0)
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "%s: both 'instruction' and 'input' could be "
                                "the prompt; join them under one key, or "
                                "name the key",
                                subject);
        return 0;
    }
    if (first_of(object, CHOSEN_KEYS, NULL)
        && first_of(object, REJECTED_KEYS, NULL)) {
        format->form = WEFT_PROMPT_COMMON;
        return 0;
    }
    if (each
        || (weft_json_find(object, "text")
            && !(format->named.need & WEFT_NEED_PROMPT))) {
        format->form = WEFT_PROMPT_NONE;
        return 0;
    }
    return no_key(object, subject, "prompt",
                  "'prompt', 'messages', 'question', 'problem', 'input' or "
                  "'query' (another can be named)",
                  err);
}

int weft_row_detect(const json_t *object, const char *subject,
                    struct weft_row_format *format, struct weft_err *err)
{
    return detect(object, subject, false, format, err);
}

/* ---- Texts and messages ----------------------------------------------- */

/* The text of a JSON string. */
static int copy(const struct filling *f, const json_t *value,
                struct weft_str *out)
{
    return weft_str_copy(weft_json_str(value), out, f->err);
}

/* A content that is a list of {"type": "text", "text": ...}. */
static int join_parts(const struct filling *f, const json_t *parts,
                      const char *key, struct weft_str *out)
{
    size_t total = 0, at = 0, i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return weft_err_set(f->err, WEFT_EUNSUPPORTED,
                                "%s: '%s' has a content part without 'text'; "
                                "Weft takes texts only",
                                f->subject, key);
        total += json_string_length(text);
    }
    char *joined = weft_alloc(total + 1, 1);
    if (!joined)
        return weft_err_nomem(f->err, "a row", total + 1);
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

/* ShareGPT's names. */
static const char *role_name(const char *role)
{
    if (strcmp(role, "human") == 0)
        return "user";
    return strcmp(role, "gpt") == 0 ? "assistant" : role;
}

/* An item of a list of messages. */
struct turn {
    const char *role; /* NULL: none, or not a word */
    const json_t *content;
};

static struct turn turn_of(const json_t *item)
{
    const json_t *role = json_object_get(item, "role");
    struct turn turn = {.content = json_object_get(item, "content")};
    if (!role && !turn.content) {
        role = json_object_get(item, "from");
        turn.content = json_object_get(item, "value");
    }
    struct weft_str name = weft_json_str(role);
    if (name.n > 0 && !memchr(name.s, 0, name.n))
        turn.role = role_name(name.s);
    return turn;
}

static int read_content(const struct filling *f, const json_t *item,
                        const char *key, size_t i, struct weft_str *out)
{
    struct turn turn = turn_of(item);
    if (!turn.role)
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: message %zu of '%s' must be an object with "
                            "'role' and 'content'",
                            f->subject, i, key);
    if (json_is_string(turn.content))
        return copy(f, turn.content, out);
    if (json_is_array(turn.content))
        return join_parts(f, turn.content, key, out);
    return weft_err_set(f->err, WEFT_EFORMAT,
                        "%s: the content of message %zu of '%s' must be a "
                        "string, not %s",
                        f->subject, i, key, weft_json_type(turn.content));
}

static int read_message(const struct filling *f, const json_t *item,
                        const char *key, size_t i, struct weft_message *out)
{
    struct weft_str content = {0};
    int rc = read_content(f, item, key, i, &content);
    if (!rc && memchr(content.s, 0, content.n))
        rc = weft_err_set(f->err, WEFT_EUNSUPPORTED,
                          "%s: message %zu of '%s' holds the zero character "
                          "'\\u0000', which chat templates do not take",
                          f->subject, i, key);
    if (rc) {
        weft_str_release(&content);
        return rc;
    }
    out->content = (char *) (uintptr_t) content.s;
    out->role = weft_strdup(turn_of(item).role);
    return out->role ? 0 : weft_err_nomem(f->err, "a row", 0);
}

static void free_messages(struct weft_message *message, size_t n)
{
    for (size_t i = 0; message && i < n; i++) {
        weft_free(message[i].role);
        weft_free(message[i].content);
    }
    weft_free(message);
}

/* The first n items of a list as messages. */
static int read_messages(const struct filling *f, const json_t *list,
                         size_t n, const char *key, struct weft_message **out)
{
    struct weft_message *message = weft_alloc(n, sizeof *message);
    if (!message)
        return weft_err_nomem(f->err, "a row", n * sizeof *message);
    for (size_t i = 0; i < n; i++) {
        int rc = read_message(f, json_array_get(list, i), key, i,
                              &message[i]);
        if (rc) {
            free_messages(message, n);
            return rc;
        }
    }
    *out = message;
    return 0;
}

/* The text of the assistant's turn that items first... of a list are. */
static int read_turn(const struct filling *f, const json_t *list,
                     size_t first, const char *key, struct weft_str *out)
{
    if (json_array_size(list) != first + 1)
        return weft_err_set(f->err, WEFT_EUNSUPPORTED,
                            "%s: '%s' must hold one assistant's message%s, "
                            "not %zu",
                            f->subject, key, first ? " of its own" : "",
                            json_array_size(list) - first);
    const json_t *item = json_array_get(list, first);
    const char *role = turn_of(item).role;
    if (role && strcmp(role, "assistant") != 0)
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: the last message of '%s' is by '%.40s', not "
                            "by the assistant",
                            f->subject, key, role);
    return read_content(f, item, key, first, out);
}

/* A string, or a list of one assistant's message. */
static int read_answer(const struct filling *f, const json_t *value,
                       const char *key, struct weft_str *out)
{
    if (json_is_string(value))
        return copy(f, value, out);
    if (json_is_array(value))
        return read_turn(f, value, 0, key, out);
    return weft_err_set(f->err, WEFT_EFORMAT,
                        "%s: '%s' must be a string or a list of messages, "
                        "not %s",
                        f->subject, key, weft_json_type(value));
}

/* ---- The prompt ------------------------------------------------------- */

static bool is_conversation(const char *key)
{
    const char *dot = strrchr(key, '.');
    key = dot ? dot + 1 : key;
    return strcmp(key, "messages") == 0 || strcmp(key, "conversations") == 0;
}

static int check_prompt(const struct filling *f, const char *key)
{
    const struct weft_row *row = f->row;
    bool empty = row->prompt.n == 0;
    for (size_t i = 0; i < row->n_messages; i++)
        empty = empty && !*row->message[i].content;
    if (empty)
        return weft_err_set(f->err, WEFT_EINVAL, "%s: '%s' is empty",
                            f->subject, key);
    return 0;
}

/* A list under the key: of a conversation, the assistant's last turn is the
 * response. */
static int prompt_list(const struct filling *f, const json_t *list,
                       const char *key)
{
    size_t n = json_array_size(list);
    const char *role = n ? turn_of(json_array_get(list, n - 1)).role : NULL;
    struct weft_row *row = f->row;
    if (is_conversation(key) && n > 1 && role
        && strcmp(role, "assistant") == 0) {
        n--;
        int rc = read_turn(f, list, n, key, &row->response);
        if (rc)
            return rc;
    }
    int rc = read_messages(f, list, n, key, &row->message);
    if (!rc)
        row->n_messages = n;
    return rc;
}

static int fill_prompt(const struct filling *f)
{
    const char *key = f->format->prompt;
    const json_t *value = weft_json_find(f->object, key);
    json_t *parsed = NULL;
    int rc = 0;
    if (!value)
        return no_named_key(f, "prompt", key);
    if (json_is_string(value) && is_conversation(key)) {
        /* ROLL: the list as a string */
        struct weft_err inner = {0};
        struct weft_str text = weft_json_str(value);
        if (weft_json_parse_texts(text.s, text.n, key, 1, &parsed, &inner))
            return weft_err_set(f->err, WEFT_EFORMAT,
                                "%s: '%s' must be a list of messages, or one "
                                "as a JSON string",
                                f->subject, key);
        value = parsed;
    }
    if (json_is_string(value) && !parsed)
        rc = copy(f, value, &f->row->prompt);
    else if (json_is_array(value))
        rc = prompt_list(f, value, key);
    else
        rc = weft_err_set(f->err, WEFT_EFORMAT,
                          "%s: '%s' must be a string or a list of messages, "
                          "not %s",
                          f->subject, key, weft_json_type(value));
    json_decref(parsed);
    return rc ? rc : check_prompt(f, key);
}

/* ---- Pairs ------------------------------------------------------------ */

/* ReaLHF has a list of answers on either side. */
static int one_answer(const struct filling *f, const char *key,
                      json_t **value)
{
    if (!strstr(key, "_answers"))
        return 0;
    if (json_array_size(*value) != 1)
        return weft_err_set(f->err, WEFT_EUNSUPPORTED,
                            "%s: '%s' must hold one answer, not %zu; write a "
                            "row for each pair",
                            f->subject, key, json_array_size(*value));
    *value = json_array_get(*value, 0);
    return 0;
}

/* Bytes that two texts share, as TRL cuts them: a space before the first
 * difference belongs to the answers; of a text that begins with the other,
 * the last shared character does too. */
static size_t common_bytes(struct weft_str a, struct weft_str b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.s[n] == b.s[n])
        n++;
    bool ends = n == a.n || n == b.n;
    if (ends && n > 0)
        n--;
    while (n > 0 && (a.s[n] & 0xc0) == 0x80) /* whole characters */
        n--;
    return !ends && n > 0 && a.s[n - 1] == ' ' ? n - 1 : n;
}

/* Without a key, the prompt is what chosen and rejected begin with. */
static int split_pair(const struct filling *f, const json_t *chosen,
                      const json_t *rejected)
{
    struct weft_row *row = f->row;
    int rc;
    if (json_is_string(chosen) && json_is_string(rejected)) {
        struct weft_str a = weft_json_str(chosen);
        struct weft_str b = weft_json_str(rejected);
        size_t n = common_bytes(a, b);
        rc = weft_str_copy((struct weft_str){a.s, n}, &row->prompt, f->err);
        if (!rc)
            rc = weft_str_copy(weft_str_after(a, n), &row->chosen, f->err);
        if (!rc)
            rc = weft_str_copy(weft_str_after(b, n), &row->rejected, f->err);
    } else if (json_is_array(chosen) && json_is_array(rejected)) {
        size_t n = 0, most = json_array_size(chosen);
        if (json_array_size(rejected) < most)
            most = json_array_size(rejected);
        while (n + 1 < most
               && json_equal(json_array_get(chosen, n),
                             json_array_get(rejected, n)))
            n++;
        rc = read_turn(f, chosen, n, "chosen", &row->chosen);
        if (!rc)
            rc = read_turn(f, rejected, n, "rejected", &row->rejected);
        if (!rc)
            rc = read_messages(f, chosen, n, "chosen", &row->message);
        if (!rc)
            row->n_messages = n;
    } else {
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: 'chosen' and 'rejected' must both be "
                            "strings, or both lists of messages",
                            f->subject);
    }
    return rc ? rc : check_prompt(f, "chosen");
}

/* With a prompt of its own, lists may repeat it. */
static int read_side(const struct filling *f, const json_t *value,
                     const char *key, struct weft_str *out)
{
    size_t n = json_array_size(value);
    if (n > 1)
        return read_turn(f, value, n - 1, key, out);
    return read_answer(f, value, key, out);
}

static int fill_pair(const struct filling *f)
{
    const struct weft_dataset_keys *named = &f->format->named;
    const char *chosen_key = named->chosen, *rejected_key = named->rejected;
    json_t *chosen = chosen_key
                       ? weft_json_find(f->object, chosen_key)
                       : first_of(f->object, CHOSEN_KEYS, &chosen_key);
    json_t *rejected = rejected_key
                         ? weft_json_find(f->object, rejected_key)
                         : first_of(f->object, REJECTED_KEYS, &rejected_key);
    bool wanted = named->need & WEFT_NEED_PAIR
               || f->format->form == WEFT_PROMPT_COMMON;
    if (!chosen && (named->chosen || wanted))
        return no_named_key(f, "chosen answer",
                            chosen_key ? chosen_key : "chosen");
    if (!rejected && (named->rejected || wanted))
        return no_named_key(f, "rejected answer",
                            rejected_key ? rejected_key : "rejected");
    if (!chosen || !rejected)
        return 0;
    int rc = one_answer(f, chosen_key, &chosen);
    if (!rc)
        rc = one_answer(f, rejected_key, &rejected);
    if (!rc && f->format->form == WEFT_PROMPT_COMMON)
        return split_pair(f, chosen, rejected);
    if (!rc)
        rc = read_side(f, chosen, chosen_key, &f->row->chosen);
    if (!rc)
        rc = read_side(f, rejected, rejected_key, &f->row->rejected);
    return rc;
}

/* ---- Response and label ----------------------------------------------- */

static int fill_response(const struct filling *f)
{
    const struct weft_dataset_keys *named = &f->format->named;
    const char *key = named->response;
    json_t *value = NULL;
    if (key) {
        value = weft_json_find(f->object, key);
        if (!value)
            return no_named_key(f, "response", key);
        weft_str_release(&f->row->response);
    } else if (f->row->response.s) {
        return 0; /* the conversation's last turn */
    } else if (f->format->form == WEFT_PROMPT_NONE) {
        key = "text";
        value = weft_json_find(f->object, key);
        if (!value && !(named->need & WEFT_NEED_NOTHING))
            return no_named_key(f, "response", key);
    } else {
        value = first_of(f->object, RESPONSE_KEYS, &key);
        /* A number is a label. */
        if (value && !json_is_string(value) && !json_is_array(value))
            value = NULL;
        if (value && f->format->prompt && strcmp(key, f->format->prompt) == 0)
            value = NULL;
    }
    if (value)
        return read_answer(f, value, key, &f->row->response);
    if (named->need & WEFT_NEED_RESPONSE)
        return no_key(f->object, f->subject, "response",
                      "'completion', 'response', 'output' or 'answer' "
                      "(another can be named)",
                      f->err);
    return 0;
}

static int fill_label(const struct filling *f)
{
    const struct weft_dataset_keys *named = &f->format->named;
    const char *key = named->label;
    const json_t *value = key ? weft_json_find(f->object, key)
                              : first_of(f->object, LABEL_KEYS, &key);
    if (!value && named->label)
        return no_named_key(f, "label", named->label);
    if (!value && named->need & WEFT_NEED_LABEL)
        return no_key(f->object, f->subject, "label",
                      "'label', 'ground_truth', 'answer' or 'solution' "
                      "(another can be named)",
                      f->err);
    if (!value)
        return 0;
    if (json_is_string(value))
        return copy(f, value, &f->row->label);
    f->row->label = weft_str_of(weft_json_text(value));
    return f->row->label.s ? 0 : weft_err_nomem(f->err, "a row", 0);
}

int weft_row_fill(const json_t *object, const char *subject,
                  const struct weft_row_format *format, struct weft_row *row,
                  struct weft_err *err)
{
    struct weft_row_format own = *format;
    const struct filling f = {object, subject, &own, row, err};
    int rc = format->form == WEFT_PROMPT_ANY
               ? detect(object, subject, true, &own, err)
               : 0;
    if (!rc && own.form == WEFT_PROMPT_KEY)
        rc = fill_prompt(&f);
    if (!rc)
        rc = fill_pair(&f);
    if (!rc)
        rc = fill_response(&f);
    if (!rc)
        rc = fill_label(&f);
    if (rc)
        weft_row_release(row);
    return rc;
}

void weft_row_release(struct weft_row *row)
{
    weft_str_release(&row->prompt);
    free_messages(row->message, row->n_messages);
    weft_str_release(&row->response);
    weft_str_release(&row->label);
    weft_str_release(&row->chosen);
    weft_str_release(&row->rejected);
    weft_free(row->json);
    memset(row, 0, sizeof *row);
}
