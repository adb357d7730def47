"""For each constraint of inference an instruction that keeps it and one that breaks it, by label.

Shapes stand for operands: ``add(f32[2], f32[2])``. Where XLA infers the shape, none is stated, so that it can be asked.
"""

from __future__ import annotations

from typing import Any

from tpusim.ir.attributes import ConvolutionLabels, PaddingDimension, SliceDimension
from tpusim.shapes.notation import parse_shape

_GATHER = (
    "gather(f32[4,5], s32[3,1]), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,5}"
)
_BATCHED_GATHER = (
    "gather(f32[3,4,5], s32[3,2]), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=2,"
    " slice_sizes={1,1,5}, operand_batching_dims={0}, start_indices_batching_dims={0}"
)
_SCATTER = (
    "scatter(f32[4,5], s32[3,1], f32[3,5]), update_window_dims={1}, inserted_window_dims={0},"
    " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
)
_BATCHED_SCATTER = (
    "scatter(f32[3,4,5], s32[3,2], f32[3,2,5]), update_window_dims={2}, inserted_window_dims={1},"
    " scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=add, input_batching_dims={0},"
    " scatter_indices_batching_dims={0}"
)
_DOT = (
    "dot(f32[7,2,3], bf16[7,3,4]), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},"
    " rhs_contracting_dims={1}"
)
_RAGGED = (
    "ragged-dot(f32[8,3], f32[2,3,4], s32[2]), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
    " lhs_ragged_dims={0}, rhs_group_dims={0}"
)
_RAGGED_CONTRACTING = (
    "ragged-dot(f32[8,3], f32[8,4], s32[2]), lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"
)
_SCALED = (
    "f32[4,8] scaled-dot(f8e4m3fn[4,64], f8e4m3fn[64,8], f8e8m0fnu[4,2], f8e8m0fnu[2,8]),"
    " lhs_contracting_dims={1}, rhs_contracting_dims={0}"
)
_CONVOLUTION = "convolution(f32[8,6,6,4], f32[3,3,4,2]), window={size=3x3}, dim_labels=b01f_01io->b01f"
_GROUPED = "convolution(f32[8,6,4], f32[3,2,4]), window={size=3}, dim_labels=b0f_0io->b0f, feature_group_count=2"
_WINDOW = "reduce-window(f32[5,6], f32[]), window={size=2x3 stride=2x1}, to_apply=add"
_SELECT = "select-and-scatter(f32[6], f32[3], f32[]), window={size=2 stride=2}, select=less, scatter=add"
_SCAN = "(f32[5], f32[]) scan(f32[5], f32[]), dimensions={0}, num_carries=1, to_apply=step"
_NORM = "batch-norm-training(f32[2,3], f32[3], f32[3]), epsilon=0.1, feature_index=1"
_GRAD = "batch-norm-grad(f32[2,3], f32[3], f32[3], f32[3], f32[2,3]), epsilon=0.1, feature_index=1"
_SOLVE = "triangular-solve(f32[7,3,3], f32[7,3,2]), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"
_RFFT = "fft(f32[2,8]), fft_type=RFFT, fft_length={8}"
_REDUCE = "reduce(f32[2,3], f32[]), dimensions={0}, to_apply=add"
_PAIR = "reduce(f32[2,3], s32[2,3], f32[], s32[]), dimensions={0}, to_apply=pair"
_SORT = "sort(f32[4,5], s32[4,5]), dimensions={1}, to_apply=less4"
_GATHERED = "f32[8] all-gather(f32[4]), dimensions={0}, replica_groups={{0,1}}"
_SCATTERED = "f32[2] reduce-scatter(f32[4]), dimensions={0}, replica_groups={{0,1}}, to_apply=add"
_REDUCED = "f32[4] all-reduce(f32[4]), replica_groups={{0,1},{2}}, to_apply=add"
_TO_ALL = "f32[4] all-to-all(f32[4]), dimensions={0}, replica_groups={{0,1}}"
_RAGGED_TO_ALL = "f32[9] ragged-all-to-all(f32[8], f32[9], s32[2], s32[2], s32[2], s32[2]), replica_groups={{0,1}}"
_PERMUTED = "f32[4] collective-permute(f32[4]), source_target_pairs={{0,1},{1,2}}"
_IN_PLACE = (
    "f32[4,4] collective-permute(f32[4,4], f32[4,4], (s32[], s32[]), (s32[], s32[])),"
    " source_target_pairs={{0,1}}, slice_sizes={{1,4}}"
)
_START = "((f32[4]), f32[2], s32[]) slice-start(f32[4]), slice={[0:2]}"
_CALL = "f32[2] call(f32[2]), to_apply=body"
_COMPOSITE = 'f32[2] call(f32[2]), to_apply=body, is_composite=true, frontend_attributes={composite.name="a.b"}'
_WHILE = "while(f32[2]), condition=condition, body=body"
_IF = "conditional(pred[], f32[2], f32[2]), true_computation=body, false_computation=body"
_CUSTOM = 'f32[2]{0} custom-call(f32[2]), custom_call_target="a", operand_layout_constraints={f32[2]{0}}'

_BRANCHES = {"branch_computations": ("body", "body")}
_SCATTER_DIMENSIONS = {
    "update_window_dims": (),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 0,
    "to_apply": "add",
}

