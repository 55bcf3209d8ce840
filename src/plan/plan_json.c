/* SPDX-License-Identifier: Apache-2.0 */
/* The plan file: people read and diff it, so a call is a line. */
#include "plan/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/string.h"
#include "plan/shares.h"

enum { FORMAT = 1, MAX_SUBJECT = 512, MAX_BYTES = 256 << 20 };

#define AT(field) offsetof(struct weft_call_plan, field)

/* Keys of a call that are numbers, but the mesh's. */
static const struct number {
    const char *name;
    size_t offset;
    int32_t low, high;
    bool optional; /* 0 when it is left out */
} numbers[] = {
    {"dp", AT(dp), 1, 1 << 20, false},
    {"tp", AT(tp), 1, 1 << 20, false},
    {"pp", AT(pp), 1, 1 << 20, false},
    {"micro_batches", AT(micro_batches), 0, 1 << 20, true},
    {"zero", AT(zero), 0, 3, true},
};
static const struct number mesh_numbers[] = {
    {"node", AT(mesh.node), 0, WEFT_MAX_NODES - 1, false},
    {"nodes", AT(mesh.n_nodes), 1, WEFT_MAX_NODES, false},
    {"device", AT(mesh.device), 0, WEFT_MAX_DEVICES - 1, false},
    {"devices", AT(mesh.n_devices), 1, WEFT_MAX_DEVICES, false},
};
static const struct flag {
    const char *name;
    size_t offset;
} flags[] = {{"recompute", AT(recompute)},
             {"offload", AT(offload)},
             {"hpz", AT(hpz)},
             {"contiguous", AT(contiguous)},
             {"reversed", AT(reversed)}};

static const struct flag plan_flags[] = {
    {"intra_stage_fusion", offsetof(struct weft_plan, intra_stage_fusion)},
    {"inter_stage_fusion", offsetof(struct weft_plan, inter_stage_fusion)}};

static const char *const top_keys[] = {"format",
                                       "nodes",
                                       "devices",
                                       "gpus",
                                       "calls",
                                       "intra_stage_fusion",
                                       "inter_stage_fusion",
                                       "predicted_s",
                                       "measured_s",
                                       "memory",
                                       "measured_memory",
                                       "replayed_memory"};
static const char *const call_keys[] = {
    "mesh", "dp",        "tp",      "pp",         "micro_batches", "zero",
    "hpz",  "recompute", "offload", "contiguous", "reversed",      "shares"};
static const char *const mesh_keys[] = {"node", "nodes", "device", "devices"};

/* ---- Reading ---------------------------------------------------------- */

static int read_numbers(const json_t *object, const char *subject,
                        const struct number *number, size_t n, void *base,
                        struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct number *k = &number[i];
        int64_t v = 0;
        if (k->optional)
            rc = weft_json_int_or(object, subject, k->name, k->low, k->high,
                                  0, &v, err);
        else
            rc = weft_json_int(object, subject, k->name, k->low, k->high, &v,
                               err);
        *(int32_t *) ((char *) base + k->offset) = (int32_t) v;
    }
    return rc;
}

/* False where they are left out. */
static int read_flags(const json_t *object, const char *subject,
                      const struct flag *flag, size_t n, void *base,
                      struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = weft_json_bool_or(object, subject, flag[i].name, false,
                               (bool *) ((char *) base + flag[i].offset),
                               err);
    return rc;
}

static int read_shares(const json_t *object, const char *subject,
                       struct weft_shares *out, struct weft_err *err)
{
    json_t *list = NULL;
    int rc = weft_json_array_or(object, subject, "shares", &list, err);
    for (size_t i = 0; !rc && list && i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        json_int_t share = json_integer_value(x);
        if (!json_is_integer(x) || share < 1 || share > WEFT_SHARE_MOST)
            rc = weft_err_set(err, WEFT_EINVAL,
                              "%s: 'shares[%zu]' must be a whole number from "
                              "1 to %d",
                              subject, i, WEFT_SHARE_MOST);
        else if (!weft_shares_add(out, (int32_t) share))
            rc = weft_err_set(err, WEFT_EINVAL,
                              "%s: 'shares' change more than %d times from "
                              "one member to the next; give neighbours equal "
                              "ones",
                              subject, WEFT_MAX_SHARES - 1);
    }
    return rc;
}

