/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the expansion of a stage's instruction is a function of, so that a
 * recorder need not see it twice: the model, the members, the rows, and the
 * tiles that it uses.
 */
#include "graphs/calls/stage.h"
#include "plan/recording.h"

static struct weft_rec_site site_of(const struct weft_g_pass *pass,
                                    const struct weft_g_stage *stage)
{
    struct weft_rec_site site = {.where = pass->where, .n = stage->n};
    for (int32_t k = 0; k < stage->n; k++) {
        const struct weft_g_member *m = &stage->member[k];
        int64_t at = m->device * WEFT_N_CHAINS + pass->where.chain;
        site.member[k] = (struct weft_rec_member){
            m->device, m->place,
            pass->order && !pass->any_device ? &pass->order->next[at] : NULL};
    }
    return site;
}

bool weft_g_gang_begin(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_gang *gang)
{
    struct weft_rt *rt = pass->rt;
    if (!weft_rt_keeps_gangs(rt))
        return false;
    struct weft_rec_site site = site_of(pass, stage);
    if (!weft_gang_begin(rt, gang->op, &site))
        return false;
    weft_gang_word(rt, (int64_t) (intptr_t) pass->shape);
    weft_gang_word(rt, pass->n_rows);
    weft_gang_word(rt,
                   (int64_t) pass->n_targets << 2 | pass->any_device << 1
                       | weft_rt_is_gpu_place(rt, stage->member[0].place));
    for (int32_t k = 0; k < stage->n; k++)
        weft_gang_word(
            rt, (int64_t) stage->member[k].blocks.first << 32
                    | stage->member[k].blocks.n << 16
                    | (weft_rt_place_rank(rt, stage->member[k].place)
                       - weft_rt_place_rank(rt, stage->member[0].place)));
    return true;
}

bool weft_g_gang_again(const struct weft_g_pass *pass,
                       const struct weft_g_gang *gang)
{
    return weft_gang_again(pass->rt, gang->op, gang->layer, gang->work);
}

void weft_g_gang_end(const struct weft_g_pass *pass,
                     const struct weft_g_gang *gang)
{
    weft_gang_end(pass->rt, gang->op, gang->layer, gang->work);
}

/* ---- Tiles ------------------------------------------------------------- */

void weft_g_gang_value(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_value *value)
{
    for (int32_t p = 0; p < stage->n_places; p++)
        weft_gang_tile(pass->rt, value ? value->at[p] : NULL);
}

void weft_g_gang_batch(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_g_value *batch)
{
    struct weft_work_rows rows = weft_tile_rows(batch->at[0]);
    weft_gang_word(pass->rt, (int64_t) rows.n_rows << 32 | rows.n_targets);
    weft_gang_word(pass->rt, rows.n_keys);
    weft_g_gang_value(pass, stage, batch);
}

void weft_g_gang_blocks(const struct weft_g_pass *pass,
                        struct weft_tile *const tile[])
{
    int64_t there = 0;
    for (int b = 0; b < pass->shape->n_blocks; b++)
        there |= (int64_t) (tile[b] != NULL) << b;
    weft_gang_word(pass->rt, there);
    for (int b = 0; b < pass->shape->n_blocks; b++)
        if (tile[b])
            weft_gang_tile(pass->rt, tile[b]);
}

void weft_g_gang_tiles(const struct weft_g_pass *pass,
                       const struct weft_layer_tiles *tiles)
{
    weft_g_gang_blocks(pass, tiles->block);
    if (tiles->norms) /* a frozen head's have no gradient */
        weft_gang_tile(pass->rt, tiles->norms);
}

void weft_g_gang_layer(const struct weft_g_layer *l, bool backward)
{
    const struct weft_g_pass *pass = l->pass;
    const struct weft_g_stage *stage = l->stage;
    for (int32_t p = 0; p < stage->n_places; p++) {
        weft_g_gang_tiles(pass, &l->fwd[stage->place[p]].layer[l->index]);
        if (backward)
            weft_g_gang_blocks(pass,
                               l->bwd[stage->place[p]].layer[l->index].block);
    }
    weft_g_gang_batch(pass, stage, l->batch);
    weft_g_gang_value(pass, stage, l->x);
    weft_g_gang_value(pass, stage, l->kept ? &l->kept->x_mid : NULL);
    for (int32_t k = 0; k < stage->n; k++) {
        weft_gang_tile(pass->rt, l->kept ? l->kept->member[k] : NULL);
        weft_gang_tile(pass->rt, l->kv ? l->kv[k].arena : NULL);
    }
    weft_g_gang_value(pass, stage, backward ? l->dx : l->y);
    if (backward)
        weft_g_gang_tiles(pass, &l->grad->layer[l->index]);
}

void weft_g_gang_model(const struct weft_g_pass *pass,
                       const struct weft_g_stage *stage,
                       const struct weft_params *params)
{
    weft_gang_word(pass->rt, (int64_t) (stage->end - stage->first) << 2
                                 | stage->is_first << 1 | stage->is_last);
    for (int32_t p = 0; p < stage->n_places; p++) {
        const struct weft_params *at = &params[stage->place[p]];
        if (stage->is_first)
            weft_g_gang_blocks(pass, at->embed);
        for (int32_t l = stage->first; l < stage->end; l++)
            weft_g_gang_tiles(pass, &at->layer[l]);
        if (stage->is_last)
            weft_g_gang_tiles(pass, &at->head);
    }
}
