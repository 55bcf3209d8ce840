/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-batches are packed: whole samples, one after another, up to a number
 * of tokens, and no row of padding; how they are packed changes no bit. */
#include "run_fixture.h"

#include "plan/recording.h"

enum { ROWS = 24, BATCH = 12, HIDDEN = 64, MOST = 64 };

static struct fixture fixture;

/* Tokens of a row: bytes of prompt and response, and the end of the text. */
static int32_t length_of(int i)
{
    return 1 + (i * 7) % 13 + 1 + (i * i * 11) % 120 + 1;
}

static void test_make(void)
{
    static const char yaml[] = "algorithm: sft\n"
                               "iterations: 2\n"
                               "data: {path: rows.jsonl, shuffle: false}\n"
                               "model: {actor: model}\n"
                               "actor: {lr: 1e-3}\n"
                               "train: {batch: 12}\n"
                               "numerics: {gradient_groups: 1}\n"
                               "runtime: {devices: 1}\n"
                               "checkpoint: {every: 0, dtype: f32}\n";
    struct weft_err err;
    char path[512];
    fixture_make(&fixture);
    REQUIRE_OK(weft_file_write(fixture.config, yaml, sizeof yaml - 1, &err),
               err);
    snprintf(path, sizeof path, "%s/rows.jsonl", fixture.dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < ROWS; i++) {
        int prompt = 1 + (i * 7) % 13, response = length_of(i) - prompt - 1;
        fprintf(f, "{\"prompt\": \"");
        for (int k = 0; k < prompt; k++)
            fputc('a' + (i + k) % 26, f);
        fprintf(f, "\", \"completion\": \"");
        for (int k = 0; k < response; k++)
            fputc('A' + (i * k) % 26, f);
        fprintf(f, "\"}\n");
    }
    fclose(f);
}

/* The rows of each micro-batch of the run, as its first layer's input has
 * them; returns how many. */
static int rows_recorded(const struct weft_recording *r, int32_t *rows)
{
    int n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        if (strcmp(weft_recording_op(r, i), "embed") != 0)
            continue;
        const struct weft_rec_access *a = &r->access[t->access];
        for (int32_t k = 0; k < t->n_access; k++)
            if (a[k].mode == WEFT_WRITE && n < MOST)
                rows[n++] = (int32_t) (r->tile[a[k].tile].bytes
                                       / (HIDDEN * sizeof(float)));
    }
    return n;
}

/* The same by hand: the next sample opens a micro-batch if it does not fit. */
static int rows_expected(int32_t budget, int32_t *rows)
{
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        if (i % BATCH == 0 || rows[n - 1] + length_of(i) > budget)
            rows[n++] = 0;
        rows[n - 1] += length_of(i);
    }
    return n;
}

static struct weft_hash run(const char *name, const char *word,
                            int32_t budget)
{
    const char *const words[] = {word, NULL};
    static const char *const file[] = {"actor/model",
                                       "optimizer/actor/exp_avg",
                                       "optimizer/actor/exp_avg_sq"};
    int32_t found[MOST], wanted[MOST];
    double n_first = 0, n_last = 0, each = 0;
    struct weft_recording log;
    weft_recording_init(&log);
    struct weft_trainer *t = fixture_open_logged(&fixture, name, words, &log);
    fixture_steps(t, 1);
    CHECK_INT(weft_trainer_metric(t, "perf/micro_batches", &n_first), 0);
    fixture_steps(t, 1);
    CHECK_INT(weft_trainer_metric(t, "perf/micro_batches", &n_last), 0);
    CHECK_INT(weft_trainer_metric(t, "perf/tokens_per_micro_batch", &each),
              0);
    weft_trainer_close(t);
    int n = rows_recorded(&log, found), longest = 0;
    int64_t sum = 0, tokens = 0, second = 0;
    for (int k = 0; k < n; k++)
        sum += found[k];
    for (int i = 0; i < ROWS; i++) {
        tokens += length_of(i);
        second += i < BATCH ? 0 : length_of(i);
        longest = length_of(i) > longest ? length_of(i) : longest;
    }
    CHECK_INT(sum, tokens); /* no row of padding */
    CHECK(each * n_last == (double) second);
    CHECK((int) (n_first + n_last) == n);
    for (int k = 0; budget && k < n; k++)
        CHECK(found[k] <= (budget > longest ? budget : longest));
    if (budget) {
        CHECK_INT(n, rows_expected(budget, wanted));
        CHECK(memcmp(found, wanted, (size_t) n * sizeof *found) == 0);
    }
    printf("\n    %s: %d micro-batches, %d rows; padded to the longest "
           "they were %d",
           word, n, (int) sum, ROWS * longest);
    weft_recording_release(&log);
    return fixture_hash_of(&fixture, name, 2, 3, file);
}

static void test_packing(void)
{
    static const struct {
        const char *word;
        int32_t budget;
    } pack[] = {{"train.micro_batch_tokens=1", 1}, /* a sample each */
                {"train.micro_batch_tokens=100", 100},
                {"train.micro_batch_tokens=250", 250},
                {"train.micro_batch_tokens=100000", 100000},
                {"train.micro_batches=3", 0}};
    struct weft_hash first = {0};
    for (size_t i = 0; i < WEFT_COUNT(pack); i++) {
        char name[32];
        snprintf(name, sizeof name, "pack-%zu", i);
        struct weft_hash h = run(name, pack[i].word, pack[i].budget);
        if (i == 0)
            first = h;
        CHECK(weft_hash_equal(h, first));
    }
    printf("\n    ");
}

static void test_remove(void)
{
    fixture_remove(&fixture);
}

WEFT_TESTS("run/packing", {"make", test_make}, {"packing", test_packing},
           {"remove", test_remove})
