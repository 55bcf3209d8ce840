/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of commands. It is made at build time by tools/gen-cmds from the
 * names of the files cmd_<name>.c, each of which defines
 *
 *     int weft_cmd_<name>(int argc, char **argv);
 *     const char weft_help_<name>[];
 *
 * and declares them first with WEFT_COMMAND(<name>).
 */
#ifndef WEFT_CLI_COMMAND_H
#define WEFT_CLI_COMMAND_H

#define WEFT_COMMAND(name)                                                   \
    int weft_cmd_##name(int argc, char **argv);                              \
    extern const char weft_help_##name[]

struct weft_command {
    const char *name;
    /* argv[0] is the command's name. Returns the exit status. */
    int (*run)(int argc, char **argv);
    /* The text of `weft <name> --help` and of weft-<name>.1. */
    const char *help;
};

/* Ends with an entry whose name is NULL; sorted by name. */
extern const struct weft_command weft_commands[];

#endif
