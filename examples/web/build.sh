#!/usr/bin/env bash
# usage: build.sh TFMC MODEL_FOLDER SITE
# Makes the folder SITE: a page that searches sentences, for any host of plain files. MODEL_FOLDER holds model.safetensors
# and vocab.txt of all-MiniLM-L6-v2 (scripts/fetch-weights.sh).
set -euo pipefail
tfmc=$1 model=$2 site=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$site"
"$tfmc" compile "$here/../minilm/minilm.tfm" --weights "$model/model.safetensors" --target=wasm32 -o "$site/m"
cp "$here"/index.html "$here"/*.mjs "$here/../minilm/sentences.txt" "$model/vocab.txt" "$site"
