"""Deleted models that a library keeps alive, each with what lets go of it.

A program makes a model, has it kept, and returns the model with a function that does what must be
said; ``PROGRAMS`` has words of that, and words of the keeper.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import queue
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Held = tuple[Any, Callable[[], object]]
SIZE = 64
kept: dict[str, Any] = {}


def data() -> torch.Tensor:
    """A batch."""
    return torch.ones(2, SIZE)


class Net(torch.nn.Module):
    """One matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(SIZE, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return x @ self.weight

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def mask(self, size: int) -> int:
        """A cached method."""
        return size

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def scale(self) -> int:
        """Another, with a limit."""
        return 1


@functools.cache
def prepare(model: torch.nn.Module, size: int) -> int:
    """A function that has seen the model."""
    return size


@functools.lru_cache(maxsize=8)
def named(*, model: torch.nn.Module | None = None) -> int:
    """One that has it by name."""
    return 1


@functools.cache
def build(size: int) -> Net:
    """One that returned it."""
    return Net()


class Loader:
    """Has a cached function as an attribute."""

    def __init__(self) -> None:
        self.load = functools.cache(lambda size: Net())


loader = Loader()


def cached_method() -> Held:
    """By `functools.lru_cache` over a method."""
    net = Net()
    net.mask(3)
    return net, lambda: Net.mask.cache_clear()


def cached_method_with_limit() -> Held:
    """The same with a limit."""
    net = Net()
    net.scale()
    return net, lambda: Net.scale.cache_clear()


def cached_argument() -> Held:
    """By the cache of a function that took it."""
    net = Net()
    prepare(net, 3)
    return net, lambda: prepare.cache_clear()


def cached_keyword() -> Held:
    """The same by a keyword."""
    net = Net()
    named(model=net)
    return net, lambda: named.cache_clear()


def cached_result() -> Held:
    """By the cache of a function that returned it."""
    return build(3), lambda: build.cache_clear()


def cached_in_attribute() -> Held:
    """By a cached function that is an attribute."""
    return loader.load(3), lambda: loader.load.cache_clear()


def cached_bound_method() -> Held:
    """By the cache of a function that took a bound method."""
    net = Net()
    prepare(net.forward, 4)
    return net, lambda: prepare.cache_clear()


def dynamo() -> Any:
    """The compiler, imported when it is used, so that the heap of other tests stays small."""
    return importlib.import_module("torch._dynamo")


def compiled_with_backend() -> Held:
    """By a backend of `torch.compile` that has the model."""
    net = Net()

    def backend(graph: Any, inputs: Any) -> Any:
        assert net is not None
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(data())
    return net, dynamo().reset


def compiled_with_callback() -> Held:
    """By a callback of the compiler's."""
    net = Net()
    dynamo().callback.on_compile_start(lambda *_: net and None)
    return net, dynamo().reset


def compiled_module() -> Held:
    """By what `torch.compile` returned."""
    net = Net()
    kept["compiled"] = torch.compile(net, backend="eager")
    kept["compiled"](data())
    return net, kept.clear


def traced_by_fx() -> Held:
    """A layer, by the graph module that was made of its model."""
    net = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU())
    kept["traced"] = torch.fx.symbolic_trace(net)
    return net[0], kept.clear


def exported() -> Held:
    """A parameter, by an exported program."""
    net = Net()
    kept["exported"] = torch.export.export(net, (data(),))
    return net.weight, kept.clear


def optimized() -> Held:
    """A parameter, by an optimizer with its state."""
    net = Net()
    kept["optimizer"] = torch.optim.Adam(net.parameters())
    net(data()).sum().backward()
    kept["optimizer"].step()
    return net.weight, kept.clear


def loaded() -> Held:
    """By an iterator over a loader whose function takes it."""
    net = Net()

    def collate(batch: Any) -> Any:
        assert net is not None
        return batch

    kept["batches"] = iter(torch.utils.data.DataLoader([1, 2, 3], collate_fn=collate))  # type: ignore[arg-type]
    next(kept["batches"])
    return net, kept.clear


