module @jit_unrolled attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @empty_mesh = <[]> {stablehlo.mesh = {axes = []}}
  func.func public @main(%arg0: tensor<6x2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}, {}]>}, %arg1: tensor<2048x2048xbf16> {mhlo.memory_kind = "device", sdy.sharding = #sdy.sharding<@empty_mesh, [{}, {}]>}) -> (tensor<6x2048x2048xbf16> {jax.result_info = "result", mhlo.memory_kind = "device"}) {
    %0 = stablehlo.slice %arg0 [0:1, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %1 = stablehlo.reshape %0 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %2 = stablehlo.custom_call @annotate_device_placement(%arg1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %3 = stablehlo.dot_general %arg1, %1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %4 = stablehlo.tanh %3 : tensor<2048x2048xbf16>
    %5 = stablehlo.slice %arg0 [1:2, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %6 = stablehlo.reshape %5 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %7 = stablehlo.custom_call @annotate_device_placement(%4) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %8 = stablehlo.dot_general %4, %6, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %9 = stablehlo.tanh %8 : tensor<2048x2048xbf16>
    %10 = stablehlo.slice %arg0 [2:3, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %11 = stablehlo.reshape %10 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %12 = stablehlo.custom_call @annotate_device_placement(%9) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %13 = stablehlo.dot_general %9, %11, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %14 = stablehlo.tanh %13 : tensor<2048x2048xbf16>
    %15 = stablehlo.slice %arg0 [3:4, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %16 = stablehlo.reshape %15 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %17 = stablehlo.custom_call @annotate_device_placement(%14) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %18 = stablehlo.dot_general %14, %16, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %19 = stablehlo.tanh %18 : tensor<2048x2048xbf16>
    %20 = stablehlo.slice %arg0 [4:5, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %21 = stablehlo.reshape %20 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %22 = stablehlo.custom_call @annotate_device_placement(%19) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %23 = stablehlo.dot_general %19, %21, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %24 = stablehlo.tanh %23 : tensor<2048x2048xbf16>
    %25 = stablehlo.slice %arg0 [5:6, 0:2048, 0:2048] : (tensor<6x2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %26 = stablehlo.reshape %25 : (tensor<1x2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %27 = stablehlo.custom_call @annotate_device_placement(%24) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %28 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2048x2048xf32>
    %29 = stablehlo.convert %28 : (tensor<2048x2048xf32>) -> tensor<2048x2048xbf16>
    %30:3 = stablehlo.optimization_barrier %27, %26, %29 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %31 = stablehlo.custom_call @annotate_device_placement(%30#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %32 = stablehlo.dot_general %31, %30#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %33 = stablehlo.tanh %32 : tensor<2048x2048xbf16>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %34 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %35 = stablehlo.subtract %34, %33 : tensor<2048x2048xbf16>
    %36 = stablehlo.multiply %30#2, %35 : tensor<2048x2048xbf16>
    %37 = stablehlo.multiply %36, %33 : tensor<2048x2048xbf16>
    %38 = stablehlo.add %36, %37 : tensor<2048x2048xbf16>
    %39 = stablehlo.dot_general %38, %31, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %40 = stablehlo.transpose %39, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %41 = stablehlo.dot_general %38, %30#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %42 = stablehlo.broadcast_in_dim %40, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %43 = stablehlo.pad %42, %cst_1, low = [5, 0, 0], high = [0, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %44:3 = stablehlo.optimization_barrier %22, %21, %41 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %45 = stablehlo.custom_call @annotate_device_placement(%44#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %46 = stablehlo.dot_general %45, %44#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %47 = stablehlo.tanh %46 : tensor<2048x2048xbf16>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %48 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %49 = stablehlo.subtract %48, %47 : tensor<2048x2048xbf16>
    %50 = stablehlo.multiply %44#2, %49 : tensor<2048x2048xbf16>
    %51 = stablehlo.multiply %50, %47 : tensor<2048x2048xbf16>
    %52 = stablehlo.add %50, %51 : tensor<2048x2048xbf16>
    %53 = stablehlo.dot_general %52, %45, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %54 = stablehlo.transpose %53, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %55 = stablehlo.dot_general %52, %44#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %56 = stablehlo.broadcast_in_dim %54, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %57 = stablehlo.pad %56, %cst_3, low = [4, 0, 0], high = [1, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %58 = stablehlo.add %43, %57 : tensor<6x2048x2048xbf16>
    %59:3 = stablehlo.optimization_barrier %17, %16, %55 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %60 = stablehlo.custom_call @annotate_device_placement(%59#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %61 = stablehlo.dot_general %60, %59#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %62 = stablehlo.tanh %61 : tensor<2048x2048xbf16>
    %cst_4 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %63 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %64 = stablehlo.subtract %63, %62 : tensor<2048x2048xbf16>
    %65 = stablehlo.multiply %59#2, %64 : tensor<2048x2048xbf16>
    %66 = stablehlo.multiply %65, %62 : tensor<2048x2048xbf16>
    %67 = stablehlo.add %65, %66 : tensor<2048x2048xbf16>
    %68 = stablehlo.dot_general %67, %60, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %69 = stablehlo.transpose %68, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %70 = stablehlo.dot_general %67, %59#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %71 = stablehlo.broadcast_in_dim %69, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %72 = stablehlo.pad %71, %cst_5, low = [3, 0, 0], high = [2, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %73 = stablehlo.add %58, %72 : tensor<6x2048x2048xbf16>
    %74:3 = stablehlo.optimization_barrier %12, %11, %70 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %75 = stablehlo.custom_call @annotate_device_placement(%74#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %76 = stablehlo.dot_general %75, %74#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %77 = stablehlo.tanh %76 : tensor<2048x2048xbf16>
    %cst_6 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %78 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %79 = stablehlo.subtract %78, %77 : tensor<2048x2048xbf16>
    %80 = stablehlo.multiply %74#2, %79 : tensor<2048x2048xbf16>
    %81 = stablehlo.multiply %80, %77 : tensor<2048x2048xbf16>
    %82 = stablehlo.add %80, %81 : tensor<2048x2048xbf16>
    %83 = stablehlo.dot_general %82, %75, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %84 = stablehlo.transpose %83, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %85 = stablehlo.dot_general %82, %74#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %86 = stablehlo.broadcast_in_dim %84, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %87 = stablehlo.pad %86, %cst_7, low = [2, 0, 0], high = [3, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %88 = stablehlo.add %73, %87 : tensor<6x2048x2048xbf16>
    %89:3 = stablehlo.optimization_barrier %7, %6, %85 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %90 = stablehlo.custom_call @annotate_device_placement(%89#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %91 = stablehlo.dot_general %90, %89#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %92 = stablehlo.tanh %91 : tensor<2048x2048xbf16>
    %cst_8 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %93 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %94 = stablehlo.subtract %93, %92 : tensor<2048x2048xbf16>
    %95 = stablehlo.multiply %89#2, %94 : tensor<2048x2048xbf16>
    %96 = stablehlo.multiply %95, %92 : tensor<2048x2048xbf16>
    %97 = stablehlo.add %95, %96 : tensor<2048x2048xbf16>
    %98 = stablehlo.dot_general %97, %90, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %99 = stablehlo.transpose %98, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %100 = stablehlo.dot_general %97, %89#1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %101 = stablehlo.broadcast_in_dim %99, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %102 = stablehlo.pad %101, %cst_9, low = [1, 0, 0], high = [4, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %103 = stablehlo.add %88, %102 : tensor<6x2048x2048xbf16>
    %104:3 = stablehlo.optimization_barrier %2, %1, %100 : tensor<2048x2048xbf16>, tensor<2048x2048xbf16>, tensor<2048x2048xbf16>
    %105 = stablehlo.custom_call @annotate_device_placement(%104#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %106 = stablehlo.dot_general %105, %104#1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %107 = stablehlo.tanh %106 : tensor<2048x2048xbf16>
    %cst_10 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %108 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<bf16>) -> tensor<2048x2048xbf16>
    %109 = stablehlo.subtract %108, %107 : tensor<2048x2048xbf16>
    %110 = stablehlo.multiply %104#2, %109 : tensor<2048x2048xbf16>
    %111 = stablehlo.multiply %110, %107 : tensor<2048x2048xbf16>
    %112 = stablehlo.add %110, %111 : tensor<2048x2048xbf16>
    %113 = stablehlo.dot_general %112, %105, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2048x2048xbf16>, tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %114 = stablehlo.transpose %113, dims = [1, 0] : (tensor<2048x2048xbf16>) -> tensor<2048x2048xbf16>
    %115 = stablehlo.broadcast_in_dim %114, dims = [1, 2] : (tensor<2048x2048xbf16>) -> tensor<1x2048x2048xbf16>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %116 = stablehlo.pad %115, %cst_11, low = [0, 0, 0], high = [5, 0, 0], interior = [0, 0, 0] : (tensor<1x2048x2048xbf16>, tensor<bf16>) -> tensor<6x2048x2048xbf16>
    %117 = stablehlo.add %103, %116 : tensor<6x2048x2048xbf16>
    return %117 : tensor<6x2048x2048xbf16>
  }
}
