/* SPDX-License-Identifier: Apache-2.0 */
/* A problem: read, checked, released. */
#include "schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "schedule/tasks.h"

enum {
    MAX_SUBJECT = 400,
    MAX_BYTES = 256 << 20,
    MAX_COUNT = 1 << 20, /* devices, micro-batches, ... */
    MAX_SUBTASKS = 1 << 26,
};

static const char *const top_keys[] = {"stages", "models", "memory_capacity",
                                       "latency", "mini_batches"};
static const char *const model_keys[] = {
    "name",       "pipelines", "stages", "chunks", "micro_batches",
    "forward",    "backward",  "weight", "sync",   "optimizer",
    "activation", "direction", "merge"};

/* ---- Checking --------------------------------------------------------- */

/* Sums of any number of them, and their squares, are finite too. */
static bool is_amount(double x)
{
    return x >= 0 && x <= 1e100;
}

static int check_table(const struct weft_schedule_model *m, const char *key,
                       const double *table, struct weft_err *err)
{
    int64_t n = (int64_t) m->micro_batches * m->stages;
    for (int64_t i = 0; i < n; i++)
        if (!is_amount(table[i]))
            return weft_err_set(err, WEFT_EINVAL,
                                "model '%s': '%s' of micro-batch %d on stage "
                                "%d is %g; it must be from 0 to 1e100",
                                m->name, key, (int) (i / m->stages),
                                (int) (i % m->stages), table[i]);
    return 0;
}

static int check_shape(const struct weft_schedule_problem *p,
                       const struct weft_schedule_model *m,
                       struct weft_err *err)
{
    if (!m->name || !*m->name)
        return weft_err_set(err, WEFT_EINVAL, "a model has no name");
    for (const struct weft_schedule_model *o = p->model; o < m; o++)
        if (strcmp(o->name, m->name) == 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "model '%s' is there twice; names must "
                                "differ",
                                m->name);
    if (m->pipelines < 1 || m->stages < 1 || m->chunks < 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "model '%s': 'pipelines', 'stages' and 'chunks' "
                            "must be 1 or more",
                            m->name);
    if (m->micro_batches < 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "model '%s': 'micro_batches' must be 1 or more",
                            m->name);
    if (m->stages % m->chunks)
        return weft_err_set(err, WEFT_EINVAL,
                            "model '%s': %d stages are no multiple of %d "
                            "chunks",
                            m->name, m->stages, m->chunks);
    if ((int64_t) m->pipelines * m->stages
        != (int64_t) p->n_devices * m->chunks)
        return weft_err_set(err, WEFT_EINVAL,
                            "model '%s': %d pipelines of %d stages do not "
                            "fill the %d devices (%d on each)",
                            m->name, m->pipelines, m->stages, p->n_devices,
                            m->chunks);
    if (m->split_backward != (m->weight != NULL))
        return weft_err_set(err, WEFT_EINVAL,
                            "model '%s': 'weight' goes with a split backward "
                            "pass",
                            m->name);
    return 0;
}

/* A micro-batch is held on all stages of a device at once, at its last one's
 * end; the capacity must admit each of them alone. */
static int check_capacity(const struct weft_schedule_problem *p,
                          const struct weft_schedule_model *m,
                          struct weft_err *err)
{
    int32_t width = weft_schedule_width(m);
    for (int32_t j = 0; j < m->micro_batches && p->capacity > 0; j++)
        for (int32_t i = 0; i < width; i++) {
            double held = 0;
            for (int32_t s = i; s < m->stages; s += width)
                held += m->activation[(int64_t) j * m->stages + s];
            if (held > p->capacity * (1 + 1e-9))
                return weft_err_set(err, WEFT_EINVAL,
                                    "'memory_capacity' %g is less than one "
                                    "micro-batch of model '%s' holds (%g)",
                                    p->capacity, m->name, held);
        }
    return 0;
}

static int check_tables(const struct weft_schedule_model *m,
                        struct weft_err *err)
{
    int rc = check_table(m, "forward", m->forward, err);
    if (!rc)
        rc = check_table(m, "backward", m->backward, err);
    if (!rc && m->weight)
        rc = check_table(m, "weight", m->weight, err);
    return rc ? rc : check_table(m, "activation", m->activation, err);
}

