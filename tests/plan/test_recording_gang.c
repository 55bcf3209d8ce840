/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions in recordings, against what is seen in a small one: two members
 * with a place each compute parts, exchange them and join them. */
#include <string.h>

#include "harness.h"
#include "plan/recording.h"

enum { READ, WRITE, BOTH };

static struct weft_recording r;

static int32_t tile(int32_t place, size_t bytes)
{
    return weft_recording_tile(
        &r, &(struct weft_rec_tile){.bytes = bytes,
                                    .place = place,
                                    .whole = -1,
                                    .mem = WEFT_MEM_ACTIVATIONS});
}

static void task(const char *op, int device, int64_t position)
{
    const struct weft_where where = {
        .device = device, .position = position, .call = 3, .layer = 7};
    weft_recording_task(&r, WEFT_REC_TASK, op, &where, device);
}

static void message(int32_t from, int32_t to, int32_t place)
{
    const struct weft_where where = {.device = -1};
    weft_recording_task(&r, WEFT_REC_MESSAGE, "message", &where, place);
    weft_recording_access(&r, from, READ);
    weft_recording_access(&r, to, WRITE);
}

/* y = join of the parts of x, at places `first` and the next; parts take
 * `bytes`. */
static void half_at(const int32_t x[2], const int32_t y[2], size_t bytes,
                    int64_t position, int first)
{
    int32_t part[2], got[2];
    for (int k = 0; k < 2; k++) {
        part[k] = tile(first + k, bytes);
        task("part", first + k, position);
        weft_recording_access(&r, x[k], READ);
        weft_recording_access(&r, part[k], WRITE);
        weft_recording_work(&r, &(struct weft_work){.n_passes = 1});
    }
    for (int k = 0; k < 2; k++) {
        got[k] = tile(first + k, bytes);
        message(part[1 - k], got[k], first + k);
    }
    for (int k = 0; k < 2; k++) {
        task("join", first + k, position ? position + 1 : 0);
        weft_recording_access(&r, part[k], READ);
        weft_recording_access(&r, got[k], READ);
        weft_recording_access(&r, y[k], y[k] == x[k] ? BOTH : WRITE);
    }
    for (int k = 0; k < 2; k++) {
        weft_recording_release_tile(&r, part[k]);
        weft_recording_release_tile(&r, got[k]);
    }
}

static void half(const int32_t x[2], const int32_t y[2], size_t bytes,
                 int64_t position)
{
    half_at(x, y, bytes, position, 0);
}

static void check_access(int64_t task, int i, int32_t tile, int mode)
{
    const struct weft_rec_access *a = &r.access[r.task[task].access + i];
    CHECK((int32_t) a->tile == tile && (int) a->mode == mode);
}

static int64_t taken(int32_t temps, int begin, int end)
{
    return r.temps[temps].bytes[begin][end][WEFT_MEM_ACTIVATIONS];
}

static void test_members(void)
{
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    task("make", 0, 0);
    weft_recording_access(&r, x[0], WRITE);
    int32_t y[2] = {tile(0, 64), tile(1, 64)};
    weft_recording_gang_begin(&r, NULL);
    half(x, y, 100, 11);
    weft_recording_release_tile(&r, x[1]); /* one from outside */
    weft_recording_gang_end(&r, "layer", 4, NULL);
    CHECK(r.n_tasks == 3 && r.n_gangs == 2 && !r.full);
    for (int k = 0; k < 2; k++) {
        const struct weft_rec_task *t = &r.task[1 + k];
        const struct weft_rec_gang *g = &r.gang[k];
        CHECK(t->device == k && t->place == k && t->position == 11);
        CHECK(t->call == 3 && t->layer == 4 && t->n_access == 2);
        CHECK(t->member == k && t->n_members == 2 && g->task == 1 + k);
        CHECK(g->n_expanded == 3 && g->received_bytes == 100);
        CHECK_INT(t->work.n_passes, 1);
        CHECK(g->n_received == 1);
        check_access(1 + k, 0, x[k], READ);
        check_access(1 + k, 1, y[k], WRITE);
        /* a part goes out in a message, and one comes */
        CHECK(g->temps == 0 && taken(0, WEFT_REC_OWN, WEFT_REC_SENT) == 100);
        CHECK(taken(0, WEFT_REC_EXPECTED, WEFT_REC_KEPT) == 100);
        CHECK(taken(0, WEFT_REC_OWN, WEFT_REC_KEPT) == 0);
        CHECK(r.temps[0].message[WEFT_MEM_ACTIVATIONS] == 100);
        int64_t first, end;
        weft_recording_members(&r, 1 + k, &first, &end);
        CHECK(first == 1 && end == 3);
    }
    CHECK(r.n_tiles == 4 && r.n_temps == 1);
    CHECK(r.tile[x[1]].released == 3 && r.tile[x[0]].released == -1);
    weft_recording_release(&r);
}

