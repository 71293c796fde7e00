# Ingot. `make` alone prints this help.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
SHELL := /bin/bash

# Without a tag, the commit's time: apt takes a package of the same version for one that is installed already.
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null | sed 's/^v//' | grep . || TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=0.1.0-dev.%cd 2>/dev/null | grep . || echo 0.1.0-dev)
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION)
# Without grpc's trace pages: they pull in html/template, which keeps the linker from leaving out methods that nobody calls.
GOTAGS  := grpcnotrace
GOBUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -ldflags '$(LDFLAGS)'

BINARIES := ingot ingot-controller ingot-agent ingot-image
TOOLS    := buf protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway protoc-gen-openapiv2 sqlc golangci-lint gotestsum

# Packages under test; `make test PKG=./controller/...` narrows it.
PKG          ?= ./...
TEST_TIMEOUT ?= 20m
TEST_FLAGS   ?=
# Those that read the tree, start programs and machines, or compute in one goroutine what takes nine times as long with
# the detector. They begin no goroutine, but for those that a test of the tree names.
UNRACED      := /invariants$$|/imagebuild(/bootdisk)?$$|/internal/localpg$$|/disk/image$$|/catalog/image$$|/operation/(decider|situation)$$|/agent/host(/disks|/firewall|/network|/rollback)?$$|/lab/([^ef]|f[^l])
GOTESTSUM    := bin/tools/gotestsum --format $(if $(CI),pkgname,pkgname-and-test-fails) --hide-summary=skipped
# Without the race detector tests share what is compiled for the programs, which they start. What vet says, make lint says.
UNRACED_TEST := env CGO_ENABLED=0 $(GOTESTSUM) -- -vet=off -trimpath -buildvcs=false -tags $(GOTAGS)
TESTPG       := scripts/testpg run --
# Long tests, with the flags of UNRACED_TEST: what one has compiled, the other need not.
GOTEST       := env CGO_ENABLED=0 go test -vet=off -trimpath -buildvcs=false -tags $(GOTAGS)

.PHONY: help
help: ## Print this help
	@awk -F ':.*## ' '/^[a-zA-Z0-9_\/-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binaries into bin/
	@mkdir -p bin
	@for b in $(BINARIES); do echo "build bin/$$b" && $(GOBUILD) -o bin/$$b ./cmd/$$b || exit 1; done

# A tool is rebuilt when its pin changes. Each has a module of its own: together they don't resolve.
# The last is built only where it is used: it takes long.
TOOL_BINARIES := $(addprefix bin/tools/,$(TOOLS) versitygw)

.PHONY: tools
tools: $(addprefix bin/tools/,$(TOOLS)) ## Build the pinned tools into bin/tools

.SECONDEXPANSION:
$(TOOL_BINARIES) bin/tools/tofu bin/tools/helm: bin/tools/%: tools/$$*/go.mod tools/$$*/go.sum
	@mkdir -p bin/tools
	@echo "build $@"
	@cd tools/$* && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../../$@ tool
	@touch $@

GENERATORS := $(addprefix bin/tools/,buf protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway protoc-gen-openapiv2 sqlc)

.PHONY: generate
generate: $(GENERATORS) ## Regenerate the Go and OpenAPI of api/ and the Go of the SQL queries
	scripts/generate .

.PHONY: generate-check
generate-check: $(GENERATORS) ## Prove that the generated code in the tree is up to date
	scripts/generate-check

# Tests beside the code make the generated pages; without the flag they compare, in every `make test`.
DOCUMENTS := -count 1 -run '^TestReference|^TestDocument(Shows|Matches)|^TestOperatingGuide'
DOCUMENTED := ./invariants ./cli ./controller/config ./controller/cmdline ./controller/domain/fleet ./controller/domain/node ./controller/domain/explain/rules ./controller/domain/plan ./controller/domain/operation \
	./controller/domain/workflow ./agent/config ./agent/cmdline ./agent/provider/maas ./imagebuild/cmdline ./internal/erasure ./internal/obs/metrics ./internal/obs/traces ./lab/alerts

.PHONY: docs
docs: ## Write the generated pages of docs/reference again
	$(GOTEST) $(DOCUMENTED) $(DOCUMENTS) -update-docs
	cp docs/reference/errors.md integrations/opentofu/ingot/errors.txt

.PHONY: docs-check
docs-check: ## Prove that the generated pages of docs/reference are up to date
	$(GOTEST) $(DOCUMENTED) $(DOCUMENTS)

.PHONY: walks
walks: deps ## Count the files that a reboot passes through, and write them into the reference (5 minutes)
	CGO_ENABLED=0 go build -cover -covermode atomic -coverpkg ./lab/walks,./controller/...,./agent/... -trimpath -buildvcs=false -tags $(GOTAGS) -o dist/walks ./lab/walks
	$(TESTPG) dist/walks -test.v -out docs/reference/data/walks.json
	$(GOTEST) ./invariants -count 1 -run '^TestReferenceWalks$$' -update-docs

.PHONY: lint
lint: bin/tools/golangci-lint bin/tools/buf ## Run golangci-lint, buf lint, buf breaking and shellcheck
	scripts/install-deps lint
	@# Compiled as the programs and the tests are: their packages are there already.
	CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false' bin/tools/golangci-lint run --build-tags $(GOTAGS)
	cd api && ../bin/tools/buf lint
	scripts/buf-breaking
	scripts/list-shell | xargs shellcheck -x

.PHONY: deps
deps: ## Install the Debian packages that tests need (root), or say which
	scripts/install-deps test

TEST_PROGRAMS := $(CURDIR)/bin/test

