"""A local page to try an export on: what it can do, each with a form.

    python -m export.demo --model=models/books/1
    python -m export.demo --model=models/books/1 --corpus='text:books/*.txt'
    python -m export.demo --model=models/books/1 --index=news --port=9000

Search wants a text (--corpus, --documents) or an index, as `export.search`
does. The rest is what the model has signatures for: blanks, next words,
classes, numbers, choices, answers, and how alike two texts are. The page has no
script; it answers on this machine alone unless --host says otherwise.
"""

import dataclasses
import errno
import http
import http.server
import ipaddress
import math
import pathlib
import socket
import socketserver
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from export import page, search
from export.page import Field, Row, Section
from infoword_tf import commands, lazy
from infoword_tf.choices import flag
from infoword_tf.config import Config, read_exported

LONGEST = 20_000  # characters of a field
MOST = 50  # answers of a search
SHOWN = 10  # lines of a table
LOOPBACK = ('localhost', '127.0.0.1', '[::1]')  # what a browser calls it
PATIENCE = 30  # seconds that a client may keep a connection waiting


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    model: str | None = flag(None, 'An exported model, DIR/1.')
    corpus: str | None = flag(
        None, 'What to search: pydocs, text:GLOB or '
        'tfds:NAME[/CONFIG][:FEATURE]; all of it.')
    documents: str | None = flag(
        None, 'A table to search instead, as of export.search.')
    id: str | None = flag(None, 'The column of --documents that names them.')
    text: str = flag('text', 'The columns of --documents that are searched.')
    index: str | None = flag(
        None, 'The folder of the index; alone: it is searched as it is.')
    host: str = flag(
        '127.0.0.1', 'The address to answer at. Others than that of this '
        'machine let everybody in who reaches it.')
    port: int = flag(8000, 'The port; 0: any that is free.', at_least=0)


class BadRequest(Exception):
    """What a form was given cannot be answered; the message says why."""


# ------------------------------------------------------------------- sections

_TEXT = Field('text', 'Text', 'area')
SECTIONS = (
    Section(
        'search', 'Search', 'Finds passages by what they mean, and by their '
        'words as far as you say.',
        (
            Field('text', 'Question'),
            Field('words', 'Meaning ... words', 'range', '0.5', step=0.1),
            Field('answers', 'Answers', 'number', '5', 1, MOST),
        ),
        'Search',
    ),
    Section(
        'fill_mask', 'Blanks', 'Write [MASK] wherever a piece is missing.',
        (_TEXT,), 'Fill',
    ),
    Section(
        'next_token', 'Next words', 'The likeliest pieces after a text.',
        (_TEXT,), 'Go on',
    ),
    Section(
        'classify', 'Classes', 'How likely each class is.', (_TEXT,),
        'Classify',
    ),
    Section(
        'classify_pairs', 'Classes of two texts', 'How likely each class is.',
        (_TEXT, Field('pair', 'Second text', 'area')), 'Classify',
    ),
    Section('regress', 'A number', 'As people gave it.', (_TEXT,), 'Rate'),
    Section(
        'regress_pairs', 'A number for two texts', 'As people gave it.',
        (_TEXT, Field('pair', 'Second text', 'area')), 'Rate',
    ),
    Section(
        'choose', 'Choice', 'Which of several goes with a text.',
        (_TEXT, Field('choices', 'Choices, a line each', 'area')), 'Choose',
    ),
    Section(
        'answer', 'Answers', 'Finds the answer to a question in a text.',
        (Field('text', 'Question'), Field('pair', 'Text', 'area')), 'Answer',
    ),
    Section(
        'embed', 'Likeness', 'The {similarity} of the vectors of two texts.',
        (Field('text', 'First text'), Field('pair', 'Second text')),
        'Compare',
    ),
)  # fmt: skip


