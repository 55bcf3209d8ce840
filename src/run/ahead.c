/* SPDX-License-Identifier: Apache-2.0 */
#include "run/ahead.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/string.h"
#include "run/common.h"

static const char in_manifest[] = "rollouts";

bool weft_ahead_is_in(const struct weft_manifest *manifest)
{
    double n;
    return weft_manifest_number(manifest, in_manifest, &n, NULL) == 0;
}

void weft_ahead_forget(struct weft_trainer *t)
{
    struct weft_ahead *a = t->ahead;
    for (int32_t i = 0; a && a->sample && i < a->n; i++) {
        weft_free(a->sample[i].token);
        weft_free(a->sample[i].logp);
        for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
            weft_free(a->sample[i].of[c]);
    }
    if (a)
        weft_free(a->sample);
    weft_free(a);
    t->ahead = NULL;
}

/* ---- What generation counted ------------------------------------------- */

static const char *const counts[] = {
    "decoded",    "prefilled", "shared",   "preempted", "chunks", "turns",
    "tail_turns", "kv_blocks", "migrated", "freed",     "cached"};

static void get_counts(const struct weft_rollout_stats *s,
                       int64_t out[WEFT_COUNT(counts)])
{
    const int64_t all[] = {s->n_decoded,    s->n_prefilled, s->n_shared,
                           s->n_preempted,  s->n_chunks,    s->n_turns,
                           s->n_tail_turns, s->most_pages,  s->n_moved,
                           s->n_freed,      s->n_cached};
    memcpy(out, all, sizeof all);
}

static struct weft_rollout_stats stats_of(
    const int64_t count[WEFT_COUNT(counts)])
{
    return (struct weft_rollout_stats){
        .n_decoded = count[0],
        .n_prefilled = count[1],
        .n_shared = count[2],
        .n_preempted = count[3],
        .n_chunks = count[4],
        .n_turns = count[5],
        .n_tail_turns = count[6],
        .most_pages = (int32_t) count[7],
        .n_moved = (int32_t) count[8],
        .n_freed = (int32_t) count[9],
        .n_cached = (int32_t) count[10],
    };
}

/* ---- Writing ----------------------------------------------------------- */

static void add_counts(const struct weft_iteration *p,
                       struct weft_string *text)
{
    int64_t count[WEFT_COUNT(counts)];
    get_counts(&p->rollout, count);
    weft_string_addf(text, "{\"iteration\": %d, \"samples\": %d",
                     p->iteration + 1, p->n_all);
    for (size_t i = 0; i < WEFT_COUNT(counts); i++)
        weft_string_addf(text, ", \"%s\": %lld", counts[i],
                         (long long) count[i]);
    weft_string_add(text, "}\n");
}

static void add_numbers(const char *key, int32_t n, const float *x,
                        struct weft_string *text)
{
    weft_string_addf(text, ", \"%s\": [", key);
    for (int32_t i = 0; i < n; i++) {
        weft_string_add(text, i > 0 ? ", " : "");
        weft_string_add_float(text, x[i]);
    }
    weft_string_add(text, "]");
}

static void add_rollout(struct weft_rollout *r, struct weft_string *text)
{
    const int32_t *token = weft_rollout_token(r);
    weft_string_addf(text,
                     "\"prompt_tokens\": %d, \"ended\": %s, \"tokens\": [",
                     r->n_prompt, r->ended ? "true" : "false");
    for (int32_t i = 0; i < r->n_total; i++)
        weft_string_addf(text, i > 0 ? ", %d" : "%d", token[i]);
    weft_string_add(text, "]");
    add_numbers("logprobs", r->n_total - r->n_prompt,
                weft_rollout_logp(r) + r->n_prompt, text);
}

/* Adds a rollout, or the n numbers that a call gave, on rank 0, to which the
 * tile is copied for that. */
static void add_tile(struct weft_trainer *t, struct weft_tile *tile,
                     const char *call, int32_t n, struct weft_string *text)
{
    const struct weft_where where = {.device = -1,
                                     .iteration = t->iteration,
                                     .micro_batch = -1,
                                     .layer = -1};
    bool away = weft_tile_place(tile) != 0;
    if (away)
        tile = weft_g_copy_to(t->seq, &where, t->rt, tile, WEFT_MEM_SAMPLES,
                              "samples to save", 0);
    if (tile && !t->recorded && weft_tile_is_here(tile)) {
        void *data = weft_tile_acquire(tile, WEFT_READ);
        if (call)
            add_numbers(call, n, data, text);
        else
            add_rollout(data, text);
        weft_tile_unacquire(tile);
    }
    if (away)
        weft_tile_release(tile);
}

