/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/stops.h"

#include <string.h>

#include "base/alloc.h"
#include "model/arch.h"

_Static_assert(WEFT_MAX_ENDS >= WEFT_MAX_EOS + 1 + WEFT_MAX_STOP_TEXTS,
               "responses can end by all tokens that may be named");

void weft_stops_add_id(struct weft_stops *stops, int32_t id)
{
    for (int32_t i = 0; i < stops->n_ids; i++)
        if (stops->id[i] == id)
            return;
    weft_assert(stops->n_ids < WEFT_MAX_ENDS);
    stops->id[stops->n_ids++] = id;
}

/* What each token adds to a text: nothing where it is a special one. */
static int list_bytes(const struct weft_tokenizer *tok,
                      struct weft_stop_texts *out, struct weft_err *err)
{
    int32_t n = weft_tokenizer_size(tok);
    int64_t *at = weft_alloc((size_t) n + 1, sizeof *at);
    out->at = at;
    out->n_tokens = n;
    if (!at)
        return weft_err_nomem(err, "tokens", (size_t) n * sizeof *at);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes;
        weft_tokenizer_bytes(tok, i, &bytes);
        at[i + 1] = at[i]
                  + (weft_tokenizer_is_special(tok, i) ? 0 : (int64_t) bytes);
    }
    char *all = weft_alloc((size_t) at[n], 1);
    out->bytes = all;
    if (!all)
        return weft_err_nomem(err, "tokens", (size_t) at[n]);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes;
        const char *p = weft_tokenizer_bytes(tok, i, &bytes);
        if (at[i + 1] > at[i])
            memcpy(all + at[i], p, bytes);
    }
    return 0;
}

/* ---- Whether tokens can spell a text ------------------------------------- */

/* Whether n bytes begin (or else end) a token's bytes, which may be more. */
static bool is_part(const char *token, int64_t bytes, const char *text,
                    int64_t n, bool begin)
{
    return n > 0 && bytes >= n
        && memcmp(begin ? token : token + bytes - n, text, (size_t) n) == 0;
}

static bool holds(const char *token, int64_t bytes, const char *text,
                  int64_t n)
{
    for (int64_t i = 0; i + n <= bytes; i++)
        if (memcmp(token + i, text, (size_t) n) == 0)
            return true;
    return false;
}

/* Whether tokens one after another can have the text somewhere in their bytes:
 * in one, or from the end of one over whole ones to the beginning of another.
 * there (n + 1): false. Sets there[i]: the first i bytes can stand at the
 * end. */
static bool spells(const struct weft_stop_texts *tokens, const char *text,
                   int64_t n, bool *there)
{
    there[0] = true;
    for (int64_t i = 0; i < n && !there[n]; i++)
        for (int32_t k = 0; k < tokens->n_tokens && !there[n]; k++) {
            const char *token = tokens->bytes + tokens->at[k];
            int64_t bytes = tokens->at[k + 1] - tokens->at[k];
            if (bytes == 0)
                continue;
            if (i == 0) {
                there[n] = holds(token, bytes, text, n);
                for (int64_t m = 1; m <= n && m <= bytes; m++)
                    there[m] = there[m]
                            || is_part(token, bytes, text, m, false);
            }
            if (there[i] && i + bytes <= n)
                there[i + bytes] = there[i + bytes]
                                || is_part(token, bytes, text + i, bytes,
                                           true);
            if (there[i])
                there[n] = there[n]
                        || is_part(token, bytes, text + i, n - i, true);
        }
    return there[n];
}

static int add(struct weft_stops *stops, const struct weft_tokenizer *tok,
               const char *folder, const char *key, const char *text,
               struct weft_err *err)
{
    size_t n = strlen(text);
    if (stops->text.n == (int32_t) WEFT_COUNT(stops->text.text))
        return weft_err_set(err, WEFT_EINVAL,
                            "%s '%s' is one text too many: at most %d", key,
                            text, stops->text.n);
    if (n == 0)
        return weft_err_set(err, WEFT_EINVAL, "%s '' is empty", key);
    int rc = stops->text.at ? 0 : list_bytes(tok, &stops->text, err);
    bool *there = weft_alloc(n + 1, sizeof *there);
    if (!rc && !there)
        rc = weft_err_nomem(err, key, n);
    if (!rc && !spells(&stops->text, text, (int64_t) n, there))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "the tokens of '%s' cannot spell %s '%s'", folder,
                          key, text);
    if (!rc)
        stops->text.text[stops->text.n++] = text;
    weft_free(there);
    return rc;
}

int weft_stops_add_text(struct weft_stops *stops,
                        const struct weft_tokenizer *tok, const char *folder,
                        const char *key, const char *stop,
                        struct weft_err *err)
{
    size_t n, n_special = 0;
    int32_t *id;
    int rc = weft_tokenizer_encode(tok, stop, strlen(stop), WEFT_TOK_SPECIAL,
                                   &id, &n, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        n_special += weft_tokenizer_is_special(tok, id[i]);
    if (n_special > 0 && n > 1)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s '%s' has a special token and other text; it "
                          "must be one of them",
                          key, stop);
    else if (n_special > 0 && stops->n_ids == (int32_t) WEFT_COUNT(stops->id))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s '%s' is one token too many: at most %d", key,
                          stop, stops->n_ids);
    else if (n_special > 0)
        weft_stops_add_id(stops, id[0]);
    else
        rc = add(stops, tok, folder, key, stop, err);
    weft_free(id);
    return rc;
}

void weft_stops_release(struct weft_stops *stops)
{
    weft_free((void *) (uintptr_t) stops->text.bytes);
    weft_free((void *) (uintptr_t) stops->text.at);
    stops->text = (struct weft_stop_texts){0};
}

void weft_stops_set(const struct weft_stops *stops,
                    struct weft_gen_args *args)
{
    args->n_stop = stops->n_ids;
    memcpy(args->stop, stops->id, sizeof stops->id);
    args->stop_text = stops->text.n > 0 ? &stops->text : NULL;
}
