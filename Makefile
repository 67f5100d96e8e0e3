# From a fresh clone: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install client demo demo-full checkpoint checkpoint-real long labels refinement rules lerobot real test test-lerobot test-torchrl test-maniskill test-mjlab test-robosuite docs bench clean

# The first Python that is new enough; 3.11 first, since constraints.txt was tested on it.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo "$$python" && break; done)
# The first Python that is new enough for lerobot 0.6.
PYTHON312 ?= $(shell for python in python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2> /dev/null && echo "$$python" && break; done)
# A package index with CPU builds of torch, if the default one has CUDA builds only.
TORCH_INDEX ?=
# A folder with the recordings episode_001 (annotated) and episode_002.
DATA ?= ../shared/data/real_bimanual
# DROID, a table of episodes with a column text/lab.
DROID ?= ../shared/data/droid
RUN ?= runs/$@/$(STARTED)

STARTED := $(shell date +%Y-%m-%d_%H-%M-%S)
BIN := .venv/bin
COMPARE := $(BIN)/embodied-rm compare results_page=docs/results/refine.md
CLONED := 'tasks=[lift_cube,open_drawer,turn_lever,place_in_bowl,place_in_drawer,stack_cubes,push_to_zone]'
EASY_TASKS := lift_cube open_drawer turn_lever place_in_bowl
COMMA := ,
EASY := 'tasks=[$(subst $() ,$(COMMA),$(EASY_TASKS))]'
BY_SIMULATOR := refine.reward.success_source=simulator refine.reward.score_every=4 refine.eval_episodes=32
HARD := 'rules=[shaped,sparse]' $(BY_SIMULATOR) refine.env.num_envs=32 refine.ppo.entropy_coef=0.003
OFF_POLICY := 'rules=[shaped,sparse]' $(BY_SIMULATOR) refine.algorithm=rlpd refine.rlpd.batch_size=128 \
	refine.recorded_data=demonstrations collect.num_successes=5 refine.env.num_envs=8
FEW := refine.reward.success_source=simulator refine.heuristic_coef=0.15 refine.critic_warmup_iterations=0 refine.ppo.target_kl=0.1 \
	refine.env.num_envs=5 task_presets.default.num_demonstrations=1 task_presets.default.rollout_steps=60 task_presets.default.log_std_init=-1.0 \
	task_presets.default.gamma=0.98 task_presets.default.gae_lambda=0.95
VIEWS := 'tasks=[open_drawer,turn_lever,lift_cube]' 'rules=[shaped]' num_seeds=3 clone.obs_mode=proprio+embeddings clone.steps=4000 \
	collect.num_successes=60 task_presets.open_drawer.num_demonstrations=60 task_presets.turn_lever.num_demonstrations=15 \
	task_presets.lift_cube.num_demonstrations=60
LONG := runs/refinement/long
LONG_TUNED := runs/refinement/long_tuned
CHECKPOINTS := assets/checkpoints
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt $(INDEX)

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

demo: install  ## the whole loop in minutes: evaluate the bundled reward model, clone, refine on it, report
	$(BIN)/embodied-rm demo out=$(RUN)

demo-full: demo  ## the same, then the long task cube_in_drawer with a newly trained reward model
	$(BIN)/embodied-rm demo train_reward_model=true 'tasks=[cube_in_drawer]' 'collect.tasks=[cube_in_drawer]' \
		demonstration_data.num_successes=40 train.steps=1500 out=$(RUN)/long

test: .venv/installed-dev  ## lint, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n logical --dist worksteal --durations=40

test-torchrl: .venv-torchrl/installed  ## the integration of torchrl, in a virtual environment of its own (two gigabytes)
	$(TEST_INTEGRATION)

test-maniskill: .venv-maniskill/installed  ## the same of ManiSkill, which renders with Vulkan: Mesa >= 25 on a CPU
	$(TEST_INTEGRATION)

test-mjlab: .venv-mjlab/installed  ## the same of mjlab, on a CPU
	$(TEST_INTEGRATION)

test-robosuite: .venv-robosuite/installed  ## the same of robosuite, with its own MuJoCo
	MUJOCO_GL=egl $(TEST_INTEGRATION)

docs: .venv/installed-dev  ## the documentation site: site/
	$(BIN)/mkdocs build --strict

checkpoint: install  ## build the bundled model and its card (two hours)
	$(BIN)/embodied-rm build-checkpoint install_dir=assets/checkpoints/tabletop out=$(RUN)

