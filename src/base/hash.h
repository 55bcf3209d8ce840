/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums: XXH3 (github.com/Cyan4973/xxHash), 64 and 128 bits. They find
 * damage, not forgery. The digits do not depend on the machine. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include "base/err.h"

struct weft_hash {
    uint64_t high, low;
};

enum { WEFT_HASH_DIGITS = 32 };

uint64_t weft_hash64(const void *data, size_t n);
struct weft_hash weft_hash128(const void *data, size_t n);
bool weft_hash_equal(struct weft_hash a, struct weft_hash b);

/* Writes 32 lower-case hex digits and a zero byte, as xxhsum -H2 prints
 * them. */
void weft_hash_format(struct weft_hash hash, char out[WEFT_HASH_DIGITS + 1]);
/* The reverse; false when the text is not 32 hex digits. */
bool weft_hash_scan(const char *text, struct weft_hash *out);

/* Hashes data that comes in pieces; both digests may be taken at any point. */
struct weft_hasher;
struct weft_hasher *weft_hasher_create(void); /* NULL: no memory */
void weft_hasher_add(struct weft_hasher *hasher, const void *data, size_t n);
uint64_t weft_hasher_digest64(const struct weft_hasher *hasher);
struct weft_hash weft_hasher_digest128(const struct weft_hasher *hasher);
void weft_hasher_free(struct weft_hasher *hasher); /* NULL is allowed */

/* Hashes a whole file and returns its size. Errors: as in base/file.h. */
int weft_hash_file(const char *path, struct weft_hash *out,
                   uint64_t *n_bytes_out, struct weft_err *err);

#endif
