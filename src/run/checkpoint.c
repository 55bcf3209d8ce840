/* SPDX-License-Identifier: Apache-2.0 */
#include "run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "run/store.h"

/* Format 1 had Adam's moments beside the weights, in the model's folder. */
enum { FORMAT_MOMENTS_WITH_WEIGHTS = 1, FORMAT = 2, PATH_BYTES = 4096 };

/* Tensor files of a trained model in a checkpoint. */
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

/* dir/name; a path too long for the system becomes "", which no call takes. */
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

/* What model folders are written in. */
static enum weft_dtype folder_dtype(const struct weft_config *c)
{
    return c->checkpoint.dtype < 0 ? c->numerics.dtype
                                   : (enum weft_dtype) c->checkpoint.dtype;
}

/* Weights in f32 are the masters: then these have no file of their own. */
static bool has_part(const struct part *part, enum weft_dtype dtype)
{
    return part->in_model_folder || part->what != WEFT_STORE_MASTER
        || dtype != WEFT_F32;
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
        checkpoint_name(name, k); /* spelt otherwise, it is not ours */
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

/* Adds {"bytes", "xxh3"} of dir/name to the manifest's files. */
static int add_file(json_t *files, const char *dir, const char *name,
                    struct weft_err *err)
{
    char path[PATH_BYTES], digits[WEFT_HASH_DIGITS + 1];
    struct weft_hash hash;
    uint64_t bytes;
    int rc = weft_hash_file(path_of(path, dir, name), &hash, &bytes, err);
    if (rc)
        return rc;
    weft_hash_format(hash, digits);
    json_t *entry = json_pack("{s:I, s:s}", "bytes", (json_int_t) bytes,
                              "xxh3", digits);
    if (!entry || json_object_set_new(files, name, entry) != 0)
        return weft_err_nomem(err, "a manifest", 1024);
    return 0;
}

/* The tensors of a model; collective, rank 0 writes. */
static int write_tensors(struct weft_trainer *t, struct weft_run_model *m,
                         const char *stage, const char *name, json_t *files,
                         struct weft_err *err)
{
    char dir[2][PATH_BYTES] = {"", ""}, relative[128];
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
        if (!has_part(&parts[i], dtype))
            continue;
        rc = weft_store_save(t->seq, dir[weights], parts[i].stem,
                             parts[i].what, weights ? dtype : WEFT_F32,
                             &m->arch, &m->tiles, err);
        snprintf(relative, sizeof relative, "%s%s/%s.safetensors",
                 weights ? "" : "optimizer/", name, parts[i].stem);
        if (!rc && first)
            rc = add_file(files, stage, relative, err);
        rc = weft_world_agree(rc, err);
    }
    return rc;
}

