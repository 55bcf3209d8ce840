/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that data of other programs use, and what they mean. */
#include "text/dataset_impl.h"

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

/* A row that is being filled, and what it is made from. */
struct filling {
    const json_t *object;
    const char *subject; /* "file:line" */
    const struct weft_row_format *format;
    struct weft_row *row;
    struct weft_err *err;
};

/* ---- Messages for a person -------------------------------------------- */

/* Writes the object's keys as "'a', 'b', ..." into out. */
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

/* Finds where the prompt is. With `each` it is for this row alone, which may
 * have none. */
static int detect(const json_t *object, const char *subject, bool each,
                  struct weft_row_format *format, struct weft_err *err)
{
    format->form = WEFT_PROMPT_KEY;
    if (format->named.prompt) {
        format->prompt = format->named.prompt;
        return 0; /* weft_row_fill() checks that the row has it */
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

/* Copies the text of a JSON string. */
static int copy(const struct filling *f, const json_t *value,
                struct weft_str *out)
{
    return weft_str_copy(weft_json_str(value), out, f->err);
}

/* Reads the first n items of a list as messages. */
static int read_messages(const struct filling *f, const json_t *list,
                         size_t n, const char *key)
{
    struct weft_row *row = f->row;
    row->messages = json_array();
    if (!row->messages)
        return weft_err_nomem(f->err, "a row", 0);
    for (size_t i = 0; i < n; i++) {
        const struct weft_message_place place = {f->subject, key, i};
        const json_t *item = json_array_get(list, i);
        struct weft_str content = {0};
        int rc = weft_message_text(item, &place, &content, f->err);
        weft_str_release(&content);
        if (rc)
            return rc;
        if (json_array_append_new(row->messages, weft_message_copy(item)))
            return weft_err_nomem(f->err, "a row", 0);
    }
    return 0;
}

/* Copies the text of the assistant's turn that the list has from item `first`
 * on; message_out, unless it is NULL, gets the message. */
static int read_turn(const struct filling *f, const json_t *list,
                     size_t first, const char *key, struct weft_str *out,
                     json_t **message_out)
{
    if (json_array_size(list) != first + 1)
        return weft_err_set(f->err, WEFT_EUNSUPPORTED,
                            "%s: '%s' must hold one assistant's message%s, "
                            "not %zu",
                            f->subject, key, first ? " of its own" : "",
                            json_array_size(list) - first);
    const json_t *item = json_array_get(list, first);
    const struct weft_message_place place = {f->subject, key, first};
    const char *role = weft_message_role(item);
    if (role && strcmp(role, "assistant") != 0)
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: the last message of '%s' is by '%.40s', not "
                            "by the assistant",
                            f->subject, key, role);
    int rc = weft_message_text(item, &place, out, f->err);
    if (!rc && message_out) {
        *message_out = weft_message_copy(item);
        if (!*message_out)
            rc = weft_err_nomem(f->err, "a row", 0);
    }
    return rc;
}

/* Reads an answer: a string, or a list of one message of the assistant. */
static int read_answer(const struct filling *f, const json_t *value,
                       const char *key, struct weft_str *out,
                       json_t **message_out)
{
    if (json_is_string(value))
        return copy(f, value, out);
    if (json_is_array(value))
        return read_turn(f, value, 0, key, out, message_out);
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
    const json_t *message;
    size_t i;
    json_array_foreach(row->messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        empty = empty && json_string_length(content) == 0
             && json_array_size(content) == 0;
    }
    if (empty)
        return weft_err_set(f->err, WEFT_EINVAL, "%s: '%s' is empty",
                            f->subject, key);
    return 0;
}

/* Reads a prompt that is a list. The assistant's last turn of a conversation
 * is the response. */
static int prompt_list(const struct filling *f, const json_t *list,
                       const char *key)
{
    size_t n = json_array_size(list);
    const char *role = n ? weft_message_role(json_array_get(list, n - 1))
                         : NULL;
    struct weft_row *row = f->row;
    if (is_conversation(key) && n > 1 && role
        && strcmp(role, "assistant") == 0) {
        n--;
        int rc = read_turn(f, list, n, key, &row->response, &row->answer);
        if (rc)
            return rc;
        row->last_turn = true;
    }
    return read_messages(f, list, n, key);
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
        /* ROLL has the list as a JSON string. */
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

/* ReaLHF has lists of answers for chosen and rejected; each must hold one. */
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

/* Length in bytes of the prompt that two texts share, as TRL cuts it: a space
 * before the first difference belongs to the answers. When one text begins
 * with the whole other, the last shared character belongs to the answers, so
 * that none is empty. */
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

/* Without a key for it, the prompt is the common beginning of chosen and
 * rejected. */
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
        rc = read_turn(f, chosen, n, "chosen", &row->chosen,
                       &row->chosen_answer);
        if (!rc)
            rc = read_turn(f, rejected, n, "rejected", &row->rejected,
                           &row->rejected_answer);
        if (!rc)
            rc = read_messages(f, chosen, n, "chosen");
    } else {
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: 'chosen' and 'rejected' must both be "
                            "strings, or both lists of messages",
                            f->subject);
    }
    return rc ? rc : check_prompt(f, "chosen");
}

/* Reads chosen or rejected of a row that has a prompt of its own; lists may
 * repeat the prompt. */
