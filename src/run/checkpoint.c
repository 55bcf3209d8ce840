/* SPDX-License-Identifier: Apache-2.0 */
#include "run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "job/gpus.h"
#include "lm/store.h"
#include "record/manifest.h"
#include "run/ahead.h"
#include "run/reward_state.h"

enum { PATH_BYTES = 4096, PART_BYTES = 64 };

/* Tensor files of a model in a checkpoint; moments of a trained one. */
static const struct part {
    const char *stem;
    enum weft_store_what what;
    bool in_model_folder; /* else in the optimizer's */
} parts[] = {{"model", WEFT_STORE_MASTER, true},
             {"master", WEFT_STORE_MASTER, false},
             {"exp_avg", WEFT_STORE_EXP_AVG, false},
             {"exp_avg_sq", WEFT_STORE_EXP_AVG_SQ, false}};

static const char *const tokenizer_files[] = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "special_tokens_map.json"};

/* dir/name; a path that is too long for the system becomes "", for which every
 * system call fails. */
static const char *path_of(char buf[PATH_BYTES], const char *dir,
                           const char *name)
{
    if (snprintf(buf, PATH_BYTES, "%s/%s", dir, name) >= PATH_BYTES)
        buf[0] = 0;
    return buf;
}

static void checkpoint_name(char buf[32], int32_t iteration)
{
    snprintf(buf, 32, "iteration-%06d", (int) iteration);
}

char *weft_checkpoint_path(const char *run_dir, int32_t iteration)
{
    char relative[64] = "checkpoints/";
    checkpoint_name(relative + strlen(relative), iteration);
    return weft_path_join(run_dir, relative);
}

/* The checkpoint's folder of a model's weights, or of its optimizer state. */
static const char *model_path(char buf[PATH_BYTES], const char *checkpoint,
                              const char *name, bool weights)
{
    char relative[64];
    snprintf(relative, sizeof relative, "%s%s", weights ? "" : "optimizer/",
             name);
    return path_of(buf, checkpoint, relative);
}

/* A part's path in the checkpoint. */
static void part_path(char out[PART_BYTES], const struct part *part,
                      const char *name, bool in_model_folder)
{
    snprintf(out, PART_BYTES, "%s%s/%s.safetensors",
             in_model_folder ? "" : "optimizer/", name, part->stem);
}

/* The dtype in which model folders are written. */
static enum weft_dtype folder_dtype(const struct weft_config *c)
{
    return c->checkpoint.dtype < 0 ? c->numerics.dtype
                                   : (enum weft_dtype) c->checkpoint.dtype;
}

/* Whether a part has a file. Masters have none if the weights are written in
 * f32, as both are then the same. */
static bool has_part(const struct part *part, bool trained,
                     enum weft_dtype dtype)
{
    return part->in_model_folder
        || (part->what == WEFT_STORE_MASTER ? dtype != WEFT_F32 : trained);
}

static const char *name_of(const struct weft_trainer *t,
                           const struct weft_run_model *m)
{
    return t->flow.role[m->role].name;
}

/* The k-th model whose weights the run changes, or NULL: those that are
 * trained, and those that have moved. `saved` is the checkpoint that is read;
 * NULL: one is written. */
static const struct weft_run_model *changed(const struct weft_trainer *t,
                                            const struct weft_manifest *saved,
                                            int k)
{
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        const struct weft_role *role = &t->flow.role[r];
        bool moved = saved ? weft_manifest_role(saved, role->name) != NULL
                           : t->model[r].steps > 0;
        if ((role->trained || (role->follows >= 0 && moved)) && k-- == 0)
            return &t->model[r];
    }
    return NULL;
}

/* ---- Which checkpoints there are -------------------------------------- */

static int by_number_down(const void *a, const void *b)
{
    int32_t x = *(const int32_t *) a, y = *(const int32_t *) b;
    return x > y ? -1 : x < y;
}

