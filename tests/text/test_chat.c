/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates against Transformers: tests/data/chat. */
#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/chat.h"

#include <unistd.h>

static const struct weft_date DAY = {2024, 7, 26};

static void write_file(const char *dir, const char *name, const char *text)
{
    struct weft_err err = {0};
    char *path = weft_path_join(dir, name);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
    weft_free(path);
}

/* A folder with a golden template and the special tokens of the goldens. */
static struct weft_chat *open_golden(const char *name)
{
    char dir[] = "/tmp/weft-test-chat-XXXXXX", path[256], *jinja = NULL;
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    size_t n = 0;
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "chat/%s", name);
    REQUIRE_OK(weft_file_read(weft_test_data(path), 0, &jinja, &n, &err),
               err);
    write_file(dir, "chat_template.jinja", jinja);
    write_file(dir, "tokenizer_config.json",
               "{\"bos_token\": \"<B>\", \"eos_token\": {\"content\": "
               "\"<E>\"}, \"pad_token\": null}");
    REQUIRE_OK(weft_chat_open("folder", dir, &DAY, &chat, &err), err);
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
    weft_free(jinja);
    return chat;
}

static void check_case(const struct weft_chat *chat, const char *name,
                       size_t i, const json_t *one, const json_t *wanted)
{
    struct weft_err err = {0};
    struct weft_str text = {0};
    int rc = weft_chat_render(chat, json_object_get(one, "messages"),
                              json_object_get(one, "variables"),
                              json_is_true(json_object_get(one, "generate")),
                              &text, &err);
    bool same = json_is_string(wanted)
                  ? rc == 0 && weft_str_equal(text, weft_json_str(wanted))
                  : rc != 0;
    if (!same)
        printf("\n    %s: case %zu gives '%s',\n    not '%s'\n", name, i,
               rc ? err.text : text.s,
               json_is_string(wanted) ? json_string_value(wanted)
                                      : "an error");
    CHECK(same);
    weft_str_release(&text);
}

static void test_chat_render_goldens(void)
{
    json_error_t error;
    json_t *root = json_load_file(weft_test_data("chat/goldens.json"),
                                  JSON_ALLOW_NUL, &error);
    json_t *texts, *one;
    const char *name;
    int checked = 0;
    REQUIRE(root != NULL);
    json_object_foreach(json_object_get(root, "templates"), name, texts)
    {
        struct weft_chat *chat = open_golden(name);
        size_t i;
        json_array_foreach(json_object_get(root, "cases"), i, one)
            check_case(chat, name, i, one, json_array_get(texts, i));
        CHECK(i > 70);
        weft_chat_free(chat);
        checked++;
    }
    CHECK_INT(checked, 23);
    json_decref(root);
}

/* Renders with a named template; the caller releases the text. */
static struct weft_str render(const char *name, const json_t *messages,
                              bool generate)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    struct weft_str text = {0};
    REQUIRE_OK(weft_chat_open(name, NULL, &DAY, &chat, &err), err);
    REQUIRE_OK(weft_chat_render(chat, messages, NULL, generate, &text, &err),
               err);
    weft_chat_free(chat);
    return text;
}

static void check_named(const char *name, const char *json, bool generate,
                        const char *wanted)
{
    struct weft_err err = {0};
    json_t *messages = NULL;
    REQUIRE_OK(weft_json_parse(json, strlen(json), "m", &messages, &err),
               err);
    struct weft_str text = render(name, messages, generate);
    CHECK_STR(text.s, wanted);
    weft_str_release(&text);
    json_decref(messages);
}

#define SYSTEM "{\"role\": \"system\", \"content\": \"Be kind.\"}"
#define USER "{\"role\": \"user\", \"content\": \"Hi \"}"
#define PARTS                                                                \
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "     \
    "\"H\"}, {\"type\": \"text\", \"text\": \"i \"}]}"
#define ANSWER "{\"role\": \"assistant\", \"content\": \" Yes\"}"

static void test_chat_open_named(void)
{
    check_named("chatml", "[" SYSTEM "," PARTS "]", true,
                "<|im_start|>system\nBe kind.<|im_end|>\n"
                "<|im_start|>user\nHi <|im_end|>\n"
                "<|im_start|>assistant\n");
    check_named("llama3", "[" SYSTEM "," USER "]", true,
                "<|begin_of_text|><|start_header_id|>system"
                "<|end_header_id|>\n\nBe kind.<|eot_id|>"
                "<|start_header_id|>user<|end_header_id|>\n\nHi"
                "<|eot_id|><|start_header_id|>assistant"
                "<|end_header_id|>\n\n");
    check_named("mistral", "[" SYSTEM "," USER "," ANSWER "," PARTS "]", true,
                "<s>[INST] Hi [/INST] Yes</s>"
                "[INST] Be kind.\n\nHi [/INST]");
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    struct weft_str text = {0};
    json_t *wrong = json_pack("[{s:s, s:s}]", "role", "assistant", "content",
                              "x");
    REQUIRE_OK(weft_chat_open("mistral", NULL, &DAY, &chat, &err), err);
    CHECK_FAILS(weft_chat_render(chat, wrong, NULL, false, &text, &err),
                WEFT_EINVAL, err,
                "mistral:1: the template refuses these messages: after the "
                "system's, messages must be the user's and the assistant's");
    weft_chat_free(chat);
    json_decref(wrong);
}

