/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of tiles between places: a task where both are here, a message
 * between ranks, and nothing where other ranks do it. */
#include <string.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/transfer.h"
#include "rt/record.h"

/* Memory nodes of both tiles. */
struct copy_args {
    size_t bytes;
    unsigned from, to;
};

static int copy_cpu(const void *args_, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    const struct copy_args *args = args_;
    (void) n_buf;
    (void) x;
    memcpy(buf[1], buf[0], args->bytes);
    return 0;
}

static int copy_cuda(const void *args_, void *const buf[], int n_buf,
                     struct weft_exec *x)
{
    const struct copy_args *args = args_;
    if (args->from == STARPU_MAIN_RAM && args->to == STARPU_MAIN_RAM)
        return copy_cpu(args_, buf, n_buf, x);
    weft_card_copy(args->to, buf[1], args->from, buf[0], args->bytes,
                   weft_exec_stream(x));
    return 0;
}
WEFT_CODELET_2(copy, 0x90a4ae, copy_cpu, copy_cuda)

/* ---- Between places here ------------------------------------------------ */

/* The device that copies here, or beside which its copier does: a GPU, and that
 * of the destination, which has to find memory there; else where->device if it
 * is at one of the two places; else one of the destination, or any (-1). */
static int copy_device(const struct weft_rt *rt, int device,
                       const struct weft_tile *src,
                       const struct weft_tile *dst)
{
    int from = weft_tile_place(src), to = weft_tile_place(dst);
    bool on_card = weft_tile_on_card(dst);
    if (on_card || weft_tile_on_card(src))
        return weft_place_device(rt, on_card ? to : from);
    if (device >= 0) {
        int place = weft_rt_place_of(rt, device);
        if (place == from || place == to)
            return device;
    }
    return weft_place_device(rt, to);
}

/* To or from a card, beside what it computes: part by part. */
static void copy_beside(struct weft_seq *seq, const struct copy_args *args,
                        struct weft_tile *src, struct weft_tile *dst,
                        const struct weft_where *where)
{
    int n = weft_tile_n_parts(src);
    if (n != weft_tile_n_parts(dst)) {
        weft_seq_fail(seq, WEFT_EINTERNAL,
                      "a copy to or from a GPU of tiles in %d and %d parts",
                      n, weft_tile_n_parts(dst));
        return;
    }
    for (int i = 0; i < n; i++) {
        struct weft_access access[] = {{weft_tile_part(src, i), WEFT_READ},
                                       {weft_tile_part(dst, i), WEFT_WRITE}};
        struct copy_args part = *args;
        part.bytes = access[0].tile->bytes;
        weft_insert_beside(seq, &weft_cl_copy, &part, sizeof part, access,
                           where);
    }
}

/* Whether a copy goes to or from a card, whose place may have both tiles. */
static bool between_memories(const struct weft_tile *src,
                             const struct weft_tile *dst)
{
    bool from = weft_tile_on_card(src), to = weft_tile_on_card(dst);
    return from && to ? src->id.place != dst->id.place : from || to;
}

void weft_copy_here(struct weft_seq *seq, const struct weft_where *where,
                    struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_rt *rt = seq->rt;
    struct weft_access access[] = {{src, WEFT_READ}, {dst, WEFT_WRITE}};
    struct copy_args args = {src->bytes, weft_tile_node(src),
                             weft_tile_node(dst)};
    struct weft_where who = *where;
    who.device = copy_device(rt, where->device, src, dst);
    who.position = 0; /* copies have no turn, as messages have none */
    if (src->id.place != dst->id.place) {
        rt->traffic[src->mem].n_copies++;
        rt->traffic[src->mem].copied_bytes += src->bytes;
    }
    if (between_memories(src, dst))
        copy_beside(seq, &args, src, dst, &who);
    else
        weft_insert_here(seq, &weft_cl_copy, &args, sizeof args, access, 2,
                         &who, NULL);
}

static bool same_rank(const struct weft_tile *a, const struct weft_tile *b)
{
    return weft_rt_place_rank(a->rt, a->id.place)
        == weft_rt_place_rank(b->rt, b->id.place);
}

/* StarPU-MPI sends and receives in host memory: a tile there for one of a card
 * here, or the tile itself. */
static struct weft_tile *staged(struct weft_tile *tile)
{
    struct weft_tile *host = tile;
    struct weft_err err;
    if (weft_tile_is_here(tile) && weft_tile_on_card(tile)
        && weft_tile_create_temp(tile->rt, &tile->id, WEFT_MEM_HOST,
                                 tile->bytes, &host, &err))
        weft_world_abort(&err); /* the other side would wait for ever */
    return host;
}

WEFT_CODELET_2(stage, 0xcfd8dc, weft_no_work, weft_no_work)

/* A message that is received takes memory as soon as nothing comes before: that
 * of the host when it is the destination's turn, so that what is sent early
 * waits at the sender. */
static void stage_for(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *dst, struct weft_tile *host)
{
    struct weft_access access[] = {{dst, WEFT_WRITE}, {host, WEFT_WRITE}};
    struct weft_where who = *where;
    who.device = weft_place_device(seq->rt, weft_tile_place(dst));
    who.position = 0;
    weft_insert_beside(seq, &weft_cl_stage, NULL, 0, access, &who);
}

static void message(struct weft_seq *seq, const struct weft_where *where,
                    struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_rt *rt = seq->rt;
    bool direct = rt->direct && weft_tile_on_card(src)
               && weft_tile_on_card(dst);
    struct weft_tile *from = direct ? src : staged(src),
                     *to = direct ? dst : staged(dst);
    if (from != src)
        weft_copy_here(seq, where, src, from);
    if (to != dst)
        stage_for(seq, where, dst, to);
    weft_record_message(rt, where, from, to);
    if (!rt->is_dry && weft_tile_is_here(src)) {
        rt->traffic[src->mem].n_messages++;
        rt->traffic[src->mem].sent_bytes += src->bytes;
    }
    if (!rt->is_dry)
        weft_transfer_insert(seq, where, from, to);
    if (to != dst)
        weft_copy_here(seq, where, to, dst);
    weft_tile_release(from != src ? from : NULL);
    weft_tile_release(to != dst ? to : NULL);
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
    dst->rows = src->rows;
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
        weft_copy_here(seq, where, src, dst);
        return;
    }
    message(seq, where, src, dst);
}

void weft_rt_traffic(const struct weft_rt *rt, enum weft_mem_class c,
                     struct weft_traffic *out)
{
    *out = rt->traffic[c];
}