int weft_checkpoint_list(const char *run_dir, int32_t **out, int32_t *n_out,
                         struct weft_err *err)
{
    char dir[PATH_BYTES];
    int32_t *found = NULL, n = 0;
    DIR *d = opendir(path_of(dir, run_dir, "checkpoints"));
    *out = NULL;
    *n_out = 0;
    if (!d)
        return errno == ENOENT ? 0 : weft_err_sys(err, "read", dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char name[32];
        int k = 0;
        if (sscanf(e->d_name, "iteration-%d", &k) != 1 || k < 0)
            continue;
        checkpoint_name(name, k); /* other spellings are not checkpoints */
        if (strcmp(name, e->d_name) != 0)
            continue;
        int32_t *more = weft_realloc(found, (size_t) n + 1, sizeof *found);
        if (!more) {
            weft_free(found);
            closedir(d);
            return weft_err_nomem(err, "checkpoints", (size_t) n * 4);
        }
        found = more;
        found[n++] = k;
    }
    closedir(d);
    if (n > 0)
        qsort(found, (size_t) n, sizeof *found, by_number_down);
    *out = found;
    *n_out = n;
    return 0;
}

/* ---- Writing ---------------------------------------------------------- */

/* Writes the tensors of a model on rank 0. Collective. */
static int write_tensors(struct weft_trainer *t,
                         const struct weft_run_model *m, const char *stage,
                         struct weft_manifest *manifest, struct weft_err *err)
{
    const char *name = name_of(t, m);
    char dir[2][PATH_BYTES] = {"", ""}, relative[PART_BYTES];
    enum weft_dtype dtype = folder_dtype(&t->config);
    bool first = weft_world_rank() == 0;
    int rc = 0;
    for (int weights = 0; weights < 2 && first && !rc; weights++) {
        model_path(dir[weights], stage, name, weights);
        rc = weft_dir_create(dir[weights], err);
    }
    rc = weft_world_agree(rc, err);
    for (size_t i = 0; i < WEFT_COUNT(parts) && !rc; i++) {
        bool weights = parts[i].in_model_folder;
        if (!has_part(&parts[i], weft_trainer_weights(m)->trained, dtype))
            continue;
        rc = weft_store_save(t->seq, dir[weights], parts[i].stem,
                             parts[i].what, weights ? dtype : WEFT_F32,
                             &m->arch, weft_trainer_weights(m), err);
        part_path(relative, &parts[i], name, weights);
        if (!rc && first)
            rc = weft_manifest_add_file(manifest, stage, relative, err);
        rc = weft_world_agree(rc, err);
    }
    return rc;
}

/* Writes the files besides tensors that make it a Hugging Face folder. */
static int write_files(const struct weft_run_model *m, enum weft_dtype dtype,
                       const char *stage, const char *name,
                       struct weft_err *err)
{
    char dir[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES];
    int rc = 0;
    path_of(dir, stage, name);
    struct weft_arch arch = m->arch;
    arch.dtype = dtype;
    if (!rc)
        rc = weft_arch_write(dir, &arch, err);
    for (size_t i = 0; i < WEFT_COUNT(tokenizer_files) && !rc; i++) {
        path_of(from, m->folder, tokenizer_files[i]);
        path_of(to, dir, tokenizer_files[i]);
        if (weft_file_exists(from))
            rc = weft_file_copy(from, to, err);
    }
    return rc;
}

static const char kl_coef[] = "kl_coef", kl_last[] = "kl_last",
                  prompts_drawn[] = "prompts_drawn";

static int save_kl(struct weft_trainer *t, struct weft_manifest *m,
                   struct weft_err *err)
{
    if (!t->kl_state || !weft_tile_is_here(t->kl_state))
        return 0;
    const struct weft_kl_state *kl = weft_tile_acquire(t->kl_state,
                                                       WEFT_READ);
    int rc = weft_manifest_add_number(m, kl_coef, kl->coef, err);
    if (!rc)
        rc = weft_manifest_add_number(m, kl_last, kl->last_kl, err);
    weft_tile_unacquire(t->kl_state);
    return rc;
}

/* The name of the number that says that a role's calls had GPUs. */
static void name_gpus(const struct weft_trainer *t,
                      const struct weft_run_model *model, char out[48])
{
    snprintf(out, 48, "%.31s on GPUs", name_of(t, model));
}

static int add_role(const struct weft_trainer *t, struct weft_manifest *m,
                    const struct weft_run_model *model, struct weft_err *err)
{
    char name[48];
    int rc = weft_manifest_add_role(m, name_of(t, model), model->steps,
                                    model->arch.shape.n_blocks, err);
    name_gpus(t, model, name);
    if (!rc && weft_plan_on_gpus(&t->plan, model->home))
        rc = weft_manifest_add_number(m, name, 1, err);
    return rc;
}

