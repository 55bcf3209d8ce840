/* SPDX-License-Identifier: Apache-2.0 */
#include "text/renderer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

int weft_renderer_init(const struct weft_renderer_options *o,
                       struct weft_renderer *out, struct weft_err *err)
{
    struct weft_renderer r = {.key = o->key,
                              .folder = o->folder,
                              .system = o->system,
                              .automatic = strcmp(o->template, "auto") == 0};
    struct weft_err inner = {0};
    struct weft_date date;
    int rc = weft_date_read(o->date, &date, err);
    if (!rc && strcmp(o->template, "none") != 0) {
        rc = weft_chat_open(r.automatic ? "folder" : o->template, o->folder,
                            &date, &r.chat, &inner);
        if (rc == WEFT_ENOTFOUND && r.automatic)
            rc = 0; /* plain text needs no template */
        else if (rc)
            rc = weft_err_set(err, rc, "%s", inner.text);
    }
    if (!rc && r.system && !r.chat)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "a system message needs a chat template; set %s",
                          r.key);
    if (!rc)
        *out = r;
    return rc;
}

void weft_renderer_release(struct weft_renderer *renderer)
{
    weft_chat_free(renderer->chat);
    renderer->chat = NULL;
}

/* ---- Texts ------------------------------------------------------------ */

static json_t *message(const char *role, struct weft_str content)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", content.s,
                     content.n);
}

/* The system message and the row's messages; with_answer: and the response.
 * NULL when memory is out. */
static json_t *conversation(const struct weft_renderer *r,
                            const struct weft_row *row, bool with_answer)
{
    json_t *list = json_array();
    const json_t *first = json_array_get(row->messages, 0);
    struct weft_str role = weft_json_str(json_object_get(first, "role"));
    int rc = list ? 0 : -1;
    if (r->system && !weft_str_equal(role, weft_str_of("system")))
        rc = rc
          || json_array_append_new(list,
                                   message("system", weft_str_of(r->system)));
    if (row->prompt.s)
        rc = rc || json_array_append_new(list, message("user", row->prompt));
    else
        rc = rc || json_array_extend(list, row->messages);
    if (with_answer && row->answer)
        rc = rc || json_array_append(list, row->answer);
    else if (with_answer)
        rc = rc
          || json_array_append_new(list, message("assistant", row->response));
    if (rc) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static int render(const struct weft_renderer *r, const struct weft_row *row,
                  bool with_answer, struct weft_str *text_out,
                  struct weft_jinja_marks *marks_out, struct weft_err *err)
{
    json_t *messages = conversation(r, row, with_answer);
    if (!messages)
        return weft_err_nomem(err, "messages", 0);
    int rc = weft_chat_render_marked(r->chat, messages, row->variables,
                                     !with_answer, text_out, marks_out, err);
    json_decref(messages);
    return rc;
}

/* Whether a template renders the row. */
static bool is_templated(const struct weft_renderer *r,
                         const struct weft_row *row)
{
    return r->chat && (row->prompt.s || row->messages);
}

/* Checks a row: messages need a template, and must not end with the
 * assistant's. */
static int check(const struct weft_renderer *r, const struct weft_row *row,
                 struct weft_err *err)
{
    if (!row->messages)
        return 0;
    size_t n = json_array_size(row->messages);
    const json_t *last = n ? json_array_get(row->messages, n - 1) : NULL;
    struct weft_str role = weft_json_str(json_object_get(last, "role"));
    if (!r->chat && r->automatic)
        return weft_err_set(err, WEFT_EINVAL,
                            "the prompt is a list of messages, and '%s' has "
                            "no chat template (chat_template.jinja, or "
                            "'chat_template' in tokenizer_config.json); set "
                            "%s to chatml, llama3, mistral, or a pattern "
                            "with {role} and {content}",
                            r->folder, r->key);
    if (!r->chat)
        return weft_err_set(err, WEFT_EINVAL,
                            "the prompt is a list of messages, which needs a "
                            "chat template; set %s to auto",
                            r->key);
    if (weft_str_equal(role, weft_str_of("assistant")))
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "the prompt ends in the assistant's message, "
                            "which Weft does not continue");
    return 0;
}

int weft_renderer_prompt(const struct weft_renderer *r,
                         const struct weft_row *row,
                         struct weft_str *text_out, struct weft_err *err)
{
    int rc = check(r, row, err);
    if (rc)
        return rc;
    if (is_templated(r, row))
        return render(r, row, false, text_out, NULL, err);
    return weft_str_copy(row->prompt.s ? row->prompt : weft_str_of(""),
                         text_out, err);
}

/* ---- Token ids -------------------------------------------------------- */

