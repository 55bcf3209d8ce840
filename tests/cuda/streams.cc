/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of emulated cards. What is put on a stream is kept until
 * someone waits for it, or asks: then it runs in that thread, and before it
 * whatever it waits for itself. So what nobody waits for has not happened
 * yet, and what is not ordered happens in the order that a test chooses.
 */
#include <stdlib.h>
#include <time.h>

#include "emulator.h"

/* A point in a stream: kept while an event or an operation names it. */
struct mark {
    int n_refs;
    bool is_done;
    struct CUstream_st *stream; /* while it is not done */
    double ms;                  /* when it was done */
};

struct alignas(16) operation {
    struct operation *next;
    struct mark *wait, *mark; /* runs after it; it is done then. Or NULL */
    void (*run)(int card, void *what);
};

struct CUstream_st {
    struct CUstream_st *next;
    int card;
    bool is_blocking; /* waits for the null stream, which waits for it */
    bool is_destroyed;
    struct operation *first, *last;
};

struct CUevent_st {
    struct CUevent_st *next;
    int card;
    bool has_time;
    struct mark *mark; /* NULL: not recorded */
};

static struct CUstream_st null_stream[WEFT_EMU_CARDS], *streams;
static struct CUevent_st *events;
static int order = -1;
static uint64_t random_state;

/* ---- Marks -------------------------------------------------------------- */

static double operation_ms, ticked_ms;

void weft_cards_tick(double ms)
{
    weft_emu_guard guard;
    operation_ms = ms;
}

void weft_emu_tick(void)
{
    ticked_ms += operation_ms;
}

static double now_ms(void)
{
    struct timespec t;
    if (operation_ms > 0)
        return ticked_ms;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double) t.tv_sec + 1e-6 * (double) t.tv_nsec;
}

static void drop(struct mark *m)
{
    if (m && --m->n_refs == 0)
        free(m);
}

static struct mark *keep(struct mark *m)
{
    m->n_refs++;
    return m;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* ---- What runs ---------------------------------------------------------- */

static bool is_held(const struct operation *o)
{
    int held = weft_emu_held();
    return ((held & WEFT_CARDS_KERNELS)
            && (weft_emu_is_kernel(o->run) || weft_emu_is_loop(o->run)))
        || ((held & WEFT_CARDS_COPIES) && weft_emu_is_copy(o->run));
}

static bool step(struct CUstream_st *s);

/* What others can do while a stream's kernel waits for another card. False:
 * nothing. */
static bool step_others(const struct CUstream_st *s)
{
    static bool is_inside;
    bool any = false;
    for (struct CUstream_st *o = streams; o && !is_inside && !any;
         o = o->next) {
        is_inside = true;
        any = o != s && o->first && step(o);
        is_inside = false;
    }
    return any;
}

/* Runs one operation: the stream's first, or one that it waits for; of a loop
 * one of those in it. False: it is held, or waits for another card that has
 * nothing to do. */
static bool step(struct CUstream_st *s)
{
    while (s->first->wait && !s->first->wait->is_done)
        s = s->first->wait->stream;
    struct operation *o = s->first;
    if (is_held(o))
        return false;
    if (o->run && weft_emu_failure() == cudaSuccess) {
        o->run(s->card, o + 1);
        if (weft_emu_waits())
            return step_others(s);
        if (weft_emu_is_loop(o->run) && weft_emu_goes_on(o + 1))
            return true;
    }
    s->first = o->next;
    if (!s->first)
        s->last = NULL;
    if (o->run && !weft_emu_is_loop(o->run))
        weft_emu_tick();
    if (o->mark) {
        o->mark->is_done = true;
        o->mark->ms = now_ms();
    }
    drop(o->mark);
    drop(o->wait);
    free(o);
    return true;
}

static unsigned chance(unsigned of)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned) (random_state >> 33) % of;
}

static void set_order(int which)
{
    order = which;
    random_state = (uint64_t) which;
}

