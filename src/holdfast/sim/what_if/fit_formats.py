"""The result of a check for CI: lines of fields in files, SARIF 2.1.0, JUnit XML."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import yaml

from holdfast import __version__
from holdfast.sim.what_if.fit_check import (
    DOES_NOT_FIT,
    FITS,
    NOT_CHECKED,
    CheckedObject,
    CheckResult,
    short_reasons,
)

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RULES = {
    "unschedulable": "Pods of the manifest would be pending",
    "preempts": "Pods of the manifest would preempt others",
    "reclaims": "Pods of other queues would be evicted for those of the manifest",
    "not-checked": "Pods of the manifest are not checked",
}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def find_lines(objects: Iterable[CheckedObject]) -> None:
    """Sets the line of the field of each object that does not fit, from its file. A file that cannot be
    read again, such as standard input, leaves the line of the document."""
    roots: dict[str, list[Any]] = {}
    for each in objects:
        file = each.document.file
        if each.fits or not each.field:
            continue
        if file not in roots:
            try:
                text = Path(file).read_text(encoding="utf-8-sig")
                roots[file] = [*yaml.compose_all(text, Loader=_Parser)]
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                roots[file] = []
        number = each.document.number - 1
        if number < len(roots[file]):
            item = f"items[{each.document.item}]." if each.document.item is not None else ""
            each.field_line = _line_of(roots[file][number], item + each.field)


def _line_of(root: Any, path: str) -> int:
    """The line of the field, or of the part nearest to it that is there."""
    line = root.start_mark.line + 1
    here = root
    rest = path
    while rest and here is not None:
        here, rest, line = _next(here, rest, line)
    return int(line)


def _next(node: Any, path: str, line: int) -> tuple[Any, str, int]:
    if isinstance(node, yaml.MappingNode):
        # A resource's name has dots, so the longest key that fits is taken.
        for key, value in sorted(node.value, key=lambda pair: -len(pair[0].value)):
            name = key.value
            if path == name or path.startswith((f"{name}.", f"{name}[")):
                return value, path[len(name) :].removeprefix("."), key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        match = _STEP.match(path)
        if match is not None and match[2] is not None and int(match[2]) < len(node.value):
            item = node.value[int(match[2])]
            return item, path[match.end() :].removeprefix("."), item.start_mark.line + 1
    return None, "", line


# SARIF


def sarif(result: CheckResult) -> dict[str, Any]:
    problems = [each for each in result.objects if not each.fits or each.preempts or each.reclaims]
    found = [_sarif_result(each) for each in problems]
    driver = {
        "name": "holdfast check",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in _RULES.items()],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": found}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_result(each: CheckedObject) -> dict[str, Any]:
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(each.document.file)},
            "region": {"startLine": each.field_line or each.line},
        },
        "logicalLocations": [{"name": each.field or each.object, "fullyQualifiedName": each.object}],
    }
    evicts = "preempts" if each.preempts else "reclaims"
    rules = {FITS: evicts, DOES_NOT_FIT: "unschedulable", NOT_CHECKED: "not-checked"}
    return {
        "ruleId": rules[each.status],
        "level": "error" if each.status == DOES_NOT_FIT else "warning",
        "message": {"text": problem_text(each)},
        "locations": [location],
    }


def _uri(file: str) -> str:
    """Relative to the working directory if the file is below it."""
    path = Path(file)
    if not path.is_absolute():
        return quote(path.as_posix())
    here = Path.cwd()
    return quote(path.relative_to(here).as_posix()) if path.is_relative_to(here) else path.as_uri()


def evicted_by(each: CheckedObject) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
    """The pods that have to go if it is applied, by what happens to them."""
    return ("preempts", each.preempts), ("reclaims capacity from", each.reclaims)


def problem_text(each: CheckedObject) -> str:
    """What is wrong, in one paragraph."""
    if each.status == NOT_CHECKED:
        return f"{each.object} is not checked: {each.not_checked}"
    if each.fits:
        verbs = [f"{verb} {', '.join(pods)}" for verb, pods in evicted_by(each) if pods]
        return f"{each.object} fits, but {' and '.join(verbs)}"
    missing = each.pods - each.placed
    pods = f"{missing} of {each.pods} pods do not fit" if each.pods > 1 else "does not fit"
    details = "".join(f" {line.rstrip('.')}." for line in each.details)
    return f"{each.object}: {pods}: {short_reasons(each)}.{details}"


# JUnit


def junit(result: CheckResult) -> str:
    failing = sum(each.status == DOES_NOT_FIT for each in result.objects)
    skipped = sum(each.status == NOT_CHECKED for each in result.objects)
    counts = f'tests="{len(result.objects)}" failures="{failing}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {counts}>",
        f'<testsuite name="holdfast check" {counts} skipped="{skipped}">',
    ]
    for each in result.objects:
        case = f"<testcase classname={quoteattr(each.document.file)} name={quoteattr(each.object)}"
        if each.fits:
            lines.append(f"{case}/>")
            continue
        if each.status == NOT_CHECKED:
            lines.append(f"{case}><skipped message={quoteattr(each.not_checked)}/></testcase>")
            continue
        where = f"{each.document.file}:{each.field_line or each.line}"
        text = "\n".join([each.message, *each.details, where])
        failure = f"<failure message={quoteattr(problem_text(each))}>{escape(text)}</failure>"
        lines.append(f"{case}>{failure}</testcase>")
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])
