"""Inline markup -> what a reader sees: reStructuredText, Markdown, HTML."""

import re

# Markup -> what a reader sees. The rules of a character are tried only where
# it occurs, for most paragraphs have none.
_MARKUP = {
    '`': (
        # Roles, :func:`~numpy.linalg.norm` and :ref:`text <target>`, then
        # links, ``code``, and at last any backtick that has no partner.
        (re.compile(r':[\w:+-]+:`([^`<]+?)\s*<[^`>]*>`'), r'\1'),
        (re.compile(r':[\w:+-]+:`~(?:[^`]*\.)?([^`.]+)`'), r'\1'),
        (re.compile(r':[\w:+-]+:`!?([^`]+)`'), r'\1'),
        (re.compile(r'\[`([^`]+)`\](?!\()'), r'\1'),
        (re.compile(r'`([^`<]+?)\s*<[^`>]*>`_{0,2}'), r'\1'),
        (re.compile(r'`{1,3}([^`]+)`{1,3}(?:__?(?!\w))?'), r'\1'),
        (re.compile(r'`+'), ''),
    ),
    '[': (
        (re.compile(r'\s?\[[\w#*.+-]+\]_(?!\w)'), ''),  # [1]_
        (re.compile(r'!?\[([^\]]+)\]\(\s*[^)\s]*\)'), r'\1'),  # [text](url)
        (re.compile(r'\[([^\]]+)\]\[[\w -]*\]'), r'\1'),  # [text][label]
    ),
    '*': (
        (
            re.compile(r'(?<![\w*])(\*{1,3})(?=\S)([^*]+)(?<=\S)\1(?![\w*])'),
            r'\2',
        ),
    ),
    '|': ((re.compile(r'\|(\w[\w -]*)\|_{0,2}'), r'\1'),),
    '\\': ((re.compile(r'\\([*_`|<>])|\\ '), r'\1'),),
    '<': (
        (
            re.compile(
                r'</?(?:a|b|br|code|em|i|li|p|pre|strong|sub|sup|tt|ul)'
                r'(?:\s[^>]*)?/?>',
                re.I,
            ),
            '',
        ),
    ),
}


def plain(text: str) -> str:
    """The text without inline markup."""
    for character, rules in _MARKUP.items():
        if character in text:
            for pattern, replacement in rules:
                text = pattern.sub(replacement, text)
    return text
