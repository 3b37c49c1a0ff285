"""Files are replaced whole, and what is no file stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cyclescope._files import write_whole


def test_a_link_stays_one_and_permissions_too(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "baseline.json").write_text("old")
    (shared / "baseline.json").chmod(0o600)
    (tmp_path / "link.json").symlink_to("shared/baseline.json")
    write_whole(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (shared / "baseline.json").read_text() == "new"
    assert stat.S_IMODE((shared / "baseline.json").stat().st_mode) == 0o600
    (tmp_path / "dangling.json").symlink_to("shared/new.json")
    write_whole(tmp_path / "dangling.json", "new")
    assert (shared / "new.json").read_text() == "new"
    assert sorted(it.name for it in shared.iterdir()) == ["baseline.json", "new.json"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "all of it")
    reader.join()
    assert read == ["all of it"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_descriptor_is_written_to() -> None:
    if not Path("/dev/fd").is_dir():
        pytest.skip("the system does not show descriptors as files")
    reading, writing = os.pipe()
    try:
        write_whole(Path(f"/dev/fd/{writing}"), "all of it")
        assert os.read(reading, 100) == b"all of it"
    finally:
        os.close(reading)
        os.close(writing)


def test_standard_output_keeps_what_was_written_to_it(tmp_path: Path) -> None:
    if not Path("/dev/stdout").exists():
        pytest.skip("the system does not show standard output as a file")
    with (tmp_path / "log.txt").open("w") as log:
        code = """if True:
            from pathlib import Path
            from cyclescope._files import write_whole
            print("before", flush=True)
            write_whole(Path("/dev/stdout"), "result\\n")
        """
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log.txt").read_text() == "before\nresult\n"


def test_the_longest_name_is_written(tmp_path: Path) -> None:
    name = "n" * 250 + ".json"
    write_whole(tmp_path / name, "text")
    assert [it.name for it in tmp_path.iterdir()] == [name]
