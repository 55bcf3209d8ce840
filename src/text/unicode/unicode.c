/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode/unicode.h"

#include "base/alloc.h"
#include "text/unicode/tables.h"

#include <string.h>

/* ---- UTF-8 ------------------------------------------------------------ */

/* Which bytes may follow a lead byte: table 3-7 of the Unicode standard. */
int weft_utf8_next(const char *p, size_t n, uint32_t *out)
{
    const unsigned char *b = (const unsigned char *) p;
    unsigned char low = 0x80, high = 0xbf;
    uint32_t c;
    int length;
    if (b[0] < 0x80) {
        *out = b[0];
        return 1;
    }
    if (b[0] >= 0xc2 && b[0] <= 0xdf) {
        length = 2;
        c = b[0] & 0x1fu;
    } else if (b[0] >= 0xe0 && b[0] <= 0xef) {
        length = 3;
        c = b[0] & 0x0fu;
        low = b[0] == 0xe0 ? 0xa0 : 0x80;  /* overlong */
        high = b[0] == 0xed ? 0x9f : 0xbf; /* surrogates */
    } else if (b[0] >= 0xf0 && b[0] <= 0xf4) {
        length = 4;
        c = b[0] & 0x07u;
        low = b[0] == 0xf0 ? 0x90 : 0x80;
        high = b[0] == 0xf4 ? 0x8f : 0xbf; /* beyond U+10FFFF */
    } else {
        return -1;
    }
    for (int i = 1; i < length; i++) {
        if ((size_t) i >= n || b[i] < low || b[i] > high)
            return -i;
        c = c << 6 | (b[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *out = c;
    return length;
}

int weft_utf8_put(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char) (0xc0 | c >> 6);
        out[1] = (char) (0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char) (0xe0 | c >> 12);
        out[1] = (char) (0x80 | (c >> 6 & 0x3f));
        out[2] = (char) (0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char) (0xf0 | c >> 18);
    out[1] = (char) (0x80 | (c >> 12 & 0x3f));
    out[2] = (char) (0x80 | (c >> 6 & 0x3f));
    out[3] = (char) (0x80 | (c & 0x3f));
    return 4;
}

bool weft_utf8_valid(const char *p, size_t n)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int length = weft_utf8_next(p + i, n - i, &c);
        if (length < 0)
            return false;
        i += (size_t) length;
    }
    return true;
}

int weft_utf8_repair(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err)
{
    size_t total = 0, at = 0;
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int length = weft_utf8_next(p + i, n - i, &c);
        total += length < 0 ? 3 : (size_t) length;
        i += (size_t) (length < 0 ? -length : length);
    }
    char *text = weft_alloc(total + 1, 1);
    if (!text)
        return weft_err_nomem(err, "a text", total + 1);
    for (size_t i = 0; i < n;) {
        int length = weft_utf8_next(p + i, n - i, &c);
        if (length < 0) {
            memcpy(text + at, "\xef\xbf\xbd", 3);
            at += 3;
            i += (size_t) -length;
        } else {
            memcpy(text + at, p + i, (size_t) length);
            at += (size_t) length;
            i += (size_t) length;
        }
    }
    *out = text;
    *n_out = total;
    return 0;
}

/* ---- Classes ---------------------------------------------------------- */

bool weft_unicode_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0
        || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028
        || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Other_Alphabetic outside of marks: circled and squared letters. */
static bool is_boxed_letter(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149)
        || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool weft_unicode_is_word(uint32_t c)
{
    switch (weft_unicode_value(weft_unicode_category, weft_unicode_n_category,
                               c)) {
    case WEFT_LU:
    case WEFT_LL:
    case WEFT_LT:
    case WEFT_LM:
    case WEFT_LO:
    case WEFT_MN:
    case WEFT_MC:
    case WEFT_ME:
    case WEFT_ND:
    case WEFT_NL:
    case WEFT_PC:
        return true;
    default:
        return c == 0x200c || c == 0x200d || is_boxed_letter(c);
    }
}

/* ---- Normal form C ---------------------------------------------------- */

bool weft_unicode_nfc_quick(const char *p, size_t n)
{
    /* Below U+0300 every character is its own NFC and none combines. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char) p[i] >= 0xcc)
            return false;
    return true;
}

struct mark {
    uint32_t c;
    uint8_t class;
};

static uint8_t class_of(uint32_t c)
{
    if (c < 0x300) /* none combines */
        return 0;
    return weft_unicode_value(weft_unicode_combining,
                              weft_unicode_n_combining, c);
}

/* Puts a run of marks into canonical order by a counting sort, whose time is
 * linear in the run's length: a text may have very long runs. */
static int order_run(uint32_t *c, size_t n, struct mark **scratch,
                     size_t *capacity, struct weft_err *err)
{
    size_t count[256] = {0}, sum = 0;
    if (n > *capacity) {
        struct mark *more = weft_realloc(*scratch, n, sizeof *more);
        if (!more)
            return weft_err_nomem(err, "a text", n * sizeof *more);
        *scratch = more;
        *capacity = n;
    }
    struct mark *m = *scratch;
    for (size_t i = 0; i < n; i++) {
        m[i].c = c[i];
        m[i].class = class_of(c[i]);
        count[m[i].class]++;
    }
    for (int k = 0; k < 256; k++) {
        size_t here = count[k];
        count[k] = sum;
        sum += here;
    }
    for (size_t i = 0; i < n; i++)
        c[count[m[i].class]++] = m[i].c;
    return 0;
}

