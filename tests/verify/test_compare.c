/* SPDX-License-Identifier: Apache-2.0 */
/* Two made-up runs, alike but for one number: it is found and named. */
#include <unistd.h>

#include "harness.h"

#include "base/file.h"
#include "model/safetensors.h"
#include "verify/compare.h"

static char dir[256];
enum { ITERATIONS = 2 };

/* What a made-up run says, and where it can be changed. */
struct made {
    const char *name;
    int token;               /* sample 1's second, of iteration 2 */
    const char *logprob;     /* its last log-prob */
    const char *norm;        /* the critic's second of iteration 1 */
    float weight, moment;    /* element 4 of a matrix; 1 of a vector */
    bool reference, missing; /* columns; a tensor */
    int cols;                /* of the matrix, 3 */
};

static const struct made same = {
    "same", 7, "-0.5", "3ff0000000000000", 1.5f, 2, true, false, 3};

/* The digest is a function of what it stands for. */
static void write_digests(const struct made *m, int iteration)
{
    char path[512], text[2048];
    struct weft_err err;
    int token = iteration == 2 ? m->token : 7;
    const char *logprob = iteration == 2 ? m->logprob : "-0.5";
    const char *norm = iteration == 1 ? m->norm : "3ff0000000000000";
    snprintf(
        text, sizeof text,
        "{\"iteration\": %d,\n"
        " \"tokens\": {\"all\": \"%d\", \"values\": [[1], [2, %d]]},\n"
        " \"logprobs\": {\"all\": \"%s\", \"values\": [[-1], [-2, %s]]},\n"
        "%s"
        " \"values\": {\"all\": \"5\", \"values\": [[0], [0, 0]]},\n"
        " \"advantages\": {\"all\": \"6\", \"values\": [[0], [0, 0]]},\n"
        " \"actor_grad_norms\": [\"4000000000000000\"],\n"
        " \"critic_grad_norms\": [\"4000000000000000\", \"%s\"]}\n",
        iteration, token, token, logprob, logprob,
        m->reference ? " \"ref_logprobs\": {\"all\": \"4\"},\n" : "", norm);
    snprintf(path, sizeof path, "%s/%s/digests/%06d.json", dir, m->name,
             iteration);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
}

static void write_tensors(const struct made *m, const char *model,
                          const char *stem, bool changed, bool missing)
{
    char path[512];
    float matrix[9] = {0, 1, 2, 3, 1.5f, 5, 6, 7, 8}, vector[2] = {1, 2};
    struct weft_err err;
    struct weft_st_writer *w;
    struct weft_st_spec spec[] = {{"a.weight", WEFT_F32, 2, m->cols},
                                  {"b.weight", WEFT_F32, 2, 0}};
    snprintf(path, sizeof path,
             "%s/%s/checkpoints/iteration-%06d/%s%s/%s.safetensors", dir,
             m->name, ITERATIONS, strcmp(stem, "model") ? "optimizer/" : "",
             model, stem);
    matrix[4] = changed ? m->weight : matrix[4];
    vector[1] = changed ? m->moment : vector[1];
    REQUIRE_OK(weft_st_writer_open(path, missing ? 1 : WEFT_COUNT(spec), spec,
                                   &w, &err),
               err);
    REQUIRE_OK(
        weft_st_writer_put(w, 0, 0, 2 * (size_t) m->cols, matrix, &err), err);
    if (!missing)
        REQUIRE_OK(weft_st_writer_put(w, 1, 0, 2, vector, &err), err);
    REQUIRE_OK(weft_st_writer_close(w, &err), err);
}

static void write_run(const struct made *m)
{
    static const char *const stem[] = {"model", "exp_avg", "exp_avg_sq"};
    char path[512];
    struct weft_err err;
    snprintf(path, sizeof path, "%s/%s/digests", dir, m->name);
    REQUIRE_OK(weft_dir_create(path, &err), err);
    for (int i = 1; i <= ITERATIONS; i++)
        write_digests(m, i);
    for (int k = 0; k < 6; k++) {
        const char *model = k < 3 ? "actor" : "critic";
        snprintf(path, sizeof path, "%s/%s/checkpoints/iteration-%06d/%s%s",
                 dir, m->name, ITERATIONS, k % 3 ? "optimizer/" : "", model);
        REQUIRE_OK(weft_dir_create(path, &err), err);
        write_tensors(m, model, stem[k % 3], k == 4, k == 5 && m->missing);
    }
}

