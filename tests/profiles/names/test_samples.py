"""Every family's sample file: names from profiles and generators with what they state."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from kanalyze.profiles.names import FAMILIES, KEYS, decode, explain, families
from kanalyze.profiles.names.cpp import CppText, read
from kanalyze.profiles.names.decode import _read, _subjects
from kanalyze.profiles.names.text import prepare

DATA = Path(__file__).parents[2] / "data" / "names"
NAMES = sorted(path.stem for path in DATA.glob("*.jsonl"))


def rows(family: str) -> list[dict[str, object]]:
    lines = (DATA / f"{family}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


ALL = [(family, row) for family in NAMES for row in rows(family)]


WHOLE = [(family, row) for family, row in ALL if not row["truncated"]]


def ident(item: object) -> str:
    return str(item["name"])[:60] if isinstance(item, dict) else str(item)


def plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def test_every_family_has_a_sample_file() -> None:
    assert {family.name for family in FAMILIES} == set(NAMES)


def test_families_are_listed_once() -> None:
    names = [family.name for family in families()]
    assert len(names) == len(set(names)) == 28
    assert all(family.what for family in families())


@pytest.mark.parametrize(("family", "row"), ALL, ids=ident)
def test_sample(family: str, row: dict[str, object]) -> None:
    kernel = decode(str(row["name"]))
    assert kernel.family == row["family"]
    assert kernel.truncated == row["truncated"]
    expected = row["expected"]
    assert isinstance(expected, dict)
    found = {key: plain(kernel.decoded.get(key)) for key in expected}
    assert found == expected
    if "demangled" in row:
        assert kernel.demangled is not None
        assert spelled(kernel.demangled) == spelled(str(row["demangled"]))


def spelled(text: str) -> str:
    while "> >" in text:
        text = text.replace("> >", ">>")
    return text


@pytest.mark.parametrize(("family", "row"), ALL, ids=ident)
def test_fields_lie_in_the_text(family: str, row: dict[str, object]) -> None:
    kernel = decode(str(row["name"]))
    for item in (*kernel.fields, *kernel.undecoded):
        assert 0 <= item.start <= item.end <= len(kernel.text)
        assert kernel.text[item.start : item.end] == item.text
        assert item.text
    assert {field.key for field in kernel.fields} == set(kernel.decoded)
    assert len(kernel.fields) == len(kernel.decoded), "a key is stated twice"
    assert set(kernel.decoded) <= set(KEYS)
    assert [row.start for row in explain(kernel)] == sorted(row.start for row in explain(kernel))


def accepting(name: str) -> list[set[str]]:
    """For each thing in the name that can be read: the families whose grammar accepts it."""
    text = prepare(name).text
    source = CppText(text, False)
    found = []
    for subject in _subjects(source, read(source), source.cut):
        who = set()
        for family in families():
            wanted = family.form == subject.form and (family.wrapped or not subject.wrapped)
            if wanted and _read(family, source, subject) is not None:
                who.add(family.name)
        found.append(who)
    return found


@pytest.mark.parametrize(("family", "row"), WHOLE, ids=ident)
def test_one_grammar_at_most_accepts_a_name(family: str, row: dict[str, object]) -> None:
    kernel = decode(str(row["name"]))
    text = kernel.text.removesuffix(" [clone .kd]")
    ways = accepting(text)
    assert all(len(way) <= 1 for way in ways), ways
    # What a wrapper holds comes first, then the wrapper itself (cutlass::Kernel2<…>).
    first = next((way for way in ways if way), {"other"})
    if kernel.family not in ("other", "mangled"):
        assert first == {kernel.family}
    others = set().union(*ways) - first
    assert others <= {"cutlass_template"}


def test_a_decoded_name_is_a_value() -> None:
    for _, row in ALL:
        kernel = decode(str(row["name"]))
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        assert copy.deepcopy(kernel) == kernel
        assert hash(kernel) == hash(copy.copy(kernel))
        with pytest.raises(TypeError):
            kernel.decoded["op"] = "changed"  # type: ignore[index]


def test_to_dict_is_plain() -> None:
    for _, row in ALL:
        kernel = decode(str(row["name"]))
        again = json.loads(json.dumps(kernel.to_dict()))
        assert again == kernel.to_dict()
        assert again["decoded"] == {key: plain(value) for key, value in kernel.decoded.items()}
