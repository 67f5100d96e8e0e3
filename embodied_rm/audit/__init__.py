"""Audit of a reward model: perturbed instructions, images and videos that could fool it."""

from embodied_rm.audit.cases import AUDIT_CASES, AuditCase
from embodied_rm.audit.runner import AuditResult, audit
from embodied_rm.audit.test_set import AuditClip, AuditDataset, AuditRewardConfig, AuditTrial

__all__ = [
    "AUDIT_CASES",
    "AuditCase",
    "AuditClip",
    "AuditDataset",
    "AuditResult",
    "AuditRewardConfig",
    "AuditTrial",
    "audit",
]
