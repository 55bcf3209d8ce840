/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fixed.h"

#include <string.h>

#include "base/alloc.h"
#include "plan/strategy.h"

/* ---- Reading ------------------------------------------------------------ */

/* Takes over what a word says, where it means something to the call. */
static void fix(const struct weft_dataflow *flow, int32_t call,
                const struct weft_call_plan *said, bool state,
                struct weft_call_plan *out)
{
    bool trains = weft_flow_trains(flow, call);
    out->dp = said->dp > 0 ? said->dp : out->dp;
    out->tp = said->tp > 0 ? said->tp : out->tp;
    out->pp = said->pp > 0 ? said->pp : out->pp;
    if (said->zero >= 0 && trains)
        out->zero = said->zero;
    if (said->micro_batches >= 0 && flow->call[call].kind != WEFT_GENERATE)
        out->micro_batches = said->micro_batches;
    out->hpz = out->hpz || (said->hpz && trains);
    out->recompute = out->recompute || (said->recompute && trains);
    out->offload = out->offload
                || (trains ? state
                           : said->offload && weft_flow_frozen(flow, call));
}

/* The number of the call with that name; -1: there is none. */
static int32_t find_call(const struct weft_dataflow *flow, const char *name,
                         size_t n)
{
    for (int32_t c = 1; c < flow->n_calls; c++)
        if (weft_flow_placed(flow, c) && strlen(flow->call[c].name) == n
            && memcmp(flow->call[c].name, name, n) == 0)
            return c;
    return -1;
}

static int read_ratio(const char *word, const struct weft_plan_needs *needs,
                      struct weft_fixed *out, struct weft_err *err)
{
    struct weft_plan plan;
    int rc = weft_plan_strategy(word, needs, &plan, err);
    for (int32_t c = 1; c < needs->flow->n_calls && !rc; c++)
        if (weft_flow_placed(needs->flow, c))
            out->call[c].mesh = plan.call[c].mesh;
    out->meshes = true;
    return rc;
}

static int check_options(const struct weft_call_plan *said, const char *word,
                         struct weft_err *err)
{
    if (said->shares.n > 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s': shares are not for a search, "
                            "which gives them by the speed of the cluster's "
                            "devices",
                            word);
    if (said->zero > 3)
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s': zero %d must be 0 to 3", word,
                            said->zero);
    return 0;
}

static int read_layout(const char *word, const struct weft_plan_needs *needs,
                       struct weft_fixed *out, struct weft_err *err)
{
    const struct weft_dataflow *flow = needs->flow;
    struct weft_call_plan said = {.zero = -1, .micro_batches = -1};
    size_t n = strcspn(word, ":,=");
    bool one = word[n] == ':', state = false;
    int32_t call = one ? find_call(flow, word, n) : -1;
    if (one && call < 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s': '%.*s' is no call of the run "
                            "with a place; 'weft plan --graph' lists them",
                            word, (int) weft_min64((int64_t) n, 40), word);
    if (one && word[n + 1] == 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s': '' must be zero=N or another "
                            "part of a layout",
                            word);
    int rc = weft_plan_layout_text(one ? word + n + 1 : word, &said, &state,
                                   err);
    if (!rc)
        rc = check_options(&said, word, err);
    for (int32_t c = 1; c < flow->n_calls && !rc; c++)
        if (weft_flow_placed(flow, c) && (!one || c == call))
            fix(flow, c, &said, state, &out->call[c]);
    return rc;
}

static int read_word(const char *word, const struct weft_plan_needs *needs,
                     struct weft_fixed *out, struct weft_err *err)
{
    static const char ratio[] = "ratio=";
    if (strncmp(word, ratio, sizeof ratio - 1) == 0)
        return read_ratio(word, needs, out, err);
    if (weft_strategy_is(word) || weft_strategy_is_divided(word))
        return weft_err_set(err, WEFT_EINVAL,
                            "layout '%.100s' is a whole plan: leave out "
                            "plan: auto and --search, with which layout says "
                            "what a search may not change, like tp2,zero=1 "
                            "or ratio=ROLE:SHARE,...",
                            word);
    return read_layout(word, needs, out, err);
}

int weft_fixed_read(const char *text, const struct weft_plan_needs *needs,
                    struct weft_fixed *out, struct weft_err *err)
{
    int rc = 0;
    *out = (struct weft_fixed){.meshes = false};
    for (int32_t c = 0; c < WEFT_MAX_CALLS; c++)
        out->call[c].zero = out->call[c].micro_batches = -1;
    for (const char *at = text; at && !rc;) {
        at += strspn(at, " ");
        size_t n = strcspn(at, " ");
        if (n == 0)
            break;
        char *word = weft_strndup(at, n);
        out->any = true;
        rc = word ? read_word(word, needs, out, err)
                  : weft_err_nomem(err, "a layout", n);
        weft_free(word);
        at += n;
    }
    return rc;
}

/* ---- Asking ------------------------------------------------------------- */

static bool is(int32_t fixed, int32_t value)
{
    return fixed <= 0 || fixed == value;
}

bool weft_fixed_apply(const struct weft_fixed *fixed, int32_t call,
                      struct weft_call_plan *p)
{
    const struct weft_call_plan *f = &fixed->call[call];
    if (!is(f->dp, p->dp) || !is(f->tp, p->tp) || !is(f->pp, p->pp)
        || (f->mesh.n_nodes > 0
            && (f->mesh.n_nodes != p->mesh.n_nodes
                || f->mesh.n_devices != p->mesh.n_devices)))
        return false;
    p->zero = f->zero >= 0 ? f->zero : p->zero;
    p->micro_batches = f->micro_batches >= 0 ? f->micro_batches
                                             : p->micro_batches;
    p->hpz = p->hpz || f->hpz;
    p->recompute = p->recompute || f->recompute;
    p->offload = p->offload || f->offload;
    return true;
}

bool weft_fixed_allows(const struct weft_fixed *fixed, int32_t call,
                       const struct weft_mesh *mesh)
{
    const struct weft_mesh *m = &fixed->call[call].mesh;
    return m->n_nodes == 0 || memcmp(m, mesh, sizeof *m) == 0;
}

bool weft_fixed_holds(const struct weft_fixed *fixed,
                      const struct weft_plan *plan)
{
    for (int32_t c = 1; c < plan->flow.n_calls; c++) {
        const struct weft_call_plan *p = &plan->call[c];
        struct weft_call_plan as = *p;
        if (weft_flow_placed(&plan->flow, c)
            && (!weft_fixed_apply(fixed, c, &as)
                || !weft_fixed_allows(fixed, c, &p->mesh)
                || as.zero != p->zero || as.micro_batches != p->micro_batches
                || as.hpz != p->hpz || as.recompute != p->recompute
                || as.offload != p->offload))
            return false;
    }
    return true;
}
