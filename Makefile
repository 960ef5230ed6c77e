# Needs Go, git, make and Python 3 with venv. Tools go into bin/, Envoy into .cache/; both are ignored by git.

GOLANGCI_LINT_VERSION := v2.15.0
BUF_VERSION           := v1.75.0
PROTOC_GEN_GO_VERSION := v1.36.12
GEN_GRPC_VERSION      := v1.6.2
GEN_CONNECT_VERSION   := v1.21.1

FUZZTIME  ?= 10s
BENCHTIME ?= 1s
KEEP      ?=
SEED      ?=
LONG      ?=
CHAOS     ?=
ONLY      ?=

# The race detector needs a C compiler. Without one the tests still run, and say what they lack.
RACE := $(shell command -v "$${CC:-$$(go env CC)}" >/dev/null 2>&1 && echo -race)

BIN := $(CURDIR)/bin
GO  ?= go

# A tool's stamp carries its version, so that a new pin builds it again.
LINT_STAMP := $(BIN)/.golangci-lint-$(GOLANGCI_LINT_VERSION)
BUF_STAMP  := $(BIN)/.buf-$(BUF_VERSION)
GEN_STAMP  := $(BIN)/.protoc-gen-go-$(PROTOC_GEN_GO_VERSION)
GEN_GRPC_STAMP    := $(BIN)/.protoc-gen-grpc-$(GEN_GRPC_VERSION)
GEN_CONNECT_STAMP := $(BIN)/.protoc-gen-connect-$(GEN_CONNECT_VERSION)

.DEFAULT_GOAL := help
.PHONY: help demo test chaos lint house build bench fuzz generate zones clean envoy servers

help: ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## see mete at work behind a real Envoy; KEEP=1 leaves it up to play with
	@$(GO) build -o $(BIN)/demo ./test/demo
	@$(BIN)/demo $(if $(KEEP),-keep)

test: envoy servers ## all tests with the race detector, the end-to-end tests with a real Envoy included
	$(if $(RACE),,@echo "no C compiler: testing without the race detector")
	$(GO) test $(RACE) -timeout 9m ./...

chaos: envoy ## kills, pauses, lost replies and restarts under load, of tenants and of descriptors; SEED=7 repeats faults, LONG=1 or CHAOS=10m for longer, ONLY=killed,counters
	@$(GO) build -o $(BIN)/chaos ./test/chaos
	@$(BIN)/chaos $(if $(SEED),-seed $(SEED)) $(if $(LONG),-long) $(if $(CHAOS),-for $(CHAOS)) $(if $(ONLY),-only $(ONLY))

lint: $(LINT_STAMP) ## golangci-lint with the rules of .golangci.yml, and the bounds of tools/house
	$(BIN)/golangci-lint run ./...
	@$(GO) run ./tools/house -quiet -unused 60 -function 60 -file 400

house: ## how large packages are, and how many of their files reach each other in a circle
	@$(GO) run ./tools/house

build: ## bin/mete and bin/metectl
	$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/ ./cmd/...

bench: ## benchmarks; BENCHTIME=5s for steadier figures
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

fuzz: ## each fuzz target for FUZZTIME (10s)
	@$(GO) run ./tools/fuzz -fuzztime $(FUZZTIME)

zones: ## the data of time zones, from that of the toolchain
	go run ./tools/zones

generate: $(BUF_STAMP) $(GEN_STAMP) $(GEN_GRPC_STAMP) $(GEN_CONNECT_STAMP) ## Go code from api/*.proto
	cd api && $(BIN)/buf lint && PATH="$(BIN):$$PATH" $(BIN)/buf generate

clean: ## remove what make built and fetched
	rm -rf bin .cache dist mete-data

envoy: # find an Envoy, or fetch one into .cache/
	@$(GO) run ./test/envoy/get

servers: # install what the servers of test/servers need into .cache/, as far as the machine has the programs to do so
	@$(GO) run ./test/servers/get

bin/etcdctl: tools/etcdctl/go.mod tools/etcdctl/main.go
	$(GO) build -C tools/etcdctl -ldflags '-s -w' -o $(BIN)/etcdctl .

$(LINT_STAMP):
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@rm -f $(BIN)/.golangci-lint-*; touch $@

$(BUF_STAMP):
	GOBIN=$(BIN) $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	@rm -f $(BIN)/.buf-*; touch $@

$(GEN_STAMP):
	GOBIN=$(BIN) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
	@rm -f $(BIN)/.protoc-gen-go-*; touch $@

$(GEN_GRPC_STAMP):
	GOBIN=$(BIN) $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(GEN_GRPC_VERSION)
	@rm -f $(BIN)/.protoc-gen-grpc-*; touch $@

$(GEN_CONNECT_STAMP):
	GOBIN=$(BIN) $(GO) install connectrpc.com/connect/cmd/protoc-gen-connect-go@$(GEN_CONNECT_VERSION)
	@rm -f $(BIN)/.protoc-gen-connect-*; touch $@
