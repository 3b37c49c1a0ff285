"""The native half of cyclescope: reports, and the functions that the package is made of."""

from typing import final

__all__ = [
    "Buffer",
    "Cut",
    "CycleReport",
    "Known",
    "Leak",
    "Library",
    "Step",
    "after_fork",
    "before_fork",
    "check_devices",
    "close_deliveries",
    "cuda_driver_present",
    "find",
    "flush",
    "last_look",
    "look",
    "merge",
    "next_delivery",
    "patterns",
    "redact",
    "redacts",
    "select",
    "start_watch",
    "stop_watch",
    "tallies",
    "unreachable_objects",
    "with_allocations",
    "with_occurrences",
]

@final
class CycleReport:
    """What one collection, or one explicit check, found.

    ``str()`` of it is the leak trace, always without colour; a notebook shows the page.
    """

    @property
    def leaks(self) -> list[Leak]:
        """The distinct leaks, the one that held most bytes first."""
    @property
    def yours(self) -> list[Leak]:
        """The leaks that are, or may be, the program's own."""
    @property
    def library(self) -> list[Leak]:
        """The leaks of libraries: those with :attr:`Leak.library` or :attr:`Leak.known`."""
    @property
    def bytes_held(self) -> int:
        """Bytes of device memory that all leaks held together."""
    @property
    def notes(self) -> list[str]:
        """What to know about the report itself, such as limits that were hit."""
    @property
    def garbage_objects(self) -> int:
        """How many unreachable objects there were in all."""
    @property
    def time(self) -> float:
        """When the garbage had been looked at and destroyed, in seconds since 1970."""
    @property
    def pause_us(self) -> int:
        """How long the program waited for the reading and the analysis, in microseconds."""
    def to_html(self) -> str:
        """The report as one page that needs no network."""
    def to_dot(self) -> str:
        """The leaks as a Graphviz graph."""
    def to_json(self) -> str:
        """The report as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def to_svg(self) -> str:
        """The leaks as one drawing."""
    def to_markdown(self) -> str:
        """The leaks for an issue tracker.

        Equal leaks read equal: there are no times, addresses or indices in it. Names of the
        program stand in code only, where no tracker makes a link or a mention of them.
        """
    def to_text(self, color: bool | None = None) -> str:
        """The leak trace, no line of it longer than 100 characters.

        Args:
            color: True for the escape sequences of a terminal, False for plain text. None decides
                by where ``print`` goes: in colour if ``sys.stdout`` is the original one and a
                terminal, ``NO_COLOR`` is unset or empty, and ``TERM`` is set and not ``dumb``.
        """
    def _repr_html_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> CycleReport:
        """Read a report that :meth:`to_json` wrote.

        Raises:
            ValueError: If ``text`` is not a report, or of a newer version of cyclescope.
        """

@final
class Leak:
    """A group of reference cycles that kept device memory alive, with all its occurrences."""

    @property
    def signature(self) -> str:
        """Stable name of this bug: equal across runs, processes and machines."""
    @property
    def pattern(self) -> str | None:
        """Name of the recognised pattern, such as ``closure-captures-owner``."""
    @property
    def summary(self) -> str:
        """The cycle in one line."""
    @property
    def count(self) -> int:
        """How many separate groups of objects leaked in this way."""
    @property
    def objects(self) -> int:
        """How many objects the cycles consisted of, over all occurrences."""
    @property
    def bytes_held(self) -> int:
        """Bytes of the distinct buffers that it held, each storage counted once."""
    @property
    def bytes_freed(self) -> int | None:
        """Bytes that the framework's allocator got back from it; None where not measured."""
    @property
    def buffers(self) -> list[Buffer]:
        """The device buffers that it held, largest first; at most 100."""
    @property
    def buffers_omitted(self) -> int:
        """How many further buffers are not in ``buffers``; ``bytes_held`` counts them."""
    @property
    def cycle(self) -> list[Step]:
        """The cycle that a person would read first; the last step refers to the first."""
    @property
    def cycle_omitted(self) -> int:
        """How many steps of a long cycle are left out of the middle of ``cycle``."""
    @property
    def cuts(self) -> list[Cut]:
        """The references to remove, best first."""
    @property
    def advice(self) -> str:
        """What to change, in words."""
    @property
    def before(self) -> str | None:
        """The code as it is, if the pattern is known."""
    @property
    def after(self) -> str | None:
        """The code as it should be, if the pattern is known."""
    @property
    def library(self) -> Library | None:
        """The library whose own code the whole cycle is; None if some of it is the program's."""
    @property
    def known(self) -> Known | None:
        """The publicly known leak of a library that this one is."""
    def to_svg(self) -> str:
        """The leak as a drawing."""
    def to_markdown(self) -> str:
        """The leak for an issue tracker, as :meth:`CycleReport.to_markdown`."""

