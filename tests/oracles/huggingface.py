"""Encoders of Hugging Face's transformers, with heads, on tiny cases.

    .venv-oracles/bin/python -m tests.oracles.huggingface [--write]
    .venv-oracles/bin/python -m tests.oracles.huggingface --folders=DIR

Weights are drawn here by their names, so that the file need not hold them. The
second form loads the folders that our converter has written of each case (see
tests/weights/test_huggingface.py) and compares what they answer.
"""

import importlib
import inspect
import json
import pathlib
import re
import zlib
from typing import Any

import numpy as np

from tests.oracles import frozen

V, BYTES, T, PADDED = 60, 300, 9, 6  # the second row has so many tokens
_BERT = {
    'model_type': 'bert', 'vocab_size': V, 'hidden_size': 16,
    'num_hidden_layers': 2, 'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 20, 'type_vocab_size': 2, 'hidden_act': 'gelu',
}  # fmt: skip
_ROBERTA = {
    **_BERT, 'model_type': 'xlm-roberta', 'type_vocab_size': 1,
    'max_position_embeddings': 22, 'layer_norm_eps': 1e-5, 'pad_token_id': 1,
    'bos_token_id': 0, 'eos_token_id': 2,
}  # fmt: skip
_DISTIL = {
    'model_type': 'distilbert', 'vocab_size': V, 'dim': 16, 'n_layers': 2,
    'n_heads': 2, 'hidden_dim': 24, 'max_position_embeddings': 20,
}  # fmt: skip
_ELECTRA = {**_BERT, 'model_type': 'electra', 'embedding_size': 8}
_MPNET = {
    **{k: v for k, v in _ROBERTA.items() if k != 'type_vocab_size'},
    'model_type': 'mpnet',
}
# Of one block that runs three times.
_ALBERT = {
    **_BERT, 'model_type': 'albert', 'embedding_size': 8,
    'hidden_act': 'gelu_new', 'num_hidden_layers': 3,
}  # fmt: skip
_XLNET = {
    'model_type': 'xlnet', 'vocab_size': V, 'd_model': 16, 'n_layer': 2,
    'n_head': 2, 'd_inner': 24, 'pad_token_id': 1,
}  # fmt: skip
_GPT = {
    'model_type': 'openai-gpt', 'vocab_size': V, 'n_embd': 16, 'n_layer': 2,
    'n_head': 2, 'n_positions': 20,
}  # fmt: skip
# Byte pairs need pieces for all bytes.
_GPT_2 = {**_GPT, 'model_type': 'gpt2', 'vocab_size': BYTES}
_BYTES = {**_ROBERTA, 'model_type': 'roberta', 'vocab_size': BYTES}
# Layers 0 and 3 see the whole text, 1 and 2 two tokens on each side: fewer
# than a quarter of T, so that a band is computed.
_MODERN = {
    'model_type': 'modernbert', 'vocab_size': BYTES, 'hidden_size': 16,
    'num_hidden_layers': 4, 'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 20, 'local_attention': 4, 'pad_token_id': 0,
    'global_rope_theta': 1000.0, 'local_rope_theta': 50.0,
    'cls_token_id': 2, 'sep_token_id': 3, 'bos_token_id': 2, 'eos_token_id': 3,
}  # fmt: skip
# Of distances up to 8 those above 3 share buckets.
_DEBERTA = {
    **_BERT, 'model_type': 'deberta-v2', 'type_vocab_size': 0,
    'relative_attention': True, 'position_buckets': 6,
    'position_biased_input': False, 'pos_att_type': 'p2c|c2p',
    'norm_rel_ebd': 'layer_norm', 'share_att_key': True, 'pad_token_id': 0,
}  # fmt: skip
_AFTER = {
    'vocab_size': V, 'hidden_size': 16, 'num_hidden_layers': 2,
    'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 20, 'pad_token_id': 0,
}  # fmt: skip
_NOMIC = {**_AFTER, 'model_type': 'nomic_bert', 'type_vocab_size': 2}
_GTE = {**_AFTER, 'model_type': 'gte', 'type_vocab_size': 1}
_LLAMA = {
    **_AFTER, 'model_type': 'llama', 'vocab_size': BYTES,
    'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 4,
}  # fmt: skip
_TURNS = {  # of 2 planes one is slowed in part
    'rope_type': 'llama3', 'rope_theta': 30.0, 'factor': 4.0,
    'low_freq_factor': 1.0, 'high_freq_factor': 3.0,
    'original_max_position_embeddings': 40,
}  # fmt: skip
_EUROBERT = {**_LLAMA, 'model_type': 'eurobert'}
# Its tokens see all 16 before them in texts of T.
_MISTRAL = {**_LLAMA, 'model_type': 'mistral', 'sliding_window': 16}
_QWEN = {**_LLAMA, 'model_type': 'qwen3', 'head_dim': 6}
# Layer 1 sees the whole text; the others two tokens on each side, or before.
_GEMMA = {
    **_QWEN, 'model_type': 'gemma3_text', 'num_hidden_layers': 3,
    'sliding_window': 4, 'query_pre_attn_scalar': 64,
    'use_bidirectional_attention': True,
    'layer_types': ['sliding_attention', 'full_attention',
                    'sliding_attention'],
    'rope_parameters': {
        'full_attention': {
            'rope_type': 'linear', 'rope_theta': 1000.0, 'factor': 2.0
        },
        'sliding_attention': {'rope_type': 'default', 'rope_theta': 50.0},
    },
}  # fmt: skip
_TIED = {'tie_word_embeddings': True}
_TAGS = {
    'id2label': {'0': 'O', '1': 'B-PER', '2': 'I-PER'},
    'label2id': {'O': 0, 'B-PER': 1, 'I-PER': 2},
}  # fmt: skip
# By case: the class of transformers, and its config.json.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    'bert': ('BertModel', _BERT),
    'bert_pretraining': ('BertForPreTraining', _BERT),
    'bert_tanh': (
        'BertForMaskedLM',
        {**_BERT, 'hidden_act': 'gelu_new', 'hidden_size': 24,
         'num_hidden_layers': 3, 'num_attention_heads': 3,
         'layer_norm_eps': 1e-6},
    ),
    'bert_relu_next': (
        'BertForNextSentencePrediction', {**_BERT, 'hidden_act': 'relu'}
    ),
    'bert_classes': (
        'BertForSequenceClassification',
        {**_BERT, 'id2label': {'0': 'no', '1': 'perhaps', '2': 'yes'},
         'label2id': {'no': 0, 'perhaps': 1, 'yes': 2}},
    ),
    'bert_one_class': (
        'BertForSequenceClassification',
        {**_BERT, 'id2label': {'0': 'score'}, 'label2id': {'score': 0}},
    ),
    'bert_tags': ('BertForTokenClassification', {**_BERT, **_TAGS}),
    'bert_spans': ('BertForQuestionAnswering', _BERT),
    'distilbert': ('DistilBertForMaskedLM', _DISTIL),
    'distilbert_classes': (
        'DistilBertForSequenceClassification', {**_DISTIL, 'activation': 'relu'}
    ),
    'distilbert_spans': ('DistilBertForQuestionAnswering', _DISTIL),
    'electra': ('ElectraForPreTraining', _ELECTRA),
    'electra_wide': ('ElectraModel', {**_ELECTRA, 'embedding_size': 16}),
    'electra_classes': ('ElectraForSequenceClassification', _ELECTRA),
    'electra_spans': ('ElectraForQuestionAnswering', _ELECTRA),
    # Of these heads the activation is not that of the encoder.
    'electra_generator': (
        'ElectraForMaskedLM', {**_ELECTRA, 'hidden_act': 'relu'}
    ),
    'xlm_roberta': (
        'XLMRobertaForMaskedLM', {**_ROBERTA, 'hidden_act': 'relu'}
    ),
    'xlm_roberta_classes': ('XLMRobertaForSequenceClassification', _ROBERTA),
    'xlm_roberta_spans': ('XLMRobertaForQuestionAnswering', _ROBERTA),
    'roberta': ('RobertaForMaskedLM', _BYTES),
    'roberta_classes': ('RobertaForSequenceClassification', _BYTES),
    'roberta_spans': ('RobertaForQuestionAnswering', _BYTES),
    'roberta_tags': ('RobertaForTokenClassification', {**_BYTES, **_TAGS}),
    'mpnet': ('MPNetForMaskedLM', {**_MPNET, 'hidden_act': 'silu'}),
    'mpnet_classes': ('MPNetForSequenceClassification', _MPNET),
    'mpnet_spans': ('MPNetForQuestionAnswering', _MPNET),
    'albert': ('AlbertForPreTraining', _ALBERT),
    'albert_classes': (
        'AlbertForSequenceClassification', {**_ALBERT, 'hidden_act': 'gelu'}
    ),
    'albert_spans': ('AlbertForQuestionAnswering', _ALBERT),
    'xlnet': ('XLNetLMHeadModel', _XLNET),
    'xlnet_classes': ('XLNetForSequenceClassification', _XLNET),
    'xlnet_tags': ('XLNetForTokenClassification', {**_XLNET, **_TAGS}),
    'gpt': ('OpenAIGPTModel', _GPT),
    'gpt_lm': ('OpenAIGPTLMHeadModel', _GPT),
    'gpt2': ('GPT2Model', _GPT_2),
    'gpt2_lm': ('GPT2LMHeadModel', _GPT_2),
    'modern': ('ModernBertModel', {**_MODERN, 'hidden_activation': 'gelu_new'}),
    'modern_mlm': (
        'ModernBertForMaskedLM',
        {**_MODERN, 'hidden_activation': 'relu',
         'classifier_activation': 'gelu_new'},
    ),
    'modern_classes': ('ModernBertForSequenceClassification', _MODERN),
    'modern_tags': (
        'ModernBertForTokenClassification',
        {**_MODERN, **_TAGS, 'num_hidden_layers': 2,
         'global_attn_every_n_layers': 2},
    ),
    'modern_spans': ('ModernBertForQuestionAnswering', _MODERN),
    'modern_mean': (
        'ModernBertForSequenceClassification',
        {**_MODERN, 'classifier_pooling': 'mean', 'num_hidden_layers': 2,
         'global_attn_every_n_layers': 2},
    ),
    'deberta': ('DebertaV2Model', {**_DEBERTA, 'max_relative_positions': 8}),
    'deberta_mlm': ('DebertaV2ForMaskedLM', _DEBERTA),
    'deberta_new_head': ('DebertaV2ForMaskedLM', {**_DEBERTA, 'legacy': False}),
    'deberta_classes': (
        'DebertaV2ForSequenceClassification',
        {**_DEBERTA, 'type_vocab_size': 2},
    ),
    'deberta_spans': ('DebertaV2ForQuestionAnswering', _DEBERTA),
    'nomic': ('NomicBertForMaskedLM', _NOMIC),
    'nomic_classes': (
        'NomicBertForSequenceClassification', {**_NOMIC, 'hidden_act': 'gelu'}
    ),
    'gte': ('GteForMaskedLM', {**_GTE, 'hidden_act': 'silu'}),
    'gte_linear': (
        'GteModel',
        {**_GTE, 'type_vocab_size': 0, 'rope_parameters': {
            'rope_type': 'linear', 'rope_theta': 500.0, 'factor': 1.5}},
    ),
    'gte_classes': ('GteForSequenceClassification', _GTE),
    'eurobert': ('EuroBertForMaskedLM', {**_EUROBERT, **_TIED}),
    'eurobert_classes': (
        'EuroBertForSequenceClassification',
        {**_EUROBERT, 'classifier_pooling': 'mean'},
    ),
    'llama': ('LlamaForCausalLM',
              {**_LLAMA, **_TIED, 'rope_parameters': _TURNS}),
    'llama_seeing_all': ('LlamaModel', {**_LLAMA, 'is_causal': False}),
    'mistral': ('MistralModel', _MISTRAL),
    'qwen2': ('Qwen2ForCausalLM', {**_LLAMA, **_TIED, 'model_type': 'qwen2'}),
    'qwen3': ('Qwen3Model', _QWEN),
    'qwen3_lm': ('Qwen3ForCausalLM', {**_QWEN, **_TIED}),
    'qwen3_classes': (
        'Qwen3ForSequenceClassification',
        {**_QWEN, 'id2label': {'0': 'no', '1': 'perhaps', '2': 'yes'},
         'label2id': {'no': 0, 'perhaps': 1, 'yes': 2}},
    ),
    'qwen3_tags': ('Qwen3ForTokenClassification', {**_QWEN, **_TAGS}),
    'gemma': ('Gemma3TextModel', _GEMMA),
    'gemma_lm': (
        'Gemma3ForCausalLM',
        {**_GEMMA, 'use_bidirectional_attention': False, 'sliding_window': 3},
    ),
}  # fmt: skip
HEADS = {
    'logits': 'logits', 'prediction_logits': 'logits',
    'seq_relationship_logits': 'next',
}  # fmt: skip


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the weight of a name, the same everywhere."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = random.normal(0, 0.1, shape).astype(np.float32)
    norms = 'LayerNorm', 'layer_norm', '.ln_', 'norm.weight'
    norm = any(part in name for part in norms)
    return drawn + 1 if norm and name.endswith('weight') else drawn


