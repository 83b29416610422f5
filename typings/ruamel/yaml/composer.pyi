from ruamel.yaml.nodes import Node

class Composer:
    warn_double_anchors: bool
    def compose_node(self, parent: object, index: object) -> Node | None: ...
