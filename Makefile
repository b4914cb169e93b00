# Weft. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
export WEFT_CACHE ?= $(HOME)/.cache/weft
export WEFT_BIN := $(CURDIR)/bin

GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(WEFT_CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
CONTROLLER_GEN_VERSION := v0.23.0
CONTROLLER_GEN := $(WEFT_CACHE)/controller-gen-$(CONTROLLER_GEN_VERSION)/controller-gen
CRDS := crd paths=./api/v1alpha1
DEEPCOPY := object:headerFile=hack/license.go.txt paths=./api/v1alpha1

# A cluster for tests: make cluster NODES=3 FAMILY=dual PROXY=iptables
CLUSTER_DIR ?= /tmp/weft-cluster
COMPONENTS := etcd kubernetes containerd runc coredns helm

# grpcnotrace: without grpc's debug pages, and with them html/template, the linker
# need not keep every method of every type. 6 MiB less, in memory too.
GO_BUILD := CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)'

# What demonstration and tests need from Debian, by the command or file that proves it.
DEBIAN := ip:iproute2 nft:nftables iptables:iptables ping:iputils-ping iperf3:iperf3 conntrack:conntrack \
	/usr/include/seccomp.h:libseccomp-dev gcc:gcc pkg-config:pkg-config busybox:busybox-static \
	setpriv:util-linux

##@ Use

.PHONY: demo
demo: debian binaries ## Show the main job: three nodes and their pods, from nothing to nothing
	demo/demo.sh

.PHONY: cluster
cluster: debian image components refplugins ## Start a real cluster on this machine, with Weft: NODES=2 FAMILY=dual PROXY=nftables
	go run ./test/cluster/cmd/cluster up --dir $(CLUSTER_DIR) --nodes $(or $(NODES),2) --family $(or $(FAMILY),dual) \
	  --proxy $(or $(PROXY),nftables) --image $(CURDIR)/bin/weft-image.tar
	test/cluster/install.sh $(CLUSTER_DIR)/kubeconfig $(or $(FAMILY),dual)

.PHONY: cluster-down
cluster-down: ## Stop it, and leave nothing
	go run ./test/cluster/cmd/cluster down --dir $(CLUSTER_DIR)

.PHONY: image
image: build ## Make the container image bin/weft-image.tar, for amd64 and arm64
	go run ./hack/image -version $(VERSION) -o bin/weft-image.tar

.PHONY: build
build: binaries ## Build static binaries: bin/ for this machine, bin/amd64 and bin/arm64
	for arch in amd64 arm64; do \
	  echo "building for $$arch"; \
	  GOARCH=$$arch $(GO_BUILD) -o bin/$$arch/ ./cmd/...; \
	  ln -f bin/$$arch/weft-cni bin/$$arch/weft-ipam; \
	done

.PHONY: binaries
binaries: ## Build them for this machine only
	@echo "building bin/weft-cni, bin/weft-ipam, bin/weft"
	@$(GO_BUILD) -o bin/ ./cmd/...
	@ln -f bin/weft-cni bin/weft-ipam

##@ Prove

.PHONY: test
test: debian image refplugins components lint generate-check ## Everything that proves the project (what CI runs)
	test/run.sh

.PHONY: fast
fast: binaries ## The inner loop: vet, and the tests that need no other binaries
	go vet ./...
	go test ./api/... ./cmd/... ./internal/...

.PHONY: lint
lint: $(GOLANGCI) ## Formatting, vet and linters
	$(GOLANGCI) run ./...

.PHONY: generate-check
generate-check: $(CONTROLLER_GEN) ## Fail if something generated is not what generate would write
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	$(CONTROLLER_GEN) $(DEEPCOPY) output:dir="$$dir"; \
	diff -u api/v1alpha1/zz_generated.deepcopy.go "$$dir"/zz_generated.deepcopy.go || { echo "run: make generate"; exit 1; }; \
	$(CONTROLLER_GEN) $(CRDS) output:crd:dir="$$dir/crds"; \
	diff -u deploy/chart/crds "$$dir/crds" || { echo "run: make generate"; exit 1; }
	@test/components/build.sh helm >/dev/null
	@for what in install uninstall; do file=deploy/weft.yaml; [ $$what = install ] || file=deploy/weft-uninstall.yaml; \
	  diff -u $$file <(deploy/render.sh $$what) || { echo "run: make generate"; exit 1; }; done

.PHONY: bench
bench: debian binaries refplugins ## Measure against the reference plugins; REPORT=1 writes docs/benchmarks.md
	go run ./test/bench $(if $(REPORT),-report docs/benchmarks.md)

.PHONY: e2e
e2e: debian image components refplugins ## The tests on a real cluster
	go test -count=1 -timeout 30m -v ./test/e2e

.PHONY: bench-cluster
bench-cluster: debian image components refplugins ## Measure on a real cluster; REPORT=1 writes docs/benchmarks-cluster.md
	go run ./test/bench-cluster $(if $(REPORT),-report docs/benchmarks-cluster.md)

.PHONY: fuzz
fuzz: ## Fuzz every parser with INPUTS (default 200000x) each
	test/fuzz.sh $(or $(INPUTS),200000x)

##@ Prepare

.PHONY: debian
debian: ## Install the Debian packages that are missing
	@missing=(); for p in $(DEBIAN); do command -v "$${p%%:*}" >/dev/null || [ -e "$${p%%:*}" ] || missing+=("$${p##*:}"); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
	  echo "installing Debian packages: $${missing[*]}"; \
	  [ "$$(id -u)" = 0 ] || { echo "be root, or: apt-get install $${missing[*]}"; exit 1; }; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null; \
	fi

.PHONY: refplugins
refplugins: ## Build the reference CNI plugins once, into the cache
	test/refplugins/build.sh >/dev/null

.PHONY: components
components: ## Build the parts of a cluster once, into the cache (some 12 minutes the first time)
	test/components/build.sh $(COMPONENTS) >/dev/null

$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI_VERSION) (once, some minutes)"
	mkdir -p $(@D)
	GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(CONTROLLER_GEN):
	@echo "building controller-gen $(CONTROLLER_GEN_VERSION) (once)"
	mkdir -p $(@D)
	GOBIN=$(@D) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Write what is generated: deep copies of the API's kinds, CRDs, manifests
	$(CONTROLLER_GEN) $(DEEPCOPY)
	$(CONTROLLER_GEN) $(CRDS) output:crd:dir=deploy/chart/crds
	deploy/render.sh install > deploy/weft.yaml
	deploy/render.sh uninstall > deploy/weft-uninstall.yaml

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin

.PHONY: help
help: ## Show this
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
