/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that a small model generates, and what inference says of them. */
#ifndef WEFT_TESTS_GENERATE_FIXTURE_H
#define WEFT_TESTS_GENERATE_FIXTURE_H

#include <math.h>

#include "codelets/task_fixture.h"

#include "lm/rollout.h"

enum { N = 9, NEW = 80 };

struct text {
    int32_t n_prompt, n_total, ended;
    int32_t token[256];
    float logp[256];
};

/* What generation is cut into. */
struct cut {
    int32_t instances, slots, steps, prefill;
    int32_t kv_blocks; /* 0: all */
    bool sharing;
    double remaining; /* share that moves to one replica; 0: none does */
    bool again; /* at first to one replica less, to one more less when three
                   quarters of these are left, and when half are */
};

static const struct weft_migrate_range no_cache = {0, 0},
                                       all_caches = {1, 256};

/* How generation is controlled. */
static struct {
    struct weft_rollout_order *order; /* NULL: as statuses come */
    void (*before)(struct task_fixture *f, const struct weft_g_generate *gen);
    weft_rollout_fn on_finished;
    /* tokens of samples that move with their caches */
    struct weft_migrate_range cached;
    int64_t n_moved_again; /* samples, in migrations after a first */
    int32_t n_migrated;    /* migrations of the last generation */
} control;

/* Before anything is written, a cache holds what is no number. */
static inline void spoil_caches(const struct weft_g_generate *gen)
{
    int32_t n = gen->layout.plan.pp * gen->layout.plan.tp;
    for (int32_t i = 0; i < gen->n_instances; i++)
        for (int32_t k = 0; k < n; k++) {
            struct weft_tile *arena = gen->instance[i].arena[k];
            memset(weft_tile_acquire(arena, WEFT_WRITE), 0xff,
                   weft_tile_bytes(arena));
            weft_tile_unacquire(arena);
        }
}

static inline struct weft_migration_when migrations(const struct cut *cut)
{
    double share = cut->remaining;
    int32_t n = cut->instances;
    struct weft_migration_when when = {.share = share,
                                       .instances = 1,
                                       .n_cached = control.cached.last > 0,
                                       .cached = {control.cached}};
    if (cut->again) {
        when.instances = n - 1;
        when.n_later = 2;
        when.later[0] = (struct weft_migrate_later){0.75 * share, n - 2};
        when.later[1] = (struct weft_migrate_later){0.5 * share, n - 3};
    }
    return when;
}

static inline bool stays_in(const struct weft_moved *m, int32_t replica)
{
    for (int32_t i = 0; i < m->n_stay; i++)
        if (m->stay[i] == replica)
            return true;
    return false;
}

/* Samples leave those replicas that go on no more, for those that do. A later
 * migration waits for the samples of the one before: it finds none
 * elsewhere. */
static inline void check_moved(const struct weft_migrated *m,
                               const struct weft_rollout_stats *stats)
{
    int32_t n_moved = 0;
    for (int32_t k = 0; k < m->n; k++) {
        const struct weft_moved *now = &m->of[k];
        const struct weft_moved *before = k ? &m->of[k - 1] : NULL;
        CHECK(!before
              || (now->n_stay < before->n_stay
                  && now->n_left < before->n_left));
        for (int32_t i = 0; i < now->n_stay; i++)
            CHECK(!before || stays_in(before, now->stay[i]));
        for (int32_t i = 0; i < now->n_moved; i++) {
            const int32_t from = now->moved[i].from;
            CHECK(!stays_in(now, from) && stays_in(now, now->moved[i].to));
            CHECK(!before || stays_in(before, from));
        }
        n_moved += now->n_moved;
        control.n_moved_again += before ? now->n_moved : 0;
    }
    control.n_migrated = m->n;
    CHECK(stats->n_moved <= n_moved); /* some end before they can */
}

