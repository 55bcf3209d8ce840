/* SPDX-License-Identifier: Apache-2.0 */
/* Emulated cards: allocations, and copies that are put on streams. */
#include "emulator.h"

/* ---- Allocations --------------------------------------------------------- */

cudaError_t cudaMalloc(void **out, size_t n_bytes)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    int card = weft_emu_card();
    if (!out)
        return weft_emu_end(cudaErrorInvalidValue);
    if (weft_emu_setup()->n_cards == 0)
        return weft_emu_end(weft_emu_setup()->driver == CUDART_VERSION
                                ? cudaErrorNoDevice
                                : cudaErrorInsufficientDriver);
    *out = NULL;
    if (n_bytes > 0 && !weft_emu_memory_new(card, n_bytes, out))
        return weft_emu_end(cudaErrorMemoryAllocation);
    return weft_emu_end(cudaSuccess);
}

/* Waits for all of the card, as CUDA does. */
cudaError_t cudaFree(void *p)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    int card = weft_emu_memory_card(p);
    (void) weft_emu_card();
    if (!p)
        return weft_emu_end(cudaSuccess);
    if (card < 0)
        return weft_emu_end(cudaErrorInvalidValue);
    weft_emu_wait_card(card);
    return weft_emu_end(weft_emu_memory_free(p) ? cudaSuccess
                                                : cudaErrorInvalidValue);
}

cudaError_t cudaMallocAsync(void **out, size_t n_bytes, cudaStream_t)
{
    return cudaMalloc(out, n_bytes);
}

