/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole layers against double loops, and the contract: a row's bits depend on
 * its own prefix only, gradients on the order of samples only.
 */
#include "kern/parts.h"
#include "layer_kinds.h"

/* ---- Against the oracle ------------------------------------------------- */

static double largest_error, largest_value;

static void compare(double *natural, float *flat)
{
    double e = fabs(*natural - (double) *flat);
    largest_error = e > largest_error || e != e ? e : largest_error;
    largest_value = fabs(*natural) > largest_value ? fabs(*natural)
                                                   : largest_value;
}

/* Relative to the largest value. f32: chains of up to 512 products, each
 * rounded to 2^-24, of numbers that cancel. bf16: inputs of every product
 * rounded to 2^-9, several products deep. */
static void check_close(const char *what, size_t kind, enum weft_dtype dtype)
{
    double bound = dtype == WEFT_F32 ? 5e-6 : 2e-2;
    bool ok = largest_error <= bound * largest_value;
    if (!ok)
        printf("\n    %s kind %zu %s %s: %g of %g", what, kind,
               weft_dtype_name(dtype), weft_k_isa_name(weft_k_isa()),
               largest_error, largest_value);
    CHECK(ok);
    largest_error = largest_value = 0;
}

static void check_rows(const char *what, size_t kind, enum weft_dtype dtype,
                       double *natural, float *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        compare(&natural[i], &rows[i]);
    check_close(what, kind, dtype);
}

/* The owner's rows are compared, replicas must have no gradient. */
static void check_gradients(struct fixture *f, size_t kind)
{
    const struct weft_shape *s = &f->s;
    for (int32_t t = 0; t < s->n_blocks; t++) {
        const struct weft_block *b = &s->block[t];
        struct weft_layout l;
        weft_layout_get(s, WEFT_TILE_LAYER, t, &l);
        const struct weft_part *p = weft_layout_part(&l, WEFT_PART_QKV);
        for (int32_t head = 0; head < 2 * b->n_kv; head++) {
            int32_t kv = b->kv0 + head % b->n_kv;
            if (weft_shape_kv_owner(s, kv) == t)
                continue;
            double *w = f->ref_grad.w[head < b->n_kv ? REF_K : REF_V];
            for (int64_t i = 0; i < s->head_dim; i++)
                for (int64_t k = 0; k < s->hidden; k++) {
                    int64_t row = (b->n_heads + head) * s->head_dim + i;
                    float *g =
                        &f->grad[t][p->offset + weft_flat_index(p, row, k)];
                    CHECK(*g == 0);
                    *g = (float) w[(kv * s->head_dim + i) * s->hidden + k];
                }
            p = weft_layout_part(&l, WEFT_PART_QKV_BIAS);
            w = f->ref_grad.w[head < b->n_kv ? REF_KB : REF_VB];
            for (int64_t i = 0; p && i < s->head_dim; i++) {
                float *g =
                    &f->grad[t][p->offset
                                + (size_t) ((b->n_heads + head) * s->head_dim
                                            + i)];
                CHECK(*g == 0);
                *g = (float) w[kv * s->head_dim + i];
            }
            p = weft_layout_part(&l, WEFT_PART_QKV);
        }
        ref_visit_block(s, t, &f->ref_grad, f->grad[t], compare);
        check_close("matrix gradients", kind, s->dtype);
    }
    ref_visit_norms(s, &f->ref_grad, f->grad_norms, compare);
    check_close("vector gradients", kind, s->dtype);
}

