/* SPDX-License-Identifier: Apache-2.0 */
#include "reward/reward.h"

#include <math.h>

#include "base/log.h"
#include "base/str.h"
#include "harness.h"

static struct weft_err err;

/* All rewards of n samples that are there. */
static int compute(struct weft_rewards *r, int32_t n,
                   const struct weft_reward_sample *sample,
                   double (*part)[WEFT_MAX_REWARDS], struct weft_err *e)
{
    int32_t index[16];
    REQUIRE(n <= (int32_t) WEFT_COUNT(index));
    int rc = weft_rewards_begin(r, n, NULL, sample, e);
    for (int32_t i = 0; i < n && !rc; i++) {
        index[i] = i;
        weft_rewards_add(r, i);
    }
    if (!rc)
        rc = weft_rewards_end(r, n, index, part, e);
    return rc ? rc : weft_rewards_call(r, n, sample, part, e);
}

/* Expected: what verl's utils/reward_score/gsm8k.py gives. */
static void test_reward_gsm8k(void)
{
    static const struct {
        const char *response, *label;
        bool strict, flexible;
    } known[] = {
        {"so it is\n#### 18", "18", true, true},
        {"so it is\n#### 18", "19", false, false},
        {"so it is 18", "18", false, true},
        {"18 and then 19", "18", false, false},
        {"#### 18 #### 19", "19", true, true},
        {"#### 18 #### 19", "18", false, false},
        {"#### 18 then 7", "18", true, false},
        {"#### 18.", "18", false, false},
        {"#### 18.0", "18", false, false},
        {"#### 1,000", "1000", true, false},
        {"#### 1000", "1,000", true, true},
        {"#### -5", "-5", true, true},
        {"#### --5", "-5", false, true},
        {"####18", "18", false, true},
        {"##### 18", "18", true, true},
        {"#### $18", "18", false, true},
        {"####  18", "18", false, true},
        {"#### 18 apples", "18", true, true},
        {"it is 18 .", "18", false, true},
        {"", "18", false, false},
        {"#### ", "18", false, false},
        {"none", "18", false, false},
        {"#### 0.5", "0.5", true, true},
        {"7", "", false, false},
        /* the label may be the whole solution, or have blanks, a dollar */
        {"#### 18", "9 * 2 = 18\n#### 18", true, true},
        {"#### 1000", "so\n#### 1,000", true, true},
        {"#### 18", " 18\n", true, true},
        {"#### 18", "$18", true, true},
    };
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        struct weft_str r = weft_str_of(known[i].response);
        struct weft_str l = weft_str_of(known[i].label);
        if (weft_reward_gsm8k(r, l, false) != known[i].strict
            || weft_reward_gsm8k(r, l, true) != known[i].flexible)
            printf("\n    case %zu: '%s' '%s'\n", i, r.s, l.s);
        CHECK(weft_reward_gsm8k(r, l, false) == known[i].strict);
        CHECK(weft_reward_gsm8k(r, l, true) == known[i].flexible);
    }
}

static bool exact(const char *response, const char *label)
{
    return weft_reward_exact(weft_str_of(response), weft_str_of(label));
}

static void test_reward_exact(void)
{
    CHECK(exact("a b", "a b"));
    CHECK(exact(" \n\ta b\r\n", "a b "));
    CHECK(exact("", " \n"));
    CHECK(!exact("a  b", "a b"));
    CHECK(!exact("A b", "a b"));
    CHECK(!exact("a b.", "a b"));
    CHECK(!exact("a", ""));
}

