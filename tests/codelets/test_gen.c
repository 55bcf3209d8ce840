/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation without kernels: what ends a response, and the pages of the KV
 * cache against a plain one. In place of
 * K and V a row writes a hash of its text up to itself, so a row sees what it
 * must when the hashes of all before it are there, whoever wrote them, and
 * whatever was copied, put off or given to others in the meantime.
 */
#include "harness.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "codelets/gen.h"

enum { PAGE = WEFT_PAGE_TOKENS, SLOTS = 6, TEXTS = 14, MOST = 300 };

struct text {
    int32_t n_prompt, n_total, token[MOST];
};

struct bench {
    struct weft_gen_state *state;
    struct weft_gen_view view;
    struct weft_gen_args args;
    struct weft_gen_rows rows;
    struct weft_gen_status status; /* sums */
    uint64_t *cell;                /* (n_pages, PAGE) */
    struct text text[TEXTS];
    int32_t n_texts, next, n_ended;
    uint32_t seed, n_drawn;
    int32_t n_moved, n_refused; /* with their caches; there was no room */
};

static int32_t draw(struct bench *b, int32_t least, int32_t most)
{
    uint32_t word[4];
    weft_rng_words(b->seed, WEFT_RNG_SAMPLE, 1, 2, b->n_drawn++, word);
    return least + (int32_t) (word[0] % (uint32_t) (most - least + 1));
}

static uint64_t hash(const int32_t *token, int32_t n)
{
    uint64_t h = 1;
    for (int32_t i = 0; i < n; i++)
        h = (h + (uint64_t) token[i] + 1) * 0x9e3779b97f4a7c15u;
    return h;
}

static void open_bench(struct bench *b, int32_t n_slots, int32_t n_pages,
                       int32_t prefill, bool sharing)
{
    struct weft_gen_state layout;
    weft_gen_state_layout(n_slots, MOST, n_pages, &layout);
    b->state = weft_alloc(1, layout.bytes);
    *b->state = layout;
    weft_gen_state_clear(b->state);
    b->view = weft_gen_view_of(b->state);
    b->args = (struct weft_gen_args){.prefill_tokens = prefill,
                                     .prefix_sharing = sharing};
    b->rows.run = weft_alloc((size_t) n_slots, sizeof *b->rows.run);
    b->rows.token = weft_alloc((size_t) (n_slots + prefill), 4);
    b->rows.sampled = weft_alloc((size_t) n_slots, 4);
    b->cell = weft_alloc((size_t) n_pages * PAGE, sizeof *b->cell);
}

static void close_bench(struct bench *b)
{
    weft_free(b->state);
    weft_free(b->rows.run);
    weft_free(b->rows.token);
    weft_free(b->rows.sampled);
    weft_free(b->cell);
}

static uint64_t *cell_at(struct bench *b, int32_t slot, int32_t pos)
{
    int32_t page = b->view.page[slot * b->state->pages_per_slot + pos / PAGE];
    return &b->cell[page * PAGE + pos % PAGE];
}

/* What the tasks do with the arena, and that every row sees its text. */
static void write_rows(struct bench *b)
{
    for (int32_t i = 0; i < b->state->n_copies; i++)
        memcpy(&b->cell[b->view.copy[2 * i + 1] * PAGE],
               &b->cell[b->view.copy[2 * i] * PAGE], PAGE * sizeof *b->cell);
    const int32_t *token = b->rows.token;
    for (int32_t r = 0; r < b->rows.n_runs; r++) {
        struct weft_k_run run = b->rows.run[r];
        const int32_t *own = b->view.token + (int64_t) run.slot * MOST;
        for (int32_t pos = run.pos; pos < run.pos + run.n; pos++) {
            CHECK(*token++ == own[pos]);
            *cell_at(b, run.slot, pos) = hash(own, pos + 1);
        }
    }
    for (int32_t r = 0; r < b->rows.n_runs; r++) {
        struct weft_k_run run = b->rows.run[r];
        const int32_t *own = b->view.token + (int64_t) run.slot * MOST;
        bool same = true;
        for (int32_t pos = 0; pos < run.pos + run.n; pos++)
            same = same && *cell_at(b, run.slot, pos) == hash(own, pos + 1);
        CHECK(same);
    }
}

