# Falcon. `make help` lists the targets that a change needs, `make targets` all.
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

targets: ## list all targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

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

# ---- The third tier: what takes hours. Each target can be run alone. ----

# Pages that targets write go to PAGES, reports and what is gone on with to RESULTS.
PAGES   ?= $(CURDIR)/docs
RESULTS ?= $(BIN)

# Exact on any machine first, then what is timed.
NIGHTLY := proto-check tier-night simulate schedules crashes keys attacks eval autopsy-power one-slow table7 flow rivals outage pictures seeds pauses swaps harmless node-pauses clock-steps old-journals ends recoveries torch-kills pipeline-kills frameworks-entered torch-deaths torch-standby torch-pauses torch-versions torch-screen torch-lab torch-trainers torch-entered version-pairs hangs estimates detection-times soak figures pairs rings link-tests throttle store-scale scale
.PHONY: $(NIGHTLY)
export NIGHT_SEEDS ?= 10000
nightly: build ## the third tier: all targets below with NIGHT_SEEDS (10,000) simulated schedules, and a minute of each fuzz target; hours; pages, logs and results go to bin/nightly, goes on where it stopped
	.ci/nightly python-torch $(NIGHTLY) fuzz python-all

SIM_FIRST ?= 1
SIM_COUNT ?= 300
SIM_TIMEOUT ?= 2h
SEEDS_KEPT ?=
simulate: ## engine, agents, job, network and clocks under one seed: SIM_COUNT (300) random schedules from SIM_FIRST (1), and those that found something; a line of them into SEEDS_KEPT
	go test ./backend/sim/cluster -count=1 -timeout $(SIM_TIMEOUT) -v -run 'TestSeeds|TestFound|TestRepeats' -first $(SIM_FIRST) -seeds $(SIM_COUNT) $(if $(SEEDS_KEPT),-seeds-kept $(abspath $(SEEDS_KEPT)))

SCHEDULES ?= 100000
STORIES ?= 1400
schedules: ## the pure machines alone: SCHEDULES (100,000) random recoveries, STORIES (1,400) random faults to name
	go test ./recovery -count=1 -timeout 2h -run TestRandomSchedules -seeds $(SCHEDULES)
	go test ./detect -count=1 -timeout 2h -run 'TestRandomStoriesNameExactlyTheFault|TestRestSaysTheSameOfJobs' -stories $(STORIES)
	go test ./detect -count=1 -timeout 2h -v -run TestOneGPUThatCosts -named-seeds 200

crashes: ## the journal killed 1,000 times at each point of a write, and 1,000 images of a lost power
	go test ./backend/journal -count=1 -timeout 2h -v -run 'Killed|PowerLoss' -journal-kills 1000 -journal-images 1000

attacks: ## one engine under attack for 10 s each way, beside 1,000 emulated agents: its owner must be answered
	go test ./cmd/falcon -count=1 -timeout 1h -v -run TestAttacks -attack 1000 -attack-for 10s

EVAL_JOBS ?= 10000
EVAL_ITERATIONS ?= 1000
eval: ## quality of detection on EVAL_JOBS generated jobs, beside the paper's; its part of docs/results/benchmarks.md
	go -C docs/proof test ./evaltest -count=1 -timeout 2h -v -run TestEval -eval-jobs $(EVAL_JOBS) -eval-iterations $(EVAL_ITERATIONS) -eval-out $(PAGES)/results/benchmarks.md
	go -C docs/proof test ./evaltest -count=1 -timeout 2h -v -run 'TestSmall$$' -small-seeds 200 -small-iterations 1000000

AUTOPSY_PLAYS ?= 1000
autopsy-power: ## how small a change falcon detect finds, before and after how many points: AUTOPSY_PLAYS (1,000) series a cell; its part of docs/autopsy.md
	go test ./detect/autopsy -count=1 -timeout 1h -v -run TestPowerTable -power-plays $(AUTOPSY_PLAYS) -power-out $(PAGES)/autopsy.md

