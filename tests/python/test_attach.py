"""``cyclescope attach``: a process that knows nothing of cyclescope is asked, and goes on unharmed.

Only Python 3.14 and later let others in, so older ones test what is refused; `make test-matrix` has
all versions.
"""

from __future__ import annotations

import ast
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cyclescope._attach import process, request
from cyclescope._attach.request import AttachError
from cyclescope._cli.attach import steps
from cyclescope._native import CycleReport, Heap, Retention
from support.attached import LEAKY, asked, attach, lets_in, program, refusal
from support.processes import python
from support.started import SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attach works on Linux only")


@lets_in
def test_cycles_and_heap_are_those_of_the_process(tmp_path: Path) -> None:
    with program(tmp_path, LEAKY) as running:
        answer = asked(running.pid, "cycles", "heap")
        heap = Heap.from_json(answer["heap"])
        assert sum(it.bytes for it in heap.buffers if "history" in it.owner) == 3 * 2**20
        report = CycleReport.from_json(answer["cycles"])
        assert [(leak.bytes_held, leak.summary) for leak in report.leaks] == [
            (2**20, "Node.me → Node")
        ]
        said = attach(running.pid)
        assert (said.returncode, said.stderr) == (0, "")
        assert "Node.me → Node" in said.stdout
        assert "module `__main__` → `history` (list, 3 items)" in said.stdout
        both = json.loads(attach(running.pid, "--json").stdout)
        assert sorted(both) == ["cycles", "heap"]
        assert "Node" not in attach(running.pid, "--heap").stdout
        assert "`history`" not in attach(running.pid, "--cycles").stdout
        # Nothing was collected: the cycle is there each time.
        CycleReport.from_json(attach(running.pid, "--cycles", "--json").stdout)
        assert running.errors == ""


@lets_in
@pytest.mark.parametrize(
    ("name", "size", "keeper"),
    [
        ("history[1]", 2**20, "module `__main__` → `history` (list, 3 items) → [1]"),
        ("__main__.history[-1]", 2**20, "module `__main__` → `history` (list, 3 items) → [2]"),
        ("trainer.kept['best']", 56, ".kept (dict, 2 items) → ['best']"),
        ("trainer.kept[3]", 72, ".kept (dict, 2 items) → [3]"),
        ("trainer.model", 40, "module `__main__` → `trainer` (Trainer) → .model"),
        ("trainer.default[0]", 80, ".default (list, 1 item) → [0]"),
        ("Trainer.default[0]", 80, ".default (list, 1 item) → [0]"),
        ("batch", 24, "local `batch` in `train`"),
    ],
)
def test_why_finds_what_is_named(tmp_path: Path, name: str, size: int, keeper: str) -> None:
    with program(tmp_path, LEAKY) as running:
        answer = asked(running.pid, "why", name=steps(name))["why"]
        (kept,) = json.loads(answer)["objects"]
        assert kept["bytes"] == size
        # Nothing of ours is among what keeps it.
        (found,) = Retention.from_json(answer).keepers
        assert keeper in found.words
        said = attach(running.pid, "--why", name)
        assert keeper.partition(" (")[0] in said.stdout, said


@lets_in
@pytest.mark.parametrize(
    "name", ["nothing", "trainer.nothing", "history['a']", "history[9]", "trainer.shown"]
)
def test_a_name_that_leads_nowhere(tmp_path: Path, name: str) -> None:
    hostile = LEAKY.replace(
        "    default",
        """    @property
    def shown(self): os._exit(9)
    def __getattr__(self, name): os._exit(9)
    def __getattribute__(self, name): os._exit(9)
    default""",
    ).replace("trainer.kept =", "object.__setattr__(trainer, 'kept', 1); history.kept =", 0)
    with program(tmp_path, hostile) as running:
        said = attach(running.pid, "--why", name)
        assert said.returncode == 2
        first = name.partition(".")[0].partition("[")[0]
        assert "has no" in said.stderr or f"is named {first!r}" in said.stderr
        assert running.process.poll() is None


