#!/usr/bin/env bash
# Makes build/venv, a Python with the packages that tests and examples use, unless it exists. Ends with 1 if it cannot
# be made (no network); callers then leave out what needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/venv
packages=(numpy==2.2.6 safetensors==0.5.3 tokenizers==0.21.1)
if "$venv/bin/python" -c 'import numpy, safetensors, tokenizers' 2>/dev/null; then exit 0; fi
echo "making $venv with ${packages[*]}"
mkdir -p build
python3 -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}"
