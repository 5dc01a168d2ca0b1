"""A client of exports that TensorFlow Serving serves, by REST.

    client = Client('http://localhost:8501')
    client.call('embed', texts=['strings in'])      # {'embeddings': [[...]]}

    python client.py --url=http://localhost:8501 --signature=embed "strings in"
    python client.py --choices "a text<TAB>one choice<TAB>another"

As a command it prints one JSON object for each text, or for each line of
standard input. The file needs the standard library alone: copy it.
"""

import argparse
import base64
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


class ServingError(Exception):
    """No answer, or a refusal; the message has the server's own words."""


class Client:
    """A model on a server. Threads may share one."""

    def __init__(self, url: str, model: str = 'infoword',
                 version: int | None = None, timeout: float = 60):  # fmt: skip
        """Connects to nothing yet.

        Args:
            url: http://HOST:PORT or https://HOST:PORT.
            model, version: names of models.config; None is the newest version.
            timeout: seconds within which the server has to send something.

        Raises:
            ValueError: `url` is none of these.
        """
        if not url.startswith(('http://', 'https://')):
            raise ValueError(f'{url!r} is not http://HOST:PORT')
        self.url, self.timeout = url, timeout
        self.model = f'{url.rstrip("/")}/v1/models/{urllib.parse.quote(model)}'
        self.model += '' if version is None else f'/versions/{version}'
        self.names: dict[str, str] = {}  # by signature, of an only output

    def call(self, signature: str, /, **inputs: list) -> dict[str, list]:
        """Asks once; nothing is tried again.

        Args:
            signature: embed, tokens, ...
            **inputs: lists of str, or of bytes, which need not be UTF-8, by
                name; of choices a list of lists of one length.

        Returns:
            The outputs by name: lists in lists, as the shape of the tensor
            says. What is no UTF-8 in a str is escaped as by `os.fsdecode`.

        Raises:
            ServingError: there was no answer, or a refusal.
            TypeError: an input holds something else.
        """
        request = {'signature_name': signature, 'inputs': inputs}
        body = json.dumps(
            request, default=lambda x: {'b64': base64.b64encode(x).decode()}
        ).encode()
        try:
            outputs = self._load(':predict', body)['outputs']
            if isinstance(outputs, dict):
                return outputs
            if signature not in self.names:  # an only output comes without it
                known = self._load('/metadata')['metadata']['signature_def']
                (name,) = known['signature_def'][signature]['outputs']
                self.names[signature] = name
            return {self.names[signature]: outputs}
        except (LookupError, TypeError, ValueError):
            raise ServingError(f'{self.url} is no TensorFlow Serving') from None

    def _load(self, path: str, body: bytes | None = None) -> dict:
        """Returns the answer of the server: JSON that may hold any bytes."""
        kind = {'Content-Type': 'application/json'}
        request = urllib.request.Request(self.model + path, body, kind)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as file:
                answer = file.read()
            return json.loads(answer.decode('utf-8', 'surrogateescape'))
        except urllib.error.HTTPError as error:
            words = error.read().decode('utf-8', 'replace').split()
            why = f'answered {error.code}: {" ".join(words)}'
        except (OSError, http.client.HTTPException) as error:
            why = f'cannot be reached: {getattr(error, "reason", error)}'
        raise ServingError(f'{self.url} {why}')


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description='Asks TensorFlow Serving.')
    parser.add_argument('--url', default='http://localhost:8501')
    parser.add_argument('--model', default='infoword')
    parser.add_argument('--version', type=int, help='(the newest)')
    parser.add_argument('--signature', default='serving_default')
    parser.add_argument('--timeout', type=float, default=60.0, help='seconds')
    parser.add_argument('--pair', action='store_true', help='TEXT<TAB>SECOND')
    parser.add_argument('--choices', action='store_true', help='TEXT<TAB>A...')
    parser.add_argument('texts', nargs='*', help='(lines of standard input)')
    args = parser.parse_args()
    texts = [os.fsencode(text) for text in args.texts]
    texts = texts or [line.rstrip(b'\r\n') for line in sys.stdin.buffer]
    inputs: dict[str, list] = {'texts': texts}
    if args.pair or args.choices:
        cells = [t.split(b'\t', 1 if args.pair else -1) for t in texts]
        if min(map(len, cells), default=2) < 2:
            sys.exit(f'error: {min(cells, key=len)[0]!r} has no tab')
        inputs['texts'] = [part[0] for part in cells]
        if args.pair:
            inputs['pairs'] = [part[1] for part in cells]
        else:
            inputs['choices'] = [part[1:] for part in cells]
    try:
        client = Client(args.url, args.model, args.version, args.timeout)
        outputs = client.call(args.signature, **inputs)
    except (ServingError, ValueError) as error:
        sys.exit(f'error: {error}')
    for row in zip(*outputs.values(), strict=True):
        print(json.dumps(dict(zip(outputs, row, strict=True))))


if __name__ == '__main__':
    main()
