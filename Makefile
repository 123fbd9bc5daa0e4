# Two commands for a newcomer: make demo, make test. Each sets up what it lacks (scripts/setup.sh, scripts/cluster.sh).
SHELL := /bin/bash
PYTHON := .local/venv/bin/python
CLUSTER := scripts/cluster.sh
# Processes that run tests: one more than there are processors, since some of the tests wait.
N ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Files named in ARGS are run alone.
TESTS = $(if $(filter tests/%,$(ARGS)),,tests)
ENV = eval "$$($(CLUSTER) env)"

.DEFAULT_GOAL := help
.PHONY: help demo gateway check test promises acceptance soak simulate bench dist docs reference format setup up dsn psql reset down clean

help: ## This list
	@echo "pg_memoir: memory for AI agents that lives in PostgreSQL"; echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null || \
	  sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1: \2/p' $(MAKEFILE_LIST)

# What is asked and read goes through the environment as it is: no shell and no make takes it apart.
demo: export PG_MEMOIR_DEMO_ASK := $(value ASK)
demo: export PG_MEMOIR_DEMO_DATA := $(value DATA)
demo: up ## Store conversations, compile a context, explain it (DATA=chats.jsonl for your own, ASK="a question")
	@$(ENV); exec $(PYTHON) docs/start/demo.py

gateway: up ## Run the gateway in the foreground: agents get memory by one variable of their environment (ARGS="--port 9001")
	@$(ENV); exec $(PYTHON) -m pg_memoir_gateway $(ARGS)

check: setup ## What needs no server: unit tests, types, lints, the order of sql/, the written pages
	@exec scripts/check.sh $(ARGS)

test: up ## All tests but the long ones, on all processors (ARGS="-k name" or ARGS=tests/FILE for some, N=1 for one process)
	@$(ENV); exec $(PYTHON) -m pytest $(TESTS) -m "not acceptance and not soak" -n $(N) --dist worksteal $(ARGS)

promises: up ## The long tests that guard the product's promises, as CI runs them
	@$(ENV); exec $(PYTHON) -m pytest $(TESTS) -m "acceptance and not extended" -n $(N) --dist worksteal $(ARGS)

acceptance: up ## The tests that take long: real models and clients, a browser, every combination, soak, weeks of life
	@scripts/setup.sh --acceptance
	@$(ENV); exec $(PYTHON) -m pytest $(TESTS) -m acceptance -n $(N) --dist worksteal $(ARGS)

soak: up ## What takes hours: very many property cases, every function that reads a text at every shape of text
	@$(ENV); PG_MEMOIR_SOAK_CASES=100000 exec $(PYTHON) -m pytest tests -m "soak or acceptance" -k "soak or superlinear" $(ARGS)

simulate: up ## Live through 180 days of 200 users on a settable clock, checking every invariant every day (ARGS="20 60": fewer)
	@$(ENV); exec $(PYTHON) tests/support/simulation.py $(ARGS)

bench: up ## Measure recall and speed (DATA=file.json for the conversations)
	@$(ENV); exec $(PYTHON) -m bench $(if $(DATA),--data $(DATA)) $(ARGS)

dist: setup ## Build wheels and sdists of all packages into .local/dist
	@exec $(PYTHON) scripts/dist.py

docs: setup ## Build the documentation site into .local/site, and check its links (open .local/site/index.html)
	@exec $(PYTHON) scripts/build_site.py

reference: up ## Write docs/reference.md and the pages of settings anew, from the comments of what is installed
	@$(ENV); exec $(PYTHON) scripts/build_reference.py

format: setup ## Format the Python code
	@exec $(PYTHON) -m ruff format .

setup: ## Install what lacks, without starting a server
	@scripts/setup.sh

up: ## Set up what lacks, start the private server, install or upgrade pg_memoir
	@$(CLUSTER) up

dsn: ## Print the connection string (make -s dsn)
	@$(CLUSTER) dsn

psql: ## Open psql on the private server (ARGS="-c ...")
	@$(CLUSTER) psql $(ARGS)

reset: ## Drop the private database and install anew
	@$(CLUSTER) reset

down: ## Stop the private server
	@$(CLUSTER) down

clean: ## Stop it and delete everything private to this checkout
	@$(CLUSTER) clean
