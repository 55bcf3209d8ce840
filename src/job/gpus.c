/* SPDX-License-Identifier: Apache-2.0 */
#include "job/gpus.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "kern/device_cuda.h"
#include "lm/context.h"

#define INSTEAD " runs on this machine's CPUs instead"

/* The ranks that see this one's GPUs: how many, and which of them this is. */
static struct {
    int n, rank; /* n 0: weft_gpus_meet() was not called */
    bool differ; /* some see others, too, or in another order */
} sharers;

/* Ranks of other machines never see the same. */
void weft_gpus_meet(void)
{
    enum { MOST = 16 }; /* by which a rank's are told apart */
    struct weft_k_device device[MOST];
    int n_ranks = weft_world_size(), me = weft_world_rank();
    int64_t *all = weft_insert_alloc((size_t) n_ranks * MOST, sizeof *all,
                                     "the ranks' GPUs");
    const int64_t *own = all + me * MOST;
    int n = weft_k_devices_cuda(device, MOST, NULL);
    for (int i = 0; i < n && i < MOST; i++)
        all[me * MOST + i] = device[i].id;
    weft_world_raise(all, n_ranks * MOST);
    sharers.n = sharers.rank = 0;
    sharers.differ = false;
    for (int r = 0; r < n_ranks; r++) {
        const int64_t *other = all + r * MOST;
        bool same = memcmp(own, other, MOST * sizeof *own) == 0, any = same;
        for (int i = 0; i < MOST * MOST && !any; i++)
            any = own[i / MOST] > 0 && own[i / MOST] == other[i % MOST];
        sharers.n += any;
        sharers.rank += any && r < me;
        sharers.differ |= any && !same;
    }
    weft_free(all);
}

/* Whether there are ranks on this machine that see none of this one's GPUs. */
static bool sees_its_own(void)
{
    int rank;
    return sharers.n > 0 && sharers.n < weft_world_here(&rank);
}

/* n_ranks on this machine have none that only some of them share. */
static int check_sharing(const struct weft_gpus_asked *asked, int32_t n_ranks,
                         struct weft_err *err)
{
    if (n_ranks % asked->n_sharing == 0)
        return 0;
    if (sees_its_own())
        return weft_err_set(
            err, WEFT_EINVAL,
            "'runtime.ranks_per_gpu' is %d, but %s (CUDA_VISIBLE_DEVICES, "
            "srun "
            "--gpus-per-task): leave it out, or let ranks see the same GPUs",
            asked->n_sharing,
            n_ranks > 1 ? "others see none of the GPUs that some ranks share"
                        : "each rank sees GPUs of its own");
    return weft_err_set(
        err, WEFT_EINVAL,
        "'runtime.ranks_per_gpu' is %d, but the job has %d "
        "rank%s on this machine: start a multiple of %d here, "
        "or change it",
        asked->n_sharing, n_ranks, n_ranks > 1 ? "s" : "", asked->n_sharing);
}

/* Each rank's part of n GPUs. */
static int deal(const struct weft_gpus_asked *asked, int32_t n,
                int32_t n_ranks, int32_t *out, struct weft_err *err)
{
    char each[48] = "";
    if (n < n_ranks && asked->n_sharing > 1)
        return weft_err_set(
            err, WEFT_EINVAL,
            "%d ranks share this machine, which has %d GPU%s, "
            "and 'runtime.ranks_per_gpu' is %d: start at most "
            "%d here, or raise it",
            n_ranks * asked->n_sharing, n, n > 1 ? "s" : "", asked->n_sharing,
            n * asked->n_sharing);
    if (n < n_ranks)
        return weft_err_set(err, WEFT_EINVAL,
                            "%d ranks share this machine, which has %d GPU%s "
                            "for them: start at most %d here, or set "
                            "runtime.ranks_per_gpu; %s" INSTEAD,
                            n_ranks, n, n > 1 ? "s" : "", n, asked->cpus);
    if (n_ranks > 1)
        snprintf(each, sizeof each, " for each of %d ranks",
                 n_ranks * asked->n_sharing);
    if (asked->n > n / n_ranks)
        return weft_err_set(
            err, WEFT_EINVAL,
            "'%s' is %d%s, but %s "
            "%d; lower it, or leave it out",
            asked->gpus, asked->n, each,
            sees_its_own() ? "this rank sees" : "this machine has", n);
    *out = asked->n > 0 ? asked->n : n / n_ranks;
    return 0;
}

