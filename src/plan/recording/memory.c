/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the tiles of a recording can take.
 *
 * Tiles a and b are never there together if a has ended before b begins
 * (recording/reach.h). What can be there together is a set of tiles no two of
 * which are ordered so, and the heaviest such set is sought
 * (recording/heaviest.h).
 *
 * A message's end is told to the tasks that wait for it before its tile's
 * memory is given back. One thread of a rank does both, message by message, so
 * that one tile at most is there for longer than the order says: one that was
 * released before the last task was recorded, or none comes after it.
 *
 * A GPU's memory is cut into blocks (plan/card_memory.h). Its pages of slots are
 * counted by kind, each with the most that its slots can fill at one time, and
 * those of all kinds are added to the most that the other blocks take.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/card_memory.h"
#include "plan/recording/apart.h"
#include "plan/recording/heaviest.h"

/* ---- Types --------------------------------------------------------------- */

/* Ended pieces that the search for the heaviest set may look at: all of them
 * would take minutes with some recordings. */
enum { SEARCH = 1 << 16 };

/* Tasks of a large recording. */
enum { LARGE = 200000 };
/* Bytes of what is known of tasks, of one place at a time. */
enum { MOST_BYTES = 1 << 29 };
enum { READS = 0, WAITS = 0 };

/* When something is done: after so many tasks were recorded. What is done when
 * a sample ends may be done as early as after `tasks`, but in the order of
 * `turn` among the like. */
struct moment {
    int64_t tasks, turn;
};

/* A tile with memory at the place that is looked at. */
struct piece {
    struct moment begin, released; /* tasks INT64_MAX: never */
    int64_t bytes;
    uint8_t mem;
    uint8_t pages;  /* at a GPU's place: whose it takes, PAGES_OWN ... */
    int64_t far;    /* bytes of it, or of the largest in it, that messages
                       use; 0: none does */
    int32_t lane;   /* of the task that begins it; -1: none */
    int32_t number; /* in the order of release */
    size_t clock;   /* begin of its numbers, in struct play */
};

/* The pages that a piece takes: of its own; of a slot's kind, PAGES_KIND and
 * more; or some of any of the kinds of slots that it stands for, whose bytes
 * are in other pieces, too. */
enum { PAGES_NONE, PAGES_OWN, PAGES_ANY, PAGES_KIND };

struct play {
    const struct weft_recording *r;
    struct weft_rec_reach reach;
    struct weft_rec_apart apart;
    int64_t *first, *last; /* (n_tiles) accesses; -1: none */
    int32_t *part, *next;  /* (n_tiles) lists of parts; -1: end */
    int32_t *end_of;       /* (n_places) end of its tiles in the next list */
    int32_t *at;           /* (n_tiles) wholes by place */
    struct piece *piece;   /* (n_pieces) by begin */
    struct release *release; /* (n_pieces) by release */
    int32_t n_pieces;
    /* (n_pieces, 2, n_lanes): what has ended when it begins, and the first
     * tasks after its end */
    int32_t *clock;
    struct weft_rec_piece *seen; /* (n_pieces) as those who seek see them */
    struct found *found;         /* (n_found) of the places before */
    int32_t n_found;
    bool is_gpu;   /* the place that is looked at ... */
    int64_t kinds; /* ... which has slots of these kinds: bits 1 << kind */
};

/* ---- Tiles ------------------------------------------------------------- */

static void list_accesses(struct play *p)
{
    const struct weft_recording *r = p->r;
    memset(p->first, 0xff, (size_t) r->n_tiles * sizeof *p->first);
    memset(p->last, 0xff, (size_t) r->n_tiles * sizeof *p->last);
    for (int64_t a = 0; a < r->n_accesses; a++) {
        uint32_t tile = r->access[a].tile;
        if (p->first[tile] < 0)
            p->first[tile] = a;
        p->last[tile] = a;
    }
}

