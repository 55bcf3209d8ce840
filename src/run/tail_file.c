/* SPDX-License-Identifier: Apache-2.0 */
/* The record of what was decided, and lengths: decisions.jsonl. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "job/plan_needs.h"
#include "record/lines.h"
#include "run/iteration.h"
#include "run/predict/known.h"
#include "run/tail_inside.h"

static const char *const why_word[] = {
    [WEFT_TAIL_OFF] = "off",           [WEFT_TAIL_SAID] = "configuration",
    [WEFT_TAIL_NO_COSTS] = "no_costs", [WEFT_TAIL_FIRST] = "first",
    [WEFT_TAIL_CHOSEN] = "chosen",     [WEFT_TAIL_REPLAYED] = "replayed"};

/* ---- Writing ------------------------------------------------------------ */

static void add_numbers(struct weft_string *out, const char *key, int32_t n,
                        const int32_t *x)
{
    weft_string_addf(out, ", \"%s\": [", key);
    for (int32_t i = 0; i < n; i++)
        weft_string_addf(out, "%s%d", i ? ", " : "", x[i]);
    weft_string_add(out, "]");
}

/* A migration; the samples that moved in the order of their numbers. */
static void add_moved(struct weft_string *out, const struct weft_moved *moved)
{
    weft_string_addf(out, "\"left\": %d", moved->n_left);
    add_numbers(out, "stay", moved->n_stay, moved->stay);
    weft_string_add(out, ", \"moved\": [");
    for (int32_t i = 0; i < moved->n_moved; i++) {
        const struct weft_moved_sample *m = &moved->moved[i];
        weft_string_addf(out, "%s[%d, %d, %d]", i ? ", " : "", m->sample,
                         m->from, m->to);
    }
    weft_string_add(out, "]");
}

/* The first one's keys are the line's; the others are a list. */
static void add_migrated(struct weft_string *out,
                         const struct weft_migrated *migrated)
{
    for (int32_t k = 0; k < migrated->n; k++) {
        weft_string_add(out, k == 0   ? ", "
                             : k == 1 ? ", \"again\": [{"
                                      : ", {");
        add_moved(out, &migrated->of[k]);
        weft_string_add(out, k > 0 ? "}" : "");
    }
    weft_string_add(out, migrated->n > 1 ? "]" : "");
}

static void add_cached(struct weft_string *out,
                       const struct weft_migration_when *when)
{
    for (int32_t k = 0; k < when->n_cached; k++)
        weft_string_addf(out, "%s[%d, %d]", k ? ", " : ", \"cached\": [",
                         when->cached[k].first, when->cached[k].last);
    weft_string_add(out, when->n_cached > 0 ? "]" : "");
}

/* A list of each round after the first, of the migrations in it. */
static void add_refills(struct weft_string *out,
                        const struct weft_iteration *p, int32_t call)
{
    for (int32_t r = 1; r < p->n_rounds; r++) {
        const struct weft_migrated *m = weft_iteration_moved(p, r, call);
        weft_string_add(out, r == 1 ? ", \"refills\": [[" : ", [");
        for (int32_t k = 0; k < m->n; k++) {
            weft_string_add(out, k == 0 ? "{" : ", {");
            add_moved(out, &m->of[k]);
            weft_string_add(out, "}");
        }
        weft_string_add(out, "]");
    }
    weft_string_add(out, p->n_rounds > 1 ? "]" : "");
}

static void add_later(struct weft_string *out,
                      const struct weft_migration_when *when)
{
    for (int32_t k = 0; k < when->n_later; k++) {
        weft_string_add(out, k == 0 ? ", \"later\": [[" : ", [");
        weft_string_add_number(out, when->later[k].share);
        weft_string_addf(out, ", %d]", when->later[k].instances);
    }
    weft_string_add(out, when->n_later > 0 ? "]" : "");
}

static void add_pair(struct weft_string *out, double a, double b)
{
    weft_string_add(out, "[");
    weft_string_add_number(out, a);
    weft_string_add(out, ", ");
    weft_string_add_number(out, b);
    weft_string_add(out, "]");
}