void weft_gpu_text(const struct weft_k_device *gpu, char *out, size_t size)
{
    snprintf(out, size, "%.90s, compute capability %d.%d", gpu->name,
             gpu->major, gpu->minor);
}

int weft_gpu_describe(int32_t gpu, char out[WEFT_GPU_TEXT],
                      struct weft_err *err)
{
    struct weft_k_device device[WEFT_MAX_DEVICES];
    int64_t version = 0;
    const char *why = "there are fewer";
    if (gpu >= weft_k_devices_cuda(device, WEFT_MAX_DEVICES, &why))
        return weft_err_set(err, WEFT_ENOTFOUND, "GPU %d: %s", gpu, why);
    int rc = weft_k_products_version_cuda(&version, err);
    if (rc)
        return rc;
    weft_gpu_text(&device[gpu], out, WEFT_GPU_TEXT);
    size_t n = strlen(out);
    snprintf(out + n, WEFT_GPU_TEXT - n, ", cuBLASLt %lld",
             (long long) version);
    return 0;
}

/* Whether StarPU has room for GPUs first.. end - 1. */
static int check_room(const struct weft_gpus_asked *asked, int32_t first,
                      int32_t end, struct weft_err *err)
{
    int32_t most = weft_rt_max_gpus();
    if (end <= most)
        return 0;
    return weft_err_set(err, WEFT_EUNSUPPORTED,
                        "GPUs %d to %d of this machine are asked for, and "
                        "Weft's StarPU was built for its first %d "
                        "(--enable-maxcudadev): set %s to use fewer, or "
                        "CUDA_VISIBLE_DEVICES to at most %d",
                        first, end - 1, most, asked->gpus, most);
}

/* Whether GPUs first.. end - 1 are of one kind. */
static int check_kind(const struct weft_gpus_asked *asked,
                      const struct weft_k_device *device, int32_t first,
                      int32_t end, struct weft_err *err)
{
    char one[WEFT_GPU_TEXT], other[WEFT_GPU_TEXT], fewer[96] = "";
    for (int32_t i = first + 1; i < end && !asked->may_differ; i++) {
        weft_gpu_text(&device[first], one, sizeof one);
        weft_gpu_text(&device[i], other, sizeof other);
        if (strcmp(one, other) == 0)
            continue;
        if (first == 0) /* each rank here could do with so many */
            snprintf(fewer, sizeof fewer,
                     "set %s to use only the first %d, "
                     "or ",
                     asked->gpus, i);
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "GPU %d is '%s' and GPU %d '%s', whose products "
                            "may round otherwise: %sset CUDA_VISIBLE_DEVICES "
                            "to those of one kind",
                            first, one, i, other, fewer);
    }
    return 0;
}

/* The GPUs of this machine; 0, and why, if there is none, or Weft has nothing
 * that drives them. */
static int32_t list_gpus(struct weft_k_device device[WEFT_MAX_DEVICES],
                         const char **why_out)
{
    int32_t n = weft_k_devices_cuda(device, WEFT_MAX_DEVICES, why_out);
    if (n == 0 || weft_rt_has_cuda())
        return n;
    *why_out = "Weft's StarPU was built without CUDA (./quickstart builds "
               "one with it)";
    return 0;
}

int32_t weft_gpus_usable(struct weft_err *why)
{
    struct weft_k_device device[WEFT_MAX_DEVICES];
    char one[WEFT_GPU_TEXT], other[WEFT_GPU_TEXT];
    const char *none;
    int32_t n = list_gpus(device, &none), usable = 0;
    n = weft_min32(n, weft_rt_max_gpus());
    for (; usable < n && device[usable].major >= WEFT_K_CUDA_MAJOR;
         usable++) {
        weft_gpu_text(&device[0], one, sizeof one);
        weft_gpu_text(&device[usable], other, sizeof other);
        if (strcmp(one, other) != 0)
            break;
    }
    if (n == 0)
        weft_err_set(why, WEFT_EUNSUPPORTED, "Weft can use no GPU here: %s",
                     none);
    else if (usable == 0)
        weft_err_set(why, WEFT_EUNSUPPORTED,
                     "GPU 0, %s, has compute capability %d.%d, and Weft's "
                     "kernels need %d.0 or later",
                     device[0].name, device[0].major, device[0].minor,
                     WEFT_K_CUDA_MAJOR);
    return usable;
}

