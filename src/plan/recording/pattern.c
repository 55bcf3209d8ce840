/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns: an instruction that was recorded before is recorded again without
 * its expansion. What its members' tasks are is then taken from the first one,
 * with other tiles in the places of its own:
 *
 *     layer 3   outside  x  w3 y       member 0   reads 0, 1, writes 2
 *     layer 4   outside  y  w4 z
 *
 * An instruction is the same if the words are that say what its expansion is a
 * function of. Devices and places count from those of its first member, and
 * positions from those before it, so that replicas are the same.
 */
#include <string.h>

#include "base/alloc.h"
#include "plan/recording/gang.h"

struct weft_rec_pattern {
    uint64_t hash;
    int64_t *word; /* (n_words) */
    int64_t n_words;
    struct weft_rec_one *one; /* (n) devices, places and positions count from
                                 those of the site; device -1: any */
    int32_t *which;           /* (n) number of the member in the site */
    int32_t n;
    struct weft_rec_access *access;  /* tile: number in the list of those
                                        outside */
    int64_t taken[WEFT_REC_MEMBERS]; /* positions, by member of the site */
};

static void release(struct weft_rec_pattern *p)
{
    weft_free(p->word);
    weft_free(p->one);
    weft_free(p->which);
    weft_free(p->access);
}

void weft_recording_patterns_release(struct weft_recording *r)
{
    for (int64_t i = 0; i < r->n_patterns; i++)
        release(&r->pattern[i]);
    weft_free(r->pattern);
    weft_free(r->pattern_at);
    for (int i = 0; i < WEFT_REC_GANGS_WITHIN; i++) {
        weft_free(r->mark[i].word);
        weft_free(r->mark[i].outside);
    }
}

/* ---- Words ------------------------------------------------------------- */

void weft_recording_gang_begin(struct weft_recording *r,
                               const struct weft_rec_site *site)
{
    weft_assert(r->n_marks < WEFT_REC_GANGS_WITHIN);
    struct weft_rec_mark *m = &r->mark[r->n_marks++];
    m->task = r->n_tasks;
    m->access = r->n_accesses;
    m->tile = r->n_tiles;
    m->gang = r->n_gangs;
    m->released = r->n_released;
    m->n_words = m->n_outside = 0;
    m->site.n = 0;
    if (!site)
        return;
    weft_assert(site->n <= WEFT_REC_MEMBERS);
    m->site = *site;
    for (int32_t k = 0; k < site->n; k++) {
        const struct weft_rec_member *at = &site->member[k];
        m->begin[k] = at->next ? *at->next : 0;
        weft_recording_gang_word(
            r, (int64_t) (at->device - site->member[0].device) << 1
                   | (at->next != NULL));
        weft_recording_gang_word(r, at->place - site->member[0].place);
    }
}

void weft_recording_gang_word(struct weft_recording *r, int64_t word)
{
    struct weft_rec_mark *m = &r->mark[r->n_marks - 1];
    if (weft_recording_room(r, &m->word, m->n_words, &m->word_room, 1,
                            sizeof *m->word))
        m->word[m->n_words++] = word;
}

/* In `slot` a tile has its number in the list from 1 on, until
 * forget_outside(). */
void weft_recording_gang_tile(struct weft_recording *r, int32_t tile)
{
    struct weft_rec_mark *m = &r->mark[r->n_marks - 1];
    int32_t *slot = weft_recording_slots(r);
    r->full = r->full || !slot;
    if (r->full)
        return;
    const struct weft_rec_tile *t = &r->tile[tile];
    if (slot[tile] == 0
        && weft_recording_room(r, &m->outside, m->n_outside, &m->outside_room,
                               1, sizeof *m->outside)) {
        m->outside[m->n_outside++] = tile;
        slot[tile] = (int32_t) m->n_outside;
        weft_recording_gang_word(r, (int64_t) t->bytes);
    }
    weft_recording_gang_word(r, ((int64_t) slot[tile] << 32) + t->place
                                    - m->site.member[0].place);
}

