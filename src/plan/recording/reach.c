/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording/reach.h"

#include <string.h>

#include "base/alloc.h"

enum { WAITS = 0 };

/* In place of a node's lane. */
enum { NO_LANE = -1, NOT_AFTER = -2 };

/* Lanes come in so many at a time, which is what a vector holds. */
enum { TOGETHER = 8 };

/* In place of the number of a group's node: its tasks here have their own. Less
 * than that, HERE - 1 - node: so they have, and the first is a message. */
enum { HERE = -1 };

/* Lanes of tasks without positions, at least. Of a task that finds
 * none less is known. Task by task more tasks need one than by instruction of a
 * tp group, so with too few lanes the bound by task is the greater one. */
static int32_t soft_lanes(const struct weft_rec_reach *x)
{
    return x->large ? 2 : 32;
}

/* ---- Of all places ----------------------------------------------------- */

static void lower(int32_t *a, int32_t b)
{
    *a = b < *a ? b : *a;
}

static int32_t rank_of(const struct weft_rec_reach *x, int32_t place)
{
    return place / x->places_per_rank;
}

/* Sorts tasks by place. */
static void list_tasks(struct weft_rec_reach *x)
{
    int64_t n = x->r->n_tasks;
    for (int64_t t = 0; t < n; t++) {
        const struct weft_rec_task *task = &x->r->task[t];
        x->place_of[t] = weft_rec_is_here(task->kind) ? task->place : -1;
        if (x->place_of[t] >= 0)
            x->number[t] = (int32_t) x->at_end[task->place]++;
    }
    for (int32_t k = 1; k < x->n_places; k++)
        x->at_end[k] += x->at_end[k - 1];
    for (int64_t t = 0; t < n; t++) {
        int32_t place = x->place_of[t];
        if (place >= 0)
            x->at[(place > 0 ? x->at_end[place - 1] : 0) + x->number[t]] =
                (int32_t) t;
    }
}

static bool tables_create(struct weft_rec_reach *x)
{
    size_t n = (size_t) x->r->n_tasks;
    x->first = weft_alloc(n + 1, sizeof *x->first);
    x->group = weft_alloc(n, sizeof *x->group);
    x->at = weft_alloc(n, sizeof *x->at);
    x->at_end = weft_alloc((size_t) x->n_places, sizeof *x->at_end);
    x->number = weft_alloc(n, sizeof *x->number);
    x->place_of = weft_alloc(n, sizeof *x->place_of);
    x->wait_all = weft_alloc(n, sizeof *x->wait_all);
    x->wait_local = weft_alloc(n, sizeof *x->wait_local);
    x->of_device = weft_alloc((size_t) x->n_devices * WEFT_N_CHAINS,
                              sizeof *x->of_device);
    return x->first && x->group && x->at && x->at_end && x->number
        && x->place_of && x->wait_all && x->wait_local && x->of_device;
}

int weft_rec_reach_create(const struct weft_recording *r,
                          int32_t places_per_rank, bool large,
                          int64_t most_bytes, struct weft_rec_reach *out,
                          struct weft_err *err)
{
    *out = (struct weft_rec_reach){.r = r,
                                   .places_per_rank = places_per_rank,
                                   .large = large,
                                   .most_bytes = most_bytes};
    weft_assert(r->n_tasks < INT32_MAX);
    for (int64_t t = 0; t < r->n_tasks; t++) {
        const struct weft_rec_task *task = &r->task[t];
        if (task->device >= out->n_devices)
            out->n_devices = task->device + 1;
        if (task->place >= out->n_places)
            out->n_places = task->place + 1;
    }
    for (int64_t i = 0; i < r->n_tiles; i++)
        if (r->tile[i].place >= out->n_places)
            out->n_places = r->tile[i].place + 1;
    int rc = weft_rec_order_create(r, &out->order, err);
    if (!rc && !tables_create(out))
        rc = weft_err_nomem(err, "the order of tasks",
                            (size_t) r->n_tasks * 28);
    if (!rc)
        rc = weft_rec_reach_find(out, err);
    if (!rc)
        rc = weft_rec_reach_find_waits(out, err);
    if (!rc)
        rc = weft_rec_reach_find_near(out, err);
    if (!rc)
        list_tasks(out);
    if (rc)
        weft_rec_reach_release(out);
    return rc;
}

