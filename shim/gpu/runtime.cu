// Memory and a kernel through CUDA's runtime, as most programs use it: the same lines as memory.c.
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void add_one(int *value)
{
    *value += 1;
}

int main(int argc, char **argv)
{
    const size_t chunk = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    size_t free_now = 0, total = 0;
    std::vector<void *> taken;
    void *memory = nullptr;
    int *value = nullptr, seen = 0;
    cudaError_t answer;

    if (cudaMalloc(&value, sizeof(*value)) != cudaSuccess ||
        cudaMemset(value, 0, sizeof(*value)) != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError()));
        return 1;
    }
    add_one<<<1, 1>>>(value);
    if (cudaMemcpy(&seen, value, sizeof(seen), cudaMemcpyDeviceToHost) != cudaSuccess || seen != 1) {
        fprintf(stderr, "a kernel did not do its work\n");
        return 1;
    }
    if (cudaMemGetInfo(&free_now, &total) != cudaSuccess)
        return 1;
    printf("context %zu %zu\n", free_now, total);
    while ((answer = cudaMalloc(&memory, chunk)) == cudaSuccess)
        taken.push_back(memory);
    cudaGetLastError();
    if (cudaMemGetInfo(&free_now, &total) != cudaSuccess)
        return 1;
    printf("cudaMalloc %zu %d %zu %zu\n", taken.size() * chunk, (int)answer, free_now, total);
    for (void *each : taken)
        if (cudaFree(each) != cudaSuccess)
            return 1;
    taken.clear();
    while ((answer = cudaMallocAsync(&memory, chunk, 0)) == cudaSuccess)
        taken.push_back(memory);
    cudaGetLastError();
    if (cudaMemGetInfo(&free_now, &total) != cudaSuccess)
        return 1;
    printf("cudaMallocAsync %zu %d %zu %zu\n", taken.size() * chunk, (int)answer, free_now, total);
    for (void *each : taken)
        if (cudaFreeAsync(each, 0) != cudaSuccess)
            return 1;
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