checkpoint-real: install  ## build the bundled model of real robots and its card (half an hour; DROID=folder)
	$(BIN)/embodied-rm train real data=$(DROID) final=true install_dir=assets/checkpoints/real out=$(RUN)

client: install  ## the client of the reward service as a separate wheel: dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist ./embodied_rm/client

labels: install  ## the default model trained by every labeling scheme: docs/results/labels.md (an hour and a half)
	$(BIN)/embodied-rm bench labels results_page=docs/results/labels.md out=$(RUN)

refinement: install  ## compare all reward rules: docs/results/refine.md (days; finished cells are read from the results cache)
	$(COMPARE) name=learned $(CLONED) 'rules=[shaped,dense]' out=$(RUN)/learned
	$(COMPARE) name=honest $(CLONED) 'rules=[shaped]' num_seeds=3 out=$(RUN)/honest
	$(COMPARE) name=easy $(EASY) 'rules=[shaped,sparse]' $(BY_SIMULATOR) out=$(RUN)/easy
	$(COMPARE) name=rules 'tasks=[lift_cube]' 'rules=[shaped,sparse,hold,raw,difference]' num_seeds=3 \
		refine.reward.success_source=simulator out=$(RUN)/rules
	$(COMPARE) name=cube_in_drawer 'tasks=[cube_in_drawer]' $(HARD) checkpoint=$(CHECKPOINTS)/long out=$(RUN)/cube_in_drawer
	$(COMPARE) name=sort_two 'tasks=[sort_two]' $(HARD) checkpoint=$(CHECKPOINTS)/long out=$(RUN)/sort_two
	$(COMPARE) name=insert_peg 'tasks=[insert_peg]' $(HARD) out=$(RUN)/insert_peg
	$(COMPARE) name=insert_peg_rlpd 'tasks=[insert_peg]' $(OFF_POLICY) task_presets.insert_peg.rollout_steps=60 out=$(RUN)/insert_peg_rlpd
	$(COMPARE) name=few 'tasks=[close_drawer]' 'rules=[dense,shaped,sparse]' $(FEW) out=$(RUN)/few
	$(COMPARE) name=views $(VIEWS) out=$(RUN)/views
	$(BIN)/embodied-rm bench cloning results_page=docs/results/refine.md out=$(RUN)/cloning

RULES := shaped,sparse,dense,difference,raw,hold,delta,negative_time,terminal_ordinal,sigmoid_reference,blended,gated,min_form,\
self_reference,trajectory_reference,redistributed,implicit_preference,implicit_outcome
EVERY_RULE := $(BIN)/embodied-rm compare results_page=docs/results/rules.md $(EASY) num_seeds=3 $(BY_SIMULATOR) \
	$(foreach task,$(EASY_TASKS),task_presets.$(task).iterations=15)

rules: install  ## every reward rule, and a pool of difficult starts, on four tasks: docs/results/rules.md (five hours)
	$(EVERY_RULE) name=all 'rules=[$(subst $() ,,$(RULES))]' out=$(RUN)/all
	$(EVERY_RULE) name=starts 'rules=[shaped]' refine.start_pool_size=256 out=$(RUN)/starts

$(LONG)/train/metrics.json: | install  # a reward model of the hard tasks, one of which the bundled model is not trained on
	$(BIN)/embodied-rm collect 'tasks=[cube_in_drawer,sort_two,insert_peg]' num_successes=80 num_failures=120 num_post_success=20 \
		'env.views=[front,side,wrist]' seed=500 out=$(LONG)/recordings
	$(BIN)/embodied-rm train data=$(LONG)/recordings steps=4000 augment.shift=0.06 augment.view_dropout_prob=0.2 \
		fusion=inverse_variance out=$(LONG)/train

LEARNER := reward.rule=dense reward.success_source=simulator stop_patience=1000 env.num_envs=32 eval_episodes=32 \
	ppo.gamma=0.99 ppo.gae_lambda=0.9 rollout_steps=180 seed=70
POLICIES := $(LONG_TUNED)/policies
CLONED_cube_in_drawer := num_demonstrations=3 log_std_init=-1.0
CLONED_sort_two := num_demonstrations=7 log_std_init=-2.0
LEARNED_cube_in_drawer := iterations=40
LEARNED_sort_two := iterations=60

