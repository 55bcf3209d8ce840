/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of generation: its file read back; its picture's words and
 * size, and what it draws against the numbers it was given, at points between
 * all events; its quantiles by counting. */
#include "record/timeline.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "harness.h"
#include "read_svg.h"
#include "record/timeline_picture.h"

static struct weft_err err;

/* ---- What is drawn ------------------------------------------------------- */

static int32_t draw(uint32_t seed, int32_t below)
{
    static uint32_t count;
    uint32_t word[4];
    weft_rng_words(seed, WEFT_RNG_SAMPLE, count++, 0, 0, word);
    return (int32_t) (word[0] % (uint32_t) below);
}

/* A round: instances with chunks until their samples have ended; the first half
 * leaves its last samples to the others, who end them in one chunk. No two
 * instances' chunks end at once. Returns the time of the last end. */
static double make_round(uint32_t seed, double start_s, int32_t each,
                         bool moves, struct weft_timeline *g)
{
    int32_t n = g->n_instances;
    int32_t more[256] = {0}; /* samples that come */
    double more_s[256] = {0};
    size_t at = g->n_samples;
    double last = start_s;
    weft_timeline_add_round(g, (struct weft_timeline_when){start_s, -1});
    for (int32_t i = 0; i < n; i++) {
        double s = start_s + 1e-5 * i;
        bool left = moves && n > 1 && i < n / 2;
        int32_t has = each;
        for (int32_t k = 0; has > 0; k++) {
            int32_t ends = draw(seed, has + 1);
            s += 0.01 * (1 + draw(seed, 9));
            if (left && k == 3)
                break;
            int32_t stay = has - ends + (more_s[i] <= s ? more[i] : 0);
            weft_timeline_add_chunk(
                g, &(struct weft_timeline_chunk){
                       {s, -1}, i, has, stay, ends, 2 * has, 4});
            has -= ends;
        }
        if (more[i] > 0) {
            s = fmax(s, more_s[i]) + 0.04;
            weft_timeline_add_chunk(
                g, &(struct weft_timeline_chunk){
                       {s, -1}, i, more[i], 0, more[i], 2 * more[i], 4});
        }
        if (left) {
            more[i + n / 2] = has;
            more_s[i + n / 2] = s;
            for (; has > 0; has--)
                weft_timeline_add_move(
                    g, &(struct weft_timeline_move){
                           {s, -1}, (int32_t) at + has - 1, i, i + n / 2});
        }
        weft_timeline_add_piece(
            g, &(struct weft_timeline_piece){i, draw(seed, g->n_calls), s,
                                             s + 0.3});
        last = fmax(last, s);
        for (int32_t k = 0; k < each; k++, at++) {
            int32_t response = 1 + draw(seed, 90);
            weft_timeline_add_sample(
                g, &(struct weft_timeline_sample){1 + draw(seed, 20),
                                                  response, response == 90});
        }
    }
    return last;
}

static void make(uint32_t seed, int32_t n, int32_t each, bool moves,
                 int32_t rounds, struct weft_timeline *g)
{
    REQUIRE_OK(weft_timeline_init(n + 1, g, &err), err);
    g->iteration = 7;
    strcpy(g->call, "generate & <more>");
    g->n_instances = n;
    g->slots = each;
    g->blocks = 4 * each;
    g->most = 90;
    g->start_s = 3.25;
    for (g->n_calls = 0; g->n_calls < 1 + draw(seed, 8); g->n_calls++)
        snprintf(g->infers[g->n_calls], sizeof g->infers[0],
                 "call_of_a_long_name%d", g->n_calls);
    double s = g->start_s;
    for (int32_t r = 0; r < rounds; r++)
        s = make_round(seed, s + (r > 0) * 0.02, r == 0 ? each : 1, moves, g);
    weft_timeline_add_piece(
        g, &(struct weft_timeline_piece){n, 0, g->start_s + 0.1, s});
    if (moves)
        weft_timeline_add_trigger(
            g, &(struct weft_timeline_trigger){{3.3, -1}, each});
    g->first_device[n] = 77;
    CHECK(!g->failed);
}

