/* SPDX-License-Identifier: Apache-2.0 */
/* Upper and lower case of strings, as Python's. */
#include "text/jinja/impl.h"

#include "text/unicode/unicode.h"

struct range {
    uint32_t first, last, stride;
    int32_t difference;
};

#include "text/jinja/case_table.h"

enum { UPPER, LOWER, TITLE };

#define TABLE(range, several)                                                \
    {                                                                        \
        range, sizeof range / sizeof *range, several,                        \
            sizeof several / sizeof *several                                 \
    }

static const struct {
    const struct range *range;
    size_t n;
    const uint32_t *several; /* characters that become more than one */
    size_t n_several;
} TABLES[] = {[UPPER] = TABLE(TO_UPPER, SEVERAL_UPPER),
              [LOWER] = TABLE(TO_LOWER, SEVERAL_LOWER),
              [TITLE] = TABLE(TO_TITLE, SEVERAL_TITLE)};

static uint32_t change(struct weft_jstate *st, uint32_t c, int to)
{
    if (c < 128) {
        uint32_t low = c | 0x20;
        bool letter = low >= 'a' && low <= 'z';
        return !letter ? c : to == LOWER ? low : low - 0x20;
    }
    for (size_t i = 0; i < TABLES[to].n_several; i++)
        if (TABLES[to].several[i] == c)
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "Weft does not change the case of U+%04X", c);
    for (size_t i = 0; i < TABLES[to].n; i++) {
        const struct range *r = &TABLES[to].range[i];
        if (c >= r->first && c <= r->last && (c - r->first) % r->stride == 0)
            return (uint32_t) ((int32_t) c + r->difference);
    }
    return c;
}

static bool is_cased(struct weft_jstate *st, uint32_t c)
{
    return change(st, c, UPPER) != c || change(st, c, LOWER) != c;
}

/* What Jinja's |title splits words at. */
static bool is_word_break(uint32_t c)
{
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<'
        || weft_j_is_space(c);
}

struct weft_jvalue weft_j_case(struct weft_jstate *st, struct weft_str s,
                               enum weft_jcase to)
{
    struct weft_jout out = {0};
    bool begins = true;
    for (size_t i = 0; i < s.n;) {
        uint32_t c;
        char bytes[4];
        int n = weft_utf8_next(s.s + i, s.n - i, &c), how = LOWER;
        if (n < 0) {
            weft_j_add(st, &out, s.s + i, (size_t) -n);
            i += (size_t) -n;
            continue;
        }
        if (to == WEFT_JCASE_UPPER || (to == WEFT_JCASE_WORDS && begins))
            how = UPPER;
        else if (to != WEFT_JCASE_LOWER && begins)
            how = TITLE;
        weft_j_add(st, &out, bytes,
                   (size_t) weft_utf8_put(change(st, c, how), bytes));
        begins = to == WEFT_JCASE_TITLE ? !is_cased(st, c)
               : to == WEFT_JCASE_WORDS ? is_word_break(c)
                                        : false;
        i += (size_t) n;
    }
    weft_j_step(st, s.n / 16);
    return weft_j_taken(&out);
}