static int read_call(const json_t *object, const char *subject,
                     struct weft_call_plan *out, struct weft_err *err)
{
    char inner[MAX_SUBJECT + 8];
    json_t *mesh = NULL;
    int rc = weft_json_keys(object, subject, call_keys, WEFT_COUNT(call_keys),
                            err);
    if (!rc)
        rc = weft_json_object(object, subject, "mesh", &mesh, err);
    snprintf(inner, sizeof inner, "%s.mesh", subject);
    if (!rc)
        rc = weft_json_keys(mesh, inner, mesh_keys, WEFT_COUNT(mesh_keys),
                            err);
    if (!rc)
        rc = read_numbers(mesh, inner, mesh_numbers, WEFT_COUNT(mesh_numbers),
                          out, err);
    if (!rc)
        rc = read_numbers(object, subject, numbers, WEFT_COUNT(numbers), out,
                          err);
    if (!rc)
        rc = read_flags(object, subject, flags, WEFT_COUNT(flags), out, err);
    return rc ? rc : read_shares(object, subject, &out->shares, err);
}

/* Without the run's graph a call is what its name says. */
static int guess_calls(const json_t *calls, const char *subject,
                       struct weft_dataflow *flow, struct weft_err *err)
{
    const char *name;
    json_t *one;
    json_object_foreach((json_t *) (uintptr_t) calls, name, one)
    {
        if (weft_flow_guess(flow, name) > 0)
            continue;
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: '%.40s' is no name of a call: at most %d "
                            "bytes that end in _generate, _infer or _train",
                            subject, name, WEFT_MAX_NAME - 1);
    }
    return 0;
}

/* Calls that the run does not make are left out, if they are calls at all and
 * those that it makes are all there: else they may be misnamed. */
static int check_names(const json_t *calls, const char *subject,
                       const struct weft_dataflow *flow, struct weft_err *err)
{
    const char *known[2 * WEFT_MAX_CALLS], *name;
    struct weft_dataflow other;
    size_t n = 0;
    json_t *one;
    bool all = true;
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (weft_flow_placed(flow, i)) {
            known[n++] = flow->call[i].name;
            all = all && json_object_get(calls, flow->call[i].name);
        }
    weft_flow_init(&other);
    json_object_foreach((json_t *) (uintptr_t) calls, name, one)
    {
        if (all && weft_flow_find_call(flow, name) < 0
            && weft_flow_guess(&other, name) > 0)
            known[n++] = name;
    }
    return weft_json_keys(calls, subject, known, n, err);
}

static int read_calls(const json_t *root, const char *path,
                      struct weft_plan *out, struct weft_err *err)
{
    char subject[MAX_SUBJECT];
    struct weft_dataflow *flow = &out->flow;
    json_t *calls = NULL, *one = NULL;
    int rc = weft_json_object(root, path, "calls", &calls, err);
    snprintf(subject, sizeof subject, "%.400s: calls", path);
    if (!rc && flow->n_calls == 1)
        rc = guess_calls(calls, subject, flow, err);
    if (!rc)
        rc = check_names(calls, subject, flow, err);
    for (int32_t i = 1; i < flow->n_calls && !rc; i++) {
        char inner[MAX_SUBJECT];
        if (!weft_flow_placed(flow, i))
            continue;
        rc = weft_json_object_or(calls, subject, flow->call[i].name, &one,
                                 err);
        if (rc || !one)
            continue;
        snprintf(inner, sizeof inner, "%.400s: calls.%s", path,
                 flow->call[i].name);
        rc = read_call(one, inner, &out->call[i], err);
    }
    return rc;
}

