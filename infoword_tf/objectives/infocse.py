"""The row `infocse`: masked words from a sentence's vector and lower states.

    a                                     b             candidates
    h, the sentence's state at [CLS], and  masked word  the whole vocabulary
    states of a lower layer of a masked
    copy of the sentence

InfoCSE (Wu et al. 2022, §3): two more blocks, the auxiliary network, read both
and say the masked words. Lower states know little of what is around them, so h
has to say it.

Stage 1 trains the network and the encoder (`mlm:1,infocse:1`, the sum
`infocse_stage1`): h and the states are of one masked text, and the gradient
reaches both. Stage 2 starts from stage 1 (--init), with `simcse`: the gradient
reaches the encoder through h alone.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.encoders import Inputs
from infoword_tf.encoders.encoder import blocks_of
from infoword_tf.errors import InputError
from infoword_tf.layers import dropout
from infoword_tf.layers.block import Block, put
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.masked_copies import (
    MaskedCopy,
    masked_copy,
    real_tokens,
    sequence_key,
)
from infoword_tf.objectives.mlm import VocabularyTokens, check_widths
from infoword_tf.objectives.objective import (
    Auxiliary,
    Batch,
    Copy,
    Row,
)
from infoword_tf.objectives.sentence_texts import (
    VIEW,
    source_of,
    text_places,
)
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import Reads, View

MASKED, LOWER = 'masked', 'lower'
FROZEN, DETACHED, TRAINED = LOWERS = ('frozen', 'detached', 'trained')
EMBEDDINGS, LAYER = OUTPUTS = ('embeddings', 'layer')


class AuxiliaryTokens(VocabularyTokens):
    """`infocse`: masked words from a sentence's vector, by two more blocks.

    Learns: vectors that say what the sentence says, with `simcse`.
    Take it: for similarity of sentences without labelled pairs.
    Needs: two runs: `--objectives=infocse_stage1`, then `simcse` and `infocse`
        from its workdir.
    Example: python -m infoword_tf.train --objectives=simcse:1,infocse:0.005
        --init=STAGE1 --workdir=W
    """

    stage: int = setting(
        2,
        '1: trains the auxiliary network beside the encoder, on masked text; '
        '2: the encoder, through the vector of a sentence.',
        at_least=1,
        at_most=2,
    )
    mask_share: float = setting(
        0.4, 'Stage 2: share of the tokens that are masked.',
        at_least=0.01, at_most=0.99,
    )  # fmt: skip
    layer: int = setting(
        0,
        'Layer whose states are read, from 1; 0: that in the middle.',
        at_least=0,
    )
    blocks: int = setting(2, 'Blocks of the auxiliary network.', at_least=1)
    lower: str = setting(
        FROZEN,
        'Stage 2: whose lower states: of a frozen copy of the encoder as the '
        'run starts (the published code), of the encoder itself, detached (as '
        "the paper's figure has it), or with a gradient (its ablation).",
        choices=LOWERS,
    )
    output: str = setting(
        EMBEDDINGS,
        "What scores words: the encoder's input embeddings, which stage 2 "
        'leaves as they are (embeddings), or the output layer of BERT (layer: '
        'dense, GELU, norm, a bias of each token), whose table stage 2 trains '
        'apart from the embeddings (the published code).',
        choices=OUTPUTS,
    )
    fresh: bool = setting(
        False,
        'Stage 2 with an auxiliary network that no stage 1 has trained (the '
        "paper's ablation).",
    )

    def build(self) -> None:
        """Makes the auxiliary network."""
        depth = self.encoder.depth
        self.at = self.layer or depth // 2
        if depth < 2:
            raise InputError(
                'infocse_one_layer',
                f'{self.row} reads a layer below the last, and the encoder has '
                'one layer: choose a larger --size',
            )
        if not 0 < self.at < depth:
            raise InputError(
                'infocse_unknown_layer',
                f'--{self.row}.layer={self.layer}: the encoder has {depth} '
                f'layers, and one below the last is read: 1 to {depth - 1}',
            )
        self.network = blocks_of(
            self.encoder, self.blocks, Block, layer=self, name='block'
        )
        for block in self.network:
            block.build()
        self.token_table = None
        if self.output == EMBEDDINGS:
            check_widths(self)
        else:
            self.make_transform()
            if self.stage == 2:
                shape = self.encoder.vocab_size, self.encoder.embedding_width
                self.token_table = self.make_weight('output_embeddings', *shape)

    def copied_weights(self) -> list[Copy]:
        """Names the table of stage 2, which begins as the embeddings."""
        if self.token_table is None:
            return []
        return [Copy(self.token_table, self.encoder.embedding_table)]

    @property
    def init_complaint(self) -> str:
        """Complaint about a network that no stage 1 has trained."""
        if self.stage == 1 or self.fresh:
            return ''
        more = f' --{self.row}.output={LAYER}' if self.output == LAYER else ''
        return (
            'begins with an auxiliary network that stage 1 has trained: --init '
            f'a workdir of --objectives=infocse_stage1{more}, or set '
            f'--{self.row}.fresh'
        )

    @property
    def table(self) -> Tensor:
        """[V, D] float32, g_psi; in stage 1 the encoder's table, trained."""
        if self.token_table is not None:
            return self.token_table
        if self.stage == 1 or self.lower == TRAINED:
            return self.encoder.embedding_table
        frozen = self.lower == FROZEN
        encoder = self.auxiliaries[LOWER] if frozen else self.encoder
        return ops.stop_gradient(ops.convert_to_tensor(encoder.embedding_table))

    def weight(self, batch: Batch) -> Tensor:
        """Counts the masked tokens."""
        if self.stage == 1:
            return super().weight(batch)
        return ops.sum(self._copy(batch).weights)

    def _copy(self, batch: Batch) -> MaskedCopy:
        """Masks the texts; every call in a step draws the same."""
        view = batch.views[VIEW]
        return masked_copy(
            sequence_key(batch, view.ids.shape[0]),
            view.ids,
            real_tokens(view, self.row),
            share=self.mask_share,
            specials=self.specials,
        )

    def score(self, batch: Batch, candidates: None) -> infonce.Outcome:
        """Computes cross-entropy over V; MI counts places that show [MASK]."""
        if self.stage == 1:
            return self._score_masked(batch)
        view, copy = batch.views[VIEW], self._copy(batch)
        inputs = Inputs(copy.ids, view.positions, block_ids=view.block_ids)
        encoder = LOWER if self.lower == FROZEN else 'encoder'
        lower = batch.encode(
            inputs, encoder, name='masked_sentences', all_layers='below'
        ).layer(self.at)
        if self.lower == DETACHED:
            lower = ops.stop_gradient(lower)
        return self._outcome(
            batch,
            View(
                copy.ids,
                view.sequences,
                block_ids=view.block_ids,
                places={self.row: copy.places},
                targets={self.row: copy.targets},
                weights={self.row: copy.weights},
                measured={self.row: copy.hidden},
            ),
            put(lower, batch.states(VIEW), text_places(view, self.row)),
        )

    def _score_masked(self, batch: Batch) -> infonce.Outcome:
        """Scores stage 1, with h and the lower states of one pass."""
        view, lower = batch.views[MASKED], batch.layers(MASKED)[self.at]
        x = ops.concatenate([batch.states(MASKED)[:, :1], lower[:, 1:]], axis=1)
        return self._outcome(batch, view, x)

    def _outcome(self, batch: Batch, view: View, x: Tensor) -> infonce.Outcome:
        """Runs the network on x [B, T, D] and scores the view's targets."""
        allowed = None
        if view.block_ids is not None:
            block = view.block_ids
            allowed = ops.equal(
                block[:, None, :, None], block[:, None, None, :]
            )
        key = batch.fused_key
        if key is not None:
            key = dropout.fold_in(key, batch.replicas.id)
        for i, block in enumerate(self.network):
            last = i == len(self.network) - 1
            x = block(
                x,
                allowed=allowed,
                places=view.places[self.row] if last else None,
                key=None if key is None else dropout.fold_in(key, i),
            )
        bias = None
        if self.output == LAYER:
            x, bias = self.transformed(x, key), self.token_bias
        measured = view.measured[self.row]
        return self.among_all(batch, view, x, measured, bias=bias)


def _reads(settings: Mapping[str, Any]) -> Reads | None:
    if settings['stage'] == 1:
        return None
    return Reads('example', source=source_of(settings))


def _reads_masked(settings: Mapping[str, Any]) -> Reads | None:
    if settings['stage'] == 2:
        return None
    return Reads('tokens', layers='below', everywhere=True)


def _auxiliaries(settings: Mapping[str, Any]) -> dict[str, Auxiliary]:
    if settings['stage'] == 1 or settings['lower'] != FROZEN:
        return {}
    return {LOWER: Auxiliary(copied=True)}


ROW = Row(
    objective=AuxiliaryTokens,
    a="the sentence's vector, and lower states of its masked copy",
    b='masked token',
    relation='the token that was masked',
    candidates='vocabulary',
    views={VIEW: _reads, MASKED: _reads_masked},
    needs=('alone', 'positions'),
    auxiliaries=_auxiliaries,
)