.PHONY: test
test: deps bin/tools/gotestsum ## Run every test on a private Postgres, the packages of the product with the race detector
ifeq ($(PKG),./...)
	@# The programs that tests start are built once for all packages.
	@mkdir -p $(TEST_PROGRAMS)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -ldflags '-s -w' -o $(TEST_PROGRAMS) ./cmd/ingot ./cmd/ingot-agent ./cmd/ingot-controller ./cmd/ingot-image
	@# What starts programs is never taken from the cache, which does not know them: -count 1.
	@# Whole systems, two at a time as they wait as much as they work, without the race detector: PKG=./lab/e2e/... runs them with it.
	@# The longest start first: at the end there is none that has the machine for itself.
	INGOT_TEST_PROGRAMS=$(TEST_PROGRAMS) $(UNRACED_TEST) -count 1 -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) -p 2 \
		./lab/e2e $(addprefix ./lab/e2e/,tasks why rolling silence fleetview provision) ./lab/e2e/...
	@# What computes and what waits, beside each other.
	INGOT_TEST_PROGRAMS=$(TEST_PROGRAMS) $(TESTPG) $(MAKE) --no-print-directory -j2 test-raced test-unraced
	@# Emulated machines take every processor there is, and are left alone with them.
	INGOT_TEST_PROGRAMS=$(TEST_PROGRAMS) $(TESTPG) $(UNRACED_TEST) -count 1 -parallel $$(( $$(nproc) + 1 )) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./lab
else
	$(TESTPG) $(GOTESTSUM) -- -race -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(PKG)
endif

# The longest starts first, beside all others. Many of them wait as much as they work, so there is one more than processors.
.PHONY: test-raced
test-raced: ## Run the tests of the packages that have the race detector in make test, on the Postgres of INGOT_TEST_DATABASE_URL
	$(GOTESTSUM) -- -race -vet=off -trimpath -p $$(( $$(nproc) + 1 )) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $$(go list ./controller/store/... ./controller/api/public/machine) $$(go list ./... | grep -Ev '$(UNRACED)|/lab$$|/lab/e2e(/|$$)')

.PHONY: test-unraced
test-unraced: ## Run the tests of the packages that do without the race detector
	$(UNRACED_TEST) -count 1 -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $$(go list ./lab/attack ./agent/host ./agent/host/disks) $$(go list ./... | grep -E '$(UNRACED)')

.PHONY: test-fast
test-fast: deps bin/tools/gotestsum ## Run the quick tests of all but whole systems, without the race detector (3 minutes)
	$(TESTPG) $(UNRACED_TEST) -short -timeout 5m $(TEST_FLAGS) $$(go list ./... | grep -v '/lab')

.PHONY: fuzz
fuzz: ## Fuzz every parser of what strangers send, ten minutes each (FUZZTIME=1m, FUZZ='dhcp|tftp' for less)
	scripts/fuzz $(if $(FUZZ),'$(FUZZ)')

# Folders testdata/cases hold inputs of other people's tools and devices, by kind; a file there, with its value, is a test.
.PHONY: cases
cases: deps ## Read every input of testdata/cases (CSV, user-data, trees of sysfs, recordings of BMCs) with every reader of its kind
	$(GOTEST) -count 1 -run '^TestCases|^TestTheOracle$$' $(TEST_FLAGS) \
		$$(find . -type d -path '*/testdata/cases' -not -path './node_modules/*' -printf '%h\n' | xargs -n 1 dirname | sort -u)

.PHONY: cover
cover: deps bin/tools/gotestsum ## Measure test coverage into dist/coverage.html
	@mkdir -p dist
	$(TESTPG) $(GOTESTSUM) -- -timeout $(TEST_TIMEOUT) -coverprofile=dist/coverage.txt -coverpkg=./... $(PKG)
	go tool cover -html=dist/coverage.txt -o dist/coverage.html
	@go tool cover -func=dist/coverage.txt | tail -1

CHAOS_FLAGS ?= --runs 2000
KILL_FLAGS ?=

.PHONY: chaos
chaos: deps build dist/chaos/harness ## Break whole systems 2,000 times, and judge what they did (CHAOS_FLAGS=--help for less, for one seed again, or to --resume)
	@# In half of the systems the clocks can be set. These programs take minutes to build, the first time.
	$(GOBUILD) -overlay dist/chaos/overlay/overlay.json -o dist/chaos/stepped/ ./cmd/ingot-controller ./cmd/ingot-agent
	@# One controller of some wide worlds is an older one, where the history has one that can be built.
	old=$$(scripts/build-old-controller dist/old $(OLD)) || old=; \
		dist/chaos/harness --bin bin --stepped dist/chaos/stepped $${old:+--old $$old} --runs 2000 $(CHAOS_FLAGS)

.PHONY: test-kill
test-kill: deps dist/chaos/harness ## Break one system of 300 machines, 20 agents and 64 clients for 5 minutes, and judge every answer of why (KILL_FLAGS=--help for less, or one seed again)
	$(GOBUILD) -overlay dist/chaos/overlay/overlay.json -o dist/chaos/stepped/ ./cmd/ingot-controller ./cmd/ingot-agent
	@mkdir -p dist/kill
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -o dist/kill/harness ./lab/kill
	dist/kill/harness --bin dist/chaos/stepped $(KILL_FLAGS)

.PHONY: dist/chaos/harness
dist/chaos/harness:
	@mkdir -p dist/chaos
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -o $@ ./lab/chaos
	$@ overlay dist/chaos/overlay

