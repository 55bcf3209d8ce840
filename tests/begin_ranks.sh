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
. "$WEFT_SRCDIR/tests/on_ranks.sh"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
