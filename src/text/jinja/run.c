/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: parsing and rendering as a whole, and the statements. */
#include "text/jinja/impl.h"

#include <stdio.h>
#include <string.h>

struct weft_jinja {
    struct weft_jstate state; /* holds the tree */
    struct weft_jnode *root;
    char *name;
};

/* ---- Scopes ----------------------------------------------------------- */

struct weft_jscope *weft_j_scope(struct weft_jstate *st,
                                 struct weft_jscope *up)
{
    struct weft_jscope *scope = weft_j_alloc(st, 1, sizeof *scope);
    scope->up = up;
    return scope;
}

void weft_j_set(struct weft_jstate *st, struct weft_jscope *scope,
                struct weft_str name, struct weft_jvalue value)
{
    for (size_t i = 0; i < scope->n; i++)
        if (weft_j_same(scope->variable[i].key.text, name)) {
            scope->variable[i].value = value;
            return;
        }
    if (scope->n == scope->capacity) {
        size_t capacity = 2 * scope->capacity + 4;
        struct weft_jpair *more = weft_j_alloc(st, capacity, sizeof *more);
        if (scope->n > 0)
            memcpy(more, scope->variable, scope->n * sizeof *more);
        scope->variable = more;
        scope->capacity = capacity;
    }
    scope->variable[scope->n++] = (struct weft_jpair){weft_j_text(name),
                                                      value};
}

/* Sets a name, an attribute of a namespace, or each of a tuple. */
static void assign(struct weft_jstate *st, struct weft_jscope *scope,
                   const struct weft_jnode *target, struct weft_jvalue value)
{
    if (target->kind == WEFT_JN_NAME) {
        weft_j_set(st, scope, target->name, value);
    } else if (target->kind == WEFT_JN_ATTR) {
        struct weft_jvalue space = weft_j_eval(st, scope, target->a);
        if (space.kind != WEFT_J_NAMESPACE)
            weft_j_fail(st, WEFT_EINVAL,
                        "'%.*s.%.*s' cannot be set: only a namespace has "
                        "attributes that can",
                        (int) target->a->name.n, target->a->name.s,
                        (int) target->name.n, target->name.s);
        if (target->name.n > 0 && target->name.s[0] == '_')
            weft_j_fail(st, WEFT_EINVAL,
                        "a namespace's attribute must not begin with '_'");
        weft_j_put(st, space, weft_j_text(target->name), value);
    } else {
        struct weft_jlist list = weft_j_items(st, value);
        if (list.n != target->n)
            weft_j_fail(st, WEFT_EINVAL, "%zu values are set to %zu names",
                        list.n, target->n);
        for (size_t i = 0; i < list.n; i++)
            assign(st, scope, target->item[i], list.item[i]);
    }
}

/* ---- Statements ------------------------------------------------------- */

static enum weft_jflow run_all(struct weft_jstate *st,
                               struct weft_jscope *scope,
                               struct weft_jnode *const *node, size_t n);

struct weft_jvalue weft_j_run_text(struct weft_jstate *st,
                                   struct weft_jscope *scope,
                                   struct weft_jnode *const *node, size_t n)
{
    struct weft_jout out = {0}, *outer = st->out;
    st->out = &out;
    if (!outer)
        st->outermost = &out;
    (void) run_all(st, scope, node, n);
    st->out = outer;
    return weft_j_taken(&out);
}

/* The items for which the filter of a `for` holds. */
static struct weft_jlist filtered(struct weft_jstate *st,
                                  struct weft_jscope *scope,
                                  const struct weft_jnode *node,
                                  struct weft_jlist all)
{
    struct weft_jvalue kept = weft_j_list(st, WEFT_J_LIST);
    for (size_t i = 0; i < all.n; i++) {
        struct weft_jscope *one = weft_j_scope(st, scope);
        assign(st, one, node->a, all.item[i]);
        if (weft_j_truth(weft_j_eval(st, one, node->c)))
            weft_j_push(st, kept, all.item[i]);
    }
    return *kept.list;
}

void weft_j_run_for(struct weft_jstate *st, struct weft_jscope *scope,
                    const struct weft_jnode *node, struct weft_jvalue items,
                    int depth)
{
    struct weft_jlist all = weft_j_items(st, items);
    enum weft_jflow flow = WEFT_JFLOW_ON;
    if (node->c)
        all = filtered(st, scope, node, all);
    struct weft_jloop *loop = weft_j_alloc(st, 1, sizeof *loop);
    *loop = (struct weft_jloop){.item = all.item,
                                .n = all.n,
                                .depth = depth,
                                .node = node->op ? node : NULL,
                                .scope = scope};
    struct weft_jvalue value = {.kind = WEFT_J_LOOP, .loop = loop};
    bool ended = false; /* a body came to its end; if not, `else` runs */
    for (; loop->at < loop->n && flow != WEFT_JFLOW_BREAK; loop->at++) {
        struct weft_jscope *one = weft_j_scope(st, scope);
        weft_j_set(st, one, WEFT_JSTR("loop"), value);
        assign(st, one, node->a, loop->item[loop->at]);
        flow = run_all(st, one, node->item, node->n);
        ended = ended || flow == WEFT_JFLOW_ON;
    }
    if (!ended)
        (void) run_all(st, weft_j_scope(st, scope), node->other,
                       node->n_other);
}

