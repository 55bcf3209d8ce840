/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja's filters on lists and mappings. */
#include "text/jinja/impl.h"

#include <string.h>

/* ---- Attributes by a path --------------------------------------------- */

/* v.a.0.b for the path "a.0.b", or an integer. */
static struct weft_jvalue follow(struct weft_jstate *st, struct weft_jvalue v,
                                 struct weft_jvalue path)
{
    if (!weft_j_is_string(path))
        return weft_j_item(st, v, path);
    struct weft_str rest = path.text;
    for (;;) {
        size_t dot = weft_j_search(rest, WEFT_JSTR("."), 0);
        struct weft_str part = {rest.s, dot == SIZE_MAX ? rest.n : dot};
        bool number = part.n > 0 && part.n < 10;
        int64_t at = 0;
        for (size_t i = 0; i < part.n && number; i++) {
            number = part.s[i] >= '0' && part.s[i] <= '9';
            at = 10 * at + part.s[i] - '0';
        }
        v = weft_j_item(st, v, number ? weft_j_int(at) : weft_j_text(part));
        if (dot == SIZE_MAX)
            return v;
        rest.s += dot + 1;
        rest.n -= dot + 1;
    }
}

/* ---- map, select, reject ---------------------------------------------- */

/* The items of a value that may be anything false. */
static struct weft_jlist items_if(struct weft_jstate *st,
                                  struct weft_jvalue v)
{
    return weft_j_truth(v) ? weft_j_items(st, v) : (struct weft_jlist){0};
}

/* All arguments but the first by place. */
static struct weft_jargs rest_of(const struct weft_jfilter_call *c,
                                 size_t skip)
{
    struct weft_jargs rest = *c->args;
    if (skip > 0)
        rest.item += skip;
    rest.n -= skip;
    return rest;
}

static struct weft_jvalue f_map(struct weft_jstate *st,
                                const struct weft_jfilter_call *c)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR);
    struct weft_jlist all = items_if(st, c->v);
    if (c->args->n == 0) {
        const struct weft_jvalue *path = weft_j_arg(st, c->args, 0,
                                                    "attribute");
        const struct weft_jvalue *fallback = weft_j_arg(st, c->args, 1,
                                                        "default");
        weft_j_check_args(st, c->args, 1, 2, "attribute default", "filter",
                          c->name);
        if (!path)
            weft_j_fail(st, WEFT_EINVAL,
                        "the filter 'map' takes a filter's "
                        "name, or 'attribute'");
        for (size_t i = 0; i < all.n; i++) {
            struct weft_jvalue v = follow(st, all.item[i], *path);
            if (v.kind == WEFT_J_UNDEFINED && fallback)
                v = *fallback;
            weft_j_push(st, out, v);
        }
        return out;
    }
    struct weft_jargs rest = rest_of(c, 1);
    struct weft_str filter = weft_j_arg_text(st, c->args, 0, "filter", "");
    for (size_t i = 0; i < all.n; i++)
        weft_j_push(st, out, weft_j_filter(st, filter, all.item[i], &rest));
    return out;
}

static struct weft_jvalue f_select(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    bool reject = c->name.s[0] == 'r';
    bool attribute = c->name.s[c->name.n - 1] == 'r';
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR);
    struct weft_jlist all = items_if(st, c->v);
    size_t n = attribute ? 1 : 0;
    if (c->args->n < n)
        weft_j_fail(st, WEFT_EINVAL, "the filter '%.*s' takes an attribute",
                    (int) c->name.n, c->name.s);
    bool named = c->args->n > n;
    struct weft_jargs rest = rest_of(c, named ? n + 1 : n);
    struct weft_str test = {0};
    if (named)
        test = weft_j_arg_text(st, c->args, n, "test", "");
    for (size_t i = 0; i < all.n; i++) {
        struct weft_jvalue v = all.item[i];
        if (attribute)
            v = follow(st, v, c->args->item[0]);
        bool holds = named ? weft_j_test(st, test, v, &rest)
                           : weft_j_truth(v);
        if (holds != reject)
            weft_j_push(st, out, all.item[i]);
    }
    return out;
}

/* ---- Order ------------------------------------------------------------ */

struct sorting {
    struct weft_jvalue *key, *item;
    size_t n;
};

/* What items are compared by: strings in lower case unless told. */
static struct weft_jvalue sort_key(struct weft_jstate *st,
                                   struct weft_jvalue v,
                                   const struct weft_jvalue *path,
                                   bool case_sensitive)
{
    if (path && path->kind != WEFT_J_NONE)
        v = follow(st, v, *path);
    if (weft_j_is_string(v) && !case_sensitive)
        v = weft_j_case(st, v.text, WEFT_JCASE_LOWER);
    return v;
}

