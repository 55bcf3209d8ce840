/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums of files in pieces: one XXH3-128 per chunk of a fixed size. So
 * several threads can read a large file, and whoever wrote a part of it can
 * give the checksum of that part.
 */
#ifndef WEFT_BASE_FILE_HASH_H
#define WEFT_BASE_FILE_HASH_H

#include "base/hash.h"

enum { WEFT_FILE_CHUNK_BYTES = 64 << 20 };

struct weft_file_hash {
    uint64_t n_bytes;
    /* chunks of WEFT_FILE_CHUNK_BYTES; the last is the rest */
    size_t n_chunks;
    struct weft_hash *chunk; /* (n_chunks) */
};

/* Number of chunks of a file of that size. */
WEFT_INLINE size_t weft_file_chunks(uint64_t n_bytes)
{
    return (size_t) ((n_bytes + WEFT_FILE_CHUNK_BYTES - 1)
                     / WEFT_FILE_CHUNK_BYTES);
}

/* Reads a file with up to n_threads threads. Release with
 * weft_file_hash_release(). Errors: of base/file.h; WEFT_EIO when the file
 * gets shorter meanwhile. */
int weft_file_hash_read(const char *path, int n_threads,
                        struct weft_file_hash *out, struct weft_err *err);
void weft_file_hash_release(struct weft_file_hash *hash);

/* One checksum for the whole file, made from the chunks' checksums and the
 * size. */
struct weft_hash weft_file_hash_whole(const struct weft_file_hash *hash);

#endif
