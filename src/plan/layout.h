/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The execution plan: for every model function call a device mesh and a
 * layout (dp, tp, pp) on it. It says where and when, never what: any plan
 * gives the same numbers (doc/numerics.md).
 *
 * Devices are numbered over the cluster, node by node, GPUs before CPU devices
 * in each. All devices of a call are of one kind, as a GPU's numbers are not a
 * CPU's to the last bit. The member (dp index
 * i, stage s, tp index k) of a call is device number (s * dp + i) * tp + k of
 * its mesh, so that a tp group is on neighbouring devices.
 *
 * Pure functions: no clock, no environment; ties are broken by index.
 */
#ifndef WEFT_PLAN_LAYOUT_H
#define WEFT_PLAN_LAYOUT_H

#include "base/limits.h"
#include "base/shape.h"
#include "plan/dataflow.h"

enum { WEFT_MAX_NODES = 1024, WEFT_MAX_STAGES = 256 };

/* Whole nodes (n_devices all of a kind), or an aligned power-of-two part of
 * one node's devices of a kind (ReaL section 4). */
struct weft_mesh {
    int32_t node, n_nodes;
    int32_t device, n_devices; /* of each node */
};

/* How samples or gradient groups are dealt to dp members (plan/shares.h): runs
 * of neighbours that have a share each; n 0: all members are alike. */
enum { WEFT_MAX_SHARES = 8 };
struct weft_share_run {
    int32_t n, share;
};
struct weft_shares {
    int32_t n;
    struct weft_share_run run[WEFT_MAX_SHARES];
};

/* The layout of one model function call. */
struct weft_call_plan {
    struct weft_mesh mesh;
    int32_t dp, tp, pp;    /* dp * tp * pp devices, the whole mesh */
    int32_t micro_batches; /* train: of every gradient group, inference: of
                              every dp member; 0: by token budget */
    int32_t zero;          /* train: 0 none, 1 optimizer state, 2 and
                              gradients, 3 and parameters are split over dp */
    /* train, with ZeRO 3: the devices of a node have all parameters between
     * them, too (ZeRO++, hierarchical partitioning): these pass between two
     * nodes once a step, for that memory */
    bool hpz;
    bool recompute; /* train: activations */
    /* to host memory between uses: a frozen model; train: the optimizer
     * state */
    bool offload;
    /* Fused pipelines (RLHFuse section 5) lie beside one another: the stages
     * of a replica, not the replicas of a stage, are neighbours; reversed:
     * the last stage first. Member (i, s, k) is device (i * pp + s) * tp + k
     * then, with pp - 1 - s for s where reversed. */
    bool contiguous, reversed;
    uint8_t unused[3]; /* 0, no padding: layouts are compared as bytes */
    struct weft_shares shares;
};

/* Seconds of an iteration, and of each call from its first task to its last; 0:
 * not known. */
struct weft_plan_times {
    double iteration_s, call_s[WEFT_MAX_CALLS];
};

/* Calls are numbered as in `flow`; those without a place, as steps are, have
 * dp 0. */
struct weft_plan {
    int32_t n_nodes, n_devices; /* of each node */
    int32_t n_gpus;             /* of these, which come first */
    struct weft_dataflow flow;  /* of which plans that were read without their
                                   run know calls and roles by name alone */
    struct weft_call_plan call[WEFT_MAX_CALLS];
    /* models train under one schedule (fuse/fuse.h); the last samples of
     * generation go on with fewer replicas (run/tail.h) */
    bool intra_stage_fusion, inter_stage_fusion;
    /* Peak bytes of device d by class, then of all together, which need not
     * come at one time; a shared place counts at each device. (n_nodes *
     * n_devices); NULL: not known. */
    int64_t (*memory)[WEFT_MEM_ALL + 1];   /* predicted, an upper bound */
    int64_t (*measured)[WEFT_MEM_ALL + 1]; /* of a run with this plan */
    /* predicted again, knowing how long that run's samples were */
    int64_t (*replayed)[WEFT_MEM_ALL + 1];
    struct weft_plan_times predicted_s, measured_s; /* of that run */
};

/* Frees what it holds, not the struct, and empties it. */
void weft_plan_release(struct weft_plan *plan);

/* ---- Places ----------------------------------------------------------- */

/* Whether a model's weights lie at the same places in two layouts, so that none
 * move from one to the other. */
