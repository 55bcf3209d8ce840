/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <math.h>

#include "base/compiler.h"
#include "plan/divide.h"

static void check_near(double is, double want, double error)
{
    CHECK(fabs(is / want - 1) < error);
}

static struct weft_divide job(int32_t nodes, int32_t devices)
{
    int32_t all = nodes * devices;
    return (struct weft_divide){.seconds = {60, 10, 30},
                                .n_nodes = nodes,
                                .n_devices = devices,
                                .most = {all, all, all},
                                .n_groups = 64,
                                .n_samples = 512,
                                .instance = 1,
                                .slots = 16};
}

/* By hand, 8 devices of a node: each stage on its own, of three parts. */
static void test_divide_parts(void)
{
    struct weft_divide d = job(1, 8);
    int32_t n[3];
    /* 4 + 2 + 2: 120, 10 * 4 / 1.4, 30 * 4 / 1.4 seconds; turns take 100 */
    check_near(weft_divide(&d, n), 100, 1e-12);
    CHECK_INT(n[0] + n[1] + n[2], 0);
    /* no sample waits for a slot: generation by few devices costs nothing */
    d.slots = 256; /* 231 on each of 4 instances */
    double infer = 10 * 4 / 1.4, train = 30 * 4 / 1.4;
    check_near(weft_divide(&d, n),
               (60 + infer + train) / 64 + train * 63 / 64, 1e-12);
    CHECK(n[0] == 4 && n[1] == 2 && n[2] == 2);
    d.slots = 284; /* 256 on each: two instances will do */
    train = 30 * 2 / 1.2;
    check_near(weft_divide(&d, n), (60 + infer + train) / 64 + 60 * 63 / 64.0,
               1e-12);
    CHECK(n[0] == 2 && n[1] == 2 && n[2] == 4);
    d.n_groups = 1; /* nothing follows the first group */
    check_near(weft_divide(&d, n), 100, 1e-12);
    CHECK_INT(n[0] + n[1] + n[2], 0);
}

/* The published code's functions again, over all numbers of devices. */
static double brute_stage(const struct weft_divide *d, int stage, int n)
{
    double of = d->n_nodes * d->n_devices, scale = of / n;
    if (n == of)
        return d->seconds[stage];
    if (stage > 0) {
        double r = scale / 10 < 0.1 ? 0.1 : scale / 10;
        return d->seconds[stage] * scale / (1 + (r > 0.9 ? 0.9 : r));
    }
    int slots = d->slots < 128 ? d->slots : (9 * d->slots + 9) / 10;
    return d->seconds[0]
         * (n / d->instance * slots >= d->n_samples ? 1 : scale);
}

static bool brute_can(const struct weft_divide *d, int stage, int n)
{
    bool whole = n >= d->n_devices && n % d->n_devices == 0;
    bool part = n < d->n_devices
             && (n == 1 || n == 2 || n == 4 || n == 8 || n == 16);
    return (whole || part) && n <= d->most[stage]
        && (stage > 0 || n % d->instance == 0);
}

static double brute(const struct weft_divide *d)
{
    double best = d->seconds[0] + d->seconds[1] + d->seconds[2];
    int all = d->n_nodes * d->n_devices;
    for (int g = 1; g < all; g++)
        for (int i = 1; g + i + 2 <= all; i++) {
            int n[3] = {g, i, all - g - i};
            double sum = 0, most = 0;
            bool can = true;
            for (int k = 0; k < 3; k++) {
                double s = brute_stage(d, k, n[k]) / d->n_groups;
                can = can && brute_can(d, k, n[k]);
                sum += s;
                most = s > most ? s : most;
            }
            sum += most * (d->n_groups - 1);
            best = can && sum < best ? sum : best;
        }
    return best;
}

static void test_divide_brute(void)
{
    static const int32_t size[][2] = {{1, 2}, {1, 4}, {1, 8}, {2, 8},
                                      {5, 4}, {3, 6}, {1, 1}};
    int divided = 0;
    for (size_t k = 0; k < WEFT_COUNT(size); k++)
        for (int i = 0; i < 200; i++) {
            struct weft_divide d = job(size[k][0], size[k][1]);
            int32_t n[3];
            for (int s = 0; s < 3; s++) {
                d.seconds[s] = 1 + (i * (7 + 6 * s) + s) % 90;
                if (i % 3 == 0)
                    d.most[s] = 1 + (i / 3 + s) % d.most[s];
            }
            d.slots = 8 << i % 6;
            d.instance = 1 << i % 2;
            d.n_groups = 1 + i % 50;
            check_near(weft_divide(&d, n), brute(&d), 1e-9);
            divided += n[0] > 0;
            CHECK(n[0] == 0 || n[0] + n[1] + n[2] == size[k][0] * size[k][1]);
        }
    CHECK(divided > 100);
}

/* Without a stage the others have all. */
static void test_divide_fewer_stages(void)
{
    struct weft_divide d = job(2, 4);
    int32_t n[3];
    d.seconds[1] = 0;
    d.slots = 512;
    weft_divide(&d, n);
    CHECK_INT(n[1], 0);
    CHECK(n[0] == 4 && n[2] == 4);
    d.seconds[0] = 0; /* one stage alone has no other to be beside */
    check_near(weft_divide(&d, n), 30, 1e-12);
    CHECK_INT(n[0] + n[1] + n[2], 0);
}

WEFT_TESTS("plan/divide", {"parts", test_divide_parts},
           {"brute", test_divide_brute},
           {"fewer_stages", test_divide_fewer_stages})
