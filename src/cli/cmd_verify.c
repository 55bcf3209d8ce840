/* SPDX-License-Identifier: Apache-2.0 */
/* weft verify: runs one job in many layouts and compares the bits of the
 * results. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/string.h"
#include "config/schema.h"
#include "job/gpus.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "verify/builtin.h"
#include "verify/job.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/verify_table.h"

WEFT_COMMAND(verify);

const char weft_help_verify[] =
    "usage: weft verify [options] [CONFIG.yaml [key=value ...]]\n"
    "\n"
    "Runs short jobs in many layouts and compares the bits. Data,\n"
    "tensor and pipeline parallel, ZeRO, micro-batches, models that move\n"
    "between layouts, offload, several processes, f32 and bf16: rollouts,\n"
    "log-probs, gradient norms, weights and optimizer state must be those "
    "of\n"
    "one device. On GPUs, where there are any, they must be those of one "
    "GPU,\n"
    "whose log-probs and first gradient are near the CPU's. Without CONFIG "
    "a\n"
    "small job of random models is run with every algorithm; take a short "
    "one\n"
    "of yours (few prompts, few tokens), as each row runs all of it. Rows "
    "that\n"
    "the machine, the build or the job can't do are said to be skipped, and\n"
    "why. Status: 0 when all others agree and there are any, else 1.\n"
    "\n"
    "options:\n"
    "      --quick             a few rows of every kind\n"
    "      --rows PATTERN      rows whose name matches, like 'tp*',\n"
    "                          'f32/ranks*' or 'grpo/*'\n"
    "      --algorithm NAME    of the small job, this one alone\n"
    "      --dtype D           f32, bf16 or both (default)\n"
    "      --iterations K      of each row; default: 2\n"
    "      --list              print the rows' names, run none\n"
    "      --mpiexec COMMAND   starts rows of several processes with -n N;\n"
    "                          default: mpiexec or mpirun on PATH\n"
    "      --timeout S         of a row, in seconds; default: 300\n"
    "      --dir DIR           for temporary files; default: TMPDIR or /tmp\n"
    "      --keep              leave them there: runs and logs\n"
    "      --json              print JSON instead of the table\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft verify --quick\n"
    "  weft verify --algorithm dpo\n"
    "  weft verify --rows 'tp*' examples/quickstart/ppo.yaml "
    "rollout.prompts=4\n";

struct options {
    const char *rows, *algorithm, *dtype, *mpiexec, *dir;
    bool quick, list, keep, json;
    int32_t iterations;
    double timeout_s;
};

/* ---- Rows ------------------------------------------------------------- */

/* Whether the options ask for a dtype: f32 or bf16, or both. */
static bool has_dtype(const struct options *o, enum weft_dtype dtype)
{
    return !o->dtype || strcmp(o->dtype, "both") == 0
        || strcmp(o->dtype, weft_dtype_name(dtype)) == 0;
}

/* The runs that are asked for, those of an algorithm and a data type one after
 * another, the reference first. */
struct cases {
    struct weft_verify_case *one; /* (n) */
    int n;
};

/* Whether the options ask for a case. */
static bool is_asked(const struct options *o,
                     const struct weft_verify_case *c, bool whole)
{
    return weft_verify_has(c, whole)
        && (!o->quick || weft_verify_is_quick(c, whole))
        && weft_verify_matches(c, o->rows);
}

/* Adds an algorithm's runs of a data type: those that are asked for, and what
 * they are compared with, which comes before them in the matrix. */
