"""The answer of `why` on a terminal."""

from __future__ import annotations

from typing import Any

from shardmerge.ctl.as_json import to_value
from shardmerge.ctl.render.diagnosis import findings
from shardmerge.proto import common_pb2
from shardmerge.proto import diagnose_pb2 as diagnosis
from shardmerge.proto import master_pb2 as pb
from tests.support.canned_master import detail
from tests.unit.ctl.render.drawing import draw


def _finding(
    name: str, weight: float, *sources: str, text: str = "It waits.", action: str = "`do this`"
) -> diagnosis.Finding:
    made = diagnosis.Finding(id=name, weight=weight, sources=sources, text=text, actions=[action])
    made.figures["wait_seconds"] = 23.5
    made.names["lane"] = "1"
    return made


def _use(**fields: Any) -> diagnosis.SourceUse:
    use = diagnosis.SourceUse(
        source="mysql-01", worker="w1", stage=common_pb2.STAGE_RUNNING, unit=common_pb2.UNIT_REPLICATE, **fields
    )
    use.shares.update({"target": 0.62, "read": 0.377, "start": 0.003})
    return use


def test_one_screen() -> None:
    answer = pb.DiagnoseResponse(
        result=True,
        task="merge",
        seconds=3.0,
        findings=[
            _finding("row-lock", 90, "mysql-01"),
            _finding("source-idle", 10, *(f"mysql-{n:02d}" for n in range(2, 9))),
        ],
        uses=[_use(commit_ms=4.1, round_trip_ms=0.4, lag_seconds=23.0, changes_per_second=812)],
        unknown=["mysql-01: not visible at the target: x."],
    )
    lines = [" ".join(line.split()) for line in draw(findings.screen(answer), width=160).splitlines()]
    assert any(
        line.startswith("mysql-01 w1 ● Running Sync 23.0 s 812 4.1 ms 0.4 ms target 62 %, read 38 %") for line in lines
    )
    assert "1. row-lock mysql-01 It waits." in lines
    assert "→ `do this`" in lines
    assert "2. source-idle mysql-02, mysql-03, mysql-04, mysql-05 and 3 more It waits." in lines
    assert lines[lines.index("Not known") + 1] == "mysql-01: not visible at the target: x."


def test_many_findings_of_one_kind_do_not_hide_the_others() -> None:
    found = [_finding("ddl-lock", 80, "mysql-01", text=f"Lock {n}.") for n in range(64)]
    for number, each in enumerate(found):
        each.names["lock"] = str(number)
    answer = pb.DiagnoseResponse(result=True, findings=[*found, _finding("target-slow", 60, "mysql-01")])
    text = draw(findings.screen(answer), width=160)
    assert "3. ddl-lock  mysql-01  Lock 2." in text and "Lock 3." not in text
    assert "4. target-slow" in text and "and 61 more: --all" in text
    assert "Lock 63." in draw(findings.screen(answer, all_findings=True), width=160)


def test_what_is_not_known_is_counted() -> None:
    answer = pb.DiagnoseResponse(result=True, unknown=[f"mysql-{n:02d}: not visible." for n in range(16)])
    text = draw(findings.screen(answer), width=160)
    assert "mysql-05: not visible." in text and "mysql-06" not in text and "and 10 more: --all" in text
    everything = draw(findings.screen(answer, all_findings=True), width=160)
    assert "mysql-15: not visible." in everything and "more" not in everything


def test_control_characters_of_a_statement_do_not_reach_the_terminal() -> None:
    found = _finding("row-lock", 90, "mysql-01", text="running: SELECT \x1b[2J\x9b31m\u202e\n`x\x07`")
    text = draw(findings.screen(pb.DiagnoseResponse(result=True, findings=[found])), width=160)
    assert not {"\x1b", "\x9b", "\u202e", "\x07"}.intersection(text)


def test_figures_that_are_not_known() -> None:
    answer = pb.DiagnoseResponse(result=True, uses=[_use()])
    line = next(line for line in draw(findings.screen(answer), width=160).splitlines() if "mysql-01" in line)
    assert line.split()[-11:-6].count("–") == 4, line


