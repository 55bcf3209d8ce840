/* SPDX-License-Identifier: Apache-2.0 */
/* weft tokenize: text and token ids, a line each. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/string.h"
#include "text/tokenizer.h"
#include "cli/cli.h"
#include "cli/command.h"

WEFT_COMMAND(tokenize);

const char weft_help_tokenize[] =
    "usage: weft tokenize [options] MODEL [FILE]\n"
    "\n"
    "Turns lines of text into lines of token ids, or back. MODEL is a "
    "Hugging\n"
    "Face folder with a tokenizer.json, or that file; the lines come from\n"
    "FILE, or stdin. Ids are separated by blanks (read: or commas, within\n"
    "brackets or not).\n"
    "\n"
    "options:\n"
    "  -d, --decode        token ids to text\n"
    "      --no-special    special tokens spelled in the text are plain "
    "text\n"
    "      --bos           add what the tokenizer puts around a text\n"
    "      --skip-special  leave special tokens out when decoding\n"
    "      --json          write {\"tokens\": [...]} or {\"text\": \"...\"}\n"
    "      --json-input    texts are JSON strings (which can hold line "
    "feeds)\n"
    "      --help          this text\n"
    "\n"
    "example:\n"
    "  echo 'sort 30754' | weft tokenize examples/quickstart/model |\n"
    "      weft tokenize -d examples/quickstart/model"
    "\n";

struct options {
    bool decode, no_special, bos, skip_special, json, json_input;
};

/* ---- Text to ids ------------------------------------------------------ */

static void print_ids(const int32_t *id, size_t n, bool json)
{
    if (json)
        fputs("{\"tokens\": [", stdout);
    for (size_t i = 0; i < n; i++)
        printf("%s%" PRId32, i == 0 ? "" : json ? ", " : " ", id[i]);
    puts(json ? "]}" : "");
}

static int encode(const struct weft_tokenizer *tok, const struct options *o,
                  const char *name, const char *line, size_t n,
                  struct weft_err *err)
{
    unsigned flags = (o->no_special ? 0u : WEFT_TOK_SPECIAL)
                   | (o->bos ? WEFT_TOK_ADD_BOS : 0u);
    json_t *value = NULL;
    int32_t *id = NULL;
    size_t n_ids = 0;
    int rc = 0;
    if (o->json_input) {
        rc = weft_json_parse_texts(line, n, name, 1, &value, err);
        if (!rc && !json_is_string(value))
            rc = weft_err_set(err, WEFT_EFORMAT,
                              "%s: must be a JSON string, not %s", name,
                              weft_json_type(value));
        if (!rc) {
            line = json_string_value(value);
            n = json_string_length(value);
        }
    }
    if (!rc)
        rc = weft_tokenizer_encode(tok, line, n, flags, &id, &n_ids, err);
    if (!rc)
        print_ids(id, n_ids, o->json);
    weft_free(id);
    json_decref(value);
    return rc;
}

/* ---- Ids to text ------------------------------------------------------ */

static int bad_ids(const char *name, const char *at, struct weft_err *err)
{
    return weft_err_set(err, WEFT_EFORMAT,
                        "%s: must be token ids from 0, not '%.40s'", name,
                        at);
}

/* Reads the ids of a line, which blanks and commas separate. */
static int parse_ids(const char *name, const char *line, int32_t *id,
                     size_t *n_out, struct weft_err *err)
{
    const char *p = line + strspn(line, " \t");
    bool brackets = *p == '[';
    size_t n = 0;
    p += brackets;
    for (;;) {
        p += strspn(p, " \t,");
        if (!*p || *p == ']')
            break;
        char *end;
        errno = 0;
        long long v = strtoll(p, &end, 10);
        bool stops = *end == 0 || strchr(" \t,]", *end);
        if (*p < '0' || *p > '9' || errno || v > INT32_MAX || !stops)
            return bad_ids(name, p, err);
        id[n++] = (int32_t) v;
        p = end;
    }
    if ((*p == ']') != brackets || (brackets && p[1 + strspn(p + 1, " \t")]))
        return bad_ids(name, p, err);
    *n_out = n;
    return 0;
}

static int decode(const struct weft_tokenizer *tok, const struct options *o,
                  const char *name, const char *line, size_t n,
                  struct weft_err *err)
{
    int32_t *id = weft_alloc(n / 2 + 1, sizeof *id);
    char *text = NULL;
    size_t n_ids = 0, n_text = 0;
    if (!id)
        return weft_err_nomem(err, "a line", n);
    int rc = memchr(line, 0, n)
               ? weft_err_set(err, WEFT_EFORMAT,
                              "%s: must be token ids from 0, not a zero byte",
                              name)
               : parse_ids(name, line, id, &n_ids, err);
    if (!rc)
        rc = weft_tokenizer_decode(tok, id, n_ids, o->skip_special, &text,
                                   &n_text, err);
    if (!rc && o->json) {
        struct weft_string out = {0};
        weft_string_add_json_str(&out, (struct weft_str){text, n_text});
        printf("{\"text\": %s}\n", out.data ? out.data : "null");
        weft_string_release(&out);
    } else if (!rc) {
        fwrite(text, 1, n_text, stdout);
        putchar('\n');
    }
    weft_free(text);
    weft_free(id);
    return rc;
}

/* ---- Lines ------------------------------------------------------------ */

static int each_line(const struct weft_tokenizer *tok,
                     const struct options *o, FILE *in, const char *file,
                     struct weft_err *err)
{
    char *line = NULL, name[4200];
    size_t room = 0;
    ssize_t n;
    int rc = 0, number = 0;
    while (!rc && (n = getline(&line, &room, in)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = 0;
        snprintf(name, sizeof name, "%s:%d", file, ++number);
        rc = o->decode ? decode(tok, o, name, line, (size_t) n, err)
                       : encode(tok, o, name, line, (size_t) n, err);
        if (ferror(stdout))
            break;
    }
    if (!rc && ferror(in))
        rc = weft_err_sys(err, "read", file);
    free(line);
    return rc;
}

int weft_cmd_tokenize(int argc, char **argv)
{
    struct options o = {0};
    const struct weft_cli_option table[] = {
        {'d', "decode", WEFT_CLI_FLAG, &o.decode, 0, 0},
        {0, "no-special", WEFT_CLI_FLAG, &o.no_special, 0, 0},
        {0, "bos", WEFT_CLI_FLAG, &o.bos, 0, 0},
        {0, "skip-special", WEFT_CLI_FLAG, &o.skip_special, 0, 0},
        {0, "json", WEFT_CLI_FLAG, &o.json, 0, 0},
        {0, "json-input", WEFT_CLI_FLAG, &o.json_input, 0, 0},
    };
    int first, status;
    if (!weft_cli_parse(argc, argv, weft_help_tokenize, table,
                        WEFT_COUNT(table), 1, 2, &first, &status))
        return status;
    struct weft_err err = {0};
    struct weft_tokenizer *tok = NULL;
    const char *file = first + 1 < argc ? argv[first + 1] : "stdin";
    FILE *in = first + 1 < argc ? fopen(file, "r") : stdin;
    int rc = in ? weft_tokenizer_open(argv[first], &tok, &err)
                : weft_err_sys(&err, "read", file);
    if (!rc)
        rc = each_line(tok, &o, in, file, &err);
    weft_tokenizer_free(tok);
    if (in && in != stdin)
        fclose(in);
    if (rc)
        return weft_cli_fail("tokenize", &err);
    return weft_cli_finish("tokenize");
}
