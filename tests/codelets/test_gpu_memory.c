/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What GPUs hold, by their own count (emulated cards alone have one): random
 * graphs of tiles, of a few bytes to some MiB, run within what is predicted for
 * them, never hold more, and with less they fail with a sentence.
 */
#include "gpus_fixture.h"

#include <stdatomic.h>

#include "plan/card_memory.h"
#include "plan/recording.h"
#include "rt/codelet.h"

#ifdef WEFT_CUDA_EXECUTOR
enum { LIVE = 10, STEPS = 240, EACH_WAIT = 24, MIB = 1 << 20 };

/* ---- Tasks ---------------------------------------------------------------- */

struct fill {
    size_t bytes;
    int value;
};
static atomic_int n_checked, n_wrong;

static int fill_host(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct fill *args = args_;
    (void) n_buf;
    (void) x;
    memset(buf[0], args->value, args->bytes);
    return 0;
}

static int fill_card(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct fill *args = args_;
    (void) n_buf;
    return cudaMemsetAsync(buf[0], args->value, args->bytes,
                           weft_exec_stream(x))
                == cudaSuccess
             ? 0
             : WEFT_EINTERNAL;
}
WEFT_CODELET_2(fill, 0x123456, fill_host, fill_card)

/* Takes scratch memory, too, and writes all of it. */
static int scratch_card(const void *args_, void *const buf[], int n_buf,
                        struct weft_exec *x)
{
    const struct fill *args = args_;
    void *p = weft_exec_scratch_gpu(x, args->bytes * 2);
    if (!p)
        return weft_exec_err(x)->code;
    (void) cudaMemsetAsync(p, 1, args->bytes * 2, weft_exec_stream(x));
    return fill_card(args_, buf, n_buf, x);
}
WEFT_CODELET_2(scratch, 0x123456, fill_host, scratch_card)

static int check(const void *args_, void *const buf[], int n_buf,
                 struct weft_exec *x)
{
    const struct fill *args = args_;
    const unsigned char *p = buf[0];
    (void) n_buf;
    (void) x;
    for (size_t i = 0; i < args->bytes; i += i < 512 ? 1 : 509)
        if (p[i] != args->value)
            atomic_fetch_add(&n_wrong, 1);
    if (p[args->bytes - 1] != args->value)
        atomic_fetch_add(&n_wrong, 1);
    atomic_fetch_add(&n_checked, 1);
    return 0;
}
WEFT_CODELET(check, 0x123456, check)

/* ---- Graphs --------------------------------------------------------------- */

struct live {
    struct weft_tile *tile;
    int place;
    struct fill has;
};
static size_t largest; /* of the tiles so far */

static uint32_t draw(uint32_t seed, uint32_t step, uint32_t of, uint32_t n)
{
    uint32_t r[4];
    weft_rng_words(seed, WEFT_RNG_SHUFFLE, step, of, 0, r);
    return r[0] % n;
}

static enum weft_mem_class draw_class(uint32_t seed, uint32_t step)
{
    static const enum weft_mem_class c[] = {WEFT_MEM_WEIGHTS,
                                            WEFT_MEM_OPTIMIZER, WEFT_MEM_KV,
                                            WEFT_MEM_ACTIVATIONS};
    return c[draw(seed, step, 7, 4)];
}

static size_t draw_bytes(uint32_t seed, uint32_t step)
{
    uint32_t octave = 4 + draw(seed, step, 1, 18);
    return ((size_t) 1 << octave) + draw(seed, step, 2, 1u << octave);
}

static void insert_one(const struct weft_codelet *codelet,
                       struct weft_tile *tile, const struct fill *args,
                       int place)
{
    struct weft_access access = {
        tile, codelet == &weft_cl_check ? WEFT_READ : WEFT_WRITE};
    struct weft_where where = at(place);
    weft_insert(seq, codelet, args, sizeof *args, &access, 1, &where);
}

/* Brings a tile to the host, where it is looked at, and releases it. */
static void end(struct live *l)
{
    struct weft_tile *host = temp_at(host_place(), WEFT_MEM_SAMPLES,
                                     l->has.bytes);
    struct weft_where where = at(l->place);
    weft_insert_copy(seq, &where, l->tile, host);
    insert_one(&weft_cl_check, host, &l->has, host_place());
    weft_tile_release(host);
    weft_tile_release(l->tile);
    l->tile = NULL;
}

/* A tile that is filled, or a copy of another one, at any GPU. */
static void begin(struct live *l, const struct live *from, uint32_t seed,
                  uint32_t step)
{
    l->place = (int) draw(seed, step, 3, (uint32_t) weft_rt_n_gpus(rt));
    bool copies = from && draw(seed, step, 4, 3) > 0;
    if (copies)
        l->has = from->has;
    else
        l->has = (struct fill){draw_bytes(seed, step),
                               1 + (int) draw(seed, step, 5, 200)};
    largest = l->has.bytes > largest ? l->has.bytes : largest;
    l->tile = temp_at(l->place, draw_class(seed, step), l->has.bytes);
    if (copies) {
        struct weft_where where = at(l->place);
        weft_insert_copy(seq, &where, from->tile, l->tile);
    } else if (draw(seed, step, 6, 4) == 0) {
        weft_rt_expect_scratch(rt, l->has.bytes * 2);
        insert_one(&weft_cl_scratch, l->tile, &l->has, l->place);
    } else {
        insert_one(&weft_cl_fill, l->tile, &l->has, l->place);
    }
}