static void reference_of(size_t kind, enum weft_dtype dtype)
{
    static const int32_t length[] = {3, 65, 1, 64, 130};
    enum { N = 3 + 65 + 1 + 64 + 130 };
    struct fixture f;
    init_kind(&f, kind, dtype);
    int64_t h = f.s.hidden, n = N * h;
    struct fixture_batch batch;
    fixture_batch(&batch, 5, length);
    float *x = fixture_rows(1, n), *dx = fixture_rows(2, n);
    float *y = weft_alloc_aligned((size_t) n, sizeof *y);
    double *rx = ref_zeros(n), *ry = ref_zeros(n), *rdy = ref_zeros(n);
    double *rdx = ref_zeros(n);
    for (int64_t i = 0; i < n; i++) {
        rx[i] = x[i];
        rdy[i] = dx[i];
    }
    for (int64_t i = 0, at = 0; i < 5; at += length[i] * h, i++)
        ref_layer_run(&f.s, &f.ref, length[i], rx + at, ry + at, rdy + at,
                      rdx + at, &f.ref_grad);
    fixture_run(&f, &batch.b, x, y, dx, false);
    check_rows("y", kind, dtype, ry, y, n);
    check_rows("dx", kind, dtype, rdx, dx, n);
    check_gradients(&f, kind);
    /* The same without saving anything, in place. */
    fixture_run(&f, &batch.b, x, x, NULL, false);
    CHECK(memcmp(x, y, (size_t) n * sizeof *x) == 0);
    weft_free(x);
    weft_free(y);
    weft_free(dx);
    free(rx);
    free(ry);
    free(rdy);
    free(rdx);
    fixture_release(&f);
}

static void reference(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++) {
        reference_of(kind, WEFT_F32);
        reference_of(kind, WEFT_BF16);
    }
}

static void test_layer_matches_loops(void)
{
    each_isa(reference);
}

/* The oracle itself, by central differences in double. */
static void test_oracle_by_differences(void)
{
    enum { N = 6 };
    struct fixture f;
    init_kind(&f, 3, WEFT_F32);
    int64_t n = N * f.s.hidden;
    double *x = ref_zeros(n), *y = ref_zeros(n), *dy = ref_zeros(n);
    double *dx = ref_zeros(n);
    for (int64_t i = 0; i < n; i++) {
        x[i] = fixture_random(1, (uint32_t) i);
        dy[i] = fixture_random(2, (uint32_t) i);
    }
    ref_layer_run(&f.s, &f.ref, N, x, y, dy, dx, &f.ref_grad);
    for (int m = -1; m < REF_N; m++) {
        double *w = m < 0 ? x : f.ref.w[m];
        double *g = m < 0 ? dx : f.ref_grad.w[m];
        int64_t size = m < 0 ? n : f.ref.n[m] * f.ref.k[m];
        for (int64_t j = 0; size && j < 5; j++) {
            int64_t i = j * 7919 % size;
            double keep = w[i], loss[2] = {0, 0}, step = 1e-5;
            for (int side = 0; side < 2; side++) {
                w[i] = keep + (side ? step : -step);
                ref_layer_run(&f.s, &f.ref, N, x, y, NULL, NULL, NULL);
                for (int64_t k = 0; k < n; k++)
                    loss[side] += y[k] * dy[k];
            }
            w[i] = keep;
            CHECK(fabs((loss[1] - loss[0]) / (2 * step) - g[i])
                  < 1e-6 * (1 + fabs(g[i])));
        }
    }
    free(x);
    free(y);
    free(dy);
    free(dx);
    fixture_release(&f);
}

/* ---- Company ------------------------------------------------------------ */

enum { SAMPLES = 33 };

static int32_t length_of(int32_t sample)
{
    return sample == 5 ? 150 : sample == 9 ? 64 : 1 + sample * 7 % 23;
}

/* y and dx of every sample alone, then in batches of 1..33 whose order
 * changes. */
