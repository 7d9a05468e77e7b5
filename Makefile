# make            the compiler: build/release/tfmc (installs what is missing first)
# make check      everything that is quick: unit tests, golden cases on every instruction set, the command line
# make check-all  what takes long too: sanitizers, fuzzing, fault injection, other compilers, bare machines
# make demo       a compiled model in a C program: written dates to ISO dates
# make train-demo trains that model from nothing, in two minutes or so, and uses it
# make demo-minilm  sentence search with a trained model (downloads 84 MB)
# make bench      how fast models run
# make install    into PREFIX (/usr/local), below DESTDIR if that is given
# make package    a Debian package: build/release/tfmc_VERSION_amd64.deb
# make wheels    the Python package: build/wheels/dist, checked and tested
# make clean      removes build/
#
# make BUILD=folder puts everything there, so the sources may be read-only (check-all uses build/ all the same).
# CC=clang make takes another compiler.
BUILD := build/release
TFMC = $(BUILD)/tfmc
PREFIX ?= /usr/local
# CC=command, given to make or in the environment; empty for the default.
COMPILER := $(if $(filter default undefined,$(origin CC)),,$(CC))
# Where scripts keep what they download and make beside the build.
export TFM_WORK := $(if $(filter build/release,$(BUILD)),build,$(BUILD))

.NOTPARALLEL:
.PHONY: all install package wheels check check-all demo train-demo demo-minilm bench clean configure

all: configure
	ninja -C "$(BUILD)" tfmc
	@echo "$(TFMC) is ready; $(TFMC) help says what it does"

configure:
	@scripts/install-dependencies.sh
	@scripts/configure.sh "$(BUILD)" "$(COMPILER)"

install: configure
	ninja -C "$(BUILD)" install_parts
	DESTDIR="$(DESTDIR)" cmake --install "$(BUILD)" --prefix "$(PREFIX)"

package:
	@scripts/install-dependencies.sh package
	@scripts/configure.sh "$(BUILD)" "$(COMPILER)"
	ninja -C "$(BUILD)" install_parts
	@scripts/package.sh "$(BUILD)"

wheels:
	@scripts/install-dependencies.sh wheels
	@scripts/wheels.sh "$(if $(filter build/release,$(BUILD)),build/wheels,$(BUILD))"

check:
	@scripts/install-dependencies.sh tests
	@scripts/configure.sh "$(BUILD)" "$(COMPILER)" tests
	@scripts/check.sh "$(BUILD)"

check-all: check
	@scripts/check-all.sh

demo: all
	@examples/dates/demo.sh "$(TFMC)"

train-demo: all
	@examples/dates/train_demo.sh "$(TFMC)"

demo-minilm: all
	@examples/minilm/demo.sh "$(TFMC)"

bench: all
	@scripts/bench.sh "$(TFMC)"

clean:
	@if [ "$(TFM_WORK)" = build ]; then rm -rf build; \
	elif [ -f "$(BUILD)/CMakeCache.txt" ]; then rm -rf "$(BUILD)"; fi
