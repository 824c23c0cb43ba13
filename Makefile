# Every target sets up what it needs by itself. Run `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
VENV := .venv
BIN := $(VENV)/bin
LINK := .collections/ansible_collections/gpufleet/acceptance
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup

help: ## This list
	@awk -F':.*## ' '/^[a-z0-9_-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(LINK) $(VENV)/.stamp ## Virtual environment and collection link

$(LINK):
	@mkdir -p $(@D) && ln -sfn ../../.. $@

$(VENV)/.stamp: requirements.txt requirements-dev.txt
	@tests/tools/venv.sh $(VENV) && touch $@
