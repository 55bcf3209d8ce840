/* SPDX-License-Identifier: Apache-2.0 */
/* The heaviest set of pieces, against all sets of small random orders. */
#include <string.h>

#include "draw.h"
#include "harness.h"
#include "plan/recording/heaviest.h"

enum { MOST = 11, LANES = 4, BOTH = 1 << 0 | 1 << 1 };

struct order {
    struct weft_rec_piece piece[MOST];
    int32_t has[MOST][LANES], ends[MOST][LANES];
    int n;
};

static bool is_before(const struct order *o, int a, int b)
{
    bool any = false;
    for (int l = 0; l < LANES; l++)
        any = any || o->ends[a][l] <= o->has[b][l];
    return any && o->piece[a].release < o->piece[b].over;
}

/* What comes before what has ended has ended, too. */
static void close_order(struct order *o, int b)
{
    for (int again = 1; again;) {
        again = 0;
        for (int a = 0; a < b; a++)
            for (int l = 0; l < LANES && is_before(o, a, b); l++)
                if (o->has[a][l] > o->has[b][l]) {
                    o->has[b][l] = o->has[a][l];
                    again = 1;
                }
    }
}

/* Piece i begins at time i and is released at a time after it. */
static void make(struct order *o)
{
    int time[MOST];
    memset(o, 0, sizeof *o);
    o->n = 1 + draw(MOST);
    for (int i = 0; i < o->n; i++)
        time[i] = draw(6) ? i + 1 + draw(3) : 2 * MOST;
    for (int i = 0; i < o->n; i++) {
        struct weft_rec_piece *p = &o->piece[i];
        *p = (struct weft_rec_piece){.bytes = draw(9),
                                     .lane = draw(LANES + 1) - 1,
                                     .has = o->has[i],
                                     .ends = o->ends[i],
                                     .mem = (uint8_t) draw(2)};
        for (int k = 0; k < o->n; k++) {
            p->release += time[k] < time[i] || (time[k] == time[i] && k < i);
            p->over += time[k] <= i;
        }
        for (int l = 0; l < LANES; l++)
            o->has[i][l] = draw(3) ? 0 : draw(2 * MOST);
    }
    for (int i = 0; i < o->n; i++) {
        close_order(o, i);
        for (int l = 0; l < LANES; l++)
            o->ends[i][l] = draw(4) ? o->has[i][l] + 1 + draw(4)
                                    : WEFT_REC_NEVER;
    }
}

static int64_t most_of_all(const struct order *o, unsigned mask)
{
    int64_t most = 0;
    for (unsigned set = 0; set < 1u << o->n; set++) {
        bool together = true;
        int64_t sum = 0;
        for (int b = 0; b < o->n; b++) {
            if (!(set >> b & 1))
                continue;
            together = together && (mask >> o->piece[b].mem & 1);
            for (int a = 0; a < b && together; a++)
                together = !(set >> a & 1) || !is_before(o, a, b);
            sum += o->piece[b].bytes;
        }
        if (together && sum > most)
            most = sum;
    }
    return most;
}

static void test_heaviest(void)
{
    struct weft_err err;
    int n_same = 0, n_above = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        struct order o;
        int64_t bytes, quick, most;
        unsigned mask = round % 3 ? BOTH : 1u;
        seed = round;
        make(&o);
        most = most_of_all(&o, mask);
        REQUIRE_OK(weft_rec_heaviest(o.piece, o.n, LANES, mask, 1 << 20,
                                     &bytes, &err),
                   err);
        n_same += bytes == most;
        /* without a search it is a bound */
        REQUIRE_OK(
            weft_rec_heaviest(o.piece, o.n, LANES, mask, 0, &quick, &err),
            err);
        CHECK(quick >= most);
        n_above += quick > most;
    }
    CHECK_INT(n_same, 3000);
    CHECK(n_above > 0);
}

WEFT_TESTS("plan/recording_heaviest", {"test_heaviest", test_heaviest})
