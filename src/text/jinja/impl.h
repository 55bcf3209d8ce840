/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the Jinja interpreter; only jinja*.c include it. To read in
 * this order: lex.c (text to tokens), parse.c and expr.c (tokens to a tree),
 * value.c (values and memory), run.c (statements), eval.c (expressions), op.c
 * (operators), call.c (macros, functions), method.c, filter.c, list.c, test.c
 * (the names that a template may use).
 *
 * Everything is allocated from a state's arena and freed with it. A failure
 * leaves by longjmp to the function that made the state, so that no function
 * below it returns an error: nothing but the arena holds memory, and no
 * function may hold a lock, a file or a reference of its own.
 */
#ifndef WEFT_TEXT_JINJA_IMPL_H
#define WEFT_TEXT_JINJA_IMPL_H

#include <setjmp.h>

#include "base/alloc.h"
#include "text/jinja/jinja.h"

/* ---- Values ----------------------------------------------------------- */

/* Texts are UTF-8, and have no zero byte behind them. */
#define WEFT_JSTR(literal) ((struct weft_str){literal, sizeof(literal) - 1})

enum weft_jkind {
    WEFT_J_UNDEFINED, /* prints as nothing; text: what is missing */
    WEFT_J_NONE,
    WEFT_J_BOOL,
    WEFT_J_INT,
    WEFT_J_FLOAT,
    WEFT_J_STRING,
    WEFT_J_MARKUP, /* a string that |safe or |escape marked */
    WEFT_J_LIST,
    WEFT_J_TUPLE,
    WEFT_J_RANGE,
    WEFT_J_VIEW,      /* keys(), values(), items() of a mapping */
    WEFT_J_GENERATOR, /* of map, select, ...: can be walked once */
    WEFT_J_DICT,
    WEFT_J_NAMESPACE,
    WEFT_J_LOOP,
    WEFT_J_MACRO,
    WEFT_J_FUNCTION, /* text: its name */
    WEFT_J_METHOD
};

struct weft_jvalue {
    enum weft_jkind kind;
    union {
        bool truth; /* BOOL */
        int64_t i;
        double f;
        struct weft_str text;    /* STRING, MARKUP, UNDEFINED, FUNCTION */
        struct weft_jlist *list; /* LIST, TUPLE, RANGE, VIEW, GENERATOR */
        struct weft_jdict *dict; /* DICT, NAMESPACE */
        struct weft_jloop *loop;
        struct weft_jmacro *macro;
        struct weft_jmethod *method;
    };
};

struct weft_jlist {
    struct weft_jvalue *item; /* (n) */
    size_t n;
    size_t capacity;
    bool walked; /* a generator that has nothing left */
};

struct weft_jpair {
    struct weft_jvalue key, value;
};

struct weft_jdict {          /* in the order of insertion */
    struct weft_jpair *pair; /* (n) */
    size_t n;
    size_t capacity;
};

/* What `loop` is inside of a for. */
struct weft_jloop {
    const struct weft_jvalue *item; /* (n) */
    size_t n, at;
    int depth;                     /* of recursive loops, from 0 */
    const struct weft_jnode *node; /* of a recursive loop, else NULL */
    struct weft_jscope *scope;     /* around that loop */
    struct weft_jvalue *changed;   /* what changed() was given last */
    size_t n_changed;
};

struct weft_jmacro {
    const struct weft_jnode *node;
    struct weft_jscope *scope; /* around the definition */
};

struct weft_jmethod { /* "name" of a value, to be called */
    struct weft_jvalue self;
    struct weft_str name;
};

/* ---- Trees ------------------------------------------------------------ */