void weft_rec_reach_release(struct weft_rec_reach *x)
{
    weft_rec_order_release(&x->order);
    weft_free(x->first);
    weft_free(x->before);
    weft_free(x->group);
    weft_free(x->head);
    weft_free(x->at);
    weft_free(x->at_end);
    weft_free(x->number);
    weft_free(x->ends);
    weft_free(x->touch);
    weft_free(x->pair);
    weft_free(x->pair_end);
    weft_free(x->gang);
    weft_free(x->gang_end);
    weft_free(x->over);
    weft_free(x->before_group);
    weft_free(x->first_node);
    weft_free(x->node_before);
    weft_free(x->near);
    weft_free(x->seen);
    weft_free(x->walk);
    weft_free(x->node_of);
    weft_free(x->node_here);
    weft_free(x->place_of);
    weft_free(x->wait_all);
    weft_free(x->wait_local);
    weft_free(x->no_tile);
    weft_free(x->lane);
    weft_free(x->has);
    weft_free(x->leads);
    weft_free(x->open);
    weft_free(x->of_device);
    *x = (struct weft_rec_reach){.r = NULL};
}

/* ---- From a place ------------------------------------------------------ */

static bool is_here(const struct weft_rec_reach *x, int64_t task)
{
    return x->place_of[task] == x->place;
}

/* Whether an end of a group's first task is of the place's rank. */
static bool is_of_rank(const struct weft_rec_reach *x, int32_t group)
{
    int32_t rank = rank_of(x, x->place);
    const int32_t *ends = x->ends[group];
    return rank_of(x, ends[0]) == rank || rank_of(x, ends[1]) == rank;
}

const int32_t *weft_rec_reach_here(const struct weft_rec_reach *x,
                                   int64_t *n_out)
{
    bool any = x->place < x->n_places;
    int64_t from = any && x->place > 0 ? x->at_end[x->place - 1] : 0;
    *n_out = any ? x->at_end[x->place] - from : 0;
    return x->at + from;
}

/* Whether the first task of a group, or a member of the first gang, is here. */
static bool group_is_here(const struct weft_rec_reach *x, int64_t k)
{
    int64_t head = x->head[k];
    for (int i = 0; i < x->r->task[head].n_members; i++)
        if (is_here(x, head + i))
            return true;
    return is_here(x, head);
}

/* Adds the first task of a group to what is looked at. */
static int64_t see_group(struct weft_rec_reach *x, int32_t group)
{
    if (x->node_of[group])
        return 0;
    weft_rec_set_bit(x->seen, (size_t) x->head[group]);
    x->node_of[group] = 1;
    return 1;
}

/* Adds gangs with members at a near place, and groups with no other ends than
 * near ones of which it is the lesser; or of these only what is of the place
 * itself. */
static int64_t see_near(struct weft_rec_reach *x, int32_t p)
{
    const uint64_t *near = weft_rec_reach_near(x, x->place);
    bool all = !x->own || p == x->place;
    int64_t n = 0, k = p > 0 ? x->pair_end[p - 1] : 0;
    for (int64_t i = p > 0 ? x->gang_end[p - 1] : 0;
         i < x->gang_end[p] && all; i++)
        n += see_group(x, x->gang[i]);
    for (; k < x->pair_end[p]; k++)
        if (weft_rec_has_bit(near, (size_t) x->pair[k].other)
            && (all || x->pair[k].other == x->place))
            for (int64_t i = k > 0 ? x->pair[k - 1].end : 0;
                 i < x->pair[k].end; i++)
                n += see_group(x, x->touch[i]);
    return n;
}

/* Notes which tasks are looked at: those here, and the first of near groups;
 * of what is near to gangs' members, all. Returns how many. */
static int64_t see(struct weft_rec_reach *x)
{
    int64_t n_here, n = 0;
    const int32_t *here = weft_rec_reach_here(x, &n_here);
    const uint64_t *near = weft_rec_reach_near(x, x->place);
    for (int64_t i = 0; i < n_here; i++) {
        int32_t group = x->group[here[i]];
        weft_rec_set_bit(x->seen, (size_t) here[i]);
        if (x->node_of[group] != HERE && !group_is_here(x, group)) {
            weft_rec_set_bit(x->seen, (size_t) x->head[group]);
            n++;
        }
        x->node_of[group] = HERE;
    }
    for (int32_t p = 0; p < x->n_places; p++)
        if (weft_rec_has_bit(near, (size_t) p))
            n += see_near(x, p);
    return n_here + n;
}

