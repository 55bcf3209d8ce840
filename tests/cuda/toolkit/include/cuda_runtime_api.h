/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Weft and StarPU need of CUDA's runtime library, for emulated cards:
 * tests only (doc/gpu.md). Names, numbers and answers are those of CUDA 13.
 *
 * Device memory cannot be read or written by the host: an access ends the
 * process with a sentence. Operations on streams, the null stream's too, are
 * queued, and run in the thread that waits for them, or asks for them; in
 * which order those of different streams run is chosen by WEFT_CARDS_ORDER:
 *   0  as late as can be: only what is waited for (the default)
 *   1  at once
 *   n  an order that depends on the number
 * A copy is asynchronous even where host memory is pageable. Further:
 *   WEFT_CARDS             how many cards (1), or none: no driver
 *   WEFT_CARDS_MEMORY      of each, in MiB (1024)
 *   WEFT_CARDS_HELD        what other processes hold of that, in MiB (0)
 *   WEFT_CARDS_CAPABILITY  their compute capability (9.0)
 *   WEFT_CARDS_PEER        0: cards cannot access one another's memory
 *   WEFT_CARDS_CUBLASLT    the version of cuBLASLt
 *   WEFT_CARDS_SUMS        own: products have an order of sums that is not the
 *                          CPU's (cublasLt.h)
 *   WEFT_CARDS_REFUSED     the launch behind so many others is refused
 *   WEFT_CARDS_LOST        the kernel that runs behind so many others, and all
 *                          that follows, fails: a card that is lost
 */
#ifndef WEFT_TESTS_CUDA_RUNTIME_API_H
#define WEFT_TESTS_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef WEFT_CUDA_AS_ON_A_CARD /* is what tests are compiled for there clean? */
#define WEFT_CUDA_EXECUTOR 1
#endif
#define CUDART_VERSION 13000
#define CUDART_CB

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorCudartUnloading = 4,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidKernelImage = 200,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalState = 401,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorPeerAccessNotEnabled = 705,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorUnknown = 999
} cudaError_t;
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
/* The calling thread's last error, which is forgotten; but what failed on a
 * card stays, as with CUDA, until cudaDeviceReset(). */
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

/* ---- Cards ------------------------------------------------------------- */

typedef struct {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount;
    int l2CacheSize, concurrentKernels, asyncEngineCount, unifiedAddressing;
    int pciBusID, pciDeviceID, pciDomainID;
};
enum cudaComputeMode {
    cudaComputeModeDefault = 0,
    cudaComputeModeExclusive = 1,
    cudaComputeModeProhibited = 2,
    cudaComputeModeExclusiveProcess = 3
};
typedef enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76
} cudaDeviceAttr;
cudaError_t cudaGetDeviceCount(int *n_out);
cudaError_t cudaGetDevice(int *card_out);
cudaError_t cudaSetDevice(int card); /* of the calling thread */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int card);
cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int card);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceCanAccessPeer(int *can_out, int card, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int other);
cudaError_t cudaRuntimeGetVersion(int *out);
cudaError_t cudaDriverGetVersion(int *out);

/* ---- Memory ------------------------------------------------------------ */

struct CUstream_st;
typedef struct CUstream_st *cudaStream_t;
#define cudaStreamLegacy ((cudaStream_t) 1)

#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2
};
struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
cudaError_t cudaMalloc(void **out, size_t n_bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocAsync(void **out, size_t n_bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out);
cudaError_t cudaHostAlloc(void **out, size_t n_bytes, unsigned flags);
cudaError_t cudaMallocHost(void **out, size_t n_bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                     const void *p);

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes,
                       enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemcpyPeer(void *to, int to_card, const void *from,
                           int from_card, size_t n_bytes);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_card, const void *from,
                                int from_card, size_t n_bytes,
                                cudaStream_t stream);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from,
                         size_t from_pitch, size_t n_bytes, size_t n_rows,
                         enum cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t n_bytes,
                              size_t n_rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *to, int value, size_t n_bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t n_bytes,
                            cudaStream_t stream);

/* Of these only rectangles: a depth of 1, no arrays. */
struct cudaPitchedPtr {
    void *ptr;
    size_t pitch, xsize, ysize;
};
struct cudaExtent {
    size_t width, height, depth;
};
struct cudaPos {
    size_t x, y, z;
};
struct cudaMemcpy3DPeerParms {
    struct cudaPos srcPos, dstPos;
    struct cudaPitchedPtr srcPtr, dstPtr;
    int srcDevice, dstDevice;
    struct cudaExtent extent;
};
static inline struct cudaPitchedPtr make_cudaPitchedPtr(void *ptr,
                                                        size_t pitch,
                                                        size_t xsize,
                                                        size_t ysize)
{
    struct cudaPitchedPtr p = {ptr, pitch, xsize, ysize};
    return p;
}
static inline struct cudaExtent make_cudaExtent(size_t width, size_t height,
                                                size_t depth)
{
    struct cudaExtent e = {width, height, depth};
    return e;
}
cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p);
cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p,
                                  cudaStream_t stream);

