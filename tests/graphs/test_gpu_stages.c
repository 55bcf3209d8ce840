/* SPDX-License-Identifier: Apache-2.0 */
/* Generation of a replica whose stages, and members of a tp group, are GPUs: a
 * step is one task of each, most of them one launch of a graph, with a group's
 * exchanges inside; of one stage a chunk of steps is. What an instance ends
 * with is what it is on a CPU device, or, where GPUs lack its bits, on one
 * GPU, to which a CPU device is near. Graphs are made in the first iteration
 * and launched in those after it, with the weights of then. */
#define WEFT_TEST_CARDS 4
#include "chunks_fixture.h"

#include "plan/card_memory.h"
#include "plan/recording.h"

enum { N_STEPS = CHUNKS * STEPS };

static struct weft_shape shape;

/* Instances on GPUs have so many members in a stage; the model's own layout, on
 * GPUs from `device` on, has so many stages of them. */
static void open_model(int32_t device, int32_t with_tp, int32_t pp)
{
    checks_modes = true; /* rows that nobody wrote hold no numbers */
    tp = with_tp;
    start(0);
    shape = fixture_shape(WEFT_F32, false, true);
    shape.n_layers = 4;
    f = (struct task_fixture){.rt = rt, .seq = seq};
    struct weft_g_layout home = layout_on(&shape, device, 1, tp, pp);
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
    CHECK(gen.layout.is_gpu_gang
          == (tp > 1 && device < weft_rt_n_gpus(rt) && !is_apart));
    iterate(&gen, args, out);
    weft_g_generate_release(&gen);
}

/* What instances on GPUs must end with. */
static void run_reference(int32_t kv_blocks, const struct weft_gen_args *args,
                          struct outcome *out)
{
    int32_t members = tp;
    tp = 1;
    run(products_are_cpus() ? weft_rt_n_gpus(rt) : 0, 1, kv_blocks, args,
        out);
    tp = members;
    if (!products_are_cpus())
        check_near_cpu(out);
}

/* ---- Bits ---------------------------------------------------------------- */

static void both(int32_t pp, int32_t kv_blocks, bool preempts,
                 const struct weft_gen_args *args)
{
    static struct outcome want, gpu;
    int32_t n_preempted = 0;
    run_reference(kv_blocks, args, &want);
    run(0, pp, kv_blocks, args, &gpu);
    compare(&want, &gpu);
    for (int i = 0; i < CHUNKS; i++)
        n_preempted += gpu.chunk[i].n_preempted;
    CHECK_INT(n_preempted > 0, preempts);
}

static bool are_there(int32_t n_cards)
{
    return n_cards <= n_found();
}

static void once(int32_t with_tp, int32_t home_pp, int32_t pp)
{
    if (!are_there(with_tp * pp))
        return;
    open_model(0, with_tp, home_pp);
    both(pp, 0, false, &generation);
    close_model();
}

static void two_stages(void)
{
    once(1, 1, 2);
}

static void two_members(void)
{
    once(2, 1, 1);
}

static void two_of_two(void)
{
    once(2, 2, 2);
}

/* With too few pages, with prompts that begin alike, with copied pages, and
 * with texts that end responses. */
static void all_prompts(int32_t with_tp, int32_t pp)
{
    /* 3 rows, then 4, of which one begins in a copy of a page */
    static const struct prompts copy = {{61, 62, 1, 1}, {0, 0, 100, 120}};
    struct weft_gen_args args = generation;
    if (!are_there(with_tp * pp))
        return;
    open_model(0, with_tp, 1);
    args.n_stop = 0;
    both(pp, 4, true, &args);
    args.prefix_sharing = true;
    prompts = &alike;
    both(pp, 0, false, &args);
    prompts = &copy;
    args.prefill_tokens = 60;
    both(pp, 0, false, &args);
    prompts = &mixed;
    args = generation;
    args.stop_text = stop_texts();
    both(pp, 0, false, &args);
    args.min_new_tokens = 25;
    both(pp, 4, true, &args);
    close_model();
}

/* Enough rows in a step for each member to add a part of them: the last of four
 * members has one row less, of three one has two roots. */
