/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/pattern.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

enum { MAX_STEPS = 16 };

#define GPT2_PATTERN                                                         \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"     \
    "\\s+(?!\\S)|\\s+"

/* What a Split does with its matches; the names are Hugging Face's. */
enum behavior { ISOLATED, REMOVED, CONTIGUOUS, WITH_PREVIOUS, WITH_NEXT };

struct step {
    pcre2_code *code; /* NULL: prepend a space unless there is one */
    struct weft_pattern pattern;
    enum behavior behavior;
    bool invert; /* matches and the parts between them change roles */
};

struct weft_pretokenizer {
    int n_steps;
    struct step step[MAX_STEPS];
};

/* A text, written in bytes of a step's alphabet (text/pattern.h). */
struct spelling {
    unsigned char *byte;
    size_t n, capacity;
};

struct weft_pre_scratch {
    struct spelling step[MAX_STEPS];
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- Reading ---------------------------------------------------------- */

/* The state while steps are read. */
struct reading {
    struct weft_pretokenizer *pre;
    const char *subject;
    /* whether ByteLevel was read, which must be the last step */
    bool byte_level;
    struct weft_err *err;
};

static int compile(struct reading *r, const char *pattern, struct step *s)
{
    char message[128];
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return weft_err_nomem(r->err, "a pattern", 0);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    s->code = pcre2_compile((PCRE2_SPTR) s->pattern.bytes,
                            PCRE2_ZERO_TERMINATED, PCRE2_MULTILINE, &code,
                            &at, context);
    pcre2_compile_context_free(context);
    if (!s->code) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *) message,
                                sizeof message);
        return weft_err_set(r->err, WEFT_EFORMAT,
                            "%s: the regular expression '%.200s' is wrong: "
                            "%s",
                            r->subject, pattern, message);
    }
    /* It may fail: without JIT support PCRE2's interpreter does the same,
     * slower. */
    (void) pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    return 0;
}

/* plain: the pattern is a text. */
static int add_split(struct reading *r, const char *pattern, bool plain,
                     enum behavior behavior, bool invert)
{
    struct weft_pretokenizer *pre = r->pre;
    if (pre->n_steps == MAX_STEPS)
        return weft_err_set(r->err, WEFT_EUNSUPPORTED,
                            "%s: more than %d steps", r->subject, MAX_STEPS);
    struct step *s = &pre->step[pre->n_steps];
    int rc = weft_pattern_translate(pattern, plain, r->subject, &s->pattern,
                                    r->err);
    if (!rc)
        rc = compile(r, pattern, s);
    if (rc) {
        weft_pattern_release(&s->pattern);
        return rc;
    }
    s->behavior = behavior;
    s->invert = invert;
    pre->n_steps++;
    return 0;
}

static int add_space(struct reading *r)
{
    if (r->pre->n_steps == MAX_STEPS)
        return weft_err_set(r->err, WEFT_EUNSUPPORTED,
                            "%s: more than %d steps", r->subject, MAX_STEPS);
    r->pre->step[r->pre->n_steps++].code = NULL;
    return 0;
}

static int read_split(struct reading *r, const json_t *value)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous",
                                        "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *behavior = NULL, *text = NULL;
    json_t *pattern = NULL;
    bool invert = false;
    int rc = weft_json_string(value, r->subject, "behavior", &behavior,
                              r->err);
    if (!rc)
        rc = weft_json_bool_or(value, r->subject, "invert", false, &invert,
                               r->err);
    if (!rc)
        rc = weft_json_object(value, r->subject, "pattern", &pattern, r->err);
    if (rc)
        return rc;
    int b = 0;
    while (b < 5 && strcmp(names[b], behavior) != 0)
        b++;
    if (b == 5)
        return weft_err_set(r->err, WEFT_EFORMAT,
                            "%s: Split's behavior '%.40s' is none of Isolated"
                            ", Removed, Contiguous, MergedWithPrevious, "
                            "MergedWithNext",
                            r->subject, behavior);
    if (json_object_get(pattern, "Regex")) {
        rc = weft_json_string(pattern, r->subject, "Regex", &text, r->err);
        return rc ? rc : add_split(r, text, false, (enum behavior) b, invert);
    }
    rc = weft_json_string(pattern, r->subject, "String", &text, r->err);
    return rc ? rc : add_split(r, text, true, (enum behavior) b, invert);
}

