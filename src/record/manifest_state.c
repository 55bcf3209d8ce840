/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest's "roles", and "numbers": state that only some runs have, by
 * name. */
#include "record/manifest_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { WHERE_BYTES = 4096 + 160 };

static const char roles[] = "roles", numbers[] = "numbers";

/* ---- Roles ------------------------------------------------------------- */

int weft_manifest_add_role(struct weft_manifest *m, const char *name,
                           int64_t steps, int64_t blocks,
                           struct weft_err *err)
{
    struct weft_manifest_role *more = weft_realloc(m->role, m->n_roles + 1,
                                                   sizeof *more);
    if (!more)
        return weft_err_nomem(err, "a manifest", sizeof *more);
    m->role = more;
    more += m->n_roles++;
    *more = (struct weft_manifest_role){.steps = steps, .blocks = blocks};
    snprintf(more->name, sizeof more->name, "%s", name);
    return 0;
}

const struct weft_manifest_role *weft_manifest_role(
    const struct weft_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_roles; i++)
        if (strcmp(m->role[i].name, name) == 0)
            return &m->role[i];
    return NULL;
}

static void write_roles(const struct weft_manifest *m, struct weft_string *t)
{
    weft_string_addf(t, ",\n \"%s\": {", roles);
    for (size_t i = 0; i < m->n_roles; i++) {
        const struct weft_manifest_role *r = &m->role[i];
        weft_string_add(t, i > 0 ? ",\n  " : "\n  ");
        weft_string_add_json(t, r->name);
        weft_string_addf(
            t, ": {\"steps\": %" PRId64 ", \"blocks\": %" PRId64 "}",
            r->steps, r->blocks);
    }
    weft_string_add(t, "\n }");
}

static int read_role(const json_t *all, const char *list, const char *name,
                     struct weft_manifest *m, struct weft_err *err)
{
    static const char *const known[] = {"steps", "blocks"};
    char where[WHERE_BYTES];
    json_t *role;
    int64_t steps, blocks;
    int rc = weft_json_object(all, list, name, &role, err);
    snprintf(where, sizeof where, "%.4150s: '%.64s'", list, name);
    if (!rc)
        rc = weft_json_keys(role, where, known, WEFT_COUNT(known), err);
    if (!rc)
        rc = weft_json_int(role, where, "steps", 0, INT64_MAX, &steps, err);
    if (!rc)
        rc = weft_json_int(role, where, "blocks", 1, INT32_MAX, &blocks, err);
    return rc ? rc : weft_manifest_add_role(m, name, steps, blocks, err);
}

static int read_roles(const json_t *o, const char *subject,
                      struct weft_manifest *m, struct weft_err *err)
{
    char where[WHERE_BYTES];
    json_t *all, *role;
    const char *name;
    int rc = weft_json_object(o, subject, roles, &all, err);
    snprintf(where, sizeof where, "%.4096s: '%s'", subject, roles);
    if (rc)
        return rc;
    json_object_foreach(all, name, role)
    {
        rc = read_role(all, where, name, m, err);
        if (rc)
            break;
    }
    return rc;
}

/* ---- Numbers ----------------------------------------------------------- */

int weft_manifest_add_number(struct weft_manifest *m, const char *name,
                             double value, struct weft_err *err)
{
    struct weft_manifest_number *more = weft_realloc(
        m->number, m->n_numbers + 1, sizeof *more);
    if (!more)
        return weft_err_nomem(err, "a manifest", sizeof *more);
    m->number = more;
    more += m->n_numbers++;
    snprintf(more->name, sizeof more->name, "%s", name);
    more->value = value;
    return 0;
}

int weft_manifest_number(const struct weft_manifest *m, const char *name,
                         double *out, struct weft_err *err)
{
    for (size_t i = 0; i < m->n_numbers; i++)
        if (strcmp(m->number[i].name, name) == 0) {
            *out = m->number[i].value;
            return 0;
        }
    return weft_err_set(err, WEFT_EFORMAT,
                        "manifest.json: '%s' lacks '%s', which a checkpoint "
                        "of this run has",
                        numbers, name);
}

static void write_numbers(const struct weft_manifest *m,
                          struct weft_string *t)
{
    if (m->n_numbers == 0)
        return;
    weft_string_addf(t, ",\n \"%s\": {", numbers);
    for (size_t i = 0; i < m->n_numbers; i++) {
        weft_string_add(t, i > 0 ? ",\n  " : "\n  ");
        weft_string_add_json(t, m->number[i].name);
        weft_string_add(t, ": ");
        weft_string_add_number(t, m->number[i].value);
    }
    weft_string_add(t, "\n }");
}

static int read_numbers(const json_t *o, const char *subject,
                        struct weft_manifest *m, struct weft_err *err)
{
    char where[WHERE_BYTES];
    json_t *all = NULL, *x;
    const char *name;
    int rc = weft_json_object_or(o, subject, numbers, &all, err);
    snprintf(where, sizeof where, "%.4096s: '%s'", subject, numbers);
    if (rc || !all)
        return rc;
    json_object_foreach(all, name, x)
    {
        double value;
        rc = weft_json_double(all, where, name, &value, err);
        if (!rc)
            rc = weft_manifest_add_number(m, name, value, err);
        if (rc)
            break;
    }
    return rc;
}

/* ---- Both -------------------------------------------------------------- */

void weft_manifest_state_write(const struct weft_manifest *m,
                               struct weft_string *t)
{
    write_roles(m, t);
    write_numbers(m, t);
}

int weft_manifest_state_read(const json_t *o, const char *subject,
                             struct weft_manifest *m, struct weft_err *err)
{
    int rc = read_roles(o, subject, m, err);
    return rc ? rc : read_numbers(o, subject, m, err);
}
