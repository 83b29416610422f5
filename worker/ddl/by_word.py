"""What becomes of a statement of which an operator has said something."""

from __future__ import annotations

from proto.errors import ShardmergeError
from worker.ddl.act import Actor
from worker.ddl.operator import Word
from worker.ddl.plan import Action, Alter, Drop, Empty, Make, Rename, Scene, decide
from worker.ddl.statement import Ddl
from worker.relay.model import Statement


def actions_by_word(word: Word, ddl: Ddl | None, statement: Statement, scene: Scene) -> tuple[Action, ...]:
    """What the statement comes to. Pure. Raises what :func:`decide` raises, if the statement is to run."""
    if ddl is None:
        return ()
    try:
        return decide(ddl, statement, scene)
    except ShardmergeError:
        if word.own:
            raise
        return ()  # the operator answers for what cannot be done


def act_by_word(word: Word, actions: tuple[Action, ...], actor: Actor) -> None:
    """The operator's statements run at the target, and the statement itself if it is to. The shard tables' structures
    are those of the source in any case. Raises what the actor's methods raise."""
    if not any(isinstance(action, Alter) for action in actions):
        actor.run_texts(word.texts)
    for action in actions:
        match action:
            case Alter():
                actor.alter_by_word(action, word)
            case _ if word.own:
                actor.do(action)
            case Make():
                actor.make(action)  # its rows come; whether the target can take them is looked at
            case Drop(shard=shard):
                actor.leave(shard)
            case Rename(moves=moves):
                for shard, _ in moves:
                    actor.leave(shard)
            case Empty():
                pass
