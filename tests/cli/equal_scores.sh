#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A reward that tells no response from another is warned of, once; one that
# does is not.
set -u
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

warnings() # run words...: how often the warning was given
{
    run=$1
    shift
    "$WEFT_BUILDDIR/weft" train -q \
        "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" "run_dir=$dir/$run" \
        iterations=3 rollout.prompts=8 "$@" >"$dir/out" 2>"$dir/err" || {
        cat "$dir/err"
        failed=1
    }
    grep -c 'all 16 scores are 0' "$dir/err"
}

n=$(warnings equal 'reward=[{type: regex, pattern: no such answer}]')
[ "$n" = 1 ] || { echo "FAIL equal scores: $n warnings, not 1"; failed=1; }
n=$(warnings unequal)
[ "$n" = 0 ] || { echo "FAIL unequal scores: $n warnings"; failed=1; }
exit "$failed"
