# What people do with a checkout. Each target says what it does while it does it; what is done already is not done again.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo lab serve setup docs test test-nucleus test-deleted recipes hub test-unit test-long mutants test-modern test-qemu test-wasm engines test-engines test-kubernetes cluster cluster-down test-languages test-suites properties lint style types types-darwin compiled house bench fuzz fuzz-renderers lock blocking settings labextension vsix test-vscode renderers clean

# Some images of machines forbid it. The tests start hundreds of processes, each of which would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The notebook is ours: where this user can limit neither memory nor processors, it runs all the same.
# SETTINGS="--engine wasm" runs it on a machine with nothing but Python.
demo: setup ## answer a question about real data in the sandbox, into output/; minutes the first time, then seconds
	@echo "--- running notebooks/quickstart.ipynb in the sandbox$(if $(SETTINGS),,; your broker keeps one ready for the next time, for half an hour)"
	@$(BIN)/python notebooks/demo.py --output output --limits best-effort $(or $(SETTINGS),--engine broker)

serve: setup ## the server for clients of E2B and others, on loopback; prints what clients set, and Ctrl-C ends it
	@echo "--- starting the server"
	@$(BIN)/sandbox-kernel serve --limits best-effort $(SETTINGS)

# SETTINGS are settings of both kernels, such as SETTINGS="--limits best-effort".
lab: setup ## JupyterLab on copies of the notebooks, in output/lab/, with folders for files in and out
	@mkdir -p output/lab/uploads output/lab/downloads
	@cp -R -n notebooks/data notebooks/*.ipynb output/lab/
	@cp -R -n notebooks/data/. output/lab/uploads/
	@$(BIN)/sandbox-kernel install --prefix output/lab-kernels --uploads uploads --downloads downloads $(SETTINGS)
	@$(BIN)/sandbox-kernel install --prefix output/lab-kernels --uploads uploads --downloads downloads --name sandbox-limits \
		--display-name "Python 3 (sandbox, small limits)" --memory 512M --scratch-size 64M --cell-timeout 10 \
		$(SETTINGS)
	@echo "--- starting JupyterLab; Ctrl-C ends it"
	@cd output/lab && JUPYTER_PATH="$(CURDIR)/output/lab-kernels/share/jupyter" \
		"$(CURDIR)/$(BIN)/jupyter" lab $$([[ $$EUID -ne 0 ]] || echo --allow-root) $(LAB_ARGS) quickstart.ipynb

setup: $(VENV)/.for-use ## engine, image and kernelspec, as far as they are missing
	@echo "--- setting up engine, image and kernel"
ifneq ($(findstring --engine wasm,$(SETTINGS)),)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[wasm]'
	@$(BIN)/sandbox-kernel build --engine wasm
else
	@$(BIN)/sandbox-kernel setup --yes
endif

# Most tests wait for containers and browsers: three workers are busy with two processors. tests/support/order.py says who
# begins with what. Tests that need the machine for themselves (the mark `alone`) run first, while the others wait. What fails
# beside others is tried once more alone, five tests of a run at most, and the summary has both attempts.
WORKERS := 3
# PLUGIN=mcp runs the tests of one plugin alone.
test: $(VENV)/.for-tests ## everything that is checked, with gVisor beside Docker's own runtime; plan 20 minutes on two processors
	@echo "--- $(if $(PLUGIN),trying the plugin $(PLUGIN): some minutes,trying everything: about 20 minutes on two processors)"
	@echo "--- setting up engine, image and kernel"
	@$(BIN)/sandbox-kernel setup --yes --gvisor
	@$(BIN)/python -c 'from tests.support.browsers import install_browser; install_browser()'
	@$(MAKE) --no-print-directory --jobs 3 --output-sync lint docs renderers compiled
	@echo "--- running the tests$(if $(PLUGIN), of the plugin $(PLUGIN),: about 19 minutes on two processors)"
	@$(BIN)/python -m pytest -p no:cacheprovider --numprocesses $(WORKERS) --dist worksteal \
		--max-suite-reruns 5 --rerun-show-tracebacks -m "not long" $(if $(PLUGIN),tests/plugins/$(PLUGIN)) $(PYTEST_ARGS)

# What guards something that seldom changes, and takes long: rounds of the fuzzers, programs that others wrote, a person's
# whole way through JupyterLab, the scripts of benchmarks, the controls of browsers, a second browser or engine where none
# is known to differ. Each has shorter tests of the same in `make test`.
test-long: $(VENV)/.for-tests setup renderers ## the tests that are marked long, which test leaves out; 25 minutes
	@echo "--- running the long tests"
	@$(BIN)/python -m pytest -p no:cacheprovider --numprocesses $(WORKERS) --dist worksteal \
		--max-suite-reruns 5 --rerun-show-tracebacks -m long $(PYTEST_ARGS)

# What a change of the nucleus is tried with before `make test`.
test-nucleus: $(VENV)/.for-tests setup ## the nucleus with an engine; leaves out plugins, browsers, attacks and what is marked slow
	@echo "--- running the nucleus' tests: some minutes; plugins, browsers, attacks and slow tests are left to make test"
	@$(BIN)/python -m pytest -p no:cacheprovider --numprocesses $(WORKERS) --dist worksteal --max-suite-reruns 5 \
		--rerun-show-tracebacks -m "not slow and not long" tests/unit tests/container $(PYTEST_ARGS)

# PLUGIN=mcp tries one plugin alone.
test-deleted: $(VENV)/.for-tests setup ## the checkout without one plugin, for each in turn: lint, types, tests, a sandbox; minutes
	@$(BIN)/python -m tests.support.deleted $(PLUGIN)

# Frameworks that are large, or do not go together: each has an environment of its own in .cache/recipes/.
FRAMEWORKS := openai-agents pydantic-ai-slim[mcp] deepagents crewai llama-index-core e2b-code-interpreter jupyter-mcp-server \
	schemathesis
E2B_TOOLS := langchain-e2b crewai-tools llama-index-core smolagents
recipes: $(VENV)/.for-tests ## the recipes for agent frameworks that `test` skips, each with its framework
	@for name in $(FRAMEWORKS); do \
		echo "--- $$name"; \
		python=.cache/recipes/$$name/bin/python; [[ -e $$python ]] || $(BIN)/python -m venv .cache/recipes/$$name; \
		$$python -m pip install --quiet --disable-pip-version-check --editable '.[serve]' "$$name" hypothesis langchain-tests \
			psutil pytest pytest-asyncio pytest-timeout || exit 1; \
		$$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning tests/plugins/frameworks/container/test_recipes.py \
			tests/plugins/frameworks/container/test_deep_agents_standard.py \
			tests/plugins/frameworks/container/test_e2b_page.py tests/frameworks/test_server_clients.py \
			tests/plugins/serve/container/test_official_client.py tests/plugins/serve/container/test_schemathesis.py \
			$(PYTEST_ARGS) || exit 1; \
	done
	@echo "--- clients of Jupyter's wire: ag2, autogen, open-webui"
	@python=.cache/recipes/jupyter-mcp-server/bin/python; \
		$$python -m pip install --quiet --disable-pip-version-check 'ag2[jupyter-executor]<1' \
			autogen-agentchat 'autogen-ext[docker-jupyter-executor]' aiohttp nbformat && \
		$$python -m pip install --quiet --disable-pip-version-check --no-deps open-webui && \
		$$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning tests/plugins/serve/container/test_jupyter_clients.py $(PYTEST_ARGS)
	@# Each first by itself: some name an older mcp than ours, and pip would take an old version of them.
	@for name in $(E2B_TOOLS); do \
		echo "--- $$name"; \
		python=.cache/recipes/e2b-$$name/bin/python; [[ -e $$python ]] || $(BIN)/python -m venv .cache/recipes/e2b-$$name; \
		$$python -m pip install --quiet --disable-pip-version-check "$$name" e2b-code-interpreter && \
			$$python -m pip install --quiet --disable-pip-version-check --editable '.[serve]' hypothesis psutil pytest \
			pytest-asyncio pytest-timeout || exit 1; \
		$$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning tests/plugins/serve/container/test_e2b_tools.py \
			$(PYTEST_ARGS) || exit 1; \
	done
	@echo "--- open-terminal"
	@python=.cache/recipes/open-terminal/bin/python; [[ -e $$python ]] || $(BIN)/python -m venv .cache/recipes/open-terminal; \
		$$python -m pip install --quiet --disable-pip-version-check --editable '.[serve]' open-terminal==0.14.5 hypothesis psutil \
			pytest pytest-asyncio pytest-timeout && $$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning \
			tests/plugins/serve/container/test_open_terminal_original.py $(PYTEST_ARGS)
	@echo "--- gpt-oss"
	@python=.cache/recipes/gpt-oss/bin/python; python3.12 -c '' 2>/dev/null || { echo "it needs Python 3.12"; exit 0; }; \
		[[ -e $$python ]] || python3.12 -m venv .cache/recipes/gpt-oss; \
		$$python -m pip install --quiet --disable-pip-version-check --editable . gpt-oss hypothesis psutil pytest pytest-asyncio \
			pytest-timeout && $$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning tests/frameworks/test_gpt_oss.py \
			$(PYTEST_ARGS)
	@# LibreChat's own source is in no registry: SANDBOX_KERNEL_LIBRECHAT_SOURCE names a checkout of it.
	@echo "--- @librechat/agents"
	@[[ -d .cache/recipes/librechat/node_modules ]] || npm install --prefix .cache/recipes/librechat --ignore-scripts --no-audit \
		--no-fund --omit=optional @librechat/agents@3.9.2 @librechat/data-schemas@0.0.71 librechat-data-provider@0.8.524 axios \
		form-data typescript@5
	@SANDBOX_KERNEL_LIBRECHAT=$(CURDIR)/.cache/recipes/librechat $(BIN)/python -m pytest -p no:cacheprovider \
		tests/plugins/serve/container/test_librechat_client.py $(PYTEST_ARGS)
	@echo "--- @e2b/code-interpreter"
	@[[ -d .cache/recipes/e2b-npm/node_modules ]] || npm install --prefix .cache/recipes/e2b-npm --ignore-scripts --no-audit \
		--no-fund e2b@2.51.0 @e2b/code-interpreter@2.8.0
	@SANDBOX_KERNEL_E2B_NPM=$(CURDIR)/.cache/recipes/e2b-npm $(BIN)/python -m pytest -p no:cacheprovider \
		tests/plugins/serve/container/test_npm_client.py $(PYTEST_ARGS)

# As root, for the users of the test. They must be able to read this checkout, and HUB: who has both in a folder that is
# closed to others says HUB=/opt/hub on a checkout elsewhere.
HUB := $(CURDIR)/.cache/hub
HUB_PYTHON := /usr/bin/python3
hub: $(VENV)/.for-tests setup $(HUB)/.installed ## two users of a real JupyterHub, without a right to Docker; needs Node.js 20
	@echo "--- running the tests of the hub"
	@SANDBOX_KERNEL_HUB=$(HUB) $(BIN)/python -m pytest -p no:cacheprovider tests/hub $(PYTEST_ARGS)

$(HUB)/.installed: pyproject.toml tests/hub/requirements.txt tests/hub/proxy/package-lock.json
	@echo "--- installing JupyterHub and its proxy into $(HUB)"
	@mkdir -p $(HUB) && $(HUB_PYTHON) -m venv $(HUB)/venv
	@$(HUB)/venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[notebook,secrets]' \
		--requirement tests/hub/requirements.txt
	@cp tests/hub/proxy/package.json tests/hub/proxy/package-lock.json $(HUB)/
	@cd $(HUB) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

test-unit: $(VENV)/.for-tests ## what can be run at every save: no engine, no browser, nothing slow; a minute
	@echo "--- running the unit tests: a minute on two processors"
	@$(BIN)/python -m pytest -p no:cacheprovider --numprocesses auto --dist worksteal -m "not slow and not long" tests/unit tests/plugins/*/unit $(PYTEST_ARGS)

