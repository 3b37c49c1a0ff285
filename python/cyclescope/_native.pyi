"""The native extension of cyclescope: reports, and the functions that the package builds on."""

from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any, TypeAlias, final

from typing_extensions import Self

__all__ = [
    "Buffer",
    "Cut",
    "CycleReport",
    "DeviceMemory",
    "Examination",
    "Finding",
    "Growth",
    "GrowthReport",
    "GrowthWatch",
    "Heap",
    "HeapBuffer",
    "HeapDiff",
    "HeapRow",
    "HeapTable",
    "Keeper",
    "Known",
    "Leak",
    "LeakTally",
    "Library",
    "LineEdit",
    "MemoryHolder",
    "MemoryRow",
    "Numbers",
    "Patch",
    "PostMortem",
    "Process",
    "Rank",
    "Retention",
    "RetentionPath",
    "Shared",
    "SourceLines",
    "Step",
    "__version__",
    "add_device_kind",
    "arm_signal",
    "attached_cycles",
    "attached_heap",
    "attached_why",
    "begin_epoch",
    "call_in_main_thread",
    "change_watch",
    "check_devices",
    "close",
    "cuda_driver_present",
    "current_rank",
    "device_kinds",
    "device_memory",
    "disarm_signal",
    "drop_deliveries",
    "empty_report",
    "end_by_interrupt",
    "epochs",
    "explanations",
    "find",
    "find_new",
    "fix",
    "flush",
    "forget_epochs",
    "framed",
    "heap",
    "human_bytes",
    "ignore",
    "ignored",
    "is_backward_running",
    "is_distributed",
    "is_full_pipe",
    "known_leaks",
    "look",
    "memory_in_use",
    "merge",
    "merge_processes",
    "next_delivery",
    "next_signal",
    "patterns",
    "redact",
    "redacts",
    "register_framework",
    "relieve_teller",
    "report_of_run",
    "select",
    "shown_name",
    "shown_place",
    "start_watch",
    "stop_watch",
    "tallies",
    "total_bytes",
    "uninspected_collections",
    "unreachable_objects",
    "unseen_collections",
    "why_alive",
    "with_allocations",
    "with_counts",
    "with_occurrences",
    "without_details",
]

__version__: str

_LineOf: TypeAlias = Callable[[str, int], str | None]
"""Which line allocated the memory of a device at an address."""

@final
class Growth:
    """A growing group of tensors or other objects."""

    @property
    def pattern(self) -> str:
        """``kept-with-graph``, ``evaluation-with-graph``, ``graph-retained``,
        ``state-not-detached``, ``uncollectable-cycles``, ``garbage-accumulates``,
        ``gradients-never-cleared``,
        ``activations-kept-by-hook``, ``activation-on-module``, ``grad-fn-kept``,
        ``model-copies``, ``tensor-grows``, ``exceptions-kept``, ``container-grows``,
        ``objects-accumulate``, ``cache-without-limit``, ``threads-grow`` or ``files-grow``."""
    @property
    def owner(self) -> str:
        """Where the program keeps the group, as :func:`cyclescope.why_alive` says it:
        ``module `train` → `history```, ``local `hidden` in `fit`, train.py:12, thread MainThread``.
        """
    @property
    def summary(self) -> str:
        """What happens, in one line."""
    @property
    def advice(self) -> str:
        """What to change."""
    @property
    def step(self) -> int:
        """The step at which the growth was detected."""
    @property
    def tensors(self) -> int:
        """Number of tensors of one device and dtype, all with or all without a graph, that were
        added while the group was watched."""
    @property
    def objects(self) -> int:
        """Number of objects other than tensors, or of threads or files, that were added while the
        group was watched."""
    @property
    def bytes(self) -> int:
        """Bytes that only the group keeps: storages, and what their autograd graphs keep; of
        objects, the Python objects that only they keep."""
    @property
    def bytes_per_step(self) -> float:
        """Growth per step; for ``state-not-detached``, what the graph of one step keeps."""
    @property
    def example(self) -> str:
        """One of the tensors: ``float32[64, 128] on cuda:0``; of objects, their type."""
    @property
    def allocated_at(self) -> str | None:
        """``file:line`` that allocated it, if ``tracemalloc`` or PyTorch's history recorded it."""
    @property
    def samples(self) -> int:
        """Number of samples on which the finding is based."""
    @property
    def added_at(self) -> list[SourceLines]:
        """The program's lines that add to the owner, or the few of which one does; empty if they
        are not known."""
    @property
    def limited_at(self) -> list[SourceLines]:
        """The program's lines that may limit or empty what grows. With them it is reported only
        if it grows for ten times as long as otherwise, or beyond the limit."""
    def to_text(self) -> str:
        """What grows, what to change, how much it is, and the command that says more, in a few
        lines."""
    def as_dict(self) -> dict[str, Any]:
        """The fields as a dictionary, for JSON."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class GrowthReport:
    """The growing groups, and their size at each sample."""

    @property
    def found(self) -> list[Growth]:
        """The groups, as they were when first reported."""
    @property
    def headline(self) -> str:
        """How much memory has grown, and what explains it, in one line."""
    @staticmethod
    def from_json(text: str) -> GrowthReport: ...
    def to_json(self) -> str: ...
    def to_text(self) -> str: ...
    def to_html(self) -> str: ...

@final
class GrowthWatch:
    """Follows the live tensors of some devices."""

    def __new__(cls, devices: list[str], min_bytes: float) -> Self: ...
    @property
    def found(self) -> list[Growth]: ...
    def step(self, step: int, every: int, line_of: _LineOf) -> list[Growth]:
        """Look at the gradients at the end of a step; returns what is new."""
    def sample(
        self, step: int, every: int, in_use: tuple[int, int], line_of: _LineOf
    ) -> tuple[list[Growth], list[tuple[Growth, bool]]]:
        """Take a sample; returns what is new, and what has been released since it was reported or,
        with a flag, has stopped growing. ``in_use`` is what PyTorch has in use on GPUs, and
        its pinned memory."""
    def end(self) -> None:
        """Count once more what the reported owners keep."""
    def report(
        self,
        *,
        time: float,
        steps: int,
        every: int,
        samples: int,
        seconds: float,
        share: float,
        next_sample: int,
        notes: list[str],
    ) -> GrowthReport: ...

@final
class Finding:
    """One holder of memory."""

    @property
    def what(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def would_fit(self) -> bool | None:
        """True if the allocator's map of blocks shows that the request would fit without it."""
    @property
    def details(self) -> list[str]: ...

