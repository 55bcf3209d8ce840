/* SPDX-License-Identifier: Apache-2.0 */
/* One iteration's working state, shared by the files iteration*.c. */
#ifndef WEFT_RUN_ITERATION_H
#define WEFT_RUN_ITERATION_H

#include "base/min_tree.h"
#include "run/seen.h"
#include "run/tail.h"
#include "run/trainer.h"

/* Samples that begin in the same field of the graph: what a call generates or
 * takes from the data. The first set is learned from. */
struct weft_iteration_set {
    struct weft_iteration *p;
    int32_t field, call; /* where they begin, and the call that writes it */
    int32_t first, n, each; /* samples first .. first + n - 1; of a prompt */
    int32_t of[WEFT_N_FIELD_TYPES]; /* its first field of a type; -1 */
    struct weft_g_view policy; /* weights for generation; model NULL: those
                                  that are the newest when it begins */
    int32_t n_round; /* of the round of generation: index[first ..] */
};

/* Tiles of one sample, by the fields of the dataflow graph; NULL: not there
 * (yet). */
struct weft_iteration_sample {
    struct weft_tile *field[WEFT_MAX_FIELDS]; /* where they are made */
    /* the same at the first place, where rank 0 reads them; borrowed */
    struct weft_tile *home[WEFT_MAX_FIELDS];
    struct weft_tile *shaped[WEFT_MAX_REWARDS]; /* models' scores in the unit
                                                   of their key; NULL: as
                                                   they are */
    int32_t number;                             /* in its round, by index */
    bool encoded; /* its texts were, for the calls that read them */
    bool judged;  /* its advantage was submitted */
    bool fetched; /* what its score is made of is at the first place */
    bool scored;  /* its rewards that are not models were computed */
    struct weft_external *answer; /* fills the rewards' field; NULL once
                                     completed */
};

/* An inference call on samples as they finish. */
struct weft_iteration_call {
    int32_t call;
    int32_t chain;                        /* of its tasks (plan/task.h) */
    const struct weft_iteration_set *set; /* of samples */
    struct weft_run_model *model;
    int32_t input; /* what it reads: a rollout, or a text in its tokens */
    int32_t field; /* what it writes */
    bool begun;    /* the model's weights are there, or on their way */
    bool open;     /* the view is open */
    struct weft_g_view view;
    int32_t *waiting; /* (set's n) finished, not yet in a micro-batch */
    int32_t n_waiting;
    int32_t n_flushed; /* micro-batches */
    int32_t turn;      /* the replica that has the next */
    int32_t *load;   /* (dp) samples that replicas have been given; where they
                          have shares, micro-batches */
    bool any_device; /* replicas are of one place, whose devices take tasks as
                        they are free */
    int32_t *replica; /* (n_devices) which has the device; -1: none */
    /* (dp) of micro-batches that wait: by the clock, when a replica's devices
     * are done, or else its load; INFINITY: they generate */
    struct weft_min_tree next;
    int32_t *length; /* (n_all) tokens of its input, where that is a text;
                          NULL: those of the samples */
    int32_t n_dealt; /* samples in micro-batches */
    double since_s;  /* by the clock below: the first of `waiting` waits */
};

/* A clock of what generation should have taken so far, by costs, and which
 * devices should have inferred by then what they were given: by it, not by a
 * clock of the machine, they are given more (iteration_deal.c). */
struct weft_iteration_deal {
    size_t n_devices;      /* of calls */
    bool paced;            /* the pace of all sets' generation is known */
    double now_s, ahead_s; /* ahead: until a later status has come; now: where
                              no pace is known, how many have */
    double *made_s;        /* (n_instances) the clock of each */
    double *others_s;      /* (n_instances) what other sets' chunks had taken
                              of its devices by then */
    double *chunks_s;      /* (n_sets, n_devices) that they take */
    double *free_s;        /* (n_devices) */
    int32_t *n_busy;       /* (n_devices) instances that generate there */
    int32_t n_generate;    /* instances */
    bool last; /* all that waits is dealt, also to those that generate */
};

/* The text of a sample. */
struct weft_iteration_text {
    struct weft_row row;
    struct weft_str prompt, response;
    int32_t n_tokens;
    bool ended;
    bool there; /* the text has been decoded */
};