# Policies of the long tasks from demonstrations that no comparison uses: cloned, half refined, fully refined.
$(POLICIES)/%/full/metrics.json: | install
	$(BIN)/embodied-rm collect 'tasks=[$*]' num_successes=20 num_failures=0 action_noise=0.1 'speed_range=[1.0,1.0]' seed=70 \
		out=$(POLICIES)/$*/demonstrations
	$(BIN)/embodied-rm clone task=$* data=$(POLICIES)/$*/demonstrations $(CLONED_$*) seed=70 out=$(POLICIES)/$*/clone
	$(BIN)/embodied-rm refine task=$* policy=$(POLICIES)/$*/clone $(LEARNER) $(LEARNED_$*) out=$(POLICIES)/$*/half
	$(BIN)/embodied-rm refine task=$* policy=$(POLICIES)/$*/half $(LEARNER) $(LEARNED_$*) out=$(POLICIES)/$*/full

# That reward model, fine-tuned on rollouts of these policies.
PLAY := $(foreach task,cube_in_drawer sort_two,$(addprefix $(POLICIES)/$(task)/,clone half full))
COMMA := ,
SPACE := $() $()
$(LONG_TUNED)/train/metrics.json: $(LONG)/train/metrics.json $(POLICIES)/cube_in_drawer/full/metrics.json \
		$(POLICIES)/sort_two/full/metrics.json
	$(BIN)/embodied-rm collect 'tasks=[cube_in_drawer,sort_two]' num_successes=20 num_failures=40 num_post_success=8 rollouts_per_policy=50 \
		'policies=[$(subst $(SPACE),$(COMMA),$(PLAY))]' 'env.views=[front,side,wrist]' seed=700 \
		out=$(LONG_TUNED)/recordings
	$(BIN)/embodied-rm train data=$(LONG_TUNED)/recordings init_from=$(LONG)/train steps=2000 learning_rate=1e-3 \
		augment.shift=0.06 augment.view_dropout_prob=0.2 out=$(LONG_TUNED)/train

