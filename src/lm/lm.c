/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/lm.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "base/string.h"
#include "lm/context.h"
#include "lm/store.h"

enum { SLOTS = 32, CHUNK_STEPS = 16, PREFILL_ROWS = 256, SCORE_ROWS = 2048 };

int weft_model_open(struct weft_context *context, const char *folder,
                    const char *dtype, struct weft_model **out,
                    struct weft_err *err)
{
    if (weft_world_size() > 1)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "cannot open the model '%s' in a job of %d "
                            "processes: start one process",
                            folder, weft_world_size());
    struct weft_model *m = weft_alloc(1, sizeof *m);
    if (!m)
        return weft_err_nomem(err, "a model", sizeof *m);
    m->context = context;
    m->folder = weft_strdup(folder);
    int n_gpus = weft_rt_n_gpus(context->rt);
    int rc = m->folder ? 0 : weft_err_nomem(err, "a model", 64);
    if (!rc)
        rc = weft_store_arch(folder, dtype, 0, &m->arch, err);
    struct weft_g_layout home = {.member = NULL};
    if (!rc)
        rc = weft_g_layout_simple(
            context->rt, &m->arch.shape,
            n_gpus ? n_gpus : weft_rt_n_devices(context->rt), 1, &home, err);
    if (!rc && n_gpus) {
        weft_g_choose_products(context->seq, &home, 0, &m->arch.shape,
                               !m->arch.shape.scalar_head, false);
        rc = weft_seq_wait(context->seq, err);
    }
    if (!rc)
        rc = weft_g_model_init(context->rt, "model", &m->arch.shape, false,
                               &home, &m->tiles, err);
    weft_g_layout_release(&home);
    if (!rc)
        rc = weft_store_load(folder, NULL, &m->arch, &m->tiles, err);
    if (!rc && weft_store_has_tokenizer(folder))
        rc = weft_tokenizer_open(folder, &m->tokenizer, err);
    if (rc) {
        weft_model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

void weft_model_close(struct weft_model *m)
{
    if (!m)
        return;
    weft_g_model_release(&m->tiles);
    weft_tokenizer_free(m->tokenizer);
    weft_free(m->folder);
    weft_free(m);
}

bool weft_model_is_scalar(const struct weft_model *m)
{
    return m->arch.shape.scalar_head;
}

static const struct weft_where anywhere = {
    .device = -1, .iteration = -1, .micro_batch = -1, .layer = -1};

/* ---- Layouts ---------------------------------------------------------- */

/* Whether it is for a call to choose how many devices serve a replica; GPUs
 * have one each. */
static bool chooses(const struct weft_model *m)
{
    return m->tp == 0 && weft_rt_n_gpus(m->context->rt) == 0;
}

static struct weft_replicas_job choice_of(const struct weft_model *m)
{
    return (struct weft_replicas_job){weft_g_job_of(m->context->rt),
                                      &m->arch.shape, m->costs,
                                      m->costs_path};
}

static void tell(const struct weft_model *m, const struct weft_replicas *r)
{
    struct weft_string by = {0};
    if (m->costs)
        weft_string_addf(&by, ": %.3g s by '%s'", r->seconds, m->costs_path);
    weft_info("%d replica%s of %d device%s%s", r->dp, r->dp == 1 ? "" : "s",
              r->tp, r->tp == 1 ? "" : "s", by.data ? by.data : "");
    weft_string_release(&by);
}

/* chosen: replicas, if the model's tp does not say. */
static int layout_for(struct weft_model *m,
                      const struct weft_replicas *chosen,
                      struct weft_g_layout *out, struct weft_err *err)
{
    struct weft_rt *rt = m->context->rt;
    const struct weft_shape *shape = &m->arch.shape;
    int32_t n = weft_rt_n_devices(rt), tp = m->tp;
    if (weft_rt_n_gpus(rt) > 0)
        return weft_g_layout_copy(&m->tiles.home, out, err);
    if (tp > 0 && (tp > shape->n_blocks || n % tp != 0))
        return weft_err_set(err, WEFT_EINVAL,
                            "--tp %d: it must divide the %d devices, and be "
                            "at most the %d tensor blocks of '%s'",
                            tp, n, shape->n_blocks, m->folder);
    if (tp > 0)
        return weft_g_layout_simple(rt, shape, n / tp, tp, out, err);
    if (m->tells && n > 1
        && (chosen->tp != m->told.tp || chosen->dp != m->told.dp))
        tell(m, chosen);
    m->told = *chosen;
    return weft_g_layout_simple(rt, shape, chosen->dp, chosen->tp, out, err);
}

/* ---- Generation ------------------------------------------------------- */

/* Number of tokens of a prompt of n tokens with the longest response. */
static int32_t longest_text(const struct weft_shape *shape,
                            const struct weft_lm_options *o, int32_t n)
{
    int32_t given = o->max_new_tokens;
    return (int32_t) weft_min64(
        n + (given > 0 ? given : WEFT_LM_MAX_NEW_TOKENS),
        shape->max_positions);
}

static int check_prompts(const struct weft_model *m,
                         const struct weft_lm_options *o, int32_t n,
                         const struct weft_lm_prompt *prompt,
                         int32_t *max_total_out, struct weft_err *err)
{
    const struct weft_shape *shape = &m->arch.shape;
    int32_t longest = 0;
    if (shape->scalar_head)
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' has a scalar head and can't generate",
                            m->folder);
    for (int32_t i = 0; i < n; i++) {
        if (prompt[i].n < 1)
            return weft_err_set(err, WEFT_EINVAL,
                                "prompt %d is empty; give at least one token",
                                o->first_prompt + i);
        if (prompt[i].n > longest)
            longest = prompt[i].n;
    }
    int32_t least_new = o->max_new_tokens > 0 ? o->max_new_tokens : 1;
    if (longest > shape->max_positions - least_new)
        return weft_err_set(err, WEFT_EINVAL,
                            "a prompt of %d tokens and %d new ones exceed "
                            "the %d positions of '%s'",
                            longest, least_new, shape->max_positions,
                            m->folder);
    *max_total_out = longest_text(shape, o, longest);
    return 0;
}

