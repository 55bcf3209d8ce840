/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy "lanes": tasks with positions run in the plan's order; other tasks
 * run while the next one of the order is not ready. (plan/task.h: struct
 * weft_where.)
 *
 *   push ---> has a position, not its turn ---> gate (device, chain)
 *     |                                            | its turn
 *     +--> device d ---> lane d: ready, by priority, then insertion
 *     +--> any device -> shared: the same
 *   pop of device d: the task of lane d or of shared that comes first
 *
 * It is a position's turn when the task with the position before it has been
 * popped. That task ends before the next pop, as a device is one worker. Of
 * tasks with the same priority those with a position come first.
 *
 * The members of a gang come into their lanes when the last of them is ready.
 * When a device takes one, the others are reserved: they are the next that
 * their devices take, in the order in which their gangs began. So whoever waits
 * for a device in a gang waits for gangs that began before, and these for still
 * earlier ones: somebody always goes on, with any number of cores, and in
 * whatever order devices would have taken them. Reserved tasks are no longer in
 * the lane's heap of gangs, of which it has few.
 *
 * `state.mutex` guards everything except the counters, which pop reads first
 * to see whether there are tasks. No lock of StarPU is taken while it is held.
 * A worker without tasks returns to StarPU, which asks again, and after a while
 * sleeps on its lane's condition.
 */
#include "sched/sched.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "sched/heap.h"

enum {
    /* A push ends a nap. These limits are for the end of StarPU, and for tasks
     * that it does not push to the policy. */
    NAP_FIRST_US = 1000,
    NAP_LAST_US = 10000
};

struct lane {
    struct weft_node *ready, *gangs;
    struct weft_node *reserved, **last_reserved; /* linked by sibling */
    atomic_int n_ready;                          /* of all three */
    bool napping;
    bool woken;
    pthread_cond_t wake;
    /* since when it is idle; 0: it was busy; used by its worker only */
    int64_t idle_since_us;
    int nap_us;    /* the worker's own */
    int under_way; /* tasks that it was given and has not ended; its own */
};

static struct {
    pthread_mutex_t mutex;
    int n_lanes;
    int spin_us;
    struct lane lane[STARPU_NMAXWORKERS];
    struct weft_node *shared;
    atomic_int n_shared;
    /* tasks that are not Weft's, for any worker */
    struct starpu_task_list foreign;
    atomic_int n_foreign;
} state;

static bool ready_before(const struct weft_node *a, const struct weft_node *b)
{
    if (a->where->priority != b->where->priority)
        return a->where->priority > b->where->priority;
    bool strict_a = a->where->position > 0;
    bool strict_b = b->where->position > 0;
    if (strict_a != strict_b)
        return strict_a;
    return a->order < b->order;
}

static bool turn_before(const struct weft_node *a, const struct weft_node *b)
{
    if (a->where->position != b->where->position)
        return a->where->position < b->where->position;
    return a->order < b->order;
}

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- With the mutex held ---------------------------------------------- */

static void wake(struct lane *lane)
{
    if (!lane->napping || lane->woken)
        return;
    lane->woken = true;
    pthread_cond_signal(&lane->wake);
}

static void wake_any(void)
{
    for (int d = 0; d < state.n_lanes; d++) {
        if (state.lane[d].napping && !state.lane[d].woken) {
            wake(&state.lane[d]);
            return;
        }
    }
}

static void make_ready(struct weft_node *node)
{
    if (node->where->device < 0) {
        weft_heap_add(&state.shared, node, ready_before);
        atomic_fetch_add(&state.n_shared, 1);
        wake_any();
        return;
    }
    struct lane *lane = &state.lane[node->where->device];
    bool together = node->gang && !node->gang->apart;
    weft_heap_add(together ? &lane->gangs : &lane->ready, node, ready_before);
    atomic_fetch_add(&lane->n_ready, 1);
    wake(lane);
}

static void leave_forming(struct weft_gang *gang)
{
    *gang->here = gang->next;
    if (gang->next)
        gang->next->here = gang->here;
}

