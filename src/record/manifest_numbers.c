/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest's "numbers": state that only some runs have, by name. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "record/manifest_numbers.h"

static const char key[] = "numbers";

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
                        key, name);
}

void weft_manifest_numbers_write(const struct weft_manifest *m,
                                 struct weft_string *t)
{
    if (m->n_numbers == 0)
        return;
    weft_string_addf(t, ",\n \"%s\": {", key);
    for (size_t i = 0; i < m->n_numbers; i++) {
        weft_string_add(t, i > 0 ? ",\n  " : "\n  ");
        weft_string_add_json(t, m->number[i].name);
        weft_string_add(t, ": ");
        weft_string_add_number(t, m->number[i].value);
    }
    weft_string_add(t, "\n }");
}

int weft_manifest_numbers_read(const json_t *o, const char *subject,
                               struct weft_manifest *m, struct weft_err *err)
{
    char where[4096 + 32];
    json_t *all = NULL, *x;
    const char *name;
    int rc = weft_json_object_or(o, subject, key, &all, err);
    snprintf(where, sizeof where, "%.4096s: '%s'", subject, key);
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
