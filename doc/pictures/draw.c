/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws the pictures of doc/layouts.md, by the functions that runs use, so
 * that they show what the code does: `make pictures`.
 *
 *     doc/pictures/draw mesh|blocks|layer|groups|zero|moves >PICTURE.svg
 *     doc/pictures/draw timeline trace.json >PICTURE.svg
 */
#include "pictures/draw.h"

#include <string.h>

#include "kern/parts.h"
#include "pictures/svg.h"
#include "plan/layout.h"

/* ---- Meshes ---------------------------------------------------------------- */

enum { NODES = 2, DEVICES = 4, BOX = 92 };

static void mesh_devices(const struct weft_plan *plan,
                         const struct weft_call_plan *call)
{
    for (int32_t n = 0; n < NODES; n++) {
        double x = 16 + n * (DEVICES * BOX + 24);
        svg_rect(x - 6, 40, DEVICES * BOX + 6, 88, PAPER, PALE);
        svg_text(x, 56, 12, "start", INK, "node %d", n);
    }
    for (int32_t s = 0; s < call->pp; s++)
        for (int32_t i = 0; i < call->dp; i++)
            for (int32_t k = 0; k < call->tp; k++) {
                int32_t d = weft_plan_device(plan, call, i, s, k);
                double x = 16 + (d / DEVICES) * (DEVICES * BOX + 24)
                         + d % DEVICES * BOX;
                svg_rect(x, 64, BOX - 6, 56, svg_colour[s], "none");
                svg_text(x + 43, 80, 11, "middle", "#fff", "device %d", d);
                svg_text(x + 43, 96, 12, "middle", "#fff", "stage %d", s);
                svg_text(x + 43, 112, 12, "middle", "#fff", "dp %d, tp %d", i,
                         k);
            }
}

static void mesh_small(const struct weft_mesh *mesh, double x,
                       const char *what)
{
    for (int32_t n = 0; n < NODES; n++)
        for (int32_t d = 0; d < DEVICES; d++) {
            bool in = n >= mesh->node && n < mesh->node + mesh->n_nodes
                   && d >= mesh->device && d < mesh->device + mesh->n_devices;
            svg_rect(x + d * 20, 172 + n * 20, 17, 17,
                     in ? svg_colour[0] : "#fff", PALE);
        }
    svg_text(x, 228, 11, "start", INK, "%s", what);
}

void draw_mesh(void)
{
    static const struct {
        struct weft_mesh mesh;
        const char *what;
    } small[] = {{{0, 2, 0, 4}, "all: whole nodes"},
                 {{1, 1, 0, 4}, "node 1"},
                 {{0, 1, 2, 2}, "node 0, devices 2-3"},
                 {{1, 1, 1, 1}, "node 1, device 1"}};
    struct weft_plan plan = {.n_nodes = NODES, .n_devices = DEVICES};
    struct weft_call_plan call = {
        .mesh = {0, NODES, 0, DEVICES}, .dp = 2, .tp = 2, .pp = 2};
    svg_begin(800, 240);
    svg_text(10, 24, 14, "start", INK,
             "A call with dp 2, tp 2, pp 2 on all of 2 nodes x 4 devices");
    mesh_devices(&plan, &call);
    svg_text(10, 160, 14, "start", INK, "Meshes, a row per node");
    for (size_t i = 0; i < WEFT_COUNT(small); i++)
        mesh_small(&small[i].mesh, 16 + (double) i * 190, small[i].what);
    svg_end();
}

/* ---- Tensor blocks ------------------------------------------------------------ */

enum { T = 8, CELL = 52 };

/* The member of tp that has block t. */
static int32_t member_of(int32_t tp, int32_t t)
{
    for (int32_t k = 0; k < tp; k++) {
        struct weft_range r = weft_plan_range(T, tp, k);
        if (t >= r.first && t < r.first + r.n)
            return k;
    }
    return -1;
}

