/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, macros, and the functions that every template has. */
#include "text/jinja/impl.h"

#include <stdio.h>
#include <string.h>

/* ---- Arguments -------------------------------------------------------- */

const struct weft_jvalue *weft_j_arg(struct weft_jstate *st,
                                     const struct weft_jargs *args, size_t i,
                                     const char *name)
{
    if (i < args->n)
        return &args->item[i];
    return weft_j_find(st, args->named, weft_j_string(name, strlen(name)));
}

/* The name is one of a list in one text. */
static bool is_listed(struct weft_str name, const char *names)
{
    while (*names) {
        size_t n = strcspn(names, " ");
        if (n == name.n && memcmp(names, name.s, n) == 0)
            return true;
        names += n + (names[n] == ' ');
    }
    return false;
}

void weft_j_check_args(struct weft_jstate *st, const struct weft_jargs *args,
                       size_t least, size_t most, const char *names,
                       const char *kind, struct weft_str what)
{
    const struct weft_jdict *named = args->named.dict;
    size_t n = args->n + named->n;
    for (size_t i = 0; i < named->n; i++) {
        struct weft_str name = named->pair[i].key.text;
        if (!weft_j_is_string(named->pair[i].key) || !is_listed(name, names))
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "Weft's %s '%.*s' has no argument '%.*s'", kind,
                        (int) what.n, what.s,
                        weft_j_is_string(named->pair[i].key) ? (int) name.n
                                                             : 0,
                        name.s);
    }
    if (n < least || n > most)
        weft_j_fail(st, WEFT_EINVAL,
                    "the %s '%.*s' takes %s%zu argument%s, not %zu", kind,
                    (int) what.n, what.s,
                    least == most ? ""
                    : n < least   ? "at least "
                                  : "at most ",
                    n < least ? least : most,
                    (n < least ? least : most) == 1 ? "" : "s", n);
}

static WEFT_NORETURN void wrong_kind(struct weft_jstate *st, const char *name,
                                     const char *wanted, struct weft_jvalue v)
{
    weft_j_fail(st, WEFT_EINVAL, "the argument '%s' must be %s, not %s", name,
                wanted, weft_j_type(v));
}

struct weft_str weft_j_arg_text(struct weft_jstate *st,
                                const struct weft_jargs *args, size_t i,
                                const char *name, const char *fallback)
{
    const struct weft_jvalue *v = weft_j_arg(st, args, i, name);
    if (!v)
        return (struct weft_str){fallback, strlen(fallback)};
    if (!weft_j_is_string(*v))
        wrong_kind(st, name, "a string", *v);
    return v->text;
}

int64_t weft_j_arg_int(struct weft_jstate *st, const struct weft_jargs *args,
                       size_t i, const char *name, int64_t fallback)
{
    const struct weft_jvalue *v = weft_j_arg(st, args, i, name);
    if (!v)
        return fallback;
    if (!weft_j_is_int(*v))
        wrong_kind(st, name, "an integer", *v);
    return weft_j_as_int(*v);
}

bool weft_j_arg_bool(struct weft_jstate *st, const struct weft_jargs *args,
                     size_t i, const char *name, bool fallback)
{
    const struct weft_jvalue *v = weft_j_arg(st, args, i, name);
    return v ? weft_j_truth(*v) : fallback;
}

/* ---- Macros ----------------------------------------------------------- */

