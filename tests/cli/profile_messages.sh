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

number() # KEY: its number in the file
{
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" costs.json
}

"$weft" profile "$ppo" --devices 1 --limit 1 -o costs.json >log 2>&1 ||
    complain "weft profile fails"
[ "$(number message_rate)" = 0 ] || complain "messages are measured alone"
cp costs.json before.json
"$weft" profile "$ppo" --messages costs.json >log 2>&1 &&
    complain "messages of one rank"
grep -q "start it with mpirun -n 2" log || complain "no word of two ranks"
cmp -s costs.json before.json || complain "a refused file is changed"

on_ranks 2 "$weft" profile "$ppo" --messages costs.json >log 2>&1 ||
    complain "two ranks measure nothing"
for key in message_s message_rate message_core_s; do
    awk -v x="$(number $key)" 'BEGIN { exit !(x + 0 > 0) }' ||
        complain "no $key"
done
# All else stays.
sed -e 's/"message_s": [^,]*/"message_s": 0/' \
    -e 's/"message_rate": [^,]*/"message_rate": 0/' \
    -e 's/"message_core_s": [^,]*/"message_core_s": 0/' \
    -e 's/"message_core_byte_s": [^,]*/"message_core_byte_s": 0/' \
    costs.json >without.json
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