static void test_chat_open_pattern(void)
{
    check_named("{role}: {content}\n", "[" SYSTEM "," PARTS "]", true,
                "system: Be kind.\nuser: Hi \nassistant: ");
    check_named("<{role}>{content}</{role}>\\n", "[" SYSTEM "," USER "]",
                false, "<system>Be kind.</system>\n<user>Hi </user>\n");
    check_named("{content}", "[" USER "]", true, "Hi ");
    check_named("\\\\{{role}\\t{x} \"{content}\" %} }}", "[" USER "]", false,
                "\\{user\t{x} \"Hi \" %} }}");
    check_named("{{ 1 }} {% {content}", "[" USER "]", false,
                "{{ 1 }} {% Hi ");
    check_named(" \n {role} {content} \n \n", "[" USER "]", false,
                " \n user Hi  \n \n");
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    CHECK_FAILS(weft_chat_open("chatlm", NULL, &DAY, &chat, &err),
                WEFT_EINVAL, err,
                "'chatlm' is none of folder, chatml, llama3, mistral");
    CHECK_FAILS(weft_chat_open("{content}{content}", NULL, &DAY, &chat, &err),
                WEFT_EINVAL, err, "{content} twice");
    CHECK_FAILS(weft_chat_open("folder", NULL, &DAY, &chat, &err),
                WEFT_EINVAL, err, "needs a folder");
    CHECK(weft_chat_is_name("chatml") && weft_chat_is_name("folder"));
    CHECK(weft_chat_is_name("a{content}") && !weft_chat_is_name("auto"));
}

static void check_turn_end(const char *name, const char *wanted)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    REQUIRE_OK(weft_chat_open(name, NULL, &DAY, &chat, &err), err);
    CHECK_STR(weft_chat_turn_end(chat), wanted);
    weft_chat_free(chat);
}

static void test_chat_turn_end(void)
{
    check_turn_end("chatml", "<|im_end|>\n");
    check_turn_end("llama3", "<|eot_id|>");
    check_turn_end("mistral", "</s>");
    check_turn_end("Q {content} A", " A");
    check_turn_end("{role}{content}", "");
}

/* The template of a folder, from the place that is asked first. */
static void check_folder(const char *dir, const char *wanted)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    struct weft_str text = {0};
    json_t *messages = json_array();
    REQUIRE_OK(weft_chat_open("folder", dir, &DAY, &chat, &err), err);
    REQUIRE_OK(weft_chat_render(chat, messages, NULL, false, &text, &err),
               err);
    CHECK_STR(text.s, wanted);
    weft_str_release(&text);
    weft_chat_free(chat);
    json_decref(messages);
}

static void test_chat_open_folder(void)
{
    char dir[] = "/tmp/weft-test-chat-XXXXXX";
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    REQUIRE(mkdtemp(dir) != NULL);
    CHECK_FAILS(weft_chat_open("folder", dir, &DAY, &chat, &err),
                WEFT_ENOTFOUND, err, "has no chat template");
    write_file(dir, "tokenizer_config.json", "{\"bos_token\": null}");
    CHECK_FAILS(weft_chat_open("folder", dir, &DAY, &chat, &err),
                WEFT_ENOTFOUND, err, "has no chat template");
    write_file(dir, "tokenizer_config.json", "{\"chat_template\": ");
    CHECK_FAILS(weft_chat_open("folder", dir, &DAY, &chat, &err),
                WEFT_EFORMAT, err, "tokenizer_config.json:1");
    write_file(dir, "special_tokens_map.json",
               "{\"bos_token\": \"<old>\", \"sep_token\": \"<sep>\"}");
    write_file(dir, "tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<S>\"}, \"eos_token\": "
               "\"<T>\", \"chat_template\": [{\"name\": \"tools\", "
               "\"template\": \"?\"}, {\"name\": \"default\", \"template\": "
               "\"{{ bos_token + sep_token + eos_token }}{{ tools is none "
               "}}\"}]}");
    check_folder(dir, "<S><sep><T>True");
    write_file(dir, "tokenizer_config.json",
               "{\"chat_template\": \"{{ bos_token }}{{ eos_token }}\"}");
    check_folder(dir, "<old>");
    /* A file of its own comes first. */
    write_file(dir, "chat_template.jinja", "{{ strftime_now('%d %b %Y') }}");
    check_folder(dir, "26 Jul 2024");
    write_file(dir, "chat_template.jinja", "\n{{ messages");
    CHECK_FAILS(weft_chat_open("folder", dir, &DAY, &chat, &err),
                WEFT_EFORMAT, err,
                "chat_template.jinja:2: the tag has no '}}'");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("text/chat",
           {"test_chat_render_goldens", test_chat_render_goldens},
           {"test_chat_open_named", test_chat_open_named},
           {"test_chat_open_pattern", test_chat_open_pattern},
           {"test_chat_turn_end", test_chat_turn_end},
           {"test_chat_open_folder", test_chat_open_folder})
