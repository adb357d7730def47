module @jit_sliced attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  func.func public @main(%arg0: tensor<2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}]>}, %arg1: tensor<6x2048x2048xbf16> {mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>}) -> (tensor<2048x2048xbf16> {jax.result_info = "result", mhlo.memory_kind = "device"}) {
    %0 = stablehlo.slice %arg1 [0:1, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %2 = stablehlo.custom_call @annotate_device_placement(%1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %3 = stablehlo.dot_general %arg0, %2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %4 = stablehlo.tanh %3 : tensor<2048x2048xbf16>
    %5 = stablehlo.slice %arg1 [1:2, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %6 = stablehlo.reshape %5 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %7 = stablehlo.custom_call @annotate_device_placement(%6) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %8 = stablehlo.dot_general %4, %7, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %9 = stablehlo.tanh %8 : tensor<2048x2048xbf16>
    %10 = stablehlo.slice %arg1 [2:3, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %11 = stablehlo.reshape %10 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %12 = stablehlo.custom_call @annotate_device_placement(%11) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %13 = stablehlo.dot_general %9, %12, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %14 = stablehlo.tanh %13 : tensor<2048x2048xbf16>
    %15 = stablehlo.slice %arg1 [3:4, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %16 = stablehlo.reshape %15 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %17 = stablehlo.custom_call @annotate_device_placement(%16) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %18 = stablehlo.dot_general %14, %17, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %19 = stablehlo.tanh %18 : tensor<2048x2048xbf16>
    %20 = stablehlo.slice %arg1 [4:5, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %21 = stablehlo.reshape %20 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %22 = stablehlo.custom_call @annotate_device_placement(%21) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %23 = stablehlo.dot_general %19, %22, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %24 = stablehlo.tanh %23 : tensor<2048x2048xbf16>
    %25 = stablehlo.slice %arg1 [5:6, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %26 = stablehlo.reshape %25 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %27 = stablehlo.custom_call @annotate_device_placement(%26) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %28 = stablehlo.dot_general %24, %27, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %29 = stablehlo.tanh %28 : tensor<2048x2048xbf16>
    return %29 : tensor<2048x2048xbf16>
  }
}
