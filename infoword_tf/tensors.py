"""The type of tensors."""

from typing import Any

# An array of NumPy, or of the backend that Keras computes with. Neither Keras
# nor its backend has types that a checker reads, and both take the operations
# of keras.ops and of NumPy alike.
Tensor = Any
