"""What an ONNX graph may hold: the operators of exported models, without loops, and no array that is written short.

A graph of 200 bytes can count for ever in a loop, or name an array of a terabyte.
"""

from collections.abc import Iterable

from embodied_rm.errors import CheckpointError, UserError

ELEMENTWISE = (
    "Abs Add And Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish "
    "Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu "
    "Round Selu Sigmoid Sign Sin Softplus Sqrt Sub Sum Tanh Where Xor"
)
ARRAYS = (
    "ArgMax ArgMin AveragePool BatchNormalization Concat Constant ConstantOfShape Conv CumSum DepthToSpace "
    "DequantizeLinear Einsum Expand Flatten Gather GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool "
    "GroupNormalization InstanceNormalization LayerNormalization LogSoftmax MatMul MaxPool Pad QuantizeLinear Range "
    "ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Resize "
    "ScatterElements ScatterND Shape Size Slice Softmax SpaceToDepth Split Squeeze Tile TopK Transpose Trilu "
    "Unsqueeze"
)
OPERATORS = frozenset(f"{ELEMENTWISE} {ARRAYS}".split())
"""Operators of the towers that torch exports, and of 8-bit ones; none holds a graph of its own, and none is random."""
SPARSE_ATTRIBUTES = ("sparse_value",)


def check_graph(content: bytes, name: str) -> None:
    """Raise `CheckpointError` unless a serialized graph holds `OPERATORS` only, and no sparse array."""
    try:
        import onnx  # optional
    except ModuleNotFoundError as error:
        raise UserError("an exported model needs onnx: pip install 'embodied-rm[onnx]'") from error
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, whose exceptions differ between its versions
        raise CheckpointError(f"{name}.onnx: not a graph ({' '.join(str(error).split())})") from None
    graph = model.graph
    if model.functions or graph.sparse_initializer or any(has_sparse_array(node.attribute) for node in graph.node):
        raise CheckpointError(f"{name}.onnx: holds functions or sparse arrays, which no export has: export it again")
    operators = {f"{node.domain}.{node.op_type}".lstrip(".") for node in graph.node}
    if unknown := sorted(operators - OPERATORS):
        names = ", ".join(operator[:40] for operator in unknown[:3])
        raise CheckpointError(f"{name}.onnx: holds operators that no export has ({names!r}): export it again")


def has_sparse_array(attributes: Iterable[object]) -> bool:
    """Return whether one of the attributes of an operator is a sparse array."""
    return any(getattr(attribute, "name", "") in SPARSE_ATTRIBUTES for attribute in attributes)