/* Blocks by tp, the roots of each member underlined. */
static void ranges(double x0)
{
    static const int32_t tps[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < WEFT_COUNT(tps); i++) {
        double y = 40 + (double) i * 44;
        svg_text(x0 - 10, y + 16, 12, "end", INK, "tp %d", tps[i]);
        for (int32_t k = 0; k < tps[i]; k++) {
            struct weft_range r = weft_plan_range(T, tps[i], k);
            struct weft_range root[WEFT_MAX_ROOTS];
            int32_t n = weft_k_roots(T, r, root);
            for (int32_t t = r.first; t < r.first + r.n; t++) {
                svg_rect(x0 + t * 30, y, 28, 22, svg_colour[k], "none");
                svg_text(x0 + t * 30 + 14, y + 15, 11, "middle", "#fff", "%d",
                         t);
            }
            for (int32_t j = 0; j < n; j++)
                svg_rect(x0 + root[j].first * 30 + 1, y + 25,
                         root[j].n * 30 - 4, 4, INK, "none");
        }
    }
}

/* A line from each node of a binary tree over n leaves to its parent. */
static void branches(double x0, double y0, double dx, double dy, int32_t n)
{
    for (int32_t size = n / 2, level = 1; size >= 1; size /= 2, level++)
        for (int32_t lo = 0; lo < n; lo += size) {
            double y = y0 + level * dy;
            svg_line(x0 + (lo + size / 2.0) * dx, y,
                     x0 + (lo / (2 * size) * 2 * size + size) * dx, y - dy,
                     PALE);
        }
}

static void node(double x, double y, int32_t size, int32_t lo,
                 const char *fill, bool root)
{
    bool white = strcmp(fill, "#fff") == 0;
    svg_circle(x, y, 15, fill, root ? INK : PALE, root ? 3 : 1);
    if (size == 1)
        svg_text(x, y + 4, 11, "middle", "#fff", "%d", lo);
    else
        svg_text(x, y + 5, 14, "middle", white ? INK : "#fff", "+");
}

/* The tree over the blocks: a node is its member's when all its leaves are;
 * members ship their highest nodes, the join adds the rest. */
static void tree(double x0, int32_t tp)
{
    branches(x0, 52, CELL, 56, T);
    for (int32_t size = T, level = 0; size >= 1; size /= 2, level++)
        for (int32_t lo = 0; lo < T; lo += size) {
            int32_t k = member_of(tp, lo), up = lo / (2 * size) * 2 * size;
            bool own = k == member_of(tp, lo + size - 1);
            bool above = size < T && k == member_of(tp, up)
                      && k == member_of(tp, up + 2 * size - 1);
            node(x0 + (lo + size / 2.0) * CELL, 52 + level * 56, size, lo,
                 own ? svg_colour[k] : "#fff", own && !above);
        }
}

void draw_blocks(void)
{
    svg_begin(800, 290);
    svg_text(10, 20, 14, "start", INK, "T = 8 blocks dealt to tp members");
    ranges(60);
    svg_text(360, 20, 14, "start", INK,
             "The tree of every sum over blocks, with tp 3");
    tree(366, 3);
    svg_text(60, 262, 12, "start", INK, "underlined: roots");
    svg_text(360, 262, 12, "start", INK,
             "coloured: added by its member; thick: a root, which is sent;");
    svg_text(360, 278, 12, "start", INK,
             "white: added by the join, at every place");
    svg_end();
}

/* ---- A layer of a tp group ------------------------------------------------------ */

static void box(double x, double y, double w, const char *fill,
                const char *text)
{
    bool white = strcmp(fill, "#fff") == 0;
    svg_rect(x, y, w, 30, fill, white ? INK : "none");
    svg_text(x + w / 2, y + 19, 12, "middle", white ? INK : "#fff", "%s",
             text);
}

/* Roots to the joins: a place adds up its own before it sends them. */
static void exchange(double from, double to)
{
    svg_arrow(from, 59, to, 77);
    svg_arrow(from, 107, to, 89);
    svg_arrow(from, 59, from + 20, 117);
    svg_arrow(from, 107, from + 15, 121);
    svg_circle(from + 22, 126, 8, "#fff", INK, 1);
    svg_text(from + 22, 130, 12, "middle", INK, "+");
    svg_arrow(from + 30, 130, to, 164);
    svg_arrow(from, 171, to, 171);
    svg_arrow(from, 171, to, 95);
}

