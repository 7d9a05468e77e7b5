#!/usr/bin/env bash
# usage: wheels-arm64.sh BUILD
# Makes the wheels of the compiler and of the runtime for AArch64 in BUILD/dist, from a machine of another kind, checks them
# as wheels.sh does its own, and runs golden cases with them under qemu-user: Debian's Python for that machine, these two
# wheels, and numpy and safetensors as PyPI has them. Segments must be aligned to 64 KB. The last line is `N passed,
# N failed`; if the cross compiler, qemu or the packages are missing it says so and ends with 77.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
build=$(cd "$1" && pwd)
plat=manylinux_2_34_aarch64
made=${TFM_WORK:-build}
tools=$made/wheel-tools
packages=$made/wheel-packages-arm64
most_compiler=25000000 most_runtime=500000

not_run() { echo "not run: wheels for AArch64: $1" && exit 77; }
command -v aarch64-linux-gnu-gcc >/dev/null || not_run "no aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu)"
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || not_run "no qemu-aarch64 (Debian: qemu-user)"
scripts/sysroot.sh arm64 build/sysroot/arm64
sysroot=$PWD/build/sysroot/arm64
[ -f "$build/build.ninja" ] || cmake --preset arm64 -B "$build" -DTFM_LLVM_STATIC=ON -DTFM_PYTHON=ON >/dev/null
cmake --build "$build" --target tfmc python_package | tail -n 1

scripts/wheel-tools.sh "$tools"
[ -d "$packages" ] || "$tools/bin/python" -m pip download -q --disable-pip-version-check -d "$packages" --no-deps \
  --python-version 3.11 --only-binary=:all: --platform manylinux2014_aarch64 numpy==2.2.6 safetensors==0.5.3

rm -rf "$build/dist" "$build/wheels-as-linked" "$build/fresh"
python3 python/wheels.py "$build" "$build/wheels-as-linked" >/dev/null
auditwheel() { # which knows the platforms of the machine that it runs on, and asks Python which one that is
  PATH="$tools/bin:$PATH" "$tools/bin/python" -c 'import platform, sys; platform.machine = lambda: "aarch64"
from auditwheel.main import main; sys.exit(main())' "$@"
}
for wheel in "$build"/wheels-as-linked/*aarch64.whl; do
  auditwheel repair --plat "$plat" --only-plat -w "$build/dist" "$wheel"
done
"$tools/bin/abi3audit" --strict --assume-minimum-abi3 3.11 "$build"/dist/tfmc_runtime-*.whl

passed=0 failed=0
check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAIL $name"; fi
}
fits() {
  local size
  size=$(stat -c %s "$1")
  echo "$(basename "$1"): $size bytes, at most $2"
  [ "$size" -le "$2" ]
}
check "size of the compiler" fits "$build"/dist/tfmc_compiler-*"$plat".whl "$most_compiler"
check "size of the runtime" fits "$build"/dist/tfmc_runtime-*"$plat".whl "$most_runtime"

mkdir "$build/fresh"
for wheel in "$build"/dist/*.whl "$packages"/*.whl; do
  python3 -m zipfile -e "$wheel" "$build/fresh"
done
tfmc=$(echo "$build"/fresh/tfmc_compiler-*.data/scripts/tfmc)
chmod +x "$tfmc"
large_pages() { ! readelf -lW "$1" | awk '$1 == "LOAD" && $NF != "0x10000"' | grep .; }
check "pages of the command" large_pages "$tfmc"
check "pages of the extension" large_pages "$build/fresh/tfmc/_core.abi3.so"
# A process of that machine starts the command by a script of this one.
printf '#!/bin/sh\nexec "%s" -L "%s" "%s" "$@"\n' "$qemu" "$sysroot" "$tfmc" >"$build/fresh/tfmc-there"
chmod +x "$build/fresh/tfmc-there"
there() { # without a C compiler: this machine's makes no code for that one
  PATH="$build/fresh" PYTHONPATH="$build/fresh" TFM_COMPILER="$build/fresh/tfmc-there" TFM_CACHE_DIR='' OPENBLAS_NUM_THREADS=1 \
    "$qemu" -L "$sysroot" "$sysroot/usr/bin/python3.11" "$@"
}
log=$(there python/tests/goldens.py --saved --library tests/goldens/{encoder-stack,prim-softmax,q8-linear-odd,bad-shape-linear}) || true
echo "$log"
line=$(grep -Eo '[0-9]+ passed, [0-9]+ failed' <<<"$log" | tail -n 1)
check "golden cases" test -n "$line"
passed=$((passed + ${line%% *})) failed=$((failed + $(awk '{print $3}' <<<"${line:-0 0 1}")))
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
