/* SPDX-License-Identifier: Apache-2.0 */
/* The boxed answer of a response against a label: the first byte says how long
 * the label is. fuzz-sources: src/reward/boxed.c */
#include <stdlib.h>

#include "base/str.h"
#include "reward/reward.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

/* A copy of its own, so that a read behind its end is noticed. */
static struct weft_str copy(const unsigned char *data, size_t n)
{
    struct weft_str out = {0};
    if (weft_str_copy((struct weft_str){(const char *) data, n}, &out, NULL))
        abort();
    return out;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    if (n == 0)
        return 0;
    size_t m = data[0] < n ? data[0] : n - 1;
    struct weft_str label = copy(data + 1, m);
    struct weft_str response = copy(data + 1 + m, n - 1 - m);
    bool right = false, same = false;
    if (weft_reward_boxed(response, label, &right)
        || weft_reward_boxed(response, response, &same))
        abort();
    if (right && weft_str_find(response, "\\boxed") == SIZE_MAX)
        abort();
    weft_str_release(&label);
    weft_str_release(&response);
    return 0;
}
