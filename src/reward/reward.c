/* SPDX-License-Identifier: Apache-2.0 */
#include "reward/reward.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/keys.h"
#include "reward/program.h"

/* What an open reward needs, by its type. */
struct state {
    pcre2_code *pattern;
    pcre2_match_data *match;
    bool warned;
    struct weft_reward_program *program;
    struct weft_k_moments moments; /* if it is normalised */
};

/* Samples that are scored as they come. */
struct weft_reward_batch {
    int32_t n, n_asked;   /* of `order` */
    const int32_t *order; /* (n) of questions to programs; NULL: none */
    const struct weft_reward_sample *sample; /* (n) */
    bool *there;                             /* (n) which have come */
    bool *ruled; /* (n) and have their rules' rewards, in `part` */
    double (*part)[WEFT_MAX_REWARDS]; /* (n) */
};

struct weft_rewards {
    const struct weft_reward_config *config;
    int32_t n;
    struct state state[WEFT_MAX_REWARDS];
    weft_reward_fn callback; /* or callback_all, or neither */
    weft_reward_batch_fn callback_all;
    void *callback_ctx;
    struct weft_reward_batch batch;
    double busy_s; /* until the last end */
};

const char *weft_rewards_label_user(const struct weft_reward_config *config,
                                    int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (config[i].type == WEFT_REWARD_GSM8K
            || config[i].type == WEFT_REWARD_EXACT
            || config[i].type == WEFT_REWARD_BOXED)
            return config[i].name;
    return NULL;
}

/* ---- Rules on the text ------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct weft_str trim(struct weft_str x)
{
    while (x.n > 0 && is_blank(x.s[0]))
        x = weft_str_after(x, 1);
    while (x.n > 0 && is_blank(x.s[x.n - 1]))
        x.n--;
    return x;
}

/* Whether two numbers are equal except for commas. */
static bool equal_number(struct weft_str a, struct weft_str b)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < a.n && a.s[i] == ',')
            i++;
        while (j < b.n && b.s[j] == ',')
            j++;
        if (i == a.n || j == b.n)
            return i == a.n && j == b.n;
        if (a.s[i++] != b.s[j++])
            return false;
    }
}

static size_t number_length(struct weft_str p)
{
    size_t sign = p.n > 0 && p.s[0] == '-', n = sign;
    while (n < p.n
           && ((p.s[n] >= '0' && p.s[n] <= '9') || p.s[n] == '.'
               || p.s[n] == ','))
        n++;
    return n > sign ? n : 0;
}

/* The last "#### number"; n is 0 when there is none. */
static struct weft_str last_marked(struct weft_str text)
{
    static const char mark[] = "#### ";
    struct weft_str found = {text.s, 0};
    for (size_t at; (at = weft_str_find(text, mark)) != SIZE_MAX;) {
        struct weft_str p = weft_str_after(text, at + sizeof mark - 1);
        size_t n = number_length(p);
        if (n > 0)
            found = (struct weft_str){p.s, n};
        text = weft_str_after(text, at + 1);
    }
    return found;
}

/* The last number that is more than a "."; such a "." if there is no other. */
static struct weft_str last_number(struct weft_str text)
{
    struct weft_str found = {text.s, 0};
    while (text.n > 0) {
        size_t n = number_length(text);
        if (n > 0 && (found.n == 0 || n > 1 || text.s[0] != '.'))
            found = (struct weft_str){text.s, n};
        text = weft_str_after(text, n > 0 ? n : 1);
    }
    return found;
}

bool weft_reward_gsm8k(struct weft_str response, struct weft_str label,
                       bool flexible)
{
    struct weft_str truth = last_marked(label);
    struct weft_str answer = flexible ? last_number(response)
                                      : last_marked(response);
    if (truth.n == 0)
        truth = trim(label);
    if (truth.n > 1 && truth.s[0] == '$')
        truth = weft_str_after(truth, 1);
    if (answer.n == 0)
        return false;
    if (!flexible)
        return equal_number(answer, truth);
    /* As in verl, commas are removed from the label alone. */
    return !memchr(answer.s, ',', answer.n) && equal_number(answer, truth);
}