/* Every page is free once, or has as many users as slots that have it, and as
 * many keepers as kept prompts. */
static void check_users(struct bench *b)
{
    struct weft_gen_state *s = b->state;
    int32_t n_pages = s->n_pages, n_free = 0;
    int32_t *users = weft_alloc((size_t) n_pages, sizeof *users);
    int32_t *keepers = weft_alloc((size_t) n_pages, sizeof *keepers);
    int32_t n_idle = 0;
    for (int32_t i = 0; i < 2 * s->n_slots; i++)
        for (int32_t k = 0; k * PAGE < b->view.slot[i].n_cached; k++) {
            int32_t page = b->view.page[i * s->pages_per_slot + k];
            users[page]++;
            keepers[page] += i >= s->n_slots;
        }
    for (int32_t i = 0; i < n_pages; i++)
        n_idle += users[i] > 0 && users[i] == keepers[i];
    CHECK_INT(s->n_idle, n_idle);
    CHECK(memcmp(keepers, b->view.n_keepers, (size_t) n_pages * 4) == 0);
    weft_free(keepers);
    CHECK(memcmp(users, b->view.n_users, (size_t) n_pages * 4) == 0);
    for (int32_t i = 0; i < s->n_free; i++)
        n_free += users[b->view.free_page[i]]++ == 0;
    CHECK_INT(n_free, s->n_free);
    for (int32_t i = 0; i < n_pages; i++)
        CHECK(users[i] > 0);
    weft_free(users);
}

static void step(struct bench *b)
{
    int32_t before[SLOTS], order[SLOTS];
    struct weft_err err;
    for (int32_t i = 0; i < b->state->n_slots; i++)
        before[i] = b->view.slot[i].n_cached;
    weft_gen_drop_ended(&b->view);
    int32_t n = b->state->n_running;
    memcpy(order, b->view.order, (size_t) n * 4);
    weft_gen_plan_rows(&b->view, &b->args, &b->rows, &b->status);
    CHECK(b->rows.n_rows <= b->args.prefill_tokens + n);
    write_rows(b);
    check_users(b);
    /* Who gave pages back was the last that had some. */
    for (int32_t k = 0; k < n; k++)
        if (before[order[k]] > b->view.slot[order[k]].n_cached)
            for (int32_t l = k + 1; l < n; l++)
                CHECK_INT(b->view.slot[order[l]].n_cached, 0);
    for (int32_t i = 0; i < b->rows.n_sampled; i++)
        REQUIRE_OK(weft_gen_put(&b->view, &b->args, b->rows.sampled[i],
                                draw(b, 0, 1), -1, &err),
                   err);
}

static void admit(struct bench *b, int32_t slot)
{
    const struct text *t = &b->text[b->next];
    size_t bytes = sizeof(struct weft_gen_task)
                 + sizeof(struct weft_gen_prompt) + (size_t) t->n_prompt * 4;
    struct weft_gen_task *task = weft_alloc(1, bytes);
    struct weft_gen_prompt *prompt = (void *) (task + 1);
    task->n_admit = 1;
    *prompt = (struct weft_gen_prompt){slot, b->next++, t->n_prompt,
                                       t->n_total};
    memcpy(prompt + 1, t->token, (size_t) t->n_prompt * 4);
    weft_gen_admit(&b->view, task);
    weft_free(task);
}

/* A text leaves its slot and enters it again, as one that comes from elsewhere,
 * with what was in its pages. */
static void move(struct bench *b, int32_t index)
{
    const struct weft_gen_slot was = b->view.slot[index];
    int32_t *own = b->view.token + (int64_t) index * MOST, token[MOST];
    uint64_t cell[MOST];
    memcpy(token, own, (size_t) was.n_total * 4);
    for (int32_t pos = 0; pos < was.n_cached; pos++)
        cell[pos] = *cell_at(b, index, pos);
    weft_gen_free_slot(&b->view, index);
    weft_gen_enter(&b->view, index, was.sample, was.n_prompt, was.n_total,
                   was.limit, token);
    memcpy(own, token, (size_t) was.n_total * 4);
    int32_t n = weft_gen_take_cache(&b->view, index, was.n_cached);
    CHECK(n == 0 || n == (was.n_cached + PAGE - 1) / PAGE);
    CHECK_INT(b->view.slot[index].n_cached, n > 0 ? was.n_cached : 0);
    for (int32_t pos = 0; pos < was.n_cached && n > 0; pos++)
        *cell_at(b, index, pos) = cell[pos];
    b->n_moved += n > 0;
    b->n_refused += n == 0 && was.n_cached > 0;
    check_users(b);
}

