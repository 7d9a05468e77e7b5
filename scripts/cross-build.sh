#!/usr/bin/env bash
# usage: cross-build.sh ARCH [TARGET...]
# Builds tfmc (or the targets) for another machine in build/ARCH: ARCH is arm64 or riscv64. Packages of that machine come to
# build/sysroot/ARCH (sysroot.sh). If the cross compiler or the packages are missing it says so and ends with 77.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$1
shift
case $arch in arm64) machine=aarch64 ;; *) machine=$arch ;; esac
command -v "$machine-linux-gnu-gcc" >/dev/null || {
  echo "not run: tfmc for $arch: no $machine-linux-gnu-gcc (Debian: gcc-$machine-linux-gnu)"
  exit 77
}
scripts/sysroot.sh "$arch" "build/sysroot/$arch"
[ -f "build/$arch/build.ninja" ] || cmake --preset "$arch" >/dev/null
cmake --build "build/$arch" --target "${@:-tfmc}" | tail -n 3
