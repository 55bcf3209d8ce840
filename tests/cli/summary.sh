#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What weft train says: the commands that it ends with can be pasted into a
# shell, also where names of files hold blanks, quotes and what else means
# something to a shell; and a plan that it finds is no better than its bound.
set -u
. "$WEFT_SRCDIR/tests/cli/expect.sh"
odd="it's \$HOME \"ü\" *"
mkdir bin "$odd"
ln -s "$weft" bin/weft
# Programs that show a file: it must be there.
printf '#!/bin/sh\ntest -s "$1"\n' >bin/vite
chmod +x bin/vite
cp bin/vite bin/xdg-open
PATH=$dir/bin:$PATH
cp "$WEFT_SRCDIR/examples/quickstart/prompts.jsonl" "$odd/a prompt's.jsonl"
"$weft" train -q "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" "run_dir=runs/$odd" \
    "data.path=$odd/a prompt's.jsonl" iterations=1 rollout.prompts=4 \
    trace=true >out 2>err || fail "the run"
grep -qF "xdg-open 'runs/it'\\''s \$HOME \"ü\" *'/report.html" out || fail "report"
# What follows the headline's line and is no hint to another program's page.
sed '1d; /^trace/d; s/^[a-z]*  *//' out >list
[ "$(wc -l <list)" -ge 4 ] || fail "too few commands"
while IFS= read -r line <&3; do
    sh -c "$line" >out 2>err </dev/null || fail "$line"
done 3<list

"$weft" train -q "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" run_dir=found \
    iterations=1 rollout.prompts=4 runtime.devices=1 plan=auto \
    "cluster=$WEFT_SRCDIR/examples/clusters/cpu_2cores.yaml" >out 2>err ||
    fail "plan=auto"
sed -n 's/.*found a plan of .* simulated (\([^ ]*\) within.* less than \([^)]*\)),.*/\1 \2/p' \
    err | awk '{ n++; ok = $1 >= 0.9999 * $2 } END { exit n != 1 || !ok }' ||
    fail "a plan and its bound"
exit $failed
