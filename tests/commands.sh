#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the README, the documentation and --help print as a command is run as
# it stands, in a copy of the examples. A line that stands for many (with a
# NAME in capitals, or ...) is no command; nor is what is not Weft's to try.
# Those that take long are for `make check-long`, which sets WEFT_LONG; so are
# more than two iterations. What is printed in several places runs once.
set -u
src=$WEFT_SRCDIR
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cp -r "$src/examples" "$dir/examples"
chmod -R u+w "$dir/examples"
mkdir "$dir/bin" "$dir/build"
ln -s "$WEFT_BUILDDIR/weft" "$dir/bin/weft"
ln -s "$WEFT_BUILDDIR/weft" "$dir/build/weft"
# Programs that show a file: it must be there.
for viewer in xdg-open vite; do
    printf '#!/bin/sh\ntest -s "$1"\n' >"$dir/bin/$viewer"
    chmod +x "$dir/bin/$viewer"
done
PATH=$dir/bin:$PATH
# Open MPI's plug-ins are gone when leaks would be looked for.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export PATH ASAN_OPTIONS
cd "$dir" || exit 1
mpi=no
[ -n "${WEFT_MPIEXEC:-}" ] && weft info | grep -q '^  MPI  *yes' && mpi=yes
failed=0
n=0
: >ran

# The commands among the lines of a text that begin with so many blanks, one
# a line, continued ones joined.
commands_in() # indent
{
    awk -v indent="$1" '
        { match($0, /^ */); blanks = RLENGTH; text = substr($0, blanks + 1) }
        line == "" && blanks != indent { next }
        { line = line (line == "" ? "" : " ") text }
        sub(/\\$/, "", line) || /[|]$/ { next }
        { print line; line = "" }
    ' | grep -E '^([^ ]*weft|mpirun|echo|xdg-open|tail|vite) ' |
        sed 's/  *# .*//' |
        grep -vE '(^|[^A-Za-z_$])[A-Z][A-Z_]+(\.[a-z]+)?($|[^A-Za-z(])|\.\.\.'
}

try() # where, command
{
    grep -qxF -e "$2" ran && return
    echo "$2" >>ran
    run=$2
    case $2 in
    mpirun*) [ "$mpi" = yes ] || { echo "skipped: $2 (no MPI)"; return; } ;;
    *real_70b*--compare | *"verify --quick" | *"verify --algorithm dpo" | \
        *"-o models/110m")
        [ -n "${WEFT_LONG:-}" ] || { echo "left to check-long: $2"; return; } ;;
    *iterations=20)
        [ -n "${WEFT_LONG:-}" ] || run=${2%20}2 ;;
    esac
    n=$((n + 1))
    sh -c "$run" >out 2>err </dev/null && return
    echo "FAIL $1: $2"
    sed 's/^/    /' err out | tail -n 20
    failed=1
}

try_all() # where, file of commands
{
    [ -s "$2" ] || { echo "FAIL no commands found in $1"; failed=1; }
    while IFS= read -r command <&3; do
        try "$1" "$command"
    done 3<"$2"
}

# What quickstart runs, but for its length; the other commands use its run.
quickstart='weft train examples/quickstart/ppo.yaml run_dir=runs/quickstart'
quickstart="$quickstart trace=true iterations=2"
sh -c "$quickstart" >summary 2>err </dev/null ||
    { echo "FAIL $quickstart"; cat err; exit 1; }
sed -n 's/^\(report\|metrics\|samples\|model\|     \) *//p' summary |
    sed 's/^/    /' | commands_in 4 >list
try_all "the summary of weft train" list
[ "$n" -ge 4 ] || { echo "FAIL only $n commands in"; cat summary; failed=1; }

weft --help >help
names=$(sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' help)
for name in "" $names; do
    # shellcheck disable=SC2086
    weft $name --help | sed '1,/^example:/d' | commands_in 2 >list
    try_all "weft $name --help" list
done
sed -n 's/^# \{0,1\}//p' "$src/examples/layouts/ppo.yaml" | commands_in 4 >list
try_all examples/layouts/ppo.yaml list
for page in README.md doc/layouts.md doc/schedules.md doc/formats.md \
    doc/numerics.md; do
    commands_in 4 <"$src/$page" >list
    [ ! -s list ] || try_all "$page" list
done
echo "$n commands run"
exit $failed
