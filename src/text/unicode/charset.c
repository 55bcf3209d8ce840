/* SPDX-License-Identifier: Apache-2.0 */
#include "text/unicode/charset.h"

#include "base/alloc.h"
#include "text/unicode/unicode.h"
#include "text/unicode/tables.h"

#include <stdlib.h>
#include <string.h>

enum { LAST = 0x10ffff };

/* ---- Sets ------------------------------------------------------------- */

void weft_charset_release(struct weft_charset *set)
{
    weft_free(set->range);
    *set = (struct weft_charset){0};
}

static int push(struct weft_charset *set, uint32_t first, uint32_t last,
                struct weft_err *err)
{
    if (set->n == set->capacity) {
        size_t capacity = 2 * set->capacity + 8;
        struct weft_char_range *range = weft_realloc(set->range, capacity,
                                                     sizeof *range);
        if (!range)
            return weft_err_nomem(err, "a set of characters",
                                  capacity * sizeof *range);
        set->range = range;
        set->capacity = capacity;
    }
    set->range[set->n++] = (struct weft_char_range){first, last};
    return 0;
}

int weft_charset_add(struct weft_charset *set, uint32_t first, uint32_t last,
                     struct weft_err *err)
{
    size_t from = set->n, to;
    weft_assert(first <= last && last <= LAST);
    /* Ranges from..to - 1 overlap or touch; new ones come mostly last. */
    while (from > 0 && set->range[from - 1].last + 1 >= first)
        from--;
    for (to = from; to < set->n && set->range[to].first <= last + 1; to++)
        ;
    if (from == to) { /* none: make room for one */
        int rc = push(set, first, last, err);
        if (rc)
            return rc;
        memmove(set->range + from + 1, set->range + from,
                (set->n - 1 - from) * sizeof *set->range);
        set->range[from] = (struct weft_char_range){first, last};
        return 0;
    }
    struct weft_char_range *joined = &set->range[from];
    joined->last = set->range[to - 1].last;
    joined->first = joined->first < first ? joined->first : first;
    joined->last = joined->last > last ? joined->last : last;
    memmove(joined + 1, set->range + to, (set->n - to) * sizeof *joined);
    set->n -= to - from - 1;
    return 0;
}

int weft_charset_add_all(struct weft_charset *set,
                         const struct weft_charset *other,
                         struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < other->n && !rc; i++)
        rc = weft_charset_add(set, other->range[i].first,
                              other->range[i].last, err);
    return rc;
}

int weft_charset_invert(struct weft_charset *set, struct weft_err *err)
{
    struct weft_charset out = {0};
    uint32_t next = 0;
    int rc = 0;
    for (size_t i = 0; i < set->n && !rc; i++) {
        if (set->range[i].first > next)
            rc = push(&out, next, set->range[i].first - 1, err);
        next = set->range[i].last + 1;
    }
    if (!rc && next <= LAST)
        rc = push(&out, next, LAST, err);
    if (rc) {
        weft_charset_release(&out);
        return rc;
    }
    weft_charset_release(set);
    *set = out;
    return 0;
}

/* a and b: not (not a or not b) */
int weft_charset_intersect(struct weft_charset *set,
                           const struct weft_charset *other,
                           struct weft_err *err)
{
    struct weft_charset not_other = {0};
    int rc = weft_charset_add_all(&not_other, other, err);
    if (!rc)
        rc = weft_charset_invert(&not_other, err);
    if (!rc)
        rc = weft_charset_invert(set, err);
    if (!rc)
        rc = weft_charset_add_all(set, &not_other, err);
    if (!rc)
        rc = weft_charset_invert(set, err);
    weft_charset_release(&not_other);
    return rc;
}

/* ---- Properties ------------------------------------------------------- */

