/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/dataflow.h"

#include <stdio.h>
#include <string.h>

#include "base/string.h"

/* ---- Making ------------------------------------------------------------ */

/* As one more than there can be, a count says that something is missing. */
static int32_t next(int32_t *n, int32_t most)
{
    *n += *n <= most;
    return *n <= most ? *n - 1 : most - 1;
}

static void set_name(char out[WEFT_MAX_NAME], const char *name)
{
    snprintf(out, WEFT_MAX_NAME, "%s", name);
}

void weft_flow_init(struct weft_dataflow *flow)
{
    *flow = (struct weft_dataflow){.n_calls = 1};
    set_name(flow->call[0].name, "none");
    flow->call[0].kind = WEFT_STEP;
    flow->call[0].role = -1;
}

int32_t weft_flow_role(struct weft_dataflow *flow, const char *name,
                       bool trained, bool scalar)
{
    int32_t i = next(&flow->n_roles, WEFT_MAX_ROLES);
    flow->role[i] = (struct weft_role){.trained = trained,
                                       .scalar = scalar,
                                       .index = -1,
                                       .slot = -1,
                                       .follows = -1,
                                       .shares = -1};
    set_name(flow->role[i].name, name);
    return i;
}

int32_t weft_flow_field(struct weft_dataflow *flow, const char *name,
                        enum weft_field_type type)
{
    int32_t i = next(&flow->n_fields, WEFT_MAX_FIELDS);
    flow->field[i] = (struct weft_field){.type = type};
    set_name(flow->field[i].name, name);
    return i;
}

int32_t weft_flow_call(struct weft_dataflow *flow, const char *name,
                       enum weft_call_kind kind, int32_t role, uint32_t reads,
                       uint32_t writes)
{
    int32_t i = next(&flow->n_calls, WEFT_MAX_CALLS);
    flow->call[i] = (struct weft_flow_call){
        .kind = kind, .role = role, .reads = reads, .writes = writes};
    set_name(flow->call[i].name, name);
    return i;
}

uint32_t weft_flow_bit(int32_t field)
{
    return field < 0 ? 0 : 1u << field;
}

int32_t weft_flow_guess(struct weft_dataflow *flow, const char *call)
{
    static const struct {
        const char *end;
        enum weft_call_kind kind;
    } kinds[] = {{"_generate", WEFT_GENERATE},
                 {"_infer", WEFT_INFER},
                 {"_train", WEFT_TRAIN}};
    size_t n = strlen(call);
    for (size_t i = 0; i < WEFT_COUNT(kinds); i++) {
        size_t end = strlen(kinds[i].end);
        char name[WEFT_MAX_NAME];
        if (n <= end || n >= WEFT_MAX_NAME
            || strcmp(call + n - end, kinds[i].end) != 0
            || flow->n_calls >= WEFT_MAX_CALLS)
            continue;
        memcpy(name, call, n - end);
        name[n - end] = 0;
        int32_t role = weft_flow_find_role(flow, name);
        if (role < 0 && flow->n_roles >= WEFT_MAX_ROLES)
            return -1;
        if (role < 0)
            role = weft_flow_role(flow, name, false, false);
        if (kinds[i].kind == WEFT_TRAIN)
            flow->role[role].trained = true;
        return weft_flow_call(flow, call, kinds[i].kind, role, 0, 0);
    }
    return -1;
}

/* ---- Asking ------------------------------------------------------------ */

int32_t weft_flow_find_call(const struct weft_dataflow *flow,
                            const char *name)
{
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (strcmp(flow->call[i].name, name) == 0)
            return i;
    return -1;
}

int32_t weft_flow_find_role(const struct weft_dataflow *flow,
                            const char *name)
{
    for (int32_t i = 0; i < flow->n_roles; i++)
        if (strcmp(flow->role[i].name, name) == 0)
            return i;
    return -1;
}

int32_t weft_flow_call_of(const struct weft_dataflow *flow,
                          enum weft_call_kind kind, int32_t role)
{
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (flow->call[i].kind == kind
            && (role < 0 || flow->call[i].role == role))
            return i;
    return -1;
}

int32_t weft_flow_field_of(const struct weft_dataflow *flow, uint32_t set,
                           enum weft_field_type type)
{
    for (int32_t i = 0; i < flow->n_fields; i++)
        if (flow->field[i].type == type && (set & weft_flow_bit(i)))
            return i;
    return -1;
}

int32_t weft_flow_writer(const struct weft_dataflow *flow, int32_t field)
{
    for (int32_t i = 1; i < flow->n_calls; i++)
        if (flow->call[i].writes & weft_flow_bit(field))
            return i;
    return -1;
}

static int32_t first_of(uint32_t set)
{
    int32_t field = 0;
    while (field < WEFT_MAX_FIELDS - 1 && !(set & weft_flow_bit(field)))
        field++;
    return field;
}

int32_t weft_flow_written(const struct weft_dataflow *flow, int32_t call)
{
    return first_of(flow->call[call].writes);
}