/* Stable. reverse: equal ones keep their order too, as in Python. */
static void sort(struct weft_jstate *st, struct sorting *s, bool reverse)
{
    for (size_t i = 1; i < s->n; i++) {
        struct weft_jvalue key = s->key[i], item = s->item[i];
        size_t k = i;
        for (; k > 0; k--) {
            int order = weft_j_compare(st, s->key[k - 1], key, "<");
            if (reverse ? order >= 0 : order <= 0)
                break;
            s->key[k] = s->key[k - 1];
            s->item[k] = s->item[k - 1];
        }
        weft_j_step(st, i - k + 1);
        s->key[k] = key;
        s->item[k] = item;
    }
}

static struct weft_jvalue sorted(struct weft_jstate *st,
                                 struct weft_jlist all, bool reverse,
                                 const struct weft_jvalue *path,
                                 bool case_sensitive)
{
    struct sorting s = {weft_j_alloc(st, all.n + 1, sizeof *s.key),
                        weft_j_alloc(st, all.n + 1, sizeof *s.item), all.n};
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    if (path && weft_j_is_string(*path)
        && weft_j_search(path->text, WEFT_JSTR(","), 0) != SIZE_MAX)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "sorting by several attributes");
    for (size_t i = 0; i < all.n; i++) {
        s.key[i] = sort_key(st, all.item[i], path, case_sensitive);
        s.item[i] = all.item[i];
    }
    sort(st, &s, reverse);
    for (size_t i = 0; i < s.n; i++)
        weft_j_push(st, out, s.item[i]);
    return out;
}

static struct weft_jvalue f_sort(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    return sorted(st, weft_j_items(st, c->v),
                  weft_j_arg_bool(st, c->args, 0, "reverse", false),
                  weft_j_arg(st, c->args, 2, "attribute"),
                  weft_j_arg_bool(st, c->args, 1, "case_sensitive", false));
}

/* Adds the pairs of a mapping to a list. */
static void push_pairs(struct weft_jstate *st,
                       const struct weft_jfilter_call *c,
                       struct weft_jvalue list)
{
    if (c->v.kind != WEFT_J_DICT)
        weft_j_fail(st, WEFT_EINVAL, "the filter '%.*s' of %s",
                    (int) c->name.n, c->name.s, weft_j_type(c->v));
    for (size_t i = 0; i < c->v.dict->n; i++)
        weft_j_push(st, list,
                    weft_j_pair(st, c->v.dict->pair[i].key,
                                c->v.dict->pair[i].value));
}

static struct weft_jvalue f_dictsort(struct weft_jstate *st,
                                     const struct weft_jfilter_call *c)
{
    struct weft_str by = weft_j_arg_text(st, c->args, 1, "by", "key");
    struct weft_jvalue list = weft_j_list(st, WEFT_J_LIST);
    struct weft_jvalue path = weft_j_int(weft_j_is(by, "value") ? 1 : 0);
    push_pairs(st, c, list);
    return sorted(st, *list.list,
                  weft_j_arg_bool(st, c->args, 2, "reverse", false), &path,
                  weft_j_arg_bool(st, c->args, 0, "case_sensitive", false));
}

static struct weft_jvalue f_reverse(struct weft_jstate *st,
                                    const struct weft_jfilter_call *c)
{
    bool string = weft_j_is_string(c->v);
    struct weft_jlist all = weft_j_items(st, c->v);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR);
    struct weft_jout text = {0};
    for (size_t i = all.n; i-- > 0;) {
        if (string)
            weft_j_add_text(st, &text, all.item[i].text);
        else
            weft_j_push(st, out, all.item[i]);
    }
    return string ? weft_j_taken(&text) : out;
}

static struct weft_jvalue f_unique(struct weft_jstate *st,
                                   const struct weft_jfilter_call *c)
{
    bool exact = weft_j_arg_bool(st, c->args, 0, "case_sensitive", false);
    const struct weft_jvalue *path = weft_j_arg(st, c->args, 1, "attribute");
    struct weft_jlist all = weft_j_items(st, c->v);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR);
    struct weft_jvalue seen = weft_j_dict(st, WEFT_J_DICT);
    for (size_t i = 0; i < all.n; i++) {
        struct weft_jvalue key = sort_key(st, all.item[i], path, exact);
        if (weft_j_find(st, seen, key))
            continue;
        weft_j_put(st, seen, key, weft_j_none());
        weft_j_push(st, out, all.item[i]);
    }
    return out;
}

static struct weft_jvalue f_extreme(struct weft_jstate *st,
                                    const struct weft_jfilter_call *c)
{
    bool exact = weft_j_arg_bool(st, c->args, 0, "case_sensitive", false);
    const struct weft_jvalue *path = weft_j_arg(st, c->args, 1, "attribute");
    struct weft_jlist all = weft_j_items(st, c->v);
    size_t best = 0;
    if (all.n == 0)
        return weft_j_undefined(st, "the %.*s of nothing", (int) c->name.n,
                                c->name.s);
    for (size_t i = 1; i < all.n; i++) {
        int order = weft_j_compare(st, sort_key(st, all.item[i], path, exact),
                                   sort_key(st, all.item[best], path, exact),
                                   "<");
        if (c->name.s[1] == 'i' ? order < 0 : order > 0)
            best = i;
    }
    return all.item[best];
}

