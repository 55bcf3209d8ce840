#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes sft.jsonl, prompts.jsonl and pairs.jsonl: five digits to be put in
# order, drawn by awk's own Lehmer generator so that every awk writes the same
# files. A pair's rejected answer has two digits exchanged, or one wrong.
set -eu
cd "$(dirname "$0")"

rows() # seed, rows, format
{
    awk -v state="$1" -v n="$2" -v format="$3" '
        function draw(below) {
            state = (state * 48271) % 2147483647
            return int(state / 2147483647 * below)
        }
        BEGIN {
            for (i = 0; i < n; i++) {
                text = sorted = ""
                for (d = 0; d < 10; d++)
                    count[d] = 0
                for (k = 0; k < 5; k++) {
                    d = draw(10)
                    count[d]++
                    text = text d
                }
                for (d = 0; d < 10; d++)
                    while (count[d]-- > 0)
                        sorted = sorted d
                p = i % 5 + 1
                q = (p + int(i / 5) % 4) % 5 + 1
                a = substr(sorted, p, 1)
                b = substr(sorted, q, 1)
                wrong = ""
                for (k = 1; k <= 5; k++)
                    if (k == p)
                        wrong = wrong (a == b ? (a + 1) % 10 : b)
                    else
                        wrong = wrong (k == q ? a : substr(sorted, k, 1))
                printf format "\n", text, sorted, wrong
            }
        }'
}

rows 1 4000 '{"prompt": "sort %s: ", "completion": "%s"}' >sft.jsonl
rows 2 1000 '{"prompt": "sort %s: ", "label": "%s"}' >prompts.jsonl
rows 3 2000 '{"prompt": "sort %s: ", "chosen": "%s", "rejected": "%s"}' \
    >pairs.jsonl
