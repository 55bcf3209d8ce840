/* SPDX-License-Identifier: Apache-2.0 */
/* Corrects Paje traces that StarPU 1.3 writes: readers other than ViTE want
 * the events sorted by time, and every container created before it is used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rt/internal.h"
#include "rt/trace.h"

enum { KINDS = 256 }; /* the header numbers kinds of events 0 .. KINDS - 1 */

struct line {
    char *text;
    /* -INFINITY for the header and definitions, which have no time */
    double time;
    /* Orders events of the same time: twice the position in the file, and one
     * less for what is put before the line. */
    size_t at;
};

struct name {
    char text[64];
};

struct trace {
    struct line *line; /* (n) */
    size_t n, room;
    struct name *name; /* (n_names) of containers, sorted */
    size_t n_names, names_room;
    bool has_time[KINDS];     /* events whose first field is their time */
    int container_at[KINDS];  /* number of that field, from 1; 0: none */
    int defined, n_fields;    /* event whose fields come next, or -1 */
    int create, create_alias; /* creation of containers; its Alias' number */
};

static void read_header(struct trace *t, const char *text)
{
    int number;
    char word[32] = "";
    if (sscanf(text, "%%EventDef %31s %d", word, &number) == 2) {
        t->defined = number >= 0 && number < KINDS ? number : -1;
        t->n_fields = 0;
        if (strcmp(word, "PajeCreateContainer") == 0)
            t->create = t->defined;
        return;
    }
    if (t->defined < 0 || sscanf(text, "%% %31s", word) != 1)
        return;
    t->n_fields++;
    if (t->n_fields == 1)
        t->has_time[t->defined] = strcmp(word, "Time") == 0;
    if (strcmp(word, "Container") == 0)
        t->container_at[t->defined] = t->n_fields;
    if (strcmp(word, "Alias") == 0 && t->defined == t->create)
        t->create_alias = t->n_fields;
}

static double time_of(struct trace *t, const char *text)
{
    char *end;
    if (text[0] == '%') {
        read_header(t, text);
        return -INFINITY;
    }
    long number = strtol(text, &end, 10);
    if (end == text || number < 0 || number >= KINDS || !t->has_time[number])
        return -INFINITY;
    return strtod(end, NULL);
}

/* StarPU writes colours of codelets as 0..255; Paje wants 0..1. */
static void fix_colour(char *line)
{
    double rgb[3];
    char fixed[32];
    char *quote = strchr(line, '"');
    int end = 0;
    if (strncmp(line, "6\t", 2) != 0 || !quote
        || sscanf(quote, "\"%lf %lf %lf\"%n", &rgb[0], &rgb[1], &rgb[2], &end)
               != 3
        || end == 0 || (rgb[0] <= 1 && rgb[1] <= 1 && rgb[2] <= 1))
        return;
    snprintf(fixed, sizeof fixed, "\"%.4f %.4f %.4f\"\n", rgb[0] / 255,
             rgb[1] / 255, rgb[2] / 255);
    strcpy(quote, fixed); /* read_trace() has left room for it */
}

static int by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int add_line(struct trace *t, char *text, size_t at,
                    struct weft_err *err)
{
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 1 << 14;
        struct line *more = weft_realloc(t->line, room, sizeof *more);
        if (!more)
            return weft_err_nomem(err, "a trace", room * sizeof *more);
        t->line = more;
        t->room = room;
    }
    t->line[t->n] = (struct line){text, time_of(t, text), at};
    t->n++;
    return 0;
}

static int read_trace(const char *path, struct trace *t, struct weft_err *err)
{
    char *text = NULL;
    size_t size = 0;
    int rc = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return weft_err_sys(err, "read", path);
    while (!rc && getline(&text, &size, f) > 0) {
        /* Leaves room for a colour that fix_colour() makes longer. */
        char *copy = weft_alloc(strlen(text) + 32, 1);
        if (!copy)
            rc = weft_err_nomem(err, "a trace", strlen(text));
        else
            rc = add_line(t, strcpy(copy, text), 2 * t->n + 1, err);
        if (rc)
            weft_free(copy);
    }
    if (!rc && ferror(f))
        rc = weft_err_sys(err, "read", path);
    free(text);
    fclose(f);
    return rc;
}

/* ---- Containers that StarPU forgets to create -------------------------- */

/* The word number `at` after an event's number; "" when it has fewer. */
static void word_at(const char *text, int at, struct name *out)
{
    static const char space[] = " \t\n";
    for (int i = 0; i < at; i++) {
        text += strcspn(text, space);
        text += strspn(text, space);
    }
    snprintf(out->text, sizeof out->text, "%.*s", (int) strcspn(text, space),
             text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *) a)->text,
                  ((const struct name *) b)->text);
}