int weft_gpus_ask(const struct weft_gpus_asked *asked, int32_t *out,
                  int32_t *first_out, struct weft_err *err)
{
    struct weft_k_device device[WEFT_MAX_DEVICES];
    const char *why;
    int rank, n_ranks = weft_world_here(&rank);
    int32_t used = 0, n = list_gpus(device, &why);
    if (sharers.n > 0) {
        n_ranks = sharers.n;
        rank = sharers.rank;
    }
    if (n == 0)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "%s, but Weft can use no GPU here: %s; "
                            "%s" INSTEAD,
                            asked->said, why, asked->cpus);
    if (sharers.differ)
        return weft_err_set(
            err, WEFT_EUNSUPPORTED,
            "ranks of this machine see some of their GPUs together, and not "
            "all, or in another order: let each see all of them, or its own "
            "alone (CUDA_VISIBLE_DEVICES, srun --gpus-per-task); %s" INSTEAD,
            asked->cpus);
    int rc = check_sharing(asked, n_ranks, err);
    if (!rc)
        rc = deal(asked, n, n_ranks / asked->n_sharing, &used, err);
    if (rc)
        return rc;
    int32_t first = rank / asked->n_sharing * used;
    int32_t end = first + used;
    rc = check_room(asked, first, end, err);
    if (rc)
        return rc;
    for (int32_t i = first; i < end; i++)
        if (device[i].major < WEFT_K_CUDA_MAJOR)
            return weft_err_set(
                err, WEFT_EUNSUPPORTED,
                "GPU %d, %s, has compute capability %d.%d, and Weft's "
                "kernels "
                "need %d.0 or later; %s%s%s",
                i, device[i].name, device[i].major, device[i].minor,
                WEFT_K_CUDA_MAJOR, i > 0 ? "set " : "",
                i > 0 ? asked->gpus : asked->cpus,
                i > 0 ? " to use only those before it" : INSTEAD);
    rc = check_kind(asked, device, first, end, err);
    if (rc)
        return rc;
    *out = used;
    *first_out = first;
    return 0;
}

int weft_run_gpus(const struct weft_config *config, int32_t *out,
                  int32_t *first_out, struct weft_err *err)
{
    *out = *first_out = 0;
    if (config->runtime.devices != WEFT_ON_GPUS)
        return 0;
    return weft_gpus_ask(
        &(struct weft_gpus_asked){
            config->runtime.gpus, config->runtime.ranks_per_gpu,
            "'runtime.devices' is gpu", "runtime.gpus", "runtime.devices=0",
            !config->numerics.exact},
        out, first_out, err);
}

int weft_context_open_gpus(int n_gpus, struct weft_context **out,
                           struct weft_err *err)
{
    const struct weft_gpus_asked asked = {n_gpus,
                                          1,
                                          "the program asks for GPUs",
                                          "n_gpus",
                                          "weft_context_open()",
                                          false};
    struct weft_context_options options = {
        .rt = {.n_devices = 1, .nap = -1, .watchdog_s = 300}};
    int32_t n = 0, first = 0;
    int rc = n_gpus < 0 ? weft_err_set(err, WEFT_EINVAL,
                                       "'n_gpus' is %d: give a number of "
                                       "GPUs, or 0 for all",
                                       n_gpus)
                        : 0;
    weft_gpus_meet();
    if (!rc)
        rc = weft_gpus_ask(&asked, &n, &first, err);
    rc = weft_world_agree(rc, err);
    options.rt.n_gpus = n;
    options.rt.first_gpu = first;
    return rc ? rc : weft_context_open_with(&options, out, err);
}

void weft_gpus_tell_unused(const struct weft_config *config)
{
    struct weft_k_device device[WEFT_MAX_DEVICES];
    char text[WEFT_GPU_TEXT];
    const char *why;
    if (config->runtime.devices != 0 || list_gpus(device, &why) == 0
        || device[0].major < WEFT_K_CUDA_MAJOR)
        return;
    weft_gpu_text(&device[0], text, sizeof text);
    weft_info(
        "this run is on CPU devices; runtime.devices=gpu gives it the GPUs "
        "of this machine (%s)",
        text);
}
