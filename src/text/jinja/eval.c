/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. */
#include "text/jinja/impl.h"

#include <string.h>

/* ---- Names, attributes, items ----------------------------------------- */

static struct weft_jvalue variable(struct weft_jstate *st,
                                   const struct weft_jscope *scope,
                                   struct weft_str name)
{
    for (; scope; scope = scope->up)
        for (size_t i = 0; i < scope->n; i++)
            if (weft_j_same(scope->variable[i].key.text, name))
                return scope->variable[i].value;
    if (weft_j_is_function(name))
        return (struct weft_jvalue){.kind = WEFT_J_FUNCTION, .text = name};
    return weft_j_undefined(st, "'%.*s'", name.n > 80 ? 80 : (int) name.n,
                            name.s);
}

static struct weft_jvalue no_attribute(struct weft_jstate *st,
                                       struct weft_jvalue v,
                                       struct weft_str name)
{
    return weft_j_undefined(st, "'%.*s' of %s",
                            name.n > 80 ? 80 : (int) name.n, name.s,
                            weft_j_type(v));
}

static WEFT_NORETURN void fail_undefined(struct weft_jstate *st,
                                         struct weft_jvalue v)
{
    weft_j_fail(st, WEFT_EINVAL, "%.*s is undefined", (int) v.text.n,
                v.text.s);
}

static struct weft_jvalue method(struct weft_jstate *st,
                                 struct weft_jvalue self,
                                 struct weft_str name)
{
    struct weft_jmethod *m = weft_j_alloc(st, 1, sizeof *m);
    *m = (struct weft_jmethod){self, name};
    return (struct weft_jvalue){.kind = WEFT_J_METHOD, .method = m};
}

static struct weft_jvalue loop_attribute(struct weft_jstate *st,
                                         struct weft_jvalue v,
                                         struct weft_str name)
{
    const struct weft_jloop *l = v.loop;
    const struct {
        const char *name;
        size_t value;
    } number[] = {{"index", l->at + 1},
                  {"index0", l->at},
                  {"revindex", l->n - l->at},
                  {"revindex0", l->n - l->at - 1},
                  {"length", l->n},
                  {"depth", (size_t) l->depth + 1},
                  {"depth0", (size_t) l->depth}};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (weft_j_is(name, number[i].name))
            return weft_j_int((int64_t) number[i].value);
    if (weft_j_is(name, "first"))
        return weft_j_bool(l->at == 0);
    if (weft_j_is(name, "last"))
        return weft_j_bool(l->at + 1 == l->n);
    if (weft_j_is(name, "previtem") && l->at > 0)
        return l->item[l->at - 1];
    if (weft_j_is(name, "nextitem") && l->at + 1 < l->n)
        return l->item[l->at + 1];
    return no_attribute(st, v, name);
}

struct weft_jvalue weft_j_attr(struct weft_jstate *st, struct weft_jvalue v,
                               struct weft_str name)
{
    struct weft_jvalue *found;
    if (v.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, v);
    if (weft_j_has_method(v, name))
        return method(st, v, name);
    if (v.kind == WEFT_J_DICT || v.kind == WEFT_J_NAMESPACE) {
        found = weft_j_find(st, v, weft_j_text(name));
        return found ? *found : no_attribute(st, v, name);
    }
    if (v.kind == WEFT_J_LOOP)
        return loop_attribute(st, v, name);
    if (v.kind == WEFT_J_MACRO || v.kind == WEFT_J_FUNCTION
        || v.kind == WEFT_J_METHOD)
        weft_j_fail(st, WEFT_EUNSUPPORTED,
                    "Weft has no attribute '%.*s' of %s", (int) name.n,
                    name.s, weft_j_type(v));
    return no_attribute(st, v, name);
}

/* Place i of n from the front or, negative, from the back; n: none. */
static size_t place(int64_t i, size_t n)
{
    if (i < 0)
        i += (int64_t) n;
    return i < 0 || i >= (int64_t) n ? n : (size_t) i;
}

static struct weft_jvalue char_at(struct weft_str s, size_t i)
{
    size_t at = weft_j_char_offset(s, i);
    struct weft_str rest = {s.s + at, s.n - at};
    return weft_j_string(rest.s, weft_j_char_offset(rest, 1));
}