/* What the body finds under a name that it uses without being given it. */
static void set_extra(struct weft_jstate *st, struct weft_jscope *scope,
                      const struct weft_jnode *node,
                      const struct weft_jargs *args, size_t n_used)
{
    struct weft_jvalue rest = weft_j_list(st, WEFT_J_TUPLE);
    struct weft_jvalue named = weft_j_dict(st, WEFT_J_DICT);
    struct weft_jvalue caller = weft_j_undefined(st, "'caller'");
    for (size_t i = node->n; i < args->n; i++)
        weft_j_push(st, rest, args->item[i]);
    for (size_t i = 0; i < args->named.dict->n; i++) {
        struct weft_jpair *one = &args->named.dict->pair[i];
        bool used = false;
        for (size_t k = 0; k < node->n; k++)
            used = used || weft_j_same(node->item[k]->name, one->key.text);
        if (used)
            continue;
        if (node->op & WEFT_JUSE_CALLER && weft_j_is(one->key.text, "caller"))
            caller = one->value;
        else if (node->op & WEFT_JUSE_KWARGS)
            weft_j_put(st, named, one->key, one->value);
        else
            weft_j_fail(st, WEFT_EINVAL,
                        "the macro '%.*s' has no parameter '%.*s'",
                        (int) node->name.n, node->name.s,
                        (int) one->key.text.n, one->key.text.s);
    }
    if (args->n > node->n && !(node->op & WEFT_JUSE_VARARGS))
        weft_j_fail(st, WEFT_EINVAL,
                    "the macro '%.*s' takes %zu argument%s, not %zu",
                    (int) node->name.n, node->name.s, node->n,
                    node->n == 1 ? "" : "s", n_used);
    if (node->op & WEFT_JUSE_VARARGS)
        weft_j_set(st, scope, WEFT_JSTR("varargs"), rest);
    if (node->op & WEFT_JUSE_KWARGS)
        weft_j_set(st, scope, WEFT_JSTR("kwargs"), named);
    if (node->op & WEFT_JUSE_CALLER)
        weft_j_set(st, scope, WEFT_JSTR("caller"), caller);
}

static struct weft_jvalue call_macro(struct weft_jstate *st,
                                     const struct weft_jmacro *macro,
                                     const struct weft_jargs *args)
{
    const struct weft_jnode *node = macro->node;
    struct weft_jscope *scope = weft_j_scope(st, macro->scope);
    set_extra(st, scope, node, args, args->n);
    for (size_t i = 0; i < node->n; i++) {
        const struct weft_jnode *one = node->item[i];
        struct weft_jvalue name = weft_j_text(one->name), *given = NULL, v;
        if (args->named.dict->n > 0)
            given = weft_j_find(st, args->named, name);
        if (i < args->n && given)
            weft_j_fail(st, WEFT_EINVAL, "'%.*s' is given twice",
                        (int) one->name.n, one->name.s);
        if (i < args->n)
            v = args->item[i];
        else if (given)
            v = *given;
        else if (one->a)
            v = weft_j_eval(st, scope, one->a);
        else
            v = weft_j_undefined(st, "the parameter '%.*s'",
                                 (int) one->name.n, one->name.s);
        weft_j_set(st, scope, one->name, v);
    }
    return weft_j_run_text(st, scope, node->other, node->n_other);
}

/* ---- strftime_now() --------------------------------------------------- */

static const char *const MONTHS[] = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
static const char *const DAYS[] = {"Sunday",    "Monday",   "Tuesday",
                                   "Wednesday", "Thursday", "Friday",
                                   "Saturday"};

/* Day of the year from 1, and of the week from Sunday. */
static void find_day(const struct weft_date *d, int *year_day, int *week_day)
{
    static const int before[] = {0,   31,  59,  90,  120, 151,
                                 181, 212, 243, 273, 304, 334};
    bool leap = d->year % 4 == 0
             && (d->year % 100 != 0 || d->year % 400 == 0);
    int y = d->year - 1;
    *year_day = before[d->month - 1] + d->day + (leap && d->month > 2);
    /* 1 January of year 1 was a Monday. */
    *week_day = (365 * y + y / 4 - y / 100 + y / 400 + *year_day) % 7;
}

/* One conversion as C's strftime() in the C locale does it; padded: with
 * zeros. False: unknown. */
