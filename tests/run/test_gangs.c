/* SPDX-License-Identifier: Apache-2.0 */
/* A recording of instructions of tp groups beside one of what they expand to:
 * the same tiles outside, the same order, every expanded task in one
 * instruction, no less memory, and as many tasks of a member whatever tp is. */
#include <math.h>

#include "base/alloc.h"
#include "recorded_run.h"

/* ---- One beside the other ---------------------------------------------- */

struct pair {
    struct weft_recording all, gangs;
    int64_t *of;   /* (all.n_tasks) number of the instruction or task */
    int64_t *node; /* (gangs.n_tasks) likewise */
    int64_t n;
};

static const struct weft_rec_gang *gang_at(const struct weft_recording *r,
                                           int64_t *g, int64_t task)
{
    while (*g < r->n_gangs && r->gang[*g].task < task)
        ++*g;
    return *g < r->n_gangs && r->gang[*g].task == task ? &r->gang[*g] : NULL;
}

static bool alike(const struct pair *p, int64_t a, int64_t b)
{
    const struct weft_rec_task *x = &p->all.task[a], *y = &p->gangs.task[b];
    return x->device == y->device && x->place == y->place
        && x->priority == y->priority && x->call == y->call
        && x->chain == y->chain && x->micro_batch == y->micro_batch
        && x->position == y->position && x->kind == y->kind
        && x->layer == y->layer && x->n_access == y->n_access
        && strcmp(weft_recording_op(&p->all, a),
                  weft_recording_op(&p->gangs, b))
               == 0;
}

/* Numbers instructions; every expanded task is in one, or stands alone. */
static void match_tasks(struct pair *p)
{
    const struct weft_recording *r = &p->gangs;
    int64_t e = 0, g = 0;
    bool same = true;
    for (int64_t i = 0; i < r->n_tasks; p->n++) {
        const struct weft_rec_gang *gang = gang_at(r, &g, i);
        int64_t n_tasks = gang ? r->task[i].n_members : 1;
        int64_t n = gang ? 0 : 1;
        if (!gang)
            same = same && e < p->all.n_tasks && alike(p, e, i);
        for (int64_t k = 0; k < n_tasks; k++, i++) {
            if (gang) {
                same = same && gang[k].task == i && r->task[i].member == k;
                n += gang[k].n_expanded;
            }
            p->node[i] = p->n;
        }
        for (int64_t k = 0; k < n && e < p->all.n_tasks; k++)
            p->of[e++] = p->n;
        same = same && n > 0;
    }
    CHECK(same);
    REQUIRE(e == p->all.n_tasks);
}

/* For every tile: 0 if no task uses it, 1 + the one instruction or task that
 * does, or -1 if several do. */
static int64_t *users(const struct weft_recording *r, const int64_t *node)
{
    int64_t *user = weft_alloc((size_t) r->n_tiles + 1, sizeof *user);
    REQUIRE(user != NULL);
    for (int64_t i = 0; i < r->n_tasks; i++)
        for (int64_t x = r->task[i].access;
             x < r->task[i].access + r->task[i].n_access; x++) {
            int64_t *u = &user[r->access[x].tile];
            *u = *u == 0 || *u == node[i] + 1 ? node[i] + 1 : -1;
        }
    return user;
}

/* The next tile that is outside of instructions and used. */
static int64_t next_tile(const struct weft_recording *r, const int64_t *user,
                         const bool *is_gang, int64_t i)
{
    for (; i < r->n_tiles; i++) {
        const struct weft_rec_tile *t = &r->tile[i];
        bool within = !t->permanent && t->whole < 0 && t->released >= 0
                   && user[i] > 0 && is_gang[user[i] - 1];
        if (!within && user[i] != 0)
            break;
    }
    return i;
}

/* Finds the tiles of one in the other, in the same order, but those that one
 * instruction alone uses. */
