/* SPDX-License-Identifier: Apache-2.0 */
#include "run/predict/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "codelets/codelets.h"
#include "job/plan_needs.h"
#include "plan/card_memory.h"
#include "run/predict/largest.h"
#include "run/predict/recorded.h"

/* ---- Predicted -------------------------------------------------------- */

static int table_create(const struct weft_trainer *t,
                        int64_t (**out)[WEFT_MEM_ALL + 1],
                        struct weft_err *err)
{
    size_t n = (size_t) (t->job.n_ranks * t->job.n_devices);
    weft_free(*out);
    *out = weft_alloc(n, sizeof **out);
    return *out ? 0 : weft_err_nomem(err, "a memory plan", n * sizeof **out);
}

static int32_t places_per_rank(const struct weft_trainer *t)
{
    return weft_g_job_places_per_rank(&t->job);
}

/* A rank's first place in host memory. */
static int32_t host_place(const struct weft_trainer *t, int32_t rank)
{
    return rank * places_per_rank(t) + t->job.n_gpus;
}

/* Whether bytes of a class at a place are part of its sum: a GPU's has not
 * what lies in host memory. */
static bool counts(const struct weft_trainer *t, int32_t place,
                   enum weft_mem_class c)
{
    return weft_mem_class_at_place(c)
        && (place % places_per_rank(t) >= t->job.n_gpus
            || !weft_mem_class_on_host(c));
}

static void add_to(const struct weft_trainer *t,
                   int64_t (*table)[WEFT_MEM_ALL + 1], int32_t place,
                   enum weft_mem_class c, int64_t bytes)
{
    table[place][c] += bytes;
    table[place][WEFT_MEM_ALL] += counts(t, place, c) ? bytes : 0;
}

/* Records of tasks: a rank's, at its first place in host memory. A worker, or
 * who moves messages, may have given a task's tiles back and its record not
 * yet, however long ago that was: each can hold one. */
static void add_tasks(const struct weft_trainer *t,
                      const struct weft_rec_open *open,
                      int64_t (*place)[WEFT_MEM_ALL + 1])
{
    for (int32_t i = 0; i < t->job.n_ranks; i++)
        add_to(t, place, host_place(t, i), WEFT_MEM_TASKS,
               open[i].bytes + (t->job.n_devices + 1) * open[i].largest);
}

static int add_open(const struct weft_trainer *t,
                    const struct weft_recording *r, bool bound,
                    int64_t (*place)[WEFT_MEM_ALL + 1], struct weft_err *err)
{
    size_t n = (size_t) t->job.n_ranks;
    struct weft_rec_open *open = weft_alloc(n, sizeof *open);
    int rc = !open ? weft_err_nomem(err, "a memory plan", n * sizeof *open)
           : bound ? weft_memory_open(t, r, open, err)
                   : weft_recording_open(r, t->job.n_ranks,
                                         places_per_rank(t), open, err);
    if (!rc)
        add_tasks(t, open, place);
    weft_free(open);
    return rc;
}

/* A sample of the next iteration may end with the first status that comes, when
 * records of the one before are still there. The longest samples do not: what
 * takes them out of their instances, and infers them, counts once more. */
static void open_next(const struct weft_trainer *t,
                      const struct weft_recording *r,
                      struct weft_rec_open *open)
{
    for (int64_t i = 0; i < r->n_tasks && t->config.runtime.overlap; i++) {
        const struct weft_rec_task *task = &r->task[i];
        int32_t rank = task->place / places_per_rank(t);
        if (task->kind != WEFT_REC_TASK
            || task->iteration != t->settings.warmup
            || (t->flow.call[task->call].kind != WEFT_INFER
                && strcmp(weft_recording_op(r, i), "gen_retire") != 0))
            continue;
        open[rank].tasks++;
        open[rank].bytes += (int64_t) weft_rec_task_bytes(task->n_access);
    }
}

/* With inter-stage fusion a device that generates no more may infer all that
 * others do in the bound. */