static int read_byte_level(struct reading *r, const json_t *value)
{
    bool prefix = true, regex = true;
    int rc = weft_json_bool_or(value, r->subject, "add_prefix_space", true,
                               &prefix, r->err);
    if (!rc)
        rc = weft_json_bool_or(value, r->subject, "use_regex", true, &regex,
                               r->err);
    if (!rc && prefix)
        rc = add_space(r);
    if (!rc && regex)
        rc = add_split(r, GPT2_PATTERN, false, ISOLATED, false);
    r->byte_level = true;
    return rc;
}

static int read_digits(struct reading *r, const json_t *value)
{
    bool single = false;
    int rc = weft_json_bool_or(value, r->subject, "individual_digits", false,
                               &single, r->err);
    return rc ? rc
              : add_split(r, single ? "\\p{N}" : "\\p{N}+", false, ISOLATED,
                          false);
}

static int read_step(struct reading *r, const json_t *value)
{
    const char *type = NULL;
    if (!json_is_object(value))
        return weft_err_set(r->err, WEFT_EFORMAT,
                            "%s: must be an object, not %s", r->subject,
                            weft_json_type(value));
    int rc = weft_json_string(value, r->subject, "type", &type, r->err);
    if (rc)
        return rc;
    if (r->byte_level)
        return weft_err_set(r->err, WEFT_EUNSUPPORTED,
                            "%s: '%.40s' after ByteLevel is not supported; "
                            "ByteLevel must come last",
                            r->subject, type);
    if (strcmp(type, "Split") == 0)
        return read_split(r, value);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(r, value);
    if (strcmp(type, "Digits") == 0)
        return read_digits(r, value);
    return weft_err_set(r->err, WEFT_EUNSUPPORTED,
                        "%s: '%.40s' is not supported; Weft reads byte-level "
                        "BPE (Split, Digits, ByteLevel)%s",
                        r->subject, type,
                        strcmp(type, "Metaspace") == 0
                            ? ", this is a SentencePiece-like tokenizer"
                            : "");
}

static int read_all(struct reading *r, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *list = NULL, *item;
    size_t i;
    if (!type || strcmp(type, "Sequence") != 0)
        return read_step(r, value);
    int rc = weft_json_array(value, r->subject, "pretokenizers", &list,
                             r->err);
    if (rc)
        return rc;
    json_array_foreach(list, i, item)
    {
        rc = read_step(r, item);
        if (rc)
            return rc;
    }
    return 0;
}

int weft_pretokenizer_read(const json_t *value, const char *subject,
                           struct weft_pretokenizer **out,
                           struct weft_err *err)
{
    struct reading r = {.subject = subject, .err = err};
    if (!value || json_is_null(value))
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "%s: missing; Weft reads byte-level BPE, whose "
                            "pre_tokenizer has a ByteLevel",
                            subject);
    r.pre = weft_alloc(1, sizeof *r.pre);
    if (!r.pre)
        return weft_err_nomem(err, "a tokenizer", sizeof *r.pre);
    int rc = read_all(&r, value);
    if (!rc && !r.byte_level)
        rc = weft_err_set(err, WEFT_EUNSUPPORTED,
                          "%s: has no ByteLevel; Weft reads byte-level BPE "
                          "only",
                          subject);
    if (rc) {
        weft_pretokenizer_free(r.pre);
        return rc;
    }
    *out = r.pre;
    return 0;
}

void weft_pretokenizer_free(struct weft_pretokenizer *pre)
{
    if (!pre)
        return;
    for (int i = 0; i < pre->n_steps; i++) {
        pcre2_code_free(pre->step[i].code);
        weft_pattern_release(&pre->step[i].pattern);
    }
    weft_free(pre);
}

/* ---- Running ---------------------------------------------------------- */

struct weft_pre_scratch *weft_pre_scratch_create(void)
{
    struct weft_pre_scratch *s = weft_alloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    /* The stack is NULL without JIT support, which then needs none. */
    s->stack = pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, NULL);
    if (!s->match || !s->context) {
        weft_pre_scratch_free(s);
        return NULL;
    }
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