static void match_tiles(const struct pair *p)
{
    const struct weft_recording *a = &p->all, *b = &p->gangs;
    int64_t *of_a = users(a, p->of), *of_b = users(b, p->node), i = 0, k = 0;
    bool *is_gang = weft_alloc((size_t) p->n + 1, sizeof *is_gang);
    bool same = true;
    for (int64_t g = 0; g < b->n_gangs; g++)
        is_gang[p->node[b->gang[g].task]] = true;
    for (;; i++, k++) {
        i = next_tile(a, of_a, is_gang, i);
        k = next_tile(b, of_b, is_gang, k);
        if (i == a->n_tiles || k == b->n_tiles)
            break;
        const struct weft_rec_tile *x = &a->tile[i], *y = &b->tile[k];
        same = same && x->bytes == y->bytes && x->place == y->place
            && x->mem == y->mem && x->permanent == y->permanent
            && of_a[i] == of_b[k] && (x->whole < 0) == (y->whole < 0)
            && (x->released < 0) == (y->released < 0);
    }
    CHECK(same);
    CHECK(i == a->n_tiles && k == b->n_tiles);
    weft_free(of_a);
    weft_free(of_b);
    weft_free(is_gang);
}

static int32_t places_per_rank(const struct layout *l, const struct pair *p)
{
    return p->all.n_gpus > 0   ? p->all.places_per_rank
         : l->place_per_device ? l->n_devices
                               : 1;
}

/* What an instruction takes and receives at a place. */
struct taken {
    int64_t bytes[WEFT_N_MEM_CLASSES], received, n_tasks;
    int64_t position; /* the first of the place, if it has any */
};

static struct taken *taken_at(struct taken *list, int32_t n_places,
                              int64_t node, int32_t place)
{
    return &list[node * n_places + place];
}

static void note_position(struct taken *t, const struct weft_rec_task *task)
{
    t->position = t->position ? t->position : task->position;
}

/* Adds the tiles that one instruction alone uses. */
static void read_tiles(const struct weft_recording *r, const int64_t *node,
                       int32_t n_places, struct taken *out)
{
    int64_t *user = users(r, node);
    for (int64_t i = 0; i < r->n_tiles; i++) {
        const struct weft_rec_tile *t = &r->tile[i];
        if (user[i] > 0 && !t->permanent && t->whole < 0 && t->released >= 0)
            taken_at(out, n_places, user[i] - 1, t->place)->bytes[t->mem] +=
                weft_rec_tile_block_bytes(r, t);
    }
    weft_free(user);
}

/* Reads it from the tasks that the instructions stand for, and what comes from
 * other places. */
static void read_expansion(const struct pair *p, int32_t n_places,
                           struct taken *out)
{
    const struct weft_recording *a = &p->all;
    read_tiles(a, p->of, n_places, out);
    for (int64_t i = 0; i < a->n_tasks; i++) {
        const struct weft_rec_task *t = &a->task[i];
        const struct weft_rec_gang *gang = weft_recording_gang_of(a, i);
        int64_t end = t->access + t->n_access;
        bool far = t->kind == WEFT_REC_MESSAGE;
        if (t->place < 0)
            continue;
        struct taken *at = taken_at(out, n_places, p->of[i], t->place);
        at->n_tasks++;
        at->received += gang ? gang->received_bytes : 0;
        note_position(at, t);
        for (int64_t x = t->access; x < end; x++)
            far = far || a->tile[a->access[x].tile].place != t->place;
        for (int64_t x = t->access; x < end && far; x++) {
            const struct weft_rec_tile *tile = &a->tile[a->access[x].tile];
            if (a->access[x].mode != 0 && tile->place == t->place)
                at->received += (int64_t) tile->bytes;
        }
    }
}

