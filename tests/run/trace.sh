#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# StarPU's own trace of several ranks: one Paje file with the tasks and
# messages of all. The other trace, which Weft records itself, says what has to
# be in it.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
mkdir tmp
quick=$WEFT_SRCDIR/examples/quickstart

# train RANKS DEVICES RUN words...
train()
{
    n=$1
    devices=$2
    run=$3
    shift 3
    on_ranks "$n" env "TMPDIR=$dir/tmp" "$weft" train -q "$quick/sft.yaml" \
        "run_dir=$run" "model.actor=$quick/model" train.batch=8 \
        "runtime.devices=$devices" trace=true "$@" >log 2>&1 ||
        complain "$n ranks: status $?"
    # shellcheck disable=SC2144
    [ ! -e tmp/weft-fxt-* ] || complain "left over: $(ls tmp)"
}

# recorded RUN: how often which task ran on which device of which rank; the number
# of messages, each of which is four lines: begun and ended, at both ends
recorded()
{
    awk -F'[{}:,"]+' '
        /"ph":"X"/ {
            for (i = 1; i < NF; i++) {
                if ($i == "name") name = $(i + 1)
                if ($i == "pid") pid = $(i + 1)
                if ($i == "tid") tid = $(i + 1)
            }
            n[pid " " tid " " name]++
        }
        /"cat":"transfer"/ { messages++ }
        END {
            for (i in n) print i, n[i]
            print "messages", messages / 4, ""
        }' "$1/trace/trace.json" | sort
}

# merged RUN DEVICES: the same of StarPU's trace, where a task is event 20 on container
# RANK_wWORKER, and a message begins with event 23 and ends with event 24
merged()
{
    awk -v devices="$2" '
        $1 == 20 {
            split($3, w, "_w")
            gsub("\"", "", $5)
            n[w[1] " " (w[1] * devices + w[2]) " " $5]++
        }
        $1 == 23 { begun++ }
        $1 == 24 || $1 == 19 && $3 == "MPIL" { ended++ }
        END {
            for (i in n) print i, n[i]
            print "messages", begun + 0, begun == ended ? "" : ended
        }' "$1/trace/paje.trace" | sort
}

# Events begin with a number from 7 on, then comes their time.
sorted()
{
    awk '$1 !~ /^[0-9]+$/ || $1 < 7 { next }
        $2 + 0 < last { exit bad = 1 } { last = $2 + 0; n++ }
        END { exit bad || n < 1000 }' "$1/trace/paje.trace"
}

train 2 2 two layout=dp2pp2 iterations=1
if [ ! -e two/trace/paje.trace ] &&
    ! "$weft" info | grep -q '^ *FxT traces *yes'; then
    [ "$(grep -c 'no StarPU with FxT: the trace is trace.json alone' log)" = 1 ] ||
        complain "the missing trace is not explained once"
    [ -s two/trace/trace.json ] || complain "no trace.json"
    [ $failed = 1 ] || echo "skipped: no StarPU with FxT"
    exit $((failed ? 1 : 77))
fi
# Its last rank has nothing to do.
train 3 1 three layout=pp2,micro_batches=2 iterations=2
# check RUN DEVICES WORKER: the last rank's last one
check()
{
    run=$1
    [ "$(ls "$run/trace")" = "paje.trace
trace.json" ] || complain "$run: not two traces: $(ls "$run/trace")"
    recorded "$run" >expected
    merged "$run" "$2" >got
    cmp expected got || { diff expected got; complain "$run: the traces differ"; }
    grep -q '^messages [1-9]' expected || complain "$run: no messages"
    for rank in 0 1; do
        [ "$(grep -c "^$rank " expected)" -gt 3 ] ||
            complain "$run: few tasks of rank $rank: $(cat expected)"
    done
    sorted "$run" || complain "$run: events are out of order"
    command -v pj_dump >/dev/null || { echo "no pj_dump here"; return; }
    pj_dump "$run/trace/paje.trace" >dump 2>log ||
        complain "pj_dump refuses $run"
    grep -q "^Container, .*, Worker, .*, $3\$" dump ||
        complain "$run: pj_dump sees no worker $3"
    [ "$(grep -c '^Link, .*MPI communication' dump) " = \
        "$(sed -n 's/^messages //p' expected)" ] ||
        complain "$run: pj_dump sees other messages"
}
check two 2 1_CPU1
check three 1 2_CPU0

# A run that is done keeps its traces.
cksum three/trace/* >before
train 3 1 three layout=pp2,micro_batches=2 iterations=2
cksum three/trace/* | cmp - before || complain "a done run has new traces"
exit $failed
