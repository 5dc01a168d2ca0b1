"""What every source of text is: a global batch for every step."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from infoword_tf.data.store import Store


class Source(abc.ABC):
    """Text addressed by step: nothing is kept between steps.

    Its constructor raises ValueError where there is less than one batch.

    Attributes:
        heldout_rows: B of held-out text, where that is part of what it is
            (rows that go on with a memory); None: any.
        whole: whether held-out text is one batch of all that there is.
        too_little: what is said of held-out text without room for one batch;
            {tokens} of it, {length} of a row.
        in_training: arguments of the text that is trained on, beside those
            that a plan names: how rows are filled, not what is read.
        by_blocks: whether it takes `shuffle_block`, tokens of which a block is
            that it reads at a time (data/order.py); None: none of the corpus
            is shuffled.
        single: documents of one sentence, which it leaves out; None: it
            leaves none out.
    """

    heldout_rows: ClassVar[int | None] = None
    whole: ClassVar[bool] = False
    too_little: ClassVar[str]
    in_training: ClassVar[Mapping[str, Any]] = {}
    by_blocks: ClassVar[bool | None] = None
    single: int | None = None

    @classmethod
    @abc.abstractmethod
    def capacity(cls, store: Store, length: int, **arguments: Any) -> int:
        """Rows that a text has, none of them twice; see the constructor."""

    @classmethod
    def agree(cls, sources: Sequence[Self]) -> None:
        """Gives the batches of sources of several texts one shape.

        Where the shape does not depend on the text there is nothing to do.
        """
        del sources

    @abc.abstractmethod
    def batch(self, step: int) -> Any:
        """The global batch of a step, a tuple of `views`.

        Its `tokens` [B] int32 are how many tokens of text each row has, no
        specials but those of labelled examples, that no step before has had.
        """
