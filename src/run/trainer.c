/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a run from its configuration, runs its iterations, closes it. */
#include "run/ahead.h"
#include "run/tail.h"
#include "run/trainer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/fxt.h"
#include "lm/context.h"
#include "lm/store.h"
#include "job/gpus.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "run/checkpoint.h"
#include "run/common.h"
#include "run/gpu_products.h"
#include "run/predict/again.h"
#include "run/predict/auto.h"
#include "run/predict/known.h"
#include "run/predict/memory.h"
#include "run/prompts.h"
#include "run/reward_text.h"
#include "run/run_dir.h"
#include "run/scorer.h"

/* ---- For iterations ---------------------------------------------------- */

/* Of tasks that bring weights back: whatever else is ready comes first. */
static struct weft_where restoring(const struct weft_run_model *m,
                                   int32_t iteration)
{
    return (struct weft_where){.device = -1,
                               .priority = WEFT_PRIORITY_RESTORE,
                               .call = m->home,
                               .iteration = iteration,
                               .micro_batch = -1,
                               .layer = -1};
}

int weft_trainer_model_begin(struct weft_trainer *t, struct weft_run_model *m,
                             int32_t iteration, struct weft_err *err)
{
    const struct weft_where where = restoring(m, iteration);
    if (!m->offload)
        return 0;
    int rc = weft_g_restore(t->seq, &where, &m->host, &t->model[0].tiles,
                            &m->tiles, err);
    m->tiles.order = &t->order_of_tasks;
    return rc;
}

void weft_trainer_model_end(struct weft_trainer *t, struct weft_run_model *m,
                            int32_t iteration)
{
    const struct weft_where where = restoring(m, iteration);
    if (m->offload)
        weft_g_give_back(t->seq, &where, &m->tiles);
}