static int check_model(const struct weft_schedule_problem *p,
                       const struct weft_schedule_model *m,
                       struct weft_err *err)
{
    int rc = check_shape(p, m, err);
    if (!rc)
        rc = check_tables(m, err);
    if (!rc && (!is_amount(m->sync) || !is_amount(m->optimizer)))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "model '%s': 'sync' %g and 'optimizer' %g must be "
                          "from 0 to 1e100",
                          m->name, m->sync, m->optimizer);
    return rc ? rc : check_capacity(p, m, err);
}

int weft_schedule_problem_check(const struct weft_schedule_problem *problem,
                                struct weft_err *err)
{
    double subtasks = 0;
    int rc = 0;
    if (problem->n_devices < 1)
        return weft_err_set(err, WEFT_EINVAL, "'stages' must be 1 or more");
    if (problem->n_models < 1)
        return weft_err_set(err, WEFT_EINVAL, "there is no model");
    if (problem->mini_batches < 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "'mini_batches' must be 1 or more");
    if (!is_amount(problem->latency))
        return weft_err_set(err, WEFT_EINVAL,
                            "'latency' is %g; it must be from 0 to 1e100",
                            problem->latency);
    if (!is_amount(problem->capacity))
        return weft_err_set(err, WEFT_EINVAL,
                            "'memory_capacity' is %g; it must be above 0 and "
                            "at most 1e100, or null for no limit",
                            problem->capacity);
    for (int32_t i = 0; i < problem->n_models && !rc; i++) {
        const struct weft_schedule_model *m = &problem->model[i];
        rc = check_model(problem, m, err);
        subtasks += 3.0 * m->pipelines * m->stages * m->micro_batches
                  * problem->mini_batches;
    }
    if (!rc && subtasks > MAX_SUBTASKS)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "the problem has about %.0f subtasks; at most %d "
                          "are scheduled",
                          subtasks, MAX_SUBTASKS);
    return rc;
}

void weft_schedule_problem_release(struct weft_schedule_problem *problem)
{
    for (int32_t i = 0; problem->model && i < problem->n_models; i++) {
        struct weft_schedule_model *m = &problem->model[i];
        weft_free(m->name);
        weft_free(m->forward);
        weft_free(m->backward);
        weft_free(m->weight);
        weft_free(m->activation);
    }
    weft_free(problem->model);
    *problem = (struct weft_schedule_problem){0};
}

/* ---- Reading ---------------------------------------------------------- */

/* A number, or one per stage, into row (n). */
static int read_row(const json_t *value, const char *subject, int32_t n,
                    double *row, struct weft_err *err)
{
    if (json_is_array(value) && (int64_t) json_array_size(value) != n)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s has %zu numbers; give one, or %d (one per "
                            "stage)",
                            subject, json_array_size(value), n);
    for (int32_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(value)
                              ? json_array_get(value, (size_t) i)
                              : value;
        if (!json_is_number(one))
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s must be a number, a list of one per "
                                "stage, or a list per micro-batch of such "
                                "lists; there is %s",
                                subject, weft_json_type(one));
        row[i] = json_number_value(one);
    }
    return 0;
}

/* A row, or a list of one row per micro-batch: (micro_batches, stages). */
static int read_table(const json_t *object, const char *subject,
                      const char *key, const struct weft_schedule_model *m,
                      double **out, struct weft_err *err)
{
    char inner[MAX_SUBJECT + 40];
    json_t *value = json_object_get(object, key);
    const json_t *head = json_array_get(value, 0);
    bool rows = json_is_array(head);
    size_t n = (size_t) m->micro_batches, width = (size_t) m->stages;
    int rc = 0;
    snprintf(inner, sizeof inner, "%s.%s", subject, key);
    if (!value || json_is_null(value))
        return weft_err_set(err, WEFT_ENOTFOUND, "%s: '%s' is missing",
                            subject, key);
    if (rows && json_array_size(value) != n)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s has %zu lists for %d micro-batches", inner,
                            json_array_size(value), m->micro_batches);
    *out = weft_alloc(n * width, sizeof **out);
    if (!*out)
        return weft_err_nomem(err, inner, n * width * sizeof **out);
    for (size_t j = 0; j < n && !rc; j++)
        rc = read_row(rows ? json_array_get(value, j) : value, inner,
                      m->stages, *out + j * width, err);
    return rc;
}