/* What makes the folder a model's that other programs open. */
static int write_files(struct weft_run_model *m, enum weft_dtype dtype,
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

static json_t *state_json(struct weft_trainer *t)
{
    struct weft_kl_state kl = {0};
    if (t->kl_state && weft_tile_is_here(t->kl_state)) {
        kl = *(const struct weft_kl_state *) weft_tile_acquire(t->kl_state,
                                                               WEFT_READ);
        weft_tile_unacquire(t->kl_state);
    }
    return json_pack(
        "{s:i, s:s, s:i, s:I, s:I, s:f, s:f, s:I, s:i, s:i, s:i, s:s, s:s, "
        "s:s, s:I}",
        "format", FORMAT, "weft", weft_version(), "iteration",
        (int) t->iteration, "actor_steps", (json_int_t) t->actor_steps,
        "critic_steps", (json_int_t) t->critic_steps, "kl_coef", kl.coef,
        "kl_last", kl.last_kl, "seed", (json_int_t) t->config.seed,
        "actor_blocks", (int) t->actor.arch.shape.n_blocks, "critic_blocks",
        (int) t->critic.arch.shape.n_blocks, "gradient_groups",
        (int) t->config.numerics.gradient_groups, "dtype",
        weft_dtype_name(t->config.numerics.dtype), "model_dtype",
        weft_dtype_name(folder_dtype(&t->config)), "isa",
        weft_k_isa_name(weft_k_isa()), "prompts", (json_int_t) t->n_prompts);
}

static int write_manifest(struct weft_trainer *t, const char *stage,
                          json_t *files, struct weft_err *err)
{
    char path[PATH_BYTES];
    json_t *state = state_json(t);
    char *text = NULL;
    int rc = WEFT_ENOMEM;
    if (state && json_object_set(state, "files", files) == 0)
        text = json_dumps(state, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (text)
        rc = weft_file_write(path_of(path, stage, "manifest.json"), text,
                             strlen(text), err);
    else
        weft_err_nomem(err, "a manifest", 4096);
    free(text);
    json_decref(state);
    return rc;
}

/* Removes all but the newest `keep`. */
static int prune(const struct weft_config *c, struct weft_err *err)
{
    int32_t *found, n;
    int rc = weft_checkpoint_list(c->run_dir, &found, &n, err);
    for (int32_t i = c->checkpoint.keep; i < n && !rc; i++) {
        char *path = weft_checkpoint_path(c->run_dir, found[i]);
        rc = path ? weft_dir_remove(path, err)
                  : weft_err_nomem(err, "a path", strlen(c->run_dir));
        weft_free(path);
    }
    weft_free(found);
    return rc;
}

/* Rank 0 makes the folder complete and lets it appear. */
static int finish(struct weft_trainer *t, const char *stage,
                  const char *final, json_t *files, struct weft_err *err)
{
    enum weft_dtype dtype = folder_dtype(&t->config);
    int rc = write_files(&t->actor, dtype, stage, "actor", err);
    if (!rc && t->config.algorithm == WEFT_ALGO_PPO)
        rc = write_files(&t->critic, dtype, stage, "critic", err);
    if (!rc)
        rc = write_manifest(t, stage, files, err);
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
    json_t *files = json_object();
    bool first = weft_world_rank() == 0;
    int rc = files && final ? 0 : weft_err_nomem(err, "a manifest", 1024);
    if (!rc && first)
        rc = weft_metrics_sync(t->metrics_writer, err);
    if (!rc && first)
        rc = weft_dir_stage(final, &stage, err);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = write_tensors(t, &t->actor, stage, "actor", files, err);
    if (!rc && t->config.algorithm == WEFT_ALGO_PPO)
        rc = write_tensors(t, &t->critic, stage, "critic", files, err);
    if (!rc && first)
        rc = finish(t, stage, final, files, err);
    else if (stage)
        (void) weft_dir_remove(stage, NULL);
    rc = weft_world_agree(rc, err);
    if (rc)
        weft_err_prefix(err, "checkpoint of iteration %d",
                        (int) t->iteration);
    weft_free(stage);
    weft_free(final);
    json_decref(files);
    return rc;
}

/* ---- Reading ---------------------------------------------------------- */

static int verify_files(const char *folder, const json_t *files,
                        struct weft_err *err)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *) (uintptr_t) files, name, entry)
    {
        char path[PATH_BYTES];
        struct weft_hash expected, found;
        uint64_t bytes;
        const char *digits = json_string_value(
            json_object_get(entry, "xxh3"));
        if (!digits || !weft_hash_scan(digits, &expected))
            return weft_err_set(err, WEFT_EFORMAT,
                                "'%s/manifest.json': file '%s' has no "
                                "checksum",
                                folder, name);
        int rc = weft_hash_file(path_of(path, folder, name), &found, &bytes,
                                err);
        if (rc)
            return rc;
        if (!weft_hash_equal(expected, found))
            return weft_err_set(err, WEFT_EFORMAT,
                                "'%s' is damaged: its checksum is not the "
                                "manifest's; remove '%s' to resume from the "
                                "checkpoint before",
                                path, folder);
    }
    return 0;
}

static int same(const char *folder, const char *key, const char *saved,
                const char *now, const char *remedy, struct weft_err *err)
{
    if (saved && strcmp(saved, now) == 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' was written with %s %s, this run has %s%s",
                        folder, key, saved ? saved : "(none)", now, remedy);
}

static int same_int(const char *folder, const char *key, json_t *state,
                    int64_t now, struct weft_err *err)
{
    char a[32], b[32];
    snprintf(a, sizeof a, "%lld",
             (long long) json_integer_value(json_object_get(state, key)));
    snprintf(b, sizeof b, "%lld", (long long) now);
    return same(folder, key, a, b, "; the numbers would change", err);
}

