/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenises a row of the data: a prompt, a response to it, or two. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "job/plan_needs.h"
#include "run/prompts.h"
#include "run/trainer.h"

/* ---- Long texts ------------------------------------------------------- */

/* Applies data.long_prompts to a row of which `part` has n tokens and `limit`
 * are allowed: error, skip, or truncate. why: the end of the error's text.
 * keep_out: the row is used, and must be truncated. */
static int judge_long(const struct weft_trainer *t,
                      const struct weft_row *row, const char *part, int32_t n,
                      int32_t limit, const char *why, bool *keep_out,
                      struct weft_err *err)
{
    const char *rule = t->config.data.long_prompts;
    *keep_out = strcmp(rule, "skip") != 0;
    if (strcmp(rule, "refuse") != 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' line %zu: the %s has %d tokens, %s %d; shorten "
                        "it, or set data.long_prompts to skip or truncate",
                        t->config.data.path, row->line, part, n, why, limit);
}

/* Truncates a long prompt at its beginning, as its end matters most. */
static int limit_prompt(const struct weft_trainer *t,
                        const struct weft_row *row, struct weft_run_prompt *p,
                        bool *keep_out, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int32_t room = t->model[0].arch.shape.max_positions;
    bool generates = weft_config_generates(c), model;
    if (generates)
        room -= c->rollout.max_new_tokens;
    model = generates && room > 0 && room < c->data.max_prompt_tokens;
    int32_t limit = model ? room : c->data.max_prompt_tokens;
    int32_t over = p->n_prompt - limit;
    if (over <= 0)
        return 0;
    int rc = judge_long(t, row, "prompt", p->n_prompt, limit,
                        model ? "the model's positions less "
                                "rollout.max_new_tokens are"
                              : "data.max_prompt_tokens is",
                        keep_out, err);
    if (rc || !*keep_out)
        return rc;
    memmove(p->token, p->token + over,
            (size_t) (p->n - over) * sizeof *p->token);
    p->n -= over;
    p->n_prompt -= over;
    for (int32_t i = 0; i < p->n_ranges; i++)
        p->learned[i].first -= over;
    return 0;
}

static void cut_end(struct weft_run_prompt *p, int32_t n)
{
    p->n = n;
    while (p->n_ranges > 0) {
        struct weft_range *last = &p->learned[p->n_ranges - 1];
        int32_t over = weft_range_end(*last) - n;
        if (over <= 0)
            return;
        over = over < last->n ? over : last->n;
        last->n -= over;
        p->n_learned -= over;
        p->n_ranges -= last->n == 0;
    }
}

/* Truncates a long response at its end. */
static int limit_whole(const struct weft_trainer *t,
                       const struct weft_row *row, struct weft_run_prompt *p,
                       bool *keep_out, struct weft_err *err)
{
    int32_t limit = t->model[0].arch.shape.max_positions;
    if (p->n <= limit)
        return 0;
    int rc = judge_long(t, row, "text (prompt and response)", p->n, limit,
                        "the model's positions are", keep_out, err);
    if (!rc && *keep_out)
        cut_end(p, limit);
    return rc;
}

static int check_label(const struct weft_trainer *t,
                       const struct weft_row *row, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const char *user = weft_rewards_label_user(c->reward, c->n_rewards);
    if (!user || row->label.s)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' line %zu: no label, which reward '%s' compares "
                        "with; set data.label_key to its key",
                        c->data.path, row->line, user);
}

/* ---- Texts ------------------------------------------------------------ */

/* What of an encoded row is learned, if not all that follows the prompt: the
 * ranges of what the assistant says, but for the first token, which nothing
 * predicts. */
static int find_ranges(const bool *said, struct weft_run_prompt *p,
                       struct weft_err *err)
{
    int32_t n = 0;
    for (int32_t i = 1; i < p->n; i++)
        n += said[i] && !(i > 1 && said[i - 1]);
    p->learned = weft_alloc((size_t) n + 1, sizeof *p->learned);
    if (!p->learned)
        return weft_err_nomem(err, "a row", (size_t) n * 8);
    for (int32_t i = 1; i < p->n; i++) {
        if (!said[i])
            continue;
        if (i == 1 || !said[i - 1])
            p->learned[p->n_ranges++] = (struct weft_range){i, 0};
        p->learned[p->n_ranges - 1].n++;
        p->n_learned++;
    }
    return 0;
}

