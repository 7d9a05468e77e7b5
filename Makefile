# make            the compiler: build/release/tfmc (installs what is missing first)
# make check      everything that is quick: unit tests, golden cases on every instruction set, the command line
# make check-all  what takes long too: sanitizers, fuzzing, fault injection, other compilers
# make demo       a compiled model in a C program: written dates to ISO dates
# make demo-minilm  sentence search with a trained model (downloads 84 MB)
# make bench      how fast models run
# make install    into PREFIX (/usr/local), below DESTDIR if that is given
# make clean      removes build/
BUILD := build/release
TFMC := $(BUILD)/tfmc
PREFIX ?= /usr/local

.PHONY: all install check check-all demo demo-minilm bench clean dependencies configure

all: configure
	ninja -C $(BUILD) tfmc
	@echo "$(TFMC) is ready; $(TFMC) help says what it does"

install: configure
	ninja -C $(BUILD) install_parts
	DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)"

dependencies:
	@scripts/install-dependencies.sh

configure: dependencies
	@test -f $(BUILD)/build.ninja || cmake --preset release

check: all
	@scripts/check.sh $(BUILD)

check-all: check
	@scripts/check-all.sh

demo: all
	@examples/dates/demo.sh $(TFMC)

demo-minilm: all
	@examples/minilm/demo.sh $(TFMC)

bench: all
	@scripts/bench.sh $(TFMC)

clean:
	rm -rf build
