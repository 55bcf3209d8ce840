/* SPDX-License-Identifier: Apache-2.0 */
/* Records of what ran: totals of calls, and a Chrome trace. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/moves.h"
#include "rt/transfer.h"

void weft_rt_name_calls(struct weft_rt *rt, int n, const char *const name[])
{
    for (int c = 0; c < WEFT_MAX_CALLS; c++)
        rt->call_name[c] = c < n ? name[c] : NULL;
}

const char *weft_rt_call_name(const struct weft_rt *rt, int32_t call)
{
    return rt->call_name[call] ? rt->call_name[call] : "none";
}

/* Colour names that Chrome's and Perfetto's viewers know. */
static const char *const call_colour[8] = {
    "grey",          "thread_state_running", "rail_idle",
    "rail_load",     "rail_animation",       "thread_state_uninterruptible",
    "rail_response", "thread_state_iowait"};

/* Where the iteration's times are kept; those of two iterations before make
 * room. */
static int slot_of(struct weft_times *times, int32_t iteration)
{
    int slot = iteration % (int) WEFT_COUNT(times->kept);
    if (times->kept[slot].iteration != iteration)
        memset(&times->kept[slot], 0, sizeof times->kept[slot]);
    times->kept[slot].iteration = iteration;
    return slot;
}

static double gap(const struct weft_pieces *p, int i)
{
    return p->span[i + 1].start_s - p->span[i].end_s;
}

void weft_pieces_add(struct weft_pieces *p, double start_s, double end_s)
{
    struct weft_span *last = p->n > 0 ? &p->span[p->n - 1] : NULL;
    if (last && start_s <= last->end_s) {
        last->start_s = fmin(last->start_s, start_s);
        last->end_s = fmax(last->end_s, end_s);
        return;
    }
    /* the new one takes part: it may follow closely */
    int least = p->n - 1;
    double least_s = last ? start_s - last->end_s : 0;
    for (int i = 0; i + 1 < p->n && p->n == WEFT_RT_PIECES; i++)
        if (gap(p, i) < least_s) {
            least_s = gap(p, i);
            least = i;
        }
    if (p->n == WEFT_RT_PIECES) {
        if (least == p->n - 1) {
            last->end_s = end_s;
            return;
        }
        p->span[least].end_s = p->span[least + 1].end_s;
        memmove(&p->span[least + 1], &p->span[least + 2],
                (size_t) (p->n - least - 2) * sizeof *p->span);
        p->n--;
    }
    p->span[p->n++] = (struct weft_span){start_s, end_s};
}

void weft_times_add(struct weft_times *times, int32_t iteration, int32_t call,
                    double start_s, double end_s)
{
    if (iteration < 0)
        return;
    int slot = slot_of(times, iteration);
    struct weft_call_time *t = &times->kept[slot].call[call];
    weft_pieces_add(&times->kept[slot].pieces[call], start_s, end_s);
    /* work of a card's stream is noted behind a body that began later */
    if (t->n_tasks++ == 0 || start_s < t->first_s)
        t->first_s = start_s;
    if (end_s > t->last_s)
        t->last_s = end_s;
    t->busy_s += end_s - start_s;
}

void weft_times_add_restore(struct weft_times *times, int32_t iteration,
                            int32_t call, double restore_s, double hidden_s)
{
    if (iteration < 0)
        return;
    int slot = slot_of(times, iteration);
    struct weft_call_time *t = &times->kept[slot].call[call];
    t->restore_s += restore_s;
    t->hidden_s += hidden_s;
}

void weft_times_add_waited(struct weft_times *times, int32_t iteration,
                           int32_t call, double waited_s)
{
    if (iteration >= 0)
        times->kept[slot_of(times, iteration)].call[call].waited_s +=
            waited_s;
}

struct weft_call_time weft_times_get(const struct weft_times *times,
                                     int32_t iteration, int32_t call)
{
    int slot = iteration % (int) WEFT_COUNT(times->kept);
    if (times->kept[slot].iteration != iteration)
        return (struct weft_call_time){.n_tasks = 0};
    return times->kept[slot].call[call];
}

double weft_rt_clock_s(const struct weft_rt *rt)
{
    return weft_rt_now_us(rt) * 1e-6;
}

