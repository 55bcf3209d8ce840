/* SPDX-License-Identifier: Apache-2.0 */
#include "text/chat.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/chat_builtin.h"

#include <stdio.h>
#include <string.h>

struct weft_chat {
    struct weft_jinja *jinja;
    json_t *tokens; /* name -> text of the folder's special tokens */
    struct weft_date date;
    char *turn_end;
};

static const struct {
    const char *name, *text;
} BUILTIN[] = {{"chatml", WEFT_CHAT_CHATML},
               {"llama3", WEFT_CHAT_LLAMA3},
               {"mistral", WEFT_CHAT_MISTRAL}};

/* ---- A text that grows ------------------------------------------------ */

struct text {
    char *s;
    size_t n, capacity;
    bool failed; /* memory ran out; reported once, at the end */
};

static void put_n(struct text *t, const char *s, size_t n)
{
    if (t->failed)
        return;
    if (t->n + n + 1 > t->capacity) {
        size_t capacity = 2 * t->capacity + n + 256;
        char *more = weft_realloc(t->s, capacity, 1);
        if (!more) {
            t->failed = true;
            return;
        }
        t->s = more;
        t->capacity = capacity;
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

static void put(struct text *t, const char *s)
{
    put_n(t, s, strlen(s));
}

/* ---- Patterns, as Jinja ----------------------------------------------- */

/* Writes n bytes as a Jinja literal, {{ "..." }}; \n, \t and \\ in them mean
 * what they do in YAML and on command lines. */
static void put_literal(struct text *t, const char *s, size_t n)
{
    if (n == 0)
        return;
    put(t, "{{- \"");
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\' && i + 1 < n && strchr("nt\\", s[i + 1]))
            put_n(t, s + i++, 2);
        else if (s[i] == '\\' || s[i] == '"')
            put(t, s[i] == '"' ? "\\\"" : "\\\\");
        else
            put_n(t, s + i, 1);
    }
    put(t, "\" -}}");
}

/* Writes n bytes of a pattern before or after {content}; `role` is the Jinja
 * that replaces {role}. */
static void put_part(struct text *t, const char *s, size_t n,
                     const char *role)
{
    const char *end = s + n, *place;
    while ((place = strstr(s, "{role}")) && place < end) {
        put_literal(t, s, (size_t) (place - s));
        put(t, role);
        s = place + 6;
    }
    put_literal(t, s, (size_t) (end - s));
}

/* Writes a message's content and what the pattern has after it. */
static void put_turn(struct text *t, const char *after)
{
    put(t, "{{- text(m.content) -}}");
    put_part(t, after, strlen(after), "{{- m.role -}}");
}

static int parse_pattern(const char *pattern, struct weft_jinja **out,
                         struct weft_err *err)
{
    const char *place = strstr(pattern, "{content}"), *after = place + 9;
    size_t before = (size_t) (place - pattern);
    struct text t = {0};
    if (strstr(after, "{content}"))
        return weft_err_set(err, WEFT_EINVAL,
                            "chat template '%.100s' has {content} twice",
                            pattern);
    put(&t, WEFT_CHAT_TEXT "{%- for m in messages -%}");
    put_part(&t, pattern, before, "{{- m.role -}}");
    put(&t, "{%- if m.role == 'assistant' -%}{%- generation -%}");
    put_turn(&t, after);
    put(&t, "{%- endgeneration -%}{%- else -%}");
    put_turn(&t, after);
    put(&t, "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}");
    put_part(&t, pattern, before, "{{- 'assistant' -}}");
    put(&t, "{%- endif -%}");
    int rc = t.failed ? weft_err_nomem(err, "a chat template", t.n)
                      : weft_jinja_parse(t.s, t.n, "the pattern", out, err);
    weft_free(t.s);
    return rc;
}

/* ---- Folders ---------------------------------------------------------- */

/* Adds the special tokens of a configuration: the keys that end in "_token",
 * which hold texts or objects with "content". */
static int add_tokens(const json_t *config, json_t *tokens,
                      struct weft_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *) (uintptr_t) config, key, value)
    {
        size_t n = strlen(key);
        if (n < 7 || strcmp(key + n - 6, "_token") != 0)
            continue;
        if (json_is_object(value))
            value = json_object_get(value, "content");
        if (json_is_string(value) && json_object_set(tokens, key, value) != 0)
            return weft_err_nomem(err, "a chat template", n);
    }
    return 0;
}

