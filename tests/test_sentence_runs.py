"""The command on sentences and pairs of real text, and what it leaves."""

import csv
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf import sizes
from infoword_tf.config import Config
from infoword_tf.data.documents import split_sentences
from infoword_tf.data.sentences import StoreSentences
from infoword_tf.files import read_tensors, write_tensors
from tests import places, quick, runs
from tests.export import workdirs
from tests.refused import refused
from tests.runs import records, run_here


def write_pairs(path, wrong=True):
    """Each sentence with the one behind it; and one of another paragraph."""
    text = pathlib.Path(runs.TEXT['corpus'].removeprefix('text:')).read_text()
    actual = [split_sentences(line) for line in text.split('\n')]
    actual = [s for s in actual if len(s) > 1][:240]
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['anchor', 'positive', 'negative'][: 2 + wrong])
        for i, s in enumerate(actual):
            others = [actual[i - 7][0] if i % 3 else ''] * wrong
            writer.writerow([s[0], s[1], *others])


def setUpModule():
    global FOLDER
    runs.set_up()
    FOLDER = places.make()
    write_pairs(FOLDER / 'a.csv')
    write_pairs(FOLDER / 'b.csv', wrong=False)


class SentencesTest(absltest.TestCase):
    def test_the_prompt_of_init_stands_before_each(self):
        folder = places.make()
        init = workdirs.write(
            folder / 'first', ('ict',), 'lookup',
            fields={'prompts': {'query': 'Names: '}, 'prompt': 'query'},
        )  # fmt: skip
        tokenizer = infoword_tf.load(init).tokenizer
        prompt, text, both = (
            tokenizer.tokenize([x])[0].numpy().tolist()
            for x in ('Names: ', 'a class', 'Names: a class')
        )
        self.assertEqual(both, prompt + text)
        seen, batch = [], StoreSentences.batch

        def watched(*arguments):
            seen.append(batch(*arguments).ids)
            return batch(*arguments)

        with mock.patch.object(StoreSentences, 'batch', watched):
            run_here(
                folder / 'second', '--objectives=simcse', '--steps=1',
                f'--init={init}', '--simcse.repeat=0.32',
                '--simcse.pooling=mean',
            )  # fmt: skip
        self.assertGreater(len({len(ids) for ids in seen}), 1)  # held-out too
        for ids in seen:
            self.assertTrue((ids[..., 1 : 1 + len(prompt)] == prompt).all())


class ConditionedTest(absltest.TestCase):
    @mock.patch.dict(sizes.SIZES, mini={**quick.TINY, 'layers': 2})
    def test_two_stages_of_infocse_beside_a_discriminator(self):
        """Stage 2 begins with stage 1's network."""
        folder = places.make()
        run_here(
            folder / 'one', '--objectives=infocse_stage1', '--size=mini',
            '--infocse.output=layer', '--steps=2',
        )  # fmt: skip
        rows = '--objectives=simcse:1,infocse:0.005,diffcse:0.005'
        output = '--infocse.output=layer'
        shown = run_here(
            folder / 'two', f'--init={folder}/one', rows, output, '--steps=2'
        )
        self.assertIn('taken encoder, objectives/infocse', shown)
        self.assertIn('fresh nothing;', shown)
        last = records(folder / 'two')[-1]
        for row in ('simcse', 'infocse', 'diffcse'):
            self.assertIn(f'heldout/{row}/mi', last)
        self.assertNotIn('simcse/mi', last)  # batches have all lengths
        paths = read_tensors(folder / 'two' / 'weights.safetensors')
        for brought in ('generator', 'discriminator', 'lower', 'diffcse'):
            self.assertEmpty([p for p in paths if brought in p])
        with refused('init_lacks_weights', '--init', '--infocse.output=la'):
            run_here(
                folder / 'none', '--objectives=simcse:1,infocse:1', output,
                '--size=mini',
            )  # fmt: skip
        self.assertFalse((folder / 'none' / 'metrics.jsonl').exists())