@final
class Numbers:
    """The state of a device's memory when a request failed, in bytes."""

    @property
    def device(self) -> int:
        """The number of the device."""
    @property
    def requested(self) -> int:
        """Bytes requested, as the allocator rounded them up."""
    @property
    def limit(self) -> int:
        """Bytes that this process may take: the whole device, or the fraction that was set."""
    @property
    def free(self) -> int:
        """Bytes that the driver says are free, for any process."""
    @property
    def reserved(self) -> int:
        """Bytes that the allocator has from CUDA."""
    @property
    def allocated(self) -> int:
        """Bytes of the allocator's blocks in use."""
    @property
    def elsewhere(self) -> int | None:
        """Bytes neither free nor the allocator's: other processes, CUDA itself, libraries."""
    @property
    def largest_free_block(self) -> int:
        """Bytes of the largest block that is reserved and not in use."""
    @property
    def free_in_blocks(self) -> int:
        """Bytes of unused blocks that a request of this size could take if they were contiguous."""
    @property
    def private(self) -> int:
        """Bytes of the segments that only a CUDA graph may use."""
    @property
    def headroom(self) -> int:
        """Bytes that the allocator could still take from CUDA."""

@final
class DeviceMemory:
    """The memory of a GPU, divided by use. ``str()`` returns it as text."""

    @property
    def device(self) -> str:
        """The device, such as ``cuda:0``."""
    @property
    def time(self) -> float:
        """Time of the result, in seconds since 1970."""
    @property
    def process(self) -> Process:
        """The process that was inspected."""
    @property
    def total(self) -> int:
        """The GPU's memory in bytes."""
    @property
    def free(self) -> int:
        """Bytes of the GPU that the driver says are free."""
    @property
    def in_use(self) -> int:
        """The bytes that are not free: the sum of all rows."""
    @property
    def rows(self) -> list[MemoryRow]:
        """The uses, largest first."""
    @property
    def host(self) -> list[MemoryRow]:
        """PyTorch's pinned host memory, which is not part of the device's. Sizes are those of the
        allocator's blocks, powers of two."""
    @property
    def notes(self) -> list[str]:
        """Remarks about the result, such as what could not be inspected."""
    @staticmethod
    def from_json(text: str) -> DeviceMemory:
        """Read rows that :meth:`to_json` wrote.

        Raises:
            ValueError: If ``text`` was not written by :meth:`to_json`.
        """
    def to_json(self) -> str:
        """The rows as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def to_text(self) -> str:
        """A sentence, then each use with what holds most of it and what gives it back."""
    def to_html(self) -> str:
        """A self-contained HTML page of the rows."""
    def _repr_html_(self) -> str: ...

@final
class MemoryRow:
    """One use of a GPU's memory."""

    @property
    def name(self) -> str:
        """What the memory is used for, such as ``parameters`` or ``cached by PyTorch``."""
    @property
    def bytes(self) -> int:
        """Bytes in this use, each block of the allocator as a whole."""
    @property
    def freed_by(self) -> str:
        """What gives the memory back."""
    @property
    def holders(self) -> list[MemoryHolder]:
        """The owners or leaks that hold most of it."""

@final
class MemoryHolder:
    """What holds some of the memory of one use."""

    @property
    def name(self) -> str:
        """The owner as the live heap names it, or the leak's signature and cycle."""
    @property
    def bytes(self) -> int:
        """Bytes of this use that it holds."""