/* The template of a configuration, or NULL. Several templates are a list of
 * {"name", "template"}; the one named "default" is taken. */
static const json_t *template_of(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template"), *item;
    size_t i;
    if (json_is_string(value))
        return value;
    json_array_foreach(value, i, item)
    {
        struct weft_str name = weft_json_str(json_object_get(item, "name"));
        if (weft_str_equal(name, weft_str_of("default")))
            return json_object_get(item, "template");
    }
    return NULL;
}

/* Reads a JSON file of the folder, if it exists. */
static int read_config(const char *folder, const char *name, char **path,
                       json_t **out, struct weft_err *err)
{
    *path = weft_path_join(folder, name);
    if (!*path)
        return weft_err_nomem(err, "a path", 0);
    if (!weft_path_exists(*path))
        return 0;
    return weft_json_read(*path, (size_t) 64 << 20, out, err);
}

static int parse_file(const char *path, struct weft_jinja **out,
                      struct weft_err *err)
{
    char *text = NULL;
    size_t n = 0;
    int rc = weft_file_read(path, (size_t) 16 << 20, &text, &n, err);
    if (!rc)
        rc = weft_jinja_parse(text, n, path, out, err);
    weft_free(text);
    return rc;
}

static int parse_folder(const char *folder, const char *config_path,
                        const json_t *config, struct weft_jinja **out,
                        struct weft_err *err)
{
    char *path = weft_path_join(folder, "chat_template.jinja");
    struct weft_str text = weft_json_str(template_of(config));
    int rc;
    if (!path)
        rc = weft_err_nomem(err, "a path", 0);
    else if (weft_path_exists(path))
        rc = parse_file(path, out, err);
    else if (text.s)
        rc = weft_jinja_parse(text.s, text.n, config_path, out, err);
    else
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' has no chat template (chat_template.jinja, "
                          "or 'chat_template' in tokenizer_config.json)",
                          folder);
    weft_free(path);
    return rc;
}

/* Reads what a folder gives: its special tokens and, with `its_template`, its
 * template. */
static int open_folder(struct weft_chat *c, const char *folder,
                       bool its_template, struct weft_err *err)
{
    json_t *map = NULL, *config = NULL;
    char *map_path = NULL, *config_path = NULL;
    int rc = read_config(folder, "special_tokens_map.json", &map_path, &map,
                         err);
    if (!rc)
        rc = read_config(folder, "tokenizer_config.json", &config_path,
                         &config, err);
    if (!rc)
        rc = add_tokens(map, c->tokens, err);
    if (!rc)
        rc = add_tokens(config, c->tokens, err);
    if (!rc && its_template)
        rc = parse_folder(folder, config_path, config, &c->jinja, err);
    json_decref(map);
    json_decref(config);
    weft_free(map_path);
    weft_free(config_path);
    return rc;
}

/* ---- Opening ---------------------------------------------------------- */

static const char *builtin(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(BUILTIN); i++)
        if (strcmp(name, BUILTIN[i].name) == 0)
            return BUILTIN[i].text;
    return NULL;
}

bool weft_chat_is_name(const char *name)
{
    return strcmp(name, "folder") == 0 || builtin(name)
        || strstr(name, "{content}");
}

static int open_named(struct weft_chat *c, const char *name,
                      struct weft_err *err)
{
    const char *text = builtin(name);
    if (text)
        return weft_jinja_parse(text, strlen(text), name, &c->jinja, err);
    if (strstr(name, "{content}"))
        return parse_pattern(name, &c->jinja, err);
    return weft_err_set(err, WEFT_EINVAL,
                        "chat template '%.100s' is none of folder, chatml, "
                        "llama3, mistral, nor a pattern with {role} and "
                        "{content}",
                        name);
}

/* Renders an answer to find out what the template writes behind it. */
static int find_turn_end(struct weft_chat *c, struct weft_err *err)
{
    static const char answer[] = "WEFT-ANSWER";
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user",
                                 "content", "WEFT-QUESTION", "role",
                                 "assistant", "content", answer);
    struct weft_str text = {0};
    const char *end = "";
    if (!messages)
        return weft_err_nomem(err, "a chat template", 0);
    if (weft_chat_render(c, messages, NULL, false, &text, NULL) == 0)
        for (const char *p = text.s; (p = strstr(p, answer));)
            end = p += sizeof answer - 1;
    c->turn_end = weft_strdup(end);
    json_decref(messages);
    weft_str_release(&text);
    return c->turn_end ? 0 : weft_err_nomem(err, "a chat template", 0);
}