ELEMENTWISE: dict[str, tuple[str, str]] = {
    "unary_c1": ("ceil(bf16[3])", "ceil(s32[3])"),
    "unary_c2": ("exponential(c64[3])", "exponential(s32[3])"),
    "unary_c3": ("abs(c64[3])", "abs(u32[3])"),
    "unary_c4": ("popcnt(u8[3])", "popcnt(pred[3])"),
    "unary_c5": ("negate(u32[3])", "negate(pred[3])"),
    "unary_c6": ("not(pred[3])", "not(f32[3])"),
    "binary_c1": ("add(f32[3], bf16[3])", "add(f32[3], s32[3])"),
    "binary_c2": ("add(f32[3,<=4], f32[3,4])", "add(f32[3,4], f32[3,5])"),
    "arithmetic_c1": ("subtract(u8[3], u8[3])", "subtract(pred[3], pred[3])"),
    "shift_c1": ("shift-left(u8[3], u8[3])", "shift-right-logical(f32[3], f32[3])"),
    "atan2_c1": ("atan2(f32[3], f32[3])", "atan2(s32[3], s32[3])"),
    "logical_c1": ("and(pred[3], pred[3])", "and(f32[3], f32[3])"),
    "complex_c1": ("complex(f64[3], f64[3])", "complex(f16[3], f16[3])"),
    "clamp_c1": ("clamp(f32[], f32[3], f32[3])", "clamp(s32[], f32[3], f32[])"),
    "clamp_c2": ("clamp(f32[3], f32[3], f32[])", "clamp(f32[2], f32[3], f32[])"),
    "select_c1": ("select(pred[3], f32[3], f32[3])", "select(pred[3], f32[3], f32[2])"),
    "select_c2": ("select(pred[], f32[3], f32[3])", "select(s32[], f32[3], f32[3])"),
    "select_c3": ("select(pred[3], f32[3], bf16[3])", "select(pred[2], f32[3], f32[3])"),
    "reduce_precision_c1": (
        "reduce-precision(f32[3]), exponent_bits=5, mantissa_bits=10",
        "reduce-precision(s32[3]), exponent_bits=5, mantissa_bits=10",
    ),
    "reduce_precision_c2": (
        "reduce-precision(f32[3]), exponent_bits=1, mantissa_bits=0",
        "reduce-precision(f32[3]), exponent_bits=0, mantissa_bits=0",
    ),
    "reduce_precision_c3": (
        "reduce-precision(f32[3]), exponent_bits=20, mantissa_bits=60",
        "reduce-precision(f32[3]), exponent_bits=5, mantissa_bits=-1",
    ),
    "map_c2": (
        "map(f32[2,3], f32[2,3]), dimensions={0,1}, to_apply=add",
        "map(f32[2,3], f32[2,4]), dimensions={0,1}, to_apply=add",
    ),
    "map_c3": (
        "map(f32[2,3]), dimensions={0,1}, to_apply=negated",
        "map(f32[2,3]), dimensions={1,0}, to_apply=negated",
    ),
    "map_c4": ("map(f32[2], f32[2]), dimensions={0}, to_apply=less", "map(f32[2]), dimensions={0}, to_apply=less"),
    "map_c5": ("map(f32[2]), dimensions={0}, to_apply=negated", "map(f32[2]), dimensions={0}, to_apply=to_vector"),
    "map_c6": ("map(bf16[2]), dimensions={0}, to_apply=negated", "map(s32[2]), dimensions={0}, to_apply=negated"),
}

