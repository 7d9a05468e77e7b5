#!/usr/bin/env bash
# usage: package.sh BUILD
# Makes BUILD/tfmc_VERSION_amd64.deb of what is built there, and says what it contains and needs.
set -euo pipefail
cd "$1"
rm -f tfmc_*.deb
cpack -G DEB >cpack.log 2>&1 || { cat cpack.log; exit 1; }
rm -rf _CPack_Packages
file=$(ls tfmc_*.deb)
dpkg-deb --contents "$file" | awk '{print $6}' | grep -v '/$'
dpkg-deb --field "$file" Depends Suggests
echo "$1/$file is ready; apt-get install ./$file, as root, installs it"
