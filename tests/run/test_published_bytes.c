/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published weights in recordings of jobs with GPUs, which no GPU is needed
 * for: each tile has the bytes of the order that its place's devices read.
 * Those are counted here from the model's sizes, row by row for GPUs and panel
 * by panel for CPU devices.
 */
#include <config.h>

#include "described_run.h"

/* Sizes that are no multiples of a panel's 32 rows: hidden 80, and of the two
 * tensor blocks the second has 80 of 208 columns and 172 of 300 tokens. */
enum {
    HIDDEN = 80,
    LAYERS = 3,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 16,
    COLUMNS = 208,
    VOCAB = 300,
    BLOCKS = 2
};
enum { DEVICES = 4, MOST_TILES = 256 };

static struct fixture fixture;

/* ---- Closed forms ------------------------------------------------------- */

static size_t up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Row by row, with rows of zero up to a whole panel, as products and the pieces
 * that move between places have them. */
static size_t rows_bytes(size_t n, size_t k, size_t element)
{
    return up(n, 32) * (k * element);
}

/* Panels of 32 rows; in bf16 two numbers of a row lie side by side. */
static size_t panels_bytes(size_t n, size_t k, size_t element)
{
    size_t panel = element == 2 ? (k + 1) / 2 * 32 * 2 * 2 : k * 32 * 4;
    return (n + 31) / 32 * panel;
}

struct form {
    size_t element;
    bool is_rows;
};

static size_t matrix(const struct form *f, size_t n, size_t k)
{
    return up(f->is_rows ? rows_bytes(n, k, f->element)
                         : panels_bytes(n, k, f->element),
              64);
}

static size_t vector(size_t n)
{
    return up(n * 4, 64);
}

/* MLP columns and vocabulary are dealt to blocks by 64. */
static size_t part_of(size_t n, int block)
{
    size_t first = (n + 63) / 64 / BLOCKS * 64;
    return block == 0 ? first : n - first;
}

struct sizes {
    size_t bytes[MOST_TILES];
    int n;
};

static void add(struct sizes *s, size_t bytes)
{
    REQUIRE(s->n < MOST_TILES);
    s->bytes[s->n++] = bytes;
}

/* The matrices of a layer, and of the head, in the order that products read. */
static void add_matrices(struct sizes *s, const struct form *f, int block,
                         bool has_head)
{
    size_t heads = (HEADS + 2 * KV_HEADS) / BLOCKS * HEAD_DIM,
           columns = up(part_of(COLUMNS, block), 32);
    for (int l = 0; l < LAYERS; l++)
        add(s, matrix(f, heads, HIDDEN)
                   + matrix(f, HIDDEN, HEADS / BLOCKS * HEAD_DIM)
                   + matrix(f, 2 * columns, HIDDEN)
                   + matrix(f, HIDDEN, columns));
    if (has_head)
        add(s, matrix(f, part_of(VOCAB, block), HIDDEN));
}

/* Forward tiles at the place of a member that has one block. A head that is a
 * vector lies with the last norm. */
static void add_forward(struct sizes *s, const struct form *f, int block,
                        bool has_head)
{
    add_matrices(s, f, block, has_head);
    for (int l = 0; l < LAYERS; l++)
        add(s, 2 * vector(HIDDEN)); /* norms */
    add(s, up(part_of(VOCAB, block) * HIDDEN * f->element, 64));
    add(s, (has_head ? 1 : 2) * vector(HIDDEN));
}

/* Transposed tiles: a matrix's columns, up to a whole panel, are their rows. */
static void add_transposed(struct sizes *s, const struct form *f, int block,
                           bool has_head)
{
    size_t heads = (HEADS + 2 * KV_HEADS) / BLOCKS * HEAD_DIM,
           columns = up(part_of(COLUMNS, block), 32), hidden = up(HIDDEN, 32);
    for (int l = 0; l < LAYERS; l++)
        add(s, matrix(f, HIDDEN, up(heads, 32))
                   + matrix(f, HEADS / BLOCKS * HEAD_DIM, hidden)
                   + matrix(f, HIDDEN, 2 * columns)
                   + matrix(f, columns, hidden));
    if (has_head)
        add(s, matrix(f, HIDDEN, up(part_of(VOCAB, block), 32)));
}

/* ---- Recordings --------------------------------------------------------- */

/* Generation has the devices from `generates` on, everything else two others,
 * all with tp 2. */
static const char *plan_word(int generates, int n_gpus)
{
    static const char *const call[] = {"actor_generate", "ref_infer",
                                       "critic_infer", "actor_train",
                                       "critic_train"};
    static char word[600];
    snprintf(word, sizeof word, "plan=%s/plan.json", fixture.dir);
    FILE *f = fopen(word + strlen("plan="), "w");
    REQUIRE(f != NULL);
    fprintf(f,
            "{\"format\": 1, \"nodes\": 1, \"devices\": %d, \"gpus\": %d, "
            "\"calls\": {",
            DEVICES, n_gpus);
    for (size_t c = 0; c < WEFT_COUNT(call); c++)
        fprintf(f,
                "%s\n\"%s\": {\"mesh\": {\"node\": 0, \"nodes\": 1, "
                "\"device\": %d, \"devices\": 2}, \"dp\": 1, \"tp\": 2, "
                "\"pp\": 1}",
                c ? "," : "", call[c], c == 0 ? generates : 2 - generates);
    fprintf(f, "}}\n");
    fclose(f);
    return word;
}

