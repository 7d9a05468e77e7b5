#!/usr/bin/env bash
# usage: sysroot.sh ARCH FOLDER
# Unpacks into FOLDER what of Debian a tfmc for another machine is built against and runs with: ARCH is arm64 (Debian 12) or
# riscv64 (Debian 13, the first that has it). apt works in FOLDER.apt, with lists of its own: nothing is installed here and
# the system's apt is left alone. A folder that is complete is left as it is. If the packages cannot be had it says why in
# one line and ends with 77.
set -euo pipefail
arch=$1 folder=$2
case $arch in
  arm64) suites=("bookworm " "bookworm-updates " "bookworm-security -security") ;; # and what its archive is called
  riscv64) suites=("trixie " "trixie-security -security") ;;
  *) echo "sysroot.sh: $arch is neither arm64 nor riscv64" >&2 && exit 2 ;;
esac
packages=(llvm-19-dev libjansson-dev libxxhash-dev libpopt-dev zlib1g-dev python3-dev)
[ "$arch" != arm64 ] || packages+=(libcriterion-dev libzstd-dev libstdc++-12-dev) # tests, wheels
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$folder" "$folder.apt"
folder=$(cd "$folder" && pwd) apt=$(cd "$folder.apt" && pwd)
[ ! -e "$folder/complete" ] || exit 0
command -v apt-get >/dev/null && [ -e "$keys" ] || { echo "no packages for $arch: this is no Debian" >&2; exit 77; }

mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: >"$apt/state/status"
for suite in "${suites[@]}"; do
  echo "deb [signed-by=$keys] http://deb.debian.org/debian${suite#* } ${suite% *} main"
done >"$apt/sources.list"
cat >"$apt/apt.conf" <<END
APT::Architecture "$arch";
APT::Architectures {"$arch";};
APT::Install-Recommends "false";
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
END
[ "$(id -u)" != 0 ] || echo 'APT::Sandbox::User "root";' >>"$apt/apt.conf"
export APT_CONFIG=$apt/apt.conf
apt-get -q update >"$apt/log" 2>&1 || true # a list that cannot be had just now may not be needed
if ! apt-get -q -y --download-only install "${packages[@]}" >>"$apt/log" 2>&1; then
  echo "no packages for $arch: $(grep '^E:' "$apt/log" | head -n 1)" >&2
  exit 77
fi

mkdir -p "$folder"/usr/{bin,sbin,lib}
for name in bin sbin lib; do [ -e "$folder/$name" ] || ln -s "usr/$name" "$folder/$name"; done
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$folder"
done
# Links that name a file of the other system from its root lead there from here too.
find "$folder" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
  ln -sfr "$folder$(readlink "$link")" "$link"
done
rm -rf "$apt"
touch "$folder/complete"
