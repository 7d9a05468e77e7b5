#!/usr/bin/env bash
# usage: check.sh BUILD
# Builds, then runs all quick tests: the programs of tests/unit and the scripts that ctest knows, the golden cases on
# every instruction set that this machine has and by the reference interpreter, random programs, and the tests that bits
# stay the same. It says what cannot be run here, and does not count it, and every eight seconds what runs. That nothing
# is left in the folder for temporary files is a test too. The last line is `N passed, N failed`; the exit code is 0 if
# none failed.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
tfmc=$build/tfmc
made=${TFM_WORK:-build}
python=$made/venv/bin/python
passed=0 failed=0

# ended NAME LOG CODE: adds up the last line of the log that has the form "N passed, N failed". A test without such a
# line did not come to its end, which counts as a failure.
ended() {
  grep -vE '^ok |Test +#[0-9]+: .* Passed ' "$2"
  local line
  line=$(grep -Eo '[0-9]+ passed, [0-9]+ failed' "$2" | tail -n 1)
  if [ -z "$line" ]; then
    failed=$((failed + 1))
    echo "FAIL $1: it did not come to its end"
    return
  fi
  local n=${line%% *} m=${line##*, }
  passed=$((passed + n)) failed=$((failed + ${m%% *}))
}

work=$(mktemp -d)
chmod 711 "$work" # a test runs as another user
trap 'progress_end; rm -rf "$work"' EXIT
# The tests' own folder for temporary files, so that those they leave are found.
mkdir "$work/tmp"
export TMPDIR=$work/tmp

. scripts/stages.sh
. scripts/progress.sh

not_run() { echo "not run: $1 ($2)"; }

unit_tests() {
  local log
  log=$(mktemp)
  ctest --test-dir "$build" --output-on-failure -j "$jobs_at_once" 2>&1 | tee "$log" | grep --line-buffered -v 'Start ' >&2
  local total bad skipped
  total=$(grep -Eo 'out of [0-9]+' "$log" | tail -n 1 | grep -Eo '[0-9]+')
  bad=$(grep -Eo '[0-9]+ tests? failed' "$log" | tail -n 1 | grep -Eo '^[0-9]+')
  skipped=$(grep -c '\*\*\*Skipped' "$log")
  rm -f "$log"
  [ -n "$total" ] && [ "$total" -gt 0 ] && echo "$((total - bad - skipped)) passed, $bad failed, $skipped not run"
}

goldens() {
  GOLDEN_WEIGHTS="$made/weights" "$python" tests/goldens/check.py "$tfmc" tests/goldens tests/goldens/ragged \
    tests/goldens/lang11 tests/goldens/state tests/cases "$@"
}

train_goldens() { "$python" tests/goldens/check_train.py "$tfmc" tests/goldens/train "$@"; }

# A word, if the Python package is part of this build (python/CMakeLists.txt).
has_package() { [ -d "$build/python/CMakeFiles/tfm_python.dir" ] && echo "$1"; }

progress_begin running

echo "== build"
if ! cmake --build "$build" --target tfmc unit_tests $(has_package python_package); then
  echo "0 passed, 1 failed"
  exit 1
fi

# A locale with decimal commas, for the tests that numbers are read the same everywhere.
mkdir -p "$made/locales"
LOCPATH=$(cd "$made/locales" && pwd)
export LOCPATH
[ -d "$LOCPATH/de_DE.UTF-8" ] || localedef -i de_DE -f UTF-8 "$LOCPATH/de_DE.UTF-8"

# Every kernel is made once, by the first test that needs it, for all: most models here have most of theirs in common, and
# to make them is most of the work. The folder is new, so nothing comes from an earlier check. What is not run in the
# process that makes it (libraries) does not come from there; tests of the cache name folders of their own.
export TFM_CACHE_DIR=$work/compiled

have_python=yes
scripts/python-environment.sh || have_python=
have_weights=
[ -n "$have_python" ] && scripts/fetch-weights.sh && have_weights=yes

stage_alone "unit tests" unit_tests # with all processors

if [ -z "$have_python" ]; then
  not_run "golden cases, random programs, checkpoints, the same bits" "no Python with numpy and safetensors"
else
  # First what waits longest.
  if [ -n "$(has_package yes)" ]; then
    if "$python" -c 'import starlette, uvicorn, httptools, uvloop, orjson, prometheus_client, jinja2' 2>/dev/null; then
      stage "tfmc-serve" env PYTHONPATH="$build/python" TFM_COMPILER="$tfmc" "$python" python/serve/tests/run_serve.py
    else
      not_run "tfmc-serve" "the packages that it requires could not be installed"
    fi
    stage "the Python package" env PYTHONPATH="$build/python" TFM_COMPILER="$tfmc" "$python" python/tests/run.py
  else
    not_run "the Python package" "no headers of Python 3.11 or later"
  fi
  for march in x86-64-v4 x86-64-v3 x86-64; do
    lacks=$("$tfmc" info | sed -n "s/^-march=$march cannot run here: //p")
    if [ -n "$lacks" ]; then not_run "golden cases with -march=$march" "$lacks"; continue; fi
    stage "golden cases, -march=$march" goldens "--option=-march=$march"
    stage "golden cases of training, -march=$march" train_goldens "--option=-march=$march"
  done
  stage "golden cases, nothing fused" goldens --option=-O0
  stage "golden cases of training, nothing fused" train_goldens --option=-O0
  stage "golden cases, one thread" goldens --option=--threads=1
  stage "golden cases, reference interpreter" goldens --option=--engine=reference
  stage "golden cases through libraries" env GOLDEN_WEIGHTS="$made/weights" "$python" \
    tests/e2e/test_library_goldens.py "$tfmc" tests/goldens tests/goldens/lang11 tests/goldens/state \
    tests/cases --in-turn
  stage "golden cases through libtfm" env GOLDEN_WEIGHTS="$made/weights" "$python" tests/libtfm/goldens.py \
    "$build/libtfm.so" "$tfmc" tests/goldens
  stage "libraries for other machines" "$python" tests/e2e/test_targets.py "$tfmc"
  stage "tiles of other machines, rates by llvm-mca" "$python" tests/e2e/test_tile_rates.py "$tfmc"
  stage "libraries for other machines, run" "$python" tests/e2e/cross.py "$tfmc" --threads=2 \
    tests/goldens/{encoder-stack,hf-llama,hf-mixtral,prim-pointwise,mha-masked-rows,q8-encoder,q4-linear,gen-gpt2-beam} \
    tests/cases/{q4-mxfp4a8,q4-groups}
  stage "libraries for other machines, choices of the CPU" "$python" tests/e2e/cross.py "$tfmc" --choices \
    tests/goldens/q8-linear-odd
  stage "libraries for other machines, in programs" "$python" tests/e2e/test_cross_host.py "$tfmc"
  stage "libraries that train, for other machines" "$python" tests/e2e/cross_train.py "$tfmc" \
    tests/goldens/train/train-{adamw,mha-causal}
  stage "libraries for AArch64, int8 and int4" "$python" tests/e2e/cross.py "$tfmc" --target=aarch64-linux-gnu \
    --march=armv8.2-a-dotprod --march=armv8.6-a-i8mm --threads=2 --qemu-option=-cpu --qemu-option=max \
    tests/goldens/{q8-encoder,q8-outliers,q4-linear} tests/cases/{q4-mxfp4a8,q4-groups,q8-long}
  stage "libraries for RISC-V with vectors of 256 bits" "$python" tests/e2e/cross.py "$tfmc" --target=riscv64-linux-gnu \
    --march=rv64gcv-zvl256b --threads=2 --qemu-option=-cpu --qemu-option=rv64,v=true,vlen=256,vext_spec=v1.0 \
    tests/goldens/{encoder-stack,hf-llama,q8-encoder,gen-gpt2-beam} tests/cases/{q4-mxfp4a8,q4-groups}
  stage "functions of a double, on every machine" "$python" tests/e2e/test_double_bits.py "$tfmc"
  stage "WebAssembly modules" "$python" tests/e2e/test_web.py "$tfmc"
  stage "WebAssembly modules as commands" "$python" tests/e2e/test_wasi.py "$tfmc"
  stage "WebAssembly modules of whole models" "$python" tests/e2e/test_web_models.py "$tfmc"
  stage "the pages of other machines and the browser" "$python" tests/e2e/test_machine_pages.py "$tfmc"
  stage "WebAssembly modules, golden cases" "$python" tests/e2e/wasm.py "$tfmc" \
    tests/goldens/{encoder-stack,hf-mixtral,prim-pointwise,q8-encoder,gen-gpt2-beam} tests/cases/{q4-mxfp4a8,q4-groups}
  stage "weights in MXFP4" "$python" tests/e2e/test_mxfp4.py "$tfmc"
  stage "weights in groups of 4 bits" "$python" tests/e2e/test_q4.py "$tfmc"
  stage "golden cases of generation" goldens --generate
  stage "generation" "$python" tests/e2e/test_generate.py "$tfmc"
  stage "generation, refusals" "$python" tests/e2e/test_generate_refusals.py "$tfmc"
  stage "generation, other outputs" "$python" tests/e2e/test_generate_outputs.py "$tfmc"
  stage "random decoding" "$python" tests/differential/decoding.py "$build/libtfm.so"
  stage "random generative models" "$python" tests/differential/causal.py "$tfmc" --count "${TFM_RANDOM_PROGRAMS:-60}"
  stage "random programs" "$python" tests/differential/run.py "$tfmc" --count "${TFM_RANDOM_PROGRAMS:-60}"
  stage "random gradients" "$python" tests/differential/gradients.py "$tfmc" --count "${TFM_RANDOM_PROGRAMS:-20}"
  stage "unusual inputs" "$python" tests/e2e/test_inputs.py "$tfmc"
  stage "unusual inputs of libraries" "$python" tests/e2e/test_library_inputs.py "$tfmc"
  stage "the style of models" "$python" tests/e2e/test_fmt.py "$tfmc" .
  stage "the language server" "$python" tests/e2e/test_lsp.py "$tfmc" .
  if "$python" -c 'import pytest_lsp' 2>/dev/null; then
    stage "sessions of editors" "$python" tests/e2e/test_lsp_session.py "$tfmc"
  else
    not_run "sessions of editors" "pytest-lsp could not be installed"
  fi
  stage "what is shown is what runs" "$python" tests/e2e/test_shown.py "$tfmc" .
  stage "looking inside: data and page" "$python" tests/e2e/test_explore.py "$tfmc" .
  stage "looking inside: workspace" "$python" tests/e2e/test_explore_workspace.py "$tfmc" .
  if [ -n "$(command -v chromium)" ] && /usr/bin/python3 -c 'import selenium' 2>/dev/null; then
    stage "looking inside: the page in a browser" /usr/bin/python3 tests/e2e/test_explore_page.py "$tfmc" .
  else
    not_run "the page of tfmc explore in a browser" "no chromium, chromium-driver or python3-selenium"
  fi
  stage "checkpoints of transformers" "$python" tests/models/test_models.py "$tfmc" tests/models/cases
  stage "reports of models with states" "$python" tests/models/test_reports.py "$tfmc" tests/models/cases
  stage "tables of vectors" "$python" tests/models/test_models.py "$tfmc" tests/models/tables
  stage "models that transformers has no class for" "$python" tests/models/test_models.py "$tfmc" tests/models/by_hand
  stage "configs of older versions of transformers" "$python" tests/models/test_ages.py "$tfmc" tests/models/cases
  stage "checkpoints with one key or one tensor changed" "$python" tests/models/test_mutations.py "$tfmc" tests/models/cases \
    tests/models/mutations
  stage "import, refusals" "$python" tests/models/test_import.py "$tfmc" tests/models/cases
  stage "import, an account of tensors and keys" "$python" tests/models/test_account.py "$tfmc" tests/models/cases
  stage "import, what a refused folder is told" "$python" tests/models/test_refusals.py "$tfmc" tests/models/cases
  stage "import, values" "$python" tests/models/test_values.py "$tfmc" tests/models/cases
  stage "import, shapes of tensors that are left out" "$python" tests/models/test_unread_shapes.py "$tfmc" tests/models/cases
  stage "import, GGUF" "$python" tests/models/test_gguf.py "$tfmc" tests/models/cases
  stage "weights packed in few bits" "$python" tests/models/test_packed_weights.py "$tfmc" tests/models/cases
  stage "folders of packed weights with one thing changed" "$python" tests/models/test_packed_mutations.py "$tfmc" \
    tests/models/cases --thin 9
  stage "import, adapters" "$python" tests/models/test_adapters.py "$tfmc" tests/models/cases
  stage "import, files of a folder" "$python" tests/models/test_folders.py "$tfmc" tests/models/cases
  stage "import, sparse vectors, vectors of tokens, tables" "$python" tests/models/test_sentence_modules.py "$tfmc" tests/models/cases
  stage "import, settings that decide numbers" "$python" tests/models/test_settings.py "$tfmc" tests/models/cases
  stage "import, words that nobody knows" "$python" tests/models/test_words.py "$tfmc" models
  stage "import, keys that change nothing" "$python" tests/models/test_unchanging.py "$tfmc" tests/models/cases
  stage "import, one config with every key changed" "$python" tests/models/fuzz_configs.py "$tfmc" tests/models/cases deberta_v3
  stage "documents" "$python" tests/e2e/test_documents.py "$build"
  stage "examples of the language" "$python" tests/e2e/test_language_page.py "$tfmc"
  stage "the same bits" env GOLDEN_WEIGHTS="$made/weights" "$python" tests/e2e/test_bits.py "$tfmc" tests/goldens
  stage "states" "$python" tests/e2e/test_states.py "$tfmc"
  stage "sums of long rows" "$python" tests/e2e/test_row_sums.py "$tfmc"
  stage "gradients of long batches" "$python" tests/e2e/test_gradient_sums.py "$tfmc"
  if [ -n "$have_weights" ]; then
    stage "examples" "$python" tests/e2e/test_examples.py "$tfmc"
  else
    stage "examples" "$python" tests/e2e/test_examples.py "$tfmc" --small
    not_run "the golden case minilm, the examples with it" "their weights could not be downloaded"
  fi
fi

finish_stages

left_over() {
  local left
  left=$(find "$work/tmp" -mindepth 1 -maxdepth 1 -printf ' %f')
  echo "$([ -n "$left" ]; echo $?) passed, $([ -z "$left" ]; echo $?) failed${left:+; left behind:$left}"
}
stage "nothing is left in the folder for temporary files" left_over
finish_stages
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
