/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of bench/papers_table: what a paper measured, and what is predicted.
 * They are added to the file that the environment variable PAPERS_ROWS names;
 * where it names none there are none. A failure ends the program. */
#ifndef WEFT_BENCH_ROWS_H
#define WEFT_BENCH_ROWS_H

#include <stdio.h>
#include <stdlib.h>

/* calibrated: a cell that a number was fitted on; flagged: the paper's own
 * numbers do not agree; order: published and predicted are 1 for yes, 0 for no,
 * of an order, a range or a limit; more: a plan of the paper and one that its
 * system could not have, both predicted; point: of a curve, percent above the
 * best (predicted) of a search of so many evaluations (published). */
enum row_kind {
    ROW_PREDICTED,
    ROW_CALIBRATED,
    ROW_FLAGGED,
    ROW_ORDER,
    ROW_MORE,
    ROW_POINT,
    N_ROW_KINDS
};
static const char *const row_kind_name[N_ROW_KINDS] = {
    "predicted", "calibrated", "flagged", "order", "more", "point"};

struct row {
    enum row_kind kind;
    /* unit: "s", "samples/s", "times", ...; why it is missed or flagged, if
     * that is known: NULL or "" if not. No tabs in any of them. */
    const char *paper, *setting, *what, *unit;
    double published, predicted;
    const char *why;
};

static inline void add_row(const struct row *r)
{
    const char *path = getenv("PAPERS_ROWS");
    if (!path)
        return;
    FILE *f = fopen(path, "a");
    if (f)
        fprintf(f, "%s\t%s\t%s\t%s\t%s\t%.6g\t%.6g\t%s\n",
                row_kind_name[r->kind], r->paper, r->setting, r->what,
                r->unit, r->published, r->predicted, r->why ? r->why : "");
    if (!f || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

#endif
