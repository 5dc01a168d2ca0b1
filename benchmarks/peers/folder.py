"""Folders of sentence-transformers with random weights, of other encoders.

    .venv-peers/bin/python benchmarks/peers/folder.py KIND TOKENIZER OUTPUT

KIND is in KINDS; all have the sizes of MiniLM. TOKENIZER is a folder with the
files of BERT's tokenizer, which every kind gets, so that all read the same
tokens. It imports nothing of the project.
"""

import pathlib
import shutil
import sys
from typing import Any

import sentence_transformers
import transformers

SIZES = {
    'vocab_size': 30522, 'hidden_size': 384, 'num_hidden_layers': 6,
    'intermediate_size': 1536, 'max_position_embeddings': 514,
}  # fmt: skip
# By kind: model_type of transformers, and what its config.json has of its own.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    'mpnet': ('mpnet', {'num_attention_heads': 12}),
    'deberta': (
        'deberta-v2',
        {
            'num_attention_heads': 6, 'relative_attention': True,
            'position_buckets': 256, 'norm_rel_ebd': 'layer_norm',
            'share_att_key': True, 'pos_att_type': ['p2c', 'c2p'],
            'position_biased_input': False, 'type_vocab_size': 0,
        },
    ),
    'eurobert': ('eurobert', {'num_attention_heads': 6, 'pad_token_id': 0}),
}  # fmt: skip
MAX_LENGTH = 256
FILES = ('tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json',
         'vocab.txt')  # fmt: skip


def write(kind: str, tokenizer: pathlib.Path, output: pathlib.Path) -> None:
    """Writes the folder, with weights of seed 0."""
    name, more = KINDS[kind]
    transformers.set_seed(0)
    config = transformers.AutoConfig.for_model(name, **SIZES, **more)
    encoder = output.with_name(f'{output.name}.encoder')
    transformers.AutoModel.from_config(config).save_pretrained(encoder)
    for file in FILES:
        if (tokenizer / file).is_file():
            shutil.copy(tokenizer / file, encoder)
    # A folder of transformers gets a mean of its states.
    model = sentence_transformers.SentenceTransformer(
        str(encoder), device='cpu', local_files_only=True
    )
    model.max_seq_length = MAX_LENGTH
    model.save(str(output))
    shutil.rmtree(encoder)


if __name__ == '__main__':
    kind, tokenizer, output = sys.argv[1:]
    write(kind, pathlib.Path(tokenizer), pathlib.Path(output))
