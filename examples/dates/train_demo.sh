#!/usr/bin/env bash
# usage: train_demo.sh TFMC [STEPS]
# Trains the model of dates.tfm from nothing in build/train-dates ($TFM_WORK/train-dates), compiles it with these weights
# to a library, and has the C program translate 2,000 dates of years that training never saw. Needs tfmc, cc and Python.
set -euo pipefail
cd "$(dirname "$0")/../.."
tfmc=$1 steps=${2:-4000}
made=${TFM_WORK:-build}/train-dates
rm -rf "$made"
began=$SECONDS
echo "== 512,000 written dates"
python3 examples/dates/make_data.py "$made"
echo "== tfmc train"
"$tfmc" train examples/dates/dates.tfm --data "$made/train.safetensors" --valid "$made/valid.safetensors" \
  --out "$made/run" --steps "$steps" --valid-every 500 --seed 1
echo "   trained in $((SECONDS - began)) s; the curve: $made/run/curve.svg"
echo "== tfmc compile, cc: the C program and 2,000 dates of years held out"
python3 examples/dates/test.py "$tfmc" 2000 "$made/run/weights.safetensors"
echo "   all in $((SECONDS - began)) s"
