/* SPDX-License-Identifier: Apache-2.0 */
/* Values, the memory they are in, and how they compare. As in Python. */
#include "text/jinja/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* ---- Memory, limits, failures ----------------------------------------- */

struct weft_jchunk {
    struct weft_jchunk *next;
    size_t used, size;
    _Alignas(max_align_t) char data[];
};

void weft_j_fail(struct weft_jstate *st, int code, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *s = text; *s; s++) /* one line that can be printed */
        if ((unsigned char) *s < ' ' || *s == 127)
            *s = ' ';
    st->rc = weft_err_set(st->err, code, "%s:%d: %s", st->name, st->line,
                          text);
    longjmp(st->escape, 1);
}

void *weft_j_alloc(struct weft_jstate *st, size_t n, size_t size)
{
    enum { CHUNK = 1 << 14 };
    struct weft_jchunk *chunk = st->chunk;
    if (n > st->limits.memory_bytes / size)
        goto too_much;
    size_t bytes = (n * size + sizeof(max_align_t) - 1) / sizeof(max_align_t)
                 * sizeof(max_align_t);
    if (!chunk || bytes > chunk->size - chunk->used) {
        /* Small at first, so that a short text costs little. */
        size_t wanted = st->used_bytes / 4 < CHUNK ? CHUNK
                                                   : st->used_bytes / 4;
        wanted = wanted < bytes ? bytes : wanted;
        if (wanted > st->limits.memory_bytes - st->used_bytes)
            wanted = bytes;
        if (wanted > st->limits.memory_bytes - st->used_bytes)
            goto too_much;
        chunk = weft_alloc(1, sizeof *chunk + wanted);
        if (!chunk)
            weft_j_fail(st, WEFT_ENOMEM, "memory ran out");
        chunk->next = st->chunk;
        chunk->size = wanted;
        chunk->used = 0;
        st->chunk = chunk;
        st->used_bytes += wanted;
    }
    void *data = chunk->data + chunk->used;
    chunk->used += bytes;
    return memset(data, 0, bytes);
too_much:
    weft_j_fail(st, WEFT_EINVAL,
                "the template needs more than %zu bytes of memory, its "
                "limit",
                st->limits.memory_bytes);
}

void weft_j_release(struct weft_jstate *st)
{
    while (st->chunk) {
        struct weft_jchunk *next = st->chunk->next;
        weft_free(st->chunk);
        st->chunk = next;
    }
}

void weft_j_step(struct weft_jstate *st, size_t n)
{
    st->steps += n;
    if (st->steps > st->limits.steps)
        weft_j_fail(st, WEFT_EINVAL,
                    "the template takes more than %llu steps, its limit",
                    (unsigned long long) st->limits.steps);
}

void weft_j_enter(struct weft_jstate *st)
{
    if (++st->nesting > st->limits.nesting)
        weft_j_fail(st, WEFT_EINVAL,
                    "statements, expressions or calls are nested deeper than "
                    "%d, the limit",
                    st->limits.nesting);
    weft_j_step(st, 1);
}

void weft_j_leave(struct weft_jstate *st)
{
    st->nesting--;
}

/* ---- Making ----------------------------------------------------------- */

struct weft_jvalue weft_j_none(void)
{
    return (struct weft_jvalue){.kind = WEFT_J_NONE};
}

struct weft_jvalue weft_j_bool(bool truth)
{
    return (struct weft_jvalue){.kind = WEFT_J_BOOL, .truth = truth};
}

struct weft_jvalue weft_j_int(int64_t i)
{
    return (struct weft_jvalue){.kind = WEFT_J_INT, .i = i};
}

struct weft_jvalue weft_j_float(double f)
{
    return (struct weft_jvalue){.kind = WEFT_J_FLOAT, .f = f};
}

struct weft_jvalue weft_j_string(const char *s, size_t n)
{
    return (struct weft_jvalue){.kind = WEFT_J_STRING, .text = {s, n}};
}

struct weft_jvalue weft_j_text(struct weft_str text)
{
    return weft_j_string(text.s, text.n);
}

struct weft_jvalue weft_j_undefined(struct weft_jstate *st, const char *fmt,
                                    ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = strlen(text);
    char *copy = memcpy(weft_j_alloc(st, n + 1, 1), text, n);
    return (struct weft_jvalue){.kind = WEFT_J_UNDEFINED, .text = {copy, n}};
}