/* Numbers them, in their order. */
static void number_nodes(struct weft_rec_reach *x)
{
    int64_t words = x->r->n_tasks / 64 + 1;
    int32_t n = 0, n_here = 0;
    for (int64_t w = 0; w < words; w++) {
        for (uint64_t bits = x->seen[w]; bits; bits &= bits - 1) {
            int64_t t = w * 64 + WEFT_LOWEST_BIT(bits);
            int32_t *node = &x->node_of[x->group[t]];
            if (is_here(x, t))
                x->node_here[n_here++] = n;
            else
                *node = *node == HERE ? HERE - 1 - n : n + 1;
            x->walk[n++] = (int32_t) t;
        }
        x->seen[w] = 0;
    }
}

/* What make_room() takes for a node. */
static int64_t node_bytes(int64_t n_lanes)
{
    return n_lanes * (int64_t) sizeof(int32_t) * 2 + 20;
}

/* Undoes see(). */
static void forget_seen(struct weft_rec_reach *x)
{
    int64_t n_here;
    const int32_t *here = weft_rec_reach_here(x, &n_here);
    for (int64_t w = 0; w < x->r->n_tasks / 64 + 1; w++)
        for (; x->seen[w]; x->seen[w] &= x->seen[w] - 1)
            x->node_of[x->group[w * 64 + WEFT_LOWEST_BIT(x->seen[w])]] = 0;
    for (int64_t i = 0; i < n_here; i++)
        x->node_of[x->group[here[i]]] = 0;
}

static void forget_nodes(struct weft_rec_reach *x)
{
    for (int64_t i = 0; i < x->n_nodes; i++)
        x->node_of[x->group[x->walk[i]]] = 0;
    x->n_nodes = 0;
}

/* The lanes of devices at the place; the waits' is number 0. */
static int32_t strict_lanes(struct weft_rec_reach *x)
{
    int32_t n = 1;
    int64_t n_here;
    const int32_t *here = weft_rec_reach_here(x, &n_here);
    memset(x->of_device, 0xff,
           (size_t) x->n_devices * WEFT_N_CHAINS * sizeof *x->of_device);
    for (int64_t i = 0; i < n_here; i++) {
        const struct weft_rec_task *t = &x->r->task[here[i]];
        if (!weft_rec_reach_is_strict(t))
            continue;
        int32_t *lane = &x->of_device[t->device * WEFT_N_CHAINS + t->chain];
        if (*lane < 0)
            *lane = n++;
    }
    return n;
}

static int make_room(struct weft_rec_reach *x, int64_t n_nodes,
                     int32_t n_lanes, struct weft_err *err)
{
    int64_t n = n_nodes * n_lanes;
    weft_free(x->open);
    x->open = weft_alloc((size_t) n_lanes, sizeof *x->open);
    if (n > x->room || n_nodes > x->node_room) {
        x->room = x->node_room = 0;
        weft_free(x->has);
        weft_free(x->leads);
        weft_free(x->lane);
        weft_free(x->walk);
        weft_free(x->node_here);
        weft_free(x->first_node);
        x->has = weft_alloc((size_t) n, sizeof *x->has);
        x->leads = weft_alloc((size_t) n, sizeof *x->leads);
        x->lane = weft_alloc((size_t) n_nodes, sizeof *x->lane);
        x->walk = weft_alloc((size_t) n_nodes, sizeof *x->walk);
        x->node_here = weft_alloc((size_t) n_nodes, sizeof *x->node_here);
        x->first_node = weft_alloc((size_t) n_nodes + 1,
                                   sizeof *x->first_node);
        if (!x->has || !x->leads || !x->lane || !x->walk || !x->node_here
            || !x->first_node)
            return weft_err_nomem(err, "the order of tasks", (size_t) n * 8);
        x->room = n;
        x->node_room = n_nodes;
    }
    if (!x->open)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) n_lanes * sizeof *x->open);
    x->n_nodes = n_nodes;
    x->n_lanes = n_lanes;
    return 0;
}

/* The lane of a task without a position: the latest one whose tasks have all
 * ended before it, or a new one; -1: there are too many. */
