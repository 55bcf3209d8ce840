/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint's manifest.json: where the run stood, what the folder must
 * hold, and what the run has read. Nothing in it is taken on trust: it ends
 * in a checksum of itself, every key is required, of its type and in range,
 * and no other is allowed. doc/formats.md describes the keys.
 */
#ifndef WEFT_RUN_MANIFEST_H
#define WEFT_RUN_MANIFEST_H

#include "base/dtype.h"
#include "base/file_hash.h"
#include "kern/kern.h"

/* Format 1 had Adam's moments beside the weights in the model's folder, one
 * checksum per file, none of itself, and no inputs. */
enum { WEFT_MANIFEST_FORMAT_1 = 1, WEFT_MANIFEST_FORMAT = 2 };

/* A file of the checkpoint, by its path inside. */
struct weft_manifest_file {
    char name[64];
    struct weft_file_hash hash;
    struct weft_hash whole; /* format 1: of all bytes; no chunks */
};

/* A file that the run read, under the configuration's key. */
struct weft_manifest_input {
    char *key, *path;
    uint64_t n_bytes;
    struct weft_hash hash; /* weft_file_hash_whole() */
};

struct weft_manifest {
    int64_t format;
    char weft[64]; /* version of the program that wrote it */
    int64_t iteration, actor_steps, critic_steps;
    double kl_coef, kl_last;
    int64_t seed, actor_blocks, critic_blocks, gradient_groups, prompts;
    enum weft_dtype dtype, model_dtype;
    enum weft_isa isa;
    size_t n_files, n_inputs;
    struct weft_manifest_file *file;
    struct weft_manifest_input *input;
};

void weft_manifest_release(struct weft_manifest *manifest);

/* Adds folder/name, which is read now. Errors: of base/file_hash.h. */
int weft_manifest_add_file(struct weft_manifest *manifest, const char *folder,
                           const char *name, struct weft_err *err);
/* Adds an input; key and path are copied. */
int weft_manifest_add_input(struct weft_manifest *manifest, const char *key,
                            const char *path, uint64_t n_bytes,
                            struct weft_hash hash, struct weft_err *err);

/* To folder/manifest.json. */
int weft_manifest_write(const struct weft_manifest *manifest,
                        const char *folder, struct weft_err *err);
/* Reads and checks it; iteration: the folder's. Release with
 * weft_manifest_release(). Errors name file and key. */
int weft_manifest_read(const char *folder, int32_t iteration,
                       struct weft_manifest *out, struct weft_err *err);
/* The manifest's files are the n named ones, and each holds what the manifest
 * says. Reads all of them. */
int weft_manifest_verify(const struct weft_manifest *manifest,
                         const char *folder, const char *const *name,
                         size_t n, struct weft_err *err);

#endif
