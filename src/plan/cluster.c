/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/edit_distance.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/yaml.h"

enum { MAX_BYTES = 1 << 20, MAX_NODES = 1 << 20 };

double weft_size_table_at(const struct weft_size_table *t, double size)
{
    int32_t i = 0;
    if (t->n == 0)
        return 1;
    while (i < t->n && t->size[i] <= size)
        i++;
    if (i == 0 || i == t->n)
        return t->value[i ? i - 1 : 0];
    double part = (size - t->size[i - 1]) / (t->size[i] - t->size[i - 1]);
    return t->value[i - 1] + part * (t->value[i] - t->value[i - 1]);
}

/* ---- Keys -------------------------------------------------------------- */

/* A number: in the file's unit, between low and high; scaled when it is
 * stored. */
struct key {
    const char *name;
    enum { NUMBER, COUNT, TEXT, TABLE, GROUP } type;
    bool optional;
    double low, high, scale;
    size_t offset;
    const struct key *group; /* (n) */
    size_t n;
};

#define AT(field) offsetof(struct weft_node_kind, field)
#define NUMBER_KEY(name, field, low, high, scale)                            \
    {                                                                        \
        name, NUMBER, false, low, high, scale, AT(field), NULL, 0            \
    }
#define OPTIONAL_KEY(name, field, low, high, scale)                          \
    {                                                                        \
        name, NUMBER, true, low, high, scale, AT(field), NULL, 0             \
    }
#define COUNT_KEY(name, field, high)                                         \
    {                                                                        \
        name, COUNT, false, 1, high, 1, AT(field), NULL, 0                   \
    }
#define TABLE_KEY(name, field, high)                                         \
    {                                                                        \
        name, TABLE, true, 1, high, 1, AT(field), NULL, 0                    \
    }
#define GROUP_KEY(name, optional, group)                                     \
    {                                                                        \
        name, GROUP, optional, 0, 0, 0, 0, group, WEFT_COUNT(group)          \
    }
#define LINK(field)                                                          \
    NUMBER_KEY("gbs", field.bytes_per_s, 1e-3, 1e5, 1e9),                    \
        NUMBER_KEY("us", field.latency_s, 0, 1e6, 1e-6)

static const struct key flops_keys[] = {
    NUMBER_KEY("f32", flops[WEFT_F32], 1e-3, 1e5, 1e12),
    OPTIONAL_KEY("bf16", flops[WEFT_BF16], 1e-3, 1e5, 1e12)};
static const struct key inside_keys[] = {LINK(inside)};
static const struct key host_keys[] = {LINK(host)};
static const struct key network_keys[] = {
    COUNT_KEY("rails", n_rails, WEFT_MAX_DEVICES), LINK(rail)};
static const struct key kind_keys[] = {
    {"name", TEXT, false, 0, 0, 0, AT(name), NULL, 0},
    COUNT_KEY("nodes", n_nodes, MAX_NODES),
    COUNT_KEY("devices", n_devices, WEFT_MAX_DEVICES),
    NUMBER_KEY("memory_gib", memory_bytes, 1e-2, 1e5, 1073741824.0),
    GROUP_KEY("tflops", false, flops_keys),
    NUMBER_KEY("memory_gbs", memory_bytes_per_s, 1e-2, 1e6, 1e9),
    OPTIONAL_KEY("node_memory_gbs", node_bytes_per_s, 1e-2, 1e8, 1e9),
    NUMBER_KEY("task_us", task_s, 0, 1e6, 1e-6),
    OPTIONAL_KEY("layer_us", layer_s, 0, 1e6, 1e-6),
    OPTIONAL_KEY("row_bytes", row_bytes, 0, 1e4, 1),
    OPTIONAL_KEY("insert_us", insert_s, 0, 1e6, 1e-6),
    TABLE_KEY("by_rows", by_rows, 1e9),
    TABLE_KEY("by_bytes", by_bytes, 1e15),
    GROUP_KEY("inside", true, inside_keys),
    GROUP_KEY("host", true, host_keys),
    GROUP_KEY("network", true, network_keys)};

static int unknown(const struct weft_yaml *node, const char *name,
                   const struct key *known, size_t n, struct weft_err *err)
{
    const char *nearest = known[0].name;
    for (size_t i = 1; i < n; i++)
        if (weft_edit_distance(name, known[i].name)
            < weft_edit_distance(name, nearest))
            nearest = known[i].name;
    return weft_yaml_err(node, err, WEFT_EINVAL,
                         "unknown key '%.40s'; did you mean '%s'?", name,
                         nearest);
}

