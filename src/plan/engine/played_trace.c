/* SPDX-License-Identifier: Apache-2.0 */
/* What was played as a trace for Chrome and Perfetto. */
#include "plan/engine/played.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

/* Text that is kept before it is written. */
enum { PIECE = 1 << 20 };

struct trace {
    const struct weft_played *p;
    struct weft_file_writer *file;
    struct weft_string text;
    uint64_t at;
    int32_t devices_per_rank;
};

static int flush(struct trace *t, struct weft_err *err)
{
    int rc = weft_string_check(&t->text, "a trace", err);
    if (!rc && t->text.n > 0)
        rc = weft_file_writer_put(t->file, t->at, t->text.data, t->text.n,
                                  err);
    t->at += t->text.n;
    t->text.n = 0;
    return rc;
}

static void put_threads(struct trace *t)
{
    const struct weft_engine_job *job = t->p->job;
    for (int32_t d = 0; d < job->n_devices; d++)
        weft_string_addf(
            &t->text,
            "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,"
            "\"tid\":%d,\"args\":{\"name\":\"device %d\"}}\n",
            d > 0 ? "," : "", (int) (d / t->devices_per_rank), (int) d,
            (int) d);
}

static int32_t rank_of(const struct trace *t, int64_t access)
{
    const struct weft_recording *r = t->p->r;
    return r->tile[r->access[access].tile].place / t->p->job->places_per_rank;
}

/* Messages overlap: each is an event of its own, from its sender. */
static void put_message(struct trace *t, int64_t i, struct weft_span span)
{
    const struct weft_rec_task *task = &t->p->r->task[i];
    const double at[] = {span.start_s, span.end_s};
    for (int k = 0; k < 2 && task->n_access > 0; k++)
        weft_string_addf(
            &t->text,
            ",{\"ph\":\"%c\",\"cat\":\"message\",\"name\":\"to rank %d\","
            "\"id\":%lld,\"pid\":%d,\"tid\":0,\"ts\":%.3f}\n",
            k == 0 ? 'b' : 'e',
            (int) rank_of(t, task->access + task->n_access - 1),
            (long long) i, (int) rank_of(t, task->access), at[k] * 1e6);
}

static void put_task(struct trace *t, int64_t i, struct weft_span span,
                     int32_t device)
{
    const struct weft_rec_task *task = &t->p->r->task[i];
    weft_string_addf(
        &t->text,
        ",{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,"
        "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"iteration\":%d,"
        "\"micro_batch\":%d,\"layer\":%d}}\n",
        weft_recording_op(t->p->r, i), weft_played_name(t->p, task->call),
        (int) (device / t->devices_per_rank), (int) device,
        span.start_s * 1e6, (span.end_s - span.start_s) * 1e6,
        (int) task->iteration, (int) task->micro_batch, (int) task->layer);
}

/* What a place holds in a slice of time, in MiB. */
static void put_memory(struct trace *t, int32_t place, double s,
                       const int64_t *bytes)
{
    const struct weft_played *p = t->p;
    const int64_t *peak = weft_engine_memory(p->engine, place);
    const char *between = "";
    weft_string_addf(
        &t->text,
        ",{\"ph\":\"C\",\"name\":\"MiB of device %d\",\"pid\":%d,"
        "\"ts\":%.3f,\"args\":{",
        (int) weft_played_first_device(p, place),
        (int) (place / p->job->places_per_rank), s * 1e6);
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        if (peak[c] > 0 && weft_engine_counts(p->engine, place, c)) {
            weft_string_addf(&t->text, "%s\"%s\":%.3f", between,
                             weft_mem_class_name((enum weft_mem_class) c),
                             (double) bytes[c] / (1024 * 1024));
            between = ",";
        }
    weft_string_add(&t->text, "}}\n");
}

/* Counters: those slices in which something is not as before. */
static int put_counters(struct trace *t, struct weft_err *err)
{
    double slice_s;
    int32_t n = weft_engine_slices(t->p->engine, &slice_s);
    int64_t last[WEFT_MEM_ALL + 1], bytes[WEFT_MEM_ALL + 1];
    int rc = 0;
    for (int32_t k = 0; k < t->p->job->n_places && n > 0 && !rc; k++) {
        for (int32_t i = 0; i < n; i++) {
            weft_engine_slice(t->p->engine, k, i, bytes);
            if (i == 0 || memcmp(bytes, last, sizeof last) != 0)
                put_memory(t, k, i * slice_s, bytes);
            memcpy(last, bytes, sizeof last);
        }
        if (t->text.n >= PIECE)
            rc = flush(t, err);
    }
    return rc;
}

static int put_events(struct trace *t, struct weft_err *err)
{
    int64_t n = 0;
    weft_string_add(&t->text,
                    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    put_threads(t);
    int rc = put_counters(t, err);
    for (int64_t i = 0; i < t->p->r->n_tasks && !rc; i++) {
        struct weft_span span;
        int32_t device;
        if (!weft_engine_span(t->p->engine, i, &span, &device))
            continue;
        if (n++ == WEFT_PLAYED_EVENTS)
            break;
        if (device >= 0)
            put_task(t, i, span, device);
        else
            put_message(t, i, span);
        if (t->text.n >= PIECE)
            rc = flush(t, err);
    }
    weft_string_add(&t->text, "]}\n");
    return rc ? rc : flush(t, err);
}

int weft_played_write_trace(const struct weft_played *p, const char *path,
                            struct weft_err *err)
{
    const struct weft_engine_job *job = p->job;
    struct trace t = {.p = p,
                      .devices_per_rank = job->n_devices
                                        * job->places_per_rank
                                        / job->n_places};
    int rc = weft_file_writer_open(path, 0, &t.file, err);
    if (rc)
        return rc;
    rc = put_events(&t, err);
    if (rc)
        weft_file_writer_abandon(t.file);
    else
        rc = weft_file_writer_close(t.file, err);
    weft_string_release(&t.text);
    return rc;
}