int32_t weft_flow_origin(const struct weft_dataflow *flow, int32_t field)
{
    int32_t writer = weft_flow_writer(flow, field);
    return writer > 0 && flow->call[writer].reads
             ? weft_flow_origin(flow, first_of(flow->call[writer].reads))
             : field;
}

int32_t weft_flow_origin_of_call(const struct weft_dataflow *flow,
                                 int32_t call)
{
    const struct weft_flow_call *c = &flow->call[call];
    return weft_flow_origin(flow, first_of(c->reads ? c->reads : c->writes));
}

bool weft_flow_placed(const struct weft_dataflow *flow, int32_t call)
{
    return call > 0 && call < flow->n_calls && flow->call[call].role >= 0;
}

bool weft_flow_trains(const struct weft_dataflow *flow, int32_t call)
{
    return weft_flow_placed(flow, call)
        && flow->call[call].kind == WEFT_TRAIN;
}

bool weft_flow_is_shared(const struct weft_dataflow *flow, int32_t role)
{
    bool shared = false;
    for (int32_t r = 0; r < flow->n_roles; r++)
        shared = shared || flow->role[r].shares == role;
    return shared;
}

bool weft_flow_frozen(const struct weft_dataflow *flow, int32_t call)
{
    return weft_flow_placed(flow, call)
        && !flow->role[flow->call[call].role].trained
        && flow->role[flow->call[call].role].shares < 0;
}

bool weft_flow_moves(const struct weft_dataflow *flow, int32_t role,
                     int32_t iteration)
{
    const struct weft_role *r = &flow->role[role];
    return r->follows >= 0 && (iteration + 1) % r->every == 0;
}

/* ---- Checking ---------------------------------------------------------- */

/* The first call that is not done and reads nothing of one that is not done;
 * -1: none. */
static int32_t ready(const struct weft_dataflow *flow, const bool *done)
{
    for (int32_t i = 1; i < flow->n_calls; i++) {
        bool waits = done[i];
        for (int32_t f = 0; f < flow->n_fields && !waits; f++)
            if (flow->call[i].reads & weft_flow_bit(f)) {
                int32_t w = weft_flow_writer(flow, f);
                waits = w > 0 && !done[w];
            }
        if (!waits)
            return i;
    }
    return -1;
}

static int check_fields(const struct weft_dataflow *flow,
                        struct weft_err *err)
{
    for (int32_t f = 0; f < flow->n_fields; f++) {
        int32_t writer = weft_flow_writer(flow, f);
        for (int32_t i = 1; i < flow->n_calls; i++) {
            if (i > writer && writer > 0
                && (flow->call[i].writes & weft_flow_bit(f)))
                return weft_err_set(err, WEFT_EINVAL,
                                    "the calls %s and %s both write '%s'",
                                    flow->call[writer].name,
                                    flow->call[i].name, flow->field[f].name);
            if (writer < 0 && (flow->call[i].reads & weft_flow_bit(f)))
                return weft_err_set(err, WEFT_EINVAL,
                                    "the call %s reads '%s', which no call "
                                    "writes",
                                    flow->call[i].name, flow->field[f].name);
        }
    }
    return 0;
}

static int check_roles(const struct weft_dataflow *flow, struct weft_err *err)
{
    for (int32_t r = 0; r < flow->n_roles; r++) {
        bool used = false;
        for (int32_t i = 1; i < flow->n_calls; i++)
            used = used || flow->call[i].role == r;
        bool trains = weft_flow_call_of(flow, WEFT_TRAIN, r) > 0;
        if (!used)
            return weft_err_set(err, WEFT_EINVAL, "no call uses the role %s",
                                flow->role[r].name);
        if (trains != flow->role[r].trained)
            return weft_err_set(err, WEFT_EINVAL,
                                trains ? "the role %s is frozen, but a call "
                                         "trains it"
                                       : "the role %s is to be trained, but "
                                         "no call does",
                                flow->role[r].name);
    }
    return 0;
}

static int check_sharing(const struct weft_dataflow *flow,
                         struct weft_err *err)
{
    for (int32_t r = 0; r < flow->n_roles; r++) {
        const struct weft_role *role = &flow->role[r];
        if (role->shares >= 0
            && (role->trained || role->follows >= 0 || role->shares >= r
                || !flow->role[role->shares].trained
                || flow->role[role->shares].scalar != role->scalar))
            return weft_err_set(err, WEFT_EINVAL,
                                "the role %s cannot share another's weights: "
                                "a frozen role can, those of a trained one "
                                "before it with the same head",
                                role->name);
    }
    return 0;
}

static int check_followers(const struct weft_dataflow *flow,
                           struct weft_err *err)
{
    for (int32_t r = 0; r < flow->n_roles; r++) {
        const struct weft_role *role = &flow->role[r];
        if (role->follows < 0)
            continue;
        if (role->trained || role->follows >= flow->n_roles
            || !flow->role[role->follows].trained)
            return weft_err_set(err, WEFT_EINVAL,
                                "the role %s cannot follow another: a frozen "
                                "role can, and a trained one can be followed",
                                role->name);
        if (role->every < 1 || !(role->mix > 0 && role->mix <= 1))
            return weft_err_set(err, WEFT_EINVAL,
                                "the role %s moves every %d iterations by "
                                "%g; it must be at least 1, and above 0 and "
                                "at most 1",
                                role->name, (int) role->every,
                                (double) role->mix);
    }
    return 0;
}

