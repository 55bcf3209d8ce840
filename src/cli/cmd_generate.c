/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "lm/lm_file.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/lm_devices.h"

WEFT_COMMAND(generate);

const char weft_help_generate[] =
    "usage: weft generate MODEL --data FILE.jsonl [-o OUT] [options]\n"
    "       weft generate MODEL --prompt TEXT [options]\n"
    "\n"
    "Generates completions of prompts. Writes a line per sample:\n"
    "  {\"index\", \"sample\", \"prompt_tokens\": [], \"tokens\": [],\n"
    "   \"logprobs\": [], \"text\", \"finish_reason\": \"stop\" | "
    "\"length\"}\n"
    "A sample depends on its prompt, its index and the seed alone.\n"
    "\n"
    "options:\n"
    "  --data FILE            prompts: JSON lines, keys found by themselves\n"
    "  --prompt TEXT          one prompt\n"
    "  -o, --output OUT       instead of standard output\n"
    "  --n N                  samples per prompt (1)\n"
    "  --max-new-tokens N     (128, fewer where the model's positions end)\n"
    "  --min-new-tokens N     so many end no sample: what does is not drawn "
    "before,\n"
    "                         and a --stop text goes on (0)\n"
    "  --temperature X        0 is greedy (1)\n"
    "  --top-k K, --top-p P   (0: all, 1: all)\n"
    "  --seed S               (1)\n"
    "  --template NAME        of messages and, as a user's, plain prompts: "
    "auto\n"
    "                         (the model folder's, if any), none, folder,\n"
    "                         chatml, llama3, mistral, or a pattern (auto)\n"
    "  --date YYYY-MM-DD      for templates that write one (2024-07-26)\n"
    "  --limit N              the first N prompts only (0: all)\n"
    "  --stop TEXT            ends a sample that has it; up to 16 such "
    "options\n"
    "  --ignore-eos           go on after an end-of-sequence token\n"
    "  --dtype f32|bf16       (the model folder's)\n"
    "  --devices N|gpu        CPU devices (0: one per core), or GPUs\n"
    "  --gpus N               with --devices gpu: so many (0: all)\n"
    "  --tp N                 CPU devices that share a replica (0: chosen by "
    "the\n"
    "                         number of samples, or by --costs)\n"
    "  --costs FILE           of weft profile: choose by what it measured\n"
    "  --slots N              sequences decoded together, per device (32)\n"
    "  --kv-blocks N          blocks of 64 tokens of a device's KV cache; "
    "without\n"
    "                         one left samples wait (0: all ever needed)\n"
    "  --help                 this text\n"
    "\n"
    "example:\n"
    "  weft generate examples/quickstart/model --prompt 'sort 30754: ' "
    "\\\n"
    "      --max-new-tokens 8\n";

int weft_cmd_generate(int argc, char **argv)
{
    struct weft_lm_file_options o = {
        .chat_template = "auto",
        .date = "2024-07-26",
        .lm = {.sampling = {.temperature = 1, .top_p = 1, .seed = 1},
               .samples = 1},
    };
    struct weft_lm_asked asked = {.gpus = 0};
    struct weft_costs_file costs = {.n_ops = 0};
    struct weft_cli_list stop = {0};
    const struct weft_cli_option table[] = {
        {0, "data", WEFT_CLI_STRING, &o.data, 0, 0},
        {0, "prompt", WEFT_CLI_STRING, &o.prompt, 0, 0},
        {'o', "output", WEFT_CLI_OUTPUT, &o.output, 0, 0},
        {0, "n", WEFT_CLI_INT, &o.lm.samples, 1, 1e6},
        {0, "max-new-tokens", WEFT_CLI_INT, &o.lm.max_new_tokens, 1, 1e6},
        {0, "min-new-tokens", WEFT_CLI_INT, &o.lm.min_new_tokens, 0, 1e6},
        {0, "temperature", WEFT_CLI_FLOAT, &o.lm.sampling.temperature, 0,
         1e6},
        {0, "top-k", WEFT_CLI_INT, &o.lm.sampling.top_k, 0, 2e9},
        {0, "top-p", WEFT_CLI_FLOAT, &o.lm.sampling.top_p, 1e-9, 1},
        {0, "seed", WEFT_CLI_UINT64, &o.lm.sampling.seed, 0, 0},
        {0, "template", WEFT_CLI_STRING, &o.chat_template, 0, 0},
        {0, "date", WEFT_CLI_STRING, &o.date, 0, 0},
        {0, "limit", WEFT_CLI_INT, &o.limit, 0, 2e9},
        {0, "stop", WEFT_CLI_LIST, &stop, 0, 0},
        {0, "ignore-eos", WEFT_CLI_FLAG, &o.lm.ignore_eos, 0, 0},
        {0, "dtype", WEFT_CLI_STRING, &o.dtype, 0, 0},
        {0, "devices", WEFT_CLI_STRING, &asked.devices, 0, 0},
        {0, "gpus", WEFT_CLI_INT, &asked.gpus, 0, 64},
        {0, "tp", WEFT_CLI_INT, &o.tp, 0, 64},
        {0, "costs", WEFT_CLI_STRING, &asked.costs, 0, 0},
        {0, "slots", WEFT_CLI_INT, &o.lm.slots, 0, 1e6},
        {0, "kv-blocks", WEFT_CLI_INT, &o.lm.kv_blocks, 0, 1e9},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_generate, table,
                        WEFT_COUNT(table), 1, 1, &first, &status))
        return status;
    if (!o.data == !o.prompt)
        return weft_cli_usage("generate",
                              "give --data FILE or --prompt TEXT");
    if (o.lm.min_new_tokens > (o.lm.max_new_tokens ? o.lm.max_new_tokens
                                                   : WEFT_LM_MAX_NEW_TOKENS))
        return weft_cli_usage("generate",
                              "--min-new-tokens is more than "
                              "--max-new-tokens (128 if not given)");
    o.model = argv[first];
    o.unfinished = weft_cli_unfinished;
    o.lm.stop_text = stop.word;
    o.lm.n_stop_texts = stop.n;
    status = weft_lm_devices("generate", &asked, &costs, &o);
    struct weft_err err = {0};
    if (!status && weft_lm_file_generate(&o, &err))
        status = weft_cli_fail("generate", &err);
    else if (!status)
        status = weft_cli_finish("generate");
    weft_costs_file_release(&costs);
    return status;
}
