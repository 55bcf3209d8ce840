/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/simulate.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/svg.h"
#include "job/plan_needs.h"
#include "plan/engine/played.h"
#include "run/predict/limit.h"
#include "run/predict/simulate_run.h"
#include "run/predict/simulation.h"

/* ---- What tasks take ---------------------------------------------------- */

static double seconds(void *ctx, const struct weft_recording *r, int64_t task,
                      int32_t device)
{
    struct weft_simulation *s = ctx;
    return weft_costs_task(s->costs, r, task, device);
}

static void message(void *ctx, const struct weft_recording *r, int64_t task,
                    struct weft_engine_message *out)
{
    struct weft_simulation *s = ctx;
    out->n_links = weft_costs_message(s->costs, r, task, out->link,
                                      &out->latency_s, &out->bytes);
    out->core_s = weft_costs_message_core(s->costs, r, task);
}

static double insert(void *ctx, const struct weft_recording *r, int64_t task)
{
    struct weft_simulation *s = ctx;
    return weft_costs_insert(s->costs, r, task);
}

_Static_assert((int) WEFT_COSTS_PATH == (int) WEFT_ENGINE_PATH,
               "a message's links");

int weft_simulate_costs(const struct weft_simulate_options *options,
                        const struct weft_g_job *job, struct weft_costs **out,
                        struct weft_err *err)
{
    const struct weft_cluster *cluster = options->cluster;
    return weft_costs_create(
        &(struct weft_costs_job){.cluster = cluster,
                                 .file = options->costs,
                                 .n_ranks = job->n_ranks,
                                 .n_devices = job->n_devices,
                                 .fits = true,
                                 .n_gpus = job->n_gpus,
                                 .place_per_device = job->place_per_device},
        out, err);
}

const struct weft_node_kind *weft_simulation_node(
    const struct weft_simulation *s, int32_t device)
{
    const struct weft_g_job *job = &s->t->job;
    const struct weft_cluster *cluster = s->options->cluster;
    int32_t each = job->n_gpus > 0 ? job->n_gpus : job->n_devices, first;
    int32_t node = weft_cluster_rank(cluster, job->n_ranks, each,
                                     device / job->n_devices, &first);
    return weft_cluster_node(cluster, node);
}

static int make_job(struct weft_simulation *s, struct weft_err *err)
{
    const struct weft_g_job *job = &s->t->job;
    int32_t n = job->n_ranks * job->n_devices;
    size_t places = (size_t) weft_g_job_n_places(job);
    int rc = weft_simulate_costs(s->options, job, &s->costs, err);
    if (rc)
        return rc;
    s->place_of = weft_alloc((size_t) n, sizeof *s->place_of);
    s->place_bytes = weft_alloc(places, sizeof *s->place_bytes);
    if (!s->place_of || !s->place_bytes)
        return weft_err_nomem(err, "a simulated job", (size_t) n * 4);
    for (int32_t d = 0; d < n; d++) {
        s->place_of[d] = weft_g_job_place_of(job, d);
        s->place_bytes[s->place_of[d]] +=
            weft_simulation_node(s, d)->memory_bytes;
    }
    s->job = (struct weft_engine_job){
        .n_devices = n,
        .n_places = weft_g_job_n_places(job),
        .places_per_rank = weft_g_job_places_per_rank(job),
        .place_of = s->place_of,
        .memory = true,
        .crowded = s->options->crowded,
        .ctx = s,
        .seconds = seconds,
        .message = message};
    if (weft_costs_inserts(s->costs))
        s->job.insert = insert;
    s->job.bytes_per_s = weft_costs_links(s->costs, &s->job.n_links);
    return 0;
}

/* Names what of the recording the costs do not have. */
static int check_measured(const struct weft_simulation *s,
                          struct weft_err *err)
{
    const struct weft_recording *r = &s->r;
    int64_t first = -1, n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        if (!weft_costs_is_measured(s->costs, r, i)) {
            first = first < 0 ? i : first;
            n++;
        }
    if (first < 0)
        return 0;
    if (r->task[first].kind == WEFT_REC_MESSAGE)
        return weft_err_set(
            err, WEFT_EINVAL,
            "the costs do not say what messages between ranks "
            "take: measure them with weft profile --messages, "
            "or give a cluster, too");
    return weft_err_set(err, WEFT_EINVAL,
                        "the costs do not say what '%s' takes (%lld of %lld "
                        "tasks are like that): measure it with weft profile "
                        "on this configuration, or give a cluster, too",
                        weft_recording_op(r, first), (long long) n,
                        (long long) r->n_tasks);
}

