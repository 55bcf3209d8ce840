/* SPDX-License-Identifier: Apache-2.0 */
/* Which family a Jinja text belongs to, and how it differs from the rest. */
#include "model/chat_impl.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* ---- Jinja in one spelling -------------------------------------------- */

/* Inside tags: no blanks between words, double quotes, "\\n" for newlines.
 * So "message['content'] | trim" reads "message["content"]|trim". NULL when
 * memory is out; caller frees. */
static char *squeeze(const char *jinja)
{
    size_t n = strlen(jinja), at = 0;
    char *out = weft_alloc(2 * n + 1, 1); /* a newline becomes two */
    bool in_tag = false;
    char quote = 0;
    if (!out)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        char c = jinja[i], next = jinja[i + 1];
        if (!in_tag) {
            in_tag = c == '{' && (next == '{' || next == '%');
            out[at++] = c;
        } else if (quote && c == '\n') {
            out[at++] = '\\';
            out[at++] = 'n';
        } else if (quote && c == '\\' && next) {
            out[at++] = c;
            out[at++] = next;
            i++;
        } else if (quote == '\'' && c == '"') {
            out[at++] = '\\';
            out[at++] = c;
        } else if (quote) {
            out[at++] = c == quote ? '"' : c;
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
            out[at++] = '"';
        } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            in_tag = !((c == '}' || c == '%') && next == '}');
            out[at++] = c;
        }
    }
    return out;
}

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Any of the parts, up to a NULL. */
static bool has_any(const char *text, const char *const *part)
{
    for (; *part; part++)
        if (has(text, *part))
            return true;
    return false;
}

/* ---- Families --------------------------------------------------------- */

/* True when the first n characters hold no end of a string, nor a tag. */
static bool is_literal(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\')
            i++;
        else if (p[i] == '"' || p[i] == '{')
            return false;
    }
    return n > 0;
}

/* A copy of what stands between `before` and `after` in one string of the
 * template; *out stays NULL when there is none. */
static int literal(const char *text, const char *before, const char *after,
                   char **out, struct weft_err *err)
{
    const char *p = text;
    while ((p = strstr(p, before))) {
        p += strlen(before);
        const char *end = strstr(p, after);
        size_t n = end ? (size_t) (end - p) : 0;
        if (!is_literal(p, n))
            continue;
        char *copy = weft_alloc(n + 1, 1);
        if (!copy)
            return weft_err_nomem(err, "a chat template", n + 1);
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            if (p[i] == '\\' && i + 1 < n)
                i++, copy[at++] = p[i] == 'n' ? '\n' : p[i];
            else
                copy[at++] = p[i];
        }
        *out = copy;
        return 0;
    }
    return 0;
}

static int keep(const char *text, char **out, struct weft_err *err)
{
    *out = text ? weft_strdup(text) : NULL;
    return text && !*out ? weft_err_nomem(err, "a chat template", 0) : 0;
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    while ((text = strstr(text, part))) {
        n++;
        text += strlen(part);
    }
    return n;
}

/* What a chatml template does with thinking; false when it says more about
 * it than Weft knows. */
static bool detect_thinking(struct weft_chat *c, const char *s)
{
    static const char strip[] = ".split(\"</think>\")[-1].lstrip(\"\\n\")";
    static const char open[] = "<|im_start|>assistant\\n<think>\\n";
    c->open_think = has(s, open);
    if (has(s, "last_query_index")) {
        c->thinking = WEFT_THINK_QWEN3;
        return has(s, "loop.lastor(notloop.lastandreasoning_content)")
            && (!has(s, "enable_thinking")
                || has(s, "enable_thinkingisdefinedand"
                          "enable_thinkingisfalse"));
    }
    if (has(s, strip))
        c->thinking = WEFT_THINK_STRIP;
    return count(s, "think") == count(s, strip) + count(s, open);
}

/* {% set x = "something" %}: perhaps a system message by another way. */
static bool sets_text(const char *text)
{
    const char *s = text;
    while ((s = strstr(s, "set"))) {
        char before = s > text ? s[-1] : 0;
        s += 3;
        size_t name = strspn(s, "abcdefghijklmnopqrstuvwxyz_.");
        if ((before == '%' || before == '-') && s[name] == '='
            && s[name + 1] == '"' && s[name + 2] != '"')
            return true;
    }
    return false;
}

/* False: the markers are there, but what surrounds them is not known. */
static bool detect_chatml(struct weft_chat *c, const char *s, const char *bos,
                          int *rc, struct weft_err *err)
{
    static const char *const ends[] = {"<|im_end|>\\n", "<|im_end|>\"+\"\\n",
                                       "<|im_end|>\"~\"\\n", "<|im_end|>\n",
                                       NULL};
    static const char *const others[] = {"<|im_sep|>",       "<|im_middle|>",
                                         "<|vision_start|>", "<|image",
                                         "<image",           NULL};
    if (has_any(s, others) || sets_text(s) || !has_any(s, ends)
        || !has(s, "<|im_start|>assistant") || !detect_thinking(c, s))
        return false;
    c->kind = WEFT_CHAT_CHATML;
    c->trim = has(s, "content\"]|trim") || has(s, ".content|trim");
    *rc = literal(s, "<|im_start|>system\\n", "<|im_end|>",
                  &c->default_system, err);
    if (!*rc && has(s, "bos_token"))
        *rc = keep(bos, &c->bos, err);
    return true;
}