enum weft_jnode_kind {
    /* statements */
    WEFT_JN_TEXT,  /* name: the text */
    WEFT_JN_PRINT, /* a */
    WEFT_JN_MARK,  /* the same of an INNER, which is noted */
    WEFT_JN_IF,    /* a: condition; item: body; other: else */
    WEFT_JN_FOR,   /* a: target; b: iterated; c: filter or NULL; item: body;
                       other: else; op: 1 recursive */
    WEFT_JN_SET,   /* a: target; b: value */
    WEFT_JN_SET_BLOCK, /* a: target; b: filters around an INNER, or INNER */
    WEFT_JN_MACRO, /* name; item: parameters; other: body; op: weft_juse */
    WEFT_JN_CALL_BLOCK, /* a: MACRO, the caller; b: CALL */
    WEFT_JN_WITH,       /* item: SET; other: body */
    WEFT_JN_BODY,       /* item: statements in the scope around */
    WEFT_JN_BREAK,
    WEFT_JN_CONTINUE,
    /* expressions */
    WEFT_JN_CONST,  /* value */
    WEFT_JN_NAME,   /* name */
    WEFT_JN_LIST,   /* item */
    WEFT_JN_TUPLE,  /* item */
    WEFT_JN_DICT,   /* item: key, value, key, value, ... */
    WEFT_JN_ATTR,   /* a.name */
    WEFT_JN_ITEM,   /* a[b] */
    WEFT_JN_SLICE,  /* a[item 0:item 1:item 2], each may be NULL */
    WEFT_JN_CALL,   /* a(item) */
    WEFT_JN_FILTER, /* a|name(item) */
    WEFT_JN_TEST,   /* a is name(item) */
    WEFT_JN_NOT,
    WEFT_JN_AND,
    WEFT_JN_OR,
    WEFT_JN_COND,    /* a if b else c; c may be NULL */
    WEFT_JN_COMPARE, /* a, then item: OPERAND */
    WEFT_JN_BINARY,  /* a op b */
    WEFT_JN_NEG,
    WEFT_JN_POS,
    WEFT_JN_CONCAT, /* item: joined as texts */
    WEFT_JN_INNER,  /* item: statements in a scope of their own, as text */
    /* parts of others */
    WEFT_JN_OPERAND,  /* op a */
    WEFT_JN_KEYWORD,  /* name=a; a parameter: a may be NULL */
    WEFT_JN_STAR,     /* *a */
    WEFT_JN_STAR_STAR /* **a */
};

/* Operators by a number: of one character its code, of two both codes. */
#define WEFT_JOP(a, b) ((a) *256 + (b))
enum { WEFT_JOP_IN = 1, WEFT_JOP_NOT_IN = 2 };

struct weft_jnode {
    enum weft_jnode_kind kind;
    int line; /* in the template, from 1 */
    int op;
    struct weft_str name;
    struct weft_jvalue value;
    struct weft_jnode *a, *b, *c;
    struct weft_jnode **item, **other;
    size_t n, n_other;
};

/* ---- A state: memory, place, limits ----------------------------------- */

struct weft_jscope {
    struct weft_jscope *up; /* NULL: the context's */
    struct weft_jpair *variable;
    size_t n, capacity;
};

struct weft_jout { /* text that grows */
    char *s;
    size_t n, capacity;
};

struct weft_jstate {
    jmp_buf escape;
    int rc;
    struct weft_err *err;
    const char *name; /* of the template */
    int line;
    struct weft_jchunk *chunk; /* the arena */
    size_t used_bytes;
    uint64_t steps;
    int nesting;
    struct weft_jinja_limits limits;
    bool has_marks; /* parsing only: there is a MARK */
    /* rendering only */
    struct weft_jout *out, *outermost;
    struct weft_jinja_marks marks;
    size_t marks_capacity;
    struct weft_date date;
};

