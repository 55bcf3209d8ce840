/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "text/dataset.h"

#include <time.h>
#include <unistd.h>

static struct weft_dataset *parse(const char *text,
                                  const struct weft_dataset_keys *keys)
{
    struct weft_err err = {0};
    struct weft_dataset *d = NULL;
    REQUIRE_OK(
        weft_dataset_parse(text, strlen(text), "d.jsonl", keys, &d, &err),
        err);
    return d;
}

static struct weft_row row_of(const struct weft_dataset *d, size_t i)
{
    struct weft_err err = {0};
    struct weft_row row = {0};
    REQUIRE_OK(weft_dataset_row(d, i, &row, &err), err);
    return row;
}

/* Equal bytes; wanted NULL: no text. */
static void check_same(struct weft_str got, const char *wanted)
{
    if (wanted)
        CHECK_STR(got.s, wanted);
    else
        CHECK(got.s == NULL);
    CHECK_INT(got.n, wanted ? strlen(wanted) : 0);
}

/* A message's role or content; a list of parts as JSON. */
static const char *part(const struct weft_row *row, size_t i, const char *key)
{
    static char text[200];
    const json_t *value = json_object_get(json_array_get(row->messages, i),
                                          key);
    if (json_is_string(value))
        return json_string_value(value);
    char *json = weft_json_text(value);
    snprintf(text, sizeof text, "%s", json);
    weft_free(json);
    return text;
}

/* The only row of a text; NULL stands for a missing part. `messages`:
 * "role:content|role:content". */
static void check_row_for(unsigned need, const char *text, const char *prompt,
                          const char *messages, const char *response,
                          const char *label)
{
    const struct weft_dataset_keys keys = {.need = need};
    struct weft_dataset *d = parse(text, &keys);
    struct weft_row row = row_of(d, 0);
    char joined[1024] = "";
    for (size_t i = 0; i < json_array_size(row.messages); i++)
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined),
                 "%s%s:%s", i ? "|" : "", part(&row, i, "role"),
                 part(&row, i, "content"));
    check_same(row.prompt, prompt);
    CHECK_STR(joined, messages ? messages : "");
    check_same(row.response, response);
    check_same(row.label, label);
    CHECK_STR(row.json, text);
    CHECK_INT(row.line, 1);
    weft_row_release(&row);
    weft_dataset_close(d);
}

static void check_row(const char *text, const char *prompt,
                      const char *messages, const char *response,
                      const char *label)
{
    unsigned need = (prompt || messages ? WEFT_NEED_PROMPT : 0)
                  | (response ? WEFT_NEED_RESPONSE : 0)
                  | (label ? WEFT_NEED_LABEL : 0);
    check_row_for(need, text, prompt, messages, response, label);
    check_row_for(WEFT_NEED_NOTHING, text, prompt, messages, response, label);
}

/* ---- Others' formats -------------------------------------------------- */

static void test_dataset_row_texts(void)
{
    check_row("{\"prompt\": \"p\"}", "p", NULL, NULL, NULL);
    check_row("{\"prompt\": \"p\", \"completion\": \"c\"}", "p", NULL, "c",
              NULL);
    check_row("{\"text\": \"t\"}", NULL, NULL, "t", NULL);
    check_row("{\"prompt\": \"p\", \"completion\": \"c\", \"label\": true}",
              "p", NULL, "c", "true"); /* KTO */
    check_row("{\"question\": \"q\", \"answer\": \"a #### 4\"}", "q", NULL,
              "a #### 4", "a #### 4"); /* GSM8K */
    check_row("{\"input\": \"i\", \"output\": \"o\"}", "i", NULL, "o", NULL);
    check_row("{\"input\": \"i\", \"label\": \"l\"}", "i", NULL, NULL, "l");
    check_row("{\"prompt\": \"p\", \"answer\": \"a\"}", "p", NULL, "a", "a");
    check_row("{\"problem\": \"p\", \"solution\": \"s\"}", "p", NULL, NULL,
              "s");
    check_row("{\"problem\": \"p\", \"answer\": 42}", "p", NULL, NULL, "42");
    check_row("{\"prompt\": \"p\", \"label\": [\"a\", 0.5]}", "p", NULL, NULL,
              "[\"a\",0.5]");
    check_row("{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\"}",
              "i", NULL, "o", NULL);
    check_row("{\"id\": 1, \"prompt\": \"p\", \"ground_truth\": \"g\", "
              "\"tag\": \"t\"}",
              "p", NULL, NULL, "g"); /* ROLL */
    check_row("{\"prompt\": \"\\u00e9\\n\", \"completion\": \"\"}",
              "\xc3\xa9\n", NULL, "", NULL);
}

