"""The verdict of a post-mortem: only what the numbers prove."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclescope._live.allocator import Numbers
    from cyclescope._live.postmortem import PostMortem

MIB = 2**20


def mib(size: int | float) -> str:
    """A size for people."""
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
        found.headline = "the allocator's numbers could not be read"
        return
    asked = mib(known.requested)
    cycles = found.cycles
    graphs = next((each for each in found.graphs if each.would_fit), None)
    free = known.headroom + known.free_in_blocks
    if cycles is not None and cycles.would_fit:
        found.verdict = "cycles"
        found.headline = (
            f"reference cycles hold {mib(cycles.bytes)} of garbage; "
            f"after a collection the {asked} would have fitted"
        )
        found.advice = (
            "Break the cycles (the trace below says where), or collect in time: "
            "cyclescope.collect_on_pressure(), cyclescope.step()."
        )
    elif graphs is not None:
        found.verdict = "kept-graphs"
        found.headline = (
            f"{graphs.what}, {mib(graphs.bytes)}; without all but the last the {asked} would fit"
        )
        found.advice = (
            "Store `.item()` of losses and metrics, or `.detach()`; evaluate under torch.no_grad()."
        )
    elif known.headroom < known.requested <= free:
        found.verdict = "fragmentation"
        found.headline = (
            f"{mib(free)} are free, but in pieces: {mib(known.free_in_blocks)} between blocks in "
            f"use, the largest {mib(known.largest_free_block)}, and {mib(known.headroom)} at the "
            f"driver; {asked} were asked for"
        )
        found.advice = (
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the program starts; "
            "where that is not possible, max_split_size_mb, and sizes that do not change from "
            "step to step."
        )
    elif known.requested > known.limit:
        found.verdict = "batch-too-big"
        found.headline = f"{asked} were asked for at once, and the limit is {mib(known.limit)}"
        found.advice = _SMALLER
    elif too_big and _fits_alone(known, sum(needs)):
        found.verdict = "elsewhere"
        found.headline = _outside(known)
        found.advice = _OTHERS
    elif too_big:
        found.verdict = "batch-too-big"
        found.headline = (
            f"{asked} would not fit even if only the model ({mib(needs[0])} with gradients and "
            f"optimizer state) and what the running step uses ({mib(needs[1])}) were there"
        )
        found.advice = _SMALLER
    elif found.growth:
        largest = max(found.growth, key=lambda each: each["bytes"])
        found.verdict = "growth"
        found.headline = f"{largest['summary']} ({mib(largest['bytes'])} when it was noticed)"
        found.advice = largest["advice"]
    elif _others_took_it(known) and (known.elsewhere or 0) > known.reserved:
        found.verdict = "elsewhere"
        found.headline = _outside(known)
        found.advice = _OTHERS
    else:
        found.verdict = "unclear"
        found.headline = (
            f"{asked} did not fit into {mib(known.limit)}; "
            "no single cause is proven by the numbers below"
        )
        found.advice = (
            "Run it again with cyclescope.watch_growth(), which tells what grows, "
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
        f"{mib(known.elsewhere or 0)} of the device are in use outside of PyTorch's allocator, "
        f"which has {mib(known.reserved)}"
    )


_OTHERS = "See nvidia-smi for other processes on this device."

_SMALLER = (
    "Take a smaller batch and accumulate gradients, checkpoint activations "
    "(torch.utils.checkpoint), train in bfloat16, or shard the model (FSDP)."
)


def as_text(found: PostMortem) -> str:
    """The post-mortem for people; the first line is the verdict."""
    lines = [f"{found.verdict}: {found.headline}", ""]
    if found.advice:
        lines += [found.advice, ""]
    known = found.numbers
    if known is not None:
        lines += [f"Memory of {found.device} when the request failed:"]
        rows = [
            ("requested", known.requested),
            ("limit of this process", known.limit),
            ("reserved by PyTorch", known.reserved),
            ("allocated of that", known.allocated),
            ("free between blocks in use", known.free_in_blocks),
            ("the largest such block", known.largest_free_block),
            ("free at the driver", known.free),
        ]
        if known.elsewhere is not None:
            rows.append(("used outside PyTorch's allocator", known.elsewhere))
        if known.private:
            rows.append(("reserved for CUDA graphs", known.private))
        lines += [f"  {mib(size):>14}  {name}" for name, size in rows]
    if found.roles:
        lines += ["", "What it is allocated for:"]
        lines += [f"  {mib(size):>14}  {name}" for name, size in found.roles.items()]
    if found.graphs:
        lines += ["", "Kept graphs:"]
        lines += [f"  {mib(each.bytes):>14}  {each.what}" for each in found.graphs[:5]]
    if found.owners:
        lines += ["", "The largest tensors:"]
        lines += [f"  {mib(each.bytes):>14}  {each.what}" for each in found.owners]
    if found.growth:
        lines += ["", "What grew:"]
        lines += [f"  {each['summary']}. {each['advice']}" for each in found.growth]
    if found.requested_at:
        lines += ["", "Requested at:", *(f"  {line}" for line in found.requested_at)]
    if found.cycles is not None:
        lines += ["", f"Unreachable cycles hold {mib(found.cycles.bytes)}:", "", found.trace]
    if found.left_out:
        lines += ["", "Left out:", *(f"  {line}" for line in found.left_out)]
    return "\n".join([*lines, ""])