bool weft_reward_exact(struct weft_str response, struct weft_str label)
{
    return weft_str_equal(trim(response), trim(label));
}

double weft_reward_length(int32_t n_tokens, int32_t target,
                          const char *method)
{
    double off = ((double) n_tokens - target) / target;
    if (strcmp(method, "most") == 0 && off < 0)
        return 0;
    if (strcmp(method, "least") == 0 && off > 0)
        return 0;
    return off == 0 ? 0 : -fabs(off);
}

/* ---- Opening ---------------------------------------------------------- */

/* The patterns of think_answer. Strict is that of open-r1's format_reward
 * (2025), whose $ stands before any newline; flexible is one pair of tags after
 * the other with nothing but blanks around and between. */
static const char strict[] = "^<think>\\n.*?\\n</think>\\n"
                             "<answer>\\n.*?\\n</answer>(?m:$)",
                  flexible[] = "^\\s*<think>.*?</think>\\s*"
                               "<answer>.*?</answer>\\s*$";

static const char *pattern_of(const struct weft_reward_config *c)
{
    if (c->type != WEFT_REWARD_THINK_ANSWER)
        return c->pattern;
    return strcmp(c->method, "strict") == 0 ? strict : flexible;
}

static int open_pattern(const struct weft_reward_config *c, struct state *s,
                        struct weft_err *err)
{
    const char *pattern = pattern_of(c);
    uint32_t all = c->type == WEFT_REWARD_THINK_ANSWER ? PCRE2_DOTALL : 0;
    PCRE2_UCHAR why[160];
    PCRE2_SIZE at;
    int code;
    s->pattern = pcre2_compile((PCRE2_SPTR) pattern, PCRE2_ZERO_TERMINATED,
                               all | PCRE2_UTF | PCRE2_UCP
                                   | PCRE2_MATCH_INVALID_UTF,
                               &code, &at, NULL);
    if (!s->pattern) {
        pcre2_get_error_message(code, why, sizeof why);
        return weft_err_set(err, WEFT_EINVAL,
                            "reward '%s': the pattern '%s' is wrong at byte "
                            "%zu: %s",
                            c->name, pattern, (size_t) at,
                            (const char *) why);
    }
    /* without a JIT compiler PCRE2 interprets the pattern */
    (void) pcre2_jit_compile(s->pattern, PCRE2_JIT_COMPLETE);
    s->match = pcre2_match_data_create(1, NULL);
    return s->match ? 0 : weft_err_nomem(err, c->name, 64);
}

static void batch_release(struct weft_reward_batch *b)
{
    weft_free(b->there);
    weft_free(b->ruled);
    weft_free(b->part);
    *b = (struct weft_reward_batch){.n = 0};
}

int weft_rewards_open(const struct weft_reward_config *config, int32_t n,
                      struct weft_rewards **out, struct weft_err *err)
{
    struct weft_rewards *r = weft_alloc(1, sizeof *r);
    if (!r)
        return weft_err_nomem(err, "rewards", sizeof *r);
    r->config = config;
    r->n = n;
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        const struct weft_reward_config *c = &config[i];
        if (c->type == WEFT_REWARD_REGEX
            || c->type == WEFT_REWARD_THINK_ANSWER)
            rc = open_pattern(c, &r->state[i], err);
        if (c->type == WEFT_REWARD_PROGRAM)
            rc = weft_reward_program_open(c->name, c->command, c->directory,
                                          c->timeout_s, &r->state[i].program,
                                          err);
    }
    if (rc)
        weft_rewards_close(r);
    else
        *out = r;
    return rc;
}

void weft_rewards_close(struct weft_rewards *rewards)
{
    if (!rewards)
        return;
    for (int32_t i = 0; i < rewards->n; i++) {
        struct state *s = &rewards->state[i];
        pcre2_match_data_free(s->match);
        pcre2_code_free(s->pattern);
        weft_reward_program_close(s->program);
    }
    batch_release(&rewards->batch);
    weft_free(rewards);
}

