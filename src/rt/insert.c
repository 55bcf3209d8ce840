/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks are made and handed to StarPU. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/moves.h"
#include "rt/record.h"

/* Counts the tiles to hold: parts of cut tiles, and tiles not cut. */
static int count_held(const struct weft_access *access, int n_access)
{
    int n = 0;
    for (int i = 0; i < n_access; i++)
        n += weft_tile_n_parts(access[i].tile);
    return n;
}

static void list_held(struct weft_task *t)
{
    int n = 0;
    for (int i = 0; i < t->n_access; i++)
        for (int k = 0; k < weft_tile_n_parts(t->access[i].tile); k++)
            t->held[n++] = (struct weft_access){
                weft_tile_part(t->access[i].tile, k), t->access[i].mode};
}

/* Allocates a task, its accesses, buffers and arguments in one piece. */
static struct weft_task *task_allocate(struct weft_rt *rt,
                                       const struct weft_access *access,
                                       int n_access, const void *args,
                                       size_t args_bytes)
{
    size_t n = (size_t) n_access;
    size_t n_held = (size_t) count_held(access, n_access);
    size_t access_at = (sizeof(struct weft_task) + 15) / 16 * 16;
    size_t held_at = access_at + n * sizeof *access;
    size_t buf_at = held_at + (n_held > n ? n_held * sizeof *access : 0);
    size_t args_at = (buf_at + n * sizeof(void *) + 15) / 16 * 16;
    struct weft_task *t = weft_block_get(rt, args_at + args_bytes);
    char *block = (char *) t;
    t->access = (struct weft_access *) (block + access_at);
    t->buf = (void **) (block + buf_at);
    t->args = block + args_at;
    t->n_access = n_access;
    if (n)
        memcpy(t->access, access, n * sizeof *access);
    t->held = n_held > n ? (struct weft_access *) (block + held_at)
                         : t->access;
    t->n_held = (int) n_held;
    if (n_held > n)
        list_held(t);
    if (args_bytes)
        memcpy(t->args, args, args_bytes);
    return t;
}

enum starpu_data_access_mode weft_starpu_mode(enum weft_mode mode)
{
    static const enum starpu_data_access_mode access[] = {
        [WEFT_READ] = STARPU_R,
        [WEFT_WRITE] = STARPU_W,
        [WEFT_READ_WRITE] = STARPU_RW};
    return access[mode];
}

static enum starpu_data_access_mode merge(enum starpu_data_access_mode a,
                                          enum weft_mode b)
{
    return (enum starpu_data_access_mode)(a | weft_starpu_mode(b));
}

/* Gives the StarPU task the handles of its accesses. A tile that appears twice
 * is listed once, with both modes. StarPU frees the lists. */
static void task_handles(struct weft_task *t, struct starpu_task *task,
                         uint64_t mark)
{
    starpu_data_handle_t *handle = task->handles;
    enum starpu_data_access_mode *mode = task->modes;
    if (t->n_held > STARPU_NMAXBUFS) {
        size_t n = (size_t) t->n_held;
        handle = weft_insert_alloc(n, sizeof *handle, "a task");
        mode = weft_insert_alloc(n, sizeof *mode, "a task");
        task->dyn_handles = handle;
        task->dyn_modes = mode;
    }
    int n = 0;
    for (int i = 0; i < t->n_held; i++) {
        struct weft_tile *tile = t->held[i].tile;
        if (tile->mark != mark) {
            tile->mark = mark;
            tile->slot = n;
            handle[n] = tile->handle;
            mode[n++] = (enum starpu_data_access_mode) 0;
        }
        mode[tile->slot] = merge(mode[tile->slot], t->held[i].mode);
    }
    task->nbuffers = n;
}

static void task_place(const struct weft_rt *rt, struct weft_task *t,
                       struct starpu_task *task)
{
    t->node.task = task;
    t->node.gates = t->seq->gates;
    t->node.where = &t->where;
    t->node.order = rt->n_inserted;
    t->node.gang = t->team ? &t->team->gang : NULL;
    if (rt->policy) {
        task->sched_data = &t->node;
        return;
    }
    int priority = t->where.priority;
    task->priority = priority < rt->min_priority ? rt->min_priority
                   : priority > rt->max_priority ? rt->max_priority
                                                 : priority;
    if (t->where.device >= 0) {
        task->execute_on_a_specific_worker = 1;
        task->workerid = (unsigned) t->where.device;
    }
}

