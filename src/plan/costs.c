/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/costs.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/costs_file.h"

/*
 * Links of a node: each rail out and in, then each device's port to the
 * others of its node, out and in, and to the node's memory, out and in. The
 * last link is the network's core, if that is a limit.
 */
enum { OUT, IN, WAYS };

struct weft_costs {
    struct weft_costs_job job;
    int32_t n_nodes, n_places; /* places of a rank */
    int32_t *node, *first;     /* (n_ranks) where ranks lie */
    int32_t *busy;             /* (n_nodes) devices of ranks there */
    int32_t *first_link;       /* (n_nodes) */
    int32_t n_links, core;     /* core -1: no limit */
    double *bytes_per_s;       /* (n_links) */
};

static const struct weft_node_kind *kind_of(const struct weft_costs *c,
                                            int32_t node)
{
    return weft_cluster_node(c->job.cluster, node);
}

static int32_t node_links(const struct weft_node_kind *kind)
{
    return WAYS * (kind->n_rails + 2 * kind->n_devices);
}

/* ---- Where places are -------------------------------------------------- */

struct spot {
    int32_t place;
    int32_t node, device; /* of the node; -1: its memory */
    int32_t near;         /* the device of the node whose rail it uses */
};

/* Devices of a rank that the cluster describes: in a job on GPUs these, not the
 * CPU devices beside them, which are in the node's memory. */
static int32_t n_described(const struct weft_costs *c)
{
    return c->job.n_gpus > 0 ? c->job.n_gpus : c->job.n_devices;
}

static struct spot spot_of(const struct weft_costs *c, int32_t place)
{
    int32_t rank = place / c->n_places, local = place % c->n_places;
    int32_t part = c->first[rank];
    bool own = c->job.n_gpus > 0 ? local < c->job.n_gpus
                                 : c->job.place_per_device;
    return (struct spot){place, c->node[rank], own ? part + local : -1,
                         own ? part + local : 0};
}

/* Where a tile lies: what is the host's at the place of a GPU lies where the
 * rank's CPU devices have theirs, near that GPU. */
static struct spot spot_of_tile(const struct weft_costs *c,
                                const struct weft_rec_tile *tile)
{
    struct spot s = spot_of(c, tile->place);
    int32_t local = tile->place % c->n_places, gpus = c->job.n_gpus;
    if (weft_mem_class_on_host((enum weft_mem_class) tile->mem)
        && local < gpus && gpus < c->n_places) {
        s.place += gpus - local;
        s.device = -1;
    }
    return s;
}

static int32_t node_of_device(const struct weft_costs *c, int32_t device)
{
    return c->node[device / c->job.n_devices];
}

/* ---- Links ------------------------------------------------------------- */

static int32_t rail(const struct weft_costs *c, struct spot s, int way)
{
    const struct weft_node_kind *kind = kind_of(c, s.node);
    int32_t n = s.near * kind->n_rails / kind->n_devices;
    return c->first_link[s.node] + WAYS * n + way;
}

