/* SPDX-License-Identifier: Apache-2.0 */
/*
 * StarPU's CUDA workers, memory nodes and copies with kernels of ours: on
 * emulated cards (tools/emulate-cards), or on those of the machine.
 */
#include <cuda_runtime.h>
#include <starpu.h>
#include <unistd.h>

#include "base/rng.h"
#include "card_orders.h"
#include "harness.h"
#include "kern/device_cuda.h"
#include "kern/kern_cuda.h"

/* Of three cards: 64 MiB each, twice what StarPU takes at once. */
enum { N = 1503, STEPS = 20, BIG = 8 << 20, N_BIG = 20 };

enum { MASTER, M, V, GRAD, N_NUMBERS }; /* of AdamW */
static const float scale = 0.37f;
struct state {
    float *x[N_NUMBERS];
    starpu_data_handle_t handle[N_NUMBERS];
};

static struct weft_k_adamw options(int64_t step)
{
    return (struct weft_k_adamw){1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, step};
}

/* ---- Tasks --------------------------------------------------------------- */

#define AT(i) ((float *) STARPU_VECTOR_GET_PTR(buffers[i]))

static void step_cpu(void *buffers[], void *arg)
{
    struct weft_k_adamw o = options((int64_t) (intptr_t) arg);
    weft_k_adamw(&o, N, scale, AT(GRAD), AT(MASTER), AT(M), AT(V));
}

/* The worker's. That something was not ready when StarPU asked may be kept as
 * an error, behind which nothing is launched. */
static cudaStream_t stream(void)
{
    (void) cudaGetLastError();
    return starpu_cuda_get_local_stream();
}

static void step_cuda(void *buffers[], void *arg)
{
    struct weft_k_adamw o = options((int64_t) (intptr_t) arg);
    weft_k_adamw_cuda(stream(), &o, N, scale, AT(GRAD), AT(MASTER), AT(M),
                      AT(V));
}

/* The first N numbers. */
static void double_cpu(void *buffers[], void *arg)
{
    (void) arg;
    weft_k_add(AT(0), AT(0), N);
}

static void double_cuda(void *buffers[], void *arg)
{
    (void) arg;
    weft_k_add_cuda(stream(), AT(0), AT(0), N);
}

static struct starpu_codelet step = {
    .cpu_funcs = {step_cpu},
    .cuda_funcs = {step_cuda},
    .cuda_flags = {STARPU_CUDA_ASYNC},
    .nbuffers = N_NUMBERS,
    .modes = {STARPU_RW, STARPU_RW, STARPU_RW, STARPU_R},
    .name = "step"};
static struct starpu_codelet twice = {.cpu_funcs = {double_cpu},
                                      .cuda_funcs = {double_cuda},
                                      .cuda_flags = {STARPU_CUDA_ASYNC},
                                      .nbuffers = 1,
                                      .modes = {STARPU_RW},
                                      .name = "twice"};

static void submit(struct starpu_codelet *cl, starpu_data_handle_t *handle,
                   int worker, intptr_t arg)
{
    struct starpu_task *task = starpu_task_create();
    task->cl = cl;
    for (int i = 0; i < cl->nbuffers; i++)
        task->handles[i] = handle[i];
    task->cl_arg = (void *) arg;
    task->execute_on_a_specific_worker = 1;
    task->workerid = (unsigned) worker;
    REQUIRE(starpu_task_submit(task) == 0);
}

/* ---- Runtimes ------------------------------------------------------------ */