/* Puts the marks of every run into canonical order. */
static int order_marks(uint32_t *c, size_t n, struct weft_err *err)
{
    struct mark *scratch = NULL;
    size_t capacity = 0;
    int rc = 0;
    for (size_t i = 0; i < n && !rc;) {
        size_t end = i;
        while (end < n && class_of(c[end]) > 0)
            end++;
        if (end > i + 1)
            rc = order_run(c + i, end - i, &scratch, &capacity, err);
        i = end + 1;
    }
    weft_free(scratch);
    return rc;
}

enum { /* Hangul syllables: the Unicode standard, 3.12 */
       L_BASE = 0x1100,
       V_BASE = 0x1161,
       T_BASE = 0x11a7,
       S_BASE = 0xac00,
       N_L = 19,
       N_V = 21,
       N_T = 28,
       N_S = N_L * N_V * N_T
};

/* Writes what a character decomposes into in full, at most 4 (UAX 15), and
 * returns how many. */
static size_t decompose_one(uint32_t c, uint32_t *out)
{
    if (c >= S_BASE && c < S_BASE + N_S) {
        uint32_t s = c - S_BASE;
        out[0] = L_BASE + s / (N_V * N_T);
        out[1] = V_BASE + s / N_T % N_V;
        out[2] = T_BASE + s % N_T;
        return s % N_T > 0 ? 3 : 2;
    }
    const struct weft_unicode_pair *pair = weft_unicode_decomposed;
    size_t low = 0, high = weft_unicode_n_decomposed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pair[middle].c < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == weft_unicode_n_decomposed || pair[low].c != c) {
        out[0] = c;
        return 1;
    }
    size_t n = decompose_one(pair[low].first, out);
    if (pair[low].second)
        n += decompose_one(pair[low].second, out + n);
    return n;
}

/* Full canonical decomposition of n bytes into *out (caller frees). */
static int decompose(const char *p, size_t n, uint32_t **out, size_t *n_out,
                     struct weft_err *err)
{
    /* What decomposes has two bytes or more. */
    size_t capacity = 2 * n + 8, at = 0;
    uint32_t *c = weft_alloc(capacity, sizeof *c);
    if (!c)
        return weft_err_nomem(err, "a text", capacity * sizeof *c);
    for (size_t i = 0; i < n;) {
        uint32_t one = 0;
        int length = weft_utf8_next(p + i, n - i, &one);
        weft_assert(length > 0 && at + 4 < capacity);
        i += (size_t) length;
        if (one < 0xc0) /* none decomposes */
            c[at++] = one;
        else
            at += decompose_one(one, c + at);
    }
    *out = c;
    *n_out = at;
    return 0;
}

/* The character that two compose, or 0. */
static uint32_t compose_two(uint32_t a, uint32_t b)
{
    if (a - L_BASE < N_L && b - V_BASE < N_V)
        return S_BASE + ((a - L_BASE) * N_V + (b - V_BASE)) * N_T;
    if (a - S_BASE < N_S && (a - S_BASE) % N_T == 0 && b > T_BASE
        && b < T_BASE + N_T)
        return a + (b - T_BASE);
    size_t low = 0, high = weft_unicode_n_composed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct weft_unicode_pair *pair =
            &weft_unicode_decomposed[weft_unicode_composed[middle]];
        if (pair->first == a && pair->second == b)
            return pair->c;
        if (pair->first < a || (pair->first == a && pair->second < b))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Composes characters in canonical order in place; returns how many are
 * left. */
static size_t compose(uint32_t *c, size_t n)
{
    size_t at = 0, starter = SIZE_MAX;
    /* combining class of the last mark kept since the starter */
    uint8_t last = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t class = class_of(c[i]);
        bool next = starter != SIZE_MAX && starter + 1 == at;
        uint32_t both = 0;
        if (starter != SIZE_MAX && (next || last < class))
            both = compose_two(c[starter], c[i]);
        if (both) {
            c[starter] = both;
            continue;
        }
        if (class == 0)
            starter = at;
        last = class;
        c[at++] = c[i];
    }
    return at;
}

int weft_unicode_nfc(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err)
{
    uint32_t *c = NULL;
    size_t n_c = 0, at = 0;
    int rc = decompose(p, n, &c, &n_c, err);
    if (!rc)
        rc = order_marks(c, n_c, err);
    if (rc)
        goto out;
    n_c = compose(c, n_c);
    char *text = weft_alloc(4 * n_c + 1, 1);
    if (!text) {
        rc = weft_err_nomem(err, "a text", 4 * n_c + 1);
        goto out;
    }
    for (size_t i = 0; i < n_c; i++)
        at += (size_t) weft_utf8_put(c[i], text + at);
    *out = text;
    *n_out = at;
out:
    weft_free(c);
    return rc;
}
