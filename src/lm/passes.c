/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/passes.h"

#include "base/alloc.h"
#include "codelets/generation.h"
#include "codelets/work.h"

/* Tasks of a kind that a stage runs one after another. Members of a tp group
 * have one each, which run at the same time. */
struct part {
    enum { STEP, LAYER, HEAD } what;
    int32_t stage;
    int32_t times;
    int64_t first; /* task; then those of the other members */
    int32_t n;
};

struct weft_pass_price {
    struct weft_costs *costs;
    const struct weft_shape *shape;
    const struct weft_g_layout *layout;
    bool meets; /* members of a stage are GPUs that decode a step as one */
    struct weft_recording r;
    struct part part[2 * WEFT_MAX_STAGES];
    int32_t n_parts;
};

static int32_t n_layers(const struct weft_pass_price *p, int32_t stage)
{
    return p->layout->first_layer[stage + 1] - p->layout->first_layer[stage];
}

static struct weft_work work_of(const struct weft_pass_price *p,
                                const struct part *part, int32_t member,
                                const struct weft_work_rows *rows)
{
    struct weft_range blocks =
        weft_g_layout_member(p->layout, 0, part->stage, member)->blocks;
    bool last = part->stage == p->layout->plan.pp - 1;
    if (part->what != HEAD)
        return weft_work_steps(
            p->shape, blocks,
            part->what == LAYER ? 1 : n_layers(p, part->stage),
            part->what == STEP && last && !p->shape->scalar_head, 1, rows);
    struct weft_work work = weft_work_head(p->shape, blocks, 1, rows);
    if (!p->shape->scalar_head)
        work.bytes += (double) weft_dtype_bytes(p->shape->dtype)
                    * (double) p->shape->hidden
                    * (double) weft_block_sums(p->shape, blocks).vocab;
    return work;
}

static void add_part(struct weft_pass_price *p, int what, const char *op,
                     int32_t stage, int32_t times)
{
    static const struct weft_work_rows one = {1, 1, 1, 0};
    int32_t tp = p->layout->plan.tp;
    struct part *part = &p->part[p->n_parts++];
    *part = (struct part){what, stage, times, p->r.n_tasks, tp};
    for (int32_t k = 0; k < tp; k++) {
        const struct weft_g_member *m = weft_g_layout_member(p->layout, 0,
                                                             stage, k);
        const struct weft_where where = {.device = m->device};
        const struct weft_work work = work_of(p, part, k, &one);
        if (tp > 1)
            weft_recording_gang(
                &p->r,
                &(struct weft_rec_gang){.n_expanded = p->layout->is_gang,
                                        .task = (int32_t) part->first + k});
        weft_recording_task(&p->r, WEFT_REC_TASK, op, &where, m->place);
        weft_recording_work(&p->r, &work);
        if (p->r.full || tp == 1)
            continue;
        p->r.task[part->first + k].member = (uint8_t) k;
        p->r.task[part->first + k].n_members = (uint8_t) tp;
    }
}

/* Tasks have the names under which they were measured. Members of a group that
 * is no gang are priced by the roofline, and what they tell one another. */
static void list_parts(struct weft_pass_price *p, bool decodes)
{
    int32_t pp = p->layout->plan.pp;
    bool group = p->layout->plan.tp > 1;
    const char *head = p->shape->scalar_head ? "value" : "logprob";
    for (int32_t s = 0; s < pp; s++) {
        bool last = s == pp - 1;
        if (group && !p->layout->is_gang) {
            add_part(p, STEP, "decode_step", s, 1);
        } else if (decodes) {
            add_part(p, STEP,
                     pp == 1 ? "gen_chunk"
                     : last  ? "gen_last_stage"
                             : "gen_stage",
                     s, 1);
        } else if (group) {
            add_part(p, STEP, last ? "infer_last_stage" : "infer_stage", s,
                     1);
        } else {
            add_part(p, LAYER, "layer_forward", s, n_layers(p, s));
            if (last)
                add_part(p, HEAD, head, s, 1);
        }
    }
}

int weft_pass_price_create(struct weft_costs *costs,
                           const struct weft_shape *shape,
                           const struct weft_g_layout *layout, bool decodes,
                           struct weft_pass_price **out, struct weft_err *err)
{
    struct weft_pass_price *p = weft_alloc(1, sizeof *p);
    if (!p)
        return weft_err_nomem(err, "costs", sizeof *p);
    p->costs = costs;
    p->shape = shape;
    p->layout = layout;
    p->meets = decodes && layout->is_gpu_gang;
    weft_recording_init(&p->r);
    list_parts(p, decodes);
    int rc = weft_recording_status(&p->r, err);
    if (rc)
        weft_pass_price_free(p);
    else
        *out = p;
    return rc;
}

void weft_pass_price_free(struct weft_pass_price *p)
{
    if (!p)
        return;
    weft_recording_release(&p->r);
    weft_free(p);
}

static struct weft_gang_ranges ranges_of(const struct weft_pass_price *p,
                                         const struct part *part)
{
    const int32_t *layer = p->layout->first_layer + part->stage;
    struct weft_gang_ranges out = {
        .n = part->n,
        .layers = {layer[0], layer[1], part->stage == 0,
                   part->stage == p->layout->plan.pp - 1}};
    for (int32_t k = 0; k < part->n; k++)
        out.range[k] =
            weft_g_layout_member(p->layout, 0, part->stage, k)->blocks;
    return out;
}

/* Adds what member k of a group gets from the others: a layer sums twice over
 * all of them. */
static void add_received(const struct weft_pass_price *p,
                         const struct part *part, int32_t k,
                         const struct weft_work_rows *rows,
                         struct weft_work *work)
{
    int32_t sums = 2 * n_layers(p, part->stage);
    if (p->meets) {
        const struct weft_gang_ranges members = ranges_of(p, part);
        weft_gen_exchange_work(p->shape, &members, k, 1, rows, work);
        return;
    }
    work->n_received += sums;
    work->received += (double) sums * (part->n - 1) * p->shape->hidden
                    * rows->n_rows * sizeof(float);
}

static void set_work(struct weft_pass_price *p, const struct part *part,
                     int32_t k, const struct weft_work_rows *rows)
{
    struct weft_rec_work *at = &p->r.task[part->first + k].work;
    struct weft_work work = work_of(p, part, k, rows);
    at->flop = (float) work.flop;
    at->bytes = (float) work.bytes;
    at->n_rows = (int32_t) work.n_rows;
    at->n_keys = (float) work.n_keys;
    if (part->n == 1)
        return;
    struct weft_rec_gang *gang = &p->r.gang[part->first + k];
    add_received(p, part, k, rows, &work);
    gang->n_received = work.n_received * (part->n - 1);
    gang->received_bytes = (int64_t) work.received;
}

bool weft_pass_price_is_measured(const struct weft_pass_price *p)
{
    for (int64_t i = 0; i < p->r.n_tasks; i++)
        if (!weft_costs_is_measured(p->costs, &p->r, i))
            return false;
    return true;
}

double weft_pass_price_s(struct weft_pass_price *p,
                         const struct weft_work_rows *rows)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_parts; i++) {
        const struct part *part = &p->part[i];
        double slowest = 0;
        for (int32_t k = 0; k < part->n; k++) {
            int64_t task = part->first + k;
            set_work(p, part, k, rows);
            double s = weft_costs_task(p->costs, &p->r, task,
                                       p->r.task[task].device);
            slowest = s > slowest ? s : slowest;
        }
        sum += part->times * slowest;
    }
    return sum;
}