void weft_pre_scratch_free(struct weft_pre_scratch *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_STEPS; i++)
        weft_free(s->step[i].byte);
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    weft_free(s);
}

struct running {
    const struct weft_pretokenizer *pre;
    struct weft_pre_scratch *scratch;
    weft_piece_fn fn;
    void *ctx;
    struct weft_err *err;
};

static int run_step(struct running *r, int step, const char *text, size_t n);

/* A part of the text: a match, or what is between two matches. */
struct part {
    size_t start, end;
    bool match;
};

/* Finds matches one after another, as Oniguruma's iterator does: an empty
 * match at the end of the last one is skipped. */
struct finder {
    const struct step *step;
    const char *text;
    size_t n;
    const struct spelling *spelling; /* the text's */
    size_t at;              /* character where the next search begins */
    size_t last_end;        /* end of the last match; SIZE_MAX: none yet */
    size_t character, byte; /* of the last call of byte_of() */
};

static int finder_init(struct running *r, int step, const char *text,
                       size_t n, struct finder *f)
{
    struct spelling *spelling = &r->scratch->step[step];
    if (n > spelling->capacity) {
        unsigned char *more = weft_realloc(spelling->byte, n, 1);
        if (!more)
            return weft_err_nomem(r->err, "a text", n);
        spelling->byte = more;
        spelling->capacity = n;
    }
    *f = (struct finder){.step = &r->pre->step[step],
                         .text = text,
                         .n = n,
                         .spelling = spelling,
                         .last_end = SIZE_MAX};
    spelling->n = weft_alphabet_spell(f->step->pattern.alphabet, text, n,
                                      spelling->byte);
    return 0;
}

/* The byte at which a character begins. Calls must not go back to an earlier
 * character. */
static size_t byte_of(struct finder *f, size_t character)
{
    if (f->spelling->n == f->n) /* ASCII */
        return character;
    for (; f->character < character; f->character++)
        do
            f->byte++;
        while (f->byte < f->n && (f->text[f->byte] & 0xc0) == 0x80);
    return f->byte;
}

/* Returns 1 with the next match in bytes, 0 at the end, or a negative code. */
static int find(struct running *r, struct finder *f, size_t *start,
                size_t *end)
{
    size_t n = f->spelling->n;
    while (f->at <= n) {
        int rc = pcre2_match(f->step->code, f->spelling->byte, n, f->at, 0,
                             r->scratch->match, r->scratch->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc == PCRE2_ERROR_NOMEMORY)
            return weft_err_nomem(r->err, "matching a pattern", n);
        if (rc < 0)
            return weft_err_set(r->err, WEFT_EUNSUPPORTED,
                                "the tokenizer's pattern gives up on a text "
                                "of %zu characters (PCRE2 error %d)",
                                n, rc);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->scratch->match);
        f->at = at[1];
        if (at[0] >= at[1] && at[1] == f->last_end) {
            f->at++;
            continue;
        }
        f->last_end = at[1];
        *start = byte_of(f, at[0]);
        *end = byte_of(f, at[1]);
        return 1;
    }
    return 0;
}

static int emit(struct running *r, int next, const char *text, size_t start,
                size_t end)
{
    return end > start ? run_step(r, next, text + start, end - start) : 0;
}

/* For Isolated and Removed: passes parts to the next step as it finds them. */
static int split_direct(struct running *r, int step, const char *text,
                        size_t n)
{
    const struct step *s = &r->pre->step[step];
    struct finder f;
    bool keep_match = s->behavior == ISOLATED || s->invert;
    bool keep_other = s->behavior == ISOLATED || !s->invert;
    size_t start = 0, end = 0, previous = 0;
    int found = finder_init(r, step, text, n, &f);
    if (found)
        return found;
    while ((found = find(r, &f, &start, &end)) > 0) {
        int rc = keep_other ? emit(r, step + 1, text, previous, start) : 0;
        if (!rc && keep_match)
            rc = emit(r, step + 1, text, start, end);
        if (rc)
            return rc;
        previous = end;
    }
    if (found < 0)
        return found;
    return keep_other ? emit(r, step + 1, text, previous, n) : 0;
}