/* One of another call beside it. */
static void put_beside(uint32_t seed, struct weft_timeline *g)
{
    g->beside = weft_alloc(1, sizeof *g->beside);
    REQUIRE(g->beside != NULL);
    make(seed, 3, 4, 1, 1, g->beside);
    strcpy(g->beside->call, "greedily");
}

/* ---- Its file, and quantiles --------------------------------------------- */

static void put(const struct weft_timeline *g, struct weft_string *out)
{
    REQUIRE_OK(weft_timeline_write(g, out, &err), err);
}

static void test_file(void)
{
    char path[] = "/tmp/weft-timeline-XXXXXX";
    int file = mkstemp(path);
    REQUIRE(file >= 0);
    for (uint32_t seed = 0; seed < 20; seed++) {
        struct weft_timeline g, again;
        struct weft_string a = {0}, b = {0};
        make(seed, 1 + draw(seed, 9), 1 + draw(seed, 9), seed % 2,
             1 + (int32_t) seed % 3, &g);
        if (seed % 4 == 0)
            put_beside(seed + 50, &g);
        put(&g, &a);
        REQUIRE_OK(weft_file_write(path, a.data, a.n, &err), err);
        REQUIRE_OK(weft_timeline_read(path, &again, &err), err);
        put(&again, &b);
        CHECK_STR(b.data, a.data);
        CHECK_INT(again.n_moves, g.n_moves);
        CHECK_INT(again.n_rounds, 1 + seed % 3);
        CHECK_INT(again.sample[0].cut, g.sample[0].cut);
        CHECK_INT(again.beside != NULL, seed % 4 == 0);
        weft_timeline_release(&again);
        /* no number may be below 0 */
        for (char *p = strstr(a.data, "\"chunks\"");
             p && (p = strchr(p, ',')) && strlen(p) > 40; p++) {
            if (p[1] != ' ' || p[2] < '1' || p[2] > '9')
                continue;
            p[1] = '-';
            REQUIRE_OK(weft_file_write(path, a.data, a.n, &err), err);
            CHECK(weft_timeline_read(path, &again, &err) != 0);
            CHECK(strstr(err.text, path) != NULL);
            p[1] = ' ';
            p += 30;
        }
        weft_string_release(&a);
        weft_string_release(&b);
        weft_timeline_release(&g);
    }
    static const char wrong[] =
        "{\"iteration\": 1, \"call\": \"g\", \"instances\": 1, \"slots\": 1,"
        " \"blocks\": 1, \"most\": 1, \"start_s\": 0, \"infers\": [],"
        " \"rows\": [[0]], \"chunks\": [[0.5, %d, 1, 0, 1, 1, 4]],"
        " \"triggers\": [], \"moves\": [], \"inference\": [],"
        " \"samples\": [[1, 1, 0]], \"rounds\": [%s]}";
    static const struct {
        const char *rounds, *why;
        int instance;
    } of[] = {{"", "'chunks' number 1 is not what a run writes", 1},
              {"", "'rounds' is empty", 0},
              {"[0, 0, 0], [0, 1, 2]", "'rounds' number 2 is not what", 0},
              {"[0, 1, 0]", "'rounds' number 1 begins before", 0},
              {"[0, 0, 0], [0, 1, 1], [0, 0, 1]",
               "'rounds' number 3 begins before", 0}};
    for (size_t i = 0; i < WEFT_COUNT(of); i++) {
        struct weft_timeline g;
        char text[600];
        int n = snprintf(text, sizeof text, wrong, of[i].instance,
                         of[i].rounds);
        REQUIRE_OK(weft_file_write(path, text, (size_t) n, &err), err);
        CHECK_FAILS(weft_timeline_read(path, &g, &err), WEFT_EFORMAT, err,
                    of[i].why);
    }
    close(file);
    unlink(path);
}

