/* SPDX-License-Identifier: Apache-2.0 */
/* Measured costs: what is collected, prices between sizes, and files. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/costs_file.h"

enum { MOST = 96 };

static struct weft_recording r;
static struct weft_span ran[MOST];
static struct weft_shape shape;
static const struct weft_shape small = {.hidden = 8,
                                        .n_layers = 3,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 2,
                                        .intermediate = 64,
                                        .vocab = 64,
                                        .n_blocks = 4};
static struct weft_err err;

static void task(const char *op, const struct weft_work *work, double s)
{
    const struct weft_where where = {.device = 0};
    weft_recording_task(&r, WEFT_REC_TASK, op, &where, 0);
    weft_recording_work(&r, work);
    ran[r.n_tasks - 1] = (struct weft_span){1, 1 + s};
}

/* 20 operations for a row, 1 for a key; a row takes 2 s, a key 0.1 s. */
static struct weft_work layer(int64_t rows, int64_t keys)
{
    return (struct weft_work){.shape = &shape,
                              .n_blocks = 4,
                              .n_rows = rows,
                              .n_keys = rows * keys,
                              .flop = (double) (rows * (20 + keys)),
                              .is_all = true};
}

static void add_layer(int64_t rows, int64_t keys)
{
    struct weft_work work = layer(rows, keys);
    task("layer", &work, (double) rows * (2 + 0.1 * (double) keys));
}

static void add_bytes(double bytes, double s)
{
    task("move", &(struct weft_work){.bytes = bytes}, s);
}

static void collect(struct weft_costs_file *f)
{
    shape = small;
    memset(ran, 0, sizeof ran);
    weft_recording_init(&r);
    add_layer(16, 1);
    add_layer(1, 1);
    add_layer(16, 9);
    add_layer(4, 1);
    add_layer(4, 3);
    add_bytes(1000, 5);
    add_bytes(3000, 9);
    add_bytes(3000, 7); /* the median of three */
    add_bytes(3000, 90);
    /* a copy to another place says nothing of one within a memory */
    int32_t tile[2];
    for (int32_t i = 0; i < 2; i++)
        tile[i] = weft_recording_tile(
            &r,
            &(struct weft_rec_tile){.bytes = 2000, .place = i, .whole = -1});
    const struct weft_where where = {.device = 0};
    weft_recording_task(&r, WEFT_REC_TASK, "move", &where, 0);
    weft_recording_access(&r, tile[0], 0);
    weft_recording_access(&r, tile[1], 1);
    weft_recording_work(&r, NULL);
    ran[r.n_tasks - 1] = (struct weft_span){1, 100};
    task("ahead", NULL, -1); /* it has not run */
    ran[r.n_tasks - 1].end_s = 0;
    *f = (struct weft_costs_file){
        .machine = {"a CPU", "c", "1.0", "a GPU", 2},
        .task_s = 3e-6,
        .task_tile_s = 1e-7,
        .insert_s = 5e-6,
        .insert_tile_s = 2e-7,
        .memory = 3e12,
        .host = 25e9,
        .inside = 300e9,
        .message = {{0, 7e-6, 2e-6}, {1e4, 1e-4, 3e-6}, {1e6, 5.95e-4, 1e-5}},
        .n_messages = 3};
    REQUIRE_OK(weft_costs_file_add(f, &r, MOST, ran, &err), err);
}

/* Tasks of two devices; each uses two tiles, at 0.1 us each. After half of the
 * long ones the next begins 4 us and 0.2 for its tiles later, twice 10 us; what
 * follows on short ones, or late, does not count, nor do few. */
static void check_turns(int n, double expected_s)
{
    struct weft_costs_file f = {.task_s = 3e-6, .task_tile_s = 1e-7};
    double now_s[2] = {1, 1.00001};
    int32_t tile = 0;
    weft_recording_init(&r);
    memset(ran, 0, sizeof ran);
    for (int i = 0; i < n; i++) {
        const struct weft_where where = {.device = i % 2};
        double *now = &now_s[i % 2], s = i % 4 < 2 ? 2e-4 : 2e-5;
        if (i < 2)
            tile = weft_recording_tile(
                &r, &(struct weft_rec_tile){.bytes = 8, .whole = -1});
        weft_recording_task(&r, WEFT_REC_TASK, "any", &where, 0);
        weft_recording_access(&r, tile, 0);
        weft_recording_access(&r, tile, 0);
        weft_recording_work(&r, NULL);
        ran[i] = (struct weft_span){*now, *now + s};
        *now += s
              + (s < 1e-4    ? 5e-5
                 : i % 8 < 2 ? 1
                 : i < 6     ? 1.02e-5
                             : 4.2e-6);
    }
    REQUIRE_OK(weft_costs_file_turns(&f, &r, MOST, ran, &err), err);
    CHECK(fabs(f.task_s - expected_s) < 1e-9);
    weft_recording_release(&r);
}

