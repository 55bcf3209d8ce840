/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured costs. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "plan/costs_file.h"

enum { FORMAT = 1, MAX_BYTES = 64 << 20, N_NUMBERS = 5, MOST = 1 << 30 };

static const char *const top_keys[] = {
    "format",  "unit",   "weft",        "machine",  "kernels",       "device",
    "devices", "task_s", "task_tile_s", "insert_s", "insert_tile_s", "memory",
    "host",    "inside", "messages",    "shapes",   "operations"};

/* The most of what is measured, so that sums and products are finite. */
#define MOST_MEASURED 1e24

/* What was measured beside tasks. */
#define NUMBER(key, needed)                                                  \
    {                                                                        \
#key, offsetof(struct weft_costs_file, key), needed                  \
    }
static const struct {
    const char *name;
    size_t offset;
    bool needed;
} numbers[] = {NUMBER(task_s, true),   NUMBER(task_tile_s, true),
               NUMBER(insert_s, true), NUMBER(insert_tile_s, true),
               NUMBER(memory, true),   NUMBER(host, false),
               NUMBER(inside, false)};

/* Numbers of a shape. */
static const struct {
    const char *name;
    size_t offset;
} shape_numbers[] = {
    {"hidden", offsetof(struct weft_shape, hidden)},
    {"heads", offsetof(struct weft_shape, n_heads)},
    {"kv_heads", offsetof(struct weft_shape, n_kv_heads)},
    {"head_dim", offsetof(struct weft_shape, head_dim)},
    {"intermediate", offsetof(struct weft_shape, intermediate)},
    {"vocab", offsetof(struct weft_shape, vocab)},
    {"blocks", offsetof(struct weft_shape, n_blocks)}};

/* ---- Writing ----------------------------------------------------------- */

static void write_text(struct weft_string *out, const char *key,
                       const char *text)
{
    weft_string_addf(out, " \"%s\": ", key);
    weft_string_add_json(out, text);
    weft_string_add(out, ",\n");
}

static void write_shape(const struct weft_rec_shape *s,
                        struct weft_string *out)
{
    weft_string_add(out, "{");
    for (size_t i = 0; i < WEFT_COUNT(shape_numbers); i++)
        weft_string_addf(
            out, "\"%s\": %d, ", shape_numbers[i].name,
            *(const int32_t *) (const void *) ((const char *) &s->shape
                                               + shape_numbers[i].offset));
    weft_string_addf(out,
                     "\"scalar_head\": %s, \"dtype\": \"%s\", "
                     "\"computed\": %d}",
                     s->shape.scalar_head ? "true" : "false",
                     weft_dtype_name(s->shape.dtype), s->n_blocks);
}

static void write_op(const struct weft_cost_op *op, struct weft_string *out)
{
    weft_string_add(out, "{\"name\": ");
    weft_string_add_json(out, op->name);
    if (op->shape >= 0)
        weft_string_addf(out, ", \"shape\": %d", op->shape);
    weft_string_add(out, ", \"points\": [");
    for (int32_t i = 0; i < op->n; i++) {
        const struct weft_cost_point *p = &op->point[i];
        weft_string_addf(out, "%s[%.9g, %.9g, %.9g, %.9g, %.6g]",
                         i ? ", " : "", p->n_rows, p->n_keys, p->flop,
                         p->bytes, p->seconds);
    }
    weft_string_add(out, "]}");
}

void weft_costs_file_text(const struct weft_costs_file *f,
                          struct weft_string *out)
{
    weft_string_addf(out, "{\"format\": %d, \"unit\": \"seconds\",\n",
                     FORMAT);
    write_text(out, "weft", f->machine.version);
    write_text(out, "machine", f->machine.cpu);
    write_text(out, "kernels", f->machine.kernels);
    write_text(out, "device", f->machine.device);
    weft_string_addf(out, " \"devices\": %d", f->machine.n_devices);
    for (size_t i = 0; i < WEFT_COUNT(numbers); i++)
        weft_string_addf(
            out, ", \"%s\": %.6g", numbers[i].name,
            *(const double *) (const void *) ((const char *) f
                                              + numbers[i].offset));
    weft_string_add(out, ",\n \"messages\": [");
    for (int32_t i = 0; i < f->n_messages; i++)
        weft_string_addf(out, "%s[%.9g, %.6g, %.6g]", i ? ", " : "",
                         f->message[i].bytes, f->message[i].seconds,
                         f->message[i].core_s);
    weft_string_add(out, "],\n \"shapes\": [");
    for (int32_t i = 0; i < f->n_shapes; i++) {
        weft_string_add(out, i ? ",\n  " : "\n  ");
        write_shape(&f->shape[i], out);
    }
    weft_string_add(out, "],\n \"operations\": [");
    for (int32_t i = 0; i < f->n_ops; i++) {
        weft_string_add(out, i ? ",\n  " : "\n  ");
        write_op(&f->op[i], out);
    }
    weft_string_add(out, "]}\n");
}

/* ---- Reading ----------------------------------------------------------- */

