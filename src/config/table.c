/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of every run, and those of a reward. */
#include "base/limits.h"
#include "base/shape.h"
#include "config/keys.h"

static const struct weft_config_key first[] = {
    {"algorithm", WEFT_KEY_ALGORITHM, KEY_AT(algorithm), NULL, 0, 0, NULL,
     KEY_NUM, "how to train; 'weft plan --graph' shows what it does"},
    {"seed", WEFT_KEY_SEED, KEY_AT(seed), "1", 0, 9.2e18, NULL, KEY_NUM,
     "of every random number"},
    {"run_dir", WEFT_KEY_PATH_CWD, KEY_AT(run_dir), NULL, 0, 0, NULL, 0,
     "where the run is kept; runs/<file's name>"},
    KEY_INT("iterations", iterations, NULL, 0, KEY_MANY, 0,
            "of generating and training, or steps on the data; 0: as many as "
            "the epochs"),
    KEY_PATH("data.path", data.path, KEY_NUM | KEY_REQ, "a JSONL file"),
    KEY_STRING("data.prompt_key", data.prompt_key, NULL, KEY_NUM,
               "key of the prompt or messages; else found"),
    KEY_STRING(
        "data.template", data.template, "auto", KEY_NUM,
        "chat template of messages, and of plain prompts as a user's: auto "
        "(the model folder's; without one plain prompts stay as they "
        "are), none, folder, chatml, llama3, mistral, or a "
        "pattern with {role} and {content}"),
    KEY_STRING(
        "data.date", data.date, "2024-07-26", KEY_NUM,
        "today's date for templates that write it; fixed, so that texts "
        "do not change with the calendar"),
    KEY_STRING("data.system", data.system, NULL, KEY_NUM,
               "system message put first"),
    KEY_INT(
        "data.max_prompt_tokens", data.max_prompt_tokens, "512", 1, 1e7,
        KEY_NUM,
        "longest prompt; prompt and response together may be as long as the "
        "model's positions"),
    KEY_INT("data.prompt_tokens", data.prompt_tokens, "0", 0, 1e7, 0,
            "in the place of data.path and a tokenizer, where a run is only "
            "planned or simulated: tokens of every prompt"),
    KEY_INT("data.response_tokens", data.response_tokens, "0", 0, 1e7, 0,
            "the same of every response, where the run generates none"),
    KEY_WORD("data.long_prompts", data.long_prompts, "refuse",
             "refuse|skip|truncate", KEY_NUM,
             "what becomes of rows that are longer; truncate cuts a prompt's "
             "beginning, a response's end"),
    KEY_BOOL("data.shuffle", data.shuffle, "true", KEY_NUM,
             "a new order every epoch"),
    KEY_END};

