#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft simulate: the same numbers every time, pictures and traces that can be
# read; what is wrong is one sentence.
set -u
command=simulate
. "$WEFT_SRCDIR/tests/cli/expect.sh"
ppo=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
sft=$WEFT_SRCDIR/examples/quickstart/sft.yaml
cat >cluster.yaml <<END
name: eight
kinds:
  - {name: node, nodes: 2, devices: 4, memory_gib: 8,
     tflops: {f32: 0.1, bf16: 0.2}, memory_gbs: 20, task_us: 4,
     inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}
END
sed 's/memory_gib: 8/memory_gib: 0.015/' cluster.yaml >small.yaml
sed 's/memory_gib: 8/memory_gib: 0.02/' cluster.yaml >tight.yaml
options="--cluster cluster.yaml"

expect 0 "3 iterations on 4 devices" "$ppo" --nodes 1 \
    --from layout=dp2tp2 --svg a.svg --perfetto a.json
for word in actor_generate critic_train "most" busy weights "all at one time"; do
    grep -q "$word" out || fail "no $word in the tables"
done
mv out table
# Calls have all that four devices did; the most over time is the most.
awk '/ s each once/ { s = $6 } $1 == "all" && NF == 4 { sum = $2 + $3 + $4 }
    END { exit !(s > 0 && (sum / 4 / s - 1) ^ 2 < 1e-3) }' table ||
    fail "calls together are not the devices' time"
most=$(awk '/^all at one time/ { print $NF }' table)
grep '"ph":"C"' a.json | sed 's/.*"args":{\(.*\)}}/\1/' |
    awk -F '[:,]' -v most="$most" '
        { sum = 0; for (i = 2; i <= NF; i += 2) sum += $i
          if (sum > top) top = sum }
        END { exit !(NR > 100 && (top / most - 1) ^ 2 < 1e-6) }' ||
    fail "counters of the trace have another peak than $most MiB"
grep -q '<title>optimizer</title>' a.svg || fail "no memory in the picture"
awk '/^generation and inference:/ { n++; ok = $NF > 0 && $NF <= $4 }
    END { exit !(n == 1 && ok) }' table \
    || fail "generation and inference are not beside their bound"
expect 0 '"gen_infer_bound_s": 0.0' "$ppo" --nodes 1 --from layout=dp2tp2 \
    --json
expect 0 "" "$ppo" --nodes 1 --from layout=dp2tp2 --svg b.svg
cmp -s table out || fail "another simulation is not the same"
cmp -s a.svg b.svg || fail "another picture is not the same"
grep -q 'title>actor_train' a.svg || fail "the picture has no call"
grep -q 'on 2 instances, 0 moved' a.svg || fail "no picture of generation"
tail -n 1 a.json | grep -q ']}' || fail "the trace has no end"
grep -q '"cat":"critic_train"' a.json || fail "the trace has no call"

# Models by config.json alone, lengths in the place of data, and the cluster
# named by the configuration: all the same, but for what prompts share.
expect 0 "" "$ppo" --nodes 1 --from layout=dp2tp2 rollout.prefix_sharing=false
mv out table
mkdir shape
cp "${ppo%/*}/model/config.json" shape
sed -e 's|path: prompts.jsonl|prompt_tokens: 12|' -e 's|: model|: shape|' \
    -e '$a cluster: cluster.yaml' "$ppo" >shape.yaml
options=
expect 0 "" shape.yaml --nodes 1 --from layout=dp2tp2 \
    rollout.prefix_sharing=false
cmp -s table out || fail "without a tokenizer another table"
expect 1 "response_tokens' has no meaning where" shape.yaml \
    data.response_tokens=6
# Where most of inference would be the head's rows of prompts, of which there are
# none, the bound is none of more than is done.
mkdir wide
sed -e 's/"vocab_size": [0-9]*/"vocab_size": 32000/' \
    -e 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 256/' \
    shape/config.json >wide/config.json
sed 's|: shape|: wide|' shape.yaml >wide.yaml
expect 0 "" wide.yaml --nodes 1 --from layout=dp4 data.prompt_tokens=200 \
    rollout.max_new_tokens=4