static int n_found(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

/* With that many cards, and one CPU worker; false: there are fewer. */
static bool start(int n_cards, int workers_per_card)
{
    char text[16];
    struct starpu_conf conf;
    if (n_cards > n_found()) {
        weft_test_skip("fewer cards");
        return false;
    }
    snprintf(text, sizeof text, "%d", workers_per_card);
    setenv("STARPU_NWORKER_PER_CUDA", text, 1);
    REQUIRE(starpu_conf_init(&conf) == 0);
    conf.precedence_over_environment_variables = 1;
    conf.ncpus = 1;
    conf.ncuda = n_cards;
    conf.nopencl = 0;
    REQUIRE(starpu_init(&conf) == 0);
    CHECK_INT(starpu_cuda_worker_get_count(), n_cards * workers_per_card);
    CHECK_INT(starpu_worker_get_count(), 1 + n_cards * workers_per_card);
    return true;
}

static float *numbers(uint32_t stream, int64_t n)
{
    float *x = NULL;
    REQUIRE(starpu_malloc((void **) &x, (size_t) n * sizeof *x) == 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float) weft_rng_normal(7, WEFT_RNG_INIT, stream, 0,
                                       (uint32_t) i);
    return x;
}

static void begin(struct state *s)
{
    for (int i = 0; i < N_NUMBERS; i++) {
        s->x[i] = numbers((uint32_t) i, N);
        starpu_vector_data_register(&s->handle[i], STARPU_MAIN_RAM,
                                    (uintptr_t) s->x[i], N, sizeof(float));
    }
    for (int i = 0; i < N; i++)
        s->x[V][i] *= s->x[V][i];
}

/* All tasks end; all numbers come home. */
static void come_home(struct state *s)
{
    for (int i = 0; i < N_NUMBERS; i++)
        starpu_data_unregister(s->handle[i]);
}

static void release(struct state *s)
{
    for (int i = 0; i < N_NUMBERS; i++)
        starpu_free(s->x[i]);
}

/* ---- Cases --------------------------------------------------------------- */

/* A chain of steps, each on another worker, against the same on the CPU. */
static void chain(void)
{
    struct state a, b;
    int n_workers = (int) starpu_worker_get_count();
    begin(&a);
    begin(&b);
    for (int i = 0; i < STEPS; i++) {
        submit(&step, a.handle, i % n_workers, i + 1);
        submit(&twice, &a.handle[GRAD], i / 2 % n_workers, 0);
    }
    come_home(&a);
    come_home(&b);
    for (int i = 0; i < STEPS; i++) {
        struct weft_k_adamw o = options(i + 1);
        weft_k_adamw(&o, N, scale, b.x[GRAD], b.x[MASTER], b.x[M], b.x[V]);
        weft_k_add(b.x[GRAD], b.x[GRAD], N);
    }
    for (int i = 0; i < N_NUMBERS; i++)
        CHECK(memcmp(a.x[i], b.x[i], N * sizeof(float)) == 0);
    release(&a);
    release(&b);
}

/* What the first n cards did since `before`. */
#ifdef WEFT_CUDA_EXECUTOR
static void check_counts(int n, const struct weft_cards_counts *before)
{
    int64_t in = 0, out = 0, peer = 0;
    for (int i = 0; i < n; i++) {
        struct weft_cards_counts c = weft_cards_counts(i);
        CHECK(c.n_kernels > before[i].n_kernels);
        CHECK(c.pageable_bytes == before[i].pageable_bytes);
        in += c.bytes_in - before[i].bytes_in;
        out += c.bytes_out - before[i].bytes_out;
        peer += c.bytes_peer - before[i].bytes_peer;
    }
    CHECK(in > 0 && out > 0);
    CHECK((peer > 0) == (n > 1));
}
#endif

static void test_chain(void)
{
    if (weft_k_isa() == WEFT_ISA_C) {
        weft_test_skip("this CPU has no fused multiply-adds");
        return;
    }
    for (int n = 1; n <= 3; n++) {
        if (!start(n, 1))
            return;
#ifdef WEFT_CUDA_EXECUTOR
        struct weft_cards_counts before[3];
        for (int i = 0; i < n; i++)
            before[i] = weft_cards_counts(i);
#endif
        each_card_order(chain);
#ifdef WEFT_CUDA_EXECUTOR
        check_counts(n, before);
#endif
        starpu_shutdown();
    }
}

static void test_two_workers(void)
{
    if (weft_k_isa() == WEFT_ISA_C || !start(2, 2))
        return;
    int id[4];
    REQUIRE(starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, id, 4) == 4);
    CHECK(starpu_worker_get_memory_node((unsigned) id[0])
          == starpu_worker_get_memory_node((unsigned) id[1]));
    CHECK(starpu_worker_get_memory_node((unsigned) id[1])
          != starpu_worker_get_memory_node((unsigned) id[2]));
    each_card_order(chain);
    starpu_shutdown();
}

