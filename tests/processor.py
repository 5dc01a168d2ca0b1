"""How far products are rounded by the processors that run the tests.

oneDNN's kernels for AVX2 sum a product of small matrices otherwise than those
for AVX512, and Eigen's, which stand in where oneDNN is off, otherwise again.
Each bound here is the tightest that all three keep; `make test-numbers` runs
the tests of numbers with the two that are not this processor's way.
"""

from infoword_tf.training import precision

# Of a row of a product, if other rows change: 0 with AVX512.
NEIGHBOURS = 1e-6
# Of gradients on replicas, over the largest: half as much with AVX512.
REPLICAS = 2e-6
# Times what float32 sums of bfloat16 leave: AVX2 rounds every partial sum.
BFLOAT16 = 2.0
AVX512 = 'avx512f' in (precision.instructions() or ())