# Binaries that lack a protection; they are built apart from those that ship. PLANTED=NAME tries one.
PLANTED := grant intent-record dedup-cache state-id version-guard \
	grant-window window-clock expiry-clock shared-time known-time grant-receipt grant-start \
	memory-numbers event-number superseded clone-hardware \
	boot-hardware boot-claim asked-boot late-claim ungranted-result foreign-result fence \
	memory-lost-fails rolled-back-fails rolled-back-stops resume-fails deadline-fails unknown-retried \
	batch-written batch-shared event-unstored machine-feed event-feed webhook-feed

.PHONY: test-chaos-planted
test-chaos-planted: deps dist/chaos/harness ## Take each protection away, and hold that chaos notices within 200 runs
	@mkdir -p dist/planted
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS),planted -overlay dist/chaos/overlay/overlay.json -o dist/planted/ ./cmd/ingot-controller ./cmd/ingot-agent
	@bad=; for b in $(PLANTED); do \
		dist/chaos/harness --bin dist/planted $$([ $$b = foreign-result ] || echo --stepped dist/planted) --planted $$b --runs 200 --rest 1m --limit 10m --out dist/chaos/$$b $(PLANTED_FLAGS) || bad="$$bad $$b"; \
	done; [ -z "$$bad" ] || { echo "not noticed:$$bad"; exit 1; }

.PHONY: mutants
mutants: deps ## Change the code that carries the promise 1,000 times, and count what the tests notice (MUTANTS_FLAGS=--help for all 12,700, one package, other seeds)
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -o dist/mutants ./lab/mutants
	$(TESTPG) nice dist/mutants $(MUTANTS_FLAGS)

.PHONY: requirements-break
requirements-break: deps ## Break the code under 100 lines of the requirements, and count which breaks the tests that the line names notice (REQUIREMENTS_FLAGS='--seed 7 --lines 20')
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -o dist/mutants ./lab/mutants
	$(TESTPG) nice dist/mutants requirements --tree dist/requirements $(REQUIREMENTS_FLAGS)

.PHONY: test-recipes
test-recipes: deps $(GENERATORS) ## Execute the recipes of CONTRIBUTING.md in copies of the tree, and each again with every step left out (an hour)
	$(GOTEST) -tags recipes,$(GOTAGS) -timeout 120m -count 1 -v -run TestRecipes $(TEST_FLAGS) ./lab/recipes

DISKS_FLAGS ?= -runs 500
DISKS_ENDED ?= $(CURDIR)/bin/test-disks.ended
.PHONY: test-disks
test-disks: deps ## Install and erase on 500 random machines with faults, and compare what is said with every byte; goes on where it was stopped (10 minutes)
	@mkdir -p $(dir $(DISKS_ENDED))
	$(GOTEST) ./lab/disks -run TestRandomDisks -count 1 -timeout 60m -parallel 8 -v $(DISKS_FLAGS) -ended $(DISKS_ENDED)
	$(GOTEST) ./agent/disk/image -run TestWhatIsLeftIsTrue -count 1 -timeout 30m -v -left-runs 500
	rm $(DISKS_ENDED)

MAAS_FLAGS ?= -long -random-runs 500
.PHONY: test-maas
test-maas: deps ## Put every fault at every request that a machine's life makes to MAAS, and 500 times several at random (3 minutes)
	$(GOTEST) ./lab/maas -count 1 -timeout 30m -parallel 16 -v -run '$(or $(MAAS),.)' $(MAAS_FLAGS) | grep -Ev '^(=== |    --- PASS)'

.PHONY: test-identity
test-identity: deps ## Judge the identity of hosts over 1,000 random boots, reimages and part swaps (IDENTITY_FLAGS=-identity-seed=N repeats one)
	$(GOTEST) ./agent/host -run '^TestRandomHardware$$' -count 1 -timeout 60m -v -identity-boots 1000 $(IDENTITY_FLAGS)

NETWORK_RUNS ?= 1:500
NETWORK_DONE ?= dist/network-done
.PHONY: test-network
test-network: deps ## Change networks of hosts in virtual machines under 500 random faults, 50 of them a reset of the machine (NETWORK_RUNS=FIRST:COUNT; what NETWORK_DONE names is not run again)
	@mkdir -p $(dir $(NETWORK_DONE))
	INGOT_NETWORK_RUNS=$(NETWORK_RUNS) INGOT_NETWORK_DONE=$(abspath $(NETWORK_DONE)) $(GOTEST) ./agent/host -run '^TestNetworkRuns$$' -count 1 -timeout 24h -v

.PHONY: attack
attack: deps ## Attack a controller in every part that a hostile party can have, and print what each gained and cost
	$(TESTPG) $(GOTEST) ./lab/attack -count 1 -timeout 60m -v -run '$(or $(ATTACK),TestAttacks)' -long $(TEST_FLAGS)

.PHONY: test-offers
test-offers: deps ## Bring about every state of a machine, and take each action that is offered there (4 minutes)
	$(TESTPG) $(GOTEST) -tags offers,$(GOTAGS) -timeout 20m -count 1 -v -run TestEveryOfferedActionSucceeds $(TEST_FLAGS) ./lab/e2e/why

.PHONY: test-budgets
test-budgets: deps ## Try every verb on 1,000 machines under budgets, with relabelling and moves meanwhile (10 minutes)
	$(TESTPG) $(GOTEST) -timeout 60m -count 1 -v -run TestBudgetsHold $(TEST_FLAGS) ./lab/previews -args -budget-machines 1000 -previews-seed 0

.PHONY: test-previews
test-previews: deps ## Compare 2,000 previews with their calls, on random fleets with agents that do as asked (6 minutes)
	$(TESTPG) $(GOTEST) -timeout 60m -count 1 -v -run 'TestAPreviewAndTheWorkAgree|TestValidateOnly' $(TEST_FLAGS) ./lab/previews -args \
		-previews 2000 -previews-seed 0

