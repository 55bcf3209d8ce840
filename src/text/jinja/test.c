/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja's tests: what may stand behind `is`. */
#include "text/jinja/impl.h"

enum test {
    T_DEFINED,
    T_UNDEFINED,
    T_NONE,
    T_BOOLEAN,
    T_TRUE,
    T_FALSE,
    T_INTEGER,
    T_FLOAT,
    T_NUMBER,
    T_STRING,
    T_MAPPING,
    T_SEQUENCE,
    T_ITERABLE,
    T_CALLABLE,
    T_ESCAPED,
    T_LOWER,
    T_UPPER,
    T_FILTER,
    T_TEST,
    T_ODD,
    T_EVEN,
    T_DIVISIBLE,
    T_EQUAL,
    T_UNEQUAL,
    T_LESS,
    T_GREATER,
    T_AT_MOST,
    T_AT_LEAST,
    T_SAME,
    T_IN
};

static const struct {
    const char *name;
    enum test test;
    size_t n_args;
} TESTS[] = {{"defined", T_DEFINED, 0},
             {"undefined", T_UNDEFINED, 0},
             {"none", T_NONE, 0},
             {"boolean", T_BOOLEAN, 0},
             {"true", T_TRUE, 0},
             {"false", T_FALSE, 0},
             {"integer", T_INTEGER, 0},
             {"float", T_FLOAT, 0},
             {"number", T_NUMBER, 0},
             {"string", T_STRING, 0},
             {"mapping", T_MAPPING, 0},
             {"sequence", T_SEQUENCE, 0},
             {"iterable", T_ITERABLE, 0},
             {"callable", T_CALLABLE, 0},
             {"escaped", T_ESCAPED, 0},
             {"lower", T_LOWER, 0},
             {"upper", T_UPPER, 0},
             {"filter", T_FILTER, 0},
             {"test", T_TEST, 0},
             {"odd", T_ODD, 0},
             {"even", T_EVEN, 0},
             {"divisibleby", T_DIVISIBLE, 1},
             {"eq", T_EQUAL, 1},
             {"equalto", T_EQUAL, 1},
             {"==", T_EQUAL, 1},
             {"ne", T_UNEQUAL, 1},
             {"!=", T_UNEQUAL, 1},
             {"lt", T_LESS, 1},
             {"lessthan", T_LESS, 1},
             {"<", T_LESS, 1},
             {"gt", T_GREATER, 1},
             {"greaterthan", T_GREATER, 1},
             {">", T_GREATER, 1},
             {"le", T_AT_MOST, 1},
             {"<=", T_AT_MOST, 1},
             {"ge", T_AT_LEAST, 1},
             {">=", T_AT_LEAST, 1},
             {"sameas", T_SAME, 1},
             {"in", T_IN, 1}};

enum { N_TESTS = sizeof TESTS / sizeof *TESTS };

static size_t find(struct weft_str name)
{
    size_t i = 0;
    while (i < N_TESTS && !weft_j_is(name, TESTS[i].name))
        i++;
    return i;
}

static bool is_test(struct weft_str name)
{
    return find(name) < N_TESTS;
}

static bool is_kind(enum test test, struct weft_jvalue v)
{
    switch (test) {
    case T_DEFINED:
        return v.kind != WEFT_J_UNDEFINED;
    case T_UNDEFINED:
        return v.kind == WEFT_J_UNDEFINED;
    case T_NONE:
        return v.kind == WEFT_J_NONE;
    case T_BOOLEAN:
        return v.kind == WEFT_J_BOOL;
    case T_TRUE:
    case T_FALSE:
        return v.kind == WEFT_J_BOOL && v.truth == (test == T_TRUE);
    case T_INTEGER:
        return v.kind == WEFT_J_INT;
    case T_FLOAT:
        return v.kind == WEFT_J_FLOAT;
    case T_NUMBER:
        return weft_j_is_number(v);
    case T_STRING:
        return weft_j_is_string(v);
    case T_MAPPING:
        return v.kind == WEFT_J_DICT;
    case T_SEQUENCE: /* it has a length and items, also when undefined */
        return weft_j_is_string(v) || v.kind == WEFT_J_LIST
            || v.kind == WEFT_J_TUPLE || v.kind == WEFT_J_RANGE
            || v.kind == WEFT_J_DICT || v.kind == WEFT_J_UNDEFINED;
    case T_ITERABLE:
        return weft_j_is_iterable(v) || v.kind == WEFT_J_LOOP;
    case T_CALLABLE:
        return v.kind == WEFT_J_MACRO || v.kind == WEFT_J_FUNCTION
            || v.kind == WEFT_J_METHOD || v.kind == WEFT_J_LOOP
            || v.kind == WEFT_J_UNDEFINED;
    default: /* T_ESCAPED */
        return v.kind == WEFT_J_MARKUP;
    }
}

