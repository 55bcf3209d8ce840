/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/lm_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "base/string.h"
#include "text/renderer.h"
#include "lm/context.h"

enum { BATCH = 256 }; /* rows computed at a time */

/* An open model, its data, and the output. */
struct job {
    const struct weft_lm_file_options *o;
    struct weft_context *context;
    struct weft_model *model;
    struct weft_renderer renderer;
    struct weft_dataset *data; /* NULL: a single prompt */
    int64_t n;                 /* rows */
    FILE *out;                 /* stdout, or a temporary file */
    char *beside;
    double start_s;
    int64_t n_lines;
    /* the present batch */
    int64_t first;
    struct weft_lm_prompt prompt[BATCH];
};

static int open_output(struct job *j, struct weft_err *err)
{
    j->out = stdout;
    if (!j->o->output)
        return 0;
    struct weft_string name = {0};
    weft_string_addf(&name, "%s.part", j->o->output);
    int rc = weft_string_check(&name, "a path", err);
    if (rc)
        return rc;
    j->beside = name.data;
    if (j->o->unfinished)
        j->o->unfinished(j->beside);
    j->out = fopen(j->beside, "w");
    return j->out ? 0 : weft_err_sys(err, "write", j->o->output);
}

static int job_open(struct job *j, const struct weft_lm_file_options *o,
                    struct weft_err *err)
{
    struct weft_context_options options = {.rt = {.n_devices = o->devices,
                                                  .n_gpus = o->n_gpus,
                                                  .first_gpu = o->first_gpu,
                                                  .nap = -1,
                                                  .watchdog_s = 300}};
    *j = (struct job){.o = o, .n = 1, .start_s = weft_clock_s()};
    const struct weft_renderer_options how = {.template = o->chat_template,
                                              .key = "--template",
                                              .folder = o->model,
                                              .date = o->date};
    int rc = weft_renderer_init(&how, &j->renderer, err);
    if (!rc && o->data) {
        /* each row may have a text, a prompt or tokens */
        struct weft_dataset_keys keys = {.need = WEFT_NEED_NOTHING};
        if (o->lm.samples > 0)
            keys.need = WEFT_NEED_PROMPT;
        rc = weft_dataset_open(o->data, &keys, &j->data, err);
        if (!rc)
            j->n = (int64_t) weft_dataset_size(j->data);
    }
    if (o->limit > 0 && o->limit < j->n)
        j->n = o->limit;
    if (!rc)
        rc = weft_context_open_with(&options, &j->context, err);
    if (!rc)
        rc = weft_model_open(j->context, o->model, o->dtype, &j->model, err);
    if (!rc) {
        j->model->tp = o->tp;
        j->model->costs = o->costs;
        j->model->costs_path = o->costs_path;
        /* scoring says nothing of itself unless it is asked */
        j->model->tells = o->costs || o->lm.samples > 0;
    }
    if (!rc && !j->model->tokenizer && (o->prompt || o->lm.samples > 0))
        rc = weft_err_set(err, WEFT_ENOTFOUND, "'%s' has no tokenizer.json",
                          o->model);
    if (!rc)
        rc = open_output(j, err);
    return rc;
}

/* Closes the output and gives it its final name, or removes it after an
 * error. */
static int job_close(struct job *j, int rc, struct weft_err *err)
{
    if (j->out && j->out != stdout) {
        bool written = fflush(j->out) == 0 && !ferror(j->out);
        if (fclose(j->out) != 0)
            written = false;
        if (!rc && !written)
            rc = weft_err_sys(err, "write", j->o->output);
        if (!rc && rename(j->beside, j->o->output) != 0)
            rc = weft_err_sys(err, "write", j->o->output);
        if (rc)
            (void) remove(j->beside);
    }
    if (j->beside && j->o->unfinished)
        j->o->unfinished(NULL);
    weft_model_close(j->model);
    weft_context_close(j->context);
    weft_dataset_close(j->data);
    weft_renderer_release(&j->renderer);
    weft_free(j->beside);
    return rc;
}

static int put_line(struct job *j, struct weft_string *line,
                    struct weft_err *err)
{
    weft_string_add(line, "\n");
    int rc = weft_string_check(line, "a line", err);
    if (!rc && fwrite(line->data, 1, line->n, j->out) != line->n)
        rc = weft_err_sys(err, "write",
                          j->o->output ? j->o->output : "standard output");
    weft_string_release(line);
    j->n_lines++;
    return rc;
}

static void add_ids(struct weft_string *line, const int32_t *id, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        weft_string_addf(line, "%s%d", i ? ", " : "", id[i]);
}

/* Appends a JSON list; NaN becomes null. */
static void add_floats(struct weft_string *line, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        weft_string_add(line, i ? ", " : "");
        weft_string_add_float(line, x[i]);
    }
}

