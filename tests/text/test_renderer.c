/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as tokens: of SFT against Transformers (tests/data/sft), and what
 * template "auto" does. */
#include "harness.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/renderer.h"

/* A model folder of a golden template (NULL: none) in a new folder. */
static void make_folder(char dir[], const char *template)
{
    char name[256], *text = NULL;
    struct weft_err err = {0};
    size_t n = 0;
    REQUIRE(mkdtemp(dir) != NULL);
    if (!template)
        return;
    snprintf(name, sizeof name, "chat/%s.jinja", template);
    REQUIRE_OK(weft_file_read(weft_test_data(name), 0, &text, &n, &err), err);
    char *path = weft_path_join(dir, "chat_template.jinja");
    REQUIRE_OK(weft_file_write(path, text, n, &err), err);
    weft_free(path);
    /* The goldens' bos and eos are in no vocabulary. */
    static const char config[] =
        "{\"bos_token\": \"<B>\", \"eos_token\": \"<E>\"}";
    path = weft_path_join(dir, "tokenizer_config.json");
    REQUIRE_OK(weft_file_write(path, config, sizeof config - 1, &err), err);
    weft_free(path);
    weft_free(text);
}

static struct weft_tokenizer *open_tokenizer(const char *file)
{
    char name[256];
    struct weft_err err = {0};
    struct weft_tokenizer *tokenizer = NULL;
    snprintf(name, sizeof name, "tokenizer/%s.json", file);
    REQUIRE_OK(weft_tokenizer_open(weft_test_data(name), &tokenizer, &err),
               err);
    return tokenizer;
}

typedef int (*encode_fn)(const struct weft_renderer *renderer,
                         const struct weft_tokenizer *tokenizer,
                         const struct weft_row *row,
                         struct weft_rendered *out, struct weft_err *err);

/* What a renderer makes of the only row of a text; rc of the last step. */
static int encode_by(encode_fn encode, const char *template,
                     const char *folder,
                     const struct weft_tokenizer *tokenizer, const char *line,
                     struct weft_rendered *out, struct weft_err *err)
{
    const struct weft_renderer_options o = {.template = template,
                                            .key = "data.template",
                                            .folder = folder,
                                            .date = "2024-07-26"};
    struct weft_renderer r = {0};
    struct weft_dataset *d = NULL;
    struct weft_row row = {0};
    int rc = weft_renderer_init(&o, &r, err);
    if (!rc)
        rc = weft_dataset_parse(line, strlen(line), "d.jsonl", NULL, &d, err);
    if (!rc)
        rc = weft_dataset_row(d, 0, &row, err);
    if (!rc)
        rc = encode(&r, tokenizer, &row, out, err);
    weft_row_release(&row);
    weft_dataset_close(d);
    weft_renderer_release(&r);
    return rc;
}

static int encode(const char *template, const char *folder,
                  const struct weft_tokenizer *tokenizer, const char *line,
                  bool pair, struct weft_rendered *out, struct weft_err *err)
{
    return encode_by(pair ? weft_renderer_encode_pair
                          : weft_renderer_encode_prompt,
                     template, folder, tokenizer, line, out, err);
}

static void check_golden(const char *folder, const char *name,
                         const struct weft_tokenizer *tokenizer,
                         const json_t *row, const json_t *wanted)
{
    struct weft_rendered r = {0};
    struct weft_err err = {0};
    char *line = weft_json_text(row);
    const json_t *ids = json_object_get(wanted, "ids");
    REQUIRE_OK(encode("auto", folder, tokenizer, line, true, &r, &err), err);
    bool same = (size_t) r.n == json_array_size(ids)
             && r.n_prompt
                    == json_integer_value(json_object_get(wanted, "n_prompt"))
             && r.cut == json_is_true(json_object_get(wanted, "cut"));
    for (int32_t i = 0; i < r.n && same; i++)
        same = r.token[i]
            == json_integer_value(json_array_get(ids, (size_t) i));
    if (!same)
        printf("\n    %s: %s: %d ids, %d of the prompt, cut %d\n", name, line,
               r.n, r.n_prompt, r.cut);
    CHECK(same);
    CHECK(r.templated);
    weft_free(r.token);
    weft_free(line);
}

static void test_renderer_pair_goldens(void)
{
    struct weft_err err = {0};
    json_t *root = NULL, *one, *row;
    size_t i, k;
    REQUIRE_OK(
        weft_json_read(weft_test_data("sft/goldens.json"), 0, &root, &err),
        err);
    json_array_foreach(json_object_get(root, "templates"), i, one)
    {
        char dir[] = "/tmp/weft-test-renderer-XXXXXX";
        const char *name = json_string_value(
            json_object_get(one, "template"));
        make_folder(dir, name);
        struct weft_tokenizer *tokenizer = open_tokenizer(
            json_string_value(json_object_get(one, "tokenizer")));
        json_array_foreach(json_object_get(root, "rows"), k, row)
            check_golden(dir, name, tokenizer, row,
                         json_array_get(json_object_get(one, "rows"), k));
        weft_tokenizer_free(tokenizer);
        REQUIRE_OK(weft_dir_remove(dir, &err), err);
    }
    CHECK_INT(i, 11);
    json_decref(root);
}