# COUNT and SEED choose the faults: the same seed draws the same, and makes two states of the tests comparable.
mutants: $(VENV)/.for-tests ## how many of 300 small faults in the nucleus the unit tests notice; an hour, or minutes with COUNT=30
	@nice $(BIN)/python -m tests.support.mutants --count $(or $(COUNT),300) --seed $(or $(SEED),1)

# As root, for the disk. QEMU emulates the processor, for a machine of a cloud starts no guest of its own.
test-modern: $(VENV)/.for-tests setup ## the engines on Debian 13 in QEMU: systemd, AppArmor, cgroup v2, Docker 26, Podman 5
	@$(BIN)/python -m pytest -p no:cacheprovider tests/modern/check_rig.py
	@$(BIN)/python -m tests.modern $(MODERN_ARGS)

# Emulated, and slow by that: what every engine must do, what machines are besides, and every escape. It takes QEMU, mksquashfs,
# apt for the kernel's package, and the image.
test-qemu: $(VENV)/.for-tests setup ## the engine `qemu`: its contract, its table, its ends, files, words and every escape, emulated
	@$(BIN)/sandbox-kernel build --engine qemu --kind data --from-image sandbox-kernel:data
	@SANDBOX_KERNEL_TEST_ENGINE=qemu $(BIN)/python -m pytest -p no:cacheprovider --timeout 900 --numprocesses auto --dist loadscope \
		tests/container/engines/test_contract.py tests/container/engines/test_pause.py tests/plugins/qemu/container \
		tests/plugins/serve/container/test_snapshots_on_qemu.py tests/container/engines/test_enforcement.py tests/attacks/escape/test_attacks.py \
		tests/container/test_files_container.py tests/attacks/test_hostile_wire.py tests/attacks/test_floods.py $(PYTEST_ARGS)