/* Ends the work: "name:line: text". */
WEFT_NORETURN void weft_j_fail(struct weft_jstate *st, int code,
                               const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Zeroed; freed with the state. */
void *weft_j_alloc(struct weft_jstate *st, size_t n, size_t size);
void weft_j_release(struct weft_jstate *st);
/* Counts n steps of work. */
void weft_j_step(struct weft_jstate *st, size_t n);
/* One level deeper, until weft_j_leave(). */
void weft_j_enter(struct weft_jstate *st);
void weft_j_leave(struct weft_jstate *st);

/* ---- lex.c ------------------------------------------------------------ */

enum weft_jtoken_kind {
    WEFT_JT_END,
    WEFT_JT_TEXT,
    WEFT_JT_BLOCK_BEGIN,
    WEFT_JT_BLOCK_END,
    WEFT_JT_PRINT_BEGIN,
    WEFT_JT_PRINT_END,
    WEFT_JT_NAME,
    WEFT_JT_STRING,
    WEFT_JT_NUMBER, /* value: INT or FLOAT */
    WEFT_JT_OP
};

struct weft_jtoken {
    enum weft_jtoken_kind kind;
    int line;
    int op;
    struct weft_str text;
    struct weft_jvalue value;
};

/* All tokens of a template; the last is an END. */
struct weft_jtoken *weft_j_lex(struct weft_jstate *st, const char *text,
                               size_t n);

/* ---- parse.c, expr.c -------------------------------------------------- */

/* Names that a macro's body may use without being given them. */
enum weft_juse {
    WEFT_JUSE_VARARGS = 1,
    WEFT_JUSE_KWARGS = 2,
    WEFT_JUSE_CALLER = 4
};

struct weft_jparser {
    struct weft_jstate *st;
    const struct weft_jtoken *token; /* the present one */
    int loops;                       /* around the present place */
    int uses;                        /* weft_juse of the present macro */
};

struct weft_jnode *weft_j_parse(struct weft_jstate *st,
                                const struct weft_jtoken *token);

struct weft_jnode *weft_j_node(struct weft_jparser *p,
                               enum weft_jnode_kind kind);
void weft_j_append(struct weft_jparser *p, struct weft_jnode ***list,
                   size_t *n, struct weft_jnode *node);
WEFT_NORETURN void weft_j_unexpected(struct weft_jparser *p,
                                     const char *wanted);
bool weft_j_is_op(const struct weft_jparser *p, int op);
bool weft_j_is_name(const struct weft_jparser *p, const char *name);
bool weft_j_skip_op(struct weft_jparser *p, int op);
bool weft_j_skip_name(struct weft_jparser *p, const char *name);
void weft_j_expect_op(struct weft_jparser *p, int op);
struct weft_str weft_j_expect_name(struct weft_jparser *p);

struct weft_jnode *weft_j_expression(struct weft_jparser *p);
/* a, b, c or one expression; ends before the name `end` (NULL: none). */
struct weft_jnode *weft_j_tuple(struct weft_jparser *p, bool with_condition,
                                const char *end);
struct weft_jnode *weft_j_target(struct weft_jparser *p, const char *end,
                                 bool with_attribute);
/* Filters behind node (NULL: in front of a block); `first` without '|'. */
struct weft_jnode *weft_j_filters(struct weft_jparser *p,
                                  struct weft_jnode *node, bool first);

/* ---- value.c ---------------------------------------------------------- */

struct weft_jvalue weft_j_none(void);
struct weft_jvalue weft_j_bool(bool truth);
struct weft_jvalue weft_j_int(int64_t i);
struct weft_jvalue weft_j_float(double f);
struct weft_jvalue weft_j_string(const char *s, size_t n);
struct weft_jvalue weft_j_text(struct weft_str text);
/* what: a text such as "'x'", printf format. */
struct weft_jvalue weft_j_undefined(struct weft_jstate *st, const char *fmt,
                                    ...) WEFT_PRINTF(2, 3);
struct weft_jvalue weft_j_list(struct weft_jstate *st, enum weft_jkind kind);
void weft_j_push(struct weft_jstate *st, struct weft_jvalue list,
                 struct weft_jvalue item);
struct weft_jvalue weft_j_pair(struct weft_jstate *st, struct weft_jvalue a,
                               struct weft_jvalue b); /* a TUPLE */
struct weft_jvalue weft_j_dict(struct weft_jstate *st, enum weft_jkind kind);
void weft_j_put(struct weft_jstate *st, struct weft_jvalue dict,
                struct weft_jvalue key, struct weft_jvalue value);
/* NULL: no such key. */
struct weft_jvalue *weft_j_find(struct weft_jstate *st,
                                struct weft_jvalue dict,
                                struct weft_jvalue key);
struct weft_jvalue weft_j_from_json(struct weft_jstate *st,
                                    const json_t *json);

bool weft_j_is(struct weft_str a, const char *b);
bool weft_j_same(struct weft_str a, struct weft_str b);
bool weft_j_is_string(struct weft_jvalue v); /* also MARKUP */
bool weft_j_is_number(struct weft_jvalue v); /* also BOOL */
bool weft_j_is_int(struct weft_jvalue v);    /* INT or BOOL */
int64_t weft_j_as_int(struct weft_jvalue v); /* of those */
double weft_j_as_float(struct weft_jvalue v);
/* For messages: "a string", "a list". */
const char *weft_j_type(struct weft_jvalue v);
bool weft_j_truth(struct weft_jvalue v);
bool weft_j_equal(struct weft_jstate *st, struct weft_jvalue a,
                  struct weft_jvalue b);
/* < 0, 0, > 0; fails on kinds that have no order. */
int weft_j_compare(struct weft_jstate *st, struct weft_jvalue a,
                   struct weft_jvalue b, const char *op);
/* The items that a for would walk; a generator is empty afterwards. */
struct weft_jlist weft_j_items(struct weft_jstate *st, struct weft_jvalue v);
bool weft_j_is_iterable(struct weft_jvalue v);
/* Fails on values that have no length. */
size_t weft_j_length(struct weft_jstate *st, struct weft_jvalue v);

/* ---- text.c ----------------------------------------------------------- */

void weft_j_add(struct weft_jstate *st, struct weft_jout *out, const char *s,
                size_t n);
void weft_j_add_text(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_str text);
struct weft_jvalue weft_j_taken(const struct weft_jout *out); /* a STRING */
/* str(v) */
void weft_j_add_value(struct weft_jstate *st, struct weft_jout *out,
                      struct weft_jvalue v);
void weft_j_add_repr(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v);
struct weft_str weft_j_str(struct weft_jstate *st, struct weft_jvalue v);

struct weft_jjson { /* json.dumps() */
    bool ascii, sort, indented;
    struct weft_str indent, item, key; /* item and key separators */
};
void weft_j_add_json(struct weft_jstate *st, struct weft_jout *out,
                     struct weft_jvalue v, const struct weft_jjson *how);

/* Characters of text that is UTF-8. */
size_t weft_j_chars(struct weft_str s);
size_t weft_j_char_offset(struct weft_str s, size_t i); /* bytes before i */
bool weft_j_is_space(uint32_t c);                       /* str.isspace() */
/* Bytes of white space at the beginning. */
size_t weft_j_space(const char *s, size_t n);
/* chars NULL: white space. left, right: which ends. */
struct weft_str weft_j_strip(struct weft_str s, const struct weft_str *chars,
                             bool left, bool right);
/* First place of b in a[from..], or SIZE_MAX. */
size_t weft_j_search(struct weft_str a, struct weft_str b, size_t from);
struct weft_jvalue weft_j_replace(struct weft_jstate *st, struct weft_str s,
                                  struct weft_str old, struct weft_str new,
                                  int64_t count);
enum weft_jcase {
    WEFT_JCASE_LOWER,
    WEFT_JCASE_UPPER,
    WEFT_JCASE_CAPITAL, /* the first character upper, the rest lower */
    WEFT_JCASE_TITLE,   /* str.title() */
    WEFT_JCASE_WORDS    /* Jinja's |title */
};
struct weft_jvalue weft_j_case(struct weft_jstate *st, struct weft_str s,
                               enum weft_jcase to);

/* ---- Evaluating ------------------------------------------------------- */

struct weft_jargs {
    struct weft_jvalue *item; /* (n) by place */
    size_t n;
    struct weft_jvalue named; /* a DICT */
};

/* The argument `name`, or at place i; NULL when it was not given. */
const struct weft_jvalue *weft_j_arg(struct weft_jstate *st,
                                     const struct weft_jargs *args, size_t i,
                                     const char *name);
/* Refuses fewer arguments than `least` or more than `most`, and names that are
 * not in `names` (one text: "d attribute"). kind and what stand in messages:
 * "filter", "join". */
void weft_j_check_args(struct weft_jstate *st, const struct weft_jargs *args,
                       size_t least, size_t most, const char *names,
                       const char *kind, struct weft_str what);
/* An argument of a kind, or what stands for it when it was not given; one of
 * another kind fails. */
struct weft_str weft_j_arg_text(struct weft_jstate *st,
                                const struct weft_jargs *args, size_t i,
                                const char *name, const char *fallback);
int64_t weft_j_arg_int(struct weft_jstate *st, const struct weft_jargs *args,
                       size_t i, const char *name, int64_t fallback);
bool weft_j_arg_bool(struct weft_jstate *st, const struct weft_jargs *args,
                     size_t i, const char *name, bool fallback);

enum weft_jflow { WEFT_JFLOW_ON, WEFT_JFLOW_BREAK, WEFT_JFLOW_CONTINUE };

/* The text that statements print. */
struct weft_jvalue weft_j_run_text(struct weft_jstate *st,
                                   struct weft_jscope *scope,
                                   struct weft_jnode *const *node, size_t n);
/* A `for` over items; depth: of a recursive one. */
void weft_j_run_for(struct weft_jstate *st, struct weft_jscope *scope,
                    const struct weft_jnode *node, struct weft_jvalue items,
                    int depth);
struct weft_jscope *weft_j_scope(struct weft_jstate *st,
                                 struct weft_jscope *up);
void weft_j_set(struct weft_jstate *st, struct weft_jscope *scope,
                struct weft_str name, struct weft_jvalue value);

struct weft_jvalue weft_j_eval(struct weft_jstate *st,
                               struct weft_jscope *scope,
                               const struct weft_jnode *node);
struct weft_jargs weft_j_eval_args(struct weft_jstate *st,
                                   struct weft_jscope *scope,
                                   struct weft_jnode *const *node, size_t n);
struct weft_jvalue weft_j_attr(struct weft_jstate *st, struct weft_jvalue v,
                               struct weft_str name);
struct weft_jvalue weft_j_item(struct weft_jstate *st, struct weft_jvalue v,
                               struct weft_jvalue key);
struct weft_jvalue weft_j_binary(struct weft_jstate *st, int op,
                                 struct weft_jvalue a, struct weft_jvalue b);
/* A string in HTML, marked as such. */
struct weft_jvalue weft_j_escape(struct weft_jstate *st,
                                 struct weft_jvalue v);
bool weft_j_contains(struct weft_jstate *st, struct weft_jvalue all,
                     struct weft_jvalue item);
struct weft_jvalue weft_j_percent(struct weft_jstate *st,
                                  struct weft_str format,
                                  const struct weft_jvalue *item, size_t n);

struct weft_jvalue weft_j_call(struct weft_jstate *st, struct weft_jvalue f,
                               const struct weft_jargs *args);
struct weft_jvalue weft_j_call_method(struct weft_jstate *st,
                                      struct weft_jvalue self,
                                      struct weft_str name,
                                      const struct weft_jargs *args);
/* The name is a method of such values. */
bool weft_j_has_method(struct weft_jvalue self, struct weft_str name);
bool weft_j_is_function(struct weft_str name);

struct weft_jvalue weft_j_filter(struct weft_jstate *st, struct weft_str name,
                                 struct weft_jvalue v,
                                 const struct weft_jargs *args);
/* A value and the filter that it goes through. */
struct weft_jfilter_call {
    struct weft_str name;
    struct weft_jvalue v;
    const struct weft_jargs *args;
};
struct weft_jfilter {
    const char *name;
    size_t least, most; /* arguments */
    const char *names;  /* of the arguments; NULL: the filter checks them */
    struct weft_jvalue (*call)(struct weft_jstate *st,
                               const struct weft_jfilter_call *call);
};
/* Those of lists; the last has no name. */
extern const struct weft_jfilter weft_j_list_filters[];
bool weft_j_test(struct weft_jstate *st, struct weft_str name,
                 struct weft_jvalue v, const struct weft_jargs *args);
bool weft_j_is_filter(struct weft_str name);

#endif
