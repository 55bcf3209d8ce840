/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/costs_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void weft_costs_file_release(struct weft_costs_file *f)
{
    for (int32_t i = 0; i < f->n_ops; i++) {
        weft_free(f->op[i].name);
        weft_free(f->op[i].point);
    }
    weft_free(f->op);
    weft_free(f->shape);
    *f = (struct weft_costs_file){.n_ops = 0};
}

/* ---- Which operation --------------------------------------------------- */

/* Whether layers are alike, whatever their number; and heads, too. */
static bool same_layer(const struct weft_rec_shape *x,
                       const struct weft_rec_shape *y)
{
    const struct weft_shape *a = &x->shape, *b = &y->shape;
    return x->n_blocks == y->n_blocks && a->n_blocks == b->n_blocks
        && a->hidden == b->hidden && a->n_heads == b->n_heads
        && a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim
        && a->intermediate == b->intermediate && a->dtype == b->dtype;
}

static bool same_head(const struct weft_rec_shape *x,
                      const struct weft_rec_shape *y)
{
    return x->shape.vocab == y->shape.vocab
        && x->shape.scalar_head == y->shape.scalar_head;
}

/* The operation `name` and then `more` for the shape (NULL: of none); one with
 * another head does if there is none with this. */
static const struct weft_cost_op *find_op(const struct weft_costs_file *f,
                                          const char *name, const char *more,
                                          const struct weft_rec_shape *shape)
{
    const struct weft_cost_op *found = NULL;
    size_t length = strlen(name);
    for (int32_t i = 0; i < f->n_ops; i++) {
        const struct weft_cost_op *op = &f->op[i];
        if ((op->shape < 0) != !shape || strncmp(op->name, name, length) != 0
            || strcmp(op->name + length, more) != 0)
            continue;
        if (!shape)
            return op;
        if (same_layer(&f->shape[op->shape], shape)
            && (!found || same_head(&f->shape[op->shape], shape)))
            found = op;
    }
    return found;
}

/* ---- Collecting -------------------------------------------------------- */

static int32_t add_shape(struct weft_costs_file *f,
                         const struct weft_rec_shape *shape)
{
    for (int32_t i = 0; i < f->n_shapes; i++)
        if (same_layer(&f->shape[i], shape) && same_head(&f->shape[i], shape))
            return i;
    struct weft_rec_shape *larger = weft_realloc(
        f->shape, (size_t) f->n_shapes + 1, sizeof *larger);
    if (!larger)
        return -1;
    f->shape = larger;
    f->shape[f->n_shapes] = *shape;
    return f->n_shapes++;
}

static struct weft_cost_op *add_op(struct weft_costs_file *f,
                                   const char *name, int32_t shape)
{
    for (int32_t i = 0; i < f->n_ops; i++)
        if (f->op[i].shape == shape && strcmp(f->op[i].name, name) == 0)
            return &f->op[i];
    struct weft_cost_op *larger = weft_realloc(f->op, (size_t) f->n_ops + 1,
                                               sizeof *larger);
    if (!larger)
        return NULL;
    f->op = larger;
    struct weft_cost_op *op = &f->op[f->n_ops];
    *op = (struct weft_cost_op){.name = weft_strdup(name), .shape = shape};
    f->n_ops += op->name != NULL;
    return op->name ? op : NULL;
}

static struct weft_cost_point point_of(const struct weft_rec_work *w,
                                       double seconds)
{
    double steps = w->n_steps, rows = w->n_rows;
    return (struct weft_cost_point){
        .n_rows = rows / steps,
        .n_keys = rows > 0 ? (double) w->n_keys / rows : 0,
        .flop = (double) w->flop / steps,
        .bytes = (double) w->bytes / steps,
        .seconds = seconds / steps};
}

static bool add_point(struct weft_cost_op *op,
                      const struct weft_cost_point *p)
{
    struct weft_cost_point *larger = weft_realloc(
        op->point, (size_t) op->n + 1, sizeof *larger);
    if (!larger)
        return false;
    op->point = larger;
    op->point[op->n++] = *p;
    return true;
}

static int by_size(const void *a, const void *b)
{
    const struct weft_cost_point *x = a, *y = b;
    if (x->n_rows != y->n_rows)
        return x->n_rows < y->n_rows ? -1 : 1;
    if (x->n_keys != y->n_keys)
        return x->n_keys < y->n_keys ? -1 : 1;
    if (x->n_rows > 0 || x->bytes == y->bytes)
        return 0;
    return x->bytes < y->bytes ? -1 : 1;
}

