/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole iterations of PPO against PyTorch: every number of
 * tests/data/ppo/iterations.txt, which make_iterations.py beside it computed
 * in float64 from the definitions, for one run and for variations of it in
 * every key that changes numbers. algorithms.txt and make_algorithms.py are
 * the same for the algorithms without a critic.
 */
#include "run_fixture.h"

#include <jansson.h>
#include <math.h>

#include "base/alloc.h"
#include "model/safetensors.h"
#include "kern/kern.h"
#include "config/keys.h"
#include "job/run_config.h"
#include "run/digest.h"

/* |found - expected| <= TOLERANCE (1 + |expected|). Rounding to f32 (6e-8)
 * is enlarged by products of some hundred terms, by the division by Adam's
 * root, which is as small as 1e-4, and by up to 12 steps that build on one
 * another; largest seen: 2.1e-5. The maker refuses runs that come as near as
 * 2e-6 to another token or another branch of a loss. */
static const double TOLERANCE = 1e-4;

static const char yaml[] =
    "run_dir: unset\n"
    "data: {path: prompts.jsonl}\n"
    "model: {actor: actor, reference: reference}\n"
    "reward:\n"
    "- {type: callback, name: rule, weight: 0.5}\n"
    "- {type: model, name: model, model: reward, weight: 0.2}\n"
    "runtime: {devices: 1}\n"
    "checkpoint: {every: 0}\n"
    "samples_kept: -1\n"
    "digest: values\n";

enum { MAX_WORDS = 64, MAX_NUMBERS = 512, MAX_TAG = 80 };

struct number {
    int iteration;
    char tag[MAX_TAG];
    double value;
    bool absent; /* the run must not have it */
};

struct run {
    char word[MAX_WORDS][MAX_TAG];
    int n_words;
    struct number number[MAX_NUMBERS];
    int n_numbers;
};

/* ---- The goldens ------------------------------------------------------ */

static void add_word(struct run *r, const char *word)
{
    REQUIRE(r->n_words < MAX_WORDS && strlen(word) < MAX_TAG);
    strcpy(r->word[r->n_words++], word);
}

/* "iteration tag number", in place of the first run's. */
static void add_number(struct run *r, const char *line)
{
    struct number x;
    char value[40];
    REQUIRE(sscanf(line, "%d %79s %39s", &x.iteration, x.tag, value) == 3);
    x.absent = strcmp(value, "-") == 0;
    x.value = x.absent ? 0 : strtod(value, NULL);
    int at = 0;
    while (at < r->n_numbers
           && (r->number[at].iteration != x.iteration
               || strcmp(r->number[at].tag, x.tag) != 0))
        at++;
    REQUIRE(at < MAX_NUMBERS);
    r->number[at] = x;
    r->n_numbers += at == r->n_numbers;
}

/* The file's next run; `first` NULL: this is the first. */
static bool next_run(FILE *f, const struct run *first, struct run *out)
{
    static char line[4096];
    if (!fgets(line, sizeof line, f))
        return false;
    REQUIRE(strncmp(line, "run", 3) == 0);
    memset(out, 0, sizeof *out);
    if (first) {
        *out = *first;
        out->n_numbers = 0;
        for (int i = 0; i < first->n_numbers; i++)
            if (strncmp(first->number[i].tag, "weights/", 8) != 0)
                out->number[out->n_numbers++] = first->number[i];
    }
    for (char *w = strtok(line + 3, " \n"); w; w = strtok(NULL, " \n"))
        add_word(out, w);
    for (int c; (c = getc(f)) != EOF && c != 'r';) {
        ungetc(c, f);
        REQUIRE(fgets(line, sizeof line, f) != NULL);
        add_number(out, line);
    }
    if (!feof(f))
        ungetc('r', f);
    return true;
}

/* ---- The runs --------------------------------------------------------- */

static struct fixture fixture;

static int rule(void *ctx, const struct weft_reward_sample *s,
                double *score_out, struct weft_err *err)
{
    (void) ctx;
    (void) err;
    int mixed = ((s->label.s[0] - '0') * 7 + (int) s->n_tokens * 3) % 11;
    *score_out = mixed / 5.0 - 1 + (s->ended ? 0.5 : 0);
    return 0;
}

