/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes are handed on: a piece that begins takes bytes of pieces that have
 * ended before it, each byte once, and new ones for the rest. Every byte is
 * then handed down a sequence of pieces that are there one after another, so
 * that of any set that is there together each takes bytes of its own. Hence
 * the new bytes are at least what any such set takes:
 *
 *     a 4 ---> c 3    c takes 3 of a's 4 bytes, d takes 1 of them and 2 of
 *      \      /       b's, so that no more than a and b, 4 + 2, are there
 *     b 2 -> d 3      at a time
 *
 * When no way of handing on needs fewer, there is a set that takes just that
 * (Dilworth 1950; with weights, Ford and Fulkerson 1962, chapter II.9). So it
 * is not by luck that a recording with smaller tiles needs no more. Pieces
 * first take what they find; then those that still have new bytes look for a
 * giver who can do without another taker, who takes of a third, and so on to
 * one that has bytes left, as long as that is no long search.
 */
#include "plan/recording/heaviest.h"

#include <string.h>

#include "base/alloc.h"

enum { NOT_FOUND = -2 };

/* Bytes that go from one piece to another; of one giver in a list. */
struct gift {
    int64_t bytes;
    int32_t from, to, next;
};

/* Pieces that have ended and have bytes left, by the first task in a lane after
 * their end. */
struct lane {
    int32_t last;  /* the greatest of these tasks */
    int32_t *upto; /* (last + 1) pieces whose task is earlier */
    int32_t *at;   /* (n_ended) pieces in that order, by number in `ended` */
    int32_t *turn; /* (n_ended) their places in it; -1: none */
    uint64_t *set, *any; /* bits: which are there; which words are not 0 */
};

/* Members are the pieces of the mask, in their order. */
struct search {
    const struct weft_rec_piece **member; /* (n) */
    int32_t n, n_lanes;
    int32_t *ended;         /* (n_ended) members in the order of release */
    int32_t *over;          /* (n) so many of these are before a member */
    int32_t n_ended;        /* that are before any */
    int64_t *left, *wanted; /* (n) bytes not handed on; new bytes */
    int32_t *first;         /* (n) its gifts; -1: none */
    struct gift *gift;
    int32_t n_gifts, gift_room;
    struct lane *lane; /* (n_lanes) */
    /* Trees over `ended`, whose nodes hold the least ends of those below, by
     * lane: of those that have bytes left, and of those that were not found
     * yet. */
    int32_t *rich, *others, n_leaves;
    int32_t *found, n_found; /* (n) of `ended` */
    int32_t effort;          /* so many may still be found */
    int32_t *queue, n_queue; /* (n) takers that were found */
    int32_t *taker;          /* (n) who found a giver */
    int32_t *via;            /* (n) the gift that led to a taker; -1: none, it
                                is who wants; or NOT_FOUND */
    bool full;               /* no memory */
};

/* ---- Gifts -------------------------------------------------------------- */

static void give(struct search *s, int32_t from, int32_t to, int64_t bytes)
{
    for (int32_t g = s->first[from]; g >= 0; g = s->gift[g].next)
        if (s->gift[g].to == to) {
            s->gift[g].bytes += bytes;
            return;
        }
    if (s->n_gifts == s->gift_room) {
        int32_t more = s->gift_room * 2 + 256;
        struct gift *larger = weft_realloc(s->gift, (size_t) more,
                                           sizeof *larger);
        s->full = s->full || !larger;
        if (!larger)
            return;
        s->gift = larger;
        s->gift_room = more;
    }
    s->gift[s->n_gifts] = (struct gift){bytes, from, to, s->first[from]};
    s->first[from] = s->n_gifts++;
}

/* ---- What is found ------------------------------------------------------ */

static void lane_release(struct lane *lane)
{
    weft_free(lane->upto);
    weft_free(lane->at);
    weft_free(lane->turn);
    weft_free(lane->set);
    weft_free(lane->any);
}

