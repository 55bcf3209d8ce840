/* SPDX-License-Identifier: Apache-2.0 */
/* How a JSON object becomes a row; only dataset*.c include it. */
#ifndef WEFT_TEXT_DATASET_IMPL_H
#define WEFT_TEXT_DATASET_IMPL_H

#include <jansson.h>

#include "text/dataset.h"

/* Where the rows of a file have their prompts. */
enum weft_prompt_form {
    WEFT_PROMPT_KEY,    /* under a key: a text or messages */
    WEFT_PROMPT_COMMON, /* the common beginning of chosen and rejected */
    WEFT_PROMPT_NONE,   /* `text` alone */
    WEFT_PROMPT_ANY     /* found for each row (WEFT_NEED_NOTHING) */
};

struct weft_row_format {
    struct weft_dataset_keys named; /* NULL where found */
    enum weft_prompt_form form;
    const char *prompt; /* the key; form KEY */
};

/* Chooses the prompt's key according to one row; format->named must be set.
 * `subject` is "file:line". */
int weft_row_detect(const json_t *object, const char *subject,
                    struct weft_row_format *format, struct weft_err *err);

/* Fills all of a row but line and json; on failure it is released. */
int weft_row_fill(const json_t *object, const char *subject,
                  const struct weft_row_format *format, struct weft_row *row,
                  struct weft_err *err);

/* ---- dataset_message.c: one message of a list ------------------------- */

struct weft_message_place { /* where a message stands, for error texts */
    const char *subject;    /* "file:line" */
    const char *key;        /* of the list */
    size_t i;               /* in it */
};

/* "user", "assistant", ...; NULL: it has none. Borrowed. */
const char *weft_message_role(const json_t *item);
/* Copies the text of the content and joins its parts. The caller releases it.
 * Errors: WEFT_EFORMAT, WEFT_EUNSUPPORTED (parts other than texts). */
int weft_message_text(const json_t *item,
                      const struct weft_message_place *place,
                      struct weft_str *out, struct weft_err *err);
/* Copies a message into the form {"role", "content", ...} that chat templates
 * take. NULL when memory is out. Free with json_decref(). */
json_t *weft_message_copy(const json_t *item);

#endif