def inputs(kind: str) -> dict[str, np.ndarray]:
    """ids, attention_mask and token_type_ids [B, T] of a model_type.

    XLNet reads the padding on its right as it is here; GPT has none.
    """
    random = np.random.default_rng(3)
    ids = random.integers(5, V, (2, T))
    real = np.arange(T) < np.array([[T], [PADDED]])
    if kind in ('openai-gpt', 'gpt2'):
        return {'input_ids': ids}
    pads_with_1 = 'roberta' in kind or kind == 'mpnet'
    ids = np.where(real, ids, int(pads_with_1))
    actual = {'input_ids': ids, 'attention_mask': real.astype(np.int64)}
    if kind in ('bert', 'electra', 'albert', 'nomic_bert'):
        actual['token_type_ids'] = (np.arange(T) >= 4).astype(np.int64) * real
    if kind == 'xlnet':
        segments = (np.arange(T) >= 4).astype(np.int64) * real
        lengths = real.sum(axis=1)
        segments[np.arange(2), lengths - 1] = 2
        actual['token_type_ids'] = segments
    return actual


def model_of(case: str) -> Any:
    """Returns the model of a case, as transformers draws its weights."""
    import transformers

    kind_of_model, config = CASES[case]
    values = {k: v for k, v in config.items() if k != 'model_type'}
    settings = transformers.AutoConfig.for_model(config['model_type'], **values)
    return getattr(transformers, kind_of_model)(settings).eval()