static bool is_late(void)
{
    if (order < 0)
        set_order(weft_emu_setup()->order);
    return order == WEFT_CARDS_LATE;
}

/* In an order by chance: perhaps something of some stream. */
static void perhaps_another(void)
{
    if (is_late() || order == WEFT_CARDS_AT_ONCE)
        return;
    unsigned n = 0;
    struct CUstream_st *chosen = NULL;
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->first && chance(++n) == 0)
            chosen = s;
    if (chosen && chance(2) == 0)
        step(chosen);
}

static void run_until(struct mark *m)
{
    keep(m); /* its event may be recorded anew during a pause */
    while (!m->is_done) {
        perhaps_another();
        if (!m->is_done && !step(m->stream))
            weft_emu_pause();
    }
    drop(m);
}

/* Whether a mark is done; if not, there is some progress. */
static bool ask(const struct mark *m)
{
    if (m->is_done)
        return true;
    if (is_late() || chance(2) == 0)
        step(m->stream);
    else
        perhaps_another();
    return false;
}

/* ---- What is queued ------------------------------------------------------ */

static struct operation *append(struct CUstream_st *s, size_t n_bytes)
{
    struct operation *o = (struct operation *) must(
        calloc(1, sizeof *o + n_bytes));
    if (s->last)
        s->last->next = o;
    else
        s->first = o;
    s->last = o;
    return o;
}

static struct mark *mark_end(struct CUstream_st *s)
{
    struct mark *m = (struct mark *) must(calloc(1, sizeof *m));
    m->stream = s;
    append(s, 0)->mark = keep(m);
    return keep(m);
}

static void put_wait(struct CUstream_st *s, struct mark *m)
{
    append(s, 0)->wait = keep(m);
}

static void wait_for_stream(struct CUstream_st *s, struct CUstream_st *other)
{
    if (!other->first)
        return;
    struct mark *m = mark_end(other);
    put_wait(s, m);
    drop(m);
}

/* The null stream and blocking streams of a card wait for one another. */
static void put_order(struct CUstream_st *s)
{
    struct CUstream_st *null = &null_stream[s->card];
    if (s != null && s->is_blocking)
        wait_for_stream(s, null);
    for (struct CUstream_st *o = streams; s == null && o; o = o->next)
        if (o->is_blocking && o->card == s->card && o != null)
            wait_for_stream(null, o);
}

static void after_put(struct CUstream_st *s)
{
    if (!is_late() && order == WEFT_CARDS_AT_ONCE)
        while (s->first && step(s))
            continue;
    perhaps_another();
}

void weft_emu_put(struct CUstream_st *s, void (*run)(int, void *),
                  const void *what, size_t n_bytes)
{
    if (weft_emu_captures(s, run, what, n_bytes))
        return;
    put_order(s);
    struct operation *o = append(s, n_bytes);
    o->run = run;
    memcpy(o + 1, what, n_bytes);
    after_put(s);
}

void weft_emu_wait(struct CUstream_st *s)
{
    put_order(s);
    struct mark *m = mark_end(s);
    run_until(m);
    drop(m);
}

void weft_emu_wait_card(int card)
{
    struct CUstream_st *s = streams;
    while (s) {
        bool waits = s->card == card && s->first;
        if (waits)
            perhaps_another();
        if (waits && s->first && !step(s)) {
            weft_emu_pause();
            s = streams; /* some may have come and gone */
        } else if (!waits) {
            s = s->next;
        }
    }
}

void weft_emu_order(int which)
{
    set_order(which);
}

/* ---- Streams ------------------------------------------------------------ */

static struct CUstream_st *null_of(int card)
{
    struct CUstream_st *s = &null_stream[card];
    if (!s->is_blocking) {
        s->card = card;
        s->is_blocking = true;
        s->next = streams;
        streams = s;
    }
    return s;
}

