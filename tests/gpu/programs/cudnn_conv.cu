// A chain of convolutions and activations by cuDNN, forward and the gradient of each layer's input backward,
// every layer with buffers of its own and one workspace for all. The algorithms are fixed ones that give the
// same bits every time.
#include <cudnn.h>

#include "tests/apps/check.h"
#include "tests/gpu/programs/digest.h"

#define DNN(call)                                                                      \
    do {                                                                               \
        cudnnStatus_t dnn_status = (call);                                             \
        if (dnn_status != CUDNN_STATUS_SUCCESS)                                        \
            FAIL("line %d: %s: %s", __LINE__, #call, cudnnGetErrorString(dnn_status)); \
    } while (0)

constexpr int kImages = 8, kChannels = 32, kSide = 64;
constexpr std::size_t kWords = std::size_t{kImages} * kChannels * kSide * kSide;
constexpr std::size_t kWeights = std::size_t{kChannels} * kChannels * 3 * 3;
constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr auto kBackward = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;

__global__ void fill(float* to, unsigned count, unsigned seed, float scale) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = scale * (static_cast<float>(noise(i, seed) % 2001) / 1000.0f - 1.0f);
}

float* filled(std::size_t words, unsigned seed, float scale) {
    float* data;
    CHECK(cudaMalloc(&data, words * sizeof(float)));
    fill<<<blocks_for(words), 256>>>(data, static_cast<unsigned>(words), seed, scale);
    CHECK_LAUNCH();
    return data;
}

int main(int argc, char** argv) {
    const std::size_t per_layer = (2 * kWords + kWeights) * sizeof(float);
    const int layers = static_cast<int>(std::max<std::size_t>(bytes_to_use(argc, argv, 64) / per_layer, 2));
    cudnnHandle_t dnn;
    cudnnTensorDescriptor_t tensor;
    cudnnFilterDescriptor_t filter;
    cudnnConvolutionDescriptor_t convolution;
    cudnnActivationDescriptor_t activation;
    DNN(cudnnCreate(&dnn));
    DNN(cudnnCreateTensorDescriptor(&tensor));
    DNN(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, kImages, kChannels, kSide,
                                   kSide));
    DNN(cudnnCreateFilterDescriptor(&filter));
    DNN(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, kChannels, kChannels, 3, 3));
    DNN(cudnnCreateConvolutionDescriptor(&convolution));
    DNN(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
    DNN(cudnnCreateActivationDescriptor(&activation));
    DNN(cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));

    std::size_t forward = 0, backward = 0;
    DNN(cudnnGetConvolutionForwardWorkspaceSize(dnn, tensor, filter, convolution, tensor, kForward,
                                                &forward));
    DNN(cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, filter, tensor, convolution, tensor, kBackward,
                                                     &backward));
    const std::size_t bytes = std::max<std::size_t>(std::max(forward, backward), 1);
    void* workspace;
    CHECK(cudaMalloc(&workspace, bytes));

    std::vector<float*> values(layers + 1), gradients(layers + 1), weights(layers);
    for (int i = 0; i <= layers; ++i) values[i] = filled(kWords, i, 1);
    for (int i = 0; i <= layers; ++i) gradients[i] = filled(kWords, 100 + i, 1);
    for (int i = 0; i < layers; ++i) weights[i] = filled(kWeights, 200 + i, 0.1f);
    const float one = 1, none = 0;
    for (int pass = 0; pass < 2; ++pass) {
        for (int i = 0; i < layers; ++i) {
            DNN(cudnnConvolutionForward(dnn, &one, tensor, values[i], filter, weights[i], convolution,
                                        kForward, workspace, bytes, &none, tensor, values[i + 1]));
            DNN(cudnnActivationForward(dnn, activation, &one, tensor, values[i + 1], &none, tensor,
                                       values[i + 1]));
        }
        for (int i = layers; i-- > 0;) {
            DNN(cudnnConvolutionBackwardData(dnn, &one, filter, weights[i], tensor, gradients[i + 1],
                                             convolution, kBackward, workspace, bytes, &none, tensor,
                                             gradients[i]));
        }
    }
    Digest digest;
    std::vector<float> host(kWords);
    for (const auto* all : {&values, &gradients}) {
        for (float* data : *all) {
            CHECK(cudaMemcpy(host.data(), data, kWords * sizeof(float), cudaMemcpyDeviceToHost));
            digest.add(host.data(), kWords * sizeof(float));
            CHECK(cudaFree(data));
        }
    }
    for (float* data : weights) CHECK(cudaFree(data));
    CHECK(cudaFree(workspace));
    DNN(cudnnDestroy(dnn));
    digest.print("cudnn");
    return succeed();
}
