/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clusters: kinds of nodes, what their devices can do, and what connects them,
 * read from a YAML file (doc/costs.md). Node numbers count through the kinds
 * in the file's order.
 */
#ifndef WEFT_PLAN_CLUSTER_H
#define WEFT_PLAN_CLUSTER_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEFT_CLUSTER_KINDS = 8,
    WEFT_CLUSTER_SIZES = 24, /* of a table by size, at most */
    WEFT_CLUSTER_NAME = 48
};

/* A function of a size: given at ascending sizes, linear between them, and
 * constant before the first and after the last. */
struct weft_size_table {
    int32_t n;
    double size[WEFT_CLUSTER_SIZES], value[WEFT_CLUSTER_SIZES];
};
/* Its value at a size. */
double weft_size_table_at(const struct weft_size_table *table, double size);

/* Bytes per second each way, and the seconds before the first byte comes. */
struct weft_link {
    double bytes_per_s, latency_s;
};

struct weft_node_kind {
    char name[WEFT_CLUSTER_NAME];
    int32_t n_nodes, n_devices; /* devices of a node */
    double memory_bytes;        /* of a device */
    double flops[2];            /* peak by enum weft_dtype; 0: it has none */
    double memory_bytes_per_s;  /* of a device alone */
    double node_bytes_per_s;    /* of all devices of a node together */
    double task_s;              /* before a task begins its work */
    double layer_s;             /* for each of its layers */
    /* Bytes that norms, residual sums and the like of a layer read and write,
     * for each row and number of its hidden state; 0: they are not priced. */
    double row_bytes;
    double insert_s; /* that the program takes to insert a task */
    /* Shares of the peak: by rows of a product, and by bytes of a task. */
    struct weft_size_table by_rows, by_bytes;
    struct weft_link inside; /* between two devices of a node */
    struct weft_link host;   /* of a device and its node's memory */
    struct weft_link rail;   /* each of the node's connections */
    int32_t n_rails;         /* device d uses rail d * n_rails / n_devices */
};

struct weft_cluster {
    char name[WEFT_CLUSTER_NAME];
    int32_t n_kinds, n_nodes;
    struct weft_node_kind kind[WEFT_CLUSTER_KINDS];
    double core_bytes_per_s; /* between all nodes together; 0: no limit */
};

/* Errors: WEFT_EFORMAT, WEFT_EINVAL: a sentence with file, line, key, and what
 * would be right; those of reading a file. */
int weft_cluster_parse(const char *text, size_t n, const char *name,
                       struct weft_cluster *out, struct weft_err *err);
int weft_cluster_read(const char *path, struct weft_cluster *out,
                      struct weft_err *err);

/* What a node is; 0 <= node < n_nodes. */
const struct weft_node_kind *weft_cluster_node(
    const struct weft_cluster *cluster, int32_t node);
/* Of all nodes together. */
int32_t weft_cluster_n_devices(const struct weft_cluster *cluster);
/* Ranks of a run have equally many devices. Where kinds of node have unlike
 * numbers, ranks of so many (at most what all kinds have in common: returned by
 * the first) lie in nodes as many as fit, node by node; the second says how
 * many fit. */
int32_t weft_cluster_common(const struct weft_cluster *cluster);
int32_t weft_cluster_fits(const struct weft_cluster *cluster,
                          int32_t n_devices);
/* Where rank `rank` of n_ranks lies: its node, and the node's device that is
 * its first. Where all nodes have as many devices, ranks beyond the nodes share
 * these. */
int32_t weft_cluster_rank(const struct weft_cluster *cluster, int32_t n_ranks,
                          int32_t n_devices, int32_t rank,
                          int32_t *first_device_out);
/* Bytes of the device that has least: what fits there fits all. */
double weft_cluster_device_bytes(const struct weft_cluster *cluster);

#ifdef __cplusplus
}
#endif
#endif
