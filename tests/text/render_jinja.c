/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renders templates for the scripts of tests/data/chat, which compare with
 * Transformers. A line of standard input is {"template", "context", "date"};
 * a line of standard output is {"text"}, or {"error", "code"}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/jinja/jinja.h"

static json_t *render(const json_t *request)
{
    const json_t *text = json_object_get(request, "template");
    const char *day = json_string_value(json_object_get(request, "date"));
    struct weft_date date = {2024, 7, 26};
    struct weft_jinja *jinja = NULL;
    struct weft_err err = {0};
    struct weft_str out = {0};
    int rc = day ? weft_date_read(day, &date, &err) : 0;
    if (!rc)
        rc = weft_jinja_parse(json_string_value(text),
                              json_string_length(text), "template", &jinja,
                              &err);
    if (!rc)
        rc = weft_jinja_render(jinja, json_object_get(request, "context"),
                               &date, NULL, &out, NULL, &err);
    weft_jinja_free(jinja);
    if (rc)
        return json_pack("{s:s, s:i}", "error", err.text, "code", rc);
    json_t *answer = json_pack("{s:s%}", "text", out.s, out.n);
    weft_str_release(&out);
    return answer;
}

int main(void)
{
    json_t *request;
    while ((request = json_loadf(
                stdin, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        json_t *answer = render(request);
        if (!answer || json_dumpf(answer, stdout, JSON_COMPACT) != 0)
            return 1;
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(request);
    }
    return 0;
}
