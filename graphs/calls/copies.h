/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies at other places of the data that passes between model function calls
 * (tokens, log-probs, values, advantages), which does not change once it is
 * written. A copy is made when it is first asked for and kept until all are
 * dropped.
 */
#ifndef WEFT_CALLS_COPIES_H
#define WEFT_CALLS_COPIES_H

#include "codelets/codelets.h"

struct weft_g_copies;

/* Errors: WEFT_ENOMEM. */
int weft_g_copies_create(struct weft_rt *rt, struct weft_g_copies **out,
                         struct weft_err *err);
/* NULL is allowed. */
void weft_g_copies_free(struct weft_g_copies *copies);
/* Releases all copies; tasks that are already inserted can still use them. */
void weft_g_copies_drop(struct weft_g_copies *copies);

/* Returns the tile at `place`: `tile` itself, an earlier copy, or a new copy.
 * It is borrowed until weft_g_copies_drop(). `tile` NULL: NULL. When memory is
 * out, the sequence is failed and `tile` is returned. */
struct weft_tile *weft_g_copy_at(struct weft_g_copies *copies,
                                 struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_tile *tile, int32_t place);

/* The same of what is a sample's, which moves to where it is used next (struct
 * weft_where). */
struct weft_tile *weft_g_sample_at(struct weft_g_copies *copies,
                                   struct weft_seq *seq,
                                   const struct weft_where *where,
                                   struct weft_tile *tile, int32_t place);

/* Makes a copy for the caller alone: a temporary tile of the same size and
 * class at `place`. The caller releases it. NULL when memory is out; the
 * sequence is then failed. */
struct weft_tile *weft_g_copy_to(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_rt *rt, struct weft_tile *tile,
                                 enum weft_mem_class c, const char *kind,
                                 int32_t place);

#endif