static int encode(const struct weft_tokenizer *tokenizer, struct weft_str s,
                  unsigned flags, int32_t **token_out, int32_t *n_out,
                  struct weft_err *err)
{
    size_t n;
    int rc = weft_tokenizer_encode(tokenizer, s.s, s.n, flags, token_out, &n,
                                   err);
    if (!rc && n > INT32_MAX / 4) {
        weft_free(*token_out);
        *token_out = NULL;
        rc = weft_err_set(err, WEFT_EINVAL, "a text of %zu tokens", n);
    }
    if (!rc)
        *n_out = (int32_t) n;
    return rc;
}

/* A prompt whose text contains special tokens was rendered by a template
 * before, and "auto" would render it again: this is an error. */
static int check_plain(const struct weft_renderer *r,
                       const struct weft_tokenizer *tokenizer,
                       const struct weft_row *row, struct weft_err *err)
{
    int32_t *token = NULL, n = 0;
    if (!r->automatic || !row->prompt.s)
        return 0;
    int rc = encode(tokenizer, row->prompt, WEFT_TOK_SPECIAL, &token, &n,
                    err);
    for (int32_t i = 0; i < n && !rc; i++)
        if (weft_tokenizer_is_special(tokenizer, token[i]))
            rc = weft_err_set(err, WEFT_EINVAL,
                              "the prompt holds the special token '%.60s', "
                              "as if a chat template had been applied; set "
                              "%s to none if so, else to folder",
                              weft_tokenizer_content(tokenizer, token[i]),
                              r->key);
    weft_free(token);
    return rc;
}

int weft_renderer_encode_prompt(const struct weft_renderer *r,
                                const struct weft_tokenizer *tokenizer,
                                const struct weft_row *row,
                                struct weft_rendered *out,
                                struct weft_err *err)
{
    struct weft_rendered done = {.templated = is_templated(r, row)};
    struct weft_str text = {0};
    /* Special tokens are also recognised without a template, as the prompts
     * may have been rendered before. */
    unsigned flags = WEFT_TOK_SPECIAL
                   | (done.templated ? 0 : WEFT_TOK_ADD_BOS);
    int rc = weft_renderer_prompt(r, row, &text, err);
    if (!rc && done.templated)
        rc = check_plain(r, tokenizer, row, err);
    if (!rc)
        rc = encode(tokenizer, text, flags, &done.token, &done.n, err);
    weft_str_release(&text);
    if (rc)
        return rc;
    done.n_prompt = done.n;
    *out = done;
    return 0;
}

/* Replaces the ids of the prompt by those of the whole conversation. */
static int encode_whole(const struct weft_renderer *r,
                        const struct weft_tokenizer *tokenizer,
                        const struct weft_row *row,
                        struct weft_rendered *prompt, struct weft_err *err)
{
    struct weft_str text = {0};
    int32_t *token = NULL, n = 0, same = 0;
    int rc = render(r, row, true, &text, NULL, err);
    if (!rc)
        rc = encode(tokenizer, text, WEFT_TOK_SPECIAL, &token, &n, err);
    weft_str_release(&text);
    if (rc)
        return rc;
    while (same < n && same < prompt->n && token[same] == prompt->token[same])
        same++;
    weft_free(prompt->token);
    prompt->cut = same < prompt->n;
    prompt->token = token;
    prompt->n = n;
    prompt->n_prompt = same;
    return 0;
}

/* Appends the ids of a plain response to those of a plain prompt. */
static int append_response(const struct weft_tokenizer *tokenizer,
                           const struct weft_row *row,
                           struct weft_rendered *to, struct weft_err *err)
{
    int32_t *more = NULL, n = 0;
    int rc = encode(tokenizer, row->response, 0, &more, &n, err);
    if (rc)
        return rc;
    int32_t *token = weft_realloc(to->token, (size_t) to->n + (size_t) n + 1,
                                  sizeof *token);
    if (token) {
        memcpy(token + to->n, more, (size_t) n * sizeof *token);
        to->token = token;
        to->n += n;
    } else {
        rc = weft_err_nomem(err, "a response", (size_t) n * sizeof *token);
    }
    weft_free(more);
    return rc;
}

int weft_renderer_encode_pair(const struct weft_renderer *r,
                              const struct weft_tokenizer *tokenizer,
                              const struct weft_row *row,
                              struct weft_rendered *out, struct weft_err *err)
{
    struct weft_rendered done = {0};
    int rc = weft_renderer_encode_prompt(r, tokenizer, row, &done, err);
    if (rc)
        return rc;
    rc = done.templated ? encode_whole(r, tokenizer, row, &done, err)
                        : append_response(tokenizer, row, &done, err);
    if (rc) {
        weft_free(done.token);
        return rc;
    }
    *out = done;
    return 0;
}

/* ---- What the assistant says ------------------------------------------- */

static int check_marks(const struct weft_renderer *r,
                       const struct weft_row *row, struct weft_err *err)
{
    if (!is_templated(r, row))
        return weft_err_set(err, WEFT_EINVAL,
                            "there is no conversation with turns of the "
                            "assistant, as no chat template renders the row");
    if (weft_chat_has_marks(r->chat))
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "the chat template '%s' does not mark what the "
                        "assistant says; put {%% generation %%} and "
                        "{%% endgeneration %%} around it",
                        weft_chat_source(r->chat));
}

