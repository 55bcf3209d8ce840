/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of emulated cards: what one stream was given while it was captured,
 * in the thread-local mode, and loops of it; a launch puts it on a stream
 * again, in order. What would wait or allocate meanwhile, in the thread that
 * captures, is refused and makes the capture invalid, as with CUDA.
 */
#include <stdlib.h>

#include "emulator.h"

/* An operation; or a loop, whose body is a graph of its own. */
struct alignas(16) node {
    struct node *next;
    void (*run)(int card, void *what);
    struct CUgraph_st *body;
    cudaGraphConditionalHandle again; /* the loop's */
    size_t n_bytes;
};

struct CUgraph_st {
    struct node *first, **end;
    struct CUstream_st *stream;
    struct CUgraph_st *next_capture;
    cudaGraphConditionalHandle again; /* for a loop in it; 0: none */
    unsigned begins_as;               /* that condition */
    bool is_body, is_invalid;
    struct CUgraph_st *owner; /* whose loop has this body */
    bool is_gone;             /* the body is freed, and still in there */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

/* Of this thread: what it captures. */
static __thread struct CUgraph_st *capture;
static struct CUgraph_st *captures; /* of all threads */
static struct CUgraph_st *gone;     /* bodies that are, by next_capture */
static bool has_loops = true;
static uint64_t n_handles;
static struct loop *running; /* whose operation runs */

void weft_cards_loops(int are_there)
{
    weft_emu_guard guard;
    has_loops = are_there != 0;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void free_graph(struct CUgraph_st *g)
{
    while (g->first) {
        struct node *n = g->first;
        g->first = n->next;
        if (n->body)
            free_graph(n->body);
        free(n);
    }
    free(g);
}

static struct CUgraph_st *new_graph(void)
{
    struct CUgraph_st *g = (struct CUgraph_st *) must(calloc(1, sizeof *g));
    g->end = &g->first;
    return g;
}

static struct node *add(struct CUgraph_st *g, void (*run)(int, void *),
                        const void *what, size_t n_bytes)
{
    struct node *n = (struct node *) must(calloc(1, sizeof *n + n_bytes));
    n->run = run;
    n->n_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(n + 1, what, n_bytes);
    *g->end = n;
    g->end = &n->next;
    return n;
}

bool weft_emu_captures(struct CUstream_st *s, void (*run)(int, void *),
                       const void *what, size_t n_bytes)
{
    if (capture && s == weft_emu_stream(NULL))
        capture->is_invalid = true; /* it would wait for the captured one */
    if (!capture || capture->stream != s)
        return false;
    add(capture, run, what, n_bytes);
    return true;
}

bool weft_emu_forbids(void)
{
    if (capture)
        capture->is_invalid = true;
    return capture != NULL;
}

bool weft_emu_spoils(int card)
{
    bool any = false;
    for (struct CUgraph_st *g = captures; g; g = g->next_capture) {
        bool is_here = weft_emu_stream_card(g->stream) == card;
        g->is_invalid |= is_here;
        any |= is_here;
    }
    return any;
}

/* ---- Captures ------------------------------------------------------------- */

static cudaError_t begin(cudaStream_t stream, struct CUgraph_st *graph,
                         enum cudaStreamCaptureMode mode)
{
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return cudaErrorInvalidResourceHandle;
    if (!stream || stream == cudaStreamLegacy)
        return cudaErrorStreamCaptureUnsupported;
    if (capture || mode != cudaStreamCaptureModeThreadLocal)
        return cudaErrorNotSupported;
    capture = graph ? graph : new_graph();
    capture->stream = s;
    capture->next_capture = captures;
    captures = capture;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode)
{
    weft_emu_guard guard;
    return weft_emu_end(begin(stream, NULL, mode));
}

/* Into the body of a loop, which is empty. */
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream,
                                          cudaGraph_t graph,
                                          const cudaGraphNode_t *,
                                          const cudaGraphEdgeData *, size_t n,
                                          enum cudaStreamCaptureMode mode)
{
    weft_emu_guard guard;
    if (!graph || !graph->is_body || graph->first || n > 0)
        return weft_emu_end(cudaErrorInvalidValue);
    return weft_emu_end(begin(stream, graph, mode));
}

/* CUDA frees a loop's body, too, which is the loop's. Who owns that may not be
 * destroyed any more; it is kept here, as it is lost. */
static void lose(struct CUgraph_st *g)
{
    if (!g->is_body) {
        free_graph(g);
        return;
    }
    g->is_gone = true;
    g->next_capture = gone;
    gone = g;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    weft_emu_guard guard;
    struct CUgraph_st *g = capture;
    *out = NULL;
    if (!g || g->stream != stream)
        return weft_emu_end(cudaErrorIllegalState);
    capture = NULL;
    struct CUgraph_st **at = &captures;
    while (*at != g)
        at = &(*at)->next_capture;
    *at = g->next_capture;
    if (g->is_invalid) {
        lose(g);
        return weft_emu_end(cudaErrorStreamCaptureInvalidated);
    }
    *out = g;
    return weft_emu_end(cudaSuccess);
}

/* ---- Graphs --------------------------------------------------------------- */

cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned)
{
    weft_emu_guard guard;
    *out = new_graph();
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *out,
                                             cudaGraph_t graph,
                                             unsigned value, unsigned flags)
{
    weft_emu_guard guard;
    if (!has_loops)
        return weft_emu_end(cudaErrorNotSupported);
    if (!graph || graph->again || flags != cudaGraphCondAssignDefault)
        return weft_emu_end(cudaErrorInvalidValue);
    *out = graph->again = ++n_handles;
    graph->begins_as = value;
    return weft_emu_end(cudaSuccess);
}

