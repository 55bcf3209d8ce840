/* SPDX-License-Identifier: Apache-2.0 */
#include "base/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"

/* The root node comes first and owns the document's name. */
struct document {
    struct weft_yaml root;
    char *name;
};

struct reader {
    yaml_parser_t parser;
    const char *name;
    struct weft_err *err;
};

static int fail(const struct reader *r, const yaml_mark_t *at,
                const char *what)
{
    return weft_err_set(r->err, WEFT_EFORMAT, "%s:%zu: %s", r->name,
                        at->line + 1, what);
}

static int nomem(const struct reader *r)
{
    return weft_err_nomem(r->err, r->name, sizeof(struct weft_yaml));
}

static int fail_parser(const struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return nomem(r);
    if (p->error == YAML_READER_ERROR)
        return weft_err_set(r->err, WEFT_EFORMAT, "%s: byte %zu: %s", r->name,
                            p->problem_offset,
                            p->problem ? p->problem : "not UTF-8");
    return weft_err_set(r->err, WEFT_EFORMAT, "%s:%zu:%zu: not YAML: %s%s%s",
                        r->name, p->problem_mark.line + 1,
                        p->problem_mark.column + 1,
                        p->problem ? p->problem : "cannot be read",
                        p->context ? " " : "", p->context ? p->context : "");
}

static int next(struct reader *r, yaml_event_t *event)
{
    return yaml_parser_parse(&r->parser, event) ? 0 : fail_parser(r);
}

static void release(struct weft_yaml *node)
{
    for (size_t i = 0; i < node->n; i++) {
        if (node->child[i])
            release(node->child[i]);
        weft_free(node->child[i]);
        if (node->key)
            weft_free(node->key[i]);
    }
    weft_free(node->child);
    weft_free(node->key);
    weft_free(node->text);
}

/* Refuses what no node may have: anchors, aliases and tags. */
static int check_event(const struct reader *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return fail(r, &e->start_mark,
                    "aliases are not supported; write the value out");
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        break;
    default:
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (anchor)
        return fail(r, &e->start_mark,
                    "anchors are not supported; write the value out");
    if (tag)
        return fail(r, &e->start_mark,
                    "tags are not supported; write the plain value");
    return 0;
}

static int fill(struct reader *r, const yaml_event_t *event, int depth,
                struct weft_yaml *out);

/* Makes room for one more child; n counts it only once it is filled. */
static int grow(const struct reader *r, struct weft_yaml *node)
{
    /* the room grows to 2, 6, 14, 30, ... */
    if (((node->n + 2) & (node->n + 1)) != 0)
        return 0;
    size_t room = 2 * node->n + 2;
    void *child = weft_realloc(node->child, room, sizeof *node->child);
    if (!child)
        return nomem(r);
    node->child = child;
    if (node->type == WEFT_YAML_MAP) {
        void *key = weft_realloc(node->key, room, sizeof *node->key);
        if (!key)
            return nomem(r);
        node->key = key;
    }
    return 0;
}

static int fill_key(struct reader *r, const yaml_event_t *e,
                    struct weft_yaml *map)
{
    const yaml_mark_t *at = &e->start_mark;
    if (e->type != YAML_SCALAR_EVENT)
        return fail(r, at, "a key must be a word, not a list or a map");
    int rc = check_event(r, e);
    if (rc)
        return rc;
    const char *key = (const char *) e->data.scalar.value;
    if (strlen(key) != e->data.scalar.length)
        return fail(r, at, "a key must not hold a zero byte");
    if (map->n == WEFT_YAML_MAX_KEYS)
        return fail(r, at, "a map has too many keys");
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) == 0)
            return weft_err_set(r->err, WEFT_EFORMAT,
                                "%s:%zu: key '%.80s' is given twice, first "
                                "in line %d",
                                r->name, at->line + 1, key,
                                map->child[i]->line);
    map->key[map->n] = weft_strdup(key);
    return map->key[map->n] ? 0 : nomem(r);
}

