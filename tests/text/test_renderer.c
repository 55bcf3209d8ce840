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

/* What a renderer makes of the only row of a text; rc of the last step. */
static int encode(const char *template, const char *folder,
                  const struct weft_tokenizer *tokenizer, const char *line,
                  bool pair, struct weft_rendered *out, struct weft_err *err)
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
        rc = pair
               ? weft_renderer_encode_pair(&r, tokenizer, &row, out, err)
               : weft_renderer_encode_prompt(&r, tokenizer, &row, out, err);
    weft_row_release(&row);
    weft_dataset_close(d);
    weft_renderer_release(&r);
    return rc;
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
           {"test_renderer_auto", test_renderer_auto},
           {"test_renderer_variables", test_renderer_variables})
