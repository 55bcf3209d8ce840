#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# When the last samples move is chosen by costs and by the lengths seen: noted,
# the same after an interruption, the same when replayed, never what changes a
# number. What is wrong is one sentence.
set -u
command=train
options=-q
. "$WEFT_SRCDIR/tests/cli/expect.sh"
. "$WEFT_SRCDIR/tests/layers_cluster.sh"
size="--hidden 32 --layers 2 --heads 2 --intermediate 64 --vocab 300 --tied
      --max-positions 256"
# shellcheck disable=SC2086
"$weft" init $size --seed 1 -o actor >out 2>err || fail "init"
# shellcheck disable=SC2086
"$weft" init $size --seed 2 --scalar -o critic >out 2>err || fail "init"
awk 'BEGIN { for (i = 0; i < 40; i++)
    printf "{\"prompt\": \"%0*d\"}\n", 6, i * 79 }' >prompts.jsonl
cat >ppo.yaml <<END
algorithm: ppo
seed: 3
iterations: 6
data: {path: prompts.jsonl, template: none}
model: {actor: actor, critic: critic, reference: actor}
reward: [{type: model, model: critic}]
rollout:
  prompts: 40
  max_new_tokens: 100
  slots: 20
  chunk_tokens: 4
  lengths: lognormal:12:1.1
  inter_stage_fusion: true
ppo: {epochs: 1, mini_batches: 1}
checkpoint: {every: 3, dtype: f32}
runtime: {devices: 2}
train: {micro_batch_tokens: 60}
layout: dp2
END
# A pass takes 2 layers of 10 ms each.
layers_cluster 1 2

# Runs that go on say so.
train() # what a run must say on stderr, options...
{
    part=$1
    shift
    "$weft" train -q ppo.yaml "$@" >out 2>err || fail "weft train $*"
    grep -qF -- "$part" err || fail "weft train $*: $part"
}

weights() # run: checksum of the last checkpoint's tensors
{
    (cd "$1/checkpoints/iteration-000006" &&
        find . -name '*.safetensors' | LC_ALL=C sort | xargs cat | cksum)
}

chosen() # run: without what depends on whose status came first
{
    sed 's/"order".*, "prompts"/"prompts"/' "$1/decisions.jsonl"
}

decided() # run: what was decided and what moved, without why
{
    sed 's/"why": "[a-z]*", //; s/"predicted_s".*, "order"/"order"/' \
        "$1/decisions.jsonl"
}

expect 0 "" ppo.yaml run_dir=off rollout.inter_stage_fusion=false
expect 0 "" ppo.yaml run_dir=whole cluster=cluster.yaml
[ "$(weights off)" = "$(weights whole)" ] || fail "fusion changed weights"
cmp -s off/samples/000006.jsonl whole/samples/000006.jsonl ||
    fail "fusion changed samples"

# Nothing is known at first; then it pays, and samples move.
[ "$(grep -c '"why": "first", "remaining": 0,' whole/decisions.jsonl)" = 1 ] ||
    fail "the first iteration"
[ "$(grep -c '"why": "chosen", "remaining": 0\.' whole/decisions.jsonl)" = 5 ] ||
    fail "the others"
grep -q '"stay": \[[01]\], "moved": \[' whole/decisions.jsonl ||
    fail "no replica was freed"
# Without migration the longest response takes its steps and a prefill, 20 ms
# each, and then an inference. Its three calls have 40 micro-batches at most.
awk -F'"responses": \\[' '{
        n = split($2, x, /[],]/); most[NR] = 0
        for (i = 1; i < n; i++) if (x[i] + 0 > most[NR]) most[NR] = x[i] + 0
        if (NR == 1) next
        match($0, /"predicted_s": [0-9.e-]*/)
        seconds = substr($0, RSTART + 15, RLENGTH - 15) + 0
        match($0, /"unmoved_s": [0-9.e-]*/)
        unmoved = substr($0, RSTART + 13, RLENGTH - 13) + 0
        n = NR - 1 < 3 ? NR - 1 : 3; least = 0
        for (i = NR - n; i < NR; i++) least += 0.02 * (most[i] + 1) / n
        print "iteration " NR ": " seconds ", " unmoved ", at least " least
        if (unmoved < least || unmoved > least + 2.4 || seconds >= unmoved)
            exit 1 }' whole/decisions.jsonl >out || fail "seconds"

