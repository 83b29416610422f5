"""Tests compiled expressions: who may evaluate which, the check that all of them pass, and the reported errors."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import grpc
import pyarrow as pa
import pytest

from shardmerge.proto import errors, relay_pb2, relay_pb2_grpc
from shardmerge.proto.config.rules.transform import TransformRefused
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.rpc import client
from shardmerge.proto.rpc.limits import WORKER
from shardmerge.proto.rpc.server import make_server
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.spark.run_access import RunAccess
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, RowTransform, TablePlan
from shardmerge.worker.daemon.task_service import TaskService
from shardmerge.worker.rules.transform.analyzer import analyse
from shardmerge.worker.rules.transform.client import TransformClient, Transformer, as_stream, failed_to_answer
from shardmerge.worker.rules.transform.expressions import Expressions, RunExpressions, expressions_of
from shardmerge.worker.rules.transform.projection import evaluate
from shardmerge.worker.rules.transform.session import session
from shardmerge.worker.rules.transform.values import ROW
from shardmerge.worker.unit.run_context import RunningSnapshot
from tests.support.plans import integer, table_plan, text
from tests.support.transformed import computed_rows

GIVEN = (integer(), text("v"))
SCHEMA = pa.schema([pa.field(ROW, pa.int32()), pa.field("id", pa.int64()), pa.field("v", pa.string())])
WHO = relay_pb2.TaskIdentity(task="t", source="s", epoch=3, run_secret="secret")
ENDPOINT = Endpoint("127.0.0.1", 3306, "dm")


@pytest.fixture(scope="module", autouse=True)
def _spark() -> Iterator[None]:
    """Start the JVM before gRPC's threads."""
    session()
    yield


def plan(item: str, condition: str = "") -> TablePlan:
    columns = (ColumnPlan(-1, integer(), "x", ComputedValue(item)),)
    transform = RowTransform("rule", condition, (0, 1), has_star=False)
    return replace(table_plan(GIVEN, (0,)), columns=columns, key=(), transform=transform)


def rows(*values: str | None, schema: pa.Schema = SCHEMA) -> bytes:
    count = len(values)
    columns = [pa.array(range(count), pa.int32()), pa.array(range(count), pa.int64()), pa.array(values, pa.string())]
    return as_stream(pa.Table.from_arrays(columns, schema=schema))


class _NoChunks:
    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse:
        raise AssertionError(who)

    def admit(self, who: relay_pb2.TaskIdentity, chunk: relay_pb2.ChunkSpec, position: SourcePosition) -> None:
        raise AssertionError(who)

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        raise AssertionError(report)


def service(*plans: TablePlan) -> TaskService:
    """Return a service with a running unit that has issued ``plans``."""
    made, compiled = TaskService(lambda: None), RunExpressions()
    compiled.admit(plans)
    access = RunAccess("secret", ENDPOINT, ENDPOINT)
    running = RunningSnapshot("t", "s", 3, _NoChunks(), lambda _: False, StopSignal(), 1, access, compiled)
    made.register_dispenser(running)
    return made