/* Retires what has ended, or not yet, moves some, and fills free slots. */
static void control(struct bench *b)
{
    for (int32_t i = 0; i < b->state->n_slots; i++) {
        struct weft_gen_slot *slot = &b->view.slot[i];
        if (slot->sample >= 0 && slot->done && draw(b, 0, 2) == 0) {
            const struct text *t = &b->text[slot->sample];
            CHECK_INT(slot->n_total, t->n_total);
            CHECK(memcmp(b->view.token + i * MOST, t->token,
                         (size_t) t->n_prompt * 4)
                  == 0);
            weft_gen_free_slot(&b->view, i);
            b->n_ended++;
        }
        if (slot->sample >= 0 && !slot->done && draw(b, 0, 30) == 0)
            move(b, i);
        if (slot->sample < 0 && b->next < b->n_texts && draw(b, 0, 2) > 0)
            admit(b, i);
    }
}

/* Texts of two tokens, so that many begin alike; several have one prompt. */
static void draw_texts(struct bench *b)
{
    int32_t common = draw(b, 0, 130);
    for (int32_t i = 0; i < b->n_texts; i++) {
        struct text *t = &b->text[i];
        if (i % 4 > 0 && draw(b, 0, 3) > 0) {
            *t = b->text[i - 1];
        } else {
            t->n_prompt = draw(b, 1, 200);
            for (int32_t k = 0; k < t->n_prompt; k++)
                t->token[k] = k < common ? 1 : draw(b, 0, 1);
        }
        t->n_total = t->n_prompt + draw(b, 1, MOST - t->n_prompt);
    }
}

static void test_pages_random(void)
{
    enum { LEAST = (MOST + PAGE - 1) / PAGE, CASES = 60, STEPS = 60000 };
    int64_t n_preempted = 0, n_shared = 0, n_moved = 0, n_refused = 0;
    for (uint32_t k = 0; k < CASES; k++) {
        struct bench b = {.seed = k, .n_texts = TEXTS};
        int32_t slots = draw(&b, 1, SLOTS), n = 0;
        bool all = k % 4 == 0;
        open_bench(&b, slots,
                   all ? weft_gen_most_pages(slots, MOST)
                       : draw(&b, LEAST, LEAST * slots),
                   draw(&b, 0, 1) ? draw(&b, 1, 8) : draw(&b, 60, 400),
                   k % 3 > 0);
        draw_texts(&b);
        for (; b.n_ended < TEXTS && n < STEPS; n++) {
            control(&b);
            step(&b);
        }
        CHECK_INT(b.n_ended, TEXTS);
        CHECK(b.status.most_pages <= b.state->n_pages);
        if (all)
            CHECK_INT(b.status.n_preempted, 0);
        if (k % 3 == 0)
            CHECK_INT(b.status.n_shared, 0);
        n_preempted += b.status.n_preempted;
        n_shared += b.status.n_shared;
        n_moved += b.n_moved;
        n_refused += b.n_refused;
        close_bench(&b);
    }
    CHECK(n_preempted > 100);
    CHECK(n_shared > 100 * PAGE);
    CHECK(n_moved > 100);
    CHECK(n_refused > 0);
}

/* One prompt of 100 tokens: its samples read it once, and have one of its two
 * pages in common. */
static void test_pages_of_one_prompt(void)
{
    struct bench b = {.n_texts = SLOTS};
    open_bench(&b, SLOTS, weft_gen_most_pages(SLOTS, MOST), 256, true);
    for (int32_t i = 0; i < SLOTS; i++) {
        b.text[i] = (struct text){.n_prompt = 100, .n_total = 110};
        admit(&b, i);
    }
    step(&b);
    CHECK_INT(b.status.n_prefilled, 100);
    CHECK_INT(b.rows.n_sampled, 1);
    step(&b);
    CHECK_INT(b.rows.n_sampled, SLOTS);
    CHECK_INT(b.rows.n_rows, SLOTS);
    CHECK_INT(b.status.n_prefilled, 100);
    CHECK_INT(b.status.n_shared, (SLOTS - 1) * 99);
    CHECK_INT(b.status.most_pages, 1 + SLOTS);
    close_bench(&b);
}

