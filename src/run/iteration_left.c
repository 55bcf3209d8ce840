/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples have left their instances, so that who reads them does not wait
 * for a chunk that runs: of what has ended, when the instance's next status has
 * come, and at once where it has no samples left, as its last chunk then does
 * nothing. All ranks have the same order of statuses, so they see the same
 * samples leave at the same time. */
#include <string.h>

#include "base/alloc.h"
#include "run/iteration.h"

int weft_iteration_left_init(struct weft_iteration *p)
{
    size_t n = (size_t) p->n_all;
    size_t n_instances = (size_t) weft_iteration_instances(p);
    weft_iteration_left_release(p);
    p->left = (struct weft_iteration_left){
        .ended = -1,
        .leaves = weft_alloc(n_instances, sizeof *p->left.leaves),
        .next = weft_alloc(n, sizeof *p->left.next),
        .sample = weft_alloc(n, sizeof *p->left.sample)};
    if (!p->left.leaves || !p->left.next || !p->left.sample)
        return weft_err_nomem(p->err, "an iteration",
                              n * sizeof *p->left.next);
    memset(p->left.leaves, 0xff, n_instances * sizeof *p->left.leaves);
    return 0;
}

void weft_iteration_left_release(struct weft_iteration *p)
{
    weft_free(p->left.leaves);
    weft_free(p->left.next);
    weft_free(p->left.sample);
    p->left = (struct weft_iteration_left){.ended = -1};
}

void weft_iteration_left_add(struct weft_iteration *p, int32_t sample)
{
    p->left.next[sample] = p->left.ended;
    p->left.ended = sample;
}

/* The samples of a list have left. */
static void leave(struct weft_iteration_left *l, int32_t *list)
{
    for (; *list >= 0; *list = l->next[*list])
        l->sample[l->n++] = *list;
}

void weft_iteration_left_turn(struct weft_iteration *p, int32_t instance,
                              bool more)
{
    struct weft_iteration_left *l = &p->left;
    l->n = 0;
    leave(l, &l->leaves[instance]);
    if (more)
        l->leaves[instance] = l->ended;
    else
        leave(l, &l->ended);
    l->ended = -1;
}