static int32_t port(const struct weft_costs *c, struct spot s, bool to_host,
                    int way)
{
    const struct weft_node_kind *kind = kind_of(c, s.node);
    int32_t n = kind->n_rails + (to_host ? kind->n_devices : 0) + s.device;
    return c->first_link[s.node] + WAYS * n + way;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static void fill_links(struct weft_costs *c, int32_t node)
{
    const struct weft_node_kind *kind = kind_of(c, node);
    double *at = c->bytes_per_s + c->first_link[node];
    double host = kind->host.bytes_per_s > 0 ? kind->host.bytes_per_s
                                             : kind->memory_bytes_per_s;
    double inside = kind->inside.bytes_per_s > 0 ? kind->inside.bytes_per_s
                                                 : host;
    for (int32_t i = 0; i < WAYS * kind->n_rails; i++)
        *at++ = kind->rail.bytes_per_s;
    for (int32_t i = 0; i < WAYS * kind->n_devices; i++)
        *at++ = inside;
    for (int32_t i = 0; i < WAYS * kind->n_devices; i++)
        *at++ = host;
}

static int32_t path(const struct weft_costs *c, struct spot a, struct spot b,
                    int32_t link[WEFT_COSTS_PATH], double *latency_s_out)
{
    const struct weft_node_kind *ka = kind_of(c, a.node);
    const struct weft_node_kind *kb = kind_of(c, b.node);
    int32_t n = 0;
    *latency_s_out = 0;
    if (a.node != b.node) {
        link[n++] = rail(c, a, OUT);
        link[n++] = rail(c, b, IN);
        if (c->core >= 0)
            link[n++] = c->core;
        *latency_s_out = most(ka->rail.latency_s, kb->rail.latency_s);
    } else if (a.device >= 0 && b.device >= 0 && a.device != b.device) {
        link[n++] = port(c, a, false, OUT);
        link[n++] = port(c, b, false, IN);
        *latency_s_out = ka->inside.latency_s;
    } else if (a.device != b.device) {
        bool down = a.device >= 0; /* to the node's memory */
        link[n++] = port(c, down ? a : b, true, down ? OUT : IN);
        *latency_s_out = ka->host.latency_s;
    } else if (a.place != b.place) { /* ranks that share a node's memory */
        struct spot first = {.node = a.node, .device = 0};
        link[n++] = port(c, first, false, OUT);
        *latency_s_out = ka->inside.latency_s;
    }
    return n;
}

int32_t weft_costs_path(const struct weft_costs *c, int32_t from, int32_t to,
                        int32_t link[WEFT_COSTS_PATH], double *latency_s_out)
{
    return path(c, spot_of(c, from), spot_of(c, to), link, latency_s_out);
}

int32_t weft_costs_message(const struct weft_costs *c,
                           const struct weft_recording *r, int64_t task,
                           int32_t link[WEFT_COSTS_PATH],
                           double *latency_s_out, double *bytes_out)
{
    const struct weft_rec_task *t = &r->task[task];
    struct spot from = spot_of(c, t->place), to = from;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        *(r->access[a].mode == 0 ? &from : &to) = spot_of_tile(
            c, &r->tile[r->access[a].tile]);
    int32_t n = path(c, from, to, link, latency_s_out);
    double steps = t->work.n_steps; /* it may stand for several */
    *bytes_out = (double) t->work.bytes;
    if (n > 0 && c->job.file && t->kind == WEFT_REC_MESSAGE) {
        const struct weft_costs_file *f = c->job.file;
        *latency_s_out += fmax(weft_costs_file_latency(f, *bytes_out / steps)
                                   - weft_costs_file_latency(f, 0),
                               0);
        /* a rank handles one after another */
        *bytes_out += weft_costs_file_core(f, 0) * c->bytes_per_s[link[0]];
    }
    *latency_s_out *= steps;
    return n;
}

double weft_costs_message_core(const struct weft_costs *c,
                               const struct weft_recording *r, int64_t task)
{
    const struct weft_costs_file *f = c->job.file;
    const struct weft_rec_task *t = &r->task[task];
    return f && t->kind == WEFT_REC_MESSAGE
             ? weft_costs_file_core(f, (double) t->work.bytes)
             : 0;
}

const double *weft_costs_links(const struct weft_costs *c,
                               int32_t *n_links_out)
{
    *n_links_out = c->n_links;
    return c->bytes_per_s;
}

/* What bytes take from place to place when nobody else is under way. */
static double alone_s(const struct weft_costs *c, int32_t from, int32_t to,
                      double bytes)
{
    int32_t link[WEFT_COSTS_PATH];
    double latency_s, rate = INFINITY;
    int32_t n = weft_costs_path(c, from, to, link, &latency_s);
    for (int32_t i = 0; i < n; i++)
        rate = least(rate, c->bytes_per_s[link[i]]);
    return n ? latency_s + bytes / rate : 0;
}

/* ---- Tasks ------------------------------------------------------------- */

/* Devices of a node may share its memory's bandwidth; all are taken to be
 * busy. */
static double memory_rate(const struct weft_costs *c, int32_t node)
{
    const struct weft_node_kind *kind = kind_of(c, node);
    return least(kind->memory_bytes_per_s,
                 kind->node_bytes_per_s / c->busy[node]);
}

/* Of moving bytes by tasks of so many each. */
static double moved_s(const struct weft_costs *c, int32_t node, double bytes,
                      double each)
{
    return bytes
         / (memory_rate(c, node)
            * weft_size_table_at(&kind_of(c, node)->by_bytes, each));
}

/* Norms, residual sums and activation functions: kernels of their own, which
 * move bytes between products. All members of a tp group do those of all
 * rows. */
static double passes_s(const struct weft_costs *c,
                       const struct weft_recording *r,
                       const struct weft_rec_work *w, int32_t node)
{
    const struct weft_node_kind *kind = kind_of(c, node);
    if (w->n_passes == 0 || !w->shape || kind->row_bytes == 0)
        return 0;
    double bytes = (double) w->n_rows / w->n_steps
                 * r->shape[w->shape].shape.hidden * kind->row_bytes;
    return moved_s(c, node, w->n_passes * bytes, bytes);
}

/* What work takes by the roofline, added by part. */
static void add_roofline(const struct weft_costs *c,
                         const struct weft_recording *r,
                         const struct weft_rec_work *w, int32_t node,
                         double part[WEFT_N_COST_PARTS])
{
    const struct weft_node_kind *kind = kind_of(c, node);
    const struct weft_shape *shape = w->shape ? &r->shape[w->shape].shape
                                              : NULL;
    bool half = shape && shape->dtype != WEFT_F32
             && kind->flops[WEFT_BF16] > 0;
    double flops = kind->flops[half ? WEFT_BF16 : WEFT_F32];
    double steps = w->n_steps, bytes = (double) w->bytes;
    flops *= weft_size_table_at(&kind->by_rows, w->n_rows / steps);
    double compute_s = (double) w->flop / flops;
    double memory_s = moved_s(c, node, bytes, bytes / steps);
    part[WEFT_COST_STARTS] += w->n_layers * kind->layer_s;
    part[WEFT_COST_MEMORY] += passes_s(c, r, w, node);
    if (compute_s >= memory_s)
        part[WEFT_COST_COMPUTE] += compute_s;
    else
        part[WEFT_COST_MEMORY] += memory_s;
}

/* Tasks that a member of a gang stands for, but for what comes to it in
 * messages from other ranks. */
static double tasks_of(const struct weft_costs *c,
                       const struct weft_recording *r, int64_t task,
                       const struct weft_rec_gang *gang)
{
    const struct weft_rec_task *t = &r->task[task];
    int32_t n_far = 0;
    int32_t n = t->n_members + gang->n_left_out;
    for (int64_t i = task - t->member; i < task - t->member + t->n_members;
         i++)
        n_far += r->task[i].place / c->n_places != t->place / c->n_places;
    if (gang->left_out_place / c->n_places != t->place / c->n_places)
        n_far += gang->n_left_out;
    return gang->n_expanded
         - (n_far ? (double) gang->n_received * n_far / (n - 1) : 0);
}

/* Before a device does the work of n tasks. */
static double begin_s(const struct weft_costs *c,
                      const struct weft_rec_task *t, double n, int32_t node)
{
    const struct weft_costs_file *f = c->job.file;
    return f ? n * f->task_s + t->n_access * f->task_tile_s
             : n * kind_of(c, node)->task_s;
}

/* The slowest of the ways to a place, of those that were looked at: seconds of
 * a byte, and the latency. */
struct way {
    double byte_s, latency_s;
};

static void look_at(const struct weft_costs *c, int32_t from, int32_t to,
                    struct way *slowest)
{
    int32_t link[WEFT_COSTS_PATH];
    double latency_s;
    int32_t n = weft_costs_path(c, from, to, link, &latency_s);
    for (int32_t k = 0; k < n; k++)
        slowest->byte_s = most(slowest->byte_s, 1 / c->bytes_per_s[link[k]]);
    slowest->latency_s = most(slowest->latency_s, latency_s);
}

/* What a member of a gang receives takes, over the slowest of the ways from the
 * others: these all send at the same time. Devices of one place need none. */
static double exchange_s(const struct weft_costs *c,
                         const struct weft_recording *r, int64_t task,
                         const struct weft_rec_gang *gang)
{
    const struct weft_rec_task *t = &r->task[task];
    struct way slowest = {0, 0};
    if (!gang || gang->n_received == 0)
        return 0;
    for (int64_t i = task - t->member; i < task - t->member + t->n_members;
         i++)
        look_at(c, r->task[i].place, t->place, &slowest);
    if (gang->n_left_out > 0)
        look_at(c, gang->left_out_place, t->place, &slowest);
    int32_t others = t->n_members + gang->n_left_out - 1;
    double rounds = (double) gang->n_received / weft_max32(others, 1);
    return rounds * slowest.latency_s
         + (double) gang->received_bytes * slowest.byte_s;
}

/* A copy from or to another place; 0: it is none. */
static double copy_s(const struct weft_costs *c,
                     const struct weft_recording *r,
                     const struct weft_rec_task *t)
{
    int32_t from = -1, to = -1;
    double bytes = 0;
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        const struct weft_rec_tile *tile = &r->tile[r->access[a].tile];
        if (r->access[a].mode == 0)
            from = tile->place;
        else
            to = tile->place;
        bytes += r->access[a].mode == 0 ? (double) tile->bytes : 0;
    }
    return from >= 0 && to >= 0 && from != to ? alone_s(c, from, to, bytes)
                                              : 0;
}

