/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules as files: JSON to execute and to read again, pictures, traces,
 * and a summary for terminals (doc/formats.md, doc/schedules.md).
 */
#ifndef WEFT_SCHEDULE_FILE_H
#define WEFT_SCHEDULE_FILE_H

#include "schedule/schedule.h"

/* A schedule as it ran beside its plan; times in the problem's unit. */
struct weft_schedule_comparison {
    double planned_makespan, makespan;
    double planned_bubble, bubble; /* share of the devices' time until then
                                      in which they do nothing */
    double planned_peak, peak; /* activation of any device, by the clock */
    double start_error,
        most_start_error; /* distances of starts: mean, most */
    bool in_order;        /* every device began its subtasks as planned */
};
/* `measured`: the same subtasks in the same places; one that did not run has
 * NAN for times. Errors: WEFT_ENOMEM. */
int weft_schedule_compare(const struct weft_schedule_problem *problem,
                          const struct weft_schedule *planned,
                          const struct weft_schedule *measured,
                          struct weft_schedule_comparison *out,
                          struct weft_err *err);

/* What is known about a schedule; NAN where a number is not. */
struct weft_schedule_report {
    enum weft_schedule_algorithm algorithm;
    double lower_bound;
    const char *argument; /* of the bound; NULL: none */
    double peak_bound;    /* at this makespan; 0: not known */
    double serial_1f1b, serial_peak_activation;
    double greedy;
    bool optimal, cut; /* proven; stopped before its budget was spent */
    uint64_t seed;
    int32_t restarts; /* 0: no search */
    int64_t evaluations;
    double seconds;    /* NAN: left out of the file */
    const char *title; /* of the picture; may be NULL */
    double until;      /* the picture's last moment; 0: the makespan */
    const struct weft_schedule *measured; /* goes into the file, with ... */
    const struct weft_schedule_comparison *comparison; /* both or neither */
};

/* The JSON of a schedule. NULL: no memory. Caller frees. */
char *weft_schedule_json(const struct weft_schedule_problem *problem,
                         const struct weft_schedule *schedule,
                         const struct weft_schedule_report *report);
int weft_schedule_write(const struct weft_schedule_problem *problem,
                        const struct weft_schedule *schedule,
                        const struct weft_schedule_report *report,
                        const char *path, struct weft_err *err);

/* A problem as weft_schedule_problem_read() reads it. */
int weft_schedule_problem_write(const struct weft_schedule_problem *problem,
                                const char *path, struct weft_err *err);

/* Reads a schedule of the problem and checks it against every rule; makespan
 * and peak are worked out, not read. Errors name the first entry that is
 * wrong. Release the schedule. */
int weft_schedule_read(const struct weft_schedule_problem *problem,
                       const char *path, struct weft_schedule *out,
                       struct weft_err *err);
/* Reads the devices' orders alone: the problem's times are not looked at, nor
 * those of the file, which become 0. Models whose number of micro-batches is 0
 * get the file's. Subtasks may be missing still (weft_schedule_time() tells).
 * Release the schedule. */
int weft_schedule_read_order(struct weft_schedule_problem *problem,
                             const char *path, struct weft_schedule *out,
                             struct weft_err *err);
/* Release the copy. */
int weft_schedule_copy(const struct weft_schedule *from,
                       struct weft_schedule *out, struct weft_err *err);
/* The same from n bytes; `name` stands in messages. */
int weft_schedule_parse(const struct weft_schedule_problem *problem,
                        const char *text, size_t n, const char *name,
                        struct weft_schedule *out, struct weft_err *err);
/* The rules alone, with the starts that are there; sets makespan and peak.
 * Errors: WEFT_EINVAL. */
int weft_schedule_check(const struct weft_schedule_problem *problem,
                        struct weft_schedule *schedule, struct weft_err *err);

/* Most activation that a device holds at any time. */
double weft_schedule_peak(const struct weft_schedule_problem *problem,
                          const struct weft_schedule *schedule,
                          int32_t device);

/* A picture like RLHFuse's Figure 10: a row per device, below it the
 * activations of the device that holds most. */
int weft_schedule_write_svg(const struct weft_schedule_problem *problem,
                            const struct weft_schedule *schedule,
                            const struct weft_schedule_report *report,
                            const char *path, struct weft_err *err);
/* Trace events of JSON for ui.perfetto.dev and chrome://tracing. One unit of
 * the problem's time is a microsecond there. */
int weft_schedule_write_perfetto(const struct weft_schedule_problem *problem,
                                 const struct weft_schedule *schedule,
                                 const char *path, struct weft_err *err);
/* A Paje trace for ViTE and pj_dump. */
int weft_schedule_write_paje(const struct weft_schedule_problem *problem,
                             const struct weft_schedule *schedule,
                             const char *path, struct weft_err *err);

/* A few lines: makespan, bound, gap, speedup, peak; and, where it fits 80
 * columns, the schedule. NULL: no memory. Caller frees. */
char *weft_schedule_summary(const struct weft_schedule_problem *problem,
                            const struct weft_schedule *schedule,
                            const struct weft_schedule_report *report);

#endif
