"""Warnings reach the user in whatever way the program configures logging, and carry their facts."""

from __future__ import annotations

import gc
import json
import logging
import logging.handlers
import pickle
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import cyclescope
from support.nodes import SOURCE, Node
from support.processes import python

TOLD = "something to tell"

SETUPS = {
    # What disables the logger without a word about it.
    "dictConfig": (
        "logging.config.dictConfig({'version': 1})",
        "disable_existing_loggers",
    ),
    "dictConfig with handlers": (
        "logging.config.dictConfig({'version': 1, 'root': {'handlers': ['h'], 'level': 'DEBUG'},"
        " 'handlers': {'h': {'class': 'logging.StreamHandler', 'stream': 'ext://sys.stdout'}}})",
        "disable_existing_loggers",
    ),
    "fileConfig": (
        "import io; logging.config.fileConfig(io.StringIO('[loggers]\\nkeys=root\\n[handlers]\\n'"
        "'keys=h\\n[formatters]\\nkeys=\\n[logger_root]\\nhandlers=h\\nlevel=INFO\\n[handler_h]\\n'"
        "'class=StreamHandler\\nargs=(sys.stdout,)\\n'))",
        "disable_existing_loggers",
    ),
    # What lets it through.
    "nothing": ("", "seen"),
    "basicConfig": ("logging.basicConfig()", "seen"),
    "to standard output": ("logging.basicConfig(stream=sys.stdout)", "stdout"),
    "dictConfig that keeps loggers": (
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False})",
        "seen",
    ),
    "dictConfig that names it": (
        "logging.config.dictConfig({'version': 1, 'loggers': {'cyclescope': {}}})",
        "seen",
    ),
    "dictConfig in steps": (
        "logging.config.dictConfig({'version': 1, 'incremental': True})",
        "seen",
    ),
    "an own handler": (
        "own.addHandler(logging.StreamHandler(sys.stdout)); own.propagate = False",
        "stdout",
    ),
    "no handler on the way": ("own.propagate = False", "seen"),
    "another logger disabled": ("logging.getLogger('other').disabled = True", "seen"),
    # What silences it on purpose.
    "its level": ("own.setLevel(logging.CRITICAL)", "silent"),
    "the root's level": ("logging.getLogger().setLevel(logging.CRITICAL)", "silent"),
    "disabled by hand": ("own.disabled = True", "silent"),
    "all disabled by hand": (
        "[setattr(logging.getLogger(name), 'disabled', True) for name in"
        " list(logging.root.manager.loggerDict)]",
        "silent",
    ),
    "logging.disable": ("logging.disable(logging.CRITICAL)", "silent"),
    "a filter": ("own.addFilter(lambda record: False)", "silent"),
    "its own NullHandler": (
        "own.addHandler(logging.NullHandler()); own.propagate = False",
        "silent",
    ),
    "its own NullHandler alone": ("own.addHandler(logging.NullHandler())", "silent"),
    "the root's NullHandler": ("logging.getLogger().addHandler(logging.NullHandler())", "silent"),
    "a handler's level": (
        "logging.basicConfig(); logging.getLogger().handlers[0].setLevel(logging.CRITICAL)",
        "silent",
    ),
    "no last resort": ("logging.lastResort = None; logging.raiseExceptions = False", "silent"),
    "dictConfig with a level": (
        "logging.config.dictConfig({'version': 1, 'root': {'level': 'CRITICAL'}})",
        "silent",
    ),
    "dictConfig, and all off": (
        "logging.config.dictConfig({'version': 1}); logging.disable(logging.CRITICAL)",
        "silent",
    ),
}


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(*arguments, "-c", source, timeout=60)


@pytest.mark.parametrize("setup", SETUPS)
def test_a_warning_is_lost_only_on_purpose(setup: str) -> None:
    code, expected = SETUPS[setup]
    by_hand = "import logging" if "config" not in code else "import logging.config"
    done = run(
        f"import sys\n{by_hand}\nfrom cyclescope import _log\n"
        f"own = logging.getLogger('cyclescope')\n{code}\n"
        f"before = [logger.__dict__.copy() for logger in (own, logging.root)]\n"
        f"_log.warning('%s', {TOLD!r})\n_log.warning('%s', {TOLD!r})\n"
        "after = [logger.__dict__.copy() for logger in (own, logging.root)]\n"
        "for state in (*before, *after): state.pop('_cache')\n"
        "assert before == after\n"
    )
    assert done.returncode == 0, done.stderr
    output = {"silent": "", "stdout": done.stdout}.get(expected, done.stderr)
    assert output.count(TOLD) == (0 if expected == "silent" else 2)
    assert (done.stdout + done.stderr).count(TOLD) == output.count(TOLD)
    said = "cyclescope writes to standard error because"
    is_accident = expected not in ("seen", "stdout", "silent")
    assert done.stderr.count(said) == is_accident
    if is_accident:
        assert expected in done.stderr