/* A loop, behind what the graph has. */
cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t graph,
                             const cudaGraphNode_t *,
                             const cudaGraphEdgeData *, size_t n,
                             struct cudaGraphNodeParams *params)
{
    weft_emu_guard guard;
    struct cudaConditionalNodeParams *c = &params->conditional;
    if (!graph || n > 0 || graph->first
        || params->type != cudaGraphNodeTypeConditional
        || c->type != cudaGraphCondTypeWhile || c->size != 1 || !c->handle
        || c->handle != graph->again)
        return weft_emu_end(cudaErrorInvalidValue);
    struct node *loop = add(graph, NULL, NULL, 0);
    loop->again = c->handle;
    loop->body = new_graph();
    loop->body->is_body = true;
    loop->body->owner = graph;
    c->phGraph_out = &loop->body;
    *out = (cudaGraphNode_t) loop;
    return weft_emu_end(cudaSuccess);
}

static size_t n_nodes(const struct CUgraph_st *graph)
{
    size_t n = 0;
    for (const struct node *x = graph->first; x; x = x->next)
        n++;
    return n;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *n)
{
    weft_emu_guard guard;
    if (!graph || nodes || !n) /* their number alone */
        return weft_emu_end(cudaErrorInvalidValue);
    *n = n_nodes(graph);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    weft_emu_guard guard;
    if (!graph || graph->is_body)
        return weft_emu_end(cudaErrorInvalidValue);
    for (const struct node *n = graph->first; n; n = n->next)
        if (n->body && n->body->is_gone) {
            weft_emu_fail(cudaErrorIllegalAddress,
                          "a graph is destroyed whose loop's body was freed "
                          "with its capture: CUDA ends the process");
            return weft_emu_end(cudaErrorIllegalAddress);
        }
    free_graph(graph);
    return weft_emu_end(cudaSuccess);
}

/* ---- Loops ---------------------------------------------------------------- */

/* What a launched loop has: its operations follow, one after the other. */
struct alignas(16) loop {
    cudaGraphConditionalHandle again;
    unsigned value; /* of its condition */
    bool is_set;    /* in this round */
    size_t n_operations;
    size_t n_ended, ended_bytes; /* of them, in this round */
};
struct alignas(16) operation {
    void (*run)(int card, void *what);
    size_t n_bytes; /* what follows */
};

static size_t padded(size_t n_bytes)
{
    return (n_bytes + 15) / 16 * 16;
}

/* An operation changes what it is given: it gets a copy each time. */
static void run_operation(int card, const struct operation *o)
{
    void *what = must(malloc(padded(o->n_bytes) + 16));
    memcpy(what, o + 1, o->n_bytes);
    o->run(card, what);
    free(what);
}

