/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inter-stage fusion: decisions beside all that could be decided, simulations
 * beside closed forms and beside a clock that ticks. Times are whole seconds,
 * so that both are equal, not near.
 */
#include "brute_fusion.h"
#include "draw.h"

#include "plan/fusion/bound.h"

static struct weft_err err;

/* ---- Costs -------------------------------------------------------------- */

static double step_s(void *ctx, const struct weft_work_rows *rows)
{
    int32_t n = rows->n_targets, n_more = rows->n_rows - n;
    (void) ctx;
    return 10 + (n > 8 ? n - 8 : 0) + floor((double) n_more / 20)
         + floor((double) rows->n_keys / 150);
}

/* Reading takes longer than copying. */
static double slow_s(void *ctx, const struct weft_work_rows *rows)
{
    return step_s(ctx, rows) + 30 * (rows->n_rows - rows->n_targets);
}

static double infer_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    (void) ctx;
    return 10 * model + n + floor(n_tokens / (model + 2));
}

/* Some larger batches take less than smaller ones. */
static double odd_s(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx;
    return 100 + rows->n_rows * 7 % 40 + (double) rows->n_keys / 100;
}

static double one_s(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx, (void) rows;
    return 1;
}

static double two_at_once_s(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx;
    return rows->n_targets <= 2 ? 1 : 2;
}

static double two_and_each_s(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx;
    return 2 + rows->n_targets;
}

static double two_hundred_s(void *ctx, int32_t model, int32_t n,
                            double n_tokens)
{
    (void) ctx, (void) model, (void) n_tokens;
    return 200.0 * n;
}

static double twenty_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    (void) ctx, (void) model, (void) n_tokens;
    return 20.0 * n;
}

static double thirty_s(void *ctx, int32_t model, int32_t n, double n_tokens)
{
    (void) ctx, (void) model, (void) n_tokens;
    return 30.0 * n;
}

static const struct weft_migrate_costs costs = {NULL, step_s, 0, 1,
                                                1e9,  1,      3, 0};

static double decode_s(const struct weft_migrate_costs *c, int32_t n,
                       int64_t keys)
{
    return c->step_s(NULL, &(struct weft_work_rows){n, n, keys, keys - n});
}

/* ---- Decisions ---------------------------------------------------------- */

static void test_most_batch(void)
{
    struct weft_migrate_costs c = costs;
    for (int odd = 0; odd < 2; odd++)
        for (int32_t each = 0; each <= 60; each += 6)
            for (int32_t most = 0; most <= 50; most += 5) {
                int32_t largest = 1;
                c.step_s = odd ? odd_s : step_s;
                for (int32_t n = 1; n <= most; n++)
                    if (decode_s(&c, n, n * each)
                        <= 1.2 * decode_s(&c, 1, each))
                        largest = n;
                CHECK_INT(weft_migrate_most_batch(&c, each, most), largest);
            }
}

static void test_expect(void)
{
    int32_t seen[30];
    for (int32_t i = 0; i < 30; i++)
        seen[i] = (i ? seen[i - 1] : 0) + draw_from(0, 3);
    for (int32_t n = 0; n <= 30; n++)
        for (int32_t has = 0; has < 40; has++)
            for (int q = 0; q < 10; q++) {
                int32_t longer = 0, expected = 50;
                for (int32_t i = 0; i < n; i++)
                    longer += seen[i] > has;
                for (int32_t v = 50; v > has; v--) {
                    int32_t below = 0;
                    for (int32_t i = 0; i < n; i++)
                        below += seen[i] > has && seen[i] <= v;
                    if (longer * (10 - q) >= 10 && below > 0
                        && 10 * below >= q * longer)
                        expected = v;
                }
                CHECK_INT(weft_migrate_expect(n, seen, has, 50, q / 10.0),
                          expected);
            }
    CHECK_INT(weft_migrate_expect(30, seen, 0, 5, 0.9), 5);
}

