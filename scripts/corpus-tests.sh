#!/usr/bin/env bash
# usage: corpus-tests.sh
# The long tests of tfmc.corpus: 100 kills each of workers, drivers and actors and in the middle of writes (or as many as
# TFM_CORPUS_KILLS says), parquet, and Ray, in an environment of their own (build/corpus-venv) that this script makes.
# Needs build/release/python. Ends with 77 if it cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${TFM_WORK:-build}/corpus-venv
packages=(numpy==2.2.6 tokenizers==0.21.1 pyarrow==26.0.1 "ray[data]==2.60.0")
if ! "$venv/bin/python" -c 'import numpy, tokenizers, pyarrow, ray.data' 2>/dev/null; then
  python3 -m venv "$venv"
  if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check "${packages[@]}"; then
    echo "not run: ${packages[*]} cannot be installed"
    exit 77
  fi
fi
TFM_CORPUS_KILLS=${TFM_CORPUS_KILLS:-100} PYTHONPATH=build/release/python TFM_COMPILER=build/release/tfmc \
  "$venv/bin/python" python/tests/run.py test_corpus test_corpus_begins test_corpus_ray
