/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs kernels on the CPU (see cuda_runtime.h beside this).
 *
 * A fibre is started by makecontext(); later switches are setjmp() and
 * longjmp(), which make no system call; the compiler's own, which take a third
 * of the time, but with sanitizers, which must know of a change of stacks. Only
 * C's library is used, so that C programs can link this without the library of
 * C++.
 */
#undef _FORTIFY_SOURCE /* its longjmp() refuses to change stacks */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "emulator.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
typedef jmp_buf jump;
#define SET_JUMP(at) _setjmp(at)
#define LONG_JUMP(to) _longjmp(to, 1)
#else
typedef void *jump[5];
#define SET_JUMP(at) __builtin_setjmp(at)
#define LONG_JUMP(to) long_jump(to)
/* In the function that sets a jump it would be taken for one to itself. */
__attribute__((noinline, noreturn)) static void long_jump(void **to)
{
    __builtin_longjmp(to, 1);
}
#endif

enum {
    MAX_THREADS = 1024,
    MAX_SHARED = 16,
    WARP = 32,
    /* no power of two: the tops of stacks lie in different sets of a cache */
    STACK_BYTES = (128 << 10) + 17 * 64,
    SHARED_BYTES = 48 << 10, /* what every GPU has */
    POISON = 0xff,           /* a NaN of every format */
    MAX_COPIES = 64          /* of a thread, under way */
};

enum state { RUNS, AT_BARRIER, AT_SHUFFLE, ENDED };

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
};

struct fibre {
    struct weft_exec_thread id;
    unsigned rank; /* in its block */
    enum state state;
    bool is_made, is_new; /* new: not started yet */
    int line;             /* where it waits */
    unsigned mask;
    unsigned n_copies, group; /* group: how many have ended */
    jump at;
    struct copy copies[MAX_COPIES];
    ucontext_t start;
};

/* What lanes gave to shuffles. Two, in turns: a lane reads one while another
 * lane may already write to the next. */
struct warp {
    unsigned turn[WARP];
    alignas(16) char gave[2][WARP][WEFT_EXEC_GIFT];
};

struct variable {
    struct weft_emu_span span;
    int line;
};

struct weft_exec_thread *weft_exec_now;
dim3 weft_exec_grid, weft_exec_block;

static struct fibre fibres[MAX_THREADS], *now;
static struct warp warps[MAX_THREADS / WARP];
static unsigned n_threads;
static char *stacks;
static jump scheduler;
static void (*body_fn)(void *);
static void *body_arg;
static struct variable shared[MAX_SHARED];
static int n_shared, order;
static bool sleeps; /* a thread of the launch, until another card has acted */
static long n_naps, most_naps = -1;

/* ---- Memory ------------------------------------------------------------ */

/* Shared memory ends less than 16 bytes before a page without rights. */
static bool guarded(size_t n_bytes, struct variable *out)
{
    size_t bytes = weft_emu_span_bytes(n_bytes, 16);
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    char *p = (char *) mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + bytes, page, PROT_NONE) != 0)
        return false;
    weft_emu_span_fill(&out->span, p, n_bytes, 16);
    return true;
}

static void unmap(const struct variable *v)
{
    munmap(v->span.page,
           v->span.pages_bytes + (size_t) sysconf(_SC_PAGESIZE));
}

/* ---- Errors ------------------------------------------------------------ */

static void fail(const char *what, int line)
{
    weft_emu_fail(cudaErrorLaunchFailure, "line %d: %s", line, what);
}

static bool is_well(void)
{
    return weft_emu_failure() == cudaSuccess && !sleeps;
}

/* ---- Fibres ------------------------------------------------------------ */

void weft_exec_order(int which)
{
    order = which;
}