/* Reads children up to the end event of the list or map. */
static int fill_children(struct reader *r, int depth, struct weft_yaml *node)
{
    bool map = node->type == WEFT_YAML_MAP;
    for (;;) {
        yaml_event_t e;
        int rc = next(r, &e);
        if (rc)
            return rc;
        if (e.type == YAML_MAPPING_END_EVENT
            || e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return 0;
        }
        rc = grow(r, node);
        if (!rc && map) {
            rc = fill_key(r, &e, node);
            yaml_event_delete(&e);
            if (rc)
                return rc;
            rc = next(r, &e);
            if (rc) {
                weft_free(node->key[node->n]);
                return rc;
            }
        }
        if (!rc) {
            struct weft_yaml *child = weft_alloc(1, sizeof *child);
            node->child[node->n++] = child;
            rc = child ? fill(r, &e, depth + 1, child) : nomem(r);
        }
        yaml_event_delete(&e);
        if (rc)
            return rc;
    }
}

static int fill(struct reader *r, const yaml_event_t *e, int depth,
                struct weft_yaml *out)
{
    int rc = check_event(r, e);
    if (rc)
        return rc;
    out->line = (int) e->start_mark.line + 1;
    out->column = (int) e->start_mark.column + 1;
    out->name = r->name;
    if (depth > WEFT_YAML_MAX_DEPTH)
        return fail(r, &e->start_mark, "nested too deeply");
    if (e->type == YAML_SCALAR_EVENT) {
        const char *text = (const char *) e->data.scalar.value;
        out->type = WEFT_YAML_SCALAR;
        out->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        if (strlen(text) != e->data.scalar.length)
            return fail(r, &e->start_mark,
                        "a value must not hold a zero byte");
        out->text = weft_strdup(text);
        return out->text ? 0 : nomem(r);
    }
    out->type = e->type == YAML_MAPPING_START_EVENT ? WEFT_YAML_MAP
                                                    : WEFT_YAML_LIST;
    return fill_children(r, depth, out);
}

/* Reads STREAM-START [DOCUMENT-START node DOCUMENT-END] STREAM-END. */
static int fill_document(struct reader *r, struct weft_yaml *root)
{
    yaml_event_t e;
    int rc = next(r, &e);
    if (rc)
        return rc;
    yaml_event_delete(&e);
    rc = next(r, &e);
    if (rc)
        return rc;
    bool empty = e.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&e);
    if (empty) {
        root->type = WEFT_YAML_MAP;
        root->line = root->column = 1;
        root->name = r->name;
        return 0;
    }
    rc = next(r, &e);
    if (rc)
        return rc;
    rc = fill(r, &e, 1, root);
    yaml_event_delete(&e);
    for (int i = 0; i < 2 && !rc;
         i++) { /* the document's end, the stream's */
        rc = next(r, &e);
        if (rc)
            return rc;
        if (e.type == YAML_DOCUMENT_START_EVENT)
            rc = fail(r, &e.start_mark,
                      "a second document begins here; only one is read");
        yaml_event_delete(&e);
    }
    return rc;
}

int weft_yaml_parse(const char *text, size_t n, const char *name,
                    struct weft_yaml **out, struct weft_err *err)
{
    struct reader r = {.err = err, .name = name};
    struct document *d = weft_alloc(1, sizeof *d);
    if (!d)
        return nomem(&r);
    d->name = weft_strdup(name);
    if (!d->name || !yaml_parser_initialize(&r.parser)) {
        weft_free(d->name);
        weft_free(d);
        return nomem(&r);
    }
    r.name = d->name;
    yaml_parser_set_input_string(&r.parser, (const unsigned char *) text, n);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    int rc = fill_document(&r, &d->root);
    yaml_parser_delete(&r.parser);
    if (rc)
        weft_yaml_free(&d->root);
    else
        *out = &d->root;
    return rc;
}

void weft_yaml_free(struct weft_yaml *root)
{
    if (!root)
        return;
    struct document *d = (struct document *) root;
    release(root);
    weft_free(d->name);
    weft_free(d);
}

