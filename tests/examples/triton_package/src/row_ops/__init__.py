"""Operations on rows, in Triton."""

from row_ops.softmax import softmax

__all__ = ["softmax"]