static void add_cases(const struct options *o,
                      const struct weft_config_algorithm *algorithm,
                      bool whole, bool gpus, enum weft_dtype dtype,
                      struct cases *out)
{
    struct weft_verify_case c = {NULL, algorithm, dtype};
    bool any[2] = {false, false}; /* on CPU devices, on GPUs */
    for (size_t i = 0; (c.row = weft_verify_row(i)) != NULL; i++)
        if (is_asked(o, &c, whole))
            any[weft_verify_gpus(c.row) > 0] = true;
    any[1] = any[1] && gpus;
    any[0] = any[0] || any[1];
    for (size_t i = 0; (c.row = weft_verify_row(i)) != NULL; i++)
        if (any[weft_verify_gpus(c.row) > 0]
            && (weft_verify_is_reference(c.row) || is_asked(o, &c, whole)))
            out->one[out->n++] = c;
}

/* given: the algorithm of the user's configuration, which runs the whole
 * matrix; NULL: all, of which the first one does. gpus: rows on GPUs, too. */
static int make_cases(const struct options *o,
                      const struct weft_config_algorithm *given, bool gpus,
                      struct cases *out, struct weft_err *err)
{
    const struct weft_config_algorithm *const *all =
        weft_run_schema.algorithms;
    size_t n_rows = 0, n = 0;
    while (weft_verify_row(n_rows))
        n_rows++;
    while (all[n])
        n++;
    *out = (struct cases){weft_alloc(2 * n * n_rows, sizeof *out->one), 0};
    if (!out->one)
        return weft_err_nomem(err, "rows", n * n_rows);
    for (size_t i = 0; i < n; i++)
        for (int d = WEFT_F32; d <= WEFT_BF16; d++)
            if (has_dtype(o, (enum weft_dtype) d)
                && (!given || all[i] == given)
                && (!o->algorithm || strcmp(o->algorithm, all[i]->name) == 0))
                add_cases(o, all[i], given || i == 0, gpus,
                          (enum weft_dtype) d, out);
    return 0;
}

static void list(const struct cases *cases)
{
    char label[96];
    for (int i = 0; i < cases->n; i++)
        puts(weft_verify_label(&cases->one[i], label));
}

/* ---- Running ---------------------------------------------------------- */

/* Runs a row. False: no further one makes sense. */
static bool run_case(const struct weft_verify_job *job,
                     struct weft_verify_table *t,
                     const struct weft_verify_case *c, struct weft_err *err)
{
    struct weft_verify_result r;
    char label[96];
    bool reference = c->row == weft_verify_row(0);
    weft_verify_label(c, label);
    weft_verify_table_begin(t, label);
    weft_verify_run(job, c, &r);
    weft_verify_table_end(t);
    if (weft_cli_stop)
        return false;
    if (reference && r.state != WEFT_VERIFY_OK) {
        *err = r.why;
        weft_err_prefix(err, "%s", label);
        return false;
    }
    weft_verify_table_add(t, c, label, &r);
    return true;
}

static int run_cases(const struct weft_verify_job *job,
                     const struct cases *cases, struct weft_verify_table *t,
                     struct weft_err *err)
{
    bool goes_on = true;
    for (int i = 0; i < cases->n && goes_on; i++) {
        const struct weft_verify_case *c = &cases->one[i];
        goes_on = run_case(job, t, c, err);
        if (i + 1 == cases->n || !goes_on || c[1].row == weft_verify_row(0))
            weft_verify_end(job, c);
    }
    if (t->n_done > 0)
        weft_verify_table_sum(t);
    if (weft_cli_stop)
        return weft_err_set(err, WEFT_EINTERRUPTED, "interrupted");
    return goes_on ? 0 : err->code;
}

/* ---- Beginning and end ------------------------------------------------ */

#ifdef WEFT_HAVE_MPI
static bool on_path(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int) n, path, name);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}
#endif

/* Finds the launcher for rows of several ranks. One that the user did not name
 * is tried first; why_not gets the reason when it does not work. */
