/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja templates: any text is rendered on messages, within small limits. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

/* The names that the corpus uses. */
static json_t *context(void)
{
    return json_pack(
        "{s:[{s:s,s:s},{s:s,s:s},{s:s,s:[{s:s,s:s}]}],s:b,s:s,s:n,"
        "s:{s:i,s:[i,i],s:{s:s}},s:[i,i,i],s:i,s:f,s:s,s:s,s:[s,s]}",
        "m", "role", "system", "content", "S \xc3\xa9", "role", "user",
        "content", " a\nb ", "role", "assistant", "content", "type", "text",
        "text", "t", "t", 1, "bos_token", "<s>", "none_", "d", "b", 1, "a", 1,
        2, "c", "x", "y", "list", 3, 1, 2, "n", 3, "f", 2.5, "s",
        "Hello World", "html", "<a&'>", "names", "b", "A");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    const struct weft_jinja_limits limits = {.steps = 200000,
                                             .memory_bytes = 16 << 20};
    const struct weft_date day = {2024, 7, 26};
    struct weft_err err = {0};
    struct weft_jinja *jinja = NULL;
    struct weft_str text = {0};
    json_t *values = context();
    /* In memory of its own length, so that reading past it is seen. */
    char *copy = weft_alloc(n ? n : 1, 1);
    int rc = WEFT_ENOMEM;
    if (copy && values) {
        for (size_t i = 0; i < n; i++)
            copy[i] = (char) data[i];
        rc = weft_jinja_parse(copy, n, "fuzz", &jinja, &err);
        if (!rc)
            rc = weft_jinja_render(jinja, values, &day, &limits, &text, NULL,
                                   &err);
        if (rc && !err.text[0])
            abort(); /* an error without a sentence */
        if (!rc && text.s[text.n] != 0)
            abort();
    }
    weft_str_release(&text);
    weft_jinja_free(jinja);
    weft_free(copy);
    json_decref(values);
    return 0;
}
