/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a chat template; only chat*.c include it. */
#ifndef WEFT_MODEL_CHAT_IMPL_H
#define WEFT_MODEL_CHAT_IMPL_H

#include "model/chat.h"

enum weft_chat_kind {
    WEFT_CHAT_CHATML,
    WEFT_CHAT_LLAMA3,
    WEFT_CHAT_MISTRAL,
    WEFT_CHAT_PATTERN
};

/* What becomes of <think>...</think> in the assistant's earlier turns. */
enum weft_chat_thinking {
    WEFT_THINK_KEEP,  /* it is text like any other */
    WEFT_THINK_STRIP, /* left out (QwQ) */
    WEFT_THINK_QWEN3  /* left out before the last question */
};

enum weft_chat_system { /* mistral: where the system message goes */
                        WEFT_SYSTEM_REFUSED,
                        WEFT_SYSTEM_FIRST, /* in front of the first question */
                        WEFT_SYSTEM_LAST /* in front of the last message, a question */
};

struct weft_chat {
    enum weft_chat_kind kind;
    char *bos;            /* in front of all; NULL: nothing */
    char *eos;            /* mistral: ends the assistant's turn */
    char *default_system; /* chatml: when there is none; NULL: no message */
    char *pattern;        /* pattern: before {content}, with {role} */
    char *pattern_end;    /* pattern: behind it */
    bool trim;            /* contents lose white space at both ends */
    bool dates;           /* llama3: the date lines of 3.1 */
    bool open_think;      /* chatml: the turn opens with <think> */
    enum weft_chat_thinking thinking;
    const char *open, *close; /* mistral: "[INST] ", "[/INST]" */
    bool answer_space;        /* mistral: a space before the answer */
    enum weft_chat_system system;
};

int weft_chat_open_folder(const char *folder, struct weft_chat **out,
                          struct weft_err *err);

#endif