int weft_where_check(const struct weft_rt *rt, const char *op,
                     const struct weft_where *where, struct weft_err *err)
{
    if (where->device < -1 || where->device >= weft_rt_n_devices(rt))
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: there is no device %d; 0 to %d, or -1", op,
                            where->device, weft_rt_n_devices(rt) - 1);
    if (where->position < 0 || (where->position > 0 && where->device < 0))
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: position %lld needs a device and counts "
                            "from 1",
                            op, (long long) where->position);
    if (where->chain < 0 || where->chain >= WEFT_N_CHAINS)
        return weft_err_set(err, WEFT_EINVAL,
                            "%s: there is no chain %d; 0 to %d", op,
                            where->chain, WEFT_N_CHAINS - 1);
    if (where->call < 0 || where->call >= WEFT_MAX_CALLS)
        return weft_err_set(err, WEFT_EINVAL, "%s: unknown call %d", op,
                            (int) where->call);
    return 0;
}

/* The place whose memory a task at `where` uses. */
static int place_of(const struct weft_rt *rt, const struct weft_where *where,
                    const struct weft_access *access, int n_access)
{
    if (where->device >= 0)
        return weft_rt_place_of(rt, where->device);
    return n_access > 0 ? access[0].tile->id.place : 0;
}

/* Makes the codelet known to the watchdog. */
static void codelet_know(struct weft_rt *rt, struct weft_codelet *codelet)
{
    if (codelet->known)
        return;
    codelet->known = true;
    codelet->what = weft_rec_op_what(codelet->starpu.name);
    /* StarPU waits for the stream before it ends the task */
    if (codelet->cuda)
        codelet->starpu.cuda_flags[0] = STARPU_CUDA_ASYNC;
    pthread_mutex_lock(&rt->mutex);
    codelet->next = rt->codelet;
    rt->codelet = codelet;
    pthread_mutex_unlock(&rt->mutex);
}

struct weft_task *weft_task_create(struct weft_seq *seq,
                                   const struct weft_codelet *codelet,
                                   const void *args, size_t args_bytes,
                                   const struct weft_access *access,
                                   int n_access,
                                   const struct weft_where *where)
{
    struct weft_rt *rt = seq->rt;
    struct weft_task *t = task_allocate(rt, access, n_access, args,
                                        args_bytes);
    t->seq = seq;
    t->at = rt->n_copies;
    /* WEFT_CODELET defines it without const, as StarPU writes to it. */
    t->codelet = (struct weft_codelet *) (uintptr_t) codelet;
    t->where = *where;
    t->span = weft_record_span(rt);
    /* from here on it is the number of StarPU's worker */
    if (where->device >= 0)
        t->where.device -= rt->first_device;
    codelet_know(rt, t->codelet);
    if (rt->moves)
        weft_moves_insert(rt, t);
    return t;
}

static int check_places(const char *op, int place,
                        const struct weft_access *access, int n_access,
                        struct weft_err *err)
{
    for (int i = 0; i < n_access; i++) {
        char label[160];
        const struct weft_tile *tile = access[i].tile;
        if (tile->id.place == place)
            continue;
        weft_tile_label(tile, label, sizeof label);
        return weft_err_set(err, WEFT_EINTERNAL,
                            "%s at place %d uses '%s', which lies at place "
                            "%d; copy it there first",
                            op, place, label, tile->id.place);
    }
    return 0;
}

/* StarPU frees the struct with free() when the task has ended. */
static struct starpu_task *starpu_task_of(struct weft_task *t)
{
    struct starpu_task *task = malloc(sizeof *task);
    if (!task)
        weft_insert_nomem("a task", sizeof *task);
    starpu_task_init(task);
    task->destroy = 1;
    task->cl = &t->codelet->starpu;
    task->cl_arg = t;
    task->cl_arg_size = sizeof *t;
    task->callback_func = weft_task_ended;
    task->callback_arg = t;
    return task;
}

/* Submits a task that is complete. */
static int task_submit(struct weft_task *t, struct starpu_task *task)
{
    weft_task_hold_tiles(t);
    t->lot = weft_seq_begin(t->seq, t->n_held);
    WEFT_TSAN_RELEASE(t);
    WEFT_TSAN_RELEASE(task); /* for who puts it into a lane */
    int rc = starpu_task_submit(task);
    if (!rc)
        return 0;
    atomic_fetch_sub(&t->codelet->n_pending, 1);
    weft_task_leave_tiles(t, NULL);
    weft_task_drop_tiles(t);
    weft_seq_end(t->seq, t->lot, t->n_held);
    return rc;
}

/* False only for devices of other ranks. A number that is no device at all
 * counts as here, so that all ranks check and refuse it. */
