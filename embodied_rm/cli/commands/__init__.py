"""The commands: a module per command, here or, where it simulates or measures, in the package that does the work."""

COMMAND_MODULES = {
    "bench_cloning": "embodied_rm.experiments.cloning_benchmark",
    "bench_dpo": "embodied_rm.experiments.imagination_benchmark",
    "bench_experts": "embodied_rm.experiments.expert_benchmark",
    "bench_fusion": "embodied_rm.experiments.fusion_benchmark",
    "bench_labels": "embodied_rm.experiments.label_benchmark",
    "bench_model": "embodied_rm.experiments.inference_benchmark",
    "bench_programs": "embodied_rm.experiments.programs_benchmark",
    "bench_renderers": "embodied_rm.experiments.renderer_benchmark",
    "bench_offline": "embodied_rm.experiments.offline_benchmark",
    "bench_online": "embodied_rm.experiments.online_benchmark",
    "bench_reward": "embodied_rm.experiments.rl_iteration_benchmark",
    "bench_score": "embodied_rm.experiments.scoring_benchmark",
    "bench_sim": "embodied_rm.experiments.simulation_benchmark",
    "build_checkpoint": "embodied_rm.experiments.release_checkpoint",
    "clone": "embodied_rm.tabletop.clone_policy",
    "collect": "embodied_rm.tabletop.collect_episodes",
    "compare": "embodied_rm.experiments.compare_rules",
    "demo": "embodied_rm.experiments.demo_loop",
    "dpo": "embodied_rm.tabletop.dpo_policy",
    "evaluate": "embodied_rm.experiments.evaluate_model",
    "offline": "embodied_rm.tabletop.offline_policy",
    "play": "embodied_rm.tabletop.play_episodes",
    "refine": "embodied_rm.tabletop.refine_policy",
    "write_reward": "embodied_rm.experiments.write_reward",
}
"""Command -> module that defines its `COMMAND`; others are `embodied_rm.cli.commands.<name>`."""