awk '/^generation and inference:/ { ok = $NF > 0 && $NF <= $4 }
    END { exit !ok }' out ||
    fail "generation and inference undercut their bound"
expect 1 "nothing.yaml" shape.yaml --cluster nothing.yaml
expect 1 "3 nodes of 4 devices, of which cluster 'eight' has 2" "$ppo" \
    --cluster cluster.yaml --nodes 3
# Too many tasks are simulated by instruction: 88 million here.
for options in "" --gangs; do
    expect 0 "follow one another, by instruction of tp groups" \
        "${ppo%/*/*}/clusters/real_7b.yaml" --nodes 1 --from real-heuristic
    mv out by"$options"
done
cmp -s by by--gangs || fail "by instruction it is not as with --gangs"
options=
command=train
expect 1 "data.prompt_tokens is for runs that are only planned" shape.yaml
command=simulate
sed -e 's|path: sft.jsonl|prompt_tokens: 12|' "$sft" >rows.yaml
expect 1 "'data.response_tokens' is missing" rows.yaml \
    "model.actor=$PWD/shape" --cluster cluster.yaml
expect 0 "" rows.yaml "model.actor=$PWD/shape" --nodes 1 --devices 2 \
    data.response_tokens=6 cluster=cluster.yaml
mv out table
options="--cluster cluster.yaml"
expect 0 "" "$sft" "model.actor=${ppo%/*}/model" --nodes 1 --devices 2
cmp -s table out || fail "rows of given lengths are another run"