static int32_t soft_lane(const struct weft_rec_reach *x, int32_t first,
                         const int32_t *has)
{
    int32_t best = -1;
    for (int32_t l = first; l < x->n_lanes; l++) {
        if (x->open[l].n == 0)
            return best >= 0 ? best : l;
        if (has[l] == x->open[l].n
            && (best < 0 || x->open[l].last > x->open[best].last))
            best = l;
    }
    return best;
}

static int32_t lane_of(const struct weft_rec_reach *x, int64_t task,
                       int32_t n_strict, const int32_t *has)
{
    const struct weft_rec_task *t = &x->r->task[task];
    return weft_rec_reach_is_strict(t)
             ? x->of_device[t->device * WEFT_N_CHAINS + t->chain]
             : soft_lane(x, n_strict, has);
}

/* Raises each of n numbers to those of another. */
static void raise_all(int32_t *restrict a, const int32_t *restrict b,
                      size_t n)
{
    for (; n > 0; n -= TOGETHER, a += TOGETHER, b += TOGETHER)
        for (int i = 0; i < TOGETHER; i++)
            a[i] = b[i] > a[i] ? b[i] : a[i];
}

static void lower_all(int32_t *restrict a, const int32_t *restrict b,
                      size_t n)
{
    for (; n > 0; n -= TOGETHER, a += TOGETHER, b += TOGETHER)
        for (int i = 0; i < TOGETHER; i++)
            a[i] = b[i] < a[i] ? b[i] : a[i];
}

/* Notes that a node comes before the latest one. */
static int add_before(struct weft_rec_reach *x, int64_t *n, int32_t node,
                      struct weft_err *err)
{
    if (*n == x->node_before_room) {
        int64_t more = *n * 2 + 4096;
        int32_t *larger = weft_realloc(x->node_before, (size_t) more,
                                       sizeof *larger);
        if (!larger)
            return weft_err_nomem(err, "the order of tasks",
                                  (size_t) more * sizeof *larger);
        x->node_before = larger;
        x->node_before_room = more;
    }
    x->node_before[(*n)++] = node;
    return 0;
}

/* Notes what comes before node i: in place of other groups their first tasks,
 * of gangs their members here. */
static int list_before(struct weft_rec_reach *x, int64_t i, bool here,
                       int64_t *n, struct weft_err *err)
{
    int64_t t = x->walk[i], from, end;
    int rc = 0;
    if (here)
        t -= x->r->task[t].member;
    for (int64_t k = x->first[t]; k < x->first[t + 1] && !rc; k++) {
        int32_t node = x->node_of[x->before_group[k]];
        if (node < HERE && !is_here(x, x->before[k]))
            node = HERE - node;
        if (node > 0)
            rc = add_before(x, n, node - 1, err);
        if (node >= 0)
            continue;
        weft_recording_members(x->r, x->before[k], &from, &end);
        for (int64_t m = from; m < end && !rc; m++)
            if (is_here(x, m))
                rc = add_before(x, n, x->node_here[x->number[m]], err);
    }
    return rc;
}

/* Lists for every node those before it. In a large recording nodes which
 * nothing here comes before are left out: what is known of waits through them
 * alone is then not known. */
static int list_nodes(struct weft_rec_reach *x, struct weft_err *err)
{
    int64_t n_here, n = 0, h = 0;
    const int32_t *list = weft_rec_reach_here(x, &n_here);
    int rc = 0;
    for (int64_t i = 0; i < x->n_nodes && !rc; i++) {
        int32_t group = x->group[x->walk[i]];
        bool here = h < n_here && list[h] == x->walk[i];
        h += here;
        x->first_node[i] = n;
        rc = list_before(x, i, here, &n, err);
        bool kept = !x->large || here || n > x->first_node[i]
                 || x->ends[group][0] == x->place
                 || x->ends[group][1] == x->place;
        x->lane[i] = kept ? NO_LANE : NOT_AFTER;
        if (!kept)
            x->node_of[group] = 0;
    }
    x->first_node[x->n_nodes] = n;
    return rc;
}

