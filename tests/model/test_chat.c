/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates against Jinja: tests/data/chat. */
#include "harness.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "model/chat.h"

#include <unistd.h>

enum { MOST = 8 };

/* Messages of a golden case; borrowed from it. */
static size_t case_messages(const json_t *list, struct weft_message *m)
{
    const json_t *item;
    size_t i;
    REQUIRE(json_array_size(list) <= MOST);
    json_array_foreach(list, i, item)
    {
        m[i].role = (char *) (uintptr_t) json_string_value(
            json_object_get(item, "role"));
        m[i].content = (char *) (uintptr_t) json_string_value(
            json_object_get(item, "content"));
    }
    return json_array_size(list);
}

static void check_template(const char *name, const json_t *texts,
                           const json_t *cases)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    char path[256], *jinja = NULL;
    size_t n_jinja = 0, i;
    const json_t *one;
    snprintf(path, sizeof path, "chat/%s", name);
    REQUIRE_OK(
        weft_file_read(weft_test_data(path), 0, &jinja, &n_jinja, &err), err);
    REQUIRE_OK(weft_chat_detect(jinja, "<B>", "<E>", name, &chat, &err), err);
    json_array_foreach(cases, i, one)
    {
        struct weft_message m[MOST];
        size_t n = case_messages(one, m);
        for (size_t generate = 0; generate < 2; generate++) {
            const char *wanted = json_string_value(
                json_array_get(texts, 2 * i + generate));
            char *text = NULL;
            int rc = weft_chat_render(chat, m, n, generate, &text, &err);
            if ((rc == 0) != (wanted != NULL))
                printf("\n    %s: case %zu: %s\n", name, i,
                       rc ? err.text : "rendered");
            CHECK((rc == 0) == (wanted != NULL));
            if (!rc && wanted)
                CHECK_STR(text, wanted);
            weft_free(text);
        }
    }
    weft_chat_free(chat);
    weft_free(jinja);
}

static void test_chat_render_goldens(void)
{
    struct weft_err err = {0};
    json_t *root = NULL, *texts;
    const char *name;
    int checked = 0;
    REQUIRE_OK(
        weft_json_read(weft_test_data("chat/goldens.json"), 0, &root, &err),
        err);
    json_object_foreach(json_object_get(root, "templates"), name, texts)
    {
        check_template(name, texts, json_object_get(root, "cases"));
        checked++;
    }
    CHECK_INT(checked, 11);
    json_decref(root);
}

/* Renders with a named template; caller frees. */
static char *render(const char *name, const struct weft_message *m, size_t n,
                    bool generate)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    char *text = NULL;
    REQUIRE_OK(weft_chat_open(name, NULL, &chat, &err), err);
    REQUIRE_OK(weft_chat_render(chat, m, n, generate, &text, &err), err);
    weft_chat_free(chat);
    return text;
}

static struct weft_message SYSTEM = {"system", "Be kind."};
static struct weft_message USER = {"user", "Hi "};
static struct weft_message ANSWER = {"assistant", "Yes"};

static void test_chat_open_named(void)
{
    const struct weft_message m[] = {SYSTEM, USER, ANSWER, USER};
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    char *text = render("chatml", m, 2, true);
    CHECK_STR(text, "<|im_start|>system\nBe kind.<|im_end|>\n"
                    "<|im_start|>user\nHi <|im_end|>\n"
                    "<|im_start|>assistant\n");
    weft_free(text);
    text = render("llama3", m, 2, true);
    CHECK_STR(text, "<|begin_of_text|><|start_header_id|>system"
                    "<|end_header_id|>\n\nBe kind.<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nHi"
                    "<|eot_id|><|start_header_id|>assistant"
                    "<|end_header_id|>\n\n");
    weft_free(text);
    text = render("mistral", m, 4, true);
    CHECK_STR(text, "<s>[INST] Hi [/INST] Yes</s>"
                    "[INST] Be kind.\n\nHi [/INST]");
    weft_free(text);
    REQUIRE_OK(weft_chat_open("mistral", NULL, &chat, &err), err);
    CHECK_STR(weft_chat_family(chat), "mistral");
    CHECK_STR(weft_chat_turn_end(chat), "</s>");
    CHECK_FAILS(weft_chat_render(chat, m, 1, false, &text, &err), WEFT_EINVAL,
                err, "no user's message");
    CHECK_FAILS(weft_chat_render(chat, m + 2, 2, false, &text, &err),
                WEFT_EINVAL, err,
                "message 0 has the role 'assistant', but the template "
                "'mistral' wants 'user'");
    weft_chat_free(chat);
    REQUIRE_OK(weft_chat_open("chatml", NULL, &chat, &err), err);
    CHECK_STR(weft_chat_turn_end(chat), "<|im_end|>");
    const struct weft_message tool = {"tool", "4"};
    CHECK_FAILS(weft_chat_render(chat, &tool, 1, false, &text, &err),
                WEFT_EUNSUPPORTED, err, "'tool'");
    CHECK_FAILS(weft_chat_render(chat, m, 0, false, &text, &err), WEFT_EINVAL,
                err, "no messages");
    weft_chat_free(chat);
}