@lets_in
@pytest.mark.parametrize(
    ("name", "size"),
    [("model.layers[1].weight", 24), ("model.scale", 16), ("model.layers[0]", None)],
)
def test_parts_of_modules_are_found_without_their_code(
    tmp_path: Path, name: str, size: int | None
) -> None:
    modules = """
    class Module:
        def __init__(self, parameters=(), buffers=(), modules=()):
            self._parameters, self._buffers = dict(parameters), dict(buffers)
            self._modules = dict(modules)
        def __getattr__(self, name): os._exit(9)
    class List(Module):
        __module__ = "torch.nn.modules.container"
        def __getitem__(self, name): os._exit(9)
    layers = [Module(), Module({"weight": numpy.zeros(3)})]
    layers = List(modules={str(at): it for at, it in enumerate(layers)})
    model = Module((), {"scale": numpy.zeros(2)}, {"layers": layers})
    print("ready", flush=True)
    wait()
    """
    with program(tmp_path, modules) as running:
        (kept,) = json.loads(asked(running.pid, "why", name=steps(name))["why"])["objects"]
        assert kept["bytes"] == size


@lets_in
def test_no_automatic_collection_begins_on_our_thread(tmp_path: Path) -> None:
    source = """
    class Closing(Node):
        def __del__(self):
            print("closed", file=sys.stderr, flush=True)
    gc.collect()
    gc.freeze()
    gc.set_threshold(600)
    for _ in range(100):
        Closing()
    print("ready", flush=True)
    ctypes.CDLL(None).usleep(1)
    while True:
        time.sleep(0.005)
    """
    with program(tmp_path, source) as running:
        (leak,) = CycleReport.from_json(asked(running.pid, "cycles")["cycles"]).leaks
        assert leak.count == 100
        assert running.errors == ""


@pytest.mark.parametrize("fails", ["raise RuntimeError", "raise OSError", "("])
def test_automatic_collections_are_on_again_whatever_fails(tmp_path: Path, fails: str) -> None:
    script = request._script(tmp_path, {})
    (tmp_path / "injected.py").write_text(fails, "utf-8")
    wait = "import gc, time\ntime.sleep(0.5)\nassert gc.isenabled()\n"
    assert python("-c", script.read_text("utf-8") + wait, cwd=tmp_path).returncode == 0