static int collect_stops(const struct weft_model *m,
                         const struct weft_lm_options *o,
                         struct weft_stops *stops, struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < m->arch.n_eos && !o->ignore_eos; i++)
        weft_stops_add_id(stops, m->arch.eos[i]);
    if (o->n_stop_texts > 0 && !m->tokenizer)
        return weft_err_set(err, WEFT_ENOTFOUND, "'%s' has no tokenizer.json",
                            m->folder);
    for (int32_t i = 0; i < o->n_stop_texts && !rc; i++)
        rc = weft_stops_add_text(stops, m->tokenizer, m->folder, "--stop",
                                 o->stop_text[i], err);
    return rc;
}

static int deliver(struct weft_sample *sample, int32_t n, int32_t per_prompt,
                   weft_lm_sample_fn on_sample, void *ctx,
                   struct weft_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        const struct weft_rollout *r = weft_tile_acquire(sample[i].rollout,
                                                         WEFT_READ);
        rc = on_sample(ctx, i / per_prompt, i % per_prompt, r, err);
        weft_tile_unacquire(sample[i].rollout);
    }
    return rc;
}

static int32_t slots_of(const struct weft_lm_options *o)
{
    return o->slots ? o->slots : SLOTS;
}

/* Instances for n samples of at most max_total tokens. */
static int instances_init(struct weft_model *m,
                          const struct weft_lm_options *o,
                          const struct weft_g_layout *layout, int32_t n,
                          int32_t max_total, struct weft_g_generate *out,
                          struct weft_err *err)
{
    return weft_g_generate_init(
        &m->tiles, layout, weft_g_generate_instances(layout, n),
        weft_replicas_slots(layout, n, slots_of(o)), max_total, PREFILL_ROWS,
        o->kv_blocks, out, err);
}

static int choose_for_samples(const struct weft_model *m,
                              const struct weft_lm_options *o, int32_t n,
                              const struct weft_sample *sample,
                              struct weft_replicas *out, struct weft_err *err)
{
    const struct weft_replicas_job job = choice_of(m);
    const struct weft_replicas_samples samples = {
        .n = n,
        .sample = sample,
        .slots = slots_of(o),
        .read_rows = PREFILL_ROWS,
        .kv_tokens = (int32_t) weft_min64(
            (int64_t) o->kv_blocks * WEFT_PAGE_TOKENS, INT32_MAX)};
    return chooses(m) ? weft_replicas_of_samples(&job, &samples, out, err)
                      : 0;
}

