/* SPDX-License-Identifier: Apache-2.0 */
/* weft schedule: fused pipeline schedules. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "schedule/file.h"
#include "fuse/play.h"
#include "fuse/schedule_job.h"

WEFT_COMMAND(schedule);

const char weft_help_schedule[] =
    "usage: weft schedule [options] PROBLEM.json\n"
    "\n"
    "Orders the passes of models whose pipelines share devices: forward and\n"
    "backward, so that they fill each other's bubbles, least makespan "
    "first,\n"
    "then least activation memory. The same seed and evaluations give the "
    "same\n"
    "schedule on any number of threads and ranks (mpirun -n R weft "
    "schedule).\n"
    "Ctrl-C ends the search with the best so far.\n"
    "\n"
    "options:\n"
    "  -o, --output FILE       write the schedule as JSON\n"
    "      --algorithm NAME    search (default), greedy, serial, "
    "interleaved,\n"
    "                          chimera or 1f1b-plus\n"
    "      --read FILE         search none: check and draw this schedule\n"
    "      --seed N            default: 1\n"
    "      --restarts N        independent searches; default: 4\n"
    "      --evaluations N     of moves, all together; default: by size\n"
    "      --threads N         default: one per core\n"
    "      --time-limit S      seconds: search until then or until the "
    "makespan\n"
    "                          is proven least; the result may then differ\n"
    "                          from run to run. With --evaluations: at most "
    "S\n"
    "      --pareto            the front of makespan against memory; -o "
    "writes\n"
    "                          FILE.1, FILE.2, ...\n"
    "      --svg FILE          draw it\n"
    "      --perfetto FILE     a trace for ui.perfetto.dev\n"
    "      --paje FILE         a trace for ViTE\n"
    "      --play MS           let the runtime keep it, on devices that "
    "sleep "
    "MS\n"
    "                          milliseconds a unit of time\n"
    "      --json              print JSON instead of the summary\n"
    "  -q, --quiet             no progress\n"
    "      --help              this text\n"
    "\n"
    "example:\n"
    "  weft schedule examples/schedules/65b_33b.json -o schedule.json \\\n"
    "      --svg schedule.svg\n";

struct options {
    const char *output, *algorithm, *read, *svg, *perfetto, *paje;
    double play_ms; /* 0: no */
    bool pareto, json, quiet;
    enum weft_schedule_algorithm which;
    struct weft_schedule_options search;
};

/* ---- Searching --------------------------------------------------------- */

static bool wants_stop(void *ctx)
{
    (void) ctx;
    return weft_cli_stop != 0;
}

/* Prints a line when there is news, but at most one every two seconds. */
static void say_progress(void *ctx, double makespan, double peak,
                         int64_t evaluations)
{
    double *last_s = ctx, now_s = weft_clock_s();
    if (now_s - *last_s < 2)
        return;
    *last_s = now_s;
    fprintf(stderr,
            "weft: makespan %g, peak activation %g after %" PRId64
            " evaluations\n",
            makespan, peak, evaluations);
}

/* Computes the times of the baselines for comparison; NAN for one that the
 * problem does not have. */
static void compare(const struct weft_schedule_problem *problem,
                    struct weft_schedule_report *report)
{
    struct weft_schedule s = {0};
    report->serial_1f1b = report->serial_peak_activation = NAN;
    report->greedy = NAN;
    if (weft_schedule_baseline(problem, WEFT_SCHEDULE_SERIAL, &s, NULL)
        == 0) {
        report->serial_1f1b = s.makespan;
        report->serial_peak_activation = s.peak_activation;
    }
    weft_schedule_release(&s);
    if (weft_schedule_baseline(problem, WEFT_SCHEDULE_GREEDY, &s, NULL) == 0)
        report->greedy = s.makespan;
    weft_schedule_release(&s);
}