/* By what clock micro-batches are dealt, where one is known. */
static void add_pace(struct weft_string *out,
                     const struct weft_dataflow *flow,
                     const struct weft_tail_pace *pace)
{
    bool first = true;
    if (!pace->known)
        return;
    weft_string_add(out, ", \"pace\": {\"step\": ");
    add_pair(out, pace->step_s, pace->sample_s);
    weft_string_add(out, ", \"token\": ");
    add_pair(out, pace->token_s, pace->read_s);
    weft_string_add(out, ", \"infer\": {");
    for (int32_t c = 0; c < flow->n_calls; c++) {
        if (pace->infer[c].batch_s <= 0 && pace->infer[c].token_s <= 0)
            continue;
        weft_string_add(out, first ? "" : ", ");
        weft_string_add_json(out, flow->call[c].name);
        weft_string_add(out, ": ");
        add_pair(out, pace->infer[c].batch_s, pace->infer[c].token_s);
        first = false;
    }
    weft_string_add(out, "}}");
}

static int add_line(const struct weft_iteration_set *set,
                    struct weft_string *out)
{
    const struct weft_iteration *p = set->p;
    const struct weft_trainer *t = p->t;
    const struct weft_tail_choice *choice = &p->tail[set->call];
    int32_t *length = weft_alloc(2 * (size_t) set->n, sizeof *length);
    if (!length)
        return WEFT_ENOMEM;
    for (int32_t k = 0; k < set->n; k++) {
        const struct weft_sample *s = &p->sample[set->first + k];
        length[k] = s->n_prompt;
        length[set->n + k] = s->n_total - s->n_prompt;
    }
    weft_string_addf(out, "{\"iteration\": %d, \"call\": ", p->iteration + 1);
    weft_string_add_json(out, t->flow.call[set->call].name);
    weft_string_addf(
        out, ", \"why\": \"%s\", \"remaining\": ", why_word[choice->why]);
    weft_string_add_number(out, choice->when.share);
    weft_string_addf(out, ", \"instances\": %d, \"most_batch\": %d",
                     choice->when.instances, choice->when.most_batch);
    add_later(out, &choice->when);
    add_cached(out, &choice->when);
    add_pace(out, &t->flow, &choice->pace);
    if (choice->why == WEFT_TAIL_CHOSEN) {
        weft_string_add(out, ", \"predicted_s\": ");
        weft_string_add_number(out, choice->seconds);
        weft_string_add(out, ", \"unmoved_s\": ");
        weft_string_add_number(out, choice->unmoved_s);
    }
    if (set == p->set && p->order.n <= INT32_MAX)
        add_numbers(out, "order", (int32_t) p->order.n, p->order.instance);
    add_migrated(out, weft_iteration_moved(p, 0, set->call));
    add_refills(out, p, set->call);
    add_numbers(out, "prompts", set->n, length);
    add_numbers(out, "responses", set->n, length + set->n);
    weft_string_add(out, "}\n");
    weft_free(length);
    return 0;
}

int weft_tail_write(const struct weft_iteration *p, struct weft_err *err)
{
    struct weft_line_file *file = p->t->tail ? &p->t->tail->file : NULL;
    int rc = 0;
    for (int32_t k = 0; file && file->fd >= 0 && k < p->n_sets && !rc; k++) {
        struct weft_string line = {0};
        if (p->t->flow.call[p->set[k].call].kind == WEFT_GENERATE)
            line.failed = add_line(&p->set[k], &line) != 0 || line.failed;
        rc = weft_string_check(&line, WEFT_TAIL_FILE, err);
        if (!rc && line.n > 0)
            rc = weft_line_file_add(file, &line, err);
        weft_string_release(&line);
    }
    return rc;
}

/* ---- Reading ------------------------------------------------------------ */

/* Of the call's line: where the set of its samples begins, and how many; 0: it
 * is no call that generates. */
static int32_t find_set(const struct weft_trainer *t, const char *name,
                        int32_t *call_out, int32_t *first_out)
{
    int32_t first = 0;
    for (int32_t f = 0; f < t->flow.n_fields; f++) {
        if (weft_flow_origin(&t->flow, f) != f)
            continue;
        int32_t n = weft_run_samples_at(&t->config, &t->flow, f);
        int32_t call = weft_flow_writer(&t->flow, f);
        if (strcmp(t->flow.call[call].name, name) == 0) {
            *call_out = call;
            *first_out = first;
            return t->flow.call[call].kind == WEFT_GENERATE ? n : 0;
        }
        first += n;
    }
    return 0;
}

