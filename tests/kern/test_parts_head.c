/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head by parts, however the vocabulary's blocks are
 * dealt: the bits of the whole one.
 */
#include "base/rng.h"
#include "each_isa.h"
#include "parts_fixture.h"

enum { H = 38, N_ROWS = 400, STEP = 2, N = N_ROWS / STEP };

static float noise(uint32_t stream, int64_t i)
{
    return (float) weft_rng_normal(11, WEFT_RNG_INIT, stream, 0,
                                   (uint32_t) i);
}

static float *noise_rows(uint32_t stream, int64_t n)
{
    float *x = poisoned((size_t) n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = noise(stream, i);
    return x;
}

/* A head with random weights, and rows that predict. */
struct model {
    struct weft_shape s;
    struct weft_k_head head;
    void *tile[2 * WEFT_MAX_BLOCKS];
    size_t n_flat[WEFT_MAX_BLOCKS];
    float *final, *x;
    int32_t row[N], target[N];
    struct weft_k_targets targets;
};

static void model_init(struct model *m, int32_t n_blocks, int32_t vocab,
                       enum weft_dtype dtype)
{
    struct weft_err err;
    struct weft_layout l;
    *m = (struct model){.s = {.hidden = H,
                              .n_heads = 32,
                              .n_kv_heads = 32,
                              .head_dim = 4,
                              .intermediate = 2048,
                              .vocab = vocab,
                              .rms_eps = 1e-5f,
                              .dtype = dtype}};
    REQUIRE_OK(weft_shape_partition(&m->s, n_blocks, &err), err);
    for (int32_t t = 0; t < n_blocks; t++) {
        weft_layout_get(&m->s, WEFT_TILE_HEAD, t, &l);
        m->n_flat[t] = l.n_flat;
        float *master = weft_alloc_aligned(l.n_flat, sizeof *master);
        for (int32_t n = 0; n < l.part[0].n; n++)
            for (int32_t k = 0; k < H; k++)
                master[weft_flat_index(&l.part[0], n, k)] =
                    0.4f * noise(40 + (uint32_t) t, n * H + k);
        m->tile[2 * t] = poisoned(l.fwd_bytes);
        m->tile[2 * t + 1] = poisoned(l.bwd_bytes);
        weft_k_publish(&l, dtype, master, m->tile[2 * t], m->tile[2 * t + 1]);
        m->head.fwd[t] = m->tile[2 * t];
        m->head.bwd[t] = m->tile[2 * t + 1];
        weft_free(master);
    }
    m->head.final = m->final = noise_rows(1, H);
    m->x = noise_rows(2, N_ROWS * H);
    for (int32_t i = 0; i < N; i++) {
        m->row[i] = i * STEP;
        m->target[i] = i < 2 ? (vocab - 1) * i : i * 7919 % vocab;
    }
    m->targets = (struct weft_k_targets){N, m->row, m->target, 0, NULL};
}

static void model_release(struct model *m)
{
    for (int32_t t = 0; t < 2 * m->s.n_blocks; t++)
        weft_free(m->tile[t]);
    weft_free(m->final);
    weft_free(m->x);
}

/* What a member of the range sees of the head. */
static struct weft_k_head head_of(const struct model *m,
                                  struct weft_range range)
{
    struct weft_k_head head = {.final = m->final};
    for (int32_t t = range.first; t < weft_range_end(range); t++) {
        head.fwd[t] = m->head.fwd[t];
        head.bwd[t] = m->head.bwd[t];
    }
    return head;
}

/* ---- Forward ----------------------------------------------------------- */

/* logp, entropy, lse: (N) each, one after another. */
static void check_logprob(const struct model *m, const struct split *split,
                          float scale)
{
    float *want = poisoned(3 * N * sizeof *want);
    float *got = poisoned(3 * N * sizeof *got);
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
    void *memory[WEFT_MAX_BLOCKS];
    void *scratch = poisoned(weft_k_head_scratch_bytes(&m->s, N));
    weft_k_head_logprob(&m->s, &m->head, m->x, &m->targets, scale, want,
                        want + N, want + 2 * N, scratch);
    for (int32_t i = 0; i < split->n; i++) {
        struct weft_range range = split->range[i];
        struct weft_k_head head = head_of(m, range);
        memory[i] = poisoned(weft_k_head_part_bytes(range, N));
        weft_k_head_part(&m->s, range, &head, m->x, &m->targets, scale,
                         memory[i], scratch);
        part[i] = (struct weft_k_head_parts){range, memory[i]};
    }
    weft_k_head_merge(&m->s, &m->targets, split->n, part, got, got + N,
                      got + 2 * N);
    CHECK(memcmp(got, want, 3 * N * sizeof *got) == 0);
    weft_k_head_merge(&m->s, &m->targets, split->n, part, got + N, NULL,
                      NULL);
    CHECK(memcmp(got + N, want, N * sizeof *got) == 0);
    for (int32_t i = 0; i < split->n; i++)
        weft_free(memory[i]);
    weft_free(scratch);
    weft_free(want);
    weft_free(got);
}

static void check_logits(const struct model *m, const struct split *split)
{
    size_t bytes = N_ROWS * (size_t) m->s.vocab * sizeof(float);
    float *want = poisoned(bytes), *got = poisoned(bytes);
    void *scratch = poisoned(weft_k_head_scratch_bytes(&m->s, N_ROWS));
    int32_t next = 0;
    weft_k_head_logits(&m->s, &m->head, N_ROWS, m->x, want, scratch);
    for (int32_t i = 0; i < split->n; i++) {
        struct weft_k_head head = head_of(m, split->range[i]);
        int32_t first, n;
        weft_k_head_logits_part(&m->s, split->range[i], &head, N_ROWS, m->x,
                                got, scratch);
        weft_k_vocab_range(&m->s, split->range[i], &first, &n);
        CHECK_INT(first, next);
        next = first + n;
        CHECK(next == m->s.vocab || got[next] != got[next]);
    }
    CHECK_INT(next, m->s.vocab);
    CHECK(memcmp(got, want, bytes) == 0);
    weft_free(scratch);
    weft_free(want);
    weft_free(got);
}

static void forward(void)
{
    static const struct {
        int32_t T, vocab;
    } sizes[] = {
        {8, 8 * 64 - 5}, {8, 3000}, {16, 16 * 64 - 5}, {32, 32 * 64 - 5}};
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++)
        for (int i = 0; i < 2; i++) {
            struct model m;
            size_t n;
            const uint32_t *cuts = cuts_of_blocks(sizes[k].T, &n);
            model_init(&m, sizes[k].T, sizes[k].vocab,
                       i ? WEFT_BF16 : WEFT_F32);
            for (size_t c = 0; c < n; c++) {
                struct split split = split_of(sizes[k].T, cuts[c]);
                check_logprob(&m, &split, 1 / 0.7f);
                check_logits(&m, &split);
            }
            model_release(&m);
        }
}

