/* SPDX-License-Identifier: Apache-2.0 */
/* Corrects Paje traces that StarPU 1.3 writes: readers other than ViTE want
 * the events sorted by time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "rt/internal.h"

enum { KINDS = 256 }; /* the header numbers kinds of events 0 .. KINDS - 1 */

struct line {
    char *text;
    /* -INFINITY for the header and definitions, which have no time */
    double time;
    size_t at; /* position in the file; orders events of the same time */
};

struct trace {
    struct line *line; /* (n) */
    size_t n, room;
    bool has_time[KINDS]; /* events whose first field is their time */
    int defined;          /* event whose first field comes next, or -1 */
};

static void read_header(struct trace *t, const char *text)
{
    int number;
    if (sscanf(text, "%%EventDef %*s %d", &number) == 1)
        t->defined = number >= 0 && number < KINDS ? number : -1;
    else if (t->defined >= 0) {
        char field[16] = "";
        sscanf(text, "%% %15s", field);
        t->has_time[t->defined] = strcmp(field, "Time") == 0;
        t->defined = -1; /* only the first field matters */
    }
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

static int add_line(struct trace *t, char *text, struct weft_err *err)
{
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 1 << 14;
        struct line *more = weft_realloc(t->line, room, sizeof *more);
        if (!more)
            return weft_err_nomem(err, "a trace", room * sizeof *more);
        t->line = more;
        t->room = room;
    }
    t->line[t->n] = (struct line){text, time_of(t, text), t->n};
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
            rc = add_line(t, strcpy(copy, text), err);
        if (rc)
            weft_free(copy);
    }
    if (!rc && ferror(f))
        rc = weft_err_sys(err, "read", path);
    free(text);
    fclose(f);
    return rc;
}

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
    struct trace t = {.defined = -1};
    int rc = read_trace(raw, &t, err);
    if (!rc && t.n > 0)
        qsort(t.line, t.n, sizeof *t.line, by_time);
    if (!rc)
        rc = write_trace(&t, path, err);
    for (size_t i = 0; i < t.n; i++)
        weft_free(t.line[i].text);
    weft_free(t.line);
    return rc;
}