DATA: dict[str, tuple[str, str]] = {
    "broadcast_c1": ("f32[2,3] broadcast(f32[3]), dimensions={1}", "f32[2,3] broadcast(f32[3]), dimensions={0,1}"),
    "transpose_c1": ("transpose(f32[2,<=3]), dimensions={1,0}", "transpose(f32[2,3]), dimensions={1,1}"),
    "reverse_c1": ("reverse(f32[2,3]), dimensions={1,0}", "reverse(f32[2,3]), dimensions={1,1}"),
    "reverse_c2": ("reverse(f32[2,3]), dimensions={1}", "reverse(f32[2,3]), dimensions={2}"),
    "concatenate_c2": ("concatenate(f32[2]), dimensions={0}", "concatenate(f32[]), dimensions={0}"),
    "concatenate_c3": (
        "concatenate(f32[2,3], f32[4,3]), dimensions={0}",
        "concatenate(f32[2,3], f32[2]), dimensions={0}",
    ),
    "concatenate_c4": (
        "concatenate(f32[2], bf16[3]), dimensions={0}",
        "concatenate(f32[2], s32[3]), dimensions={0}",
    ),
    "concatenate_c5": (
        "concatenate(f32[2,<=3], f32[2,4]), dimensions={1}",
        "concatenate(f32[2,3], f32[4,3]), dimensions={1}",
    ),
    "pad_c1": ("pad(f32[3], f32[]), padding=1_2_3", "pad(f32[3], f32[1]), padding=1_2"),
    "pad_c2": ("pad(f32[3,4], f32[]), padding=1_2x0_0", "pad(f32[3,4], f32[]), padding=1_2"),
    "pad_c3": ("pad(f32[3], bf16[]), padding=1_2", "pad(f32[3], s32[]), padding=1_2"),
    "pad_c5": ("pad(f32[3], f32[]), padding=-1_-2", "pad(f32[3], f32[]), padding=-2_-2"),
    "get_dimension_size_c1": (
        "get-dimension-size(f32[2,<=3]), dimensions={1}",
        "get-dimension-size(f32[2]), dimensions={1}",
    ),
    "get_dimension_size_c2": (
        "get-dimension-size(s8[2147483647]), dimensions={0}",
        "get-dimension-size(s8[2147483648]), dimensions={0}",
    ),
    "set_dimension_size_c1": (
        "set-dimension-size(f32[2,3], s32[]), dimensions={1}",
        "set-dimension-size(f32[2,3], s32[]), dimensions={2}",
    ),
    "set_dimension_size_c2": (
        "set-dimension-size(f32[2], s32[]), dimensions={0}",
        "set-dimension-size(f32[2], u32[]), dimensions={0}",
    ),
    "set_dimension_size_c3": (
        "set-dimension-size(s8[2147483647], s32[]), dimensions={0}",
        "set-dimension-size(s8[2147483648], s32[]), dimensions={0}",
    ),
    "sort_c2": (_SORT, "sort(f32[4,5], s32[4,6]), dimensions={1}, to_apply=less4"),
    "gather_c1": (_GATHER.replace("s32", "u8"), _GATHER.replace("s32", "f32")),
    "gather_c2": (
        _GATHER.replace("[3,1]", "[3]"),
        _GATHER.replace("vector_dim=1", "vector_dim=3"),
    ),
    "gather_c3": (
        "gather(f32[4,5], s32[3,1]), offset_dims={0,2}, collapsed_slice_dims={},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
        "gather(f32[4,5], s32[3,1]), offset_dims={2,0}, collapsed_slice_dims={},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
    ),
    "gather_c4": (
        _GATHER.replace("offset_dims={1}", "offset_dims={0}"),
        _GATHER.replace("offset_dims={1}", "offset_dims={2}"),
    ),
    "gather_c5": (
        _GATHER.replace("[3,1]", "[1,3]").replace("vector_dim=1", "vector_dim=0"),
        _GATHER.replace("map={0}", "map={0,1}"),
    ),
    "gather_c6": (_GATHER.replace("map={0}", "map={1}"), _GATHER.replace("map={0}", "map={2}")),
    "gather_c7": (
        _GATHER.replace("[3,1]", "[3,2]").replace("map={0}", "map={1,0}"),
        _GATHER.replace("[3,1]", "[3,2]").replace("map={0}", "map={1,1}"),
    ),
    "gather_c8": (_GATHER, _GATHER.replace("collapsed_slice_dims={0}", "collapsed_slice_dims={2}")),
    "gather_c9": (
        _GATHER.replace("offset_dims={1}", "offset_dims={}")
        .replace("dims={0}", "dims={0,1}")
        .replace("{1,5}", "{1,1}"),
        _GATHER.replace("offset_dims={1}", "offset_dims={}")
        .replace("dims={0}", "dims={1,0}")
        .replace("{1,5}", "{1,1}"),
    ),
    "gather_c10": (_BATCHED_GATHER, _BATCHED_GATHER.replace("indices_batching_dims={0}", "indices_batching_dims={}")),
    "gather_c11": (_BATCHED_GATHER, _BATCHED_GATHER.replace("operand_batching_dims={0}", "operand_batching_dims={3}")),
    "gather_c12": (_BATCHED_GATHER, _BATCHED_GATHER.replace("indices_batching_dims={0}", "indices_batching_dims={3}")),
    "gather_c13": (_GATHER, _GATHER.replace("{1,5}", "{1,5,1}")),
    "gather_c14": (_GATHER, _GATHER.replace("collapsed_slice_dims={0}", "collapsed_slice_dims={}")),
    "gather_c15": (_GATHER.replace("{1,5}", "{0,0}"), _GATHER.replace("{1,5}", "{1,6}")),
    "gather_c16": (_GATHER.replace("{1,5}", "{1,2}"), _GATHER.replace("{1,5}", "{2,5}")),
    "scatter_c2": (_SCATTER, _SCATTER.replace("s32", "f32")),
    "scatter_c3": (_SCATTER.replace("[3,1]", "[3]"), _SCATTER.replace("vector_dim=1", "vector_dim=3")),
    "scatter_c5": (_SCATTER, _SCATTER.replace("f32[3,5]", "f32[3,5,1]")),
    "scatter_c6": (_SCATTER, _SCATTER.replace("update_window_dims={1}", "update_window_dims={2}")),
    "scatter_c7": (_SCATTER.replace("f32[3,5]", "f32[3,2]"), _SCATTER.replace("f32[3,5]", "f32[3,6]")),
    "scatter_c8": (_SCATTER, _SCATTER.replace("f32[3,5]", "f32[2,5]")),
    "scatter_c9": (_SCATTER, _SCATTER.replace("inserted_window_dims={0}", "inserted_window_dims={2}")),
    "scatter_c10": (_SCATTER, _SCATTER.replace("inserted_window_dims={0}", "inserted_window_dims={}")),
    "scatter_c11": (_SCATTER, _SCATTER.replace("operand_dims={0}", "operand_dims={0,1}")),
    "scatter_c12": (
        _SCATTER.replace("operand_dims={0}", "operand_dims={1}"),
        _SCATTER.replace("operand_dims={0}", "operand_dims={2}"),
    ),
    "scatter_c13": (
        _SCATTER.replace("[3,1]", "[3,2]").replace("operand_dims={0}", "operand_dims={1,0}"),
        _SCATTER.replace("[3,1]", "[3,2]").replace("operand_dims={0}", "operand_dims={0,0}"),
    ),
    "scatter_c14": (
        _BATCHED_SCATTER,
        _BATCHED_SCATTER.replace("indices_batching_dims={0}", "indices_batching_dims={}"),
    ),
    "scatter_c15": (_BATCHED_SCATTER, _BATCHED_SCATTER.replace("input_batching_dims={0}", "input_batching_dims={3}")),
    "scatter_c16": (
        _BATCHED_SCATTER,
        _BATCHED_SCATTER.replace("indices_batching_dims={0}", "indices_batching_dims={3}"),
    ),
}