/* ---- Recording and playing ---------------------------------------------- */

/* Samples are kept of some responses; where a run noted decisions it noted the
 * lengths of all. each: of an iteration. */
static int read_all_lengths(struct weft_simulation *s, size_t each,
                            struct weft_err *err)
{
    char *path = weft_path_join(s->options->run_dir, WEFT_TAIL_FILE);
    int rc = path ? 0 : weft_err_nomem(err, "a path", each);
    if (!rc && weft_file_exists(path)) {
        rc = weft_tail_lengths(s->t, path, s->how.first, s->how.iterations,
                               each, s->length, err);
        s->n_known = s->n_responses;
    }
    weft_free(path);
    return rc;
}

/* Of one iteration; the run has samples of it. */
static int read_some_lengths(struct weft_simulation *s, int32_t iteration,
                             size_t n, int32_t *length, struct weft_err *err)
{
    int32_t known;
    int rc = weft_simulate_lengths(s->options->run_dir, iteration, n, length,
                                   &known, err);
    if (!rc)
        s->n_known = weft_min32(s->n_known, known);
    return rc;
}

/* Responses are as long as they were in the run, or else as the options give
 * or draw them. None is replaced, as that depends on scores. */
static int give_lengths(struct weft_simulation *s, struct weft_err *err)
{
    const struct weft_trainer *t = s->t;
    size_t n = (size_t) weft_run_samples_all(&t->config, &t->flow);
    size_t rounds = (size_t) t->settings.refills + 1;
    size_t all = n * rounds * (size_t) s->how.iterations;
    int rc = 0;
    s->length = weft_alloc(all + 1, sizeof *s->length);
    if (!s->length)
        return weft_err_nomem(err, "lengths", all * sizeof *s->length);
    s->n_known = s->n_responses = (int32_t) n;
    for (int32_t i = 0; i < s->how.iterations && !rc; i++) {
        int32_t *length = s->length + (size_t) i * rounds * n;
        for (size_t k = 0; k < n; k++)
            length[k] = s->options->response
                          ? s->options->response[k]
                          : weft_lengths_draw(
                              s->options->lengths, t->config.seed,
                              s->how.first + i, (int64_t) k,
                              t->config.rollout.max_new_tokens);
        if (s->options->run_dir && weft_config_generates(&t->config))
            rc = read_some_lengths(s, s->how.first + i, n, length, err);
    }
    if (!rc && s->options->run_dir)
        rc = read_all_lengths(s, rounds * n, err);
    s->how.n_total = s->length;
    s->how.responses = true;
    return rc;
}

/* The first iteration to be played: a run's last ones, or those after the
 * warmup. */
static int find_first(struct weft_simulation *s, struct weft_err *err)
{
    const char *run_dir = s->options->run_dir;
    int32_t n = s->how.iterations, finished = 0;
    s->how.first = s->t->settings.warmup;
    int rc = run_dir ? weft_simulate_finished(run_dir, &finished, err) : 0;
    if (rc || !run_dir)
        return rc;
    if (finished < s->how.first + n)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: the run has finished %d iterations; %d are "
                            "simulated after %d of warm-up",
                            run_dir, (int) finished, (int) n,
                            (int) s->how.first);
    s->how.first = finished - n;
    s->how.drawn = (int64_t) s->how.first
                 * (weft_config_generates(&s->t->config)
                        ? s->t->config.rollout.prompts
                        : weft_run_samples(&s->t->config));
    return 0;
}

/* What a run decided is decided again: the one whose decisions the
 * configuration names, or that is simulated, if it left any. */