static void run_call_block(struct weft_jstate *st, struct weft_jscope *scope,
                           const struct weft_jnode *node)
{
    struct weft_jmacro *macro = weft_j_alloc(st, 1, sizeof *macro);
    *macro = (struct weft_jmacro){node->a, scope};
    struct weft_jvalue caller = {.kind = WEFT_J_MACRO, .macro = macro};
    struct weft_jvalue f = weft_j_eval(st, scope, node->b->a);
    struct weft_jargs args = weft_j_eval_args(st, scope, node->b->item,
                                              node->b->n);
    weft_j_put(st, args.named, weft_j_text(WEFT_JSTR("caller")), caller);
    weft_j_add_value(st, st->out, weft_j_call(st, f, &args));
}

static size_t n_characters(struct weft_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += ((unsigned char) text.s[i] & 0xc0) != 0x80;
    return n;
}

/* The mark's end is a number of characters until the whole text is there. */
static void run_mark(struct weft_jstate *st, struct weft_jscope *scope,
                     const struct weft_jnode *node)
{
    struct weft_jvalue text = weft_j_eval(st, scope, node->a);
    struct weft_jinja_marks *m = &st->marks;
    size_t start = st->outermost->n;
    if (m->n == st->marks_capacity) {
        st->marks_capacity = 2 * m->n + 4;
        struct weft_jinja_mark *more = weft_j_alloc(st, st->marks_capacity,
                                                    sizeof *more);
        if (m->n > 0)
            memcpy(more, m->mark, m->n * sizeof *more);
        m->mark = more;
    }
    m->mark[m->n++] = (struct weft_jinja_mark){start,
                                               n_characters(text.text)};
    weft_j_add_value(st, st->out, text);
}

static enum weft_jflow run_one(struct weft_jstate *st,
                               struct weft_jscope *scope,
                               const struct weft_jnode *node)
{
    struct weft_jscope *one;
    switch (node->kind) {
    case WEFT_JN_TEXT:
        weft_j_add_text(st, st->out, node->name);
        break;
    case WEFT_JN_PRINT:
        weft_j_add_value(st, st->out, weft_j_eval(st, scope, node->a));
        break;
    case WEFT_JN_MARK:
        run_mark(st, scope, node);
        break;
    case WEFT_JN_IF:
        if (weft_j_truth(weft_j_eval(st, scope, node->a)))
            return run_all(st, scope, node->item, node->n);
        return run_all(st, scope, node->other, node->n_other);
    case WEFT_JN_FOR:
        weft_j_run_for(st, scope, node, weft_j_eval(st, scope, node->b), 0);
        break;
    case WEFT_JN_SET:
        assign(st, scope, node->a, weft_j_eval(st, scope, node->b));
        break;
    case WEFT_JN_MACRO: {
        struct weft_jmacro *macro = weft_j_alloc(st, 1, sizeof *macro);
        *macro = (struct weft_jmacro){node, scope};
        weft_j_set(
            st, scope, node->name,
            (struct weft_jvalue){.kind = WEFT_J_MACRO, .macro = macro});
        break;
    }
    case WEFT_JN_CALL_BLOCK:
        run_call_block(st, scope, node);
        break;
    case WEFT_JN_WITH: /* values are of the scope around */
        one = weft_j_scope(st, scope);
        for (size_t i = 0; i < node->n; i++)
            assign(st, one, node->item[i]->a,
                   weft_j_eval(st, scope, node->item[i]->b));
        return run_all(st, one, node->other, node->n_other);
    case WEFT_JN_BODY:
        return run_all(st, scope, node->item, node->n);
    case WEFT_JN_BREAK:
        return WEFT_JFLOW_BREAK;
    case WEFT_JN_CONTINUE:
        return WEFT_JFLOW_CONTINUE;
    default:
        weft_assert(false && "a node that is no statement");
    }
    return WEFT_JFLOW_ON;
}

static enum weft_jflow run_all(struct weft_jstate *st,
                               struct weft_jscope *scope,
                               struct weft_jnode *const *node, size_t n)
{
    enum weft_jflow flow = WEFT_JFLOW_ON;
    int line = st->line;
    weft_j_enter(st);
    for (size_t i = 0; i < n && flow == WEFT_JFLOW_ON; i++) {
        weft_j_step(st, 1);
        st->line = node[i]->line;
        flow = run_one(st, scope, node[i]);
    }
    weft_j_leave(st);
    st->line = line;
    return flow;
}

/* ---- A template ------------------------------------------------------- */

