/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a run: one YAML file and key=value words that override
 * it. All of it is checked before the run starts. An unknown key is an error
 * that names the most similar known one; every message names file, line and
 * key.
 *
 * Keys are described in tables (config/schema.h), which are used for parsing,
 * range checks, defaults and the reference (`weft train --keys`). Keys of every
 * run are in table.c; which algorithms there are and what keys they have is
 * handed to the reader as a schema, as is what only other rooms know of a
 * value. The schema of Weft's runs is in job/run_config.h.
 */
#ifndef WEFT_CONFIG_CONFIG_H
#define WEFT_CONFIG_CONFIG_H

#include "base/dtype.h"
#include "base/err.h"

struct weft_config_algorithm;
struct weft_config_schema;

/* Where reward models learn a pair's margin from. */
enum weft_margin { WEFT_MARGIN_ROW, WEFT_MARGIN_SCORES, WEFT_MARGIN_NONE };

/* What SFT learns of a row: the response, all turns of the assistant, or all
 * tokens. */
enum weft_learn { WEFT_LEARN_RESPONSE, WEFT_LEARN_ASSISTANT, WEFT_LEARN_ALL };

enum weft_lr_schedule { WEFT_LR_CONSTANT, WEFT_LR_LINEAR, WEFT_LR_COSINE };

enum weft_loss_agg {
    WEFT_AGG_TOKEN_MEAN,
    WEFT_AGG_SEQ_MEAN_TOKEN_SUM,
    WEFT_AGG_SEQ_MEAN_TOKEN_MEAN,
    WEFT_AGG_SEQ_MEAN_TOKEN_SUM_NORM /* sum / max_new_tokens */
};

/* Over which samples advantages get mean 0 and variance 1. */
enum weft_whiten {
    WEFT_WHITEN_NONE,
    WEFT_WHITEN_ITERATION,
    WEFT_WHITEN_MINI_BATCH /* those of each optimizer step by themselves */
};

enum weft_kl_place { WEFT_KL_IN_REWARD, WEFT_KL_IN_LOSS, WEFT_KL_NOWHERE };
enum weft_kl_control { WEFT_KL_FIXED, WEFT_KL_ADAPTIVE };

enum weft_reward_type {
    WEFT_REWARD_MODEL,
    WEFT_REWARD_GSM8K,
    WEFT_REWARD_EXACT,    /* exact_match: response equals label, trimmed */
    WEFT_REWARD_BOXED,    /* last \boxed{...} equals label */
    WEFT_REWARD_REGEX,    /* PCRE2 pattern found in the response */
    WEFT_REWARD_LENGTH,   /* -|tokens - target| / target, or 0 inside */
    WEFT_REWARD_PROGRAM,  /* JSON lines over stdin/stdout */
    WEFT_REWARD_CALLBACK, /* given through the public header */
    WEFT_REWARD_THINK_ANSWER, /* <think>...</think><answer>...</answer> */
    WEFT_N_REWARD_TYPES
};

/* When fused training searches its schedule with measured stage times: after
 * the first two iterations, or after each. */
enum weft_fuse_search { WEFT_FUSE_ONCE, WEFT_FUSE_EACH_ITERATION };

/* Whether copies of a tile are kept for all devices of a node, or for each
 * device. */
enum weft_place { WEFT_PLACE_NODE, WEFT_PLACE_DEVICE };

/* runtime.devices: gpu */
enum { WEFT_ON_GPUS = -1 };
/* What messages between GPUs' memory pass through: the host's, or nothing. */
enum weft_gpu_messages { WEFT_BY_HOST, WEFT_BY_MPI };

/* Digests of what an iteration computed: none, hashes, or hashes and the
 * numbers themselves. */
enum weft_digest_kind {
    WEFT_DIGEST_NONE,
    WEFT_DIGEST_HASHES,
    WEFT_DIGEST_VALUES
};

/* Whether a reward is brought to mean 0 and variance 1: not, over the
 * iteration's samples, or over all samples so far. */
enum weft_normalize {
    WEFT_NORMALIZE_NONE,
    WEFT_NORMALIZE_BATCH,
    WEFT_NORMALIZE_RUNNING
};

enum { WEFT_MAX_REWARDS = 8, WEFT_MAX_ARGV = 32, WEFT_CONFIG_ROLES = 8 };

struct weft_reward_config {
    enum weft_reward_type type;
    float weight;                  /* default 1 */
    enum weft_normalize normalize; /* none */
    float clip;                    /* then clipped to +- this; 0: off */
    char *name;                    /* metric tag; default: the type's name */
    char *model;                   /* model: folder with a scalar head */
    bool own_tokenizer; /* model: reads texts in its folder's tokens */
    int32_t max_tokens; /* model with own_tokenizer: of a text; 0: default */
    char *method;   /* gsm8k, think_answer: "strict" (default), "flexible";
                       length: "around" (default), "most", "least" */
    char *pattern;  /* regex */
    int32_t target; /* length: tokens */
    char *command[WEFT_MAX_ARGV + 1]; /* program; NULL-terminated */
    char *directory;  /* program: where it runs; the file's folder */
    double timeout_s; /* program: per batch of answers, default 60 */
};

