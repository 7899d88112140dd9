# Everything that a developer or a CI machine does here, by name. `make` lists it.
# Needed: Go, make, bash. The tests and `make run` start the stores themselves.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL     := go tool -modfile=.ci/tools.mod
FUZZTIME ?= 20s
BENCH    ?= .
SEED     ?= 1
DURATION ?= 60s
RUNS     ?= 2
RACE     ?= ./pipeline/... ./sources/... ./sinks/...

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# What --version says: the tag or the commit, whether there are changes beyond it, and its day.
VERSION  ?= $(shell git describe --tags --always --dirty=+changes && git show --no-patch --format='of %cs')

.PHONY: build
build: ## build all programs into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags "-X 'trafficd/cmd/internal/version.stamp=$(VERSION)'" -o bin/ ./cmd/...

.PHONY: run
run: ## start stores and daemon, send a day of traffic, show what arrived; DATA=folder for real data
	@go build -o bin/ ./cmd/quickstart # go run would call Ctrl-C a failure
	@exec bin/quickstart $(if $(DATA),--data '$(DATA)') $(ARGS)

.PHONY: stores
stores: ## run the stores alone, in the foreground, until Ctrl-C
	go run ./cmd/devstores --dir .run/stores $(ARGS)

.PHONY: test
test: ## all tests, on real stores; a skipped test is a failure
	.ci/test

.PHONY: race
race: ## tests under the race detector; RACE=packages
	.ci/test -race $(RACE)

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (20s)
	.ci/fuzz $(FUZZTIME)

.PHONY: chaos
chaos: ## kill, stop and cut off everything under load, then count; SEED=1 DURATION=60s RUNS=2, ARGS='--brokers 3' for a cluster
	go run ./cmd/chaos --broker both --seed $(SEED) --duration $(DURATION) --runs $(RUNS) $(ARGS)

.PHONY: bench
bench: ## figures as lines `bench: <name> <value> <unit>`; BENCH=regexp for some, DATA=folder for real batches too
	DATA='$(DATA)' .ci/bench '$(BENCH)'

.PHONY: lint
lint: ## golangci-lint (with gofumpt), buf (style; no broken client), and a validator of the OpenAPI document
	$(TOOL) golangci-lint run
	$(TOOL) buf lint schemas/proto
	$(BREAKING)
	$(TOOL) github.com/getkin/kin-openapi/cmd/validate schemas/openapi/openapi.yaml

.PHONY: fmt
fmt: ## format all Go code as lint wants it
	$(TOOL) golangci-lint fmt

# The messages as clients know them: what is changed must still be read by them.
PUBLISHED := schemas/proto/published.binpb
BREAKING   = $(TOOL) buf breaking schemas/proto --against $(PUBLISHED)

.PHONY: generate
generate: ## write the generated Go again; BREAK=yes takes a change that breaks clients, on purpose
	$(if $(BREAK),,$(BREAKING))
	$(TOOL) buf generate schemas/proto --template schemas/proto/buf.gen.yaml
	$(TOOL) buf build schemas/proto --exclude-source-info -o $(PUBLISHED)

.PHONY: generate-check
generate-check: ## fail if generating again changes anything
	@rm -rf .cache/generated
	$(TOOL) buf generate schemas/proto --template schemas/proto/buf.gen.yaml --output .cache/generated
	diff -r --exclude='*.proto' --exclude='buf*.yaml' --exclude=proto.go --exclude=published.binpb .cache/generated/schemas/proto schemas/proto

.PHONY: check
check: generate-check lint build test race ## what has to pass before a change goes in

.PHONY: clean
clean: ## remove what was built and run; downloaded stores stay in .cache
	rm -rf bin .run .cache/generated coverage.*
