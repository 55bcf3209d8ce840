/* SPDX-License-Identifier: Apache-2.0 */
/* Inference of a micro-batch by a gang: embedding, all layers and the head in
 * one task of each member. */
#include "codelets/gang.h"
#include "codelets/gen.h"
#include "codelets/loss.h"
#include "codelets/work.h"

struct infer_gang_args {
    const struct weft_shape *shape;
    float inv_temperature;
    struct weft_gang_ranges members;
};

/* In the first member's scratch memory. */
struct common {
    struct weft_gang_roots roots;
    struct weft_k_head_parts part[WEFT_MAX_BLOCKS];
};

struct infer {
    const struct infer_gang_args *args;
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
    bool scalar = shape->scalar_head;
    size_t own = weft_gang_rows_bytes(m, batch->n_rows);
    size_t value = (size_t) c->targets.n * sizeof(float);
    size_t part = scalar ? 0 : weft_k_head_part_bytes(m->range, c->targets.n);
    size_t head = scalar ? weft_k_value_scratch_bytes(shape)
                         : weft_k_head_scratch_bytes(shape, c->targets.n);
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

static int infer_gang_cpu(const void *args_, void *const buf[], int n_buf,
                          struct weft_exec *x)
{
    struct infer c = {.args = args_};
    struct weft_take take = {buf, n_buf, 0};
    struct weft_gang_member *m = &c.member;
    weft_gang_member_init(x, c.args->shape, &c.args->members, m);
    weft_gang_take_weights(&take, c.args->shape, m->range, &c.weights);
    c.batch = weft_take(&take);
    c.targets = weft_batch_targets(c.batch);
    struct weft_k_batch batch = weft_batch_view(c.batch);
    if (m->k == 0) {
        weft_exec_shared(x)[0] = weft_exec_scratch(x, sizeof(struct common));
        if (!weft_exec_shared(x)[0])
            return WEFT_ENOMEM;
    }
    if (!weft_exec_meet(x))
        return 0;
    c.all = weft_exec_shared(x)[0];
    int rc = open_own(&c, &batch);
    if (rc || !weft_gang_forward(m, &c.weights, &batch, NULL) || !head(&c))
        return rc;
    if (m->k == 0)
        weft_deal_targets(c.batch, c.value, &take);
    weft_take_end(&take);
    return 0;
}

WEFT_CODELET(infer_gang, 0xffb300, infer_gang_cpu)

void weft_insert_infer_gang(struct weft_seq *seq, int32_t n_members,
                            const struct weft_where where[],
                            const struct weft_range range[],
                            const struct weft_shape *shape,
                            const struct weft_params *fwd,
                            struct weft_tile *batch, float inv_temperature,
                            int32_t n, struct weft_tile *const out[])
{
    struct infer_gang_args args = {shape, inv_temperature, {.n = n_members}};
    struct weft_work_rows rows = weft_tile_rows(batch);
    if (!weft_seq_is_here(seq, &where[0]))
        return;
    memcpy(args.members.range, range, (size_t) n_members * sizeof *range);
    weft_insert_gang(seq, n_members);
    for (int32_t k = 0; k < n_members; k++) {
        struct weft_access_list access;
        weft_access_list_init(&access);
        weft_access_list_add_weights(&access, shape, range[k], fwd);
        weft_access_list_add(&access, batch, WEFT_READ);
        for (int32_t i = 0; i < n && k == 0; i++)
            weft_access_list_add(&access, out[i], WEFT_WRITE);
        if (rows.n_rows > 0)
            access.work = weft_work_steps(shape, range[k], shape->n_layers,
                                          !shape->scalar_head, 1, &rows);
        if (shape->scalar_head && k == 0)
            access.work.flop +=
                weft_work_head(shape, range[k], 1, &rows).flop;
        weft_access_list_insert(&access, seq, &where[k], &weft_cl_infer_gang,
                                &args, sizeof args);
    }
}