def loaded_by_worker() -> Held:
    """By an iterator whose worker is running."""
    net = Net()
    data_set: Any = Samples(net)
    batches = torch.utils.data.DataLoader(data_set, num_workers=1, persistent_workers=True)
    kept["batches"] = iter(batches)
    next(kept["batches"])
    return net, kept.clear


class Samples(torch.utils.data.Dataset[int]):
    """A data set with a model."""

    def __init__(self, net: Net) -> None:
        self.net = net

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def hooked(register: Callable[..., Any]) -> Callable[[], Held]:
    """By a hook of all modules or optimizers that captures it."""

    def program() -> Held:
        net = Net()
        handle = register(lambda *_: net and None)
        return net, handle.remove

    return program


class Recorder:
    """A hook that is a method."""

    def __init__(self, net: Net) -> None:
        self.net = net

    def __call__(self, *_: object) -> None:
        """Do nothing."""


def hooked_by_object() -> Held:
    """By a hook that is an object with the model."""
    net = Net()
    handle = hooks.register_module_forward_hook(Recorder(net))
    return net, handle.remove


other = Net()


def hooked_to_other_module() -> Held:
    """By a hook of another module."""
    net = Net()
    handle = other.register_forward_hook(lambda *_: net and None)
    return net, handle.remove


def hooked_to_other_state() -> Held:
    """By a hook of another module's state."""
    net = Net()
    hooked: Any = other
    handle = hooked._register_state_dict_hook(lambda *_: net and None)
    return net, handle.remove


def hooked_to_parameter() -> Held:
    """By a hook of a parameter of another model."""
    net = Net()
    parameter: Any = other.weight
    handle = parameter.register_hook(lambda gradient: net and gradient)
    return net, handle.remove


def hooked_after_accumulation() -> Held:
    """By a hook that runs when a gradient was added to."""
    net = Net()
    parameter: Any = other.weight
    handle = parameter.register_post_accumulate_grad_hook(lambda _: net and None)
    return net, handle.remove


def finalized() -> Held:
    """By the arguments of a finalizer of another object."""
    net = Net()
    finalizer = weakref.finalize(other, print, net)
    return net, finalizer.detach


def finalized_by_itself() -> Held:
    """By its own finalizer, which can never run."""
    net = Net()
    finalizer = weakref.finalize(net, net.cpu)
    return net, finalizer.detach


def at_exit() -> Held:
    """By a function that is to run at the end."""
    net = Net()
    function = net.cpu
    atexit.register(function)
    return net, Unregister(net)


class Unregister:
    """Takes the method of a model out of what runs at the end, without keeping the model."""

    def __init__(self, net: Net) -> None:
        self.net = weakref.ref(net)

    def __call__(self) -> None:
        """Do it."""
        net = self.net()
        assert net is not None
        atexit.unregister(net.cpu)


def on_signal() -> Held:
    """By the handler of a signal."""
    net = Net()
    signal.signal(signal.SIGTERM, lambda *_: net and None)
    return net, lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Mode(TorchFunctionMode):
    """A mode that has a model."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Another."""

    def __init__(self, net: Net) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.net = net

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def saved_tensor_hooks(net: Net) -> contextlib.AbstractContextManager[Any]:
    """Hooks that capture a model."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        assert net is not None
        return tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


class Engine:
    """Serves a model on a thread, with a cache of keys and values by module."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net = net
        self.cache = {name: torch.ones(16) for name, _ in net.named_modules()}
        self.requests: queue.Queue[Any] = queue.Queue()
        self.thread = threading.Thread(target=self.serve, name="engine", daemon=True)
        self.thread.start()

    def serve(self) -> None:
        """Answer what is asked."""
        while (request := self.requests.get()) is not None:
            self.net(request)
            del request

    def stop(self) -> None:
        """End the thread."""
        self.requests.put(None)
        self.thread.join()


engines: dict[str, Engine] = {}


def served() -> Held:
    """By an engine in a registry, whose thread waits for requests."""
    net = Net()
    engines["default"] = Engine(net)
    return net, forget


