/* SPDX-License-Identifier: Apache-2.0 */
/* From a template's text to tokens. What is around tags is stripped here. */
#include "text/jinja/impl.h"

#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

struct lexer {
    struct weft_jstate *st;
    const char *s;
    size_t n, at;
    bool line_start; /* what was read last ends in a newline */
    struct weft_jtoken *token;
    size_t n_tokens, capacity;
};

static char peek(const struct lexer *l, size_t ahead)
{
    return l->at + ahead < l->n ? l->s[l->at + ahead] : 0;
}

static bool starts(const struct lexer *l, const char *with)
{
    size_t n = strlen(with);
    return l->n - l->at >= n && memcmp(l->s + l->at, with, n) == 0;
}

static void advance(struct lexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->st->line += l->s[l->at + i] == '\n';
    if (n > 0)
        l->line_start = l->s[l->at + n - 1] == '\n';
    l->at += n;
}

static void skip_space(struct lexer *l)
{
    advance(l, weft_j_space(l->s + l->at, l->n - l->at));
}

static struct weft_jtoken *add(struct lexer *l, enum weft_jtoken_kind kind)
{
    if (l->n_tokens == l->capacity) {
        size_t capacity = 2 * l->capacity + 64;
        struct weft_jtoken *more = weft_j_alloc(l->st, capacity,
                                                sizeof *more);
        if (l->n_tokens > 0)
            memcpy(more, l->token, l->n_tokens * sizeof *more);
        l->token = more;
        l->capacity = capacity;
    }
    struct weft_jtoken *t = &l->token[l->n_tokens++];
    *t = (struct weft_jtoken){.kind = kind, .line = l->st->line};
    return t;
}

static void add_text(struct lexer *l, const char *s, size_t n)
{
    if (n > 0)
        add(l, WEFT_JT_TEXT)->text = (struct weft_str){s, n};
}

/* ---- Outside of tags -------------------------------------------------- */

/* The text before a tag, less what the tag's sign takes from its end. */
static size_t text_before(const struct lexer *l, size_t n, char sign,
                          bool prints)
{
    const char *s = l->s + l->at;
    size_t line = n;
    if (sign == '-')
        return weft_j_strip((struct weft_str){s, n}, NULL, false, true).n;
    if (sign == '+' || prints)
        return n;
    while (line > 0 && s[line - 1] != '\n')
        line--;
    if ((line > 0 || l->line_start)
        && weft_j_space(s + line, n - line) == n - line)
        return line;
    return n;
}

/* Behind a tag's closing characters: a newline, or all white space. */
static void after_tag(struct lexer *l, char sign)
{
    if (sign == '-')
        skip_space(l);
    else if (sign != '+' && peek(l, 0) == '\n')
        advance(l, 1);
}

static void skip_comment(struct lexer *l)
{
    size_t start = l->at;
    while (!starts(l, "#}")) {
        if (l->at == l->n)
            weft_j_fail(l->st, WEFT_EFORMAT, "the comment has no '#}'");
        advance(l, 1);
    }
    char sign = l->at > start ? l->s[l->at - 1] : 0;
    advance(l, 2);
    after_tag(l, sign);
}

/* Bytes of a tag "{% word %}" whose "{%" and sign have been read; 0: it is
 * another. */
static size_t tag_of(const struct lexer *l, size_t at, const char *word)
{
    size_t n = at + weft_j_space(l->s + at, l->n - at), w = strlen(word);
    if (l->n - n < w || memcmp(l->s + n, word, w) != 0)
        return 0;
    n += w;
    n += weft_j_space(l->s + n, l->n - n);
    if (n < l->n && (l->s[n] == '-' || l->s[n] == '+'))
        n++;
    return l->n - n >= 2 && memcmp(l->s + n, "%}", 2) == 0 ? n + 2 - at : 0;
}

/* Behind "{% raw %}": all up to "{% endraw %}" is text. */
static void read_raw(struct lexer *l, size_t tag)
{
    bool strip = l->s[l->at + tag - 3] == '-';
    advance(l, tag);
    if (strip)
        skip_space(l);
    for (size_t i = l->at; i + 2 <= l->n; i++) {
        size_t start = i + 2;
        char sign = 0;
        if (memcmp(l->s + i, "{%", 2) != 0)
            continue;
        if (start < l->n && (l->s[start] == '-' || l->s[start] == '+'))
            sign = l->s[start++];
        tag = tag_of(l, start, "endraw");
        if (tag == 0)
            continue;
        add_text(l, l->s + l->at, text_before(l, i - l->at, sign, false));
        advance(l, start + tag - l->at);
        after_tag(l, l->s[l->at - 3]);
        return;
    }
    weft_j_fail(l->st, WEFT_EFORMAT, "'raw' has no 'endraw'");
}

