#!/usr/bin/env bash
# usage: build.sh TFMC WEIGHTS FOLDER
# Compiles ../minilm/minilm.tfm with its published weights to a library in FOLDER, and the C program that uses it.
set -euo pipefail
tfmc=$1 weights=$2 folder=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
"$tfmc" compile "$here/../minilm/minilm.tfm" --weights "$weights" -o "$folder/libmini_lm.so" \
  -march=x86-64,x86-64-v3,x86-64-v4
"${CC:-cc}" -O2 -Wall -Wextra -I "$folder" "$here/embed.c" -L "$folder" -lmini_lm -Wl,-rpath,'$ORIGIN' -o "$folder/embed"