/* Sorts tiles by place, and lists parts at their wholes. */
static void list_tiles(struct play *p, int32_t n_places)
{
    const struct weft_recording *r = p->r;
    memset(p->part, 0xff, (size_t) r->n_tiles * sizeof *p->part);
    for (int64_t i = 0; i < r->n_tiles; i++) {
        int32_t whole = r->tile[i].whole;
        if (whole >= 0) {
            p->next[i] = p->part[whole];
            p->part[whole] = (int32_t) i;
        } else if (r->tile[i].place + 1 < n_places) {
            p->end_of[r->tile[i].place + 1]++;
        }
    }
    for (int32_t k = 1; k < n_places; k++)
        p->end_of[k] += p->end_of[k - 1];
    for (int64_t i = 0; i < r->n_tiles; i++)
        if (r->tile[i].whole < 0)
            p->at[p->end_of[r->tile[i].place]++] = (int32_t) i;
}

static bool is_before(struct moment a, struct moment b)
{
    return a.tasks != b.tasks ? a.tasks < b.tasks : a.turn < b.turn;
}

/* When something could be done that was done after so many tasks. */
static struct moment moment_of(const struct play *p, int64_t tasks,
                               bool early)
{
    if (!early)
        return (struct moment){tasks, tasks};
    int32_t w = weft_rec_reach_wait(&p->reach, tasks + 1, true);
    return (struct moment){w > 0 ? p->r->wait[w - 1].task - 1 : -1, tasks};
}

/* The first use of a tile or of a part of it; tasks INT64_MAX: there is
 * none. */
static struct moment first_use(const struct play *p, int32_t tile)
{
    struct moment first = {INT64_MAX, 0};
    for (int32_t k = tile; k >= 0; k = k == tile ? p->part[k] : p->next[k]) {
        if (p->first[k] < 0)
            continue;
        int64_t t = p->reach.order.task[p->first[k]];
        struct moment m = moment_of(p, t,
                                    weft_rec_is_early(p->r->task[t].when));
        first = is_before(m, first) ? m : first;
    }
    return first;
}

/* What was released when as many tasks were recorded as at the creation of a
 * permanent tile may have been released after that. */
static struct moment begin_of(const struct play *p, int32_t tile)
{
    const struct weft_rec_tile *t = &p->r->tile[tile];
    return t->permanent ? moment_of(p, t->created - 1, t->early)
                        : first_use(p, tile);
}

static struct moment release_of(const struct play *p, int32_t tile)
{
    const struct weft_rec_tile *t = &p->r->tile[tile];
    bool used = first_use(p, tile).tasks
             != INT64_MAX; /* so it has an order */
    return t->released < 0 ? (struct moment){INT64_MAX, 0}
                           : moment_of(p, t->released, t->ends_early && used);
}

/* ---- Begin and end of a piece ------------------------------------------ */

static int32_t *has_of(const struct play *p, const struct piece *b)
{
    return p->clock + b->clock;
}

static int32_t *ends_of(const struct play *p, const struct piece *b)
{
    return p->clock + b->clock + p->reach.n_lanes;
}

/* Lowers what has ended when the piece begins to what has ended before a task
 * that may be the first to use it. A message gets memory as soon as the
 * receiver expects it, whatever the sender does. */
static void may_begin(struct play *p, struct piece *b, int64_t task)
{
    const int32_t *has = weft_rec_reach_has(&p->reach, task);
    int32_t *out = has_of(p, b);
    bool far = p->r->task[task].kind == WEFT_REC_MESSAGE;
    for (int32_t l = 0; l < p->reach.n_lanes; l++) {
        int32_t h = far ? 0 : has[l];
        if (far && l == WAITS)
            h = weft_rec_reach_wait(&p->reach, task + 1,
                                    weft_rec_is_early(p->r->task[task].when));
        out[l] = h < out[l] ? h : out[l];
    }
    b->lane = weft_rec_reach_lane(&p->reach, task);
}

