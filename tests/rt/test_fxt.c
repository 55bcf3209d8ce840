/* SPDX-License-Identifier: Apache-2.0 */
/* StarPU's trace: recorded, converted, read back, and opened with ViTE. */
#include "rt/fxt.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "harness.h"
#include "rt/codelet.h"
#include "rt/internal.h"
#include "rt/trace.h"

static int nap_cpu(const void *args, void *const buf[], int n_buf,
                   struct weft_exec *x)
{
    (void) args;
    (void) buf;
    (void) n_buf;
    (void) x;
    usleep(1000);
    return 0;
}
WEFT_CODELET(forward_of_test, 0x42a5f5, nap_cpu)
WEFT_CODELET(backward_of_test, 0x1565c0, nap_cpu)

enum { N = 20 };

static void run(const char *dir)
{
    struct weft_err err;
    struct weft_rt *rt;
    struct weft_seq *seq;
    struct weft_tile *tile;
    struct weft_rt_options options = {
        .n_devices = 2, .nap = 1, .fxt_dir = dir};
    REQUIRE_OK(weft_rt_start(&options, &rt, &err), err);
    REQUIRE_OK(weft_seq_create(rt, &seq, &err), err);
    REQUIRE_OK(weft_tile_create(rt, &(struct weft_tile_id){0},
                                WEFT_MEM_SAMPLES, 8, &tile, &err),
               err);
    for (int i = 0; i < N; i++) {
        struct weft_access access = {tile, WEFT_READ};
        weft_insert(
            seq, i % 2 ? &weft_cl_forward_of_test : &weft_cl_backward_of_test,
            NULL, 0, &access, 1, &(struct weft_where){.device = i % 2});
    }
    REQUIRE_OK(weft_seq_wait(seq, &err), err);
    weft_tile_release(tile);
    weft_seq_free(seq);
    weft_rt_stop(rt);
}

struct paje {
    int n_defs, n_workers, forward, backward, n_colours;
    bool colour; /* forward's own, as parts of 1 */
};

/* The header: "%EventDef name number", fields, "%EndEventDef". Events are
 * lines that begin with one of those numbers. */
static void read_paje(const char *path, struct paje *out)
{
    char line[4096], name[64];
    int number, state = -1, container = -1, value = -1, largest = -1;
    int unknown = 0;
    double r, g, b, time, last = 0;
    FILE *f = fopen(path, "r");
    REQUIRE(f != NULL);
    memset(out, 0, sizeof *out);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%%EventDef %63s %d", name, &number) == 2) {
            out->n_defs++;
            largest = number > largest ? number : largest;
            /* StarPU has two more SetState, with more fields. */
            if (strcmp(name, "PajeSetState") == 0 && state < 0)
                state = number;
            if (strcmp(name, "PajeCreateContainer") == 0)
                container = number;
            if (strcmp(name, "PajeDefineEntityValue") == 0)
                value = number;
            continue;
        }
        if (line[0] == '%' || line[0] == '#'
            || sscanf(line, "%d", &number) != 1)
            continue;
        unknown += number < 0 || number > largest;
        /* From the seventh on, an event's time comes first. */
        if (number > value && sscanf(line, "%*d %lf", &time) == 1) {
            CHECK(time >= last);
            last = time;
        }
        out->n_workers += number == container && strstr(line, "CPU");
        bool forward = strstr(line, "forward_of_test") != NULL;
        bool backward = strstr(line, "backward_of_test") != NULL;
        out->forward += number == state && forward;
        out->backward += number == state && backward;
        const char *colour = strchr(line, '"');
        if (number == value && colour
            && sscanf(colour, "\"%lf %lf %lf", &r, &g, &b) == 3) {
            out->n_colours++;
            CHECK(r >= 0 && r <= 1 && g >= 0 && g <= 1 && b >= 0 && b <= 1);
            out->colour |= forward && (int) (r * 255 + 0.5) == 0x42
                        && (int) (g * 255 + 0.5) == 0xa5
                        && (int) (b * 255 + 0.5) == 0xf5;
        }
    }
    fclose(f);
    CHECK_INT(unknown, 0);
}