/* The run differs from `same` so, and in the hashes whose bits are set:
 * tokens, logprobs, norms, weights. */
static void check(const struct made *m, const char *number,
                  const char *tensor, unsigned hashes)
{
    char one[512], other[512];
    struct weft_verify_hashes a, b;
    struct weft_verify_difference d;
    struct weft_err err;
    snprintf(one, sizeof one, "%s/%s", dir, same.name);
    snprintf(other, sizeof other, "%s/%s", dir, m->name);
    write_run(m);
    REQUIRE_OK(weft_verify_compare(one, other, ITERATIONS, &d, &err), err);
    CHECK_STR(d.number, number);
    CHECK_STR(d.tensor, tensor);
    REQUIRE_OK(weft_verify_read(one, ITERATIONS, &a, &err), err);
    REQUIRE_OK(weft_verify_read(other, ITERATIONS, &b, &err), err);
    unsigned found = (unsigned) (a.tokens != b.tokens)
                   | (unsigned) (a.logprobs != b.logprobs) << 1
                   | (unsigned) (a.norms != b.norms) << 2
                   | (unsigned) (a.weights != b.weights) << 3;
    CHECK_INT(found, hashes);
}

static void test_verify_compare_names(void)
{
    struct made m = same;
    snprintf(dir, sizeof dir, "%s/weft-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    write_run(&same);
    m.name = "twin";
    check(&m, "", "", 0);
    m = same;
    m.name = "token";
    m.token = 8;
    m.logprob = "-0.25"; /* comes later */
    check(&m, "iteration 2: tokens of sample 1 differ at 1: 7 and 8", "", 3);
    m = same;
    m.name = "logprob";
    m.logprob = "-0.25";
    check(&m, "iteration 2: logprobs of sample 1 differ at 1: -0.5 and -0.25",
          "", 2);
    m.name = "longer";
    m.logprob = "-0.5, -3";
    check(&m, "iteration 2: logprobs of sample 1 differ at 2: none and -3",
          "", 2);
    m = same;
    m.name = "norm";
    m.norm = "3ff0000000000001"; /* the next double after 1 */
    m.token = 8;
    check(&m,
          "iteration 1: critic_grad_norms differ at step 1: 1 and "
          "1.0000000000000002",
          "", 5);
    m = same;
    m.name = "column";
    m.reference = false;
    check(&m, "iteration 1: ref_logprobs", "", 0);
}

static void test_verify_compare_tensors(void)
{
    struct made m = same;
    m.name = "weight";
    m.weight = 1.75f;
    m.moment = -2; /* comes later */
    check(&m, "",
          "critic exp_avg: tensor 'a.weight' differs at element 4 of [2, 3]: "
          "1.5 and 1.75",
          8);
    m.name = "form";
    m.weight = same.weight;
    m.moment = same.moment;
    m.cols = 2;
    check(&m, "",
          "actor model: tensor 'a.weight' is missing, or of another form", 8);
    m.name = "missing";
    m.cols = 3;
    m.missing = true;
    check(&m, "",
          "critic exp_avg_sq: tensor 'b.weight' is missing, or of another "
          "form",
          8);
}

/* ---- Numbers that are near --------------------------------------------- */

/* Two samples, of a prompt of two tokens and responses of two and one. */
struct near_run {
    int token[3];
    double logprob[3], norm;
};

static void write_near(const char *name, const struct near_run *r)
{
    char path[512], text[1024];
    struct weft_err err;
    uint64_t bits;
    memcpy(&bits, &r->norm, sizeof bits);
    snprintf(path, sizeof path, "%s/%s/digests", dir, name);
    REQUIRE_OK(weft_dir_create(path, &err), err);
    snprintf(path, sizeof path, "%s/%s/digests/000001.json", dir, name);
    snprintf(text, sizeof text,
             "{\"tokens\": {\"values\": [[1, 2, %d, %d], [1, 2, %d]]},\n"
             " \"logprobs\": {\"values\": [[%.9g, %.9g], [%.9g]]},\n"
             " \"values\": {\"values\": [[%d, 0], [0]]},\n"
             " \"actor_grad_norms\": [\"%016llx\", \"4000000000000000\"]}\n",
             r->token[0], r->token[1], r->token[2], r->logprob[0],
             r->logprob[1], r->logprob[2], r->token[1] * 100,
             (unsigned long long) bits);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
}

static void check_near(const struct near_run *r, enum weft_dtype dtype,
                       struct weft_verify_distance expected, const char *says)
{
    char one[512], other[512];
    struct weft_verify_distance d;
    struct weft_verify_difference difference;
    struct weft_err err;
    snprintf(one, sizeof one, "%s/near", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    write_near("other", r);
    REQUIRE_OK(weft_verify_measure(one, other, dtype, &d, &difference, &err),
               err);
    CHECK(d.logprob > expected.logprob - 1e-9
          && d.logprob < expected.logprob + 1e-9);
    CHECK(d.norm > expected.norm - 1e-9 && d.norm < expected.norm + 1e-9);
    CHECK_INT(d.n_logprobs, expected.n_logprobs);
    CHECK_INT(d.n_norms, expected.n_norms);
    CHECK_STR(difference.number, says);
    CHECK_STR(difference.tensor, "");
}

static void test_verify_compare_near(void)
{
    const struct near_run near = {{5, 6, 7}, {-1, -2, -3}, 4};
    struct near_run r = near;
    write_near("near", &near);
    check_near(&r, WEFT_F32, (struct weft_verify_distance){0, 0, 3, 1}, "");
    r.logprob[1] = -2.00005; /* the largest of all, of either sign */
    r.logprob[2] = -2.99999;
    r.norm = 4.002;
    check_near(&r, WEFT_F32, (struct weft_verify_distance){5e-5, 5e-4, 3, 1},
               "");
    r.logprob[1] = -2.05;
    check_near(&r, WEFT_BF16, (struct weft_verify_distance){0.05, 5e-4, 3, 1},
               "");
    check_near(&r, WEFT_F32, (struct weft_verify_distance){0.05, 5e-4, 3, 1},
               "iteration 1: log-probs of the same tokens are up to 0.05 "
               "apart; f32 may have 0.0001");
    r.logprob[1] = -2;
    r.norm = 3.9;
    check_near(&r, WEFT_BF16,
               (struct weft_verify_distance){1e-5, 0.025, 3, 1}, "");
    check_near(&r, WEFT_F32, (struct weft_verify_distance){1e-5, 0.025, 3, 1},
               "iteration 1: norms of the first gradient are up to 0.025 of "
               "them apart; f32 may have 0.001");
    /* another token: its log-prob is of something else, and so is the norm */
    r.token[1] = 60;
    r.logprob[1] = -9;
    check_near(&r, WEFT_F32, (struct weft_verify_distance){1e-5, 0, 2, 0},
               "");
    r.token[0] = r.token[2] = 50;
    check_near(&r, WEFT_F32, (struct weft_verify_distance){0, 0, 0, 0},
               "iteration 1: no response begins with the same token");
}

static void test_verify_compare_refuses(void)
{
    char one[512], other[512];
    struct weft_verify_difference d;
    struct weft_verify_hashes h;
    struct weft_err err;
    snprintf(one, sizeof one, "%s/%s", dir, same.name);
    snprintf(other, sizeof other, "%s/nothing", dir);
    CHECK_FAILS(weft_verify_compare(one, other, 2, &d, &err), WEFT_ENOTFOUND,
                err, "nothing/digests/000001.json");
    CHECK_FAILS(weft_verify_read(one, 3, &h, &err), WEFT_ENOTFOUND, err,
                "000003.json");
    snprintf(other, sizeof other, "%s/same/digests/000002.json", dir);
    REQUIRE_OK(weft_file_write(other, "{\"tokens\": 1}", 13, &err), err);
    CHECK_FAILS(weft_verify_read(one, 2, &h, &err), WEFT_EFORMAT, err,
                "tokens");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("verify/compare",
           {"test_verify_compare_names", test_verify_compare_names},
           {"test_verify_compare_tensors", test_verify_compare_tensors},
           {"test_verify_compare_near", test_verify_compare_near},
           {"test_verify_compare_refuses", test_verify_compare_refuses})
