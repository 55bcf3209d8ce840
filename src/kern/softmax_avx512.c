/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax rows with AVX-512. */
#define OPS weft_softmax_avx512
#include "kern/softmax_impl.h"
