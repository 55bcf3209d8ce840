/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of algorithms that learn from the data's own responses. */
#include "graphs/keys.h"

static const struct weft_config_key batch[] = {
    KEY_INT("train.batch", train.batch, "32", 1, 1e6, KEY_NUM,
            "samples per step"),
    KEY_END};

const struct weft_config_table weft_batch_keys = {.keys = batch};

static const struct weft_config_key response[] = {
    KEY_STRING("data.response_key", data.response_key, NULL, KEY_NUM,
               "key of the response; else found"),
    KEY_BOOL("data.add_eos", data.add_eos, "true", KEY_NUM,
             "end a plain response with EOS; a chat template ends its turns "
             "itself"),
    KEY_END};

static const struct weft_config_alias aliases[] = {
    {"data.response_key", "|output_key|completion_key|"}, {NULL, NULL}};

const struct weft_config_table weft_response_keys = {.keys = response,
                                                     .aliases = aliases};
