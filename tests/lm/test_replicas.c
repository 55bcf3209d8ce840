/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many devices serve a replica (lm/replicas.h): by costs that are made up,
 * the least of all dp x tp, of which each is played token by token here; and
 * by the rule without costs.
 */
#include <math.h>

#include "harness.h"
#include "lm/init.h"
#include "lm/replicas.h"
#include "plan/draw.h"

enum { LAYERS = 3, MOST = 400, BLOCKS = 8 };

static struct weft_err err;

/* ---- Costs --------------------------------------------------------------- */

/* Seconds of a task: linear. */
struct price {
    double task, row, key;
};

/* Of members that compute so many blocks; task below 0: not measured. */
struct prices {
    struct price decodes[BLOCKS + 1], infers[BLOCKS + 1];
    struct price layer, head; /* of a device alone, which infers by layers */
};

enum { MOST_OPS = 2 * BLOCKS + 2, POINTS = 4 };

struct file {
    struct weft_costs_file file;
    struct weft_rec_shape shape[BLOCKS];
    struct weft_cost_op op[MOST_OPS];
    struct weft_cost_point point[MOST_OPS][POINTS];
};

static struct weft_shape shape_of(int32_t n_blocks)
{
    struct weft_init_options o = {.seed = 1, .tokenizer = "bytes"};
    struct weft_arch arch;
    REQUIRE(weft_init_preset("nano", &o));
    o.layers = LAYERS;
    o.hidden = 64;
    o.heads = o.kv_heads = 8;
    o.intermediate = 512;
    o.vocab = 512;
    REQUIRE_OK(weft_init_arch(&o, &arch, &err), err);
    REQUIRE_OK(weft_shape_partition(&arch.shape, n_blocks, &err), err);
    return arch.shape;
}

/* Without operations: then prices are what points say, of any rows and keys. */
static void add(struct file *f, char *name, int32_t shape,
                const struct price *p)
{
    static const double rows[] = {1, 1e5}, keys[] = {0, 1e4};
    int32_t n = f->file.n_ops;
    if (p->task < 0)
        return;
    f->op[n] = (struct weft_cost_op){name, shape, f->point[n], POINTS};
    for (int i = 0; i < POINTS; i++) {
        double r = rows[i / 2], k = keys[i % 2];
        f->point[n][i] = (struct weft_cost_point){
            r, k, 0, 0, p->task + p->row * r + p->key * r * k};
    }
    f->file.op = f->op;
    f->file.n_ops++;
}

static void write_file(const struct prices *p, const struct weft_shape *shape,
                       struct file *f)
{
    static char chunk[] = "gen_chunk", stage[] = "infer_last_stage";
    static char layer[] = "layer_forward", head[] = "logprob";
    *f = (struct file){.file = {.shape = f->shape, .n_shapes = BLOCKS}};
    for (int32_t b = 1; b <= BLOCKS; b++) {
        f->shape[b - 1] = (struct weft_rec_shape){*shape, b};
        add(f, chunk, b - 1, &p->decodes[b]);
        add(f, stage, b - 1, &p->infers[b]);
    }
    add(f, layer, shape->n_blocks - 1, &p->layer);
    add(f, head, shape->n_blocks - 1, &p->head);
}

/* A row and a key take as long as blocks are many; what a task takes besides
 * can be large, or the same for all. */
static void draw_price(int32_t blocks, struct price *out)
{
    *out = (struct price){1e-3 * draw_from(1, 40) * (draw(2) ? blocks : 1),
                          1e-4 * draw_from(1, 9) * blocks,
                          1e-7 * draw_from(0, 30) * blocks};
}

static void draw_prices(struct prices *p)
{
    for (int32_t b = 1; b <= BLOCKS; b++) {
        draw_price(b, &p->decodes[b]);
        draw_price(b, &p->infers[b]);
    }
    draw_price(3, &p->layer);
    draw_price(5, &p->head);
    for (int k = draw(3); k > 0; k--) {
        p->decodes[1 + draw(BLOCKS)].task = -1;
        p->infers[1 + draw(BLOCKS)].task = -1;
    }
}

