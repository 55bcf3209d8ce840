#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A disk that gets full: one sentence that says so and names the file, no
# half checkpoint, the earlier one loads, and the run goes on to the same end
# once there is room. Needs a small file system of its own: skipped where it
# may not be mounted.
set -u
weft=$WEFT_BUILDDIR/weft
config=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
dir=$(mktemp -d) || exit 1
mkdir "$dir/disk" || exit 1
trap 'umount "$dir/disk" 2>/dev/null; rm -rf "$dir"' EXIT
mount -t tmpfs -o size=18m weft-test "$dir/disk" 2>"$dir/log" ||
    { echo "skipped: no tmpfs may be mounted: $(cat "$dir/log")"; exit 77; }
run=$dir/disk/run

fail()
{
    echo "FAIL $1"
    sed 's/^/    /' "$dir/err"
    exit 1
}

train() # run_dir
{
    "$weft" train -q "$config" "run_dir=$1" iterations=2 rollout.prompts=8 \
        rollout.max_new_tokens=4 checkpoint.every=1 checkpoint.keep=1 \
        runtime.devices=1 >"$dir/out" 2>"$dir/err"
}

refused() # when, and what the one line names
{
    train "$run" && fail "$1: it worked"
    [ "$(grep -cv '^weft: warning' "$dir/err")" = 1 ] ||
        fail "$1: not one sentence"
    grep -q "disk full: .*$2" "$dir/err" || fail "$1: no word of $2"
}

weights() # run_dir
{
    (cd "$1/checkpoints/iteration-000002" &&
        find . -name '*.safetensors' | LC_ALL=C sort | xargs cat | cksum)
}

# No room for anything.
head -c 18M /dev/zero >"$dir/disk/ballast" 2>/dev/null
refused "a full disk" config.yaml
grep -q 'needs [1-9][0-9.]* KiB where 0.0 KiB are free' "$dir/err" ||
    fail "a full disk: how much config.yaml needs"
rm "$dir/disk/ballast"

# Room for one checkpoint of 11 MB, not for the second beside it.
refused "the second checkpoint" iteration-000002
left=$(find "$run" -name '*.tmp*' -o -name iteration-000002)
[ -z "$left" ] || fail "it leaves $left"
[ -s "$run/checkpoints/iteration-000001/manifest.json" ] ||
    fail "the first checkpoint is gone"

# With room, it goes on from the first, to the end of a run never refused.
mount -o remount,size=64m "$dir/disk" 2>"$dir/err" || fail "no remount"
train "$run" || fail "it does not go on"
train "$dir/whole" || fail "a run on another disk"
[ "$(weights "$run")" = "$(weights "$dir/whole")" ] ||
    fail "it ends with other weights"
[ "$(wc -l <"$run/metrics.jsonl")" = 2 ] || fail "metrics.jsonl is not whole"
echo "a full disk: one sentence, no half checkpoint, the same bits after"