/* ---- What the assistant says ------------------------------------------- */

static void check_turns(const char *folder,
                        const struct weft_tokenizer *tokenizer,
                        const json_t *row, const json_t *wanted)
{
    struct weft_rendered r = {0};
    struct weft_err err = {0};
    char *line = weft_json_text(row);
    const json_t *ids = json_object_get(wanted, "ids");
    const json_t *mask = json_object_get(wanted, "mask");
    int32_t first = 0;
    while ((size_t) first < json_array_size(mask)
           && !json_integer_value(json_array_get(mask, (size_t) first)))
        first++;
    int rc = encode_by(weft_renderer_encode_turns, "auto", folder, tokenizer,
                       line, &r, &err);
    if ((size_t) first == json_array_size(mask)) {
        CHECK_INT(rc, WEFT_EINVAL);
        CHECK(strstr(err.text, "marks nothing of the row") != NULL);
        weft_free(line);
        return;
    }
    REQUIRE_OK(rc, err);
    CHECK_INT(r.n, (int32_t) json_array_size(ids));
    CHECK_INT(r.n_prompt, first);
    for (int32_t i = 0; i < r.n; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, (size_t) i));
        bool said = json_integer_value(json_array_get(mask, (size_t) i)) == 1;
        if (said != r.said[i])
            printf("\n    %s: id %d: %d", line, i, r.said[i]);
        CHECK(r.token[i] == id && said == r.said[i]);
    }
    weft_free(r.token);
    weft_free(r.said);
    weft_free(line);
}

/* Transformers' masks. */
static void test_renderer_turns_goldens(void)
{
    struct weft_err err = {0};
    json_t *root = NULL, *one, *row;
    size_t i, k;
    REQUIRE_OK(
        weft_json_read(weft_test_data("sft/goldens.json"), 0, &root, &err),
        err);
    json_array_foreach(json_object_get(root, "marked"), i, one)
    {
        char dir[] = "/tmp/weft-test-renderer-XXXXXX";
        const char *text = json_string_value(
            json_object_get(one, "template"));
        make_folder(dir, NULL);
        char *path = weft_path_join(dir, "chat_template.jinja");
        REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
        weft_free(path);
        struct weft_tokenizer *tokenizer = open_tokenizer(
            json_string_value(json_object_get(one, "tokenizer")));
        json_array_foreach(json_object_get(root, "marked_rows"), k, row)
            check_turns(dir, tokenizer, row,
                        json_array_get(json_object_get(one, "rows"), k));
        weft_tokenizer_free(tokenizer);
        REQUIRE_OK(weft_dir_remove(dir, &err), err);
    }
    CHECK_INT(i, 6);
    json_decref(root);
}