static void batch_release(struct job *j, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        weft_free((int32_t *) (uintptr_t) j->prompt[i].token);
        j->prompt[i].token = NULL;
    }
}

/* Runs `encode` on rows in batches, and `work` on each batch. */
static int for_each_batch(struct job *j,
                          int (*encode)(struct job *, int64_t row,
                                        struct weft_lm_prompt *,
                                        struct weft_err *),
                          int (*work)(struct job *, int32_t n,
                                      struct weft_err *),
                          struct weft_err *err)
{
    int rc = 0;
    for (j->first = 0; j->first < j->n && !rc; j->first += BATCH) {
        int32_t n = (int32_t) weft_min64(BATCH, j->n - j->first), done = 0;
        for (; done < n && !rc; done++)
            rc = encode(j, j->first + done, &j->prompt[done], err);
        if (!rc)
            rc = work(j, n, err);
        batch_release(j, done);
    }
    return rc;
}

/* ---- Generating ------------------------------------------------------- */

/* Puts file and line in front of an error. */
static int prefix(const struct job *j, const struct weft_row *row, int rc,
                  struct weft_err *err)
{
    if (rc && j->data)
        weft_err_prefix(err, "'%s' line %zu", j->o->data, row->line);
    return rc;
}

static int encode_prompt(struct job *j, int64_t i, struct weft_lm_prompt *out,
                         struct weft_err *err)
{
    struct weft_row row = {0};
    struct weft_rendered r = {0};
    int rc = 0;
    *out = (struct weft_lm_prompt){0};
    if (j->data)
        rc = weft_dataset_row(j->data, (size_t) i, &row, err);
    else
        rc = weft_str_copy(weft_str_of(j->o->prompt), &row.prompt, err);
    if (!rc)
        rc = prefix(j, &row,
                    weft_renderer_encode_prompt(
                        &j->renderer, j->model->tokenizer, &row, &r, err),
                    err);
    out->token = r.token;
    out->n = r.n;
    weft_row_release(&row);
    return rc;
}

static int write_sample(void *ctx, int32_t p, int32_t s,
                        const struct weft_rollout *r, struct weft_err *err)
{
    struct job *j = ctx;
    const int32_t *token = weft_rollout_token(r);
    int32_t n = r->n_total - r->n_prompt;
    struct weft_string line = {0};
    char *text = NULL;
    size_t n_text;
    int rc = weft_tokenizer_decode(j->model->tokenizer, token + r->n_prompt,
                                   (size_t) n, true, &text, &n_text, err);
    if (rc)
        return rc;
    weft_string_addf(&line,
                     "{\"index\": %lld, \"sample\": %d, "
                     "\"prompt_tokens\": [",
                     (long long) (j->first + p), s);
    add_ids(&line, token, r->n_prompt);
    weft_string_add(&line, "], \"tokens\": [");
    add_ids(&line, token + r->n_prompt, n);
    weft_string_add(&line, "], \"logprobs\": [");
    add_floats(&line, weft_rollout_logp(r) + r->n_prompt, n);
    weft_string_add(&line, "], \"text\": ");
    weft_string_add_json_str(&line, (struct weft_str){text, n_text});
    weft_string_addf(&line, ", \"finish_reason\": \"%s\"}",
                     r->ended ? "stop" : "length");
    weft_free(text);
    return put_line(j, &line, err);
}

static int generate_batch(struct job *j, int32_t n, struct weft_err *err)
{
    struct weft_lm_options lm = j->o->lm;
    lm.first_prompt = (int32_t) j->first;
    return weft_lm_generate(j->model, &lm, n, j->prompt, write_sample, j,
                            err);
}

int weft_lm_file_generate(const struct weft_lm_file_options *o,
                          struct weft_err *err)
{
    struct job j;
    int rc = job_open(&j, o, err);
    if (!rc)
        rc = for_each_batch(&j, encode_prompt, generate_batch, err);
    double seconds = weft_clock_s() - j.start_s;
    if (!rc)
        weft_info("%lld sample%s, %lld tokens read, %lld generated, %.0f/s",
                  (long long) j.n_lines, j.n_lines == 1 ? "" : "s",
                  (long long) j.model->n_prefilled,
                  (long long) j.model->n_decoded,
                  (double) j.model->n_decoded / seconds);
    return job_close(&j, rc, err);
}

/* ---- Scoring ---------------------------------------------------------- */

