/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja's filters on texts and numbers; those on lists are in list.c. */
#include "text/jinja/impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value as text. */
static struct weft_str text_of(struct weft_jstate *st,
                               const struct weft_jfilter_call *c)
{
    if (c->v.kind == WEFT_J_MARKUP)
        weft_j_fail(st, WEFT_EUNSUPPORTED,
                    "the filter '%.*s' of a string that is marked as safe",
                    (int) c->name.n, c->name.s);
    return weft_j_str(st, c->v);
}

/* ---- Texts ------------------------------------------------------------ */

static struct weft_jvalue f_trim(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    struct weft_str chars = {0}, s = weft_j_str(st, c->v);
    const struct weft_jvalue *given = weft_j_arg(st, c->args, 0, "chars");
    bool all = !given || given->kind == WEFT_J_NONE;
    if (!all)
        chars = weft_j_arg_text(st, c->args, 0, "chars", "");
    weft_j_step(st, s.n / 64);
    struct weft_jvalue v = weft_j_text(
        weft_j_strip(s, all ? NULL : &chars, true, true));
    v.kind = c->v.kind == WEFT_J_MARKUP ? WEFT_J_MARKUP : WEFT_J_STRING;
    return v;
}

static struct weft_jvalue f_string(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    return weft_j_is_string(c->v) ? c->v : weft_j_text(text_of(st, c));
}

static struct weft_jvalue f_safe(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    struct weft_jvalue v = weft_j_text(weft_j_str(st, c->v));
    v.kind = WEFT_J_MARKUP;
    return v;
}

static struct weft_jvalue f_escape(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    if (c->v.kind == WEFT_J_MARKUP && c->name.s[0] != 'f')
        return c->v;
    return weft_j_escape(st, weft_j_text(weft_j_str(st, c->v)));
}

static struct weft_jvalue f_case(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    return weft_j_case(st, text_of(st, c),
                       c->name.s[0] == 'l'   ? WEFT_JCASE_LOWER
                       : c->name.s[0] == 'u' ? WEFT_JCASE_UPPER
                       : c->name.s[0] == 'c' ? WEFT_JCASE_CAPITAL
                                             : WEFT_JCASE_WORDS);
}

static struct weft_jvalue f_replace(struct weft_jstate *st,
                                    const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *count = weft_j_arg(st, c->args, 2, "count");
    int64_t most = count && count->kind != WEFT_J_NONE
                     ? weft_j_arg_int(st, c->args, 2, "count", -1)
                     : -1;
    const struct weft_jvalue *old = weft_j_arg(st, c->args, 0, "old");
    const struct weft_jvalue *new = weft_j_arg(st, c->args, 1, "new");
    if (!old || !new)
        weft_j_fail(st, WEFT_EINVAL,
                    "the filter 'replace' takes 'old' and "
                    "'new'");
    return weft_j_replace(st, text_of(st, c), weft_j_str(st, *old),
                          weft_j_str(st, *new), most);
}

static struct weft_jvalue f_indent(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *width = weft_j_arg(st, c->args, 0, "width");
    bool first = weft_j_arg_bool(st, c->args, 1, "first", false);
    bool blank = weft_j_arg_bool(st, c->args, 2, "blank", false);
    struct weft_str s = text_of(st, c), by;
    struct weft_jout out = {0};
    if (width && weft_j_is_string(*width))
        by = width->text;
    else
        by = weft_j_binary(
                 st, '*', weft_j_text(WEFT_JSTR(" ")),
                 weft_j_int(weft_j_arg_int(st, c->args, 0, "width", 4)))
                 .text;
    for (size_t at = 0, line = 0; at <= s.n; line++) {
        const char *end = memchr(s.s + at, '\n', s.n - at);
        size_t n = end ? (size_t) (end - s.s) - at : s.n - at;
        if (line > 0)
            weft_j_add(st, &out, "\n", 1);
        if (line == 0 ? first : n > 0 || blank)
            weft_j_add_text(st, &out, by);
        weft_j_add(st, &out, s.s + at, n);
        at += n + 1;
    }
    return weft_j_taken(&out);
}

static struct weft_jvalue f_format(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    if (c->args->named.dict->n > 0)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "the filter 'format' by names");
    return weft_j_percent(st, text_of(st, c), c->args->item, c->args->n);
}

static void read_separators(struct weft_jstate *st, struct weft_jvalue v,
                            struct weft_jjson *how)
{
    struct weft_jlist pair = weft_j_items(st, v);
    if (pair.n != 2 || !weft_j_is_string(pair.item[0])
        || !weft_j_is_string(pair.item[1]))
        weft_j_fail(st, WEFT_EINVAL,
                    "tojson: 'separators' must be two strings");
    how->item = pair.item[0].text;
    how->key = pair.item[1].text;
}