struct weft_jvalue weft_j_item(struct weft_jstate *st, struct weft_jvalue v,
                               struct weft_jvalue key)
{
    if (v.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, v);
    if (v.kind == WEFT_J_DICT) {
        struct weft_jvalue *found = NULL;
        if (key.kind != WEFT_J_LIST && key.kind != WEFT_J_DICT)
            found = weft_j_find(st, v, key);
        if (found)
            return *found;
    }
    if (weft_j_is_string(key))
        return weft_j_attr(st, v, key.text);
    if (weft_j_is_int(key)) {
        bool sequence = v.kind == WEFT_J_LIST || v.kind == WEFT_J_TUPLE
                     || v.kind == WEFT_J_RANGE;
        bool text = weft_j_is_string(v);
        size_t n = sequence || text ? weft_j_length(st, v) : 0;
        size_t i = place(weft_j_as_int(key), n);
        if (text)
            weft_j_step(st, v.text.n / 64);
        if (i < n)
            return sequence ? v.list->item[i] : char_at(v.text, i);
        return weft_j_undefined(st, "item %lld of %s",
                                (long long) weft_j_as_int(key),
                                weft_j_type(v));
    }
    return weft_j_undefined(st, "an item of %s by %s", weft_j_type(v),
                            weft_j_type(key));
}

/* ---- Slices ----------------------------------------------------------- */

/* A bound clipped into [low, high], as Python does. */
static int64_t clip(struct weft_jstate *st, struct weft_jvalue bound,
                    int64_t fallback, int64_t n, int64_t low, int64_t high)
{
    if (bound.kind == WEFT_J_NONE)
        return fallback;
    if (!weft_j_is_int(bound))
        weft_j_fail(st, WEFT_EINVAL, "a slice by %s", weft_j_type(bound));
    int64_t i = weft_j_as_int(bound);
    if (i < 0)
        i += n;
    return i < low ? low : i > high ? high : i;
}

static struct weft_jvalue slice(struct weft_jstate *st, struct weft_jvalue v,
                                const struct weft_jvalue bound[3])
{
    bool text = weft_j_is_string(v);
    if (v.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, v);
    if (!text && v.kind != WEFT_J_LIST && v.kind != WEFT_J_TUPLE
        && v.kind != WEFT_J_RANGE)
        weft_j_fail(st, WEFT_EINVAL, "a slice of %s", weft_j_type(v));
    struct weft_jlist items = weft_j_items(st, v);
    int64_t n = (int64_t) items.n, step = 1;
    if (bound[2].kind != WEFT_J_NONE)
        step = clip(st, bound[2], 1, 0, -INT64_MAX, INT64_MAX);
    if (step == 0)
        weft_j_fail(st, WEFT_EINVAL, "a slice with a step of 0");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t start = clip(st, bound[0], step < 0 ? high : low, n, low, high);
    int64_t stop = clip(st, bound[1], step < 0 ? low : high, n, low, high);
    struct weft_jvalue out = weft_j_list(st, text ? WEFT_J_LIST : v.kind);
    struct weft_jout joined = {0};
    while (step > 0 ? start < stop : start > stop) {
        if (text)
            weft_j_add_text(st, &joined, items.item[start].text);
        else
            weft_j_push(st, out, items.item[start]);
        if (step > 0 ? start > INT64_MAX - step : start < INT64_MIN - step)
            break;
        start += step;
    }
    return text ? weft_j_taken(&joined) : out;
}

static struct weft_jvalue eval_slice(struct weft_jstate *st,
                                     struct weft_jscope *scope,
                                     const struct weft_jnode *node)
{
    struct weft_jvalue v = weft_j_eval(st, scope, node->a), bound[3];
    for (int i = 0; i < 3; i++)
        bound[i] = node->item[i] ? weft_j_eval(st, scope, node->item[i])
                                 : weft_j_none();
    return slice(st, v, bound);
}

/* ---- Calls ------------------------------------------------------------ */

static void spread(struct weft_jstate *st, struct weft_jargs *args,
                   struct weft_jvalue list, struct weft_jvalue v)
{
    if (v.kind == WEFT_J_DICT) { /* **v */
        for (size_t i = 0; i < v.dict->n; i++)
            weft_j_put(st, args->named, v.dict->pair[i].key,
                       v.dict->pair[i].value);
        return;
    }
    struct weft_jlist all = weft_j_items(st, v);
    for (size_t i = 0; i < all.n; i++)
        weft_j_push(st, list, all.item[i]);
}

