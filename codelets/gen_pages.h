/* SPDX-License-Identifier: Apache-2.0 */
/* What gen_pages.c and gen_prefix.c know of one another. */
#ifndef WEFT_CODELETS_GEN_PAGES_H
#define WEFT_CODELETS_GEN_PAGES_H

#include "codelets/gen.h"

int32_t weft_gen_pages_for(int32_t n_tokens);
int32_t *weft_gen_pages_of(const struct weft_gen_view *view, int32_t slot);
/* A free one, which there is. */
int32_t weft_gen_take_page(const struct weft_gen_view *view);
/* A slot begins to have a page (by 1), or has it no more (by -1). */
void weft_gen_count_user(const struct weft_gen_view *view, int32_t slot,
                         int32_t page, int by);
/* Whether there are n free pages, once slots that have ended and kept prompts,
 * but for number `keep`, have given back what it takes. */
bool weft_gen_has_free(const struct weft_gen_view *view, int32_t n,
                       int32_t keep);
/* In a GPU's memory where the stream is one's. */
void weft_gen_copy_bytes(struct CUstream_st *stream, void *to,
                         const void *from, size_t bytes);
/* Of n tokens that can be taken, those that pay. */
int32_t weft_gen_worth(int32_t n);
/* How many of n tokens are the same, from the first on. */
int32_t weft_gen_n_common(const int32_t *x, const int32_t *y, int64_t n);
/* A kept prompt is used now; a slot is none. */
void weft_gen_use_kept(const struct weft_gen_view *view, int32_t slot);

#endif