static struct weft_jvalue f_tojson(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *indent = weft_j_arg(st, c->args, 1, "indent");
    const struct weft_jvalue *by = weft_j_arg(st, c->args, 2, "separators");
    struct weft_jout out = {0};
    struct weft_jjson how = {
        .ascii = weft_j_arg_bool(st, c->args, 0, "ensure_ascii", false),
        .sort = weft_j_arg_bool(st, c->args, 3, "sort_keys", false),
        .item = WEFT_JSTR(", "),
        .key = WEFT_JSTR(": ")};
    if (indent && indent->kind != WEFT_J_NONE) {
        how.indented = true;
        how.item = WEFT_JSTR(",");
        how.indent = weft_j_is_string(*indent)
                       ? indent->text
                       : weft_j_binary(st, '*', weft_j_text(WEFT_JSTR(" ")),
                                       *indent)
                             .text;
    }
    if (by && by->kind != WEFT_J_NONE)
        read_separators(st, *by, &how);
    weft_j_add_json(st, &out, c->v, &how);
    return weft_j_taken(&out);
}

static struct weft_jvalue f_wordcount(struct weft_jstate *st,
                                      const struct weft_jfilter_call *c)
{
    struct weft_jargs none = {.named = weft_j_dict(st, WEFT_J_DICT)};
    struct weft_jvalue words = weft_j_call_method(
        st, weft_j_text(text_of(st, c)), WEFT_JSTR("split"), &none);
    return weft_j_int((int64_t) words.list->n);
}

/* ---- Numbers ---------------------------------------------------------- */

/* A number at the beginning of text and nothing but white space around. */
static bool read_number(struct weft_str s, bool integer, int base,
                        struct weft_jvalue *out)
{
    char text[64], *end;
    s = weft_j_strip(s, NULL, true, true);
    if (s.n == 0 || s.n >= sizeof text || memchr(s.s, '_', s.n)
        || memchr(s.s, 'x', s.n) || memchr(s.s, 'X', s.n)
        || memchr(s.s, 0, s.n))
        return false;
    memcpy(text, s.s, s.n);
    text[s.n] = 0;
    errno = 0;
    if (integer)
        *out = weft_j_int(strtoll(text, &end, base));
    else
        *out = weft_j_float(strtod(text, &end));
    return *end == 0 && (errno == 0 || !integer)
        && (integer || !memchr(s.s, '(', s.n));
}

static struct weft_jvalue f_int(struct weft_jstate *st,
                                const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *fallback = weft_j_arg(st, c->args, 0,
                                                    "default");
    int base = (int) weft_j_arg_int(st, c->args, 1, "base", 10);
    struct weft_jvalue v = c->v, out;
    if (base != 10)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "the filter 'int' with a base");
    if (v.kind == WEFT_J_UNDEFINED)
        weft_j_fail(st, WEFT_EINVAL, "%.*s is undefined", (int) v.text.n,
                    v.text.s);
    if (weft_j_is_int(v))
        return weft_j_int(weft_j_as_int(v));
    if (weft_j_is_string(v) && read_number(v.text, true, base, &out))
        return out;
    if (weft_j_is_string(v) && read_number(v.text, false, 0, &out))
        v = out;
    if (v.kind == WEFT_J_FLOAT && isfinite(v.f)) {
        if (fabs(v.f) >= 0x1p62)
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "an integer of more than 64 bits");
        return weft_j_int((int64_t) v.f);
    }
    return fallback ? *fallback : weft_j_int(0);
}

static struct weft_jvalue f_float(struct weft_jstate *st,
                                  const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *fallback = weft_j_arg(st, c->args, 0,
                                                    "default");
    struct weft_jvalue out;
    if (c->v.kind == WEFT_J_UNDEFINED)
        weft_j_fail(st, WEFT_EINVAL, "%.*s is undefined", (int) c->v.text.n,
                    c->v.text.s);
    if (weft_j_is_number(c->v))
        return weft_j_float(weft_j_as_float(c->v));
    if (weft_j_is_string(c->v) && read_number(c->v.text, false, 0, &out))
        return out;
    return fallback ? *fallback : weft_j_float(0);
}

static struct weft_jvalue number_of(struct weft_jstate *st,
                                    const struct weft_jfilter_call *c)
{
    if (!weft_j_is_number(c->v))
        weft_j_fail(st, WEFT_EINVAL, "the filter '%.*s' of %s",
                    (int) c->name.n, c->name.s, weft_j_type(c->v));
    return c->v;
}

static struct weft_jvalue f_abs(struct weft_jstate *st,
                                const struct weft_jfilter_call *c)
{
    struct weft_jvalue v = number_of(st, c);
    if (v.kind == WEFT_J_FLOAT)
        return weft_j_float(fabs(v.f));
    int64_t i = weft_j_as_int(v);
    return i < 0 ? weft_j_binary(st, '-', weft_j_int(0), v) : weft_j_int(i);
}