/* Texts go on behind a zero character. */
static void test_dataset_row_zeros(void)
{
    static const struct {
        const char *text;
        struct weft_str prompt, response, label;
    } known[] = {
        {"{\"prompt\": \"a\\u0000b\", \"response\": \"\\u0000\", "
         "\"label\": \"\\u0000\\u0000\"}",
         {"a\0b", 3},
         {"\0", 1},
         {"\0\0", 2}},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
         "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
         "\"text\": \"r\\u0000\"}, {\"type\": \"text\", \"text\": "
         "\"s\"}]}], \"label\": [\"\\u0000\"]}",
         {0},
         {"r\0s", 3},
         {"[\"\\u0000\"]", 10}},
    };
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        struct weft_dataset *d = parse(known[i].text, NULL);
        struct weft_row row = row_of(d, 0);
        CHECK(weft_str_equal(row.prompt, known[i].prompt));
        CHECK(weft_str_equal(row.response, known[i].response));
        CHECK(weft_str_equal(row.label, known[i].label));
        weft_row_release(&row);
        weft_dataset_close(d);
    }
    static const char pair[] = "{\"chosen\": \"a\\u0000b c\", "
                               "\"rejected\": \"a\\u0000b d\"}";
    const struct weft_dataset_keys keys = {.need = WEFT_NEED_PAIR};
    struct weft_dataset *d = parse(pair, &keys);
    struct weft_row row = row_of(d, 0);
    CHECK(weft_str_equal(row.prompt, (struct weft_str){"a\0b", 3}));
    check_same(row.chosen, " c");
    check_same(row.rejected, " d");
    weft_row_release(&row);
    weft_dataset_close(d);
}

static void test_dataset_row_messages(void)
{
    check_row("{\"data_source\": \"x\", \"prompt\": [{\"role\": \"user\", "
              "\"content\": \"q\"}], \"reward_model\": {\"style\": \"rule\","
              " \"ground_truth\": \"7\"}, \"extra_info\": {\"index\": 0}}",
              NULL, "user:q", NULL, "7"); /* verl */
    check_row("{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], "
              "\"reward_spec\": {\"method\": \"rule\", \"ground_truth\": 7}}",
              NULL, "user:q", NULL, "7"); /* SkyRL */
    check_row("{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, "
              "{\"role\": \"user\", \"content\": \"u\"}, {\"role\": "
              "\"assistant\", \"content\": \"a\"}]}",
              NULL, "system:s|user:u", "a", NULL);
    check_row("{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}], "
              "\"answer\": \"4\"}",
              NULL, "user:u", "4", "4");
    check_row("{\"messages\": \"[{\\\"role\\\": \\\"user\\\", "
              "\\\"content\\\": \\\"u\\\"}]\", \"ground_truth\": \"g\"}",
              NULL, "user:u", NULL, "g"); /* ROLL */
    check_row("{\"conversations\": [{\"from\": \"human\", \"value\": \"u\"},"
              " {\"from\": \"gpt\", \"value\": \"a\"}]}",
              NULL, "user:u", "a", NULL);
    check_row("{\"prompt\": [{\"role\": \"user\", \"content\": \"u\"}], "
              "\"completion\": [{\"role\": \"assistant\", \"content\": "
              "\"c\"}]}",
              NULL, "user:u", "c", NULL);
    check_row("{\"prompt\": [{\"role\": \"user\", \"content\": [{\"type\": "
              "\"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": "
              "\"b\"}]}]}",
              NULL,
              "user:[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}]",
              NULL, NULL);
}