static void read_instructions(const struct pair *p, int32_t n_places,
                              struct taken *out)
{
    const struct weft_recording *b = &p->gangs;
    read_tiles(b, p->node, n_places, out);
    for (int64_t g = 0; g < b->n_gangs; g++) {
        const struct weft_rec_gang *gang = &b->gang[g];
        const struct weft_rec_task *t = &b->task[gang->task];
        struct taken *at = taken_at(out, n_places, p->node[gang->task],
                                    t->place);
        const int64_t *bytes = &b->temps[gang->temps].bytes[0][0][0];
        const int kinds = WEFT_REC_N_BEGINS * WEFT_REC_N_ENDS;
        const int each = WEFT_REC_SLOTS + 1;
        for (int x = 0; x < kinds * each; x++)
            if (x % each < WEFT_REC_SLOTS) /* the last counts all */
                at->bytes[x % each] += bytes[x];
        at->n_tasks += gang->n_expanded;
        at->received += gang->received_bytes;
        note_position(at, t);
    }
}

/* Of instructions within an instruction only the largest counts. */
static bool holds_others(const struct weft_recording *r, int64_t task)
{
    const char *op = weft_recording_op(r, task);
    return strncmp(op, "decode", 6) == 0 || strcmp(op, "layer_backward") == 0;
}

static void match_taken(const struct layout *l, const struct pair *p)
{
    int32_t n = l->n_ranks * places_per_rank(l, p);
    size_t size = (size_t) p->n * (size_t) n;
    struct taken *a = weft_alloc(size, sizeof *a);
    struct taken *b = weft_alloc(size, sizeof *b);
    bool same = true;
    REQUIRE(a && b);
    read_expansion(p, n, a);
    read_instructions(p, n, b);
    for (int64_t g = 0; g < p->gangs.n_gangs; g++) {
        int64_t task = p->gangs.gang[g].task;
        int32_t place = p->gangs.task[task].place;
        const struct taken *x = taken_at(a, n, p->node[task], place);
        const struct taken *y = taken_at(b, n, p->node[task], place);
        same = same && x->n_tasks == y->n_tasks && x->received == y->received
            && x->position == y->position;
        for (int c = 0; c < WEFT_N_MEM_CLASSES; c++)
            same = same
                && (holds_others(&p->gangs, task)
                        ? y->bytes[c] <= x->bytes[c]
                        : y->bytes[c] == x->bytes[c]);
    }
    CHECK(same);
    weft_free(a);
    weft_free(b);
}

/* What a task or an instruction must wait for: pairs of numbers. */
struct edges {
    const int64_t *node;
    int64_t now, n, room;
    int64_t (*edge)[2];
};

static void add_edge(void *ctx, int64_t before)
{
    struct edges *e = ctx;
    if (e->node[before] == e->now)
        return;
    if (e->n == e->room) {
        e->room = e->room * 2 + 1024;
        e->edge = weft_realloc(e->edge, (size_t) e->room, sizeof *e->edge);
        REQUIRE(e->edge != NULL);
    }
    e->edge[e->n][0] = e->now;
    e->edge[e->n++][1] = e->node[before];
}

static int by_edge(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0])
                        : (x[1] > y[1]) - (x[1] < y[1]);
}

static void find_edges(const struct weft_recording *r, const int64_t *node,
                       struct edges *out)
{
    struct weft_rec_order order;
    struct weft_err err;
    int64_t n = 0;
    *out = (struct edges){.node = node};
    REQUIRE_OK(weft_rec_order_create(r, &order, &err), err);
    for (int64_t i = 0; i < r->n_tasks; i++) {
        out->now = node[i];
        weft_rec_order_visit(&order, i, add_edge, out);
    }
    weft_rec_order_release(&order);
    qsort(out->edge, (size_t) out->n, sizeof *out->edge, by_edge);
    for (int64_t i = 0; i < out->n; i++)
        if (i == 0 || by_edge(out->edge[i], out->edge[i - 1]) != 0)
            memmove(out->edge[n++], out->edge[i], sizeof *out->edge);
    out->n = n;
}

