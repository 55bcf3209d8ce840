/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions of tokenizer.json. They are written for Oniguruma
 * (Ruby's syntax); what they match follows Weft's own tables of Unicode.
 * Constructs that mean something else in PCRE2, or that no tokenizer uses, are
 * refused by name.
 */
#ifndef WEFT_TEXT_PATTERN_H
#define WEFT_TEXT_PATTERN_H

#include "text/unicode/charset.h"

/* A pattern over the bytes of an alphabet. */
struct weft_pattern {
    char *bytes; /* for PCRE2: multi-line, neither UTF nor UCP */
    struct weft_alphabet *alphabet;
};

/* Translates a pattern. plain: it is no regular expression, but a text to
 * search for. `subject` begins the text of errors. Release with
 * weft_pattern_release(). Errors: WEFT_EUNSUPPORTED, WEFT_EFORMAT,
 * WEFT_ENOMEM. */
int weft_pattern_translate(const char *pattern, bool plain,
                           const char *subject, struct weft_pattern *out,
                           struct weft_err *err);
void weft_pattern_release(struct weft_pattern *pattern);

#endif
