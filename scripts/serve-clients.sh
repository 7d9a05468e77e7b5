#!/usr/bin/env bash
# usage: serve-clients.sh
# tfmc-serve as the packages openai, huggingface_hub and langchain-openai use it, unchanged, its openapi.json by
# schemathesis, and its page in a Chromium that is installed (by playwright; left out, with a word, without one), in an
# environment of their own (build/clients-venv) that this script makes. Needs build/release/python. Ends with 77 if it
# cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${TFM_WORK:-build}/clients-venv
packages=(openai==3.57.0 huggingface_hub==2.4.0 langchain-openai==1.7.4 schemathesis==4.32.5 playwright==1.65.2 numpy==2.2.6 tokenizers==0.23.3
  httptools==0.9.0 uvloop==0.23.0 orjson==3.13.0 jinja2==3.1.6
  llguidance==1.9.1)
if ! "$venv/bin/python" -c 'import openai, huggingface_hub, langchain_openai, schemathesis, playwright, llguidance, uvloop' 2>/dev/null; then
  python3 -m venv "$venv"
  if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}"; then
    echo "not run: ${packages[*]} cannot be installed"
    exit 77
  fi
fi
PYTHONPATH=build/release/python TFM_COMPILER=build/release/tfmc \
  "$venv/bin/python" -W ignore python/serve/tests/run_serve.py test_serve_clients test_serve_openapi test_serve_limits test_serve_page