def asked(made: TaskService, request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    return made.Evaluate(request, cast(grpc.ServicerContext, None))


def with_identity(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateRequest:
    request.who.CopyFrom(WHO)
    return request


def identifier(of: TablePlan) -> bytes:
    found = expressions_of(of)
    assert found is not None
    return found.identifier


@pytest.fixture
def worker_address() -> Iterator[Callable[[TaskService], str]]:
    """Serve a service as a worker does; provide its address."""
    servers: list[grpc.Server] = []

    def serve(made: TaskService) -> str:
        server = make_server([], "the worker", WORKER)
        servers.append(server)
        relay_pb2_grpc.add_RelayServicer_to_server(made, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return f"127.0.0.1:{port}"

    yield serve
    for server in servers:
        server.stop(None).wait()


# -- rows larger than a message


@pytest.mark.turns
def test_a_row_larger_than_a_message_is_evaluated(worker_address: Callable[[TaskService], str]) -> None:
    made = plan("concat(cast(length(v) AS string), right(v, 3)) AS x")
    asker = TransformClient(worker_address(service(made)), WHO)
    size = WORKER.message_bytes + (70 << 20)
    try:
        small, large = computed_rows(
            Transformer(made, asker), [(b"1", b"'w'"), (b"2", b"'" + b"y" * (size - 3) + b"abc'")]
        )
    finally:
        asker.close()
    assert (small, large) == ((b"'1w'",), (b"'%dabc'" % size,))


def test_large_rows_need_the_secret_of_the_run(worker_address: Callable[[TaskService], str]) -> None:
    made = plan("id + 1 AS x")
    who = relay_pb2.TaskIdentity(task="t", source="s", epoch=3, run_secret="guess")
    ended = threading.Event()

    def requests() -> Iterator[relay_pb2.EvaluateRequest]:
        yield relay_pb2.EvaluateRequest(who=who, expressions=identifier(made))
        ended.wait()  # the answer comes before any row is sent

    try:
        with client.channel(worker_address(service(made))) as channel, pytest.raises(grpc.RpcError) as caught:
            relay_pb2_grpc.RelayStub(channel).EvaluateLarge(requests(), timeout=60)
    finally:
        ended.set()
    assert client.coded_from_rpc(caught.value, "the worker").spec is errors.replicate.FENCED


# -- which requests are evaluated


def test_what_the_driver_has_handed_out_is_evaluated() -> None:
    made = plan("id + 1 AS x")
    answer = asked(service(made), relay_pb2.EvaluateRequest(who=WHO, rows=rows("a"), expressions=identifier(made)))
    assert answer.rows
    assert not answer.refused


@pytest.mark.parametrize(
    ("identity", "expressions", "sent", "spec"),
    [
        (WHO, identifier(plan("id + 2 AS x")), rows("a"), errors.replicate.EXPRESSIONS_UNKNOWN),
        (WHO, b"id + 1 AS x", rows("a"), errors.replicate.EXPRESSIONS_UNKNOWN),
        (WHO, b"", rows("a"), errors.replicate.EXPRESSIONS_UNKNOWN),
        (
            relay_pb2.TaskIdentity(task="t", source="s", epoch=2, run_secret="secret"),
            identifier(plan("id + 1 AS x")),
            rows("a"),
            errors.replicate.FENCED,
        ),
        (
            relay_pb2.TaskIdentity(task="t", source="s", epoch=3, run_secret="guess"),
            identifier(plan("id + 1 AS x")),
            rows("a"),
            errors.replicate.FENCED,
        ),
        (relay_pb2.TaskIdentity(), identifier(plan("id + 1 AS x")), rows("a"), errors.replicate.FENCED),
        (WHO, identifier(plan("id + 1 AS x")), b"", errors.replicate.ROWS_UNREADABLE),
        (WHO, identifier(plan("id + 1 AS x")), b"\xff\xff\xff\xff\x08\0\0\0junk", errors.replicate.ROWS_UNREADABLE),
        (WHO, identifier(plan("id + 1 AS x")), rows("a")[:-40], errors.replicate.ROWS_UNREADABLE),
        (WHO, identifier(plan("id + 1 AS x")), rows("a").replace(b"shard", b"shart"), errors.replicate.ROWS_UNREADABLE),
    ],
)
def test_nothing_else_is(identity: relay_pb2.TaskIdentity, expressions: bytes, sent: bytes, spec: ErrorSpec) -> None:
    with pytest.raises(ShardmergeError) as caught:
        asked(service(plan("id + 1 AS x")), relay_pb2.EvaluateRequest(who=identity, rows=sent, expressions=expressions))
    assert caught.value.spec is spec


def test_rows_of_other_columns_are_not_read() -> None:
    made = plan("id + 1 AS x")
    others = as_stream(
        pa.Table.from_arrays([pa.array([0], pa.int32()), pa.array([1.0], pa.float64())], names=[ROW, "id"])
    )
    with pytest.raises(ShardmergeError) as caught:
        asked(service(made), relay_pb2.EvaluateRequest(who=WHO, rows=others, expressions=identifier(made)))
    assert caught.value.spec is errors.replicate.ROWS_UNREADABLE


@pytest.mark.parametrize("broken", [b"\xff\xfe", b"\xc3"])
def test_texts_that_are_none_do_not_reach_the_jvm(broken: bytes) -> None:
    made = plan("id + 1 AS x")
    marked = rows("MARK" + "k" * (len(broken) - 1)).replace(b"MARK" + b"k" * (len(broken) - 1), broken + b"abc")
    with pytest.raises(ShardmergeError) as caught:
        asked(service(made), relay_pb2.EvaluateRequest(who=WHO, rows=marked, expressions=identifier(made)))
    assert caught.value.spec is errors.replicate.ROWS_UNREADABLE


def test_the_identifier_has_everything() -> None:
    base = plan("id + 1 AS x")
    assert base.transform is not None
    wide = replace(GIVEN[0], unsigned=True, type_text="bigint unsigned")
    others = [
        plan("id + 1 AS y"),
        plan("id + 1 AS x", "id > 1"),
        replace(base, transform=replace(base.transform, inputs=(0,))),
        replace(base, table=replace(base.table, columns=(wide, GIVEN[1]))),
        replace(base, table=replace(base.table, columns=(replace(GIVEN[0], name="idx"), GIVEN[1]))),
    ]
    assert len({identifier(each) for each in (base, *others)}) == 6
    assert identifier(plan("id + 1 AS x")) == identifier(base)
    assert expressions_of(table_plan(GIVEN, (0,))) is None


# -- the check of expressions

OUTSIDE = [
    "reflect('java.lang.System', 'getenv', 'PATH')",
    "java_method('java.lang.System', 'getenv', 'PATH')",
    "try_reflect('java.lang.System', 'getenv', 'PATH')",
    "array_size(array_sort(array('a', 'b'), (l, r) -> length(reflect('java.lang.System', 'getenv', 'PATH'))))",
    "input_file_name()",
    "input_file_block_start()",
    "(SELECT max(value) FROM text.`/etc/passwd`)",
    "EXISTS (SELECT 1 FROM csv.`/etc/passwd`)",
    "v IN (SELECT value FROM text.`/etc/passwd`)",
    "(SELECT max(value) FROM read_files('/etc/passwd'))",
    "read_files('/etc/passwd')",
    "from_avro(CAST(v AS BINARY), 'x')",
    "from_protobuf(CAST(v AS BINARY), 'a', '/etc/passwd')",
    "from_json(v, 'a INT').a",
    "from_xml(v, 'a INT').a",
    "aes_decrypt(CAST(v AS BINARY), CAST(v AS BINARY))",
    "IDENTIFIER('v')",
    "IDENTIFIER('upper')(v)",
    ":v",
    "?",
    "user",
    "current_user()",
    "session_user",
    "current_catalog()",
    "current_database()",
    "version()",
    "uuid()",
    "rand()",
    "now()",
    "spark_partition_id()",
    "monotonically_increasing_id()",
    "system.builtin.upper(v)",
    "`upper`(v)",
    "raise_error(v)",
    "sum(id)",
    "row_number() OVER (ORDER BY id)",
    "explode(array(1))",
    "session.x",
]


@pytest.mark.parametrize("expression", OUTSIDE)
def test_one_gate_for_what_is_analysed_and_what_is_evaluated(expression: str) -> None:
    with pytest.raises(TransformRefused):
        analyse(GIVEN, f"id, {expression} AS x", "")
    with pytest.raises(TransformRefused):
        analyse(GIVEN, "", f"({expression}) = 'a'")
    # The same without a check of the task file: every compiled expression is checked again.
    assert evaluate(Expressions((), (f"{expression} AS x",), "", SCHEMA), rows("a")).refused
    assert evaluate(Expressions((), (), f"({expression}) = 'a'", SCHEMA), rows("a")).refused


@pytest.mark.parametrize(
    "expression",
    [
        "div(id, 2)",
        "(id = 1) IS NOT UNKNOWN",
        "(id = 1) IS UNKNOWN",
        "struct(id, v).v",
        "array(named_struct('a', id)).a[0]",
        "v LIKE ANY ('a%', 'b%')",
        "date_trunc('HOUR', TIMESTAMP_NTZ '2020-01-01 10:11:12' + INTERVAL '1-2' YEAR TO MONTH)",
        "timestampadd(MONTH, 1, TIMESTAMP_NTZ '2020-01-01 10:11:12')",
        "v COLLATE UTF8_LCASE = 'A'",
        "xpath_string(concat('<a>', v, '</a>'), 'a')",
        "concat_ws('-', *)",
        "nullif(id, 1) BETWEEN 1 AND 2",
        "TRY_CAST(v AS DECIMAL(10, 2)) DIV 2",
    ],
)
def test_what_depends_on_the_row_alone_passes(expression: str) -> None:
    analyse(GIVEN, f"id, {expression} AS x", "")
    assert not evaluate(Expressions((), (f"{expression} AS x",), "", SCHEMA), rows("a")).refused


def test_a_text_that_looks_like_a_variable_is_a_text() -> None:
    made = plan("concat('${env:PATH}', v, '${spark.app.name}', '${system:user.dir}', '${x}') AS x")
    analyse(GIVEN, "id, concat('${env:PATH}', v) AS x", "")
    asking = service(made)
    told = computed_rows(Transformer(made, lambda request: asked(asking, with_identity(request))), [(b"1", b"'w'")])
    assert told == [(b"'${env:PATH}w${spark.app.name}${system:user.dir}${x}'",)]


@contextmanager
def listening() -> Generator[tuple[int, list[str]]]:
    """Run a web server: provide its port, and the list of requests."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, seen
        finally:
            server.shutdown()
            thread.join()


def test_a_document_in_a_row_opens_nothing() -> None:
    """A property of the JVM that the worker's settings contain prevents it (JAXP, javax.xml.XMLConstants)."""
    properties = session()._jvm.java.lang.System
    expressions = Expressions((), ("xpath_string(v, 'a') AS x",), "", SCHEMA)
    with listening() as (port, seen):
        document = f'<!DOCTYPE a SYSTEM "http://127.0.0.1:{port}/dtd"><a>b</a>'
        properties.setProperty("javax.xml.accessExternalDTD", "")
        try:
            assert evaluate(expressions, rows(document)).refused
            assert not evaluate(expressions, rows("<a>b</a>")).refused
        finally:
            properties.clearProperty("javax.xml.accessExternalDTD")
        assert not seen


# -- reported errors

DEEP = "regexp_like(repeat(concat(v, 'ab'), 100000), '(a|b|[^x])*c') AS x"
"""An expression for which Java's regular expressions need more stack than exists."""


@pytest.mark.parametrize(
    ("item", "condition", "reason"),
    [
        ("CAST(v AS INT) AS x", "", "CAST_INVALID_INPUT in CAST(v AS INT) AS x, characters 1 to 14 (CAST(v AS INT))"),
        ("100 / (id - id) AS x", "", "DIVIDE_BY_ZERO in 100 / (id - id) AS x, characters 1 to 15 (100 / (id - id))"),
        (
            "1 AS x",
            "1 + CAST(v AS INT) > 1",
            "CAST_INVALID_INPUT in 1 + CAST(v AS INT) > 1, characters 5 to 18 (CAST(v AS INT))",
        ),
        (DEEP, "", f"StackOverflowError in {DEEP}"),
    ],
)
def test_an_error_is_reported_without_the_row(item: str, condition: str, reason: str) -> None:
    made = plan(item, condition)
    request = relay_pb2.EvaluateRequest(who=WHO, rows=rows("s3cret"), expressions=identifier(made))
    assert asked(service(made), request).refused == reason


@pytest.mark.parametrize(
    ("projection", "condition", "reason"),
    [
        ("id, v + no AS x", "", "UNRESOLVED_COLUMN.WITH_SUGGESTION in v + no AS x, characters 5 to 6 (no)"),
        ("", "v + 1", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN in v + 1"),
        (
            "id, upper(v, v) AS x",
            "",
            "WRONG_NUM_ARGS.WITHOUT_SUGGESTION in upper(v, v) AS x, characters 1 to 11 (upper(v, v))",
        ),
        (
            "id, '\U0001f600' || no AS x",
            "",
            "UNRESOLVED_COLUMN.WITH_SUGGESTION in '\U0001f600' || no AS x, characters 8 to 9 (no)",
        ),
    ],
)
def test_an_expression_that_is_refused_is_named_with_the_place(projection: str, condition: str, reason: str) -> None:
    with pytest.raises(TransformRefused) as caught:
        analyse(GIVEN, projection, condition)
    assert str(caught.value) == reason


def test_a_jvm_that_does_not_answer_is_lost() -> None:
    told = failed_to_answer(ConnectionError("a piece of whatever it was doing"))
    assert told.spec is errors.worker.SPARK_LOST
    assert "piece" not in told.message