static bool device_is_here(const struct weft_rt *rt, int device)
{
    int local = device - rt->first_device;
    return rt->all_ranks || (local >= 0 && local < rt->n_devices)
        || device < 0 || device >= rt->n_devices * rt->n_ranks;
}

bool weft_seq_is_here(const struct weft_seq *seq,
                      const struct weft_where *where)
{
    return device_is_here(seq->rt, where->device);
}

/* The device of a task that any of its place may run; -1: the policy chooses.
 * With cards it does not, as it would have to know which devices are CPUs. */
static int any_device(const struct weft_rt *rt, int place)
{
    int device = weft_place_device(rt, place);
    if (device >= 0 || rt->n_cards == 0)
        return device;
    int n = rt->n_devices - rt->n_cards;
    return weft_rt_place_rank(rt, place) * rt->n_devices + rt->n_cards
         + (int) (rt->n_inserted % n);
}

/* Of a task that is only recorded: fails where it would be refused when it
 * runs at a GPU's place. */
static void check_card(struct weft_seq *seq,
                       const struct weft_codelet *codelet,
                       const struct weft_access *access, int n_access)
{
    char label[160];
    for (int i = 0; i < n_access && !codelet->has_cuda; i++) {
        if (!weft_tile_on_card(access[i].tile))
            continue;
        weft_tile_label(access[i].tile, label, sizeof label);
        weft_seq_fail(seq, WEFT_EUNSUPPORTED, "%s " WEFT_NO_CUDA_BODY,
                      codelet->starpu.name, label);
    }
}

void weft_insert(struct weft_seq *seq, const struct weft_codelet *codelet,
                 const void *args, size_t args_bytes,
                 const struct weft_access *access, int n_access,
                 const struct weft_where *where)
{
    weft_insert_work(seq, codelet, args, args_bytes, access, n_access, where,
                     NULL);
}

void weft_insert_work(struct weft_seq *seq,
                      const struct weft_codelet *codelet, const void *args,
                      size_t args_bytes, const struct weft_access *access,
                      int n_access, const struct weft_where *where,
                      const struct weft_work *work)
{
    struct weft_rt *rt = seq->rt;
    if (!device_is_here(rt, where->device))
        return;
    const char *op = codelet->starpu.name;
    struct weft_where here = *where;
    struct weft_err err;
    int rc = weft_where_check(rt, op, where, &err);
    if (!rc) {
        int place = place_of(rt, where, access, n_access);
        if (!weft_rt_has_place(rt, place))
            return;
        if (here.device < 0)
            here.device = any_device(rt, place);
        rc = check_places(op, place, access, n_access, &err);
    }
    if (rc) {
        int member, n;
        weft_seq_record(seq, rt->n_copies, &err);
        weft_team_drop(weft_team_next(seq, &member, &n));
        return;
    }
    if (rt->is_dry)
        check_card(seq, codelet, access, n_access);
    weft_insert_here(seq, codelet, args, args_bytes, access, n_access, &here,
                     work);
}

void weft_insert_here(struct weft_seq *seq,
                      const struct weft_codelet *codelet, const void *args,
                      size_t args_bytes, const struct weft_access *access,
                      int n_access, const struct weft_where *where,
                      const struct weft_work *work)
{
    struct weft_rt *rt = seq->rt;
    int member = 0, n_members = 0;
    struct weft_team *team = NULL;
    if (seq->n_members > 0)
        team = weft_team_next(seq, &member, &n_members);
    rt->n_inserted++;
    if (rt->recording)
        weft_record_task(rt, WEFT_REC_TASK, codelet->starpu.name, where,
                         access, n_access, work);
    if (n_members > 0)
        weft_record_member(rt, where, member, n_members, work);
    if (rt->is_dry)
        return;
    struct weft_task *t = weft_task_create(seq, codelet, args, args_bytes,
                                           access, n_access, where);
    struct starpu_task *task = starpu_task_of(t);
    t->team = team;
    t->member = (int16_t) member;
    t->moments = weft_ran_insert(rt, codelet->what, where);
    task_handles(t, task, (uint64_t) rt->n_inserted);
    task_place(rt, t, task);
    int rc = task_submit(t, task);
    if (!rc)
        return;
    weft_seq_fail(seq, WEFT_EINTERNAL, "StarPU refuses %s: %s",
                  codelet->starpu.name, strerror(-rc));
    task->destroy = 0;
    starpu_task_destroy(task);
    weft_team_drop(team);
    weft_block_put(rt, t);
}
