"""Folders as people bring them: what their own libraries answer, we answer."""


import numpy as np
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert
from infoword_tf.weights import sentence_transformers
from tests import places
from tests.eager import eagerly
from tests.oracles import frozen, public_folders
from tests.oracles.public_folders import (
    CASES,
    NOTHING,
    PAIRS,
    TEXTS,
    of_pairs,
)
from tests.refused import refused

NEAR = 1e-5


def rows(array):
    """Lists what the rows of an array hold."""
    return [row[row != NOTHING].tolist() for row in array]


class PublicFoldersTest(places.Folder, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.answers = frozen.read(frozen.FOLDER / 'public_folders.npz')
        cls.shapes, cls.saved = (
            frozen.from_bytes(cls.answers.pop(name))
            for name in ('shapes', 'saved')
        )

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def loaded(self, case):
        """Loads a case, and by name what its library answers."""
        folder = public_folders.write(
            self.folder / 'source', case, self.shapes[case],
            self.saved.get(case),
        )  # fmt: skip
        answers = {
            name.partition('/')[2]: array
            for name, array in self.answers.items()
            if name.startswith(f'{case}/')
        }
        for name in filter(lambda name: name.endswith('.pt'), answers):
            (folder / name).write_bytes(answers[name].tobytes())
        # In this process, which `load` of a folder does in another one.
        convert.convert(folder, self.folder / 'workdir')
        return infoword_tf.load(self.folder / 'workdir'), answers

    def check_ids(self, laid_out, expected):
        ids, lengths, _ = laid_out
        ours = [
            row[:size].tolist()
            for row, size in zip(ids.numpy(), lengths.numpy(), strict=True)
        ]
        self.assertEqual(ours, rows(expected))

    @parameterized.parameters(
        *(c for c in CASES if not of_pairs(c) and not CASES[c].critic)
    )
    def test_ids_and_vectors(self, case):
        model, answers = self.loaded(case)
        self.check_ids(model.format_texts(list(TEXTS)), answers['ids'])
        if 'offsets' in answers:
            _, *offsets = model.tokenizer.tokenize_with_offsets(list(TEXTS))
            places = np.stack([x.values.numpy() for x in offsets], axis=1)
            self.assertEqual(places.tolist(), answers['offsets'].tolist())
        pooling = 'mean' if CASES[case].modules is None else None
        vectors = model.encode(TEXTS, pooling=pooling, progress=False)
        self.near(vectors, answers['vectors'], 'vectors')
        for role, name in (('query', 'query'), ('passage', 'document')):
            if name in answers:
                prompt = model.config.prompt_for(role)
                vectors = model.encode(TEXTS, prompt=prompt, progress=False)
                self.near(vectors, answers[name], name)

    @parameterized.parameters(*filter(of_pairs, CASES))
    def test_ids_and_scores_of_pairs(self, case):
        model, answers = self.loaded(case)
        single = answers['scores'].shape[1] == 1
        self.assertEqual(model.config.critic, 'cross' if single else 'cosine')
        a, b = map(list, zip(*PAIRS, strict=True))
        self.check_ids(model.format_texts(a, b), answers['ids'])
        if model.config.critics.get('cross'):  # of a critic, without a graph
            scores = model.cross.text_scores(a, b).numpy()[:, None]
            self.near(scores, answers['scores'], 'scores')
            return self.check_out_and_in(model)
        # Of `scores` and `classify`, without a graph.
        scores = model.classes.text_scores(a, b)
        self.near(scores.numpy(), answers['scores'], 'scores')
        probabilities = model.classes.probabilities(scores).numpy()
        self.near(probabilities, answers['probabilities'], 'probabilities')

    @parameterized.parameters('pylate', 'stanford', 'late_saved')
    def test_vectors_of_tokens(self, case):
        model, answers = self.loaded(case)
        for role, name in (('query', 'query'), ('passage', 'document')):
            self.check_tokens(model, role, answers, name)
        self.check_out_and_in(model)

    def test_weights_of_the_vocabulary(self):
        model, answers = self.loaded('splade_saved')
        # Of a text without tokens the library weighs [CLS] and [SEP].
        real = [bool(text) for text in TEXTS]
        for role, name in (('query', 'query'), ('passage', 'document')):
            ours = model.encode_sparse(TEXTS, role, progress=False).toarray()
            self.near(ours[real], answers[name][real], name)
        self.check_out_and_in(model)

    def test_three_heads(self):
        model, answers = self.loaded('bge_m3')
        vectors = model.encode(TEXTS, progress=False)
        self.near(vectors, answers['vectors'], 'vectors')
        self.check_tokens(model, 'passage', answers, 'document')
        weights = model.encode_sparse(TEXTS, progress=False).toarray()
        self.near(weights, answers['weights'], 'weights')
        output = self.folder / 'output'
        output.mkdir()
        self.assertEqual(
            sentence_transformers.write(output, model),
            ['the vectors of tokens', 'the weights of the vocabulary'],
        )
        for critic, id in (
            ('late', 'first_state_not_public'), ('lexical', 'terms_not_public')
        ):  # fmt: skip
            known = model.config.critics
            model.workdir.config = model.config.replace(
                critics={critic: known[critic], **known}
            )
            with refused(id):
                sentence_transformers.write(self.folder, model)

    def check_tokens(self, model, role, answers, name):
        ours = model.encode_tokens(TEXTS, role, progress=False)
        counts = answers[f'{name}_counts'].tolist()
        self.assertEqual([len(x) for x in ours], counts)
        self.near(np.concatenate(ours), answers[name], name)

    def check_out_and_in(self, model):
        again = self.folder / 'again'
        convert.write(self.folder / 'workdir', again, 'sentence_transformers')
        convert.convert(again, self.folder / 'second')
        second = infoword_tf.load(self.folder / 'second')
        configs = [x.config.replace(run={}) for x in (model, second)]
        self.assertEqual(*configs)
        for path, weight in second.model.exported.items():
            ours = model.model.exported[path].numpy()
            np.testing.assert_array_equal(weight.numpy(), ours, path)

    def test_masks_that_see_no_token_are_refused(self):
        folder = public_folders.write(
            self.folder / 'source', 'pylate', self.shapes['pylate']
        )
        path = folder / 'config_sentence_transformers.json'
        path.write_text(
            path.read_text().replace('"query_length": 9', '"query_length": 10')
        )
        with refused('expansion_beyond_window', 10, '9 or less'):
            convert.convert(folder, self.folder / 'workdir')

    def test_segments_go_out_and_come_in_again(self):
        _, answers = self.loaded('segments_by_settings')
        output, again = self.folder / 'output', self.folder / 'again'
        convert.write(self.folder / 'workdir', output, 'huggingface')
        convert.convert(output, again)
        model = infoword_tf.load(again)
        scores = model.classes.text_scores(*map(list, zip(*PAIRS, strict=True)))
        self.near(scores.numpy(), answers['scores'], 'scores')

    def near(self, ours, expected, name):
        np.testing.assert_allclose(ours, expected, atol=NEAR, err_msg=name)
