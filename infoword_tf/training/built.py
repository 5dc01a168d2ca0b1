"""What a run builds once: a model, its graphs, and what lasts between steps.

Runs of one process that differ in seed and learning rate alone, as those of a
sweep, share it: the first of a shape traces and compiles for all.
"""

import dataclasses
import json

import tensorflow as tf

from infoword_tf import files
from infoword_tf.choices import RunChoices
from infoword_tf.config import Config
from infoword_tf.model import Model
from infoword_tf.objectives import Statistics
from infoword_tf.training import loop, optim
from infoword_tf.training.state import State
from infoword_tf.views import Specials

MOST = 6  # shapes that are kept: those of a published grid beside the rates
# Flags that decide the graphs of a run, beside its config.
SHAPE = (
    'batch_size', 'steps', 'microbatch', 'remat', 'xla', 'freeze',
    'layer_decay', 'logical_cpus',
)  # fmt: skip


@dataclasses.dataclass
class Shared:
    """Devices, and for each shape of a run what was built."""

    strategy: tf.distribute.Strategy | None = None
    built: dict[str, 'Built'] = dataclasses.field(default_factory=dict)

    def keep(self, shape: str, built: 'Built') -> None:
        """Of a shape; the oldest goes, for each is as large as a run."""
        if len(self.built) == MOST:
            del self.built[next(iter(self.built))]
        self.built[shape] = built


@dataclasses.dataclass
class Built:
    """A model, what lasts from step to step, and the graphs over both."""

    model: Model
    optimizer: optim.AdamW
    peak: tf.Variable
    state: State
    trainer: loop.Trainer
    heldout: loop.Heldout | loop.HeldoutLanguages | None = None

    def __post_init__(self):
        """Keeps what is no matrix: those are drawn."""
        self.first = {
            path: variable.numpy()
            for path, variable in self.model.variables.items()
            if len(variable.shape) < 2
        }

    def begin_again(self, given: RunChoices, dataset: tf.data.Dataset) -> None:
        """As if all were made anew, for another seed and learning rate."""
        files.assign(
            {path: self.model.variables[path] for path in self.first},
            self.first,
            'the first weights',
        )
        self.model.draw_weights(given.seed, given.init_deviation)
        self.optimizer.reset()
        self.peak.assign(given.learning_rate)
        self.trainer.step.assign(0)
        self.trainer.restart(dataset, given.seed)


def shape_of(
    given: RunChoices, config: Config, rules: optim.Preset, warmup_steps: int
) -> str:
    """What decides the graphs of a run; args as of `build`."""
    flags = [getattr(given, name) for name in SHAPE]
    values = config.replace(run={}).to_json()
    return json.dumps([values, flags, rules, warmup_steps])


def build(
    given: RunChoices,
    config: Config,
    specials: Specials,
    strategy: tf.distribute.Strategy,
    update: tuple[optim.Preset, int],
    dataset: tf.data.Dataset,
    statistics: Statistics,
) -> Built:
    """Makes all of it.

    Args:
        given: what was chosen, its steps known.
        update: rules of the optimizer, and updates of the warm-up.
        dataset: of flat views, of the shapes of the run's.
        statistics: of what is trained on.
    """
    rules, warmup_steps = update
    with strategy.scope():
        model = Model(
            config, specials, given.seed, deviation=given.init_deviation
        )
        model.encoder.remat = given.remat
        learning = {
            path: variable
            for path, variable in model.trainable.items()
            if not (given.freeze and path.startswith('encoder/'))
        }
        shares = {}
        if given.layer_decay != 1.0:
            shares = optim.layer_shares(
                learning, model.encoder.depth, given.layer_decay
            )
        optimizer = optim.AdamW(learning, rules, shares, model.no_decay)
    peak = tf.Variable(given.learning_rate, dtype=tf.float32, trainable=False)
    state = State(model, strategy, given.batch_size)
    step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def rate(step: tf.Tensor) -> tf.Tensor:
        now = peak.read_value()
        return optim.schedule(step, now, warmup_steps, given.steps, rules)

    trainer = loop.Trainer(
        model, dataset, strategy, optimizer, step, rate, statistics,
        given.seed, given.batch_size, given.xla, state, given.microbatch,
    )  # fmt: skip
    return Built(model, optimizer, peak, state, trainer)
