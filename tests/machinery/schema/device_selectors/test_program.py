"""Selectors on one device: what matches, what fails and in which words."""

from __future__ import annotations

import pytest

from holdfast.api.resource_slices import DeviceAttribute, DeviceCapacity
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.device_selectors import (
    MAX_LENGTH,
    DeviceValues,
    SelectorCompileError,
    compiled,
    with_hint,
)

DRIVER = "gpu.example.com"
DEVICE = DeviceValues(
    DRIVER,
    {
        "model": DeviceAttribute(string_value="a100"),
        "slots": DeviceAttribute(int_value=7),
        "healthy": DeviceAttribute(bool_value=True),
        "firmware": DeviceAttribute(version_value="2.5.0-rc.1"),
        "links": DeviceAttribute(int_values=(1, 2, 3)),
        "net.example.com/zone": DeviceAttribute(string_value="east-1"),
    },
    {"memory": DeviceCapacity(value="40Gi"), "net.example.com/lanes": DeviceCapacity(value=16)},
    False,
)
OF = f'device.attributes["{DRIVER}"]'
HAS = f'device.capacity["{DRIVER}"]'

MATCHES = f"""
true
device.driver == "{DRIVER}"
device.driver != 'other' && !device.allowMultipleAllocations
{OF}.model == "a100"
{OF}["model"] == "a100"
device.attributes["net.example.com"].zone.startsWith("east")
{OF}.healthy
{OF}.slots > 6 && {OF}.slots <= 7
{OF}.slots + 1 == 8 && {OF}.slots % 2 == 1 && -{OF}.slots < 0
{OF}.slots in [5, 6, 7]
{OF}.model in ["h100", "a100"]
"model" in {OF} && !("serial" in {OF})
!("none.example.com" in device.attributes) && "net.example.com" in device.attributes
has({OF}.model) && !has({OF}.serial)
!has({OF}.serial) || {OF}.serial == "x"
{OF}.?serial.orValue("none") == "none"
{OF}.?model.orValue("none") == "a100"
{OF}[?"serial"].hasValue() == false && {OF}.?slots.value() == 7
{OF}.?serial.or(optional.of("x")).value() == "x"
{OF}.?slots.optMap(s, s * 2).orValue(0) == 14
{HAS}.memory.compareTo(quantity("40Gi")) == 0
{HAS}.memory.isGreaterThan(quantity("39Gi")) && {HAS}.memory.isLessThan(quantity("1Ti"))
{HAS}.memory == quantity("40960Mi")
{HAS}.memory.add(quantity("8Gi")).sub(1024).compareTo(quantity("48Gi")) < 0
{HAS}.memory.isInteger() && {HAS}.memory.asInteger() == 42949672960 && sign({HAS}.memory) == 1
device.capacity["net.example.com"].lanes.asApproximateFloat() > 15.5
isQuantity("1Gi") && !isQuantity("much")
{OF}.firmware.isLessThan(semver("2.5.0")) && {OF}.firmware.isGreaterThan(semver("2.5.0-beta"))
{OF}.firmware.compareTo(semver("v2.4", true)) > 0 && {OF}.firmware.major() == 2
{OF}.firmware == semver("2.5.0-rc.1+build.7") && isSemver("1.2.3") && !isSemver("1.2")
{OF}.model.matches("^a[0-9]+$") && "a100".matches("1.0")
{OF}.model.contains("10") && {OF}.model.endsWith("0") && {OF}.model.size() == 4
{OF}.model.upperAscii() == "A100" && {OF}.model.substring(1) == "100" && {OF}.model.charAt(0) == "a"
{OF}.model.split("1").join("-") == "a-00" && {OF}.model.replace("0", "9") == "a199"
{OF}.model.indexOf("0") == 2 && {OF}.model.lastIndexOf("0") == 3 && " x ".trim() == "x"
int("7") == {OF}.slots && string({OF}.slots) == "7" && double({OF}.slots) == 7.0
{OF}.slots == 7.0 && {OF}.slots != "7" && type({OF}.slots) == int
cel.bind(gpu, {OF}, gpu.healthy && gpu.slots == 7)
{OF}.links.exists(l, l == 2) && {OF}.links.all(l, l > 0) && size({OF}.links) == 3
{OF}.links.filter(l, l > 1) == [2, 3] && {OF}.links.map(l, l * 2).sum() == 12
{OF}.links.map(l, l > 1, l) == [2, 3] && {OF}.links.exists_one(l, l == 3) && {OF}.links.includes(2)
{OF}.links.min() == 1 && {OF}.links.max() == 3 && {OF}.links.isSorted() && {OF}.model.includes("a100")
sets.contains([1, 2, 3], [1, 2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])
{OF}.exists(name, name == "slots") && device.attributes.all(domain, domain.contains("."))
{OF}.slots > 5 ? {OF}.healthy : {OF}.serial
{OF}.serial == "x" || true
true || {OF}.serial
!(false && {OF}.serial)
[1, 2][1] == 2 && {{"a": 1}}.a == 1 && {{"a": 1}}["a"] == 1 && {{1: "x"}}[1] == "x"
0x10 == 16 && 1e3 == 1000.0 && 5u == uint(5) && b"a" == bytes("a") && r"\\d" == "\\\\d"
"\\u00e9\\x41\\101\\n" != '' && null == null && '''a"b''' == "a\\"b"
dyn(1) == 1 && bool("true") && [1] + [2] == [1, 2] && "a" + "b" == "ab" && -7 / 2 == -3
timestamp("2026-01-01T00:00:00Z") < timestamp("2027-01-01T00:00:00Z") && {OF}.slots == 7
"""