static void forget_outside(struct weft_recording *r,
                           const struct weft_rec_mark *m)
{
    for (int64_t i = 0; i < m->n_outside; i++)
        r->slot[m->outside[i]] = 0;
}

/* Chosen only to mix bits: an odd multiplier, as of Fibonacci hashing (Knuth,
 * The Art of Computer Programming 3, 6.4). */
static uint64_t hash_of(const struct weft_rec_mark *m)
{
    uint64_t h = (uint64_t) m->n_words;
    for (int64_t i = 0; i < m->n_words; i++) {
        h = (h ^ (uint64_t) m->word[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

/* ---- What was recorded before ------------------------------------------ */

static int32_t *slot_of(const struct weft_recording *r, uint64_t hash,
                        const struct weft_rec_mark *m)
{
    uint64_t mask = (uint64_t) r->pattern_slots - 1, i = hash & mask;
    for (; r->pattern_at[i]; i = (i + 1) & mask) {
        const struct weft_rec_pattern *p = &r->pattern[r->pattern_at[i] - 1];
        if (m && p->hash == hash && p->n_words == m->n_words
            && memcmp(p->word, m->word, (size_t) m->n_words * sizeof *m->word)
                   == 0)
            break;
    }
    return &r->pattern_at[i];
}

static bool grow(struct weft_recording *r)
{
    int64_t n = r->pattern_slots ? 2 * r->pattern_slots : 256;
    int32_t *larger = weft_alloc((size_t) n, sizeof *larger);
    if (!larger)
        return false;
    weft_free(r->pattern_at);
    r->pattern_at = larger;
    r->pattern_slots = n;
    for (int64_t i = 0; i < r->n_patterns; i++)
        *slot_of(r, r->pattern[i].hash, NULL) = (int32_t) i + 1;
    return true;
}

/* Puts a pattern's tasks in the place of the site. */
static void repeat(struct weft_recording *r, const struct weft_rec_mark *m,
                   const struct weft_rec_pattern *p, struct weft_rec_put *put)
{
    struct weft_rec_one one[WEFT_REC_MEMBERS];
    int64_t n = p->n ? p->one[p->n - 1].access + p->one[p->n - 1].n_access
                     : 0;
    struct weft_rec_access few[256];
    struct weft_rec_access *access = few;
    if (n > (int64_t) WEFT_COUNT(few))
        access = weft_alloc((size_t) n, sizeof *access);
    r->full = r->full || !access;
    if (r->full)
        return;
    for (int64_t a = 0; a < n; a++) {
        access[a] = p->access[a];
        access[a].tile = (uint32_t) m->outside[p->access[a].tile]
                       & 0x3fffffffu;
    }
    for (int32_t k = 0; k < p->n; k++) {
        const struct weft_rec_member *at = &m->site.member[p->which[k]];
        one[k] = p->one[k];
        one[k].where = m->site.where;
        one[k].where.device = p->one[k].where.device < 0 ? -1 : at->device;
        one[k].where.position = p->one[k].where.position;
        if (one[k].where.position)
            one[k].where.position += *at->next;
        one[k].place = at->place;
    }
    for (int32_t k = 0; k < m->site.n; k++)
        if (p->taken[k])
            *m->site.member[k].next += p->taken[k];
    put->one = one;
    put->n = p->n;
    put->which = p->which;
    put->access = access;
    weft_recording_put(r, put);
    if (access != few)
        weft_free(access);
}

bool weft_recording_gang_again(struct weft_recording *r, const char *op,
                               int32_t layer, const struct weft_work *work)
{
    struct weft_rec_mark *m = &r->mark[r->n_marks - 1];
    forget_outside(r, m);
    if (r->full || m->site.n == 0 || r->n_patterns == 0)
        return false;
    int32_t k = *slot_of(r, hash_of(m), m);
    if (k == 0)
        return false;
    r->n_marks--;
    repeat(r, m, &r->pattern[k - 1],
           &(struct weft_rec_put){.op = op, .layer = layer, .work = work});
    if (r->n_marks == 0)
        r->n_released = 0;
    return true;
}

/* ---- What is recorded for the first time ------------------------------- */

/* The number of a member in the site; -1: it is none of them. */
static int32_t member_of(const struct weft_rec_site *site,
                         const struct weft_rec_one *one)
{
    for (int32_t k = 0; k < site->n; k++)
        if (one->where.device >= 0
                ? site->member[k].device == one->where.device
                : site->member[k].place == one->place)
            return k;
    return -1;
}

const int32_t *weft_recording_which(const struct weft_rec_site *site,
                                    int32_t n,
                                    const struct weft_rec_one one[],
                                    int32_t out[WEFT_REC_MEMBERS])
{
    if (n > site->n)
        return NULL;
    for (int32_t k = 0; k < n; k++)
        if ((out[k] = member_of(site, &one[k])) < 0)
            return NULL;
    return out;
}

static bool copy(struct weft_rec_pattern *p, const struct weft_rec_mark *m,
                 const struct weft_rec_put *put)
{
    size_t n = (size_t) put->n, words = (size_t) m->n_words;
    int64_t accesses = n ? put->one[n - 1].access + put->one[n - 1].n_access
                         : 0;
    p->word = weft_alloc(words, sizeof *p->word);
    p->one = weft_alloc(n, sizeof *p->one);
    p->which = weft_alloc(n, sizeof *p->which);
    p->access = weft_alloc((size_t) accesses, sizeof *p->access);
    if (!p->word || !p->one || !p->which || !p->access)
        return false;
    memcpy(p->word, m->word, words * sizeof *p->word);
    memcpy(p->one, put->one, n * sizeof *p->one);
    memcpy(p->access, put->access, (size_t) accesses * sizeof *p->access);
    p->n_words = m->n_words;
    p->n = put->n;
    p->hash = hash_of(m);
    return true;
}

/* Makes numbers count from the site. False: not all can. */
static bool count_from(struct weft_recording *r, struct weft_rec_pattern *p,
                       const struct weft_rec_mark *m)
{
    const struct weft_rec_site *site = &m->site;
    bool ok = true;
    for (int32_t k = 0; k < site->n; k++)
        p->taken[k] = site->member[k].next
                        ? *site->member[k].next - m->begin[k]
                        : 0;
    for (int32_t k = 0; k < p->n && ok; k++) {
        struct weft_rec_one *one = &p->one[k];
        p->which[k] = member_of(site, one);
        ok = p->which[k] >= 0
          && (!one->where.position || site->member[p->which[k]].next);
        if (ok && one->where.position)
            one->where.position -= m->begin[p->which[k]];
    }
    for (int64_t i = 0; i < m->n_outside; i++)
        r->slot[m->outside[i]] = (int32_t) i + 1;
    for (int32_t k = 0; k < p->n; k++)
        for (int64_t a = 0; a < p->one[k].n_access && ok; a++) {
            struct weft_rec_access *x = &p->access[p->one[k].access + a];
            int32_t slot = r->slot[x->tile];
            weft_assert(slot > 0); /* it uses a tile that was not listed */
            ok = slot > 0;
            x->tile = (uint32_t) (slot - 1) & 0x3fffffffu;
        }
    forget_outside(r, m);
    return ok;
}

void weft_recording_learn(struct weft_recording *r,
                          const struct weft_rec_mark *mark,
                          const struct weft_rec_put *put)
{
    struct weft_rec_pattern p = {.word = NULL};
    if (mark->site.n == 0 || r->n_tiles > mark->tile
        || r->n_released > mark->released)
        return;
    if (2 * r->n_patterns >= r->pattern_slots && !grow(r))
        return;
    if (!copy(&p, mark, put) || !count_from(r, &p, mark)
        || !weft_recording_room(r, &r->pattern, r->n_patterns,
                                &r->pattern_room, 1, sizeof *r->pattern)) {
        release(&p);
        return;
    }
    *slot_of(r, p.hash, NULL) = (int32_t) r->n_patterns + 1;
    r->pattern[r->n_patterns++] = p;
}
