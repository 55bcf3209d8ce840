#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a shell or a batch system limits: the run works, or one sentence says
# what is missing. Nothing crashes, nothing is left behind.
set -u
weft=$WEFT_BUILDDIR/weft
config=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# limited STATUS 'part of the sentence' 'commands before': STATUS may be
# "either"
limited()
{
    rm -rf run
    sh -c "$3
        exec '$weft' train -q '$config' run_dir=run iterations=1 \
        runtime.devices=2 rollout.prompts=4" >out 2>err
    got=$?
    bad=0
    case $got in
    0) [ "$1" != 1 ] || bad=1 ;;
    1)
        [ "$1" != 0 ] && [ "$(wc -l <err)" = 1 ] &&
            grep -q '^weft train: ' err && grep -qF -- "$2" err || bad=1
        [ ! -e run ] || bad=1
        ;;
    *) bad=1 ;;
    esac
    [ $bad = 0 ] && return
    echo "FAIL after $3 (status $got): $2"
    sed 's/^/    /' err
    ls run 2>/dev/null
    failed=1
}

limited 0 "" true
limited 0 "" "ulimit -s 64"
limited 0 "" "ulimit -s unlimited"
limited 0 "" \
    "unset HOME STARPU_HOME; TMPDIR='$PWD/none'; export TMPDIR; umask 077"
[ ! -e none ] || { echo "FAIL a TMPDIR that is not there was made"; failed=1; }

# Address space; a sanitizer takes all there is.
if sh -c "ulimit -v 400000; '$weft' --version" >out 2>err; then
    limited 1 "raise ulimit -v" "ulimit -v 60000"
    for kib in 90000 105000 120000 135000 150000 165000 180000 195000 210000 \
        240000 300000; do
        limited either "ulimit -v" "ulimit -v $kib"
    done
    limited 0 "" "ulimit -v 2000000"
else
    echo "ulimit -v is left out: $(head -n 1 err)"
fi
exit $failed