/* A member is ready; with the last one all are. */
static void join_gang(struct weft_node *node)
{
    struct weft_gang *gang = node->gang, **list = &node->gates->forming;
    if (gang->n_ready == 0 && gang->n > 1) {
        gang->next = *list;
        gang->here = list;
        if (gang->next)
            gang->next->here = &gang->next;
        *list = gang;
    }
    gang->member[gang->n_ready++] = node;
    if (gang->n_ready < gang->n)
        return;
    if (gang->n > 1)
        leave_forming(gang);
    for (int i = 0; i < gang->n; i++)
        make_ready(gang->member[i]);
}

/* After an error members need nobody, as their bodies do nothing. */
static void part_gangs(struct weft_gates *gates)
{
    while (gates->forming) {
        struct weft_gang *gang = gates->forming;
        leave_forming(gang);
        gang->apart = true;
        for (int i = 0; i < gang->n_ready; i++)
            make_ready(gang->member[i]);
    }
}

static void let_through(struct weft_node *node)
{
    if (node->gang && !node->gates->open) {
        join_gang(node);
    } else {
        if (node->gang)
            node->gang->apart = true;
        make_ready(node);
    }
}

static void reserve(struct weft_node *node)
{
    struct lane *lane = &state.lane[node->where->device];
    struct weft_node *others = NULL;
    for (;;) {
        struct weft_node *first = weft_heap_take(&lane->gangs, ready_before);
        if (first == node)
            break;
        first->sibling = others;
        others = first;
    }
    while (others) {
        struct weft_node *next = others->sibling;
        weft_heap_add(&lane->gangs, others, ready_before);
        others = next;
    }
    node->sibling = NULL;
    *lane->last_reserved = node;
    lane->last_reserved = &node->sibling;
    wake(lane);
}

/* A device takes a member of a gang that has not begun. */
static void begin_gang(const struct weft_node *node)
{
    for (int i = 0; i < node->gang->n; i++)
        if (node->gang->member[i] != node)
            reserve(node->gang->member[i]);
}

static struct weft_gate *gate_of(const struct weft_node *node)
{
    return &node->gates->gate[node->where->device * WEFT_N_CHAINS
                              + node->where->chain];
}

/* Makes the tasks at a gate ready whose turn it is, or all of them. */
static void gate_pass(struct weft_gate *gate, bool everybody)
{
    while (gate->waiting
           && (everybody || gate->waiting->where->position <= gate->next))
        let_through(weft_heap_take(&gate->waiting, turn_before));
}

/* The first of what a lane may take; NULL: nothing. */
static const struct weft_node *first_of(const struct lane *lane)
{
    if (lane->reserved || !lane->gangs)
        return lane->reserved ? lane->reserved : lane->ready;
    return !lane->ready || ready_before(lane->gangs, lane->ready)
             ? lane->gangs
             : lane->ready;
}

/* Takes it out of its list. */
static struct weft_node *take_own(struct lane *lane)
{
    const struct weft_node *first = first_of(lane);
    struct weft_node *node = lane->reserved;
    atomic_fetch_sub(&lane->n_ready, 1);
    if (node) {
        lane->reserved = node->sibling;
        if (!lane->reserved)
            lane->last_reserved = &lane->reserved;
    } else if (first == lane->gangs) {
        node = weft_heap_take(&lane->gangs, ready_before);
        begin_gang(node);
    } else {
        node = weft_heap_take(&lane->ready, ready_before);
    }
    return node;
}

