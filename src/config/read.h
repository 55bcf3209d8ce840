/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of weft_config_parse(). */
#ifndef WEFT_CONFIG_READ_H
#define WEFT_CONFIG_READ_H

#include "base/yaml.h"
#include "config/config.h"
#include "config/keys.h"

enum { WEFT_KEY_NAME = 256 }; /* bytes of a dotted name */

/* A word of the command line, made into a node. */
struct weft_config_word_node {
    struct weft_yaml node;  /* a scalar, which owns its text and name */
    struct weft_yaml *tree; /* or the tree of a value that was YAML */
};

struct weft_config_reader {
    const char *name;
    char *dir; /* absolute */
    struct weft_key_list list;
    struct weft_config *c;
    const struct weft_yaml *given[WEFT_MAX_KEYS]; /* by the list's order */
    const struct weft_yaml *reward;
    int32_t n_words;
    struct weft_config_word_node *word;
    struct weft_err *err;
};

int weft_config_nomem(const struct weft_config_reader *reader);
/* Index of a key in the list, or -1. */
int weft_config_find(const struct weft_config_reader *reader,
                     const char *name);
/* Sets the key's default in `base`. */
int weft_config_set_standard(const struct weft_config_reader *reader,
                             const struct weft_config_key *key, void *base);

/* given.c: notes which keys the file's tree gives, then those that n words
 * "key=value" give in their place. An unknown key is an error that says which
 * was probably meant. */
int weft_config_give_tree(struct weft_config_reader *reader,
                          const struct weft_yaml *root);
int weft_config_give_words(struct weft_config_reader *reader, int n,
                           const char *const *word);
void weft_config_free_words(struct weft_config_reader *reader);

/* read_reward.c: the list `reward`, when the algorithm is known. */
int weft_config_read_rewards(struct weft_config_reader *reader);

#endif