static void add_sample(const struct weft_iteration *p, int32_t i,
                       struct weft_string *text)
{
    const struct weft_dataflow *flow = &p->t->flow;
    struct weft_tile *const *field = p->extra[i].field;
    int32_t n = p->sample[i].n_total - p->sample[i].n_prompt;
    weft_string_add(text, "{");
    add_tile(p->t, field[weft_iteration_set(p, i)->field], NULL, n, text);
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_iteration_keeps(p, c) && field[weft_flow_written(flow, c)])
            add_tile(p->t, field[weft_flow_written(flow, c)],
                     flow->call[c].name, n, text);
    weft_string_add(text, "}\n");
}

static int put_file(const struct weft_string *text, const char *stage,
                    int32_t n, struct weft_manifest *manifest,
                    struct weft_err *err)
{
    char *path = weft_path_join(stage, WEFT_AHEAD_FILE);
    int rc = path ? weft_string_check(text, "samples", err)
                  : weft_err_nomem(err, "a path", strlen(stage));
    if (!rc)
        rc = weft_file_write(path, text->data, text->n, err);
    if (!rc)
        rc = weft_manifest_add_file(manifest, stage, WEFT_AHEAD_FILE, err);
    if (!rc)
        rc = weft_manifest_add_number(manifest, in_manifest, n, err);
    weft_free(path);
    return rc;
}

/* What rank 0 writes of the next iteration. Collective, but for a recording. */
static int gather(struct weft_trainer *t, struct weft_string *text,
                  struct weft_err *err)
{
    const struct weft_iteration *p = t->next;
    add_counts(p, text);
    for (int32_t i = 0; i < p->n_all; i++)
        add_sample(p, i, text);
    return t->recorded ? weft_seq_status(t->seq, err)
                       : weft_seq_wait(t->seq, err);
}

int weft_ahead_write(struct weft_trainer *t, const char *stage,
                     struct weft_manifest *manifest, struct weft_err *err)
{
    struct weft_string text = {0};
    if (!t->next || t->flow.staleness == 0)
        return 0;
    int rc = gather(t, &text, err);
    if (!rc && !t->recorded && weft_world_rank() == 0)
        rc = put_file(&text, stage, t->next->n_all, manifest, err);
    weft_string_release(&text);
    return t->recorded ? rc : weft_world_agree(rc, err);
}

/* ---- Reading ----------------------------------------------------------- */

/* A line of the file, and its number for messages. */
struct line {
    const char *text;
    size_t n, number;
    char subject[32];
};

/* Takes the next line; false: there is none. */
static bool next_line(struct line *l, const char *end)
{
    const char *begin = l->text + l->n + (l->number > 0);
    if (begin >= end)
        return false;
    const char *stop = memchr(begin, '\n', (size_t) (end - begin));
    l->text = begin;
    l->n = (size_t) ((stop ? stop : end) - begin);
    l->number++;
    snprintf(l->subject, sizeof l->subject, WEFT_AHEAD_FILE ":%zu",
             l->number);
    return true;
}

static int parse(const struct line *l, json_t **out, struct weft_err *err)
{
    return weft_json_parse_texts(l->text, l->n, WEFT_AHEAD_FILE, l->number,
                                 out, err);
}

/* The first line: how many samples there are, and what generation counted. */
static int read_counts(const struct line *l, int64_t iteration,
                       struct weft_ahead *a, struct weft_err *err)
{
    int64_t count[WEFT_COUNT(counts)], n = 0, of = 0;
    json_t *root = NULL;
    int rc = parse(l, &root, err);
    if (!rc)
        rc = weft_json_int(root, l->subject, "iteration", iteration + 1,
                           iteration + 1, &of, err);
    if (!rc)
        rc = weft_json_int(root, l->subject, "samples", a->n, a->n, &n, err);
    for (size_t i = 0; i < WEFT_COUNT(counts) && !rc; i++)
        rc = weft_json_int(root, l->subject, counts[i], 0, INT64_MAX,
                           &count[i], err);
    if (!rc)
        a->stats = stats_of(count);
    json_decref(root);
    return rc;
}

static int read_tokens(const struct line *l, const json_t *array,
                       int32_t vocab, struct weft_ahead_sample *s,
                       struct weft_err *err)
{
    s->token = weft_alloc((size_t) s->n_total, sizeof *s->token);
    if (!s->token)
        return weft_err_nomem(err, "samples", (size_t) s->n_total * 4);
    for (int32_t i = 0; i < s->n_total; i++) {
        const json_t *x = json_array_get(array, (size_t) i);
        json_int_t token = json_integer_value(x);
        if (!json_is_integer(x) || token < 0 || token >= vocab)
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: 'tokens[%d]' is no token of the "
                                "model's %d",
                                l->subject, i, vocab);
        s->token[i] = (int32_t) token;
    }
    return 0;
}