ONE_SLOW ?= 20
one-slow: ## one slow rank of 100,000, ONE_SLOW (20) places and moments: verified and named as soon as of 1,000, and nobody else
	go test ./detect -count=1 -timeout 3h -v -run TestOneSlowRankOfMany -large-ranks 100000 -large-seeds $(ONE_SLOW)

SIM_SEEDS ?= 20
table7: ## mixed faults on 64 and 256 emulated GPUs, SIM_SEEDS seeds each; its part of docs/results/benchmarks.md
	go -C docs/proof test ./sim -count=1 -timeout 2h -v -run TestTable7 -sim-seeds $(SIM_SEEDS) -sim-out $(PAGES)/results/benchmarks.md

RIVALS ?= 20
rivals: ## the detector beside rules of others (NVRx, Minder, Megatron-LM, BEAST) on RIVALS (20) jobs of each mix, ranks, real records; its part of docs/results/benchmarks.md
	go -C docs/proof test ./rivals -count=1 -timeout 2h -v -run TestRivals -rivals-jobs $(RIVALS) -rivals-out $(PAGES)/results/benchmarks.md

FLOW_SEEDS ?= 20
flow: ## figures 13 to 17, 20 and table 7 on a network at the level of flows, FLOW_SEEDS seeds of each cell; writes its parts of docs/results/figures-sim.md
	go -C docs/proof test ./sim -count=1 -timeout 5h -v -run 'TestFlow(Figures|TwoNodes|Splits|Ladder|Mix)' -flow-seeds $(FLOW_SEEDS) -flow-out $(PAGES)/results/figures-sim.md

outage: ## one node lost in emulated jobs of 32 to 18,000 devices, beside FlashRecovery's tables; writes docs/results/flashrecovery.md
	go -C docs/proof test ./outage -count=1 -timeout 2h -v -run TestScale -outage-out $(PAGES)/results/flashrecovery.md

pictures: ## draw docs/pictures/*.png again, from the lab's recording and the scripted engine
	@mkdir -p $(PAGES)/pictures
	go test -count=1 -run TestPictures ./tui -pictures $(PAGES)/pictures

KEYS ?= 200
keys: ## KEYS (200) streams of characters with each kind of decision open, as many over SSH, and KEYS consoles on slow links: nothing is confirmed by a stream, or before it was shown
	go test ./tui -count=1 -timeout 3h -v -run '^TestStreamsConfirmNothing$$|^TestNothingIsDecidedBeforeItIsShown$$' -streams $(KEYS) -slow-links $(KEYS)
	go test ./tui/sshserver -count=1 -timeout 1h -v -run '^TestStreamsOverSSHConfirmNothing$$' -parallel 8 -ssh-streams $(KEYS)

SEEDS ?= 20
seeds: build ## the lab's scenarios on SEEDS seeds each (default 20), judged, with a table; goes on where it stopped
	@mkdir -p $(RESULTS)/reports
	go test -count=1 -timeout 3h -v -run LabScenarios ./cmd/falcon -lab-seeds $(SEEDS) -lab-out $(RESULTS)/reports

LINK_TESTS ?= 20
link-tests: build ## test the links of a lab LINK_TESTS (20) times while up to three are slow, and those of 10,000 emulated jobs
	go test -count=1 -timeout 60m -v -run TestLabLinkTests ./cmd/falcon -lab-link-tests $(LINK_TESTS)
	go test -count=1 -timeout 30m -v -run TestRandomLinkTests ./backend/validate -worlds 10000

PAUSES ?= 200
pauses: build ## hold and let go of a 16-rank job PAUSES times (default 200); kill agent, engine and rank meanwhile
	go test -count=1 -timeout 60m -v -run 'PausesAtRandomMoments|WhileHeld' ./cmd/falcon -lab-pauses $(PAUSES)

swaps: build ## kill the console, an agent and a rank at each step of a swap; undo mitigations that make things worse; exchange single ranks
	go test -count=1 -timeout 60m -v -run 'DeathsInASwap|WorseIsReverted|SingleRanksChangePlaces' ./cmd/falcon -lab-kills

