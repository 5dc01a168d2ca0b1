"""Export as TensorFlow makes it over before it runs it, as a server does."""

import functools
import pathlib
import tempfile

import tensorflow as tf
from absl.testing import absltest

from export import bundle
from tests.export import workdirs
from tests.processor import AVX512

v1 = tf.compat.v1
THROUGH = {'Cast', 'Enter', 'Identity', 'ReadVariableOp'}


@functools.cache
def optimized(path):
    """By name, the nodes of `embed` in the graph that a session runs."""
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    with tf.Graph().as_default(), v1.Session() as session:
        signature = v1.saved_model.load(session, ['serve'], path).signature_def[
            'embed'
        ]
        record = v1.RunMetadata()
        session.run(
            signature.outputs['embeddings'].name,
            {signature.inputs['texts'].name: ['two words', 'three words here']},
            v1.RunOptions(output_partition_graphs=True),
            record,
        )
    return {n.name: n for graph in record.partition_graphs for n in graph.node}


def fused(nodes):
    """Returns what stands in each product of a weight: ['BiasAdd', ...]."""
    return sorted(
        [op.decode() for op in node.attr['fused_ops'].list.s]
        for node in nodes.values()
        if 'FusedMatMul' in node.op
    )


def kernel(nodes, name):
    """Whether a tensor is a weight [F, D], read and cast perhaps."""
    node = nodes[name.removeprefix('^').split(':')[0]]
    while node.op in THROUGH:
        node = nodes[node.input[0].split(':')[0]]
    shape = node.attr['shape'].shape
    return node.op == 'VarHandleOp' and len(shape.dim) == 2


class OptimizedTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.nodes = optimized(str(workdirs.exported()))

    def test_bias_gelu_and_residual_are_in_the_products(self):
        self.assertEqual(fused(self.nodes), [
            ['BiasAdd'],  # query, key, value
            ['BiasAdd'],  # out of attention
            ['BiasAdd', 'Add'],  # feed-forward, its residual
            ['BiasAdd', 'GeluApproximate'],
        ])  # fmt: skip

    def test_scale_and_mask_are_in_the_product_of_scores(self):
        actual = [
            [op.decode() for op in node.attr['fused_ops'].list.s]
            for node in self.nodes.values()
            if 'FusedBatchMatMul' in node.op
        ]
        self.assertEqual(actual, [['Mul', 'Add']])

    def test_no_weight_is_multiplied_by_a_constant(self):
        muls = [n for n in self.nodes.values() if n.op == 'Mul']
        self.assertNotEmpty(muls)
        for node in muls:
            for name in node.input:
                self.assertFalse(kernel(self.nodes, name), node.name)

    @absltest.skipUnless(AVX512, 'bfloat16 is multiplied as float32')
    def test_kernels_in_bfloat16_are_constants(self):
        with tempfile.TemporaryDirectory() as copies:
            path = bundle.write(
                workdirs.shared(), pathlib.Path(copies), 1, 'bfloat16'
            )
            nodes = optimized(str(path))
        products = [n for n in nodes.values() if 'FusedMatMul' in n.op]
        self.assertLen(products, 4)
        for node in products:
            self.assertTrue(node.attr['is_filter_const'].b, node.name)
        self.assertEqual(fused(nodes), fused(self.nodes))