static int search(const struct options *o,
                  const struct weft_schedule_problem *problem,
                  struct weft_schedule *out,
                  struct weft_schedule_report *report, struct weft_err *err)
{
    struct weft_schedule_options options = o->search;
    struct weft_schedule_result r;
    double last_s = weft_clock_s();
    weft_cli_catch_stop(NULL);
    options.stop = wants_stop;
    if (weft_world_rank() == 0 && !o->quiet)
        options.progress = say_progress;
    options.ctx = &last_s;
    int rc = weft_schedule_job_search(problem, &options, &r, err);
    if (rc)
        return rc;
    *out = r.schedule;
    report->lower_bound = r.bound.makespan;
    report->argument = r.bound.argument;
    report->peak_bound = r.bound.peak_activation;
    report->optimal = r.optimal;
    report->cut = r.cut;
    report->seed = options.seed;
    report->restarts = options.n_restarts;
    report->evaluations = r.evaluations;
    report->seconds = r.seconds;
    if (r.cut && weft_world_rank() == 0)
        fputs("weft: the search was cut short; this is the best so far\n",
              stderr);
    return 0;
}

/* Takes a schedule that is not searched for: a baseline or a file. */
static int take(const struct options *o,
                const struct weft_schedule_problem *problem,
                struct weft_schedule *out,
                struct weft_schedule_report *report, struct weft_err *err)
{
    struct weft_schedule_bound bound;
    int rc = o->read ? weft_schedule_read(problem, o->read, out, err)
                     : weft_schedule_baseline(problem, o->which, out, err);
    if (rc)
        return rc;
    rc = weft_schedule_bounds(problem, 1, &bound, err);
    if (rc)
        return rc;
    /* 1F1B+ uses other pipelines, for which the bound does not hold. */
    if (out->task) {
        report->lower_bound = bound.makespan;
        report->argument = bound.argument;
        report->optimal = out->makespan <= bound.makespan * (1 + 1e-9);
    }
    return 0;
}

/* ---- Results ----------------------------------------------------------- */

static int write_files(const struct options *o,
                       const struct weft_schedule_problem *problem,
                       const struct weft_schedule *s,
                       const struct weft_schedule_report *report,
                       struct weft_err *err)
{
    int rc = 0;
    if (o->output)
        rc = weft_schedule_write(problem, s, report, o->output, err);
    if (!rc && o->svg)
        rc = weft_schedule_write_svg(problem, s, report, o->svg, err);
    if (!rc && o->perfetto)
        rc = weft_schedule_write_perfetto(problem, s, o->perfetto, err);
    if (!rc && o->paje)
        rc = weft_schedule_write_paje(problem, s, o->paje, err);
    return rc;
}

static int print(const struct options *o,
                 const struct weft_schedule_problem *problem,
                 const struct weft_schedule *s,
                 const struct weft_schedule_report *report,
                 struct weft_err *err)
{
    char *text = o->json ? weft_schedule_json(problem, s, report)
                         : weft_schedule_summary(problem, s, report);
    if (!text)
        return weft_err_nomem(err, "a schedule", 4096);
    fputs(text, stdout);
    weft_free(text);
    if (problem->capacity > 0
        && s->peak_activation > problem->capacity * (1 + 1e-9))
        fprintf(stderr,
                "weft: this schedule holds %g, more than 'memory_capacity' "
                "%g\n",
                s->peak_activation, problem->capacity);
    return 0;
}

static int give(const struct options *o,
                const struct weft_schedule_problem *problem,
                const struct weft_schedule *s,
                const struct weft_schedule_report *report,
                struct weft_err *err)
{
    bool file = o->output || o->svg || o->perfetto || o->paje || o->json;
    if (!s->task && file)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "'%s' has other pipelines than the problem: its "
                            "time can be printed, no schedule",
                            weft_schedule_algorithm_name(o->which));
    int rc = write_files(o, problem, s, report, err);
    return rc ? rc : print(o, problem, s, report, err);
}

