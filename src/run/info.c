/* SPDX-License-Identifier: Apache-2.0 */
#include "run/info.h"

#include <config.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/shape.h"
#include "base/topology.h"
#include "kern/device_cuda.h"
#include "kern/kern.h"
#include "config/keys.h"
#include "rt/graph.h"

#ifndef WEFT_MPI_NAME
#define WEFT_MPI_NAME "none"
#endif
#ifndef WEFT_CUDA_NAME
#define WEFT_CUDA_NAME "none"
#endif

/* Environment variables; each overrides a key of the configuration. */
static const struct {
    const char *name, *meaning;
} variable[] = {
    {"WEFT_ISA", "kernels: c, avx2, avx512, avx512_bf16 (numerics.isa)"},
};

struct facts {
    struct weft_topology machine;
    struct weft_k_device device[WEFT_MAX_DEVICES];
    int64_t device_free_bytes[WEFT_MAX_DEVICES];
    int n_devices;
    int driver, build; /* their CUDA */
    int64_t cublaslt;  /* its version; 0: cublaslt_err */
    struct weft_err cublaslt_err;
    bool devices_reach; /* one another's memory */
    const char *why_none;
    enum weft_isa best, chosen;
    struct weft_err isa_err; /* WEFT_ISA is invalid */
};

static int collect(struct facts *f, struct weft_err *err)
{
    *f = (struct facts){.best = weft_k_isa_detect()};
    f->n_devices = weft_k_devices_cuda(f->device, WEFT_MAX_DEVICES,
                                       &f->why_none);
    f->devices_reach = weft_k_devices_reach_cuda(f->n_devices);
    weft_k_versions_cuda(&f->driver, &f->build);
    for (int i = 0; i < f->n_devices && i < WEFT_MAX_DEVICES; i++)
        f->device_free_bytes[i] = weft_k_device_free_cuda(i);
    if (f->n_devices > 0)
        (void) weft_k_products_version_cuda(&f->cublaslt, &f->cublaslt_err);
    f->chosen = f->best;
    if (weft_k_init(NULL, &f->isa_err) == 0)
        f->chosen = weft_k_isa();
    return weft_topology_read(&f->machine, err);
}

/* ---- Text ------------------------------------------------------------- */

static void add_bytes(struct weft_string *out, int64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double) bytes;
    size_t k = 0;
    for (; x >= 1024 && k + 1 < WEFT_COUNT(unit); k++)
        x /= 1024;
    if (bytes <= 0)
        weft_string_add(out, "unknown");
    else
        weft_string_addf(out, "%.4g %s", x, unit[k]);
}

static void add_size(struct weft_string *out, const char *name, int64_t bytes)
{
    weft_string_addf(out, "  %-12s ", name);
    add_bytes(out, bytes);
    weft_string_add(out, "\n");
}

static void text_machine(const struct weft_topology *m,
                         struct weft_string *out)
{
    weft_string_addf(out, "\nmachine\n  %-12s %s\n", "CPU",
                     m->cpu_name[0] ? m->cpu_name : "unknown");
    weft_string_addf(out,
                     "  %-12s %d in %d package%s, %d hardware threads, %d "
                     "usable\n",
                     "cores", m->n_cores, m->n_packages,
                     m->n_packages == 1 ? "" : "s", m->n_threads,
                     m->n_usable);
    add_size(out, "L1 data", m->l1d_bytes);
    add_size(out, "L2", m->l2_bytes);
    weft_string_addf(out, "  %-12s ", "L3");
    if (m->n_l3 > 1)
        weft_string_addf(out, "%d x ", m->n_l3);
    add_bytes(out, m->l3_bytes);
    weft_string_addf(out, "\n  %-12s %d", "NUMA nodes", m->n_numa);
    for (int i = 0; i < m->n_numa && i < WEFT_TOPOLOGY_NUMA_MAX; i++) {
        weft_string_add(out, i == 0 ? ": " : ", ");
        add_bytes(out, m->numa_bytes[i]);
    }
    weft_string_add(out, "\n");
    add_size(out, "memory", m->memory_bytes);
    add_size(out, "free", m->free_bytes);
}

/* Why no run can have this GPU as a device; NULL: it can. */
static const char *why_not(const struct weft_k_device *d)
{
    return d->major < WEFT_K_CUDA_MAJOR
             ? "too old: Weft's kernels need compute capability 8.0"
         : !weft_rt_has_cuda() ? "not usable: this StarPU has no CUDA"
                               : NULL;
}

