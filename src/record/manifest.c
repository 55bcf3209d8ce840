/* SPDX-License-Identifier: Apache-2.0 */
#include "record/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/string.h"
#include "record/manifest_state.h"

enum {
    PATH_BYTES = 4096,
    WHERE_BYTES = PATH_BYTES + 128,
    MAX_BYTES = 1 << 28
};

/* ---- Keys ------------------------------------------------------------- */

enum type { INT, VERSION, GPUS, DTYPE, ISA };

/* The keys, for reading, checking and writing. */
static const struct key {
    const char *name;
    enum type type;
    size_t offset;
    int64_t low, high; /* of INT */
} keys[] = {
#define AT(field) offsetof(struct weft_manifest, field)
    {"format", INT, AT(format), WEFT_MANIFEST_FORMAT, WEFT_MANIFEST_FORMAT},
    {"weft", VERSION, AT(weft), 0, 0},
    {"iteration", INT, AT(iteration), 0, INT32_MAX},
    {"seed", INT, AT(seed), 0, INT64_MAX},
    {"gradient_groups", INT, AT(gradient_groups), 1, WEFT_MAX_GROUPS},
    {"dtype", DTYPE, AT(dtype), 0, 0},
    {"isa", ISA, AT(isa), 0, 0},
    {"gpus", GPUS, AT(gpus), 0, 0},
    {"model_dtype", DTYPE, AT(model_dtype), 0, 0},
#undef AT
};
static const char chunk_bytes[] = "chunk_bytes", files[] = "files",
                  inputs[] = "inputs", checksum[] = "checksum";

static const char *word_of(enum type type, int value)
{
    return type == DTYPE ? weft_dtype_name((enum weft_dtype) value)
                         : weft_k_isa_name((enum weft_isa) value);
}

static int n_words(enum type type)
{
    return type == DTYPE ? 2 : WEFT_N_ISAS; /* f32, bf16 */
}

static void path_in(char path[PATH_BYTES], const char *folder,
                    const char *name)
{
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) >= PATH_BYTES)
        path[0] = 0; /* system calls fail for it */
}

/* ---- Making one ------------------------------------------------------- */

void weft_manifest_release(struct weft_manifest *m)
{
    for (size_t i = 0; i < m->n_files; i++)
        weft_file_hash_release(&m->file[i].hash);
    for (size_t i = 0; i < m->n_inputs; i++) {
        weft_free(m->input[i].key);
        weft_free(m->input[i].path);
    }
    weft_free(m->file);
    weft_free(m->role);
    weft_free(m->input);
    weft_free(m->number);
    *m = (struct weft_manifest){0};
}

static struct weft_manifest_file *new_file(struct weft_manifest *m,
                                           const char *name,
                                           struct weft_err *err)
{
    struct weft_manifest_file *more = weft_realloc(m->file, m->n_files + 1,
                                                   sizeof *more);
    if (!more) {
        weft_err_nomem(err, "a manifest", (m->n_files + 1) * sizeof *more);
        return NULL;
    }
    m->file = more;
    more += m->n_files++;
    *more = (struct weft_manifest_file){.name = ""};
    snprintf(more->name, sizeof more->name, "%s", name);
    return more;
}

/* Number of threads that compute checksums: nothing else runs then, so as many
 * as processors, but few enough not to slow down a disk. */
static int n_threads(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > 8 ? 8 : (int) n;
}

int weft_manifest_add_file(struct weft_manifest *m, const char *folder,
                           const char *name, struct weft_err *err)
{
    char path[PATH_BYTES];
    struct weft_manifest_file *f = new_file(m, name, err);
    path_in(path, folder, name);
    return f ? weft_file_hash_read(path, n_threads(), &f->hash, err)
             : WEFT_ENOMEM;
}

