"""Facts of public_encoders.json, and the table of docs/weights.md made of them.

An encoder has a `config`, the keys of a published config.json that say how it
is computed (those of the encoder that it is `like`, and its own), the name of a
tokenizer, the `modules` that make its vector, the `critics` that have heads
beside it, and `heads`, the rows that its weights hold. `refused` is the id of
an error and what its message names. `checked` is false where no second source
was compared.
"""

import functools
import json
import pathlib
from typing import Any

from infoword_tf.weights.heads import row_of
from infoword_tf.weights.kinds import ARCHITECTURES

FACTS = pathlib.Path(__file__).parent / 'public_encoders.json'
HEAD = """| model | `model_type` | here | vector; heads | out as |
|---|---|---|---|---|
"""
# What is in the way, by the id of the error.
_WHY = {
    'no_model_type': '`config.json` names no `model_type`',
    'unknown_model_type': 'another architecture',
    'mask_by_own_code': '`{}` is not said',
    'value_not_convertible': '`{}` {}',
    'public_unknown_module': 'the module `{}`',
}
_MODULES = {'normalize': 'length 1', 'SpladePooling': '`lexical`'}


@functools.cache
def facts() -> dict[str, dict[str, Any]]:
    """Returns `encoders`, by name and with whole configs, and `tokenizers`."""
    read = json.loads(FACTS.read_text())
    by_name = {entry['name']: entry for entry in read['encoders']}

    def config(entry: dict[str, Any]) -> dict[str, Any]:
        like = by_name.get(entry.get('like'))
        return {**(config(like) if like else {}), **entry['config']}

    return {
        'encoders': {
            name: {**entry, 'config': config(entry)}
            for name, entry in by_name.items()
        },
        'tokenizers': read['tokenizers'],
    }


def texts_of(entry: dict[str, Any]) -> str:
    """Tells what comes in as texts of an encoder: strings, or ids alone."""
    tokenizer = facts()['tokenizers'][entry['tokenizer']]
    return tokenizer.get('texts', 'strings')


def table() -> str:
    """Returns the table of docs/weights.md: a line for each encoder."""
    lines = []
    for name, entry in facts()['encoders'].items():
        kind = entry['config'].get('model_type')
        cells = [name, f'`{kind}`' if kind else '']
        if 'refused' in entry:
            id, *values = entry['refused']
            cells += [f'no: {_WHY[id].format(*values)}', '', '']
        else:
            known = ARCHITECTURES[kind]
            ties = entry['config'].get('tie_word_embeddings', known.ties)
            heads = [*entry.get('critics', ()), *entry.get('heads', ())]
            if ties and known.tied:
                heads.append(row_of(known.tied, {}))
            texts, out = texts_of(entry), entry.get('out', kind)
            of_vector = '; '.join([
                *([texts] if texts != 'strings' else []),
                *(_module(x) for x in entry.get('modules', ())),
                *(f'`{head}`' for head in dict.fromkeys(heads)),
            ])  # fmt: skip
            out = f'`{out}`' if out != kind else ''
            cells += [f'`{known.encoder}`', of_vector, out]
        lines.append(f'| {" | ".join(cells)} |'.replace('  ', ' '))
    return HEAD + '\n'.join(lines) + '\n'


def _module(module: str) -> str:
    """Describes a pooling, a dense layer ('dense FROM TO ACTIVATION') or a
    normalisation.
    """
    kind, *values = module.split()
    if kind == 'dense':
        return f'dense {values[1]}, {values[2].lower()}'
    return _MODULES.get(kind, kind)