bool weft_plan_lies_alike(const struct weft_call_plan *a,
                          const struct weft_call_plan *b);

/* How many devices it has. */
int32_t weft_mesh_size(const struct weft_mesh *mesh);
/* The largest mesh from node 0 device 0 of at most `most` (>= 1) devices. */
struct weft_mesh weft_mesh_largest(int32_t n_nodes, int32_t n_devices,
                                   int64_t most);
/* Device number of the mesh's i-th device. */
int32_t weft_mesh_device(const struct weft_plan *plan,
                         const struct weft_mesh *mesh, int32_t i);
/* Whether a device, by number, is in the mesh; whether it is a GPU. */
bool weft_mesh_has(const struct weft_plan *plan, const struct weft_mesh *mesh,
                   int32_t device);
bool weft_plan_is_gpu(const struct weft_plan *plan, int32_t device);
/* Whether a call, which has devices, has GPUs. */
bool weft_plan_on_gpus(const struct weft_plan *plan, int32_t call);
/* Device of a member. */
int32_t weft_plan_device(const struct weft_plan *plan,
                         const struct weft_call_plan *call, int32_t dp,
                         int32_t stage, int32_t tp);

/* Part i of n things dealt contiguously to `parts`: as even as can be, and
 * the same rule for blocks over tp and gradient groups over dp. */
struct weft_range weft_plan_range(int32_t n, int32_t parts, int32_t i);

/* Layers of each stage: first_out (pp + 1). Contiguous, at least one each,
 * the largest stage as small as can be, then the second largest and so on,
 * with the head's product counted in the last and the embedding in the first;
 * ties: earlier stages smaller. n_layers >= pp. */
void weft_plan_stages(const struct weft_shape *shape, int32_t pp,
                      int32_t *first_out);

/* ---- Order and balance ------------------------------------------------ */

/* Forward or backward of one micro-batch on a stage. */
struct weft_unit {
    int32_t micro_batch;
    bool backward;
};
/* 1F1B (Narayanan et al. 2019): min(pp - 1 - stage, n) forwards first, then
 * forward and backward in turn, so that at most pp - stage micro-batches are
 * between their forward and their backward; out (2 * n). */
void weft_plan_1f1b(int32_t pp, int32_t stage, int32_t n,
                    struct weft_unit *out);

/* Cuts n costs (>= 0) into min(parts, n) contiguous runs, the largest sum as
 * small as can be; ties: earlier runs longer. first_out (that + 1). Returns
 * how many. */
int32_t weft_plan_split_cost(int32_t n, const double *cost, int32_t parts,
                             int32_t *first_out);

/* ---- Reallocation ------------------------------------------------------ */

struct weft_move {
    int32_t from, to; /* places */
    double after;     /* bytes that pass, about, before it has come */
};
/* Bytes of a place, of all tiles together. */
struct weft_move_load {
    double sent, got; /* so far; got: from other nodes */
    double comes;     /* in all, from other nodes, about; 0: not known */
};
/* Moves that bring one tile from the places that have it to those that want
 * it and lack it, in an order in which every source has it (ReaL section 6).
 * It comes to a node once, to the place that has got least, and from there to
 * the node's others. The source is the one that may have sent it first, when it
 * has sent what it was to send, and has it itself: messages on a link share it,
 * so what a place gets comes when about all of it does. Of several it is the
 * one that has it first, then the lowest. node_of: (n_places). load (n_places)
 * is updated. move_out (n_want). Returns how many. */
int32_t weft_plan_moves(const int32_t *node_of, int32_t n_have,
                        const int32_t *have, int32_t n_want,
                        const int32_t *want, double bytes,
                        struct weft_move_load *load,
                        struct weft_move *move_out);

/* ---- Making and checking ---------------------------------------------- */

struct weft_cluster; /* plan/cluster.h */

/* What a plan is made for. */
struct weft_plan_needs {
    const struct weft_dataflow *flow; /* whose calls have places */
    int32_t n_nodes, n_devices, n_gpus;
    bool mixes; /* one model's calls may have devices of both kinds */
    int64_t device_bytes; /* memory of a device; 0: not known */
    /* its nodes, or parts of them, are the plan's; NULL: not known */
    const struct weft_cluster *cluster;
    int32_t gradient_groups;
    int32_t n_samples, n_prompts; /* of an iteration */
    int32_t slots; /* samples that an instance generates at once */
    const struct weft_shape *shape[WEFT_MAX_ROLES]; /* of each role */
};