void draw_layer(void)
{
    static const char *const step[] = {"x",   "attention", "join", "x_mid",
                                       "MLP", "join",      "y"};
    static const double width[] = {36, 90, 52, 56, 90, 52, 36};
    double at[WEFT_COUNT(step)], x = 76;
    svg_begin(800, 260);
    svg_text(10, 24, 14, "start", INK,
             "A layer's forward in a tp group of 3 members at 2 places");
    for (size_t i = 0; i < WEFT_COUNT(step); i++) {
        at[i] = x;
        x += width[i] + (i == 1 || i == 4 ? 88 : 22);
    }
    for (int p = 0; p < 2; p++) {
        double top = 44 + p * 112;
        svg_rect(8, top - 8, 784, p == 0 ? 104 : 64, PAPER, PALE);
        svg_text(16, top + 12, 12, "start", INK, "place %d", p);
        for (size_t i = 0; i < WEFT_COUNT(step); i++) {
            bool part = i == 1 || i == 4;
            for (int k = 0; k < (part && p == 0 ? 2 : 1); k++) {
                int member = p == 0 ? k : 2;
                box(at[i],
                    top
                        + (part     ? k * 48
                           : p == 0 ? 24
                                    : 0),
                    width[i], part ? svg_colour[member] : "#fff", step[i]);
            }
            if (i > 0 && !part && step[i][0] != 'j')
                svg_arrow(at[i - 1] + width[i - 1], top + (p == 0 ? 39 : 15),
                          at[i] - 1, top + (p == 0 ? 39 : 15));
            if (part)
                for (int k = 0; k < (p == 0 ? 2 : 1); k++)
                    svg_arrow(at[i - 1] + width[i - 1],
                              top + (p == 0 ? 39 : 15), at[i] - 1,
                              top + k * 48 + 15);
        }
    }
    for (int half = 0; half < 2; half++) {
        size_t i = half == 0 ? 1 : 4;
        exchange(at[i] + width[i], at[i + 1] - 1);
    }
    svg_text(10, 232, 12, "start", INK,
             "coloured: a member's device reads the weights of its blocks; "
             "x, x_mid, y: (tokens, hidden) f32, one copy at each place.");
    svg_text(10, 250, 12, "start", INK,
             "join: roots added as in the tree, then bias and residual, with "
             "the same bits at every place.");
    svg_end();
}

/* ---- Gradient groups and 1F1B ---------------------------------------------------- */

enum { G = 4, DP = 2, PP = 4, UNITS = 6 };

static void group_tree(void)
{
    branches(30, 56, 62, 62, G);
    for (int32_t size = G, level = 0; size >= 1; size /= 2, level++)
        for (int32_t lo = 0; lo < G; lo += size) {
            int32_t d = -1;
            for (int32_t i = 0; i < DP; i++) {
                struct weft_range r = weft_plan_range(G, DP, i);
                if (lo >= r.first && lo + size <= r.first + r.n)
                    d = i;
            }
            node(30 + (lo + size / 2.0) * 62, 56 + level * 62, size, lo,
                 d >= 0 ? svg_colour[d] : "#fff", false);
        }
    for (int32_t i = 0; i < DP; i++)
        svg_text(30 + (i + 0.5) * 124, 220, 12, "middle", svg_colour[i],
                 "replica %d", i);
    svg_text(20, 240, 11, "start", INK, "white: at the owner of each bundle");
}

/* When the units of 1F1B run: forward 1, backward 2. */
static void one_f_one_b(double x0)
{
    struct weft_unit unit[PP][2 * UNITS];
    double end[2][PP][UNITS], now[PP] = {0};
    int next[PP] = {0}, left = PP * 2 * UNITS;
    for (int s = 0; s < PP; s++) {
        weft_plan_1f1b(PP, s, UNITS, unit[s]);
        for (int m = 0; m < UNITS; m++)
            end[0][s][m] = end[1][s][m] = -1;
        svg_text(x0 - 6, 64 + s * 40, 12, "end", INK, "stage %d", s);
    }
    while (left > 0)
        for (int s = 0; s < PP; s++) {
            struct weft_unit u = unit[s][next[s] % (2 * UNITS)];
            int from = u.backward ? s + 1 : s - 1, b = u.backward ? 1 : 0;
            double ready = from < 0 || from >= PP
                             ? 0
                             : end[b][from][u.micro_batch];
            if (next[s] == 2 * UNITS || ready < 0)
                continue;
            double start = ready > now[s] ? ready : now[s], w = b ? 2 : 1;
            now[s] = end[b][s][u.micro_batch] = start + w;
            svg_rect(x0 + start * 15, 44 + s * 40, w * 15 - 1, 30,
                     svg_colour[b ? 2 : 0], "none");
            svg_text(x0 + (start + w / 2) * 15, 64 + s * 40, 11, "middle",
                     "#fff", "%d", u.micro_batch);
            next[s]++;
            left--;
        }
}

