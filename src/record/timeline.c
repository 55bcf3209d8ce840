/* SPDX-License-Identifier: Apache-2.0 */
#include "record/timeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

/* ---- Notes -------------------------------------------------------------- */

int weft_timeline_init(int32_t n_rows, struct weft_timeline *out,
                       struct weft_err *err)
{
    *out = (struct weft_timeline){.n_rows = n_rows};
    out->first_device = weft_alloc((size_t) n_rows,
                                   sizeof *out->first_device);
    return out->first_device
             ? 0
             : weft_err_nomem(err, "generation",
                              (size_t) n_rows * sizeof *out->first_device);
}

void weft_timeline_release(struct weft_timeline *g)
{
    if (g->beside)
        weft_timeline_release(g->beside);
    weft_free(g->beside);
    weft_free(g->first_device);
    weft_free(g->round);
    weft_free(g->chunk);
    weft_free(g->move);
    weft_free(g->trigger);
    weft_free(g->piece);
    weft_free(g->sample);
    *g = (struct weft_timeline){.n_rows = 0};
}

/* Room for one more; NULL: there is none. */
static void *grow(struct weft_timeline *g, void *array, size_t n,
                  size_t *room, size_t size)
{
    if (n < *room)
        return array;
    size_t more = *room ? 2 * *room : 64;
    void *p = weft_realloc(array, more, size);
    g->failed = g->failed || !p;
    *room = p ? more : *room;
    return p;
}

#define ADD(g, array, n, room, what)                                         \
    do {                                                                     \
        void *more = grow(g, (g)->array, (g)->n, &(g)->room,                 \
                          sizeof *(g)->array);                               \
        if (!more)                                                           \
            return;                                                          \
        (g)->array = more;                                                   \
        (g)->array[(g)->n++] = *(what);                                      \
    } while (0)

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Makes one of each two chunks of an instance that follow one another in a
 * round. */
static void thin(struct weft_timeline *g)
{
    size_t *last = weft_alloc((size_t) g->n_instances, sizeof *last);
    size_t n = 0, r = 0;
    if (!last) {
        g->failed = true;
        return;
    }
    for (size_t i = 0; i < g->n_chunks; i++) {
        struct weft_timeline_chunk c = g->chunk[i];
        for (; r < g->n_rounds && g->round[r].first_chunk == i; r++) {
            g->round[r].first_chunk = n;
            memset(last, 0, (size_t) g->n_instances * sizeof *last);
        }
        size_t *at = &last[c.instance]; /* of the first of two, from 1 on */
        if (*at == 0) {
            g->chunk[n++] = c;
            *at = n;
            continue;
        }
        const struct weft_timeline_chunk *first = &g->chunk[*at - 1];
        c.samples = larger(first->samples, c.samples);
        c.blocks = larger(first->blocks, c.blocks);
        c.ended += first->ended;
        c.steps += first->steps;
        g->chunk[*at - 1] = c;
        *at = 0;
    }
    for (; r < g->n_rounds; r++)
        g->round[r].first_chunk = n;
    g->n_chunks = n;
    weft_free(last);
}

void weft_timeline_add_round(struct weft_timeline *g,
                             struct weft_timeline_when start)
{
    const struct weft_timeline_round round = {start, g->n_chunks,
                                              g->n_samples};
    ADD(g, round, n_rounds, round_room, &round);
}

void weft_timeline_add_chunk(struct weft_timeline *g,
                             const struct weft_timeline_chunk *chunk)
{
    if (g->n_chunks >= WEFT_TIMELINE_CHUNKS
        && g->n_chunks >= 8 * (size_t) g->n_instances)
        thin(g);
    ADD(g, chunk, n_chunks, chunk_room, chunk);
}

void weft_timeline_add_move(struct weft_timeline *g,
                            const struct weft_timeline_move *move)
{
    ADD(g, move, n_moves, move_room, move);
}

void weft_timeline_add_trigger(struct weft_timeline *g,
                               const struct weft_timeline_trigger *trigger)
{
    ADD(g, trigger, n_triggers, trigger_room, trigger);
}

void weft_timeline_add_piece(struct weft_timeline *g,
                             const struct weft_timeline_piece *piece)
{
    ADD(g, piece, n_pieces, piece_room, piece);
}

void weft_timeline_add_sample(struct weft_timeline *g,
                              const struct weft_timeline_sample *sample)
{
    ADD(g, sample, n_samples, sample_room, sample);
}

