"""Access control of a worker's data interface: Spark tasks authenticate with the secret of their run.

The driver makes one secret for each run and gives it to the run's tasks. A caller without it gets the answer that its
run has ended. The secret is useless after the end of the run, so it may be part of what Spark pickles. Passwords may
not: each task fetches them from the worker.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from shardmerge.proto import relay_pb2
from shardmerge.worker.core.mysql.endpoint import Endpoint

_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret of one run: 256 random bits as text."""
    return secrets.token_urlsafe(_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class RunAccess:
    """The secret that authenticates the tasks of one run, and the servers whose credentials they may fetch."""

    secret: str = field(repr=False)
    source: Endpoint
    target: Endpoint

    def admits(self, who: relay_pb2.TaskIdentity) -> bool:
        """Whether the caller sent the run's secret. The comparison takes constant time."""
        return bool(self.secret) and hmac.compare_digest(who.run_secret.encode(), self.secret.encode())

    def credentials_of_reader(self) -> relay_pb2.CredentialsResponse:
        """The credentials that the pickled endpoints of a chunk reader or a comparison lack."""
        return relay_pb2.CredentialsResponse(source=self.source.secrets(), target=self.target.secrets())

    def credentials_of_lane(self) -> relay_pb2.CredentialsResponse:
        """The credentials that a lane needs: it connects to the target only."""
        return relay_pb2.CredentialsResponse(target=self.target.secrets())