/* Of the halves within, the larger counts; what was sent of the other may be
 * there still, and messages of both may have come; y becomes x in place. */
static void test_within(void)
{
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    weft_recording_gang_begin(&r, NULL);
    int32_t mid[2] = {tile(0, 10), tile(1, 10)};
    for (int i = 0; i < 2; i++) {
        weft_recording_gang_begin(&r, NULL);
        half(i ? mid : x, i ? x : mid, i ? 300 : 100, 1 + 2 * i);
        weft_recording_gang_end(&r, "half", -1, NULL);
    }
    weft_recording_release_tile(&r, mid[0]);
    weft_recording_release_tile(&r, mid[1]);
    weft_recording_gang_end(&r, "layer", -1, NULL);
    CHECK(r.n_tasks == 2 && r.n_gangs == 2 && r.n_tiles == 2);
    for (int k = 0; k < 2; k++) {
        CHECK(r.gang[k].n_expanded == 6);
        CHECK_INT(r.task[k].work.n_passes, 2);
        CHECK(r.gang[k].received_bytes == 400 && r.gang[k].n_received == 2);
        CHECK(r.task[k].position == 1 && r.task[k].n_access == 1);
        check_access(k, 0, x[k], BOTH);
        int32_t own = r.gang[k].temps;
        CHECK(taken(own, WEFT_REC_OWN, WEFT_REC_KEPT) == 10 + 100);
        CHECK(taken(own, WEFT_REC_OWN, WEFT_REC_SENT) == 300);
        CHECK(taken(own, WEFT_REC_EXPECTED, WEFT_REC_KEPT) == 400);
        CHECK(r.temps[own].message[WEFT_MEM_ACTIVATIONS] == 300);
    }
    weft_recording_release(&r);
}

/* Where place 1 has a tile of place 0 copied after an instruction, in which its
 * own y is used for the last time; of a gang or not. */
static void play_apart(bool gang, int64_t most[2][WEFT_MEM_ALL + 1])
{
    struct weft_err err;
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    int32_t y[2] = {tile(0, 1000), tile(1, 1000)}, z = tile(1, 900);
    if (gang)
        weft_recording_gang_begin(&r, NULL);
    half(x, y, 100, 0);
    if (gang)
        weft_recording_gang_end(&r, "layer", -1, NULL);
    weft_recording_release_tile(&r, y[1]);
    task("copy", 1, 0);
    weft_recording_access(&r, y[0], READ);
    weft_recording_access(&r, z, WRITE);
    REQUIRE_OK(weft_recording_memory(&r, 2, 2, most, &err), err);
    weft_recording_release(&r);
}

/* What begins after a member has ended can begin before others have: what
 * place 1 gets from place 0 can be there together with what member 1 writes. */
static void test_apart(void)
{
    enum { ACT = WEFT_MEM_ACTIVATIONS, LATE = 100 };
    int64_t all[2][WEFT_MEM_ALL + 1], gang[2][WEFT_MEM_ALL + 1];
    play_apart(false, all);
    play_apart(true, gang);
    CHECK(gang[0][ACT] >= all[0][ACT] && gang[1][ACT] >= all[1][ACT]);
    CHECK(gang[0][ACT] == 64 + 1000 + 200 + LATE);
    CHECK(gang[1][ACT] == 64 + 1000 + 900 + 200 + LATE);
    CHECK(all[1][ACT] >= 64 + 1000 + 900);
}

/* A micro-batch of one instruction, whose parts the other member reads. */
static void micro_batch(int64_t position)
{
    int32_t x[2] = {tile(0, 64), tile(1, 64)};
    int32_t part[2];
    weft_recording_gang_begin(&r, NULL);
    for (int k = 0; k < 2; k++) {
        part[k] = tile(k, 100);
        task("part", k, position);
        weft_recording_access(&r, part[k], WRITE);
    }
    for (int k = 0; k < 2; k++) {
        task("join", k, position + 1);
        weft_recording_access(&r, part[0], READ);
        weft_recording_access(&r, part[1], READ);
        weft_recording_access(&r, x[k], WRITE);
    }
    weft_recording_release_tile(&r, part[0]);
    weft_recording_release_tile(&r, part[1]);
    weft_recording_gang_end(&r, "layer", -1, NULL);
    weft_recording_release_tile(&r, x[0]);
    weft_recording_release_tile(&r, x[1]);
}

