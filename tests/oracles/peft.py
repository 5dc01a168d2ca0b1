"""Adapters of PEFT over tiny models of transformers, merged.

    .venv-oracles/bin/python -m tests.oracles.peft [--write]
    .venv-oracles/bin/python -m tests.oracles.peft --folders=DIR

All weights are drawn by name, as in huggingface.py. The second form loads
folders of adapters that our converter wrote, DIR/CASE, over the model
DIR/CASE_base, and compares with DIR/CASE/expected.npy.
"""

import dataclasses
import json
import pathlib
import tempfile
from typing import Any

import numpy as np

from tests.oracles import frozen, huggingface

# By case of huggingface.py, settings of the adapter.
CASES: dict[str, dict[str, Any]] = {
    'bert_classes': {
        'r': 2, 'lora_alpha': 6, 'task_type': 'SEQ_CLS',
        'target_modules': ['query', 'value', 'dense'],
    },
    'qwen3_classes': {
        'r': 3, 'lora_alpha': 6, 'task_type': 'SEQ_CLS', 'use_rslora': True,
        'target_modules': 'all-linear',
    },
    'gpt2': {
        'r': 2, 'lora_alpha': 3, 'target_modules': ['c_attn'],
        'fan_in_fan_out': True,
    },
    'bert_tags': {
        'r': 2, 'task_type': 'TOKEN_CLS', 'target_modules': ['query', 'value'],
    },
    'bert_spans': {
        'r': 2, 'task_type': 'QUESTION_ANS',
        'target_modules': ['query', 'value'],
    },
    # With NEW tokens, and a table for them that the head of words has not.
    'qwen3_lm': {
        'r': 2, 'task_type': 'CAUSAL_LM', 'target_modules': ['q_proj'],
        'rank_pattern': {'layers.1.self_attn.q_proj': 3},
        'modules_to_save': ['embed_tokens'],
    },
}  # fmt: skip
NEW = 2


def base(case: str) -> Any:
    """The model that an adapter changes."""
    import torch

    model = huggingface.model_of(case)
    state = {
        name: torch.tensor(huggingface.weight(name, tuple(value.shape)))
        for name, value in model.state_dict().items()
        if value.dtype == torch.float32
    }
    model.load_state_dict(state, strict=False)
    return model


def answer(model: Any, case: str) -> np.ndarray:
    """Logits of classes, or states of the last layer."""
    kind = huggingface.CASES[case][1]['model_type']
    actual = huggingface.run(model, kind)
    classes = 'logits' in actual and not case.endswith('_lm')
    return actual['logits'] if classes else actual['layers'][-1]


def make() -> dict[str, np.ndarray]:
    """By CASE/answer what a merged model answers.

    CASE/weights and CASE/config are JSON as bytes: by name the shape of a
    weight in the folder, and what adapter_config.json says; so is `keys`, all
    that it may say, with defaults.
    """
    import peft
    import torch
    from safetensors.numpy import load_file

    arrays = {}
    for case, settings in CASES.items():
        model = base(case)
        if 'modules_to_save' in settings:
            model.resize_token_embeddings(huggingface.BYTES + NEW)
        model = peft.get_peft_model(model, peft.LoraConfig(**settings))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = pathlib.Path(folder)
            names = load_file(path / 'adapter_model.safetensors')
            config = json.loads((path / 'adapter_config.json').read_text())
        drawn = {
            name: torch.tensor(huggingface.weight(name, value.shape))
            for name, value in names.items()
        }
        peft.set_peft_model_state_dict(model, drawn)
        merged = model.merge_and_unload().eval()
        shapes = {name: list(x.shape) for name, x in names.items()}
        config['target_modules'] = sorted(config['target_modules'])
        for part, value in (('weights', shapes), ('config', config)):
            arrays[f'{case}/{part}'] = frozen.as_bytes(value)
        arrays[f'{case}/answer'] = answer(merged, case)
    usual = peft.LoraConfig().to_dict()
    names = (field.name for field in dataclasses.fields(peft.LoraConfig))
    arrays['keys'] = frozen.as_bytes({x: usual.get(x) for x in names})
    return arrays


def load(folders: pathlib.Path) -> float:
    """The largest gap to what our converter's folders should answer."""
    import peft
    import transformers

    largest = 0.0
    for folder in sorted(folders.iterdir()):
        if not (folder / 'adapter_config.json').is_file():
            continue
        written = folder.with_name(f'{folder.name}_base')
        (name,) = json.loads((written / 'config.json').read_text())[
            'architectures'
        ]
        model = getattr(transformers, name).from_pretrained(written)
        model = peft.PeftModel.from_pretrained(model, folder)
        actual = answer(model.merge_and_unload().eval(), folder.name)
        gap = np.abs(actual - np.load(folder / 'expected.npy')).max()
        if not gap <= 1e-5:
            raise ValueError(f'{folder.name} differs by {gap:.1e}')
        largest = max(largest, float(gap))
    return largest


if __name__ == '__main__':
    frozen.main('peft', make, load)
