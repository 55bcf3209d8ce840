/* SPDX-License-Identifier: Apache-2.0 */
#include "model/unicode.h"

#include "base/alloc.h"

#include <string.h>
#include <utf8proc.h>

/* ---- UTF-8 ------------------------------------------------------------ */

/* Table 3-7 of the Unicode standard: what may follow a lead byte. */
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

bool weft_unicode_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t) c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* Other_Alphabetic outside of marks: circled and squared letters. */
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9)
            || (c >= 0x1f130 && c <= 0x1f149)
            || (c >= 0x1f150 && c <= 0x1f169)
            || (c >= 0x1f170 && c <= 0x1f189);
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

/* Hugging Face's library normalises by the data of Unicode 9. Marks and pairs
 * that came later stay where they are; newer data would move them, and change
 * the tokens. Made by tests/data/tokenizer/list_new_marks.py. */
static const struct {
    uint32_t first, last;
} NEW_MARKS[] = {{0x5c8, 0x5c9},     {0x7fd, 0x7fd},     {0x897, 0x89f},
                 {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
                 {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
                 {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
                 {0x105c9, 0x105c9}, {0x105d2, 0x105d2}, {0x105da, 0x105da},
                 {0x105e4, 0x105e4}, {0x10d24, 0x10d27}, {0x10d69, 0x10d6d},
                 {0x10eab, 0x10eac}, {0x10ecb, 0x10ecf}, {0x10ef0, 0x10efb},
                 {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
                 {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11383, 0x11383},
                 {0x11385, 0x11385}, {0x1138e, 0x1138e}, {0x11391, 0x11391},
                 {0x113b8, 0x113b8}, {0x113bb, 0x113bb}, {0x113c2, 0x113c2},
                 {0x113c5, 0x113c5}, {0x113c7, 0x113c9}, {0x113ce, 0x113d0},
                 {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930},
                 {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
                 {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
                 {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
                 {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x1611e, 0x16129},
                 {0x1612f, 0x1612f}, {0x16d67, 0x16d6a}, {0x16ff0, 0x16ff1},
                 {0x1d127, 0x1d128}, {0x1d250, 0x1d252}, {0x1d25b, 0x1d25c},
                 {0x1d25f, 0x1d25f}, {0x1d280, 0x1d281}, {0x1e08f, 0x1e08f},
                 {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
                 {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}, {0x1e6e3, 0x1e6e3},
                 {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}};

static bool is_new_mark(uint32_t c)
{
    size_t low = 0, high = WEFT_COUNT(NEW_MARKS);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > NEW_MARKS[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < WEFT_COUNT(NEW_MARKS) && c >= NEW_MARKS[low].first;
}

struct mark {
    utf8proc_int32_t c;
    unsigned char class;
};

static unsigned char class_of(utf8proc_int32_t c)
{
    if (is_new_mark((uint32_t) c))
        return 0;
    return (unsigned char) utf8proc_get_property(c)->combining_class;
}

/* Canonical ordering by a counting sort per run of marks: utf8proc's own is
 * quadratic in the length of a run. */
static int order_run(utf8proc_int32_t *c, size_t n, struct mark **scratch,
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
static int order_marks(utf8proc_int32_t *c, size_t n, struct weft_err *err)
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

/* Full canonical decomposition of n bytes into *out (caller frees). */
static int decompose(const char *p, size_t n, utf8proc_int32_t **out,
                     size_t *n_out, struct weft_err *err)
{
    /* No character decomposes into more than 4 (UAX 15), and those that
     * decompose have two bytes or more; room for one more in place. */
    size_t capacity = 2 * n + 8, at = 0;
    utf8proc_int32_t *c = weft_alloc(capacity, sizeof *c);
    if (!c)
        return weft_err_nomem(err, "a text", capacity * sizeof *c);
    for (size_t i = 0; i < n;) {
        uint32_t one = 0;
        int length = weft_utf8_next(p + i, n - i, &one);
        int last = 0;
        weft_assert(length > 0 && at + 4 < capacity);
        i += (size_t) length;
        if (is_new_mark(one)) {
            c[at++] = (utf8proc_int32_t) one;
            continue;
        }
        utf8proc_ssize_t got = utf8proc_decompose_char(
            (utf8proc_int32_t) one, c + at,
            (utf8proc_ssize_t) (capacity - at), UTF8PROC_DECOMPOSE, &last);
        weft_assert(got >= 0 && at + (size_t) got <= capacity);
        at += (size_t) got;
    }
    *out = c;
    *n_out = at;
    return 0;
}

/* Composes what stands between new marks, in place; returns how many
 * characters are left. */
static size_t compose(utf8proc_int32_t *c, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && !is_new_mark((uint32_t) c[end]))
            end++;
        utf8proc_ssize_t got = utf8proc_normalize_utf32(
            c + i, (utf8proc_ssize_t) (end - i),
            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        weft_assert(got >= 0 && (size_t) got <= end - i);
        memmove(c + at, c + i, (size_t) got * sizeof *c);
        at += (size_t) got;
        if (end < n)
            c[at++] = c[end++];
        i = end;
    }
    return at;
}

int weft_unicode_nfc(const char *p, size_t n, char **out, size_t *n_out,
                     struct weft_err *err)
{
    utf8proc_int32_t *c = NULL;
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
        at += (size_t) weft_utf8_put((uint32_t) c[i], text + at);
    *out = text;
    *n_out = at;
out:
    weft_free(c);
    return rc;
}