/* What n micro-batches take, one after the other, with so many tasks of another
 * call between them: the part of one can be there while the next one's is, with
 * what that writes; all else has ended. */
static void check_apart(int n, int between)
{
    int64_t most[2][WEFT_MEM_ALL + 1];
    struct weft_err err;
    weft_recording_init(&r);
    for (int i = 0; i < n; i++) {
        micro_batch(2 * i + 1);
        for (int k = 0; k < between; k++) {
            task("other", k % 2, 0);
            r.task[r.n_tasks - 1].chain = 1;
        }
    }
    REQUIRE_OK(weft_recording_memory(&r, 2, 2, most, &err), err);
    for (int k = 0; k < 2; k++)
        CHECK_INT(most[k][WEFT_MEM_ACTIVATIONS], 64 + (n > 1 ? 2 : 1) * 100);
    weft_recording_release(&r);
}

static void test_micro_batches(void)
{
    check_apart(1, 0);
    check_apart(2, 0);
    check_apart(5, 0);
    check_apart(5, 400);
    check_apart(20, 1000);
}

/* A layer, whose parts of 1,000 bytes the other member reads, log-probs, whose
 * parts the first member alone reads, and what the second then writes. */
static void play_ahead(bool gang, int64_t most[2][WEFT_MEM_ALL + 1])
{
    struct weft_err err;
    int32_t part[2];
    weft_recording_init(&r);
    int32_t x[2] = {tile(0, 64), tile(1, 64)}, sum = tile(0, 64);
    if (gang)
        weft_recording_gang_begin(&r, NULL);
    half(x, x, 1000, 1);
    if (gang) {
        weft_recording_gang_end(&r, "layer", -1, NULL);
        weft_recording_gang_begin(&r, NULL);
    }
    for (int k = 0; k < 2; k++) {
        part[k] = tile(k, 10);
        task("part", k, 3);
        weft_recording_access(&r, x[k], READ);
        weft_recording_access(&r, part[k], WRITE);
    }
    task("merge", 0, 4);
    weft_recording_access(&r, part[0], READ);
    weft_recording_access(&r, part[1], READ);
    weft_recording_access(&r, sum, WRITE);
    weft_recording_release_tile(&r, part[0]);
    weft_recording_release_tile(&r, part[1]);
    if (gang)
        weft_recording_gang_end(&r, "logprob", -1, NULL);
    int32_t z = tile(1, 2900);
    task("next", 1, 5);
    weft_recording_access(&r, z, WRITE);
    weft_recording_release_tile(&r, z);
    REQUIRE_OK(weft_recording_memory(&r, 2, 2, most, &err), err);
    weft_recording_release(&r);
}

/* A member that waits for nobody in an instruction may be far ahead when its next
 * task begins: of the layer, its part may still be on its way. */
static void test_ahead(void)
{
    enum { ACT = WEFT_MEM_ACTIVATIONS };
    int64_t all[2][WEFT_MEM_ALL + 1], gang[2][WEFT_MEM_ALL + 1];
    play_ahead(false, all);
    play_ahead(true, gang);
    CHECK(all[1][ACT] >= 64 + 1000 + 2900);
    CHECK(gang[0][ACT] >= all[0][ACT]);
    CHECK(gang[1][ACT] >= all[1][ACT]);
    if (gang[1][ACT] < all[1][ACT])
        printf("%lld by instruction, %lld by task\n",
               (long long) gang[1][ACT], (long long) all[1][ACT]);
}

/* A chunk of two members that run together, one a place; the first uses a tile
 * of 100 bytes. */
static void chunk(const int32_t state[2])
{
    int32_t steps = tile(0, 100);
    for (int k = 0; k < 2; k++) {
        const struct weft_rec_member_of of = {k, 2, k, NULL, 1};
        task("chunk", k, 0);
        weft_recording_access(&r, state[k], BOTH);
        if (k == 0)
            weft_recording_access(&r, steps, WRITE);
        weft_recording_member(&r, &of);
    }
    weft_recording_release_tile(&r, steps);
}

/* Tasks of another device at the place, one after another; the last is at the
 * device and uses the tile that is given. */
static void between(int n, int32_t state)
{
    int32_t mark = tile(0, 1);
    for (int i = 0; i < n; i++) {
        const struct weft_where where = {.device = i < n - 1 ? 2 : 0};
        weft_recording_task(&r, WEFT_REC_TASK, "other", &where, 0);
        weft_recording_access(&r, mark, i ? BOTH : WRITE);
    }
    weft_recording_access(&r, state, BOTH);
}