static void test_turns(void)
{
    check_turns(MOST, 4e-6);
    check_turns(20, 3e-6);
}

static double price(const struct weft_costs_file *f, const char *op,
                    const struct weft_work *work)
{
    task(op, work, 0);
    return weft_costs_file_task(f, &r, r.n_tasks - 1);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* Rows beyond the last size. The fastest task does 10 operations a second. */
static void test_beyond(void)
{
    static const struct {
        double s[2];     /* of 1 and 2 rows; 0: not measured */
        double at_eight; /* rows */
    } row[] = {{{100, 0}, 100 + 7 * 21 / 10.0}, /* it reads what rows share */
               {{2.1, 0}, 8 * 2.1},             /* as fast as the fastest */
               {{10, 11}, 11 + 6 * 1},
               {{2.1, 4.2}, 8 * 2.1},
               {{1, 10}, 8 * 5},    /* at most in proportion */
               {{10, 9}, 8 * 4.5}}; /* by chance */
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_costs_file f;
        struct weft_work w;
        collect(&f);
        for (int k = 0; k < 2 && row[i].s[k] > 0; k++) {
            w = layer(k + 1, 1);
            task("other", &w, row[i].s[k]);
        }
        weft_costs_file_release(&f);
        REQUIRE_OK(weft_costs_file_add(&f, &r, MOST, ran, &err), err);
        w = layer(8, 1);
        CHECK(near(price(&f, "other", &w), row[i].at_eight));
        weft_costs_file_release(&f);
        weft_recording_release(&r);
    }
}

static void add_step(const char *op, int64_t rows, double flop, double s)
{
    struct weft_work work = layer(rows, 1);
    work.flop = flop;
    task(op, &work, s);
}

/* Steps of 2 and 4 rows that draw as many tokens, and of 4 and 8 that read
 * prompts and draw fewer: less is to do. */
static void test_steps(void)
{
    static const struct {
        int64_t rows;
        double flop, s;
    } row[] = {{4, 400, 10},        /* decodes */
               {4, 200, 4},         /* reads */
               {4, 300, 7},         /* half of its rows draw */
               {3, 225, 4.5},       /* of 6 and 3 s */
               {8, 400, 9},         /* reads */
               {8, 800, 20},        /* as 8 that draw, in proportion */
               {4, 100, 2},         /* of half the layers */
               {4, 800, 20},        /* of twice the layers: of either kind, */
               {8, 1600, 9 * 4.0}}; /* by the rows */
    struct weft_costs_file f = {.n_ops = 0};
    memset(ran, 0, sizeof ran);
    weft_recording_init(&r);
    shape = small;
    add_step("gen_step", 2, 200, 2);
    add_step("gen_step", 4, 400, 10);
    int64_t first = r.n_tasks;
    add_step("gen_step", 2, 100, 2);
    add_step("gen_step", 4, 200, 4);
    add_step("gen_step", 8, 400, 9);
    add_step("other", 8, 400, 50);
    weft_recording_rename(&r, first, "gen_step", "gen_step" WEFT_COSTS_READS);
    REQUIRE_OK(weft_costs_file_add(&f, &r, MOST, ran, &err), err);
    CHECK_INT(f.n_ops, 3);
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        struct weft_work w = layer(row[i].rows, 1);
        w.flop = row[i].flop;
        CHECK(near(price(&f, "gen_step", &w), row[i].s));
    }
    weft_costs_file_release(&f);
    weft_recording_release(&r);
}