struct weft_jargs weft_j_eval_args(struct weft_jstate *st,
                                   struct weft_jscope *scope,
                                   struct weft_jnode *const *node, size_t n)
{
    struct weft_jargs args = {.named = weft_j_dict(st, WEFT_J_DICT)};
    struct weft_jvalue list = weft_j_list(st, WEFT_J_LIST);
    for (size_t i = 0; i < n; i++) {
        bool whole = node[i]->kind == WEFT_JN_KEYWORD
                  || node[i]->kind == WEFT_JN_STAR
                  || node[i]->kind == WEFT_JN_STAR_STAR;
        struct weft_jvalue v = weft_j_eval(st, scope,
                                           whole ? node[i]->a : node[i]);
        if (node[i]->kind == WEFT_JN_STAR_STAR && v.kind != WEFT_J_DICT)
            weft_j_fail(st, WEFT_EINVAL, "'**' before %s, not a mapping",
                        weft_j_type(v));
        if (node[i]->kind == WEFT_JN_STAR && v.kind == WEFT_J_DICT)
            weft_j_fail(st, WEFT_EUNSUPPORTED, "'*' before a mapping");
        if (node[i]->kind == WEFT_JN_KEYWORD)
            weft_j_put(st, args.named, weft_j_text(node[i]->name), v);
        else if (whole)
            spread(st, &args, list, v);
        else
            weft_j_push(st, list, v);
    }
    args.item = list.list->item;
    args.n = list.list->n;
    return args;
}

static struct weft_jvalue eval_call(struct weft_jstate *st,
                                    struct weft_jscope *scope,
                                    const struct weft_jnode *node)
{
    struct weft_jvalue f = weft_j_eval(st, scope, node->a);
    if (f.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, f);
    struct weft_jargs args = weft_j_eval_args(st, scope, node->item, node->n);
    return weft_j_call(st, f, &args);
}

/* ---- Operators -------------------------------------------------------- */

static bool compare(struct weft_jstate *st, int op, struct weft_jvalue a,
                    struct weft_jvalue b)
{
    switch (op) {
    case WEFT_JOP('=', '='):
        return weft_j_equal(st, a, b);
    case WEFT_JOP('!', '='):
        return !weft_j_equal(st, a, b);
    case WEFT_JOP_IN:
        return weft_j_contains(st, b, a);
    case WEFT_JOP_NOT_IN:
        return !weft_j_contains(st, b, a);
    default:
        break;
    }
    if (a.kind == WEFT_J_UNDEFINED || b.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, a.kind == WEFT_J_UNDEFINED ? a : b);
    char name[3] = {(char) (op >= 256 ? op / 256 : op),
                    (char) (op >= 256 ? op % 256 : 0), 0};
    int order = weft_j_compare(st, a, b, name);
    switch (op) {
    case '<':
        return order < 0;
    case '>':
        return order > 0;
    case WEFT_JOP('<', '='):
        return order <= 0;
    default:
        return order >= 0;
    }
}

static struct weft_jvalue eval_compare(struct weft_jstate *st,
                                       struct weft_jscope *scope,
                                       const struct weft_jnode *node)
{
    struct weft_jvalue a = weft_j_eval(st, scope, node->a);
    bool holds = true;
    for (size_t i = 0; i < node->n && holds; i++) {
        struct weft_jvalue b = weft_j_eval(st, scope, node->item[i]->a);
        holds = compare(st, node->item[i]->op, a, b);
        a = b;
    }
    return weft_j_bool(holds);
}

static struct weft_jvalue eval_sign(struct weft_jstate *st,
                                    struct weft_jvalue v, bool negative)
{
    if (v.kind == WEFT_J_UNDEFINED)
        fail_undefined(st, v);
    if (!weft_j_is_number(v))
        weft_j_fail(st, WEFT_EINVAL, "a sign before %s", weft_j_type(v));
    if (v.kind == WEFT_J_FLOAT)
        return weft_j_float(negative ? -v.f : v.f);
    if (!negative)
        return weft_j_int(weft_j_as_int(v));
    return weft_j_binary(st, '-', weft_j_int(0), v);
}

static struct weft_jvalue eval_concat(struct weft_jstate *st,
                                      struct weft_jscope *scope,
                                      const struct weft_jnode *node)
{
    struct weft_jout out = {0};
    for (size_t i = 0; i < node->n; i++)
        weft_j_add_value(st, &out, weft_j_eval(st, scope, node->item[i]));
    return weft_j_taken(&out);
}

/* ---- All -------------------------------------------------------------- */

