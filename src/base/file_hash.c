/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/threads.h"

enum { READ_BYTES = 1 << 18 };

struct job {
    int fd;
    const char *path;
    struct weft_file_hash *out;
    atomic_bool failed;
    pthread_mutex_t lock;
    int rc; /* the first error, under lock, with its text */
    struct weft_err err;
};

static void fail(struct job *j, int rc, const struct weft_err *err)
{
    atomic_store(&j->failed, true);
    pthread_mutex_lock(&j->lock);
    if (!j->rc) {
        j->rc = rc;
        j->err = *err;
    }
    pthread_mutex_unlock(&j->lock);
}

static int read_chunk(struct job *j, size_t i, struct weft_hasher *h,
                      void *room, struct weft_err *err)
{
    uint64_t at = (uint64_t) i * WEFT_FILE_CHUNK_BYTES;
    uint64_t end = at + WEFT_FILE_CHUNK_BYTES;
    if (end > j->out->n_bytes)
        end = j->out->n_bytes;
    while (at < end) {
        size_t want = end - at < READ_BYTES ? (size_t) (end - at)
                                            : READ_BYTES;
        ssize_t n = pread(j->fd, room, want, (off_t) at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return weft_err_sys(err, "read", j->path);
        if (n == 0)
            return weft_err_set(err, WEFT_EIO,
                                "'%s' ends at byte %" PRIu64
                                ", but had %" PRIu64 " when it was opened",
                                j->path, at, j->out->n_bytes);
        weft_hasher_add(h, room, (size_t) n);
        at += (uint64_t) n;
    }
    return 0;
}

static void hash_chunk(void *ctx, int64_t i)
{
    struct job *j = ctx;
    struct weft_err err = {0};
    if (atomic_load(&j->failed))
        return;
    void *room = weft_alloc(READ_BYTES, 1);
    struct weft_hasher *h = weft_hasher_create();
    int rc = room && h ? read_chunk(j, (size_t) i, h, room, &err)
                       : weft_err_nomem(&err, "a checksum", READ_BYTES);
    if (rc)
        fail(j, rc, &err);
    else
        j->out->chunk[i] = weft_hasher_digest128(h);
    weft_hasher_free(h);
    weft_free(room);
}

int weft_file_hash_read(const char *path, int n_threads,
                        struct weft_file_hash *out, struct weft_err *err)
{
    struct weft_file_hash hash = {0};
    struct job j = {.path = path, .out = &hash};
    struct stat st;
    int rc = 0;
    j.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (j.fd < 0)
        return weft_err_sys(err, "open", path);
    if (fstat(j.fd, &st) != 0)
        rc = weft_err_sys(err, "read", path);
    else if (!S_ISREG(st.st_mode))
        rc = weft_err_set(err, WEFT_EINVAL, "'%s' is not an ordinary file",
                          path);
    if (!rc) {
        hash.n_bytes = (uint64_t) st.st_size;
        hash.n_chunks = weft_file_chunks(hash.n_bytes);
        hash.chunk = weft_alloc(hash.n_chunks + 1, sizeof *hash.chunk);
        if (!hash.chunk)
            rc = weft_err_nomem(err, path, hash.n_chunks * 16);
    }
    if (!rc) {
        pthread_mutex_init(&j.lock, NULL);
        weft_threads_run(n_threads, (int64_t) hash.n_chunks, hash_chunk, &j);
        pthread_mutex_destroy(&j.lock);
        rc = j.rc;
        if (rc && err)
            *err = j.err;
    }
    close(j.fd);
    if (rc)
        weft_file_hash_release(&hash);
    else
        *out = hash;
    return rc;
}

void weft_file_hash_release(struct weft_file_hash *hash)
{
    weft_free(hash->chunk);
    *hash = (struct weft_file_hash){0};
}

struct weft_hash weft_file_hash_whole(const struct weft_file_hash *hash)
{
    char text[64];
    struct weft_hasher *h = weft_hasher_create();
    if (!h)
        return (struct weft_hash){0};
    for (size_t i = 0; i < hash->n_chunks; i++) {
        weft_hash_format(hash->chunk[i], text);
        weft_hasher_add(h, text, WEFT_HASH_DIGITS);
    }
    snprintf(text, sizeof text, " %" PRIu64, hash->n_bytes);
    weft_hasher_add(h, text, strlen(text));
    struct weft_hash whole = weft_hasher_digest128(h);
    weft_hasher_free(h);
    return whole;
}
