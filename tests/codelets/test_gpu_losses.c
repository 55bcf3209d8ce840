/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses and results of heads at the places of GPUs: whole and merged from two
 * members' parts, for every kind of loss, with runs that have no weight, they
 * have the bits of CPU places, and the host never waits in between. Log-probs
 * that are not those of a rollout end the run with the CPU's sentence.
 */
#include "gpus_fixture.h"

#include "../cuda/cpu_bits.h"
#include "codelets/parts.h"

enum { N = 6, N_PROMPT = 2 };
static const int32_t n_response[N] = {3, 35, 1, 2, 33, 4};
static const float weight[N] = {0.25f, 0.25f, 0, 0, 0.5f, 0.5f};
static const struct weft_range member[2] = {{0, 1}, {1, 3}};

/* A model and samples at a place. */
struct world {
    int place;
    struct weft_where where;
    struct task_fixture f;
    struct weft_g_grads grads;
    struct weft_pack_sample sample[N];
    struct weft_tile *gate, *kto_kl;
    size_t n_kept;
    unsigned char *kept;
};

enum { ROOM = 16 << 20 };

static void keep(struct world *w, struct weft_tile *tile)
{
    size_t n = weft_tile_bytes(tile);
    REQUIRE(w->n_kept + n <= ROOM);
    memcpy(w->kept + w->n_kept, weft_tile_acquire(tile, WEFT_READ), n);
    weft_tile_unacquire(tile);
    w->n_kept += n;
}

/* ---- The world --------------------------------------------------------- */

static struct weft_pack_sample sample_at(int place, int32_t i)
{
    int32_t n = n_response[i], n_total = N_PROMPT + n;
    struct weft_pack_sample s = {.n_prompt = N_PROMPT,
                                 .n_total = n_total,
                                 .weight = weight[i],
                                 .label = i % 3 == 0 ? 1 : 0};
    s.rollout = tile_at(place, WEFT_MEM_SAMPLES, weft_rollout_bytes(n_total));
    s.advantage = tile_at(place, WEFT_MEM_SAMPLES, weft_advantage_bytes(n));
    s.value = tile_at(place, WEFT_MEM_SAMPLES, (size_t) n * 4);
    s.ref = tile_at(place, WEFT_MEM_SAMPLES, (size_t) n * 4);
    struct weft_rollout *r = weft_tile_acquire(s.rollout, WEFT_WRITE);
    struct weft_advantage *a = weft_tile_acquire(s.advantage, WEFT_WRITE);
    float *value = weft_tile_acquire(s.value, WEFT_WRITE);
    float *ref = weft_tile_acquire(s.ref, WEFT_WRITE);
    float *x = numbers(30 + (uint32_t) i, (size_t) n_total * 5);
    *r = (struct weft_rollout){n_total, N_PROMPT, n_total, 1};
    *a = (struct weft_advantage){.n = n};
    for (int32_t k = 0; k < n_total; k++) {
        weft_rollout_token(r)[k] = (k * k + 7 * i) % 270;
        weft_rollout_logp(r)[k] = -5.5f + 0.3f * x[k];
    }
    for (int32_t k = 0; k < n; k++) {
        weft_advantage_of(a)[k] = x[n_total + k];
        weft_return_of(a)[k] = x[2 * n_total + k];
        value[k] = x[3 * n_total + k];
        ref[k] = -5.5f + 0.3f * x[4 * n_total + k];
    }
    weft_free(x);
    weft_tile_unacquire(s.rollout);
    weft_tile_unacquire(s.advantage);
    weft_tile_unacquire(s.value);
    weft_tile_unacquire(s.ref);
    return s;
}

static void open_world(struct world *w, int place, bool scalar)
{
    struct weft_err err;
    struct weft_shape shape = fixture_shape(WEFT_F32, scalar, false);
    float gate = 0.5f;
    double kto_kl = 0.75;
    *w = (struct world){.place = place,
                        .where = at(place),
                        .f = {.rt = rt, .seq = seq},
                        .kept = weft_alloc(1, ROOM)};
    struct weft_g_layout home = layout_on(&shape, w->where.device, 1, 1, 1);
    fixture_open_model(&w->f, &shape, true, &home);
    weft_g_layout_release(&home);
    REQUIRE_OK(weft_g_grads_init(&w->f.model, 1, &w->grads, &err), err);
    if (place != host_place())
        weft_insert_choose_products(seq, &w->where, &w->f.model.shape, false,
                                    true);
    for (int32_t i = 0; i < N; i++)
        w->sample[i] = sample_at(place, i);
    w->gate = tile_at(place, WEFT_MEM_SAMPLES, sizeof gate);
    w->kto_kl = tile_at(place, WEFT_MEM_SAMPLES, sizeof kto_kl);
    put(w->gate, &gate);
    put(w->kto_kl, &kto_kl);
}

