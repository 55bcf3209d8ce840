/* SPDX-License-Identifier: Apache-2.0 */
/* Which texts tokens can spell: beside all sequences of tokens, one by one. */
#include "lm/stops.h"

#include "base/rng.h"
#include "base/string.h"
#include "harness.h"
#include "model/arch.h"

enum { LONGEST = 4, TOKEN = 3, ALL = LONGEST + 2 * TOKEN };

static struct weft_err err;

static struct weft_tokenizer *open_tokens(int n, char token[][TOKEN + 1])
{
    struct weft_string json = {0};
    struct weft_tokenizer *tok;
    weft_string_addf(&json,
                     "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": %d, "
                     "\"content\": \"<|end|>\", \"special\": true}], "
                     "\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                     "\"add_prefix_space\": false, \"use_regex\": false}, "
                     "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
                     "{\"type\": \"BPE\", \"merges\": [], \"vocab\": {",
                     n);
    for (int i = 0; i < n; i++)
        weft_string_addf(&json, "%s\"%s\": %d", i ? ", " : "", token[i], i);
    weft_string_add(&json, "}}}");
    REQUIRE_OK(weft_tokenizer_parse(json.data, json.n, "t", &tok, &err), err);
    weft_string_release(&json);
    return tok;
}

/* Texts of a, b and c by length and digits. */
static int number(const char *text, int n)
{
    int code = 0;
    for (int i = 0; i < n; i++)
        code = 3 * code + text[i] - 'a';
    return code;
}

static bool found[LONGEST + 1][81];

/* Notes all that stands in what tokens spell after `text`. */
static void spell(int n, char token[][TOKEN + 1], char *text, int bytes)
{
    for (int m = 1; m <= LONGEST; m++)
        for (int i = 0; i + m <= bytes; i++)
            found[m][number(text + i, m)] = true;
    for (int k = 0; k < n; k++) {
        int more = (int) strlen(token[k]);
        if (bytes + more > ALL)
            continue;
        memcpy(text + bytes, token[k], (size_t) more);
        spell(n, token, text, bytes + more);
    }
}

static void test_spelled(void)
{
    int n_yes = 0, n_no = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        char token[3][TOKEN + 1], text[ALL + 1] = "";
        uint32_t word[4];
        int n = 0;
        for (uint32_t k = 0; k < 3; k++) {
            weft_rng_words(seed, WEFT_RNG_SAMPLE, k, 0, 0, word);
            int bytes = k == 0 ? 2 + (int) (word[3] % 2)
                               : 1 + (int) (word[3] % TOKEN);
            bool again = false;
            memset(token[n], 0, sizeof token[n]);
            for (int i = 0; i < bytes; i++)
                token[n][i] = (char) ('a' + word[i] % 3);
            for (int i = 0; i < n; i++)
                again = again || strcmp(token[i], token[n]) == 0;
            n += !again;
        }
        struct weft_tokenizer *tok = open_tokens(n, token);
        memset(found, 0, sizeof found);
        spell(n, token, text, 0);
        for (int m = 1, codes = 3; m <= LONGEST; m++, codes *= 3)
            for (int code = 0; code < codes; code++) {
                struct weft_stops stops = {.n_ids = 0};
                char stop[LONGEST + 1] = "";
                for (int i = m, c = code; i-- > 0; c /= 3)
                    stop[i] = (char) ('a' + c % 3);
                int rc = weft_stops_add_text(&stops, tok, "f", "--stop", stop,
                                             &err);
                CHECK_INT(rc == 0, found[m][code]);
                CHECK(rc == 0
                      || strstr(err.text, "the tokens of 'f' cannot spell "
                                          "--stop '")
                             != NULL);
                n_yes += rc == 0;
                n_no += rc != 0;
                weft_stops_release(&stops);
            }
        weft_tokenizer_free(tok);
    }
    CHECK(n_yes > 500 && n_no > 500);
}

/* What normalisation would change, and special tokens, which are no text. */
static void test_others(void)
{
    char token[3][TOKEN + 1] = {"a", "<", "c"};
    struct weft_tokenizer *tok = open_tokens(3, token);
    struct weft_stops stops = {.n_ids = 0};
    CHECK_FAILS(weft_stops_add_text(&stops, tok, "f", "k", "", &err),
                WEFT_EINVAL, err, "k '' is empty");
    CHECK_FAILS(weft_stops_add_text(&stops, tok, "f", "k", "\xc3\xa9", &err),
                WEFT_EINVAL, err, "cannot spell k '\xc3\xa9'");
    CHECK_FAILS(weft_stops_add_text(&stops, tok, "f", "k", "end", &err),
                WEFT_EINVAL, err, "cannot spell k 'end'");
    CHECK_FAILS(weft_stops_add_text(&stops, tok, "f", "k", "a<|end|>", &err),
                WEFT_EINVAL, err, "special token and other text");
    REQUIRE_OK(weft_stops_add_text(&stops, tok, "f", "k", "<|end|>", &err),
               err);
    REQUIRE_OK(weft_stops_add_text(&stops, tok, "f", "k", "a<", &err), err);
    CHECK(stops.n_ids == 1 && stops.id[0] == 3 && stops.text.n == 1);
    weft_stops_release(&stops);
    weft_tokenizer_free(tok);
    const char *data = getenv("WEFT_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer/qwen2.json", data ? data : ".");
    REQUIRE_OK(weft_tokenizer_open(path, &tok, &err), err);
    stops = (struct weft_stops){.n_ids = 0};
    REQUIRE_OK(weft_stops_add_text(&stops, tok, "f", "k", "e\xcc\x81", &err),
               err);
    CHECK_STR(stops.text.text[0], "e\xcc\x81");
    weft_stops_release(&stops);
    weft_tokenizer_free(tok);
}

/* All that may be named ends a response: as many ids as a model has, the end of
 * a turn, and special tokens. */
static void test_many_ids(void)
{
    char token[3][TOKEN + 1] = {"a", "b", "c"};
    struct weft_tokenizer *tok = open_tokens(3, token);
    struct weft_stops stops = {.n_ids = 0};
    struct weft_gen_args args;
    for (int32_t i = 0; i <= WEFT_MAX_EOS; i++) {
        weft_stops_add_id(&stops, 100 + i);
        weft_stops_add_id(&stops, 100 + i / 2);
    }
    REQUIRE_OK(weft_stops_add_text(&stops, tok, "f", "k", "<|end|>", &err),
               err);
    weft_stops_set(&stops, &args);
    CHECK_INT(args.n_stop, WEFT_MAX_EOS + 2);
    for (int32_t i = 0; i <= WEFT_MAX_EOS; i++)
        CHECK(weft_k_is_end(args.n_stop, args.stop, 100 + i));
    CHECK(weft_k_is_end(args.n_stop, args.stop, 3));
    CHECK(!weft_k_is_end(args.n_stop, args.stop, 101 + WEFT_MAX_EOS));
    weft_stops_release(&stops);
    weft_tokenizer_free(tok);
}

WEFT_TESTS("lm/stops", {"test_spelled", test_spelled},
           {"test_others", test_others}, {"test_many_ids", test_many_ids})