static int lane_create(const struct search *s, int32_t l, struct lane *out,
                       struct weft_err *err)
{
    size_t n = (size_t) s->n_ended, words = n / 64 + 1;
    for (int32_t i = 0; i < s->n_ended; i++) {
        int32_t end = s->member[s->ended[i]]->ends[l];
        if (end != WEFT_REC_NEVER && end > out->last)
            out->last = end;
    }
    out->upto = weft_alloc((size_t) out->last + 1, sizeof *out->upto);
    out->at = weft_alloc(n, sizeof *out->at);
    out->turn = weft_alloc(n, sizeof *out->turn);
    out->set = weft_alloc(words, sizeof *out->set);
    out->any = weft_alloc(words / 64 + 1, sizeof *out->any);
    if (!out->upto || !out->at || !out->turn || !out->set || !out->any)
        return weft_err_nomem(err, "a memory plan", n * sizeof *out->at);
    for (int32_t i = 0; i < s->n_ended; i++) {
        int32_t end = s->member[s->ended[i]]->ends[l];
        if (end != WEFT_REC_NEVER)
            out->upto[end]++;
    }
    for (int32_t k = 1; k <= out->last; k++)
        out->upto[k] += out->upto[k - 1];
    for (int32_t i = s->n_ended; i-- > 0;) {
        int32_t end = s->member[s->ended[i]]->ends[l];
        out->turn[i] = end != WEFT_REC_NEVER ? --out->upto[end] : -1;
        if (end != WEFT_REC_NEVER)
            out->at[out->turn[i]] = i;
    }
    return 0;
}

static void has_ended(struct search *s, int32_t i)
{
    for (int32_t l = 0; l < s->n_lanes; l++) {
        int32_t k = s->lane[l].turn[i];
        if (k < 0)
            continue;
        s->lane[l].set[k / 64] |= (uint64_t) 1 << k % 64;
        s->lane[l].any[k / 4096] |= (uint64_t) 1 << k / 64 % 64;
    }
}

static void take_out(struct lane *lane, int32_t k)
{
    lane->set[k / 64] &= ~((uint64_t) 1 << k % 64);
    if (!lane->set[k / 64])
        lane->any[k / 4096] &= ~((uint64_t) 1 << k / 64 % 64);
}

/* The last bit of a word up to bit k; -1: none. */
static int32_t last_bit(uint64_t word, int32_t k)
{
    word &= ~(uint64_t) 0 >> (63 - k);
    return word ? WEFT_HIGHEST_BIT(word) : -1;
}

/* The last of a lane up to the k-th; -1: none. */
static int32_t last_upto(const struct lane *lane, int32_t k)
{
    if (k < 0)
        return -1;
    int32_t bit = last_bit(lane->set[k / 64], k % 64), word = k / 64 - 1;
    if (bit >= 0 || word < 0)
        return bit >= 0 ? k / 64 * 64 + bit : -1;
    int32_t block = word / 64;
    int32_t in = last_bit(lane->any[block], word % 64);
    while (in < 0 && --block >= 0)
        in = last_bit(lane->any[block], 63);
    if (in < 0)
        return -1;
    word = block * 64 + in;
    return word * 64 + last_bit(lane->set[word], 63);
}

/* Takes of what has ended before a lane's task that has ended before it, of the
 * latest first: fewer others can take of that. */
static void take(struct search *s, int32_t l, int32_t to)
{
    struct lane *lane = &s->lane[l];
    int32_t has = s->member[to]->has[l], k;
    if (has >= lane->last)
        k = s->n_ended - 1;
    else
        k = lane->upto[has + 1] - 1;
    while (s->wanted[to] > 0 && (k = last_upto(lane, k)) >= 0) {
        int32_t i = lane->at[k], from = s->ended[i];
        int64_t n = weft_min64(s->left[from], s->wanted[to]);
        s->left[from] -= n;
        s->wanted[to] -= n;
        if (n > 0)
            give(s, from, to, n);
        if (s->left[from] == 0)
            take_out(lane, k);
    }
}

/* First a piece takes of those of its own lane, then what fewer others could
 * take; what has ended before a wait is left to all later ones. */
static void take_found(struct search *s)
{
    for (int32_t i = 0, r = 0; i < s->n; i++) {
        for (; r < s->over[i]; r++)
            has_ended(s, r);
        if (s->member[i]->lane >= 0)
            take(s, s->member[i]->lane, i);
        for (int32_t l = s->n_lanes - 1; l >= 0 && s->wanted[i] > 0; l--)
            take(s, l, i);
    }
}

/* ---- What is looked for ------------------------------------------------- */

static int32_t *node_of(const struct search *s, int32_t *tree, int32_t node)
{
    return tree + (size_t) node * (size_t) s->n_lanes;
}

static void join(const struct search *s, int32_t *tree, int32_t node)
{
    int32_t *out = node_of(s, tree, node);
    const int32_t *a = node_of(s, tree, 2 * node);
    const int32_t *b = a + s->n_lanes;
    for (int32_t l = 0; l < s->n_lanes; l++)
        out[l] = a[l] < b[l] ? a[l] : b[l];
}