class PairsTest(absltest.TestCase):
    def test_from_pairs_alone_to_vectors_through_the_kept_head(self):
        """Two files, of which one has no negatives; then from that workdir."""
        folder = places.make()
        flags = (
            '--objectives=simcse', f'--pairs={FOLDER}/*.csv',
            '--simcse.head=kept', '--vocab_size=400',
        )  # fmt: skip
        shown = run_here(
            folder / 'w', *flags, '--pair_weights=1,2', '--steps=3'
        )
        self.assertRegex(shown, r'\d+ and \d+ examples to train on, a text of')
        self.assertNotIn('random weights', shown)
        self.assertIn(
            'a.csv: a is anchor, b positive, negatives negative\n', shown
        )
        loaded = infoword_tf.load(folder / 'w')
        (layer,) = loaded.config.dense
        self.assertEqual((layer.width, layer.activation), (64, 'tanh'))
        # Another pooling is that before the head.
        actual, (plain,) = (
            loaded.encode(['names'], progress=False, **more)
            for more in ({}, {'pooling': 'cls'})
        )
        layer = read_tensors(folder / 'w' / 'weights.safetensors')
        expected = plain @ layer['dense_0/kernel'] + layer['dense_0/bias']
        np.testing.assert_allclose(actual[0], np.tanh(expected), atol=1e-5)
        shown = run_here(
            folder / 'again', f'--init={folder}/w', '--objectives=simcse',
            f'--pairs={FOLDER}/a.csv', '--pair_columns=positive,anchor',
            '--simcse.pooling=mean', '--steps=1',
        )  # fmt: skip
        self.assertIn('taken dense_0, encoder and the tokenizer', shown)
        self.assertNotIn('random weights', shown)
        self.assertIn('pools by cls, this run by mean', shown)
        self.assertLen(Config.read(folder / 'again').dense, 1)

    def test_a_reranker_and_a_student_of_another_critic(self):
        folder = places.make()
        flags = f'--pairs={FOLDER}/a.csv', '--steps=1', '--vocab_size=400'
        run_here(
            folder / 'cross', *flags, '--objectives=monobert',
            '--sentences.others=2',
        )  # fmt: skip
        run_here(
            folder / 'late', *flags, '--objectives=margin_mse',
            f'--soft_margin.teacher={folder}/cross', '--simcse.critic=late',
            '--simcse.token_width=8', '--sentences.query_length=16',
            '--sentences.expand', '--sentences.markers=[UNK],[MASK]',
        )  # fmt: skip
        last = records(folder / 'late')[-1]
        self.assertBetween(last['heldout/soft_margin/accuracy'], 0.01, 0.99)
        config = Config.read(folder / 'late')
        self.assertEqual((config.critic, config.query_length), ('late', 16))
        self.assertEqual(
            config.prompts, {'query': '[UNK]', 'document': '[MASK]'}
        )
        self.assertTrue(config.critics['late']['expand'])
        self.assertEqual(config.critics['late']['dense'][-1]['width'], 8)

    def test_a_guide_of_another_vocabulary(self):
        folder, guide = places.make(), places.make() / 'guide'
        run_here(
            guide, '--objectives=simcse', '--simcse.pooling=mean',
            '--simcse.head=none', '--steps=1', '--vocab_size=300',
        )  # fmt: skip
        flags = (
            '--objectives=simcse', f'--pairs={FOLDER}/a.csv',
            '--vocab_size=400', f'--simcse.guide={guide}',
            '--simcse.guide_margin=0.05', '--steps=1',
        )  # fmt: skip
        run_here(folder, *flags)
        last = records(folder)[-1]
        self.assertBetween(last['heldout/simcse/guided'], 0.001, 0.999)
        tensors = read_tensors(guide / 'weights.safetensors')
        tensors['unigram'] = tensors['unigram'] + 1
        write_tensors(guide / 'weights.safetensors', tensors)
        with refused('run_other_flags', '--simcse.guide was', '(weights '):
            run_here(folder, *flags)
