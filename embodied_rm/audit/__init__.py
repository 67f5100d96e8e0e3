"""Can this reward be trusted: a reward model is tried with words, pictures and films that are made to fool it."""

from embodied_rm.audit.cases import CASES, Case
from embodied_rm.audit.material import Film, Material, Rules, Trial
from embodied_rm.audit.run import Outcome, audit

__all__ = ["CASES", "Case", "Film", "Material", "Outcome", "Rules", "Trial", "audit"]
