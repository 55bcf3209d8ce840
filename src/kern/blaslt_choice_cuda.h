/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the library's algorithms a kind of product has. Internal to
 * blaslt_cuda.c. */
#ifndef WEFT_KERN_BLASLT_CHOICE_CUDA_H
#define WEFT_KERN_BLASLT_CHOICE_CUDA_H

#include "kern/blaslt_cuda.h"

enum {
    WEFT_BLASLT_SIZES = 5,
    WEFT_BLASLT_PROPOSALS = 16,
    WEFT_BLASLT_ALIGNMENT = 16 /* bytes, the most an algorithm may ask for */
};

/* An algorithm for each number of rows; all give a row the same bits.
 * Gradients of weights have one for all numbers of tokens. */
struct weft_blaslt_algorithms {
    int32_t n;
    int64_t most[WEFT_BLASLT_SIZES]; /* rows; of more, as many at a time */
    cublasLtMatmulAlgo_t of[WEFT_BLASLT_SIZES];
};

/* Chooses for a product without tokens. The result depends on it, on the card
 * and on the library alone. Errors: no algorithm will do (WEFT_EUNSUPPORTED),
 * or the card has too little memory to test them (WEFT_ENOMEM). */
int weft_blaslt_choose_algorithms(cublasLtHandle_t handle,
                                  const struct weft_blaslt_product *kind,
                                  struct weft_blaslt_algorithms *out,
                                  struct weft_err *err);

/* ---- What it uses of the library ---------------------------------------- */

size_t weft_blaslt_bytes(cudaDataType_t type);

/* Puts a product on a stream. */
cublasStatus_t weft_blaslt_run(cublasLtHandle_t handle,
                               const struct weft_blaslt_product *p,
                               const cublasLtMatmulAlgo_t *algorithm,
                               cudaStream_t stream, const void *a,
                               const void *b, void *d);

/* Asks for proposals, the fastest first; returns how many there are. */
int weft_blaslt_propose(
    cublasLtHandle_t handle, const struct weft_blaslt_product *p,
    cublasLtMatmulHeuristicResult_t out[WEFT_BLASLT_PROPOSALS]);
bool weft_blaslt_splits_depth(const cublasLtMatmulAlgo_t *algorithm);

#endif