static int find_decisions(struct weft_simulation *s, struct weft_err *err)
{
    const struct weft_config *c = &s->t->config;
    const char *dir = s->options->decided ? s->options->run_dir : NULL;
    if (!s->t->plan.inter_stage_fusion || (!c->rollout.decisions && !dir))
        return 0;
    s->decisions = c->rollout.decisions ? weft_strdup(c->rollout.decisions)
                                        : weft_path_join(dir, WEFT_TAIL_FILE);
    if (!s->decisions)
        return weft_err_nomem(err, "a path", 1);
    if (c->rollout.decisions || weft_file_exists(s->decisions))
        s->how.decisions = s->decisions;
    return 0;
}

/* Which iterations are recorded, and how long their responses are. */
static int choose(struct weft_simulation *s, struct weft_err *err)
{
    s->how = (struct weft_recorded){.rank = -1,
                                    .gangs = s->options->gangs,
                                    .joined_steps = s->options->joined_steps,
                                    .left_out = s->options->left_out,
                                    .calls = s->options->calls,
                                    .iterations = s->options->iterations};
    int rc = find_first(s, err);
    if (s->options->svg)
        s->how.seen = &s->seen;
    s->how.seen_iteration = s->how.first
                          + weft_played_shown(&(struct weft_played){
                              .n = s->how.iterations});
    if (!rc)
        rc = find_decisions(s, err);
    size_t n = (size_t) s->how.iterations;
    if (!rc && s->options->bound && weft_config_generates(&s->t->config)) {
        s->bound_s = weft_alloc(n, sizeof *s->bound_s);
        rc = s->bound_s ? 0 : weft_err_nomem(err, "bounds", n * 8);
    }
    return rc ? rc : give_lengths(s, err);
}

static int record(struct weft_simulation *s, struct weft_err *err)
{
    /* a later iteration than the run's last one would not be prepared */
    struct weft_trainer longer = *s->t;
    longer.n_iterations = s->how.first + s->how.iterations;
    s->how.bound_s = s->bound_s;
    int rc = s->how.tail || s->how.decisions
                  || !(s->t->plan.inter_stage_fusion || s->bound_s)
               ? 0
               : weft_simulate_costs(s->options, &s->t->job, &s->how.costs,
                                     err);
    s->r.most_bytes = s->options->most_bytes;
    s->r.stop = s->options->stop;
    s->r.stop_ctx = s->options->stop_ctx;
    if (!rc)
        rc = weft_run_record(&longer, &s->how, &s->r, err);
    if (!rc)
        rc = make_job(s, err);
    return rc || !s->options->measured ? rc : check_measured(s, err);
}

/* Times at which something ends between two questions whether to stop. */
enum { ASK_EVERY = 1 << 14 };

int weft_simulation_play(struct weft_simulation *s, struct weft_err *err)
{
    weft_engine_free(s->engine);
    s->engine = NULL;
    int rc = weft_engine_create(&s->job, &s->r, &s->engine, err);
    if (rc)
        return rc;
    const struct weft_simulate_options *o = s->options;
    for (int32_t i = 1; o->stop && weft_engine_advance(s->engine); i++)
        if (i % ASK_EVERY == 0 && o->stop(o->stop_ctx))
            return weft_err_set(err, WEFT_EINTERRUPTED,
                                "stopped while a run was simulated");
    return weft_engine_run(s->engine, err);
}

int weft_simulation_of(const struct weft_trainer *t,
                       const struct weft_recorded *how,
                       const struct weft_simulate_options *options,
                       struct weft_simulation *s, struct weft_err *err)
{
    *s = (struct weft_simulation){.options = options, .t = t, .how = *how};
    weft_recording_init(&s->r);
    return record(s, err);
}

int weft_simulation_open(const struct weft_trainer *t,
                         const struct weft_simulate_options *options,
                         struct weft_simulation *s, struct weft_err *err)
{
    *s = (struct weft_simulation){.options = options, .t = t};
    weft_recording_init(&s->r);
    int rc = choose(s, err);
    return rc ? rc : record(s, err);
}

void weft_simulation_close(struct weft_simulation *s)
{
    weft_engine_free(s->engine);
    weft_recording_release(&s->r);
    weft_free(s->length);
    weft_free(s->bound_s);
    weft_seen_release(&s->seen);
    weft_free(s->decisions);
    weft_free(s->place_of);
    weft_free(s->place_bytes);
    weft_costs_free(s->costs);
}