static void check_prices(const struct weft_costs_file *f)
{
    struct weft_work w;
    /* on a point, between rows, between keys, beyond both */
    static const int64_t size[][2] = {{1, 1},  {4, 1},  {16, 9},  {10, 1},
                                      {4, 2},  {16, 5}, {10, 1},  {16, 20},
                                      {64, 1}, {64, 9}, {256, 20}};
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        w = layer(size[i][0], size[i][1]);
        CHECK(near(price(f, "layer", &w),
                   (double) size[i][0] * (2 + 0.1 * (double) size[i][1])));
    }
    /* less than the least costs as much; 3 steps cost three */
    w = layer(3, 1);
    w.n_steps = 6;
    CHECK(near(price(f, "layer", &w), 6 * 2.1));
    w = layer(12, 1);
    w.n_steps = 3;
    CHECK(near(price(f, "layer", &w), 3 * 4 * 2.1));
    /* one that does half as much again takes so much longer */
    w = layer(4, 1);
    w.flop *= 1.5;
    CHECK(near(price(f, "layer", &w), 1.5 * 4 * 2.1));
    /* other layers, other parts: not measured; another head: the same */
    w = layer(4, 1);
    w.n_blocks = 2;
    CHECK(price(f, "layer", &w) < 0);
    w = layer(4, 1);
    shape.n_layers = 80;
    shape.scalar_head = true;
    CHECK(near(price(f, "layer", &w), 4 * 2.1));
    shape.hidden = 16;
    CHECK(price(f, "layer", &w) < 0);
    shape.hidden = 8;
    /* by bytes */
    const double bytes[][2] = {
        {10, 5}, {1000, 5}, {2000, 7}, {3000, 9}, {30000, 90}};
    for (size_t i = 0; i < WEFT_COUNT(bytes); i++)
        CHECK(
            near(price(f, "move", &(struct weft_work){.bytes = bytes[i][0]}),
                 bytes[i][1]));
    CHECK(price(f, "ahead", NULL) < 0);
    CHECK(price(f, "layer", NULL) < 0);
}

static void test_prices(void)
{
    struct weft_costs_file f;
    collect(&f);
    CHECK_INT(f.n_ops, 2);
    CHECK_INT(f.op[0].n, 5);
    CHECK_INT(f.op[1].n, 2);
    check_prices(&f);
    weft_costs_file_release(&f);
    weft_recording_release(&r);
}

static void read_text(const char *path, const char *text,
                      const struct weft_costs_machine *here, const char *part)
{
    struct weft_costs_file f;
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
    int rc = weft_costs_file_read(path, here, &f, &err);
    bool said = rc != 0 && strstr(err.text, part) != NULL;
    CHECK(said);
    if (!said)
        printf("'%s', not '%s'\n", err.text, part);
    weft_costs_file_release(&f);
}

/* Replaces one piece of the text. */
static void spoil(const char *path, const char *text, const char *from,
                  const char *to, const char *part)
{
    char bad[8192];
    const char *at = strstr(text, from);
    REQUIRE(at != NULL);
    snprintf(bad, sizeof bad, "%.*s%s%s", (int) (at - text), text, to,
             at + strlen(from));
    read_text(path, bad, NULL, part);
}