/* Expected: what the MATH benchmark's is_equiv gives. */
static void test_reward_boxed(void)
{
    static const struct {
        const char *response, *label;
        bool right;
    } known[] = {
        {"so \\boxed{42}.", "42", true},
        {"so \\boxed{42} or \\boxed{43}", "43", true},
        {"so \\boxed{42} or \\boxed{43}", "42", false},
        {"so 42", "42", false},
        {"so \\boxed{42", "42", false},
        {"\\boxed{}", "", true},
        {"\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", true},
        {"\\boxed{\\dfrac{1}{2}}", "\\tfrac12", true},
        {"\\boxed{1/2}", "\\frac12", true},
        {"\\boxed{01/2}", "\\frac12", false},
        {"\\boxed{-1/2}", "\\frac{-1}{2}", true},
        {"\\boxed{0.5}", "1/2", true},
        {"\\boxed{.5}", "\\frac{1}{2}", true},
        {"\\boxed{\\frac1{72}}", "\\frac{1}{72}", true},
        {"\\boxed{\\frac{a}b}", "\\frac{a}{b}", false},
        {"\\boxed{\\sqrt3}", "\\sqrt{3}", true},
        {"\\boxed{2\\sqrt{3}}", "2 \\sqrt3", true},
        {"\\boxed{x=5}", "5", true},
        {"\\boxed{abc=5}", "5", false},
        {"\\boxed{x=y=5}", "5", false},
        {"\\boxed{90^\\circ}", "90", true},
        {"\\boxed{90^{\\circ}}", "90", true},
        {"\\boxed{\\$18}", "18", true},
        {"\\boxed{18\\%}", "18", true},
        {"\\boxed{18\\text{ apples}}", "18", true},
        {"\\boxed{18\\text{apples}}", "18", false},
        {"\\boxed{\\left(1, 2\\right)}", "(1,2)", true},
        {"\\boxed{1\\!000}", "1000", true},
        {"\\boxed{\\frac}", "\\frac", true},
        {"\\boxed{\\sqrt}", "\\sqrt", true},
        {"\\boxed{\\frac1}", "\\frac1", true},
        {"\\boxed 42$ is it", "42", true},
        {"\\boxed{\\text{ a}\\text{ b}}", "", false},
        {"$\\boxed{42}$", "thus \\boxed{42}", true},
        {"\\boxed{\\frac\xc3\xa9 2}", "\\frac{\xc3\xa9}{2}", true},
    };
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        bool right = !known[i].right;
        CHECK_INT(weft_reward_boxed(weft_str_of(known[i].response),
                                    weft_str_of(known[i].label), &right),
                  0);
        if (right != known[i].right)
            printf("\n    case %zu: '%s' '%s'\n", i, known[i].response,
                   known[i].label);
        CHECK(right == known[i].right);
    }
}

/* No text may crash it: all short texts over its special characters. */
static void test_reward_boxed_any(void)
{
    static const char *const piece[] = {"\\frac",   "\\sqrt", "{", "}",
                                        "1",        "/",      "=", ".",
                                        "\\text{ ", "\\",     " ", "\xff"};
    enum { N = WEFT_COUNT(piece) };
    for (int i = 0; i < N * N * N * N; i++) {
        char text[128] = "\\boxed{";
        for (int k = i, j = 0; j < 4; j++, k /= N)
            strcat(text, piece[k % N]);
        strcat(text, "}");
        bool right = false;
        struct weft_str t = weft_str_of(text);
        if (weft_reward_boxed(t, t, &right) != 0) {
            CHECK(0);
            return;
        }
        if (weft_reward_boxed(t, weft_str_of("\\frac{1}{1}"), &right)) {
            CHECK(0);
            return;
        }
    }
}

static void test_reward_length(void)
{
    CHECK(weft_reward_length(10, 10, "around") == 0);
    CHECK(weft_reward_length(5, 10, "around") == -0.5);
    CHECK(weft_reward_length(15, 10, "around") == -0.5);
    CHECK(weft_reward_length(0, 4, "around") == -1);
    CHECK(weft_reward_length(5, 10, "most") == 0);
    CHECK(weft_reward_length(30, 10, "most") == -2);
    CHECK(weft_reward_length(5, 10, "least") == -0.5);
    CHECK(weft_reward_length(30, 10, "least") == 0);
}