static void test_fewest(void)
{
    int32_t m;
    for (int32_t left = 1; left < 30; left++)
        for (int32_t batch = 1; batch < 12; batch++)
            for (int32_t room = 3; room < 20; room++) {
                int32_t least = 1;
                while (least * batch < left || least * room < left * 3)
                    least++;
                REQUIRE_OK(
                    weft_migrate_fewest(left, batch, 3, room, &m, &err), err);
                CHECK_INT(m, least);
            }
    CHECK_FAILS(weft_migrate_fewest(1, 4, 3e9, 2e9, &m, &err), WEFT_EINVAL,
                err, "takes 3.000 GB, and an instance has 2.000 GB");
}

/* Of all sets of instances, the first of those that keep most. */
static void test_stay(void)
{
    for (int round = 0; round < 60; round++) {
        int32_t n = draw_from(1, 8), m = draw_from(0, n), left[8], best = -1;
        uint32_t best_set = 0, set = 0;
        bool stays[8];
        for (int32_t i = 0; i < n; i++)
            left[i] = draw_from(0, 5);
        for (uint32_t s = 0; s < 1u << n; s++) {
            int32_t kept = 0;
            for (int32_t i = 0; i < n; i++)
                kept += s >> i & 1 ? left[i] : 0;
            if (__builtin_popcount(s) == m && kept > best) {
                best = kept;
                best_set = s;
            }
        }
        weft_migrate_stay(n, left, m, stays);
        for (int32_t i = 0; i < n; i++)
            set |= (uint32_t) stays[i] << i;
        CHECK_INT(set, best_set);
    }
}

/* The least that the fullest instance can have, of all ways to deal; -1: there
 * is none within the limits. own: it keeps its samples. */
static double best_deal(int32_t n, const struct weft_migrate_left *left,
                        int32_t m, int32_t batch, double room)
{
    double best = -1;
    int32_t ways = 1;
    for (int32_t s = 0; s < n; s++)
        ways *= m;
    for (int32_t way = 0; way < ways; way++) {
        int32_t count[3] = {0}, rest = way;
        double tokens[3] = {0}, most = 0;
        bool moved[3] = {false}, ok = true;
        for (int32_t s = 0; s < n; s++, rest /= m) {
            int32_t at = rest % m;
            ok = ok && (left[s].instance >= m || left[s].instance == at);
            moved[at] = moved[at] || left[s].instance >= m;
            count[at]++;
            tokens[at] += left[s].prompt + left[s].expected;
        }
        for (int32_t i = 0; i < m; i++) {
            ok = ok
              && (!moved[i] || (count[i] <= batch && tokens[i] <= room));
            most = fmax(most, tokens[i]);
        }
        if (ok && (best < 0 || most < best))
            best = most;
    }
    return best;
}

static void test_deal(void)
{
    int failed = 0;
    for (int round = 0; round < 300; round++) {
        struct weft_migrate_left left[7];
        int32_t n = draw_from(1, 7), m = draw_from(1, 3),
                batch = draw_from(1, 6), to[7];
        int32_t count[3] = {0};
        double room = draw_from(30, 120), tokens[3] = {0}, most = 0;
        bool stays[5] = {m > 0, m > 1, m > 2, false, false};
        bool fits, full[3] = {false};
        for (int32_t s = 0; s < n; s++)
            left[s] = (struct weft_migrate_left){
                draw_from(0, 4), draw_from(1, 9), draw_from(0, 5),
                draw_from(6, 40)};
        for (int32_t s = 0; s < n; s++)
            if (left[s].instance >= m)
                left[s].instance = 3 + left[s].instance % 2;
        REQUIRE_OK(weft_migrate_deal(5, stays, n, left, batch, room, to,
                                     &fits, &err),
                   err);
        double best = best_deal(n, left, m, batch, room);
        failed += !fits;
        CHECK(best >= 0 || !fits);
        for (int32_t s = 0; s < n && fits; s++) {
            bool moves = left[s].instance >= m;
            REQUIRE(to[s] >= 0 && to[s] < m);
            CHECK(moves || to[s] == left[s].instance);
            full[to[s]] = full[to[s]] || moves;
            count[to[s]]++;
            tokens[to[s]] += left[s].prompt + left[s].expected;
        }
        for (int32_t i = 0; i < m && fits; i++) {
            CHECK(!full[i] || (count[i] <= batch && tokens[i] <= room));
            most = fmax(most, tokens[i]);
        }
        /* Graham's bound of list scheduling, where counts do not bind */
        CHECK(!fits || batch < n || most <= 2 * best);
    }
    CHECK(failed > 20 && failed < 280);
}