/* The task that device d runs next, or NULL. */
static struct starpu_task *take(int d)
{
    struct lane *lane = &state.lane[d];
    if (!starpu_task_list_empty(&state.foreign)) {
        struct starpu_task *task = starpu_task_list_front(&state.foreign);
        unsigned impl;
        if (starpu_worker_can_execute_task_first_impl((unsigned) d, task,
                                                      &impl)) {
            starpu_task_list_erase(&state.foreign, task);
            atomic_fetch_sub(&state.n_foreign, 1);
            return task;
        }
    }
    const struct weft_node *own = first_of(lane);
    struct weft_node *node;
    if (own
        && (!state.shared || own == lane->reserved
            || ready_before(own, state.shared))) {
        node = take_own(lane);
    } else if (state.shared) {
        node = weft_heap_take(&state.shared, ready_before);
        atomic_fetch_sub(&state.n_shared, 1);
    } else {
        return NULL;
    }
    if (node->where->position > 0) {
        struct weft_gate *gate = gate_of(node);
        if (node->where->position >= gate->next)
            gate->next = node->where->position + 1;
        gate_pass(gate, node->gates->open);
    }
    return node->task;
}

/* ---- StarPU's calls --------------------------------------------------- */

static int lanes_push(struct starpu_task *task)
{
    WEFT_TSAN_ACQUIRE(task);
    struct weft_node *node = task->sched_data;
    pthread_mutex_lock(&state.mutex);
    /* It must come before the task can be popped, run and freed. */
    starpu_push_task_end(task);
    if (!node) {
        starpu_task_list_push_back(&state.foreign, task);
        atomic_fetch_add(&state.n_foreign, 1);
        for (int d = 0; d < state.n_lanes; d++)
            wake(&state.lane[d]);
    } else if (node->where->position > 0 && !node->gates->open
               && node->where->position > gate_of(node)->next) {
        weft_heap_add(&gate_of(node)->waiting, node, turn_before);
    } else {
        let_through(node);
    }
    pthread_mutex_unlock(&state.mutex);
#ifndef STARPU_NON_BLOCKING_DRIVERS
    for (int d = 0; d < state.n_lanes; d++)
        starpu_wake_worker_relax_light(d);
#endif
    return 0;
}

static bool nothing(const struct lane *lane)
{
    return atomic_load(&lane->n_ready) == 0
        && atomic_load(&state.n_shared) == 0
        && atomic_load(&state.n_foreign) == 0;
}

/* Sleeps until a push wakes the lane, or for nap_us. */
static struct starpu_task *nap(int d)
{
    struct lane *lane = &state.lane[d];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long) lane->nap_us * 1000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    /* In relaxed state, so that a thread that observes this worker need not
     * wait for the end of the nap. */
    starpu_worker_relax_on();
    pthread_mutex_lock(&state.mutex);
    struct starpu_task *task = take(d);
    if (!task) {
        lane->napping = true;
        lane->woken = false;
        pthread_cond_timedwait(&lane->wake, &state.mutex, &t);
        lane->napping = false;
        task = take(d);
        /* The lane may have been woken for a shared task and have taken one of
         * its own; if shared tasks are left, wake another lane. */
        if (lane->woken && state.shared)
            wake_any();
        lane->woken = false;
    }
    pthread_mutex_unlock(&state.mutex);
    starpu_worker_relax_off();
    lane->nap_us = task                           ? NAP_FIRST_US
                 : lane->nap_us * 2 < NAP_LAST_US ? lane->nap_us * 2
                                                  : NAP_LAST_US;
    return task;
}

static struct starpu_task *lanes_pop(unsigned sched_ctx_id)
{
    (void) sched_ctx_id;
    int d = starpu_worker_get_id();
    struct lane *lane = &state.lane[d];
    struct starpu_task *task = NULL;
    if (!nothing(lane)) {
        pthread_mutex_lock(&state.mutex);
        task = take(d);
        pthread_mutex_unlock(&state.mutex);
    } else if (lane->under_way == 0) {
        int64_t now = now_us();
        if (lane->idle_since_us == 0)
            lane->idle_since_us = now;
        if (now - lane->idle_since_us >= state.spin_us)
            task = nap(d);
    }
    if (task) {
        lane->idle_since_us = 0;
        lane->under_way += task->sched_data != NULL;
    }
    return task;
}

/* A GPU's worker is asked for tasks while others are under way, whose end it
 * would sleep through. */
