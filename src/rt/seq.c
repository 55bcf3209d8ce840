/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences: count the tasks that have not ended, and keep the first error.
 *
 * With several ranks, weft_seq_wait() and weft_seq_agree() both make control
 * steps. In a control step every rank tells the others whether its sequence
 * has failed, how many copies it has inserted, and why it makes the step (its
 * wish).
 *
 *   some failed    All ranks take the error of the rank that failed first,
 *                  whatever their wishes. As all have it then, the
 *                  weft_seq_wait() that returns it makes no further step.
 *   none failed    All must have the same wish: to share rank 0's data, or to
 *                  wait. To wait, a rank now waits for its own tasks and
 *                  transfers, and then makes another step, as a task may have
 *                  failed meanwhile.
 *
 * The rank that failed first is the one that had inserted the fewest copies
 * when it failed, and of several the lowest. Only a copy can bring a failure
 * to another rank, so tasks that fail there because of it were inserted after
 * more copies.
 *
 * weft_seq_tell() makes a control step only where rank 0 wants one: it knows
 * that a rank has failed, it says the last thing, or it has said many.
 *
 * Different numbers of copies, or different wishes, would make a rank wait for
 * ever, so the job is ended: with the error of a rank that could not insert
 * its copies, or else it is a bug. After an error tasks do nothing, but
 * transfers are still made; so ranks that have inserted the same copies all
 * finish them.
 */
#include "rt/internal.h"
#include "rt/transfer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static struct weft_gates *gates_create(const struct weft_rt *rt)
{
    size_t n = (size_t) rt->n_devices * WEFT_N_CHAINS;
    struct weft_gates *gates = weft_alloc(1, sizeof *gates
                                                 + n * sizeof gates->gate[0]);
    if (!gates)
        return NULL;
    gates->n_devices = rt->n_devices;
    gates->first_device = rt->first_device;
    for (size_t i = 0; i < n; i++)
        gates->gate[i].next = 1;
    return gates;
}

int weft_seq_create(struct weft_rt *rt, struct weft_seq **out,
                    struct weft_err *err)
{
    struct weft_seq *seq = weft_alloc(1, sizeof *seq);
    if (!seq)
        return weft_err_nomem(err, "a sequence", sizeof *seq);
    seq->gates = gates_create(rt);
    if (!seq->gates) {
        weft_free(seq);
        return weft_err_nomem(err, "a sequence", sizeof *seq);
    }
    seq->rt = rt;
    pthread_mutex_init(&seq->mutex, NULL);
    pthread_cond_init(&seq->ended, NULL);
    pthread_mutex_lock(&rt->mutex);
    seq->next = rt->seq;
    rt->seq = seq;
    pthread_mutex_unlock(&rt->mutex);
    *out = seq;
    return 0;
}

static void drain(struct weft_seq *seq)
{
    pthread_mutex_lock(&seq->mutex);
    while (seq->n_pending > 0)
        pthread_cond_wait(&seq->ended, &seq->mutex);
    pthread_mutex_unlock(&seq->mutex);
}

void weft_seq_free(struct weft_seq *seq)
{
    if (!seq)
        return;
    drain(seq);
    struct weft_rt *rt = seq->rt;
    pthread_mutex_lock(&rt->mutex);
    struct weft_seq **at = &rt->seq;
    while (*at != seq)
        at = &(*at)->next;
    *at = seq->next;
    pthread_mutex_unlock(&rt->mutex);
    pthread_cond_destroy(&seq->ended);
    pthread_mutex_destroy(&seq->mutex);
    weft_free(seq->gates);
    weft_free(seq);
}

int64_t weft_seq_begin(struct weft_seq *seq, int n_accesses)
{
    struct weft_rt *rt = seq->rt;
    long more = (long) weft_rec_task_bytes(n_accesses);
    long n = atomic_fetch_add(&rt->n_pending, 1) + 1;
    long bytes = atomic_fetch_add(&rt->pending_bytes, more) + more;
    if (n > rt->most_pending)
        rt->most_pending = n;
    if (bytes > rt->most_pending_bytes)
        rt->most_pending_bytes = bytes;
    pthread_mutex_lock(&seq->mutex);
    int64_t lot = seq->lot;
    seq->n_pending++;
    seq->n_in_lot[lot % WEFT_LOTS]++;
    pthread_mutex_unlock(&seq->mutex);
    return lot;
}

void weft_seq_end(struct weft_seq *seq, int64_t lot, int n_accesses)
{
    atomic_fetch_sub(&seq->rt->n_pending, 1);
    atomic_fetch_sub(&seq->rt->pending_bytes,
                     (long) weft_rec_task_bytes(n_accesses));
    pthread_mutex_lock(&seq->mutex);
    bool last_of_lot = --seq->n_in_lot[lot % WEFT_LOTS] == 0;
    if (--seq->n_pending == 0 || last_of_lot)
        pthread_cond_signal(&seq->ended);
    pthread_mutex_unlock(&seq->mutex);
}