int weft_lm_generate(struct weft_model *m, const struct weft_lm_options *o,
                     int32_t n_prompts, const struct weft_lm_prompt *prompt,
                     weft_lm_sample_fn on_sample, void *ctx,
                     struct weft_err *err)
{
    struct weft_seq *seq = m->context->seq;
    int32_t n = n_prompts * o->samples, max_total = 0;
    struct weft_g_generate gen = {0};
    struct weft_replicas chosen = {0};
    struct weft_g_layout layout = {.member = NULL};
    struct weft_g_view view = {0};
    struct weft_rollout_stats stats = {0};
    struct weft_stops stops = {0};
    struct weft_gen_args args = {
        .sampling = o->sampling,
        .first_sample = o->first_prompt * o->samples,
        .n_steps = CHUNK_STEPS,
        .prefill_tokens = PREFILL_ROWS,
        .prefix_sharing = true,
        .min_new_tokens = o->min_new_tokens,
    };
    struct weft_sample *sample = weft_alloc((size_t) n, sizeof *sample);
    if (!sample)
        return weft_err_nomem(err, "samples", (size_t) n * sizeof *sample);
    int rc = check_prompts(m, o, n_prompts, prompt, &max_total, err);
    if (!rc)
        rc = collect_stops(m, o, &stops, err);
    weft_stops_set(&stops, &args);
    for (int32_t i = 0; i < n && !rc; i++) {
        const struct weft_lm_prompt *p = &prompt[i / o->samples];
        sample[i] = (struct weft_sample){
            .prompt = i / o->samples,
            .n_prompt = p->n,
            .limit = longest_text(&m->arch.shape, o, p->n),
            .token = p->token};
    }
    if (!rc)
        rc = choose_for_samples(m, o, n, sample, &chosen, err);
    if (!rc)
        rc = layout_for(m, &chosen, &layout, err);
    if (!rc)
        rc = instances_init(m, o, &layout, n, max_total, &gen, err);
    if (!rc)
        rc = weft_g_view_open(seq, &anywhere, &m->tiles, &layout, &view, err);
    if (!rc) {
        weft_rollout_reset(&gen);
        rc = weft_rollout_run(seq, &gen, &view, &args, n, sample, NULL, NULL,
                              &stats, err);
        rc = weft_context_wait(seq, rc, err);
    }
    if (!rc)
        rc = deliver(sample, n, o->samples, on_sample, ctx, err);
    m->n_decoded += stats.n_decoded;
    m->n_prefilled += stats.n_prefilled;
    for (int32_t i = 0; i < n; i++)
        weft_tile_release(sample[i].rollout);
    if (view.model)
        weft_g_view_close(&view);
    weft_g_generate_release(&gen);
    weft_g_layout_release(&layout);
    weft_stops_release(&stops);
    weft_free(sample);
    return rc;
}

/* ---- Scoring ---------------------------------------------------------- */

/* Submits inference of n texts as one packed micro-batch on replica dp. */
static int submit(struct weft_model *m, const struct weft_g_view *view,
                  struct weft_g_copies *copies, int32_t dp, int32_t n,
                  const struct weft_lm_prompt *text, float temperature,
                  struct weft_g_infer_sample *out, struct weft_err *err)
{
    bool scalar = m->arch.shape.scalar_head;
    struct weft_tile_id id = {
        "score", "text", 0,
        -1,      -1,     weft_g_infer_out_place(&view->layout, dp)};
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        int32_t len = text[i].n;
        out[i].n_total = len;
        out[i].n_prompt = 1;
        rc = weft_tile_create(m->context->rt, &id, WEFT_MEM_SAMPLES,
                              weft_rollout_bytes(len), &out[i].rollout, err);
        if (rc)
            break;
        struct weft_rollout *r = weft_tile_acquire(out[i].rollout,
                                                   WEFT_WRITE);
        *r = (struct weft_rollout){len, 1, len, 0};
        memcpy(weft_rollout_token(r), text[i].token, (size_t) len * 4);
        weft_tile_unacquire(out[i].rollout);
        rc = weft_tile_create(m->context->rt, &id, WEFT_MEM_SAMPLES,
                              (size_t) (scalar ? 1 : len) * sizeof(float),
                              &out[i].out, err);
    }
    if (!rc)
        weft_g_infer(m->context->seq, &anywhere, view, dp,
                     scalar ? WEFT_INFER_SCORE : WEFT_INFER_LOGPROB_ALL,
                     temperature > 0 ? 1 / temperature : 1, n, out, copies,
                     NULL);
    return rc;
}

