"""Score recordings, a few or a corpus: the progress of every frame as a parquet table, plots and videos; shard by
shard, so that a run which was killed goes on."""

from embodied_rm.score.config import ScoreConfig
from embodied_rm.score.pictures import CURVE_SIZE, series
from embodied_rm.score.run import score, score_corpus
from embodied_rm.score.scored import Scored
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.sight import read_for, views_for
from embodied_rm.score.table import TABLE

__all__ = [
    "CURVE_SIZE",
    "TABLE",
    "ScoreConfig",
    "Scored",
    "Scorer",
    "read_for",
    "score",
    "score_corpus",
    "series",
    "views_for",
]
