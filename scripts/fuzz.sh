#!/usr/bin/env bash
# usage: fuzz.sh [SECONDS [TARGET...]]
# Builds the fuzz targets and runs each for SECONDS (60), starting from the golden cases and from what earlier runs
# found. Ends with 1 if one of them finds something; the input that shows it is in build/fuzz/corpus/TARGET.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz || exit 1
ninja -C build/fuzz fuzz_targets || exit 1
targets=("$@")
[ ${#targets[@]} -gt 0 ] || for file in tests/fuzz/fuzz_*.c; do targets+=("$(basename "$file" .c)"); done

# What a target starts from: small files of the kind that it reads.
seeds() {
  case $1 in
    fuzz_safetensors) find tests/fuzz/corpus_safetensors tests/goldens -name '*.safetensors' -size -8k ;;
    fuzz_npy) find tests/fuzz/corpus_npy -type f ;;
    fuzz_gguf) find tests/fuzz/corpus_gguf -type f ;;
    fuzz_graph) find tests/fuzz/corpus_graph -type f ;;
    *) find tests/fuzz/corpus_tfm tests/goldens examples compiler/elaborate/std -name '*.tfm' -size -16k ;;
  esac
  find tests/fuzz/regressions -type f
}

dictionary() {
  case $1 in
    fuzz_parse | fuzz_language | fuzz_format | fuzz_lsp) echo tests/fuzz/tfm.dict ;;
    *) echo "tests/fuzz/$1.dict" ;;
  esac
}

result=0
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  number=0
  for file in $(seeds "$target"); do cp -n "$file" "$corpus/seed-$((number++))"; done
  words=()
  [ -f "$(dictionary "$target")" ] && words=("-dict=$(dictionary "$target")")
  echo "== $target, $seconds s"
  build/fuzz/tests/fuzz/$target -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$corpus/found-" "${words[@]}" "$corpus" 2>&1 | grep -E 'stat::number_of_executed|ERROR|judge|SUMMARY'
  [ "${PIPESTATUS[0]}" = 0 ] || { echo "FAIL $target"; result=1; }
done
exit $result