static double price_s(const struct price *p, double rows, double keys)
{
    return p->task + p->row * rows + p->key * keys;
}

/* Members of a group have blocks / tp blocks, or one more. Below 0: one was not
 * measured. */
static double group_s(const struct price of[], int32_t blocks, int32_t tp,
                      double rows, double keys)
{
    int32_t least = blocks / tp, most = (blocks + tp - 1) / tp;
    if (of[least].task < 0 || of[most].task < 0)
        return -1;
    return fmax(price_s(&of[least], rows, keys),
                price_s(&of[most], rows, keys));
}

/* ---- Generation ---------------------------------------------------------- */

struct case_of {
    int32_t blocks, devices, slots, read_rows;
    int32_t n, prompt[MOST], response[MOST];
};

/* Seconds of an instance: all samples k with k / slots % instances == i. */
static double play(const struct case_of *c, const struct prices *p,
                   int32_t tp, int32_t instances, int32_t slots, int32_t i)
{
    int32_t cached[MOST] = {0}, has[MOST] = {0}, active[MOST], n_active = 0;
    double now = 0;
    for (int32_t next = 0;;) {
        double rows = 0, keys = 0;
        int32_t budget = c->read_rows, left = 0;
        for (; next < c->n && n_active < slots; next++)
            if (next / slots % instances == i)
                active[n_active++] = next;
        if (n_active == 0)
            return now;
        for (int32_t k = 0; k < n_active; k++) {
            int32_t s = active[k], rest = c->prompt[s] + has[s] - cached[s];
            bool reads = rest > 1;
            for (; rest > 0 && (!reads || budget > 0); rest--) {
                rows++;
                keys += ++cached[s];
                budget -= reads;
            }
            has[s] += rest == 0;
        }
        now += group_s(p->decodes, c->blocks, tp, rows, keys);
        for (int32_t k = 0; k < n_active; k++)
            if (has[active[k]] < c->response[active[k]])
                active[left++] = active[k];
        n_active = left;
    }
}

static struct weft_replicas brute(const struct case_of *c,
                                  const struct prices *p)
{
    struct weft_replicas best = {.seconds = INFINITY};
    for (int32_t tp = 1; tp <= c->blocks && tp <= c->devices; tp++) {
        int32_t dp = c->devices / tp, instances = dp < c->n ? dp : c->n;
        int32_t each = (c->n + instances - 1) / instances;
        int32_t slots = c->slots * tp < each ? c->slots * tp : each;
        double last = 0;
        if (group_s(p->decodes, c->blocks, tp, 1, 1) < 0)
            continue;
        for (int32_t i = 0; i < instances; i++)
            last = fmax(last, play(c, p, tp, instances, slots, i));
        if (last < best.seconds * (1 - 1e-9))
            best = (struct weft_replicas){dp, tp, last};
    }
    return best;
}

static int choose(const struct case_of *c, const struct prices *p,
                  int32_t kv_tokens, struct weft_replicas *out)
{
    static struct weft_sample sample[MOST];
    static struct file f;
    const struct weft_shape shape = shape_of(c->blocks);
    const struct weft_replicas_job job = {
        {1, c->devices, false, 0, false}, &shape, &f.file, "costs.json"};
    const struct weft_replicas_samples samples = {c->n, sample, c->slots,
                                                  c->read_rows, kv_tokens};
    write_file(p, &shape, &f);
    for (int32_t k = 0; k < c->n; k++)
        sample[k] = (struct weft_sample){.prompt = k,
                                         .n_prompt = c->prompt[k],
                                         .limit = c->prompt[k]
                                                + c->response[k]};
    return weft_replicas_of_samples(&job, &samples, out, &err);
}