/* The least length that so many do not exceed, found by counting. */
static void test_quantile(void)
{
    static const double share[] = {0, 0.01, 0.5, 0.9, 0.99, 1};
    for (uint32_t seed = 0; seed < 200; seed++) {
        int32_t x[40], n = 1 + draw(seed, 40), last = 0;
        for (int32_t i = 0; i < n; i++)
            x[i] = last += draw(seed, 4);
        for (size_t k = 0; k < sizeof share / sizeof *share; k++) {
            int32_t least = x[0];
            for (;; least++) {
                int32_t below = 0;
                for (int32_t i = 0; i < n; i++)
                    below += x[i] <= least;
                if (below > 0 && below >= share[k] * n - 1e-9)
                    break;
            }
            CHECK_INT(weft_timeline_quantile((size_t) n, x, share[k]), least);
        }
    }
}

/* ---- Its words ----------------------------------------------------------- */

struct word {
    double left, right, y;
};

/* Words of a picture as boxes of 6.4 pixels a letter. */
static int find_words(const char *svg, struct word *out, int most)
{
    int n = 0;
    for (const char *p = svg; (p = strstr(p, "<text x=")) && n < most; p++) {
        double x, y;
        char class[8] = "";
        REQUIRE(sscanf(p, "<text x=\"%lf\" y=\"%lf\" class=\"%7[a-z ]", &x,
                       &y, class)
                >= 2);
        const char *text = strchr(p, '>') + 1, *end = strchr(text, '<');
        double width = 6.4 * (double) (end - text);
        double at = strchr(class, 'n') ? x - width / 2
                  : strchr(class, 'e') ? x - width
                                       : x;
        out[n++] = (struct word){at, at + width, y};
    }
    return n;
}

static void check_words(const char *svg)
{
    static struct word w[500];
    int n = find_words(svg, w, 500), overlap = 0;
    CHECK(n > 10 && n < 500);
    for (int i = 0; i < n; i++) {
        CHECK(w[i].left >= 0 && w[i].right < 1134);
        for (int k = 0; k < i; k++)
            overlap += fabs(w[i].y - w[k].y) < 9 && w[i].left < w[k].right
                    && w[k].left < w[i].right;
    }
    CHECK_INT(overlap, 0);
}

/* ---- What it draws ------------------------------------------------------- */

/* The curve of samples begins anew with each round: as high as the round has
 * samples, and it ends at 0. */
static void check_rounds(const struct weft_timeline *g, const char *svg)
{
    const char *p = strstr(svg, "<path class=\"l\" d=\"");
    double most = (double) weft_timeline_round_samples(g, 0);
    REQUIRE(p != NULL);
    p += strlen("<path class=\"l\" d=\"");
    for (size_t r = 0; r < g->n_rounds; r++) {
        double x, y, top, ground = 0;
        int n = 0;
        REQUIRE(sscanf(p, "M%lf %lfV%lf%n", &x, &y, &top, &n) == 3);
        double share = (double) weft_timeline_round_samples(g, r) / most;
        CHECK(fabs((y - top) / 100 - share) < 1e-3);
        p = strchr(p, 'z');
        REQUIRE(p != NULL);
        for (const char *v = p; ground == 0; v--)
            if (*v == 'V')
                ground = strtod(v + 1, NULL);
        CHECK(fabs(ground - y) < 0.01);
        p++;
    }
    CHECK(*p == '"');
}

struct drawn {
    const struct weft_timeline *g;
    const char *svg;
    double scale; /* pixels of a second */
};

static double px(const struct drawn *w, double s)
{
    return LEFT + (s - w->g->start_s) * w->scale;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *) left, b = *(const double *) right;
    return (a > b) - (a < b);
}

