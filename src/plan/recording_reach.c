/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/recording_reach.h"

#include <string.h>

#include "base/alloc.h"

enum { READS = 0, WAITS = 0 };

/* Lanes of tasks without positions. Large recordings get fewer, so that their
 * prediction takes less time and may be less tight. */
static int32_t soft_lanes(const struct weft_recording *r)
{
    return r->n_tasks < 200000 ? 24 : 2;
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

static int list_ranks(struct weft_rec_reach *x, struct weft_err *err)
{
    const struct weft_recording *r = x->r;
    x->rank = weft_alloc((size_t) x->n_groups, sizeof *x->rank);
    if (!x->rank)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) x->n_groups * sizeof *x->rank);
    for (int64_t k = 0; k < x->n_groups; k++) {
        const struct weft_rec_task *t = &r->task[x->head[k]];
        const struct weft_rec_access *a = &r->access[t->access];
        for (int i = 0; i < 2; i++)
            x->rank[k][i] = t->kind == WEFT_REC_TASK
                              ? rank_of(x, t->place)
                              : rank_of(
                                  x, r->tile[a[i % t->n_access].tile].place);
    }
    return 0;
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
                          int32_t places_per_rank, struct weft_rec_reach *out,
                          struct weft_err *err)
{
    *out = (struct weft_rec_reach){.r = r,
                                   .places_per_rank = places_per_rank};
    weft_assert(r->n_tasks < INT32_MAX);
    for (int64_t t = 0; t < r->n_tasks; t++) {
        const struct weft_rec_task *task = &r->task[t];
        if (task->device >= out->n_devices)
            out->n_devices = task->device + 1;
        if (task->place >= out->n_places)
            out->n_places = task->place + 1;
    }
    int rc = weft_rec_order_create(r, &out->order, err);
    if (!rc && !tables_create(out))
        rc = weft_err_nomem(err, "the order of tasks",
                            (size_t) r->n_tasks * 28);
    if (!rc)
        rc = weft_rec_reach_find(out, err);
    if (!rc)
        rc = find_waits(out, err);
    if (!rc)
        rc = list_ranks(out, err);
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
    weft_free(x->rank);
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

/* Whether a node's task, or an end of its message, is of the place's rank. */
static bool is_of_rank(const struct weft_rec_reach *x, int64_t node)
{
    int32_t rank = rank_of(x, x->place);
    return node >= x->n_groups || x->rank[node][0] == rank
        || x->rank[node][1] == rank;
}

/* The number of what is looked at in place of a task. */
static size_t node_of(const struct weft_rec_reach *x, int64_t task)
{
    return (size_t) (is_here(x, task) ? x->n_groups + x->number[task]
                                      : x->group[task]);
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

/* Goes through the first tasks of groups elsewhere, and all tasks of the
 * place. */
struct walk {
    const int32_t *here;
    int64_t n_here, i, k;
};

static int64_t next_task(const struct weft_rec_reach *x, struct walk *w)
{
    while (w->k < x->n_groups && is_here(x, x->head[w->k]))
        w->k++;
    bool here = w->i < w->n_here
             && (w->k == x->n_groups || w->here[w->i] < x->head[w->k]);
    return here ? w->here[w->i++] : w->k < x->n_groups ? x->head[w->k++] : -1;
}

static int64_t previous_task(const struct weft_rec_reach *x, struct walk *w)
{
    while (w->k > 0 && is_here(x, x->head[w->k - 1]))
        w->k--;
    bool here = w->i > 0
             && (w->k == 0 || w->here[w->i - 1] > x->head[w->k - 1]);
    return here ? w->here[--w->i] : w->k > 0 ? x->head[--w->k] : -1;
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

static int make_room(struct weft_rec_reach *x, int32_t n_lanes,
                     struct weft_err *err)
{
    int64_t n_here;
    tasks_here(x, &n_here);
    x->n_lanes = n_lanes;
    x->n_nodes = x->n_groups + n_here;
    int64_t n = x->n_nodes * n_lanes;
    weft_free(x->open);
    x->open = weft_alloc((size_t) n_lanes, sizeof *x->open);
    if (n > x->room || x->n_nodes > x->node_room) {
        x->room = x->node_room = 0;
        weft_free(x->has);
        weft_free(x->leads);
        weft_free(x->lane);
        x->has = weft_alloc((size_t) n, sizeof *x->has);
        x->leads = weft_alloc((size_t) n, sizeof *x->leads);
        x->lane = weft_alloc((size_t) x->n_nodes, sizeof *x->lane);
        if (!x->has || !x->leads || !x->lane)
            return weft_err_nomem(err, "the order of tasks", (size_t) n * 8);
        x->room = n;
        x->node_room = x->n_nodes;
    }
    if (!x->open)
        return weft_err_nomem(err, "the order of tasks",
                              (size_t) n_lanes * sizeof *x->open);
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

static void look_back(struct weft_rec_reach *x, int32_t n_strict)
{
    struct weft_rec_over over = {0};
    struct walk w = {0};
    size_t n = (size_t) x->n_lanes;
    w.here = tasks_here(x, &w.n_here);
    for (int64_t t = next_task(x, &w); t >= 0; t = next_task(x, &w)) {
        size_t node = node_of(x, t);
        int32_t *has = x->has + node * n;
        memset(has, 0, n * sizeof *has);
        for (int64_t k = x->first[t]; k < x->first[t + 1]; k++) {
            const int32_t *b = x->has + node_of(x, x->before[k]) * n;
            for (size_t l = 0; l < n; l++)
                has[l] = b[l] > has[l] ? b[l] : has[l];
        }
        weft_rec_reach_pass(x, t, &over);
        int32_t waits = weft_rec_is_early(x->r->task[t].when) ? over.early
                      : is_of_rank(x, (int64_t) node)         ? over.local
                                                              : over.all;
        has[WAITS] = waits > has[WAITS] ? waits : has[WAITS];
        int32_t lane = lane_of(x, t, n_strict, has);
        x->lane[node] = lane;
        if (lane >= 0) {
            x->open[lane].last = t;
            has[lane] = ++x->open[lane].n;
        }
    }
}

static void look_ahead(struct weft_rec_reach *x)
{
    struct walk w = {.k = x->n_groups};
    size_t n = (size_t) x->n_lanes;
    for (int64_t i = 0; i < x->n_nodes * (int64_t) n; i++)
        x->leads[i] = WEFT_REC_NEVER;
    w.here = tasks_here(x, &w.n_here);
    w.i = w.n_here;
    for (int64_t t = previous_task(x, &w); t >= 0; t = previous_task(x, &w)) {
        size_t node = node_of(x, t);
        int32_t *leads = x->leads + node * n;
        lower(&leads[WAITS], x->wait_all[t]);
        if (x->wait_local[t] < leads[WAITS] && is_of_rank(x, (int64_t) node))
            leads[WAITS] = x->wait_local[t];
        if (x->lane[node] >= 0)
            leads[x->lane[node]] = x->has[node * n + (size_t) x->lane[node]];
        for (int64_t k = x->first[t]; k < x->first[t + 1]; k++) {
            int32_t *b = x->leads + node_of(x, x->before[k]) * n;
            for (size_t l = 0; l < n; l++)
                b[l] = leads[l] < b[l] ? leads[l] : b[l];
        }
    }
}

int weft_rec_reach_look(struct weft_rec_reach *x, int32_t place,
                        struct weft_err *err)
{
    x->place = place;
    int32_t n_strict = strict_lanes(x);
    int rc = make_room(x, n_strict + soft_lanes(x->r), err);
    if (rc)
        return rc;
    look_back(x, n_strict);
    look_ahead(x);
    return 0;
}

/* Others are known by their group alone. */
static size_t exact_node(const struct weft_rec_reach *x, int64_t task)
{
    weft_assert(is_here(x, task) || x->head[x->group[task]] == task);
    return node_of(x, task);
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
