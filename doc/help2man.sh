#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: doc/help2man.sh PROGRAM [COMMAND]
#
# Prints a man page made from the program's own --help: there is one text.
# Its first lines are the usage, up to an empty one; then comes what the
# command does; a line at the margin that ends in a colon starts a section.
set -eu

program=$1
command=${2:-}
page=weft${command:+-$command}
version=$("$program" --version | head -n 1)
text=$("$program" ${command:+"$command"} --help)
[ -n "$text" ] || { echo "help2man: '$page' has no help" >&2; exit 1; }

printf '%s\n' "$text" | awk -v page="$page" -v version="$version" '
function quote(s)
{
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    sub(/^\./, "\\\\\\&.", s)
    sub(/^\047/, "\\\\\\&\047", s)
    return s
}
function section(name) { print ".SH " name; verbatim = 0 }
function line(s)
{
    if (!verbatim) { print ".nf"; verbatim = 1 }
    print quote(s)
}
{ all[NR] = $0 }
END {
    print ".TH " toupper(quote(page)) " 1 \"\" \"" version "\" \"Weft\""
    for (n = 1; n <= NR && all[n] != ""; n++)
        ;
    for (i = n; i <= NR && all[i] == ""; i++)
        ;
    # The line of the name is the first sentence.
    for (k = i; k <= NR && all[k] != ""; k++)
        what = what (k > i ? " " : "") all[k]
    sub(/^Weft: /, "", what)
    if (match(what, /[.:]( |$)/))
        what = substr(what, 1, RSTART - 1)
    what = tolower(substr(what, 1, 1)) substr(what, 2)
    section("NAME")
    print quote(page) " \\- " quote(what)
    section("SYNOPSIS")
    for (k = 1; k < n; k++) {
        sub(/^([Uu]sage:)? */, "", all[k])
        line(all[k])
    }
    print ".fi"
    section("DESCRIPTION")
    for (; i <= NR; i++) {
        # The commands of weft(1), each with a page of its own.
        if (name == "COMMANDS" && match(all[i], /^  [a-z]+/))
            others = others ", weft\\-" substr(all[i], 3, RLENGTH - 2) "(1)"
        if (all[i] ~ /^[A-Za-z][A-Za-z ]*:$/) {
            if (verbatim) print ".fi"
            sub(/:$/, "", all[i])
            name = toupper(all[i])
            section(name)
        } else {
            line(all[i])
        }
    }
    if (verbatim) print ".fi"
    section("SEE ALSO")
    print page == "weft" ? substr(others, 3) : "weft(1)"
}'
