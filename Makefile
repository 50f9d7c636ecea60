# sandboxd: every check a person or CI runs is a target here. What a target
# needs from the system it gets through .ci/need: as root it installs the Debian
# packages that are missing and names them, as an ordinary user it says which.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO       ?= go
PYTHON   ?= /usr/bin/python3
FUZZTIME ?= 20s
VM       ?= full
COUNT    ?= 6

ROOT_PACKAGES := ./internal/linux/... ./images/... ./isolation/...
GENERATED     := $(wildcard daemon/httpapi/openapi.yaml docs/limits.md)
LINTER        := build/tools/golangci-lint
IS_ROOT       := $(filter 0,$(shell id -u))
comma         := ,

.PHONY: help build base demo gen check-gen fmt lint test test-unit test-root test-engines test-e2e test-vm \
	cases humaneval bench bench-go fuzz cover ci clean need-python need-root need-runtimes

help: ## Show this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
		while IFS=$$'\t' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done

build: ## Build sandboxd and sandboxctl into build/
	@mkdir -p build
	@CGO_ENABLED=0 $(GO) build -trimpath -o build/ ./cmd/sandboxd ./cmd/sandboxctl

base: ## Make build/base.tar, a small Debian with Python for images [PACKAGES="python3-numpy ..."]
	@.ci/need mmdebstrap:mmdebstrap
	@.ci/base build/base.tar $(PACKAGES)
	@echo "build/base.tar: import it as it is, or build on it: docker import build/base.tar local/pybase"

demo: build need-python ## Start a private daemon, judge the examples, show the isolation layers
	@examples/demo.sh

gen: ## Write the generated files anew
	@$(GO) generate ./...

check-gen: ## Fail when a generated file is not what its source says
	@rm -rf build/gen && mkdir -p build/gen && cp --parents -t build/gen $(GENERATED)
	@$(MAKE) gen
	@for f in $(GENERATED); do diff -u "build/gen/$$f" "$$f" || { echo "$$f was out of date: commit what make gen wrote"; exit 1; }; done
	@echo "generated files are up to date: $(GENERATED)"

fmt: $(LINTER) ## Format the Go code
	@$(LINTER) fmt ./...

lint: $(LINTER) ## Linters, import rules, portable builds
	@$(LINTER) run ./...
	@$(GO) mod verify >/dev/null
	@GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	@GOOS=darwin CGO_ENABLED=0 $(GO) vet ./sandbox/... ./daemon/... ./cmd/sandboxctl/...
	@GOOS=darwin CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/sandboxctl
	@for f in .ci/* examples/*.sh; do bash -n "$$f"; done
	@echo "lint: clean"

$(LINTER): internal/tools/go.mod internal/tools/go.sum
	@echo "building the pinned golangci-lint (about two minutes, once)"
	@mkdir -p build/tools
	@cd internal/tools && CGO_ENABLED=0 $(GO) build -o ../../$(LINTER) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

test: test-unit $(if $(IS_ROOT),test-root test-e2e) ## Every lane that this user may run
	@echo "lanes run: unit$(if $(IS_ROOT),$(comma) root$(comma) e2e; not run: vm (make test-vm),; not run: root and e2e (make test as root)$(comma) vm (make test-vm))"

test-unit: need-python ## Unit lane: Go with the race detector, guest and runner Python
	@.ci/need gcc:gcc libc6-dev:/usr/include/stdlib.h
	@CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...
	@$(PYTHON) -B -m unittest discover -s sandbox/pyrunner/guest/tests -t sandbox/pyrunner/guest
	@$(PYTHON) -B -m unittest discover -s internal/cases/tests -t internal/cases

test-root: need-root need-python need-runtimes ## Root lane: kernel packages, images and engines on this machine
	@.ci/need mmdebstrap:mmdebstrap
	@SANDBOXD_LANE=root $(GO) test -count=1 -p 1 -timeout 15m $(ROOT_PACKAGES)

test-engines: need-root need-python need-runtimes ## Every engine by the whole conformance suite, hostile programs included; images with packages
	@.ci/need mmdebstrap:mmdebstrap
	@SANDBOXD_LANE=root SANDBOXD_ENGINES=all $(GO) test -count=1 -p 1 -timeout 20m ./isolation/... ./images/build

test-e2e: need-root need-python need-runtimes build ## End-to-end lane: the real daemon and CLI over a socket
	@SANDBOXD_LANE=e2e $(GO) test -count=1 -timeout 20m ./internal/e2e/...

test-vm: ## The root lane and must cases under cgroup v2 in a VM (VM=reduced: under 5 minutes)
	@.ci/need qemu-system-x86:qemu-system-x86_64 mmdebstrap:mmdebstrap cpio:cpio python3:/usr/bin/python3
	@$(PYTHON) -B internal/vm/run.py $(VM) $(if $(KERNEL),--kernel $(KERNEL)) $(if $(CASES),--cases "$(CASES)")

cases: need-python build ## Judge a case file against the real daemon: CASES=FILE [GROUP= ENGINE= CONFIG=FILE INTEGRITY= LEVEL= ONLY=id,id]
	@test -n "$(CASES)" || { echo "say which: make cases CASES=FILE"; exit 2; }
	@$(PYTHON) -B internal/cases "$(CASES)" --build build $(if $(GROUP),--group $(GROUP)) $(if $(ENGINE),--engine $(ENGINE)) $(if $(CONFIG),--config "$(CONFIG)") \
		$(if $(INTEGRITY),--integrity $(INTEGRITY)) $(if $(LEVEL),--level $(LEVEL)) $(if $(ONLY),--only $(ONLY))

humaneval: need-python build ## Judge HumanEval problems, solved and unsolved: HUMANEVAL=FILE [ENGINE= CONFIG=FILE]
	@test -n "$(HUMANEVAL)" || { echo "say which: make humaneval HUMANEVAL=FILE"; exit 2; }
	@$(PYTHON) -B internal/cases/humaneval.py "$(HUMANEVAL)" --build build $(if $(ENGINE),--engine $(ENGINE)) $(if $(CONFIG),--config "$(CONFIG)")

bench: need-root need-python build ## Measure a private daemon against a plain subprocess into build/bench.json [BENCH="--full --check"]
	@.ci/need python3-numpy:/usr/lib/python3/dist-packages/numpy
	@examples/bench.sh $(BENCH)

bench-go: need-root need-python ## Go benchmarks of codec, plan, admission, pool into build/bench.txt, as benchstat reads them
	@mkdir -p build
	@SANDBOXD_LANE=root $(GO) test -run '^$$' -bench . -count $(COUNT) -benchtime 300ms ./sandbox/pyrunner ./daemon/runs ./isolation/native | tee build/bench.txt


fuzz: ## Fuzz every target for FUZZTIME each (20s)
	@.ci/fuzz $(FUZZTIME)

cover: ## Statement coverage of the unit lane, by package
	@mkdir -p build
	@$(GO) test -coverprofile=build/cover.out ./... | grep -v 'no test files'
	@$(GO) tool cover -func=build/cover.out | tail -1

ci: ## What CI runs, each lane timed
	@.ci/lanes

clean: ## Remove everything that targets here have built
	@rm -rf build

need-python:
	@.ci/need python3:/usr/bin/python3

need-runtimes:
	@.ci/need runc:runc crun:crun runsc:runsc docker.io:dockerd

need-root:
	@[ "$$(id -u)" = 0 ] || { echo "this lane needs root: run it as root, or run make test for what you may run"; exit 1; }
