/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that need no search: data parallel, or one layout for all calls. */
#include "plan/layout.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/shares.h"

_Static_assert(sizeof(struct weft_call_plan)
                   == sizeof(struct weft_mesh) + sizeof(struct weft_shares)
                          + 7 * sizeof(int32_t),
               "layouts are compared as bytes");

void weft_plan_release(struct weft_plan *plan)
{
    weft_free(plan->memory);
    weft_free(plan->measured);
    weft_free(plan->replayed);
    *plan = (struct weft_plan){0};
}

void weft_plan_begin(const struct weft_plan_needs *needs,
                     struct weft_plan *out)
{
    *out = (struct weft_plan){.n_nodes = needs->n_nodes,
                              .n_devices = needs->n_devices,
                              .n_gpus = needs->n_gpus,
                              .flow = *needs->flow};
}

int32_t weft_plan_n_used(const struct weft_plan_needs *needs)
{
    return needs->n_gpus > 0 ? needs->n_gpus : needs->n_devices;
}

int32_t weft_plan_most_dp(const struct weft_plan_needs *needs, int32_t call)
{
    const struct weft_flow_call *c = &needs->flow->call[call];
    if (c->kind == WEFT_TRAIN)
        return needs->gradient_groups;
    if (c->kind == WEFT_GENERATE)
        return c->greedy ? needs->n_prompts : needs->n_samples;
    return INT32_MAX;
}

void weft_plan_default(const struct weft_plan_needs *needs,
                       struct weft_plan *out)
{
    weft_plan_begin(needs, out);
    for (int32_t i = 1; i < out->flow.n_calls; i++) {
        struct weft_call_plan *c = &out->call[i];
        int64_t most = (int64_t) needs->n_nodes * weft_plan_n_used(needs);
        if (!weft_flow_placed(&out->flow, i))
            continue;
        most = weft_min64(most, weft_plan_most_dp(needs, i));
        c->mesh = weft_mesh_largest(needs->n_nodes, weft_plan_n_used(needs),
                                    weft_max64(most, 1));
        c->dp = weft_mesh_size(&c->mesh);
        c->tp = c->pp = 1;
    }
}

bool weft_plan_lies_alike(const struct weft_call_plan *a,
                          const struct weft_call_plan *b)
{
    return memcmp(&a->mesh, &b->mesh, sizeof a->mesh) == 0 && a->tp == b->tp
        && a->pp == b->pp && a->contiguous == b->contiguous
        && a->reversed == b->reversed;
}

/* ---- The text of a layout ----------------------------------------------- */

enum { MAX_DEGREE = 1 << 20 };

/* The number at *at, which moves behind it; -1: there is none. */
static int64_t number(const char **at)
{
    const char *p = *at;
    int64_t v = 0;
    if (!isdigit((unsigned char) *p))
        return -1;
    for (; isdigit((unsigned char) *p); p++)
        v = weft_min64(v * 10 + (*p - '0'), MAX_DEGREE);
    *at = p;
    return v;
}

/* "dp2tp2pp1", up to a comma or the end. */
static int parse_degrees(const char *layout, const char **at,
                         struct weft_call_plan *out, struct weft_err *err)
{
    static const char name[3][3] = {"dp", "tp", "pp"};
    int32_t *const degree[3] = {&out->dp, &out->tp, &out->pp};
    while (**at && **at != ',') {
        const char *p = *at;
        int k = 0;
        while (k < 3 && strncmp(p, name[k], 2) != 0)
            k++;
        p += 2;
        int64_t v = k < 3 ? number(&p) : -1;
        if (v < 1)
            return weft_err_set(err, WEFT_EINVAL,
                                "layout '%.100s': '%.40s' must be dp, tp or "
                                "pp with a number of at least 1, like "
                                "dp2tp2pp1",
                                layout, *at);
        if (*degree[k] != 0)
            return weft_err_set(err, WEFT_EINVAL,
                                "layout '%.100s' gives %s twice", layout,
                                name[k]);
        *degree[k] = (int32_t) v;
        *at = p;
    }
    return 0;
}

/* "2:1" or more of it, n bytes. */
static bool parse_shares(const char *at, size_t n, struct weft_shares *out)
{
    const char *end = at + n;
    while (at < end) {
        int64_t share = number(&at);
        if (share < 1 || share > WEFT_SHARE_MOST
            || !weft_shares_add(out, (int32_t) share)
            || (at < end && *at++ != ':'))
            return false;
    }
    return out->n > 0;
}