/* Encodes prompt and response. Without a prompt the first token of the
 * response is the prompt, as the next ones are predicted from it. what: which
 * response, for messages. */
static int encode_response(struct weft_trainer *t, const struct weft_row *row,
                           const char *what, struct weft_run_prompt *p,
                           struct weft_err *err)
{
    enum weft_learn learn = t->config.data.learn;
    struct weft_rendered r;
    int rc = (learn == WEFT_LEARN_ASSISTANT ? weft_renderer_encode_turns
                                            : weft_renderer_encode_pair)(
        &t->renderer, t->tokenizer, row, &r, err);
    if (rc)
        return rc;
    p->token = r.token;
    p->n = r.n;
    p->n_prompt = learn == WEFT_LEARN_ALL ? 0 : r.n_prompt;
    if (r.said)
        rc = find_ranges(r.said, p, err);
    weft_free(r.said);
    if (rc)
        return rc;
    if (r.n == r.n_prompt || row->response.n == 0)
        return weft_err_set(err, WEFT_EINVAL, "the %sresponse is empty",
                            what);
    if (!r.templated && t->config.data.add_eos)
        p->token[p->n++] = t->end; /* the renderer allocates one more */
    if (p->n_prompt == 0)
        p->n_prompt = 1;
    if (r.cut && !t->warned_cut)
        weft_warn(
            "'%s' line %zu: the conversation's tokens do not begin with its "
            "prompt's; what is learned follows what both begin with",
            t->config.data.path, row->line);
    t->warned_cut = t->warned_cut || r.cut;
    return 0;
}

/* A row's chosen or rejected response, as if it were its only one. */
static int encode_side(struct weft_trainer *t, const struct weft_row *row,
                       bool chosen, struct weft_run_prompt *p,
                       struct weft_err *err)
{
    struct weft_row one = *row;
    one.response = chosen ? row->chosen : row->rejected;
    one.answer = chosen ? row->chosen_answer : row->rejected_answer;
    return encode_response(t, &one, chosen ? "chosen " : "rejected ", p, err);
}

static int encode_prompt(struct weft_trainer *t, const struct weft_row *row,
                         struct weft_run_prompt *p, struct weft_err *err)
{
    struct weft_rendered r;
    int rc = weft_renderer_encode_prompt(&t->renderer, t->tokenizer, row, &r,
                                         err);
    if (rc)
        return rc;
    p->token = r.token;
    p->n = p->n_prompt = r.n;
    return 0;
}

/* ---- Rows ------------------------------------------------------------- */

/* KTO's labels: whether the response is a good one. */
static int read_wanted(const struct weft_row *row, float *out,
                       struct weft_err *err)
{
    static const struct {
        const char *word;
        float value;
    } words[] = {{"true", 1}, {"false", 0}, {"1", 1}, {"0", 0}};
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        if (weft_str_equal(row->label, weft_str_of(words[i].word))) {
            *out = words[i].value;
            return 0;
        }
    return weft_err_set(err, WEFT_EINVAL,
                        "the label is '%.40s'; it must be true or false",
                        row->label.s);
}

/* How much better the chosen response is, for reward models. */
static int read_margin(const struct weft_trainer *t,
                       const struct weft_row *row, float *out,
                       struct weft_err *err)
{
    switch (t->config.preference.margin) {
    case WEFT_MARGIN_ROW:
        *out = row->has_margin ? (float) row->margin : 0;
        return 0;
    case WEFT_MARGIN_SCORES:
        *out = (float) (row->score[0] - row->score[1]);
        if (row->has_scores)
            return 0;
        return weft_err_set(err, WEFT_EINVAL,
                            "'score_chosen' and 'score_rejected' are not "
                            "both there, of which reward_model.margin scores "
                            "is the difference");
    default:
        *out = 0;
        return 0;
    }
}

static int encode_two(struct weft_trainer *t, const struct weft_row *row,
                      struct weft_run_prompt p[2], struct weft_err *err)
{
    int rc = encode_side(t, row, true, &p[0], err);
    if (!rc)
        rc = encode_side(t, row, false, &p[1], err);
    p[0].label = 1;
    return rc;
}