/* The tile of a chunk has ended when the next one begins, however many tasks are
 * between, or another one at its device that comes after the chunk. */
static void test_chunks(void)
{
    int64_t most[3][WEFT_MEM_ALL + 1];
    struct weft_err err;
    for (int n = 0; n < 400; n += 199) {
        weft_recording_init(&r);
        int32_t state[2] = {tile(0, 8), tile(1, 8)};
        for (int i = 0; i < 3; i++) {
            chunk(state);
            if (n > 0)
                between(n, state[0]);
        }
        int32_t other = tile(0, 100);
        task("after", 0, 0);
        weft_recording_access(&r, state[0], READ);
        weft_recording_access(&r, other, WRITE);
        REQUIRE_OK(weft_recording_memory(&r, 3, 3, most, &err), err);
        CHECK_INT(most[0][WEFT_MEM_ACTIVATIONS], 100 + 8 + (n > 0 ? 3 : 0));
        weft_recording_release(&r);
    }
}

static void copy_at(int32_t place, int32_t from, int32_t to)
{
    const struct weft_where where = {.device = -1};
    weft_recording_task(&r, WEFT_REC_COPY, "copy", &where, place);
    weft_recording_access(&r, from, READ);
    weft_recording_access(&r, to, WRITE);
}

static int32_t on_host(int32_t place)
{
    return weft_recording_tile(
        &r,
        &(struct weft_rec_tile){
            .bytes = 100, .place = place, .whole = -1, .mem = WEFT_MEM_HOST});
}

/* A GPU's part goes to another rank by way of the host: it may still be copied
 * when its member has begun the next instruction. */
static void test_staged(void)
{
    enum { BLOCK = 2 << 20 };
    weft_recording_init(&r);
    r.n_gpus = 2;
    r.places_per_rank = 2;
    weft_recording_gang_begin(&r, NULL);
    int32_t part = tile(0, 100), got = tile(2, 100);
    int32_t from = on_host(0), to = on_host(2);
    task("part", 0, 1);
    weft_recording_access(&r, part, WRITE);
    task("open", 2, 1);
    weft_recording_access(&r, got, WRITE);
    copy_at(0, part, from);
    message(from, to, 2);
    copy_at(2, to, got);
    task("join", 2, 2);
    weft_recording_access(&r, got, READ);
    const int32_t tiles[] = {part, got, from, to};
    for (int i = 0; i < 4; i++)
        weft_recording_release_tile(&r, tiles[i]);
    weft_recording_gang_end(&r, "layer", -1, NULL);
    REQUIRE(r.n_gangs == 2);
    CHECK_INT(taken(r.gang[0].temps, WEFT_REC_OWN, WEFT_REC_SENT), BLOCK);
    CHECK_INT(taken(r.gang[0].temps, WEFT_REC_OWN, WEFT_REC_KEPT), 0);
    CHECK_INT(taken(r.gang[1].temps, WEFT_REC_OWN, WEFT_REC_KEPT), BLOCK);
    weft_recording_release(&r);
}

/* ---- Patterns ---------------------------------------------------------- */

/* An instruction that uses its tiles at places p and p + 1. */
struct layer {
    int32_t device; /* of the first member; and its place */
    int32_t x[2], y[2];
    size_t bytes;  /* of parts */
    int64_t *next; /* (2) positions; NULL: none */
};

static bool layer(const struct layer *l, bool says)
{
    const struct weft_work work[2] = {{.n_rows = 3}, {.n_rows = 3}};
    struct weft_rec_site site = {
        .where = {.device = -1, .call = 3, .iteration = 0}, .n = 2};
    for (int k = 0; k < 2; k++)
        site.member[k] = (struct weft_rec_member){
            l->device + k, l->device + k, l->next ? &l->next[k] : NULL};
    weft_recording_gang_begin(&r, says ? &site : NULL);
    if (says) {
        weft_recording_gang_word(&r, (int64_t) l->bytes);
        for (int k = 0; k < 2; k++) {
            weft_recording_gang_tile(&r, l->x[k]);
            weft_recording_gang_tile(&r, l->y[k]);
        }
        if (weft_recording_gang_again(&r, "layer", 1, work))
            return true;
    }
    int64_t first = l->next ? l->next[0] + 1 : 0;
    if (l->next)
        l->next[0] = l->next[1] = l->next[0] + 2;
    half_at(l->x, l->y, l->bytes, first, l->device);
    weft_recording_gang_end(&r, "layer", 1, work);
    return false;
}

