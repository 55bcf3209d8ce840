/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of Jinja that chat templates are written in.
 *
 * A template is parsed once and rendered on a context, a JSON object whose
 * keys are the template's variables. What it prints is what Jinja prints in
 * the environment that Transformers sets up for chat templates: blocks
 * trimmed and stripped (trim_blocks, lstrip_blocks), no HTML escaping, values
 * that cannot be changed but for namespaces, `break` and `continue`,
 * {% generation %} blocks, raise_exception(), strftime_now(), and tojson of
 * plain JSON. What cannot be done is refused with the template's name, the
 * line and the construct.
 *
 * A template is untrusted: rendering one is bounded in steps, in nesting and
 * in memory, and reads nothing but its context.
 */
#ifndef WEFT_TEXT_JINJA_JINJA_H
#define WEFT_TEXT_JINJA_JINJA_H

#include <jansson.h>

#include "base/str.h"

struct weft_jinja;

/* A day, for strftime_now(); the time of day is midnight. */
struct weft_date {
    int year, month, day; /* 1..9999, 1..12, 1..31 */
};

/* 0: the default. */
struct weft_jinja_limits {
    uint64_t steps;      /* nodes evaluated and items visited: 20 million */
    size_t memory_bytes; /* all values of a rendering: 512 MiB */
    int nesting;         /* statements and expressions in one another: 500 */
};

/* The parts of a text that {% generation %} blocks have printed. As in
 * Transformers, what one prints in a macro or in a `set` block counts as if it
 * stood where the text ended then. */
struct weft_jinja_marks {
    struct weft_jinja_mark {
        size_t start, end; /* bytes */
    } * mark;
    size_t n;
};

/* Reads "YYYY-MM-DD". Errors: WEFT_EINVAL. */
int weft_date_read(const char *text, struct weft_date *out,
                   struct weft_err *err);

/* Parses n bytes; `name` (a file, for messages) is copied. Free with
 * weft_jinja_free(). Errors: WEFT_EFORMAT (not Jinja), WEFT_EUNSUPPORTED (a
 * statement that Weft does not run), WEFT_ENOMEM. */
int weft_jinja_parse(const char *text, size_t n, const char *name,
                     struct weft_jinja **out, struct weft_err *err);
void weft_jinja_free(struct weft_jinja *jinja); /* NULL is allowed */

/* Renders on `context`, an object. limits may be NULL, and marks_out if nobody
 * asks what is marked. The caller releases text_out, and frees marks_out->mark
 * with weft_free(). Threads may render one template at once. Errors:
 * WEFT_EINVAL (the template calls raise_exception(), uses a value in a way
 * that it does not allow, or exceeds a limit), WEFT_EUNSUPPORTED (a construct
 * that Weft does not run), WEFT_ENOMEM. */
int weft_jinja_render(const struct weft_jinja *jinja, const json_t *context,
                      const struct weft_date *date,
                      const struct weft_jinja_limits *limits,
                      struct weft_str *text_out,
                      struct weft_jinja_marks *marks_out,
                      struct weft_err *err);

/* Whether the template has {% generation %} blocks. */
bool weft_jinja_has_marks(const struct weft_jinja *jinja);
/* The name that it was parsed with. Borrowed. */
const char *weft_jinja_name(const struct weft_jinja *jinja);

#endif