/* Puts number i of those that have ended into a tree, or takes it out. */
static void set_leaf(const struct search *s, int32_t *tree, int32_t i,
                     bool there)
{
    int32_t node = s->n_leaves + i, *leaf = node_of(s, tree, node);
    for (int32_t l = 0; l < s->n_lanes; l++)
        leaf[l] = there ? s->member[s->ended[i]]->ends[l] : WEFT_REC_NEVER;
    while ((node /= 2) > 0)
        join(s, tree, node);
}

static void fill_tree(const struct search *s, int32_t *tree, bool rich)
{
    for (int32_t i = 0; i < s->n_leaves; i++) {
        int32_t *leaf = node_of(s, tree, s->n_leaves + i);
        bool there = i < s->n_ended && (!rich || s->left[s->ended[i]] > 0);
        for (int32_t l = 0; l < s->n_lanes; l++)
            leaf[l] = there ? s->member[s->ended[i]]->ends[l]
                            : WEFT_REC_NEVER;
    }
    for (int32_t k = s->n_leaves - 1; k > 0; k--)
        join(s, tree, k);
}

static bool any_before(const int32_t *ends, const int32_t *has, int32_t n)
{
    int any = 0;
    for (int32_t l = 0; l < n; l++)
        any |= ends[l] <= has[l];
    return any;
}

/* The first below a node, which begins with number low, that a taker can take
 * of; -1: none. */
static int32_t find_giver(const struct search *s, int32_t *tree, int32_t to,
                          int32_t node, int32_t low, int32_t n)
{
    if (low >= s->over[to]
        || !any_before(node_of(s, tree, node), s->member[to]->has,
                       s->n_lanes))
        return -1;
    if (n == 1)
        return low;
    int32_t i = find_giver(s, tree, to, 2 * node, low, n / 2);
    return i >= 0 ? i
                  : find_giver(s, tree, to, 2 * node + 1, low + n / 2, n / 2);
}

/* Hands on what a giver has left, as much as all on the way can do with. */
static void hand_on(struct search *s, int32_t i, int32_t to)
{
    int32_t from = s->ended[i], at = to;
    int64_t bytes = s->left[from];
    for (; s->via[at] >= 0; at = s->taker[s->gift[s->via[at]].from])
        bytes = weft_min64(bytes, s->gift[s->via[at]].bytes);
    bytes = weft_min64(bytes, s->wanted[at]);
    s->wanted[at] -= bytes;
    s->left[from] -= bytes;
    if (s->left[from] == 0)
        set_leaf(s, s->rich, i, false);
    for (int32_t g = s->via[to]; g >= 0; g = s->via[to]) {
        give(s, from, to, bytes);
        s->gift[g].bytes -= bytes;
        from = s->gift[g].from;
        to = s->taker[from];
    }
    give(s, from, to, bytes);
}

/* Who takes of a giver may be able to take elsewhere. */
static void find_takers(struct search *s, int32_t from)
{
    for (int32_t g = s->first[from]; g >= 0; g = s->gift[g].next)
        if (s->gift[g].bytes > 0 && s->via[s->gift[g].to] == NOT_FOUND) {
            s->via[s->gift[g].to] = g;
            s->queue[s->n_queue++] = s->gift[g].to;
        }
}

static void forget_found(struct search *s)
{
    while (s->n_queue > 0)
        s->via[s->queue[--s->n_queue]] = NOT_FOUND;
    while (s->n_found > 0)
        set_leaf(s, s->others, s->found[--s->n_found], true);
}

/* Whether any bytes came to a piece that wants them. If not, none ever come to
 * what was found, and nobody needs to look there again. */
static bool look_for(struct search *s, int32_t wanting)
{
    s->n_queue = s->n_found = 0;
    s->via[wanting] = -1;
    s->queue[s->n_queue++] = wanting;
    for (int32_t q = 0; q < s->n_queue; q++) {
        int32_t to = s->queue[q];
        int32_t i = find_giver(s, s->rich, to, 1, 0, s->n_leaves);
        if (i >= 0) {
            hand_on(s, i, to);
            forget_found(s);
            return !s->full;
        }
        while ((i = find_giver(s, s->others, to, 1, 0, s->n_leaves)) >= 0) {
            set_leaf(s, s->others, i, false);
            s->found[s->n_found++] = i;
            s->effort--;
            s->taker[s->ended[i]] = to;
            find_takers(s, s->ended[i]);
        }
    }
    return false;
}

