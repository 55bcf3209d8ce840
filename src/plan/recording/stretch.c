/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording of few layers made to cost what many do: each layer's tasks and
 * tiles count as often as the layer stands for ones like it.
 */
#include "plan/recording.h"

struct stretch {
    struct weft_recording *r;
    int32_t n_layers;
    const int32_t *times;
};

static double times_of(const struct stretch *s, int32_t layer)
{
    return layer >= 0 && layer < s->n_layers ? s->times[layer] : 1;
}

/* What has no layer may be done to tiles of several at once, as zeroing a
 * stage's gradients: in proportion to their bytes. What is moved is as much as
 * there is of it where it comes from. */
static double times_of_task(const struct stretch *s,
                            const struct weft_rec_task *t)
{
    const struct weft_recording *r = s->r;
    double all = 0, stretched = 0;
    if (t->layer >= 0)
        return times_of(s, t->layer);
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        const struct weft_rec_tile *tile = &r->tile[r->access[a].tile];
        double bytes = (double) tile->bytes;
        if (t->kind != WEFT_REC_TASK && r->access[a].mode != 0)
            continue;
        all += bytes;
        stretched += bytes * times_of(s, tile->layer);
    }
    return all > 0 ? stretched / all : 1;
}

static void repeat_gang(struct weft_rec_gang *gang, double n)
{
    gang->received_bytes = (int64_t) ((double) gang->received_bytes * n);
    gang->n_received = (int32_t) (gang->n_received * n + 0.5);
    gang->n_expanded = (int32_t) (gang->n_expanded * n + 0.5);
}

void weft_recording_stretch(struct weft_recording *r, int32_t n_layers,
                            const int32_t times[])
{
    const struct stretch s = {r, n_layers, times};
    int64_t g = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        double n = times_of_task(&s, &r->task[i]);
        weft_rec_work_repeat(&r->task[i].work, n);
        for (; g < r->n_gangs && r->gang[g].task <= i; g++)
            if (r->gang[g].task == i)
                repeat_gang(&r->gang[g], n);
    }
    for (int64_t i = 0; i < r->n_tiles; i++)
        r->tile[i].bytes = (size_t) ((double) r->tile[i].bytes
                                     * times_of(&s, r->tile[i].layer));
}
