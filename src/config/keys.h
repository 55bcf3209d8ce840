/* SPDX-License-Identifier: Apache-2.0 */
/* Walking the keys of a schema; setting, writing and explaining one. */
#ifndef WEFT_CONFIG_KEYS_H
#define WEFT_CONFIG_KEYS_H

#include "base/string.h"
#include "config/schema.h"

enum { WEFT_MAX_KEYS = 256 };

/* Keys of every run: before those of algorithms, and after. `algorithm` is the
 * first. */
extern const struct weft_config_table weft_config_first, weft_config_last;
/* Keys of an item of the list `reward`; offsets into struct
 * weft_reward_config. */
extern const struct weft_config_key weft_reward_keys[];
extern const size_t weft_reward_n_keys;

/* Flag of reward keys on which results depend, besides the types' bits. */
enum { WEFT_REWARD_KEY_NUMBERS = 1 << 16 };

/* All keys of a schema, each once. Those of a group follow one another. */
struct weft_key_list {
    size_t n;
    const struct weft_config_key *key[WEFT_MAX_KEYS];
};

void weft_config_list(const struct weft_config_schema *schema,
                      struct weft_key_list *out);
/* The k-th table of an algorithm, beginning with those of every run; NULL
 * after the last. */
const struct weft_config_table *weft_config_table_of(
    const struct weft_config_algorithm *algorithm, int k);
/* Whether the algorithm has the key. */
bool weft_config_knows(const struct weft_config_algorithm *algorithm,
                       const struct weft_config_key *key);
/* The name of the key that sets this field of the configuration, as its
 * algorithm has it; NULL: none does. */
const char *weft_config_name(const struct weft_config *config,
                             const void *field);

/* The key that was probably meant by the unknown dotted `name`: one of Weft's
 * that is misspelt or in another group, or one that TRL, verl or OpenRLHF call
 * so. NULL: none. */
const char *weft_config_meant(const struct weft_config_schema *schema,
                              const char *name);

/* The meaning of a key, or of the list "reward". */
const char *weft_config_meaning(const struct weft_config_schema *schema,
                                const char *name);

/* The default of a key under an algorithm. */
const char *weft_config_standard(
    const struct weft_config_key *key,
    const struct weft_config_algorithm *algorithm);

/* Appends a key's value in `base` as YAML; false: it is NULL. */
bool weft_config_value(const struct weft_config_key *key, const void *base,
                       struct weft_string *out);

/* The i-th of "a|b|c" (its length in n_out), or NULL. */
const char *weft_config_word(const char *words, int i, size_t *n_out);
/* Appends the names of algorithms as such words. */
void weft_config_algorithm_words(const struct weft_config_schema *schema,
                                 struct weft_string *out);

struct weft_yaml;

/* Sets a key in `base` from a node that is not null; paths are relative to the
 * absolute folder `dir`. Errors name the node's file and line. Not for a key
 * of type WEFT_KEY_ALGORITHM. */
int weft_config_set(const struct weft_config_key *key,
                    const struct weft_yaml *node, const char *dir, void *base,
                    struct weft_err *err);

/* The working directory. Caller frees; NULL: no memory. */
char *weft_config_cwd(void);

/* Checks combinations of keys, then rules: the schema's, the tables', the
 * algorithm's. given[k]: the node that set key k of the list, or NULL. */
int weft_config_check(const struct weft_config *config, const char *name,
                      const struct weft_key_list *list,
                      const struct weft_yaml *const *given,
                      struct weft_err *err);
/* Checks one reward, which `node` set. */
int weft_config_check_reward(const struct weft_reward_config *reward,
                             const struct weft_yaml *node,
                             struct weft_err *err);

#endif
