/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generation: what samples of one prompt gain when they share its part of the
 * KV cache, and lengths with a long tail against fixed batches.
 *
 *     bench/generate [--size 110m|1m] [--dtype f32|bf16] [--devices N]
 *                    [--samples N] [--prompt TOKENS] [--new TOKENS]
 *
 * Tokens per second are those drawn, over the time with the prompts; KV is the
 * most that a device held at one time.
 */
#include "bench/model.h"

#include <math.h>

#include "base/clock.h"
#include "lm/rollout.h"

struct load {
    int32_t n, each, n_prompt, slots, kv_blocks;
    const int32_t *n_new; /* (n) */
    bool sharing;
};

struct measure {
    double seconds;
    struct weft_rollout_stats stats;
};

/* `each` samples have one prompt; prompts differ from their first token. */
static void run(const struct weft_g_model *m, const struct load *load,
                struct measure *out)
{
    struct weft_g_generate gen;
    struct weft_g_view view;
    struct weft_rollout_stats stats;
    int32_t devices = weft_rt_n_devices(context->rt), longest = 0;
    int32_t instances = devices < load->n ? devices : load->n;
    struct weft_gen_args args = {.sampling = {1, 0, 1, 1},
                                 .n_steps = 16,
                                 .prefill_tokens = 256,
                                 .prefix_sharing = load->sharing};
    struct weft_sample *sample = weft_alloc((size_t) load->n, sizeof *sample);
    int32_t *token = weft_alloc((size_t) load->n * (size_t) load->n_prompt,
                                sizeof *token);
    for (int32_t i = 0; i < load->n; i++) {
        int32_t *own = token + (int64_t) i * load->n_prompt;
        for (int32_t k = 0; k < load->n_prompt; k++)
            own[k] = (i / load->each * 7 + k * 37 + 11) % m->shape.vocab;
        sample[i] = (struct weft_sample){.n_prompt = load->n_prompt,
                                         .limit = load->n_prompt
                                                + load->n_new[i],
                                         .token = own};
        if (sample[i].limit > longest)
            longest = sample[i].limit;
    }
    CHECK(weft_g_view_open(seq, &anywhere, m, &m->home, &view, &err));
    CHECK(weft_g_generate_init(
        m, &m->home, instances,
        (int32_t) weft_ceil_div(load->slots, instances), longest,
        args.prefill_tokens, load->kv_blocks, &gen, &err));
    weft_rollout_reset(&gen);
    double start = weft_clock_s();
    CHECK(weft_rollout_run(seq, &gen, &view, &args, load->n, sample, NULL,
                           NULL, &stats, &err));
    CHECK(weft_seq_wait(seq, &err));
    out->seconds += weft_clock_s() - start;
    out->stats.n_decoded += stats.n_decoded;
    out->stats.n_prefilled += stats.n_prefilled;
    out->stats.n_preempted += stats.n_preempted;
    if (stats.most_pages > out->stats.most_pages)
        out->stats.most_pages = stats.most_pages;
    for (int32_t i = 0; i < load->n; i++)
        weft_tile_release(sample[i].rollout);
    weft_g_generate_release(&gen);
    weft_g_view_close(&view);
    weft_free(sample);
    weft_free(token);
}

static void print(const struct weft_shape *shape, const char *name,
                  const struct measure *m)
{
    printf("%-34s %7.0f tok/s  %6lld rows of prompts  %6.1f MiB of KV, "
           "%lld put off\n",
           name, (double) m->stats.n_decoded / m->seconds,
           (long long) m->stats.n_prefilled,
           (double) m->stats.most_pages * (double) weft_kv_page_bytes(shape)
               / (1 << 20),
           (long long) m->stats.n_preempted);
    fflush(stdout);
}

static void sharing(const struct weft_g_model *m, int32_t n, int32_t n_prompt,
                    int32_t n_new)
{
    static const int32_t each[] = {1, 8, 32};
    int32_t *length = weft_alloc((size_t) n, sizeof *length);
    for (int32_t i = 0; i < n; i++)
        length[i] = n_new;
    printf("%d samples, prompts of %d tokens, %d new\n", n, n_prompt, n_new);
    for (int k = 0; k < 3; k++)
        for (int on = 0; on < 2; on++) {
            char name[64];
            struct measure sum = {0};
            const struct load load = {n, each[k], n_prompt, n,
                                      0, length,  on != 0};
            run(m, &load, &sum);
            snprintf(name, sizeof name, "%2d per prompt, sharing %s", each[k],
                     on ? "on" : "off");
            print(&m->shape, name, &sum);
        }
    weft_free(length);
}

static int ascending(const void *a, const void *b)
{
    return *(const int32_t *) a - *(const int32_t *) b;
}

/* Lengths are log-normal, with a p99.9 of 12 times the median, as long-tailed
 * as those of LMSYS-Chat. In fixed batches nobody follows on who has ended. */
static void long_tail(const struct weft_g_model *m, int32_t n,
                      int32_t n_prompt, int32_t median)
{
    enum { SLOTS = 8 };
    int32_t *length = weft_alloc((size_t) n, sizeof *length);
    int32_t *sorted = weft_alloc((size_t) n, sizeof *sorted);
    struct measure fixed = {0}, going = {0}, tight = {0};
    for (int32_t i = 0; i < n; i++)
        length[i] = sorted[i] = 1
                              + (int32_t) (median
                                           * exp(0.8
                                                 * weft_rng_normal(
                                                     1, WEFT_RNG_LENGTH, 0, 0,
                                                     (uint32_t) i)));
    qsort(sorted, (size_t) n, sizeof *sorted, ascending);
    printf("%d samples in %d slots; new tokens: median %d, p90 %d, p99 %d, "
           "most %d, which is %.1f medians\n",
           n, SLOTS, sorted[n / 2], sorted[n * 9 / 10], sorted[n * 99 / 100],
           sorted[n - 1], (double) sorted[n - 1] / sorted[n / 2]);
    struct load load = {n, 1, n_prompt, SLOTS, 0, length, false};
    run(m, &load, &going);
    load.kv_blocks = going.stats.most_pages * 2 / 3;
    int32_t least = weft_gen_most_pages(1, n_prompt + sorted[n - 1]);
    load.kv_blocks = load.kv_blocks < least ? least : load.kv_blocks;
    run(m, &load, &tight);
    load.kv_blocks = 0;
    for (int32_t i = 0; i < n; i += SLOTS) {
        load.n_new = length + i;
        load.n = n - i < SLOTS ? n - i : SLOTS;
        run(m, &load, &fixed);
    }
    print(&m->shape, "fixed batches", &fixed);
    print(&m->shape, "slots filled again", &going);
    print(&m->shape, "slots filled again, 2/3 of the KV", &tight);
    weft_free(length);
    weft_free(sorted);
}

int main(int argc, char **argv)
{
    const char *size = "110m", *dtype = "f32";
    int devices = 1, n = 32, n_prompt = 200, n_new = 32;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--size") == 0)
            size = argv[i + 1];
        else if (strcmp(argv[i], "--dtype") == 0)
            dtype = argv[i + 1];
        else if (strcmp(argv[i], "--devices") == 0)
            devices = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--samples") == 0)
            n = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--prompt") == 0)
            n_prompt = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--new") == 0)
            n_new = atoi(argv[i + 1]);
    }
    struct weft_g_model m;
    struct weft_shape shape;
    open_model(size, dtype, devices, false, &shape, &m);
    sharing(&m, n, n_prompt, n_new);
    long_tail(&m, 4 * n, 16, n_new);
    return 0;
}