/* ---- Inside of tags --------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
        || c == '_' || (c & 0x80);
}

static void read_number(struct lexer *l)
{
    size_t n = 0;
    bool real = false;
    char text[64];
    while (is_digit(peek(l, n)))
        n++;
    if (peek(l, n) == '.' && is_digit(peek(l, n + 1))) {
        real = true;
        for (n++; is_digit(peek(l, n));)
            n++;
    }
    size_t sign = peek(l, n + 1) == '+' || peek(l, n + 1) == '-';
    if ((peek(l, n) | 0x20) == 'e' && is_digit(peek(l, n + 1 + sign))) {
        real = true;
        for (n += 2 + sign; is_digit(peek(l, n));)
            n++;
    }
    if (is_word(peek(l, n)) || n >= sizeof text)
        weft_j_fail(l->st, WEFT_EUNSUPPORTED,
                    "the number '%.20s...' is written in a way that Weft "
                    "does not read",
                    l->s + l->at);
    memcpy(text, l->s + l->at, n);
    text[n] = 0;
    if (!real
        && (n > 18 || (n > 1 && text[0] == '0' && strspn(text, "0") < n)))
        weft_j_fail(l->st, WEFT_EUNSUPPORTED,
                    "the number %s is too long, or begins with 0", text);
    add(l, WEFT_JT_NUMBER)->value = real
                                      ? weft_j_float(strtod(text, NULL))
                                      : weft_j_int(strtoll(text, NULL, 10));
    advance(l, n);
}

/* The code behind \x, \u, \U: exactly n hexadecimal digits. */
static uint32_t read_hex(struct lexer *l, const char *s, const char *end,
                         size_t n)
{
    uint32_t c = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = s + i >= end   ? -1
                  : is_digit(s[i]) ? s[i] - '0'
                  : (s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'f'
                      ? (s[i] | 0x20) - 'a' + 10
                      : -1;
        if (digit < 0)
            weft_j_fail(l->st, WEFT_EFORMAT,
                        "a string has '\\%c' without %zu digits", s[-1], n);
        c = c * 16 + (uint32_t) digit;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        weft_j_fail(l->st, WEFT_EUNSUPPORTED,
                    "a string has the code 0x%x, which is no character", c);
    return c;
}

/* One escape sequence behind its backslash; returns its end. */
static const char *unescape(struct lexer *l, const char *s, const char *end,
                            char **to)
{
    static const char from[] = "ntr\\'\"abfv", into[] = "\n\t\r\\'\"\a\b\f\v";
    const char *known = strchr(from, *s);
    size_t digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    if (known && *s) {
        *(*to)++ = into[known - from];
        return s + 1;
    }
    if (digits > 0) {
        *to += weft_utf8_put(read_hex(l, s + 1, end, digits), *to);
        return s + 1 + digits;
    }
    if (*s >= '0' && *s <= '7') {
        uint32_t c = 0;
        for (int i = 0; i < 3 && s < end && *s >= '0' && *s <= '7'; i++)
            c = c * 8 + (uint32_t) (*s++ - '0');
        *to += weft_utf8_put(c, *to);
        return s;
    }
    if (*s == 'N')
        weft_j_fail(l->st, WEFT_EUNSUPPORTED,
                    "a string has a character by name, '\\N'");
    if (*s != '\n') { /* a backslash at a line's end joins the lines */
        *(*to)++ = '\\';
        *(*to)++ = *s;
    }
    return s + 1;
}

static void read_string(struct lexer *l)
{
    char quote = peek(l, 0);
    size_t n = 1;
    while (l->at + n < l->n && peek(l, n) != quote)
        n += peek(l, n) == '\\' ? 2 : 1;
    if (l->at + n >= l->n)
        weft_j_fail(l->st, WEFT_EFORMAT, "a string has no end");
    struct weft_jtoken *t = add(l, WEFT_JT_STRING);
    const char *s = l->s + l->at + 1, *end = l->s + l->at + n;
    char *text = weft_j_alloc(l->st, n + 4, 1), *to = text;
    while (s < end) {
        if (*s == '\\')
            s = unescape(l, s + 1, end, &to);
        else
            *to++ = *s++;
    }
    t->text = (struct weft_str){text, (size_t) (to - text)};
    advance(l, n + 1);
}

static void read_op(struct lexer *l, char *open, size_t *depth, size_t most)
{
    static const char two[] = "== != <= >= // **";
    char c = peek(l, 0), d = peek(l, 1);
    struct weft_jtoken *t = add(l, WEFT_JT_OP);
    for (const char *p = two; *p; p += p[2] ? 3 : 2) {
        if (c == p[0] && d == p[1]) {
            t->op = WEFT_JOP(c, d);
            advance(l, 2);
            return;
        }
    }
    if (!c || !strchr("+-*/%~<>=.,:|()[]{}", c))
        weft_j_fail(l->st, WEFT_EFORMAT,
                    "unexpected character '%.*s' in a tag",
                    (c & 0x80) ? 0 : 1, l->s + l->at);
    if (strchr("([{", c)) {
        if (*depth == most)
            weft_j_fail(l->st, WEFT_EINVAL,
                        "more than %zu brackets in one another", most);
        open[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c) && (*depth == 0 || open[--*depth] != c)) {
        weft_j_fail(l->st, WEFT_EFORMAT, "'%c' closes nothing", c);
    }
    t->op = c;
    advance(l, 1);
}

/* Tokens up to the end of a tag. */
static void read_tag(struct lexer *l, bool prints)
{
    const char *end = prints ? "}}" : "%}";
    char open[256];
    size_t depth = 0;
    int line = l->st->line;
    add(l, prints ? WEFT_JT_PRINT_BEGIN : WEFT_JT_BLOCK_BEGIN);
    for (;;) {
        skip_space(l);
        char c = peek(l, 0);
        bool sign = c == '-' || (c == '+' && !prints);
        if (depth == 0
            && (starts(l, end)
                || (sign && peek(l, 1) == end[0] && peek(l, 2) == end[1]))) {
            add(l, prints ? WEFT_JT_PRINT_END : WEFT_JT_BLOCK_END);
            advance(l, sign ? 3 : 2);
            if (!prints || c == '-')
                after_tag(l, c);
            return;
        }
        if (l->at >= l->n) {
            l->st->line = line;
            weft_j_fail(l->st, WEFT_EFORMAT, "the tag has no '%s'", end);
        }
        if (c == '"' || c == '\'') {
            read_string(l);
        } else if (is_digit(c)) {
            read_number(l);
        } else if (is_word(c)) {
            struct weft_jtoken *t = add(l, WEFT_JT_NAME);
            size_t n = 0;
            while (is_word(peek(l, n)))
                n++;
            t->text = (struct weft_str){l->s + l->at, n};
            advance(l, n);
        } else {
            read_op(l, open, &depth, sizeof open);
        }
    }
}

/* ---- All -------------------------------------------------------------- */

/* A copy with \n for every kind of line end, and without the last one. */
static void take_source(struct lexer *l, const char *s, size_t n)
{
    char *copy = weft_j_alloc(l->st, n + 1, 1);
    size_t at = 0;
    if (!weft_utf8_valid(s, n))
        weft_j_fail(l->st, WEFT_EFORMAT, "the template is not UTF-8");
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            continue;
        copy[at++] = s[i] == '\r' ? '\n' : s[i];
    }
    if (at > 0 && copy[at - 1] == '\n')
        at--;
    l->s = copy;
    l->n = at;
}

