"""How far products are rounded by the processors that run the tests.

oneDNN's kernels for AVX2 sum a product of small matrices otherwise than those
for AVX512, and Eigen's, which stand in where oneDNN is off, otherwise again.
Each bound here is the tightest that the ways of multiplying keep; `make
test-numbers` runs the tests of numbers in the two that are not this
processor's.
"""

import os

from infoword_tf.training import record

# oneDNN multiplies by kernels for AVX512.
AVX512 = (
    'avx512f' in (record.instructions() or ())
    and os.environ.get('TF_ENABLE_ONEDNN_OPTS') != '0'
    and 'ONEDNN_MAX_CPU_ISA' not in os.environ
)
# Of a row of a product, if other rows change.
NEIGHBOURS = 0.0 if AVX512 else 1e-6
# Of gradients on replicas, over the largest.
REPLICAS = 1e-6 if AVX512 else 2e-6
# Times what float32 sums of bfloat16 leave: AVX2 rounds every partial sum.
BFLOAT16 = 1.0 if AVX512 else 2.0
# Of the mean of a fitted flow: where a fit ends depends on every product.
FIT = 0.1 if AVX512 else 0.15
