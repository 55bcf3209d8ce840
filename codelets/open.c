/* SPDX-License-Identifier: Apache-2.0 */
/* A task that gives tiles their memory before messages fill them. */
#include "codelets/access_list.h"
#include "rt/codelet.h"

static int open_cpu(const void *args, void *const buf[], int n_buf,
                    struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    return 0; /* the runtime gives the tiles their memory */
}

WEFT_CODELET_2(open, 0xeceff1, open_cpu, open_cpu)

static void insert(struct weft_access_list *access, struct weft_seq *seq,
                   const struct weft_where *where)
{
    access->work.is_all = true;
    weft_access_list_insert(access, seq, where, &weft_cl_open, NULL, 0);
}

void weft_insert_open(struct weft_seq *seq, const struct weft_where *where,
                      struct weft_tile *after, int n,
                      struct weft_tile *const tile[])
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_optional(&access, after, WEFT_READ);
    for (int i = 0; i < n; i++)
        weft_access_list_add(&access, tile[i], WEFT_WRITE);
    insert(&access, seq, where);
}

void weft_insert_open_group(struct weft_seq *seq,
                            const struct weft_where *where,
                            struct weft_tile *after,
                            const struct weft_layer_tiles *also_after,
                            const struct weft_layer_tiles *tiles)
{
    if (!weft_seq_is_here(seq, where))
        return;
    struct weft_access_list access;
    weft_access_list_init(&access);
    weft_access_list_add_optional(&access, after, WEFT_READ);
    if (also_after)
        weft_access_list_add_layer(&access, also_after, WEFT_READ);
    weft_access_list_add_layer(&access, tiles, WEFT_WRITE);
    insert(&access, seq, where);
}