/* What a chat template is given of a row, as JSON; NULL: nothing. */
static void check_given(const json_t *got, const char *wanted)
{
    char *text = got ? weft_json_text(got) : NULL;
    CHECK(!got == !wanted);
    if (text && wanted)
        CHECK_STR(text, wanted);
    weft_free(text);
}

static void check_chat(const char *text, const char *messages,
                       const char *answer, const char *variables)
{
    struct weft_dataset *d = parse(text, NULL);
    struct weft_row row = row_of(d, 0);
    check_given(row.messages, messages);
    check_given(row.answer, answer);
    check_given(row.variables, variables);
    weft_row_release(&row);
    weft_dataset_close(d);
}

/* Messages keep what they have beside role and content. */
static void test_dataset_row_chat(void)
{
    check_chat("{\"messages\": [{\"role\": \"user\", \"content\": \"q\", "
               "\"name\": \"Bo\"}, {\"role\": \"assistant\", \"content\": "
               "\"a\", \"reasoning_content\": \"r\"}]}",
               "[{\"role\":\"user\",\"content\":\"q\",\"name\":\"Bo\"}]",
               "{\"role\":\"assistant\",\"content\":\"a\","
               "\"reasoning_content\":\"r\"}",
               NULL);
    check_chat("{\"conversations\": [{\"from\": \"human\", \"value\": "
               "\"q\"}, {\"from\": \"gpt\", \"value\": \"a\"}]}",
               "[{\"role\":\"user\",\"content\":\"q\"}]",
               "{\"role\":\"assistant\",\"content\":\"a\"}", NULL);
    check_chat("{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], "
               "\"completion\": [{\"role\": \"assistant\", \"content\": "
               "null, \"tool_calls\": []}], \"tools\": \"[{\\\"a\\\": "
               "1}]\", \"chat_template_kwargs\": {\"enable_thinking\": "
               "false}}",
               "[{\"role\":\"user\",\"content\":\"q\"}]",
               "{\"role\":\"assistant\",\"content\":null,"
               "\"tool_calls\":[]}",
               "{\"enable_thinking\":false,\"tools\":[{\"a\":1}]}");
    check_chat("{\"prompt\": \"q\", \"response\": \"a\", \"tools\": 1}", NULL,
               NULL, NULL);
}

static void check_pair(const char *text, const char *prompt,
                       const char *chosen, const char *rejected)
{
    static const struct weft_dataset_keys pair = {.need = WEFT_NEED_PAIR};
    struct weft_dataset *d = parse(text, &pair);
    struct weft_row row = row_of(d, 0);
    if (row.prompt.s) {
        check_same(row.prompt, prompt);
    } else {
        CHECK_INT(json_array_size(row.messages), 1);
        CHECK_STR(part(&row, 0, "content"), prompt);
    }
    check_same(row.chosen, chosen);
    check_same(row.rejected, rejected);
    weft_row_release(&row);
    weft_dataset_close(d);
}

static void test_dataset_row_pairs(void)
{
    check_pair("{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}",
               "p", "c", "r");
    check_pair("{\"prompt\": \"p\", \"pos_answers\": [\"c\"], "
               "\"neg_answers\": [\"r\"]}",
               "p", "c", "r"); /* ReaLHF */
    /* What TRL's extract_prompt() makes of them. */
    check_pair("{\"chosen\": \"The sky is blue.\", \"rejected\": \"The sky "
               "is green.\"}",
               "The sky is", " blue.", " green.");
    check_pair("{\"chosen\": \"ab1\", \"rejected\": \"ab2\"}", "ab", "1",
               "2");
    check_pair("{\"chosen\": \"p \\u00e9\", \"rejected\": \"p \\u00e8\"}",
               "p", " \xc3\xa9", " \xc3\xa8");
    check_pair("{\"chosen\": \"p\\u00e9\", \"rejected\": \"p\\u00e8\"}", "p",
               "\xc3\xa9", "\xc3\xa8");
    check_pair("{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, "
               "{\"role\": \"assistant\", \"content\": \"c\"}], "
               "\"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, "
               "{\"role\": \"assistant\", \"content\": \"r\"}]}",
               "q", "c", "r");
    check_pair("{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], "
               "\"chosen\": [{\"role\": \"assistant\", \"content\": \"c\"}],"
               " \"rejected\": [{\"role\": \"assistant\", \"content\": "
               "\"r\"}]}",
               "q", "c", "r");
}