static const struct {
    const char *name, *long_name;
    uint8_t first, last; /* categories */
} GROUPS[] = {
    {"l", "letter", WEFT_LU, WEFT_LO},
    {"lc", "casedletter", WEFT_LU, WEFT_LT},
    {"lu", "uppercaseletter", WEFT_LU, WEFT_LU},
    {"ll", "lowercaseletter", WEFT_LL, WEFT_LL},
    {"lt", "titlecaseletter", WEFT_LT, WEFT_LT},
    {"lm", "modifierletter", WEFT_LM, WEFT_LM},
    {"lo", "otherletter", WEFT_LO, WEFT_LO},
    {"m", "mark", WEFT_MN, WEFT_ME},
    {"mn", "nonspacingmark", WEFT_MN, WEFT_MN},
    {"mc", "spacingmark", WEFT_MC, WEFT_MC},
    {"me", "enclosingmark", WEFT_ME, WEFT_ME},
    {"n", "number", WEFT_ND, WEFT_NO},
    {"nd", "decimalnumber", WEFT_ND, WEFT_ND},
    {"nl", "letternumber", WEFT_NL, WEFT_NL},
    {"no", "othernumber", WEFT_NO, WEFT_NO},
    {"p", "punctuation", WEFT_PC, WEFT_PO},
    {"pc", "connectorpunctuation", WEFT_PC, WEFT_PC},
    {"pd", "dashpunctuation", WEFT_PD, WEFT_PD},
    {"ps", "openpunctuation", WEFT_PS, WEFT_PS},
    {"pe", "closepunctuation", WEFT_PE, WEFT_PE},
    {"pi", "initialpunctuation", WEFT_PI, WEFT_PI},
    {"pf", "finalpunctuation", WEFT_PF, WEFT_PF},
    {"po", "otherpunctuation", WEFT_PO, WEFT_PO},
    {"s", "symbol", WEFT_SM, WEFT_SO},
    {"sm", "mathsymbol", WEFT_SM, WEFT_SM},
    {"sc", "currencysymbol", WEFT_SC, WEFT_SC},
    {"sk", "modifiersymbol", WEFT_SK, WEFT_SK},
    {"so", "othersymbol", WEFT_SO, WEFT_SO},
    {"z", "separator", WEFT_ZS, WEFT_ZP},
    {"zs", "spaceseparator", WEFT_ZS, WEFT_ZS},
    {"zl", "lineseparator", WEFT_ZL, WEFT_ZL},
    {"zp", "paragraphseparator", WEFT_ZP, WEFT_ZP},
    {"c", "other", WEFT_CC, WEFT_CN},
    {"cc", "control", WEFT_CC, WEFT_CC},
    {"cf", "format", WEFT_CF, WEFT_CF},
    {"cs", "surrogate", WEFT_CS, WEFT_CS},
    {"co", "privateuse", WEFT_CO, WEFT_CO},
    {"cn", "unassigned", WEFT_CN, WEFT_CN},
    {"any", "any", WEFT_LU, WEFT_CN},
};

/* Adds the runs whose value is within first..last. */
static int add_runs(struct weft_charset *set, const uint32_t *run, size_t n,
                    unsigned first, unsigned last, struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        unsigned value = run[i] & 0xff;
        uint32_t end = i + 1 < n ? (run[i + 1] >> 8) - 1 : LAST;
        if (value >= first && value <= last)
            rc = weft_charset_add(set, run[i] >> 8, end, err);
    }
    return rc;
}

static int add_categories(struct weft_charset *set, unsigned first,
                          unsigned last, struct weft_err *err)
{
    return add_runs(set, weft_unicode_category, weft_unicode_n_category,
                    first, last, err);
}

int weft_charset_add_property(struct weft_charset *set, const char *name,
                              size_t n, struct weft_err *err)
{
    char plain[32];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == ' ' || name[i] == '_' || name[i] == '-')
            continue;
        if (at + 1 == sizeof plain)
            return 1;
        plain[at++] = (char) (name[i] >= 'A' && name[i] <= 'Z'
                                  ? name[i] - 'A' + 'a'
                                  : name[i]);
    }
    plain[at] = 0;
    for (size_t i = 0; i < WEFT_COUNT(GROUPS); i++)
        if (strcmp(plain, GROUPS[i].name) == 0
            || strcmp(plain, GROUPS[i].long_name) == 0)
            return add_categories(set, GROUPS[i].first, GROUPS[i].last, err);
    for (unsigned i = 0; i < weft_unicode_n_script_names; i++)
        if (strcmp(plain, weft_unicode_script_name[i].name) == 0
            || strcmp(plain, weft_unicode_script_name[i].code) == 0)
            return add_runs(set, weft_unicode_script, weft_unicode_n_script,
                            i + 1, i + 1, err);
    return 1;
}