/* Encodes the row's texts; returns how many through n_out. */
static int encode(struct weft_trainer *t, const struct weft_row *row,
                  enum weft_rows rows, struct weft_run_prompt p[2],
                  int32_t *n_out, struct weft_err *err)
{
    int rc = 0;
    *n_out = 1;
    switch (rows) {
    case WEFT_ROWS_RESPONSE:
        return encode_response(t, row, "", p, err);
    case WEFT_ROWS_PAIR:
        *n_out = 2;
        rc = encode_two(t, row, p, err);
        if (!rc)
            rc = read_margin(t, row, &p[0].label, err);
        p[1].label = p[0].label;
        return rc;
    case WEFT_ROWS_LABELLED:
        if (row->chosen.s) {
            *n_out = 2;
            return encode_two(t, row, p, err);
        }
        rc = read_wanted(row, &p->label, err);
        return rc ? rc : encode_response(t, row, "", p, err);
    default:
        return encode_prompt(t, row, p, err);
    }
}

static int check_ids(const struct weft_trainer *t,
                     const struct weft_run_prompt *p, struct weft_err *err)
{
    int32_t vocab = t->model[0].arch.shape.vocab;
    for (int32_t k = 0; k < p->n; k++)
        if (p->token[k] >= vocab)
            return weft_err_set(err, WEFT_EINVAL,
                                "the tokenizer gives id %d, the model's "
                                "vocabulary has %d",
                                p->token[k], vocab);
    return 0;
}

/* Checks a text that is as long as it may be. */
static int check_text(const struct weft_trainer *t,
                      const struct weft_run_prompt *p, bool responds,
                      struct weft_err *err)
{
    bool none = p->n <= p->n_prompt || (p->learned && p->n_learned == 0);
    if (p->n < 1 || (responds && none))
        return weft_err_set(err, WEFT_EINVAL, "nothing to %s",
                            responds ? "learn from one token"
                                     : "start from: the prompt is empty");
    return check_ids(t, p, err);
}

static int check_differ(const struct weft_run_prompt p[2],
                        struct weft_err *err)
{
    if (p[0].n != p[1].n
        || memcmp(p[0].token, p[1].token, (size_t) p[0].n * 4) != 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'chosen' and 'rejected' are the same %d tokens, "
                        "from which nothing can be learned",
                        p[0].n);
}

static int prefix(const struct weft_trainer *t, const struct weft_row *row,
                  int rc, struct weft_err *err)
{
    if (rc)
        weft_err_prefix(err, "'%s' line %zu", t->config.data.path, row->line);
    return rc;
}

/* Applies data.long_prompts and checks what is left. */
static int limit(const struct weft_trainer *t, const struct weft_row *row,
                 bool responds, int32_t n, struct weft_run_prompt *p,
                 bool *keep_out, struct weft_err *err)
{
    int rc = 0;
    for (int32_t k = 0; k < n && !rc && *keep_out; k++) {
        rc = limit_prompt(t, row, &p[k], keep_out, err);
        if (!rc && *keep_out && responds)
            rc = limit_whole(t, row, &p[k], keep_out, err);
        if (!rc && *keep_out)
            rc = prefix(t, row, check_text(t, &p[k], responds, err), err);
    }
    if (!rc && *keep_out && n == 2)
        rc = prefix(t, row, check_differ(p, err), err);
    return rc;
}

void weft_prompts_release_row(struct weft_run_prompt *row)
{
    weft_free(row->token);
    weft_free(row->learned);
}

int weft_prompts_row(struct weft_trainer *t, size_t i,
                     struct weft_run_prompt *out, int32_t *n_out,
                     struct weft_err *err)
{
    enum weft_rows rows = weft_algorithm_of(&t->config)->rows;
    struct weft_run_prompt p[2] = {{.row = i}, {.row = i}};
    struct weft_row row;
    bool keep = true;
    int32_t n = 0;
    int rc = weft_dataset_row(t->data, i, &row, err);
    if (rc)
        return rc;
    rc = check_label(t, &row, err);
    if (!rc)
        rc = prefix(t, &row, encode(t, &row, rows, p, &n, err), err);
    if (!rc)
        rc = limit(t, &row, rows != WEFT_ROWS_PROMPT, n, p, &keep, err);
    weft_row_release(&row);
    if (rc || !keep) {
        weft_prompts_release_row(&p[0]);
        weft_prompts_release_row(&p[1]);
        n = 0;
    }
    *n_out = n;
    memcpy(out, p, sizeof p);
    return rc;
}
