"""Is the shape of each fixture told apart, and is the advice about the program's own names?"""

from __future__ import annotations

import pytest

import common
import cyclescope

SHAPES: dict[str, tuple[str, str, str | None]] = {
    # fixture: pattern, names in the advice, last line of the code as it should be
    "async_generator_on_owner": ("suspended-holds-itself", "self", "await self._tokens.aclose()"),
    "bound_method_on_owner": (
        "bound-method-on-owner",
        "Layer.activation double",
        "    return self.double(*args, **kwargs)",
    ),
    "chain_on_owner": ("iterator-on-owner", "Loader.batches chain", "    return chain(...)"),
    "closure_captures_owner": (
        "closure-captures-owner",
        "Trainer.callbacks log self",
        "    return value",
    ),
    "coroutine_on_owner": ("suspended-holds-itself", "Session._serve self", "self._job.close()"),
    "default_argument": (
        "closure-captures-owner",
        "Optimizer.schedule owner",
        "    return value",
    ),
    "default_factory": ("bound-method-on-owner", "Meter.totals zero", None),
    "doubly_linked_list": (
        "linked-both-ways",
        "Entry.prev weak",
        None,
    ),
    "exc_info_in_local": ("exc-info-kept", "info attempt", "    del info"),
    "exception_cause_in_local": (
        "exception-chain",
        "outcome attempt GaveUp __cause__ ValueError",
        "outcome.__cause__ = outcome.__context__ = None",
    ),
    "exception_context_on_object": (
        "exception-chain",
        "Worker.error RuntimeError __context__ ValueError",
        "self.error.__cause__ = self.error.__context__ = None",
    ),
    "exception_in_local": (
        "exception-keeps-traceback",
        "failure attempt ValueError with_traceback",
        "    del failure",
    ),
    "exception_on_object": (
        "exception-on-object",
        "Worker.error RuntimeError run",
        "self.error = error.with_traceback(None)",
    ),
    "executor_initializer": ("thread-target", "Pipeline.executor prepare", "self.executor = None"),
    "exit_stack_on_owner": ("exit-stack-not-closed", "Session.stack release close()", None),
    "future_keeps_exception": ("future-keeps-exception", "Future future", "    del future"),
    "generator_on_owner": ("suspended-holds-itself", "Loader._read self", "self._batches.close()"),
    "lru_cache_of_lambda": ("cache-on-instance", "Rotary.angle lambda", None),
    "lru_cache_on_instance": (
        "cache-on-instance",
        "Encoder.size _size",
        "    return self._size_cache[args]",
    ),
    "map_on_owner": ("iterator-on-owner", "Dataset.samples map load", "    return map(...)"),
    "module_hook_partial": (
        "module-hook-captures-module",
        "Scale Trainer weakref.proxy .remove()",
        None,
    ),
    "module_made_at_run_time": ("namespace-made-at-run-time", "count", None),
    "mutually_recursive_functions": (
        "mutually-recursive-functions",
        "visit_left visit_right",
        "    del visit_right",
    ),
    "namespace_of_exec": ("namespace-made-at-run-time", "scale", None),
    "partial_keeps_owner": (
        "partial-keeps-owner",
        "Clipper.clip weakref.proxy",
        None,
    ),
    "partial_of_bound_method": (
        "partial-keeps-owner",
        "Sampler.draw _draw",
        "    return self._draw(..., *args, **kwargs)",
    ),
    "property_captures_owner": (
        "property-captures-owner",
        "ConfigWithSize size config",
        "size = property(lambda self: self.value)",
    ),
    "recursive_inner_function": ("recursive-inner-function", "halve", "    del halve"),
    "sequence_iterator_on_owner": ("iterator-on-owner", "Shards.cursor", "    return iter(self)"),
    "task_keeps_exception": ("future-keeps-exception", "Task task serve", "    del task"),
    "thread_never_started": ("thread-target", "Prefetcher.worker fill", None),
    "timer_on_owner": ("thread-target", "Checkpointer.timer save", "self.timer = None"),
    "tree_with_parents": (
        "linked-both-ways",
        "TreeNode.parent",
        None,
    ),
    "weakref_callback": (
        "weakref-callback",
        "Prefetcher.watch",
        "self.watch = weakref.ref(..., lambda ref: weak() and use(weak()))",
    ),
    "weakref_callback_bound_method": (
        "weakref-callback",
        "Recycler.watch count",
        "self.watch = weakref.ref(..., lambda ref: count() and count()(ref))",
    ),
    "wrapped_method_on_instance": (
        "wrapped-method-on-owner",
        "Trainer.step wrapper call _step",
        "    ...",
    ),
}


pytestmark = pytest.mark.usefixtures("collector_paused")


@pytest.mark.parametrize("name", SHAPES)
def test_advice_fits_the_shape(name: str) -> None:
    pattern, words, last_line = SHAPES[name]
    common.load(name).leak("cpu")
    (leak,) = cyclescope.find_tensor_cycles(devices="any", frozen=False).leaks
    assert leak.pattern == pattern
    for word in words.split():
        assert word in leak.advice
    assert (leak.before is None) == (last_line is None)
    assert (leak.after.splitlines()[-1] if leak.after else None) == last_line