static void open_inferred(const struct weft_trainer *t,
                          const struct weft_recording *r,
                          struct weft_rec_open *open)
{
    int64_t tasks = 0, bytes = 0;
    for (int64_t i = 0; i < r->n_tasks; i++) {
        const struct weft_rec_task *task = &r->task[i];
        int32_t rank = task->place / places_per_rank(t);
        if (task->kind != WEFT_REC_TASK
            || task->iteration != t->settings.warmup
            || t->flow.call[task->call].kind != WEFT_INFER)
            continue;
        int64_t each = (int64_t) weft_rec_task_bytes(task->n_access);
        open[rank].tasks--; /* of its own, which is there */
        open[rank].bytes -= each;
        tasks++;
        bytes += each;
    }
    for (int32_t i = 0; i < t->job.n_ranks; i++) {
        open[i].tasks += tasks;
        open[i].bytes += bytes;
    }
}

int weft_memory_open(const struct weft_trainer *t,
                     const struct weft_recording *bound,
                     struct weft_rec_open *open, struct weft_err *err)
{
    int64_t copies = weft_run_most_moved(t) * t->flow.n_fields;
    int rc = weft_recording_open(bound, t->job.n_ranks, places_per_rank(t),
                                 open, err);
    for (int32_t i = 0; i < t->job.n_ranks && !rc; i++) {
        open[i].tasks += copies;
        open[i].bytes += copies * (int64_t) weft_rec_task_bytes(1);
    }
    if (!rc && weft_config_generates(&t->config))
        open_next(t, bound, open);
    if (!rc && t->plan.inter_stage_fusion)
        open_inferred(t, bound, open);
    return rc;
}

/* Which samples end first decides where they are inferred and trained, and so
 * which of their tiles are copied between places: in another run it may be all
 * of them, at any place. They are counted beside what was recorded. */
static void add_copies(const struct weft_trainer *t,
                       int64_t (*place)[WEFT_MEM_ALL + 1])
{
    const struct weft_config *c = &t->config;
    int64_t tokens = t->max_prompt + c->rollout.max_new_tokens;
    int64_t each = (int64_t) weft_rollout_bytes((int32_t) tokens)
                 + (int64_t) weft_advantage_bytes((int32_t) tokens)
                 + tokens * t->flow.n_fields * (int64_t) sizeof(float);
    int64_t n = weft_run_most_moved(t);
    for (int32_t p = 0; p < weft_g_job_n_places(&t->job); p++)
        add_to(t, place, p, WEFT_MEM_SAMPLES, n * each);
}

/* Whether KV caches may move with samples: where it is chosen, or replayed,
 * when these move, and where costs are known. */
static bool moves_caches(const struct weft_trainer *t)
{
    const struct weft_config *c = &t->config;
    return c->costs || c->cluster
        || (c->rollout.remaining <= 0 && c->rollout.instances <= 0);
}

/* Of a call that generates. */
static int32_t slots_of(const struct weft_trainer *t, int32_t call)
{
    int32_t n = weft_run_samples_at(&t->config, &t->flow,
                                    weft_flow_origin_of_call(&t->flow, call));
    int32_t slots = weft_min32(t->config.rollout.slots,
                               weft_g_generate_slots(&t->layout[call], n));
    return weft_max32(slots, 1);
}

static int32_t most_slots(const struct weft_trainer *t)
{
    int32_t most = 0;
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if (t->flow.call[i].kind == WEFT_GENERATE)
            most = weft_max32(most, slots_of(t, i));
    return most;
}

/* The most pages of an instance that may leave it, of those that it has
 * (weft_g_generate_moved_pages()). */
static double moved_pages(const struct weft_trainer *t, int64_t tokens)
{
    const struct weft_config *c = &t->config;
    double share = 1.0 / 8, most = ceil((double) tokens / WEFT_PAGE_TOKENS);
    for (int32_t i = 1; i < t->flow.n_calls; i++)
        if (t->flow.call[i].kind == WEFT_GENERATE)
            share = fmax(share, 1.0 / slots_of(t, i));
    if (c->rollout.kv_blocks > 0)
        share = fmax(share, most / c->rollout.kv_blocks);
    return share;
}

/* In how many messages a KV cache of the layout moves at the most: one of each
 * WEFT_GEN_ARENAS members where each replica has one place, else one of each
 * member (weft_g_generate_move()). */
