/* SPDX-License-Identifier: Apache-2.0 */
/* Notes in a recording (plan/recording.h) what is inserted: the one back end
 * of the insert contract that runs nothing, and a log beside the other. */
#include "rt/internal.h"
#include "rt/record.h"

static bool is_left_out(const struct weft_rt *rt, int32_t call)
{
    return rt->calls && !(rt->calls >> call & 1);
}

/* What passes from place to place, if both are. */
static bool are_left_out(const struct weft_recording *r,
                         const struct weft_tile *a, const struct weft_tile *b)
{
    return weft_recording_leaves_out(r, weft_tile_place(a))
        && weft_recording_leaves_out(r, weft_tile_place(b));
}

void weft_record_tile(struct weft_tile *tile, bool permanent)
{
    struct weft_recording *r = tile->rt->recording;
    if (!r)
        return;
    tile->number = weft_recording_tile(
        r, &(struct weft_rec_tile){.bytes = tile->bytes,
                                   .place = tile->id.place,
                                   .whole = -1,
                                   .layer = (int16_t) tile->id.layer,
                                   .mem = (uint8_t) tile->mem,
                                   .permanent = permanent});
}

void weft_record_part(const struct weft_tile *part)
{
    struct weft_recording *r = part->rt->recording;
    if (r && part->number < r->n_tiles)
        r->tile[part->number].whole = part->whole->number;
}

void weft_rt_when(struct weft_rt *rt, int when)
{
    if (rt->recording && !rt->open_ends && weft_rec_is_early(when))
        when = when == WEFT_REC_EARLIEST ? WEFT_REC_SAMPLE : WEFT_REC_IN_TURN;
    if (rt->recording)
        weft_recording_when(rt->recording, (enum weft_rec_when) when);
}

void weft_rt_expect_scratch(struct weft_rt *rt, size_t bytes)
{
    if (rt->recording && (int64_t) bytes > rt->recording->scratch_bytes)
        rt->recording->scratch_bytes = (int64_t) bytes;
}

bool weft_rt_keeps_gangs(const struct weft_rt *rt)
{
    return rt->gangs;
}

int32_t weft_rt_joined_steps(const struct weft_rt *rt)
{
    return rt->joined_steps;
}

void weft_rt_repeat(struct weft_rt *rt, int32_t n)
{
    rt->repeats = n;
}

/* How many a task stands for. */
static int32_t n_repeats(const struct weft_rt *rt)
{
    return rt->repeats > 1 && rt->recording->n_marks == 0 ? rt->repeats : 1;
}

/* After a task. */
static void repeat(const struct weft_rt *rt)
{
    int32_t n = n_repeats(rt);
    if (n > 1)
        weft_recording_repeat(rt->recording, n);
}

bool weft_gang_begin(struct weft_rt *rt, const char *op,
                     const struct weft_rec_site *site)
{
    if (!rt->gangs)
        return false;
    bool says = site && rt->all_ranks && !is_left_out(rt, site->where.call);
    weft_recording_gang_begin(rt->recording, says ? site : NULL);
    if (says)
        weft_recording_gang_word(rt->recording, (int64_t) (intptr_t) op);
    return says;
}

void weft_gang_word(struct weft_rt *rt, int64_t word)
{
    weft_recording_gang_word(rt->recording, word);
}

/* Of a part, or of a tile without parts. */
static int32_t number_of(const struct weft_tile *tile, int part)
{
    return (tile->n_parts > 0 ? tile->part[part] : tile)->number;
}

void weft_gang_tile(struct weft_rt *rt, struct weft_tile *tile)
{
    int n = tile ? weft_tile_n_parts(tile) : 0;
    weft_recording_gang_word(rt->recording, n);
    for (int i = 0; i < n; i++)
        weft_recording_gang_tile(rt->recording, number_of(tile, i));
}

bool weft_gang_again(struct weft_rt *rt, const char *op, int32_t layer,
                     const struct weft_work *work)
{
    return rt->gangs
        && weft_recording_gang_again(rt->recording, op, layer, work);
}