static int push(struct part **list, size_t *count, size_t *capacity,
                struct part part, struct weft_err *err)
{
    if (*count == *capacity) {
        size_t more = 2 * *capacity + 16;
        struct part *p = weft_realloc(*list, more, sizeof *p);
        if (!p)
            return weft_err_nomem(err, "splitting a text", more * sizeof *p);
        *list = p;
        *capacity = more;
    }
    (*list)[(*count)++] = part;
    return 0;
}

/* Collects all parts of the text in order. */
static int collect(struct running *r, int step, const char *text, size_t n,
                   struct part **list, size_t *count)
{
    const struct step *s = &r->pre->step[step];
    struct finder f;
    size_t start = 0, end = 0, previous = 0, capacity = 0;
    int found = finder_init(r, step, text, n, &f);
    if (found)
        return found;
    while ((found = find(r, &f, &start, &end)) > 0) {
        struct part between = {previous, start, s->invert};
        struct part match = {start, end, !s->invert};
        int rc = start > previous
                   ? push(list, count, &capacity, between, r->err)
                   : 0;
        if (!rc)
            rc = push(list, count, &capacity, match, r->err);
        if (rc)
            return rc;
        previous = end;
    }
    if (found == 0 && previous < n)
        return push(list, count, &capacity,
                    (struct part){previous, n, s->invert}, r->err);
    return found;
}

/* Joins neighbours in place; returns how many parts are left. */
static size_t join(enum behavior behavior, struct part *p, size_t n)
{
    size_t left = 0;
    bool previous = false;
    if (behavior == WITH_NEXT) { /* the same from the end */
        size_t at = n;
        for (size_t i = n; i-- > 0;) {
            bool match = p[i].match;
            if (match && !previous && at < n)
                p[at].start = p[i].start;
            else
                p[--at] = p[i];
            previous = match;
        }
        memmove(p, p + at, (n - at) * sizeof *p);
        return n - at;
    }
    for (size_t i = 0; i < n; i++) {
        bool match = p[i].match;
        bool joins = behavior == CONTIGUOUS ? match == previous
                                            : match && !previous;
        if (joins && left > 0)
            p[left - 1].end = p[i].end;
        else
            p[left++] = p[i];
        previous = match;
    }
    return left;
}

static int split_joined(struct running *r, int step, const char *text,
                        size_t n)
{
    const struct step *s = &r->pre->step[step];
    struct part *list = NULL;
    size_t count = 0;
    int rc = collect(r, step, text, n, &list, &count);
    count = rc || !count ? 0 : join(s->behavior, list, count);
    for (size_t i = 0; i < count && !rc; i++)
        rc = emit(r, step + 1, text, list[i].start, list[i].end);
    weft_free(list);
    return rc;
}

static int prepend_space(struct running *r, int step, const char *text,
                         size_t n)
{
    if (text[0] == ' ')
        return run_step(r, step + 1, text, n);
    char *spaced = weft_alloc(n + 1, 1);
    if (!spaced)
        return weft_err_nomem(r->err, "a text", n + 1);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, n);
    int rc = run_step(r, step + 1, spaced, n + 1);
    weft_free(spaced);
    return rc;
}

/* Runs one step; the recursion is as deep as there are steps. */
static int run_step(struct running *r, int step, const char *text, size_t n)
{
    if (step == r->pre->n_steps)
        return r->fn(r->ctx, text, n, r->err);
    const struct step *s = &r->pre->step[step];
    if (!s->code)
        return prepend_space(r, step, text, n);
    if (s->behavior == ISOLATED || s->behavior == REMOVED)
        return split_direct(r, step, text, n);
    return split_joined(r, step, text, n);
}

int weft_pretokenizer_run(const struct weft_pretokenizer *pre,
                          const char *text, size_t n,
                          struct weft_pre_scratch *scratch, weft_piece_fn fn,
                          void *ctx, struct weft_err *err)
{
    struct running r = {
        .pre = pre, .scratch = scratch, .fn = fn, .ctx = ctx, .err = err};
    return run_step(&r, 0, text, n);
}
