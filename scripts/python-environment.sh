#!/usr/bin/env bash
# Makes build/venv, a Python with the packages that tests and examples use, unless it exists. Ends with 1 if it cannot
# be made (no network); callers then leave out what needs it. What tfmc-serve, its grammars, chat templates and the
# client of the language server's sessions require is installed too, and the engine that runs WebAssembly modules; where
# that fails, their tests alone are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${TFM_WORK:-build}
venv=$work/venv
packages=(numpy==2.2.6 safetensors==0.5.3 tokenizers==0.21.1)
templates=(jinja2==3.1.6)
serve=(httptools==0.9.0 uvloop==0.23.0 orjson==3.13.0)
grammars=(llguidance==1.9.0)
modules=(wasmtime==50.0.1)
client=(pytest==9.2.0 pytest-lsp==1.0.1 pygls==2.1.1 lsprotocol==2025.0.0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

install() {
  "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@" >"$log" 2>&1 && return
  echo "cannot install $* with pip: $(grep -E '^ERROR' "$log" | tail -n 1)" >&2
  return 1
}

if ! "$venv/bin/python" -c 'import numpy, safetensors, tokenizers' 2>/dev/null; then
  echo "making $venv with ${packages[*]}"
  mkdir -p "$work"
  python3 -m venv "$venv"
  install "${packages[@]}" || exit 1
fi
"$venv/bin/python" -c 'import httptools, uvloop, orjson' 2>/dev/null ||
  install "${serve[@]}" || true
"$venv/bin/python" -c 'import pytest_lsp' 2>/dev/null || install "${client[@]}" || true
"$venv/bin/python" -c 'import llguidance' 2>/dev/null || install "${grammars[@]}" || true
"$venv/bin/python" -c 'import jinja2' 2>/dev/null || install "${templates[@]}" || true
"$venv/bin/python" -c 'import wasmtime' 2>/dev/null || install "${modules[@]}" || true
