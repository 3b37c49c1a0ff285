"""``cyclescope attach`` answers of the process as it is, and says so where it cannot."""

from __future__ import annotations

import json
from pathlib import Path

from cyclescope._attach import process
from cyclescope._cli.attach import steps
from cyclescope._native import Retention
from support.attached import LEAKY, asked, attach, lets_in, program, refusal


@lets_in
def test_what_the_answer_itself_imports_has_no_keeper_of_ours(tmp_path: Path) -> None:
    with program(tmp_path, LEAKY) as running:
        for name in ("os", "gc", "_signal"):
            found = Retention.from_json(asked(running.pid, "why", name=steps(name))["why"])
            assert not any(
                "said_of" in path.words or "answer" in path.words for path in found.paths
            )


@lets_in
def test_a_dictionary_does_not_make_what_it_is_asked_for(tmp_path: Path) -> None:
    source = """
    import collections
    counts = collections.defaultdict(list, known=[1])
    wait()
    """
    with program(tmp_path, source) as running:
        assert attach(running.pid, "--why", "counts['known']").returncode == 0
        said = attach(running.pid, "--why", "counts['new']")
        assert said.returncode == 2
        assert "counts` has no ['new']" in said.stderr
        assert "(defaultdict, 1 item)" in attach(running.pid, "--why", "counts['known']").stdout


@lets_in
def test_an_answer_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    source = """
    import resource
    print("ready", flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    while True:
        time.sleep(0.01)
    """
    with program(tmp_path, source) as running:
        said = attach(running.pid, "--heap")
        assert said.returncode == 2
        assert "could not write its answer" in said.stderr


@lets_in
def test_a_variable_comes_before_the_module_of_its_name(tmp_path: Path) -> None:
    source = """
    import json.decoder, statistics
    statistics = [numpy.ones(11)]  # of the program
    nothing = None
    def train():
        fractions = [numpy.ones(13)]
        wait()
    import fractions
    del fractions  # as where only something of it was imported
    train()
    """
    with program(tmp_path, source) as running:
        for name, size in (("statistics[0]", 88), ("fractions[0]", 104)):
            (kept,) = json.loads(asked(running.pid, "why", name=steps(name))["why"])["objects"]
            assert kept["bytes"] == size
        kinds = {"fractions": "list", "json.decoder": "module"}
        for name, kind in kinds.items():
            (kept,) = json.loads(asked(running.pid, "why", name=steps(name))["why"])["objects"]
            assert kept["type_name"] == kind
        assert "of this NoneType" in attach(running.pid, "--why", "nothing").stderr


@lets_in
def test_watch_does_not_claim_what_it_cannot(tmp_path: Path) -> None:
    source = f"""
    sys.path.append({str(process.package_folder().parent)!r})
    import cyclescope._native
    # As on a free-threaded build.
    cyclescope._native.unseen_collections = lambda: None
    wait()
    """
    with program(tmp_path, source) as running:
        said = attach(running.pid, "--watch")
        assert (said.returncode, said.stdout) == (2, "")
        assert "the collections of its Python cannot be watched" in said.stderr


@lets_in
def test_a_process_with_another_interpreter_is_refused_in_words(tmp_path: Path) -> None:
    source = """
    from concurrent import interpreters
    other = interpreters.create()
    wait()
    """
    with program(tmp_path, source) as running:
        assert "or has more than one interpreter" in refusal(running.pid)