THROTTLES ?= 6
throttle: build ## have a real CPU quota throttle the ranks of a node THROTTLES (6) times, with real hogs in its cgroup; needs root
	go test -count=1 -timeout 60m -v -run TestQuotaIsNamed ./cmd/falcon -lab-throttle $(THROTTLES)

HARM ?= 100
harmless: build ## disturb the agents of a lab that trains HARM (100) times, and cut its network: no iteration may be lost; needs root, for a network namespace
	@if [ "$$(id -u)" = 0 ] && command -v ip >/dev/null && command -v iptables >/dev/null; then \
	  go test -count=1 -timeout 3h -v -run TestHarmless ./cmd/falcon -lab-harm $(HARM); \
	else echo "harmless: skipped: it needs root, ip and iptables, to make a network namespace"; fi

NODE_PAUSES ?= 100
node-pauses: build ## stop nodes whole, for 1 to 60 s and at each step of a recovery, NODE_PAUSES (100) times: each job must come to its end, and no node be left fenced
	go test -count=1 -timeout 5h -v -run TestNodePauses ./cmd/falcon -lab-node-pauses $(NODE_PAUSES)

CLOCK_STEPS ?= 40
clock-steps: build ## step the engine's wall clock by 3 s to 10 years in the midst of a recovery, CLOCK_STEPS (40) times, then kill a rank and restart the engine
	go test -count=1 -timeout 3h -v -run TestClockSteps ./cmd/falcon -lab-clock-steps $(CLOCK_STEPS)

OLD_JOURNALS ?= 20
old-journals: build ## give the engine a journal of 1, 3 and 10 recoveries before, or none, OLD_JOURNALS (20) times each, then kill a rank and a node
	go test -count=1 -timeout 3h -v -run TestJournalsOfBefore ./cmd/falcon -lab-journals $(OLD_JOURNALS)

ENDS ?= 20
ends: build ## jobs that recover once and end, ENDS (20) of them, on agents that no kernel tells how a process ended
	go test -count=1 -timeout 60m -v -run TestEndsWithoutExitInformation ./cmd/falcon -lab-ends $(ENDS)

RECOVER_SEEDS ?= 100
recoveries: build ## every fault point, with and without ZeRO, of ranks and nodes, and RECOVER_SEEDS (100) random moments; its part of docs/results/recoveries.md, goes on where it stopped
	@mkdir -p $(RESULTS)/recoveries
	go test -count=1 -timeout 3h -v -run TestRecoverPoints ./cmd/falcon -lab-recover-seeds $(RECOVER_SEEDS) -lab-recoveries $(PAGES)/results/recoveries.md -lab-out $(RESULTS)/recoveries

KILLS ?= 50
torch-kills: build ## ranks of a PyTorch job on emulated GPUs killed at KILLS (50) random moments, on nccl and on nccl2; its part of docs/results/torch.md; skipped with one line without torch
	go test -count=1 -timeout 3h -v -run TestTorchKills ./cmd/falcon -torch-kills $(KILLS) -lab-page $(PAGES)/results/torch.md

PIPELINE_KILLS ?= 50
pipeline-kills: build ## PIPELINE_KILLS (50) ranks of a pipeline's first stage killed in their backward pass, in a PyTorch job on emulated GPUs, and a fifth as many with interleaved stages; its part of docs/results/torch.md; skipped without torch and its headers
	go test -count=1 -timeout 3h -v -run TestTorchPipelineKills ./cmd/falcon -pipeline-kills $(PIPELINE_KILLS) -lab-page $(PAGES)/results/torch.md

TORCH_DEATHS ?= 400
DEATHS_FOR ?= 12h
torch-deaths: build ## TORCH_DEATHS (400) ends of every kind (ranks, nodes, agents, SIGTERM to all, errors, under torchrun) in PyTorch jobs of each adapter, inside and outside of run, judged by what the ranks write; its part of docs/results/torch.md; for DEATHS_FOR (12h), and on from what docs/results/torch-deaths.jsonl has; skipped without torch and its headers
	@mkdir -p $(RESULTS)/torch-deaths
	go test -count=1 -timeout 13h -v -run TestTorchDeaths ./cmd/falcon -torch-deaths $(TORCH_DEATHS) -torch-deaths-for $(DEATHS_FOR) -torch-deaths-kept $(PAGES)/results/torch-deaths.jsonl -lab-page $(PAGES)/results/torch.md -lab-out $(RESULTS)/torch-deaths