static struct weft_jvalue f_round(struct weft_jstate *st,
                                  const struct weft_jfilter_call *c)
{
    int64_t digits = weft_j_arg_int(st, c->args, 0, "precision", 0);
    struct weft_str how = weft_j_arg_text(st, c->args, 1, "method", "common");
    double x = weft_j_as_float(number_of(st, c));
    char text[400];
    if (digits < 0 || digits > 15)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "rounding to %lld digits",
                    (long long) digits);
    if (weft_j_is(how, "common") && weft_j_is_int(c->v))
        return weft_j_int(weft_j_as_int(c->v));
    if (weft_j_is(how, "common") && isfinite(x)) {
        /* C prints the decimal that is nearest, as Python rounds. */
        snprintf(text, sizeof text, "%.*f", (int) digits, x);
        return weft_j_float(strtod(text, NULL));
    }
    double scale = pow(10, (double) digits);
    if (weft_j_is(how, "ceil"))
        return weft_j_float(ceil(x * scale) / scale);
    if (weft_j_is(how, "floor"))
        return weft_j_float(floor(x * scale) / scale);
    weft_j_fail(st, WEFT_EINVAL, "rounding by the method '%.*s'",
                how.n > 20 ? 20 : (int) how.n, how.s);
}

/* ---- Any value -------------------------------------------------------- */

static struct weft_jvalue f_default(struct weft_jstate *st,
                                    const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *fallback = weft_j_arg(st, c->args, 0,
                                                    "default_value");
    bool falsy = weft_j_arg_bool(st, c->args, 1, "boolean", false);
    if (c->v.kind == WEFT_J_UNDEFINED || (falsy && !weft_j_truth(c->v)))
        return fallback ? *fallback : weft_j_string("", 0);
    return c->v;
}

static struct weft_jvalue f_length(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    return weft_j_int((int64_t) weft_j_length(st, c->v));
}

static struct weft_jvalue f_attr(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    struct weft_str name = weft_j_arg_text(st, c->args, 0, "name", "");
    if (c->v.kind == WEFT_J_DICT && !weft_j_has_method(c->v, name))
        return weft_j_undefined(st, "'%.*s' of a mapping", (int) name.n,
                                name.s);
    return weft_j_attr(st, c->v, name);
}

/* ---- All -------------------------------------------------------------- */

static const struct weft_jfilter filters[] = {
    {"trim", 0, 1, "chars", f_trim},
    {"string", 0, 0, "", f_string},
    {"safe", 0, 0, "", f_safe},
    {"e", 0, 0, "", f_escape},
    {"escape", 0, 0, "", f_escape},
    {"forceescape", 0, 0, "", f_escape},
    {"lower", 0, 0, "", f_case},
    {"upper", 0, 0, "", f_case},
    {"capitalize", 0, 0, "", f_case},
    {"title", 0, 0, "", f_case},
    {"replace", 2, 3, "old new count", f_replace},
    {"indent", 0, 3, "width first blank", f_indent},
    {"format", 0, SIZE_MAX, NULL, f_format},
    {"tojson", 0, 4, "ensure_ascii indent separators sort_keys", f_tojson},
    {"wordcount", 0, 0, "", f_wordcount},
    {"int", 0, 2, "default base", f_int},
    {"float", 0, 1, "default", f_float},
    {"abs", 0, 0, "", f_abs},
    {"round", 0, 2, "precision method", f_round},
    {"default", 0, 2, "default_value boolean", f_default},
    {"d", 0, 2, "default_value boolean", f_default},
    {"length", 0, 0, "", f_length},
    {"count", 0, 0, "", f_length},
    {"attr", 1, 1, "name", f_attr},
    {NULL, 0, 0, NULL, NULL}};

static const struct weft_jfilter *find_in(const struct weft_jfilter *all,
                                          struct weft_str name)
{
    while (all->name && !weft_j_is(name, all->name))
        all++;
    return all->name ? all : NULL;
}

static const struct weft_jfilter *find(struct weft_str name)
{
    const struct weft_jfilter *f = find_in(filters, name);
    return f ? f : find_in(weft_j_list_filters, name);
}

struct weft_jvalue weft_j_filter(struct weft_jstate *st, struct weft_str name,
                                 struct weft_jvalue v,
                                 const struct weft_jargs *args)
{
    struct weft_jfilter_call c = {name, v, args};
    const struct weft_jfilter *f = find(name);
    if (!f)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft has no filter '%.*s'",
                    name.n > 40 ? 40 : (int) name.n, name.s);
    if (f->names)
        weft_j_check_args(st, args, f->least, f->most, f->names, "filter",
                          name);
    return f->call(st, &c);
}

bool weft_j_is_filter(struct weft_str name)
{
    return find(name) != NULL;
}