void weft_rewards_set_callback(struct weft_rewards *rewards,
                               weft_reward_fn fn, void *ctx)
{
    rewards->callback = fn;
    rewards->callback_all = NULL;
    rewards->callback_ctx = ctx;
}

void weft_rewards_set_batch(struct weft_rewards *rewards,
                            weft_reward_batch_fn fn, void *ctx)
{
    rewards->callback = NULL;
    rewards->callback_all = fn;
    rewards->callback_ctx = ctx;
}

/* ---- Computing -------------------------------------------------------- */

/* Whether the pattern is found. If matching exceeds PCRE2's limits it counts
 * as not found: the policy writes the text, and no text may end the run. */
static bool found(const struct weft_reward_config *c, struct state *s,
                  struct weft_str text)
{
    int rc = pcre2_match(s->pattern, (PCRE2_SPTR) text.s, text.n, 0, 0,
                         s->match, NULL);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH && !s->warned) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(rc, why, sizeof why);
        weft_warn("reward %s: the pattern gave up on a response (%s); that "
                  "counts as not found, and is not said again",
                  c->name, (const char *) why);
        s->warned = true;
    }
    return rc >= 0;
}

static int needs_label(const struct weft_reward_config *c, int32_t i,
                       const struct weft_reward_sample *sample,
                       struct weft_err *err)
{
    if (sample->label.s)
        return 0;
    return weft_err_set(err, WEFT_ENOTFOUND,
                        "reward '%s': the row of sample %d has no label; set "
                        "data.label_key (the row is %.200s)",
                        c->name, i, sample->row ? sample->row : "not known");
}

/* Calls the function for the n samples one by one, or once for all. */
static int call(const struct weft_rewards *r,
                const struct weft_reward_config *c, int32_t n,
                const struct weft_reward_sample *sample, double *score,
                struct weft_err *err)
{
    static const char failed[] = "the function failed";
    struct weft_err why = {0};
    int rc = 0;
    if (r->callback_all) {
        rc = r->callback_all(r->callback_ctx, n, sample, score, &why);
        return rc ? weft_err_set(err, rc, "reward '%s': %s", c->name,
                                 why.text[0] ? why.text : failed)
                  : 0;
    }
    for (int32_t i = 0; i < n && !rc; i++) {
        rc = r->callback(r->callback_ctx, &sample[i], &score[i], &why);
        if (rc)
            weft_err_set(err, rc, "reward '%s': sample %d: %s", c->name, i,
                         why.text[0] ? why.text : failed);
    }
    return rc;
}

static int by_callback(const struct weft_rewards *r, int32_t which, int32_t n,
                       const struct weft_reward_sample *sample,
                       double (*part)[WEFT_MAX_REWARDS], struct weft_err *err)
{
    const struct weft_reward_config *c = &r->config[which];
    if (!r->callback && !r->callback_all)
        return weft_err_set(err, WEFT_ESTATE,
                            "reward '%s' is a callback, but no function was "
                            "given (weft_trainer_set_reward)",
                            c->name);
    double *score = weft_alloc((size_t) n, sizeof *score);
    if (!score)
        return weft_err_nomem(err, "scores", (size_t) n * sizeof *score);
    int rc = call(r, c, n, sample, score, err);
    for (int32_t i = 0; i < n && !rc; i++) {
        part[i][which] = score[i];
        if (!isfinite((float) score[i]))
            rc = weft_err_set(err, WEFT_ENUMERIC,
                              "reward '%s': the function gave sample %d a "
                              "score that is no finite f32 number: %g",
                              c->name, i, score[i]);
    }
    weft_free(score);
    return rc;
}

int weft_rewards_call(struct weft_rewards *rewards, int32_t n,
                      const struct weft_reward_sample *sample,
                      double (*part)[WEFT_MAX_REWARDS], struct weft_err *err)
{
    int rc = 0;
    for (int32_t k = 0; k < rewards->n && !rc; k++)
        if (rewards->config[k].type == WEFT_REWARD_CALLBACK)
            rc = by_callback(rewards, k, n, sample, part, err);
    return rc;
}