@lets_in
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_withdraws_its_request(
    tmp_path: Path, number: signal.Signals
) -> None:
    source = """
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(4)
    print("on", flush=True)
    wait()
    """
    ours = tmp_path / "ours"
    ours.mkdir()
    with program(tmp_path, source) as running:
        asking = subprocess.Popen(
            [sys.executable, "-m", "cyclescope", "attach", str(running.pid), "--watch"],
            env=os.environ | {"TMPDIR": str(ours)},
            stderr=subprocess.DEVNULL,
            # `nohup` has it ignored.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )
        while not list(ours.glob("*/script.py")):
            time.sleep(0.01)
        time.sleep(0.5)
        asking.send_signal(number)
        assert asking.wait(SECONDS) in (128 + number, -number)
        assert [running.line() for _ in range(2)] == ["on", "ready"]
        time.sleep(0.3)
        assert running.errors == ""
    assert not list(ours.iterdir())


@lets_in
def test_growth_is_what_came_in_between(tmp_path: Path) -> None:
    source = LEAKY.replace("time.sleep(0.005)", "time.sleep(0.005); history.append(batch + 1)")
    with program(tmp_path, source) as running:
        said = attach(running.pid, "--growth", "0.5", "--json")
        rows = {each["name"]: each for each in json.loads(said.stdout)["owners"]}
        (grown,) = (row for name, row in rows.items() if "history" in name)
        assert grown["bytes"] == 24 * grown["buffers"] > 0
        assert len([row for row in rows.values() if row["bytes"]]) == 1
        assert "history" in attach(running.pid, "--growth", "0.2").stdout


# It goes on unharmed


# Each step trains a layer, leaks, makes cycles that finalizers see, and takes signals.
TRAINING = """
numbers = numpy.random.default_rng(3)
weights = numbers.normal(size=(8, 8))
history, ended = [], []

class Step(Node):
    def __init__(self, number):
        super().__init__()
        self.number = number
    def __del__(self):
        ended.append(self.number)

alarms = []
def alarm(number, frame):
    alarms.append(threading.current_thread().name)

def descriptors():
    # The last request may be under way, with a file in the caller's folder open.
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return len([path for path in found if "cyclescope-attach-" not in path])

signal.signal(signal.SIGALRM, alarm)
wait()
modules, paths = set(sys.modules), sys.path[:]
for number in range(60):
    batch = numbers.normal(size=(16, 8))
    weights -= 1e-3 * batch.T @ (batch @ weights)
    history.append(weights.copy())
    Step(number)
    if number % 20 == 19:
        gc.collect()
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    while len(alarms) == number:
        sum(range(100))
# Automatic collections are off while an answer is written.
enabled = False
while not enabled:
    enabled = gc.isenabled()
state = {
    "weights": weights.tobytes().hex()[:64],
    "history": float(sum(each.sum() for each in history)),
    # What an attach allocates may shift when the next automatic collection comes.
    "ended": sorted(ended),
    "alarms": alarms,
    "paths": sys.path == paths,
    "ours": [name for name in sys.modules if "cyclescope" in name],
    "threads": [each.name for each in threading.enumerate()],
    "collector": [gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage],
    "collections": gc.get_stats()[2]["collections"],
    "handler": signal.getsignal(signal.SIGALRM) is alarm,
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "files": sorted(os.listdir(".")),
    "descriptors": descriptors(),
    "hooks": [sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__],
    "environment": sorted(os.environ),
}
print(state)
"""


@lets_in
def test_a_training_that_is_attached_all_the_time_comes_to_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    results = []
    for folder, attached in (tmp_path / "bare", False), (tmp_path / "attached", True):
        folder.mkdir()
        count = 0
        with program(folder, TRAINING) as running:
            running.go_on()
            deadline = time.monotonic() + SECONDS
            while running.process.poll() is None and time.monotonic() < deadline:
                if not attached:
                    time.sleep(0.01)
                    continue
                what = chance.choice([["cycles"], ["heap"], ["why"], ["cycles", "heap", "why"]])
                name = steps(chance.choice(["history", "weights", "modules", "nothing"]))
                said = ""
                try:
                    asked(running.pid, *what, name=name)
                    count += 1
                except AttachError as error:
                    said = str(error)
                # There is no such name, or no such process any more.
                assert not said or any(it in said for it in ("nothing", "end"))
            results.append(running.line())
            assert (running.process.wait(), running.errors) == (0, "")
        assert not attached or count >= 2
    assert results[0] == results[1]


@lets_in
def test_nothing_remains(tmp_path: Path) -> None:
    source = """
    gc.collect()
    gc.disable()
    def count():
        return len(gc.get_objects()), len(sys.modules), len(os.listdir("/proc/self/task"))
    wait()
    before = count()
    wait()
    print([before, count(), [name for name in sys.modules if "cyclescope" in name]], flush=True)
    """
    with program(tmp_path, source) as running:
        # The first brings the extension, which cannot be unloaded.
        asked(running.pid, "cycles", "heap")
        running.go_on()
        assert running.line() == "ready"
        for _ in range(20):
            asked(running.pid, "cycles", "heap")
        time.sleep(0.2)
        running.go_on()
        before, after, ours = ast.literal_eval(running.line())
        assert abs(after[0] - before[0]) <= 3
        assert (after[1:], ours) == (before[1:], [])


@lets_in
def test_a_program_that_has_cyclescope_keeps_it(tmp_path: Path) -> None:
    source = f"""
    sys.path.append({str(process.package_folder().parent)!r})
    import cyclescope
    import cyclescope._native
    native = sys.modules["cyclescope._native"]
    names = dir(native)
    watch = cyclescope.observe_tensor_cycles(print, devices="any")
    wait()
    assert sys.modules["cyclescope._native"] is native and dir(native) == names
    watch.stop()
    Node()
    print(len(cyclescope.find_tensor_cycles(devices="any").leaks), flush=True)
    """
    with program(tmp_path, source) as running:
        for _ in range(3):
            asked(running.pid, "cycles", "heap")
        running.go_on()
        assert running.line() == "1"
        assert running.process.wait() == 0


@lets_in
def test_watch_stays_and_warns(tmp_path: Path) -> None:
    source = """
    wait()
    paths = sys.path[:]
    wait()
    Node()
    gc.collect()
    assert sys.path == paths
    """
    with program(tmp_path, source) as running:
        running.go_on()
        assert running.line() == "ready"
        leaks = str(tmp_path / "leaks")
        said = attach(running.pid, "--watch", "--devices", "any", "--report-dir", leaks)
        assert (said.returncode, said.stdout) == (0, ""), said
        # Again, as for a script.
        said = attach(running.pid, "--watch", "--devices", "any", "--json", "--report-dir", leaks)
        assert json.loads(said.stdout) == {"schema": 1, "pid": running.pid, "watched": True}
        running.go_on()
        assert running.process.wait() == 0
        assert "Node.me → Node" in running.errors
        assert list(Path(leaks).glob("*.html"))


# What stands in the way


def test_a_process_that_does_not_exist() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert "it has ended" in refusal(ended.pid)  # a zombie
    ended.wait()
    assert f"no process {ended.pid}: it has ended" in refusal(ended.pid)
    said = attach(ended.pid)
    assert (said.returncode, said.stdout) == (2, "")
    assert "cyclescope attach: error: no process" in said.stderr
    assert "call cyclescope.heap()" in refusal(os.getpid())


@lets_in
def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    source = "print('ready', flush=True)\nctypes.CDLL(None).sleep(1)\nos._exit(0)"
    with program(tmp_path, source) as running:
        assert "has ended before it answered" in refusal(running.pid)


@lets_in
def test_a_process_that_gets_to_no_safe_point_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(ours))
    source = """
    print("ready", flush=True)
    ctypes.CDLL(None).sleep(3)
    print("on", flush=True)
    wait()
    """
    with program(tmp_path, source) as running:
        said = refusal(running.pid, timeout=0.3)
        assert "did not reach a safe point" in said
        assert "CYCLESCOPE_SIGNAL=USR2" in said
        # It comes to it later, finds nothing to do, and complains of nothing.
        assert [running.line() for _ in range(2)] == ["on", "ready"]
        time.sleep(0.3)
        assert running.errors == ""
        assert asked(running.pid, "heap")
    assert not list(ours.iterdir())


