/* SPDX-License-Identifier: Apache-2.0 */
/* weft: finds the command and runs it. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/edit_distance.h"
#include "cli/cli.h"
#include "cli/command.h"

static const char head[] =
    "usage: weft COMMAND [arguments]\n"
    "       weft help COMMAND\n"
    "       weft --version\n"
    "\n"
    "Weft: reinforcement learning from human feedback as one task graph.\n"
    "\n"
    "commands:\n";

static const char tail[] =
    "\n"
    "'weft COMMAND --help' shows a command's options and an example.\n"
    "\n"
    "example:\n"
    "  weft train examples/quickstart/ppo.yaml iterations=20\n";

/* Prints the first sentence of a help text's second paragraph in one line. */
static void print_purpose(const char *help)
{
    const char *p = strstr(help, "\n\n");
    bool blank = false;
    for (p = p ? p + 2 : help; *p; p++) {
        bool ends = (*p == '.' || *p == ':')
                 && (p[1] == ' ' || p[1] == '\n' || p[1] == 0);
        if (ends || (*p == '\n' && p[1] == '\n'))
            break;
        if (*p == ' ' || *p == '\n') {
            blank = true;
            continue;
        }
        if (blank)
            putchar(' ');
        blank = false;
        putchar(*p);
    }
    putchar('\n');
}

static int print_help(void)
{
    fputs(head, stdout);
    for (const struct weft_command *c = weft_commands; c->name; c++) {
        printf("  %-10s ", c->name);
        print_purpose(c->help);
    }
    fputs(tail, stdout);
    return weft_cli_finish("help");
}

static const struct weft_command *find(const char *name)
{
    for (const struct weft_command *c = weft_commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown(const char *name)
{
    const char *best = NULL;
    size_t least = 3;
    for (const struct weft_command *c = weft_commands; c->name; c++) {
        size_t d = weft_edit_distance(name, c->name);
        if (d < least && d < strlen(c->name)) {
            least = d;
            best = c->name;
        }
    }
    fprintf(stderr, "weft: unknown command '%s'", name);
    if (best)
        fprintf(stderr, "; did you mean '%s'?", best);
    fputs("\nsee 'weft --help'\n", stderr);
    return WEFT_EXIT_USAGE;
}

static int help(const char *name)
{
    const struct weft_command *c = find(name);
    if (!c)
        return unknown(name);
    fputs(c->help, stdout);
    return weft_cli_finish("help");
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    /* so that a file too large is an ordinary error */
    signal(SIGXFSZ, SIG_IGN);
    if (!name) {
        fputs("usage: weft COMMAND [arguments]\nsee 'weft --help'\n", stderr);
        return WEFT_EXIT_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help();
    if (strcmp(name, "help") == 0)
        return argc > 2 ? help(argv[2]) : print_help();
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("weft %s\n", weft_version());
        return weft_cli_finish("version");
    }
    if (name[0] == '-') {
        fprintf(stderr, "weft: unknown option '%s'\nsee 'weft --help'\n",
                name);
        return WEFT_EXIT_USAGE;
    }
    const struct weft_command *c = find(name);
    return c ? c->run(argc - 1, argv + 1) : unknown(name);
}

/* ---- A stack to run on ------------------------------------------------ */

enum { STACK_BYTES = 8 << 20 };

struct arguments {
    int argc;
    char **argv;
    int status;
};

static void *run_there(void *arg)
{
    struct arguments *a = arg;
    a->status = run(a->argc, a->argv);
    return NULL;
}

/* ulimit -s also sets the stack size of threads. When it is too small it
 * cannot always be raised, but a thread can be given a larger stack. */
int main(int argc, char **argv)
{
    struct rlimit limit;
    struct arguments a = {argc, argv, WEFT_EXIT_FAILED};
    pthread_attr_t attr;
    pthread_t thread;
    /* Each of malloc()'s arenas takes 64 MiB of address space. */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        (void) mallopt(M_ARENA_MAX, 1);
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES)
        return run(argc, argv);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    /* for the threads of StarPU and of Weft too */
    (void) pthread_setattr_default_np(&attr);
    int why = pthread_create(&thread, &attr, run_there, &a);
    pthread_attr_destroy(&attr);
    if (why) {
        fprintf(stderr,
                "weft: cannot start a thread with 8 MiB of stack: "
                "%s; raise ulimit -s\n",
                strerror(why));
        return WEFT_EXIT_FAILED;
    }
    pthread_join(thread, NULL);
    return a.status;
}
