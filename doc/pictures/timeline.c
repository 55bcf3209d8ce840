/* SPDX-License-Identifier: Apache-2.0 */
/* One PPO iteration of a run: who worked for which call, what crossed
 * between ranks. */
#include "pictures/draw.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "pictures/svg.h"

enum { MOST_LANES = 16, WIDTH = 880, LEFT = 84, LANE = 30 };
#define SPAN (WIDTH - LEFT - 10.0)

/* Something that lasts: a task, or a message. */
struct event {
    int rank, lane, class; /* lane: device; -1: messages to the rank */
    int64_t iteration;
    double start, end; /* us */
};

static const struct {
    const char *name, *text, *colour;
} call[] = {{"actor_generate", "generation", "#59a14f"},
            {"ref_infer", "reference", "#76b7b2"},
            {"critic_infer", "values", "#edc948"},
            {"reward_infer", "reward model", "#9c755f"},
            {"advantage", "advantages", "#24292f"},
            {"critic_train", "critic training", "#f28e2b"},
            {"actor_train", "actor training", "#4e79a7"}};

/* What a message carries, by its tile's name. */
static const struct {
    const char *word, *text, *colour;
} freight[] = {{"moved weights", "weights for a call", "#59a14f"},
               {"weights", "weights, ZeRO", "#e15759"},
               {"gradient", "gradients", "#f28e2b"},
               {"activation", "activations", "#4e79a7"},
               {"", "samples", "#8c959f"}};

static int class_of_call(const char *name)
{
    for (int i = 0; i < (int) WEFT_COUNT(call); i++)
        if (strcmp(call[i].name, name) == 0)
            return i;
    return -1;
}

static int class_of_tile(const char *tile)
{
    int i = 0;
    bool of_rows = strstr(tile, "gradient of activation") != NULL;
    while (!strstr(tile, freight[i].word) || (i == 2 && of_rows))
        i++;
    return i;
}

struct timeline {
    struct event *event;
    size_t n;
    double first, last;
};

static void add(struct timeline *t, const struct event *e)
{
    t->event[t->n++] = *e;
}

/* Tasks and received messages; a message is a pair of events. */
static void read_event(struct timeline *t, const json_t *j,
                       const json_t *next)
{
    const json_t *args = json_object_get(j, "args");
    const char *kind = json_string_value(json_object_get(j, "ph"));
    const char *name = json_string_value(json_object_get(j, "name"));
    double ts = json_number_value(json_object_get(j, "ts"));
    struct event e = {
        .rank = (int) json_integer_value(json_object_get(j, "pid")),
        .lane = (int) json_integer_value(json_object_get(j, "tid")),
        .iteration = json_object_get(args, "iteration") ? json_integer_value(
                         json_object_get(args, "iteration"))
                                                        : -1,
        .start = ts,
        .end = ts + json_number_value(json_object_get(j, "dur"))};
    if (strcmp(kind, "X") == 0) {
        e.class = class_of_call(
            json_string_value(json_object_get(args, "call")));
        if (e.class >= 0)
            add(t, &e);
    } else if (strcmp(kind, "b") == 0 && strncmp(name, "from", 4) == 0) {
        e.lane = -1;
        e.class = class_of_tile(
            json_string_value(json_object_get(args, "tile")));
        e.end = json_number_value(json_object_get(next, "ts"));
        add(t, &e);
    }
}

static int by_lane(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->lane != y->lane)
        return y->lane - x->lane; /* devices first, messages last */
    if (x->lane == -1 && x->class != y->class)
        return x->class - y->class;
    return (x->start > y->start) - (x->start < y->start);
}

/* From the first to the last task of an iteration; false: it has none. */
static bool find_span(struct timeline *t, int64_t iteration)
{
    t->first = 1e300;
    t->last = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct event *e = &t->event[i];
        if (e->lane < 0 || e->iteration != iteration)
            continue;
        t->first = e->start < t->first ? e->start : t->first;
        t->last = e->end > t->last ? e->end : t->last;
    }
    return t->last > t->first;
}

/* Of the iterations that generated ahead and were generated ahead (so neither
 * the first nor the last) the shortest; -1: there is none. */
static int64_t find_iteration(struct timeline *t)
{
    int64_t best = -1;
    double shortest = 1e300;
    bool next = find_span(t, 1) && find_span(t, 2);
    for (int64_t i = 1; next; i++) {
        next = find_span(t, i + 2);
        (void) find_span(t, i);
        if (t->last - t->first < shortest) {
            shortest = t->last - t->first;
            best = i;
        }
    }
    return best;
}

static double x_of(const struct timeline *t, double us)
{
    double x = (us - t->first) / (t->last - t->first);
    return LEFT + SPAN * (x < 0 ? 0 : x > 1 ? 1 : x);
}