/* ---- Streams and events ------------------------------------------------ */

struct CUevent_st;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *arg);

#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

cudaError_t cudaStreamCreate(cudaStream_t *out);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn,
                               void *arg);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms_out, cudaEvent_t from,
                                 cudaEvent_t to);

/* ---- Kernels ------------------------------------------------------------- */

struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs;
};
/* Loads the kernel to the card. From here on all that the card launches must
 * have been loaded, but for cuBLASLt's. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out,
                                  const void *kernel);

/* ---- Graphs: of one captured stream, or of a loop of one ----------------- */

typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out,
                                          cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes,
                              size_t *n);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
/* Of these only a loop that is all of its graph. */
typedef unsigned long long cudaGraphConditionalHandle;
typedef struct cudaGraphEdgeData_st cudaGraphEdgeData;
enum cudaGraphNodeType { cudaGraphNodeTypeConditional = 0x0d };
enum cudaGraphConditionalNodeType { cudaGraphCondTypeWhile = 1 };
struct cudaConditionalNodeParams {
    cudaGraphConditionalHandle handle;
    enum cudaGraphConditionalNodeType type;
    unsigned size;
    cudaGraph_t *phGraph_out;
};
struct cudaGraphNodeParams {
    enum cudaGraphNodeType type;
    struct cudaConditionalNodeParams conditional;
};
#define cudaGraphCondAssignDefault 1
cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags);
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *out,
                                             cudaGraph_t graph,
                                             unsigned value, unsigned flags);
cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t graph,
                             const cudaGraphNode_t *from,
                             const cudaGraphEdgeData *edges, size_t n,
                             struct cudaGraphNodeParams *params);
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream,
                                          cudaGraph_t graph,
                                          const cudaGraphNode_t *from,
                                          const cudaGraphEdgeData *edges,
                                          size_t n,
                                          enum cudaStreamCaptureMode mode);
/* For kernels. */
void cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                             unsigned value);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* ---- Only here ---------------------------------------------------------- */

/* What failed last, as a sentence. */
const char *weft_exec_sentence(void);
/* What failed is forgotten: no error of a card is left. */
void weft_exec_forget(void);
/* In which order threads, and blocks, of a launch take turns: 0 ascending, 1
 * descending, above that a permutation that depends on the number. */
enum { WEFT_EXEC_ORDERS = 3 };
void weft_exec_order(int order);
/* As WEFT_CARDS_ORDER: in which order streams take turns. */
enum { WEFT_CARDS_LATE = 0, WEFT_CARDS_AT_ONCE = 1 };
void weft_cards_order(int order);
/* From here on the time that events tell passes only while a card works: so
 * many milliseconds for each kernel and each copy. 0: it is the machine's. */
void weft_cards_tick(double ms);
/* What is held, of these, is not begun from here on; nor is what lies behind it
 * on its stream, or waits for that. */
enum { WEFT_CARDS_KERNELS = 1, WEFT_CARDS_COPIES = 2 };
void weft_cards_hold(int what);
/* How often a kernel that sleeps, as it waits for another card, is begun anew;
 * -1: as long as it takes. */
void weft_cards_naps(long n);
/* Whether graphs have loops (1). */
void weft_cards_loops(int are_there);
/* The kernel that is loaded behind n others from here on, by
 * cudaFuncGetAttributes(), is not: that is the error. */
void weft_cards_loads(int n, cudaError_t error);
/* How many threads wait for what is held. */
int weft_cards_blocked(void);
/* Since the start: kernels that ran on a card, and bytes that arrived there
 * or left (to the host), or came from another card. */
struct weft_cards_counts {
    int64_t n_kernels, bytes_in, bytes_out, bytes_peer;
    int64_t pageable_bytes; /* of those: host memory was not pinned */
    int64_t n_pinned; /* blocks of kernels that were given pinned memory, in
                         structs, too: each may read it over PCIe */
    int64_t n_waits;  /* of the host, for a stream or for all */
    int64_t n_loaded; /* kernels that were, and not by a launch */
    int64_t n_instances; /* graphs that can be launched */
    int64_t n_nodes;     /* of the last of them; of a loop, its body's */
    int64_t n_graphs;    /* launches of them */
    int64_t peak_bytes;  /* the most that the card has held of this process,
                           counted in its pages of 2 MiB */
    int64_t is_open; /* the process has used the card, so that CUDA has taken
                        some of its memory for it (a context) */
};
struct weft_cards_counts weft_cards_counts(int card);
/* Where an MPI that knows cards finds so many bytes: p, if it is the host's.
 * NULL: they are not in one allocation, or the thread uses another card. */
void *weft_cards_reach(const void *p, size_t n_bytes);
/* peak_bytes begins anew. */
void weft_cards_new_peak(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