static void company_of(size_t kind, enum weft_dtype dtype, int32_t step)
{
    struct fixture f;
    init_kind(&f, kind, dtype);
    int64_t h = f.s.hidden, rows = 0, start[SAMPLES];
    for (int32_t i = 0; i < SAMPLES; i++) {
        start[i] = rows;
        rows += length_of(i);
    }
    float *x = fixture_rows(1, rows * h), *dy = fixture_rows(2, rows * h);
    float *y = weft_alloc_aligned((size_t) (rows * h), 4);
    float *dx = weft_alloc_aligned((size_t) (rows * h), 4);
    float *bx = weft_alloc_aligned((size_t) (rows * h), 4);
    float *by = weft_alloc_aligned((size_t) (rows * h), 4);
    float *bdx = weft_alloc_aligned((size_t) (rows * h), 4);
    memcpy(dx, dy, (size_t) (rows * h) * 4);
    struct fixture_batch batch;
    for (int32_t i = 0; i < SAMPLES; i++) {
        int32_t n = length_of(i);
        fixture_batch(&batch, 1, &n);
        fixture_run(&f, &batch.b, x + start[i] * h, y + start[i] * h,
                    dx + start[i] * h, false);
    }
    for (int32_t n = 1; n <= SAMPLES; n += step) {
        int32_t length[SAMPLES], sample[SAMPLES];
        int64_t at = 0;
        for (int32_t i = 0; i < n; i++) {
            sample[i] = (i * 10 + n * 3) % SAMPLES;
            length[i] = length_of(sample[i]);
            size_t bytes = (size_t) (length[i] * h) * 4;
            memcpy(bx + at * h, x + start[sample[i]] * h, bytes);
            memcpy(bdx + at * h, dy + start[sample[i]] * h, bytes);
            at += length[i];
        }
        fixture_batch(&batch, n, length);
        fixture_run(&f, &batch.b, bx, by, bdx, n % 2);
        at = 0;
        for (int32_t i = 0; i < n; i++) {
            size_t bytes = (size_t) (length[i] * h) * 4;
            int64_t from = start[sample[i]] * h;
            CHECK(memcmp(by + at * h, y + from, bytes) == 0);
            CHECK(memcmp(bdx + at * h, dx + from, bytes) == 0);
            at += length[i];
        }
    }
    float *all[] = {x, dy, y, dx, bx, by, bdx};
    for (size_t i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]);
    fixture_release(&f);
}

static void company(void)
{
    company_of(0, WEFT_F32, 8);
    company_of(0, WEFT_BF16, 8);
    company_of(3, WEFT_BF16, 16);
    company_of(4, WEFT_F32, 16);
}

static void test_rows_ignore_company(void)
{
    each_isa(company);
    company_of(2, WEFT_F32, 1);
}

/* Gradients of nine samples at once, or cut into micro-batches, kept or made
 * again: the same bits. */
static void cuts_of(size_t kind, enum weft_dtype dtype)
{
    static const int32_t length[9] = {5, 64, 1, 33, 2, 70, 7, 3, 129};
    static const int32_t cut[][9] = {
        {9}, {1, 8}, {4, 3, 2}, {1, 1, 1, 1, 1, 1, 1, 1, 1}};
    enum { N = 5 + 64 + 1 + 33 + 2 + 70 + 7 + 3 + 129 };
    struct fixture f;
    init_kind(&f, kind, dtype);
    int64_t h = f.s.hidden;
    float *x = fixture_rows(1, N * h), *dy = fixture_rows(2, N * h);
    float *y = weft_alloc_aligned((size_t) (N * h), 4);
    float *dx = weft_alloc_aligned((size_t) (N * h), 4);
    float *first[WEFT_MAX_BLOCKS + 1] = {NULL};
    for (size_t c = 0; c < WEFT_COUNT(cut); c++) {
        int64_t row = 0;
        fixture_zero_grad(&f);
        memcpy(dx, dy, (size_t) (N * h) * 4);
        for (int32_t i = 0, at = 0; at < 9; at += cut[c][i++]) {
            struct fixture_batch batch;
            fixture_batch(&batch, cut[c][i], length + at);
            fixture_run(&f, &batch.b, x + row * h, y, dx + row * h, i % 2);
            row += batch.b.n_rows;
        }
        for (int32_t t = 0; t <= f.s.n_blocks; t++) {
            bool norms = t == f.s.n_blocks;
            float *g = norms ? f.grad_norms : f.grad[t];
            size_t bytes = (norms ? f.n_norms : f.n_flat[t]) * 4;
            if (c == 0) {
                first[t] = malloc(bytes);
                memcpy(first[t], g, bytes);
            }
            CHECK(memcmp(first[t], g, bytes) == 0);
        }
    }
    for (int32_t t = 0; t <= f.s.n_blocks; t++)
        free(first[t]);
    weft_free(x);
    weft_free(y);
    weft_free(dx);
    weft_free(dy);
    fixture_release(&f);
}

