/* SPDX-License-Identifier: Apache-2.0 */
#include "job/run_config.h"

#include <string.h>

#include "model/arch.h"
#include "text/chat.h"
#include "graphs/algorithms.h"

static int check_template(const struct weft_config *c, struct weft_err *err)
{
    const char *t = c->data.template;
    if (strcmp(t, "none") != 0 && strcmp(t, "auto") != 0
        && !weft_chat_is_name(t))
        return weft_err_set(err, WEFT_EINVAL,
                            "'data.template' must be auto, none, folder, "
                            "chatml, llama3, mistral, or a pattern that "
                            "holds {content}, not '%s'",
                            t);
    return 0;
}

static int check_date(const struct weft_config *c, struct weft_err *err)
{
    struct weft_date date;
    struct weft_err e = {0};
    if (weft_date_read(c->data.date, &date, &e))
        return weft_err_set(err, WEFT_EINVAL, "'data.date': %s", e.text);
    return 0;
}

static const struct weft_config_rule rules[] = {
    {"data.template", check_template}, {"data.date", check_date}, {0}};

const struct weft_config_schema weft_run_schema = {
    .algorithms = weft_algorithms, .rules = rules};

/* If the folder cannot be read, opening it later gives the error. */
static void derive_dtype(struct weft_config *c)
{
    struct weft_arch arch;
    if (c->numerics.default_dtype && c->role[0].folder
        && weft_arch_read(c->role[0].folder, &arch, NULL) == 0)
        c->numerics.dtype = arch.shape.dtype;
}

int weft_run_config_read(const char *path, int n_override,
                         const char *const *override, struct weft_config *out,
                         struct weft_err *err)
{
    int rc = weft_config_read(path, n_override, override, &weft_run_schema,
                              out, err);
    if (!rc)
        derive_dtype(out);
    return rc;
}
