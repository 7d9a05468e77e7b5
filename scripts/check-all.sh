#!/usr/bin/env bash
# usage: check-all.sh
# Runs what `make check` leaves out because it takes long: the warnings of another compiler, sanitizers, fuzzing
# (TFM_FUZZ_SECONDS seconds for each target, 600 by default), faults of the disk, kills, more random programs. The last
# line is `N passed, N failed`, of stages; the exit code is 0 if none failed. Stages run side by side (stages.sh);
# what they need is built before they begin.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/install-dependencies.sh all || exit 1
export TFM_CACHE_DIR= # no cache of compiled code: tests must compile anew
passed=0 failed=0
work=$(mktemp -d)
trap 'progress_end; rm -rf "$work"' EXIT
. scripts/stages.sh
. scripts/progress.sh
progress_begin running

# ended NAME LOG CODE: counts the stage. Exit code 77 says that it cannot be run here.
ended() {
  cat "$2"
  case $3 in
    0) passed=$((passed + 1)) ;;
    77) echo "not run: $1" ;;
    *) failed=$((failed + 1)); echo "FAIL $1" ;;
  esac
}

# preset NAME TARGET...: configures and builds.
preset() {
  local name=$1
  shift
  [ -f "build/$name/build.ninja" ] || cmake --preset "$name" >/dev/null || return 1
  cmake --build "build/$name" --target "$@" | tail -n 3
}

tests_of() { ctest --test-dir "build/$1" --output-on-failure -j "$jobs_at_once" | grep -vE 'Passed|Start '; }

sanitized_goldens() {
  GOLDEN_WEIGHTS=build/weights ASAN_OPTIONS=detect_leaks=1 build/venv/bin/python tests/goldens/check.py \
    build/asan/tfmc tests/goldens "$@" | tail -n 5
}

threaded_goldens() {
  build/venv/bin/python tests/goldens/check.py build/tsan/tfmc \
    tests/goldens/{encoder-long,hf-bert,hf-llama,model-translator} --option=--threads=4 | tail -n 5
}

threaded_generation() {
  build/venv/bin/python tests/goldens/check.py build/tsan/tfmc tests/goldens --generate --option=--threads=8 | tail -n 5
}

# sanitized_training SANITIZER OPTION...: gradients, steps and refusals of training.
sanitized_training() {
  local sanitizer=$1
  shift
  python3 tests/goldens/check_train.py "build/$sanitizer/tfmc" tests/goldens/train "$@" | tail -n 5
}

stage_alone "warnings of clang" preset clang tfmc unit_tests
if preset asan tfmc unit_tests; then
  stage_alone "unit tests, addresses and undefined behaviour" tests_of asan
  stage "golden cases, the same" sanitized_goldens
  stage "golden cases, the same, reference interpreter" sanitized_goldens tests/goldens/ragged --option=--engine=reference
  stage "golden cases of training, the same" sanitized_training asan
else
  stage "build with the address sanitizer" false
fi
if preset tsan tfmc unit_tests; then
  stage_alone "threads" tests_of tsan
  stage "golden cases, four threads" threaded_goldens
  stage "golden cases of generation, eight threads" threaded_generation
  stage "golden cases of training, four threads" sanitized_training tsan --option=--threads=4
else
  stage "build with the thread sanitizer" false
fi
for option in -march=x86-64-v3 -march=x86-64 --engine=reference --recompute; do
  stage "golden cases of generation, $option" build/venv/bin/python tests/goldens/check.py build/release/tfmc \
    tests/goldens tests/cases --generate "--option=$option"
done
stage "golden cases on other machines" build/venv/bin/python tests/e2e/cross.py build/release/tfmc --everywhere \
  tests/goldens tests/goldens/lang11 tests/goldens/state tests/cases
stage "functions of single numbers on other machines" build/venv/bin/python tests/e2e/cross_pointwise.py build/release/tfmc
stage "golden cases on RISC-V without vectors" build/venv/bin/python tests/e2e/cross.py build/release/tfmc \
  --target=riscv64-linux-gnu --march=rv64gc --threads=2 --qemu-option=-cpu --qemu-option=rv64 tests/goldens