/* Opens a simulation by instruction. *many: it is to be so, as tasks one by one
 * are too many or as options ask for it. What costs do not say of instructions
 * is no error yet. o: options, which the simulation borrows. */
static int open_by_instruction(const struct weft_trainer *t,
                               struct weft_simulate_options *o,
                               struct weft_simulation *s, bool *many,
                               struct weft_err *err)
{
    bool asked = o->gangs;
    o->gangs = true;
    o->measured = false;
    int rc = weft_simulation_open(t, o, s, err);
    *many = asked || weft_recording_n_expanded(&s->r) > WEFT_FEW_TASKS;
    return rc;
}

static int open_either(const struct weft_trainer *t,
                       struct weft_simulate_options *o,
                       struct weft_simulation *s, struct weft_err *err)
{
    bool measured = o->measured, many;
    int rc = open_by_instruction(t, o, s, &many, err);
    if (rc || (many && !measured))
        return rc;
    weft_simulation_close(s);
    o->gangs = many;
    o->measured = measured;
    return weft_simulation_open(t, o, s, err);
}

/* ---- What comes out ----------------------------------------------------- */

/* What devices do, and beneath how the iteration that is shown was
 * generated. */
static int draw(const struct weft_simulation *s,
                const struct weft_played *played, struct weft_err *err)
{
    struct weft_string rows = {0}, generation = {0}, both = {0};
    const struct weft_string *all = &rows;
    int rc = weft_played_svg(played, &rows, err);
    if (!rc && s->seen.g.n_chunks > 0)
        rc = weft_timeline_svg(&s->seen.g, &generation, err);
    if (!rc && generation.n > 0) {
        weft_svg_stack(rows.data, generation.data, &both);
        rc = weft_string_check(&both, "a picture", err);
        all = &both;
    }
    if (!rc)
        rc = weft_file_write(s->options->svg, all->data, all->n, err);
    weft_string_release(&rows);
    weft_string_release(&generation);
    weft_string_release(&both);
    return rc;
}

/* The class that takes most of a place's memory. */
static void set_most(const struct weft_simulation *s, int32_t place,
                     int32_t n_devices, struct weft_limit *out)
{
    const int64_t *held = weft_engine_memory(s->engine, place);
    out->mem = WEFT_MEM_WEIGHTS;
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        if (weft_engine_counts(s->engine, place, c)
            && held[c] > held[out->mem])
            out->mem = (enum weft_mem_class) c;
    out->mem_bytes = (double) held[out->mem] / n_devices;
}

/* Of each place, what its devices have of it. */
static void sum_up(const struct weft_simulation *s,
                   const struct weft_played *played,
                   struct weft_simulated *out)
{
    int32_t n = s->job.n_devices, shown = weft_played_shown(played);
    double has = 0, stays = 0;
    *out = (struct weft_simulated){
        .iteration_s = played->steady_s,
        .gen_infer_s = played->bound_s > 0 ? weft_played_gen_infer_s(played)
                                           : 0,
        .gen_infer_least_s = played->bound_s};
    for (int32_t k = 0; k < WEFT_MAX_CALLS; k++) {
        struct weft_span span = played->call[shown * WEFT_MAX_CALLS + k].span;
        out->call_s[k] = span.end_s - span.start_s;
    }
    for (int32_t d = 0; d < n;) {
        int32_t place = s->place_of[d], first = d;
        while (d < n && s->place_of[d] == place)
            d++;
        const int64_t *held = weft_engine_memory(s->engine, place);
        double memory = s->place_bytes[place] / (d - first);
        double bytes = (double) held[WEFT_MEM_ALL] / (d - first);
        has += s->place_bytes[place];
        stays += (double) (held[WEFT_MEM_GRADIENTS]
                           + held[WEFT_MEM_OPTIMIZER]);
        if (bytes > out->device_bytes)
            out->device_bytes = bytes;
        if (bytes / memory > out->fullest) {
            out->fullest = bytes / memory;
            set_most(s, place, d - first, &out->limit);
        }
    }
    out->static_share = stays / has;
    if (s->options->limit)
        weft_limit_find(s, played, &out->limit);
}

