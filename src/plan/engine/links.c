/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on links. A link that carries n messages carries 1 / n of its bytes
 * per second of each; so its work, the bytes carried of a message that was
 * there always, says when each of them is over: at a work that is known when
 * the message comes, however many come later.
 */
#include "plan/engine/inside.h"

#include "base/alloc.h"

/* ---- A link ------------------------------------------------------------ */

static bool is_before(struct weft_engine_load a, struct weft_engine_load b)
{
    return a.target != b.target ? a.target < b.target : a.task < b.task;
}

static void load_add(struct weft_engine *e, struct weft_engine_link *l,
                     struct weft_engine_load one)
{
    int64_t room = l->room;
    if (!weft_engine_room(e, &l->load, l->n, &room, sizeof *l->load))
        return;
    l->room = (int32_t) room;
    int32_t i = l->n++;
    for (; i > 0 && is_before(one, l->load[(i - 1) / 2]); i = (i - 1) / 2)
        l->load[i] = l->load[(i - 1) / 2];
    l->load[i] = one;
}

static void load_take(struct weft_engine_link *l)
{
    struct weft_engine_load last = l->load[--l->n];
    int32_t i = 0;
    for (int32_t k = 1; k < l->n; k = 2 * i + 1) {
        if (k + 1 < l->n && is_before(l->load[k + 1], l->load[k]))
            k++;
        if (!is_before(l->load[k], last))
            break;
        l->load[i] = l->load[k];
        i = k;
    }
    l->load[i] = last;
}

static void work(struct weft_engine *e, int32_t link)
{
    struct weft_engine_link *l = &e->link[link];
    l->work = l->n == 0 ? 0
                        : l->work
                              + (e->now_s - l->since_s)
                                    * e->job.bytes_per_s[link] / l->n;
    l->since_s = e->now_s;
}

/* Sets when the link's next message is over. */
static void wind(struct weft_engine *e, int32_t link)
{
    struct weft_engine_link *l = &e->link[link];
    if (l->n == 0) {
        weft_timers_remove_first(&e->timers); /* it has just gone off */
        return;
    }
    double left = l->load[0].target - l->work;
    left = left > 0 ? left * l->n / e->job.bytes_per_s[link] : 0;
    weft_timers_set(&e->timers, e->job.n_devices + link, e->now_s + left);
}

/* ---- Messages ---------------------------------------------------------- */

static int32_t flight_timer(const struct weft_engine *e, int32_t flight)
{
    return e->job.n_devices + e->job.n_links + e->n_ranks + flight;
}

static int32_t take_off(struct weft_engine *e, int64_t task)
{
    int32_t i = e->free_flight;
    if (i != WEFT_ENGINE_NONE) {
        e->free_flight = e->flight[i].next;
    } else {
        int64_t room = e->flight_room;
        if (!weft_engine_room(e, &e->flight, e->n_flights, &room,
                              sizeof *e->flight))
            return WEFT_ENGINE_NONE;
        e->flight_room = (int32_t) room;
        i = e->n_flights++;
        if (!weft_timers_room(&e->timers, flight_timer(e, i) + 1)) {
            e->full = true;
            return WEFT_ENGINE_NONE;
        }
    }
    e->flight[i] = (struct weft_engine_flight){.task = task};
    return i;
}

/* Counts a message at the places of its ends. */
static void count(struct weft_engine *e, int64_t task, int sign)
{
    const struct weft_rec_task *t = weft_engine_rec(e, task);
    int32_t last = WEFT_ENGINE_NONE;
    for (int64_t a = t->access; a < t->access + t->n_access; a++) {
        int32_t place = e->r->tile[e->r->access[a].tile].place;
        if (place == last)
            continue;
        struct weft_engine_place *p = &e->place[place];
        p->moved_s = weft_engine_moved_s(e, place);
        p->since_s = e->now_s;
        p->n_messages += sign;
        last = place;
    }
}

double weft_engine_moved_s(const struct weft_engine *e, int32_t place)
{
    const struct weft_engine_place *p = &e->place[place];
    return p->moved_s + (p->n_messages > 0 ? e->now_s - p->since_s : 0);
}

/* Its sender, 0, or its receiver handles a message. */
static void handle(struct weft_engine *e, int64_t task, int end, double s)
{
    int32_t rank[2];
    if (s > 0 && weft_engine_ranks(e, task, rank) > end)
        weft_engine_owe(e, rank[end], s);
}

static void send(struct weft_engine *e, int64_t task)
{
    struct weft_engine_message m = {.n_links = 0};
    e->job.message(e->job.ctx, e->r, task, &m);
    int32_t i = take_off(e, task);
    if (e->full)
        return;
    weft_engine_begun(e, task, -1);
    count(e, task, 1);
    e->flight[i].n_links = m.n_links;
    e->flight[i].latency_s = m.latency_s;
    e->flight[i].core_s = m.core_s;
    handle(e, task, 0, m.core_s);
    for (int32_t k = 0; k < m.n_links; k++) {
        struct weft_engine_link *l = &e->link[m.link[k]];
        work(e, m.link[k]);
        load_add(e, l, (struct weft_engine_load){l->work + m.bytes, task, i});
        if (!e->full)
            wind(e, m.link[k]);
    }
    if (m.n_links == 0)
        weft_timers_set(&e->timers, flight_timer(e, i),
                        e->now_s + m.latency_s);
}

static void answer(struct weft_engine *e, int64_t task)
{
    int32_t i = take_off(e, task);
    if (e->full)
        return;
    weft_engine_begun(e, task, -1);
    weft_timers_set(&e->timers, flight_timer(e, i),
                    e->now_s + e->job.seconds(e->job.ctx, e->r, task, -1));
}

void weft_engine_post(struct weft_engine *e, int64_t task)
{
    e->task[task].link[0] = e->posted;
    e->posted = (int32_t) task;
}

void weft_engine_begin_posted(struct weft_engine *e)
{
    while (e->posted != WEFT_ENGINE_NONE && !e->full) {
        int32_t task = e->posted;
        e->posted = e->task[task].link[0];
        if (weft_engine_rec(e, task)->kind != WEFT_REC_ANSWER)
            send(e, task);
        else
            answer(e, task);
    }
}

void weft_engine_link_ended(struct weft_engine *e, int32_t link)
{
    struct weft_engine_link *l = &e->link[link];
    struct weft_engine_load first = l->load[0];
    struct weft_engine_flight *f = &e->flight[first.flight];
    work(e, link);
    l->work = first.target;
    load_take(l);
    wind(e, link);
    if (--f->n_links == 0)
        weft_timers_set(&e->timers, flight_timer(e, first.flight),
                        e->now_s + f->latency_s);
}

void weft_engine_flight_ended(struct weft_engine *e, int32_t flight)
{
    struct weft_engine_flight *f = &e->flight[flight];
    int64_t task = f->task;
    if (weft_engine_rec(e, task)->kind != WEFT_REC_ANSWER) {
        count(e, task, -1);
        handle(e, task, 1, f->core_s);
    }
    weft_timers_remove_first(&e->timers);
    f->next = e->free_flight;
    e->free_flight = flight;
    weft_engine_end(e, task);
}
