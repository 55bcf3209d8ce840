#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The algorithm that doc/hacking.md adds, as a newcomer would: its file, its
# line in the table, its configuration are taken from the page; a program is
# linked with them and trains in four layouts, which give one hash.
set -u
page=$WEFT_SRCDIR/doc/hacking.md
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

complain()
{
    echo "FAILED: $*"
    failed=1
}

# block 'regular expression of the line before': the page's block after it
block()
{
    awk -v before="$1" '
        $0 ~ before { found = 1 }
        found && /^```$/ { exit }
        inside { print }
        found && /^```[a-z]/ { inside = 1 }' "$page"
}

mkdir "$dir/graphs" "$dir/quickstart"
block '^`graphs/lite_ppo.c`:$' >"$dir/graphs/lite_ppo.c"
line=$(block '^In `graphs/algorithms.h`, a line in the table:$')
block '`examples/quickstart/lite_ppo.yaml`:$' >"$dir/quickstart/new.yaml"
[ "$(wc -l <"$dir/graphs/lite_ppo.c")" -gt 20 ] ||
    complain "the page has no file"
long=$(awk '/^## An algorithm, in full/ { n = NR } END { print NR - n }' "$page")
[ "$long" -lt 120 ] || complain "the page needs $long lines"

# The table as it is, with the line put before its first entry.
awk -v line="$line" '
    { print }
    /^#define WEFT_ALGORITHMS\(A\)/ {
        sub(/ *\\*$/, "", line)
        print line " \\"
    }' "$WEFT_SRCDIR/graphs/algorithms.h" >"$dir/graphs/algorithms.h"
cp "$WEFT_SRCDIR/graphs/algorithms.c" "$dir/graphs/"
grep -q lite_ppo "$dir/graphs/algorithms.h" || complain "the table has no line"

# Whatever reads the table is compiled anew, with the flags of the build.
cd "$WEFT_BUILDDIR" || exit 1
cat >"$dir/Makefile" <<END
include Makefile
new = \$(CC) -I$dir \$(DEFS) \$(DEFAULT_INCLUDES) \$(AM_CPPFLAGS) \\
    \$(CPPFLAGS) \$(AM_CFLAGS) \$(CFLAGS) -c -o
$dir/weft: $dir/graphs/lite_ppo.c $dir/graphs/algorithms.c
	\$(new) $dir/lite_ppo.o $dir/graphs/lite_ppo.c
	\$(new) $dir/algorithms.o $dir/graphs/algorithms.c
	\$(AM_V_CCLD)\$(LINK) \$(weft_OBJECTS) $dir/lite_ppo.o \\
	    $dir/algorithms.o \$(weft_LDADD) \$(LIBS)
END
make -s -f "$dir/Makefile" "$dir/weft" >"$dir/log" 2>&1 || {
    cat "$dir/log"
    complain "it is not built"
    exit 1
}

"$dir/weft" train --keys | grep -q lite_ppo || complain "--keys lacks it"
ln -s "$WEFT_SRCDIR/examples/quickstart/model" \
    "$WEFT_SRCDIR/examples/quickstart/prompts.jsonl" "$dir/quickstart/"

# run NAME words...
run()
{
    name=$1
    shift
    "$dir/weft" train -q "$dir/quickstart/new.yaml" "run_dir=$dir/run-$name" \
        iterations=2 rollout.prompts=4 checkpoint.every=0 "$@" \
        >"$dir/log" 2>&1 || { cat "$dir/log"; complain "train $*"; }
    cksum <"$dir/run-$name/checkpoints/iteration-000002/actor/model.safetensors"
}

cksum <"$WEFT_SRCDIR/examples/quickstart/model/model.safetensors" >"$dir/model"
run one runtime.devices=1 >"$dir/one"
cmp -s "$dir/one" "$dir/model" && complain "it learns nothing"
for layout in dp2 tp2pp2,recompute dp2pp2,zero=2; do
    run "$layout" runtime.devices=4 "layout=$layout" >"$dir/other"
    cmp -s "$dir/one" "$dir/other" || complain "$layout has other bits"
done
exit $failed