/* n texts of the model in a layout; the longest has n_new tokens more than its
 * prompt. stats_out: NULL is allowed. */
static inline void generate(struct task_fixture *f,
                            const struct weft_g_layout *layout,
                            const struct cut *cut, int32_t n, int32_t n_new,
                            const struct weft_k_sampling *sampling,
                            struct text *out,
                            struct weft_rollout_stats *stats_out)
{
    struct weft_err err;
    struct weft_g_generate gen;
    struct weft_sample sample[N];
    struct weft_rollout_stats stats;
    struct weft_migrated migrated = {.n = 0};
    int32_t prompt[136];
    struct weft_gen_args args = {.sampling = *sampling,
                                 .iteration = 2,
                                 .n_steps = cut->steps,
                                 .prefill_tokens = cut->prefill,
                                 .prefix_sharing = cut->sharing,
                                 .n_stop = 3,
                                 .stop = {17, 18, 19}};
    for (int i = 0; i < 136; i++)
        prompt[i] = (i * 29 + 3) % 270;
    for (int i = 0; i < n; i++) {
        int32_t n_prompt = 1 + i * i * 2;
        sample[i] = (struct weft_sample){.n_prompt = n_prompt,
                                         .limit = n_prompt + n_new - i,
                                         .token = prompt + i % 2};
    }
    struct weft_g_view view;
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, layout, &view, &err),
        err);
    REQUIRE_OK(weft_g_generate_init(&f->model, layout, cut->instances,
                                    cut->slots, 136 + NEW, cut->prefill,
                                    cut->kv_blocks, &gen, &err),
               err);
    spoil_caches(&gen);
    weft_rollout_reset(&gen);
    if (control.before)
        control.before(f, &gen);
    struct weft_rollout_job job = {.gen = &gen,
                                   .view = &view,
                                   .args = &args,
                                   .n = n,
                                   .sample = sample,
                                   .on_finished = control.on_finished,
                                   .migrate = migrations(cut),
                                   .migrated = &migrated,
                                   .most = NEW};
    REQUIRE_OK(weft_rollout_run_all(f->seq, 1, &job, control.order, &err),
               err);
    stats = job.stats;
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    int64_t decoded = 0;
    for (int i = 0; i < n; i++) {
        const struct weft_rollout *r = weft_tile_acquire(sample[i].rollout,
                                                         WEFT_READ);
        REQUIRE(r->n_total <= 256);
        out[i].n_prompt = r->n_prompt;
        out[i].n_total = r->n_total;
        out[i].ended = r->ended;
        memcpy(out[i].token, weft_rollout_token(r), (size_t) r->n_total * 4);
        memcpy(out[i].logp, weft_rollout_logp(r), (size_t) r->n_total * 4);
        CHECK_INT(r->n_prompt, sample[i].n_prompt);
        CHECK(memcmp(out[i].token, sample[i].token, (size_t) r->n_prompt * 4)
              == 0);
        /* It stopped where it must, and not before. */
        for (int32_t k = r->n_prompt; k < r->n_total; k++) {
            bool stop = out[i].token[k] >= 17 && out[i].token[k] <= 19;
            CHECK(stop == (r->ended && k == r->n_total - 1));
        }
        CHECK(r->ended || r->n_total == sample[i].limit);
        decoded += r->n_total - r->n_prompt;
        weft_tile_unacquire(sample[i].rollout);
        weft_tile_release(sample[i].rollout);
    }
    CHECK_INT(stats.n_decoded, decoded);
    CHECK(cut->sharing || stats.n_shared == 0);
    CHECK(stats.most_pages <= gen.n_pages);
    CHECK(cut->kv_blocks > 0 || stats.n_preempted == 0);
    CHECK(stats.n_freed <= (cut->remaining > 0 ? cut->instances - 1 : 0));
    CHECK(migrated.n <= (cut->again ? 3 : 1));
    check_moved(&migrated, &stats);
    weft_migrated_release(&migrated);
    if (stats_out)
        *stats_out = stats;
    weft_g_generate_release(&gen);
    weft_g_view_close(&view);
}

