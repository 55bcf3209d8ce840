/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of algorithms that learn from the data's own responses. */
#include "graphs/keys.h"

static const struct weft_config_key response[] = {
    KEY_STRING("data.response_key", data.response_key, NULL, KEY_NUM,
               "key of the response; else found"),
    KEY_ENUM("data.learn", data.learn, "response", WEFT_LEARN_RESPONSE,
             "response|assistant|all", KEY_NUM,
             "what of a row: its response, a conversation's last answer; all "
             "turns of the assistant, which the template marks by {% "
             "generation %}; all tokens"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"data.learn", "|assistant_only_loss|completion_only_loss"
                   "|train_on_responses_only|train_on_inputs|"},
    {"data.response_key", "|output_key|completion_key|"},
    {NULL, NULL}};

const struct weft_config_table weft_response_keys = {.keys = response,
                                                     .aliases = aliases};

static const struct weft_config_key batch[] = {
    KEY_INT("train.batch", train.batch, "32", 1, 1e6, KEY_NUM,
            "samples per step; pairs count as one"),
    KEY_DOUBLE("epochs", epochs, "0", 0, 1e6, 0,
               "how often the data is gone through, in place of iterations; "
               "an epoch's last step has the rows that are left"),
    KEY_BOOL("data.add_eos", data.add_eos, "true", KEY_NUM,
             "end a plain response with EOS; a chat template ends its turns "
             "itself"),
    KEY_END};

const struct weft_config_table weft_batch_keys = {.keys = batch};

static const struct weft_config_key pair[] = {
    KEY_STRING("data.chosen_key", data.chosen_key, NULL, KEY_NUM,
               "key of the chosen response; else found"),
    KEY_STRING("data.rejected_key", data.rejected_key, NULL, KEY_NUM,
               "key of the rejected response; else found"),
    KEY_END};

const struct weft_config_table weft_pair_keys = {.keys = pair};

static const struct weft_config_key label[] = {
    KEY_STRING("data.label_key", data.label_key, NULL, KEY_NUM,
               "key of the label, for rules or KTO; else found"),
    KEY_END};

static const struct weft_config_alias label_aliases[] = {
    {"data.label_key", "|ground_truth_key|answer_key|"}, {NULL, NULL}};

const struct weft_config_table weft_label_keys = {.keys = label,
                                                  .aliases = label_aliases};
