/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways (rows) in which `weft verify` runs one job: layouts, micro-batches,
 * places, ranks, kinds of device. All on CPU devices must give the bits of the
 * first row, and all on GPUs those of the first row on a GPU, which must be
 * near that. The first algorithm runs all of them, the others a choice.
 */
#ifndef WEFT_VERIFY_ROWS_H
#define WEFT_VERIFY_ROWS_H

#include "base/dtype.h"
#include "base/err.h"
#include "config/schema.h"
#include "plan/layout.h"

/* A layout as in the key `layout`, on devices from `first` on. */
struct weft_verify_place {
    int32_t first;
    const char *layout;
};

/* A layout for each call: the first, second, ... of its kind in the order of
 * the graph; after the last comes the first again. */
struct weft_verify_mix {
    struct weft_verify_place generate[2], infer[3], train[2];
};

enum {
    WEFT_VERIFY_ALL = 1 << 8,       /* every algorithm runs the row ... */
    WEFT_VERIFY_ALL_QUICK = 1 << 9, /* ... also in a quick run, in f32 */
    WEFT_VERIFY_GPUS = 1 << 10,     /* devices are GPUs */
    WEFT_VERIFY_SHARED = 1 << 11    /* all ranks have one GPU together */
};

struct weft_verify_row {
    const char *name;
    int32_t ranks, devices; /* devices of each rank, of the row's kind */
    const char *words;      /* "key=value key=value"; NULL: none */
    const struct weft_verify_mix *mix; /* NULL: no plan file */
    unsigned flags; /* bit 1 << dtype: part of a quick run of the first
                       algorithm; and those above */
};

/* The i-th row, or NULL after the last. */
const struct weft_verify_row *weft_verify_row(size_t i);

/* How many GPUs of the machine it needs; 0: it has CPU devices. */
int32_t weft_verify_gpus(const struct weft_verify_row *row);
/* The row that a row's results are compared with. */
const struct weft_verify_row *weft_verify_reference(
    const struct weft_verify_row *row);

/* Whether an algorithm has the key of a word key=value. */
bool weft_verify_knows(const struct weft_config_algorithm *algorithm,
                       const char *word);
/* Sets the ranks and devices of a row: beside GPUs a rank has a CPU device. */
void weft_verify_nodes(const struct weft_verify_row *row,
                       struct weft_plan_needs *out);
/* The plan of a row that has a mix. It fails only if the table has a bug. */
int weft_verify_plan(const struct weft_verify_row *row,
                     const struct weft_dataflow *flow, struct weft_plan *out,
                     struct weft_err *err);

/* A row with an algorithm and a data type: one run. */
struct weft_verify_case {
    const struct weft_verify_row *row;
    const struct weft_config_algorithm *algorithm;
    enum weft_dtype dtype;
};

/* Whether a case is one of the matrix: the algorithm has the row's keys, and
 * is to run the whole matrix, or the row is every algorithm's. */
bool weft_verify_has(const struct weft_verify_case *c, bool whole);
/* The same in a quick run. */
bool weft_verify_is_quick(const struct weft_verify_case *c, bool whole);
/* Writes "ppo/f32/tp2"; returns out. */
const char *weft_verify_label(const struct weft_verify_case *c, char out[96]);
/* Whether the label, or the part after the algorithm or the data type, matches
 * a shell pattern; NULL: any. */
bool weft_verify_matches(const struct weft_verify_case *c,
                         const char *pattern);

#endif