def test_information_is_no_reason_to_speak() -> None:
    setup, _ = SETUPS["dictConfig"]
    done = run(f"import logging.config\nfrom cyclescope import _log\n{setup}\n_log.info('x')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("stream", ["None", "Broken()"])
def test_no_standard_error_is_no_error(stream: str) -> None:
    setup, _ = SETUPS["dictConfig"]
    done = run(
        f"import sys, logging.config\nfrom cyclescope import _log\n{setup}\n"
        "class Broken:\n    def write(self, text): raise OSError\n"
        "    def flush(self): pass\n"
        f"sys.stderr = {stream}\n_log.warning('x')\nprint('on')\n"
    )
    assert (done.returncode, done.stdout) == (0, "on\n")


def test_leaks_are_told_after_dict_config(tmp_path: Path) -> None:
    done = run(
        f"import gc, logging.config, numpy, cyclescope\n{SOURCE}\nclass Other(Node): pass\n"
        f"cyclescope.warn_tensor_cycles(devices='any', report_dir={str(tmp_path)!r})\n"
        "logging.config.dictConfig({'version': 1})\nNode()\nOther()\ngc.collect()\n"
    )
    words = " ".join(done.stderr.split())
    assert words.count("by the cycle Node.me → Node.") == 1
    assert words.count("by the cycle Other.me → Other.") == 1
    assert words.count("disable_existing_loggers") == 1
    assert words.count("2 leaks, seen 2 times") == 1


class JsonFormatter(logging.Formatter):
    """A formatter as JSON loggers have it: what is no attribute of every record is a field."""

    STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        extra = {k: v for k, v in record.__dict__.items() if k not in self.STANDARD}
        return json.dumps({"message": record.getMessage(), "level": record.levelname, **extra})


def test_the_record_of_a_leak_carries_its_facts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()
    with cyclescope.warn_tensor_cycles(devices="cpu", report_dir=tmp_path, min_bytes=0) as watch:
        Node()
        gc.collect()
    (record,) = [each for each in caplog.records if hasattr(each, "cyclescope")]
    line = json.loads(JsonFormatter().format(record))
    facts = line["cyclescope"]
    assert facts == record.cyclescope
    assert watch.report is not None
    (leak,) = watch.report.leaks
    assert facts["event"] == "leak"
    assert facts["signature"] == leak.signature
    assert facts["pattern"] == leak.pattern == "refers-to-itself"
    assert (facts["bytes"], facts["count"], facts["objects"]) == (2**20, 1, leak.objects)
    assert facts["device"] == "cpu"
    assert facts["tensors"] == [
        {
            "type": "numpy.ndarray",
            "dtype": "uint8",
            "shape": [2**20],
            "bytes": 2**20,
            "device": "cpu",
            "path": ".array",
        }
    ]
    assert facts["cut"] == {"owner": "support.nodes.Node", "reference": ".me", "proven": True}
    assert Path(facts["file"]).name == "nodes.py"
    source = Path(facts["file"]).read_text(encoding="utf-8").splitlines()
    assert "class Node" in source[facts["line"] - 1] or "self" in source[facts["line"] - 1]
    assert facts["command"] is not None
    assert facts["command"] in record.getMessage()
    assert facts["page"] in record.getMessage()
    assert Path(facts["page"]).exists()
    assert facts["advice"] == leak.advice

    # As a socket handler sends it, and another process makes it again.
    sent = logging.handlers.SocketHandler("", 0).makePickle(record)
    again = logging.makeLogRecord(pickle.loads(sent[4:]))
    assert again.cyclescope == facts  # type: ignore[attr-defined]
    assert json.loads(JsonFormatter().format(again)) == line


def documented(head: str, event: str | None = None) -> set[str]:
    """The fields that the documentation names in a table: in its first column, or of an event."""
    text = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")
    _, _, table = text.partition(f"\n| {head} |")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    column = [row[0] if event is None else row[1] for row in rows if event in (None, row[0][3:-1])]
    return {name for cell in column for name in re.findall(r"`(\w+)`", cell)}


def test_fields_of_growth_are_as_documented() -> None:
    stub = Path(cyclescope.__path__[0], "_native.pyi").read_text(encoding="utf-8")
    fields = set(
        re.findall(r"def (\w+)\(self\)", stub.split("class Growth:")[1].split("@final")[0])
    )
    methods = {"as_dict", "to_text", "__hash__"}
    assert documented("`event`", "growth`, `growth-withdrawn") == fields - methods


def test_redacted_fields_have_no_folder_and_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "secret_folder"
    folder.mkdir()
    (folder / "program.py").write_text(
        f"""
import gc, json, logging, numpy, cyclescope
{SOURCE}
class Lines(logging.Handler):
    def emit(self, record):
        print(json.dumps(record.cyclescope), flush=True)
logging.getLogger("cyclescope").addHandler(Lines())
cyclescope.warn_tensor_cycles(devices="cpu", redact=True, min_bytes=0)
node = Node()
node.me = {{"secret key": node}}
node.array = {{"secret key": node.array}}
del node
gc.collect()
""",
        encoding="utf-8",
    )
    done = python(folder / "program.py", check=True)
    facts = json.loads(done.stdout.splitlines()[0])
    assert facts["file"] == "program.py"
    assert "secret" not in done.stdout.replace(str(facts["page"]), "")


def test_the_summary_has_its_own(tmp_path: Path) -> None:
    source = f"""
import atexit, gc, json, logging, numpy, sys, cyclescope
{SOURCE}
class Lines(logging.Handler):
    def emit(self, record):
        print(json.dumps(record.cyclescope), flush=True)
logging.getLogger("cyclescope").addHandler(Lines())
cyclescope.warn_tensor_cycles(devices="cpu", report_dir={str(tmp_path)!r}, min_bytes=0)
for _ in range(3):
    Node()
    gc.collect()
"""
    first, summary = map(json.loads, run(source).stdout.splitlines())
    assert (first["event"], summary["event"]) == ("leak", "summary")
    assert documented("field of `leak`") == first.keys() - {"event"}
    (leak,) = summary["leaks"]
    assert documented("`event`", "summary") == {"leaks", *leak}
    assert leak["signature"] == first["signature"]
    assert (leak["count"], leak["bytes"], leak["largest"]) == (3, 3 * 2**20, 2**20)


def test_the_record_of_a_post_mortem_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With stand-ins for PyTorch and for what examines memory."""
    from cyclescope._live import oom

    class Found:
        device, verdict, headline, advice = "cuda:0", "fragmentation", "free but fragmented", "Set"
        to_json = to_text = str

    class Examiner:
        found = Found()

        def __init__(self, *arguments: object) -> None: ...

        def examine(self, told: object) -> None: ...

        def page(self) -> str:
            return "page"

    monkeypatch.setattr(oom, "Examiner", Examiner)
    monkeypatch.setattr("cyclescope._live.reading.quietly", lambda *_: False)
    watch = oom.OomWatch(tmp_path, 10.0)
    watch.examine(SimpleNamespace(_C=SimpleNamespace(_cuda_isHistoryEnabled=None)), 0, 1, 2, 3)
    watch.stop()
    (record,) = [each for each in caplog.records if hasattr(each, "cyclescope")]
    assert record.__dict__["cyclescope"] == {
        "event": "out-of-memory",
        "device": "cuda:0",
        "verdict": "fragmentation",
        "headline": "free but fragmented",
        "advice": "Set",
        "report": str(watch.reports[0]),
    }
    fields = record.__dict__["cyclescope"].keys() - {"event"}
    assert documented("`event`", "out-of-memory") == fields


RICH = f"""
import gc, logging, numpy
from rich.logging import RichHandler
import cyclescope

class Handler({{base}}):
    def emit(self, record):
        print(record.getMessage())

logging.getLogger().addHandler(Handler())
cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)
{SOURCE}
Node()
gc.collect()
"""


STRUCTLOG = f"""
import gc, logging, sys
import numpy, structlog
import cyclescope