/* When anything changes, in pixels. Returns how many; sets the scale. */
static int find_events(struct drawn *w, double *out)
{
    const struct weft_timeline *g = w->g;
    int n = 0;
    double last = g->start_s;
    for (size_t i = 0; i < g->n_chunks; i++)
        out[n++] = g->chunk[i].end.s;
    for (size_t i = 0; i < g->n_pieces; i++) {
        out[n++] = g->piece[i].start_s;
        out[n++] = g->piece[i].end_s;
    }
    for (int i = 0; i < n; i++)
        last = fmax(last, out[i]);
    for (size_t i = 0; i < g->n_moves; i++)
        out[n++] = g->move[i].at.s;
    for (size_t i = 0; i < g->n_rounds; i++)
        out[n++] = g->round[i].start.s;
    w->scale = WIDTH / (last - g->start_s);
    for (int i = 0; i < n; i++)
        out[i] = px(w, out[i]);
    qsort(out, (size_t) n, sizeof *out, ascending);
    return n;
}

static size_t round_of(const struct drawn *w, double x)
{
    size_t r = 0;
    while (r + 1 < w->g->n_rounds && px(w, w->g->round[r + 1].start.s) < x)
        r++;
    return r;
}

/* An instance's chunk of the round that ends next, NULL: none, and where it
 * begins: behind the one before it, or when samples come. */
static const struct weft_timeline_chunk *next_chunk(const struct drawn *w,
                                                    int32_t instance,
                                                    double x, double *begin)
{
    const struct weft_timeline *g = w->g;
    size_t r = round_of(w, x);
    const struct weft_timeline_chunk *c = g->chunk + g->round[r].first_chunk;
    *begin = px(w, g->round[r].start.s);
    for (size_t k = weft_timeline_round_chunks(g, r); k > 0; k--, c++) {
        double end = px(w, c->end.s), comes = INFINITY;
        if (c->instance != instance)
            continue;
        if (end > x)
            return c;
        for (size_t m = 0; m < g->n_moves; m++)
            if (g->move[m].to == instance && g->move[m].at.s >= c->end.s)
                comes = fmin(comes, px(w, g->move[m].at.s));
        *begin = c->left > 0 ? end : comes;
    }
    return NULL;
}

/* Where a row has generated all that it does in a round; 0: nothing. */
static double row_ends(const struct drawn *w, int32_t row, double x)
{
    size_t r = round_of(w, x);
    const struct weft_timeline_chunk *c = w->g->chunk
                                        + w->g->round[r].first_chunk;
    double ends = 0;
    for (size_t k = weft_timeline_round_chunks(w->g, r); k > 0; k--, c++)
        ends = c->instance == row ? fmax(ends, px(w, c->end.s)) : ends;
    return ends;
}

/* Of a row the samples, the blocks, and what it infers. */
static void check_row(const struct drawn *w, int32_t row, int n,
                      const double *x)
{
    static struct path samples, blocks, call[WEFT_TIMELINE_CALLS];
    const struct weft_timeline *g = w->g;
    double top, high, begin;
    REQUIRE(sscanf(find(w->svg, "<rect x=\"64\" y=\"", row),
                   "%lf\" width=\"1040\" height=\"%lf\"", &top, &high)
            == 2);
    bool generates = row < g->n_instances;
    samples.n = blocks.n = 0;
    if (generates) {
        read_path(find(w->svg, "<path class=\"s\" d=\"", row), &samples);
        read_path(find(w->svg, "<path class=\"k\" d=\"", row), &blocks);
    }
    for (int32_t c = 0; c < g->n_calls; c++)
        read_path(strstr(find(w->svg, "<path fill=\"", c), "d=\"") + 3,
                  &call[c]);
    for (int i = 0; i < n; i++) {
        const struct weft_timeline_chunk *c = next_chunk(w, row, x[i],
                                                         &begin);
        bool busy = c && begin < x[i];
        check_level(&samples, x[i], top + high, high,
                    busy ? (double) c->samples / g->slots : -1);
        check_level(&blocks, x[i], top + high, high,
                    busy ? (double) c->blocks / g->blocks : -1);
        double infers[WEFT_TIMELINE_CALLS];
        double share = x[i] > row_ends(w, row, x[i]) ? 1 : 0.5;
        for (int32_t k = 0; k < g->n_calls; k++)
            infers[k] = -1;
        for (size_t k = 0; k < g->n_pieces; k++)
            if (g->piece[k].row == row && px(w, g->piece[k].start_s) < x[i]
                && x[i] < px(w, g->piece[k].end_s))
                infers[g->piece[k].call] = share;
        for (int32_t k = 0; k < g->n_calls; k++)
            check_level(&call[k], x[i], top + high, high, infers[k]);
    }
}

