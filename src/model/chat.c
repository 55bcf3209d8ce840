/* SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_impl.h"

#include "base/alloc.h"
#include "model/unicode.h"

#include <string.h>

/* ---- A text that grows ------------------------------------------------ */

struct text {
    char *s;
    size_t n, capacity;
    bool failed; /* memory ran out: said once, at the end */
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
    if (s)
        put_n(t, s, strlen(s));
}

/* What Python's str.strip() takes: White_Space and four separators. */
static bool is_strippable(uint32_t c)
{
    return weft_unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static void strip(const char **s, size_t *n)
{
    uint32_t c = 0;
    int length;
    while (*n > 0 && (length = weft_utf8_next(*s, *n, &c)) > 0
           && is_strippable(c)) {
        *s += length;
        *n -= (size_t) length;
    }
    while (*n > 0) {
        size_t start = *n - 1;
        while (start > 0 && ((*s)[start] & 0xc0) == 0x80)
            start--;
        if (weft_utf8_next(*s + start, *n - start, &c) < 0
            || !is_strippable(c))
            break;
        *n = start;
    }
}

static void put_content(struct text *t, const struct weft_chat *chat,
                        const char *content)
{
    size_t n = strlen(content);
    if (chat->trim)
        strip(&content, &n);
    put_n(t, content, n);
}

static bool is_role(const struct weft_message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

/* ---- chatml ----------------------------------------------------------- */

/* The part behind the last </think>, or all of it. */
static const char *after_thinking(const char *content)
{
    static const char end[] = "</think>";
    const char *p = content, *last = NULL;
    while ((p = strstr(p, end)))
        last = p += sizeof end - 1;
    if (!last)
        return content;
    return last + strspn(last, "\n");
}

/* Qwen3 shows the thinking of the turns behind the last question: an empty
 * one in the last message, the others' only where there is some. */
static void put_qwen3_answer(struct text *t, const char *content, bool last)
{
    const char *answer = after_thinking(content);
    const char *end = strstr(content, "</think>"), *start = content;
    size_t n = end ? (size_t) (end - content) : 0;
    /* rstrip("\n"), the part behind the last <think>, lstrip("\n") */
    while (n > 0 && content[n - 1] == '\n')
        n--;
    for (const char *p = content; end && (p = strstr(p, "<think>"));) {
        p += 7;
        if (p <= content + n)
            start = p;
    }
    n -= (size_t) (start - content);
    while (n > 0 && *start == '\n') {
        start++;
        n--;
    }
    if (last || n > 0) {
        put(t, "<think>\n");
        put_n(t, start, n);
        put(t, "\n</think>\n\n");
        put(t, answer + strspn(answer, "\n"));
    } else {
        put(t, answer);
    }
}

static void put_chatml_answer(struct text *t, const struct weft_chat *chat,
                              const char *content, bool after_question,
                              bool last)
{
    if (chat->thinking == WEFT_THINK_QWEN3 && after_question)
        put_qwen3_answer(t, content, last);
    else if (chat->thinking == WEFT_THINK_QWEN3)
        put(t, after_thinking(content));
    else if (chat->thinking == WEFT_THINK_STRIP)
        put(t,
            after_thinking(content) + strspn(after_thinking(content), "\n"));
    else
        put_content(t, chat, content);
}

static int render_chatml(struct text *t, const struct weft_chat *chat,
                         const struct weft_message *m, size_t n,
                         bool generate, struct weft_err *err)
{
    size_t question = 0; /* the last one */
    for (size_t i = 0; i < n; i++) {
        if (is_role(&m[i], "tool"))
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "message %zu has the role 'tool', which Weft "
                                "does not render",
                                i);
        if (is_role(&m[i], "user"))
            question = i;
    }
    put(t, chat->bos);
    if (chat->default_system && !is_role(&m[0], "system")) {
        put(t, "<|im_start|>system\n");
        put(t, chat->default_system);
        put(t, "<|im_end|>\n");
    }
    for (size_t i = 0; i < n; i++) {
        put(t, "<|im_start|>");
        put(t, m[i].role);
        put(t, "\n");
        if (is_role(&m[i], "assistant"))
            put_chatml_answer(t, chat, m[i].content, i > question,
                              i + 1 == n);
        else
            put_content(t, chat, m[i].content);
        put(t, "<|im_end|>\n");
    }
    if (generate)
        put(t, "<|im_start|>assistant\n");
    if (generate && chat->open_think)
        put(t, "<think>\n");
    return 0;
}

/* ---- llama3 ----------------------------------------------------------- */

static void put_llama3_header(struct text *t, const char *role)
{
    put(t, "<|start_header_id|>");
    put(t, role);
    put(t, "<|end_header_id|>\n\n");
}

static int render_llama3(struct text *t, const struct weft_chat *chat,
                         const struct weft_message *m, size_t n,
                         bool generate, struct weft_err *err)
{
    size_t i = 0;
    put(t, chat->bos);
    if (chat->dates) { /* always a system message, with the dates */
        put_llama3_header(t, "system");
        put(t, "Cutting Knowledge Date: December 2023\n"
               "Today Date: 26 Jul 2024\n\n");
        if (is_role(&m[0], "system"))
            put_content(t, chat, m[i++].content);
        put(t, "<|eot_id|>");
    }
    for (; i < n; i++) {
        if (is_role(&m[i], "tool") || is_role(&m[i], "ipython"))
            return weft_err_set(err, WEFT_EUNSUPPORTED,
                                "message %zu has the role '%s', which Weft "
                                "does not render",
                                i, m[i].role);
        put_llama3_header(t, m[i].role);
        put_content(t, chat, m[i].content);
        put(t, "<|eot_id|>");
    }
    if (generate)
        put_llama3_header(t, "assistant");
    return 0;
}

/* ---- mistral ---------------------------------------------------------- */

/* Question, answer, question, ... */
static int check_turns(const struct weft_message *m, size_t n, size_t first,
                       struct weft_err *err)
{
    if (n == 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "the messages hold no user's message");
    for (size_t i = 0; i < n; i++) {
        const char *wanted = i % 2 ? "assistant" : "user";
        if (!is_role(&m[i], wanted))
            return weft_err_set(err, WEFT_EINVAL,
                                "message %zu has the role '%s', but the "
                                "template 'mistral' wants '%s' there",
                                first + i, m[i].role, wanted);
    }
    return 0;
}

static int render_mistral(struct text *t, const struct weft_chat *chat,
                          const struct weft_message *m, size_t n,
                          bool generate, struct weft_err *err)
{
    const struct weft_message *system = NULL;
    if (is_role(&m[0], "system")) {
        if (chat->system == WEFT_SYSTEM_REFUSED)
            return weft_err_set(err, WEFT_EINVAL,
                                "the model's chat template takes no system "
                                "message");
        system = m++;
        n--;
    }
    int rc = check_turns(m, n, system ? 1 : 0, err);
    if (rc)
        return rc;
    put(t, chat->bos);
    for (size_t i = 0; i < n; i++) {
        if (i % 2) {
            put(t, chat->answer_space ? " " : "");
            put_content(t, chat, m[i].content);
            put(t, chat->eos);
            continue;
        }
        put(t, chat->open);
        if (system && i == (chat->system == WEFT_SYSTEM_FIRST ? 0 : n - 1)) {
            put(t, system->content);
            put(t, "\n\n");
        }
        put(t, m[i].content);
        put(t, chat->close);
    }
    (void) generate; /* [/INST] opens the answer already */
    return 0;
}

/* ---- A pattern -------------------------------------------------------- */

static void put_role(struct text *t, const char *pattern, const char *role)
{
    const char *place;
    while ((place = strstr(pattern, "{role}"))) {
        put_n(t, pattern, (size_t) (place - pattern));
        put(t, role);
        pattern = place + 6;
    }
    put(t, pattern);
}

static int render_pattern(struct text *t, const struct weft_chat *chat,
                          const struct weft_message *m, size_t n,
                          bool generate, struct weft_err *err)
{
    (void) err;
    for (size_t i = 0; i < n; i++) {
        put_role(t, chat->pattern, m[i].role);
        put(t, m[i].content);
        put_role(t, chat->pattern_end, m[i].role);
    }
    if (generate)
        put_role(t, chat->pattern, "assistant");
    return 0;
}

/* \n, \t and \\ as people write them in YAML and on command lines. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s == '\\' && strchr("nt\\", s[1]) && s[1]) {
            s++;
            *to++ = *s == 'n' ? '\n' : *s == 't' ? '\t' : '\\';
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
}

static int open_pattern(struct weft_chat *c, const char *pattern,
                        struct weft_err *err)
{
    const char *place = strstr(pattern, "{content}");
    if (!place)
        return weft_err_set(err, WEFT_EINVAL,
                            "chat template '%.100s' is none of auto, chatml, "
                            "llama3, mistral, nor a pattern with {role} and "
                            "{content}",
                            pattern);
    if (strstr(place + 9, "{content}"))
        return weft_err_set(err, WEFT_EINVAL,
                            "chat template '%.100s' has {content} twice",
                            pattern);
    c->kind = WEFT_CHAT_PATTERN;
    c->pattern = weft_strndup(pattern, (size_t) (place - pattern));
    c->pattern_end = weft_strdup(place + 9);
    if (!c->pattern || !c->pattern_end)
        return weft_err_nomem(err, "a chat template", strlen(pattern));
    unescape(c->pattern);
    unescape(c->pattern_end);
    return 0;
}

/* ---- Opening ---------------------------------------------------------- */

static int open_named(struct weft_chat *c, const char *name,
                      struct weft_err *err)
{
    if (strcmp(name, "chatml") == 0) {
        c->kind = WEFT_CHAT_CHATML;
    } else if (strcmp(name, "llama3") == 0) {
        c->kind = WEFT_CHAT_LLAMA3;
        c->trim = true;
        c->bos = weft_strdup("<|begin_of_text|>");
    } else if (strcmp(name, "mistral") == 0) { /* v3: 7B-Instruct-v0.3 */
        c->kind = WEFT_CHAT_MISTRAL;
        c->bos = weft_strdup("<s>");
        c->eos = weft_strdup("</s>");
        c->open = "[INST] ";
        c->close = "[/INST]";
        c->answer_space = true;
        c->trim = true;
        c->system = WEFT_SYSTEM_LAST;
    } else {
        return open_pattern(c, name, err);
    }
    if ((c->kind != WEFT_CHAT_CHATML && !c->bos)
        || (c->kind == WEFT_CHAT_MISTRAL && !c->eos))
        return weft_err_nomem(err, "a chat template", 16);
    return 0;
}

int weft_chat_open(const char *name, const char *folder,
                   struct weft_chat **out, struct weft_err *err)
{
    if (strcmp(name, "auto") == 0) {
        if (!folder)
            return weft_err_set(err, WEFT_EINVAL,
                                "chat template 'auto' needs a model folder");
        return weft_chat_open_folder(folder, out, err);
    }
    struct weft_chat *c = weft_alloc(1, sizeof *c);
    if (!c)
        return weft_err_nomem(err, "a chat template", sizeof *c);
    int rc = open_named(c, name, err);
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
    weft_free(c->bos);
    weft_free(c->eos);
    weft_free(c->default_system);
    weft_free(c->pattern);
    weft_free(c->pattern_end);
    weft_free(c);
}

/* ---- Using ------------------------------------------------------------ */

const char *weft_chat_family(const struct weft_chat *c)
{
    static const char *const names[] = {"chatml", "llama3", "mistral",
                                        "pattern"};
    return names[c->kind];
}

int weft_chat_render(const struct weft_chat *c, const struct weft_message *m,
                     size_t n, bool add_generation_prompt, char **text_out,
                     struct weft_err *err)
{
    typedef int (*render_fn)(struct text *, const struct weft_chat *,
                             const struct weft_message *, size_t, bool,
                             struct weft_err *);
    static const render_fn render[] = {render_chatml, render_llama3,
                                       render_mistral, render_pattern};
    struct text t = {0};
    if (n == 0)
        return weft_err_set(err, WEFT_EINVAL, "there are no messages");
    put(&t, "");
    int rc = render[c->kind](&t, c, m, n, add_generation_prompt, err);
    if (!rc && t.failed)
        rc = weft_err_nomem(err, "a text", t.n);
    if (rc) {
        weft_free(t.s);
        return rc;
    }
    *text_out = t.s;
    return 0;
}

const char *weft_chat_turn_end(const struct weft_chat *c)
{
    switch (c->kind) {
    case WEFT_CHAT_CHATML:
        return "<|im_end|>";
    case WEFT_CHAT_LLAMA3:
        return "<|eot_id|>";
    case WEFT_CHAT_MISTRAL:
        return c->eos;
    case WEFT_CHAT_PATTERN:
        return c->pattern_end;
    }
    return "";
}
