/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of jobs with GPUs, which this machine need not have: places,
 * devices, what they cannot do, and their memory. */
#include "harness.h"
#include "plan/card_memory.h"
#include "plan/recording.h"
#include "rt/codelet.h"
#include "rt/graph.h"

#include <string.h>

static int body(const void *args, void *const buf[], int n_buf,
                struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    return weft_err_set(weft_exec_err(x), WEFT_EINTERNAL, "it ran");
}
WEFT_CODELET(host_only, 0x00ff00, body)
WEFT_CODELET_2(anywhere, 0x00ff00, body, body)

/* Two ranks of two GPUs and then two CPU devices, which share a place. */
enum { RANKS = 2, GPUS = 2, DEVICES = 4, PLACES = 3 };

static struct weft_recording recording;
static struct weft_rt *rt;
static struct weft_seq *seq;

static void start_with(bool direct)
{
    struct weft_err err;
    struct weft_record_options options = {.n_ranks = RANKS,
                                          .n_devices = DEVICES,
                                          .n_gpus = GPUS,
                                          .direct_messages = direct,
                                          .rank = -1,
                                          .recording = &recording};
    weft_recording_init(&recording);
    REQUIRE_OK(weft_rt_record(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
}

static void start(void)
{
    start_with(false);
}

static void stop(void)
{
    weft_rt_stop(rt);
    weft_recording_release(&recording);
}

static struct weft_tile *tile_at(int place, enum weft_mem_class c,
                                 size_t bytes)
{
    const struct weft_tile_id id = {"m", "x", -1, -1, -1, place};
    struct weft_tile *tile;
    struct weft_err err;
    REQUIRE_OK(weft_tile_create(rt, &id, c, bytes, &tile, &err), err);
    return tile;
}

static void insert(const struct weft_codelet *codelet, struct weft_tile *tile)
{
    struct weft_access access = {tile, WEFT_READ_WRITE};
    struct weft_where where = {.device = -1};
    weft_insert(seq, codelet, NULL, 0, &access, 1, &where);
}

static int device_of_last(void)
{
    return recording.task[recording.n_tasks - 1].device;
}

static void test_places(void)
{
    static const int place[] = {0, 1, 2, 2, 3, 4, 5, 5};
    start();
    CHECK_INT(weft_rt_n_places(rt), RANKS * PLACES);
    CHECK_INT(weft_rt_n_gpus(rt), GPUS);
    for (int d = 0; d < RANKS * DEVICES; d++)
        CHECK_INT(weft_rt_place_of(rt, d), place[d]);
    for (int p = 0; p < RANKS * PLACES; p++) {
        CHECK_INT(weft_rt_place_rank(rt, p), p / PLACES);
        CHECK_INT(weft_rt_is_gpu_place(rt, p), p % PLACES < GPUS);
    }
    CHECK_INT(weft_rt_host_place(rt, 1), 5);
    stop();
}

/* The last task is a copy beside the devices of a place. */
static bool is_beside(int place)
{
    const struct weft_rec_task *t = &recording.task[recording.n_tasks - 1];
    return t->kind == WEFT_REC_COPY && t->device == -1 && t->place == place;
}

/* A task without a device has one of its place, as when it runs. */
static void test_devices(void)
{
    struct weft_where any = {.device = -1};
    struct weft_tile *tile[RANKS * PLACES];
    start();
    for (int p = 0; p < RANKS * PLACES; p++) {
        tile[p] = tile_at(p, WEFT_MEM_WEIGHTS, 64);
        for (int i = 0; i < 3; i++) {
            insert(&weft_cl_anywhere, tile[p]);
            CHECK_INT(weft_rt_place_of(rt, device_of_last()), p);
        }
    }
    /* Between a GPU and the host it is copied beside the GPU; between GPUs,
     * beside the one that gets it. */
    weft_insert_copy(seq, &any, tile[4], tile[5]);
    CHECK(is_beside(4));
    weft_insert_copy(seq, &any, tile[2], tile[1]);
    CHECK(is_beside(1));
    weft_insert_copy(seq, &any, tile[0], tile[1]);
    CHECK(is_beside(1));
    /* so it is to and from what its place has in host memory */
    weft_insert_copy(seq, &any, tile_at(1, WEFT_MEM_HOST, 64), tile[1]);
    CHECK(is_beside(1));
    weft_insert_copy(seq, &any, tile[1], tile_at(1, WEFT_MEM_HOST, 64));
    CHECK(is_beside(1));
    /* A GPU copies in its own memory, and what lies in the host's. */
    weft_insert_copy(seq, &any, tile[1], tile_at(1, WEFT_MEM_WEIGHTS, 64));
    CHECK_INT(device_of_last(), 1);
    weft_insert_copy(seq, &any, tile_at(1, WEFT_MEM_SAMPLES, 64),
                     tile_at(1, WEFT_MEM_SAMPLES, 64));
    CHECK_INT(device_of_last(), 1);
    stop();
}

/* What a copy to another rank is: copies, messages, and host memory that they
 * pass through. */
struct way {
    int n_copies, n_messages, n_hosts;
};

static struct way way_of(int from, int to)
{
    struct weft_where any = {.device = -1};
    struct weft_tile *tile[] = {tile_at(from, WEFT_MEM_WEIGHTS, 64),
                                tile_at(to, WEFT_MEM_WEIGHTS, 64)};
    struct way way = {0, 0, -(int) recording.n_tiles};
    int64_t first = recording.n_tasks;
    weft_insert_copy(seq, &any, tile[0], tile[1]);
    for (int64_t i = first; i < recording.n_tasks; i++)
        if (recording.task[i].kind == WEFT_REC_MESSAGE)
            way.n_messages++;
        else if (strcmp(weft_recording_op(&recording, i), "copy") == 0)
            way.n_copies++;
    way.n_hosts += (int) recording.n_tiles;
    return way;
}

/* Between GPUs of two ranks by way of the host, or not. */
static void test_messages(void)
{
    for (int direct = 0; direct < 2; direct++) {
        start_with(direct);
        struct way cards = way_of(0, 4), here = way_of(0, 1),
                   out = way_of(1, 5), in = way_of(2, 3);
        CHECK_INT(cards.n_messages, 1);
        CHECK_INT(cards.n_copies, direct ? 0 : 2);
        CHECK_INT(cards.n_hosts, direct ? 0 : 2);
        CHECK(here.n_messages == 0 && here.n_copies == 1
              && here.n_hosts == 0);
        CHECK(out.n_messages == 1 && out.n_copies == 1 && out.n_hosts == 1);
        CHECK(in.n_messages == 1 && in.n_copies == 1 && in.n_hosts == 1);
        stop();
    }
}

/* What has no code for GPUs is refused where it would need their memory. */
static void test_refused(void)
{
    struct weft_err err;
    start();
    insert(&weft_cl_host_only, tile_at(0, WEFT_MEM_SAMPLES, 64));
    insert(&weft_cl_host_only, tile_at(2, WEFT_MEM_WEIGHTS, 64));
    insert(&weft_cl_anywhere, tile_at(0, WEFT_MEM_WEIGHTS, 64));
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    insert(&weft_cl_host_only, tile_at(4, WEFT_MEM_WEIGHTS, 64));
    CHECK_FAILS(weft_seq_wait(seq, &err), WEFT_EUNSUPPORTED, err,
                "host_only does not run on GPUs yet, and 'm x' lies in the "
                "memory of one");
    stop();
}

/* What lies in host memory needs a device there. */
static void test_no_cpu(void)
{
    struct weft_err err;
    for (int n = 1; n <= 2; n++) {
        struct weft_record_options options = {.n_ranks = 1,
                                              .n_devices = n,
                                              .n_gpus = n,
                                              .rank = -1,
                                              .recording = &recording};
        options.place_per_device = n == 1;
        CHECK_FAILS(weft_rt_record(&options, &rt, &err), WEFT_EINVAL, err,
                    "it needs a CPU device, too");
    }
}

/* A GPU's sum has not what lies in host memory; a CPU's has. A GPU's memory is
 * cut into blocks: slots, of which the weights' have a page and the others'
 * another, and pages, which activations and KV always have. */
static void test_memory(void)
{
    enum { PAGE = WEFT_CARD_PAGE_BYTES };
    int64_t most[RANKS * PLACES][WEFT_MEM_ALL + 1];
    struct weft_err err;
    start();
    for (int p = 0; p < RANKS * PLACES; p++) {
        insert(&weft_cl_anywhere, tile_at(p, WEFT_MEM_WEIGHTS, 64));
        insert(&weft_cl_anywhere, tile_at(p, WEFT_MEM_SAMPLES, 128));
        insert(&weft_cl_anywhere, tile_at(p, WEFT_MEM_HOST, 256));
        for (int i = 0; i < 3; i++)
            insert(&weft_cl_anywhere,
                   tile_at(p, WEFT_MEM_GRADIENTS, PAGE / 2 - 1));
        insert(&weft_cl_anywhere, tile_at(p, WEFT_MEM_OPTIMIZER, PAGE + 1));
        insert(&weft_cl_anywhere, tile_at(p, WEFT_MEM_KV, 64));
    }
    REQUIRE_OK(
        weft_recording_memory(&recording, RANKS * PLACES, PLACES, most, &err),
        err);
    for (int p = 0; p < RANKS * PLACES; p++) {
        bool gpu = p % PLACES < GPUS;
        int64_t gradients = 3 * (gpu ? PAGE / 2 : PAGE / 2 - 1);
        CHECK_INT(most[p][WEFT_MEM_WEIGHTS], gpu ? 4096 : 64);
        CHECK_INT(most[p][WEFT_MEM_SAMPLES], 128);
        CHECK_INT(most[p][WEFT_MEM_HOST], 256);
        CHECK_INT(most[p][WEFT_MEM_GRADIENTS], gradients);
        CHECK_INT(most[p][WEFT_MEM_KV], gpu ? PAGE : 64);
        CHECK_INT(most[p][WEFT_MEM_OPTIMIZER], gpu ? 2 * PAGE : PAGE + 1);
        CHECK_INT(most[p][WEFT_MEM_ALL],
                  gpu ? (1 + 2 + 2 + 1) * PAGE
                      : 64 + 64 + 128 + gradients + PAGE + 1);
    }
    stop();
}

WEFT_TESTS("rt/record_gpus", {"test_places", test_places},
           {"test_devices", test_devices}, {"test_messages", test_messages},
           {"test_refused", test_refused}, {"test_no_cpu", test_no_cpu},
           {"test_memory", test_memory})
