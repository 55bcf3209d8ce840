/* SPDX-License-Identifier: Apache-2.0 */
#include "job/inputs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "config/keys.h"
#include "model/safetensors.h"
#include "rt/graph.h"
#include "job/plan_needs.h"
#include "job/same.h"

enum { THREADS = 4 }; /* that read a file while weights are loaded */

struct weft_inputs {
    size_t n;
    struct weft_manifest_input *input;
    struct weft_manifest kept; /* of the checkpoint: files not read now */
    pthread_t thread;
    bool started;
    atomic_bool stop;
    int rc; /* result of the thread */
    struct weft_err err;
};

/* ---- Which files ------------------------------------------------------ */

static int add(struct weft_inputs *in, const char *key, const char *path,
               struct weft_err *err)
{
    struct weft_manifest_input *more = weft_realloc(in->input, in->n + 1,
                                                    sizeof *more);
    if (!more)
        return weft_err_nomem(err, "a run's files", sizeof *more);
    in->input = more;
    more += in->n++;
    *more = (struct weft_manifest_input){.key = weft_strdup(key),
                                         .path = weft_strdup(path)};
    return more->key && more->path
             ? 0
             : weft_err_nomem(err, "a run's files", strlen(path));
}

static bool has(const struct weft_inputs *in, const char *key,
                const char *path)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->input[i].key, key) == 0
            && strcmp(in->input[i].path, path) == 0)
            return true;
    return false;
}

/* Adds dir/name if it is a regular file. */
static int add_if(struct weft_inputs *in, const char *key, const char *dir,
                  const char *name, struct weft_err *err)
{
    struct stat st;
    char *path = weft_path_join(dir, name);
    int rc = path ? 0 : weft_err_nomem(err, "a path", strlen(dir));
    if (!rc && stat(path, &st) == 0 && S_ISREG(st.st_mode)
        && !has(in, key, path))
        rc = add(in, key, path, err);
    weft_free(path);
    return rc;
}

/* Adds the files that hold a folder's tensors. */
static int add_weights(struct weft_inputs *in, const char *role,
                       const char *folder, struct weft_err *err)
{
    struct weft_safetensors *st;
    char key[64];
    snprintf(key, sizeof key, "%s (weights)", role);
    int rc = weft_safetensors_open(folder, "model", &st, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < weft_safetensors_count(st) && !rc; i++) {
        const char *path = weft_safetensors_get(st, i)->file;
        if (!has(in, key, path))
            rc = add(in, key, path, err);
    }
    weft_safetensors_close(st);
    return rc;
}

static int add_model(struct weft_inputs *in, const char *role,
                     const char *folder, bool weights, struct weft_err *err)
{
    int rc = add_if(in, role, folder, "config.json", err);
    return rc || !weights ? rc : add_weights(in, role, folder, err);
}

/* Adds the files of a folder's tokenizer and templates. */
static int add_tokenizer(struct weft_inputs *in, const char *role,
                         const char *folder, struct weft_err *err)
{
    static const char *const name[] = {
        "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja", "special_tokens_map.json"};
    int rc = 0;
    for (size_t i = 0; i < WEFT_COUNT(name) && !rc; i++)
        rc = add_if(in, role, folder, name[i], err);
    return rc;
}

static int add_reward(struct weft_inputs *in,
                      const struct weft_reward_config *reward, int32_t i,
                      struct weft_err *err)
{
    char key[64];
    int rc = 0;
    if (reward->type == WEFT_REWARD_MODEL) {
        snprintf(key, sizeof key, "reward[%d].model", (int) i);
        if (reward->own_tokenizer)
            rc = add_tokenizer(in, key, reward->model, err);
        return rc ? rc : add_model(in, key, reward->model, true, err);
    }
    if (reward->type != WEFT_REWARD_PROGRAM || weft_world_rank() != 0)
        return 0;
    snprintf(key, sizeof key, "reward[%d].command", (int) i);
    for (int k = 0; reward->command[k] && !rc; k++)
        /* a program's name without a slash is searched in PATH */
        if (k > 0 || strchr(reward->command[k], '/'))
            rc = add_if(in, key, reward->directory ? reward->directory : ".",
                        reward->command[k], err);
    return rc;
}

/* The key that names the folder of a role's model. */
static const char *folder_key(const struct weft_config *c, int32_t slot)
{
    return weft_config_name(c, &c->role[slot].folder);
}

static int list(struct weft_inputs *in, const struct weft_config *c,
                bool resumes, struct weft_err *err)
{
    struct weft_dataflow flow = {.n_roles = 0};
    int rc = add(in, "data.path", c->data.path, err);
    if (!rc)
        rc = add_tokenizer(in, folder_key(c, 0), c->role[0].folder, err);
    if (!rc)
        rc = weft_run_flow(c, &flow, err);
    for (int32_t r = 0; r < flow.n_roles && !rc; r++) {
        const struct weft_role *role = &flow.role[r];
        if (role->index >= 0)
            continue; /* with the rewards */
        rc = add_model(in, folder_key(c, role->slot),
                       weft_run_folder(c, role), !resumes || !role->trained,
                       err);
    }
    for (int32_t i = 0; i < c->n_rewards && !rc; i++)
        rc = add_reward(in, &c->reward[i], i, err);
    return rc;
}

/* ---- Reading them ----------------------------------------------------- */

/* Takes the checksum of file i from an earlier entry for the same file. False:
 * there is none. */