int weft_chat_open(const char *name, const char *folder,
                   const struct weft_date *date, struct weft_chat **out,
                   struct weft_err *err)
{
    struct weft_chat *c = weft_alloc(1, sizeof *c);
    bool its_template = strcmp(name, "folder") == 0;
    int rc = 0;
    if (!c)
        return weft_err_nomem(err, "a chat template", sizeof *c);
    c->date = *date;
    c->tokens = json_object();
    if (!c->tokens)
        rc = weft_err_nomem(err, "a chat template", 0);
    if (!rc && its_template && !folder)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "a folder's chat template needs a folder");
    if (!rc && folder)
        rc = open_folder(c, folder, its_template, err);
    if (!rc && !its_template)
        rc = open_named(c, name, err);
    if (!rc)
        rc = find_turn_end(c, err);
    if (rc) {
        weft_chat_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void weft_chat_free(struct weft_chat *c)
{
    if (!c)
        return;
    weft_jinja_free(c->jinja);
    json_decref(c->tokens);
    weft_free(c->turn_end);
    weft_free(c);
}

const char *weft_chat_turn_end(const struct weft_chat *c)
{
    return c->turn_end;
}

/* ---- Rendering -------------------------------------------------------- */

/* Data and templates use different names for a message's thinking. As in
 * Transformers, a message that has it under a name of the data gets it under
 * the names of the templates too. */
static json_t *with_thinking(const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking",
                                        "reasoning"};
    json_t *out = json_copy((json_t *) (uintptr_t) message), *text = NULL;
    for (size_t i = 0; i < WEFT_COUNT(names) && !text; i++) {
        text = json_object_get(message, names[i]);
        text = json_is_null(text) ? NULL : text;
    }
    if (!out || !text)
        return out;
    if (json_object_set(out, "reasoning_content", text) != 0
        || (!json_object_get(out, "thinking")
            && json_object_set(out, "thinking", text) != 0)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* All variables of the template. NULL when memory is out. */
static json_t *context_of(const struct weft_chat *c, const json_t *messages,
                          const json_t *variables, bool generate)
{
    json_t *context = json_copy(c->tokens), *list = json_array();
    const json_t *one;
    size_t i;
    int rc = context && list ? 0 : -1;
    rc = rc || json_object_set_new(context, "tools", json_null());
    rc = rc || json_object_set_new(context, "documents", json_null());
    if (!rc && variables)
        rc = json_object_update(context, (json_t *) (uintptr_t) variables);
    json_array_foreach(messages, i, one)
        rc = rc || json_array_append_new(list, with_thinking(one));
    rc = rc || json_object_set(context, "messages", list);
    rc = rc
      || json_object_set_new(context, "add_generation_prompt",
                             json_boolean(generate));
    json_decref(list);
    if (rc) {
        json_decref(context);
        return NULL;
    }
    return context;
}

int weft_chat_render(const struct weft_chat *c, const json_t *messages,
                     const json_t *variables, bool add_generation_prompt,
                     struct weft_str *text_out, struct weft_err *err)
{
    return weft_chat_render_marked(
        c, messages, variables, add_generation_prompt, text_out, NULL, err);
}

bool weft_chat_has_marks(const struct weft_chat *c)
{
    return weft_jinja_has_marks(c->jinja);
}

const char *weft_chat_source(const struct weft_chat *c)
{
    return weft_jinja_name(c->jinja);
}

int weft_chat_render_marked(const struct weft_chat *c, const json_t *messages,
                            const json_t *variables,
                            bool add_generation_prompt,
                            struct weft_str *text_out,
                            struct weft_jinja_marks *marks_out,
                            struct weft_err *err)
{
    json_t *context = context_of(c, messages, variables,
                                 add_generation_prompt);
    if (!context)
        return weft_err_nomem(err, "messages", 0);
    int rc = weft_jinja_render(c->jinja, context, &c->date, NULL, text_out,
                               marks_out, err);
    json_decref(context);
    return rc;
}
