/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places and their copies, against a serial interpretation that every rank
 * makes of the same random program. Alone it tests the places of one process;
 * ranks.sh runs it under mpirun.
 */
#include "rank_fixture.h"

#include "base/alloc.h"

/* ---- A random program ------------------------------------------------- */

enum { KINDS = 5, COPIES = 2, STEPS = 600 };
static const size_t kind_bytes[KINDS] = {1, 8, 100, 5000, 70001};

static uint32_t next_random(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* Tiles of one kind have one size; each place has some of each. `want`: what
 * they hold when the program up to here has run. */
struct program {
    uint32_t random;
    int n_places, n_devices;
    struct weft_tile *tile[KINDS][COPIES][PLACES];
    struct cut {
        int n;
        size_t at[3];
    } cut[KINDS][COPIES][PLACES];
    unsigned char *want[KINDS][COPIES][PLACES];
};

struct pick {
    int kind, copy, place;
};

static struct pick pick(struct program *p, int kind, int place)
{
    struct pick at = {kind, 0, place};
    if (kind < 0)
        at.kind = (int) next_random(&p->random, KINDS);
    if (place < 0)
        at.place = (int) next_random(&p->random, (uint32_t) p->n_places);
    at.copy = (int) next_random(&p->random, COPIES);
    return at;
}

static struct weft_tile **tile_of(struct program *p, struct pick at)
{
    return &p->tile[at.kind][at.copy][at.place];
}

static unsigned char *want_of(struct program *p, struct pick at)
{
    return p->want[at.kind][at.copy][at.place];
}

static struct cut *cut_of(struct program *p, struct pick at)
{
    return &p->cut[at.kind][at.copy][at.place];
}

/* A tile, or one of its parts. */
struct piece {
    struct weft_tile *tile;
    unsigned char *want;
    size_t bytes;
};

static struct piece piece_of(struct program *p, struct pick at)
{
    struct weft_tile *tile = *tile_of(p, at);
    const struct cut *cut = cut_of(p, at);
    size_t bytes = kind_bytes[at.kind];
    CHECK_INT(weft_tile_n_parts(tile), cut->n);
    if (next_random(&p->random, 2))
        return (struct piece){tile, want_of(p, at), bytes};
    int i = (int) next_random(&p->random, (uint32_t) cut->n);
    size_t begin = i > 0 ? cut->at[i - 1] : 0;
    size_t end = i < cut->n - 1 ? cut->at[i] : bytes;
    tile = weft_tile_part(tile, i);
    CHECK_INT(weft_tile_bytes(tile), end - begin);
    return (struct piece){tile, want_of(p, at) + begin, end - begin};
}

/* Another cut of a tile, or of a new one. */
static void step_cut(struct program *p)
{
    struct pick at = pick(p, -1, -1);
    struct cut *cut = cut_of(p, at);
    size_t most = kind_bytes[at.kind] / 64;
    cut->n = 1;
    for (int i = 0; i < 3 && most > 0; i++) {
        size_t next = 64 * (1 + next_random(&p->random, (uint32_t) most));
        if ((cut->n == 1 || next > cut->at[cut->n - 2])
            && next < kind_bytes[at.kind])
            cut->at[cut->n++ - 1] = next;
    }
    weft_insert_cut(seq, &anywhere, *tile_of(p, at), cut->n, cut->at);
}

static void step_task(struct program *p)
{
    struct weft_where where = anywhere;
    struct scramble s = {.salt = next_random(&p->random, 1 << 20)};
    struct weft_access access[4];
    void *want[4];
    where.device = (int) next_random(&p->random, (uint32_t) p->n_devices);
    where.priority = (int) next_random(&p->random, 5);
    int place = weft_rt_place_of(rt, where.device);
    if (next_random(&p->random, 3) == 0)
        where.device = -1;
    int n = 1 + (int) next_random(&p->random, 4);
    for (int i = 0; i < n; i++) {
        struct piece piece = piece_of(p, pick(p, -1, place));
        access[i].tile = piece.tile;
        access[i].mode = i ? WEFT_READ : WEFT_READ_WRITE;
        want[i] = piece.want;
        s.bytes[i] = piece.bytes;
    }
    weft_insert(seq, &weft_cl_scramble, &s, sizeof s, access, n, &where);
    scramble_cpu(&s, want, n, NULL);
}

/* Sometimes the destination is a new, temporary tile. */
static void step_copy(struct program *p)
{
    struct weft_where where = anywhere;
    struct pick from = pick(p, -1, -1), to = pick(p, from.kind, -1);
    if (from.copy == to.copy && from.place == to.place)
        return;
    where.device = (int) next_random(&p->random, (uint32_t) p->n_devices + 1)
                 - 1;
    if (next_random(&p->random, 2)) {
        struct weft_err err;
        weft_tile_release(*tile_of(p, to));
        *tile_of(p, to) = tile_at(to.place, kind_bytes[to.kind], true);
        *cut_of(p, to) = *cut_of(p, from);
        REQUIRE_OK(weft_tile_cut(*tile_of(p, to), cut_of(p, to)->n,
                                 cut_of(p, to)->at, &err),
                   err);
    } else {
        *cut_of(p, to) = *cut_of(p, from);
        weft_insert_cut(seq, &anywhere, *tile_of(p, to), cut_of(p, to)->n,
                        cut_of(p, to)->at);
    }
    weft_insert_copy(seq, &where, *tile_of(p, from), *tile_of(p, to));
    memcpy(want_of(p, to), want_of(p, from), kind_bytes[from.kind]);
}

static void program_begin(struct program *p, uint32_t seed)
{
    *p = (struct program){.random = seed};
    p->n_places = weft_rt_n_places(rt);
    p->n_devices = weft_rt_n_devices(rt);
    REQUIRE(p->n_places <= PLACES);
    for (int k = 0; k < KINDS; k++)
        for (int c = 0; c < COPIES; c++)
            for (int i = 0; i < p->n_places; i++) {
                p->cut[k][c][i].n = 1;
                p->tile[k][c][i] = tile_at(i, kind_bytes[k], false);
                p->want[k][c][i] = weft_alloc(kind_bytes[k], 1);
            }
}

static int program_end(struct program *p)
{
    int wrong = 0;
    for (int k = 0; k < KINDS; k++)
        for (int c = 0; c < COPIES; c++)
            for (int i = 0; i < p->n_places; i++) {
                struct weft_tile *tile = p->tile[k][c][i];
                if (weft_tile_is_here(tile)) {
                    const void *got = weft_tile_acquire(tile, WEFT_READ);
                    wrong += memcmp(got, p->want[k][c][i], kind_bytes[k])
                          != 0;
                    weft_tile_unacquire(tile);
                }
                weft_tile_release(tile);
                weft_free(p->want[k][c][i]);
            }
    return wrong;
}

static void random_program(int n_devices, bool place_per_device,
                           uint32_t seed)
{
    struct program p;
    struct weft_err err;
    start(n_devices, place_per_device);
    program_begin(&p, seed);
    for (int i = 0; i < STEPS; i++) {
        if (next_random(&p.random, 6) == 0)
            step_cut(&p);
        else if (next_random(&p.random, 3) == 0)
            step_copy(&p);
        else
            step_task(&p);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(program_end(&p), 0);
    stop();
}

static void test_random_programs(void)
{
    random_program(1, false, 1);
    random_program(2, false, 2);
    random_program(2, true, 3);
    if (weft_world_size() == 1)
        random_program(8, true, 4);
}

/* ---- Single things ---------------------------------------------------- */

static size_t total(const size_t *peak, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += peak[i];
    return sum;
}

/* Who copies, what is counted, and where. */
static void test_copy_is_counted(void)
{
    enum { BYTES = 1000 };
    struct weft_err err;
    struct weft_traffic t;
    size_t peak[PLACES];
    start(2, true);
    int n = weft_rt_n_places(rt);
    CHECK_INT(n, weft_rt_n_devices(rt));
    CHECK_INT(weft_rt_devices_per_rank(rt), 2);
    struct weft_tile *a = tile_at(n - 2, BYTES, false),
                     *b = tile_at(n - 1, BYTES, true),
                     *c = tile_at(n - 1, BYTES, false);
    weft_insert_copy(seq, &anywhere, a, b);
    weft_insert_copy(seq, &anywhere, b, c); /* crosses nothing */
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_rt_traffic(rt, WEFT_MEM_SAMPLES, &t);
    bool here = weft_tile_is_here(a);
    CHECK_INT(t.n_copies, here);
    CHECK_INT(t.copied_bytes, here ? BYTES : 0);
    CHECK_INT(t.n_messages, 0);
    weft_rt_memory_places(rt, WEFT_MEM_SAMPLES, peak);
    CHECK_INT(peak[n - 2], BYTES);
    CHECK_INT(peak[n - 1], 2 * BYTES);
    CHECK_INT(total(peak, n), 3 * BYTES);
    weft_rt_memory_places(rt, WEFT_MEM_TASKS, peak);
    size_t records = total(peak, n);
    CHECK(records > 0);
    weft_rt_memory_places(rt, WEFT_N_MEM_CLASSES, peak);
    CHECK_INT(total(peak, n), 3 * BYTES + records);
    weft_rt_memory_places(rt, WEFT_MEM_KV, peak);
    CHECK_INT(total(peak, n), 0);
    weft_tile_release(a);
    weft_tile_release(b);
    weft_tile_release(c);
    stop();
}

static void test_wrong_places(void)
{
    struct weft_err err;
    struct weft_tile *none;
    struct scramble s = {.bytes = {8, 8}};
    start(2, true);
    struct weft_tile *a = tile_at(0, 8, false), *b = tile_at(1, 8, false),
                     *big = tile_at(1, 9, false);
    struct weft_access access[] = {{a, WEFT_READ_WRITE}, {b, WEFT_READ}};
    weft_insert(seq, &weft_cl_scramble, &s, sizeof s, access, 2, &anywhere);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINTERNAL, err,
                "scramble at place 0 uses 'm x', which lies at place 1");
    weft_insert_copy(seq, &anywhere, a, big);
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINTERNAL, err,
                "a copy of 'm x' (8 bytes) to 'm x' (9)");
    /* alike only between ranks */
    struct weft_tile *cut = tile_at(0, 128, false), *whole;
    whole = tile_at(weft_rt_n_places(rt) - 1, 128, false);
    REQUIRE_OK(weft_tile_cut(cut, 2, (size_t[]){64}, &err), err);
    weft_insert_copy(seq, &anywhere, cut, whole);
    if (weft_world_size() == 1)
        CHECK_INT(weft_seq_wait(seq, &err), 0);
    else
        CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EINTERNAL, err,
                    "which is cut otherwise");
    weft_tile_release(cut);
    weft_tile_release(whole);
    struct weft_tile_id id = {"m", "x", -1, -1, -1, 99};
    CHECK_FAILS(weft_tile_create(rt, &id, WEFT_MEM_SAMPLES, 8, &none, &err),
                WEFT_EINVAL, err,
                "a tile of samples wants place 99; there are 0 to");
    weft_tile_release(a);
    weft_tile_release(b);
    weft_tile_release(big);
    stop();
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_random_programs", test_random_programs},
        {"test_copy_is_counted", test_copy_is_counted},
        {"test_wrong_places", test_wrong_places}};
    return ranks_main("rt/rank_programs", tests, WEFT_COUNT(tests));
}
