/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax rows with AVX2 and FMA. */
#define OPS weft_softmax_avx2
#include "kern/softmax_impl.h"