def test_few_findings_fit_and_all_are_shown_on_demand() -> None:
    answer = pb.DiagnoseResponse(result=True, findings=[_finding(f"cause-{n}", 50 - n, f"s{n}") for n in range(9)])
    text = draw(findings.screen(answer), width=100)
    assert "cause-5" in text and "cause-6" not in text and "and 3 more: --all" in text
    assert "cause-8" in draw(findings.screen(answer, all_findings=True), width=100)
    assert len(text.splitlines()) <= 24


def test_nothing_delays_it() -> None:
    assert "Nothing delays it" in draw(findings.screen(pb.DiagnoseResponse(result=True)))


def test_a_source_that_could_not_be_asked_is_a_finding_and_not_repeated() -> None:
    failed = pb.SourceResult(source="mysql-02", error=detail(message="no answer"))
    finding = _finding("worker-silent", 100, "mysql-02", text="Worker w2 could not be asked.")
    text = draw(findings.screen(pb.DiagnoseResponse(findings=[finding], sources=[failed])))
    assert text.count("could not be asked") == 1 and "no answer" not in text


def test_markup_of_a_statement_is_text() -> None:
    text = draw(findings.screen(pb.DiagnoseResponse(findings=[_finding("row-lock", 90, text="runs [bold]x\x1b[0m")])))
    assert "[bold]x" in text and "\x1b" not in text


def test_json_has_figures_and_names() -> None:
    value = to_value(pb.DiagnoseResponse(result=True, findings=[_finding("row-lock", 90, "mysql-01")]))
    [found] = value["findings"]  # type: ignore[misc, union-attr]
    assert isinstance(found, dict)
    assert (found["id"], found["figures"], found["names"]) == ("row-lock", {"wait_seconds": 23.5}, {"lane": "1"})


def test_the_same_finding_at_sixteen_sources_is_one() -> None:
    """Also if their figures differ; not if they are about different objects."""
    names = [f"mysql-{number:02d}" for number in range(1, 17)]
    same = [diagnosis.Finding(id="target-slow", weight=50, sources=[name], text=f"It uses {name}.") for name in names]
    lock = _finding("row-lock", 90, "mysql-03")
    other = _finding("row-lock", 90, "mysql-04")
    other.names["lane"] = "0"
    uses = [diagnosis.SourceUse(source=name, lag_seconds=float(at)) for at, name in enumerate(names)]
    answer = pb.DiagnoseResponse(result=True, findings=[lock, other, *same], uses=uses)
    text = draw(findings.screen(answer), width=120)
    assert "1. row-lock  mysql-03" in text and "2. row-lock  mysql-04" in text and "3. target-slow  mysql-01" in text
    assert "the same at mysql-02, mysql-03, mysql-04, mysql-05 and 11 more: --all has the figures" in text
    assert "It uses mysql-02." not in text
    assert "and 8 more: --all" in text and "mysql-16" in text, "the sources that lag most are in the table"
    assert len(text.splitlines()) <= 24
    assert "18. target-slow  mysql-16  It uses mysql-16." in draw(findings.screen(answer, all_findings=True), width=120)


def test_the_terms_that_a_screen_uses_are_explained() -> None:
    found = _finding("target-slow", 60, "mysql-01", text="Lane 0 waits for the relay log.", action="Ask.")
    shown = draw(findings.screen(pb.DiagnoseResponse(result=True, findings=[found], uses=[_use()])), width=200)
    words = [line.strip() for line in shown.partition("Words")[2].splitlines()]
    assert "lane: one of the parallel writers of a task at one source; a row is always written by the same" in words
    assert any(line.startswith("relay log: the copy of the source's binlog") for line in words)
    assert not any(line.startswith(("relay:", "chunk:", "quarantine:")) for line in words)
    [times] = [line for line in words if line.startswith("time of lanes and readers: ")]
    assert "target: transactions at the target" in times and "barrier" not in times
    plain = _finding("paused", 60, "mysql-01", text="An operator has paused it.", action="`dmctl resume-task merge`")
    assert "Words" not in draw(findings.screen(pb.DiagnoseResponse(result=True, findings=[plain])), width=200)
