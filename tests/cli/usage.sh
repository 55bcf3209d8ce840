#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Finding commands, help, options, usage errors: stdout, stderr, exit status.
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0

# run STATUS STDOUT STDERR command...: each text must be part of the stream;
# an empty one means that nothing is written there.
run()
{
    status=$1 out=$2 err=$3
    shift 3
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    ok=1
    [ "$got" = "$status" ] || ok=0
    for s in out err; do
        eval "part=\$$s"
        if [ -n "$part" ]; then
            grep -qF -- "$part" "$dir/$s" || ok=0
        elif [ -s "$dir/$s" ]; then
            ok=0
        fi
    done
    if [ $ok = 0 ]; then
        echo "FAIL $*: status $got, expected $status, stdout '$out'," \
            "stderr '$err'"
        sed 's/^/    out: /' "$dir/out" | head -n 5
        sed 's/^/    err: /' "$dir/err" | head -n 5
        failed=1
    fi
}

run 0 "usage: weft COMMAND" "" "$weft" --help
run 0 "usage: weft COMMAND" "" "$weft" -h
run 0 "usage: weft COMMAND" "" "$weft" help
run 0 "weft " "" "$weft" --version
run 0 "usage: weft info" "" "$weft" help info
run 2 "" "usage: weft COMMAND" "$weft"
run 2 "" "unknown option '--bogus'" "$weft" --bogus
run 2 "" "unknown command 'trian'; did you mean 'train'?" "$weft" trian
run 2 "" "unknown command 'zzzzzz'" "$weft" zzzzzz
run 2 "" "unknown command 'inf'; did you mean 'info'?" "$weft" help inf

# Every command: its help is its own, fits a screen, shows an example, and is
# listed; a wrong option is a usage error.
"$weft" --help | awk 'length > 80 { print "FAIL weft --help: " $0; bad = 1 }
    END { exit bad }' || failed=1
commands=$("$weft" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 7 ] || { echo "FAIL $commands"; failed=1; }
for c in $commands; do
    run 0 "usage: weft $c" "" "$weft" "$c" --help
    run 0 "example:" "" "$weft" "$c" --help
    run 2 "" "weft $c: unknown option '--no-such-option'" \
        "$weft" "$c" --no-such-option
    run 2 "" "see 'weft $c --help'" "$weft" "$c" -%
    n=$("$weft" "$c" --help | wc -l)
    w=$("$weft" "$c" --help | awk '{ if (length > m) m = length }
        END { print m + 0 }')
    if [ "$n" -gt 40 ] || [ "$w" -gt 80 ]; then
        echo "FAIL weft $c --help: $n lines of up to $w characters"
        failed=1
    fi
    "$weft" "$c" --help >"$dir/a"
    "$weft" help "$c" >"$dir/b"
    cmp -s "$dir/a" "$dir/b" || { echo "FAIL weft help $c"; failed=1; }
done

# The examples on the shipped model do what they say.
example()
{
    (cd "$WEFT_SRCDIR" && PATH=$WEFT_BUILDDIR:$PATH &&
        eval "$(weft "$1" --help | sed '1,/^example:/d')")
}
run 0 '"text": "03457"' "weft: 1 sample" example generate
run 0 '"logprobs": [null, -' "" example score

# Options.
run 2 "" "did you mean '--output'?" "$weft" report --ouput x y
run 2 "" "'--output' needs a value" "$weft" report x --output
run 2 "" "'-o' needs a value" "$weft" report x -o
run 2 "" "'--json' takes no value" "$weft" report --json=1 x
run 2 "" "an argument is missing" "$weft" report
run 2 "" "usage: weft report [options] RUN_DIR" "$weft" report
run 2 "" "too many arguments" "$weft" report a b
run 1 "" "weft report: '--json' is no run" "$weft" report -- --json
run 1 "" "weft report: '$dir' is no run" "$weft" report -o x "$dir" --json
run 2 "" "whole number" "$weft" generate x --prompt y --max-new-tokens 1.5
run 2 "" "whole number" "$weft" generate x --prompt y --max-new-tokens ""
run 2 "" "whole number" "$weft" generate x --prompt y --max-new-tokens 99999999999
run 2 "" "--min-new-tokens is more than" \
    "$weft" generate x --prompt y --min-new-tokens 9 --max-new-tokens 8
run 2 "" "'--stop' is given more than 16 times" "$weft" generate x --prompt y \
    $(seq -f '--stop %g' 17)
run 2 "" "must be a number" "$weft" generate x --prompt y --temperature hot
run 2 "" "must be a number" "$weft" generate x --prompt y --temperature=nan

# Results that cannot be written.
if [ -w /dev/full ]; then
    "$weft" --help >/dev/full 2>"$dir/err"
    [ $? = 1 ] && grep -q "cannot write the results" "$dir/err" ||
        { echo "FAIL weft --help >/dev/full"; failed=1; }
fi

# A report of a run, by name and as JSON.
mkdir "$dir/run"
echo '{"iteration": 1, "critic/score/mean": 0.5}' >"$dir/run/metrics.jsonl"
run 0 "$dir/run/report.html" "" "$weft" report "$dir/run"
run 0 "{\"report\": \"$dir/x.html\"}" "" \
    "$weft" report "$dir/run" --json --output="$dir/x.html"
grep -q "<!doctype html>" "$dir/x.html" || { echo "FAIL report"; failed=1; }
echo '{"iteration": 1,}' >"$dir/run/metrics.jsonl"
run 1 "" "metrics.jsonl:1" "$weft" report "$dir/run"

# The reference of the configuration.
run 0 "ppo.kl.coef" "" "$weft" train --keys
run 0 "seq-mean-token-sum-norm" "" "$weft" train --keys

# What it was built with.
run 0 "StarPU" "" "$weft" info
run 0 '"kernels": {"best":' "" "$weft" info --json
run 0 "(WEFT_ISA 'mmx' is unknown" "" env WEFT_ISA=mmx "$weft" info

# Options behind operands; with a trace the program starts itself again with
# the same line; a StarPU without FxT has a trace that is said to be less.
"$weft" info | grep -q "FxT traces *yes" && without= || without="with FxT"
run 0 "score" "$without" "$weft" train "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" \
    run_dir="$dir/traced" iterations=1 runtime.devices=1 trace=true -q
[ -s "$dir/traced/trace/trace.json" ] || { echo "FAIL trace"; failed=1; }
exit $failed