# The extra is not among those of the tests, and the image takes two minutes of one processor.
test-wasm: $(VENV)/.for-tests ## the engine `wasm`: its kernel, its limits, its ends, hostile guests, and the quickstart
	@$(BIN)/python -m pip install --quiet wasmtime==50.0.1
	@$(BIN)/sandbox-kernel build --engine wasm
	@rm -rf .cache/wasm-wheels
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir .cache/wasm-wheels .
	@$(BIN)/python -m pip download --quiet --dest .cache/wasm-wheels --find-links .cache/wasm-wheels --python-version 3.13 \
		--only-binary :all: 'sandbox-kernel[run,wasm]' nbconvert pip
	@SANDBOX_KERNEL_TEST_ENGINE=wasm $(BIN)/python -m pytest -p no:cacheprovider --timeout 300 tests/plugins/wasm \
		tests/container/engines/test_contract.py $(PYTEST_ARGS)

# As root. Go builds them, and Debian's apt brings what they start; nothing is installed.
engines: $(VENV)/.for-tests ## Docker 29 from its sources, beside the usual daemon; five minutes the first time
	@$(BIN)/python -m tests.other_dockers build

# ENGINE=docker-rootless for one of them. Podman is left out where it is not installed.
test-engines: $(VENV)/.for-tests setup ## Docker 29, with remapped users, rootless; Podman, with root and without: contract, escapes, ends, verify, quickstart
	@$(BIN)/python -m tests.other_dockers test $(ENGINE)