/* By hand: those with 12, 9 and 2 left to do go in this order, each to the
 * emptier one: of 11 and 6 tokens, then of 11 and 23, then of 21 and 23. */
static void test_deal_by_hand(void)
{
    static const struct weft_migrate_left left[] = {{0, 2, 5, 9},
                                                    {2, 4, 8, 10},
                                                    {2, 1, 0, 9},
                                                    {1, 3, 1, 3},
                                                    {2, 2, 3, 15}};
    static const int32_t expected[] = {0, 0, 0, 1, 1};
    static const bool stays[] = {true, true, false};
    int32_t to[5];
    bool fits;
    REQUIRE_OK(weft_migrate_deal(3, stays, 5, left, 9, 100, to, &fits, &err),
               err);
    CHECK(fits);
    for (int i = 0; i < 5; i++)
        CHECK_INT(to[i], expected[i]);
}

/* Of four instances the first has gone; two of the others have nothing left. */
static void test_decide_among(void)
{
    static const bool among[] = {false, true, true, true};
    static const struct weft_migrate_left left[] = {{2, 10, 1, 2},
                                                    {2, 10, 1, 2}};
    bool stays[4], reads[2];
    int32_t to[2];
    struct weft_migrate_decision d = {
        .stays = stays, .to = to, .reads = reads};
    REQUIRE_OK(
        weft_migrate_decide(&costs, 4, among, NULL, 2, left, 2, &d, &err),
        err);
    CHECK_INT(d.n_stay, 2);
    CHECK(!stays[0] && stays[1] && stays[2] && !stays[3]);
    REQUIRE_OK(
        weft_migrate_decide(&costs, 4, among, NULL, 2, left, 3, &d, &err),
        err);
    CHECK_INT(d.n_stay, 0); /* all that are left: nothing is won */

    /* another generation goes on with the first, which has gone, and the last */
    static const bool beside[] = {true, false, false, true};
    REQUIRE_OK(
        weft_migrate_decide(&costs, 4, among, beside, 2, left, 1, &d, &err),
        err);
    CHECK_INT(d.n_stay, 1);
    CHECK(!stays[0] && !stays[1] && !stays[2] && stays[3]);
    CHECK(to[0] == 3 && to[1] == 3);
    REQUIRE_OK(
        weft_migrate_decide(&costs, 4, among, beside, 2, left, 2, &d, &err),
        err);
    CHECK(!stays[0] && !stays[1] && stays[2] && stays[3]);
}

static double a_step(void *ctx, const struct weft_work_rows *rows)
{
    (void) ctx;
    (void) rows;
    return 1;
}

/* Whether n_tokens are of one of the ranges. */
static bool is_in(int32_t n, const struct weft_migrate_range *range,
                  int32_t n_tokens)
{
    bool is = false;
    for (int32_t k = 0; k < n; k++)
        is = is || (n_tokens >= range[k].first && n_tokens <= range[k].last);
    return is;
}

/* In pieces of up to so many rows, or at once. Short texts are copied, as a
 * step takes 10 s, and so are long ones, as there are keys for each row. */