const struct weft_yaml *weft_yaml_get(const struct weft_yaml *map,
                                      const char *key)
{
    if (!map || map->type != WEFT_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->key[i], key) == 0)
            return map->child[i];
    return NULL;
}

bool weft_yaml_is_null(const struct weft_yaml *node)
{
    if (node->type != WEFT_YAML_SCALAR || node->quoted)
        return false;
    return strcmp(node->text, "") == 0 || strcmp(node->text, "~") == 0
        || strcmp(node->text, "null") == 0 || strcmp(node->text, "Null") == 0
        || strcmp(node->text, "NULL") == 0;
}

/* ---- Typed values ----------------------------------------------------- */

int weft_yaml_err(const struct weft_yaml *node, struct weft_err *err,
                  int code, const char *fmt, ...)
{
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (node->line == 0) /* a word of the command line, not of a document */
        return weft_err_set(err, code, "%s: %s", node->name, text);
    return weft_err_set(err, code, "%s:%d: %s", node->name, node->line, text);
}

const char *weft_yaml_what(const struct weft_yaml *node, char out[64])
{
    if (node->type == WEFT_YAML_MAP)
        return "a map";
    if (node->type == WEFT_YAML_LIST)
        return "a list";
    if (weft_yaml_is_null(node))
        return "nothing";
    snprintf(out, 64, "'%.56s'%s", node->text,
             strlen(node->text) > 56 ? "..." : "");
    return out;
}

static int wrong(const struct weft_yaml *node, const char *key,
                 const char *wanted, struct weft_err *err)
{
    char what[64];
    return weft_yaml_err(node, err, WEFT_EINVAL, "'%s' must be %s, not %s",
                         key, wanted, weft_yaml_what(node, what));
}

/* Whether the text is decimal digits with a sign, a point and an exponent.
 * strtod() would also take blanks, hexadecimal, "inf" and "nan". */
static bool looks_like_number(const struct weft_yaml *node, bool whole)
{
    if (node->type != WEFT_YAML_SCALAR || node->quoted || !*node->text)
        return false;
    bool digit = false;
    for (const char *p = node->text; *p; p++) {
        if (*p >= '0' && *p <= '9')
            digit = true;
        else if (*p == '+' || *p == '-') {
            if (p != node->text && (whole || (p[-1] | 0x20) != 'e'))
                return false;
        } else if (whole || (*p != '.' && (*p | 0x20) != 'e'))
            return false;
    }
    return digit;
}

int weft_yaml_int(const struct weft_yaml *node, const char *key, int64_t *out,
                  struct weft_err *err)
{
    if (!looks_like_number(node, true))
        return wrong(node, key, "a whole number", err);
    errno = 0;
    char *end;
    long long v = strtoll(node->text, &end, 10);
    if (*end || errno != 0)
        return wrong(node, key, "a whole number of 64 bits", err);
    *out = v;
    return 0;
}

int weft_yaml_double(const struct weft_yaml *node, const char *key,
                     double *out, struct weft_err *err)
{
    if (!looks_like_number(node, false))
        return wrong(node, key, "a number", err);
    char *end;
    double v = strtod(node->text, &end);
    if (*end || !isfinite(v))
        return wrong(node, key, "a finite number", err);
    *out = v;
    return 0;
}

int weft_yaml_bool(const struct weft_yaml *node, const char *key, bool *out,
                   struct weft_err *err)
{
    static const char *const word[] = {"false", "False", "FALSE",
                                       "true",  "True",  "TRUE"};
    if (node->type == WEFT_YAML_SCALAR && !node->quoted)
        for (size_t i = 0; i < WEFT_COUNT(word); i++)
            if (strcmp(node->text, word[i]) == 0) {
                *out = i >= 3;
                return 0;
            }
    return wrong(node, key, "true or false", err);
}

int weft_yaml_string(const struct weft_yaml *node, const char *key,
                     const char **out, struct weft_err *err)
{
    if (node->type != WEFT_YAML_SCALAR || weft_yaml_is_null(node))
        return wrong(node, key, "a text", err);
    *out = node->text;
    return 0;
}