stage "libraries that train, on other machines" build/venv/bin/python tests/e2e/cross_train.py build/release/tfmc
# Some of each kind: an emulated compiler takes ten times as long.
other_host() {
  scripts/cross-build.sh "$1" && build/venv/bin/python tests/e2e/cross_tfmc.py build/release/tfmc "build/$1" "$2" \
    tests/goldens/{encoder-stack,hf-llama,mha-masked-rows,q8-encoder,q4-linear,gen-gpt2-beam} \
    tests/goldens/train/train-{adamw,mha-causal,mixing-softmax}
}
stage "a tfmc for arm64" other_host arm64 --threads=2
stage "a tfmc for riscv64" other_host riscv64 --threads=1 # of more qemu 7.2 ends by an assertion of its own
stage "golden cases as WebAssembly modules" build/venv/bin/python tests/e2e/wasm.py build/release/tfmc tests/goldens \
  tests/goldens/lang11 tests/goldens/state tests/cases
pages_of_machines() { TFM_LONG=1 build/venv/bin/python tests/e2e/test_machine_pages.py build/release/tfmc; }
stage "the pages of other machines and the browser" pages_of_machines
stage "random decoding" build/venv/bin/python tests/differential/decoding.py build/release/libtfm.so --first 1000 \
  --count 20000
threads_of_libraries() { python3 tests/e2e/test_library_threads.py build/release/tfmc . "$@"; }
stage "sixteen threads on four libraries, thread sanitizer" threads_of_libraries --alone=200 --sanitize=thread
stage "the same, addresses and undefined behaviour" threads_of_libraries --alone=2000 --sanitize=address --sanitize=undefined
stage "the same, and a million runs of each alone" threads_of_libraries --alone=1000000
writing() { python3 tests/e2e/test_library_writing.py build/release/tfmc . "$@"; }
stage "generative libraries, thread sanitizer" writing --runs=100 --sanitize=thread
stage "the same, addresses and undefined behaviour" writing --runs=100 --sanitize=address --sanitize=undefined
threads_of_training() { python3 tests/e2e/test_train_threads.py build/release/tfmc . "$@"; }
stage "training by many threads, thread sanitizer" threads_of_training --runs=6 --sanitize=thread
stage "the same, addresses and undefined behaviour" threads_of_training --runs=6 --sanitize=address --sanitize=undefined
if cmake --build build/release --target libtfm_limits test_decoding_bits bench-compare >/dev/null; then
  stage "a thousand models compiled, run and freed" env TFM_TEST_CYCLES=1000 TFM_COMPILER=build/release/tfmc \
    build/release/tests/libtfm/libtfm_limits
  stage_alone "beside PyTorch" "${PYTHON:-build/venv/bin/python}" bench/versus_torch.py build/release/bench-compare