/* The results of a training call that rank 0 reads. */
struct weft_iteration_update {
    struct weft_g_stats *stats; /* (n_stats) of all micro-batches */
    int32_t n_stats;
    struct weft_tile **norm; /* (n_norms) one per optimizer step */
    int32_t n_norms;
    int32_t first_stats;     /* entries of the first step */
    struct weft_tile **gate; /* (n_gates) whether steps are made; NULL: all */
    int32_t n_gates;
    struct weft_tile **moments; /* (n_moments) of the steps' advantages, where
                                   each step whitens its own */
    int32_t n_moments;
    double lr;
    enum weft_loss loss;
};

/* Samples that have left their instances (iteration_left.c). */
struct weft_iteration_left {
    /* lists of samples that have ended, -1 at their ends: by the status that
     * is acted on; (instances) those which leave it when its next one comes */
    int32_t ended, *leaves;
    int32_t *next;   /* (n_all) in its list */
    int32_t *sample; /* (n_all) the first n: those that have left by it */
    int32_t n;
};

/* Mini-batches that train while others are generated (iteration_early.c). */
struct weft_iteration_early {
    int32_t *needed; /* (n_all) the first mini-batch that needs the sample, or
                        their number */
    int32_t *left;   /* (mini-batches + 1) samples of `needed` that have not
                        left their instances */
    int32_t *order;  /* (n_all) of each set: in which samples begin */
    int32_t n;       /* mini-batches that were submitted */
    bool *due;       /* (n_all) samples that these need; NULL: all */
};

struct weft_iteration {
    struct weft_trainer *t;
    int32_t iteration;
    int32_t n, n_all; /* samples that are learned from; of all sets */
    struct weft_iteration_set set[WEFT_MAX_FIELDS];
    int32_t n_sets;
    int32_t set_of[WEFT_MAX_FIELDS];     /* of samples that have the field */
    struct weft_sample *sample;          /* (n_all) */
    struct weft_iteration_sample *extra; /* (n_all) */
    const struct weft_run_prompt **prompt; /* (n_all) */
    int64_t first_prompt; /* prompts that the run drew before */
    bool stale;    /* the first round has weights that lack the last update */
    int32_t round; /* of generation, from 0 */
    int32_t n_rounds; /* that were begun */
    int32_t *index;   /* (n_all) the samples of the round, by sets ... */
    struct weft_sample *round_sample; /* (n_all) ... while it lasts */
    int32_t n_refilled;               /* prompts that were replaced */
    /* lengths as in struct weft_recorded, noted for a replay */
    int32_t *n_total, *n_text;
    struct weft_rollout_order order; /* of statuses, of all rounds */
    struct weft_rollout_stats rollout;
    /* by calls that generate: when samples were to move, in all rounds; and
     * (refills + 1, WEFT_MAX_CALLS) which did in each */
    struct weft_tail_choice tail[WEFT_MAX_CALLS];
    struct weft_migrated *moved;
    struct weft_seen *seen;       /* NULL: not wanted */
    struct weft_tile *moments;    /* of all advantages */
    struct weft_tile *kl;         /* KTO's */
    struct weft_tile **advantage; /* (n_all) in index order */
    struct weft_iteration_update
        update[WEFT_MAX_ROLES]; /* of trained roles */
    struct weft_iteration_training
        *training;     /* in progress; NULL: it has not begun, or ended */
    bool as_completed; /* mini-batches train as their samples complete ... */
    int32_t n_early;   /* so many while others were generated */
    /* of what rank 0 tells while a status is acted on (struct
     * weft_rollout_turn); 0: none is */
    size_t told_bytes;
    struct weft_iteration_left left; /* in this round */
    struct weft_iteration_early early;
    struct weft_iteration_text *text; /* (n_all) from the rewards on */
    double (*part)[WEFT_MAX_REWARDS]; /* (n_all) unweighted rewards */
    struct weft_iteration_call call[WEFT_MAX_CALLS];
    int32_t n_calls;
    struct weft_iteration_deal deal;
    struct weft_g_view kept[WEFT_MAX_CALLS]; /* weights for inference by
                                                trained roles; as `policy` */
    struct weft_g_copies *copies;
    double start_s; /* of the iteration's own turn, see below */
    /* that rules and programs took on this rank, on the rank where they took
       most, and that this one waited for them */
    double reward_s, most_reward_s, reward_waits_s;
    struct weft_span
        rewards; /* weft_iteration_rewards(), on the runtime's clock */
    struct weft_call_time time[WEFT_MAX_CALLS]; /* of all ranks */
    struct weft_err *err;
};