static void may_end(struct play *p, struct piece *b, int64_t task)
{
    int32_t *out = ends_of(p, b);
    if (p->r->task[task].kind == WEFT_REC_MESSAGE)
        b->far = b->bytes;
    if (p->r->task[task].n_members) {
        weft_rec_apart_ends(&p->apart, task, WEFT_REC_KEPT, out);
        return;
    }
    const int32_t *leads = weft_rec_reach_leads(&p->reach, task);
    for (int32_t l = 0; l < p->reach.n_lanes; l++)
        out[l] = leads[l] > out[l] ? leads[l] : out[l];
}

/* Follows the uses of a tile or a part: the first may begin the piece, the
 * last that writes and those after it may end it. */
static void follow(struct play *p, struct piece *b, int64_t tile)
{
    const struct weft_rec_order *order = &p->reach.order;
    int64_t a = p->last[tile];
    if (a < 0)
        return;
    if (!p->r->tile[tile].permanent)
        may_begin(p, b, order->task[p->first[tile]]);
    int64_t writer = p->r->access[a].mode == READS ? order->writer[a] : a;
    for (; a >= 0 && a >= writer; a = order->before[a])
        may_end(p, b, order->task[a]);
}

static void fill_clock(struct play *p, struct piece *b, int32_t tile)
{
    const struct weft_rec_tile *t = &p->r->tile[tile];
    int32_t *has = has_of(p, b), *ends = ends_of(p, b);
    for (int32_t l = 0; l < p->reach.n_lanes; l++) {
        has[l] = t->permanent ? 0 : WEFT_REC_NEVER;
        ends[l] = 0;
    }
    if (t->permanent)
        has[WAITS] = weft_rec_reach_wait(&p->reach, t->created, t->early);
    follow(p, b, tile);
    for (int32_t k = p->part[tile]; k >= 0; k = p->next[k])
        follow(p, b, k);
}

/* ---- Pieces of a place ------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (is_before(x->begin, y->begin) || is_before(y->begin, x->begin))
        return is_before(x->begin, y->begin) ? -1 : 1;
    return x->clock < y->clock ? -1 : x->clock > y->clock;
}

/* The pages that a tile's memory takes. */
static uint8_t pages_of(struct play *p, const struct weft_rec_tile *t)
{
    if (!weft_rec_tile_on_card(p->r, t))
        return PAGES_NONE;
    int kind = weft_card_kind(t->bytes, (enum weft_mem_class) t->mem);
    if (kind == WEFT_CARD_NO_KIND)
        return PAGES_OWN;
    p->kinds |= (int64_t) 1 << kind;
    return (uint8_t) (PAGES_KIND + kind);
}

/* Adds a tile, unless it never has memory. */
static void add_piece(struct play *p, int32_t tile)
{
    const struct weft_rec_tile *t = &p->r->tile[tile];
    struct piece *b = &p->piece[p->n_pieces];
    *b = (struct piece){.begin = begin_of(p, tile),
                        .released = release_of(p, tile),
                        .bytes = weft_rec_tile_block_bytes(p->r, t),
                        .mem = t->mem,
                        .pages = pages_of(p, t),
                        .lane = -1,
                        .clock = (size_t) p->n_pieces * 2
                               * (size_t) p->reach.n_lanes};
    if (b->begin.tasks == INT64_MAX)
        return;
    fill_clock(p, b, tile);
    p->n_pieces++;
}

static uint8_t pages_of_temps(const struct play *p, int mem)
{
    return mem == WEFT_REC_SLOTS ? PAGES_ANY
         : p->is_gpu && !weft_mem_class_on_host((enum weft_mem_class) mem)
             ? PAGES_OWN
             : PAGES_NONE;
}

/* Adds what a gang's member takes of a class, or of slots, while it runs and, if
 * others use it, longer. */
static void add_temps(struct play *p, int64_t task, int64_t end,
                      int64_t bytes, int64_t message, int begin, int ends,
                      int mem)
{
    struct piece *b = &p->piece[p->n_pieces];
    bool early = weft_rec_is_early(p->r->task[task].when);
    if (bytes == 0)
        return;
    *b = (struct piece){.begin = moment_of(p, task, early),
                        .released = moment_of(p, end, early),
                        .bytes = bytes,
                        .mem = (uint8_t) mem,
                        .pages = pages_of_temps(p, mem),
                        .far = message,
                        .lane = -1,
                        .clock = (size_t) p->n_pieces++ * 2
                               * (size_t) p->reach.n_lanes};
    if (begin == WEFT_REC_OWN)
        b->lane = weft_rec_reach_lane(&p->reach, task);
    weft_rec_apart_has(&p->apart, task, begin, has_of(p, b));
    weft_rec_apart_ends(&p->apart, task, ends, ends_of(p, b));
}

