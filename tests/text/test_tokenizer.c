/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers against Hugging Face's library: tests/data/tokenizer. */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* ---- Goldens ---------------------------------------------------------- */

static uint64_t fnv(const void *data, size_t n, uint64_t h)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static const uint64_t FNV_START = 0xcbf29ce484222325u;

static unsigned fold(uint64_t h)
{
    return (unsigned) (h ^ h >> 32);
}

static json_t *goldens(void)
{
    struct weft_err err = {0};
    json_t *root = NULL;
    REQUIRE_OK(weft_json_read(weft_test_data("tokenizer/goldens.json"), 0,
                              &root, &err),
               err);
    return root;
}

static struct weft_tokenizer *open_tokenizer(const char *name)
{
    struct weft_err err = {0};
    struct weft_tokenizer *tok = NULL;
    char path[256];
    snprintf(path, sizeof path, "tokenizer/%s", name);
    REQUIRE_OK(weft_tokenizer_open(weft_test_data(path), &tok, &err), err);
    return tok;
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Text i of the goldens: plain, repeated, or bytes. Caller frees. */
static char *golden_text(const json_t *root, size_t i, size_t *n)
{
    const json_t *texts = json_object_get(root, "texts");
    const json_t *repeated = json_object_get(root, "repeated");
    const json_t *invalid = json_object_get(root, "invalid");
    if (i < json_array_size(texts)) {
        const json_t *t = json_array_get(texts, i);
        *n = json_string_length(t);
        return weft_strndup(json_string_value(t), *n);
    }
    i -= json_array_size(texts);
    if (i < json_array_size(repeated)) {
        const json_t *pair = json_array_get(repeated, i);
        const json_t *t = json_array_get(pair, 0);
        size_t one = json_string_length(t);
        size_t times = (size_t) json_integer_value(json_array_get(pair, 1));
        char *text = weft_alloc(one * times + 1, 1);
        for (size_t k = 0; k < times; k++)
            memcpy(text + k * one, json_string_value(t), one);
        *n = one * times;
        return text;
    }
    i -= json_array_size(repeated);
    if (i >= json_array_size(invalid))
        return NULL;
    const char *digits = json_string_value(json_array_get(invalid, i));
    *n = strlen(digits) / 2;
    char *text = weft_alloc(*n + 1, 1);
    for (size_t k = 0; k < *n; k++)
        text[k] = (char) (hex(digits[2 * k]) << 4 | hex(digits[2 * k + 1]));
    return text;
}

/* Word k of "a b c"; the only word stands for all. */
static unsigned golden_hash(const json_t *list, size_t i, int k, bool *none)
{
    const char *s = json_string_value(json_array_get(list, i));
    if (strchr(s, ' '))
        while (k-- > 0)
            s = strchr(s, ' ') + 1;
    *none = *s == '-';
    return (unsigned) strtoul(s, NULL, 16);
}

static void check_text(const struct weft_tokenizer *tok, const char *name,
                       const json_t *golden, size_t i, const char *text,
                       size_t n)
{
    static const unsigned flags[] = {0, WEFT_TOK_SPECIAL,
                                     WEFT_TOK_SPECIAL | WEFT_TOK_ADD_BOS};
    const json_t *hash = json_object_get(golden, "hash");
    const json_t *decoded = json_object_get(golden, "decoded");
    const json_t *ids = json_object_get(golden, "ids");
    struct weft_err err = {0};
    for (int k = 0; k < 3; k++) {
        int32_t *id = NULL;
        size_t n_ids = 0, j;
        bool none;
        unsigned wanted = golden_hash(hash, i, k, &none);
        REQUIRE_OK(
            weft_tokenizer_encode(tok, text, n, flags[k], &id, &n_ids, &err),
            err);
        const json_t *list = json_array_get(ids, 3 * i + (size_t) k), *item;
        if (list && !none) {
            CHECK_INT(n_ids, json_array_size(list));
            json_array_foreach(list, j, item) if (j < n_ids)
                CHECK_INT(id[j], json_integer_value(item));
        }
        unsigned got = fold(fnv(id, n_ids * sizeof *id, FNV_START));
        if (!none && got != wanted)
            printf("\n    %s: text %zu, flags %u differ\n", name, i,
                   flags[k]);
        CHECK(none || got == wanted);
        for (int skip = 0; k == 2 && skip < 2 && !none; skip++) {
            char *back = NULL;
            size_t n_back = 0;
            bool no;
            REQUIRE_OK(weft_tokenizer_decode(tok, id, n_ids, skip, &back,
                                             &n_back, &err),
                       err);
            wanted = golden_hash(decoded, i, skip, &no);
            got = fold(fnv(back, n_back, FNV_START));
            if (got != wanted)
                printf("\n    %s: text %zu decodes to '%s'\n", name, i, back);
            CHECK(got == wanted);
            CHECK_INT(back[n_back], 0);
            weft_free(back);
        }
        weft_free(id);
    }
}

static void test_tokenizer_encode_goldens(void)
{
    json_t *root = goldens(), *golden;
    const char *name;
    int checked = 0;
    json_object_foreach(json_object_get(root, "tokenizers"), name, golden)
    {
        struct weft_tokenizer *tok = open_tokenizer(name);
        char *text;
        size_t n = 0, i = 0;
        CHECK_INT(weft_tokenizer_size(tok),
                  json_integer_value(json_object_get(golden, "size")));
        for (; (text = golden_text(root, i, &n)); i++) {
            check_text(tok, name, golden, i, text, n);
            weft_free(text);
            checked++;
        }
        CHECK_INT(i, json_array_size(json_object_get(golden, "hash")));
        weft_tokenizer_free(tok);
    }
    CHECK(checked > 2000);
    json_decref(root);
}

static void test_tokenizer_decode_goldens(void)
{
    json_t *root = goldens(), *golden, *c, *item;
    const char *name;
    struct weft_err err = {0};
    size_t i, j;
    json_object_foreach(json_object_get(root, "tokenizers"), name, golden)
    {
        struct weft_tokenizer *tok = open_tokenizer(name);
        json_array_foreach(json_object_get(golden, "decode"), i, c)
        {
            int32_t ids[64];
            json_array_foreach(json_array_get(c, 0), j, item)
                ids[j] = (int32_t) json_integer_value(item);
            for (int skip = 0; skip < 2; skip++) {
                const json_t *wanted = json_array_get(c, 1 + (size_t) skip);
                char *text = NULL;
                size_t n = 0;
                REQUIRE_OK(
                    weft_tokenizer_decode(tok, ids, j, skip, &text, &n, &err),
                    err);
                CHECK_INT(n, json_string_length(wanted));
                CHECK_STR(text, json_string_value(wanted));
                weft_free(text);
            }
        }
        weft_tokenizer_free(tok);
    }
    json_decref(root);
}

/* ---- All characters --------------------------------------------------- */

static size_t put(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char) (0x80 | (c & 0x3f));
    out[0] = (char) ((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

/* "a%sb %s1%s\n%s'%ss" */
static size_t put_around(char *out, uint32_t c)
{
    static const char *const around[] = {"a", "b ", "1", "\n", "'", "s"};
    size_t at = 0;
    for (int i = 0; i < 6; i++) {
        size_t n = strlen(around[i]);
        memcpy(out + at, around[i], n);
        at += n;
        if (i < 5)
            at += put(out + at, c);
    }
    return at;
}

static uint64_t encode_hash(const struct weft_tokenizer *tok,
                            const char *text, size_t n, uint64_t h)
{
    struct weft_err err = {0};
    int32_t *id = NULL;
    size_t n_ids = 0;
    REQUIRE_OK(weft_tokenizer_encode(tok, text, n, WEFT_TOK_SPECIAL, &id,
                                     &n_ids, &err),
               err);
    h = fnv(id, n_ids * sizeof *id, h);
    weft_free(id);
    return h;
}

static void test_tokenizer_encode_planes(void)
{
    json_t *root = goldens(), *golden, *range;
    const char *name;
    int checked = 0;
    json_object_foreach(json_object_get(root, "tokenizers"), name, golden)
    {
        const char *wanted = json_string_value(
            json_object_get(golden, "planes"));
        if (!wanted)
            continue;
        struct weft_tokenizer *tok = open_tokenizer(name);
        uint64_t h = FNV_START;
        char text[64 * 32], digits[16];
        size_t at = 0, i;
        int in_text = 0;
        json_array_foreach(json_object_get(root, "assigned"), i, range)
        {
            uint32_t last = (uint32_t) json_integer_value(
                json_array_get(range, 1));
            uint32_t c = (uint32_t) json_integer_value(
                json_array_get(range, 0));
            for (; c <= last; c++) {
                at += put_around(text + at, c);
                if (++in_text == 64) {
                    h = encode_hash(tok, text, at, h);
                    at = 0;
                    in_text = 0;
                }
            }
        }
        if (in_text)
            h = encode_hash(tok, text, at, h);
        snprintf(digits, sizeof digits, "%08x", fold(h));
        CHECK_STR(digits, wanted);
        weft_tokenizer_free(tok);
        checked++;
    }
    CHECK_INT(checked, 5);
    json_decref(root);
}

/* ---- Patterns --------------------------------------------------------- */

/* gpt2.json with another pattern in front of its ByteLevel. */
static struct weft_tokenizer *with_pattern(const json_t *gpt2,
                                           const char *pattern)
{
    struct weft_err err = {0};
    struct weft_tokenizer *tok = NULL;
    json_t *root = json_copy((json_t *) (uintptr_t) gpt2);
    json_t *pre = json_pack(
        "{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, {s:s, s:b, s:b}]}", "type",
        "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
        pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
        "add_prefix_space", 0, "use_regex", 0);
    REQUIRE(root && pre);
    json_object_set_new(root, "pre_tokenizer", pre);
    char *text = json_dumps(root, 0);
    REQUIRE_OK(weft_tokenizer_parse(text, strlen(text), pattern, &tok, &err),
               err);
    free(text);
    json_decref(root);
    return tok;
}

static void test_tokenizer_encode_patterns(void)
{
    json_t *root = goldens(), *gpt2 = NULL, *pair, *item;
    struct weft_err err = {0};
    size_t i, j;
    REQUIRE_OK(
        weft_json_read(weft_test_data("tokenizer/gpt2.json"), 0, &gpt2, &err),
        err);
    json_array_foreach(json_object_get(root, "patterns"), i, pair)
    {
        const char *pattern = json_string_value(json_array_get(pair, 0));
        struct weft_tokenizer *tok = with_pattern(gpt2, pattern);
        uint64_t h = FNV_START;
        char digits[16];
        json_array_foreach(json_object_get(root, "texts"), j, item)
            h = encode_hash(tok, json_string_value(item),
                            json_string_length(item), h);
        snprintf(digits, sizeof digits, "%08x", fold(h));
        if (strcmp(digits, json_string_value(json_array_get(pair, 1))) != 0)
            printf("\n    pattern %s\n", pattern);
        CHECK_STR(digits, json_string_value(json_array_get(pair, 1)));
        weft_tokenizer_free(tok);
    }
    CHECK(i > 20);
    json_decref(gpt2);
    json_decref(root);
}

/* ---- Questions -------------------------------------------------------- */

static void test_tokenizer_find(void)
{
    struct weft_tokenizer *tok = open_tokenizer("qwen2.json");
    int32_t im_start = weft_tokenizer_find(tok, "<|im_start|>");
    int32_t think = weft_tokenizer_find(tok, "<think>");
    CHECK(im_start > 0);
    CHECK(weft_tokenizer_is_special(tok, im_start));
    CHECK_STR(weft_tokenizer_content(tok, im_start), "<|im_start|>");
    CHECK(think > 0);
    CHECK(!weft_tokenizer_is_special(tok, think));
    CHECK_INT(weft_tokenizer_find(tok, "<|nothing|>"), -1);
    CHECK_INT(weft_tokenizer_find(tok, ""), -1);
    int32_t blank = weft_tokenizer_find(tok, "\xc4\xa0"); /* U+0120 */
    CHECK(blank >= 0);
    CHECK_STR(tok->token[blank].bytes, " ");
    CHECK_INT(tok->token[blank].n_bytes, 1);
    CHECK(!weft_tokenizer_content(tok, -1));
    CHECK(!weft_tokenizer_content(tok, weft_tokenizer_size(tok)));
    CHECK(!weft_tokenizer_is_special(tok, -1));
    weft_tokenizer_free(tok);
    weft_tokenizer_free(NULL);
}

static void test_tokenizer_decode_edges(void)
{
    struct weft_tokenizer *tok = open_tokenizer("gpt2.json");
    struct weft_err err = {0};
    char *text = NULL;
    size_t n = 7;
    REQUIRE_OK(weft_tokenizer_decode(tok, NULL, 0, false, &text, &n, &err),
               err);
    CHECK_INT(n, 0);
    CHECK_STR(text, "");
    weft_free(text);
    const int32_t bad[] = {1, -2}, beyond[] = {INT32_MAX, 1 << 22};
    CHECK_FAILS(weft_tokenizer_decode(tok, bad, 2, false, &text, &n, &err),
                WEFT_EINVAL, err, "token 1 has the id -2");
    REQUIRE_OK(weft_tokenizer_decode(tok, beyond, 2, false, &text, &n, &err),
               err);
    CHECK_STR(text, "");
    weft_free(text);
    weft_tokenizer_free(tok);
}

/* ---- Bytes ------------------------------------------------------------ */

static void test_tokenizer_write_bytes(void)
{
    static const char *const special[] = {"<|endoftext|>", "<|im_end|>"};
    char path[] = "/tmp/weft-test-tokenizer-XXXXXX";
    struct weft_tokenizer *tok = NULL;
    struct weft_err err = {0};
    unsigned char all[256];
    int32_t *id = NULL;
    size_t n = 0;
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    REQUIRE_OK(weft_tokenizer_write_bytes(path, special, 2, &err), err);
    REQUIRE_OK(weft_tokenizer_open(path, &tok, &err), err);
    CHECK_INT(weft_tokenizer_size(tok), 258);
    CHECK_INT(weft_tokenizer_find(tok, "<|im_end|>"), 257);
    CHECK(weft_tokenizer_is_special(tok, 256));
    for (int b = 0; b < 256; b++) {
        CHECK_INT(tok->token[b].n_bytes, 1);
        CHECK_INT((unsigned char) tok->token[b].bytes[0], b);
    }
    for (int b = 0; b < 128; b++)
        all[b] = (unsigned char) b;
    REQUIRE_OK(
        weft_tokenizer_encode(tok, (char *) all, 128, 0, &id, &n, &err), err);
    CHECK_INT(n, 128);
    for (size_t i = 0; i < n; i++)
        CHECK_INT(id[i], i);
    weft_free(id);
    REQUIRE_OK(weft_tokenizer_encode(tok, "\xc3\xa9<|endoftext|>", 15,
                                     WEFT_TOK_SPECIAL | WEFT_TOK_ADD_BOS, &id,
                                     &n, &err),
               err);
    CHECK_INT(n, 3);
    CHECK_INT(id[0], 0xc3);
    CHECK_INT(id[2], 256);
    weft_free(id);
    weft_tokenizer_free(tok);
    unlink(path);

    static const char *const twice[] = {"<a>", "<a>"}, *const one[] = {"a"};
    static const char *const symbol[] = {"\xc4\xa0"};
    CHECK_FAILS(weft_tokenizer_write_bytes(path, twice, 2, &err), WEFT_EINVAL,
                err, "'<a>' is given twice");
    CHECK_FAILS(weft_tokenizer_write_bytes(path, one, 1, &err), WEFT_EINVAL,
                err, "'a' is too short");
    CHECK_FAILS(weft_tokenizer_write_bytes(path, symbol, 1, &err),
                WEFT_EINVAL, err, "cannot be one");
    CHECK(access(path, F_OK) != 0);
}

/* ---- Size and threads ------------------------------------------------- */

/* Of this thread alone: what others take does not count. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

/* A mebibyte of one letter, of blanks, of marks in the worst order, of
 * words: far from quadratic. The bound is generous: sanitizers. */
static void test_tokenizer_encode_long(void)
{
    static const char *const units[] = {"a",
                                        " ",
                                        "\xcc\x96\xcc\x81",
                                        "the quick brown fox, 12345\n",
                                        "\xe6\x97\xa5",
                                        "'",
                                        "\n"};
    enum { BYTES = 1 << 20 };
    struct weft_tokenizer *tok = open_tokenizer("qwen2.json");
    struct weft_err err = {0};
    char *text = weft_alloc(BYTES + 64, 1), *back = NULL;
    REQUIRE(text != NULL);
    for (size_t u = 0; u < WEFT_COUNT(units); u++) {
        size_t one = strlen(units[u]), n = 0, n_ids = 0, n_back = 0;
        int32_t *id = NULL;
        while (n < BYTES) {
            memcpy(text + n, units[u], one);
            n += one;
        }
        double start = cpu_seconds();
        REQUIRE_OK(weft_tokenizer_encode(tok, text, n, WEFT_TOK_SPECIAL, &id,
                                         &n_ids, &err),
                   err);
        double took = cpu_seconds() - start;
        if (took > 20)
            printf("\n    1 MiB of unit %zu took %.1f s\n", u, took);
        CHECK(took < 20);
        REQUIRE_OK(weft_tokenizer_decode(tok, id, n_ids, false, &back,
                                         &n_back, &err),
                   err);
        CHECK_INT(n_back, n);
        if (u != 2) /* that one is not in normal form */
            CHECK(n_back == n && memcmp(back, text, n) == 0);
        weft_free(id);
        weft_free(back);
    }
    weft_free(text);
    weft_tokenizer_free(tok);
}

struct worker {
    const struct weft_tokenizer *tok;
    const json_t *root;
    uint64_t hash;
    int rc;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    char *text;
    size_t n = 0;
    w->hash = FNV_START;
    for (size_t i = 0; (text = golden_text(w->root, i, &n)); i++) {
        int32_t *id = NULL;
        size_t n_ids = 0;
        w->rc |= weft_tokenizer_encode(w->tok, text, n, WEFT_TOK_SPECIAL, &id,
                                       &n_ids, NULL);
        w->hash = fnv(id, n_ids * sizeof *id, w->hash);
        weft_free(id);
        weft_free(text);
    }
    return NULL;
}

static void test_tokenizer_encode_threads(void)
{
    json_t *root = goldens();
    struct weft_tokenizer *tok = open_tokenizer("llama3.json");
    struct worker alone = {.tok = tok, .root = root}, w[4];
    pthread_t thread[4];
    work(&alone);
    for (int i = 0; i < 4; i++) {
        w[i] = (struct worker){.tok = tok, .root = root};
        REQUIRE(pthread_create(&thread[i], NULL, work, &w[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK_INT(w[i].rc, 0);
        CHECK(w[i].hash == alone.hash);
    }
    weft_tokenizer_free(tok);
    json_decref(root);
}

WEFT_TESTS("text/tokenizer",
           {"test_tokenizer_encode_goldens", test_tokenizer_encode_goldens},
           {"test_tokenizer_decode_goldens", test_tokenizer_decode_goldens},
           {"test_tokenizer_encode_planes", test_tokenizer_encode_planes},
           {"test_tokenizer_encode_patterns", test_tokenizer_encode_patterns},
           {"test_tokenizer_find", test_tokenizer_find},
           {"test_tokenizer_decode_edges", test_tokenizer_decode_edges},
           {"test_tokenizer_write_bytes", test_tokenizer_write_bytes},
           {"test_tokenizer_encode_long", test_tokenizer_encode_long},
           {"test_tokenizer_encode_threads", test_tokenizer_encode_threads})