/* Returns the code of the first wait that failed. */
static int graph_of(uint32_t seed, struct weft_err *err)
{
    struct live live[LIVE] = {{.tile = NULL}};
    int rc = 0;
    for (uint32_t k = 0; k < STEPS && !rc; k++) {
        struct live *l = &live[draw(seed, k, 0, LIVE)];
        const struct live *from = &live[draw(seed, k, 8, LIVE)];
        if (l->tile)
            end(l);
        else
            begin(l, from->tile ? from : NULL, seed, k);
        if (k % EACH_WAIT == EACH_WAIT - 1)
            rc = weft_seq_wait(seq, err);
    }
    for (int i = 0; i < LIVE; i++)
        if (live[i].tile)
            end(&live[i]);
    struct weft_err last;
    int end_rc = weft_seq_wait(seq, rc ? &last : err);
    return rc ? rc : end_rc;
}

/* The most that a GPU needs. n: GPUs */
static size_t predict(uint32_t seed, int n)
{
    struct weft_recording recording;
    int64_t most[CARDS + 1][WEFT_MEM_ALL + 1], out = 0;
    struct weft_err err;
    struct weft_record_options options = {.n_ranks = 1,
                                          .n_devices = n + CPUS,
                                          .n_gpus = n,
                                          .recording = &recording};
    weft_recording_init(&recording);
    REQUIRE_OK(weft_rt_record(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    REQUIRE_OK(graph_of(seed, &err), err);
    REQUIRE_OK(weft_recording_memory(&recording, n + 1, n + 1, most, &err),
               err);
    for (int p = 0; p < n; p++)
        out = most[p][WEFT_MEM_ALL] > out ? most[p][WEFT_MEM_ALL] : out;
    out += (int64_t) weft_card_block_bytes((size_t) recording.scratch_bytes,
                                           WEFT_MEM_ACTIVATIONS);
    stop();
    weft_recording_release(&recording);
    return (size_t) out;
}

static int64_t check_peaks(int n, size_t most)
{
    int64_t out = 0;
    for (int i = 0; i < n; i++) {
        int64_t peak = weft_cards_counts(i).peak_bytes;
        CHECK(peak <= (int64_t) most);
        out = peak > out ? peak : out;
    }
    return out;
}

static void run(uint32_t seed, int n)
{
    largest = 0;
    size_t predicted = predict(seed, n);
    size_t less = weft_card_block_bytes(largest, WEFT_MEM_KV)
                - WEFT_CARD_PAGE_BYTES;
    struct weft_err err;
    start(predicted);
    weft_cards_new_peak();
    atomic_store(&n_checked, 0);
    atomic_store(&n_wrong, 0);
    REQUIRE_OK(graph_of(seed, &err), err);
    CHECK_INT(atomic_load(&n_wrong), 0);
    CHECK(atomic_load(&n_checked) > STEPS / 4);
    /* the prediction says something */
    CHECK(check_peaks(n, predicted) > (int64_t) predicted / 4);
    stop();
    /* what does not fit is refused, and takes no more either */
    start(less);
    weft_cards_new_peak();
    CHECK_FAILS(graph_of(seed, &err), WEFT_ENOMEM, err, "MiB are left");
    check_peaks(n, less);
    stop();
}

static void random_graphs(void)
{
    int n = n_found() < CARDS ? n_found() : CARDS;
    for (uint32_t seed = 1; seed < 4; seed++)
        run(seed, n);
}

static void test_random_graphs(void)
{
    each_card_order(random_graphs);
}

/* ---- One size after another ----------------------------------------------- */

/* Freed blocks go back to the card when another size needs their room, after
 * what was put on streams for them, and not before. */
static void other_sizes(void)
{
    enum { ROOM = 24 };
    struct weft_err err;
    start((size_t) ROOM * MIB);
    weft_cards_new_peak();
    atomic_store(&n_wrong, 0);
    for (int mib = 1; mib <= ROOM; mib++) {
        struct live l = {.has = {(size_t) mib * MIB, mib}};
        l.tile = temp_at(0, WEFT_MEM_ACTIVATIONS, l.has.bytes);
        insert_one(&weft_cl_fill, l.tile, &l.has, 0);
        end(&l);
        if (mib % 2 == 0
            || mib > ROOM / 2) /* else the next may begin early */
            REQUIRE_OK(weft_seq_wait(seq, &err), err);
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    CHECK_INT(atomic_load(&n_wrong), 0);
    CHECK_INT(weft_cards_counts(0).peak_bytes, ROOM * MIB);
    stop();
    start((size_t) 256 * MIB);
    weft_cards_new_peak();
    for (size_t mib = 2; mib <= 8; mib += 2)
        weft_tile_release(tile_at(0, WEFT_MEM_ACTIVATIONS, mib * MIB));
    CHECK_INT(weft_cards_counts(0).peak_bytes, (2 + 4 + 6 + 8) * MIB);
    stop();
}

static void test_other_sizes(void)
{
    each_card_order(other_sizes);
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_random_graphs", test_random_graphs},
        {"test_other_sizes", test_other_sizes}};
    return gpus_main("codelets/gpu_memory", tests, WEFT_COUNT(tests));
}
#else
int main(void)
{
    printf("skipped: only emulated cards count what they hold\n");
    return 77;
}
#endif