static int by_seconds(const void *a, const void *b)
{
    const struct weft_cost_point *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Sizes that differ by so little that seconds differ by chance. */
static bool alike(const struct weft_cost_point *x,
                  const struct weft_cost_point *y)
{
    return x->n_rows == y->n_rows
        && (x->n_rows > 0 ? y->n_keys <= 1.1 * x->n_keys
                          : y->bytes <= 1.02 * x->bytes);
}

/* Sorts, and keeps the median of those of like size. */
static void settle(struct weft_cost_op *op)
{
    int32_t n = 0;
    qsort(op->point, (size_t) op->n, sizeof *op->point, by_size);
    for (int32_t i = 0, end; i < op->n; i = end) {
        end = i + 1;
        while (end < op->n && alike(&op->point[i], &op->point[end]))
            end++;
        qsort(&op->point[i], (size_t) (end - i), sizeof *op->point,
              by_seconds);
        op->point[n++] = op->point[(i + end - 1) / 2];
    }
    op->n = n;
}

/* Whether it uses tiles of several places, as only copies do. */
static bool is_between_places(const struct weft_recording *r,
                              const struct weft_rec_task *t)
{
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (r->tile[r->access[a].tile].place != t->place)
            return true;
    return false;
}

int weft_costs_file_add(struct weft_costs_file *f,
                        const struct weft_recording *r, int64_t n,
                        const struct weft_span ran[], struct weft_err *err)
{
    for (int64_t i = 0; i < n && i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        struct weft_cost_point p = point_of(&t->work,
                                            ran[i].end_s - ran[i].start_s);
        if (t->kind != WEFT_REC_TASK || ran[i].end_s == 0
            || is_between_places(r, t))
            continue;
        int32_t shape = t->work.shape ? add_shape(f, &r->shape[t->work.shape])
                                      : -1;
        struct weft_cost_op *op = add_op(f, weft_recording_op(r, i), shape);
        if (!op || !add_point(op, &p) || (t->work.shape && shape < 0))
            return weft_err_nomem(err, "costs", sizeof p);
    }
    for (int32_t i = 0; i < f->n_ops; i++)
        settle(&f->op[i]);
    return 0;
}

/* ---- Between tasks ----------------------------------------------------- */

/* After a task of at least LONG_S the program has inserted the next ones;
 * whoever begins later than SOON_S afterwards has waited for something else. */
static const double LONG_S = 1e-4, SOON_S = 1e-4;
enum { LEAST_TURNS = 16 };

struct turn {
    int32_t device, n_access;
    double start_s, end_s;
};

static int by_start(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

int weft_costs_file_turns(struct weft_costs_file *f,
                          const struct weft_recording *r, int64_t n,
                          const struct weft_span ran[], struct weft_err *err)
{
    size_t n_turns = 0, n_gaps = 0;
    n = n < r->n_tasks ? n : r->n_tasks;
    struct turn *turn = weft_alloc((size_t) n, sizeof *turn);
    double *gap = weft_alloc((size_t) n, sizeof *gap);
    int rc = turn && gap
               ? 0
               : weft_err_nomem(err, "costs", (size_t) n * sizeof *turn);
    for (int64_t i = 0; i < n && !rc; i++)
        if (ran[i].end_s > 0 && r->task[i].device >= 0)
            turn[n_turns++] = (struct turn){r->task[i].device,
                                            r->task[i].n_access,
                                            ran[i].start_s, ran[i].end_s};
    if (!rc)
        qsort(turn, n_turns, sizeof *turn, by_start);
    for (size_t i = 1; i < n_turns; i++) {
        double s = turn[i].start_s - turn[i - 1].end_s;
        if (turn[i].device == turn[i - 1].device && s < SOON_S
            && turn[i - 1].end_s - turn[i - 1].start_s >= LONG_S)
            gap[n_gaps++] = s - turn[i].n_access * f->task_tile_s;
    }
    if (n_gaps >= LEAST_TURNS) {
        qsort(gap, n_gaps, sizeof *gap, ascending);
        f->task_s = gap[n_gaps / 2] > f->task_s ? gap[n_gaps / 2] : f->task_s;
    }
    weft_free(turn);
    weft_free(gap);
    return rc;
}

/* ---- Prices ------------------------------------------------------------ */

struct price {
    double flop, seconds;
};

static struct price between(struct price a, struct price b, double part)
{
    return (struct price){a.flop + part * (b.flop - a.flop),
                          a.seconds + part * (b.seconds - a.seconds)};
}

static struct price price_of(const struct weft_cost_point *p)
{
    return (struct price){p->flop, p->seconds};
}

/* Of n points with equal rows, at a number of keys. With more keys than the last
 * point has it grows as between the last two, if they are far enough apart to
 * tell; else it is constant outside of them, and the operations say how much
 * more there is to do. */
static struct price at_keys(const struct weft_cost_point *p, int32_t n,
                            double keys)
{
    int32_t i = 0;
    while (i < n && p[i].n_keys < keys)
        i++;
    if (i == n && n > 1 && p[n - 1].n_keys >= 2 * p[n - 2].n_keys
        && p[n - 1].seconds > p[n - 2].seconds)
        i = n - 1;
    if (i == 0 || i == n)
        return price_of(&p[i ? i - 1 : 0]);
    return between(price_of(&p[i - 1]), price_of(&p[i]),
                   (keys - p[i - 1].n_keys)
                       / (p[i].n_keys - p[i - 1].n_keys));
}

/* Operations per second of the fastest task with models of a dtype; of any, if
 * there is none. */
static double fastest(const struct weft_costs_file *f, enum weft_dtype dtype)
{
    double most[2] = {0, 0}; /* of any; of the dtype */
    for (int32_t i = 0; i < f->n_ops; i++)
        for (int32_t k = 0; k < f->op[i].n; k++) {
            const struct weft_cost_point *p = &f->op[i].point[k];
            double rate = p->seconds > 0 ? p->flop / p->seconds : 0;
            bool of = f->op[i].shape >= 0
                   && f->shape[f->op[i].shape].shape.dtype == dtype;
            for (int w = 0; w <= of; w++)
                most[w] = rate > most[w] ? rate : most[w];
        }
    return most[most[1] > 0];
}

/* Beyond the last size, `size`, which is next to size_before (0: there is
 * none): what rows more took between the two, at most in proportion. One size
 * alone mostly reads weights, which more rows share: then these take what their
 * operations do at the best. */
static struct price beyond(const struct weft_costs_file *f,
                           const struct weft_cost_op *op, double size_before,
                           struct price before, double size,
                           struct price last, double rows)
{
    double more = rows / size - 1, most = more * last.seconds;
    double least = most;
    if (size_before > 0)
        least = (last.seconds - before.seconds) * (rows - size)
              / (size - size_before);
    else if (op->shape >= 0 && last.flop > 0)
        least = more * last.flop
              / fastest(f, f->shape[op->shape].shape.dtype);
    return (struct price){last.flop * (1 + more),
                          last.seconds
                              + (least >= 0 && least < most ? least : most)};
}

/* Before the first size it is constant. */
static struct price at_rows(const struct weft_costs_file *f,
                            const struct weft_cost_op *op, double rows,
                            double keys)
{
    struct price before = {0, 0}, next = {0, 0};
    double size = 0;
    for (int32_t i = 0, end; i < op->n; i = end) {
        const struct weft_cost_point *p = &op->point[i];
        end = i + 1;
        while (end < op->n && op->point[end].n_rows == p->n_rows)
            end++;
        next = at_keys(p, end - i, keys);
        if (p->n_rows >= rows) /* the first is constant: flop is not */
            return i == 0 ? next
                          : between(before, next,
                                    (rows - size) / (p->n_rows - size));
        if (end == op->n)
            break;
        before = next;
        size = p->n_rows;
    }
    return beyond(f, op, size, before, op->point[op->n - 1].n_rows, next,
                  rows);
}

static double at_bytes(const struct weft_cost_op *op, double bytes)
{
    const struct weft_cost_point *p = op->point;
    int32_t i = 0;
    while (i < op->n && p[i].bytes < bytes)
        i++;
    if (i == 0)
        return p[0].seconds;
    if (i == op->n)
        return p[i - 1].bytes > 0 ? p[i - 1].seconds * bytes / p[i - 1].bytes
                                  : p[i - 1].seconds;
    double part = (bytes - p[i - 1].bytes) / (p[i].bytes - p[i - 1].bytes);
    return p[i - 1].seconds + part * (p[i].seconds - p[i - 1].seconds);
}

/* A step has fewer operations than one that decodes a sample with each row, and
 * more than one that reads prompts, as many as it draws tokens: its price is as
 * far between theirs. Of other layers than were measured, which have more than
 * either, it is that of what was measured with so many rows. */
static struct price at_step(const struct weft_costs_file *f,
                            const struct weft_cost_op *decodes,
                            const struct weft_cost_op *reads,
                            const struct weft_cost_point *p)
{
    struct price d = at_rows(f, decodes, p->n_rows, p->n_keys);
    struct price r = at_rows(f, reads, p->n_rows, p->n_keys);
    if (r.flop < d.flop && p->flop < 1.01 * d.flop) {
        double more = (d.flop - p->flop) / (d.flop - r.flop);
        return between(d, r, more < 0 ? 0 : more < 1 ? more : 1);
    }
    return p->n_rows <= decodes->point[decodes->n - 1].n_rows ? d : r;
}

/* A variant that does more of the same, such as a layer that is computed again,
 * a step of more layers, or one with more keys than were measured, takes as
 * much more. */
double weft_costs_file_task(const struct weft_costs_file *f,
                            const struct weft_recording *r, int64_t task)
{
    const struct weft_rec_work *w = &r->task[task].work;
    const struct weft_rec_shape *shape = w->shape ? &r->shape[w->shape]
                                                  : NULL;
    const char *name = weft_recording_op(r, task);
    const struct weft_cost_op *op = find_op(f, name, "", shape);
    const struct weft_cost_op *reads =
        shape && strncmp(name, "gen_", 4) == 0
            ? find_op(f, name, WEFT_COSTS_READS, shape)
            : NULL; /* tasks are many, and others have none */
    struct weft_cost_point p = point_of(w, 0);
    if (!op || op->n == 0)
        return -1;
    if (!w->shape || p.n_rows == 0)
        return w->n_steps * at_bytes(op, p.bytes);
    struct price price = reads && reads->n > 0
                           ? at_step(f, op, reads, &p)
                           : at_rows(f, op, p.n_rows, p.n_keys);
    double ratio = price.flop > 0 && p.flop > 0
                        && p.n_rows >= op->point[0].n_rows
                     ? p.flop / price.flop
                     : 1;
    return w->n_steps * price.seconds * ratio;
}

/* ---- Messages ---------------------------------------------------------- */

double weft_costs_file_rate(const struct weft_costs_file *f)
{
    if (f->n_messages < 2)
        return 0;
    const struct weft_cost_message *last = &f->message[f->n_messages - 1];
    return (last->bytes - last[-1].bytes)
         / (last->seconds - last[-1].seconds);
}

/* Linear between sizes, constant before them, and beyond as between the last
 * two. */
static struct weft_cost_message message_of(const struct weft_costs_file *f,
                                           double bytes)
{
    const struct weft_cost_message *m = f->message;
    int32_t i = 1;
    if (f->n_messages < 2 || bytes <= m->bytes)
        return f->n_messages > 0 ? *m : (struct weft_cost_message){0, 0, 0};
    while (i < f->n_messages - 1 && m[i].bytes < bytes)
        i++;
    double part = (bytes - m[i - 1].bytes) / (m[i].bytes - m[i - 1].bytes);
    return (struct weft_cost_message){
        bytes, m[i - 1].seconds + part * (m[i].seconds - m[i - 1].seconds),
        m[i - 1].core_s + part * (m[i].core_s - m[i - 1].core_s)};
}

double weft_costs_file_latency(const struct weft_costs_file *f, double bytes)
{
    double rate = weft_costs_file_rate(f);
    const struct weft_cost_message m = message_of(f, bytes);
    double s = m.seconds - m.core_s - (rate > 0 ? bytes / rate : 0);
    return s > 0 ? s : 0;
}

double weft_costs_file_core(const struct weft_costs_file *f, double bytes)
{
    return message_of(f, bytes).core_s;
}

/* ---- As a cluster ------------------------------------------------------ */

void weft_costs_file_cluster(const struct weft_costs_file *f, int32_t n_nodes,
                             int32_t n_devices, double device_bytes,
                             struct weft_cluster *out)
{
    /* where nothing was measured */
    const double flops = 1e10, rate = 5e9;
    /* a message between processes, where it was not measured: assumed */
    const double inside_s = 1e-6, network_s = 2e-5;
    double f32 = fastest(f, WEFT_F32), bf16 = fastest(f, WEFT_BF16);
    double copies = f->memory > 0 ? f->memory : rate;
    double host = f->host > 0 ? f->host : copies;
    double inside = f->inside > 0 ? f->inside : host;
    double messages = weft_costs_file_rate(f);
    *out = (struct weft_cluster){.n_kinds = 1, .n_nodes = n_nodes};
    out->kind[0] = (struct weft_node_kind){
        .n_nodes = n_nodes,
        .n_devices = n_devices,
        .memory_bytes = device_bytes,
        .flops = {[WEFT_F32] = f32 > 0 ? f32 : flops,
                  [WEFT_BF16] = bf16 > 0 ? bf16 : flops},
        .memory_bytes_per_s = copies,
        .node_bytes_per_s = copies * n_devices,
        .task_s = f->task_s,
        .insert_s = f->insert_s,
        .inside = {inside, inside_s},
        .host = {f->host, f->host > 0 ? inside_s : 0},
        .rail = {messages > 0 ? messages : host,
                 messages > 0 ? weft_costs_file_latency(f, 0) : network_s},
        .n_rails = 1};
    snprintf(out->name, sizeof out->name, "profiled");
    snprintf(out->kind[0].name, sizeof out->kind[0].name, "profiled");
}
