/* SPDX-License-Identifier: Apache-2.0 */
/* The table of configuration keys, shared by the files config*.c. */
#ifndef WEFT_CONFIG_KEYS_H
#define WEFT_CONFIG_KEYS_H

#include "base/string.h"
#include "config/config.h"

enum weft_key_type {
    WEFT_KEY_INT,      /* int32_t */
    WEFT_KEY_SEED,     /* uint64_t */
    WEFT_KEY_FLOAT,    /* float */
    WEFT_KEY_DOUBLE,   /* double */
    WEFT_KEY_BOOL,     /* bool */
    WEFT_KEY_ENUM,     /* int or an enum; the first of `words` is `min` */
    WEFT_KEY_STRING,   /* char * */
    WEFT_KEY_WORD,     /* char *, one of `words` */
    WEFT_KEY_PATH,     /* char *, absolute; relative to the file's folder */
    WEFT_KEY_PATH_CWD, /* the same, relative to the working directory */
    WEFT_KEY_LIST      /* char *[WEFT_MAX_ARGV + 1] */
};

/* Flags of a key: a bit per algorithm that knows it, and these. */
enum {
    WEFT_KEY_NUMBERS = 1 << 24, /* results depend on it: may not change on
                                   resume */
    WEFT_KEY_REQUIRED = 1 << 25
};

struct weft_config_key {
    const char *name;
    enum weft_key_type type;
    size_t offset;
    const char *standard; /* the default's text; NULL: none */
    double min, max;      /* of numbers */
    const char *words;    /* "a|b|c" */
    unsigned flags;       /* of a reward's key: bit per weft_reward_type */
    const char *meaning;
};

extern const struct weft_config_key weft_config_keys[];
extern const size_t weft_config_n_keys;
/* Keys of an item of the list `reward`; offsets into struct
 * weft_reward_config. */
extern const struct weft_config_key weft_reward_keys[];
extern const size_t weft_reward_n_keys;

/* Flag of reward keys on which results depend, besides the types' bits. */
enum { WEFT_REWARD_KEY_NUMBERS = 1 << 16 };

/* Bit of an algorithm in a key's flags. */
static inline unsigned weft_config_bit(enum weft_algorithm_id algorithm)
{
    return 1u << algorithm;
}

/* The key that was probably meant by the unknown dotted `name`: one of Weft's
 * that is misspelt or in another group, or one that TRL, verl or OpenRLHF call
 * so. NULL: none. */
const char *weft_config_meant(const char *name);

/* The meaning of a key, or of the list "reward". */
const char *weft_config_meaning(const char *name);

/* The default of a key under an algorithm. */
const char *weft_config_standard(const struct weft_config_key *key,
                                 enum weft_algorithm_id algorithm);

/* Appends a key's value in `base` as YAML; false: it is NULL. */
bool weft_config_value(const struct weft_config_key *key, const void *base,
                       struct weft_string *out);

/* The i-th of "a|b|c" (its length in n_out), or NULL. */
const char *weft_config_word(const char *words, int i, size_t *n_out);

struct weft_yaml;

/* Sets a key in `base` from a node that is not null; paths are relative to the
 * absolute folder `dir`. Errors name the node's file and line. */
int weft_config_set(const struct weft_config_key *key,
                    const struct weft_yaml *node, const char *dir, void *base,
                    struct weft_err *err);

/* The working directory. Caller frees; NULL: no memory. */
char *weft_config_cwd(void);

/* Checks combinations of keys, then rules. given[k]: the node that set key k, or NULL. */
int weft_config_check(const struct weft_config *config, const char *name,
                      const struct weft_yaml *const *given,
                      const struct weft_config_rule *rules,
                      struct weft_err *err);
/* Checks one reward, which `node` set. */
int weft_config_check_reward(const struct weft_reward_config *reward,
                             const struct weft_yaml *node,
                             struct weft_err *err);

#endif