# An interruption changes no decision; without the record all begins anew.
expect 0 "" ppo.yaml run_dir=parts cluster=cluster.yaml iterations=3
cp -r parts lost
train resuming run_dir=parts cluster=cluster.yaml
chosen whole >a
chosen parts >b
cmp -s a b ||
    fail "a run that went on decided otherwise"
rm lost/decisions.jsonl
train resuming run_dir=lost cluster=cluster.yaml
[ "$(weights off)" = "$(weights lost)" ] || fail "a lost record"
[ "$(grep -c '"why": "first"' lost/decisions.jsonl)" = 1 ] ||
    fail "a lost record's first"

# Replayed, without costs.
expect 0 "" ppo.yaml run_dir=again rollout.decisions=whole/decisions.jsonl
[ "$(grep -c '"why": "replayed"' again/decisions.jsonl)" = 6 ] ||
    fail "not replayed"
decided whole >a
decided again >b
cmp -s a b || fail "a replay decided otherwise"
[ "$(grep -c '"pace": {"step": \[0\.[0-9]*, ' a)" = 6 ] || fail "no pace"
[ "$(weights off)" = "$(weights again)" ] || fail "a replay changed weights"

# Simulated, beside what was measured: the same moves, of the fifth of six
# iterations, which is the one that is shown.
command=simulate
options="--cluster cluster.yaml"
expect 0 "timing_s/gen_infer" --run whole --svg simulated.svg
line=$(sed -n 5p whole/decisions.jsonl)
case $line in *'"left"'*) ;; *) fail "nothing was decided in the fifth" ;; esac
left=$(echo "$line" | sed 's/.*"left": \([0-9]*\).*/\1/')
moved=$(sed -n 's/.*"gen\/migrated": \([0-9]*\).*/\1/p' whole/metrics.jsonl |
    sed -n 5p)
grep -q "Iteration 5, .* $moved moved" simulated.svg || fail "$moved moved"
grep -q "R_t: $left left" simulated.svg || fail "$left left"
# A call's colour is the same in both halves: that of the square before its name.
tr '<' '\n' <simulated.svg | sed -n 's/^rect .*fill="\(#[^"]*\)".*/\1/p
    s/^text [^>]*>\([a-z_]*_infer\)$/\1/p' |
    awk '/^#/ { colour = $0; next } { print $0, colour }' | sort | uniq -c >out
[ "$(wc -l <out)" = 3 ] && [ "$(awk '$1 == 2' out | wc -l)" = 3 ] ||
    fail "colours of calls"
expect 0 "" ppo.yaml --lengths fixed:30 rollout.decisions=whole/decisions.jsonl
sed 's/"order": \[[01]/"order": [7/' whole/decisions.jsonl >wrong
expect 1 "'order' has instance 7, and this run has 2" ppo.yaml \
    rollout.decisions=wrong
expect 1 "again.jsonl" ppo.yaml rollout.decisions=again.jsonl
expect 0 "" --run whole --devices 1 --from layout=dp1
command=train
options=-q
expect 1 "'order' has instance 7, and this run has 2" ppo.yaml run_dir=bad3 \
    rollout.decisions=wrong
[ ! -e bad3 ] || fail "a refused run left a folder"

# Without costs nothing moves; then as the configuration says.
train "no samples move without costs (keys 'costs'" run_dir=none iterations=2
[ "$(grep -c '"why": "no_costs", "remaining": 0, "instances": 0' \
    none/decisions.jsonl)" = 2 ] || fail "moved without costs"
