# Falcon. `make help` lists the targets that a change needs, `make targets` all.
# What is no target here is a play of .ci/plays.toml.
# Everything a target needs beyond Go, gcc and make it installs itself into
# .tools/ (pinned versions), so that a clean machine can run `make check`.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN   := $(CURDIR)/bin
TOOLS := $(CURDIR)/.tools/bin
FUZZTIME ?= 2s

# go-nvml's headers mark old NVML calls as deprecated: thousands of warnings
# that are not ours.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
export PATH := $(TOOLS):$(PATH)
# A cache per checkout: golangci-lint keeps findings under the path of the tree
# it met them in, and reports them again in another one that has equal files.
export GOLANGCI_LINT_CACHE := $(BIN)/.golangci-lint

GOLANGCI := $(TOOLS)/golangci-lint
BUF      := $(TOOLS)/buf
PROTOC_GO   := $(TOOLS)/protoc-gen-go
PROTOC_GRPC := $(TOOLS)/protoc-gen-go-grpc

.PHONY: help targets build native demo test check nightly times tables results lint fmt size arrows proto proto-check native-test native-asan native-tsan native-arm64 nccl-matrix xla-nccl gpu tier-test tier-check tier-night fuzz bench python python-test python-all python-torch clean

help: ## list the four targets that a change needs
	@grep -hE '^(demo|test|check|nightly):.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-8s %s\n", $$1, $$2}'
	@echo '  targets  list the others'

targets: ## list all targets, and the plays of the night
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'
	@echo 'plays (.ci/plays.toml), one with other counts as in: make node-pauses NODE_PAUSES=5'
	@go -C docs/proof run ./night -list

# What a program says of itself: a tag, or the commit.
STAMP := $(shell git describe --tags --always --dirty 2>/dev/null)
build: native ## build bin/falcon, bin/falcon-agent, bin/falcon-trainer and bin/lib
	go build -ldflags "-X github.com/failslow/falcon/backend/api/version.stamp=$(STAMP)" -o $(BIN)/ ./cmd/...
	@mkdir -p $(BIN)/python && cp -r native/python/falcon_torch $(BIN)/python/

native: ## build the hook, the profiler plug-in and the CPU stand-ins into bin/lib
	@mkdir -p $(BIN)/lib
	$(MAKE) -s -C native/lab all BIN=$(BIN)
	$(MAKE) -s -C native/hook all BIN=$(BIN)
	$(MAKE) -s -C native/profiler all BIN=$(BIN)

demo: build ## play the default scenario: a console on a terminal, plain text without one
	$(BIN)/falcon lab run

# Three tiers; docs/testing.md has what belongs to which, and what it costs.
test: build native-test tier-test ## the first tier: every test at its short size, one whole lab, one screen; no GPU, no root; minutes

check: build native-asan native-tsan native-arm64 lint tier-check python-test ## the second tier, what CI runs: lint, the race detector, sanitizers, a short run of each kind of lab; half an hour

tier-test tier-check tier-night: tier-%: build
	.ci/tier $*

times: build ## measure the parts of `make test` and `make check` and write their table into docs/testing.md
	.ci/times test check

tables: ## write into each page which of its tables are older than the code (docs/tables.txt)
	.ci/tables

results: ## write docs/results.md, the figures that matter, from the pages that measurements have written
	go -C docs/proof run ./results

lint: $(GOLANGCI) ## golangci-lint: import directions, style, common mistakes
	$(GOLANGCI) run ./...
	cd docs/proof && $(GOLANGCI) run ./...

fmt: $(GOLANGCI) ## format Go code
	$(GOLANGCI) fmt ./...
	cd docs/proof && $(GOLANGCI) fmt ./...

size: ## tokens of the product's code, per top-level folder and per code line, and of what is beside it
	go -C docs/proof run ./size

arrows: ## which files of a package use which others, and how many of these arrows run upward
	go -C docs/proof run ./arrows ./backend/engine ./detect ./mitigate ./recovery ./agent ./tui ./cmd/falcon

proto: $(BUF) $(PROTOC_GO) $(PROTOC_GRPC) ## regenerate the protobuf code
	cd backend/api && $(BUF) lint && $(BUF) generate
	go generate ./backend/api/falcon/v1

proto-check: $(BUF) $(PROTOC_GO) $(PROTOC_GRPC) ## prove that the committed protobuf code is fresh
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp -r backend/api "$$tmp/" && \
	(cd "$$tmp/api" && $(BUF) lint && $(BUF) generate) && \
	diff -r backend/api "$$tmp/api" && echo "protobuf code is fresh"

