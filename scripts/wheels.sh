#!/usr/bin/env bash
# usage: wheels.sh BUILD
# Makes the wheels of the Python package in BUILD/dist, checks them, and tests them in a fresh environment: nothing but
# these wheels, numpy and safetensors installed, without an index, and with a PATH on which there is no C compiler.
# auditwheel must find no symbol of a glibc later than 2.34, abi3audit none outside of the limited API of Python 3.11;
# stubs must be what the package has (mypy's stubtest); the compiler may have 25 MB, the runtime 0.5 MB. tfmc-serve is
# checked by mypy and tested in an environment of its own. The last line is `N passed, N failed`.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
build=$(cd "$1" && pwd)
plat=manylinux_2_34_x86_64
made=${TFM_WORK:-build}
tools=$made/wheel-tools
packages=$made/wheel-packages
most_compiler=25000000 most_runtime=500000

[ -f "$build/build.ninja" ] || cmake --preset release -B "$build" -DTFM_LLVM_STATIC=ON -DTFM_TESTS=OFF -DTFM_PYTHON=ON
cmake --build "$build" --target tfmc python_package

scripts/wheel-tools.sh "$tools"
# What the tests need, once from the index; the environment itself has none.
[ -d "$packages" ] || "$tools/bin/python" -m pip download -q --disable-pip-version-check -d "$packages" \
  numpy==2.2.6 safetensors==0.5.3
serve=$made/serve-packages # of tfmc-serve, as scripts/python-environment.sh has them
ls "$serve"/llguidance-* >/dev/null 2>&1 ||
  "$tools/bin/python" -m pip download -q --disable-pip-version-check -d "$serve" numpy==2.2.6 \
  tokenizers==0.21.1 starlette==1.10.0 uvicorn==0.54.0 httptools==0.9.0 uvloop==0.23.0 orjson==3.13.0 \
  prometheus-client==0.26.0 jinja2==3.1.6 llguidance==1.9.0

rm -rf "$build/dist" "$build/wheels-as-linked"
python3 python/wheels.py "$build" "$build/wheels-as-linked"
mkdir "$build/dist"
mv "$build"/wheels-as-linked/*-any.whl "$build/dist/"
for wheel in "$build"/wheels-as-linked/*.whl; do
  PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" show "$wheel" | tr '\n' ' '
  echo
  PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair --plat "$plat" --only-plat -w "$build/dist" "$wheel"
done
"$tools/bin/abi3audit" --strict --assume-minimum-abi3 3.11 "$build"/dist/tfmc_runtime-*.whl

check_size() {
  local size
  size=$(stat -c %s "$1")
  echo "$(basename "$1"): $size bytes, at most $2"
  [ "$size" -le "$2" ]
}
check_size "$build"/dist/tfmc_compiler-*.whl "$most_compiler"
check_size "$build"/dist/tfmc_runtime-*.whl "$most_runtime"

rm -rf "$build/fresh" "$build/fresh-serve"
python3 -m venv "$build/fresh"
"$build/fresh/bin/python" -m pip install -q --disable-pip-version-check --no-index --find-links "$build/dist" \
  --find-links "$packages" tfmc safetensors
fresh=$(cd "$build/fresh" && pwd)
# mypy sees packages of its own environment only.
"$tools/bin/python" -m pip install -q --disable-pip-version-check --no-index --find-links "$build/dist" \
  --find-links "$packages" --force-reinstall tfmc-runtime
printf '[mypy]\nignore_missing_imports = True\n' >"$build/mypy.ini" # torch, tokenizers
"$tools/bin/python" -m mypy.stubtest tfmc --mypy-config-file "$build/mypy.ini" --ignore-missing-stub \
  --ignore-unused-allowlist --allowlist <(echo 'tfmc\.(.*\.)?_.*')
"$tools/bin/python" -m mypy --strict --cache-dir /dev/null python/tests/typed.py
"$tools/bin/python" -m pip install -q --disable-pip-version-check --no-index --find-links "$build/dist" \
  --find-links "$serve" --force-reinstall 'tfmc-serve[grammar]'
"$tools/bin/python" -m mypy --strict --cache-dir /dev/null -p tfmc_serve
log=$(mktemp)
trap 'rm -f "$log"' EXIT
in_fresh() {
  env -i "PATH=$fresh/bin" HOME=/nonexistent TMPDIR="${TMPDIR:-/tmp}" TFM_CACHE_DIR= GOLDEN_WEIGHTS="$PWD/$made/weights" \
    "$fresh/bin/python" "$@"
}
in_fresh -c 'import shutil, sys; sys.exit(any(map(shutil.which, ("cc", "gcc", "clang", "ld"))))'
in_fresh python/tests/run.py >"$log" 2>&1 || true
in_fresh python/tests/goldens.py --saved --library tests/goldens tests/goldens/lang11 tests/cases >>"$log" 2>&1 || true
python3 -m venv "$build/fresh-serve"
fresh=$(cd "$build/fresh-serve" && pwd)
"$fresh/bin/python" -m pip install -q --disable-pip-version-check --no-index --find-links "$build/dist" \
  --find-links "$serve" tfmc 'tfmc-serve[grammar]'
"$fresh/bin/tfmc-serve" --version
in_fresh python/serve/tests/run_serve.py >>"$log" 2>&1 || true
grep -v '^ok ' "$log" || true
grep -Eo '[0-9]+ passed, [0-9]+ failed' "$log" | awk '{p += $1; f += $3; n++} END {
  if (n != 3) f++
  print p " passed, " f " failed"
  exit f > 0
}'
