/* The module that checks run kernels of, as PTX for a real driver and as the simulator's text, which
 * a real one refuses. The simulator takes both, but only from its own text it knows how long kernels
 * take.
 *
 *     nothing()              returns at once
 *     spin_dynamic(u64 ns)   runs that long by the device's clock
 *     cell                   64 bytes of global memory */
#ifndef HAMI_CONFORMANCE_MODULE_H
#define HAMI_CONFORMANCE_MODULE_H

#include "hami_cuda.h"

#define CELL_BYTES 64

static const char ptx_image[] = ".version 6.0\n"
                                ".target sm_60\n"
                                ".address_size 64\n"
                                ".visible .global .align 8 .b8 cell[64];\n"
                                ".visible .entry nothing()\n"
                                "{\n"
                                "    ret;\n"
                                "}\n"
                                ".visible .entry spin_dynamic(.param .u64 wanted)\n"
                                "{\n"
                                "    .reg .pred %more;\n"
                                "    .reg .u64 %wanted, %start, %now;\n"
                                "    ld.param.u64 %wanted, [wanted];\n"
                                "    mov.u64 %start, %globaltimer;\n"
                                "AGAIN:\n"
                                "    mov.u64 %now, %globaltimer;\n"
                                "    sub.u64 %now, %now, %start;\n"
                                "    setp.lt.u64 %more, %now, %wanted;\n"
                                "    @%more bra AGAIN;\n"
                                "    ret;\n"
                                "}\n";

static const char simulated_image[] = "hami-sim 1\n"
                                      "kernel nothing ns=2000 width=8\n"
                                      "kernel spin_dynamic ns=0 width=8\n"
                                      "global cell 64\n";

__attribute__((unused)) static const char *test_image(void)
{
    static const char *image;
    CUmodule module;

    if (image)
        return image;
    image = simulated_image;
    if (cuModuleLoadData(&module, simulated_image) == CUDA_SUCCESS)
        cuModuleUnload(module);
    else
        image = ptx_image;
    return image;
}

__attribute__((unused)) static CUresult load_test_module(CUmodule *module)
{
    return cuModuleLoadData(module, test_image());
}

__attribute__((unused)) static CUresult load_test_library(CUlibrary *library)
{
    return cuLibraryLoadData(library, test_image(), NULL, NULL, 0, NULL, NULL, 0);
}

#endif
