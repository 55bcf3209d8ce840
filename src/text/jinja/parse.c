/* SPDX-License-Identifier: Apache-2.0 */
/* From tokens to a tree: statements. The grammar is Jinja's. */
#include "text/jinja/impl.h"

#include <stdio.h>
#include <string.h>

/* ---- Tokens ----------------------------------------------------------- */

struct weft_jnode *weft_j_node(struct weft_jparser *p,
                               enum weft_jnode_kind kind)
{
    struct weft_jnode *node = weft_j_alloc(p->st, 1, sizeof *node);
    node->kind = kind;
    node->line = p->token->line;
    return node;
}

/* The list has room for the next power of two. */
void weft_j_append(struct weft_jparser *p, struct weft_jnode ***list,
                   size_t *n, struct weft_jnode *node)
{
    if ((*n & (*n - 1)) == 0) { /* 0, 1, 2, 4, ... */
        struct weft_jnode **more = weft_j_alloc(p->st, *n ? 2 * *n : 1,
                                                sizeof(void *));
        if (*n > 0)
            memcpy(more, *list, *n * sizeof(void *));
        *list = more;
    }
    (*list)[(*n)++] = node;
}

static const char *describe(const struct weft_jtoken *t, char out[48])
{
    int n = t->text.n > 20 ? 20 : (int) t->text.n;
    switch (t->kind) {
    case WEFT_JT_END:
        return "the end of the template";
    case WEFT_JT_TEXT:
        return "text";
    case WEFT_JT_BLOCK_BEGIN:
        return "'{%'";
    case WEFT_JT_BLOCK_END:
        return "'%}'";
    case WEFT_JT_PRINT_BEGIN:
        return "'{{'";
    case WEFT_JT_PRINT_END:
        return "'}}'";
    case WEFT_JT_NAME:
        snprintf(out, 48, "'%.*s'", n, t->text.s);
        return out;
    case WEFT_JT_STRING:
        return "a string";
    case WEFT_JT_NUMBER:
        return "a number";
    case WEFT_JT_OP:
        if (t->op >= 256)
            snprintf(out, 48, "'%c%c'", t->op / 256, t->op % 256);
        else
            snprintf(out, 48, "'%c'", t->op);
        return out;
    }
    return "?";
}

void weft_j_unexpected(struct weft_jparser *p, const char *wanted)
{
    char out[48];
    p->st->line = p->token->line;
    weft_j_fail(p->st, WEFT_EFORMAT, "expected %s, not %s", wanted,
                describe(p->token, out));
}

bool weft_j_is_op(const struct weft_jparser *p, int op)
{
    return p->token->kind == WEFT_JT_OP && p->token->op == op;
}

bool weft_j_is_name(const struct weft_jparser *p, const char *name)
{
    return p->token->kind == WEFT_JT_NAME && weft_j_is(p->token->text, name);
}

bool weft_j_skip_op(struct weft_jparser *p, int op)
{
    bool is = weft_j_is_op(p, op);
    p->token += is;
    return is;
}

bool weft_j_skip_name(struct weft_jparser *p, const char *name)
{
    bool is = weft_j_is_name(p, name);
    p->token += is;
    return is;
}

void weft_j_expect_op(struct weft_jparser *p, int op)
{
    char wanted[4] = {'\'', (char) op, '\'', 0};
    if (!weft_j_skip_op(p, op))
        weft_j_unexpected(p, wanted);
}

struct weft_str weft_j_expect_name(struct weft_jparser *p)
{
    if (p->token->kind != WEFT_JT_NAME)
        weft_j_unexpected(p, "a name");
    return (p->token++)->text;
}

static void expect_end(struct weft_jparser *p)
{
    if (p->token->kind != WEFT_JT_BLOCK_END)
        weft_j_unexpected(p, "'%}'");
    p->token++;
}

/* ---- Bodies ----------------------------------------------------------- */

static struct weft_jnode *statement(struct weft_jparser *p);

/* The name of the tag that begins here, one of ends ("else endfor")? */
static bool is_end(const struct weft_jparser *p, const char *ends)
{
    struct weft_str name = p->token->text;
    if (p->token->kind != WEFT_JT_NAME)
        return false;
    for (const char *e = ends; *e; e += *e == ' ') {
        size_t n = strcspn(e, " ");
        if (n == name.n && memcmp(e, name.s, n) == 0)
            return true;
        e += n;
    }
    return false;
}

/* Statements up to the tag of one of `ends`, whose name is the token then;
 * NULL: up to the template's end. line: of the tag before them. */
