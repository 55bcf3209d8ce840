/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of tiles between places: a task where both are here, a message
 * between ranks, and nothing where other ranks do it. */
#include <string.h>

#include "rt/internal.h"

static int copy_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) n_buf;
    (void) x;
    memcpy(buf[1], buf[0], *(const size_t *) args);
    return 0;
}
WEFT_CODELET(copy, 0x90a4ae, copy_cpu)

/* The device that copies here: where->device if it is at one of the two
 * places; else one of the destination, or any (-1). */
static int copy_device(const struct weft_rt *rt, int device, int from, int to)
{
    if (device >= 0) {
        int place = weft_rt_place_of(rt, device);
        if (place == from || place == to)
            return device;
    }
    return rt->places_per_rank > 1 ? to : -1;
}

static void copy_here(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_rt *rt = seq->rt;
    int from = weft_tile_place(src), to = weft_tile_place(dst);
    struct weft_access access[] = {{src, WEFT_READ}, {dst, WEFT_WRITE}};
    struct weft_where who = *where;
    who.device = copy_device(rt, where->device, from, to);
    who.position = 0; /* copies have no turn, as messages have none */
    if (from != to) {
        rt->traffic[src->mem].n_copies++;
        rt->traffic[src->mem].copied_bytes += src->bytes;
    }
    weft_insert_here(seq, &weft_cl_copy, &src->bytes, sizeof src->bytes,
                     access, 2, &who);
}

static bool same_rank(const struct weft_tile *a, const struct weft_tile *b)
{
    return weft_rt_place_rank(a->rt, a->id.place)
        == weft_rt_place_rank(b->rt, b->id.place);
}

void weft_insert_copy(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_rt *rt = seq->rt;
    struct weft_err err;
    int n = weft_tile_n_parts(src);
    if (n > 1 && n == weft_tile_n_parts(dst) && !same_rank(src, dst)) {
        for (int i = 0; i < n; i++)
            weft_insert_copy(seq, where, src->part[i], dst->part[i]);
        return;
    }
    rt->n_copies++;
    if (weft_where_check(rt, "copy", where, &err)) {
        weft_seq_record(seq, rt->n_copies, &err);
        return;
    }
    bool alike = same_rank(src, dst) || n == weft_tile_n_parts(dst);
    if (src->bytes != dst->bytes || !alike) {
        char from[160], to[160];
        weft_tile_label(src, from, sizeof from);
        weft_tile_label(dst, to, sizeof to);
        weft_seq_fail(seq, WEFT_EINTERNAL,
                      "a copy of '%s' (%zu bytes) to '%s' (%zu)%s", from,
                      src->bytes, to, dst->bytes,
                      alike ? "" : ", which is cut otherwise");
        return;
    }
    if (same_rank(src, dst) && weft_tile_is_here(src)) {
        copy_here(seq, where, src, dst);
        return;
    }
    weft_record_message(rt, where, src, dst);
    if (!rt->is_dry)
        weft_transfer_insert(seq, where, src, dst);
}

void weft_rt_traffic(const struct weft_rt *rt, enum weft_mem_class c,
                     struct weft_traffic *out)
{
    *out = rt->traffic[c];
}
