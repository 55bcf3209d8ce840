/* SPDX-License-Identifier: Apache-2.0 */
/* Generation of a replica whose stages are GPUs: a step is one task of each
 * stage, most of them one launch of a graph; what an instance ends with is what
 * it is on a CPU device. Graphs are made in the first iteration and launched in
 * those after it, with the weights of then, by one stage and by several. */
#define WEFT_TEST_CARDS 4
#include "chunks_fixture.h"

#include "plan/recording.h"

enum { N_STEPS = CHUNKS * STEPS };

static struct weft_shape shape;

/* Its weights are on GPUs, of a stage on each. */
static void open_model(int32_t device, int32_t pp)
{
    checks_modes = true; /* rows that nobody wrote hold no numbers */
    start(0);
    shape = fixture_shape(WEFT_F32, false, true);
    shape.n_layers = 4;
    f = (struct task_fixture){.rt = rt, .seq = seq};
    struct weft_g_layout home = layout_on(&shape, device, 1, 1, pp);
    fixture_open_model(&f, &shape, false, &home);
    weft_g_layout_release(&home);
}

static void close_model(void)
{
    weft_g_model_release(&f.model);
    stop();
}

static void run(int32_t device, int32_t pp, int32_t kv_blocks,
                const struct weft_gen_args *args, struct outcome *out)
{
    struct weft_g_generate gen;
    open_instance(device, pp, kv_blocks, &gen);
    iterate(&gen, args, out);
    weft_g_generate_release(&gen);
}

/* ---- Bits ---------------------------------------------------------------- */

static void both(int32_t pp, int32_t kv_blocks, bool preempts,
                 const struct weft_gen_args *args)
{
    static struct outcome cpu, gpu;
    int32_t n_preempted = 0;
    if (pp > weft_rt_n_gpus(rt))
        return;
    run(weft_rt_n_gpus(rt), 1, kv_blocks, args, &cpu);
    run(0, pp, kv_blocks, args, &gpu);
    compare(&cpu, &gpu);
    for (int i = 0; i < CHUNKS; i++)
        n_preempted += gpu.chunk[i].n_preempted;
    CHECK_INT(n_preempted > 0, preempts);
}

static void two_stages(void)
{
    open_model(0, 1);
    both(2, 0, false, &generation);
    close_model();
}

static void stages(void)
{
    /* 3 rows, then 4, of which one begins in a copy of a page */
    static const struct prompts copy = {{61, 62, 1, 1}, {0, 0, 100, 120}};
    struct weft_gen_args args = generation;
    open_model(0, 1);
    both(4, 0, false, &args);
    args.n_stop = 0;
    both(2, 4, true, &args);
    args.prefix_sharing = true;
    prompts = &alike;
    both(2, 0, false, &args);
    prompts = &copy;
    args.prefill_tokens = 60;
    both(2, 0, false, &args);
    prompts = &mixed;
    close_model();
}

static bool has_gpus_bits(void)
{
    if (weft_k_isa() != WEFT_ISA_C)
        return true;
    weft_test_skip("this CPU has no fused multiply-adds");
    return false;
}

static void test_stages(void)
{
    if (!has_gpus_bits())
        return;
    each_card_order(two_stages);
    stages();
}

/* ---- Tasks and launches --------------------------------------------------- */

static int64_t count_op(const struct weft_recording *r, const char *op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        n += strcmp(weft_recording_op(r, i), op) == 0;
    return n;
}

static struct weft_stage_layers layers_of(int32_t stage, int32_t pp)
{
    return (struct weft_stage_layers){stage * shape.n_layers / pp,
                                      (stage + 1) * shape.n_layers / pp,
                                      stage == 0, stage == pp - 1};
}

/* An instance, for whose graphs memory of each stage's GPU is reserved. */
static void open_reserved(int32_t pp, struct weft_g_generate *gen)
{
    size_t before_bytes, bytes, peak, want_bytes = 0;
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &before_bytes, &peak);
    open_instance(0, pp, 0, gen);
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &bytes, &peak);
    for (int32_t s = 0; s < pp; s++) {
        const struct weft_stage_layers layers = layers_of(s, pp);
        want_bytes += weft_gen_graphs_bytes(&shape, &layers,
                                            weft_all_blocks(&shape), SLOTS);
    }
    CHECK_INT(bytes - before_bytes, want_bytes);
}

/* Every step has all rows but those of one text, which ends early: 4 or 3 rows,
 * of the same graph. It is made when the first step has run without. */
static void check_launches(int32_t pp)
{
    for (int32_t s = 0; s < pp; s++) {
        const struct weft_stage_layers layers = layers_of(s, pp);
        int64_t most = weft_gen_graph_nodes(&shape, &layers,
                                            weft_all_blocks(&shape));
        CHECK_INT(counted[s].n_instances, 1);
        CHECK_INT(counted[s].n_graphs, N_STEPS - 1);
        CHECK(counted[s].n_nodes <= most && counted[s].n_nodes > most / 2);
    }
}