@final
class Library:
    """The library that a leak belongs to."""

    @property
    def name(self) -> str:
        """The distribution, or else the top-level package; ``the standard library``."""
    @property
    def version(self) -> str | None:
        """Version, as the installed metadata has it; None if it has none."""
    @property
    def your_line(self) -> str | None:
        """``file:line`` of the program's own code that is nearest to the cycle."""

@final
class Known:
    """A leak of a library that others have met before."""

    @property
    def name(self) -> str: ...
    @property
    def library(self) -> str:
        """The distribution that leaks."""
    @property
    def versions(self) -> list[str]:
        """Versions that were run and leaked; others may leak too."""
    @property
    def fixed_in(self) -> str | None:
        """The first version that was run and did not leak."""
    @property
    def link(self) -> str | None:
        """Where it is discussed."""
    @property
    def remedy(self) -> str:
        """What a program can do about it."""

@final
class Step:
    """One object of a cycle and its reference to the next."""

    @property
    def type_name(self) -> str: ...
    @property
    def label(self) -> str:
        """The object as a person would name it."""
    @property
    def location(self) -> str | None:
        """``file:line`` of the object's code or class."""
    @property
    def edge(self) -> str:
        """The reference to the next step: ``._callback``, ``['loss']``, ``local 'batch'``."""
    @property
    def allocated_at(self) -> str | None:
        """``file:line`` that allocated the object, if ``tracemalloc`` was tracing."""

@final
class Buffer:
    """A piece of device memory that a leak held."""

    @property
    def type_name(self) -> str:
        """Type of the object that holds it."""
    @property
    def pointer(self) -> int:
        """Address of the storage on the device."""
    @property
    def bytes(self) -> int:
        """Size of the whole storage."""
    @property
    def device(self) -> str:
        """The device, such as ``cuda:0``."""
    @property
    def dtype(self) -> str | None: ...
    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def confirmed(self) -> bool:
        """True if the CUDA driver said that ``pointer`` is device memory."""
    @property
    def from_step(self) -> int:
        """Position in the cycle of the step at which ``path`` starts."""
    @property
    def path(self) -> list[str]:
        """The references from the cycle to the buffer; empty if its holder is in the cycle."""
    @property
    def allocated_at(self) -> str | None:
        """``file:line`` that allocated its holder, if ``tracemalloc`` was tracing."""
    @property
    def allocation(self) -> list[str]:
        """The stack that allocated the memory, each frame as ``file:line function``.

        From the innermost frame of the program's own outwards. Empty unless the watch was started
        with ``record_history=True``.
        """
    @property
    def has_grad_fn(self) -> bool:
        """True if a tensor on this memory had an autograd graph behind it."""

@final
class Cut:
    """A reference to remove."""

    @property
    def owner(self) -> str:
        """The object that has the reference."""
    @property
    def edge(self) -> str:
        """The reference, as :attr:`Step.edge`."""
    @property
    def location(self) -> str | None:
        """``file:line`` to look at."""
    @property
    def proven(self) -> bool:
        """True if the graph shows that the buffers go once all cuts of the leak are made."""

def check_devices(devices: list[str]) -> None: ...
def cuda_driver_present() -> bool: ...
def start_watch(
    devices: list[str], once_per_leak: bool, ignore: list[str] = ..., thorough: bool = ...
) -> int: ...
def stop_watch(watch: int) -> list[tuple[str, str, int, int, int, float, float]]: ...
def tallies(watch: int) -> list[tuple[str, str, int, int, int, float, float]]: ...
def next_delivery() -> tuple[int, CycleReport | None, str | None] | None: ...
def before_fork() -> None: ...
def after_fork() -> None: ...
def flush(seconds: float) -> bool: ...
def close_deliveries() -> None: ...
def patterns() -> list[tuple[str, str]]: ...
def find(devices: list[str], ignore: list[str] = ...) -> CycleReport: ...
def look(devices: list[str], ignore: list[str] = ..., oldest: int | None = ...) -> CycleReport: ...
def merge(reports: list[CycleReport]) -> CycleReport: ...
def select(report: CycleReport, signatures: list[str]) -> CycleReport: ...
def redact() -> None: ...
def redacts() -> bool: ...
def last_look() -> None: ...
def unreachable_objects() -> list[object]: ...
def with_allocations(
    report: CycleReport, stacks: dict[tuple[str, int], list[tuple[str, int, str]]]
) -> CycleReport: ...
def with_occurrences(report: CycleReport, watch: int) -> CycleReport: ...
