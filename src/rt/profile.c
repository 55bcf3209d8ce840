/* SPDX-License-Identifier: Apache-2.0 */
/* What ran: totals of calls, and the records as a Chrome trace. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rt/internal.h"

/* Colour names that Chrome's and Perfetto's viewers know. */
static const char *const call_colour[WEFT_N_CALLS] = {
    "grey",          "thread_state_running", "rail_idle",
    "rail_load",     "rail_animation",       "thread_state_uninterruptible",
    "rail_response", "thread_state_iowait"};

void weft_rt_times(struct weft_rt *rt, enum weft_call call,
                   struct weft_call_time *out)
{
    struct weft_call_time sum = {0};
    for (int d = 0; d < rt->n_devices; d++) {
        struct weft_worker *w = &rt->worker[d];
        pthread_mutex_lock(&w->mutex);
        struct weft_call_time time = w->time[call];
        pthread_mutex_unlock(&w->mutex);
        if (time.n_tasks == 0)
            continue;
        if (sum.n_tasks == 0 || time.first_s < sum.first_s)
            sum.first_s = time.first_s;
        if (sum.n_tasks == 0 || time.last_s > sum.last_s)
            sum.last_s = time.last_s;
        sum.n_tasks += time.n_tasks;
        sum.busy_s += time.busy_s;
    }
    *out = sum;
}

void weft_rt_times_reset(struct weft_rt *rt)
{
    for (int d = 0; d < rt->n_devices; d++) {
        struct weft_worker *w = &rt->worker[d];
        pthread_mutex_lock(&w->mutex);
        memset(w->time, 0, sizeof w->time);
        pthread_mutex_unlock(&w->mutex);
    }
}

/* Times as whole nanoseconds: all ranks add the same numbers. */
void weft_rt_times_all(struct weft_rt *rt,
                       struct weft_call_time out[WEFT_N_CALLS])
{
    int64_t sum[2 * WEFT_N_CALLS], least[2 * WEFT_N_CALLS];
    for (int c = 0; c < WEFT_N_CALLS; c++) {
        struct weft_call_time t;
        weft_rt_times(rt, (enum weft_call) c, &t);
        bool none = t.n_tasks == 0;
        sum[2 * c] = t.n_tasks;
        sum[2 * c + 1] = llrint(t.busy_s * 1e9);
        least[2 * c] = none ? INT64_MAX : llrint(t.first_s * 1e9);
        least[2 * c + 1] = none ? INT64_MAX : -llrint(t.last_s * 1e9);
    }
    weft_world_reduce(sum, WEFT_COUNT(sum), WEFT_SUM);
    weft_world_reduce(least, WEFT_COUNT(least), WEFT_MIN);
    for (int c = 0; c < WEFT_N_CALLS; c++) {
        out[c] = (struct weft_call_time){.n_tasks = sum[2 * c]};
        if (sum[2 * c] == 0)
            continue;
        out[c].busy_s = (double) sum[2 * c + 1] * 1e-9;
        out[c].first_s = (double) least[2 * c] * 1e-9;
        out[c].last_s = -(double) least[2 * c + 1] * 1e-9;
    }
}

/* ---- Trace ------------------------------------------------------------ */

static void write_number(FILE *f, const char *key, int32_t value)
{
    if (value >= 0)
        fprintf(f, ",\"%s\":%d", key, value);
}

static void write_record(FILE *f, int device, const struct weft_record *r)
{
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,"
            "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cname\":\"%s\","
            "\"args\":{\"call\":\"%s\"",
            r->codelet->starpu.name, weft_call_name(r->call), device,
            r->start_us, r->end_us - r->start_us, call_colour[r->call],
            weft_call_name(r->call));
    write_number(f, "iteration", r->iteration);
    write_number(f, "micro_batch", r->micro_batch);
    write_number(f, "layer", r->layer);
    fprintf(f, "}}");
}

static void write_device(FILE *f, struct weft_rt *rt, int d)
{
    struct weft_worker *w = &rt->worker[d];
    fprintf(f,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
            "\"args\":{\"name\":\"device %d\"}},\n"
            "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,"
            "\"tid\":%d,\"args\":{\"sort_index\":%d}}",
            d, d, d, d);
    pthread_mutex_lock(&w->mutex);
    int64_t end = w->n_records;
    int64_t first = end > rt->n_records ? end - rt->n_records : 0;
    for (int64_t i = first; i < end; i++)
        write_record(f, d, &w->record[i % rt->n_records]);
    pthread_mutex_unlock(&w->mutex);
}

int weft_rt_write_trace(struct weft_rt *rt, const char *path,
                        struct weft_err *err)
{
    if (!rt->profile)
        return weft_err_set(err, WEFT_ESTATE,
                            "cannot write '%s': no task records were kept; "
                            "start with profiling",
                            path);
    size_t size = strlen(path) + 8;
    char *part = weft_alloc(size, 1);
    if (!part)
        return weft_err_nomem(err, "a trace", size);
    snprintf(part, size, "%s.part", path);
    FILE *f = fopen(part, "w");
    int rc = 0;
    if (!f) {
        rc = weft_err_sys(err, "write", path);
        goto out;
    }
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
               "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,"
               "\"args\":{\"name\":\"weft\"}}");
    for (int d = 0; d < rt->n_devices; d++)
        write_device(f, rt, d);
    fprintf(f, "\n]}\n");
    bool bad = ferror(f) != 0;
    int saved = errno;
    if (fclose(f) != 0) {
        saved = bad ? saved : errno;
        bad = true;
    }
    errno = saved;
    if (bad || rename(part, path) != 0) {
        rc = weft_err_sys(err, "write", path);
        unlink(part);
    }
out:
    weft_free(part);
    return rc;
}
