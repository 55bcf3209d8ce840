/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of emulated cards: what one stream was given while it was captured,
 * in the thread-local mode; a launch puts it on a stream again, in order. What
 * would wait or allocate meanwhile, in the thread that captures, is refused and
 * makes the capture invalid, as with CUDA.
 */
#include <stdlib.h>

#include "emulator.h"

struct alignas(16) node {
    struct node *next;
    void (*run)(int card, void *what);
    size_t n_bytes;
};

struct CUgraph_st {
    struct node *first, **end;
    struct CUstream_st *stream;
    bool is_invalid;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

/* Of this thread: what it captures. */
static __thread struct CUgraph_st *capture;

static void free_graph(struct CUgraph_st *g)
{
    while (g->first) {
        struct node *n = g->first;
        g->first = n->next;
        free(n);
    }
    free(g);
}

static struct CUgraph_st *new_graph(void)
{
    struct CUgraph_st *g = (struct CUgraph_st *) calloc(1, sizeof *g);
    if (!g)
        abort();
    g->end = &g->first;
    return g;
}

static void add(struct CUgraph_st *g, void (*run)(int, void *),
                const void *what, size_t n_bytes)
{
    struct node *n = (struct node *) calloc(1, sizeof *n + n_bytes);
    if (!n)
        abort();
    n->run = run;
    n->n_bytes = n_bytes;
    memcpy(n + 1, what, n_bytes);
    *g->end = n;
    g->end = &n->next;
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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode)
{
    weft_emu_guard guard;
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (!stream || stream == cudaStreamLegacy)
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    if (capture || mode != cudaStreamCaptureModeThreadLocal)
        return weft_emu_end(cudaErrorNotSupported);
    capture = new_graph();
    capture->stream = s;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    weft_emu_guard guard;
    struct CUgraph_st *g = capture;
    *out = NULL;
    if (!g || g->stream != stream)
        return weft_emu_end(cudaErrorIllegalState);
    capture = NULL;
    if (g->is_invalid) {
        free_graph(g);
        return weft_emu_end(cudaErrorStreamCaptureInvalidated);
    }
    *out = g;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *n)
{
    weft_emu_guard guard;
    if (!graph || nodes || !n) /* their number alone */
        return weft_emu_end(cudaErrorInvalidValue);
    *n = 0;
    for (const struct node *x = graph->first; x; x = x->next)
        ++*n;
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    weft_emu_guard guard;
    if (!graph)
        return weft_emu_end(cudaErrorInvalidValue);
    free_graph(graph);
    return weft_emu_end(cudaSuccess);
}

/* It has a graph of its own, as the other may be destroyed. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long)
{
    weft_emu_guard guard;
    if (!graph || !out)
        return weft_emu_end(cudaErrorInvalidValue);
    struct CUgraphExec_st *e = (struct CUgraphExec_st *) calloc(1, sizeof *e);
    if (!e)
        abort();
    e->graph = new_graph();
    int64_t n_nodes = 0;
    for (const struct node *n = graph->first; n; n = n->next, n_nodes++)
        add(e->graph, n->run, n + 1, n->n_bytes);
    *out = e;
    weft_emu_counts(weft_emu_card())->n_nodes = n_nodes;
    weft_emu_counts(weft_emu_card())->n_instances++;
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