static int check_cycles(const struct weft_dataflow *flow,
                        struct weft_err *err)
{
    bool done[WEFT_MAX_CALLS] = {true};
    for (int32_t n = 1; n < flow->n_calls; n++) {
        int32_t i = ready(flow, done);
        if (i > 0) {
            done[i] = true;
            continue;
        }
        for (i = 1; done[i];)
            i++;
        return weft_err_set(err, WEFT_EINVAL,
                            "the call %s waits for what it writes itself, "
                            "or others that do",
                            flow->call[i].name);
    }
    return 0;
}

static bool without_model(enum weft_call_kind kind)
{
    return kind == WEFT_STEP || kind == WEFT_DATA;
}

int weft_flow_check(const struct weft_dataflow *flow, struct weft_err *err)
{
    if (flow->n_roles > WEFT_MAX_ROLES || flow->n_fields > WEFT_MAX_FIELDS
        || flow->n_calls > WEFT_MAX_CALLS)
        return weft_err_set(err, WEFT_EINVAL,
                            "a dataflow graph has at most %d roles, %d "
                            "fields and %d calls",
                            WEFT_MAX_ROLES, WEFT_MAX_FIELDS,
                            WEFT_MAX_CALLS - 1);
    for (int32_t i = 1; i < flow->n_calls; i++)
        if ((flow->call[i].role < 0) != without_model(flow->call[i].kind)
            || flow->call[i].role >= flow->n_roles)
            return weft_err_set(err, WEFT_EINVAL,
                                "the call %s has no role, or is a step with "
                                "one",
                                flow->call[i].name);
    int rc = check_roles(flow, err);
    if (!rc)
        rc = check_followers(flow, err);
    if (!rc)
        rc = check_sharing(flow, err);
    if (!rc)
        rc = check_fields(flow, err);
    return rc ? rc : check_cycles(flow, err);
}

void weft_flow_order(const struct weft_dataflow *flow, int32_t *out)
{
    bool done[WEFT_MAX_CALLS] = {true};
    for (int32_t n = 0; n < flow->n_calls - 1; n++) {
        out[n] = ready(flow, done);
        weft_assert(out[n] > 0);
        done[out[n]] = true;
    }
}

/* ---- For people -------------------------------------------------------- */

static void put_fields(FILE *f, const struct weft_dataflow *flow,
                       const char *word, uint32_t set)
{
    const char *comma = "";
    if (set == 0)
        return;
    fprintf(f, "\n    %s ", word);
    for (int32_t i = 0; i < flow->n_fields; i++)
        if (set & weft_flow_bit(i)) {
            fprintf(f, "%s%s", comma, flow->field[i].name);
            comma = ", ";
        }
}

static void put_role(FILE *f, const struct weft_dataflow *flow, int32_t i)
{
    const struct weft_role *r = &flow->role[i];
    fprintf(f, "%s: %s%s", r->name,
            r->trained        ? "trained"
            : r->follows >= 0 ? "not trained"
                              : "frozen",
            r->scalar       ? ", scalar head"
            : r->value_head ? ", value head beside its own"
                            : "");
    if (r->follows >= 0)
        fprintf(f, "; every %d iterations %g of %s and %g of itself",
                (int) r->every, (double) r->mix, flow->role[r->follows].name,
                1 - (double) r->mix);
    if (r->shares >= 0)
        fprintf(f, "; the weights of %s without adapters",
                flow->role[r->shares].name);
    fputs("\n", f);
}

static void put_call(FILE *f, const struct weft_dataflow *flow, int32_t i)
{
    static const char *const does[] = {"generates with", "infers with",
                                       "trains", "computes", "takes samples"};
    const struct weft_flow_call *c = &flow->call[i];
    fprintf(f, "%s: %s", c->name, does[c->kind]);
    if (c->role >= 0)
        fprintf(f, " %s", flow->role[c->role].name);
    if (c->kind == WEFT_TRAIN)
        fputs(", version i to i + 1", f);
    else if (c->role >= 0 && flow->role[c->role].trained)
        fputs(flow->staleness ? ", version i - 1" : ", version i", f);
    if (c->greedy)
        fputs(", the likeliest tokens once per prompt", f);
    put_fields(f, flow, "reads ", c->reads);
    put_fields(f, flow, "writes", c->writes);
    fputs("\n", f);
}

char *weft_flow_text(const struct weft_dataflow *flow)
{
    char *text = NULL;
    size_t size = 0;
    int32_t order[WEFT_MAX_CALLS];
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (int32_t r = 0; r < flow->n_roles; r++) {
        fputs(r == 0 ? "Roles\n" : "", f);
        put_role(f, flow, r);
    }
    fputs("\nCalls of iteration i, in an order that their data allow\n", f);
    weft_flow_order(flow, order);
    for (int32_t n = 0; n < flow->n_calls - 1; n++)
        put_call(f, flow, order[n]);
    return weft_string_end_stream(f, &text);
}