int weft_manifest_add_input(struct weft_manifest *m, const char *key,
                            const char *path, uint64_t n_bytes,
                            struct weft_hash hash, struct weft_err *err)
{
    struct weft_manifest_input *more = weft_realloc(m->input, m->n_inputs + 1,
                                                    sizeof *more);
    if (!more)
        return weft_err_nomem(err, "a manifest", sizeof *more);
    m->input = more;
    more += m->n_inputs++;
    *more = (struct weft_manifest_input){weft_strdup(key), weft_strdup(path),
                                         n_bytes, hash};
    return more->key && more->path
             ? 0
             : weft_err_nomem(err, "a manifest", strlen(path));
}

/* ---- Writing ---------------------------------------------------------- */

static void add_key(const struct weft_manifest *m, const struct key *key,
                    struct weft_string *t)
{
    const char *at = (const char *) m + key->offset;
    if (key->type == GPUS && !*at)
        return;
    weft_string_addf(t, "%s \"%s\": ", t->n > 2 ? ",\n" : "", key->name);
    switch (key->type) {
    case INT:
        weft_string_addf(t, "%" PRId64, *(const int64_t *) at);
        break;
    case VERSION:
    case GPUS:
        weft_string_add_json(t, at);
        break;
    case DTYPE:
    case ISA:
        weft_string_add_json(t, word_of(key->type, *(const int *) at));
        break;
    }
}

static void add_digits(struct weft_string *t, struct weft_hash hash)
{
    char digits[WEFT_HASH_DIGITS + 1];
    weft_hash_format(hash, digits);
    weft_string_addf(t, "\"%s\"", digits);
}

static void add_files(const struct weft_manifest *m, struct weft_string *t)
{
    weft_string_addf(t, ",\n \"%s\": {", files);
    for (size_t i = 0; i < m->n_files; i++) {
        const struct weft_file_hash *h = &m->file[i].hash;
        weft_string_add(t, i > 0 ? ",\n  " : "\n  ");
        weft_string_add_json(t, m->file[i].name);
        weft_string_addf(t, ": {\"bytes\": %" PRIu64 ", \"xxh3\": [",
                         h->n_bytes);
        for (size_t k = 0; k < h->n_chunks; k++) {
            weft_string_add(t, k > 0 ? ", " : "");
            add_digits(t, h->chunk[k]);
        }
        weft_string_add(t, "]}");
    }
    weft_string_add(t, "\n }");
}

static void add_inputs(const struct weft_manifest *m, struct weft_string *t)
{
    weft_string_addf(t, ",\n \"%s\": [", inputs);
    for (size_t i = 0; i < m->n_inputs; i++) {
        const struct weft_manifest_input *in = &m->input[i];
        weft_string_add(t, i > 0 ? ",\n  {\"key\": " : "\n  {\"key\": ");
        weft_string_add_json(t, in->key);
        weft_string_add(t, ", \"path\": ");
        weft_string_add_json(t, in->path);
        weft_string_addf(t,
                         ", \"bytes\": %" PRIu64 ", \"xxh3\": ", in->n_bytes);
        add_digits(t, in->hash);
        weft_string_add(t, "}");
    }
    weft_string_add(t, "\n ]");
}

int weft_manifest_write(const struct weft_manifest *m, const char *folder,
                        struct weft_err *err)
{
    char path[PATH_BYTES];
    struct weft_string t = {0};
    weft_string_add(&t, "{\n");
    for (size_t i = 0; i < WEFT_COUNT(keys); i++)
        add_key(m, &keys[i], &t);
    weft_string_addf(&t, ",\n \"%s\": %d", chunk_bytes,
                     WEFT_FILE_CHUNK_BYTES);
    weft_manifest_state_write(m, &t);
    add_files(m, &t);
    add_inputs(m, &t);
    int rc = weft_string_check(&t, "a manifest", err);
    if (!rc) {
        struct weft_hash hash = weft_hash128(t.data, t.n);
        weft_string_addf(&t, ",\n \"%s\": ", checksum);
        add_digits(&t, hash);
        weft_string_add(&t, "\n}\n");
        rc = weft_string_check(&t, "a manifest", err);
    }
    path_in(path, folder, "manifest.json");
    if (!rc)
        rc = weft_file_write(path, t.data, t.n, err);
    weft_string_release(&t);
    return rc;
}