static void shared_sums(int32_t with_tp, int32_t prefill_tokens)
{
    static const struct prompts texts = {{61, 62, 60, 1}, {0, 20, 40, 120}};
    struct weft_gen_args args = generation;
    if (!are_there(with_tp))
        return;
    args.prefill_tokens = most_prefill = prefill_tokens;
    prompts = &texts;
    open_model(0, with_tp, 1);
    both(1, 0, false, &args);
    close_model();
    prompts = &mixed;
    most_prefill = MOST_PREFILL;
}

static void test_stages(void)
{
    each_card_order(two_stages);
    once(1, 1, 4);
    all_prompts(1, 2);
}

/* GPUs that may not use one another's memory have tasks for the parts of each
 * layer, and copy what they read of a step: once for each part of the
 * embedding, for the join of these, for attention in each layer, for logits
 * and for the draw, which leaves tokens in pinned memory. */
static void test_apart(void)
{
    struct weft_gen_args args = generation;
    if (!are_there(2))
        return;
    is_apart = true;
    open_model(0, 2, 1);
    both(1, 0, false, &args);
    args.n_stop = 0;
    both(1, 4, true, &args);
    for (int k = 0; k < 2; k++)
        CHECK(counted[k].n_pinned <= N_STEPS * (shape.n_layers + 4 + SLOTS));
#ifdef WEFT_CUDA_EXECUTOR
    CHECK(counted[0].n_pinned > 0);
#endif
    close_model();
    is_apart = false;
}

/* Of 3 members one has two blocks, and of another order of roots. */
static void test_groups(void)
{
    if (n_found() < 2)
        weft_test_skip("there are no two GPUs");
    each_card_order(two_members);
    each_card_order(two_of_two);
    once(3, 1, 1);
    once(4, 1, 1);
    shared_sums(4, 83);
    shared_sums(3, 184);
    for (int32_t n = 2; n <= 4; n++)
        all_prompts(n, 1);
}

/* ---- Tasks and launches ------------------------------------------------- */

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

/* An instance, for whose graphs and exchanges each GPU has memory. */
static void open_reserved(int32_t pp, struct weft_g_generate *gen)
{
    size_t before_bytes, bytes, peak, want_bytes = 0;
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &before_bytes, &peak);
    open_instance(0, pp, 0, gen);
    weft_rt_memory(rt, WEFT_MEM_ACTIVATIONS, &bytes, &peak);
    for (int32_t s = 0; s < pp; s++)
        for (int32_t k = 0; k < tp; k++) {
            const struct weft_stage_layers layers = layers_of(s, pp);
            struct weft_range range =
                weft_g_layout_member(&gen->layout, 0, s, k)->blocks;
            want_bytes += weft_card_block_bytes(
                weft_gen_graphs_bytes(&shape, &layers, range, SLOTS),
                WEFT_MEM_ACTIVATIONS);
            if (tp > 1)
                want_bytes += weft_card_block_bytes(
                    weft_gen_exchange_bytes(&shape, &layers, range,
                                            SLOTS + MOST_PREFILL, SLOTS),
                    WEFT_MEM_ACTIVATIONS);
        }
    CHECK_INT(bytes - before_bytes, want_bytes);
}

#ifdef WEFT_CUDA_EXECUTOR /* what is counted, emulated cards count alone */
/* Every step has all rows but those of one text, which ends early: 4 or 3
 * rows, of the same graph. It is made when the first step has run without. One
 * stage alone has a launch for a chunk, if CUDA has loops, and then the host
 * waits for the first member. */
static void check_launches(const struct weft_g_layout *layout, int32_t pp,
                           bool has_loops)
{
    for (int32_t s = 0; s < pp; s++)
        for (int32_t k = 0; k < tp; k++) {
            const struct weft_stage_layers layers = layers_of(s, pp);
            const struct weft_g_member *m = weft_g_layout_member(layout, 0, s,
                                                                 k);
            const struct counts *n = &counted[m->device];
            int64_t most = weft_gen_graph_nodes(&shape, &layers, m->blocks);
            CHECK_INT(n->n_instances, 1);
            CHECK_INT(n->n_graphs,
                      pp == 1 && has_loops ? CHUNKS : N_STEPS - 1);
            CHECK_INT(n->n_waits, pp == 1 && k == 0 ? CHUNKS : 0);
            /* the address of steps that are put there together */
            CHECK(n->n_pinned <= (pp == 1 ? CHUNKS + 1 : N_STEPS));
            CHECK(n->n_nodes <= most && n->n_nodes > most / 2);
        }
}
#endif