COMPUTING: dict[str, tuple[str, str]] = {
    "dot_c1": (_DOT, _DOT.replace("lhs_contracting_dims={2}", "lhs_contracting_dims={3}")),
    "dot_c2": (_DOT, _DOT.replace("lhs_contracting_dims={2}", "lhs_contracting_dims={0}")),
    "dot_c3": (_DOT, _DOT.replace("lhs_contracting_dims={2}", "lhs_contracting_dims={}")),
    "dot_c4": (_DOT, _DOT.replace("bf16[7,3,4]", "bf16[7,2,4]")),
    "dot_c5": (_DOT, _DOT.replace("rhs_batch_dims={0}", "rhs_batch_dims={}")),
    "dot_c6": (_DOT, _DOT.replace("bf16[7,3,4]", "bf16[6,3,4]")),
    "ragged_dot_c1": (_RAGGED, _RAGGED.replace("ragged_dims={0}", "ragged_dims={2}")),
    "ragged_dot_c2": (_RAGGED, _RAGGED.replace("s32[2]", "s32[5,2]")),
    "ragged_dot_c3": (_RAGGED, _RAGGED.replace("group_dims={0}", "group_dims={1}")),
    "ragged_dot_c4": (_RAGGED_CONTRACTING, _RAGGED_CONTRACTING + ", rhs_group_dims={1}"),
    "ragged_dot_c5": (_RAGGED, _RAGGED.replace("s32[2]", "s32[3]")),
    "convolution_c1": (_GROUPED, _GROUPED.replace("count=2", "count=0")),
    "convolution_c2": (_GROUPED, _GROUPED + ", batch_group_count=2"),
    "convolution_c4": (_CONVOLUTION, _CONVOLUTION.replace("f32[8,6,6,4]", "f32[8,6,4]")),
    "convolution_c5": (_CONVOLUTION, _CONVOLUTION.replace("size=3x3", "size=3")),
    "convolution_c6": (_GROUPED, _GROUPED.replace("[3,2,4]", "[3,2,3]")),
    "convolution_c7": (
        _CONVOLUTION + ", batch_group_count=2",
        _CONVOLUTION.replace("f32[8,", "f32[7,") + ", batch_group_count=2",
    ),
    "convolution_c8": (_GROUPED, _GROUPED.replace("[3,2,4]", "[3,4,4]")),
    "convolution_c9": (_CONVOLUTION, _CONVOLUTION.replace("size=3x3", "size=3x2")),
    "convolution_c10": (_CONVOLUTION.replace("f32[8,6", "f32[<=8,6"), _CONVOLUTION.replace("4,2]", "4,<=2]")),
    "reducer_c1": (_REDUCE, _REDUCE.replace("=add", "=three")),
    "reducer_c2": (_PAIR, _PAIR.replace("=pair", "=less4")),
    "reducer_c3": (_REDUCE, _REDUCE.replace("=add", "=add_vector")),
    "reducer_c4": (_REDUCE, _REDUCE.replace("=add", "=less")),
    "reducer_c5": (_REDUCE.replace("f32[])", "bf16[])"), _REDUCE.replace("f32[])", "f32[2])")),
    "reducer_c6": (_REDUCE.replace("f32[2,3]", "bf16[2,3]"), _REDUCE.replace("f32[2,3]", "s32[2,3]")),
    "reducer_c7": (_REDUCE, _REDUCE.replace("f32[2,3]", "s32[2,3]").replace("=add", "=mixed")),
    "window_c1": (_WINDOW, _WINDOW.replace("f32[5,6]", "f32[5]")),
    "window_c2": (_WINDOW, _WINDOW.replace("2x3", "2x0")),
    "window_c3": (_WINDOW, _WINDOW.replace("2x1", "2x0")),
    "window_c4": (_WINDOW.replace("stride", "lhs_dilate"), _WINDOW.replace("stride=2x1", "lhs_dilate=2x0")),
    "window_c5": (_WINDOW.replace("stride", "rhs_dilate"), _WINDOW.replace("stride=2x1", "rhs_dilate=2x0")),
    "reduce_c2": (_PAIR, _PAIR.replace("s32[2,3]", "s32[2,4]")),
    "reduce_c3": (_REDUCE.replace("{0}", "{1,0}"), _REDUCE.replace("{0}", "{2}")),
    "reduce_c4": (_REDUCE.replace("{0}", "{}"), _REDUCE.replace("{0}", "{0,0}")),
    "reduce_window_c2": (
        "reduce-window(f32[5], s32[5], f32[], s32[]), window={size=2}, to_apply=pair",
        "reduce-window(f32[5], s32[6], f32[], s32[]), window={size=2}, to_apply=pair",
    ),
    "select_and_scatter_c1": (_SELECT, _SELECT.replace("select=less", "select=negated")),
    "select_and_scatter_c2": (_SELECT, _SELECT.replace("select=less", "select=add")),
    "select_and_scatter_c3": (_SELECT.replace("f32[6]", "bf16[6]"), _SELECT.replace("f32[6]", "s32[6]")),
    "select_and_scatter_c4": (_SELECT, _SELECT.replace("f32[3]", "f32[4]")),
    "cholesky_c1": ("cholesky(c64[7,3,3])", "cholesky(s32[7,3,3])"),
    "cholesky_c2": ("cholesky(f32[3,3])", "cholesky(f32[3])"),
    "cholesky_c3": ("cholesky(f32[7,3,3])", "cholesky(f32[7,3,4])"),
    "triangular_solve_c1": (_SOLVE, _SOLVE.replace("f32[7,3,2]", "f64[7,3,2]")),
    "triangular_solve_c2": (_SOLVE, _SOLVE.replace("[7,3,3]", "[3]").replace("[7,3,2]", "[3]")),
    "triangular_solve_c3": (_SOLVE, _SOLVE.replace("[7,3,2]", "[3,2]")),
    "triangular_solve_c4": (_SOLVE, _SOLVE.replace("[7,3,3]", "[7,4,3]")),
    "triangular_solve_c5": (
        _SOLVE.replace("[7,3,2]", "[7,2,3]").replace("left_side=true", "left_side=false"),
        _SOLVE.replace("[7,3,2]", "[7,2,3]"),
    ),
    "triangular_solve_c6": (_SOLVE, _SOLVE.replace("[7,3,2]", "[6,3,2]")),
    "triangular_solve_c7": (_SOLVE, _SOLVE.replace(", transpose_a=NO_TRANSPOSE", "")),
    "fft_c1": ("fft(c64[2,3,4]), fft_type=IFFT, fft_length={2,3,4}", "fft(c64[8]), fft_type=FFT, fft_length={}"),
    "fft_c2": ("fft(c64[8]), fft_type=FFT, fft_length={8}", "fft(c64[8]), fft_type=FFT, fft_length={8,8}"),
    "fft_c3": ("fft(c128[5]), fft_type=IRFFT, fft_length={8}", "fft(f32[5]), fft_type=IRFFT, fft_length={8}"),
    "fft_c4": (_RFFT, _RFFT.replace("f32", "f16")),
    "fft_c5": (_RFFT, _RFFT.replace("{8}", "{9}")),
    "fft_c6": ("fft(c64[5]), fft_type=IRFFT, fft_length={9}", "fft(c64[5]), fft_type=IRFFT, fft_length={10}"),
    "batch_norm_c1": (_NORM, _NORM.replace("index=1", "index=2")),
    "batch_norm_c2": (_NORM, _NORM.replace("f32", "s32")),
    "batch_norm_c3": (_NORM, _NORM.replace("f32[3]", "f32[3,1]")),
    "batch_norm_c4": (_NORM.replace("f32[3]", "bf16[3]"), _NORM.replace("f32[3]", "s32[3]")),
    "batch_norm_c5": (_NORM, _NORM.replace("f32[3]", "f32[2]")),
    "batch_norm_c6": (_GRAD, _GRAD.replace("f32[2,3])", "f32[3,3])")),
    "while_c1": (_WHILE, _WHILE.replace("body=body", "body=body2")),
    "while_c2": (_WHILE, _WHILE.replace("=condition,", "=condition3,")),
    "while_c3": (_WHILE, _WHILE.replace("body=body", "body=body3")),
    "while_c4": (_WHILE, _WHILE.replace("=condition,", "=number,")),
    "while_c5": (_WHILE, _WHILE.replace("body=body", "body=grows")),
    "conditional_c4": (_IF, _IF.replace("false_computation=body", "false_computation=body2")),
    "conditional_c5": (_IF, _IF.replace("false_computation=body", "false_computation=body3")),
    "conditional_c6": (_IF, _IF.replace("false_computation=body", "false_computation=grows")),
    "call_c1": (_CALL.removeprefix("f32[2] "), "call(f32[2], f32[2]), to_apply=body"),
    "call_c2": (_CALL.removeprefix("f32[2] "), "call(f32[3]), to_apply=body"),
}

