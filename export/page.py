"""The page of `export.demo`: one document, no script, nothing from elsewhere.

All text that is not of this file goes through `html.escape`. What the page may
do is said by `POLICY`, so that a slip would still run nothing.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

SHOWN = 700  # characters of a passage

STYLE = """
:root { color-scheme: light dark; --line: #d4d8dd; --soft: #5d6673;
  --back: #f6f7f9; --card: #fff; --text: #1c2127; --mark: #2458c5; }
@media (prefers-color-scheme: dark) { :root { --line: #3a414b;
  --soft: #9aa4b2; --back: #15181c; --card: #1e2227; --text: #e5e9ee;
  --mark: #7ea6ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 52rem;
  background: var(--back); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; }
.soft { color: var(--soft); font-size: .875rem; }
nav { margin: .6rem 0 1.2rem; display: flex; flex-wrap: wrap; gap: .9rem; }
a { color: var(--mark); }
section { background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; padding: 1rem 1.1rem; margin: 0 0 1rem; }
form { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; }
label { display: block; flex: 1 1 100%; font-size: .875rem;
  color: var(--soft); }
label.small { flex: 0 1 auto; }
input, textarea { display: block; width: 100%; margin-top: .15rem;
  padding: .45rem .6rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--back); color: var(--text); font: inherit; }
input[type=number] { width: 5.5rem; }
input[type=range] { width: 13rem; padding: .45rem 0; }
button { padding: .45rem 1.2rem; border: 0; border-radius: .4rem;
  background: var(--mark); color: var(--card); font: inherit;
  cursor: pointer; }
ol { margin: 1rem 0 0; padding: 0; list-style: none; }
li { padding: .6rem 0; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
.source { font-weight: 600; }
.score { float: right; margin-left: 1rem; color: var(--soft);
  font-variant-numeric: tabular-nums; }
.text { white-space: pre-wrap; }
table { border-collapse: collapse; margin-top: .8rem; width: 100%; }
caption { text-align: left; color: var(--soft); font-size: .875rem; }
td { padding: .15rem .8rem .15rem 0; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums;
  width: 5.5rem; }
td.bar { width: 45%; } meter { width: 100%; height: .8rem; }
.error { border-left: 4px solid #c33; padding-left: .8rem;
  margin-top: .8rem; overflow-wrap: anywhere; }
"""

_DIGEST = hashlib.sha256(STYLE.encode()).digest()
# What a browser lets the page do: this style, and forms that come back here.
POLICY = (
    "default-src 'none'; "
    f"style-src 'sha256-{base64.b64encode(_DIGEST).decode()}'; "
    "img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)


class Field(NamedTuple):
    """One field of a form.

    Attributes:
        name: of the parameter.
        label: what people read.
        kind: text, area, number or range.
        value: where nothing was asked.
        low, high, step: of numbers.
    """

    name: str
    label: str
    kind: str = 'text'
    value: str = ''
    low: float = 0
    high: float = 1
    step: float = 1


class Section(NamedTuple):
    """One thing that the model can do.

    Attributes:
        name: of its path and anchor.
        title: for people.
        hint: a sentence.
        fields: of its form.
        button: the word on it.
    """

    name: str
    title: str
    hint: str
    fields: tuple[Field, ...]
    button: str


class Row(NamedTuple):
    """A line of a table: a text, a number, and a share of 1 for its bar."""

    text: str
    number: str
    share: float | None = None


def table(rows: Sequence[Row], caption: str = '') -> str:
    """Rows, with bars."""
    lines = ['<table>']
    if caption:
        lines.append(f'<caption>{escape(caption)}</caption>')
    for row in rows:
        bar = ''
        if row.share is not None:
            share = min(max(row.share, 0.0), 1.0)
            bar = f'<meter value="{share:.4f}">{share:.0%}</meter>'
        lines.append(
            f'<tr><td>{escape(row.text)}</td>'
            f'<td class="number">{escape(row.number)}</td>'
            f'<td class="bar">{bar}</td></tr>'
        )
    return '\n'.join([*lines, '</table>'])


def passages(found: Iterable[tuple[float, str, str]]) -> str:
    """Scores, sources and texts, the best first."""
    lines = []
    for score, source, text in found:
        if len(text) > SHOWN:
            text = text[:SHOWN].rstrip() + ' ...'
        lines.append(
            f'<li><span class="score">{score:.3f}</span>'
            f'<span class="source">{escape(source)}</span>'
            f'<div class="text">{escape(text)}</div></li>'
        )
    if not lines:
        return '<p>Nothing was found.</p>'
    return '\n'.join(['<ol>', *lines, '</ol>'])


def sentence(text: str) -> str:
    """A paragraph."""
    return f'<p>{escape(text)}</p>'


def error(text: str) -> str:
    """A complaint, beside the form that it is about."""
    return f'<p class="error" role="alert">{escape(text)}</p>'


def _field(field: Field, value: str) -> str:
    """A field with what was asked in it."""
    name, value = escape(field.name), escape(value)
    if field.kind == 'area':
        # A line end at the start of a textarea is not part of its text.
        inner = f'<textarea name="{name}" rows="4">\n{value}</textarea>'
    elif field.kind == 'text':
        inner = f'<input name="{name}" value="{value}" autocomplete="off">'
    else:
        inner = (
            f'<input type="{field.kind}" name="{name}" value="{value}" '
            f'min="{field.low:g}" max="{field.high:g}" step="{field.step:g}">'
        )
    small = ' class="small"' if field.kind in ('number', 'range') else ''
    return f'<label{small}>{escape(field.label)}{inner}</label>'


def _section(section: Section, given: Mapping[str, str], answer: str) -> str:
    """A form, what was asked, and the answer."""
    fields = '\n'.join(
        _field(field, given.get(field.name, field.value))
        for field in section.fields
    )
    return f"""<section id="{section.name}">
<h2>{escape(section.title)}</h2>
<p class="soft">{escape(section.hint)}</p>
<form action="/{section.name}#{section.name}" method="get">
{fields}
<button>{escape(section.button)}</button>
</form>
{answer}
</section>"""


def render(
    title: str,
    about: str,
    sections: Sequence[Section],
    asked: str | None = None,
    given: Mapping[str, str] | None = None,
    answer: str = '',
) -> str:
    """The whole page.

    Args:
        title: of the model.
        about: a line on it.
        sections: what it can do.
        asked: the name of the section whose form was sent; None: none.
        given: by name, what was in its fields.
        answer: HTML, of the functions above.
    """
    parts = [
        _section(
            section,
            (given or {}) if section.name == asked else {},
            answer if section.name == asked else '',
        )
        for section in sections
    ]
    links = '\n'.join(
        f'<a href="#{section.name}">{escape(section.title)}</a>'
        for section in sections
    )
    return document(
        title,
        f'<p class="soft">{escape(about)}</p>\n<nav>{links}</nav>\n'
        + '\n'.join(parts),
    )


def document(title: str, body: Any) -> str:
    """A title and HTML below it."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
</body>
</html>
"""
