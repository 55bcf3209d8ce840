/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk at a GPU's place is one task that waits once and launches its steps
 * as one graph, few of which are made, and leaves the state of a CPU device's
 * chunk: who ended, where and why, also in the middle of a chunk, and also
 * where pages are short. Where GPUs lack the CPU's bits it leaves that of a
 * chunk whose steps are launched kernel by kernel, to which a CPU device gives
 * near log-probs. */
#include "chunks_fixture.h"
#include "plan/card_memory.h"

static const struct weft_stage_layers all_layers = {0, 2, true, true};
static bool has_small_graphs; /* no step fits them */

int64_t __real_weft_gen_graph_nodes(const struct weft_shape *shape,
                                    const struct weft_stage_layers *layers,
                                    struct weft_range range);
int64_t __wrap_weft_gen_graph_nodes(const struct weft_shape *shape,
                                    const struct weft_stage_layers *layers,
                                    struct weft_range range);
int64_t __wrap_weft_gen_graph_nodes(const struct weft_shape *shape,
                                    const struct weft_stage_layers *layers,
                                    struct weft_range range)
{
    return has_small_graphs
             ? 5
             : __real_weft_gen_graph_nodes(shape, layers, range);
}

/* Counts what happens on the first card. */
static struct counts run(int32_t device, int32_t kv_blocks,
                         const struct weft_gen_args *args,
                         struct outcome *out)
{
    struct weft_g_generate gen;
    size_t before_bytes, bytes, peak;
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &before_bytes, &peak);
    open_instance(device, 1, kv_blocks, &gen);
    /* the GPU's memory that its graphs take is reserved */
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &bytes, &peak);
    size_t graphs_bytes = weft_gen_graphs_bytes(
        &f.model.shape, &all_layers, weft_all_blocks(&f.model.shape), SLOTS);
    CHECK_INT(bytes - before_bytes,
              device < weft_rt_n_gpus(rt)
                  ? weft_card_block_bytes(graphs_bytes, WEFT_MEM_ACTIVATIONS)
                  : 0);
    iterate(&gen, args, out);
    weft_g_generate_release(&gen);
    return counted[0];
}

/* What chunks on the GPU must leave. */
static void run_reference(int32_t kv_blocks, const struct weft_gen_args *args,
                          struct outcome *out)
{
    if (products_are_cpus()) {
        run(weft_rt_n_gpus(rt), kv_blocks, args, out);
        return;
    }
    bool small = has_small_graphs;
    has_small_graphs = true;
    CHECK_INT(run(0, kv_blocks, args, out).n_graphs, 0);
    has_small_graphs = small;
    check_near_cpu(out);
}

static int32_t n_with(const struct outcome *o, int done)
{
    int32_t n = 0;
    for (int i = 0; i < SLOTS; i++)
        n += o->slot[i].done == done;
    return n;
}

static void both(int32_t kv_blocks, bool preempts,
                 const struct weft_gen_args *args)
{
    static struct outcome want, gpu;
    int32_t n_preempted = 0;
    run_reference(kv_blocks, args, &want);
    struct counts n = run(0, kv_blocks, args, &gpu);
    compare(&want, &gpu);
    for (int i = 0; i < CHUNKS; i++)
        n_preempted += gpu.chunk[i].n_preempted;
    CHECK_INT(n_preempted > 0, preempts);
    CHECK_INT(gpu.slot[1].done, 2);
    CHECK_INT(n_with(&gpu, 1) > 0, args->n_stop > 0);
#ifdef WEFT_CUDA_EXECUTOR
    CHECK_INT(n.n_waits > CHUNKS, kv_blocks > 0);
    CHECK(n.n_waits >= CHUNKS && n.n_waits < CHUNKS * STEPS);
    /* behind each wait, perhaps */
    CHECK(n.n_graphs > 0 && n.n_graphs <= n.n_waits);
    /* 1, 2 and 4 rows, made anew for the other temperature */
    CHECK(n.n_instances > 0 && n.n_instances <= CHUNKS * 3);
    int64_t most = weft_gen_graph_nodes(&f.model.shape, &all_layers,
                                        weft_all_blocks(&f.model.shape));
    CHECK(n.n_nodes <= most && n.n_nodes > most / 2);
#endif
    (void) n;
}