/* Events of one kind that follow each other closely become one bar. */
static void draw_events(const struct timeline *t, double top,
                        int64_t iteration)
{
    double y = top - LANE;
    for (size_t i = 0, next; i < t->n; i = next) {
        const struct event *e = &t->event[i], *f = e;
        if (i == 0 || e[-1].rank != e->rank || e[-1].lane != e->lane)
            y += LANE;
        double end = e->end;
        for (next = i + 1; next < t->n; next++, f++) {
            if (f[1].rank != e->rank || f[1].lane != e->lane
                || f[1].class != e->class || f[1].iteration != e->iteration
                || x_of(t, f[1].start) > x_of(t, end) + 0.6)
                break;
            end = f[1].end > end ? f[1].end : end;
        }
        double x = x_of(t, e->start), w = x_of(t, end) - x;
        if (end < t->first || e->start > t->last)
            continue;
        if (e->lane < 0)
            svg_rect(x, y + e->class * 4.4, w < 0.5 ? 0.5 : w, 4,
                     freight[e->class].colour, "none");
        else if (e->iteration != iteration)
            svg_shade(x, y, w, LANE - 8, call[e->class].colour, 0.4);
        else
            svg_rect(x, y, w < 0.4 ? 0.4 : w, LANE - 8, call[e->class].colour,
                     "none");
    }
}

static double draw_labels(const struct timeline *t, double top)
{
    double y = top - LANE;
    for (size_t i = 0; i < t->n; i++) {
        const struct event *e = &t->event[i];
        if (i > 0 && e[-1].rank == e->rank && e[-1].lane == e->lane)
            continue;
        y += LANE;
        svg_rect(LEFT, y - 2, SPAN, LANE - 4, PAPER, "none");
        if (e->lane >= 0)
            svg_text(LEFT - 6, y + 15, 12, "end", INK, "device %d", e->lane);
        else
            svg_text(LEFT - 6, y + 15, 12, "end", INK, "to rank %d", e->rank);
    }
    return y + LANE;
}

static double draw_key(double x, double y, const char *colour,
                       const char *text)
{
    svg_rect(x, y - 9, 10, 10, colour, "none");
    svg_text(x + 14, y, 12, "start", INK, "%s", text);
    return x + 26 + 6.3 * (double) strlen(text);
}

static void draw(const struct timeline *t, int64_t iteration)
{
    double x = LEFT, lanes = 1;
    bool used[WEFT_COUNT(call)] = {false};
    bool sent[WEFT_COUNT(freight)] = {false};
    for (size_t i = 1; i < t->n; i++)
        lanes += t->event[i].rank != t->event[i - 1].rank
              || t->event[i].lane != t->event[i - 1].lane;
    for (size_t i = 0; i < t->n; i++)
        if (t->event[i].end >= t->first && t->event[i].start <= t->last)
            (t->event[i].lane >= 0 ? used : sent)[t->event[i].class] = true;
    svg_begin(WIDTH, (int) (76 + lanes * LANE));
    svg_text(10, 16, 12, "start", INK, "tasks");
    for (size_t i = 0; i < WEFT_COUNT(call); i++)
        if (used[i])
            x = draw_key(x, 16, call[i].colour, call[i].text);
    svg_text(10, 36, 12, "start", INK, "messages");
    x = LEFT;
    for (size_t i = 0; i < WEFT_COUNT(freight); i++)
        if (sent[i])
            x = draw_key(x, 36, freight[i].colour, freight[i].text);
    double bottom = draw_labels(t, 50);
    draw_events(t, 50, iteration);
    double ms = (t->last - t->first) / 1000, step = ms > 400 ? 100
                                                  : ms > 80  ? 20
                                                             : 5;
    for (double at = 0; at <= ms; at += step) {
        double tick = LEFT + SPAN * at / ms;
        svg_line(tick, bottom - 4, tick, bottom + 2, PALE);
        svg_text(tick, bottom + 14, 11, "middle", INK,
                 at > 0 ? "%.0f" : "%.0f ms", at);
    }
    svg_end();
}

int draw_timeline(const char *path)
{
    struct weft_err err;
    struct timeline t = {NULL, 0, 0, 0};
    json_t *root;
    if (weft_json_read(path, 0, &root, &err) != 0) {
        fprintf(stderr, "draw: %s\n", err.text);
        return 1;
    }
    const json_t *events = json_object_get(root, "traceEvents");
    size_t n = json_array_size(events);
    t.event = weft_alloc(n + 1, sizeof *t.event);
    for (size_t i = 0; t.event && i < n; i++)
        read_event(&t, json_array_get(events, i),
                   json_array_get(events, i + 1));
    if (t.event)
        qsort(t.event, t.n, sizeof *t.event, by_lane);
    int64_t iteration = t.event ? find_iteration(&t) : -1;
    if (iteration < 0) {
        fprintf(stderr, "draw: '%s' has no three iterations\n", path);
    } else {
        (void) find_span(&t, iteration);
        draw(&t, iteration);
    }
    weft_free(t.event);
    json_decref(root);
    return iteration < 0;
}