static bool detect_llama3(struct weft_chat *c, const char *s, const char *bos,
                          int *rc, struct weft_err *err)
{
    if (!has(s, "<|end_header_id|>\\n\\n") || !has(s, "<|eot_id|>"))
        return false;
    c->kind = WEFT_CHAT_LLAMA3;
    c->trim = has(s, "|trim");
    c->dates = has(s, "Cutting Knowledge Date: December 2023");
    if (has(s, "bos_token") || has(s, "<|begin_of_text|>"))
        *rc = keep(bos ? bos : "<|begin_of_text|>", &c->bos, err);
    return true;
}

static bool detect_mistral(struct weft_chat *c, const char *s,
                           const char *bos, const char *eos, int *rc,
                           struct weft_err *err)
{
    static const char *const spaced[] = {"\" \"+message[\"content\"]",
                                         "\" \"+message.content", NULL};
    static const char *const trimmed[] = {
        "message[\"content\"]|trim+eos_token",
        "message.content|trim+eos_token", NULL};
    if (has(s, "<<SYS>>") || has(s, "[SYSTEM_PROMPT]"))
        return false;
    c->kind = WEFT_CHAT_MISTRAL;
    c->open = has(s, "\" [INST] \"") ? " [INST] "
            : has(s, "\"[INST] \"")  ? "[INST] "
            : has(s, "\"[INST]\"")   ? "[INST]"
                                     : NULL;
    c->close = has(s, "\" [/INST]\"") ? " [/INST]"
             : has(s, "\"[/INST]\"")  ? "[/INST]"
                                      : NULL;
    if (!c->open || !c->close || !has(s, "eos_token"))
        return false;
    c->answer_space = has_any(s, spaced);
    c->trim = has_any(s, trimmed);
    c->system = has(s, "loop.lastandsystem_message")  ? WEFT_SYSTEM_LAST
              : has(s, "loop.firstandsystem_message") ? WEFT_SYSTEM_FIRST
                                                      : WEFT_SYSTEM_REFUSED;
    if (has(s, "bos_token"))
        *rc = keep(bos ? bos : "<s>", &c->bos, err);
    if (!*rc)
        *rc = keep(eos ? eos : "</s>", &c->eos, err);
    return true;
}

int weft_chat_detect(const char *jinja, const char *bos, const char *eos,
                     const char *name, struct weft_chat **out,
                     struct weft_err *err)
{
    struct weft_chat *c = weft_alloc(1, sizeof *c);
    char *s = squeeze(jinja);
    bool known = false;
    int rc = 0;
    if (!c || !s) {
        rc = weft_err_nomem(err, "a chat template", strlen(jinja));
        goto out;
    }
    if (has(s, "<|im_start|>"))
        known = detect_chatml(c, s, bos, &rc, err);
    else if (has(s, "<|start_header_id|>"))
        known = detect_llama3(c, s, bos, &rc, err);
    else if (has(s, "[INST]"))
        known = detect_mistral(c, s, bos, eos, &rc, err);
    if (!known && !rc)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%s: the chat template is of no family that Weft "
                          "knows (chatml, llama3, mistral); name one, or "
                          "give a pattern with {role} and {content}",
                          name);
out:
    weft_free(s);
    if (rc) {
        weft_chat_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* ---- Folders ---------------------------------------------------------- */

/* The text of a token: a string, or an object with "content". */
static const char *token_text(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    return json_string_value(value);
}

/* A template, or of several the one called "default". */
static const char *template_text(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template"), *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

static int from_folder(const char *folder, char *const path[2],
                       struct weft_chat **out, struct weft_err *err)
{
    json_t *config = NULL;
    char *jinja = NULL;
    const char *text = NULL, *where = path[0];
    size_t n = 0;
    int rc = 0;
    if (weft_file_exists(path[1]))
        rc = weft_json_read(path[1], (size_t) 64 << 20, &config, err);
    if (!rc && weft_file_exists(path[0])) {
        rc = weft_file_read(path[0], (size_t) 16 << 20, &jinja, &n, err);
        text = jinja;
    } else {
        text = template_text(config);
        where = path[1];
    }
    if (!rc && !text)
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' has no chat template (chat_template.jinja, "
                          "or 'chat_template' in tokenizer_config.json); "
                          "name one: chatml, llama3, mistral, or a pattern",
                          folder);
    if (!rc)
        rc = weft_chat_detect(text, token_text(config, "bos_token"),
                              token_text(config, "eos_token"), where, out,
                              err);
    weft_free(jinja);
    json_decref(config);
    return rc;
}

/* "auto" of weft_chat_open(). */
int weft_chat_open_folder(const char *folder, struct weft_chat **out,
                          struct weft_err *err)
{
    char *path[2] = {weft_path_join(folder, "chat_template.jinja"),
                     weft_path_join(folder, "tokenizer_config.json")};
    int rc = path[0] && path[1] ? from_folder(folder, path, out, err)
                                : weft_err_nomem(err, "a path", 0);
    weft_free(path[0]);
    weft_free(path[1]);
    return rc;
}