static void test_dataset_named_keys(void)
{
    const struct weft_dataset_keys keys = {.prompt = "in.text",
                                           .response = "answer",
                                           .label = "meta.gold.value"};
    struct weft_dataset *d = parse(
        "{\"prompt\": \"no\", \"in\": {\"text\": \"yes\"}, \"answer\":"
        " \"r\", \"label\": \"no\", \"meta\": {\"gold\": {\"value\": "
        "3}}}\n",
        &keys);
    struct weft_row row = row_of(d, 0);
    check_same(row.prompt, "yes");
    check_same(row.response, "r");
    check_same(row.label, "3");
    weft_row_release(&row);
    weft_dataset_close(d);
    const struct weft_dataset_keys text = {.prompt = "text"};
    d = parse("{\"text\": \"t\"}", &text);
    row = row_of(d, 0);
    check_same(row.prompt, "t");
    CHECK(!row.response.s);
    weft_row_release(&row);
    weft_dataset_close(d);
}

/* Rows of any kind, mixed. */
static void test_dataset_need_nothing(void)
{
    static const struct weft_dataset_keys any = {.need = WEFT_NEED_NOTHING};
    struct weft_dataset *d = parse(
        "{\"tokens\": [1, 2]}\n"
        "{\"text\": \"t\"}\n"
        "{\"prompt\": \"p\"}\n"
        "{\"question\": \"q\", \"answer\": \"a\"}\n",
        &any);
    static const char *const prompts[] = {NULL, NULL, "p", "q"};
    static const char *const responses[] = {NULL, "t", NULL, "a"};
    CHECK_INT(weft_dataset_size(d), 4);
    for (size_t i = 0; i < 4; i++) {
        struct weft_row row = row_of(d, i);
        check_same(row.prompt, prompts[i]);
        check_same(row.response, responses[i]);
        CHECK(row.json[0] == '{');
        weft_row_release(&row);
    }
    weft_dataset_close(d);
}

/* ---- Lines ------------------------------------------------------------ */

static void test_dataset_lines(void)
{
    struct weft_dataset *d = parse("\xef\xbb\xbf{\"prompt\": \"a\"}\r\n\r\n"
                                   "  \t\n {\"prompt\": \"b\"} \r\n"
                                   "{\"prompt\": \"c\"}",
                                   NULL);
    static const char *const prompts[] = {"a", "b", "c"};
    static const size_t lines[] = {1, 4, 5};
    CHECK_INT(weft_dataset_size(d), 3);
    for (size_t i = 0; i < 3; i++) {
        struct weft_row row = row_of(d, i);
        check_same(row.prompt, prompts[i]);
        CHECK_INT(row.line, lines[i]);
        CHECK(!strchr(row.json, '\r'));
        weft_row_release(&row);
    }
    weft_dataset_close(d);
    weft_dataset_close(NULL);
}

/* ---- Bad data --------------------------------------------------------- */

static void refused_for(unsigned need, const char *text, int rc,
                        const char *part)
{
    struct weft_dataset_keys keys = {.need = need};
    struct weft_err err = {0};
    struct weft_dataset *d = NULL;
    CHECK_FAILS(
        weft_dataset_parse(text, strlen(text), "d.jsonl", &keys, &d, &err),
        rc, err, part);
    CHECK(strncmp(err.text, "d.jsonl", 7) == 0);
    CHECK(!d);
}