static void run_free(int, void *what)
{
    if (!weft_emu_memory_free(*(void **) what))
        weft_emu_fail(cudaErrorIllegalAddress,
                      "cudaFreeAsync() of what is not allocated");
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (p && !weft_emu_memory_has(p, 0))
        return weft_emu_end(cudaErrorInvalidValue);
    if (p)
        weft_emu_put(s, run_free, &p, sizeof p);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_out, size_t *total_out)
{
    weft_emu_guard guard;
    *total_out = weft_emu_setup()->memory_bytes;
    *free_out = weft_emu_memory_free_bytes(weft_emu_card());
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaHostAlloc(void **out, size_t n_bytes, unsigned)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    (void) weft_emu_card();
    *out = weft_emu_pinned_new(n_bytes);
    return weft_emu_end(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **out, size_t n_bytes)
{
    return cudaHostAlloc(out, n_bytes, cudaHostAllocDefault);
}

/* Waits for all cards, as they may still use it. */
cudaError_t cudaFreeHost(void *p)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureUnsupported);
    (void) weft_emu_card();
    for (int i = 0; i < weft_emu_setup()->n_cards; i++)
        weft_emu_wait_card(i);
    return weft_emu_end(!p || weft_emu_pinned_remove(p, true)
                            ? cudaSuccess
                            : cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned)
{
    weft_emu_guard guard;
    if (!p || n_bytes == 0 || weft_emu_memory_card(p) >= 0)
        return weft_emu_end(cudaErrorInvalidValue);
    return weft_emu_end(weft_emu_pinned_add(p, n_bytes)
                            ? cudaSuccess
                            : cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *p)
{
    weft_emu_guard guard;
    return weft_emu_end(weft_emu_pinned_remove(p, false)
                            ? cudaSuccess
                            : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
                                     const void *p)
{
    weft_emu_guard guard;
    int card = weft_emu_memory_card(p);
    memset(out, 0, sizeof *out);
    out->device = card < 0 ? weft_emu_card() : card;
    if (card >= 0) {
        out->type = cudaMemoryTypeDevice;
        out->devicePointer = (void *) p;
    } else if (weft_emu_pinned_has(p, 0)) {
        out->type = cudaMemoryTypeHost;
        out->devicePointer = out->hostPointer = (void *) p;
    } else {
        out->hostPointer = (void *) p;
    }
    return weft_emu_end(cudaSuccess);
}

/* ---- Rectangles ----------------------------------------------------------- */

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, n_bytes, n_rows;
};

static size_t span(size_t pitch, const struct copy *c)
{
    return c->n_rows ? (c->n_rows - 1) * pitch + c->n_bytes : 0;
}

/* Where a copy finds it; NULL: it is no longer allocated. */
static char *place(const void *p, size_t n_bytes)
{
    if (weft_emu_memory_card(p) < 0)
        return (char *) p;
    return weft_emu_memory_has(p, n_bytes) ? weft_emu_memory_twin(p) : NULL;
}

static void count(const struct copy *c, int64_t n_bytes)
{
    int to = weft_emu_memory_card(c->to), from = weft_emu_memory_card(c->from);
    bool is_pinned = to < 0 ? weft_emu_pinned_has(c->to, (size_t) n_bytes)
                            : weft_emu_pinned_has(c->from, (size_t) n_bytes);
    if (to >= 0 && from >= 0 && to != from)
        weft_emu_counts(to)->bytes_peer += n_bytes;
    if (to >= 0 && from < 0) {
        weft_emu_counts(to)->bytes_in += n_bytes;
        weft_emu_counts(to)->pageable_bytes += is_pinned ? 0 : n_bytes;
    }
    if (to < 0 && from >= 0) {
        weft_emu_counts(from)->bytes_out += n_bytes;
        weft_emu_counts(from)->pageable_bytes += is_pinned ? 0 : n_bytes;
    }
}

/* From card to card without the host. */
static bool is_by_peers(const struct copy *c)
{
    int to = weft_emu_memory_card(c->to), from = weft_emu_memory_card(c->from);
    return to >= 0 && from >= 0 && to != from
        && (weft_emu_may_use(to, from) || weft_emu_may_use(from, to));
}

static void run_copy(int, void *what)
{
    const struct copy *c = (const struct copy *) what;
    char *to = place(c->to, span(c->to_pitch, c));
    const char *from = place(c->from, span(c->from_pitch, c));
    if (!to || !from) {
        weft_emu_fail(cudaErrorIllegalAddress,
                      "a copy uses device memory that was freed");
        return;
    }
    for (size_t i = 0; i < c->n_rows; i++)
        memmove(to + i * c->to_pitch, from + i * c->from_pitch, c->n_bytes);
    if (weft_emu_setup()->spoils && is_by_peers(c))
        to[0] = (char) ~to[0];
    count(c, (int64_t) (c->n_bytes * c->n_rows));
}

bool weft_emu_is_copy(void (*run)(int, void *))
{
    return run == run_copy;
}

static bool is_valid(const struct copy *c, enum cudaMemcpyKind kind)
{
    bool to = weft_emu_memory_card(c->to) >= 0;
    bool from = weft_emu_memory_card(c->from) >= 0;
    if (c->n_rows > 1
        && (c->to_pitch < c->n_bytes || c->from_pitch < c->n_bytes))
        return false;
    if ((to && !weft_emu_memory_has(c->to, span(c->to_pitch, c)))
        || (from && !weft_emu_memory_has(c->from, span(c->from_pitch, c))))
        return false;
    return kind == cudaMemcpyDefault
        || (to == (kind == cudaMemcpyHostToDevice
                   || kind == cudaMemcpyDeviceToDevice)
            && from == (kind == cudaMemcpyDeviceToHost
                        || kind == cudaMemcpyDeviceToDevice));
}

static cudaError_t put(const struct copy *c, enum cudaMemcpyKind kind,
                       cudaStream_t stream, bool waits)
{
    struct CUstream_st *s = weft_emu_stream(stream);
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (c->n_bytes == 0 || c->n_rows == 0)
        return weft_emu_end(cudaSuccess);
    if (!is_valid(c, kind))
        return weft_emu_end(cudaErrorInvalidValue);
    weft_emu_put(s, run_copy, c, sizeof *c);
    if (waits)
        weft_emu_wait(s);
    return weft_emu_end(cudaSuccess);
}

/* Copies inside of devices do not wait, as with CUDA. */
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from,
                         size_t from_pitch, size_t n_bytes, size_t n_rows,
                         enum cudaMemcpyKind kind)
{
    weft_emu_guard guard;
    if (weft_emu_forbids())
        return weft_emu_end(cudaErrorStreamCaptureImplicit);
    struct copy c = {(char *) to, (const char *) from, to_pitch, from_pitch,
                     n_bytes, n_rows};
    bool is_inside = weft_emu_memory_card(to) >= 0
                  && weft_emu_memory_card(from) >= 0;
    return put(&c, kind, NULL, !is_inside);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t n_bytes,
                              size_t n_rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    weft_emu_guard guard;
    struct copy c = {(char *) to, (const char *) from, to_pitch, from_pitch,
                     n_bytes, n_rows};
    return put(&c, kind, stream, false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes,
                       enum cudaMemcpyKind kind)
{
    return cudaMemcpy2D(to, n_bytes, from, n_bytes, n_bytes, 1, kind);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, n_bytes, from, n_bytes, n_bytes, 1, kind,
                             stream);
}

