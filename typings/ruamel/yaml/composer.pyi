from ruamel.yaml.events import Event
from ruamel.yaml.nodes import Node

class _Parser:
    def peek_event(self) -> Event: ...

class Composer:
    warn_double_anchors: bool
    @property
    def parser(self) -> _Parser: ...
    def compose_node(self, parent: object, index: object) -> Node | None: ...