@lets_in
@pytest.mark.parametrize(
    ("environment", "options", "why"),
    [
        ({"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, [], "PYTHON_DISABLE_REMOTE_DEBUG is set there"),
        ({}, ["-X", "disable-remote-debug"], "it was started with -X disable-remote-debug"),
        ({}, ["-Xdisable-remote-debug"], "it was started with -X disable-remote-debug"),
    ],
)
def test_a_process_that_lets_nobody_in(
    tmp_path: Path, environment: dict[str, str], options: list[str], why: str
) -> None:
    with program(tmp_path, "wait()", environment, options) as running:
        said = refusal(running.pid)
        assert why in said
        assert "CYCLESCOPE_SIGNAL" in said
        # The interpreter says the same.
        with pytest.raises(RuntimeError, match="not enabled in the remote process"):
            sys.remote_exec(running.pid, os.devnull)  # type: ignore[attr-defined, unused-ignore]


@lets_in
def test_a_process_that_is_no_python() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            assert "does not run Python" in refusal(other.pid)
        finally:
            other.kill()


@lets_in
def test_a_process_with_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with program(tmp_path, LEAKY) as running:
        monkeypatch.setattr(process.Process, "sees", lambda _, path: not path.endswith(".so"))
        said = refusal(running.pid)
        assert "_native" in said
        assert "docker exec" in said


@lets_in
def test_off_is_off(tmp_path: Path) -> None:
    with program(tmp_path, LEAKY, {"CYCLESCOPE_OFF": "1"}) as running:
        assert "CYCLESCOPE_OFF is set" in refusal(running.pid)


@lets_in
@pytest.mark.parametrize("by", ["option", "environment"])
def test_redact_leaves_values_out(tmp_path: Path, by: str) -> None:
    environment = {"CYCLESCOPE_REDACT": "1"} if by == "environment" else {}
    with program(tmp_path, LEAKY, environment) as running:
        answer = asked(
            running.pid, "why", name=steps("trainer.kept['best']"), redact=by == "option"
        )
        assert "best" not in answer["why"]


def test_another_user_is_told_what_to_do() -> None:
    """In a child without privileges, which asks for the first process of the machine."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            text = process.why_refused(process.Process(1))
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as stream:
        said = stream.read()
    assert "this user may not inspect process 1, which belongs to user 0" in said
    assert "sudo" in said


@pytest.mark.parametrize(
    ("scope", "capable", "way_out"),
    [
        (0, False, "--cap-add=SYS_PTRACE"),
        (1, False, "sysctl kernel.yama.ptrace_scope=0"),
        (2, False, "sysctl kernel.yama.ptrace_scope=0"),
        (3, True, "until the machine is restarted"),
    ],
)
def test_each_obstacle_has_a_way_out(
    monkeypatch: pytest.MonkeyPatch, scope: int, capable: bool, way_out: str
) -> None:
    monkeypatch.setattr(process, "yama_scope", lambda: scope)
    monkeypatch.setattr(process, "may_trace", lambda: capable)
    assert way_out in process.why_refused(process.Process(os.getpid()))


def test_what_linux_tells_of_this_process(tmp_path: Path) -> None:
    own = process.Process(os.getpid())
    assert own.is_alive
    assert own.is_readable
    assert own.sees(sys.executable)
    assert not own.sees(str(tmp_path / "absent"))
    assert own.minor_version == sys.version_info.minor
    assert (own.user, own.group) == (os.geteuid(), os.getegid())
    assert own.refuses_debugging is None


@pytest.mark.parametrize("minor", [10, 13, 14, 15, 16])
def test_another_version_is_told_the_way_out(monkeypatch: pytest.MonkeyPatch, minor: int) -> None:
    monkeypatch.setattr(process.Process, "minor_version", minor)
    said = process.other_version(process.Process(4242))
    if minor == sys.version_info.minor:
        assert said is None
    elif minor < 14:
        assert said is not None
        assert "then `kill -USR2 PID` makes it write a report" in said
    else:
        assert said is not None
        assert f"python3.{minor} -m cyclescope attach 4242" in said


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can look into others")
def test_an_old_python_is_told_the_way_out(tmp_path: Path) -> None:
    with program(tmp_path, "wait()") as running:
        said = refusal(running.pid)
        assert "Python 3.14 or later" in said
        assert "then `kill -USR2 PID` makes it write a report" in said
        assert running.process.poll() is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("model", [(".", "model")]),
        ("a.b[0]['c'].d", [(".", "a"), (".", "b"), ("[", 0), ("[", "c"), (".", "d")]),
        ("a[-1]", [(".", "a"), ("[", -1)]),
    ],
)
def test_names_are_read(name: str, meant: list[tuple[str, object]]) -> None:
    assert steps(name) == meant


@pytest.mark.parametrize("name", ["", "f()", "a + b", "a[b]", "a[1:2]", "1", "a.", "x; y", "(a)()"])
def test_what_is_no_name_is_refused(name: str) -> None:
    said = attach(os.getpid(), "--why", name)
    assert said.returncode == 2
    assert "--why takes a name" in said.stderr


def test_wrong_numbers_are_refused() -> None:
    for options in ["--timeout", "0"], ["--timeout", "-1"], ["--growth", "0"]:
        said = attach(1, *options)
        assert said.returncode == 2
        assert f"{options[0]} must be" in said.stderr
    assert "invalid int value" in attach("abc").stderr