/* ---- Lots -------------------------------------------------------------- */

/* Waits until all tasks of a lot have ended. The caller holds seq->mutex. */
static void wait_slot(struct weft_seq *seq, int64_t lot)
{
    while (seq->n_in_lot[lot % WEFT_LOTS] > 0)
        pthread_cond_wait(&seq->ended, &seq->mutex);
}

int64_t weft_seq_lot(struct weft_seq *seq)
{
    pthread_mutex_lock(&seq->mutex);
    int64_t lot = seq->lot + 1;
    wait_slot(seq, lot);
    seq->lot = lot;
    pthread_mutex_unlock(&seq->mutex);
    if (seq->rt->recording) {
        weft_recording_wait_lot(seq->rt->recording, lot - WEFT_LOTS);
        weft_recording_lot(seq->rt->recording);
    }
    return lot;
}

void weft_seq_wait_lot(struct weft_seq *seq, int64_t lot)
{
    pthread_mutex_lock(&seq->mutex);
    weft_assert(lot >= 0 && lot < seq->lot);
    /* older lots have ended, as weft_seq_lot() waited for them */
    if (lot > seq->lot - WEFT_LOTS)
        wait_slot(seq, lot);
    pthread_mutex_unlock(&seq->mutex);
    if (seq->rt->recording)
        weft_recording_wait_lot(seq->rt->recording, lot);
}

void weft_rt_records(const struct weft_rt *rt, long *now_out, long *peak_out)
{
    *now_out = atomic_load(&rt->n_pending);
    *peak_out = rt->most_pending;
}

/* ---- Control steps ---------------------------------------------------- */

WEFT_NORETURN static void out_of_step(const struct weft_rt *rt,
                                      const char *what, int64_t least,
                                      int64_t most)
{
    struct weft_err err;
    weft_err_set(&err, WEFT_EINTERNAL,
                 "the ranks are out of step (rank %d): %s %lld to %lld",
                 rt->rank, what, (long long) least, (long long) most);
    weft_world_abort(&err);
}

/* Makes the sequences of all ranks fail with the error of that rank's. */
static void share_failure(struct weft_seq *seq, int rank)
{
    struct weft_err err;
    pthread_mutex_lock(&seq->mutex);
    err = seq->first;
    pthread_mutex_unlock(&seq->mutex);
    weft_world_share_err(rank, &err);
    pthread_mutex_lock(&seq->mutex);
    seq->first = err;
    seq->common = true;
    atomic_store(&seq->failed, err.code);
    pthread_mutex_unlock(&seq->mutex);
    weft_world_forget_failed();
    if (seq->rt->policy)
        seq->rt->policy->open(seq->gates);
}

/* Those that knew of another's failure come last, as it may have led to theirs:
 * what a rank sends that has failed is of no use. */
static int64_t failure_order(struct weft_seq *seq)
{
    const int64_t last = INT64_MAX / 2;
    pthread_mutex_lock(&seq->mutex);
    int64_t at = seq->first_at;
    bool follows = seq->first_follows;
    pthread_mutex_unlock(&seq->mutex);
    at = at * seq->rt->n_ranks + seq->rt->rank;
    /* a multiple of the ranks, as the rest is whose failure it is */
    return follows ? last - last % seq->rt->n_ranks + at : at;
}

/* Ends the job with the error of a rank that has not inserted its side of
 * others' copies. */
WEFT_NORETURN static void end_with_failure(struct weft_seq *seq, int rank)
{
    struct weft_err err;
    share_failure(seq, rank);
    weft_seq_status(seq, &err);
    weft_world_abort(&err);
}

/* Of a recording that is full, or was stopped, what follows is of no use. */
static int check_recording(struct weft_seq *seq)
{
    struct weft_err err;
    int rc = weft_recording_status(seq->rt->recording, &err);
    if (rc)
        weft_seq_record(seq, seq->rt->n_copies, &err);
    return rc;
}

/* `wish` must be the same on all ranks. Returns 0 or the code of the common
 * error. */
static int control_step(struct weft_seq *seq, int64_t wish)
{
    struct weft_rt *rt = seq->rt;
    int rc = rt->is_dry ? check_recording(seq) : 0;
    if (!rc)
        rc = atomic_load(&seq->failed);
    if (rt->n_ranks == 1 || rt->is_dry || seq->common)
        return rc;
    int64_t least[] = {rc ? failure_order(seq) : INT64_MAX,
                       rt->n_copies,
                       -rt->n_copies,
                       wish,
                       -wish,
                       -(int64_t) atomic_load(&rt->n_transfers)};
    weft_world_reduce(least, WEFT_COUNT(least), WEFT_MIN);
    if (least[1] != -least[2] && least[0] != INT64_MAX)
        end_with_failure(seq, (int) (least[0] % rt->n_ranks));
    if (least[1] != -least[2])
        out_of_step(rt, "copies inserted", least[1], -least[2]);
    if (least[5] == 0)
        weft_transfer_renumber(rt);
    if (least[0] == INT64_MAX) {
        if (least[3] != -least[4])
            out_of_step(rt, "bytes to agree on (-1: waits)", least[3],
                        -least[4]);
        return 0; /* a later failure is reported at the next step */
    }
    /* A failure that led to this one may have come to a rank that was here
     * already: by now that rank knows of it. */
    least[0] = atomic_load(&seq->failed) ? failure_order(seq) : INT64_MAX;
    weft_world_reduce(least, 1, WEFT_MIN);
    share_failure(seq, (int) (least[0] % rt->n_ranks));
    return atomic_load(&seq->failed);
}

