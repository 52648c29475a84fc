"""The one place on disk where kanalyze keeps what it may recompute.

Layout below :func:`cache_dir`: ``triton/`` is Triton's own compilation cache, ``numba/`` holds the
machine code of the memory model, ``tools/`` outcomes of NVIDIA's tools. Every key is a hash of the
input bytes, the tool and its flags, so an entry is never stale, only unused; deleting the folder is
always safe.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings
from pathlib import Path

_warned: set[str] = set()


def cache_dir() -> Path:
    """Return the cache folder (it need not exist).

    ``$KANALYZE_CACHE_DIR``, else ``$XDG_CACHE_HOME/kanalyze``, else ``~/.cache/kanalyze``
    (XDG Base Directory Specification 0.8: a relative ``$XDG_CACHE_HOME`` is to be ignored).
    """
    own = os.environ.get("KANALYZE_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg) / "kanalyze"
    try:
        return Path.home() / ".cache" / "kanalyze"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"kanalyze-{os.getuid()}"


def key(*parts: str | bytes) -> str:
    """Return the SHA-256 (hex) of the parts, each with its length, so that no two lists collide."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def load(name: str) -> bytes | None:
    """Return the entry of that name, or None where there is none or it is damaged.

    Each entry starts with the SHA-256 of its content; an entry that does not match it (cut short,
    edited) counts as absent.
    """
    try:
        data = (_entries() / name).read_bytes()
    except OSError:
        return None
    digest, content = data[:32], data[32:]
    return content if hashlib.sha256(content).digest() == digest else None


def store(name: str, content: bytes) -> None:
    """Write an entry atomically; a folder that cannot be written to costs one warning, no more."""
    folder = _entries()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / name, hashlib.sha256(content).digest() + content, 0o600)
    except OSError as error:
        warn_unwritable(cache_dir(), error)


def write_whole(path: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def triton_dir() -> Path | None:
    """Return the folder for Triton's cache below ours, made; None where it cannot be written to."""
    return folder("triton")


def folder(*names: str) -> Path | None:
    """Return a folder below ours, made; None, with a warning, where it cannot be written to."""
    below = cache_dir().joinpath(*names)
    try:
        below.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=below):
            return below
    except OSError as error:
        warn_unwritable(cache_dir(), error)
        return None


def warn_unwritable(folder: Path, error: OSError) -> None:
    """Warn, once for each folder, that work goes on without a cache."""
    if str(folder) not in _warned:
        _warned.add(str(folder))
        reason = error.strerror or str(error)
        warnings.warn(
            f"cache folder {folder} cannot be written to ({reason}); going on without a cache "
            "(set KANALYZE_CACHE_DIR to a writable folder)",
            RuntimeWarning,
            stacklevel=3,
        )


def size() -> int:
    """Return the bytes that the files in the cache take."""
    total = 0
    for folder, _, names in os.walk(cache_dir()):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # removed meanwhile by another process
                continue
    return total


def clear() -> int:
    """Delete what kanalyze keeps in the cache folder; return the bytes freed.

    Only the folders that kanalyze makes are deleted, so a ``$KANALYZE_CACHE_DIR`` that holds
    other things loses none of them.
    """
    before = size()
    for name in ("triton", "numba", "tools"):
        shutil.rmtree(cache_dir() / name, ignore_errors=True)
    return before - size()


def _entries() -> Path:
    return cache_dir() / "tools"