static void statements(struct weft_jparser *p, int line, const char *ends,
                       struct weft_jnode ***list, size_t *n)
{
    weft_j_enter(p->st);
    for (;;) {
        struct weft_jnode *node;
        p->st->line = p->token->line;
        if (p->token->kind == WEFT_JT_END) {
            if (!ends)
                break;
            p->st->line = line;
            weft_j_fail(p->st, WEFT_EFORMAT, "this tag has no '%s'",
                        strrchr(ends, ' ') ? strrchr(ends, ' ') + 1 : ends);
        }
        if (p->token->kind == WEFT_JT_TEXT) {
            node = weft_j_node(p, WEFT_JN_TEXT);
            node->name = (p->token++)->text;
        } else if (p->token->kind == WEFT_JT_PRINT_BEGIN) {
            p->token++;
            node = weft_j_node(p, WEFT_JN_PRINT);
            node->a = weft_j_tuple(p, true, NULL);
            if (p->token->kind != WEFT_JT_PRINT_END)
                weft_j_unexpected(p, "'}}'");
            p->token++;
        } else {
            p->token++; /* a block begins */
            if (ends && is_end(p, ends))
                break;
            node = statement(p);
            expect_end(p);
        }
        weft_j_append(p, list, n, node);
    }
    weft_j_leave(p->st);
}

/* The end of a tag, statements, and the next tag's name. */
static struct weft_str body(struct weft_jparser *p, const char *ends,
                            struct weft_jnode ***list, size_t *n)
{
    (void) weft_j_skip_op(p, ':');
    int line = p->token->line;
    expect_end(p);
    statements(p, line, ends, list, n);
    return (p->token++)->text;
}

/* ---- Statements ------------------------------------------------------- */

/* Behind "if" or "elif". */
static struct weft_jnode *parse_if(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_IF);
    weft_j_enter(p->st);
    node->a = weft_j_tuple(p, false, NULL);
    struct weft_str end = body(p, "elif else endif", &node->item, &node->n);
    if (weft_j_is(end, "elif"))
        weft_j_append(p, &node->other, &node->n_other, parse_if(p));
    else if (weft_j_is(end, "else"))
        (void) body(p, "endif", &node->other, &node->n_other);
    weft_j_leave(p->st);
    return node;
}

static struct weft_jnode *parse_for(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_FOR);
    node->a = weft_j_target(p, "in", false);
    if (!weft_j_skip_name(p, "in"))
        weft_j_unexpected(p, "'in'");
    node->b = weft_j_tuple(p, false, "recursive");
    if (weft_j_skip_name(p, "if"))
        node->c = weft_j_expression(p);
    node->op = weft_j_skip_name(p, "recursive");
    p->loops++;
    struct weft_str end = body(p, "else endfor", &node->item, &node->n);
    p->loops--;
    if (weft_j_is(end, "else"))
        (void) body(p, "endfor", &node->other, &node->n_other);
    return node;
}

/* Statements whose text is a value, up to the tag `end`. */
static struct weft_jnode *inner(struct weft_jparser *p, const char *end)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_INNER);
    (void) body(p, end, &node->item, &node->n);
    return node;
}

/* Puts `last` under the innermost of a chain of filters. */
static struct weft_jnode *under(struct weft_jnode *filter,
                                struct weft_jnode *last)
{
    struct weft_jnode *node = filter;
    if (!filter)
        return last;
    while (node->a)
        node = node->a;
    node->a = last;
    return filter;
}

static struct weft_jnode *parse_set(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_SET);
    node->a = weft_j_target(p, NULL, true);
    if (weft_j_skip_op(p, '=')) {
        node->b = weft_j_tuple(p, true, NULL);
        return node;
    }
    struct weft_jnode *filter = weft_j_filters(p, NULL, false);
    node->b = under(filter, inner(p, "endset"));
    return node;
}

static struct weft_jnode *parse_filter_block(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_PRINT);
    struct weft_jnode *filter = weft_j_filters(p, NULL, true);
    node->a = under(filter, inner(p, "endfilter"));
    return node;
}

/* "(a, b=1)" */
static void signature(struct weft_jparser *p, struct weft_jnode *node)
{
    bool defaults = false;
    weft_j_expect_op(p, '(');
    while (!weft_j_is_op(p, ')')) {
        if (node->n > 0)
            weft_j_expect_op(p, ',');
        struct weft_jnode *one = weft_j_node(p, WEFT_JN_KEYWORD);
        one->name = weft_j_expect_name(p);
        if (weft_j_skip_op(p, '='))
            one->a = weft_j_expression(p);
        if (defaults && !one->a)
            weft_j_unexpected(p, "a default, as the parameter before has");
        defaults = one->a;
        weft_j_append(p, &node->item, &node->n, one);
    }
    p->token++;
}