/* The next "{{", "{%" or "{#", or the end. */
static size_t find_tag(const struct lexer *l)
{
    size_t i = l->at;
    while (i < l->n
           && !(l->s[i] == '{' && i + 1 < l->n && l->s[i + 1]
                && strchr("{%#", l->s[i + 1])))
        i++;
    return i;
}

struct weft_jtoken *weft_j_lex(struct weft_jstate *st, const char *text,
                               size_t n)
{
    struct lexer l = {.st = st, .line_start = true};
    st->line = 1;
    take_source(&l, text, n);
    while (l.at < l.n) {
        size_t tag = find_tag(&l), length;
        if (tag == l.n) {
            add_text(&l, l.s + l.at, l.n - l.at);
            advance(&l, l.n - l.at);
            break;
        }
        char kind = l.s[tag + 1], sign = tag + 2 < l.n ? l.s[tag + 2] : 0;
        sign = sign == '-' || sign == '+' ? sign : 0;
        add_text(&l, l.s + l.at,
                 text_before(&l, tag - l.at, sign, kind == '{'));
        advance(&l, tag - l.at + 2 + (sign ? 1 : 0));
        if (kind == '#')
            skip_comment(&l);
        else if (kind == '%' && (length = tag_of(&l, l.at, "raw")) > 0)
            read_raw(&l, length);
        else
            read_tag(&l, kind == '{');
    }
    add(&l, WEFT_JT_END);
    return l.token;
}