static void record(int generates, int n_gpus, const char *dtype,
                   struct described_run *out)
{
    struct weft_err err;
    struct weft_g_job job = {1, DEVICES, true, n_gpus, false};
    const char *word[] = {plan_word(generates, n_gpus),
                          dtype,
                          "runtime.place=device",
                          "numerics.exact=false",
                          "numerics.tensor_blocks=2",
                          n_gpus > 0 ? "runtime.devices=gpu"
                                     : "runtime.devices=4"};
    describe_run(&fixture, &job, (int) WEFT_COUNT(word), word, out);
    REQUIRE_OK(weft_run_record_bound(out->t, false, &out->r, &err), err);
}

/* ---- One beside the other ----------------------------------------------- */

static int compare(const void *a, const void *b)
{
    size_t x = *(const size_t *) a, y = *(const size_t *) b;
    return (x > y) - (x < y);
}

/* A place has these tiles of weights, and no others. */
static void check_place(const struct weft_recording *r, int place,
                        struct sizes *want)
{
    struct sizes has = {.n = 0};
    for (int64_t i = 0; i < r->n_tiles; i++)
        if (r->tile[i].place == place && r->tile[i].whole < 0
            && r->tile[i].mem == WEFT_MEM_WEIGHTS)
            add(&has, r->tile[i].bytes);
    qsort(has.bytes, (size_t) has.n, sizeof *has.bytes, compare);
    qsort(want->bytes, (size_t) want->n, sizeof *want->bytes, compare);
    CHECK_INT(has.n, want->n);
    for (int i = 0; i < has.n && i < want->n; i++)
        CHECK_INT(has.bytes[i], want->bytes[i]);
}

/* Devices 0 and 1 are GPUs, or none is. Actor and critic are trained at one
 * pair of devices, which has the reference, too; what the actor publishes comes
 * to the other pair, twice: for this iteration's generation and for the next
 * one's. Where that is of another kind, matrices come in the order of their
 * home, and are put into the other one. */
static void check_tiles(int generates, int n_gpus, bool is_bf16)
{
    struct described_run d;
    record(generates, n_gpus,
           is_bf16 ? "numerics.dtype=bf16" : "numerics.dtype=f32", &d);
    for (int p = 0; p < DEVICES; p++) {
        struct sizes want = {.n = 0};
        struct form f = {is_bf16 ? 2 : 4, is_bf16 && p < n_gpus};
        struct form other = {f.element, is_bf16 && n_gpus > 0 && p >= n_gpus};
        int block = p % 2;
        bool has_moved = p / 2 == generates / 2;
        for (int i = 0; i < 2 && has_moved; i++) {
            add_forward(&want, &f, block, true);
            if (f.is_rows != other.is_rows)
                add_matrices(&want, &other, block, true);
        }
        for (int model = 0; model < 3 && !has_moved; model++) {
            bool is_critic = model == 1, is_reference = model == 2;
            add_forward(&want, &f, block, !is_critic);
            if (!is_reference)
                add_transposed(&want, &f, block, !is_critic);
        }
        check_place(&d.r, p, &want);
    }
#ifdef WEFT_HAVE_CUDA
    CHECK((d.r.scratch_bytes > 0) == (n_gpus > 0));
#else
    CHECK_INT(d.r.scratch_bytes, 0); /* weft plan says that it is not known */
#endif
    forget_run(&d);
}

static void test_published_bytes(void)
{
    struct weft_init_options o = fixture_model();
    char path[512], small[512];
    fixture_make(&fixture);
    snprintf(path, sizeof path, "%s/model", fixture.dir);
    snprintf(small, sizeof small, "%s/small-model", fixture.dir);
    REQUIRE(rename(path, small) == 0);
    o.family = WEFT_LLAMA;
    o.hidden = HIDDEN;
    o.layers = LAYERS;
    o.heads = HEADS;
    o.kv_heads = KV_HEADS;
    o.head_dim = HEAD_DIM;
    o.intermediate = COLUMNS;
    o.vocab = VOCAB;
    o.tied = false;
    fixture_init_model(&fixture, "model", &o);
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
        for (int n_gpus = 0; n_gpus <= 2; n_gpus += 2)
            for (int generates = 0; generates <= 2; generates += 2)
                check_tiles(generates, n_gpus, is_bf16);
    fixture_remove(&fixture);
}

WEFT_TESTS("run/published_bytes",
           {"test_published_bytes", test_published_bytes})