static void close_world(struct world *w)
{
    for (int32_t i = 0; i < N; i++) {
        weft_tile_release(w->sample[i].rollout);
        weft_tile_release(w->sample[i].advantage);
        weft_tile_release(w->sample[i].value);
        weft_tile_release(w->sample[i].ref);
    }
    weft_tile_release(w->gate);
    weft_tile_release(w->kto_kl);
    weft_g_grads_release(&w->f.model, &w->grads);
    weft_g_model_release(&w->f.model);
    weft_free(w->kept);
}

/* ---- A micro-batch ------------------------------------------------------ */

struct micro_batch {
    int32_t n_targets;
    size_t x_bytes;
    struct weft_tile *batch, *x;
};

static void pack(struct world *w, enum weft_pack_targets targets,
                 struct micro_batch *m)
{
    struct weft_batch layout;
    int32_t n_rows = 0;
    *m = (struct micro_batch){.n_targets = 0};
    for (int32_t i = 0; i < N; i++) {
        n_rows += w->sample[i].n_total;
        m->n_targets += weft_pack_n_targets(targets, &w->sample[i]);
    }
    size_t n = (size_t) (n_rows * w->f.model.shape.hidden);
    bool has_columns = targets == WEFT_TARGETS_RESPONSE;
    weft_batch_layout(n_rows, N, m->n_targets, has_columns, &layout);
    m->x_bytes = n * sizeof(float);
    m->batch = temp_at(w->place, WEFT_MEM_SAMPLES, layout.bytes);
    m->x = tile_at(w->place, WEFT_MEM_ACTIVATIONS, m->x_bytes);
    float *x = numbers(7, n);
    put(m->x, x);
    weft_free(x);
    weft_insert_pack(seq, &w->where, targets, has_columns, N, w->sample, NULL,
                     m->batch);
    must_wait();
}

static void release(struct micro_batch *m)
{
    weft_tile_release(m->batch);
    weft_tile_release(m->x);
}

static struct weft_tile *stats_at(const struct world *w, enum weft_loss loss)
{
    return temp_at(w->place, WEFT_MEM_SAMPLES,
                   (size_t) (N * weft_loss_n_stats(loss)) * sizeof(double));
}

static void zero_grads(struct world *w)
{
    weft_insert_zero(seq, &w->where, &w->grads.set[0][0].head);
    must_wait();
}

static void keep_all(struct world *w, struct weft_tile *stats,
                     struct weft_tile *dx)
{
    const struct weft_layer_tiles *head = &w->grads.set[0][0].head;
    keep(w, stats);
    keep(w, dx);
    for (int32_t b = 0; b < WEFT_MAX_BLOCKS; b++)
        if (head->block[b])
            keep(w, head->block[b]);
    keep(w, head->norms);
}

static void whole(struct world *w, const struct weft_loss_args *args,
                  const struct micro_batch *m)
{
    const struct weft_params *grad = &w->grads.set[0][0];
    struct weft_tile *dx = temp_at(w->place, WEFT_MEM_ACTIVATIONS,
                                   m->x_bytes);
    struct weft_tile *stats = stats_at(w, args->loss);
    zero_grads(w);
    int64_t before = n_waits(), pinned = n_pinned();
    weft_insert_loss(seq, &w->where, &w->f.model.shape,
                     &w->f.model.fwd[w->place], &w->f.model.bwd[w->place],
                     args, m->batch, m->x, NULL, dx, grad, stats);
    must_wait_once(before);
    check_pinned(pinned, 1 + N); /* the batch's copy; samples */
    keep_all(w, stats, dx);
    weft_tile_release(dx);
    weft_tile_release(stats);
}

/* Inserts the head's parts of two members, which the caller releases. */
static void insert_parts(struct world *w, const struct micro_batch *m,
                         struct weft_part_tile part[2])
{
    for (int k = 0; k < 2; k++) {
        part[k] = (struct weft_part_tile){
            member[k],
            temp_at(w->place, WEFT_MEM_ACTIVATIONS,
                    weft_part_head_bytes(member[k], m->n_targets))};
        weft_insert_head_part(seq, &w->where, &w->f.model.shape, member[k],
                              &w->f.model.fwd[w->place], m->batch, m->x, 1,
                              NULL, part[k].tile);
    }
}

