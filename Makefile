# muster's own commands. Everything here needs Go and, for the race detector, a C compiler; the rest it installs itself.

TAGS    := hashicorpmetrics
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
GO      := go
TOOL    := $(GO) tool -modfile=tools/go.mod
PROTOS  := wire/domain.proto wire/log.proto wire/worker.proto wire/api.proto

.PHONY: build demo test race lint bench generate check

build: ## bin/muster
	$(GO) build -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/muster ./cmd/muster

test: ## every test, without the race detector
	$(GO) test -tags $(TAGS) -timeout 10m ./...

race: ## every test, with the race detector
	$(GO) test -tags $(TAGS) -race -timeout 14m ./...

lint: ## vet, staticcheck, gofmt
	$(GO) vet -tags $(TAGS) ./...
	$(TOOL) staticcheck -tags $(TAGS) ./...
	@unformatted=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$')); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }

demo: build ## a gang of 2 × 8 on three servers, the leader killed on the way
	bin/muster dev --kill-leader-after 2s examples/gang.hcl

bench: ## the benchmarks, then the numbers of a cluster of real processes
	$(GO) test -tags $(TAGS) -run '^$$' -bench . -benchtime 1s ./...

generate: ## the code generated from the .proto files
	$(GO) build -C tools -o ../bin/genproto ./genproto
	bin/genproto $(PROTOS)

check: lint generate ## lint; generated code is fresh; what should cross-build does
	git diff --exit-code -- wire
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -o /dev/null ./cmd/muster
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -tags $(TAGS) -o /dev/null ./cmd/muster
