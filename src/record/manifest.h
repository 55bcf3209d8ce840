/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint's manifest.json: the state of the run, the files of the
 * checkpoint and those that the run has read. It ends in a checksum of itself.
 * Every key but "gpus" is required, all are checked for type and range, and
 * unknown keys are errors. doc/formats.md describes the keys.
 */
#ifndef WEFT_RECORD_MANIFEST_H
#define WEFT_RECORD_MANIFEST_H

#include "base/dtype.h"
#include "base/file_hash.h"
#include "kern/kern.h"

enum { WEFT_MANIFEST_FORMAT = 3 };

/* A trained role. */
struct weft_manifest_role {
    char name[32];
    int64_t steps;  /* of the optimizer, done */
    int64_t blocks; /* tensor blocks */
};

/* A file of the checkpoint; its name is the path inside the folder. */
struct weft_manifest_file {
    char name[64];
    struct weft_file_hash hash;
};

/* A file that the run read, and the configuration's key that names it. */
struct weft_manifest_input {
    char *key, *path;
    uint64_t n_bytes;
    struct weft_hash hash; /* weft_file_hash_whole() */
};

/* State that only some runs have. */
struct weft_manifest_number {
    char name[48];
    double value;
};

struct weft_manifest {
    int64_t format;
    char weft[64]; /* version of the program that wrote it */
    int64_t iteration;
    int64_t seed, gradient_groups;
    enum weft_dtype dtype, model_dtype;
    enum weft_isa isa;
    char gpus[160]; /* their kind and library; "": the run had none */
    size_t n_roles, n_files, n_inputs, n_numbers;
    struct weft_manifest_role *role;
    struct weft_manifest_file *file;
    struct weft_manifest_input *input;
    struct weft_manifest_number *number;
};

void weft_manifest_release(struct weft_manifest *manifest);

/* Reads the file folder/name and adds it. Errors: those of
 * base/file_hash.h. */
int weft_manifest_add_file(struct weft_manifest *manifest, const char *folder,
                           const char *name, struct weft_err *err);
/* Adds a trained role; the name is copied. */
int weft_manifest_add_role(struct weft_manifest *manifest, const char *name,
                           int64_t steps, int64_t blocks,
                           struct weft_err *err);
/* The role of that name, or NULL. */
const struct weft_manifest_role *weft_manifest_role(
    const struct weft_manifest *manifest, const char *name);
/* Adds an input; key and path are copied. */
int weft_manifest_add_input(struct weft_manifest *manifest, const char *key,
                            const char *path, uint64_t n_bytes,
                            struct weft_hash hash, struct weft_err *err);

/* Adds a finite number; the name is copied. */
int weft_manifest_add_number(struct weft_manifest *manifest, const char *name,
                             double value, struct weft_err *err);
/* Finds a number by its name. Errors: there is none. */
int weft_manifest_number(const struct weft_manifest *manifest,
                         const char *name, double *out, struct weft_err *err);

/* Writes folder/manifest.json. */
int weft_manifest_write(const struct weft_manifest *manifest,
                        const char *folder, struct weft_err *err);
/* Reads and checks folder/manifest.json; iteration: what the folder's name
 * says. Release with weft_manifest_release(). Errors name file and key. */
int weft_manifest_read(const char *folder, int32_t iteration,
                       struct weft_manifest *out, struct weft_err *err);
/* Checks that the manifest's files are the n named ones, and that the checksum
 * of each is right. Reads all of them. */
int weft_manifest_verify(const struct weft_manifest *manifest,
                         const char *folder, const char *const *name,
                         size_t n, struct weft_err *err);

#endif