INFERRED_BY_XLA: dict[str, tuple[str, str]] = {**ELEMENTWISE, **DATA, **COMPUTING}
"""Cases in which XLA's parser infers the shape, or refuses as we do."""
_NOT_INFERRED_BY_XLA = (
    "broadcast_c1",
    "reduce_precision_c1",
    "reduce_precision_c2",
    "reduce_precision_c3",
    "reduce_window_c2",
    "shift_c1",
)
for _label in _NOT_INFERRED_BY_XLA:
    del INFERRED_BY_XLA[_label]

OURS: dict[str, tuple[str, str]] = {
    "array_c1": ("negate(f32[3])", "negate((f32[3], f32[3]))"),
    "array_c2": ("f32[3] convert(s32[3])", "token[] convert(s32[3])"),
    "token_c1": ("add-dependency(f32[3], token[])", "add-dependency(f32[3], f32[3])"),
    "shape_c1": ("f32[6] reshape(f32[2,3])", "reshape(f32[2,3])"),
    "compare_c1": (
        "compare(f32[3], f32[3]), direction=LT, type=TOTALORDER",
        "compare(f32[3], f32[3]), direction=LT, type=SIGNED",
    ),
    "bitcast_c1": ("s8[2,2] bitcast(f32[1])", "s8[2,2] bitcast(f32[2])"),
    "bitcast_convert_c1": ("c64[3] bitcast-convert(c64[3])", "s64[3] bitcast-convert(c64[3])"),
    "bitcast_convert_c2": ("f32[10] bitcast-convert(f16[10,2])", "f32[10] bitcast-convert(f16[10,3])"),
    "stochastic_convert_c1": (
        "bf16[3] stochastic-convert(f32[3], u32[3])",
        "bf16[3] stochastic-convert(f32[3], s32[3])",
    ),
    "stochastic_convert_c2": (
        "bf16[3] stochastic-convert(f32[3], u32[3])",
        "bf16[3] stochastic-convert(s32[3], u32[3])",
    ),
    "stochastic_convert_c3": ("s8[3] stochastic-convert(bf16[3], u16[3])", "s8[3] stochastic-convert(bf16[3], u32[3])"),
    "stochastic_convert_c4": (
        "bf16[3] stochastic-convert(f32[3], u32[3])",
        "bf16[3] stochastic-convert(f32[3], u32[4])",
    ),
    "map_c1": ("map(f32[2]), dimensions={0}, to_apply=negated", "f32[2] map(), dimensions={0}, to_apply=negated"),
    "iota_c1": ("f32[3] iota(), iota_dimension=0", "f32[] iota(), iota_dimension=0"),
    "iota_c2": ("f32[3,4] iota(), iota_dimension=1", "f32[3,4] iota(), iota_dimension=2"),
    "iota_c3": ("c64[3] iota(), iota_dimension=0", "pred[3] iota(), iota_dimension=0"),
    **{_label: {**ELEMENTWISE, **DATA, **COMPUTING}[_label] for _label in _NOT_INFERRED_BY_XLA},
    "broadcast_c2": ("f32[2,3] broadcast(f32[3]), dimensions={1}", "s32[2,3] broadcast(f32[3]), dimensions={1}"),
    "broadcast_c3": ("f32[3,2] broadcast(f32[3]), dimensions={0}", "f32[3,2] broadcast(f32[3]), dimensions={2}"),
    "broadcast_c5": (
        "f32[3,3] broadcast(f32[3,3]), dimensions={1,0}",
        "f32[3,3] broadcast(f32[3,3]), dimensions={1,1}",
    ),
    "broadcast_c4": ("f32[3,2] broadcast(f32[2,3]), dimensions={1,0}", "f32[3,2] broadcast(f32[1]), dimensions={0}"),
    "reshape_c1": ("f32[] reshape(f32[1,1])", "s32[] reshape(f32[1,1])"),
    "reshape_c2": ("f32[2,12] reshape(f32[4,2,3])", "f32[2,11] reshape(f32[4,2,3])"),
    "dynamic_reshape_c1": ("f32[2,3] dynamic-reshape(f32[6], s32[], s32[])", "f32[2,3] dynamic-reshape(f32[6], s32[])"),
    "dynamic_reshape_c2": ("f32[6] dynamic-reshape(f32[2,3], s32[])", "f32[6] dynamic-reshape(f32[2,3], u32[])"),
    "slice_c1": ("slice(f32[5,6]), slice={[1:5:2], [0:6]}", "slice(f32[5,6]), slice={[1:5]}"),
    "slice_c2": ("slice(f32[5]), slice={[0:5]}", "slice(f32[5]), slice={[-1:5]}"),
    "slice_c3": ("slice(f32[5]), slice={[2:4]}", "slice(f32[5]), slice={[2:6]}"),
    "slice_c4": ("slice(f32[5]), slice={[2:2]}", "slice(f32[5]), slice={[3:2]}"),
    "slice_c5": ("slice(f32[5]), slice={[0:5:9]}", "slice(f32[5]), slice={[0:5:0]}"),
    "sort_c3": (_SORT.replace("{1}", "{-2}"), _SORT.replace("{1}", "{-3}")),
    "sort_c4": (_SORT, _SORT.replace("less4", "pair")),
    "sort_c5": (_SORT, _SORT.replace("less4", "less")),
    "sort_c6": (_SORT, _SORT.replace("s32[4,5]", "u32[4,5]")),
    "topk_c1": ("topk(f32[3]), k=3, largest=true", "topk(f32[]), k=0, largest=true"),
    "topk_c2": ("topk(f32[2,5]), k=2, largest=true", "topk(f32[2,5]), k=6, largest=true"),
    "dynamic_slice_c1": (
        "dynamic-slice(f32[5,6], s32[], s32[]), dynamic_slice_sizes={2,6}",
        "dynamic-slice(f32[5,6], s32[3]), dynamic_slice_sizes={2,6}",
    ),
    "dynamic_slice_c2": (
        "dynamic-slice(f32[5,6], s32[2]), dynamic_slice_sizes={2,6}",
        "dynamic-slice(f32[5,6], s32[], s32[1]), dynamic_slice_sizes={2,6}",
    ),
    "dynamic_slice_c3": (
        "dynamic-slice(f32[5,6], u8[], u8[]), dynamic_slice_sizes={2,6}",
        "dynamic-slice(f32[5,6], u8[], s32[]), dynamic_slice_sizes={2,6}",
    ),
    "dynamic_slice_c4": (
        "dynamic-slice(f32[], s32[0]), dynamic_slice_sizes={}",
        "dynamic-slice(f32[5,6], s32[], s32[]), dynamic_slice_sizes={2}",
    ),
    "dynamic_slice_c5": (
        "dynamic-slice(f32[5], s32[]), dynamic_slice_sizes={5}",
        "dynamic-slice(f32[5], s32[]), dynamic_slice_sizes={6}",
    ),
    "dynamic_update_slice_c1": (
        "dynamic-update-slice(f32[4,3], f32[3,2], s32[], s32[])",
        "dynamic-update-slice(f32[4,3], f32[3], s32[], s32[])",
    ),
    "dynamic_update_slice_c2": (
        "dynamic-update-slice(f32[5], bf16[2], s32[])",
        "dynamic-update-slice(f32[5], s32[2], s32[])",
    ),
    "dynamic_update_slice_c3": (
        "dynamic-update-slice(f32[5], f32[5], s32[])",
        "dynamic-update-slice(f32[5], f32[6], s32[])",
    ),
    "gather_c17": (_BATCHED_GATHER, _BATCHED_GATHER.replace("collapsed_slice_dims={1}", "collapsed_slice_dims={0}")),
    "gather_c18": (_BATCHED_GATHER, _BATCHED_GATHER.replace("f32[3,4,5]", "f32[2,4,5]")),
    "gather_c19": (_BATCHED_GATHER, _BATCHED_GATHER.replace("start_index_map={1}", "start_index_map={0}")),
    "scatter_c4": (
        "scatter(f32[4], s32[4], s32[3,1], f32[3], s32[3]), update_window_dims={}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=pair",
        "scatter(f32[4], s32[5], s32[3,1], f32[3], s32[3]), update_window_dims={}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=pair",
    ),
    "scatter_c17": (_BATCHED_SCATTER, _BATCHED_SCATTER.replace("inserted_window_dims={1}", "inserted_window_dims={0}")),
    "scatter_c18": (_BATCHED_SCATTER, _BATCHED_SCATTER.replace("f32[3,4,5]", "f32[2,4,5]")),
    "scatter_c19": (_BATCHED_SCATTER, _BATCHED_SCATTER.replace("operand_dims={1}", "operand_dims={0}")),
    "scaled_dot_c1": (_SCALED, _SCALED.replace("f8e8m0fnu[4,2]", "f8e8m0fnu[4]")),
    "scaled_dot_c2": (_SCALED, _SCALED.replace("{1}", "{}")),
    "scaled_dot_c3": (_SCALED, _SCALED.replace("f8e8m0fnu[4,2]", "f8e8m0fnu[4,3]")),
    "scaled_dot_c4": (
        _SCALED,
        "f32[] scaled-dot(bf16[4], bf16[4], bf16[], bf16[]), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "convolution_c11": (
        _CONVOLUTION,
        _CONVOLUTION.replace("f32[3,3,4,2])", "(f32[3,3,4,2], f32[2], f32[2]))"),
    ),
    "convolution_c12": (
        _CONVOLUTION.replace("4,2])", "2,2])") + ", sparsity_config={rhs={sparsity=1x2 dimension=2}}",
        _CONVOLUTION.replace("4,2])", "2,2])") + ", sparsity_config={rhs={sparsity=2x4 dimension=2}}",
    ),
    "window_c6": (
        "reduce-window(f32[3], f32[]), window={size=1 pad=-1_-2}, to_apply=add",
        "reduce-window(f32[3], f32[]), window={size=1 pad=-2_-2}, to_apply=add",
    ),
    "scan_c1": (_SCAN, _SCAN.replace("carries=1", "carries=-1")),
    "scan_c2": (_SCAN, _SCAN.replace("{0}", "{1}")),
    "scan_c3": (_SCAN, _SCAN.replace("(f32[5], f32[]) scan", "() scan")),
    "scan_c4": (_SCAN, _SCAN.replace("(f32[5], f32[]) scan", "(f32[6], f32[]) scan")),
    "scan_c5": (_SCAN, _SCAN.replace("(f32[5], f32[]) scan", "(s32[5], f32[]) scan")),
    "scan_c6": (_SCAN, _SCAN.replace("f32[]) scan", "s32[]) scan").replace("=step", "=step_s32")),
    "rng_c1": (
        "f32[3] rng(f32[], f32[]), distribution=rng_uniform",
        "f32[3] rng(f32[1], f32[]), distribution=rng_uniform",
    ),
    "rng_c2": (
        "s32[3] rng(s32[], s32[]), distribution=rng_uniform",
        "s32[3] rng(f32[], f32[]), distribution=rng_uniform",
    ),
    "rng_c3": (
        "pred[3] rng(pred[], pred[]), distribution=rng_uniform",
        "c64[3] rng(c64[], c64[]), distribution=rng_uniform",
    ),
    "rng_c4": (
        "f32[3] rng(f32[], f32[]), distribution=rng_normal",
        "s32[3] rng(s32[], s32[]), distribution=rng_normal",
    ),
    "rng_bit_generator_c1": (
        "(u64[2], u32[5]) rng-bit-generator(u64[2]), algorithm=rng_philox",
        "(u64[2], u32[5], u32[5]) rng-bit-generator(u64[2]), algorithm=rng_philox",
    ),
    "rng_bit_generator_c3": (
        "(u64[2], f32[5]) rng-bit-generator(u64[2]), algorithm=rng_philox",
        "(u64[2], c64[5]) rng-bit-generator(u64[2]), algorithm=rng_philox",
    ),
    "rng_bit_generator_c2": (
        "(u64[3], u32[5]) rng-bit-generator(u64[3]), algorithm=rng_philox",
        "(u64[2], u32[5]) rng-bit-generator(u64[3]), algorithm=rng_philox",
    ),
    "get_tuple_element_c1": ("get-tuple-element((f32[2], s32[])), index=1", "get-tuple-element(f32[2]), index=0"),
    "get_tuple_element_c2": (
        "get-tuple-element((f32[2], s32[])), index=0",
        "get-tuple-element((f32[2], s32[])), index=2",
    ),
    "call_c3": (_COMPOSITE, _COMPOSITE.replace("composite.name", "name")),
    "call_c4": (_COMPOSITE, _COMPOSITE.replace('"a.b"', '"a.b",composite.attributes=""')),
    "call_c5": (
        _COMPOSITE.replace('"a.b"', '"a.b",composite.version="3"'),
        _COMPOSITE.replace('"a.b"', '"a.b",composite.version="-1"'),
    ),
    "fusion_c1": (
        "f32[2] fusion(f32[2]), kind=kLoop, calls=body",
        "f32[2] fusion(f32[2], f32[3]), kind=kLoop, calls=body",
    ),
    "fusion_c2": (
        "f32[2] fusion(f32[2], f32[2]), kind=kLoop, calls=body2",
        "f32[2] fusion(f32[3]), kind=kLoop, calls=body",
    ),
    "custom_call_c3": (
        'u64[] custom-call(), custom_call_target="GetRngSeed"',
        'u32[] custom-call(), custom_call_target="GetRngSeed"',
    ),
    "custom_call_c4": (
        'f32[2] custom-call(f32[4], f32[]), custom_call_target="PartialReduce"',
        'f32[2] custom-call(), custom_call_target="PartialReduce"',
    ),
    "groups_c2": (
        _REDUCED + ", channel_id=1, use_global_device_ids=true",
        _REDUCED.replace("{{0,1},{2}}", "{}") + ", channel_id=1, use_global_device_ids=true",
    ),
    "groups_c3": (_REDUCED, _REDUCED.replace("{2}", "{}")),
    "groups_c4": (_REDUCED, _REDUCED.replace("{2}", "{1}")),
    "groups_c6": (_GATHERED, _GATHERED.replace("{{0,1}}", "{{0,1},{2}}")),
    "all_gather_c1": (_GATHERED, "f32[8] all-gather(), dimensions={0}, replica_groups={{0,1}}"),
    "all_gather_c2": (_GATHERED, _GATHERED.replace("dimensions={0}", "dimensions={1}")),
    "all_gather_c3": (
        "(f32[4], f32[8]) all-gather-start(f32[4]), dimensions={0}, replica_groups={{0,1}}",
        "f32[8] all-gather-start(f32[4]), dimensions={0}, replica_groups={{0,1}}",
    ),
    "all_gather_c4": (_GATHERED, _GATHERED.replace("f32[8]", "f32[]")),
    "all_gather_c5": (_GATHERED, _GATHERED.replace("f32[8]", "f32[12]")),
    "all_reduce_c1": (_REDUCED + ", channel_id=1", _REDUCED + ", channel_id=0"),
    "reduce_scatter_c1": (_SCATTERED, "f32[2] reduce-scatter(), dimensions={0}, to_apply=add"),
    "reduce_scatter_c2": (_SCATTERED, _SCATTERED.replace("dimensions={0}", "dimensions={1}")),
    "reduce_scatter_c3": (_SCATTERED, _SCATTERED.replace("f32[2]", "f32[]")),
    "reduce_scatter_c4": (_SCATTERED, _SCATTERED.replace("f32[2]", "f32[1]")),
    "reduce_scatter_c5": (_SCATTERED, _SCATTERED.replace("f32[4]", "f32[3]")),
    "all_to_all_c1": (_TO_ALL, _TO_ALL.replace("(f32[4])", "(f32[4], f32[4])")),
    "all_to_all_c2": (_TO_ALL, _TO_ALL.replace("dimensions={0}", "dimensions={1}")),
    "all_reduce_c3": (
        _REDUCED.replace("=add", "=add16"),
        "(f32[4], s32[4]) all-reduce(f32[4], s32[4]), replica_groups={{0,1},{2}}, to_apply=add",
    ),
    "all_reduce_c4": (_REDUCED, _REDUCED.replace("=add", "=pair")),
    "all_to_all_c3": (_TO_ALL, _TO_ALL.replace("f32[4]", "f32[<=4]")),
    "all_to_all_c4": (_TO_ALL, _TO_ALL.replace("f32[4]", "f32[5]")),
    "all_to_all_c5": (
        "(f32[4], f32[4]) all-to-all(f32[4], f32[4]), replica_groups={{0,1}}",
        "(f32[4], f32[4], f32[4]) all-to-all(f32[4], f32[4], f32[4]), replica_groups={{0,1}}",
    ),
    "all_to_all_c6": (
        "(f32[4], f32[4]) all-to-all(f32[4], f32[4]), replica_groups={{1,0}}",
        "(f32[4], f32[5]) all-to-all(f32[4], f32[5]), replica_groups={{1,0}}",
    ),
    "ragged_all_to_all_c1": (_RAGGED_TO_ALL, _RAGGED_TO_ALL.replace("s32[2]", "s32[]")),
    "ragged_all_to_all_c2": (_RAGGED_TO_ALL, _RAGGED_TO_ALL.replace("s32[2])", "s32[3])")),
    "collective_broadcast_c1": (
        "f32[4] collective-broadcast(f32[4]), replica_groups={{0,1}}",
        "f32[4] collective-broadcast(), replica_groups={{0,1}}",
    ),
    "collective_broadcast_c3": (
        "f32[4] collective-broadcast(f32[4]), replica_groups={{2,1},{0}}",
        "f32[4] collective-broadcast(f32[4]), replica_groups={{0,1,1}}",
    ),
    "collective_broadcast_c2": (
        "f32[4] collective-broadcast(f32[4], s32[1]), replica_groups={{0,1}}, has_dynamic_root=true",
        "f32[4] collective-broadcast(f32[4], s32[2]), replica_groups={{0,1}}, has_dynamic_root=true",
    ),
    "collective_permute_c3": (_PERMUTED, _PERMUTED.replace("{1,2}", "{0,2}")),
    "collective_permute_c4": (_PERMUTED, _PERMUTED.replace("{1,2}", "{2,1}")),
    "collective_permute_c6": (_IN_PLACE, _IN_PLACE.replace("f32[4,4], (s32", "(f32[4,4], f32[4]), (s32")),
    "collective_permute_c7": (_IN_PLACE, _IN_PLACE.replace("(s32[], s32[]))", "(s32[], s32[], s32[]))")),
    "async_c2": (_START, _START.replace("((f32[4])", "((f32[4], f32[4])")),
    "async_c3": (_START, _START.replace("((f32[4])", "((f32[5])")),
    "async_c5": (_START, _START.replace("f32[2], s32[]", "f32[3], s32[]")),
    "start_c1": ("collective-permute-done((f32[4], f32[4]))", "collective-permute-done(f32[4])"),
    "copy_done_c1": ("copy-done((f32[4], f32[4], u32[]))", "copy-done((f32[4], f32[5], u32[]))"),
    "infeed_c1": ("((f32[3], s32[]), token[]) infeed(token[])", "(f32[3], s32[], token[]) infeed(token[])"),
    "infeed_c2": ("((), token[]) infeed(token[])", "(((f32[3]), s32[]), token[]) infeed(token[])"),
    "outfeed_c1": (
        "token[] outfeed(f32[3], token[]), outfeed_shape=f32[3]",
        "token[] outfeed(f32[3], token[]), outfeed_shape=f32[4]",
    ),
}
"""Cases that XLA leaves to its verifier, or where its parser does not infer, or gives up altogether."""

