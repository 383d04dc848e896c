"""Functions of CEL as Kubernetes 1.37 has them: each expression is true, fails, or does not compile."""

from __future__ import annotations

import pytest

from holdfast.machinery.schema.cel.functions import FUNCTIONS
from holdfast.machinery.schema.cel.program import CelProgram
from holdfast.machinery.schema.cel.syntax import QUALIFIED, CelSyntaxError
from holdfast.machinery.schema.cel.values import CelRuntimeError

VARIABLES = {
    "text": "kubernetes",
    "numbers": [3, 1, 2, 1],
    "words": ["b", "a"],
    "scores": {"x": 1, "y": 2},
    "nothing": None,
}

# ruff: noqa: E501

TRUE = """
# strings
'tacocat'.charAt(3) == 'o' && 'abc'.charAt(3) == ''
'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7
'hello mellow'.indexOf('jello') == -1 && 'hello'.indexOf('') == 0 && 'hello'.indexOf('', 3) == 3
'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1
['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join() == ''
'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'TacoCÆt Xii'.upperAscii() == 'TACOCÆT XII'
'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'
'hello hello'.replace('', '_', 1) == '_hello hello' && 'hello'.replace('l', 'L', 0) == 'hello'
'a b c'.split(' ') == ['a', 'b', 'c'] && 'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b'.split(' ', 0) == []
'ab'.split('') == ['a', 'b'] && 'a b'.split(' ', 1) == ['a b'] && 'a b c'.split(' ', -1).size() == 3
'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'abc'.substring(3) == ''
'  \\ttrim\\n    '.trim() == 'trim' && '\u2003x\u00a0'.trim() == 'x'
strings.quote('a "b"\\n') == '"a \\\\"b\\\\"\\\\n"'
'kubernetes'.contains('bern') && text.startsWith('kube') && text.endsWith('netes')
# format
'%s and %d'.format(['str', 42]) == 'str and 42'
'%%s: %s'.format([64.2]) == '%s: 64.2'
'%s'.format([type(1)]) == 'int' && '%s'.format([null]) == 'null' && '%s'.format([true]) == 'true'
'%s'.format([timestamp('2023-02-03T23:31:20+00:00')]) == '2023-02-03T23:31:20Z'
'%s'.format([duration('1h45m47s')]) == '6347s' && '%s'.format([b'xy']) == 'xy'
'%f'.format([3.14]) == '3.140000' && '%.2f'.format([2.5]) == '2.50' && '%.1f'.format([12345.0]) == '12,345.0'
'%e'.format([2.71828]) == '2.718280×10⁰⁰' && '%.3e'.format([1234.5]) == '1.234500×10⁰³' && '%e'.format([0.00012]) == '1.200000×10⁻⁰⁴'
'%b'.format([5]) == '101' && '%b'.format([true]) == '1' && '%b'.format([5u]) == '101'
'%x %X %o'.format([26, 26, 30]) == '1a 1A 36' && '%x'.format(['Hello']) == '48656c6c6f'
'%s'.format([[1, 2, {'a': 'x', 'b': 'y'}]]) == '[1, 2, {"a":"x", "b":"y"}]'
'%d'.format([5u]) == '5' && ''.format([]) == '' && '%f'.format([1234567.125]) == '1,234,567.125000' && '%.0f'.format([2.5]) == '2'
'%s'.format([1.0 / 0.0]) == '+Inf' && '%f'.format(['NaN']) == 'NaN' && '%s %s'.format([0.1, 1e21]) == '0.1 1e+21'
'%s'.format([{1: 2.5, 3: 0.25}]) == '{1:2.500000, 3:0.250000}'
# regular expressions
'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == '' && 'abc'.find('b*') == ''
'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']
'1 2'.findAll('[0-9]', 0) == [] && '1 2'.findAll('[0-9]', -1) == ['1', '2']
'aaa'.find('a+?') == 'a' && 'aaa'.find('a+') == 'aaa' && 'ab'.find('a|ab') == 'a' && 'xaab'.find('a{1,2}b') == 'aab'
'<a><b>'.find('<.*?>') == '<a>' && '<a><b>'.find('<.*>') == '<a><b>' && '<a><b>'.find('(?U)<.*>') == '<a>'
'one two'.findAll('\\\\b\\\\w') == ['o', 't'] && 'abab'.findAll('(ab)+') == ['abab'] && 'aXbX'.findAll('.*?X') == ['aX', 'bX']
text.matches('^k.*s$') && matches('x1', '[0-9]') && !text.matches('^x')
# lists
[1, 2, 3].isSorted() && !numbers.isSorted() && [].isSorted() && ['a', 'b', 'b'].isSorted() && [1.0].isSorted()
[1, 3].sum() == 4 && [1.0, 3.0].sum() == 4.0 && [].sum() == 0 && [duration('1m'), duration('1s')].sum() == duration('61s')
[1u, 3u].sum() == 4u && numbers.min() == 1 && numbers.max() == 3 && words.max() == 'b' && [duration('1s')].min() == duration('1s')
numbers.indexOf(1) == 1 && numbers.lastIndexOf(1) == 3 && [1.0].indexOf(1.1) == -1 && [].indexOf('a') == -1
[1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].slice(2, 2) == []
[[1], [2, 3]].flatten() == [1, 2, 3] && [dyn([1]), dyn(2)].flatten() == [1, 2]
[[[1]], [[2]]].flatten(2) == [1, 2] && [[1], [2]].flatten(0) == [[1], [2]]
numbers.sort() == [1, 1, 2, 3] && words.sort() == ['a', 'b'] && [].sort() == []
words.sortBy(w, w == 'a' ? 2 : 1) == ['b', 'a'] && ['aaa', 'b', 'cc'].sortBy(w, w.size()) == ['b', 'cc', 'aaa']
numbers.distinct() == [3, 1, 2] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2] && lists.range(0) == []
numbers.first().value() == 3 && numbers.last().orValue(0) == 1 && ![].first().hasValue()
[1, 2].includes(2) && !['a'].includes('b') && 'model-a'.includes('model-a')
# sets
sets.contains([1, 2], [2]) && sets.contains([1], []) && !sets.contains([1], [2]) && sets.contains([dyn(1), dyn(2.0)], [1.0])
sets.equivalent([1, 1], [1]) && sets.equivalent([], []) && !sets.equivalent([1], [1, 2])
sets.intersects([1], [1, 2]) && !sets.intersects([], [1])
# comprehensions
[1, 2, 3].all(i, v, i < v) && [1, 2].exists(i, v, i == 1 && v == 2) && scores.all(k, v, v > 0)
[1, 2, 1].existsOne(i, v, v == 2) && [1, 1].exists_one(i, v, i == 0) && scores.existsOne(k, v, v == 2)
[2, 4].transformList(i, v, i * v) == [0, 4] && [1, 2, 3].transformList(i, v, v > 1, v) == [2, 3]
scores.transformMap(k, v, v + 1) == {'x': 2, 'y': 3} && scores.transformMap(k, v, v > 1, v) == {'y': 2}
[5, 6].transformMap(i, v, v * 2) == {0: 10, 1: 12}
scores.transformMapEntry(k, v, {v: k}) == {1: 'x', 2: 'y'} && scores.transformMapEntry(k, v, v == 1, {k: v}) == {'x': 1}
scores.transformList(k, v, k).sort() == ['x', 'y'] && numbers.map(n, n > 1, n * 2) == [6, 4]
cel.bind(n, numbers.size(), n * n == 16) && numbers.filter(n, n > 1) == [3, 2]
# optional values
optional.of(1).value() == 1 && !optional.none().hasValue() && optional.none().orValue(7) == 7
!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue(1).hasValue() && !optional.ofNonZeroValue([]).hasValue()
scores[?'x'].orValue(0) == 1 && scores[?'z'].orValue(5) == 5 && scores.?z.or(optional.of(9)).value() == 9
numbers[?9].optMap(n, n + 1).orValue(-1) == -1 && optional.of(2).optMap(n, n + 1).value() == 3
optional.of(2).optFlatMap(n, optional.none()).orValue(4) == 4
[1, ?optional.of(2), ?optional.none()] == [1, 2] && {?'a': optional.of(1), ?'b': scores[?'z']} == {'a': 1}
optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(2)].unwrapOpt() == [2]
# quantities and versions
quantity('1.5Gi').isGreaterThan(quantity('1Gi')) && quantity('1k').asInteger() == 1000 && quantity('50k').sub(20000).isLessThan(quantity('40k'))
quantity('200M').compareTo(quantity('0.2G')) == 0 && sign(quantity('-50k')) == -1 && sign(quantity('0')) == 0
isQuantity('20Mi') && !isQuantity('20MI') && quantity('50k').add(20).asInteger() == 50020 && quantity('1.5').asApproximateFloat() == 1.5
!quantity('1.5').isInteger() && quantity('1000').isInteger()
semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-beta').isLessThan(semver('1.0.0')) && semver('1.2.3').compareTo(semver('1.2.3')) == 0
isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('200K') && semver('v01.01', true) == semver('1.1.0')
semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3
# URLs
url('https://example.com:80/').getHost() == 'example.com:80' && url('https://example.com/').getScheme() == 'https'
url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80' && url('https://[::1]/').getHost() == '[::1]'
url('https://user:pass@example.com:80/path?query=val#fragment').getHostname() == 'example.com'
url('/path').getHost() == '' && url('/path').getScheme() == '' && url('/path').getPort() == ''
url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/' && url('https://example.com').getEscapedPath() == ''
url('https://example.com/p?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}
url('https://example.com/p?key with spaces=value with spaces').getQuery()['key with spaces'] == ['value with spaces']
url('https://example.com/path?').getQuery() == {} && url('https://a/b').getQuery().size() == 0
isURL('/absolute-path') && !isURL('https://a:b:c/') && !isURL('../relative-path') && !isURL('') && isURL('http://a') && !isURL('https://x/%zz')
url('https://a/b') == url('https://a/b') && url('https://a/b') != url('https://a/c')
# IP addresses and CIDRs
isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP(':::1') && !isIP('10.0.0.01') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')
ip('127.0.0.1').family() == 4 && ip('::1').family() == 6 && string(ip('2001:DB8::ABCD')) == '2001:db8::abcd'
ip.isCanonical('127.0.0.1') && ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD') && !ip.isCanonical('2001:db8::0:0:0:abcd')
ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && ip('127.0.0.1').isLoopback() && ip('::1').isLoopback() && !ip('192.168.0.1').isLoopback()
ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast() && !ip('fd00::1').isLinkLocalMulticast()
ip('169.254.169.254').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && !ip('fd80::1').isLinkLocalUnicast()
ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast() && ip('2001:db8::abcd').isGlobalUnicast() && !ip('ff00::1').isGlobalUnicast()
isCIDR('192.168.0.0/16') && isCIDR('::1/128') && !isCIDR('192.168.0.0/33') && !isCIDR('::1/129') && !isCIDR('10.0.0.0/a') && !isCIDR('10.0.0.0')
cidr('192.168.0.0/24').containsIP(ip('192.168.0.1')) && !cidr('192.168.0.0/24').containsIP('192.168.1.1') && !cidr('10.0.0.0/8').containsIP('::1')
cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24') && !cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24')) && !cidr('10.0.0.0/24').containsCIDR('10.0.0.0/8')
cidr('192.168.0.1/24').ip() == ip('192.168.0.1') && cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::1/128').prefixLength() == 128
cidr('192.168.0.1/24') != cidr('192.168.0.1/24').masked() && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'
# named formats
!format.dns1123Label().validate('my-label').hasValue() && format.dns1123Label().validate('My_label').hasValue()
!format.dns1123Subdomain().validate('a.b').hasValue() && format.named('dns1035Label').value().validate('1a').value().size() == 1
!format.named('no-such-format').hasValue() && !format.dns1123LabelPrefix().validate('my-').hasValue() && format.dns1123Label().validate('my-').hasValue()
!format.qualifiedName().validate('a.io/b').hasValue() && !format.labelValue().validate('').hasValue() && format.labelValue().validate('a b').hasValue()
!format.uri().validate('http://example.com').hasValue() && format.uri().validate('a b').hasValue()
!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && format.uuid().validate('x').value() == ['does not match the UUID format']
!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('a*').value()[0] == 'invalid base64'
!format.date().validate('2021-01-01').hasValue() && format.date().validate('2021-13-01').hasValue() && format.datetime().validate('2021-01-01').hasValue()
!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()
# times
timestamp('2023-01-01T00:00:00Z') + duration('25h') == timestamp('2023-01-02T01:00:00Z')
timestamp('2023-01-01T00:00:01Z') - timestamp('2023-01-01T00:00:00Z') == duration('1s') && duration('1m') > duration('59.999s')
timestamp('2023-02-03T04:05:06.007Z').getFullYear() == 2023 && timestamp('2023-02-03T04:05:06.007Z').getMonth() == 1
timestamp('2023-02-03T04:05:06.007Z').getDate() == 3 && timestamp('2023-02-03T04:05:06.007Z').getDayOfMonth() == 2
timestamp('2023-02-05T04:05:06.007Z').getDayOfWeek() == 0 && timestamp('2023-02-03T04:05:06.007Z').getDayOfYear() == 33
timestamp('2023-02-03T04:05:06.007Z').getHours() == 4 && timestamp('2023-02-03T04:05:06Z').getHours('+01:30') == 5 && timestamp('2023-02-03T04:05:06Z').getHours('Asia/Kolkata') == 9
timestamp('2023-02-03T04:05:06.007Z').getMinutes() == 5 && timestamp('2023-02-03T04:05:06.007Z').getSeconds() == 6 && timestamp('2023-02-03T04:05:06.007Z').getMilliseconds() == 7
duration('3730s').getHours() == 1 && duration('3730s').getMinutes() == 62 && duration('1.5s').getMilliseconds() == 1500 && duration('-90s').getMinutes() == -1
string(duration('1.5s')) == '1.5s' && int(timestamp('1970-01-01T00:01:00Z')) == 60 && timestamp(60) == timestamp('1970-01-01T00:01:00Z')
string(timestamp('2023-01-01T02:00:00.5+02:00')) == '2023-01-01T00:00:00.5Z' && type(duration('1s')) != type(timestamp(0))
# conversions and operators
int('-42') == -42 && uint('7') == 7u && double('1e3') == 1000.0 && string(1000000.0) == '1e+06' && string(123456.0) == '123456'
string(1.5) == '1.5' && string(0.00001) == '1e-05' && string(0.1) == '0.1' && string(-2.0) == '-2' && string(1.0e21) == '1e+21'
bool('true') && string(true) == 'true' && bytes('é').size() == 2 && 'é'.size() == 1 && string(b'a') == 'a'
dyn(1) == 1.0 && dyn(1u) == 1 && 1 < 1.5 && 2u > 1 && !(1 == 2) && -7 / 2 == -3 && -7 % 2 == -1
dyn(1) in [1.0, 2.0] && 'x' in scores && !('z' in scores) && dyn(1) != dyn('1') && nothing == null
has(scores.x) && !has(scores.z) && (scores.z == 1 || true) && !(false && scores.z == 1)
"""
CASES = [line for line in TRUE.splitlines() if line and not line.startswith("#")]