static int read_device(const json_t *item, const char *subject,
                       const struct weft_plan *plan,
                       int64_t (*table)[WEFT_MEM_ALL + 1],
                       struct weft_err *err)
{
    const char *known[WEFT_N_MEM_CLASSES + 2];
    const int64_t most = (int64_t) 1 << 50;
    int64_t n_devices = (int64_t) plan->n_nodes * plan->n_devices;
    int64_t device = 0, sum = 0;
    if (!json_is_object(item))
        return weft_err_set(err, WEFT_EFORMAT, "%s must be an object, not %s",
                            subject, weft_json_type(item));
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        known[c] = weft_mem_class_name((enum weft_mem_class) c);
    known[WEFT_MEM_ALL] = "all";
    known[WEFT_MEM_ALL + 1] = "device";
    int rc = weft_json_keys(item, subject, known, WEFT_COUNT(known), err);
    if (!rc)
        rc = weft_json_int(item, subject, "device", 0, n_devices - 1, &device,
                           err);
    if (!rc && table[device][0] >= 0)
        rc = weft_err_set(err, WEFT_EINVAL, "%s: device %d is given twice",
                          subject, (int) device);
    for (int c = 0; c < WEFT_N_MEM_CLASSES && !rc; c++) {
        /* plans of older versions have neither "tasks" nor "host" */
        rc = c == WEFT_MEM_TASKS || c == WEFT_MEM_HOST
               ? weft_json_int_or(item, subject, known[c], 0, most, 0,
                                  &table[device][c], err)
               : weft_json_int(item, subject, known[c], 0, most,
                               &table[device][c], err);
        if (weft_mem_class_at_place((enum weft_mem_class) c))
            sum += table[device][c];
    }
    /* a GPU's pages are more than what classes have of them */
    bool on_gpu = device % plan->n_devices < plan->n_gpus;
    if (!rc)
        rc = weft_json_int_or(item, subject, "all", 0, on_gpu ? most : sum,
                              sum, &table[device][WEFT_MEM_ALL], err);
    return rc;
}

static int read_memory(const json_t *root, const char *path, const char *key,
                       const struct weft_plan *plan,
                       int64_t (**out)[WEFT_MEM_ALL + 1],
                       struct weft_err *err)
{
    char subject[MAX_SUBJECT];
    json_t *list = NULL;
    int64_t n = (int64_t) plan->n_nodes * plan->n_devices;
    int rc = weft_json_array_or(root, path, key, &list, err);
    if (rc || !list)
        return rc;
    if ((int64_t) json_array_size(list) != n)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: '%s' has %zu devices, the plan %lld", path,
                            key, json_array_size(list), (long long) n);
    *out = weft_alloc((size_t) n, sizeof **out);
    if (!*out)
        return weft_err_nomem(err, path, (size_t) n * sizeof **out);
    for (int64_t d = 0; d < n; d++)
        (*out)[d][0] = -1; /* not seen yet */
    for (int64_t i = 0; i < n && !rc; i++) {
        snprintf(subject, sizeof subject, "%.400s: %s[%lld]", path, key,
                 (long long) i);
        rc = read_device(json_array_get(list, (size_t) i), subject, plan,
                         *out, err);
    }
    return rc;
}

/* Calls that the plan has not are left out. */
static int read_times(const json_t *root, const char *path, const char *key,
                      const struct weft_dataflow *flow,
                      struct weft_plan_times *out, struct weft_err *err)
{
    json_t *times = json_object_get(root, key);
    char subject[MAX_SUBJECT];
    const char *name;
    json_t *value;
    if (!times)
        return 0;
    snprintf(subject, sizeof subject, "%.400s: %s", path, key);
    if (!json_is_object(times))
        return weft_err_set(err, WEFT_EINVAL, "%s must be an object, not %s",
                            subject, weft_json_type(times));
    json_object_foreach(times, name, value)
    {
        double s = json_number_value(value);
        if (!json_is_number(value) || s < 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: '%.60s' must be seconds, 0 or more",
                                subject, name);
        if (strcmp(name, "iteration") == 0)
            out->iteration_s = s;
        for (int32_t i = 1; i < flow->n_calls; i++)
            if (strcmp(name, flow->call[i].name) == 0)
                out->call_s[i] = s;
    }
    return 0;
}

