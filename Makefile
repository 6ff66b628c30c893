# `make run` shows the main job; `make test` checks everything. Both set up what they need.
SHELL := /bin/bash
# For Package.swift: the programs, the servers and the tests too, not only what an app is given.
export TILECACHE_TOOLS := 1
# Else Swift gives the package's traits to the compiler in another order each time, and all targets are compiled anew.
export SWIFT_DETERMINISTIC_HASHING := 1
# One build for `make run` and `make test`: flags that differ would compile everything twice. Packages and tests are not optimised, which
# takes half of its time; Package.swift has our own targets optimised all the same.
STRICT_FLAGS := --explicit-target-dependency-import-check error -Xswiftc -Onone -debug-info-format none
STRICT := TILECACHE_STRICT=1 SCRATCH=.build-strict CHECKS="$(STRICT_FLAGS)"

.PHONY: help setup build run serve test lint check-imports check-model check-format check-s3 check-s3-ceph check-http2 check-fields check-haproxy check-readme check-purge-list check-sets check-page check-mapkit check-app \
	package check-package check-faults check-disk test-apple build-apple bench check-instructions bench-proxy bench-fleet soak-proxy fuzz tsan asan docs clean

help: ## lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## installs what is missing (apt; says what to do elsewhere)
	@Scripts/setup.sh

build: setup ## builds the library, tilegc and tileproxy for release
	swift build -c release

run: setup ## imports the sample map, bounds it, checks it and gets it out again
	@$(STRICT) Scripts/run.sh

serve: setup ## runs tileproxy on a sample tile server, with a map to look at, until Ctrl-C
	@$(STRICT) Scripts/serve.sh

BUILT := $(STRICT) NO_BUILD=1
STRICT_BUILD := $(STRICT) swift build -c release --build-tests $(STRICT_FLAGS) --scratch-path .build-strict

# What is tested against a real S3 server.
S3_TESTS := Scripts/run-tests.sh --filter "S3ServerTests|SharedServerTests|SharedCommandTests|SignatureV4Tests"

test: setup check-imports lint ## builds without warnings, runs all tests and checks
	$(STRICT_BUILD)
	@$(STRICT) Scripts/run-tests.sh
	@Scripts/check-model.sh
	@$(BUILT) Scripts/check-format.sh
	@$(BUILT) Scripts/check-readme.sh
	@$(BUILT) Scripts/check-purge-list.sh
	@$(BUILT) Scripts/check-sets.sh
	@$(BUILT) Scripts/check-examples.sh
	@$(BUILT) Scripts/check-page.sh
	@$(BUILT) Scripts/check-mapkit.sh
	@Scripts/check-app.sh
	@echo "make test: all passed"

lint: ## checks the format
	swift format lint --strict --recursive Sources Tests Examples Package.swift

check-imports: ## checks that the targets' arrows point down
	@Scripts/check-imports.sh

check-model: setup ## checks the protocol's model with spin
	@Scripts/check-model.sh

check-format: setup ## compares tilegc with a reader written from the format's description
	@Scripts/check-format.sh

check-s3: setup ## runs the tests of the S3 client, and of proxies on one bucket, against a real server (OpenStack Swift, from PyPI or apt)
	$(STRICT_BUILD)
	@$(STRICT) Scripts/s3-server.py $(S3_TESTS)

check-s3-ceph: setup ## the same against Ceph's RADOS gateway, where that is installed
	$(STRICT_BUILD)
	@$(STRICT) Scripts/s3-server.py --ceph --if-available $(S3_TESTS)

check-http2: setup ## checks tileproxy's TLS and HTTP/2 with an independent client (h2, from PyPI)
	@Scripts/check-http2.sh

check-fields: setup ## compares tileproxy's reading of structured fields with an independent one (http-sf, from PyPI)
	@Scripts/check-fields.sh $(ARGS)

check-haproxy: setup ## checks tileproxy behind HAProxy (PROXY protocol) and nginx (Unix socket), where these are installed
	@Scripts/check-haproxy.sh