static int read_text(const json_t *root, const char *path, const char *key,
                     char out[WEFT_COSTS_TEXT], struct weft_err *err)
{
    const char *text;
    int rc = weft_json_string(root, path, key, &text, err);
    if (!rc)
        snprintf(out, WEFT_COSTS_TEXT, "%s", text);
    return rc;
}

/* subject: of the error, the file and what holds the key. */
static int read_measured(const json_t *item, const char *subject,
                         const char *key, bool needed, double *out,
                         struct weft_err *err)
{
    int rc = needed ? weft_json_double(item, subject, key, out, err)
                    : weft_json_double_or(item, subject, key, 0, out, err);
    if (!rc && !(*out >= 0 && *out <= MOST_MEASURED))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s: '%s' is %g; it must be from 0 to %g", subject,
                          key, *out, MOST_MEASURED);
    return rc;
}

static int read_shape(const json_t *item, const char *subject,
                      struct weft_rec_shape *out, struct weft_err *err)
{
    const char *dtype = "";
    int64_t v = 0;
    int rc = 0;
    *out = (struct weft_rec_shape){.n_blocks = 0};
    if (!json_is_object(item))
        return weft_err_set(err, WEFT_EFORMAT, "%s must be an object, not %s",
                            subject, weft_json_type(item));
    for (size_t i = 0; i < WEFT_COUNT(shape_numbers) && !rc; i++) {
        rc = weft_json_int(item, subject, shape_numbers[i].name, 1, MOST, &v,
                           err);
        *(int32_t *) (void *) ((char *) &out->shape
                               + shape_numbers[i].offset) = (int32_t) v;
    }
    if (!rc)
        rc = weft_json_bool(item, subject, "scalar_head",
                            &out->shape.scalar_head, err);
    if (!rc)
        rc = weft_json_int(item, subject, "computed", 1, WEFT_MAX_BLOCKS, &v,
                           err);
    out->n_blocks = (int32_t) v;
    if (!rc)
        rc = weft_json_string(item, subject, "dtype", &dtype, err);
    while (!rc && strcmp(dtype, weft_dtype_name(out->shape.dtype)) != 0)
        if (++out->shape.dtype > WEFT_F16)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: there is no dtype '%.20s'", subject,
                                dtype);
    return rc;
}

/* Numbers from 0 on; whether the item is a list of n of them. */
static bool read_numbers(const json_t *item, size_t n, double out[])
{
    bool ok = json_is_array(item) && json_array_size(item) == n;
    for (size_t i = 0; ok && i < n; i++) {
        const json_t *number = json_array_get(item, i);
        out[i] = json_number_value(number); /* 0 of what is no number */
        ok = json_is_number(number) && out[i] >= 0 && out[i] <= MOST_MEASURED;
    }
    return ok;
}

static int read_messages(const json_t *messages, const char *path,
                         struct weft_costs_file *f, struct weft_err *err)
{
    size_t n = json_array_size(messages);
    bool ok = n != 1 && n <= WEFT_COUNT(f->message);
    for (size_t i = 0; ok && i < n; i++) {
        struct weft_cost_message *m = &f->message[i];
        double v[3];
        ok = read_numbers(json_array_get(messages, i), WEFT_COUNT(v), v);
        if (ok)
            *m = (struct weft_cost_message){v[0], v[1], v[2]};
        ok = ok
          && (i == 0
              || (m->bytes > m[-1].bytes
                  && (i + 1 < n || m->seconds > m[-1].seconds)));
    }
    f->n_messages = ok ? (int32_t) n : 0;
    return ok ? 0
              : weft_err_set(err, WEFT_EINVAL,
                             "%s: 'messages' must be a list of at most %d, "
                             "none or several, of bytes, which ascend, and "
                             "seconds of a message and of a core; the last "
                             "takes longer than the one before",
                             path, (int) WEFT_COUNT(f->message));
}

static int read_point(const json_t *item, const char *subject,
                      const struct weft_cost_point *before,
                      struct weft_cost_point *out, struct weft_err *err)
{
    double v[N_NUMBERS];
    if (!read_numbers(item, N_NUMBERS, v))
        return weft_err_set(
            err, WEFT_EINVAL,
            "%s: a point must be 5 numbers from 0 to %g: rows, "
            "keys, operations, bytes, seconds",
            subject, MOST_MEASURED);
    *out = (struct weft_cost_point){v[0], v[1], v[2], v[3], v[4]};
    if (before
        && (out->n_rows < before->n_rows
            || (out->n_rows == before->n_rows
                && (out->n_rows > 0 ? out->n_keys <= before->n_keys
                                    : out->bytes <= before->bytes))))
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: the points of an operation must ascend",
                            subject);
    return 0;
}

