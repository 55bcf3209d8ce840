/* SPDX-License-Identifier: Apache-2.0 */
/* Profiling of training and inference by rows of a micro-batch. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "graphs/calls/gather.h"
#include "job/profile_inside.h"
#include "rt/graph.h"

enum {
    LONG = 512, /* tokens of a sample, at most */
    SOME = 16,
    SMALL_ROWS = 64,
    TURNS = 3,
    LATE_TURNS = 2
};

/* ---- Samples ----------------------------------------------------------- */

/* n texts of n_total tokens. */
struct texts {
    int32_t n, n_total;
    struct weft_tile **tile;
};

static void texts_release(struct texts *t)
{
    for (int32_t i = 0; t->tile && i < t->n; i++)
        weft_tile_release(t->tile[i]);
    weft_free(t->tile);
}

/* out_of: they take what replicas of a layout infer, an equal number of each;
 * or NULL. */
static int texts_create(struct weft_profile_bench *b, int32_t n,
                        int32_t n_total, const struct weft_g_layout *out_of,
                        struct texts *out, struct weft_err *err)
{
    struct weft_tile_id id = {"profiled", "text", 0, -1, -1, 0};
    int rc = 0;
    *out = (struct texts){n, n_total,
                          weft_alloc((size_t) n, sizeof *out->tile)};
    if (!out->tile)
        return weft_err_nomem(err, "texts", (size_t) n * 8);
    for (int32_t i = 0; i < n && !rc; i++) {
        if (out_of)
            id.place = weft_g_infer_out_place(out_of,
                                              i / (n / out_of->plan.dp));
        rc = weft_tile_create(b->rt, &id, WEFT_MEM_SAMPLES,
                              weft_rollout_bytes(n_total), &out->tile[i],
                              err);
        if (rc)
            break;
        struct weft_rollout *r = weft_tile_acquire(out->tile[i], WEFT_WRITE);
        memset(r, 0, weft_rollout_bytes(n_total));
        *r = (struct weft_rollout){n_total, 1, n_total, 1};
        for (int32_t k = 0; k < n_total; k++)
            weft_rollout_token(r)[k] = (k * 29 + i) % 97;
        weft_tile_unacquire(out->tile[i]);
    }
    return rc;
}

/* ---- Training ---------------------------------------------------------- */

struct training {
    struct weft_profile_bench *b;
    struct weft_g_model model;
    struct weft_g_layout layout;
    struct weft_g_grads grads;
    struct weft_g_gather *gather;
    struct weft_g_copies *copies;
    struct weft_g_order order;
};

/* A step with a micro-batch of n samples on each replica. */
static int step(struct training *t, int32_t n, int32_t n_total,
                struct weft_err *err)
{
    struct weft_profile_bench *b = t->b;
    int32_t all = n * t->layout.plan.dp, n_stats = 0;
    struct weft_pack_sample *pack = weft_alloc((size_t) all, sizeof *pack);
    struct weft_g_stats *stats = weft_alloc((size_t) all, sizeof *stats);
    struct weft_g_step *made = NULL;
    struct weft_tile *norm = NULL;
    struct texts texts = {.n = 0};
    const struct weft_g_train train = {
        .model = &t->model,
        .grads = &t->grads,
        .gather = t->gather,
        .order = &t->order,
        .copies = t->copies,
        .loss = {.loss = t->model.shape.scalar_head ? WEFT_LOSS_VALUE
                                                    : WEFT_LOSS_POLICY,
                 .inv_temperature = 1,
                 .value_clip = 0.2f},
        .adamw = {1e-6f, 0.9f, 0.999f, 1e-8f, 0, 1},
        .micro_batch_rows = n * n_total,
        .call = 1};
    int rc = pack && stats
               ? texts_create(b, all, n_total, NULL, &texts, err)
               : weft_err_nomem(err, "samples", (size_t) all * 64);
    for (int32_t i = 0; i < all && !rc; i++)
        pack[i] = (struct weft_pack_sample){.rollout = texts.tile[i],
                                            .n_prompt = 1,
                                            .n_total = n_total,
                                            .weight = 1e-3f};
    if (!rc)
        rc = weft_g_step_begin(b->seq, &train, all, pack, &made, err);
    if (!rc)
        rc = weft_g_step_submit(&made, 1, NULL, 0, err);
    if (rc)
        weft_g_step_abandon(made);
    else
        weft_g_step_end(made, stats, &n_stats, &norm);
    rc = weft_context_wait(b->seq, rc, err);
    weft_g_order_reset(&t->order);
    weft_g_copies_drop(t->copies);
    weft_tile_release(norm);
    for (int32_t i = 0; i < n_stats; i++) {
        weft_tile_release(stats[i].tile);
        weft_free(stats[i].sample);
    }
    texts_release(&texts);
    weft_free(pack);
    weft_free(stats);
    return rc;
}