static void test_reads(void)
{
    struct weft_migrate_costs c = costs;
    int n_read = 0, n_copied = 0, n_all = 0;
    c.link_bytes_per_s = 2;
    for (c.read_rows = 0; c.read_rows <= 40; c.read_rows += 20) {
        struct weft_migrate_range range[WEFT_MIGRATE_RANGES];
        int32_t n_ranges = weft_migrate_cached(&c, 399, range);
        CHECK(n_ranges > 0 && n_ranges < WEFT_MIGRATE_RANGES);
        n_all += n_ranges;
        for (int32_t n = 1; n < 400; n++) {
            double seconds = 0;
            int32_t most = c.read_rows ? c.read_rows : n, keys = 0;
            for (int32_t at = 1, first = 1; at <= n; at++) {
                keys += at;
                if (at - first + 1 < most && at < n)
                    continue;
                bool last = at == n;
                seconds += 10 + (at - first + 1 - last) / 20 + keys / 150;
                keys = 0;
                first = at + 1;
            }
            CHECK(weft_migrate_read_s(&c, n) == seconds);
            CHECK(weft_migrate_reads(&c, n) == (seconds < n / 2.0));
            CHECK(is_in(n_ranges, range, n) == (seconds >= n / 2.0));
            *(seconds < n / 2.0 ? &n_read : &n_copied) += 1;
        }
    }
    CHECK(n_read > 50 && n_copied > 50 && n_all > 4);
}

/* A step for every token or two, which takes more than its copy if it is not
 * full: there are more ranges than are kept, and the last has what follows. */
static void test_many_ranges(void)
{
    struct weft_migrate_costs c = {
        .step_s = a_step, .read_rows = 2, .token_bytes = 1};
    struct weft_migrate_range range[WEFT_MIGRATE_RANGES];
    c.link_bytes_per_s = 1 / 0.505;
    CHECK(weft_migrate_cached(&c, 0, range) == 0);
    CHECK(weft_migrate_cached(&c, 1, range) == 1);
    CHECK(range[0].first == 1 && range[0].last == 1);
    CHECK(weft_migrate_cached(&c, 19, range) == WEFT_MIGRATE_RANGES);
    for (int32_t k = 0; k < WEFT_MIGRATE_RANGES; k++)
        CHECK(range[k].first == 2 * k + 1
              && range[k].last == (k < 7 ? 2 * k + 1 : 19));
}

/* All lengths, or the longest of each of 256 parts. */
static void test_keep(void)
{
    int32_t seen[1000], kept[WEFT_MIGRATE_SEEN];
    for (int32_t i = 0; i < 1000; i++)
        seen[i] = 3 * i;
    for (int32_t n = 0; n <= 1000; n++) {
        int32_t most = n < WEFT_MIGRATE_SEEN ? n : WEFT_MIGRATE_SEEN;
        CHECK(weft_migrate_keep(n, seen, kept) == most);
        for (int32_t k = 0; k < most; k++) {
            int32_t part = 0; /* lengths of this part and those before */
            while ((int64_t) (part + 1) * most <= (int64_t) (k + 1) * n)
                part++;
            CHECK(kept[k] == 3 * (part - 1));
        }
    }
}