static void match_order(const struct pair *p)
{
    struct edges a, b;
    find_edges(&p->all, p->of, &a);
    find_edges(&p->gangs, p->node, &b);
    CHECK(a.n == b.n && a.n > 10);
    CHECK(memcmp(a.edge, b.edge, (size_t) a.n * sizeof *a.edge) == 0);
    weft_free(a.edge);
    weft_free(b.edge);
}

/* What instructions are bound to take is no less than what their tasks are. All
 * temporaries of one are taken to be there together, and with what others still
 * read of the one before: in small models that is most of the activations, of
 * what a GPU sends and receives by way of the host, and, as every tile of a GPU
 * has pages of its own, of all that it has. */
static void match_memory(const struct layout *l, const struct pair *p)
{
    enum { FLOOR = 64 << 10 };
    int32_t per_rank = places_per_rank(l, p);
    int32_t n = l->n_ranks * per_rank;
    int64_t(*a)[WEFT_MEM_ALL + 1] = weft_alloc((size_t) n, sizeof *a);
    int64_t(*b)[WEFT_MEM_ALL + 1] = weft_alloc((size_t) n, sizeof *b);
    struct weft_err err;
    REQUIRE(a && b);
    REQUIRE_OK(weft_recording_memory(&p->all, n, per_rank, a, &err), err);
    REQUIRE_OK(weft_recording_memory(&p->gangs, n, per_rank, b, &err), err);
    for (int32_t k = 0; k < n; k++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++) {
            double ratio = (double) b[k][c] / (double) a[k][c];
            bool loose = c == WEFT_MEM_ACTIVATIONS
                      || (p->all.n_gpus > 0
                          && (c == WEFT_MEM_HOST || c == WEFT_MEM_ALL));
            double most = loose ? 4 : 1.75;
            bool close = b[k][c] >= a[k][c]
                      && (a[k][c] < FLOOR || ratio <= most);
            CHECK(close);
            if (!close)
                printf("%s: place %d, class %d: %lld bytes by instruction, "
                       "%lld by task\n",
                       l->name, k, c, (long long) b[k][c],
                       (long long) a[k][c]);
        }
    weft_free(a);
    weft_free(b);
}

static void compare(const struct layout *l, bool lengths)
{
    struct weft_trainer *t = describe(l);
    struct pair p = {.n = 0};
    record(t, lengths, false, &p.all);
    record(t, lengths, true, &p.gangs);
    p.of = weft_alloc((size_t) p.all.n_tasks, sizeof *p.of);
    p.node = weft_alloc((size_t) p.gangs.n_tasks, sizeof *p.node);
    REQUIRE(p.of && p.node);
    for (int64_t i = 0; i < p.all.n_gangs; i++) /* tasks that run together */
        CHECK_INT(p.all.gang[i].n_expanded, 1);
    match_tasks(&p);
    match_tiles(&p);
    match_taken(l, &p);
    match_order(&p);
    match_memory(l, &p);
    weft_free(p.of);
    weft_free(p.node);
    weft_recording_release(&p.all);
    weft_recording_release(&p.gangs);
    forget(t);
}

static void test_alike(void)
{
    static const struct layout layout[] = {
        {"dp1", 1, 1, false, {NULL}},
        {"dp2pp2", 4, 1, false, {"layout=dp2pp2,zero=2"}},
        {"tp2", 2, 1, false, {"layout=tp2"}},
        {"tp4", 4, 1, false, {"layout=tp4", "rollout.chunk_tokens=3"}},
        {"tp4 in one place", 1, 4, false, {"layout=tp4"}},
        {"tp4 in two", 2, 2, false, {"layout=tp4,recompute"}},
        {"tp4 at devices", 1, 4, true, {"layout=tp4"}},
        {"tp2pp2", 2, 2, true, {"layout=tp2pp2,recompute,micro_batches=2"}},
        {"tp2pp2 offload", 2, 2, true, {"layout=tp2pp2,offload"}},
        {"dp2tp2", 4, 1, false, {"layout=dp2tp2,zero=3"}},
        {"dp2tp2 ahead",
         2,
         2,
         true,
         {"layout=dp2tp2", "train.mini_batches_ahead=1"}},
    };
    for (size_t i = 0; i < WEFT_COUNT(layout); i++) {
        compare(&layout[i], false);
        compare(&layout[i], true);
    }
    static const struct layout fused = {
        "fused",
        4,
        1,
        false,
        {"layout=tp2pp2", "train.intra_stage_fusion=true"}};
    compare(&fused, true);
}

