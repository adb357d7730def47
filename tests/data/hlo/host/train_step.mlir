module @jit_train_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  func.func public @main(%arg0: tensor<6x2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>, tf.aliasing_output = 0 : i32}, %arg1: tensor<6x2048x2048xf32> {mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>, tf.aliasing_output = 1 : i32}, %arg2: tensor<2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}]>}) -> (tensor<6x2048x2048xbf16> {jax.result_info = "result[0]", mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>}, tensor<6x2048x2048xf32> {jax.result_info = "result[1]", mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:4 = stablehlo.while(%iterArg = %arg0, %iterArg_5 = %c, %iterArg_6 = %arg2, %iterArg_7 = %0) : tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>, tensor<6x2048x2048xbf16>
    cond {
      %c_8 = stablehlo.constant dense<6> : tensor<i32>
      %19 = stablehlo.compare LT, %iterArg_5, %c_8, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %19 : tensor<i1>
    } do {
      %19 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_5) : (tensor<6x2048x2048xbf16>, tensor<i32>) -> tensor<2048x2048xbf16>
      %20:2 = func.call @closed_call(%iterArg_6, %19) : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>)
      %21 = func.call @dynamic_update_index_in_dim(%iterArg_7, %20#1, %iterArg_5) : (tensor<6x2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<i32>) -> tensor<6x2048x2048xbf16>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %22 = stablehlo.add %iterArg_5, %c_8 : tensor<i32>
      stablehlo.return %iterArg, %22, %20#0, %21 : tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>, tensor<6x2048x2048xbf16>
    }
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2048x2048xf32>
    %3 = stablehlo.convert %2 : (tensor<2048x2048xf32>) -> tensor<2048x2048xbf16>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %5:5 = stablehlo.while(%iterArg = %1#3, %iterArg_5 = %arg0, %iterArg_6 = %c_2, %iterArg_7 = %3, %iterArg_8 = %4) : tensor<6x2048x2048xbf16>, tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>, tensor<6x2048x2048xbf16>
    cond {
      %c_9 = stablehlo.constant dense<6> : tensor<i32>
      %19 = stablehlo.compare LT, %iterArg_6, %c_9, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %19 : tensor<i1>
    } do {
      %c_9 = stablehlo.constant dense<6> : tensor<i32>
      %19 = stablehlo.subtract %c_9, %iterArg_6 : tensor<i32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %20 = stablehlo.subtract %19, %c_10 : tensor<i32>
      %21 = func.call @dynamic_index_in_dim_0(%iterArg, %20) : (tensor<6x2048x2048xbf16>, tensor<i32>) -> tensor<2048x2048xbf16>
      %22 = func.call @dynamic_index_in_dim(%iterArg_5, %20) : (tensor<6x2048x2048xbf16>, tensor<i32>) -> tensor<2048x2048xbf16>
      %23:2 = func.call @closed_call_1(%iterArg_7, %21, %22) : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>)
      %24 = func.call @dynamic_update_index_in_dim_2(%iterArg_8, %23#1, %20) : (tensor<6x2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<i32>) -> tensor<6x2048x2048xbf16>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %25 = stablehlo.add %iterArg_6, %c_11 : tensor<i32>
      stablehlo.return %iterArg, %iterArg_5, %25, %23#0, %24 : tensor<6x2048x2048xbf16>, tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>, tensor<6x2048x2048xbf16>
    }
    %6 = stablehlo.convert %5#4 : (tensor<6x2048x2048xbf16>) -> tensor<6x2048x2048xf32>
    %7 = stablehlo.custom_call @annotate_device_placement(%arg1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x2048x2048xf32>) -> tensor<6x2048x2048xf32>
    %cst_3 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<6x2048x2048xf32>
    %9 = stablehlo.multiply %7, %8 : tensor<6x2048x2048xf32>
    %10 = stablehlo.add %9, %6 : tensor<6x2048x2048xf32>
    %cst_4 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<6x2048x2048xf32>
    %12 = stablehlo.multiply %11, %10 : tensor<6x2048x2048xf32>
    %13 = stablehlo.convert %arg0 : (tensor<6x2048x2048xbf16>) -> tensor<6x2048x2048xf32>
    %14 = stablehlo.subtract %13, %12 : tensor<6x2048x2048xf32>
    %15 = stablehlo.convert %14 : (tensor<6x2048x2048xf32>) -> tensor<6x2048x2048xbf16>
    %16 = stablehlo.custom_call @annotate_device_placement(%10) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x2048x2048xf32>) -> tensor<6x2048x2048xf32>
    %17 = stablehlo.custom_call @annotate_device_placement(%15) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x2048x2048xbf16>) -> tensor<6x2048x2048xbf16>
    %18 = stablehlo.custom_call @annotate_device_placement(%16) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x2048x2048xf32>) -> tensor<6x2048x2048xf32>
    return %17, %18 : tensor<6x2048x2048xbf16>, tensor<6x2048x2048xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<6x2048x2048xbf16>, %arg1: tensor<i32>) -> tensor<2048x2048xbf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2048, 2048] : (tensor<6x2048x2048xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2048x2048xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    return %1 : tensor<2048x2048xbf16>
  }
  func.func private @closed_call(%arg0: tensor<2048x2048xbf16>, %arg1: tensor<2048x2048xbf16>) -> (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) {
    %0 = stablehlo.custom_call @annotate_device_placement(%arg0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %1 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %2 = stablehlo.tanh %1 : tensor<2048x2048xbf16>
    return %2, %0 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<6x2048x2048xbf16>, %arg1: tensor<2048x2048xbf16>, %arg2: tensor<i32>) -> tensor<6x2048x2048xbf16> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<6x2048x2048xbf16>, tensor<1x2048x2048xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<6x2048x2048xbf16>
    return %1 : tensor<6x2048x2048xbf16>
  }
  func.func private @dynamic_index_in_dim_0(%arg0: tensor<6x2048x2048xbf16>, %arg1: tensor<i32>) -> tensor<2048x2048xbf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2048, 2048] : (tensor<6x2048x2048xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2048x2048xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    return %1 : tensor<2048x2048xbf16>
  }
  func.func private @closed_call_1(%arg0: tensor<2048x2048xbf16>, %arg1: tensor<2048x2048xbf16>, %arg2: tensor<2048x2048xbf16>) -> (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) {
    %0:3 = stablehlo.optimization_barrier %arg1, %arg2, %arg0 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %1 = stablehlo.custom_call @annotate_device_placement(%0#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %2 = stablehlo.dot_general %1, %0#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %3 = stablehlo.tanh %2 : tensor<2048x2048xbf16>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %5 = stablehlo.subtract %4, %3 : tensor<2048x2048xbf16>
    %6 = stablehlo.multiply %0#2, %5 : tensor<2048x2048xbf16>
    %7 = stablehlo.multiply %6, %3 : tensor<2048x2048xbf16>
    %8 = stablehlo.add %6, %7 : tensor<2048x2048xbf16>
    %9 = stablehlo.dot_general %8, %1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %11 = stablehlo.dot_general %8, %0#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    return %11, %10 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
  }
  func.func private @dynamic_update_index_in_dim_2(%arg0: tensor<6x2048x2048xbf16>, %arg1: tensor<2048x2048xbf16>, %arg2: tensor<i32>) -> tensor<6x2048x2048xbf16> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0 : (tensor<6x2048x2048xbf16>, tensor<1x2048x2048xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<6x2048x2048xbf16>
    return %1 : tensor<6x2048x2048xbf16>
  }
}
