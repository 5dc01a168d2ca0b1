"""One kind of config.json of transformers, as this project configures it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infoword_tf.weights.names import TORCH, Lines, Naming

ACTIVATIONS = {
    'gelu': 'gelu_erf',
    'gelu_new': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'relu': 'relu',
    'silu': 'silu',
}
# Keys of sizes by argument, of most kinds.
SIZES = {
    'vocab_size': 'vocab_size',
    'layers': 'num_hidden_layers',
    'width': 'hidden_size',
    'heads': 'num_attention_heads',
    'inner_width': 'intermediate_size',
    'max_length': 'max_position_embeddings',
}


class Architecture(NamedTuple):
    """One kind of config.json.

    Attributes:
        encoder: name in ENCODERS.
        naming: names of the weights.
        keys: key in config.json by argument.
        absent: default by argument, where config.json lacks the key.
        fixed: arguments that this kind always has.
        padded: whether positions begin after the id of the token that pads.
        refused: the only values that can be converted, by key; the first is
            the default of transformers.
        notes: remarks about a config.json where a key is set, by key; names of
            keys in braces are their values.
        layout: name of the layout of a text in text.layout.LAYOUTS.
        classes: activation between the two layers of the head on the whole
            text.
        tags: names of the head on every token; empty: none.
        spans: names of the head on both ends of an answer; empty: none, or one
            that cannot be converted.
        activations: names there and here; of two with one meaning the first is
            written.
        name: beginning of the names of such models in transformers.
        fills: the task of filling masks, after `name` without `Text`.
        fills_by: the key for the activation of that head, and its default;
            None for the key: it is always the default; None alone: it is the
            encoder's.
        tied: name in HEADS of the head that has no weights but the embeddings,
            and which every encoder of this kind brings, unless it has a table
            of its own or is not causal where the head is.
        ties: whether it has none, where config.json does not say
            (tie_word_embeddings).
        rewrite: a function of config.json and its path that returns it by
            `keys`, where some files have other keys.
        finish: a function that completes a config.json which is written; what
            `rewrite` reads.
        adapt: a function of the names and config.json that returns the names
            where these depend on it.
        pooling: the key for whether the head on the whole text reads the first
            state (`first`) or the mean of all ('mean'), if there is a choice.
        first: the value of that key.
        writes: arguments of an encoder -> whether it is written as this kind;
            of several kinds it is the first.
    """

    encoder: str
    naming: Naming
    keys: Mapping[str, str]
    absent: Mapping[str, Any]
    name: str
    fills: str = 'ForMaskedLM'
    fills_by: tuple[str | None, str] | None = None
    fixed: Mapping[str, Any] = {}
    padded: bool = False
    refused: Mapping[str, tuple[Any, ...]] = {}
    notes: Mapping[str, str] = {}
    layout: str = 'bert'
    classes: str = 'tanh'
    tags: Lines = TORCH.dense('classifier')
    spans: Lines = TORCH.dense('qa_outputs')
    activations: Mapping[str, str] = ACTIVATIONS
    tied: str | None = None
    ties: bool = True
    rewrite: Callable[[Mapping[str, Any], str], Mapping[str, Any]] | None = None
    finish: Callable[[dict[str, Any]], None] | None = None
    adapt: Callable[[Naming, Mapping[str, Any]], Naming] | None = None
    pooling: str | None = None
    first: str = 'cls'
    writes: Callable[[Mapping[str, Any]], bool] = lambda arguments: True
