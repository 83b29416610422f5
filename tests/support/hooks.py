"""The test's side of proto/failpoints.py: stops the program at a named moment, or lets it fail, across processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.wait import until


class Hooks:
    """Moments that are held in ``directory``; pass :attr:`environment` to the processes under test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"SHARDMERGE_HOOKS": str(self.directory)}

    def hold(self, moment: str) -> None:
        """From now on a thread that reaches ``moment`` waits there."""
        for old in self.directory.glob(f"{moment}.reached.*"):
            old.unlink()
        (self.directory / f"{moment}.hold").touch()

    def fail(self, moment: str) -> None:
        """From now on a thread that reaches ``moment`` raises shardmerge.proto.failpoints.MadeToFail."""
        (self.directory / f"{moment}.fail").touch()

    def reached(self, moment: str, seconds: float = 300.0) -> list[int]:
        """Wait until a process waits at ``moment``; return the ids of those that do."""
        return until(lambda: sorted(self.standing(moment)), f"a process reaches the moment {moment}", seconds)

    def standing(self, moment: str) -> set[int]:
        """Return the ids of the processes that have reached ``moment`` since it was held."""
        return {int(path.suffix[1:]) for path in self.directory.glob(f"{moment}.reached.*")}

    def release(self, moment: str) -> None:
        """Let the waiting processes continue; from now on no process waits or fails there."""
        for kind in ("hold", "fail"):
            (self.directory / f"{moment}.{kind}").unlink(missing_ok=True)

    def release_all(self) -> None:
        for kind in ("hold", "fail"):
            for path in self.directory.glob(f"*.{kind}"):
                path.unlink(missing_ok=True)