/* Numbers of a response's tokens, behind n_before that are 0. */
static int read_numbers(const struct line *l, const char *key,
                        const json_t *array, int32_t n_before,
                        const struct weft_ahead_sample *s, float **out,
                        struct weft_err *err)
{
    size_t n = (size_t) (s->n_total - s->n_prompt);
    if (json_array_size(array) != n)
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: '%s' has %zu numbers for the response's %zu "
                            "tokens",
                            l->subject, key, json_array_size(array), n);
    *out = weft_alloc((size_t) n_before + n, sizeof **out);
    if (!*out)
        return weft_err_nomem(err, "samples", n * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(array, i);
        if (!json_is_number(x))
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s: '%s[%zu]' is %s, not a number",
                                l->subject, key, i, weft_json_type(x));
        (*out)[(size_t) n_before + i] = (float) json_number_value(x);
    }
    return 0;
}

/* What calls gave, as far as the line has it. */
static int read_calls(const struct line *l, const json_t *root,
                      const struct weft_dataflow *flow,
                      struct weft_ahead_sample *s, struct weft_err *err)
{
    int rc = 0;
    for (int32_t c = 1; c < flow->n_calls && !rc; c++) {
        const char *name = flow->call[c].name;
        json_t *array;
        rc = weft_json_array_or(root, l->subject, name, &array, err);
        if (!rc && array)
            rc = read_numbers(l, name, array, 0, s, &s->of[c], err);
    }
    return rc;
}

static int read_sample(const struct line *l, const struct weft_trainer *t,
                       struct weft_ahead_sample *s, struct weft_err *err)
{
    json_t *root = NULL, *tokens = NULL, *logprobs = NULL;
    int64_t n_prompt = 0, most = t->config.rollout.max_new_tokens;
    int rc = parse(l, &root, err);
    if (!rc)
        rc = weft_json_int(root, l->subject, "prompt_tokens", 1,
                           t->max_prompt, &n_prompt, err);
    if (!rc)
        rc = weft_json_bool(root, l->subject, "ended", &s->ended, err);
    if (!rc)
        rc = weft_json_array(root, l->subject, "tokens", &tokens, err);
    if (!rc)
        rc = weft_json_array(root, l->subject, "logprobs", &logprobs, err);
    int64_t n = rc ? 0 : (int64_t) json_array_size(tokens);
    s->n_prompt = (int32_t) n_prompt;
    s->n_total = (int32_t) n;
    if (!rc && (n <= n_prompt || n > n_prompt + most))
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: 'tokens' has %lld, not the prompt's %lld and "
                          "1 to %lld more",
                          l->subject, (long long) n, (long long) n_prompt,
                          (long long) most);
    if (!rc)
        rc = read_tokens(l, tokens, t->model[0].arch.shape.vocab, s, err);
    if (!rc)
        rc = read_numbers(l, "logprobs", logprobs, s->n_prompt, s, &s->logp,
                          err);
    if (!rc)
        rc = read_calls(l, root, &t->flow, s, err);
    json_decref(root);
    return rc;
}

static int read_lines(struct weft_trainer *t, const char *text, size_t n,
                      struct weft_err *err)
{
    struct weft_ahead *a = t->ahead;
    struct line l = {.text = text};
    int32_t i = 0;
    int rc = next_line(&l, text + n)
               ? read_counts(&l, t->iteration, a, err)
               : weft_err_set(err, WEFT_EFORMAT, WEFT_AHEAD_FILE " is empty");
    while (!rc && i < a->n && next_line(&l, text + n))
        rc = read_sample(&l, t, &a->sample[i++], err);
    if (!rc && i < a->n)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          WEFT_AHEAD_FILE " ends after %d of %d samples", i,
                          a->n);
    return rc;
}

/* Reads n samples. */
static int take_lines(struct weft_trainer *t, int32_t n, const char *text,
                      size_t bytes, struct weft_err *err)
{
    t->ahead = weft_alloc(1, sizeof *t->ahead);
    if (!t->ahead)
        return weft_err_nomem(err, "samples", sizeof *t->ahead);
    t->ahead->n = n;
    t->ahead->sample = weft_alloc((size_t) n, sizeof *t->ahead->sample);
    return t->ahead->sample ? read_lines(t, text, bytes, err)
                            : weft_err_nomem(err, "samples", (size_t) n * 32);
}

