/* SPDX-License-Identifier: Apache-2.0 */
#include "record/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"

struct weft_tensorboard {
    char *path;
    int fd;
};

uint32_t weft_crc32c(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0x82f63b78 & (0u - (crc & 1)));
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t n)
{
    uint32_t crc = weft_crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- Protobuf's wire format ------------------------------------------- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void add_varint(struct weft_string *t, uint64_t v)
{
    char byte[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        byte[n++] = (char) (v | 0x80);
    byte[n++] = (char) v;
    weft_string_add_n(t, byte, n);
}

static void add_key(struct weft_string *t, unsigned field, enum wire type)
{
    add_varint(t, field << 3 | type);
}

/* n low bytes of v, little-endian */
static void add_fixed(struct weft_string *t, uint64_t v, size_t n)
{
    char byte[8];
    for (size_t i = 0; i < n; i++)
        byte[i] = (char) (v >> 8 * i);
    weft_string_add_n(t, byte, n);
}

static void add_bytes(struct weft_string *t, unsigned field, const char *data,
                      size_t n)
{
    add_key(t, field, WIRE_BYTES);
    add_varint(t, n);
    weft_string_add_n(t, data, n);
}

static void add_double(struct weft_string *t, unsigned field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_key(t, field, WIRE_64);
    add_fixed(t, bits, 8);
}

static void add_float(struct weft_string *t, unsigned field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_key(t, field, WIRE_32);
    add_fixed(t, bits, 4);
}

/* ---- Events ----------------------------------------------------------- */

/* Event { double wall_time = 1; int64 step = 2; ... } */
static void begin_event(struct weft_string *event, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    add_double(event, 1, (double) now.tv_sec + 1e-9 * (double) now.tv_nsec);
    add_key(event, 2, WIRE_VARINT);
    add_varint(event, (uint64_t) step);
}

/* Summary { repeated Value value = 1; }
 * Value { string tag = 1; float simple_value = 2; } */
static void add_scalar(struct weft_string *summary, const char *tag,
                       double value)
{
    struct weft_string v = {0};
    add_bytes(&v, 1, tag, strlen(tag));
    add_float(&v, 2, (float) value);
    add_bytes(summary, 1, v.data ? v.data : "", v.n);
    summary->failed = summary->failed || v.failed;
    weft_string_release(&v);
}

/* TFRecord: u64 length, its masked CRC, data, its masked CRC. */
static int put_record(struct weft_tensorboard *tb,
                      const struct weft_string *event, struct weft_err *err)
{
    struct weft_string r = {0};
    add_fixed(&r, event->n, 8);
    if (!r.failed)
        add_fixed(&r, masked_crc(r.data, 8), 4);
    weft_string_add_n(&r, event->data ? event->data : "", event->n);
    add_fixed(&r, masked_crc(event->data ? event->data : "", event->n), 4);
    r.failed = r.failed || event->failed;
    int rc = weft_string_check(&r, "an event", err);
    for (size_t done = 0; !rc && done < r.n;) {
        ssize_t n = write(tb->fd, r.data + done, r.n - done);
        if (n > 0)
            done += (size_t) n;
        else if (n == 0 || errno != EINTR)
            rc = weft_err_sys(err, "write", tb->path);
    }
    weft_string_release(&r);
    return rc;
}

/* Writes the file's version, and the step after which a resumed run starts. */
static int put_head(struct weft_tensorboard *tb, int64_t n_done,
                    struct weft_err *err)
{
    static const char version[] = "brain.Event:2";
    static const char start[] = {1 << 3 | WIRE_VARINT, 1};
    struct weft_string event = {0};
    begin_event(&event, 0);
    add_bytes(&event, 3, version, sizeof version - 1);
    int rc = put_record(tb, &event, err);
    event.n = 0;
    if (!rc && n_done > 0) { /* SessionLog session_log = 7 { START } */
        begin_event(&event, n_done + 1);
        add_bytes(&event, 7, start, sizeof start);
        rc = put_record(tb, &event, err);
    }
    weft_string_release(&event);
    return rc;
}

/* Names sort by time; a second file of the same second gets a number. */
static int create_file(struct weft_tensorboard *tb, const char *dir,
                       struct weft_err *err)
{
    char host[128] = "localhost", path[4096];
    gethostname(host, sizeof host - 1);
    tb->fd = -1;
    for (int i = 0; i < 1000 && tb->fd < 0; i++) {
        snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%d.%d",
                 dir, (long long) time(NULL), host, (int) getpid(), i);
        tb->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (tb->fd < 0 && errno != EEXIST)
            break;
    }
    if (tb->fd < 0)
        return weft_err_sys(err, "create", path);
    tb->path = weft_strdup(path);
    return tb->path ? 0 : weft_err_nomem(err, "a path", sizeof path);
}

int weft_tensorboard_open(const char *dir, int64_t n_done,
                          struct weft_tensorboard **out, struct weft_err *err)
{
    struct weft_tensorboard *tb = weft_alloc(1, sizeof *tb);
    if (!tb)
        return weft_err_nomem(err, "an event file", sizeof *tb);
    int rc = weft_dir_create(dir, err);
    if (rc) {
        weft_free(tb);
        return rc;
    }
    rc = create_file(tb, dir, err);
    if (!rc)
        rc = put_head(tb, n_done, err);
    if (rc)
        weft_tensorboard_close(tb);
    else
        *out = tb;
    return rc;
}

int weft_tensorboard_write(struct weft_tensorboard *tb, int64_t step,
                           bool trl_names, const struct weft_metrics *metrics,
                           struct weft_err *err)
{
    char name[WEFT_METRICS_ALIASES][WEFT_METRICS_TAG];
    struct weft_string event = {0}, summary = {0};
    double value;
    for (size_t i = 0; i < weft_metrics_n(metrics); i++) {
        const char *tag = weft_metrics_at(metrics, i, &value);
        add_scalar(&summary, tag, value);
        size_t n = trl_names ? weft_metrics_trl_names(tag, name) : 0;
        for (size_t k = 0; k < n; k++)
            add_scalar(&summary, name[k], value);
    }
    begin_event(&event, step);
    add_bytes(&event, 5, summary.data ? summary.data : "", summary.n);
    event.failed = event.failed || summary.failed;
    int rc = put_record(tb, &event, err);
    weft_string_release(&event);
    weft_string_release(&summary);
    return rc;
}

void weft_tensorboard_close(struct weft_tensorboard *tb)
{
    if (!tb)
        return;
    if (tb->fd >= 0)
        close(tb->fd);
    weft_free(tb->path);
    weft_free(tb);
}
