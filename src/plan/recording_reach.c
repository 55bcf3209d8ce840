/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording_reach.h"

#include <string.h>

#include "base/alloc.h"

enum { READS = 0, WAITS = 0 };

/* Lanes come in so many at a time, which is what a vector holds. */
enum { TOGETHER = 8 };

/* In place of the number of a group's node: its tasks here have their own. */
enum { HERE = -1 };

/* Lanes of tasks without positions, at least. */
static int32_t soft_lanes(const struct weft_rec_reach *x)
{
    return x->large ? 2 : 24;
}

/* ---- Of all places ----------------------------------------------------- */

void weft_rec_reach_pass(const struct weft_rec_reach *x, int64_t task,
                         struct weft_rec_over *o)
{
    for (; o->w < x->r->n_waits && x->r->wait[o->w].task <= task; o->w++) {
        const struct weft_rec_wait *w = &x->r->wait[o->w];
        o->local = (int32_t) o->w + 1;
        if (!w->local)
            o->all = o->local;
        if (w->tile < 0)
            o->early = o->local;
        if (w->tile < 0 && !w->local)
            o->end = w->ended;
    }
}

static void lower(int32_t *a, int32_t b)
{
    *a = b < *a ? b : *a;
}

/* Notes the first wait, of some kind, that all tasks before a number have
 * ended before. */
static void end_before(int32_t *wait, int64_t *from, int64_t ended,
                       int32_t number)
{
    for (; *from < ended; ++*from)
        lower(&wait[*from], number);
}

