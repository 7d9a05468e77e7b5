#!/usr/bin/env bash
# usage: build.sh TFMC FOLDER [WEIGHTS]
# Compiles the model to a library in FOLDER, with code for every kind of x86-64, and the C program that uses it.
set -euo pipefail
tfmc=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
weights=${3:-$here/dates.safetensors}
mkdir -p "$folder"
"$tfmc" compile "$here/dates.tfm" --weights "$weights" -o "$folder/libdates.so" \
  -march=x86-64,x86-64-v3,x86-64-v4
"${CC:-cc}" -O2 -Wall -Wextra -I "$folder" "$here/dates.c" -L "$folder" -ldates -Wl,-rpath,'$ORIGIN' -o "$folder/dates"