def run(model: Any, kind: str) -> dict[str, np.ndarray]:
    """layers [L + 1, B, T, D] and what heads say; 0 where padding is."""
    import torch

    fields = inputs(kind)
    with torch.no_grad():
        answers = model(
            **{name: torch.tensor(array) for name, array in fields.items()},
            output_hidden_states=True,
        )
    real = fields.get('attention_mask', np.ones((2, T)))[..., None]
    layers = np.stack([x.numpy() for x in answers.hidden_states])
    actual = {'layers': (layers * real).astype(np.float32)}
    if 'start_logits' in answers:
        ends = answers.start_logits.numpy(), answers.end_logits.numpy()
        actual['logits'] = (np.stack(ends, -1) * real).astype(np.float32)
    for name, ours in HEADS.items():
        if name in answers:
            logits = answers[name].numpy()
            if logits.ndim == 3:
                logits = logits * real
            elif kind == 'electra' and logits.shape == (2, T):
                continue  # of the discriminator
            actual[ours] = logits.astype(np.float32)
    return actual


def make() -> dict[str, np.ndarray]:
    """By CASE/layers and the like what transformers answers.

    CASE/weights is JSON as bytes: by name the weight that it is (its own, or
    one that it is tied to) and its shape; and 'keys' is what `keys` returns.
    """
    import torch

    arrays = {}
    for case, (_, config) in CASES.items():
        kind, model = config['model_type'], model_of(case)
        first: dict[int, str] = {}  # of tied weights, by where they lie
        whose, state = {}, {}
        for key, value in model.state_dict().items():
            if value.dtype == torch.float32:
                name = first.setdefault(value.data_ptr(), key)
                whose[key] = [name, list(value.shape)]
                state[key] = torch.tensor(weight(name, tuple(value.shape)))
        model.load_state_dict(state, strict=False)
        arrays[f'{case}/weights'] = frozen.as_bytes(whose)
        for part, array in run(model, kind).items():
            arrays[f'{case}/{part}'] = array
    arrays['keys'] = frozen.as_bytes(keys())
    return arrays