void weft_gang_end(struct weft_rt *rt, const char *op, int32_t layer,
                   const struct weft_work *work)
{
    if (rt->gangs)
        weft_recording_gang_end(rt->recording, op, layer, work);
}

void weft_record_release(const struct weft_tile *tile)
{
    if (tile->rt->recording)
        weft_recording_release_tile(tile->rt->recording, tile->number);
}

/* An access to a tile is one to each of its parts. */
static void add_access(struct weft_recording *r, struct weft_tile *tile,
                       enum weft_mode mode)
{
    int n = weft_tile_n_parts(tile);
    for (int i = 0; i < n; i++)
        weft_recording_access(r, number_of(tile, i), (int) mode);
}

void weft_record_task(struct weft_rt *rt, enum weft_rec_kind kind,
                      const char *op, const struct weft_where *where,
                      const struct weft_access *access, int n_access,
                      const struct weft_work *work)
{
    struct weft_recording *r = rt->recording;
    if (!r || is_left_out(rt, where->call))
        return;
    struct weft_where who = *where;
    int place = where->device >= 0 ? weft_rt_place_of(rt, where->device)
              : n_access > 0       ? weft_tile_place(access[0].tile)
                                   : 0;
    if (kind == WEFT_REC_COPY
            ? are_left_out(r, access[0].tile, access[1].tile)
            : weft_recording_leaves_out(r, place))
        return;
    if (kind == WEFT_REC_COPY)
        who.device = -1;
    weft_recording_task(r, kind, op, &who, place);
    for (int i = 0; i < n_access; i++)
        add_access(r, access[i].tile, access[i].mode);
    weft_recording_work(r, work);
    repeat(rt);
}

void weft_record_member(struct weft_rt *rt, const struct weft_where *where,
                        int member, int n, const struct weft_work *work)
{
    if (!rt->recording || is_left_out(rt, where->call))
        return;
    const struct weft_rec_member_of of = {
        member, n, weft_rt_place_of(rt, where->device), work, n_repeats(rt)};
    weft_recording_member(rt->recording, &of);
}

struct weft_span *weft_record_span(const struct weft_rt *rt)
{
    int64_t n = rt->recording ? rt->recording->n_tasks : 0;
    return n > 0 && n <= rt->n_task_spans ? &rt->task_span[n - 1] : NULL;
}

int64_t weft_rt_n_waits(const struct weft_rt *rt)
{
    return rt->recording ? rt->recording->n_waits : 0;
}

void weft_tile_await(struct weft_tile *tile)
{
    struct weft_recording *r = tile->rt->recording;
    for (int i = 0; r && tile->here && i < weft_tile_n_parts(tile); i++)
        weft_recording_wait_tile(r, number_of(tile, i));
}

void weft_record_message(struct weft_rt *rt, const struct weft_where *where,
                         struct weft_tile *src, struct weft_tile *dst)
{
    struct weft_recording *r = rt->recording;
    bool sends = weft_tile_is_here(src), receives = weft_tile_is_here(dst);
    struct weft_where who = *where;
    if (!r || (!sends && !receives) || is_left_out(rt, where->call)
        || are_left_out(r, src, dst))
        return;
    who.device = -1;
    who.position = 0;
    weft_recording_task(r, WEFT_REC_MESSAGE,
                        sends && receives ? "message"
                        : sends           ? "send"
                                          : "receive",
                        &who, weft_tile_place(receives ? dst : src));
    if (sends)
        add_access(r, src, WEFT_READ);
    if (receives)
        add_access(r, dst, WEFT_WRITE);
    weft_recording_work(r, NULL);
    repeat(rt);
}

void weft_record_answer(struct weft_rt *rt, const struct weft_where *where,
                        const struct weft_tile *tile)
{
    struct weft_recording *r = rt->recording;
    if (!r || is_left_out(rt, where->call))
        return;
    weft_recording_task(r, WEFT_REC_ANSWER, "answer", where, -1);
    weft_recording_access(r, tile->number, WEFT_WRITE);
}
