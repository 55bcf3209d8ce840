/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fusion/bound.h"

#include <math.h>

#include "base/alloc.h"

/* Tokens are taken in blocks, each as long as its shortest text: so many. */
enum { BLOCKS = 128 };
/* Prices of a sample's time: 0, and powers of the fourth root of 2 from 1 / 256
 * to 256. */
enum { PRICES = 66, PRICE_1 = 33 };

struct bound {
    const struct weft_overlap_job *job;
    int32_t longest; /* text of a sample */
    int32_t least;   /* text that is decoded, or inferred, of any sample */
    int32_t block;   /* tokens of one */
    double price[PRICES];
    double *one_s;    /* (longest + 1) of decoding up to so many, alone */
    double *priced_s; /* (PRICES, longest + 1) the sums above */
    double *read_s;   /* (blocks) of reading such a prompt */
    double
        *infer_s; /* (blocks) of inferring such a text, the slowest model */
    double infer_work; /* of all models and samples */
};

static int32_t text_of(const struct weft_overlap_sample *s)
{
    return s->prompt + s->length;
}

/* ---- Tables ------------------------------------------------------------- */

static double price(int k)
{
    return k == 0 ? 0 : exp2((k - PRICE_1) / 4.0);
}

/* Sizes of batches from `b` on are taken to be as fast as b, and to have one
 * less than the next of these samples; of up to 512 each is by itself. */
static int32_t next_size(int32_t b)
{
    return b + 1 + b / 512;
}

/* A step of b samples, one of which has so many tokens. */
static double step_s(const struct bound *x, int32_t b, double tokens)
{
    const struct weft_migrate_costs *c = x->job->costs;
    double all = tokens + (b - 1.0) * x->least;
    if (b > 1 && all * c->token_bytes > c->memory_bytes)
        return INFINITY;
    return weft_migrate_decode_s(c, b, all);
}

static void sum_steps(struct bound *x)
{
    size_t stride = (size_t) x->longest + 1;
    double at[PRICES] = {0}, one = 0;
    for (int32_t t = 1; t <= x->longest; t++) {
        if ((t - 1) % x->block == 0) {
            double tokens = weft_max32(t, x->least);
            for (int k = 0; k < PRICES; k++)
                at[k] = INFINITY;
            one = INFINITY;
            for (int32_t b = 1, n; b <= x->job->n_samples; b = n) {
                double s = step_s(x, b, tokens);
                n = next_size(b);
                one = fmin(one, s);
                for (int k = 0; k < PRICES; k++)
                    at[k] = fmin(at[k], s * (1.0 / (n - 1) + x->price[k]));
            }
        }
        x->one_s[t] = x->one_s[t - 1] + one;
        for (int k = 0; k < PRICES; k++) {
            double *sum = x->priced_s + (size_t) k * stride;
            sum[t] = sum[t - 1] + at[k];
        }
    }
}

/* Reads a prompt by itself, at once: then it has its first token. */
static double read_s(const struct weft_overlap_job *job, int32_t tokens)
{
    const struct weft_migrate_costs *c = job->costs;
    struct weft_work_rows rows = {.n_targets = 1};
    if (job->shares_prefixes)
        weft_work_rows_add(&rows, tokens - 1, 1);
    else
        weft_work_rows_add(&rows, 0, tokens);
    return c->step_s(c->ctx, &rows);
}

/* For a text of each block: reading it, and the model that infers it
 * slowest. */
static void fill_blocks(struct bound *x)
{
    const struct weft_overlap_job *job = x->job;
    const struct weft_migrate_costs *c = job->costs;
    for (int32_t k = 0; k * x->block < x->longest + 1; k++) {
        int32_t tokens = weft_max32(1, k * x->block);
        x->read_s[k] = read_s(job, tokens);
        x->infer_s[k] = 0;
        for (int32_t j = 0; j < job->n_models; j++) {
            double s = INFINITY;
            for (int32_t b = 1; b <= job->n_samples; b = next_size(b)) {
                double all = tokens + (b - 1.0) * x->least;
                if (b == 1 || all <= job->micro_tokens)
                    s = fmin(s, job->infer_s(c->ctx, j, b, all));
            }
            x->infer_s[k] = fmax(x->infer_s[k], s);
        }
    }
}