static const char TURNS[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
    "\"assistant\", \"content\": \"Yes\"}, {\"role\": \"user\", \"content\": "
    "\"So\"}, {\"role\": \"assistant\", \"content\": \"No\"}]}";

/* The text of the tokens that the assistant says by a template of a name. */
static void check_said(const char *template, const char *line,
                       const char *wanted)
{
    struct weft_tokenizer *tokenizer = open_tokenizer("llama3");
    struct weft_rendered r = {0};
    struct weft_err err = {0};
    char *text = NULL;
    int32_t n = 0;
    size_t n_bytes;
    REQUIRE_OK(encode_by(weft_renderer_encode_turns, template, NULL,
                         tokenizer, line, &r, &err),
               err);
    for (int32_t i = 0; i < r.n; i++)
        if (r.said[i])
            r.token[n++] = r.token[i];
    REQUIRE_OK(weft_tokenizer_decode(tokenizer, r.token, (size_t) n, false,
                                     &text, &n_bytes, &err),
               err);
    CHECK_STR(text, wanted);
    weft_free(text);
    weft_free(r.token);
    weft_free(r.said);
    weft_tokenizer_free(tokenizer);
}

static void test_renderer_turns_named(void)
{
    struct weft_tokenizer *tokenizer = open_tokenizer("llama3");
    struct weft_rendered r;
    struct weft_err err = {0};
    check_said("chatml", TURNS, "Yes<|im_end|>\nNo<|im_end|>\n");
    check_said("llama3", TURNS, "Yes<|eot_id|>No<|eot_id|>");
    check_said("mistral", TURNS, " Yes</s> No</s>");
    check_said("<{role}>{content} ;", TURNS, "Yes ;No ;");
    check_said("chatml", "{\"prompt\": \"Hi\", \"response\": \"Yes\"}",
               "Yes<|im_end|>\n");
    CHECK_FAILS(encode_by(weft_renderer_encode_turns, "none", NULL, tokenizer,
                          "{\"prompt\": \"Hi\", \"response\": \"Yes\"}", &r,
                          &err),
                WEFT_EINVAL, err, "no chat template renders the row");
    char dir[] = "/tmp/weft-test-renderer-XXXXXX";
    make_folder(dir, "chatml");
    CHECK_FAILS(encode_by(weft_renderer_encode_turns, "auto", dir, tokenizer,
                          TURNS, &r, &err),
                WEFT_EINVAL, err,
                "chat_template.jinja' does not mark what the assistant says");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    weft_tokenizer_free(tokenizer);
}

static const char PLAIN[] = "{\"prompt\": \"Hi\", \"response\": \"Yes\"}";
static const char CHAT[] =
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";

/* The text of what was encoded. */
static void check_text(const char *template, const char *folder,
                       const char *line, bool pair, const char *wanted)
{
    struct weft_tokenizer *tokenizer = open_tokenizer("llama3");
    struct weft_rendered r = {0};
    struct weft_err err = {0};
    char *text = NULL;
    size_t n = 0;
    REQUIRE_OK(encode(template, folder, tokenizer, line, pair, &r, &err),
               err);
    REQUIRE_OK(weft_tokenizer_decode(tokenizer, r.token, (size_t) r.n, false,
                                     &text, &n, &err),
               err);
    CHECK_STR(text, wanted);
    weft_free(text);
    weft_free(r.token);
    weft_tokenizer_free(tokenizer);
}

static void refused(const char *template, const char *folder,
                    const char *line, int code, const char *part)
{
    struct weft_tokenizer *tokenizer = open_tokenizer("llama3");
    struct weft_rendered r = {0};
    struct weft_err err = {0};
    CHECK_FAILS(encode(template, folder, tokenizer, line, false, &r, &err),
                code, err, part);
    weft_tokenizer_free(tokenizer);
}

static void test_renderer_auto(void)
{
    char with[] = "/tmp/weft-test-renderer-XXXXXX";
    char without[] = "/tmp/weft-test-renderer-XXXXXX";
    struct weft_err err = {0};
    make_folder(with, "phi3");
    make_folder(without, NULL);
    /* With the folder's template: messages, and plain prompts as a user's. */
    check_text("auto", with, CHAT, false,
               "<|user|>\nHi<|end|>\n"
               "<|assistant|>\n");
    check_text("auto", with, PLAIN, false,
               "<|user|>\nHi<|end|>\n"
               "<|assistant|>\n");
    check_text("auto", with, PLAIN, true,
               "<|user|>\nHi<|end|>\n"
               "<|assistant|>\nYes<|end|>\n<E>");
    /* Without one plain prompts stay as they are, messages are refused. */
    check_text("auto", without, PLAIN, false, "<|begin_of_text|>Hi");
    check_text("auto", without, PLAIN, true, "<|begin_of_text|>HiYes");
    refused("auto", without, CHAT, WEFT_EINVAL,
            "has no chat template (chat_template.jinja, or 'chat_template' "
            "in tokenizer_config.json); set data.template to chatml");
    refused("folder", without, PLAIN, WEFT_ENOTFOUND, "has no chat template");
    refused("none", with, CHAT, WEFT_EINVAL,
            "needs a chat template; set data.template to auto");
    check_text("none", with, PLAIN, false, "<|begin_of_text|>Hi");
    /* What has been rendered is not rendered again unasked. */
    static const char rendered[] = "{\"prompt\": \"a<|eot_id|>\"}";
    refused("auto", with, rendered, WEFT_EINVAL,
            "the prompt holds the special token '<|eot_id|>'");
    check_text("none", with, rendered, false, "<|begin_of_text|>a<|eot_id|>");
    check_text("folder", with, rendered, false,
               "<|user|>\na<|eot_id|><|end|>\n<|assistant|>\n");
    refused("chatml", without,
            "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
            WEFT_EUNSUPPORTED, "which Weft does not continue");
    REQUIRE_OK(weft_dir_remove(with, &err), err);
    REQUIRE_OK(weft_dir_remove(without, &err), err);
}

static void test_renderer_variables(void)
{
    char dir[] = "/tmp/weft-test-renderer-XXXXXX";
    struct weft_err err = {0};
    make_folder(dir, "qwen3");
    check_text("auto", dir,
               "{\"prompt\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
               "\"chat_template_kwargs\": {\"enable_thinking\": false}}",
               false,
               "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
               "<think>\n\n</think>\n\n");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("run/renderer",
           {"test_renderer_pair_goldens", test_renderer_pair_goldens},
           {"test_renderer_turns_goldens", test_renderer_turns_goldens},
           {"test_renderer_turns_named", test_renderer_turns_named},
           {"test_renderer_auto", test_renderer_auto},
           {"test_renderer_variables", test_renderer_variables})