static void check_chosen(const struct weft_replicas *chosen,
                         const struct weft_replicas *best)
{
    CHECK_INT(chosen->tp, best->tp);
    CHECK_INT(chosen->dp, best->dp);
    CHECK(fabs(chosen->seconds / best->seconds - 1) < 1e-5);
}

static const int32_t n_devices[] = {1, 2, 3, 4, 6, 8};
static const int32_t n_blocks[] = {1, 2, 4, 8};

/* One sample, fewer than devices, as many, some, many. */
static int32_t draw_n(int32_t devices)
{
    const int32_t n[] = {1, draw_from(1, devices), devices, draw_from(1, 40),
                         draw_from(41, 200)};
    return n[draw(WEFT_COUNT(n))];
}

static void test_samples(void)
{
    static struct case_of c;
    int32_t n_tp[BLOCKS + 1] = {0}, n_none = 0, n_left = 0;
    for (int turn = 0; turn < 1200; turn++) {
        struct weft_replicas chosen, best;
        struct prices p;
        c.blocks = n_blocks[draw(WEFT_COUNT(n_blocks))];
        c.devices = n_devices[draw(WEFT_COUNT(n_devices))];
        c.slots = draw_from(1, 40);
        c.read_rows = draw_from(1, 60);
        c.n = draw_n(c.devices);
        int32_t prompt = draw_from(1, 50), response = draw_from(1, 30);
        for (int32_t k = 0; k < c.n; k++) {
            c.prompt[k] = draw(2) ? prompt : draw_from(1, 50);
            c.response[k] = draw(4) ? response : draw_from(1, 30);
        }
        draw_prices(&p);
        best = brute(&c, &p);
        if (isinf(best.seconds)) {
            CHECK_FAILS(choose(&c, &p, 0, &chosen), WEFT_ENOTFOUND, err,
                        "'costs.json' does not say what generation of this "
                        "model takes in f32");
            n_none++;
            continue;
        }
        REQUIRE_OK(choose(&c, &p, 0, &chosen), err);
        check_chosen(&chosen, &best);
        n_tp[chosen.tp] += chosen.dp > 1 || chosen.tp == 1;
        n_left += chosen.dp * chosen.tp < c.devices;
    }
    CHECK(n_tp[1] > 100 && n_tp[2] > 100 && n_tp[3] > 5 && n_tp[4] > 5);
    CHECK(n_none > 20 && n_left > 20);
}

/* Waiting for a cache's room takes time, and one prompt is read once. */
static void test_memory_and_prompts(void)
{
    static struct case_of c = {
        .blocks = 4, .devices = 4, .slots = 8, .read_rows = 64, .n = 16};
    struct prices p = {.layer = {0, 0, 0}};
    struct weft_replicas all, enough, few;
    for (int32_t b = 1; b <= BLOCKS; b++)
        p.decodes[b] = (struct price){1, 1e-3 * b, 0};
    for (int32_t k = 0; k < c.n; k++) {
        c.prompt[k] = 10;
        c.response[k] = 20;
    }
    REQUIRE_OK(choose(&c, &p, 0, &all), err);
    REQUIRE_OK(choose(&c, &p, 16 * 30, &enough), err);
    REQUIRE_OK(choose(&c, &p, 40, &few), err);
    CHECK(enough.seconds == all.seconds && few.seconds > 2 * all.seconds);
    /* of a cache that nothing fits the run says so, which begins later */
    REQUIRE_OK(choose(&c, &p, 1, &few), err);
}

/* ---- Inference ----------------------------------------------------------- */

static double batch_s(const struct prices *p, int32_t blocks, int32_t tp,
                      const struct weft_work_rows *r)
{
    if (tp > 1)
        return group_s(p->infers, blocks, tp, r->n_rows, (double) r->n_keys);
    return LAYERS * price_s(&p->layer, r->n_rows, (double) r->n_keys)
         + price_s(&p->head, r->n_targets, 0);
}

