"""Folders and files of reports, wherever they are to be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cyclescope._files import exists, make_folder


def test_a_folder_is_made_with_those_around_it(tmp_path: Path) -> None:
    folder = tmp_path / "one" / "two" / "three"
    for _ in range(2):
        make_folder(folder)
        assert folder.is_dir()
        assert exists(folder)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in "file", "file/folder":
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make_folder(tmp_path / name)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="this system has no such folder")
def test_a_folder_that_the_system_refuses() -> None:
    with pytest.raises(OSError, match="proc"):
        make_folder(Path("/proc/folder"))


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(OSError, match="link"):
        make_folder(tmp_path / "link" / "folder")


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        make_folder(Path("reports"))
