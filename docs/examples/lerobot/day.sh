#!/usr/bin/env bash
# Record and score episodes, then train and evaluate a policy with lerobot; see README.md.
#
#   day.sh <folder> [argument of lerobot-train]...
set -euo pipefail
if [ $# = 0 ]; then
	sed -n 's/^#   /usage: /p' "$0" >&2
	exit 2
fi
folder=$1
shift
embodied_rm=${EMBODIED_RM:-embodied-rm}
lerobot=${LEROBOT_BIN:+$LEROBOT_BIN/}lerobot
task=${TASK:-lift_cube}
episodes=${NUM_EVAL_EPISODES:-50}

"$embodied_rm" collect "tasks=[$task]" num_successes="${NUM_SUCCESSES:-40}" num_failures="${NUM_FAILURES:-20}" out="$folder/collect"
"$embodied_rm" score data="$folder/collect/dataset" write_back=true plots=false videos=false out="$folder/score"

"$lerobot-train" --dataset.repo_id="local/$task" --dataset.root="$folder/collect/dataset" --policy.push_to_hub=false \
	--output_dir="$folder/train" "$@"

"$lerobot-eval" --policy.path="$folder/train/checkpoints/last/pretrained_model" \
	--env.type=embodied_sim --env.task="$task" --env.discover_packages_path=embodied_sim.adapters.lerobot \
	--eval.n_episodes="$episodes" --eval.batch_size=$((episodes < 10 ? episodes : 10)) --output_dir="$folder/eval"