@final
class PostMortem:
    """The state of memory when a request failed. ``str()`` returns it as text."""

    @property
    def verdict(self) -> str:
        """``cycles``, ``kept-graphs``, ``fragmentation``, ``growth``, ``elsewhere``,
        ``batch-too-big``, or ``unclear``."""
    @property
    def headline(self) -> str:
        """Why memory ran out, as far as it is proven, in one line."""
    @property
    def advice(self) -> str:
        """What to change."""
    @property
    def time(self) -> float:
        """Time of the error, in seconds since 1970."""
    @property
    def process(self) -> Process:
        """The process that ran out of memory."""
    @property
    def device(self) -> str:
        """The device, such as ``cuda:0``."""
    @property
    def numbers(self) -> Numbers | None:
        """The state of the device's memory; None if it could not be read."""
    @property
    def requested_at(self) -> list[str]:
        """The Python stack of the request, innermost first."""
    @property
    def cycles(self) -> Finding | None: ...
    @property
    def trace(self) -> str:
        """The leak trace of the cycles."""
    @property
    def graphs(self) -> list[Finding]:
        """Containers that keep tensors with their graphs."""
    @property
    def roles(self) -> dict[str, int]:
        """Bytes by category; ``not visible`` is memory that only C++ holds."""
    @property
    def owners(self) -> list[Finding]: ...
    @property
    def growth(self) -> list[Growth]: ...
    @property
    def left_out(self) -> list[str]:
        """The parts that were not examined, with the reason."""
    @property
    def seconds(self) -> float: ...
    @staticmethod
    def from_json(text: str) -> PostMortem: ...
    def to_json(self) -> str:
        """The post-mortem as JSON (``schema`` 1)."""
    def to_text(self) -> str:
        """The post-mortem as text. The first line is the verdict."""
    def to_html(
        self,
        heap: Heap | None = None,
        growth: GrowthReport | None = None,
        cycles: CycleReport | None = None,
    ) -> str:
        """A self-contained HTML page: the numbers, the largest leak, a treemap of the owners,
        growing tensors."""
    def _repr_html_(self) -> str: ...

@final
class Examination:
    """A post-mortem, put together part by part."""

    def __new__(cls, device: str, time: float) -> Self: ...
    @property
    def found(self) -> PostMortem: ...
    def page(self) -> str: ...
    def leave_out(self, part: str) -> None: ...
    def judge(self, seconds: float) -> None: ...
    def stack(self, lines: list[str]) -> None: ...
    def segments(self, segments: list[dict[str, Any]], stream: int | None) -> None: ...
    def numbers(
        self,
        device: int,
        request: tuple[int, int, int],
        *,
        reserved: int,
        allocated: int,
        total: int | None,
    ) -> None: ...
    def cycles(self) -> None: ...
    def growth(self, report: GrowthReport) -> None: ...
    def live(self, seconds: float) -> None: ...
    def owners(self) -> None: ...

@final
class CycleReport:
    """The leaks found by one collection or one explicit check.

    ``str()`` returns the leak trace without colour. Notebooks show the HTML page.
    """

    @property
    def leaks(self) -> list[Leak]:
        """The distinct leaks, sorted by bytes held, largest first."""
    @property
    def yours(self) -> list[Leak]:
        """The leaks that are, or may be, in the program's own code."""
    @property
    def library(self) -> list[Leak]:
        """The leaks in libraries: those with :attr:`Leak.library` or :attr:`Leak.known`."""
    @property
    def bytes_held(self) -> int:
        """Total bytes of device memory that the leaks held."""
    @property
    def notes(self) -> list[str]:
        """Remarks about the report, such as limits that were reached."""
    @property
    def garbage_objects(self) -> int:
        """Total number of unreachable objects."""
    @property
    def time(self) -> float:
        """Time when the collection ended, in seconds since 1970."""
    @property
    def importing(self) -> str | None:
        """The library module that was being imported meanwhile, if any."""
    @property
    def pause_us(self) -> int:
        """How long the inspection and analysis paused the program, in microseconds."""
    def against(self, earlier: CycleReport) -> CycleReport:
        """The report with what has changed since an earlier one: its page, text and Markdown say
        which leaks are new, have grown, or are gone; see :meth:`known_again`."""
    def known_again(self, earlier: CycleReport) -> dict[str, str]:
        """The signature of each leak that an earlier report has too, with its signature there.

        The two differ if code above the leak's functions was added or removed.
        """
    def to_html(self) -> str:
        """The report as a self-contained HTML page."""
    def to_dot(self) -> str:
        """The leaks as a Graphviz graph."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def to_json(self) -> str:
        """The report as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def table_of_processes(self) -> str:
        """The MiB that each leak held in each process of a job, as text."""
    def to_svg(self) -> str:
        """The leaks as one SVG drawing."""
    def to_markdown(self) -> str:
        """The leaks as Markdown for an issue tracker.

        The text contains no times, addresses or indices, so equal leaks give equal text. Names of
        the program appear only as code, so that trackers do not turn them into links or mentions.
        """
    def to_text(self, color: bool | None = None) -> str:
        """The leak trace, with lines of at most 100 characters.

        Args:
            color: True for terminal colours, False for plain text. With None, ``NO_COLOR`` and
                ``FORCE_COLOR`` decide, or else colours are used if ``sys.stdout`` is the original
                stream and a terminal, and ``TERM`` is set and not ``dumb``.
        """
    def _repr_html_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> CycleReport:
        """Read a report written by :meth:`to_json`.

        Raises:
            ValueError: If ``text`` is not a report, or comes from a newer version of cyclescope.
        """