static int read_count(const json_t *object, const char *subject,
                      const char *key, int64_t fallback, int32_t *out,
                      struct weft_err *err)
{
    int64_t v = 0;
    int rc = fallback
               ? weft_json_int_or(object, subject, key, 1, MAX_COUNT,
                                  fallback, &v, err)
               : weft_json_int(object, subject, key, 1, MAX_COUNT, &v, err);
    *out = (int32_t) v;
    return rc;
}

static int read_names(const json_t *object, const char *subject,
                      struct weft_schedule_model *out, struct weft_err *err)
{
    const char *name = NULL, *direction = NULL;
    int rc = weft_json_string(object, subject, "name", &name, err);
    if (!rc)
        rc = weft_json_string_or(object, subject, "direction", "down",
                                 &direction, err);
    if (rc)
        return rc;
    out->up = strcmp(direction, "up") == 0;
    if (!out->up && strcmp(direction, "down") != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: 'direction' is '%s'; it must be 'down' or "
                            "'up'",
                            subject, direction);
    out->name = weft_strdup(name);
    return out->name ? 0 : weft_err_nomem(err, subject, strlen(name));
}

static int read_times(const json_t *object, const char *subject,
                      struct weft_schedule_model *out, struct weft_err *err)
{
    const json_t *weight = json_object_get(object, "weight");
    const json_t *activation = json_object_get(object, "activation");
    size_t n = (size_t) out->micro_batches * (size_t) out->stages;
    int rc = read_table(object, subject, "forward", out, &out->forward, err);
    if (!rc)
        rc = read_table(object, subject, "backward", out, &out->backward,
                        err);
    out->split_backward = weight && !json_is_null(weight);
    if (!rc && out->split_backward)
        rc = read_table(object, subject, "weight", out, &out->weight, err);
    if (!rc && activation && !json_is_null(activation))
        rc = read_table(object, subject, "activation", out, &out->activation,
                        err);
    else if (!rc && !(out->activation = weft_alloc(n, sizeof(double))))
        rc = weft_err_nomem(err, subject, n * sizeof(double));
    if (!rc)
        rc = weft_json_double_or(object, subject, "sync", 0, &out->sync, err);
    if (!rc)
        rc = weft_json_double_or(object, subject, "optimizer", 0,
                                 &out->optimizer, err);
    return rc;
}

/* Sums of n neighbours of each row; `more` each. */
static void fold(double *table, const struct weft_schedule_model *m,
                 int32_t n, double more)
{
    int32_t cells = table ? m->micro_batches * m->stages / n : 0;
    for (int32_t i = 0; i < cells; i++) {
        double sum = more;
        for (int32_t k = 0; k < n; k++)
            sum += table[i * n + k];
        table[i] = sum;
    }
}

/* So many stages, one after another in a pipeline of smaller tp groups, become
 * one (RLHFuse section 5.1). */
static int merge(const struct weft_schedule_problem *p, const char *subject,
                 int32_t n, struct weft_schedule_model *m,
                 struct weft_err *err)
{
    double between = (n - 1) * p->latency;
    if (m->stages % n != 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: 'merge' %d does not divide the %d stages",
                            subject, n, m->stages);
    if (n == 1)
        return 0;
    int rc = check_tables(m, err); /* before sums hide what is wrong */
    if (rc) {
        weft_err_prefix(err, "%s", subject);
        return rc;
    }
    fold(m->forward, m, n, between);
    fold(m->backward, m, n, between);
    fold(m->weight, m, n, 0);
    fold(m->activation, m, n, 0);
    m->stages /= n;
    return 0;
}

