/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weft: reinforcement learning from human feedback as one task graph.
 *
 * Read from top to bottom this header is the manual of the library:
 *
 *     errors      every function returns 0 or a negative code, and a sentence
 *     ranks       a program that mpirun or srun starts several times
 *     context     the runtime of this process: CPU devices or GPUs, kernels
 *     models      a Hugging Face folder: score a text, generate
 *     trainer     PPO or SFT from a configuration file, an iteration at a time
 *
 * Who wants to submit tasks of his own includes "rt/graph.h" and
 * "codelets/codelets.h" beside it. Functions of one context or trainer must
 * be called from one thread. Strings are UTF-8 and end in a zero byte. What a
 * model writes can hold zero bytes itself, so it is a struct weft_str.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ----------------------------------------------------------- */

/* Functions return 0, or one of these. */
enum weft_code {
    WEFT_OK = 0,
    WEFT_EINVAL = -1,        /* a value that makes no sense */
    WEFT_ENOMEM = -2,        /* memory ran out, or the plan does not fit */
    WEFT_EIO = -3,           /* reading, writing, a pipe */
    WEFT_ENOTFOUND = -4,     /* no such file, key, tensor */
    WEFT_EFORMAT = -5,       /* a file that is not what it claims to be */
    WEFT_EUNSUPPORTED = -6,  /* known, but not done by Weft */
    WEFT_ESTATE = -7,        /* called at the wrong time */
    WEFT_EFULL = -8,         /* disk full */
    WEFT_ETIMEOUT = -9,      /* an outside program did not answer */
    WEFT_ENUMERIC = -10,     /* NaN or infinity where a number must be */
    WEFT_EINTERRUPTED = -11, /* a signal asked to stop */
    WEFT_EINTERNAL = -12,    /* a bug of ours */
};

/* The caller's storage; `text` is one sentence for a person. */
struct weft_err {
    int code;
    char text[1024];
};

/* A text: n bytes of UTF-8, of which any may be zero (a model can write every
 * byte), and one zero byte behind them. s NULL: no text. */
struct weft_str {
    const char *s;
    size_t n;
};

/* "0.1.0" */
const char *weft_version(void);

/* ---- Ranks ------------------------------------------------------------ */

/* Processes that mpirun or srun starts are the ranks of one job. All of them
 * run the same program and call the same functions in the same order: what
 * is collective waits for all. In a program of one process these functions
 * do nothing, and may be left out. */

/* Joins the other processes; before all other calls, once. Collective.
 * Errors: Weft was built without MPI, an MPI that does not do what Weft
 * needs. */
int weft_world_open(struct weft_err *err);
/* When contexts and trainers are closed. Collective. */
void weft_world_close(void);
int weft_world_rank(void); /* 0 .. size - 1; 0 in a program of one process */
int weft_world_size(void);
/* Makes one rank's failure everybody's: returns 0 when rc is 0 on all ranks,
 * else the lowest failing rank's code, its sentence ("rank 2: ..." when it
 * is not rank 0's) in err on all. Collective. */
int weft_world_agree(int rc, struct weft_err *err);
/* Rank 0's bytes to all. Collective. */
void weft_world_share(void *data, size_t bytes);
/* The least, the largest and the sum of all ranks' numbers. Collective. */
int64_t weft_world_min(int64_t value);
int64_t weft_world_max(int64_t value);
int64_t weft_world_sum(int64_t value);

/* ---- Context ---------------------------------------------------------- */

/* One per process; owns StarPU. */
struct weft_context;

/* n_devices: CPU devices of this process; 0: one per core. Collective.
 * Errors: absurd counts, a second context, kernels this CPU lacks. Close with
 * weft_context_close(). */
int weft_context_open(int n_devices, struct weft_context **out,
                      struct weft_err *err);
/* The same on GPUs, as `runtime.devices: gpu` is for a trainer. n_gpus: of this
 * process; 0: its part of the machine's. A model lies on each of them whole.
 * Errors: also those of that key, in a sentence (no GPU, no driver or one that
 * is too old, fewer than asked for, too old a GPU). Collective. */
int weft_context_open_gpus(int n_gpus, struct weft_context **out,
                           struct weft_err *err);
/* NULL is allowed. Models of the context must be closed before. */
void weft_context_close(struct weft_context *context);

/* The task graph's runtime (rt/graph.h); borrowed. */
struct weft_rt;
struct weft_rt *weft_context_rt(struct weft_context *context);

/* ---- Models ----------------------------------------------------------- */

/* A language or reward model with its tokenizer. Only a program of one
 * process has such models; a trainer's work on ranks. */
struct weft_model;

/* Loads a Hugging Face folder. dtype: "f32" or "bf16"; NULL: what the
 * folder's config.json says (f32 for f16). Errors name file, key or tensor.
 * Close with weft_model_close(). */
