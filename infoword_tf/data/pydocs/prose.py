"""English prose of a docstring: its sentences, with markup made plain.

Indentation, headings and the first words of a line tell running text from
code, doctests, tables, and the descriptions of parameters in the styles of
NumPy, Google and Sphinx.
"""

import inspect
import re

from infoword_tf.data.documents import split_sentences

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

# Markup of reStructuredText, Markdown and HTML -> what a reader sees; each is
# tried only where its character occurs, for most paragraphs have none.
_MARKUP = (
    # Roles, :func:`~numpy.linalg.norm` and :ref:`text <target>`, then links,
    # ``code``, and at last any backtick that has no partner.
    ('`', r':[\w:+-]+:`([^`<]+?)\s*<[^`>]*>`', r'\1'),
    ('`', r':[\w:+-]+:`~(?:[^`]*\.)?([^`.]+)`', r'\1'),
    ('`', r':[\w:+-]+:`!?([^`]+)`', r'\1'),
    ('`', r'\[`([^`]+)`\](?!\()', r'\1'),
    ('`', r'`([^`<]+?)\s*<[^`>]*>`_{0,2}', r'\1'),
    ('`', r'`{1,3}([^`]+)`{1,3}(?:__?(?!\w))?', r'\1'),
    ('`', r'`+', ''),
    ('[', r'\s?\[[\w#*.+-]+\]_(?!\w)', ''),  # [1]_
    ('[', r'!?\[([^\]]+)\]\(\s*[^)\s]*\)', r'\1'),  # [text](url)
    ('[', r'\[([^\]]+)\]\[[\w -]*\]', r'\1'),  # [text][label]
    ('*', r'(?<![\w*])(\*{1,3})(?=\S)([^*]+)(?<=\S)\1(?![\w*])', r'\2'),
    ('|', r'\|(\w[\w -]*)\|_{0,2}', r'\1'),
    ('\\', r'\\([*_`|<>])|\\ ', r'\1'),
    ('<', r'(?i)</?(?:a|b|br|code|em|i|li|p|pre|strong|sub|sup|tt|ul)'
     r'(?:\s[^>]*)?/?>', ''),
)  # fmt: skip
_FINISHED = re.compile(r"""[ ].*[.!?]["'”’)\]]*$""")  # two words or more
_UNFINISHED_SUMMARY = re.compile(r"""[\w"'”’)\]]$""")
_NOT_LETTERS = re.compile(r'[\W\d_]+')
_FUNCTION_WORD = re.compile(
    r'\b(?:the|an?|of|to|is|in|and|for|with|that|this|it|be|are|on|by|from|as'
    r'|or|if|not|at|was|were|has|have|when|can|will|must|should)\b',
    re.I,
)
_MIN_LETTERS = 0.82  # of what is not a space; plain English has 0.95 to 0.98


def prose(docstring: str) -> list[str]:
    """Extracts the sentences of English in a docstring, markup made plain.

    Keeps the summary line, the paragraphs of running text and the items of
    lists that are sentences. Drops code, doctests, tables, headings, and the
    descriptions of parameters.
    """
    text = inspect.cleandoc(docstring)
    if '```' in text or '~~~' in text:
        text = _FENCED.sub('', text)
    if '>>>' in text:
        text = _DOCTEST.sub('', text)
    sentences: list[str] = []
    for number, lines in enumerate(_paragraphs(text.split('\n'))):
        if not any(map(_BORDER.match, lines)):
            sentences += _sentences(' '.join(lines), is_summary=number == 0)
    return sentences


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """Splits lines into paragraphs, and drops lines marked as something else.

    Indentation tells most: lines deeper than the text around them are code, a
    quotation, or belong to the line above. Paragraphs may be empty; the first
    is the one that nothing precedes.
    """
    paragraphs: list[list[str]] = [[]]
    base: int | None = 0  # indentation of the text here; None: the next line's
    above: int | None = None  # what is indented deeper than this is dropped
    in_section = in_rest = False  # drop until the next heading, blank line
    text = ''
    for line in lines:
        before, text = text, line.strip()
        indent = len(line) - len(line.lstrip())
        paragraph = paragraphs[-1]
        if not text:
            in_rest = False
            if before:  # the paragraph ends, dropped or not
                paragraphs.append([])
            continue
        if above is not None:
            if indent > above:
                continue
            above = None
        if before and _UNDERLINE.match(text):
            del paragraph[-1:]  # the heading
            paragraphs.append([])
            in_section = bool(_DROPPED_SECTION.fullmatch(before))
            in_rest = False
        elif in_section or in_rest:
            pass
        elif _ADMONITION.fullmatch(text):
            base = None
        elif item := _ITEM.match(text):
            base = indent + item.end()
            text_of_item = text[item.end() :]
            in_rest = bool(_FIRST_HEAD.match(text_of_item))
            above = indent if in_rest else None
            paragraphs.append([] if in_rest else [text_of_item])
        elif _HEAD.match(text) or (not paragraph and _FIRST_HEAD.match(text)):
            paragraphs.append([])
            in_rest, above = True, indent
        elif base is None or indent <= base:
            base = indent
            paragraph.append(text)
        elif len(paragraph) == 1 and (
            len(paragraphs) == 1 or len(paragraph[0]) >= _WRAPPED
        ):
            base = indent  # a hanging indent
            paragraph.append(text)
        else:
            # An indented block, with or without a blank line before it; below
            # a single line it is the definition of a term.
            above = base
            if len(paragraph) == 1:
                paragraph.clear()
    return paragraphs


def _sentences(text: str, is_summary: bool) -> list[str]:
    """Splits a paragraph into sentences; [] of all but English prose."""
    for character, pattern, replacement in _MARKUP:
        if character in text:
            text = re.sub(pattern, replacement, text)
    sentences = split_sentences(text)
    # A paragraph that leads to code ends in a colon: what comes before that
    # sentence is prose. A summary line needs no full stop.
    while sentences and not _FINISHED.search(sentences[-1]):
        if is_summary and _UNFINISHED_SUMMARY.search(sentences[-1]):
            break
        del sentences[-1]
    min_words = 3 if is_summary else 5
    return sentences if _is_english(' '.join(sentences), min_words) else []


def _is_english(text: str, min_words: int) -> bool:
    """Tells whether a text is mostly letters and has a function word."""
    spaces = text.count(' ')
    if spaces + 1 < min_words or '\\' in text or not text.isprintable():
        return False
    letters = len(_NOT_LETTERS.sub('', text))
    return (
        letters >= _MIN_LETTERS * (len(text) - spaces)
        and _FUNCTION_WORD.search(text) is not None
    )