grep -q '"left"' none/decisions.jsonl && fail "moved unasked"
expect 0 "" ppo.yaml run_dir=share iterations=1 rollout.remaining=0.4
grep -q '"why": "configuration", "remaining": 0.4, "instances": 1' \
    share/decisions.jsonl || fail "half of the replicas"
expect 0 "" ppo.yaml run_dir=replica iterations=1 rollout.instances=1
grep -q '"why": "configuration", "remaining": 0.2, "instances": 1' \
    replica/decisions.jsonl || fail "a fifth of the samples"
expect 0 "" ppo.yaml run_dir=said iterations=1 rollout.instances=1 \
    rollout.remaining=0.4 cluster=cluster.yaml
grep -q '"why": "configuration", "remaining": 0.4, "instances": 1' \
    said/decisions.jsonl || fail "not as said"
# Costs say the rest: caches move, and, of lengths that are known, by BS_max, of
# which a step takes at most 1.2 times that of one sample. It is the 10 slots where
# a step takes the same for all; about 4 where a layer takes 500 us, and each sample
# 30 more; not 1, with which nothing would move, where a layer takes 10.
grep -q '"most_batch": 0, "cached": \[\[1, [0-9]*\]\], "pace"' \
    said/decisions.jsonl || fail "what costs say of a migration"
grep -q cached share/decisions.jsonl && fail "caches moved without costs"
layers_cluster 1 4
mv cluster.yaml layers.yaml
while read -r layer tflops most; do
    sed "s/layer_us: 10000/layer_us: $layer/; s/f32: 100000/f32: $tflops/" \
        layers.yaml >slow.yaml
    expect 0 "" ppo.yaml run_dir="said$layer" iterations=2 cluster=slow.yaml \
        rollout.instances=1 rollout.remaining=0.2 runtime.devices=4 layout=dp4
    sed 1d "said$layer/decisions.jsonl" |
        grep -q "\"most_batch\": $most, \"cached\": \[\[1, [0-9]*\]\], \"pace\"" ||
        fail "BS_max where a layer takes $layer us"
done <<END
10000 100000 10
500 0.001 [2-5]
10 0.001 0
END
# A token's cache is 512 bytes, and takes 512 us to another place; ten tokens are
# read in a step of two layers of 1,969 us. That takes less than the caches of more
# than 7.69 tokens, two steps of more than 15.38, three of more than 23.07, ...
layers_cluster 1 2
sed 's/layer_us: 10000/layer_us: 1969/; s/inside: {gbs: 1000/inside: {gbs: 0.001/' \
    cluster.yaml >slow.yaml
expect 0 "" ppo.yaml run_dir=ranges iterations=1 cluster=slow.yaml \
    rollout.instances=1 rollout.prefill_tokens=10 runtime.place=device
grep -qF '"cached": [[1, 7], [11, 15], [21, 23]], "pace"' \
    ranges/decisions.jsonl || fail "which caches move by a slow link"

# Nothing is expected of the first iteration's samples but that they may have 6
# and 100 tokens: a replica with 960 in its cache goes on with no more than 9.
# Lengths of the first tell that the second's will be shorter.
for i in 1 2; do
    echo "{\"iteration\": $i, \"call\": \"actor_generate\", \"remaining\": 0.4," \
        '"instances": 1, "most_batch": 0, "order": [0]}'
done >turn.jsonl
expect 0 "" ppo.yaml run_dir=expects iterations=2 rollout.kv_blocks=15 \
    rollout.lengths=lognormal:12:0.7 rollout.decisions=turn.jsonl
