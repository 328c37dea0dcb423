/* Memory of others. */
#include <sys/mman.h>

#include "paths.h"

static CUexternalMemory externals[128];

static CUresult import_external(CUexternalMemory *memory, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {
        .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = bytes};

    description.handle.fd = memfd_create("external", MFD_CLOEXEC);
    return cuImportExternalMemory(memory, &description);
}

int do_others(const struct words *line)
{
    CUipcMemHandle shared;

    if (is(line, "external")) {
        say(import_external(&externals[name(line, 1)], number(line, 2)));
    } else if (is(line, "external_destroy")) {
        say(cuDestroyExternalMemory(externals[name(line, 1)]));
    } else if (is(line, "ipc_get")) {
        say(cuIpcGetMemHandle(&shared, addresses[name(line, 1)]));
    } else if (is(line, "ipc_export")) { /* address file */
        CUresult result = cuIpcGetMemHandle(&shared, addresses[name(line, 1)]);
        FILE *file = fopen(line->word[2], "w");

        if (!file || fwrite(&shared, sizeof(shared), 1, file) != 1 || fclose(file) != 0)
            exit(4);
        say(result);
    } else if (is(line, "ipc_open")) {
        FILE *file = fopen(line->word[2], "r");

        if (!file || fread(&shared, sizeof(shared), 1, file) != 1 || fclose(file) != 0)
            exit(4);
        say(cuIpcOpenMemHandle_v2(&addresses[name(line, 1)], shared,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    } else if (is(line, "ipc_close")) {
        say(cuIpcCloseMemHandle(addresses[name(line, 1)]));
    } else {
        return 0;
    }
    return 1;
}