/* Tasks that run together are measured like others, instructions are not: they
 * stand for several, or for a task of another name. */
static bool is_instruction(const struct weft_rec_task *t,
                           const struct weft_rec_gang *gang)
{
    return gang && (t->n_members == 1 || gang->n_expanded != 1);
}

bool weft_costs_is_measured(const struct weft_costs *c,
                            const struct weft_recording *r, int64_t task)
{
    const struct weft_costs_file *f = c->job.file;
    const struct weft_rec_task *t = &r->task[task];
    if (t->kind == WEFT_REC_MESSAGE)
        return f && f->n_messages > 0;
    return t->kind != WEFT_REC_TASK
        || (!is_instruction(t, weft_recording_gang_of(r, task))
            && (copy_s(c, r, t) > 0
                || (f && weft_costs_file_task(f, r, task) >= 0)));
}

/* Measured seconds are of one part, which is known if label is set. */
static void add_parts(const struct weft_costs *c,
                      const struct weft_recording *r, int64_t task,
                      int32_t device, bool label,
                      double part[WEFT_N_COST_PARTS])
{
    const struct weft_rec_task *t = &r->task[task];
    if (device < 0 || t->kind != WEFT_REC_TASK)
        return;
    int32_t node = node_of_device(c, device);
    const struct weft_rec_gang *gang = weft_recording_gang_of(r, task);
    bool instruction = is_instruction(t, gang);
    double moved = instruction ? 0 : copy_s(c, r, t);
    double measured = c->job.file && !instruction && moved == 0
                        ? weft_costs_file_task(c->job.file, r, task)
                        : -1;
    double n = instruction                ? tasks_of(c, r, task, gang)
             : measured >= 0 || moved > 0 ? 1
                                          : t->work.n_steps;
    if (measured >= 0) {
        double would[WEFT_N_COST_PARTS] = {0};
        if (label)
            add_roofline(c, r, &t->work, node, would);
        bool memory = would[WEFT_COST_MEMORY] > would[WEFT_COST_COMPUTE];
        part[memory ? WEFT_COST_MEMORY : WEFT_COST_COMPUTE] = measured;
    } else if (moved > 0) {
        part[WEFT_COST_MESSAGES] = moved;
    } else {
        add_roofline(c, r, &t->work, node, part);
        part[WEFT_COST_MESSAGES] = exchange_s(c, r, task, gang);
    }
    part[WEFT_COST_STARTS] += begin_s(c, t, n, node);
}

