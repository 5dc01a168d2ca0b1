"""Text and translations of many languages, out of Debian's help packages.

    apt-get download libreoffice-help-en-us libreoffice-help-de
    python -m benchmarks.helptexts --packages=. --output=texts

The help of LibreOffice (MPL 2.0) has the same paragraphs in 35 languages, each
with the same file and number. Writes texts/en.txt and texts/de.txt, a document
a file, and texts/de-en.de and texts/de-en.en, aligned: what is left in English
is left out. What is printed is how much there is.
"""

import html.parser
import io
import pathlib
import re
import subprocess
import tarfile
from collections.abc import Iterator

from absl import flags

from infoword_tf import commands, files

PACKAGES = flags.DEFINE_string(
    'packages', None, 'Folder with libreoffice-help-*.deb.')
OUTPUT = flags.DEFINE_string('output', None, 'Folder for the texts.')

ENGLISH = 'en'
LEAST = 3  # words of an English paragraph that is aligned
_PAGE = re.compile(r'/help/([A-Za-z-]+)/text/(.+)\.html$')
_PARTS = {'p', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6'}


class _Page(html.parser.HTMLParser):
    """The paragraphs of a page that have a number."""

    def __init__(self):
        super().__init__()
        self.found: dict[str, str] = {}
        self.number: str | None = None
        self.text: list[str] = []

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        if tag in _PARTS:
            self.number, self.text = dict(attributes).get('id'), []

    def handle_endtag(self, tag: str) -> None:
        if tag in _PARTS and self.number:
            if text := ' '.join(''.join(self.text).split()):
                self.found[self.number] = text
            self.number = None

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def pages(package: pathlib.Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Of a package the language, name and paragraphs of each page.

    Raises:
        UsageError: there is no dpkg-deb, or it cannot read the package.
    """
    try:
        done = subprocess.run(
            ['dpkg-deb', '--fsys-tarfile', package],
            capture_output=True,
            check=True,
        )
    except FileNotFoundError:
        raise commands.UsageError(
            f'{package} is opened by dpkg-deb, which is not here; install dpkg'
        ) from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors='replace').strip()
        raise commands.UsageError(
            f'{package} cannot be opened ({said}); load it again'
        ) from None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            if found := _PAGE.search(member.name):
                page = _Page()
                page.feed(archive.extractfile(member).read().decode())
                yield found[1], found[2], page.found


def main() -> None:
    """Reads the packages, writes the texts.

    Raises:
        UsageError: there is no package, or none of English; one is damaged,
            or two are of one language.
    """
    commands.require(
        flags.FLAGS.flag_values_dict(),
        packages='a folder with packages',
        output='a folder for the texts',
    )
    folder = pathlib.Path(PACKAGES.value)
    packages = sorted(folder.glob('libreoffice-help-*.deb'))
    texts: dict[str, dict[str, dict[str, str]]] = {}
    named: dict[str, str] = {}
    for package in packages:
        for language, name, found in pages(package):
            code = language.split('-')[0].lower()
            if named.setdefault(code, language) != language:
                raise commands.UsageError(
                    f'--packages={folder} has {named[code]} and {language}, '
                    f'which are both called {code}; keep one of them there'
                )
            texts.setdefault(code, {})[name] = found
    if ENGLISH not in texts or len(texts) < 2:
        raise commands.UsageError(
            f'--packages={folder} has {", ".join(sorted(texts)) or "none"} of '
            'libreoffice-help-*.deb; English is needed, en-us, and another one'
        )
    output = pathlib.Path(OUTPUT.value)
    output.mkdir(parents=True, exist_ok=True)
    english = texts[ENGLISH]
    for code, found in sorted(texts.items()):
        documents = []
        for _, page in sorted(found.items()):
            documents.append('\n'.join(dict.fromkeys(page.values())))
        whole = '\n\n'.join(filter(None, documents)) + '\n'
        write(output / f'{code}.txt', whole)
        said = f'{code}: {len(documents):,} pages, {len(whole):,} characters'
        if code != ENGLISH:
            pairs = dict.fromkeys(
                (text, english[name][number])
                for name, page in found.items()
                for number, text in page.items()
                if number in english.get(name, {})
            )
            kept = [
                pair for pair in pairs
                if pair[0] != pair[1] and len(pair[1].split()) >= LEAST
            ]  # fmt: skip
            for place, language in enumerate((code, ENGLISH)):
                lines = '\n'.join(pair[place] for pair in kept) + '\n'
                write(output / f'{code}-en.{language}', lines)
            said += f', {len(kept):,} translations'
        print(said, flush=True)


def write(path: pathlib.Path, text: str) -> None:
    """A file, whole or not at all."""
    with files.written(path) as partial:
        partial.write_text(text)


if __name__ == '__main__':
    commands.start(main)
