# `make` lists the targets. Needed: Go, git, make and bash; `make run` and `make test` install everything else.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL     := go tool -modfile=.ci/tools.mod
FUZZTIME ?= 20s
BENCH    ?= .
SEED     ?= 1
HOURS    ?= 10
DURATION ?= 60s
RUNS     ?= 2
RACE     ?= ./pipeline/... ./sources/... ./sinks/...

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

# What --version prints: the tag or commit, whether the tree has changes, and the commit's date.
VERSION  ?= $(shell git describe --tags --always --dirty=+changes && git show --no-patch --format='of %cs')

.PHONY: build
build: ## build all programs into bin/; PROGRAMS=packages
	@.ci/build '$(VERSION)' $(or $(PROGRAMS),./cmd/...)

.PHONY: image package release
image: ## write container images for Linux on amd64 and arm64 to dist/; needs no Docker
package: ## write Debian packages for amd64 and arm64 to dist/
release: ## write everything that is published to dist/: programs, packages, images, chart, SBOM, changelog, checksums; RELEASE_KEY=file signs
image package release:
	cd deployments/release && go run . --version '$(VERSION)' $@

.PHONY: verify-release
verify-release: ## check signature, checksums and attestations of the release in DIST=dir with KEY=pub.pem, build it again and compare; needs no network
	cd deployments/release && go run . --dist '$(abspath $(DIST))' --key '$(abspath $(KEY))' verify

.PHONY: page
page: ## build the web page (sources/page/app) into sources/page/dist; needs npm
	npm ci --prefix sources/page/app --no-audit --no-fund
	npm run build --prefix sources/page/app

.PHONY: docs
docs: ## update the renderer of /docs to the version of sources/page/docs/package.json; needs npm
	cd sources/page/docs && npm pack --silent openapi-explorer@$$(node -p 'require("./package.json").dependencies["openapi-explorer"]') && \
	  tar xzf openapi-explorer-*.tgz --strip-components=3 package/dist/browser && \
	  tar xzOf openapi-explorer-*.tgz package/LICENSE > LICENSE.openapi-explorer.txt && rm openapi-explorer-*.tgz

.PHONY: cross
cross: ## compile all programs for the other platforms
	for platform in linux/arm64 darwin/arm64; do \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -o .cache/cross/$$platform/ ./cmd/...; \
	done

.PHONY: setup
setup: ## install the Debian packages that the tests need; SETUP=no prints the command
	@.ci/setup test

.PHONY: run
run: ## start stores, daemon and forecaster, send three days of traffic, show the result, continue live; DATA=dir for real data, FEED=ndw for a nation, ARGS=--exit to stop after the result
	@.ci/setup run
	@.ci/build '$(VERSION)' ./cmd/dev/quickstart ./cmd/trafficd ./cmd/trafficctl ./cmd/forecaster $(if $(FEED),./cmd/feeder) ./cmd/dev/devstores
	@exec bin/quickstart $(if $(FEED),--feed '$(FEED)') $(if $(DATA),--data '$(DATA)') $(ARGS)

.PHONY: stores
stores: ## run only the stores, until Ctrl-C
	go run ./cmd/dev/devstores --dir .run/stores $(ARGS)

# The programs that tests start, built once for the tests of all packages.
.PHONY: programs
unit coverage test conformance race: export TRAFFICD_PROGRAMS = $(CURDIR)/.cache/bin
programs: # go build touches an unchanged program, after which go test would repeat the tests that start it
	@CGO_ENABLED=0 go build -buildvcs=false -o .cache/bin/new/ ./cmd/trafficd ./cmd/trafficctl ./cmd/forecaster ./cmd/feeder ./cmd/dev/devstores ./cmd/dev/quickstart
	@for program in .cache/bin/new/*; do \
	  cmp -s $$program .cache/bin/$${program##*/} || cp -f $$program .cache/bin/; \
	done

.PHONY: unit
unit: AT_ONCE := $(shell expr 3 '*' "$$(getconf _NPROCESSORS_ONLN)")
unit: programs ## run the tests that need only Go, in a minute; `go test ./...` does the same. Only changed packages are tested again
	CGO_ENABLED=0 go test -p $(AT_ONCE) -parallel $(AT_ONCE) ./... # many tests wait more than they compute

