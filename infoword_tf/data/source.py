"""The contract of sources of text: a global batch for every step."""

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from infoword_tf import errors
from infoword_tf.data.store import Store


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts the name of a text before the message of an error."""
    try:
        yield
    except errors.InputError as error:
        raise errors.InputError(error.id, f'{name}: {error}') from None


class Source(abc.ABC):
    """Text addressed by step: nothing is kept between steps.

    Constructors take the text (`store`), `length` in tokens, `batch_size` B and
    the `seed` of the order, then arguments of a plan. They raise ValueError
    where the text has less than one batch.

    Attributes:
        heldout_sequences: B of held-out text, where sequences continue with a
            memory; None: any.
        whole: whether held-out text is one batch of the whole text.
        too_little: message for held-out text without room for one batch;
            {tokens} of text, {length} of a sequence.
        in_training: arguments of the training text, besides those of a plan:
            how sequences are filled, not what is read.
        by_length: whether batches of the training text have a text of each
            length: they are not drawn independently, and from p(b) even less.
        by_blocks: whether `shuffle_block`, the tokens of a block, is an
            argument (data/order.py); None: nothing of a corpus is shuffled.
        single: documents of one sentence, which are omitted; None: none are.
    """

    heldout_sequences: ClassVar[int | None] = None
    whole: ClassVar[bool] = False
    too_little: ClassVar[str]
    in_training: ClassVar[Mapping[str, Any]] = {}
    by_length: ClassVar[bool] = False
    by_blocks: ClassVar[bool | None] = None
    single: int | None = None

    @classmethod
    @abc.abstractmethod
    def capacity(cls, store: Store, length: int, **arguments: Any) -> int:
        """Returns how many different sequences a text has."""

    @classmethod
    def unify_shapes(cls, sources: Sequence[Self]) -> None:
        """Gives the batches of sources of several texts one shape.

        Does nothing where the shape does not depend on the text.
        """
        del sources

    @abc.abstractmethod
    def batch(self, step: int) -> Any:
        """Returns the global batch of a step, a tuple of `views`.

        Its `tokens` [B] int32 count the tokens of each sequence that no step
        before has read; specials count in labelled examples alone.
        """
