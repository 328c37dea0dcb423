/* Modules, libraries, functions and launches of the simulated driver. */
#ifndef SIM_MODULES_H
#define SIM_MODULES_H

#include "execution.h"

/* ---- Modules (cuda_image.c, cuda_module.c, cuda_library.c, cuda_function.c) ---- */

#define SIM_NAME_SIZE 128
#define SIM_SHARED_DEFAULT 49152u /* bytes of dynamic shared memory without asking for more */

struct sim_symbol { /* one line of an image */
    char name[SIM_NAME_SIZE];
    bool global, dynamic;
    uint64_t bytes;        /* of the global; of a kernel's code */
    uint64_t ns, per_block_ns, local;
    uint32_t width;
};

struct sim_image {
    struct sim_symbol *symbols;
    size_t count;
};

/* Whatever image a driver takes as text that sim_image_parse takes; to be freed (cuda_image_real.c). */
CUresult sim_image_text(const void *image, char **text);
CUresult sim_image_parse(const char *text, struct sim_image *image);
CUresult sim_image_read(const char *path, char **text);
void sim_image_free(struct sim_image *image);

struct CUfunc_st {
    struct sim_head head;
    /* What a launch looks at, together. */
    _Atomic bool ready;   /* its code is loaded, and its context has local memory enough */
    _Atomic bool plain;   /* ready, and every launch of it is `work` */
    _Atomic bool loaded;  /* its code is */
    bool dynamic;
    _Atomic unsigned int shared_limit; /* dynamic shared memory that a launch may ask for */
    struct sim_work work; /* of no blocks */
    CUcontext context;    /* where the module is */
    uint64_t per_block_ns;
    CUmodule module;
    CUkernel kernel;   /* of a library */
    const struct sim_symbol *symbol;
    unsigned int block[3]; /* of the calls before CUDA 4.0 */
    unsigned int parameter_bytes;
    uint64_t parameter;
};

struct sim_global {
    CUdeviceptr address;
    const struct sim_symbol *symbol;
};

struct CUmod_st {
    struct sim_head head;
    CUcontext context;
    CUlibrary library; /* NULL: loaded by cuModuleLoad */
    struct sim_image image;
    CUfunction *functions; /* one per symbol, NULL for globals */
    struct sim_global *globals;
    size_t global_count;
    uint64_t code_used, code_taken;
    uint64_t *memory; /* in the ledger */
    size_t memory_count;
    CUmodule next, previous;
};

struct CUlib_st {
    struct sim_head head;
    char *text;
    struct sim_image image;
    CUkernel *kernels; /* one per symbol, NULL for globals */
    CUlibrary next, previous;
};

struct CUkern_st {
    struct sim_head head;
    CUlibrary library;
    const struct sim_symbol *symbol;
};

CUresult sim_module_open(CUmodule *module, CUcontext context, const char *text, CUlibrary library);
void sim_module_close(CUmodule module);
/* Room for `bytes` more of the module's code. */
CUresult sim_module_grow(CUmodule module, uint64_t bytes);
bool sim_lazy(void);
/* The module of a library in a context, loaded when it is not yet. */
CUresult sim_library_module(CUlibrary library, CUcontext context, CUmodule *module);
/* In EAGER mode a new context loads every library. */
CUresult sim_library_load_all(CUcontext context);
/* A CUfunction, or a CUkernel passed as one: the function of `context`. */
CUresult sim_function_resolve(CUfunction handle, CUcontext context, CUfunction *function);
CUresult sim_function_load(CUfunction function);
/* Local memory for a kernel in a context, when the context's is too small. */
CUresult sim_local_grow(CUcontext context, uint64_t bytes_per_thread);

/* ---- Launches (cuda_launch.c) ---- */

struct sim_launch {
    CUfunction function; /* resolved */
    unsigned int grid[3], block[3], shared;
    uint64_t parameter; /* the first, of a dynamic kernel */
};
/* Take the dynamic kernel's duration from parameters as programs pass them. */
CUresult sim_launch_parameter(struct sim_launch *launch, void **parameters, void **extra);
/* Check the shape and compute what runs, in a context (a green one makes it narrower). */
CUresult sim_launch_work(const struct sim_launch *launch, CUcontext context, struct sim_work *work);
/* Code and local memory. */
CUresult sim_launch_ready(CUfunction function);
/* All blocks of a cooperative launch run at once, or it is refused. */
CUresult sim_launch_fits(CUstream stream, bool per_thread, uint64_t blocks, unsigned int threads);
/* Any launch: run, or captured. */
CUresult sim_launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3],
                    unsigned int shared, CUstream stream, bool per_thread, void **parameters,
                    void **extra);

/* Of the structures that programs describe launches with. */
#define SIM_GRID(of) ((unsigned int[]){ (of)->gridDimX, (of)->gridDimY, (of)->gridDimZ })
#define SIM_BLOCK(of) ((unsigned int[]){ (of)->blockDimX, (of)->blockDimY, (of)->blockDimZ })

#endif