static void add_gang(struct play *p, int64_t task)
{
    const struct weft_rec_gang *gang = weft_recording_gang_of(p->r, task);
    int64_t first, end;
    if (!gang)
        return;
    const struct weft_rec_temps *x = &p->r->temps[gang->temps];
    weft_recording_members(p->r, task, &first, &end);
    p->kinds |= x->kinds;
    for (int b = 0; b < WEFT_REC_N_BEGINS; b++)
        for (int e = 0; e < WEFT_REC_N_ENDS; e++)
            for (int c = 0; c <= WEFT_REC_SLOTS; c++)
                add_temps(p, task, end, x->bytes[b][e][c],
                          c < WEFT_REC_SLOTS
                              ? weft_min64(x->message[c], x->bytes[b][e][c])
                              : 0,
                          b, e, c);
}

/* The most pieces that gangs at the place make. */
static size_t count_temps(const struct play *p, const int32_t *here,
                          int64_t n)
{
    const size_t kinds = sizeof p->r->temps->bytes / sizeof(int64_t);
    size_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct weft_rec_gang *gang = weft_recording_gang_of(p->r,
                                                                  here[i]);
        for (size_t k = 0; gang && k < kinds; k++)
            most += (&p->r->temps[gang->temps].bytes[0][0][0])[k] > 0;
    }
    return most;
}

struct release {
    struct moment at;
    int32_t piece;
};