static int read_numbers(const json_t *o, const char *name, const char *key,
                        int32_t n, int32_t *out, struct weft_err *err)
{
    json_t *list, *value;
    size_t i;
    int rc = weft_json_array(o, name, key, &list, err);
    if (!rc && json_array_size(list) != (size_t) n)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: '%s' has %zu numbers, and the run %d samples",
                          name, key, json_array_size(list), n);
    for (i = 0; i < (size_t) n && !rc; i++) {
        value = json_array_get(list, i);
        json_int_t x = json_is_integer(value) ? json_integer_value(value) : 0;
        if (x < 1 || x > INT32_MAX)
            rc = weft_err_set(err, WEFT_EFORMAT,
                              "%s: '%s' must be numbers of tokens", name,
                              key);
        else
            out[i] = (int32_t) x;
    }
    return rc;
}

/* What a line says of a call of this run. */
struct said {
    int32_t n, call, first; /* the set; n 0: it is of no such call */
    json_t *o;
    const char *name;
    int64_t iteration;
};

/* Reads all lines of a file, in order. */
static int for_each_line(const struct weft_trainer *t, const char *path,
                         int (*fn)(const struct weft_trainer *t,
                                   const struct said *said, void *ctx,
                                   struct weft_err *err),
                         void *ctx, struct weft_err *err)
{
    char *text;
    size_t n;
    struct weft_line line;
    int rc = weft_file_read(path, 0, &text, &n, err);
    if (rc)
        return rc;
    struct weft_lines lines = {path, text, text + n, 0, false};
    while (!(rc = weft_lines_next(&lines, &line, err)) && line.o) {
        char name[4200];
        const char *call;
        snprintf(name, sizeof name, "%s:%d", path, lines.number);
        struct said said = {
            .o = line.o, .name = name, .iteration = line.iteration};
        rc = weft_json_string(line.o, name, "call", &call, err);
        if (!rc)
            said.n = find_set(t, call, &said.call, &said.first);
        if (!rc && said.n > 0)
            rc = fn(t, &said, ctx, err);
        json_decref(line.o);
        if (rc)
            break;
    }
    weft_free(text);
    return rc;
}

/* A line's lengths; those of an iteration's first call make room for the
 * others'. */
static int take_lengths(const struct weft_trainer *t, const struct said *said,
                        void *ctx, struct weft_err *err)
{
    struct weft_tail *tail = ctx;
    (void) t;
    size_t at = (size_t) said->first;
    int32_t *prompt, *response;
    if (said->iteration > tail->read || tail->n_past == 0)
        weft_tail_add(tail, &prompt, &response);
    tail->read = said->iteration;
    at += (size_t) (tail->n_past - 1) * (size_t) tail->n_samples;
    int rc = read_numbers(said->o, said->name, "prompts", said->n,
                          tail->prompt + at, err);
    return rc ? rc
              : read_numbers(said->o, said->name, "responses", said->n,
                             tail->response + at, err);
}

/* Of all calls that generate. */
static int32_t count_instances(const struct weft_trainer *t)
{
    int32_t sum = 0;
    for (int32_t c = 1; c < t->flow.n_calls; c++)
        if (t->flow.call[c].kind == WEFT_GENERATE)
            sum += weft_g_generate_instances(
                &t->layout[c],
                weft_run_samples_at(&t->config, &t->flow,
                                    weft_flow_origin_of_call(&t->flow, c)));
    return sum;
}

