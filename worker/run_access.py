"""Who may call a worker's data interface: the Spark tasks of a run, by the secret that the run was given.

The driver makes one secret for each run and hands it to the run's tasks. A call without it is answered as one of a run
that has ended. The secret is of no use once the run has ended, so that it may travel in what Spark pickles; passwords
may not, and each task fetches them.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from proto import relay_pb2
from worker.endpoint import Endpoint

_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret of one run: 256 random bits as text."""
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class RunAccess:
    """What the tasks of one run are recognised by, and the servers whose secrets they may fetch."""

    secret: str = field(repr=False)
    source: Endpoint
    target: Endpoint

    def admits(self, who: relay_pb2.TaskIdentity) -> bool:
        """Whether the caller knows the run's secret; compared in constant time."""
        return bool(self.secret) and hmac.compare_digest(who.run_secret.encode(), self.secret.encode())

    def credentials(self) -> relay_pb2.CredentialsResponse:
        """What a task needs beside its pickled endpoints."""
        return relay_pb2.CredentialsResponse(source=self.source.secrets(), target=self.target.secrets())
