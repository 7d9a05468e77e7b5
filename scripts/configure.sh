#!/usr/bin/env bash
# usage: configure.sh BUILD COMPILER [tests]
# Prepares the folder BUILD for ninja, unless it is prepared. COMPILER is a command, or empty for the one that BUILD was
# prepared with, gcc at first; another compiler prepares it anew. With `tests`, it is an error if what tests need is
# missing; without, they are left out then.
set -euo pipefail
build=$1 compiler=$2
root=$(cd "$(dirname "$0")/.." && pwd)
cache=$build/CMakeCache.txt
options=()

# The program behind a name; a name that leads nowhere stays, and CMake will name it.
program() { readlink -f "$(command -v "$1" 2>/dev/null || echo "$1")"; }

is_prepared() {
  [ -f "$build/build.ninja" ] && [ -f "$cache" ] && grep -q '^TFM_LLVM_ARCHIVES:' "$cache" || return 1
  [ -n "$compiler" ] || return 0
  [ "$(program "$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$cache")")" = "$(program "${compiler%% *}")" ]
}

if ! is_prepared; then
  [ ! -f "$cache" ] || options+=(--fresh)
  [ -z "$compiler" ] || options+=("-DCMAKE_C_COMPILER=${compiler// /;}")
elif [ "${3:-}" != tests ] || grep -q '^TFM_TESTS:.*=ON$' "$cache"; then
  exit 0
fi
[ "${3:-}" != tests ] || options+=(-DTFM_TESTS=ON)
mkdir -p "$build"
build=$(cd "$build" && pwd)
cd "$root"
exec cmake --preset release -B "$build" "${options[@]}"