struct weft_optimizer_config {
    float lr;
    enum weft_lr_schedule schedule;
    int32_t warmup_steps;
    float min_lr_ratio; /* share of lr at the end of linear and cosine */
    float beta1, beta2, eps, weight_decay; /* 0.9 0.999 1e-8 0 */
    float grad_clip; /* global norm; 0: off; default 1 */
};

/* Settings of one role of the algorithm's dataflow graph. */
struct weft_role_config {
    char *folder; /* its model's */
    bool offload; /* its weights leave their places between uses; the host
                     keeps a copy */
    int32_t follow_every; /* iterations after which its weights move to the
                             policy's; 0: never */
    float follow_mix;     /* the policy's share */
    int32_t lora_rank;    /* of adapters, if it is trained; 0: none */
    bool shares;          /* the reference: the actor's weights, if that has
                             adapters; the critic: all but its head */
    struct weft_optimizer_config optim; /* if it is trained */
};

struct weft_config {
    const struct weft_config_schema *schema; /* that it was read with */
    const struct weft_config_algorithm *algorithm;
    uint64_t seed; /* 1 */
    char *run_dir;
    int32_t iterations; /* of generating and training, or steps; 0: as many
                           as the epochs */
    double epochs;      /* of the data; 0: the iterations say */

    struct {
        char *path;
        char *prompt_key, *response_key, *label_key; /* NULL: detected */
        char *chosen_key, *rejected_key;             /* the same */
        char *template; /* "auto" (default), "none", or what
                           weft_chat_open() takes */
        char *date;     /* YYYY-MM-DD, for templates that write one */
        char *system;   /* system message put first; NULL: none */
        int32_t max_prompt_tokens; /* 512 */
        /* Of every prompt and response, in the place of a file and a
         * tokenizer; 0: those are read. */
        int32_t prompt_tokens, response_tokens;
        char *long_prompts;    /* "refuse" (default), "skip", "truncate" */
        bool shuffle;          /* true */
        enum weft_learn learn; /* response */
        bool add_eos;          /* end a plain response with EOS, true */
    } data;

    /* By the slots that the algorithm's keys fill; 0 is the model that gives
     * the run its tokenizer and dtype. */
    struct weft_role_config role[WEFT_CONFIG_ROLES];

    int32_t n_rewards;
    struct weft_reward_config reward[WEFT_MAX_REWARDS];

    struct {
        int32_t prompts;            /* per iteration, 64 */
        int32_t samples_per_prompt; /* 1 */
        int32_t refills;            /* 0 */
        int32_t max_new_tokens;     /* 512 */
        int32_t min_new_tokens;     /* 0 */
        float temperature;          /* 1 */
        int32_t top_k;              /* 0 */
        float top_p;                /* 1 */
        char *stop;                 /* NULL; a string that ends a response */
        bool ignore_eos;            /* false */
        char *lengths;              /* NULL; plan/lengths.h */
        int32_t slots;              /* sequences decoded together, 32 */
        int32_t chunk_tokens;       /* decode steps per task, 16 */
        int32_t prefill_tokens;     /* prompt rows per step, 256 */
        int32_t kv_blocks;          /* of a KV cache; 0: all ever needed */
        bool prefix_sharing;        /* true */
        bool inter_stage_fusion;    /* false */
        double remaining;           /* share of the samples; 0: a fifth */
        int32_t instances;          /* 0: half of the replicas */
        char *decisions;            /* NULL; a run's decisions.jsonl */
        int32_t staleness;          /* updates that samples may lack; 0 */
    } rollout;

    struct {
        int32_t epochs, mini_batches;    /* 1, 4 or the samples */
        float gamma, lambda;             /* 1, 0.95 */
        enum weft_whiten whiten;         /* over the iteration */
        bool recompute_logprobs;         /* false */
        float clip_low, clip_high;       /* 0.2, 0.2 */
        float dual_clip;                 /* 0 off; typical 3 */
        float value_clip;                /* 0.2; 0 off */
        float entropy_coef;              /* 0 */
        enum weft_kl_place kl_place;     /* in reward */
        int32_t kl_kind;                 /* enum weft_kl from 1 */
        float kl_coef;                   /* 0.05 */
        enum weft_kl_control kl_control; /* fixed */
        float kl_target;                 /* 6 */
        float kl_stop;                   /* 0 off */
        int32_t kl_horizon;              /* 10000 samples */
        enum weft_loss_agg aggregation;  /* token-mean */
        float missing_eos_penalty;       /* subtracted from the score, 0 */
        float reward_clip;               /* 0 off */
        int32_t overlong_cache;          /* tokens; 0 off */
        float overlong_factor;           /* 1 */
        bool overlong_filter;            /* false */
        int32_t warmup; /* iterations that do not train role 0; 0 */
    } policy;

    /* Learning from preferences. Enumerations are those of the kernels. */
    struct {
        int32_t loss;                 /* sigmoid, robust, hinge, ipo */
        float beta;                   /* 0.1 */
        float label_smoothing;        /* 0 */
        bool reference_free;          /* false */
        int32_t length_normalised;    /* -1: as is usual for the loss; 0, 1 */
        float desirable, undesirable; /* weights of KTO's responses, 1 */
        enum weft_margin margin;      /* row */
        float center;                 /* 0: off */
    } preference;