/* Whether a graph can be a loop: CUDA has such nodes from 12.4 on. */
static bool has_loops(const struct facts *f)
{
    return f->driver >= 12040 && f->build >= 12040;
}

static void text_cuda(const struct facts *f, struct weft_string *out)
{
    weft_string_addf(
        out,
        "  %-12s serves CUDA %d.%d; this build has %d.%d\n"
        "  %-12s %s\n  %-12s ",
        "driver", f->driver / 1000, f->driver % 1000 / 10, f->build / 1000,
        f->build % 1000 / 10, "graphs",
        has_loops(f) ? "can loop: a chunk of decode steps is one launch"
                     : "cannot loop before CUDA 12.4: each decode step is "
                       "a launch",
        "products");
    if (f->cublaslt > 0)
        weft_string_addf(out, "cuBLASLt %lld\n", (long long) f->cublaslt);
    else
        weft_string_addf(out, "none: %s\n", f->cublaslt_err.text);
}

static void text_devices(const struct facts *f, struct weft_string *out)
{
    weft_string_add(out, "\nCUDA devices\n");
    if (f->n_devices == 0)
        weft_string_addf(out, "  none: %s\n",
                         f->why_none ? f->why_none : "no reason given");
    else
        text_cuda(f, out);
    for (int i = 0; i < f->n_devices && i < WEFT_MAX_DEVICES; i++) {
        const struct weft_k_device *d = &f->device[i];
        weft_string_addf(out,
                         "  %d: %s, compute capability %d.%d, %d "
                         "multiprocessors, ",
                         i, d->name, d->major, d->minor,
                         d->n_multiprocessors);
        add_bytes(out, d->memory_bytes);
        weft_string_add(out, ", free ");
        add_bytes(out, f->device_free_bytes[i]);
        weft_string_addf(out, "; %s\n", why_not(d) ? why_not(d) : "usable");
    }
    if (f->n_devices > 1)
        weft_string_addf(out, "  %s\n",
                         f->devices_reach
                             ? "each may use the others' memory: a tp group "
                               "decodes a step in one task of each"
                             : "not each may use the others' memory: a tp "
                               "group decodes by tasks of every layer");
}

static void add_text(const struct facts *f, struct weft_string *out)
{
    weft_string_addf(out, "weft %s\n\nbuild\n%s", weft_version(),
                     WEFT_CONFIGURE_SUMMARY);
    weft_string_addf(out, "\nruntime\n  %-12s %s\n  %-12s %s\n  %-12s %s\n",
                     "StarPU", WEFT_STARPU_NAME, "MPI", WEFT_MPI_NAME, "CUDA",
                     WEFT_CUDA_NAME);
#ifdef WEFT_HAVE_MPI
    weft_string_addf(
        out, "  %-12s StarPU %s while it waits for one%s\n", "messages",
        weft_rt_messages_nap() ? "sleeps" : "spins",
        weft_rt_messages_nap() ? "" : ": slow where ranks share cores");
#endif
    text_machine(&f->machine, out);
    text_devices(f, out);
    weft_string_addf(out, "\nkernels\n  %-12s %s\n  %-12s %s", "best here",
                     weft_k_isa_name(f->best), "chosen",
                     weft_k_isa_name(f->chosen));
    if (f->isa_err.code)
        weft_string_addf(out, " (%s)", f->isa_err.text);
    weft_string_addf(out, "\n  %-12s", "same bits");
    for (int i = 0; i < WEFT_N_ISAS; i++)
        if (weft_k_isa_same_bits((enum weft_isa) i, f->chosen))
            weft_string_addf(out, " %s", weft_k_isa_name((enum weft_isa) i));
    weft_string_addf(
        out,
        "\n\nlimits\n  %-12s %d CPU devices, %d tensor blocks, %d "
        "rewards\n\nenvironment\n",
        "a run", weft_rt_max_devices(), WEFT_MAX_BLOCKS, WEFT_MAX_REWARDS);
    for (size_t i = 0; i < WEFT_COUNT(variable); i++) {
        const char *value = getenv(variable[i].name);
        weft_string_addf(out, "  %-12s %s%s  %s\n", variable[i].name,
                         value ? "= " : "not set", value ? value : "",
                         variable[i].meaning);
    }
}

/* ---- JSON ------------------------------------------------------------- */

static void add_key(struct weft_string *out, const char *key,
                    const char *value)
{
    weft_string_addf(out, "\"%s\": ", key);
    weft_string_add_json(out, value);
}