struct weft_jvalue weft_j_list(struct weft_jstate *st, enum weft_jkind kind)
{
    struct weft_jlist *list = weft_j_alloc(st, 1, sizeof *list);
    return (struct weft_jvalue){.kind = kind, .list = list};
}

void weft_j_push(struct weft_jstate *st, struct weft_jvalue value,
                 struct weft_jvalue item)
{
    struct weft_jlist *list = value.list;
    if (list->n == list->capacity) {
        size_t capacity = 2 * list->capacity + 4;
        struct weft_jvalue *more = weft_j_alloc(st, capacity, sizeof *more);
        if (list->n > 0)
            memcpy(more, list->item, list->n * sizeof *more);
        list->item = more;
        list->capacity = capacity;
    }
    weft_j_step(st, 1);
    list->item[list->n++] = item;
}

struct weft_jvalue weft_j_pair(struct weft_jstate *st, struct weft_jvalue a,
                               struct weft_jvalue b)
{
    struct weft_jvalue pair = weft_j_list(st, WEFT_J_TUPLE);
    weft_j_push(st, pair, a);
    weft_j_push(st, pair, b);
    return pair;
}

struct weft_jvalue weft_j_dict(struct weft_jstate *st, enum weft_jkind kind)
{
    struct weft_jdict *dict = weft_j_alloc(st, 1, sizeof *dict);
    return (struct weft_jvalue){.kind = kind, .dict = dict};
}

static void check_key(struct weft_jstate *st, struct weft_jvalue key)
{
    if (key.kind == WEFT_J_LIST || key.kind == WEFT_J_DICT)
        weft_j_fail(st, WEFT_EINVAL, "%s cannot be the key of a mapping",
                    weft_j_type(key));
}

struct weft_jvalue *weft_j_find(struct weft_jstate *st,
                                struct weft_jvalue dict,
                                struct weft_jvalue key)
{
    struct weft_jdict *d = dict.dict;
    check_key(st, key);
    weft_j_step(st, d->n / 8);
    for (size_t i = 0; i < d->n; i++)
        if (weft_j_equal(st, d->pair[i].key, key))
            return &d->pair[i].value;
    return NULL;
}

void weft_j_put(struct weft_jstate *st, struct weft_jvalue dict,
                struct weft_jvalue key, struct weft_jvalue value)
{
    struct weft_jdict *d = dict.dict;
    struct weft_jvalue *old = weft_j_find(st, dict, key);
    if (old) {
        *old = value;
        return;
    }
    if (d->n == d->capacity) {
        size_t capacity = 2 * d->capacity + 4;
        struct weft_jpair *more = weft_j_alloc(st, capacity, sizeof *more);
        if (d->n > 0)
            memcpy(more, d->pair, d->n * sizeof *more);
        d->pair = more;
        d->capacity = capacity;
    }
    d->pair[d->n++] = (struct weft_jpair){key, value};
}

static struct weft_jvalue json_dict(struct weft_jstate *st,
                                    const json_t *json)
{
    struct weft_jvalue out = weft_j_dict(st, WEFT_J_DICT);
    size_t n = json_object_size(json);
    const char *key;
    json_t *value;
    out.dict->pair = weft_j_alloc(st, n + 1, sizeof(struct weft_jpair));
    out.dict->capacity = n + 1;
    json_object_foreach((json_t *) (uintptr_t) json, key, value)
    {
        /* The names of one object differ. */
        out.dict->pair[out.dict->n++] = (struct weft_jpair){
            weft_j_string(key, strlen(key)), weft_j_from_json(st, value)};
    }
    return out;
}

struct weft_jvalue weft_j_from_json(struct weft_jstate *st,
                                    const json_t *json)
{
    struct weft_jvalue out = weft_j_none();
    json_t *item;
    size_t i;
    weft_j_enter(st);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        out = json_dict(st, json);
        break;
    case JSON_ARRAY:
        out = weft_j_list(st, WEFT_J_LIST);
        json_array_foreach(json, i, item)
            weft_j_push(st, out, weft_j_from_json(st, item));
        break;
    case JSON_STRING:
        out = weft_j_string(json_string_value(json),
                            json_string_length(json));
        break;
    case JSON_INTEGER:
        out = weft_j_int(json_integer_value(json));
        break;
    case JSON_REAL:
        out = weft_j_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        out = weft_j_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    weft_j_leave(st);
    return out;
}

