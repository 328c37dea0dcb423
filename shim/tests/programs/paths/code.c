/* Graphs that allocate, modules and libraries. */
#include <fcntl.h>
#include <unistd.h>

#include "paths.h"

CUgraph graphs[128];
static CUgraphNode last_nodes[128]; /* of each graph */
CUgraphExec execs[128];
static CUmodule modules[128];
static CUlibrary libraries[128];

static CUresult add_allocation(size_t graph, CUdeviceptr *address, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}},
        .bytesize = bytes,
    };
    CUgraphNode *last = &last_nodes[graph];
    CUresult result = cuGraphAddMemAllocNode(last, graphs[graph], last, *last ? 1 : 0, &parameters);

    *address = parameters.dptr;
    return result;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, size_t how)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    CUgraphNode node;

    switch (how) {
    case 0:
        return cuGraphInstantiateWithFlags(exec, graph, 0);
    case 1:
        return cuGraphInstantiate_v2(exec, graph, &node, NULL, 0);
    case 2:
        return cuGraphInstantiateWithParams(exec, graph, &parameters);
    case 3:
        return cuGraphInstantiateWithParams_ptsz(exec, graph, &parameters);
    default:
        return cuGraphInstantiate(exec, graph, &node, NULL, 0);
    }
}

int do_graphs(const struct words *line)
{
    size_t graph = name(line, 1);

    if (is(line, "graph")) {
        last_nodes[graph] = NULL;
        say(cuGraphCreate(&graphs[graph], 0));
    } else if (is(line, "graph_alloc")) { /* graph address bytes */
        say(add_allocation(graph, &addresses[name(line, 2)], number(line, 3)));
    } else if (is(line, "graph_free")) { /* graph address */
        say(cuGraphAddMemFreeNode(&last_nodes[graph], graphs[graph], &last_nodes[graph],
                                  last_nodes[graph] ? 1 : 0, addresses[name(line, 2)]));
    } else if (is(line, "graph_destroy")) {
        say(cuGraphDestroy(graphs[graph]));
    } else if (is(line, "graph_trim")) {
        say(cuDeviceGraphMemTrim(device));
    } else if (is(line, "instantiate")) { /* exec graph how */
        say(instantiate(&execs[name(line, 1)], graphs[name(line, 2)], number(line, 3)));
    } else if (is(line, "upload")) {
        say(cuGraphUpload(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "launch")) {
        say(cuGraphLaunch(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "launch_ptsz")) {
        say(cuGraphLaunch_ptsz(execs[name(line, 1)], stream_of(line, 2)));
    } else if (is(line, "exec_destroy")) {
        say(cuGraphExecDestroy(execs[name(line, 1)]));
    } else {
        return 0;
    }
    return 1;
}

/* A module's text, padded to a size. */
static CUresult load(const struct words *line)
{
    static char text[8 << 20];
    size_t bytes = number(line, 2), length;

    length = (size_t)snprintf(text, sizeof(text), "hami-sim 1\nkernel k ns=1000 code=%zu\n", bytes);
    for (; length < bytes && length < sizeof(text) - 1; length++)
        text[length] = '\n';
    text[length] = 0;
    if (is(line, "module"))
        return cuModuleLoadData(&modules[name(line, 1)], text);
    if (is(line, "module_ex"))
        return cuModuleLoadDataEx(&modules[name(line, 1)], text, 0, NULL, NULL);
    return cuLibraryLoadData(&libraries[name(line, 1)], text, NULL, NULL, 0, NULL, NULL, 0);
}

/* An image from a file, by the calls that take one in memory. */
static CUresult load_image(const struct words *line)
{
    const char *way = line->word[0];
    int fd = open(line->word[2], O_RDONLY | O_CLOEXEC);
    static char image[1 << 20];
    CUmodule *module = &modules[name(line, 1)];

    memset(image, 0, sizeof(image));
    if (fd < 0 || read(fd, image, sizeof(image) - 1) < 0 || close(fd) != 0)
        exit(8);
    if (strcmp(way, "image_data") == 0)
        return cuModuleLoadData(module, image);
    if (strcmp(way, "image_ex") == 0)
        return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
    if (strcmp(way, "image_fat") == 0)
        return cuModuleLoadFatBinary(module, image);
    return cuLibraryLoadData(&libraries[name(line, 1)], image, NULL, NULL, 0, NULL, NULL, 0);
}

int do_modules(const struct words *line)
{
    CUmodule module;

    if (strncmp(line->word[0], "image_", 6) == 0)
        say(load_image(line));
    else if (is(line, "library_use"))
        say(cuLibraryGetModule(&module, libraries[name(line, 1)]));
    else if (is(line, "module") || is(line, "module_ex") || is(line, "library"))
        say(load(line));
    else if (is(line, "module_file"))
        say(cuModuleLoad(&modules[name(line, 1)], line->word[2]));
    else if (is(line, "library_file"))
        say(cuLibraryLoadFromFile(&libraries[name(line, 1)], line->word[2], NULL, NULL, 0, NULL,
                                  NULL, 0));
    else if (is(line, "module_unload"))
        say(cuModuleUnload(modules[name(line, 1)]));
    else if (is(line, "library_unload"))
        say(cuLibraryUnload(libraries[name(line, 1)]));
    else
        return 0;
    return 1;
}
