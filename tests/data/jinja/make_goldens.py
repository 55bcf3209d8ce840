#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what Jinja makes of small templates.

    pip install transformers jinja2
    python3 make_goldens.py

The environment is the one that Transformers compiles chat templates in. A
text of null says that rendering fails there.
"""
import datetime
import json
import os

import transformers.utils.chat_template_utils as chat

HERE = os.path.dirname(os.path.abspath(__file__))


def letters():
    """All characters that change their case and stay one character."""
    def changes(c):
        others = c.upper(), c.lower(), c.title()
        return any(o != c for o in others) and all(len(o) == 1 for o in others)
    return "".join(c for c in map(chr, range(128, 0x110000))
                   if not "\ud800" <= c <= "\udfff" and c != "\u03a3"
                   and changes(c))


CONTEXT = {
    "n": 3, "zero": 0, "f": 2.5, "t": True, "none_": None, "s": "Hello World",
    "u": "Größe 日本 \u3000", "empty": "", "pad": "  \n x y \t",
    "list": [3, 1, 2], "names": ["b", "A", "c", "B"], "nothing": [],
    "d": {"b": 1, "a": [1, 2], "c": {"x": "y"}, "items": "own"},
    "m": [{"role": "system", "content": "S"},
          {"role": "user", "content": "Q1"},
          {"role": "assistant", "content": "A1", "tool_calls": None},
          {"role": "user", "content": [{"type": "text", "text": "part"}]}],
    "html": "<a href=\"x\">&'",
    "quote": "it's", "both": "it's \"so\"", "ctrl": "a\tb\nc\\d\u0001\u00a0é",
    "big": 1e16, "small": 0.00001, "third": 1 / 3, "whole": 3.0,
    "nul": "a\u0000b",
    "letters": letters(),
}

# ---- Expressions: printed with {{ }} ---------------------------------------
EXPRESSIONS = r"""
1
-1
+1
1.5
1e3
1.0e-7
1e16
123456789012345678
0.1 + 0.2
big
small
third
whole
true
True
none
None
'a' "b" 'c'
"a\n\t\\\"'\x41\u00e9\U0001f600\q\0"
''
[1, 'a', none, true, 1.5]
[]
[1,]
(1,)
()
(1, 2)
1, 2
{}
{'a': 1, 'b': [2], 3: none}
{'a': {'b': {}}}
{'a': 1, 'a': 2}
{1: 'i', true: 'b'}
n
missing
missing.x
missing['x']
missing()
none_.x
none_['x']
none_()
n.x
s.missing
s[0]
s[-1]
s[100]
s[1:4]
s[::-1]
s[::2]
s[-3:]
s[:-3]
s[3:1]
s[10:-20:-2]
u[2]
u[::-1]
u|length
list[0]
list[-1]
list[5]
list[1:]
list[::-1]
list[:1]
list[-2:]
list[10:]
list[:-1]
list[5:0:-2]
list['x']
list.0
(1, 2)[1]
(1, 2, 3)[::-1]
range(5)[2]
range(3)[1:]|list
none_[1:]
n[1:]
missing[1:]
s[1.5]
s['a':]
d.b
d['b']
d.c.x
d['c']['x']
d.missing
d.missing.x
d['missing']
d['items']
d.items()|list
d.keys()|list
d|length
d.get('b')
d.get('zz')
d.get('zz', 7)
d.get()
d.pop('b')
d.update({})
list.append(1)
list.index(2)
list.index(9)
list.count(1)
list.copy()
1 + 2
1 + 2.5
true + 1
1 - 3
2 * 3
7 / 2
8 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7.5 % 2
-7.5 // 2
2 ** 10
2 ** -1
2 ** 0.5
1 / 0
1 % 0
1 // 0
1 + 'a'
'a' + 1
'a' + 'b'
'a' + none_
'a' + missing
missing + 'a'
[1] + [2]
(1,) + (2,)
[1] + (2,)
'ab' * 3
3 * 'ab'
[1] * 2
'a' * -1
'a' ~ 1 ~ none_ ~ missing ~ [1]
1 ~ 2
-n
-f
-s
not t
not missing
not not 1
1 == 1
1 == 1.0
1 == true
'a' == 'a'
'a' == 1
none_ == none
missing == none
missing == nope
[1, 2] == [1, 2]
[1] == (1,)
{'a': 1} == {'a': 1}
{'a': 1} != {'a': 2}
1 < 2 < 3
1 < 3 < 2
1 < 2 == true
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
1 < 'a'
none_ < 1
missing < 1
1 >= 1
2 <= 1
2 != 3
1 in list
9 in list
9 not in list
'a' in 'abc'
'x' not in 'abc'
'b' in d
'zz' in d
1 in 'abc'
'a' in none_
'a' in missing
'' in ''
[1] in [[1], [2]]
1 in (1, 2)
not 1 in list
t and n
zero and n
zero or n
missing or 'x'
'' or none_
t and not zero
1 if t else 2
1 if zero else 2
1 if zero
1 if t if zero else 3
'a' if zero else 'b' if zero else 'c'
(1 if t else 2) + 3
1 + 2 * 3
(1 + 2) * 3
2 * 3 ** 2
-2 ** 2
'a' ~ 'b' + 'c'
1 + 2 ~ 3
10 - 2 - 3
100 / 10 / 2
n is defined
missing is defined
missing is not defined
missing is undefined
d.x is defined
d.b is defined
m[0].content is defined
none_ is none
none_ is not none
missing is none
n is number
f is number
t is number
n is integer
t is integer
f is integer
f is float
n is float
t is boolean
n is boolean
t is true
1 is true
zero is false
s is string
n is string
list is string
d is mapping
list is mapping
missing is mapping
list is sequence
s is sequence
d is sequence
n is sequence
missing is sequence
none_ is sequence
range(2) is sequence
list is iterable
s is iterable
n is iterable
missing is iterable
none_ is iterable
d.items() is iterable
d.items() is sequence
d.items is callable
n is callable
range is callable
n is odd
n is even
n is divisibleby 3
n is divisibleby(2)
n is eq 3
n is equalto 3
n is equalto(4)
n == 3 and n is eq(3)
n is ne 3
n is gt 2
n is lt 2
n is ge 3
n is le 2
n is in list
n is not in [1]
none_ is sameas none
s is lower
'abc' is lower
'ABC' is upper
'123' is upper
html is escaped
html|safe is escaped
n is odd and n is even
n is defined and n is odd or false
not n is defined
n is nosuchtest
'tojson' is filter
'nosuch' is filter
'defined' is test
s|length
list|length
d|count
n|length
missing|length
none_|length
s|upper
s|lower
s|lower|upper
u|lower
'ÀÉÎ ß'|lower
'ÿ'|upper
letters|upper
letters|lower
letters|length
'ǆx ǆX'.title()
'ǆX'|capitalize
'hello world'|capitalize
'hELLO wORLD'|capitalize
'hello wORLD-foo (bar'|title
'hello wORLD-foo bar'.title()
"they're bill's".title()
pad|trim
pad|trim|length
'xxaxx'|trim('x')
none_|trim
n|trim
missing|trim
u|trim
list|first
list|last
nothing|first
nothing|last
s|first
s|last
d|first
missing|first
missing|last
list|join
list|join(', ')
list|join('-')|upper
m|join(',', attribute='role')
missing|join(',')
s|join('-')
n|join
['a', none, 1]|join(' ')
list|sort
list|sort(reverse=true)
names|sort
names|sort(case_sensitive=true)
m[:2]|sort(attribute='role')|map(attribute='role')|list
[1, 'a']|sort
list|reverse|list
s|reverse
names|unique|list
names|map('lower')|unique|list
list|min
list|max
nothing|max
names|max
list|sum
m[:2]|sum(attribute='content', start='')
list|list
s|list
d|list
n|list
missing|list
list|map('string')|list
m|map(attribute='role')|list
m|map(attribute='role')|join(',')
m|map(attribute='zz', default='-')|list
m|map(attribute='zz')|list
list|map('nosuch')|list
none_|map('upper')|list
none_|selectattr('a')|list
zero|select|list
n|select|list
missing|map('upper')|list
m|map(attribute='content.0.text')|list
m|selectattr('role', 'equalto', 'user')|list|length
m|selectattr('role', 'eq', 'user')|map(attribute='content')|list
m|selectattr('tool_calls')|list
m|selectattr('tool_calls', 'defined')|list|length
m|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|list
m|selectattr('role', '==', 'system')|first
list|select('odd')|list
list|select('gt', 1)|list
list|reject('odd')|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
list|select('nosuch')|list
m|selectattr('role', 'equalto', 'nobody')|list|length > 0
'yes' if m|selectattr('role', 'equalto', 'nobody') else 'no'
list|select('odd')|length
missing|default('x')
missing|default
none_|default('x')
none_|default('x', true)
''|default('x', boolean=true)
s|default('x')
missing|d('y')
missing.x|default('z')
d.x|default('z')
s|replace('l', 'L')
s|replace('l', 'L', 2)
s|replace('', '-')
'abc'.replace('', '-')
'aaa'.replace('a', 'b', 2)
n|replace('3', 'x')
s|string
n|string
none_|string
list|string
missing|string
'42'|int
' 42 '|int
'4.7'|int
'x'|int
'x'|int(9)
'x'|int(default=8)
2.9|int
-2.9|int
t|int
none_|int
missing|int
'1.5'|float
'x'|float
3|float
none_|float(1.5)
-3|abs
-2.5|abs
s|abs
2.567|round(2)
2.5|round
3.5|round
7|round
2.1|round(0, 'ceil')
2.9|round(method='floor')
d|items|list
d.items()|first
missing|items|list
d|dictsort
d|dictsort(reverse=true)
{'b': 1, 'a': 2}|dictsort(by='value')
list|batch(2)|list
list|batch(2, 0)|list
'a\nb\n\nc'|indent
'a\nb'|indent(2, true)
'a\nb'|indent('> ')
'a\n\nb'|indent(2, blank=true)
'%s and %s'|format('a', 1)
'%d%%'|format(5)
'%.2f'|format(1.005)
'%05d|%5d' % (42, 42)
'%s' % 'a'
'%s %s' % ('a',)
'%s' % (1, 2)
'%r' % s
'%d' % 3.7
'%d' % 'a'
html|e
html|escape
html|safe
(html|safe) + '<'
'<' + (html|safe)
(html|safe) ~ '<'
html|e|e
html|forceescape
'a b  c'|wordcount
d|tojson
d|tojson(indent=2)
[]|tojson(indent=2)
{}|tojson(indent=4)
[1, [2, []], {'a': {}}]|tojson(indent=1)
u|tojson
u|tojson(ensure_ascii=true)
html|tojson
both|tojson
ctrl|tojson
nul|tojson
none_|tojson
t|tojson
f|tojson
big|tojson
whole|tojson
missing|tojson
{'a': missing}|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
(1, 2)|tojson
d|tojson(separators=(',', ':'))
d|tojson(sort_keys=true)
d|tojson(indent=2, separators=(', ', ': '))
'x'|tojson|length
'\U0001f600'|tojson(ensure_ascii=true)
d|attr('b')
s|attr('upper')()
s|nosuchfilter
s|nosuchfilter if zero else 'ok'
s.upper()
s.lower()
'hELLO'.capitalize()
pad.strip()
pad.lstrip()
pad.rstrip()
'xxaxy'.strip('xy')
'xxaxx'.lstrip('x')
'xxaxx'.rstrip('x')
'日本'.strip('日')
s.split()
s.split(' ')
'a  b c'.split()
'  a  b  '.split()
'a  b c'.split(' ')
'a,b,c'.split(',', 1)
' a  b c '.split(none, 1)
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',')
'a b'.split('')
''.split()
''.split(',')
'a<think>b</think>c'.split('</think>')[-1].lstrip('\n')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('x')
'abc'.rpartition('x')
'a\nb\r\nc\n'.splitlines()
'a\nb'.splitlines(true)
s.startswith('He')
s.startswith(('x', 'H'))
s.endswith('ld')
s.endswith('x')
s.startswith(1)
'abcabc'.removeprefix('abc')
'abcabc'.removesuffix('bc')
', '.join(['a', 'b'])
', '.join(list)
'-'.join('abc')
s.find('o')
s.rfind('o')
s.find('zz')
s.find('o', 5)
s.index('o')
s.index('zz')
u.find('日')
s.count('l')
s.count('')
'123'.isdigit()
''.isdigit()
'a1'.isalnum()
'ab'.isalpha()
' \t'.isspace()
'Ab'.islower()
'AB1'.isupper()
'{} {}'.format('a', 1)
'{0}{1}{0}'.format('a', 'b')
'{x}'.format(x=2)
'{{}}'.format()
'{}'.format()
s.zzz()
quote ~ [quote, both, ctrl]
[nul]
nul
[html, 'a\\b']
range(3)|list
range(1, 4)|list
range(5, 0, -2)|list
range(0)|list
range(1, 2, 0)|list
range('a')
range(200000)|list|length
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([['a', 1]])
dict(**{'a': 1})
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace(a=1).zz
namespace()['a']
raise_exception('no')
raise_exception('no' ~ n)
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %A %B %j %y %H:%M:%S %I %p %a %%')
strftime_now('%-d/%-m')
strftime_now('%F %D %e %T')
strftime_now is defined
tools is defined
loop
loop is defined
[1, 2][0] + [3][-1]
{'a': [1, {'b': 'c'}]}['a'][1]['b']
{'a': [1, {'b': 'c'}]}.a[1].b
(1, 2)|length
((1))
[[1, 2], [3]]|map('length')|list
[[1, 2], [3]]|map('first')|list
['a', 'b']|map('upper')|join
[1, 2, 3]|map('string')|map('length')|sum
'a' in ['a'] and 'b' not in ['a']
{}.x is defined
'ab'.upper().lower()|length
s|upper|lower|title|length > 3
s|trim is string
m[-1]['content'][0]['text']
m|length - 1
m[m|length - 1].role
m[0]['role'] == 'system' and m|length > 1
m[::-1]|map(attribute='role')|list
n > 2 and f < 3 or missing.x
'%s' is string
1 is number
1.0 is integer
[1, 2, 3, 4][1:3]
'é'|length
'%s' | format('x') | upper
""".strip("\n").split("\n")

# ---- Templates -------------------------------------------------------------
TEMPLATES = [
    "", "\n", "a\n", "a\n\n", "a\r\nb\rc\n", "plain { text } % # }}",
    "{# comment #}x", "a{# c -#}  \n b", "a \n {#- c #} b", "a\n  {# c #}\nb",
    "{#-#}x", "{# a #}\n{# b #}\nx", "{# {{ n }} {% if %} #}y",
    "a\n  {% if t %}\nb\n  {% endif %}\nc", "a {% if t %} b {% endif %} c",
    "{% if t %}\n\nx{% endif %}", "  {%+ if t %}x{% endif %}",
    "  {%- if t %}x{% endif -%}  \n y", "{% if t +%}\nx{% endif %}",
    "a\n\t {% if t %}b{% endif %}\n\t {% if t %}{% endif %}c",
    "{{ n }}\n{{ n }}\n", "{{ n -}}\n x", "x \n {{- n }}", "a  {{ n }}  b",
    "  {{ n }}", "\n  {{- n -}}  \n", "{{- n -}}", "{{+n}}", "{{-n}}",
    "{{ {'a': {'b': 1}} }}", "{{ {'a': 1}}}", "{{ '}}' }}", "{{ '%}' }}",
    "{% set x = '%}' %}{{ x }}", "{{ \"{{\" }}", "{{ 'a\nb' }}",
    "{% raw %}{{ n }}{% if %}{% endraw %}x",
    "a\n  {% raw -%}  {{ n }} {%- endraw %}\nb", "{% raw %}\nx\n{% endraw %}\ny",
    "{%- raw -%} x {%- endraw -%} y",
    "{% if zero %}a{% elif n == 3 %}b{% else %}c{% endif %}",
    "{% if zero %}a{% elif zero %}b{% else %}c{% endif %}",
    "{% if zero %}a{% endif %}", "{% if missing %}a{% else %}b{% endif %}",
    "{% if not missing is defined %}u{% endif %}",
    "{% if t: %}x{% endif %}",
    "{% for x in list %}{{ x }},{% endfor %}",
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}"
    "{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.depth }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} "
    "{% endfor %}",
    "{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is "
    "defined }}{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in nothing %}a{% else %}none{% endfor %}",
    "{% for x in list %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}",
    "{% for x in none_ %}a{% endfor %}", "{% for x in n %}a{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} "
    "{% endfor %}",
    "{% for x in list if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in list if loop.first %}{{ x }}{% endfor %}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}"
    "{% endfor %}",
    "{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}"
    "{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in list %}{% break %}{% else %}e{% endfor %}",
    "{% for x in list %}{% continue %}{% else %}e{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{% else %}e"
    "{% endfor %}",
    "{% for x in list %}{% for y in list %}{{ loop.index }}{% endfor %}"
    "{{ loop.index }} {% endfor %}",
    "{% for x in m recursive %}{{ x.role }}{% endfor %}",
    "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}"
    "<{{ loop(x) }}>{% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set x = 1, 2 %}{{ x }}", "{% set (x, y) = list[:2] %}{{ x }}{{ y }}",
    "{% set x, y = 1 %}", "{% set a = [] %}{% set a = a + [1] %}{{ a }}",
    "{% set x = 1 %}{% for i in list %}{% set x = x + 1 %}{{ x }}{% endfor %}"
    "{{ x }}",
    "{% for i in list %}{% set y = i %}{% endfor %}{{ y }}",
    "{% for i in list %}{% if y is defined %}{{ y }}{% endif %}{% set y = i %}"
    "{% endfor %}",
    "{% if t %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if zero %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if zero %}{% set n = 1 %}{% endif %}{{ n }}",
    "{% set n = n + 1 %}{{ n }}",
    "{% for i in list %}{% set n = n + i %}{{ n }} {% endfor %}{{ n }}",
    "{% for n in list %}{{ n }}{% endfor %}{{ n }}",
    "{% set ns = namespace(x=0) %}{% for i in list %}{% set ns.x = ns.x + i %}"
    "{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(x=0) %}{% set ns.x, y = 5, 6 %}{{ ns.x }}{{ y }}",
    "{% set d.x = 1 %}", "{% set ns.x = 1 %}",
    "{% set ns = namespace(_a=1) %}", "{% set ns = namespace() %}{% set ns._b = 1 %}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | trim | upper %} abc {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set ns = namespace() %}{% set ns.t %}hey{% endset %}{{ ns.t }}",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} "
    "{{ f(b=4, a=5) }} {{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}"
    "{{ f(3) }}",
    "{% macro f() %}{{ n }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{{ z }}{% endmacro %}{% set z = 9 %}{{ f() }}",
    "{% set z = 1 %}{% macro f() %}{% set z = 2 %}{{ z }}{% endmacro %}{{ f() }}"
    "{{ z }}",
    "{% macro f() %}x{% endmacro %}{{ f()|length }}{{ f() + 'y' }}",
    "{% macro f() %}  x  {% endmacro %}[{{ f()|trim }}]",
    "{{ f() }}{% macro f() %}x{% endmacro %}",
    "{% for i in list %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}{{ f('a') }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %}",
    "{% macro f() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) f() %}"
    "{{ a + b }}{% endcall %}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{% call f(1) %}in{% endcall %}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "{% macro f(ns) %}{% set ns.x = ns.x + 1 %}{% endmacro %}"
    "{% set q = namespace(x=1) %}{{ f(q) }}{{ q.x }}",
    "{% set f = 1 %}{{ f() }}", "{{ n() }}", "{{ s() }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}",
    "{% filter trim | replace('a', 'b') %} aa {% endfilter %}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x }}",
    "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}",
    "{% with x = 1, y = n %}{% set z = 3 %}{{ x }}{{ y }}{{ z }}{% endwith %}"
    "{{ z }}",
    "{% with %}{% set z = 3 %}{{ z }}{% endwith %}{{ z }}",
    "{% generation %}a{{ n }}{% endgeneration %}b",
    "{% for x in list %}{% generation %}{{ x }}{{ loop.index }}"
    "{% endgeneration %}{% endfor %}",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}"
    "{{ x }}",
    "{%- generation -%}  a  {%- endgeneration -%}",
    "{% print n %}{% print n, s %}",
    "{% set l = m|selectattr('role', 'equalto', 'user') %}{% for x in l %}a"
    "{% endfor %}{% for x in l %}b{% endfor %}{{ l|list|length }}",
    "{% for x in m|map(attribute='role') %}{{ x }}{{ loop.last }} {% endfor %}",
    "{% set x = namespace(found=false) %}{% for i in m %}{% if i.role == 'user' "
    "and i.content is string %}{% set x.found = true %}{% endif %}{% endfor %}"
    "{{ x.found }}",
    "{% for i in m %}{% if (i['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('alternate') }}{% endif %}{% endfor %}",
    "{% for x in list %}{{ x }}{{ '' if loop.last else ', ' }}{% endfor %}",
    "{% for x in list -%}\n  {{ x }}\n{%- endfor %}\n",
    "{% for x in list %}\n  {{ x }}\n{% endfor %}\n",
    "{% if t %}{% for x in list %}{{ x }}{% endfor %}{% endif %}",
    "{%if t%}x{%endif%}", "{%  if  t  %}x{%  endif  %}",
    "{%\nif t\n%}x{%\nendif\n%}", "{{\nn\n}}",
    "{% if t %}{# c #}{% endif %}", "{{ n }}{# c #}\n{{ n }}",
    "{{ missing.x if missing else 'no' }}",
    "{{ 'a' if missing is defined and missing.x else 'b' }}",
    "{% if m[0].role == 'system' %}{% set sys = m[0].content %}{% set rest = "
    "m[1:] %}{% else %}{% set rest = m %}{% endif %}{{ sys }}{{ rest|length }}",
    "{% for x in range(3) %}{% for y in range(x) %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in [] %}{% endfor %}{{ x }}",
    "{% set x = none %}{{ x is none }}{{ x }}",
    "{{ [1, 2, 3]|select('odd') | list }}",
    # not Jinja
    "{{ n", "{% if t %}", "{% if t %}{% endfor %}", "{% endif %}", "{{ }}", "{% %}",
    "{% for x list %}{% endfor %}", "{% for 1 in list %}{% endfor %}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ 'abc }}", "{{ (1 }}",
    "{{ 1) }}", "{{ [1, 2 }}", "{{ n..x }}", "{{ n.}}", "{{ n[ }}",
    "{{ a b }}", "{{ 1 2 }}", "{{ 1 + }}", "{{ * 1 }}", "{{ s| }}", "{{ s|1 }}",
    "{{ n is }}", "{{ $ }}", "{{ f(a=1, 2) }}", "{{ f(**d, *list) }}",
    "{% foo %}", "{% break %}", "{% endraw %}", "{% raw %}x", "{# x",
    "{% macro f(a=1, b) %}{% endmacro %}", "{% macro %}{% endmacro %}",
    "{% if %}x{% endif %}", "{% else %}", "{% call n %}{% endcall %}",
    "{% set x %}", "{{ {1} }}", "{{ {'a' 1} }}", "{% if t }}x{% endif %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{{ n is odd is even }}",
    "{% for x in list %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}",
]

# Constructs that Jinja has and Weft refuses by name.
UNSUPPORTED = [
    "{% block a %}x{% endblock %}", "{% autoescape true %}x{% endautoescape %}",
    "{{ lipsum() }}", "{{ joiner(',')() }}", "{{ cycler(1, 2).next() }}",
    "{{ m|groupby('role')|length }}", "{{ 10 ** 30 }}", "{{ 1_000 }}", "{{ 0x1f }}",
    "{{ 'ß'|upper }}", "{{ d.items() }}", "{{ range(3) }}", "{{ range }}",
    "{{ s.upper }}", "{{ d.keys() }}", "{{ list|reverse }}", "{{ s is sameas s }}",
    "{{ '{:>5}'.format('a') }}", "{{ '%x' % 255 }}", "{{ (html|safe)|upper }}",
    "{{ 9223372036854775807 + 1 }}", "{{ s|center(20) }}", "{{ 'ff'|int(0, 16) }}",
    "{% macro f(a) %}{% endmacro %}{{ f.name }}", "{{ m|sort(attribute='a,b') }}",
]


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def main():
    chat.datetime = Fixed

    def render(template):
        try:
            compiled = chat._compile_jinja_template(template)
            context = json.loads(json.dumps(CONTEXT))
            return compiled.render(**context)
        except Exception:
            return None

    cases = [("{{ " + e + " }}") for e in EXPRESSIONS] + TEMPLATES
    out = {"date": "2024-07-26", "context": CONTEXT,
           "cases": [[c, render(c)] for c in cases],
           "unsupported": UNSUPPORTED}
    for template in UNSUPPORTED:
        assert render(template) is not None, template
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="ascii") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