chain = [structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()]
renderer = structlog.processors.JSONRenderer()
formatter = structlog.stdlib.ProcessorFormatter(
    foreign_pre_chain=chain,
    processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
)
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(formatter)
logging.getLogger().addHandler(handler)
cyclescope.warn_tensor_cycles(devices="any", min_bytes=0)
{SOURCE}
Node()
gc.collect()
"""


def test_structlog_writes_a_line_of_json_with_all_fields() -> None:
    """As the documentation says, by ``ExtraAdder``."""
    lines = [json.loads(line) for line in run(STRUCTLOG).stdout.splitlines()]
    leak, *rest = lines
    assert leak["level"] == "warning"
    assert leak["event"].startswith("1.0 MiB held by a reference cycle")
    assert "\n  Fix: " in leak["event"]
    assert leak["cyclescope"].keys() == documented("field of `leak`") | {"event"}
    assert [line["cyclescope"]["event"] for line in rest] == ["summary"]


def test_rich_gets_paragraphs_without_line_breaks() -> None:
    """It breaks lines itself, and ours in between."""
    plain, rich = (
        run(RICH.format(base=base)).stdout for base in ("logging.Handler", "RichHandler")
    )
    lines = [line[:8].strip() for line in rich.splitlines()]
    assert lines.count("") == 0, rich
    assert {"Fix:", "Held:", "Why:", "Page:"} < set(lines)
    assert any(len(line) > 100 for line in rich.splitlines())
    assert not any(len(line) > 100 for line in plain.splitlines() if "Page:" not in line)