long: $(LONG_TUNED)/train/metrics.json  ## build the bundled model of the long tasks, evaluated on an unseen policy (two hours)
	for task in cube_in_drawer sort_two; do set -e; \
		$(BIN)/embodied-rm collect "tasks=[$$task]" num_successes=20 num_failures=0 action_noise=0.1 'speed_range=[1.0,1.0]' seed=71 \
			out=$(RUN)/$$task/demonstrations; \
		$(BIN)/embodied-rm clone task=$$task data=$(RUN)/$$task/demonstrations seed=71 out=$(RUN)/$$task/clone; \
		$(BIN)/embodied-rm collect "tasks=[$$task]" num_successes=10 num_failures=20 rollouts_per_policy=30 frame_stride=2 seed=900 \
			"policies=[$(RUN)/$$task/clone]" 'env.views=[front,side,wrist]' out=$(RUN)/$$task/unseen; \
		for model in $(LONG) $(LONG_TUNED); do $(BIN)/embodied-rm evaluate data=$(RUN)/$$task/unseen checkpoint=$$model/train \
			out=$(RUN)/$$task/$${model##*/}; done; \
	done
	rm -f $(CHECKPOINTS)/long/tensors-*
	cp $(LONG_TUNED)/train/checkpoint/* $(CHECKPOINTS)/long/

real: install  ## adapt to your own robot video, score it, compare with its annotation (DATA=folder)
	$(BIN)/embodied-rm adapt real data=$(DATA)/episode_001 out=$(RUN)/adapt
	$(BIN)/embodied-rm score data=$(DATA)/episode_002 checkpoint=$(RUN)/adapt out=$(RUN)/score
	$(BIN)/embodied-rm evaluate data=$(DATA)/episode_002 checkpoint=$(RUN)/adapt model_name=real out=$(RUN)/evaluate

bench: .venv/installed-bench  ## speed, cost of a learned reward, parity with other backends and libraries (three hours)
	$(BIN)/python benchmarks/render_speed.py
	$(BIN)/embodied-rm bench sim results_page=docs/results/benchmarks.md out=$(RUN)/sim
	$(BIN)/embodied-rm bench reward results_page=docs/results/benchmarks.md out=$(RUN)/reward
	$(BIN)/embodied-rm bench model results_page=docs/results/benchmarks.md out=$(RUN)/model
	$(BIN)/embodied-rm bench score results_page=docs/results/benchmarks.md out=$(RUN)/score
	$(BIN)/python benchmarks/score_throughput.py
	$(BIN)/embodied-rm bench experts results_page=docs/results/benchmarks.md out=$(RUN)/experts
	$(BIN)/embodied-rm bench renderers results_page=docs/results/benchmarks.md out=$(RUN)/renderers
	$(BIN)/python benchmarks/ppo_speed.py
	$(BIN)/python benchmarks/planted_hacks.py
	$(BIN)/python benchmarks/ppo_parity.py
	$(BIN)/python benchmarks/kill_policy_finetuning.py
	$(BIN)/python benchmarks/kill_reward_training.py
	$(BIN)/python benchmarks/corrupted_dataset.py
	$(BIN)/python benchmarks/frozen_encoder_training.py --rounds 3

lerobot: install  ## exchange datasets with the lerobot package, in separate virtual environments (six gigabytes)
	for version in 0.4.4 0.3.3; do \
		test -x .venv-lerobot/$$version/bin/python || $(PYTHON) -m venv .venv-lerobot/$$version; \
		.venv-lerobot/$$version/bin/python -m pip install --quiet lerobot==$$version || exit 1; \
	done
	$(BIN)/python benchmarks/lerobot_exchange.py --v30-python .venv-lerobot/0.4.4/bin/python \
		--v21-python .venv-lerobot/0.3.3/bin/python

test-lerobot: install  ## the plugins for the lerobot package and a day with them, in separate virtual environments (twelve gigabytes)
	@if [ -z "$(PYTHON312)" ]; then echo "error: lerobot 0.6 needs Python >= 3.12; install one or pass PYTHON312=/path/to/python" >&2; exit 2; fi
	test -x .venv-lerobot/0.4.4/bin/python || $(PYTHON) -m venv .venv-lerobot/0.4.4
	test -x .venv-lerobot/0.6.1/bin/python || $(PYTHON312) -m venv .venv-lerobot/0.6.1
	for version in 0.4.4 0.6.1; do set -e; \
		install=".venv-lerobot/$$version/bin/python -m pip install --quiet"; \
		$$install "lerobot[evaluation,smolvla,training]==$$version" 'mujoco>=3.17,!=4.0.0,<5' open_clip_torch scipy pytest; \
		$$install --no-deps -e .; \
	done
	.venv-lerobot/0.4.4/bin/python -m pytest --confcutdir=tests/integrations/lerobot tests/integrations/lerobot/test_day.py tests/integrations/lerobot/test_environment.py
	.venv-lerobot/0.6.1/bin/python -m pytest --confcutdir=tests/integrations/lerobot tests/integrations/lerobot

install: .venv/installed  ## only create .venv with the pinned packages

.venv/bin/python:
	@if [ -z "$(PYTHON)" ]; then echo "error: no Python >= 3.11 found; install one or pass PYTHON=/path/to/python" >&2; exit 2; fi
	$(PYTHON) -m venv .venv

# A library that does not fit constraints.txt, or that is large, is tested in a virtual environment of its own.
INTEGRATION_torchrl := torchrl==0.14.1
INTEGRATION_maniskill := mani_skill==3.0.1
INTEGRATION_mjlab := mjlab==1.6.0
EXTRAS_mjlab := [pretrained]
EXTRAS_robosuite := [hdf5]
INTEGRATION_robosuite := mujoco==3.3.7 numba scipy termcolor opencv-python-headless pynput
# robosuite asks for mink, which needs numpy 1 and which it can do without.
WITHOUT_REQUIREMENTS_robosuite := robosuite==1.5.2
# Packages of which these libraries need other versions than those of constraints.txt.
UNPINNED := tensordict|rsl-rl-lib|rich|websockets|mujoco|mujoco-warp
TEST_INTEGRATION = .venv-$(@:test-%=%)/bin/python -m pytest --confcutdir=tests/integrations/$(@:test-%=%) tests/integrations/$(@:test-%=%)

.venv-%/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-$*
	grep -vE '^($(UNPINNED))==' constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet -c .venv-$*/constraints.txt $(INDEX) -e '.$(EXTRAS_$*)' pytest pytest-timeout $(INTEGRATION_$*)
	$(if $(WITHOUT_REQUIREMENTS_$*),.venv-$*/bin/python -m pip install --quiet --no-deps $(WITHOUT_REQUIREMENTS_$*))
	@touch $@

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[all]'
	@# Without a working OpenGL, the optional package mujoco-warp renders the simulator with its ray tracer.
	@$(BIN)/python -c 'import sys; from embodied_sim.render.gl_context import find_gl_platform; sys.exit(find_gl_platform() is None)' \
		|| $(PIP) -e '.[warp]'
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	@touch .venv/installed $@

.venv/installed-bench: .venv/installed-dev
	$(PIP) -e '.[dev,bench]'
	@touch $@

clean:  ## remove the virtual environment, caches and built files; runs/ stays
	rm -rf .venv .venv-torchrl .venv-maniskill build site embodied_rm/client/build embodied_rm/client/*.egg-info dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