void weft_costs_parts(const struct weft_costs *c,
                      const struct weft_recording *r, int64_t task,
                      int32_t device, double out[WEFT_N_COST_PARTS])
{
    memset(out, 0, WEFT_N_COST_PARTS * sizeof *out);
    add_parts(c, r, task, device, true, out);
}

double weft_costs_task(const struct weft_costs *c,
                       const struct weft_recording *r, int64_t task,
                       int32_t device)
{
    double part[WEFT_N_COST_PARTS] = {0}, s = 0;
    add_parts(c, r, task, device, false, part);
    for (int k = 0; k < WEFT_N_COST_PARTS; k++)
        s += part[k];
    return s;
}

bool weft_costs_inserts(const struct weft_costs *c)
{
    const struct weft_costs_file *f = c->job.file;
    return f ? f->insert_s + f->insert_tile_s > 0
             : kind_of(c, 0)->insert_s > 0;
}

double weft_costs_insert(const struct weft_costs *c,
                         const struct weft_recording *r, int64_t task)
{
    const struct weft_costs_file *f = c->job.file;
    const struct weft_rec_task *t = &r->task[task];
    const struct weft_rec_gang *gang = weft_recording_gang_of(r, task);
    double n = gang ? tasks_of(c, r, task, gang) : 1;
    return f ? n * f->insert_s + t->n_access * f->insert_tile_s
             : n * kind_of(c, 0)->insert_s;
}

