/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a codelet declares itself.
 *
 *     static int add_cpu(const void *args, void *const buf[], int n_buf,
 *                        struct weft_exec *x);
 *     WEFT_CODELET(add, 0x26a69a, add_cpu)
 *
 * makes weft_cl_add of it, to be given to weft_insert(). The runtime calls the
 * body on one worker, unless its sequence has failed; buf holds the memory of
 * the accesses in the order they were inserted.
 *
 * An operation that GPUs have too has a second body,
 *
 *     WEFT_CODELET_2(add, 0x26a69a, add_cpu, add_cuda)
 *
 * which puts its work on weft_exec_stream(x) and returns; the task ends when
 * that work does. In buf, memory of the GPU is for kernels alone; that of tiles
 * whose class lies in host memory (plan/task.h) is for host code, too. An
 * operation that only uses such tiles, as those on control structures, runs its
 * first body at a GPU's place.
 *
 * For files of the room codelets: it includes StarPU.
 */
#ifndef WEFT_RT_CODELET_H
#define WEFT_RT_CODELET_H

#include <starpu.h>
#include <stdatomic.h>

#include "config.h"
#include "rt/graph.h"

struct weft_exec; /* what one call of a body may use; valid during the call */

/* Returns 0, or a WEFT_E code with a sentence in weft_exec_err(x); the
 * runtime puts operation and tile in front of it. */
typedef int (*weft_body_fn)(const void *args, void *const buf[], int n_buf,
                            struct weft_exec *x);

struct weft_err *weft_exec_err(struct weft_exec *x);

/* Returns scratch memory, aligned to 64 bytes and not zeroed, that is valid
 * until the body returns; each call returns another piece. NULL when memory is
 * out: the error's text is then written, and the body should return
 * WEFT_ENOMEM. The worker keeps the memory for its next body; work on a stream,
 * which goes on, must not use it. */
void *weft_exec_scratch(struct weft_exec *x, size_t bytes);

/* The same in the memory of the GPU whose worker runs this body, within its
 * place's budget. The work that the body puts on the stream may use it; what
 * gets it next comes behind that. At most one call; weft_rt_expect_scratch()
 * tells the memory prediction. */
void *weft_exec_scratch_gpu(struct weft_exec *x, size_t bytes);

/* The stream of the GPU whose worker runs this body; NULL on a CPU device. */
struct CUstream_st *weft_exec_stream(struct weft_exec *x);

/* When the body has returned 0 and all its work has ended, the host calls
 * `check` once, with the body's arguments, before the task counts as ended: for
 * errors in what kernels wrote to memory that host code may use. Others may
 * already read what the task has written. */
void weft_exec_at_end(struct weft_exec *x, weft_body_fn check);

/* In between no thread waits for a whole GPU, takes memory from CUDA or gives it
 * back: around the capture of a stream (weft_k_capture_cuda()), which that would
 * spoil, and while kernels that wait for one another are put on several GPUs. */
void weft_exec_hold_gpus(void);
void weft_exec_let_gpus(void);

/* Of a body whose task is one of a gang (weft_insert_gang()): which member it
 * is; 0 without a gang. */
int weft_exec_member(const struct weft_exec *x);
/* Returns when all members have called it; at once without a gang. What they
 * wrote before it, all can read after it. false: one of them has failed; the
 * body should return 0, as the error is that one's. */
bool weft_exec_meet(struct weft_exec *x);
/* (members) pointers, all NULL at first, by which members tell one another
 * where their data is. Scratch memory is there until all have returned. */
void **weft_exec_shared(struct weft_exec *x);

struct weft_codelet {
    struct starpu_codelet starpu;
    weft_body_fn cpu;
    weft_body_fn cuda;     /* NULL: it has none, or there is no CUDA */
    bool has_cuda;         /* it has one, where there is CUDA */
    atomic_long n_pending; /* tasks that are inserted and have not ended */
    uint32_t what;         /* weft_rec_op_what() */
    /* in the list of those that the runtime has seen */
    struct weft_codelet *next;
    bool known;
};

/* The one function that StarPU calls; argument: struct weft_task. */
void weft_codelet_run(void *buffers[], void *args);

/* Without CUDA the second body is compiled, and left out; so is what stands
 * behind WEFT_ON_GPU(stream) in a body that both have. */
#ifdef WEFT_HAVE_CUDA
#define WEFT_ON_GPU(stream) ((stream) != NULL)
#define WEFT_CUDA_BODY(body) (body)
#else
#define WEFT_ON_GPU(stream) (0 && (stream) != NULL)
#define WEFT_CUDA_BODY(body) (0 ? (body) : NULL)
#endif

/* colour: 0xrrggbb, for traces. */
#define WEFT_CODELET(op, colour, body)                                       \
    WEFT_CODELET_OF(op, colour, body, (weft_body_fn) 0, false)
#define WEFT_CODELET_2(op, colour, cpu_body, cuda_body)                      \
    WEFT_CODELET_OF(op, colour, cpu_body, cuda_body, true)
#define WEFT_CODELET_OF(op, colour, cpu_body, cuda_body, both)               \
    static struct weft_codelet weft_cl_##op = {                              \
        .starpu = {.where = STARPU_CPU | STARPU_CUDA,                        \
                   .cpu_funcs = {weft_codelet_run},                          \
                   .cpu_funcs_name = {"weft_codelet_run"},                   \
                   .cuda_funcs = {weft_codelet_run},                         \
                   .nbuffers = STARPU_VARIABLE_NBUFFERS,                     \
                   .name = #op,                                              \
                   .color = (colour)},                                       \
        .cpu = (cpu_body),                                                   \
        .cuda = WEFT_CUDA_BODY(cuda_body),                                   \
        .has_cuda = (both),                                                  \
    };

#endif