/* The order is of all calls, and stands with the first. */
static int read_order(const struct weft_trainer *t, const struct said *said,
                      struct weft_rollout_order *out, struct weft_err *err)
{
    int32_t n_instances = count_instances(t);
    json_t *list, *value;
    size_t i;
    int rc = weft_json_array_or(said->o, said->name, "order", &list, err);
    if (rc || !list)
        return rc;
    json_array_foreach(list, i, value)
    {
        json_int_t x = json_is_integer(value) ? json_integer_value(value)
                                              : -1;
        if (x < 0 || x > INT32_MAX)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: 'order' must be numbers of instances",
                                said->name);
        if (x >= n_instances)
            return weft_err_set(err, WEFT_EINVAL,
                                "%s: 'order' has instance %d, and this run "
                                "has %d: decisions are repeated on the "
                                "layout that they were made on",
                                said->name, (int) x, n_instances);
        rc = weft_rollout_order_add(out, (int32_t) x, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Migrations after the first: pairs of a share and instances. */
static int read_later(const struct said *said,
                      struct weft_migration_when *when, struct weft_err *err)
{
    double before = when->share;
    json_t *list, *pair;
    size_t i;
    int rc = weft_json_array_or(said->o, said->name, "later", &list, err);
    if (rc || !list)
        return rc;
    json_array_foreach(list, i, pair)
    {
        const json_t *instances = json_array_get(pair, 1);
        double share = json_number_value(json_array_get(pair, 0));
        json_int_t n = json_integer_value(instances);
        if (i == WEFT_MIGRATE_LATER || json_array_size(pair) != 2
            || share <= 0 || share >= before || !json_is_integer(instances)
            || n < 0 || n > INT32_MAX)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: 'later' must be at most %d pairs of a "
                                "share of the samples, less than that before "
                                "it, and a number of instances",
                                said->name, WEFT_MIGRATE_LATER);
        when->later[when->n_later++] = (struct weft_migrate_later){
            share, (int32_t) n};
        before = share;
    }
    return 0;
}

/* Pairs of tokens, the first and the last of those of which samples move with
 * their KV caches. */
static int read_cached(const struct said *said,
                       struct weft_migration_when *when, struct weft_err *err)
{
    json_int_t before = 0;
    json_t *list, *pair;
    size_t i;
    int rc = weft_json_array_or(said->o, said->name, "cached", &list, err);
    if (rc || !list)
        return rc;
    json_array_foreach(list, i, pair)
    {
        json_int_t first = json_integer_value(json_array_get(pair, 0));
        json_int_t last = json_integer_value(json_array_get(pair, 1));
        if (i == WEFT_MIGRATE_RANGES || json_array_size(pair) != 2
            || first <= before || last < first || last > INT32_MAX)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: 'cached' must be at most %d pairs of "
                                "tokens, the first and the last of a range, "
                                "in ascending order",
                                said->name, WEFT_MIGRATE_RANGES);
        when->cached[when->n_cached++] = (struct weft_migrate_range){
            (int32_t) first, (int32_t) last};
        before = last;
    }
    return 0;
}

static int refuse_pace(const struct said *said, struct weft_err *err)
{
    return weft_err_set(err, WEFT_EFORMAT,
                        "%s: 'pace' must have pairs of seconds: 'step', "
                        "'token', and in 'infer' one for each call",
                        said->name);
}

static int read_pair(const struct said *said, const json_t *pair, double *a,
                     double *b, struct weft_err *err)
{
    const json_t *x = json_array_get(pair, 0), *y = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_number(x) || !json_is_number(y)
        || json_number_value(x) < 0 || json_number_value(y) < 0)
        return refuse_pace(said, err);
    *a = json_number_value(x);
    *b = json_number_value(y);
    return 0;
}