static int read_root(const json_t *root, const char *path,
                     struct weft_plan *out, struct weft_err *err)
{
    int64_t format = 0, nodes = 0, devices = 0, gpus = 0;
    if (!json_is_object(root))
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: a plan is an object, not %s", path,
                            weft_json_type(root));
    int rc = weft_json_int(root, path, "format", 0, INT64_MAX, &format, err);
    if (!rc && format != FORMAT)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%s: 'format' is %lld; this program reads %d", path,
                          (long long) format, FORMAT);
    if (!rc)
        rc = weft_json_keys(root, path, top_keys, WEFT_COUNT(top_keys), err);
    if (!rc)
        rc = weft_json_int(root, path, "nodes", 1, WEFT_MAX_NODES, &nodes,
                           err);
    if (!rc)
        rc = weft_json_int(root, path, "devices", 1, WEFT_MAX_DEVICES,
                           &devices, err);
    out->n_nodes = (int32_t) nodes;
    out->n_devices = (int32_t) devices;
    if (!rc)
        rc = weft_json_int_or(root, path, "gpus", 0, devices, 0, &gpus, err);
    out->n_gpus = (int32_t) gpus;
    if (!rc)
        rc = read_calls(root, path, out, err);
    if (!rc)
        rc = read_flags(root, path, plan_flags, WEFT_COUNT(plan_flags), out,
                        err);
    if (!rc)
        rc = read_times(root, path, "predicted_s", &out->flow,
                        &out->predicted_s, err);
    if (!rc)
        rc = read_times(root, path, "measured_s", &out->flow,
                        &out->measured_s, err);
    if (!rc)
        rc = read_memory(root, path, "memory", out, &out->memory, err);
    if (!rc)
        rc = read_memory(root, path, "measured_memory", out, &out->measured,
                         err);
    if (!rc)
        rc = read_memory(root, path, "replayed_memory", out, &out->replayed,
                         err);
    return rc;
}

/* Takes the root. */
static int read_plan(json_t *root, const char *name,
                     const struct weft_dataflow *flow, struct weft_plan *out,
                     struct weft_err *err)
{
    struct weft_plan plan = {0};
    if (flow)
        plan.flow = *flow;
    else
        weft_flow_init(&plan.flow);
    int rc = read_root(root, name, &plan, err);
    json_decref(root);
    if (rc)
        weft_plan_release(&plan);
    else
        *out = plan;
    return rc;
}

int weft_plan_read(const char *path, const struct weft_dataflow *flow,
                   struct weft_plan *out, struct weft_err *err)
{
    json_t *root = NULL;
    int rc = weft_json_read(path, MAX_BYTES, &root, err);
    return rc ? rc : read_plan(root, path, flow, out, err);
}

int weft_plan_parse(const char *text, size_t n, const char *name,
                    const struct weft_dataflow *flow, struct weft_plan *out,
                    struct weft_err *err)
{
    json_t *root = NULL;
    int rc = weft_json_parse(text, n, name, &root, err);
    return rc ? rc : read_plan(root, name, flow, out, err);
}

/* ---- Writing ---------------------------------------------------------- */

static void put_numbers(FILE *f, const struct number *number, size_t n,
                        const void *base)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s\"%s\": %d", i > 0 ? ", " : "", number[i].name,
                *(const int32_t *) ((const char *) base + number[i].offset));
}