static int32_t n_messages(const struct weft_g_layout *l)
{
    const struct weft_call_plan *plan = &l->plan;
    int32_t n = plan->pp * plan->tp;
    for (int32_t i = 0; i < plan->dp; i++)
        for (int32_t k = 0; k < n; k++)
            if (weft_g_layout_member(l, i, k / plan->tp, k % plan->tp)->place
                != weft_g_layout_member(l, i, 0, 0)->place)
                return n;
    return (int32_t) weft_ceil_div(n, WEFT_GEN_ARENAS);
}

/* What a sample that moves has beside its tokens. Tasks, each of which may be
 * on any rank: that take it out, copy it and take it in; and with its cache,
 * that copy the numbers of its pages to the new instance, and in each message
 * the numbers to the members, and gather, copy and spread the pages. At a place
 * the numbers are there of the pages that it left and of those that it took,
 * and a copy for each message. */
static void count_moved(const struct weft_trainer *t, int64_t tokens,
                        int64_t *task_bytes_out, int64_t *pages_bytes_out)
{
    int64_t copy = (int64_t) weft_rec_task_bytes(2), tasks = 3 * copy;
    int64_t most = 0;
    for (int32_t i = 1; i < t->flow.n_calls && moves_caches(t); i++) {
        const struct weft_g_layout *l = &t->layout[i];
        if (t->flow.call[i].kind != WEFT_GENERATE)
            continue;
        int64_t n = n_messages(l);
        int64_t arenas = weft_ceil_div(l->plan.pp * l->plan.tp, n);
        int64_t each = 3 * copy
                     + 2 * (int64_t) weft_rec_task_bytes(2 + arenas);
        tasks = weft_max64(tasks, (int64_t) weft_rec_task_bytes(3) + 2 * copy
                                      + (int64_t) weft_rec_task_bytes(4)
                                      + n * each);
        most = weft_max64(most, n + 1);
    }
    *task_bytes_out = tasks;
    *pages_bytes_out = most
                     * (int64_t) weft_gen_cached_bytes((int32_t) tokens);
}

/* What moves has blocks of its own: in a GPU's memory one for each sample that
 * leaves or comes, which may be up to a page larger, or a sixteenth. */
static int64_t moved_blocks(const struct weft_trainer *t, int32_t place,
                            int64_t bytes)
{
    if (place % places_per_rank(t) >= t->job.n_gpus)
        return bytes;
    return bytes + bytes / 16
         + (int64_t) 2 * most_slots(t) * WEFT_CARD_PAGE_BYTES;
}

/* With inter-stage fusion so many samples can move at the most, of one place or
 * to it: as they leave, and a copy where they go. The task that takes each out,
 * the copy and the task that takes it in are beside what was recorded, for each
 * migration; what came by one and leaves by the next is twice at a place at the
 * most. Caches have room for them without it: they take slots that are free. Of
 * each instance's cache a part can leave, and as much can come. */
static void add_moved(const struct weft_trainer *t,
                      int64_t (*place)[WEFT_MEM_ALL + 1])
{
    const struct weft_config *c = &t->config;
    int64_t tokens = t->max_prompt + c->rollout.max_new_tokens;
    int64_t n = weft_run_samples_all(c, &t->flow), tasks, pages;
    if (!t->plan.inter_stage_fusion)
        return;
    count_moved(t, tokens, &tasks, &pages);
    for (int32_t p = 0; p < weft_g_job_n_places(&t->job) && pages > 0; p++)
        add_to(
            t, place, p, WEFT_MEM_KV,
            moved_blocks(t, p,
                         (int64_t) ceil(2 * moved_pages(t, tokens)
                                        * (double) place[p][WEFT_MEM_KV])));
    for (int32_t p = 0; p < weft_g_job_n_places(&t->job); p++)
        add_to(
            t, place, p, WEFT_MEM_SAMPLES,
            2 * n * ((int64_t) weft_rollout_bytes((int32_t) tokens) + pages));
    for (int32_t i = 0; i < t->job.n_ranks; i++)
        add_to(t, place, host_place(t, i), WEFT_MEM_TASKS,
               WEFT_MIGRATIONS * tasks * n);
}

