/* SPDX-License-Identifier: Apache-2.0 */
/* Digests against hashes of the numbers beside them, metrics and samples. */
#include "run_fixture.h"

#include <inttypes.h>
#include <jansson.h>

#include "run/digest.h"

static struct fixture fixture;

enum { N = 12, ITERATIONS = 2, STEPS = 4 /* 2 epochs of 2 */ };

static json_t *run(const char *name, const char *digest, double *norm_out)
{
    const char *word[] = {digest, "iterations=2", NULL};
    char run_dir[512];
    struct weft_trainer *t = fixture_open(&fixture, name, word);
    fixture_steps(t, ITERATIONS);
    REQUIRE(weft_trainer_metric(t, "actor/grad_norm", norm_out) == 0);
    weft_trainer_close(t);
    snprintf(run_dir, sizeof run_dir, "%s/%s", fixture.dir, name);
    char *path = weft_digest_path(run_dir, ITERATIONS);
    json_t *o = json_load_file(path, 0, NULL);
    free(path);
    REQUIRE(o != NULL);
    CHECK_INT(json_integer_value(json_object_get(o, "iteration")),
              ITERATIONS);
    return o;
}

static json_t *sample_of(const json_t *o, const char *column,
                         const char *list, size_t i)
{
    json_t *all = json_object_get(json_object_get(o, column), list);
    CHECK_INT(json_array_size(all), N);
    return json_array_get(all, i);
}

/* The digest of a sample's numbers as printed. */
static uint64_t hash_values(const json_t *list, bool tokens, uint32_t *bits)
{
    size_t n = json_array_size(list);
    REQUIRE(n > 0 && n < 512);
    for (size_t k = 0; k < n; k++) {
        const json_t *v = json_array_get(list, k);
        float x = (float) json_number_value(v);
        if (tokens)
            bits[k] = (uint32_t) json_integer_value(v);
        else
            memcpy(&bits[k], &x, sizeof x);
    }
    return weft_hash64(bits, n * 4);
}

static void check_hex(const json_t *found, uint64_t expected)
{
    char digits[20];
    snprintf(digits, sizeof digits, "%016" PRIx64, expected);
    CHECK_STR(json_string_value(found), digits);
}

/* Mean of the norms, as the metric has it. */
static double mean_of(const json_t *norms)
{
    double sum = 0, x;
    CHECK_INT(json_array_size(norms), STEPS);
    for (size_t k = 0; k < json_array_size(norms); k++) {
        uint64_t bits = strtoull(json_string_value(json_array_get(norms, k)),
                                 NULL, 16);
        memcpy(&x, &bits, sizeof x);
        sum += x;
    }
    return sum / STEPS;
}

static void test_digest_values(void)
{
    static uint32_t all[N * 512], bits[512];
    double norm, norm2;
    fixture_make(&fixture);
    json_t *values = run("values", "digest=values", &norm);
    json_t *hashes = run("hashes", "digest=true", &norm2);
    CHECK(norm == norm2);
    for (int c = 0; weft_digest_column(c); c++) {
        const char *name = weft_digest_column(c);
        size_t n_all = 0;
        for (size_t i = 0; i < N; i++) {
            const json_t *list = sample_of(values, name, "values", i);
            size_t n = json_array_size(list);
            size_t n_tokens = json_array_size(
                sample_of(values, "tokens", "values", i));
            CHECK(c == 0 || n < n_tokens); /* the response alone */
            check_hex(sample_of(hashes, name, "samples", i),
                      hash_values(list, c == 0, bits));
            memcpy(all + n_all, bits, n * 4);
            n_all += n;
        }
        json_t *a = json_object_get(json_object_get(values, name), "all");
        check_hex(a, weft_hash64(all, n_all * 4));
        CHECK(json_equal(
            a, json_object_get(json_object_get(hashes, name), "all")));
    }
    CHECK(mean_of(json_object_get(values, "actor_grad_norms")) == norm);
    CHECK(json_equal(json_object_get(values, "critic_grad_norms"),
                     json_object_get(hashes, "critic_grad_norms")));
    json_decref(values);
    json_decref(hashes);
}

/* A run without a reference has no column for it; without the key, nothing
 * is written. */
static void test_digest_absent(void)
{
    double norm;
    char path[512];
    const char *off[] = {"iterations=1", NULL};
    const char *no_kl[] = {"iterations=1", "digest=true", "ppo.kl.place=none",
                           "ppo.kl.controller=fixed", NULL};
    struct weft_trainer *t = fixture_open(&fixture, "off", off);
    fixture_steps(t, 1);
    weft_trainer_close(t);
    snprintf(path, sizeof path, "%s/off/digests", fixture.dir);
    CHECK(!weft_dir_exists(path));
    t = fixture_open(&fixture, "no-kl", no_kl);
    fixture_steps(t, 1);
    REQUIRE(weft_trainer_metric(t, "actor/grad_norm", &norm) == 0);
    weft_trainer_close(t);
    snprintf(path, sizeof path, "%s/no-kl/digests/000001.json", fixture.dir);
    json_t *o = json_load_file(path, 0, NULL);
    REQUIRE(o != NULL);
    CHECK(json_object_get(o, "tokens") && json_object_get(o, "values"));
    CHECK(!json_object_get(o, "ref_logprobs"));
    CHECK(mean_of(json_object_get(o, "actor_grad_norms")) == norm);
    json_decref(o);
    fixture_remove(&fixture);
}

WEFT_TESTS("run/digest", {"test_digest_values", test_digest_values},
           {"test_digest_absent", test_digest_absent})
