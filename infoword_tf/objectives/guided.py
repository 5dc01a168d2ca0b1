"""A guide: a model that finds false negatives among candidates.

Solatorio 2024, "GISTEmbed". Its vectors of all texts of --pairs are computed
once, before training begins (training/guide.py), and come with the view.

Shapes: N pairs, S texts of an example, F numbers of a compared text, G of a
guide's vector.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.errors import InputError
from infoword_tf.layers.pooling import unit
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.comparing import Comparing
from infoword_tf.settings import setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import View


class Guided(Comparing):
    """A row that a guide may tell which candidates are no negatives."""

    guide: str = setting(
        '',
        'Workdir of a guide, of any vocabulary (GISTEmbed): of --pairs, texts '
        'that its vectors find nearer to a than b is are no candidates; empty: '
        'none.',
        model=True,
    )
    guide_margin: float = setting(
        0.0,
        'How much less near to a than b is a text may be for the guide, and '
        'still be no candidate.',
        at_least=0.0,
        at_most=2.0,
    )

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses a margin without a guide, and a guide with a queue."""
        super().check_settings(row, rows)
        settings = rows[row]
        guide, queue = settings['guide'], settings['queue']
        if settings['guide_margin'] and not guide:
            raise InputError(
                'margin_without_guide',
                f'--{row}.guide_margin={settings["guide_margin"]:g} is of a '
                f'guide, and there is none; give --{row}.guide too',
            )
        if guide and queue:
            raise InputError(
                'guide_and_queue',
                f'--{row}.guide={guide} sees the texts of a step, and '
                f'--{row}.queue={queue} has those of earlier ones; leave out '
                'one of the two',
            )

    def build(self) -> None:
        """Names a further measure."""
        if self.guide:
            self.more = (*type(self).more, 'guided')
        super().build()

    def with_guides(self, view: View, texts: Tensor) -> Tensor:
        """Appends a guide's vectors, to be gathered at once.

        Args:
            view: the one of the texts.
            texts: [N, S, F].

        Returns:
            [N, S, F + G]; [N, S, F] without a guide.
        """
        if not self.guide:
            return texts
        return ops.concatenate([texts, self._guides(view)], axis=2)

    def _guides(self, view: View) -> Tensor:
        """Returns the vectors of the texts, [N, S, G] of length 1."""
        vectors = ops.cast(view.guides[self.row], 'float32')
        return unit(ops.reshape(vectors, (-1, *vectors.shape[2:])))

    def spared(
        self,
        view: View,
        sides: tuple[int, int],
        states: Tensor,
        trained: Tensor,
        identical: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Leaves out candidates that the guide finds nearer than the answer.

        The guide's cosine of query and candidate is above that of query and
        answer less the margin (§3). The answer is never marked: `Pool.others`
        leaves it out, and f(a, b) is apart.

        Args:
            view: the one of the texts.
            sides: indices of the query and of the answer among the S texts.
            states: [M, G], vectors of the candidates, of length 1.
            trained: [N, M] weights of the candidates in the loss.
            identical: [N, M] bool, which are equal to the answer.

        Returns:
            New weights, and the share of candidates [N] that is left out.
        """
        queries, answers = (self._guides(view)[:, side] for side in sides)
        cosines = ops.matmul(queries, ops.transpose(states))
        edge = ops.sum(queries * answers, axis=1) - self.guide_margin
        near = ops.logical_and(
            cosines > edge[:, None], ops.logical_not(identical)
        )
        share = infonce.share(near, trained)
        return ops.where(near, 0.0, trained), share