static int twice(void *ctx, const struct weft_reward_sample *sample,
                 double *out, struct weft_err *e)
{
    if (sample->n_tokens == 13)
        return weft_err_set(e, WEFT_EINVAL, "thirteen");
    *out = sample->n_tokens == 14 ? NAN
         : sample->n_tokens == 15 ? 1e39 /* too large for a float */
                                  : sample->n_tokens * *(double *) ctx;
    return 0;
}

static void test_reward_compute(void)
{
    static char sh[] = "/bin/sh", opt[] = "-c",
                script[] = "while read -r l; do echo 0.125; done";
    struct weft_reward_config c[WEFT_MAX_REWARDS] = {
        {.type = WEFT_REWARD_GSM8K,
         .weight = 1,
         .name = "a",
         .method = "strict"},
        {.type = WEFT_REWARD_MODEL, .weight = 100, .name = "m"},
        {.type = WEFT_REWARD_REGEX,
         .weight = 0.5f,
         .name = "b",
         .pattern = "^<b>.*</b>$"},
        {.type = WEFT_REWARD_LENGTH,
         .weight = 2,
         .name = "c",
         .method = "around",
         .target = 4},
        {.type = WEFT_REWARD_CALLBACK, .weight = -1, .name = "d"},
        {.type = WEFT_REWARD_PROGRAM,
         .weight = 8,
         .name = "e",
         .timeout_s = 60,
         .command = {sh, opt, script}},
        {.type = WEFT_REWARD_EXACT, .weight = 1, .name = "f"},
        {.type = WEFT_REWARD_BOXED, .weight = 1, .name = "g"},
    };
    struct weft_reward_sample s[2] = {
        {.prompt = weft_str_of("p"),
         .response = weft_str_of("<b>#### 4</b>"),
         .label = weft_str_of("4"),
         .n_tokens = 6},
        {.prompt = weft_str_of("p"),
         .response = weft_str_of("x"),
         .label = weft_str_of("x"),
         .n_tokens = 4},
    };
    struct weft_rewards *r = NULL;
    double part[2][WEFT_MAX_REWARDS] = {{0}}, factor = 2;
    part[0][1] = 55;
    REQUIRE_OK(weft_rewards_open(c, 8, &r, &err), err);
    CHECK_FAILS(compute(r, 2, s, part, &err), WEFT_ESTATE, err,
                "reward 'd' is a callback, but no function was given");
    weft_rewards_set_callback(r, twice, &factor);
    REQUIRE_OK(compute(r, 2, s, part, &err), err);
    static const double expected[2][WEFT_MAX_REWARDS] = {
        {1, 55, 1, -0.5, 12, 0.125, 0, 0}, {0, 0, 0, 0, 8, 0.125, 1, 0}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 8; k++)
            CHECK(part[i][k] == expected[i][k]);
    CHECK(weft_rewards_sum(r, part[0]) == 1 + 0.5 - 1 - 12 + 1);
    CHECK(weft_rewards_sum(r, part[1]) == -8 + 1 + 1);
    s[1].n_tokens = 13;
    CHECK_FAILS(compute(r, 2, s, part, &err), WEFT_EINVAL, err,
                "reward 'd': sample 1: thirteen");
    s[1].n_tokens = 14;
    CHECK_FAILS(compute(r, 2, s, part, &err), WEFT_ENUMERIC, err,
                "the function gave sample 1 a score that is no finite f32 "
                "number: nan");
    s[1].n_tokens = 15;
    CHECK_FAILS(compute(r, 2, s, part, &err), WEFT_ENUMERIC, err,
                "no finite f32 number: 1e+39");
    s[1].label = (struct weft_str){0};
    s[1].row = "{\"q\": 1}";
    CHECK_FAILS(compute(r, 2, s, part, &err), WEFT_ENOTFOUND, err,
                "reward 'a': the row of sample 1 has no label; set "
                "data.label_key (the row is {\"q\": 1})");
    weft_rewards_close(r);
    weft_rewards_close(NULL);
}