static int missing(const struct weft_yaml *node, const struct key *k,
                   struct weft_err *err)
{
    if (k->type == GROUP)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' is missing: a map with '%s' and '%s'",
                             k->name, k->group[0].name, k->group[1].name);
    if (k->type == TEXT)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' is missing: a word for this kind of node",
                             k->name);
    return weft_yaml_err(node, err, WEFT_EINVAL,
                         "'%s' is missing: a number from %g to %g", k->name,
                         k->low, k->high);
}

static int read_number(const struct weft_yaml *node, const struct key *k,
                       double *out, struct weft_err *err)
{
    int rc = weft_yaml_double(node, k->name, out, err);
    if (!rc && !(*out >= k->low && *out <= k->high))
        rc = weft_yaml_err(node, err, WEFT_EINVAL,
                           "'%s' is %g, which cannot be; from %g to %g is "
                           "possible",
                           k->name, *out, k->low, k->high);
    return rc;
}

static int read_count(const struct weft_yaml *node, const struct key *k,
                      int32_t *out, struct weft_err *err)
{
    int64_t n = 0;
    int rc = weft_yaml_int(node, k->name, &n, err);
    if (!rc && (n < 1 || (double) n > k->high))
        rc = weft_yaml_err(node, err, WEFT_EINVAL,
                           "'%s' is %lld; from 1 to %g is possible", k->name,
                           (long long) n, k->high);
    *out = (int32_t) n;
    return rc;
}

/* A list of [size, share] pairs. */
static int read_table(const struct weft_yaml *node, const struct key *k,
                      struct weft_size_table *out, struct weft_err *err)
{
    int rc = 0;
    if (node->type != WEFT_YAML_LIST || node->n == 0
        || node->n > WEFT_CLUSTER_SIZES)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' must be a list of 1 to %d pairs [size, "
                             "share of the peak]",
                             k->name, WEFT_CLUSTER_SIZES);
    for (size_t i = 0; i < node->n && !rc; i++) {
        const struct weft_yaml *pair = node->child[i];
        const struct key share = {.name = k->name, .low = 1e-6, .high = 1};
        if (pair->type != WEFT_YAML_LIST || pair->n != 2)
            return weft_yaml_err(pair, err, WEFT_EINVAL,
                                 "'%s' must hold pairs [size, share of the "
                                 "peak]",
                                 k->name);
        rc = read_number(pair->child[0], k, &out->size[i], err);
        if (!rc)
            rc = read_number(pair->child[1], &share, &out->value[i], err);
        if (!rc && i > 0 && out->size[i] <= out->size[i - 1])
            rc = weft_yaml_err(pair, err, WEFT_EINVAL,
                               "the sizes of '%s' must ascend; %g follows %g",
                               k->name, out->size[i], out->size[i - 1]);
    }
    out->n = (int32_t) node->n;
    return rc;
}

static int read_text(const struct weft_yaml *node, const struct key *k,
                     char out[WEFT_CLUSTER_NAME], struct weft_err *err)
{
    const char *text;
    int rc = weft_yaml_string(node, k->name, &text, err);
    if (rc)
        return rc;
    if (strlen(text) >= WEFT_CLUSTER_NAME || !*text)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'%s' must have 1 to %d letters", k->name,
                             WEFT_CLUSTER_NAME - 1);
    strcpy(out, text);
    return 0;
}

static int read_map(const struct weft_yaml *map, const char *what,
                    const struct key *known, size_t n, void *base,
                    struct weft_err *err);

static int read_key(const struct weft_yaml *node, const struct key *k,
                    void *base, struct weft_err *err)
{
    char *at = (char *) base + k->offset;
    double value = 0;
    int rc;
    switch (k->type) {
    case COUNT:
        return read_count(node, k, (int32_t *) (void *) at, err);
    case TEXT:
        return read_text(node, k, at, err);
    case TABLE:
        return read_table(node, k, (struct weft_size_table *) (void *) at,
                          err);
    case GROUP:
        return read_map(node, k->name, k->group, k->n, base, err);
    default:
        rc = read_number(node, k, &value, err);
        *(double *) (void *) at = value * k->scale;
        return rc;
    }
}

