"""What is misspelt is answered with what was meant, and ``help()`` explains every name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

import cyclescope
from cyclescope import CycleReport, _native, _selection, _settings
from cyclescope._live.growth import Cost
from cyclescope._live.pressure import Relief
from cyclescope._step import StepReport
from support.nodes import Node
from support.processes import python

PUBLIC = [getattr(cyclescope, name) for name in cyclescope.__all__]
CLASSES = [each for each in PUBLIC if inspect.isclass(each)]
NATIVE = [each for each in CLASSES if each.__module__ == "cyclescope"]


def misspellings(name: str) -> Iterator[str]:
    """Mistakes that people make: a letter too few, twice, swapped, another style."""
    middle = len(name) // 2
    yield name[:middle] + name[middle + 1 :]
    yield name[:middle] + name[middle] + name[middle:]
    yield name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    if "_" in name:
        yield name.replace("_", "", 1)


def check(error: AttributeError, wrong: str, meant: str, names: list[str]) -> None:
    """The message names the mistake, and suggests a name that is as near as what was meant."""
    found = re.fullmatch(rf".* has no attribute '{wrong}'; did you mean '(\w+)'\?", str(error))
    assert found is not None, str(error)
    assert found[1] in names
    assert found[1] == meant or abs(len(found[1]) - len(wrong)) <= abs(len(meant) - len(wrong))
    # Python 3.12 and later suggest by these, a second time.
    assert (error.name, error.obj) == (wrong, None)


def test_a_misspelt_name_of_the_module() -> None:
    for name in cyclescope.__all__:
        for wrong in misspellings(name):
            if wrong in dir(cyclescope):
                continue
            with pytest.raises(AttributeError) as raised:
                getattr(cyclescope, wrong)
            check(raised.value, wrong, name, cyclescope.__all__)
    with pytest.raises(AttributeError, match=r"^module 'cyclescope' has no attribute 'zzz'$"):
        cyclescope.zzz  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(cyclescope, "_repr_html_")


@pytest.fixture
def report(collector_paused: None) -> CycleReport:
    Node()
    return cyclescope.find_tensor_cycles(devices="cpu")


def test_a_misspelt_attribute(report: CycleReport) -> None:
    leak = report.leaks[0]
    objects = [report, leak, leak.cuts[0], leak.buffers[0], leak.cycle[0], cyclescope.heap()]
    for each in [*objects, cyclescope.why_alive(objects)]:
        names = [name for name in dir(each) if not name.startswith("_")]
        for name in names:
            for wrong in misspellings(name):
                if wrong in names:
                    continue
                with pytest.raises(AttributeError) as raised:
                    getattr(each, wrong)
                if "did you mean" in str(raised.value):
                    check(raised.value, wrong, name, names)
                else:
                    # The shortest names are left with few letters in common.
                    assert len(name) < 6, (name, wrong)
        # What tools ask for is answered as ever.
        assert not hasattr(each, "_ipython_display_")
        assert getattr(each, "nothing_at_all_like_it_xyz", 7) == 7
        with pytest.raises(AttributeError, match=r"has no attribute '_zz'$"):
            each._zz  # type: ignore[attr-defined]  # noqa: B018


def test_an_uncaught_error_suggests_once() -> None:
    done = python("-c", "import cyclescope\ncyclescope.warn_tensor_cycle()")
    last = done.stderr.splitlines()[-1]
    assert last.endswith("has no attribute 'warn_tensor_cycle'; did you mean 'warn_tensor_cycles'?")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: cyclescope.collect_on_pressure("0.9"),  # type: ignore[arg-type]
            "fraction must be more than 0 and at most 1, not '0.9'; did you mean 0.9?",
        ),
        (
            lambda: cyclescope.collect_on_pressure(90),
            "fraction must be more than 0 and at most 1, not 90; did you mean 0.9?",
        ),
        (
            lambda: cyclescope.collect_on_pressure(1.5),
            "fraction must be more than 0 and at most 1, not 1.5",
        ),
        (
            lambda: cyclescope.collect_on_pressure("high"),  # type: ignore[arg-type]
            "fraction must be more than 0 and at most 1, not 'high'",
        ),
        (
            lambda: cyclescope.collect_on_pressure(None),  # type: ignore[arg-type]
            "fraction must be more than 0 and at most 1, not None",
        ),
        (
            lambda: cyclescope.on_oom(seconds="5"),  # type: ignore[arg-type]
            "seconds must be a positive number, not '5'; did you mean 5?",
        ),
        (
            lambda: cyclescope.on_oom(seconds=0),
            "seconds must be a positive number, not 0",
        ),
        (
            lambda: cyclescope.watch_growth(max_share="1%"),  # type: ignore[arg-type]
            "max_share must be a positive number, not '1%'",
        ),
        (
            lambda: cyclescope.heap().top(count="10"),  # type: ignore[arg-type]
            "count must be a number of rows, 0 or more, not '10'",
        ),
        (
            lambda: cyclescope.heap().top(count=-1),
            "count must be a number of rows, 0 or more, not -1",
        ),
        (
            lambda: cyclescope.watch_growth(min_bytes="1 MiB"),  # type: ignore[arg-type]
            "min_bytes must be a number of bytes, 0 or more, not '1 MiB'",
        ),
        (
            lambda: cyclescope.find_tensor_cycles(ignore="torch"),
            "ignore must be a list of signatures, patterns or libraries, such as ['torch'], not "
            "'torch'; did you mean ['torch']?",
        ),
    ],
)
def test_a_wrong_argument(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(sentence)}(\n|$)"):
        call()


def test_numbers_of_other_libraries_are_numbers() -> None:
    for fraction in (numpy.float32(0.5), numpy.float64(0.5), 1):
        with cyclescope.collect_on_pressure(fraction) as relief:
            assert relief.fraction == fraction


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("CYCLESCOPE_DEVICE", "did you mean 'CYCLESCOPE_DEVICES'?"),
        ("CYCLESCOPE_REPORTDIR", "did you mean 'CYCLESCOPE_REPORT_DIR'?"),
        ("CYCLESCOPE_OF", "did you mean 'CYCLESCOPE_OFF'?"),
        ("CYCLESCOPE_COLOUR", "the settings are CYCLESCOPE_DEVICES, CYCLESCOPE_IGNORE"),
    ],
)
def test_a_misspelt_variable(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    sentence: str,
) -> None:
    _settings.forget()
    monkeypatch.setattr(_settings, "_said", set())
    monkeypatch.setenv(variable, "any")
    cyclescope.settings()
    cyclescope.settings()
    (message,) = caplog.messages
    assert message.startswith(f"the environment variable {variable} has no effect: {sentence}")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("closure-captures-ovner", "closure-captures-owner"),
        ("refers_to_itself", "refers-to-itself"),
        ("Frame-in-local", "frame-in-local"),
        ("torch-parametrised-class", "torch-parametrized-class"),
        ("nmupy", "numpy"),
        ("numpyy", "numpy"),
        ("structlogg", "structlog"),
        ("numpy", None),
        ("closure-captures-owner", None),
        ("0123456789abcdef", None),
        ("a-library-that-is-not-here", None),
        ("pytest-timeout", None),
        ("pytest_timeout", None),
    ],
)
def test_a_misspelt_name_to_ignore(
    caplog: pytest.LogCaptureFixture, name: str, meant: str | None
) -> None:
    _selection._looked_up.clear()
    for _ in range(2):
        cyclescope.find_tensor_cycles(devices="cpu", ignore=[name], frozen=False)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    if meant is None:
        assert said == []
    else:
        assert said == [
            f"ignore names {name!r}, but nothing has that name; did you mean {meant!r}?"
        ]


@pytest.mark.parametrize(
    "call",
    [
        lambda: cyclescope.warn_tensor_cycles(redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.find_tensor_cycles(redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.observe_tensor_cycles(print, redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.watch_growth(redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.on_oom(redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.heap(redact="no"),  # type: ignore[arg-type]
        lambda: cyclescope.why_alive([], redact="no"),  # type: ignore[arg-type]
    ],
)
def test_a_word_for_redact_is_not_taken_for_true(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"^redact must be True or False, not 'no'$"):
        call()
    assert not _native.redacts()


def test_other_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"^frozen must be True or False, not 'no'$"):
        cyclescope.find_tensor_cycles(frozen="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^report must be a CycleReport or None, not 3$"):
        cyclescope.to_sarif(3)  # type: ignore[arg-type]
    with (
        cyclescope.observe_tensor_cycles(lambda report: None, devices="cpu") as watch,
        pytest.raises(TypeError, match=r"^timeout must be a non-negative number .*, not None$"),
    ):
        watch.flush(None)  # type: ignore[arg-type]


# Help


def members(cls: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(cls).items():
        if not name.startswith("_") and (callable(member) or inspect.isdatadescriptor(member)):
            yield name, member


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_help_says_what_each_member_is(cls: type) -> None:
    assert inspect.getdoc(cls), cls
    for name, member in members(cls):
        doc = inspect.getdoc(member)
        assert doc, (cls, name)
        assert len(doc) > 10
        # Links of the Rust documentation mean nothing here.
        assert "[`" not in doc, (cls, name, doc)
        if callable(member):
            signature = inspect.signature(getattr(cls, name))
            assert "..." not in str(signature), (cls, name, signature)


@pytest.mark.parametrize("cls", NATIVE, ids=lambda cls: cls.__name__)
def test_help_and_the_stub_know_the_same_members(cls: type) -> None:
    stub = ast.parse(Path(cyclescope.__path__[0], "_native.pyi").read_text(encoding="utf-8"))
    (definition,) = [
        each for each in stub.body if isinstance(each, ast.ClassDef) and each.name == cls.__name__
    ]
    documented = {
        each.name: ast.get_docstring(each)
        for each in definition.body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
    }
    assert documented.keys() == {name for name, _ in members(cls)}
    assert ast.get_docstring(definition)
    assert [name for name, doc in documented.items() if not doc] == []


def test_functions_have_signatures() -> None:
    for each in PUBLIC:
        if inspect.isroutine(each):
            assert inspect.getdoc(each)
            assert "..." not in str(inspect.signature(each))
    assert str(inspect.signature(cyclescope.Rank)) == "(rank, local_rank, world_size)"
    for kind in (cyclescope.Settings, StepReport, Relief, Cost):
        doc = inspect.getdoc(kind) or ""
        assert [it.name for it in dataclasses.fields(kind) if f"\n    {it.name}: " not in doc] == []
    help_text = python("-c", "import cyclescope; help(cyclescope.Leak)", check=True).stdout
    assert "Hash that identifies this leak: stable across runs" in help_text