class Demo:
    """What an export can do, one question at a time.

    Attributes:
        sections: those that it has signatures for.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        signatures: Mapping[str, Callable[..., Any]],
        searched: tuple[Any, Any] | None = None,
    ):
        """Looks what there is.

        Args:
            name: of the model, for people.
            config: of its run.
            signatures: of the loaded export.
            searched: an index, and what embeds queries; None: no search.
        """
        self._name, self._config = name, config
        self._signatures, self._searched = signatures, searched
        # One at a time: memory is that of one request, and answers are soon.
        self._lock = threading.Lock()
        there = {*signatures, *(['search'] if searched else [])}
        self.sections = tuple(
            section._replace(
                hint=section.hint.format(
                    similarity=_SIMILARITIES[config.similarity]
                )
            )
            for section in SECTIONS
            if section.name in there
        )

    def html(self, name: str | None, given: Mapping[str, str]) -> str:
        """The page, with the answer to the form `name` if one was sent.

        Raises:
            BadRequest: it cannot be answered; the page says so, see
                `refused`.
        """
        answer = ''
        if name is not None and given:
            with self._lock:
                answer = _ANSWERS[name](self, given)
        return self._render(name, given, answer)

    def refused(self, name: str, given: Mapping[str, str], why: str) -> str:
        """The page, with a complaint beside the form."""
        return self._render(name, given, page.error(why))

    def _render(
        self, name: str | None, given: Mapping[str, str], answer: str
    ) -> str:
        about = [f'texts are cut at {self._config.max_length} tokens']
        if self._searched is not None:
            about.insert(0, f'{len(self._searched[0]):,} passages')
        elif 'embed' in self._signatures:
            about.append('no search: start with --corpus or --index')
        return page.render(
            self._name, '; '.join(about), self.sections, name, given, answer
        )

    # -------------------------------------------------------------- answers

    def _ask(self, name: str, **texts: Any) -> dict[str, np.ndarray]:
        """The outputs of a signature, of the first and only text."""
        tf = lazy.tensorflow()
        given = {key: tf.constant([value]) for key, value in texts.items()}
        found = self._signatures[name](**given)
        return {key: value.numpy()[0] for key, value in found.items()}

    def _search(self, given: Mapping[str, str]) -> str:
        query = _text(given, 'text', 'Write a question.')
        words = _number(given, 'words', 0.0, 1.0, float)
        answers = _number(given, 'answers', 1, MOST, int)
        index, embed = self._searched
        found = search.find(query, index, embed, answers, words)
        return page.passages((x, p.source, p.text) for x, p in found)

    def _fill_mask(self, given: Mapping[str, str]) -> str:
        text = _text(given, 'text', 'Write a text.')
        found = self._ask('fill_mask', texts=text.encode())
        if not found['count']:
            raise BadRequest('Write [MASK] wherever a piece is missing.')
        shown = min(found['count'], len(found['tokens']))
        tables = [
            _pieces(found['tokens'][i], found['scores'][i], f'Blank {i + 1}')
            for i in range(shown)
        ]
        if shown < found['count']:
            tables.append(page.sentence(f'The first {shown} are answered.'))
        return '\n'.join(tables)

    def _next_token(self, given: Mapping[str, str]) -> str:
        text = _text(given, 'text', 'Write how a text begins.')
        found = self._ask('next_token', texts=text.encode())
        return _pieces(found['tokens'], found['scores'])

    def _labels(self, name: str, given: Mapping[str, str]) -> str:
        found = self._ask(name, **_texts(given, name))
        return _shares(found['labels'], found['probabilities'])

    def _rating(self, name: str, given: Mapping[str, str]) -> str:
        found = self._ask(name, **_texts(given, name))
        return page.table([Row('score', f'{found["score"]:.4g}')])

    def _choose(self, given: Mapping[str, str]) -> str:
        text = _text(given, 'text', 'Write a text.')
        lines = _text(given, 'choices', 'Write two choices or more.')
        choices = [x.strip().encode() for x in lines.splitlines() if x.strip()]
        if not 2 <= len(choices) <= MOST:
            raise BadRequest(f'Write 2 to {MOST} choices, a line each.')
        found = self._ask('choose', texts=text.encode(), choices=choices)
        return _shares(np.array(choices, object), found['probabilities'])

    def _answer(self, given: Mapping[str, str]) -> str:
        found = self._ask('answer', **_texts(given, 'answer'))
        shown = min(5, len(found['texts']))
        return _shares(found['texts'], found['probabilities'], shown)

    def _embed(self, given: Mapping[str, str]) -> str:
        first, second = (
            self._ask('embed', texts=text)['embeddings']
            for text in _texts(given, 'embed', ('texts', 'pairs')).values()
        )
        value = float(first @ second)
        if self._config.similarity == 'cosine':
            value /= max(np.linalg.norm(first) * np.linalg.norm(second), 1e-12)
        what = _SIMILARITIES[self._config.similarity]
        return page.table([Row(what, f'{value:.4f}')])


_SIMILARITIES = {'cosine': 'cosine', 'dot': 'inner product'}
_ANSWERS: dict[str, Callable[[Demo, Mapping[str, str]], str]] = {
    'search': Demo._search,
    'fill_mask': Demo._fill_mask,
    'next_token': Demo._next_token,
    'classify': lambda demo, given: demo._labels('classify', given),
    'classify_pairs': lambda demo, given: demo._labels('classify_pairs', given),
    'regress': lambda demo, given: demo._rating('regress', given),
    'regress_pairs': lambda demo, given: demo._rating('regress_pairs', given),
    'choose': Demo._choose,
    'answer': Demo._answer,
    'embed': Demo._embed,
}


def _texts(
    given: Mapping[str, str], name: str, inputs: Sequence[str] = ()
) -> dict[str, bytes]:
    """What a signature of one text or of two takes."""
    (section,) = (s for s in SECTIONS if s.name == name)
    fields = section.fields
    return {
        key: _text(
            given, field.name, f'Fill in "{field.label.lower()}".'
        ).encode()
        for key, field in zip(
            inputs or ('texts', 'pairs')[: len(fields)], fields, strict=True
        )
    }


def _text(given: Mapping[str, str], name: str, missing: str) -> str:
    """A field that must be filled in."""
    value = given.get(name, '').strip()
    if not value:
        raise BadRequest(missing)
    return value


def _number(
    given: Mapping[str, str], name: str, low: Any, high: Any, kind: type
) -> Any:
    """A number of a field; without one what the form has."""
    (field,) = (f for f in SECTIONS[0].fields if f.name == name)
    try:
        value = kind(given.get(name) or field.value)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise BadRequest(f'"{name}" is a number from {low:g} to {high:g}.')
    return value


def _shown(piece: bytes) -> str:
    return piece.decode('utf-8', 'replace')


def _pieces(tokens: np.ndarray, scores: np.ndarray, caption: str = '') -> str:
    """Pieces by their log-probabilities, the best first."""
    return page.table(
        [
            Row(_shown(token), f'{math.exp(score):.1%}', math.exp(score))
            for token, score in zip(tokens, scores, strict=True)
        ],
        caption,
    )


def _shares(
    names: np.ndarray, probabilities: np.ndarray, most: int = SHOWN
) -> str:
    """Names by their probabilities, the likeliest first."""
    order = np.argsort(-probabilities, kind='stable')[:most]
    rows = [
        Row(
            _shown(names[i]), f'{probabilities[i]:.1%}', float(probabilities[i])
        )
        for i in order
    ]
    more = len(names) - len(rows)
    return page.table(rows, f'the best {len(rows)}' if more > 0 else '')


# --------------------------------------------------------------------- server


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Answers with the page, once there is a `demo`."""

    daemon_threads = True

    def __init__(self, host: str, port: int):
        """Takes the port.

        Raises:
            commands.UsageError: it cannot be had.
        """
        self.demo: Demo | None = None
        if not 0 <= port < 1 << 16:  # getaddrinfo() would take the remainder
            raise commands.UsageError(
                f'--port={port}: a port is a number from 0 to 65535'
            )
        try:
            (found, *_) = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
            self.address_family, address = found[0], found[4]
            super().__init__(address[:2], Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise commands.UsageError(
                    f'port {port} is in use: name another --port, or 0 for '
                    'any that is free'
                ) from None
            why = getattr(error, 'strerror', None) or error
            raise commands.UsageError(
                f'--host={host} --port={port}: {why}'
            ) from None
        self.local = ipaddress.ip_address(address[0]).is_loopback

    def server_bind(self) -> None:
        """Binds, and does not ask a name server for the name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    @property
    def url(self) -> str:
        """Where the page is."""
        host = self.server_name
        host = f'[{host}]' if ':' in host else host
        return f'http://{host}:{self.server_port}/'


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version, sys_version = 'infoword_tf', ''
    timeout = PATIENCE

    def do_GET(self) -> None:
        """The page, or why not."""
        # A page from elsewhere may send its reader here under its own name.
        host = self.headers.get('Host', '').rsplit(':', 1)
        name = host[0] if host[-1].isdigit() else ':'.join(host)
        if self.server.local and name.lower() not in LOOPBACK:
            self._say(
                http.HTTPStatus.MISDIRECTED_REQUEST,
                f'This page is at {self.server.url} alone.',
            )
            return
        demo = self.server.demo
        url = urllib.parse.urlsplit(self.path)
        name = url.path.strip('/') or None
        if name and name not in [section.name for section in demo.sections]:
            self._say(http.HTTPStatus.NOT_FOUND, 'There is no such page.')
            return
        status, given = http.HTTPStatus.OK, {}
        try:
            given = _given(url.query)
            body = demo.html(name, given)
        except BadRequest as error:
            status = http.HTTPStatus.BAD_REQUEST
            body = (
                demo.refused(name, given, str(error))
                if name
                else page.document('Bad request', page.error(str(error)))
            )
        except Exception:
            traceback.print_exc()
            self._say(
                http.HTTPStatus.INTERNAL_SERVER_ERROR,
                'The model could not answer; the terminal says why.',
            )
            return
        self._send(status, body)

    do_HEAD = do_GET

    def _say(self, status: http.HTTPStatus, text: str) -> None:
        self._send(status, page.document(status.phrase, page.error(text)))

    def _send(self, status: http.HTTPStatus, body: str) -> None:
        content = body.encode('utf-8', 'replace')
        self.send_response(status)
        for name, value in (
            ('Content-Type', 'text/html; charset=utf-8'),
            ('Content-Length', str(len(content))),
            ('Content-Security-Policy', page.POLICY),
            ('X-Content-Type-Options', 'nosniff'),
            ('Referrer-Policy', 'no-referrer'),
            ('Cache-Control', 'no-store'),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Says nothing: questions are their askers' own."""


def _given(query: str) -> dict[str, str]:
    """The fields of a request, by name.

    Raises:
        BadRequest: they are too long, or too many.
    """
    try:
        found = urllib.parse.parse_qs(
            query, keep_blank_values=True, max_num_fields=20
        )
    except ValueError:
        raise BadRequest('There are too many fields.') from None
    given = {name: values[-1] for name, values in found.items()}
    for name, value in given.items():
        if len(value) > LONGEST:
            raise BadRequest(
                f'"{name[:20]}" has {len(value):,} characters; at most '
                f'{LONGEST:,} are answered.'
            )
    return given


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> None:
    """Answers until Ctrl-C."""
    commands.require(vars(given), model='an exported model, DIR/1')
    path = pathlib.Path(given.model)
    config, _ = read_exported(path)
    opened = None
    of_search = {
        name: value
        for name, value in chosen.items()
        if name in ('model', 'corpus', 'documents', 'id', 'text', 'index')
    }
    if len(of_search) > 1:  # complaints come before TensorFlow
        opened = search.prepare(search.Choices(**of_search), of_search)
    with Server(given.host, given.port) as server:
        model = lazy.tensorflow().saved_model.load(str(path))
        server.demo = Demo(
            f'{path.absolute().parent.name}, version {path.absolute().name}',
            config,
            model.signatures,
            opened(model) if opened else None,
        )
        print(f'{server.url}  (Ctrl-C ends it)', flush=True)
        if not server.local:
            print(
                'everybody who reaches this address can ask the model',
                file=sys.stderr,
                flush=True,
            )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == '__main__':
    commands.start(run)