static const struct weft_config_key last[] = {
    KEY_INT("train.micro_batch_tokens", train.micro_batch_tokens, "1024", 1,
            1e8, 0,
            "most tokens of a micro-batch, which holds whole samples without "
            "padding; a longer sample has one of its own"),
    KEY_INT("train.micro_batches", train.micro_batches, "0", 0, 1e6, 0,
            "parts of each gradient group; 0: by tokens"),
    KEY_INT("train.zero", train.zero, "0", 0, 3, 0,
            "split over dp: 1 optimizer, 2 and gradients, 3 and weights"),
    KEY_BOOL("train.recompute", train.recompute, "false", 0,
             "recompute activations, for less memory"),
    KEY_BOOL("train.offload_optimizer", train.offload_optimizer, "false", 0,
             "optimizer states lie in host memory, and come layer by layer"),
    KEY_ENUM("numerics.dtype", numerics.dtype, NULL, WEFT_F32, "f32|bf16",
             KEY_NUM,
             "of weights and activations; else the model's (f16: f32)"),
    KEY_INT("numerics.tensor_blocks", numerics.tensor_blocks, "0", 0,
            WEFT_MAX_BLOCKS, KEY_NUM,
            "T: 1, 2, 4 ... 32; 0: the model's default"),
    KEY_INT(
        "numerics.gradient_groups", numerics.gradient_groups, "0", 0,
        WEFT_MAX_GROUPS, KEY_NUM,
        "G: largest data parallel degree, a power of two; 0: at most 64, a "
        "mini-batch's samples, and its longest tokens / 512 (if above 4)"),
    KEY_WORD("numerics.isa", numerics.isa, NULL, "c|avx2|avx512|avx512_bf16",
             0, "kernels; else the best of this CPU"),
    KEY_BOOL("numerics.exact", numerics.exact, "true", 0,
             "a run ends where training has other log-probs than generation; "
             "false: metrics only tell the difference"),
    {"runtime.devices", WEFT_KEY_INT, KEY_AT(runtime.devices), "0", 0,
     WEFT_MAX_DEVICES, "gpu", 0,
     "gpu: the GPUs; else CPU devices, 0: one per core"},
    KEY_INT(
        "runtime.gpus", runtime.gpus, "0", 0, WEFT_MAX_DEVICES, 0,
        "devices gpu: how many each rank has; 0: its part of a machine's"),
    KEY_INT("runtime.ranks_per_gpu", runtime.ranks_per_gpu, "1", 1,
            WEFT_MAX_DEVICES, 0,
            "devices gpu: ranks of a machine that have each of its GPUs "
            "together, with an equal part of its memory"),
    KEY_INT("runtime.cpu_devices", runtime.cpu_devices, "1", 0,
            WEFT_MAX_DEVICES, 0,
            "devices gpu: CPU devices beside them, which a plan may use; 0: "
            "one per core"),
    KEY_DOUBLE("runtime.gpu_memory_gib", runtime.gpu_memory_gib, "0", 0, 1e6,
               0, "devices gpu: limit of each for a rank; 0: what is free"),
    KEY_ENUM(
        "runtime.gpu_messages", runtime.gpu_messages, "host", WEFT_BY_HOST,
        "host|mpi", 0,
        "devices gpu: messages between ranks pass through host memory; "
        "mpi: MPI sends from one GPU's to another's, if built with CUDA"),
    KEY_ENUM("runtime.place", runtime.place, "node", WEFT_PLACE_NODE,
             "node|device", 0, "who keeps copies: a node, or each device"),
    KEY_ENUM("runtime.nap", runtime.nap, "auto", -1, "auto|false|true", 0,
             "idle devices sleep instead of spinning"),
    KEY_DOUBLE("runtime.watchdog_s", runtime.watchdog_s, "300", 0, 1e9, 0,
               "report when nothing moves for this long; 0: off"),
    KEY_DOUBLE("runtime.memory_limit_gib", runtime.memory_limit_gib, "0", 0,
               1e6, 0, "0: what the machine has"),
    KEY_INT("checkpoint.every", checkpoint.every, "10", 0, KEY_MANY, 0,
            "iterations; 0: only at the end"),
    KEY_INT("checkpoint.keep", checkpoint.keep, "2", 1, KEY_MANY, 0,
            "newest checkpoints kept"),
    KEY_ENUM("checkpoint.dtype", checkpoint.dtype, "run", -1, "run|f32|bf16",
             0, "of the weights in a checkpoint's model folders"),
    KEY_BOOL("resume.accept_changed_inputs", resume.accept_changed_inputs,
             "false", 0,
             "go on though files that the run reads have changed"),
    KEY_PATH_OR(
        "plan", plan, "auto", 0,
        "file of 'weft plan', or auto: found by costs or cluster when "
        "the run begins; else layout's"),
    KEY_INT(
        "plan_again.every", plan_again.every, "0", 0, KEY_MANY, 0,
        "plan: auto: iterations after which another plan is looked for by "
        "the lengths that responses had; 0: never"),
    KEY_DOUBLE("plan_again.gain", plan_again.gain, "0.03", 0, 1, 0,
               "share of an iteration that another plan must save"),
    KEY_PATH("costs", costs, 0,
             "file of 'weft profile'; with it times are predicted beside "
             "measured ones"),
    KEY_PATH("cluster", cluster, 0,
             "description of the devices (doc/costs.md): the same, and what "
             "costs have not; what weft plan and weft simulate take"),
    KEY_STRING(
        "layout", layout, NULL, 0,
        "of all calls, like dp2tp2pp1,zero=1, or a name of weft plan's "
        "--from; else data parallel. plan: auto: what the search may not "
        "change, like zero=1 or CALL:tp1"),
    KEY_BOOL("trace", trace, "false", 0, "write StarPU's trace and our own"),
    KEY_INT("trace_iterations", trace_iterations, "3", 1, INT32_MAX, 0,
            "iterations that StarPU's trace holds, the first of this start"),
    KEY_BOOL("tensorboard", tensorboard, "false", 0, "write an event file"),
    KEY_WORD("metric_names", metric_names, "verl", "verl|trl", 0,
             "trl adds TRL's names"),
    KEY_ENUM("digest", digest, "false", WEFT_DIGEST_NONE, "false|true|values",
             0, "write hashes of an iteration's numbers, or all"),
    KEY_END};

/* What TRL, verl and OpenRLHF call Weft's keys; compared with the last part of
 * a dotted name. Some mean a size where Weft's key is a count; the message
 * shows the key's meaning, which says so. */