static int compute_one(struct weft_rewards *r, int32_t which, int32_t i,
                       const struct weft_reward_sample *sample, double *out,
                       struct weft_err *err)
{
    const struct weft_reward_config *c = &r->config[which];
    bool yes = false;
    int rc = 0;
    switch (c->type) {
    case WEFT_REWARD_GSM8K:
        rc = needs_label(c, i, sample, err);
        if (!rc)
            yes = weft_reward_gsm8k(sample->response, sample->label,
                                    strcmp(c->method, "flexible") == 0);
        break;
    case WEFT_REWARD_EXACT:
        rc = needs_label(c, i, sample, err);
        if (!rc)
            yes = weft_reward_exact(sample->response, sample->label);
        break;
    case WEFT_REWARD_BOXED:
        rc = needs_label(c, i, sample, err);
        if (!rc)
            rc = weft_reward_boxed(sample->response, sample->label, &yes);
        if (rc == WEFT_ENOMEM)
            rc = weft_err_nomem(err, c->name, sample->response.n);
        break;
    case WEFT_REWARD_LENGTH:
        *out = weft_reward_length(sample->n_tokens, c->target, c->method);
        return 0;
    default: /* WEFT_REWARD_REGEX, WEFT_REWARD_THINK_ANSWER */
        yes = found(c, &r->state[which], sample->response);
        break;
    }
    *out = yes;
    return rc;
}

/* ---- Rules and programs, as samples come -------------------------------- */

static bool is_rule(enum weft_reward_type type)
{
    return type != WEFT_REWARD_MODEL && type != WEFT_REWARD_PROGRAM
        && type != WEFT_REWARD_CALLBACK;
}

bool weft_rewards_early(const struct weft_reward_config *config, int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        if (is_rule(config[k].type) || config[k].type == WEFT_REWARD_PROGRAM)
            return true;
    return false;
}

int weft_rewards_begin(struct weft_rewards *r, int32_t n,
                       const int32_t *order,
                       const struct weft_reward_sample *sample,
                       struct weft_err *err)
{
    struct weft_reward_batch *b = &r->batch;
    batch_release(b);
    *b = (struct weft_reward_batch){
        .n = n,
        .order = order,
        .sample = sample,
        .there = weft_alloc((size_t) n, sizeof *b->there),
        .ruled = weft_alloc((size_t) n, sizeof *b->ruled),
        .part = weft_alloc((size_t) n, sizeof *b->part)};
    if (!b->there || !b->ruled || !b->part) {
        batch_release(b);
        return weft_err_nomem(err, "rewards", (size_t) n * sizeof *b->part);
    }
    for (int32_t k = 0; k < r->n; k++)
        if (r->config[k].type == WEFT_REWARD_PROGRAM)
            weft_reward_program_begin(r->state[k].program, n);
    return 0;
}

static void ask(struct weft_rewards *r, int32_t i)
{
    for (int32_t k = 0; k < r->n; k++)
        if (r->config[k].type == WEFT_REWARD_PROGRAM)
            weft_reward_program_ask(r->state[k].program, i,
                                    &r->batch.sample[i]);
}

void weft_rewards_add(struct weft_rewards *r, int32_t i)
{
    struct weft_reward_batch *b = &r->batch;
    int rc = 0;
    b->there[i] = true;
    for (int32_t k = 0; k < r->n && !rc; k++)
        if (is_rule(r->config[k].type))
            rc = compute_one(r, k, i, &b->sample[i], &b->part[i][k], NULL);
    b->ruled[i] = rc == 0; /* else the end finds the first error */
    if (!b->order)
        ask(r, i);
    for (; b->order && b->n_asked < b->n && b->there[b->order[b->n_asked]];
         b->n_asked++)
        ask(r, b->order[b->n_asked]);
}