static bool read_before(struct weft_inputs *in, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(in->input[k].path, in->input[i].path) == 0) {
            in->input[i].n_bytes = in->input[k].n_bytes;
            in->input[i].hash = in->input[k].hash;
            return true;
        }
    return false;
}

static void *read_files(void *ctx)
{
    struct weft_inputs *in = ctx;
    for (size_t i = 0; i < in->n && !in->rc && !in->stop; i++) {
        struct weft_file_hash hash;
        if (read_before(in, i))
            continue;
        in->rc = weft_file_hash_read(in->input[i].path, THREADS, &hash,
                                     &in->err);
        if (in->rc)
            break;
        in->input[i].n_bytes = hash.n_bytes;
        in->input[i].hash = weft_file_hash_whole(&hash);
        weft_file_hash_release(&hash);
    }
    return NULL;
}

int weft_inputs_start(const struct weft_config *config, bool resumes,
                      struct weft_inputs **out, struct weft_err *err)
{
    struct weft_inputs *in = weft_alloc(1, sizeof *in);
    if (!in)
        return weft_err_nomem(err, "a run's files", sizeof *in);
    int rc = list(in, config, resumes, err);
    if (rc) {
        weft_inputs_free(in);
        return rc;
    }
    in->started = pthread_create(&in->thread, NULL, read_files, in) == 0;
    if (!in->started) /* the thread could not be started: read now */
        read_files(in);
    *out = in;
    return 0;
}

int weft_inputs_finish(struct weft_inputs *in, struct weft_err *err)
{
    if (in->started)
        pthread_join(in->thread, NULL);
    in->started = false;
    if (in->rc && err)
        *err = in->err;
    return in->rc;
}

void weft_inputs_free(struct weft_inputs *in)
{
    if (!in)
        return;
    in->stop = true;
    (void) weft_inputs_finish(in, NULL);
    for (size_t i = 0; i < in->n; i++) {
        weft_free(in->input[i].key);
        weft_free(in->input[i].path);
    }
    weft_free(in->input);
    weft_manifest_release(&in->kept);
    weft_free(in);
}

/* ---- Comparing -------------------------------------------------------- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int weft_inputs_common(const struct weft_inputs *in, struct weft_err *err)
{
    struct weft_string text = {0};
    for (size_t i = 0; i < in->n; i++) {
        char digits[WEFT_HASH_DIGITS + 1];
        if (strstr(in->input[i].key, ".command"))
            continue;
        weft_hash_format(in->input[i].hash, digits);
        weft_string_addf(&text,
                         "'%s' of %s has %llu bytes with the checksum "
                         "%s\n",
                         name_of(in->input[i].path), in->input[i].key,
                         (unsigned long long) in->input[i].n_bytes, digits);
    }
    int rc = weft_string_check(&text, "a run's files", err);
    rc = weft_run_same(&text, rc, err);
    weft_string_release(&text);
    return rc;
}

static const struct weft_manifest_input *find(
    const struct weft_manifest_input *input, size_t n,
    const struct weft_manifest_input *wanted)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(input[i].key, wanted->key) == 0
            && strcmp(name_of(input[i].path), name_of(wanted->path)) == 0)
            return &input[i];
    return NULL;
}

/* Whether any of the key's files was read now. */
static bool is_read(const struct weft_inputs *in, const char *key)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->input[i].key, key) == 0)
            return true;
    return false;
}

static int changed(const char *path, const char *key, const char *how,
                   bool accept, struct weft_err *err)
{
    if (accept && weft_world_rank() == 0)
        weft_warn("'%s' (%s) %s; the run goes on with it", path, key, how);
    if (accept)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' (%s) %s; put back what the run began with, or "
                        "go on with resume.accept_changed_inputs=true",
                        path, key, how);
}

int weft_inputs_compare(struct weft_inputs *in, const struct weft_manifest *m,
                        bool accept, struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < in->n && !rc; i++) {
        const struct weft_manifest_input *now = &in->input[i];
        const struct weft_manifest_input *old = find(m->input, m->n_inputs,
                                                     now);
        if (!old)
            rc = changed(now->path, now->key,
                         "was not there when the checkpoint was written",
                         accept, err);
        else if (old->n_bytes != now->n_bytes
                 || !weft_hash_equal(old->hash, now->hash))
            rc = changed(now->path, now->key,
                         "has changed since the checkpoint was written",
                         accept, err);
    }
    for (size_t i = 0; i < m->n_inputs && !rc; i++) {
        const struct weft_manifest_input *old = &m->input[i];
        if (find(in->input, in->n, old))
            continue;
        if (is_read(in, old->key))
            rc = changed(old->path, old->key, "is not read any more", accept,
                         err);
        else
            rc = weft_manifest_add_input(&in->kept, old->key, old->path,
                                         old->n_bytes, old->hash, err);
    }
    return rc;
}

static int add_all(const struct weft_manifest_input *input, size_t n,
                   struct weft_manifest *m, struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = weft_manifest_add_input(m, input[i].key, input[i].path,
                                     input[i].n_bytes, input[i].hash, err);
    return rc;
}

int weft_inputs_add(const struct weft_inputs *in, struct weft_manifest *m,
                    struct weft_err *err)
{
    int rc = add_all(in->input, in->n, m, err);
    return rc ? rc : add_all(in->kept.input, in->kept.n_inputs, m, err);
}