    struct {
        int32_t batch;              /* samples per step, 32 */
        int32_t micro_batch_tokens; /* rows per micro-batch, 1024 */
        int32_t micro_batches;      /* of each gradient group; 0: by tokens */
        int32_t zero;               /* 0..3 */
        bool recompute;             /* false */
        bool offload_optimizer;     /* false */
        bool intra_stage_fusion;    /* false */
        int32_t joined_mini_batches;           /* fused: per schedule; 1 */
        int32_t mini_batches_ahead;            /* 16; 0: all */
        bool as_completed;                     /* false */
        char *schedule;                        /* fused; NULL: searched */
        enum weft_fuse_search schedule_search; /* once */
        int32_t schedule_evaluations;          /* 0: by schedule size */
    } train;

    struct {
        enum weft_dtype dtype;   /* f32, bf16 */
        bool default_dtype;      /* dtype is the default: role 0's */
        int32_t tensor_blocks;   /* T; 0: default of the model */
        int32_t gradient_groups; /* G; default by mini-batch size */
        bool default_groups;     /* gradient_groups is the default */
        char *isa;               /* NULL: the best of this CPU */
        bool exact;              /* true */
    } numerics;

    struct {
        int32_t devices; /* CPU devices; 0: one per core; WEFT_ON_GPUS */
        /* with WEFT_ON_GPUS alone, of each node: */
        int32_t gpus;          /* 0: all that there are */
        int32_t ranks_per_gpu; /* 1 */
        int32_t cpu_devices;   /* beside them; 0: one per core; 1 */
        double gpu_memory_gib; /* a rank's, of each; 0: what is free */
        enum weft_gpu_messages gpu_messages; /* host */
        enum weft_place place;               /* node */
        int32_t nap;                         /* -1 auto, 0, 1 */
        double watchdog_s;                   /* 300 */
        double memory_limit_gib;             /* 0: what the machine has */
        bool overlap; /* generate ahead while others train */
    } runtime;

    struct {
        int32_t every; /* iterations; 10; 0: only at the end */
        int32_t keep;  /* 2 */
        int32_t dtype; /* of model folders, enum weft_dtype; -1: the run's */
    } checkpoint;

    struct {
        bool accept_changed_inputs; /* go on when files read have changed */
    } resume;

    char *plan; /* file, or WEFT_PLAN_AUTO; NULL: `layout`, else data
                   parallel */
    struct {
        int32_t every; /* iterations; 0: never */
        double gain;   /* of an iteration, 0.03 */
    } plan_again;
    char *costs, *cluster; /* files; NULL: none */
    char *layout; /* "dp2tp2pp1,zero=1" for all calls; not with plan */

    bool trace;               /* false */
    int32_t trace_iterations; /* 3; of StarPU's own trace */
    bool tensorboard;         /* false */
    char *metric_names;       /* "verl" (default) or "trl" aliases */
    int32_t samples_kept;     /* per iteration, 8; -1: all */

    enum weft_digest_kind digest; /* none */
};

/* Reads the file, applies n_override words "a.b=value" (YAML scalars), fills
 * in defaults, and checks every range and combination, and the schema's rules.
 * The schema is borrowed until the configuration is released. Paths in the
 * file are relative to its folder; run_dir and paths in words are relative to
 * the working directory. Release with weft_config_release(). */
int weft_config_read(const char *path, int n_override,
                     const char *const *override,
                     const struct weft_config_schema *schema,
                     struct weft_config *out, struct weft_err *err);
/* The same for a file's text in memory (n bytes). name: stands in messages for
 * the file's; dir: the folder of relative paths. */
int weft_config_parse(const char *text, size_t n, const char *name,
                      const char *dir, int n_override,
                      const char *const *override,
                      const struct weft_config_schema *schema,
                      struct weft_config *out, struct weft_err *err);
void weft_config_release(struct weft_config *config);

/* The algorithm's word. */
const char *weft_config_algorithm(const struct weft_config *config);
/* Whether the plan is found when the run begins. */
#define WEFT_PLAN_AUTO "auto"
bool weft_config_plans(const struct weft_config *config);
/* Whether it learns from responses that it generates, not from the data's. */
bool weft_config_generates(const struct weft_config *config);

/* Writes the whole effective configuration as YAML with absolute paths, as the
 * run directory keeps it. Reading it back gives the same configuration. */
int weft_config_write(const struct weft_config *config, const char *path,
                      struct weft_err *err);

/* Compares the keys on which results depend, which may not change when a run
 * resumes. WEFT_EINVAL: the text names the first that differs. */
int weft_config_check_resume(const struct weft_config *old,
                             const struct weft_config *now,
                             struct weft_err *err);

/* Prints the reference of all keys: name, type, default, meaning, and which
 * algorithms have the key or another default; one per line. */
void weft_config_print_keys(const struct weft_config_schema *schema);

#endif