bool weft_rewards_move(struct weft_rewards *r)
{
    bool owes = false;
    for (int32_t k = 0; k < r->n; k++)
        if (r->config[k].type == WEFT_REWARD_PROGRAM)
            owes |= weft_reward_program_move(r->state[k].program);
    return owes;
}

/* The answers of a program. */
static int by_program(struct weft_rewards *r, int32_t which, int32_t n,
                      const int32_t *index, double (*part)[WEFT_MAX_REWARDS],
                      struct weft_err *err)
{
    double *score = weft_alloc((size_t) n, sizeof *score), busy_s = 0;
    if (!score)
        return weft_err_nomem(err, "scores", (size_t) n * sizeof *score);
    int rc = weft_reward_program_end(r->state[which].program, n, index, score,
                                     &busy_s, err);
    r->busy_s += busy_s;
    for (int32_t k = 0; k < n && !rc; k++)
        part[k][which] = score[k];
    weft_free(score);
    return rc;
}

static int by_rule(struct weft_rewards *r, int32_t which, int32_t n,
                   const int32_t *index, double (*part)[WEFT_MAX_REWARDS],
                   struct weft_err *err)
{
    const struct weft_reward_batch *b = &r->batch;
    int rc = 0;
    for (int32_t k = 0; k < n && !rc; k++)
        if (b->ruled[index[k]])
            part[k][which] = b->part[index[k]][which];
        else
            rc = compute_one(r, which, index[k], &b->sample[index[k]],
                             &part[k][which], err);
    return rc;
}

int weft_rewards_end(struct weft_rewards *rewards, int32_t n,
                     const int32_t *index, double (*part)[WEFT_MAX_REWARDS],
                     struct weft_err *err)
{
    int rc = 0;
    rewards->busy_s = 0;
    for (int32_t k = 0; k < n; k++)
        weft_assert(rewards->batch.there[index[k]]);
    for (int32_t k = 0; k < rewards->n && !rc; k++) {
        enum weft_reward_type type = rewards->config[k].type;
        if (type == WEFT_REWARD_PROGRAM)
            rc = by_program(rewards, k, n, index, part, err);
        else if (is_rule(type))
            rc = by_rule(rewards, k, n, index, part, err);
    }
    return rc;
}

double weft_rewards_busy_s(const struct weft_rewards *rewards)
{
    return rewards->busy_s;
}

struct weft_k_moments *weft_rewards_moments(struct weft_rewards *rewards,
                                            int32_t r)
{
    return &rewards->state[r].moments;
}

/* As weft_insert_reward_shape() does for models. */
static void shape(const struct weft_reward_config *c,
                  struct weft_k_moments *moments, int32_t which, int32_t n,
                  double (*part)[WEFT_MAX_REWARDS])
{
    bool normalize = c->normalize != WEFT_NORMALIZE_NONE;
    if (c->normalize == WEFT_NORMALIZE_BATCH)
        *moments = (struct weft_k_moments){.n = 0};
    for (int32_t i = 0; i < n && normalize; i++) {
        float x = (float) part[i][which];
        weft_k_moments_add(moments, 1, &x);
    }
    for (int32_t i = 0; i < n; i++)
        part[i][which] = weft_k_reward(normalize ? moments : NULL, -c->clip,
                                       c->clip, part[i][which]);
}

void weft_rewards_shape(struct weft_rewards *rewards, int32_t n,
                        double (*part)[WEFT_MAX_REWARDS])
{
    for (int32_t k = 0; k < rewards->n; k++)
        if (rewards->config[k].type != WEFT_REWARD_MODEL)
            shape(&rewards->config[k], &rewards->state[k].moments, k, n,
                  part);
}

double weft_rewards_sum(const struct weft_rewards *rewards,
                        const double part[WEFT_MAX_REWARDS])
{
    double sum = 0;
    for (int32_t k = 0; k < rewards->n; k++)
        if (rewards->config[k].type != WEFT_REWARD_MODEL)
            sum += (double) rewards->config[k].weight * part[k];
    return sum;
}