/* Ids of a line's "tokens"; rc 0 and token NULL when it has none. */
static int read_tokens(const struct job *j, const struct weft_row *row,
                       struct weft_lm_prompt *out, struct weft_err *err)
{
    json_t *json = NULL, *list, *value;
    size_t i;
    int rc = weft_json_parse_texts(row->json, strlen(row->json), j->o->data,
                                   row->line, &json, err);
    list = json_object_get(json, "tokens");
    if (rc) {
        /* err says why */
    } else if (list && !json_is_null(list) && json_array_size(list) == 0) {
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "'%s' line %zu: 'tokens' must be a list of token "
                          "ids, not %s",
                          j->o->data, row->line,
                          json_is_array(list) ? "an empty one"
                                              : weft_json_type(list));
    } else if (json_is_array(list)) {
        int32_t *token = weft_alloc(json_array_size(list), sizeof *token);
        if (!token)
            rc = weft_err_nomem(err, "tokens", json_array_size(list) * 4);
        json_array_foreach(list, i, value)
        {
            json_int_t id = json_is_integer(value) ? json_integer_value(value)
                                                   : -1;
            if (rc)
                break;
            if (id < 0 || id >= j->model->arch.shape.vocab)
                rc = weft_err_set(err, WEFT_EINVAL,
                                  "'%s' line %zu: tokens[%zu] is no id below "
                                  "%d",
                                  j->o->data, row->line, i,
                                  j->model->arch.shape.vocab);
            else
                token[i] = (int32_t) id;
        }
        out->token = token;
        out->n = (int32_t) json_array_size(list);
    }
    json_decref(json);
    return rc;
}

/* Encodes a line's text: a conversation by the template, or prompt and
 * response as one plain text. */
static int encode_line(struct job *j, const struct weft_row *row,
                       struct weft_rendered *out, struct weft_err *err)
{
    const struct weft_tokenizer *tokenizer = j->model->tokenizer;
    struct weft_row joined = {0};
    if (row->messages || j->renderer.chat)
        return row->response.s
                 ? weft_renderer_encode_pair(&j->renderer, tokenizer, row,
                                             out, err)
                 : weft_renderer_encode_prompt(&j->renderer, tokenizer, row,
                                               out, err);
    struct weft_string text = {0};
    weft_string_add_n(&text, row->prompt.s, row->prompt.n);
    weft_string_add_n(&text, row->response.s, row->response.n);
    int rc = weft_string_check(&text, "a text", err);
    joined.prompt = (struct weft_str){text.data, text.n};
    if (!rc)
        rc = weft_renderer_encode_prompt(&j->renderer, tokenizer, &joined,
                                         out, err);
    weft_string_release(&text);
    return rc;
}

static int encode_text(struct job *j, int64_t i, struct weft_lm_prompt *out,
                       struct weft_err *err)
{
    struct weft_row row = {0};
    struct weft_rendered r = {0};
    int rc;
    *out = (struct weft_lm_prompt){0};
    if (j->data) {
        rc = weft_dataset_row(j->data, (size_t) i, &row, err);
        if (!rc)
            rc = read_tokens(j, &row, out, err);
        if (rc || out->token)
            goto out;
    } else {
        rc = weft_str_copy(weft_str_of(j->o->prompt), &row.response, err);
    }
    if (!rc && !j->model->tokenizer)
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' has no tokenizer.json; give \"tokens\"",
                          j->o->model);
    if (!rc)
        rc = prefix(j, &row, encode_line(j, &row, &r, err), err);
    out->token = r.token;
    out->n = r.n;
out:
    weft_row_release(&row);
    return rc;
}

static int score_batch(struct job *j, int32_t n, struct weft_err *err)
{
    float *value[BATCH] = {NULL};
    bool scalar = j->model->arch.shape.scalar_head;
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        value[i] = weft_alloc((size_t) j->prompt[i].n + 1, sizeof(float));
        if (!value[i])
            rc = weft_err_nomem(err, "log-probs", 4);
        else
            value[i][0] = NAN;
    }
    if (!rc)
        rc = weft_lm_score(j->model, n, j->prompt,
                           j->o->lm.sampling.temperature, value, err);
    for (int32_t i = 0; i < n && !rc; i++) {
        struct weft_string line = {0};
        weft_string_addf(&line, "{\"index\": %lld, ",
                         (long long) j->first + i);
        if (scalar) {
            weft_string_add(&line, "\"score\": ");
        } else {
            weft_string_add(&line, "\"tokens\": [");
            add_ids(&line, j->prompt[i].token, j->prompt[i].n);
            weft_string_add(&line, "], \"logprobs\": [");
        }
        add_floats(&line, value[i], scalar ? 1 : j->prompt[i].n);
        weft_string_add(&line, scalar ? "}" : "]}");
        rc = put_line(j, &line, err);
    }
    for (int32_t i = 0; i < n; i++)
        weft_free(value[i]);
    return rc;
}

int weft_lm_file_score(const struct weft_lm_file_options *o,
                       struct weft_err *err)
{
    struct job j;
    int rc = job_open(&j, o, err);
    if (!rc)
        rc = for_each_batch(&j, encode_text, score_batch, err);
    return job_close(&j, rc, err);
}