static bool matches_str(const char *pattern, struct weft_str text)
{
    struct weft_reward_config c = {.type = WEFT_REWARD_REGEX,
                                   .weight = 1,
                                   .name = "r",
                                   .pattern = (char *) (uintptr_t) pattern};
    struct weft_reward_sample s = {.response = text};
    struct weft_rewards *r = NULL;
    double part[1][WEFT_MAX_REWARDS] = {{-1}};
    REQUIRE_OK(weft_rewards_open(&c, 1, &r, &err), err);
    REQUIRE_OK(compute(r, 1, &s, part, &err), err);
    weft_rewards_close(r);
    CHECK(part[0][0] == 0 || part[0][0] == 1);
    return part[0][0] == 1;
}

static bool matches(const char *pattern, const char *text)
{
    return matches_str(pattern, weft_str_of(text));
}

static void test_reward_regex(void)
{
    CHECK(matches("a+b", "xaaab"));
    CHECK(!matches("^a+b", "xaaab"));
    CHECK(matches("(?s)^<think>.*</think>\\s*<answer>.*</answer>$",
                  "<think>\na\n</think>\n<answer>b</answer>"));
    CHECK(matches("^\\w+$", "\xc3\xa9t\xc3\xa9"));
    CHECK(matches("b", "\xff\xfe b"));
    CHECK(!matches("^$", "\xff"));
    /* exponential for a backtracking matcher: gives up, does not hang */
    char text[65];
    memset(text, 'a', 64);
    text[64] = 0;
    weft_log_set_level(WEFT_LOG_ERROR);
    CHECK(!matches("^(a|aa|a?a)+$\\b.(x+x+)+y", text));
    struct weft_reward_config c = {.type = WEFT_REWARD_REGEX, .name = "r"};
    static char open_group[] = "a(b";
    c.pattern = open_group;
    struct weft_rewards *r = NULL;
    CHECK_FAILS(weft_rewards_open(&c, 1, &r, &err), WEFT_EINVAL, err,
                "reward 'r': the pattern 'a(b' is wrong at byte 3: missing");
}

/* Expected: Python's re.match() with DOTALL of
 * ^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$ (and MULTILINE), as in
 * open-r1's rewards.py, and of
 * ^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$ */
static void test_reward_think_answer(void)
{
    static const struct {
        const char *response;
        bool strict, flexible;
    } known[] = {
        {"<think>\na\n</think>\n<answer>\nb\n</answer>", true, true},
        {"<think>a</think><answer>b</answer>", false, true},
        {"<think>a</think>\n\n<answer>b</answer>\n", false, true},
        {" <think>a</think> <answer>b</answer>", false, true},
        {"<think>\na\n</think>\n<answer>\nb\n</answer>\nmore", true, false},
        {"<think>\na\n</think>\n<answer>\nb\n</answer> more", false, false},
        {"so <think>a</think><answer>b</answer>", false, false},
        {"<think>a</think>b", false, false},
        {"<answer>b</answer>", false, false},
        {"<think>a<answer>b</answer></think>", false, false},
        {"<think>a</think>x<answer>b</answer>", false, false},
        {"<think></think><answer></answer>", false, true},
        {"<think>\n\n</think>\n<answer>\n\n</answer>", true, true},
        {"<think>\n</think>\n<answer>\n</answer>", false, true},
        {"<think>a</think><answer>b</answer><answer>c</answer>", false, true},
        {"<think>a</think></think><answer>b</answer>", false, true},
        {"", false, false},
        {"<think>a</think><answer>b</answer", false, false},
        {"<think>a\nb</think><answer>\n1\n2</answer>", false, true},
        {"<Think>a</Think><answer>b</answer>", false, false},
        {"<think>\na\n</think>\n<answer>\nb\n</answer>\n", true, true},
        {"\n<think>\na\n</think>\n<answer>\nb\n</answer>", false, true},
    };
    static char method[2][16] = {"strict", "flexible"};
    for (int k = 0; k < 2; k++) {
        struct weft_reward_config c = {.type = WEFT_REWARD_THINK_ANSWER,
                                       .weight = 1,
                                       .name = "t",
                                       .method = method[k]};
        struct weft_rewards *r = NULL;
        REQUIRE_OK(weft_rewards_open(&c, 1, &r, &err), err);
        for (size_t i = 0; i < WEFT_COUNT(known); i++) {
            bool right = k ? known[i].flexible : known[i].strict;
            struct weft_reward_sample s = {
                .response = weft_str_of(known[i].response)};
            double part[1][WEFT_MAX_REWARDS] = {{-1}};
            REQUIRE_OK(compute(r, 1, &s, part, &err), err);
            if (part[0][0] != right)
                printf("\n    %s: case %zu\n", c.method, i);
            CHECK(part[0][0] == right);
        }
        weft_rewards_close(r);
    }
}

