#!/usr/bin/env bash
# usage: install-dependencies.sh [all]
# Installs with apt (as root or by sudo) what building and testing need and this machine lacks, and says what; with
# `all`, also what `make check-all` needs. If nothing is missing it does nothing.
set -euo pipefail

needed=(ca-certificates gcc g++ libc6-dev cmake ninja-build pkg-config flex bison llvm-19-dev libjansson-dev
  libxxhash-dev libpopt-dev libcriterion-dev locales graphviz python3 python3-venv universal-ctags strace
  abigail-tools valgrind)
[ "${1:-}" = all ] && needed+=(clang-14 clang-19 llvm-14)

if ! command -v dpkg-query >/dev/null; then
  echo "this is no Debian: please install what scripts/install-dependencies.sh lists by hand" >&2
  exit 0
fi

missing=()
for package in "${needed[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "missing: ${missing[*]}; install them as root: apt-get install ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; }
install || { "${as_root[@]}" apt-get update -q && install; }