static void test_head_forward_by_parts(void)
{
    each_isa(forward);
}

/* ---- Backward ---------------------------------------------------------- */

/* Samples of odd and even lengths; the first is longer than a chunk. */
static const int32_t run_rows[] = {261, 2, 1, 33, 103};
enum { N_RUNS = 5, N_BACK = 400 };

/* What both ways get and give. */
struct back {
    const struct model *m;
    struct weft_k_targets targets;
    int32_t row[N_BACK], target[N_BACK];
    float *of[4]; /* lse, entropy, dlogp, dentropy */
    bool entropy;
    float *dx, *grad_final, *grad[WEFT_MAX_BLOCKS];
};

static void back_init(struct back *b, const struct model *m, bool entropy)
{
    *b = (struct back){.m = m, .entropy = entropy};
    for (int32_t i = 0; i < N_BACK; i++) {
        b->row[i] = i;
        b->target[i] = i * 7919 % m->s.vocab;
    }
    b->targets = (struct weft_k_targets){N_BACK, b->row, b->target, 0, NULL};
    for (uint32_t i = 0; i < 4; i++)
        b->of[i] = noise_rows(60 + i, N_BACK);
    void *scratch = poisoned(weft_k_head_scratch_bytes(&m->s, N_BACK));
    float *logp = poisoned(N_BACK * sizeof *logp);
    weft_k_head_logprob(&m->s, &m->head, m->x, &b->targets, 1.3f, logp,
                        b->of[1], b->of[0], scratch);
    weft_free(scratch);
    weft_free(logp);
    b->dx = poisoned(N_ROWS * H * sizeof(float));
    b->grad_final = noise_rows(70, H); /* gradients continue */
    for (int32_t t = 0; t < m->s.n_blocks; t++)
        b->grad[t] = noise_rows(80 + (uint32_t) t, (int64_t) m->n_flat[t]);
}

static void back_release(struct back *b)
{
    for (int i = 0; i < 4; i++)
        weft_free(b->of[i]);
    for (int32_t t = 0; t < b->m->s.n_blocks; t++)
        weft_free(b->grad[t]);
    weft_free(b->dx);
    weft_free(b->grad_final);
}

