/* SPDX-License-Identifier: Apache-2.0 */
#include "job/run_config.h"

#include <unistd.h>

#include "base/file.h"
#include "harness.h"

static struct weft_config c;
static struct weft_err err;
static char dir[64];

/* Reads the least that a run of SFT needs, with line 4 and one word. */
static int read_with(const char *more, const char *word)
{
    char text[512], path[80];
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(text, sizeof text,
             "{algorithm: sft, iterations: 1,\n"
             "data: {path: p.jsonl},\n"
             "model: {actor: .},\n"
             "%s}\n",
             more);
    REQUIRE_OK(weft_file_write(path, text, strlen(text), &err), err);
    return weft_run_config_read(path, word != NULL, &word, &c, &err);
}

static void begin(void)
{
    snprintf(dir, sizeof dir, "/tmp/weft-config-XXXXXX");
    REQUIRE(mkdtemp(dir) != NULL);
}

static void end(void)
{
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* The dtype that nobody gave is the actor folder's; f32 when that cannot be
 * read. */
static void test_run_config_dtype(void)
{
    static const struct {
        const char *dtype;
        enum weft_dtype expected;
    } folder[] = {{"bfloat16", WEFT_BF16},
                  {"float32", WEFT_F32},
                  {"float16", WEFT_F32}};
    char path[80], json[512];
    begin();
    REQUIRE_OK(read_with("", NULL), err);
    CHECK_INT(c.numerics.dtype, WEFT_F32);
    weft_config_release(&c);
    snprintf(path, sizeof path, "%s/config.json", dir);
    for (size_t i = 0; i < WEFT_COUNT(folder); i++) {
        snprintf(
            json, sizeof json,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": "
            "\"llama\", \"dtype\": \"%s\", \"hidden_size\": 8, "
            "\"intermediate_size\": 16, \"num_hidden_layers\": 1, "
            "\"num_attention_heads\": 2, \"vocab_size\": 10, "
            "\"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-6}",
            folder[i].dtype);
        REQUIRE_OK(weft_file_write(path, json, strlen(json), &err), err);
        REQUIRE_OK(read_with("", NULL), err);
        CHECK_INT(c.numerics.dtype, folder[i].expected);
        weft_config_release(&c);
        REQUIRE_OK(read_with("", "numerics.dtype=f32"), err);
        CHECK_INT(c.numerics.dtype, WEFT_F32);
        weft_config_release(&c);
    }
    end();
}

/* What is wrong is told with its line, or as the word that said it. */
static void test_run_config_refused(void)
{
    begin();
    CHECK_FAILS(read_with("data.template: chatlm", NULL), WEFT_EINVAL, err,
                "run.yaml:4: 'data.template' must be auto, none, folder");
    CHECK_FAILS(read_with("", "data.template=chatlm"), WEFT_EINVAL, err,
                "argument 'data.template=chatlm': 'data.template' must be");
    CHECK_FAILS(read_with("data.date: 26 Jul", NULL), WEFT_EINVAL, err,
                "run.yaml:4: 'data.date': '26 Jul' is no date; write "
                "YYYY-MM-DD");
    end();
}

WEFT_TESTS("run/run_config", {"test_run_config_dtype", test_run_config_dtype},
           {"test_run_config_refused", test_run_config_refused})
