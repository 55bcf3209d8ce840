/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/task.h"

const char *weft_mem_class_name(enum weft_mem_class c)
{
    static const char *const name[WEFT_N_MEM_CLASSES] = {
        "weights",     "gradients", "optimizer", "kv",
        "activations", "samples",   "tasks",     "host"};
    return name[c];
}

bool weft_mem_class_at_place(enum weft_mem_class c)
{
    return c != WEFT_MEM_HOST;
}

bool weft_mem_class_on_host(enum weft_mem_class c)
{
    return c == WEFT_MEM_SAMPLES || c == WEFT_MEM_HOST;
}
