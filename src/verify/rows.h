/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways (rows) in which `weft verify` runs one job: layouts, micro-batches,
 * places, ranks. All must give the same bits; the first row is the reference.
 */
#ifndef WEFT_VERIFY_ROWS_H
#define WEFT_VERIFY_ROWS_H

#include "base/dtype.h"
#include "base/err.h"
#include "plan/layout.h"

/* A layout for each call, in the order of PPO's graph, written as in the
 * key `layout`; it uses devices from `first` on. */
struct weft_verify_mix {
    struct {
        int32_t first;
        const char *layout;
    } call[6];
};

struct weft_verify_row {
    const char *name;
    int32_t ranks, devices;            /* devices of each rank */
    const char *words;                 /* "key=value key=value"; NULL: none */
    const struct weft_verify_mix *mix; /* NULL: no plan file */
    unsigned quick; /* bit 1 << dtype: the row is part of a quick run */
};

/* The i-th row, or NULL after the last. */
const struct weft_verify_row *weft_verify_row(size_t i);

/* The plan of a row that has a mix. It fails only if the table has a bug. */
int weft_verify_plan(const struct weft_verify_row *row, struct weft_plan *out,
                     struct weft_err *err);

/* Writes "f32/tp2"; returns out. */
const char *weft_verify_label(const struct weft_verify_row *row,
                              enum weft_dtype dtype, char out[64]);
/* Whether the label, or the part after the dtype, matches a shell pattern;
 * NULL: any. */
bool weft_verify_matches(const struct weft_verify_row *row,
                         enum weft_dtype dtype, const char *pattern);

#endif