.PHONY: test-rolling
test-rolling: deps ## Restart, kill and stop three controllers in turn, under load, and hold that nobody notices (5 minutes)
	$(TESTPG) $(GOTEST) -tags rolling,$(GOTAGS) -timeout 60m -count 1 -v -run TestRollingLong $(TEST_FLAGS) ./lab/e2e/rolling

.PHONY: test-jobs
test-jobs: deps ## Kill each of three controllers amid 1,000 operations, run 10,000 more, and print how soon each goes on (4 minutes)
	$(TESTPG) $(GOTEST) -tags rolling,$(GOTAGS) -timeout 20m -count 1 -v -run 'TestJobsLong' $(TEST_FLAGS) ./lab/e2e/rolling

.PHONY: test-standby
test-standby: deps ## Kill Postgres under load and promote its standby: one that is synchronous, and one that lags (2 minutes)
	$(TESTPG) $(GOTEST) -tags standby,$(GOTAGS) -timeout 20m -count 1 -v -run 'TestASynchronousStandby|TestAnAsynchronousStandby' $(TEST_FLAGS) ./lab/e2e/standby

.PHONY: test-postgres
test-postgres: deps ## Run the stores and a whole system on PostgreSQL 17 of trixie, and hold that 13 of bullseye is refused (root; 10 minutes)
	scripts/foreign-postgres 13 bullseye $(GOTEST) -count 1 -run TestAServerThatIsTooOld $(TEST_FLAGS) ./controller/store/schema
	scripts/foreign-postgres 17 trixie $(GOTEST) -p 1 -count 1 -timeout 30m $(TEST_FLAGS) ./controller/store/...
	scripts/foreign-postgres 17 trixie $(GOTEST) -p 1 -count 1 -timeout 30m -run 'TestBehindPgBouncer|TestARebootFromEndToEnd|TestReadinessFollowsWrites|TestCommitsThatAreLost|TestKill9OfControllers' $(TEST_FLAGS) ./lab/e2e/standby ./lab/e2e

.PHONY: test-haproxy
test-haproxy: deps ## The same behind HAProxy, with the configuration of deploy/high-availability
	scripts/install-deps haproxy
	$(TESTPG) $(GOTEST) -tags rolling,$(GOTAGS) -timeout 20m -count 1 -v -run TestRollingHAProxy $(TEST_FLAGS) ./lab/e2e/rolling

.PHONY: test-upgrade
test-upgrade: deps ## Roll three controllers from an older version to this one and back, under load (OLD=revision; by default the release before)
	old=$$(scripts/build-old-controller dist/old $(OLD)) && INGOT_TEST_OLD_CONTROLLER=$$old \
		$(TESTPG) $(GOTEST) -tags rolling,$(GOTAGS) -timeout 20m -count 1 -v -run TestRollingUpgrade $(TEST_FLAGS) ./lab/e2e/rolling

# Benchmarks store their figures here; the performance page and its plots are made of them.
RESULTS ?= docs/reference/performance.json
BENCH   := CGO_ENABLED=0 go run -trimpath -buildvcs=false -tags $(GOTAGS) ./lab/bench

.PHONY: bench
bench: deps build ## Print throughput, latency, memory and sizes of this tree on this machine, and write the performance page
	$(BENCH) operations --results $(RESULTS) $(BENCH_FLAGS)

.PHONY: bench-page
bench-page: ## Write the performance page out of the figures that are stored
	$(BENCH) page

.PHONY: bench-fleet
bench-fleet: deps build ## Measure 15,000 sessions, their storm, 45,000 over three controllers and onboarding (FLEET_FLAGS=--help for smaller)
	$(BENCH) fleet --results $(RESULTS) $(FLEET_FLAGS)

.PHONY: bench-scale
bench-scale: deps build ## Print what calls, walks and the controller's own work cost at 1,000 and at 1,000,000 machines
	$(BENCH) scale --results $(RESULTS) $(SCALE_FLAGS)

.PHONY: bench-pairs
bench-pairs: deps build ## Compare with an older commit by its own program, in turns (OLD=revision PAIRS=5 SCENARIO=operations|fleet|scale BENCH_FLAGS=)
	scripts/bench-pairs $(OLD) $(or $(PAIRS),5) $(or $(SCENARIO),operations) $(BENCH_FLAGS)

.PHONY: bench-metal
bench-metal: deps build ## Print the rates of DHCP, HTTP boot and image writes beside what this machine can do
	$(BENCH) dhcp
	$(BENCH) http
	$(BENCH) write

.PHONY: bench-install
bench-install: deps build debian-image ## Install a Debian image through the API and by hand, side by side (root)
	$(BENCH) install -image $(DEBIAN_IMAGE) $(BENCH_FLAGS)

CONSOLE := controller/console/web

.PHONY: console
console: ## Build the web console's pages into controller/console/dist (Node 20)
	scripts/install-deps console
	cd $(CONSOLE) && npm ci --no-fund --no-audit && npm run --silent build

.PHONY: console-check
console-check: console ## Prove that the built pages in the tree are those of their sources
	git diff --exit-code -- controller/console/dist
	test -z "$$(git status --porcelain -- controller/console/dist)"

.PHONY: console-test
console-test: deps ## Open every page of the console in Chromium against a real controller, and do work with it
	scripts/install-deps console
	cd $(CONSOLE) && npm ci --no-fund --no-audit
	$(TESTPG) $(GOTEST) -tags console,$(GOTAGS) -count 1 -v -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./lab/console