static int by_release(const void *a, const void *b)
{
    const struct release *x = a, *y = b;
    if (is_before(x->at, y->at) || is_before(y->at, x->at))
        return is_before(x->at, y->at) ? -1 : 1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static void show_pieces(struct play *p)
{
    int32_t over = 0;
    for (int32_t i = 0; i < p->n_pieces; i++)
        p->piece[p->release[i].piece].number = i;
    for (int32_t i = 0; i < p->n_pieces; i++) {
        const struct piece *b = &p->piece[i];
        while (over < p->n_pieces
               && !is_before(b->begin, p->release[over].at))
            over++;
        p->seen[i] = (struct weft_rec_piece){.bytes = b->bytes,
                                             .release = b->number,
                                             .over = over,
                                             .lane = b->lane,
                                             .has = has_of(p, b),
                                             .ends = ends_of(p, b),
                                             .mem = b->mem};
    }
}

static int pieces_create(struct play *p, int32_t place, struct weft_err *err)
{
    int32_t from = place > 0 ? p->end_of[place - 1] : 0;
    int64_t n_here;
    const int32_t *here = weft_rec_reach_here(&p->reach, &n_here);
    size_t tiles = (size_t) (p->end_of[place] - from);
    size_t n = tiles + count_temps(p, here, n_here);
    p->n_pieces = 0;
    p->kinds = 0;
    p->piece = weft_alloc(n, sizeof *p->piece);
    p->release = weft_alloc(n, sizeof *p->release);
    p->clock = weft_alloc(n * 2 * (size_t) p->reach.n_lanes,
                          sizeof *p->clock);
    p->seen = weft_alloc(n, sizeof *p->seen);
    if (!p->piece || !p->release || !p->clock || !p->seen)
        return weft_err_nomem(err, "a memory plan", n * sizeof *p->piece);
    for (size_t i = 0; i < tiles; i++)
        add_piece(p, p->at[(size_t) from + i]);
    for (int64_t i = 0; i < n_here; i++)
        add_gang(p, here[i]);
    qsort(p->piece, (size_t) p->n_pieces, sizeof *p->piece, by_begin);
    for (int32_t i = 0; i < p->n_pieces; i++)
        p->release[i] = (struct release){p->piece[i].released, i};
    qsort(p->release, (size_t) p->n_pieces, sizeof *p->release, by_release);
    show_pieces(p);
    return 0;
}

static void pieces_free(struct play *p)
{
    weft_free(p->piece);
    weft_free(p->release);
    weft_free(p->clock);
    weft_free(p->seen);
    p->seen = NULL;
    p->piece = NULL;
    p->release = NULL;
    p->clock = NULL;
}

/* ---- Classes ----------------------------------------------------------- */

/* The bound for the classes of the mask. */
static int most_of(struct play *p, unsigned mask, int64_t *out,
                   struct weft_err *err)
{
    int64_t late = 0;
    for (int32_t i = 0; i < p->n_pieces; i++) {
        const struct piece *b = &p->piece[i];
        if ((mask >> p->seen[i].mem & 1) && b->released.tasks < p->r->n_tasks)
            late = weft_max64(late, b->far);
    }
    int rc = weft_rec_heaviest(p->seen, p->n_pieces, p->reach.n_lanes, mask,
                               SEARCH, out, err);
    *out += late;
    return rc;
}

/* All that the bounds of a place depend on, as two numbers: that others have
 * them by chance is as likely as 1 to 2^128. */
struct digest {
    uint64_t a, b;
};

static void mix(struct digest *d, int64_t word)
{
    d->a = (d->a ^ (uint64_t) word) * 0x9e3779b97f4a7c15u;
    d->a ^= d->a >> 32;
    d->b = (d->b ^ (uint64_t) word) * 0xc2b2ae3d27d4eb4fu;
    d->b ^= d->b >> 29;
}

/* Of two numbers that may be negative. */
static int64_t pair(int32_t high, int32_t low)
{
    return (int64_t) ((uint64_t) high << 32 | (uint32_t) low);
}

static struct digest digest_of(const struct play *p)
{
    struct digest d = {(uint64_t) p->n_pieces, (uint64_t) p->reach.n_lanes};
    mix(&d, p->is_gpu);
    for (int32_t i = 0; i < p->n_pieces; i++) {
        const struct weft_rec_piece *b = &p->seen[i];
        const struct piece *own = &p->piece[i];
        mix(&d, b->bytes);
        mix(&d, pair(b->release, b->over));
        mix(&d, own->far);
        mix(&d, pair(b->lane, own->pages << 16 | b->mem << 8
                                  | (own->released.tasks != INT64_MAX)));
        for (int32_t l = 0; l < p->reach.n_lanes; l++)
            mix(&d, pair(b->has[l], b->ends[l]));
    }
    return d;
}

/* What was found for a place, which holds for others like it. */
struct found {
    struct digest digest;
    int64_t bytes[WEFT_MEM_ALL + 1];
};

static const struct found *find_alike(const struct play *p, struct digest d)
{
    for (int32_t i = p->n_found; i-- > 0;)
        if (p->found[i].digest.a == d.a && p->found[i].digest.b == d.b)
            return &p->found[i];
    return NULL;
}

/* Of the classes in the mask, as much as all of them together at the most. */
static int play_all(struct play *p, unsigned mask, int64_t sum, int64_t *out,
                    struct weft_err *err)
{
    int rc = most_of(p, mask, out, err);
    if (!rc && *out > sum)
        *out = sum;
    return rc;
}

/* What a GPU's memory holds: pages of blocks, and pages of slots. */
static int play_pages(struct play *p, int64_t *out, struct weft_err *err)
{
    int64_t bytes;
    for (int32_t i = 0; i < p->n_pieces; i++)
        p->seen[i].mem = p->piece[i].pages;
    int rc = most_of(p, 1u << PAGES_OWN, out, err);
    for (int k = 0; k < WEFT_CARD_KINDS && !rc; k++) {
        if (!(p->kinds >> k & 1))
            continue;
        rc = most_of(p, 1u << (PAGES_KIND + k) | 1u << PAGES_ANY, &bytes,
                     err);
        *out += rc ? 0 : weft_round_up(bytes, WEFT_CARD_PAGE_BYTES);
    }
    return rc;
}

static int play_pieces(struct play *p, int64_t out[WEFT_MEM_ALL + 1],
                       struct weft_err *err)
{
    int64_t sum = 0;
    unsigned all = 0;
    int rc = 0;
    for (int c = 0; c < WEFT_N_MEM_CLASSES && !rc; c++) {
        rc = most_of(p, 1u << c, &out[c], err);
        if (weft_mem_class_at_place((enum weft_mem_class) c)) {
            sum += out[c];
            all |= 1u << c;
        }
    }
    return rc        ? rc
         : p->is_gpu ? play_pages(p, &out[WEFT_MEM_ALL], err)
                     : play_all(p, all, sum, &out[WEFT_MEM_ALL], err);
}

static int play_place(struct play *p, int32_t place,
                      int64_t out[WEFT_MEM_ALL + 1], struct weft_err *err)
{
    int rc = weft_rec_reach_look(&p->reach, place, err);
    if (!rc)
        rc = weft_rec_apart_look(&p->apart, &p->reach, err);
    if (!rc)
        rc = pieces_create(p, place, err);
    if (!rc) {
        struct digest d = digest_of(p);
        const struct found *alike = find_alike(p, d);
        if (alike)
            memcpy(out, alike->bytes, sizeof alike->bytes);
        else
            rc = play_pieces(p, out, err);
        struct found *f = &p->found[p->n_found++];
        f->digest = d;
        memcpy(f->bytes, out, sizeof f->bytes);
    }
    pieces_free(p);
    weft_rec_apart_release(&p->apart);
    return rc;
}

/* ---- All --------------------------------------------------------------- */

static int play_init(struct play *p, int32_t n_places,
                     int32_t places_per_rank, bool large, int64_t most_bytes,
                     struct weft_err *err)
{
    size_t n = (size_t) p->r->n_tiles;
    int rc = weft_rec_reach_create(p->r, places_per_rank, large, most_bytes,
                                   &p->reach, err);
    if (rc)
        return rc;
    p->first = weft_alloc(n, sizeof *p->first);
    p->last = weft_alloc(n, sizeof *p->last);
    p->part = weft_alloc(n, sizeof *p->part);
    p->next = weft_alloc(n, sizeof *p->next);
    p->at = weft_alloc(n, sizeof *p->at);
    p->end_of = weft_alloc((size_t) n_places, sizeof *p->end_of);
    p->found = weft_alloc((size_t) n_places, sizeof *p->found);
    if (!p->first || !p->last || !p->part || !p->next || !p->at || !p->end_of
        || !p->found)
        return weft_err_nomem(err, "a memory plan", n * sizeof *p->first);
    list_accesses(p);
    list_tiles(p, n_places);
    return 0;
}

static void play_release(struct play *p)
{
    if (p->reach.r)
        weft_rec_reach_release(&p->reach);
    weft_free(p->first);
    weft_free(p->last);
    weft_free(p->part);
    weft_free(p->next);
    weft_free(p->at);
    weft_free(p->end_of);
    weft_free(p->found);
}

int weft_recording_memory_of(const struct weft_recording *r, int32_t n_places,
                             int32_t places_per_rank, bool large,
                             int64_t most_bytes,
                             int64_t (*out)[WEFT_MEM_ALL + 1],
                             struct weft_err *err)
{
    struct play p = {.r = r};
    int rc = play_init(&p, n_places, places_per_rank, large, most_bytes, err);
    for (int32_t k = 0; k < n_places && !rc; k++) {
        p.is_gpu = k % places_per_rank < r->n_gpus;
        rc = play_place(&p, k, out[k], err);
    }
    play_release(&p);
    return rc;
}

int weft_recording_memory(const struct weft_recording *r, int32_t n_places,
                          int32_t places_per_rank,
                          int64_t (*out)[WEFT_MEM_ALL + 1],
                          struct weft_err *err)
{
    return weft_recording_memory_of(r, n_places, places_per_rank,
                                    r->n_tasks >= LARGE, MOST_BYTES, out,
                                    err);
}