left=$(sed 's/.*"left": \([0-9]*\).*/\1/' expects/decisions.jsonl)
# shellcheck disable=SC2086
set -- $left
[ $# = 2 ] && [ "$1" -le 9 ] && [ "$2" -gt 9 ] ||
    fail "how long samples are expected to become: $(cat expects/decisions.jsonl)"
layers_cluster 1 2

# What was seen of an iteration is what was decided: the same lengths, the same
# samples moved between the same instances; every sample ended once. Statuses in
# turn, so that both instances have samples when it is decided.
turns=$(awk 'BEGIN { for (i = 0; i < 199; i++) printf "%d, ", i % 2; print 0 }')
sed "s/\"order\": \[[^]]*\]/\"order\": [$turns]/" said/decisions.jsonl >turns
expect 0 "" ppo.yaml run_dir=turns.run iterations=1 rollout.decisions=turns
run=turns.run
seen() # key, fields: rows of numbers, by commas
{
    sed -n "/\"$1\": \[\$/,/\]\][,}]*\$/p" $run/generation.json |
        grep '^  \[' | tr -d ' []}' | sed 's/,$//' | cut -d, -f"$2"
}
noted() # key: numbers of the decision, one a line, of pairs by commas
{
    sed "s/.*\"$1\": \[//; s/\], \".*//
        s/\]}//; s/\], \[/\n/g; s/[][ ]//g" turns.run/decisions.jsonl |
        if [ "$1" = moved ]; then cat; else tr ',' '\n'; fi
}
same() # what: a and b
{
    [ -s a ] && cmp -s a b || fail "generation.json beside decisions: $1"
}
for pair in "prompts 1" "responses 2"; do
    noted "${pair% *}" >a
    seen samples "${pair#* }" >b
    same "$pair"
done
seen chunks 2 | awk 'NR < 9 && $1 == NR % 2 { exit 1 }' || fail "not in turn"
noted moved | sort >a
seen moves 2-4 | sort >b # without those that ended before they could
[ -s b ] && [ -z "$(comm -13 a b)" ] || fail "others moved than was decided"
[ "$(seen chunks 5 | awk '{ n += $1 } END { print n }')" = 40 ] ||
    fail "samples that ended"
seen chunks 1 | sort -gc || fail "times go back"
seen samples 2,3 | awk -F, '($1 == 100) != $2 { exit 1 }' || fail "cut"
grep -q "\"gen/kv_blocks\": $(seen chunks 6 | sort -n | tail -n 1)[,}]" \
    turns.run/metrics.jsonl ||
    fail "gen/kv_blocks"
grep -q "\"gen/migrated\": $(seen moves 2 | wc -l)[,}]" turns.run/metrics.jsonl ||
    fail "gen/migrated"
[ "$(seen inference 2 | sort -u | wc -l)" = 3 ] || fail "inference calls"
# Shares of it, counted again: steps of the instance that had most, and those
# while a fifth of the samples or less was left; inference beside generation.
metric() # TAG
{
    sed "s|.*\"$1\": \([^,}]*\).*|\1|" turns.run/metrics.jsonl
}
near() # TAG NUMBER
{
    echo "$2 $(metric "$1")" >out
    awk '{ exit !(NF == 2 && ($1 - $2) ^ 2 < 1e-10) }' out || fail "$1"
}
tail_share=$(seen chunks 2,5,7 | awk -F, '{ n[$1] += $3; left = left + $2
    if (n[$1] > most) most = n[$1]
    if (40 - left > 8) before = most }
    END { printf "%.9f", (most - before) / most }')
near gen/long_tail_share "$tail_share"
start=$(sed -n 's/.*"start_s": \([^,]*\),.*/\1/p' turns.run/generation.json)
overlap=$(seen inference 3,4 | awk -F, -v start="$start" \
    -v took="$(metric timing_s/gen)" 'NR == 1 || $1 < first { first = $1 }
    $2 > last { last = $2 }
    END { end = start + took < last ? start + took : last
        beside = end - (first > start ? first : start)
        printf "%.9f", (beside > 0 ? beside : 0) / (last - first) }')
near sched/overlap_ratio "$overlap"
# Two calls that generate: what was seen of both.
sed 's/^algorithm:.*/algorithm: remax/; s/, critic: critic//; /^ppo:/s/epochs.*,//' \
    ppo.yaml >remax.yaml
expect 0 "" remax.yaml run_dir=remax iterations=1 rollout.remaining=0.3 \
    rollout.instances=1
awk -F '[][, ]+' '/"samples"/ { on = 1; n = 0; next }
    on { printf "%s%d", n++ ? ", " : "", $3 }
    on && /\]\]/ { print ""; on = 0 }' remax/generation.json >a
