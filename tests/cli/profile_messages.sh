#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpirun -n 2 weft profile --messages: what messages take is in the file, and
# refused files stay as they are.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
ppo=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
failed=0

complain()
{
    cat log
    echo "FAILED: $1"
    failed=1
}


"$weft" profile "$ppo" --devices 1 --limit 1 -o costs.json >log 2>&1 ||
    complain "weft profile fails"
grep -q '"messages": \[\],' costs.json || complain "messages are measured alone"
cp costs.json before.json
"$weft" profile "$ppo" --messages costs.json >log 2>&1 &&
    complain "messages of one rank"
grep -q "start it with mpirun -n 2" log || complain "no word of two ranks"
cmp -s costs.json before.json || complain "a refused file is changed"

on_ranks 2 "$weft" profile "$ppo" --messages costs.json >log 2>&1 ||
    complain "two ranks measure nothing"
sed -n 's/.*"messages": \[\[\(.*\)\]\],$/\1/p' costs.json | tr -d ' ' |
    sed 's/\],\[/\n/g' | awk -F , '
        !($1 > last && $2 > 0 && $3 > 0) { exit 1 }
        { last = $1; n++ }
        END { exit !(n == 5) }' || complain "sizes of messages"
# All else stays.
sed 's/"messages": \[.*\],$/"messages": [],/' costs.json >without.json
cmp -s without.json before.json || complain "other numbers are changed"

sed 's/"weft": "/&0/' costs.json >stale.json
cp stale.json stale
on_ranks 2 "$weft" profile "$ppo" --messages stale.json >log 2>&1 &&
    complain "a stale file is taken"
grep -q "'stale.json' was measured with version '0" log ||
    complain "the stale file is not named"
cmp -s stale stale.json || complain "a stale file is changed"

# Its sentence does not depend on which rank is the last to end: the first one
# gets no further than out of MPI.
cat >late.sh <<'END'
late=$1
shift
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" != 0 ] || export LD_PRELOAD="$late"
exec "$@"
END
on_ranks 2 sh late.sh "$WEFT_BUILDDIR/tests/cli/.libs/late_rank.so" \
    "$weft" profile "$ppo" --messages stale.json >log 2>&1 &&
    complain "a stale file is taken by a late rank"
grep -q "'stale.json' was measured with version '0" log ||
    complain "a late rank does not name the stale file"
exit $failed