/* ---- Life cycle -------------------------------------------------------- */

/* Finds the nodes that ranks lie in. */
static int place_ranks(struct weft_costs *c, struct weft_err *err)
{
    const struct weft_costs_job *job = &c->job;
    const struct weft_cluster *cluster = job->cluster;
    size_t n = (size_t) job->n_ranks;
    int32_t each = n_described(c);
    c->node = weft_alloc(n, sizeof *c->node);
    c->first = weft_alloc(n, sizeof *c->first);
    c->busy = weft_alloc((size_t) cluster->n_nodes, sizeof *c->busy);
    if (!c->node || !c->first || !c->busy)
        return weft_err_nomem(err, "costs", n * 12);
    int32_t room = weft_cluster_fits(cluster, each);
    if (job->fits && room < job->n_ranks)
        return weft_err_set(err, WEFT_EINVAL,
                            "the plan is for %d nodes of %d devices, of "
                            "which cluster '%s' has %d",
                            job->n_ranks, each, cluster->name, room);
    for (int32_t r = 0; r < job->n_ranks; r++) {
        int32_t beside = job->ranks_per_node > 0 ? job->ranks_per_node : 1;
        c->first[r] = r % beside * each;
        c->node[r] = job->fits ? weft_cluster_rank(cluster, job->n_ranks,
                                                   each, r, &c->first[r])
                               : r / beside;
        if (c->node[r] >= cluster->n_nodes)
            return weft_err_set(err, WEFT_EINVAL,
                                "the plan has %d nodes, and cluster '%s' %d; "
                                "take another plan, or a larger cluster",
                                job->n_ranks, cluster->name,
                                cluster->n_nodes);
        int32_t *busy = &c->busy[c->node[r]];
        *busy += each;
        if (kind_of(c, c->node[r])->n_devices < *busy)
            return weft_err_set(err, WEFT_EINVAL,
                                "the plan has %d devices on each node, and "
                                "node %d of cluster '%s' has %d",
                                *busy, c->node[r], cluster->name,
                                kind_of(c, c->node[r])->n_devices);
        c->n_nodes = c->node[r] + 1;
    }
    return 0;
}

int weft_costs_create(const struct weft_costs_job *job,
                      struct weft_costs **out, struct weft_err *err)
{
    struct weft_costs *c = weft_alloc(1, sizeof *c);
    if (!c)
        return weft_err_nomem(err, "costs", sizeof *c);
    c->job = *job;
    c->n_places = job->place_per_device
                    ? job->n_devices
                    : job->n_gpus + (job->n_gpus < job->n_devices);
    int rc = place_ranks(c, err);
    c->first_link = weft_alloc((size_t) c->n_nodes, sizeof *c->first_link);
    for (int32_t i = 0; c->first_link && i < c->n_nodes && !rc; i++) {
        c->first_link[i] = c->n_links;
        c->n_links += node_links(kind_of(c, i));
    }
    bool has_core = job->cluster->core_bytes_per_s > 0;
    c->core = has_core ? c->n_links++ : -1;
    c->bytes_per_s = weft_alloc((size_t) c->n_links + 1,
                                sizeof *c->bytes_per_s);
    if (!rc && (!c->first_link || !c->bytes_per_s))
        rc = weft_err_nomem(err, "costs", (size_t) c->n_links * 8);
    for (int32_t i = 0; i < c->n_nodes && !rc; i++)
        fill_links(c, i);
    if (has_core && !rc)
        c->bytes_per_s[c->core] = job->cluster->core_bytes_per_s;
    if (rc) {
        weft_costs_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void weft_costs_free(struct weft_costs *c)
{
    if (!c)
        return;
    weft_free(c->node);
    weft_free(c->first);
    weft_free(c->busy);
    weft_free(c->first_link);
    weft_free(c->bytes_per_s);
    weft_free(c);
}