/* A GPU's tasks run one after the other: the scratch memory of one. */
static void add_scratch(const struct weft_trainer *t,
                        const struct weft_recording *r,
                        int64_t (*place)[WEFT_MEM_ALL + 1])
{
    for (int32_t i = 0; i < t->job.n_ranks; i++)
        for (int32_t g = 0; g < t->job.n_gpus; g++)
            add_to(t, place, i * places_per_rank(t) + g, WEFT_MEM_ACTIVATIONS,
                   (int64_t) weft_card_block_bytes(
                       (size_t) weft_max64(r->scratch_bytes, 1),
                       WEFT_MEM_ACTIVATIONS));
}

/* Plays a recording: what each place takes. bound: whatever lengths samples
 * have. */
static int play(const struct weft_trainer *t, const struct weft_recording *r,
                bool bound, int64_t (*place)[WEFT_MEM_ALL + 1],
                struct weft_err *err)
{
    int rc = weft_recording_memory(r, weft_g_job_n_places(&t->job),
                                   places_per_rank(t), place, err);
    if (!rc)
        add_scratch(t, r, place);
    return rc ? rc : add_open(t, r, bound, place, err);
}

static int play_bound(const struct weft_trainer *t,
                      int64_t (*place)[WEFT_MEM_ALL + 1],
                      struct weft_err *err)
{
    struct weft_recording r;
    weft_recording_init(&r);
    r.most_bytes = t->most_recorded_bytes;
    int rc = weft_run_record_bound(t, t->gangs, &r, err);
    if (!rc)
        rc = play(t, &r, true, place, err);
    if (!rc)
        add_copies(t, place);
    if (!rc)
        add_moved(t, place);
    weft_recording_release(&r);
    return rc;
}

static void raise_to(int64_t (*place)[WEFT_MEM_ALL + 1], int32_t n,
                     int64_t (*one)[WEFT_MEM_ALL + 1])
{
    for (int32_t k = 0; k < n; k++)
        for (int c = 0; c <= WEFT_MEM_ALL; c++)
            place[k][c] = weft_max64(place[k][c], one[k][c]);
}

/* Plays this rank's part of an iteration in the order that its tasks took.
 * *known_out: whether that is known. */
static int play_ran(const struct weft_trainer *t,
                    const struct weft_replay *replay,
                    const struct weft_recording *r,
                    int64_t (*place)[WEFT_MEM_ALL + 1], bool *known_out,
                    struct weft_err *err)
{
    struct weft_rec_played played;
    int rc = weft_recording_follow(r, replay->ran,
                                   (int32_t) WEFT_COUNT(replay->ran),
                                   known_out, &played, err);
    if (!rc && *known_out)
        rc = weft_recording_memory_ran(r, &played,
                                       weft_g_job_n_places(&t->job),
                                       places_per_rank(t), place, err);
    weft_rec_played_release(&played);
    return rc || !*known_out ? rc : add_open(t, r, false, place, err);
}

/* The most of the kept iterations. rank: whose part, in the order that it took;
 * -1: of all ranks, in any order. *known: whether it is known. */
static int play_again(const struct weft_trainer *t, int rank,
                      int64_t (*place)[WEFT_MEM_ALL + 1], bool *known,
                      struct weft_err *err)
{
    int32_t n = weft_g_job_n_places(&t->job);
    int64_t(*one)[WEFT_MEM_ALL + 1] = weft_alloc((size_t) n, sizeof *one);
    int rc = one ? 0 : weft_err_nomem(err, "a memory plan", (size_t) n * 8);
    *known = true;
    for (int32_t i = 0; i < t->replays.n && !rc && *known; i++) {
        const struct weft_replay *replay = &t->replays.kept[i];
        struct weft_recording r;
        weft_recording_init(&r);
        rc = weft_run_record_again(t, replay, rank, &r, err);
        if (!rc)
            rc = rank < 0 ? play(t, &r, false, one, err)
                          : play_ran(t, replay, &r, one, known, err);
        if (!rc)
            raise_to(place, n, one);
        weft_recording_release(&r);
    }
    weft_free(one);
    return rc;
}