static void open_model(void)
{
    static struct weft_shape shape;
    start(0);
    shape = fixture_shape(WEFT_F32, false, true);
    f = (struct task_fixture){.rt = rt, .seq = seq};
    struct weft_g_layout home = layout_on(&shape, weft_rt_n_gpus(rt), 1, 1,
                                          1);
    fixture_open_model(&f, &shape, false, &home);
    weft_g_layout_release(&home);
}

/* Decode steps that cannot be put on the stream together with the one before
 * them, though every text has one row in both. A prompt's last token is read by
 * itself here, so that this is such a step; then come those that share it, of
 * whose prompts one token is left. */
static void late_rows(struct weft_gen_args args)
{
    /* 1 row, then 4, which share a whole page */
    static const struct prompts page = {{64, 65, 65, 65}, {0, 0, 0, 0}};
    /* 3 rows, then 4, of which one begins in a copy of a page */
    static const struct prompts copy = {{61, 62, 1, 1}, {0, 0, 100, 120}};
    prompts = &page;
    args.prefill_tokens = 63;
    both(0, false, &args);
    prompts = &copy;
    args.prefill_tokens = 60;
    both(0, false, &args);
}

static void chunks(void)
{
    struct weft_gen_args args = generation;
    open_model();
    args.n_stop = 0;
    both(0, false, &args);
    both(4, true, &args);
    args.prefix_sharing = true;
    prompts = &alike;
    both(0, false, &args);
    late_rows(args);
    prompts = &mixed;
    args = generation;
    args.stop_text = stop_texts();
    both(0, false, &args);
    both(3, true, &args);
    weft_g_model_release(&f.model);
    stop();
}

/* The first step that this process runs on the card is one that graphs are
 * made of: what it chooses and allocates is not captured. Then each chunk is
 * one launch; where CUDA has no loops, each step. */
static void short_prompts(bool has_loops)
{
    static struct outcome want, gpu;
    struct weft_gen_args args = generation;
    prompts = &shortest;
    has_one_temperature = true;
    open_model();
    for (int i = 0; i < 2; i++) {
        struct counts n = run(0, 0, &args, &gpu);
        run_reference(0, &args, &want);
        compare(&want, &gpu);
#ifdef WEFT_CUDA_EXECUTOR
        CHECK_INT(n.n_waits, CHUNKS);
        if (args.n_stop == 0) {
            CHECK_INT(n.n_graphs, has_loops ? CHUNKS : CHUNKS * STEPS - 1);
            CHECK_INT(n.n_instances, 1);
        }
        CHECK(n.n_pinned <= 2 * CHUNKS); /* where steps are planned, each */
#endif
        (void) n;
        (void) has_loops;
        args.n_stop = 0;
    }
    weft_g_model_release(&f.model);
    stop();
    prompts = &mixed;
    has_one_temperature = false;
}

static void test_first_step(void)
{
    short_prompts(true);
}

static void without_graphs(void)
{
    static struct outcome want, gpu;
    prompts = &shortest;
    has_one_temperature = has_small_graphs = true;
    open_model();
    run_reference(0, &generation, &want);
    struct counts n = run(0, 0, &generation, &gpu);
    compare(&want, &gpu);
    CHECK_INT(n.n_graphs + n.n_instances, 0);
    weft_g_model_release(&f.model);
    stop();
    prompts = &mixed;
    has_one_temperature = has_small_graphs = false;
}

static void without_loops(void)
{
#ifdef WEFT_CUDA_EXECUTOR
    weft_cards_loops(0);
    short_prompts(false);
    weft_cards_loops(1);
#endif
}

static void one_launch(void)
{
    short_prompts(true);
}

static void test_one_launch(void)
{
    each_card_order(one_launch);
    without_loops();
    without_graphs();
}

static void test_chunks(void)
{
    each_card_order(chunks);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_first_step", test_first_step},
                                      {"test_one_launch", test_one_launch},
                                      {"test_chunks", test_chunks}};
    return gpus_main("graphs/gpu_chunks", tests, WEFT_COUNT(tests));
}