/* What moved in a round, of a call's samples. */
WEFT_INLINE struct weft_migrated *weft_iteration_moved(
    const struct weft_iteration *p, int32_t round, int32_t call)
{
    return &p->moved[round * WEFT_MAX_CALLS + call];
}

/* The set of a sample; and which of its prompts the sample is of. */
const struct weft_iteration_set *weft_iteration_set(
    const struct weft_iteration *p, int32_t sample);
int32_t weft_iteration_prompt(const struct weft_iteration *p, int32_t sample);

/* A sample's tile in its set's first field of that type, where it was made or
 * at the first place; NULL: there is none. */
struct weft_tile *weft_iteration_field(const struct weft_iteration *p,
                                       int32_t sample,
                                       enum weft_field_type type);
struct weft_tile *weft_iteration_home(const struct weft_iteration *p,
                                      int32_t sample,
                                      enum weft_field_type type);
/* A sample's rollout at the first place, with the log-probs that count as the
 * old policy's. */
struct weft_tile *weft_iteration_rollout(const struct weft_iteration *p,
                                         int32_t sample);

/* The sample that this one is compared with: the first for its prompt in
 * another set, where the call that computes its advantage reads one; -1:
 * none. */
int32_t weft_iteration_baseline(const struct weft_iteration *p,
                                int32_t sample);

float weft_iteration_inv_temperature(const struct weft_config *config);

/* The call that writes a set's first field of that type; 0: none. */
int32_t weft_iteration_writer(const struct weft_iteration_set *set,
                              enum weft_field_type type);

/* Whether a sample is among those whose advantages and rewards are computed
 * now: all are, once generation has ended. */
WEFT_INLINE bool weft_iteration_due(const struct weft_iteration *p,
                                    int32_t sample)
{
    return !p->early.due || p->early.due[sample];
}

/* Keeps the weights of trained roles as they are now for the iteration's
 * generation and inference, whatever is trained meanwhile. */
int weft_iteration_keep_weights(struct weft_iteration *p);
/* Whether a call infers with weights that the run trains, and so with such. */
bool weft_iteration_keeps(const struct weft_iteration *p, int32_t call);
/* Generates the iteration's samples, takes them from the data, or from the
 * checkpoint that the run went on from (run/ahead.h). */
int weft_iteration_generate(struct weft_iteration *p);
/* Replaces prompts whose responses all have one score, as often as the run
 * says. */
int weft_iteration_refill(struct weft_iteration *p);
/* Makes the iteration's samples from rows of the data. */
int weft_iteration_data(struct weft_iteration *p);
/* How many tokens of a sample are learned. */
int32_t weft_iteration_learned(const struct weft_iteration *p, int32_t index);

/* Submits the estimate of the KL from responses to other prompts. */
int weft_iteration_kl(struct weft_iteration *p);

/* Sets up the iteration's inference calls; call it before generation, during
 * which offloaded weights come back. */
int weft_iteration_calls_init(struct weft_iteration *p);
/* The replica for the next micro-batch of n samples; -1: it waits. All have
 * them in turn or by their shares; with inter-stage fusion, where samples are
 * to move, the one that has had fewest of those whose devices generate no more.
 * While none have moved, none gets more than its part, as others will be free
 * soon. When all samples have ended, nothing waits. */
int32_t weft_iteration_replica(const struct weft_iteration *p,
                               const struct weft_iteration_call *c,
                               int32_t n);

/* Instances of all sets. */
int32_t weft_iteration_instances(const struct weft_iteration *p);
/* Before the calls of a round begin, and then for each. Errors: WEFT_ENOMEM. */
int weft_iteration_deal_init(struct weft_iteration *p);
int weft_iteration_deal_call(const struct weft_iteration *p,
                             struct weft_iteration_call *c);
void weft_iteration_deal_release(struct weft_iteration *p);
/* The clock begins, where the pace of the round's generation is known. */
void weft_iteration_deal_begin(struct weft_iteration *p);
/* An instance of a set has ended, or goes on (weft_rollout_busy_fn). */
void weft_iteration_deal_busy(const struct weft_iteration_set *set,
                              int32_t instance, bool busy);
