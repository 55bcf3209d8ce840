/* SPDX-License-Identifier: Apache-2.0 */
/* From tokens to a tree: expressions, the loosest binding last. */
#include "text/jinja/impl.h"

static struct weft_jnode *unary(struct weft_jparser *p, bool with_filters);

static struct weft_jnode *node_of(struct weft_jparser *p,
                                  enum weft_jnode_kind kind,
                                  struct weft_jnode *a, struct weft_jnode *b)
{
    struct weft_jnode *node = weft_j_node(p, kind);
    node->a = a;
    node->b = b;
    return node;
}

/* ---- Primaries -------------------------------------------------------- */

static struct weft_jnode *constant(struct weft_jparser *p,
                                   struct weft_jvalue value)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_CONST);
    node->value = value;
    p->token++;
    return node;
}

static struct weft_jnode *strings(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_CONST);
    struct weft_jout out = {0};
    while (p->token->kind == WEFT_JT_STRING)
        weft_j_add_text(p->st, &out, (p->token++)->text);
    node->value = weft_j_taken(&out);
    return node;
}

static struct weft_jnode *name(struct weft_jparser *p)
{
    if (weft_j_is_name(p, "true") || weft_j_is_name(p, "True"))
        return constant(p, weft_j_bool(true));
    if (weft_j_is_name(p, "false") || weft_j_is_name(p, "False"))
        return constant(p, weft_j_bool(false));
    if (weft_j_is_name(p, "none") || weft_j_is_name(p, "None"))
        return constant(p, weft_j_none());
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_NAME);
    p->uses |= weft_j_is_name(p, "varargs") ? WEFT_JUSE_VARARGS
             : weft_j_is_name(p, "kwargs")  ? WEFT_JUSE_KWARGS
             : weft_j_is_name(p, "caller")  ? WEFT_JUSE_CALLER
                                            : 0;
    node->name = (p->token++)->text;
    return node;
}

/* [a, b] or {a: b}, behind the opening bracket. */
static struct weft_jnode *display(struct weft_jparser *p,
                                  enum weft_jnode_kind kind, int close)
{
    struct weft_jnode *node = weft_j_node(p, kind);
    while (!weft_j_is_op(p, close)) {
        if (node->n > 0)
            weft_j_expect_op(p, ',');
        if (weft_j_is_op(p, close))
            break;
        weft_j_append(p, &node->item, &node->n, weft_j_expression(p));
        if (kind != WEFT_JN_DICT)
            continue;
        weft_j_expect_op(p, ':');
        weft_j_append(p, &node->item, &node->n, weft_j_expression(p));
    }
    p->token++;
    return node;
}

static struct weft_jnode *parentheses(struct weft_jparser *p)
{
    struct weft_jnode *node;
    if (weft_j_is_op(p, ')'))
        node = weft_j_node(p, WEFT_JN_TUPLE);
    else
        node = weft_j_tuple(p, true, NULL);
    weft_j_expect_op(p, ')');
    return node;
}

static struct weft_jnode *primary(struct weft_jparser *p)
{
    switch (p->token->kind) {
    case WEFT_JT_NAME:
        return name(p);
    case WEFT_JT_STRING:
        return strings(p);
    case WEFT_JT_NUMBER:
        return constant(p, p->token->value);
    default:
        break;
    }
    if (weft_j_skip_op(p, '('))
        return parentheses(p);
    if (weft_j_skip_op(p, '['))
        return display(p, WEFT_JN_LIST, ']');
    if (weft_j_skip_op(p, '{'))
        return display(p, WEFT_JN_DICT, '}');
    weft_j_unexpected(p, "a value");
}

/* ---- What stands behind a primary ------------------------------------- */