/* In rows too low for heights the deepest colour is that of most samples. */
static void check_colours(const struct drawn *w)
{
    const struct weft_timeline *g = w->g;
    static double most[512], is[512];
    double top, x, y;
    REQUIRE(sscanf(find(w->svg, "<rect x=\"64\" y=\"", 0), "%lf", &top) == 1);
    for (int32_t i = 0; i < g->n_instances; i++)
        most[i] = is[i] = 0;
    for (size_t i = 0; i < g->n_chunks; i++)
        most[g->chunk[i].instance] = fmax(most[g->chunk[i].instance],
                                          g->chunk[i].samples);
    for (const char *p = w->svg;
         (p = strstr(p, "<path class=\"h\" fill-opacity=\"")); p++) {
        double share;
        REQUIRE(sscanf(p + 30, "%lf\" d=\"M%lf %lf", &share, &x, &y) == 3);
        double *of = &is[(int) ((y - top + 0.02) * g->n_rows / 640)];
        *of = fmax(*of, share);
    }
    for (int32_t i = 0; i < g->n_instances; i++)
        CHECK(fabs(is[i] - 0.2 - 0.8 * most[i] / g->slots) < 0.006);
}

/* The shares of samples left, and of all caches' blocks; -1 once a round's last
 * chunk has ended. */
static void share_at(const struct drawn *w, double x, double *left_out,
                     double *used_out)
{
    const struct weft_timeline *g = w->g;
    size_t r = round_of(w, x), n = weft_timeline_round_chunks(g, r), most = 0;
    const struct weft_timeline_chunk *c = g->chunk + g->round[r].first_chunk;
    double left = (double) weft_timeline_round_samples(g, r), used = 0;
    double next = INFINITY, begin;
    for (size_t i = 0; i < g->n_rounds; i++)
        if (most < weft_timeline_round_samples(g, i))
            most = weft_timeline_round_samples(g, i);
    for (size_t k = 0; k < n; k++) {
        double end = px(w, c[k].end.s);
        left -= end < x ? c[k].ended : 0;
        next = end < x ? next : fmin(next, end);
    }
    for (int32_t i = 0; i < g->n_instances; i++) {
        const struct weft_timeline_chunk *has = next_chunk(w, i, x, &begin);
        bool shows = has != NULL;
        /* samples that come show with the end of their first chunk */
        for (size_t k = 0; k < n && has; k++)
            if (c[k].instance == i && px(w, c[k].end.s) < x)
                shows = c[k].left > 0 || px(w, has->end.s) < next + 0.5;
        used += shows ? has->blocks : 0;
    }
    *left_out = isfinite(next) ? left / (double) most : -1;
    *used_out = isfinite(next) ? used / g->blocks / g->n_instances : -1;
}

/* Arrows go from the middle of a row to that of another when samples move, and
 * tell of all of them. */
static void check_arrows(const struct drawn *w)
{
    static const char arrow[] =
        "<path class=\"m\" marker-end=\"url(#move)\" d=\"";
    const struct weft_timeline *g = w->g;
    size_t sum = 0, n;
    for (int i = count(w->svg, arrow) - 1; i >= 0; i--) {
        double x, y[2], top, high, nearest = INFINITY;
        int row[2];
        REQUIRE(sscanf(find(w->svg, arrow, i),
                       "M%lf %lfC%*f %*f %*f %*f %*f %lf\"><title>%zu from "
                       "%d to %d",
                       &x, &y[0], &y[1], &n, &row[0], &row[1])
                == 6);
        for (int k = 0; k < 2; k++) {
            REQUIRE(sscanf(find(w->svg, "<rect x=\"64\" y=\"", row[k]),
                           "%lf\" width=\"1040\" height=\"%lf\"", &top, &high)
                    == 2);
            CHECK(fabs(y[k] - top - high / 2) < 0.02);
        }
        for (size_t k = 0; k < g->n_moves; k++)
            if (g->move[k].from == row[0] && g->move[k].to == row[1])
                nearest = fmin(nearest, fabs(px(w, g->move[k].at.s) - x));
        CHECK(nearest < 0.01);
        sum += n;
    }
    CHECK_INT(sum, g->n_moves);
}