int weft_charset_add_class(struct weft_charset *set, char name,
                           struct weft_err *err)
{
    static const struct weft_char_range space[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0x85, 0x85},
        {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
        {0x3000, 0x3000}};
    /* Letters in circles and squares count as alphabetic. */
    static const struct weft_char_range boxed[] = {{0x24b6, 0x24e9},
                                                   {0x1f130, 0x1f149},
                                                   {0x1f150, 0x1f169},
                                                   {0x1f170, 0x1f189}};
    int rc = 0;
    if (name == 's') {
        for (size_t i = 0; i < WEFT_COUNT(space) && !rc; i++)
            rc = weft_charset_add(set, space[i].first, space[i].last, err);
        return rc;
    }
    if (name == 'd')
        return add_categories(set, WEFT_ND, WEFT_ND, err);
    weft_assert(name == 'w');
    rc = add_categories(set, WEFT_LU, WEFT_NL, err);
    if (!rc)
        rc = add_categories(set, WEFT_PC, WEFT_PC, err);
    for (size_t i = 0; i < WEFT_COUNT(boxed) && !rc; i++)
        rc = weft_charset_add(set, boxed[i].first, boxed[i].last, err);
    return rc;
}

/* ---- Alphabets -------------------------------------------------------- */

enum { BLOCK = 256, BLOCKS = (LAST + 1) / BLOCK, MOST_CLASSES = 254 };

struct weft_alphabet {
    uint16_t block[BLOCKS]; /* of a character's upper bits */
    size_t n_blocks;
    unsigned char (*byte)[BLOCK]; /* (n_blocks) */
};

/* Code points between two neighbouring bounds belong to the same sets. */
struct division {
    uint32_t *bound; /* (n + 1) from 0 to LAST + 1 */
    uint8_t *class;  /* (n) of the code points from bound i on */
    size_t n;
    int n_classes;
};

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

static int find_bounds(struct division *d, const struct weft_charset *set,
                       size_t n, struct weft_err *err)
{
    size_t most = 4, at = 0, kept = 0;
    for (size_t i = 0; i < n; i++)
        most += 2 * set[i].n;
    d->bound = weft_alloc(most, sizeof *d->bound);
    d->class = weft_alloc(most, sizeof *d->class);
    if (!d->bound || !d->class)
        return weft_err_nomem(err, "a pattern", most * 5);
    d->bound[at++] = 0;
    d->bound[at++] = '\n';
    d->bound[at++] = '\n' + 1;
    d->bound[at++] = LAST + 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < set[i].n; k++) {
            d->bound[at++] = set[i].range[k].first;
            d->bound[at++] = set[i].range[k].last + 1;
        }
    qsort(d->bound, at, sizeof *d->bound, compare);
    for (size_t i = 0; i < at; i++)
        if (i == 0 || d->bound[i] != d->bound[kept - 1])
            d->bound[kept++] = d->bound[i];
    d->n = kept - 1;
    d->n_classes = 1;
    return 0;
}

/* Parts each class into what is in the set and what is not. False: there are
 * too many. */
static bool divide(struct division *d, const struct weft_charset *set)
{
    int16_t part[MOST_CLASSES][2];
    size_t k = 0;
    memset(part, -1, sizeof part);
    d->n_classes = 0;
    for (size_t i = 0; i < d->n; i++) {
        while (k < set->n && set->range[k].last < d->bound[i])
            k++;
        bool in = k < set->n && set->range[k].first <= d->bound[i];
        int16_t *to = &part[d->class[i]][in];
        if (*to < 0) {
            if (d->n_classes == MOST_CLASSES)
                return false;
            *to = (int16_t) d->n_classes++;
        }
        d->class[i] = (uint8_t) *to;
    }
    return true;
}