/* Notes for every task the first waits that it has ended before. */
static int find_waits(struct weft_rec_reach *x, struct weft_err *err)
{
    const struct weft_recording *r = x->r;
    int64_t all = 0, local = 0, w = 0;
    int32_t *last = weft_alloc((size_t) r->n_tiles, sizeof *last);
    if (!last)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) r->n_tiles * sizeof *last);
    memset(last, 0xff, (size_t) r->n_tiles * sizeof *last);
    for (int64_t t = 0; t < r->n_tasks; t++)
        x->wait_all[t] = x->wait_local[t] = WEFT_REC_NEVER;
    for (int64_t t = 0; t <= r->n_tasks; t++) {
        for (; w < r->n_waits && r->wait[w].task <= t; w++) {
            const struct weft_rec_wait *v = &r->wait[w];
            end_before(v->local ? x->wait_local : x->wait_all,
                       v->local ? &local : &all, v->ended, (int32_t) w + 1);
            if (v->tile >= 0 && last[v->tile] >= 0)
                lower(&x->wait_all[last[v->tile]], (int32_t) w + 1);
        }
        for (int64_t a = t < r->n_tasks ? r->task[t].access : 0;
             t < r->n_tasks && a < r->task[t].access + r->task[t].n_access;
             a++)
            if (r->access[a].mode != READS)
                last[r->access[a].tile] = (int32_t) t;
    }
    weft_free(last);
    for (int64_t t = 0; t < r->n_tasks; t++) {
        int32_t head = x->head[x->group[t]];
        lower(&x->wait_all[head], x->wait_all[t]);
        lower(&x->wait_local[head], x->wait_local[t]);
    }
    return 0;
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
        x->place_of[t] = task->kind == WEFT_REC_TASK ? task->place : -1;
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
                          struct weft_rec_reach *out, struct weft_err *err)
{
    *out = (struct weft_rec_reach){
        .r = r, .places_per_rank = places_per_rank, .large = large};
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
        rc = find_waits(out, err);
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
    weft_free(x->touch_end);
    weft_free(x->near);
    weft_free(x->seen);
    weft_free(x->walk);
    weft_free(x->node_of);
    weft_free(x->node_here);
    weft_free(x->place_of);
    weft_free(x->wait_all);
    weft_free(x->wait_local);
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

/* Whether a task, or an end of a message, is of the place's rank. */
static bool is_of_rank(const struct weft_rec_reach *x, int64_t task)
{
    int32_t rank = rank_of(x, x->place);
    const int32_t *ends = x->ends[x->group[task]];
    return is_here(x, task) || rank_of(x, ends[0]) == rank
        || rank_of(x, ends[1]) == rank;
}

/* The numbers of what is looked at in place of a task or gang that comes before
 * others: a gang's members here; out (WEFT_REC_MEMBERS). Returns how many. */
static int32_t nodes_of(const struct weft_rec_reach *x, int64_t task,
                        int32_t *out)
{
    int32_t node = x->node_of[x->group[task]], n = 0;
    out[0] = node - 1;
    if (node != HERE)
        return node > 0;
    int64_t first, end;
    weft_recording_members(x->r, task, &first, &end);
    for (int64_t i = first; i < end; i++)
        if (is_here(x, i))
            out[n++] = x->node_here[x->number[i]];
    return n;
}

/* The predecessors of a task, or of the first of its gang. */
static const int32_t *before_of(const struct weft_rec_reach *x, int64_t task,
                                int64_t *n_out)
{
    int64_t first = task - x->r->task[task].member;
    *n_out = x->first[first + 1] - x->first[first];
    return x->before + x->first[first];
}

/* The tasks at the place, from the first one on. */
static const int32_t *tasks_here(const struct weft_rec_reach *x,
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

/* Notes which tasks are looked at: those here, and the first of near groups;
 * of what is near to gangs' members, all. Returns how many. */
static int64_t see(struct weft_rec_reach *x)
{
    int64_t n_here, n = 0;
    const int32_t *here = tasks_here(x, &n_here);
    const uint64_t *near = weft_rec_reach_near(x, x->place);
    for (int64_t i = 0; i < n_here; i++)
        weft_rec_set_bit(x->seen, (size_t) here[i]);
    for (int64_t i = x->place > 0 ? x->touch_end[x->place - 1] : 0;
         i < x->touch_end[x->place]; i++)
        if (group_is_here(x, x->touch[i]))
            x->node_of[x->touch[i]] = HERE;
    for (int32_t p = 0; p < x->n_places; p++) {
        int64_t i = p > 0 ? x->touch_end[p - 1] : 0;
        for (; weft_rec_has_bit(near, (size_t) p) && i < x->touch_end[p];
             i++) {
            int32_t k = x->touch[i];
            bool gang = x->r->task[x->head[k]].n_members > 0;
            if (x->node_of[k]
                || (!gang
                    && (!weft_rec_has_bit(near, (size_t) x->ends[k][0])
                        || !weft_rec_has_bit(near, (size_t) x->ends[k][1]))))
                continue;
            weft_rec_set_bit(x->seen, (size_t) x->head[k]);
            x->node_of[k] = 1;
            n++;
        }
    }
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
            if (is_here(x, t))
                x->node_here[n_here++] = n;
            else
                x->node_of[x->group[t]] = n + 1;
            x->walk[n++] = (int32_t) t;
        }
        x->seen[w] = 0;
    }
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
    const int32_t *here = tasks_here(x, &n_here);
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
        x->has = weft_alloc((size_t) n, sizeof *x->has);
        x->leads = weft_alloc((size_t) n, sizeof *x->leads);
        x->lane = weft_alloc((size_t) n_nodes, sizeof *x->lane);
        x->walk = weft_alloc((size_t) n_nodes, sizeof *x->walk);
        x->node_here = weft_alloc((size_t) n_nodes, sizeof *x->node_here);
        if (!x->has || !x->leads || !x->lane || !x->walk || !x->node_here)
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
    return !is_here(x, task) ? -1
         : weft_rec_reach_is_strict(t)
             ? x->of_device[t->device * WEFT_N_CHAINS + t->chain]
             : soft_lane(x, n_strict, has);
}

/* Raises each of n numbers to those of another. */
static void raise_all(int32_t *restrict a, const int32_t *restrict b,
                      size_t n)
{
    for (size_t l = 0; l < n; l += TOGETHER)
        for (size_t i = l; i < l + TOGETHER; i++)
            a[i] = b[i] > a[i] ? b[i] : a[i];
}