static void test_decide(void)
{
    struct weft_migrate_costs c = costs;
    struct weft_migrate_left left[12];
    bool stays[6], reads[12];
    int32_t to[12];
    struct weft_migrate_decision d = {
        .stays = stays, .to = to, .reads = reads};
    for (int32_t s = 0; s < 12; s++) /* two on each */
        left[s] = (struct weft_migrate_left){s / 2, 10, s, s + 1};
    /* nine samples of 16.5 tokens take 11 s, ten 13 s, and one 10 s */
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 0, &d, &err),
               err);
    CHECK_INT(d.most_batch, 9);
    CHECK_INT(d.n_stay, 2);
    CHECK(stays[0] && stays[1] && !stays[2]);
    for (int32_t s = 0; s < 12; s++) /* 10 s to read, 10 + s to copy */
        CHECK(reads[s] == (s > 0));
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 5, &d, &err),
               err);
    CHECK_INT(d.n_stay, 5);
    /* four is said to be the largest batch: three for twelve samples */
    c.most_batch = 4;
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 0, &d, &err),
               err);
    CHECK_INT(d.most_batch, 4);
    CHECK_INT(d.n_stay, 3);
    c.most_batch = 0;
    /* of 22 tokens at most one fits an instance of 30: all go on */
    c.memory_bytes = 30;
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 0, &d, &err),
               err);
    CHECK_INT(d.n_stay, 0);
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 0, left, 0, &d, &err),
               err);
    CHECK_INT(d.n_stay, 0);
    /* 12 * 22 / 45: six; a batch of two would fit, so the limit was memory */
    c.memory_bytes = 45;
    REQUIRE_OK(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 0, &d, &err),
               err);
    CHECK_INT(d.n_stay, 0);
    c.memory_bytes = 21;
    CHECK_FAILS(weft_migrate_decide(&c, 6, NULL, NULL, 12, left, 0, &d, &err),
                WEFT_EINVAL, err, "takes 0.000 GB");
}

/* ---- Simulations -------------------------------------------------------- */

static void random_job(struct weft_overlap_job *job,
                       struct weft_migrate_costs *c,
                       struct weft_overlap_sample *sample, int32_t *seen)
{
    *c = costs;
    c->memory_bytes = draw_from(0, 2) ? 1e9 : draw_from(60, 160);
    c->read_rows = draw_from(0, 2) * draw_from(1, 25);
    *job = (struct weft_overlap_job){
        .costs = c,
        .n_instances = draw_from(1, 6),
        .slots = draw_from(0, 1) * draw_from(1, 6),
        .n_samples = draw_from(1, MOST),
        .sample = sample,
        .most = 40,
        .n_seen = draw_from(0, 1) * 30,
        .seen = seen,
        .n_models = draw_from(0, 3),
        .infer_s = infer_s,
        .load_s = {draw_from(0, 1) * 30, draw_from(0, 1) * 7,
                   draw_from(0, 1) * 200},
        .restore_s = {draw_from(0, 1) * draw_from(0, 300)},
        .move_s = {draw_from(0, 1) * draw_from(0, 50),
                   draw_from(0, 3) ? 0 : 400},
        .micro_tokens = draw_from(1, 120),
        .wait_s = draw_from(0, 1) * draw_from(0, 300),
        .serial = draw_from(0, 4) == 0,
        .at_trigger = draw_from(0, 4) == 0};
    for (int32_t s = 0; s < job->n_samples; s++)
        sample[s] = (struct weft_overlap_sample){
            draw_from(0, job->n_instances - 1), draw_from(1, 20),
            draw_from(0, 3) ? draw_from(1, 9) : draw_from(1, 40), 0};
    for (int32_t i = 0; i < 30; i++)
        seen[i] = i ? seen[i - 1] + draw_from(0, 2) : 1;
}

static void test_ticks(void)
{
    struct weft_migrate_costs c;
    struct weft_overlap_sample sample[MOST];
    struct weft_overlap_job job;
    struct world w;
    int32_t seen[30];
    int n_migrated = 0, n_put_off = 0, n_copied = 0, n_again = 0;
    for (int round = 0; round < 1200; round++) {
        random_job(&job, &c, sample, seen);
        if (draw_from(0, 1)) /* so that some are copied */
            c.step_s = slow_s;
        const struct weft_overlap_when when = {
            draw_from(0, 19) / 20.0,
            draw_from(0, 3),
            draw_from(0, 2),
            {{draw_from(0, 9) / 20.0, draw_from(0, 2)},
             {draw_from(0, 3) / 20.0, 0}},
            draw_from(0, 1) * draw_from(1, 8)};
        struct weft_overlapped out;
        double end_s[MOST], bound;
        int n_stay, all;
        REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, end_s, &err),
                   err);
        all = ticked(&w, &job, &when, &n_stay);
        for (int s = 0; s < job.n_samples; s++)
            CHECK_INT(end_s[s], w.end[s]);
        CHECK_INT(out.all_s, all);
        CHECK_INT(out.n_stay, n_stay);
        REQUIRE_OK(weft_overlap_bound(&job, &bound, &err), err);
        CHECK(bound <= out.all_s);
        n_migrated += n_stay > 0;
        n_again += out.n_migrated > 1;
        n_put_off += out.n_put_off;
        n_copied += out.n_moved - out.n_read;
    }
    CHECK(n_migrated > 200 && n_put_off > 200 && n_copied > 100);
    CHECK(n_again > 50);
}