DIFFERS = f"""
false
{OF}.model == "h100"
{OF}.slots == "7"
{OF}.slots in ["7"]
"serial" in device.attributes["none.example.com"]
has(device.attributes["none.example.com"].serial)
false && {OF}.serial
{OF}.links.exists(l, l == 9)
"""

FAILS = {
    f"{OF}.serial == 'x'": "no such key: serial",
    'device.attributes["none.example.com"].serial == 1': "no such key: serial",
    f'{OF}.slots > "7"': "no such overload",
    f"{OF}.model.isGreaterThan(quantity('1'))": "no such overload",
    f"{OF}.model": "CEL result of type string could not be converted to bool",
    f"{OF}.slots": "CEL result of type int could not be converted to bool",
    f"{OF}.slots / 0 == 1": "division by zero",
    f"{OF}.slots + 9223372036854775807 > 0": "integer overflow",
    f"{OF}.slots.exists(s, s > 0)": "got 'types.Int', expected iterable type",
    f"{OF}.firmware.exists(s, s > 0)": "got 'cel.Semver', expected iterable type",
    f"sign(quantity({OF}.model)) == 1": "quantities must match",
    f"semver({OF}.model).major() == 1": "invalid semantic version",
    f'{OF}.model.matches("(" + "")': "error parsing regexp",
    f"{OF}.links[5] == 1": "index out of bounds: 5",
    f'{OF}.model.substring(9) == ""': "index out of range: 9",
    f"{OF}.serial && true": "no such key: serial",
    f"{OF}.?serial.value() == 1": "optional.none() dereference",
    "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, " * 6 + "true" + ")" * 6: "actual cost limit exceeded",
}

DOES_NOT_COMPILE = {
    "": "Syntax error",
    "(": "Syntax error",
    '"open': "Syntax error",
    "1 +": "Syntax error",
    "a b": "Syntax error",
    "1": "must evaluate to bool or the unknown type, not int",
    "device.driver": "must evaluate to bool or the unknown type, not string",
    "[true]": "must evaluate to bool or the unknown type, not list(bool)",
    f"{HAS}.memory": "must evaluate to bool or the unknown type, not kubernetes.Quantity",
    "nothing": "<input>:1:1: undeclared reference to 'nothing' (in container '')",
    "device.serial == 1": "undefined field 'serial'",
    "device.driver == 1": "found no matching overload for '_==_' applied to '(string, int)'",
    f"{HAS}.memory > 1": "found no matching overload for '_>_'",
    "device.driver.major() == 1": "found no matching overload for 'major' applied to 'string.()'",
    "frobnicate(1)": "undeclared reference to 'frobnicate'",
    "device.driver.exists(x, true)": "cannot be range of a comprehension",
    "has(device)": "invalid argument to has() macro",
    "9223372036854775808 > 0": "invalid int literal",
    "(" * 400 + "true" + ")" * 400: "expression recursion limit exceeded: 50",
    "true && for": "reserved identifier: for",
    "1 && true": "found no matching overload for '_&&_'",
}