static bool convert(const struct weft_date *d, char kind, bool padded,
                    char out[64])
{
    int year_day, week_day;
    find_day(d, &year_day, &week_day);
    const struct {
        char kind;
        int width, value;
    } number[] = {{'d', 2, d->day},   {'m', 2, d->month},
                  {'Y', 1, d->year},  {'y', 2, d->year % 100},
                  {'j', 3, year_day}, {'H', 2, 0},
                  {'I', 2, 12},       {'M', 2, 0},
                  {'S', 2, 0},        {'f', 6, 0},
                  {'w', 1, week_day}, {'u', 1, (week_day + 6) % 7 + 1}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (kind == number[i].kind) {
            snprintf(out, 64, "%0*d", padded ? number[i].width : 1,
                     number[i].value);
            return true;
        }
    const char *text = kind == 'B' || kind == 'b' || kind == 'h'
                         ? MONTHS[d->month - 1]
                     : kind == 'A' || kind == 'a' ? DAYS[week_day]
                     : kind == 'p'                ? "AM"
                     : kind == 'T' || kind == 'X' ? "00:00:00"
                     : kind == 'R'                ? "00:00"
                     : kind == '%'                ? "%"
                                                  : NULL;
    bool whole = kind == 'B' || kind == 'A' || !text || strlen(text) < 3
              || text[2] == ':';
    if (text)
        snprintf(out, 64, "%.*s", whole ? 64 : 3, text);
    if (kind == 'F')
        snprintf(out, 64, "%d-%02d-%02d", d->year, d->month, d->day);
    if (kind == 'D' || kind == 'x')
        snprintf(out, 64, "%02d/%02d/%02d", d->month, d->day, d->year % 100);
    if (kind == 'e')
        snprintf(out, 64, "%2d", d->day);
    return text || (kind && strchr("FDxe", kind));
}

static struct weft_jvalue format_date(struct weft_jstate *st,
                                      struct weft_str format)
{
    struct weft_jout out = {0};
    char text[64];
    for (size_t i = 0; i < format.n; i++) {
        if (format.s[i] != '%') {
            weft_j_add(st, &out, format.s + i, 1);
            continue;
        }
        bool bare = i + 1 < format.n && format.s[i + 1] == '-';
        i += 1 + (bare ? 1 : 0);
        char kind = i < format.n ? format.s[i] : 0;
        if (!convert(&st->date, kind, !bare, text))
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "strftime_now: Weft has no conversion '%%%.*s'",
                        kind > ' ', &kind);
        weft_j_add(st, &out, text, strlen(text));
    }
    return weft_j_taken(&out);
}

/* ---- Functions -------------------------------------------------------- */

static struct weft_jvalue f_range(struct weft_jstate *st,
                                  const struct weft_jargs *args)
{
    enum { MOST = 100000 }; /* of Jinja's sandbox */
    int64_t bound[3] = {0, 0, 1};
    struct weft_jvalue out = weft_j_list(st, WEFT_J_RANGE);
    weft_j_check_args(st, args, 1, 3, "", "function", WEFT_JSTR("range"));
    for (size_t i = 0; i < args->n; i++)
        bound[i] = weft_j_arg_int(st, args, i, "bound", 0);
    if (args->n == 1) {
        bound[1] = bound[0];
        bound[0] = 0;
    }
    if (bound[2] == 0)
        weft_j_fail(st, WEFT_EINVAL, "range() with a step of 0");
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1];) {
        if (out.list->n == MOST)
            weft_j_fail(st, WEFT_EINVAL, "range() of more than %d numbers",
                        MOST);
        weft_j_push(st, out, weft_j_int(i));
        if (bound[2] > 0 ? i > INT64_MAX - bound[2]
                         : i < INT64_MIN - bound[2])
            break;
        i += bound[2];
    }
    return out;
}

/* dict() and namespace(): of a mapping or pairs, and of names. */
static struct weft_jvalue f_mapping(struct weft_jstate *st,
                                    const struct weft_jargs *args,
                                    enum weft_jkind kind)
{
    struct weft_jvalue out = weft_j_dict(st, kind);
    if (args->n > 1)
        weft_j_fail(st, WEFT_EINVAL,
                    "dict() and namespace() take one mapping, not %zu",
                    args->n);
    if (args->n == 1 && (args->item[0].kind == WEFT_J_DICT)) {
        const struct weft_jdict *from = args->item[0].dict;
        for (size_t i = 0; i < from->n; i++)
            weft_j_put(st, out, from->pair[i].key, from->pair[i].value);
    } else if (args->n == 1) {
        struct weft_jlist pairs = weft_j_items(st, args->item[0]);
        for (size_t i = 0; i < pairs.n; i++) {
            struct weft_jlist pair = weft_j_items(st, pairs.item[i]);
            if (pair.n != 2)
                weft_j_fail(st, WEFT_EINVAL, "dict() of what is no pairs");
            weft_j_put(st, out, pair.item[0], pair.item[1]);
        }
    }
    for (size_t i = 0; i < args->named.dict->n; i++)
        weft_j_put(st, out, args->named.dict->pair[i].key,
                   args->named.dict->pair[i].value);
    for (size_t i = 0; kind == WEFT_J_NAMESPACE && i < out.dict->n; i++) {
        struct weft_jvalue key = out.dict->pair[i].key;
        if (weft_j_is_string(key) && key.text.n && key.text.s[0] == '_')
            weft_j_fail(st, WEFT_EINVAL,
                        "a namespace's attribute must not begin with '_'");
    }
    return out;
}

