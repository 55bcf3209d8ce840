/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the cases of tests/data/ppo/ppo.txt (made by make_ppo_goldens.py) and
 * of other files in its form. */
#ifndef WEFT_TESTS_PPO_GOLDEN_H
#define WEFT_TESTS_PPO_GOLDEN_H

#include "tests/harness.h"

enum { GOLDEN_MAX_N = 64, GOLDEN_MAX_KEYS = 24 };

struct golden {
    char kind[16], name[32];
    int n, n_keys;
    char key[GOLDEN_MAX_KEYS][16];
    double value[GOLDEN_MAX_KEYS][GOLDEN_MAX_N];
};

/* The next case of a kind; false at the end of the file. */
static inline bool golden_next(FILE *f, const char *kind, struct golden *g)
{
    while (fscanf(f, "%15s %31s %d", g->kind, g->name, &g->n) == 3) {
        REQUIRE(g->n >= 1 && g->n <= GOLDEN_MAX_N);
        for (g->n_keys = 0;; g->n_keys++) {
            REQUIRE(g->n_keys < GOLDEN_MAX_KEYS);
            REQUIRE(fscanf(f, "%15s", g->key[g->n_keys]) == 1);
            if (strcmp(g->key[g->n_keys], "end") == 0)
                break;
            int i = 0;
            while (i < g->n && fscanf(f, "%lf", &g->value[g->n_keys][i]) == 1)
                if (i++ == 0) { /* a single number ends the line */
                    int c = getc(f);
                    if (c == '\n')
                        break;
                }
        }
        if (strcmp(g->kind, kind) == 0)
            return true;
    }
    return false;
}

static inline const double *golden_get(const struct golden *g,
                                       const char *key)
{
    for (int i = 0; i < g->n_keys; i++)
        if (strcmp(g->key[i], key) == 0)
            return g->value[i];
    CU_FAIL_FATAL("the golden file lacks a key");
    return NULL;
}

static inline float golden_number(const struct golden *g, const char *key)
{
    return (float) golden_get(g, key)[0];
}

static inline void golden_row(const struct golden *g, const char *key,
                              float *row)
{
    const double *v = golden_get(g, key);
    for (int i = 0; i < g->n; i++)
        row[i] = (float) v[i];
}

/* |actual - expected| <= tolerance * (1 + |expected|), and says where not. */
static inline void golden_near(const struct golden *g, const char *what,
                               double actual, double expected,
                               double tolerance)
{
    double size = expected < 0 ? -expected : expected;
    double miss = actual < expected ? expected - actual : actual - expected;
    bool near = miss <= tolerance * (1 + size);
    if (!near)
        printf("\n    %s: %s is %.9g, expected %.9g\n", g->name, what, actual,
               expected);
    CHECK(near);
}

/* The same with a tolerance that is relative alone, down to numbers that a
 * float hardly holds. */
static inline void golden_relative(const struct golden *g, const char *what,
                                   double actual, double expected,
                                   double tolerance)
{
    double size = expected < 0 ? -expected : expected;
    golden_near(g, what, actual, expected,
                (tolerance * size + 1e-37) / (1 + size));
}

static inline FILE *golden_open_file(const char *path)
{
    FILE *f = fopen(weft_test_data(path), "r");
    REQUIRE(f != NULL);
    return f;
}

static inline FILE *golden_open(void)
{
    return golden_open_file("ppo/ppo.txt");
}

#endif