/* Numbers classes so that the line feed's is 10 and none is 0. */
static void number_bytes(struct division *d)
{
    uint8_t byte[MOST_CLASSES], next = 1, feed = 0;
    for (size_t i = 0; i < d->n; i++)
        if (d->bound[i] == '\n')
            feed = d->class[i];
    for (int c = 0; c < d->n_classes; c++) {
        next = next == '\n' ? '\n' + 1 : next;
        byte[c] = c == feed ? '\n' : next++;
    }
    for (size_t i = 0; i < d->n; i++)
        d->class[i] = byte[d->class[i]];
}

/* Blocks of one class are shared. */
static int fill(struct weft_alphabet *a, const struct division *d,
                struct weft_err *err)
{
    uint16_t uniform[256];
    size_t most = 2 * d->n + 1, at = 0;
    memset(uniform, 0xff, sizeof uniform);
    most = most < BLOCKS ? most : BLOCKS;
    a->byte = weft_alloc(most, sizeof *a->byte);
    if (!a->byte)
        return weft_err_nomem(err, "a pattern", most * sizeof *a->byte);
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t first = b * BLOCK, last = first + BLOCK - 1;
        while (d->bound[at + 1] <= first)
            at++;
        bool whole = d->bound[at + 1] > last;
        uint16_t *shared = &uniform[d->class[at]];
        if (whole && *shared != UINT16_MAX) {
            a->block[b] = *shared;
            continue;
        }
        weft_assert(a->n_blocks < most);
        a->block[b] = (uint16_t) a->n_blocks;
        if (whole)
            *shared = (uint16_t) a->n_blocks;
        unsigned char *byte = a->byte[a->n_blocks++];
        size_t i = at;
        for (uint32_t c = first; c <= last; c++) {
            while (d->bound[i + 1] <= c)
                i++;
            byte[c - first] = d->class[i];
        }
    }
    return 0;
}

static void find_members(const struct division *d,
                         const struct weft_charset *set, bool member[256])
{
    size_t k = 0;
    for (size_t i = 0; i < d->n; i++) {
        while (k < set->n && set->range[k].last < d->bound[i])
            k++;
        if (k < set->n && set->range[k].first <= d->bound[i])
            member[d->class[i]] = true;
    }
}

int weft_alphabet_create(const struct weft_charset *set, size_t n,
                         struct weft_alphabet **out, bool (**member_out)[256],
                         struct weft_err *err)
{
    struct weft_char_range feed = {'\n', '\n'};
    const struct weft_charset feed_set = {&feed, 1, 1};
    struct division d = {0};
    struct weft_alphabet *a = weft_alloc(1, sizeof *a);
    bool(*member)[256] = weft_alloc(n, sizeof *member);
    int rc = a && member ? find_bounds(&d, set, n, err)
                         : weft_err_nomem(err, "a pattern", n * 256);
    bool fits = !rc && divide(&d, &feed_set);
    for (size_t i = 0; i < n && fits; i++)
        fits = divide(&d, &set[i]);
    if (fits) {
        number_bytes(&d);
        rc = fill(a, &d, err);
        for (size_t i = 0; i < n; i++)
            find_members(&d, &set[i], member[i]);
    } else if (!rc) {
        rc = 1;
    }
    weft_free(d.bound);
    weft_free(d.class);
    if (rc) {
        weft_free(member);
        weft_alphabet_free(a);
        return rc;
    }
    *out = a;
    *member_out = member;
    return 0;
}

void weft_alphabet_free(struct weft_alphabet *a)
{
    if (!a)
        return;
    weft_free(a->byte);
    weft_free(a);
}

size_t weft_alphabet_spell(const struct weft_alphabet *a, const char *text,
                           size_t n, unsigned char *out)
{
    const unsigned char *low = a->byte[a->block[0]];
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        unsigned char b = (unsigned char) text[i];
        if (b < 0x80) {
            out[at++] = low[b];
            i++;
            continue;
        }
        uint32_t c = 0xfffd;
        int length = weft_utf8_next(text + i, n - i, &c);
        i += (size_t) (length > 0 ? length : -length);
        out[at++] = a->byte[a->block[c / BLOCK]][c % BLOCK];
    }
    return at;
}
