#!/usr/bin/env bash
# usage: bare-debian.sh [12|13 ...]
# Tries the project on machines that have nothing: a Debian 12 and a Debian 13 (both by default) are made by debootstrap
# in build/bare (or TFM_BARE_FOLDER) and entered with chroot. In each, a clone of the last commit runs `make demo`; in
# Debian 12 first without a network, then also `make package`, and `make check` if TFM_BARE_CHECK is not empty. Part of
# `make check` is tests/e2e/test_documents.py: every command of the documents, in empty folders; here it must run. A
# second Debian 12, which has never seen the sources, installs the package, compiles and runs the README's model, and
# uses the library in a C program. Needs root, debootstrap and a network: exit code 77 if one of them is missing, 1 if
# something fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mirror=${TFM_DEBIAN_MIRROR:-http://deb.debian.org/debian}
bare=${TFM_BARE_FOLDER:-$PWD/build/bare}
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(12 13)

not_here() { echo "not run: $1"; exit 77; }
fail() { echo "FAIL $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || not_here "making a Debian needs root"
command -v debootstrap >/dev/null || not_here "no debootstrap"
unshare -m true 2>/dev/null || not_here "no right to mount"

# base NUMBER: the smallest Debian of that number, made once.
base() {
  local name
  case $1 in 12) name=bookworm ;; 13) name=trixie ;; *) fail "no Debian $1 is known here" ;; esac
  [ ! -d "$bare/base-$1" ] || return 0
  rm -rf "$bare/part"
  mkdir -p "$bare"
  debootstrap --variant=minbase "$name" "$bare/part" "$mirror" >"$bare/debootstrap.log" 2>&1 || {
    grep -qE 'Failed getting release|Invalid Release' "$bare/debootstrap.log" && not_here "no network, or no $mirror"
    tail -n 5 "$bare/debootstrap.log"
    fail "debootstrap $name"
  }
  mv "$bare/part" "$bare/base-$1"
}

# machine NAME NUMBER: a fresh machine.
machine() {
  base "$2"
  rm -rf --one-file-system "${bare:?}/$1"
  cp -a "$bare/base-$2" "$bare/$1"
  cp /etc/resolv.conf "$bare/$1/etc/resolv.conf"
  # Where the way out has certificates of its own, the new machine needs them too.
  [ ! -d /usr/local/share/ca-certificates ] || cp -r /usr/local/share/ca-certificates "$bare/$1/usr/local/share/"
}

# inside NAME COMMAND...: runs it there, as root, with nothing of this machine's environment; mounts end with it. The
# option -n before NAME takes the network away.
inside() {
  local wrap=()
  if [ "$1" = -n ]; then wrap=(unshare -n) && shift; fi
  local name=$1
  shift
  unshare -m "${wrap[@]}" bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' \
    "$bare/$name" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb DEBIAN_FRONTEND=noninteractive \
    http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" TFM_CACHE_DIR= "$@" </dev/null
}
packages() {
  local name=$1
  shift
  inside "$name" apt-get update -q >"$bare/apt.log" 2>&1 &&
    inside "$name" apt-get install -y -q --no-install-recommends "$@" >>"$bare/apt.log" 2>&1 ||
    { tail -n 5 "$bare/apt.log"; fail "apt-get install $*"; }
}

# A clone, as a new user has it, on a machine with make and git.
with_clone() {
  machine "$1" "$2"
  packages "$1" git make
  git clone -q "file://$PWD" "$bare/$1/root/tfmc"
}