/* From now on all that waits is dealt, or only what need not wait. */
void weft_iteration_deal_last(struct weft_iteration *p, bool last);
/* A replica is given n samples of those that wait. */
void weft_iteration_deal_give(const struct weft_iteration *p,
                              struct weft_iteration_call *c, int32_t dp,
                              int32_t n);
/* The clock goes on by a chunk of a set's generation. */
void weft_iteration_deal_turn(const struct weft_iteration_set *set,
                              const struct weft_rollout_turn *turn);
/* Whether a call's micro-batches are dealt by the clock. */
bool weft_iteration_paced(const struct weft_iteration *p,
                          const struct weft_iteration_call *c);
/* Whether samples that wait without a clock have waited for long enough for a
 * full micro-batch: where samples move, while all instances that generate have
 * told of two chunks. */
bool weft_iteration_late(const struct weft_iteration *p,
                         const struct weft_iteration_call *c);
/* What a micro-batch of it takes. */
double weft_iteration_takes(const struct weft_iteration *p,
                            const struct weft_iteration_call *c,
                            double n_tokens);
/* The replica whose devices are done first with what they were given, of those
 * that generate no more, and before another status comes; where all that waits
 * is dealt, of all. -1: none. *idle_out: it has nothing to infer now. */
int32_t weft_iteration_free(const struct weft_iteration *p,
                            const struct weft_iteration_call *c,
                            bool *idle_out);
/* A replica's devices are given a micro-batch. */
void weft_iteration_deal_add(struct weft_iteration *p,
                             const struct weft_iteration_call *c, int32_t dp,
                             double n_tokens);

/* Whether two layouts have a device together. */
bool weft_iteration_shares(const struct weft_g_layout *a,
                           const struct weft_g_layout *b);
/* Opens p->kept. */
int weft_iteration_calls_keep(struct weft_iteration *p);
/* Adds a sample whose tokens are there, or on their way, to the micro-batches
 * of all calls whose results it lacks; full micro-batches are submitted. */
int weft_iteration_calls_add(struct weft_iteration *p, int32_t index);
/* When a status has been acted on: submits what the clock says is due. */
int weft_iteration_calls_turn(const struct weft_iteration_set *set,
                              const struct weft_rollout_turn *turn);
/* Submits the micro-batches that samples wait in, however small. */
int weft_iteration_calls_flush(struct weft_iteration *p);
/* Submits the remaining micro-batches, and closes the views of the calls'
 * weights. */
int weft_iteration_calls_end(struct weft_iteration *p);
void weft_iteration_calls_release(struct weft_iteration *p);
/* Adds a sample to a call's micro-batches alone. */
int weft_iteration_call_add(struct weft_iteration *p,
                            struct weft_iteration_call *c, int32_t index);

/* Before a round; a sample has ended; and when a status has been acted on:
 * those that have left by it are p->left.sample. */
int weft_iteration_left_init(struct weft_iteration *p);
void weft_iteration_left_add(struct weft_iteration *p, int32_t sample);
void weft_iteration_left_turn(struct weft_iteration *p, int32_t instance,
                              bool more);
void weft_iteration_left_release(struct weft_iteration *p);

/* To be called before a rank waits for copies that others insert, or for what
 * rank 0 tells, or merges results: all ranks have come so far, or all get the
 * error of one that could not. Collective. */
int weft_iteration_meet(struct weft_iteration *p);

/* Waits for the samples that are due and decodes them, once: all on rank 0,
 * those that they score on others. */
int weft_iteration_texts(struct weft_iteration *p);
struct weft_reward_sample weft_iteration_reward_sample(
    const struct weft_iteration_text *text);
int weft_iteration_texts_init(struct weft_iteration *p);
/* Sample i's alone, by any thread. */
int weft_iteration_decode(const struct weft_iteration *p, int32_t i,
                          const struct weft_rollout *r,
                          struct weft_iteration_text *out,
                          struct weft_err *err);
void weft_iteration_texts_release(struct weft_iteration *p);
void weft_iteration_text_clear(struct weft_iteration_text *text);
/* Encodes the texts of n samples, index (n), for the calls that read them in
 * tokens of their own, and adds them to these. Rank 0 waits for the samples,
 * and the others for what it tells. Collective. */
int weft_iteration_retokenise(struct weft_iteration *p, int32_t n,
                              const int32_t *index);
/* All that were not yet. */
int weft_iteration_retokenise_rest(struct weft_iteration *p);

/* Submits the advantages of samples that are due; and, when all were, what is
 * computed of all: moments, the KL controller's update. */