static void state_init(struct weft_jstate *st, const char *name,
                       const struct weft_jinja_limits *limits,
                       struct weft_err *err)
{
    *st = (struct weft_jstate){.name = name, .err = err, .line = 1};
    if (limits)
        st->limits = *limits;
    if (!st->limits.steps)
        st->limits.steps = 20 * 1000 * 1000;
    if (!st->limits.memory_bytes)
        st->limits.memory_bytes = (size_t) 512 << 20;
    if (!st->limits.nesting)
        st->limits.nesting = 500;
}

int weft_jinja_parse(const char *text, size_t n, const char *name,
                     struct weft_jinja **out, struct weft_err *err)
{
    struct weft_jinja *jinja = weft_alloc(1, sizeof *jinja);
    if (!jinja)
        return weft_err_nomem(err, "a template", sizeof *jinja);
    jinja->name = weft_strdup(name);
    if (!jinja->name) {
        weft_free(jinja);
        return weft_err_nomem(err, "a template", strlen(name));
    }
    state_init(&jinja->state, jinja->name, NULL, err);
    if (setjmp(jinja->state.escape) == 0) {
        struct weft_jstate *st = &jinja->state;
        jinja->root = weft_j_parse(st, weft_j_lex(st, text, n));
        st->err = NULL;
        *out = jinja;
        return 0;
    }
    int rc = jinja->state.rc;
    weft_jinja_free(jinja);
    return rc;
}

void weft_jinja_free(struct weft_jinja *jinja)
{
    if (!jinja)
        return;
    weft_j_release(&jinja->state);
    weft_free(jinja->name);
    weft_free(jinja);
}

static struct weft_jvalue render(struct weft_jstate *st,
                                 const struct weft_jinja *jinja,
                                 const json_t *context)
{
    struct weft_jscope *scope = weft_j_scope(st, NULL);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *) (uintptr_t) context, key, value)
    {
        weft_j_set(st, scope, (struct weft_str){key, strlen(key)},
                   weft_j_from_json(st, value));
    }
    return weft_j_run_text(st, weft_j_scope(st, scope), jinja->root->item,
                           jinja->root->n);
}

/* The byte that is n characters behind byte `at`, or the text's end. */
static size_t advance(struct weft_str text, size_t at, size_t n)
{
    for (; n > 0 && at < text.n; n--)
        for (at++;
             at < text.n && ((unsigned char) text.s[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

/* Gives the caller a copy of what the arena holds. */
static int copy_marks(const struct weft_jinja_marks *from,
                      struct weft_str text, struct weft_jinja_marks *out,
                      struct weft_err *err)
{
    struct weft_jinja_mark *mark = weft_alloc(from->n + 1, sizeof *mark);
    if (!mark)
        return weft_err_nomem(err, "a text's marks", from->n * sizeof *mark);
    if (from->n > 0)
        memcpy(mark, from->mark, from->n * sizeof *mark);
    for (size_t i = 0; i < from->n; i++)
        mark[i].end = advance(text, mark[i].start, mark[i].end);
    *out = (struct weft_jinja_marks){mark, from->n};
    return 0;
}

bool weft_jinja_has_marks(const struct weft_jinja *jinja)
{
    return jinja->state.has_marks;
}

const char *weft_jinja_name(const struct weft_jinja *jinja)
{
    return jinja->name;
}

int weft_jinja_render(const struct weft_jinja *jinja, const json_t *context,
                      const struct weft_date *date,
                      const struct weft_jinja_limits *limits,
                      struct weft_str *text_out,
                      struct weft_jinja_marks *marks_out,
                      struct weft_err *err)
{
    struct weft_jstate *st = weft_alloc(1, sizeof *st);
    if (!st)
        return weft_err_nomem(err, "a rendering", sizeof *st);
    state_init(st, jinja->name, limits, err);
    st->date = *date;
    if (setjmp(st->escape) == 0) {
        st->rc = weft_str_copy(render(st, jinja, context).text, text_out,
                               err);
    }
    int rc = st->rc;
    if (!rc && marks_out) {
        rc = copy_marks(&st->marks, *text_out, marks_out, err);
        if (rc)
            weft_str_release(text_out);
    }
    weft_j_release(st);
    weft_free(st);
    return rc;
}

int weft_date_read(const char *text, struct weft_date *out,
                   struct weft_err *err)
{
    static const int most[] = {31, 29, 31, 30, 31, 30,
                               31, 31, 30, 31, 30, 31};
    struct weft_date d = {0};
    int n = 0;
    bool ok = strlen(text) == 10 && strspn(text, "0123456789-") == 10
           && sscanf(text, "%4d-%2d-%2d%n", &d.year, &d.month, &d.day, &n)
                  == 3
           && n == 10 && d.year >= 1 && d.month >= 1 && d.month <= 12
           && d.day >= 1 && d.day <= most[d.month - 1];
    bool leap = d.year % 4 == 0 && (d.year % 100 != 0 || d.year % 400 == 0);
    if (!ok || (d.month == 2 && d.day == 29 && !leap))
        return weft_err_set(err, WEFT_EINVAL,
                            "'%.40s' is no date; write YYYY-MM-DD, as "
                            "2024-07-26",
                            text);
    *out = d;
    return 0;
}
