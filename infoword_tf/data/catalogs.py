"""Catalogs of gettext, .po and .mo: texts of a program and their translations.

Fuzzy entries, and what is not translated, are left out; so is the context of
an entry.
"""

import gettext
import itertools
import pathlib
import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infoword_tf.data import readers
from infoword_tf.languages import code_of


class _Entry(NamedTuple):
    """An entry of a catalog.

    Attributes:
        ids: what is translated: of one, and perhaps of many.
        forms: its translation, or one for each plural form.
    """

    ids: Sequence[str]
    forms: Sequence[str]


_PLURAL = re.compile(
    r'^Plural-Forms:\s*nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;\n]+)',
    re.MULTILINE,
)
_LANGUAGE = re.compile(r'^Language:[ \t]*(\S+)', re.MULTILINE)
_CHARSET = re.compile(rb'Content-Type:[^"\n]*?charset=([\w.:+-]+)')
_FIELD = re.compile(
    r'(?:(msgctxt|msgid|msgid_plural|msgstr|msgstr\[\d\])\s*)?'
    r'"((?:[^"\\]|\\.)*)"'
)
_ESCAPE = re.compile(r'\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)')
_ESCAPED = {'n': '\n', 't': '\t', 'r': '\r', 'a': '\a', 'b': '\b',
            'f': '\f', 'v': '\v'}  # fmt: skip


def read(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields each text with its translation, as they are written.

    Of an entry with plural forms the text of one, with the form that the
    header gives for one; where a language has but one form, the text of many.

    Raises:
        ValueError: it is malformed, or not in the charset of its header.
    """
    header, entries = _opened(path)
    plural = _PLURAL.search(header)
    count, of_one = 2, 0
    if plural is not None:
        try:
            count, of_one = int(plural[1]), gettext.c2py(plural[2])(1)
        except ValueError as error:
            raise ValueError(
                f'{path}: Plural-Forms of its header are malformed ({error}); '
                'see msgfmt -c'
            ) from None
    for ids, forms in entries:
        text, form = ids[0], 0
        if len(ids) > 1:
            text, form = ids[count == 1], of_one
        if text and form < len(forms) and forms[form]:
            yield text, forms[form]


def language_of(path: pathlib.Path) -> str | None:
    """The code of the language that the header names; errors as `read`."""
    header, _ = _opened(path)
    said = _LANGUAGE.search(header)
    return code_of(said[1]) if said else None


def _opened(path: pathlib.Path) -> tuple[str, Iterator[_Entry]]:
    """The header of a catalog, and its entries."""
    name = readers.unpacked(path).lower()
    entries = (_po_entries if name.endswith('.po') else _mo_entries)(path)
    first = next(entries, None)
    if first is None:
        return '', entries
    if not first.ids[0]:
        return first.forms[0], entries
    return '', itertools.chain([first], entries)


def _po_entries(path: pathlib.Path) -> Iterator[_Entry]:
    """Yields the entries of a .po; fuzzy ones, but for the header, are none."""
    with readers.opened(path) as stream:
        data = stream.read()
    charset = _CHARSET.search(data)
    text = _decoded(data, charset and charset[1], path)
    fields: dict[str, str] = {}
    field, fuzzy = '', False
    # A comment ends an entry.
    for number, line in enumerate([*text.split('\n'), '#'], 1):
        line = line.strip()
        is_comment = line.startswith('#')
        match = _FIELD.fullmatch(line)
        if line and match is None and not is_comment:
            raise ValueError(
                f'{path}, line {number}: {line[:40]!r} is no line of a .po: '
                'expected msgid or msgstr with a text in quotes; see msgfmt -c'
            )
        begins = match is not None and match[1] in ('msgctxt', 'msgid')
        if field.startswith('msgstr') and (is_comment or begins):
            ids = [fields[x] for x in ('msgid', 'msgid_plural') if x in fields]
            forms = [fields[x] for x in sorted(fields) if x[:6] == 'msgstr']
            if not (fuzzy and ids[0]):
                yield _Entry(ids, forms)
            fields, field, fuzzy = {}, '', False
        if line.startswith('#,'):
            fuzzy |= 'fuzzy' in line
        elif match is not None:
            if match[1] in fields or not (match[1] or field):
                raise ValueError(
                    f'{path}, line {number}: {match[1] or "a text"} does not '
                    'belong there; see msgfmt -c'
                )
            field = match[1] or field
            if field.startswith('msgstr') and 'msgid' not in fields:
                raise ValueError(
                    f'{path}, line {number}: msgstr has no msgid before it; '
                    'see msgfmt -c'
                )
            said = _ESCAPE.sub(_unescaped, match[2])
            fields[field] = fields.get(field, '') + said


def _unescaped(match: re.Match[str]) -> str:
    said = match[1]
    if said[0] in '01234567':
        return chr(int(said, 8))
    if said[0] == 'x' and len(said) > 1:
        return chr(int(said[1:], 16))
    return _ESCAPED.get(said, said)


def _mo_entries(path: pathlib.Path) -> Iterator[_Entry]:
    """Yields the entries of a .mo, the header first."""
    with readers.opened(path) as stream:
        data = stream.read()
    order = {b'\xde\x12\x04\x95': '<', b'\x95\x04\x12\xde': '>'}.get(data[:4])
    if order is None:
        raise ValueError(
            f'{path} is no .mo: it begins with {data[:4]!r}; make one of a .po '
            'by msgfmt, or name the .po'
        )
    try:
        count, *places = struct.unpack_from(f'{order}3I', data, 8)
        sides = [
            struct.unpack_from(f'{order}{2 * count}I', data, place)
            for place in places
        ]
    except struct.error:
        raise _cut(path) from None
    charset = None
    for entry in range(count):
        texts = []
        for side in sides:
            length, begin = side[2 * entry : 2 * entry + 2]
            if begin + length > len(data):
                raise _cut(path)
            texts.append(data[begin : begin + length])
        if not texts[0] and (said := _CHARSET.search(texts[1])):
            charset = said[1]
        ids, forms = (_decoded(x, charset, path).split('\0') for x in texts)
        ids[0] = ids[0].rpartition('\4')[2]  # without its context
        yield _Entry(ids, forms)


def _cut(path: pathlib.Path) -> ValueError:
    return ValueError(
        f'{path} is no whole .mo: it is shorter than it says; copy or make it '
        'again'
    )


def _decoded(data: bytes, charset: bytes | None, path: pathlib.Path) -> str:
    """Text of a catalog, in the charset that its header names."""
    name = (charset or b'utf-8').decode('ascii', 'replace')
    if name == 'CHARSET':  # of a template that nobody has filled in
        name = 'utf-8'
    try:
        return data.decode(name).removeprefix('\ufeff')
    except LookupError:
        raise ValueError(
            f'{path}: the charset {name} of its header is unknown; convert it '
            'by msgconv -t UTF-8'
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise ValueError(
            f'{path}, line {line} is not {name}: byte '
            f'0x{data[error.start]:02x} ({error.reason}); name its charset in '
            'its header, or convert it'
        ) from None