/* How many replicas a call, which has a model, can have: gradient groups where
 * it trains, samples or prompts where it generates; else INT32_MAX. */
int32_t weft_plan_most_dp(const struct weft_plan_needs *needs, int32_t call);

/* An empty plan for them. */
void weft_plan_begin(const struct weft_plan_needs *needs,
                     struct weft_plan *out);
/* The devices of each node that plans without a search use: its GPUs, or its
 * CPU devices. */
int32_t weft_plan_n_used(const struct weft_plan_needs *needs);

/* Every call data parallel on as many devices as it can use, on GPUs where
 * there are some: training on the
 * largest mesh from node 0 of at most G devices, generation of at most
 * n_samples, inference on all. */
void weft_plan_default(const struct weft_plan_needs *needs,
                       struct weft_plan *out);
/* The uniform plan of a text: "dp2tp2pp1" (missing ones are 1), then optionally
 * ",zero=1", ",hpz", ",micro_batches=4", ",recompute", ",offload" (frozen
 * models), ",offload_optimizer", each for the calls that it means something to.
 * The mesh begins at node 0 device 0, a GPU where there are some. Errors: WEFT_EINVAL
 * names what is wrong. */
int weft_plan_uniform(const char *layout, const struct weft_plan_needs *needs,
                      struct weft_plan *out, struct weft_err *err);
/* What such a text says, of which any part may be missing: sets the degrees and
 * options that are there, and whether optimizer states are offloaded. Errors:
 * as weft_plan_uniform(). */
int weft_plan_layout_text(const char *layout, struct weft_call_plan *said,
                          bool *state_out, struct weft_err *err);

/* Every call of the graph that has a model: the plan's cluster is the run's,
 * the mesh is a mesh of one kind of device and inside of it, a model's calls
 * have one kind, dp * tp * pp is its size, tp <= T, dp <= G (train), dp <=
 * n_samples (generate; n_prompts where it is greedy), pp <= layers, zero 0 to
 * 3, and options only where they mean something. Sentences name call, number,
 * and the nearest that would do or the key of the configuration to raise
 * (numerics.tensor_blocks, numerics.gradient_groups). Errors: WEFT_EINVAL. */
int weft_plan_check(const struct weft_plan *plan,
                    const struct weft_plan_needs *needs,
                    struct weft_err *err);

/* Whether devices train nothing as a degree is as large as the run's
 * partition allows (T, G); then a sentence that names call, number and key.
 * The plan has passed weft_plan_check(). */
bool weft_plan_idle(const struct weft_plan *plan,
                    const struct weft_plan_needs *needs, char *text,
                    size_t size);

/* ---- Files ------------------------------------------------------------ */

/* plan.json (doc/formats.md). Reading: unknown keys, missing ones that have no
 * default, wrong types are refused with the key's path. Calls that `flow` does
 * not have are left out; flow NULL: the file's calls are what their names
 * say. A call that is not there has no place. Whether the plan is any good:
 * weft_plan_check(). Release with weft_plan_release(). Errors: those of
 * weft_json_read() and its getters, WEFT_ENOMEM. */
int weft_plan_read(const char *path, const struct weft_dataflow *flow,
                   struct weft_plan *out, struct weft_err *err);
/* Reads the text of a file, which messages call `name`. */
int weft_plan_parse(const char *text, size_t n, const char *name,
                    const struct weft_dataflow *flow, struct weft_plan *out,
                    struct weft_err *err);
/* Errors: those of weft_file_write(). */
int weft_plan_write(const struct weft_plan *plan, const char *path,
                    struct weft_err *err);
/* The text of the file. The caller frees. NULL: out of memory. */
char *weft_plan_json(const struct weft_plan *plan);
/* The table for people: call, mesh, dp, tp, pp, micro-batches, ZeRO,
 * recompute, offload; then seconds, and memory per device by class, where they
 * are known, predicted beside measured. The caller frees. NULL: out of
 * memory. */
char *weft_plan_explain(const struct weft_plan *plan);
/* The dataflow graph with the plan's meshes, as SVG. The plan's graph has
 * fields: it was made or read for a run. The caller frees. NULL: out of
 * memory. */
char *weft_plan_svg(const struct weft_plan *plan);

#endif
