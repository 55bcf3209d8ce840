# SPDX-License-Identifier: Apache-2.0
# Read by tests of several ranks: $weft, on_ranks, and a folder $dir of their
# own, which is the current one and goes when they end. They are skipped without
# MPI.
weft=$WEFT_BUILDDIR/weft
if [ -z "${WEFT_MPIEXEC:-}" ] ||
    ! "$WEFT_BUILDDIR/tests/rt/test_ranks" --has-mpi; then
    echo "skipped: built without MPI"
    exit 77
fi
# Open MPI's plug-ins are gone when leaks would be looked for.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
# on_ranks N command...: its status. A job that stands still is ended, with 124,
# after two hours: no machine is so slow, nor so busy, that another one needs
# them.
on_ranks()
{
    n_ranks=$1
    shift
    timeout 7200 "$WEFT_MPIEXEC" --oversubscribe --bind-to none \
        -n "$n_ranks" "$@" </dev/null
}

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