void draw_groups(void)
{
    svg_begin(800, 256);
    svg_text(10, 24, 14, "start", INK, "Tree over G = 4 gradient groups");
    group_tree();
    svg_text(320, 24, 14, "start", INK,
             "1F1B of a replica: 4 stages, 6 micro-batches");
    one_f_one_b(390);
    svg_text(390, 224, 12, "start", INK,
             "blue: forward; green: backward, in micro-batch order.");
    svg_text(390, 240, 12, "start", INK,
             "Stage s keeps activations of at most 4 - s of them.");
    svg_end();
}

/* ---- ZeRO --------------------------------------------------------------------------- */

/* Bundles of a model of two layers, a tp member: embedding, layers, head. */
enum { BUNDLES = 4 };

static void zero_cells(double x, double y, int32_t replica, bool sharded,
                       int copies)
{
    const double cut = 1.6 * 15; /* tiles differ in size */
    for (int c = copies - 1; c >= 0; c--)
        for (int b = 0; b < BUNDLES; b++) {
            double at = x + b * 15 + c * 3, up = y - c * 3;
            double left = cut - b * 15; /* what replica 0 owns of it */
            left = left < 0 ? 0 : left > 13 ? 13 : left;
            svg_rect(at, up, 13, 15, sharded ? "#fff" : svg_colour[replica],
                     sharded ? PALE : "#fff");
            double width = replica == 0 ? left : 13 - left;
            if (sharded && width > 0)
                svg_rect(at + (replica == 0 ? 0 : left), up, width, 15,
                         svg_colour[replica], "#fff");
        }
}

void draw_zero(void)
{
    static const char *const row[] = {"published weights",
                                      "transposed weights", "optimizer state",
                                      "gradients"};
    static const int from_level[] = {3, 3, 1, 5};
    svg_begin(800, 256);
    svg_text(10, 24, 14, "start", INK,
             "What two replicas (dp 2) at two places keep: embedding, layer "
             "0, layer 1, head");
    for (int level = 0; level < 4; level++) {
        double x = 160 + level * 160;
        svg_text(x, 50, 12, "start", INK, "ZeRO %d", level);
        for (int r = 0; r < 4; r++) {
            if (r == 1 && level == 3) {
                svg_text(x, 78 + r * 34, 12, "start", INK, "made when read");
                continue;
            }
            for (int32_t d = 0; d < DP; d++) {
                /* sets that wait in the tree over groups */
                int sets = r == 3 && level < 2 ? 2 : 1;
                zero_cells(x + d * 72, 66 + r * 34, d, level >= from_level[r],
                           sets);
            }
        }
    }
    for (int r = 0; r < 4; r++)
        svg_text(10, 78 + r * 34, 12, "start", INK, "%s", row[r]);
    svg_text(10, 214, 12, "start", INK,
             "colour: at that replica's place; white: at the other's alone. "
             "Gradients, G = 4: two sets wait in the tree; from ZeRO 2 on");
    svg_text(10, 230, 12, "start", INK,
             "one set accumulates a group and goes to the owners when it is "
             "complete. ZeRO 3 adds buffers in which the owners' pieces");
    svg_text(10, 246, 12, "start", INK,
             "are put together before each use: two layers, the embedding, "
             "the head.");
    svg_end();
}

/* ---- Commands ------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*draw)(void);
    } picture[] = {{"mesh", draw_mesh},   {"blocks", draw_blocks},
                   {"layer", draw_layer}, {"groups", draw_groups},
                   {"zero", draw_zero},   {"moves", draw_moves}};
    for (size_t i = 0; argc == 2 && i < WEFT_COUNT(picture); i++)
        if (strcmp(argv[1], picture[i].name) == 0) {
            picture[i].draw();
            return 0;
        }
    if (argc == 3 && strcmp(argv[1], "timeline") == 0)
        return draw_timeline(argv[2]);
    if (argc > 2 && strcmp(argv[1], "curves") == 0)
        return draw_curves(argc - 2, argv + 2);
    fprintf(stderr, "usage: draw mesh|blocks|layer|groups|zero|moves\n"
                    "       draw curves LABEL=metrics.jsonl...\n"
                    "       draw timeline trace.json\n");
    return 2;
}