/* (a, b=1, *c, **d), behind the parenthesis. */
static void arguments(struct weft_jparser *p, struct weft_jnode *node)
{
    enum weft_jnode_kind last = WEFT_JN_CONST;
    while (!weft_j_is_op(p, ')')) {
        struct weft_jnode *one = NULL;
        if (node->n > 0)
            weft_j_expect_op(p, ',');
        if (weft_j_is_op(p, ')'))
            break;
        enum weft_jnode_kind kind = weft_j_is_op(p, '*') ? WEFT_JN_STAR
                                  : weft_j_is_op(p, WEFT_JOP('*', '*'))
                                      ? WEFT_JN_STAR_STAR
                                  : p->token->kind == WEFT_JT_NAME
                                            && p->token[1].kind == WEFT_JT_OP
                                            && p->token[1].op == '='
                                      ? WEFT_JN_KEYWORD
                                      : WEFT_JN_CONST;
        bool wrong = kind == WEFT_JN_CONST ? last != WEFT_JN_CONST
                                           : last == WEFT_JN_STAR_STAR;
        if (wrong)
            weft_j_unexpected(p, "no argument by place behind others");
        last = kind;
        if (kind == WEFT_JN_CONST) {
            one = weft_j_expression(p);
        } else {
            one = weft_j_node(p, kind);
            if (kind == WEFT_JN_KEYWORD)
                one->name = (p->token++)->text;
            p->token++;
            one->a = weft_j_expression(p);
        }
        weft_j_append(p, &node->item, &node->n, one);
    }
    p->token++;
}

/* a[b], a[b:c:d], behind the bracket. */
static struct weft_jnode *subscript(struct weft_jparser *p,
                                    struct weft_jnode *a)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_SLICE);
    bool slice = false;
    node->a = a;
    for (int i = 0; i < 3; i++) {
        struct weft_jnode *bound = NULL;
        if (!weft_j_is_op(p, ':') && !weft_j_is_op(p, ']'))
            bound = weft_j_expression(p);
        weft_j_append(p, &node->item, &node->n, bound);
        if (!weft_j_skip_op(p, ':'))
            break;
        slice = true;
    }
    if (weft_j_is_op(p, ','))
        weft_j_fail(p->st, WEFT_EUNSUPPORTED,
                    "Weft takes one subscript in brackets");
    weft_j_expect_op(p, ']');
    if (!slice) {
        if (!node->item[0])
            weft_j_unexpected(p, "a subscript before here");
        return node_of(p, WEFT_JN_ITEM, a, node->item[0]);
    }
    while (node->n < 3)
        weft_j_append(p, &node->item, &node->n, NULL);
    return node;
}

static struct weft_jnode *attribute(struct weft_jparser *p,
                                    struct weft_jnode *a)
{
    if (p->token->kind == WEFT_JT_NUMBER
        && p->token->value.kind == WEFT_J_INT)
        return node_of(p, WEFT_JN_ITEM, a, constant(p, p->token->value));
    struct weft_jnode *node = node_of(p, WEFT_JN_ATTR, a, NULL);
    node->name = weft_j_expect_name(p);
    return node;
}

static struct weft_jnode *call(struct weft_jparser *p, struct weft_jnode *a)
{
    struct weft_jnode *node = node_of(p, WEFT_JN_CALL, a, NULL);
    p->token++;
    arguments(p, node);
    return node;
}

static struct weft_jnode *postfix(struct weft_jparser *p,
                                  struct weft_jnode *node)
{
    for (;;) {
        weft_j_step(p->st, 1);
        if (weft_j_skip_op(p, '.'))
            node = attribute(p, node);
        else if (weft_j_skip_op(p, '['))
            node = subscript(p, node);
        else if (weft_j_is_op(p, '('))
            node = call(p, node);
        else
            return node;
    }
}

/* A filter's or test's name, which may hold dots. */
static struct weft_str dotted(struct weft_jparser *p)
{
    struct weft_str first = weft_j_expect_name(p);
    if (weft_j_is_op(p, '.'))
        weft_j_fail(p->st, WEFT_EUNSUPPORTED,
                    "Weft has no filter or test '%.*s.'", (int) first.n,
                    first.s);
    return first;
}

struct weft_jnode *weft_j_filters(struct weft_jparser *p,
                                  struct weft_jnode *node, bool first)
{
    while (first || weft_j_skip_op(p, '|')) {
        struct weft_jnode *filter = node_of(p, WEFT_JN_FILTER, node, NULL);
        filter->name = dotted(p);
        if (weft_j_skip_op(p, '('))
            arguments(p, filter);
        node = filter;
        first = false;
    }
    return node;
}

