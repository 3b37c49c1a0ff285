"""The native half of cyclescope: reports, and the functions that the package is made of."""

from collections.abc import Callable, Iterator
from typing import final

from typing_extensions import Self

__all__ = [
    "Buffer",
    "Cut",
    "CycleReport",
    "Diagnosis",
    "GradientWatch",
    "Heap",
    "HeapBuffer",
    "HeapDiff",
    "HeapRow",
    "HeapTable",
    "Known",
    "Leak",
    "Library",
    "MemoryInUse",
    "Retention",
    "RetentionPath",
    "RetentionStep",
    "Sample",
    "Step",
    "call_in_main_thread",
    "check_devices",
    "close_deliveries",
    "cuda_driver_present",
    "diagnose",
    "diagnose_state",
    "find",
    "flush",
    "framed",
    "growth_page",
    "heap",
    "is_backward_running",
    "last_look",
    "look",
    "memory_in_use",
    "merge",
    "next_delivery",
    "owners_of",
    "patterns",
    "post_mortem_page",
    "redact",
    "redacts",
    "sample",
    "select",
    "shown_name",
    "shown_place",
    "start_watch",
    "stop_watch",
    "tallies",
    "unreachable_memory",
    "unreachable_objects",
    "why_alive",
    "with_allocations",
    "with_occurrences",
]

@final
class Sample:
    """What is alive at a step, as plain data; a name is an address and a pointer."""

    @property
    def pieces(self) -> list[tuple[tuple[str, str, str], tuple[int, int], int]]:
        """``((device, dtype, kind), name, bytes)`` of each piece of memory."""

    @property
    def functions(self) -> list[int]:
        """Addresses of the autograd functions that Python sees."""

    @property
    def kept_on_modules(self) -> list[tuple[tuple[str, str], tuple[int, int], int, str]]:
        """``((class, attribute), (module, tensor), bytes, example)`` of tensors with graphs."""

    @property
    def roots(self) -> list[tuple[tuple[int, int], int, list[int]]]:
        """``(name, number, shape)`` of the tensors with graphs, if these were walked."""

    @property
    def older(self) -> int | None:
        """How many functions behind them are older than the last sample; None if not counted."""

    @property
    def crossed(self) -> list[int]:
        """The numbers of those that younger functions lead to directly."""

    @property
    def mark(self) -> int:
        """The number of the first function made after this sample."""