static void print_played(const struct options *o, int32_t n_devices,
                         const struct weft_schedule_comparison *c)
{
    fprintf(o->json ? stderr : stdout,
            "played           %g, %+.1f %% of the plan's, by %d devices that "
            "sleep %g ms a unit\n"
            "                 starts %.2g late or early (mean; most %.2g), "
            "order %s,\n"
            "                 bubbles %.1f %% (planned %.1f %%), peak "
            "activation %g (%g)\n",
            c->makespan, (c->makespan / c->planned_makespan - 1) * 100,
            n_devices, o->play_ms, c->start_error, c->most_start_error,
            c->in_order ? "kept" : "not kept", c->bubble * 100,
            c->planned_bubble * 100, c->peak, c->planned_peak);
}

/* Lets the real runtime execute the schedule, to compare it with the plan. */
static int play(const struct options *o,
                const struct weft_schedule_problem *problem,
                const struct weft_schedule *s, struct weft_err *err)
{
    struct weft_schedule played;
    struct weft_schedule_comparison c;
    if (weft_world_size() > 1)
        return weft_err_set(err, WEFT_EUNSUPPORTED,
                            "--play is for one process, without mpirun");
    int rc = weft_schedule_copy(s, &played, err);
    if (rc)
        return rc;
    rc = weft_play_schedule(problem, &played, o->play_ms * 1e-3, err);
    if (!rc)
        rc = weft_schedule_compare(problem, s, &played, &c, err);
    if (!rc)
        print_played(o, s->n_devices, &c);
    weft_schedule_release(&played);
    return rc;
}

/* Prints each point of the front in a line, and writes a file for each. */
static int give_front(const struct options *o,
                      const struct weft_schedule_problem *problem,
                      struct weft_schedule_report *report,
                      struct weft_err *err)
{
    struct weft_schedule *front = NULL;
    struct weft_schedule_options options = o->search;
    int32_t n = 0;
    weft_cli_catch_stop(NULL);
    options.stop = wants_stop;
    int rc = weft_schedule_job_pareto(problem, &options, &front, &n, err);
    bool says = rc == 0 && weft_world_rank() == 0;
    if (says && !o->json)
        puts(" makespan   (least)  peak activation   (least)");
    for (int32_t i = 0; i < n && says && !rc; i++) {
        double makespan = front[i].makespan, peak = front[i].peak_activation;
        struct weft_schedule_bound least;
        char path[4096];
        rc = weft_schedule_bounds_tradeoff(problem, makespan, peak, &least,
                                           err);
        if (rc)
            break;
        if (o->json)
            printf("%s{\"makespan\": %.17g, \"lower_bound\": %.17g, "
                   "\"peak_activation\": %.17g, "
                   "\"peak_activation_bound\": %.17g}",
                   i ? ",\n " : "[", makespan, least.makespan, peak,
                   least.peak_activation);
        else
            printf("%9g %9g  %15g %9g\n", makespan, least.makespan, peak,
                   least.peak_activation);
        snprintf(path, sizeof path, "%s.%d", o->output ? o->output : "",
                 i + 1);
        if (o->output)
            rc = weft_schedule_write(problem, &front[i], report, path, err);
    }
    fputs(says && o->json ? "]\n" : "", stdout);
    for (int32_t i = 0; i < n; i++)
        weft_schedule_release(&front[i]);
    weft_free(front);
    return rc;
}

static int run(const struct options *o, const char *file,
               struct weft_err *err)
{
    struct weft_schedule_problem problem = {0};
    struct weft_schedule s = {0};
    struct weft_schedule_report report = {
        .algorithm = o->which, .lower_bound = NAN, .seconds = NAN};
    int rc = weft_schedule_problem_read(file, &problem, err);
    rc = weft_world_agree(rc, err);
    if (!rc && weft_world_rank() == 0)
        compare(&problem, &report);
    if (!rc && o->pareto) {
        rc = give_front(o, &problem, &report, err);
    } else if (!rc) {
        bool searches = o->which == WEFT_SCHEDULE_SEARCH && !o->read;
        rc = searches ? search(o, &problem, &s, &report, err)
                      : take(o, &problem, &s, &report, err);
        if (!rc && weft_world_rank() == 0)
            rc = give(o, &problem, &s, &report, err);
        if (!rc && o->play_ms > 0 && s.task)
            rc = play(o, &problem, &s, err);
    }
    weft_schedule_release(&s);
    weft_schedule_problem_release(&problem);
    return weft_world_agree(rc, err);
}

