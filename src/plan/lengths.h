/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long responses are, where a run is only described: a distribution of
 * lengths, from which each sample's is drawn by its number.
 */
#ifndef WEFT_PLAN_LENGTHS_H
#define WEFT_PLAN_LENGTHS_H

#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_lengths {
    enum weft_lengths_kind {
        WEFT_LENGTHS_MOST,      /* all as long as allowed */
        WEFT_LENGTHS_FIXED,     /* a */
        WEFT_LENGTHS_UNIFORM,   /* a to b */
        WEFT_LENGTHS_LOGNORMAL, /* median a, deviation b of the logarithm */
        WEFT_LENGTHS_SPREAD,    /* from a to b with that mean, uniform on both
                                   sides of it */
        WEFT_LENGTHS_GIVEN      /* any of those given, with equal chance */
    } kind;
    double a, b, mean;
    int32_t *given; /* (n) */
    int64_t n;
};

/* Reads "max", "fixed:N", "uniform:A:B", "lognormal:MEDIAN:SIGMA", or the name
 * of a file: a run's metrics.jsonl, of whose last iteration least, mean and
 * most are taken, or numbers of tokens, one a line. Release it. Errors:
 * WEFT_EINVAL, a sentence with the text or with file and line; those of reading
 * a file. */
int weft_lengths_read(const char *text, struct weft_lengths *out,
                      struct weft_err *err);
void weft_lengths_release(struct weft_lengths *lengths);

/* How many of the lengths given, or of the one that all have, exceed `most`,
 * which they then count as; *n_out: of how many. */
int64_t weft_lengths_above(const struct weft_lengths *lengths, int32_t most,
                           int64_t *n_out);

/* Tokens of a response, 1 to `most`: the same for the same numbers. */
int32_t weft_lengths_draw(const struct weft_lengths *lengths, uint64_t seed,
                          int32_t iteration, int64_t sample, int32_t most);

#ifdef __cplusplus
}
#endif
#endif