static void refused(const char *text, int rc, const char *part)
{
    refused_for(0, text, rc, part);
}

#define OK_LINE "{\"prompt\": \"a\"}\n"

static void test_dataset_parse_bad(void)
{
    refused("", WEFT_EINVAL, "d.jsonl: has no rows");
    refused("\n \n\r\n", WEFT_EINVAL, "has no rows");
    refused(OK_LINE "{\"prompt\": }\n", WEFT_EFORMAT,
            "d.jsonl:2:12: not JSON");
    refused(OK_LINE "\n{\"prompt\": \"x\"\n", WEFT_EFORMAT,
            "d.jsonl:3:14: the JSON text ends too early");
    refused("[\n{\"prompt\": \"a\"}\n]\n", WEFT_EFORMAT, "d.jsonl:1");
    refused("[{\"prompt\": \"a\"}]\n", WEFT_EFORMAT,
            "d.jsonl:1: each line must be a JSON object, this is an array");
    refused("\"a\"\n", WEFT_EFORMAT, "this is a string");
    refused(OK_LINE "{\"prompt\": \"\"}\n", WEFT_EINVAL,
            "d.jsonl:2: 'prompt' is empty");
    refused(OK_LINE "{\"prompt\": null}\n", WEFT_ENOTFOUND,
            "d.jsonl:2: 'prompt' is null");
    refused(OK_LINE "{\"prompt\": 3}\n", WEFT_EFORMAT,
            "d.jsonl:2: 'prompt' must be a string or a list of messages, not "
            "an integer");
    refused(OK_LINE "{\"question\": \"q\", \"answer\": \"a\"}\n",
            WEFT_ENOTFOUND,
            "d.jsonl:2: no prompt: there is no 'prompt'; the row has "
            "'question', 'answer'");
    refused("{\"foo\": \"q\", \"bar\": 1}\n", WEFT_ENOTFOUND,
            "the row has 'foo', 'bar'");
    refused("{}\n", WEFT_ENOTFOUND, "the row has no keys");
    refused("{\"text\": \"t\"}\n", WEFT_ENOTFOUND, "the row has 'text'");
    refused("{\"prompt\": []}\n", WEFT_EINVAL, "'prompt' is empty");
    refused("{\"prompt\": [\"a\"]}\n", WEFT_EFORMAT,
            "message 0 of 'prompt' must be an object with 'role'");
    refused("{\"prompt\": [{\"role\": \"user\"}]}\n", WEFT_EFORMAT,
            "the content of message 0 of 'prompt' must be a string, not "
            "nothing");
    refused("{\"prompt\": [{\"role\": \"user\", \"content\": \"\"}]}\n",
            WEFT_EINVAL, "'prompt' is empty");
    refused("{\"prompt\": [{\"role\": \"user\", \"content\": [{\"type\": "
            "\"image\"}]}]}\n",
            WEFT_EUNSUPPORTED, "without 'text'");
    refused("{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], "
            "\"tools\": \"f\"}\n",
            WEFT_EFORMAT, "d.jsonl:1: 'tools' must be a list, or one as a");
    refused("{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], "
            "\"chat_template_kwargs\": []}\n",
            WEFT_EFORMAT, "'chat_template_kwargs' must be an object");
    refused("{\"messages\": \"hello\"}\n", WEFT_EFORMAT,
            "'messages' must be a list of messages, or one as a JSON");
    refused("{\"prompt\": \"a\", \"prompt\": \"b\"}\n", WEFT_EFORMAT,
            "duplicate");
    refused("{\"a\\u0000b\": 1, \"prompt\": \"p\"}\n", WEFT_EFORMAT,
            "zero character");
    refused("{\"prompt\": [{\"role\": \"user\\u0000b\", \"content\": "
            "\"a\"}]}\n",
            WEFT_EFORMAT, "must be an object with 'role'");
    refused("{\"prompt\": \"\xff\"}\n", WEFT_EFORMAT, "d.jsonl:1:");
    refused("{\"instruction\": \"a\", \"input\": \"b\"}\n", WEFT_EUNSUPPORTED,
            "both 'instruction' and 'input'");
    refused("PAR1\x15\x04", WEFT_EUNSUPPORTED, "is a Parquet file");
    refused("\x1f\x8b\x08", WEFT_EUNSUPPORTED, "compressed with gzip");
    refused("\xff\xfe{", WEFT_EUNSUPPORTED, "is UTF-16");
}

