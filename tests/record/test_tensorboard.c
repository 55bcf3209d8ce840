/* SPDX-License-Identifier: Apache-2.0 */
#include "record/tensorboard.h"

#include <dirent.h>
#include <math.h>

#include "base/alloc.h"
#include "base/file.h"
#include "harness.h"

static struct weft_err err;

/* RFC 3720 (iSCSI), B.4. */
static void test_tensorboard_crc(void)
{
    unsigned char b[32];
    CHECK_INT(weft_crc32c("", 0), 0);
    CHECK_INT(weft_crc32c("123456789", 9), 0xe3069283);
    memset(b, 0, sizeof b);
    CHECK_INT(weft_crc32c(b, 32), 0x8a9136aa);
    memset(b, 0xff, sizeof b);
    CHECK_INT(weft_crc32c(b, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        b[i] = (unsigned char) i;
    CHECK_INT(weft_crc32c(b, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        b[i] = (unsigned char) (31 - i);
    CHECK_INT(weft_crc32c(b, 32), 0x113fdb5c);
}

/* ---- A reader of its own: frames, then protobuf fields ---------------- */

struct cursor {
    const unsigned char *p, *end;
};

static uint64_t fixed(struct cursor *c, int n)
{
    uint64_t v = 0;
    REQUIRE(c->end - c->p >= n);
    for (int i = 0; i < n; i++)
        v |= (uint64_t) *c->p++ << 8 * i;
    return v;
}

static uint64_t varint(struct cursor *c)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint64_t b = fixed(c, 1);
        v |= (b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    REQUIRE(false);
    return 0;
}

static struct cursor part(struct cursor *c, uint64_t n)
{
    struct cursor out = {c->p, c->p + n};
    REQUIRE((uint64_t) (c->end - c->p) >= n);
    c->p += n;
    return out;
}

static bool next_record(struct cursor *c, struct cursor *out)
{
    if (c->p == c->end)
        return false;
    const unsigned char *start = c->p;
    uint64_t n = fixed(c, 8);
    uint32_t crc = weft_crc32c(start, 8);
    CHECK_INT(fixed(c, 4), (uint32_t) ((crc >> 15 | crc << 17) + 0xa282ead8));
    *out = part(c, n);
    crc = weft_crc32c(out->p, (size_t) n);
    CHECK_INT(fixed(c, 4), (uint32_t) ((crc >> 15 | crc << 17) + 0xa282ead8));
    return true;
}

struct event {
    double wall;
    int64_t step;
    char version[32];
    int session;
    int n;
    char tag[8][64];
    float value[8];
};

static void read_value(struct cursor c, struct event *e)
{
    REQUIRE(e->n < 8);
    while (c.p < c.end) {
        uint64_t key = varint(&c);
        if (key == (1 << 3 | 2)) {
            struct cursor s = part(&c, varint(&c));
            memcpy(e->tag[e->n], s.p, (size_t) (s.end - s.p));
        } else {
            REQUIRE(key == (2 << 3 | 5));
            uint32_t bits = (uint32_t) fixed(&c, 4);
            memcpy(&e->value[e->n], &bits, 4);
        }
    }
    e->n++;
}

static struct event read_event(struct cursor c)
{
    struct event e = {0};
    while (c.p < c.end) {
        uint64_t key = varint(&c), bits;
        struct cursor s;
        switch (key) {
        case 1 << 3 | 1:
            bits = fixed(&c, 8);
            memcpy(&e.wall, &bits, 8);
            break;
        case 2 << 3:
            e.step = (int64_t) varint(&c);
            break;
        case 3 << 3 | 2:
            s = part(&c, varint(&c));
            memcpy(e.version, s.p, (size_t) (s.end - s.p));
            break;
        case 5 << 3 | 2:
            s = part(&c, varint(&c));
            while (s.p < s.end) {
                CHECK_INT(varint(&s), 1 << 3 | 2);
                read_value(part(&s, varint(&s)), &e);
            }
            break;
        case 7 << 3 | 2:
            s = part(&c, varint(&c));
            CHECK_INT(varint(&s), 1 << 3);
            e.session = (int) varint(&s);
            break;
        default:
            REQUIRE(false);
        }
    }
    return e;
}

/* The events of the only file in the folder. */
static int read_folder(const char *dir, struct event *out, int max)
{
    char path[512] = "";
    DIR *d = opendir(dir);
    int n = 0;
    REQUIRE(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(d);
    char *data;
    size_t n_data;
    REQUIRE_OK(weft_file_read(path, 0, &data, &n_data, &err), err);
    struct cursor c = {(unsigned char *) data,
                       (unsigned char *) data + n_data},
                  record;
    while (next_record(&c, &record)) {
        REQUIRE(n < max);
        out[n++] = read_event(record);
    }
    weft_free(data);
    return n;
}

static void test_tensorboard_file(void)
{
    char dir[] = "/tmp/weft-tb-XXXXXX", sub[64];
    struct weft_tensorboard *tb;
    struct weft_metrics *m;
    struct event e[8];
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(sub, sizeof sub, "%s/a/b", dir);
    REQUIRE_OK(weft_metrics_create(&m, &err), err);
    REQUIRE_OK(weft_tensorboard_open(sub, 0, &tb, &err), err);
    weft_metrics_set(m, "critic/score/mean", 0.1);
    weft_metrics_set(m, "x", -3e5);
    REQUIRE_OK(weft_tensorboard_write(tb, 1, false, m, &err), err);
    REQUIRE_OK(weft_tensorboard_write(tb, 300, true, m, &err), err);
    weft_metrics_clear(m);
    REQUIRE_OK(weft_tensorboard_write(tb, 301, true, m, &err), err);
    weft_tensorboard_close(tb);
    REQUIRE(read_folder(sub, e, 8) == 4);
    CHECK_STR(e[0].version, "brain.Event:2");
    CHECK(e[0].wall > 1.6e9);
    CHECK_INT(e[1].step, 1);
    CHECK_INT(e[1].n, 2);
    CHECK_STR(e[1].tag[0], "critic/score/mean");
    CHECK(e[1].value[0] == 0.1f && e[1].value[1] == -3e5f);
    CHECK_INT(e[2].step, 300);
    CHECK_INT(e[2].n, 4);
    CHECK_STR(e[2].tag[2], "reward");
    CHECK(e[2].value[2] == 0.1f);
    CHECK_INT(e[3].n, 0);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    weft_metrics_free(m);
}

/* A resumed run's file tells readers to drop later steps of earlier ones. */
static void test_tensorboard_resume(void)
{
    char dir[] = "/tmp/weft-tb-XXXXXX";
    struct weft_tensorboard *tb;
    struct event e[8];
    REQUIRE(mkdtemp(dir) != NULL);
    REQUIRE_OK(weft_tensorboard_open(dir, 130, &tb, &err), err);
    weft_tensorboard_close(tb);
    REQUIRE(read_folder(dir, e, 8) == 2);
    CHECK_INT(e[1].step, 131);
    CHECK_INT(e[1].session, 1);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    tb = NULL;
    CHECK_FAILS(weft_tensorboard_open("/proc/nowhere", 0, &tb, &err),
                WEFT_ENOTFOUND, err, "/proc/nowhere");
    CHECK(tb == NULL);
    weft_tensorboard_close(NULL);
}

WEFT_TESTS("record/tensorboard",
           {"test_tensorboard_crc", test_tensorboard_crc},
           {"test_tensorboard_file", test_tensorboard_file},
           {"test_tensorboard_resume", test_tensorboard_resume})