@final
class Leak:
    """A reference cycle that kept device memory alive, with all its occurrences."""

    @property
    def signature(self) -> str:
        """Hash that identifies this leak: stable across runs, processes and machines."""
    @property
    def outline(self) -> str | None:
        """The signature without the line numbers of the program's functions; None if it has none.

        :meth:`CycleReport.against` and ``cyclescope diff`` recognize a leak by it when code above
        its functions was added or removed.
        """
    @property
    def pattern(self) -> str | None:
        """Name of the recognised pattern, such as ``closure-captures-owner``; None if unknown."""
    @property
    def summary(self) -> str:
        """The cycle in one line."""
    @property
    def count(self) -> int:
        """Number of occurrences."""
    @property
    def frozen(self) -> int:
        """Number of occurrences that no collection frees, because objects that ``gc.freeze()``
        excluded keep them alive."""
    @property
    def objects(self) -> int:
        """Number of objects in the cycles, over all occurrences."""
    @property
    def bytes_held(self) -> int:
        """Bytes of the buffers that the leak held, each storage counted once."""
    @property
    def shared(self) -> list[Shared]:
        """Bytes that other leaks hold too. They count once in :attr:`CycleReport.bytes_held`."""
    @property
    def also_held_by(self) -> list[str]:
        """Signatures of the other leaks in :attr:`shared`."""
    @property
    def bytes_freed(self) -> int | None:
        """Bytes that the framework's allocator got back; None if not measured."""
    @property
    def buffers(self) -> list[Buffer]:
        """The device buffers that the leak held, largest first; at most 100."""
    @property
    def buffers_omitted(self) -> int:
        """Number of buffers left out of ``buffers``; ``bytes_held`` includes them."""
    @property
    def cycle(self) -> list[Step]:
        """The most telling cycle; its last step refers to the first."""
    @property
    def cycle_omitted(self) -> int:
        """Number of steps left out of the middle of ``cycle``, if it is long."""
    @property
    def cuts(self) -> list[Cut]:
        """The references to remove, best first; see :attr:`also_held_by`."""
    @property
    def command(self) -> str | None:
        """The command that prints the patch or, where there is none, explains the pattern."""
    @property
    def advice(self) -> str:
        """What to change, as text."""
    @property
    def before(self) -> str | None:
        """Example of the code before the fix, if the pattern is known; :attr:`source` is yours."""
    @property
    def after(self) -> str | None:
        """Example of the code after the fix, if the pattern is known."""
    @property
    def library(self) -> Library | None:
        """The library whose code made the whole cycle; None if some of it may be the program's."""
    @property
    def source(self) -> SourceLines | None:
        """The program's own lines that make the reference to remove; None if they could not be read
        or do not match the objects."""
    @property
    def candidate_sources(self) -> list[SourceLines]:
        """The lines of each statement that may have made the reference, where several may have; see
        :attr:`Cut.candidates`."""
    @property
    def patch(self) -> Patch | None:
        """The change that removes the reference, if nothing is found that could notice it."""
    @property
    def known(self) -> Known | None:
        """The known library leak that this leak matches; None if there is none."""
    def to_text(self) -> str:
        """What is held, what to change and the command that says more, in a few lines."""
    def to_svg(self) -> str:
        """The leak as an SVG drawing."""
    def to_markdown(self) -> str:
        """The leak as Markdown; see :meth:`CycleReport.to_markdown`."""

@final
class Shared:
    """Bytes that a leak holds together with certain others."""

    @property
    def others(self) -> list[str]:
        """The signatures of the others."""
    @property
    def bytes(self) -> int:
        """Bytes that the leak and all of them hold."""

@final
class LeakTally:
    """What a watch has seen of one leak so far."""

    @property
    def signature(self) -> str:
        """The signature of the leak; see :attr:`Leak.signature`."""
    @property
    def summary(self) -> str:
        """The cycle in one line."""
    @property
    def count(self) -> int:
        """Number of occurrences."""
    @property
    def objects(self) -> int:
        """Number of objects in the cycles, over all occurrences."""
    @property
    def bytes(self) -> int:
        """Bytes of all occurrences together."""
    @property
    def shared(self) -> list[Shared]:
        """The part of ``bytes`` that other leaks held too."""
    @property
    def largest(self) -> int:
        """The largest number of bytes that the leak held in one collection."""
    @property
    def first_seen(self) -> float:
        """When it was seen first, in seconds since 1970."""
    @property
    def last_seen(self) -> float:
        """When it was seen last, in seconds since 1970."""
    @property
    def reported(self) -> bool:
        """True once it has held the ``min_bytes`` of the watch, which then reports it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Process:
    """The process that a report is about."""

    @property
    def host(self) -> str:
        """Name of the host."""
    @property
    def pid(self) -> int:
        """Process ID."""
    @property
    def rank(self) -> int | None:
        """Rank in a distributed job; None outside of one."""
    @property
    def world_size(self) -> int | None:
        """Number of processes in the job, if that is known."""
    @property
    def python(self) -> str:
        """Version of the interpreter, such as ``3.12.1``."""
    @property
    def program(self) -> str:
        """The program: ``sys.argv[0]``."""
    @property
    def frameworks(self) -> list[tuple[str, str]]:
        """Name and version of each known framework that the process has imported."""
    @property
    def gpus(self) -> list[str]:
        """Names of the GPUs that the process uses, by CUDA ordinal; empty if it uses none."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Rank:
    """This process's place in a distributed job."""

    def __new__(cls, rank: int, local_rank: int | None, world_size: int | None) -> Rank: ...
    @property
    def rank(self) -> int:
        """Its number in the job, from 0."""
    @property
    def local_rank(self) -> int | None:
        """Its number on its machine, if that is known."""
    @property
    def world_size(self) -> int | None:
        """How many processes there are, if that is known."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[int, int | None, int | None]: ...

@final
class Library:
    """The library that a leak belongs to."""

    @property
    def name(self) -> str:
        """The distribution, else the top-level package, or ``the standard library``."""
    @property
    def version(self) -> str | None:
        """The installed version; None if unknown."""
    @property
    def your_line(self) -> str | None:
        """``file:line`` of the program's code nearest to the cycle."""