static const struct weft_config_alias aliases[] = {
    {"data.max_prompt_tokens",
     "|max_prompt_length|prompt_max_len|max_seq_length|max_length|"},
    {"data.path", "|dataset_name|dataset|train_files|train_file|prompt_data"
                  "|dataset_path|data_path|"},
    {"data.prompt_key", "|input_key|"},
    {"data.template", "|chat_template|apply_chat_template|input_template|"},
    {"data.system", "|system_prompt|"},
    {"train.micro_batch_tokens",
     "|ppo_micro_batch_size|ppo_micro_batch_size_per_gpu"
     "|per_device_train_batch_size|micro_train_batch_size"
     "|ppo_max_token_len_per_gpu|micro_batch_size"
     "|gradient_accumulation_steps|packing|packing_samples|padding_free"
     "|use_remove_padding|use_dynamic_bsz|use_dynamic_batch"
     "|log_prob_max_token_len_per_gpu|max_tokens_per_gpu"
     "|max_tokens_per_micro_batch|"},
    {"iterations", "|total_epochs|max_steps|total_training_steps"
                   "|num_episodes|total_episodes|steps|"},
    {"epochs", "|num_train_epochs|max_epochs|num_epochs|"},
    {"reward", "|reward_model_path|reward_pretrain|reward_funcs|reward_model"
               "|reward_fn|remote_rm_url|"},
    {"run_dir", "|output_dir|default_local_dir|save_path|ckpt_path"
                "|logging_dir|"},
    {"checkpoint.every", "|save_steps|save_freq|save_interval|"},
    {"checkpoint.keep", "|save_total_limit|max_ckpt_num"
                        "|max_actor_ckpt_to_keep|"},
    {"train.recompute", "|gradient_checkpointing"
                        "|enable_gradient_checkpointing|"},
    {"train.zero", "|zero_stage|"},
    {"train.offload_optimizer", "|offload_optimizer|optimizer_offload"
                                "|adam_offload|"},
    {"numerics.dtype", "|bf16|fp16|torch_dtype|model_dtype|precision|"},
    {"layout", "|tensor_model_parallel_size|tensor_parallel_size|tp_size"
               "|pipeline_model_parallel_size|pipeline_parallel_size"
               "|data_parallel_size|"},
    {"runtime.devices", "|n_gpus_per_node|num_gpus|nproc_per_node|"},
    {NULL, NULL}};

const struct weft_config_table weft_config_first = {.keys = first,
                                                    .aliases = aliases};
const struct weft_config_table weft_config_last = {.keys = last};

#undef KEY_AT
#define KEY_AT(field) offsetof(struct weft_reward_config, field)
#define ANY ((1u << WEFT_N_REWARD_TYPES) - 1)
#define OF(type) (1u << WEFT_REWARD_##type)
#define RNUM WEFT_REWARD_KEY_NUMBERS

/* In the order of the enum. */
#define TYPES                                                                \
    "model|gsm8k|exact_match|boxed|regex|length|program|callback|"           \
    "think_answer"

const struct weft_config_key weft_reward_keys[] = {
    KEY_ENUM("type", type, NULL, WEFT_REWARD_MODEL, TYPES, ANY | RNUM,
             "which reward"),
    KEY_FLOAT("weight", weight, "1", -1e6, 1e6, ANY | RNUM,
              "factor in the score"),
    KEY_ENUM(
        "normalize", normalize, "none", WEFT_NORMALIZE_NONE,
        "none|batch|running", ANY | RNUM,
        "to mean 0 and variance 1, before the weight: over the iteration's "
        "samples, or over all samples so far"),
    KEY_FLOAT("clip", clip, "0", 0, 1e6, ANY | RNUM,
              "then clipped to +-this, before the weight; 0: off"),
    KEY_STRING("name", name, NULL, ANY, "in metrics; the type's name"),
    KEY_PATH("model", model, OF(MODEL) | RNUM, "folder with a scalar head"),
    KEY_BOOL("own_tokenizer", own_tokenizer, "false", OF(MODEL) | RNUM,
             "texts are encoded anew, with the folder's tokenizer and chat "
             "template; else the policy's tokens are read"),
    KEY_INT("max_tokens", max_tokens, "0", 0, 1e7, OF(MODEL) | RNUM,
            "own_tokenizer: longest text, of a longer one the end; 0: twice "
            "data.max_prompt_tokens and rollout.max_new_tokens, or what the "
            "model has positions for"),
    KEY_WORD("method", method, NULL, "strict|flexible|around|most|least",
             OF(GSM8K) | OF(LENGTH) | OF(THINK_ANSWER) | RNUM,
             "gsm8k and think_answer: strict (default), flexible; length: "
             "around (default), most, least"),
    KEY_STRING("pattern", pattern, NULL, OF(REGEX) | RNUM,
               "PCRE2 pattern to be found in the response"),
    KEY_INT("target", target, NULL, 1, 1e7, OF(LENGTH) | RNUM, "tokens"),
    {"command", WEFT_KEY_LIST, KEY_AT(command), NULL, 0, 0, NULL,
     OF(PROGRAM) | RNUM, "program and arguments"},
    KEY_PATH("directory", directory, OF(PROGRAM),
             "where it runs; this file's folder"),
    KEY_DOUBLE("timeout_s", timeout_s, "60", 0.001, 1e6, OF(PROGRAM),
               "for an iteration's answers"),
};
const size_t weft_reward_n_keys = WEFT_COUNT(weft_reward_keys);