/* Sets the manifest's state of the run. */
static int set_state(struct weft_trainer *t, struct weft_manifest *m,
                     struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const struct weft_run_model *model;
    int rc = 0;
    m->format = WEFT_MANIFEST_FORMAT;
    snprintf(m->weft, sizeof m->weft, "%s", weft_version());
    m->iteration = t->iteration;
    m->seed = (int64_t) c->seed;
    m->gradient_groups = c->numerics.gradient_groups;
    m->dtype = c->numerics.dtype;
    m->model_dtype = folder_dtype(c);
    m->isa = weft_k_isa();
    if (t->job.n_gpus > 0)
        rc = weft_gpu_describe(0, m->gpus, err);
    for (int k = 0; (model = changed(t, NULL, k)) != NULL && !rc; k++)
        rc = add_role(t, m, model, err);
    if (!rc && t->settings.refills > 0)
        rc = weft_manifest_add_number(m, prompts_drawn,
                                      (double) weft_trainer_drawn(t), err);
    if (!rc)
        rc = save_kl(t, m, err);
    return rc ? rc : weft_reward_state_save(t, m, err);
}

/* Removes a checkpoint under the name of what is half-written: a process that
 * is killed meanwhile leaves no half of a checkpoint, and the next start sweeps
 * the rest away. */
static int remove_old(const struct weft_config *c, int32_t iteration,
                      struct weft_err *err)
{
    char *path = weft_checkpoint_path(c->run_dir, iteration);
    size_t size = strlen(c->run_dir) + 80;
    char *half = weft_alloc(size, 1);
    int rc = path && half ? 0 : weft_err_nomem(err, "a path", size);
    if (!rc)
        rc = weft_dir_may_be_removed(path, err);
    if (!rc) {
        char *name = strrchr(path, '/');
        snprintf(half, size, "%.*s/.%s.tmp-%ld", (int) (name - path), path,
                 name + 1, (long) getpid());
        if (rename(path, half))
            rc = weft_err_sys(err, "remove", path);
    }
    if (!rc)
        rc = weft_dir_remove(half, err);
    weft_free(half);
    weft_free(path);
    return rc;
}

/* Removes all checkpoints except the newest `keep`. */
static int prune(const struct weft_config *c, struct weft_err *err)
{
    int32_t *found, n;
    int rc = weft_checkpoint_list(c->run_dir, &found, &n, err);
    for (int32_t i = c->checkpoint.keep; i < n && !rc; i++)
        rc = remove_old(c, found[i], err);
    weft_free(found);
    return rc;
}

/* On rank 0: completes the folder and gives it its final name. */
static int finish(struct weft_trainer *t, const char *stage,
                  const char *final, struct weft_manifest *manifest,
                  struct weft_err *err)
{
    enum weft_dtype dtype = folder_dtype(&t->config);
    const struct weft_run_model *model;
    int rc = 0;
    for (int k = 0; (model = changed(t, NULL, k)) != NULL && !rc; k++)
        rc = write_files(model, dtype, stage, name_of(t, model), err);
    if (!rc)
        rc = set_state(t, manifest, err);
    if (!rc)
        rc = weft_inputs_add(t->inputs, manifest, err);
    if (!rc)
        rc = weft_manifest_write(manifest, stage, err);
    if (!rc)
        rc = weft_dir_commit(stage, final, true, err);
    else
        (void) weft_dir_remove(stage, NULL);
    if (!rc)
        rc = prune(&t->config, err);
    return rc;
}

int weft_checkpoint_write(struct weft_trainer *t, struct weft_err *err)
{
    char *stage = NULL;
    char *final = weft_checkpoint_path(t->config.run_dir, t->iteration);
    struct weft_manifest manifest = {0};
    const struct weft_run_model *model;
    bool first = weft_world_rank() == 0;
    int rc = final ? 0 : weft_err_nomem(err, "a path", 1024);
    if (!rc && first)
        rc = weft_metrics_sync(t->metrics_writer, err);
    if (!rc && first)
        rc = weft_dir_stage(final, &stage, err);
    rc = weft_world_agree(rc, err);
    for (int k = 0; (model = changed(t, NULL, k)) != NULL && !rc; k++)
        rc = write_tensors(t, model, stage, &manifest, err);
    if (!rc)
        rc = weft_ahead_write(t, stage, &manifest, err);
    if (!rc && first)
        rc = finish(t, stage, final, &manifest, err);
    else if (stage)
        (void) weft_dir_remove(stage, NULL);
    rc = weft_world_agree(rc, err);
    if (rc)
        weft_err_prefix(err, "checkpoint of iteration %d",
                        (int) t->iteration);
    weft_free(stage);
    weft_free(final);
    weft_manifest_release(&manifest);
    return rc;
}