static int read_op(const json_t *item, const char *subject, int32_t n_shapes,
                   struct weft_cost_op *out, struct weft_err *err)
{
    const char *name;
    json_t *points = NULL;
    int64_t shape = -1;
    int rc = weft_json_string(item, subject, "name", &name, err);
    if (!rc)
        rc = weft_json_int_or(item, subject, "shape", 0, n_shapes - 1, -1,
                              &shape, err);
    if (!rc)
        rc = weft_json_array(item, subject, "points", &points, err);
    if (rc)
        return rc;
    out->shape = (int32_t) shape;
    out->name = weft_strdup(name);
    out->point = weft_alloc(json_array_size(points) + 1, sizeof *out->point);
    if (!out->name || !out->point)
        return weft_err_nomem(err, subject, json_array_size(points) * 40);
    for (size_t i = 0; i < json_array_size(points) && !rc; i++) {
        rc = read_point(json_array_get(points, i), subject,
                        i ? &out->point[i - 1] : NULL, &out->point[i], err);
        out->n++;
    }
    return rc;
}

static int read_lists(const json_t *root, const char *path,
                      struct weft_costs_file *f, struct weft_err *err)
{
    json_t *messages = NULL, *shapes = NULL, *ops = NULL;
    char subject[4200];
    int rc = weft_json_array(root, path, "messages", &messages, err);
    if (!rc)
        rc = weft_json_array(root, path, "shapes", &shapes, err);
    if (!rc)
        rc = weft_json_array(root, path, "operations", &ops, err);
    if (rc)
        return rc;
    f->shape = weft_alloc(json_array_size(shapes) + 1, sizeof *f->shape);
    f->op = weft_alloc(json_array_size(ops) + 1, sizeof *f->op);
    if (!f->shape || !f->op)
        return weft_err_nomem(err, path, json_array_size(ops) * 40);
    rc = read_messages(messages, path, f, err);
    for (size_t i = 0; i < json_array_size(shapes) && !rc; i++) {
        snprintf(subject, sizeof subject, "%s: shapes[%zu]", path, i);
        rc = read_shape(json_array_get(shapes, i), subject,
                        &f->shape[f->n_shapes++], err);
    }
    for (size_t i = 0; i < json_array_size(ops) && !rc; i++) {
        snprintf(subject, sizeof subject, "%s: operations[%zu]", path, i);
        rc = read_op(json_array_get(ops, i), subject, f->n_shapes,
                     &f->op[f->n_ops++], err);
    }
    return rc;
}

/* That a file is of this machine, these kernels and this version. */
static int compare(const char *path, const char *what, const char *theirs,
                   const char *ours, struct weft_err *err)
{
    if (strcmp(theirs, ours) == 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' was measured with %s '%s', and here it is "
                        "'%s'; run weft profile again",
                        path, what, theirs, ours);
}

/* here: NULL: any. */
static int read_machine(const json_t *root, const char *path,
                        const struct weft_costs_machine *here,
                        struct weft_costs_machine *out, struct weft_err *err)
{
    int rc = read_text(root, path, "weft", out->version, err);
    if (!rc)
        rc = read_text(root, path, "machine", out->cpu, err);
    if (!rc)
        rc = read_text(root, path, "kernels", out->kernels, err);
    if (!rc)
        rc = read_text(root, path, "device", out->device, err);
    if (!rc && here)
        rc = compare(path, "machine", out->cpu, here->cpu, err);
    if (!rc && here)
        rc = compare(path, "device", out->device, here->device, err);
    if (!rc && here)
        rc = compare(path, "kernels", out->kernels, here->kernels, err);
    if (!rc && here)
        rc = compare(path, "version", out->version, here->version, err);
    return rc;
}

/* Another version's keys may be others: whose it is comes first. */
static int read_root(const json_t *root, const char *path,
                     const struct weft_costs_machine *here,
                     struct weft_costs_file *f, struct weft_err *err)
{
    int64_t v = 0;
    bool named = json_is_string(json_object_get(root, "weft"));
    int rc = named ? read_machine(root, path, here, &f->machine, err) : 0;
    if (!rc)
        rc = weft_json_keys(root, path, top_keys, WEFT_COUNT(top_keys), err);
    if (!rc)
        rc = weft_json_int(root, path, "format", FORMAT, FORMAT, &v, err);
    if (!rc)
        rc = read_machine(root, path, here, &f->machine, err);
    if (!rc)
        rc = weft_json_int(root, path, "devices", 1, WEFT_MAX_DEVICES, &v,
                           err);
    f->machine.n_devices = (int32_t) v;
    for (size_t i = 0; i < WEFT_COUNT(numbers) && !rc; i++)
        rc = read_measured(
            root, path, numbers[i].name, numbers[i].needed,
            (double *) (void *) ((char *) f + numbers[i].offset), err);
    return rc ? rc : read_lists(root, path, f, err);
}

int weft_costs_file_read(const char *path,
                         const struct weft_costs_machine *here,
                         struct weft_costs_file *out, struct weft_err *err)
{
    json_t *root;
    *out = (struct weft_costs_file){.n_ops = 0};
    int rc = weft_json_read(path, MAX_BYTES, &root, err);
    if (rc)
        return rc;
    if (!json_is_object(root))
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "'%s' must hold an object, not %s", path,
                          weft_json_type(root));
    else
        rc = read_root(root, path, here, out, err);
    json_decref(root);
    return rc;
}
