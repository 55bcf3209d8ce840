#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft schedule: searched, taken, drawn, read again; every schedule that is
# written is checked by a program of its own, which is tried on wrong ones.
set -u
command=schedule
options=-q # lines of progress depend on the clock
. "$WEFT_SRCDIR/tests/cli/expect.sh"
check=$WEFT_BUILDDIR/tests/schedule/check_schedule
examples=$WEFT_SRCDIR/examples/schedules

checked() # PROBLEM SCHEDULE
{
    "$check" "$1" "$2" >out 2>err || fail "check_schedule $1 $2"
}

cat >small.json <<'EOF'
{"stages": 2, "latency": 0.5, "memory_capacity": 3,
 "models": [
  {"name": "a", "stages": 2, "micro_batches": 2, "forward": 1, "backward": 2,
   "activation": 1},
  {"name": "b", "pipelines": 2, "stages": 1, "micro_batches": 1,
   "forward": [[1]], "backward": 1, "weight": 1, "activation": 1,
   "direction": "up", "optimizer": 2}]}
EOF

# ---- Searched -------------------------------------------------------------
expect 0 "makespan" small.json --evaluations 100000 -o small.out
# However few evaluations there are, a schedule is built.
expect 0 "makespan" small.json --evaluations 1
checked small.json small.out
few="--evaluations 200000 --restarts 4"
for e in "$examples"/*.json; do
    # shellcheck disable=SC2086
    expect 0 "lower bound" "$e" $few -o searched
    checked "$e" searched
    grep -v seconds searched >one
    # shellcheck disable=SC2086
    expect 0 "lower bound" "$e" $few --threads 1 -o searched
    grep -v seconds searched | cmp -s one - || fail "$e: threads change it"
    grep -q '"seed": 1, "restarts": 4' searched || fail "$e: no seed"
done
# shellcheck disable=SC2086
expect 0 "186, optimal" "$examples/65b_33b.json" $few
grep -q "276: this is 1.484 times as fast" out || fail "the speedup"
# shellcheck disable=SC2086
expect 0 '"algorithm": "search"' "$examples/65b_33b.json" $few --json --seed 7
mv out seven
checked "$examples/65b_33b.json" seven

# The same on ranks.
if [ -n "$WEFT_MPIEXEC" ] && "$weft" info | grep -q 'MPI  *yes'; then
    # shellcheck disable=SC2086
    "$WEFT_MPIEXEC" -n 3 "$weft" schedule "$examples/lengths.json" $few \
        -o ranks >out 2>err || fail "three ranks"
    # shellcheck disable=SC2086
    expect 0 "makespan" "$examples/lengths.json" $few -o alone
    sed -e '/"search"/d' ranks >ranks.stages
    sed -e '/"search"/d' alone | cmp -s ranks.stages - ||
        fail "ranks change the schedule"
fi

# No time at all: nothing is so many times as fast.
sed 's/"\(forward\|backward\|weight\|optimizer\|latency\)": [][0-9.]*/"\1": 0/g' \
    small.json >nothing_to_do.json
expect 0 "makespan         0" nothing_to_do.json --svg nothing.svg
! grep -q nan out nothing.svg || fail "a quotient of nothing"

# ---- Front ----------------------------------------------------------------
expect 0 "peak activation" small.json --pareto --evaluations 100000 -o front
for f in front.*; do checked small.json "$f"; done
awk 'NR > 2 && ($1 <= t || $2 >= p) { exit 1 } { t = $1; p = $2 }' out ||
    fail "no front"
expect 0 '[{"makespan": ' small.json --pareto --evaluations 100000 --json
if [ -n "$WEFT_MPIEXEC" ] && "$weft" info | grep -q 'MPI  *yes'; then
    # shellcheck disable=SC2086
    "$WEFT_MPIEXEC" -n 2 "$weft" schedule small.json --pareto --json \
        --evaluations 100000 >ranks 2>err || fail "the front on two ranks"
    cmp -s out ranks || fail "ranks change the front"
fi

# ---- Taken ------------------------------------------------------------------
for a in greedy serial; do
    for e in "$examples/65b_33b.json" "$examples/lengths.json"; do
        expect 0 makespan "$e" --algorithm $a -o taken --svg taken.svg \
            --perfetto taken.perf --paje taken.paje
        cp out said
        checked "$e" taken
        grep -q "^</svg>" taken.svg || fail "$a: the picture has no end"
        expect 0 makespan "$e" --read taken
        cmp -s out said || fail "$a: read again it is another"
    done
done
expect 0 "264" "$examples/65b_33b.json" --algorithm 1f1b-plus
expect 1 "its time can be printed, no schedule" "$examples/65b_33b.json" \
    --algorithm 1f1b-plus -o x