static void check_curves(const struct drawn *w, int n, const double *x)
{
    static struct path samples, blocks;
    int above = count(w->svg, "<path class=\"k\" d=\"") - 1;
    const char *area = find(w->svg, "<path class=\"l\" d=\"", 0);
    double ground, left, used;
    CHECK_INT(above, w->g->n_rows * 24 <= 640 ? w->g->n_instances : 0);
    REQUIRE(sscanf(area, "M%*f %lf", &ground) == 1);
    read_path(area, &samples);
    read_path(find(w->svg, "<path class=\"k\" d=\"", above), &blocks);
    for (int i = 0; i < n; i++) {
        share_at(w, x[i], &left, &used);
        check_level(&samples, x[i], ground, CURVES, left);
        check_level(&blocks, x[i], ground, CURVES, used);
    }
}

/* How many of all lengths are at most so long. */
static size_t count_to(const struct weft_timeline *g, int32_t tokens)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_samples; i++)
        n += g->sample[i].response <= tokens;
    return n;
}

static bool moved(const struct weft_timeline *g, size_t sample)
{
    for (size_t i = 0; i < g->n_moves; i++)
        if ((size_t) g->move[i].sample == sample)
            return true;
    return false;
}

/* Bars stand on one another: samples that stayed, moved, were cut. */
static void check_lengths(const struct drawn *w)
{
    static const char *const class[] = {"s", "mv", "ct"};
    static const double share[] = {0.5, 0.9, 0.99, 1};
    const struct weft_timeline *g = w->g;
    static struct path bars;
    int32_t n[91][3] = {{0}}, longest = 0, most = 0;
    int each, ended = 0;
    REQUIRE(sscanf(find(w->svg, ">tokens of a response, samples by ", 0),
                   "%d (red", &each)
            == 1);
    for (size_t i = 0; i < g->n_samples; i++) {
        int32_t tokens = g->sample[i].response, b = tokens / each;
        n[b][g->sample[i].cut ? 2 : moved(g, i)]++;
        if (n[b][0] + n[b][1] + n[b][2] > most)
            most = n[b][0] + n[b][1] + n[b][2];
        longest = tokens > longest ? tokens : longest;
    }
    int n_bins = longest / each + 1, rows = count(w->svg, "<title>instance ");
    double wide = (double) WIDTH / n_bins, ground = 0;
    CHECK(n_bins <= 66);
    for (int i = count(w->svg, "class=\"a\"/>") - 1; ground <= 0; i--)
        if (find_line(w->svg, "a", i).x2 > LEFT + WIDTH - 1)
            ground = find_line(w->svg, "a", i).y;
    for (int k = 0; k < 3; k++) {
        char word[32];
        snprintf(word, sizeof word, "<path class=\"%s\" d=\"", class[k]);
        read_path(find(w->svg, word, k == 0 ? rows : 0), &bars);
        for (int b = 0; b < n_bins; b++) {
            double sum = n[b][0] + (k > 0) * n[b][1] + (k > 1) * n[b][2];
            double at[] = {0.01, 0.93, 0.95};
            for (int i = 0; i < 3; i++)
                check_level(&bars, LEFT + (b + at[i]) * wide, ground, LENGTHS,
                            n[b][k] > 0 && i < 2 ? sum / most : -1);
            ended += n[b][k];
        }
    }
    CHECK_INT(ended, g->n_samples);
    for (int i = 0; i < 4; i++) {
        static const char *const name[] = {"p50", "p90", "p99", "longest"};
        double wanted = share[i] * (double) g->n_samples - 1e-9;
        int32_t tokens = 0;
        char text[32];
        while ((double) count_to(g, tokens) < wanted)
            tokens++;
        struct line q = find_line(w->svg, "q", i);
        CHECK(fabs(q.x - LEFT - (tokens + 0.5) * wide / each) < 0.01);
        CHECK(fabs(q.x2 - q.x) < 1e-9 && fabs(q.y2 - ground) < 0.01);
        CHECK(q.y < ground - LENGTHS);
        snprintf(text, sizeof text, ">%s: %d</text>", name[i], (int) tokens);
        CHECK_INT(count(w->svg, text), 1);
    }
}