check-readme: setup ## runs the commands and the example of README.md
	@Scripts/check-readme.sh

check-sets: setup ## compares sets with a reader written from their description; runs the commands of two chapters about them
	@Scripts/check-sets.sh

check-purge-list: setup ## runs the commands of "From renderer to CDN" in Docs/operations.md
	@Scripts/check-purge-list.sh

check-examples: setup ## builds and runs the programs in Examples/
	@Scripts/check-examples.sh

check-page: setup ## opens tileproxy's page in a browser without a window
	@Scripts/check-page.sh

check-mapkit: setup ## compiles the MapKit adapter against a stand-in for MapKit and runs its tests
	$(STRICT_BUILD)
	@$(STRICT) Scripts/run-tests.sh --filter TileCacheMapKitTests
	@$(BUILT) Scripts/check-mapkit.sh

test-apple: ## builds and tests on macOS
	swift test -c release -Xswiftc -enable-testing --scratch-path .build-apple

build-apple: ## builds the libraries for a simulator; PLATFORM is iOS, tvOS or visionOS
	env -u TILECACHE_TOOLS xcodebuild build -quiet -scheme swift-tile-cache-Package \
		-destination "generic/platform=$(PLATFORM) Simulator"

package: ## makes dist/*.deb and dist/*.tar.gz: both programs, without need of Swift where they run
	@Scripts/setup.sh package
	@Scripts/package.sh

check-package: ## installs the package of dist/ where no Swift is, and runs the main job (as root; needs debootstrap)
	@Scripts/check-package.sh

check-app: setup ## resolves and builds what an app is given, in a package of its own
	@Scripts/check-app.sh

bench: setup ## measures everything; ARGS="--quick" is a look, others go to Scripts/bench.py
	@Scripts/bench.sh $(ARGS)

check-instructions: setup ## compares the instructions of a hit, a put and an opened entry with known counts
	@Scripts/check-instructions.sh $(ARGS)

bench-proxy: setup ## measures tileproxy beside nginx (needs nginx and wrk)
	@Scripts/bench-proxy.sh $(ARGS)

bench-fleet: setup ## measures proxies on one bucket of an S3 server (needs nginx and wrk; OpenStack Swift comes from PyPI)
	@Scripts/bench-fleet.sh $(ARGS)

soak-proxy: setup ## runs tileproxy for 30 minutes before an origin that fails, and checks every answer
	@Scripts/soak-proxy.sh $(ARGS)

check-faults: build ## runs both programs while reads, writes, opens and syncs of files fail (needs fiu-utils)
	@PATH="$$(swift build -c release --show-bin-path):$$PATH" Scripts/check-faults.py $(ARGS)

check-disk: build ## runs both programs on an ext4 that fills up, turns read-only or loses its power (as root)
	@PATH="$$(swift build -c release --show-bin-path):$$PATH" Scripts/check-disk.py $(ARGS)

fuzz: setup ## fuzzes with coverage what takes bytes from outside; TARGETS, SECONDS_EACH (30)
	@Scripts/fuzz.sh

tsan: setup ## runs the tests under the thread sanitizer, with fewer seeds
	@Scripts/sanitize.sh thread $(ARGS)

asan: setup ## the same under the address sanitizer
	@Scripts/sanitize.sh address $(ARGS)

docs: setup ## builds the libraries' documentation into .build-docs/html
	for target in TileGeometry TileStore CacheEngine TileCache TileCacheMapKit; do \
		mkdir -p .build-docs/html/$$target; \
		TILECACHE_DOCS=1 swift package --scratch-path .build-docs \
			--allow-writing-to-directory .build-docs/html/$$target generate-documentation --target $$target \
			--warnings-as-errors --output-path .build-docs/html/$$target || exit 1; \
	done

clean: ## removes what was built
	rm -rf .build .build-* Benchmarks/.build run dist
