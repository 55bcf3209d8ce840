/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gangs: what was recorded since an instruction of a tp group began is its
 * expansion. When it ends, one task per member takes the expansion's place,
 * here of two members that exchange the tiles a and b:
 *
 *     device 0   part (W a), message a   \    layer (x, W y) (W temporaries)
 *                join (x, a, b', W y)     \
 *     device 1   part (W b), message b    /   layer (x', W y') (W temporaries)
 *                join (x', a', b, W y')  /
 *
 * Tiles that were created and released within are no more; how many bytes they
 * have together is noted of each member (struct weft_rec_temps): no order of
 * its tasks and messages takes more. Gangs within are taken one after another,
 * so that only the largest counts; but tiles that others read, or that come
 * from others, can be there with those of the next, and messages that are
 * expected with all.
 */
#include "plan/recording/gang.h"

#include <string.h>

#include "base/alloc.h"
#include "plan/card_memory.h"

enum { READS = 0, BOTH = 2 };

struct fold {
    struct weft_recording *r;
    struct weft_rec_mark from;
    struct weft_rec_one *one;
    int32_t n;
    int32_t *of;                    /* (tasks) member, by task - from.task */
    struct weft_rec_access *access; /* of all members, one after another */
    int64_t n_accesses;
    bool *waits;                  /* (n) member needs what another computes */
    struct weft_rec_temps *temps; /* (n) */
    struct nested {
        struct weft_rec_temps most, sum;
    } * nested; /* (n) of gangs within */
    /* (n_tiles) from 1 on: where a tile is in `access`. First, of temporaries:
       how they begin and end, see note_use() */
    int32_t *slot;
};

enum { BEGIN = 3, SENT = 4, OWNER = 8 };

/* ---- Members ----------------------------------------------------------- */

/* Tasks of a device are a member's; what has none, like a message, belongs to
 * the first member at its place. */
static int32_t find_member(const struct fold *f,
                           const struct weft_rec_task *t)
{
    int32_t k = 0;
    while (k < f->n
           && (t->device >= 0 ? f->one[k].where.device != t->device
                              : f->one[k].place != t->place))
        k++;
    return k;
}

static struct weft_rec_one first_of(const struct weft_rec_task *t)
{
    return (struct weft_rec_one){.place = t->place,
                                 .work.n_steps = 1,
                                 .where = {.device = t->device,
                                           .priority = t->priority,
                                           .chain = t->chain,
                                           .call = t->call,
                                           .iteration = t->iteration,
                                           .micro_batch = t->micro_batch}};
}

static void find_members(struct fold *f)
{
    const struct weft_recording *r = f->r;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = f->from.task; i < r->n_tasks; i++) {
            const struct weft_rec_task *t = &r->task[i];
            if ((t->device >= 0) != (pass == 0))
                continue;
            int32_t k = find_member(f, t);
            if (k == f->n)
                f->one[f->n++] = first_of(t);
            if (!f->one[k].where.position)
                f->one[k].where.position = t->position;
            f->of[i - f->from.task] = k;
        }
}

/* ---- What a member takes ----------------------------------------------- */

static int32_t whole_of(const struct weft_recording *r, int32_t tile)
{
    return r->tile[tile].whole < 0 ? tile : r->tile[tile].whole;
}

static bool is_within(const struct fold *f, int32_t tile)
{
    int32_t whole = whole_of(f->r, tile);
    return whole >= f->from.tile && f->r->tile[whole].released >= 0;
}

static bool is_far(const struct weft_recording *r,
                   const struct weft_rec_task *t)
{
    bool far = t->kind == WEFT_REC_MESSAGE;
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        far = far || r->tile[r->access[a].tile].place != t->place;
    return far;
}

/* Notes a use of a temporary by member k: whose it is, OWNER (1 + member) of
 * the first member at its place that uses it; how it begins; and whether it is
 * SENT, as a GPU's tile also is by way of the host: copies have no turn. */
static void note_use(struct fold *f, int32_t k, const struct weft_rec_task *t,
                     struct weft_rec_access a, bool far)
{
    int32_t whole = whole_of(f->r, (int32_t) a.tile);
    int32_t *slot = &f->slot[whole];
    bool message = t->kind == WEFT_REC_MESSAGE;
    bool sends = t->kind == WEFT_REC_COPY
              && weft_rec_tile_on_card(f->r, &f->r->tile[whole]);
    if (*slot == 0 && far && a.mode != READS)
        *slot |= message ? WEFT_REC_EXPECTED : WEFT_REC_COPIED;
    if (*slot < OWNER && f->r->tile[whole].place == f->one[k].place)
        *slot |= OWNER * (k + 1);
    bool others = *slot / OWNER != k + 1;
    if (a.mode == READS && *slot >= OWNER && others)
        f->waits[k] = true;
    if (a.mode == READS && (far || sends || others))
        *slot |= SENT;
    if (message && *slot >= OWNER) {
        struct weft_rec_temps *m = &f->temps[*slot / OWNER - 1];
        const struct weft_rec_tile *tile = &f->r->tile[whole];
        m->message[tile->mem] = weft_max64(m->message[tile->mem],
                                           (int64_t) tile->bytes);
    }
}

/* Adds what a gang within takes. */
static void add_nested(struct nested *n, const struct weft_rec_temps *x)
{
    const int64_t *bytes = &x->bytes[0][0][0];
    int64_t *most = &n->most.bytes[0][0][0], *sum = &n->sum.bytes[0][0][0];
    size_t all = sizeof x->bytes / sizeof *bytes;
    for (size_t i = 0; i < all; i++) {
        most[i] = weft_max64(most[i], bytes[i]);
        sum[i] += bytes[i];
    }
    n->most.kinds |= x->kinds;
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        n->most.message[c] = weft_max64(n->most.message[c], x->message[c]);
}

static void note_uses(struct fold *f)
{
    const struct weft_recording *r = f->r;
    int64_t g = f->from.gang;
    for (int64_t i = f->from.task; i < r->n_tasks; i++) {
        const struct weft_rec_task *t = &r->task[i];
        int32_t k = f->of[i - f->from.task];
        bool far = is_far(r, t);
        for (; g < r->n_gangs && r->gang[g].task < i; g++)
            continue;
        if (g < r->n_gangs && r->gang[g].task == i) {
            add_nested(&f->nested[k], &r->temps[r->gang[g].temps]);
            f->waits[k] = f->waits[k] || !r->gang[g].ahead;
        }
        for (int64_t a = t->access; a < t->access + t->n_access; a++)
            if (is_within(f, (int32_t) r->access[a].tile))
                note_use(f, k, t, r->access[a], far);
    }
}

/* Of the one before, what was sent may be there still, and of the next what was
 * copied. */
static void add_within(struct weft_rec_temps *out, const struct nested *n)
{
    for (int b = 0; b < WEFT_REC_N_BEGINS; b++)
        for (int e = 0; e < WEFT_REC_N_ENDS; e++)
            for (int c = 0; c <= WEFT_REC_SLOTS; c++) {
                int64_t most = n->most.bytes[b][e][c];
                int64_t more = n->sum.bytes[b][e][c] - most;
                bool expected = b == WEFT_REC_EXPECTED;
                out->bytes[b][e][c] += expected ? most + more : most;
                if (!expected && b + e > 0)
                    out->bytes[WEFT_REC_OWN][WEFT_REC_KEPT][c] += weft_min64(
                        most, more);
            }
    out->kinds |= n->most.kinds;
    for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
        out->message[c] = weft_max64(out->message[c], n->most.message[c]);
}

/* Adds a temporary of the member whose it is, as note_use() has found. */
static void add_temporary(const struct fold *f,
                          const struct weft_rec_tile *tile, int32_t slot)
{
    struct weft_rec_temps *x = &f->temps[slot / OWNER - 1];
    int64_t *bytes = x->bytes[slot & BEGIN][(slot & SENT) != 0];
    int64_t block = weft_rec_tile_block_bytes(f->r, tile);
    bytes[tile->mem] += block;
    if (!weft_rec_tile_on_card(f->r, tile))
        return;
    int kind = weft_card_kind(tile->bytes, (enum weft_mem_class) tile->mem);
    if (kind == WEFT_CARD_NO_KIND)
        return;
    bytes[WEFT_REC_SLOTS] += block;
    x->kinds |= (int64_t) 1 << kind;
}

static void add_temporaries(struct fold *f)
{
    const struct weft_recording *r = f->r;
    note_uses(f);
    for (int64_t i = f->from.tile; i < r->n_tiles; i++) {
        if (f->slot[i] >= OWNER)
            add_temporary(f, &r->tile[i], f->slot[i]);
        f->slot[i] = 0;
    }
    for (int32_t k = 0; k < f->n; k++)
        add_within(&f->temps[k], &f->nested[k]);
}

/* The number of what is taken, which is kept once; mostly one of the last. */
static int32_t keep_temps(struct weft_recording *r,
                          const struct weft_rec_temps *temps)
{
    for (int64_t i = r->n_temps; i-- > 0;)
        if (memcmp(&r->temps[i], temps, sizeof *temps) == 0)
            return (int32_t) i;
    if (!weft_recording_room(r, &r->temps, r->n_temps, &r->temps_room, 1,
                             sizeof *temps))
        return 0;
    r->temps[r->n_temps] = *temps;
    return (int32_t) r->n_temps++;
}

/* Of the last task; its gang has n recorded so far. */
static void begin_member(struct weft_recording *r, int32_t n,
                         const struct weft_rec_member_of *of)
{
    const struct weft_rec_temps none = {.message = {0}};
    struct weft_rec_task *t = &r->task[r->n_tasks - 1];
    struct weft_rec_gang gang = {.n_expanded = 1,
                                 .task = (int32_t) r->n_tasks - 1,
                                 .temps = keep_temps(r, &none)};
    if (of->work) {
        gang.received_bytes = (int64_t) (of->work->received * of->times);
        gang.n_received = of->work->n_received * (of->n - 1) * of->times;
    }
    weft_recording_gang(r, &gang);
    t->member = (uint8_t) n;
    t->n_members = (uint8_t) of->n;
    t->gang = (int32_t) r->n_gangs - 1;
}

void weft_recording_member(struct weft_recording *r,
                           const struct weft_rec_member_of *of)
{
    weft_assert(of->n <= WEFT_REC_MEMBERS);
    if (r->full)
        return;
    if (of->member == 0)
        r->n_left_out = 0;
    int32_t n = of->member - r->n_left_out;
    if (weft_recording_leaves_out(r, of->place)) {
        r->n_left_out++;
        r->left_out_place = of->place;
    } else {
        begin_member(r, n++, of);
    }
    for (int32_t i = 1; i <= n && of->member == of->n - 1 && n < of->n; i++) {
        struct weft_rec_gang *gang = &r->gang[r->n_gangs - i];
        r->task[gang->task].n_members = (uint8_t) n;
        gang->n_left_out = r->n_left_out;
        gang->left_out_place = r->left_out_place;
    }
}

static void add_outside(struct fold *f, struct weft_rec_one *m,
                        struct weft_rec_access a)
{
    int32_t *slot = &f->slot[a.tile];
    weft_assert(f->r->tile[a.tile].place == m->place);
    if (!*slot) {
        f->access[f->n_accesses++] = a;
        *slot = (int32_t) (f->n_accesses - m->access);
        return;
    }
    /* a tile that is written first, whole, is not read */
    struct weft_rec_access *before = &f->access[m->access + *slot - 1];
    if (before->mode == READS && a.mode != READS)
        before->mode = BOTH;
}

/* Bytes that the task brings from another place. */
static int64_t bytes_received(const struct weft_recording *r,
                              const struct weft_rec_task *t)
{
    int64_t bytes = 0;
    bool far = is_far(r, t);
    for (int64_t a = t->access; a < t->access + t->n_access && far; a++) {
        const struct weft_rec_tile *tile = &r->tile[r->access[a].tile];
        if (r->access[a].mode != READS && tile->place == t->place)
            bytes += (int64_t) tile->bytes;
    }
    return bytes;
}

/* Tasks of a gang do their work one after another, on the same rows. */
static void add_work(struct weft_rec_work *sum, const struct weft_rec_work *w)
{
    sum->flop += w->flop;
    sum->bytes += w->bytes;
    sum->n_layers += w->n_layers;
    sum->n_passes += w->n_passes;
    if (w->shape && !sum->shape) {
        sum->shape = w->shape;
        sum->n_rows = w->n_rows;
    }
    if (w->n_keys > sum->n_keys)
        sum->n_keys = w->n_keys;
}

static void add_task(struct fold *f, struct weft_rec_one *m,
                     const struct weft_rec_task *t,
                     const struct weft_rec_gang *gang)
{
    const struct weft_recording *r = f->r;
    int64_t bytes = gang ? gang->received_bytes : bytes_received(r, t);
    m->gang.n_expanded += gang ? gang->n_expanded : 1;
    m->gang.received_bytes += bytes;
    m->gang.n_received += gang ? gang->n_received : bytes > 0;
    if (t->kind == WEFT_REC_TASK)
        add_work(&m->work, &t->work);
    for (int64_t a = t->access; a < t->access + t->n_access; a++)
        if (!is_within(f, (int32_t) r->access[a].tile))
            add_outside(f, m, r->access[a]);
}

static void fill_member(struct fold *f, int32_t k)
{
    const struct weft_recording *r = f->r;
    struct weft_rec_one *m = &f->one[k];
    int64_t g = f->from.gang;
    m->gang.temps = keep_temps(f->r, &f->temps[k]);
    m->access = f->n_accesses;
    for (int64_t i = f->from.task; i < r->n_tasks; i++) {
        for (; g < r->n_gangs && r->gang[g].task < i; g++)
            continue;
        if (f->of[i - f->from.task] == k)
            add_task(f, m, &r->task[i],
                     g < r->n_gangs && r->gang[g].task == i ? &r->gang[g]
                                                            : NULL);
    }
    m->n_access = f->n_accesses - m->access;
    for (int64_t a = m->access; a < f->n_accesses; a++)
        f->slot[f->access[a].tile] = 0;
}

/* ---- In place of the expansion ----------------------------------------- */

/* Takes back what was recorded since, but the tiles that are still there. */
static void take_back(struct fold *f)
{
    struct weft_recording *r = f->r;
    int64_t n = f->from.released;
    for (int64_t i = n; i < r->n_released; i++)
        if (r->released[i] < f->from.tile)
            r->released[n++] = r->released[i];
    r->n_released = n;
    while (r->n_tiles > f->from.tile
           && is_within(f, (int32_t) r->n_tiles - 1))
        r->n_tiles--;
    for (int64_t i = f->from.tile; i < r->n_tiles; i++) {
        r->tile[i].created = f->from.task;
        if (r->tile[i].released >= 0)
            r->tile[i].released = f->from.task;
    }
    r->n_tasks = f->from.task;
    r->n_accesses = f->from.access;
    r->n_gangs = f->from.gang;
}

static bool is_left_out(const struct weft_recording *r,
                        const struct weft_rec_one *m)
{
    return weft_recording_leaves_out(r, m->place);
}

/* Adds the task of member k, number `member` of n that are recorded. */
static void add_member(struct weft_recording *r,
                       const struct weft_rec_put *put, int32_t k,
                       int32_t member, int32_t n)
{
    const struct weft_rec_one *m = &put->one[k];
    struct weft_rec_gang gang = m->gang;
    struct weft_where where = m->where;
    gang.task = (int32_t) r->n_tasks;
    gang.n_left_out = put->n - n;
    for (int32_t i = 0; i < put->n && n < put->n; i++)
        if (is_left_out(r, &put->one[i]))
            gang.left_out_place = put->one[i].place;
    where.layer = put->layer;
    weft_recording_gang(r, &gang);
    weft_recording_task(r, WEFT_REC_TASK, put->op, &where, m->place);
    if (r->full)
        return;
    struct weft_rec_task *t = &r->task[r->n_tasks - 1];
    t->member = (uint8_t) member;
    t->n_members = (uint8_t) n;
    for (int64_t a = m->access; a < m->access + m->n_access && !r->full; a++)
        weft_recording_access(r, (int32_t) put->access[a].tile,
                              (int) put->access[a].mode);
    if (put->work)
        weft_recording_work(r, &put->work[put->which[k]]);
    else if (!r->full)
        r->task[r->n_tasks - 1].work = m->work;
}

void weft_recording_put(struct weft_recording *r,
                        const struct weft_rec_put *put)
{
    int32_t n = 0, member = 0;
    weft_assert(put->n <= WEFT_REC_MEMBERS);
    for (int32_t k = 0; k < put->n; k++)
        n += !is_left_out(r, &put->one[k]);
    for (int32_t k = 0; k < put->n; k++)
        if (!is_left_out(r, &put->one[k]))
            add_member(r, put, k, member++, n);
}

static void replace(struct fold *f, const struct weft_rec_put *put)
{
    struct weft_recording *r = f->r;
    take_back(f);
    weft_recording_learn(r, &f->from, put);
    weft_recording_put(r, put);
    for (int64_t i = f->from.released; i < r->n_released; i++)
        r->tile[r->released[i]].released = r->n_tasks;
}

int32_t *weft_recording_slots(struct weft_recording *r)
{
    if (r->slot_room < r->n_tiles) {
        size_t more = (size_t) r->tile_room, old = (size_t) r->slot_room;
        int32_t *larger = weft_realloc(r->slot, more, sizeof *larger);
        if (!larger)
            return NULL;
        memset(larger + old, 0, (more - old) * sizeof *larger);
        r->slot = larger;
        r->slot_room = r->tile_room;
    }
    return r->slot;
}

static bool fold_create(struct fold *f)
{
    const struct weft_recording *r = f->r;
    size_t n = (size_t) (r->n_tasks - f->from.task) + 1;
    f->one = weft_alloc(n, sizeof *f->one);
    f->of = weft_alloc(n, sizeof *f->of);
    f->access = weft_alloc((size_t) (r->n_accesses - f->from.access) + 1,
                           sizeof *f->access);
    f->slot = weft_recording_slots(f->r);
    return f->one && f->of && f->access && f->slot;
}

static bool add_members(struct fold *f)
{
    find_members(f);
    f->temps = weft_alloc((size_t) f->n, sizeof *f->temps);
    f->nested = weft_alloc((size_t) f->n, sizeof *f->nested);
    f->waits = weft_alloc((size_t) f->n, sizeof *f->waits);
    if (!f->temps || !f->nested || !f->waits)
        return false;
    add_temporaries(f);
    bool ahead = false;
    for (int32_t k = 0; k < f->n && f->n > 1; k++)
        ahead = ahead || !f->waits[k];
    for (int32_t k = 0; k < f->n; k++) {
        f->one[k].gang.ahead = ahead;
        fill_member(f, k);
    }
    return true;
}

void weft_recording_gang_end(struct weft_recording *r, const char *op,
                             int32_t layer, const struct weft_work *work)
{
    weft_assert(r->n_marks > 0);
    struct fold f = {.r = r, .from = r->mark[--r->n_marks]};
    int32_t number[WEFT_REC_MEMBERS];
    if (r->full)
        return;
    r->full = !fold_create(&f) || !add_members(&f);
    if (!r->full) {
        const int32_t *which = weft_recording_which(&f.from.site, f.n, f.one,
                                                    number);
        replace(&f, &(struct weft_rec_put){.one = f.one,
                                           .n = f.n,
                                           .access = f.access,
                                           .op = op,
                                           .layer = layer,
                                           .work = which ? work : NULL,
                                           .which = which});
    }
    if (r->n_marks == 0)
        r->n_released = 0;
    weft_free(f.one);
    weft_free(f.temps);
    weft_free(f.nested);
    weft_free(f.waits);
    weft_free(f.of);
    weft_free(f.access);
}

void weft_recording_members(const struct weft_recording *r, int64_t task,
                            int64_t *first_out, int64_t *end_out)
{
    const struct weft_rec_task *t = &r->task[task];
    *first_out = task - t->member;
    *end_out = *first_out + (t->n_members ? t->n_members : 1);
}