static bool is_known(const struct trace *t, const struct name *name)
{
    return t->n_names > 0
        && bsearch(name, t->name, t->n_names, sizeof *name, by_name);
}

static int add_name(struct trace *t, const struct name *name,
                    struct weft_err *err)
{
    if (t->n_names == t->names_room) {
        size_t room = t->names_room ? 2 * t->names_room : 64;
        struct name *more = weft_realloc(t->name, room, sizeof *more);
        if (!more)
            return weft_err_nomem(err, "a trace", room * sizeof *more);
        t->name = more;
        t->names_room = room;
    }
    t->name[t->n_names++] = *name;
    return 0;
}

/* The container of an event's line; false: it has none. */
static bool container_of(const struct trace *t, const char *text,
                         struct name *out)
{
    long kind = text[0] == '%' ? -1 : strtol(text, NULL, 10);
    if (kind < 0 || kind >= KINDS || t->container_at[kind] == 0)
        return false;
    word_at(text, t->container_at[kind], out);
    return true;
}

static int read_names(struct trace *t, struct weft_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < t->n && !rc; i++) {
        struct name name;
        const char *text = t->line[i].text;
        if (text[0] == '%' || strtol(text, NULL, 10) != t->create)
            continue;
        word_at(text, t->create_alias, &name);
        rc = add_name(t, &name, err);
    }
    if (t->n_names > 0)
        qsort(t->name, t->n_names, sizeof *t->name, by_name);
    return rc;
}

/* The thread of StarPU-MPI schedules tasks, too: states of a container
 * "<rank>_t<thread>" that was never created. Creates it before the line, as
 * StarPU does it for other threads. */
static int create_thread(struct trace *t, const struct line *before,
                         const struct name *name, struct weft_err *err)
{
    struct name program, time;
    const char *thread = strrchr(name->text, 't');
    int prefix = thread ? (int) (thread - name->text) : 0;
    if (!thread || thread[1 + strspn(thread + 1, "0123456789")] != 0)
        return 0;
    snprintf(program.text, sizeof program.text, "%.*sp", prefix, name->text);
    if (!is_known(t, &program))
        return 0;
    word_at(before->text, 1, &time);
    char *text = weft_alloc(5 * sizeof *name, 1);
    if (!text)
        return weft_err_nomem(err, "a trace", 5 * sizeof *name);
    snprintf(text, 5 * sizeof *name, "%d\t%s\t%s\tUT\t%s\t%.*sUserThread%s\n",
             t->create, time.text, name->text, program.text, prefix,
             name->text, thread + 1);
    int rc = add_line(t, text, before->at - 1, err);
    if (rc) {
        weft_free(text);
        return rc;
    }
    rc = add_name(t, name, err);
    qsort(t->name, t->n_names, sizeof *t->name, by_name);
    return rc;
}

/* Lines are in order before, and may not be after. */
static int create_threads(struct trace *t, struct weft_err *err)
{
    int rc = t->create < 0 ? 0 : read_names(t, err);
    size_t n = t->create < 0 ? 0 : t->n;
    for (size_t i = 0; i < n && !rc; i++) {
        struct name name;
        const struct line line = t->line[i];
        if (container_of(t, line.text, &name) && !is_known(t, &name))
            rc = create_thread(t, &line, &name, err);
    }
    return rc;
}

/* ---- All of it ---------------------------------------------------------- */

static int write_trace(const struct trace *t, const char *path,
                       struct weft_err *err)
{
    char part[4096 + 8];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *f = fopen(part, "w");
    if (!f)
        return weft_err_sys(err, "write", path);
    for (size_t i = 0; i < t->n; i++) {
        fix_colour(t->line[i].text);
        fputs(t->line[i].text, f);
    }
    int rc = ferror(f) ? weft_err_sys(err, "write", path) : 0;
    if (fclose(f) != 0 && !rc)
        rc = weft_err_sys(err, "write", path);
    if (!rc && rename(part, path) != 0)
        rc = weft_err_sys(err, "write", path);
    if (rc)
        unlink(part);
    return rc;
}

int weft_paje_mend(const char *raw, const char *path, struct weft_err *err)
{
    struct trace t = {.defined = -1, .create = -1};
    int rc = read_trace(raw, &t, err);
    if (!rc && t.n > 0)
        qsort(t.line, t.n, sizeof *t.line, by_time);
    if (!rc)
        rc = create_threads(&t, err);
    if (!rc && t.n > 0)
        qsort(t.line, t.n, sizeof *t.line, by_time);
    if (!rc)
        rc = write_trace(&t, path, err);
    for (size_t i = 0; i < t.n; i++)
        weft_free(t.line[i].text);
    weft_free(t.line);
    weft_free(t.name);
    return rc;
}