@pytest.mark.parametrize("text", MATCHES.strip().splitlines())
def test_the_device_matches(text: str) -> None:
    assert compiled(text).matches(DEVICE) is True


@pytest.mark.parametrize("text", DIFFERS.strip().splitlines())
def test_the_device_does_not_match(text: str) -> None:
    assert compiled(text).matches(DEVICE) is False


@pytest.mark.parametrize(("text", "why"), FAILS.items())
def test_the_selector_fails_on_the_device(text: str, why: str) -> None:
    with pytest.raises(CelRuntimeError) as caught:
        compiled(text).matches(DEVICE)
    assert why in str(caught.value)


@pytest.mark.parametrize(("text", "why"), DOES_NOT_COMPILE.items())
def test_the_selector_does_not_compile(text: str, why: str) -> None:
    with pytest.raises(SelectorCompileError) as caught:
        compiled(text)
    assert why in str(caught.value)


def test_the_place_of_a_mistake_is_shown() -> None:
    with pytest.raises(SelectorCompileError) as caught:
        compiled("device.driver == 'a' &&\n  nothing")
    assert str(caught.value) == (
        "compilation failed: ERROR: <input>:2:3: undeclared reference to 'nothing' (in container '')\n"
        " |   nothing\n"
        " | ..^"
    )


def test_an_expression_may_be_ten_kibibytes_long() -> None:
    longest = "true" + " " * (MAX_LENGTH - 4)
    assert compiled(longest).matches(DEVICE)
    with pytest.raises(SelectorCompileError):
        compiled(longest + " ")
    assert compiled(" && ".join(["true"] * 1200)).matches(DEVICE)


def test_a_missing_attribute_comes_with_advice() -> None:
    assert with_hint(CelRuntimeError("no such key: x")).endswith("has() for optional fields")
    assert with_hint(CelRuntimeError("no such overload")) == "no such overload"


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("true", ()),
        ("device.driver == 'x'", (("driver", "", ""),)),
        (f"{OF}.model == 'x'", (("attributes", DRIVER, "model"),)),
        (f"'model' in {OF} && sign({HAS}.memory) > 0",
         (("attributes", DRIVER, "model"), ("capacity", DRIVER, "memory"))),
        (f"cel.bind(g, {OF}, g.slots > 1)", (("attributes", DRIVER, "slots"),)),
        (f"has({OF}.a) && {OF}.?b.orValue(true)",
         (("attributes", DRIVER, "a"), ("attributes", DRIVER, "b"))),
        ("device.attributes.exists(d, d == 'x')", None),
        (f"{OF}.exists(name, {OF}[name] == 1)", None),
        (f"cel.bind(g, {OF}, g.size() > 1)", None),
        ("cel.bind(d, device, d.driver == 'x')", (("driver", "", ""),)),
    ],
)  # fmt: skip
def test_what_a_selector_reads_is_known(text: str, reads: object) -> None:
    assert compiled(text).reads == reads


def test_devices_that_agree_in_what_is_read_have_one_key() -> None:
    program = compiled(f"{OF}.model == 'a100'")
    serial = {**DEVICE.attributes, "serial": DeviceAttribute(string_value="1")}
    other = {"model": DeviceAttribute(string_value="h100")}
    qualified = {f"{DRIVER}/model": DeviceAttribute(string_value="a100")}
    assert program.key(DEVICE) == program.key(DEVICE._replace(attributes=serial))
    assert program.key(DEVICE) == program.key(DEVICE._replace(attributes=qualified))
    assert program.key(DEVICE) != program.key(DEVICE._replace(attributes=other))
    assert program.key(DEVICE) != program.key(DEVICE._replace(driver="other.example.com"))