/* Lines when the last samples are chosen, and when all have ended. */
static void check_marks(const struct drawn *w)
{
    const struct weft_timeline *g = w->g;
    double ends = 0;
    for (size_t i = g->round[g->n_rounds - 1].first_chunk; i < g->n_chunks;
         i++)
        ends = fmax(ends, px(w, g->chunk[i].end.s));
    CHECK(fabs(find_line(w->svg, "z", 0).x - ends) < 0.01);
    for (size_t i = 0; i < g->n_triggers; i++)
        CHECK(fabs(find_line(w->svg, "r", (int) i).x
                   - px(w, g->trigger[i].at.s))
              < 0.01);
    for (size_t r = 1; r < g->n_rounds; r++)
        CHECK(fabs(find_line(w->svg, "o", (int) r - 1).x
                   - px(w, g->round[r].start.s))
              < 0.01);
}

/* Each place between two events that a pixel or more parts, near both; what is
 * drawn of inference is 0.3 pixels wide at least. */
static void check_drawn(const struct weft_timeline *g, const char *svg)
{
    static double event[8000], x[16000];
    struct drawn w = {g, svg, 0};
    int n_events = find_events(&w, event), n = 0;
    for (int i = 1; i < n_events; i++)
        if (event[i] - event[i - 1] >= 1) {
            x[n++] = event[i - 1] + 0.35;
            x[n++] = event[i] - 0.03;
        }
    CHECK(n >= 4);
    for (int32_t i = 0; i < g->n_rows && g->n_rows < 10; i++)
        check_row(&w, i, n, x);
    if (g->n_rows * 12 > 640)
        check_colours(&w);
    check_curves(&w, n, x);
    check_lengths(&w);
    check_marks(&w);
    check_arrows(&w);
}

static void test_picture(void)
{
    static const int32_t size[][2] = {{1, 1},  {2, 20}, {8, 16}, {3, 1},
                                      {33, 5}, {64, 2}, {256, 4}};
    for (size_t k = 0; k < sizeof size / sizeof *size; k++)
        for (uint32_t seed = 0; seed < 18; seed++) {
            struct weft_timeline g;
            struct weft_string svg = {0};
            int32_t rounds = 1 + (int32_t) seed / 6;
            make(seed + 100, size[k][0], size[k][1], seed % 2, rounds, &g);
            REQUIRE_OK(weft_timeline_svg(&g, &svg, &err), err);
            check_words(svg.data);
            /* each instance that left some has one arrow, to its partner */
            int arrows = 0;
            for (size_t i = 0; i < g.n_moves; i++)
                arrows += i == 0 || g.move[i].from != g.move[i - 1].from
                       || g.move[i].at.s != g.move[i - 1].at.s;
            CHECK_INT(count(svg.data, "class=\"o\"/>"), rounds - 1);
            CHECK_INT(count(svg.data, " in 3 rounds on "), rounds == 3);
            check_rounds(&g, svg.data);
            check_drawn(&g, svg.data);
            CHECK_INT(count(svg.data, "class=\"m\" marker-end=\"url(#move)\""
                                      " d=\"M"),
                      arrows);
            CHECK(!strstr(svg.data, "nan") && !strstr(svg.data, "inf\""));
            CHECK_INT(count(svg.data, "R_t: "), seed % 2);
            CHECK_INT(count(svg.data, "<svg"), 1);
            CHECK(strstr(svg.data, "generate &amp; &lt;more&gt;") != NULL);
            weft_string_release(&svg);
            weft_timeline_release(&g);
        }
}