.PHONY: console-bench
console-bench: deps build ## Print what a person waits for in the console with 100,000 machines (CONSOLE_FLAGS=--help for others)
	scripts/install-deps console
	cd $(CONSOLE) && npm ci --no-fund --no-audit
	$(BENCH) console --web $(CONSOLE) $(CONSOLE_FLAGS)

.PHONY: python-client
python-client: ## Make the Python client into dist/python, with Debian's grpc tools
	scripts/install-deps clients
	integrations/python/generate dist/python

.PHONY: test-clients
test-clients: deps ## Test the clients of Python and TypeScript against a controller (Node 20, Debian's grpc tools)
	scripts/install-deps clients
	cd integrations/typescript && npm ci --no-fund --no-audit
	$(TESTPG) $(GOTEST) -tags clients,$(GOTAGS) -count 1 -v -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./lab/e2e/clients

.PHONY: test-ansible
test-ansible: deps ## Test the Ansible collection with Debian's ansible-core against a controller
	scripts/install-deps ansible
	$(TESTPG) $(GOTEST) -tags ansible,$(GOTAGS) -count 1 -v -timeout $(TEST_TIMEOUT) -run Ansible $(TEST_FLAGS) ./lab/e2e/clients

.PHONY: test-netbox
test-netbox: deps ## Test the NetBox sync against a controller, and a NetBox made from its source or at INGOT_TEST_NETBOX_URL
	$(TESTPG) $(GOTEST) -tags netbox,$(GOTAGS) -count 1 -v -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./lab/e2e/netbox

# A mirror of providers, as tofu init reads it, and the configuration that names it.
OPENTOFU := dist/opentofu
OPENTOFU_PROVIDER = $(OPENTOFU)/mirror/registry.opentofu.org/ingot-metal/ingot/0.1.0/$(shell go env GOOS)_$(shell go env GOARCH)

.PHONY: opentofu-provider
opentofu-provider: ## Build the provider for OpenTofu into dist/opentofu
	@rm -rf $(OPENTOFU) && mkdir -p $(OPENTOFU_PROVIDER)
	cd integrations/opentofu && $(GOBUILD) -o ../../$(OPENTOFU_PROVIDER)/terraform-provider-ingot .
	printf 'provider_installation {\n  filesystem_mirror {\n    path = "%s"\n    include = ["ingot-metal/ingot"]\n  }\n  direct {\n    exclude = ["ingot-metal/ingot"]\n  }\n}\n' $(CURDIR)/$(OPENTOFU)/mirror > $(OPENTOFU)/tofu.rc

.PHONY: opentofu-docs
opentofu-docs: ## Write the provider's pages for registries of OpenTofu out of its schema
	cd integrations/opentofu && CGO_ENABLED=0 go test -vet=off -trimpath -buildvcs=false -tags $(GOTAGS) ./ingot -count 1 -run '^TestReferenceOfTheRegistry$$' -update-docs

.PHONY: test-opentofu
test-opentofu: deps opentofu-provider bin/tools/tofu ## Test the provider with OpenTofu (builds it) against controllers, and kill both (10 minutes)
	cd integrations/opentofu && CGO_ENABLED=0 go test -trimpath -buildvcs=false -tags $(GOTAGS) ./...
	ln -sf ../../bin/tools/tofu $(OPENTOFU)/tofu
	INGOT_TEST_OPENTOFU=$(CURDIR)/$(OPENTOFU) $(TESTPG) $(GOTEST) -tags opentofu,$(GOTAGS) -count 1 -v -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) ./lab/e2e/opentofu

.PHONY: demo
demo: ## Start a controller, install a machine from an empty disk, and add simulated hosts
	scripts/demo.sh up

.PHONY: demo-down
demo-down: ## Stop the demo and remove everything that it made
	scripts/demo.sh down

.PHONY: lab
lab: ## Put up a small data centre: controller, site agent, machines with BMCs and empty disks
	@scripts/install-deps demo
	@mkdir -p bin
	@for b in $(sort $(BINARIES) ingot-image ingot-lab); do $(GOBUILD) -o bin/$$b ./cmd/$$b || exit 1; done
	bin/ingot-lab up $(LAB_FLAGS)

.PHONY: lab-down
lab-down: ## End the small data centre and remove what it made
	bin/ingot-lab down

.PHONY: test-metal
test-metal: deps ## Run the long tests on virtual machines: every fault, every way in (half an hour)
	$(GOTEST) -tags metal,$(GOTAGS) -timeout 90m -count 1 -v -run 'TestMetal|TestLife|TestAFailedInstall' -skip 'TestMetalDebian|TestMetalStock' $(TEST_FLAGS) ./lab

.PHONY: test-bucket
test-bucket: deps bin/tools/versitygw ## Keep images in a bucket of a real S3 server, and kill the server and the controllers (2 minutes)
	INGOT_TEST_S3=$(CURDIR)/bin/tools/versitygw $(TESTPG) $(GOTEST) -tags bucket,$(GOTAGS) -count 1 -v -timeout 20m $(TEST_FLAGS) ./controller/catalog/bucket ./lab/e2e/bucket

.PHONY: test-registry
test-registry: deps ## Fetch images from a real registry of OCI, with passwords, tokens and lies, and kill both sides (2 minutes)
	scripts/install-deps oci
	$(TESTPG) $(GOTEST) -tags registry,$(GOTAGS) -count 1 -v -timeout 20m $(TEST_FLAGS) ./lab/e2e/registry

.PHONY: test-storm
test-storm: deps ## Ask for 10,000 repaves at once under a budget of 50, and count what is being written (5 minutes)
	$(TESTPG) $(GOTEST) -tags storm,$(GOTAGS) -timeout 20m -count 1 -v ./lab/storm $(STORM_FLAGS)

