/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/context.h"

#include "base/alloc.h"
#include "kern/device_cuda.h"
#include "kern/kern.h"
#include "sched/sched.h"

/* Chooses one instruction set for all ranks: the best that all of them
 * have. */
static int kernels_init(const char *isa, struct weft_err *err)
{
    int rc = weft_world_agree(weft_k_init(isa, err), err);
    if (rc)
        return rc;
    int64_t common = weft_world_min((int64_t) weft_k_isa());
    if (common == (int64_t) weft_k_isa())
        return 0;
    return weft_k_init(weft_k_isa_name((enum weft_isa) common), err);
}

int weft_context_open_with(const struct weft_context_options *options,
                           struct weft_context **out, struct weft_err *err)
{
    struct weft_context *c = weft_alloc(1, sizeof *c);
    if (!c)
        return weft_err_nomem(err, "a context", sizeof *c);
    struct weft_rt_options rt = options->rt;
    rt.policy = &weft_sched_lanes;
    rt.load_kernels = weft_k_load_cuda;
    int rc = kernels_init(options->isa, err);
    if (!rc)
        rc = weft_rt_start(&rt, &c->rt, err);
    if (!rc)
        rc = weft_seq_create(c->rt, &c->seq, err);
    if (rc) {
        weft_context_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

int weft_context_open(int n_devices, struct weft_context **out,
                      struct weft_err *err)
{
    struct weft_context_options options = {
        .rt = {.n_devices = n_devices, .nap = -1, .watchdog_s = 300}};
    return weft_context_open_with(&options, out, err);
}

void weft_context_close(struct weft_context *context)
{
    if (!context)
        return;
    if (context->seq)
        weft_seq_free(context->seq);
    weft_rt_stop(context->rt);
    weft_free(context);
}

struct weft_rt *weft_context_rt(struct weft_context *context)
{
    return context->rt;
}

int weft_context_wait(struct weft_seq *seq, int rc, struct weft_err *err)
{
    int first = weft_seq_wait(seq, rc ? NULL : err);
    return rc ? rc : first;
}
