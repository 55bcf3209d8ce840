/* SPDX-License-Identifier: Apache-2.0 */
/* weft init: a randomly initialised model folder. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lm/init.h"
#include "cli/cli.h"
#include "cli/command.h"

int weft_cmd_init(int argc, char **argv);
extern const char weft_help_init[];

const char weft_help_init[] =
    "usage: weft init [options] -o FOLDER\n"
    "\n"
    "Makes a randomly initialised model as a Hugging Face folder: "
    "config.json,\n"
    "generation_config.json, model.safetensors, and a tokenizer.\n"
    "\n"
    "size:\n"
    "  --preset NAME        nano, tiny, 110m, 0.5b, 1b, 8b; the options "
    "below\n"
    "                       change what they name\n"
    "  --family NAME        llama (default), qwen2, qwen3, mistral\n"
    "  --hidden N           hidden size                    needed, or "
    "--preset\n"
    "  --layers N           decoder layers                 needed, or "
    "--preset\n"
    "  --heads N            query heads                    needed, or "
    "--preset\n"
    "  --kv-heads N         key-value heads                default: --heads\n"
    "  --head-dim N         size of a head                 default: "
    "hidden/heads\n"
    "  --intermediate N     MLP size                       default: 8/3 "
    "hidden\n"
    "  --vocab N            vocabulary                     default: "
    "tokenizer's\n"
    "  --max-positions N    longest sequence               default: 2048\n"
    "  --rope-theta X       RoPE's base                    default: 10000\n"
    "  --tied, --untied     head is the embedding, or not  default: "
    "--untied\n"
    "  --bias               biases on attention's projections\n"
    "  --scalar             a scalar head (reward model, critic)\n"
    "\n"
    "content:\n"
    "  --tokenizer T        bytes (default), none, or a folder to copy from\n"
    "  --std X              deviation of the weights       default: 0.02\n"
    "  --seed N             default: 1\n"
    "  --dtype D            f32 (default), bf16, f16\n"
    "  --max-shard-mib N    cut the weights into files of at most N MiB\n"
    "  -o, --output FOLDER  must not be there, or be empty\n"
    "  --json               print the result as JSON\n"
    "\n"
    "example:\n"
    "  weft init --preset tiny -o models/tiny\n"
    "  weft init --hidden 768 --layers 12 --heads 12 --intermediate 2048 \\\n"
    "            --vocab 32000 --tied -o models/110m\n";

static const char VERB[] = "init";

struct options {
    struct weft_init_options o; /* 0: not given */
    const char *preset, *family, *dtype, *tokenizer, *output;
    bool tied, untied, json;
    int32_t max_shard_mib;
};

/* Replaces values of the preset by those that were given. */
static void override(const struct options *given, struct weft_init_options *o)
{
    const struct weft_init_options *g = &given->o;
    const struct {
        int32_t from, *to;
    } number[] = {
        {g->hidden, &o->hidden},     {g->layers, &o->layers},
        {g->heads, &o->heads},       {g->kv_heads, &o->kv_heads},
        {g->head_dim, &o->head_dim}, {g->intermediate, &o->intermediate},
        {g->vocab, &o->vocab},       {g->max_positions, &o->max_positions},
    };
    for (size_t i = 0; i < WEFT_COUNT(number); i++)
        if (number[i].from > 0)
            *number[i].to = number[i].from;
    /* Sizes of the preset that depend on the width or on the number of heads
     * do not hold for other ones. */
    if ((g->hidden > 0 || g->heads > 0) && g->head_dim == 0)
        o->head_dim = 0;
    if (g->heads > 0 && g->kv_heads == 0)
        o->kv_heads = 0;
    if (g->hidden > 0 && g->intermediate == 0)
        o->intermediate = 0;
    if (g->rope_theta > 0)
        o->rope_theta = g->rope_theta;
    if (given->tied || given->untied)
        o->tied = given->tied;
    o->std = g->std;
    o->seed = g->seed;
    o->attention_bias = g->attention_bias;
    o->scalar_head = g->scalar_head;
    o->max_shard_bytes = (uint64_t) given->max_shard_mib << 20;
}

/* Turns the options' words into values; returns 0, or 2 after a usage
 * error. */