int weft_iteration_advantages(struct weft_iteration *p);
int weft_iteration_sum_up(struct weft_iteration *p);
/* Submits the moments of n advantages, in the order of their samples' indices.
 * The caller owns the tile. */
int weft_iteration_moments(struct weft_iteration *p, bool whiten, int32_t n,
                           struct weft_tile *const advantage[],
                           struct weft_tile **out);
/* The advantages, and the rewards that are not models. */
int weft_iteration_judge(struct weft_iteration *p);

/* Begins with nothing trained, before generation: which mini-batch needs which
 * samples first. */
int weft_iteration_early_init(struct weft_iteration *p);
/* Forgets it: all samples are due from now on. */
void weft_iteration_early_release(struct weft_iteration *p);
/* When a status has been acted on, with what has left by it: submits the
 * mini-batches whose samples have left their instances, with what these samples
 * lack. */
int weft_iteration_early_turn(struct weft_iteration *p);

/* The samples in an epoch's order, order (n), and the range of mini-batch k in
 * it. */
void weft_iteration_permute(const struct weft_iteration *p, int32_t epoch,
                            uint32_t *order);
struct weft_range weft_iteration_mini_batch(const struct weft_iteration *p,
                                            int32_t k);
/* Submits all epochs and mini-batches of actor and critic that were not before:
 * one mini-batch of each alternately, or both fused into one schedule. Waits
 * while more than train.mini_batches_ahead of them have not ended; so the
 * rewards must be computed before. */
int weft_iteration_train(struct weft_iteration *p);
/* Submits the next mini-batch of each, in the first epoch, and waits for
 * none. */
int weft_iteration_train_next(struct weft_iteration *p);
void weft_iteration_train_release(struct weft_iteration *p);
void weft_iteration_update_release(struct weft_iteration_update *update);

/* Submits the normalising and clipping of reward models' scores. */
int weft_iteration_shape_scores(struct weft_iteration *p,
                                const struct weft_where *where);

/* Computes the rewards that are not models (rules, programs, callback) and
 * completes the tiles that wait for them. After an error some of these tiles
 * are not completed. Collective. */
int weft_iteration_rewards(struct weft_iteration *p);
/* Computes `part` of samples that are new, but for models: rules and programs
 * where the samples are, callbacks on rank 0. With rules or programs all ranks
 * wait here for one another, and have the same `part` and errors. Collective.
 */
int weft_iteration_score(struct weft_iteration *p);
/* On rank 0: reads models' scores into `part`, once their tiles are at the
 * first place. */
void weft_iteration_model_scores(struct weft_iteration *p);

/* Seconds of one batch of samples. `step` is the time from its first generation
 * task to its last training task. As its generation may run while the previous
 * batch trains, `step` can be longer than the time between the ends of two
 * iterations. The time of a call is from its first task to its last; `steps`
 * and `gen_work` are the run times of tasks, summed over devices. `offload` is
 * that of the copies that bring offloaded weights back, `hidden` the part of it
 * beside which the same rank ran another call. `gen_infer` is from generation's
 * first task to inference's last, `overlap` the share of inference, from its
 * first task to its last, that lay beside generation. */
struct weft_iteration_times {
    double gen_infer, overlap;
    double gen, gen_work, scoring, logps, old_logps, valuing, steps;
    double train_values, train_policy, step;
    double offload, hidden;
    double
        waited; /* sum over devices, see struct weft_call_time; below 0: not
                      known */
};
/* time: of the batch's calls on all ranks; rewards: when rank 0 computed the
 * rewards. */
void weft_iteration_times_get(
    const struct weft_dataflow *flow,
    const struct weft_call_time time[WEFT_MAX_CALLS],
    const struct weft_span *rewards, struct weft_iteration_times *out);
/* The one that a metric tells; of: WEFT_OF_GENERATION or after it. */
double weft_iteration_time(const struct weft_iteration_times *times,
                           enum weft_measured of);

/* Sets the trainer's metrics from the tiles of the finished iteration, and
 * writes samples. Call it on rank 0 alone, after the wait for the sequence. */
int weft_iteration_report(struct weft_iteration *p);
/* The part of it that tells of samples which were generated; score, baseline
 * (n): of those that are learned from, and of what they are compared with. */
int weft_iteration_report_samples(struct weft_iteration *p,
                                  const double *score,
                                  const double *baseline);

#endif