/* ---- Parts ------------------------------------------------------------ */

static struct weft_jvalue f_first(struct weft_jstate *st,
                                  const struct weft_jfilter_call *c)
{
    struct weft_jlist all = weft_j_items(st, c->v);
    if (c->name.s[0] == 'l' && c->v.kind == WEFT_J_GENERATOR)
        weft_j_fail(st, WEFT_EINVAL, "the last of a generator");
    if (all.n == 0)
        return weft_j_undefined(st, "the %.*s of nothing", (int) c->name.n,
                                c->name.s);
    return all.item[c->name.s[0] == 'f' ? 0 : all.n - 1];
}

static struct weft_jvalue f_list(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    *out.list = weft_j_items(st, c->v);
    out.list->capacity = out.list->n;
    return out;
}

static struct weft_jvalue f_items(struct weft_jstate *st,
                                  const struct weft_jfilter_call *c)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR);
    if (c->v.kind == WEFT_J_UNDEFINED)
        return out;
    push_pairs(st, c, out);
    return out;
}

static struct weft_jvalue f_join(struct weft_jstate *st,
                                 const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *by = weft_j_arg(st, c->args, 0, "d");
    const struct weft_jvalue *path = weft_j_arg(st, c->args, 1, "attribute");
    struct weft_jlist all = weft_j_items(st, c->v);
    struct weft_str between = by ? weft_j_str(st, *by) : WEFT_JSTR("");
    struct weft_jout out = {0};
    for (size_t i = 0; i < all.n; i++) {
        if (i > 0)
            weft_j_add_text(st, &out, between);
        weft_j_add_value(st, &out,
                         path && path->kind != WEFT_J_NONE
                             ? follow(st, all.item[i], *path)
                             : all.item[i]);
    }
    return weft_j_taken(&out);
}

static struct weft_jvalue f_sum(struct weft_jstate *st,
                                const struct weft_jfilter_call *c)
{
    const struct weft_jvalue *path = weft_j_arg(st, c->args, 0, "attribute");
    const struct weft_jvalue *start = weft_j_arg(st, c->args, 1, "start");
    struct weft_jlist all = weft_j_items(st, c->v);
    struct weft_jvalue total = start ? *start : weft_j_int(0);
    if (weft_j_is_string(total))
        weft_j_fail(st, WEFT_EINVAL, "the filter 'sum' of strings");
    for (size_t i = 0; i < all.n; i++)
        total = weft_j_binary(st, '+', total,
                              path && path->kind != WEFT_J_NONE
                                  ? follow(st, all.item[i], *path)
                                  : all.item[i]);
    return total;
}

static struct weft_jvalue f_batch(struct weft_jstate *st,
                                  const struct weft_jfilter_call *c)
{
    int64_t size = weft_j_arg_int(st, c->args, 0, "linecount", 0);
    const struct weft_jvalue *fill = weft_j_arg(st, c->args, 1, "fill_with");
    struct weft_jlist all = weft_j_items(st, c->v);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_GENERATOR), row = {0};
    if (size < 1)
        weft_j_fail(st, WEFT_EINVAL, "batches of %lld", (long long) size);
    for (size_t i = 0; i < all.n; i++) {
        if ((int64_t) i % size == 0) {
            row = weft_j_list(st, WEFT_J_LIST);
            weft_j_push(st, out, row);
        }
        weft_j_push(st, row, all.item[i]);
    }
    while (all.n > 0 && fill && fill->kind != WEFT_J_NONE
           && (int64_t) row.list->n < size)
        weft_j_push(st, row, *fill);
    return out;
}

/* ---- All -------------------------------------------------------------- */

const struct weft_jfilter weft_j_list_filters[] = {
    {"map", 0, 0, NULL, f_map},
    {"select", 0, 0, NULL, f_select},
    {"reject", 0, 0, NULL, f_select},
    {"selectattr", 0, 0, NULL, f_select},
    {"rejectattr", 0, 0, NULL, f_select},
    {"sort", 0, 3, "reverse case_sensitive attribute", f_sort},
    {"dictsort", 0, 3, "case_sensitive by reverse", f_dictsort},
    {"reverse", 0, 0, "", f_reverse},
    {"unique", 0, 2, "case_sensitive attribute", f_unique},
    {"min", 0, 2, "case_sensitive attribute", f_extreme},
    {"max", 0, 2, "case_sensitive attribute", f_extreme},
    {"first", 0, 0, "", f_first},
    {"last", 0, 0, "", f_first},
    {"list", 0, 0, "", f_list},
    {"items", 0, 0, "", f_items},
    {"join", 0, 2, "d attribute", f_join},
    {"sum", 0, 2, "attribute start", f_sum},
    {"batch", 1, 2, "linecount fill_with", f_batch},
    {NULL, 0, 0, NULL, NULL}};