/* Behind "is". */
static struct weft_jnode *test(struct weft_jparser *p, struct weft_jnode *a)
{
    bool negated = weft_j_skip_name(p, "not");
    struct weft_jnode *node = node_of(p, WEFT_JN_TEST, a, NULL);
    node->name = dotted(p);
    bool value = p->token->kind == WEFT_JT_NAME
              || p->token->kind == WEFT_JT_STRING
              || p->token->kind == WEFT_JT_NUMBER || weft_j_is_op(p, '[')
              || weft_j_is_op(p, '{');
    if (weft_j_is_name(p, "is"))
        weft_j_unexpected(p, "no test of a test");
    if (weft_j_skip_op(p, '('))
        arguments(p, node);
    else if (value && !weft_j_is_name(p, "else") && !weft_j_is_name(p, "or")
             && !weft_j_is_name(p, "and"))
        weft_j_append(p, &node->item, &node->n, postfix(p, primary(p)));
    return negated ? node_of(p, WEFT_JN_NOT, node, NULL) : node;
}

static struct weft_jnode *filters_and_tests(struct weft_jparser *p,
                                            struct weft_jnode *node)
{
    for (;;) {
        weft_j_step(p->st, 1);
        if (weft_j_is_op(p, '|'))
            node = weft_j_filters(p, node, false);
        else if (weft_j_skip_name(p, "is"))
            node = test(p, node);
        else if (weft_j_is_op(p, '('))
            node = call(p, node);
        else
            return node;
    }
}

/* ---- Operators -------------------------------------------------------- */

static struct weft_jnode *unary(struct weft_jparser *p, bool with_filters)
{
    struct weft_jnode *node;
    weft_j_enter(p->st);
    if (weft_j_skip_op(p, '-'))
        node = node_of(p, WEFT_JN_NEG, unary(p, false), NULL);
    else if (weft_j_skip_op(p, '+'))
        node = node_of(p, WEFT_JN_POS, unary(p, false), NULL);
    else
        node = primary(p);
    node = postfix(p, node);
    if (with_filters)
        node = filters_and_tests(p, node);
    weft_j_leave(p->st);
    return node;
}

/* next (op next)*, op one of `ops` (ends in 0). */
static struct weft_jnode *binary(
    struct weft_jparser *p, const int *ops,
    struct weft_jnode *(*next)(struct weft_jparser *) )
{
    struct weft_jnode *node = next(p);
    for (const int *op = ops; *op;) {
        if (!weft_j_skip_op(p, *op)) {
            op++;
            continue;
        }
        node = node_of(p, WEFT_JN_BINARY, node, NULL);
        node->op = *op;
        node->b = next(p);
        op = ops;
    }
    return node;
}

static struct weft_jnode *operand(struct weft_jparser *p)
{
    return unary(p, true);
}

static struct weft_jnode *power(struct weft_jparser *p)
{
    static const int ops[] = {WEFT_JOP('*', '*'), 0};
    return binary(p, ops, operand);
}

static struct weft_jnode *product(struct weft_jparser *p)
{
    static const int ops[] = {'*', '/', WEFT_JOP('/', '/'), '%', 0};
    return binary(p, ops, power);
}

static struct weft_jnode *concatenation(struct weft_jparser *p)
{
    struct weft_jnode *first = product(p), *node;
    if (!weft_j_is_op(p, '~'))
        return first;
    node = weft_j_node(p, WEFT_JN_CONCAT);
    weft_j_append(p, &node->item, &node->n, first);
    while (weft_j_skip_op(p, '~'))
        weft_j_append(p, &node->item, &node->n, product(p));
    return node;
}

static struct weft_jnode *sum(struct weft_jparser *p)
{
    static const int ops[] = {'+', '-', 0};
    return binary(p, ops, concatenation);
}

/* The comparison that stands here, or 0. */
static int comparison_op(struct weft_jparser *p)
{
    static const int ops[] = {WEFT_JOP('=', '='),
                              WEFT_JOP('!', '='),
                              WEFT_JOP('<', '='),
                              WEFT_JOP('>', '='),
                              '<',
                              '>',
                              0};
    for (const int *op = ops; *op; op++)
        if (weft_j_skip_op(p, *op))
            return *op;
    if (weft_j_skip_name(p, "in"))
        return WEFT_JOP_IN;
    if (weft_j_is_name(p, "not") && p->token[1].kind == WEFT_JT_NAME
        && weft_j_is(p->token[1].text, "in")) {
        p->token += 2;
        return WEFT_JOP_NOT_IN;
    }
    return 0;
}

