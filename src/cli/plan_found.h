/* SPDX-License-Identifier: Apache-2.0 */
/* What weft plan finds by simulation: the fastest plan, the table of all
 * placements, and the largest batch. Progress goes to stderr, results to
 * stdout. */
#ifndef WEFT_CLI_PLAN_FOUND_H
#define WEFT_CLI_PLAN_FOUND_H

#include "cli/planned.h"
#include "plan/costs_file.h"
#include "plan/search/search.h"

struct weft_cli_plan_options {
    struct weft_cli_planned plan;
    const char *output, *explain, *svg, *cluster, *lengths, *scale, *batch;
    const struct weft_costs_file *costs; /* of the cluster; NULL: none */
    bool json, graph, gangs, compare, search, no_search;
    /* of the search, the last two in thousands; -1: not given */
    int32_t seed, evaluations, branches;
    int32_t time_limit; /* seconds; 0: not given */
    int32_t recording;  /* MiB of one that prices a layout; 0: not given */
    int32_t restarts, threads;     /* 0: not given */
    const char *method;            /* NULL: not given */
    enum weft_search_method which; /* that is */
};

/* Whether memory is counted by instructions of tp groups. */
bool weft_cli_by_gangs(const struct weft_cli_plan_options *o,
                       const struct weft_plan *plan);
/* Prints a line of its own beside the table, or beside JSON. */
void weft_cli_tell(const struct weft_cli_plan_options *o, const char *what);

/* Where a plan of a cluster, whose memory is set, exceeds a device, prints so,
 * and what would do. Errors: those of weft_lengths_read(). */
int weft_cli_tell_shortage(const struct weft_cli_plan_options *o,
                           const struct weft_cluster *cluster,
                           const struct weft_config *config,
                           const struct weft_plan_needs *needs,
                           const struct weft_plan *plan,
                           struct weft_err *err);
/* Prints what a checked plan takes as the search would say it, in a second or
 * two whatever the number of devices. Errors: those of weft_run_weigh(),
 * weft_lengths_read(). */
int weft_cli_weigh(const struct weft_cli_plan_options *o,
                   const struct weft_cluster *cluster,
                   const struct weft_config *config,
                   const struct weft_plan_needs *needs,
                   struct weft_plan *plan, struct weft_err *err);

/* Searches for a plan, and writes it to o->output. Release it with
 * weft_plan_release(), also after an error. Errors: those of weft_run_find(),
 * weft_lengths_read(), weft_cli_plan(), weft_plan_write(). */
int weft_cli_search(const struct weft_cli_plan_options *o,
                    const struct weft_cluster *cluster,
                    struct weft_config *config, struct weft_plan *out,
                    struct weft_err *err);
/* Prints the table of all placements, and draws it to o->svg. Errors: those of
 * weft_run_compare(), weft_lengths_read(), weft_cli_plan(). */
int weft_cli_compare(const struct weft_cli_plan_options *o,
                     const struct weft_cluster *cluster,
                     struct weft_config *config, struct weft_err *err);
/* Prints the best of all placements on 1, 2, 4, ... times the first number of
 * devices of o->scale, and draws it to o->svg. Errors: as weft_cli_compare();
 * WEFT_EINVAL, the cluster has several kinds of nodes, or no whole nodes of a
 * size. */
int weft_cli_scale(const struct weft_cli_plan_options *o,
                   const struct weft_cluster *cluster,
                   struct weft_config *config, struct weft_err *err);
/* Reads "8..1024". */
bool weft_cli_scale_sizes(const char *text, int32_t *first, int32_t *last);
/* Prints the largest batch of the plan, whose memory is that batch's then.
 * Errors: those of weft_run_largest_batch(); WEFT_EINVAL, nothing says what
 * memory a device has. */
int weft_cli_batch(const struct weft_cli_plan_options *o,
                   const struct weft_config *config, double device_bytes,
                   struct weft_plan *plan, struct weft_err *err);

#endif
