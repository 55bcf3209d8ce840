/* SPDX-License-Identifier: Apache-2.0 */
/* Inference of a micro-batch in a stage by a gang: embedding, the layers and
 * the head, as far as the stage has them, in one task of each member. The rows
 * pass from stage to stage as a tile, which the first member has. */
#include "codelets/gang.h"
#include "codelets/gen.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct infer_stage_args {
    const struct weft_shape *shape;
    float inv_temperature;
    struct weft_gang_ranges members;
};

/* In the first member's scratch memory. */
struct common {
    float *x; /* (n_rows, H) from the stage before */
    struct weft_gang_roots roots;
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
};

struct infer {
    const struct infer_stage_args *args;
    const struct weft_batch *batch;
    struct weft_k_targets targets;
    struct weft_gang_member member;
    struct weft_gang_weights weights;
    struct common *all;
    void *part;   /* softmax over its vocabulary; NULL: scalar head */
    float *value; /* (n_targets) of the first member */
};

static int open_own(struct infer *c, const struct weft_k_batch *batch)
{
    const struct weft_shape *shape = c->args->shape;
    struct weft_gang_member *m = &c->member;
    bool has_head = c->args->members.layers.is_last;
    bool scalar = shape->scalar_head;
    size_t own = weft_gang_rows_bytes(m, batch->n_rows);
    int32_t n = has_head ? c->targets.n : 0;
    size_t value = (size_t) n * sizeof(float);
    size_t part = scalar ? 0 : weft_k_head_part_bytes(m->range, n);
    size_t head = !has_head ? 0
                : scalar    ? weft_k_value_scratch_bytes(shape)
                            : weft_k_head_scratch_bytes(shape, n);
    size_t layer = weft_gang_scratch_bytes(m, batch);
    char *at = weft_exec_scratch(
        m->exec, own + value + part + (head > layer ? head : layer) + 4 * 64);
    if (!at)
        return WEFT_ENOMEM;
    m->roots = &c->all->roots;
    weft_gang_rows_at(m, batch->n_rows, weft_gen_carve(&at, own));
    c->value = weft_gen_carve(&at, value);
    c->part = weft_gen_carve(&at, part);
    m->scratch = at;
    weft_gang_rows_from(m, batch->n_rows, c->all->x);
    return 0;
}

/* Log-probs of the targets, or values, by the first member; false: a member has
 * failed. */
static bool head(struct infer *c)
{
    const struct weft_gang_member *m = &c->member;
    const struct weft_shape *shape = c->args->shape;
    if (!shape->scalar_head) {
        weft_k_head_part(shape, m->range, &c->weights.head, m->x, &c->targets,
                         c->args->inv_temperature, c->part, m->scratch);
        c->all->part[m->k] = (struct weft_k_head_parts){m->range, c->part};
        if (!weft_exec_meet(m->exec))
            return false;
        if (m->k == 0)
            weft_k_head_merge(shape, &c->targets, m->all->n, c->all->part,
                              c->value, NULL, NULL);
    } else if (m->k == 0) {
        weft_k_value(shape, c->weights.head.final, m->x, &c->targets,
                     c->value, m->scratch);
    }
    return true;
}

static int infer_stage_cpu(const void *args_, void *const buf[], int n_buf,
                           struct weft_exec *exec)
{
    struct infer c = {.args = args_};
    const struct weft_stage_layers *layers = &c.args->members.layers;
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gang_member *m = &c.member;
    weft_gang_member_init(exec, c.args->shape, &c.args->members, m);
    weft_gang_take_weights(&take, c.args->shape, layers, m->range,
                           weft_all_blocks(c.args->shape), &c.weights);
    c.batch = weft_take(&take);
    c.targets = weft_batch_targets(c.batch);
    struct weft_k_batch batch = weft_batch_view(c.batch);
    if (m->k == 0) {
        struct common *all = weft_exec_scratch(exec, sizeof *all);
        if (!all)
            return WEFT_ENOMEM;
        all->x = weft_take(&take);
        weft_exec_shared(exec)[0] = all;
    }
    if (!weft_exec_meet(exec))
        return 0;
    c.all = weft_exec_shared(exec)[0];
    int rc = open_own(&c, &batch);
    if (rc || !weft_gang_forward(m, &c.weights, &batch, NULL))
        return rc;
    if (layers->is_last && !head(&c))
        return 0;
    if (layers->is_last && m->k == 0)
        weft_deal_targets(c.batch, c.value, &take, exec);
    weft_take_end(&take);
    return 0;
}

/* By the last stage and the others, as the head costs more. */
WEFT_CODELET(infer_stage, 0xffb300, infer_stage_cpu)
WEFT_CODELET(infer_last_stage, 0xffb300, infer_stage_cpu)

void weft_insert_infer_stage(struct weft_seq *seq,
                             const struct weft_members *members,
                             const struct weft_shape *shape,
                             const struct weft_params *fwd,
                             struct weft_tile *batch, struct weft_tile *x,
                             bool values, float inv_temperature, int32_t n,
                             struct weft_tile *const out[])
{
    const struct weft_stage_layers *layers = &members->layers;
    struct infer_stage_args args = {shape, inv_temperature,
                                    weft_gang_ranges_of(members)};
    struct weft_work_rows rows = weft_tile_rows(batch);
    bool head = layers->is_last && !values;
    if (!weft_seq_is_here(seq, &members->where[0]))
        return;
    weft_insert_members(seq, members);
    for (int32_t k = 0; k < members->n; k++) {
        struct weft_range range = members->range[k];
        struct weft_access_list access;
        weft_access_list_init(&access);
        weft_access_list_add_weights(&access, shape, layers, range,
                                     weft_all_blocks(shape), fwd);
        weft_access_list_add(&access, batch, WEFT_READ);
        if (k == 0)
            weft_access_list_add(
                &access, x, layers->is_first ? WEFT_WRITE : WEFT_READ_WRITE);
        for (int32_t i = 0; i < n && k == 0 && layers->is_last; i++)
            weft_access_list_add(&access, out[i], WEFT_WRITE);
        if (rows.n_rows > 0)
            access.work = weft_work_steps(
                shape, range, layers->end - layers->first, head, 1, &rows);
        if (values && k == 0 && layers->is_last)
            access.work.flop += weft_work_value(shape, 1, &rows).flop;
        weft_access_list_insert(&access, seq, &members->where[k],
                                layers->is_last ? &weft_cl_infer_last_stage
                                                : &weft_cl_infer_stage,
                                &args, sizeof args);
    }
}