/* log-probs of the responses from one packed forward pass */
static inline void score(struct task_fixture *f,
                         const struct weft_g_layout *layout, int32_t n,
                         const struct text *text, float temperature,
                         float (*logp)[NEW])
{
    int32_t place = weft_g_infer_out_place(layout, 0);
    struct weft_g_infer_sample s[N];
    struct weft_err err;
    for (int i = 0; i < n; i++) {
        s[i] = (struct weft_g_infer_sample){
            .rollout = fixture_tile(f, weft_rollout_bytes(text[i].n_total)),
            .n_prompt = text[i].n_prompt,
            .n_total = text[i].n_total,
            .out = fixture_tile_at(f, NEW * sizeof(float), place)};
        struct weft_rollout *r = weft_tile_acquire(s[i].rollout, WEFT_WRITE);
        *r = (struct weft_rollout){text[i].n_total, text[i].n_prompt,
                                   text[i].n_total, 0};
        memcpy(weft_rollout_token(r), text[i].token,
               (size_t) text[i].n_total * 4);
        weft_tile_unacquire(s[i].rollout);
    }
    struct weft_g_view view;
    struct weft_g_copies *copies;
    REQUIRE_OK(
        weft_g_view_open(f->seq, &anywhere, &f->model, layout, &view, &err),
        err);
    REQUIRE_OK(weft_g_copies_create(f->rt, &copies, &err), err);
    weft_g_infer(f->seq, &anywhere, &view, 0, WEFT_INFER_LOGPROB,
                 temperature > 0 ? 1 / temperature : 1, n, s, copies, NULL);
    weft_g_view_close(&view);
    weft_g_copies_free(copies);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    for (int i = 0; i < n; i++) {
        const float *p = weft_tile_acquire(s[i].out, WEFT_READ);
        memcpy(logp[i], p, (size_t) (text[i].n_total - text[i].n_prompt) * 4);
        weft_tile_unacquire(s[i].out);
        weft_tile_release(s[i].out);
        weft_tile_release(s[i].rollout);
    }
}

/* The model's own log-probs of its texts are the ones that were recorded. */
static inline void check_scores(struct task_fixture *f,
                                const struct weft_g_layout *layout, int32_t n,
                                const struct text *text, float temperature)
{
    static float logp[N][NEW];
    score(f, layout, n, text, temperature, logp);
    for (int i = 0; i < n; i++)
        CHECK(memcmp(logp[i], text[i].logp + text[i].n_prompt,
                     (size_t) (text[i].n_total - text[i].n_prompt) * 4)
              == 0);
}

/* As before, to a tolerance. */
static inline void check_near(struct task_fixture *f,
                              const struct weft_g_layout *layout, int32_t n,
                              const struct text *text, float temperature,
                              float tolerance)
{
    static float logp[N][NEW];
    float most = 0;
    score(f, layout, n, text, temperature, logp);
    for (int i = 0; i < n; i++)
        for (int32_t k = text[i].n_prompt; k < text[i].n_total; k++) {
            float by = fabsf(logp[i][k - text[i].n_prompt] - text[i].logp[k]);
            most = by > most || by != by ? by : most;
        }
    if (!(most <= tolerance))
        printf("\n    log-probs differ by %g\n", (double) most);
    CHECK(most <= tolerance);
}

static inline void check_same(int32_t n, const struct text *a,
                              const struct text *b)
{
    for (int i = 0; i < n; i++) {
        REQUIRE(a[i].n_total == b[i].n_total);
        CHECK(memcmp(a[i].token, b[i].token, (size_t) b[i].n_total * 4) == 0);
        CHECK(memcmp(a[i].logp, b[i].logp, (size_t) b[i].n_total * 4) == 0);
    }
}

#endif