@final
class Known:
    """A known leak in a library."""

    @property
    def name(self) -> str:
        """Name of the known leak."""
    @property
    def library(self) -> str:
        """The distribution that leaks."""
    @property
    def versions(self) -> list[str]:
        """Versions that were tested and leak; others may leak too."""
    @property
    def fixed_in(self) -> str | None:
        """The first tested version without the leak; None if there is none."""
    @property
    def link(self) -> str | None:
        """URL of the discussion of the leak."""
    @property
    def remedy(self) -> str:
        """What a program can do about it."""

@final
class SourceLines:
    """Lines of a source file, with one expression marked."""

    @property
    def file(self) -> str:
        """Path of the file."""
    @property
    def line(self) -> int:
        """Number of the first line."""
    @property
    def lines(self) -> list[str]:
        """The lines, without line ends."""
    @property
    def marked(self) -> int:
        """Number of the line with the expression."""
    @property
    def start(self) -> int:
        """The first character of the expression in that line, from 0."""
    @property
    def end(self) -> int:
        """The first character after the expression, from 0."""

@final
class Patch:
    """A change of a source file, as ``cyclescope fix FILE:LINE --diff`` prints it."""

    @property
    def file(self) -> str:
        """Path of the file."""
    @property
    def line(self) -> int:
        """The line of the reference."""
    @property
    def summary(self) -> str:
        """What the change does, in a sentence."""
    @property
    def edits(self) -> list[LineEdit]:
        """The lines to replace, numbered as before the change."""
    @property
    def diff(self) -> str:
        """The change as a unified diff, without file names."""

@final
class LineEdit:
    """Lines of a file that take the place of others."""

    @property
    def line(self) -> int:
        """The first line to remove, or the line before which others are inserted."""
    @property
    def removed(self) -> int:
        """Number of lines to remove."""
    @property
    def inserted(self) -> str:
        """The new lines, with line ends."""

@final
class Step:
    """One object of a cycle, or of a :class:`RetentionPath`, and its reference to the next."""

    @property
    def node(self) -> int | None:
        """Index of the object among ``graph.nodes`` of the JSON; None in a path."""
    @property
    def type_name(self) -> str:
        """Type of the object, with its module unless that is ``builtins``."""
    @property
    def label(self) -> str:
        """Readable name of the object."""
    @property
    def location(self) -> str | None:
        """``file:line`` of the object's code or class."""
    @property
    def edge(self) -> str:
        """The reference to the next step: ``._callback``, ``['loss']``, ``local 'batch'``.

        Empty for the last step of a path.
        """
    @property
    def allocated_at(self) -> str | None:
        """``file:line`` where the object was allocated, if ``tracemalloc`` was tracing."""

@final
class Buffer:
    """A buffer of device memory that a leak held."""

    @property
    def node(self) -> int | None:
        """Index of the holder among ``graph.nodes`` of the JSON; None if it is not drawn."""
    @property
    def type_name(self) -> str:
        """Type of the object that holds the buffer."""
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
    def dtype(self) -> str | None:
        """Element type, such as ``float32``; None for raw storage."""
    @property
    def shape(self) -> tuple[int, ...] | None:
        """Extent of each dimension; None for raw storage."""
    @property
    def confirmed(self) -> bool:
        """True if the CUDA driver confirmed that ``pointer`` is device memory."""
    @property
    def from_step(self) -> int:
        """Index of the step in ``cycle`` where ``path`` starts."""
    @property
    def path(self) -> list[str]:
        """The references from the cycle to the buffer; empty if its holder is in the cycle."""
    @property
    def path_nodes(self) -> list[int]:
        """The objects on ``path``, as in ``node``; the buffer's holder is last."""
    @property
    def allocated_at(self) -> str | None:
        """``file:line`` where the buffer's holder was allocated, if ``tracemalloc`` was tracing."""
    @property
    def allocation(self) -> list[str]:
        """The stack that allocated the memory, each frame as ``file:line function``.

        The innermost frame of the program's own code comes first. Empty unless the watch was
        started with ``record_history=True``.
        """
    @property
    def has_grad_fn(self) -> bool:
        """True if a tensor on this memory had an autograd graph (``grad_fn``)."""
    @property
    def holders(self) -> int:
        """How many tensors, arrays and other objects of the leak hold this storage."""
    @property
    def kept_by(self) -> str | None:
        """``"gradient"`` if only C++ refers to the holder, as the gradient of a tensor of the leak.

        ``"C++"`` if both the leak and C++ code, such as an autograd graph, refer to it. Such memory
        is listed if it was freed with the leak. None for all other memory.
        """
    @property
    def lent(self) -> bool:
        """True for a tensor whose memory existed before the tensor.

        ``torch.from_numpy``, ``torch.from_dlpack`` and ``torch.load`` make such tensors. Another
        object may own the memory, and keep it when the tensor is gone.
        """

@final
class Cut:
    """A reference to remove."""

    @property
    def owner(self) -> str:
        """The object that holds the reference."""
    @property
    def edge(self) -> str:
        """The reference; see :attr:`Step.edge`."""
    @property
    def location(self) -> str | None:
        """The nearest known ``file:line``: of the function or class at either end, or where the
        function of a frame had stopped. :attr:`Leak.source` has the line of the reference."""
    @property
    def in_class(self) -> str | None:
        """The class whose code stores the reference, if no line is known and it is not the
        class of the object."""
    @property
    def candidates(self) -> list[str]:
        """``file:line`` of each statement that may have made the reference, if several may."""
    @property
    def proven(self) -> bool:
        """True if the graph proves that making all cuts of the leak frees the buffers."""
    @property
    def source(self) -> int:
        """Index of the object that has the reference among ``graph.nodes`` of the JSON."""
    @property
    def target(self) -> int:
        """Index of the object that the reference leads to."""