sed 's/.*"responses": \[//; s/\].*//' remax/decisions.jsonl >b
[ "$(wc -l <b)" = 2 ] || fail "decisions of two calls"
same "responses of two calls"
# A choice knows of both: of a set that does not move every step of 20 ms waits
# for one of the other set's, and the last sample is inferred in 20 ms.
command=train
options=-q
expect 0 "" remax.yaml run_dir=both iterations=2 cluster=cluster.yaml
grep '"actor_greedy_generate"' both/decisions.jsonl |
    sed 's/.*"unmoved_s": \([^,]*\),.*/\1/; s/.*"responses": \[//; s/\].*//' |
    awk -F ', ' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i > most) most = $i }
        NR == 2 { want = most * 0.04 + 0.02
            exit !($1 > 0.99 * want && $1 < 1.01 * want) }' ||
    fail "what two calls take: $(tail -n 1 both/decisions.jsonl)"
command=report
options=
expect 0 "a.svg" --svg a.svg turns.run
grep -q "40 samples on 2 instances" a.svg || fail "the picture"
expect 0 "report.html" turns.run
grep -q "<h2>Generation" turns.run/report.html || fail "the report's picture"
expect 2 "--svg makes no page" --svg a.svg --json turns.run
mkdir empty
echo "{}" >empty/metrics.jsonl
expect 1 "'empty' has no generation.json" --svg b.svg empty
[ ! -e b.svg ] || fail "a picture of nothing"
command=train
options=-q
# Several migrations, as a file says; said again by the record.
awk 'BEGIN { for (i = 1; i <= 2; i++)
    printf "{\"iteration\": %d, \"call\": \"actor_generate\", %s}\n", i,
        "\"remaining\": 0.6, \"instances\": 3, \"most_batch\": 0, " \
        "\"later\": [[0.4, 2], [0.2, 1]]" }' >several
for run in again1 again2; do
    expect 0 "" ppo.yaml run_dir=$run iterations=2 runtime.devices=4 \
        layout=dp4 rollout.decisions=several rollout.chunk_tokens=1
    mv several several.$run
    cp $run/decisions.jsonl several
done
grep -q '"most_batch": 0, "later": \[\[0.4, 2\], \[0.2, 1\]\], "order"' \
    again1/decisions.jsonl || fail "later migrations are not noted"
grep -q '"again": \[{"left": .*"stay": \[[0-9], [0-9]\], .*}, {"left": ' \
    again1/decisions.jsonl || fail "one migration instead of three"
cmp -s again1/decisions.jsonl again2/decisions.jsonl ||
    fail "a replay of several migrations decided otherwise"

# Samples also move in the rounds that replace prompts (DAPO), which is noted and
# done again; a sample has its number of the first round.
cat >dapo.yaml <<END
algorithm: dapo
seed: 3
iterations: 2
data: {path: prompts.jsonl, template: none}
model: {actor: actor}
reward: [{type: regex, pattern: '^[a-zA-Z]'}]
rollout:
  prompts: 20
  samples_per_prompt: 2
  max_new_tokens: 60
  slots: 20
  chunk_tokens: 2
  lengths: lognormal:12:1.1
  refills: 2
  inter_stage_fusion: true
