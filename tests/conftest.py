"""Shared by the tests: golden files, and kanalyze as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files anew instead of comparing with them",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8"), "see --update-golden"

    return check


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for the session, so that no test depends on the user's.

    The processes of pytest-xdist, whose folders lie side by side, share it.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kanalyze-cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KANALYZE_CACHE_DIR", str(folder))
        for name in ("TRITON_CACHE_DIR", "NO_COLOR", "CLICOLOR_FORCE", "KANALYZE_DEBUG", "COLUMNS"):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def process(shared_cache: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``python -m kanalyze`` with arguments; keyword arguments as for `subprocess.run`."""

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KANALYZE_CACHE_DIR": str(shared_cache)}
        environment |= options.pop("env", {})  # type: ignore[arg-type]
        settings: dict[str, object] = {"cwd": ROOT, "capture_output": True, "text": True}
        settings |= {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        settings |= {"timeout": 300, "env": environment, **options}
        return subprocess.run([sys.executable, "-m", "kanalyze", *arguments], **settings)  # type: ignore[call-overload,no-any-return]

    return run