/* Every kind with the best instruction set, every other one with the rest. */
static size_t kind_step(void)
{
    return weft_k_isa() == weft_k_isa_detect() ? 1 : 2;
}

static void cuts(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind += kind_step()) {
        cuts_of(kind, WEFT_F32);
        cuts_of(kind, WEFT_BF16);
    }
}

static void test_gradients_ignore_cuts(void)
{
    each_isa(cuts);
}

/* ---- Cache -------------------------------------------------------------- */

/* Two sequences through scattered pages in steps of `step` tokens, against
 * the forward pass of training. Pages are full of NaN before their use. */
static void decode_of(size_t kind, enum weft_dtype dtype, int32_t step)
{
    enum { PAGES = 8, PER_SLOT = 4, LAYERS = 2, LAYER = 1 };
    static const int32_t length[2] = {200, 131};
    static const int32_t page[2 * PER_SLOT] = {6, 1, 7, 3, 2, 5, 0, 4};
    struct fixture f;
    init_kind(&f, kind, dtype);
    int64_t h = f.s.hidden, n = (length[0] + length[1]) * h;
    float *x = fixture_rows(1, n), *y = weft_alloc_aligned((size_t) n, 4);
    struct fixture_batch batch;
    fixture_batch(&batch, 2, length);
    fixture_run(&f, &batch.b, x, y, NULL, false);
    struct weft_k_kv kv = {.page_bytes = weft_k_kv_page_bytes(&f.s, LAYERS),
                           .page = page,
                           .pages_per_slot = PER_SLOT};
    kv.arena = weft_alloc_aligned(PAGES, kv.page_bytes);
    memset(kv.arena, 0xff, PAGES * kv.page_bytes);
    float *bx = weft_alloc_aligned((size_t) n, 4);
    for (int32_t pos = 0; pos < length[0]; pos += step) {
        batch = (struct fixture_batch){.b = {.run = batch.run}};
        for (int32_t slot = 1; slot >= 0; slot--) {
            int32_t m = length[slot] - pos < step ? length[slot] - pos : step;
            if (m <= 0)
                continue;
            memcpy(bx + batch.b.n_rows * h,
                   x + ((slot ? length[0] : 0) + pos) * h,
                   (size_t) (m * h) * 4);
            batch.run[batch.b.n_runs++] = (struct weft_k_run){
                .slot = slot, .pos = pos, .n = m};
            batch.b.n_rows += m;
        }
        void *scratch = weft_alloc_aligned(
            weft_k_layer_forward_scratch_bytes(&f.s, &batch.b), 1);
        weft_k_layer_forward(&f.s, &f.w, LAYER, &batch.b, &kv, bx, bx, NULL,
                             scratch);
        weft_free(scratch);
        int64_t at = 0;
        for (int32_t i = 0; i < batch.b.n_runs; i++) {
            const struct weft_k_run *run = &batch.run[i];
            CHECK(memcmp(bx + at, y + ((run->slot ? length[0] : 0) + pos) * h,
                         (size_t) (run->n * h) * 4)
                  == 0);
            at += run->n * h;
        }
    }
    weft_free(kv.arena);
    weft_free(x);
    weft_free(y);
    weft_free(bx);
    fixture_release(&f);
}

static void decode(void)
{
    static const int32_t step[] = {1, 7, 64, 100, 200};
    for (size_t i = 0; i < WEFT_COUNT(step); i++)
        for (size_t kind = 0; kind < WEFT_COUNT(kinds);
             kind += kind_step() + i / 2) {
            decode_of(kind, WEFT_F32, step[i]);
            decode_of(kind, WEFT_BF16, step[i]);
        }
}

static void test_decode_is_training(void)
{
    each_isa(decode);
}