int weft_model_open(struct weft_context *context, const char *folder,
                    const char *dtype, struct weft_model **out,
                    struct weft_err *err);
void weft_model_close(struct weft_model *model); /* NULL is allowed */

/* True for a model with a scalar head (reward, value). */
bool weft_model_is_scalar(const struct weft_model *model);

/* Log-probs of n_bytes of text: n tokens, and logprob[i] = log p(token i |
 * tokens before it), NAN for the first. The caller frees both with
 * weft_array_free(). Errors: empty text, scalar head. */
int weft_model_logprobs(struct weft_model *model, const char *text,
                        size_t n_bytes, int32_t **token_out,
                        float **logprob_out, size_t *n_out,
                        struct weft_err *err);
/* The score of n_bytes of text. Errors: no scalar head. */
int weft_model_score(struct weft_model *model, const char *text,
                     size_t n_bytes, float *score_out, struct weft_err *err);

struct weft_generate_options {
    int32_t max_new_tokens; /* > 0 */
    float temperature;      /* 0: greedy */
    int32_t top_k;          /* 0: all */
    float top_p;            /* 1: all */
    uint64_t seed;
};

struct weft_completion {
    struct weft_str text; /* the new text alone */
    int32_t *token;       /* (n) the new tokens */
    float *logprob;       /* (n) under softmax(logits / temperature) */
    size_t n;
    bool ended; /* by an end-of-sequence token */
};

/* One completion of n_bytes of prompt. Clear with weft_completion_clear(). */
int weft_model_generate(struct weft_model *model, const char *prompt,
                        size_t n_bytes,
                        const struct weft_generate_options *options,
                        struct weft_completion *out, struct weft_err *err);
void weft_completion_clear(struct weft_completion *completion);
void weft_array_free(void *array); /* NULL is allowed */

/* ---- Training --------------------------------------------------------- */

/* A run: configuration, models, data, run directory. On several ranks all
 * functions that take a struct weft_err are collective; rank 0 writes the
 * run directory. */
struct weft_trainer;

/* Reads a configuration, applies "key=value" words (override: n_override),
 * checks everything, loads the models, and resumes when the run directory
 * already holds a run. Opens its own context. Close with
 * weft_trainer_close(). */
int weft_trainer_open(const char *config, int n_override,
                      const char *const *override, struct weft_trainer **out,
                      struct weft_err *err);

/* A finished sample, for a reward function. Borrowed during the call. */
struct weft_reward_sample {
    struct weft_str prompt, response;
    struct weft_str label; /* none when the row has none */
    const char *row;       /* the data's JSON line, with all its columns */
    int32_t n_tokens;      /* of the response */
    bool ended;
};
/* Returns 0 and the score, or a negative code and a sentence, which stops the
 * run. */
typedef int (*weft_reward_fn)(void *ctx,
                              const struct weft_reward_sample *sample,
                              double *score_out, struct weft_err *err);
/* The same for n samples at once: a score of each into score_out (n). */
typedef int (*weft_reward_batch_fn)(void *ctx, int32_t n,
                                    const struct weft_reward_sample *sample,
                                    double *score_out, struct weft_err *err);
/* Serve the rewards of `type: callback`, one sample or an iteration's samples
 * at a time; the function set last counts. weft_trainer_step() calls it, on
 * rank 0 alone. */
void weft_trainer_set_reward(struct weft_trainer *trainer, weft_reward_fn fn,
                             void *ctx);
void weft_trainer_set_reward_batch(struct weft_trainer *trainer,
                                   weft_reward_batch_fn fn, void *ctx);

/* One iteration (PPO) or step (SFT); writes metrics, samples, a checkpoint when
 * one is due. Errors: WEFT_ESTATE after the last one; any of its parts'. */
int weft_trainer_step(struct weft_trainer *trainer, struct weft_err *err);
bool weft_trainer_done(const struct weft_trainer *trainer); /* all made */
int32_t weft_trainer_iteration(const struct weft_trainer *trainer);
/* How many the run has in all. */
int32_t weft_trainer_iterations(const struct weft_trainer *trainer);

/* A metric of the last step by its tag ("critic/score/mean"), the same on all
 * ranks. Errors: WEFT_ENOTFOUND. */
int weft_trainer_metric(const struct weft_trainer *trainer, const char *tag,
                        double *out);
/* All of them (record/metrics.h); borrowed until the next step. */
struct weft_metrics;
const struct weft_metrics *weft_trainer_metrics(
    const struct weft_trainer *trainer);
/* Writes a checkpoint now. */
int weft_trainer_checkpoint(struct weft_trainer *trainer,
                            struct weft_err *err);
void weft_trainer_close(struct weft_trainer *trainer); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
