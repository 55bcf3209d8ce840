/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When generation gathers its last samples on few replicas, and which: what
 * plan/fusion decides, asked with what the controller of a generation knows.
 * That is numbers of samples and tokens, which all ranks have alike, so all
 * decide the same, and so does a recording that knows the samples' lengths.
 */
#ifndef WEFT_LM_MIGRATION_H
#define WEFT_LM_MIGRATION_H

#include "graphs/calls/calls.h"
#include "plan/fusion/migrate.h"

enum { WEFT_MIGRATIONS = 1 + WEFT_MIGRATE_LATER };

/* What moved, in each migration. */
struct weft_moved_sample {
    int32_t sample, from, to; /* replicas */
};
struct weft_moved {
    int32_t n_left;        /* samples, when it was decided */
    int32_t n_stay, *stay; /* replicas that went on */
    int32_t n_moved;
    struct weft_moved_sample *moved; /* (n_moved) */
};
struct weft_migrated {
    int32_t n;
    struct weft_moved of[WEFT_MIGRATIONS];
};
void weft_migrated_release(struct weft_migrated *migrated);

/* When that is. */
struct weft_migration_when {
    double share;       /* of the samples left; 0: never */
    int32_t instances;  /* so many replicas go on at least; 0: the fewest that
                           the samples can be dealt to */
    int32_t most_batch; /* samples that a replica takes on, its own included;
                           0: as many as it has slots */
    int32_t n_later;    /* migrations after it */
    struct weft_migrate_later later[WEFT_MIGRATE_LATER];
    /* of so many tokens samples move with their KV cache, where it can;
     * others are read again. No range: all are */
    int32_t n_cached;
    struct weft_migrate_range cached[WEFT_MIGRATE_RANGES];
    /* lengths of responses before, ascending, which tell what is expected of
     * those that are left; none: those of samples that have ended tell it */
    int32_t n_seen, seen[WEFT_MIGRATE_SEEN];
};

struct weft_migration {
    const struct weft_migration_when *when; /* borrowed */
    int32_t n_replicas; /* that generate; 1: samples never move */
    /* Each is decided when so few samples are left, and then so many replicas
     * go on at least. */
    struct {
        int32_t remaining, instances;
    } step[WEFT_MIGRATIONS];
    int32_t n_steps, next;     /* that is not decided yet */
    int32_t most_batch;        /* samples that a replica takes on */
    int64_t room_tokens;       /* of a replica's KV cache */
    struct weft_migrated *log; /* what moves is noted there; NULL: nobody
                                  asks */
    bool *stays, *among;       /* (n_replicas) that go on; that did before */
    const bool *beside;        /* (n_replicas) that another generation goes on
                                  with; NULL: none has the same devices */
    int32_t *to; /* (samples) the replica that goes on with it; -1: its own */
};

/* Replicas of a generation: no more than it has instances. */
int32_t weft_migration_replicas(const struct weft_g_generate *gen);

/* No more replicas of a call than it has (dp) can go on. Errors:
 * WEFT_EINVAL. */
int weft_migration_check(int32_t instances, const char *call, int32_t dp,
                         struct weft_err *err);

/* Of n samples. when->share 0: they never move. `when` must outlive it. Errors:
 * WEFT_ENOMEM. */
int weft_migration_init(const struct weft_g_generate *gen, int32_t n,
                        const struct weft_migration_when *when,
                        struct weft_migration *out, struct weft_err *err);
void weft_migration_release(struct weft_migration *m);
/* Devices are free when both of two generations have left them: m prefers to go
 * on where the other one does, if they have the same. The other's migration
 * outlives it. */
void weft_migration_join(struct weft_migration *m,
                         const struct weft_g_generate *gen,
                         const struct weft_migration *other,
                         const struct weft_g_generate *other_gen);

/* Whether a sample of so many tokens moves with its KV cache. */
bool weft_migration_is_cached(const struct weft_migration *m,
                              int32_t n_tokens);

/* Whether so few samples are left that who goes on is to be decided. */
bool weft_migration_is_due(const struct weft_migration *m, int32_t n_left);
/* Whether it soon will be, or was. */
bool weft_migration_is_near(const struct weft_migration *m, int32_t n_left);
/* Decides who goes on with the n_left samples that are left, all of which are
 * where the last migration put them; sample (n_left): their indices;
 * left[].instance: replicas. Nothing is decided where their samples do not fit
 * fewer replicas: the next time that fewer are left may do. *decided_out:
 * whether some replica goes on no more. Errors: WEFT_ENOMEM. */
int weft_migration_decide(struct weft_migration *m, int32_t n_left,
                          const struct weft_migrate_left *left,
                          const int32_t *sample, bool *decided_out,
                          struct weft_err *err);

#endif