torch-standby: build ## the same with a standby on each node, which takes the dead rank's place; its part of docs/results/torch.md; skipped without torch
	go test -count=1 -timeout 3h -v -run TestTorchKills ./cmd/falcon -torch-kills $(KILLS) -torch-standby -lab-page $(PAGES)/results/torch.md

TORCH_PAUSES ?= 100
torch-pauses: build ## a PyTorch job on emulated GPUs held and let go TORCH_PAUSES (100) times, on nccl and on nccl2, without and with overlap; its part of docs/results/torch.md; skipped without torch
	go test -count=1 -timeout 3h -v -run TestTorchPauses ./cmd/falcon -torch-pauses $(TORCH_PAUSES) -lab-page $(PAGES)/results/torch.md

TORCH_VERSIONS ?= 2.4.0 2.6.0 2.11.0
torch-versions: build ## a rank of a PyTorch job on emulated GPUs killed and replaced, with each of TORCH_VERSIONS (3 GB to download); skipped without PyPI
	@for v in $(TORCH_VERSIONS); do \
	python=$$(.ci/python version $$v) || { echo "torch-versions: $$v skipped: it can't be installed"; continue; }; \
	"$$python" native/gpu/gpu.py --bin $(BIN) --hollow --only machine,recovery --out $(RESULTS)/torch-$$v || exit 1; \
	grep -h killed $(RESULTS)/torch-$$v/gpu.md; done

# A fixed release: what is played beside it must work together, or say why not.
VERSION_BEFORE ?= 1c7bcb9d
version-pairs: build ## engine, agents, hook and adapter of this build beside those of VERSION_BEFORE (a commit, built once), in all 16 pairs with a kill each; recordings of both; upgrades in the midst of a recovery and of a swap
	go test -count=1 -timeout 3h -v -run 'TestVersionPairs|TestUpgradesInTheMidst|TestUpgradesInASwap' ./cmd/falcon -lab-versions $(VERSION_BEFORE) -lab-versions-bin $(RESULTS)/versions

torch-screen: build ## mitigations of a PyTorch job on emulated GPUs, approved by keys on a real terminal; skipped without torch
	go test -count=1 -timeout 1h -v -run TestTorchScreen ./cmd/falcon -torch-screen

TORCH_SEEDS ?= 1
TORCH_RANKS ?= 8
torch-lab: build ## PyTorch jobs of TORCH_RANKS (8) on emulated GPUs, without an adapter: TORCH_SEEDS (1) slow GPUs in each kind, and after how many iterations they are named; its part of docs/results/torch.md; goes on where it stopped; skipped without torch
	@mkdir -p $(RESULTS)/torch
	@python=$$(.ci/python which); \
	if [ -n "$$python" ]; then go test -count=1 -timeout 3h -v -run TestTorchWithoutAdapter ./cmd/falcon -lab-torch "$$python" -lab-torch-seeds $(TORCH_SEEDS) -lab-torch-ranks $(TORCH_RANKS) -lab-out $(RESULTS)/torch -lab-page $(PAGES)/results/torch.md; \
	else echo "torch-lab: skipped: no torch; set FALCON_PYTHON, or run make python-torch"; fi

torch-trainers: build ## a job of transformers, accelerate, Lightning and DeepSpeed each on emulated GPUs: a slow GPU is named, and S4 carried out; its part of docs/results/torch.md; skipped without torch or PyPI
	@python=$$(.ci/python which); trainers=$$(.ci/python trainers) || exit 1; \
	if [ -n "$$python" ] && [ -n "$$trainers" ]; then go test -count=1 -timeout 1h -v -run TestTorchTrainers ./cmd/falcon -torch-python "$$python" -torch-trainers "$$trainers" -lab-page $(PAGES)/results/torch.md; \
	else echo "torch-trainers: skipped: no torch, or no packages of the trainers; run make python-torch, with PyPI"; fi