/* Where the members are GPUs: of one rank, which may use one another's memory or
 * may not, or of a rank each. */
static void test_gpus_alike(void)
{
    static const struct {
        const char *word;
        int n;
    } of[] = {{"layout=tp2", 2},    {"layout=tp3", 3},
              {"layout=tp4", 4},    {"layout=tp4,recompute", 4},
              {"layout=tp2pp2", 4}, {"layout=dp2tp2,zero=2", 4}};
    /* found among 1,200 by chance: many copies that no position orders */
    static const char *const wide[] = {
        "layout=tp4pp2", "layout=tp4pp2,recompute", "layout=tp4pp2,zero=1",
        "layout=tp4pp2,zero=3"};
    for (size_t i = 0; i < WEFT_COUNT(of); i++)
        for (int k = 0; k < 3; k++) {
            int n_ranks = k == 2 ? of[i].n : 1;
            struct layout l = {of[i].word,
                               n_ranks,
                               of[i].n / n_ranks + 1,
                               i % 2 == 0,
                               {"runtime.devices=gpu", of[i].word}};
            gpus_apart = k == 1;
            compare(&l, false);
            compare(&l, true);
        }
    gpus_apart = true;
    for (size_t i = 0; i < WEFT_COUNT(wide); i++) {
        const struct layout l = {wide[i],
                                 1,
                                 9,
                                 i % 2 == 0,
                                 {"runtime.devices=gpu", wide[i],
                                  "train.micro_batch_tokens=80",
                                  "rollout.chunk_tokens=2"}};
        compare(&l, false);
    }
    gpus_apart = false;
}

/* Numbers that look random, the same in every run (Knuth, The Art of Computer
 * Programming 2, 3.3.4, line 26). */
static int draw(int n)
{
    static uint32_t x = 1;
    x = x * 1664525u + 1013904223u;
    return (int) (x >> 16) % n;
}

static void test_random(void)
{
    static const char *const more[] = {"",        ",zero=1",    ",zero=2",
                                       ",zero=3", ",recompute", ",offload"};
    for (int i = 0; i < 16; i++) {
        int tp = 1 << draw(3), pp = 1 + draw(2), dp = tp * pp < 4 ? 2 : 1;
        int n = tp * pp * dp, ranks = draw(2) ? n : 1;
        char word[3][64];
        const struct layout l = {word[0],
                                 ranks,
                                 n / ranks,
                                 draw(2) == 0,
                                 {word[0], word[1], word[2]}};
        snprintf(word[0], sizeof word[0], "layout=dp%dtp%dpp%d%s", dp, tp, pp,
                 more[draw(6)]);
        snprintf(word[1], sizeof word[1], "train.micro_batch_tokens=%d",
                 48 + 16 * draw(6));
        snprintf(word[2], sizeof word[2], "rollout.chunk_tokens=%d",
                 1 + draw(5));
        compare(&l, draw(2));
    }
}

/* Untied, without norms of heads. */
static void test_other_model(void)
{
    char word[3][600];
    static const char *const role[] = {"actor", "critic", "reference"};
    struct layout l = {"llama", 2, 2, true, {"layout=tp2pp2"}};
    fixture_make_model(&fixture, "llama", 7, false, false, "bytes");
    for (int i = 0; i < 3; i++) {
        snprintf(word[i], sizeof word[i], "model.%s=%s/llama", role[i],
                 fixture.dir);
        l.word[1 + i] = word[i];
    }
    compare(&l, true);
    l.n_ranks = 4;
    l.n_devices = 1;
    l.word[0] = "layout=dp2tp2,recompute";
    compare(&l, false);
}