static int read_infer(const struct weft_trainer *t, const struct said *said,
                      json_t *infer, struct weft_tail_pace *out,
                      struct weft_err *err)
{
    const char *name;
    json_t *pair;
    int rc = json_is_object(infer) ? 0 : refuse_pace(said, err);
    if (rc)
        return rc;
    json_object_foreach(infer, name, pair)
    {
        int32_t c = weft_flow_find_call(&t->flow, name);
        if (c < 0 || t->flow.call[c].kind != WEFT_INFER)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: 'pace' has '%s' in 'infer', which is no "
                                "call of this run that infers",
                                said->name, name);
        rc = read_pair(said, pair, &out->infer[c].batch_s,
                       &out->infer[c].token_s, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_pace(const struct weft_trainer *t, const struct said *said,
                     struct weft_tail_pace *out, struct weft_err *err)
{
    json_t *o;
    int rc = weft_json_object_or(said->o, said->name, "pace", &o, err);
    if (rc || !o)
        return rc;
    out->known = true;
    rc = read_pair(said, json_object_get(o, "step"), &out->step_s,
                   &out->sample_s, err);
    if (!rc)
        rc = read_pair(said, json_object_get(o, "token"), &out->token_s,
                       &out->read_s, err);
    return rc ? rc
              : read_infer(t, said, json_object_get(o, "infer"), out, err);
}

static int take_decision(const struct weft_trainer *t,
                         const struct said *said, void *ctx,
                         struct weft_err *err)
{
    struct weft_tail *tail = ctx;
    struct weft_tail_decided *more = weft_realloc(
        tail->decided, (size_t) tail->n_decided + 1, sizeof *more);
    int64_t instances = 0, most = 0;
    double share = 0;
    if (!more)
        return weft_err_nomem(err, said->name, sizeof *more);
    tail->decided = more;
    int rc = weft_json_double(said->o, said->name, "remaining", &share, err);
    if (!rc && (share < 0 || share > 0.95))
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: 'remaining' must be 0 to 0.95", said->name);
    if (!rc)
        rc = weft_json_int(said->o, said->name, "instances", 0, INT32_MAX,
                           &instances, err);
    if (!rc)
        rc = weft_json_int(said->o, said->name, "most_batch", 0, INT32_MAX,
                           &most, err);
    if (rc)
        return rc;
    struct weft_tail_decided *d = &more[tail->n_decided++];
    *d = (struct weft_tail_decided){.iteration = (int32_t) said->iteration
                                               - 1,
                                    .call = said->call,
                                    .when = {.share = share,
                                             .instances = (int32_t) instances,
                                             .most_batch = (int32_t) most}};
    rc = read_later(said, &d->when, err);
    if (!rc)
        rc = read_cached(said, &d->when, err);
    if (!rc)
        rc = read_pace(t, said, &d->pace, err);
    return rc ? rc : read_order(t, said, &d->order, err);
}

/* Where lengths of responses are wanted, of iterations from `first` on. */
struct wanted {
    int32_t first, n;
    size_t stride;
    int32_t *length;
};

static int want_lengths(const struct weft_trainer *t, const struct said *said,
                        void *ctx, struct weft_err *err)
{
    struct wanted *w = ctx;
    int64_t at = said->iteration - 1 - w->first;
    int32_t most = t->config.rollout.max_new_tokens;
    if (at < 0 || at >= w->n)
        return 0;
    int32_t *length = w->length + (size_t) at * w->stride + said->first;
    int rc = read_numbers(said->o, said->name, "responses", said->n, length,
                          err);
    /* longer ones than the configuration allows now end at its limit */
    for (int32_t i = 0; i < said->n && !rc; i++)
        length[i] = weft_min32(length[i], most);
    return rc;
}

int weft_tail_lengths(const struct weft_trainer *t, const char *path,
                      int32_t first, int32_t n, size_t stride,
                      int32_t *length_inout, struct weft_err *err)
{
    struct wanted w = {first, n, stride, length_inout};
    return for_each_line(t, path, want_lengths, &w, err);
}

/* ---- Opening ------------------------------------------------------------ */

static bool is_chosen(const struct weft_config *c)
{
    return c->rollout.remaining <= 0 && c->rollout.instances <= 0
        && !c->rollout.decisions;
}

/* Those that are to be made again. */
static int read_decisions(struct weft_trainer *t, const char *path,
                          struct weft_err *err)
{
    int rc = for_each_line(t, path, take_decision, t->tail, err);
    t->tail->decisions = path;
    if (!rc && t->tail->n_decided == 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s: no decision of a call of this run", path);
    return rc;
}

static int read_all(struct weft_trainer *t, struct weft_err *err)
{
    const char *decisions = t->config.rollout.decisions;
    int rc = weft_line_file_open(t->config.run_dir, WEFT_TAIL_FILE,
                                 t->iteration, &t->tail->file, err);
    if (!rc)
        rc = for_each_line(t, t->tail->file.path, take_lengths, t->tail, err);
    return !rc && decisions ? read_decisions(t, decisions, err) : rc;
}

int weft_tail_replay(struct weft_trainer *t, const char *decisions,
                     struct weft_err *err)
{
    int rc = weft_tail_create(
        NULL, weft_run_samples_all(&t->config, &t->flow), &t->tail, err);
    return rc ? rc : read_decisions(t, decisions, err);
}

int weft_tail_open(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_costs *costs = NULL;
    int rc = 0;
    bool can = t->plan.inter_stage_fusion || t->config.plan_again.every > 0;
    if (!can || !weft_config_generates(&t->config))
        return 0;
    if (t->known) {
        const struct weft_simulate_options o = weft_known_options(t->known,
                                                                  &t->job);
        rc = weft_simulate_costs(&o, &t->job, &costs, err);
    } else if (t->plan.inter_stage_fusion && is_chosen(&t->config)) {
        weft_warn(
            "rollout.inter_stage_fusion: no samples move without costs "
            "(keys 'costs', of 'weft profile', and 'cluster'), or where "
            "it is said when: {remaining: 20%%, instances: 2}");
    }
    if (!rc)
        rc = weft_tail_create(
            costs, weft_run_samples_all(&t->config, &t->flow), &t->tail, err);
    else
        weft_costs_free(costs);
    return rc ? rc : read_all(t, err);
}