static int read_side(const struct filling *f, const json_t *value,
                     const char *key, struct weft_str *out,
                     json_t **message_out)
{
    size_t n = json_array_size(value);
    if (n > 1)
        return read_turn(f, value, n - 1, key, out, message_out);
    return read_answer(f, value, key, out, message_out);
}

/* Whether the row has that key; its number into `out`. */
static int read_number(const struct filling *f, const char *key, bool *has,
                       double *out)
{
    const json_t *value = weft_json_find(f->object, key);
    *has = value != NULL;
    *out = json_number_value(value);
    if (!value || json_is_number(value))
        return 0;
    return weft_err_set(f->err, WEFT_EFORMAT,
                        "%s: '%s' must be a number, not %s", f->subject, key,
                        weft_json_type(value));
}

static int fill_margin(const struct filling *f)
{
    struct weft_row *row = f->row;
    bool has[2] = {false, false};
    int rc = read_number(f, "margin", &row->has_margin, &row->margin);
    if (!rc)
        rc = read_number(f, "score_chosen", &has[0], &row->score[0]);
    if (!rc)
        rc = read_number(f, "score_rejected", &has[1], &row->score[1]);
    row->has_scores = has[0] && has[1];
    return rc;
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
               || f->format->form == WEFT_PROMPT_COMMON
               || (named->need & WEFT_NEED_EXAMPLE && (chosen || rejected));
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
    if (!rc && named->need & WEFT_NEED_PAIR)
        rc = fill_margin(f);
    if (!rc && f->format->form == WEFT_PROMPT_COMMON)
        return split_pair(f, chosen, rejected);
    if (!rc)
        rc = read_side(f, chosen, chosen_key, &f->row->chosen,
                       &f->row->chosen_answer);
    if (!rc)
        rc = read_side(f, rejected, rejected_key, &f->row->rejected,
                       &f->row->rejected_answer);
    return rc;
}

/* Whether the row must have what `need` says, or is a pair instead. */
static bool needs(const struct filling *f, enum weft_dataset_need need)
{
    unsigned set = f->format->named.need;
    return set & need || (set & WEFT_NEED_EXAMPLE && !f->row->chosen.s);
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
        json_decref(f->row->answer);
        f->row->answer = NULL;
        f->row->last_turn = false;
    } else if (f->row->response.s) {
        return 0; /* it was the conversation's last turn */
    } else if (f->format->form == WEFT_PROMPT_NONE) {
        key = "text";
        value = weft_json_find(f->object, key);
        if (!value && !(named->need & WEFT_NEED_NOTHING))
            return no_named_key(f, "response", key);
    } else {
        value = first_of(f->object, RESPONSE_KEYS, &key);
        /* A number under such a key is a label, not a response. */
        if (value && !json_is_string(value) && !json_is_array(value))
            value = NULL;
        if (value && f->format->prompt && strcmp(key, f->format->prompt) == 0)
            value = NULL;
    }
    if (value)
        return read_answer(f, value, key, &f->row->response, &f->row->answer);
    if (needs(f, WEFT_NEED_RESPONSE))
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
    if (!value && needs(f, WEFT_NEED_LABEL))
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

/* ---- What a chat template is given ------------------------------------ */

/* Reads `tools`: a list, or one as a JSON string. */
static int fill_tools(const struct filling *f)
{
    json_t *tools = json_object_get(f->object, "tools"), *parsed = NULL;
    struct weft_str text = weft_json_str(tools);
    struct weft_err inner = {0};
    int rc = 0;
    if (!tools || json_is_null(tools))
        return 0;
    if (text.s
        && weft_json_parse_texts(text.s, text.n, "tools", 1, &parsed, &inner)
               == 0)
        tools = parsed;
    if (!json_is_array(tools))
        rc = weft_err_set(f->err, WEFT_EFORMAT,
                          "%s: 'tools' must be a list, or one as a JSON "
                          "string",
                          f->subject);
    else if (json_object_set(f->row->variables, "tools", tools) != 0)
        rc = weft_err_nomem(f->err, "a row", 0);
    json_decref(parsed);
    return rc;
}

static int fill_variables(const struct filling *f)
{
    const json_t *more = json_object_get(f->object, "chat_template_kwargs");
    if (!f->row->messages || (!more && !json_object_get(f->object, "tools")))
        return 0;
    if (more && !json_is_null(more) && !json_is_object(more))
        return weft_err_set(f->err, WEFT_EFORMAT,
                            "%s: 'chat_template_kwargs' must be an object, "
                            "not %s",
                            f->subject, weft_json_type(more));
    f->row->variables = json_is_object(more)
                          ? json_copy((json_t *) (uintptr_t) more)
                          : json_object();
    if (!f->row->variables)
        return weft_err_nomem(f->err, "a row", 0);
    return fill_tools(f);
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
    if (!rc)
        rc = fill_variables(&f);
    if (rc)
        weft_row_release(row);
    return rc;
}

void weft_row_release(struct weft_row *row)
{
    weft_str_release(&row->prompt);
    json_decref(row->messages);
    json_decref(row->answer);
    json_decref(row->variables);
    weft_str_release(&row->response);
    weft_str_release(&row->label);
    weft_str_release(&row->chosen);
    weft_str_release(&row->rejected);
    json_decref(row->chosen_answer);
    json_decref(row->rejected_answer);
    weft_free(row->json);
    memset(row, 0, sizeof *row);
}
