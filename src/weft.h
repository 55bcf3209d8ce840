/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weft: reinforcement learning from human feedback as one task graph.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ----------------------------------------------------------- */

/* Functions return 0, or one of these. */
enum weft_code {
    WEFT_OK = 0,
    WEFT_EINVAL = -1,       /* a value that makes no sense */
    WEFT_ENOMEM = -2,       /* memory ran out, or the plan does not fit */
    WEFT_EIO = -3,          /* reading, writing, a pipe */
    WEFT_ENOTFOUND = -4,    /* no such file, key, tensor */
    WEFT_EFORMAT = -5,      /* a file that is not what it claims to be */
    WEFT_EUNSUPPORTED = -6, /* known, but not done by Weft */
    WEFT_ESTATE = -7,       /* called at the wrong time */
    WEFT_EFULL = -8,        /* disk full */
    WEFT_ETIMEOUT = -9,     /* an outside program did not answer */
    WEFT_ENUMERIC = -10,    /* NaN or infinity where a number must be */
    WEFT_EINTERRUPTED = -11, /* a signal asked to stop */
    WEFT_EINTERNAL = -12,   /* a bug of ours */
};

/* The caller's storage; `text` is one sentence for a person. */
struct weft_err {
    int code;
    char text[1024];
};

#ifdef __cplusplus
}
#endif
#endif