static int check_texts(const struct weft_model *m, int32_t n,
                       const struct weft_lm_prompt *text,
                       struct weft_err *err)
{
    for (int32_t i = 0; i < n; i++)
        if (text[i].n < 1 || text[i].n > m->arch.shape.max_positions)
            return weft_err_set(
                err, WEFT_EINVAL, "text %d has %d tokens; '%s' takes 1 to %d",
                i, text[i].n, m->folder, m->arch.shape.max_positions);
    return 0;
}

/* Where the micro-batch ends that begins with a text. */
static int32_t batch_end(int32_t n, const struct weft_lm_prompt *text,
                         int32_t first)
{
    int32_t end = first + 1, rows = text[first].n;
    while (end < n && rows + text[end].n <= SCORE_ROWS)
        rows += text[end++].n;
    return end;
}

static int choose_for_texts(const struct weft_model *m, int32_t n,
                            const struct weft_lm_prompt *text,
                            struct weft_replicas *out, struct weft_err *err)
{
    const struct weft_replicas_job job = choice_of(m);
    bool scalar = m->arch.shape.scalar_head;
    int32_t n_batches = 0;
    struct weft_work_rows *batch = weft_alloc((size_t) n, sizeof *batch);
    if (!batch)
        return weft_err_nomem(err, "scoring", (size_t) n * sizeof *batch);
    for (int32_t i = 0, end; i < n; i = end) {
        struct weft_work_rows *rows = &batch[n_batches++];
        end = batch_end(n, text, i);
        for (int32_t k = i; k < end; k++) {
            weft_work_rows_add(rows, 0, text[k].n);
            rows->n_targets += scalar ? 1 : text[k].n - 1;
        }
    }
    int rc = chooses(m)
               ? weft_replicas_of_batches(&job, n_batches, batch, out, err)
               : 0;
    weft_free(batch);
    return rc;
}

int weft_lm_score(struct weft_model *m, int32_t n,
                  const struct weft_lm_prompt *text, float temperature,
                  float *const logp[], struct weft_err *err)
{
    bool scalar = m->arch.shape.scalar_head;
    struct weft_g_infer_sample *sample = weft_alloc((size_t) n,
                                                    sizeof *sample);
    struct weft_g_view view = {0};
    struct weft_replicas chosen = {0};
    struct weft_g_layout layout = {.member = NULL};
    struct weft_g_copies *copies = NULL;
    if (!sample)
        return weft_err_nomem(err, "scoring", (size_t) n * sizeof *sample);
    int rc = check_texts(m, n, text, err);
    if (!rc)
        rc = choose_for_texts(m, n, text, &chosen, err);
    if (!rc)
        rc = layout_for(m, &chosen, &layout, err);
    if (!rc)
        rc = weft_g_copies_create(m->context->rt, &copies, err);
    if (!rc)
        rc = weft_g_view_open(m->context->seq, &anywhere, &m->tiles, &layout,
                              &view, err);
    for (int32_t i = 0, dp = 0, end; i < n && !rc; i = end) {
        end = batch_end(n, text, i);
        rc = submit(m, &view, copies, dp, end - i, text + i, temperature,
                    sample + i, err);
        dp = (dp + 1) % view.layout.plan.dp;
    }
    rc = weft_context_wait(m->context->seq, rc, err);
    for (int32_t i = 0; i < n; i++) {
        if (!rc) {
            const float *v = weft_tile_acquire(sample[i].out, WEFT_READ);
            memcpy(logp[i] + (scalar ? 0 : 1), v,
                   (size_t) (scalar ? 1 : text[i].n - 1) * sizeof *v);
            weft_tile_unacquire(sample[i].out);
        }
        weft_tile_release(sample[i].rollout);
        weft_tile_release(sample[i].out);
    }
    if (view.model)
        weft_g_view_close(&view);
    weft_g_copies_free(copies);
    weft_g_layout_release(&layout);
    weft_free(sample);
    return rc;
}

/* ---- Texts ------------------------------------------------------------ */

static int encode(const struct weft_model *m, const char *text,
                  size_t n_bytes, int32_t **token_out, size_t *n_out,
                  struct weft_err *err)
{
    if (!m->tokenizer)
        return weft_err_set(err, WEFT_ENOTFOUND, "'%s' has no tokenizer.json",
                            m->folder);
    int rc = weft_tokenizer_encode(m->tokenizer, text, n_bytes,
                                   WEFT_TOK_SPECIAL | WEFT_TOK_ADD_BOS,
                                   token_out, n_out, err);
    if (!rc && *n_out == 0) {
        weft_free(*token_out);
        rc = weft_err_set(err, WEFT_EINVAL, "the text is empty");
    }
    return rc;
}

