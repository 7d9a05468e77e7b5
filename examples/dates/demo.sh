#!/usr/bin/env bash
# usage: demo.sh TFMC
# Builds the C program in build/dates, translates samples.txt with it and, on a terminal, what is typed.
set -euo pipefail
cd "$(dirname "$0")/../.."
echo "== tfmc compile, cc"
examples/dates/build.sh "$1" build/dates
cd build/dates
echo
echo "== the dates of examples/dates/samples.txt"
paste ../../examples/dates/samples.txt <(./dates <../../examples/dates/samples.txt) | expand -t 32
if [ -t 0 ]; then
  echo
  echo "== yours (the end of the file, Ctrl-D, ends)"
  ./dates
fi