@final
class Diagnosis:
    """What a group of tensors is, and who keeps it."""

    @property
    def pattern(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def hook(self) -> str: ...
    @property
    def example(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def pointer(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def bytes_per_sample(self) -> int: ...
    @property
    def tensors(self) -> int: ...
    @property
    def site(self) -> str | None: ...

@final
class GradientWatch:
    """Watches some parameters for gradients that are added to and never cleared."""

    def __new__(cls) -> Self: ...
    def step(self) -> Diagnosis | None:
        """Look at the gradients at the end of a step; what they are, once, if never cleared."""

@final
class MemoryInUse:
    """What the memory of a device is for, each piece as ``(pointer, bytes)``."""

    @property
    def parameters(self) -> list[tuple[int, int]]: ...
    @property
    def gradients(self) -> list[tuple[int, int]]: ...
    @property
    def optimizer_state(self) -> list[tuple[int, int]]: ...
    @property
    def module_buffers(self) -> list[tuple[int, int]]: ...
    @property
    def saved(self) -> list[tuple[int, int]]:
        """What no Python object holds, but an autograd graph does."""

    @property
    def other(self) -> list[tuple[int, int]]: ...
    @property
    def graphs(self) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """``(owner, tensors, freed)`` of each collection of tensors with graphs."""

    @property
    def working(self) -> list[tuple[int, int]]:
        """What the running functions use."""

    @property
    def left_out(self) -> list[str]: ...

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

@final
class Heap:
    """What memory was alive at one moment, and who owned it. Holds none of it.

    ``str()`` of it is a summary and the table of the largest owners; a notebook shows the page.
    """

    @property
    def objects(self) -> int:
        """How many objects there were: those that the collector tracks, and what they refer to."""
    @property
    def references(self) -> int:
        """How many references there were between them."""
    @property
    def unreachable(self) -> int:
        """How many of them no module, running function or C code reached."""
    @property
    def time(self) -> float:
        """When it was looked at, in seconds since 1970."""
    @property
    def pause_ms(self) -> float:
        """How long the program waited, in milliseconds."""
    @property
    def phases(self) -> dict[str, float]:
        """The parts of that pause: ``graph``, ``ways``, ``dominators``, ``names``, ``release``."""
    @property
    def working_bytes(self) -> int:
        """About the most memory that the look took at once; all of it is given back."""
    @property
    def device_bytes(self) -> int:
        """Bytes of all buffers on devices, each storage once."""
    @property
    def host_bytes(self) -> int:
        """Bytes of all arrays and tensors in host memory, each storage once."""
    @property
    def buffers(self) -> list[HeapBuffer]:
        """The pieces of memory, those on devices first, then the largest."""
    @property
    def notes(self) -> list[str]:
        """What to know about it, such as limits that were hit."""
    def top(self, by: str = ..., count: int = ...) -> HeapTable:
        """Who holds most.

        Args:
            by: ``"owner"``: the first thing with a name on the best way from a root, such as a
                module's variable. ``"class"``: what would go if all objects of a class went.
                ``"module"``: the module or file of the owner. ``"site"``: the line that allocated
                the memory's holder, as far as :mod:`tracemalloc` was tracing. ``"category"``:
                parameter, gradient, optimizer state, activation, input, other.
            count: At most so many rows.

        Raises:
            ValueError: If ``by`` is none of these.
        """
    def diff(self, old: Heap) -> HeapDiff:
        """What changed since ``old``, by owner."""
    def to_html(self) -> str:
        """One page that needs no network: the owners as a treemap to zoom into, and tables.

        The treemap shows memory on devices, or that on the host if there is none on devices. A
        block is as wide as the memory that one comes to through it, each buffer once, on the way
        that :attr:`HeapBuffer.owner` has. At most 500 blocks are drawn, the others summed up.
        """
    def to_text(self) -> str:
        """What ``str()`` gives: a summary and the largest owners."""
    def to_json(self) -> str:
        """All of it as JSON (``schema`` 1)."""
    def _repr_html_(self) -> str: ...

@final
class HeapBuffer:
    """A piece of memory that was in use; views share one."""

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
    def pointer(self) -> int:
        """Address of the storage on the device."""
    @property
    def type_name(self) -> str:
        """Type of the object through which it was come to."""
    @property
    def holders(self) -> int:
        """How many objects share it."""
    @property
    def owner(self) -> str:
        """The best way to it from a root, in a line."""
    @property
    def kind(self) -> str:
        """The owner without indices and lengths: equal for the buffers of one growing list."""
    @property
    def module(self) -> str:
        """The module at that root, or the file of the running function."""
    @property
    def alone(self) -> bool:
        """True if the first thing with a name on that way alone keeps it."""
    @property
    def site(self) -> str | None:
        """``file:line`` that allocated it, if ``tracemalloc`` was tracing."""
    @property
    def category(self) -> str:
        """Parameter, gradient, optimizer state, activation, input, or other."""
    @property
    def also(self) -> list[str]:
        """Further ways to its holder, in a line each; known of the largest forty buffers only."""

@final
class HeapTable:
    """Who holds how much. ``str()`` of it is the table."""

    @property
    def by(self) -> str: ...
    @property
    def rows(self) -> list[HeapRow]: ...
    @property
    def omitted(self) -> int:
        """How many rows are left out."""
    def to_text(self) -> str: ...
    def to_json(self) -> str: ...

@final
class HeapRow:
    """One owner, class, module, line or category."""

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int:
        """How many buffers; of a class, how many of its objects keep any."""
    @property
    def device_bytes(self) -> int: ...
    @property
    def host_bytes(self) -> int: ...
    @property
    def retained_bytes(self) -> int:
        """Of these bytes, those that nothing else keeps."""
    @property
    def categories(self) -> dict[str, int]:
        """The bytes by what they are for."""

@final
class HeapDiff:
    """What changed between two heaps."""

    @property
    def bytes(self) -> int:
        """By how many bytes in all."""
    @property
    def objects(self) -> int:
        """By how many objects."""
    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """Owner, bytes and number of buffers of each change, the most bytes first."""
    def to_html(self) -> str:
        """One page that needs no network: each owner's memory before and after."""
    def to_text(self) -> str: ...
    def to_json(self) -> str: ...
    def _repr_html_(self) -> str: ...

@final
class Retention:
    """What keeps some objects alive. ``str()`` of it says so in words."""

    @property
    def paths(self) -> list[RetentionPath]:
        """Distinct ways from a root, the shortest and most telling first."""
    @property
    def loops(self) -> list[RetentionPath]:
        """Ways from an object through C++ back to itself, which no collection can free."""
    @property
    def paths_omitted(self) -> int:
        """How many further ways there are."""
    @property
    def notes(self) -> list[str]:
        """What to know about the answer."""
    @property
    def pause_ms(self) -> float:
        """How long the program waited for it, in milliseconds."""
    def to_html(self) -> str:
        """One page that needs no network: each path step by step."""
    def to_text(self) -> str:
        """What ``str()`` gives: the paths, no line of them longer than 100 characters."""
    def to_json(self) -> str:
        """The answer as JSON (``schema`` 1)."""
    def _repr_html_(self) -> str: ...

@final
class RetentionPath:
    """A way from a root to an object: a sequence of its steps."""

    @property
    def root(self) -> str:
        """``module``, ``local``, ``outside`` (C or C++), ``garbage`` or ``itself``."""
    @property
    def root_words(self) -> str:
        """The root as a person would name it."""
    @property
    def words(self) -> str:
        """The whole way in a line."""
    @property
    def alike(self) -> int:
        """How many ways are alike but for an index."""
    @property
    def steps(self) -> list[RetentionStep]:
        """The objects on the way, the one asked about last."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> RetentionStep: ...
    def __iter__(self) -> Iterator[RetentionStep]: ...

@final
class RetentionStep:
    """An object on a way."""

    @property
    def type_name(self) -> str: ...
    @property
    def label(self) -> str:
        """The object as a person would name it."""
    @property
    def location(self) -> str | None:
        """``file:line`` of its code or class."""
    @property
    def edge(self) -> str:
        """Its reference to the next object, as :attr:`Step.edge`; empty for the last."""

def call_in_main_thread(function: Callable[[], object]) -> None: ...
def check_devices(devices: list[str]) -> None: ...
def cuda_driver_present() -> bool: ...
def start_watch(
    devices: list[str], once_per_leak: bool, ignore: list[str] = ..., thorough: bool = ...
) -> int: ...
def stop_watch(watch: int) -> list[tuple[str, str, int, int, int, float, float]]: ...
def tallies(watch: int) -> list[tuple[str, str, int, int, int, float, float]]: ...
def next_delivery() -> tuple[int, CycleReport | None, str | None] | None: ...
def flush(seconds: float) -> bool: ...
def close_deliveries() -> None: ...
def patterns() -> list[tuple[str, str]]: ...
def find(devices: list[str], ignore: list[str] = ...) -> CycleReport: ...
def look(devices: list[str], ignore: list[str] = ..., oldest: int | None = ...) -> CycleReport: ...
def merge(reports: list[CycleReport]) -> CycleReport: ...
def select(report: CycleReport, signatures: list[str]) -> CycleReport: ...
def redact() -> None: ...
def redacts() -> bool: ...
def shown_name(name: str) -> str: ...
def shown_place(place: str) -> str: ...
def last_look() -> None: ...
def framed(page: str) -> str: ...
def growth_page(growth: str) -> str: ...
def post_mortem_page(found: str, heap: Heap | None, growth: str | None) -> str: ...
def unreachable_objects() -> list[object]: ...
def unreachable_memory(device: str) -> list[tuple[int, int]]: ...
def is_backward_running() -> bool: ...
def sample(devices: list[str], mark: int | None, gradients: GradientWatch) -> Sample: ...
def diagnose(groups: list[tuple[str, list[tuple[int, int]]]]) -> list[Diagnosis | None]: ...
def diagnose_state(roots: list[tuple[tuple[int, int], bool]], mark: int) -> Diagnosis | None: ...
def owners_of(attributes: list[tuple[int, int]]) -> list[str | None]: ...
def memory_in_use(device: str, seconds: float) -> MemoryInUse: ...
def with_allocations(
    report: CycleReport, stacks: dict[tuple[str, int], list[tuple[str, int, str]]]
) -> CycleReport: ...
def with_occurrences(report: CycleReport, watch: int) -> CycleReport: ...
def heap(*, redact: bool = False) -> Heap:
    """Look at all memory that is alive: who owns it, how much, and what for.

    No code of the program runs, and nothing is kept alive by the result. The program waits for as
    long as ``Heap.pause_ms`` says: about as long as ``gc.collect()`` takes.

    Args:
        redact: As for :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If a setting is wrong.
    """

def why_alive(*objects: object, redact: bool = False) -> Retention:
    """Say what keeps objects alive: tensors, arrays, containers, any that the collector knows.

    Args:
        objects: One or more.
        redact: As for :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If a setting is wrong.
        TypeError: If none is given, or one of them holds nothing, such as a number.
    """