static void lower_all(int32_t *restrict a, const int32_t *restrict b,
                      size_t n)
{
    for (size_t l = 0; l < n; l += TOGETHER)
        for (size_t i = l; i < l + TOGETHER; i++)
            a[i] = b[i] < a[i] ? b[i] : a[i];
}

static void look_back(struct weft_rec_reach *x, int32_t n_strict)
{
    struct weft_rec_over over = {0};
    size_t n = (size_t) x->n_lanes;
    int32_t node[WEFT_REC_MEMBERS];
    int64_t n_before;
    for (int64_t i = 0; i < x->n_nodes; i++) {
        int64_t t = x->walk[i];
        int32_t *has = x->has + (size_t) i * n;
        memset(has, 0, n * sizeof *has);
        const int32_t *before = before_of(x, t, &n_before);
        for (int64_t k = 0; k < n_before; k++)
            for (int32_t m = nodes_of(x, before[k], node); m-- > 0;)
                raise_all(has, x->has + (size_t) node[m] * n, n);
        weft_rec_reach_pass(x, t, &over);
        int32_t waits = weft_rec_is_early(x->r->task[t].when) ? over.early
                      : is_of_rank(x, t)                      ? over.local
                                                              : over.all;
        has[WAITS] = waits > has[WAITS] ? waits : has[WAITS];
        int32_t lane = lane_of(x, t, n_strict, has);
        x->lane[i] = lane;
        if (lane >= 0) {
            x->open[lane].last = t;
            has[lane] = ++x->open[lane].n;
        }
    }
}

static void look_ahead(struct weft_rec_reach *x)
{
    size_t n = (size_t) x->n_lanes;
    int32_t node[WEFT_REC_MEMBERS];
    int64_t n_before;
    for (int64_t i = 0; i < x->n_nodes * (int64_t) n; i++)
        x->leads[i] = WEFT_REC_NEVER;
    for (int64_t i = x->n_nodes; i-- > 0;) {
        int64_t t = x->walk[i];
        int32_t *leads = x->leads + (size_t) i * n;
        lower(&leads[WAITS], x->wait_all[t]);
        if (x->wait_local[t] < leads[WAITS] && is_of_rank(x, t))
            leads[WAITS] = x->wait_local[t];
        if (x->lane[i] >= 0)
            leads[x->lane[i]] = x->has[(size_t) i * n + (size_t) x->lane[i]];
        const int32_t *before = before_of(x, t, &n_before);
        for (int64_t k = 0; k < n_before; k++)
            for (int32_t m = nodes_of(x, before[k], node); m-- > 0;)
                lower_all(x->leads + (size_t) node[m] * n, leads, n);
    }
}

int weft_rec_reach_look(struct weft_rec_reach *x, int32_t place,
                        struct weft_err *err)
{
    forget_nodes(x);
    x->place = place;
    int32_t n_strict = strict_lanes(x);
    int64_t n_lanes = weft_round_up(n_strict + soft_lanes(x), TOGETHER);
    int64_t n_nodes = place < x->n_places ? see(x) : 0;
    int rc = make_room(x, n_nodes, (int32_t) n_lanes, err);
    if (rc)
        return rc;
    number_nodes(x);
    look_back(x, n_strict);
    look_ahead(x);
    return 0;
}

/* Others are known by their group alone. */
static size_t exact_node(const struct weft_rec_reach *x, int64_t task)
{
    weft_assert(is_here(x, task) || x->head[x->group[task]] == task);
    return (size_t) (is_here(x, task) ? x->node_here[x->number[task]]
                                      : x->node_of[x->group[task]] - 1);
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

int32_t weft_rec_reach_wait(const struct weft_rec_reach *x, int64_t tasks,
                            bool early)
{
    int64_t low = 0, high = x->r->n_waits;
    while (low < high) {
        int64_t half = (low + high) / 2;
        if (x->r->wait[half].task < tasks)
            low = half + 1;
        else
            high = half;
    }
    while (early && low > 0 && x->r->wait[low - 1].tile >= 0)
        low--;
    return (int32_t) low;
}