static void lanes_ended(struct starpu_task *task, unsigned sched_ctx_id)
{
    (void) sched_ctx_id;
    if (task->sched_data)
        state.lane[starpu_worker_get_id()].under_way--;
}

static void lanes_init(unsigned sched_ctx_id)
{
    (void) sched_ctx_id;
    starpu_sched_ctx_set_min_priority(sched_ctx_id, -1000000);
    starpu_sched_ctx_set_max_priority(sched_ctx_id, 1000000);
    pthread_condattr_t attr;
    pthread_mutex_init(&state.mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (int d = 0; d < state.n_lanes; d++) {
        struct lane *lane = &state.lane[d];
        pthread_cond_init(&lane->wake, &attr);
        lane->ready = lane->gangs = lane->reserved = NULL;
        lane->last_reserved = &lane->reserved;
        atomic_store(&lane->n_ready, 0);
        lane->napping = lane->woken = false;
        lane->idle_since_us = 0;
        lane->nap_us = NAP_FIRST_US;
        lane->under_way = 0;
    }
    pthread_condattr_destroy(&attr);
    state.shared = NULL;
    atomic_store(&state.n_shared, 0);
    starpu_task_list_init(&state.foreign);
    atomic_store(&state.n_foreign, 0);
}

static void lanes_deinit(unsigned sched_ctx_id)
{
    (void) sched_ctx_id;
    for (int d = 0; d < state.n_lanes; d++)
        pthread_cond_destroy(&state.lane[d].wake);
    pthread_mutex_destroy(&state.mutex);
}

/* ---- The runtime's calls ---------------------------------------------- */

static void lanes_configure(int n_devices, int spin_us)
{
    state.n_lanes = n_devices;
    state.spin_us = spin_us;
}

static void lanes_open(struct weft_gates *gates)
{
    pthread_mutex_lock(&state.mutex);
    gates->open = true;
    part_gangs(gates);
    for (int i = 0; i < gates->n_devices * WEFT_N_CHAINS; i++)
        gate_pass(&gates->gate[i], true);
    pthread_mutex_unlock(&state.mutex);
}

static void lanes_reset(struct weft_gates *gates)
{
    pthread_mutex_lock(&state.mutex);
    gates->open = false;
    for (int i = 0; i < gates->n_devices * WEFT_N_CHAINS; i++)
        gates->gate[i].next = 1;
    pthread_mutex_unlock(&state.mutex);
}

static void lanes_describe(struct weft_gates *gates, char *text, size_t size)
{
    text[0] = 0;
    pthread_mutex_lock(&state.mutex);
    if (gates->forming)
        snprintf(text, size, "of a gang of %d tasks only %d are ready",
                 gates->forming->n, gates->forming->n_ready);
    for (int i = 0; i < gates->n_devices * WEFT_N_CHAINS; i++) {
        const struct weft_gate *gate = &gates->gate[i];
        if (!gate->waiting)
            continue;
        snprintf(text, size,
                 "device %d, chain %d: position %lld is ready but waits for "
                 "%lld, which is blocked or was never inserted",
                 gates->first_device + i / WEFT_N_CHAINS, i % WEFT_N_CHAINS,
                 (long long) gate->waiting->where->position,
                 (long long) gate->next);
        break;
    }
    pthread_mutex_unlock(&state.mutex);
}

static struct starpu_sched_policy lanes_starpu = {
    .init_sched = lanes_init,
    .deinit_sched = lanes_deinit,
    .push_task = lanes_push,
    .pop_task = lanes_pop,
    .post_exec_hook = lanes_ended,
    .policy_name = "weft",
    .policy_description = "a lane per device: positions, then priorities",
    .worker_type = STARPU_WORKER_LIST,
};

const struct weft_policy weft_sched_lanes = {
    .starpu = &lanes_starpu,
    .configure = lanes_configure,
    .open = lanes_open,
    .reset = lanes_reset,
    .describe = lanes_describe,
};
