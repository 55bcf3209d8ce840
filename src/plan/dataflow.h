/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dataflow graphs of model function calls (ReaL, section 4): what an RLHF
 * algorithm is, as data. A graph has roles (models that are trained or
 * frozen), fields (what a sample has: a rollout, log-probs, a score), and
 * calls, each of which does one thing with its role's model and reads and
 * writes fields of samples; steps are calls without a model. Samples begin with
 * a call that generates them or takes them from the data. Edges follow from
 * the fields. In iteration i, a call of a trained role reads version i of its
 * weights; the role's training call writes version i + 1. What follows a
 * trained role reads version i + 1 of it and writes its own next version.
 *
 * Algorithms are values of this type (graphs/<algorithm>.c). Plans, tiles,
 * checkpoints, times and traces number calls and roles as the graph does.
 */
#ifndef WEFT_PLAN_DATAFLOW_H
#define WEFT_PLAN_DATAFLOW_H

#include <stdbool.h>

#include "base/err.h"
#include "plan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEFT_MAX_ROLES = 16, WEFT_MAX_FIELDS = 32, WEFT_MAX_NAME = 32 };

struct weft_role {
    char name[WEFT_MAX_NAME]; /* "actor" */
    bool trained;
    bool scalar;     /* its head gives one number per token */
    bool value_head; /* such a head beside its own: it is the critic, too */
    int32_t index;   /* reward models: which of the configuration's rewards;
                      else -1 */
    int32_t slot;    /* others: where its settings are in the configuration;
                      -1: nowhere */
    /* A frozen role may follow a trained one: after every `every`-th
     * iteration its weights become mix times that role's and 1 - mix times
     * its own (TRL's sync_ref_model; mix 1: a copy). */
    int32_t follows; /* that role; -1: none */
    int32_t every;
    float mix;
    /* Or its weights are those of a trained role without its LoRA adapters, as
     * a reference's may be, and lie where that role's do. */
    int32_t shares; /* that role, which comes before it; -1: none */
};

/* What a field of a sample holds. */
enum weft_field_type {
    WEFT_FIELD_ROLLOUT,   /* tokens, and log-probs of those generated */
    WEFT_FIELD_MISMATCH,  /* tokens: the prompt with another's response */
    WEFT_FIELD_LOGP,      /* f32 per response token */
    WEFT_FIELD_OLD_LOGP,  /* the same, of the policy that generated */
    WEFT_FIELD_REREAD,    /* a rollout with these in place of its own */
    WEFT_FIELD_VALUE,     /* f32 per response token */
    WEFT_FIELD_SCORE,     /* one f32: a reward model's */
    WEFT_FIELD_ANSWER,    /* one f64: rewards from outside of the graph */
    WEFT_FIELD_ADVANTAGE, /* struct weft_advantage */
    WEFT_FIELD_KL,        /* one f64 of all samples */
    WEFT_N_FIELD_TYPES
};

struct weft_field {
    char name[WEFT_MAX_NAME]; /* "reference log-probs" */
    enum weft_field_type type;
};

enum weft_call_kind {
    WEFT_GENERATE, /* samples responses to prompts */
    WEFT_INFER,    /* forward pass on finished samples */
    WEFT_TRAIN,    /* optimizer steps on mini-batches */
    WEFT_STEP,     /* no model: rewards, advantages */
    WEFT_DATA      /* no model: rows of the data are the samples */
};

struct weft_flow_call {
    char name[WEFT_MAX_NAME]; /* "actor_train" */
    enum weft_call_kind kind;
    int32_t role;           /* -1: a step */
    uint32_t reads, writes; /* sets of fields: bit i is field[i] */
    bool
        greedy; /* generates one response to a prompt: the likeliest tokens */
};

/* call[0] is none: tasks of no call, "none". n_calls counts it. */
struct weft_dataflow {
    int32_t n_roles, n_fields, n_calls;
    /* From the second iteration on, generation and inference with a trained
     * role have its weights from so many updates before the newest: 0 or 1 */
    int32_t staleness;
    struct weft_role role[WEFT_MAX_ROLES];
    struct weft_field field[WEFT_MAX_FIELDS];
    struct weft_flow_call call[WEFT_MAX_CALLS];
};