size_t weft_timeline_round_chunks(const struct weft_timeline *g, size_t round)
{
    bool last = round + 1 == g->n_rounds;
    return (last ? g->n_chunks : g->round[round + 1].first_chunk)
         - g->round[round].first_chunk;
}

size_t weft_timeline_round_samples(const struct weft_timeline *g,
                                   size_t round)
{
    bool last = round + 1 == g->n_rounds;
    return (last ? g->n_samples : g->round[round + 1].first_sample)
         - g->round[round].first_sample;
}

/* ---- Writing ------------------------------------------------------------ */

static void add_row(struct weft_string *out, bool first, int n,
                    const double *x)
{
    weft_string_add(out, first ? "\n  [" : ",\n  [");
    for (int i = 0; i < n; i++)
        weft_string_addf(out, "%s%.9g", i ? ", " : "", x[i]);
    weft_string_add(out, "]");
}

static void write(const struct weft_timeline *g, struct weft_string *out)
{
    weft_string_addf(
        out, "{\"iteration\": %lld, \"call\": ", (long long) g->iteration);
    weft_string_add_json(out, g->call);
    weft_string_addf(out,
                     ", \"instances\": %d, \"slots\": %d, \"blocks\": %d, "
                     "\"most\": %d, \"start_s\": %.9g,\n \"infers\": [",
                     g->n_instances, g->slots, g->blocks, g->most,
                     g->start_s);
    for (int32_t i = 0; i < g->n_calls; i++) {
        weft_string_add(out, i ? ", " : "");
        weft_string_add_json(out, g->infers[i]);
    }
    weft_string_add(out, "],\n \"rows\": [");
    for (int32_t i = 0; i < g->n_rows; i++)
        add_row(out, i == 0, 1, &(double){g->first_device[i]});
    weft_string_add(out, "],\n \"rounds\": [");
    for (size_t i = 0; i < g->n_rounds; i++) {
        const struct weft_timeline_round *r = &g->round[i];
        add_row(out, i == 0, 3,
                (const double[]){r->start.s, (double) r->first_chunk,
                                 (double) r->first_sample});
    }
    weft_string_add(out, "],\n \"chunks\": [");
    for (size_t i = 0; i < g->n_chunks; i++) {
        const struct weft_timeline_chunk *c = &g->chunk[i];
        add_row(out, i == 0, 7,
                (const double[]){c->end.s, c->instance, c->samples, c->left,
                                 c->ended, c->blocks, c->steps});
    }
    weft_string_add(out, "],\n \"triggers\": [");
    for (size_t i = 0; i < g->n_triggers; i++)
        add_row(out, i == 0, 2,
                (const double[]){g->trigger[i].at.s, g->trigger[i].left});
    weft_string_add(out, "],\n \"moves\": [");
    for (size_t i = 0; i < g->n_moves; i++) {
        const struct weft_timeline_move *m = &g->move[i];
        add_row(out, i == 0, 4,
                (const double[]){m->at.s, m->sample, m->from, m->to});
    }
    weft_string_add(out, "],\n \"inference\": [");
    for (size_t i = 0; i < g->n_pieces; i++) {
        const struct weft_timeline_piece *p = &g->piece[i];
        add_row(out, i == 0, 4,
                (const double[]){p->row, p->call, p->start_s, p->end_s});
    }
    weft_string_add(out, "],\n \"samples\": [");
    for (size_t i = 0; i < g->n_samples; i++) {
        const struct weft_timeline_sample *s = &g->sample[i];
        add_row(out, i == 0, 3,
                (const double[]){s->prompt, s->response, s->cut});
    }
    weft_string_add(out, "]");
    if (g->beside) {
        weft_string_add(out, ",\n \"beside\":\n");
        write(g->beside, out);
    }
    weft_string_add(out, "}\n");
}

int weft_timeline_write(const struct weft_timeline *g,
                        struct weft_string *out, struct weft_err *err)
{
    write(g, out);
    return weft_string_check(out, WEFT_TIMELINE_FILE, err);
}

/* ---- Reading ------------------------------------------------------------ */

struct reader {
    const json_t *o;
    const char *name;
    struct weft_err *err;
};

/* An array of arrays of n numbers from 0 on: whole ones up to their limits, or
 * times. */
