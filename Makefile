# Every target sets up what it needs by itself: `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
PYTHON := $(BIN)/python
LINK := .collections/ansible_collections/gpufleet/acceptance
export PATH := $(BIN):$(PATH)
export PYTHONPATH := $(CURDIR)/.collections
# Hundreds of Pythons are started: without a cache each compiles anew what it imports, and without a buffer each reads its program byte by byte.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
# Tests and drills take a quarter less processor time; benchmarks, linters and the console for people run as everywhere.
demo unit integration-quick integration-rest integration integration-all drill drill-%: export PYTHONPATH := $(CURDIR)/.collections:$(CURDIR)/tests/startup

.DEFAULT_GOAL := help
.PHONY: help setup demo console docs test test-all lint unit packages integration-quick integration-rest integration integration-all sanity drill drill-governor drill-resume drill-stop drill-stop-pods drill-rdma drill-console drill-sharing drill-sharing-resume drill-quarantine drill-freezing fuzz mutants bench schemas release rig-fleet rig-rdma rig-kubernetes rig-sharing clean clean-caches

# group: To try it, and to check a change

help: ## This list
	@awk -f tests/tools/help.awk $(MAKEFILE_LIST)

setup: $(LINK) $(VENV)/.stamp ## Virtual environment with pinned versions, and the collection link

$(LINK):
	@mkdir -p $(@D) && ln -sfn ../../.. $@

$(VENV)/.stamp: requirements.txt requirements-dev.txt
	@tests/tools/venv.sh $(VENV) && touch $@

demo: setup ## Accept a simulated fleet with planted faults; exits 0 when all and only those are found
	@$(PYTHON) tests/tools/demo.py

CONSOLE_PORT ?= 8470
console: setup ## A console over the simulated fleet: start runs, watch them, read results, search the history
	@$(PYTHON) tests/tools/console.py --port $(CONSOLE_PORT)

test: setup ## Linters, unit tests, and a real run of each promise of the README (root; 15 min, 23 the first time)
	@tests/tools/quick.sh

lint: setup ## Linters
	@tests/tools/lint.sh

unit: setup ## Unit tests
	@$(PYTHON) tests/tools/run_tests.py -n 3 --dist loadfile --timeout 600 --durations 25 tests/unit

# The tools of the documentation, its pages and the site.
SITE := .cache/docs
$(SITE)/venv/.stamp: requirements-docs.txt
	@tests/tools/shared_venv.sh $(@D) $<

PICTURES ?= yes
docs: setup $(SITE)/venv/.stamp ## The documentation as a site, with pictures of the simulated fleet; broken links fail. PICTURES=no needs no browser
	@$(PYTHON) tests/tools/docs.py --tools $(SITE)/venv/bin $(SITE) $(if $(filter no,$(PICTURES)),--no-pictures)

# group: The rest of the tests, releases, rigs

test-all: setup ## What .ci/run adds: all other integration tests, sanity, documentation, fuzz, drills (root; half an hour)
	@$(MAKE) integration-rest
	@$(MAKE) docs PICTURES=no
	@$(MAKE) fuzz INPUTS=20000
	@$(MAKE) sanity
	@$(MAKE) drill-resume KILLS=5
	@$(MAKE) drill

packages: setup ## Debian packages of the rigs and of the browser (root)
	@. tests/tools/beat.sh; $(PYTHON) tests/rigs/packages.py

integration-quick: packages ## The integration tests of make test
	@$(PYTHON) tests/rigs/programs.py --quick
	@$(PYTHON) tests/tools/run_tests.py -n 3 --dist loadscope --timeout 900 --durations 10 -m quick tests/integration

integration-rest: packages ## The other integration tests, but for those that wait for deadlines: sshd hosts, soft-RoCE guests, Kubernetes, a browser
	@$(PYTHON) tests/rigs/programs.py
	@$(PYTHON) tests/tools/run_tests.py -n 4 --dist loadscope --timeout 1200 --durations 25 -m "not long and not quick" tests/integration

integration: integration-quick integration-rest ## Both

integration-all: packages ## The same, those that wait for deadlines, those of the rigs themselves, more random trials and fuzz: over an hour
	@ACCEPTANCE_TRIALS=1500 $(PYTHON) -m pytest -n 2 tests/unit/plugin_utils/judging/test_matrix.py tests/unit/module_utils/localise/test_localise.py
	@$(PYTHON) tests/fuzz/run.py --inputs $(INPUTS)
	@$(PYTHON) tests/rigs/programs.py
	@$(PYTHON) -m pytest -n 2 --dist loadscope --timeout 900 --durations 25 tests/integration

sanity: setup ## ansible-test sanity, on a copy
	@tests/tools/sanity.sh

MINUTES ?=
drill: setup ## Planted faults: none accepted, no healthy node rejected. MINUTES=10 begins no part later and names those left out
	@$(PYTHON) tests/drills/faults.py $(if $(MINUTES),--minutes $(MINUTES))

drill-governor: setup ## The CPU governor is restored, whatever is killed (soft-RoCE guests, root)
	@$(PYTHON) tests/drills/governor.py

