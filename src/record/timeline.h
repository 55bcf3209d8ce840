/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the samples of an iteration were generated: which instance had how many
 * at what time, what moved between them, what inference was done meanwhile, how
 * long the samples became. A run leaves the newest such iteration in
 *
 *     run_dir/generation.json
 *
 * and a simulation has it of the iteration that it shows; one picture is drawn
 * of both (after RLHFuse, Figures 4 and 5).
 */
#ifndef WEFT_RECORD_TIMELINE_H
#define WEFT_RECORD_TIMELINE_H

#include "base/string.h"

#define WEFT_TIMELINE_FILE "generation.json"
/* Calls that infer; bytes of a name; chunks that are kept, beyond which two
 * that follow one another become one. */
enum {
    WEFT_TIMELINE_CALLS = 8,
    WEFT_TIMELINE_NAME = 32,
    WEFT_TIMELINE_CHUNKS = 20000
};

/* When something happened: seconds; in a recording it is not known before it
 * is played, and is the end of a wait of the program. */
struct weft_timeline_when {
    double s;
    int64_t wait; /* its number in the recording; -1: s is known */
};

struct weft_timeline_chunk {
    struct weft_timeline_when end;
    int32_t instance;
    int32_t samples, left; /* that it went on with, and that are left */
    int32_t ended;         /* that ended by it */
    int32_t blocks;        /* of the KV cache in use at one time, at most */
    int32_t steps;
};

struct weft_timeline_move {
    struct weft_timeline_when at;
    int32_t sample, from, to; /* its number; instances */
};

/* So few samples were left that some moved. */
struct weft_timeline_trigger {
    struct weft_timeline_when at;
    int32_t left;
};

/* A row's devices did a call. */
struct weft_timeline_piece {
    int32_t row, call;
    double start_s, end_s;
};

struct weft_timeline_sample {
    int32_t prompt, response; /* tokens */
    bool cut;                 /* ended by its limit */
};

/* Samples that are generated together. Chunks and samples of later rounds
 * follow in their arrays. */
struct weft_timeline_round {
    struct weft_timeline_when start;
    size_t first_chunk, first_sample;
};

struct weft_timeline {
    int64_t iteration; /* from 1 on */
    char call[WEFT_TIMELINE_NAME];
    /* rows: instances, then devices that only infer */
    int32_t n_instances, n_rows;
    int32_t *first_device; /* (n_rows) */
    int32_t slots, blocks; /* of an instance */
    int32_t most;          /* tokens of a response */
    int32_t n_calls;
    char infers[WEFT_TIMELINE_CALLS][WEFT_TIMELINE_NAME];
    double start_s; /* of the first task that generates */
    struct weft_timeline_round *round;
    struct weft_timeline_chunk *chunk;
    struct weft_timeline_move *move;
    struct weft_timeline_trigger *trigger;
    struct weft_timeline_piece *piece;
    struct weft_timeline_sample *sample;
    size_t n_rounds, n_chunks, n_moves, n_triggers, n_pieces, n_samples;
    size_t round_room, chunk_room, move_room, trigger_room, piece_room,
        sample_room;
    /* of another call that generates at the same time, its own; NULL: none */
    struct weft_timeline *beside;
    bool failed; /* memory ran out: something is missing */
};

/* Makes room for rows, which are zeros then. Errors: WEFT_ENOMEM. */
int weft_timeline_init(int32_t n_rows, struct weft_timeline *out,
                       struct weft_err *err);
/* With what is beside it. */
void weft_timeline_release(struct weft_timeline *g);

/* Append; without memory g->failed is set. A round is begun before its chunks
 * and samples, of which an instance's chunks come in their order. */
void weft_timeline_add_round(struct weft_timeline *g,
                             struct weft_timeline_when start);
void weft_timeline_add_chunk(struct weft_timeline *g,
                             const struct weft_timeline_chunk *chunk);
void weft_timeline_add_move(struct weft_timeline *g,
                            const struct weft_timeline_move *move);
void weft_timeline_add_trigger(struct weft_timeline *g,
                               const struct weft_timeline_trigger *trigger);
void weft_timeline_add_piece(struct weft_timeline *g,
                             const struct weft_timeline_piece *piece);
void weft_timeline_add_sample(struct weft_timeline *g,
                              const struct weft_timeline_sample *sample);

/* A round's chunks, and its samples. */
size_t weft_timeline_round_chunks(const struct weft_timeline *g,
                                  size_t round);
size_t weft_timeline_round_samples(const struct weft_timeline *g,
                                   size_t round);

/* The file's text, appended. Errors: WEFT_ENOMEM. */
int weft_timeline_write(const struct weft_timeline *g,
                        struct weft_string *out, struct weft_err *err);
/* Errors: WEFT_ENOMEM, those of reading, WEFT_EFORMAT. */
int weft_timeline_read(const char *path, struct weft_timeline *out,
                       struct weft_err *err);

/* The length that a share of n >= 1 ascending lengths does not exceed. */
int32_t weft_timeline_quantile(size_t n, const int32_t *ascending,
                               double share);
/* The picture, an <svg>, appended: a row per instance over time, what is left
 * and what the KV caches hold, and the lengths; beneath it what is beside it.
 * Its size does not grow with chunks. Errors: WEFT_ENOMEM. */
int weft_timeline_svg(const struct weft_timeline *g, struct weft_string *out,
                      struct weft_err *err);

#endif