static void test_page_bytes(void)
{
    struct fixture f;
    init_kind(&f, 3, WEFT_BF16); /* blocks hold 1, 2, 2, 1 KV heads of 24 */
    CHECK_INT(weft_k_kv_page_bytes(&f.s, 3), 3 * 6 * 2 * 24 * 64 * 2);
    fixture_release(&f);
}

/* ---- Replicas ----------------------------------------------------------- */

static void to_natural(double *natural, float *flat)
{
    *natural = (double) *flat;
}

/* By chunks, some at a time: what a chunk yields depends on it alone. */
static double sum_squares(const struct weft_shape *s, int32_t t,
                          const float *grad)
{
    struct weft_layout l;
    double sum = 0;
    weft_layout_get(s, WEFT_TILE_LAYER, t, &l);
    int32_t n = weft_layout_n_chunks(&l);
    double *all = calloc((size_t) n, sizeof *all), some[3];
    REQUIRE(all != NULL && n > 3);
    weft_k_chunk_squares(s, WEFT_TILE_LAYER, t, (struct weft_range){0, n},
                         grad, all);
    for (int32_t i = 0; i < n; i++) {
        struct weft_range at = {i, n - i < 3 ? n - i : 3};
        weft_k_chunk_squares(s, WEFT_TILE_LAYER, t, at,
                             grad + weft_layout_chunk(&l, i), some);
        CHECK(memcmp(all + i, some, (size_t) at.n * sizeof *some) == 0);
        sum += all[i];
    }
    free(all);
    return sum;
}

static void test_share_kv(void)
{
    for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++) {
        struct fixture f;
        init_kind(&f, kind, WEFT_F32);
        for (int32_t t = 0; t < f.s.n_blocks; t++)
            for (size_t i = 0; i < f.n_flat[t]; i++)
                f.grad[t][i] = (float) fixture_random(50 + (uint32_t) t,
                                                      (uint32_t) i);
        /* Owners last, so that theirs is what natural order holds. */
        for (int32_t t = f.s.n_blocks - 1; t >= 0; t--)
            ref_visit_block(&f.s, t, &f.ref_grad, f.grad[t], to_natural);
        double sum = 0, got[2] = {0, 0};
        for (int m = 0; m < REF_OB; m++)
            for (int64_t i = 0; i < f.ref.n[m] * f.ref.k[m]; i++)
                sum += f.ref_grad.w[m][i] * f.ref_grad.w[m][i];
        /* Numbers behind the padding would count: clear them. */
        for (int32_t t = 0; t < f.s.n_blocks; t++) {
            float *copy = calloc(f.n_flat[t], sizeof *copy);
            memcpy(f.master[t], f.grad[t], f.n_flat[t] * 4);
            ref_visit_block(&f.s, t, &f.ref, f.master[t], to_natural);
            ref_visit_block(&f.s, t, &f.ref, copy, fixture_to_flat);
            memcpy(f.grad[t], copy, f.n_flat[t] * 4);
            free(copy);
            got[0] += sum_squares(&f.s, t, f.grad[t]);
        }
        weft_k_share_range(&f.s, weft_all_blocks(&f.s), f.grad);
        for (int32_t t = 0; t < f.s.n_blocks; t++) {
            got[1] += sum_squares(&f.s, t, f.grad[t]);
            ref_visit_block(&f.s, t, &f.ref_grad, f.grad[t], compare);
            CHECK(largest_error == 0);
            CHECK(largest_value > 1);
            largest_error = largest_value = 0;
        }
        CHECK(fabs(got[0] - sum) < 1e-6 * sum);
        CHECK(got[1] == got[0]);
        fixture_release(&f);
    }
}

WEFT_TESTS("kern/layer",
           {"test_layer_matches_loops", test_layer_matches_loops},
           {"test_oracle_by_differences", test_oracle_by_differences},
           {"test_rows_ignore_company", test_rows_ignore_company},
           {"test_gradients_ignore_cuts", test_gradients_ignore_cuts},
           {"test_decode_is_training", test_decode_is_training},
           {"test_page_bytes", test_page_bytes},
           {"test_share_kv", test_share_kv})