# As root. KUBECONFIG=FILE means the cluster that it names, and none is made here. NODES=2 starts a second node.
NODES := 1
cluster: $(VENV)/.for-tests ## Kubernetes from its sources on this machine; half an hour and 14 GB the first time, then seconds
ifdef KUBECONFIG
	@echo "--- taking the cluster of KUBECONFIG=$(KUBECONFIG); none is started here"
else
	@$(MAKE) --no-print-directory setup
	@echo "--- building and starting Kubernetes: half an hour on two processors the first time, then seconds"
	@$(BIN)/python -m tests.cluster up --nodes $(NODES)
endif

cluster-down: $(VENV)/.for-tests ## end that cluster; its programs stay for the next time
	@echo "--- ending the cluster of this machine"
	@$(BIN)/python -m tests.cluster down

test-kubernetes: cluster ## the engine `kubernetes` on that cluster, or on the one of KUBECONFIG: its contract, every escape, its ends
	@$(BIN)/python -c 'from tests.cluster.build import program; [program(one) for one in ("helm", "agent-sandbox-controller")]'
	@echo "--- running the tests of the engine kubernetes"
	@KUBECONFIG="$${KUBECONFIG:-$$($(BIN)/python -m tests.cluster kubeconfig)}" SANDBOX_KERNEL_TEST_ENGINE=kubernetes \
		$(BIN)/python -m pytest -p no:cacheprovider --timeout 300 tests/plugins/kubernetes/cluster \
		tests/container/engines/test_contract.py tests/attacks/escape/test_attacks.py $(PYTEST_ARGS)
	@echo "--- running E2B's own client against a server of pods"
	@python=.cache/recipes/e2b-code-interpreter/bin/python; \
		[[ -e $$python ]] || $(BIN)/python -m venv .cache/recipes/e2b-code-interpreter; \
		$$python -m pip install --quiet --disable-pip-version-check --editable '.[serve,kubernetes]' e2b-code-interpreter \
			hypothesis psutil pytest pytest-asyncio pytest-timeout && \
		KUBECONFIG="$${KUBECONFIG:-$$($(BIN)/python -m tests.cluster kubeconfig)}" SANDBOX_KERNEL_TEST_ENGINE=kubernetes \
		$$python -m pytest -p no:cacheprovider -W ignore::ResourceWarning \
		tests/plugins/serve/container/test_official_client.py $(PYTEST_ARGS)

