# SPDX-License-Identifier: Apache-2.0
# Read by tests that watch what a command says while it runs, in a folder of
# their own, which is the current one. What it has said is in the file log.
mkfifo err

complain()
{
    echo "FAILED: $*"
    cat log
    failed=1
}

# start command...: $pid
start()
{
    : >log
    "$@" >out 2>err </dev/null &
    pid=$!
    exec 3<err
}

# until_said 'part of a line': reads what the command says until then
until_said()
{
    while read -r line <&3; do
        echo "$line" >>log
        case $line in *"$1"*) return 0 ;; esac
    done
    complain "it ends and does not say '$1'"
    return 1
}

# ended STATUS: reads what else it says, and compares; $status
ended()
{
    cat <&3 >>log
    wait $pid
    status=$?
    exec 3<&-
    [ $# = 0 ] || [ $status = "$1" ] || complain "status $status, not $1"
}