COUNTED: dict[str, tuple[str, str, str]] = {
    "groups_c5": (", replica_count=3", _REDUCED, _REDUCED.replace("{{0,1},{2}}", "{{0,1}}")),
    "collective_permute_c2": (", replica_count=3", _PERMUTED, _PERMUTED.replace("{1,2}", "{1,3}")),
}
"""Cases that need a header, which says how many replicas there are."""

BY_HAND: dict[str, tuple[str, str, list[str], dict[str, Any]]] = {
    "instruction_c1": ("f32[2]", "sine-ish", ["f32[2]"], {}),
    "instruction_c2": ("f32[2]", "add", ["f32[2]"], {}),
    "instruction_c3": ("f32[2]", "reverse", ["f32[2]"], {}),
    "instruction_c4": ("f32[2]", "negate", ["f32[2]"], {"dimensions": (0,)}),
    "computation_c1": ("f32[2]", "call", ["f32[2]"], {"to_apply": "nobody"}),
    "groups_c1": ("f32[4]", "all-reduce", ["f32[4]"], {"use_global_device_ids": True, "to_apply": "add"}),
    "concatenate_c1": ("f32[2]", "concatenate", ["f32[2]"], {"dimensions": (0, 1)}),
    "pad_c4": ("f32[2]", "pad", ["f32[2]", "f32[]"], {"padding": (PaddingDimension(0, 0, -1),)}),
    "convolution_c3": (
        "f32[3,3]",
        "convolution",
        ["f32[3,3]", "f32[3,3]"],
        {"dim_labels": ConvolutionLabels("bf", "io", "bb")},
    ),
    "sort_c1": ("f32[2]", "sort", ["f32[2]"], {"dimensions": (0, 1), "to_apply": "less"}),
    "scatter_c1": ("f32[2]", "scatter", ["f32[2]", "s32[1]", "f32[1]", "f32[1]"], _SCATTER_DIMENSIONS),
    "reduce_c1": ("f32[]", "reduce", ["f32[2]", "f32[]", "f32[]"], {"dimensions": (0,), "to_apply": "add"}),
    "reduce_window_c1": ("f32[]", "reduce-window", ["f32[]", "f32[]", "f32[]"], {"to_apply": "add"}),
    "conditional_c1": ("f32[2]", "conditional", ["u8[]", "f32[2]", "f32[2]"], _BRANCHES),
    "conditional_c2": ("f32[2]", "conditional", ["pred[]", "f32[2]"], {"branch_computations": ("body",)}),
    "conditional_c3": ("f32[2]", "conditional", ["pred[]", "f32[2]"], _BRANCHES),
    "custom_call_c1": ("f32[]", "custom-call", [], {"custom_call_target": "a", "operand_layout_constraints": (None,)}),
    "custom_call_c2": (
        "f32[]",
        "custom-call",
        ["f32[2]"],
        {"custom_call_target": "a", "operand_layout_constraints": (parse_shape("f32[3]"),)},
    ),
    "collective_permute_c1": ("f32[4]", "collective-permute", ["f32[4]"], {"source_target_pairs": ((0,),)}),
    "collective_permute_c5": (
        "f32[4]",
        "collective-permute",
        ["f32[4]"],
        {"source_target_pairs": ((0, 1),), "slice_sizes": ((1,),)},
    ),
    "reduce_scatter_c3": ("()", "reduce-scatter", ["f32[4]"], {"dimensions": (0,), "to_apply": "add"}),
    "all_gather_c3": ("()", "all-gather", ["f32[4]"], {"dimensions": (0,)}),
    "async_c1": ("f32[2]", "slice-start", ["f32[4]"], {"slice": (SliceDimension(0, 2),)}),
    "async_c4": ("((f32[3]), f32[2])", "call-start", ["f32[3]"], {"to_apply": "body"}),
    "async_c6": ("((f32[3]), f32[3])", "async-update", ["((f32[3]), f32[2])"], {}),
    "async_c14": ("((f32[3]), f32[3], s32[])", "async-update", ["((f32[3]), f32[3], u32[])"], {}),
    "async_c7": ("((f32[3], f32[3]), f32[2])", "async-update", ["((f32[3]), f32[2])"], {}),
    "recv_c1": ("f32[2]", "recv", ["token[]"], {"channel_id": 1}),
}
"""Shape, opcode, operands and attributes of instructions that the parser would refuse before anyone infers."""