def forget() -> None:
    """Remove the reference that keeps the model, as it is named."""
    del engines["default"].net
    engines.pop("default").stop()


GLOBAL_HOOKS: dict[str, Any] = {
    "forward": hooks.register_module_forward_hook,
    "forward-pre": hooks.register_module_forward_pre_hook,
    "backward": hooks.register_module_full_backward_hook,
    "backward-pre": hooks.register_module_full_backward_pre_hook,
    "parameter": hooks.register_module_parameter_registration_hook,
    "buffer": hooks.register_module_buffer_registration_hook,
    "module": hooks.register_module_module_registration_hook,
    "step-pre": optimizer_hooks.register_optimizer_step_pre_hook,
    "step-post": optimizer_hooks.register_optimizer_step_post_hook,
}

NAME = __name__
HANDLE = "call `remove()` on the handle that registering the hook returned"
RESET = "call `torch._dynamo.reset()`"
MODES = {
    "mode": (Mode, "modes in force", "leave its `with` block"),
    "dispatch": (DispatchMode, "modes in force", "leave its `with` block"),
    "saved-hooks": (saved_tensor_hooks, "saved-tensor hooks in force", "leave its `with` block"),
}
PROGRAMS: dict[str, tuple[Callable[[], Held], str, str]] = {
    "cached-method": (cached_method, ".mask", f"call `{NAME}.Net.mask.cache_clear()`"),
    "cached-limit": (cached_method_with_limit, ".scale", f"call `{NAME}.Net.scale.cache_clear()`"),
    "cached-argument": (cached_argument, "`prepare`", f"call `{NAME}.prepare.cache_clear()`"),
    "cached-keyword": (cached_keyword, "`named`", f"call `{NAME}.named.cache_clear()`"),
    "cached-result": (cached_result, "`build`", f"call `{NAME}.build.cache_clear()`"),
    "cached-bound": (cached_bound_method, "`prepare`", f"call `{NAME}.prepare.cache_clear()`"),
    "cached-attribute": (cached_in_attribute, "`loader`", f"{NAME}.loader.load.cache_clear()`"),
    "backend": (compiled_with_backend, "`cached_backends`", RESET),
    "callback": (compiled_with_callback, ".start_callbacks", RESET),
    "compiled": (compiled_module, "['compiled']", f"delete `{NAME}.kept['compiled']`"),
    "fx": (traced_by_fx, "['traced']", f"delete `{NAME}.kept['traced']`"),
    "export": (exported, "['exported']", f"delete `{NAME}.kept['exported']`"),
    "optimizer": (optimized, "['optimizer']", f"delete `{NAME}.kept['optimizer']`"),
    "loader": (loaded, "['batches']", f"delete `{NAME}.kept['batches']`"),
    "loader-worker": (loaded_by_worker, "['batches']", f"delete `{NAME}.kept['batches']`"),
    "hook-object": (hooked_by_object, "_global_forward_hooks", HANDLE),
    "hook-other": (hooked_to_other_module, "._forward_hooks", HANDLE),
    "hook-state": (hooked_to_other_state, "._state_dict_hooks", HANDLE),
    "hook-parameter": (hooked_to_parameter, "._backward_hooks", HANDLE),
    "hook-accumulated": (hooked_after_accumulation, "._post_accumulate_grad_hooks", HANDLE),
    "finalizer": (finalized, "finalizer `weakref.finalize` of ", "`detach()`"),
    "finalizer-own": (finalized_by_itself, "finalizer `weakref.finalize` of ", "`detach()`"),
    "signal": (
        on_signal,
        "signal handlers",
        "call `signal.signal(signal.SIGTERM, signal.SIG_DFL)`",
    ),
    "engine": (served, "Engine", ""),
    **{
        f"all-{name}": (hooked(register), "_global_", HANDLE)
        for name, register in GLOBAL_HOOKS.items()
    },
}
if sys.version_info >= (3, 14):
    PROGRAMS["atexit"] = (at_exit, "functions registered with atexit", "atexit.unregister")