/* ---- Making ------------------------------------------------------------ */

/* An empty graph. Names are cut to WEFT_MAX_NAME - 1 bytes. More roles, fields
 * or calls than there is room for are left out, which weft_flow_check()
 * refuses. */
void weft_flow_init(struct weft_dataflow *flow);
/* These return the number of what they add. reads, writes: sets of fields;
 * role -1: none. */
int32_t weft_flow_role(struct weft_dataflow *flow, const char *name,
                       bool trained, bool scalar);
int32_t weft_flow_field(struct weft_dataflow *flow, const char *name,
                        enum weft_field_type type);
int32_t weft_flow_call(struct weft_dataflow *flow, const char *name,
                       enum weft_call_kind kind, int32_t role, uint32_t reads,
                       uint32_t writes);
/* The set of one field; none for a negative number. */
uint32_t weft_flow_bit(int32_t field);

/* Adds the role and the call that a call's name stands for, as plans read
 * without their run's graph have them: "critic_infer", "actor_train". Returns
 * the call's number; -1: no such name ends so, or no room. */
int32_t weft_flow_guess(struct weft_dataflow *flow, const char *call);

/* ---- Asking ------------------------------------------------------------ */

int32_t weft_flow_find_call(const struct weft_dataflow *flow,
                            const char *name); /* -1: none */
int32_t weft_flow_find_role(const struct weft_dataflow *flow,
                            const char *name);
/* The first call of that kind with that role (-1: any); -1: none. */
int32_t weft_flow_call_of(const struct weft_dataflow *flow,
                          enum weft_call_kind kind, int32_t role);
/* The first field of that type in a set; -1: none. */
int32_t weft_flow_field_of(const struct weft_dataflow *flow, uint32_t set,
                           enum weft_field_type type);
/* The call that writes a field; -1: none. */
int32_t weft_flow_writer(const struct weft_dataflow *flow, int32_t field);
/* The first field that a call writes. */
int32_t weft_flow_written(const struct weft_dataflow *flow, int32_t call);
/* The field that the samples of a field began with: itself if they are
 * generated or of the data there, else that of the first field which its
 * writer reads. */
int32_t weft_flow_origin(const struct weft_dataflow *flow, int32_t field);
/* The same of the samples that a call works on. */
int32_t weft_flow_origin_of_call(const struct weft_dataflow *flow,
                                 int32_t call);
/* Whether it is a training call. */
bool weft_flow_trains(const struct weft_dataflow *flow, int32_t call);
/* Whether another role shares this one's weights. */
bool weft_flow_is_shared(const struct weft_dataflow *flow, int32_t role);
/* Whether the call's model is never trained and its weights are its own: they
 * may leave memory between uses. */
bool weft_flow_frozen(const struct weft_dataflow *flow, int32_t call);
/* Whether a role's weights move to those of the role it follows when
 * iteration number `iteration` (from 0) has trained. */
bool weft_flow_moves(const struct weft_dataflow *flow, int32_t role,
                     int32_t iteration);
/* Whether the call has a model, and so a place in plans. */
bool weft_flow_placed(const struct weft_dataflow *flow, int32_t call);

/* A role that no call uses, a field that is read and not written or written
 * twice, calls that wait for one another, a trained role without a training
 * call, a role that cannot follow another: one sentence. Errors:
 * WEFT_EINVAL. */
int weft_flow_check(const struct weft_dataflow *flow, struct weft_err *err);

/* Calls 1 .. n_calls - 1 in an order in which each comes after those whose
 * fields it reads; ties: by number. out (n_calls - 1). The graph has passed
 * weft_flow_check(). */
void weft_flow_order(const struct weft_dataflow *flow, int32_t *out);

/* The graph for people: roles, then a call per line with what it reads, writes
 * and which version of weights. The caller frees. NULL: out of memory. */
char *weft_flow_text(const struct weft_dataflow *flow);

#ifdef __cplusplus
}
#endif
#endif
