/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences: how many tasks are left, and the first error. */
#include "rt/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static struct weft_gates *gates_create(int n_devices)
{
    size_t n = (size_t) n_devices * WEFT_N_CHAINS;
    struct weft_gates *gates = weft_alloc(1, sizeof *gates
                                                 + n * sizeof gates->gate[0]);
    if (!gates)
        return NULL;
    gates->n_devices = n_devices;
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
    seq->gates = gates_create(rt->n_devices);
    if (!seq->gates) {
        weft_free(seq);
        return weft_err_nomem(err, "a sequence", sizeof *seq);
    }
    seq->rt = rt;
    pthread_mutex_init(&seq->mutex, NULL);
    pthread_cond_init(&seq->idle, NULL);
    pthread_mutex_lock(&rt->mutex);
    seq->next = rt->seq;
    rt->seq = seq;
    pthread_mutex_unlock(&rt->mutex);
    *out = seq;
    return 0;
}

void weft_seq_free(struct weft_seq *seq)
{
    if (!seq)
        return;
    (void) weft_seq_wait(seq, NULL);
    struct weft_rt *rt = seq->rt;
    pthread_mutex_lock(&rt->mutex);
    struct weft_seq **at = &rt->seq;
    while (*at != seq)
        at = &(*at)->next;
    *at = seq->next;
    pthread_mutex_unlock(&rt->mutex);
    pthread_cond_destroy(&seq->idle);
    pthread_mutex_destroy(&seq->mutex);
    weft_free(seq->gates);
    weft_free(seq);
}

void weft_seq_begin(struct weft_seq *seq)
{
    pthread_mutex_lock(&seq->mutex);
    seq->n_pending++;
    pthread_mutex_unlock(&seq->mutex);
}

void weft_seq_end(struct weft_seq *seq)
{
    pthread_mutex_lock(&seq->mutex);
    if (--seq->n_pending == 0)
        pthread_cond_signal(&seq->idle);
    pthread_mutex_unlock(&seq->mutex);
}

int weft_seq_wait(struct weft_seq *seq, struct weft_err *err)
{
    pthread_mutex_lock(&seq->mutex);
    while (seq->n_pending > 0)
        pthread_cond_wait(&seq->idle, &seq->mutex);
    int rc = atomic_load(&seq->failed);
    if (rc && err)
        *err = seq->first;
    atomic_store(&seq->failed, 0);
    pthread_mutex_unlock(&seq->mutex);
    if (seq->rt->policy)
        seq->rt->policy->reset(seq->gates);
    return rc;
}

int weft_seq_status(struct weft_seq *seq, struct weft_err *err)
{
    pthread_mutex_lock(&seq->mutex);
    int rc = atomic_load(&seq->failed);
    if (rc && err)
        *err = seq->first;
    pthread_mutex_unlock(&seq->mutex);
    return rc;
}

void weft_seq_record(struct weft_seq *seq, const struct weft_err *err)
{
    pthread_mutex_lock(&seq->mutex);
    bool first = atomic_load(&seq->failed) == 0;
    if (first) {
        seq->first = *err;
        atomic_store(&seq->failed, err->code);
    }
    pthread_mutex_unlock(&seq->mutex);
    /* Tasks of the order may never be inserted now. */
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
    weft_seq_record(seq, &err);
}
