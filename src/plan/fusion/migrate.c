/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fusion/migrate.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/min_tree.h"

double weft_migrate_decode_s(const struct weft_migrate_costs *c, int32_t n,
                             double n_tokens)
{
    int64_t keys = (int64_t) n_tokens;
    return c->step_s(c->ctx, &(struct weft_work_rows){n, n, keys, keys - n});
}

/* Of a step that reads n tokens behind others of a sample. */
static double part_s(const struct weft_migrate_costs *c, int32_t before,
                     int32_t n, bool draws)
{
    struct weft_work_rows rows = {.n_targets = draws};
    weft_work_rows_add(&rows, before, n);
    return c->step_s(c->ctx, &rows);
}

double weft_migrate_read_s(const struct weft_migrate_costs *c,
                           int32_t n_tokens)
{
    double sum = 0;
    int32_t n;
    for (int32_t at = 0; at < n_tokens; at += n) {
        n = n_tokens - at;
        if (c->read_rows > 0)
            n = weft_min32(n, c->read_rows);
        sum += part_s(c, at, n, at + n == n_tokens);
    }
    return sum;
}

int32_t weft_migrate_most_batch(const struct weft_migrate_costs *c,
                                double tokens_each, int32_t most)
{
    double limit = WEFT_MIGRATE_SLOWER
                 * weft_migrate_decode_s(c, 1, tokens_each);
    int32_t n = most;
    while (n > 1 && weft_migrate_decode_s(c, n, n * tokens_each) > limit)
        n--;
    return n > 1 ? n : 1;
}

int32_t weft_migrate_expect(int32_t n, const int32_t *seen, int32_t has,
                            int32_t most, double quantile)
{
    int32_t first = 0, end = n;
    while (first < end) { /* the first that is longer */
        int32_t middle = first + (end - first) / 2;
        if (seen[middle] > has)
            end = middle;
        else
            first = middle + 1;
    }
    int32_t longer = n - first;
    if (longer * (1 - quantile) < 1 - 1e-9)
        return most;
    int32_t below = (int32_t) ceil(quantile * longer - 1e-9);
    int32_t length = seen[first + (below > 0 ? below - 1 : 0)];
    return length < most ? length : most;
}

int weft_migrate_fewest(int32_t n_left, int32_t most_batch,
                        double sample_bytes, double memory_bytes,
                        int32_t *out, struct weft_err *err)
{
    if (sample_bytes > memory_bytes)
        return weft_err_set(
            err, WEFT_EINVAL,
            "the KV cache of one sample takes %.3f GB, and an instance has "
            "%.3f GB for it; lower rollout.max_new_tokens, or give instances "
            "more devices",
            1e-9 * sample_bytes, 1e-9 * memory_bytes);
    int64_t by_batch = weft_ceil_div(n_left, most_batch);
    int64_t by_bytes = (int64_t) ceil(n_left * sample_bytes / memory_bytes);
    *out = (int32_t) weft_max64(weft_max64(by_batch, by_bytes), 1);
    return 0;
}

/* How many instances have so many samples left, or more. */
static int32_t count_with(int32_t n_instances, const int32_t *n_left_of,
                          int32_t n_left)
{
    int32_t n = 0;
    for (int32_t i = 0; i < n_instances; i++)
        n += n_left_of[i] >= n_left;
    return n;
}

void weft_migrate_stay(int32_t n_instances, const int32_t *n_left_of,
                       int32_t n_stay, bool *stays_out)
{
    int32_t least = -1, more = 0; /* who stays has from least to below more */
    weft_assert(n_stay <= n_instances);
    for (int32_t i = 0; i < n_instances; i++)
        more = weft_max32(more, n_left_of[i] + 1);
    while (more - least > 1) {
        int32_t middle = least + (more - least) / 2;
        bool many = count_with(n_instances, n_left_of, middle) >= n_stay;
        *(many ? &least : &more) = middle;
    }
    /* those that have just the least stay as far as there is need for them */
    int32_t rest = n_stay - count_with(n_instances, n_left_of, least + 1);
    for (int32_t i = 0; i < n_instances; i++)
        stays_out[i] = n_left_of[i] > least
                    || (n_left_of[i] == least && rest-- > 0);
}

/* ---- Dealing ------------------------------------------------------------ */

struct moved {
    int32_t rest, index;
};