ppo: {epochs: 1, mini_batches: 1}
checkpoint: {every: 2, dtype: f32}
runtime: {devices: 2}
train: {micro_batch_tokens: 60}
layout: dp2
END
expect 0 "" dapo.yaml run_dir=refills rollout.remaining=0.5 \
    rollout.instances=1
expect 0 "" dapo.yaml run_dir=refilled rollout.decisions=refills/decisions.jsonl
decided refills >a
decided refilled >b
cmp -s a b || fail "a replay of later rounds decided otherwise"
expect 0 "" dapo.yaml run_dir=unmoved rollout.inter_stage_fusion=false
for run in refilled unmoved; do
    cmp -s refills/samples/000002.jsonl $run/samples/000002.jsonl ||
        fail "$run has other samples"
done

# Statuses in turn: in a later round half of the samples were left, and some that
# moved have a number beyond its own samples.
sed "s/\"order\": \[[^]]*\]/\"order\": [$turns, $turns]/" \
    refills/decisions.jsonl >turns
expect 0 "" dapo.yaml run_dir=turned rollout.decisions=turns
sed 's/.*"refills": //; s/, "prompts".*//; s/{"left": /\n/g' \
    turned/decisions.jsonl | awk -F'"moved": ' '{
        n = split($2, x, "[][, {}]+")
        for (i = 2; i + 2 <= n; i += 3) if (x[i] > 2 * $1 + 1) found = 1 }
    END { exit !found }' || fail "numbers of what moved in later rounds"

# All rounds of it were seen, one behind the other: as many samples as were
# generated, each ended in its round; they moved as was decided, and those of the
# last round with the lengths that the batch has in their places.
run=turned
metrics()
{
    sed -n "2s|.*\"$1\": \([^,}]*\).*|\1|p" $run/metrics.jsonl
}
seen samples 1-3 >samples
seen chunks 1,5 >chunks
seen moves 1-4 >moves
all=$((40 + 2 * $(metrics rollout/refilled_prompts)))
[ "$(wc -l <samples)" = $all ] || fail "samples of all rounds"
[ "$(wc -l <moves)" = "$(metrics gen/migrated)" ] || fail "moves of all rounds"
seen rounds 1-3 >rounds
[ "$(wc -l <rounds)" = 3 ] || fail "rounds"
echo "1e9,$(wc -l <chunks),$all" >>rounds
awk -F, 'FNR == 1 { file++ }
    file == 1 { start[FNR] = $1; chunk[FNR] = $2; sample[FNR] = $3; next }
    FNR > chunk[r + 1] { r++ }
    { ended[r] += $2; if ($1 < start[r] || $1 > start[r + 1]) exit 1 }
    END { for (i = 1; i <= 3; i++)
              if (ended[i] != sample[i + 1] - sample[i]) exit 1 }' \
    rounds chunks || fail "chunks and samples of rounds"
last=$(sed -n 3p rounds | cut -d, -f3)
sed -n '2s/.*"responses": \[//; 2s/\].*//; 2s/, /\n/gp' \
    turned/decisions.jsonl >responses
sed -n '2s/.*\], \[{//; 2s/.*"moved": \[\[//; 2s/\]\]}.*//; 2s/\], \[/\n/gp' \
    turned/decisions.jsonl | tr -d ' ' |
    awk -F, 'NR == FNR { tokens[NR - 1] = $1; next }
        { print tokens[$1] "," $2 "," $3 }' responses - | sort >a
awk -F, -v last="$last" 'NR == FNR { tokens[NR - 1] = $2; next }
    $2 >= last { print tokens[$2] "," $3 "," $4 }' samples moves | sort >b
[ -s b ] && [ -z "$(comm -13 a b)" ] || fail "moves of the last round"
command=report
options=
expect 0 "a.svg" --svg a.svg turned
# with words where there is room
[ "$(grep -c '^<path d=.* class="o"/>$' a.svg)" = 2 ] || fail "rounds drawn"
command=train
options=-q

