/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frozen model that comes back from the host's copy: the same bytes at the
 * same places, one copy on a rank, as many bytes as are counted, as often as
 * wanted, and not before the optimizer steps that were inserted before.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "calls.h"
#include "base/alloc.h"
#include "graphs/calls/tiles.h"
#include "layout_fixture.h"
#include "rt/codelet.h"

static const struct weft_where behind = {.device = -1,
                                         .priority = -1,
                                         .call = CALL_REF_INFER,
                                         .iteration = 1,
                                         .micro_batch = -1,
                                         .layer = -1};

static const struct degrees homes[] = {
    {1, 1, 1, 3, 0, 0, false}, {4, 1, 1, 0, 0, 0, false},
    {1, 4, 1, 4, 0, 0, false}, {2, 2, 2, 0, 0, 0, false},
    {2, 1, 2, 4, 0, 0, false}, {8, 1, 1, 0, 0, 0, false},
};

/* ---- Hashes of what a model has ---------------------------------------- */

struct sum {
    const struct weft_g_model *m;
    struct weft_hash of_tile[4096]; /* by visit */
    size_t n, bytes;
};

static int add_tile(void *arg, int32_t place, enum weft_tile_kind kind,
                    int32_t layer, int32_t block,
                    const struct weft_range *chunks)
{
    struct sum *s = arg;
    struct weft_tile *tile = weft_g_params_tile(&s->m->fwd[place], kind,
                                                layer, block);
    (void) chunks;
    REQUIRE(tile != NULL && s->n < WEFT_COUNT(s->of_tile));
    CHECK_INT(weft_tile_place(tile), place);
    s->of_tile[s->n++] = tile_hash(tile);
    s->bytes += weft_tile_bytes(tile);
    return 0;
}

static void sum_tiles(const struct weft_g_model *m, struct sum *out)
{
    out->m = m;
    out->n = out->bytes = 0;
    (void) weft_g_home_visit(&m->shape, &m->home, add_tile, out);
}

static size_t now_bytes(struct task_fixture *f, enum weft_mem_class c)
{
    size_t now, peak;
    weft_rt_memory(f->rt, c, &now, &peak);
    return now;
}

static void close_rt(struct task_fixture *f)
{
    weft_seq_free(f->seq);
    weft_rt_stop(f->rt);
}

/* ---- Tests --------------------------------------------------------------- */

/* The host's copy of the fixture's model. */
static void host_open(struct task_fixture *f, struct weft_g_model *out)
{
    struct weft_err err;
    const struct weft_g_model *m = &f->model;
    REQUIRE_OK(
        weft_g_host_init(f->rt, "reference", &m->shape, &m->home, out, &err),
        err);
    fixture_fill(out);
}

static void restore_once(struct task_fixture *f,
                         const struct weft_g_model *host,
                         const struct sum *expected)
{
    static struct sum found;
    struct weft_err err;
    struct weft_g_model back = {.rt = NULL};
    size_t before = now_bytes(f, WEFT_MEM_WEIGHTS);
    REQUIRE_OK(weft_g_restore(f->seq, &behind, host, &f->model, &back, &err),
               err);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    CHECK_INT(now_bytes(f, WEFT_MEM_WEIGHTS), before + expected->bytes);
    sum_tiles(&back, &found);
    CHECK_INT(found.n, expected->n);
    CHECK(memcmp(found.of_tile, expected->of_tile,
                 found.n * sizeof *found.of_tile)
          == 0);
    weft_g_model_release(&back);
    CHECK_INT(now_bytes(f, WEFT_MEM_WEIGHTS), before);
    /* Tasks may still read the shape when the next use begins: it is not
     * written again. */
    back.shape.vocab++;
    REQUIRE_OK(weft_g_restore(f->seq, &behind, host, &f->model, &back, &err),
               err);
    CHECK_INT(back.shape.vocab, host->shape.vocab + 1);
    REQUIRE_OK(weft_seq_wait(f->seq, &err), err);
    weft_g_model_release(&back);
}

/* The host keeps one copy of each tile. */
static void check_bytes(struct task_fixture *f)
{
    const struct weft_g_model *m = &f->model;
    struct weft_err err;
    struct weft_g_layout single;
    struct weft_g_model whole;
    size_t sum = now_bytes(f, WEFT_MEM_HOST);
    size_t before = now_bytes(f, WEFT_MEM_WEIGHTS);
    layout_open(f, &m->shape, &one_device, &single);
    REQUIRE_OK(weft_g_model_init(f->rt, "whole", &m->shape, false, &single,
                                 &whole, &err),
               err);
    size_t one = now_bytes(f, WEFT_MEM_WEIGHTS) - before;
    weft_g_model_release(&whole);
    weft_g_layout_release(&single);
    /* members of a tp group may have norms of their own */
    CHECK(sum >= one && (m->home.plan.tp > 1 || sum == one));
    CHECK(sum <= one + one / 8);
}