/* What is beside it is drawn beneath it, as if it were alone. */
static void test_beside(void)
{
    struct weft_timeline g;
    struct weft_string one = {0}, other = {0}, both = {0};
    make(7, 2, 5, 0, 1, &g);
    REQUIRE_OK(weft_timeline_svg(&g, &one, &err), err);
    put_beside(8, &g);
    REQUIRE_OK(weft_timeline_svg(g.beside, &other, &err), err);
    REQUIRE_OK(weft_timeline_svg(&g, &both, &err), err);
    check_words(one.data);
    check_words(other.data);
    CHECK_INT(count(both.data, "<svg"), 3);
    const char *first = strstr(both.data, strchr(one.data, '>'));
    const char *second = strstr(both.data, strchr(other.data, '>'));
    CHECK(first != NULL && second != NULL && second > first);
    CHECK(second != NULL && strstr(second, "greedily") != NULL);
    weft_string_release(&one);
    weft_string_release(&other);
    weft_string_release(&both);
    weft_timeline_release(&g);
}

/* A long run: what is kept does not grow, nor does the picture, and no sample
 * is lost. */
static void test_bounded(void)
{
    struct weft_timeline g, none = {.n_rows = 0};
    struct weft_string svg = {0};
    REQUIRE_OK(weft_timeline_init(3, &g, &err), err);
    g.n_instances = g.n_rows = 3;
    g.slots = g.blocks = 10;
    weft_timeline_add_round(&g, (struct weft_timeline_when){0, -1});
    for (int32_t i = 0; i < 30; i++)
        weft_timeline_add_sample(
            &g, &(struct weft_timeline_sample){1, 200, false});
    for (int32_t k = 0; k < 200000; k++) {
        if (k % 60000 == 59999)
            weft_timeline_add_round(
                &g, (struct weft_timeline_when){1e-3 * k - 5e-4, -1});
        for (int32_t i = 0; i < 3; i++)
            weft_timeline_add_chunk(
                &g, &(struct weft_timeline_chunk){{1e-3 * k, -1},
                                                  i,
                                                  10 - k / 20001,
                                                  10,
                                                  k % 20000 == 0,
                                                  k % 7,
                                                  4});
    }
    CHECK(g.n_chunks <= WEFT_TIMELINE_CHUNKS && g.n_chunks > 1000);
    int32_t ended = 0, steps = 0;
    for (size_t i = 0; i < g.n_chunks; i++) {
        ended += g.chunk[i].ended;
        steps += g.chunk[i].steps;
    }
    CHECK_INT(ended, 30);
    CHECK_INT(steps, 4 * 3 * 200000);
    CHECK(g.chunk[g.n_chunks - 1].end.s > 199.9);
    CHECK_INT(g.n_rounds, 4);
    for (size_t r = 0; r < g.n_rounds; r++) {
        size_t first = g.round[r].first_chunk;
        size_t n = weft_timeline_round_chunks(&g, r);
        steps = 0;
        for (size_t i = first; i < first + n; i++)
            steps += g.chunk[i].steps;
        CHECK_INT(steps, r == 3 ? 4 * 3 * (200000 - 179999)
                                : 4 * 3 * (60000 - (r == 0)));
        CHECK(g.chunk[first].end.s > g.round[r].start.s);
        CHECK(r == 0 || g.chunk[first - 1].end.s < g.round[r].start.s);
    }
    REQUIRE_OK(weft_timeline_svg(&g, &svg, &err), err);
    CHECK(svg.n < 400000);
    weft_string_release(&svg);
    weft_timeline_release(&g);
    REQUIRE_OK(weft_timeline_svg(&none, &svg, &err), err);
    CHECK(strstr(svg.data, "nothing was generated") != NULL);
    weft_string_release(&svg);
}

WEFT_TESTS("record/timeline", {"test_file", test_file},
           {"test_quantile", test_quantile}, {"test_picture", test_picture},
           {"test_beside", test_beside}, {"test_bounded", test_bounded})