static struct weft_jnode *comparison(struct weft_jparser *p)
{
    struct weft_jnode *first = sum(p), *node = NULL;
    int op;
    while ((op = comparison_op(p)) != 0) {
        if (!node)
            node = node_of(p, WEFT_JN_COMPARE, first, NULL);
        struct weft_jnode *one = weft_j_node(p, WEFT_JN_OPERAND);
        one->op = op;
        one->a = sum(p);
        weft_j_append(p, &node->item, &node->n, one);
    }
    return node ? node : first;
}

static struct weft_jnode *negation(struct weft_jparser *p)
{
    if (!weft_j_skip_name(p, "not"))
        return comparison(p);
    weft_j_enter(p->st);
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_NOT);
    node->a = negation(p);
    weft_j_leave(p->st);
    return node;
}

static struct weft_jnode *conjunction(struct weft_jparser *p)
{
    struct weft_jnode *node = negation(p);
    while (weft_j_skip_name(p, "and"))
        node = node_of(p, WEFT_JN_AND, node, negation(p));
    return node;
}

static struct weft_jnode *disjunction(struct weft_jparser *p)
{
    struct weft_jnode *node = conjunction(p);
    while (weft_j_skip_name(p, "or"))
        node = node_of(p, WEFT_JN_OR, node, conjunction(p));
    return node;
}

struct weft_jnode *weft_j_expression(struct weft_jparser *p)
{
    weft_j_enter(p->st);
    struct weft_jnode *node = disjunction(p);
    while (weft_j_skip_name(p, "if")) {
        node = node_of(p, WEFT_JN_COND, node, disjunction(p));
        if (weft_j_skip_name(p, "else"))
            node->c = weft_j_expression(p);
    }
    weft_j_leave(p->st);
    return node;
}

/* ---- Tuples and targets ----------------------------------------------- */

static bool is_tuple_end(const struct weft_jparser *p, const char *end)
{
    return p->token->kind == WEFT_JT_BLOCK_END
        || p->token->kind == WEFT_JT_PRINT_END || weft_j_is_op(p, ')')
        || (end && weft_j_is_name(p, end));
}

struct weft_jnode *weft_j_tuple(struct weft_jparser *p, bool with_condition,
                                const char *end)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_TUPLE);
    bool comma = false;
    do {
        if (is_tuple_end(p, end)) {
            if (!comma)
                weft_j_unexpected(p, "a value");
            break;
        }
        weft_j_append(p, &node->item, &node->n,
                      with_condition ? weft_j_expression(p) : disjunction(p));
    } while (weft_j_skip_op(p, ',') && (comma = true));
    return comma ? node : node->item[0];
}

static struct weft_jnode *one_target(struct weft_jparser *p,
                                     bool with_attribute)
{
    weft_j_enter(p->st);
    struct weft_jnode *node;
    if (weft_j_skip_op(p, '(')) {
        node = weft_j_target(p, NULL, with_attribute);
        weft_j_expect_op(p, ')');
    } else {
        node = name(p);
        if (node->kind != WEFT_JN_NAME)
            weft_j_unexpected(p, "a name that can be set before here");
        if (with_attribute && weft_j_skip_op(p, '.'))
            node = attribute(p, node);
        if (node->kind == WEFT_JN_ITEM)
            weft_j_unexpected(p, "a name behind '.' before here");
    }
    weft_j_leave(p->st);
    return node;
}

struct weft_jnode *weft_j_target(struct weft_jparser *p, const char *end,
                                 bool with_attribute)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_TUPLE);
    bool comma = false;
    do {
        if (comma && (is_tuple_end(p, end) || weft_j_is_op(p, '=')))
            break;
        if (p->token->kind != WEFT_JT_NAME && !weft_j_is_op(p, '('))
            weft_j_unexpected(p, "a name to set");
        weft_j_append(p, &node->item, &node->n,
                      one_target(p, with_attribute));
    } while (weft_j_skip_op(p, ',') && (comma = true));
    return comma ? node : node->item[0];
}