UNITS  := ./pipeline/... ./sinks/... ./sources/... ./schemas/...
comma  := ,
spaced := $(subst ,, )

.PHONY: coverage
coverage: programs ## print the share of statements of pipeline, sinks, sources and schemas that their unit tests execute
	CGO_ENABLED=0 go test -coverpkg=$(subst $(spaced),$(comma),$(UNITS)) -coverprofile=coverage.out $(UNITS) >/dev/null
	grep -v '\.pb\.go:' coverage.out >coverage.written && go tool cover -func=coverage.written | tail -n 1

.PHONY: test
test: ## run all tests but conformance, also those on real stores; a skipped test fails
	@.ci/setup test
	@$(MAKE) --no-print-directory programs
	.ci/test

.PHONY: conformance
conformance: ## run third-party clients, browsers, proxies and Prometheus against the daemon
	@.ci/setup test
	@$(MAKE) --no-print-directory programs
	.ci/test ./cmd/dev/conformance/...

.PHONY: race
race: programs ## run tests with the race detector, on fakes at the wire; STORES=all also on real stores, RACE=packages
	TRAFFICD_TEST=$(STORES) go test -race -short -count=1 -timeout 20m $(RACE)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (20s)
	.ci/fuzz $(FUZZTIME)

.PHONY: fuzz-inflate
fuzz-inflate: ## compare our inflate with three others on streams with 10⁹ bytes of text; SEED=1, up to 10 minutes
	TRAFFICD_TEST=all go test -v -count=1 -timeout 30m ./pipeline/lib/gunzip/inflate -run AgainstOthers -inflate.bytes 1000000000 -inflate.seed $(SEED)

.PHONY: chaos
chaos: ## kill, pause and disconnect everything under load, then count; SEED=1 DURATION=60s RUNS=2, ARGS='--brokers 3' for a cluster
	go run ./cmd/dev/chaos --broker both --seed $(SEED) --duration $(DURATION) --runs $(RUNS) $(ARGS)

.PHONY: simulate
simulate: ## the daemon, its disk, its network and fakes of its stores under one seed, faster than time; SEED=1 HOURS=10, TRACE=yes shows each event
	go run ./cmd/dev/chaos/simulate -first $(SEED) -count $(HOURS) $(if $(TRACE),-events) $(ARGS)

.PHONY: simulate-planted
simulate-planted: ## plant each bug of cmd/dev/chaos/simulate/testdata/planted, and print after how long the simulation finds it
	go run ./cmd/dev/chaos/simulate -planted 5m $(ARGS)

.PHONY: chaos-cluster
chaos-cluster: DURATION = 240s
chaos-cluster: RUNS = 1
chaos-cluster: ## chaos with three replicas behind HAProxy that share a log in three Apache brokers, and two ClickHouse nodes; as root, 6 minutes; SEED=1 DURATION=240s RUNS=1
	go run ./cmd/dev/chaos --broker apache --brokers 3 --replicas 3 --nodes 2 --links --faults 500 \
	  --seed $(SEED) --duration $(DURATION) --runs $(RUNS) $(ARGS)

.PHONY: bench
bench: ## print lines `bench: <name> <value> <unit>`; BENCH=regexp selects, DATA=dir adds real batches
	DATA='$(DATA)' .ci/bench '$(BENCH)'

TELEGRAF := github.com/influxdata/telegraf/cmd/telegraf@v1.37.2

.PHONY: bench-peers
bench-peers: ## send the same batch to trafficd, a plain Go handler and Telegraf, which is built first, in a few minutes
	@.ci/build '$(VERSION)' ./cmd/trafficd ./cmd/dev/bench
	[ -x .cache/peers/telegraf ] || GOBIN='$(CURDIR)/.cache/peers' CGO_ENABLED=0 GOFLAGS=-trimpath \
	  go install -tags custom,inputs.http_listener_v2,parsers.json,outputs.file,serializers.influx $(TELEGRAF)
	bin/bench peers --telegraf .cache/peers/telegraf