/* A score is the sample's tokens and the number of samples; the last fails. */
static int all_at_once(void *ctx, int32_t n,
                       const struct weft_reward_sample *sample, double *out,
                       struct weft_err *e)
{
    ++*(int *) ctx;
    for (int32_t i = 0; i < n; i++) {
        if (sample[i].n_tokens == 13)
            return weft_err_set(e, WEFT_EINVAL, "thirteen");
        out[i] = sample[i].n_tokens == 14 ? (double) INFINITY
                                          : (double) (sample[i].n_tokens + n);
    }
    return 0;
}

static void test_reward_batch(void)
{
    struct weft_reward_config c = {
        .type = WEFT_REWARD_CALLBACK, .weight = 1, .name = "d"};
    struct weft_reward_sample s[3] = {
        {.n_tokens = 1}, {.n_tokens = 2}, {.n_tokens = 3}};
    struct weft_rewards *r = NULL;
    double part[3][WEFT_MAX_REWARDS], factor = 2;
    int calls = 0;
    REQUIRE_OK(weft_rewards_open(&c, 1, &r, &err), err);
    weft_rewards_set_callback(r, twice, &factor);
    weft_rewards_set_batch(r, all_at_once, &calls);
    REQUIRE_OK(compute(r, 3, s, part, &err), err);
    CHECK_INT(calls, 1);
    for (int i = 0; i < 3; i++)
        CHECK(part[i][0] == i + 1 + 3);
    s[1].n_tokens = 13;
    CHECK_FAILS(compute(r, 3, s, part, &err), WEFT_EINVAL, err,
                "reward 'd': thirteen");
    s[1].n_tokens = 14;
    CHECK_FAILS(compute(r, 3, s, part, &err), WEFT_ENUMERIC, err,
                "the function gave sample 1 a score that is no finite f32 "
                "number: inf");
    s[1].n_tokens = 5;
    weft_rewards_set_callback(r, twice, &factor); /* the last one counts */
    REQUIRE_OK(compute(r, 3, s, part, &err), err);
    CHECK(part[1][0] == 10);
    weft_rewards_close(r);
}

#define LITERAL(s)                                                           \
    {                                                                        \
        s, sizeof s - 1                                                      \
    }
#define STR(s) ((struct weft_str) LITERAL(s))