# Its images and roots are two gigabytes of downloads where nothing is there yet, and stay.
test-languages: $(VENV)/.for-tests setup ## R and Deno on Docker and bubblewrap, and a kernelspec of one's own; 15 minutes with the builds
	@for kind in r deno all; do \
		$(BIN)/sandbox-kernel build --kind $$kind && $(BIN)/sandbox-kernel build --engine bubblewrap --kind $$kind || exit 1; \
	done
	@SANDBOX_KERNEL_LANGUAGES=1 $(BIN)/python -m pytest -p no:cacheprovider tests/languages $(PYTEST_ARGS)

# SUITE=nbclient for one of them.
vsix: $(VENV)/.for-tests ## pack the extension of VS Code into dist/; needs npm, for the one package that it is made of
	@cd editors/vscode && npm ci --omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error
	@$(BIN)/python -m tests.support.vsix dist/sandbox-kernel-screen.vsix

# Of its packages, one alone has to be compiled for what is tested; all of them take a quarter of an hour, and Kerberos' headers.
test-vscode: vsix ## the extension in a real VS Code (code-server) in Chromium; Node.js 20, 300 MB, five minutes the first time
	@[[ -e .cache/code-server/.complete ]] || { \
		options="--ignore-scripts --no-audit --no-fund --loglevel=error"; mkdir -p .cache/code-server; cd .cache/code-server; \
		npm install --prefix . $$options code-server@4.100.3 && npm rebuild --prefix . --loglevel=error argon2 && \
		npm install --prefix node_modules/code-server/lib/vscode --omit=dev $$options && touch .complete; }
	@SANDBOX_KERNEL_CODE_SERVER=$(CURDIR)/.cache/code-server/node_modules/code-server/out/node/entry.js \
		$(BIN)/python -m pytest -p no:cacheprovider tests/vscode $(PYTEST_ARGS)

test-suites: $(VENV)/.for-tests setup ## suites of nbclient, papermill, Jupyter Server and for kernels: stock, and on this one; an hour
	@$(BIN)/python -m tests.suites $(SUITE)