FAILS = {
    "'abc'.charAt(4)": "index out of range: 4",
    "'abc'.substring(2, 1)": "invalid substring range. start: 2, end: 1",
    "'abc'.substring(0, 9)": "index out of range: 9",
    "'abc'.indexOf('a', -1)": "index out of range: -1",
    "'%d'.format(['x'])": "error during formatting: decimal clause can only be used on integers, "
    "was given string",
    "'%s %s'.format(['x'])": "index 1 out of range",
    "'%q'.format(['x'])": 'could not parse formatting clause: unrecognized formatting clause "q"',
    "'x'.find('(')": "Illegal regex: error parsing regexp: missing closing ): `(`",
    "[].min()": "min called on empty list",
    "[1, 2].slice(-1, 1)": "cannot slice(-1, 1), negative indexes not supported",
    "[1, 2].slice(2, 1)": "cannot slice(2, 1), start index must be less than or equal to end index",
    "[1, 2].slice(0, 3)": "cannot slice(0, 3), list is length 2",
    "[1].flatten(-1)": "level must be non-negative",
    "[dyn(1), dyn('a')].sort()": "list elements must have the same type",
    "['a'].sum()": "no such overload",
    "optional.none().value()": "optional.none() dereference",
    "quantity('x')": "quantities must match the regular expression "
    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "quantity('1.5').asInteger()": "cannot convert value to integer",
    "ip('1.2.3')": 'IP Address "1.2.3" parse error during conversion from string: '
    'ParseAddr("1.2.3"): IPv4 address too short',
    "ip('1.2.3.4.5')": 'IP Address "1.2.3.4.5" parse error during conversion from string: '
    'ParseAddr("1.2.3.4.5"): IPv4 address too long',
    "ip('1.2.3.256')": 'IP Address "1.2.3.256" parse error during conversion from string: '
    'ParseAddr("1.2.3.256"): IPv4 field has value >255',
    "ip('1.02.3.4')": 'IP Address "1.02.3.4" parse error during conversion from string: '
    'ParseAddr("1.02.3.4"): IPv4 field has octet with leading zero',
    "ip('1.2.x.4')": 'IP Address "1.2.x.4" parse error during conversion from string: '
    'ParseAddr("1.2.x.4"): unexpected character (at "x.4")',
    "ip('x')": 'IP Address "x" parse error during conversion from string: '
    'ParseAddr("x"): unable to parse IP',
    "ip('::ffff:1.2.3.4')": 'IPv4-mapped IPv6 address "::ffff:1.2.3.4" is not allowed',
    "ip('fe80::1%eth0')": 'IP address "fe80::1%eth0" with zone value is not allowed',
    "url('../x')": 'URL parse error during conversion from string: parse "../x": '
    "invalid URI for request",
    "duration('1' + '')": "type conversion error from 'string' to 'google.protobuf.Duration'",
    "timestamp('2023' + '')": "type conversion error from 'string' to 'google.protobuf.Timestamp'",
    "timestamp(0).getHours('No/Where')": "unknown time zone No/Where",
    "int('1_0')": "type conversion error from 'string' to 'int'",
    "double(' 1')": "type conversion error from 'string' to 'double'",
    "1 / 0": "division by zero",
    "9223372036854775807 + 1": "integer overflow",
    "numbers[9]": "index out of bounds: 9",
    "scores.z": "no such key: z",
    "scores.transformMapEntry(k, v, {'same': v})": "insert failed: key same already exists",
    "lists.range(5000).all(i, lists.range(5000).all(j, i >= 0))": "operation cancelled: actual cost "
    "limit exceeded",
}