static void find_mpiexec(struct weft_verify_job *job, const char *given,
                         struct weft_err *why_not)
{
#ifdef WEFT_HAVE_MPI
    char log[4096],
        *argv[] = {NULL, "-n", "2", job->program, "--version", NULL};
    struct weft_child probe = {
        .argv = argv, .log = log, .timeout_s = 60, .stop = job->stop};
    double seconds;
    job->no_mpi = "neither mpiexec nor mpirun is on PATH; give --mpiexec";
    job->mpiexec = given              ? given
                 : on_path("mpiexec") ? "mpiexec"
                 : on_path("mpirun")  ? "mpirun"
                                      : NULL;
    if (given || !job->mpiexec)
        return;
    argv[0] = (char *) (uintptr_t) job->mpiexec;
    snprintf(log, sizeof log, "%s/mpiexec.log", job->dir);
    if (weft_child_run(&probe, &seconds, why_not) != 0) {
        weft_verify_explain(why_not);
        job->mpiexec = NULL;
        job->no_mpi = why_not->text;
    }
#else
    (void) given;
    (void) why_not;
    job->no_mpi = "this weft was built without MPI";
#endif
}

/* Verifying usually runs more devices and ranks than there are cores. */
static void set_environment(void)
{
    static const char *const word[][2] = {
        {"STARPU_WORKERS_NOBIND", "1"},
        {"STARPU_MPI_NOBIND", "1"},
        {"STARPU_SILENT", "1"},
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"}};
    for (size_t i = 0; i < WEFT_COUNT(word); i++)
        setenv(word[i][0], word[i][1], 0);
}

static int make_dir(const char *parent, char *out, size_t n,
                    struct weft_err *err)
{
    const char *tmp = getenv("TMPDIR");
    if (!parent)
        parent = tmp && *tmp ? tmp : "/tmp";
    if (snprintf(out, n, "%s/weft-verify-XXXXXX", parent) >= (int) n)
        return weft_err_set(err, WEFT_EINVAL, "'%s' is too long a path",
                            parent);
    return mkdtemp(out) ? 0 : weft_err_sys(err, "write to", parent);
}

/* The algorithm of the user's configuration. Reports an error in it before the
 * first row. */
static int read_algorithm(const struct weft_verify_job *job,
                          const struct weft_config_algorithm **out,
                          struct weft_err *err)
{
    struct weft_config config;
    int rc = weft_run_config_read(job->config, job->n_words, job->word,
                                  &config, err);
    if (rc)
        return rc;
    *out = config.algorithm;
    rc = weft_run_check_supported(&config, "training has", err);
    weft_config_release(&config);
    return rc;
}

static int verify(const struct options *o, struct weft_verify_job *job,
                  const struct cases *cases, struct weft_verify_table *t,
                  struct weft_err *err)
{
    char dir[3000], program[4096];
    struct weft_err why_not;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0)
        return weft_err_sys(err, "read", "/proc/self/exe");
    program[n] = 0;
    set_environment();
    weft_cli_catch_stop(NULL);
    int rc = make_dir(o->dir, dir, sizeof dir, err);
    if (rc)
        return rc;
    job->dir = dir;
    job->program = program;
    if (!job->config)
        rc = weft_verify_make(dir, err);
    if (!rc)
        find_mpiexec(job, o->mpiexec, &why_not);
    if (!rc)
        rc = run_cases(job, cases, t, err);
    if (o->keep)
        fprintf(stderr, "weft: the runs are in %s\n", dir);
    else
        (void) weft_dir_remove(dir, NULL);
    return rc;
}

/* What the results say of the status. */
static int conclude(const struct weft_verify_table *t)
{
    int status = weft_cli_finish("verify");
    struct weft_err err = {0};
    if (t->n[WEFT_VERIFY_SKIPPED] > 0 && t->n_compared == 0) {
        weft_err_set(&err, WEFT_EUNSUPPORTED,
                     "no row could be compared with the reference: %s",
                     t->skipped.text);
        return weft_cli_fail("verify", &err);
    }
    bool bad = t->n[WEFT_VERIFY_DIFFERS] + t->n[WEFT_VERIFY_FAILED] > 0;
    return bad ? WEFT_EXIT_FAILED : status;
}

