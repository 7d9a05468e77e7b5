#!/usr/bin/env bash
# usage: install-dependencies.sh [tests|package|wheels|all]
# Installs with apt (as root or by sudo) what this machine lacks of what building needs, and says what; with `tests`
# also what `make check` needs, with `package` what `make package` needs, with `wheels` and `all` what `make wheels` and
# `make check-all` need. If nothing is missing it does nothing. If it cannot, it says why in one line and ends with 1.
set -euo pipefail

build=(gcc libc6-dev cmake ninja-build flex bison llvm-19-dev libjansson-dev libxxhash-dev libpopt-dev zlib1g-dev
  libzstd-dev libstdc++-12-dev)
tests=(ca-certificates g++ pkg-config libcriterion-dev locales graphviz python3 python3-dev python3-venv universal-ctags
  strace abigail-tools valgrind chromium chromium-driver python3-selenium)
package=(dpkg-dev file)
wheels=(python3 python3-dev python3-venv)
all=(clang-14 clang-19 llvm-14 debootstrap git qemu-user-static gcc-aarch64-linux-gnu gcc-riscv64-linux-gnu
  gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross)

case ${1:-} in
  tests) needed=("${build[@]}" "${tests[@]}") ;;
  package) needed=("${build[@]}" "${package[@]}") ;;
  wheels) needed=("${build[@]}" "${wheels[@]}") ;;
  all) needed=("${build[@]}" "${tests[@]}" "${package[@]}" "${wheels[@]}" "${all[@]}") ;;
  *) needed=("${build[@]}") ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "this is no Debian: please install what scripts/install-dependencies.sh lists by hand" >&2
  exit 0
fi

missing=()
for name in "${needed[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$name")
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

# What apt says is kept, so that a failure is told in one line; what it unpacks is shown, so that one sees it move.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" 2>&1 |
    tee -a "$log" | grep --line-buffered -o '^Unpacking [^ ]*'
  return "${PIPESTATUS[0]}"
}
install() { apt install --no-install-recommends "${missing[@]}"; }
install || { apt update && install; } && exit 0

if grep -qE 'Temporary failure resolving|Could not (resolve|connect)|Connection (failed|timed out|refused)|unreachable' "$log"
then echo "no network: cannot install ${missing[*]}" >&2
else echo "apt-get cannot install ${missing[*]}: $(grep '^E:' "$log" | tail -n 1)" >&2; fi
exit 1