static void tasks_of(int32_t pp)
{
    static struct outcome out;
    static const char *const none[] = {"embed",     "layer_forward",
                                       "gen_draw",  "logits_part",
                                       "gen_chunk", "gen_sample"};
    struct weft_gen_args args = generation;
    struct weft_recording r;
    args.n_stop = 0;
    weft_recording_init(&r);
    recorded = &r;
    open_model(0, pp);
    prompts = &shortest;
    has_one_temperature = true;
    struct weft_g_generate gen;
    open_reserved(pp, &gen);
    iterate(&gen, &args, &out);
#ifdef WEFT_CUDA_EXECUTOR
    check_launches(pp);
#endif
    weft_g_generate_release(&gen);
    prompts = &mixed;
    has_one_temperature = false;
    close_model();
    recorded = NULL;
    CHECK_INT(count_op(&r, "gen_begin"), N_STEPS);
    CHECK_INT(count_op(&r, "gen_stage"), N_STEPS * (pp - 1));
    CHECK_INT(count_op(&r, "gen_last_stage"), N_STEPS);
    CHECK_INT(count_op(&r, "gen_settle"), N_STEPS);
    for (size_t i = 0; i < WEFT_COUNT(none); i++)
        CHECK_INT(count_op(&r, none[i]), 0);
    weft_recording_release(&r);
}

static void test_tasks(void)
{
    for (int32_t pp = 2; pp <= 4 && pp <= n_found(); pp *= 2)
        tasks_of(pp);
}

/* ---- Iterations ----------------------------------------------------------- */

static void scale(struct weft_tile *norms)
{
    if (!norms)
        return;
    float *w = weft_tile_acquire(norms, WEFT_READ_WRITE);
    for (size_t i = 0; i < weft_tile_bytes(norms) / sizeof *w; i++)
        w[i] *= 1.05f;
    weft_tile_unacquire(norms);
}

/* As a training step leaves them: other numbers in the same tiles. */
static void update_weights(void)
{
    for (int32_t p = 0; p < f.model.n_places; p++) {
        scale(f.model.fwd[p].head.norms);
        for (int32_t l = 0; l < shape.n_layers; l++)
            scale(f.model.fwd[p].layer[l].norms);
    }
}

/* Other tasks on these GPUs take memory, of other sizes, and give it back. */
static void infer(const struct weft_g_layout *layout)
{
    static struct text text[3];
    static float logp[N][NEW];
    for (int i = 0; i < 3; i++) {
        text[i] = (struct text){.n_prompt = 3, .n_total = 9 + 16 * i};
        for (int k = 0; k < text[i].n_total; k++)
            text[i].token[k] = (31 * k + i) % 270;
    }
    for (int n = 1; n <= 3; n += 2)
        score(&f, layout, n, text, 1, logp);
}

/* home_pp: stages of the model's own layout. Weights that generation has
 * elsewhere move there in every iteration, to where they were. */
static void iterations_of(int32_t home_pp, int32_t pp)
{
    static struct outcome cpu, gpu, before;
    struct weft_g_generate gen;
    struct weft_gen_args args = generation;
    args.n_stop = 0; /* all iterations have steps of as many rows */
    has_one_temperature = ends_short = true;
    open_model(0, home_pp);
    open_instance(0, pp, 0, &gen);
    for (int i = 0; i < 3; i++) {
        args.iteration = i;
        run(weft_rt_n_gpus(rt), 1, 0, &args, &cpu);
        iterate(&gen, &args, &gpu);
        compare(&cpu, &gpu);
        CHECK(i == 0 || memcmp(before.logp, gpu.logp, sizeof gpu.logp) != 0);
#ifdef WEFT_CUDA_EXECUTOR
        for (int32_t s = 0; s < pp; s++) {
            CHECK_INT(counted[s].n_instances > 0, i == 0);
            CHECK(counted[s].n_graphs > 0);
        }
#endif
        before = gpu;
        infer(&gen.layout);
        update_weights();
    }
    weft_g_generate_release(&gen);
    has_one_temperature = ends_short = false;
    close_model();
}

static void test_iterations(void)
{
    if (!has_gpus_bits())
        return;
    for (int32_t pp = 1; pp <= 2 && pp <= n_found(); pp++)
        iterations_of(pp, pp);
    for (int32_t pp = 2; pp <= 4 && pp <= n_found(); pp *= 2)
        iterations_of(1, pp);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_stages", test_stages},
                                      {"test_tasks", test_tasks},
                                      {"test_iterations", test_iterations}};
    return gpus_main("graphs/gpu_stages", tests, WEFT_COUNT(tests));
}
