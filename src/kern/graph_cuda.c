/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs of what is put on one stream, once or in a loop. The stream is
 * one that no other waits for: what other threads do meanwhile does not touch
 * the capture. */
#include <cuda_runtime.h>

#include "kern/kern_cuda.h"

/* Captures the body of a loop, which is all that the graph has. Its condition
 * begins as 1 with every launch. */
static cudaError_t begin_loop(struct weft_k_capture *c)
{
#if CUDART_VERSION >= 12040
    struct cudaGraphNodeParams node = {.type = cudaGraphNodeTypeConditional};
    cudaGraphConditionalHandle again;
    cudaGraphNode_t loop;
    cudaError_t rc = cudaGraphCreate(&c->graph, 0);
    if (rc == cudaSuccess)
        rc = cudaGraphConditionalHandleCreate(&again, c->graph, 1,
                                              cudaGraphCondAssignDefault);
    if (rc != cudaSuccess)
        return rc;
    node.conditional.handle = again;
    node.conditional.type = cudaGraphCondTypeWhile;
    node.conditional.size = 1;
#if CUDART_VERSION >= 13000
    rc = cudaGraphAddNode(&loop, c->graph, NULL, NULL, 0, &node);
#else
    rc = cudaGraphAddNode(&loop, c->graph, NULL, 0, &node);
#endif
    if (rc != cudaSuccess)
        return rc;
    c->again = again;
    c->body = node.conditional.phGraph_out[0];
    return cudaStreamBeginCaptureToGraph(c->stream, c->body, NULL, NULL, 0,
                                         cudaStreamCaptureModeThreadLocal);
#else
    (void) c;
    return cudaErrorNotSupported;
#endif
}

static void close_capture(struct weft_k_capture *c)
{
    if (c->graph)
        cudaGraphDestroy(c->graph);
    if (c->stream)
        cudaStreamDestroy(c->stream);
}

/* A step can be launched one by one, too: a loop that cannot be had is no
 * error that should come up later. */
static void forget_loop(const struct weft_k_capture *c)
{
    if (c->is_loop)
        cudaGetLastError();
}

bool weft_k_capture_cuda(bool is_loop, struct weft_k_capture *out)
{
    *out = (struct weft_k_capture){.is_loop = is_loop};
    cudaError_t rc = cudaStreamCreateWithFlags(&out->stream,
                                               cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = is_loop ? begin_loop(out)
                     : cudaStreamBeginCapture(
                         out->stream, cudaStreamCaptureModeThreadLocal);
    if (rc == cudaSuccess)
        return true;
    close_capture(out);
    forget_loop(out);
    return false;
}

cudaGraphExec_t weft_k_captured_cuda(struct weft_k_capture *c, int64_t most,
                                     int64_t *n_out)
{
    cudaGraph_t captured = NULL;
    cudaGraphExec_t out = NULL;
    size_t n = 0;
    *n_out = 0;
    if (cudaStreamEndCapture(c->stream, &captured) == cudaSuccess) {
        if (!c->is_loop)
            c->graph = c->body = captured;
        if (cudaGraphGetNodes(c->body, NULL, &n) == cudaSuccess)
            *n_out = (int64_t) n;
        if (*n_out > most
            || cudaGraphInstantiateWithFlags(&out, c->graph, 0)
                   != cudaSuccess)
            out = NULL;
    } else if (c->is_loop) {
        /* CUDA has freed the body, and the loop would free it once more: that
         * ends the process (NVIDIA/cuda-python issue 2918). It is lost. */
        c->graph = NULL;
    }
    close_capture(c);
    if (!out)
        forget_loop(c);
    return out;
}

void weft_k_replay_cuda(cudaStream_t stream, cudaGraphExec_t graph)
{
    if (weft_k_has_launched_cuda())
        cudaGraphLaunch(graph, stream);
}

void weft_k_graph_free_cuda(cudaGraphExec_t graph)
{
    if (graph)
        cudaGraphExecDestroy(graph);
}
