#!/usr/bin/env bash
# usage: python-sanitized.sh address|thread [TEST...]
# Builds the extension of the Python package with sanitizers (address and undefined behaviour, or threads) and runs its
# tests in a Python that preloads their runtime: all but those that need PyTorch, or the TESTs (test_serve_... are the
# server's). The compiler is the one of build/release, and what it makes is not instrumented: models
# run in the extension's own runtime, which is. Python and other packages are not instrumented either: of them only what the
# extension calls is seen. Leaks of Python itself are not looked for; test_model counts the extension's own. A report of a
# sanitizer is a failure. Ends with 77 without Python's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "$(command -v "${PYTHON:-build/venv/bin/python}")")
case ${1:-} in
  address) sanitizers="address;undefined" libraries=(libasan.so libubsan.so) ;;
  thread) sanitizers=thread libraries=(libtsan.so) ;;
  *) echo "usage: python-sanitized.sh address|thread [TEST...]" >&2; exit 2 ;;
esac
build=build/python-$1
shift
python3-config --includes >/dev/null 2>&1 || { echo "not run: no headers of Python"; exit 77; }
[ -f "$build/build.ninja" ] || CC=gcc cmake --preset release -B "$build" -DTFM_SANITIZE="$sanitizers" -DTFM_PYTHON=ON \
  -DTFM_TESTS=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build "$build" --target tfm_python python/tfmc/copied >"$build/build.log" || { tail -n 20 "$build/build.log"; exit 1; }
preload=()
for library in "${libraries[@]}"; do preload+=("$(gcc -print-file-name="$library")"); done
[ $# -gt 0 ] || set -- test_arrays test_model test_generate test_file test_text test_corpus
package=() server=()
for test in "$@"; do
  case $test in test_serve_*) server+=("$test") ;; *) package+=("$test") ;; esac
done
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
code=0
# Only Pythons preload it: the compiler, shells and others are not instrumented. A Python takes the variable out of its
# environment, and gives as its name a script that puts it in again.
mkdir -p "$build/site"
printf '#!/bin/sh\nLD_PRELOAD="%s" exec "%s" "$@"\n' "${preload[*]}" "$python" >"$build/site/python"
chmod +x "$build/site/python"
printf 'import os, sys\nos.environ.pop("LD_PRELOAD", None)\nsys.executable = "%s"\n' "$PWD/$build/site/python" \
  >"$build/site/sitecustomize.py"
# Children of a fork start threads: TSan does not support it, but need not die of it.
run() {
  TFM_SANITIZED=1 PYTHONMALLOC=malloc PYTHONPATH="$PWD/$build/site:$PWD/$build/python" TFM_COMPILER="$PWD/build/release/tfmc" \
    ASAN_OPTIONS="detect_leaks=0:log_path=$reports/report" UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/report" \
    TSAN_OPTIONS="die_after_fork=0:ignore_noninstrumented_modules=1:log_path=$reports/report" "$build/site/python" "$@" || code=1
}
[ ${#package[@]} = 0 ] || run python/tests/run.py "${package[@]}"
[ ${#server[@]} = 0 ] || run python/serve/tests/run_serve.py "${server[@]}"
for report in "$reports"/*; do
  [ ! -f "$report" ] || { cat "$report"; code=1; }
done
exit $code