/* The body of a macro: what is around it does not count in it. */
static void macro_body(struct weft_jparser *p, struct weft_jnode *macro,
                       const char *end)
{
    int loops = p->loops, uses = p->uses;
    p->loops = p->uses = 0;
    (void) body(p, end, &macro->other, &macro->n_other);
    macro->op = p->uses;
    p->loops = loops;
    p->uses = uses | macro->op;
}

static struct weft_jnode *parse_macro(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_MACRO);
    node->name = weft_j_expect_name(p);
    signature(p, node);
    macro_body(p, node, "endmacro");
    return node;
}

static struct weft_jnode *parse_call_block(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_CALL_BLOCK);
    node->a = weft_j_node(p, WEFT_JN_MACRO);
    node->a->name = WEFT_JSTR("caller");
    if (weft_j_is_op(p, '('))
        signature(p, node->a);
    node->b = weft_j_expression(p);
    if (node->b->kind != WEFT_JN_CALL)
        weft_j_unexpected(p, "a call before here");
    macro_body(p, node->a, "endcall");
    return node;
}

static struct weft_jnode *parse_with(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_WITH);
    while (p->token->kind != WEFT_JT_BLOCK_END && !weft_j_is_op(p, ':')) {
        if (node->n > 0)
            weft_j_expect_op(p, ',');
        struct weft_jnode *one = weft_j_node(p, WEFT_JN_SET);
        one->a = weft_j_target(p, NULL, false);
        weft_j_expect_op(p, '=');
        one->b = weft_j_expression(p);
        weft_j_append(p, &node->item, &node->n, one);
    }
    (void) body(p, "endwith", &node->other, &node->n_other);
    return node;
}

/* {% generation %} marks what the assistant said; its text is not changed.
 * Its body is a macro's in Jinja: a scope of its own. */
static struct weft_jnode *parse_generation(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_MARK);
    p->st->has_marks = true;
    int loops = p->loops;
    p->loops = 0;
    node->a = inner(p, "endgeneration");
    p->loops = loops;
    return node;
}

static struct weft_jnode *parse_print(struct weft_jparser *p)
{
    struct weft_jnode *node = weft_j_node(p, WEFT_JN_BODY);
    while (p->token->kind != WEFT_JT_BLOCK_END) {
        if (node->n > 0)
            weft_j_expect_op(p, ',');
        struct weft_jnode *one = weft_j_node(p, WEFT_JN_PRINT);
        one->a = weft_j_expression(p);
        weft_j_append(p, &node->item, &node->n, one);
    }
    return node;
}

static struct weft_jnode *leave_loop(struct weft_jparser *p,
                                     struct weft_str name)
{
    if (p->loops == 0)
        weft_j_fail(p->st, WEFT_EFORMAT, "'%.*s' is in no loop", (int) name.n,
                    name.s);
    return weft_j_node(p, weft_j_is(name, "break") ? WEFT_JN_BREAK
                                                   : WEFT_JN_CONTINUE);
}

static struct weft_jnode *statement(struct weft_jparser *p)
{
    static const struct {
        const char *name;
        struct weft_jnode *(*parse)(struct weft_jparser *);
    } known[] = {{"if", parse_if},       {"for", parse_for},
                 {"set", parse_set},     {"filter", parse_filter_block},
                 {"macro", parse_macro}, {"call", parse_call_block},
                 {"with", parse_with},   {"generation", parse_generation},
                 {"print", parse_print}};
    static const char *const not_run[] = {"extends", "include", "import",
                                          "from",    "block",   "autoescape"};
    p->st->line = p->token->line;
    struct weft_str name = weft_j_expect_name(p);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (weft_j_is(name, known[i].name))
            return known[i].parse(p);
    if (weft_j_is(name, "break") || weft_j_is(name, "continue"))
        return leave_loop(p, name);
    for (size_t i = 0; i < sizeof not_run / sizeof *not_run; i++)
        if (weft_j_is(name, not_run[i]))
            weft_j_fail(p->st, WEFT_EUNSUPPORTED,
                        "Weft does not run the statement '{%% %s %%}'",
                        not_run[i]);
    weft_j_fail(p->st, WEFT_EFORMAT,
                "'{%% %.*s %%}' is no statement that can stand here",
                name.n > 40 ? 40 : (int) name.n, name.s);
}

struct weft_jnode *weft_j_parse(struct weft_jstate *st,
                                const struct weft_jtoken *token)
{
    struct weft_jparser p = {.st = st, .token = token};
    struct weft_jnode *node = weft_j_node(&p, WEFT_JN_BODY);
    statements(&p, 1, NULL, &node->item, &node->n);
    return node;
}
