/* SPDX-License-Identifier: Apache-2.0 */
/* The control of generation: who is read when, and that it is no number's
 * matter. */
#include "graphs/generate_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

#include "rt/codelet.h"

static const struct weft_k_sampling sampling = {0.7f, 0, 1, 11};

/* Whatever the order was, following it gives the same generation, chunk by
 * chunk. */
static void test_follow(void)
{
    static struct text base[N], other[N];
    const struct cut one = {1, 9, 8, 100, 0, false, 0, false};
    struct weft_rollout_order noted = {.n = 0}, copy;
    const struct cut runs = {2, 2, 3, 5, 7, true, 0.4, false};
    struct weft_rollout_stats first, second;
    struct task_fixture f;
    struct weft_err err;
    struct weft_shape shape = fixture_shape(WEFT_F32, false, true);
    fixture_start(&f, 2, &shape, false);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
    control.order = &noted;
    generate(&f, &f.model.home, &runs, N, NEW, &sampling, other, &first);
    check_same(N, other, base);
    CHECK(noted.n > 20);
    REQUIRE_OK(weft_rollout_order_copy(&noted, &copy, &err), err);
    copy.follows = true;
    control.order = &copy;
    generate(&f, &f.model.home, &runs, N, NEW, &sampling, other, &second);
    check_same(N, other, base);
    CHECK_INT(copy.next, copy.n);
    CHECK_INT(second.n_chunks, first.n_chunks);
    CHECK_INT(second.n_prefilled, first.n_prefilled);
    CHECK_INT(second.n_shared, first.n_shared);
    CHECK_INT(second.n_preempted, first.n_preempted);
    CHECK_INT(second.n_moved, first.n_moved);
    weft_rollout_order_release(&noted);
    weft_rollout_order_release(&copy);
    control.order = NULL;
    fixture_stop(&f);
}

/* ---- One that stands still ---------------------------------------------- */

static atomic_int n_done; /* samples of the other instance */
enum { SLOTS = 2, OTHERS = N - SLOTS };

enum { AN_HOUR = 3600000 }; /* ms: ends what stands still, nothing else */

/* Occupies its device until the other one has all samples that wait. */
static int stand_cpu(const void *args, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    for (int i = 0; i < AN_HOUR && atomic_load(&n_done) < OTHERS; i++)
        usleep(1000);
    return atomic_load(&n_done) >= OTHERS
             ? 0
             : weft_err_set(weft_exec_err(x), WEFT_ESTATE,
                            "the others were held up");
}
WEFT_CODELET(stand, 0x0, stand_cpu)

static int count_done(void *ctx, int32_t index, struct weft_sample *sample,
                      struct weft_err *err)
{
    (void) ctx;
    (void) index;
    (void) sample;
    (void) err;
    atomic_fetch_add(&n_done, 1);
    return 0;
}

static void stand_still(struct task_fixture *f,
                        const struct weft_g_generate *gen)
{
    struct weft_where where = anywhere;
    struct weft_access access[] = {{gen->instance[1].state, WEFT_READ_WRITE}};
    where.device = gen->instance[1].home;
    weft_insert(f->seq, &weft_cl_stand, NULL, 0, access, 1, &where);
}

/* An instance that does not move on holds up its own samples alone. */
static void test_slow(void)
{
    static struct text base[N], other[N];
    const struct cut one = {
        .instances = 1, .slots = 9, .steps = 8, .prefill = 100};
    const struct cut two = {2, SLOTS, 3, 50, 0, false, 0, false};
    struct weft_shape shape = fixture_shape(WEFT_F32, false, true);
    struct task_fixture f;
    fixture_start(&f, 2, &shape, false);
    generate(&f, &f.model.home, &one, N, NEW, &sampling, base, NULL);
    control.before = stand_still;
    control.on_finished = count_done;
    generate(&f, &f.model.home, &two, N, NEW, &sampling, other, NULL);
    check_same(N, other, base);
    fixture_stop(&f);
}

WEFT_TESTS("lm/rollout", {"test_follow", test_follow},
           {"test_slow", test_slow})
