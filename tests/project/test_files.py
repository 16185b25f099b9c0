"""Files in and out: packed or not, bounded, and never half written."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hitables import files
from hitables.errors import HitablesError


def test_plain_and_packed_files_read_the_same(tmp_path: Path) -> None:
    text = "*filter\n# caf\xe9\nCOMMIT\n"
    for name, data in (("plain", text.encode()), ("packed", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(data)
        assert files.read_text(str(tmp_path / name)) == text


def test_bytes_that_are_no_text_survive_reading_and_writing(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"# caf\xe9\n")
    files.write_text(str(path), files.read_text(str(path)))
    assert path.read_bytes() == b"# caf\xe9\n"


@pytest.mark.parametrize(("kept", "behind"), [(-9, b""), (10, b"\xff" * 40), (-8, bytes(8))])
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path: Path, kept: int, behind: bytes) -> None:
    path = tmp_path / "rules.gz"
    path.write_bytes(gzip.compress(b"*filter\nCOMMIT\n")[:kept] + behind)
    with pytest.raises(HitablesError, match=str(path)):
        files.read_text(str(path))


def test_bytes_behind_gzip_data_are_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "rules.gz"
    path.write_bytes(gzip.compress(b"*filter\nCOMMIT\n") + b"garbage")
    message = f"{path}: other bytes follow the gzip data; gzip -dc unpacks it without them"
    with pytest.raises(HitablesError, match=message):
        files.read_text(str(path))
    with files.open_stream(str(path)) as stream, pytest.raises(OSError) as caught:
        stream.read()
    assert str(files.trouble(str(path), caught.value)) == message


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name, reason in (("none/x", "No such file"), ("file/x", "Not a directory"), (".", "Is a directory")):
        path = f"{tmp_path}/{name}"
        with pytest.raises(HitablesError, match=f"{path}: {reason}"):
            files.check_outputs({"--output": path}, {})
    for path in (f"{tmp_path}/new", f"{tmp_path}/file", "/dev/null", "/dev/stdout", "-"):
        files.check_outputs({"--output": path}, {})
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_and_a_missing_file_are_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(HitablesError, match=str(path)):
            files.read_text(str(path))


def test_too_much_is_refused_without_reading_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 1 << 20)
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(5 << 20)))
    with pytest.raises(HitablesError, match="more than 1 MiB"):
        files.read_text(str(bomb))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HitablesError, match="No space left"):
        files.write_text(str(path), "new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("rules", "old")]


def test_the_mode_of_a_file_and_a_link_to_it_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "rules", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    files.write_text(str(link), "new")
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_owner_and_the_group_of_a_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("old")
    os.chown(path, 65534, 65533)
    path.chmod(0o640)
    for write in (
        lambda: files.write_text(str(path), "new"),
        lambda: files.write_chunks(str(path), [b"new"]),
    ):
        write()
        now = path.stat()
        assert (now.st_uid, now.st_gid, now.st_mode & 0o7777) == (65534, 65533, 0o640)
    assert path.read_text() == "new"


def test_chunks_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "packets"
    files.write_chunks(str(path), iter([b"one", memoryview(b"two"), b""]))
    path.chmod(0o600)
    assert path.read_bytes() == b"onetwo"

    def broken() -> Iterator[bytes]:
        yield b"three"
        raise HitablesError("no more")

    with pytest.raises(HitablesError, match="no more"):
        files.write_chunks(str(path), broken())
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("packets", b"onetwo")]
    files.write_chunks(str(path), [b"four"])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"four", 0o600)
    with pytest.raises(HitablesError, match="none/x: No such file"):
        files.write_chunks(str(tmp_path / "none/x"), [b"five"])


@pytest.mark.parametrize("packed", [False, True])
def test_a_stream_gives_plain_and_packed_bytes(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b"packets") if packed else b"packets")
    stream = files.open_stream(str(path))
    buffer = bytearray(20)
    assert stream.readinto(buffer) == 7 and buffer.startswith(b"packets") and stream.readinto(buffer) == 0
    stream.close()
    for missing in (tmp_path, tmp_path / "none"):
        with pytest.raises(HitablesError, match=str(missing)):
            files.open_stream(str(missing))
