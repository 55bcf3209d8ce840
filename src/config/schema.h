/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a configuration can say, as values: tables of keys, and algorithms that
 * have keys, other defaults and cross-checks of their own. config knows the
 * types and the keys of every run; the tables of algorithms are handed to it.
 *
 *   a key:      a line KEY_INT("group.name", field, "default", least, most,
 *               flags, "meaning") in a table; its field is in struct
 *               weft_config;
 *   a default:  a line {"group.name", "default"} in the algorithm's `defaults`,
 *               with its source beside it;
 *   a check:    a line {"group.name", function} in the table's rules, or in
 *               the algorithm's own.
 */
#ifndef WEFT_CONFIG_SCHEMA_H
#define WEFT_CONFIG_SCHEMA_H

#include <stddef.h>

#include "config/config.h"

enum weft_key_type {
    WEFT_KEY_INT,       /* int32_t */
    WEFT_KEY_SEED,      /* uint64_t */
    WEFT_KEY_FLOAT,     /* float */
    WEFT_KEY_DOUBLE,    /* double */
    WEFT_KEY_BOOL,      /* bool */
    WEFT_KEY_ENUM,      /* int or an enum; the first of `words` is `min` */
    WEFT_KEY_STRING,    /* char * */
    WEFT_KEY_WORD,      /* char *, one of `words` */
    WEFT_KEY_PATH,      /* char *, absolute; relative to the file's folder */
    WEFT_KEY_PATH_CWD,  /* the same, relative to the working directory */
    WEFT_KEY_LIST,      /* char *[WEFT_MAX_ARGV + 1] */
    WEFT_KEY_ALGORITHM, /* struct weft_config_algorithm *, by its name */
};

/* Flags of a key. */
enum {
    WEFT_KEY_NUMBERS = 1 << 24, /* results depend on it: may not change on
                                   resume */
    WEFT_KEY_REQUIRED = 1 << 25,
    /* of a bool: it may be a map of keys of its group that say how, which is
     * true; and of these keys */
    WEFT_KEY_OPENS = 1 << 26,
    WEFT_KEY_SAYS_HOW = 1 << 27,
    WEFT_KEY_SHARE = 1 << 28 /* of a double: "20%" is 0.2 */
};

struct weft_config_key {
    const char *name;
    enum weft_key_type type;
    size_t offset;
    const char *standard; /* the default's text; NULL: none */
    double min, max;      /* of numbers */
    const char *words;    /* "a|b|c"; of an integer: one for -1, of a path:
                             one that is no path, or NULL */
    unsigned flags; /* of a reward's key: also bit per weft_reward_type */
    const char *meaning;
};

/* Lists of these four end with one without a key. */

/* A check of a key's value. The error is told with the key's file and line. */
struct weft_config_rule {
    const char *key;
    int (*check)(const struct weft_config *config, struct weft_err *err);
};

/* How a key that was not given follows from the others. Returns 0, or
 * WEFT_ENOMEM. */
struct weft_config_derived {
    const char *key;
    int (*set)(struct weft_config *config);
};

/* A key's default under one algorithm. */
struct weft_config_default {
    const char *key, *standard;
};

/* What other frameworks call a key: the last parts of dotted names, between
 * bars. */
struct weft_config_alias {
    const char *key, *theirs;
};

/* Keys that algorithms have together; what is NULL is empty. A key's name
 * stands in one table only. Keys of several tables may be of one group. */
struct weft_config_table {
    const struct weft_config_key *keys; /* ends with one without a name */
    const struct weft_config_derived *derived;
    const struct weft_config_rule *rules;
    const struct weft_config_alias *aliases;
};

struct weft_config_algorithm {
    const char *name;  /* its word */
    const char *about; /* what it is, with its source */
    bool generates;    /* it learns from responses that it generates, and so
                          has rewards */
    const struct weft_config_table *const *tables; /* NULL ends them */
    const struct weft_config_default *defaults;
    const struct weft_config_rule *rules;
};

struct weft_config_schema {
    /* NULL ends them; the first is the default. */
    const struct weft_config_algorithm *const *algorithms;
    const struct weft_config_rule *rules; /* of every run */
};

/* ---- Lines of tables --------------------------------------------------- */

#define KEY_AT(field) offsetof(struct weft_config, field)
#define KEY_INT(name, field, standard, min, max, flags, meaning)             \
    {                                                                        \
        name, WEFT_KEY_INT, KEY_AT(field), standard, min, max, NULL, flags,  \
            meaning                                                          \
    }
#define KEY_FLOAT(name, field, standard, min, max, flags, meaning)           \
    {                                                                        \
        name, WEFT_KEY_FLOAT, KEY_AT(field), standard, min, max, NULL,       \
            flags, meaning                                                   \
    }
#define KEY_DOUBLE(name, field, standard, min, max, flags, meaning)          \
    {                                                                        \
        name, WEFT_KEY_DOUBLE, KEY_AT(field), standard, min, max, NULL,      \
            flags, meaning                                                   \
    }
#define KEY_BOOL(name, field, standard, flags, meaning)                      \
    {                                                                        \
        name, WEFT_KEY_BOOL, KEY_AT(field), standard, 0, 0, NULL, flags,     \
            meaning                                                          \
    }
/* first: the number of the first word. */
#define KEY_ENUM(name, field, standard, first, words, flags, meaning)        \
    {                                                                        \
        name, WEFT_KEY_ENUM, KEY_AT(field), standard, first, 0, words,       \
            flags, meaning                                                   \
    }
#define KEY_STRING(name, field, standard, flags, meaning)                    \
    {                                                                        \
        name, WEFT_KEY_STRING, KEY_AT(field), standard, 0, 0, NULL, flags,   \
            meaning                                                          \
    }
#define KEY_WORD(name, field, standard, words, flags, meaning)               \
    {                                                                        \
        name, WEFT_KEY_WORD, KEY_AT(field), standard, 0, 0, words, flags,    \
            meaning                                                          \
    }
#define KEY_PATH(name, field, flags, meaning)                                \
    {                                                                        \
        name, WEFT_KEY_PATH, KEY_AT(field), NULL, 0, 0, NULL, flags, meaning \
    }
/* A file, or the one word. */
#define KEY_PATH_OR(name, field, word, flags, meaning)                       \
    {                                                                        \
        name, WEFT_KEY_PATH, KEY_AT(field), NULL, 0, 0, word, flags, meaning \
    }
/* The end of a table. */
#define KEY_END                                                              \
    {                                                                        \
        NULL, WEFT_KEY_INT, 0, NULL, 0, 0, NULL, 0, NULL                     \
    }

#define KEY_NUM WEFT_KEY_NUMBERS
#define KEY_REQ WEFT_KEY_REQUIRED
#define KEY_MANY 1e9 /* more than anybody asks for */

#endif
