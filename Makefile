# muster's own commands. Everything here needs Go and, for the race detector, a C compiler; the rest it installs itself.

TAGS    := hashicorpmetrics
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
GO      := go
TOOL    := $(GO) tool -modfile=tools/go.mod
PROTOS  := wire/domain.proto wire/log.proto wire/worker.proto wire/api.proto

.PHONY: build demo test race lint bench chaos quality simulate-faults generate check

build: ## bin/muster
	$(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/muster ./cmd/muster

test: ## every test, without the race detector
	$(GO) test -tags $(TAGS) -timeout 10m ./...

race: ## every test, with the race detector
	$(GO) test -tags $(TAGS) -race -timeout 14m ./...

lint: ## vet, staticcheck, gofmt
	$(GO) vet -tags $(TAGS) ./...
	$(GO) vet -tags $(TAGS),chaos ./cmd/muster ./test/chaos
	$(TOOL) staticcheck -tags $(TAGS) ./...
	$(TOOL) staticcheck -tags $(TAGS),chaos ./cmd/muster ./test/chaos
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }

demo: build ## a gang of 2 × 8 on three servers, the leader killed on the way
	bin/muster dev --kill-leader-after 2s examples/gang.hcl

bench: SHELL := /bin/bash
bench: .SHELLFLAGS := -o pipefail -c
bench: ## every benchmark, then the numbers of a cluster of real processes with as many rounds as each needs
	@mkdir -p bin
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 0.5s $$($(GO) list -tags $(TAGS) ./... | grep -v /test) | tee bin/bench.txt
	$(GO) test -tags $(TAGS) -c -o bin/bench.test ./test/bench
	@for rounds in SubmitToRunning=200x Submissions=50000x TrueJobs=2000x Failover=1x LeaderUnderLoad=1x; do \
		(cd test/bench && ../../bin/bench.test -test.run '^$$' -test.timeout 3m -test.bench "$${rounds%=*}$$" -test.benchtime "$${rounds#*=}") \
			| grep -v '^goos\|^goarch\|^pkg\|^cpu\|^PASS' | tee -a bin/bench.txt || exit 1; \
	done
	@awk '/^Benchmark/ { for (i = 3; i < NF; i += 2) printf "%-64s %14s %s\n", $$1, $$i, $$(i + 1) }' bin/bench.txt

DURATION := 10m
RUN      := TestChaos
chaos: ## a cluster under faults, for DURATION, judged; SEED=… plays a plan again, RUN=TestStory runs the stories; needs root: docs/chaos.md
	SEED=$(SEED) DURATION=$(DURATION) FAULTS=$(FAULTS) EVIDENCE=$(EVIDENCE) RACE=$(RACE) \
		$(GO) test -tags $(TAGS),chaos -timeout 24h -count 1 ./test/chaos -run '^$(RUN)' -v

SEEDS := 1
STEPS := 1
simulate-faults: ## servers, agents and tasks in one process in virtual time under faults: SEEDS seeds from FIRST on (else from one that the clock gives), STEPS steps of each
	FIRST=$(or $(FIRST),$(shell date +%s)) SEEDS=$(SEEDS) STEPS=$(STEPS) $(GO) test -tags $(TAGS) -timeout 24h -count 1 ./test/simulation -run TestSeeds -v

SHARED := ../shared
quality: ## the scheduler on public traces, checked by independent judges, beside what is published; SHARED= the folder of traces/ and judge/
	$(GO) run ./test/quality -shared $(SHARED) $(if $(ONLY),-only '$(ONLY)')

generate: ## the code generated from the .proto files
	$(GO) build -C tools -o ../bin/genproto ./genproto
	bin/genproto $(PROTOS)

check: lint generate ## lint; generated code is fresh; what should cross-build does
	git diff --exit-code -- wire
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -o /dev/null ./cmd/muster
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -tags $(TAGS) -o /dev/null ./cmd/muster