static void test_chat_open_pattern(void)
{
    const struct weft_message m[] = {SYSTEM, USER};
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    char *text = render("{role}: {content}\n", m, 2, true);
    CHECK_STR(text, "system: Be kind.\nuser: Hi \nassistant: ");
    weft_free(text);
    text = render("<{role}>{content}</{role}>\\n", m, 2, false);
    CHECK_STR(text, "<system>Be kind.</system>\n<user>Hi </user>\n");
    weft_free(text);
    text = render("{content}", m + 1, 1, true);
    CHECK_STR(text, "Hi ");
    weft_free(text);
    text = render("\\\\{{role}\\t{x} {content}", m + 1, 1, false);
    CHECK_STR(text, "\\{user\t{x} Hi ");
    weft_free(text);
    REQUIRE_OK(weft_chat_open("Q {content} A", NULL, &chat, &err), err);
    CHECK_STR(weft_chat_family(chat), "pattern");
    CHECK_STR(weft_chat_turn_end(chat), " A");
    weft_chat_free(chat);
    CHECK_FAILS(weft_chat_open("chatlm", NULL, &chat, &err), WEFT_EINVAL, err,
                "'chatlm' is none of auto, chatml, llama3, mistral");
    CHECK_FAILS(weft_chat_open("{content}{content}", NULL, &chat, &err),
                WEFT_EINVAL, err, "{content} twice");
    CHECK_FAILS(weft_chat_open("auto", NULL, &chat, &err), WEFT_EINVAL, err,
                "needs a model folder");
}

static void refused(const char *jinja)
{
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    CHECK_FAILS(weft_chat_detect(jinja, NULL, NULL, "x.jinja", &chat, &err),
                WEFT_EUNSUPPORTED, err,
                "x.jinja: the chat template is of no family that Weft knows");
}

/* Known markers in unknown surroundings are no reason to guess. */
static void test_chat_detect_unknown(void)
{
    refused("");
    refused("{{ messages }}");
    refused("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}");
    refused("<start_of_turn>user\n{{ m.content }}<end_of_turn>\n");
    refused("{{ '<|im_start|>' }}");
    refused("{{ '<|im_start|>user<|im_sep|>' + c + '<|im_end|>\\n' }}"
            "<|im_start|>assistant");
    refused("{% set x = 'A system.' %}{{ '<|im_start|>system\\n' + x + "
            "'<|im_end|>\\n' }}{{ '<|im_start|>assistant\\n' }}");
    refused("{{ '<|im_start|>' + m.role + '\\n' + m.content + "
            "'<|im_end|>\\n' }}{% if thinking %}<think>{% endif %}"
            "{{ '<|im_start|>assistant\\n' }}");
    refused("{{ '<|start_header_id|>' + m.role }}");
    refused("{{ bos_token + '[INST] <<SYS>>' + s + '[/INST]' + eos_token }}");
    refused("[INST] {{ m.content }} [/INST]{{ eos_token }}");
    refused("{{ '[SYSTEM_PROMPT]' }}{{ '[INST]' + c + '[/INST]' + eos_token "
            "}}");
    refused("{{ '");
    refused("{%");
}

static void write_file(const char *dir, const char *name, const char *text)
{
    struct weft_err err = {0};
    char *path = weft_path_join(dir, name);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
    weft_free(path);
}

static void test_chat_open_auto(void)
{
    char dir[] = "/tmp/weft-test-chat-XXXXXX";
    const struct weft_message m[] = {USER};
    struct weft_chat *chat = NULL;
    struct weft_err err = {0};
    char *text = NULL;
    REQUIRE(mkdtemp(dir) != NULL);
    CHECK_FAILS(weft_chat_open("auto", dir, &chat, &err), WEFT_ENOTFOUND, err,
                "has no chat template");
    write_file(dir, "tokenizer_config.json", "{\"bos_token\": null}");
    CHECK_FAILS(weft_chat_open("auto", dir, &chat, &err), WEFT_ENOTFOUND, err,
                "has no chat template");
    write_file(dir, "tokenizer_config.json", "{\"chat_template\": ");
    CHECK_FAILS(weft_chat_open("auto", dir, &chat, &err), WEFT_EFORMAT, err,
                "tokenizer_config.json:1");
    write_file(dir, "tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<S>\"}, \"eos_token\": "
               "\"<T>\", \"chat_template\": [{\"name\": \"tools\", "
               "\"template\": \"?\"}, {\"name\": \"default\", \"template\": "
               "\"{{bos_token}}{% if message['role'] == 'user' %}{{'[INST]'"
               " + message['content'] + '[/INST]'}}{% else %}{{message["
               "'content'] + eos_token}}{% endif %}\"}]}");
    REQUIRE_OK(weft_chat_open("auto", dir, &chat, &err), err);
    CHECK_STR(weft_chat_family(chat), "mistral");
    CHECK_STR(weft_chat_turn_end(chat), "<T>");
    REQUIRE_OK(weft_chat_render(chat, m, 1, true, &text, &err), err);
    CHECK_STR(text, "<S>[INST]Hi [/INST]");
    weft_free(text);
    weft_chat_free(chat);
    /* A file of its own comes first. */
    write_file(dir, "chat_template.jinja",
               "{{'<|im_start|>' + role + '\\n' + c + '<|im_end|>\\n'}}"
               "{{'<|im_start|>assistant\\n'}}");
    REQUIRE_OK(weft_chat_open("auto", dir, &chat, &err), err);
    CHECK_STR(weft_chat_family(chat), "chatml");
    weft_chat_free(chat);
    write_file(dir, "chat_template.jinja", "{{ messages }}");
    CHECK_FAILS(weft_chat_open("auto", dir, &chat, &err), WEFT_EUNSUPPORTED,
                err, "chat_template.jinja: the chat template is of no");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

WEFT_TESTS("model/chat",
           {"test_chat_render_goldens", test_chat_render_goldens},
           {"test_chat_open_named", test_chat_open_named},
           {"test_chat_open_pattern", test_chat_open_pattern},
           {"test_chat_detect_unknown", test_chat_detect_unknown},
           {"test_chat_open_auto", test_chat_open_auto})