static void end_round(struct loop *l)
{
    if (!l->is_set)
        weft_emu_fail(cudaErrorLaunchFailure,
                      "nothing in a loop sets its condition: it never ends");
    l->is_set = false;
    l->n_ended = l->ended_bytes = 0;
}

/* Its next operation, which may wait for another card. */
static void run_loop(int card, void *what)
{
    struct loop *l = (struct loop *) what;
    const struct operation *o =
        (const struct operation *) ((const char *) (l + 1)
                                    + l->ended_bytes);
    if (l->value == 0)
        return;
    if (l->n_ended < l->n_operations) {
        running = l;
        run_operation(card, o);
        running = NULL;
        if (weft_emu_waits()) {
            weft_emu_sleep();
            return;
        }
        weft_emu_tick();
        l->n_ended++;
        l->ended_bytes += sizeof *o + padded(o->n_bytes);
    }
    if (l->n_ended == l->n_operations)
        end_round(l);
}

bool weft_emu_goes_on(const void *what)
{
    const struct loop *l = (const struct loop *) what;
    return weft_emu_failure() == cudaSuccess
        && (l->value != 0 || l->n_ended > 0);
}

bool weft_emu_is_loop(void (*run)(int, void *))
{
    return run == run_loop;
}

/* As a kernel calls it. */
void cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                             unsigned value)
{
    if (!running || handle != running->again) {
        weft_emu_fail(cudaErrorIllegalAddress,
                      "a kernel sets the condition of a loop that it is not "
                      "in");
        return;
    }
    running->value = value;
    running->is_set = true;
}

/* The body's operations, as run_loop() has them. */
static void add_loop(struct CUgraph_st *g, const struct node *from,
                     unsigned begins_as)
{
    size_t bytes = sizeof(struct loop);
    for (const struct node *n = from->body->first; n; n = n->next)
        bytes += sizeof(struct operation) + padded(n->n_bytes);
    char *what = (char *) must(calloc(1, bytes)),
         *at = what + sizeof(struct loop);
    struct loop *loop = (struct loop *) what;
    loop->again = from->again;
    loop->value = begins_as;
    loop->n_operations = n_nodes(from->body);
    for (const struct node *n = from->body->first; n; n = n->next) {
        *(struct operation *) at = {n->run, n->n_bytes};
        memcpy(at + sizeof(struct operation), n + 1, n->n_bytes);
        at += sizeof(struct operation) + padded(n->n_bytes);
    }
    add(g, run_loop, what, bytes);
    free(what);
}

/* ---- Launches ------------------------------------------------------------- */

/* It has a graph of its own, as the other may be destroyed. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out,
                                          cudaGraph_t graph,
                                          unsigned long long)
{
    weft_emu_guard guard;
    if (!graph || !out || graph->is_body)
        return weft_emu_end(cudaErrorInvalidValue);
    struct CUgraphExec_st *e = (struct CUgraphExec_st *) must(
        calloc(1, sizeof *e));
    struct weft_cards_counts *counts = weft_emu_counts(weft_emu_card());
    e->graph = new_graph();
    counts->n_nodes = 0;
    for (const struct node *n = graph->first; n; n = n->next)
        if (n->body) {
            add_loop(e->graph, n, graph->begins_as);
            counts->n_nodes += (int64_t) n_nodes(n->body);
        } else {
            add(e->graph, n->run, n + 1, n->n_bytes);
            counts->n_nodes++;
        }
    *out = e;
    counts->n_instances++;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    weft_emu_guard guard;
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!exec)
        return weft_emu_end(cudaErrorInvalidValue);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (weft_emu_forbids()) /* graphs inside of graphs are not here */
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    for (const struct node *n = exec->graph->first; n; n = n->next)
        weft_emu_put(s, n->run, n + 1, n->n_bytes);
    weft_emu_counts(weft_emu_stream_card(s))->n_graphs++;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    weft_emu_guard guard;
    if (!exec)
        return weft_emu_end(cudaErrorInvalidValue);
    free_graph(exec->graph);
    free(exec);
    return weft_emu_end(cudaSuccess);
}
