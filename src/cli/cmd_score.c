/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "lm/lm_file.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/lm_devices.h"

WEFT_COMMAND(score);

const char weft_help_score[] =
    "usage: weft score MODEL --data FILE.jsonl [-o OUT] [options]\n"
    "       weft score MODEL --text TEXT [options]\n"
    "\n"
    "Scores texts. With a language model: log-probs of each line's "
    "\"tokens\"\n"
    "or text, as\n"
    "  {\"index\", \"tokens\": [], \"logprobs\": [null, ...]}\n"
    "where entry i is log p(token i | tokens before it). A model with a\n"
    "scalar head: {\"index\", \"score\"}.\n"
    "\n"
    "options:\n"
    "  --data FILE        JSON lines with \"tokens\", \"text\", or prompt "
    "and\n"
    "                     response\n"
    "  --text TEXT        one text\n"
    "  -o, --output OUT   instead of standard output\n"
    "  --template NAME    of messages, prompts and responses: none, auto "
    "(the\n"
    "                     model folder's), chatml, llama3, mistral, or a\n"
    "                     pattern (none)\n"
    "  --date YYYY-MM-DD  for templates that write one (2024-07-26)\n"
    "  --temperature X    log-probs of softmax(logits / X) (1)\n"
    "  --limit N          the first N lines only (0: all)\n"
    "  --dtype f32|bf16   (the model folder's)\n"
    "  --devices N|gpu    CPU devices (0: one per core), or GPUs\n"
    "  --gpus N           with --devices gpu: so many (0: all)\n"
    "  --tp N             CPU devices that share a replica (0: chosen by "
    "the\n"
    "                     number of tokens, or by --costs)\n"
    "  --costs FILE       of weft profile: choose by what it measured\n"
    "  --help             this text\n"
    "\n"
    "example:\n"
    "  weft score examples/quickstart/model --text 'sort 30754: 03457'\n";

int weft_cmd_score(int argc, char **argv)
{
    struct weft_lm_file_options o = {
        .chat_template = "none",
        .date = "2024-07-26",
        .lm = {.sampling = {.temperature = 1}},
    };
    struct weft_lm_asked asked = {.gpus = 0};
    struct weft_costs_file costs = {.n_ops = 0};
    const struct weft_cli_option table[] = {
        {0, "data", WEFT_CLI_STRING, &o.data, 0, 0},
        {0, "text", WEFT_CLI_STRING, &o.prompt, 0, 0},
        {'o', "output", WEFT_CLI_OUTPUT, &o.output, 0, 0},
        {0, "temperature", WEFT_CLI_FLOAT, &o.lm.sampling.temperature, 1e-6,
         1e6},
        {0, "template", WEFT_CLI_STRING, &o.chat_template, 0, 0},
        {0, "date", WEFT_CLI_STRING, &o.date, 0, 0},
        {0, "limit", WEFT_CLI_INT, &o.limit, 0, 2e9},
        {0, "dtype", WEFT_CLI_STRING, &o.dtype, 0, 0},
        {0, "devices", WEFT_CLI_STRING, &asked.devices, 0, 0},
        {0, "gpus", WEFT_CLI_INT, &asked.gpus, 0, 64},
        {0, "tp", WEFT_CLI_INT, &o.tp, 0, 64},
        {0, "costs", WEFT_CLI_STRING, &asked.costs, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_score, table, WEFT_COUNT(table),
                        1, 1, &first, &status))
        return status;
    if (!o.data == !o.prompt)
        return weft_cli_usage("score", "give --data FILE or --text TEXT");
    o.model = argv[first];
    o.unfinished = weft_cli_unfinished;
    status = weft_lm_devices("score", &asked, &costs, &o);
    struct weft_err err = {0};
    if (!status && weft_lm_file_score(&o, &err))
        status = weft_cli_fail("score", &err);
    else if (!status)
        status = weft_cli_finish("score");
    weft_costs_file_release(&costs);
    return status;
}