native-test: native ## C tests as they are
	$(MAKE) -s -j2 -C native/lab test BIN=$(BIN)
	$(MAKE) -s -j2 -C native/hook test BIN=$(BIN)
	$(MAKE) -s -j2 -C native/profiler test BIN=$(BIN)

native-asan: ## C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	$(MAKE) -s -j2 -C native/lab asan BIN=$(BIN)
	$(MAKE) -s -j2 -C native/hook asan BIN=$(BIN)
	$(MAKE) -s -j2 -C native/profiler asan BIN=$(BIN)

native-tsan: ## C tests under ThreadSanitizer
	$(MAKE) -s -j2 -C native/lab tsan BIN=$(BIN)
	$(MAKE) -s -j2 -C native/hook tsan BIN=$(BIN)
	$(MAKE) -s -j2 -C native/profiler tsan BIN=$(BIN)

native-arm64: ## the hook and the profiler plug-in cross-compiled for arm64, their tests under qemu-user; skipped without aarch64-linux-gnu-gcc
	$(MAKE) -s -j2 -C native/hook arm64 BIN=$(BIN)
	$(MAKE) -s -j2 -C native/profiler arm64 BIN=$(BIN)

python: ## linters and pytest for native/python into .tools; skipped without PyPI
	.ci/python tools

python-test: native ## ruff, mypy and pytest on native/python; those with torch where FALCON_PYTHON, .tools/torch or python3 has it, two cases of each
	.ci/python test

python-all: native ## the same with every case, and with transformers, accelerate, Lightning and DeepSpeed
	.ci/python all

frameworks-entered: native ## Megatron-LM and torchtitan on gloo: ranks killed and moved, up to 20 times in a job
	.ci/python long

python-torch: ## torch into .tools/torch for make python-test: a download of 0.6 GB; skipped without PyPI
	.ci/python torch

# Downloads 16 wheels of 150 to 300 MB and keeps 7 GB; goes on where it stopped.
NCCL_MATRIX ?= $(BIN)/nccl-matrix
nccl-matrix: native ## the hook and the profiler plug-in beside one NCCL per minor version from PyPI, kept in NCCL_MATRIX; its part of docs/compatibility.md; skipped where PyPI does not answer
	python3 native/hook/matrix/matrix.py $(NCCL_MATRIX) $(BIN)/lib/libfalcon_hook.so

xla-nccl: build ## the hook beside the NCCL stubs of XLA's CUDA plug-in, from JAX's wheel on PyPI (150 MB, kept in bin/xla); no GPU
	$(MAKE) -s -C native/hook tests BIN=$(BIN)
	python3 native/hook/matrix/xla.py $(BIN)/xla $(BIN)

# For a machine with one GPU and no Go: bin/ is carried there built, and nothing is built.
gpu: ## what one GPU can show in ten minutes, into bin/gpu/gpu.md and gpu.json; GPU_FLAGS=--hollow plays it on stand-ins
	@python=$$(.ci/python which); "$${python:-python3}" native/gpu/gpu.py --bin $(BIN) --commit "$$(git rev-parse --short HEAD 2>/dev/null || echo of no known commit)" $(GPU_FLAGS)

fuzz: ## every fuzz target for FUZZTIME (default 2s)
	.ci/fuzz $(FUZZTIME)

bench: build ## benchmarks; writes docs/results/benchmarks.md
	./docs/bench.sh

# The third tier, what takes hours, is .ci/plays.toml.
export NIGHT_SEEDS ?= 10000
nightly: build ## the third tier: the plays of .ci/plays.toml, with NIGHT_SEEDS (10,000) simulated schedules and a minute of each fuzz target; hours; pages, logs and results go to bin/nightly, goes on where it stopped
	go -C docs/proof run ./night -night

# What is no target is a play.
.DEFAULT:
	@go -C docs/proof run ./night $@

clean: ## remove what was built
	rm -rf $(BIN)
	go clean -testcache

$(GOLANGCI):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2

$(BUF):
	GOBIN=$(TOOLS) go install github.com/bufbuild/buf/cmd/buf@v1.72.0

$(PROTOC_GO):
	GOBIN=$(TOOLS) go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12

$(PROTOC_GRPC):
	GOBIN=$(TOOLS) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