.PHONY: profile
profile: ## update cmd/trafficd/trafficd.pgo, with which `make build` optimizes the daemon; DATA=dir for real batches too; needs nginx and wrk
	DATA='$(DATA)' .ci/bench profile
	cd bin && go tool pprof -proto trafficd ../.cache/profiles/*.pprof > ../cmd/trafficd/trafficd.pgo # the name replaces this machine's path

.PHONY: forecast-eval
forecast-eval: ## backtest the forecaster on DATA=dir and print lines `bench: forecast_<set>_<what> <value> <unit>`
	@[ -n '$(DATA)' ] || { echo 'forecast-eval: DATA=dir is missing' >&2; exit 1; }
	TRAFFICD_TEST=all FORECAST_DATA='$(abspath $(DATA))' go test -run '^$$' -bench '^BenchmarkForecastEval$$' -benchtime 1x -timeout 60m ./cmd/forecaster | \
	  awk '/^bench:/ { print; fflush(); next } { print > "/dev/stderr" }'

.PHONY: health-eval
health-eval: ## plant FAULTS=1000 faults in half of the detectors (CHOOSE=yes: the other half) of DATA=dir or of a made-up town; print precision, recall, CPU time; an hour
	TRAFFICD_TEST=all HEALTH_FAULTS='$(or $(FAULTS),1000)' HEALTH_TOWN=200 HEALTH_CHOOSE='$(CHOOSE)' FORECAST_DATA='$(and $(DATA),$(abspath $(DATA)))' \
	  go test -run '^$$' -bench . -benchtime 1x -timeout 3h ./cmd/forecaster/internal/health

.PHONY: hostile
hostile: ## attack a daemon while two integrators send, one line per attack; up to 8 minutes
	@.ci/setup test
	@.ci/build '$(VERSION)' ./cmd/trafficd ./cmd/dev/bench
	bin/bench hostile

.PHONY: phone
phone: PHONE = 10m
phone: ## follow forecasts for PHONE (10m) in Chromium as slow as a phone: streets within 1 s, 20 MB of heap growth at most
	@.ci/setup test
	TRAFFICD_TEST=all PHONE=$(PHONE) go test -v -count=1 -timeout 60m ./cmd/dev/conformance/browser -run '^TestPhone$$'

.PHONY: fresh
fresh: ## nightly: `make run` and `make test` in a minimal Debian system; needs root and debootstrap, up to 90 minutes
	.ci/fresh

.PHONY: lint
lint: ## golangci-lint with gofumpt, buf (style and compatibility), OpenAPI validator
	$(TOOL) golangci-lint run
	cd deployments/release && go tool -modfile=../../.ci/tools.mod golangci-lint run
	! git grep -nP '^\s*// (?! )(?=.* ).{98,}$$' -- '*.go' ':!*.pb.go' # comments wrap at 100 columns
	$(TOOL) buf lint schemas/proto
	$(BREAKING)
	$(TOOL) github.com/getkin/kin-openapi/cmd/validate schemas/openapi/openapi.yaml
	$(TOOL) github.com/getkin/kin-openapi/cmd/validate schemas/openapi/operators.yaml

.PHONY: fmt
fmt: ## format all Go code
	$(TOOL) golangci-lint fmt
	cd deployments/release && go tool -modfile=../../.ci/tools.mod golangci-lint fmt

# The messages as published: changes must stay compatible with them.
PUBLISHED := schemas/proto/published.binpb
BREAKING   = $(TOOL) buf breaking schemas/proto --against $(PUBLISHED)

.PHONY: generate
generate: ## regenerate code from the .proto files (BREAK=yes allows incompatible changes), the settings' help, and the tables of codes
	go run ./cmd/dev/generate
	$(if $(BREAK),,$(BREAKING))
	$(TOOL) buf generate schemas/proto --template schemas/proto/buf.gen.yaml
	$(TOOL) buf build schemas/proto --exclude-source-info -o $(PUBLISHED)

.PHONY: generate-check
generate-check: ## fail if generated files are out of date
	go run ./cmd/dev/generate --check
	@rm -rf .cache/generated
	$(TOOL) buf generate schemas/proto --template schemas/proto/buf.gen.yaml --output .cache/generated
	diff -r --exclude='*.proto' --exclude='buf*.yaml' --exclude=proto.go --exclude='*_test.go' --exclude=published.binpb --exclude=README.md .cache/generated/schemas/proto schemas/proto

.PHONY: check
check: generate-check lint build cross test conformance race ## everything that must pass before a merge

.PHONY: clean
clean: ## remove build output and data of runs; keep the downloads in .cache
	rm -rf bin dist .run .cache/generated .cache/cross coverage.*