static unsigned common_divisor(unsigned a, unsigned b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* The number of the i-th of n whose turn it is. */
static unsigned turn_of(unsigned i, unsigned n)
{
    if (order == 0)
        return i;
    if (order == 1)
        return n - 1 - i;
    unsigned step = n / 3 + 1;
    while (common_divisor(step, n) != 1)
        step++;
    return (unsigned) (((uint64_t) i * step + (unsigned) order) % n);
}

/* The fibre whose turn it is waits until the scheduler goes on with it. */
static void wait(enum state state, int line)
{
    struct fibre *self = now;
    self->state = state;
    self->line = line;
    if (SET_JUMP(self->at) == 0)
        LONG_JUMP(scheduler);
}

/* A fibre runs one thread of a block, then one of the next. */
static void fibre_main(void)
{
    for (;;) {
        body_fn(body_arg);
        if (now->n_copies > 0)
            fail("a thread ends before what it copies is there", 0);
        wait(ENDED, 0);
    }
}

/* A fibre of an earlier block may stand inside a kernel that failed. */
static void make_fibre(struct fibre *f, unsigned rank)
{
    char *stack = stacks + (size_t) rank * STACK_BYTES;
#ifdef __SANITIZE_ADDRESS__ /* what it thinks of frames that were left */
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
    f->is_made = f->is_new = true;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = stack;
    f->start.uc_stack.ss_size = STACK_BYTES;
    f->start.uc_link = NULL;
    makecontext(&f->start, fibre_main, 0);
}

static void resume(struct fibre *f)
{
    now = f;
    weft_exec_now = &f->id;
    f->state = RUNS;
    if (SET_JUMP(scheduler) != 0)
        return;
    if (!f->is_new)
        LONG_JUMP(f->at);
    f->is_new = false;
    setcontext(&f->start);
}

/* What the launch did so far stays; its threads begin anew. */
void __nanosleep(unsigned)
{
    if (most_naps >= 0 && n_naps >= most_naps)
        return;
    n_naps++;
    sleeps = true;
    wait(RUNS, 0);
}

void weft_cards_naps(long n)
{
    weft_emu_guard guard;
    most_naps = n;
    n_naps = 0;
}

unsigned weft_exec_lane(void)
{
    return now->rank % WARP;
}

void weft_exec_barrier(int line)
{
    wait(AT_BARRIER, line);
}

const char *weft_exec_exchange(unsigned mask, int line, const void *give,
                               size_t n_bytes)
{
    struct warp *w = &warps[now->rank / WARP];
    unsigned lane = now->rank % WARP, turn = w->turn[lane]++ & 1;
    memcpy(w->gave[turn][lane], give, n_bytes);
    now->mask = mask;
    wait(AT_SHUFFLE, line);
    return w->gave[turn][0];
}

void weft_exec_shuffle(unsigned mask, int from, int line, const void *give,
                       void *get, size_t n_bytes)
{
    unsigned lane = now->rank % WARP;
    if (!(mask >> lane & 1) || from < 0 || from >= WARP
        || !(mask >> from & 1))
        fail("a lane shuffles with one that its mask leaves out", line);
    const char *all = weft_exec_exchange(mask, line, give, n_bytes);
    memcpy(get, all + (from & (WARP - 1)) * WEFT_EXEC_GIFT, n_bytes);
}

/* ---- Copies behind a thread's back --------------------------------------- */

void weft_exec_aligned(const void *p, size_t n_bytes, int line)
{
    if ((uintptr_t) p % n_bytes != 0)
        fail("a pointer is not aligned", line);
}

void weft_exec_copy16(void *to, const void *from, int line)
{
    if (now->n_copies == MAX_COPIES) {
        fail("a thread has too many copies under way", line);
        return;
    }
    memset(to, POISON, 16);
    now->copies[now->n_copies++] = {to, from, now->group};
}

void weft_exec_copies_end(void)
{
    now->group++;
}

void weft_exec_copies_wait(int all_but)
{
    unsigned n = 0;
    for (unsigned i = 0; i < now->n_copies; i++) {
        const struct copy *c = &now->copies[i];
        if (c->group + (unsigned) all_but >= now->group)
            now->copies[n++] = *c;
        else if (c->from)
            memcpy(c->to, c->from, 16);
        else
            memset(c->to, 0, 16);
    }
    now->n_copies = n;
}

void *weft_exec_shared(size_t n_bytes, int line)
{
    size_t used = n_bytes;
    for (int i = 0; i < n_shared; i++) {
        if (shared[i].line == line && shared[i].span.n_bytes == n_bytes)
            return shared[i].span.at;
        used += shared[i].span.n_bytes;
    }
    if (used > SHARED_BYTES || n_shared == MAX_SHARED
        || !guarded(n_bytes, &shared[n_shared])) {
        fprintf(stderr,
                "line %d: a block has no room for %zu bytes of shared"
                " memory\n",
                line, used);
        abort();
    }
    shared[n_shared].line = line;
    return shared[n_shared++].span.at;
}

/* ---- The scheduler ----------------------------------------------------- */

/* Threads of the warp that begins with thread `first`. */
static unsigned warp_size(unsigned first)
{
    unsigned left = n_threads - first;
    return left < (unsigned) WARP ? left : (unsigned) WARP;
}

/* Lets lanes go on whose shuffle is complete. Returns whether there are any;
 * fails when a lane waits for one that is elsewhere. */
static bool release_shuffles(unsigned first)
{
    unsigned n = warp_size(first);
    bool any = false;
    for (unsigned lane = 0; lane < n; lane++) {
        const struct fibre *f = &fibres[first + lane];
        if (f->state != AT_SHUFFLE)
            continue;
        unsigned mask = f->mask;
        int line = f->line;
        for (unsigned other = 0; other < WARP; other++) {
            if (!(mask >> other & 1))
                continue;
            const struct fibre *o = &fibres[first + other];
            if (other >= n || o->state != AT_SHUFFLE || o->mask != mask
                || o->line != line) {
                fail("lanes of a warp meet at different shuffles", line);
                return false;
            }
        }
        for (unsigned other = 0; other < n; other++)
            if (mask >> other & 1)
                fibres[first + other].state = RUNS;
        any = true;
    }
    return any;
}

/* Whether all threads stand at one barrier; lets them go on. */
static bool release_barrier(void)
{
    for (unsigned i = 0; i < n_threads; i++)
        if (fibres[i].state != AT_BARRIER
            || fibres[i].line != fibres[0].line) {
            fail("some threads of a block do not reach a barrier",
                 fibres[i].state == AT_BARRIER ? fibres[i].line
                                               : fibres[0].line);
            return false;
        }
    for (unsigned i = 0; i < n_threads; i++)
        fibres[i].state = RUNS;
    return true;
}

/* Runs the threads of a warp until all wait at a barrier or have ended. */
static void run_warp(unsigned first)
{
    unsigned n = warp_size(first);
    do {
        for (unsigned i = 0; i < n; i++) {
            struct fibre *f = &fibres[first + turn_of(i, n)];
            if (f->state == RUNS)
                resume(f);
        }
    } while (is_well() && release_shuffles(first));
}

static bool all_ended(void)
{
    for (unsigned i = 0; i < n_threads; i++)
        if (fibres[i].state != ENDED)
            return false;
    return true;
}

static void check_shared(void)
{
    for (int i = 0; i < n_shared; i++) {
        if (!weft_emu_span_is_intact(&shared[i].span))
            fail("shared memory is written outside of its variable",
                 shared[i].line);
        memset(shared[i].span.at, POISON, shared[i].span.n_bytes);
    }
}

static void run_block(unsigned x, unsigned y, unsigned z)
{
    dim3 b = weft_exec_block;
    memset(warps, 0, sizeof warps);
    for (unsigned i = 0; i < n_threads; i++) {
        struct fibre *f = &fibres[i];
        f->id.thread = uint3{i % b.x, i / b.x % b.y, i / b.x / b.y};
        f->id.block = uint3{x, y, z};
        f->rank = i;
        f->n_copies = f->group = 0;
        if (!f->is_made || f->state != ENDED)
            make_fibre(f, i);
        f->state = RUNS;
    }
    unsigned n_warps = (n_threads + WARP - 1) / WARP;
    for (;;) {
        for (unsigned w = 0; w < n_warps; w++)
            if (is_well())
                run_warp(turn_of(w, n_warps) * WARP);
        if (!is_well() || all_ended() || !release_barrier())
            break;
    }
    check_shared();
}

bool weft_emu_can_run(dim3 grid, dim3 block)
{
    uint64_t threads = (uint64_t) block.x * block.y * block.z;
    return threads > 0 && threads <= MAX_THREADS && grid.x > 0 && grid.y > 0
        && grid.z > 0 && grid.x <= 0x7fffffffu && grid.y <= 65535
        && grid.z <= 65535;
}

bool weft_emu_run(dim3 grid, dim3 block, void (*body)(void *), void *arg)
{
    sleeps = false;
    n_threads = block.x * block.y * block.z;
    uint64_t n_blocks = (uint64_t) grid.x * grid.y * grid.z;
    if (!stacks)
        stacks = (char *) mmap(
            NULL, (size_t) MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        abort();
    weft_exec_grid = grid;
    weft_exec_block = block;
    body_fn = body;
    body_arg = arg;
    for (uint64_t i = 0; i < n_blocks && is_well(); i++) {
        uint64_t at = turn_of((unsigned) i, (unsigned) n_blocks);
        run_block((unsigned) (at % grid.x), (unsigned) (at / grid.x % grid.y),
                  (unsigned) (at / grid.x / grid.y));
    }
    while (n_shared > 0)
        unmap(&shared[--n_shared]);
    if (!sleeps)
        n_naps = 0;
    return !sleeps;
}

void weft_emu_sleep(void)
{
    sleeps = true;
}

bool weft_emu_waits(void)
{
    bool waits = sleeps;
    sleeps = false;
    return waits;
}
