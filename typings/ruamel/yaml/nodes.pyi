from ruamel.yaml.error import StringMark

class Node:
    tag: str
    start_mark: StringMark
    end_mark: StringMark
    anchor: str | None

class ScalarNode(Node):
    value: str

class SequenceNode(Node):
    value: list[Node]

class MappingNode(Node):
    value: list[tuple[Node, Node]]
    flow_style: bool | None
