# Wirescope's doors. `make help` lists them.

MAKEFLAGS += --no-print-directory
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
LIVE_DEMO := $(filter-out 0 no off,$(LIVE))
SCRIPTS := $(CURDIR)/scripts
SOAK := $(if $(filter store api,$(BENCH)),$(BENCH)-soak,soak)
SOAK_MINUTES ?= $(if $(filter store,$(BENCH)),20,30)

.PHONY: help demo test test-ten test-peers bench soak fuzz fuzz-filters lint build models tsan fences licences pages deb deb-test clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo          the main job on generated traffic, without privileges; the last line is the path of the dump'
	@echo 'make demo LIVE=1   the same between two network namespaces, as root'
	@echo 'make test          every test; CAPTURES=DIR adds the capture files of a folder'
	@echo 'make test-ten      make test ten times in a row in a fresh clone beside two busy loops; the last line is: test_passes N'
	@echo 'make test-peers    what statistics write, as nfdump, DuckDB and pandas read it, which are fetched; CAPTURES=DIR adds capture files'
	@echo 'make bench         the measured bars; BENCH=main, filter, ring, live, truth, store, query, api, signals, flows or share picks a part; BEFORE=PATH adds the row stages_cost against another build'
	@echo 'make soak          half an hour of a live run to which everything happens, as root; BENCH=store: 20 minutes of a store on disks that fail; BENCH=api: 100,000 requests by chance; SOAK_MINUTES=N takes another time'
	@echo 'make fuzz-filters  10 million pairs of filter and packet in all engines; PAIRS=N and SEED=N choose others'
	@echo 'make fuzz          every parser of foreign bytes: its kept inputs, then new ones for 10 s; FUZZ_SECONDS=N and FUZZ=TARGET choose others'
	@echo 'make lint          format and clippy'
	@echo 'make models        the orderings of the ring, in every order that the memory model allows, and with seeded faults'
	@echo 'make tsan          the ring under ThreadSanitizer'
	@echo 'make fences        what commit and seal of the ring store last, read from the compiled code'
	@echo 'make licences      licences and sources of what is built in, and the notices of the package; WRITE=1 writes these anew'
	@echo 'make pages         docs/reference/flags.md, routes.md, event-log.md, statistics.md and openapi.json, from the tables of flags, events and routes'
	@echo 'make build         the release binary, $(TARGET_DIR)/release/wirescope'
	@echo 'make deb           a Debian package with the service, $(TARGET_DIR)/deb/wirescope_*.deb; deb-test installs it into a copy of this system'
	@echo 'make clean         removes what was built'
	@echo 'demo, test, bench, lint and build install what is missing (gcc, libpcap-dev; the tests: tcpdump, tshark, tcpreplay, iproute2, e2fsprogs; the benches: these and fio; fences: binutils; fuzz: g++).'

build:
	@$(SCRIPTS)/install-missing.sh build
	@echo 'building Wirescope (about 3 minutes the first time, seconds later)'
	@cargo build --release --locked --workspace

demo:
	@$(SCRIPTS)/install-missing.sh $(if $(LIVE_DEMO),live,build)
	@$(if $(LIVE_DEMO),$(SCRIPTS)/as-root.sh true,:)
	@echo 'building Wirescope (about 3 minutes the first time, seconds later)'
	@cargo build --release --locked --workspace
	@echo 'running the demo (half a minute at most)'
	@$(if $(LIVE_DEMO),$(SCRIPTS)/as-root.sh) $(TARGET_DIR)/release/wirescope demo $(if $(LIVE_DEMO),--live)

test:
	@$(SCRIPTS)/install-missing.sh test
	@$(SCRIPTS)/test.sh

test-ten:
	@$(SCRIPTS)/install-missing.sh test
	@CARGO_TARGET_DIR=$(TARGET_DIR) $(SCRIPTS)/test-ten.sh $(or $(RUNS),10)

test-peers:
	@$(SCRIPTS)/install-missing.sh peers
	@$(SCRIPTS)/test-peers.sh $(TARGET_DIR)/peers

bench:
	@$(SCRIPTS)/install-missing.sh bench
	@PATH="$$PATH:/usr/sbin:/sbin" $(SCRIPTS)/fetch-peers.sh $(TARGET_DIR)/peers
	@echo 'building Wirescope and its benches (about 3 minutes the first time, seconds later)'
	@cargo build --release --locked --workspace
	@echo 'measuring $(or $(BENCH),everything) (several minutes; keep the machine quiet)'
	@PATH="$$PATH:/usr/sbin:/sbin" $(TARGET_DIR)/release/benches $(BENCH)

soak:
	@$(SCRIPTS)/install-missing.sh test
	@echo 'building Wirescope and its benches (about 3 minutes the first time, seconds later)'
	@cargo build --release --locked --workspace
	@echo 'soaking for $(SOAK_MINUTES) minutes'
	@PATH="$$PATH:/usr/sbin:/sbin" $(SCRIPTS)/as-root.sh $(TARGET_DIR)/release/benches $(SOAK) --minutes $(SOAK_MINUTES)

fuzz-filters:
	@$(SCRIPTS)/install-missing.sh build
	@echo 'comparing bpf_filter, the interpreter and machine code, and screening with the filters (about 5 minutes)'
	@PAIRS=$(or $(PAIRS),10000000) SEED=$(or $(SEED),1) cargo test --release --locked --workspace --lib -- \
		--ignored --nocapture for_as_long_as_is_asked

fuzz:
	@$(SCRIPTS)/install-missing.sh fuzz
	@FUZZ_TARGET_DIR=$(TARGET_DIR)/fuzz $(SCRIPTS)/fuzz.sh $(or $(FUZZ_SECONDS),10) $(FUZZ)

lint:
	@$(SCRIPTS)/install-missing.sh build
	@echo 'checking the format'
	@cargo fmt --all --check
	@echo 'running clippy (about 2 minutes the first time)'
	@cargo clippy --release --locked --workspace --all-targets -- -D warnings

models:
	@$(SCRIPTS)/install-missing.sh build
	@echo 'building and running the models (about 3 minutes the first time, 1 later)'
	@cd models && RUST_BACKTRACE=0 CARGO_TARGET_DIR=$(TARGET_DIR)/models cargo test --release --locked -- --nocapture --test-threads 1

tsan:
	@$(SCRIPTS)/install-missing.sh build
	@TSAN_TARGET_DIR=$(TARGET_DIR)/tsan $(SCRIPTS)/tsan.sh

fences:
	@$(SCRIPTS)/install-missing.sh fences
	@$(SCRIPTS)/check-fences.sh --self-test
	@$(SCRIPTS)/check-fences.sh

licences:
	@$(SCRIPTS)/install-missing.sh build
	@TOOLS_DIR=$(TARGET_DIR)/tools $(SCRIPTS)/licences.sh $(if $(WRITE),write,check)

pages:
	@$(SCRIPTS)/install-missing.sh build
	@echo 'building and writing docs/reference/flags.md, routes.md, event-log.md, statistics.md and openapi.json (about 3 minutes the first time)'
	@WRITE_PAGES=1 cargo test --quiet --release --locked --workspace --bins --lib -- flags_page page::

deb: build
	@echo 'making the Debian package'
	@$(SCRIPTS)/deb.sh $(TARGET_DIR)/release/wirescope $(TARGET_DIR)/deb

deb-test: build
	@$(SCRIPTS)/deb-test.sh "$$($(SCRIPTS)/deb.sh $(TARGET_DIR)/release/wirescope $(TARGET_DIR)/deb)"

clean:
	@cargo clean