/* One instance: all samples are read in a step, and go on together. */
static void test_one_instance(void)
{
    struct weft_overlap_sample sample[5];
    const struct weft_overlap_job job = {.costs = &costs,
                                         .n_instances = 1,
                                         .n_samples = 5,
                                         .sample = sample,
                                         .most = 40,
                                         .n_models = 1,
                                         .infer_s = infer_s,
                                         .micro_tokens = 1e9};
    const struct weft_overlap_when when = {.share = 0.4};
    struct weft_overlapped out;
    const struct weft_work_rows read = {50, 5, 5 * 55, 0};
    double expected = step_s(NULL, &read);
    for (int s = 0; s < 5; s++)
        sample[s] = (struct weft_overlap_sample){0, 10, 17, 0};
    for (int t = 1; t < 17; t++)
        expected += decode_s(&costs, 5, 5 * (10 + t));
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.generated_s == expected);
    CHECK(out.all_s == expected + infer_s(NULL, 0, 5, 5 * 27));
    CHECK_INT(out.n_stay, 0);
}

/* Equal lengths: all end together, so that there is nothing to gain. */
static void test_equal_lengths(void)
{
    struct weft_overlap_sample sample[24];
    const struct weft_overlap_job job = {.costs = &costs,
                                         .n_instances = 4,
                                         .n_samples = 24,
                                         .sample = sample,
                                         .most = 40,
                                         .n_models = 2,
                                         .infer_s = infer_s,
                                         .micro_tokens = 60};
    struct weft_overlap_when when = {.share = 0};
    struct weft_overlapped out;
    double seconds;
    for (int s = 0; s < 24; s++)
        sample[s] = (struct weft_overlap_sample){s % 4, 10, 25, 0};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    REQUIRE_OK(weft_overlap_choose(1, &job, &when, &seconds, NULL, &err),
               err);
    CHECK(seconds == out.all_s);
    CHECK(when.share == 0);
}

/* Steps of a second; on each of four instances five samples of 10 tokens and
 * one of 100; a sample takes 20 s of inference. Without migration all turn to
 * the 24 samples at 100. With it three do at 10 and have 15 of them at 110,
 * the fourth comes at 100; 9 are left: it has them at 120, 140 and 160, the
 * others six at 130 and 150. */
static void test_long_samples(void)
{
    static const struct weft_migrate_costs free_moves = {
        NULL, one_s, 0, 1, 1e9, INFINITY, 0, 0};
    struct weft_overlap_sample sample[24];
    struct weft_overlap_job job = {.costs = &free_moves,
                                   .n_instances = 4,
                                   .n_samples = 24,
                                   .sample = sample,
                                   .most = 100,
                                   .n_models = 1,
                                   .infer_s = twenty_s,
                                   .micro_tokens = 1};
    struct weft_overlap_when when = {.share = 0};
    struct weft_overlapped out;
    double seconds;
    for (int s = 0; s < 24; s++)
        sample[s] = (struct weft_overlap_sample){s % 4, 10, s < 20 ? 10 : 100,
                                                 0};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.generated_s == 100 && out.all_s == 220);
    when.share = 4.0 / 24;
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.trigger_s == 10 && out.generated_s == 100 && out.all_s == 160);
    CHECK(out.n_stay == 1 && out.n_moved == 3 && out.n_read == 0);
    CHECK(out.infer_s == 24 * 20);
    REQUIRE_OK(weft_overlap_choose(1, &job, &when, &seconds, NULL, &err),
               err);
    CHECK(seconds == 160);
    job.load_s[0] = 5; /* 4 times 20 s later than 15, at 115 */
    when = (struct weft_overlap_when){.share = 4.0 / 24};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.all_s == 165);
}