/* The byte at which the character before offset `end` begins. */
static size_t last_character(struct weft_str text, size_t end)
{
    size_t at = end > 0 ? end - 1 : 0;
    while (at > 0 && ((unsigned char) text.s[at] & 0xc0) == 0x80)
        at--;
    return at;
}

/* A byte of the text, the id that holds it, and whose it is: 2 i of the first
 * character of mark i, 2 i + 1 of its last. */
struct place {
    size_t at, id, number;
};

static int by_byte(const void *a, const void *b)
{
    size_t x = ((const struct place *) a)->at;
    size_t y = ((const struct place *) b)->at;
    return (x > y) - (x < y);
}

static int by_number(const void *a, const void *b)
{
    size_t x = ((const struct place *) a)->number;
    size_t y = ((const struct place *) b)->number;
    return (x > y) - (x < y);
}

/* Encodes a text and finds the ids of the places, which are in any order. */
static int encode_places(const struct weft_tokenizer *tokenizer,
                         struct weft_str text, size_t n, struct place *place,
                         int32_t **token_out, size_t *n_out,
                         struct weft_err *err)
{
    size_t *at = weft_alloc(2 * n + 1, sizeof *at), *id = at ? at + n : NULL;
    if (!at)
        return weft_err_nomem(err, "a text's marks", n * sizeof *at);
    qsort(place, n, sizeof *place, by_byte);
    for (size_t i = 0; i < n; i++)
        at[i] = place[i].at;
    int rc = weft_tokenizer_encode_at(tokenizer, text.s, text.n,
                                      WEFT_TOK_SPECIAL, n, at, token_out,
                                      n_out, id, err);
    for (size_t i = 0; i < n && !rc; i++)
        place[i].id = id[i];
    qsort(place, n, sizeof *place, by_number);
    weft_free(at);
    return rc;
}

/* Encodes a text and sets `said`. A mark goes from the id of its first
 * character to that of its last. */
static int encode_marked(const struct weft_tokenizer *tokenizer,
                         struct weft_str text,
                         const struct weft_jinja_marks *marks,
                         struct weft_rendered *out, struct weft_err *err)
{
    size_t n = 0, n_places = 2 * marks->n;
    struct place *place = weft_alloc(n_places + 1, sizeof *place);
    if (!place)
        return weft_err_nomem(err, "a text's marks", n_places * 24);
    for (size_t i = 0; i < marks->n; i++) {
        place[2 * i] = (struct place){marks->mark[i].start, 0, 2 * i};
        place[2 * i + 1] = (struct place){
            last_character(text, marks->mark[i].end), 0, 2 * i + 1};
    }
    int rc = encode_places(tokenizer, text, n_places, place, &out->token, &n,
                           err);
    if (!rc && n > INT32_MAX / 4)
        rc = weft_err_set(err, WEFT_EINVAL, "a text of %zu tokens", n);
    if (!rc) {
        out->n = (int32_t) n;
        out->said = weft_alloc(n + 1, sizeof *out->said);
        rc = out->said ? 0 : weft_err_nomem(err, "a text's marks", n);
    }
    for (size_t i = 0; i < marks->n && !rc; i++)
        for (size_t k = place[2 * i].id; k <= place[2 * i + 1].id && k < n;
             k++)
            out->said[k] = true;
    weft_free(place);
    return rc;
}

int weft_renderer_encode_turns(const struct weft_renderer *r,
                               const struct weft_tokenizer *tokenizer,
                               const struct weft_row *row,
                               struct weft_rendered *out,
                               struct weft_err *err)
{
    struct weft_rendered pair = {0}, done = {0};
    struct weft_jinja_marks marks = {0};
    struct weft_str text = {0};
    int rc = check_marks(r, row, err);
    if (!rc)
        rc = weft_renderer_encode_pair(r, tokenizer, row, &pair, err);
    weft_free(pair.token);
    if (!rc)
        rc = render(r, row, true, &text, &marks, err);
    if (!rc)
        rc = encode_marked(tokenizer, text, &marks, &done, err);
    weft_str_release(&text);
    weft_free(marks.mark);
    int32_t first = row->last_turn ? 0 : pair.n_prompt;
    for (int32_t i = 0; i < first && !rc; i++)
        done.said[i] = false;
    while (!rc && done.n_prompt < done.n && !done.said[done.n_prompt])
        done.n_prompt++;
    if (!rc && done.n_prompt == done.n)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "the chat template '%s' marks nothing of the row "
                          "as the assistant's",
                          weft_chat_source(r->chat));
    if (rc) {
        weft_free(done.token);
        weft_free(done.said);
        return rc;
    }
    done.templated = true;
    done.cut = pair.cut;
    *out = done;
    return 0;
}
