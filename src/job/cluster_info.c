/* SPDX-License-Identifier: Apache-2.0 */
#include "job/cluster_info.h"

#include "base/alloc.h"
#include "codelets/work.h"
#include "plan/costs.h"

/* A layer of a model of 7 billion parameters (ReaL, table 1). */
static int layer_shape(enum weft_dtype dtype, struct weft_shape *out,
                       struct weft_err *err)
{
    *out = (struct weft_shape){.hidden = 4096,
                               .n_layers = 32,
                               .n_heads = 32,
                               .n_kv_heads = 8,
                               .head_dim = 128,
                               .intermediate = 14336,
                               .vocab = 128256,
                               .dtype = dtype};
    return weft_shape_partition(out, 0, err);
}

/* Seconds of the layer forwards on node `node`, alone in a recording. */
static int layer_s(struct weft_costs *costs, int32_t device,
                   enum weft_dtype dtype, int32_t n_rows, double *s_out,
                   double *flop_out, struct weft_err *err)
{
    struct weft_shape shape;
    struct weft_recording r;
    const struct weft_where where = {.device = device};
    const struct weft_work_rows rows = {.n_rows = n_rows};
    int rc = layer_shape(dtype, &shape, err);
    if (rc)
        return rc;
    struct weft_work work = weft_work_layer(
        &shape, (struct weft_range){0, shape.n_blocks},
        WEFT_WORK_ATTENTION | WEFT_WORK_MLP, &rows);
    work.bytes = work.flop / n_rows / 2
               * (double) weft_dtype_bytes(dtype); /* of the weights */
    weft_recording_init(&r);
    weft_recording_task(&r, WEFT_REC_TASK, "layer_forward", &where, 0);
    weft_recording_work(&r, &work);
    rc = weft_recording_status(&r, err);
    if (!rc)
        *s_out = weft_costs_task(costs, &r, 0, device);
    *flop_out = work.flop;
    weft_recording_release(&r);
    return rc;
}

static int add_layer(struct weft_costs *costs, int32_t device,
                     const struct weft_node_kind *kind, enum weft_dtype dtype,
                     struct weft_string *out, struct weft_err *err)
{
    static const int32_t rows[] = {1, 8, 64, 512, 4096};
    int rc = 0;
    if (kind->flops[dtype] == 0)
        return 0;
    weft_string_addf(out, "  a 7B layer in %s:", weft_dtype_name(dtype));
    for (size_t i = 0; i < WEFT_COUNT(rows) && !rc; i++) {
        double s = 0, flop = 0;
        rc = layer_s(costs, device, dtype, rows[i], &s, &flop, err);
        weft_string_addf(out, "%s %d row%s %.3g ms (%.3g TFLOP/s)",
                         i ? "," : "", rows[i], rows[i] > 1 ? "s" : "",
                         s * 1e3, flop / s / 1e12);
    }
    weft_string_add(out, "\n");
    return rc;
}

/* Seconds of a message that is alone on its way. */
static int message_s(struct weft_costs *costs, int32_t from, int32_t to,
                     size_t bytes, double *s_out, struct weft_err *err)
{
    const struct weft_where where = {.device = -1};
    const int32_t place[] = {from, to};
    struct weft_recording r;
    int32_t link[WEFT_COSTS_PATH], n_links;
    const double *rate = weft_costs_links(costs, &n_links);
    double latency_s, size, slowest = 0;
    weft_recording_init(&r);
    weft_recording_task(&r, WEFT_REC_MESSAGE, "message", &where, to);
    for (int mode = 0; mode < 2 && !r.full; mode++)
        weft_recording_access(
            &r,
            weft_recording_tile(&r,
                                &(struct weft_rec_tile){.bytes = bytes,
                                                        .place = place[mode],
                                                        .whole = -1}),
            mode);
    weft_recording_work(&r, NULL);
    int rc = weft_recording_status(&r, err);
    int32_t n = rc
                  ? 0
                  : weft_costs_message(costs, &r, 0, link, &latency_s, &size);
    for (int32_t i = 0; i < n; i++)
        if (slowest < 1 / rate[link[i]])
            slowest = 1 / rate[link[i]];
    if (!rc)
        *s_out = latency_s + size * slowest;
    weft_recording_release(&r);
    return rc;
}

static int add_message(struct weft_costs *costs, const char *what,
                       int32_t from, int32_t to, struct weft_string *out,
                       struct weft_err *err)
{
    static const size_t size[] = {1 << 10, 1 << 20, 1 << 30};
    static const char *const unit[] = {"KiB", "MiB", "GiB"};
    int rc = 0;
    weft_string_addf(out, "  %s:", what);
    for (size_t i = 0; i < WEFT_COUNT(size) && !rc; i++) {
        double s = 0;
        rc = message_s(costs, from, to, size[i], &s, err);
        weft_string_addf(out, "%s 1 %s %.3g us", i ? "," : "", unit[i],
                         s * 1e6);
    }
    weft_string_add(out, "\n");
    return rc;
}

static void add_kind(const struct weft_node_kind *k, struct weft_string *out)
{
    weft_string_addf(out,
                     "%s: %d node%s of %d device%s, each %.4g GiB, %.4g "
                     "TFLOP/s f32, %.4g bf16, memory %.4g GB/s (node %.4g)\n",
                     k->name, k->n_nodes, k->n_nodes > 1 ? "s" : "",
                     k->n_devices, k->n_devices > 1 ? "s" : "",
                     k->memory_bytes / 1073741824, k->flops[WEFT_F32] / 1e12,
                     k->flops[WEFT_BF16] / 1e12, k->memory_bytes_per_s / 1e9,
                     k->node_bytes_per_s / 1e9);
}

static int describe(const struct weft_cluster *c, struct weft_string *out,
                    struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < c->n_kinds && !rc; i++) {
        const struct weft_node_kind *k = &c->kind[i];
        /* a cluster of this kind alone, so that nodes may differ */
        struct weft_cluster one = *c;
        struct weft_costs *costs;
        one.n_kinds = 1;
        one.kind[0] = *k;
        one.n_nodes = k->n_nodes;
        rc = weft_costs_create(
            &(struct weft_costs_job){.cluster = &one,
                                     .n_ranks = k->n_nodes,
                                     .n_devices = k->n_devices,
                                     .place_per_device = true},
            &costs, err);
        if (rc)
            break;
        add_kind(k, out);
        rc = add_layer(costs, 0, k, WEFT_F32, out, err);
        if (!rc)
            rc = add_layer(costs, 0, k, WEFT_BF16, out, err);
        if (!rc && k->n_devices > 1)
            rc = add_message(costs, "inside a node", 0, 1, out, err);
        if (!rc && k->n_nodes > 1)
            rc = add_message(costs, "between nodes", 0, k->n_devices, out,
                             err);
        weft_costs_free(costs);
    }
    return rc;
}

int weft_cluster_info(const char *path, struct weft_string *out,
                      struct weft_err *err)
{
    struct weft_cluster cluster;
    int rc = weft_cluster_read(path, &cluster, err);
    if (rc)
        return rc;
    weft_string_addf(out, "%s: %d node%s, %d devices\n", cluster.name,
                     cluster.n_nodes, cluster.n_nodes > 1 ? "s" : "",
                     weft_cluster_n_devices(&cluster));
    rc = describe(&cluster, out, err);
    return rc ? rc : weft_string_check(out, "a cluster", err);
}
