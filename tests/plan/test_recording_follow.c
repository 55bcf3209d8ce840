/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what ran among what is recorded: programs that know both. */
#include "draw.h"
#include "harness.h"
#include "plan/recording.h"

/* Whether what ran is what was recorded. */
static bool follow(const struct weft_recording *r,
                   const struct weft_rec_ran *ran, int32_t n_ran,
                   struct weft_rec_played *out)
{
    struct weft_err err;
    bool known;
    REQUIRE_OK(weft_recording_follow(r, ran, n_ran, &known, out, &err), err);
    return known;
}

/* What ran is found among what is recorded, which may have more. */
static void test_follow(void)
{
    static const char *const op[] = {"cut", "layer", "cut", "head", "save"};
    struct weft_recording r;
    struct weft_rec_moments of[3];
    struct weft_rec_played played;
    struct weft_rec_ran ran = {
        .iteration = 3, .known = true, .n = 3, .moments = of};
    weft_recording_init(&r);
    for (int i = 0; i < 5; i++)
        weft_recording_task(&r, WEFT_REC_TASK, op[i],
                            &(struct weft_where){.device = 0,
                                                 .iteration = i < 4 ? 3 : -1,
                                                 .layer = i},
                            0);
    for (int i = 0; i < 3; i++)
        of[i] = (struct weft_rec_moments){
            10 * i + 1, 10 * i + 2, 10 * i + 3,
            weft_rec_ran_what(weft_rec_op_what(op[i + 1]), 0, i + 1)};
    CHECK(follow(&r, &ran, 1, &played));
    CHECK_INT(played.moments[0].ended, 1); /* no time, before the others */
    CHECK_INT(played.moments[1].ended, 3);
    CHECK_INT(played.moments[3].began, 22);
    CHECK_INT(played.moments[4].inserted, 0);
    weft_rec_played_release(&played);
    of[1].what++;
    CHECK(!follow(&r, &ran, 1, &played));
    weft_rec_played_release(&played);
    of[1].what--;
    ran.known = false;
    CHECK(!follow(&r, &ran, 1, &played));
    weft_rec_played_release(&played);
    weft_recording_release(&r);
}

/* A program that inserts tasks and releases tiles, as it is recorded and as
 * the rank of place 0 notes it. */
enum { STEPS = 80, ITERATIONS = 2 };
struct program {
    struct weft_recording r;
    struct weft_rec_ran ran[ITERATIONS];
    struct weft_rec_moments moments[ITERATIONS][STEPS];
    struct weft_rec_release released[ITERATIONS][2 * STEPS];
    int32_t expected[STEPS]; /* by tile */
    int32_t n_tiles, now, iteration;
    struct weft_rec_ran *last; /* with what was inserted last */
    bool is_held[STEPS];       /* tiles */
};

static void run_task(struct program *p)
{
    static const char *const op[] = {"layer", "cut"};
    struct weft_rec_ran *ran = p->last = &p->ran[p->iteration];
    int layer = (int) draw(3), i = (int) draw(2);
    weft_recording_task(&p->r, WEFT_REC_TASK, op[i],
                        &(struct weft_where){.device = 0,
                                             .iteration = p->iteration,
                                             .layer = layer},
                        0);
    int32_t at = ++p->now;
    ran->moments[ran->n++] = (struct weft_rec_moments){
        at, at + 1, at + 2,
        weft_rec_ran_what(weft_rec_op_what(op[i]), 0, layer)};
}

static uint32_t what_of(const struct weft_rec_tile *t)
{
    return weft_rec_tile_what(t->bytes, t->mem, t->place);
}

/* Of a tile, or of one that is not recorded. */
static void run_release(struct program *p)
{
    struct weft_rec_ran *ran = p->last;
    int32_t tile = (int32_t) draw((uint32_t) p->n_tiles);
    if (ran && draw(3) == 0)
        ran->released[ran->n_released++] = (struct weft_rec_release){
            ++p->now, p->now, weft_rec_tile_what(9, 0, 0)};
    if (!p->is_held[tile])
        return;
    p->is_held[tile] = false;
    weft_recording_release_tile(&p->r, tile);
    if (p->r.tile[tile].place == 1 || !ran)
        return; /* elsewhere, or before what is kept */
    int32_t at = ++p->now;
    p->now += (int32_t) draw(3);
    ran->released[ran->n_released++] = (struct weft_rec_release){
        at, p->now, what_of(&p->r.tile[tile])};
    p->expected[tile] = p->now;
}

static void run_program(struct program *p)
{
    weft_recording_init(&p->r);
    for (int i = 0; i < ITERATIONS; i++)
        p->ran[i] = (struct weft_rec_ran){.iteration = i,
                                          .n_places = 1,
                                          .known = true,
                                          .moments = p->moments[i],
                                          .released = p->released[i]};
    for (int i = 0; i < STEPS; i++) {
        uint32_t what = draw(8);
        if (what < 2)
            run_task(p);
        else if (what < 5) {
            p->is_held[p->n_tiles++] = true;
            weft_recording_tile(
                &p->r, &(struct weft_rec_tile){.place = (int32_t) draw(2),
                                               .whole = -1});
        } else if (p->n_tiles > 0)
            run_release(p);
        if (i == STEPS / 2 && p->ran[0].n > 0)
            p->iteration = 1;
    }
}

/* Each release is found among others; one that was not noted is not. */
static void test_releases(void)
{
    int32_t n_found = 0;
    for (uint32_t round = 0; round < 300; round++) {
        struct program p = {.iteration = 0};
        struct weft_rec_played played;
        seed = round;
        run_program(&p);
        REQUIRE(follow(&p.r, p.ran, ITERATIONS, &played));
        for (int32_t i = 0; i < p.n_tiles; i++) {
            CHECK_INT(played.released[i], p.expected[i]);
            n_found += p.expected[i] > 0;
        }
        weft_rec_played_release(&played);
        weft_recording_release(&p.r);
    }
    CHECK(n_found > 1000);
}

static void test_not_noted(void)
{
    static const size_t bytes[] = {10, 20, 30};
    struct weft_rec_moments m = {
        1, 2, 3, weft_rec_ran_what(weft_rec_op_what("layer"), 0, 0)};
    struct weft_rec_release released[] = {
        {4, 4, weft_rec_tile_what(10, 0, 0)},
        {5, 6, weft_rec_tile_what(30, 0, 0)}};
    struct weft_rec_ran ran = {.n_places = 1,
                               .known = true,
                               .n = 1,
                               .n_released = 2,
                               .moments = &m,
                               .released = released};
    struct weft_rec_played played;
    struct weft_recording r;
    weft_recording_init(&r);
    weft_recording_task(&r, WEFT_REC_TASK, "layer",
                        &(struct weft_where){.device = 0}, 0);
    for (int i = 0; i < 3; i++) {
        weft_recording_tile(
            &r, &(struct weft_rec_tile){.bytes = bytes[i], .whole = -1});
        weft_recording_release_tile(&r, i);
    }
    REQUIRE(follow(&r, &ran, 1, &played));
    CHECK_INT(played.released[0], 4);
    CHECK_INT(played.released[1], 0);
    CHECK_INT(played.released[2], 6);
    weft_rec_played_release(&played);
    weft_recording_release(&r);
}

WEFT_TESTS("plan/recording_follow", {"test_follow", test_follow},
           {"test_releases", test_releases},
           {"test_not_noted", test_not_noted})