/* ---- Reading ---------------------------------------------------------- */

/* Whether the text ends in the checksum of all before it. */
static bool has_checksum(const char *text, size_t n)
{
    char mark[32], end[WEFT_HASH_DIGITS + 8];
    struct weft_hash hash;
    int n_mark = snprintf(mark, sizeof mark, ",\n \"%s\": \"", checksum);
    size_t n_end = (size_t) n_mark + WEFT_HASH_DIGITS + strlen("\"\n}\n");
    if (n < n_end || memcmp(text + n - n_end, mark, (size_t) n_mark) != 0)
        return false;
    hash = weft_hash128(text, n - n_end);
    weft_hash_format(hash, end);
    strcat(end, "\"\n}\n");
    return memcmp(text + n - n_end + n_mark, end, strlen(end)) == 0;
}

static int scan_digits(const char *subject, const char *what,
                       const json_t *value, struct weft_hash *out,
                       struct weft_err *err)
{
    const char *digits = json_string_value(value);
    if (digits && weft_hash_scan(digits, out))
        return 0;
    return weft_err_set(err, WEFT_EFORMAT,
                        "%s: the checksum of '%s' must be 32 hexadecimal "
                        "digits",
                        subject, what);
}

static int read_key(const json_t *o, const char *subject,
                    const struct key *key, struct weft_manifest *m,
                    struct weft_err *err)
{
    char *at = (char *) m + key->offset;
    const char *word;
    if (key->type == INT)
        return weft_json_int(o, subject, key->name, key->low, key->high,
                             (int64_t *) (void *) at, err);
    if (key->type == GPUS && !json_object_get(o, key->name))
        return 0;
    int rc = weft_json_string(o, subject, key->name, &word, err);
    if (rc)
        return rc;
    if (key->type == VERSION || key->type == GPUS) {
        bool is_version = key->type == VERSION;
        snprintf(at, is_version ? sizeof m->weft : sizeof m->gpus, "%s",
                 word);
        return 0;
    }
    for (int i = 0; i < n_words(key->type); i++)
        if (strcmp(word, word_of(key->type, i)) == 0) {
            memcpy(at, &i, sizeof i);
            return 0;
        }
    return weft_err_set(err, WEFT_EFORMAT, "%s: '%s' is unknown: '%s'",
                        subject, key->name, word);
}

static int read_chunks(const json_t *entry, const char *subject,
                       struct weft_manifest_file *f, struct weft_err *err)
{
    struct weft_file_hash *h = &f->hash;
    json_t *list;
    int rc = weft_json_array(entry, subject, "xxh3", &list, err);
    if (rc)
        return rc;
    size_t n = weft_file_chunks(h->n_bytes);
    if (json_array_size(list) != n)
        return weft_err_set(err, WEFT_EFORMAT,
                            "%s: '%s' has %zu checksums, but %" PRIu64
                            " bytes are %zu chunks",
                            subject, f->name, json_array_size(list),
                            h->n_bytes, n);
    h->chunk = weft_alloc(n + 1, sizeof *h->chunk);
    if (!h->chunk)
        return weft_err_nomem(err, subject, n * sizeof *h->chunk);
    h->n_chunks = n;
    for (size_t i = 0; i < n && !rc; i++)
        rc = scan_digits(subject, f->name, json_array_get(list, i),
                         &h->chunk[i], err);
    return rc;
}