/* As two members do it; the second one wants no statistics. */
static void merged(struct world *w, const struct weft_loss_args *args,
                   const struct micro_batch *m)
{
    const struct weft_shape *s = &w->f.model.shape;
    const struct weft_params *fwd = &w->f.model.fwd[w->place],
                             *grad = &w->grads.set[0][0];
    struct weft_part_tile part[2], roots[2];
    struct weft_tile *dx = temp_at(w->place, WEFT_MEM_ACTIVATIONS,
                                   m->x_bytes);
    struct weft_tile *stats = stats_at(w, args->loss);
    zero_grads(w);
    int64_t before = n_waits(), pinned = n_pinned();
    insert_parts(w, m, part);
    for (int k = 0; k < 2; k++) {
        struct weft_tile *dloss = temp_at(
            w->place, WEFT_MEM_ACTIVATIONS,
            weft_part_dloss_bytes(m->n_targets));
        roots[k] = (struct weft_part_tile){
            member[k],
            temp_at(w->place, WEFT_MEM_ACTIVATIONS,
                    weft_part_bytes(s, member[k],
                                    (int64_t) m->n_targets * s->hidden))};
        weft_insert_loss_merge(seq, &w->where, s, args, m->batch, 2, part,
                               dloss, k == 0 ? stats : NULL);
        weft_insert_head_backward_part(
            seq, &w->where, s, member[k], fwd, &w->f.model.bwd[w->place],
            args, m->batch, m->x, NULL, dloss, grad, roots[k].tile);
        weft_tile_release(dloss);
    }
    weft_insert_head_norm_backward(seq, &w->where, s, fwd, m->batch, m->x, 2,
                                   roots, dx, grad);
    must_wait_once(before);
    check_pinned(pinned, 7 + 2 * N); /* 7 tasks copy, 2 have losses */
    keep_all(w, stats, dx);
    for (int k = 0; k < 2; k++) {
        weft_tile_release(part[k].tile);
        weft_tile_release(roots[k].tile);
    }
    weft_tile_release(dx);
    weft_tile_release(stats);
}

/* ---- Every loss --------------------------------------------------------- */

static const struct weft_loss_args language[] = {
    {.loss = WEFT_LOSS_POLICY,
     .policy = {.clip_low = 0.2f,
                .clip_high = 0.2f,
                .entropy_coef = 0.01f,
                .kl = WEFT_KL_K3,
                .kl_coef = 0.1f}},
    {.loss = WEFT_LOSS_POLICY,
     .policy = {.clip_low = 0.2f,
                .clip_high = 0.2f,
                .kind = WEFT_POLICY_GSPO}},
    {.loss = WEFT_LOSS_SFT},
    {.loss = WEFT_LOSS_PAIRS,
     .pairs = {.beta = 0.5f, .label_smoothing = 0.1f}},
    {.loss = WEFT_LOSS_PAIRS,
     .pairs = {.beta = 0.5f, .reference_free = true}},
    {.loss = WEFT_LOSS_KTO,
     .kto = {.beta = 0.5f, .desirable = 1.5f, .undesirable = 0.75f}}};
static const struct weft_loss_args scalar[] = {
    {.loss = WEFT_LOSS_VALUE, .value_clip = 0.2f},
    {.loss = WEFT_LOSS_BRADLEY_TERRY, .center = 0.01f}};

static enum weft_pack_targets targets_of(enum weft_loss loss)
{
    return loss == WEFT_LOSS_BRADLEY_TERRY ? WEFT_TARGETS_LAST
                                           : WEFT_TARGETS_RESPONSE;
}

static void every_loss(struct world *w)
{
    bool is_scalar = w->f.model.shape.scalar_head;
    size_t n = is_scalar ? WEFT_COUNT(scalar) : WEFT_COUNT(language);
    for (size_t i = 0; i < n; i++) {
        struct weft_loss_args args = is_scalar ? scalar[i] : language[i];
        struct micro_batch m;
        args.inv_temperature = 1;
        args.gate = i % 2 ? w->gate : NULL;
        if (args.loss == WEFT_LOSS_KTO)
            args.kto_kl = w->kto_kl;
        pack(w, targets_of(args.loss), &m);
        whole(w, &args, &m);
        if (!is_scalar)
            merged(w, &args, &m);
        release(&m);
    }
}

