"""A server on this machine that speaks the Hub's protocol for tests.

As `huggingface_hub` asks: what a revision is, a tree of files, and files, by
redirects with a hash where they are large, in ranges where part is there.
"""

import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
from collections.abc import Iterator
from unittest import mock
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

LARGE = 4096  # bytes from which a file is a redirect, as LFS's are


def commit_of(repository: str, number: int) -> str:
    """Returns the hash of a revision, 40 hex digits."""
    return hashlib.sha1(f'{repository} {number}'.encode()).hexdigest()


class Hub:
    """Repositories, and what has gone wrong with them.

    Attributes:
        repositories: by 'models/OWNER/NAME' or 'datasets/OWNER/NAME', the files
            of each revision by path, the oldest first.
        names: by repository, the number of the revision of a branch or tag.
        gated: repositories that ask for permission.
        cut: paths whose next download breaks off in the middle.
        lost: paths whose every download does.
        requests: (method, path, range) of all requests.
    """

    def __init__(self):
        self.repositories: dict[str, list[dict[str, bytes]]] = {}
        self.names: dict[str, dict[str, int]] = {}
        self.gated: set[str] = set()
        self.cut: set[str] = set()
        self.lost: set[str] = set()
        self.requests: list[tuple[str, str, str | None]] = []

    def add(self, repository: str, folder: pathlib.Path) -> None:
        """Adds a revision of a repository, the files of a folder."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob('*'))
            if path.is_file()
        }
        self.repositories.setdefault(repository, []).append(files)
        newest = len(self.repositories[repository]) - 1
        self.names.setdefault(repository, {})['main'] = newest

    def files(self, repository: str, revision: str) -> tuple[str, dict]:
        """Returns commit and files; KeyError: there is no such revision."""
        revisions = self.repositories[repository]
        by_commit = {commit_of(repository, i): i for i in range(len(revisions))}
        number = self.names[repository].get(revision, by_commit.get(revision))
        if number is None:
            raise KeyError(revision)
        return commit_of(repository, number), revisions[number]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers to requests."""

    protocol_version = 'HTTP/1.1'
    hub: Hub

    def log_message(self, *_):
        """Logs nothing."""

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        """Finds what a path names."""
        path = unquote(urlsplit(self.path).path)
        hub = self.hub
        hub.requests.append((self.command, path, self.headers.get('Range')))
        if match := re.fullmatch(r'/cdn/(\w+)', path):
            every = (
                content
                for revisions in hub.repositories.values()
                for files in revisions
                for content in files.values()
            )
            digests = {hashlib.sha256(x).hexdigest(): x for x in every}
            return self.send(200, digests[match[1]], where=path)
        api = re.fullmatch(
            r'/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?'
            r'(?:/(.*))?', path,
        )  # fmt: skip
        file = re.fullmatch(
            r'/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)', path
        )
        if api is not None:
            repository, revision = f'{api[1]}/{api[2]}', api[4] or 'main'
        elif file is None:
            return self.refuse(404, 'EntryNotFound')
        else:
            kind = 'datasets' if file[1] else 'models'
            repository, revision = f'{kind}/{file[2]}', file[3]
        if repository not in hub.repositories:
            return self.refuse(404, 'RepoNotFound')
        if repository in hub.gated:
            return self.refuse(403, 'GatedRepo')
        try:
            commit, files = hub.files(repository, revision)
        except KeyError:
            return self.refuse(404, 'RevisionNotFound')
        if api is not None and api[3] == 'tree':
            return self.send_tree(api[5] or '', files)
        if api is not None:
            return self.send_json(self.about(repository, commit, files))
        if file[4] not in files:
            return self.refuse(404, 'EntryNotFound')
        content = files[file[4]]
        headers = {'X-Repo-Commit': commit}
        if len(content) < LARGE:
            digest = hashlib.sha1(content).hexdigest()
            return self.send(
                200, content, {**headers, 'ETag': f'"{digest}"'}, file[4]
            )
        digest = hashlib.sha256(content).hexdigest()
        # By another name, as of another host.
        where = f'http://localhost:{self.server.server_port}/cdn/{digest}'
        return self.send(302, b'', {
            **headers, 'Location': where,
            'X-Linked-ETag': f'"{digest}"', 'X-Linked-Size': str(len(content)),
        })  # fmt: skip

    def about(self, repository, commit, files):
        return {
            'id': repository.split('/', 1)[1], 'sha': commit,
            'private': False, 'tags': [], 'downloads': 0, 'likes': 0,
            'siblings': [{'rfilename': name} for name in files],
        }  # fmt: skip

    def send_tree(self, within, files):
        """Lists files and folders within a folder."""
        within = f'{within}/' if within else ''
        deep = 'recursive=true' in urlsplit(self.path).query.lower()
        listed = {}
        for name, content in files.items():
            if not name.startswith(within):
                continue
            parts = name.removeprefix(within).split('/')
            for depth in range(1, len(parts)):
                path = within + '/'.join(parts[:depth])
                oid = hashlib.sha1(path.encode()).hexdigest()
                if deep or depth == 1:
                    listed[path] = {
                        'type': 'directory', 'path': path, 'oid': oid,
                        'size': 0,
                    }  # fmt: skip
            if not deep and len(parts) > 1:
                continue
            listed[name] = entry = {
                'type': 'file', 'path': name, 'size': len(content),
                'oid': hashlib.sha1(content).hexdigest(),
            }  # fmt: skip
            if len(content) >= LARGE:
                entry['lfs'] = {
                    'oid': hashlib.sha256(content).hexdigest(),
                    'size': len(content), 'pointerSize': 134,
                }  # fmt: skip
        if not listed:
            return self.refuse(404, 'EntryNotFound')
        return self.send_json(list(listed.values()))

    def refuse(self, status, code):
        headers = {'X-Error-Code': code, 'X-Error-Message': code}
        self.send(status, b'{}', headers)

    def send_json(self, value):
        content = json.dumps(value).encode()
        self.send(200, content, {'Content-Type': 'application/json'})

    def send(self, status, content, headers=None, where=None):
        """Sends a whole content, a range of it, or the first half alone."""
        asked = re.fullmatch(
            r'bytes=(\d+)-(\d*)', self.headers.get('Range') or ''
        )
        headers, first = dict(headers or {}), 0
        if asked and status == 200:
            first, total = int(asked[1]), len(content)
            last = int(asked[2]) if asked[2] else total - 1
            content, status = content[first : last + 1], 206
            headers['Content-Range'] = f'bytes {first}-{last}/{total}'
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        if self.command == 'HEAD':
            return
        if where in self.hub.cut | self.hub.lost:
            self.hub.cut.discard(where)
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(content)


def out_of_reach() -> contextlib.AbstractContextManager:
    """Puts the Hub where nothing answers; the cache stays."""
    return mock.patch.object(constants, 'ENDPOINT', 'http://127.0.0.1:9')


@contextlib.contextmanager
def serving(cache: pathlib.Path) -> Iterator[Hub]:
    """Serves a Hub, which `huggingface_hub` then asks, with an empty cache."""
    hub = Hub()
    handler = type('OneHub', (Handler,), {'hub': hub})
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    where = f'http://127.0.0.1:{server.server_port}'
    template = where + '/{repo_id}/resolve/{revision}/{filename}'
    try:
        with mock.patch.multiple(
            constants, ENDPOINT=where, HF_HUB_CACHE=str(cache),
            HUGGINGFACE_CO_URL_TEMPLATE=template, HF_HUB_DISABLE_XET=True,
        ):  # fmt: skip
            yield hub
    finally:
        server.shutdown()
        server.server_close()
