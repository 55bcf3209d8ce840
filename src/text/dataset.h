/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSONL data: one JSON object (a row) per line. Its keys are named by the
 * caller, or detected: those of TRL, verl, SkyRL, OpenRLHF, slime, NeMo-RL,
 * ROLL, ReaLHF and GSM8K are known.
 *
 * Opening a file reads it once: it detects the prompt's key in the first row,
 * checks every row, and records where lines begin. Rows are built when they
 * are asked for, so the file may be larger than memory. Of these keys the
 * first that a row has is used:
 *
 *     prompt    prompt, messages, conversations, question, problem,
 *               instruction, input, query; else the common beginning of
 *               chosen and rejected. A row that has only `text` is a response
 *               without a prompt
 *     response  completion, response, output, answer; or the last of the
 *               messages if it is the assistant's
 *     label     label, ground_truth, reward_model.ground_truth,
 *               reward_spec.ground_truth, answer, solution, expected_answer,
 *               target
 *     chosen    chosen, pos_answers        rejected  rejected, neg_answers
 *     margin    margin
 *     scores    score_chosen and score_rejected
 *
 * A prompt is a string or a list of messages {"role", "content"} or {"from",
 * "value"}; `messages` may also be such a list as a JSON string. A content is
 * a string or a list of {"type": "text", "text"}; other keys of messages are
 * kept. A response, chosen or rejected is a string, or a list of one message
 * of the assistant; chosen and rejected may repeat the prompt before it. `tools` (a list, also as a JSON string) and
 * `chat_template_kwargs` (an object) are passed to the chat template. A label
 * that is not a string is returned as JSON text. Blank lines, CRLF, and a
 * byte-order mark are allowed.
 */
#ifndef WEFT_TEXT_DATASET_H
#define WEFT_TEXT_DATASET_H

#include <jansson.h>
#include <stdbool.h>

#include "base/str.h"

struct weft_dataset;

/* What every row must have; checked while opening. */
enum weft_dataset_need {
    WEFT_NEED_PROMPT = 1,
    WEFT_NEED_RESPONSE = 2,
    WEFT_NEED_LABEL = 4,
    WEFT_NEED_PAIR = 8,     /* both chosen and rejected */
    WEFT_NEED_EXAMPLE = 32, /* a pair, or a response and its label */
    WEFT_NEED_NOTHING = 16  /* any object; keys are detected for each row */
};

/* The keys to read; those that are NULL are detected. In "a.b", b is a key of
 * the object a. A named key must be in every row. */
struct weft_dataset_keys {
    const char *prompt, *response, *label, *chosen, *rejected;
    unsigned need; /* weft_dataset_need; 0: WEFT_NEED_PROMPT */
};

/* One row; the caller releases it with weft_row_release(). */
struct weft_row {
    size_t line; /* number of its line, from 1 */
    /* the prompt as plain text; none when it is messages, or absent */
    struct weft_str prompt;
    json_t *messages;  /* the prompt as messages; NULL: there are none */
    json_t *answer;    /* the response as a message; NULL: a text, or none */
    json_t *variables; /* the row's variables for a chat template, or NULL */
    struct weft_str response, label;  /* none: the row has none */
    struct weft_str chosen, rejected; /* none: the row has none */
    /* these as messages; NULL: a text, or none */
    json_t *chosen_answer, *rejected_answer;
    bool last_turn; /* the response was the last of the prompt's messages */
    bool has_margin, has_scores; /* read if the caller needs pairs */
    double margin, score[2];     /* of chosen and rejected */
    char *json;                  /* the whole line */
};

/* Opens a file; keys may be NULL. Close with weft_dataset_close(). Errors:
 * WEFT_ENOTFOUND (no file; a row without the key: the text names file, line
 * and the keys that the row has), WEFT_EFORMAT (not JSON, not an object, not
 * text), WEFT_EINVAL (no rows, an empty prompt). */
int weft_dataset_open(const char *path, const struct weft_dataset_keys *keys,
                      struct weft_dataset **out, struct weft_err *err);
/* The same on n bytes, which must stay valid until it is closed. */
int weft_dataset_parse(const char *text, size_t n, const char *name,
                       const struct weft_dataset_keys *keys,
                       struct weft_dataset **out, struct weft_err *err);
void weft_dataset_close(struct weft_dataset *data); /* NULL is allowed */

size_t weft_dataset_size(const struct weft_dataset *data); /* rows, > 0 */

/* Builds row i < size. Several threads may read rows at the same time. */
int weft_dataset_row(const struct weft_dataset *data, size_t i,
                     struct weft_row *out, struct weft_err *err);
void weft_row_release(struct weft_row *row); /* a zeroed one is allowed */

/* Writes the order of n rows in an epoch into order_out (n): a permutation
 * that seed and epoch determine. */
void weft_dataset_order(uint32_t n, uint64_t seed, uint32_t epoch,
                        uint32_t *order_out);

#endif