void weft_trainer_fetch(struct weft_trainer *t, struct weft_tile **tile)
{
    const struct weft_where where = {.device = -1,
                                     .iteration = t->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    if (!*tile || weft_tile_place(*tile) == 0)
        return;
    struct weft_tile *copy = weft_g_copy_to(
        t->seq, &where, t->rt, *tile, WEFT_MEM_SAMPLES, "statistics", 0);
    weft_tile_release(*tile);
    *tile = copy;
}

/* ---- Opening ---------------------------------------------------------- */

/* Calls visit for every model of the run, in the order of roles. */
typedef int (*model_fn)(struct weft_trainer *t, struct weft_run_model *m,
                        struct weft_err *err);

static int for_each_model(struct weft_trainer *t, model_fn visit,
                          struct weft_err *err)
{
    int rc = 0;
    for (int32_t r = 0; r < t->flow.n_roles && !rc; r++) {
        t->model[r].role = r;
        rc = visit(t, &t->model[r], err);
    }
    return rc;
}

static int read_arch(struct weft_trainer *t, struct weft_run_model *m,
                     struct weft_err *err)
{
    return weft_run_arch(&t->config, &t->flow, m->role,
                         &t->model[0].arch.shape, &m->arch, err);
}

static int load_weights(struct weft_trainer *t, struct weft_run_model *m,
                        struct weft_err *err)
{
    int rc = weft_store_load(m->folder, NULL, &m->arch,
                             weft_trainer_weights(m), err);
    if (rc)
        weft_err_prefix(err, "%s", t->flow.role[m->role].name);
    return rc;
}

static int load_frozen(struct weft_trainer *t, struct weft_run_model *m,
                       struct weft_err *err)
{
    return t->flow.role[m->role].trained ? 0 : load_weights(t, m, err);
}

static int check_positions(const struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int32_t limit = t->model[0].arch.shape.max_positions;
    int32_t longest = t->max_prompt
                    + (weft_config_generates(c) ? c->rollout.max_new_tokens
                                                : 0);
    if (longest > limit)
        return weft_err_set(err, WEFT_EINVAL,
                            "texts of up to %d tokens exceed the %s's %d "
                            "positions (max_position_embeddings); lower "
                            "data.max_prompt_tokens or "
                            "rollout.max_new_tokens",
                            longest, t->flow.role[0].name, limit);
    return 0;
}

static int start_runtime(struct weft_trainer *t, const char *fxt_dir,
                         struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    /* A run that is done already keeps the trace it has. All ranks trace, or
     * none: StarPU-MPI has those that do wait for one another. */
    bool traces = weft_world_min(c->trace && !weft_fxt_needed()
                                 && !weft_trainer_done(t))
               != 0;
    int32_t n_gpus, first_gpu;
    int rc = weft_world_agree(weft_run_gpus(c, &n_gpus, &first_gpu, err),
                              err);
    if (rc)
        return rc;
    if (weft_world_rank() == 0)
        weft_gpus_tell_unused(c);
    bool on_gpus = c->runtime.devices == WEFT_ON_GPUS;
    struct weft_context_options options = {
        .isa = c->numerics.isa,
        .rt = {.n_devices = on_gpus ? c->runtime.cpu_devices
                                    : c->runtime.devices,
               .n_gpus = n_gpus,
               .first_gpu = first_gpu,
               .ranks_per_gpu = c->runtime.ranks_per_gpu,
               .gpu_memory_bytes = (size_t) (c->runtime.gpu_memory_gib
                                             * 1073741824.0),
               .direct_messages = c->runtime.gpu_messages == WEFT_BY_MPI,
               .place_per_device = c->runtime.place == WEFT_PLACE_DEVICE,
               .nap = c->runtime.nap,
               .profile = true,
               .fxt_dir = traces ? fxt_dir : NULL,
               .watchdog_s = c->runtime.watchdog_s,
               .recording = t->log,
               .memory_limit_bytes = (size_t) (c->runtime.memory_limit_gib
                                               * 1073741824.0)}};
    rc = weft_context_open_with(&options, &t->context, err);
    if (rc)
        return rc;
    t->rt = t->context->rt;
    const char *name[WEFT_MAX_CALLS];
    for (int32_t i = 0; i < t->flow.n_calls; i++)
        name[i] = t->flow.call[i].name;
    weft_rt_name_calls(t->rt, t->flow.n_calls, name);
    return weft_seq_create(t->rt, &t->seq, err);
}

/* Makes the plan unless there is one, and the layout of every call on the
 * job's devices. */
static int make_plan(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_run_needs needs;
    int rc = weft_run_needs_read(&t->config, t->job.n_ranks, t->job.n_devices,
                                 t->job.n_gpus, &needs, err);
    if (t->rt && weft_config_plans(&t->config)) {
        rc = weft_world_agree(rc, err);
        if (!rc)
            rc = weft_auto_plan(t, &needs.plan, &t->plan, err);
    } else if (!rc && t->plan.n_nodes == 0)
        rc = weft_run_plan(&t->config, &needs.plan, &t->plan, err);
    char why[400];
    bool tells = !rc && t->rt && weft_world_rank() == 0;
    if (tells && weft_plan_idle(&t->plan, &needs.plan, why, sizeof why))
        weft_warn("%s", why);
    if (tells)
        weft_trainer_tell_order(t);
    return rc ? rc : weft_trainer_lay_out(t, err);
}

/* Reads architectures, tokenizer and prompts. */
static int read_data(struct weft_trainer *t, struct weft_err *err)
{
    weft_settings_of(&t->config, &t->settings);
    int rc = weft_run_flow(&t->config, &t->flow, err);
    if (!rc)
        rc = for_each_model(t, read_arch, err);
    if (!rc && t->config.rollout.lengths)
        rc = weft_lengths_read(t->config.rollout.lengths, &t->lengths, err);
    if (!rc && t->config.data.prompt_tokens == 0)
        rc = weft_tokenizer_open(t->config.role[0].folder, &t->tokenizer,
                                 err);
    if (!rc)
        rc = weft_prompts_load(t, err);
    if (!rc)
        rc = weft_prompts_iterations(t, &t->n_iterations, err);
    if (!rc)
        rc = weft_reward_text_open(t, err);
    return rc ? rc : check_positions(t, err);
}

/* Reads what needs no runtime, and checks that all ranks have read the
 * same. */
static int read_inputs(struct weft_trainer *t, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    int rc = read_data(t, err);
    if (!rc && weft_config_generates(c))
        rc = weft_rewards_open(c->reward, c->n_rewards, &t->rewards, err);
    rc = weft_world_agree(rc, err);
    if (!rc && weft_world_size() > 1)
        rc = weft_world_agree(weft_run_common(t, err), err);
    return rc;
}

static int create_all(struct weft_trainer *t, struct weft_err *err)
{
    char trace[4096];
    snprintf(trace, sizeof trace, "%s/trace", t->config.run_dir);
    int rc = weft_world_rank() == 0
               ? weft_known_open(&t->config, &t->known, err)
               : 0;
    rc = weft_world_agree(rc, err);
    if (rc)
        return rc;
    rc = start_runtime(t, trace, err);
    if (rc)
        return rc; /* the same on all ranks */
    t->job = weft_g_job_of(t->rt);
    rc = make_plan(t, err);
    if (!rc)
        rc = weft_memory_predict(t, err);
    if (!rc)
        rc = weft_memory_check(t, err);
    if (!rc)
        rc = weft_run_choose_products(t, err);
    if (!rc)
        rc = weft_trainer_create_tiles(t, err);
    return weft_world_agree(rc, err);
}

/* Checks that the files that were read during loading are the same on all
 * ranks, and the same as when the run began. */
static int check_inputs(struct weft_trainer *t, struct weft_err *err)
{
    int rc = weft_world_agree(weft_inputs_finish(t->inputs, err), err);
    if (!rc)
        rc = weft_world_agree(weft_inputs_common(t->inputs, err), err);
    if (!rc && t->resumed)
        rc = weft_inputs_compare(t->inputs, t->resumed,
                                 t->config.resume.accept_changed_inputs, err);
    return weft_world_agree(rc, err);
}

static int load_all(struct weft_trainer *t, const char *checkpoint,
                    struct weft_err *err)
{
    int rc = 0;
    bool first = weft_world_rank() == 0;
    if (checkpoint && first)
        rc = weft_run_dir_lock(t, err); /* so that none removes it */
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = for_each_model(t, checkpoint ? load_frozen : load_weights, err);
    if (!rc && checkpoint)
        rc = weft_checkpoint_read(t, checkpoint, err);
    rc = weft_world_agree(rc, err);
    t->began = t->iteration;
    if (!rc)
        rc = check_inputs(t, err);
    if (!rc && first && !checkpoint)
        /* a new run leaves nothing when it is refused */
        rc = weft_run_dir_lock(t, err);
    if (!rc)
        rc = weft_metrics_create(&t->metrics, err);
    if (!rc && first)
        rc = weft_run_dir_begin(t, err);
    if (!rc && first)
        rc = weft_tail_open(t, err);
    return weft_world_agree(rc, err);
}

static int open_all(struct weft_trainer *t, struct weft_err *err)
{
    char *checkpoint = NULL;
    int rc = read_inputs(t, err);
    if (!rc)
        rc = weft_run_dir_open(t, &checkpoint, err);
    if (!rc)
        rc = weft_inputs_start(&t->config, checkpoint != NULL, &t->inputs,
                               err);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = create_all(t, err);
    if (!rc)
        rc = load_all(t, checkpoint, err);
    weft_free(checkpoint);
    return rc;
}

int weft_trainer_describe(const struct weft_config *config,
                          const struct weft_g_job *job,
                          const struct weft_plan *plan,
                          struct weft_trainer **out, struct weft_err *err)
{
    struct weft_trainer *t = weft_alloc(1, sizeof *t);
    if (!t)
        return weft_err_nomem(err, "a run", sizeof *t);
    t->config = *config;
    t->plan = *plan;
    t->job = *job;
    int rc = read_data(t, err);
    if (!rc)
        rc = make_plan(t, err);
    if (!rc)
        *out = t;
    else
        weft_trainer_forget(t);
    return rc;
}

void weft_trainer_forget(struct weft_trainer *t)
{
    if (!t)
        return;
    t->config = (struct weft_config){0}; /* still its owner's */
    t->plan = (struct weft_plan){0};
    weft_trainer_close(t);
}

int weft_trainer_predict(const struct weft_config *config,
                         const struct weft_g_job *job, bool *gangs,
                         int64_t most_bytes, struct weft_plan *plan,
                         struct weft_err *err)
{
    struct weft_trainer *t;
    int rc = weft_trainer_describe(config, job, plan, &t, err);
    if (rc)
        return rc;
    t->gangs = *gangs;
    if (!t->gangs)
        t->most_recorded_bytes = most_bytes ? most_bytes : WEFT_PREDICT_BYTES;
    rc = weft_memory_predict(t, err);
    if (rc == WEFT_ENOMEM && !t->gangs) {
        t->gangs = *gangs = true;
        t->most_recorded_bytes = 0;
        rc = weft_memory_predict(t, err);
    }
    *plan = t->plan;
    weft_trainer_forget(t);
    return rc;
}

int weft_trainer_open_with(const char *config, int n_override,
                           const char *const *override,
                           const struct weft_trainer_opening *opening,
                           struct weft_trainer **out, struct weft_err *err)
{
    struct weft_trainer *t = weft_alloc(1, sizeof *t);
    if (!t)
        return weft_err_nomem(err, "a run", sizeof *t);
    t->order_epoch = -1;
    t->opening = opening;
    t->log = opening->log;
    int rc = weft_run_config_read(config, n_override, override, &t->config,
                                  err);
    if (!rc && t->config.data.prompt_tokens > 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s: data.prompt_tokens is for runs that are only "
                          "planned or simulated; to train, give data.path "
                          "in its place, and models with weights and a "
                          "tokenizer",
                          config);
    if (!rc)
        rc = weft_run_check_supported(&t->config, "training has", err);
    rc = weft_world_agree(rc, err);
    /* that ranks have the same configuration is only seen later */
    if (!rc && weft_world_max(t->config.runtime.devices == WEFT_ON_GPUS))
        weft_gpus_meet();
    if (!rc)
        rc = open_all(t, err);
    if (rc) {
        weft_trainer_close(t);
        return rc;
    }
    t->opening = NULL;
    *out = t;
    return 0;
}

int weft_trainer_open(const char *config, int n_override,
                      const char *const *override, struct weft_trainer **out,
                      struct weft_err *err)
{
    const struct weft_trainer_opening alone = {.log = NULL};
    return weft_trainer_open_with(config, n_override, override, &alone, out,
                                  err);
}

/* Writes trace/trace.json if the run asks for it; an error is only logged. */
static void write_trace(struct weft_trainer *t)
{
    char path[4096];
    struct weft_err err;
    if (!t->config.trace || !t->metrics || !t->rt || t->began == t->iteration)
        return; /* no task ran: keep an earlier trace */
    snprintf(path, sizeof path, "%s/trace", t->config.run_dir);
    int rc = weft_world_rank() == 0 ? weft_dir_create(path, &err) : 0;
    rc = weft_world_agree(rc, &err);
    snprintf(path, sizeof path, "%s/trace/trace.json", t->config.run_dir);
    if (!rc)
        rc = weft_rt_write_trace(t->rt, path, &err);
    if (rc)
        weft_warn("%s", err.text);
}

void weft_trainer_close(struct weft_trainer *t)
{
    if (!t)
        return;
    weft_iteration_forget(t);
    weft_ahead_forget(t);
    write_trace(t);
    weft_run_dir_undo(t); /* before the runtime ends, which writes there */
    weft_trainer_release_tiles(t);
    for (int i = 0; i < WEFT_MAX_CALLS; i++)
        weft_g_layout_release(&t->layout[i]);
    weft_plan_release(&t->plan);
    weft_tail_free(t->tail);
    weft_again_free(t->again);
    weft_known_close(t->known);
    weft_replays_release(&t->replays);
    weft_context_close(t->context);
    weft_scorer_free(t->scorer);
    weft_rewards_close(t->rewards);
    weft_reward_text_close(t);
    weft_metrics_writer_close(t->metrics_writer);
    weft_metrics_free(t->metrics);
    weft_prompts_release(t);
    weft_dataset_close(t->data);
    weft_tokenizer_free(t->tokenizer);
    weft_free(t->order);
    weft_lengths_release(&t->lengths);
    if (t->lock > 0)
        close(t->lock);
    weft_free(t->made_dir);
    weft_inputs_free(t->inputs);
    if (t->resumed)
        weft_manifest_release(t->resumed);
    weft_free(t->resumed);
    weft_config_release(&t->config);
    weft_free(t);
}