/* Where not every rank's order is known, rank 0 plays for all. */
static int play_all_again(const struct weft_trainer *t,
                          int64_t (*place)[WEFT_MEM_ALL + 1],
                          struct weft_err *err)
{
    size_t n = (size_t) weft_g_job_n_places(&t->job);
    bool known;
    int rc = weft_world_agree(
        play_again(t, weft_world_rank(), place, &known, err), err);
    if (rc)
        return rc;
    if (weft_world_min(known)) {
        weft_world_raise(&place[0][0], (int) n * (WEFT_MEM_ALL + 1));
        return 0;
    }
    memset(place, 0, n * sizeof *place);
    return weft_world_rank() > 0 ? 0 : play_again(t, -1, place, &known, err);
}

/* Fills a table by device with what places take. */
static int tabulate(const struct weft_trainer *t,
                    int (*fill)(const struct weft_trainer *t,
                                int64_t (*place)[WEFT_MEM_ALL + 1],
                                struct weft_err *err),
                    int64_t (**out)[WEFT_MEM_ALL + 1], struct weft_err *err)
{
    size_t n = (size_t) weft_g_job_n_places(&t->job);
    int64_t(*place)[WEFT_MEM_ALL + 1] = weft_alloc(n, sizeof *place);
    int rc = place ? table_create(t, out, err)
                   : weft_err_nomem(err, "a memory plan", n * sizeof *place);
    if (!rc)
        rc = fill(t, place, err);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++)
        memcpy((*out)[d], place[weft_g_job_place_of(&t->job, d)],
               sizeof(*out)[d]);
    weft_free(place);
    return rc;
}

bool weft_memory_knows_gpus(void)
{
    return weft_gpu_scratch_is_known();
}

int weft_memory_predict(struct weft_trainer *t, struct weft_err *err)
{
    return tabulate(t, play_bound, &t->plan.memory, err);
}

int weft_memory_replay(struct weft_trainer *t, struct weft_err *err)
{
    if (!t->replays.changed)
        return 0;
    t->replays.changed = false;
    return tabulate(t, play_all_again, &t->plan.replayed, err);
}

/* ---- Measured --------------------------------------------------------- */

static void warn_of(const struct weft_trainer *t, int32_t device, int c)
{
    const double mib = 1048576.0;
    int64_t predicted = t->plan.memory[device][c];
    int64_t measured = t->plan.measured[device][c];
    if (measured > predicted)
        weft_warn("place %d: %s took %.2f MiB, %.2f were predicted",
                  (int) weft_g_job_place_of(&t->job, device),
                  c == WEFT_MEM_ALL
                      ? "all"
                      : weft_mem_class_name((enum weft_mem_class) c),
                  (double) measured / mib, (double) predicted / mib);
}

int weft_memory_measure(struct weft_trainer *t, struct weft_err *err)
{
    size_t n = (size_t) weft_rt_n_places(t->rt);
    size_t *peak = weft_alloc(n, sizeof *peak);
    int32_t last = -1;
    int rc = table_create(t, &t->plan.measured, err);
    if (!rc && !peak)
        rc = weft_err_nomem(err, "a memory plan", n * sizeof *peak);
    rc = weft_world_agree(rc, err);
    for (int c = 0; c <= WEFT_MEM_ALL && !rc; c++) {
        weft_rt_memory_places(t->rt, (enum weft_mem_class) c, peak);
        for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices; d++)
            t->plan.measured[d][c] = (int64_t)
                peak[weft_g_job_place_of(&t->job, d)];
    }
    weft_free(peak);
    for (int32_t d = 0; d < t->job.n_ranks * t->job.n_devices && !rc; d++) {
        int32_t place = weft_g_job_place_of(&t->job, d);
        for (int c = 0; c <= WEFT_MEM_ALL && place != last; c++)
            if (weft_world_rank() == 0)
                warn_of(t, d, c);
        last = place;
    }
    return rc;
}

int weft_memory_write(const struct weft_trainer *t, struct weft_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plan.json", t->config.run_dir);
    return weft_plan_write(&t->plan, path, err);
}