@final
class Heap:
    """A snapshot of live memory and its owners. It keeps no object of the program alive.

    ``str()`` returns a summary and a table of the largest owners. Notebooks show the HTML page.
    """

    @property
    def objects(self) -> int:
        """Number of objects: those that the collector tracks, and their referents."""
    @property
    def references(self) -> int:
        """Number of references between them."""
    @property
    def unreachable(self) -> int:
        """Number of objects unreachable from GC roots (modules, running functions, C code)."""
    @property
    def time(self) -> float:
        """Time of the snapshot, in seconds since 1970."""
    @property
    def pause_ms(self) -> float:
        """How long the snapshot paused the program, in milliseconds."""
    @property
    def phases(self) -> dict[str, float]:
        """Milliseconds per phase: ``graph``, ``ways``, ``dominators``, ``names``, ``release``."""
    @property
    def working_bytes(self) -> int:
        """Approximate peak memory that the snapshot needed; all of it has been released."""
    @property
    def device_bytes(self) -> int:
        """Bytes of all buffers on devices, each storage counted once."""
    @property
    def host_bytes(self) -> int:
        """Bytes of all arrays and tensors in host memory, each storage counted once."""
    @property
    def buffers(self) -> list[HeapBuffer]:
        """The buffers: device memory first, then by size, largest first."""
    @property
    def notes(self) -> list[str]:
        """Remarks about the snapshot, such as limits that were reached."""
    def top(self, by: str = ..., count: int = ...) -> HeapTable:
        """The largest holders of memory.

        Args:
            by: How to group memory. ``"owner"``: the first named object on the path from a GC
                root, such as a module's variable. ``"class"``: the memory that all objects of a
                class retain. ``"module"``: the module or file of the owner. ``"site"``: the line
                that allocated the buffer's holder, if :mod:`tracemalloc` was tracing.
                ``"category"``: parameter, gradient, optimizer state, activation, input or other.
            count: Maximum number of rows.

        Raises:
            ValueError: If ``by`` is none of these.
        """
    def diff(self, old: Heap) -> HeapDiff:
        """The changes since ``old``, by owner."""
    def to_html(self) -> str:
        """A self-contained HTML page: a zoomable treemap of the owners, and tables.

        The treemap shows device memory, or host memory if there is none on devices. The width of
        a block is proportional to the bytes reached through it. Each buffer is counted once, on
        the path in :attr:`HeapBuffer.owner`. At most 500 blocks are drawn; the rest are combined.
        """
    def to_text(self) -> str:
        """The same text as ``str()``: a summary and the largest owners."""
    @staticmethod
    def from_json(text: str) -> Heap:
        """Read a snapshot that :meth:`to_json` wrote.

        Raises:
            ValueError: If ``text`` is not a snapshot.
        """
    def to_json(self) -> str:
        """The snapshot as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def _repr_html_(self) -> str: ...

@final
class HeapBuffer:
    """A buffer in use. Views share one buffer."""

    @property
    def bytes(self) -> int:
        """Size of the whole storage."""
    @property
    def device(self) -> str:
        """The device, such as ``cuda:0``."""
    @property
    def dtype(self) -> str | None:
        """Element type, such as ``float32``; None for raw storage."""
    @property
    def shape(self) -> tuple[int, ...] | None:
        """Extent of each dimension; None for raw storage."""
    @property
    def pointer(self) -> int:
        """Address of the storage on the device."""
    @property
    def type_name(self) -> str:
        """Type of the object that holds the buffer on the path in ``owner``."""
    @property
    def holders(self) -> int:
        """Number of objects that share the buffer."""
    @property
    def owner(self) -> str:
        """The most telling path from a GC root to the buffer, in one line."""
    @property
    def kind(self) -> str:
        """The owner without indices and lengths: the same for all buffers of a growing list."""
    @property
    def first_owner(self) -> str:
        """The first named object on the path in ``owner``, and its type."""
    @property
    def branch(self) -> int:
        """Index among ``branches`` of the JSON at which the path in ``owner`` ends."""
    @property
    def module(self) -> str:
        """The module at the start of the path in ``owner``, or the file of the running function."""
    @property
    def alone(self) -> bool:
        """True if deleting the reference to ``first_owner`` frees the buffer."""
    @property
    def by_collection(self) -> bool:
        """True if the buffer is then freed only by a garbage collection: a reference cycle or
        garbage holds it as well."""
    @property
    def site(self) -> str | None:
        """``file:line`` where the buffer's holder was allocated, if ``tracemalloc`` was tracing."""
    @property
    def category(self) -> str:
        """Parameter, gradient, optimizer state, activation, input or other."""
    @property
    def also(self) -> list[str]:
        """Further paths to the buffer's holder, one line each; only for the 40 largest buffers."""

@final
class HeapTable:
    """Memory by owner, class, module, line or category. ``str()`` returns the table."""

    @property
    def by(self) -> str:
        """How memory is grouped; see :meth:`Heap.top`."""
    @property
    def rows(self) -> list[HeapRow]:
        """The rows, most memory first."""
    @property
    def omitted(self) -> int:
        """Number of rows left out."""
    def to_text(self) -> str:
        """The same text as ``str()``: the table."""
    def to_json(self) -> str:
        """The table as JSON (``schema`` 1)."""

