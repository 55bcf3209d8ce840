/* SPDX-License-Identifier: Apache-2.0 */
#include "record/report_samples.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "record/samples.h"

enum { MAX_SAMPLES = 12, MAX_TEXT = 4000 };

static void add_text_cell(struct weft_string *out, const json_t *value)
{
    struct weft_str s = weft_json_str(value);
    size_t shown = s.n < MAX_TEXT ? s.n : MAX_TEXT;
    weft_string_add(out, "<td class=\"t\"><div>");
    weft_string_add_html_str(out, (struct weft_str){s.s, shown});
    if (shown < s.n)
        weft_string_add(out, " ...");
    weft_string_add(out, "</div>");
}

static void add_sample(struct weft_string *out, const json_t *o)
{
    weft_string_add(out, "<tr>");
    add_text_cell(out, json_object_get(o, "prompt"));
    add_text_cell(out, json_object_get(o, "response"));
    add_text_cell(out, json_object_get(o, "label"));
    weft_string_addf(
        out, "<td class=\"n\">%.4g<td class=\"n\">%lld<td>%s</tr>\n",
        json_number_value(json_object_get(o, "score")),
        (long long) json_integer_value(json_object_get(o, "n_tokens")),
        strcmp("stop",
               json_string_value(json_object_get(o, "finish_reason"))
                   ? json_string_value(json_object_get(o, "finish_reason"))
                   : "")
                == 0
            ? "ended"
            : "cut");
}

static int add_samples(struct weft_string *out, int64_t iteration,
                       const char *path, struct weft_err *err)
{
    char *text;
    size_t n, number = 0;
    int rc = weft_file_read(path, 0, &text, &n, err);
    if (rc)
        return rc;
    weft_string_addf(
        out,
        "<h2>Samples of iteration %lld</h2>\n<div class=\"wide\">"
        "<table><tr><th>prompt<th>response<th>label"
        "<th class=\"n\">score<th class=\"n\">tokens<th></tr>\n",
        (long long) iteration);
    char *line = text;
    while (!rc && line < text + n && number < MAX_SAMPLES) {
        char *feed = memchr(line, '\n', (size_t) (text + n - line));
        size_t len = (size_t) ((feed ? feed : text + n) - line);
        json_t *o = NULL;
        rc = weft_json_parse_texts(line, len, path, ++number, &o, err);
        if (!rc)
            add_sample(out, o);
        json_decref(o);
        line += len + 1;
    }
    weft_string_add(out, "</table></div>\n");
    weft_free(text);
    return rc;
}

int weft_report_samples(const char *run_dir,
                        const struct weft_metrics_table *table,
                        struct weft_string *out, struct weft_err *err)
{
    int64_t found[2] = {-1, -1};
    int rc = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < table->n_rows && found[k] < 0; i++) {
            size_t at = k == 0 ? table->n_rows - 1 - i : i;
            int64_t iteration = table->iteration[at];
            char *path = weft_samples_path(run_dir, iteration);
            if (path && weft_file_exists(path))
                found[k] = iteration;
            weft_free(path);
        }
    for (int k = 0; k < 2 && !rc; k++) {
        if (found[k] < 0 || (k == 1 && found[1] == found[0]))
            continue;
        char *path = weft_samples_path(run_dir, found[k]);
        rc = path ? add_samples(out, found[k], path, err)
                  : weft_err_nomem(err, "a path", strlen(run_dir));
        weft_free(path);
    }
    return rc;
}