REFUSED = {
    "[1, 'a']": "5: expected type 'int' but found 'string'",
    "{'a': 1, 'b': 'c'}": "15: expected type 'int' but found 'string'",
    "noSuch(1)": "7: undeclared reference to 'noSuch' (in container '')",
    "'a'.noSuch()": "11: undeclared reference to 'noSuch' (in container '')",
    "'a' + 1": "5: found no matching overload for '_+_' applied to '(string, int)'",
    "1 == 1.0": "3: found no matching overload for '_==_' applied to '(int, double)'",
    "1 in [1.0]": "3: found no matching overload for '@in' applied to '(int, list(double))'",
    "'a'.charAt('b')": "11: found no matching overload for 'charAt' applied to 'string.(string)'",
    "ip('::1').startsWith('a')": "21: found no matching overload for 'startsWith' applied to "
    "'net.IP.(string)'",
    "[1].all(i, i, true)": "12: duplicate variable name: i",
    "[?1]": "3: expected type 'optional_type(int)' but found 'int'",
    "dyn(duration('1')) == 1": "14: invalid duration argument",
    "dyn(timestamp('2023')) == 1": "15: invalid timestamp argument",
    "'a'.matches('(')": "13: invalid matches argument",
    "quantity('1').sign()": "19: found no matching overload for 'sign' applied to "
    "'kubernetes.Quantity.()'",
}