static void test_file(void)
{
    struct weft_costs_file f, again;
    struct weft_string text = {0};
    char dir[200], path[256];
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/costs.json", dir);
    collect(&f);
    weft_costs_file_text(&f, &text);
    REQUIRE_OK(weft_file_write(path, text.data, text.n, &err), err);
    struct weft_costs_machine here = f.machine;
    here.n_devices = 7; /* any number */
    REQUIRE_OK(weft_costs_file_read(path, &here, &again, &err), err);
    CHECK_INT(again.machine.n_devices, 2);
    CHECK(near(again.task_s, 3e-6) && near(again.task_tile_s, 1e-7));
    CHECK(near(again.insert_s, 5e-6) && near(again.insert_tile_s, 2e-7));
    CHECK_INT(again.n_messages, 3);
    CHECK(near(weft_costs_file_rate(&again), 2e9));
    const double message[][3] = {/* bytes, latency, of a core */
                                 {0, 5e-6, 2e-6},
                                 {5e3, 5.35e-5 - 2.5e-6 - 2.5e-6, 2.5e-6},
                                 {1e4, 1e-4 - 3e-6 - 5e-6, 3e-6},
                                 {5.05e5, 1e-4 - 6.5e-6 - 5e-6, 6.5e-6},
                                 {1.99e6, 1e-4 - 1.7e-5 - 5e-6, 1.7e-5}};
    for (size_t i = 0; i < WEFT_COUNT(message); i++) {
        CHECK(near(weft_costs_file_latency(&again, message[i][0]),
                   message[i][1]));
        CHECK(
            near(weft_costs_file_core(&again, message[i][0]), message[i][2]));
    }
    struct weft_cluster cluster;
    weft_costs_file_cluster(&again, 1, 2, 1e9, &cluster);
    CHECK(near(cluster.kind[0].host.bytes_per_s, 25e9));
    CHECK(near(cluster.kind[0].inside.bytes_per_s, 300e9));
    CHECK(near(cluster.kind[0].rail.bytes_per_s, 2e9));
    CHECK(near(cluster.kind[0].rail.latency_s, 7e-6 - 2e-6));
    again.n_messages = 0; /* as fast as copies then */
    weft_costs_file_cluster(&again, 1, 2, 1e9, &cluster);
    CHECK(near(cluster.kind[0].rail.bytes_per_s, 25e9));
    CHECK(near(cluster.kind[0].memory_bytes_per_s, 3e12));
    check_prices(&again);
    weft_costs_file_release(&again);
    snprintf(here.cpu, sizeof here.cpu, "another");
    read_text(path, text.data, &here,
              "was measured with machine 'a CPU', and here it is 'another'; "
              "run weft profile again");
    here = f.machine;
    snprintf(here.device, sizeof here.device, "CPU");
    read_text(path, text.data, &here,
              "was measured with device 'a GPU', and here it is 'CPU'");
    here = f.machine;
    snprintf(here.kernels, sizeof here.kernels, "avx2");
    read_text(path, text.data, &here, "kernels 'c'");
    here = f.machine;
    snprintf(here.version, sizeof here.version, "2.0");
    read_text(path, text.data, &here, "version '1.0'");
    spoil(path, text.data, "\"format\": 1", "\"format\": 2", "format");
    /* another version may have other keys */
    struct weft_string other = {0};
    const char *key = strstr(text.data, "\"messages\"");
    weft_string_addf(&other, "%.*s\"message_s\": 1, %s",
                     (int) (key - text.data), text.data, key);
    read_text(path, other.data, &here, "version '1.0'");
    read_text(path, other.data, NULL, "message_s");
    weft_string_release(&other);
    spoil(path, text.data, "\"weft\"", "\"wefd\"", "wefd");
    spoil(path, text.data, "\"task_s\": 3e-06", "\"task_s\": \"no\"",
          "task_s");
    spoil(path, text.data, "\"hidden\": 8", "\"hidden\": 0", "hidden");
    spoil(path, text.data, "\"devices\": 2", "\"devices\": 257",
          "between 1 and 256");
    spoil(path, text.data, "\"f32\"", "\"f31\"", "there is no dtype 'f31'");
    spoil(path, text.data, "\"shape\": 0", "\"shape\": 1", "shape");
    spoil(path, text.data, "[4, 3,", "[4, 1,", "must ascend");
    spoil(path, text.data, "[4, 3,", "[4, -3,", "5 numbers");
    spoil(path, text.data, "[4, 3,", "[3,", "5 numbers");
    spoil(path, text.data, "\"task_s\": 3e-06", "\"task_s\": -1",
          "'task_s' is -1; it must be from 0 to 1e+24");
    spoil(path, text.data, "\"task_s\": 3e-06", "\"task_s\": 1e300",
          "'task_s' is 1e+300");
    spoil(path, text.data, "[4, 3,", "[4e300, 3,", "5 numbers");
    spoil(path, text.data, "\"memory\": 3e+12", "\"memory\": [3e+12]",
          "memory");
    spoil(path, text.data, "\"memory\": 3e+12", "\"memory\": -1",
          "'memory' is -1");
    spoil(path, text.data, "[10000, 0.0001", "[0, 0.0001", "'messages'");
    spoil(path, text.data, "[10000, 0.0001", "[\"no\", 0.0001", "'messages'");
    spoil(path, text.data, ", [1000000, 0.000595", ", [1000000, 0.00001",
          "the last takes longer");
    spoil(path, text.data, "\"hidden\": 8", "\"hidden\": 0", "shapes[0]: ");
    spoil(path, text.data, "\"shape\": 0", "\"shape\": 1", "operations[");
    read_text(path, "[]", NULL, "must hold an object");
    weft_costs_file_release(&f);
    weft_recording_release(&r);
    weft_string_release(&text);
    weft_dir_remove(dir, NULL);
}

WEFT_TESTS("plan/costs_file", {"test_prices", test_prices},
           {"test_beyond", test_beyond}, {"test_steps", test_steps},
           {"test_file", test_file}, {"test_turns", test_turns})