static int apply_state(struct weft_trainer *t, const char *folder,
                       json_t *state, struct weft_err *err)
{
    int rc = same_int(folder, "actor_blocks", state,
                      t->actor.arch.shape.n_blocks, err);
    if (!rc)
        rc = same_int(folder, "critic_blocks", state,
                      t->critic.arch.shape.n_blocks, err);
    if (!rc)
        rc = same_int(folder, "gradient_groups", state,
                      t->config.numerics.gradient_groups, err);
    if (!rc)
        rc = same_int(folder, "prompts", state, t->n_prompts, err);
    if (!rc && !t->config.numerics.isa)
        rc = same(folder, "instruction set",
                  json_string_value(json_object_get(state, "isa")),
                  weft_k_isa_name(weft_k_isa()),
                  "; set numerics.isa to go on with other rounding", err);
    if (rc)
        return rc;
    t->iteration = (int32_t) json_integer_value(
        json_object_get(state, "iteration"));
    t->actor_steps = json_integer_value(
        json_object_get(state, "actor_steps"));
    t->critic_steps = json_integer_value(
        json_object_get(state, "critic_steps"));
    if (t->kl_state && weft_tile_is_here(t->kl_state)) {
        struct weft_kl_state *kl = weft_tile_acquire(t->kl_state, WEFT_WRITE);
        kl->coef = json_real_value(json_object_get(state, "kl_coef"));
        kl->last_kl = json_real_value(json_object_get(state, "kl_last"));
        weft_tile_unacquire(t->kl_state);
    }
    return 0;
}

/* dtype: of the model folder. apart: its optimizer state has a folder. */
static int read_model(struct weft_run_model *m, const char *folder,
                      const char *name, enum weft_dtype dtype, bool apart,
                      struct weft_err *err)
{
    char dir[PATH_BYTES];
    bool in_model_folder = dtype == WEFT_F32;
    model_path(dir, folder, name, in_model_folder);
    int rc = weft_store_load(dir, in_model_folder ? "model" : "master",
                             &m->arch, &m->tiles, err);
    model_path(dir, folder, name, !apart);
    for (size_t i = 0; i < WEFT_COUNT(parts) && !rc; i++)
        if (parts[i].what != WEFT_STORE_MASTER)
            rc = weft_store_load_moment(dir, parts[i].stem, parts[i].what,
                                        &m->arch, &m->tiles, err);
    return rc;
}

/* Where the weights and the optimizer state are. */
static int read_form(const char *folder, json_t *state,
                     enum weft_dtype *dtype_out, bool *apart_out,
                     struct weft_err *err)
{
    int format = (int) json_integer_value(json_object_get(state, "format"));
    const char *dtype = json_string_value(
        json_object_get(state, "model_dtype"));
    bool apart = format != FORMAT_MOMENTS_WITH_WEIGHTS;
    if (apart && format != FORMAT)
        return weft_err_set(err, WEFT_EFORMAT,
                            "'%s/manifest.json': 'format' is %d; %d and %d "
                            "are read",
                            folder, format, FORMAT_MOMENTS_WITH_WEIGHTS,
                            FORMAT);
    if (!apart)
        dtype = "f32";
    else if (!dtype || (strcmp(dtype, "f32") && strcmp(dtype, "bf16")))
        return weft_err_set(err, WEFT_EFORMAT,
                            "'%s/manifest.json': 'model_dtype' must be f32 "
                            "or bf16",
                            folder);
    *dtype_out = strcmp(dtype, "f32") == 0 ? WEFT_F32 : WEFT_BF16;
    *apart_out = apart;
    return 0;
}

int weft_checkpoint_read(struct weft_trainer *t, const char *folder,
                         struct weft_err *err)
{
    enum weft_dtype dtype = WEFT_F32;
    bool apart = false;
    char path[PATH_BYTES];
    json_error_t where;
    path_of(path, folder, "manifest.json");
    json_t *state = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    int rc = 0;
    if (!state)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "'%s' is no manifest: line %d: %s", path,
                          where.line, where.text);
    else if (weft_world_rank() == 0) /* one is enough */
        rc = verify_files(folder, json_object_get(state, "files"), err);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = read_form(folder, state, &dtype, &apart, err);
    if (!rc)
        rc = apply_state(t, folder, state, err);
    if (!rc)
        rc = read_model(&t->actor, folder, "actor", dtype, apart, err);
    if (!rc && t->config.algorithm == WEFT_ALGO_PPO)
        rc = read_model(&t->critic, folder, "critic", dtype, apart, err);
    json_decref(state);
    if (!rc && weft_world_rank() == 0)
        weft_info("resuming from %s", folder);
    return rc;
}
