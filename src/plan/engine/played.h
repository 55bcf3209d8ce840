/* SPDX-License-Identifier: Apache-2.0 */
/* A recording of some iterations that the event engine has played: times of
 * iterations, calls and devices, and pictures of them. */
#ifndef WEFT_PLAN_ENGINE_PLAYED_H
#define WEFT_PLAN_ENGINE_PLAYED_H

#include "base/string.h"
#include "plan/dataflow.h"
#include "plan/engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a device did, or several. */
struct weft_played_use {
    double busy_s;    /* computed */
    double moving_s;  /* copied, or had nothing to do while messages of its
                         place were under way */
    double waiting_s; /* had nothing to do */
};

/* Of a call in an iteration; end_s 0: it has no tasks. */
struct weft_played_call {
    struct weft_span span; /* from its first task's start to its last's end */
    double ran_s;          /* sum over its tasks and devices */
    double moment_s; /* the same, of each one's seconds times the time at
                              which it was half done */
    /* sum over devices of all that they did for the call: the time of its
     * tasks, and that before each of them since the task before it on that
     * device, of whichever call, where job.n_iterations says so. Of all calls
     * it is all that devices did until each one's last task ended */
    struct weft_played_use use;
    double waited_s; /* sum over devices: they waited for what moves, and for
                        nothing else (struct weft_engine_waited) */
};

struct weft_played {
    const struct weft_engine *engine;
    const struct weft_recording *r;
    const struct weft_engine_job *job;
    const struct weft_dataflow *flow;
    int32_t n;           /* iterations */
    bool by_instruction; /* tasks stand for those of a tp group */
    bool
        one_round; /* of generation, though prompts may be replaced in more */
    /* (n) from the first task's start to the last's end; of neighbours, they
     * may overlap */
    struct weft_span *iteration;
    /* (n, WEFT_MAX_CALLS) number 0: of no call */
    struct weft_played_call *call;
    struct weft_played_use *device; /* (n_devices) of all iterations */
    double end_s;
    const double *place_bytes; /* (n_places) of memory that there is; NULL, as
                                  it is at first: not known */
    double bound_s; /* of generation and inference of the iteration that is
                       shown: no schedule takes less; 0, as it is at first: not
                       known */
    /* between iterations once they follow one another; of a single one, its
     * end */
    double steady_s;
};

/* Sums up what was played to its end: iterations first .. first + n - 1.
 * Borrows all of it. Errors: WEFT_ENOMEM. */
int weft_played_create(const struct weft_engine *engine,
                       const struct weft_recording *r,
                       const struct weft_engine_job *job,
                       const struct weft_dataflow *flow, int32_t first,
                       int32_t n, struct weft_played *out,
                       struct weft_err *err);
void weft_played_release(struct weft_played *p);

/* The iteration that is shown call by call: one that has neighbours, if there
 * is one. */
int32_t weft_played_shown(const struct weft_played *p);

/* Of that iteration: from the first task of generation to the last of
 * inference. */
double weft_played_gen_infer_s(const struct weft_played *p);

/* Of that iteration: how long devices waited for what moves alone, in the mean
 * over all devices. */
double weft_played_waited_s(const struct weft_played *p);

/* "actor_train"; number 0: "other". */
const char *weft_played_name(const struct weft_played *p, int32_t call);

/* Of the place that holds most, the first of those; and a place's first
 * device. */
int32_t weft_played_fullest(const struct weft_played *p);
int32_t weft_played_first_device(const struct weft_played *p, int32_t place);

/* Appended to a text. Errors: WEFT_ENOMEM.
 * _svg: a picture, a row for each device, coloured by call, and what places
 * hold over time, if that was noted (job.n_slices). _text: tables;
 * _json: the same, and more (doc/simulate.md). */
int weft_played_svg(const struct weft_played *p, struct weft_string *out,
                    struct weft_err *err);
int weft_played_text(const struct weft_played *p, struct weft_string *out,
                     struct weft_err *err);
int weft_played_json(const struct weft_played *p, struct weft_string *out,
                     struct weft_err *err);
/* Writes a Chrome/Perfetto trace: a rank is a process, a device a thread, what
 * a place holds over time, if that was noted, a counter; of
 * at most WEFT_PLAYED_EVENTS tasks and messages, the first ones. Errors: those
 * of weft_file_writer_open() and its like. */
enum { WEFT_PLAYED_EVENTS = 1000000 };
int weft_played_write_trace(const struct weft_played *p, const char *path,
                            struct weft_err *err);

#ifdef __cplusplus
}
#endif
#endif