# What kube-apiserver and kubeadm are built from; bin/kube keeps them until it changes.
bin/kube/%: lab/kube/go.mod lab/kube/go.sum
	@mkdir -p bin/kube
	@echo "build $@"
	@# Who asks an API server for its version gets what it was linked with.
	@cd lab/kube && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes)" -o ../../$@ k8s.io/kubernetes/cmd/$*
	@touch $@

.PHONY: test-rollouts
test-rollouts: deps ## Print how many machines a rollout touches when a tenth of them fail and its controller is killed
	set -o pipefail; $(TESTPG) $(GOTEST) ./lab/e2e -run 'TestARollout' -v -count 1 | grep -E '(touched|PASS|FAIL|panic)'

.PHONY: test-provision
test-provision: deps ## Provision 1,000 simulated machines of which 30 fail, and kill the command and the controller meanwhile (5 minutes)
	set -o pipefail; $(TESTPG) $(GOTEST) ./lab/e2e/provision -run 'TestProvisioning$$' -v -count 1 -timeout 60m -args -provision.machines 1000 -provision.broken 30 | grep -E '(machines|budget|✗|PASS|FAIL|panic)'

.PHONY: test-clusters
test-clusters: bin/kube/kube-apiserver bin/kube/kubeadm ## Hold clusters against a real kube-apiserver, etcd and kubeadm (builds them)
	scripts/install-deps test clusters
	INGOT_TEST_KUBE=$(CURDIR)/bin/kube $(TESTPG) $(GOTEST) -tags clusters,$(GOTAGS) -timeout 30m -count 1 -v $(TEST_FLAGS) ./lab/clusters

.PHONY: cluster-api
cluster-api: ## Build the infrastructure provider of Cluster API into bin/
	@mkdir -p bin
	@echo "build bin/ingot-cluster-api"
	@cd integrations/cluster-api && $(GOBUILD) -o ../../bin/ingot-cluster-api .

CLUSTER_API_REPOSITORY := dist/cluster-api

.PHONY: cluster-api-components
cluster-api-components: ## Write a local repository for clusterctl of the provider of Cluster API, as of this version, into dist/cluster-api
	@rm -rf $(CLUSTER_API_REPOSITORY)
	integrations/cluster-api/components $(CLUSTER_API_REPOSITORY) '$(VERSION)'

# It shares what is compiled for the provider.
bin/kube/cluster-api-core: integrations/cluster-api/go.mod integrations/cluster-api/go.sum
	@mkdir -p bin/kube
	@echo "build $@"
	@cd integrations/cluster-api && $(GOBUILD) -o ../../$@ sigs.k8s.io/cluster-api/core
	@touch $@

.PHONY: test-cluster-api
test-cluster-api: deps cluster-api bin/kube/kube-apiserver bin/kube/kubectl bin/kube/cluster-api-core ## Hold the provider of Cluster API against its core, a real kube-apiserver and etcd (builds them)
	scripts/install-deps test clusters
	cd integrations/cluster-api && CGO_ENABLED=0 go test -trimpath -buildvcs=false -tags $(GOTAGS) ./...
	INGOT_TEST_KUBE=$(CURDIR)/bin/kube INGOT_TEST_CLUSTER_API=$(CURDIR)/bin/ingot-cluster-api \
		INGOT_TEST_CLUSTER_API_CORE=$(CURDIR)/bin/kube/cluster-api-core \
		INGOT_TEST_CLUSTER_API_MODULE=$$(cd integrations/cluster-api && go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api) \
		$(TESTPG) $(GOTEST) -tags clusterapi,$(GOTAGS) -timeout 30m -count 1 -v $(TEST_FLAGS) ./lab/clusterapi

.PHONY: kubernetes-manifests
kubernetes-manifests: bin/tools/helm ## Write the manifests of deploy/kubernetes out of the chart
	scripts/kubernetes-manifests

.PHONY: test-helm
test-helm: deps bin/tools/helm bin/kube/kube-apiserver bin/kube/kubectl ## Install, upgrade, roll back and uninstall the chart on a real kube-apiserver, with its pods as processes (root; 5 minutes)
	scripts/install-deps test clusters
	@mkdir -p $(TEST_PROGRAMS) dist/helm
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -ldflags '-s -w' -o $(TEST_PROGRAMS) ./cmd/ingot ./cmd/ingot-controller
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -ldflags '-s -w -X main.version=0.2.0-next' -o dist/helm/ingot-controller ./cmd/ingot-controller
	INGOT_TEST_PROGRAMS=$(TEST_PROGRAMS) INGOT_TEST_NEXT_CONTROLLER=$(CURDIR)/dist/helm/ingot-controller INGOT_TEST_HELM=$(CURDIR)/bin/tools/helm \
		INGOT_TEST_KUBE=$(CURDIR)/bin/kube $(TESTPG) $(GOTEST) -tags helm,$(GOTAGS) -timeout 30m -count 1 -v $(TEST_FLAGS) ./lab/helm

# An image of one's own: make lab-debian DEBIAN_IMAGE=/path/to/image.raw.zst
DEBIAN_IMAGE ?= $(CURDIR)/dist/debian.raw.zst

.PHONY: debian-image
debian-image: ## Build the Debian image that machines are installed with, where there is none (root)
	@[ -e $(DEBIAN_IMAGE) ] || { scripts/install-deps debian && $(MAKE) deb && $(GOBUILD) -o bin/ingot-image ./cmd/ingot-image && bin/ingot-image debian --out $(DEBIAN_IMAGE); }