static int read_model(const json_t *object, const char *subject,
                      const struct weft_schedule_problem *p,
                      struct weft_schedule_model *out, struct weft_err *err)
{
    int32_t n_merged = 1;
    if (!json_is_object(object))
        return weft_err_set(err, WEFT_EFORMAT, "%s must be an object, not %s",
                            subject, weft_json_type(object));
    int rc = weft_json_keys(object, subject, model_keys,
                            WEFT_COUNT(model_keys), err);
    if (!rc)
        rc = read_names(object, subject, out, err);
    if (!rc)
        rc = read_count(object, subject, "pipelines", 1, &out->pipelines,
                        err);
    if (!rc)
        rc = read_count(object, subject, "stages", 0, &out->stages, err);
    if (!rc)
        rc = read_count(object, subject, "chunks", 1, &out->chunks, err);
    if (!rc)
        rc = read_count(object, subject, "micro_batches", 0,
                        &out->micro_batches, err);
    if (!rc
        && (double) out->micro_batches * out->stages * p->mini_batches
               > MAX_SUBTASKS)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%s: %d micro-batches on %d stages are more "
                          "subtasks than can be scheduled (%d)",
                          subject, out->micro_batches, out->stages,
                          MAX_SUBTASKS);
    if (!rc)
        rc = read_count(object, subject, "merge", 1, &n_merged, err);
    if (!rc)
        rc = read_times(object, subject, out, err);
    return rc ? rc : merge(p, subject, n_merged, out, err);
}

static int read_models(const json_t *root, const char *path,
                       struct weft_schedule_problem *out,
                       struct weft_err *err)
{
    char subject[MAX_SUBJECT];
    json_t *models = NULL;
    int rc = weft_json_array(root, path, "models", &models, err);
    if (rc)
        return rc;
    size_t n = json_array_size(models);
    if (n == 0 || n > 1024)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: 'models' has %zu; it must have 1 to 1024",
                            path, n);
    out->model = weft_alloc(n, sizeof *out->model);
    if (!out->model)
        return weft_err_nomem(err, path, n * sizeof *out->model);
    out->n_models = (int32_t) n;
    for (size_t i = 0; i < n && !rc; i++) {
        snprintf(subject, sizeof subject, "%.300s: models[%zu]", path, i);
        rc = read_model(json_array_get(models, i), subject, out,
                        &out->model[i], err);
    }
    return rc;
}

static int read_root(const json_t *root, const char *path,
                     struct weft_schedule_problem *out, struct weft_err *err)
{
    const json_t *capacity = json_object_get(root, "memory_capacity");
    if (!json_is_object(root))
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: a problem is an object, not %s", path,
                            weft_json_type(root));
    int rc = weft_json_keys(root, path, top_keys, WEFT_COUNT(top_keys), err);
    if (!rc)
        rc = read_count(root, path, "stages", 0, &out->n_devices, err);
    if (!rc)
        rc = read_count(root, path, "mini_batches", 1, &out->mini_batches,
                        err);
    if (!rc)
        rc = weft_json_double_or(root, path, "latency", 0, &out->latency,
                                 err);
    if (!rc)
        rc = weft_json_double_or(root, path, "memory_capacity", 0,
                                 &out->capacity, err);
    if (!rc && json_is_number(capacity) && !(out->capacity > 0))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s: 'memory_capacity' is %g; it must be above 0, "
                          "or null for no limit",
                          path, out->capacity);
    if (!rc)
        rc = read_models(root, path, out, err);
    if (!rc && (rc = weft_schedule_problem_check(out, err)))
        weft_err_prefix(err, "%s", path);
    return rc;
}

/* Takes the reference. */
static int read_problem(json_t *root, const char *path,
                        struct weft_schedule_problem *out,
                        struct weft_err *err)
{
    struct weft_schedule_problem problem = {0};
    int rc = read_root(root, path, &problem, err);
    json_decref(root);
    if (rc)
        weft_schedule_problem_release(&problem);
    else
        *out = problem;
    return rc;
}

int weft_schedule_problem_read(const char *path,
                               struct weft_schedule_problem *out,
                               struct weft_err *err)
{
    json_t *root = NULL;
    int rc = weft_json_read(path, MAX_BYTES, &root, err);
    return rc ? rc : read_problem(root, path, out, err);
}

int weft_schedule_problem_parse(const char *text, size_t n, const char *name,
                                struct weft_schedule_problem *out,
                                struct weft_err *err)
{
    json_t *root = NULL;
    int rc = weft_json_parse(text, n, name, &root, err);
    return rc ? rc : read_problem(root, name, out, err);
}