struct CUstream_st *weft_emu_stream(cudaStream_t stream)
{
    if (stream == NULL || stream == cudaStreamLegacy)
        return null_of(weft_emu_card());
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s == stream && !s->is_destroyed)
            return s;
    return NULL;
}

int weft_emu_stream_card(const struct CUstream_st *s)
{
    return s->card;
}

/* Destroyed ones go when all they had has run. */
static void sweep(void)
{
    struct CUstream_st **at = &streams;
    while (*at) {
        struct CUstream_st *s = *at;
        if (s->is_destroyed && !s->first) {
            *at = s->next;
            free(s);
        } else {
            at = &s->next;
        }
    }
}

void weft_emu_streams_clear(int card)
{
    weft_emu_wait_card(card);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->card == card && s != &null_stream[card])
            s->is_destroyed = true;
    sweep();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    sweep();
    null_of(weft_emu_card());
    struct CUstream_st *s = (struct CUstream_st *) must(calloc(1, sizeof *s));
    s->card = weft_emu_card();
    s->is_blocking = !(flags & cudaStreamNonBlocking);
    s->next = streams;
    streams = s;
    *out = s;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUstream_st *s = stream ? weft_emu_stream(stream) : NULL;
    if (!s || s == &null_stream[s->card])
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    s->is_destroyed = true;
    sweep();
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    weft_emu_counts(s->card)->n_waits++;
    weft_emu_wait(s);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (!s->first)
        return weft_emu_end(cudaSuccess);
    if (is_late() || chance(2) == 0)
        step(s);
    else
        perhaps_another();
    return weft_emu_end(cudaErrorNotReady);
}

struct callback {
    cudaHostFn_t fn;
    void *arg;
};

static void run_callback(int, void *what)
{
    struct callback *c = (struct callback *) what;
    c->fn(c->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn,
                               void *arg)
{
    weft_emu_guard guard;
    struct CUstream_st *s = weft_emu_stream(stream);
    struct callback c = {fn, arg};
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    weft_emu_put(s, run_callback, &c, sizeof c);
    return weft_emu_end(cudaSuccess);
}

/* ---- Events ------------------------------------------------------------- */

static struct CUevent_st *event_of(cudaEvent_t event)
{
    for (struct CUevent_st *e = events; e; e = e->next)
        if (e == event)
            return e;
    return NULL;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    weft_emu_guard guard;
    struct CUevent_st *e = (struct CUevent_st *) must(calloc(1, sizeof *e));
    e->card = weft_emu_card();
    e->has_time = !(flags & cudaEventDisableTiming);
    e->next = events;
    events = e;
    *out = e;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    weft_emu_guard guard;
    struct CUevent_st **at = &events;
    (void) weft_emu_card();
    while (*at && *at != event)
        at = &(*at)->next;
    if (!event || !*at)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    struct CUevent_st *e = *at;
    *at = e->next;
    drop(e->mark);
    free(e);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUevent_st *e = event_of(event);
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!e || !s || e->card != s->card)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    put_order(s);
    drop(e->mark);
    e->mark = mark_end(s);
    after_put(s);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUevent_st *e = event_of(event);
    if (!e)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    return weft_emu_end(!e->mark || ask(e->mark) ? cudaSuccess
                                                 : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUevent_st *e = event_of(event);
    if (!e)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (e->mark)
        run_until(e->mark);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUstream_st *s = weft_emu_stream(stream);
    struct CUevent_st *e = event_of(event);
    if (!s || !e)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (e->mark) {
        put_order(s);
        put_wait(s, e->mark);
        after_put(s);
    }
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms_out, cudaEvent_t from,
                                 cudaEvent_t to)
{
    weft_emu_guard guard;
    struct CUevent_st *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->mark || !b->mark || !a->has_time || !b->has_time)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (!a->mark->is_done || !b->mark->is_done)
        return weft_emu_end(cudaErrorNotReady);
    *ms_out = (float) (b->mark->ms - a->mark->ms);
    return weft_emu_end(cudaSuccess);
}
