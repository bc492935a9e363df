"""Long work as jobs: begun, seen, cancelled while it waits, gone on with after a crash."""

from sfumato.services.jobs.jobs import ADD, ASK, CANCELLED, FAILED, WAITING, Job, Jobs

__all__ = ["ADD", "ASK", "CANCELLED", "FAILED", "WAITING", "Job", "Jobs"]
