"""Files to documents: what is read, what is refused, and the position in the error."""

import gc
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.scenarios import documents
from holdfast.api.documents import MAX_ALIASES, MAX_DEPTH
from holdfast.snapshot.manifests import InvalidInput, load_files


def values(text: str) -> list[Any]:
    return [document.data for document in documents(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: 1.5", {"a": 1.5}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: 100m", {"a": "100m"}),
        ("a: 0x10", {"a": 16}),
        ("a: 18446744073709551615", {"a": 2**64 - 1}),
        ("a: 1000000000000000000000000000000", {"a": 1e30}),
        ('{"a": -1000000000000000000000000000000}', {"a": -1e30}),
        ("a: " + "1" * 5000, {"a": float("inf")}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 010", {"a": "010"}),
        ("a: yes", {"a": True}),
        ("a: 'yes'", {"a": "yes"}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: 2026-01-01T00:00:00Z", {"a": "2026-01-01T00:00:00Z"}),
        ("a: 2026-01-01", {"a": "2026-01-01"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("d: {c: 3, <<: [{c: 4, e: 5}]}", {"d": {"c": 3, "e": 5}}),
        ('{"a":\t[1, null]}', {"a": [1, None]}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert values(text) == [value]


def test_documents_are_numbered_from_one_and_empty_ones_count() -> None:
    found = documents("# a word\n---\na: 1\n---\n# nothing\n---\nb: 2\n")
    assert [(d.number, d.line, d.data) for d in found] == [(1, 3, {"a": 1}), (3, 7, {"b": 2})]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\n---\nb: 1\nb: 2", "document 2, line 4: key 'b' is given twice"),
        ("a: [1", "document 1, line 2: not YAML"),
        ("a: 1\n\tb: 2", "document 1, line 2: not YAML"),
        ("a: *x", "document 1, line 1: *x refers to nothing before it"),
        ("a: &x [*x]", "document 1, line 1: *x refers to nothing before it"),
        ("a: !!python/object:os.system x", "document 1, line 1: tag !!python/object:os.system"),
        ("? [a]\n: 1", "document 1, line 1: a mapping or list cannot be a key"),
        ("[" * 100_000, f"document 1, line 1: nested deeper than {MAX_DEPTH} levels"),
        ("a: &x 1\nb: [" + "*x," * (MAX_ALIASES + 1) + "]", f"more than {MAX_ALIASES} aliases"),
        ("a: \x01", "not YAML"),
    ],
    ids=lambda text: text[:20].replace("\n", " "),
)
def test_what_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        load_files([str(file)])
    assert complaint in refused.value.problems[0]
    assert refused.value.problems[0].startswith(str(file))


def test_aliases_cannot_make_a_small_file_huge(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    file = tmp_path / "laughs.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match="aliases make this document too large"):
        load_files([str(file)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": 1, "a": 2}', "key 'a' is given twice"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": NaN}', "not JSON: NaN is not a number"),
        (r'{"a": "\ud83d"}', "not Unicode text"),
        ("[" * 100_000, "nested deeper"),
        ("[" * 70 + "]" * 70, "nested deeper"),
    ],
    ids=lambda text: text[:10],
)
def test_json_is_held_to_the_same(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=complaint):
        load_files([str(file)])


def test_folders_are_read_in_order_and_lists_are_taken_apart(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text("{kind: List, items: [{n: 2}, {n: 3}]}")
    (tmp_path / "a.json").write_text(json.dumps({"n": 1}))
    (tmp_path / "notes.txt").write_text("not a scenario: [")
    found = load_files([str(tmp_path)])
    assert [document.data["n"] for document in found] == [1, 2, 3]
    assert str(found[2]).endswith("b.yml: document 1, line 1, items[1]")


def test_whole_surrogate_pairs_are_characters(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(r'{"a": "\ud83d\ude00"}')
    assert [document.data for document in load_files([str(tmp_path)])] == [{"a": "\U0001f600"}]


def test_all_files_are_complained_about_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(InvalidInput) as refused:
        load_files([str(tmp_path / "missing.yaml"), str(tmp_path)])
    complaints = ("No such file", "not UTF-8 text, at byte 3", "not YAML")
    for complaint in complaints:
        assert any(complaint in problem for problem in refused.value.problems)


def _collections(path: Path) -> int:
    """How often the garbage collector looks at objects while a file is read."""
    seen: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(note)
    try:
        load_files([str(path)])
    finally:
        gc.callbacks.remove(note)
    return seen.count("start")


def test_garbage_is_not_looked_for_while_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "objects.json.gz"
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}} for i in range(5000)]
    path.write_bytes(gzip.compress(json.dumps({"kind": "List", "items": pods}).encode()))
    assert gc.isenabled()
    assert _collections(path) <= 1  # once everything is read
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(b"a: 1")[:-9], "damaged gzip file: it ends before its end-of-stream marker"),
        (gzip.compress(b"a: 1") + b"x", "damaged gzip file: something follows that is not compressed"),
        (gzip.compress(b"a: 1")[:-8] + bytes(8), "damaged gzip file: Error -3"),
        (gzip.compress(b"a: \xff"), "not UTF-8 text, at byte 3"),
    ],
    ids=["cut off", "followed by more", "wrong checksum", "not text"],
)
def test_damaged_compressed_files(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.yaml.gz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"a\.yaml\.gz") as caught:
        load_files([str(path)])
    assert problem in str(caught.value)


def test_members_of_a_compressed_file_are_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml.gz"
    path.write_bytes(gzip.compress(b"a: 1\n") + gzip.compress(b"b: 2\n") + bytes(3))
    assert [each.data for each in load_files([str(path)])] == [{"a": 1, "b": 2}]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.yaml"])
def test_json_values_one_after_the_other(name: str, tmp_path: Path) -> None:
    """As `jq -c '.items[]'` prints them, and as `kubectl get -o json` does for several calls."""
    text = '{"a": 1}\n{"b": 2}\r\n\n{\n "kind": "List", "items": [{"c": 3}, {"d": 4}]\n}\n{"e": 5}'
    path = tmp_path / name
    path.write_text(text, newline="")
    found = load_files([str(path)])
    assert [(d.number, d.line, d.data) for d in found] == [
        (1, 1, {"a": 1}),
        (2, 2, {"b": 2}),
        (3, 4, {"c": 3}),
        (3, 4, {"d": 4}),
        (4, 7, {"e": 5}),
    ]


def test_an_error_in_one_of_several_json_values_has_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}\n\n{"b": 2, "b": 3}\n')
    with pytest.raises(InvalidInput, match="document 2, line 3: key 'b' is given twice"):
        load_files([str(path)])
    path.write_text('{"a": 1}\n{"b": 2')
    with pytest.raises(InvalidInput, match="line 2: not JSON"):
        load_files([str(path)])


def test_text_as_windows_powershell_redirects_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes("a: ü\r\n---\r\nb: 2\r\n".encode("utf-16"))
    assert [each.data for each in load_files([str(path)])] == [{"a": "ü"}, {"b": 2}]