static void test_batches(void)
{
    static struct weft_work_rows batch[40];
    static struct file f;
    int32_t n_tp[BLOCKS + 1] = {0};
    for (int turn = 0; turn < 1200; turn++) {
        int32_t blocks = n_blocks[draw(WEFT_COUNT(n_blocks))];
        int32_t devices = n_devices[draw(WEFT_COUNT(n_devices))];
        int32_t n = draw(2) ? draw_from(1, devices) : draw_from(1, 40);
        struct weft_replicas chosen, best = {.seconds = INFINITY};
        const struct weft_shape shape = shape_of(blocks);
        struct prices p;
        draw_prices(&p);
        write_file(&p, &shape, &f);
        for (int32_t i = 0; i < n; i++) {
            batch[i] = (struct weft_work_rows){.n_rows = 0};
            for (int k = draw_from(1, 5); k > 0; k--)
                weft_work_rows_add(&batch[i], 0, draw_from(2, 400));
            batch[i].n_targets = batch[i].n_rows - 1;
        }
        for (int32_t tp = 1; tp <= blocks && tp <= devices; tp++) {
            double of[WEFT_MAX_DEVICES] = {0}, last = 0;
            int32_t dp = devices / tp;
            bool known = true;
            for (int32_t i = 0; i < n; i++) {
                double s = batch_s(&p, blocks, tp, &batch[i]);
                known = known && s >= 0;
                of[i % dp] += s;
                last = fmax(last, of[i % dp]);
            }
            if (known && last < best.seconds * (1 - 1e-9))
                best = (struct weft_replicas){dp, tp, last};
        }
        const struct weft_replicas_job job = {
            {1, devices, false, 0, false}, &shape, &f.file, "costs.json"};
        REQUIRE_OK(weft_replicas_of_batches(&job, n, batch, &chosen, &err),
                   err);
        check_chosen(&chosen, &best);
        n_tp[chosen.tp] += chosen.dp > 1 || chosen.tp == 1;
    }
    CHECK(n_tp[1] > 100 && n_tp[2] > 100 && n_tp[3] > 5 && n_tp[4] > 5);
}

/* ---- The rule ------------------------------------------------------------ */

/* As many replicas as have 32 samples, or 4 micro-batches, each; of equally
 * many blocks for each device. */
static void test_rule(void)
{
    static const struct {
        int32_t blocks, devices, n, tp;
    } of[] = {{8, 1, 1, 1},   {8, 2, 1, 2},   {8, 2, 63, 2},  {8, 2, 64, 1},
              {1, 2, 1, 1},   {8, 3, 1, 1},   {8, 4, 1, 4},   {8, 4, 63, 4},
              {8, 4, 64, 2},  {8, 4, 127, 2}, {8, 4, 128, 1}, {2, 4, 1, 2},
              {8, 6, 1, 2},   {8, 6, 96, 2},  {8, 6, 192, 1}, {8, 8, 63, 8},
              {8, 8, 64, 4},  {8, 8, 128, 2}, {8, 8, 255, 2}, {8, 8, 256, 1},
              {8, 16, 63, 8}, {8, 2, 0, 2}};
    for (size_t i = 0; i < WEFT_COUNT(of); i++) {
        const struct weft_shape shape = shape_of(of[i].blocks);
        const struct weft_replicas_job job = {
            {1, of[i].devices, false, 0, false}, &shape, NULL, NULL};
        const struct weft_replicas_samples samples = {.n = of[i].n};
        struct weft_replicas r;
        REQUIRE_OK(weft_replicas_of_samples(&job, &samples, &r, &err), err);
        CHECK_INT(r.tp, of[i].tp);
        CHECK_INT(r.dp, of[i].devices / of[i].tp);
        REQUIRE_OK(
            weft_replicas_of_batches(&job, of[i].n / 8, NULL, &r, &err), err);
        CHECK_INT(r.tp, of[i].tp);
    }
}

WEFT_TESTS("lm/replicas", {"test_samples", test_samples},
           {"test_memory_and_prompts", test_memory_and_prompts},
           {"test_batches", test_batches}, {"test_rule", test_rule})
