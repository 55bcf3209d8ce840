/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's step on a GPU, element by element as in stream_impl.h. */
#include "kern/cuda_lang.h"

#include "kern/adamw.h"

enum { THREADS = 256 };

static __device__ __forceinline__ void update(const struct weft_adamw_step &s,
                                              float grad, float *master,
                                              float *m, float *v)
{
    *m = s.beta1 * *m + s.rest1 * grad;
    *v = s.beta2 * *v + s.rest2 * grad * grad;
    *master = s.keep * *master
            - s.step_size * *m / (sqrtf(*v) * s.root_bias2 + s.eps);
}

static __global__ void adamw(struct weft_adamw_step s, int64_t n, float c,
                             const float *grad, float *master, float *m,
                             float *v)
{
    int64_t i = 4 * ((int64_t) blockIdx.x * THREADS + threadIdx.x);
    if (i + 4 <= n) {
        float4 g = load4_as<WEFT_F32>(grad, i);
        float4 w = load4_as<WEFT_F32>(master, i);
        float4 m4 = load4_as<WEFT_F32>(m, i), v4 = load4_as<WEFT_F32>(v, i);
        update(s, g.x * c, &w.x, &m4.x, &v4.x);
        update(s, g.y * c, &w.y, &m4.y, &v4.y);
        update(s, g.z * c, &w.z, &m4.z, &v4.z);
        update(s, g.w * c, &w.w, &m4.w, &v4.w);
        store4_as<WEFT_F32>(master, i, w);
        store4_as<WEFT_F32>(m, i, m4);
        store4_as<WEFT_F32>(v, i, v4);
        return;
    }
    for (; i < n; i++)
        update(s, grad[i] * c, &master[i], &m[i], &v[i]);
}

void weft_k_adamw_cuda(cudaStream_t stream, const struct weft_k_adamw *o,
                       size_t n, float scale, const float *grad,
                       float *master, float *m, float *v)
{
    struct weft_adamw_step s = weft_adamw_step(o);
    if (n > 0)
        WEFT_LAUNCH(adamw, blocks_for((int64_t) n, 4 * THREADS), THREADS,
                    stream, s, (int64_t) n, scale, grad, master, m, v);
}