int weft_seq_wait(struct weft_seq *seq, struct weft_err *err)
{
    enum { WAIT = -1 };
    int rc = control_step(seq, WAIT);
    drain(seq);
    if (seq->rt->recording)
        weft_recording_wait(seq->rt->recording);
    if (!rc)
        rc = control_step(seq, WAIT);
    if (rc) {
        weft_seq_status(seq, err);
        seq->common = false;
        atomic_store(&seq->failed, 0);
    }
    if (seq->rt->policy)
        seq->rt->policy->reset(seq->gates);
    return rc;
}

int weft_seq_agree(struct weft_seq *seq, void *data, size_t bytes,
                   struct weft_err *err)
{
    int rc = control_step(seq, (int64_t) bytes);
    if (rc)
        weft_seq_status(seq, err);
    else if (!seq->rt->is_dry)
        weft_world_share(data, bytes);
    return rc;
}

int weft_seq_merge(struct weft_seq *seq, void *data, size_t bytes,
                   struct weft_err *err)
{
    int rc = control_step(seq, (int64_t) bytes);
    weft_assert(bytes % sizeof(int64_t) == 0
                && bytes / sizeof(int64_t) <= INT_MAX);
    if (rc)
        weft_seq_status(seq, err);
    else if (!seq->rt->is_dry)
        weft_world_reduce(data, (int) (bytes / sizeof(int64_t)), WEFT_SUM);
    return rc;
}

/* Control steps are made at least so often; they also start the numbers of
 * messages again. */
enum { TELLS = 64 };

int weft_seq_tell(struct weft_seq *seq, void *data, size_t bytes, bool last,
                  struct weft_err *err)
{
    struct weft_rt *rt = seq->rt;
    int64_t meet = 0;
    if (rt->is_dry)
        (void) check_recording(seq);
    if (rt->n_ranks == 1 || rt->is_dry || seq->common)
        return weft_seq_status(seq, err);
    char *record = weft_insert_alloc(sizeof meet + bytes, 1, "a decision");
    if (rt->rank == 0) {
        bool failed = weft_world_any_failed() || atomic_load(&seq->failed);
        meet = failed || last || ++seq->n_told % TELLS == 0;
        memcpy(record, &meet, sizeof meet);
        if (data)
            memcpy(record + sizeof meet, data, bytes);
    }
    weft_world_share(record, sizeof meet + bytes);
    memcpy(&meet, record, sizeof meet);
    if (data)
        memcpy(data, record + sizeof meet, bytes);
    weft_free(record);
    int rc = meet ? control_step(seq, (int64_t) bytes) : 0;
    if (rc)
        weft_seq_status(seq, err);
    return rc;
}

/* ---- Errors ----------------------------------------------------------- */

int weft_seq_status(struct weft_seq *seq, struct weft_err *err)
{
    pthread_mutex_lock(&seq->mutex);
    int rc = atomic_load(&seq->failed);
    if (rc && err)
        *err = seq->first;
    pthread_mutex_unlock(&seq->mutex);
    return rc;
}

bool weft_seq_is_shared(const struct weft_seq *seq)
{
    return seq->common;
}

void weft_seq_record(struct weft_seq *seq, int64_t at,
                     const struct weft_err *err)
{
    bool follows = weft_world_other_failed();
    pthread_mutex_lock(&seq->mutex);
    bool first = atomic_load(&seq->failed) == 0;
    if (first) {
        seq->first = *err;
        seq->first_at = at;
        seq->first_follows = follows;
        atomic_store(&seq->failed, err->code);
    }
    pthread_mutex_unlock(&seq->mutex);
    if (first && !seq->rt->is_dry)
        weft_world_say_failed();
    /* After an error some tasks of the strict order may never be inserted, so
     * the others must not wait for their turn. */
    if (first && seq->rt->policy)
        seq->rt->policy->open(seq->gates);
}

void weft_seq_fail(struct weft_seq *seq, int code, const char *fmt, ...)
{
    struct weft_err err = {.code = code ? code : WEFT_EINTERNAL};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, ap);
    va_end(ap);
    weft_seq_record(seq, seq->rt->n_copies, &err);
}
