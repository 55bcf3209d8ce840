/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of tiles at other places, made when first asked for and kept until
 * they are dropped: the data between calls (tokens, log-probs, values,
 * advantages), which change no more once written.
 */
#ifndef WEFT_GRAPHS_COPIES_H
#define WEFT_GRAPHS_COPIES_H

#include "codelets/codelets.h"

struct weft_g_copies;

int weft_g_copies_create(struct weft_rt *rt, struct weft_g_copies **out,
                         struct weft_err *err);
/* NULL is allowed. */
void weft_g_copies_free(struct weft_g_copies *copies);
/* Releases all copies; tasks inserted so far still find them. */
void weft_g_copies_drop(struct weft_g_copies *copies);

/* The tile at `place`: itself, the copy made before, or a new one. Borrowed
 * until the drop. NULL stays NULL. After an error (memory) the sequence is
 * failed and the tile itself is returned. */
struct weft_tile *weft_g_copy_at(struct weft_g_copies *copies,
                                 struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_tile *tile, int32_t place);

/* One copy that nobody else asks for: a temporary tile of the same size and
 * class at `place`, filled from `tile`. The caller releases it. NULL: the
 * sequence is failed. */
struct weft_tile *weft_g_copy_to(struct weft_seq *seq,
                                 const struct weft_where *where,
                                 struct weft_rt *rt, struct weft_tile *tile,
                                 enum weft_mem_class c, const char *kind,
                                 int32_t place);

#endif
