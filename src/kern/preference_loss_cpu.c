/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses over chosen and rejected responses: pairs (DPO, SLiC, IPO), single
 * responses (KTO), and pairs of a reward model's scores. They work on a few
 * numbers per response, in double: only what comes from tokens and goes back
 * to them is f32.
 */
#include "kern/kern.h"

#include <math.h>

struct term {
    double value, slope;
};

/* -log sigmoid(x), which never overflows, and its derivative. */
static struct term minus_log_sigmoid(double x)
{
    double e = exp(-fabs(x));
    return (struct term){log1p(e) + (x < 0 ? -x : 0),
                         -(x < 0 ? 1 : e) / (1 + e)};
}

/* sigmoid(x) and its derivative. */
static struct term sigmoid(double x)
{
    double e = exp(-fabs(x)), s = (x < 0 ? e : 1) / (1 + e);
    return (struct term){s, e / ((1 + e) * (1 + e))};
}

static double sum(int32_t n, const float *x)
{
    double total = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double) x[i];
    return total;
}

double weft_k_log_ratio(int32_t n, const float *logp, const float *ref_logp)
{
    return sum(n, logp) - sum(n, ref_logp);
}

/* ---- Pairs ------------------------------------------------------------- */

/* The loss as a function of h. */

/* (1 - s) l(beta h) + s l(-beta h) with l = -log sigmoid; of the mix that is
 * unbiased under flipped labels s is replaced by -s / (1 - 2 s), as
 * (1 - s) / (1 - 2 s) = 1 + s / (1 - 2 s). */
static struct term mixed(double beta, double s, double h)
{
    struct term right = minus_log_sigmoid(beta * h);
    struct term wrong = minus_log_sigmoid(-beta * h);
    return (struct term){(1 - s) * right.value + s * wrong.value,
                         beta * ((1 - s) * right.slope - s * wrong.slope)};
}

static struct term pair_term(const struct weft_k_pairs *p, double h)
{
    double beta = (double) p->beta, s = (double) p->label_smoothing, e;
    switch (p->kind) {
    case WEFT_PAIR_ROBUST:
        return mixed(beta, -s / (1 - 2 * s), h);
    case WEFT_PAIR_HINGE:
        e = 1 - beta * h;
        return e > 0 ? (struct term){e, -beta} : (struct term){0, 0};
    case WEFT_PAIR_IPO:
        e = h - 1 / (2 * beta);
        return (struct term){e * e, 2 * e};
    default:
        return mixed(beta, s, h);
    }
}

/* L - L_ref of a response, as sums over its tokens. */
static double log_ratio(const struct weft_k_pairs *p,
                        const struct weft_k_response *r)
{
    return p->reference_free ? sum(r->n, r->logp)
                             : weft_k_log_ratio(r->n, r->logp, r->ref_logp);
}

static void put_gradient(const struct weft_k_response *r, double slope)
{
    for (int32_t i = 0; i < r->n; i++)
        r->dlogp[i] = (float) slope;
}

static void count_chosen(const struct weft_k_response *r, double reward)
{
    r->stat[WEFT_PSTAT_CHOSEN] += 1;
    r->stat[WEFT_PSTAT_CHOSEN_REWARD] += reward;
    r->stat[WEFT_PSTAT_CHOSEN_LOGP] += sum(r->n, r->logp);
    r->stat[WEFT_PSTAT_TOKENS] += r->n;
}

static void count_rejected(const struct weft_k_response *r, double reward)
{
    r->stat[WEFT_PSTAT_REJECTED] += 1;
    r->stat[WEFT_PSTAT_REJECTED_REWARD] += reward;
    r->stat[WEFT_PSTAT_REJECTED_LOGP] += sum(r->n, r->logp);
    r->stat[WEFT_PSTAT_TOKENS] += r->n;
}

static void count_pair(double *stat, double margin)
{
    stat[WEFT_PSTAT_MARGIN] += margin;
    stat[WEFT_PSTAT_ACCURACY] += margin > 0;
}

void weft_k_pair_loss(const struct weft_k_pairs *p, float w,
                      const struct weft_k_response *chosen,
                      const struct weft_k_response *rejected)
{
    double c = log_ratio(p, chosen), r = log_ratio(p, rejected);
    double c_tokens = p->length_normalised ? chosen->n : 1;
    double r_tokens = p->length_normalised ? rejected->n : 1;
    struct term loss = pair_term(p, c / c_tokens - r / r_tokens);
    double slope = (double) w * loss.slope, beta = (double) p->beta;

    put_gradient(chosen, slope / c_tokens);
    put_gradient(rejected, -slope / r_tokens);
    chosen->stat[WEFT_PSTAT_LOSS] += (double) w * loss.value;
    count_chosen(chosen, beta * c);
    count_rejected(rejected, beta * r);
    count_pair(chosen->stat, beta * c - beta * r);
}

/* ---- KTO --------------------------------------------------------------- */

double weft_k_kto_kl(int32_t n, double sum_of_log_ratios)
{
    double mean = sum_of_log_ratios / n;
    return mean < 0 ? 0 : mean;
}

void weft_k_kto_loss(const struct weft_k_kto *k, float w, bool is_desirable,
                     double kl, const struct weft_k_response *r)
{
    double beta = (double) k->beta;
    double ratio = weft_k_log_ratio(r->n, r->logp, r->ref_logp);
    double sign = is_desirable ? 1 : -1;
    double weight = (double) w
                  * (double) (is_desirable ? k->desirable : k->undesirable);
    /* 1 - sigmoid(x) = sigmoid(-x) */
    struct term s = sigmoid(-sign * beta * (ratio - kl));

    put_gradient(r, -weight * sign * beta * s.slope);
    r->stat[WEFT_PSTAT_LOSS] += weight * s.value;
    (is_desirable ? count_chosen : count_rejected)(r, beta * ratio);
}

/* ---- Scores ------------------------------------------------------------ */

void weft_k_bradley_terry(float center, float w, float margin,
                          const float score[2], float dscore[2],
                          double *const stat[2])
{
    double c = (double) score[0], r = (double) score[1], both = c + r;
    struct term loss = minus_log_sigmoid(c - r - (double) margin);
    double pull = 2 * (double) center * both;

    dscore[0] = (float) ((double) w * (loss.slope + pull));
    dscore[1] = (float) ((double) w * (pull - loss.slope));
    stat[0][WEFT_PSTAT_LOSS] += (double) w
                              * (loss.value + (double) center * both * both);
    stat[0][WEFT_PSTAT_CHOSEN] += 1;
    stat[0][WEFT_PSTAT_CHOSEN_REWARD] += c;
    stat[1][WEFT_PSTAT_REJECTED] += 1;
    stat[1][WEFT_PSTAT_REJECTED_REWARD] += r;
    count_pair(stat[0], c - r);
}