static void restore_everywhere(bool place_per_device)
{
    static struct sum expected;
    struct task_fixture f;
    fixture_open_rt(&f, DEVICES, place_per_device);
    for (size_t s = 0; s < WEFT_COUNT(sketches); s++) {
        struct weft_shape shape = shape_of(&sketches[s]);
        for (size_t i = 0; i < WEFT_COUNT(homes); i++) {
            struct weft_g_layout home;
            struct weft_g_model host;
            if (!fits(&homes[i], &shape))
                continue;
            layout_open(&f, &shape, &homes[i], &home);
            fixture_open_model(&f, &shape, false, &home);
            weft_g_layout_release(&home);
            sum_tiles(&f.model, &expected);
            host_open(&f, &host);
            check_bytes(&f);
            for (int k = 0; k < 2; k++)
                restore_once(&f, &host, &expected);
            weft_g_model_release(&host);
            weft_g_model_release(&f.model);
            CHECK_INT(now_bytes(&f, WEFT_MEM_HOST), 0);
        }
    }
    close_rt(&f);
}

static void test_restore_places(void)
{
    restore_everywhere(true);
}

static void test_restore_one_place(void)
{
    restore_everywhere(false);
}

/* ---- After the optimizer's steps ---------------------------------------- */

static atomic_bool last_ran;
static size_t seen_bytes;

/* An optimizer step that lasts until nothing of higher priority than the last
 * task's is ready; then it looks at the weights. */
static int step_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    struct task_fixture *f = *(struct task_fixture *const *) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    while (!atomic_load(&last_ran))
        usleep(100);
    seen_bytes = now_bytes(f, WEFT_MEM_WEIGHTS);
    return 0;
}
WEFT_CODELET(step, 0x0, step_cpu)

static int last_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    atomic_store(&last_ran, true);
    return 0;
}
WEFT_CODELET(last, 0x0, last_cpu)

/* Memory is taken when the step that writes the last state has ended. */
static void test_restore_waits(void)
{
    struct task_fixture f, *at = &f;
    struct weft_err err;
    struct weft_g_layout home;
    struct weft_g_model host, back = {.rt = NULL};
    struct weft_where where = behind;
    struct weft_shape shape = shape_of(&sketches[0]);
    fixture_open_rt(&f, DEVICES, false);
    layout_open(&f, &shape, &homes[1], &home);
    fixture_open_model(&f, &shape, true, &home);
    weft_g_layout_release(&home);
    host_open(&f, &host);
    size_t before = now_bytes(&f, WEFT_MEM_WEIGHTS);
    atomic_store(&last_ran, false);
    struct weft_access state = {weft_g_last_state(&f.model, 0),
                                WEFT_READ_WRITE};
    REQUIRE(state.tile != NULL);
    weft_insert(f.seq, &weft_cl_step, &at, sizeof at, &state, 1, &where);
    REQUIRE_OK(weft_g_restore(f.seq, &behind, &host, &f.model, &back, &err),
               err);
    struct weft_tile *tile = fixture_tile_at(&f, 64, 0);
    struct weft_access access = {tile, WEFT_READ_WRITE};
    where.priority = behind.priority - 1;
    weft_insert(f.seq, &weft_cl_last, NULL, 0, &access, 1, &where);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    CHECK_INT(seen_bytes, before);
    CHECK(now_bytes(&f, WEFT_MEM_WEIGHTS) > before);
    weft_tile_release(tile);
    weft_g_model_release(&back);
    weft_g_model_release(&host);
    weft_g_model_release(&f.model);
    close_rt(&f);
}

/* Where no optimizer step is made, it is taken when what came back before has
 * been given back. */
static void test_restore_in_turn(void)
{
    struct task_fixture f, *at = &f;
    struct weft_err err;
    struct weft_g_layout home;
    struct weft_g_model host, back = {.rt = NULL};
    struct weft_where where = behind;
    struct weft_shape shape = shape_of(&sketches[0]);
    size_t before, peak;
    fixture_open_rt(&f, DEVICES, false);
    layout_open(&f, &shape, &homes[1], &home);
    fixture_open_model(&f, &shape, false, &home);
    weft_g_layout_release(&home);
    host_open(&f, &host);
    before = now_bytes(&f, WEFT_MEM_WEIGHTS);
    atomic_store(&last_ran, false);
    for (int k = 0; k < 2; k++) {
        REQUIRE_OK(
            weft_g_restore(f.seq, &behind, &host, &f.model, &back, &err),
            err);
        struct weft_access use = {
            weft_g_params_tile(&back.fwd[0], WEFT_TILE_FINAL, -1, 0),
            WEFT_READ};
        if (k == 0)
            weft_insert(f.seq, &weft_cl_step, &at, sizeof at, &use, 1,
                        &where);
        weft_g_give_back(f.seq, &behind, &back);
    }
    struct weft_tile *tile = fixture_tile_at(&f, 64, 0);
    struct weft_access access = {tile, WEFT_READ_WRITE};
    where.priority = behind.priority - 1;
    weft_insert(f.seq, &weft_cl_last, NULL, 0, &access, 1, &where);
    REQUIRE_OK(weft_seq_wait(f.seq, &err), err);
    CHECK_INT(now_bytes(&f, WEFT_MEM_WEIGHTS), before);
    weft_rt_memory(f.rt, WEFT_MEM_WEIGHTS, &before, &peak);
    CHECK_INT(peak, 2 * before); /* it is as large as the other model */
    weft_tile_release(tile);
    weft_g_model_release(&host);
    weft_g_model_release(&f.model);
    close_rt(&f);
}

WEFT_TESTS("graphs/offload", {"test_restore_places", test_restore_places},
           {"test_restore_one_place", test_restore_one_place},
           {"test_restore_waits", test_restore_waits},
           {"test_restore_in_turn", test_restore_in_turn})