else stage "libtfm_limits, test_decoding_bits, bench-compare" false; fi
stage_alone "what a change costs: every patch built and tried" python3 tests/meta/check_cost.py . --build build/cost --together
stage "fuzzing" scripts/fuzz.sh "${TFM_FUZZ_SECONDS:-600}"
stage "wheels" scripts/wheels.sh build/wheels
stage "wheels for AArch64" scripts/wheels-arm64.sh build/wheels-arm64
package_long() {
  [ -d build/release/python/CMakeFiles/tfm_python.dir ] || return 77 # no headers of Python
  cmake --build build/release --target python_package >/dev/null &&
    TFM_LONG=1 PYTHONPATH=build/release/python TFM_COMPILER=build/release/tfmc build/venv/bin/python python/tests/run.py \
      test_generate.Streams test_file test_fit.Runs test_fit_batches.Runs test_mixed test_trainer_goldens
}
stage "the Python package, 10,000 streams, kills, mixed results by ranks, all cases of training" package_long
serve_long() {
  build/venv/bin/python -c 'import starlette, uvicorn, httptools, uvloop, orjson, prometheus_client, jinja2' || return 77
  TFM_LONG=1 PYTHONPATH=build/release/python TFM_COMPILER=build/release/tfmc build/venv/bin/python \
    python/serve/tests/run_serve.py test_serve_load test_serve_completions.Bits
}
stage "tfmc-serve, ten minutes of load" serve_long
stage "tfmc-serve, clients of others, unchanged" scripts/serve-clients.sh
stage "the Python package, addresses and undefined behaviour" scripts/python-sanitized.sh address
stage "the Python package, threads" scripts/python-sanitized.sh thread
serve_threads() {
  build/venv/bin/python -c 'import starlette, uvicorn, httptools, uvloop, orjson, prometheus_client, jinja2' || return 77
  scripts/python-sanitized.sh thread test_serve_{load,batcher,completions,pieces,guesses,ending}
}
stage "tfmc-serve, threads" serve_threads
corpus() {
  [ -d build/release/python/CMakeFiles/tfm_python.dir ] || return 77 # no headers of Python
  cmake --build build/release --target python_package >/dev/null && scripts/corpus-tests.sh
}
stage "corpora: kills, parquet, Ray" corpus
firefox_page() {
  [ -n "$(command -v firefox-esr)" ] && /usr/bin/python3 -c 'import selenium' 2>/dev/null || return 77
  /usr/bin/python3 tests/e2e/test_explore_firefox.py build/release/tfmc .
}
stage "looking inside: the page in Firefox" firefox_page
stage "cost of compiling" python3 tests/e2e/test_compile_cost.py build/release/tfmc
stage "faults and kills" python3 tests/e2e/test_faults.py build/release/tfmc 1000
stage "faults and kills of compile and pack" python3 tests/e2e/test_library_faults.py build/release/tfmc 400
stage "golden cases through libraries, each on every instruction set" env GOLDEN_WEIGHTS="$PWD/build/weights" \
  build/venv/bin/python tests/e2e/test_library_goldens.py build/release/tfmc tests/goldens tests/goldens/lang11 \
  tests/goldens/state tests/cases
stage "golden cases through libraries that no linker made" env GOLDEN_WEIGHTS="$PWD/build/weights" build/venv/bin/python \
  tests/e2e/test_library_goldens.py build/release/tfmc tests/goldens tests/goldens/lang11 tests/cases --cc=none
for engine in native reference library; do
  stage "random generative models, $engine" build/venv/bin/python tests/differential/causal.py build/release/tfmc \
    --first 1000 --count 500 --engine "$engine"
done
random_decoding_bits() {
  rm -rf build/causal
  build/venv/bin/python tests/differential/causal.py build/release/tfmc --count 40 --write-cases build/causal &&
    TFM_DECODING_CASES="$PWD/build/causal" build/release/tests/test_decoding_bits
}
stage "bits of decoding, random models" random_decoding_bits
stage "random gradients" build/venv/bin/python tests/differential/gradients.py build/release/tfmc --seed 2 --count 2000
training() { "${PYTHON:-build/venv/bin/python}" tests/differential/training.py build/release/tfmc "$1"; }
for run in 00{0..4} 00{0..4}-dropout gpt2 dates; do stage "training, $run" training "$run"; done
stage "random programs" build/venv/bin/python tests/differential/run.py build/release/tfmc --first 1000 --count 500
stage "checkpoints, rows of batches" env PYTHONPATH=build/release/python TFM_COMPILER="$PWD/build/release/tfmc" \
  build/venv/bin/python -W ignore tests/models/test_rows.py tests/models/cases
stage "dropouts of imported families, beside transformers" "${PYTHON:-build/venv/bin/python}" tests/models/test_dropouts.py \
  build/release/tfmc tests/models/cases
stage "what is kept of transformers' refusals" "${PYTHON:-build/venv/bin/python}" tests/models/test_theirs.py
stage "import, configs of all types with every key changed" build/venv/bin/python tests/models/fuzz_configs.py \
  build/release/tfmc tests/models/cases
stage_alone "bare machines: Debian 12 and 13" env TFM_BARE_CHECK=yes scripts/bare-debian.sh

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