static int read_rows(const struct reader *r, const char *key, size_t n,
                     const double *limit, double **out, size_t *n_out)
{
    json_t *list, *row;
    size_t i;
    int rc = weft_json_array(r->o, r->name, key, &list, r->err);
    if (rc)
        return rc;
    size_t count = json_array_size(list);
    double *x = weft_alloc(count * n + 1, sizeof *x);
    if (!x)
        return weft_err_nomem(r->err, r->name, count * n * sizeof *x);
    json_array_foreach(list, i, row)
    {
        bool good = json_array_size(row) == n;
        for (size_t k = 0; k < n && good; k++) {
            double *v = &x[i * n + k];
            *v = json_number_value(json_array_get(row, k));
            good = json_is_number(json_array_get(row, k)) && isfinite(*v)
                && *v >= 0
                && (isnan(limit[k]) || (*v <= limit[k] && floor(*v) >= *v));
        }
        if (!good) {
            weft_free(x);
            return weft_err_set(r->err, WEFT_EFORMAT,
                                "%s: '%s' number %zu is not what a run "
                                "writes",
                                r->name, key, i + 1);
        }
    }
    *out = x;
    *n_out = count;
    return 0;
}

#define MANY 2147483647.0
#define TIME ((double) NAN)

static int read_chunks(const struct reader *r, struct weft_timeline *g)
{
    const double limit[] = {TIME, g->n_instances - 1, MANY, MANY, MANY, MANY,
                            MANY};
    double *x;
    size_t n;
    int rc = read_rows(r, "chunks", 7, limit, &x, &n);
    for (size_t i = 0; i < n && !rc; i++) {
        const double *v = x + 7 * i;
        weft_timeline_add_chunk(
            g, &(struct weft_timeline_chunk){{v[0], -1},
                                             (int32_t) v[1],
                                             (int32_t) v[2],
                                             (int32_t) v[3],
                                             (int32_t) v[4],
                                             (int32_t) v[5],
                                             (int32_t) v[6]});
    }
    if (!rc)
        weft_free(x);
    return rc;
}

static int read_events(const struct reader *r, struct weft_timeline *g)
{
    const double of_trigger[] = {TIME, MANY};
    const double of_move[] = {TIME, MANY, g->n_instances - 1,
                              g->n_instances - 1};
    const double of_piece[] = {g->n_rows - 1, g->n_calls - 1, TIME, TIME};
    double *x = NULL;
    size_t n;
    int rc = read_rows(r, "triggers", 2, of_trigger, &x, &n);
    for (size_t i = 0; i < n && !rc; i++)
        weft_timeline_add_trigger(
            g, &(struct weft_timeline_trigger){{x[2 * i], -1},
                                               (int32_t) x[2 * i + 1]});
    if (!rc) {
        weft_free(x);
        rc = read_rows(r, "moves", 4, of_move, &x, &n);
    }
    for (size_t i = 0; i < n && !rc; i++)
        weft_timeline_add_move(
            g, &(struct weft_timeline_move){{x[4 * i], -1},
                                            (int32_t) x[4 * i + 1],
                                            (int32_t) x[4 * i + 2],
                                            (int32_t) x[4 * i + 3]});
    if (!rc) {
        weft_free(x);
        rc = read_rows(r, "inference", 4, of_piece, &x, &n);
    }
    for (size_t i = 0; i < n && !rc; i++)
        weft_timeline_add_piece(
            g, &(struct weft_timeline_piece){(int32_t) x[4 * i],
                                             (int32_t) x[4 * i + 1],
                                             x[4 * i + 2], x[4 * i + 3]});
    if (!rc)
        weft_free(x);
    return rc;
}

static int read_names(const struct reader *r, struct weft_timeline *g)
{
    json_t *list, *value;
    const char *call;
    size_t i;
    int rc = weft_json_string(r->o, r->name, "call", &call, r->err);
    if (!rc)
        rc = weft_json_array(r->o, r->name, "infers", &list, r->err);
    if (rc)
        return rc;
    snprintf(g->call, sizeof g->call, "%s", call);
    json_array_foreach(list, i, value)
    {
        if (!json_is_string(value) || i == WEFT_TIMELINE_CALLS)
            return weft_err_set(r->err, WEFT_EFORMAT,
                                "%s: 'infers' must be names, %d at most",
                                r->name, WEFT_TIMELINE_CALLS);
        snprintf(g->infers[g->n_calls++], sizeof g->infers[0], "%s",
                 json_string_value(value));
    }
    return 0;
}