static struct weft_jvalue eval_display(struct weft_jstate *st,
                                       struct weft_jscope *scope,
                                       const struct weft_jnode *node)
{
    if (node->kind == WEFT_JN_DICT) {
        struct weft_jvalue dict = weft_j_dict(st, WEFT_J_DICT);
        for (size_t i = 0; i + 1 < node->n; i += 2) {
            struct weft_jvalue key = weft_j_eval(st, scope, node->item[i]);
            weft_j_put(st, dict, key,
                       weft_j_eval(st, scope, node->item[i + 1]));
        }
        return dict;
    }
    struct weft_jvalue list = weft_j_list(
        st, node->kind == WEFT_JN_LIST ? WEFT_J_LIST : WEFT_J_TUPLE);
    for (size_t i = 0; i < node->n; i++)
        weft_j_push(st, list, weft_j_eval(st, scope, node->item[i]));
    return list;
}

/* and, or, if: what is not needed is not evaluated. */
static struct weft_jvalue eval_choice(struct weft_jstate *st,
                                      struct weft_jscope *scope,
                                      const struct weft_jnode *node)
{
    struct weft_jvalue v = weft_j_eval(
        st, scope, node->kind == WEFT_JN_COND ? node->b : node->a);
    bool truth = weft_j_truth(v);
    if (node->kind == WEFT_JN_AND)
        return truth ? weft_j_eval(st, scope, node->b) : v;
    if (node->kind == WEFT_JN_OR)
        return truth ? v : weft_j_eval(st, scope, node->b);
    if (truth)
        return weft_j_eval(st, scope, node->a);
    if (node->c)
        return weft_j_eval(st, scope, node->c);
    return weft_j_undefined(st, "the value of an inline 'if' without 'else'");
}

static struct weft_jvalue eval_named(struct weft_jstate *st,
                                     struct weft_jscope *scope,
                                     const struct weft_jnode *node)
{
    struct weft_jvalue v = weft_j_eval(st, scope, node->a);
    struct weft_jargs args = weft_j_eval_args(st, scope, node->item, node->n);
    if (node->kind == WEFT_JN_FILTER)
        return weft_j_filter(st, node->name, v, &args);
    return weft_j_bool(weft_j_test(st, node->name, v, &args));
}

static struct weft_jvalue eval_one(struct weft_jstate *st,
                                   struct weft_jscope *scope,
                                   const struct weft_jnode *node)
{
    struct weft_jvalue a;
    switch (node->kind) {
    case WEFT_JN_CONST:
        return node->value;
    case WEFT_JN_NAME:
        return variable(st, scope, node->name);
    case WEFT_JN_LIST:
    case WEFT_JN_TUPLE:
    case WEFT_JN_DICT:
        return eval_display(st, scope, node);
    case WEFT_JN_ATTR:
        return weft_j_attr(st, weft_j_eval(st, scope, node->a), node->name);
    case WEFT_JN_ITEM:
        a = weft_j_eval(st, scope, node->a);
        return weft_j_item(st, a, weft_j_eval(st, scope, node->b));
    case WEFT_JN_SLICE:
        return eval_slice(st, scope, node);
    case WEFT_JN_CALL:
        return eval_call(st, scope, node);
    case WEFT_JN_FILTER:
    case WEFT_JN_TEST:
        return eval_named(st, scope, node);
    case WEFT_JN_NOT:
        return weft_j_bool(!weft_j_truth(weft_j_eval(st, scope, node->a)));
    case WEFT_JN_AND:
    case WEFT_JN_OR:
    case WEFT_JN_COND:
        return eval_choice(st, scope, node);
    case WEFT_JN_COMPARE:
        return eval_compare(st, scope, node);
    case WEFT_JN_BINARY:
        a = weft_j_eval(st, scope, node->a);
        return weft_j_binary(st, node->op, a,
                             weft_j_eval(st, scope, node->b));
    case WEFT_JN_NEG:
    case WEFT_JN_POS:
        return eval_sign(st, weft_j_eval(st, scope, node->a),
                         node->kind == WEFT_JN_NEG);
    case WEFT_JN_CONCAT:
        return eval_concat(st, scope, node);
    case WEFT_JN_INNER:
        return weft_j_run_text(st, weft_j_scope(st, scope), node->item,
                               node->n);
    default:
        weft_assert(false && "a node that is no expression");
    }
    return weft_j_none();
}

struct weft_jvalue weft_j_eval(struct weft_jstate *st,
                               struct weft_jscope *scope,
                               const struct weft_jnode *node)
{
    int line = st->line;
    weft_j_enter(st);
    st->line = node->line;
    struct weft_jvalue v = eval_one(st, scope, node);
    st->line = line;
    weft_j_leave(st);
    return v;
}
