"""The paragraphs of a docstring that may be running text.

Indentation, headings and the first words of a line tell them from code,
doctests, tables, and the descriptions of parameters in the styles of NumPy,
Google and Sphinx.
"""

import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Sections whose content is a list of names, code or both.
_SECTIONS = (
    r'args|arguments|call[ ]args|call[ ]arguments|attributes|parameters'
    r'|other[ ]parameters|params|kwargs|keyword[ ]arg(?:ument)?s|inputs?'
    r'|outputs?|input[ ]shapes?|output[ ]shapes?|returns?|return[ ]values?'
    r'|yields?|receives?|raises?|throws|exceptions|warns?|methods|properties'
    r'|see[ ]also|references?|citations?|todos?|authors?|copyright|license'
    r'|fields|variables|options|constants|classes|functions|subclasses'
)
_EXAMPLES = r'examples?|(?:example|sample|standalone)?[ ]?usage|example[ ]code'
_DROPPED_SECTION = re.compile(rf'(?:{_SECTIONS}):{{0,2}}', re.I | re.X)
# Sections of prose, which Docutils calls admonitions, and their like.
_ADMONITIONS = (
    r'notes?|n\.?b\.?|warnings?|caution|important|tips?|hint|remarks?|details'
    r'|description|background|compatibility|motivation|caveats?|deprecated'
)
_ADMONITION = re.compile(rf'(?:{_ADMONITIONS}):{{1,2}}', re.I)
# Lines that begin something other than prose, wherever they stand; what is
# indented deeper below them, and the rest of their paragraph, goes with them.
_HEAD = re.compile(
    rf"""\.\.(?:\s|$)                   # a directive, comment or footnote
    | :[^`:]+:(?:\s|$) | @\w            # fields of Sphinx and Epydoc
    | \#{{1,6}}\s                       # a heading of Markdown
    | [|+]                              # a grid
    | \$\$                              # an equation
    | (?:{_SECTIONS}|{_EXAMPLES}):{{1,2}}\s*$""",
    re.I | re.X,
)
# The same, but only at the beginning of a paragraph or of a list's item, for
# in the middle it may be a line of prose that was broken there.
_FIRST_HEAD = re.compile(
    rf"""(?:{_SECTIONS}|{_EXAMPLES}):\s
    | (?:todo|fixme|xxx)\b
    | where\s                           # the symbols of an equation above
    | (?!(?:{_ADMONITIONS}):)           # a name, its type, and then its text
      [`*'"]{{0,3}}[a-z_][\w.-]*(?:,\s*\*{{0,2}}[\w.]+)*[`*'"]{{0,3}}\s*
      (?:\([^)]*\)|\[[^\]]*\])?\s*[`*]{{0,2}}(?::\s|:$|--?\s|–\s|=\s|->)
    | [^\s.]+\([^)]*\)(?:\s*(?:->|:|=|--).*|\s*)$        # a signature""",
    re.I | re.X,
)
_ITEM = re.compile(r'(?:[-*+•·–]|\(?(?:\d{1,2}|[a-h])\)|\d{1,2}\.)\s+(?=\S)')
_UNDERLINE = re.compile(r"([-=~^#*+_'\"`.])\1{2,}$")
_BORDER = re.compile(r'\+?[-=]{2,}(?:[ +|]+[-=]{2,})+|.*\s\|\s.*\s\|')
_FENCED = re.compile(r'^[ ]*(```|~~~).*?(?:^[ ]*\1[`~ ]*$|\Z)', re.M | re.S)
_DOCTEST = re.compile(r'^[ ]*>>>.*(?:\n.*\S.*)*', re.M)
_WRAPPED = 50  # characters: a first line as long as this was broken by width


class Paragraph(NamedTuple):
    """Lines of what may be running text; `is_summary`: nothing precedes it."""

    lines: list[str]
    is_summary: bool


def paragraphs(docstring: str) -> Iterator[Paragraph]:
    """Yields what may be running text; a paragraph may have no lines.

    Code in fences, doctests and tables are left out besides what
    `_running_text` leaves out.
    """
    text = inspect.cleandoc(docstring)
    if '```' in text or '~~~' in text:
        text = _FENCED.sub('', text)
    if '>>>' in text:
        text = _DOCTEST.sub('', text)
    for paragraph in _running_text(text.split('\n')):
        if not any(map(_BORDER.match, paragraph.lines)):
            yield paragraph


def _running_text(lines: Iterable[str]) -> Iterator[Paragraph]:
    """Yields the paragraphs that are not marked as something else.

    Indentation tells most: what is deeper than the text around it is code, a
    quotation, or belongs to the line above it.
    """
    paragraph = Paragraph([], True)
    base: int | None = 0  # indentation of the text here; None: the next line's
    above: int | None = None  # what is indented deeper than this is dropped
    in_section = in_rest = False  # drop until the next heading, blank line
    text = ''
    for line in itertools.chain(lines, ['']):
        before, text = text, line.strip()
        indent = len(line) - len(line.lstrip())
        if not text:
            in_rest = False
            if before:  # the paragraph ends, dropped or not
                yield paragraph
                paragraph = Paragraph([], False)
            continue
        if above is not None:
            if indent > above:
                continue
            above = None
        if before and _UNDERLINE.match(text):
            del paragraph.lines[-1:]  # the heading
            yield paragraph
            paragraph = Paragraph([], False)
            in_section = bool(_DROPPED_SECTION.fullmatch(before))
            in_rest = False
        elif in_section or in_rest:
            pass
        elif _ADMONITION.fullmatch(text):
            base = None
        elif item := _ITEM.match(text):
            yield paragraph
            paragraph = Paragraph([text[item.end() :]], False)
            base = indent + item.end()
            if _FIRST_HEAD.match(paragraph.lines[0]):
                paragraph.lines.clear()
                in_rest, above = True, indent
        elif _HEAD.match(text) or (
            not paragraph.lines and _FIRST_HEAD.match(text)
        ):
            yield paragraph
            paragraph = Paragraph([], False)
            in_rest, above = True, indent
        elif base is None or indent <= base:
            base = indent
            paragraph.lines.append(text)
        elif len(paragraph.lines) == 1 and (
            paragraph.is_summary or len(paragraph.lines[0]) >= _WRAPPED
        ):
            base = indent  # a hanging indent
            paragraph.lines.append(text)
        else:
            # An indented block, with or without a blank line before it; below
            # a single line it is the definition of a term.
            above = base
            if len(paragraph.lines) == 1:
                paragraph.lines.clear()