/* Runs the samples that are in slots to their ends and retires them. */
static void run_out(struct bench *b)
{
    int32_t left = 1;
    while (left > 0) {
        step(b);
        left = 0;
        for (int32_t i = 0; i < b->state->n_slots; i++) {
            left += b->view.slot[i].sample >= 0 && !b->view.slot[i].done;
            if (b->view.slot[i].done && b->view.slot[i].sample >= 0)
                weft_gen_free_slot(&b->view, i);
        }
    }
}

/* What a sample that has gone leaves is taken by one that begins alike, and
 * counts as free. */
static void test_pages_of_the_past(void)
{
    struct bench b = {.n_texts = 5};
    open_bench(&b, 1, weft_gen_most_pages(1, MOST), 256, true);
    for (int32_t i = 0; i < 5; i++)
        b.text[i] = (struct text){.n_prompt = 100, .n_total = 110};
    b.text[1].token[70] = 1; /* a system prompt of 70 tokens */
    b.text[2].token[0] = 1;  /* takes the only place */
    admit(&b, 0);
    run_out(&b);
    CHECK_INT(b.status.n_shared, 0);
    CHECK_INT(b.state->n_free + b.state->n_idle, b.state->n_pages);
    CHECK_INT(b.state->n_idle, 2);
    admit(&b, 0);
    run_out(&b);
    CHECK_INT(b.status.n_shared, PAGE); /* 6 more are not worth a copy */
    admit(&b, 0);
    run_out(&b);
    admit(&b, 0);
    run_out(&b);
    CHECK_INT(b.status.n_shared, PAGE);
    CHECK_INT(b.status.most_pages, 2);
    admit(&b, 0);
    run_out(&b);
    CHECK_INT(b.status.n_shared, PAGE + 99);
    weft_gen_state_clear(b.state); /* as for other weights */
    b.next = 0;
    admit(&b, 0);
    run_out(&b);
    CHECK_INT(b.status.n_shared, PAGE + 99);
    close_bench(&b);
}

/* Of what is kept the least recently used goes when a page is wanted. */
static void test_pages_least_used(void)
{
    enum { SLOTS_ = 3, PAGES = 5 };
    struct bench b = {.n_texts = 5};
    open_bench(&b, SLOTS_, PAGES, 400, true);
    for (int32_t i = 0; i < 5; i++) {
        b.text[i] = (struct text){.n_prompt = 64, .n_total = 66};
        b.text[i].token[0] = i < 3 ? i : i - 3;
    }
    b.text[3].token[0] = 0; /* the first again */
    b.text[4] = (struct text){.n_prompt = 200, .n_total = 202};
    b.text[4].token[0] = 7;
    for (int i = 0; i < 4; i++) {
        admit(&b, 0);
        run_out(&b);
    }
    CHECK_INT(b.status.n_shared, 63); /* of the first */
    CHECK_INT(b.state->n_idle, 3);
    admit(&b, 0); /* wants four of five pages: two of the three go */
    run_out(&b);
    CHECK_INT(b.status.n_preempted, 0);
    CHECK_INT(b.state->n_idle + b.state->n_free, PAGES);
    int32_t n_first = 0, n_others = 0;
    for (int32_t i = SLOTS_; i < 2 * SLOTS_; i++)
        if (b.view.slot[i].n_cached > 0) {
            int32_t token = b.view.token[(int64_t) i * MOST];
            n_first += token == 0;
            n_others += token == 1 || token == 2;
        }
    CHECK_INT(n_first, 1);
    CHECK_INT(n_others, 0);
    close_bench(&b);
}

/* Two prompts of 100 tokens, of which one differs: of those before it, fewer
 * than 8 in a page are not worth its copy. */