static int put_all(const struct weft_simulation *s,
                   const struct weft_played *played, struct weft_string *out,
                   struct weft_err *err)
{
    const struct weft_simulate_options *o = s->options;
    int rc = o->svg ? draw(s, played, err) : 0;
    if (!rc && o->trace)
        rc = weft_played_write_trace(played, o->trace, err);
    if (o->simulated)
        sum_up(s, played, o->simulated);
    if (!rc && out)
        rc = o->json ? weft_played_json(played, out, err)
                     : weft_played_text(played, out, err);
    if (!rc && o->run_dir)
        rc = weft_simulate_beside(s->t, played, o->run_dir, out, err);
    if (!rc && o->run_dir && s->n_known < s->n_responses)
        weft_string_addf(
            out,
            "lengths of %d of %d samples are known%s; with "
            "samples_kept=-1 a run keeps all\n",
            (int) s->n_known, (int) s->n_responses,
            s->n_known > 0 ? ", and the others taken to be as long" : "");
    return rc;
}

/* In how many slices of time memory is shown, at most. */
static int32_t n_slices(const struct weft_simulate_options *o,
                        int32_t n_devices)
{
    enum { MANY = 256, FEW = 64 };
    bool drawn = o->svg || o->trace;
    return !drawn && !o->json                     ? 0
         : drawn && n_devices <= WEFT_FEW_DEVICES ? MANY
                                                  : FEW;
}

int weft_simulation_run(const struct weft_trainer *t,
                        const struct weft_simulate_options *options,
                        struct weft_string *out, struct weft_err *err)
{
    struct weft_simulation s;
    struct weft_played played = {.n = 0};
    struct weft_simulate_options one = *options;
    int rc = open_either(t, &one, &s, err);
    s.job.moves = true;
    s.job.n_slices = n_slices(&one, s.job.n_devices);
    s.job.first_iteration = s.how.first;
    s.job.n_iterations = s.how.iterations;
    if (!rc)
        rc = weft_simulation_play(&s, err);
    if (!rc)
        rc = weft_played_create(s.engine, &s.r, &s.job, &t->flow, s.how.first,
                                s.how.iterations, &played, err);
    played.by_instruction = one.gangs;
    played.one_round = t->settings.refills > 0;
    if (!options->measured) /* else it is what this machine has free now */
        played.place_bytes = s.place_bytes;
    if (!rc && s.bound_s)
        played.bound_s = s.bound_s[weft_played_shown(&played)];
    if (!rc && s.seen.row_of)
        rc = weft_seen_play(&s.seen, &s.r, s.engine, s.how.seen_iteration,
                            err);
    if (!rc)
        rc = put_all(&s, &played, out, err);
    weft_played_release(&played);
    weft_simulation_close(&s);
    return rc;
}

int weft_run_simulate(const struct weft_config *config,
                      const struct weft_g_job *job, struct weft_plan *plan,
                      const struct weft_simulate_options *options,
                      struct weft_string *out, struct weft_err *err)
{
    struct weft_trainer *t;
    int rc = weft_trainer_describe(config, job, plan, &t, err);
    if (rc)
        return rc;
    *plan = t->plan;
    rc = weft_simulation_run(t, options, out, err);
    weft_trainer_forget(t);
    return rc;
}

int weft_simulate_by_gangs(const struct weft_config *config,
                           const struct weft_g_job *job,
                           struct weft_plan *plan,
                           const struct weft_simulate_options *options,
                           bool *out, struct weft_err *err)
{
    struct weft_simulate_options one = *options;
    struct weft_simulation s;
    struct weft_trainer *t;
    *out = options->gangs;
    int rc = *out ? 0 : weft_trainer_describe(config, job, plan, &t, err);
    if (rc || *out)
        return rc;
    one.svg = NULL;
    one.bound = false;
    rc = open_by_instruction(t, &one, &s, out, err);
    weft_simulation_close(&s);
    *plan = t->plan;
    weft_trainer_forget(t);
    return rc;
}