.PHONY: lab-debian
lab-debian: deps debian-image ## Install a Debian image on BIOS and UEFI machines, and say where the time goes (root)
	INGOT_TEST_DEBIAN=$(DEBIAN_IMAGE) $(GOTEST) -tags metal,$(GOTAGS) -timeout 30m -count 1 -v -run TestMetalDebian ./lab

# An image as its vendor ships it: make lab-stock STOCK_IMAGE=/path/to/debian-13-genericcloud-amd64.raw.zst, or
# STOCK_LAYOUT=lvm for a root on XFS in a logical volume, STOCK_LAYOUT=mdadm for one that can start a mirror.
STOCK_LAYOUT ?= plain
STOCK_IMAGE ?= $(CURDIR)/dist/stock$(filter-out -plain,-$(STOCK_LAYOUT)).raw.zst

.PHONY: lab-stock
lab-stock: deps ## Install an image that knows nothing of Ingot on BIOS and UEFI machines, and log in by ssh (root)
	@[ -e $(STOCK_IMAGE) ] || { scripts/install-deps debian && mkdir -p $(dir $(STOCK_IMAGE)) && scripts/stock-image $(STOCK_IMAGE) bookworm $(STOCK_LAYOUT); }
	INGOT_TEST_STOCK=$(STOCK_IMAGE) $(GOTEST) -tags metal,$(GOTAGS) -timeout 60m -count 1 -v -run TestMetalStock ./lab

MIRROR_IMAGE ?= $(CURDIR)/dist/stock-mdadm.raw.zst

.PHONY: lab-mirror
lab-mirror: deps ## Install an image on two disks of BIOS and UEFI machines, as a mirror, and take one disk out (root)
	@[ -e $(MIRROR_IMAGE) ] || { scripts/install-deps debian && mkdir -p $(dir $(MIRROR_IMAGE)) && scripts/stock-image $(MIRROR_IMAGE) bookworm mdadm; }
	INGOT_TEST_STOCK=$(MIRROR_IMAGE) $(GOTEST) -tags metal,$(GOTAGS) -timeout 60m -count 1 -v -run TestMetalMirror ./lab

.PHONY: first-rack
first-rack: deps build deb ## Follow docs/tutorial/first-rack.md on a fresh Debian beside three empty machines (root; 20 minutes)
	@scripts/install-deps units
	@[ -e $(STOCK_IMAGE) ] || { scripts/install-deps debian && mkdir -p $(dir $(STOCK_IMAGE)) && scripts/stock-image $(STOCK_IMAGE) bookworm $(STOCK_LAYOUT); }
	@echo "build bin/ingot-lab" && $(GOBUILD) -o bin/ingot-lab ./cmd/ingot-lab
	STOCK_IMAGE=$(STOCK_IMAGE) scripts/first-rack

# What takes too long for CI. A target that tests and is neither here nor in CI fails a test of the tree.
RELEASE_CHECKS ?= console-test test-offers test-rolling test-jobs test-standby test-postgres test-haproxy test-upgrade test-clients test-ansible \
	test-netbox test-opentofu test-bucket test-registry test-oci test-cli-archives test-release test-clusters test-cluster-api test-helm test-provision test-rollouts \
	test-maas test-disks attack test-identity test-storm test-units test-setup test-package-upgrade test-metal lab-debian lab-stock lab-mirror \
	test-previews test-budgets first-rack test-network test-recipes mutants requirements-break test-kill test-chaos-planted chaos

.PHONY: release-check
release-check: ## Run every check that is too long for CI, and write its result, commit and date into the reference (a day; RELEASE_CHECKS='attack test-maas' for some)
	scripts/release-check $(RELEASE_CHECKS)

.PHONY: smoke
smoke: build ## Run every smoke test against controllers of their own
	@echo "build bin/ingot-lab" && $(GOBUILD) -o bin/ingot-lab ./cmd/ingot-lab
	scripts/smoke/all