static void test_dataset_parse_needs(void)
{
    refused_for(WEFT_NEED_PROMPT | WEFT_NEED_RESPONSE,
                "{\"prompt\": \"a\", \"completion\": \"c\"}\n" OK_LINE,
                WEFT_ENOTFOUND, "d.jsonl:2: no response: there is no");
    refused_for(WEFT_NEED_PROMPT | WEFT_NEED_LABEL, OK_LINE, WEFT_ENOTFOUND,
                "d.jsonl:1: no label");
    refused_for(WEFT_NEED_PAIR, OK_LINE, WEFT_ENOTFOUND,
                "no chosen answer: there is no 'chosen'");
    refused_for(WEFT_NEED_PAIR, "{\"prompt\": \"a\", \"chosen\": \"b\"}",
                WEFT_ENOTFOUND, "no rejected answer");
    refused_for(WEFT_NEED_PAIR,
                "{\"prompt\": \"a\", \"pos_answers\": [\"b\", \"c\"], "
                "\"neg_answers\": [\"d\"]}",
                WEFT_EUNSUPPORTED, "'pos_answers' must hold one answer");
    refused_for(WEFT_NEED_PAIR, "{\"chosen\": \"x\", \"rejected\": \"y\"}",
                WEFT_EINVAL, "'chosen' is empty");
    refused_for(WEFT_NEED_PAIR, "{\"chosen\": \"x\", \"rejected\": [1]}",
                WEFT_EFORMAT, "must both be strings");
    const struct weft_dataset_keys keys = {.label = "gold"};
    struct weft_err err = {0};
    struct weft_dataset *d = NULL;
    static const char text[] = "{\"prompt\": \"a\", \"label\": 1}";
    CHECK_FAILS(
        weft_dataset_parse(text, sizeof text - 1, "d.jsonl", &keys, &d, &err),
        WEFT_ENOTFOUND, err,
        "no label: there is no 'gold'; the row has 'prompt', "
        "'label'");
}

/* What a pair says of itself beside its texts. */
static void test_dataset_row_margin(void)
{
    static const struct weft_dataset_keys pair = {.need = WEFT_NEED_PAIR};
    struct weft_dataset *d = parse(
        "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\", "
        "\"margin\": -0.5}\n"
        "{\"prompt\": \"p\", \"chosen\": [{\"role\": \"user\", "
        "\"content\": \"p\"}, {\"role\": \"assistant\", \"content\": "
        "\"c\", \"thinking\": \"t\"}], \"rejected\": \"r\", "
        "\"score_chosen\": 8, \"score_rejected\": 2.5}\n",
        &pair);
    struct weft_row row = row_of(d, 0);
    CHECK(row.has_margin && !row.has_scores && row.margin == -0.5);
    CHECK(!row.chosen_answer && !row.rejected_answer);
    weft_row_release(&row);
    row = row_of(d, 1);
    CHECK(!row.has_margin && row.has_scores);
    CHECK(row.score[0] == 8 && row.score[1] == 2.5);
    check_same(row.chosen, "c");
    CHECK_STR(
        json_string_value(json_object_get(row.chosen_answer, "thinking")),
        "t");
    weft_row_release(&row);
    weft_dataset_close(d);
}

