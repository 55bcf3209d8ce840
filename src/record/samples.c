/* SPDX-License-Identifier: Apache-2.0 */
#include "record/samples.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"

char *weft_samples_path(const char *run_dir, int64_t iteration)
{
    char name[64];
    snprintf(name, sizeof name, "samples/%06lld.jsonl",
             (long long) iteration);
    return weft_path_join(run_dir, name);
}

static void add_sample(struct weft_string *t, int64_t iteration,
                       const struct weft_reward_config *reward,
                       int32_t n_rewards, const struct weft_sample_record *s)
{
    weft_string_addf(t, "{\"iteration\": %lld, \"index\": %lld, \"prompt\": ",
                     (long long) iteration, (long long) s->index);
    weft_string_add_json_str(t, s->prompt);
    weft_string_add(t, ", \"response\": ");
    weft_string_add_json_str(t, s->response);
    if (s->label.s) {
        weft_string_add(t, ", \"label\": ");
        weft_string_add_json_str(t, s->label);
    }
    weft_string_add(t, ", \"score\": ");
    weft_string_add_number(t, s->score);
    weft_string_add(t, ", \"rewards\": {");
    for (int32_t r = 0; r < n_rewards; r++) {
        weft_string_add(t, r > 0 ? ", " : "");
        weft_string_add_json(t, reward[r].name);
        weft_string_add(t, ": ");
        weft_string_add_number(t, s->part[r]);
    }
    weft_string_addf(t, "}, \"n_tokens\": %d, \"finish_reason\": \"%s\"",
                     s->n_tokens, s->ended ? "stop" : "length");
    if (s->baseline.s) {
        weft_string_add(t, ", \"baseline_response\": ");
        weft_string_add_json_str(t, s->baseline);
        weft_string_add(t, ", \"baseline_score\": ");
        weft_string_add_number(t, s->baseline_score);
    }
    weft_string_add(t, "}\n");
}

int weft_samples_write(const char *run_dir, int64_t iteration,
                       const struct weft_reward_config *reward,
                       int32_t n_rewards, int32_t n,
                       const struct weft_sample_record *sample,
                       struct weft_err *err)
{
    struct weft_string t = {0};
    char *path = weft_samples_path(run_dir, iteration);
    char *dir = path ? weft_path_parent(path) : NULL;
    for (int32_t i = 0; i < n; i++)
        add_sample(&t, iteration, reward, n_rewards, &sample[i]);
    t.failed = t.failed || !dir;
    int rc = weft_string_check(&t, "samples", err);
    if (!rc)
        rc = weft_dir_create(dir, err);
    if (!rc)
        rc = weft_file_write(path, t.data ? t.data : "", t.n, err);
    weft_string_release(&t);
    weft_free(dir);
    weft_free(path);
    return rc;
}

/* The iteration of a file's name, or -1. */
static int64_t iteration_of(const char *name)
{
    char *end;
    size_t digits = strspn(name, "0123456789");
    if (digits < 6 || digits > 18)
        return -1;
    long long k = strtoll(name, &end, 10);
    return strcmp(end, ".jsonl") == 0 ? k : -1;
}

int weft_samples_truncate(const char *run_dir, int64_t n_iterations,
                          struct weft_err *err)
{
    char *dir = weft_path_join(run_dir, "samples");
    DIR *d = dir ? opendir(dir) : NULL;
    int rc = 0;
    if (!dir)
        rc = weft_err_nomem(err, "a path", strlen(run_dir));
    else if (!d && errno != ENOENT)
        rc = weft_err_sys(err, "read", dir);
    for (struct dirent *e; d && !rc && (e = readdir(d)) != NULL;) {
        int64_t k = iteration_of(e->d_name);
        if (k >= 0 && k > n_iterations
            && unlinkat(dirfd(d), e->d_name, 0) != 0)
            rc = weft_err_sys(err, "remove", e->d_name);
    }
    if (d)
        closedir(d);
    weft_free(dir);
    return rc;
}