int weft_model_logprobs(struct weft_model *m, const char *text,
                        size_t n_bytes, int32_t **token_out,
                        float **logprob_out, size_t *n_out,
                        struct weft_err *err)
{
    int32_t *token = NULL;
    size_t n = 0;
    if (m->arch.shape.scalar_head)
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' has a scalar head: no log-probs",
                            m->folder);
    int rc = encode(m, text, n_bytes, &token, &n, err);
    if (rc)
        return rc;
    float *logp = weft_alloc(n, sizeof *logp);
    struct weft_lm_prompt one = {token, (int32_t) n};
    rc = logp ? weft_lm_score(m, 1, &one, 1, &logp, err)
              : weft_err_nomem(err, "log-probs", n * sizeof *logp);
    if (rc) {
        weft_free(token);
        weft_free(logp);
        return rc;
    }
    logp[0] = NAN;
    *token_out = token;
    *logprob_out = logp;
    *n_out = n;
    return 0;
}

int weft_model_score(struct weft_model *m, const char *text, size_t n_bytes,
                     float *score_out, struct weft_err *err)
{
    int32_t *token = NULL;
    size_t n = 0;
    if (!m->arch.shape.scalar_head)
        return weft_err_set(err, WEFT_EINVAL,
                            "'%s' is a language model: it has no score",
                            m->folder);
    int rc = encode(m, text, n_bytes, &token, &n, err);
    if (rc)
        return rc;
    struct weft_lm_prompt one = {token, (int32_t) n};
    rc = weft_lm_score(m, 1, &one, 1, &score_out, err);
    weft_free(token);
    return rc;
}

struct take {
    struct weft_model *model;
    struct weft_completion *out;
};

static int take_completion(void *ctx, int32_t p, int32_t s,
                           const struct weft_rollout *r, struct weft_err *err)
{
    struct take *take = ctx;
    struct weft_completion c = {.n = (size_t) (r->n_total - r->n_prompt),
                                .ended = r->ended};
    char *text = NULL;
    size_t n_text = 0;
    (void) p;
    (void) s;
    c.token = weft_alloc(c.n, sizeof *c.token);
    c.logprob = weft_alloc(c.n, sizeof *c.logprob);
    int rc = c.token && c.logprob
               ? 0
               : weft_err_nomem(err, "a completion", c.n * 8);
    if (!rc) {
        memcpy(c.token, weft_rollout_token(r) + r->n_prompt, c.n * 4);
        memcpy(c.logprob, weft_rollout_logp(r) + r->n_prompt, c.n * 4);
        rc = weft_tokenizer_decode(take->model->tokenizer, c.token, c.n, true,
                                   &text, &n_text, err);
        c.text = (struct weft_str){text, n_text};
    }
    if (rc)
        weft_completion_clear(&c);
    else
        *take->out = c;
    return rc;
}

int weft_model_generate(struct weft_model *m, const char *prompt,
                        size_t n_bytes, const struct weft_generate_options *o,
                        struct weft_completion *out, struct weft_err *err)
{
    struct take take = {m, out};
    int32_t *token = NULL;
    size_t n = 0;
    struct weft_lm_options options = {
        .sampling = {o->temperature, o->top_k, o->top_p, o->seed},
        .max_new_tokens = o->max_new_tokens,
        .samples = 1,
    };
    if (o->max_new_tokens < 1 || !(o->temperature >= 0) || o->top_k < 0
        || !(o->top_p > 0 && o->top_p <= 1))
        return weft_err_set(err, WEFT_EINVAL,
                            "generate options: need max_new_tokens > 0, "
                            "temperature >= 0, top_k >= 0, 0 < top_p <= 1");
    int rc = encode(m, prompt, n_bytes, &token, &n, err);
    if (rc)
        return rc;
    struct weft_lm_prompt one = {token, (int32_t) n};
    rc = weft_lm_generate(m, &options, 1, &one, take_completion, &take, err);
    weft_free(token);
    return rc;
}

void weft_completion_clear(struct weft_completion *c)
{
    weft_str_release(&c->text);
    weft_free(c->token);
    weft_free(c->logprob);
    *c = (struct weft_completion){0};
}

void weft_array_free(void *array)
{
    weft_free(array);
}
