"""What runs in the other process, on a thread of its own: this file, and a call of ``answer``.

The process may have no cyclescope at all: the native module is loaded from where the caller has it,
and is in no ``sys.modules``. It imports a few small modules of the standard library, if the program
has not (``types``, ``weakref``, ``functools``, ``collections``, ``opcode``), and nothing else is
imported but by ``watch``, which is asked to stay. No code of the program runs, but for functions
that it has put in the place of ``open`` and ``__import__``.

The main thread only starts that thread. Signal handlers of the program run on the main thread, and
what they raise would be lost here.
"""

# A file of its own, which knows neither the rest of the package nor its types.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-not-found,arg-type,union-attr"


def answer(request):
    """Write what was asked for into the caller's folder, unless the caller has given up."""
    import gc
    import os

    part, result = f"{request['folder']}/result.part", f"{request['folder']}/result"
    try:
        said = said_of(request)
        if said is not None:
            with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(said)
    except OSError:
        said = None  # the caller is gone, and so is its folder; or nothing can be written
        try:  # noqa: SIM105
            os.close(os.open(f"{request['folder']}/failed", os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError:
            pass
    finally:
        # Before the caller has the result: the next request finds the collector as it was.
        if globals().pop("enabled"):
            gc.enable()
    if said is not None:
        try:
            os.rename(part, result)
        except OSError:
            said = None
    # The functions here refer to this dictionary, which refers to them.
    globals().clear()


def said_of(request):
    """What the result says; None if the caller has given up."""
    import _signal
    import os

    # The program's own threads get them.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        # Whoever makes this file first has the say: a caller that gives up makes it too.
        started = f"{request['folder']}/started"
        os.close(os.open(started, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return None
    try:
        return respond(request)
    except LookupError as error:
        return f"error\n{error}"
    except BaseException as error:
        return f"error\n{type(error).__name__}: {error}"


def respond(request):
    """Do what was asked for; the first line of the result says how it went."""
    if variable("CYCLESCOPE_OFF") not in ("", "0", "false", "no"):
        return "off"
    if request["what"] == "watch":
        return watch(request)
    native = load(request["library"])
    if request["redact"] or variable("CYCLESCOPE_REDACT") in ("1", "true", "yes", "on"):
        native.redact()
    folder = request["folder"]
    try:
        if "cycles" in request["what"]:
            write(folder, "cycles", native.attached_cycles(request["devices"]))
        if "heap" in request["what"]:
            write(folder, "heap", native.attached_heap())
        if "why" in request["what"]:
            # The object is in no variable here: that would be one more reference.
            write(folder, "why", native.attached_why(find(request["name"])))
    finally:
        # Its functions refer to it: it would be garbage of ours until the next collection.
        native.__dict__.clear()
    return "ok"


def variable(name):
    """A variable of the environment."""
    import os

    return os.environ.get(name, "").strip().lower()


def write(folder, name, text):
    """Write a whole file or none."""
    import os

    with open(f"{folder}/{name}.part", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.rename(f"{folder}/{name}.part", f"{folder}/{name}")


def load(library):
    """The native module, under a name that nobody can import."""
    import _frozen_importlib
    import _frozen_importlib_external
    import _imp
    import sys

    name = "cyclescope._native"
    before = sys.modules.get(name)
    loader = _frozen_importlib_external.ExtensionFileLoader(name, library)
    spec = _frozen_importlib.ModuleSpec(name, loader, origin=library)
    try:
        native = _imp.create_dynamic(spec)
        _imp.exec_dynamic(native)
    finally:
        # CPython lists a module by itself if it cannot be initialised in two phases.
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
    return native


def watch(request):
    """Import the package, which stays, and watch from now on."""
    import sys

    if "cyclescope" not in sys.modules:
        # Not by way of `sys.path`, which is the program's.
        from importlib.util import module_from_spec, spec_from_file_location

        package = request["package"]
        spec = spec_from_file_location(
            "cyclescope", f"{package}/__init__.py", submodule_search_locations=[package]
        )
        module = sys.modules["cyclescope"] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["cyclescope"]
            raise
    import cyclescope
    from cyclescope import _native

    handle = cyclescope.warn_tensor_cycles(
        devices=request["devices"], report_dir=request["report_dir"], redact=request["redact"]
    )
    if not handle.is_running:
        return "off"
    if _native.unseen_collections() is None:
        return "error\nthe collections of its Python cannot be watched; --cycles works"
    return "ok"


# Names


def find(steps):
    """The object that a name leads to: the first that is there of where the name may begin.

    Nothing is kept of what did not lead there, such as an exception with its frames.
    """
    complaint = None
    for value, rest, so_far in beginnings(steps):
        try:
            return follow(value, rest, so_far)
        except LookupError as error:
            complaint = complaint or str(error)
    if complaint is None:
        name = steps[0][1]
        complaint = f"no module, global of `__main__` or local variable is named {name!r}"
    raise LookupError(complaint)


def beginnings(steps):
    """Where a name may begin: each value with the steps that are left, and its own name.

    Variables come before modules: who asks for `model` does not mean the module of that name.
    """
    import sys

    names = []
    for kind, name in steps:
        if kind != ".":
            break
        names.append(name)
    first, module = names[0], sys.modules.get(names[0])
    variables = sys.modules["__main__"].__dict__
    if first in variables and (module is None or variables[first] is not module):
        yield sys.modules["__main__"], steps, "__main__"
    if module is not None and len(steps) > 1:
        yield from modules(names, steps)
    if sys.version_info >= (3, 13):
        # Before, to read the locals of a frame changes the frame.
        import _thread

        for thread, frame in sys._current_frames().items():
            while frame is not None and thread != _thread.get_ident():
                if first in frame.f_locals:
                    yield frame.f_locals[first], steps[1:], first
                frame = frame.f_back
    if len(steps) == 1:
        yield from modules(names, steps)


def modules(names, steps):
    """The modules that a name may mean, the longest name first."""
    import sys

    for length in range(len(names), 0, -1):
        name = ".".join(names[:length])
        module = sys.modules.get(name)
        if module is not None:
            yield module, steps[length:], name


def follow(value, steps, so_far):
    """Go along attributes and items, without look-up by the program's own code."""
    for kind, name in steps:
        try:
            value = attribute(value, name) if kind == "." else item(value, name)
        except (AttributeError, LookupError, TypeError):
            shown = f".{name}" if kind == "." else f"[{name!r}]"
            raise LookupError(
                f"`{so_far}` has no {shown} that can be read without running code"
            ) from None
        so_far += f".{name}" if kind == "." else f"[{name!r}]"
    return value


def attribute(value, name):
    """What is stored under a name: in the instance, in a slot or in a class."""
    getset = type(type.__dict__["__dict__"])
    member = type(type.__dict__["__basicsize__"])
    classes = bases(type(value))
    for each in classes:
        held = type.__dict__["__dict__"].__get__(each)
        # What C code defines, and no property of the program's.
        if type(held.get("__dict__")) in (getset, member):
            own = held["__dict__"].__get__(value)
            if own is not None and name in own:
                return own[name]
        if type(held.get(name)) is member:
            return held[name].__get__(value)
    for each in bases(value) if type in classes else classes:
        held = type.__dict__["__dict__"].__get__(each)
        if name in held:
            kinds = bases(type(held[name]))
            # A property or a getter would compute the value.
            if type not in classes and any("__set__" in of(kind) for kind in kinds):
                raise LookupError(name)
            return held[name]
    # What `nn.Module.__getattr__` would give.
    for part in parts(value):
        if name in part:
            return part[name]
    raise LookupError(name)


def of(kind):
    """The dictionary of a class."""
    return type.__dict__["__dict__"].__get__(kind)


def parts(value):
    """The dictionaries of the parameters, buffers and modules of a module of PyTorch's."""
    getset = type(type.__dict__["__dict__"])
    for each in bases(type(value)):
        if type(of(each).get("__dict__")) is getset:
            own = of(each)["__dict__"].__get__(value)
            names = ("_parameters", "_buffers", "_modules")
            if own is not None and all(type(own.get(name)) is dict for name in names):
                return [own[name] for name in names]
    return []


def bases(kind):
    """A class and those that it inherits from, whatever it says itself."""
    return type.__dict__["__mro__"].__get__(kind)


def item(value, key):
    """An item of a list, a tuple or a dictionary."""
    for kind in bases(type(value)):
        if kind is dict:
            # Neither `__missing__` nor what its other keys make of being compared. The list is made
            # in one instruction: other threads may change the dictionary between two.
            for known, held in list(dict.items(value)):
                if type(known) is type(key) and known == key:
                    return held
            raise LookupError(key)
        if kind in (list, tuple):
            return kind.__getitem__(value, key)
    # What `nn.Sequential`, `nn.ModuleList` and `nn.ModuleDict` would give.
    getters = [each for each in bases(type(value)) if "__getitem__" in of(each)]
    if getters and of(getters[0])["__module__"] == "torch.nn.modules.container":
        for modules in parts(value)[2:]:
            if str(key) in modules:
                return modules[str(key)]
    raise TypeError(key)