/* Those that are set, and the first `always` whatever they are. */
static void put_flags(FILE *f, const char *before, const struct flag *flag,
                      size_t n, size_t always, const void *base)
{
    for (size_t i = 0; i < n; i++) {
        bool set = *(const bool *) ((const char *) base + flag[i].offset);
        if (set || i < always)
            fprintf(f, "%s\"%s\": %s", before, flag[i].name,
                    set ? "true" : "false");
    }
}

static void put_call(FILE *f, const struct weft_call_plan *c)
{
    fputs("{\"mesh\": {", f);
    put_numbers(f, mesh_numbers, WEFT_COUNT(mesh_numbers), c);
    fputs("}, ", f);
    put_numbers(f, numbers, WEFT_COUNT(numbers), c);
    put_flags(f, ", ", flags, WEFT_COUNT(flags), 2, c);
    for (int32_t i = 0; i < weft_shares_members(&c->shares); i++)
        fprintf(f, "%s%d", i > 0 ? ", " : ", \"shares\": [",
                (int) weft_shares_of(&c->shares, i));
    fputs(c->shares.n > 0 ? "]}" : "}", f);
}

static void put_memory(FILE *f, const char *key, int64_t n,
                       int64_t (*table)[WEFT_MEM_ALL + 1])
{
    fprintf(f, ",\n \"%s\": [", key);
    for (int64_t d = 0; d < n; d++) {
        fprintf(f, "%s\n  {\"device\": %lld", d > 0 ? "," : "",
                (long long) d);
        for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
            fprintf(f, ", \"%s\": %lld",
                    weft_mem_class_name((enum weft_mem_class) c),
                    (long long) table[d][c]);
        fprintf(f, ", \"all\": %lld}", (long long) table[d][WEFT_MEM_ALL]);
    }
    fputs("\n ]", f);
}

static void put_times(FILE *f, const char *key, const struct weft_plan *plan,
                      const struct weft_plan_times *times)
{
    if (times->iteration_s <= 0)
        return;
    fprintf(f, ",\n \"%s\": {\"iteration\": %.6g", key, times->iteration_s);
    for (int32_t i = 1; i < plan->flow.n_calls; i++)
        if (plan->call[i].dp > 0)
            fprintf(f, ", \"%s\": %.6g", plan->flow.call[i].name,
                    times->call_s[i]);
    fputs("}", f);
}

char *weft_plan_json(const struct weft_plan *plan)
{
    char *text = NULL;
    size_t size = 0;
    int64_t n_devices = (int64_t) plan->n_nodes * plan->n_devices;
    const char *comma = "";
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "{\"format\": %d, \"nodes\": %d, \"devices\": %d", FORMAT,
            plan->n_nodes, plan->n_devices);
    if (plan->n_gpus > 0)
        fprintf(f, ", \"gpus\": %d", plan->n_gpus);
    fputs(",\n", f);
    fputs(" \"calls\": {", f);
    for (int32_t i = 1; i < plan->flow.n_calls; i++) {
        if (plan->call[i].dp == 0)
            continue;
        fprintf(f, "%s\n  \"%s\": ", comma, plan->flow.call[i].name);
        put_call(f, &plan->call[i]);
        comma = ",";
    }
    fputs("\n }", f);
    put_flags(f, ",\n ", plan_flags, WEFT_COUNT(plan_flags), 0, plan);
    put_times(f, "predicted_s", plan, &plan->predicted_s);
    put_times(f, "measured_s", plan, &plan->measured_s);
    if (plan->memory)
        put_memory(f, "memory", n_devices, plan->memory);
    if (plan->measured)
        put_memory(f, "measured_memory", n_devices, plan->measured);
    if (plan->replayed)
        put_memory(f, "replayed_memory", n_devices, plan->replayed);
    fputs("}\n", f);
    return weft_string_end_stream(f, &text);
}

int weft_plan_write(const struct weft_plan *plan, const char *path,
                    struct weft_err *err)
{
    return weft_file_write_text(path, weft_plan_json(plan), err);
}
