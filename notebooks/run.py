"""Runner of the notebooks of this folder, which keeps pictures alone.

    make notebooks [ONLY=search]

Each notebook runs in an empty temporary folder. It is then written with small
pictures and without any other output, so that a difference in a notebook is an
edit or a picture. If a cell fails, or `complaints` finds a fault, the file does
not change. `complaints` needs no Jupyter; the tests call it, too.
"""

import base64
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent
MOST_CELLS, MOST_LINES = 15, 10
FEWEST_PICTURES = 2
LARGEST = 150_000  # bytes of a picture
WIDEST, COLOURS = 1200, 192  # of a picture: pixels
TIMEOUT = 600  # seconds of a cell
PNG = 'image/png'
# Pictures that are also in documents: (notebook, id of the cell).
SHOWN = {
    'search_map.png': ('search', 'map'),
    'serve_answers.png': ('serve', 'answers'),
}
_METADATA = {
    'kernelspec': {
        'display_name': 'Python 3', 'language': 'python', 'name': 'python3'
    },
    'language_info': {'name': 'python'},
}  # fmt: skip
_OF_A_MACHINE = re.compile(
    r'(?<![\w.])/(home|root|tmp|work|usr|opt|Users|mnt)/|[A-Z]:\\'
)


def pictures_of(cell: Mapping[str, Any]) -> list[bytes]:
    """Returns the PNGs that a cell shows."""
    return [
        base64.b64decode(output['data'][PNG])
        for output in cell.get('outputs', ())
        if PNG in output.get('data', ())
    ]


def complaints(notebook: Mapping[str, Any]) -> Iterator[str]:
    """Yields faults of a notebook's JSON, in sentences."""
    cells = notebook['cells']
    if len(cells) > MOST_CELLS:
        yield f'{len(cells)} cells are more than {MOST_CELLS}'
    if notebook['metadata'] != _METADATA:
        yield 'its metadata are of somebody: only a kernel should be named'
    count = sum(len(pictures_of(cell)) for cell in cells)
    if count < FEWEST_PICTURES:
        yield f'{count} pictures are fewer than {FEWEST_PICTURES}'
    for cell in cells:
        name, source = f'cell {cell["id"]}', ''.join(cell['source'])
        lines = source.count('\n') + 1
        if lines > MOST_LINES:
            yield f'{name}: {lines} lines are more than {MOST_LINES}'
        if not source.strip():
            yield f'{name}: is empty'
        if match := _OF_A_MACHINE.search(source):
            yield f'{name}: {match[0]} is a path of one machine'
        if cell['metadata'] or cell.get('execution_count') is not None:
            yield f'{name}: has metadata, or a number of its run'
        for output in cell.get('outputs', ()):
            if set(output.get('data', ())) != {PNG} or output['metadata']:
                yield f'{name}: shows something else than a picture'
        for picture in pictures_of(cell):
            if len(picture) > LARGEST:
                yield f'{name}: a picture has {len(picture):,} bytes'


def small(picture: bytes) -> bytes:
    """Scales a PNG to at most WIDEST pixels and a palette."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert('RGB')
    if image.width > WIDEST:
        height = round(image.height * WIDEST / image.width)
        image = image.resize((WIDEST, height), Image.Resampling.LANCZOS)
    image = image.quantize(COLOURS, dither=Image.Dither.NONE)
    written = io.BytesIO()
    image.save(written, format='PNG', optimize=True)
    return written.getvalue()


def strip(notebook: dict[str, Any]) -> None:
    """Removes all output of a notebook except pictures."""
    notebook['metadata'] = _METADATA
    for cell in notebook['cells']:
        cell['metadata'] = {}
        if cell['cell_type'] != 'code':
            continue
        cell['execution_count'] = None
        cell['outputs'] = [
            {
                'output_type': 'display_data',
                'metadata': {},
                'data': {PNG: base64.b64encode(small(picture)).decode()},
            }
            for picture in pictures_of(cell)
        ]


def run(name: str) -> list[tuple[pathlib.Path, bytes]]:
    """Runs a notebook.

    Returns:
        (path, content) of all files to write.

    Raises:
        RuntimeError: a cell failed, or the notebook has a fault.
    """
    import nbclient
    import nbformat

    path = FOLDER / f'{name}.ipynb'
    notebook = nbformat.read(path, 4)
    began = time.monotonic()

    def executed(cell: Any, cell_index: int, execute_reply: Any) -> None:
        seconds = time.monotonic() - began
        print(f'{seconds:5.0f} s  {name}: {cell.id}', flush=True)

    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook, timeout=TIMEOUT, kernel_name='python3',
            resources={'metadata': {'path': folder}}, record_timing=False,
            on_cell_executed=executed,
            extra_arguments=['--log-level=ERROR'],
        )  # fmt: skip
        try:
            client.execute()
        except (
            nbclient.exceptions.CellExecutionError, TimeoutError
        ) as error:  # fmt: skip
            raise RuntimeError(f'{name}: {error}') from None
    plain = json.loads(nbformat.writes(notebook))
    strip(plain)
    nbformat.validate(plain)
    if faults := list(complaints(plain)):
        raise RuntimeError(f'{name}: ' + '; '.join(faults))
    text = json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True)
    outputs = [(path, f'{text}\n'.encode())]
    for picture, (of, cell_id) in SHOWN.items():
        if of == name:
            (cell,) = (c for c in plain['cells'] if c['id'] == cell_id)
            outputs.append((ROOT / 'docs' / picture, pictures_of(cell)[-1]))
    return outputs


def main(names: list[str]) -> None:
    """Runs notebooks by name, or all, and writes each at the end."""
    from infoword_tf import files

    # Cells import the checkout from their temporary folder.
    paths = [str(ROOT), os.environ.get('PYTHONPATH')]
    os.environ['PYTHONPATH'] = os.pathsep.join(filter(None, paths))
    known = sorted(path.stem for path in FOLDER.glob('*.ipynb'))
    for name in names or known:
        if name not in known:
            sys.exit(f'error: there is no notebook {name!r}: {known}')
        try:
            outputs = run(name)
        except RuntimeError as error:
            sys.exit(f'error: {error}')
        for path, data in outputs:
            with files.written(path) as partial:
                partial.write_bytes(data)
            print(f'{path.relative_to(ROOT)}: {len(data):,} bytes')


if __name__ == '__main__':
    main(sys.argv[1:])