# Bad input.
head -n 2 whole/decisions.jsonl >short
expect 1 "short: no decision for actor_generate of iteration 3" ppo.yaml \
    run_dir=bad rollout.decisions=short
expect 1 "says when samples move, and so does 'rollout.remaining'" ppo.yaml \
    run_dir=bad2 rollout.decisions=short rollout.remaining=0.3
expect 1 "'rollout.decisions' says when samples move" ppo.yaml run_dir=bad2 \
    rollout.decisions=short rollout.inter_stage_fusion=false
sed 's/"remaining": 0,/"remaining": 2,/' short >wrong
expect 1 "wrong:1: 'remaining' must be 0 to 0.95" ppo.yaml run_dir=bad2 \
    rollout.decisions=wrong
for cached in '[[2, 1]]' '[[0, 1]]' '[[1]]' '[[1, 4], [4, 5]]' '[1, 4]'; do
    echo '{"iteration": 1, "call": "actor_generate", "remaining": 0.4,
        "instances": 1, "most_batch": 0, "cached": '"$cached"'}' |
        tr -d '\n' >wrong
    expect 1 "wrong:1: 'cached' must be at most 8 pairs of tokens" ppo.yaml \
        rollout.decisions=wrong run_dir=refused
done
for later in '[[0.2, 1], [0.2, 1]]' '[[0.4, 1]]' '[[0.2]]' '[[0.2, -1]]' \
    '[[0.2, 1], [0.1, 1], [0.05, 1]]'; do
    echo '{"iteration": 1, "call": "actor_generate", "remaining": 0.4,
        "instances": 1, "most_batch": 0, "later": '"$later"'}' |
        tr -d '\n' >wrong
    expect 1 "wrong:1: 'later' must be at most 2 pairs of a share" ppo.yaml \
        run_dir=bad2 rollout.decisions=wrong
done
pairs="must have pairs of seconds: 'step', 'token', and in 'infer'"
while IFS='|' read -r pace part; do
    sed "s/\"pace\": {[^}]*}}/\"pace\": $pace/" short >wrong
    expect 1 "wrong:1: 'pace' $part" ppo.yaml run_dir=bad2 \
        rollout.decisions=wrong
done <<END
{"step": [1], "token": [0, 1], "infer": {}}|$pairs
{"step": [1, 2], "token": [0, -1], "infer": {}}|$pairs
{"step": [1, 2], "token": [0, "1"], "infer": {}}|$pairs
{"step": [1, 2], "token": [0, 1]}|$pairs
{"step": [1, 2], "token": [0, 1], "infer": {"ref_infer": 1}}|$pairs
{"step": [1, 2], "token": [0, 1], "infer": {"reference": [1, 2]}}|has 'reference'
END
sed 's/"pace": {[^}]*}}/"pace": [1, 2]/' short >wrong
expect 1 "wrong:1: 'pace' must be an object" ppo.yaml run_dir=bad2 \
    rollout.decisions=wrong
sed 's/actor_generate/nobody/' short >wrong
expect 1 "wrong: no decision of a call of this run" ppo.yaml run_dir=bad2 \
    rollout.decisions=wrong
expect 1 "'rollout.instances' is 3, but actor_generate has 2 replicas" \
    ppo.yaml run_dir=bad2 rollout.instances=3
expect 1 "'rollout.remaining' must be from 0 to 0.95" ppo.yaml run_dir=bad2 \
    rollout.remaining=2
expect 1 "rollout.kv_blocks" ppo.yaml run_dir=bad2 rollout.kv_blocks=1
[ ! -e bad2 ] || fail "a refused run left a folder"
sed -i 's/"responses": \[[0-9]*, /"responses": [/' lost/decisions.jsonl
"$weft" train -q ppo.yaml run_dir=lost cluster=cluster.yaml iterations=7 \
    >out 2>err && fail "a damaged record"
grep -q "'responses' has 39 numbers, and the run 40 samples" err ||
    fail "39 numbers"
exit $failed