/* No rule ends a response at a zero byte: what stands behind it counts. */
static void test_reward_zeros(void)
{
    struct weft_str marked = STR("#### 18\0#### 19"), bare = STR("18\0 19");
    CHECK(weft_reward_gsm8k(marked, STR("19"), false));
    CHECK(!weft_reward_gsm8k(marked, STR("18"), false));
    CHECK(weft_reward_gsm8k(bare, STR("19"), true));
    CHECK(!weft_reward_gsm8k(bare, STR("18"), true));
    CHECK(weft_reward_gsm8k(STR("#### 18\0"), STR("a\0b #### 18"), false));

    CHECK(!weft_reward_exact(STR("18\0 or not"), STR("18")));
    CHECK(!weft_reward_exact(STR("18\0"), STR("18")));
    CHECK(!weft_reward_exact(STR("\0"), STR("")));
    CHECK(weft_reward_exact(STR(" a\0b\n"), STR("a\0b")));

    static const struct {
        struct weft_str response, label;
        bool right;
    } boxed[] = {
        {LITERAL("\\boxed{18}\0\\boxed{19}"), LITERAL("19"), true},
        {LITERAL("\\boxed{18}\0\\boxed{19}"), LITERAL("18"), false},
        {LITERAL("\\boxed{18\0}"), LITERAL("18"), false},
        {LITERAL("\\boxed{\\frac\0001}"), LITERAL("\\frac\0001"), true},
        {LITERAL("\\boxed{\\frac\0001}"), LITERAL("\\frac{\0}{1}"), true},
        {LITERAL("\\boxed{\\sqrt\0}"), LITERAL("\\sqrt{\0}"), true},
        {LITERAL("\\boxed{\\sqrt\0}"), LITERAL("\\sqrt"), false},
        {LITERAL("\\boxed{1/2\0}"), LITERAL("1/2"), false},
        {LITERAL("\\boxed{5\\text{ a}\0}"), LITERAL("5"), true}, /* a unit */
        {LITERAL("\\boxed 5\0$"), LITERAL("5"), false},
    };
    for (size_t i = 0; i < WEFT_COUNT(boxed); i++) {
        bool right = !boxed[i].right;
        CHECK_INT(
            weft_reward_boxed(boxed[i].response, boxed[i].label, &right), 0);
        if (right != boxed[i].right)
            printf("\n    boxed case %zu\n", i);
        CHECK(right == boxed[i].right);
    }

    CHECK(matches_str("^ab?$", STR("a")));
    CHECK(!matches_str("^ab?$", STR("a\0 and more")));
    CHECK(matches_str("more$", STR("a\0 and more")));
    CHECK(matches_str("\\x00", STR("a\0")));
}

/* ---- As samples come ---------------------------------------------------- */

/* Answers with how many lines it has read; the label of each sample is the
 * number of its line if questions come in the order of indices. */
static char count_lines[] = "i=0; while read -r l; do i=$((i+1)); case "
                            "\"$l\" in \"{\\\"index\\\": $(((i-1)%5)),\"*) "
                            "echo $i;; *) echo -1;; esac; done";

static void open_both(struct weft_reward_config config[2], char *script,
                      struct weft_rewards **out)
{
    static char shell[] = "/bin/sh", option[] = "-c";
    config[0] = (struct weft_reward_config){
        .type = WEFT_REWARD_EXACT, .name = "exact", .weight = 1};
    config[1] = (struct weft_reward_config){
        .type = WEFT_REWARD_PROGRAM,
        .name = "count",
        .weight = 1,
        .command = {shell, option, script},
        .timeout_s = 60};
    REQUIRE_OK(weft_rewards_open(config, 2, out, &err), err);
}

/* In any order they have the same rewards, and programs are asked in the order
 * of the samples, about those before which none is missing. */
static void test_reward_any_order(void)
{
    enum { N = 5 };
    static const int32_t order[][N] = {
        {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 1, 4, 3}};
    struct weft_reward_config config[2];
    struct weft_reward_sample s[N];
    double part[N][WEFT_MAX_REWARDS];
    struct weft_rewards *r;
    open_both(config, count_lines, &r);
    for (int i = 0; i < N; i++)
        s[i] = (struct weft_reward_sample){
            .response = weft_str_of(i % 2 ? "yes" : "no"),
            .label = weft_str_of("yes")};
    for (size_t k = 0; k < WEFT_COUNT(order); k++) {
        REQUIRE_OK(weft_rewards_begin(r, N, order[0], s, &err), err);
        for (int i = 0; i < N; i++) {
            weft_rewards_add(r, order[k][i]);
            CHECK(order[k][0] == 0 || i > 0 || !weft_rewards_move(r));
            while (i < N - 1 && weft_rewards_move(r))
                ; /* all that was asked is answered before the next comes */
        }
        REQUIRE_OK(weft_rewards_end(r, N, order[0], part, &err), err);
        CHECK(weft_rewards_busy_s(r) > 0);
        for (int i = 0; i < N; i++) {
            CHECK(part[i][0] == i % 2);
            CHECK(part[i][1] == (double) ((int) k * N + i + 1));
        }
    }
    weft_rewards_close(r);
}

