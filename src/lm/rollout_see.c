/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller notes for pictures: by the clock of rank 0 in a run, by
 * the wait that it goes on from in a recording. No decision reads it. */
#include "lm/rollout_inside.h"

/* Ranks other than the first see nothing. */
static bool sees(const struct weft_rollout_control *c)
{
    return c->seen && (c->played || weft_world_rank() == 0);
}

static struct weft_timeline_when now(const struct weft_rollout_control *c)
{
    const struct weft_rt *rt = c->gen->model->rt;
    return c->played ? (struct weft_timeline_when){0, weft_rt_n_waits(rt) - 1}
                     : (struct weft_timeline_when){weft_rt_clock_s(rt), -1};
}

void weft_rollout_see_chunk(struct weft_rollout_control *c, int32_t instance,
                            const struct weft_gen_status *status,
                            int32_t samples, int32_t n_finished)
{
    int32_t slot;
    if (sees(c))
        weft_timeline_add_chunk(c->seen,
                                &(struct weft_timeline_chunk){
                                    now(c), instance, samples,
                                    weft_rollout_running(c, instance, &slot),
                                    c->n_finished - n_finished,
                                    status->most_pages, c->n_taken});
}

/* The samples of earlier rounds are there, this round's come behind them. */
void weft_rollout_see_move(struct weft_rollout_control *c, int32_t sample,
                           int32_t from, int32_t to)
{
    if (sees(c))
        weft_timeline_add_move(
            c->seen,
            &(struct weft_timeline_move){
                now(c), (int32_t) c->seen->n_samples + sample, from, to});
}

void weft_rollout_see_trigger(struct weft_rollout_control *c, int32_t n_left)
{
    if (sees(c))
        weft_timeline_add_trigger(
            c->seen, &(struct weft_timeline_trigger){now(c), n_left});
}