static void test_pages_of_like_prompts(void)
{
    static const int32_t common[] = {0, 1, 7, 8, 9, PAGE, PAGE + 7, PAGE + 8};
    for (size_t c = 0; c < WEFT_COUNT(common); c++) {
        int32_t rest = common[c] % PAGE;
        int32_t shared = rest < 8 ? common[c] - rest : common[c];
        struct bench b = {.n_texts = 2};
        open_bench(&b, 2, weft_gen_most_pages(2, MOST), 256, true);
        for (int32_t i = 0; i < 2; i++) {
            b.text[i] = (struct text){.n_prompt = 100, .n_total = 110};
            b.text[i].token[common[c]] = i;
            admit(&b, i);
        }
        step(&b);
        step(&b);
        CHECK_INT(b.status.n_shared, shared);
        CHECK_INT(b.status.n_prefilled, 200 - shared);
        close_bench(&b);
    }
}

static int count(const char *text, const char *stop)
{
    int n = 0;
    for (; (text = strstr(text, stop)); text++)
        n++;
    return n;
}

/* A token completes a text when the response then has it once more. */
static void test_stop_text(void)
{
    static const char *const piece[] = {"",    "a", "b",    "ab",
                                        "bab", "c", "aabb", "bb"};
    static const char *const stop[] = {"a", "bb", "aab", "abcab", "bbbbb"};
    enum { N = 12, PIECES = WEFT_COUNT(piece) };
    char bytes[64] = "";
    int64_t at[PIECES + 1] = {0};
    struct bench b = {.seed = 3};
    int n_stopped = 0;
    for (int i = 0; i < PIECES; i++) {
        strcat(bytes, piece[i]);
        at[i + 1] = (int64_t) strlen(bytes);
    }
    for (int k = 0; k < 2000; k++) {
        const char *s = stop[k % (int) WEFT_COUNT(stop)];
        const char *t = stop[k % 7 % (int) WEFT_COUNT(stop)];
        const struct weft_stop_texts text = {.text = {s, t},
                                             .bytes = bytes,
                                             .at = at,
                                             .n = 1 + k % 2,
                                             .n_tokens = PIECES};
        char all[N * 8] = "";
        int32_t token[N];
        CHECK(!weft_gen_is_stopped(&text, 0, token));
        for (int32_t n = 0; n < N; n++) {
            int before = count(all, s), others = count(all, t);
            token[n] = draw(&b, 0, PIECES); /* the last has no bytes */
            strcat(all, token[n] < PIECES ? piece[token[n]] : "");
            bool stopped = weft_gen_is_stopped(&text, n + 1, token);
            CHECK(stopped
                  == (count(all, s) > before
                      || (k % 2 && count(all, t) > others)));
            n_stopped += stopped;
        }
    }
    CHECK(n_stopped > 500);
}

/* A captured step's kernels: one more where it is a loop, which all layers'
 * alone can be; the model's are its stages', but that a step begins and ends in
 * each. */
static void test_graph_nodes(void)
{
    const struct weft_shape s = {.vocab = 64,
                                 .n_layers = 4,
                                 .n_kv_heads = 2,
                                 .n_blocks = 2,
                                 .block = {{.n_kv = 1}, {.n_kv = 1}}};
    const struct weft_stage_layers all = {0, 4, true, true},
                                   first = {0, 3, true, false},
                                   last = {3, 4, false, true},
                                   none = {3, 3, false, false};
    for (int32_t n = 1; n <= 2; n++) {
        struct weft_range range = {0, n};
        int64_t stages = weft_gen_graph_nodes(&s, &first, range)
                       + weft_gen_graph_nodes(&s, &last, range)
                       - weft_gen_graph_nodes(&s, &none, range);
        CHECK_INT(weft_gen_graph_nodes(&s, &all, range), stages + 1);
    }
}

WEFT_TESTS("codelets/gen", {"test_pages_random", test_pages_random},
           {"test_pages_of_one_prompt", test_pages_of_one_prompt},
           {"test_pages_of_the_past", test_pages_of_the_past},
           {"test_pages_least_used", test_pages_least_used},
           {"test_pages_of_like_prompts", test_pages_of_like_prompts},
           {"test_stop_text", test_stop_text},
           {"test_graph_nodes", test_graph_nodes})
