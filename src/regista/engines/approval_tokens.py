"""ApprovalTokens: the tokens by which a person answers a job's question without a client token."""

import hmac

from ..model import Job
from ..storage.base import StorageBackend, shared_secret


class ApprovalTokens:
    """Tokens are HMACs of job, state and visit, so a handler that runs again gives the same one (FENCES 18)."""

    def __init__(self, storage: StorageBackend, secret: bytes = b"") -> None:
        """Without a secret, all instances of the store share one that the store keeps."""
        self._storage = storage
        self._secret = secret

    async def start(self) -> None:
        """Reads the shared secret, if no other is set."""
        self._secret = self._secret or await shared_secret(self._storage, "approval")

    def token(self, job: Job) -> str:
        """The token of the question that the job asks in its current visit."""
        return approval_token(self._secret, job)


def approval_token(secret: bytes, job: Job) -> str:
    """The HMAC of one visit of one state of one job, as hex digits."""
    message = f"{job.id}\n{job.state}\n{job.visit}".encode()
    return hmac.digest(secret, message, "sha256").hex()