/* KTO's rows, and pairs in their place. */
static void test_dataset_row_examples(void)
{
    static const struct weft_dataset_keys keys = {.need = WEFT_NEED_PROMPT
                                                        | WEFT_NEED_EXAMPLE};
    struct weft_dataset *d = parse(
        "{\"prompt\": \"p\", \"completion\": \"c\", \"label\": false}\n"
        "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n",
        &keys);
    struct weft_row row = row_of(d, 0);
    check_same(row.response, "c");
    check_same(row.label, "false");
    weft_row_release(&row);
    row = row_of(d, 1);
    check_same(row.chosen, "a");
    check_same(row.rejected, "b");
    weft_row_release(&row);
    weft_dataset_close(d);
    refused_for(WEFT_NEED_PROMPT | WEFT_NEED_EXAMPLE,
                "{\"prompt\": \"p\", \"completion\": \"c\"}", WEFT_ENOTFOUND,
                "d.jsonl:1: no label");
    refused_for(WEFT_NEED_PROMPT | WEFT_NEED_EXAMPLE,
                "{\"prompt\": \"p\", \"label\": true}", WEFT_ENOTFOUND,
                "d.jsonl:1: no response");
    refused_for(WEFT_NEED_PROMPT | WEFT_NEED_EXAMPLE,
                "{\"prompt\": \"p\", \"chosen\": \"a\", \"label\": true}",
                WEFT_ENOTFOUND, "no rejected answer");
    refused_for(WEFT_NEED_PAIR,
                "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": "
                "\"b\", \"score_chosen\": [1]}",
                WEFT_EFORMAT, "'score_chosen' must be a number");
}

/* ---- Files, size, order ----------------------------------------------- */

static void test_dataset_open(void)
{
    char path[] = "/tmp/weft-test-dataset-XXXXXX";
    enum { ROWS = 100000 };
    struct weft_err err = {0};
    struct weft_dataset *d = NULL;
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    FILE *f = fdopen(fd, "w");
    for (int i = 0; i < ROWS; i++)
        fprintf(f, "{\"question\": \"how much is %d?\", \"answer\": %d}\n", i,
                i);
    fclose(f);
    REQUIRE_OK(weft_dataset_open(path, NULL, &d, &err), err);
    CHECK_INT(weft_dataset_size(d), ROWS);
    struct weft_row row = row_of(d, ROWS - 1);
    check_same(row.prompt, "how much is 99999?");
    check_same(row.label, "99999");
    CHECK_INT(row.line, ROWS);
    weft_row_release(&row);
    weft_dataset_close(d);
    unlink(path);
    CHECK_FAILS(weft_dataset_open(path, NULL, &d, &err), WEFT_ENOTFOUND, err,
                path);
}

static void test_dataset_order(void)
{
    enum { N = 257 };
    uint32_t a[N], b[N];
    bool seen[N] = {0};
    weft_dataset_order(N, 5, 0, a);
    weft_dataset_order(N, 5, 0, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    for (int i = 0; i < N; i++) {
        REQUIRE(a[i] < N);
        CHECK(!seen[a[i]]);
        seen[a[i]] = true;
    }
    weft_dataset_order(N, 5, 1, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    weft_dataset_order(N, 6, 0, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    weft_dataset_order(1, 5, 0, b);
    CHECK_INT(b[0], 0);
}

WEFT_TESTS("text/dataset", {"test_dataset_row_texts", test_dataset_row_texts},
           {"test_dataset_row_messages", test_dataset_row_messages},
           {"test_dataset_row_zeros", test_dataset_row_zeros},
           {"test_dataset_row_chat", test_dataset_row_chat},
           {"test_dataset_row_pairs", test_dataset_row_pairs},
           {"test_dataset_row_margin", test_dataset_row_margin},
           {"test_dataset_row_examples", test_dataset_row_examples},
           {"test_dataset_named_keys", test_dataset_named_keys},
           {"test_dataset_need_nothing", test_dataset_need_nothing},
           {"test_dataset_lines", test_dataset_lines},
           {"test_dataset_parse_bad", test_dataset_parse_bad},
           {"test_dataset_parse_needs", test_dataset_parse_needs},
           {"test_dataset_open", test_dataset_open},
           {"test_dataset_order", test_dataset_order})