int weft_ahead_read(struct weft_trainer *t, const char *folder,
                    const struct weft_manifest *manifest,
                    struct weft_err *err)
{
    double samples;
    char *path, *text = NULL;
    size_t n = 0;
    if (weft_manifest_number(manifest, in_manifest, &samples, NULL))
        return 0;
    path = weft_path_join(folder, WEFT_AHEAD_FILE);
    int rc = path ? weft_file_read(path, 0, &text, &n, err)
                  : weft_err_nomem(err, "a path", strlen(folder));
    if (!rc)
        rc = take_lines(t, (int32_t) samples, text, n, err);
    if (rc)
        weft_err_prefix(err, "%s", folder);
    weft_free(text);
    weft_free(path);
    return rc;
}

int weft_ahead_lift(struct weft_trainer *t, struct weft_err *err)
{
    struct weft_string text = {0};
    bool first = weft_world_rank() == 0;
    if (!t->next)
        return 0;
    int32_t n = t->next->n_all;
    int rc = gather(t, &text, err);
    if (!rc && first)
        rc = weft_string_check(&text, "samples", err);
    weft_iteration_forget(t);
    rc = weft_world_agree(rc, err);
    if (!rc)
        rc = weft_run_share_text(&text.data, &text.n, "samples", err);
    if (!rc)
        rc = take_lines(t, n, text.data, text.n, err);
    weft_string_release(&text);
    return weft_world_agree(rc, err);
}

/* ---- Their tiles ------------------------------------------------------- */

/* A tile at the first place, which rank 0 fills; *data_out NULL: elsewhere. */
static int tile_begin(struct weft_iteration *p, const char *kind,
                      size_t bytes, struct weft_tile **out, void **data_out)
{
    struct weft_tile_id id = {"sample", kind, 0, -1, -1, 0};
    int rc = weft_tile_create(p->t->rt, &id, WEFT_MEM_SAMPLES, bytes, out,
                              p->err);
    *data_out = !rc && weft_tile_is_here(*out)
                  ? weft_tile_acquire(*out, WEFT_WRITE)
                  : NULL;
    return rc;
}

static int get_rollout(struct weft_iteration *p,
                       const struct weft_ahead_sample *s,
                       struct weft_tile **out)
{
    size_t bytes = (size_t) s->n_total * sizeof(float);
    void *data;
    int rc = tile_begin(p, "rollout", weft_rollout_bytes(s->n_total), out,
                        &data);
    struct weft_rollout *r = data;
    if (!r)
        return rc;
    *r = (struct weft_rollout){s->n_total, s->n_prompt, s->n_total, s->ended};
    memcpy(weft_rollout_token(r), s->token, bytes);
    memcpy(weft_rollout_logp(r), s->logp, bytes);
    weft_tile_unacquire(*out);
    return 0;
}

/* What calls gave, of those that infer the sample. */
static int get_calls(struct weft_iteration *p, int32_t i,
                     const struct weft_ahead_sample *s)
{
    const struct weft_dataflow *flow = &p->t->flow;
    const struct weft_iteration_set *set = weft_iteration_set(p, i);
    size_t bytes = (size_t) (s->n_total - s->n_prompt) * sizeof(float);
    int rc = 0;
    for (int32_t c = 1; c < flow->n_calls && !rc; c++) {
        int32_t f = weft_flow_written(flow, c);
        void *data;
        if (!weft_iteration_keeps(p, c) || &p->set[p->set_of[f]] != set)
            continue;
        if (!s->of[c])
            return weft_err_set(p->err, WEFT_EFORMAT,
                                WEFT_AHEAD_FILE ":%d lacks '%s'", i + 2,
                                flow->call[c].name);
        rc = tile_begin(p, flow->field[f].name, bytes, &p->extra[i].field[f],
                        &data);
        if (data) {
            memcpy(data, s->of[c], bytes);
            weft_tile_unacquire(p->extra[i].field[f]);
        }
    }
    return rc;
}

int weft_ahead_get(struct weft_iteration *p, int32_t i,
                   struct weft_sample *out)
{
    const struct weft_ahead_sample *s = &p->t->ahead->sample[i];
    if (s->n_prompt != out->n_prompt
        || memcmp(s->token, out->token, (size_t) s->n_prompt * 4) != 0)
        return weft_err_set(p->err, WEFT_EFORMAT,
                            WEFT_AHEAD_FILE ":%d answers another prompt than "
                                            "the run's",
                            i + 2);
    out->n_total = s->n_total;
    out->finished = true;
    out->ended = s->ended;
    int rc = get_rollout(p, s, &out->rollout);
    return rc ? rc : get_calls(p, i, s);
}