/* ",zero=1,recompute", or without the first comma, to the end. */
static int parse_options(const char *layout, const char *at,
                         struct weft_call_plan *out, bool *state_out,
                         struct weft_err *err)
{
    *state_out = false;
    for (const char *word; *at; at = word + strcspn(word, ",")) {
        word = *at == ',' ? at + 1 : at;
        size_t n = strcspn(word, ",");
        const char *value = memchr(word, '=', n);
        size_t len = value ? (size_t) (value - word) : n;
        int64_t v = value ? (value++, number(&value)) : -1;
        bool whole = value ? v >= 0 && value == word + n : false;
        if (len == 4 && whole && memcmp(word, "zero", 4) == 0)
            out->zero = (int32_t) v;
        else if (len == 13 && whole && memcmp(word, "micro_batches", 13) == 0)
            out->micro_batches = (int32_t) v;
        else if (len == 6 && memcmp(word, "shares", 6) == 0
                 && parse_shares(word + 7, n - 7, &out->shares))
            continue;
        else if (n == 3 && memcmp(word, "hpz", 3) == 0)
            out->hpz = true;
        else if (n == 9 && memcmp(word, "recompute", 9) == 0)
            out->recompute = true;
        else if (n == 7 && memcmp(word, "offload", 7) == 0)
            out->offload = true;
        else if (n == 17 && memcmp(word, "offload_optimizer", 17) == 0)
            *state_out = true;
        else
            return weft_err_set(
                err, WEFT_EINVAL,
                "layout '%.100s': '%.*s' must be zero=N, hpz, "
                "micro_batches=N, shares=N:N, recompute, "
                "offload or offload_optimizer",
                layout, (int) weft_min64((int64_t) n, 40), word);
    }
    return 0;
}

/* Whether a degree comes, right or wrong, and not an option. */
static bool begins_with_degree(const char *layout)
{
    return strcspn(layout, "=") >= strcspn(layout, ",") && layout[0]
        && layout[1] == 'p';
}

int weft_plan_layout_text(const char *layout, struct weft_call_plan *said,
                          bool *state_out, struct weft_err *err)
{
    const char *at = layout;
    int rc = begins_with_degree(layout)
               ? parse_degrees(layout, &at, said, err)
               : 0;
    return rc ? rc : parse_options(layout, at, said, state_out, err);
}

static int find_mesh(const char *layout, const struct weft_plan_needs *needs,
                     struct weft_call_plan *c, struct weft_err *err)
{
    double size = (double) c->dp * c->tp * c->pp;
    int64_t most = size > MAX_DEGREE ? MAX_DEGREE : (int64_t) size;
    c->mesh = weft_mesh_largest(needs->n_nodes, weft_plan_n_used(needs),
                                most);
    if ((double) weft_mesh_size(&c->mesh) < size)
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s' takes %.0f devices, but a mesh "
                            "is a power of two of a node's %d %s, or "
                            "whole nodes of the %d; the nearest below has %d",
                            layout, size, weft_plan_n_used(needs),
                            needs->n_gpus > 0 ? "GPUs" : "devices",
                            needs->n_nodes, weft_mesh_size(&c->mesh));
    return 0;
}

int weft_plan_uniform(const char *layout, const struct weft_plan_needs *needs,
                      struct weft_plan *out, struct weft_err *err)
{
    struct weft_call_plan all = {0};
    const char *at = layout;
    bool state = false;
    int rc = parse_degrees(layout, &at, &all, err);
    if (!rc && at == layout)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "layout '%.100s' begins with no degree; it must "
                          "be like dp2tp2pp1",
                          layout);
    if (!rc)
        rc = parse_options(layout, at, &all, &state, err);
    all.dp = weft_max32(all.dp, 1);
    all.tp = weft_max32(all.tp, 1);
    all.pp = weft_max32(all.pp, 1);
    if (!rc)
        rc = find_mesh(layout, needs, &all, err);
    if (rc)
        return rc;
    weft_plan_begin(needs, out);
    for (int32_t i = 1; i < out->flow.n_calls; i++) {
        bool trains = weft_flow_trains(&out->flow, i);
        struct weft_call_plan *c = &out->call[i];
        if (!weft_flow_placed(&out->flow, i))
            continue;
        *c = all;
        c->zero = trains ? all.zero : 0;
        c->hpz = trains && all.hpz;
        c->recompute = trains && all.recompute;
        c->offload = trains ? state
                            : weft_flow_frozen(&out->flow, i) && all.offload;
        if (out->flow.call[i].kind == WEFT_GENERATE)
            c->micro_batches = 0;
    }
    return 0;
}