/* Log-probs or values of all targets; by_members: of two members' parts. */
static void results(struct world *w, bool by_members, bool into_rollouts)
{
    const struct weft_shape *s = &w->f.model.shape;
    struct weft_tile *out[N];
    struct weft_part_tile part[2];
    struct micro_batch m;
    pack(w, WEFT_TARGETS_RESPONSE, &m);
    for (int i = 0; i < N; i++)
        out[i] = temp_at(w->place, WEFT_MEM_SAMPLES,
                         (size_t) n_response[i] * sizeof(float));
    int64_t before = n_waits(), pinned = n_pinned();
    if (by_members) {
        insert_parts(w, &m, part);
        weft_insert_logprob_merge(seq, &w->where, s, m.batch, 2, part, N,
                                  out);
    } else if (s->scalar_head) {
        weft_insert_value(seq, &w->where, s, &w->f.model.fwd[w->place],
                          m.batch, m.x, N, out);
    } else {
        weft_insert_logprob(seq, &w->where, s, &w->f.model.fwd[w->place],
                            m.batch, m.x, 1, N, out);
    }
    must_wait_once(before);
    /* copies for heads; the merge, which reads each target once; results */
    check_pinned(pinned, (by_members ? 2 + 1 : 1) + N);
    for (int i = 0; i < N; i++) {
        keep(w, out[i]);
        if (into_rollouts) {
            struct weft_rollout *r = weft_tile_acquire(w->sample[i].rollout,
                                                       WEFT_READ_WRITE);
            memcpy(weft_rollout_logp(r) + N_PROMPT,
                   weft_tile_acquire(out[i], WEFT_READ),
                   weft_tile_bytes(out[i]));
            weft_tile_unacquire(out[i]);
            weft_tile_unacquire(w->sample[i].rollout);
        }
        weft_tile_release(out[i]);
    }
    for (int k = 0; by_members && k < 2; k++)
        weft_tile_release(part[k].tile);
    release(&m);
}

static void run_at(struct world *w, int place, bool is_scalar)
{
    open_world(w, place, is_scalar);
    every_loss(w);
    results(w, false, false);
    if (!is_scalar)
        results(w, true, false);
}

static void bits(void)
{
    start(0);
    for (int is_scalar = 0; is_scalar < 2; is_scalar++) {
        struct world cpu, gpu;
        run_at(&cpu, host_place(), is_scalar);
        run_at(&gpu, 0, is_scalar);
        CHECK_INT((int) gpu.n_kept, (int) cpu.n_kept);
        CHECK(gpu.n_kept > 0);
        CHECK(!products_are_cpus()
              || memcmp(gpu.kept, cpu.kept, cpu.n_kept) == 0);
        close_world(&cpu);
        close_world(&gpu);
    }
    stop();
}

static void test_bits(void)
{
    each_card_order(bits);
}

/* ---- Log-probs of another model ----------------------------------------- */

/* The loss of the first update, whole or merged; stats: of the merge. */
static int first_update(struct world *w, bool by_members, bool has_stats,
                        struct weft_err *err)
{
    const struct weft_shape *s = &w->f.model.shape;
    struct weft_loss_args args = language[0];
    struct weft_part_tile part[2];
    struct weft_tile *stats = stats_at(w, args.loss);
    struct micro_batch m;
    args.inv_temperature = 1;
    args.exact_first = true;
    pack(w, WEFT_TARGETS_RESPONSE, &m);
    struct weft_tile *dx = temp_at(
        w->place, WEFT_MEM_ACTIVATIONS,
        by_members ? weft_part_dloss_bytes(m.n_targets) : m.x_bytes);
    zero_grads(w);
    if (by_members) {
        insert_parts(w, &m, part);
        weft_insert_loss_merge(seq, &w->where, s, &args, m.batch, 2, part, dx,
                               has_stats ? stats : NULL);
    } else {
        weft_insert_loss(seq, &w->where, s, &w->f.model.fwd[w->place],
                         &w->f.model.bwd[w->place], &args, m.batch, m.x, NULL,
                         dx, &w->grads.set[0][0], stats);
    }
    int rc = weft_seq_wait(seq, err);
    for (int k = 0; by_members && k < 2; k++)
        weft_tile_release(part[k].tile);
    weft_tile_release(dx);
    weft_tile_release(stats);
    release(&m);
    return rc;
}

static void disagree(void)
{
    struct world w;
    struct weft_err err, cpu;
    start(0);
    for (int place = host_place(); place >= 0; place--) {
        open_world(&w, place, false);
        for (int by_members = 0; by_members < 2; by_members++) {
            CHECK_FAILS(first_update(&w, by_members, true, &err),
                        WEFT_EINTERNAL, err,
                        "rollout and training disagree: sample 0 of the "
                        "micro-batch has a ratio off 1 by ");
            CHECK(
                strncmp(err.text, by_members ? "loss_merge on" : "loss on", 7)
                == 0);
            if (place == host_place())
                cpu = err;
            else if (products_are_cpus())
                CHECK(strcmp(strstr(err.text, "rollout and"),
                             strstr(cpu.text, "rollout and"))
                      == 0);
        }
        /* who has no statistics leaves it to the others */
        REQUIRE_OK(first_update(&w, true, false, &err), err);
        results(&w, false, true);
        REQUIRE_OK(first_update(&w, false, true, &err), err);
        REQUIRE_OK(first_update(&w, true, true, &err), err);
        close_world(&w);
    }
    stop();
}

static void test_disagree(void)
{
    each_card_order(disagree);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_bits", test_bits},
                                      {"test_disagree", test_disagree}};
    return gpus_main("codelets/gpu_losses", tests, WEFT_COUNT(tests));
}