/* Four instances, each with two samples of 10 tokens and one longer, of 20, 40,
 * 60 and 100 tokens; a step takes a second, 2 with three samples; a sample
 * takes 30 s of inference. At 20 four are left, for two instances; at 50 two,
 * of which one instance is freed that else would generate to 110, while the
 * other had been free from 70 on. */
static void test_two_migrations(void)
{
    static const struct weft_migrate_costs free_moves = {
        NULL, two_at_once_s, 0, 1, 1e9, INFINITY, 0, 0};
    static const int length[4] = {20, 40, 60, 100};
    static const int end[4] = {30, 50, 70, 110};
    struct weft_overlap_sample sample[12];
    const struct weft_overlap_job job = {.costs = &free_moves,
                                         .n_instances = 4,
                                         .n_samples = 12,
                                         .sample = sample,
                                         .most = 100,
                                         .n_models = 1,
                                         .infer_s = thirty_s,
                                         .micro_tokens = 1};
    struct weft_overlap_when when = {
        .share = 4.0 / 12, .n_later = 1, .later = {{2.0 / 12, 0}}};
    struct weft_overlapped out;
    double seconds, end_s[12];
    for (int s = 0; s < 12; s++)
        sample[s] = (struct weft_overlap_sample){
            s % 4, 10, s < 8 ? 10 : length[s % 4], 0};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, end_s, &err), err);
    CHECK_INT(out.n_migrated, 2);
    CHECK_INT(out.n_stay, 1);
    CHECK_INT(out.n_moved, 3);
    CHECK(out.trigger_s == 20 && out.generated_s == 110);
    for (int s = 0; s < 12; s++)
        CHECK(end_s[s] == (s < 8 ? 20 : end[s % 4]));
    /* At 20 two samples are begun, at 50 three, at 80 three, at 110 four. */
    CHECK(out.all_s == 140);
    REQUIRE_OK(weft_overlap_choose(1, &job, &when, &seconds, NULL, &err),
               err);
    CHECK(seconds <= 140);
    /* At 20, 50, 80 two, at 70, 100 and 130 one, at 110 three. */
    when = (struct weft_overlap_when){.share = 4.0 / 12};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK_INT(out.n_migrated, 1);
    CHECK(out.all_s == 160);
}

/* ---- The choice --------------------------------------------------------- */

/* On each of two instances a sample of 10 tokens and one of 100; a step takes 2
 * s and one more for each sample; a sample takes 200 s of inference. Each alone
 * decodes 40 s with both and 270 with one, and both turn to two samples at 310.
 * Two samples at once are beyond BS_max, 4 s beside 3; with them one instance
 * has both until 400, when it takes one of them, and the other two from 40 on,
 * and then the other. */
static void test_beyond_most_batch(void)
{
    static const struct weft_migrate_costs free_moves = {
        NULL, two_and_each_s, 0, 1, 1e9, INFINITY, 0, 0};
    struct weft_overlap_sample sample[4];
    const struct weft_overlap_job job = {.costs = &free_moves,
                                         .n_instances = 2,
                                         .n_samples = 4,
                                         .sample = sample,
                                         .most = 100,
                                         .n_models = 1,
                                         .infer_s = two_hundred_s,
                                         .micro_tokens = 1};
    struct weft_overlap_when when = {.share = 0.5};
    struct weft_overlapped out;
    double seconds;
    for (int s = 0; s < 4; s++)
        sample[s] = (struct weft_overlap_sample){s % 2, 10, s < 2 ? 10 : 100,
                                                 0};
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.generated_s == 310 && out.all_s == 710);
    CHECK_INT(out.n_stay, 0);
    when.most_batch = 2;
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    CHECK(out.generated_s == 400 && out.all_s == 640);
    CHECK_INT(out.n_stay, 1);
    REQUIRE_OK(weft_overlap_choose(1, &job, &when, &seconds, NULL, &err),
               err);
    CHECK(seconds == 640);
    CHECK_INT(when.most_batch, 4);
}