def program(text: str) -> CelProgram:
    return CelProgram(text, dict.fromkeys(VARIABLES, "dyn"))


@pytest.mark.parametrize("text", CASES)
def test_true(text: str) -> None:
    assert program(text).run(dict(VARIABLES)) is True


@pytest.mark.parametrize("text", FAILS)
def test_fails(text: str) -> None:
    with pytest.raises(CelRuntimeError) as error:
        program(text).run(dict(VARIABLES))
    assert str(error.value) == FAILS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_does_not_compile(text: str) -> None:
    with pytest.raises(CelSyntaxError, match="ERROR: <input>:1:") as error:
        program(text)
    assert str(error.value).splitlines()[0] == f"ERROR: <input>:1:{REFUSED[text]}"


def test_every_function_with_a_dot_is_known_to_the_parser() -> None:
    assert {name for name in FUNCTIONS if "." in name} == QUALIFIED


def test_a_variable_hides_a_qualified_name_unless_the_function_exists() -> None:
    assert program("['10.0.0.1'].all(ip, ip.startsWith('10.'))").run({}) is True


def test_expressions_that_are_nested_too_deeply_are_refused() -> None:
    for text in ("(" * 200 + "true" + ")" * 200, "!" * 2001 + "true", "+".join(["1"] * 200)):
        try:
            found = program(text).run({})
        except CelSyntaxError as error:
            assert "recursion limit exceeded" in str(error)
        else:
            assert found in (False, 200)
