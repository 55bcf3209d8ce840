#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes sft.jsonl and prompts.jsonl: sums of two numbers below 100, drawn by
# awk's own Lehmer generator so that every awk writes the same files.
set -eu
cd "$(dirname "$0")"

sums() # seed, rows, format
{
    awk -v state="$1" -v n="$2" -v format="$3" '
        function draw(below) {
            state = (state * 48271) % 2147483647
            return int(state / 2147483647 * below)
        }
        BEGIN {
            for (i = 0; i < n; i++) {
                a = draw(100)
                b = draw(100)
                printf format "\n", a, b, a + b
            }
        }'
}

sums 1 4000 '{"prompt": "%d+%d=", "completion": "%d"}' >sft.jsonl
sums 2 1000 '{"prompt": "%d+%d=", "label": "%d"}' >prompts.jsonl