/* The least seconds for a token, of any micro-batch; tokens: of all samples. */
static double token_s(const struct bound *x, int32_t model, double tokens)
{
    const struct weft_overlap_job *job = x->job;
    double most = fmin(fmax(job->micro_tokens, x->longest), tokens);
    double best = INFINITY, at = x->least;
    while (at <= most) {
        double next = fmax(at + 1, floor(at * 1.01));
        int32_t n = (int32_t) ceil(at / x->longest);
        for (; n <= job->n_samples && n * x->least < next; n++)
            best = fmin(best, job->infer_s(job->costs->ctx, model, n, at)
                                  / fmin(next - 1, most));
        at = next;
    }
    return best;
}

static int bound_init(struct bound *x, const struct weft_overlap_job *job,
                      struct weft_err *err)
{
    double tokens = 0;
    *x = (struct bound){.job = job, .least = text_of(&job->sample[0])};
    for (int k = 0; k < PRICES; k++)
        x->price[k] = price(k);
    for (int32_t s = 0; s < job->n_samples; s++) {
        const struct weft_overlap_sample *at = &job->sample[s];
        x->longest = weft_max32(x->longest, text_of(at));
        x->least = weft_min32(x->least, at->prompt + 1);
        tokens += text_of(at);
    }
    x->block = (int32_t) weft_ceil_div(x->longest + 1, BLOCKS);
    size_t n = (size_t) x->longest + 1;
    x->one_s = weft_alloc(n, sizeof *x->one_s);
    x->priced_s = weft_alloc(n, PRICES * sizeof *x->priced_s);
    x->read_s = weft_alloc(BLOCKS, 2 * sizeof *x->read_s);
    if (!x->one_s || !x->priced_s || !x->read_s)
        return weft_err_nomem(err, "a bound", n * PRICES * 8);
    x->infer_s = x->read_s + BLOCKS;
    sum_steps(x);
    fill_blocks(x);
    for (int32_t j = 0; j < job->n_models; j++)
        x->infer_work += tokens * token_s(x, j, tokens);
    return 0;
}

static void bound_release(struct bound *x)
{
    weft_free(x->one_s);
    weft_free(x->priced_s);
    weft_free(x->read_s);
}

/* ---- Whether so many seconds may be enough ------------------------------- */

/* What a sample takes but for tokens after its first. */
static double rest_s(const struct bound *x,
                     const struct weft_overlap_sample *s)
{
    return x->read_s[s->prompt / x->block]
         + x->infer_s[text_of(s) / x->block];
}

static double alone_s(const struct bound *x,
                      const struct weft_overlap_sample *s)
{
    return x->one_s[text_of(s) - 1] - x->one_s[s->prompt];
}

/* The work of its other tokens in so many seconds. */
static double work_s(const struct bound *x,
                     const struct weft_overlap_sample *s, double seconds)
{
    double best = 0;
    for (int k = 0; k < PRICES; k++) {
        const double *sum = x->priced_s + k * ((size_t) x->longest + 1);
        best = fmax(best, sum[text_of(s) - 1] - sum[s->prompt]
                              - x->price[k] * seconds);
    }
    return best;
}

static bool may_do(const struct bound *x, double seconds)
{
    double work = x->infer_work;
    for (int32_t i = 0; i < x->job->n_samples; i++) {
        const struct weft_overlap_sample *s = &x->job->sample[i];
        work += work_s(x, s, seconds - rest_s(x, s));
    }
    return work <= seconds * x->job->n_instances;
}

int weft_overlap_bound(const struct weft_overlap_job *job, double *out,
                       struct weft_err *err)
{
    struct bound x;
    double least = 0, most;
    *out = 0;
    if (job->n_samples == 0)
        return 0;
    int rc = bound_init(&x, job, err);
    for (int32_t i = 0; i < job->n_samples && !rc; i++)
        least = fmax(least, rest_s(&x, &job->sample[i])
                                + alone_s(&x, &job->sample[i]));
    most = least;
    while (!rc && !may_do(&x, most))
        most *= 2;
    while (!rc && most - least > 1e-6 * most && !may_do(&x, least)) {
        double middle = (least + most) / 2;
        *(may_do(&x, middle) ? &most : &least) = middle;
    }
    bound_release(&x);
    if (!rc)
        *out = least;
    return rc;
}

int weft_overlap_work(const struct weft_overlap_job *job, double *out,
                      struct weft_err *err)
{
    struct bound x;
    *out = 0;
    if (job->n_samples == 0)
        return 0;
    int rc = bound_init(&x, job, err);
    for (int32_t i = 0; i < job->n_samples && !rc; i++)
        *out += x.priced_s[text_of(&job->sample[i]) - 1]
              - x.priced_s[job->sample[i].prompt];
    bound_release(&x);
    return rc;
}