static int read_map(const struct weft_yaml *map, const char *what,
                    const struct key *known, size_t n, void *base,
                    struct weft_err *err)
{
    int rc = 0;
    if (map->type != WEFT_YAML_MAP)
        return weft_yaml_err(map, err, WEFT_EINVAL, "'%s' must be a map",
                             what);
    for (size_t i = 0; i < map->n && !rc; i++) {
        size_t k = 0;
        while (k < n && strcmp(map->key[i], known[k].name) != 0)
            k++;
        rc = k == n ? unknown(map->child[i], map->key[i], known, n, err)
                    : read_key(map->child[i], &known[k], base, err);
    }
    for (size_t k = 0; k < n && !rc; k++)
        if (!known[k].optional && !weft_yaml_get(map, known[k].name))
            rc = missing(map, &known[k], err);
    return rc;
}

/* ---- Kinds ------------------------------------------------------------- */

static int check_kind(const struct weft_yaml *node,
                      struct weft_node_kind *kind, struct weft_err *err)
{
    double all = kind->n_devices * kind->memory_bytes_per_s;
    if (kind->node_bytes_per_s == 0)
        kind->node_bytes_per_s = all;
    if (kind->node_bytes_per_s < kind->memory_bytes_per_s
        || kind->node_bytes_per_s > all * (1 + 1e-9))
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'node_memory_gbs' of %s is %g; it lies between "
                             "memory_gbs, %g, and that of all devices, %g",
                             kind->name, kind->node_bytes_per_s / 1e9,
                             kind->memory_bytes_per_s / 1e9, all / 1e9);
    if (kind->n_devices > 1 && kind->inside.bytes_per_s == 0)
        return weft_yaml_err(node, err, WEFT_EINVAL,
                             "'inside' of %s is missing: what connects its "
                             "%d devices, a map with 'gbs' and 'us'",
                             kind->name, kind->n_devices);
    return 0;
}

static int check_network(const struct weft_yaml *root,
                         const struct weft_cluster *c, struct weft_err *err)
{
    for (int32_t i = 0; i < c->n_kinds && c->n_nodes > 1; i++)
        if (c->kind[i].n_rails == 0)
            return weft_yaml_err(root, err, WEFT_EINVAL,
                                 "'network' of %s is missing: what connects "
                                 "the %d nodes, a map with 'rails', 'gbs' "
                                 "and 'us'",
                                 c->kind[i].name, c->n_nodes);
    return 0;
}

static int read_kinds(const struct weft_yaml *list, struct weft_cluster *c,
                      struct weft_err *err)
{
    int rc = 0;
    if (list->type != WEFT_YAML_LIST || list->n == 0
        || list->n > WEFT_CLUSTER_KINDS)
        return weft_yaml_err(list, err, WEFT_EINVAL,
                             "'kinds' must be a list of 1 to %d kinds of "
                             "nodes",
                             WEFT_CLUSTER_KINDS);
    for (size_t i = 0; i < list->n && !rc; i++) {
        struct weft_node_kind *kind = &c->kind[i];
        rc = read_map(list->child[i], "kinds", kind_keys,
                      WEFT_COUNT(kind_keys), kind, err);
        if (!rc)
            rc = check_kind(list->child[i], kind, err);
        if (!rc && c->n_nodes + kind->n_nodes > MAX_NODES)
            rc = weft_yaml_err(list->child[i], err, WEFT_EINVAL,
                               "more than %d nodes", MAX_NODES);
        for (int32_t k = 0; k < c->n_kinds && !rc; k++)
            if (strcmp(c->kind[k].name, kind->name) == 0)
                rc = weft_yaml_err(list->child[i], err, WEFT_EINVAL,
                                   "two kinds are called '%s'", kind->name);
        c->n_nodes += kind->n_nodes;
        c->n_kinds++;
    }
    return rc;
}

static int read_root(const struct weft_yaml *root, struct weft_cluster *c,
                     struct weft_err *err)
{
    static const struct key keys[] = {
        {.name = "name", .type = TEXT},
        {.name = "core_gbs",
         .optional = true,
         .low = 1e-3,
         .high = 1e8,
         .scale = 1e9,
         .offset = offsetof(struct weft_cluster, core_bytes_per_s)},
        {.name = "kinds", .type = GROUP}};
    const struct weft_yaml *kinds = weft_yaml_get(root, "kinds");
    int rc = 0;
    for (size_t i = 0; i < root->n && !rc; i++) {
        const struct key *k = keys;
        while (k < keys + WEFT_COUNT(keys)
               && strcmp(root->key[i], k->name) != 0)
            k++;
        if (k == keys + WEFT_COUNT(keys))
            rc = unknown(root->child[i], root->key[i], keys, WEFT_COUNT(keys),
                         err);
        else if (k->type != GROUP)
            rc = read_key(root->child[i], k, c, err);
    }
    if (!rc && !*c->name)
        rc = weft_yaml_err(root, err, WEFT_EINVAL,
                           "'name' is missing: a word for this cluster");
    if (!rc && !kinds)
        rc = weft_yaml_err(root, err, WEFT_EINVAL,
                           "'kinds' is missing: a list of kinds of nodes");
    if (!rc)
        rc = read_kinds(kinds, c, err);
    return rc ? rc : check_network(root, c, err);
}