static int resolve(const struct options *given, struct weft_init_options *o)
{
    static const char *const dtype[] = {"f32", "bf16", "f16"};
    *o = (struct weft_init_options){0};
    if (!given->output)
        return weft_cli_usage(VERB, "-o FOLDER is missing");
    if (given->preset && !weft_init_preset(given->preset, o))
        return weft_cli_usage(VERB,
                              "unknown preset '%s'; nano, tiny, 110m, "
                              "0.5b, 1b and 8b are known",
                              given->preset);
    if (given->family && !weft_family_find(given->family, &o->family))
        return weft_cli_usage(VERB,
                              "unknown family '%s'; llama, qwen2, qwen3 "
                              "and mistral are known",
                              given->family);
    if (given->tied && given->untied)
        return weft_cli_usage(VERB, "--tied and --untied exclude each other");
    override(given, o);
    if (o->hidden == 0 || o->layers == 0 || o->heads == 0)
        return weft_cli_usage(VERB, "--hidden, --layers and --heads are "
                                    "needed, or --preset");
    size_t d = 0;
    while (given->dtype && d < WEFT_COUNT(dtype)
           && strcmp(dtype[d], given->dtype) != 0)
        d++;
    if (d == WEFT_COUNT(dtype))
        return weft_cli_usage(VERB,
                              "unknown dtype '%s'; f32, bf16 and f16 "
                              "are known",
                              given->dtype);
    o->dtype = (enum weft_dtype) d;
    o->tokenizer = given->tokenizer ? given->tokenizer : "bytes";
    if (strcmp(o->tokenizer, "none") == 0)
        o->tokenizer = NULL;
    return 0;
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char) *text < 0x20)
            printf("\\u%04x", (unsigned) *text);
        else
            putchar(*text);
    putchar('"');
}

static void print_result(const struct options *given,
                         const struct weft_arch *a)
{
    int64_t n = weft_shape_n_params(&a->shape);
    if (given->json) {
        fputs("{\"folder\": ", stdout);
        print_json_text(given->output);
        printf(", \"family\": \"%s\", \"parameters\": %" PRId64
               ", \"vocab\": %d, \"dtype\": \"%s\"}\n",
               weft_family_name(a->family), n, a->shape.vocab,
               weft_dtype_name(a->dtype));
        return;
    }
    printf("%s: %s%s, %.1fM parameters, %d tokens, %s\n", given->output,
           weft_family_name(a->family),
           a->shape.scalar_head ? " with a scalar head" : "",
           (double) n * 1e-6, a->shape.vocab, weft_dtype_name(a->dtype));
}

int weft_cmd_init(int argc, char **argv)
{
    struct options given = {.o = {.seed = 1}};
    struct weft_init_options o, *g = &given.o;
    const struct weft_cli_option table[] = {
        {0, "preset", WEFT_CLI_STRING, &given.preset, 0, 0},
        {0, "family", WEFT_CLI_STRING, &given.family, 0, 0},
        {0, "hidden", WEFT_CLI_INT, &g->hidden, 1, INT32_MAX},
        {0, "layers", WEFT_CLI_INT, &g->layers, 1, INT32_MAX},
        {0, "heads", WEFT_CLI_INT, &g->heads, 1, INT32_MAX},
        {0, "kv-heads", WEFT_CLI_INT, &g->kv_heads, 1, INT32_MAX},
        {0, "head-dim", WEFT_CLI_INT, &g->head_dim, 1, INT32_MAX},
        {0, "intermediate", WEFT_CLI_INT, &g->intermediate, 1, INT32_MAX},
        {0, "vocab", WEFT_CLI_INT, &g->vocab, 1, INT32_MAX},
        {0, "max-positions", WEFT_CLI_INT, &g->max_positions, 1, INT32_MAX},
        {0, "rope-theta", WEFT_CLI_DOUBLE, &g->rope_theta, 1, 1e12},
        {0, "tied", WEFT_CLI_FLAG, &given.tied, 0, 0},
        {0, "untied", WEFT_CLI_FLAG, &given.untied, 0, 0},
        {0, "bias", WEFT_CLI_FLAG, &g->attention_bias, 0, 0},
        {0, "scalar", WEFT_CLI_FLAG, &g->scalar_head, 0, 0},
        {0, "tokenizer", WEFT_CLI_STRING, &given.tokenizer, 0, 0},
        {0, "std", WEFT_CLI_DOUBLE, &g->std, 1e-12, 1},
        {0, "seed", WEFT_CLI_UINT64, &g->seed, 0, 0},
        {0, "dtype", WEFT_CLI_STRING, &given.dtype, 0, 0},
        {0, "max-shard-mib", WEFT_CLI_INT, &given.max_shard_mib, 1, 1 << 20},
        {'o', "output", WEFT_CLI_STRING, &given.output, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &given.json, 0, 0},
    };
    struct weft_arch arch;
    struct weft_err err = {0};
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_init, table, WEFT_COUNT(table),
                        0, 0, &first, &status))
        return status;
    status = resolve(&given, &o);
    if (status)
        return status;
    if (weft_init_model(&o, given.output, &arch, &err))
        return weft_cli_fail(VERB, &err);
    print_result(&given, &arch);
    return weft_cli_finish(VERB);
}
