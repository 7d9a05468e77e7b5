#!/usr/bin/env bash
# Makes build/venv, a Python with the packages that tests and examples use, unless it exists. Ends with 1 if it cannot
# be made (no network); callers then leave out what needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${TFM_WORK:-build}
venv=$work/venv
packages=(numpy==2.2.6 safetensors==0.5.3 tokenizers==0.21.1)
if "$venv/bin/python" -c 'import numpy, safetensors, tokenizers' 2>/dev/null; then exit 0; fi
echo "making $venv with ${packages[*]}"
mkdir -p "$work"
python3 -m venv "$venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}" >"$log" 2>&1 || {
  echo "cannot install ${packages[*]} with pip: $(grep -E '^ERROR' "$log" | tail -n 1)" >&2
  exit 1
}