/* What is chosen is no slower than anything of the grid, nor than nothing. */
static void test_choose(void)
{
    struct weft_migrate_costs c[2];
    struct weft_overlap_sample sample[2][MOST];
    struct weft_overlap_job job[2];
    int32_t seen[2][30];
    int n_chosen = 0;
    for (int round = 0; round < 10; round++) {
        struct weft_overlap_when when;
        struct weft_overlapped out;
        double seconds, sum = 0;
        for (int k = 0; k < 2; k++) {
            random_job(&job[k], &c[k], sample[k], seen[k]);
            job[k].serial = false;
        }
        REQUIRE_OK(weft_overlap_choose(2, job, &when, &seconds, NULL, &err),
                   err);
        n_chosen += when.share > 0;
        for (int k = 0; k < 2; k++) {
            REQUIRE_OK(
                weft_overlap_simulate(&job[k], &when, &out, NULL, &err), err);
            sum += out.all_s;
        }
        CHECK(sum == seconds);
        int most = 0;
        for (int k = 0; k < 2; k++) {
            int slots = job[k].slots > 0 ? job[k].slots : job[k].n_samples;
            most = slots > most ? slots : most;
        }
        for (int p = 0; p < 200; p += 5) {
            when = (struct weft_overlap_when){
                .share = p % 100 / 100.0, .most_batch = p < 100 ? 0 : most};
            sum = 0;
            for (int k = 0; k < 2; k++) {
                REQUIRE_OK(
                    weft_overlap_simulate(&job[k], &when, &out, NULL, &err),
                    err);
                sum += out.all_s;
            }
            CHECK(seconds <= sum);
        }
    }
    CHECK(n_chosen > 0);
}

static void test_too_large(void)
{
    const struct weft_overlap_sample sample = {0, 10, 5, 0};
    struct weft_migrate_costs c = costs;
    const struct weft_overlap_job job = {.costs = &c,
                                         .n_instances = 1,
                                         .n_samples = 1,
                                         .sample = &sample,
                                         .most = 40};
    const struct weft_overlap_when when = {.share = 0.5};
    struct weft_overlapped out;
    c.memory_bytes = 50;
    REQUIRE_OK(weft_overlap_simulate(&job, &when, &out, NULL, &err), err);
    c.memory_bytes = 49;
    CHECK_FAILS(weft_overlap_simulate(&job, &when, &out, NULL, &err),
                WEFT_EINVAL, err, "lower rollout.max_new_tokens");
}

WEFT_TESTS("plan/fusion", {"test_most_batch", test_most_batch},
           {"test_expect", test_expect}, {"test_fewest", test_fewest},
           {"test_stay", test_stay}, {"test_deal", test_deal},
           {"test_deal_by_hand", test_deal_by_hand},
           {"test_reads", test_reads}, {"test_many_ranges", test_many_ranges},
           {"test_keep", test_keep}, {"test_decide", test_decide},
           {"test_decide_among", test_decide_among},
           {"test_ticks", test_ticks},
           {"test_one_instance", test_one_instance},
           {"test_equal_lengths", test_equal_lengths},
           {"test_long_samples", test_long_samples},
           {"test_two_migrations", test_two_migrations},
           {"test_beyond_most_batch", test_beyond_most_batch},
           {"test_choose", test_choose}, {"test_too_large", test_too_large})
