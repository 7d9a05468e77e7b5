#!/usr/bin/env bash
# usage: demo.sh TFMC
# Builds the C program in build/dates ($TFM_WORK/dates), translates samples.txt with it and, on a terminal, what is typed.
set -euo pipefail
cd "$(dirname "$0")/../.."
made=${TFM_WORK:-build}/dates
echo "== tfmc compile, cc"
examples/dates/build.sh "$1" "$made"
samples=$PWD/examples/dates/samples.txt
cd "$made"
./dates <"$samples" >samples.out
echo
echo "== the dates of examples/dates/samples.txt"
paste "$samples" samples.out | expand -t 32
if [ -t 0 ]; then
  echo
  echo "== yours (the end of the file, Ctrl-D, ends)"
  ./dates
fi