# How the code of transformers names a key of config.json.
_READS = (
    r'\bconfig\.([a-z]\w*)', r'getattr\((?:self\.)?config, "(\w+)"',
    r'kwargs\.(?:pop|get)\("(\w+)"',
)  # fmt: skip


def keys() -> dict[str, list[str]]:
    """By model_type the keys of config.json that its code has or reads."""
    from transformers import CONFIG_MAPPING

    by_kind = {}
    for kind in sorted({x['model_type'] for _, x in CASES.values()}):
        of_kind = CONFIG_MAPPING[kind]
        where = of_kind.__module__
        code = ''.join(
            inspect.getsource(importlib.import_module(name))
            for name in (where, where.replace('configuration', 'modeling'))
        )
        reads = (re.findall(pattern, code) for pattern in _READS)
        by_kind[kind] = sorted({*of_kind().to_dict()}.union(*reads))
    return by_kind


def load(folders: pathlib.Path) -> float:
    """Asks the folders that our converter wrote, and compares with the file.

    Raises:
        ValueError: transformers misses weights, has some over, or answers
            otherwise.
    """
    import transformers

    expected, largest = frozen.read(frozen.FOLDER / 'huggingface.npz'), 0.0
    for folder in sorted(folders.iterdir()):
        case = folder.name
        written = json.loads((folder / 'config.json').read_text())
        (name,) = written['architectures']
        model, report = getattr(transformers, name).from_pretrained(
            folder, output_loading_info=True
        )
        # What we dropped is made anew: a pooler that no head reads.
        bad = [
            key
            for key in [*report['missing_keys'], *report['unexpected_keys']]
            if 'pooler' not in key
        ]
        if bad or report['mismatched_keys']:
            raise ValueError(f'{case}: {bad}, {report["mismatched_keys"]}')
        actual = run(model.eval(), written['model_type'])
        for part, array in actual.items():
            if f'{case}/{part}' not in expected:
                continue  # GPT's encoder goes out with its head
            gap = np.abs(array - expected[f'{case}/{part}']).max()
            if not gap <= 1e-5:
                raise ValueError(f'{case}/{part} differs by {gap:.1e}')
            largest = max(largest, float(gap))
        print(f'{case}: {", ".join(actual)}')
    return largest


if __name__ == '__main__':
    frozen.main('huggingface', make, load)
