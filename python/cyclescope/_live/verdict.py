"""The verdict of a post-mortem, which claims only what the numbers prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclescope._live.allocator import Numbers
    from cyclescope._live.postmortem import PostMortem

MIB = 2**20


def mib(size: int | float) -> str:
    """Format a size in MiB."""
    return f"{size / MIB:,.1f} MiB"


def judge(found: PostMortem, *, too_big: bool, needs: tuple[int, int]) -> None:
    """Set the verdict, its sentence and the advice.

    Args:
        found: What is known.
        too_big: True if the request would not fit beside the model and the running step.
        needs: Bytes of the model with gradients and optimizer state, and of the running step.
    """
    known = found.numbers
    if known is None:
        found.headline = "the allocator's statistics could not be read"
        return
    asked = mib(known.requested)
    cycles = found.cycles
    graphs = next((each for each in found.graphs if each.would_fit), None)
    free = known.headroom + known.free_in_blocks
    if cycles is not None and cycles.would_fit:
        found.verdict = "cycles"
        found.headline = (
            f"reference cycles hold {mib(cycles.bytes)} of garbage; "
            f"after a collection, the {asked} would have fitted"
        )
        found.advice = (
            "Break the cycles (see the leak trace below), or collect in time with "
            "cyclescope.collect_on_pressure() or cyclescope.step()."
        )
    elif graphs is not None:
        found.verdict = "kept-graphs"
        found.headline = (
            f"{graphs.what}, {mib(graphs.bytes)}; "
            f"if only the last one were kept, the {asked} would fit"
        )
        found.advice = (
            "Store `.item()` or `.detach()` of losses and metrics; evaluate under torch.no_grad()."
        )
    elif known.headroom < known.requested <= free:
        found.verdict = "fragmentation"
        found.headline = (
            f"{mib(free)} are free but fragmented: {mib(known.free_in_blocks)} in blocks of the "
            f"allocator, the largest {mib(known.largest_free_block)}, and {mib(known.headroom)} on "
            f"the device; {asked} were requested"
        )
        found.advice = (
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts. If "
            "that is not possible, set max_split_size_mb, and use sizes that do not change from "
            "step to step."
        )
    elif known.requested > known.limit:
        found.verdict = "batch-too-big"
        found.headline = f"{asked} were requested at once, but the limit is {mib(known.limit)}"
        found.advice = _SMALLER
    elif too_big and _fits_alone(known, sum(needs)):
        found.verdict = "elsewhere"
        found.headline = _outside(known)
        found.advice = _OTHERS
    elif too_big:
        found.verdict = "batch-too-big"
        found.headline = (
            f"{asked} would not fit even if only the model ({mib(needs[0])} with gradients and "
            f"optimizer state) and the running step ({mib(needs[1])}) were in memory"
        )
        found.advice = _SMALLER
    elif found.growth:
        largest = max(found.growth, key=lambda each: each["bytes"])
        found.verdict = "growth"
        found.headline = f"{largest['summary']} ({mib(largest['bytes'])} when first reported)"
        found.advice = largest["advice"]
    elif _others_took_it(known) and (known.elsewhere or 0) > known.reserved:
        found.verdict = "elsewhere"
        found.headline = _outside(known)
        found.advice = _OTHERS
    else:
        found.verdict = "unclear"
        found.headline = (
            f"{asked} did not fit into {mib(known.limit)}; the numbers below prove no single cause"
        )
        found.advice = (
            "Run the program again with cyclescope.watch_growth(), which finds what grows, "
            "or with torch.cuda.memory._record_memory_history()."
        )


def _fits_alone(known: Numbers, needed: int) -> bool:
    """True if the request would fit beside what is needed, were it not for others on the device."""
    return _others_took_it(known) and needed + known.requested <= known.limit


def _others_took_it(known: Numbers) -> bool:
    """True if this process may take as much, and the driver has it not, but others have."""
    may = known.limit - known.reserved >= known.requested
    return may and known.free < known.requested <= (known.elsewhere or 0)


def _outside(known: Numbers) -> str:
    return (
        f"{mib(known.elsewhere or 0)} of the device are in use outside PyTorch's allocator, "
        f"which has reserved {mib(known.reserved)}"
    )


_OTHERS = "Run nvidia-smi to list the other processes on this device."

_SMALLER = (
    "Use a smaller batch and accumulate gradients, checkpoint activations "
    "(torch.utils.checkpoint), train in bfloat16, or shard the model (FSDP)."
)


def as_text(found: PostMortem) -> str:
    """The post-mortem as text. The first line is the verdict."""
    lines = [f"{found.verdict}: {found.headline}", ""]
    if found.advice:
        lines += [found.advice, ""]
    known = found.numbers
    if known is not None:
        lines += [f"Memory of {found.device} when the request failed:"]
        rows = [
            ("requested", known.requested),
            ("limit of this process", known.limit),
            ("reserved by PyTorch's allocator", known.reserved),
            ("allocated from that", known.allocated),
            ("free in blocks of the allocator", known.free_in_blocks),
            ("largest free block", known.largest_free_block),
            ("free on the device", known.free),
        ]
        if known.elsewhere is not None:
            rows.append(("used outside PyTorch's allocator", known.elsewhere))
        if known.private:
            rows.append(("reserved for CUDA graphs", known.private))
        lines += [f"  {mib(size):>14}  {name}" for name, size in rows]
    if found.roles:
        lines += ["", "Allocated memory by category:"]
        lines += [f"  {mib(size):>14}  {name}" for name, size in found.roles.items()]
    if found.graphs:
        lines += ["", "Containers that keep autograd graphs:"]
        lines += [f"  {mib(each.bytes):>14}  {each.what}" for each in found.graphs[:5]]
    if found.owners:
        lines += ["", "Largest tensors:"]
        lines += [f"  {mib(each.bytes):>14}  {each.what}" for each in found.owners]
    if found.growth:
        lines += ["", "Growing tensors:"]
        lines += [f"  {each['summary']}. {each['advice']}" for each in found.growth]
    if found.requested_at:
        lines += ["", "Requested at:", *(f"  {line}" for line in found.requested_at)]
    if found.cycles is not None:
        lines += ["", f"Unreachable cycles hold {mib(found.cycles.bytes)}:", "", found.trace]
    if found.left_out:
        lines += ["", "Not examined:", *(f"  {line}" for line in found.left_out)]
    return "\n".join([*lines, ""])
