module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<384x384xf32>, %arg1: tensor<384x384xf32>, %arg2: tensor<384x384xf32>, %arg3: tensor<384x384xf32>, %arg4: tensor<384x384xf32>, %arg5: tensor<384x384xf32>, %arg6: tensor<384x384xf32>, %arg7: tensor<384x384xf32>, %arg8: tensor<384x384xf32>, %arg9: tensor<384x384xf32>, %arg10: tensor<384x384xf32>, %arg11: tensor<384x384xf32>, %arg12: tensor<64x384xf32>, %arg13: tensor<64x384xf32>) -> (tensor<384x384xf32> {jax.result_info = "result[0][0]"}, tensor<384x384xf32> {jax.result_info = "result[0][1]"}, tensor<384x384xf32> {jax.result_info = "result[0][2]"}, tensor<384x384xf32> {jax.result_info = "result[0][3]"}, tensor<384x384xf32> {jax.result_info = "result[0][4]"}, tensor<384x384xf32> {jax.result_info = "result[0][5]"}, tensor<384x384xf32> {jax.result_info = "result[1][0]"}, tensor<384x384xf32> {jax.result_info = "result[1][1]"}, tensor<384x384xf32> {jax.result_info = "result[1][2]"}, tensor<384x384xf32> {jax.result_info = "result[1][3]"}, tensor<384x384xf32> {jax.result_info = "result[1][4]"}, tensor<384x384xf32> {jax.result_info = "result[1][5]"}, tensor<f32> {jax.result_info = "result[2]"}) {
    %0 = stablehlo.dot_general %arg12, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %1 = stablehlo.tanh %0 : tensor<64x384xf32>
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %3 = stablehlo.subtract %2, %1 : tensor<64x384xf32>
    %4 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %5 = stablehlo.tanh %4 : tensor<64x384xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %7 = stablehlo.subtract %6, %5 : tensor<64x384xf32>
    %8 = stablehlo.dot_general %5, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %9 = stablehlo.tanh %8 : tensor<64x384xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %11 = stablehlo.subtract %10, %9 : tensor<64x384xf32>
    %12 = stablehlo.dot_general %9, %arg3, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %13 = stablehlo.tanh %12 : tensor<64x384xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %15 = stablehlo.subtract %14, %13 : tensor<64x384xf32>
    %16 = stablehlo.dot_general %13, %arg4, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %17 = stablehlo.tanh %16 : tensor<64x384xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %19 = stablehlo.subtract %18, %17 : tensor<64x384xf32>
    %20 = stablehlo.dot_general %17, %arg5, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %21 = stablehlo.subtract %20, %arg13 : tensor<64x384xf32>
    %22 = stablehlo.multiply %21, %21 : tensor<64x384xf32>
    %cst_4 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %24 = stablehlo.multiply %23, %21 : tensor<64x384xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %25 = stablehlo.reduce(%22 init: %cst_5) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x384xf32>, tensor<f32>) -> tensor<f32>
    %cst_6 = stablehlo.constant dense<2.457600e+04> : tensor<f32>
    %26 = stablehlo.divide %25, %cst_6 : tensor<f32>
    %cst_7 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_8 = stablehlo.constant dense<2.457600e+04> : tensor<f32>
    %27 = stablehlo.divide %cst_7, %cst_8 : tensor<f32>
    %28 = stablehlo.broadcast_in_dim %27, dims = [] : (tensor<f32>) -> tensor<64x384xf32>
    %29 = stablehlo.multiply %28, %24 : tensor<64x384xf32>
    %30 = stablehlo.dot_general %29, %17, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %31 = stablehlo.transpose %30, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %32 = stablehlo.dot_general %29, %arg5, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %33 = stablehlo.multiply %32, %19 : tensor<64x384xf32>
    %34 = stablehlo.multiply %33, %17 : tensor<64x384xf32>
    %35 = stablehlo.add %33, %34 : tensor<64x384xf32>
    %36 = stablehlo.dot_general %35, %13, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %37 = stablehlo.transpose %36, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %38 = stablehlo.dot_general %35, %arg4, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %39 = stablehlo.multiply %38, %15 : tensor<64x384xf32>
    %40 = stablehlo.multiply %39, %13 : tensor<64x384xf32>
    %41 = stablehlo.add %39, %40 : tensor<64x384xf32>
    %42 = stablehlo.dot_general %41, %9, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %43 = stablehlo.transpose %42, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %44 = stablehlo.dot_general %41, %arg3, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %45 = stablehlo.multiply %44, %11 : tensor<64x384xf32>
    %46 = stablehlo.multiply %45, %9 : tensor<64x384xf32>
    %47 = stablehlo.add %45, %46 : tensor<64x384xf32>
    %48 = stablehlo.dot_general %47, %5, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %49 = stablehlo.transpose %48, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %50 = stablehlo.dot_general %47, %arg2, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %51 = stablehlo.multiply %50, %7 : tensor<64x384xf32>
    %52 = stablehlo.multiply %51, %5 : tensor<64x384xf32>
    %53 = stablehlo.add %51, %52 : tensor<64x384xf32>
    %54 = stablehlo.dot_general %53, %1, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %55 = stablehlo.transpose %54, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %56 = stablehlo.dot_general %53, %arg1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<384x384xf32>) -> tensor<64x384xf32>
    %57 = stablehlo.multiply %56, %3 : tensor<64x384xf32>
    %58 = stablehlo.multiply %57, %1 : tensor<64x384xf32>
    %59 = stablehlo.add %57, %58 : tensor<64x384xf32>
    %60 = stablehlo.dot_general %59, %arg12, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<64x384xf32>, tensor<64x384xf32>) -> tensor<384x384xf32>
    %61 = stablehlo.transpose %60, dims = [1, 0] : (tensor<384x384xf32>) -> tensor<384x384xf32>
    %cst_9 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %62 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %63 = stablehlo.multiply %62, %arg6 : tensor<384x384xf32>
    %64 = stablehlo.add %63, %61 : tensor<384x384xf32>
    %cst_10 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %65 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %66 = stablehlo.multiply %65, %arg7 : tensor<384x384xf32>
    %67 = stablehlo.add %66, %55 : tensor<384x384xf32>
    %cst_11 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %68 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %69 = stablehlo.multiply %68, %arg8 : tensor<384x384xf32>
    %70 = stablehlo.add %69, %49 : tensor<384x384xf32>
    %cst_12 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %71 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %72 = stablehlo.multiply %71, %arg9 : tensor<384x384xf32>
    %73 = stablehlo.add %72, %43 : tensor<384x384xf32>
    %cst_13 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %74 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %75 = stablehlo.multiply %74, %arg10 : tensor<384x384xf32>
    %76 = stablehlo.add %75, %37 : tensor<384x384xf32>
    %cst_14 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %77 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %78 = stablehlo.multiply %77, %arg11 : tensor<384x384xf32>
    %79 = stablehlo.add %78, %31 : tensor<384x384xf32>
    %cst_15 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %80 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %81 = stablehlo.multiply %80, %64 : tensor<384x384xf32>
    %82 = stablehlo.subtract %arg0, %81 : tensor<384x384xf32>
    %cst_16 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %83 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %84 = stablehlo.multiply %83, %67 : tensor<384x384xf32>
    %85 = stablehlo.subtract %arg1, %84 : tensor<384x384xf32>
    %cst_17 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %86 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %87 = stablehlo.multiply %86, %70 : tensor<384x384xf32>
    %88 = stablehlo.subtract %arg2, %87 : tensor<384x384xf32>
    %cst_18 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %90 = stablehlo.multiply %89, %73 : tensor<384x384xf32>
    %91 = stablehlo.subtract %arg3, %90 : tensor<384x384xf32>
    %cst_19 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %92 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %93 = stablehlo.multiply %92, %76 : tensor<384x384xf32>
    %94 = stablehlo.subtract %arg4, %93 : tensor<384x384xf32>
    %cst_20 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %95 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<384x384xf32>
    %96 = stablehlo.multiply %95, %79 : tensor<384x384xf32>
    %97 = stablehlo.subtract %arg5, %96 : tensor<384x384xf32>
    return %82, %85, %88, %91, %94, %97, %64, %67, %70, %73, %76, %79, %26 : tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<384x384xf32>, tensor<f32>
  }
}