/* Instructions of two replicas; the third is in place, the last is larger.
 * Returns how many were taken from a pattern. */
static int record_layers(bool says, struct weft_recording *out)
{
    int64_t next[4] = {7, 7, 20, 20};
    int again = 0;
    weft_recording_init(&r);
    int32_t x[4], y[4];
    for (int k = 0; k < 4; k++) {
        x[k] = tile(k, 64);
        y[k] = tile(k, 64);
    }
    const struct layer list[] = {
        {0, {x[0], x[1]}, {y[0], y[1]}, 100, next},
        {0, {y[0], y[1]}, {x[0], x[1]}, 100, next},
        {0, {x[0], x[1]}, {x[0], x[1]}, 100, next},
        {2, {x[2], x[3]}, {y[2], y[3]}, 100, next + 2},
        {2, {y[2], y[3]}, {y[2], y[3]}, 100, next + 2},
        {2, {x[2], x[3]}, {y[2], y[3]}, 200, next + 2},
        {0, {x[0], x[1]}, {y[0], y[1]}, 100, NULL},
        {2, {x[2], x[3]}, {y[2], y[3]}, 100, NULL},
    };
    for (size_t i = 0; i < WEFT_COUNT(list); i++)
        again += layer(&list[i], says && (list[i].next || i == 7));
    for (int k = 0; k < 4; k++)
        weft_recording_release_tile(&r, x[k]);
    *out = r;
    return again;
}

/* What is taken from patterns is what is folded. A tile that is used twice, and
 * others sizes, are other patterns. */
static void test_again(void)
{
    struct weft_recording folded, again;
    char text[200];
    CHECK(record_layers(false, &folded) == 0);
    CHECK(record_layers(true, &again) == 3);
    CHECK(folded.n_tasks == 16 && folded.n_gangs == 16);
    bool same = weft_recording_same(&folded, &again, text, sizeof text);
    CHECK(same);
    if (!same)
        printf("%s\n", text);
    for (int64_t i = 0; i < folded.n_gangs; i++) {
        const struct weft_rec_gang *a = &folded.gang[i], *b = &again.gang[i];
        CHECK(a->task == b->task && a->n_expanded == b->n_expanded);
        CHECK(a->received_bytes == b->received_bytes);
        CHECK(a->temps == b->temps);
        CHECK(a->n_received == b->n_received);
    }
    CHECK(again.task[6].position == 21 && again.task[6].device == 2);
    weft_recording_release(&folded);
    weft_recording_release(&again);
}

/* Three members that read 10 and 20 bytes and so on of one another, in steps of
 * which a task stands for 5; those at places that are left out, each in turn,
 * are none. */
static void test_left_out(void)
{
    for (int out = -1; out < 3; out++) {
        const bool left_out[3] = {out == 0, out == 1, out == 2};
        weft_recording_init(&r);
        r.left_out = out >= 0 ? left_out : NULL;
        for (int before = 0; before < 2; before++) {
            for (int k = 0; k < 3; k++) {
                const struct weft_work work = {.received = 10 + 10 * k,
                                               .n_received = 4};
                const struct weft_rec_member_of of = {k, 3, k, &work, 5};
                if (k != out)
                    task("step", k, 0);
                weft_recording_member(&r, &of);
            }
        }
        CHECK_INT(r.n_tasks, out < 0 ? 6 : 4);
        CHECK_INT(r.n_gangs, r.n_tasks);
        for (int64_t i = 0; i < r.n_tasks; i++) {
            const struct weft_rec_task *t = &r.task[i];
            const struct weft_rec_gang *gang = weft_recording_gang_of(&r, i);
            int32_t n = out < 0 ? 3 : 2;
            REQUIRE(gang != NULL);
            CHECK_INT(gang->task, i);
            CHECK_INT(t->n_members, n);
            CHECK_INT(t->member, i % n);
            CHECK_INT(gang->n_left_out, 3 - n);
            CHECK(out < 0 || gang->left_out_place == out);
            CHECK_INT(gang->received_bytes, 5 * (10 + 10 * t->device));
            CHECK_INT(gang->n_received, 4 * 2 * 5);
            CHECK_INT(gang->n_expanded, 1);
        }
        weft_recording_release(&r);
    }
}

WEFT_TESTS("plan/recording_gang", {"test_members", test_members},
           {"test_within", test_within}, {"test_apart", test_apart},
           {"test_micro_batches", test_micro_batches},
           {"test_ahead", test_ahead}, {"test_chunks", test_chunks},
           {"test_staged", test_staged}, {"test_again", test_again},
           {"test_left_out", test_left_out})