/* ---- Asking ----------------------------------------------------------- */

bool weft_j_is(struct weft_str a, const char *b)
{
    return strlen(b) == a.n && memcmp(a.s, b, a.n) == 0;
}

bool weft_j_same(struct weft_str a, struct weft_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool weft_j_is_string(struct weft_jvalue v)
{
    return v.kind == WEFT_J_STRING || v.kind == WEFT_J_MARKUP;
}

bool weft_j_is_int(struct weft_jvalue v)
{
    return v.kind == WEFT_J_INT || v.kind == WEFT_J_BOOL;
}

bool weft_j_is_number(struct weft_jvalue v)
{
    return weft_j_is_int(v) || v.kind == WEFT_J_FLOAT;
}

int64_t weft_j_as_int(struct weft_jvalue v)
{
    return v.kind == WEFT_J_BOOL ? v.truth : v.i;
}

double weft_j_as_float(struct weft_jvalue v)
{
    return v.kind == WEFT_J_FLOAT ? v.f : (double) weft_j_as_int(v);
}

const char *weft_j_type(struct weft_jvalue v)
{
    static const char *const names[] = {
        [WEFT_J_UNDEFINED] = "an undefined value",
        [WEFT_J_NONE] = "none",
        [WEFT_J_BOOL] = "a boolean",
        [WEFT_J_INT] = "an integer",
        [WEFT_J_FLOAT] = "a float",
        [WEFT_J_STRING] = "a string",
        [WEFT_J_MARKUP] = "a string marked as safe",
        [WEFT_J_LIST] = "a list",
        [WEFT_J_TUPLE] = "a tuple",
        [WEFT_J_RANGE] = "a range",
        [WEFT_J_VIEW] = "a view of a mapping",
        [WEFT_J_GENERATOR] = "a generator",
        [WEFT_J_DICT] = "a mapping",
        [WEFT_J_NAMESPACE] = "a namespace",
        [WEFT_J_LOOP] = "a loop",
        [WEFT_J_MACRO] = "a macro",
        [WEFT_J_FUNCTION] = "a function",
        [WEFT_J_METHOD] = "a method"};
    return names[v.kind];
}

bool weft_j_truth(struct weft_jvalue v)
{
    switch (v.kind) {
    case WEFT_J_UNDEFINED:
    case WEFT_J_NONE:
        return false;
    case WEFT_J_BOOL:
        return v.truth;
    case WEFT_J_INT:
        return v.i != 0;
    case WEFT_J_FLOAT:
        return v.f != 0;
    case WEFT_J_STRING:
    case WEFT_J_MARKUP:
        return v.text.n > 0;
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
    case WEFT_J_RANGE:
    case WEFT_J_VIEW:
        return v.list->n > 0;
    case WEFT_J_DICT:
        return v.dict->n > 0;
    default: /* also generators, whatever they give */
        return true;
    }
}

static bool equal_lists(struct weft_jstate *st, const struct weft_jlist *a,
                        const struct weft_jlist *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!weft_j_equal(st, a->item[i], b->item[i]))
            return false;
    return true;
}

static bool equal_dicts(struct weft_jstate *st, struct weft_jvalue a,
                        struct weft_jvalue b)
{
    if (a.dict->n != b.dict->n)
        return false;
    for (size_t i = 0; i < a.dict->n; i++) {
        struct weft_jvalue *other = weft_j_find(st, b, a.dict->pair[i].key);
        if (!other || !weft_j_equal(st, a.dict->pair[i].value, *other))
            return false;
    }
    return true;
}

bool weft_j_equal(struct weft_jstate *st, struct weft_jvalue a,
                  struct weft_jvalue b)
{
    bool equal = false;
    if (weft_j_is_string(a) && weft_j_is_string(b))
        return weft_j_same(a.text, b.text);
    if (weft_j_is_int(a) && weft_j_is_int(b))
        return weft_j_as_int(a) == weft_j_as_int(b);
    if (weft_j_is_number(a) && weft_j_is_number(b))
        return weft_j_as_float(a) == weft_j_as_float(b);
    if (a.kind != b.kind)
        return false;
    weft_j_enter(st);
    switch (a.kind) {
    case WEFT_J_UNDEFINED:
    case WEFT_J_NONE:
        equal = true;
        break;
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
    case WEFT_J_RANGE:
        equal = equal_lists(st, a.list, b.list);
        break;
    case WEFT_J_DICT:
        equal = equal_dicts(st, a, b);
        break;
    case WEFT_J_VIEW:
    case WEFT_J_FUNCTION:
    case WEFT_J_METHOD:
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft does not compare %s",
                    weft_j_type(a));
    default: /* the same object */
        equal = a.list == b.list;
    }
    weft_j_leave(st);
    return equal;
}

