"""Runs an export where this project is not: TensorFlow and tensorflow_text.

    python runner.py DIR/1 FOLDER

answers every FOLDER/NAME.texts with FOLDER/NAME.npz, in which outputs are
called `signature/output`, and writes what it has imported to
FOLDER/report.json. Any Python from 3.8 and TensorFlow from 2.12 on will do.

A file of texts holds their number, then each text's length and bytes; numbers
are eight bytes, the lowest first. So every byte can be sent, NUL included.
"""

from __future__ import annotations

import json
import pathlib
import struct
import sys


def write_texts(path: pathlib.Path, texts: list[bytes]) -> None:
    """Writes texts (bytes) for `main`, or for serve.c."""
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(texts)))
        for text in texts:
            file.write(struct.pack('<Q', len(text)) + text)


def read_texts(path: pathlib.Path) -> list[bytes]:
    """Reads what `write_texts` has written."""
    with open(path, 'rb') as file:
        (count,) = struct.unpack('<Q', file.read(8))
        return [
            file.read(*struct.unpack('<Q', file.read(8))) for _ in range(count)
        ]


def main(model: str, folder: str) -> None:
    """Answers all texts of a folder."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text

    before = set(sys.modules)
    loaded = tf.saved_model.load(model)
    for path in sorted(pathlib.Path(folder).glob('*.texts')):
        texts = tf.constant(read_texts(path), tf.string)
        answers = {}
        for name, function in loaded.signatures.items():
            given = {'texts': texts}
            wanted = function.structured_input_signature[1]
            if 'pairs' in wanted:
                given['pairs'] = texts[::-1]
            if 'choices' in wanted:
                given['choices'] = tf.stack([texts[::-1], texts], axis=1)
            for output, tensor in function(**given).items():
                value = tensor.numpy()
                if value.dtype == object:  # an answer may be a megabyte
                    value = value.astype('S999')
                answers[name + '/' + output] = value
        np.savez(path.with_suffix('.npz'), **answers)
    # TensorFlow imports Keras by itself; loading and running must not.
    report = {
        'tensorflow': tf.__version__,
        'tensorflow_text': tensorflow_text.__version__,
        'imported': sorted({m.split('.')[0] for m in sys.modules}),
        'imported_by_the_model': sorted(
            {m.split('.')[0] for m in set(sys.modules) - before}
        ),
    }
    (pathlib.Path(folder) / 'report.json').write_text(json.dumps(report))


if __name__ == '__main__':
    main(*sys.argv[1:])
