/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/migration.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

int32_t weft_migration_replicas(const struct weft_g_generate *gen)
{
    return (int32_t) weft_min64(gen->layout.plan.dp, gen->n_instances);
}

int weft_migration_check(int32_t instances, const char *call, int32_t dp,
                         struct weft_err *err)
{
    if (instances > dp)
        return weft_err_set(err, WEFT_EINVAL,
                            "'rollout.instances' is %d, but %s has %d "
                            "replicas (dp) that could go on; lower it, or "
                            "set it to 0 for half of them",
                            instances, call, dp);
    return 0;
}

static int32_t left_at(double share, int32_t n)
{
    return (int32_t) floor(share * n + 1e-9);
}

static void add_step(struct weft_migration *m, int32_t remaining,
                     int32_t instances)
{
    m->step[m->n_steps].remaining = remaining;
    m->step[m->n_steps++].instances = instances;
}

int weft_migration_init(const struct weft_g_generate *gen, int32_t n,
                        const struct weft_migration_when *when,
                        struct weft_migration *out, struct weft_err *err)
{
    int32_t replicas = weft_migration_replicas(gen);
    int32_t each = gen->n_instances / replicas;
    *out = (struct weft_migration){
        .when = when,
        .n_replicas = when->share > 0 ? replicas : 1,
        .most_batch = each * gen->n_slots,
        .room_tokens = (int64_t) each * gen->n_pages * WEFT_PAGE_TOKENS};
    if (when->most_batch > 0 && when->most_batch < out->most_batch)
        out->most_batch = when->most_batch;
    if (out->n_replicas == 1)
        return 0;
    add_step(out, left_at(when->share, n), when->instances);
    for (int32_t k = 0; k < when->n_later; k++)
        add_step(out, left_at(when->later[k].share, n),
                 when->later[k].instances);
    out->stays = weft_alloc((size_t) replicas, sizeof *out->stays);
    out->among = weft_alloc((size_t) replicas, sizeof *out->among);
    out->to = weft_alloc((size_t) n, sizeof *out->to);
    for (int32_t i = 0; out->among && i < replicas; i++)
        out->among[i] = true;
    return out->stays && out->among && out->to
             ? 0
             : weft_err_nomem(err, "samples that move", (size_t) n * 4);
}

void weft_migration_join(struct weft_migration *m,
                         const struct weft_g_generate *gen,
                         const struct weft_migration *other,
                         const struct weft_g_generate *other_gen)
{
    if (m->n_replicas == other->n_replicas
        && weft_plan_lies_alike(&gen->layout.plan, &other_gen->layout.plan))
        m->beside = other->among;
}

void weft_migration_release(struct weft_migration *m)
{
    weft_free(m->stays);
    weft_free(m->among);
    weft_free(m->to);
}

bool weft_migration_is_cached(const struct weft_migration *m,
                              int32_t n_tokens)
{
    const struct weft_migrate_range *cached = m->when->cached;
    for (int32_t k = 0; k < m->when->n_cached; k++)
        if (n_tokens >= cached[k].first && n_tokens <= cached[k].last)
            return true;
    return false;
}

bool weft_migration_is_due(const struct weft_migration *m, int32_t n_left)
{
    return m->next < m->n_steps && n_left > 0
        && n_left <= m->step[m->next].remaining;
}

bool weft_migration_is_near(const struct weft_migration *m, int32_t n_left)
{
    return m->next > 0
        || (m->n_steps > 0 && n_left <= 1.25 * m->step[0].remaining);
}

void weft_migrated_release(struct weft_migrated *m)
{
    for (int32_t k = 0; k < WEFT_MIGRATIONS; k++) {
        weft_free(m->of[k].stay);
        weft_free(m->of[k].moved);
    }
    *m = (struct weft_migrated){.n = 0};
}

static int note(struct weft_migration *m, int32_t n_left,
                const struct weft_migrate_left *left, const int32_t *sample,
                struct weft_err *err)
{
    struct weft_moved *log = &m->log->of[m->log->n++];
    log->stay = weft_alloc((size_t) m->n_replicas, sizeof *log->stay);
    log->moved = weft_alloc((size_t) n_left, sizeof *log->moved);
    if (!log->stay || !log->moved)
        return weft_err_nomem(err, "samples that move", (size_t) n_left * 12);
    log->n_left = n_left;
    for (int32_t i = 0; i < m->n_replicas; i++)
        if (m->stays[i])
            log->stay[log->n_stay++] = i;
    for (int32_t k = 0; k < n_left; k++)
        if (m->to[sample[k]] >= 0)
            log->moved[log->n_moved++] = (struct weft_moved_sample){
                sample[k], left[k].instance, m->to[sample[k]]};
    return 0;
}

int weft_migration_decide(struct weft_migration *m, int32_t n_left,
                          const struct weft_migrate_left *left,
                          const int32_t *sample, bool *decided_out,
                          struct weft_err *err)
{
    const struct weft_migrate_costs costs = {
        .token_bytes = 1,
        .memory_bytes = (double) m->room_tokens,
        .most_batch = m->most_batch};
    struct weft_migrate_decision d = {
        .stays = m->stays, .to = weft_alloc((size_t) n_left, sizeof *d.to)};
    while (m->next + 1 < m->n_steps
           && n_left <= m->step[m->next + 1].remaining)
        m->next++; /* those before found no fewer replicas */
    int rc = d.to ? weft_migrate_decide(&costs, m->n_replicas, m->among,
                                        m->beside, n_left, left,
                                        m->step[m->next].instances, &d, err)
                  : weft_err_nomem(err, "samples that move",
                                   (size_t) n_left * 4);
    *decided_out = !rc && d.n_stay > 0;
    m->step[m->next].remaining = n_left - 1;
    for (int32_t k = 0; k < n_left && *decided_out; k++)
        m->to[sample[k]] = m->stays[left[k].instance] ? -1 : d.to[k];
    if (*decided_out) {
        m->next++;
        memcpy(m->among, m->stays, (size_t) m->n_replicas);
        rc = m->log ? note(m, n_left, left, sample, err) : 0;
    }
    weft_free(d.to);
    return rc;
}