static int read_head(const struct reader *r, struct weft_timeline *g)
{
    static const char *const key[] = {"instances", "slots", "blocks", "most"};
    int32_t *to[] = {&g->n_instances, &g->slots, &g->blocks, &g->most};
    int rc = weft_json_int(r->o, r->name, "iteration", 0, INT32_MAX,
                           &g->iteration, r->err);
    for (size_t i = 0; i < WEFT_COUNT(key) && !rc; i++) {
        int64_t x = 0;
        rc = weft_json_int(r->o, r->name, key[i], 0,
                           i == 0 ? g->n_rows : INT32_MAX, &x, r->err);
        *to[i] = (int32_t) x;
    }
    if (!rc)
        rc = weft_json_double(r->o, r->name, "start_s", &g->start_s, r->err);
    return rc ? rc : read_names(r, g);
}

static int read_samples(const struct reader *r, struct weft_timeline *g)
{
    const double limit[] = {MANY, MANY, 1};
    double *x;
    size_t n;
    int rc = read_rows(r, "samples", 3, limit, &x, &n);
    for (size_t i = 0; i < n && !rc; i++)
        weft_timeline_add_sample(
            g, &(struct weft_timeline_sample){(int32_t) x[3 * i],
                                              (int32_t) x[3 * i + 1],
                                              x[3 * i + 2] > 0});
    if (!rc)
        weft_free(x);
    return rc;
}

/* Of chunks and samples that were read, from the first of both on. */
static int read_rounds(const struct reader *r, struct weft_timeline *g)
{
    const double limit[] = {TIME, (double) g->n_chunks,
                            (double) g->n_samples};
    double *x = NULL;
    size_t n;
    int rc = read_rows(r, "rounds", 3, limit, &x, &n);
    if (!rc && n == 0 && g->n_chunks + g->n_samples > 0)
        rc = weft_err_set(r->err, WEFT_EFORMAT,
                          "%s: 'rounds' is empty, but there are chunks or "
                          "samples",
                          r->name);
    for (size_t i = 0; i < n && !rc; i++) {
        const double *v = x + 3 * i;
        weft_timeline_add_round(g, (struct weft_timeline_when){v[0], -1});
        if (g->failed)
            break;
        g->round[i].first_chunk = (size_t) v[1];
        g->round[i].first_sample = (size_t) v[2];
        if (i == 0 ? v[1] + v[2] > 0 : v[1] < v[-2] || v[2] < v[-1])
            rc = weft_err_set(r->err, WEFT_EFORMAT,
                              "%s: 'rounds' number %zu begins before the one "
                              "before it, or the first not with 0",
                              r->name, i + 1);
    }
    weft_free(x);
    return rc;
}

static int read_one(const struct reader *r, struct weft_timeline *out)
{
    const double of_row[] = {MANY};
    double *row = NULL;
    size_t n_rows;
    int rc = read_rows(r, "rows", 1, of_row, &row, &n_rows);
    if (!rc)
        rc = weft_timeline_init((int32_t) n_rows, out, r->err);
    for (size_t i = 0; i < n_rows && !rc; i++)
        out->first_device[i] = (int32_t) row[i];
    weft_free(row);
    if (!rc)
        rc = read_head(r, out);
    if (!rc)
        rc = read_samples(r, out);
    if (!rc)
        rc = read_chunks(r, out);
    if (!rc)
        rc = read_events(r, out);
    if (!rc)
        rc = read_rounds(r, out);
    return !rc && out->failed
             ? weft_err_nomem(r->err, r->name, out->n_chunks * 32)
             : rc;
}

/* The parser does not nest objects deeper than 2,048. */
static int read_all(const struct reader *r, struct weft_timeline *out)
{
    struct reader beside = *r;
    int rc = read_one(r, out);
    beside.o = json_object_get(r->o, "beside");
    if (rc || !beside.o)
        return rc;
    if (!json_is_object(beside.o))
        return weft_err_set(r->err, WEFT_EFORMAT,
                            "%s: 'beside' must be an object", r->name);
    out->beside = weft_alloc(1, sizeof *out->beside);
    return out->beside ? read_all(&beside, out->beside)
                       : weft_err_nomem(r->err, r->name, sizeof *out);
}

int weft_timeline_read(const char *path, struct weft_timeline *out,
                       struct weft_err *err)
{
    json_t *o;
    *out = (struct weft_timeline){.n_rows = 0};
    int rc = weft_json_read(path, 0, &o, err);
    if (rc)
        return rc;
    rc = read_all(&(struct reader){o, path, err}, out);
    json_decref(o);
    if (rc)
        weft_timeline_release(out);
    return rc;
}