/* ---- How many there are ------------------------------------------------ */

static int64_t count(const struct weft_recording *r, int32_t place,
                     int32_t call, const char *op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        n += r->task[i].place == place && r->task[i].call == call
          && strcmp(weft_recording_op(r, i), op) == 0;
    return n;
}

/* Of a member of a stage. Two gradient groups of three samples each, each cut
 * into one micro-batch, in two mini-batches and two epochs: 8 micro-batches. */
static void check_training(const struct weft_recording *r, int32_t place,
                           int32_t call, int layers, bool first, bool last)
{
    enum { MICRO = 8 };
    CHECK(count(r, place, call, "layer_forward") == MICRO * layers);
    CHECK(count(r, place, call, "layer_backward") == MICRO * layers);
    CHECK(count(r, place, call, "embed") == (first ? MICRO : 0));
    CHECK(count(r, place, call, "loss") == (last ? MICRO : 0));
    CHECK(count(r, place, call, "embed_backward") == (first ? MICRO : 0));
    CHECK(count(r, place, call, "attention_part") == 0);
}

static void check_counts(const struct weft_trainer *t,
                         const struct weft_recording *r, int tp, int pp)
{
    static int64_t steps[3];
    const int layers = t->model[0].arch.shape.n_layers / pp;
    for (int32_t call = 1; call < t->flow.n_calls; call++)
        for (int p = 0; p < tp * pp; p++) {
            int32_t role = t->flow.call[call].role;
            if (role < 0) /* a step without a model */
                break;
            const struct weft_run_model *m = &t->model[role];
            bool first = p / tp == 0, last = p / tp == pp - 1;
            /* a scalar head is on the first member */
            bool head = last && (!m->arch.shape.scalar_head || p % tp == 0);
            if (weft_flow_trains(&t->flow, call)) {
                check_training(r, p, call, layers, first, head);
            } else if (t->flow.call[call].kind == WEFT_INFER) {
                int64_t n = count(r, 0, call, "embed");
                CHECK(n > 0);
                CHECK(count(r, p, call, "layer_forward") == n * layers);
            } else if (t->flow.call[call].kind == WEFT_GENERATE) {
                int64_t n = count(r, p, call,
                                  pp > 1 ? "decode_step" : "decode_chunk");
                if (tp == 1 && p == 0)
                    steps[pp] = n;
                CHECK(n > 0 && n == steps[pp]);
            }
        }
}

static void test_count(void)
{
    for (int tp = 1; tp <= 4; tp *= 2)
        for (int pp = 1; pp <= 2; pp++) {
            char word[64];
            const struct layout l = {
                "count", tp * pp, 1, false, {word, "rollout.chunk_tokens=3"}};
            snprintf(word, sizeof word, "layout=tp%dpp%d,micro_batches=1", tp,
                     pp);
            struct weft_trainer *t = describe(&l);
            struct weft_recording r;
            record(t, true, true, &r);
            check_counts(t, &r, tp, pp);
            weft_recording_release(&r);
            forget(t);
        }
}

static int64_t count_all(const struct weft_recording *r, int32_t call,
                         const char *op)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n_tasks; i++)
        n += r->task[i].call == call
          && strcmp(weft_recording_op(r, i), op) == 0;
    return n;
}

/* Where the members of a stage are devices of one place, a step or a
 * micro-batch is a task of each, however many layers there are. */