/* The number of the last wait that is over when a node begins. */
static int32_t wait_of(const struct weft_rec_reach *x, int64_t task,
                       bool here, struct weft_rec_over *over)
{
    int32_t group = x->group[task];
    if (!here)
        return x->over[group][is_of_rank(x, group)];
    weft_rec_reach_pass(x, task, over);
    return weft_rec_is_early(x->r->task[task].when) ? over->early
                                                    : over->local;
}

static void look_back(struct weft_rec_reach *x, int32_t n_strict)
{
    struct weft_rec_over over = {0};
    size_t n = (size_t) x->n_lanes;
    int64_t n_here, h = 0;
    const int32_t *list = weft_rec_reach_here(x, &n_here);
    for (int64_t i = 0; i < x->n_nodes; i++) {
        int64_t t = x->walk[i];
        int32_t *has = x->has + (size_t) i * n;
        bool here = h < n_here && list[h] == t;
        h += here;
        if (x->lane[i] == NOT_AFTER)
            continue;
        memset(has, 0, n * sizeof *has);
        for (int64_t k = x->first_node[i]; k < x->first_node[i + 1]; k++)
            raise_all(has, x->has + (size_t) x->node_before[k] * n, n);
        int32_t waits = wait_of(x, t, here, &over);
        has[WAITS] = waits > has[WAITS] ? waits : has[WAITS];
        if (here)
            x->lane[i] = lane_of(x, t, n_strict, has);
        if (x->lane[i] >= 0) {
            x->open[x->lane[i]].last = t;
            has[x->lane[i]] = ++x->open[x->lane[i]].n;
        }
    }
}

static void look_ahead(struct weft_rec_reach *x)
{
    size_t n = (size_t) x->n_lanes;
    for (int64_t i = 0; i < x->n_nodes * (int64_t) n; i++)
        x->leads[i] = WEFT_REC_NEVER;
    for (int64_t i = x->n_nodes; i-- > 0;) {
        int64_t t = x->walk[i];
        int32_t *leads = x->leads + (size_t) i * n;
        if (x->lane[i] == NOT_AFTER)
            continue;
        lower(&leads[WAITS], x->wait_all[t]);
        if (x->wait_local[t] < leads[WAITS] && is_of_rank(x, x->group[t]))
            leads[WAITS] = x->wait_local[t];
        if (x->lane[i] >= 0)
            leads[x->lane[i]] = x->has[(size_t) i * n + (size_t) x->lane[i]];
        for (int64_t k = x->first_node[i]; k < x->first_node[i + 1]; k++)
            lower_all(x->leads + (size_t) x->node_before[k] * n, leads, n);
    }
}

int weft_rec_reach_look(struct weft_rec_reach *x, int32_t place,
                        struct weft_err *err)
{
    forget_nodes(x);
    x->place = place;
    int32_t n_strict = strict_lanes(x);
    int64_t n_lanes = weft_round_up(n_strict + soft_lanes(x), TOGETHER);
    x->own = false;
    int64_t n_nodes = place < x->n_places ? see(x) : 0;
    if (n_nodes * node_bytes(n_lanes) > x->most_bytes) {
        forget_seen(x);
        x->own = true;
        n_nodes = see(x);
    }
    int rc = make_room(x, n_nodes, (int32_t) n_lanes, err);
    if (rc)
        return rc;
    if (n_nodes > 0) {
        number_nodes(x);
        rc = list_nodes(x, err);
    }
    if (rc)
        return rc;
    look_back(x, n_strict);
    look_ahead(x);
    return 0;
}

/* Others are known by their group alone. */
static size_t exact_node(const struct weft_rec_reach *x, int64_t task)
{
    int32_t node = x->node_of[x->group[task]];
    if (is_here(x, task))
        return (size_t) x->node_here[x->number[task]];
    weft_assert(x->head[x->group[task]] == task && (node > 0 || node < HERE));
    return (size_t) (node > 0 ? node - 1 : HERE - 1 - node);
}

const int32_t *weft_rec_reach_has(const struct weft_rec_reach *x,
                                  int64_t task)
{
    return x->has + exact_node(x, task) * (size_t) x->n_lanes;
}

const int32_t *weft_rec_reach_leads(const struct weft_rec_reach *x,
                                    int64_t task)
{
    return x->leads + exact_node(x, task) * (size_t) x->n_lanes;
}

int32_t weft_rec_reach_lane(const struct weft_rec_reach *x, int64_t task)
{
    return x->lane[exact_node(x, task)];
}
