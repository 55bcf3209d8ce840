#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft generate and weft score choose how many devices serve a replica by the
# costs of --costs, here of a made-up machine that is this one by name; the
# lines are the same whatever is chosen.
set -u
. "$WEFT_SRCDIR/tests/cli/expect.sh"
quick=$WEFT_SRCDIR/examples/quickstart
model=$quick/model
"$weft" profile "$quick/ppo.yaml" runtime.devices=2 --limit 1 -o real.json \
    >out 2>err || { fail "weft profile"; exit 1; }

# made_up FILE ALL PART: for each row a task takes ALL seconds with all blocks of
# the model, PART with fewer, and nothing besides
made_up()
{
    awk -v all="$2" -v part="$3" '
        match($0, /"blocks": [0-9]+/) {
            of = substr($0, RSTART + 10, RLENGTH - 10)
            match($0, /"computed": [0-9]+/)
            seconds[n++] = substr($0, RSTART + 12, RLENGTH - 12) == of \
                ? all : part
        }
        match($0, /"shape": [0-9]+/) {
            s = seconds[substr($0, RSTART + 9, RLENGTH - 9) + 0]
            sub(/\[\[[^}]*\]\]/, "[[1, 1, 0, 0, " s "]]")
        }
        { sub(/"task_s": [^,]*/, "\"task_s\": 0") }
        { print }' real.json >"$1"
}
made_up alone.json 0.001 0.05
made_up shared.json 0.001 0.0004

run() # OUTPUT SAID command options...
{
    output=$1 said=$2
    shift 2
    "$weft" "$@" >"$output" 2>err || fail "weft $*: status"
    cp "$output" out
    if [ -n "$said" ] && [ "$(grep replica err)" != "weft: $said" ]; then
        fail "weft $*: not '$said'"
    fi
}

generate="generate $model --max-new-tokens 8 --ignore-eos --seed 3"
prompt='sort 12: '
# shellcheck disable=SC2086
for n in 1 2 9; do
    run base "" $generate --n $n --prompt "$prompt" --devices 1
    [ ! -s err ] || ! grep -q replica err || fail "a choice of one device"
    run ruled "1 replica of 2 devices" $generate --n $n --prompt "$prompt" \
        --devices 2
    run shared "" $generate --n $n --prompt "$prompt" --devices 2 \
        --costs shared.json
    grep -q "^weft: 1 replica of 2 devices: [0-9.]* s by 'shared.json'$" err ||
        fail "shared.json, $n samples"
    run alone "" $generate --n $n --prompt "$prompt" --devices 2 \
        --costs alone.json
    grep -q "^weft: 2 replicas of 1 device: [0-9.]* s by 'alone.json'$" err ||
        fail "alone.json, $n samples"
    # a device is left
    run three "" $generate --n $n --prompt "$prompt" --devices 3 \
        --costs shared.json
    case $n in
    1) chosen="1 replica of 2 devices" ;;
    *) chosen=".*" ;;
    esac
    grep -q "^weft: $chosen: [0-9.]* s by 'shared.json'$" err ||
        fail "three devices, $n samples"
    # members that have unlike numbers of blocks
    run uneven "" $generate --n $n --prompt "$prompt" --devices 3 --tp 3
    for of in ruled shared alone three uneven; do
        cmp -s base $of || fail "$of: other lines, $n samples"
    done
done
# one sample reads 9 tokens and has 7 steps after that: 16 rows
run shared "1 replica of 2 devices: 0.0064 s by 'shared.json'" $generate \
    --prompt "$prompt" --devices 2 --costs shared.json
run alone "2 replicas of 1 device: 0.016 s by 'alone.json'" $generate \
    --prompt "$prompt" --devices 2 --costs alone.json

text='sort 12: 12'
run base "" score "$model" --text "$text" --devices 1
for of in shared alone; do
    run $of "" score "$model" --text "$text" --devices 2 --costs $of.json
    cmp -s base $of || fail "score, $of: other lines"
done
grep -q "^weft: 2 replicas of 1 device: [0-9.]* s by 'alone.json'$" err ||
    fail "score by alone.json"
run shared "1 replica of 2 devices: 0.0044 s by 'shared.json'" score "$model" \
    --text "$text" --devices 2 --costs shared.json

# What is not of this machine, or not of this model, has its name.
sed 's/"machine": "/&another /' real.json >other.json
sed 's/"weft": "/&0/' real.json >old.json
sed 's/"kernels": "/&x/' real.json >kernels.json
sed '$d' real.json >cut.json
"$weft" init --preset nano --tokenizer bytes -o nano >out 2>err || fail init
for command in generate score; do
    what=prompt
    [ $command = generate ] || what=text
    options="$model --devices 2 --$what x"
    expect 1 "'other.json' was measured with machine 'another " --costs other.json
    expect 1 "'old.json' was measured with version '0" --costs old.json
    expect 1 "'kernels.json' was measured with kernels 'x" --costs kernels.json
    expect 1 "cannot open 'none.json'" --costs none.json
    expect 1 "cut.json" --costs cut.json
    expect 2 "--tp says what --costs would choose: give one of them" \
        --costs shared.json --tp 1
    options="nano --devices 2 --$what x"
    expect 1 "'shared.json' does not say what" --costs shared.json
    grep -q "of this model takes in f32 with . tensor blocks; run weft profile" \
        err || fail "what to do"
done
exit "$failed"