expect 1 "'chunks' above 1" "$examples/65b_33b.json" --algorithm interleaved
expect 1 "opposite directions" "$examples/65b_33b.json" --algorithm chimera

# ---- Ctrl-C -----------------------------------------------------------------
# 15, not 2: a background job of a shell without job control ignores 2. It is
# sent when weft catches it, not the shell that will become weft.
"$weft" schedule "$examples/lengths.json" --evaluations 1000000000000 \
    -o cut >out 2>err &
pid=$!
until caught=$(awk '/^Name:/ { weft = $2 == "weft" }
    /^SigCgt/ && weft { print $2 }' /proc/$pid/status) && [ -n "$caught" ] &&
    [ $((0x$caught & 1 << 14)) != 0 ]; do # else it would die of the signal
    kill -0 $pid || break
    sleep 0.1
done
kill -15 $pid
wait $pid || fail "a search that is stopped: $?"
grep -q "cut short; this is the best so far" err || fail "it does not say so"
checked "$examples/lengths.json" cut

# ---- Refused ----------------------------------------------------------------
expect 2 "'--algorithm' must be" small.json --algorithm best
expect 2 "--read takes" small.json --read small.out --algorithm greedy
expect 2 "leave out --algorithm" small.json --pareto --algorithm greedy
expect 2 "--pareto makes several" small.json --pareto --svg x
expect 1 "nothing.json" nothing.json
expect 1 "nothing.json" small.json --read nothing.json
expect 1 "cannot" small.json --evaluations 1000 -o nowhere/x
sed 's/"forward": 1/"foward": 1/' small.json >bad.json
expect 1 "bad.json: models[0]: unknown key 'foward'; did you mean" bad.json
sed 's/"forward": 1/"forward": 1e308/' small.json >bad.json
expect 1 "'forward' of micro-batch 0 on stage 0 is 1e+308" bad.json
sed 's/"memory_capacity": 3/"memory_capacity": 0.5/' small.json >bad.json
expect 1 "'memory_capacity' 0.5 is less than one micro-batch" bad.json

# ---- Wrong schedules --------------------------------------------------------
# doctored 'sed script' 'checker says' 'weft says': both refuse it
doctored()
{
    sed -e "$1" small.out >bad.out
    cmp -s small.out bad.out && fail "nothing is doctored: $1"
    "$check" small.json bad.out >out 2>err
    if [ $? != 1 ] || ! grep -qF -- "$2" out; then
        fail "check_schedule after $1: $2"
    fi
    [ -z "$3" ] || expect 1 "$3" small.json --read bad.out
}

first='"start": 0, "end": 1}'
doctored "0,/$first/s//\"start\": 0, \"end\": 2}/" "and takes 1" "takes 1, not 2"
doctored "0,/$first/s//\"start\": 90, \"end\": 91}/" "before the one" \
    "starts at"
doctored 's/"makespan": [0-9.]*/"makespan": 1/' "'makespan' is 1" ""
doctored 's/"peak_activation": 2,/"peak_activation": 1,/
          s/"peak_activation": 3,/"peak_activation": 1,/' \
    "'peak_activation' is 1" ""
doctored '0,/"micro_batch": 1/s//"micro_batch": 0/' "there twice" "there twice"
doctored '0,/"pass": "weight"/s//"pass": "forward"/' "weight is missing" "twice"
doctored '0,/"model": "b"/s//"model": "c"/' "no such model" \
    "the problem has no model 'c'"
doctored '0,/"pipeline": 0/s//"pipeline": 1/' "no such subtask" "pipeline"
doctored 's/"start"/"begin"/' "runs from" "unknown key 'begin'"
# Orders: the problem is another, so that the schedule breaks its rules.
broken() # 'sed script for the problem' 'checker says' 'weft says'
{
    sed -e "$1" small.json >bad.json
    "$check" bad.json small.out >out 2>err
    if [ $? != 1 ] || ! grep -qF -- "$2" out; then
        fail "check_schedule, problem $1: $2"
    fi
    [ -z "$3" ] || expect 1 "$3" bad.json --read small.out
}
broken 's/"latency": 0.5/"latency": 50/' "forward starts at" "must wait until"
broken 's/"latency": 0.5/"latency": 50/' "backward starts at" "must wait"
broken 's/"memory_capacity": 3/"memory_capacity": 1/' \
    "more than the capacity 1" "more than the capacity 1"
broken 's/"micro_batches": 2/"micro_batches": 3/' "is missing" "subtasks"
broken 's/"optimizer": 2/"optimizer": 9/' "'makespan' is" ""

# The runtime keeps a schedule on devices that sleep.
"$weft" schedule small.json --play 1 >out 2>err && grep -q "^played" out ||
    fail "--play: $(cat err)"
[ ! -e x ] || fail "a refused schedule left a file"
exit "$failed"
