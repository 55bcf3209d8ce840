/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embeddings: angles against the C library, tables, rotation. */
#include "layer_fixture.h"

#include "kern/layer.h"
#include "kern/rope_angles.h"
#include "kern/rows.h"

static struct weft_shape shape_of(enum weft_rope rope, int32_t d)
{
    return (struct weft_shape){.head_dim = d,
                               .rope = rope,
                               .rope_theta = 500000,
                               .rope_factor = rope == WEFT_ROPE_DEFAULT ? 1
                                                                        : 8,
                               .rope_low = 1,
                               .rope_high = 4,
                               .rope_original = 8192,
                               .n_blocks = 1};
}

static void test_frequencies(void)
{
    static const int32_t d[] = {2, 10, 24, 64, 128};
    for (int rope = 0; rope <= WEFT_ROPE_LLAMA3; rope++)
        for (size_t i = 0; i < WEFT_COUNT(d); i++) {
            struct weft_shape s = shape_of((enum weft_rope) rope, d[i]);
            float f[64];
            weft_rope_frequencies(&s, f);
            for (int32_t j = 0; j < d[i] / 2; j++) {
                double expect = ref_frequency(&s, j);
                CHECK(fabs((double) f[j] - expect) <= 6e-8 * expect);
            }
        }
}

/* Llama 3.1's parameters: the longest wave is stretched by 8, the shortest
 * kept, and some lie between. */
static void test_llama3_bands(void)
{
    struct weft_shape s = shape_of(WEFT_ROPE_LLAMA3, 128);
    struct weft_shape plain = shape_of(WEFT_ROPE_DEFAULT, 128);
    float f[64], p[64];
    int between = 0;
    weft_rope_frequencies(&s, f);
    weft_rope_frequencies(&plain, p);
    CHECK(f[0] == p[0]);
    CHECK(fabsf(f[63] * 8 / p[63] - 1) < 1e-6f);
    for (int j = 0; j < 64; j++)
        between += f[j] < p[j] * 0.999f && f[j] > p[j] / 8 * 1.001f;
    CHECK(between >= 4);
}

static void test_angles(void)
{
    static const int64_t position[] = {0,  1,   2,    3,      63,
                                       64, 511, 8191, 131071, 1000000};
    struct weft_shape s = shape_of(WEFT_ROPE_DEFAULT, 64);
    float f[32], got[64];
    weft_rope_frequencies(&s, f);
    for (size_t i = 0; i < WEFT_COUNT(position); i++) {
        weft_rope_angles(64, f, position[i], got);
        for (int j = 0; j < 32; j++) {
            double angle = (double) position[i] * (double) f[j];
            /* half a unit of f32, plus the reduction's 1e-10 */
            CHECK(fabs((double) got[j] - cos(angle)) < 3.1e-8);
            CHECK(fabs((double) got[32 + j] - sin(angle)) < 3.1e-8);
        }
    }
}

/* Vectors of every length have the bits of a single angle. */
static void vectors_of_angles(void)
{
    static const int64_t position[] = {0, 1, 7, 12345, 999983};
    float f[67], cos[67], sin[67];
    for (int i = 0; i < 67; i++)
        f[i] = 1 / (1 + (float) i * 0.37f);
    for (size_t p = 0; p < WEFT_COUNT(position); p++)
        for (int n = 1; n <= 67; n++) {
            int bad = 0;
            weft_row_ops()->angles(n, f, position[p], cos, sin);
            for (int i = 0; i < n; i++) {
                float c, s;
                weft_rope_angle(f[i], position[p], &c, &s);
                bad += memcmp(&c, &cos[i], 4) || memcmp(&s, &sin[i], 4);
            }
            CHECK_INT(bad, 0);
        }
}

static void test_vectors_of_angles(void)
{
    each_isa(vectors_of_angles);
}

/* A run's rows have the angles of their positions, whatever else is there. */
static void test_table(void)
{
    struct weft_shape s = shape_of(WEFT_ROPE_DEFAULT, 10);
    struct weft_k_run run[] = {{0, 5, 3}, {0, 0, 4}, {0, 0, 9}, {0, 100, 1}};
    struct weft_k_batch batch = {17, 4, run, NULL, NULL};
    struct weft_rope_table table;
    struct weft_arena arena = {0};
    weft_rope_table_at(&s, 17, 4, &arena, &table);
    void *memory = weft_alloc_aligned(arena.used, 1);
    arena = (struct weft_arena){.base = memory};
    weft_rope_table_at(&s, 17, 4, &arena, &table);
    weft_rope_table_fill(&s, &batch, &table);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < run[i].n; j++) {
            float expect[10];
            weft_rope_angles(10, table.frequency, run[i].pos + j, expect);
            CHECK(memcmp(table.cos_sin + (table.first[i] + j) * 10, expect,
                         sizeof expect)
                  == 0);
        }
    CHECK_INT(table.first[1], table.first[2]);
    weft_free(memory);
}

static void rotations(void)
{
    static const int32_t dims[] = {2, 10, 16, 24, 64, 80, 128};
    for (size_t i = 0; i < WEFT_COUNT(dims); i++) {
        enum { HEADS = 3 };
        int32_t d = dims[i];
        struct weft_shape s = shape_of(WEFT_ROPE_DEFAULT, d);
        float f[64], angle[128];
        float *x = fixture_rows(1, HEADS * d),
              *y = fixture_rows(1, HEADS * d);
        weft_rope_frequencies(&s, f);
        weft_rope_angles(d, f, 77, angle);
        weft_row_ops()->rope(HEADS, d, angle, false, y);
        for (int32_t h = 0; h < HEADS; h++)
            for (int32_t j = 0; j < d / 2; j++) {
                double t = 77 * (double) f[j];
                double a = x[h * d + j], b = x[h * d + d / 2 + j];
                CHECK(fabs((double) y[h * d + j] - (a * cos(t) - b * sin(t)))
                      < 1e-6);
                CHECK(fabs((double) y[h * d + d / 2 + j]
                           - (b * cos(t) + a * sin(t)))
                      < 1e-6);
            }
        weft_row_ops()->rope(HEADS, d, angle, true, y);
        for (int32_t j = 0; j < HEADS * d; j++)
            CHECK(fabsf(x[j] - y[j]) < 1e-6f);
        weft_free(x);
        weft_free(y);
    }
}

static void test_rotation(void)
{
    each_isa(rotations);
}

WEFT_TESTS("kern/rope", {"test_frequencies", test_frequencies},
           {"test_llama3_bands", test_llama3_bands},
           {"test_angles", test_angles},
           {"test_vectors_of_angles", test_vectors_of_angles},
           {"test_table", test_table}, {"test_rotation", test_rotation})