/* Says which options do not go together, or NULL. */
static const char *misuse(struct options *o)
{
    for (int a = 0; a < WEFT_N_SCHEDULE_ALGORITHMS; a++)
        if (strcmp(o->algorithm, weft_schedule_algorithm_name(
                                     (enum weft_schedule_algorithm) a))
            == 0)
            o->which = (enum weft_schedule_algorithm) a;
    if (o->which == WEFT_N_SCHEDULE_ALGORITHMS)
        return "'--algorithm' must be search, greedy, serial, interleaved, "
               "chimera or 1f1b-plus";
    if (o->read && (o->pareto || o->which != WEFT_SCHEDULE_SEARCH))
        return "--read takes a schedule that is there: leave out --pareto "
               "and --algorithm";
    if (o->pareto && o->which != WEFT_SCHEDULE_SEARCH)
        return "--pareto searches: leave out --algorithm";
    if (o->pareto && (o->svg || o->perfetto || o->paje))
        return "--pareto makes several schedules: write them with -o and "
               "draw one with --read";
    return NULL;
}

int weft_cmd_schedule(int argc, char **argv)
{
    struct options o = {.algorithm = "search",
                        .which = WEFT_N_SCHEDULE_ALGORITHMS,
                        .search = {.seed = 1, .n_restarts = 4}};
    const struct weft_cli_option table[] = {
        {'o', "output", WEFT_CLI_STRING, &o.output, 0, 0},
        {0, "algorithm", WEFT_CLI_STRING, &o.algorithm, 0, 0},
        {0, "read", WEFT_CLI_STRING, &o.read, 0, 0},
        {0, "seed", WEFT_CLI_UINT64, &o.search.seed, 0, 0},
        {0, "restarts", WEFT_CLI_INT, &o.search.n_restarts, 1, 1 << 20},
        {0, "evaluations", WEFT_CLI_INT64, &o.search.evaluations, 1, 1e18},
        {0, "threads", WEFT_CLI_INT, &o.search.n_threads, 1, 4096},
        {0, "time-limit", WEFT_CLI_DOUBLE, &o.search.time_limit_s, 1e-3, 1e9},
        {0, "pareto", WEFT_CLI_FLAG, &o.pareto, 0, 0},
        {0, "svg", WEFT_CLI_STRING, &o.svg, 0, 0},
        {0, "perfetto", WEFT_CLI_STRING, &o.perfetto, 0, 0},
        {0, "paje", WEFT_CLI_STRING, &o.paje, 0, 0},
        {0, "play", WEFT_CLI_DOUBLE, &o.play_ms, 1e-2, 1e4},
        {0, "json", WEFT_CLI_FLAG, &o.json, 0, 0},
        {'q', "quiet", WEFT_CLI_FLAG, &o.quiet, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_schedule, table,
                        WEFT_COUNT(table), 1, 1, &first, &status))
        return status;
    const char *wrong = misuse(&o);
    if (wrong)
        return weft_cli_usage("schedule", "%s", wrong);
    struct weft_err err = {0};
    int rc = weft_world_open(&err);
    if (rc)
        return weft_cli_fail("schedule", &err);
    rc = run(&o, argv[first], &err);
    status = rc && weft_world_rank() == 0 ? weft_cli_fail("schedule", &err)
           : rc                           ? WEFT_EXIT_FAILED
                                          : WEFT_EXIT_OK;
    weft_world_close();
    return rc ? status : weft_cli_finish("schedule");
}