bin/tools/release: $(wildcard tools/release/*.go) tools/release/go.mod tools/release/go.sum
	@mkdir -p bin/tools
	@echo "build $@"
	@cd tools/release && GOOS= GOARCH= CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../../$@ .

# It has the programs' commands in it, and so every build makes it anew, for this machine.
.PHONY: dist/share
dist/share:
	@rm -rf $@ && mkdir -p dist
	@cd tools/manual && GOOS= GOARCH= CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(GOTAGS) -o ../../dist/manual .
	dist/manual --version '$(VERSION)' --epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" --out $@

# The agent is a part of it, and so every build makes it anew.
.PHONY: installer
installer: build ## Build what machines boot to be installed, with Debian's kernel for bare metal, into dist/installer
	scripts/build-installer dist/installer

.PHONY: deb
deb: installer dist/share bin/tools/release ## Build the Debian packages, and RPMs of controller, agent and command line, into dist/
	@echo "build bin/ingot-netbox-sync" && $(GOBUILD) -o bin/ingot-netbox-sync ./integrations/netbox/ingot-netbox-sync
	VERSION='$(VERSION)' deploy/build-deb dist

.PHONY: apt-repo
apt-repo: deb ## Make a signed apt repository of the packages in dist/apt
	scripts/install-deps apt
	scripts/build-apt-repo dist dist/apt

.PHONY: apt-renew
apt-renew: ## Sign the apt repository in dist/apt for another 30 days
	scripts/build-apt-repo --renew dist/apt

bin/tools/ociimage: $(wildcard tools/ociimage/*.go) tools/ociimage/go.mod tools/ociimage/go.sum
	@mkdir -p bin/tools
	@echo "build $@"
	@cd tools/ociimage && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../../$@ .

# The authorities that the programs in the images trust: a file in PEM.
OCI_CA ?= /etc/ssl/certs/ca-certificates.crt

.PHONY: oci-images
oci-images: build cluster-api bin/tools/ociimage bin/tools/release ## Write OCI images of controller, agent, command line and the provider of Cluster API into dist/oci, without a daemon
	@mkdir -p dist/oci
	@for i in controller:ingot-controller agent:ingot-agent cli:ingot cluster-api:ingot-cluster-api; do bin/tools/ociimage --image $${i%:*} --bin bin --ca $(OCI_CA) \
		--version '$(VERSION)' --revision "$$(git rev-parse HEAD 2>/dev/null)" \
		--epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" --out dist/oci/$${i#*:}.tar || exit 1; \
		bin/tools/release sbom --name "$${i#*:}" --version '$(VERSION)' --purl "pkg:oci/$${i#*:}?tag=$(VERSION)" \
		--epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" \
		--out dist/oci/$${i#*:}.cdx.json bin/$${i#*:} || exit 1; done

.PHONY: helm-chart
helm-chart: bin/tools/release ## Pack the Helm chart into dist/chart, as of this version, to the same bytes each time
	@rm -rf dist/chart && mkdir -p dist/chart
	bin/tools/release chart --version '$(VERSION)' --epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" \
		--out dist/chart deploy/helm/ingot
	bin/tools/release sbom --name ingot-chart --version '$(VERSION)' --purl 'pkg:generic/ingot-chart@$(VERSION)' \
		--epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" --out 'dist/chart/ingot-$(VERSION).tgz.cdx.json'

.PHONY: test-oci
test-oci: deps build cluster-api ## Read the OCI images with other programs, push them to a registry, and run deploy/compose.yaml with them (root; 2 minutes)
	scripts/install-deps oci
	INGOT_TEST_BIN=$(CURDIR)/bin $(TESTPG) env CGO_ENABLED=0 go -C tools/ociimage test -trimpath -buildvcs=false -count 1 -timeout 20m -v $(TEST_FLAGS) .

bin/tools/cliarchive: $(wildcard tools/cliarchive/*.go) tools/cliarchive/go.mod
	@mkdir -p bin/tools
	@echo "build $@"
	@cd tools/cliarchive && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../../$@ .

# The systems that the command line is made for.
CLI_SYSTEMS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

.PHONY: cli-archives
cli-archives: bin/tools/cliarchive bin/tools/release dist/share ## Write archives of the command line for Linux, macOS and Windows into dist/cli, with their SHA-256
	@rm -rf dist/cli
	@for s in $(CLI_SYSTEMS); do echo "build ingot for $$s" && GOOS=$${s%-*} GOARCH=$${s#*-} $(GOBUILD) \
		-o dist/cli/$$s/ingot$$([[ $$s != windows-* ]] || echo .exe) ./cmd/ingot || exit 1; done
	bin/tools/cliarchive --version '$(VERSION)' --epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" \
		--share dist/share/ingot --out dist/cli dist/cli/*/ingot*
	@for s in $(CLI_SYSTEMS); do bin/tools/release sbom --name ingot --version '$(VERSION)' --purl 'pkg:generic/ingot@$(VERSION)' \
		--epoch "$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)}" \
		--out "dist/cli/ingot_$(VERSION)_$${s/-/_}.cdx.json" dist/cli/$$s/ingot* || exit 1; done
	@rm -r $(addprefix dist/cli/,$(CLI_SYSTEMS))

.PHONY: test-cli-archives
test-cli-archives: ## Vet the command line for each system that it is made for, and make its archives twice, to the same bytes (5 minutes)
	@for s in $(CLI_SYSTEMS); do echo "vet for $$s" && GOOS=$${s%-*} GOARCH=$${s#*-} CGO_ENABLED=0 go vet -trimpath -buildvcs=false \
		-tags $(GOTAGS) ./cmd/ingot ./cli/client ./internal/clock ./internal/doctor || exit 1; done
	CGO_ENABLED=0 go -C tools/cliarchive test -trimpath -buildvcs=false -count 1 $(TEST_FLAGS) .
	CGO_ENABLED=0 go -C tools/manual test -trimpath -buildvcs=false -tags $(GOTAGS) -count 1 $(TEST_FLAGS) .
	$(MAKE) cli-archives
	mv dist/cli/SHA256SUMS dist/cli.first
	$(MAKE) cli-archives
	cmp dist/cli.first dist/cli/SHA256SUMS && cd dist/cli && sha256sum --check SHA256SUMS

.PHONY: release
release: ## Build, sum and sign all that a release has into dist/release, of a clean tree at a tag (INGOT_RELEASE_KEY=FILE)
	scripts/build-release

.PHONY: test-release
test-release: ## Make a release in two clones, to the same bytes, verify it as the documents show, and refuse a flipped byte (15 minutes)
	scripts/install-deps release
	CGO_ENABLED=0 go -C tools/release test -trimpath -buildvcs=false -count 1 $(TEST_FLAGS) .
	scripts/test-release

.PHONY: test-units
test-units: deb ## Boot a Debian tree with the packages and try the systemd units (root)
	scripts/install-deps units
	scripts/test-units
	scripts/test-units ifupdown
	scripts/test-units NetworkManager

.PHONY: test-setup
test-setup: deb ## Install the packages in a booted Debian tree, run `ingot setup` and doctor there, and purge all (root)
	scripts/install-deps units
	scripts/test-setup

.PHONY: test-package-upgrade
test-package-upgrade: deb ## Upgrade a running fleet from the packages of an older revision (OLD=revision) to these, and lose nothing (root)
	scripts/install-deps units
	scripts/test-package-upgrade

.PHONY: clean
clean: ## Remove what make has built
	rm -rf bin dist