static void back_whole(struct back *b)
{
    const struct model *m = b->m;
    void *scratch = poisoned(
        weft_k_head_backward_scratch_bytes(&m->s, N_BACK, N_RUNS));
    weft_k_head_backward(
        &m->s, &m->head, N_ROWS, m->x, &b->targets, N_RUNS, run_rows, 1.3f,
        b->of[0], b->entropy ? b->of[1] : NULL, b->of[2],
        b->entropy ? b->of[3] : NULL, b->dx, b->grad, b->grad_final, scratch);
    weft_free(scratch);
}

/* Has a range's forward pass keep the logits of n targets, or none. */
static struct weft_k_targets keep(const struct back *b,
                                  struct weft_range range, int32_t n)
{
    const struct model *m = b->m;
    struct weft_k_targets targets = b->targets;
    struct weft_k_head head = head_of(m, range);
    int32_t first, columns;
    weft_k_vocab_range(&m->s, range, &first, &columns);
    targets.n_logits = n;
    targets.logits = poisoned((size_t) (N_BACK * columns) * sizeof(float));
    void *scratch = poisoned(weft_k_head_scratch_bytes(&m->s, N_BACK));
    void *part = poisoned(weft_k_head_part_bytes(range, N_BACK));
    weft_k_head_part(&m->s, range, &head, m->x, &targets, 1.3f, part,
                     scratch);
    weft_free(part);
    weft_free(scratch);
    return targets;
}

/* Parts keep all logits, those of the first chunk of rows and some more, or
 * none. */
static void back_parts(struct back *b, const struct split *split)
{
    static const int32_t kept[] = {N_BACK, 299, 0};
    const struct model *m = b->m;
    size_t rows_bytes = N_BACK * H * sizeof(float);
    struct weft_k_part part[WEFT_MAX_BLOCKS];
    float *roots[WEFT_MAX_BLOCKS];
    for (int32_t i = 0; i < split->n; i++) {
        struct weft_range range = split->range[i];
        struct weft_k_head head = head_of(m, range);
        float *grad[WEFT_MAX_BLOCKS] = {NULL};
        for (int32_t t = range.first; t < weft_range_end(range); t++)
            grad[t] = b->grad[t];
        roots[i] = poisoned(WEFT_MAX_ROOTS * rows_bytes);
        struct weft_k_targets targets = keep(b, range, kept[i % 3]);
        void *scratch = poisoned(
            weft_k_head_backward_scratch_bytes(&m->s, N_BACK, N_RUNS));
        weft_k_head_backward_part(
            &m->s, range, &head, m->x, &targets, N_RUNS, run_rows, 1.3f,
            b->of[0], b->entropy ? b->of[1] : NULL, b->of[2],
            b->entropy ? b->of[3] : NULL, grad, roots[i], scratch);
        weft_free(scratch);
        weft_free(targets.logits);
        part[i] = (struct weft_k_part){range, roots[i]};
    }
    void *scratch = poisoned(rows_bytes);
    weft_k_head_norm_backward(&m->s, m->final, N_ROWS, m->x, &b->targets,
                              split->n, part, b->dx, b->grad_final, scratch);
    weft_free(scratch);
    for (int32_t i = 0; i < split->n; i++)
        weft_free(roots[i]);
}

static void backward_of(const struct model *m, uint32_t cuts)
{
    struct split split = split_of(m->s.n_blocks, cuts);
    struct back whole, parts;
    back_init(&whole, m, cuts % 2);
    back_init(&parts, m, cuts % 2);
    back_whole(&whole);
    back_parts(&parts, &split);
    CHECK(memcmp(parts.dx, whole.dx, N_ROWS * H * sizeof(float)) == 0);
    CHECK(memcmp(parts.grad_final, whole.grad_final, H * sizeof(float)) == 0);
    for (int32_t t = 0; t < m->s.n_blocks; t++)
        CHECK(
            memcmp(parts.grad[t], whole.grad[t], m->n_flat[t] * sizeof(float))
            == 0);
    back_release(&whole);
    back_release(&parts);
}

static void backward(void)
{
    static const int32_t blocks[] = {8, 4, 32, 16};
    for (size_t i = 0; i < WEFT_COUNT(blocks); i++) {
        struct model m;
        int32_t T = blocks[i];
        size_t n;
        const uint32_t *cuts = cuts_of_blocks(T, &n);
        model_init(&m, T, weft_max32(8, T) * 64 - 5,
                   i % 2 ? WEFT_BF16 : WEFT_F32);
        for (size_t c = 0; c < n; c += 1 + i % 2)
            backward_of(&m, cuts[c]);
        model_release(&m);
    }
}

static void test_head_backward_by_parts(void)
{
    each_isa(backward);
}

WEFT_TESTS("kern/parts_head",
           {"test_head_forward_by_parts", test_head_forward_by_parts},
           {"test_head_backward_by_parts", test_head_backward_by_parts})