@final
class HeapRow:
    """One owner, class, module, line or category."""

    @property
    def name(self) -> str:
        """The owner, class, module, line or category."""
    @property
    def count(self) -> int:
        """Number of buffers; for a class, number of its objects that hold any."""
    @property
    def device_bytes(self) -> int:
        """Bytes on devices."""
    @property
    def host_bytes(self) -> int:
        """Bytes in host memory."""
    @property
    def retained_bytes(self) -> int:
        """Retained size: bytes that would be freed with this owner."""
    @property
    def collected_bytes(self) -> int:
        """The part of ``retained_bytes`` that only a garbage collection frees, because a reference
        cycle or garbage holds it as well."""
    @property
    def categories(self) -> dict[str, int]:
        """The bytes by category."""

@final
class HeapDiff:
    """The changes between two heap snapshots."""

    @property
    def bytes(self) -> int:
        """Total change in bytes."""
    @property
    def objects(self) -> int:
        """Change in the number of objects."""
    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """Owner, change in bytes and change in buffers, most bytes first."""
    def to_html(self) -> str:
        """A self-contained HTML page: each owner's memory before and after."""
    def to_text(self) -> str:
        """The same text as ``str()``: the owners whose memory changed."""
    @staticmethod
    def from_json(text: str) -> HeapDiff:
        """Read changes that :meth:`to_json` wrote.

        Raises:
            ValueError: If ``text`` is not of a heap diff.
        """
    def to_json(self) -> str:
        """The changes as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def _repr_html_(self) -> str: ...

@final
class Retention:
    """The paths that keep objects alive. ``str()`` returns them as text."""

    @property
    def paths(self) -> list[RetentionPath]:
        """Distinct paths from GC roots, shortest and most telling first."""
    @property
    def loops(self) -> list[RetentionPath]:
        """Paths from an object through C++ back to itself, which no collection can free."""
    @property
    def keepers(self) -> list[Keeper]:
        """The references that each keep the objects alive on their own.

        Each is the nearest one that the program can remove; at most 1,024 are listed.
        """
    @property
    def keepers_omitted(self) -> int:
        """Number of further such references."""
    @property
    def is_enough(self) -> bool:
        """True if it is proven that the objects are freed once all ``keepers`` are removed.

        This includes the references that are not listed (:attr:`keepers_omitted`).
        """
    @property
    def by_collection(self) -> bool:
        """True if they are then freed only by a collection: a cycle or garbage holds them too."""
    @property
    def is_uncollectable(self) -> bool:
        """True if nothing holds the objects, but no collection frees them either."""
    @property
    def paths_omitted(self) -> int:
        """Number of further paths."""
    @property
    def notes(self) -> list[str]:
        """Remarks about the result."""
    @property
    def pause_ms(self) -> float:
        """How long the search paused the program, in milliseconds."""
    @property
    def time(self) -> float:
        """When the objects were inspected, in seconds since 1970."""
    def to_html(self) -> str:
        """A self-contained HTML page: each path step by step."""
    def to_text(self) -> str:
        """The same text as ``str()``: the paths, with lines of at most 100 characters."""
    @staticmethod
    def from_json(text: str) -> Retention:
        """Read a result that :meth:`to_json` wrote.

        Raises:
            ValueError: If ``text`` is not such a result.
        """
    def to_json(self) -> str:
        """The result as JSON (``schema`` 1); :meth:`from_json` reads it back."""
    def _repr_html_(self) -> str: ...

@final
class Keeper:
    """A reference that keeps an object alive as long as it is there."""

    @property
    def words(self) -> str:
        """The reference in one line."""
    @property
    def path(self) -> RetentionPath:
        """A path through it to the object."""
    @property
    def step(self) -> int:
        """Index of the step of ``path`` that has the reference."""
    @property
    def goes_by_itself(self) -> bool:
        """True for a variable of a running function, which is dropped when the function returns."""
    @property
    def release(self) -> str:
        """What to do instead of removing the reference, if a library has something for it.

        ``call `prepare.cache_clear()```, ``call `torch._dynamo.reset()```; else empty.
        """

@final
class RetentionPath:
    """A path from a GC root to an object: a sequence of steps."""

    @property
    def root(self) -> str:
        """Kind of root: ``module``, ``local``, ``library``, ``outside``, ``garbage`` or ``itself``.

        ``library`` is what the standard library keeps: a thread, a timer, a context. ``outside`` is
        C or C++.
        """
    @property
    def root_words(self) -> str:
        """Readable name of the root."""
    @property
    def words(self) -> str:
        """The whole path in one line."""
    @property
    def alike(self) -> int:
        """Number of paths that differ from this one only in an index."""
    @property
    def steps(self) -> list[Step]:
        """The objects on the path, the one asked about last."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Step: ...
    def __iter__(self) -> Iterator[Step]: ...

def arm_signal(number: int) -> int:
    """Handle a signal in this process; ValueError says why it is left alone."""

def next_signal(armed: int) -> bool:
    """Wait for a signal that was armed. False once it is disarmed."""

def disarm_signal(restore: bool) -> None:
    """End the waiting, and restore what the signal does by default if the handler is ours."""

def is_full_pipe(file: int) -> bool:
    """Whether it is a pipe into which a message cannot be written without waiting for a reader."""