/* Scores of a part can be had while others have not come, some of which never
 * do. Programs are asked at once, or in an order that is given. */
static void test_reward_parts(void)
{
    enum { N = 6 };
    static char script[] = "i=0; while read -r l; do i=$((i+1)); l=${l#*: }; "
                           "echo $i${l%%,*}; done";
    static const int32_t order[N] = {4, 5, 3, 2, 0, 1};
    static const int32_t first[] = {4, 5}, last[] = {2, 3};
    struct weft_reward_config config[2];
    struct weft_reward_sample s[N] = {{.n_tokens = 0}};
    double part[2][WEFT_MAX_REWARDS];
    struct weft_rewards *r;
    for (int i = 0; i < N; i++)
        s[i] = (struct weft_reward_sample){
            .response = weft_str_of(i % 2 ? "yes" : "no"),
            .label = weft_str_of("yes")};
    for (int ordered = 0; ordered < 2; ordered++) {
        open_both(config, script, &r);
        REQUIRE_OK(weft_rewards_begin(r, N, ordered ? order : NULL, s, &err),
                   err);
        weft_rewards_add(r, 5);
        CHECK(weft_rewards_move(r) == !ordered);
        weft_rewards_add(r, 4);
        REQUIRE_OK(weft_rewards_end(r, 2, first, part, &err), err);
        CHECK(part[0][0] == 0 && part[0][1] == (ordered ? 14 : 24));
        CHECK(part[1][0] == 1 && part[1][1] == (ordered ? 25 : 15));
        weft_rewards_add(r, 2);
        CHECK(weft_rewards_move(r) == !ordered);
        weft_rewards_add(r, 3);
        REQUIRE_OK(weft_rewards_end(r, 2, last, part, &err), err);
        CHECK(part[0][0] == 0 && part[0][1] == (ordered ? 42 : 32));
        CHECK(part[1][0] == 1 && part[1][1] == (ordered ? 33 : 43));
        weft_rewards_close(r);
    }
}

/* The first error by reward and sample is told, whoever came first. */
static void test_reward_first_error(void)
{
    struct weft_reward_config config[2];
    struct weft_reward_sample s[3] = {{.response = weft_str_of("a")},
                                      {.response = weft_str_of("b")},
                                      {.response = weft_str_of("c")}};
    static const int32_t index[] = {0, 1, 2};
    double part[3][WEFT_MAX_REWARDS];
    struct weft_rewards *r;
    open_both(config, count_lines, &r);
    s[0].label = weft_str_of("a");
    REQUIRE_OK(weft_rewards_begin(r, 3, NULL, s, &err), err);
    for (int i = 3; i-- > 0;)
        weft_rewards_add(r, i);
    CHECK_FAILS(weft_rewards_end(r, 3, index, part, &err), WEFT_ENOTFOUND,
                err, "reward 'exact': the row of sample 1 has no label");
    weft_rewards_close(r);
}

WEFT_TESTS("reward/reward", {"test_reward_gsm8k", test_reward_gsm8k},
           {"test_reward_exact", test_reward_exact},
           {"test_reward_boxed", test_reward_boxed},
           {"test_reward_boxed_any", test_reward_boxed_any},
           {"test_reward_length", test_reward_length},
           {"test_reward_compute", test_reward_compute},
           {"test_reward_regex", test_reward_regex},
           {"test_reward_think_answer", test_reward_think_answer},
           {"test_reward_batch", test_reward_batch},
           {"test_reward_zeros", test_reward_zeros},
           {"test_reward_any_order", test_reward_any_order},
           {"test_reward_parts", test_reward_parts},
           {"test_reward_first_error", test_reward_first_error})