# Prompts that may be replaced: one round, which all that is put out says.
dapo=${ppo%/*}/dapo.yaml
one="one round of generation"
expect 0 "$one is simulated" "$dapo" --nodes 1 --devices 2 --svg d.svg
grep -q "$one<" d.svg || fail "the picture does not say of $one"
expect 0 '"one_round": true' "$dapo" --nodes 1 --devices 2 --json
expect 0 "" "$dapo" --nodes 1 --devices 2 rollout.refills=0 --svg e.svg
! grep -q "$one" out e.svg || fail "$one is said of where there are no more"
grep -q "$one" table a.svg && fail "$one is said of PPO"

# An iteration without generation; messages between nodes; JSON.
expect 0 '"steady_s": ' "$sft" "model.actor=${sft%/*}/model" --nodes 2 \
    --devices 2 --from layout=dp2pp2 --iterations 4 --json --perfetto c.json
[ "$(grep -c '"device": .*"busy_s"' out)" = 4 ] || fail "not a line for each device"
# Two devices of a node are one place.
awk -F '[][{},: ]+' '/"busy_s".*"all"/ { peak[$3] = $(NF - 1) + 0 }
    /"device": [0-9]+,$/ { device = $3 }
    /^    "all": / { n++; most = 0
        for (i = 3; i <= NF; i++) most = $i > most ? $i + 0 : most
        ok += most == peak[device] && most > 0 }
    END { exit !(n == 2 && ok == 2) }' out ||
    fail "the most over time is not the most of each place"
[ "$(grep -c '"call": "actor_train"' out)" = 4 ] || fail "not 4 iterations"
grep -q '"cat":"message"' c.json || fail "the trace has no messages"
# Instructions of tp groups take about as long as their tasks.
expect 0 "on 8 devices" "$ppo" --from layout=tp4pp2 \
    --gangs

# CPU devices beside GPUs are not the cluster's.
expect 0 "on 5 devices" "$ppo" runtime.devices=gpu runtime.cpu_devices=1 \
    --nodes 1
"$weft" plan "$ppo" runtime.devices=gpu runtime.cpu_devices=1 --gpus 4 \
    --cluster cluster.yaml --nodes 1 -o gpus.json >out 2>&1 ||
    fail "weft plan fails with GPUs"
expect 0 "on 5 devices" "$ppo" runtime.devices=gpu --plan gpus.json

expect 0 "" "$ppo" --nodes 1 --devices 2 --json
mv out table
"$weft" plan "$ppo" --devices 2 -o plan.json >out 2>&1 ||
    fail "weft plan fails"
expect 0 "" "$ppo" --plan plan.json --json
cmp -s table out || fail "the plan's file makes a difference"

# A run beside what was predicted of it.
"$weft" train "$ppo" -q run_dir=run iterations=4 runtime.devices=2 \
    rollout.prompts=16 >out 2>&1 || fail "weft train fails"
expect 0 "on 2 devices" --run run
grep -q '^timing_s/update_critic  *[0-9.]*  *[0-9.]*  *[-0-9.]* %' out ||
    fail "no predicted time beside a measured one"
grep -q '^from end to end ' out || fail "no time of an iteration"
grep -q '^lengths of 8 of 32 samples are known, and the others taken' out ||
    fail "nothing says which lengths are known"
expect 0 "on 8 devices" --run run --nodes 2 --from layout=dp4
expect 1 "nothing.json" --run run --costs nothing.json
"$weft" profile "$ppo" --devices 1 --limit 1 -o costs.json >out 2>&1 ||
    fail "weft profile fails"
expect 0 "on 2 devices" --run run --costs costs.json
# Costs that the configuration names are its own cluster's.
for option in "" "--compare --no-search"; do
    command=${option:+plan} options=$option
    command=${command:-simulate}
    expect 0 "" "$ppo" cluster=cluster.yaml costs=costs.json --nodes 1
    mv out keys
    expect 0 "" "$ppo" cluster=cluster.yaml --nodes 1
    cmp -s keys out && fail "$command: the key costs makes no difference"
    options="$option --cluster cluster.yaml"
    expect 0 "" "$ppo" costs=costs.json --nodes 1
    cmp -s keys out && fail "$command: costs of another cluster count"
done
command=simulate
options="--cluster cluster.yaml"
expect 0 "" "$ppo" --costs costs.json --nodes 1
mv out table
options=
expect 0 "" "$ppo" cluster=cluster.yaml costs=costs.json --nodes 1
cmp -s table out || fail "the key costs is not --costs"
options="--cluster cluster.yaml"
sed 's/"weft": "/&0/' costs.json >stale.json
expect 1 "'stale.json' was measured with version '0" --run run \
    --costs stale.json
expect 1 "run: the run has finished 4 iterations; 5 are simulated" \
    --run run --iterations 5
rm run/samples/000003.jsonl
expect 1 "000003.jsonl" --run run
expect 1 "nowhere" --run nowhere
expect 2 "leave out --json" --run run --json

# All placements in one table, each as it is by itself.
command=plan
expect 0 "placement" "$ppo" --nodes 1 --compare --no-search --svg all.svg
mv out longest
expect 0 "placement" "$ppo" --nodes 1 --compare --no-search --lengths max
cmp -s longest out || fail "the longest responses are another length"
expect 0 "placement" "$ppo" --nodes 1 --compare --no-search --lengths fixed:4
cmp -s longest out && fail "short responses take no less"
mv longest table
grep -q '^verl  *[0-9.]* ' table || fail "a placement is missing"
[ "$(awk '$3 == "1.00"' table | wc -l)" -ge 1 ] || fail "none is the best"
grep -q "real-heuristic</text>" all.svg || fail "it is not drawn"
command=simulate
expect 0 "" "$ppo" --nodes 1 --from openrlhf
one=$(sed -n 's/.*: \([0-9.]*\) s each.*/\1/p' out)
[ "$(awk '$1 == "openrlhf" { print $2 }' table)" = "$one" ] ||
    fail "openrlhf takes $one s by itself"
# The call that limits it takes most of all calls' time; here most of that is
# waited for.
said=$(sed -n 's/^openrlhf .*  \([a-z_]*, [0-9]* %: waiting\)$/\1/p' table)
awk -v said="$said" '/^call / { on = 1; next }
    on { n = NF - 2; sum = $n + $(n + 1) + $(n + 2); waits = $NF }
    on && $1 == "all" { on = 0; all = sum }
    on && sum > most { most = sum; name = $1; waiting = waits }
    END { is = sprintf("%s, %.0f %%: waiting", name, 100 * most / all)
          exit !(waiting > most / 2 && said == is) }' out ||
    fail "openrlhf is not limited by $said"
asked=$(sed -n 's/^rlinf is --from //p' table)
expect 0 "" "$ppo" --nodes 1 --from "$asked"
one=$(sed -n 's/.*: \([0-9.]*\) s each.*/\1/p' out)
[ "$(awk '$1 == "rlinf" && $2 != "is" { print $2 }' table)" = "$one" ] ||
    fail "$asked takes $one s by itself"
command=plan
expect 1 "'rlinf' needs the seconds that generation" "$ppo" --nodes 1 \
    --from rlinf
# What trains more replicas than there are gradient groups has as many groups.
expect 0 "gradient_groups=8, one for each replica that trains: deepspeed-chat," \
    "$ppo" --compare --no-search
mv out table
command=simulate
expect 0 "" "$ppo" --from deepspeed-chat numerics.gradient_groups=8
one=$(sed -n 's/.*: \([0-9.]*\) s each.*/\1/p' out)
[ "$(awk '$1 == "deepspeed-chat" { print $2 }' table)" = "$one" ] ||
    fail "deepspeed-chat with 8 groups takes $one s by itself"
command=plan
expect 0 "\"gradient_groups\": 8, " "$ppo" --compare --no-search --json
# The class that takes most is that of the plan by itself, of which a device has a
# fourth.
expect 0 "does not fit the memory: activations" "$ppo" --nodes 1 --compare \
    --no-search --cluster small.yaml
said=$(sed -n 's/^verl .* does not fit the memory: //p' out)
command=simulate
expect 0 "" "$ppo" --nodes 1 --from verl --cluster small.yaml
awk -v said="$said" '/^MiB/ { on = 1; next } /^all/ { on = 0 }
    on && $2 > most { most = $2; name = $1 }
    END { split(said, w); exit !(w[1] == name &&
          (w[2] * 4096 / most - 1) ^ 2 < 1e-5) }' out || fail "most is not $said"
command=plan
expect 0 '"memory": "activations", "bytes": ' "$ppo" --nodes 1 --compare \
    --no-search --cluster small.yaml --json
# On many devices what is far beyond their memory by prices is not simulated, and
# is beyond it where it is; what fits is.
sed 's/nodes: 2/nodes: 17/; s/memory_gib: 8/memory_gib: 0.012/' cluster.yaml \
    >many.yaml
options="--cluster many.yaml"
expect 0 '"by_prices": true, ' "$ppo" --compare --no-search --json
expect 0 "does not fit the memory, by prices of calls" "$ppo" --compare --no-search
grep '^[a-z0-9-]*  *[0-9]' out >table
for row in trlx-standalone/64 nemo-aligner/16; do
    name=${row%/*}
    said=$(awk -v name="$name" '$1 == name { print /by prices/, $2 }' table)
    command=simulate
    expect 0 "on 68 devices" "$ppo" --from "$name" \
        numerics.gradient_groups="${row#*/}"
    command=plan
    awk -v said="$said" '/ s each once/ { s = $6 } /^all at one time/ { mib = $NF }
        END { split(said, w)
              ok = w[1] ? mib / 4 > 0.012 * 1024 : w[2] == s
              exit !(ok && w[1] == (mib / 4 > 1.25 * 0.012 * 1024)) }' out ||
        fail "$name by itself is not its row: $said"
done
options="--cluster cluster.yaml"
# The largest batch of a plan is that of its row.
expect 0 "the largest batch is rollout.prompts=" "$ppo" --nodes 1 \
    --from openrlhf --cluster small.yaml --batch max
one=$(sed -n 's/.*: \([0-9]*\) samples an .*/\1/p' out)
expect 0 "  batch  actor_generate" "$ppo" --nodes 1 --compare --no-search --batch max \
    --cluster small.yaml
[ "$(awk '$1 == "openrlhf" { print $5 }' out)" = "$one" ] ||
    fail "openrlhf has another batch by itself: $one"
options=
expect 1 "needs to know what memory a device has" "$ppo" --devices 2 \
    --batch max
expect 2 "batch takes 'max'" "$ppo" --batch 12
options="--cluster cluster.yaml"
# Placements by name know what memory the cluster's devices have: half of 0.015
# GiB is too little for these weights on one.
"$weft" init --hidden 256 --layers 4 --heads 4 --intermediate 512 \
    --max-positions 64 --tokenizer "${ppo%/*}/model" -o big >out 2>&1 ||
    fail "weft init fails"
degrees() # CLUSTER: dp and tp of generation
{
    "$weft" plan "$ppo" --nodes 1 --from verl --cluster "$1" model.actor=big \
        model.critic=big model.reference=big 2>err |
        awk '$1 == "actor_generate" && $4 > 0 { print $4, $5; exit }'
}
[ "$(degrees cluster.yaml)" = "4 1" ] || fail "verl with much memory"
[ "$(degrees small.yaml)" = "2 2" ] || fail "verl with little memory"
# The plan that is found is no slower than any that has a name.
expect 0 "s, proven" "$ppo" --search -o found.json
grep -q "intra-stage fusion is not taken: [0-9.]* s an iteration simulated with" out ||
    fail "the search does not say what fusion gains"
mv out first
expect 0 "s, proven" "$ppo" --search
cmp -s first out || fail "another search finds another plan"
# Simulated alone, it takes what the search says.
expect 0 "s, proven" "$ppo" --search \
    runtime.place=device -o own.json
searched=$(awk '/within the model/ { print $8 }' out)
"$weft" simulate "$ppo" runtime.place=device --gangs --plan own.json \
    --cluster cluster.yaml >out 2>&1 || fail "the plan that is found"
awk -v s="$searched" '/once they follow/ { d = $6 / s - 1; exit d * d > 1e-6 }' \
    out || fail "the search says $searched s, and $(grep 'once they' out)"
# Beside all others it is the last row, simulated like them; ratios are to it.
expect 0 "searched plan is the fastest that fits" "$ppo" --compare --search \
    --svg found.svg
own=$("$weft" simulate "$ppo" --cluster cluster.yaml --plan found.json |
    sed -n 's/.*: \([0-9.]*\) s each.*/\1/p')
awk -v own="$own" 'BEGIN { n = 0 }
    /^searched plan  / { found = $3; ok = $3 == own && $4 == "1.00" }
    { sub(/^(searched|this) plan/, "plan") }
    $2 + 0 > 0 && $2 < 100 { s[n] = $2; ratio[n++] = $3 }
    END { for (i = 0; i < n; i++)
              ok = ok && (ratio[i] / (s[i] / found) - 1) ^ 2 < 1e-4
          exit !(ok && n > 6 && s[n - 1] == found) }' out ||
    fail "the searched plan is not the last row, or ratios are not to it"
tail -n 4 found.svg | grep -q '>searched plan</text>' ||
    fail "the searched plan is not drawn last"
# It is also without --search, by what time is left; how much that is the test
# does not know.
expect 0 "searched plan  " "$ppo" --compare --nodes 1 --devices 1
expect 2 "--no-search is for --compare" "$ppo" --compare --search --no-search
expect 2 "--no-search is for --compare" "$ppo" --no-search
# What limits it is whatever the cluster has little of.
slow() # NODES KEY AS WHAT: real-heuristic, in table, JSON and picture
{
    sed "s/$2/$3/" cluster.yaml >slow.yaml
    options="--cluster slow.yaml --nodes $1 --compare --no-search"
    expect 0 "  limited by" "$ppo" --svg slow.svg
    grep -q "^real-heuristic .*  [a-z_]*, [0-9]* %: $4\$" out ||
        fail "$4 does not limit it"
    grep -q ": $4</text>" slow.svg || fail "$4 is not drawn"
    expect 0 "\"by\": \"$4\"" "$ppo" --json
}
slow 1 "f32: 0.1" "f32: 0.001" compute
slow 1 "memory_gbs: 20" "memory_gbs: 0.02" "memory bandwidth"
slow 1 "task_us: 4" "task_us: 40000" "task starts"
slow 2 "us: 20}" "us: 100000}" messages
options="--cluster cluster.yaml"
expect 0 "placement" "$ppo" --compare --no-search
grep -q "searched plan" out && fail "nobody asked for a search"
named=$(awk '$2 + 0 > 0 && (!least || $2 < least) { least = $2 }
    END { print least }' out)
# One call on one device takes what the run takes.
expect 0 "gap 0 %" "$sft" "model.actor=${sft%/*}/model" --search --nodes 1 \
    --devices 1
awk '/within the model/ { exit $1 != $8 }' out || fail "a call's price is wrong"
expect 1 "no plan fits: the least that was tried can take" "$ppo" --search \
    --cluster small.yaml --nodes 1 --devices 1 -o none.json
# Some choices fit in the order that is simulated alone: not they are taken.
expect 0 "s, proven" "$ppo" --search --cluster tight.yaml
awk '/^device/ && $NF + 0 > 81.92 { exit 1 }' out || fail "what is found may not fit"
# Where each may take more in another order, there is none.
sed 's/memory_gib: 8/memory_gib: 0.036/' cluster.yaml >short.yaml
expect 1 "GiB of device 0, which has 0.036; most of it, " "$ppo" --search \
    --cluster short.yaml --nodes 1 --devices 1 -o none.json
[ ! -e none.json ] || fail "a plan that does not fit is written"
# Counted by instruction, which can be too much, the fastest is given, and what is
# said of it is what its table has without records of tasks.
sed 's/memory_gib: 8/memory_gib: 0.021/' cluster.yaml >short.yaml
expect 0 "it may not fit: a run can take" "$ppo" --search --gangs \
    --evaluations 20 --cluster short.yaml --nodes 1 --devices 2 \
    runtime.place=device
awk '/may not fit/ { said = $9 * 1024 }
    /^MiB/ { for (i = 1; i <= NF; i++) at[$i] = i - 1 }
    /^device/ { m = $at["all"] - $at["tasks"]; most = m > most ? m : most }
    END { exit !(said > 21.6 && said / most < 1.005 && most / said < 1.005) }' \
    out || fail "what it may take is not in the table"
expect 2 "--search makes the plan" "$ppo" --search --from verl
# Threads change nothing; methods search, and prove, as they say.
options="--search --cluster cluster.yaml --nodes 1 --devices 2"
for n in 1 3; do
    expect 0 "s, proven" "$ppo" --threads $n
    mv out threads$n
done
cmp -s threads1 threads3 || fail "three threads find something else"
best=$(sed -n 's/.*best takes \([^ ]*\) s.*/\1/p' threads1)
for method in all branches exhaustive; do
    expect 0 "best takes $best s, proven (gap 0 %" "$ppo" --method $method
done
expect 0 "best takes $best s, not proven" "$ppo" --method anneal
expect 0 "not proven" "$ppo" --method greedy
expect 2 "'--method' must be all, greedy, anneal, " "$ppo" --method fast
options=
expect 2 "--method, --threads, --seed, " "$ppo" --threads 2
expect 2 "--method, --threads, --seed, " "$ppo" --method all
# layout says what may not change, whether the run searches or the command does.
options="--cluster cluster.yaml --evaluations 20 --nodes 1 --devices 2"
expect 0 "within the model" "$ppo" --search layout=tp2
awk '/^call / { on = 1; next } on && !NF { exit !n } on { n++; if ($5 != 2) exit 1 }' \
    out || fail "a call has another tp"
mv out first
expect 0 "" "$ppo" --search layout=tp2 plan=auto
cmp -s first out || fail "plan=auto makes another search"
expect 1 "'verl' is a whole plan" "$ppo" --search layout=verl
# Of plans that take nearly as long, with measured costs, here of no operation, the
# one with fewest members and stages is taken; else the fastest, with tp 2.
sed -e 's/"task_s": [^,]*,/"task_s": 1e-6,/' -e 's/"operations": \[/&]}/' \
    -e 's/"\(task_tile\|insert\|insert_tile\)_s": [^,]*,/"\1_s": 0,/g' \
    -e '/"operations"/q' costs.json >none.json
sed -e 's/nodes: 2, devices: 4/nodes: 1, devices: 2/' -e 's/task_us: 4/task_us: 1/' \
    cluster.yaml >two.yaml
options=
for costs in "" costs=none.json; do
    # shellcheck disable=SC2086
    expect 0 "within the model" "$ppo" --search --evaluations 20 \
        cluster=two.yaml rollout.prompts=256 ppo.epochs=4 $costs
    : "${fastest:=$(awk '/within the model/ { print $8 }' out)}"
    awk -v n="${costs:+1}" -v s="$fastest" '/^(ref|critic)_infer/ && $2 == 0 { all++
            ok += n ? $5 == 1 && $6 == 1 : $5 == 2 }
        /within the model/ { ok += $8 <= 1.021 * s }
        END { exit !(all == 2 && ok == 3) }' out || fail "$costs: other parts"
done
options="--cluster cluster.yaml"
expect 0 "searched plan         refused: no plan fits: " "$ppo" --search --compare \
    --cluster small.yaml --nodes 1 --devices 1
expect 0 "searched plan\", \"refused\": \"no plan fits: " "$ppo" --search --compare \
    --cluster small.yaml --nodes 1 --devices 1 --json
expect 2 "--recording are for --search" "$ppo" --seed 2
# Layouts of which a recording is too large are left out, and counted.
expect 0 "of calls were left out, as pricing them takes too much" "$ppo" \
    --search --recording 1 --nodes 1 --devices 2 rollout.prompts=768
expect 1 "to price a layout of actor_generate takes too much memory" "$ppo" \
    --search --recording 1 --nodes 1 --devices 2 rollout.prompts=2048
options=
expect 0 "" "$ppo" --check found.json
command=simulate options="--cluster cluster.yaml"
expect 0 "on 8 devices" "$ppo" --plan found.json
found=$(sed -n 's/.*: \([0-9.]*\) s each.*/\1/p' out)
awk -v found="$found" -v named="$named" 'BEGIN { exit !(found < named) }' ||
    fail "found is a plan of $found s, one with a name takes $named s"
command=plan
# On four devices and eight: the row of each is the best of its comparison.
expect 0 "A device does most where there are" "$ppo" --scale 4..8
sed 's/this plan/this-plan/' out >scaled
for n in 1 2; do
    expect 0 "placement" "$ppo" --nodes $n --compare --no-search
    best=$(awk '$3 == "1.00" { print $2; exit }' out)
    awk -v n=$((4 * n)) -v s="$best" '$1 == n { found = $3 == s }
        END { exit !found }' scaled || fail "not $best s on $n nodes"
done
awk '$4 * 1 > 0 && ($4 / (256 / $3) - 1) ^ 2 > 1e-5 { exit 1 }' scaled ||
    fail "throughput is not samples by seconds"
expect 2 "like 8..64" "$ppo" --scale 8
# On more than 64 devices by prices of calls: the fastest of all with a name.
groups=numerics.gradient_groups=128
expect 0 "from 128 devices on by prices of calls" "$ppo" --scale 128..256 \
    --svg scale.svg $groups
sed 's/this plan/this-plan/' out >scaled
grep -q "<circle.*$(awk '$1 == 128 { print $2 }' scaled): " scale.svg ||
    fail "the picture has not what the table has"
sed 's/nodes: 2/nodes: 32/' cluster.yaml >many.yaml
"$weft" plan --from list | awk '$1 !~ /^(ratio|rlinf)/ { print $1 }' >names
while read -r name; do
    "$weft" plan "$ppo" --cluster many.yaml --from "$name" $groups >out 2>err &&
        sed -n "s/^it .*fit: by .* takes \([^ ]*\) s, .*/$name \1/p; \
            s/^it fits: by .* takes \([^ ]*\) s, .*/$name \1/p" out
done <names >weighed
awk 'NR == FNR { if ($1 == 128) { name = $2; s = $3 }; next }
    { all++; if ($2 < 0.995 * s) bad = 1; if ($1 == name && $2 > 1.005 * s) bad = 1 }
    END { exit bad || all < 8 }' scaled weighed ||
    fail "another is faster on 128 devices: $(cat weighed)"
# Where nothing fits: what is trained has 952,832 parameters of 16 bytes, by hand; and
# with how many devices a placement fits.
for of in 0.01419:2 0.01421:1; do
    sed "s/memory_gib: 8/memory_gib: ${of%:*}/" cluster.yaml >least.yaml
    expect 0 "fill ${of#*:} such devices; by prices of calls it needs at least 3 nodes of" \
        "$ppo" --compare --no-search --cluster least.yaml --nodes 1 --devices 1
done
sed "s/memory_gib: 8/memory_gib: 0.03/" cluster.yaml >least.yaml
expect 0 "2 devices are the fewest of these on which a placement fits: " "$ppo" \
    --scale 1..2 --cluster least.yaml
# A plan for another cluster.
expect 0 "" "$ppo" --nodes 2 --devices 8 -o large.json
expect 1 "large.json: the plan is for 2 nodes of 8 devices, of which cluster 'eight' has 0" \
    "$ppo" --check large.json
expect 1 "not whole nodes" "$ppo" --scale 6..6
expect 2 "--lengths is for --compare" "$ppo" --lengths fixed:4
expect 2 "--compare writes no plan" "$ppo" --compare -o plan.json
options=
expect 1 "--scale and --search need a cluster" "$ppo" --search
command=simulate options="--cluster cluster.yaml"
# Shorter responses take less time.
seconds()
{
    sed -n 's/.*devices: \([0-9.]*\) s each.*/\1/p' out
}
expect 0 "" "$ppo" --nodes 1 --lengths max
longest=$(seconds)
expect 0 "" "$ppo" --nodes 1 --lengths uniform:1:4
echo "$(seconds) $longest" | awk '{ exit !($1 < 0.9 * $2) }' ||
    fail "shorter responses take as long as $longest s"
printf '4\n5000\n6000\n' >lengths
"$weft" simulate --cluster cluster.yaml "$ppo" --nodes 1 --lengths lengths \
    >out 2>err || fail "longer responses than allowed are refused"
grep -q "lengths: 2 of 3 lengths exceed rollout.max_new_tokens, [0-9]*, and" err ||
    fail "it is not said that longer responses are cut: $(cat err)"
expect 1 "nothing:4" "$ppo" --lengths nothing:4
expect 1 "uniform:9" "$ppo" --lengths uniform:9

expect 2 "give a configuration file"
expect 2 "'word' is no key=value word" "$ppo" word
expect 2 "'--from' must be layout=TEXT" "$ppo" --from dp2
expect 2 "--plan and --from exclude each other" "$ppo" --from layout=dp2 \
    --plan plan.json
expect 2 "--iterations" "$ppo" --iterations 2
expect 1 "nothing.yaml" nothing.yaml
expect 1 "nothing.json" "$ppo" --plan nothing.json
expect 1 "nowhere" "$ppo" model.critic=nowhere
expect 1 "layout 'dp3' takes 3 devices" "$ppo" --nodes 1 \
    --from layout=dp3
expect 1 "cannot" "$ppo" --devices 2 --svg nowhere/a.svg
expect 1 "cannot" "$ppo" --devices 2 --perfetto nowhere/a.json
expect 1 "the plan is for 1 node" "$ppo" --plan plan.json --nodes 2
expect 1 "cluster 'eight' has" "$ppo" --devices 5
options=
expect 1 "give a cluster: --cluster FILE" "$ppo"
# Costs that have all do without: the machine that was profiled is the cluster.
expect 0 "on 1 devices" "$ppo" --costs costs.json --devices 1
mv out table
expect 0 "" "$ppo" costs=costs.json --devices 1
cmp -s table out || fail "the key costs is not --costs"
expect 1 "do not say what messages between ranks take" "$ppo" \
    --costs costs.json --devices 1 --nodes 2
expect 1 "do not say what '" "$ppo" --costs costs.json --devices 2 --gangs \
    --from layout=tp2
grep -v '"layer_forward"' costs.json >lacking.json
expect 1 "do not say what 'layer_forward' takes" "$ppo" --costs lacking.json \
    --devices 1
expect 0 "on 1 devices" "$ppo" --costs lacking.json --devices 1 --nodes 1 \
    --cluster cluster.yaml
expect 1 "nothing.yaml" --cluster nothing.yaml "$ppo"
exit "$failed"
