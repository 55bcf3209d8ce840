/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/stops.h"

#include <string.h>

#include "base/alloc.h"

void weft_stops_add_id(struct weft_stops *stops, int32_t id)
{
    for (int32_t i = 0; i < stops->n_ids; i++)
        if (stops->id[i] == id)
            return;
    if (stops->n_ids < (int32_t) WEFT_COUNT(stops->id))
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

static int add(struct weft_stops *stops, const struct weft_tokenizer *tok,
               const char *key, const char *text, struct weft_err *err)
{
    if (stops->text.n == (int32_t) WEFT_COUNT(stops->text.text))
        return weft_err_set(err, WEFT_EINVAL,
                            "%s '%s' is one text too many: at most %d", key,
                            text, stops->text.n);
    stops->text.text[stops->text.n++] = text;
    return stops->text.at ? 0 : list_bytes(tok, &stops->text, err);
}

int weft_stops_add_text(struct weft_stops *stops,
                        const struct weft_tokenizer *tok, const char *folder,
                        const char *key, const char *stop,
                        struct weft_err *err)
{
    size_t length = strlen(stop), n, n_text = 0, n_special = 0;
    int32_t *id;
    char *text = NULL;
    int rc = weft_tokenizer_encode(tok, stop, length, WEFT_TOK_SPECIAL, &id,
                                   &n, err);
    if (rc)
        return rc;
    rc = weft_tokenizer_decode(tok, id, n, false, &text, &n_text, err);
    for (size_t i = 0; i < n; i++)
        n_special += weft_tokenizer_is_special(tok, id[i]);
    if (!rc
        && (n == 0 || n_text != length || memcmp(text, stop, length) != 0))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "the tokens of '%s' cannot spell %s '%s'", folder,
                          key, stop);
    else if (!rc && n_special > 0 && n > 1)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s '%s' has a special token and other text; it "
                          "must be one of them",
                          key, stop);
    else if (!rc && n_special > 0
             && stops->n_ids == (int32_t) WEFT_COUNT(stops->id))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "%s '%s' is one token too many: at most %d", key,
                          stop, stops->n_ids);
    else if (!rc && n_special > 0)
        weft_stops_add_id(stops, id[0]);
    else if (!rc)
        rc = add(stops, tok, key, stop, err);
    weft_free(id);
    weft_free(text);
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