static int by_rest(const void *a, const void *b)
{
    const struct moved *x = a, *y = b;
    if (x->rest != y->rest)
        return x->rest > y->rest ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static double tokens_of(const struct weft_migrate_left *left)
{
    return (double) left->prompt + left->expected;
}

int weft_migrate_deal(int32_t n_instances, const bool *stays, int32_t n_left,
                      const struct weft_migrate_left *left,
                      int32_t most_batch, double most_tokens, int32_t *to_out,
                      bool *fits_out, struct weft_err *err)
{
    struct moved *moved = weft_alloc((size_t) n_left, sizeof *moved);
    int32_t *count = weft_alloc((size_t) n_instances, sizeof *count);
    double *tokens = weft_alloc((size_t) n_instances, sizeof *tokens);
    struct weft_min_tree
        open; /* tokens of those that can take more samples */
    int32_t n = 0;
    int rc = weft_min_tree_init(&open, (size_t) n_instances);
    if (rc || !moved || !count || !tokens)
        rc = weft_err_nomem(err, "samples that move",
                            (size_t) n_left * sizeof *moved);
    for (int32_t s = 0; s < n_left && !rc; s++) {
        const struct weft_migrate_left *l = &left[s];
        to_out[s] = stays[l->instance] ? l->instance : -1;
        if (to_out[s] < 0) {
            moved[n++] = (struct moved){l->expected - l->has, s};
            continue;
        }
        count[to_out[s]]++;
        tokens[to_out[s]] += tokens_of(l);
    }
    if (!rc) {
        qsort(moved, (size_t) n, sizeof *moved, by_rest);
        *fits_out = true;
    }
    for (int32_t i = 0; i < n_instances && !rc; i++)
        if (stays[i] && count[i] < most_batch)
            weft_min_tree_set(&open, i, tokens[i]);
    for (int32_t k = 0; k < n && !rc; k++) {
        int32_t s = moved[k].index;
        double least = weft_min_tree_least(&open), more = tokens_of(&left[s]);
        to_out[s] = -1;
        if (isinf(least) || least + more > most_tokens) {
            *fits_out = false;
            continue;
        }
        int32_t best = to_out[s] = weft_min_tree_first(&open, least);
        weft_min_tree_set(&open, best,
                          ++count[best] < most_batch ? least + more
                                                     : INFINITY);
    }
    weft_min_tree_release(&open);
    weft_free(moved);
    weft_free(count);
    weft_free(tokens);
    return rc;
}

static double copy_s(const struct weft_migrate_costs *c, int32_t n_tokens)
{
    return c->token_bytes * n_tokens / c->link_bytes_per_s;
}

bool weft_migrate_reads(const struct weft_migrate_costs *c, int32_t n_tokens)
{
    return weft_migrate_read_s(c, n_tokens) < copy_s(c, n_tokens);
}

int32_t weft_migrate_cached(const struct weft_migrate_costs *c, int32_t most,
                            struct weft_migrate_range *out)
{
    int32_t n = 0, read = 0; /* tokens of whole steps, which take read_s */
    double read_s = 0;
    bool before = false;
    for (int32_t k = 1; k <= most; k++) {
        if (c->read_rows > 0 && k - read > c->read_rows) {
            read_s += part_s(c, read, c->read_rows, false);
            read += c->read_rows;
        }
        bool cached = read_s + part_s(c, read, k - read, true)
                   >= copy_s(c, k);
        if (cached && !before && n < WEFT_MIGRATE_RANGES)
            out[n++].first = k;
        if (cached)
            out[n - 1].last = k;
        before = cached;
    }
    return n;
}

int32_t weft_migrate_keep(int32_t n, const int32_t *seen, int32_t *out)
{
    int32_t kept = weft_min32(n, WEFT_MIGRATE_SEEN);
    for (int32_t k = 0; k < kept; k++)
        out[k] = seen[(int64_t) (k + 1) * n / kept - 1];
    return kept;
}

/* ---- All of it ---------------------------------------------------------- */

/* Tokens of the samples in the end: the mean, and the most. */
static void expected_tokens(int32_t n_left,
                            const struct weft_migrate_left *left,
                            double *mean_out, double *most_out)
{
    *mean_out = *most_out = 0;
    for (int32_t s = 0; s < n_left; s++) {
        double tokens = tokens_of(&left[s]);
        *mean_out += tokens / n_left;
        *most_out = tokens > *most_out ? tokens : *most_out;
    }
}

int weft_migrate_decide(const struct weft_migrate_costs *c,
                        int32_t n_instances, const bool *among,
                        const bool *beside, int32_t n_left,
                        const struct weft_migrate_left *left,
                        int32_t instances, struct weft_migrate_decision *out,
                        struct weft_err *err)
{
    double mean, most, room = c->memory_bytes / c->token_bytes;
    int32_t n = 0, n_among = n_instances, *n_left_of;
    bool fits = false;
    out->n_stay = 0;
    if (n_left == 0)
        return 0;
    expected_tokens(n_left, left, &mean, &most);
    out->most_batch = c->most_batch > 0
                        ? c->most_batch
                        : weft_migrate_most_batch(c, mean, n_left);
    int rc = weft_migrate_fewest(n_left, out->most_batch,
                                 most * c->token_bytes, c->memory_bytes, &n,
                                 err);
    if (rc)
        return rc;
    n_left_of = weft_alloc((size_t) n_instances, sizeof *n_left_of);
    if (!n_left_of)
        return weft_err_nomem(err, "instances", (size_t) n_instances * 4);
    for (int32_t i = 0; i < n_instances && among; i++) {
        n_left_of[i] = among[i] ? 0 : -1;
        n_among -= !among[i];
    }
    for (int32_t s = 0; s < n_left; s++) {
        weft_assert(!among || among[left[s].instance]);
        n_left_of[left[s].instance]++;
    }
    for (int32_t i = 0; i < n_instances && beside; i++)
        n_left_of[i] += n_left_of[i] >= 0 && beside[i] ? n_left + 1 : 0;
    for (n = n > instances ? n : instances; n < n_among && !rc; n++) {
        weft_migrate_stay(n_instances, n_left_of, n, out->stays);
        rc = weft_migrate_deal(n_instances, out->stays, n_left, left,
                               out->most_batch, room, out->to, &fits, err);
        if (fits)
            break;
    }
    weft_free(n_left_of);
    if (rc || !fits)
        return rc;
    out->n_stay = n;
    for (int32_t s = 0; out->reads && s < n_left; s++)
        out->reads[s] = weft_migrate_reads(c, left[s].prompt + left[s].has);
    return 0;
}