static int list_or_run(const struct options *o, int n_words, char **word,
                       struct cases *cases)
{
    const struct weft_config_algorithm *given = NULL;
    struct weft_verify_job job = {.iterations = o->iterations,
                                  .timeout_s = o->timeout_s,
                                  .keep = o->keep,
                                  .stop = &weft_cli_stop};
    struct weft_err err = {0};
    struct weft_verify_table t = {.json = o->json, .terminal = isatty(2)};
    int rc = 0;
    job.n_gpus = weft_gpus_usable(&t.no_gpus);
    if (n_words > 0) {
        job.config = word[0];
        job.n_words = n_words - 1;
        job.word = (const char *const *) word + 1;
        rc = read_algorithm(&job, &given, &err);
    }
    if (!rc)
        rc = make_cases(o, given, job.n_gpus > 0, cases, &err);
    if (rc)
        return weft_cli_fail("verify", &err);
    if (cases->n == 0)
        return weft_cli_usage(
            "verify", "no row matches '%s'; see weft verify --list%s%s",
            o->rows ? o->rows : o->algorithm,
            t.no_gpus.code ? "; rows on GPUs are left out: " : "",
            t.no_gpus.text);
    if (o->list) {
        list(cases);
        return weft_cli_finish("verify");
    }
    t.n_rows = cases->n;
    if (verify(o, &job, cases, &t, &err) == 0)
        return conclude(&t);
    int status = weft_cli_fail("verify", &err);
    return err.code == WEFT_EINTERRUPTED ? weft_cli_stop_status(weft_cli_stop)
                                         : status;
}

/* Says what is wrong with options and words; false: nothing. */
static bool misused(const struct options *o, int n_words, char **word,
                    int *status)
{
    if (!has_dtype(o, WEFT_F32) && !has_dtype(o, WEFT_BF16)) {
        *status = weft_cli_usage(
            "verify", "'--dtype' must be f32, bf16 or both, not '%s'",
            o->dtype);
        return true;
    }
    if (o->algorithm && n_words > 0) {
        *status = weft_cli_usage(
            "verify", "leave out --algorithm: the configuration says it");
        return true;
    }
    for (int i = 0; i < n_words; i++)
        if (!strchr(word[i], '=') != (i == 0)) {
            *status = weft_cli_usage(
                "verify",
                i == 0 ? "give a configuration file before '%s'"
                       : "'%s' is no key=value word",
                word[i]);
            return true;
        }
    return false;
}

int weft_cmd_verify(int argc, char **argv)
{
    struct options o = {.iterations = 2, .timeout_s = 300};
    const struct weft_cli_option table[] = {
        {0, "quick", WEFT_CLI_FLAG, &o.quick, 0, 0},
        {0, "rows", WEFT_CLI_STRING, &o.rows, 0, 0},
        {0, "algorithm", WEFT_CLI_STRING, &o.algorithm, 0, 0},
        {0, "dtype", WEFT_CLI_STRING, &o.dtype, 0, 0},
        {0, "iterations", WEFT_CLI_INT, &o.iterations, 1, 1000},
        {0, "list", WEFT_CLI_FLAG, &o.list, 0, 0},
        {0, "mpiexec", WEFT_CLI_STRING, &o.mpiexec, 0, 0},
        {0, "timeout", WEFT_CLI_DOUBLE, &o.timeout_s, 1, 1e6},
        {0, "dir", WEFT_CLI_STRING, &o.dir, 0, 0},
        {0, "keep", WEFT_CLI_FLAG, &o.keep, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &o.json, 0, 0},
    };
    int first, status;
    struct cases cases = {0};
    if (!weft_cli_parse(argc, argv, weft_help_verify, table,
                        WEFT_COUNT(table), 0, -1, &first, &status)
        || misused(&o, argc - first, argv + first, &status))
        return status;
    status = list_or_run(&o, argc - first, argv + first, &cases);
    weft_free(cases.one);
    return status;
}