#ifdef WEFT_CUDA_EXECUTOR
/* More than a card has: StarPU brings home what is not in use. */
static void test_out_of_memory(void)
{
    enum { EACH = BIG / 4 };
    starpu_data_handle_t handle[N_BIG];
    int id[1];
    if (!start(1, 1))
        return;
    REQUIRE(starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, id, 1) == 1);
    unsigned node = starpu_worker_get_memory_node((unsigned) id[0]);
    CHECK(starpu_malloc_on_node(node, (size_t) 65 << 20) == 0);
    float *x = NULL;
    REQUIRE(starpu_malloc((void **) &x, (size_t) N_BIG * BIG) == 0);
    for (int64_t i = 0; i < (int64_t) N_BIG * EACH; i++)
        x[i] = (float) i;
    for (int i = 0; i < N_BIG; i++)
        starpu_vector_data_register(&handle[i], STARPU_MAIN_RAM,
                                    (uintptr_t) (x + i * EACH), EACH,
                                    sizeof *x);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N_BIG; i++)
            submit(&twice, &handle[i], id[0], 0);
    for (int i = 0; i < N_BIG; i++)
        starpu_data_unregister(handle[i]);
    int64_t n_wrong = 0;
    for (int64_t i = 0; i < (int64_t) N_BIG * EACH; i++)
        n_wrong += x[i] != (float) i * (i % EACH < N ? 4 : 1);
    CHECK_INT(n_wrong, 0);
    starpu_free(x);
    starpu_shutdown();
}

/* What this program says when it is started with other cards: why there are
 * none. */
static void check_why(const char *setting, const char *expected)
{
    char self[4096], command[5000], line[200] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command, "%s '%s' why", setting, self);
    FILE *f = popen(command, "r");
    REQUIRE(f != NULL);
    CHECK(fgets(line, sizeof line, f) != NULL);
    CHECK_INT(pclose(f), 0);
    CHECK_STR(line, expected);
}

static void test_list(void)
{
    struct weft_k_device d[3];
    CHECK_INT(weft_k_devices_cuda(d, 3, NULL), 3);
    CHECK_STR(d[2].name, "Emulated card");
    CHECK_INT(d[2].memory_bytes, 64 << 20);
    CHECK_INT(10 * d[2].major + d[2].minor, 90);
    check_why("WEFT_CARDS=none", "no CUDA driver");
    check_why("WEFT_CARDS=0", "no CUDA device");
}

/* A body that puts its kernel on a stream which StarPU does not know. */
static cudaStream_t foreign;

static void double_elsewhere(void *buffers[], void *arg)
{
    (void) arg;
    weft_k_add_cuda(foreign, AT(0), AT(0), N);
}

static void test_missing_wait(void)
{
    static struct starpu_codelet wrong = {.cuda_funcs = {double_elsewhere},
                                          .cuda_flags = {STARPU_CUDA_ASYNC},
                                          .nbuffers = 1,
                                          .modes = {STARPU_RW},
                                          .name = "wrong"};
    starpu_data_handle_t handle;
    int id[1];
    if (!start(1, 1))
        return;
    REQUIRE(starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, id, 1) == 1);
    REQUIRE(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking)
            == cudaSuccess);
    float *x = numbers(0, N), before = x[0];
    starpu_vector_data_register(&handle, STARPU_MAIN_RAM, (uintptr_t) x, N,
                                sizeof *x);
    submit(&wrong, &handle, id[0], 0);
    starpu_data_acquire(handle, STARPU_R);
    CHECK(x[0] == before); /* came home without having been doubled */
    starpu_data_release(handle);
    CHECK(cudaStreamSynchronize(foreign) == cudaSuccess);
    starpu_data_unregister(handle);
    CHECK(cudaStreamDestroy(foreign) == cudaSuccess);
    starpu_free(x);
    starpu_shutdown();
}
#endif

int main(int argc, char **argv)
{
    const char *why = NULL;
    if (argc > 1 && strcmp(argv[1], "why") == 0) {
        weft_k_devices_cuda(NULL, 0, &why);
        printf("%s", why ? why : "there are some");
        return 0;
    }
    const struct weft_test tests[] = {
        {"test_chain", test_chain},
        {"test_two_workers", test_two_workers},
#ifdef WEFT_CUDA_EXECUTOR
        {"test_out_of_memory", test_out_of_memory},
        {"test_missing_wait", test_missing_wait},
        {"test_list", test_list},
#endif
    };
    setenv("WEFT_CARDS", "3", 1);
    setenv("WEFT_CARDS_MEMORY", "64", 1);
    if (n_found() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    return weft_test_main("cuda/cards", tests,
                          sizeof tests / sizeof tests[0]);
}