properties: $(VENV)/.for-tests ## each property that the tests draw examples for, with all of them: test takes a quarter, 50 at most
	@SANDBOX_KERNEL_EXAMPLES=all $(BIN)/python -m pytest -p no:cacheprovider --numprocesses auto --dist worksteal tests/unit tests/plugins/*/unit \
		tests/container/test_pieces.py::test_the_pieces_of_a_text_are_the_text \
		tests/plugins/file_messages/container/test_file_messages.py::test_any_request_has_a_reply_that_json_can_say $(PYTEST_ARGS)

# What is shipped into a sandbox, and the plugins of `index.LINUX` with those that need them, run on Linux alone.
LINUX_ALONE := '/(container|plugins/(bubblewrap|broker|data|qemu|shared|wasm|[a-z]+/inside))/'
lint: style types types-darwin ## style, types, and who imports whom
style: $(VENV)/.for-tests
	@echo "--- checking style, types and imports"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
types: $(VENV)/.for-tests
	@$(BIN)/mypy
types-darwin: $(VENV)/.for-tests
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin --package sandbox_kernel --exclude $(LINUX_ALONE)

# Python compiles here what each worker of the tests would else compile for itself, at the same time.
compiled: $(VENV)/.for-tests
	@$(BIN)/python -m pytest -p no:cacheprovider --collect-only --quiet $(if $(PLUGIN),tests/plugins/$(PLUGIN)) >/dev/null || true

# Ten seconds. Every link, every page's place and every name of the API reference is checked; nothing comes from the network.
docs: $(VENV)/.for-tests ## the pages with search and an API reference, in .cache/site/; a broken link is an error
	@echo "--- building the pages into .cache/site/"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Where they cannot be installed, their tests are skipped, and say why.
renderers: $(VENV)/.for-tests
	@$(BIN)/python -m fuzz.renderers.install || true

house: $(VENV)/.for-tests ## how large the package is, and how long the ways of a cell and of a spec are; seconds
	@$(BIN)/python -m tests.support.house

# The stock kernel that has pandas, for the first import of it, has an environment of its own.
BENCH := .cache/bench
bench: $(VENV)/.for-tests setup $(BENCH)/.installed ## side by side with a stock ipykernel; some twenty minutes
	@$(BIN)/python -m benchmarks
	@echo "--- sandboxes that are ready ahead, and many at once"
	@$(BIN)/python -m benchmarks.broker --stock $(BENCH)/bin/python

$(BENCH)/.installed:
	@echo "--- installing a stock ipykernel with pandas into $(BENCH)"
	@.ci/venv $(BENCH)
	@$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check ipykernel pandas
	@touch $@

# The tests run each fuzzer for some seconds. RUNS=100000 is a look; what is learned is kept in .cache/fuzz.
RUNS := 1000000
fuzz: $(VENV)/.for-tests ## a million inputs for each fuzzer, one on each processor at a time
	@$(BIN)/python -m fuzz --runs $(RUNS) $(TARGETS)

# For each of four renderers and two modes. DOCUMENTS=5000 is a look; findings are kept in .cache/fuzz.
DOCUMENTS := 125000
fuzz-renderers: $(VENV)/.for-tests ## a million documents in the renderers of JupyterLab, VS Code and nbconvert
	@$(BIN)/python -c 'from tests.support.browsers import install_browser; install_browser()'
	@$(BIN)/python -m fuzz.renderers --documents $(DOCUMENTS)

# --upgrade asks for the newest versions; data keeps what base has. Hashes of all platforms are in, addresses are not.
# The images have Python 3.13. Locks of other versions, for roots without an image, have the images' versions of packages
# where these have a wheel: uv prefers what stands in the file that it writes.
LOCK := --quiet --no-config --python-platform x86_64-manylinux_2_28 --only-binary :all: --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
OTHER_PYTHONS := 3.11 3.12 3.14
lock: .cache/uv/bin/uv ## resolve the packages of images and roots
	@for name in installer base data full deno; do \
		echo "--- locking images/$$name.in"; \
		keep=(); if [[ $$name == data ]]; then keep=(--constraint images/base.lock); fi; \
		if [[ $$name == full ]]; then keep=(--constraint images/data.lock); fi; \
		$< pip compile $(LOCK) --upgrade --python-version 3.13 "$${keep[@]}" images/$$name.in --output-file images/$$name.lock; \
	done
	@echo "--- locking images/wasm.in"
	@$< pip compile $(LOCK) --upgrade --no-deps --python-version 3.13 images/wasm.in --output-file images/wasm.lock
	@for python in $(OTHER_PYTHONS); do for name in base data; do \
		echo "--- locking images/$$name.in for Python $$python"; \
		keep=(); if [[ $$name == data ]]; then keep=(--constraint images/locks/base-$$python.lock); fi; \
		cp images/$$name.lock images/locks/$$name-$$python.lock; \
		$< pip compile $(LOCK) --python-version $$python "$${keep[@]}" images/$$name.in \
			--output-file images/locks/$$name-$$python.lock; \
	done; done

settings: $(VENV)/.for-tests ## write what comes of the table of settings: docs/settings.md and the keywords of the SDK
	@$(BIN)/sandbox-kernel settings --markdown > docs/settings.md
	@$(BIN)/python -m tests.support.setting_keywords

blocking: $(VENV)/.for-tests ## write the blocking SDK, after a change of a method of the asynchronous one
	@$(BIN)/python -m tests.support.blocking_sdk

# Its bundle is committed, so that nobody needs Node.js to install or to test; the last line says which sources it is of.
labextension: $(VENV)/.for-tests ## build the JupyterLab extension from labextension/src, and check the frames' scripts; needs Node.js 20
	@echo "--- building labextension/"
	@cd labextension && npm ci --ignore-scripts --no-audit --no-fund && rm -rf lib && npm run build
	@cd labextension && npx --no-install tsc --project tsconfig.frames.json
	@$(BIN)/python -m tests.support.labextension

clean: ## remove what the other targets made here; the engine and its images stay
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis output labextension/lib labextension/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.cache/uv/bin/uv:
	@.ci/venv .cache/uv
	@.cache/uv/bin/pip install --quiet --disable-pip-version-check uv

# The demo and JupyterLab need little; the frameworks of the tests are ten times that.
$(VENV)/.for-use: pyproject.toml labextension/built/sha256
	@echo "--- installing sandbox-kernel into $(VENV)"
	@.ci/venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]'
	@.ci/relative $(VENV)
	@touch $@

# pip takes two minutes, uv half of one; its settings are not pip's, so that where it finds no index, pip is asked.
$(VENV)/.for-tests: pyproject.toml labextension/built/sha256 | .cache/uv/bin/uv
	@echo "--- installing sandbox-kernel and the tools of its tests into $(VENV)"
	@.ci/venv $(VENV)
	@.cache/uv/bin/uv pip install --quiet --python $(BIN)/python --editable '.[dev]' || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@.ci/relative $(VENV)
	@touch $@ $(VENV)/.for-use