demo() {
  local out
  out=$(inside "$1" make -C /root/tfmc demo 2>&1) || { echo "$out" | tail -n 30; fail "make demo"; }
  grep -q '^3rd of May 2001  *2001-05-03$' <<<"$out" || { echo "$out" | tail -n 15; fail "make demo wrote no dates"; }
  for package in libcriterion-dev valgrind graphviz; do
    [ "$(inside "$1" dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ] ||
      fail "make installed $package, which only tests need"
  done
}

without_network() {
  local out
  out=$(inside -n "$1" make -C /root/tfmc -s 2>&1) && fail "make without a network"
  [ "$(grep -vcE '^(installing|make)' <<<"$out")" = 1 ] && grep -q '^no network: cannot install gcc' <<<"$out" ||
    { echo "$out"; fail "make without a network does not say so in one line"; }
}

# ---- the package ----

# What an ordinary user does with it in /home/user: the README's model, with weights of the shapes that it asks for.
write_model() {
  python3 - "$1" <<'PY'
import pathlib, re, sys
page = pathlib.Path("README.md").read_text()
pathlib.Path(sys.argv[1], "model.tfm").write_text(re.search(r"```tfm\n(.*?)```", page, re.S)[1])
PY
  cat >"$1/program.c" <<'C'
#include <math.h>
#include <stdio.h>
#include "model.h"
int main(void) {
  classifier_model *model;
  classifier_context *context;
  tfm_error error;
  int32_t ids[32];
  float scores[8];
  for (int i = 0; i < 32; i++) ids[i] = 1 + i * 7;
  classifier_args args = {.struct_size = sizeof args, .batch = 2, .time = 16, .ids = ids, .scores = scores,
                          .scores_capacity = 8};
  if (classifier_open("model.tfmw", &model, &error) || classifier_context_new(model, 0, &context, &error) ||
      classifier_forward(context, &args, &error)) {
    puts(error.message);
    return 1;
  }
  for (int i = 0; i < 8; i++)
    if (!isfinite(scores[i])) return 1;
  classifier_context_free(context);
  classifier_close(model);
  puts("the program ran");
  return 0;
}
C
  cat >"$1/libtfm.c" <<'C'
#include <stdio.h>
#include <tfm/compile.h>
int main(void) {
  tfm_error error;
  tfm_compiled *compiled;
  tfm_compile_options options = {.struct_size = sizeof options, .path = "model.tfm", .weights_path = "w.safetensors"};
  if (tfm_compile(&options, &compiled, &error)) {
    puts(error.message);
    return 1;
  }
  tfm_compiled_free(compiled);
  puts("libtfm compiled it");
  return 0;
}
C
}

# write_weights LISTED FILE: LISTED is what `tfmc check -v` prints. The values are small and the same each time.
write_weights() {
  python3 - "$@" <<'PY'
import array, json, math, pathlib, re, struct, sys
listed = pathlib.Path(sys.argv[1]).read_text()
found = re.findall(r"^  (\S+) +f32\[(.*)\]$", listed[listed.index("weights:"):], re.M)
shapes = {name: [int(n) for n in dims.split(", ")] for name, dims in found}
most = max(map(math.prod, shapes.values()))
values = array.array("f", [(i * 7919 % 1999 - 999) / 20000 for i in range(1999)]) * (most // 1999 + 1)
header, at = {}, 0
for name, shape in shapes.items():
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * math.prod(shape)]}
    at += 4 * math.prod(shape)
text = json.dumps(header).encode()
with open(sys.argv[2], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for shape in shapes.values():
        file.write(values[:math.prod(shape)].tobytes())
PY
}

package() {
  local out home file
  out=$(inside "$1" make -C /root/tfmc package 2>&1) || { echo "$out" | tail -n 30; fail "make package"; }
  machine "$2" 12
  file=$(basename "$bare/$1"/root/tfmc/build/release/tfmc_*_amd64.deb)
  cp "$bare/$1/root/tfmc/build/release/$file" "$bare/$2/root/"
  packages "$2" "/root/$file"
  for file in bin/tfmc share/doc/tfmc/LICENSE share/doc/tfmc/CHANGELOG.md share/man/man1/tfmc.1 \
    share/bash-completion/completions/tfmc share/zsh/vendor-completions/_tfmc share/fish/vendor_completions.d/tfmc.fish
  do [ -s "$bare/$2/usr/$file" ] || fail "the package has no /usr/$file"; done
  inside "$2" useradd -m user
  home=$bare/$2/home/user
  write_model "$home"
  inside "$2" tfmc check -v /home/user/model.tfm >"$home/listed" || fail "tfmc check"
  write_weights "$home/listed" "$home/w.safetensors"
  cat >"$home/use.sh" <<'SH'
set -eu
cd /home/user
tfmc check model.tfm --weights w.safetensors
tfmc run model.tfm --weights w.safetensors --input ids=2x16 -o whole
tfmc compile model.tfm --weights w.safetensors -o libmodel.so
tfmc run libmodel.so --input ids=2x16 -o library
cmp whole library
cc program.c -L. -lmodel -lm -lpthread -Wl,-rpath,'$ORIGIN' -o program
./program
cc libtfm.c -ltfm -o libtfm
./libtfm
tfmc info libmodel.so
SH
  inside "$2" chown -R user /home/user
  inside "$2" su user -c 'sh /home/user/use.sh' || fail "the README's model with the package"
}

# ---- all of it ----

for release in "${releases[@]}"; do
  echo "== Debian $release"
  with_clone "build-$release" "$release"
  if [ "$release" = 12 ]; then
    without_network build-12
    echo "without a network, make says so in one line"
  fi
  demo "build-$release"
  echo "make demo: dates are translated"
  [ "$release" = 12 ] || continue
  package build-12 use-12
  echo "the package compiles and runs the README's model"
  if [ -n "${TFM_BARE_CHECK:-}" ]; then
    inside build-12 make -C /root/tfmc check 2>&1 | tee "$bare/check.log" || fail "make check"
    grep -qx '== documents' "$bare/check.log" || fail "make check left out the commands of the documents"
    left=$(ls -A "$bare/build-12/tmp")
    [ -z "$left" ] || fail "make check leaves in /tmp: $left"
  fi
done
