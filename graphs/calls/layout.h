/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's layout on the devices of this job: which device computes which
 * layers and blocks, and at which places the tiles for them lie.
 */
#ifndef WEFT_CALLS_LAYOUT_H
#define WEFT_CALLS_LAYOUT_H

#include "plan/layout.h"
#include "rt/graph.h"

enum { WEFT_G_MAX_DP = WEFT_MAX_GROUPS };

/* What is divided among places, each by itself (graphs/calls/shard.h). */
enum weft_g_row {
    WEFT_G_TRAINED, /* all weights, or with LoRA adapters these */
    WEFT_G_FROZEN,  /* with them, the others */
    WEFT_G_N_ROWS
};

struct weft_g_member {
    int32_t device, place;
    struct weft_range blocks;
};

struct weft_g_layout {
    struct weft_call_plan plan;
    int32_t first_layer[WEFT_MAX_STAGES + 1];
    /* In a recording of few layers (weft_recording_stretch()), for how many
     * each one stands; borrowed. NULL: for itself. */
    const int32_t *times;
    /* elements of the blocks of each kind of tile before one */
    size_t before[WEFT_G_N_ROWS][WEFT_N_TILE_KINDS][WEFT_MAX_BLOCKS + 1];
    struct weft_g_member *member; /* (pp, dp, tp) */
    int32_t *place;   /* (pp, 2, tp, dp): of each member, then of all */
    int32_t *n_place; /* (pp, tp + 1): how many of them are used */
    int32_t places_per_rank;
    bool on_gpus; /* all members are GPUs */
    bool is_gang; /* a stage's members are one device, or CPU devices of one
                        place, which can run as a gang (weft_insert_gang()) */
    bool is_gpu_gang; /* they are several GPUs of one rank that may use one
                         another's memory, which can, too */
    bool any_device;  /* members are whole places with one device each: a
                        task may run on any device of its place */
};

/* The devices of a job and their memory: a runtime's, or planned ones. */
struct weft_g_job {
    int32_t n_ranks, n_devices; /* of each rank */
    bool place_per_device;      /* see "Places" in rt/tile.h */
    int32_t n_gpus;             /* of the devices; they come first */
    bool gpus_apart; /* those of a rank may not use one another's memory */
};
struct weft_g_job weft_g_job_of(const struct weft_rt *rt);
int32_t weft_g_job_places_per_rank(const struct weft_g_job *job);
int32_t weft_g_job_n_places(const struct weft_g_job *job);
int32_t weft_g_job_place_of(const struct weft_g_job *job, int32_t device);

/* The layout of `call` in a plan that was checked. Release it also after an
 * error. Errors: WEFT_ENOMEM, dp above WEFT_G_MAX_DP. */
int weft_g_layout_init(const struct weft_g_job *job,
                       const struct weft_shape *shape,
                       const struct weft_plan *plan, int32_t call,
                       struct weft_g_layout *out, struct weft_err *err);
/* A layout of one stage, on devices 0 .. dp * tp - 1. */
int weft_g_layout_simple(struct weft_rt *rt, const struct weft_shape *shape,
                         int32_t dp, int32_t tp, struct weft_g_layout *out,
                         struct weft_err *err);
/* Errors: WEFT_ENOMEM. */
int weft_g_layout_copy(const struct weft_g_layout *from,
                       struct weft_g_layout *out, struct weft_err *err);
void weft_g_layout_release(struct weft_g_layout *layout);

/* The member number `tp` of a stage of a replica; borrowed from the layout. */
const struct weft_g_member *weft_g_layout_member(
    const struct weft_g_layout *layout, int32_t dp, int32_t stage,
    int32_t tp);
/* The stage that has a layer. */
int32_t weft_g_layout_stage_of(const struct weft_g_layout *layout,
                               int32_t layer);

/* The tp group that computes a stage of one replica. Its members are in block
 * order, and those at the same place follow one another. */
struct weft_g_stage {
    int32_t dp, index;
    int32_t first, end; /* layers */
    bool is_first, is_last;
    int32_t n; /* tp */
    const struct weft_g_member *member;
    int32_t n_places;
    int32_t place[WEFT_MAX_BLOCKS];
    int32_t lead[WEFT_MAX_BLOCKS]; /* first member at the place */
};
void weft_g_stage_get(const struct weft_g_layout *layout, int32_t dp,
                      int32_t stage, struct weft_g_stage *out);

/* Distinct places of the members (0 .. dp - 1, stage, tp), ordered by dp
 * index; tp -1: of all tp indices. Borrowed from the layout. */
struct weft_g_places {
    int32_t n;
    const int32_t *at;
};
struct weft_g_places weft_g_layout_places(const struct weft_g_layout *layout,
                                          int32_t stage, int32_t tp);

#endif
