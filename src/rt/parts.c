/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a tile: tasks that use some of its bytes wait for those alone. */
#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/record.h"

int weft_tile_n_parts(const struct weft_tile *tile)
{
    return tile->n_parts > 0 ? tile->n_parts : 1;
}

struct weft_tile *weft_tile_part(struct weft_tile *tile, int i)
{
    weft_assert(i >= 0 && i < weft_tile_n_parts(tile));
    return tile->n_parts > 0 ? tile->part[i] : tile;
}

/* Drops the owner's references to the parts. */
static void parts_drop(struct weft_tile **part, int n)
{
    for (int i = 0; i < n; i++) {
        weft_record_release(part[i]);
        weft_tile_unhold(part[i]);
    }
    weft_free(part);
}

void weft_tile_drop_parts(struct weft_tile *tile)
{
    parts_drop(tile->part, tile->n_parts);
    tile->part = NULL;
    tile->n_parts = 0;
}

static bool is_cut_at(const struct weft_tile *tile, int n, const size_t at[])
{
    bool same = n == weft_tile_n_parts(tile);
    for (int i = 1; i < n && same; i++)
        same = tile->part[i]->offset == at[i - 1];
    return same;
}

static int part_create(struct weft_tile *whole, size_t begin, size_t end,
                       struct weft_tile **out, struct weft_err *err)
{
    struct weft_tile *part;
    weft_assert(begin < end && begin % 64 == 0);
    int rc = weft_tile_create_temp(whole->rt, &whole->id, whole->mem,
                                   end - begin, &part, err);
    if (rc)
        return rc;
    part->whole = whole;
    part->offset = begin;
    weft_record_part(part);
    weft_tile_hold(whole);
    *out = part;
    return 0;
}

/* Makes n parts, cut at at[0 .. n - 2]; for n 1 there are none, and *out is
 * NULL. */
static int parts_create(struct weft_tile *tile, int n, const size_t at[],
                        struct weft_tile ***out, struct weft_err *err)
{
    *out = NULL;
    if (n == 1)
        return 0;
    struct weft_tile **part = weft_insert_alloc((size_t) n, sizeof *part,
                                                "parts of a tile");
    int made = 0, rc = 0;
    while (made < n && !rc) {
        rc = part_create(tile, made > 0 ? at[made - 1] : 0,
                         made < n - 1 ? at[made] : tile->bytes, &part[made],
                         err);
        made += !rc;
    }
    if (rc)
        parts_drop(part, made);
    else
        *out = part;
    return rc;
}

static void parts_set(struct weft_tile *tile, struct weft_tile **part, int n)
{
    tile->part = part;
    tile->n_parts = part ? n : 0;
}

int weft_tile_cut(struct weft_tile *tile, int n, const size_t at[],
                  struct weft_err *err)
{
    struct weft_tile **part;
    weft_assert(!tile->whole && n >= 1);
    if (is_cut_at(tile, n, at))
        return 0;
    int rc = parts_create(tile, n, at, &part, err);
    if (rc)
        return rc;
    weft_tile_drop_parts(tile);
    parts_set(tile, part, n);
    return 0;
}

int weft_tile_cut_like(struct weft_tile *tile, const struct weft_tile *like,
                       struct weft_err *err)
{
    int n = weft_tile_n_parts(like);
    size_t *at = weft_insert_alloc((size_t) n, sizeof *at, "parts of a tile");
    for (int i = 1; i < n; i++)
        at[i - 1] = like->part[i]->offset;
    int rc = weft_tile_cut(tile, n, at, err);
    weft_free(at);
    return rc;
}

int weft_no_work(const void *args, void *const buf[], int n_buf,
                 struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    return 0;
}
WEFT_CODELET_2(join, 0xeceff1, weft_no_work, weft_no_work)

/* Lists accesses of the parts, or of the tile where there are none. */
static int list_parts(struct weft_tile *tile, struct weft_tile *const part[],
                      int n, enum weft_mode mode, struct weft_access *out)
{
    for (int i = 0; i < n && part; i++)
        out[i] = (struct weft_access){part[i], mode};
    if (!part)
        out[0] = (struct weft_access){tile, mode};
    return part ? n : 1;
}

void weft_insert_cut(struct weft_seq *seq, const struct weft_where *where,
                     struct weft_tile *tile, int n, const size_t at[])
{
    struct weft_err err;
    struct weft_tile **old = tile->part, **new;
    int n_old = tile->n_parts, n_access;
    if (is_cut_at(tile, n, at))
        return;
    size_t most = (size_t) (weft_tile_n_parts(tile) + n);
    struct weft_access *access = weft_insert_alloc(most, sizeof *access,
                                                   "parts of a tile");
    if (parts_create(tile, n, at, &new, &err))
        weft_world_abort(&err); /* copies would wait for the parts for ever */
    /* so that the tile itself can be listed: it then uses its own handle */
    parts_set(tile, NULL, 0);
    n_access = list_parts(tile, old, n_old, WEFT_READ_WRITE, access);
    n_access += list_parts(tile, new, n, WEFT_WRITE, access + n_access);
    weft_insert_work(seq, &weft_cl_join, NULL, 0, access, n_access, where,
                     &(struct weft_work){.is_all = true});
    parts_set(tile, new, n);
    parts_drop(old, n_old);
    weft_free(access);
}
