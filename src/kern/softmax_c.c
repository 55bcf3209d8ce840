/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax rows in plain C. */
#define OPS weft_softmax_c
#include "kern/softmax_impl.h"
