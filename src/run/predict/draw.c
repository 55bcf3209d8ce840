/* SPDX-License-Identifier: Apache-2.0 */
/* Plans at random, as the search has them and as simulated. */
#include "base/rng.h"
#include "run/predict/options_inside.h"

enum { TRIES = 10000 };

/* No restart of the search has this number. */
static int32_t below(uint64_t seed, uint32_t *n_drawn, int32_t n)
{
    double x = (double) weft_rng_uniform(seed, WEFT_RNG_PLAN, UINT32_MAX,
                                         (*n_drawn)++, 0);
    int32_t i = (int32_t) (x * n);
    return i < n ? i : n - 1;
}

/* A choice that fits, or the last that was tried. */
static void choose(const struct weft_search *s,
                   const struct weft_search_problem *p, uint64_t seed,
                   uint32_t *n_drawn, int32_t *choice,
                   struct weft_search_value *v)
{
    for (int k = 0; k < TRIES; k++) {
        for (int32_t c = 0; c < p->n_calls; c++)
            choice[c] = below(seed, n_drawn, p->call[c].n_options);
        *v = weft_search_value(s, choice);
        if (v->bytes <= p->device_bytes)
            break;
    }
}

static int draw(struct weft_finding *f, int32_t n, struct weft_drawn *out,
                struct weft_err *err)
{
    struct weft_search_problem p;
    struct weft_search *s = NULL;
    int64_t options = 0;
    uint32_t n_drawn = 0;
    int rc = weft_finding_problem(f, &p, &options, err);
    if (!rc)
        rc = weft_search_create(&p, &s, err);
    for (int32_t i = 0; i < n && !rc; i++) {
        int32_t choice[WEFT_MAX_CALLS];
        struct weft_search_value v;
        struct weft_simulated simulated = {.iteration_s = 0};
        choose(s, &p, f->find->how.seed, &n_drawn, choice, &v);
        out[i] = (struct weft_drawn){.period_s = v.period, .bytes = v.bytes};
        weft_plan_begin(f->needs, &out[i].plan);
        weft_finding_choose(f, &p, choice, &out[i].plan);
        for (int32_t c = 0; c < p.n_calls; c++)
            out[i].call_s[f->call_of[c]] =
                p.call[c].option[choice[c]].seconds;
        rc = weft_plan_check(&out[i].plan, f->needs, err);
        if (!rc)
            rc = weft_pricer_simulate(f->pricer, &out[i].plan, NULL, NULL,
                                      &simulated, err);
        out[i].simulated = simulated;
        weft_finding_tell(f, WEFT_FIND_SIMULATES, i + 1, n);
    }
    weft_search_free(s);
    return rc;
}

int weft_run_draw(const struct weft_config *config,
                  const struct weft_plan_needs *needs,
                  const struct weft_find *find, int32_t n,
                  struct weft_drawn *out, struct weft_err *err)
{
    struct weft_finding f;
    int rc = weft_finding_open(config, needs, find, &f, err);
    if (!rc)
        rc = draw(&f, n, out, err);
    weft_finding_close(&f);
    return rc;
}