static void json_machine(const struct weft_topology *m,
                         struct weft_string *out)
{
    weft_string_add(out, ", \"machine\": {");
    add_key(out, "cpu", m->cpu_name);
    weft_string_addf(
        out,
        ", \"packages\": %d, \"cores\": %d, \"threads\": %d, "
        "\"usable\": %d, \"l1d_bytes\": %lld, \"l2_bytes\": %lld, "
        "\"l3_bytes\": %lld, \"l3_caches\": %d, \"numa_bytes\": [",
        m->n_packages, m->n_cores, m->n_threads, m->n_usable,
        (long long) m->l1d_bytes, (long long) m->l2_bytes,
        (long long) m->l3_bytes, m->n_l3);
    for (int i = 0; i < m->n_numa && i < WEFT_TOPOLOGY_NUMA_MAX; i++)
        weft_string_addf(out, "%s%lld", i > 0 ? ", " : "",
                         (long long) m->numa_bytes[i]);
    weft_string_addf(out, "], \"memory_bytes\": %lld, \"free_bytes\": %lld}",
                     (long long) m->memory_bytes, (long long) m->free_bytes);
}

static void json_devices(const struct facts *f, struct weft_string *out)
{
    weft_string_add(out, ", \"cuda_devices\": [");
    for (int i = 0; i < f->n_devices && i < WEFT_MAX_DEVICES; i++) {
        const struct weft_k_device *d = &f->device[i];
        weft_string_add(out, i > 0 ? ", {" : "{");
        add_key(out, "name", d->name);
        weft_string_addf(out,
                         ", \"memory_bytes\": %lld, \"free_bytes\": %lld, "
                         "\"compute_capability\": \"%d.%d\", "
                         "\"multiprocessors\": %d, ",
                         (long long) d->memory_bytes,
                         (long long) f->device_free_bytes[i], d->major,
                         d->minor, d->n_multiprocessors);
        add_key(out, "why_not", why_not(d));
        weft_string_add(out, "}");
    }
    weft_string_addf(out, "], \"cuda_devices_reach\": %s, ",
                     f->n_devices > 1 && f->devices_reach ? "true" : "false");
    add_key(out, "cuda_devices_why_none",
            f->n_devices == 0 ? f->why_none : NULL);
    weft_string_addf(out,
                     ", \"cuda_driver\": %d, \"cuda_build\": %d, "
                     "\"cuda_graph_loops\": %s, \"cublaslt\": %lld, ",
                     f->driver, f->build, has_loops(f) ? "true" : "false",
                     (long long) f->cublaslt);
    add_key(out, "cublaslt_error",
            f->cublaslt_err.code ? f->cublaslt_err.text : NULL);
}

static void add_json(const struct facts *f, struct weft_string *out)
{
    weft_string_add(out, "{");
    add_key(out, "version", weft_version());
    weft_string_add(out, ", ");
    add_key(out, "build", WEFT_CONFIGURE_SUMMARY);
    weft_string_add(out, ", ");
    add_key(out, "starpu", WEFT_STARPU_NAME);
    weft_string_add(out, ", ");
    add_key(out, "mpi", WEFT_MPI_NAME);
    weft_string_add(out, ", ");
    add_key(out, "cuda", WEFT_CUDA_NAME);
    weft_string_addf(out, ", \"messages_nap\": %s",
                     weft_rt_messages_nap() ? "true" : "false");
    json_machine(&f->machine, out);
    json_devices(f, out);
    weft_string_add(out, ", \"kernels\": {");
    add_key(out, "best", weft_k_isa_name(f->best));
    weft_string_add(out, ", ");
    add_key(out, "chosen", weft_k_isa_name(f->chosen));
    weft_string_add(out, ", ");
    add_key(out, "error", f->isa_err.code ? f->isa_err.text : NULL);
    weft_string_addf(
        out,
        "}, \"limits\": {\"devices\": %d, \"tensor_blocks\": %d, "
        "\"rewards\": %d}, \"environment\": {",
        weft_rt_max_devices(), WEFT_MAX_BLOCKS, WEFT_MAX_REWARDS);
    for (size_t i = 0; i < WEFT_COUNT(variable); i++) {
        weft_string_add(out, i > 0 ? ", " : "");
        add_key(out, variable[i].name, getenv(variable[i].name));
    }
    weft_string_add(out, "}}\n");
}

int weft_info(bool json, struct weft_string *out, struct weft_err *err)
{
    struct facts f;
    int rc = collect(&f, err);
    if (rc)
        return rc;
    if (json)
        add_json(&f, out);
    else
        add_text(&f, out);
    return weft_string_check(out, "the report", err);
}