static struct weft_jvalue f_raise(struct weft_jstate *st,
                                  const struct weft_jargs *args)
{
    weft_j_check_args(st, args, 1, 1, "message", "function",
                      WEFT_JSTR("raise_exception"));
    struct weft_str text = weft_j_str(st,
                                      *weft_j_arg(st, args, 0, "message"));
    weft_j_fail(st, WEFT_EINVAL, "the template refuses these messages: %.*s",
                text.n > 300 ? 300 : (int) text.n, text.s);
}

static struct weft_jvalue f_strftime(struct weft_jstate *st,
                                     const struct weft_jargs *args)
{
    weft_j_check_args(st, args, 1, 1, "format", "function",
                      WEFT_JSTR("strftime_now"));
    return format_date(st, weft_j_arg_text(st, args, 0, "format", ""));
}

static struct weft_jvalue f_dict(struct weft_jstate *st,
                                 const struct weft_jargs *args)
{
    return f_mapping(st, args, WEFT_J_DICT);
}

static struct weft_jvalue f_namespace(struct weft_jstate *st,
                                      const struct weft_jargs *args)
{
    return f_mapping(st, args, WEFT_J_NAMESPACE);
}

static const struct {
    const char *name;
    struct weft_jvalue (*call)(struct weft_jstate *,
                               const struct weft_jargs *);
} FUNCTIONS[] = {{"range", f_range},
                 {"dict", f_dict},
                 {"namespace", f_namespace},
                 {"raise_exception", f_raise},
                 {"strftime_now", f_strftime},
                 {"cycler", NULL}, /* Jinja's that Weft does not have */
                 {"joiner", NULL},
                 {"lipsum", NULL}};

enum { N_FUNCTIONS = sizeof FUNCTIONS / sizeof *FUNCTIONS };

bool weft_j_is_function(struct weft_str name)
{
    for (size_t i = 0; i < N_FUNCTIONS; i++)
        if (weft_j_is(name, FUNCTIONS[i].name))
            return true;
    return false;
}

static struct weft_jvalue call_function(struct weft_jstate *st,
                                        struct weft_str name,
                                        const struct weft_jargs *args)
{
    for (size_t i = 0; i < N_FUNCTIONS; i++)
        if (weft_j_is(name, FUNCTIONS[i].name) && FUNCTIONS[i].call)
            return FUNCTIONS[i].call(st, args);
    weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft has no function '%.*s'",
                (int) name.n, name.s);
}

static struct weft_jvalue call_loop(struct weft_jstate *st,
                                    const struct weft_jloop *loop,
                                    const struct weft_jargs *args)
{
    struct weft_jout out = {0}, *outer = st->out;
    if (!loop->node)
        weft_j_fail(st, WEFT_EINVAL,
                    "loop() is called in a loop that is not "
                    "marked 'recursive'");
    weft_j_check_args(st, args, 1, 1, "", "function", WEFT_JSTR("loop"));
    st->out = &out;
    weft_j_run_for(st, loop->scope, loop->node, args->item[0],
                   loop->depth + 1);
    st->out = outer;
    return weft_j_taken(&out);
}

struct weft_jvalue weft_j_call(struct weft_jstate *st, struct weft_jvalue f,
                               const struct weft_jargs *args)
{
    struct weft_jvalue out;
    weft_j_enter(st);
    switch (f.kind) {
    case WEFT_J_MACRO:
        out = call_macro(st, f.macro, args);
        break;
    case WEFT_J_FUNCTION:
        out = call_function(st, f.text, args);
        break;
    case WEFT_J_METHOD:
        out = weft_j_call_method(st, f.method->self, f.method->name, args);
        break;
    case WEFT_J_LOOP:
        out = call_loop(st, f.loop, args);
        break;
    default:
        weft_j_fail(st, WEFT_EINVAL, "%s cannot be called", weft_j_type(f));
    }
    weft_j_leave(st);
    return out;
}
