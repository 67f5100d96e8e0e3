"""Audit of a reward model: perturbed instructions, images and videos that could fool it."""

from embodied_rm.audit.runner import AuditResult, audit
from embodied_rm.audit.test_set import AuditRewardConfig

__all__ = ["AuditResult", "AuditRewardConfig", "audit"]
