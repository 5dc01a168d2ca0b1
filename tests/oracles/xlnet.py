"""XLNet as Hugging Face's transformers has it, on tiny cases.

    .venv-oracles/bin/python -m tests.oracles.xlnet [--write]

Its weights are drawn here, under its own names. PyTorch and TensorFlow crash
in one process.

Glossary of shapes: P places, m tokens of memory.
"""

import itertools
from typing import Any

import numpy as np

from tests.oracles import frozen

VOCABULARY, WIDTH, HEADS, HIDDEN, LAYERS = 60, 16, 2, 24, 2
T, P = 12, 2
MEMORY, KEPT = 5, 3
# By (memory, activation, clamp, bi_data): half of all, in which each two of
# the first, the third and the last stand beside each other in every way.
STREAMS = [
    (memory, activation, clamp, memory ^ (clamp > 0))
    for memory, activation, clamp in itertools.product(
        (False, True), ('gelu_new', 'gelu', 'relu'), (-1, 4)
    )
]
# By (memory, same_length). Without memory their same_length has each token
# see itself alone.
CAUSAL = [(False, False), (True, False), (True, True)]
CAUSAL_MEMORY = 12
PADDING = [[0] * T, [0] * 8 + [1] * 4]


def name_of(kind: str, *values: Any) -> str:
    """Returns the name of a case in the file."""
    return '/'.join([kind, *map(str, values)])


def make_inputs() -> dict[str, np.ndarray]:
    """Two rows, each a text with an order of its own.

    Returns:
        ids, segments, ranks, sees [B, T]: i sees j where sees[i] > ranks[j];
        places [B, P], where tokens are predicted; memory [L, B, M, D] and
        causal_memory, of another M.
    """
    random = np.random.default_rng(8)
    order = random.permuted(np.tile(np.arange(T), (2, 1)), axis=1)
    # 0, 1: plain, seen by all; 2: predicted; 3: seen by itself too.
    kind = np.tile([0, 1, 2, 3], (2, T // 4))
    kind = random.permuted(kind, axis=1)
    ranks = np.where(kind < 2, -1, order)
    sees = ranks + (kind != 2)
    places = [np.flatnonzero(kind[b] == 2)[:P] for b in range(2)]
    return {
        'ids': random.integers(5, VOCABULARY, (2, T)).astype(np.int32),
        'segments': np.int32([[0] * 5 + [1] * (T - 6) + [2]] * 2),
        'ranks': ranks.astype(np.int32),
        'sees': sees.astype(np.int32),
        'places': np.stack(places).astype(np.int32),
        'padding': np.int32(PADDING),
        **{
            name: np.float32(random.standard_normal((LAYERS, 2, m, WIDTH)))
            for name, m in (
                ('memory', MEMORY), ('causal_memory', CAUSAL_MEMORY)
            )
        },
    }


def make_model(**config: Any) -> Any:
    """Their model, every weight drawn beyond the linear range."""
    import torch
    import transformers

    model = transformers.XLNetModel(
        transformers.XLNetConfig(
            vocab_size=VOCABULARY, d_model=WIDTH, n_layer=LAYERS,
            n_head=HEADS, d_inner=HIDDEN, dropout=0.0, layer_norm_eps=1e-12,
            **config,
        )
    ).eval()  # fmt: skip
    random = np.random.default_rng(12)
    state = model.state_dict()
    for name in sorted(state):
        drawn = 0.3 * random.standard_normal(state[name].shape)
        drawn += name.endswith('layer_norm.weight')
        state[name] = torch.tensor(drawn, dtype=torch.float32)
    model.load_state_dict(state)
    return model


def run(model: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """One pass.

    Returns:
        states [B, T or P, D]; layers [L + 1, B, T, D], of content, from the
        embeddings on; memory [L, B, m, D] where there is some.
    """
    import torch

    inputs = {name: torch.tensor(array) for name, array in inputs.items()}
    remembers, asks = 'mems' in inputs, 'target_mapping' in inputs
    if remembers:
        inputs['mems'] = list(inputs['mems'].transpose(1, 2))
    with torch.no_grad():
        actual = model(**inputs, use_mems=remembers, output_hidden_states=True)
    layers = actual.hidden_states[:: 2 if asks else 1]
    answers = {
        'states': actual.last_hidden_state.numpy(),
        'layers': np.stack([x.numpy() for x in layers]),
    }
    if remembers:
        answers['memory'] = np.stack(
            [x.transpose(0, 1).numpy() for x in actual.mems]
        )
    return answers


def make() -> dict[str, np.ndarray]:
    """Inputs, weights and answers of every case, by name."""
    fields = make_inputs()
    arrays = {f'input/{name}': array for name, array in fields.items()}
    texts = {
        'input_ids': fields['ids'].astype(np.int64),
        'token_type_ids': fields['segments'].astype(np.int64),
    }

    def add(case, answers, expected):
        for part in expected:
            arrays[f'{case}/{part}'] = answers[part]

    rule = fields['sees'][:, :, None] > fields['ranks'][:, None]
    ordered = {**texts, 'perm_mask': 1 - rule.astype(np.float32)}
    asked = np.eye(T, dtype=np.float32)[fields['places']]
    for case in STREAMS:
        memory, activation, clamp, bi_data = case
        model = make_model(
            attn_type='bi', ff_activation=activation, clamp_len=clamp,
            bi_data=bi_data, mem_len=MEMORY, reuse_len=KEPT,
        )  # fmt: skip
        inputs = {**ordered, **({'mems': fields['memory']} if memory else {})}
        both = run(model, target_mapping=asked, **inputs)
        parts = ['states', 'layers', 'memory'][: 2 + memory]
        add(name_of('both', *case), both, parts)
        add(name_of('content', *case), run(model, **inputs), ['states'])
    for case in CAUSAL:
        memory, same_length = case
        model = make_model(
            attn_type='uni', ff_activation='gelu_new',
            same_length=same_length, mem_len=CAUSAL_MEMORY,
        )  # fmt: skip
        inputs = dict(texts)
        if memory:
            inputs['mems'] = fields['causal_memory']
        answers = run(model, **inputs)
        add(name_of('causal', *case), answers, answers)
    model = make_model(attn_type='bi', ff_activation='gelu_new')
    masked = fields['padding'].astype(np.float32)
    add('padding', run(model, **texts, input_mask=masked), ['states'])
    for name, weight in model.state_dict().items():
        arrays[f'weight/{name}'] = weight.numpy()
    return arrays


if __name__ == '__main__':
    frozen.main('xlnet', make)
