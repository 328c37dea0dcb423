/* Does nothing, without CUDA: what a preloaded library costs every other process's start. */
int main(void)
{
    return 0;
}