/* ---- Between cards -------------------------------------------------------- */

static struct copy rectangle(const struct cudaMemcpy3DPeerParms *p)
{
    struct copy c;
    c.to = (char *) p->dstPtr.ptr + p->dstPos.y * p->dstPtr.pitch
         + p->dstPos.x;
    c.from = (const char *) p->srcPtr.ptr + p->srcPos.y * p->srcPtr.pitch
           + p->srcPos.x;
    c.to_pitch = p->dstPtr.pitch;
    c.from_pitch = p->srcPtr.pitch;
    c.n_bytes = p->extent.width;
    c.n_rows = p->extent.height;
    return c;
}

static bool is_between(const struct cudaMemcpy3DPeerParms *p)
{
    return p->extent.depth == 1
        && weft_emu_memory_card(p->dstPtr.ptr) == p->dstDevice
        && weft_emu_memory_card(p->srcPtr.ptr) == p->srcDevice;
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p,
                                  cudaStream_t stream)
{
    weft_emu_guard guard;
    struct copy c = rectangle(p);
    if (c.n_bytes > 0 && !is_between(p))
        return weft_emu_end(cudaErrorInvalidValue);
    return put(&c, cudaMemcpyDeviceToDevice, stream, false);
}

/* After all that both cards have to do. */
cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p)
{
    weft_emu_guard guard;
    struct copy c = rectangle(p);
    if (c.n_bytes > 0 && !is_between(p))
        return weft_emu_end(cudaErrorInvalidValue);
    weft_emu_wait_card(p->srcDevice);
    weft_emu_wait_card(p->dstDevice);
    return put(&c, cudaMemcpyDeviceToDevice, NULL, true);
}

static struct cudaMemcpy3DPeerParms line(void *to, int to_card,
                                         const void *from, int from_card,
                                         size_t n_bytes)
{
    struct cudaMemcpy3DPeerParms p;
    memset(&p, 0, sizeof p);
    p.dstPtr = make_cudaPitchedPtr(to, n_bytes, n_bytes, 1);
    p.srcPtr = make_cudaPitchedPtr((void *) from, n_bytes, n_bytes, 1);
    p.dstDevice = to_card;
    p.srcDevice = from_card;
    p.extent = make_cudaExtent(n_bytes, 1, 1);
    return p;
}

cudaError_t cudaMemcpyPeer(void *to, int to_card, const void *from,
                           int from_card, size_t n_bytes)
{
    struct cudaMemcpy3DPeerParms p =
        line(to, to_card, from, from_card, n_bytes);
    return cudaMemcpy3DPeer(&p);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_card, const void *from,
                                int from_card, size_t n_bytes,
                                cudaStream_t stream)
{
    struct cudaMemcpy3DPeerParms p =
        line(to, to_card, from, from_card, n_bytes);
    return cudaMemcpy3DPeerAsync(&p, stream);
}

/* ---- Filling --------------------------------------------------------------- */

struct fill {
    void *to;
    size_t n_bytes;
    int value;
};

static void run_fill(int, void *what)
{
    const struct fill *f = (const struct fill *) what;
    char *to = place(f->to, f->n_bytes);
    if (to)
        memset(to, f->value, f->n_bytes);
    else
        weft_emu_fail(cudaErrorIllegalAddress,
                      "cudaMemsetAsync() in device memory that was freed");
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n_bytes,
                            cudaStream_t stream)
{
    weft_emu_guard guard;
    struct CUstream_st *s = weft_emu_stream(stream);
    struct fill f = {to, n_bytes, value};
    if (!s)
        return weft_emu_end(cudaErrorInvalidResourceHandle);
    if (n_bytes == 0)
        return weft_emu_end(cudaSuccess);
    if (!weft_emu_memory_has(to, n_bytes))
        return weft_emu_end(cudaErrorInvalidValue);
    weft_emu_put(s, run_fill, &f, sizeof f);
    return weft_emu_end(cudaSuccess);
}

cudaError_t cudaMemset(void *to, int value, size_t n_bytes)
{
    return cudaMemsetAsync(to, value, n_bytes, NULL);
}
