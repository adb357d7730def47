"""Programs of one custom call, to any target of the compiler's own, of any operands and results."""

from __future__ import annotations

from random import Random

_TARGETS = (
    "AllocateBuffer ApproxTopK AssumeGatherIndicesInBound AsyncCollectiveDone AsyncCollectiveStart Cholesky"
    " CompactWyHelper ConcatBitcast Eigh EighTpu GatherScatterIndicesBitpacked GetRngSeed"
    " InvertDiagBlocksLowerTriangular InvertDiagBlocksUpperTriangular LayoutConstraint LuComplexDecompositionBlock"
    " LuDecomposition LuDecompositionBlock LuRealDecompositionBlock MoveToDevice MoveToHost PartialReduce"
    " PrepareAsyncCallDone PrepareAsyncCallStart ProductOfElementaryHouseholderReflectors Qr QrDecompositionBlock"
    " SPMDFullToShardShape SPMDShardToFullShape Sharding TopK X128Combine X128SplitHigh X128SplitLow X64Combine"
    " X64SplitHigh X64SplitLow annotate_device_placement xla.sdy.FuncResultSharding xla.sdy.GlobalToLocalShape"
    " xla.sdy.LocalToGlobalShape mine"
).split()
_DTYPES = ("f32", "f32", "f32", "bf16", "s32", "u32", "f64", "s64", "u64", "c64", "c128", "pred", "s4", "u8")
_SIZES = (0, 1, 2, 3, 5, 8, 64, 128, 200)
_MORE = (
    ", called_computations={greater}",
    ", called_computations={first}",
    ', backend_config={"log2_reduction":"3","reduction_dim":"1","top_k":"5","aggregate_to_topk":true}',
    ', backend_config={"reduction_dim":-1,"log2_reduction":62}',
    ", sharding={replicated}",
    ", sharding={devices=[2,1]<=[2]}",
    ", output_to_operand_aliasing={{}: (0, {})}",
    ", custom_call_has_side_effect=true",
    ', frontend_attributes={_xla_buffer_placement="pinned_host"}',
)
_COMPUTATIONS = """greater {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT
}
first {
  ROOT a = f32[8,128] parameter(0)
}
"""


def custom_call(random: Random) -> bytes:
    """Return a module of one call, whose result is the program's, is taken apart or is not used."""
    taken = [_shape(random) for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 4)))]
    given = _given(random, taken)
    lines = [f"x{number} = {shape} parameter({number})" for number, shape in enumerate(taken)]
    named = ", ".join(f"x{number}" for number in range(len(taken)))
    more = "".join(text for text in _MORE if random.random() < 0.1)
    lines += [f'c = {given} custom-call({named}), custom_call_target="{random.choice(_TARGETS)}"{more}']
    if given.startswith("(") and random.random() < 0.5:
        first = given[1:-1].split(", ")[0]
        lines += [f"r = {first} get-tuple-element(c), index=0"]
    elif taken and random.random() < 0.2:
        lines += ["r = () tuple()"]
    lines[-1] = f"ROOT {lines[-1]}"
    head = f"HloModule calls{random.choice(('', ', is_scheduled=true'))}{random.choice(('', ', num_partitions=2'))}"
    body = "\n  ".join(lines)
    return f"{head}\n\n{_COMPUTATIONS}ENTRY main {{\n  {body}\n}}\n".encode()


def _given(random: Random, taken: list[str]) -> str:
    """Return the shape of a result: like an operand, of parts, or any."""
    like = random.choice(taken) if taken else _shape(random)
    kind = random.randrange(4)
    if kind < 2 or like.startswith("("):
        return like if kind else _shape(random)
    sizes = like.partition("[")[2].rstrip("]").split(",")
    parts = [like, *(f"{random.choice(_DTYPES)}[{','.join(sizes[: random.randrange(len(sizes) + 1)])}]" for _ in "ab")]
    return f"({', '.join(parts[: random.randrange(1, 4)])})"


def _shape(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(("token[]", "()", "(f32[8,8])", "(f32[8,8], s32[8])"))
    size, rank = random.choice(_SIZES), random.choice((0, 1, 1, 2, 2, 2, 2, 3, 4))
    sizes = [size if random.random() < 0.5 else random.choice(_SIZES[:7]) for _ in range(rank)]
    return f"{random.choice(_DTYPES)}[{','.join(map(str, sizes))}]"