void weft_rt_times(struct weft_rt *rt, int32_t iteration, int32_t call,
                   struct weft_call_time *out)
{
    struct weft_call_time sum = {0};
    for (int d = 0; d < rt->n_workers; d++) {
        struct weft_worker *w = &rt->worker[d];
        pthread_mutex_lock(&w->mutex);
        struct weft_call_time time = weft_times_get(&w->times, iteration,
                                                    call);
        pthread_mutex_unlock(&w->mutex);
        sum.restore_s += time.restore_s;
        sum.hidden_s += time.hidden_s;
        sum.waited_s += time.waited_s;
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

/* Times are summed as whole nanoseconds, so that the order of adding does not
 * matter and all ranks get the same sums. */
void weft_rt_times_all(struct weft_rt *rt, int32_t iteration,
                       struct weft_call_time out[WEFT_MAX_CALLS])
{
    enum { SUMS = 5 };
    int64_t sum[SUMS * WEFT_MAX_CALLS], least[2 * WEFT_MAX_CALLS];
    bool known = weft_moves_find(rt);
    for (int c = 0; c < WEFT_MAX_CALLS; c++) {
        struct weft_call_time t;
        weft_rt_times(rt, iteration, c, &t);
        bool none = t.n_tasks == 0;
        sum[SUMS * c] = t.n_tasks;
        sum[SUMS * c + 1] = llrint(t.busy_s * 1e9);
        sum[SUMS * c + 2] = llrint(t.restore_s * 1e9);
        sum[SUMS * c + 3] = llrint(t.hidden_s * 1e9);
        sum[SUMS * c + 4] = llrint(t.waited_s * 1e9);
        least[2 * c] = none ? INT64_MAX : llrint(t.first_s * 1e9);
        least[2 * c + 1] = none ? INT64_MAX : -llrint(t.last_s * 1e9);
    }
    weft_world_reduce(sum, WEFT_COUNT(sum), WEFT_SUM);
    weft_world_reduce(least, WEFT_COUNT(least), WEFT_MIN);
    for (int c = 0; c < WEFT_MAX_CALLS; c++) {
        out[c] = (struct weft_call_time){
            .n_tasks = sum[SUMS * c],
            .busy_s = (double) sum[SUMS * c + 1] * 1e-9,
            .restore_s = (double) sum[SUMS * c + 2] * 1e-9,
            .hidden_s = (double) sum[SUMS * c + 3] * 1e-9,
            .waited_s = known ? (double) sum[SUMS * c + 4] * 1e-9 : -1};
        if (sum[SUMS * c] == 0)
            continue;
        out[c].first_s = (double) least[2 * c] * 1e-9;
        out[c].last_s = -(double) least[2 * c + 1] * 1e-9;
    }
}

int weft_rt_pieces_all(struct weft_rt *rt, int32_t iteration, int32_t n,
                       const int32_t *call, struct weft_span *out,
                       struct weft_err *err)
{
    size_t devices = (size_t) weft_rt_n_devices(rt);
    size_t first = (size_t) weft_world_rank() * (size_t) rt->n_devices;
    memset(out, 0, (size_t) n * devices * WEFT_RT_PIECES * sizeof *out);
    for (int d = 0; d < rt->n_devices; d++) {
        struct weft_worker *w = &rt->worker[d];
        pthread_mutex_lock(&w->mutex);
        int slot = iteration % (int) WEFT_COUNT(w->times.kept);
        bool kept = w->times.kept[slot].iteration == iteration;
        for (int32_t c = 0; c < n && kept; c++) {
            const struct weft_pieces *p =
                &w->times.kept[slot].pieces[call[c]];
            size_t at = (size_t) c * devices + first + (size_t) d;
            memcpy(&out[at * WEFT_RT_PIECES], p->span,
                   (size_t) p->n * sizeof *out);
        }
        pthread_mutex_unlock(&w->mutex);
    }
    return weft_rt_spans_all((size_t) n * devices * WEFT_RT_PIECES, out, err);
}

int weft_rt_spans_all(size_t n, struct weft_span span[], struct weft_err *err)
{
    int64_t *least = weft_alloc(2 * n, sizeof *least);
    int rc = weft_world_agree(
        least ? 0 : weft_err_nomem(err, "spans", 2 * n * sizeof *least), err);
    for (size_t i = 0; i < n && !rc; i++) {
        bool none = span[i].end_s == 0;
        least[2 * i] = none ? INT64_MAX : llrint(span[i].start_s * 1e9);
        least[2 * i + 1] = none ? INT64_MAX : -llrint(span[i].end_s * 1e9);
    }
    if (!rc)
        weft_world_reduce(least, (int) (2 * n), WEFT_MIN);
    for (size_t i = 0; i < n && !rc; i++) {
        bool none = least[2 * i] == INT64_MAX;
        span[i].start_s = none ? 0 : (double) least[2 * i] * 1e-9;
        span[i].end_s = none ? 0 : -(double) least[2 * i + 1] * 1e-9;
    }
    weft_free(least);
    return rc;
}

/* ---- On a worker ------------------------------------------------------ */

void weft_worker_begin(struct weft_worker *w, struct weft_task *t)
{
    t->start_us = weft_rt_now_us(w->exec.rt);
    pthread_mutex_lock(&w->mutex);
    w->running = t;
    w->n_running++;
    pthread_mutex_unlock(&w->mutex);
}

/* Widens a span that tasks on several workers share. */
static void widen(struct weft_rt *rt, struct weft_span *span, double start_s,
                  double end_s)
{
    pthread_mutex_lock(&rt->mutex);
    if (span->end_s == 0 || start_s < span->start_s)
        span->start_s = start_s;
    if (end_s > span->end_s)
        span->end_s = end_s;
    pthread_mutex_unlock(&rt->mutex);
}

/* When the work of a task that has ended was done on the stream: it took as
 * long as the card says, and began when its body was called, or later, by the
 * card's clock, after the work before it. */
static struct weft_span time_on_stream(struct weft_worker *w,
                                       const struct weft_task *t,
                                       double now_us)
{
    double since_us = 0, start_us = t->start_us;
    double took_us = weft_card_took(w, t->on_stream,
                                    t->follows ? &since_us : NULL);
    if (t->follows && start_us < w->stream_ended_us + since_us)
        start_us = w->stream_ended_us + since_us;
    if (start_us + took_us > now_us) /* the clocks differ by a little */
        start_us = now_us - took_us;
    w->stream_ended_us = start_us + took_us;
    return (struct weft_span){start_us * 1e-6, w->stream_ended_us * 1e-6};
}

/* Of a body that has done its work: a device does one after the other. */
static struct weft_span time_of_body(const struct weft_worker *w,
                                     const struct weft_task *t, double now_us)
{
    double start_us = t->start_us > w->ended_us ? t->start_us : w->ended_us;
    return (struct weft_span){start_us * 1e-6, now_us * 1e-6};
}

/* The caller holds w->mutex. */
static void keep_times(struct weft_worker *w, const struct weft_task *t,
                       struct weft_span ran, double hidden_s)
{
    weft_moves_ended(w, t, ran);
    const struct weft_where *where = &t->where;
    if (w->record)
        w->record[w->n_records++ % w->exec.rt->n_records] =
            (struct weft_record){t->codelet,
                                 ran.start_s * 1e6,
                                 ran.end_s * 1e6,
                                 where->iteration,
                                 where->micro_batch,
                                 where->layer,
                                 (int16_t) where->call,
                                 where->restores};
    if (where->restores)
        weft_times_add_restore(&w->times, where->iteration, where->call,
                               ran.end_s - ran.start_s, hidden_s);
    else if (!w->exec.copies) /* a device is busy */
        weft_times_add(&w->times, where->iteration, where->call, ran.start_s,
                       ran.end_s);
}

/* When a task that has ended ran. Only this worker's thread writes what this
 * reads, so no lock is needed. */
static struct weft_span note_time(struct weft_worker *w,
                                  const struct weft_task *t)
{
    double now_us = weft_rt_now_us(w->exec.rt);
    struct weft_span ran = t->is_under_way ? time_on_stream(w, t, now_us)
                                           : time_of_body(w, t, now_us);
    if (w->ended_us < ran.end_s * 1e6)
        w->ended_us = ran.end_s * 1e6;
    if (t->span)
        *t->span = ran;
    if (t->where.span)
        widen(w->exec.rt, t->where.span, ran.start_s, ran.end_s);
    return ran;
}

void weft_worker_end(struct weft_worker *w, const struct weft_task *t)
{
    struct weft_rt *rt = w->exec.rt;
    struct weft_span ran = {0, 0};
    double hidden_s = 0;
    /* on a card the next one's time depends on this one's */
    if (rt->profile || t->span || t->where.span || w->exec.card)
        ran = note_time(w, t);
    if (rt->profile && t->where.restores) /* takes the other workers' locks */
        hidden_s = weft_rt_hidden_s(rt, w, t->where.call, ran.start_s * 1e6,
                                    ran.end_s * 1e6);
    pthread_mutex_lock(&w->mutex);
    w->n_running--;
    if (w->running == t)
        w->running = NULL;
    if (rt->profile)
        keep_times(w, t, ran, hidden_s);
    pthread_mutex_unlock(&w->mutex);
}

/* ---- Trace ------------------------------------------------------------ */

static void write_number(FILE *f, const char *key, int32_t value)
{
    if (value >= 0)
        fprintf(f, ",\"%s\":%d", key, value);
}

static void write_record(FILE *f, const struct weft_rt *rt, int tid,
                         const struct weft_record *r)
{
    const char *name = weft_rt_call_name(rt, r->call);
    fprintf(f,
            ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,"
            "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cname\":\"%s\","
            "\"args\":{\"call\":\"%s\"",
            r->codelet->starpu.name, name, rt->rank, tid, r->start_us,
            r->end_us - r->start_us, call_colour[r->call % 8], name);
    write_number(f, "iteration", r->iteration);
    write_number(f, "micro_batch", r->micro_batch);
    write_number(f, "layer", r->layer);
    fprintf(f, "}}");
}

static void write_worker(FILE *f, struct weft_rt *rt, int d)
{
    struct weft_worker *w = &rt->worker[d];
    int rank = rt->rank, tid = rt->first_device + d,
        copier = d - rt->n_devices;
    char name[48];
    snprintf(name, sizeof name, "device %d", tid);
    if (copier >= 0) {
        tid = weft_rt_n_devices(rt) + copier;
        snprintf(name, sizeof name, "copies %s device %d",
                 copier % WEFT_CARD_COPIERS ? "from" : "to",
                 rt->first_device + copier / WEFT_CARD_COPIERS);
    }
    fprintf(f,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
            "\"args\":{\"name\":\"%s\"}},\n"
            "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,"
            "\"tid\":%d,\"args\":{\"sort_index\":%d}}",
            rank, tid, name, rank, tid, tid);
    pthread_mutex_lock(&w->mutex);
    int64_t end = w->n_records;
    int64_t first = end > rt->n_records ? end - rt->n_records : 0;
    for (int64_t i = first; i < end; i++)
        write_record(f, rt, tid, &w->record[i % rt->n_records]);
    pthread_mutex_unlock(&w->mutex);
}

/* Writes a message as a begin and an end event: messages overlap, and viewers
 * give such pairs rows of their own. */
static void write_message_time(FILE *f, int rank, int64_t id,
                               const struct weft_message_time *m)
{
    char name[48];
    snprintf(name, sizeof name, "%s rank %d", m->sends ? "to" : "from",
             m->peer);
    for (int end = 0; end < 2; end++) {
        fprintf(f,
                ",\n{\"name\":\"%s\",\"cat\":\"transfer\",\"ph\":\"%s\","
                "\"id\":\"%d.%lld\",\"pid\":%d,\"tid\":0,\"ts\":%.3f",
                name, end ? "e" : "b", rank, (long long) id, rank,
                end ? m->end_us : m->start_us);
        if (!end) {
            fprintf(f, ",\"args\":{\"tile\":\"%s\",\"bytes\":%zu", m->label,
                    m->bytes);
            write_number(f, "iteration", m->iteration);
            fprintf(f, "}");
        }
        fprintf(f, "}");
    }
}

/* What weft_rt_mark() notes. */
enum { MARKS = 1 << 14 };
struct weft_mark {
    const char *what, *of;
    double at_us; /* since weft_rt_start */
    int32_t call, iteration, which;
};

static void write_marks(FILE *f, struct weft_rt *rt)
{
    int64_t end = rt->n_marks;
    for (int64_t i = end > MARKS ? end - MARKS : 0; i < end; i++) {
        const struct weft_mark *m = &rt->mark[i % MARKS];
        fprintf(f,
                ",\n{\"name\":\"%s\",\"cat\":\"control\",\"ph\":\"i\","
                "\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,"
                "\"args\":{\"call\":\"%s\",\"iteration\":%d,\"%s\":%d}}",
                m->what, rt->rank, m->at_us, weft_rt_call_name(rt, m->call),
                m->iteration, m->of, m->which);
    }
}

void weft_rt_mark(struct weft_rt *rt, const char *what, const char *of,
                  int32_t call, int32_t iteration, int32_t which)
{
    if (!rt->profile || rt->is_dry)
        return;
    if (!rt->mark)
        rt->mark = weft_alloc(MARKS, sizeof *rt->mark);
    if (rt->mark) /* a trace may lack some */
        rt->mark[rt->n_marks++ % MARKS] = (struct weft_mark){
            what, of, weft_rt_now_us(rt), call, iteration, which};
}

/* Writes this rank's events; on ranks other than 0 the list begins with a
 * comma. */
static void write_rank(FILE *f, struct weft_rt *rt)
{
    char name[32] = "weft";
    if (rt->n_ranks > 1)
        snprintf(name, sizeof name, "rank %d", rt->rank);
    fprintf(f,
            "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
            "\"args\":{\"name\":\"%s\"}}",
            rt->rank ? ",\n" : "", rt->rank, name);
    for (int d = 0; d < rt->n_workers; d++)
        write_worker(f, rt, d);
    pthread_mutex_lock(&rt->mutex);
    int64_t end = rt->n_message_times;
    for (int64_t i = end > WEFT_MESSAGE_TIMES ? end - WEFT_MESSAGE_TIMES : 0;
         i < end; i++)
        write_message_time(f, rt->rank, i,
                           &rt->message_time[i % WEFT_MESSAGE_TIMES]);
    pthread_mutex_unlock(&rt->mutex);
    write_marks(f, rt);
}

/* Receives another rank's events as text and writes them. */
static int write_received(FILE *f, int rank, struct weft_err *err)
{
    size_t size;
    weft_world_receive(rank, &size, sizeof size);
    char *text = weft_alloc(size, 1);
    if (!text)
        return weft_err_nomem(err, "a rank's trace", size);
    weft_world_receive(rank, text, size);
    fwrite(text, 1, size, f);
    weft_free(text);
    return 0;
}

static int write_file(struct weft_rt *rt, FILE *f, const char *path,
                      struct weft_err *err)
{
    int rc = 0;
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    write_rank(f, rt);
    for (int r = 1; r < rt->n_ranks && !rc; r++)
        rc = write_received(f, r, err);
    if (rc) /* other ranks still send and would wait for ever */
        weft_world_abort(err);
    fprintf(f, "\n]}\n");
    bool bad = ferror(f) != 0;
    int saved = errno;
    if (fclose(f) != 0) {
        saved = bad ? saved : errno;
        bad = true;
    }
    errno = saved;
    return bad ? weft_err_sys(err, "write", path) : 0;
}

/* Rank 0 writes the file, which gets its name when it is complete. */
static int write_trace(struct weft_rt *rt, const char *path,
                       struct weft_err *err)
{
    size_t size = strlen(path) + 8;
    char *part = weft_alloc(size, 1);
    FILE *f = NULL;
    int rc = part ? 0 : weft_err_nomem(err, "a trace", size);
    if (!rc) {
        snprintf(part, size, "%s.part", path);
        f = fopen(part, "w");
        rc = f ? 0 : weft_err_sys(err, "write", path);
    }
    int all = weft_world_agree(rc, err);
    if (!all) {
        rc = write_file(rt, f, path, err);
        if (!rc && rename(part, path) != 0)
            rc = weft_err_sys(err, "write", path);
        all = weft_world_agree(rc, err);
    } else if (f) {
        fclose(f);
    }
    if (f && all)
        unlink(part);
    weft_free(part);
    return all;
}

/* Any other rank's. */
static int send_text(struct weft_rt *rt, struct weft_err *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f) {
        write_rank(f, rt);
        if (fclose(f) != 0)
            f = NULL;
    }
    int rc = f ? 0 : weft_err_nomem(err, "this rank's trace", size);
    rc = weft_world_agree(rc, err);
    if (!rc) {
        weft_world_send(0, &size, sizeof size);
        weft_world_send(0, text, size);
        rc = weft_world_agree(0, err);
    }
    free(text);
    return rc;
}

int weft_rt_write_trace(struct weft_rt *rt, const char *path,
                        struct weft_err *err)
{
    if (!rt->profile)
        return weft_err_set(err, WEFT_ESTATE,
                            "cannot write '%s': no task records were kept; "
                            "start with profiling",
                            path);
    return rt->rank == 0 ? write_trace(rt, path, err) : send_text(rt, err);
}
