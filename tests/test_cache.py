"""The cache folder: where it is, that entries survive damage, that it may be missing."""

import os
import threading
import warnings
from pathlib import Path

import pytest

from kanalyze import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path / "cache"


def test_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache.cache_dir() == tmp_path / "a"
    monkeypatch.delenv("KANALYZE_CACHE_DIR")
    assert cache.cache_dir() == tmp_path / "b" / "kanalyze"
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the XDG specification
    assert cache.cache_dir() == tmp_path / "c/.cache/kanalyze"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_dir() == tmp_path / "c/.cache/kanalyze"


def test_keys_do_not_collide():
    assert cache.key("ab", "c") != cache.key("a", "bc")
    assert cache.key("a", b"b") == cache.key(b"a", "b")
    assert len({cache.key(), cache.key(""), cache.key("", "")}) == 3
    assert cache.key("\udc80")  # what a file name that is not UTF-8 becomes


def test_store_and_load(folder):
    assert cache.load("x") is None
    cache.store("x", b"content")
    assert cache.load("x") == b"content"
    cache.store("x", b"")
    assert cache.load("x") == b""
    assert [path.name for path in (folder / "tools").iterdir()] == ["x"]  # no temporary file left


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 32 + b"content", b"\0" * 100])
def test_a_damaged_entry_is_absent(folder, damage):
    cache.store("x", b"content")
    (folder / "tools/x").write_bytes(damage)
    assert cache.load("x") is None
    cache.store("x", b"new")
    assert cache.load("x") == b"new"


def test_size_and_clear_touch_only_what_is_ours(folder):
    assert cache.size() == 0
    assert cache.clear() == 0
    cache.store("x", b"12345678")
    assert cache.triton_dir() == folder / "triton"
    (folder / "triton/kernel.ptx").write_bytes(b"1" * 100)
    assert cache.folder("numba", "a") == folder / "numba/a"
    (folder / "numba/a/code").write_bytes(b"1" * 10)
    (folder / "mine.txt").write_bytes(b"22")
    assert cache.size() == 40 + 100 + 10 + 2
    assert cache.clear() == 150
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert cache.load("x") is None


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "file/below"))
    monkeypatch.setattr(cache, "_warned", set())
    with pytest.warns(RuntimeWarning, match=r"cannot be written to .* KANALYZE_CACHE_DIR"):
        cache.store("x", b"content")
    cache.store("y", b"content")  # silent: a second warning would be an error
    assert cache.triton_dir() is None
    assert cache.load("x") is None
    assert cache.size() == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(folder):
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        cache.store("x", b"content")


def test_writers_at_the_same_time(folder):
    contents = [bytes([n]) * 10_000 for n in range(8)]
    seen: list[bytes | None] = []

    def work(content: bytes) -> None:
        for _ in range(20):
            cache.store("x", content)
            seen.append(cache.load("x"))

    threads = [threading.Thread(target=work, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= set(contents)


def test_compiling_without_a_cache(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "file/below"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache, "_warned", set())
    with pytest.warns(RuntimeWarning) as caught:
        compiled = compile_kernel("gelu")
    assert len(caught) == 1
    assert "EXIT" in compiled.sass


def test_compiling_twice_runs_no_tool_again(folder, monkeypatch):
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel
    from kanalyze.toolchain import tools

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    first = compile_kernel("gelu")
    sass = first.sass

    def refuse(*_: object, **__: object) -> str:
        raise AssertionError("a tool was run")

    with monkeypatch.context() as patch:
        patch.setattr(tools, "run", refuse)
        again = compile_kernel("gelu")
        assert again.resources == first.resources
        assert again.sass == sass

    for entry in (folder / "tools").iterdir():
        entry.write_bytes(b"damaged")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mended = compile_kernel("gelu")
    assert mended.resources == first.resources
    assert mended.sass == sass
    assert isinstance(mended.source_file, Path)
