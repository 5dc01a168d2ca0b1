"""Rows that compare a query with a passage by a critic: what they share.

`simcse` and `ict` derive from it. A row says which of its texts is the query
and which the passage; the critic says what both become and how these are
compared, see critics/.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from infoword_tf.critics import CRITICS, Critic
from infoword_tf.errors import InputError
from infoword_tf.lazy import ops
from infoword_tf.objectives import infonce
from infoword_tf.objectives.objective import Batch, Shared
from infoword_tf.objectives.queue import Queued
from infoword_tf.settings import Setting, setting
from infoword_tf.tensors import Tensor
from infoword_tf.views import View
from infoword_tf.views.sentences import COPIES

PAIRS_VIEW = 'pair_candidates'


class Comparing(Queued):
    """A row that compares queries with passages by a critic.

    Attributes:
        critics: those that it may have, by name.
        form: the critic that it has.
        owners: views by their settings that a critic may lack.
    """

    critics: ClassVar[Mapping[str, type[Critic]]] = CRITICS
    owners: ClassVar[Mapping[str, str]] = {}
    form: Critic
    critic: str

    def __init_subclass__(cls, **kwargs: Any):
        """Adds the settings of critics to the class."""
        super().__init_subclass__(**kwargs)
        cls.settings = {**cls.settings, **settings_of(cls.critics)}

    @classmethod
    def check_settings(
        cls, row: str, rows: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses settings that the critic lacks, as a queue of vectors."""
        super().check_settings(row, rows)
        critic = cls.critics[rows[row]['critic']]
        for name, values in critic.lacks.items():
            value = rows[row].get(name)
            if value and (not values or value in values):
                raise InputError(
                    'critic_without_setting',
                    f'--{cls.owners.get(name, row)}.{name}={value} is not for '
                    f'--{row}.critic={critic.name}; leave it out',
                )

    def build(self) -> None:
        """Makes the critic, with weights of training alone."""
        kind = self.critics[self.critic]
        self.form = kind(self, {x: getattr(self, x) for x in kind.settings})
        self.more = (*self.more, *kind.more)
        self.form.build()
        super().build()

    @property
    def has_vectors(self) -> bool:
        """False for a critic that encodes both texts at once."""
        return not self.form.of_pairs

    @property
    def lengths(self) -> tuple[int, int]:
        """Longest query and passage in tokens; 0: of any length."""
        return 0, 0

    def set_critics(self, heads: Mapping[str, Any]) -> None:
        """Gives the critic the head."""
        if self.critic in heads:
            self.form.set_head(Shared(heads[self.critic]))

    def set_dense(self, dense: Any) -> None:
        """Gives the critic the dense layers over vectors."""
        super().set_dense(dense)
        self.form.set_dense(self.dense)

    @property
    def key_width(self) -> int:
        """Numbers of a queued vector."""
        return self.form.key_width

    def empty_state(self) -> dict[str, Tensor]:
        """Creates the queue, and the state of the critic."""
        return super().empty_state() | self.form.empty_state()

    def update_state(self, batch: Batch) -> dict[str, Any]:
        """Updates the state of the critic; a row with a queue fills that."""
        return self.form.update_state(batch)


def settings_of(critics: Mapping[str, type[Critic]]) -> dict[str, Setting]:
    """Joins the settings of critics, and says which have each.

    Args:
        critics: those that a row may have, by name.
    """
    return {
        name: dataclasses.replace(
            known,
            needs=(
                'critic',
                tuple(x for x in critics if name in critics[x].settings),
            ),
        )
        for critic in critics.values()
        for name, known in critic.settings.items()
    }


def critics_setting(
    critics: Mapping[str, type[Critic]], a: str, b: str, texts: str
) -> Any:
    """Makes the setting `critic` of a row.

    Args:
        critics: those that the row may have, by name.
        a, b: texts in words, once a sentence has named both.
        texts: both in words.
    """
    *others, last = (x.help.format(a=a, b=b) for x in critics.values())
    return setting(
        next(iter(critics)),
        f'What compares {texts}: {"; ".join(others)}; or {last}.',
        choices=tuple(critics),
    )


def needs_of(
    critic: type[Critic], settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """Returns `Row.needs` of a row with a critic."""
    alone = critic.takes_lookup(settings)
    return ('alone',) if alone else ('alone', 'attention')


def outcome_of_pairs(
    batch: Batch, row: str, scores: Tensor, temperature: float, texts: int
) -> infonce.Outcome:
    """Computes Eq. 1 over the candidates of each example, of pairs that are
    encoded as one.

    The bound counts b and what was drawn, K + 1 in all.

    Args:
        batch: input of the step.
        row: name of the row that reads the view.
        scores: [N, M] float32, those of b first; M candidates of an example.
        temperature: divisor of the scores.
        texts: S of an example, whose last S - 2 are the negatives.
    """
    view: View = batch.views[PAIRS_VIEW]
    numbers = view.targets[row]  # [N, M]
    scores = scores / temperature
    negatives = texts - COPIES
    others = ops.cast(numbers[:, 1:] >= 0, 'float32')
    drawn = ops.arange(others.shape[1]) < others.shape[1] - negatives
    weights = ops.reshape(view.weights[row], (-1,))
    identical = ops.equal(numbers[:, 1:], numbers[:, :1])
    result = infonce.contrast(
        infonce.Comparison(
            scores[:, 0], scores[:, 1:], ops.where(drawn, others, 0.0),
            identical,
        ),
        weights,
        drop_identical=True,
        trained=others,
    )  # fmt: skip
    share = infonce.share(identical, others)
    return result._replace(more={'identical': ops.sum(weights * share)})