static void look_for_all(struct search *s)
{
    fill_tree(s, s->rich, true);
    fill_tree(s, s->others, false);
    for (int32_t i = 0; i < s->n; i++)
        s->via[i] = NOT_FOUND;
    for (int32_t i = 0; i < s->n; i++)
        while (s->wanted[i] > 0 && s->via[i] == NOT_FOUND && s->effort > 0
               && look_for(s, i))
            ;
}

/* ---- All ---------------------------------------------------------------- */

static void search_release(struct search *s)
{
    for (int32_t l = 0; s->lane && l < s->n_lanes; l++)
        lane_release(&s->lane[l]);
    weft_free(s->lane);
    weft_free(s->member);
    weft_free(s->ended);
    weft_free(s->over);
    weft_free(s->left);
    weft_free(s->wanted);
    weft_free(s->first);
    weft_free(s->gift);
    weft_free(s->rich);
    weft_free(s->others);
    weft_free(s->found);
    weft_free(s->queue);
    weft_free(s->taker);
    weft_free(s->via);
}

/* Sorts the members by release, and counts those before each. */
static void sort_ended(struct search *s, int32_t *number, int32_t n_pieces)
{
    memset(number, 0xff, (size_t) n_pieces * sizeof *number);
    for (int32_t i = 0; i < s->n; i++)
        number[s->member[i]->release] = i;
    int32_t k = 0;
    for (int32_t i = 0; i < s->n; i++) {
        for (; k < s->member[i]->over; k++)
            if (number[k] >= 0)
                s->ended[s->n_ended++] = number[k];
        s->over[i] = s->n_ended;
    }
}

static int search_create(struct search *s, const struct weft_rec_piece *piece,
                         int32_t n, unsigned mask, struct weft_err *err)
{
    size_t most = (size_t) n, leaves = 1;
    int32_t *number = weft_alloc(most, sizeof *number);
    s->member = weft_alloc(most, sizeof *s->member);
    s->ended = weft_alloc(most, sizeof *s->ended);
    s->over = weft_alloc(most, sizeof *s->over);
    s->left = weft_alloc(most, sizeof *s->left);
    s->wanted = weft_alloc(most, sizeof *s->wanted);
    s->first = weft_alloc(most, sizeof *s->first);
    s->queue = weft_alloc(most, sizeof *s->queue);
    s->taker = weft_alloc(most, sizeof *s->taker);
    s->via = weft_alloc(most, sizeof *s->via);
    s->lane = weft_alloc((size_t) s->n_lanes, sizeof *s->lane);
    bool ok = number && s->member && s->ended && s->over && s->left
           && s->wanted && s->first && s->queue && s->taker && s->via
           && s->lane;
    for (int32_t i = 0; i < n && ok; i++)
        if (mask >> piece[i].mem & 1) {
            s->left[s->n] = s->wanted[s->n] = piece[i].bytes;
            s->first[s->n] = -1;
            s->member[s->n++] = &piece[i];
        }
    if (ok)
        sort_ended(s, number, n);
    weft_free(number);
    while (leaves < (size_t) s->n_ended)
        leaves *= 2;
    s->n_leaves = (int32_t) leaves;
    size_t nodes = 2 * leaves * (size_t) s->n_lanes;
    s->rich = weft_alloc(nodes, sizeof *s->rich);
    s->others = weft_alloc(nodes, sizeof *s->others);
    s->found = weft_alloc(leaves, sizeof *s->found);
    int rc = ok && s->rich && s->others && s->found
               ? 0
               : weft_err_nomem(err, "a memory plan", most * 64);
    for (int32_t l = 0; l < s->n_lanes && !rc; l++)
        rc = lane_create(s, l, &s->lane[l], err);
    return rc;
}

int weft_rec_heaviest(const struct weft_rec_piece *piece, int32_t n,
                      int32_t n_lanes, unsigned mask, int32_t effort,
                      int64_t *bytes_out, struct weft_err *err)
{
    struct search s = {.n_lanes = n_lanes, .effort = effort};
    int64_t sum = 0;
    int rc = search_create(&s, piece, n, mask, err);
    if (!rc) {
        take_found(&s);
        look_for_all(&s);
        for (int32_t i = 0; i < s.n; i++)
            sum += s.wanted[i];
        *bytes_out = sum;
        if (s.full)
            rc = weft_err_nomem(err, "a memory plan", (size_t) n * 64);
    }
    search_release(&s);
    return rc;
}