/* str.islower(), isupper() by changing the case. */
static bool is_case(struct weft_jstate *st, struct weft_jvalue v, bool upper)
{
    struct weft_str s = weft_j_str(st, v);
    struct weft_str up = weft_j_case(st, s, WEFT_JCASE_UPPER).text;
    struct weft_str low = weft_j_case(st, s, WEFT_JCASE_LOWER).text;
    return weft_j_same(s, upper ? up : low) && !weft_j_same(up, low);
}

static bool is_multiple(struct weft_jstate *st, struct weft_jvalue v,
                        int64_t of, int64_t rest)
{
    struct weft_jvalue left = weft_j_binary(st, '%', v, weft_j_int(of));
    return weft_j_equal(st, left, weft_j_int(rest));
}

static bool is_same(struct weft_jstate *st, struct weft_jvalue a,
                    struct weft_jvalue b)
{
    if (a.kind != b.kind)
        return false;
    if (a.kind == WEFT_J_NONE || a.kind == WEFT_J_BOOL)
        return weft_j_equal(st, a, b);
    weft_j_fail(st, WEFT_EUNSUPPORTED,
                "Weft does not know whether %s is the same object as another",
                weft_j_type(a));
}

static bool compares(struct weft_jstate *st, enum test test,
                     struct weft_jvalue a, struct weft_jvalue b)
{
    switch (test) {
    case T_EQUAL:
        return weft_j_equal(st, a, b);
    case T_UNEQUAL:
        return !weft_j_equal(st, a, b);
    case T_LESS:
        return weft_j_compare(st, a, b, "<") < 0;
    case T_GREATER:
        return weft_j_compare(st, a, b, ">") > 0;
    case T_AT_MOST:
        return weft_j_compare(st, a, b, "<=") <= 0;
    case T_AT_LEAST:
        return weft_j_compare(st, a, b, ">=") >= 0;
    case T_SAME:
        return is_same(st, a, b);
    case T_IN:
        return weft_j_contains(st, b, a);
    default: /* T_DIVISIBLE */
        if (!weft_j_is_int(b))
            weft_j_fail(st, WEFT_EINVAL, "divisible by %s", weft_j_type(b));
        return is_multiple(st, a, weft_j_as_int(b), 0);
    }
}

bool weft_j_test(struct weft_jstate *st, struct weft_str name,
                 struct weft_jvalue v, const struct weft_jargs *args)
{
    size_t i = find(name);
    if (i == N_TESTS)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft has no test '%.*s'",
                    name.n > 40 ? 40 : (int) name.n, name.s);
    enum test test = TESTS[i].test;
    weft_j_check_args(st, args, TESTS[i].n_args, TESTS[i].n_args, "", "test",
                      name);
    if (test <= T_ESCAPED)
        return is_kind(test, v);
    if (test == T_LOWER || test == T_UPPER)
        return is_case(st, v, test == T_UPPER);
    if (test == T_FILTER || test == T_TEST) {
        struct weft_str text = weft_j_str(st, v);
        return test == T_FILTER ? weft_j_is_filter(text) : is_test(text);
    }
    if (test == T_ODD || test == T_EVEN)
        return is_multiple(st, v, 2, test == T_ODD);
    return compares(st, test, v, args->item[0]);
}