SEQUENCES ?= 200
drill-quarantine: setup ## 200 random sequences of quarantine over Slurm and a Kubernetes API: nothing of somebody else is touched (root)
	@$(PYTHON) tests/drills/quarantine.py --sequences $(SEQUENCES)

KILLS ?= 200
FREEZES ?= 200
TORCH_PYTHON ?= /usr/bin/python3
drill-freezing: setup ## A random thread of a random rank is frozen: nobody sound is named (root; PyTorch in TORCH_PYTHON; a minute each on two cores)
	@$(PYTHON) tests/drills/freezing.py --rounds $(FREEZES) --python $(TORCH_PYTHON)

drill-resume: setup ## kill -9 to the controller at random points, then resume: the same verdicts (sshd hosts, root)
	@$(PYTHON) tests/drills/resume.py --kills $(KILLS)

STRIKES ?= 40
drill-stop: setup ## Ctrl-C, signals and kills of the controller with more hosts than forks: nothing runs on (sshd hosts, root)
	@$(PYTHON) tests/drills/stop.py --strikes $(STRIKES)

drill-stop-pods: setup ## The same over pods of two kubelets: runs, soaks, detached runs (Kubernetes rig, root)
	@$(PYTHON) tests/drills/stop_pods.py --strikes $(STRIKES)

RDMA_KILLS ?= 50
drill-rdma: setup ## Parts of a running rdma probe are killed: the governors of both ends come back (soft-RoCE guests, root)
	@$(PYTHON) tests/drills/rdma.py --kills $(RDMA_KILLS)

SHARING_KILLS ?= 20
drill-sharing-resume: setup ## kill -9 in the middle of cases of GPU sharing, then resume: the same verdicts, nothing left (two clusters, root)
	@$(PYTHON) tests/drills/sharing_resume.py --kills $(SHARING_KILLS)

ACTIONS ?= 200
WAITING ?= 10000
drill-console: setup ## The console's actions each end once, whatever is killed; thousands that wait (Kubernetes rig, root, an hour and more)
	@$(PYTHON) tests/drills/console.py --actions $(ACTIONS) --waiting $(WAITING)

DEFECTS ?= all
CASES ?= all
OTHERS ?= 1
drill-sharing: setup ## Planted defects of GPU sharing, and the cases that see them: DEFECTS=third_waits CASES=none (two clusters, root; all: hours)
	@$(PYTHON) tests/drills/sharing.py --defects $(DEFECTS) --cases $(CASES) --others $(OTHERS)

INPUTS ?= 50000
fuzz: setup ## Broken input and lies for every reader of tools: make fuzz INPUTS=1000000
	@$(PYTHON) tests/fuzz/run.py --inputs $(INPUTS)

SAMPLE ?= 150
SEED ?= 1
mutants: setup ## Change the rules of verdicts one at a time: which changes does no unit test notice? make mutants SAMPLE=150 SEED=1 (an hour)
	@$(PYTHON) tests/tools/mutants.py --sample $(SAMPLE) --seed $(SEED)

FIGURE ?=
bench: setup ## Figures measured side by side: make bench FIGURE=name
	@$(PYTHON) tests/bench/run.py $(FIGURE)

schemas: setup ## Write the JSON schemas of records from plugins/plugin_utils/records/model.py
	@$(PYTHON) tests/tools/schemas.py

RELEASE := .cache/release
$(RELEASE)/.stamp: requirements-release.txt
	@tests/tools/shared_venv.sh $(@D) $<

GPG_KEY ?=
SSH_KEY ?=
release: $(RELEASE)/.stamp ## Build, check and sign the last commit as a release: make release GPG_KEY=FINGERPRINT (docs/release.md)
	@$(RELEASE)/bin/python tests/tools/release.py --gpg-key "$(GPG_KEY)" --ssh-key "$(SSH_KEY)"

rig-fleet: setup ## Sixteen sshd hosts in network namespaces
	@tests/rigs/fleet/fleet up 16

rig-rdma: setup ## Soft-RoCE guests with real perftest
	@tests/rigs/rdma/rdma up 4

rig-kubernetes: setup ## Kubernetes: two nodes that run containers, fifty that exist in its API only
	@tests/rigs/kubernetes/kubernetes up --nodes 2 --kwok 50

SHARING_NODES ?= 2,1
rig-sharing: setup ## Two simulated clusters that share GPUs, until Ctrl-C; prints the command for a run of the matrix
	@$(PYTHON) tests/rigs/sharing/up.py --nodes $(SHARING_NODES)

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) $(RELEASE) .collections .mypy_cache .ruff_cache .pytest_cache .hypothesis

RIG_CACHE = $(or $(GPUFLEET_RIG_CACHE),$(HOME)/.cache/gpufleet-acceptance/rigs)
clean-caches: ## Remove the programs and images that rigs have built for all checkouts (tests/README.md)
	@cd "$(RIG_CACHE)" 2>/dev/null || exit 0; rm -rf ansible-core==* axe debian13 kubernetes mpich* otel perftest rdma schemathesis-* venvs
