/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA graphs of what is put on one stream. It is one that no other waits for:
 * what other threads do meanwhile does not touch the capture. */
#include <cuda_runtime.h>

#include "kern/kern_cuda.h"

cudaStream_t weft_k_capture_cuda(void)
{
    cudaStream_t stream = NULL;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)
        != cudaSuccess)
        return NULL;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)
        == cudaSuccess)
        return stream;
    cudaStreamDestroy(stream);
    return NULL;
}

cudaGraphExec_t weft_k_captured_cuda(cudaStream_t stream, int64_t most,
                                     int64_t *n_out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t out = NULL;
    size_t n = 0;
    *n_out = 0;
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) {
        if (cudaGraphGetNodes(graph, NULL, &n) == cudaSuccess)
            *n_out = (int64_t) n;
        if (*n_out > most
            || cudaGraphInstantiate(&out, graph, 0) != cudaSuccess)
            out = NULL;
        cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(stream);
    return out;
}

void weft_k_replay_cuda(cudaStream_t stream, cudaGraphExec_t graph)
{
    cudaGraphLaunch(graph, stream);
}

void weft_k_graph_free_cuda(cudaGraphExec_t graph)
{
    if (graph)
        cudaGraphExecDestroy(graph);
}