ENTERED ?= 20
torch-entered: build ## ranks of Megatron-LM's pretrain() and of torchtitan's Trainer killed on emulated GPUs, ENTERED (20) times in each of four jobs; its part of docs/results/torch.md; skipped without torch, its headers or PyPI
	@python=$$(.ci/python which); frameworks=$$(.ci/python frameworks); \
	if [ -n "$$python" ] && [ -n "$$frameworks" ]; then go test -count=1 -timeout 5h -v -run TestTorchEntered ./cmd/falcon -torch-python "$$python" -torch-entered "$$frameworks" -entered-kills $(ENTERED) -lab-page $(PAGES)/results/torch.md; \
	else echo "torch-entered: skipped: no torch, or no packages of the frameworks; run make python-torch, with PyPI"; fi

HANGS ?= 50
HANGS_SEED ?= 1
hangs: build ## HANGS (50) hangs of PyTorch jobs on emulated GPUs and on gloo, of six kinds, and whether their dumps name the injected rank; skipped without torch
	go test -count=1 -timeout 3h -v -run TestFreshHangs ./cmd/falcon -hangs $(HANGS) -hangs-seed $(HANGS_SEED)

estimates: build ## iteration times from the calls alone against the trainer's own clock, in every layout
	@go test -count=1 -timeout 20m -run EstimatedIterations ./cmd/falcon-trainer/e2e -estimates -v | grep -vE '^(=== |    --- PASS|    estimate_test.*rank )'; exit $${PIPESTATUS[0]}

DEATHS ?= 30
detection-times: build ## how fast deaths of processes and nodes and freezes are known, at least DEATHS (30) of each; its part of docs/results/recoveries.md
	@mkdir -p $(RESULTS)/deaths
	go test -count=1 -timeout 3h -v -run TestDetectionTimes ./cmd/falcon -lab-times $(DEATHS) -lab-page $(PAGES)/results/recoveries.md -lab-out $(RESULTS)/deaths

MINUTES ?= 30
soak: build ## a healthy job beside CPU hogs for MINUTES (30): no rank may be fenced; its part of docs/results/recoveries.md
	go test -count=1 -timeout 5h -v -run TestSoak ./cmd/falcon -lab-soak $(MINUTES) -lab-page $(PAGES)/results/recoveries.md

FIGURES ?=
figures: build ## the paper's mitigation figures in the lab (FIGURES=fig13 plays some); writes docs/results/figures.md, goes on where it stopped
	@mkdir -p $(RESULTS)/figures
	go test -count=1 -timeout 3h -v -run TestFigures ./cmd/falcon -lab-figures $(PAGES)/results/figures.md -lab-out $(RESULTS)/figures -lab-figure '$(FIGURES)'

PAIRS ?= 5
pairs: build ## what the hook costs a training job: PAIRS (5) of runs with and without it
	go test -count=1 -timeout 2h -v -run 'HookPairs|HookAlone' ./cmd/falcon -lab-pairs $(PAIRS)

RINGS ?= 10
rings: build ## what the test of a ring costs the job: RINGS (10) of each of 4, 8 and 16 ranks
	go test -count=1 -timeout 1h -v -run TestRingPauses ./cmd/falcon -lab-rings $(RINGS)

SCALE_NODES ?= 1 16 125 1250 4000
SCALE_FOR ?= 60s
scale: build ## what an engine costs with emulated agents of SCALE_NODES nodes of 8 ranks, SCALE_FOR each, up to the first size that does not hold; its part of docs/results/benchmarks.md
	go test ./cmd/falcon -count=1 -timeout 2h -v -run TestScaleCurve -swarm-nodes "$(SCALE_NODES)" -swarm-for $(SCALE_FOR) -swarm-out $(PAGES)/results/benchmarks.md

store-scale: native ## the rendezvous store with up to 10,000 clients, beside the installed PyTorch's
	.ci/python run go test ./backend/tcpstore -count=1 -timeout 30m -v -run TestRelease -store-scale

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