/* Inference of n samples on each replica. */
static int infer(struct training *t, int32_t n, int32_t n_total,
                 struct weft_err *err)
{
    struct weft_profile_bench *b = t->b;
    const struct weft_where where = {
        .device = -1, .call = 2, .micro_batch = -1, .layer = -1};
    bool scalar = t->model.shape.scalar_head;
    int32_t all = n * t->layout.plan.dp;
    struct weft_g_infer_sample *s = weft_alloc((size_t) all, sizeof *s);
    struct texts in = {.n = 0}, out = {.n = 0};
    struct weft_g_view view = {.model = NULL};
    int rc = s ? texts_create(b, all, n_total, NULL, &in, err)
               : weft_err_nomem(err, "samples", (size_t) all * sizeof *s);
    if (!rc)
        rc = texts_create(b, all, n_total, &t->layout, &out, err);
    if (!rc)
        rc = weft_g_view_open(b->seq, &where, &t->model, &t->layout, &view,
                              err);
    for (int32_t i = 0; i < all && !rc; i++)
        s[i] = (struct weft_g_infer_sample){in.tile[i], 1, n_total,
                                            out.tile[i]};
    for (int32_t d = 0; d < t->layout.plan.dp && !rc; d++)
        weft_g_infer(b->seq, &where, &view, d,
                     scalar ? WEFT_INFER_VALUE : WEFT_INFER_LOGPROB, 1, n,
                     s + (int64_t) d * n, t->copies, NULL);
    rc = weft_context_wait(b->seq, rc, err);
    if (view.model)
        weft_g_view_close(&view);
    weft_g_copies_drop(t->copies);
    texts_release(&in);
    texts_release(&out);
    weft_free(s);
    return rc;
}

/* Micro-batches of 2, 4, ... rows: of samples of 2 tokens, of some, and of long
 * ones, for attention to more keys; each some times, as a size that is new takes
 * longer: of an even number of times the middle is the shorter one. A step of
 * training updates all weights, whatever its rows are, so that small ones double
 * twice. */
static int sizes(struct training *t, const char *what,
                 int (*run)(struct training *t, int32_t n, int32_t n_total,
                            struct weft_err *err),
                 struct weft_err *err)
{
    static const int32_t length[] = {2, SOME, LONG};
    int rc = run(t, 1, 2, err); /* to be warm */
    for (int64_t rows = 2; rows <= t->b->most_rows && !rc;
         rows *= run == step && rows < SMALL_ROWS ? 4 : 2) {
        int32_t before = 0;
        if (!weft_profile_goes_on(t->b, what, rows))
            break;
        for (size_t i = 0; i < WEFT_COUNT(length) && !rc; i++) {
            int32_t n_total = (int32_t) weft_min64(
                rows, weft_min64(length[i], t->b->longest));
            int turns = n_total <= before                 ? 0
                      : weft_clock_s() > t->b->part_end_s ? LATE_TURNS
                                                          : TURNS;
            for (int k = 0; k < turns && !rc; k++)
                rc = run(t, (int32_t) (rows / n_total), n_total, err);
            before = n_total;
        }
    }
    return rc;
}

/* Steps in which a replica has two gradient groups, whose sums it adds. */
static int two_groups(struct training *t, struct weft_err *err)
{
    const struct weft_g_grads one_each = t->grads;
    int rc = weft_g_grads_init(&t->model, 2 * t->layout.plan.dp, &t->grads,
                               err);
    for (int i = 0; i < TURNS && !rc; i++)
        rc = step(t, 2, 2, err);
    weft_g_grads_release(&t->model, &t->grads);
    t->grads = one_each;
    return rc;
}

/* A model of the same shape follows the trained one. */
static int follow(struct training *t, struct weft_err *err)
{
    const struct weft_where where = {
        .device = -1, .call = 1, .micro_batch = -1, .layer = -1};
    struct weft_profile_bench *b = t->b;
    struct weft_g_model own = {.rt = NULL};
    int rc = weft_g_model_init(b->rt, "follower", &t->model.shape, false,
                               &t->layout, &own, err);
    if (!rc && b->mix < 1)
        rc = weft_g_masters_init(&own, false, err);
    for (int i = 0; i < TURNS && !rc; i++)
        rc = weft_g_follow(b->seq, &where, &t->model, b->mix, &own, err);
    rc = weft_context_wait(b->seq, rc, err);
    weft_g_model_release(&own);
    return rc;
}

int weft_profile_train(struct weft_profile_bench *b,
                       const struct weft_shape *shape, bool trained,
                       int32_t tp, struct weft_err *err)
{
    struct training t = {.b = b};
    struct weft_shape few = *shape;
    double end_s = b->part_end_s, now_s = weft_clock_s();
    few.n_layers = weft_profile_layers(b, shape);
    if (trained) /* inference needs some of it */
        b->part_end_s = now_s + 0.75 * (end_s - now_s);
    int rc = weft_profile_model(b, &few, trained, tp, 1, &t.model, &t.layout,
                                err);
    if (!rc)
        rc = weft_g_copies_create(b->rt, &t.copies, err);
    if (!rc)
        rc = weft_g_order_init(b->rt, &t.order, err);
    if (!rc && trained)
        rc = weft_g_grads_init(&t.model, t.layout.plan.dp, &t.grads, err);
    if (!rc && trained)
        rc = weft_g_gather_create(&t.model, &t.gather, err);
    if (!rc && trained)
        rc = sizes(&t, "training, rows", step, err);
    if (!rc && trained)
        rc = two_groups(&t, err);
    if (!rc && trained && b->mix > 0)
        rc = follow(&t, err);
    b->part_end_s = end_s;
    if (!rc)
        rc = sizes(&t, "inference, rows", infer, err);
    if (trained)
        weft_g_grads_release(&t.model, &t.grads);
    weft_g_gather_free(t.gather);
    if (t.copies)
        weft_g_copies_free(t.copies);
    weft_g_order_release(&t.order);
    weft_g_model_release(&t.model);
    weft_g_layout_release(&t.layout);
    return rc;
}