int weft_cluster_parse(const char *text, size_t n, const char *name,
                       struct weft_cluster *out, struct weft_err *err)
{
    struct weft_yaml *root;
    int rc = weft_yaml_parse(text, n, name, &root, err);
    if (rc)
        return rc;
    *out = (struct weft_cluster){.n_kinds = 0};
    if (root->type != WEFT_YAML_MAP)
        rc = weft_yaml_err(root, err, WEFT_EINVAL,
                           "a cluster must be a map with 'name' and 'kinds'");
    else
        rc = read_root(root, out, err);
    weft_yaml_free(root);
    return rc;
}

int weft_cluster_read(const char *path, struct weft_cluster *out,
                      struct weft_err *err)
{
    char *text;
    size_t n;
    int rc = weft_file_read(path, MAX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    rc = weft_cluster_parse(text, n, path, out, err);
    weft_free(text);
    return rc;
}

const struct weft_node_kind *weft_cluster_node(
    const struct weft_cluster *cluster, int32_t node)
{
    int32_t i = 0;
    weft_assert(node >= 0 && node < cluster->n_nodes);
    while (node >= cluster->kind[i].n_nodes)
        node -= cluster->kind[i++].n_nodes;
    return &cluster->kind[i];
}

double weft_cluster_device_bytes(const struct weft_cluster *cluster)
{
    double least = cluster->kind[0].memory_bytes;
    for (int32_t i = 1; i < cluster->n_kinds; i++)
        if (cluster->kind[i].memory_bytes < least)
            least = cluster->kind[i].memory_bytes;
    return least;
}

int32_t weft_cluster_n_devices(const struct weft_cluster *cluster)
{
    int32_t n = 0;
    for (int32_t i = 0; i < cluster->n_kinds; i++)
        n += cluster->kind[i].n_nodes * cluster->kind[i].n_devices;
    return n;
}

int32_t weft_cluster_common(const struct weft_cluster *cluster)
{
    int32_t common = cluster->kind[0].n_devices;
    for (int32_t i = 1; i < cluster->n_kinds; i++)
        for (int32_t b = cluster->kind[i].n_devices; b != 0;) {
            int32_t rest = common % b;
            common = b;
            b = rest;
        }
    return common;
}

int32_t weft_cluster_fits(const struct weft_cluster *cluster,
                          int32_t n_devices)
{
    int32_t n = 0;
    for (int32_t i = 0; i < cluster->n_kinds; i++)
        n += cluster->kind[i].n_nodes
           * (cluster->kind[i].n_devices / n_devices);
    return n;
}

static bool is_even(const struct weft_cluster *cluster)
{
    for (int32_t i = 1; i < cluster->n_kinds; i++)
        if (cluster->kind[i].n_devices != cluster->kind[0].n_devices)
            return false;
    return true;
}

int32_t weft_cluster_rank(const struct weft_cluster *cluster, int32_t n_ranks,
                          int32_t n_devices, int32_t rank,
                          int32_t *first_device_out)
{
    int32_t node = 0;
    if (is_even(cluster)) {
        int32_t each = (int32_t) weft_ceil_div(n_ranks, cluster->n_nodes);
        *first_device_out = rank % each * n_devices;
        return rank / each;
    }
    for (int32_t i = 0; i < cluster->n_kinds; i++) {
        const struct weft_node_kind *kind = &cluster->kind[i];
        int32_t each = kind->n_devices / n_devices;
        if (rank < each * kind->n_nodes) {
            *first_device_out = rank % each * n_devices;
            return node + rank / each;
        }
        rank -= each * kind->n_nodes;
        node += kind->n_nodes;
    }
    *first_device_out = 0;
    return node + rank; /* there is no such node */
}
