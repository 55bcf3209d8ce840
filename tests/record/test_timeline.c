/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of generation: its file read back, its picture's words, arrows
 * and size, its quantiles by counting. */
#include "record/timeline.h"

#include <math.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "harness.h"

static struct weft_err err;

static int32_t draw(uint32_t seed, int32_t below)
{
    static uint32_t count;
    uint32_t word[4];
    weft_rng_words(seed, WEFT_RNG_SAMPLE, count++, 0, 0, word);
    return (int32_t) (word[0] % (uint32_t) below);
}

/* A round: instances with chunks until their samples have ended; the first half
 * leaves its last samples to the others. Returns the time of the last end. */
static double make_round(uint32_t seed, double start_s, int32_t each,
                         bool moves, struct weft_timeline *g)
{
    int32_t n = g->n_instances;
    size_t at = g->n_samples;
    double last = start_s;
    weft_timeline_add_round(g, (struct weft_timeline_when){start_s, -1});
    for (int32_t i = 0; i < n; i++) {
        double s = start_s;
        bool left = moves && n > 1 && i < n / 2;
        int32_t has = each;
        for (int32_t k = 0; has > 0; k++) {
            int32_t ends = draw(seed, has + 1);
            s += 0.01 * (1 + draw(seed, 9));
            if (left && k == 3)
                break;
            weft_timeline_add_chunk(
                g, &(struct weft_timeline_chunk){
                       {s, -1}, i, has, has - ends, ends, 2 * has, 4});
            has -= ends;
        }
        if (left)
            for (; has > 0; has--)
                weft_timeline_add_move(
                    g, &(struct weft_timeline_move){
                           {s, -1}, (int32_t) at + has - 1, i, i + n / 2});
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
    if (moves)
        weft_timeline_add_trigger(
            g, &(struct weft_timeline_trigger){{3.3, -1}, each});
    g->first_device[n] = 77;
    CHECK(!g->failed);
}

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
        put(&g, &a);
        REQUIRE_OK(weft_file_write(path, a.data, a.n, &err), err);
        REQUIRE_OK(weft_timeline_read(path, &again, &err), err);
        put(&again, &b);
        CHECK_STR(b.data, a.data);
        CHECK_INT(again.n_moves, g.n_moves);
        CHECK_INT(again.n_rounds, 1 + seed % 3);
        CHECK_INT(again.sample[0].cut, g.sample[0].cut);
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

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        n++;
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
           {"test_bounded", test_bounded})