static void test_count_stages(void)
{
    for (int tp = 1; tp <= 4; tp *= 2) {
        char word[64];
        const struct layout l = {"stages", 1, 2 * tp, false, {word}};
        struct weft_recording r;
        snprintf(word, sizeof word, "layout=tp%dpp2", tp);
        struct weft_trainer *t = describe(&l);
        record(t, true, false, &r);
        for (int32_t call = 1; call < t->flow.n_calls; call++) {
            bool generates = t->flow.call[call].kind == WEFT_GENERATE;
            bool infers = t->flow.call[call].kind == WEFT_INFER;
            int64_t n = count_all(&r, call, generates ? "gen_begin" : "pack");
            const char *op = generates ? "gen_stage" : "infer_stage";
            const char *last = generates ? "gen_last_stage"
                                         : "infer_last_stage";
            if (!generates && !infers)
                continue;
            CHECK(n > 0);
            if (generates || tp > 1) {
                CHECK_INT(count_all(&r, call, op), n * tp);
                CHECK_INT(count_all(&r, call, last), n * tp);
                CHECK_INT(count_all(&r, call, "layer_forward"), 0);
                CHECK_INT(count_all(&r, call, "attention_part"), 0);
            } else { /* whoever generates need not wait for all layers */
                CHECK_INT(count_all(&r, call, "layer_forward"),
                          n * t->model[0].arch.shape.n_layers);
            }
        }
        weft_recording_release(&r);
        forget(t);
    }
}

/* Of all tasks of that name. */
struct received {
    int64_t n_tasks, bytes, n;
};

static struct received received(const struct weft_recording *r,
                                const char *op)
{
    struct received sum = {0};
    for (int64_t i = 0, g = 0; i < r->n_tasks; i++) {
        const struct weft_rec_gang *gang = gang_at(r, &g, i);
        if (strcmp(weft_recording_op(r, i), op) != 0)
            continue;
        REQUIRE(gang != NULL);
        sum.n_tasks++;
        sum.bytes += gang->received_bytes;
        sum.n += gang->n_received;
    }
    return sum;
}

/* Where the members are GPUs of one rank a chunk is a task of each, too, and
 * its instruction reads as much of the others' as its tasks. */
static void test_gpus(void)
{
    for (int tp = 2; tp <= 4; tp *= 2) {
        char word[64];
        const struct layout l = {
            "GPUs",
            1,
            tp + 1,
            true,
            {"runtime.devices=gpu", "rollout.chunk_tokens=3", word}};
        struct weft_recording all, gangs;
        snprintf(word, sizeof word, "layout=tp%d", tp);
        struct weft_trainer *t = describe(&l);
        record(t, true, false, &all);
        record(t, true, true, &gangs);
        struct received each = received(&all, "gen_chunk"),
                        one = received(&gangs, "decode_chunk");
        CHECK(each.n_tasks > tp && each.bytes > 0 && each.n > 0);
        CHECK_INT(each.n_tasks, one.n_tasks);
        CHECK_INT(each.bytes, one.bytes);
        CHECK_INT(each.n, one.n);
        for (int32_t call = 1; call < t->flow.n_calls; call++)
            if (t->flow.call[call].kind == WEFT_GENERATE)
                CHECK_INT(count_all(&all, call, "gen_begin")
                              + count_all(&all, call, "layer_forward"),
                          0);
        weft_recording_release(&all);
        weft_recording_release(&gangs);
        forget(t);
    }
}

/* However few tokens the samples have, each replica infers its share. */
static void test_share(void)
{
    const struct layout l = {
        "share", 2, 1, false, {"layout=dp2", "train.micro_batch_tokens=999"}};
    struct weft_trainer *t = describe(&l);
    struct weft_recording r;
    record(t, true, true, &r);
    for (int32_t call = 1; call < t->flow.n_calls; call++) {
        int64_t n = count(&r, 0, call, "embed");
        if (t->flow.call[call].kind == WEFT_INFER)
            CHECK(n > 0 && n == count(&r, 1, call, "embed"));
    }
    weft_recording_release(&r);
    forget(t);
}

WEFT_TESTS("run/gangs", {"setup", setup}, {"test_alike", test_alike},
           {"test_gpus_alike", test_gpus_alike}, {"test_random", test_random},
           {"test_other_model", test_other_model}, {"test_count", test_count},
           {"test_count_stages", test_count_stages}, {"test_gpus", test_gpus},
           {"test_share", test_share}, {"teardown", teardown})