static int read_files(const json_t *o, const char *subject,
                      struct weft_manifest *m, struct weft_err *err)
{
    static const char *const known[] = {"bytes", "xxh3"};
    char where[WHERE_BYTES];
    json_t *all, *entry;
    const char *name;
    int rc = weft_json_object(o, subject, files, &all, err);
    if (rc)
        return rc;
    json_object_foreach(all, name, entry)
    {
        int64_t bytes = 0;
        struct weft_manifest_file *f = new_file(m, name, err);
        if (!f)
            return WEFT_ENOMEM;
        snprintf(where, sizeof where, "%s: '%s'", subject, files);
        rc = weft_json_object(all, where, name, &entry, err);
        snprintf(where, sizeof where, "%s: '%s': '%.64s'", subject, files,
                 name);
        if (!rc)
            rc = weft_json_keys(entry, where, known, WEFT_COUNT(known), err);
        if (!rc)
            rc = weft_json_int(entry, where, "bytes", 0, INT64_MAX, &bytes,
                               err);
        f->hash.n_bytes = (uint64_t) bytes;
        if (!rc)
            rc = read_chunks(entry, where, f, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_inputs(const json_t *o, const char *subject,
                       struct weft_manifest *m, struct weft_err *err)
{
    static const char *const known[] = {"key", "path", "bytes", "xxh3"};
    json_t *all, *entry;
    size_t i;
    int rc = weft_json_array(o, subject, inputs, &all, err);
    if (rc)
        return rc;
    json_array_foreach(all, i, entry)
    {
        char where[WHERE_BYTES];
        const char *key, *path;
        int64_t bytes;
        struct weft_hash hash;
        snprintf(where, sizeof where, "%s: %s[%zu]", subject, inputs, i);
        if (!json_is_object(entry))
            return weft_err_set(err, WEFT_EFORMAT,
                                "%s must be an object, not %s", where,
                                weft_json_type(entry));
        rc = weft_json_keys(entry, where, known, WEFT_COUNT(known), err);
        if (!rc)
            rc = weft_json_string(entry, where, "key", &key, err);
        if (!rc)
            rc = weft_json_string(entry, where, "path", &path, err);
        if (!rc)
            rc = weft_json_int(entry, where, "bytes", 0, INT64_MAX, &bytes,
                               err);
        if (!rc)
            rc = scan_digits(where, key, json_object_get(entry, "xxh3"),
                             &hash, err);
        if (!rc)
            rc = weft_manifest_add_input(m, key, path, (uint64_t) bytes, hash,
                                         err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Checks that there are no unknown keys. */
static int check_keys(const json_t *o, const char *subject,
                      struct weft_err *err)
{
    const char *known[WEFT_COUNT(keys) + 6] = {
        chunk_bytes, "roles", "numbers", files, inputs, checksum};
    size_t n = 6;
    for (size_t i = 0; i < WEFT_COUNT(keys); i++)
        known[n++] = keys[i].name;
    return weft_json_keys(o, subject, known, n, err);
}

static int read_all(const json_t *o, const char *subject,
                    struct weft_manifest *m, struct weft_err *err)
{
    int64_t size = WEFT_FILE_CHUNK_BYTES;
    int rc = check_keys(o, subject, err);
    for (size_t i = 0; i < WEFT_COUNT(keys) && !rc; i++)
        rc = read_key(o, subject, &keys[i], m, err);
    if (!rc)
        rc = weft_json_int(o, subject, chunk_bytes, size, size, &size, err);
    if (!rc)
        rc = read_files(o, subject, m, err);
    if (!rc)
        rc = read_inputs(o, subject, m, err);
    if (!rc)
        rc = weft_manifest_state_read(o, subject, m, err);
    return rc;
}

static int parse(const char *text, size_t n, const char *path,
                 struct weft_manifest *m, struct weft_err *err)
{
    json_t *o = NULL;
    bool whole = has_checksum(text, n);
    int rc = weft_json_parse(text, n, path, &o, err);
    if (rc)
        return rc;
    if (!json_is_object(o))
        rc = weft_err_set(err, WEFT_EFORMAT, "%s must be an object, not %s",
                          path, weft_json_type(o));
    if (!rc)
        rc = weft_json_int(o, path, "format", 1, INT32_MAX, &m->format, err);
    if (!rc && m->format != WEFT_MANIFEST_FORMAT)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: 'format' is %" PRId64
                          ", which another version "
                          "of weft has written; this one reads %d",
                          path, m->format, WEFT_MANIFEST_FORMAT);
    if (!rc && !whole)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: 'checksum' is not that of the text before it: "
                          "the file is damaged",
                          path);
    if (!rc)
        rc = read_all(o, path, m, err);
    json_decref(o);
    return rc;
}

int weft_manifest_read(const char *folder, int32_t iteration,
                       struct weft_manifest *out, struct weft_err *err)
{
    char path[PATH_BYTES], *text;
    struct weft_manifest m = {0};
    size_t n;
    path_in(path, folder, "manifest.json");
    int rc = weft_file_read(path, MAX_BYTES, &text, &n, err);
    if (rc)
        return rc;
    rc = parse(text, n, path, &m, err);
    weft_free(text);
    if (!rc && m.iteration != iteration)
        rc = weft_err_set(err, WEFT_EFORMAT,
                          "%s: 'iteration' is %" PRId64
                          ", but the folder's name says %d",
                          path, m.iteration, (int) iteration);
    if (rc) {
        weft_err_prefix(err, "checkpoint of iteration %d", (int) iteration);
        weft_manifest_release(&m);
    } else {
        *out = m;
    }
    return rc;
}

/* ---- Verifying -------------------------------------------------------- */

static int damaged(const char *path, const char *folder, const char *how,
                   struct weft_err *err)
{
    return weft_err_set(err, WEFT_EFORMAT,
                        "'%s' is damaged: %s; remove '%s' to resume from the "
                        "checkpoint before",
                        path, how, folder);
}

static int verify_file(const struct weft_manifest_file *f, const char *folder,
                       struct weft_err *err)
{
    char path[PATH_BYTES], how[160] = "";
    struct weft_file_hash found = {0};
    path_in(path, folder, f->name);
    int rc = weft_file_hash_read(path, n_threads(), &found, err);
    if (rc)
        return rc;
    uint64_t bytes = found.n_bytes;
    if (bytes != f->hash.n_bytes)
        snprintf(how, sizeof how,
                 "it has %" PRIu64 " bytes where its manifest says %" PRIu64,
                 bytes, f->hash.n_bytes);
    for (size_t i = 0; i < found.n_chunks && !how[0]; i++)
        if (!weft_hash_equal(found.chunk[i], f->hash.chunk[i])) {
            uint64_t at = (uint64_t) i * WEFT_FILE_CHUNK_BYTES;
            uint64_t end = at + WEFT_FILE_CHUNK_BYTES;
            snprintf(how, sizeof how,
                     "the checksum of its bytes %" PRIu64 " to %" PRIu64
                     " is not its manifest's",
                     at, (end < bytes ? end : bytes) - 1);
        }
    weft_file_hash_release(&found);
    return how[0] ? damaged(path, folder, how, err) : 0;
}

static const struct weft_manifest_file *find_file(
    const struct weft_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_files; i++)
        if (strcmp(m->file[i].name, name) == 0)
            return &m->file[i];
    return NULL;
}

int weft_manifest_verify(const struct weft_manifest *m, const char *folder,
                         const char *const *name, size_t n,
                         struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if (!find_file(m, name[i]))
            return weft_err_set(err, WEFT_EFORMAT,
                                "'%s/manifest.json': 'files' lacks '%s', "
                                "which a checkpoint of this run has",
                                folder, name[i]);
    for (size_t i = 0; i < m->n_files && m->n_files > n; i++) {
        size_t k = 0;
        while (k < n && strcmp(m->file[i].name, name[k]) != 0)
            k++;
        if (k == n)
            return weft_err_set(err, WEFT_EFORMAT,
                                "'%s/manifest.json': 'files' has '%s', which "
                                "no checkpoint of this run has",
                                folder, m->file[i].name);
    }
    for (size_t i = 0; i < n && !rc; i++)
        rc = verify_file(find_file(m, name[i]), folder, err);
    return rc;
}