static int sign(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_texts(struct weft_str a, struct weft_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.s, b.s, n) : 0; /* UTF-8 sorts as its codes */
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

int weft_j_compare(struct weft_jstate *st, struct weft_jvalue a,
                   struct weft_jvalue b, const char *op)
{
    if (weft_j_is_int(a) && weft_j_is_int(b))
        return (weft_j_as_int(a) > weft_j_as_int(b))
             - (weft_j_as_int(a) < weft_j_as_int(b));
    if (weft_j_is_number(a) && weft_j_is_number(b))
        return sign(weft_j_as_float(a), weft_j_as_float(b));
    if (weft_j_is_string(a) && weft_j_is_string(b))
        return compare_texts(a.text, b.text);
    if (a.kind != b.kind || (a.kind != WEFT_J_LIST && a.kind != WEFT_J_TUPLE))
        weft_j_fail(st, WEFT_EINVAL, "'%s' has no meaning between %s and %s",
                    op, weft_j_type(a), weft_j_type(b));
    weft_j_enter(st);
    int order = 0;
    size_t n = a.list->n < b.list->n ? a.list->n : b.list->n, i = 0;
    while (i < n && weft_j_equal(st, a.list->item[i], b.list->item[i]))
        i++;
    if (i < n)
        order = weft_j_compare(st, a.list->item[i], b.list->item[i], op);
    else
        order = (a.list->n > b.list->n) - (a.list->n < b.list->n);
    weft_j_leave(st);
    return order;
}

/* ---- Walking ---------------------------------------------------------- */

bool weft_j_is_iterable(struct weft_jvalue v)
{
    switch (v.kind) {
    case WEFT_J_UNDEFINED:
    case WEFT_J_STRING:
    case WEFT_J_MARKUP:
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
    case WEFT_J_RANGE:
    case WEFT_J_VIEW:
    case WEFT_J_GENERATOR:
    case WEFT_J_DICT:
        return true;
    default:
        return false;
    }
}

struct weft_jlist weft_j_items(struct weft_jstate *st, struct weft_jvalue v)
{
    struct weft_jvalue out;
    if (!weft_j_is_iterable(v) && v.kind == WEFT_J_LOOP)
        weft_j_fail(st, WEFT_EUNSUPPORTED, "Weft does not walk a loop");
    if (!weft_j_is_iterable(v))
        weft_j_fail(st, WEFT_EINVAL, "%s cannot be walked", weft_j_type(v));
    switch (v.kind) {
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
    case WEFT_J_RANGE:
    case WEFT_J_VIEW:
        return *v.list;
    case WEFT_J_GENERATOR:
        if (v.list->walked)
            return (struct weft_jlist){0};
        v.list->walked = true;
        return *v.list;
    default:
        break;
    }
    out = weft_j_list(st, WEFT_J_LIST);
    if (v.kind == WEFT_J_DICT)
        for (size_t i = 0; i < v.dict->n; i++)
            weft_j_push(st, out, v.dict->pair[i].key);
    if (weft_j_is_string(v))
        for (size_t i = 0, n; i < v.text.n; i += n) {
            struct weft_str rest = {v.text.s + i, v.text.n - i};
            n = weft_j_char_offset(rest, 1);
            weft_j_push(st, out, weft_j_string(rest.s, n));
        }
    return *out.list;
}

size_t weft_j_length(struct weft_jstate *st, struct weft_jvalue v)
{
    switch (v.kind) {
    case WEFT_J_UNDEFINED:
        return 0;
    case WEFT_J_STRING:
    case WEFT_J_MARKUP:
        return weft_j_chars(v.text);
    case WEFT_J_LIST:
    case WEFT_J_TUPLE:
    case WEFT_J_RANGE:
    case WEFT_J_VIEW:
        return v.list->n;
    case WEFT_J_DICT:
        return v.dict->n;
    case WEFT_J_LOOP:
        return v.loop->n;
    default:
        weft_j_fail(st, WEFT_EINVAL, "%s has no length", weft_j_type(v));
    }
}