static void check_mended(const char *raw, const char *mended)
{
    char dir[] = "/tmp/weft-test-XXXXXX", in[64], out[64], got[1024];
    struct weft_err err;
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(in, sizeof in, "%s/raw", dir);
    snprintf(out, sizeof out, "%s/paje.trace", dir);
    FILE *f = fopen(in, "w");
    REQUIRE(f != NULL);
    fputs(raw, f);
    fclose(f);
    REQUIRE_OK(weft_paje_mend(in, out, &err), err);
    f = fopen(out, "r");
    REQUIRE(f != NULL);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    CHECK_STR(got, mended);
    CHECK_FAILS(weft_paje_mend("/tmp/weft-no/raw", out, &err), WEFT_ENOTFOUND,
                err, "/tmp/weft-no/raw");
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

/* Events come by time, those of one time as they were; definitions, which have
 * none, before them; other lines as they were. */
static void test_mend_order(void)
{
#define HEADER                                                               \
    "%EventDef\tPajeDefineEntityValue\t6\n"                                  \
    "%\tAlias\tstring\n%EndEventDef\n"                                       \
    "%EventDef PajeSetState 10\n"                                            \
    "%\tTime\tdate\n%\tValue\tstring\n"                                      \
    "%EndEventDef\n"
    check_mended(HEADER "10\t2.5\ta\n10\t0.5\tb\n10\t2.5\tc\n"
                        "6\tx\tS\tx\t\"255 0 51\"\n"
                        "10\t10\td\n10\t9\te\n",
                 HEADER "6\tx\tS\tx\t\"1.0000 0.0000 0.2000\"\n"
                        "10\t0.5\tb\n10\t2.5\ta\n10\t2.5\tc\n"
                        "10\t9\te\n10\t10\td\n");
#undef HEADER
}

/* A thread without a container gets one before its first event, once, among
 * the events of its rank; other names that nobody knows stay as they are. */
static void test_mend_containers(void)
{
#define HEADER                                                               \
    "%EventDef\tPajeCreateContainer\t7\n"                                    \
    "%\tTime\tdate\n%\tAlias\tstring\n%\tType\tstring\n"                     \
    "%\tContainer\tstring\n%\tName\tstring\n%EndEventDef\n"                  \
    "%EventDef PajeNewEvent 9\n"                                             \
    "%\tTime\tdate\n%\tType\tstring\n%\tContainer\tstring\n"                 \
    "%EndEventDef\n"                                                         \
    "%EventDef PajePushState 11\n"                                           \
    "%\tTime\tdate\n%\tContainer\tstring\n%EndEventDef\n"
    check_mended(
        HEADER "7\t0.0\t0_p\tP\troot\t0_program\n"
               "7\t0.0\t1_p\tP\troot\t1_program\n"
               "7\t1\t1_t5\tUT\t1_p\t1_UserThread5\n"
               "11\t4\t1_t77\n9\t3\tx\t1_t77\n11\t3\t1_t5\n11\t3\t1_t77\n"
               "11\t2\t2_t77\n11\t2\t1_tx\n",
        HEADER "7\t0.0\t0_p\tP\troot\t0_program\n"
               "7\t0.0\t1_p\tP\troot\t1_program\n"
               "7\t1\t1_t5\tUT\t1_p\t1_UserThread5\n"
               "11\t2\t2_t77\n11\t2\t1_tx\n"
               "7\t3\t1_t77\tUT\t1_p\t1_UserThread77\n"
               "9\t3\tx\t1_t77\n11\t3\t1_t5\n11\t3\t1_t77\n11\t4\t1_t77\n");
#undef HEADER
}

static void check_only_paje(const char *dir)
{
    DIR *d = opendir(dir);
    REQUIRE(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            CHECK_STR(e->d_name, "paje.trace");
    closedir(d);
}

static void open_with_vite(const char *dir)
{
    char command[512], path[96];
    struct stat st;
    if (system("command -v vite >/dev/null 2>&1") != 0) {
        printf("\n    (no vite here) ");
        return;
    }
    snprintf(path, sizeof path, "%s/paje.svg", dir);
    snprintf(
        command, sizeof command,
        "cd %s && QT_QPA_PLATFORM=offscreen LD_LIBRARY_PATH= timeout 600 "
        "vite -e paje.svg paje.trace >vite.log 2>&1",
        dir);
    CHECK_INT(system(command), 0);
    CHECK(stat(path, &st) == 0 && st.st_size > 1000);
}

static void test_fxt_trace(void)
{
    char dir[] = "/tmp/weft-test-XXXXXX", path[64];
    struct paje paje;
    if (!weft_fxt_built()) {
        weft_test_skip("built without a StarPU that traces");
        return;
    }
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/trace", dir);
    run(path);
    check_only_paje(path);
    char file[96];
    snprintf(file, sizeof file, "%s/paje.trace", path);
    read_paje(file, &paje);
    CHECK(paje.n_defs >= 10);
    CHECK_INT(paje.n_workers, 2);
    CHECK_INT(paje.forward, N / 2);
    CHECK_INT(paje.backward, N / 2);
    CHECK(paje.n_colours >= 2);
    CHECK(paje.colour);
    open_with_vite(path);
    struct weft_err err;
    REQUIRE_OK(weft_dir_remove(dir, &err), err);
}

static void test_fxt_refused(void)
{
    struct weft_err err;
    struct weft_rt *rt;
    char *argv[] = {"test_fxt", NULL};
    struct weft_rt_options options = {.n_devices = 1,
                                      .fxt_dir = "/nonexistent/deeper"};
    if (weft_fxt_needed()) {
        CHECK_FAILS(weft_rt_start(&options, &rt, &err), WEFT_EUNSUPPORTED,
                    err, "runs a StarPU without FxT");
        CHECK_FAILS(weft_fxt_reexec(argv, &err), WEFT_EUNSUPPORTED, err,
                    "tools/build-starpu");
        return;
    }
    setenv("TMPDIR", "/nonexistent", 1);
    CHECK_FAILS(weft_rt_start(&options, &rt, &err), WEFT_ENOTFOUND, err,
                "cannot create a folder in '/nonexistent'");
    unsetenv("TMPDIR");
    /* A run whose folder is not there leaves none. In a process of its own:
     * StarPU traces once in a process. */
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = weft_rt_start(&options, &rt, &err);
        if (!rc)
            weft_rt_stop(rt);
        _exit(!rc && weft_rt_start(&options, &rt, &err) == WEFT_ESTATE ? 0
                                                                       : 1);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(access("/nonexistent", F_OK) != 0);
    /* A second time is never tried: it would go on for ever. */
    CHECK_FAILS(weft_fxt_reexec(argv, &err), WEFT_EUNSUPPORTED, err,
                "has no StarPU that traces");
}

int main(void)
{
    static const struct weft_test tests[] = {
        {"test_fxt_refused", test_fxt_refused}, /* before StarPU starts */
        {"test_mend_order", test_mend_order},
        {"test_mend_containers", test_mend_containers},
        {"test_fxt_trace", test_fxt_trace}};
    struct weft_err err;
    char *argv[] = {"test_fxt", NULL};
    if (weft_fxt_built() && weft_fxt_needed()) {
        weft_fxt_reexec(argv, &err);
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    return weft_test_main("rt/fxt", tests, WEFT_COUNT(tests));
}
