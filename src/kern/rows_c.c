/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and attention in plain C. */
#include "kern/rows_impl.h"

#include "kern/mm_impl.h"

#include "kern/attention_impl.h"

#include "kern/attention_backward_impl.h"

const struct weft_row_ops weft_rows_c = {
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .angles = angles,
    .rope = rope,
    .round = round_row,
    .add_rows = add_rows,
    .attention = attention,
    .attention_backward = attention_backward,
    .pack_kv = pack_kv,
};