/* ---- Reading ---------------------------------------------------------- */

/* Checks that the checkpoint has the files of a run such as this, and their
 * checksums. */
static int verify(const struct weft_trainer *t, const char *folder,
                  const struct weft_manifest *m, struct weft_err *err)
{
    char path[WEFT_MAX_ROLES * WEFT_COUNT(parts)][PART_BYTES];
    const char *name[WEFT_COUNT(path) + 1];
    const struct weft_run_model *model;
    size_t n = 0;
    for (int k = 0; (model = changed(t, m, k)) != NULL; k++)
        for (size_t i = 0; i < WEFT_COUNT(parts); i++) {
            if (!has_part(&parts[i], weft_trainer_weights(model)->trained,
                          m->model_dtype))
                continue;
            part_path(path[n], &parts[i], name_of(t, model),
                      parts[i].in_model_folder);
            name[n] = path[n];
            n++;
        }
    if (weft_ahead_is_in(m))
        name[n++] = WEFT_AHEAD_FILE;
    return weft_manifest_verify(m, folder, name, n, err);
}

static int same(const char *folder, const char *key, const char *saved,
                const char *now, const char *remedy, struct weft_err *err)
{
    if (strcmp(saved, now) == 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' was written with %s %s, this run has %s%s",
                        folder, key, saved, now, remedy);
}

static int same_int(const char *folder, const char *key, int64_t saved,
                    int64_t now, struct weft_err *err)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%lld", (long long) saved);
    snprintf(b, sizeof b, "%lld", (long long) now);
    return same(folder, key, a, b, "; the numbers would change", err);
}

/* Checks that this process's instruction set gives the same bits as the one
 * that wrote the checkpoint. */
static int check_isa(const char *folder, enum weft_isa saved,
                     struct weft_err *err)
{
    enum weft_isa now = weft_k_isa(), best = weft_k_isa_detect();
    char remedy[96];
    if (weft_k_isa_same_bits(saved, now))
        return 0;
    if (saved == WEFT_ISA_C)
        snprintf(remedy, sizeof remedy, "set numerics.isa=c");
    else if (weft_k_isa_same_bits(saved, best))
        snprintf(remedy, sizeof remedy, "set numerics.isa=%s",
                 weft_k_isa_name(best));
    else
        snprintf(remedy, sizeof remedy,
                 "go on where the CPU has avx2, or begin another run_dir");
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' was written with the kernels of %s, this run "
                        "has those of %s, which round otherwise: %s",
                        folder, weft_k_isa_name(saved), weft_k_isa_name(now),
                        remedy);
}

/* Checks that a role has the kind of device that it had. */
static int check_gpus(const struct weft_trainer *t, const char *folder,
                      const struct weft_manifest *m,
                      const struct weft_run_model *model,
                      struct weft_err *err)
{
    char name[48];
    double one;
    name_gpus(t, model, name);
    bool had = weft_manifest_number(m, name, &one, NULL) == 0;
    if (had == weft_plan_on_gpus(&t->plan, model->home))
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' was written by a run that had the %s on %s, "
                        "this one has it on %s, which round otherwise: set "
                        "runtime.devices as it was, or begin another run_dir",
                        folder, name_of(t, model), had ? "GPUs" : "CPUs",
                        had ? "CPUs" : "GPUs");
}

/* Says where GPUs are of another kind than those that wrote the checkpoint. */
static void compare_gpus(const struct weft_trainer *t, const char *folder,
                         const struct weft_manifest *m)
{
    char now[WEFT_GPU_TEXT];
    if (weft_world_rank() == 0 && t->job.n_gpus > 0 && m->gpus[0]
        && weft_gpu_describe(0, now, NULL) == 0 && strcmp(now, m->gpus) != 0)
        weft_warn("'%s' was written with the GPU '%s', this run has '%s': "
                  "products may round otherwise there, and then the run goes "
                  "on with other numbers than the first would have had",
                  folder, m->gpus, now);
}

