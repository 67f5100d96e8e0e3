"""Score recordings: the progress of every frame as a parquet table, plots and videos.

Scores are written in shards, so that an interrupted run can be resumed.
"""

from embodied_rm.score.corpus import score, score_corpus
from embodied_rm.score.score_config import ScoreConfig
from embodied_rm.score.scorer import Scorer, read_episodes_for
from embodied_rm.score.select_episodes import EpisodeSelection, SelectionConfig, read_predictions, select_episodes
from embodied_rm.score.shards import CorpusScores
from embodied_rm.score.visualize import plot_series
from embodied_rm.score.write_scores import TABLE_FILE

__all__ = [
    "TABLE_FILE",
    "CorpusScores",
    "EpisodeSelection",
    "ScoreConfig",
    "Scorer",
    "SelectionConfig",
    "plot_series",
    "read_episodes_for",
    "read_predictions",
    "score",
    "score_corpus",
    "select_episodes",
]