static void make(void)
{
    static const char *const prompt[] = {"a",  "bee",      "the sea",
                                         "to", "zero one", "xyz"};
    struct weft_err err;
    char path[512];
    fixture_make_folder(&fixture);
    REQUIRE(chdir(fixture.dir) == 0); /* words have paths */
    fixture_make_model(&fixture, "actor", 3, false, false, "bytes");
    fixture_make_model(&fixture, "reference", 4, false, false, "bytes");
    fixture_make_model(&fixture, "critic", 5, true, false, "bytes");
    fixture_make_model(&fixture, "reward", 6, true, false, NULL);
    fixture_make_model(&fixture, "tied", 9, false, true, "bytes");
    snprintf(path, sizeof path, "%s/prompts.jsonl", fixture.dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (size_t i = 0; i < WEFT_COUNT(prompt); i++)
        fprintf(f, "{\"prompt\": \"%s\", \"label\": \"%zu\"}\n", prompt[i],
                i);
    fclose(f);
    snprintf(fixture.config, sizeof fixture.config, "%s/run.yaml",
             fixture.dir);
    REQUIRE_OK(weft_file_write(fixture.config, yaml, sizeof yaml - 1, &err),
               err);
}

static int n_opened;

/* The last word wins; NULL: no word sets the key. */
static const char *find_value(const struct run *r, const char *key)
{
    const char *value = NULL;
    size_t n = strlen(key);
    for (int i = 0; i < r->n_words; i++)
        if (strncmp(r->word[i], key, n) == 0 && r->word[i][n] == '=')
            value = r->word[i] + n + 1;
    return value;
}

static const char *value_of(const struct run *r, const char *key)
{
    const char *value = find_value(r, key);
    REQUIRE(value != NULL);
    return value;
}

/* Opens the run with up to four words more; its folder's name into `dir`. */
static struct weft_trainer *open_run(const struct run *r,
                                     const char *const *more, char dir[600])
{
    struct weft_err err;
    char run_dir[640];
    const char *word[MAX_WORDS + 8] = {run_dir};
    int n = 1;
    struct weft_trainer *t = NULL;
    snprintf(dir, 600, "%s/run-%d", fixture.dir, n_opened++);
    snprintf(run_dir, sizeof run_dir, "run_dir=%s", dir);
    if (!find_value(r, "algorithm")) /* PPO */
        word[n++] = "model.critic=critic";
    for (int i = 0; i < r->n_words; i++)
        word[n++] = r->word[i];
    for (; more && *more; more++)
        word[n++] = *more;
    REQUIRE_OK(weft_trainer_open(fixture.config, n, word, &t, &err), err);
    weft_trainer_set_reward(t, rule, NULL);
    return t;
}

/* ---- Comparing -------------------------------------------------------- */

/* Of many numbers: their size and direction. */
struct probe {
    double squares, sum;
    int64_t n;
};

static void probe_add(struct probe *p, double x)
{
    p->squares += x * x;
    p->sum += x * cos(0.7 * (double) p->n++ + 0.3);
}

static double worst;
static struct weft_key_list keys;

static int n_bad;
static const char *what; /* the run, for messages */

static void compare(const struct number *x, bool found, double value)
{
    double miss = fabs(value - x->value) / (1 + fabs(x->value));
    bool good = found != x->absent && (!found || miss <= TOLERANCE);
    if (found && !x->absent && !(miss <= worst))
        worst = miss;
    if (!good)
        printf("\n    %s: iteration %d: %s is %s%.9g, expected %s%.9g", what,
               x->iteration, x->tag, found ? "" : "absent ", value,
               x->absent ? "absent " : "", x->value);
    CHECK(good);
    n_bad += !good;
}

static double probe_get(const struct probe *p, const char *detail)
{
    return strcmp(detail, "size") == 0 ? sqrt(p->squares)
                                       : p->sum / sqrt(p->squares);
}

/* Line `i` of a JSONL file, from 0; NULL behind its end. */
static json_t *line_of(const char *path, int i)
{
    static char line[1 << 16];
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    bool there = true;
    for (; i >= 0 && there; i--)
        there = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    return there ? json_loads(line, JSON_ALLOW_NUL, NULL) : NULL;
}

/* "score.size" ("score", "n_tokens", a reward), "stop" of the samples. */
static bool samples_get(const char *dir, int iteration, const char *tag,
                        double *out)
{
    char path[700], name[MAX_TAG];
    struct probe p = {0};
    int n_stop = 0;
    json_t *o;
    snprintf(name, sizeof name, "%.*s", (int) strcspn(tag, "."), tag);
    snprintf(path, sizeof path, "%s/samples/%06d.jsonl", dir, iteration);
    for (int i = 0; (o = line_of(path, i)) != NULL; i++) {
        json_t *x = json_object_get(o, name);
        CHECK_INT(json_integer_value(json_object_get(o, "index")), i);
        if (!x)
            x = json_object_get(json_object_get(o, "rewards"), name);
        probe_add(&p, json_number_value(x));
        n_stop += strcmp(
                      json_string_value(json_object_get(o, "finish_reason")),
                      "stop")
               == 0;
        json_decref(o);
    }
    *out = strcmp(name, "stop") == 0 ? n_stop
                                     : probe_get(&p, tag + strlen(name) + 1);
    return p.n > 0;
}

/* "tokens.size", "actor_norm.0", ... of an iteration's digests. */
static bool digest_get(const json_t *o, const char *tag, double *out)
{
    char name[MAX_TAG];
    snprintf(name, sizeof name, "%.*s", (int) strcspn(tag, "."), tag);
    const char *detail = tag + strlen(name) + 1;
    char *norm = strstr(name, "_norm");
    if (norm) {
        strcpy(norm, "_grad_norms");
        json_t *bits = json_array_get(json_object_get(o, name),
                                      (size_t) atoi(detail));
        uint64_t all = bits ? strtoull(json_string_value(bits), NULL, 16) : 0;
        memcpy(out, &all, sizeof all);
        return bits != NULL;
    }
    struct probe p = {0};
    size_t i, k;
    json_t *row, *x;
    json_t *column = json_object_get(json_object_get(o, name), "values");
    json_array_foreach(column, i, row) json_array_foreach(row, k, x)
        probe_add(&p, json_number_value(x));
    *out = probe_get(&p, detail);
    return column != NULL;
}

/* A tag of metrics.jsonl, the digests or the samples. */
static bool tag_get(const json_t *metrics, const json_t *digest,
                    const char *dir, const struct number *x, double *out)
{
    if (strncmp(x->tag, "samples/", 8) == 0)
        return samples_get(dir, x->iteration, x->tag + 8, out);
    if (strchr(x->tag, '.'))
        return digest_get(digest, x->tag, out);
    *out = json_number_value(json_object_get(metrics, x->tag));
    return json_object_get(metrics, x->tag) != NULL;
}

static void compare_iteration(const struct run *r, int iteration,
                              const char *dir)
{
    char path[700];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    json_t *metrics = line_of(path, iteration - 1);
    char *digest_path = weft_digest_path(dir, iteration);
    json_t *digest = json_load_file(digest_path, 0, NULL);
    weft_free(digest_path);
    REQUIRE(digest && metrics);
    CHECK_INT(json_integer_value(json_object_get(metrics, "iteration")),
              iteration);
    for (int i = 0; i < r->n_numbers; i++) {
        const struct number *x = &r->number[i];
        double value = NAN;
        if (x->iteration != iteration || strncmp(x->tag, "weights/", 8) == 0)
            continue;
        bool found = tag_get(metrics, digest, dir, x, &value);
        compare(x, found, value);
    }
    json_decref(digest);
    json_decref(metrics);
}

/* What training has changed of folder `start`, or of one tensor. */
static struct probe moved(const char *start, const char *dir, int iteration,
                          const char *model, const char *tensor)
{
    struct weft_safetensors *before, *after;
    struct weft_err err;
    struct probe p = {0};
    char path[800];
    REQUIRE_OK(weft_safetensors_open(start, "model", &before, &err), err);
    snprintf(path, sizeof path, "%s/checkpoints/iteration-%06d/%s", dir,
             iteration, model);
    REQUIRE_OK(weft_safetensors_open(path, "model", &after, &err), err);
    for (size_t i = 0; i < weft_safetensors_count(after); i++) {
        const struct weft_st_tensor *b = weft_safetensors_get(after, i);
        if (tensor && strcmp(tensor, b->name) != 0)
            continue;
        const struct weft_st_tensor *a = weft_safetensors_find(before,
                                                               b->name);
        REQUIRE(a && a->n == b->n);
        float *x = weft_alloc(2 * a->n, sizeof *x);
        weft_st_tensor_read(a, 0, a->n, x);
        weft_st_tensor_read(b, 0, b->n, x + a->n);
        for (size_t k = 0; k < a->n; k++)
            probe_add(&p, (double) x[a->n + k] - (double) x[k]);
        weft_free(x);
    }
    weft_safetensors_close(before);
    weft_safetensors_close(after);
    return p;
}

static void compare_weights(const struct run *r, const char *dir)
{
    for (int i = 0; i < r->n_numbers; i++) {
        const struct number *x = &r->number[i];
        char model[16], tensor[MAX_TAG];
        if (strncmp(x->tag, "weights/", 8) != 0 || x->absent)
            continue;
        bool whole = sscanf(x->tag, "weights/%15[a-z].%79s", model, tensor)
                      == 2
                  && !strchr(tensor, '.');
        char *detail = strrchr(x->tag, '.') + 1;
        tensor[strlen(tensor) - strlen(detail) - !whole] = 0;
        struct probe p = moved(
            strcmp(model, "actor") == 0 ? value_of(r, "model.actor") : model,
            dir, x->iteration, model, whole ? NULL : tensor);
        CHECK(p.n > 0);
        compare(x, true, probe_get(&p, detail));
    }
}

static void check_run(const struct run *r, const char *const *more)
{
    struct weft_err err;
    char dir[600];
    struct weft_trainer *t = open_run(r, more, dir);
    int n = 0;
    for (; !weft_trainer_done(t); n++)
        REQUIRE_OK(weft_trainer_step(t, &err), err);
    weft_trainer_close(t);
    for (int i = 1; i <= n; i++)
        compare_iteration(r, i, dir);
    compare_weights(r, dir);
    REQUIRE(n_bad == 0); /* one run's sentences are enough */
}

/* ---- Cases ------------------------------------------------------------ */

static struct run first, run;

/* What was varied has "key=" among the words behind the first run's. */
static bool varies(const struct run *r, const char *key)
{
    size_t n = strlen(key);
    for (int i = first.n_words; i < r->n_words; i++)
        if (strncmp(r->word[i], key, n) == 0 && r->word[i][n] == '=')
            return true;
    return false;
}

/* Every run of a file; marks the keys that they vary. */
static void check_file(const char *path, bool varied[])
{
    FILE *f = fopen(weft_test_data(path), "r");
    REQUIRE(f != NULL);
    for (int n = 0; next_run(f, n ? &first : NULL, &run); n++) {
        char name[256] = "first run";
        for (int i = first.n_words; n > 0 && i < run.n_words; i++)
            snprintf(i == first.n_words ? name : name + strlen(name), 80,
                     "%s ", run.word[i]);
        what = name;
        if (n == 0)
            first = run;
        check_run(&run, NULL);
        for (size_t k = 0; k < keys.n; k++)
            varied[k] |= varies(&run, keys.key[k]->name);
    }
    fclose(f);
}

static void test_iterations(void)
{
    bool varied[WEFT_MAX_KEYS] = {false};
    weft_config_list(&weft_run_schema, &keys);
    make();
    check_file("ppo/iterations.txt", varied);
    /* Lengths are limits: with these the first run's. */
    static const char *const lengths[] = {"rollout.max_new_tokens=20",
                                          "rollout.lengths=fixed:7", NULL};
    what = lengths[1];
    check_run(&first, lengths);
    printf("\n    largest relative difference %.2g\n    ", worst);
    /* Every key of these groups that changes numbers was varied. */
    for (size_t k = 0; k < keys.n; k++) {
        const struct weft_config_key *key = keys.key[k];
        bool due = strncmp(key->name, "rollout.", 8) == 0
                || strncmp(key->name, "ppo.", 4) == 0
                || strncmp(key->name, "actor.", 6) == 0
                || strncmp(key->name, "critic.", 7) == 0
                || strncmp(key->name, "reference.", 10) == 0;
        due = due && (key->flags & WEFT_KEY_NUMBERS)
           && strcmp(key->name, "rollout.lengths") != 0;
        if (due && !varied[k])
            printf("\n    no run varies %s\n", key->name);
        CHECK(!due || varied[k]);
    }
}

/* How the work is cut and placed is not in the goldens: it changes nothing.
 * Nor does the instruction set, within the tolerance. */
static void test_iterations_placed(void)
{
    static const char *const placed[][4] = {
        {"train.micro_batch_tokens=12", "runtime.devices=2"},
        {"train.micro_batches=2", "runtime.overlap=false"},
        {"numerics.gradient_groups=8", "runtime.devices=3",
         "layout=dp3tp1pp1"},
        {"checkpoint.every=1", "rollout.chunk_tokens=1"},
        {"runtime.devices=4", "layout=dp2tp2pp1,zero=2"},
    };
    char isa[40];
    const char *word[] = {isa, NULL};
    what = "placed";
    for (size_t i = 0; i < WEFT_COUNT(placed); i++)
        check_run(&first, placed[i]);
    for (int i = 0; i <= (int) weft_k_isa_detect(); i++) {
        what = weft_k_isa_name((enum weft_isa) i);
        snprintf(isa, sizeof isa, "numerics.isa=%s", what);
        check_run(&first, word);
    }
}

/* What a paper sets is not among the words: these are defaults. */
static void test_iterations_algorithms(void)
{
    bool varied[256] = {false};
    worst = 0;
    check_file("ppo/algorithms.txt", varied);
    printf("\n    largest relative difference %.2g\n    ", worst);
    fixture_remove(&fixture);
}

WEFT_TESTS("run/iterations", {"test_iterations", test_iterations},
           {"test_iterations_placed", test_iterations_placed},
           {"test_iterations_algorithms", test_iterations_algorithms})