/* Checks that everything on which results depend is as it was. */
static int check_state(const struct weft_trainer *t, const char *folder,
                       const struct weft_manifest *m, struct weft_err *err)
{
    const struct weft_config *c = &t->config;
    const struct weft_run_model *model;
    int rc = 0;
    for (int k = 0; (model = changed(t, m, k)) != NULL && !rc; k++) {
        const char *name = name_of(t, model);
        const struct weft_manifest_role *role = weft_manifest_role(m, name);
        char what[WEFT_MAX_NAME + 32];
        snprintf(what, sizeof what, "tensor blocks of %s", name);
        rc = role ? same_int(folder, what, role->blocks,
                             model->arch.shape.n_blocks, err)
                  : weft_err_set(err, WEFT_EFORMAT,
                                 "'%s/manifest.json': 'roles' lacks '%s', "
                                 "which this run trains",
                                 folder, name);
        if (!rc)
            rc = check_gpus(t, folder, m, model, err);
    }
    if (!rc)
        rc = same_int(folder, "gradient_groups", m->gradient_groups,
                      c->numerics.gradient_groups, err);
    if (!rc)
        rc = same_int(folder, "seed", m->seed, (int64_t) c->seed, err);
    if (!rc)
        rc = same(folder, "dtype", weft_dtype_name(m->dtype),
                  weft_dtype_name(c->numerics.dtype),
                  "; the numbers would change", err);
    if (!rc)
        rc = check_isa(folder, m->isa, err);
    if (!rc)
        compare_gpus(t, folder, m);
    return rc;
}

static int load_kl(struct weft_trainer *t, const struct weft_manifest *m,
                   struct weft_err *err)
{
    if (!t->kl_state || !weft_tile_is_here(t->kl_state))
        return 0;
    struct weft_kl_state *kl = weft_tile_acquire(t->kl_state, WEFT_WRITE);
    int rc = weft_manifest_number(m, kl_coef, &kl->coef, err);
    if (!rc)
        rc = weft_manifest_number(m, kl_last, &kl->last_kl, err);
    weft_tile_unacquire(t->kl_state);
    return rc;
}

static int apply_state(struct weft_trainer *t, const struct weft_manifest *m,
                       struct weft_err *err)
{
    double drawn = (double) m->iteration * t->config.rollout.prompts;
    int rc = 0;
    t->iteration = (int32_t) m->iteration;
    for (int32_t r = 0; r < t->flow.n_roles; r++) {
        const struct weft_manifest_role *role = weft_manifest_role(
            m, t->flow.role[r].name);
        t->model[r].steps = role ? role->steps : 0;
    }
    if (t->settings.refills > 0)
        rc = weft_manifest_number(m, prompts_drawn, &drawn, err);
    t->drawn = (int64_t) drawn;
    if (!rc)
        rc = load_kl(t, m, err);
    return rc ? rc : weft_reward_state_load(t, m, err);
}

/* dtype: of the model folder. */
static int read_model(const struct weft_run_model *m, const char *folder,
                      const char *name, enum weft_dtype dtype,
                      struct weft_err *err)
{
    char dir[PATH_BYTES];
    const struct weft_g_model *tiles = weft_trainer_weights(m);
    bool in_model_folder = dtype == WEFT_F32;
    model_path(dir, folder, name, in_model_folder);
    int rc = weft_store_load(dir, in_model_folder ? "model" : "master",
                             &m->arch, tiles, err);
    model_path(dir, folder, name, false);
    for (size_t i = 0; i < WEFT_COUNT(parts) && tiles->trained && !rc; i++)
        if (parts[i].what != WEFT_STORE_MASTER)
            rc = weft_store_load_moment(dir, parts[i].stem, parts[i].what,
                                        &m->arch, tiles, err);
    return rc;
}

int weft_checkpoint_read(struct weft_trainer *t, const char *folder,
                         struct weft_err *err)
{
    struct weft_manifest *m = weft_alloc(1, sizeof *m);
    const struct weft_run_model *model;
    if (!m)
        return weft_err_nomem(err, "a manifest", sizeof *m);
    t->resumed = m;
    int rc = weft_manifest_read(folder, t->iteration, m, err);
    if (!rc)
        rc = check_state(t, folder, m, err);
    if (!rc && weft_world_rank() == 0) /* logged by one rank */
        rc = verify(t, folder, m, err);
    rc = weft_world_agree(rc, err);
    for (int k = 0; (model = changed(t, m, k)) != NULL && !rc; k++)
        rc = read_model(model, folder, name_of(t, model), m->model_dtype,
                        err);
    if (!rc)
        rc = weft_ahead_read(t, folder, m, err);
    if (!rc)
        rc = apply_state(t, m, err);
    if (!rc && weft_world_rank() == 0)
        weft_info("resuming from %s", folder);
    return rc;
}
