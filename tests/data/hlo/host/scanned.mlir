module @jit_scanned attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  func.func public @main(%arg0: tensor<2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}]>}, %arg1: tensor<6x2048x2048xbf16> {mhlo.memory_kind = "pinned_host", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>}) -> (tensor<2048x2048xbf16> {jax.result_info = "result", mhlo.memory_kind = "device"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %arg1, %iterArg_0 = %c, %iterArg_1 = %arg0) : tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>
    cond {
      %c_2 = stablehlo.constant dense<6> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg_0, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_0) : (tensor<6x2048x2048xbf16>, tensor<i32>) -> tensor<2048x2048xbf16>
      %2 = func.call @closed_call(%iterArg_1, %1) : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
      %c_2 = stablehlo.constant dense<1> : tensor<i32>
      %3 = stablehlo.add %iterArg_0, %c_2 : tensor<i32>
      stablehlo.return %iterArg, %3, %2 : tensor<6x2048x2048xbf16>, tensor<i32>, tensor<2048x2048xbf16>
    }
    return %0#2 : tensor<2048x2048xbf16>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<6x2048x2048xbf16>, %arg1: tensor<i32>) -> tensor<2048x2048xbf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 2048, 2048] : (tensor<6x2048x2048xbf16>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2048x2048xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    return %1 : tensor<2048x2048xbf16>
  }
  func.func private @closed_call(%arg0: tensor<2048x2048xbf16>, %arg1: tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16> {
    %0 = stablehlo.custom_call @annotate_device_placement(%arg1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %2 = stablehlo.tanh %1 : tensor<2048x2048xbf16>
    return %2 : tensor<2048x2048xbf16>
  }
}
