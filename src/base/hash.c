/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"

static struct weft_hash of_xxh(XXH128_hash_t h)
{
    return (struct weft_hash){h.high64, h.low64};
}

uint64_t weft_hash64(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

struct weft_hash weft_hash128(const void *data, size_t n)
{
    return of_xxh(XXH3_128bits(data, n));
}

bool weft_hash_equal(struct weft_hash a, struct weft_hash b)
{
    return a.high == b.high && a.low == b.low;
}

void weft_hash_format(struct weft_hash h, char out[WEFT_HASH_DIGITS + 1])
{
    snprintf(out, WEFT_HASH_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, h.high,
             h.low);
}

bool weft_hash_scan(const char *text, struct weft_hash *out)
{
    uint64_t half[2] = {0, 0};
    int i = 0;
    for (; i < WEFT_HASH_DIGITS && text[i]; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0'
                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                         : -1;
        if (digit < 0)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t) digit;
    }
    if (i != WEFT_HASH_DIGITS || text[i])
        return false;
    *out = (struct weft_hash){half[0], half[1]};
    return true;
}

/* XXH3's state must be aligned to 64 bytes, which XXH3_createState() ensures.
 * One state serves both widths, which differ only in the last step. */
struct weft_hasher {
    XXH3_state_t *state;
};

struct weft_hasher *weft_hasher_create(void)
{
    struct weft_hasher *h = weft_alloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->state = XXH3_createState();
    if (!h->state) {
        weft_free(h);
        return NULL;
    }
    XXH3_128bits_reset(h->state);
    return h;
}

void weft_hasher_add(struct weft_hasher *h, const void *data, size_t n)
{
    if (n > 0)
        XXH3_128bits_update(h->state, data, n);
}

uint64_t weft_hasher_digest64(const struct weft_hasher *h)
{
    return XXH3_64bits_digest(h->state);
}

struct weft_hash weft_hasher_digest128(const struct weft_hasher *h)
{
    return of_xxh(XXH3_128bits_digest(h->state));
}

void weft_hasher_free(struct weft_hasher *h)
{
    if (!h)
        return;
    XXH3_freeState(h->state);
    weft_free(h);
}

int weft_hash_file(const char *path, struct weft_hash *out,
                   uint64_t *n_bytes_out, struct weft_err *err)
{
    enum { CHUNK = 1 << 18 };
    int rc = 0, fd = -1;
    uint64_t total = 0;
    unsigned char *chunk = weft_alloc(CHUNK, 1);
    struct weft_hasher *h = weft_hasher_create();
    if (!chunk || !h) {
        rc = weft_err_nomem(err, "a checksum", CHUNK);
        goto out;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = weft_err_sys(err, "open", path);
        goto out;
    }
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = weft_err_sys(err, "read", path);
            goto out;
        }
        if (n == 0)
            break;
        weft_hasher_add(h, chunk, (size_t) n);
        total += (uint64_t) n;
    }
    *out = weft_hasher_digest128(h);
    *n_bytes_out = total;
out:
    if (fd >= 0)
        close(fd);
    weft_hasher_free(h);
    weft_free(chunk);
    return rc;
}
