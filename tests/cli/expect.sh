# SPDX-License-Identifier: Apache-2.0
# A command as a user runs it: read by tests that have set `command`, and
# `options` that it always has. Works in a folder of its own, $dir, which goes
# at the end.
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL $*"
    sed 's/^/    /' out err
    failed=1
}

# expect STATUS 'part of what it says' options...: results on stdout alone,
# errors on stderr alone
expect()
{
    status=$1
    part=$2
    shift 2
    # shellcheck disable=SC2086
    "$weft" "$command" ${options:-} "$@" >out 2>err
    got=$?
    # progress is told as time passes
    sed -i -e '/^weft: [0-9]* of [0-9]* [a-z, ]*$/d' \
        -e '/^weft: prices layouts of calls; /d' \
        -e '/^weft: [0-9]* layouts priced; the search begins$/d' err
    says=out silent=err
    [ "$status" = 0 ] || says=err silent=out
    if [ "$got" != "$status" ] || [ -s $silent ] ||
        ! grep -qF -- "$part" $says ||
        { [ "$status" = 1 ] && [ "$(wc -l <err)" != 1 ]; }; then
        fail "weft $command $* (status $got): $part"
    fi
}