def end_by_interrupt() -> None:
    """Have an interrupt end the process once the interpreter has come to its end."""

def ignore(error: BaseException, where: object) -> None:
    """Say that an exception is ignored, by ``sys.unraisablehook``."""

def attached_cycles(devices: list[str]) -> str: ...
def attached_heap() -> str: ...
def attached_why(*objects: object) -> str: ...
def call_in_main_thread(function: Callable[[], object]) -> None: ...
def check_devices(devices: list[str]) -> None: ...
def cuda_driver_present() -> bool: ...
def device_kinds() -> list[str]: ...
def add_device_kind(kind: str) -> None: ...
def register_framework(
    class_: type,
    device: str,
    pointer: str,
    nbytes: str,
    device_index: str | None,
    dtype: str | None,
    shape: str | None,
    owner: str | None,
) -> None: ...
def start_watch(
    devices: tuple[str, ...],
    once_per_leak: bool,
    ignore: tuple[str, ...],
    keep_all: bool,
    min_host_bytes: int,
    min_device_bytes: int,
) -> int: ...
def change_watch(
    watch: int,
    devices: tuple[str, ...],
    ignore: tuple[str, ...],
    min_host_bytes: int,
    min_device_bytes: int,
    forget: tuple[str, ...],
) -> None: ...
def ignored(report: CycleReport, names: list[str]) -> list[str]: ...
def stop_watch(watch: int) -> list[LeakTally]: ...
def tallies(watch: int) -> list[LeakTally]: ...
def human_bytes(count: int) -> str: ...
def total_bytes(tallies: list[LeakTally]) -> int: ...
def next_delivery(seconds: float | None) -> tuple[int, CycleReport | None, str | None] | None: ...
def flush(timeout: float) -> bool: ...
def close() -> None: ...
def unseen_collections() -> int | None: ...
def uninspected_collections() -> int: ...
def relieve_teller(is_relieved: bool) -> None:
    """Have :func:`next_delivery` return None from now on, or no longer."""

def drop_deliveries() -> None: ...
def patterns() -> list[tuple[str, str]]: ...
def explanations() -> list[tuple[str, list[tuple[str, str]]]]: ...
def known_leaks() -> list[tuple[str, str]]: ...
def find(devices: list[str], ignore: list[str] = ..., frozen: bool = ...) -> CycleReport: ...
def find_new(devices: list[str], ignore: list[str], since: int) -> CycleReport | None: ...
def begin_epoch() -> tuple[int, bool] | None: ...
def forget_epochs() -> None: ...
def epochs(report: CycleReport) -> dict[str, list[int | None]]: ...
def fix(file: str | PathLike[str], line: int) -> Patch:
    """The patch for the reference that a line makes; ValueError says why there is none."""

def look(devices: list[str], ignore: list[str] = ..., oldest: int | None = ...) -> CycleReport: ...
def empty_report() -> CycleReport: ...
def report_of_run(devices: list[str], notes: list[str]) -> CycleReport: ...
def merge(reports: list[CycleReport]) -> CycleReport: ...
def merge_processes(reports: list[CycleReport]) -> CycleReport: ...
def select(report: CycleReport, signatures: list[str]) -> CycleReport: ...
def redact() -> None: ...
def redacts() -> bool: ...
def shown_name(name: str) -> str: ...
def shown_place(place: str) -> str: ...
def framed(page: str) -> str: ...
def unreachable_objects() -> list[object]: ...
def device_memory(
    device: str,
    numbers: tuple[int, int, float],
    segments: list[dict[str, Any]],
    pools: list[tuple[str, int, str]],
    pinned: int = 0,
) -> DeviceMemory: ...
def memory_in_use(device: str, seconds: float) -> dict[str, list[tuple[int, int]]]: ...
def is_backward_running() -> bool: ...
def with_allocations(
    report: CycleReport, stacks: dict[tuple[str, int], list[tuple[str, int, str]]]
) -> CycleReport: ...
def with_occurrences(report: CycleReport, watch: int) -> CycleReport: ...
def with_counts(report: CycleReport, tallies: list[LeakTally]) -> CycleReport: ...
def without_details(report: CycleReport, signatures: set[str]) -> CycleReport: ...
def is_distributed() -> bool: ...
def current_rank() -> Rank | None:
    """The rank of this process in a distributed job; None if it is not part of one.

    If the program has initialised the process group of ``torch.distributed``, this is its rank;
    otherwise the launcher's, from the first of these variables that has a number: ``RANK``
    (torchrun), ``OMPI_COMM_WORLD_RANK``, ``PMI_RANK``, ``SLURM_PROCID``. The other two numbers are
    those of a launcher that gave the same rank. Every report contains this rank. The function
    imports and initialises nothing.
    """

def heap(*, redact: bool = False) -> Heap:
    """Take a snapshot of all live memory: its owners, sizes and categories.

    No code of the program runs, and the result keeps no object alive. The program is paused for
    about as long as ``gc.collect()`` takes; see :attr:`Heap.pause_ms`.

    Args:
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If a setting is invalid.
    """

def why_alive(*objects: object, redact: bool = False) -> Retention:
    """Find the paths from GC roots that keep objects alive.

    Args:
        objects: One or more tensors, arrays, containers or other objects that the garbage
            collector tracks.
        redact: See :func:`warn_tensor_cycles`.

    Raises:
        ValueError: If a setting is invalid.
        TypeError: If no object is given, or the collector does not track one, such as a number.
    """