static void tasks_of(int32_t with_tp, int32_t pp, bool has_loops)
{
    static struct outcome out;
    static const char *const none[] = {
        "embed",         "embed_part", "embed_select", "attention_part",
        "mlp_part",      "join_rows",  "gen_draw",     "logits_part",
        "layer_forward", "gen_sample"};
    struct weft_gen_args args = generation;
    struct weft_recording r;
    if (!are_there(with_tp * pp))
        return;
    args.n_stop = 0;
    weft_recording_init(&r);
    recorded = &r;
    open_model(0, with_tp, pp);
    prompts = &shortest;
    has_one_temperature = true;
    struct weft_g_generate gen;
    open_reserved(pp, &gen);
    iterate(&gen, &args, &out);
#ifdef WEFT_CUDA_EXECUTOR
    check_launches(&gen.layout, pp, has_loops);
#endif
    (void) has_loops;
    weft_g_generate_release(&gen);
    prompts = &mixed;
    has_one_temperature = false;
    close_model();
    recorded = NULL;
    int32_t n_steps = pp > 1 ? N_STEPS : 0;
    CHECK_INT(count_op(&r, "gen_chunk"), pp > 1 ? 0 : CHUNKS * tp);
    CHECK_INT(count_op(&r, "gen_begin"), n_steps);
    CHECK_INT(count_op(&r, "gen_stage"), n_steps * tp * (pp - 1));
    CHECK_INT(count_op(&r, "gen_last_stage"), n_steps * tp);
    CHECK_INT(count_op(&r, "gen_settle"), n_steps);
    for (size_t i = 0; i < WEFT_COUNT(none); i++)
        CHECK_INT(count_op(&r, none[i]), 0);
    CHECK(pp > 1 || count_op(&r, "open") == 0);
    weft_recording_release(&r);
}

static void test_tasks(void)
{
    for (int32_t n = 2; n <= 4; n++) {
        if (n != 3)
            tasks_of(1, n, true);
        tasks_of(n, 1, true);
    }
    tasks_of(2, 2, true);
#ifdef WEFT_CUDA_EXECUTOR
    weft_cards_loops(0);
    tasks_of(2, 1, false);
    weft_cards_loops(1);
#endif
}

/* ---- Iterations --------------------------------------------------------- */

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
static void iterations_of(int32_t with_tp, int32_t home_pp, int32_t pp)
{
    static struct outcome want, gpu, before;
    struct weft_g_generate gen;
    struct weft_gen_args args = generation;
    if (!are_there(with_tp * pp))
        return;
    args.n_stop = 0; /* all iterations have steps of as many rows */
    has_one_temperature = ends_short = true;
    open_model(0, with_tp, home_pp);
    open_instance(0, pp, 0, &gen);
    for (int i = 0; i < 3; i++) {
        args.iteration = i;
        run_reference(0, &args, &want);
        iterate(&gen, &args, &gpu);
        compare(&want, &gpu);
        CHECK(i == 0 || memcmp(before.logp, gpu.logp, sizeof gpu.logp) != 0);
#ifdef WEFT_CUDA_EXECUTOR
        for (int32_t d = 0; d < tp * pp; d++) {
            CHECK_INT(counted[d].n_instances > 0, i == 0);
            CHECK(counted[d].n_graphs > 0);
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
    for (int32_t pp = 1; pp <= 2; pp++) {
        iterations_of(1, pp, pp);
        iterations_of(2, pp, pp);
    }
    iterations_of(1, 1, 2);
    iterations_of(1, 1, 4);
}

int main(void)
{
    const struct weft_test tests[] = {{"test_stages", test_stages},
                                      {"test_groups", test_groups},
                                      {"test_apart", test_apart},
                                      {"test_tasks", test_tasks},
                                      {"test_iterations", test_iterations}};
    return gpus_main("graphs/gpu_stages", tests, WEFT_COUNT(tests));
}
